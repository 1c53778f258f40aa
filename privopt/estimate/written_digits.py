"""How many decimals the files of estimates have: enough for what the reports can show, and no noise beyond."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from privopt.arrays import Floats

__all__ = ["round_frame", "round_shares"]

LEAST: Final = 6
"""The number of decimals of shares unless intervals are narrower than 1e-3."""
MOST: Final = 12
"""The largest number of decimals. Doubles near 1 have 15."""
BEYOND_WIDTH: Final = 3
"""The number of decimals beyond the first one that an interval's width shows: rounding moves ends by 1 % of the width
at most."""


def round_shares(share: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats, Floats]:
    """Round shares that sum to 1, and the ends of their intervals, (G,) each, to as many decimals as intervals ask for.

    The rounded shares sum to 1 too. The ends are rounded outwards, so that an interval's confidence holds for what is
    written.

    >>> [x.tolist() for x in round_shares(np.array([1 / 3, 2 / 3]), np.array([0.2, 0.5]), np.array([4 / 9, 0.7]))]
    [[0.333333, 0.666667], [0.2, 0.5], [0.444445, 0.7]]
    """
    widths = (high - low)[high > low]
    # An interval of width 0 is a single number and asks for nothing.
    digits = BEYOND_WIDTH + int(np.ceil(-np.log10(widths.min()))) if len(widths) else LEAST
    decimals = min(max(LEAST, digits), MOST)
    scaled = share * 10.0**decimals
    units = np.floor(scaled)
    # The units that are missing go to the shares that lost most. Each share moves by less than a unit.
    missing_count = int(np.rint(scaled.sum() - units.sum()))
    units[np.argsort(units - scaled, kind="stable")[:missing_count]] += 1.0
    return units / 10.0**decimals, _round_down(low, decimals), -_round_down(-high, decimals)


def _round_down(values: Floats, decimals: int) -> Floats:
    """Return the largest decimals that are not above the values, up to the rounding of doubles."""
    rounded = np.round(values, decimals)
    lower = np.where(rounded > values, np.round(rounded - 10.0**-decimals, decimals), rounded)
    return np.asarray(lower + 0.0, dtype=np.float64)  # no negative zeros


def round_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table of shares as it is written: its columns share, low and high are rounded."""
    names = ("share", "low", "high")
    rounded = round_shares(*(frame[name].to_numpy() for name in names))
    return frame.with_columns(*(pl.Series(name, values) for name, values in zip(names, rounded, strict=True)))
