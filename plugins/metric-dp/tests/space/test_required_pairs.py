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


def test_all_pairs_are_there_once_while_somebody_holds_them() -> None:
    held, _ = required_pairs(metric_of("3"))
    again, _ = required_pairs(metric_of("matrix"))
    assert again is held
    assert not held.flags.writeable
    assert len(required_pairs(metric_of("3", 61))[0]) == 61 * 30


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.9, 1.0])
def test_pairs_within_a_distance_are_decided_on_the_doubles(kind: str, share: float) -> None:
    metric = metric_of(kind)
    table = metric.table()
    i, j = np.triu_indices(metric.size, 1)
    within = float(np.quantile(table[i, j], share, method="lower"))  # a distance that occurs
    for limit in (within, float(np.nextafter(within, 0)), float(np.nextafter(within, np.inf))):
        pairs, distances = required_pairs(metric, limit)
        near = table[i, j] <= limit
        assert (pairs == np.column_stack([i, j])[near]).all()
        assert (distances == table[i, j][near]).all()


def test_no_pair_near_enough() -> None:
    pairs, distances = required_pairs(metric_of("grid"), 0.1)
    assert pairs.shape == (0, 2)
    assert distances.shape == (0,)
    assert reduce_pairs(pairs, distances).shape == (0,)


@pytest.mark.parametrize("within", [-1.0, float("nan")])
def test_a_limit_that_is_none(within: float) -> None:
    with pytest.raises(InputError, match="neighbours_within"):
        required_pairs(metric_of("grid"), within)


def closure(n: int, pairs: np.ndarray, distances: np.ndarray) -> list[list[Fraction | None]]:
    """Floyd and Warshall in fractions."""
    table: list[list[Fraction | None]] = [[Fraction(0) if a == b else None for b in range(n)] for a in range(n)]
    for (i, j), d in zip(pairs.tolist(), distances.tolist(), strict=True):
        found = table[i][j]
        if found is None or Fraction(d) < found:
            table[i][j] = table[j][i] = Fraction(d)
    for via in range(n):
        for a in range(n):
            one = table[a][via]
            if one is None:
                continue
            for b in range(n):
                two, known = table[via][b], table[a][b]
                if two is not None and (known is None or one + two < known):
                    table[a][b] = one + two
    return table


# decimals whose sums are often one bit off the decimal of the sum
weight = st.one_of(
    st.integers(0, 40).map(lambda v: v / 10), st.floats(0.1, 5), st.sampled_from([1e-300, 1e-17, 1.0, 1e17, 1e140])
)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, np.ndarray, np.ndarray]:
    n = draw(st.integers(2, 8))
    every = [(a, b) for a in range(n) for b in range(a + 1, n)]
    pairs = draw(st.lists(st.sampled_from(every), min_size=1, max_size=len(every), unique=True))
    distances = draw(st.lists(weight, min_size=len(pairs), max_size=len(pairs)))
    return n, np.array(sorted(pairs)), np.array(distances)


@settings(max_examples=50)
@given(graphs())
def test_the_pairs_kept_imply_all_and_none_of_them_the_others(graph: tuple[int, np.ndarray, np.ndarray]) -> None:
    n, pairs, distances = graph
    keep = reduce_pairs(pairs, distances)
    assert closure(n, pairs, distances) == closure(n, pairs[keep], distances[keep])
    assert len(not_implied(pairs[keep], distances[keep], pairs, distances)) == 0
    for row in np.flatnonzero(keep):
        others = keep.copy()
        others[row] = False
        table = closure(n, pairs[others], distances[others])
        i, j = pairs[row]
        left = table[i][j]
        assert left is None or left > Fraction(float(distances[row]))
        assert row in not_implied(pairs[others], distances[others], pairs, distances)


@settings(max_examples=40)
@given(graphs(), st.data())
def test_what_is_not_implied_is_decided_in_fractions(
    graph: tuple[int, np.ndarray, np.ndarray], data: st.DataObject
) -> None:
    n, pairs, distances = graph
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs))))
    slack = data.draw(st.sampled_from([0.0, 1e-9, 0.25]))
    table = closure(n, pairs[chosen], distances[chosen])
    found = set(not_implied(pairs[chosen], distances[chosen], pairs, distances, slack=slack).tolist())
    for row, (i, j) in enumerate(pairs.tolist()):
        way, bound = table[i][j], Fraction(float(distances[row]))
        if way is None or way > bound * (1 + Fraction(slack)):
            assert row in found
        elif way <= bound * (1 + Fraction(slack) - Fraction(1, 2**48)) or way <= bound:
            assert row not in found


