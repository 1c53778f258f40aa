"""Stored distances that are a little too short: verify and the checker draw the line at the same place."""

import math
import shutil
from fractions import Fraction

import numpy as np
import pytest
from helpers.mended_sums import rewrite

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
    po.solve("exponential", po.metric_problem(records, distance="haversine", epsilon="1/km")).save(folder)


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
def test_verify_and_checker_have_one_tolerance(folder, tmp_path, steps):
    # the edge is 1e-9 of the distance, some 4.5 million last bits of a double
    agreed = set()
    with np.load(folder / "mechanism.npz") as archive:
        count = len(archive["distances"])
    for row in range(0, count, 9):

        def shorten(distances, row=row):
            distance = float(distances[row])
            edge = float(Fraction(distance) * (1 - EDGE))
            distances[row] = edge + steps * math.ulp(edge) if abs(steps) < 10**6 else edge * (1 + steps * 1e-17)
            return distances

        copy = rewrite(shutil.copytree(folder, tmp_path / f"copy {row}"), distances=shorten)
        lines: list[str] = []
        holds = checker.check(copy, lines.append) == 0
        assert verify_holds(copy) == holds, lines
        agreed.add(holds)
    assert steps in (-1, 0, 1) or agreed == {steps > 0}
