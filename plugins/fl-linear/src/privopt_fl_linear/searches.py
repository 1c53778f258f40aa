"""The compiled kernels of :class:`privopt_fl_linear.streets.Streets`: searches along edges that end early.

``start`` (N + 1,), ``node`` and ``length`` are the neighbours of each of N nodes (CSR), undirected. SciPy's Dijkstra
fills a row of N for each start, n^2 in all, and does not say who comes first among equals: hence these.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from privopt.arrays import Bools, Floats, Ints
from privopt.execution.compiled import jit


@jit()
def search(
    start: Ints, node: Ints, length: Floats, source: int, limit: float, wanted: Bools, enough: float, best: Floats,
    touched: Ints,
) -> tuple[int, int]:  # fmt: skip
    """Search shortest paths from a node, until none is left within the limit or enough goals were found.

    ``best`` (N,) must be infinite and becomes the path lengths; ``touched`` lists where, for the caller to undo.

    Returns how many are touched, and how many nodes of ``wanted`` were found (for these ``best`` is final).
    """
    best[source], touched[0] = 0.0, source
    count, found = 1, 0
    heap = [(0.0, source)]
    while len(heap) > 0:
        here, at = heappop(heap)
        if here > best[at]:
            continue
        if wanted[at]:
            found += 1
            if found >= enough:
                break
        for e in range(start[at], start[at + 1]):
            way, to = here + length[e], node[e]
            if way <= limit and way < best[to]:
                if best[to] == np.inf:
                    touched[count] = to
                    count += 1
                best[to] = way
                heappush(heap, (way, to))
    return count, found


@jit()
def cheapest(start: Ints, node: Ints, length: Floats, seeds: Ints, cost: Floats, rank: Ints) -> Ints:
    """Return (N,) the place in ``seeds`` (M,) of the u with the least cost_u + path from u, ties by least rank."""
    by, settled = np.full(len(start) - 1, -1), np.zeros(len(start) - 1, np.bool_)
    best, first = np.full(len(start) - 1, np.inf), np.full(len(start) - 1, len(rank))
    heap = [(cost[0], rank[0], seeds[0], 0)]
    for m in range(1, len(seeds)):
        heappush(heap, (cost[m], rank[m], seeds[m], m))
    while len(heap) > 0:
        here, order, at, m = heappop(heap)
        if settled[at]:
            continue
        settled[at], by[at] = True, m
        for e in range(start[at], start[at + 1]):
            way, to = here + length[e], node[e]
            if not settled[to] and (way < best[to] or (way == best[to] and order < first[to])):
                best[to], first[to] = way, order
                heappush(heap, (way, order, to, m))
    return by


@jit()
def independent(start: Ints, node: Ints, length: Floats, places: Ints, reach: float) -> Bools:
    """Return which of the places (M,), in their order, are farther than ``reach`` from all taken before."""
    blocked, taken = np.zeros(len(start) - 1, np.bool_), np.zeros(len(places), np.bool_)
    best, touched = np.full(len(start) - 1, np.inf), np.empty(len(start) - 1, np.int64)
    for m in range(len(places)):
        if blocked[places[m]]:
            continue
        taken[m] = True
        count, _ = search(start, node, length, places[m], reach, taken, np.inf, best, touched)
        for t in range(count):
            blocked[touched[t]], best[touched[t]] = True, np.inf
    return taken


@jit()
def balls(start: Ints, node: Ints, length: Floats, centres: Ints, radius: float) -> Ints:
    """Return (N,) the place in ``centres`` (M,) of the nearest within the radius, the first of equals; -1 for none."""
    owner, nearest = np.full(len(start) - 1, -1), np.full(len(start) - 1, np.inf)
    best, touched = np.full(len(start) - 1, np.inf), np.empty(len(start) - 1, np.int64)
    nothing = np.zeros(len(start) - 1, np.bool_)
    for m in range(len(centres)):
        count, _ = search(start, node, length, centres[m], radius, nothing, np.inf, best, touched)
        for t in range(count):
            at = touched[t]
            if best[at] < nearest[at]:
                owner[at], nearest[at] = m, best[at]
            best[at] = np.inf
    return owner


@jit()
def crowded(
    start: Ints, node: Ints, length: Floats, counted: Ints, places: Ints, radius: float, wanted: float
) -> Bools:
    """Return whether at least ``wanted`` of the nodes ``counted`` are within the radius of each place (M,)."""
    here, answer = np.zeros(len(start) - 1, np.bool_), np.zeros(len(places), np.bool_)
    here[counted] = True
    best, touched = np.full(len(start) - 1, np.inf), np.empty(len(start) - 1, np.int64)
    for m in range(len(places)):
        count, found = search(start, node, length, places[m], radius, here, wanted, best, touched)
        answer[m] = found >= wanted
        for t in range(count):
            best[touched[t]] = np.inf
    return answer


@jit()
def between(start: Ints, node: Ints, length: Floats, sources: Ints, first: Ints, goals: Ints) -> Floats:
    """Return path lengths from each source (M,) to its goals ``goals[first[m] : first[m + 1]]``, maybe infinite."""
    best, touched = np.full(len(start) - 1, np.inf), np.empty(len(start) - 1, np.int64)
    wanted, found = np.zeros(len(start) - 1, np.bool_), np.empty(len(goals))
    for m in range(len(sources)):
        number = 0
        for g in range(first[m], first[m + 1]):
            number += 0 if wanted[goals[g]] else 1
            wanted[goals[g]] = True
        count, _ = search(start, node, length, sources[m], np.inf, wanted, float(number), best, touched)
        for g in range(first[m], first[m + 1]):
            found[g], wanted[goals[g]] = best[goals[g]], False
        for t in range(count):
            best[touched[t]] = np.inf
    return found


@jit()
def nearest(
    start: Ints, node: Ints, length: Floats, sources: Ints, scale: Floats, stands: Ints, cost: Floats, count: int
) -> tuple[Ints, Floats]:
    """Return for each source (M,) the facilities u with the least scale_m cost_u + path to u, and these sums.

    Both are (M, count), the facilities as places in ``cost``.

    ``stands`` (N,) is the place of the facility at a node, -1 without one; at least ``count`` must be reached. A
    facility joins the heap as its node is settled, so that facilities leave it in the order of their sums.
    """
    nodes = len(start) - 1
    which, value = np.empty((len(sources), count), np.int64), np.empty((len(sources), count))
    best, touched = np.full(nodes, np.inf), np.empty(nodes, np.int64)
    for m in range(len(sources)):
        best[sources[m]], touched[0], reached, found = 0.0, sources[m], 1, 0
        heap = [(0.0, sources[m])]
        while found < count:
            here, at = heappop(heap)
            if at >= nodes:
                which[m, found], value[m, found] = at - nodes, here
                found += 1
                continue
            if here > best[at]:
                continue
            if stands[at] >= 0:
                heappush(heap, (here + scale[m] * cost[stands[at]], nodes + stands[at]))
            for e in range(start[at], start[at + 1]):
                way, to = here + length[e], node[e]
                if way < best[to]:
                    if best[to] == np.inf:
                        touched[reached] = to
                        reached += 1
                    best[to] = way
                    heappush(heap, (way, to))
        for t in range(reached):
            best[touched[t]] = np.inf
    return which, value
