"""Exact numbers and draws for the classics: a rational below exp(epsilon), and events with exact probabilities."""

from __future__ import annotations

import os
from fractions import Fraction
from typing import Final

from privopt.numbers import Source, exp_fixed
from privopt.numbers.integer_draws import draw_below, draw_bernoulli_exp

__all__ = ["MAX_EPSILON", "MIN_EPSILON", "check_epsilon", "draw_event", "draw_exp_event", "odds_below"]

MIN_EPSILON: Final = Fraction(1, 10**6)
"""Smallest epsilon. With a smaller one, reports reveal almost nothing."""

MAX_EPSILON: Final = Fraction(40)
"""Largest epsilon. With a larger one, reports hide almost nothing."""

_BITS: Final = 64
"""Number of fractional bits of the rational below exp(epsilon)."""


def check_epsilon(value: Fraction) -> str | None:
    """Return None if epsilon is from :data:`MIN_EPSILON` to :data:`MAX_EPSILON`, else a description of that range."""
    if MIN_EPSILON <= value <= MAX_EPSILON:
        return None
    return f"a number between {float(MIN_EPSILON):g} and {float(MAX_EPSILON):g}"


def odds_below(epsilon: Fraction) -> Fraction:
    """Return a rational r with exp(epsilon) - 2**-62 < r <= exp(epsilon), for exact probabilities of a local mechanism.

    >>> 2.718281828459045 <= float(odds_below(Fraction(1))) < 2.718281828459046
    True
    """
    lower_bound, _ = exp_fixed(epsilon, _BITS)
    # exp(epsilon) is at least 1, but a lower bound of it may be a little less.
    return Fraction(max(lower_bound, 1 << _BITS), 1 << _BITS)


def draw_event(probability: Fraction, source: Source = os.urandom) -> bool:
    """Return True with exactly the given rational probability. ``source`` returns a given number of random bytes."""
    return draw_below(probability.denominator, source) < probability.numerator


def draw_exp_event(exponent: Fraction, source: Source = os.urandom) -> bool:
    """Return True with probability exp(-exponent), exactly.

    Args:
        exponent: A rational of at least 0.
        source: Function that returns a given number of random bytes.
    """
    # exp(-x) is a product of factors exp(-1) and one factor exp(-rest). An independent event is drawn for each factor,
    # and all of them must occur.
    while exponent > 1:
        if not draw_exp_event(Fraction(1), source):
            return False
        exponent -= 1
    return draw_bernoulli_exp(exponent.numerator, exponent.denominator, source)
