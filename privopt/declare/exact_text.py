"""Rationals that keep the decimal text that states them."""

from __future__ import annotations

from decimal import Context, Decimal, Inexact
from fractions import Fraction
from typing import Any


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
