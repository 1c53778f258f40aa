"""Compiled loops over pairs of rows, used to certify a matrix and to find its least epsilon.

Importing this module loads numba.

The loops use vectors of eight doubles (:mod:`privopt_metric_dp.matrix.simd`). ``load(array, q)`` reads vector q of a
flat array, and ``spread`` fills a vector with one number. ``greatest`` and ``least`` return the lane-by-lane maximum
and minimum of two vectors. ``highest`` and ``lowest`` return the largest and smallest lane of one vector.
"""

from __future__ import annotations

from privopt.arrays import Floats, Ints
from privopt.execution.compiled import jit
from privopt_metric_dp.matrix.simd import DOUBLE_LANES, greatest, highest, least, load, lowest, spread

__all__ = ["DOUBLE_LANES", "raise_to_differences", "raise_to_ratios"]


@jit()
def raise_to_ratios(
    values: Floats, reciprocals: Floats, width: int, first: Ints, second: Ints, ratios: Floats
) -> None:  # pragma: no cover - compiled
    """Update the largest ratio between two entries in the same column, for each pair of rows.

    Args:
        values: Flat array of the entries in a block of columns, row by row. All entries must be positive. Each row
            consists of ``width`` vectors.
        reciprocals: Flat array of the same length with the reciprocals of ``values``.
        width: The number of vectors per row.
        first, second: Arrays of shape (P,) with the row indices of each pair.
        ratios: Array of shape (P,) with the largest ratio so far in either direction for each pair, modified in place.
    """
    # The largest ratio in the other direction is the reciprocal of the smallest one, so one division per pair suffices.
    ones = spread(1.0)
    for p in range(first.size):
        i, j = first[p] * width, second[p] * width
        maxima, minima = ones, ones
        for q in range(width):
            ratio = load(values, i + q) * load(reciprocals, j + q)
            maxima, minima = greatest(maxima, ratio), least(minima, ratio)
        ratios[p] = max(ratios[p], highest(maxima), 1.0 / lowest(minima))


@jit()
def raise_to_differences(
    values: Floats, width: int, first: Ints, second: Ints, differences: Floats
) -> None:  # pragma: no cover - compiled
    """Update the largest absolute difference between two entries in the same column, for each pair of rows.

    Args:
        values: Flat array of the entries in a block of columns, row by row. Each row consists of ``width`` vectors.
        width: The number of vectors per row.
        first, second: Arrays of shape (P,) with the row indices of each pair.
        differences: Array of shape (P,) with the largest absolute difference so far for each pair, modified in place.
    """
    zeros = spread(0.0)
    for p in range(first.size):
        i, j = first[p] * width, second[p] * width
        maxima, minima = zeros, zeros
        for q in range(width):
            difference = load(values, i + q) - load(values, j + q)
            maxima, minima = greatest(maxima, difference), least(minima, difference)
        differences[p] = max(differences[p], highest(maxima), -lowest(minima))
