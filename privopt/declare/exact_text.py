"""Rationals that keep the decimal text that states them."""

from __future__ import annotations

from decimal import Context, Decimal, Inexact, InvalidOperation
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

import numpy as np

from privopt.errors import UsageError, cut


class StatedFraction(Fraction):
    """A rational with the decimal that represents it in a problem file; arithmetic gives plain fractions.

    >>> stated = StatedFraction("0.10")
    >>> stated == Fraction(1, 10), stated.text, type(stated + 1).__name__
    (True, '0.10', 'Fraction')
    """

    __slots__ = ("text",)

    text: str

    def __new__(cls, stated: Any, denominator: int | None = None) -> Any:
        """Make one from the text of a decimal; from numbers, which Fraction's own methods give, a plain fraction."""
        if not isinstance(stated, str):
            return Fraction(stated, denominator)
        made = super().__new__(cls, Decimal(stated))
        made.text = stated
        return made

    def __reduce__(self) -> Any:
        return StatedFraction, (self.text,)

    def __copy__(self) -> StatedFraction:
        return self

    def __deepcopy__(self, memo: Any) -> StatedFraction:
        return self


def exact_text(value: Fraction) -> str:
    """Return a rational as text that says exactly it: as stated, else a decimal where it ends, else a quotient.

    >>> exact_text(Fraction(1, 8)), exact_text(Fraction(1, 3))
    ('0.125', '1/3')
    """
    if isinstance(value, StatedFraction):
        return value.text
    digits = len(str(value.numerator)) + 4 * len(str(value.denominator))
    try:
        return str(Context(prec=digits, traps=[Inexact]).divide(Decimal(value.numerator), Decimal(value.denominator)))
    except Inexact:
        return str(value)


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
