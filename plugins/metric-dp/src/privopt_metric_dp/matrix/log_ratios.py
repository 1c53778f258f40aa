"""Compiled inner loops over pairs of rows. Importing this module loads numba."""

from __future__ import annotations

from privopt.arrays import Floats, Ints
from privopt.execution.compiled import jit
from privopt_metric_dp.matrix.simd import DOUBLE_LANES, greatest, highest, least, load, lowest, spread

__all__ = ["DOUBLE_LANES", "raise_to_differences", "raise_to_ratios"]


@jit()
def raise_to_ratios(
    values: Floats, reciprocals: Floats, width: int, first: Ints, second: Ints, ratios: Floats
) -> None:  # pragma: no cover - compiled
    """Raise ratios[p] to the greatest ratio, either way, of the rows first[p] and second[p] of a block of columns.

    Args:
        values: positive, rows one after the other, each of ``width`` vectors of eight.
        reciprocals: theirs.
        width: see ``values``.
        first, second: (P,) rows.
        ratios: (P,), written to.
    """
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
    """Raise differences[p] to the greatest one, in size, of the rows first[p] and second[p] of a block of columns.

    Args:
        values: rows one after the other, each of ``width`` vectors of eight.
        width: see ``values``.
        first, second: (P,) rows.
        differences: (P,), written to.
    """
    zeros = spread(0.0)
    for p in range(first.size):
        i, j = first[p] * width, second[p] * width
        maxima, minima = zeros, zeros
        for q in range(width):
            difference = load(values, i + q) - load(values, j + q)
            maxima, minima = greatest(maxima, difference), least(minima, difference)
        differences[p] = max(differences[p], highest(maxima), -lowest(minima))
