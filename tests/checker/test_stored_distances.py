"""Stored distances that are a little too short: verify and the checker draw the line at the same place."""

import math
import shutil
from fractions import Fraction

import numpy as np
import pytest
from helpers.mended_sums import rewrite
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import privopt as po
from privopt import checker
from privopt.errors import PrivoptError
from privopt.run.verify import verify

EDGE = Fraction(1, 10**9)


def write_plane(folder):
    rng = np.random.default_rng(4)
    places = {"id": [f"p{n}" for n in range(9)], "x": rng.uniform(0, 3, 9), "y": rng.uniform(0, 3, 9)}
    records = po.records(places, id="id", x="x", y="y")
    po.solve("exponential", po.metric_problem(records, distance="euclidean", epsilon="1/km")).save(folder)


def write_earth(folder):
    rng = np.random.default_rng(5)
    places = {"id": [f"p{n}" for n in range(9)], "lat": rng.uniform(45, 45.1, 9), "lon": rng.uniform(7, 7.1, 9)}
    records = po.records(places, id="id", lat="lat", lon="lon")
    po.solve("exponential", po.metric_problem(records, distance="haversine", epsilon="0.5/km")).save(folder)


@pytest.fixture(scope="module", params=[write_plane, write_earth], ids=["plane", "earth"])
def folder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("release") / "dir"
    request.param(folder)
    return folder


def verify_holds(folder):
    try:
        return verify(folder).complaints == ()
    except PrivoptError:
        return False


@pytest.mark.parametrize("steps", [-(10**7), -1000, -1, 0, 1, 1000, 10**7])
def test_verify_and_checker_share_a_tolerance(folder, tmp_path, steps):
    # the edge is 1e-9 of the distance, some 4.5 million last bits of a double
    agreed = set()
    with np.load(folder / "mechanism.npz") as archive:
        count = len(archive["distances"])
    for row in range(0, count, 9):

        def shorten_distance(distances, row=row):
            distance = float(distances[row])
            edge = float(Fraction(distance) * (1 - EDGE))
            distances[row] = edge + steps * math.ulp(edge) if abs(steps) < 10**6 else edge * (1 + steps * 1e-17)
            return distances

        copy = rewrite(shutil.copytree(folder, tmp_path / f"copy {row}"), distances=shorten_distance)
        lines: list[str] = []
        is_accepted = checker.check(copy, lines.append) == 0
        assert verify_holds(copy) == is_accepted, lines
        agreed.add(is_accepted)
    assert steps in (-1, 0, 1) or agreed == {steps > 0}


FORGED = [
    1 - 1e-9,
    1 - 1.0000001e-9,
    1 - 0.9999999e-9,
    1 - 2e-9,
    1 + 1e-9,
    2.0,
    0.0,
    -1.0,
    5e-324,
    1e300,
    np.inf,
    np.nan,
]


@pytest.mark.parametrize("factor", FORGED)
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(row=st.integers(0, 2**16))
def test_forged_distance_is_judged_alike_and_ends_in_no_traceback(folder, tmp_path_factory, factor, row):
    """Both look at one stored distance at a time, and at ones that are no distances."""

    def forge(distances):
        with np.errstate(over="ignore"):
            distances[row % len(distances)] *= factor
        return distances

    copy = rewrite(shutil.copytree(folder, tmp_path_factory.mktemp("forged") / "copy"), distances=forge)
    lines: list[str] = []
    holds = checker.check(copy, lines.append) == 0
    assert verify_holds(copy) == holds, lines
    assert not holds or 1 - 1e-9 <= factor <= 1 or factor == 1 - 0.9999999e-9
