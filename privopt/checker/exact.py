"""Exact arithmetic: a real is a whole number of 2**-256ths, rounded in the direction that refuses.

``ONE`` is the real 1. A function called ``..._down`` returns no more than the real it represents,
one called ``..._up`` no less. Decimals of the problem's files mean what is written
(:func:`rational`).
"""

from __future__ import annotations

import decimal
import math
import re
from fractions import Fraction

__all__ = [
    "BITS",
    "FLAT",
    "ONE",
    "PI",
    "RADIUS_KM",
    "RefusedError",
    "arcsine_of_root",
    "cosine",
    "down",
    "exp_down",
    "exp_up",
    "log_down",
    "low",
    "need",
    "number",
    "radians",
    "rational",
]

BITS = 256
ONE = 1 << BITS

RADIUS_KM = 6371
"""Of the sphere that positions in degrees lie on, km."""

FLAT = 45 * ONE
"""Log-ratios are cut here: exp(45) is above 2**64, and no ratio of two weights is."""

CONTEXT = decimal.Context(prec=120)
"""Decimal arithmetic whose exponential and logarithm are rounded correctly, to 120 digits."""

TINY = Fraction(1, 10**110)
"""More than what 120 digits lose, as a share."""


class RefusedError(Exception):
    """A claim that does not hold, or a form that is unknown here.

    Attributes:
        code: 1 where a claim does not hold, 2 where it cannot be checked.
    """

    def __init__(self, why: str, code: int) -> None:
        super().__init__(why)
        self.code = code


def need(holds: object, why: str, code: int = 1) -> None:
    """Refuse unless something holds.

    Raises:
        RefusedError: it does not.
    """
    if not holds:
        raise RefusedError(why, code)


def low(value: Fraction) -> int:
    """Round a rational down to 2**-256ths."""
    return (value.numerator << BITS) // value.denominator


def down(value: Fraction) -> float:
    """Round a rational down to a double."""
    nearest = float(value)
    return nearest if nearest <= value else math.nextafter(nearest, -math.inf)


def rational(value: object) -> Fraction:
    """Read a decimal as the rational that it means.

    Raises:
        RefusedError: it is not a decimal, or one of over 999 digits, or beyond 10**999.
    """
    digits = r"(\d{1,999}\.?\d{0,999}|\.\d{1,999})"
    sound = re.fullmatch(rf"[+-]?{digits}([eE][+-]?\d{{1,3}})?", str(value), re.ASCII)
    need(sound, f"expected a number, got {str(value)[:40]!r}", 2)
    return Fraction(str(value))


def number(value: object) -> Fraction:
    """Read a number of a TOML or JSON file as the rational that it means.

    Raises:
        RefusedError: it is none.
    """
    return rational(value if type(value) in (int, decimal.Decimal) else repr(value))


def exp_down(x: int) -> int:
    """Return exp(x) for x >= 0, or less by a share of 2e-110 and one 2**-256th at most."""
    return ONE if x == 0 else low(_exp(x) * (1 - TINY))


def exp_up(x: int) -> int:
    """Return exp(x) for x >= 0, or more by a share of 2e-110 and one 2**-256th at most."""
    return ONE if x == 0 else low(_exp(x) * (1 + TINY)) + 1


def _exp(x: int) -> Fraction:
    return Fraction(CONTEXT.exp(CONTEXT.divide(x, ONE)))


def log_down(x: Fraction) -> Fraction:
    """Return ln(x) for x >= 1, or less by a share of 2e-110."""
    return Fraction(CONTEXT.ln(CONTEXT.divide(x.numerator, x.denominator))) * (1 - TINY)


def _arctangent_of_inverse(n: int, times: int) -> int:
    """Return ``times`` arctan(1 / n), in 2**-320ths."""
    return sum((2 - m % 4) * (times << 320) // (n**m * m) for m in range(1, 280, 2))


PI = (_arctangent_of_inverse(5, 16) + _arctangent_of_inverse(239, -4)) >> 64
"""By Machin's formula, 16 arctan(1/5) - 4 arctan(1/239)."""


def radians(degrees: Fraction) -> int:
    """Return degrees in radians."""
    return low(degrees / 180) * PI >> BITS


def cosine(x: int) -> int:
    """Return the cosine of |x| < 12, to 2**-228, by its power series.

    Raises:
        RefusedError: x is larger.
    """
    need(abs(x) < 12 * ONE, "problem: a place farther than once around", 2)
    term = total = ONE
    for n in range(2, 160, 2):
        term = -(term * x * x >> 2 * BITS) // (n * (n - 1))
        total += term
    return total


def arcsine_of_root(h: int) -> int:
    """Return asin(sqrt(h)) for h known to 2**-225, to 2**-110.

    The angle is halved 8 times by sin(t / 2)^2 = sin(t)^2 / (2 (1 + cos t)), then the power series
    converges fast.
    """
    square = min(max(h, 0), ONE) << BITS
    for _ in range(8):
        square = (square << BITS) // (2 * (ONE + math.isqrt(ONE * ONE - square)))
    term = total = math.isqrt(square)
    for n in range(1, 19, 2):
        term = (term * square >> 2 * BITS) * n * n // ((n + 1) * (n + 2))
        total += term
    return total << 8
