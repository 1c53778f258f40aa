"""The checker's arithmetic, in which rounding errors can only cause a claim to be rejected.

Real numbers are stored as integers in units of 2**-256, so ``ONE`` is the real number 1. Functions named ``..._down``
return at most the exact value, and functions named ``..._up`` return at least the exact value. Decimals in the
problem's files are read as exact rationals (:func:`rational`).
"""

from __future__ import annotations

import decimal
import math
import re
from fractions import Fraction

__all__ = [
    "BITS",
    "CONTEXT",
    "FLAT",
    "ONE",
    "PI",
    "RADIUS_KM",
    "TINY",
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
"""The number of binary places used to store real numbers."""
ONE = 1 << BITS
"""The real number 1, in units of 2**-256."""

RADIUS_KM = 6371
"""The radius in km of the sphere used for positions in degrees."""

FLAT = 45 * ONE
"""The cap on log ratios. Nothing is lost, because exp(45) exceeds 2**64 and therefore any ratio of two weights."""

CONTEXT = decimal.Context(prec=120)
"""Decimal arithmetic with 120 digits, whose exponential and logarithm are correctly rounded."""

FLOOR_CONTEXT = decimal.Context(prec=120, rounding=decimal.ROUND_FLOOR)
"""Decimal arithmetic with 120 digits that rounds down, for quotients that must not exceed the exact value."""

TINY = Fraction(1, 10**110)
"""A bound, with a large margin, on the relative error of a result with 120 digits."""


class RefusedError(Exception):
    """Raised when a claim does not hold, or cannot be checked because the checker does not support its form.

    Attributes:
        code: The exit code: 1 if a claim does not hold, 2 if it cannot be checked.
    """

    def __init__(self, why: str, code: int) -> None:
        """Create the error with the reason to show to the user (``why``) and an exit code."""
        super().__init__(why)
        self.code = code


def need(holds: object, why: str, code: int = 1) -> None:
    """Raise a RefusedError unless a condition holds.

    Args:
        holds: The condition, as a truthy or falsy value.
        why: The reason to show to the user if the condition does not hold.
        code: The exit code in that case: 1 if a claim is false, 2 if it cannot be checked.

    Raises:
        RefusedError: The condition does not hold.
    """
    if not holds:
        raise RefusedError(why, code)


def low(value: Fraction) -> int:
    """Convert a rational to an integer in units of 2**-256, rounded down."""
    return (value.numerator << BITS) // value.denominator


def down(value: Fraction) -> float:
    """Round a rational down to a double."""
    nearest = float(value)
    # float() rounds to the nearest double, which may be above the value.
    return nearest if nearest <= value else math.nextafter(nearest, -math.inf)


def rational(value: object) -> Fraction:
    """Convert a string that contains a decimal number to an exact rational number.

    Raises:
        RefusedError: The string is not a decimal number, has more than 999 digits before or after the decimal point, or
            has an exponent of more than three digits.
    """
    # The limits keep Fraction from computing a number with millions of digits ("1e999999999").
    digits = r"(\d{1,999}\.?\d{0,999}|\.\d{1,999})"
    is_decimal = re.fullmatch(rf"[+-]?{digits}([eE][+-]?\d{{1,3}})?", str(value), re.ASCII)
    need(is_decimal, f"expected a number, got {str(value)[:40]!r}", 2)
    return Fraction(str(value))


def number(value: object) -> Fraction:
    """Convert a number from a TOML or JSON file to an exact rational number.

    Raises:
        RefusedError: The value is not a number.
    """
    # TOML decimals arrive as Decimal. The repr of a double is the shortest decimal that reads back as the same double.
    # The repr of a text or a Boolean is rejected by rational().
    return rational(value if type(value) in (int, decimal.Decimal) else repr(value))


def exp_down(x: int) -> int:
    """Return a lower bound on exp(x) for x >= 0, with an error of at most 2e-110 exp(x) + 2**-256.

    ``x`` and the result are in units of 2**-256.
    """
    return ONE if x == 0 else low(_exp(x) * (1 - TINY))


def exp_up(x: int) -> int:
    """Return an upper bound on exp(x) for x >= 0, with an error of at most 2e-110 exp(x) + 2**-256.

    ``x`` and the result are in units of 2**-256.
    """
    return ONE if x == 0 else low(_exp(x) * (1 + TINY)) + 1


def _exp(x: int) -> Fraction:
    """Return exp(x) with a relative error below :data:`TINY`, for ``x`` in units of 2**-256.

    Raises:
        decimal.Overflow: exp(x) has more than a million digits.
    """
    # The quotient has a relative rounding error of 5e-120. It is below 2.4e6, because exp would overflow otherwise, so
    # its error is below 2e-113. This is also the relative error that it causes in exp, whose own rounding adds 5e-120.
    return Fraction(CONTEXT.exp(CONTEXT.divide(x, ONE)))


def log_down(x: Fraction) -> Fraction:
    """Return a lower bound on ln(x) for x >= 1, with an error of at most 2e-110 ln(x) + 1e-119."""
    # The quotient q must be rounded down: near 1, an error of 5e-120 in q can exceed ln(x) itself, and then no factor
    # below 1 would make up for it. Since 1 <= q <= x < q (1 + 1e-119), ln(q) is at most ln(x), and below it by at most
    # 1e-119. ln rounds to the nearest decimal, with a relative error of at most 5e-120, which the factor 1 - TINY
    # covers.
    quotient = FLOOR_CONTEXT.divide(x.numerator, x.denominator)
    return Fraction(CONTEXT.ln(quotient)) * (1 - TINY)


def _arctangent_of_inverse(n: int, times: int) -> int:
    """Return ``times * arctan(1 / n)`` in units of 2**-320."""
    # Gregory's series is arctan(1/n) = 1/n - 1/(3 n^3) + 1/(5 n^5) - .... The sign of the term with n^m, for odd m, is
    # 2 - m % 4. The first omitted term is below 1 / n**281.
    return sum((2 - m % 4) * (times << 320) // (n**m * m) for m in range(1, 280, 2))


PI = (_arctangent_of_inverse(5, 16) + _arctangent_of_inverse(239, -4)) >> 64
"""Pi, computed with Machin's formula 16 arctan(1/5) - 4 arctan(1/239)."""


def radians(degrees: Fraction) -> int:
    """Convert degrees to radians in units of 2**-256."""
    return low(degrees / 180) * PI >> BITS


def cosine(x: int) -> int:
    """Return the cosine of x for |x| < 12 from its power series, with an error of at most 2**-228.

    ``x`` and the result are in units of 2**-256.

    Raises:
        RefusedError: The absolute value of x is 12 or more.
    """
    need(abs(x) < 12 * ONE, "problem: a place more than once around the earth", 2)
    # In 1 - x^2/2! + x^4/4! - ..., each term is computed from the one before. The first omitted term is below 2**-370.
    # A term has a rounding error of at most 2 units of 2**-256, which is multiplied in later terms by less than
    # cosh(12) < 2**17 in total. The error of all 79 terms together is therefore below 2**25 units.
    term = total = ONE
    for n in range(2, 160, 2):
        term = -(term * x * x >> 2 * BITS) // (n * (n - 1))
        total += term
    return total


def arcsine_of_root(h: int) -> int:
    """Return asin(sqrt(h)) for h in [0, 1], with an error of at most 2**-110 if h has an error of at most 2**-225.

    ``h`` and the result are in units of 2**-256.

    The angle is halved 8 times with the formula sin(t / 2)^2 = sin(t)^2 / (2 (1 + cos t)), so that the power series
    converges quickly. An error in h has its largest effect at h = 0 and h = 1, where the error in the angle is the
    square root of the error in h.
    """
    # ``square`` is sin(t)^2 in units of 2**-512, which leaves enough digits for the roots. Because of rounding, h may
    # lie slightly outside [0, 1].
    square = min(max(h, 0), ONE) << BITS
    for _ in range(8):
        square = (square << BITS) // (2 * (ONE + math.isqrt(ONE * ONE - square)))
    # asin(y) = y + y^3 / (2 * 3) + 3 y^5 / (2 * 4 * 5) + .... Multiplying by 2^8 then undoes the 8 halvings.
    term = total = math.isqrt(square)
    for n in range(1, 19, 2):
        term = (term * square >> 2 * BITS) * n * n // ((n + 1) * (n + 2))
        total += term
    return total << 8
