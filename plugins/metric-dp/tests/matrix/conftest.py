"""References that share no code with privopt.numbers: 60-digit exponentials, Fractions, a simplex in rationals."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import flint
import mpmath
import numpy as np
import pytest

TOTAL = 2**63


def exponential(exponent: Fraction, digits: int = 60) -> Fraction:
    """Return exp to ``digits`` digits, as a rational."""
    with mpmath.workdps(digits):
        value = mpmath.exp(mpmath.mpf(exponent.numerator) / exponent.denominator)
        mantissa, power = int(value.man), int(value.exp)
    return Fraction(mantissa) * Fraction(2) ** power


def independent_check(weights: Any, pairs: Any, distances: Any, epsilon: Fraction) -> tuple[bool, float]:
    """Return the claim, checked one inequality at a time in 60 digits; and the worst log ratio over distance."""
    rows = [[int(w) for w in row] for row in weights]
    is_kept = all(sum(row) == TOTAL for row in rows)
    worst = 0.0
    for (i, j), distance in zip(np.asarray(pairs).tolist(), np.asarray(distances).tolist(), strict=True):
        d = Fraction(distance)
        bound = exponential(epsilon * d)
        for a, b in zip(rows[i], rows[j], strict=True):
            for large, smaller in ((a, b), (b, a)):
                if d == 0:
                    is_kept &= large == smaller
                    worst = max(worst, np.inf if large != smaller else 0.0)
                elif smaller == 0:
                    is_kept &= large == 0
                    worst = max(worst, np.inf if large else 0.0)
                else:
                    is_kept &= large <= bound * smaller
                    with mpmath.workdps(60):
                        ratio = mpmath.log(mpmath.mpf(large) / smaller) * d.denominator / d.numerator
                        worst = max(worst, float(ratio))
    return is_kept, worst


def exact_optimum(cost: Any, pairs: Any, distances: Any, epsilon: Fraction) -> tuple[Fraction, np.ndarray, Any, Any]:
    """Optimal mechanism by the simplex method in rationals (dictionary form, Bland's rule).

    Output 0 is eliminated by the row sums; all mass on it is the feasible start. Gives the optimum, z as doubles, and
    the multipliers (P, K) forward and backward.
    """
    c = [[flint.fmpq(*float(v).as_integer_ratio()) for v in row] for row in cost]
    n, width = len(c), len(c[0])
    columns = [(i, k) for i in range(n) for k in range(1, width)]
    column_by_cell = {cell: position for position, cell in enumerate(columns)}
    objective = [c[i][k] - c[i][0] for i, k in columns]
    rows: list[list[Any]] = []
    right: list[Any] = []
    labels: list[tuple[int, int, int] | None] = []
    zero, unit = flint.fmpq(0), flint.fmpq(1)
    for i in range(n):
        rows.append([unit if cell[0] == i else zero for cell in columns])
        right.append(unit)
        labels.append(None)
    for p, (i, j) in enumerate(np.asarray(pairs).tolist()):
        value = exponential(epsilon * Fraction(float(distances[p])), 40)
        growth = flint.fmpq(value.numerator, value.denominator)
        for direction, (a, b) in enumerate(((i, j), (j, i))):
            for k in range(width):
                row = [zero] * len(columns)
                if k:
                    row[column_by_cell[a, k]], row[column_by_cell[b, k]] = unit, -growth
                else:
                    for m in range(1, width):
                        row[column_by_cell[a, m]], row[column_by_cell[b, m]] = -unit, growth
                rows.append(row)
                right.append(zero if k else growth - unit)
                labels.append((p, direction, k))
    basic = [len(columns) + r for r in range(len(rows))]
    free = list(range(len(columns)))
    start = sum((c[i][0] for i in range(n)), zero)
    value = start
    while True:
        entering = min((f for f, o in zip(free, objective, strict=True) if o < 0), default=None)
        if entering is None:
            break
        s = free.index(entering)
        r = min(
            (r for r in range(len(rows)) if rows[r][s] > 0),
            key=lambda r: (Fraction(str(right[r] / rows[r][s])), basic[r]),
        )
        pivot = rows[r][s]
        rows[r] = [v / pivot for v in rows[r]]
        right[r] = right[r] / pivot
        rows[r][s] = unit / pivot
        for q in range(len(rows)):
            factor = rows[q][s]
            if q != r and factor != 0:
                rows[q] = [v - factor * w for v, w in zip(rows[q], rows[r], strict=True)]
                rows[q][s] = -factor * rows[r][s]
                right[q] = right[q] - factor * right[r]
        factor = objective[s]
        objective = [v - factor * w for v, w in zip(objective, rows[r], strict=True)]
        objective[s] = -factor * rows[r][s]
        value += factor * right[r]
        free[s], basic[r] = basic[r], free[s]
    z = np.zeros((n, width))
    solution = dict(zip(basic, right, strict=True))
    for position, (i, k) in enumerate(columns):
        z[i, k] = float(Fraction(str(solution.get(position, zero))))
    for i in range(n):
        z[i, 0] = float(
            Fraction(str(unit - sum((solution.get(column_by_cell[i, k], zero) for k in range(1, width)), zero)))
        )
    multipliers = np.zeros((2, len(pairs), width))
    for f, o in zip(free, objective, strict=True):
        label = labels[f - len(columns)] if f >= len(columns) else None
        if label is not None:
            p, direction, k = label
            multipliers[direction, p, k] = float(Fraction(str(o)))
    return Fraction(str(value)), z, multipliers[0], multipliers[1]


@pytest.fixture(scope="session")
def check() -> Callable[..., tuple[bool, float]]:
    return independent_check


@pytest.fixture(scope="session")
def optimum() -> Callable[..., tuple[Fraction, np.ndarray, Any, Any]]:
    return exact_optimum


@pytest.fixture(scope="session")
def exp60() -> Callable[..., Fraction]:
    return exponential
