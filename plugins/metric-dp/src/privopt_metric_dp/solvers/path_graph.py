"""The graph of required pairs with its log-ratios, and shortest paths over it."""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Indices
from privopt.execution.clock import check
from privopt.numbers.graphs import neighbours
from privopt_metric_dp.solvers.instance import Instance
from privopt_metric_dp.space.pairs import has_implied_pairs

__all__ = ["Graph", "make_graph", "shortest_paths"]

EXPONENT_SHRINKAGE = 1e-11
TRIANGLE_TOLERANCE = 1e-9
"""Ways shorter than a pair by more than this share of it are more than rounding errors."""


@frozen(kw_only=True, eq=False)
class Graph:
    """Required-pairs graph: CSR, with shrunk log-ratios for solving and the pair of each entry.

    Where ``direct`` every two records are a pair and hardly any way over a third is shorter: the pairs themselves are
    taken for the shortest paths, which spares searches of N^3 steps.
    """

    start: NDArray[np.int64]
    other: Indices
    length: Floats
    pair: NDArray[np.int64]
    direct: bool = False

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.start) - 1


def make_graph(instance: Instance, *, shrink: float = EXPONENT_SHRINKAGE) -> Graph:
    """Make the graph of an instance with its log-ratios shrunk at random (the same each time)."""
    start, targets, pair = neighbours(instance.records, instance.pairs)
    check()
    shrinkage = np.random.default_rng(0).uniform(0, shrink, len(instance.pairs))
    return Graph(
        start=start,
        other=targets.astype(np.int32),
        length=instance.lengths[pair] * (1 - shrinkage[pair]),
        pair=pair,
        direct=not has_implied_pairs(instance.pairs, instance.distances, slack=-TRIANGLE_TOLERANCE, rare=0.0),
    )


def shortest_paths(graph: Graph, sources: NDArray[Any], *, trees: bool = False) -> tuple[Floats, Indices, Indices]:
    """Return log-ratios along shortest paths from `sources`, ``(len(sources), N)``.

    Returns:
        The log-ratios and, with `trees`, parents and CSR entries from parent to child, else empty arrays.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    n = graph.records
    if graph.direct:
        return _direct_paths(graph, sources, trees)
    matrix = csr_array((graph.length, graph.other, graph.start), shape=(n, n))
    none = np.zeros((0, 0), dtype=np.int32)
    if not trees:
        return dijkstra(matrix, directed=True, indices=sources), none, none
    lengths, parent = dijkstra(matrix, directed=True, indices=sources, return_predecessors=True)
    parent = np.maximum(parent, -1)
    number = np.repeat(np.arange(n), np.diff(graph.start)) * n + graph.other
    entry = np.searchsorted(number, parent.astype(np.int64) * n + np.arange(n)).astype(np.int32)
    entry[parent < 0] = -1
    return lengths, parent, entry


def _direct_paths(graph: Graph, sources: NDArray[Any], trees: bool) -> tuple[Floats, Indices, Indices]:
    """Return the same where every two records are a pair and no way is shorter."""
    n, shape = graph.records, (len(sources), graph.records)
    is_other = np.arange(n)[None] != np.asarray(sources)[:, None]
    lengths = np.zeros(shape)
    entry = np.full(shape, -1, dtype=np.int32)
    entry[is_other] = (graph.start[sources][:, None] + np.arange(n - 1)).ravel()
    lengths[is_other] = graph.length[entry[is_other]]
    if not trees:
        none = np.zeros((0, 0), dtype=np.int32)
        return lengths, none, none
    parent = np.where(is_other, np.asarray(sources, dtype=np.int32)[:, None], np.int32(-1))
    return lengths, parent, entry
