"""Exact combinatorial pricing: a network simplex over trees of tight privacy rows.

For prices ``y`` and an output ``k`` pricing minimises ``a . z`` over the cone
``{z : z_i <= exp(l_ij) z_j}``, ``a = cost_k - y``. Anchored at ``z_root = 1`` its vertices are spanning
trees of the required-pairs graph whose every edge is tight: a record stands ``exp(l)`` above its
parent or as far below it. With ``g_i = a_i + sum over children c of (z_c / z_i) g_c`` a tree is
optimal when ``g`` is at least 0 where the record hangs below its parent and at most 0 where it
stands above; ``g_root`` is the optimum, and the ``|g_i|`` are multipliers of the tight rows. So
the answer brings its own proof, and the last tree is the next one's warm start. (The dual is a
generalised flow with losses; every cycle loses, hence trees only.)

Ties are broken by shrinking each log-ratio by a random share of at most `SHRINK`: rays stay inside
the true cone, and multipliers are evaluated with the true log-ratios.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from attrs import frozen
from numba import njit
from numpy.typing import NDArray

from privopt.optimal.instance import Array, Instance, Multipliers
from privopt.optimal.reduce import adjacency

__all__ = ["Graph", "Priced", "Trees", "make_graph", "price", "shortest_paths", "tree_multipliers"]

SHRINK = 1e-11
ANCHORS = 4
Index = NDArray[np.int32]


@frozen(kw_only=True, eq=False)
class Graph:
    """Required-pairs graph: CSR, with shrunk log-ratios for solving and the pair of each entry."""

    start: NDArray[np.int64]
    other: Index
    length: Array
    pair: NDArray[np.int64]

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.start) - 1


@frozen(kw_only=True, eq=False)
class Trees:
    """One tree an output: parent (-1 at the root), entry of the CSR that leads there, 1 above or -1 below."""

    parent: Index
    entry: Index
    side: NDArray[np.int8]


@frozen(kw_only=True, eq=False)
class Priced:
    """What pricing found.

    Attributes:
        value: ``(K,)`` least value of ``a . z`` with ``z_root = 1``.
        root: ``(K,)`` root of each tree; the ray is largest there (unless anchors kept moving).
        ray: ``(K, N)`` logarithms of the optimal rays.
        optimal: whether all trees are optimal.
        pivots: pivots in all.
    """

    value: Array
    root: NDArray[np.int64]
    ray: Array
    optimal: bool
    pivots: int


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
) -> tuple[Array, Index, Index]:
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


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
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


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _unlink(node: int, parent: Any, first: Any, following: Any, previous: Any) -> None:
    before, after = previous[node], following[node]
    if before >= 0:
        following[before] = after
    else:
        first[parent[node]] = after
    if after >= 0:
        previous[after] = before


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _link(node: int, above: int, parent: Any, first: Any, following: Any, previous: Any) -> None:
    parent[node] = above
    following[node] = first[above]
    previous[node] = -1
    if first[above] >= 0:
        previous[first[above]] = node
    first[above] = node


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _refresh(root: int, a: Any, length: Any, parent: Any, entry: Any, side: Any, first: Any, following: Any,
             order: Any, u: Any, g: Any) -> None:  # fmt: skip
    """Log-heights and accumulated reduced costs of the whole tree."""
    n = _preorder(root, first, following, order)
    u[root] = 0.0
    for place in range(1, n):
        node = order[place]
        u[node] = u[parent[node]] + side[node] * length[entry[node]]
    g[:] = a
    for place in range(n - 1, 0, -1):
        node = order[place]
        g[parent[node]] += np.exp(side[node] * length[entry[node]]) * g[node]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _blocking(top: int, rising: bool, start: Any, other: Any, length: Any, first: Any, following: Any,
              order: Any, mark: Any, u: Any) -> Any:  # fmt: skip
    """How far a subtree can move in logs, and the CSR entry inside -> outside that stops it."""
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


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
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


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _pivot(top: int, start: Any, other: Any, length: Any, parent: Any, entry: Any, side: Any, first: Any,
           following: Any, previous: Any, order: Any, mark: Any, u: Any, g: Any) -> None:  # fmt: skip
    """Move the subtree of `top` until a row outside stops it, and hang it up there."""
    rising = side[top] < 0
    old, share = parent[top], np.exp(side[top] * length[entry[top]]) * g[top]
    inside, found = _blocking(top, rising, start, other, length, first, following, order, mark, u)
    _unlink(top, parent, first, following, previous)
    node = old
    while node >= 0:
        g[node] -= share
        if parent[node] >= 0:
            share *= np.exp(side[node] * length[entry[node]])
        node = parent[node]
    _reroot(top, inside, length, parent, entry, side, first, following, previous, order, g)
    side[inside] = 1 if rising else -1
    entry[inside] = found
    _link(inside, other[found], parent, first, following, previous)
    share, node = g[inside], inside
    while parent[node] >= 0:
        share *= np.exp(side[node] * length[entry[node]])
        node = parent[node]
        g[node] += share


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _simplex(a: Any, tolerance: float, most: int, start: Any, other: Any, length: Any, parent: Any, entry: Any,
             side: Any, u: Any, g: Any) -> Any:  # fmt: skip
    """Optimise one tree in place; returns the pivots and whether it is optimal to `tolerance`."""
    n = len(a)
    first = np.full(n, -1, dtype=np.int32)
    following, previous = first.copy(), first.copy()
    order = np.empty(n, dtype=np.int32)
    mark = np.zeros(n, dtype=np.bool_)
    root = 0
    for node in range(n):
        if parent[node] >= 0:
            _link(node, parent[node], parent, first, following, previous)
        else:
            root = node
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
        if top < 0 or pivots >= most:
            return pivots, top < 0
        _pivot(top, start, other, length, parent, entry, side, first, following, previous, order, mark, u, g)
        pivots += 1
        fresh = False


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _turn(new: int, parent: Any, entry: Any, side: Any) -> None:
    """Make `new` the root of a tree."""
    node, above, e, s = new, parent[new], entry[new], side[new]
    parent[new], entry[new], side[new] = -1, -1, -1
    while above >= 0:
        next_above, next_entry, next_side = parent[above], entry[above], side[above]
        parent[above], entry[above], side[above] = node, e, -s
        node, above, e, s = above, next_above, next_entry, next_side


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _price(cost: Any, y: Any, tolerance: float, most: int, start: Any, other: Any, length: Any, parent: Any,
           entry: Any, side: Any, value: Any, ray: Any, good: Any, root: Any) -> int:  # fmt: skip
    n, columns = cost.shape
    total = 0
    for k in range(columns):
        g = np.empty(n)
        a = cost[:, k] - y
        for attempt in range(ANCHORS):
            pivots, good[k] = _simplex(
                a, tolerance, most, start, other, length, parent[k], entry[k], side[k], ray[k], g
            )
            total += pivots
            top = 0
            for node in range(n):
                if parent[k, node] < 0:
                    root[k], value[k] = node, g[node]
                if ray[k, node] > ray[k, top]:
                    top = node
            if ray[k, top] <= 1e-6 or attempt == ANCHORS - 1:
                break
            _turn(top, parent[k], entry[k], side[k])  # anchored at the largest entry values are best scaled
    return total


def price(
    graph: Graph, cost: Array, y: Array, trees: Trees, *, tolerance: float = 1e-12, most: int = 1_000_000
) -> Priced:
    """Price outputs exactly, from given trees, which become the optimal ones.

    Args:
        graph: from `make_graph`.
        cost: ``(N, K)`` costs of the outputs at hand.
        y: ``(N,)`` prices.
        trees: a tree for each output; changed in place.
        tolerance: wrong signs of accumulated reduced costs up to this share of the largest cost pass.
        most: most pivots for one output.

    Returns:
        Values, roots and rays.
    """
    outputs = cost.shape[1]
    value, good, root = np.empty(outputs), np.zeros(outputs, dtype=np.bool_), np.zeros(outputs, dtype=np.int64)
    ray = np.empty((outputs, graph.records))
    scale = max(float(np.abs(cost).max()), float(np.abs(y).max()), 1e-300)
    pivots = _price(
        np.array(cost), np.array(y), tolerance * scale, most, graph.start, graph.other, graph.length,
        trees.parent, trees.entry, trees.side, value, ray, good, root,
    )  # fmt: skip
    return Priced(value=value, root=root, ray=ray, optimal=bool(good.all()), pivots=int(pivots))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _flows(cost: Any, y: Any, true: Any, low: Any, pair: Any, parent: Any, entry: Any, side: Any,
           forward: Any, backward: Any) -> None:  # fmt: skip
    """Multipliers of the tight rows of each tree, at the true log-ratios."""
    n, columns = cost.shape
    first = np.full(n, -1, dtype=np.int32)
    following, previous = first.copy(), first.copy()
    order = np.empty(n, dtype=np.int32)
    for k in range(columns):
        first[:] = -1
        root = 0
        for node in range(n):
            if parent[k, node] >= 0:
                _link(node, parent[k, node], parent[k], first, following, previous)
            else:
                root = node
        g = cost[:, k] - y
        for place in range(_preorder(root, first, following, order) - 1, 0, -1):
            node = order[place]
            p = pair[entry[k, node]]
            above = parent[k, node]
            if side[k, node] > 0:  # node <= exp(l) parent, multiplier -g
                f = max(-g[node], 0.0)
                g[above] -= np.exp(true[p]) * f
                own = True
            else:  # parent <= exp(l) node, multiplier g exp(-l)
                f = max(g[node], 0.0) * np.exp(-true[p])
                g[above] += f
                own = False
            if (low[p] == node) == own:
                forward[p, k] = f
            else:
                backward[p, k] = f


def tree_multipliers(instance: Instance, graph: Graph, y: Array, trees: Trees) -> Multipliers:
    """Multipliers of all outputs from their trees, computed block by block when asked for."""

    def blocks() -> Iterator[tuple[int, int, Array, Array]]:
        step = max(1, min(instance.outputs, 4_000_000 // max(1, len(instance.pairs))))
        low = np.array(instance.pairs[:, 0])
        for k0 in range(0, instance.outputs, step):
            k1 = min(instance.outputs, k0 + step)
            f = np.zeros((len(instance.pairs), k1 - k0))
            b = np.zeros_like(f)
            _flows(
                np.array(instance.cost[:, k0:k1]), np.array(y), np.array(instance.lengths), low, graph.pair,
                trees.parent[k0:k1], trees.entry[k0:k1], trees.side[k0:k1], f, b,
            )  # fmt: skip
            yield k0, k1, f, b

    return Multipliers(blocks=blocks)
