"""Isotonic regression over integers by pooling adjacent violators (PAVA), clipping and rounding.

Rounding the least-squares isotonic fit half up solves the integer program for any positive weights. This is because the
pooled blocks are optimal for integers as well, and the best integer for a block is its rounded mean. The functions for
integers use only integer arithmetic. They compare block means by quotient and remainder, without rounding errors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt.arrays import Ints
from privopt.execution.compiled import jit

__all__ = ["isotonic_floats", "isotonic_integers", "isotonic_means"]

_SAFE_WEIGHT = 3_000_000_000
"""The largest allowed sum of weights, chosen so that products of two block weights stay below 2**63."""


@jit()
def _write_blocks(values: NDArray[Any], block_ends: Ints, high: Any, fitted: NDArray[Any]) -> None:
    """Write the value of each block, clipped to [0, ``high``], to all positions in the block.

    Args:
        values: The values of the blocks. Entries beyond the number of blocks are ignored.
        block_ends: The last position of each block.
        high: The upper bound.
        fitted: (positions,) The output array for the fitted row.
    """
    begin = 0
    for block in range(len(block_ends)):
        # Clipping the fit without bounds gives the optimum within [0, high].
        value = min(max(values[block], 0), high)
        for s in range(begin, block_ends[block] + 1):
            fitted[s] = value
        begin = block_ends[block] + 1


@jit()
def _pool_integers(totals: Ints, weights: Ints, high: Ints, fitted: Ints) -> None:
    """Fit non-decreasing integers to each row by pooling adjacent violators (PAVA) in exact integer arithmetic.

    Args:
        totals: (rows, positions) The weighted sums. The value at a position is totals / weights.
        weights: (positions,) The positive integer weights.
        high: (rows,) The upper bound of each row.
        fitted: (rows, positions) The output array for the block means, rounded half up and clipped to [0, high].
    """
    rows, size = totals.shape
    sums = np.empty(size, np.int64)
    mass = np.empty(size, np.int64)
    block_ends = np.empty(size, np.int64)
    for row in range(rows):
        last_block = -1
        for s in range(size):
            last_block += 1
            sums[last_block] = totals[row, s]
            mass[last_block] = weights[s]
            block_ends[last_block] = s
            while last_block > 0:
                # Two blocks are merged if the earlier one has the larger mean. Compare the integer parts first.
                previous_mean = sums[last_block - 1] // mass[last_block - 1]
                last_mean = sums[last_block] // mass[last_block]
                if previous_mean < last_mean:
                    break
                # If the integer parts are equal, compare the fractional parts with the product of both weights as the
                # denominator.
                if previous_mean == last_mean:
                    previous_rest = (sums[last_block - 1] - previous_mean * mass[last_block - 1]) * mass[last_block]
                    last_rest = (sums[last_block] - last_mean * mass[last_block]) * mass[last_block - 1]
                    if previous_rest <= last_rest:
                        break
                sums[last_block - 1] += sums[last_block]
                mass[last_block - 1] += mass[last_block]
                block_ends[last_block - 1] = block_ends[last_block]
                last_block -= 1
        for block in range(last_block + 1):
            sums[block] = (2 * sums[block] + mass[block]) // (2 * mass[block])  # the mean, rounded half up
        _write_blocks(sums, block_ends[: last_block + 1], high[row], fitted[row])


@jit()
def _pool_floats(
    values: NDArray[np.float64], weights: NDArray[np.float64], high: NDArray[np.float64], fitted: NDArray[np.float64]
) -> None:
    """Fit non-decreasing values to each row by pooling adjacent violators (PAVA) in floating point.

    Args:
        values: (rows, positions) The values to fit.
        weights: (positions,) The positive weights.
        high: (rows,) The upper bound of each row.
        fitted: (rows, positions) The output array for the block means, clipped to [0, high].
    """
    rows, size = values.shape
    means = np.empty(size, np.float64)
    mass = np.empty(size, np.float64)
    block_ends = np.empty(size, np.int64)
    for row in range(rows):
        last_block = -1
        for s in range(size):
            last_block += 1
            means[last_block] = values[row, s]
            mass[last_block] = weights[s]
            block_ends[last_block] = s
            # Adjacent blocks with decreasing means violate the order and are merged into their weighted mean.
            while last_block > 0 and means[last_block - 1] > means[last_block]:
                total = mass[last_block - 1] + mass[last_block]
                means[last_block - 1] += (means[last_block] - means[last_block - 1]) * (mass[last_block] / total)
                mass[last_block - 1] = total
                block_ends[last_block - 1] = block_ends[last_block]
                last_block -= 1
        _write_blocks(means, block_ends[: last_block + 1], high[row], fitted[row])


def isotonic_integers(values: Ints, *, high: Ints) -> Ints:
    """Fit non-decreasing, non-negative integers to each row by least squares, exactly.

    Args:
        values: (rows, positions) The noisy values v.
        high: (rows,) The upper bound of each row.

    Returns:
        A (rows, positions) array. Each row x minimises sum_s (x_s - v_s)^2 over all non-decreasing integers in [0,
        high]. It is the minimiser over the reals, rounded half up.

    Raises:
        ValueError: Sums of the values could overflow 64-bit integers.
    """
    values = np.ascontiguousarray(values, dtype=np.int64)
    # Rounding half up doubles a block's sum, which must still fit into 64 bits.
    if int(np.abs(values).max(initial=0)) * values.shape[1] >= 2**61:
        raise ValueError("sums of isotonic values exceed 64 bits")
    return isotonic_means(values, np.ones(values.shape[1], np.int64), high=high)


def isotonic_means(totals: Ints, weights: Ints, *, high: Ints) -> Ints:
    """Fit non-decreasing integers in [0, high] to rows of rational numbers by exact weighted least squares.

    A position can stand for several noisy values. Its value is then their mean, and its weight is their number.

    Args:
        totals: (rows, positions) The weighted sums. The value at position s is the rational number totals[:, s] /
            weights[s].
        weights: (positions,) The positive integer weights.
        high: (rows,) The upper bound of each row.

    Returns:
        A (rows, positions) array with the fitted integers.

    Raises:
        ValueError: A weight is not positive, or products of weights could overflow 64-bit integers.
    """
    if len(weights) and int(weights.min()) <= 0:
        raise ValueError("isotonic weights must be positive")
    # Comparing two block means multiplies the blocks' weights.
    if sum(map(int, weights)) > _SAFE_WEIGHT:
        raise ValueError(f"isotonic weights must add up to at most {_SAFE_WEIGHT}")
    fitted = np.empty_like(totals)
    high = np.ascontiguousarray(high, dtype=np.int64)
    _pool_integers(np.ascontiguousarray(totals), np.ascontiguousarray(weights, dtype=np.int64), high, fitted)
    return fitted


def isotonic_floats(
    values: NDArray[np.float64], *, high: NDArray[np.float64], weights: NDArray[np.float64], fitted: NDArray[np.float64]
) -> None:
    """Fit non-decreasing values in [0, high] to each row by weighted least squares, in floating point.

    Args:
        values: (rows, positions) The values to fit, as a C-contiguous array.
        high: (rows,) The upper bound of each row.
        weights: (positions,) The positive weights.
        fitted: (rows, positions) The output array for the fitted values.
    """
    _pool_floats(values, weights, high, fitted)
