"""Discrete Gaussian noise: exact draws in bulk, and conversions between zCDP and (epsilon, delta)-DP.

The discrete Gaussian distribution with variance parameter V has P(X = v) proportional to exp(-v^2 / (2 V)) for integers
v (Canonne, Kamath and Steinke 2020, "The Discrete Gaussian for Differential Privacy"). Its variance is at most V.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privopt.errors import UsageError
from privopt.execution.compiled import jit
from privopt.numbers.exp_log_bounds import ball_of, rational_of_ball
from privopt.numbers.laplace import FEW_DRAWS, draw_bernoulli_exp_steps, draw_in_bulk, draw_one_laplace
from privopt.numbers.sampling import Source

#: The largest variance that can be drawn. Up to it, every product fits into 64 bits.
LARGEST_VARIANCE = 1 << 40
# The smallest variance that can be drawn, to which smaller ones are raised, and the largest denominator of a variance.
_MIN_VARIANCE = Fraction(1, 1 << 20)
_MAX_DENOMINATOR = 1 << 12
# The relative step by which a rho that was computed in doubles is lowered until it is proved, the precision of ball
# arithmetic in bits, and the exponent of 2**-1074, the smallest positive double and the smallest delta reported.
_SEARCH_STEP = Fraction(1, 1 << 20)
_WORKING_BITS = 192
_SUBNORMAL_BITS = 1074
_MIN_DELTA = Fraction(1, 1 << _SUBNORMAL_BITS)


def _terms(variance: Fraction) -> tuple[int, int, int]:
    """Return the parameters of the compiled sampler: integers t, n and d such that t n / d is at least ``variance``.

    Here t is close to the standard deviation, d is a power of 2, and n is as small as possible. The product 2 t n d is
    below 2**43. It is multiplied by the step counter of a Bernoulli draw, which remains small, so the result does not
    overflow 64 bits.

    Raises:
        UsageError: The variance is not above 0, or exceeds 2**40.
    """
    if not 0 < variance <= LARGEST_VARIANCE:
        raise UsageError(f"variance must be above 0 and at most 2**40, got {float(variance):g}")
    variance = max(variance, _MIN_VARIANCE)
    t = math.isqrt(math.floor(variance)) + 1
    # t n d is about variance d^2, so d is about the square root of 2**40 / variance.
    d = min(_MAX_DENOMINATOR, 1 << max(0, (40 - math.ceil(variance).bit_length()) // 2))
    return t, math.ceil(variance * d / t), d


def variance_above(variance: Fraction) -> Fraction:
    """Return the smallest supported variance that is at least ``variance``.

    The result exceeds ``variance`` by less than 0.1 % if ``variance`` is at least 1.

    >>> variance_above(Fraction(5, 2))
    Fraction(5, 2)

    Raises:
        UsageError: The variance is not above 0, or exceeds 2**40.
    """
    t, n, d = _terms(variance)
    return Fraction(t * n, d)


@jit(few=lambda words, t, n, d, samples, _: samples.size <= FEW_DRAWS)
def _fill(words, t, n, d, samples, sample_count):  # type: ignore[no-untyped-def]
    """Fill ``samples``, from index ``sample_count`` onwards, with draws from the discrete Gaussian distribution.

    In Algorithm 3 of Canonne, Kamath and Steinke 2020, a draw y from the discrete Laplace distribution with scale t is
    accepted with probability ``exp(-(|y| - n/d)^2 / (2 t n/d))``, which equals ``exp(-(d |y| - n)^2 / (2 t n d))``.

    Args:
        words: Random 64-bit words, used in order.
        t, n, d: The parameters returned by :func:`_terms`, as unsigned 64-bit integers.
        samples: The array to which the draws are written.
        sample_count: The number of samples already filled.

    Returns:
        The number of words used, and the number of samples now filled.
    """
    one_word = np.uint64(1)
    offset = 0
    while sample_count < samples.size:
        value, next_offset = draw_one_laplace(words, offset, one_word, t)
        # The words ran out. The next call repeats the draw from its first word, to which ``offset`` still points.
        if next_offset < 0:
            break
        # The exponent of the acceptance probability is deviation^2 steps of 1 / (2 t n d).
        deviation = np.int64(d) * abs(value) - np.int64(n)
        is_accepted, next_offset = draw_bernoulli_exp_steps(
            words, next_offset, np.uint64(deviation * deviation), one_word, np.uint64(2) * t * n * d
        )
        if next_offset < 0:
            break
        offset = next_offset
        if is_accepted:
            samples[sample_count] = value
            sample_count += 1
    return offset, sample_count


def draw_gaussian(count: int, variance: Fraction, *, source: Source | None = None) -> NDArray[np.int64]:
    """Return ``count`` independent draws from a discrete Gaussian distribution.

    The probability of an integer v is proportional to exp(-v^2 / (2 V)), where V is ``variance_above(variance)``. The
    sampler uses only integers and rejection (Canonne, Kamath and Steinke 2020, Algorithms 1 to 3). A product could
    exceed 64 bits only if a Laplace draw were more than a thousand scales away from 0.

    Args:
        count: The number of draws.
        variance: The exact variance parameter, above 0 and at most 2**40.
        source: The source of random bytes. The default is the operating system's entropy.

    Raises:
        UsageError: The variance is out of range.
    """
    # The compiled _fill() turns random words into draws. Its parameters t, n and d define the variance V = t n / d.
    return draw_in_bulk(count, _fill, *map(np.uint64, _terms(variance)), source=source)


def delta_of(rho: Fraction, epsilon: Fraction) -> Fraction:
    """Return a delta for which rho-zCDP implies (epsilon, delta)-DP, rounded up using ball arithmetic.

    For any a > 1, one such delta is exp((a - 1)(a rho - epsilon)) (1 - 1/a)^a / (a - 1) (Canonne, Kamath and Steinke
    2020, Corollary 13). The search for the best a uses floating-point numbers. Rounding errors in the search are
    harmless, because the formula is valid for any a. The result is at least 2**-1074 and at most 1.

    Raises:
        UsageError: rho or epsilon is not above 0.
    """
    import flint

    if rho <= 0 or epsilon <= 0:
        raise UsageError(f"rho and epsilon must be above 0, got {rho} and {epsilon}")
    # In the following, b is a - 1, and the argument of exp() is the logarithm of the bound.
    order_minus_one, _ = _best_order(float(rho), float(epsilon))
    with flint.ctx.workprec(_WORKING_BITS):
        b, r, e = map(ball_of, (Fraction(order_minus_one), rho, epsilon))
        upper_delta = (b * ((b + 1) * r - e) + (b + 1) * (b / (b + 1)).log() - b.log()).exp().upper()
    # Numbers below 2**-1074 are never converted to fractions, whose denominators could be huge.
    mantissa, power = upper_delta.man_exp()
    binary_exponent = int(mantissa).bit_length() + int(power)
    return _MIN_DELTA if binary_exponent < -_SUBNORMAL_BITS else min(Fraction(1), rational_of_ball(upper_delta))


@lru_cache(maxsize=64)
def rho_of(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return a rho, close to the largest possible one, for which rho-zCDP provably implies (epsilon, delta)-DP.

    The implication is proved in ball arithmetic by :func:`delta_of`. The result is kept a few millionths below the
    largest possible rho, so that machines with slightly different floating-point results can still confirm it.

    Raises:
        UsageError: epsilon is not above 0, or delta is not between 0 and 1.
    """
    if epsilon <= 0 or not 0 < delta < 1:
        raise UsageError(f"epsilon must be above 0 and delta between 0 and 1, got {epsilon} and {delta}")
    # Bisect for the logarithm of rho, from near the smallest double up to e times epsilon. The logarithms of delta's
    # numerator and denominator are subtracted, because delta itself may underflow.
    log_delta, e = math.log(delta.numerator) - math.log(delta.denominator), float(epsilon)
    # _best_order() returns the logarithm of delta as its second value.
    lower, upper = -700.0, math.log(e) + 1.0
    for _ in range(80):
        middle = (lower + upper) / 2
        lower, upper = (middle, upper) if _best_order(math.exp(middle), e)[1] <= log_delta else (lower, middle)
    rho = Fraction(math.exp(lower))
    # Because the bisection uses doubles, its result is lowered until ball arithmetic proves it.
    while True:
        rho = _round_down(rho * (1 - _SEARCH_STEP))
        if delta_of(rho, epsilon) <= delta:
            return rho


