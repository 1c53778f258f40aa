"""Branch and bound over sets of alternates (mathematics P5), compiled.

A node is a set A of locations that must not fall behind the true one, with the candidates R that may still join it.
Its children add one candidate each, the one with the lowest bound first and with all later ones as its candidates, so
that the children with many candidates die soon. A full set of k alternates is a 0/1 program of k rows, solved exactly
by branching on photos; every set of kept photos is accepted by the exact rank alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from privopt_photo_censor.lagrange import above, append_row, clear, dual_simplex, jit, set_upper

__all__ = ["Data", "Goal", "Stack", "beam", "open_bound", "open_most", "run", "start"]

KEPT, PROTECTED, SOLVED, RESTART = 0, 1, 2, 3
WHOLE = 1e-6


class Data(NamedTuple):
    """One album, alternates by row: what never changes during a search."""

    scores: Any  # (m, n) finite scores of the alternates
    true: Any  # (n,) scores of the true location
    theta: float
    diff: Any  # (m, n) scores - true - theta, rounded; 0 where the score is -inf
    kills: Any  # (m, n) bool: the score is -inf, so the photo rules the location out
    size: Any  # (m,) scale of the row, for rounding errors
    keep: Any  # (n,) bool: never deleted
    parts: Any  # scratch of exact sums


class Goal(NamedTuple):
    """What is asked and what has been found; arrays, because they change.

    ``state``: [k wanted, photos that must stay, best kept, best protected k, programs solved, improvements,
    whether a leaf was too deep for the stack, so that nothing is proved].
    """

    state: Any
    best: Any  # (n,) bool, the photos kept by the best set so far
    budget: bool  # maximise the protected k with `state[1]` fixed, instead of the photos kept with `state[0]` fixed


class Stack(NamedTuple):
    """The open nodes of one depth-first search; level r holds sets of r alternates."""

    T: Any  # (levels, rows, n + rows)
    basis: Any
    basic: Any
    x: Any
    cost: Any
    low: Any
    high: Any
    rows: Any  # (levels, rows): the alternates of each level
    cand: Any  # (levels, m)
    bound: Any  # (levels, m)
    length: Any
    place: Any
    depth: Any  # [current level]


@jit
def _copy(S: Stack, a: int, b: int, r: int) -> None:
    for row in range(r):
        S.T[b, row, :] = S.T[a, row, :]
        S.basis[b, row] = S.basis[a, row]
        S.rows[b, row] = S.rows[a, row]
    S.basic[b, :] = S.basic[a, :]
    S.x[b, :] = S.x[a, :]
    S.cost[b, :] = S.cost[a, :]
    S.low[b, :] = S.low[a, :]
    S.high[b, :] = S.high[a, :]


@jit
def _solve(D: Data, S: Stack, v: int, r: int, need: int) -> float:
    return dual_simplex(
        S.T[v], S.basis[v], S.basic[v], S.x[v], S.cost[v], S.low[v], S.high[v], S.rows[v], D.diff, D.size, r, need
    )


@jit
def _join(D: Data, S: Stack, v: int, r: int, j: int, need: int) -> float:
    """Add alternate `j` as row r of level v, and bound."""
    n = D.diff.shape[1]
    for i in range(n):
        if D.kills[j, i] and S.high[v, i] > 0.0:
            if S.low[v, i] == 1.0:
                return -1.0
            set_upper(S.T[v], S.basis[v], S.basic[v], S.x[v], S.low[v], S.high[v], r, i, 0.0)
    append_row(S.T[v], S.basis[v], S.basic[v], S.x[v], S.cost[v], n, r, D.diff[j])
    S.rows[v, r] = j
    return _solve(D, S, v, r + 1, need)


@jit
def _accept(D: Data, G: Goal, kept: Any) -> bool:
    """Take `kept` if it is better than the best, by its exact rank."""
    total = 0
    for i in range(kept.shape[0]):
        if kept[i]:
            total += 1
    if total < G.state[1]:
        return False
    count = above(D.scores, D.true, D.theta, D.diff, D.kills, D.size, kept, D.parts)
    if count < G.state[0]:
        return False
    G.best[:] = kept
    G.state[2] = total
    G.state[3] = count
    G.state[5] += 1
    if G.budget:
        G.state[0] = count + 1
    else:
        G.state[1] = total + 1
    return True


@jit
def _leaf(D: Data, G: Goal, S: Stack, v: int, r: int) -> None:
    """Solve the 0/1 program of the r alternates of level v: branch on photos until the bound is below the need."""
    n = D.diff.shape[1]
    kept = np.zeros(n, np.bool_)
    goal = G.state[0]
    top = v
    chosen = np.empty(S.T.shape[0], np.int64)
    chosen[v] = -2
    while top >= v:
        if chosen[top] == -2:
            pick = -1
            worst = WHOLE
            for i in range(n):
                f = min(S.x[top, i] - np.floor(S.x[top, i]), np.ceil(S.x[top, i]) - S.x[top, i])
                if f > worst:
                    worst = f
                    pick = i
            if pick < 0:
                for i in range(n):
                    kept[i] = S.x[top, i] > 0.5
                if _accept(D, G, kept):
                    if G.budget:
                        return
                    top -= 1
                    continue
                near = np.inf
                for i in range(n):
                    if S.low[top, i] != S.high[top, i] and abs(S.cost[top, i]) < near:
                        near = abs(S.cost[top, i])
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
        if top + 1 >= S.T.shape[0]:
            G.state[6] = 1
            continue
        _copy(S, top, top + 1, r)
        set_upper(
            S.T[top + 1], S.basis[top + 1], S.basic[top + 1], S.x[top + 1], S.low[top + 1], S.high[top + 1], r, pick, value
        )
        G.state[4] += 1
        if _solve(D, S, top + 1, r, G.state[1]) >= G.state[1] and G.state[0] == goal:
            top += 1
            chosen[top] = -2


@jit
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


@jit
def start(D: Data, G: Goal, S: Stack, reach: Any) -> None:
    """Open the root: candidates are the locations that alone let enough photos stay (`reach` = K_j of P3)."""
    n = D.diff.shape[1]
    for i in range(n):
        S.low[0, i] = 1.0 if D.keep[i] else 0.0
        S.high[0, i] = 1.0
    clear(S.x[0], S.cost[0], S.basic[0], S.low[0], S.high[0], n)
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


@jit
def _expand(D: Data, G: Goal, S: Stack, r: int, source: int, begin: int, scratch: int) -> None:
    """Candidates of level r from those of level `source` on from `begin`, each with its bound beside the set of level r."""
    count = 0
    total = S.length[source]
    wanted = G.state[0] - r
    for e in range(begin, total):
        if count + total - e < wanted:
            break
        if S.bound[source, e] < G.state[1]:
            continue
        j = S.cand[source, e]
        _copy(S, r, scratch, r)
        G.state[4] += 1
        bound = min(_join(D, S, scratch, r, j, G.state[1]), S.bound[source, e])
        if bound >= G.state[1]:
            S.cand[r, count] = j
            S.bound[r, count] = bound
            count += 1
    if count < wanted:
        count = 0
    _sort(S.cand[r], S.bound[r], count)
    S.length[r] = count
    S.place[r] = 0


@jit
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
        _copy(S, r, r + 1, r)
        G.state[4] += 1
        if _join(D, S, r + 1, r, j, G.state[1]) < G.state[1]:
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


@jit
def open_bound(G: Goal, S: Stack) -> float:
    """The most photos that any open node could still keep (top-k task)."""
    best = float(G.state[2])
    for r in range(S.depth[0] + 1):
        e = S.length[r] - (G.state[0] - r)
        if e >= S.place[r] and e < S.length[r]:
            best = max(best, np.floor(S.bound[r, e]))
    return best


@jit
def open_most(S: Stack) -> int:
    """The most alternates that any open node could still gather (budget task)."""
    most = 0
    for r in range(S.depth[0] + 1):
        most = max(most, r + S.length[r] - S.place[r])
    return most


@jit
def beam(D: Data, G: Goal, S: Stack, width: int) -> None:
    """Incumbents: `width` sets of alternates grown side by side from the root's candidates by their bounds."""
    k = G.state[0]
    total = S.length[0]
    sets = np.empty((width, k), np.int64)
    fresh = np.empty((width, k), np.int64)
    value = np.empty(width)
    parent = np.empty(width, np.int64)
    new = np.empty(width, np.int64)
    live = 1
    scratch = k + 1
    kept = np.empty(D.diff.shape[1], np.bool_)
    for r in range(k):
        filled = 0
        for b in range(live):
            _copy(S, 0, 1, 0)
            for a in range(r):
                _join(D, S, 1, a, sets[b, a], 0)
            for e in range(total - 1, -1, -1):
                j = S.cand[0, e]
                if filled == width and S.bound[0, e] <= value[filled - 1]:
                    break
                member = False
                for a in range(r):
                    member |= sets[b, a] == j
                if member:
                    continue
                _copy(S, 1, scratch, r)
                need = G.state[1] if filled < width else max(G.state[1], int(value[filled - 1]))
                G.state[4] += 1
                bound = _join(D, S, scratch, r, j, need)
                if bound < need or (filled == width and bound <= value[filled - 1]):
                    continue
                twin = False
                for f in range(filled):
                    if abs(value[f] - bound) < 1e-9:
                        twin = True
                        if new[f] != j:
                            found = False
                            for a in range(r):
                                found |= sets[parent[f], a] == j
                            twin = found
                        if twin:
                            break
                if twin:
                    continue
                f = filled if filled < width else width - 1
                filled = min(filled + 1, width)
                while f > 0 and value[f - 1] < bound:
                    value[f] = value[f - 1]
                    parent[f] = parent[f - 1]
                    new[f] = new[f - 1]
                    f -= 1
                value[f] = bound
                parent[f] = b
                new[f] = j
        if filled == 0:
            return
        for f in range(filled):
            fresh[f, :r] = sets[parent[f], :r]
            fresh[f, r] = new[f]
        live = filled
        sets[:live] = fresh[:live]
    for b in range(live):
        _copy(S, 0, 1, 0)
        bound = 0.0
        for a in range(k):
            bound = _join(D, S, 1, a, sets[b, a], 0)
        for i in range(kept.shape[0]):
            kept[i] = S.x[1, i] > 0.5
        if bound >= G.state[1]:
            _copy(S, 1, k, k)
            _leaf(D, G, S, k, k)
            if G.state[0] != k:
                return
