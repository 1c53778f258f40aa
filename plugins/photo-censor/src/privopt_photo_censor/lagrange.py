"""The bound of the search: how many photos can stay when a set of locations must not fall behind.

For alternates A the kept photos z solve ``max sum z, sum_i z_i d_ij >= 0 (j in A), 0 <= z <= 1``. Its dual is the
Lagrangian of mathematics P5. A dual simplex with bounded variables and long steps finds good multipliers (one row is
added for each alternate, so a child starts from its parent's tableau); what is *used* is never the solver's objective
but the Lagrangian sum evaluated again at the multipliers found, with a rigorous bound on its rounding error, so that
rounding can neither cut an optimum nor prove a false one.

Everything here is compiled by numba and works on one album at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from privopt.arrays import Bools, Floats, Ints
from privopt.execution.compiled import jit

__all__ = [
    "Data",
    "Tableau",
    "above",
    "append_row",
    "clear",
    "dual_simplex",
    "exact_sign",
    "numpy_jit",
    "set_upper",
]

EPS = 2.220446049250313e-16
FEASIBLE = 1e-9
PIVOT = 1e-9

numpy_jit = jit(error_model="numpy")
"""Compiled on first use; a division by 0 gives an infinity."""


class Data(NamedTuple):
    """One album, alternates by row: what never changes during a search."""

    scores: Floats  # (m, n) finite scores of the alternates, 0 where `kills`
    true: Floats  # (n,) finite scores of the true location
    theta: float
    diff: Floats  # (m, n) scores - true - theta, rounded; 0 where the score is -inf
    kills: Bools  # (m, n): the score is -inf, so the photo rules the location out
    size: Floats  # (m,) largest |scores| + |true| + |theta| of the row, for rounding errors
    keep: Bools  # (n,): never deleted
    parts: Floats  # (3 n + 4,) scratch of exact sums


class Tableau(NamedTuple):
    """The dual simplex of some alternates: n photos and a slack for each row; in a stack one for each level."""

    T: Floats  # (rows, n + rows)
    basis: Ints  # (rows,) the column that is basic in each row
    basic: Bools  # (n + rows,)
    x: Floats  # (n + rows,) values
    cost: Floats  # (n + rows,) reduced costs
    low: Floats  # (n + rows,) bounds: 0 and 1 of photos that are open
    high: Floats
    rows: Ints  # (rows,) the alternate of each row


@numpy_jit
def exact_sign(score: Floats, true: Floats, theta: float, kept: Bools, parts: Floats) -> int:
    """Sign of ``sum_i kept (score_i - true_i - theta)`` over doubles, exactly.

    Shewchuk's non-overlapping partial sums, the algorithm of :func:`math.fsum`; the sign of an expansion is that of
    its largest part. `parts` is scratch of at least ``3 n + 1`` doubles.
    """
    used = 0
    for i in range(kept.shape[0]):
        if not kept[i]:
            continue
        for which in range(3):
            x = score[i] if which == 0 else (-true[i] if which == 1 else -theta)
            if x == 0.0:
                continue
            filled = 0
            for q in range(used):
                y = parts[q]
                if abs(x) < abs(y):
                    x, y = y, x
                high = x + y
                low = y - (high - x)
                if low != 0.0:
                    parts[filled] = low
                    filled += 1
                x = high
            parts[filled] = x
            used = filled + 1
    for q in range(used - 1, -1, -1):
        if parts[q] > 0.0:
            return 1
        if parts[q] < 0.0:
            return -1
    return 0


@numpy_jit
def above(D: Data, kept: Bools) -> int:
    """Locations that the kept photos leave at or above the true one: the protected k, exactly."""
    m, n = D.diff.shape
    count = 0
    for j in range(m):
        total = 0.0
        dead = False
        for i in range(n):
            if kept[i]:
                if D.kills[j, i]:
                    dead = True
                    break
                total += D.diff[j, i]
        if dead:
            continue
        slack = 4.0 * EPS * n * (n + 2) * D.size[j]
        if total > slack or (total >= -slack and exact_sign(D.scores[j], D.true, D.theta, kept, D.parts) >= 0):
            count += 1
    return count


@numpy_jit
def clear(t: Tableau, n: int) -> None:
    """Start of a tableau without rows: every photo that may stay stays."""
    for i in range(t.x.shape[0]):
        photo = i < n
        if not photo:
            t.low[i] = 0.0
            t.high[i] = np.inf
        t.x[i] = t.high[i] if photo else 0.0
        t.cost[i] = 1.0 if photo else 0.0
        t.basic[i] = False


@numpy_jit
def append_row(t: Tableau, n: int, r: int, diff: Floats) -> None:
    """Add ``sum_i z_i diff_i - s = 0``, s >= 0, as row `r` of the tableau; s becomes basic."""
    width = n + r + 1
    row = t.T[r]
    total = 0.0
    for i in range(n):
        row[i] = -diff[i]
        total += t.x[i] * diff[i]
    for i in range(n, t.T.shape[1]):
        row[i] = 0.0
    row[n + r] = 1.0
    for b in range(r):
        p = t.basis[b]
        if p < n:
            e = row[p]
            if e != 0.0:
                source = t.T[b]
                for i in range(width):
                    row[i] -= e * source[i]
                row[p] = 0.0
        t.T[b, n + r] = 0.0
    t.basis[r] = n + r
    t.basic[n + r] = True
    t.x[n + r] = total
    t.cost[n + r] = 0.0


@numpy_jit
def _move(t: Tableau, r: int, i: int, step: float) -> None:
    """Move a column that is not basic; the basic ones follow."""
    t.x[i] += step
    for b in range(r):
        t.x[t.basis[b]] -= t.T[b, i] * step


@numpy_jit
def set_upper(t: Tableau, r: int, i: int, value: float) -> None:
    """Fix photo `i` at `value` (0 deleted, 1 kept); a non-basic photo moves at once, a basic one when it leaves."""
    t.low[i] = value
    t.high[i] = value
    if not t.basic[i] and t.x[i] != value:
        _move(t, r, i, value - t.x[i])
        t.x[i] = value


@numpy_jit
def _lagrangian(t: Tableau, D: Data, r: int, ray: Floats, step: float) -> float:
    """Rigorous upper bound on the photos that can stay, at multipliers ``max(0, -cost_slack + step ray)``.

    The sum of mathematics P5 with what its evaluation and the rounded differences may be wrong by added.
    """
    n = D.diff.shape[1]
    weight = 1.0
    total = 0.0
    lam = np.empty(r)
    for a in range(r):
        lam[a] = max(0.0, -t.cost[n + a] + step * ray[a])
        weight += lam[a] * D.size[t.rows[a]]
    for i in range(n):
        if t.high[i] == 0.0:
            continue
        w = 1.0
        for a in range(r):
            w += lam[a] * D.diff[t.rows[a], i]
        if t.low[i] == 1.0 or w > 0.0:
            total += w
    bound: float = total + 8.0 * EPS * (n + r + 8) * n * weight
    return bound


@numpy_jit
def _leaving(t: Tableau, r: int) -> tuple[int, float, bool]:
    """Row most out of its bounds, by how much, and whether it must rise."""
    worst = FEASIBLE
    row = -1
    rise = False
    for b in range(r):
        p = t.basis[b]
        if t.low[p] - t.x[p] > worst:
            worst = t.low[p] - t.x[p]
            row = b
            rise = True
        if t.x[p] - t.high[p] > worst:
            worst = t.x[p] - t.high[p]
            row = b
            rise = False
    return row, worst, rise


@numpy_jit
def _entering(t: Tableau, r: int, row: int, gap: float, rise: bool) -> int:
    """Long-step ratio test: candidates in order of ratio flip their bound until the row's gap would close.

    Returns:
        the column that enters; -1 where none closes the gap.
    """
    width = t.basic.shape[0] - t.T.shape[0] + r
    sign = 1.0 if rise else -1.0
    while True:
        best = np.inf
        q = -1
        size = 0.0
        for j in range(width):
            if t.basic[j] or t.low[j] == t.high[j]:
                continue
            alpha = sign * t.T[row, j]
            if (alpha > PIVOT and t.x[j] == t.high[j]) or (alpha < -PIVOT and t.x[j] == t.low[j]):
                ratio = abs(t.cost[j]) / abs(alpha)
                if ratio < best - 1e-13 or (ratio <= best + 1e-13 and abs(alpha) > size):
                    best = min(ratio, best)
                    q = j
                    size = abs(alpha)
        if q < 0:
            return -1
        span = t.high[q] - t.low[q]
        if size * span >= gap:
            return q
        gap -= size * span
        _move(t, r, q, t.low[q] - t.x[q] if t.x[q] == t.high[q] else t.high[q] - t.x[q])


@numpy_jit
def _pivot(t: Tableau, n: int, r: int, row: int, q: int, bound: float) -> None:
    """Column `q` enters the basis; the one of `row` leaves at its bound."""
    width = n + r
    p = t.basis[row]
    pivot = t.T[row, q]
    move = (t.x[p] - bound) / pivot
    for b in range(r):
        if b != row:
            t.x[t.basis[b]] -= t.T[b, q] * move
    t.x[q] += move
    t.x[p] = bound
    target = t.T[row]
    for j in range(width):
        target[j] /= pivot
    for b in range(r):
        e = t.T[b, q]
        if b != row and e != 0.0:
            other = t.T[b]
            for j in range(width):
                other[j] -= e * target[j]
            other[q] = 0.0
    e = t.cost[q]
    for j in range(width):
        t.cost[j] -= e * target[j]
    t.cost[q] = 0.0
    target[q] = 1.0
    t.basic[p] = False
    t.basic[q] = True
    t.basis[row] = q


@numpy_jit
def dual_simplex(t: Tableau, D: Data, r: int, need: int) -> float:
    """Upper bound on the photos that can stay beside the first `r` rows; it stops once that is proved below `need`.

    Returns:
        the rigorous bound, not yet rounded down.
    """
    n = D.diff.shape[1]
    ray = np.zeros(r)
    for _turn in range(40 + 8 * r):
        row, gap, rise = _leaving(t, r)
        if row < 0:
            break
        q = _entering(t, r, row, gap, rise)
        if q < 0:
            sign = 1.0 if rise else -1.0
            for a in range(r):
                ray[a] = sign * t.T[row, n + a]
            return _along(t, D, r, ray, need)
        p = t.basis[row]
        _pivot(t, n, r, row, q, t.low[p] if rise else t.high[p])
        value = 0.0
        for i in range(n):
            value += t.x[i]
        if value < need - 1e-6:
            bound = _lagrangian(t, D, r, ray, 0.0)
            if bound < need:
                return bound
    return _lagrangian(t, D, r, ray, 0.0)


@numpy_jit
def _along(t: Tableau, D: Data, r: int, ray: Floats, need: int) -> float:
    """Bound of a set that no photos satisfy: the Lagrangian falls along `ray` until it proves so."""
    best = _lagrangian(t, D, r, ray, 0.0)
    step = 1.0
    for _turn in range(60):
        best = min(best, _lagrangian(t, D, r, ray, step))
        if best < need:
            break
        step *= 2.0
    return best
