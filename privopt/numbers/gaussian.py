"""Discrete Gaussian noise: exact draws in bulk, and the (epsilon, delta) that follows from its zCDP.

The distribution of variance parameter V is P(X = v) proportional to exp(-v^2 / (2 V)), v whole (Canonne, Kamath and
Steinke 2020, "The Discrete Gaussian for Differential Privacy"). Its variance is at most V.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privopt.errors import UsageError
from privopt.execution.compiled import jit
from privopt.numbers.exp_log_bounds import ball_of, exactly
from privopt.numbers.laplace import falls, in_bulk, one_laplace
from privopt.numbers.sampling import Source

#: Variances up to here keep every product inside 64 bits.
LARGEST_VARIANCE = 1 << 40
_LEAST_VARIANCE = Fraction(1, 1 << 20)
_FINEST = 1 << 12
_ROOM = Fraction(1, 1 << 20)
_WORKING_BITS = 192
_SUBNORMAL_BITS = 1074
_LEAST = Fraction(1, 1 << _SUBNORMAL_BITS)


def _terms(variance: Fraction) -> tuple[int, int, int]:
    """Return whole t, n, d: variance <= t n / d, the least such n, t near the deviation, d a power of 2.

    2 t n d stays below 2**43, so that it times the few steps of a Bernoulli draw does too below 2**64.
    """
    if not 0 < variance <= LARGEST_VARIANCE:
        raise UsageError(f"variance must be above 0 and at most 2**40, got {float(variance):g}")
    variance = max(variance, _LEAST_VARIANCE)
    t = math.isqrt(math.floor(variance)) + 1
    d = min(_FINEST, 1 << max(0, (40 - math.ceil(variance).bit_length()) // 2))
    return t, math.ceil(variance * d / t), d


def variance_above(variance: Fraction) -> Fraction:
    """Return the least drawable variance that is at least the given one; from 1 on less than 1 part in 1,000 above.

    >>> variance_above(Fraction(5, 2))
    Fraction(5, 2)
    """
    t, n, d = _terms(variance)
    return Fraction(t * n, d)


@jit()
def _fill(words, t, n, d, drawn, done):  # type: ignore[no-untyped-def]
    """Fill drawn from done on; the words used by whole draws, and how far it got.

    Algorithm 3: y from the discrete Laplace distribution of scale t is kept with probability
    exp(-(|y| - n/d)^2 / (2 t n/d)), that is exp(-(d |y| - n)^2 / (2 t n d)).
    """
    one = np.uint64(1)
    at = 0
    while done < drawn.size:
        value, after = one_laplace(words, at, one, t)
        if after < 0:
            break
        away = np.int64(d) * abs(value) - np.int64(n)
        kept, after = falls(words, after, np.uint64(away * away), one, np.uint64(2) * t * n * d)
        if after < 0:
            break
        at = after
        if kept:
            drawn[done] = value
            done += 1
    return at, done


def draw_gaussian(count: int, variance: Fraction, *, source: Source | None = None) -> NDArray[np.int64]:
    """Return ``count`` independent draws with P(v) proportional to exp(-v^2 / (2 V)), V = ``variance_above(variance)``.

    Integers and rejection only (Algorithms 1 to 3). A product could pass 64 bits only where a Laplace draw lies beyond
    a thousand of its scales.

    Args:
        count: how many.
        variance: exact, above 0, at most 2**40.
        source: random bytes; the operating system's by default.
    """
    return in_bulk(count, _fill, *map(np.uint64, _terms(variance)), source=source)


def delta_of(rho: Fraction, epsilon: Fraction) -> Fraction:
    """Return a delta for which rho-zCDP implies (epsilon, delta)-DP, proved: rounded up by ball arithmetic.

    Canonne, Kamath and Steinke 2020, Corollary 13: exp((a - 1)(a rho - epsilon)) / (a - 1) (1 - 1/a)^a for any a > 1.
    The best a is looked for in doubles, and the bound holds at whichever is found. It is at least 2**-1074.
    """
    import flint

    if rho <= 0 or epsilon <= 0:
        raise UsageError(f"rho and epsilon must be above 0, got {rho} and {epsilon}")
    more, _ = _best_order(float(rho), float(epsilon))
    with flint.ctx.workprec(_WORKING_BITS):
        b, r, e = map(ball_of, (Fraction(more), rho, epsilon))
        top = (b * ((b + 1) * r - e) + (b + 1) * (b / (b + 1)).log() - b.log()).exp().upper()
    mantissa, power = top.man_exp()
    digits = int(mantissa).bit_length() + int(power)
    return _LEAST if digits < -_SUBNORMAL_BITS else min(Fraction(1), exactly(top))


@lru_cache(maxsize=64)
def rho_of(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return a rho, a few parts in a million below the largest, whose :func:`delta_of` is proved at most delta.

    It is rounded down, so that another machine's doubles give the same verdict.
    """
    if epsilon <= 0 or not 0 < delta < 1:
        raise UsageError(f"epsilon must be above 0 and delta between 0 and 1, got {epsilon} and {delta}")
    wanted, e = math.log(delta.numerator) - math.log(delta.denominator), float(epsilon)
    low, high = -700.0, math.log(e) + 1.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _best_order(math.exp(middle), e)[1] <= wanted else (low, middle)
    rho = Fraction(math.exp(low))
    while True:
        rho = _floored(rho * (1 - _ROOM))
        if delta_of(rho, epsilon) <= delta:
            return rho


