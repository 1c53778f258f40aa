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
    node_pairs = list(combinations(range(nodes), 2))
    edges = draw(st.lists(st.sampled_from(node_pairs), unique=True)) if node_pairs else []
    return nodes, np.array(sorted(edges), dtype=np.int64).reshape(-1, 2)


@given(graphs())
def test_vertex_cover_is_complete_and_minimal(graph):
    nodes, edges = graph
    cover = vertex_cover(nodes, edges)
    assert cover[edges].any(axis=1).all()
    for node in np.flatnonzero(cover):
        smaller_cover = cover.copy()
        smaller_cover[node] = False
        assert not smaller_cover[edges].any(axis=1).all()


@given(graphs(), st.data())
def test_blocks_are_separate_and_complete(graph, data):
    nodes, edges = graph
    subset = np.array(data.draw(st.lists(st.integers(0, 3), min_size=nodes, max_size=nodes)))
    partition = make_partition(subset, edges, cover=data.draw(st.booleans()))
    assert ((partition.block >= 0) == ~partition.boundary).all()
    internal_edges = edges[~partition.boundary[edges].any(axis=1)]
    assert (partition.block[internal_edges[:, 0]] == partition.block[internal_edges[:, 1]]).all()
    assert partition.sizes.sum() == (~partition.boundary).sum() > 0
    assert partition.border_count == boundary_of(subset, edges).sum() >= (partition.boundary.sum() if nodes > 1 else 0)
