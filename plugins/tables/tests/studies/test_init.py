"""`init` drafts files that `solve` takes as they are, and says what it took for what."""

import geopandas as gpd
import numpy as np
import polars as pl
import pytest
import shapely

from privopt.declare import load_problem
from privopt.errors import InputError, UsageError
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_tables.studies.draft_problem import draft, init

CITY = "docs/examples/city"


def loaded(folder):
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


@pytest.mark.parametrize("within", [1e-320, 1e-301, 1e305])
def test_a_reach_that_no_epsilon_is_for_is_refused(tmp_path, privopt, within):
    given = ["--points", f"{CITY}/points.csv", "--out", tmp_path / "p.toml", "--within", within]
    done = privopt("init", "optimal-lp", *given)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"--within {within:g}: epsilon must be" in done.stderr
    assert not (tmp_path / "p.toml").exists()


def test_factors_beyond_doubles_are_written_as_powers(trips):
    made = draft("optimal-lp", trips, trips.parent, within=1e-5)
    assert "apart (median), by at most e^" in made.notes[-2]
    assert "most places have no neighbour within 1e-05 km: --within " in made.notes[-1]  # it would hide nobody


def solves(folder, mechanism="exponential"):
    done = solve(mechanism, folder / "p.toml", folder / "out")
    return verify(done.folder).verdict == "proved"


def test_a_list_of_places_with_roads(tmp_path, privopt):
    given = ["--points", f"{CITY}/points.csv", "--roads", f"{CITY}/roads.csv"]
    done = privopt("init", "optimal-lp", *given, "--out", tmp_path / "p.toml", "--within", 0.5, "--factor", 2)
    assert done.returncode == 0, done.stderr
    assert "column lat is taken for latitudes, lon for longitudes" in done.stderr
    assert "within 0.5 km: one report changes the odds between two such places by a factor of at most 2" in done.stderr
    data = loaded(tmp_path)
    assert (len(data.records), float(data.epsilon)) == (48, 1.38)  # log(2) / 0.5, rounded down
    assert "roads.csv" in (tmp_path / "p.toml").read_text()
    assert solves(tmp_path)
    again = privopt("init", "optimal-lp", *given, "--out", tmp_path / "p.toml")
    assert (again.returncode, "--force" in again.stderr) == (2, True)


def test_counties_of_a_geoparquet_are_named_under_their_states(counties, tmp_path):
    made = init("optimal-lp", counties, tmp_path / "p.toml")
    assert "ids are those of columns STNAME / CTYNAME" in made.notes
    data = loaded(tmp_path)
    assert data.records.ids[:2] == ("A/Lee", "A/Dale")
    assert np.allclose(data.records.coordinates[0], [40.2, -89.8])
    assert solves(tmp_path)


def test_trips_become_a_grid(trips, tmp_path):
    made = init("exponential", trips, tmp_path / "p.toml")
    assert any("a grid is laid over them" in line for line in made.notes)
    data = loaded(tmp_path)
    assert 100 <= len(data.records) <= 600
    assert "# column pickup_latitude is taken for latitudes" in (tmp_path / "p.toml").read_text()
    low, high = data.records.coordinates.min(axis=0), data.records.coordinates.max(axis=0)
    table = pl.read_csv(trips)
    inside = (table["pickup_latitude"] >= low[0] - 0.02) & (table["pickup_latitude"] <= high[0] + 0.02)
    inside &= (table["pickup_longitude"] >= low[1] - 0.02) & (table["pickup_longitude"] <= high[1] + 0.02)
    assert inside.mean() > 0.95
    assert solves(tmp_path)


def test_a_grid_tells_no_position(tmp_path):
    """Its corner and its cells are those of any positions in the same squares of 0.05 degrees."""
    grids = []
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        lat, lon = 40.701 + 0.048 * rng.random(300), 7.001 + 0.048 * rng.random(300)
        pl.DataFrame({"start_lat": lat, "start_lon": lon}).write_csv(tmp_path / "t.csv")
        made = draft("exponential", tmp_path / "t.csv", tmp_path)
        assert "this file reveals that much of the table" in made.text
        grids.append(made.text[made.text.index("rows =") : made.text.index("[distance]")])
    assert grids[0] == grids[1]
    assert "south_west = [ 40.7, 7.0, ]" in " ".join(grids[0].split())
    pl.DataFrame({"start_lat": lat[:199], "start_lon": lon[:199]}).write_csv(tmp_path / "t.csv")
    few = draft("exponential", tmp_path / "t.csv", tmp_path)
    assert "of 199 positions that may be too much" in " ".join(few.text.split())


