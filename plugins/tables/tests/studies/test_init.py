"""`init` drafts files that `solve` takes as they are, and says what it took for what."""

import geopandas as gpd
import numpy as np
import polars as pl
import pytest
import shapely
from helpers.mentions import assert_mentions

from privopt.declare import load_problem
from privopt.errors import InputError, UsageError
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_tables.studies.draft_problem import draft, init

CITY = "docs/examples/city"


def load_data(folder):
    return MetricInstance.of(load_problem(MetricProblem, folder / "p.toml"), "p.toml").data


@pytest.fixture
def counties(tmp_path):
    """Middles of counties whose names repeat under different states."""
    middles = [shapely.Point(x + 0.2, y + 0.2) for x in (-90, -89, -88) for y in (40, 41)]
    names = {"STNAME": ["A"] * 3 + ["B"] * 3, "CTYNAME": ["Lee", "Dale", "Cook"] * 2, "pop": [1, 2, 3, 4, 5, 6]}
    gpd.GeoDataFrame(names, geometry=middles, crs=4326).to_parquet(tmp_path / "counties.parquet")
    return tmp_path / "counties.parquet"


@pytest.fixture
def trips(tmp_path):
    """Return a table of trips: an id each, which is no id of a place."""
    rng = np.random.default_rng(0)
    lat, lon = 40.7 + 0.05 * rng.standard_normal(3_000), -74 + 0.05 * rng.standard_normal(3_000)
    table = {"trip_id": range(3_000), "pickup_latitude": lat, "pickup_longitude": lon, "fare": lat}
    pl.DataFrame(table).write_csv(tmp_path / "trips.csv")
    return tmp_path / "trips.csv"


@pytest.mark.parametrize("reach_km", [1e-320, 1e-301, 1e305])
def test_refuses_reach_without_epsilon(tmp_path, privopt, reach_km):
    arguments = ["--points", f"{CITY}/points.csv", "--out", tmp_path / "p.toml", "--within", reach_km]
    completed = privopt("init", "optimal-lp", *arguments)
    assert (completed.returncode, completed.stderr.count("\n")) == (2, 1)
    assert f"--within {reach_km:g}: epsilon" in completed.stderr
    assert not (tmp_path / "p.toml").exists()


def test_factors_beyond_doubles_are_powers(trips):
    drafted = draft("optimal-lp", trips, trips.parent, within=1e-5)
    assert "at most e^" in drafted.notes[-2]
    assert_mentions(drafted.notes[-1], "within 1e-05 km", "--within")  # it would hide nobody


def solves(folder, mechanism="exponential"):
    release = solve(mechanism, folder / "p.toml", folder / "out")
    return verify(release.folder).verdict == "proved"


def test_places_with_roads(tmp_path, privopt):
    arguments = ["--points", f"{CITY}/points.csv", "--roads", f"{CITY}/roads.csv"]
    completed = privopt("init", "optimal-lp", *arguments, "--out", tmp_path / "p.toml", "--within", 0.5, "--factor", 2)
    assert completed.returncode == 0, completed.stderr
    assert_mentions(completed.stderr, "column lat", "lon as longitudes")
    assert_mentions(completed.stderr, "within 0.5 km", "at most 2")
    data = load_data(tmp_path)
    assert (len(data.records), float(data.epsilon)) == (48, 1.38)  # log(2) / 0.5, rounded down
    assert "roads.csv" in (tmp_path / "p.toml").read_text()
    assert solves(tmp_path)
    second_run = privopt("init", "optimal-lp", *arguments, "--out", tmp_path / "p.toml")
    assert (second_run.returncode, "--force" in second_run.stderr) == (2, True)


def test_counties_are_named_with_their_states(counties, tmp_path):
    drafted = init("optimal-lp", counties, tmp_path / "p.toml")
    assert any("STNAME / CTYNAME" in note for note in drafted.notes)
    data = load_data(tmp_path)
    assert data.records.ids[:2] == ("A/Lee", "A/Dale")
    assert np.allclose(data.records.coordinates[0], [40.2, -89.8])
    assert solves(tmp_path)


def test_trips_become_a_grid(trips, tmp_path):
    drafted = init("exponential", trips, tmp_path / "p.toml")
    assert any("a grid is" in line for line in drafted.notes)
    data = load_data(tmp_path)
    assert 100 <= len(data.records) <= 600
    assert "column pickup_latitude" in (tmp_path / "p.toml").read_text()
    low, high = data.records.coordinates.min(axis=0), data.records.coordinates.max(axis=0)
    table = pl.read_csv(trips)
    is_inside = (table["pickup_latitude"] >= low[0] - 0.02) & (table["pickup_latitude"] <= high[0] + 0.02)
    is_inside &= (table["pickup_longitude"] >= low[1] - 0.02) & (table["pickup_longitude"] <= high[1] + 0.02)
    assert is_inside.mean() > 0.95
    assert solves(tmp_path)


