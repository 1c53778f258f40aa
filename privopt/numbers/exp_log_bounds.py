"""Rigorous bounds on exponentials and logarithms.

A privacy constraint at distance d is checked against exp(eps d), which is bounded using one of two tools:

* doubles for most constraints: :func:`exp_bounds` encloses exp(eps d) between neighbouring doubles for whole arrays,
  computed in double-double arithmetic (with the error-free transformations of Dekker and Knuth, and without calling the
  platform's ``exp``);
* integers for the rest: :func:`exp_fixed` encloses exp(eps d) between two integers divided by a power of two, using
  python-flint's ball arithmetic at any precision.

Each double stands for the exact rational number that it represents. Epsilon is a :class:`fractions.Fraction`.
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
from privopt.execution.resources import in_threads

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
"""A function that returns a ball around one real number, at the current precision of ``flint.ctx``."""

PRECISIONS: Final = (128, 256, 512, 1024, 4096)
"""The precisions, in bits, to try in order until a comparison is decided. The last decides all ratios of doubles."""

#: Bound on the relative error of the double-double exponential. The analysis in :func:`_exp_dd` gives less than 2**-90.
KERNEL_ERROR = 2.0**-80

#: Up to this many exponentials (all pairs of 28 records) are computed with rationals, because loading the compiled code
#: would take longer.
MIN_COMPILED_SIZE = 400
_LARGEST = sys.float_info.max
# The degree of exp's Taylor polynomial, and the number of distances that are processed together (as SIMD lanes).
_SERIES_TERMS = 24
_LANE_COUNT = 64


def float_down(value: Fraction) -> float:
    """Return the greatest double that is at most ``value``, or -inf if every finite double is greater."""
    dividend, divisor = value.numerator, value.denominator
    try:
        # Python rounds the quotient of two integers correctly, to the nearest double.
        nearest = dividend / divisor
    except OverflowError:
        return _LARGEST if dividend > 0 else -math.inf
    # Comparing integers is faster than comparing fractions.
    numerator, denominator = nearest.as_integer_ratio()
    return nearest if numerator * divisor <= dividend * denominator else math.nextafter(nearest, -math.inf)


def float_up(value: Fraction) -> float:
    """Return the smallest double that is at least ``value``, or inf if every finite double is smaller."""
    # Adding 0 turns -0 into 0.
    return -float_down(-value) + 0.0


def _two_doubles(value: Fraction) -> tuple[float, float]:
    """Return two doubles whose exact sum equals ``value`` to within a relative error of 2**-106."""
    head = float(value)
    return head, float(value - Fraction(head))


def _rational_ln2(bits: int) -> Fraction:
    """Return ln 2, correct to ``bits`` bits, from the series 2 artanh(1/3) = 2 sum_k (1/3)^(2k+1) / (2k+1)."""
    # All terms are integers with 16 guard bits against rounding errors. ``index`` is 2k + 1, and ``power`` is 3^-index.
    scale = 1 << (bits + 16)
    total, power, index = 0, scale // 3, 1
    while power:
        total += power // index
        power //= 9
        index += 2
    return Fraction(2 * total, scale)


_LN2 = _rational_ln2(240)
#: ln 2 as a sum of three doubles. The head has 20 trailing zero bits, so that n times the head is exact for |n| <
#: 2**20.
_LN2_HEAD = math.ldexp(math.floor(_LN2 * 2**33), -33)
_LN2_MID, _LN2_TAIL = _two_doubles(_LN2 - Fraction(_LN2_HEAD))
_COEFFICIENTS = np.array([_two_doubles(Fraction(1, math.factorial(n))) for n in range(_SERIES_TERMS + 1)])
_COEFFICIENTS.setflags(write=False)


@jit(inline="always")
def two_sum(a: float, b: float) -> tuple[float, float]:
    """Return ``a + b`` rounded to a double, together with the exact rounding error (Knuth, 4.2.2)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@jit(inline="always")
def two_product(a: float, b: float) -> tuple[float, float]:
    """Return ``a * b`` rounded to a double, together with the rounding error (Dekker 1971).

    The rounding error is exact unless the product underflows or overflows.
    """
    p = a * b
    # Veltkamp's constant 2**27 + 1 splits each factor into two halves of at most 26 bits, whose products are exact.
    t = 134217729.0 * a
    ah = t - (t - a)
    al = a - ah
    t = 134217729.0 * b
    bh = t - (t - b)
    bl = b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


@jit(inline="always")
def _dd_mul(ah: float, al: float, bh: float, bl: float) -> Any:
    """Return the product of the double-doubles ah + al and bh + bl as a double-double (an exact sum of two doubles)."""
    p, e = two_product(ah, bh)
    return two_sum(p, e + (ah * bl + al * bh))