@pytest.mark.parametrize("mechanism", ["const-opt", "lr-geo", "bd-mdp"])
def test_what_a_mechanism_needs_besides_is_filled_in(mechanism, tmp_path):
    (tmp_path / "t.csv").write_text("id,x,y\n" + "".join(f"p{n},{n % 4},{n // 4}\n" for n in range(12)))
    init(mechanism, tmp_path / "t.csv", tmp_path / "p.toml")
    assert solves(tmp_path, mechanism)


@pytest.mark.parametrize("header", ["lat,lon", "Latitude,LNG", "latitude,long"])
def test_columns_by_other_names(header, tmp_path):
    (tmp_path / "t.csv").write_text(f"osmid,{header}\n1,41.9,12.4\n2,41.91,12.4\n3,41.92,12.4\n")
    init("exponential", tmp_path / "t.csv", tmp_path / "p.toml")
    assert loaded(tmp_path).records.ids == ("1", "2", "3")


def test_the_meaning_is_that_of_epsilon(tmp_path):
    (tmp_path / "t.csv").write_text("id,x,y\n" + "".join(f"p{n},{2 * n},0\n" for n in range(6)))
    made = draft("exponential", tmp_path / "t.csv", tmp_path)
    assert "between neighbours, 2 km apart (median), by at most 1.59" in made.notes  # 4 ** (1/3) = 1.587...
    assert "epsilon = 0.231" in made.text  # log(4) / 6 = 0.23104...


def test_ids_under_another_name_are_named(tmp_path):
    rows = "".join(f"Village {n},{45 + n / 100},{7 + n / 90}\n" for n in range(30))
    (tmp_path / "t.csv").write_text("village,lat,lon\n" + rows)
    made = draft("exponential", tmp_path / "t.csv", tmp_path)
    assert "column village has no name of ids: rename it to id if its rows are public places" in " ".join(made.notes)


