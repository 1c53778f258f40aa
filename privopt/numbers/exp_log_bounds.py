"""Rigorous bounds on exponentials and logarithms.

Two tools, and nothing else in privopt decides a privacy row:

* doubles for the mass: :func:`exp_bounds` encloses exp(eps d) between neighbouring doubles for whole arrays, computed
  in double-double arithmetic (error-free transformations of Dekker and Knuth; no call to the platform's ``exp``);
* integers for the rest: :func:`exp_fixed` encloses exp(eps d) between two integers over a power of two, by
  python-flint's ball arithmetic at any precision.

A double represents the rational that it is, epsilon is a :class:`fractions.Fraction`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from privopt.arrays import Floats
from privopt.execution.compiled import jit
from privopt.execution.limits import in_threads

if TYPE_CHECKING:
    from flint import arb
else:
    arb = Any

__all__ = [
    "PRECISIONS",
    "Ball",
    "ball_of",
    "exp_bounds",
    "exp_fixed",
    "float_down",
    "float_up",
    "log_bounds",
    "rational_of_ball",
    "sign_of",
    "two_product",
    "two_sum",
]


Ball: TypeAlias = Callable[[], arb]
"""A function that encloses one real number at the current precision of ``flint.ctx``."""

PRECISIONS: Final = (128, 256, 512, 1024, 4096)
"""Precisions in bits, tried in order until a comparison is decided. The last one decides any ratio of doubles."""

#: Relative error that the double-double exponential may have. The analysis in :func:`_exp_dd` gives less than 2**-88.
KERNEL_ERROR = 2.0**-80

#: Up to this many distances are computed with rationals, because loading compiled code would take longer.
MIN_COMPILED_SIZE = 100
_LARGEST = sys.float_info.max
_SERIES_TERMS = 24
_LANE_COUNT = 64


def float_down(value: Fraction) -> float:
    """Return the greatest double that is at most ``value``; -inf below them all."""
    dividend, divisor = value.numerator, value.denominator
    try:
        nearest = dividend / divisor  # rounded correctly, and in an eighth of the time of comparing fractions
    except OverflowError:
        return _LARGEST if dividend > 0 else -math.inf
    numerator, denominator = nearest.as_integer_ratio()
    return nearest if numerator * divisor <= dividend * denominator else math.nextafter(nearest, -math.inf)


def float_up(value: Fraction) -> float:
    """Return the smallest double that is at least ``value``; inf above them all."""
    return -float_down(-value) + 0.0  # 0, not -0


def _two_doubles(value: Fraction) -> tuple[float, float]:
    """Return ``value`` as an unevaluated sum of two doubles, with a relative error of at most 2**-106."""
    head = float(value)
    return head, float(value - Fraction(head))


def _rational_log2(bits: int) -> Fraction:
    """Return ln 2, correct to ``bits`` bits, from the series of 2 artanh(1/3)."""
    scale = 1 << (bits + 16)
    total, power, index = 0, scale // 3, 1
    while power:
        total += power // index
        power //= 9
        index += 2
    return Fraction(2 * total, scale)


_LN2 = _rational_log2(240)
#: Head of ln 2 with 20 trailing zero bits, so that n times it is exact for |n| < 2**20; then two more doubles.
_LN2_HEAD = math.ldexp(math.floor(_LN2 * 2**33), -33)
_LN2_MID, _LN2_TAIL = _two_doubles(_LN2 - Fraction(_LN2_HEAD))
_COEFFICIENTS = np.array([_two_doubles(Fraction(1, math.factorial(n))) for n in range(_SERIES_TERMS + 1)])
_COEFFICIENTS.setflags(write=False)


@jit(inline="always")
def two_sum(a: float, b: float) -> tuple[float, float]:
    """Return the sum as a double and its exact rounding error (Knuth, 4.2.2)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@jit(inline="always")
def two_product(a: float, b: float) -> tuple[float, float]:
    """Return the product as a double and its rounding error, exact without underflow or overflow (Dekker 1971)."""
    p = a * b
    t = 134217729.0 * a
    ah = t - (t - a)
    al = a - ah
    t = 134217729.0 * b
    bh = t - (t - b)
    bl = b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


