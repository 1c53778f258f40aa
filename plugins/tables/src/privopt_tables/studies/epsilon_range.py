"""Read a range of epsilons: from a lowest to a highest, in geometric steps."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import pairwise
from typing import Final

import numpy as np

from privopt.declare.exact_text import StatedFraction
from privopt.errors import UsageError, cut

MOST_EPSILONS: Final = 10_000
"""Epsilons at most."""

LONGEST_NUMBER: Final = 400
"""Characters of an end of the range at most."""


def epsilons_of(grid: str | tuple[float | str, float | str, int]) -> list[Fraction]:
    """Return values from a lowest to a highest in geometric steps, both ends included and exact.

    >>> [str(value) for value in epsilons_of("0.5:2:3")]
    ['1/2', '1', '2']

    Args:
        grid: ``"LO:HI:N"``, or the three of them.

    Raises:
        UsageError: no numbers above 0, in order, or too few or too many values, or too many for what lies between.
    """
    parts = grid.split(":") if isinstance(grid, str) else [str(part) for part in grid]
    got = cut(":".join(parts))
    if len(parts) != 3 or not (parts[2].isascii() and parts[2].isdigit()) or max(map(len, parts)) > LONGEST_NUMBER:
        raise UsageError(f"epsilon: expected LO:HI:N, such as 0.5:5:30, got {got}")
    count = int(parts[2])
    try:
        decimals = [Decimal(end) for end in parts[:2]]
    except InvalidOperation:
        raise UsageError(f"epsilon: expected LO:HI:N, such as 0.5:5:30, got {got}") from None
    if not all(end.is_finite() and abs(end.adjusted()) <= 300 for end in decimals):  # before a rational is made of it
        raise UsageError(f"epsilon: expected ends between 1e-300 and 1e300, as 0.5:5:30 has, got {got}")
    low, high = (StatedFraction(str(end)) for end in decimals)
    if not 0 < low < high or not 2 <= count <= MOST_EPSILONS:
        raise UsageError(f"epsilon: expected 0 < LO < HI and 2 to {MOST_EPSILONS:,} values, got {got}")
    between = np.geomspace(float(low), float(high), count)[1:-1].tolist()
    for digits in (9, 17):
        values = [low, *(StatedFraction(f"{value:.{digits}g}") for value in between), high]
        if all(one < other for one, other in pairwise(values)):
            return values
    raise UsageError(
        f"epsilon: expected fewer values, or ends farther apart, as there are fewer doubles between these, got {got}"
    )
