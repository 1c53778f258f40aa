"""Positions in another unit than the records': the message names the columns and the likely unit, and no value."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privopt.errors import UsageError
from privopt.run.verify import open_verified
from privopt_tables.apply import apply_in_memory
from privopt_tables.options import ApplyOptions
from privopt_tables.position_units import UnitSearch

EARTH = 6378137.0


def web_mercator(points):
    north = [EARTH * math.log(math.tan(math.pi / 4 + math.radians(lat) / 2)) for lat in points[:, 0]]
    return np.column_stack([north, EARTH * np.radians(points[:, 1])])


DEGREES = {
    "times 1e7 (E7": lambda points: np.rint(points * 1e7),
    "times 1e6 (microdegrees": lambda points: np.rint(points * 1e6),
    "times 1e5": lambda points: np.rint(points * 1e5),
    "radians": np.radians,
    "semicircles": lambda points: np.rint(points / 180 * 2**31),
    "seconds of arc": lambda points: points * 3600,
    "metres of Web Mercator": web_mercator,
}
KILOMETRES = {
    "metres": lambda points: points * 1e3,
    "feet": lambda points: points / 0.0003048,
    "centimetres": lambda points: points * 1e5,
}


def search_of(points, records, is_geographic):
    search = UnitSearch(columns=("north", "east"), records=records, is_geographic=is_geographic)
    search.add_positions(points)
    return search.notes


@pytest.mark.parametrize("unit", DEGREES)
@given(
    lat=st.floats(-70, 70).filter(lambda x: abs(x) > 1),
    lon=st.floats(-170, 170).filter(lambda x: abs(x) > 1),
    seed=st.integers(0, 10**6),
)
def test_names_the_unit_of_degrees(unit, lat, lon, seed):
    rng = np.random.default_rng(seed)
    records, points = (np.array([lat, lon]) + rng.uniform(-0.1, 0.1, (20, 2)) for _ in range(2))
    notes = search_of(DEGREES[unit](points), records, True)
    assert len(notes) == 1
    assert notes[0].startswith("columns north and east: ")
    assert unit in notes[0]
    assert not any(f"{abs(number):.0f}" in notes[0] for number in DEGREES[unit](points).ravel() if abs(number) > 1e4)
    assert search_of(points, records, True) == ()


@pytest.mark.parametrize("unit", KILOMETRES)
def test_names_the_unit_of_a_plane(unit):
    rng = np.random.default_rng(1)
    records, points = (np.array([430.0, -120.0]) + rng.uniform(-3, 3, (20, 2)) for _ in range(2))
    assert f"likely they are {unit}" in search_of(KILOMETRES[unit](points), records, False)[0]
    assert search_of(points, records, False) == ()


def test_positions_of_another_place_get_a_list_of_units():
    notes = search_of(np.array([[450000000.0, 70000000.0]]), np.array([[-30.0, 100.0]]), True)
    assert "(E7" in notes[0]
    assert search_of(np.array([[45.0, 7.0]]), np.array([[-30.0, 100.0]]), True) == ()


def test_apply_says_so_whether_or_not_a_row_is_reported(globe):
    opened, degrees = open_verified(globe), {"lat": "lat", "lon": "lon"}
    with pytest.raises(UsageError, match=r"1 impossible position.*columns lat and lon.*E7"):
        apply_in_memory(opened, {"lat": [419000000], "lon": [124000000]}, degrees, ApplyOptions())
    _, notes = apply_in_memory(opened, {"lat": [0.7313], "lon": [0.2164]}, degrees, ApplyOptions())
    assert any("radians" in note for note in notes)


@pytest.fixture(scope="module")
def globe(tmp_path_factory):
    """DIR of three places on the globe."""
    from privopt.run.solve import solve

    folder = tmp_path_factory.mktemp("globe")
    (folder / "points.csv").write_text("id,lat,lon\na,41.9,12.4\nb,41.9,12.41\nc,41.91,12.4\n")
    keys = {"records": 'points = "points.csv"', "distance": 'kind = "haversine"', "privacy": "epsilon = 2.0"}
    keys["utility"] = 'kind = "distance"'
    (folder / "p.toml").write_text("".join(f"[{table}]\n{key}\n" for table, key in keys.items()))
    return solve("exponential", folder / "p.toml", folder / "out").folder
