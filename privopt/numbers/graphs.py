"""Graphs given by arrays of edges: shortest parallel edges, sparse matrices, neighbour lists, components."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.arrays import Floats, Ints, csr_array


def shortest_rows(edges: Ints, lengths: Floats) -> Ints:
    """Return the row numbers of the shortest edge between each pair of nodes, the first one of equal lengths.

    Loops are left out. Edges in opposite directions are not parallel. Rows are sorted by tail, then head.

    Args:
        edges: (E, 2) tails and heads.
        lengths: (E,).
    """
    order = np.lexsort((lengths, edges[:, 1], edges[:, 0]))
    tails, heads = edges[order].T
    is_shortest = tails != heads
    is_shortest[1:] &= (tails[1:] != tails[:-1]) | (heads[1:] != heads[:-1])
    rows: Ints = order[is_shortest]
    return rows


def edge_matrix(nodes: int, pairs: Ints, lengths: ArrayLike = 1.0, *, both: bool = False) -> csr_array:
    """Return a SciPy CSR matrix (nodes, nodes) of edge lengths, without loops; of parallel edges the shortest counts.

    Args:
        nodes: number of nodes.
        pairs: (E, 2) tails and heads.
        lengths: (E,) or one for all, at least 0; an edge of length 0 is an entry of value 0.
        both: whether each edge also runs from head to tail.
    """
    from scipy.sparse import csr_array

    edges = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    weights = np.broadcast_to(np.asarray(lengths, dtype=np.float64), len(edges))
    if both:
        edges, weights = np.concatenate([edges, edges[:, ::-1]]), np.tile(weights, 2)
    edge_rows = shortest_rows(edges, weights)
    starts = np.concatenate([[0], np.cumsum(np.bincount(edges[edge_rows, 0], minlength=nodes))])
    return csr_array((weights[edge_rows], edges[edge_rows, 1], starts), shape=(nodes, nodes))


def neighbours(nodes: int, pairs: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the neighbour lists of an undirected graph, sorted for each node.

    Returns:
        (nodes + 1,) where each node's list starts; (2 P,) neighbours; (2 P,) the pair that each entry comes from.
    """
    source, target = np.concatenate([pairs[:, 0], pairs[:, 1]]), np.concatenate([pairs[:, 1], pairs[:, 0]])
    order = np.lexsort((target, source))
    start = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=nodes))]).astype(np.int64)
    return start, target[order], (order % max(1, len(pairs))).astype(np.int64)


def components(nodes: int, pairs: Ints, *, strong: bool = False) -> Ints:
    """Return connected components of nodes under pairs: independent problems (BD-mDP, Property 3.1).

    Args:
        nodes: how many.
        pairs: (E, 2) tails and heads.
        strong: Nodes belong together only if pairs lead from each to the other and back. Otherwise pairs count in both
            directions.

    Returns:
        (nodes,) numbers from 0, in the order in which the components first occur.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pairs = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(pairs), dtype=np.int8), (pairs[:, 0], pairs[:, 1])), shape=(nodes, nodes))
    return rank_by_first_use(connected_components(graph, directed=strong, connection="strong")[1])


def rank_by_first_use(labels: NDArray[Any]) -> Ints:
    """Return labels as numbers from 0, in the order in which they first occur."""
    _, first_positions, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first_positions), dtype=np.int64)
    rank[np.argsort(first_positions)] = np.arange(len(first_positions))
    return np.asarray(rank[inverse], dtype=np.int64)
