"""Partitions of the nodes of a graph: boundary nodes, and the connected components inside.

A block is a connected set of internal nodes; the boundary is what the master keeps. Either both ends of every edge
between two subsets are on it (Qiu, IJCAI 2024, Definition 3.2). Or one end of each is enough: a vertex cover of these
edges, which is smaller.
"""

from __future__ import annotations

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Ints
from privopt.numbers.graphs import components, rank_by_first_use


@frozen(kw_only=True, eq=False)
class Partition:
    """A partition of N nodes, with its boundary and its blocks.

    Attributes:
        subset: (N,) The subset of each node, from 0.
        boundary: (N,) Whether the master keeps a node.
        block: (N,) The block of each internal node, from 0 in the order of first occurrence; -1 on the boundary.
        crossing: The number of edges between subsets.
        border_count: The number of nodes with an edge into another subset (the paper's boundary).
    """

    subset: Ints
    boundary: NDArray[np.bool_]
    block: Ints
    crossing: int
    border_count: int

    @property
    def sizes(self) -> Ints:
        """The number of nodes in each block."""
        return np.bincount(self.block[self.block >= 0])

    def count_neighbours(self, edges: Ints) -> Ints:
        """Count the boundary nodes that have an edge into each block."""
        directed_edges = np.concatenate([edges, edges[:, ::-1]])
        outgoing = directed_edges[(self.block[directed_edges[:, 0]] >= 0) & self.boundary[directed_edges[:, 1]]]
        block_neighbours = np.unique(np.column_stack([self.block[outgoing[:, 0]], outgoing[:, 1]]), axis=0)
        return np.bincount(block_neighbours[:, 0], minlength=len(self.sizes))

    def members(self) -> list[Ints]:
        """Return the nodes of each block."""
        return [np.flatnonzero(self.block == number) for number in range(len(self.sizes))]


def boundary_of(subset: Ints, edges: Ints) -> NDArray[np.bool_]:
    """Mark the nodes with an edge into another subset."""
    crossing = edges[subset[edges[:, 0]] != subset[edges[:, 1]]]
    is_on_boundary = np.zeros(len(subset), dtype=np.bool_)
    is_on_boundary[crossing.ravel()] = True
    return is_on_boundary


def vertex_cover(nodes: int, edges: Ints) -> NDArray[np.bool_]:
    """Find a small set of nodes that touches every edge.

    If the graph is bipartite, the set is smallest (König's theorem, from a maximum matching). Otherwise nodes are
    added greedily by degree, and those that turn out to be redundant are removed.
    """
    cover = np.zeros(nodes, dtype=np.bool_)
    if not len(edges):
        return cover
    koenig = _bipartite_cover(nodes, edges)
    if koenig is not None:
        return koenig
    is_uncovered = np.ones(len(edges), dtype=np.bool_)
    while is_uncovered.any():
        degree = np.bincount(edges[is_uncovered].ravel(), minlength=nodes)
        best = int(degree.argmax())
        cover[best] = True
        is_uncovered &= (edges != best).all(axis=1)
    for node in np.flatnonzero(cover):
        others = edges[(edges == node).any(axis=1)]
        if cover[others[others != node]].all():
            cover[node] = False
    return cover


def _bipartite_cover(nodes: int, edges: Ints) -> NDArray[np.bool_] | None:
    import networkx as nx

    graph = nx.Graph(edges.tolist())
    if not nx.is_bipartite(graph):
        return None
    cover = np.zeros(nodes, dtype=np.bool_)
    for part in sorted(nx.connected_components(graph), key=min):
        piece = graph.subgraph(sorted(part))
        first_side = sorted(nx.bipartite.sets(piece)[0])
        matching = nx.bipartite.hopcroft_karp_matching(piece, first_side)
        cover[sorted(nx.bipartite.to_vertex_cover(piece, matching, first_side))] = True
    return cover


def make_partition(subset: Ints, edges: Ints, *, cover: bool = True) -> Partition:
    """Make the partition of a graph from the subsets of its nodes.

    Args:
        subset: (N,) The label of each node's subset.
        edges: (E, 2) The edges.
        cover: Whether one end of each edge between subsets is on the boundary, instead of both.
    """
    subset = np.unique(np.asarray(subset), return_inverse=True)[1].astype(np.int64)
    nodes = len(subset)
    crossing = edges[subset[edges[:, 0]] != subset[edges[:, 1]]]
    has_crossing_edge = boundary_of(subset, edges)
    boundary = vertex_cover(nodes, crossing) if cover else has_crossing_edge
    if boundary.all() and nodes > 1:
        boundary = boundary.copy()
        boundary[0] = False  # a block needs at least one internal node
    inner_edges = edges[~boundary[edges].any(axis=1)]
    # Once the boundary is fixed, connected components of the rest are independent problems (Property 3.1).
    block = np.full(nodes, -1, dtype=np.int64)
    inner = np.flatnonzero(~boundary)
    block[inner] = rank_by_first_use(components(nodes, inner_edges)[inner])
    return Partition(
        subset=subset, boundary=boundary, block=block, crossing=len(crossing), border_count=int(has_crossing_edge.sum())
    )
