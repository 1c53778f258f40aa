"""Branch and bound over sets of alternates (mathematics P5), compiled.

A node is a set A of locations that must not fall behind the true one, with the candidates R that may still join it.
Its children add one candidate each, the one with the lowest bound first and with all later ones as its candidates, so
that the children with many candidates die soon. A full set of k alternates is a 0/1 program of k rows, solved exactly
by branching on photos; every set of kept photos is accepted by the exact rank alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privopt_photo_censor.lagrange import Data, Tableau, above, append_row, clear, dual_simplex, numpy_jit, set_upper

__all__ = [
    "Goal",
    "Stack",
    "copy",
    "extend",
    "finish",
    "join",
    "level",
    "open_bound",
    "open_most",
    "run",
    "stack_of",
    "start",
]

KEPT, SOLVED, RESTART = 0, 1, 2
WHOLE = 1e-6


class Goal(NamedTuple):
    """What is asked and what has been found; arrays, because they change.

    ``state``: [k wanted, photos that must stay, best kept, best protected k, programs solved, improvements,
    what became of the leaves: 0 all closed, 1 one was left open after `state[7]` programs, 2 one was too deep for the
    stack (then nothing is proved), programs that a leaf may take].
    """

    state: Any
    best: Any  # (n,) bool, the photos kept by the best set so far
    budget: bool  # maximise the protected k with `state[1]` fixed, instead of the photos kept with `state[0]` fixed


class Stack(NamedTuple):
    """The open nodes of one depth-first search; level r holds sets of r alternates."""

    tableau: Tableau  # each array with a leading axis of levels
    cand: Any  # (rows, m)
    bound: Any  # (rows, m)
    length: Any
    place: Any
    depth: Any  # [current level]


def stack_of(photos: int, alternates: int, k: int, levels: int) -> Stack:
    """An empty stack for sets of k alternates, of so many levels."""
    rows = k + 2
    wide, whole = (levels, photos + rows), (levels, rows)
    tableau = Tableau(
        np.zeros((levels, rows, photos + rows)), np.zeros(whole, np.int64), np.zeros(wide, np.bool_),
        np.zeros(wide), np.zeros(wide), np.zeros(wide), np.zeros(wide), np.zeros(whole, np.int64),
    )  # fmt: skip
    return Stack(
        tableau, np.zeros((rows, alternates), np.int64), np.zeros((rows, alternates)), np.zeros(rows, np.int64),
        np.zeros(rows, np.int64), np.zeros(1, np.int64),
    )  # fmt: skip


@numpy_jit
def level(S: Stack, v: int) -> Tableau:
    """The tableau of one level."""
    t = S.tableau
    return Tableau(t.T[v], t.basis[v], t.basic[v], t.x[v], t.cost[v], t.low[v], t.high[v], t.rows[v])


@numpy_jit
def copy(S: Stack, a: int, b: int, r: int) -> None:
    """Copy the tableau of level a with its r rows to level b (loops: slices compile to ten times the code)."""
    if a == b:
        return
    t = S.tableau
    width = t.T.shape[2]
    for row in range(r):
        for i in range(width):
            t.T[b, row, i] = t.T[a, row, i]
        t.basis[b, row] = t.basis[a, row]
        t.rows[b, row] = t.rows[a, row]
    for i in range(width):
        t.basic[b, i] = t.basic[a, i]
        t.x[b, i] = t.x[a, i]
        t.cost[b, i] = t.cost[a, i]
        t.low[b, i] = t.low[a, i]
        t.high[b, i] = t.high[a, i]


@numpy_jit
def join(D: Data, S: Stack, v: int, r: int, j: int, need: int) -> float:
    """Add alternate `j` as row r of level v, and bound."""
    t = level(S, v)
    n = D.diff.shape[1]
    for i in range(n):
        if D.kills[j, i] and t.high[i] > 0.0:
            if t.low[i] == 1.0:
                return -1.0
            set_upper(t, r, i, 0.0)
    append_row(t, n, r, D.diff[j])
    t.rows[r] = j
    return dual_simplex(t, D, r + 1, need)


@numpy_jit
def _accept(D: Data, G: Goal, kept: Any) -> bool:
    """Take `kept` if it is better than the best, by its exact rank."""
    total = 0
    for i in range(kept.shape[0]):
        if kept[i]:
            total += 1
    if total < G.state[1]:
        return False
    count = above(D, kept)
    if count < G.state[0]:
        return False
    for i in range(kept.shape[0]):
        G.best[i] = kept[i]
    G.state[2] = total
    G.state[3] = count
    G.state[5] += 1
    if G.budget:
        G.state[0] = count + 1
    else:
        G.state[1] = total + 1
    return True


@numpy_jit
def _leaf(D: Data, G: Goal, S: Stack, v: int, r: int) -> None:
    """Solve the 0/1 program of the r alternates of level v: branch on photos until the bound is below the need."""
    n = D.diff.shape[1]
    kept = np.zeros(n, np.bool_)
    goal = G.state[0]
    stop = G.state[4] + G.state[7]
    top = v
    chosen = np.empty(S.tableau.T.shape[0], np.int64)
    chosen[v] = -2
    while top >= v:
        if G.state[4] > stop:
            G.state[6] = max(G.state[6], np.int64(1))
            return
        if chosen[top] == -2:
            t = level(S, top)
            pick = -1
            worst = WHOLE
            for i in range(n):
                f = min(t.x[i] - np.floor(t.x[i]), np.ceil(t.x[i]) - t.x[i])
                if f > worst:
                    worst = f
                    pick = i
            if pick < 0:
                for i in range(n):
                    kept[i] = t.x[i] > 0.5
                if _accept(D, G, kept):
                    if G.budget:
                        return
                    top -= 1
                    continue
                near = np.inf
                for i in range(n):
                    if t.low[i] != t.high[i] and abs(t.cost[i]) < near:
                        near = abs(t.cost[i])
                        pick = i
                if pick < 0:
                    top -= 1
                    continue
            chosen[top] = pick
            value = 1.0
        elif chosen[top] >= 0:
            pick = chosen[top]
            chosen[top] = -1
            value = 0.0
        else:
            top -= 1
            continue
        if top + 1 >= S.tableau.T.shape[0]:
            G.state[6] = 2
            continue
        copy(S, top, top + 1, r)
        below = level(S, top + 1)
        set_upper(below, r, pick, value)
        G.state[4] += 1
        if dual_simplex(below, D, r, G.state[1]) >= G.state[1] and G.state[0] == goal:
            top += 1
            chosen[top] = -2


@numpy_jit
def _sort(cand: Any, bound: Any, count: int) -> None:
    """Ascending by bound (insertion sort of what is nearly sorted)."""
    for a in range(1, count):
        c, b = cand[a], bound[a]
        e = a - 1
        while e >= 0 and bound[e] > b:
            cand[e + 1] = cand[e]
            bound[e + 1] = bound[e]
            e -= 1
        cand[e + 1] = c
        bound[e + 1] = b


@numpy_jit
def start(D: Data, G: Goal, S: Stack, reach: NDArray[Any]) -> None:
    """Open the root: candidates are the locations that alone let enough photos stay (`reach` = K_j of P3)."""
    root = level(S, 0)
    n = D.diff.shape[1]
    for i in range(n):
        root.low[i] = 1.0 if D.keep[i] else 0.0
        root.high[i] = 1.0
    clear(root, n)
    count = 0
    for j in range(D.diff.shape[0]):
        if reach[j] >= G.state[1] and reach[j] >= 0:
            S.cand[0, count] = j
            S.bound[0, count] = reach[j]
            count += 1
    _sort(S.cand[0], S.bound[0], count)
    S.length[0] = count
    S.place[0] = 0
    S.depth[0] = 0


@numpy_jit
def _expand(D: Data, G: Goal, S: Stack, r: int, source: int, begin: int, scratch: int) -> None:
    """Candidates of level r: those of level `source` from `begin` on whose bound beside the set of level r will do."""
    count = 0
    total = S.length[source]
    wanted = G.state[0] - r
    for e in range(begin, total):
        if count + total - e < wanted:
            break
        if S.bound[source, e] < G.state[1]:
            continue
        j = S.cand[source, e]
        copy(S, r, scratch, r)
        G.state[4] += 1
        bound = min(join(D, S, scratch, r, j, G.state[1]), S.bound[source, e])
        if bound >= G.state[1]:
            S.cand[r, count] = j
            S.bound[r, count] = bound
            count += 1
    if count < wanted:
        count = 0
    _sort(S.cand[r], S.bound[r], count)
    S.length[r] = count
    S.place[r] = 0


@numpy_jit
def run(D: Data, G: Goal, S: Stack, programs: int) -> int:
    """Go on with the search for about `programs` bounds.

    Returns:
        SOLVED when nothing is open; RESTART when a budget search found a better k (open it again); else KEPT.
    """
    stop = G.state[4] + programs
    scratch = G.state[0] + 1
    while S.depth[0] >= 0:
        r = S.depth[0]
        if G.state[4] > stop:
            return KEPT
        while S.place[r] < S.length[r] and S.bound[r, S.place[r]] < G.state[1]:
            S.place[r] += 1
        if S.length[r] - S.place[r] < G.state[0] - r:
            S.depth[0] -= 1
            continue
        if r + 1 == G.state[0]:
            S.length[r] -= 1
            j = S.cand[r, S.length[r]]
        else:
            j = S.cand[r, S.place[r]]
            S.place[r] += 1
        copy(S, r, r + 1, r)
        G.state[4] += 1
        if join(D, S, r + 1, r, j, G.state[1]) < G.state[1]:
            continue
        if r + 1 == G.state[0]:
            goal = G.state[0]
            _leaf(D, G, S, r + 1, r + 1)
            if G.state[0] != goal:
                return RESTART
            continue
        _expand(D, G, S, r + 1, r, S.place[r], scratch)
        if S.length[r + 1] > 0:
            S.depth[0] = r + 1
    return SOLVED


@numpy_jit
def open_bound(G: Goal, S: Stack) -> float:
    """The most photos that any open node could still keep (top-k task)."""
    best = float(G.state[2])
    for r in range(S.depth[0] + 1):
        e = S.length[r] - (G.state[0] - r)
        if e >= S.place[r] and e < S.length[r]:
            best = max(best, np.floor(S.bound[r, e]))
    return best


@numpy_jit
def open_most(S: Stack) -> int:
    """The most alternates that any open node could still gather (budget task)."""
    most = 0
    for r in range(S.depth[0] + 1):
        most = max(most, r + S.length[r] - S.place[r])
    return most


@numpy_jit
def _build(D: Data, S: Stack, chosen: Any, v: int) -> float:
    """Put the set `chosen` on level v, from the root."""
    copy(S, v * 0, v, v * 0)
    bound = np.inf
    for a in range(chosen.shape[0]):
        bound = min(bound, join(D, S, v, a, chosen[a], v * 0))
    return bound


@numpy_jit
def extend(D: Data, G: Goal, S: Stack, chosen: NDArray[Any], top: NDArray[Any], out: NDArray[Any]) -> None:
    """Bounds of `chosen` with each of the root's candidates added, where among the best; -1 elsewhere.

    Uses the two levels of the stack above the current one, so it belongs before a search.

    Args:
        top: the best bounds so far, descending; those found join them, and the last is what a candidate must beat.
        out: bounds by candidate.
    """
    v = S.depth[0] + 1
    r = chosen.shape[0]
    _build(D, S, chosen, v)
    last = top.shape[0] - 1
    for e in range(S.length[0] - 1, -1, -1):
        j = S.cand[0, e]
        out[e] = -1.0
        member = False
        for a in range(r):
            member |= chosen[a] == j
        if member or S.bound[0, e] <= top[last]:
            continue
        copy(S, v, v + 1, r)
        G.state[4] += 1
        least: Any = np.int64(top[last])
        bound = join(D, S, v + 1, r, j, least)
        if bound <= top[last]:
            continue
        out[e] = bound
        f = last
        while f > 0 and top[f - 1] < bound:
            top[f] = top[f - 1]
            f -= 1
        top[f] = bound


@numpy_jit
def finish(D: Data, G: Goal, S: Stack, chosen: NDArray[Any]) -> None:
    """Solve the 0/1 program of a full set of alternates."""
    v = S.depth[0] + 1
    if _build(D, S, chosen, v) >= G.state[1]:
        _leaf(D, G, S, v, chosen.shape[0])
