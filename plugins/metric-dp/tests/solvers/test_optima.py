"""Published optima, and the whole LP by HiGHS on small instances."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.even_spheres import icosahedral_positions, spiral_positions

from privopt.numbers.distances import directions
from privopt_metric_dp.solvers import Instance, dual_bound, solve

PUBLISHED = [
    (10, "8nb", 0.7, 1.965991160),
    (10, "8nb", 0.2, 3.431344454),
    (10, "all", 0.7, 2.037466459),
    (14, "8nb", 0.7, 2.149606367),
    pytest.param(20, "8nb", 0.7, 2.292596086, marks=pytest.mark.slow),
    pytest.param(40, "8nb", 1.5, 1.0252976908, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("size", "pairs", "epsilon", "optimum"), PUBLISHED)
def test_auto_reaches_the_published_optimum(grid_instance, excess, size, pairs, epsilon, optimum):
    instance = grid_instance(size, pairs, epsilon)
    answer = solve(instance, gap=1e-6)
    assert answer.status == "optimal"
    assert answer.objective == pytest.approx(optimum, rel=1e-6)
    assert answer.lower_bound <= optimum * (1 + 1e-9)
    assert excess(instance, answer.z) < 1e-8
    proved_bound, _ = dual_bound(instance, answer.multipliers)
    assert answer.objective - proved_bound <= 1e-6 * answer.objective
    assert proved_bound <= optimum * (1 + 1e-9)


@pytest.mark.parametrize("method", ["interior-point", "column-generation"])
@pytest.mark.parametrize(("size", "pairs", "epsilon"), [(10, "8nb", 0.7), (10, "all", 0.7), (10, "8nb", 0.2)])
def test_each_method_reaches_the_published_optimum(grid_instance, method, size, pairs, epsilon):
    optimum = {("8nb", 0.7): 1.965991160, ("all", 0.7): 2.037466459, ("8nb", 0.2): 3.431344454}[pairs, epsilon]
    answer = solve(grid_instance(size, pairs, epsilon), method=method, gap=1e-6)
    assert answer.objective == pytest.approx(optimum, rel=1.1e-6)
    assert answer.lower_bound <= optimum * (1 + 1e-9)


@pytest.mark.parametrize(
    ("size", "pairs", "epsilon"), [(5, "8nb", 0.7), (5, "all", 0.5), (6, "8nb", 0.2), (4, "all", 2)]
)
def test_optimum_matches_the_full_lp(grid_instance, full_optimum, size, pairs, epsilon):
    instance = grid_instance(size, pairs, epsilon)
    reference = full_optimum(instance)
    for method in ("interior-point", "column-generation"):
        answer = solve(instance, method=method, gap=1e-9)
        assert answer.objective == pytest.approx(reference, rel=2e-9, abs=1e-9)
        assert answer.lower_bound <= reference + 1e-9


def test_star_is_optimal_on_even_grids(grid_instance):
    answer = solve(grid_instance(10, "8nb", 2.0), method="star")
    assert answer.status == "optimal"
    assert answer.details["pivots"] == 0
    assert answer.gap < 1e-9


def test_symmetry_changes_nothing(grid_instance):
    from privopt_metric_dp.solvers.interior_point import InteriorPoint
    from privopt_metric_dp.solvers.symmetry import find_symmetry

    instance = grid_instance(6, "8nb", 0.5)
    assert find_symmetry(instance).order == 8
    with_it, without = (solve(instance, method=InteriorPoint(symmetry=s), gap=1e-9) for s in (True, False))
    assert with_it.objective == pytest.approx(without.objective, rel=3e-9)
    assert find_symmetry(grid_instance(6, "8nb", 0.5, rows=5)).order == 4


@pytest.mark.parametrize(("count", "order"), [(5, 10), (6, 12), (40, 1)])
def test_point_sets_have_polygon_symmetries(excess, count, order):
    """Turned by an odd angle, with more than the order that is looked for, and a line of points."""
    from privopt_metric_dp.solvers.symmetry import find_symmetry

    angle = 0.3 + 2 * np.pi * np.arange(count) / count
    for points, expected_order in (
        (np.stack([np.cos(angle), np.sin(angle)], axis=1), order),
        (np.stack([np.arange(count), 2.0 * np.arange(count)], axis=1), 2),
    ):
        distance = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
        i, j = np.triu_indices(count, 1)
        instance = Instance(
            cost=distance / count,
            pairs=np.stack([i, j], axis=1),
            distances=distance[i, j],
            epsilon=0.7,
            coordinates=points + 5.0,
        )
        assert find_symmetry(instance).order == expected_order
        assert excess(instance, solve(instance).z) < 1e-8


def sphere_instance(positions, epsilon=2.0):
    """Return the program over positions in degrees on the unit sphere, all pairs, uniform prior."""
    points, count = directions(positions), len(positions)
    distance = 2 * np.arcsin(np.minimum(np.linalg.norm(points[:, None] - points[None], axis=2) / 2, 1.0))
    i, j = np.triu_indices(count, 1)
    return Instance(
        cost=distance / count,
        pairs=np.stack([i, j], axis=1),
        distances=distance[i, j],
        epsilon=epsilon,
        coordinates=points,
    )


CUBE = [(sign * np.degrees(np.arcsin(3**-0.5)), 45.0 + 90 * turn) for sign in (-1, 1) for turn in range(4)]
TOWN = [(41.9 + 0.01 * row, 12.5 + 0.01 * column) for row in range(3) for column in range(4)]


@pytest.mark.parametrize(
    ("positions", "order"),
    [
        (CUBE, 48),
        (icosahedral_positions(1), 60),
        (spiral_positions(40), 2),
        (TOWN, 2),
        (np.random.default_rng(3).uniform(-80, 80, (12, 2)), 1),
    ],
    ids=["cube", "icosahedral", "spiral", "town", "random"],
)
def test_sets_on_a_sphere_have_polyhedral_symmetries(excess, positions, order):
    from privopt_metric_dp.solvers.interior_point import InteriorPoint
    from privopt_metric_dp.solvers.solver import Part
    from privopt_metric_dp.solvers.symmetry import find_symmetry

    instance = sphere_instance(np.asarray(positions), 500.0 if positions is TOWN else 2.0)
    symmetry = find_symmetry(instance)
    assert symmetry.order == order
    assert symmetry.origin()[1].min() >= 0
    with_it, without = (solve(instance, method=InteriorPoint(symmetry=uses), gap=1e-8) for uses in (True, False))
    assert with_it.objective == pytest.approx(without.objective, rel=1e-7)
    assert with_it.lower_bound <= with_it.objective * (1 + 1e-12)
    assert excess(instance, with_it.z) < 1e-8
    # Only one output of each orbit takes memory.
    bytes_with, bytes_without = (InteriorPoint(symmetry=uses).peak_bytes(Part(instance)) for uses in (True, False))
    assert bytes_with <= bytes_without
    assert (bytes_with < bytes_without / 3) == (order == 60)


def test_uneven_prior_breaks_the_symmetry(grid_instance):
    from attrs import evolve

    from privopt_metric_dp.solvers.symmetry import find_symmetry

    instance = grid_instance(6, "8nb", 0.5)
    weight = np.linspace(1, 2, 36)[:, None]
    assert find_symmetry(evolve(instance, cost=instance.cost * weight)).order == 1