@lru_cache(maxsize=256)
def epsilon_of(rho: Fraction, delta: Fraction) -> Fraction:
    """Return an epsilon, rounded up to six digits, for which rho-zCDP provably implies (epsilon, delta)-DP.

    The result is at least 0, and is close to the minimum of a rho + ln((a - 1) / a) + (ln(1 / delta) - ln a) / (a - 1)
    over a > 1. Every rho-zCDP mechanism satisfies this bound (Canonne, Kamath and Steinke 2020, Corollary 13). The
    implication is proved for the returned epsilon in ball arithmetic by :func:`delta_of`.

    >>> epsilon_of(Fraction(1, 2), Fraction(1, 10**6))
    Fraction(261077, 50000)

    Raises:
        UsageError: rho is below 0, or delta is not between 0 and 1.
    """
    if rho < 0 or not 0 < delta < 1:
        raise UsageError(f"rho must be at least 0 and delta between 0 and 1, got {rho} and {delta}")
    if rho == 0:
        return Fraction(0)
    r, log_inverse_delta = float(rho), math.log(delta.denominator) - math.log(delta.numerator)

    def bound(log: float) -> float:
        """Return the epsilon that can be proved using the order a = 1 + exp(log)."""
        b = math.exp(log)
        return (b + 1) * r - math.log1p(1 / b) + (log_inverse_delta - math.log1p(b)) / b

    # Ternary search for the best log(a - 1).
    lower, upper = -30.0, math.log(1.0 + log_inverse_delta / r) + 5.0
    for _ in range(200):
        left_third, right_third = lower + (upper - lower) / 3, upper - (upper - lower) / 3
        lower, upper = (lower, right_third) if bound(left_third) <= bound(right_third) else (left_third, upper)
    # The estimate must be above 0 to have a logarithm. The step is one unit in the sixth digit.
    estimate = max(bound(lower), 1e-12)
    step = Fraction(10) ** (math.floor(math.log10(estimate)) - 5)
    # Because the search uses doubles, its result is raised until ball arithmetic proves it.
    epsilon = math.ceil(Fraction(estimate) / step) * step
    while delta_of(rho, epsilon) > delta:
        epsilon += step
    return epsilon


def _round_down(value: Fraction) -> Fraction:
    """Round a number down to 24 significant binary digits."""
    power = Fraction(2) ** (math.frexp(float(value))[1] - 24)
    return math.floor(value / power) * power


def _best_order(rho: float, epsilon: float) -> tuple[float, float]:
    """Search for the order a that gives the smallest delta in :func:`delta_of`, and return a - 1 and ln(delta).

    Args:
        rho: The zCDP parameter.
        epsilon: The epsilon for which to bound delta.
    """

    def bound(log: float) -> float:
        """Return the logarithm of the delta that can be proved using the order a = 1 + exp(log)."""
        b = math.exp(log)
        return b * ((b + 1) * rho - epsilon) - (b + 1) * math.log1p(1 / b) - log

    # A ternary search. The best a - 1 is about epsilon / (2 rho), which lies well inside this range. Any a gives a
    # valid bound, so the search only determines how tight it is.
    lower, upper = -30.0, math.log(epsilon / rho + 1.0) + 30.0
    for _ in range(120):
        left_third, right_third = lower + (upper - lower) / 3, upper - (upper - lower) / 3
        lower, upper = (lower, right_third) if bound(left_third) <= bound(right_third) else (left_third, upper)
    return math.exp(lower), bound(lower)
