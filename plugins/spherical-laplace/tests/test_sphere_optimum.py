"""The theorem against a solver: optima over more and more points of the sphere rise towards the law's loss."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from helpers.command import run

from privopt_spherical_laplace.law import expected_distance

EPSILON = "0.0005"


def even_points(count):
    """Return latitudes and longitudes that spread evenly over a sphere: a spiral of the golden angle."""
    numbers = np.arange(count) + 0.5
    longitudes = np.degrees(np.pi * (1 + 5**0.5) * numbers) % 360 - 180
    return np.column_stack([np.degrees(np.arcsin(1 - 2 * numbers / count)), longitudes])


def optimum(folder, count):
    """Return the least expected distance over so many points, all pairs, by optimal-lp."""
    rows = [f"{row},{a!r},{b!r}\n" for row, (a, b) in enumerate(even_points(count).tolist())]
    (folder / "points.csv").write_text("id,lat,lon\n" + "".join(rows))
    toml = f'[records]\npoints = "points.csv"\n[distance]\nkind = "haversine"\n[privacy]\nepsilon = {EPSILON}\n'
    (folder / "p.toml").write_text(toml + '[utility]\nkind = "distance"\n')
    out = folder / f"d{count}"
    completed = run("solve", "optimal-lp", folder / "p.toml", "--out", out, "--quiet", "--gap", "1e-4")
    assert completed.exit_code == 0, completed.stderr
    return json.loads((out / "result.json").read_text())["objective"]["value"]


def check_rises(folder, counts):
    """Check that more points lose more, and less than the law: a few points know fewer constraints."""
    values = [optimum(folder, count) for count in counts]
    assert values == sorted(values)
    assert values[-1] < expected_distance(Fraction(EPSILON))[1]
    return values


def test_optima_rise_towards_the_law(tmp_path):
    few, more = check_rises(tmp_path, (12, 50))
    assert expected_distance(Fraction(EPSILON))[1] - more < 0.5 * (expected_distance(Fraction(EPSILON))[1] - few)


@pytest.mark.slow
def test_optimum_over_200_points_is_near_the_law(tmp_path):
    values = check_rises(tmp_path, (50, 100, 200))
    assert values[-1] > 0.93 * expected_distance(Fraction(EPSILON))[0]
