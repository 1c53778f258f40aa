"""Lengths of roads beside the positions of their ends: none is shorter than the line, and another unit is told."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from helpers.mentions import assert_mentions
from hypothesis import assume, given
from hypothesis import strategies as st

from privopt.declare.schema import File
from privopt.errors import InputError
from privopt.numbers.distances import haversine
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt_metric_dp.problem.read_points import read_points
from privopt_metric_dp.problem.road_lengths import compare_lengths

LINE = "id,lat,lon\na,45,7\nb,45,7.004\nc,45,7.008\n"  # 0.3145 km apart


def warnings_of(points, roads):
    space = read_points(File(name="p.csv", path=None, kept=points.encode()), None, ids_alone=True)
    return " ".join(compare_lengths(File(name="r.csv", path=None, kept=roads.encode()), space))


def roads_of(km):
    return f"from,to,km\na,b,{km}\nb,c,{km}\n"


@pytest.mark.parametrize("km", ["0.1954", "0.21", "0.0", "2.13e-1"])
def test_refuses_a_road_shorter_than_the_straight_line(km):
    with pytest.raises(InputError) as excinfo:
        warnings_of(LINE, roads_of(km))
    words = str(excinfo.value)
    assert "r.csv: row 2" in words
    assert_mentions(words, f"{km} km", "from a to b")
    assert "0.3145 km" in words
    assert ("miles" in words) == (km != "0.0")


@pytest.mark.parametrize(
    ("km", "unit"),
    [
        ("0.3145", ""), ("0.4", ""), ("0.3", ""), ("0.311", ""),
        ("0.63", "minutes"), ("37.8", "seconds"), ("314.5", "metres"), ("1031.8", "feet"), ("506.1", "miles"),
    ],
)  # fmt: skip
def test_names_the_likely_unit(km, unit):
    warnings = warnings_of(LINE, roads_of(km))
    assert unit in warnings
    assert bool(warnings) == bool(unit)


@pytest.mark.parametrize(
    ("scale", "km", "words"),
    [(1000.0, "0.5", "in metres"), (1 / 111.2, "0.5", "in degrees")],
)
def test_positions_on_a_plane_in_another_unit(scale, km, words):
    points = f"id,x,y\na,0.0001,0\nb,{0.4 * scale:.9f},0\nc,{0.8 * scale:.9f},0\n"
    try:
        message = warnings_of(points, roads_of(km))
    except InputError as error:
        message = str(error)
    assert words in message


def test_init_and_solve_warn_and_refuse(tmp_path, privopt):
    (tmp_path / "n.csv").write_text(LINE)
    (tmp_path / "e.csv").write_text(roads_of("0.63"))
    options = ["--points", tmp_path / "n.csv", "--roads", tmp_path / "e.csv", "--out", tmp_path / "p.toml"]
    drafted = privopt("init", "exponential", *options)
    assert (drafted.returncode, "minutes" in drafted.stderr) == (0, True)
    release = solve("exponential", tmp_path / "p.toml", tmp_path / "out", Options())
    assert any("minutes" in line for line in release.warnings)
    (tmp_path / "e.csv").write_text(roads_of("0.1954"))
    completed = privopt("init", "exponential", *options, "--force")
    assert (completed.returncode, "row 2, column km" in completed.stderr) == (2, True)
    with pytest.raises(InputError, match="miles"):
        solve("exponential", tmp_path / "p.toml", tmp_path / "two", Options())


@pytest.mark.parametrize("key", ["distance", "utility"])
def test_compares_roads_of_the_loss(tmp_path, key):
    (tmp_path / "n.csv").write_text(LINE)
    (tmp_path / "e.csv").write_text(roads_of("0.32"))
    (tmp_path / "d.csv").write_text(roads_of("0.1954"))
    names = {"distance": "e.csv", "utility": "e.csv"} | {key: "d.csv"}
    (tmp_path / "p.toml").write_text(
        f'[records]\npoints = "n.csv"\n[distance]\nkind = "graph"\nedges = "{names["distance"]}"\n'
        f'[privacy]\nepsilon = 1\n[utility]\nkind = "travel-cost"\nedges = "{names["utility"]}"\n'
    )
    with pytest.raises(InputError, match=r"d\.csv: row 2"):
        solve("exponential", tmp_path / "p.toml", tmp_path / "out", Options())


def test_coarse_positions_may_explain_a_short_road():
    coarse = "id,lat,lon\na,45,7\nb,45,7.01\nc,45,7.02\n"
    assert "1 road shorter" in warnings_of(coarse, "from,to,km\na,b,0.2\nb,c,1\n")


@st.composite
def street_maps(draw):
    """Draw places up to 200 km apart anywhere on earth, the digits of positions and lengths, and detours."""
    count = draw(st.integers(2, 6))
    middle = draw(st.floats(-88, 88)), draw(st.floats(-180, 180))
    span = 10.0 ** draw(st.floats(-3, 0.2))
    offsets = draw(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=count, max_size=count))
    points = np.array(middle) + span * np.array(offsets)
    points[:, 1] = (points[:, 1] + 180) % 360 - 180
    detours = draw(st.lists(st.floats(1, 1.4), min_size=count - 1, max_size=count - 1))
    return points, np.array(detours), draw(st.integers(1, 7)), draw(st.integers(0, 6)), draw(st.booleans())


def round_values(values, digits, cuts):
    scaled = values * 10.0**digits
    return (np.trunc(scaled) if cuts else np.rint(scaled)) / 10.0**digits


@given(street_maps())
def test_rounding_is_never_refused(drawn):
    points, detours, position_digits, length_digits, cuts = drawn
    pyproj = pytest.importorskip("pyproj")
    a, b = points[:-1], points[1:]
    km = pyproj.Geod(ellps="WGS84").inv(a[:, 1], a[:, 0], b[:, 1], b[:, 0])[2] / 1000 * detours
    places = round_values(points, position_digits, cuts)
    lengths = np.abs(round_values(km, length_digits, cuts))
    assume(lengths.any())  # lengths that are all 0 are refused, for they show no digit at which they were rounded
    ids = [f"n{n}" for n in range(len(points))]
    table = pl.DataFrame({"id": ids, "lat": places[:, 0], "lon": places[:, 1]})
    roads = pl.DataFrame({"from": ids[:-1], "to": ids[1:], "km": lengths})
    warnings_of(table.write_csv(), roads.write_csv())


@given(street_maps(), st.floats(0.0, 0.95))
def test_refuses_what_no_rounding_explains(drawn, length_share):
    points = drawn[0]
    a, b = points[:-1], points[1:]
    straight = haversine(a, b)
    if straight.max() < 0.01:
        return
    points = points + np.array([[0, 360]]) * ((points[:, 1:] < 0) & (np.arange(len(points)) % 2 == 0)[:, None])
    ids = [f"n{n}" for n in range(len(points))]
    km = straight * np.where(straight == straight.max(), length_share, 1.2)
    table = pl.DataFrame({"id": ids, "lat": points[:, 0], "lon": points[:, 1]})
    roads = pl.DataFrame({"from": ids[:-1], "to": ids[1:], "km": [f"{length:.7f}" for length in km]})
    fine = "elsewhere,0.123456789,0\n"  # shows that the positions were not rounded to a few digits
    with pytest.raises(InputError, match="straight line"):
        warnings_of(table.write_csv() + fine, roads.write_csv())
