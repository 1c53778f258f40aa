"""Shortest ways over a graph, and what outputs lose against targets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import dijkstra

from privopt.errors import InputError
from privopt.execution.clock import limit
from privopt.numbers.graphs import edge_matrix, shortest_rows
from privopt_metric_dp.problem.loss_kinds import normalise_weights, travel_cost
from privopt_metric_dp.proof.lagrangian_bound import Multipliers
from privopt_metric_dp.solvers.instance import Instance, dual_bound
from privopt_metric_dp.space.roads import Roads

LENGTHS = st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0])
EDGES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), LENGTHS), min_size=1, max_size=12)


@given(EDGES)
def test_keeps_the_shortest_of_parallel_edges(edges):
    edge_ends, lengths = np.array([edge[:2] for edge in edges]), np.array([edge[2] for edge in edges])
    min_lengths = {}
    for row, (tail, head, km) in enumerate(edges):
        if tail != head and km < min_lengths.get((tail, head), (np.inf, 0))[0]:
            min_lengths[tail, head] = (km, row)
    assert shortest_rows(edge_ends, lengths).tolist() == [min_lengths[key][1] for key in sorted(min_lengths)]
    matrix = edge_matrix(5, edge_ends, lengths)
    assert {(i, j): km for (i, j), km in zip(zip(*matrix.tocoo().coords, strict=True), matrix.data, strict=True)} == {
        key: km for key, (km, _) in min_lengths.items()
    }


def shortest_ways(edges, directed):
    """Floyd and Warshall's table of path lengths between five nodes."""
    table = np.where(np.eye(5, dtype=bool), 0.0, np.inf)
    for tail, head, km in edges:
        for a, b in ((tail, head),) if directed else ((tail, head), (head, tail)):
            table[a, b] = min(table[a, b], km)
    for k in range(5):
        table = np.minimum(table, table[:, [k]] + table[[k], :])
    return table


@given(EDGES, st.booleans())
def test_paths_over_parallel_edges_and_loops(edges, directed):
    expected = shortest_ways(edges, directed)
    edge_ends, lengths = np.array([edge[:2] for edge in edges]), np.array([edge[2] for edge in edges])
    assert (dijkstra(edge_matrix(5, edge_ends, lengths, both=not directed), directed=True) == expected).all()
    roads = Roads(edge_ends[:, 0], edge_ends[:, 1], lengths, directed=directed)
    nodes = np.array(roads.nodes)
    node_numbers = nodes.astype(int)
    assert (roads.travel(nodes, nodes) == expected[np.ix_(node_numbers, node_numbers)]).all()


def test_long_loops_check_the_deadline():
    roads = Roads(["a", "b"], ["b", "c"], [1.0, 2.0])
    cost = Instance(cost=np.ones((3, 2)), pairs=np.array([[0, 1]]), distances=np.ones(1), epsilon=1.0)
    ones = np.ones((1, 2))
    multipliers = Multipliers.from_arrays(ones, ones)
    for work in (lambda: roads.travel(["a"], ["c"]), lambda: dual_bound(cost, multipliers)):
        with limit(0.0) as scope:
            work()
        assert scope.expired
    assert roads.travel(["a"], ["c"]).tolist() == [[3.0]]
    assert dual_bound(cost, multipliers)[0] == 3.0


def definition(a: np.ndarray, b: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.asarray((np.abs(a[:, None] - b[None]) * (weights / weights.sum())).sum(axis=2))


@settings(max_examples=40)
@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_travel_cost_matches_definition(n: int, k: int, targets: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b, weights = rng.uniform(0, 9, (n, targets)), rng.uniform(0, 9, (k, targets)), rng.uniform(0.1, 2, targets)
    assert travel_cost(a, b, weights) == pytest.approx(definition(a, b, weights), rel=1e-12)
    own_cost = travel_cost(a, None, weights)
    assert own_cost == pytest.approx(definition(a, a, weights), rel=1e-12, abs=1e-14)
    assert (own_cost == own_cost.T).all()
    assert (np.diagonal(own_cost) == 0).all()
    assert (travel_cost(a, a, weights) == own_cost).all()


def test_many_targets_use_tiles() -> None:
    rng = np.random.default_rng(0)
    a, weights = rng.uniform(0, 9, (40, 1300)), rng.uniform(0, 1, 1300)
    np.testing.assert_allclose(
        travel_cost(a, a[::-1], weights), definition(a, a[::-1], weights), rtol=1e-12, atol=1e-12
    )


def test_unweighted_targets_may_be_unreachable() -> None:
    a = np.array([[1.0, np.inf], [3.0, 2.0]])
    assert travel_cost(a, None, [2.0, 0.0])[0, 1] == 2.0
    with pytest.raises(InputError, match="record 0, target 1"):
        travel_cost(a, None, [2.0, 1.0])
    with pytest.raises(InputError, match="output 0, target 1"):
        travel_cost(a[1:], a[:1], [2.0, 1.0])


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [1.0, -1.0], [1.0, np.nan], [1.0, np.inf]])
def test_refuses_invalid_weights(weights: list[float]) -> None:
    with pytest.raises(InputError, match="targets"):
        normalise_weights(weights)


def test_weights_of_any_size_add_up() -> None:
    assert normalise_weights([1e308, 1e308, 1e308]).tolist() == pytest.approx([1 / 3] * 3)
    assert normalise_weights([5e-324, 5e-324]).tolist() == [0.5, 0.5]


def test_refuses_shapes_that_do_not_match() -> None:
    with pytest.raises(InputError, match="one column"):
        travel_cost(np.zeros((3, 2)), None, [1.0])
