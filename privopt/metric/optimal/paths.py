"""The graph of required pairs with its log-ratios, and shortest ways over it."""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import frozen
from numba import njit
from numpy.typing import NDArray

from privopt.arrays import Floats, Indices
from privopt.metric.optimal.instance import Instance
from privopt.metric.optimal.reduce import adjacency

__all__ = ["Graph", "make_graph", "shortest_paths"]

SHRINK = 1e-11


@frozen(kw_only=True, eq=False)
class Graph:
    """Required-pairs graph: CSR, with shrunk log-ratios for solving and the pair of each entry."""

    start: NDArray[np.int64]
    other: Indices
    length: Floats
    pair: NDArray[np.int64]

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.start) - 1


def make_graph(instance: Instance, *, shrink: float = SHRINK) -> Graph:
    """Graph of an instance with its log-ratios shrunk at random (the same each time)."""
    start, other, length, pair = adjacency(instance)
    share = np.random.default_rng(0).uniform(0, shrink, len(instance.pairs))
    return Graph(start=start, other=other.astype(np.int32), length=length * (1 - share[pair]), pair=pair)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _dijkstra(start: Any, other: Any, length: Any, sources: Any, far: float, out: Any, parent: Any, entry: Any) -> None:
    n = len(start) - 1
    key = np.empty(n)
    heap = np.empty(n, dtype=np.int32)
    place = np.empty(n, dtype=np.int32)
    trees = parent.shape[0] > 0
    for row in range(len(sources)):
        dist = out[row]
        dist[:] = np.inf
        place[:] = -1
        source = sources[row]
        dist[source] = 0.0
        heap[0] = source
        key[0] = 0.0
        place[source] = 0
        size = 1
        if trees:
            parent[row, source] = -1
            entry[row, source] = -1
        while size > 0:
            node = heap[0]
            size -= 1
            place[node] = -2
            last, value = heap[size], key[size]
            hole = 0
            while True:
                child = 2 * hole + 1
                if child >= size:
                    break
                if child + 1 < size and key[child + 1] < key[child]:
                    child += 1
                if key[child] >= value:
                    break
                heap[hole], key[hole] = heap[child], key[child]
                place[heap[hole]] = hole
                hole = child
            if size > 0:
                heap[hole], key[hole] = last, value
                place[last] = hole
            if dist[node] > far:
                break
            for e in range(start[node], start[node + 1]):
                near = other[e]
                reach = dist[node] + length[e]
                if reach < dist[near]:
                    dist[near] = reach
                    if trees:
                        parent[row, near] = node
                        entry[row, near] = e
                    hole = place[near]
                    if hole < 0:
                        hole = size
                        size += 1
                    while hole > 0:
                        up = (hole - 1) // 2
                        if key[up] <= reach:
                            break
                        heap[hole], key[hole] = heap[up], key[up]
                        place[heap[hole]] = hole
                        hole = up
                    heap[hole], key[hole] = near, reach
                    place[near] = hole


def shortest_paths(
    graph: Graph, sources: NDArray[Any], *, far: float = np.inf, trees: bool = False
) -> tuple[Floats, Indices, Indices]:
    """Log-ratios along shortest paths from `sources`, ``(len(sources), N)``, infinite beyond `far`.

    Returns:
        The log-ratios and, with `trees`, parents and CSR entries from parent to child, else empty arrays.
    """
    shape = (len(sources), graph.records)
    out = np.empty(shape)
    parent = np.full(shape if trees else (0, 0), -1, dtype=np.int32)
    entry = np.full(shape if trees else (0, 0), -1, dtype=np.int32)
    _dijkstra(graph.start, graph.other, graph.length, np.asarray(sources, dtype=np.int64), far, out, parent, entry)
    out[out > far] = np.inf
    return out, parent, entry
