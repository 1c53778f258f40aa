"""Noise scales as exact rationals, and the delta implied by Gaussian noise."""

from __future__ import annotations

import math
from fractions import Fraction

from privopt.checker.exact import CONTEXT, TINY, log_down, need

__all__ = ["delta_above", "ratio"]

LEAST_POWER = Fraction(-100_000)
"""The smallest allowed logarithm of a bound on delta. Smaller logarithms are raised to this value.

exp(-100000) is below 1e-43000.
"""


def delta_above(rho: Fraction, epsilon: Fraction) -> Fraction:
    """Return an upper bound on the delta for which rho-zCDP implies (epsilon, delta)-DP.

    For every a > 1, delta is at most exp((a - 1) (a rho - epsilon)) (1 - 1/a)^a / (a - 1) (Canonne, Kamath and Steinke
    2020, proposition 12). Since every a gives a valid bound, the search for a good one can be done in floating point.

    Args:
        rho: The positive budget that is spent.
        epsilon: The positive epsilon at which delta is bounded.
    """

    def exponent(log: float) -> float:
        """Return the logarithm of the bound on delta at a = 1 + exp(log)."""
        b = math.exp(log)
        return b * ((1 + b) * float(rho) - float(epsilon)) - (1 + b) * math.log1p(1 / b) - log

    low, high = -20.0, math.log(1 + float(epsilon / rho)) + 20.0
    for _ in range(200):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if exponent(left) <= exponent(right) else (left, high)
    order = Fraction(1 + math.exp(low)).limit_denominator(10**12)
    order = max(order, 1 + Fraction(1, 10**9))
    # ln(bound) = (a - 1) (a rho - epsilon) - a ln(a / (a - 1)) - ln(a - 1). Rounding both logarithms down ensures that
    # the power is at least the exact one.
    power = (order - 1) * (order * rho - epsilon) - order * _log_down(order / (order - 1)) - _log_down(order - 1)
    # A smaller power could make the exponential underflow to 0. No problem can state a delta as small as this.
    power = max(power, LEAST_POWER)
    exponential: Fraction = Fraction(CONTEXT.exp(CONTEXT.divide(power.numerator, power.denominator)))
    return exponential * (1 + TINY) ** 2


def _log_down(x: Fraction) -> Fraction:
    """Return a lower bound on ln(x) for x > 0, with an error of at most 1e-109 |ln(x)| + 1e-118."""
    if x >= 1:
        return log_down(x)
    # ln(x) = -ln(1 / x). log_down may be too low by a relative 2e-110 plus 1e-119, which is added to get an upper
    # bound.
    return -(log_down(1 / x) + Fraction(1, 10**119)) * (1 + 4 * TINY)


def ratio(text: str) -> Fraction:
    """Parse a positive noise scale, written as an integer or a fraction of integers.

    Raises:
        RefusedError: The string is not a positive integer or fraction.
    """
    parts = text.split("/")
    is_ratio = len(parts) <= 2 and all(part.isascii() and part.isdigit() and len(part) < 1000 for part in parts)
    need(is_ratio and all(map(int, parts)), f"noisy.npz: scale {text[:40]!r}", 2)
    return Fraction(text)