@jit(inline="always")
def _dd_mul(ah: float, al: float, bh: float, bl: float) -> Any:
    p, e = two_product(ah, bh)
    return two_sum(p, e + (ah * bl + al * bh))


@jit(inline="always")
def _dd_add(ah: float, al: float, bh: float, bl: float) -> Any:
    s, e = two_sum(ah, bh)
    t, f = two_sum(al, bl)
    s, e = two_sum(s, e + t)
    return two_sum(s, e + f)


@jit()
def _exp_dd(eps_head: float, eps_tail: float, d: Any, head: float, mid: float, tail: float, coefficients: Any,
            sh: Any, sl: Any, rh: Any, rl: Any, n: Any) -> None:  # fmt: skip
    """exp((eps_head + eps_tail) d) as double-doubles 2^n (sh + sl), for many d side by side.

    x = eps d carries a relative error below 2**-102, so below 2**-96 absolute for x <= 45. The reduced argument
    r = x - n ln 2 has |r| < 0.35 and an absolute error below 2**-94. The Taylor remainder after 24 terms is below
    2**-120, and 24 steps of Horner's rule in double-double lose below 2**-96. In all less than 2**-90 relative;
    :data:`KERNEL_ERROR` allows a thousand times that.
    """
    for lane in range(d.size):
        p, e = two_product(eps_head, d[lane])
        xh, xl = two_sum(p, e + eps_tail * d[lane])
        n[lane] = np.rint(xh * 1.4426950408889634)
        xh, xl = two_sum(xh - n[lane] * head, xl)
        p, e = two_product(n[lane], mid)
        rh[lane], rl[lane] = _dd_add(xh, xl, -p, -(e + n[lane] * tail))
        sh[lane], sl[lane] = coefficients[-1, 0], coefficients[-1, 1]
    for index in range(coefficients.shape[0] - 2, -1, -1):
        high, low = coefficients[index, 0], coefficients[index, 1]
        for lane in range(d.size):
            p, e = _dd_mul(sh[lane], sl[lane], rh[lane], rl[lane])
            sh[lane], sl[lane] = _dd_add(p, e, high, low)


@jit()
def _exp_bounds(eps_head, eps_tail, d, head, mid, tail, coefficients, error, lower, upper):  # type: ignore[no-untyped-def]
    max_distance = 45.0 / eps_head
    capped, sh, sl = np.empty(_LANE_COUNT), np.empty(_LANE_COUNT), np.empty(_LANE_COUNT)
    rh, rl, power = np.empty(_LANE_COUNT), np.empty(_LANE_COUNT), np.empty(_LANE_COUNT)
    for first in range(0, d.size, _LANE_COUNT):
        count = min(_LANE_COUNT, d.size - first)
        for lane in range(count):
            capped[lane] = max_distance if eps_head * d[first + lane] > 45.0 else d[first + lane]
        _exp_dd(eps_head, eps_tail, capped[:count], head, mid, tail, coefficients, sh, sl, rh, rl, power)
        for lane in range(count):
            p = first + lane
            estimate = eps_head * d[p]
            h, t = math.ldexp(sh[lane], int(power[lane])), math.ldexp(sl[lane], int(power[lane]))
            if d[p] == 0.0:
                lower[p] = upper[p] = 1.0
            elif estimate < 2.0**-200:  # products could lose bits to underflow
                lower[p] = 1.0
                upper[p] = 1.0 + 2.0**-52
            elif estimate > 45.0:
                # exp(45) > 2**64 is more than any ratio of weights: the bound stops growing there; the quotient and
                # the comparison are off by an ulp or two of 45, which 2**-40 covers many times
                lower[p] = h * (1.0 - 2.0**-40)
                upper[p] = np.inf
            else:
                lower[p] = max(1.0, h if t >= error * h else np.nextafter(h, 0.0))
                upper[p] = h if t <= -error * h else np.nextafter(h, np.inf)


