"""Parse a range of epsilons ``LO:HI:N`` into N geometrically spaced values.

The values are exact rationals with short decimal forms, so a value that is copied from a table gives exactly the same
epsilon.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import pairwise
from typing import Final

import numpy as np

from privopt.declare.toml_text import StatedFraction
from privopt.errors import UsageError, cut

MAX_EPSILONS: Final = 10_000
"""Maximum number of epsilons in a range."""

MAX_CHARACTERS: Final = 400
"""Maximum number of characters in each part of a range."""


def parse_epsilons(grid: str | tuple[float | str, float | str, int]) -> list[Fraction]:
    """Parse a range of epsilons, and return its values in ascending order.

    The values are geometrically spaced, and both ends of the range are exact.

    >>> [str(value) for value in parse_epsilons("0.5:2:3")]
    ['1/2', '1', '2']

    Args:
        grid: The lowest value, the highest value and the number of values, as a string ``"LO:HI:N"`` or as a tuple.

    Raises:
        UsageError: The range cannot be parsed, its ends are not positive numbers in ascending order, the number of
            values is out of range, or there are too few doubles between the ends.
    """
    parts = grid.split(":") if isinstance(grid, str) else [str(part) for part in grid]
    actual = cut(":".join(parts))
    if len(parts) != 3 or not (parts[2].isascii() and parts[2].isdigit()) or max(map(len, parts)) > MAX_CHARACTERS:
        raise UsageError(f"epsilon: expected LO:HI:N, such as 0.5:5:30, got {actual}")
    count = int(parts[2])
    try:
        decimals = [Decimal(end) for end in parts[:2]]
    except InvalidOperation:
        raise UsageError(f"epsilon: expected LO:HI:N, such as 0.5:5:30, got {actual}") from None
    # Check this before building rationals, which could have millions of digits.
    if not all(end.is_finite() and abs(end.adjusted()) <= 300 for end in decimals):
        raise UsageError(f"epsilon: expected ends between 1e-300 and 1e300, as 0.5:5:30 has, got {actual}")
    lower, upper = (StatedFraction(str(end)) for end in decimals)
    if not 0 < lower < upper or not 2 <= count <= MAX_EPSILONS:
        raise UsageError(f"epsilon: expected 0 < LO < HI and 2 to {MAX_EPSILONS:,} values, got {actual}")
    # Only the ends must be exact, so the inner values are computed in doubles.
    inner_values = np.geomspace(float(lower), float(upper), count)[1:-1].tolist()
    # Nine digits are easier to read. If they would make two values equal, 17 digits are used, which distinguish all
    # doubles.
    for digits in (9, 17):
        values = [lower, *(StatedFraction(f"{value:.{digits}g}") for value in inner_values), upper]
        if all(smaller < larger for smaller, larger in pairwise(values)):
            return values
    raise UsageError(
        f"epsilon: expected fewer values, or ends farther apart, as there are fewer doubles between these, got {actual}"
    )
