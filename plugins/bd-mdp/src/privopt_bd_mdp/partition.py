"""Partitions of a graph's nodes into boundary nodes and blocks of internal nodes.

A partitioner first divides the nodes into subsets. The boundary then contains either both ends of every edge
between two subsets (Qiu, IJCAI 2024, Definition 3.2), or at least one end. The second boundary is a vertex cover of
these edges, and is smaller. A block is a connected component of the remaining, internal nodes. In Benders
decomposition, boundary nodes belong to the master problem and each block is a subproblem.
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
        boundary: (N,) Whether each node is on the boundary and therefore belongs to the master problem.
        block: (N,) The index of each internal node's block, from 0 in the order of first occurrence; -1 for boundary
            nodes.
        crossing: The number of edges between subsets.
        border_count: The number of nodes with an edge into another subset. These nodes form the paper's boundary.
    """

    subset: Ints
    boundary: NDArray[np.bool_]
    block: Ints
    crossing: int
    border_count: int

    @property
    def sizes(self) -> Ints:
        """The number of nodes in each block, an array with one entry per block."""
        return np.bincount(self.block[self.block >= 0])

    def count_neighbours(self, edges: Ints) -> Ints:
        """Return, for each block, the number of boundary nodes that have an edge into it.

        A block's cuts contain the variables of these nodes, so the count measures the size of the cuts.

        Args:
            edges: (E, 2) The edges of the graph, each listed once.
        """
        # Edges are taken in both directions, as either end can be the internal node.
        directed_edges = np.concatenate([edges, edges[:, ::-1]])
        outgoing = directed_edges[(self.block[directed_edges[:, 0]] >= 0) & self.boundary[directed_edges[:, 1]]]
        # A node with several edges into a block counts once.
        block_neighbours = np.unique(np.column_stack([self.block[outgoing[:, 0]], outgoing[:, 1]]), axis=0)
        return np.bincount(block_neighbours[:, 0], minlength=len(self.sizes))

    def members(self) -> list[Ints]:
        """Return the indices of the nodes in each block, as one array per block."""
        return [np.flatnonzero(self.block == number) for number in range(len(self.sizes))]


def boundary_of(subset: Ints, edges: Ints) -> NDArray[np.bool_]:
    """Return an (N,) mask of the nodes that have an edge into another subset (Qiu, IJCAI 2024, Definition 3.2).

    Args:
        subset: (N,) The index of each node's subset.
        edges: (E, 2) The edges of the graph, each listed once.
    """
    crossing = edges[subset[edges[:, 0]] != subset[edges[:, 1]]]
    is_on_boundary = np.zeros(len(subset), dtype=np.bool_)
    is_on_boundary[crossing.ravel()] = True
    return is_on_boundary


def vertex_cover(nodes: int, edges: Ints) -> NDArray[np.bool_]:
    """Return an (N,) mask of a small vertex cover: a set of nodes that contains an end of every edge.

    A smaller cover means fewer variables in the master problem. If the graph is bipartite, the cover is a minimum
    vertex cover (König's theorem). Otherwise nodes are added greedily by degree, and redundant nodes are removed
    afterwards.

    Args:
        nodes: The number of nodes, N.
        edges: (E, 2) The edges to cover.
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
    """Return an (N,) mask of a minimum vertex cover, or None if the graph is not bipartite.

    The cover is derived from a maximum matching, which has as many edges as a minimum cover has nodes (König's
    theorem).

    Args:
        nodes: The number of nodes, N.
        edges: (E, 2) The edges to cover.
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
    """Divide a graph's nodes into a boundary and blocks, given the subset of each node.

    At least one node is made internal, so that there is at least one block.

    Args:
        subset: (N,) The integer label of each node's subset.
        edges: (E, 2) The edges of the graph, each listed once.
        cover: Whether the boundary is a vertex cover of the edges between subsets, which contains at least one end of
            each edge. If False, it contains both ends, as in the paper.
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
