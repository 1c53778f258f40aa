"""Rationals that remember the decimal text in which they were written."""

from __future__ import annotations

from decimal import Context, Decimal, Inexact
from fractions import Fraction
from typing import Any


class StatedFraction(Fraction):
    """A rational with its decimal text from a problem file. Arithmetic with it gives plain fractions.

    >>> stated = StatedFraction("0.10")
    >>> stated == Fraction(1, 10), stated.text, type(stated + 1).__name__
    (True, '0.10', 'Fraction')
    """

    __slots__ = ("text",)

    text: str

    def __new__(cls, written: Any, denominator: int | None = None) -> Any:
        """Create one from the text of a decimal. Numbers, as Fraction's own methods pass, give plain fractions."""
        if not isinstance(written, str):
            return Fraction(written, denominator)
        fraction = super().__new__(cls, Decimal(written))
        fraction.text = written
        return fraction

    def __reduce__(self) -> Any:
        return StatedFraction, (self.text,)

    def __copy__(self) -> StatedFraction:
        return self

    def __deepcopy__(self, memo: Any) -> StatedFraction:
        return self


def exact_text(value: Fraction) -> str:
    """Return a rational as exact text: as written, else as a decimal if that is finite, else as a quotient.

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
