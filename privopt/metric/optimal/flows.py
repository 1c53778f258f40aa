"""Multipliers of the privacy rows from priced trees: each tree of tight rows brings its own proof."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from privopt.arrays import Floats
from privopt.exact.bound import Few, Multipliers
from privopt.execution.compiled import jit
from privopt.metric.optimal.instance import Instance
from privopt.metric.optimal.paths import Graph
from privopt.metric.optimal.pricing import Trees, flow

__all__ = ["tree_multipliers"]


@jit(few=lambda a, *_: len(a) <= 32)
def _flow(a: Any, length: Any, low: Any, pair: Any, parents: Any, entries: Any, sides: Any,
          pairs: Any, backward: Any, values: Any) -> int:  # fmt: skip
    """Multipliers of the tight rows at the true log-ratios, of the tree of an output that proves most; how many."""
    n = len(a)
    order = np.empty(n, dtype=np.int32)
    u, g, lacks = np.empty(n), np.empty(n), np.empty(n)
    best, least = 0, np.inf
    for t in range(len(parents)):
        flow(a, length, parents[t], entries[t], sides[t], order, u, g, lacks)
        if lacks.sum() < least:
            best, least = t, lacks.sum()
    count = flow(a, length, parents[best], entries[best], sides[best], order, u, g, lacks)
    for place in range(1, count):
        node = order[place]
        p = pair[entries[best, node]]
        own = sides[best, node] > 0
        # node <= exp(l) parent, multiplier -g; or parent <= exp(l) node, multiplier g exp(-l)
        values[place - 1] = max(-g[node], 0.0) if own else max(g[node], 0.0) * np.exp(-length[entries[best, node]])
        pairs[place - 1] = p
        backward[place - 1] = (low[p] == node) != own
    return count - 1


def tree_multipliers(instance: Instance, graph: Graph, y: Floats, candidates: Sequence[Trees]) -> Multipliers:
    """Multipliers of all outputs from the better of their trees, computed output by output when asked for."""

    def few() -> Iterator[Few]:
        low, lengths = np.array(instance.pairs[:, 0]), np.array(instance.lengths)[graph.pair]
        pairs, backward = np.empty(instance.records, dtype=np.int64), np.empty(instance.records, dtype=np.bool_)
        values = np.empty(instance.records)
        for k in range(instance.outputs):
            parents = np.stack([trees.parent[k] for trees in candidates])
            entries = np.stack([trees.entry[k] for trees in candidates])
            sides = np.stack([trees.side[k] for trees in candidates])
            cost = instance.cost[:, k] - y
            count = _flow(cost, lengths, low, graph.pair, parents, entries, sides, pairs, backward, values)
            yield k, pairs[:count].copy(), backward[:count].copy(), values[:count].copy()

    return Multipliers.sparse(few, len(instance.pairs))
