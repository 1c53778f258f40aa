"""Partitions of a graph's nodes into boundary nodes and blocks of internal nodes.

A block is a connected set of internal nodes; the master problem keeps the boundary nodes. The boundary contains either
both ends of every edge between two subsets (Qiu, IJCAI 2024, Definition 3.2), or at least one end of each. The latter
is a vertex cover of these edges, which is smaller.
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
        subset: (N,) The index of each node's subset, from 0.
        boundary: (N,) Whether a node is on the boundary, in which case the master problem keeps it.
        block: (N,) The block of each internal node, numbered from 0 in the order of first occurrence; -1 on the
            boundary.
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
        """Return the number of boundary nodes that have an edge into each block.

        The variables of these nodes occur in the constraints (cuts) that the block adds to the master problem, so the
        counts estimate the size of the cuts.

        Args:
            edges: (E, 2) The edges of the graph, each in one direction.
        """
        # Edges are taken in both directions, as either end can be the internal node.
        directed_edges = np.concatenate([edges, edges[:, ::-1]])
        outgoing = directed_edges[(self.block[directed_edges[:, 0]] >= 0) & self.boundary[directed_edges[:, 1]]]
        # A node with several edges into a block counts once.
        block_neighbours = np.unique(np.column_stack([self.block[outgoing[:, 0]], outgoing[:, 1]]), axis=0)
        return np.bincount(block_neighbours[:, 0], minlength=len(self.sizes))

    def members(self) -> list[Ints]:
        """Return the internal nodes of each block, one array per block."""
        return [np.flatnonzero(self.block == number) for number in range(len(self.sizes))]


def boundary_of(subset: Ints, edges: Ints) -> NDArray[np.bool_]:
    """Return an (N,) mask of the nodes that have an edge into another subset, which is the paper's boundary.

    Args:
        subset: (N,) The index of each node's subset.
        edges: (E, 2) The edges.
    """
    crossing = edges[subset[edges[:, 0]] != subset[edges[:, 1]]]
    is_on_boundary = np.zeros(len(subset), dtype=np.bool_)
    is_on_boundary[crossing.ravel()] = True
    return is_on_boundary


def vertex_cover(nodes: int, edges: Ints) -> NDArray[np.bool_]:
    """Return an (N,) mask of a small vertex cover: a set of nodes that contains an end of every edge.

    A small cover means few variables in the master problem. If the graph is bipartite, the cover is the smallest
    possible (König's theorem). Otherwise nodes are added greedily by degree, and those that turn out to be redundant
    are removed.

    Args:
        nodes: The number of nodes, N.
        edges: (E, 2) The edges.
    """
    cover = np.zeros(nodes, dtype=np.bool_)
    if not len(edges):
        return cover
    # The crossing edges between two subsets always form a bipartite graph; between three or more they need not.
    koenig = _bipartite_cover(nodes, edges)
    if koenig is not None:
        return koenig
    is_uncovered = np.ones(len(edges), dtype=np.bool_)
    while is_uncovered.any():
        degree = np.bincount(edges[is_uncovered].ravel(), minlength=nodes)
        best = int(degree.argmax())
        cover[best] = True
        is_uncovered &= (edges != best).all(axis=1)
    # A node is redundant if the cover contains all of its neighbours. Nodes are checked one by one, because a removal
    # changes later checks.
    for node in np.flatnonzero(cover):
        others = edges[(edges == node).any(axis=1)]
        if cover[others[others != node]].all():
            cover[node] = False
    return cover


def _bipartite_cover(nodes: int, edges: Ints) -> NDArray[np.bool_] | None:
    """Return an (N,) mask of a smallest vertex cover if the graph is bipartite, and None otherwise.

    The cover is derived from a maximum matching, which has as many edges as the smallest cover has nodes (König's
    theorem).

    Args:
        nodes: The number of nodes, N.
        edges: (E, 2) The edges.
    """
    import networkx as nx

    graph = nx.Graph(edges.tolist())
    if not nx.is_bipartite(graph):
        return None
    cover = np.zeros(nodes, dtype=np.bool_)
    # Components and nodes are sorted, because the iteration order of sets must not decide between equally small covers.
    for part in sorted(nx.connected_components(graph), key=min):
        piece = graph.subgraph(sorted(part))
        first_side = sorted(nx.bipartite.sets(piece)[0])
        matching = nx.bipartite.hopcroft_karp_matching(piece, first_side)
        cover[sorted(nx.bipartite.to_vertex_cover(piece, matching, first_side))] = True
    return cover


def make_partition(subset: Ints, edges: Ints, *, cover: bool = True) -> Partition:
    """Compute the boundary and the blocks that follow from the subsets of a graph's nodes.

    Args:
        subset: (N,) The integer label of each node's subset.
        edges: (E, 2) The edges.
        cover: Whether the boundary is a vertex cover of the edges between subsets, which contains at least one end of
            each edge. If False, both ends are on the boundary, as in the paper.
    """
    # Partitioners may leave labels out; here they become 0, 1, 2, ...
    subset = np.unique(np.asarray(subset), return_inverse=True)[1].astype(np.int64)
    nodes = len(subset)
    crossing = edges[subset[edges[:, 0]] != subset[edges[:, 1]]]
    has_crossing_edge = boundary_of(subset, edges)
    boundary = vertex_cover(nodes, crossing) if cover else has_crossing_edge
    if boundary.all() and nodes > 1:
        boundary = boundary.copy()
        boundary[0] = False  # there must be a block, so at least one node is internal
    inner_edges = edges[~boundary[edges].any(axis=1)]
    # Once the boundary's entries are fixed, the connected components of the rest are independent (Property 3.1).
    block = np.full(nodes, -1, dtype=np.int64)
    inner = np.flatnonzero(~boundary)
    block[inner] = rank_by_first_use(components(nodes, inner_edges)[inner])
    return Partition(
        subset=subset, boundary=boundary, block=block, crossing=len(crossing), border_count=int(has_crossing_edge.sum())
    )
