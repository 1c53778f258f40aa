"""Exact combinatorial pricing: a network simplex over trees of tight privacy rows.

For prices ``y`` and an output ``k`` pricing minimises ``a . z`` over the cone ``{z : z_i <= exp(l_ij) z_j}``, ``a =
cost_k - y``. Anchored at ``z_root = 1`` its vertices are spanning trees of the required-pairs graph whose every edge is
tight: a record is ``exp(l)`` times its parent or that factor below it. With ``g_i = a_i + sum over children c of (z_c /
z_i) g_c`` a tree is optimal when ``g`` is at least 0 at records below their parent and at most 0 at records above;
``g_root`` is the optimum, and the ``|g_i|`` are multipliers of the tight rows. So the answer brings its own proof, and
the last tree is the next one's warm start. (The dual is a generalised flow with losses; every cycle loses, hence trees
only.)

Ties are broken by shrinking each log-ratio by a random share of at most
`privopt_metric_dp.solvers.path_graph.EXPONENT_SHRINKAGE`: rays stay inside the true cone, and
multipliers are evaluated with the true log-ratios.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Indices
from privopt.execution.clock import slices
from privopt.execution.compiled import jit
from privopt.execution.limits import in_threads
from privopt_metric_dp.proof.multipliers import Few, Multipliers
from privopt_metric_dp.solvers.instance import Instance
from privopt_metric_dp.solvers.path_graph import Graph

__all__ = ["PricingResult", "Trees", "price_all", "tree_multipliers"]

SIGN_TOLERANCE = 1e-12
"""Share of the largest cost up to which wrong signs of accumulated reduced costs pass."""
MAX_ANCHORS, MAX_BEARER_TRIES = 4, 50


@frozen(kw_only=True, eq=False)
class Trees:
    """One tree an output: parent (-1 at the root), entry of the CSR that leads there, 1 above or -1 below."""

    parent: Indices
    entry: Indices
    side: NDArray[np.int8]

    def copy(self) -> Trees:
        """Return trees that pricing does not change."""
        return Trees(parent=self.parent.copy(), entry=self.entry.copy(), side=self.side.copy())


@frozen(kw_only=True, eq=False)
class PricingResult:
    """What pricing found.

    Attributes:
        value: ``(K,)`` least value of ``a . z`` with ``z_root = 1``.
        deficit: ``(N,)`` by how much the price of each record must fall so that no ray of the cone prices below 0.
        ray: ``(K, N)`` logarithms of the optimal rays.
        pivots: pivots in all.
    """

    value: Floats
    deficit: Floats
    ray: Floats
    pivots: int


@jit()
def _preorder(root: int, first: Any, following: Any, order: Any) -> int:
    """Nodes of a subtree, parents first."""
    order[0] = root
    count, done = 1, 0
    while done < count:
        child = first[order[done]]
        while child >= 0:
            order[count] = child
            count += 1
            child = following[child]
        done += 1
    return count


@jit()
def _unlink(node: int, parent: Any, first: Any, following: Any, previous: Any) -> None:
    before, after = previous[node], following[node]
    if before >= 0:
        following[before] = after
    else:
        first[parent[node]] = after
    if after >= 0:
        previous[after] = before


@jit()
def _link(node: int, above: int, parent: Any, first: Any, following: Any, previous: Any) -> None:
    """Hang a node up under another."""
    parent[node] = above
    following[node] = first[above]
    previous[node] = -1
    if first[above] >= 0:
        previous[first[above]] = node
    first[above] = node


@jit()
def _hang(parent: Any) -> Any:
    """List every node under its parent; returns the root, which has none, and the lists."""
    root, first = int(parent.argmin()), np.full(len(parent), -1, dtype=np.int32)
    following, previous = first.copy(), first.copy()
    for node in range(len(parent)):
        if node != root:
            _link(node, parent[node], parent, first, following, previous)
    return root, first, following, previous


@jit()
def _heights(root: int, length: Any, parent: Any, entry: Any, side: Any, first: Any, following: Any, order: Any,
             u: Any) -> int:  # fmt: skip
    """Log-heights of the nodes of a tree above its root; `order` lists them, parents first, as many as returned."""
    count: int = _preorder(root, first, following, order)
    u[root] = 0.0
    for place in range(1, count):
        node = order[place]
        u[node] = u[parent[node]] + side[node] * length[entry[node]]
    return count


@jit()
def _refresh(root: int, a: Any, length: Any, parent: Any, entry: Any, side: Any, first: Any, following: Any,
             order: Any, u: Any, g: Any) -> None:  # fmt: skip
    """Log-heights and accumulated reduced costs of the whole tree."""
    n = _heights(root, length, parent, entry, side, first, following, order, u)
    g[:] = a
    for place in range(n - 1, 0, -1):
        node = order[place]
        g[parent[node]] += np.exp(side[node] * length[entry[node]]) * g[node]


@jit()
def _blocking(top: int, rising: bool, start: Any, other: Any, length: Any, first: Any, following: Any,
              order: Any, mark: Any, u: Any) -> Any:  # fmt: skip
    """Return how far a subtree can move in logs, and the CSR entry inside -> outside that stops it."""
    count = _preorder(top, first, following, order)
    for place in range(count):
        mark[order[place]] = True
    best, inside, found = np.inf, -1, -1
    for place in range(count):
        node = order[place]
        for e in range(start[node], start[node + 1]):
            out = other[e]
            if not mark[out]:
                room = length[e] + u[out] - u[node] if rising else length[e] + u[node] - u[out]
                if room < best:
                    best, inside, found = room, node, e
    move = max(best, 0.0) if rising else -max(best, 0.0)
    for place in range(count):
        mark[order[place]] = False
        u[order[place]] += move
    return inside, found


@jit()
def _reroot(top: int, new: int, length: Any, parent: Any, entry: Any, side: Any, first: Any, following: Any,
            previous: Any, path: Any, g: Any) -> None:  # fmt: skip
    """Turn the path from `new` up to `top`, already cut off, round, so that `new` heads the subtree."""
    path[0] = new
    m = 0
    while path[m] != top:
        path[m + 1] = parent[path[m]]
        m += 1
    for q in range(m):
        _unlink(path[q], parent, first, following, previous)
    for q in range(m, 0, -1):
        child = path[q - 1]
        g[path[q]] -= np.exp(side[child] * length[entry[child]]) * g[child]
    for q in range(m, 0, -1):
        node, above = path[q], path[q - 1]
        entry[node], side[node] = entry[above], -side[above]
        _link(node, above, parent, first, following, previous)
        g[above] += np.exp(side[node] * length[entry[node]]) * g[node]


@jit()
def _carry(node: int, share: float, length: Any, parent: Any, entry: Any, side: Any, g: Any) -> None:
    """Add to what is accumulated above a node what a share of its own is there."""
    while parent[node] >= 0:
        share *= np.exp(side[node] * length[entry[node]])
        node = parent[node]
        g[node] += share


@jit()
def _pivot(top: int, start: Any, other: Any, length: Any, parent: Any, entry: Any, side: Any, first: Any,
           following: Any, previous: Any, order: Any, mark: Any, u: Any, g: Any) -> None:  # fmt: skip
    """Move the subtree of `top` until a row outside stops it, and hang it up there."""
    rising = side[top] < 0
    inside, found = _blocking(top, rising, start, other, length, first, following, order, mark, u)
    _unlink(top, parent, first, following, previous)
    _carry(top, -g[top], length, parent, entry, side, g)
    _reroot(top, inside, length, parent, entry, side, first, following, previous, order, g)
    side[inside] = 1 if rising else -1
    entry[inside] = found
    _link(inside, other[found], parent, first, following, previous)
    _carry(inside, g[inside], length, parent, entry, side, g)


@jit()
def _simplex(a: Any, tolerance: float, max_pivots: int, start: Any, other: Any, length: Any, parent: Any, entry: Any,
             side: Any, u: Any, g: Any) -> int:  # fmt: skip
    """Optimise one tree in place, to `tolerance` or `max_pivots` pivots; returns how many it took."""
    n = len(a)
    order, mark = np.empty(n, dtype=np.int32), np.zeros(n, dtype=np.bool_)
    root, first, following, previous = _hang(parent)
    pivots, fresh = 0, True
    _refresh(root, a, length, parent, entry, side, first, following, order, u, g)
    while True:
        worst, top = 0.0, -1
        for node in range(n):
            if node != root and g[node] * side[node] > tolerance:
                gain = np.log(g[node] * side[node]) + u[node]
                if top < 0 or gain > worst:
                    worst, top = gain, node
        if top < 0 and not fresh:
            _refresh(root, a, length, parent, entry, side, first, following, order, u, g)
            fresh = True
            continue
        if top < 0 or pivots >= max_pivots:
            return pivots
        _pivot(top, start, other, length, parent, entry, side, first, following, previous, order, mark, u, g)
        pivots += 1
        fresh = False


@jit()
def _absorb(parent: Any, side: Any, u: Any, g: Any, deficit: Any) -> None:
    """Let high records take over a tree's deficit at its root, as far as flows towards the root can shrink.

    A price that falls by ``x`` at a record of height ``u`` has the effect of ``x exp(u)`` at the root. So each record,
    from the highest down, takes over as much of a negative ``g_root`` as the flows on its path to the root allow. ``g``
    becomes what is left, ``deficit`` grows by what each record takes over.
    """
    root, tries = parent.argmin(), 0
    borne = np.zeros(len(g), dtype=np.bool_)
    while g[root] < 0:
        top = root
        for node in range(len(g) if tries < MAX_BEARER_TRIES else 0):
            if not borne[node] and u[node] > u[top]:
                top = node
        tries += 1
        share, node = -g[root], top
        while node != root:
            if side[node] > 0:
                share = min(share, max(-g[node], 0.0) * np.exp(u[node] - u[root]))
            node = parent[node]
        borne[top] = True
        deficit[top] += share * np.exp(u[root] - u[top])
        node = top
        while node != root:
            g[node] += share * np.exp(u[root] - u[node])
            node = parent[node]
        g[root] += share
        if top == root:
            g[root] = 0.0


@jit()
def _settle(a: Any, length: Any, parent: Any, entry: Any, side: Any, order: Any, u: Any, g: Any, lacks: Any) -> int:
    """Return a tree's bound, optimal or not: its accumulated reduced costs, as far as they may flow to the root.

    ``u`` becomes the log-heights, ``g`` the flows, ``lacks`` by how much the price of each record must fall for the
    tree to be a proof. Returns how many nodes `order` has, parents first.
    """
    root, first, following, _ = _hang(parent)
    count: int = _heights(root, length, parent, entry, side, first, following, order, u)
    g[:] = a
    lacks[:] = 0.0
    for place in range(count - 1, 0, -1):
        node = order[place]
        if side[node] < 0 and g[node] < 0:
            lacks[node] -= g[node]
            g[node] = 0.0
        if side[node] < 0 or g[node] < 0:
            g[parent[node]] += np.exp(side[node] * length[entry[node]]) * g[node]
    _absorb(parent, side, u, g, lacks)
    return count


@jit()
def _turn(new: int, parent: Any, entry: Any, side: Any) -> None:
    """Make `new` the root of a tree."""
    node, above, e, s = new, parent[new], entry[new], side[new]
    parent[new], entry[new], side[new] = -1, -1, -1
    while above >= 0:
        next_above, next_entry, next_side = parent[above], entry[above], side[above]
        parent[above], entry[above], side[above] = node, e, -s
        node, above, e, s = above, next_above, next_entry, next_side


@jit(few=lambda cost, *_: bool(cost.size <= 200))
def _price(cost: Any, y: Any, tolerance: float, max_pivots: int, start: Any, other: Any, length: Any, parent: Any,
           entry: Any, side: Any, value: Any, ray: Any, deficit: Any) -> int:  # fmt: skip
    n, columns = cost.shape
    total = 0
    g, lacks, order = np.empty(n), np.empty(n), np.empty(n, dtype=np.int32)
    for k in range(columns):
        a = cost[:, k] - y
        least, deficit_k = np.inf, np.zeros(n)
        here = (parent[k], entry[k], side[k], ray[k])
        for attempt in range(MAX_ANCHORS):
            total += _simplex(a, tolerance, max_pivots, start, other, length, here[0], here[1], here[2], here[3], g)
            anchored = g[here[0].argmin()]
            _settle(a, length, here[0], here[1], here[2], order, here[3], g, lacks)
            if lacks.sum() < least:  # the first time all is in place already
                least, value[k] = lacks.sum(), anchored
                deficit_k = lacks.copy()
                if attempt > 0:
                    parent[k, :], entry[k, :], side[k, :], ray[k, :] = here
            top = here[3].argmax()
            if here[3][top] <= 1e-6:
                break
            here = (here[0].copy(), here[1].copy(), here[2].copy(), here[3].copy())
            _turn(top, here[0], here[1], here[2])  # anchored at the largest entry values are best scaled
        deficit[:] = np.maximum(deficit, deficit_k)
    return total


def price_all(
    graph: Graph, instance: Instance, y: Floats, trees: Trees, *, max_pivots: int = 1_000_000
) -> PricingResult:
    """Price every output of an instance exactly, in threads, from given trees, which become the optimal ones.

    Args:
        graph: from `make_graph`.
        instance: whose outputs are priced.
        y: ``(N,)`` prices.
        trees: a tree for each output; changed in place.
        max_pivots: most pivots for one output.

    Raises:
        OutOfTime: the end came before all outputs were priced; trees are then those of some more pivots.
    """
    outputs = instance.outputs
    value, ray = np.empty(outputs), np.empty((outputs, graph.records))
    scale = max(float(np.abs(instance.cost).max()), float(np.abs(y).max()), 1e-300)
    given, rows = (SIGN_TOLERANCE * scale, max_pivots), (graph.start, graph.other, graph.length)

    def some(first: int, end: int) -> tuple[Floats, int]:
        deficit, pivots = np.zeros(graph.records), 0
        for a, b in slices(end - first):
            here = slice(first + a, first + b)
            own = trees.parent[here], trees.entry[here], trees.side[here], value[here], ray[here], deficit
            pivots += _price(np.array(instance.cost[:, here]), np.array(y), *given, *rows, *own)
        return deficit, pivots

    deficits, pivots = zip(*in_threads(some, outputs), strict=True)
    return PricingResult(value=value, deficit=np.max(deficits, axis=0), ray=ray, pivots=int(sum(pivots)))


@jit(few=lambda a, *_: len(a) <= 32)
def _tight_rows(a: Any, length: Any, low: Any, pair: Any, parents: Any, entries: Any, sides: Any,
          pairs: Any, values: Any) -> int:  # fmt: skip
    """Multipliers of the tight rows at the true log-ratios, of the tree of an output that proves most; how many."""
    n = len(a)
    order = np.empty(n, dtype=np.int32)
    u, g, lacks = np.empty(n), np.empty(n), np.empty(n)
    best, least = 0, np.inf
    for t in range(len(parents)):
        _settle(a, length, parents[t], entries[t], sides[t], order, u, g, lacks)
        if lacks.sum() < least:
            best, least = t, lacks.sum()
    count = _settle(a, length, parents[best], entries[best], sides[best], order, u, g, lacks)
    for place in range(1, count):
        node = order[place]
        p = pair[entries[best, node]]
        own = sides[best, node] > 0
        # node <= exp(l) parent, multiplier -g; or parent <= exp(l) node, multiplier g exp(-l)
        f = max(-g[node], 0.0) if own else max(g[node], 0.0) * np.exp(-length[entries[best, node]])
        pairs[place - 1] = p
        values[place - 1] = f if (low[p] == node) == own else -f
    return count - 1


def tree_multipliers(instance: Instance, graph: Graph, y: Floats, candidates: Sequence[Trees]) -> Multipliers:
    """Return multipliers of all outputs from the better of their trees, computed output by output on request."""

    def list_rows() -> Iterator[Few]:
        low, lengths = np.array(instance.pairs[:, 0]), np.array(instance.lengths)[graph.pair]
        pairs, values = np.empty(instance.records, dtype=np.int64), np.empty(instance.records)
        for k in range(instance.outputs):
            parents = np.stack([trees.parent[k] for trees in candidates])
            entries = np.stack([trees.entry[k] for trees in candidates])
            sides = np.stack([trees.side[k] for trees in candidates])
            cost = instance.cost[:, k] - y
            count = _tight_rows(cost, lengths, low, graph.pair, parents, entries, sides, pairs, values)
            yield k, pairs[:count].copy(), values[:count].copy()

    return Multipliers(rows=list_rows)
