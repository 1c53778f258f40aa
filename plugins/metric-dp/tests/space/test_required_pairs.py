"""Required pairs, and the least set that implies them."""

from __future__ import annotations

from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.errors import InputError
from privopt.numbers.graphs import components
from privopt_metric_dp.space.distance_table import MatrixMetric
from privopt_metric_dp.space.metrics import EuclideanMetric, HaversineMetric, Metric
from privopt_metric_dp.space.pairs import needed_pairs, not_implied, reduce_pairs, required_pairs
from privopt_metric_dp.space.places import Space, grid_points


def metric_of(kind: str, n: int = 60) -> Metric:
    rng = np.random.default_rng(n)
    if kind == "matrix":
        table = np.triu(rng.uniform(0, 10, (n, n)), 1)
        return MatrixMetric(table + table.T)
    if kind == "geographic":
        points = np.column_stack([rng.uniform(-90, 90, n), rng.uniform(-180, 180, n)])
        points[:20] = np.array([41.9, 12.5]) + rng.uniform(-0.1, 0.1, (20, 2))
        points[20:24] = [[0, 179.999], [0, -179.999], [89.999, 0], [89.999, 180]]
        return HaversineMetric(Space(ids=[str(i) for i in range(n)], coordinates=points, kind="geographic"))
    if kind == "grid":
        return EuclideanMetric(grid_points(8, 8, 0.3))
    width = int(kind)
    points = rng.normal(size=(n, width))
    return EuclideanMetric(Space(ids=[str(i) for i in range(n)], coordinates=points, kind="vector"))


KINDS = ["matrix", "geographic", "grid", "2", "3", "40"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_pair_in_order(kind: str) -> None:
    metric = metric_of(kind)
    pairs, distances = required_pairs(metric)
    i, j = np.triu_indices(metric.size, 1)
    assert (pairs == np.column_stack([i, j])).all()
    assert (distances == metric.table()[i, j]).all()
    assert pairs.dtype == np.int64


def test_all_pairs_are_shared() -> None:
    first_pairs, _ = required_pairs(metric_of("3"))
    second_pairs, _ = required_pairs(metric_of("matrix"))
    assert second_pairs is first_pairs
    assert not first_pairs.flags.writeable
    assert len(required_pairs(metric_of("3", 61))[0]) == 61 * 30


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("quantile", [0.0, 0.02, 0.3, 0.9, 1.0])
def test_limits_compare_doubles(kind: str, quantile: float) -> None:
    metric = metric_of(kind)
    table = metric.table()
    i, j = np.triu_indices(metric.size, 1)
    limit_km = float(np.quantile(table[i, j], quantile, method="lower"))  # a distance that occurs
    for limit in (limit_km, float(np.nextafter(limit_km, 0)), float(np.nextafter(limit_km, np.inf))):
        pairs, distances = required_pairs(metric, limit)
        is_near = table[i, j] <= limit
        assert (pairs == np.column_stack([i, j])[is_near]).all()
        assert (distances == table[i, j][is_near]).all()


def test_no_pair_is_near_enough() -> None:
    pairs, distances = required_pairs(metric_of("grid"), 0.1)
    assert pairs.shape == (0, 2)
    assert distances.shape == (0,)
    assert reduce_pairs(pairs, distances).shape == (0,)


@pytest.mark.parametrize("limit", [-1.0, float("nan")])
def test_refuses_invalid_limit(limit: float) -> None:
    with pytest.raises(InputError, match="neighbours_within"):
        required_pairs(metric_of("grid"), limit)


def closure(n: int, pairs: np.ndarray, distances: np.ndarray) -> list[list[Fraction | None]]:
    """Floyd and Warshall in fractions."""
    table: list[list[Fraction | None]] = [[Fraction(0) if a == b else None for b in range(n)] for a in range(n)]
    for (i, j), d in zip(pairs.tolist(), distances.tolist(), strict=True):
        known_length = table[i][j]
        if known_length is None or Fraction(d) < known_length:
            table[i][j] = table[j][i] = Fraction(d)
    for via in range(n):
        for a in range(n):
            first_part = table[a][via]
            if first_part is None:
                continue
            for b in range(n):
                second_part, direct = table[via][b], table[a][b]
                if second_part is not None and (direct is None or first_part + second_part < direct):
                    table[a][b] = first_part + second_part
    return table


# decimals whose sums are often one bit off the decimal of the sum
weight = st.one_of(
    st.integers(0, 40).map(lambda v: v / 10), st.floats(0.1, 5), st.sampled_from([1e-300, 1e-17, 1.0, 1e17, 1e140])
)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, np.ndarray, np.ndarray]:
    n = draw(st.integers(2, 8))
    all_pairs = [(a, b) for a in range(n) for b in range(a + 1, n)]
    pairs = draw(st.lists(st.sampled_from(all_pairs), min_size=1, max_size=len(all_pairs), unique=True))
    distances = draw(st.lists(weight, min_size=len(pairs), max_size=len(pairs)))
    return n, np.array(sorted(pairs)), np.array(distances)


@settings(max_examples=50)
@given(graphs())
def test_kept_pairs_imply_all_and_are_minimal(graph: tuple[int, np.ndarray, np.ndarray]) -> None:
    n, pairs, distances = graph
    is_kept = reduce_pairs(pairs, distances)
    assert closure(n, pairs, distances) == closure(n, pairs[is_kept], distances[is_kept])
    assert len(not_implied(pairs[is_kept], distances[is_kept], pairs, distances)) == 0
    for row in np.flatnonzero(is_kept):
        other_pairs = is_kept.copy()
        other_pairs[row] = False
        table = closure(n, pairs[other_pairs], distances[other_pairs])
        i, j = pairs[row]
        path_length = table[i][j]
        assert path_length is None or path_length > Fraction(float(distances[row]))
        assert row in not_implied(pairs[other_pairs], distances[other_pairs], pairs, distances)


