"""Graphs given as arrays of edges: shortest parallel edges, sparse matrices, adjacency lists and components."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.arrays import Floats, Ints, csr_array


def shortest_rows(edges: Ints, lengths: Floats) -> Ints:
    """Return the row index of the shortest edge for each ordered pair of nodes joined by an edge.

    If several edges are equally short, the first one is chosen. Self-loops are omitted. Edges in opposite directions
    belong to different pairs. The row indices are sorted by the edge's tail, and then by its head.

    Args:
        edges: (E, 2) indices of the nodes at the tail and head of each edge.
        lengths: (E,) The length of each edge.
    """
    # Sort by tail, head and length, so that the shortest of parallel edges comes first. The sort is stable.
    order = np.lexsort((lengths, edges[:, 1], edges[:, 0]))
    tails, heads = edges[order].T
    is_shortest = tails != heads
    # An edge with the same ends as the one before it is a parallel edge that is not shorter.
    is_shortest[1:] &= (tails[1:] != tails[:-1]) | (heads[1:] != heads[:-1])
    rows: Ints = order[is_shortest]
    return rows


def edge_matrix(nodes: int, pairs: Ints, lengths: ArrayLike = 1.0, *, both: bool = False) -> csr_array:
    """Return the (nodes, nodes) CSR matrix of edge lengths.

    Self-loops are omitted. If several edges join the same two nodes in the same direction, the matrix contains the
    length of the shortest edge.

    Args:
        nodes: The number of nodes.
        pairs: (E, 2) indices of the nodes at the tail and head of each edge.
        lengths: (E,) non-negative lengths, or a single length for all edges. An edge of length 0 is stored as an
            explicit 0.
        both: Whether each edge can also be traversed from head to tail.
    """
    # SciPy takes long to load, so it is imported only when needed.
    from scipy.sparse import csr_array

    edges = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    weights = np.broadcast_to(np.asarray(lengths, dtype=np.float64), len(edges))
    if both:
        edges, weights = np.concatenate([edges, edges[:, ::-1]]), np.tile(weights, 2)
    edge_rows = shortest_rows(edges, weights)
    starts = np.concatenate([[0], np.cumsum(np.bincount(edges[edge_rows, 0], minlength=nodes))])
    return csr_array((weights[edge_rows], edges[edge_rows, 1], starts), shape=(nodes, nodes))


def neighbours(nodes: int, pairs: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the sorted adjacency lists of an undirected graph.

    Args:
        nodes: The number of nodes.
        pairs: (P, 2) pairs of adjacent nodes.

    Returns:
        The arrays ``start``, of shape (nodes + 1,), and ``neighbours`` and ``pair``, both of shape (2 P,). The slice
        ``start[i] : start[i + 1]`` of ``neighbours`` lists node i's neighbours, and the same slice of ``pair`` gives
        the corresponding row indices in ``pairs``.
    """
    source, target = np.concatenate([pairs[:, 0], pairs[:, 1]]), np.concatenate([pairs[:, 1], pairs[:, 0]])
    # Sorted by source node, then by neighbour.
    order = np.lexsort((target, source))
    start = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=nodes))]).astype(np.int64)
    # Entries P to 2 P - 1 are the same pairs in the opposite direction.
    return start, target[order], (order % max(1, len(pairs))).astype(np.int64)


def components(nodes: int, pairs: Ints, *, strong: bool = False) -> Ints:
    """Return the index of the connected component containing each node.

    Args:
        nodes: The number of nodes.
        pairs: (E, 2) indices of the nodes at the tail and head of each edge.
        strong: Whether to return strongly connected components, in which each node can be reached from every other. If
            False, the directions of the edges are ignored.

    Returns:
        (nodes,) component indices. Components are numbered from 0 in the order of their first nodes.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pairs = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(pairs), dtype=np.int8), (pairs[:, 0], pairs[:, 1])), shape=(nodes, nodes))
    # If ``directed`` is False, SciPy ignores ``connection``.
    return rank_by_first_use(connected_components(graph, directed=strong, connection="strong")[1])


def rank_by_first_use(labels: NDArray[Any]) -> Ints:
    """Renumber labels from 0 in order of first occurrence, and return the new label of each entry.

    ``labels`` has shape (n,) and may have any sortable type.
    """
    _, first_positions, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first_positions), dtype=np.int64)
    rank[np.argsort(first_positions)] = np.arange(len(first_positions))
    return np.asarray(rank[inverse], dtype=np.int64)