def exp_bounds(distances: Floats, epsilon: Fraction) -> tuple[Floats, Floats]:
    """Enclose exp(epsilon d) for every distance.

    Args:
        distances: (P,) finite, >= 0; each double is the rational that it is.
        epsilon: exact, >= 0.

    Returns:
        ``lower`` and ``upper``, (P,) doubles with lower <= exp(epsilon d) <= upper, neighbours of each other. Where
        epsilon d exceeds 45, lower is a bound of exp(45) and upper is infinite: no ratio of weights reaches there.
    """
    d = np.ascontiguousarray(distances, dtype=np.float64)
    lower, upper = np.empty_like(d), np.empty_like(d)
    if epsilon == 0:
        lower[:] = upper[:] = 1.0
        return lower, upper
    if d.size <= MIN_COMPILED_SIZE or not 1e-100 < epsilon < 1e100:
        return _exp_bounds_slow(d, epsilon)
    head, tail = _two_doubles(epsilon)
    constants = _LN2_HEAD, _LN2_MID, _LN2_TAIL, _COEFFICIENTS, KERNEL_ERROR

    def fill_bounds(first: int, end: int) -> None:
        _exp_bounds(head, tail, d[first:end], *constants, lower[first:end], upper[first:end])

    in_threads(fill_bounds, d.size, min_span=100_000)
    return lower, upper


def _exp_bounds_slow(d: Floats, epsilon: Fraction) -> tuple[Floats, Floats]:
    """Compute :func:`exp_bounds` with rationals: for few distances, or if double-doubles could under- or overflow."""
    lower, upper = np.ones_like(d), np.full_like(d, np.inf)
    for p, distance in enumerate(d):
        exponent = epsilon * Fraction(float(distance))
        if exponent == 0:
            upper[p] = 1.0
        elif exponent > 45:
            lower[p] = 3.4e19  # less than exp(45), more than 2**64
        else:
            lower_integer, upper_integer = exp_fixed(exponent, 80)
            lower[p] = max(1.0, float_down(Fraction(lower_integer, 2**80)))
            upper[p] = float_up(Fraction(upper_integer, 2**80))
    return lower, upper


def exp_fixed(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Return integers with ``low <= exp(exponent) 2**bits <= high``, by ball arithmetic.

    Args:
        exponent: exact, 0 <= exponent; values above 45 are the caller's to avoid (the integers grow with them).
        bits: fractional bits of the result.

    Returns:
        The two integers; high - low is at most 2 unless the exponent is large.
    """
    import flint

    with flint.ctx.workprec(bits + 32 + int(1.5 * float(exponent))):
        ball = ball_of(exponent).exp() * flint.arb(flint.fmpz(1) << bits)
        lower, upper = ball.lower().floor().unique_fmpz(), ball.upper().ceil().unique_fmpz()
    if lower is None or upper is None:
        return exp_fixed(exponent, 2 * bits)
    return int(lower), int(upper)


def log_bounds(ratio: Fraction, divisor: Fraction) -> tuple[float, float]:
    """Return doubles with ``low <= ln(ratio) / divisor <= high``, by ball arithmetic.

    Args:
        ratio: at least 1.
        divisor: above 0.
    """
    import flint

    if ratio == 1:
        return 0.0, 0.0
    with flint.ctx.workprec(192 + max(0, ratio.denominator.bit_length() - (ratio - 1).numerator.bit_length())):
        ball = ball_of(ratio).log() / ball_of(divisor)
        lower, upper = ball.lower(), ball.upper()
    return float_down(rational_of_ball(lower)), float_up(rational_of_ball(upper))


def ball_of(value: Fraction) -> arb:
    """Return a rational as a ball (``flint.arb``), at the precision in force."""
    import flint

    return flint.arb(flint.fmpq(value.numerator, value.denominator))


def sign_of(number: Ball) -> int | None:
    """Return the sign of a real number, 1, 0 or -1, or None if no precision decides it."""
    import flint

    for bits in PRECISIONS:
        with flint.ctx.workprec(bits):
            ball = number()
            if ball > 0 or ball < 0 or ball == 0:
                return int(ball > 0) - int(ball < 0)
    return None


def rational_of_ball(end: arb) -> Fraction:
    """Convert an exact ``arb``, such as an endpoint of a ball, to a rational."""
    mantissa, power = end.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(power)