@settings(max_examples=40)
@given(graphs(), st.sampled_from([1e-12, 1e-3, 0.3]))
def test_slack_keeps_fewer_and_bounds_the_detour(graph: tuple[int, np.ndarray, np.ndarray], slack: float) -> None:
    n, pairs, distances = graph
    keep = reduce_pairs(pairs, distances, slack=slack)
    before, after = closure(n, pairs, distances), closure(n, pairs[keep], distances[keep])
    for (i, j), d in zip(pairs.tolist(), distances.tolist(), strict=True):
        way = after[i][j]
        assert way is not None
        assert way <= Fraction(d) * (1 + Fraction(slack))
        assert before[i][j] is not None


def test_collinear_distances_of_a_grid_are_dropped_only_where_exact() -> None:
    pairs, distances = required_pairs(EuclideanMetric(grid_points(12, 12, 1)))
    exact, loose = reduce_pairs(pairs, distances), reduce_pairs(pairs, distances, slack=1e-12)
    lattice = [np.gcd(abs(a // 12 - b // 12), abs(a % 12 - b % 12)) == 1 for a, b in pairs.tolist()]
    assert (loose == lattice).all()
    assert 0 < exact.sum() - loose.sum() < 300  # sums that pass the pair by the last bit
    assert (exact | ~loose).all()


def test_records_at_one_place_keep_one_way_out() -> None:
    points = np.array([[0, 0], [0, 0], [0, 0], [1, 0], [1, 0], [5, 5]], dtype=float)
    metric = EuclideanMetric(Space(ids=list("abcdef"), coordinates=points, kind="planar"))
    pairs, distances = required_pairs(metric)
    keep = reduce_pairs(pairs, distances)
    assert (distances[keep] == 0).sum() == 3
    assert keep.sum() == 3 + 3
    assert len(not_implied(pairs[keep], distances[keep], pairs, distances)) == 0


def test_needed_pairs_are_the_reduced_ones() -> None:
    metric = metric_of("grid")
    pairs, distances = required_pairs(metric, 0.9)
    kept = reduce_pairs(pairs, distances)
    needed, lengths = needed_pairs(metric, lambda: (pairs, distances), within=0.9)
    assert (needed == pairs[kept]).all()
    assert (lengths == distances[kept]).all()


def test_infinite_distances_ask_for_nothing() -> None:
    pairs, distances = np.array([[0, 1], [1, 2]]), np.array([1.0, np.inf])
    assert reduce_pairs(pairs, distances).tolist() == [True, False]
    assert not_implied(pairs[:1], distances[:1], pairs, distances).tolist() == []


@pytest.mark.parametrize(
    ("pairs", "distances"), [([[0, 1]], [-1.0]), ([[0, 1]], [float("nan")]), ([[0, 1]], [1.0, 2.0]), ([[-1, 1]], [1.0])]
)
def test_pairs_that_are_none(pairs: list[list[int]], distances: list[float]) -> None:
    with pytest.raises(InputError, match="pairs"):
        reduce_pairs(np.array(pairs), np.array(distances))


@settings(max_examples=40)
@given(st.integers(1, 12), st.data())
def test_components_are_those_of_the_graph(n: int, data: st.DataObject) -> None:
    node = st.integers(0, n - 1)
    pairs = data.draw(st.lists(st.tuples(node, node), max_size=12))
    labels = components(n, np.array(pairs, dtype=np.int64).reshape(-1, 2))
    graph = nx.Graph(pairs)
    graph.add_nodes_from(range(n))
    wanted = {frozenset(part) for part in nx.connected_components(graph)}
    assert {frozenset(np.flatnonzero(labels == label).tolist()) for label in set(labels.tolist())} == wanted
    assert list(dict.fromkeys(labels.tolist())) == list(range(len(wanted)))


def test_four_thousand_neighbours_take_seconds() -> None:
    metric = EuclideanMetric(grid_points(63, 63, 0.3))
    pairs, distances = required_pairs(metric, 0.3 * 4.5)
    keep = reduce_pairs(pairs, distances)
    assert len(pairs) > 120_000
    assert len(not_implied(pairs[keep], distances[keep], pairs, distances)) == 0
