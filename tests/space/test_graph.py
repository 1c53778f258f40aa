"""Graphs of pairs, against plain Python."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import dijkstra

from privopt.execution.clock import limit
from privopt.numbers.graphs import edge_matrix, shortest_rows
from privopt_metric_dp.proof.multipliers import Multipliers
from privopt_metric_dp.solvers.instance import Instance, dual_bound
from privopt_metric_dp.space.roads import Roads

LENGTHS = st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0])
EDGES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), LENGTHS), min_size=1, max_size=12)


@given(EDGES)
def test_of_parallel_edges_the_shortest_is_left_and_no_loop(edges):
    ends, lengths = np.array([edge[:2] for edge in edges]), np.array([edge[2] for edge in edges])
    least = {}
    for row, (tail, head, km) in enumerate(edges):
        if tail != head and km < least.get((tail, head), (np.inf, 0))[0]:
            least[tail, head] = (km, row)
    assert shortest_rows(ends, lengths).tolist() == [least[key][1] for key in sorted(least)]
    matrix = edge_matrix(5, ends, lengths)
    assert {(i, j): km for (i, j), km in zip(zip(*matrix.tocoo().coords, strict=True), matrix.data, strict=True)} == {
        key: km for key, (km, _) in least.items()
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
def test_ways_over_parallel_edges_loops_and_edges_of_length_0(edges, directed):
    wanted = shortest_ways(edges, directed)
    ends, lengths = np.array([edge[:2] for edge in edges]), np.array([edge[2] for edge in edges])
    assert (dijkstra(edge_matrix(5, ends, lengths, both=not directed), directed=True) == wanted).all()
    roads = Roads(ends[:, 0], ends[:, 1], lengths, directed=directed)
    nodes = np.array(roads.nodes)
    here = nodes.astype(int)
    assert (roads.travel(nodes, nodes) == wanted[np.ix_(here, here)]).all()


def test_long_loops_look_for_the_end():
    roads = Roads(["a", "b"], ["b", "c"], [1.0, 2.0])
    cost = Instance(cost=np.ones((3, 2)), pairs=np.array([[0, 1]]), distances=np.ones(1), epsilon=1.0)
    one = np.ones((1, 2))
    known = Multipliers.whole(one, one)
    for work in (lambda: roads.travel(["a"], ["c"]), lambda: dual_bound(cost, known)):
        with limit(0.0) as scope:
            work()
        assert scope.expired
    assert roads.travel(["a"], ["c"]).tolist() == [[3.0]]
    assert dual_bound(cost, known)[0] == 3.0
