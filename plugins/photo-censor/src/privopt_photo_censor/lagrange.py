"""The bound of the search: how many photos can stay when a set of locations must not fall behind.

For alternates A the kept photos z solve ``max sum z, sum_i z_i d_ij >= 0 (j in A), 0 <= z <= 1``. Its dual is the
Lagrangian of mathematics P5. A dual simplex with bounded variables and long steps finds good multipliers (one row is
added for each alternate, so a child starts from its parent's tableau); what is *used* is never the solver's objective
but the Lagrangian sum evaluated again at the multipliers found, with a rigorous bound on its rounding error, so that
rounding can neither cut an optimum nor prove a false one.

Everything here is compiled by numba and works on one album at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from privopt.arrays import Bools, Floats

__all__ = ["above", "append_row", "clear", "dual_simplex", "exact_sign", "jit", "lagrangian", "set_upper"]

EPS = 2.220446049250313e-16
FEASIBLE = 1e-9
PIVOT = 1e-9

F = TypeVar("F", bound=Callable[..., Any])


def jit(
    function: F,
) -> F:
    """Compile on first use and keep the code beside the module (numba)."""
    compiled: F = numba.njit(cache=True, error_model="numpy")(function)
    return compiled


@jit
def exact_sign(
    score: Floats,
    true: Floats,
    theta: float,
    kept: Bools,
    parts: Floats,
) -> int:
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


@jit
def above(
    scores: Floats,
    true: Floats,
    theta: float,
    diff: Floats,
    kills: Bools,
    size: Floats,
    kept: Bools,
    parts: Floats,
) -> int:
    """Locations that the kept photos leave at or above the true one: the protected k, exactly.

    Args:
        scores: (m, n) scores of the alternates, finite (0 where `kills`).
        true: (n,) finite scores of the true location.
        theta: margin.
        diff: (m, n) the rounded differences ``scores - true - theta``.
        kills: (m, n) where the score is -inf.
        size: (m,) largest ``|scores| + |true| + |theta|`` in each row, for the rounding error.
        kept: (n,) bool.
        parts: scratch of ``3 n + 1`` doubles.
    """
    m, n = diff.shape
    count = 0
    for j in range(m):
        total = 0.0
        dead = False
        for i in range(n):
            if kept[i]:
                if kills[j, i]:
                    dead = True
                    break
                total += diff[j, i]
        if dead:
            continue
        slack = 4.0 * EPS * n * (n + 2) * size[j]
        if total > slack or (total >= -slack and exact_sign(scores[j], true, theta, kept, parts) >= 0):
            count += 1
    return count


@jit
def clear(
    x: Floats,
    cost: Floats,
    basic: NDArray[Any],
    low: Floats,
    high: Floats,
    n: int,
) -> None:
    """Start of a tableau without rows: every photo that may stay stays."""
    for i in range(n):
        x[i] = high[i]
        cost[i] = 1.0
        basic[i] = False
    for i in range(n, x.shape[0]):
        x[i] = 0.0
        cost[i] = 0.0
        basic[i] = False
        low[i] = 0.0
        high[i] = np.inf


@jit
def append_row(
    T: Floats,
    basis: NDArray[Any],
    basic: NDArray[Any],
    x: Floats,
    cost: Floats,
    n: int,
    r: int,
    diff: Floats,
) -> None:
    """Add ``sum_i z_i diff_i - s = 0``, s >= 0, as row `r` of the tableau; s becomes basic."""
    width = n + r + 1
    row = T[r]
    total = 0.0
    for i in range(n):
        row[i] = -diff[i]
        total += x[i] * diff[i]
    for i in range(n, T.shape[1]):
        row[i] = 0.0
    row[n + r] = 1.0
    for b in range(r):
        p = basis[b]
        if p < n:
            e = row[p]
            if e != 0.0:
                source = T[b]
                for i in range(width):
                    row[i] -= e * source[i]
                row[p] = 0.0
        T[b, n + r] = 0.0
    basis[r] = n + r
    basic[n + r] = True
    x[n + r] = total
    cost[n + r] = 0.0


@jit
def set_upper(
    T: Floats,
    basis: NDArray[Any],
    basic: NDArray[Any],
    x: Floats,
    low: Floats,
    high: Floats,
    r: int,
    i: int,
    value: float,
) -> None:
    """Fix photo `i` at `value` (0 deleted, 1 kept); a non-basic photo moves at once, a basic one when it leaves."""
    low[i] = value
    high[i] = value
    if not basic[i] and x[i] != value:
        move = value - x[i]
        x[i] = value
        for b in range(r):
            x[basis[b]] -= T[b, i] * move


@jit
def lagrangian(
    cost: Floats,
    ray: Floats,
    step: float,
    rows: NDArray[Any],
    diff: Floats,
    size: Floats,
    low: Floats,
    high: Floats,
    r: int,
) -> float:
    """Rigorous upper bound on the photos that can stay, at multipliers ``max(0, -cost_slack + step ray)``.

    The sum of mathematics P5 with what its evaluation and the rounded differences may be wrong by added.
    """
    n = diff.shape[1]
    weight = 1.0
    total = 0.0
    lam = np.empty(r)
    for a in range(r):
        lam[a] = max(0.0, -cost[n + a] + step * ray[a])
        weight += lam[a] * size[rows[a]]
    for i in range(n):
        if high[i] == 0.0:
            continue
        w = 1.0
        for a in range(r):
            w += lam[a] * diff[rows[a], i]
        if low[i] == 1.0 or w > 0.0:
            total += w
    bound: float = total + 8.0 * EPS * (n + r + 8) * n * weight
    return bound


@jit
def _leaving(
    basis: NDArray[Any],
    x: Floats,
    low: Floats,
    high: Floats,
    r: int,
) -> tuple[int, float, bool]:
    """Row most out of its bounds, by how much, and whether it must rise."""
    worst = FEASIBLE
    row = -1
    rise = False
    for b in range(r):
        p = basis[b]
        if low[p] - x[p] > worst:
            worst = low[p] - x[p]
            row = b
            rise = True
        if x[p] - high[p] > worst:
            worst = x[p] - high[p]
            row = b
            rise = False
    return row, worst, rise


@jit
def _entering(
    T: Floats,
    basis: NDArray[Any],
    basic: NDArray[Any],
    x: Floats,
    cost: Floats,
    low: Floats,
    high: Floats,
    r: int,
    row: int,
    gap: float,
    rise: bool,
) -> int:
    """Long-step ratio test: candidates in order of ratio flip their bound until the row's gap would close.

    Returns:
        the column that enters; -1 where none closes the gap.
    """
    width = basic.shape[0] - T.shape[0] + r
    sign = 1.0 if rise else -1.0
    while True:
        best = np.inf
        q = -1
        size = 0.0
        for j in range(width):
            if basic[j] or low[j] == high[j]:
                continue
            alpha = sign * T[row, j]
            if (alpha > PIVOT and x[j] == high[j]) or (alpha < -PIVOT and x[j] == low[j]):
                ratio = abs(cost[j]) / abs(alpha)
                if ratio < best - 1e-13 or (ratio <= best + 1e-13 and abs(alpha) > size):
                    best = min(ratio, best)
                    q = j
                    size = abs(alpha)
        if q < 0:
            return -1
        span = high[q] - low[q]
        if size * span >= gap:
            return q
        gap -= size * span
        move = low[q] - x[q] if x[q] == high[q] else high[q] - x[q]
        x[q] += move
        for b in range(r):
            x[basis[b]] -= T[b, q] * move


@jit
def dual_simplex(
    T: Floats,
    basis: NDArray[Any],
    basic: NDArray[Any],
    x: Floats,
    cost: Floats,
    low: Floats,
    high: Floats,
    rows: NDArray[Any],
    diff: Floats,
    size: Floats,
    r: int,
    need: int,
) -> float:
    """Upper bound on the photos that can stay; stops as soon as it is proved below `need`.

    Args:
        T: tableau, (rows, photos + slacks); basis, basic, x, cost: its basis, membership, values and reduced costs.
        low, high: bounds of photos (0/1) and slacks.
        rows: location of each of the `r` rows.
        diff: (m, n) differences; size: (m,) their scale.
        need: photos that must stay for the node to be of use.

    Returns:
        the rigorous bound, not yet rounded down.
    """
    n = diff.shape[1]
    width = n + r
    ray = np.zeros(r)
    for _turn in range(40 + 8 * r):
        row, gap, rise = _leaving(basis, x, low, high, r)
        if row < 0:
            break
        q = _entering(T, basis, basic, x, cost, low, high, r, row, gap, rise)
        if q < 0:
            sign = 1.0 if rise else -1.0
            for a in range(r):
                ray[a] = sign * T[row, n + a]
            return _along(cost, ray, rows, diff, size, low, high, r, need)
        p = basis[row]
        bound = low[p] if rise else high[p]
        pivot = T[row, q]
        move = (x[p] - bound) / pivot
        for b in range(r):
            if b != row:
                x[basis[b]] -= T[b, q] * move
        x[q] += move
        x[p] = bound
        target = T[row]
        for j in range(width):
            target[j] /= pivot
        for b in range(r):
            if b != row:
                e = T[b, q]
                if e != 0.0:
                    other = T[b]
                    for j in range(width):
                        other[j] -= e * target[j]
                    other[q] = 0.0
        e = cost[q]
        for j in range(width):
            cost[j] -= e * target[j]
        cost[q] = 0.0
        target[q] = 1.0
        basic[p] = False
        basic[q] = True
        basis[row] = q
        value = 0.0
        for i in range(n):
            value += x[i]
        if value < need - 1e-6:
            bound = lagrangian(cost, ray, 0.0, rows, diff, size, low, high, r)
            if bound < need:
                return bound
    return lagrangian(cost, ray, 0.0, rows, diff, size, low, high, r)


@jit
def _along(
    cost: Floats,
    ray: Floats,
    rows: NDArray[Any],
    diff: Floats,
    size: Floats,
    low: Floats,
    high: Floats,
    r: int,
    need: int,
) -> float:
    """Bound of a set that no photos satisfy: the Lagrangian falls along `ray` until it proves so."""
    best = lagrangian(cost, ray, 0.0, rows, diff, size, low, high, r)
    step = 1.0
    for _turn in range(60):
        value = lagrangian(cost, ray, step, rows, diff, size, low, high, r)
        best = min(best, value)
        if best < need:
            break
        step *= 2.0
    return best
