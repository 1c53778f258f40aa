"""The theorem against a solver: optima over more and more points of the sphere rise towards the law's loss."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from helpers.command import run
from helpers.even_spheres import ORDER, icosahedral_positions, spiral_positions, write_sphere_problem

from privopt_spherical_laplace.law import expected_distance

EPSILON = "0.0005"


def solve_over(folder, positions, *options):
    """Return the objective of optimal-lp over positions, all pairs: the least expected distance, with its bound."""
    out = folder / f"d{len(positions)}"
    problem = write_sphere_problem(folder, positions, EPSILON)
    completed = run("solve", "optimal-lp", problem, "--out", out, "--quiet", *options)
    assert completed.exit_code == 0, completed.stderr
    return json.loads((out / "result.json").read_text())["objective"]


def check_rises(folder, counts):
    """Check that more points lose more, and less than the law: a few points know fewer constraints."""
    values = [solve_over(folder, spiral_positions(count), "--gap", "1e-4")["value"] for count in counts]
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


@pytest.mark.slow
@pytest.mark.parametrize(("orbits", "share"), [(4, 0.97), (17, 0.99)])
def test_optima_over_symmetric_points_are_nearer_the_law(tmp_path, orbits, share):
    """By symmetry 240 and 1,020 points need 4 and 17 outputs: the latter take 4 minutes of one processor and 3.3 GB."""
    options = ("--method", "interior-point", "--gap", "1e-3", "--memory", "6")
    objective = solve_over(tmp_path, icosahedral_positions(orbits), *options)
    assert objective["value"] < expected_distance(Fraction(EPSILON))[0]
    assert share * expected_distance(Fraction(EPSILON))[1] < objective["lower_bound"] <= objective["value"]
    solver = json.loads((tmp_path / f"d{ORDER * orbits}" / "result.json").read_text())
    assert solver["details"]["told"]["solve"]["symmetries"] == ORDER