@settings(max_examples=40)
@given(graphs(), st.data())
def test_implication_is_decided_in_fractions(graph: tuple[int, np.ndarray, np.ndarray], data: st.DataObject) -> None:
    n, pairs, distances = graph
    is_given = np.array(data.draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs))))
    slack = data.draw(st.sampled_from([0.0, 1e-9, 0.25]))
    table = closure(n, pairs[is_given], distances[is_given])
    missing = set(not_implied(pairs[is_given], distances[is_given], pairs, distances, slack=slack).tolist())
    for row, (i, j) in enumerate(pairs.tolist()):
        path_length, bound = table[i][j], Fraction(float(distances[row]))
        if path_length is None or path_length > bound * (1 + Fraction(slack)):
            assert row in missing
        elif path_length <= bound * (1 + Fraction(slack) - Fraction(1, 2**48)) or path_length <= bound:
            assert row not in missing


@settings(max_examples=40)
@given(graphs(), st.sampled_from([1e-12, 1e-3, 0.3]))
def test_slack_keeps_fewer_and_bounds_the_detour(graph: tuple[int, np.ndarray, np.ndarray], slack: float) -> None:
    n, pairs, distances = graph
    is_kept = reduce_pairs(pairs, distances, slack=slack)
    full_table, kept_table = closure(n, pairs, distances), closure(n, pairs[is_kept], distances[is_kept])
    for (i, j), d in zip(pairs.tolist(), distances.tolist(), strict=True):
        path_length = kept_table[i][j]
        assert path_length is not None
        assert path_length <= Fraction(d) * (1 + Fraction(slack))
        assert full_table[i][j] is not None


def test_collinear_grid_pairs_are_dropped_exactly() -> None:
    pairs, distances = required_pairs(EuclideanMetric(grid_points(12, 12, 1)))
    exact, loose = reduce_pairs(pairs, distances), reduce_pairs(pairs, distances, slack=1e-12)
    lattice = [np.gcd(abs(a // 12 - b // 12), abs(a % 12 - b % 12)) == 1 for a, b in pairs.tolist()]
    assert (loose == lattice).all()
    assert 0 < exact.sum() - loose.sum() < 300  # sums that pass the pair by the last bit
    assert (exact | ~loose).all()


def test_records_at_one_place_keep_one_path() -> None:
    points = np.array([[0, 0], [0, 0], [0, 0], [1, 0], [1, 0], [5, 5]], dtype=float)
    metric = EuclideanMetric(Space(ids=list("abcdef"), coordinates=points, kind="planar"))
    pairs, distances = required_pairs(metric)
    is_kept = reduce_pairs(pairs, distances)
    assert (distances[is_kept] == 0).sum() == 3
    assert is_kept.sum() == 3 + 3
    assert len(not_implied(pairs[is_kept], distances[is_kept], pairs, distances)) == 0


def test_needed_pairs_are_the_reduced_ones() -> None:
    metric = metric_of("grid")
    pairs, distances = required_pairs(metric, 0.9)
    reduced = reduce_pairs(pairs, distances)
    needed_rows, lengths = needed_pairs(metric, lambda: (pairs, distances), within=0.9)
    assert (needed_rows == pairs[reduced]).all()
    assert (lengths == distances[reduced]).all()


def test_infinite_distances_require_nothing() -> None:
    pairs, distances = np.array([[0, 1], [1, 2]]), np.array([1.0, np.inf])
    assert reduce_pairs(pairs, distances).tolist() == [True, False]
    assert not_implied(pairs[:1], distances[:1], pairs, distances).tolist() == []


@pytest.mark.parametrize(
    ("pairs", "distances"), [([[0, 1]], [-1.0]), ([[0, 1]], [float("nan")]), ([[0, 1]], [1.0, 2.0]), ([[-1, 1]], [1.0])]
)
def test_refuses_invalid_pairs(pairs: list[list[int]], distances: list[float]) -> None:
    with pytest.raises(InputError, match="pairs"):
        reduce_pairs(np.array(pairs), np.array(distances))


@settings(max_examples=40)
@given(st.integers(1, 12), st.data())
def test_components_match_networkx(n: int, data: st.DataObject) -> None:
    node = st.integers(0, n - 1)
    pairs = data.draw(st.lists(st.tuples(node, node), max_size=12))
    labels = components(n, np.array(pairs, dtype=np.int64).reshape(-1, 2))
    graph = nx.Graph(pairs)
    graph.add_nodes_from(range(n))
    expected = {frozenset(part) for part in nx.connected_components(graph)}
    assert {frozenset(np.flatnonzero(labels == label).tolist()) for label in set(labels.tolist())} == expected
    assert list(dict.fromkeys(labels.tolist())) == list(range(len(expected)))


def test_reduces_four_thousand_neighbours() -> None:
    metric = EuclideanMetric(grid_points(63, 63, 0.3))
    pairs, distances = required_pairs(metric, 0.3 * 4.5)
    is_kept = reduce_pairs(pairs, distances)
    assert len(pairs) > 120_000
    assert len(not_implied(pairs[is_kept], distances[is_kept], pairs, distances)) == 0
