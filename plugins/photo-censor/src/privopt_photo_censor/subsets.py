"""Branch and bound over photos, compiled: the other side of the same problem.

Where few photos are deleted or the album is small there are fewer sets of photos than sets of alternates. A node has
decided on a prefix of the photos; a location is alive while deleting the best of the rest, as many as may still go,
could bring it level. Fewer living locations than are wanted close the node.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from privopt.arrays import Bools, Floats, Ints
from privopt_photo_censor.lagrange import Data, numpy_jit
from privopt_photo_censor.search import KEPT, SOLVED, Goal, _accept

__all__ = ["Walk", "gains", "open_most", "open_walk", "walk"]

HOPELESS = -1e300


class Walk(NamedTuple):
    """One depth-first search over photos in a fixed order (`order`), level p = photos decided.

    ``gain[p, q, j]``: the most that location j can gain by deleting q of the photos order[p:].
    """

    order: Any
    gain: Any  # (n + 1, q + 1, m)
    value: Any  # (n + 1, m): sums with every undecided photo kept
    deleted: Any  # (n + 1,): how many are deleted above this level
    step: Any  # (n,): what this level tries next: 0 delete, 1 keep, 2 done
    active: Any  # locations worth counting
    slack: Any  # (m,) rounding allowance
    depth: Any  # [level]


@numpy_jit
def gains(diff: Floats, keep: Bools, order: Ints, most: int) -> Floats:
    """The table `gain` of :class:`Walk` for at most `most` deletions."""
    m, n = diff.shape
    table = np.zeros((n + 1, most + 1, m))
    best = np.zeros((m, most))
    for p in range(n - 1, -1, -1):
        i = order[p]
        for j in range(m):
            g = -diff[j, i]
            if g > 0.0 and not keep[i]:
                e = most - 1
                if most > 0 and g > best[j, e]:
                    while e > 0 and best[j, e - 1] < g:
                        best[j, e] = best[j, e - 1]
                        e -= 1
                    best[j, e] = g
            total = 0.0
            for q in range(most):
                total += best[j, q]
                table[p, q + 1, j] = total
    return table


@numpy_jit
def open_walk(D: Data, W: Walk) -> None:
    """Put the search at its root."""
    for a in range(W.active.shape[0]):
        j = W.active[a]
        total = 0.0
        for i in range(D.diff.shape[1]):
            total += D.diff[j, i]
        W.value[0, a] = total
    W.deleted[0] = 0
    W.step[0] = 0
    W.depth[0] = 0


@numpy_jit
def _alive(W: Walk, p: int, q: int, wanted: int) -> bool:
    count = 0
    table = W.gain[p, q]
    row = W.value[p]
    total = W.active.shape[0]
    for a in range(total):
        if row[a] + table[a] >= -W.slack[a]:
            count += 1
    return count >= wanted


@numpy_jit
def _level(D: Data, G: Goal, W: Walk, p: int, kept: Any) -> bool:
    """Try the set that keeps every undecided photo of level p."""
    count = 0
    for a in range(W.active.shape[0]):
        if W.value[p, a] >= -W.slack[a]:
            count += 1
    if count < G.state[0]:
        return False
    for i in range(kept.shape[0]):
        kept[i] = True
    for e in range(p):
        if W.deleted[e + 1] > W.deleted[e]:
            kept[W.order[e]] = False
    return _accept(D, G, kept)


@numpy_jit
def walk(D: Data, G: Goal, W: Walk, nodes: int) -> int:
    """Go on for about `nodes` nodes. Returns SOLVED when nothing is open, else KEPT (call again)."""
    n = D.diff.shape[1]
    kept = np.empty(n, np.bool_)
    total = W.active.shape[0]
    done = 0
    if W.depth[0] == 0 and W.step[0] == 0:
        _level(D, G, W, W.depth[0], kept)
    while W.depth[0] >= 0:
        if done > nodes:
            return KEPT
        p = W.depth[0]
        if p == n or W.step[p] == 2:
            W.depth[0] -= 1
            continue
        i = W.order[p]
        left = n - G.state[1] - W.deleted[p]
        choice = W.step[p]
        W.step[p] += 1
        if left < 0 or (choice == 0 and (D.keep[i] or left == 0)):
            continue
        if choice == 1 and left == 0:
            continue
        done += 1
        if choice == 0:
            W.deleted[p + 1] = W.deleted[p] + 1
            for a in range(total):
                W.value[p + 1, a] = W.value[p, a] - D.diff[W.active[a], i]
            left -= 1
            _level(D, G, W, p + 1, kept)
            left = n - G.state[1] - W.deleted[p + 1]
            if left < 0:
                continue
        else:
            W.deleted[p + 1] = W.deleted[p]
            for a in range(total):
                W.value[p + 1, a] = HOPELESS if D.kills[W.active[a], i] else W.value[p, a]
        if p + 1 < n and _alive(W, p + 1, left, G.state[0]):
            W.step[p + 1] = 0
            W.depth[0] = p + 1
    return SOLVED


@numpy_jit
def open_most(D: Data, G: Goal, W: Walk) -> int:
    """The most locations alive at any open node: no set that is left can leave more at or above the true one."""
    n = D.diff.shape[1]
    most = 0
    for p in range(min(W.depth[0] + 1, n)):
        if W.step[p] == 2:
            continue
        left = n - G.state[1] - W.deleted[p]
        if left < 0:
            continue
        count = 0
        for a in range(W.active.shape[0]):
            if W.value[p, a] + W.gain[p, left, a] >= -W.slack[a]:
                count += 1
        most = max(most, count)
    return most
