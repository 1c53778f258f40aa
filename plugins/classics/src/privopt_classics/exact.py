"""Exact arithmetic and exact sampling for the classic mechanisms.

The module provides a rational lower bound on exp(epsilon), and random events whose probabilities are exact.
"""

from __future__ import annotations

import os
from fractions import Fraction
from typing import Final

from privopt.numbers import Source, exp_fixed
from privopt.numbers.integer_draws import draw_below, draw_bernoulli_exp

__all__ = ["MAX_EPSILON", "MIN_EPSILON", "check_epsilon", "draw_event", "draw_exp_event", "odds_below"]

MIN_EPSILON: Final = Fraction(1, 10**6)
"""The smallest epsilon that the classics accept. With a smaller value, reports would reveal almost nothing."""

MAX_EPSILON: Final = Fraction(40)
"""The largest epsilon that the classics accept. With a larger value, reports would hide almost nothing."""

_BITS: Final = 64
"""The number of fractional bits in the rational just below exp(epsilon)."""


def check_epsilon(value: Fraction) -> str | None:
    """Return a description of valid values if ``value`` is not a valid epsilon, or None if it is.

    The valid range extends from :data:`MIN_EPSILON` to :data:`MAX_EPSILON`, both included.
    """
    if MIN_EPSILON <= value <= MAX_EPSILON:
        return None
    return f"a number between {float(MIN_EPSILON):g} and {float(MAX_EPSILON):g}"


def odds_below(epsilon: Fraction) -> Fraction:
    """Return a rational r with exp(epsilon) - 2**-62 < r <= exp(epsilon).

    Local mechanisms use r instead of exp(epsilon) as the largest ratio between a report's probabilities under two
    secrets. All their probabilities are then rational and can be sampled exactly.

    >>> 2.718281828459045 <= float(odds_below(Fraction(1))) < 2.718281828459046
    True
    """
    lower_bound, _ = exp_fixed(epsilon, _BITS)
    # exp(epsilon) is at least 1, but the lower bound on it may be slightly below 1.
    return Fraction(max(lower_bound, 1 << _BITS), 1 << _BITS)


def draw_event(probability: Fraction, source: Source = os.urandom) -> bool:
    """Return True with exactly the given rational probability.

    Args:
        probability: A rational from 0 to 1.
        source: A function that returns a given number of random bytes.
    """
    return draw_below(probability.denominator, source) < probability.numerator


def draw_exp_event(exponent: Fraction, source: Source = os.urandom) -> bool:
    """Return True with a probability of exactly exp(-exponent).

    Args:
        exponent: A non-negative rational.
        source: A function that returns a given number of random bytes.
    """
    # exp(-x) is a product of factors exp(-1) and one factor exp(-rest). An independent event is drawn for each factor,
    # and all of them must occur.
    while exponent > 1:
        if not draw_exp_event(Fraction(1), source):
            return False
        exponent -= 1
    return draw_bernoulli_exp(exponent.numerator, exponent.denominator, source)