def test_grid_reveals_no_position(tmp_path):
    """Its corner and its cells are those of any positions in the same squares of 0.05 degrees."""
    grids = []
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        lat, lon = 40.701 + 0.048 * rng.random(300), 7.001 + 0.048 * rng.random(300)
        pl.DataFrame({"start_lat": lat, "start_lon": lon}).write_csv(tmp_path / "t.csv")
        drafted = draft("exponential", tmp_path / "t.csv", tmp_path)
        assert "this file reveals" in drafted.text
        grids.append(drafted.text[drafted.text.index("rows =") : drafted.text.index("[distance]")])
    assert grids[0] == grids[1]
    assert "south_west = [ 40.7, 7.0, ]" in " ".join(grids[0].split())
    pl.DataFrame({"start_lat": lat[:199], "start_lon": lon[:199]}).write_csv(tmp_path / "t.csv")
    few_drafted = draft("exponential", tmp_path / "t.csv", tmp_path)
    assert "of 199 positions" in " ".join(few_drafted.text.split())


@pytest.mark.parametrize("mechanism", ["const-opt", "lr-geo", "bd-mdp"])
def test_fills_in_what_a_mechanism_needs(mechanism, tmp_path):
    (tmp_path / "t.csv").write_text("id,x,y\n" + "".join(f"p{n},{n % 4},{n // 4}\n" for n in range(12)))
    init(mechanism, tmp_path / "t.csv", tmp_path / "p.toml")
    assert solves(tmp_path, mechanism)


@pytest.mark.parametrize("header", ["lat,lon", "Latitude,LNG", "latitude,long"])
def test_columns_by_other_names(header, tmp_path):
    (tmp_path / "t.csv").write_text(f"osmid,{header}\n1,41.9,12.4\n2,41.91,12.4\n3,41.92,12.4\n")
    init("exponential", tmp_path / "t.csv", tmp_path / "p.toml")
    assert load_data(tmp_path).records.ids == ("1", "2", "3")


def test_meaning_matches_epsilon(tmp_path):
    (tmp_path / "t.csv").write_text("id,x,y\n" + "".join(f"p{n},{2 * n},0\n" for n in range(6)))
    drafted = draft("exponential", tmp_path / "t.csv", tmp_path)
    assert any("2 km apart" in note and "at most 1.59" in note for note in drafted.notes)  # 4 ** (1/3) = 1.587...
    assert "epsilon = 0.231" in drafted.text  # log(4) / 6 = 0.23104...


def test_names_ids_under_another_name(tmp_path):
    rows = "".join(f"Village {n},{45 + n / 100},{7 + n / 90}\n" for n in range(30))
    (tmp_path / "t.csv").write_text("village,lat,lon\n" + rows)
    drafted = draft("exponential", tmp_path / "t.csv", tmp_path)
    assert_mentions(" ".join(drafted.notes), "column village", "rename it")