@pytest.mark.parametrize(
    ("text", "mechanism", "options", "words"),
    [
        ("a,b\n1,2\n", "exponential", {}, "expected columns such as lat"),
        ("x,y\n1,2\n1,2\n", "exponential", {}, "no column that is unique for each row"),
        ("id,x,y\na,1,2\nb,1,2\n", "exponential", {}, "2 records at one place"),
        ("id,x,y\na,1,q\nb,1,2\n", "exponential", {}, "row 2, column y: expected a finite number (km), got q"),
        ("id,x,y\na,1,2\nb,1,3\n", "fl-linear", {}, "is not over places"),
        ("id,x,y\na,1,2\nb,1,3\n", "exponential", {"factor": 1.0}, "must be a number above 1"),
        ("\x00\x01", "exponential", {}, "expected text, got a zero byte"),
    ],
)
def test_what_cannot_be_drafted_says_why(text, mechanism, options, words, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises((InputError, UsageError)) as caught:
        init(mechanism, tmp_path / "t.csv", tmp_path / "p.toml", **options)
    assert words in str(caught.value)
    assert not (tmp_path / "p.toml").exists()


PEOPLE = "user_id,name,phone,lat,lon\n" + "".join(f"u{n},Ann{n},0176,{52.5 + n / 90},13.4\n" for n in range(9))


@pytest.mark.parametrize("column", ["user_id", "rider", "TripID", "customer no", "patient_key", "uid", "household"])
def test_positions_of_people_become_a_grid(column, tmp_path):
    (tmp_path / "t.csv").write_text(PEOPLE.replace("user_id", column))
    made = init("exponential", tmp_path / "t.csv", tmp_path / "p.toml")
    assert any(f"column {column} identifies people or trips: positions and no list" in line for line in made.notes)
    assert "points" not in made.text


def test_rows_with_contacts_are_peoples_unless_an_id_is_a_places(tmp_path):
    for header, places in (("id,email", False), ("name,home_address", False), ("station_id,address", True)):
        (tmp_path / "t.csv").write_text(f"{header},lat,lon\na,b,52.5,13.4\nc,d,52.6,13.5\n")
        assert ("points" in draft("exponential", tmp_path / "t.csv", tmp_path).text) == places


def test_latitudes_and_longitudes_that_are_swapped_are_refused(tmp_path):
    for rows in ("1,151.2,-33.8\n2,151.2,-33.9\n", "1,91,7\n" * 50 + "1,45,7\n" * 50):
        (tmp_path / "t.csv").write_text(f"user_id,lat,lon\n{rows}")
        with pytest.raises(
            InputError, match=r"t.csv: column lat: expected .* swapped\?\), got \d+ numbers outside -90 to 90"
        ):
            draft("exponential", tmp_path / "t.csv", tmp_path)


@pytest.mark.parametrize("half", [180.1, -179.9])
def test_a_grid_goes_over_the_date_line(half, tmp_path):
    rows = "".join(f"{n},{-17 + n / 5_000},{179.9 if n % 2 else half}\n" for n in range(300)) + "0,999,999\n"
    (tmp_path / "t.csv").write_text(f"user_id,lat,lon\n{rows}")
    made = init("exponential", tmp_path / "t.csv", tmp_path / "p.toml")
    assert "spread over" not in " ".join(made.notes)
    at = loaded(tmp_path).records.coordinates
    assert len(at) < 700
    for lon in (179.9, -179.9):
        assert np.abs((at[:, 1] - lon + 180) % 360 - 180).min() < 0.02


def test_a_grid_over_half_the_earth_is_said_and_faults_name_the_table(tmp_path):
    (tmp_path / "t.csv").write_text("user_id,lat,lon\n1,0.1,0.1\n2,50,100\n")
    assert "they spread over 10," in " ".join(draft("exponential", tmp_path / "t.csv", tmp_path).notes)
    (tmp_path / "t.csv").write_text("user_id,lat,lon\n1,89.99,0\n2,89.98,0.01\n")
    with pytest.raises(InputError, match=r"t.csv: records.grid: expected .*, got a grid that passes a pole"):
        draft("exponential", tmp_path / "t.csv", tmp_path)
    (tmp_path / "t.csv").write_text("user_id,lat,lon\n1,40.7,7\n2,40.7,7\n")
    assert "cells of 0.2" in " ".join(draft("exponential", tmp_path / "t.csv", tmp_path).notes)


def test_people_on_a_plane_are_refused(tmp_path):
    (tmp_path / "t.csv").write_text("user_id,id,x,y\na,1,0,0\nb,2,1,1\n")
    with pytest.raises(InputError, match=r"column user_id: expected .*, got ids of people or trips, not of places"):
        draft("exponential", tmp_path / "t.csv", tmp_path)


def test_a_list_of_places_is_said_to_be_published(tmp_path):
    (tmp_path / "t.csv").write_text("name,shop_id,phone,lat,lon\nA,7,0176,52.5,13.4\nB,8,0177,52.6,13.4\n")
    notes = draft("exponential", tmp_path / "t.csv", tmp_path).notes
    assert "ids are those of column shop_id; name would do too" in notes
    said = "each row is taken for a public place: solve publishes columns shop_id, lat, lon of this table"
    assert any(said in line for line in notes)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"id,lat,lon\na,52.5,13.4\nM\xfcnchen,48.1,11.6\n", "row 3: expected text in UTF-8, got byte 0xfc"),
        (
            b"id;lat;lon\na;52,5;13,4\n",
            "header: expected commas between fields, a point before decimals, got ';' between fields",
        ),
        (b"", "got an empty file"),
        (
            b'id,lat,lon\na,"52,5",13.4\nb,52.6,13.4\n',
            "row 2, column lat: expected a finite number (degrees), with a point before its decimals, got 52,5",
        ),
    ],
)
def test_what_cannot_be_read_is_named_by_row(raw, said, tmp_path):
    (tmp_path / "t.csv").write_bytes(raw)
    with pytest.raises(InputError) as raised:
        draft("exponential", tmp_path / "t.csv", tmp_path)
    assert said in str(raised.value)
