"""Partitions of a graph into boundary nodes and blocks of internal nodes.

A partitioner first divides the nodes into subsets. The boundary then contains either both ends of every edge between
different subsets (Qiu, IJCAI 2024, Definition 3.2), or at least one end of each. The latter is a vertex cover of these
edges and usually smaller. All other nodes are internal, and their connected components are called blocks. In Benders
decomposition, boundary nodes belong to the master problem, and each block becomes a subproblem.
"""

from __future__ import annotations

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Ints
from privopt.numbers.graphs import components, rank_by_first_use


@frozen(kw_only=True, eq=False)
class Partition:
    """A partition of N nodes into a boundary and blocks.

    Attributes:
        subset: (N,) The index of each node's subset, counted from 0.
        boundary: (N,) Whether each node is on the boundary, and therefore belongs to the master problem.
        block: (N,) The index of each internal node's block, numbered from 0 in order of first occurrence, or -1 for
            boundary nodes.
        crossing: The number of edges between different subsets.
        border_count: The number of nodes with a neighbour in another subset. In the paper, these nodes form the
            boundary.
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
        """Return the number of boundary nodes that are adjacent to each block, as an array with one entry per block.

        A block's cuts contain the variables of these nodes, so their number determines the size of the cuts.

        Args:
            edges: (E, 2) The edges of the graph, each listed once.
        """
        # Both directions of each edge are considered, because either end can be the internal node.
        directed_edges = np.concatenate([edges, edges[:, ::-1]])
        outgoing = directed_edges[(self.block[directed_edges[:, 0]] >= 0) & self.boundary[directed_edges[:, 1]]]
        # A node with several edges into a block is counted once.
        block_neighbours = np.unique(np.column_stack([self.block[outgoing[:, 0]], outgoing[:, 1]]), axis=0)
        return np.bincount(block_neighbours[:, 0], minlength=len(self.sizes))

    def members(self) -> list[Ints]:
        """Return the indices of each block's nodes, as one array per block."""
        return [np.flatnonzero(self.block == number) for number in range(len(self.sizes))]


def boundary_of(subset: Ints, edges: Ints) -> NDArray[np.bool_]:
    """Return an (N,) mask of the nodes with a neighbour in another subset (Qiu, IJCAI 2024, Definition 3.2).

    Args:
        subset: (N,) The index of each node's subset.
        edges: (E, 2) The edges of the graph, each listed once.
    """
    crossing = edges[subset[edges[:, 0]] != subset[edges[:, 1]]]
    is_on_boundary = np.zeros(len(subset), dtype=np.bool_)
    is_on_boundary[crossing.ravel()] = True
    return is_on_boundary


def vertex_cover(nodes: int, edges: Ints) -> NDArray[np.bool_]:
    """Return an (N,) mask of a small vertex cover, which contains at least one end of every edge.

    A smaller cover leads to fewer variables in the master problem. If the graph is bipartite, the cover is a minimum
    vertex cover (König's theorem). Otherwise it is built greedily by degree, and redundant nodes are removed
    afterwards.

    Args:
        nodes: The number N of nodes.
        edges: (E, 2) The edges to cover.
    """
    cover = np.zeros(nodes, dtype=np.bool_)
    if not len(edges):
        return cover
    # With two subsets, the edges between them always form a bipartite graph. With three or more, they may not.
    koenig = _bipartite_cover(nodes, edges)
    if koenig is not None:
        return koenig
    is_uncovered = np.ones(len(edges), dtype=np.bool_)
    while is_uncovered.any():
        degree = np.bincount(edges[is_uncovered].ravel(), minlength=nodes)
        best = int(degree.argmax())
        cover[best] = True
        is_uncovered &= (edges != best).all(axis=1)
    # A node is redundant if the cover contains all of its neighbours. Since each removal affects later checks, nodes
    # are checked one at a time.
    for node in np.flatnonzero(cover):
        others = edges[(edges == node).any(axis=1)]
        if cover[others[others != node]].all():
            cover[node] = False
    return cover


def _bipartite_cover(nodes: int, edges: Ints) -> NDArray[np.bool_] | None:
    """Return an (N,) mask of a minimum vertex cover, or None if the graph is not bipartite.

    The cover is derived from a maximum matching. By König's theorem, a minimum cover has as many nodes as a maximum
    matching has edges.

    Args:
        nodes: The number N of nodes.
        edges: (E, 2) The edges to cover.
    """
    import networkx as nx

    graph = nx.Graph(edges.tolist())
    if not nx.is_bipartite(graph):
        return None
    cover = np.zeros(nodes, dtype=np.bool_)
    # There can be several minimum covers. Components and nodes are sorted so that the choice between them does not
    # depend on the iteration order of sets.
    for part in sorted(nx.connected_components(graph), key=min):
        piece = graph.subgraph(sorted(part))
        first_side = sorted(nx.bipartite.sets(piece)[0])
        matching = nx.bipartite.hopcroft_karp_matching(piece, first_side)
        cover[sorted(nx.bipartite.to_vertex_cover(piece, matching, first_side))] = True
    return cover


def make_partition(subset: Ints, edges: Ints, *, cover: bool = True) -> Partition:
    """Divide a graph into a boundary and blocks, given a division of its nodes into subsets.

    A graph with two or more nodes always gets at least one block. If all of its nodes would be on the boundary, the
    first one is removed from it.

    Args:
        subset: (N,) An integer label for each node's subset.
        edges: (E, 2) The edges of the graph, each listed once.
        cover: Whether to use a vertex cover of the edges between subsets as the boundary. If False, the boundary
            contains both ends of each of these edges, as in the paper.
    """
    # Partitioners may skip labels, so the labels are renumbered to 0, 1, 2, ...
    subset = np.unique(np.asarray(subset), return_inverse=True)[1].astype(np.int64)
    nodes = len(subset)
    crossing = edges[subset[edges[:, 0]] != subset[edges[:, 1]]]
    has_crossing_edge = boundary_of(subset, edges)
    boundary = vertex_cover(nodes, crossing) if cover else has_crossing_edge
    if boundary.all() and nodes > 1:
        boundary = boundary.copy()
        boundary[0] = False  # there must be a block, so at least one node is internal
    inner_edges = edges[~boundary[edges].any(axis=1)]
    # Once the boundary's entries are fixed, the connected components of the other nodes are independent (Property 3.1).
    block = np.full(nodes, -1, dtype=np.int64)
    inner = np.flatnonzero(~boundary)
    block[inner] = rank_by_first_use(components(nodes, inner_edges)[inner])
    return Partition(
        subset=subset, boundary=boundary, block=block, crossing=len(crossing), border_count=int(has_crossing_edge.sum())
    )
