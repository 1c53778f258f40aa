"""Connections: the tree against the dense table, and the invariants of Algorithms 1 and 3."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_linear_paper.generate import matern, poisson
from privopt.errors import InputError
from privopt_fl_linear.metric import Matrix, Metric, Plane, Sphere
from privopt_fl_linear.reconnection import reconnect
from privopt_fl_linear.site import Site, connection_cost, sum_counts

lattice = st.integers(0, 12).map(lambda i: i / 10)
costs = lattice | st.floats(0, 2)
real_coordinate = st.floats(-5, 5, allow_nan=False).map(lambda x: x + 0.0)


def site_of(metric, cost):
    return Site(metric=metric, cost=cost)


@st.composite
def planar(draw, coordinate=None, cost=costs):
    coordinate = lattice | real_coordinate if coordinate is None else coordinate
    n = draw(st.integers(1, 40))
    points = np.array(draw(st.lists(st.tuples(coordinate, coordinate), min_size=n, max_size=n)))
    prices = np.array(draw(st.lists(cost, min_size=n, max_size=n)), dtype=float)
    return points.reshape(n, 2), prices


def table(points):
    d = points[:, None, :] - points[None, :, :]
    return np.sqrt(d[..., 0] * d[..., 0] + d[..., 1] * d[..., 1])


def haversine(a, b):
    lat1, lon1, lat2, lon2 = map(math.radians, (*a, *b))
    half = math.sin((lat1 - lat2) / 2) ** 2 + math.cos(lat1) * math.cos(lat2) * math.sin((lon1 - lon2) / 2) ** 2
    return 2 * 6371.0 * math.asin(min(1.0, math.sqrt(half)))


def brute(distances, cost, facilities=None):
    n = len(cost)
    facilities = range(n) if facilities is None else facilities
    return np.array([min(facilities, key=lambda u: (cost[u] + distances[u, v], u)) for v in range(n)])


@given(planar())
@settings(max_examples=80)
def test_tree_gives_the_dense_argmin(case):
    points, cost = case
    assigned = site_of(Plane(points), cost).connect().facility
    assert (assigned == brute(table(points), cost)).all()


@given(planar(), st.data())
def test_restricted_facilities(case, data):
    points, cost = case
    chosen = np.array(sorted(data.draw(st.sets(st.integers(0, len(cost) - 1), min_size=1))))
    expected = brute(table(points), cost, chosen)
    assert (Plane(points).cheapest(chosen, cost) == expected).all()
    assert (Matrix(table(points)).cheapest(chosen, cost) == expected).all()


@given(st.lists(st.tuples(st.floats(-90, 90), st.floats(-180, 180)), min_size=1, max_size=30), st.data())
def test_sphere_matches_the_formula(places, data):
    cost = np.array(data.draw(st.lists(st.floats(0, 8000), min_size=len(places), max_size=len(places))))
    everyone = np.arange(len(places))
    distances = np.array([[haversine(a, b) for b in places] for a in places])
    cheapest = Sphere(places).cheapest(everyone, cost)
    value = cost[cheapest] + distances[cheapest, everyone]
    best = (cost[:, None] + distances).min(axis=0)
    near_antipode = distances[cheapest, everyone] > 19000
    assert (value <= best + 1e-9 * (1 + best) + 1e-3 * near_antipode).all()


def test_large_instance_matches_dense_table(rng):
    points, cost = rng.random((1500, 2)), rng.uniform(0.05, 0.3, 1500)
    expected = np.argmin(cost[:, None] + table(points), axis=0)
    assert (site_of(Plane(points), cost).connect().facility == expected).all()


def test_coincident_points_are_fast_and_ordered():
    assignment = site_of(Plane(np.zeros((20_000, 2))), np.ones(20_000)).connect()
    assert assignment.opened.tolist() == [0]


def test_image_differs_from_fixed_points():
    """Ties in doubles: v serves another, yet is itself served elsewhere."""
    points = np.array([[0.0, 0.0], [0.1, 0.0], [0.2, 0.0]])
    h = site_of(Plane(points), np.array([0.4, 0.5, 0.6])).connect()
    fixed = [v for v in range(3) if h.facility[v] == v]
    assert h.opened.tolist() != fixed
    assert set(h.facility.tolist()) == set(h.opened.tolist())


def metrics(points):
    return [Plane(points), Matrix(table(points))]


@given(planar(), st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.5]) | st.floats(0, 3))
@settings(max_examples=60)
def test_reconnection_keeps_its_promises(case, delta):
    points, cost = case
    distances, n = table(points), len(cost)
    for metric in metrics(points):
        base = site_of(metric, cost).connect()
        merged = reconnect(site_of(metric, cost), base, delta)
        everyone = np.arange(n)
        kept_facilities = merged.opened
        assert np.isin(kept_facilities, base.opened).all()
        assert merged.sizes.sum() == n  # nobody unserved
        assert (merged.sizes > 0).all()
        holders = (distances[kept_facilities] <= delta).sum(axis=0)
        assert (holders <= 1).all()  # balls never overlap
        is_single = holders == 1
        assert (distances[merged.facility, everyone][is_single] <= delta).all()
        old_costs = cost[base.facility] + distances[base.facility, everyone]
        new_costs = cost[merged.facility] + distances[merged.facility, everyone]
        assert (new_costs <= old_costs + 2 * delta + 1e-9).all()
        # Theorem 6, one location at a time: it needs the greedy order
        assert (cost[merged.facility] <= old_costs + delta + 1e-9).all()


def test_sphere_and_matrix_reconnect_equally(rng):
    degrees = np.column_stack([41 + rng.random(150), 12 + rng.random(150)])
    cost = rng.uniform(1, 8, 150)
    distances = np.array([[haversine(a, b) for b in degrees] for a in degrees])
    plans = []
    for metric in (Sphere(degrees), Matrix(np.maximum(distances, distances.T))):
        base = site_of(metric, cost).connect()
        plans.append(
            [base.facility] + [reconnect(site_of(metric, cost), base, d).facility for d in (0.5, 2.0, 9.0, 40.0)]
        )
        assert metric.extent > 30
    assert all((a == b).all() for a, b in zip(*plans, strict=True))


def test_other_independent_sets_break_theorem_6():
    """A maximal set that is not greedy by cost: the excess reaches nearly 2 delta where delta is claimed."""
    delta = 1.0
    points = np.array([[0.0, 0.0], [1.9, 0.0], [-1.05, 0.0]])
    cost = np.array([0.0, 1.8, 5.0])
    h = site_of(Plane(points), cost).connect()
    assert h.opened.tolist() == [0, 1]
    dear_first = Plane(points).select_independent(np.array([1, 0]), 2 * delta)
    assert dear_first.tolist() == [1]
    assert cost[1] - cost[0] > 1.7 * delta
    greedy = reconnect(site_of(Plane(points), cost), h, delta)
    assert greedy.opened.tolist() == [0]


@given(planar(), st.data())
def test_served_sums_and_connection_cost(case, data):
    points, cost = case
    counts = data.draw(st.lists(st.integers(-50, 50) | st.floats(-50, 50), min_size=len(cost), max_size=len(cost)))
    metric: Metric = Plane(points)
    h = site_of(metric, cost).connect()
    for numbers in (np.array([int(c) for c in counts]), np.array(counts, dtype=float)):
        expected = [math.fsum(numbers[h.facility == s]) for s in h.opened]
        assert sum_counts(h, numbers).tolist() == expected
        distances = table(points)[h.facility, np.arange(len(cost))]
        assert connection_cost(metric, h, numbers) == pytest.approx(math.fsum(numbers * distances), abs=1e-9)


def test_matrix_must_be_a_metric():
    for invalid_matrix, words in (
        ([[0, 1], [2, 0]], r"row 0, column 1 \(from 0\): .*got 1.0 beside 2.0 in row 1, column 0"),
        ([[0, 1], [1, 3]], r"row 1, column 1 \(from 0\): .*got 3.0"),
        ([[0, -1], [-1, 0]], "finite distances"),
        ([[0, 9, 1], [9, 0, 1], [1, 1, 0]], r"row 0, column 1 .*got 9.0 beside 1.0 \+ 1.0 through location 2"),
        ([[0, 1]], "shape"),
    ):
        with pytest.raises(InputError, match=words):
            Matrix(invalid_matrix)
    with pytest.raises(InputError, match=r"row 5, column 4 \(from 0\): .*in row 4, column 5"):
        Matrix([[0, 1], [2, 0]], file_rows=np.array([5, 4]))
    assert Matrix(np.zeros((0, 0))).size == 0
    large_matrix = np.abs(np.subtract.outer(np.arange(500.0), np.arange(500.0)))
    assert Matrix(large_matrix).size == 500
    large_matrix[3, 400] = large_matrix[400, 3] = 1e4
    with pytest.raises(InputError, match="triangle"):
        Matrix(large_matrix)


def test_generators(rng):
    instances = [matern(rng) for _ in range(30)]
    assert 600 < np.mean([len(i.points) for i in instances]) < 1400
    for i in instances:
        assert i.points.min() >= 0
        assert i.points.max() <= 1.4
        assert i.cost.min() >= 0.1
        assert i.cost.max() <= 0.3
        assert set(np.unique(i.clients)) <= set(range(9))
    assert 2.3 < np.mean(np.concatenate([i.clients for i in instances])) < 2.8
    redrawn = sum(matern(rng, n=100).redrawn for _ in range(300))
    assert 60 < redrawn < 240  # 31 % of draws are empty: 0.45 redraws an instance
    assert 800 < len(poisson(rng).points) < 1200
