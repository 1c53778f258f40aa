"""Boundaries, covers and blocks of partitions."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from privopt_bd_mdp.partition import boundary_of, make_partition, vertex_cover


@st.composite
def graphs(draw):
    nodes = draw(st.integers(1, 9))
    every = list(combinations(range(nodes), 2))
    edges = draw(st.lists(st.sampled_from(every), unique=True)) if every else []
    return nodes, np.array(sorted(edges), dtype=np.int64).reshape(-1, 2)


@given(graphs())
def test_a_vertex_cover_touches_every_edge_and_no_node_of_it_is_idle(graph):
    nodes, edges = graph
    cover = vertex_cover(nodes, edges)
    assert cover[edges].any(axis=1).all()
    for node in np.flatnonzero(cover):
        less = cover.copy()
        less[node] = False
        assert not less[edges].any(axis=1).all()


@given(graphs(), st.data())
def test_blocks_do_not_touch_and_hold_every_internal_node(graph, data):
    nodes, edges = graph
    subset = np.array(data.draw(st.lists(st.integers(0, 3), min_size=nodes, max_size=nodes)))
    made = make_partition(subset, edges, cover=data.draw(st.booleans()))
    assert ((made.block >= 0) == ~made.boundary).all()
    inside = edges[~made.boundary[edges].any(axis=1)]
    assert (made.block[inside[:, 0]] == made.block[inside[:, 1]]).all()
    assert made.sizes.sum() == (~made.boundary).sum() > 0
    assert made.border_count == boundary_of(subset, edges).sum() >= (made.boundary.sum() if nodes > 1 else 0)
