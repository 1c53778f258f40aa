"""Rounding of shares and their intervals for output files, to as many decimals as the reports support."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from privopt.arrays import Floats

__all__ = ["round_frame", "round_shares"]

LEAST: Final = 6
"""The smallest number of decimals. More are used only if an interval is narrower than 1e-3."""
MOST: Final = 12
"""The largest number of decimals. Doubles near 1 have 15."""
BEYOND_WIDTH: Final = 3
"""The number of decimals kept after the first nonzero decimal of the narrowest interval's width.

With this many decimals, rounding moves an interval's ends by at most 1 % of its width.
"""


def round_shares(share: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats, Floats]:
    """Round shares and the ends of their intervals to as many decimal places as the interval widths justify.

    Each array has shape (G,). The shares sum to 1 before and after rounding. The ends are rounded outwards, so the
    rounded intervals have at least the original confidence level.

    >>> [x.tolist() for x in round_shares(np.array([1 / 3, 2 / 3]), np.array([0.2, 0.5]), np.array([4 / 9, 0.7]))]
    [[0.333333, 0.666667], [0.2, 0.5], [0.444445, 0.7]]
    """
    widths = (high - low)[high > low]
    # An interval of width 0 is a single number, so it does not affect the number of decimals.
    digits = BEYOND_WIDTH + int(np.ceil(-np.log10(widths.min()))) if len(widths) else LEAST
    decimals = min(max(LEAST, digits), MOST)
    scaled = share * 10.0**decimals
    units = np.floor(scaled)
    # The shares that lost most by rounding down get a unit back, until the sum is right. Each share changes by less
    # than a unit.
    missing_count = int(np.rint(scaled.sum() - units.sum()))
    units[np.argsort(units - scaled, kind="stable")[:missing_count]] += 1.0
    return units / 10.0**decimals, _round_down(low, decimals), -_round_down(-high, decimals)


def _round_down(values: Floats, decimals: int) -> Floats:
    """Round values down to a given number of decimal places, within the precision of doubles."""
    rounded = np.round(values, decimals)
    lower = np.where(rounded > values, np.round(rounded - 10.0**-decimals, decimals), rounded)
    return np.asarray(lower + 0.0, dtype=np.float64)  # no negative zeros


def round_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """Round the columns ``share``, ``low`` and ``high`` of a table in the same way as :func:`round_shares`."""
    names = ("share", "low", "high")
    rounded = round_shares(*(frame[name].to_numpy() for name in names))
    return frame.with_columns(*(pl.Series(name, values) for name, values in zip(names, rounded, strict=True)))
