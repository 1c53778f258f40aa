"""Elementary functions in fixed-point arithmetic, with error bounds.

A number x is stored as an integer near x 2^w, where w is the number of fractional bits (``bits``). An ulp is 2^-w. The
error bound of each function is in ulps and valid for w >= 160. Only integers are used, so an implementation in any
language with big integers can produce identical results. ``//`` and ``>>`` round towards minus infinity.
"""

from __future__ import annotations

import math
from functools import lru_cache

__all__ = ["arctangent", "exp_minus", "log_two", "pi", "sine_cosine"]

# Additional bits that a computation carries, so that its error of a few units is far below an ulp of the result.
_GUARD_BITS = 16


def _inverse_series(n: int, bits: int, sign: int) -> int:
    """Return arctan(1/n) or artanh(1/n) in fixed point, with an error of a few ulps.

    The power series is the sum of (1/n)^k / k over odd k. For arctan, every other term is subtracted.

    Args:
        n: An integer above 1.
        bits: The number of fractional bits in the result.
        sign: -1 for arctan, 1 for artanh.
    """
    power = (1 << bits) // n
    total, k = power, 1
    while power:
        power //= n * n
        k += 2
        term = power // k
        # The sign applies to the terms with k = 3, 7, 11, ... The others are positive.
        total += term if sign > 0 or k % 4 == 1 else -term
    return total


@lru_cache(maxsize=64)
def pi(bits: int) -> int:
    """Return pi in fixed point with an error of at most 1 ulp, by Machin's formula with 16 guard bits."""
    wide = bits + _GUARD_BITS
    return 4 * (4 * _inverse_series(5, wide, -1) - _inverse_series(239, wide, -1)) >> _GUARD_BITS


@lru_cache(maxsize=64)
def log_two(bits: int) -> int:
    """Return the natural logarithm of 2 in fixed point, computed as 2 artanh(1/3), with an error of at most 1 ulp."""
    return 2 * _inverse_series(3, bits + _GUARD_BITS, 1) >> _GUARD_BITS


def exp_minus(exponent: int, bits: int) -> int:
    """Return exp(-x) in fixed point for x >= 0, with an error of at most 4 w ulps.

    Results below one ulp may be rounded to 0.

    Args:
        exponent: x in fixed point.
        bits: The number w of fractional bits in ``exponent`` and in the result.
    """
    # exp(-x) = 2^-halvings exp(-rest), where the Taylor series of exp(-rest) needs few terms because rest < ln 2.
    ln2 = log_two(bits)
    halvings, rest = divmod(exponent, ln2)
    if halvings > bits:
        return 0
    total = term = 1 << bits
    k = 0
    while term:
        k += 1
        term = (term * rest >> bits) // k
        total += -term if k & 1 else term
    return total >> halvings


def sine_cosine(angle: int, bits: int) -> tuple[int, int]:
    """Return sin(x) and cos(x) in fixed point for 0 <= x <= pi, each with an error of at most 16 w ulps.

    Both are computed by Taylor series at 0.

    Args:
        angle: x in radians, in fixed point.
        bits: The number w of fractional bits in ``angle`` and in the results.
    """
    square = angle * angle >> bits
    cosine = cosine_term = 1 << bits
    sine = sine_term = angle
    k = 0
    while cosine_term or sine_term:
        k += 2
        cosine_term = (cosine_term * square >> bits) // (k * (k - 1))
        sine_term = (sine_term * square >> bits) // (k * (k + 1))
        if k & 2:  # the terms x^k / k! and x^(k + 1) / (k + 1)! alternate in sign
            cosine -= cosine_term
            sine -= sine_term
        else:
            cosine += cosine_term
            sine += sine_term
    return sine, cosine


def arctangent(y: int, x: int, bits: int) -> int:
    """Return atan2(y, x), the angle of the vector (x, y) in (-pi, pi], in fixed point.

    The angle is computed with the power series of arctan, which adds at most 4 w ulps to the error caused by errors in
    x and y.

    Args:
        y, x: The components of the vector, in fixed point.
        bits: The number w of fractional bits in the components and in the result.
    """
    # The angle is computed in the first octant, where its tangent is at most 1, and then reflected.
    smaller, larger = sorted((abs(y), abs(x)))
    if larger == 0:
        return 0
    one = 1 << bits
    tangent = (smaller << bits) // larger
    for _ in range(3):  # by arctan(z) = 2 arctan(z / (1 + sqrt(1 + z^2))), which leaves z < 0.1
        tangent = (tangent << bits) // (one + math.isqrt((one << bits) + tangent * tangent))
    square = tangent * tangent >> bits
    total = power = tangent
    k = 1
    while power:
        power = power * square >> bits
        k += 2
        total += power // k if k % 4 == 1 else -(power // k)
    angle = total << 3  # undo the three halvings
    if abs(y) > abs(x):
        angle = (pi(bits) >> 1) - angle
    if x < 0:
        angle = pi(bits) - angle
    return -angle if y < 0 else angle
