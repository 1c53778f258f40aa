"""Graphs of pairs: sparse matrices of them, neighbour lists, components."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt.arrays import Ints

__all__ = ["components", "edge_matrix", "neighbours", "ranked"]


LEAST = 5e-324
"""In place of a length of 0, which some of SciPy's searches take for no edge."""


def edge_matrix(n: int, pairs: Ints, lengths: Any = 1.0, *, both: bool = False) -> Any:
    """SciPy CSR matrix (n, n) of edges; of parallel ones the shortest counts.

    Args:
        n: nodes.
        pairs: (E, 2) tails and heads.
        lengths: (E,) or one for all, at least 0; kept as edges where 0.
        both: edges run both ways.
    """
    from scipy.sparse import csr_array

    pairs = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    tails, heads = pairs.T
    weights = np.maximum(np.broadcast_to(np.asarray(lengths, dtype=np.float64), tails.shape), LEAST)
    if both:
        tails, heads, weights = np.concatenate([tails, heads]), np.concatenate([heads, tails]), np.tile(weights, 2)
    order = np.lexsort((weights, heads, tails))
    fresh = np.ones(len(order), dtype=np.bool_)
    fresh[1:] = (np.diff(tails[order]) != 0) | (np.diff(heads[order]) != 0)
    kept = order[fresh]
    starts = np.concatenate([[0], np.cumsum(np.bincount(tails[kept], minlength=n))])
    return csr_array((weights[kept], heads[kept], starts), shape=(n, n))


def neighbours(n: int, pairs: Ints) -> tuple[Ints, Ints, Ints]:
    """Neighbour lists of pairs taken both ways, each node's in order.

    Returns:
        (n + 1,) where each node's list starts; (2 P,) neighbours; (2 P,) the pair that each entry comes from.
    """
    source, target = np.concatenate([pairs[:, 0], pairs[:, 1]]), np.concatenate([pairs[:, 1], pairs[:, 0]])
    order = np.lexsort((target, source))
    start = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=n))]).astype(np.int64)
    return start, target[order], (order % max(1, len(pairs))).astype(np.int64)


def components(n: int, pairs: Ints) -> Ints:
    """Connected components of n nodes under pairs: independent problems (BD-mDP, Property 3.1).

    Returns:
        (n,) numbers from 0, in the order in which the components first occur.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pairs = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(pairs), dtype=np.int8), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    return ranked(connected_components(graph, directed=False)[1])


def ranked(labels: NDArray[Any]) -> Ints:
    """Labels as numbers from 0, in the order in which they first occur."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.asarray(rank[inverse], dtype=np.int64)
