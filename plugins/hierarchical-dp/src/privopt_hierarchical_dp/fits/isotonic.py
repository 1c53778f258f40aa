"""Isotonic regression over integers: pool adjacent violators, clip, round (mathematics H4).

Rounding the least-squares isotonic fit half up gives an optimum of the integer program, for any
positive weights: the fit's level sets do not depend on the loss being strictly convex, and each
block's integer optimum is its mean, rounded. Everything here is integer arithmetic: block means are
compared as quotient and remainder, never as doubles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt.arrays import Ints
from privopt.execution.compiled import jit

__all__ = ["isotonic_floats", "isotonic_integers", "isotonic_means"]

_SAFE_WEIGHT = 3_000_000_000  # product of two block weights stays below 2**63


@jit()
def _spread(values: NDArray[Any], ends: Ints, high: Any, out: NDArray[Any]) -> None:
    """Write each block's value, from 0 to ``high``, to all of its positions; ``ends`` are those of the blocks."""
    first = 0
    for block in range(len(ends)):
        value = min(max(values[block], 0), high)
        for s in range(first, ends[block] + 1):
            out[s] = value
        first = ends[block] + 1


@jit()
def _pool_integers(totals: Ints, weights: Ints, high: Ints, out: Ints) -> None:
    rows, size = totals.shape
    sums = np.empty(size, np.int64)
    mass = np.empty(size, np.int64)
    ends = np.empty(size, np.int64)
    for row in range(rows):
        top = -1
        for s in range(size):
            top += 1
            sums[top] = totals[row, s]
            mass[top] = weights[s]
            ends[top] = s
            while top > 0:
                left = sums[top - 1] // mass[top - 1]
                right = sums[top] // mass[top]
                if left < right:
                    break
                if left == right:
                    over_left = (sums[top - 1] - left * mass[top - 1]) * mass[top]
                    over_right = (sums[top] - right * mass[top]) * mass[top - 1]
                    if over_left <= over_right:
                        break
                sums[top - 1] += sums[top]
                mass[top - 1] += mass[top]
                ends[top - 1] = ends[top]
                top -= 1
        for block in range(top + 1):
            sums[block] = (2 * sums[block] + mass[block]) // (2 * mass[block])
        _spread(sums, ends[: top + 1], high[row], out[row])


@jit()
def _pool_floats(
    values: NDArray[np.float64], weights: NDArray[np.float64], high: NDArray[np.float64], out: NDArray[np.float64]
) -> None:
    rows, size = values.shape
    means = np.empty(size, np.float64)
    mass = np.empty(size, np.float64)
    ends = np.empty(size, np.int64)
    for row in range(rows):
        top = -1
        for s in range(size):
            top += 1
            means[top] = values[row, s]
            mass[top] = weights[s]
            ends[top] = s
            while top > 0 and means[top - 1] > means[top]:
                total = mass[top - 1] + mass[top]
                means[top - 1] += (means[top] - means[top - 1]) * (mass[top] / total)
                mass[top - 1] = total
                ends[top - 1] = ends[top]
                top -= 1
        _spread(means, ends[: top + 1], high[row], out[row])


def isotonic_integers(values: Ints, *, high: Ints) -> Ints:
    """Fit non-decreasing integers from 0 on by least squares, row by row; exact.

    Args:
        values: (R, S) noisy values.
        high: (R,) upper bounds, one a row.

    Returns:
        (R, S) integers, each row a minimiser of sum_s (x_s - v_s)^2 over non-decreasing
        integers in [0, high] (the smallest unrounded one, rounded half up).
    """
    values = np.ascontiguousarray(values, dtype=np.int64)
    if int(np.abs(values).max(initial=0)) * values.shape[1] >= 2**61:
        raise ValueError("sums of isotonic values pass 64 bits")
    return isotonic_means(values, np.ones(values.shape[1], np.int64), high=high)


def isotonic_means(totals: Ints, weights: Ints, *, high: Ints) -> Ints:
    """Fit as `isotonic_integers`, for positions that are groups of noisy values already summed.

    Args:
        totals: (R, S) weighted sums; the value of position s is totals[:, s] / weights[s], a rational.
        weights: (S,) positive integers.
        high: (R,) upper bounds.
    """
    if len(weights) and int(weights.min()) <= 0:
        raise ValueError("isotonic weights must be positive")
    if sum(map(int, weights)) > _SAFE_WEIGHT:
        raise ValueError(f"isotonic weights must add up to at most {_SAFE_WEIGHT}")
    out = np.empty_like(totals)
    high = np.ascontiguousarray(high, dtype=np.int64)
    _pool_integers(np.ascontiguousarray(totals), np.ascontiguousarray(weights, dtype=np.int64), high, out)
    return out


def isotonic_floats(
    values: NDArray[np.float64], *, high: NDArray[np.float64], weights: NDArray[np.float64], out: NDArray[np.float64]
) -> None:
    """Fit weighted isotonic regression within [0, high], row by row, in doubles, into ``out``.

    Args:
        values: (R, S), C-contiguous.
        high: (R,) upper bounds.
        weights: (S,) positive weights.
        out: (R, S) result.
    """
    _pool_floats(values, weights, high, out)