@jit(inline="always")
def _dd_add(ah: float, al: float, bh: float, bl: float) -> Any:
    """Return the sum of the double-doubles ah + al and bh + bl. It is accurate even if the terms nearly cancel."""
    s, e = two_sum(ah, bh)
    t, f = two_sum(al, bl)
    s, e = two_sum(s, e + t)
    return two_sum(s, e + f)


@jit()
def _exp_dd(eps_head: float, eps_tail: float, d: Any, head: float, mid: float, tail: float, coefficients: Any,
            sh: Any, sl: Any, rh: Any, rl: Any, n: Any) -> None:  # fmt: skip
    """Compute exp((eps_head + eps_tail) d) as double-doubles 2^n (sh + sl), for up to 64 distances d at once.

    A double-double is an exact sum of two doubles: a head, and a smaller tail that adds further digits. The product x =
    eps d has a relative error below 2**-102, and hence an absolute error below 2**-96 for x <= 45. The reduced argument
    r = x - n ln 2 has |r| < 0.35 and an absolute error below 2**-94. The Taylor remainder after 24 terms is below
    2**-120, and 24 steps of Horner's rule in double-double lose less than 2**-96. The total relative error is below
    2**-90. :data:`KERNEL_ERROR` is a thousand times as large.

    Args:
        eps_head, eps_tail: Epsilon as a double-double.
        d: Up to 64 distances, with eps d at most 45 for each.
        head, mid, tail: ln 2 as three doubles.
        coefficients: (terms, 2) The coefficients 1 / k! as double-doubles.
        sh, sl: Arrays to which the heads and tails of the results are written.
        rh, rl: Work arrays for the heads and tails of the reduced arguments.
        n: Array to which the powers of two are written.
    """
    for lane in range(d.size):
        p, e = two_product(eps_head, d[lane])
        xh, xl = two_sum(p, e + eps_tail * d[lane])
        # The constant is 1 / ln 2. Rounding x / ln 2 to the nearest integer n leaves |r| below 0.35.
        n[lane] = np.rint(xh * 1.4426950408889634)
        xh, xl = two_sum(xh - n[lane] * head, xl)
        p, e = two_product(n[lane], mid)
        rh[lane], rl[lane] = _dd_add(xh, xl, -p, -(e + n[lane] * tail))
        sh[lane], sl[lane] = coefficients[-1, 0], coefficients[-1, 1]
    # Horner's rule, which applies one coefficient at a time to all lanes, from the highest coefficient down.
    for index in range(coefficients.shape[0] - 2, -1, -1):
        high, low = coefficients[index, 0], coefficients[index, 1]
        for lane in range(d.size):
            p, e = _dd_mul(sh[lane], sl[lane], rh[lane], rl[lane])
            sh[lane], sl[lane] = _dd_add(p, e, high, low)


@jit()
def _exp_bounds(eps_head, eps_tail, d, head, mid, tail, coefficients, error, lower, upper):  # type: ignore[no-untyped-def]
    """Write neighbouring doubles that enclose exp((eps_head + eps_tail) d) for every distance d.

    If the exponent exceeds 45, the lower bound is just a lower bound on exp(45), and the upper bound is infinite.

    Args:
        eps_head, eps_tail: Epsilon as a double-double: the exact sum of head and tail.
        d: (P,) distances.
        head, mid, tail: ln 2 as three doubles.
        coefficients: (terms, 2) The coefficients 1 / k! as double-doubles.
        error: A bound on the relative error of :func:`_exp_dd`.
        lower, upper: (P,) arrays to which the bounds are written.
    """
    # The error bound of _exp_dd holds for exponents up to 45, so longer distances are capped.
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
            # The result is h + t, with t at most half a unit in the last place of h.
            h, t = math.ldexp(sh[lane], int(power[lane])), math.ldexp(sl[lane], int(power[lane]))
            if d[p] == 0.0:
                lower[p] = upper[p] = 1.0
            # Products could lose bits to underflow here, but exp(x) lies between 1 and the next double.
            elif estimate < 2.0**-200:
                lower[p] = 1.0
                upper[p] = 1.0 + 2.0**-52
            elif estimate > 45.0:
                # exp(45) > 2**64 exceeds any ratio of weights, so the lower bound need not grow further. The factor
                # generously covers rounding errors of a unit or two in the last place in max_distance and in the
                # comparison with 45.
                lower[p] = h * (1.0 - 2.0**-40)
                upper[p] = np.inf
            else:
                # h itself is a bound if t is on the right side of 0 by more than the error. Otherwise, its neighbour is
                # one.
                lower[p] = max(1.0, h if t >= error * h else np.nextafter(h, 0.0))
                upper[p] = h if t <= -error * h else np.nextafter(h, np.inf)