@lru_cache(maxsize=256)
def epsilon_of(rho: Fraction, delta: Fraction) -> Fraction:
    """Return an epsilon, rounded up at its sixth digit, whose :func:`delta_of` is proved to be at most delta.

    It is near the least of a rho + ln((a - 1) / a) + (ln(1 / delta) - ln a) / (a - 1) over a > 1, and at least 0. Every
    rho-zCDP mechanism meets this bound (Canonne, Kamath and Steinke 2020, corollary 13).

    >>> epsilon_of(Fraction(1, 2), Fraction(1, 10**6))
    Fraction(261077, 50000)

    Raises:
        UsageError: rho below 0, or a delta not between 0 and 1.
    """
    if rho < 0 or not 0 < delta < 1:
        raise UsageError(f"rho must be at least 0 and delta between 0 and 1, got {rho} and {delta}")
    if rho == 0:
        return Fraction(0)
    r, wanted = float(rho), math.log(delta.denominator) - math.log(delta.numerator)

    def bound(log: float) -> float:
        b = math.exp(log)  # a - 1
        return (b + 1) * r - math.log1p(1 / b) + (wanted - math.log1p(b)) / b

    low, high = -30.0, math.log(1.0 + wanted / r) + 5.0
    for _ in range(200):
        one, two = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, two) if bound(one) <= bound(two) else (one, high)
    near = max(bound(low), 1e-12)
    step = Fraction(10) ** (math.floor(math.log10(near)) - 5)
    found = math.ceil(Fraction(near) / step) * step
    while delta_of(rho, found) > delta:
        found += step
    return found


def _floored(value: Fraction) -> Fraction:
    """24 binary digits of a number, rounded down."""
    power = Fraction(2) ** (math.frexp(float(value))[1] - 24)
    return math.floor(value / power) * power


def _best_order(rho: float, epsilon: float) -> tuple[float, float]:
    """Near the best a - 1, and the logarithm of the bound there: it falls, then rises."""

    def bound(log: float) -> float:
        b = math.exp(log)
        return b * ((b + 1) * rho - epsilon) - (b + 1) * math.log1p(1 / b) - log

    low, high = -30.0, math.log(epsilon / rho + 1.0) + 30.0
    for _ in range(120):
        one, two = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, two) if bound(one) <= bound(two) else (one, high)
    return math.exp(low), bound(low)
