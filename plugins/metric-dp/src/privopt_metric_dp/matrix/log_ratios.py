"""Compiled loops over pairs of rows, for the certificate and the least epsilon. Importing this module loads numba.

``load(array, q)`` reads vector number q, eight doubles, of a flat array; ``spread`` fills a vector with one number.
``greatest`` and ``least`` compare two vectors lane by lane, and ``highest`` and ``lowest`` return the largest and the
smallest lane of one vector (:mod:`privopt_metric_dp.matrix.simd`).
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
    """Update ratios[p] with the largest ratio, either way, of rows first[p] and second[p] in a block of columns.

    Args:
        values: Positive entries, row by row, each row of ``width`` vectors of eight.
        reciprocals: The reciprocals of ``values``.
        width: Number of vectors in a row.
        first, second: (P,) row numbers.
        ratios: (P,) maxima so far, which are updated.
    """
    # The reverse ratio is the reciprocal of the smallest one, so one division per pair is enough.
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
    """Update differences[p] with the largest absolute difference of rows first[p] and second[p] in a block of columns.

    Args:
        values: Entries, row by row, each row of ``width`` vectors of eight.
        width: Number of vectors in a row.
        first, second: (P,) row numbers.
        differences: (P,) maxima so far, which are updated.
    """
    zeros = spread(0.0)
    for p in range(first.size):
        i, j = first[p] * width, second[p] * width
        maxima, minima = zeros, zeros
        for q in range(width):
            difference = load(values, i + q) - load(values, j + q)
            maxima, minima = greatest(maxima, difference), least(minima, difference)
        differences[p] = max(differences[p], highest(maxima), -lowest(minima))