def exp_bounds(distances: Floats, epsilon: Fraction) -> tuple[Floats, Floats]:
    """Return, for each distance d, two neighbouring doubles that enclose exp(epsilon d).

    Args:
        distances: (P,) finite, non-negative doubles, which are assumed to be exact.
        epsilon: Exact and non-negative.

    Returns:
        Two (P,) arrays ``lower`` and ``upper`` of neighbouring doubles, with lower <= exp(epsilon d) <= upper. If
        epsilon d exceeds 45, ``lower`` is just a lower bound on exp(45), and ``upper`` is infinite. This is sufficient,
        because no ratio of two weights in a release is as large as exp(45).
    """
    d = np.ascontiguousarray(distances, dtype=np.float64)
    lower, upper = np.empty_like(d), np.empty_like(d)
    if epsilon == 0:
        lower[:] = upper[:] = 1.0
        return lower, upper
    # Rationals are faster for a few distances, and necessary if double-doubles could underflow or overflow.
    if d.size <= MIN_COMPILED_SIZE or not 1e-100 < epsilon < 1e100:
        return _exp_bounds_slow(d, epsilon)
    head, tail = _two_doubles(epsilon)
    constants = _LN2_HEAD, _LN2_MID, _LN2_TAIL, _COEFFICIENTS, KERNEL_ERROR

    def fill_bounds(first: int, end: int) -> None:
        """Compute the bounds for the distances from ``first`` to ``end - 1``."""
        _exp_bounds(head, tail, d[first:end], *constants, lower[first:end], upper[first:end])

    in_threads(fill_bounds, d.size, min_span=100_000)
    return lower, upper


def _exp_bounds_slow(d: Floats, epsilon: Fraction) -> tuple[Floats, Floats]:
    """Return the same kind of bounds as :func:`exp_bounds`, computed in ball arithmetic instead of double-doubles.

    This function is used for small arrays, and for values of epsilon that could cause double-doubles to underflow or
    overflow.
    """
    lower, upper = np.ones_like(d), np.full_like(d, np.inf)
    for p, distance in enumerate(d):
        exponent = epsilon * Fraction(float(distance))
        if exponent == 0:
            upper[p] = 1.0
        elif exponent > 45:
            # This is less than exp(45), about 3.49e19, and more than any ratio of weights. The upper bound stays
            # infinite.
            lower[p] = 3.4e19
        else:
            # Bounds on the exponential in units of 2**-80. Since the exponent is above 0, 1 is a lower bound as well.
            lower_integer, upper_integer = exp_fixed(exponent, 80)
            lower[p] = max(1.0, float_down(Fraction(lower_integer, 2**80)))
            upper[p] = float_up(Fraction(upper_integer, 2**80))
    return lower, upper


def exp_fixed(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Return integers ``low`` and ``high`` with ``low <= exp(exponent) * 2**bits <= high``.

    They are computed in ball arithmetic, and differ by at most 2 unless the exponent is large.

    Args:
        exponent: Exact and non-negative. The integers grow exponentially with it, so callers should avoid values above
            45.
        bits: The number of fractional bits in the result.
    """
    import flint

    # exp(x) has about 1.443 x bits before the binary point, which are needed in addition to the requested bits.
    precision = bits + 32 + int(1.5 * float(exponent))
    while True:
        with flint.ctx.workprec(precision):
            ball = ball_of(exponent).exp() * flint.arb(flint.fmpz(1) << bits)
            lower, upper = ball.lower().floor().unique_fmpz(), ball.upper().ceil().unique_fmpz()
        if lower is not None and upper is not None:
            return int(lower), int(upper)
        # The precision was too low to round the ball's ends to integers.
        precision *= 2


def log_bounds(ratio: Fraction, divisor: Fraction) -> tuple[float, float]:
    """Return doubles ``low`` and ``high`` with ``low <= ln(ratio) / divisor <= high``, computed in ball arithmetic.

    Args:
        ratio: Exact and at least 1.
        divisor: Exact and above 0.
    """
    import flint

    if ratio == 1:
        return 0.0, 0.0
    # 192 bits are enough unless the ratio is near 1. There the logarithm is about ratio - 1, so as many more bits are
    # needed as cancel in that difference.
    with flint.ctx.workprec(192 + max(0, ratio.denominator.bit_length() - (ratio - 1).numerator.bit_length())):
        ball = ball_of(ratio).log() / ball_of(divisor)
        lower, upper = ball.lower(), ball.upper()
    return float_down(rational_of_ball(lower)), float_up(rational_of_ball(upper))


def ball_of(value: Fraction) -> arb:
    """Convert a rational to a ball (``flint.arb``, a number with an error bound) at flint's current precision."""
    import flint

    return flint.arb(flint.fmpq(value.numerator, value.denominator))


def sign_of(number: Ball) -> int | None:
    """Return the sign of a real number as 1, 0 or -1, or None if its sign could not be determined.

    Args:
        number: A function that returns a ball (an interval) containing the real number. It is called without arguments
            at each precision in :data:`PRECISIONS` in turn, until the ball determines the sign.
    """
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
