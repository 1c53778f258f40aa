"""Exact arithmetic and exact sampling for the classic mechanisms.

This module provides a rational lower bound on exp(epsilon), and random events with exact probabilities.
"""

from __future__ import annotations

import os
from fractions import Fraction
from typing import Final

from privopt.numbers import Source, exp_fixed
from privopt.numbers.integer_draws import draw_below, draw_bernoulli_exp

__all__ = ["MAX_EPSILON", "MIN_EPSILON", "check_epsilon", "draw_event", "draw_exp_event", "odds_below"]

MIN_EPSILON: Final = Fraction(1, 10**6)
"""The smallest epsilon that the classic mechanisms accept. Below it, reports would reveal almost nothing."""

MAX_EPSILON: Final = Fraction(40)
"""The largest epsilon that the classic mechanisms accept. Above it, reports would hide almost nothing."""

_BITS: Final = 64
"""The number of fractional bits of the rational lower bound on exp(epsilon)."""


def check_epsilon(value: Fraction) -> str | None:
    """Return None if ``value`` is a valid epsilon, and a description of the valid values otherwise.

    Valid values range from :data:`MIN_EPSILON` to :data:`MAX_EPSILON`, inclusive.
    """
    if MIN_EPSILON <= value <= MAX_EPSILON:
        return None
    return f"a number between {float(MIN_EPSILON):g} and {float(MAX_EPSILON):g}"


def odds_below(epsilon: Fraction) -> Fraction:
    """Return a rational r with exp(epsilon) - 2**-62 < r <= exp(epsilon).

    Local mechanisms use r in place of exp(epsilon) as the largest ratio between a report's probabilities under two
    secrets. All their probabilities are then rational and can be sampled exactly.

    >>> 2.718281828459045 <= float(odds_below(Fraction(1))) < 2.718281828459046
    True
    """
    lower_bound, _ = exp_fixed(epsilon, _BITS)
    # The lower bound may be slightly below 1, although exp(epsilon) is at least 1.
    return Fraction(max(lower_bound, 1 << _BITS), 1 << _BITS)


def draw_event(probability: Fraction, source: Source = os.urandom) -> bool:
    """Return True with exactly the given probability.

    Args:
        probability: A rational number from 0 to 1.
        source: A function that returns a given number of random bytes.
    """
    return draw_below(probability.denominator, source) < probability.numerator


def draw_exp_event(exponent: Fraction, source: Source = os.urandom) -> bool:
    """Return True with probability exactly exp(-exponent).

    Args:
        exponent: A non-negative rational number.
        source: A function that returns a given number of random bytes.
    """
    # exp(-x) is a product of several factors exp(-1) and a factor exp(-rest). For each factor an independent event with
    # this probability is drawn, and all of them must occur.
    while exponent > 1:
        if not draw_exp_event(Fraction(1), source):
            return False
        exponent -= 1
    return draw_bernoulli_exp(exponent.numerator, exponent.denominator, source)
