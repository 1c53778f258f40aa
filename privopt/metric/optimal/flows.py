"""Multipliers of the privacy rows from priced trees: each tree of tight rows brings its own proof."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from privopt.arrays import Floats
from privopt.exact.bound import Multipliers
from privopt.execution.compiled import jit
from privopt.metric.optimal.instance import Instance
from privopt.metric.optimal.paths import Graph
from privopt.metric.optimal.pricing import Trees, flow

__all__ = ["tree_multipliers"]


@jit()
def _flows(cost: Any, y: Any, true: Any, low: Any, pair: Any, parents: Any, entries: Any, sides: Any,
           forward: Any, backward: Any) -> None:  # fmt: skip
    """Multipliers of the tight rows at the true log-ratios, of the tree of each output that proves most."""
    n, columns = cost.shape
    order = np.empty(n, dtype=np.int32)
    u, g, lacks = np.empty(n), np.empty(n), np.empty(n)
    length = true[pair]
    for k in range(columns):
        a = cost[:, k] - y
        best, least = 0, np.inf
        for t in range(len(parents)):
            flow(a, length, parents[t, k], entries[t, k], sides[t, k], order, u, g, lacks)
            if lacks.sum() < least:
                best, least = t, lacks.sum()
        side, entry = sides[best, k], entries[best, k]
        count = flow(a, length, parents[best, k], entry, side, order, u, g, lacks)
        for place in range(1, count):
            node = order[place]
            p = pair[entry[node]]
            own = side[node] > 0
            # node <= exp(l) parent, multiplier -g; or parent <= exp(l) node, multiplier g exp(-l)
            f = max(-g[node], 0.0) if own else max(g[node], 0.0) * np.exp(-true[p])
            if (low[p] == node) == own:
                forward[p, k] = f
            else:
                backward[p, k] = f


def tree_multipliers(instance: Instance, graph: Graph, y: Floats, candidates: Sequence[Trees]) -> Multipliers:
    """Multipliers of all outputs from the better of their trees, computed block by block when asked for."""

    def blocks() -> Iterator[tuple[int, int, Floats, Floats]]:
        step = max(1, min(instance.outputs, 4_000_000 // max(1, len(instance.pairs))))
        low = np.array(instance.pairs[:, 0])
        for k0 in range(0, instance.outputs, step):
            k1 = min(instance.outputs, k0 + step)
            f = np.zeros((len(instance.pairs), k1 - k0))
            b = np.zeros_like(f)
            parents = np.stack([trees.parent[k0:k1] for trees in candidates])
            entries = np.stack([trees.entry[k0:k1] for trees in candidates])
            sides = np.stack([trees.side[k0:k1] for trees in candidates])
            _flows(
                np.array(instance.cost[:, k0:k1]), np.array(y), np.array(instance.lengths), low, graph.pair,
                parents, entries, sides, f, b,
            )  # fmt: skip
            yield k0, k1, f, b

    return Multipliers(blocks=blocks)