@pytest.mark.parametrize(
    ("text", "mechanism", "options", "words"),
    [
        ("a,b\n1,2\n", "exponential", {}, "such as lat"),
        ("x,y\n1,2\n1,2\n", "exponential", {}, "unique for each"),
        ("id,x,y\na,1,2\nb,1,2\n", "exponential", {}, "2 records at"),
        (
            "id,x,y\na,1,q\nb,1,2\n",
            "exponential",
            {},
            "row 2, column y",
        ),
        ("id,x,y\na,1,2\nb,1,3\n", "fl-linear", {}, "over places"),
        ("id,x,y\na,1,2\nb,1,3\n", "exponential", {"factor": 1.0}, "number above 1"),
        ("\x00\x01", "exponential", {}, "zero byte"),
    ],
)
def test_says_why_nothing_is_drafted(text, mechanism, options, words, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises((InputError, UsageError)) as excinfo:
        init(mechanism, tmp_path / "t.csv", tmp_path / "p.toml", **options)
    assert words in str(excinfo.value)
    assert not (tmp_path / "p.toml").exists()


PEOPLE = "user_id,name,phone,lat,lon\n" + "".join(f"u{n},Ann{n},0176,{52.5 + n / 90},13.4\n" for n in range(9))


@pytest.mark.parametrize("column", ["user_id", "rider", "TripID", "customer no", "patient_key", "uid", "household"])
def test_positions_of_people_become_a_grid(column, tmp_path):
    (tmp_path / "t.csv").write_text(PEOPLE.replace("user_id", column))
    drafted = init("exponential", tmp_path / "t.csv", tmp_path / "p.toml")
    assert any(f"column {column} identifies" in line for line in drafted.notes)
    assert "points" not in drafted.text


def test_rows_with_contacts_belong_to_people(tmp_path):
    for header, places in (("id,email", False), ("name,home_address", False), ("station_id,address", True)):
        (tmp_path / "t.csv").write_text(f"{header},lat,lon\na,b,52.5,13.4\nc,d,52.6,13.5\n")
        assert ("points" in draft("exponential", tmp_path / "t.csv", tmp_path).text) == places


def test_refuses_swapped_latitudes(tmp_path):
    for rows in ("1,151.2,-33.8\n2,151.2,-33.9\n", "1,91,7\n" * 50 + "1,45,7\n" * 50):
        (tmp_path / "t.csv").write_text(f"user_id,lat,lon\n{rows}")
        with pytest.raises(InputError, match=r"t.csv: column lat: .*swapped\?\).*-90 to 90"):
            draft("exponential", tmp_path / "t.csv", tmp_path)


@pytest.mark.parametrize("half", [180.1, -179.9])
def test_grid_crosses_the_date_line(half, tmp_path):
    rows = "".join(f"{n},{-17 + n / 5_000},{179.9 if n % 2 else half}\n" for n in range(300)) + "0,999,999\n"
    (tmp_path / "t.csv").write_text(f"user_id,lat,lon\n{rows}")
    drafted = init("exponential", tmp_path / "t.csv", tmp_path / "p.toml")
    assert "spread over" not in " ".join(drafted.notes)
    coordinates = load_data(tmp_path).records.coordinates
    assert len(coordinates) < 700
    for lon in (179.9, -179.9):
        assert np.abs((coordinates[:, 1] - lon + 180) % 360 - 180).min() < 0.02


def test_grid_faults_name_the_table(tmp_path):
    (tmp_path / "t.csv").write_text("user_id,lat,lon\n1,0.1,0.1\n2,50,100\n")
    assert "they spread over 10," in " ".join(draft("exponential", tmp_path / "t.csv", tmp_path).notes)
    (tmp_path / "t.csv").write_text("user_id,lat,lon\n1,89.99,0\n2,89.98,0.01\n")
    with pytest.raises(InputError, match=r"t.csv: records.grid: .*a pole"):
        draft("exponential", tmp_path / "t.csv", tmp_path)
    (tmp_path / "t.csv").write_text("user_id,lat,lon\n1,40.7,7\n2,40.7,7\n")
    assert "cells of 0.2" in " ".join(draft("exponential", tmp_path / "t.csv", tmp_path).notes)


def test_refuses_people_on_a_plane(tmp_path):
    (tmp_path / "t.csv").write_text("user_id,id,x,y\na,1,0,0\nb,2,1,1\n")
    with pytest.raises(InputError, match=r"column user_id: .*people or trips"):
        draft("exponential", tmp_path / "t.csv", tmp_path)


def test_states_that_places_are_published(tmp_path):
    (tmp_path / "t.csv").write_text("name,shop_id,phone,lat,lon\nA,7,0176,52.5,13.4\nB,8,0177,52.6,13.4\n")
    notes = draft("exponential", tmp_path / "t.csv", tmp_path).notes
    assert any("column shop_id" in note and "name would" in note for note in notes)
    keywords = "each row is read as a public place, so solve publishes columns shop_id, lat, lon of this table"
    assert any(keywords in line for line in notes)


@pytest.mark.parametrize(
    ("raw", "keywords"),
    [
        (b"id,lat,lon\na,52.5,13.4\nM\xfcnchen,48.1,11.6\n", "row 3: expected text"),
        (
            b"id;lat;lon\na;52,5;13,4\n",
            "header: expected commas",
        ),
        (b"", "empty file"),
        (
            b'id,lat,lon\na,"52,5",13.4\nb,52.6,13.4\n',
            "row 2, column lat",
        ),
    ],
)
def test_unreadable_input_is_named_by_row(raw, keywords, tmp_path):
    (tmp_path / "t.csv").write_bytes(raw)
    with pytest.raises(InputError) as excinfo:
        draft("exponential", tmp_path / "t.csv", tmp_path)
    assert keywords in str(excinfo.value)
