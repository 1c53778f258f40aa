"""Round a number on a grid that is published with it, so that programs with other rounding errors agree on it.

The number is rounded to an odd multiple of half a unit. The program that publishes it chooses the unit from an interval
that contains the number, so that the interval and a margin lie between the same two multiples. The unit is published as
well. A fixed grid would not do: numbers near its edges would be rounded differently by programs with other errors.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from privopt.numbers.exp_log_bounds import float_down

FINEST: Final = 2.0**-48
"""The smallest unit, relative to the number."""
COARSEST: Final = 2.0**-30
"""The largest unit of a loss: relative to the loss, or absolute if the loss is below 1."""
HALF: Final = Fraction(1, 2)


def choose_unit(lower: float, upper: float, maximum: float = math.inf) -> float:
    """Choose a unit with which all numbers in an interval, and slightly outside, are rounded down to the same value.

    Args:
        low, high: bounds of the interval, finite.
        maximum: upper limit of the rounded value.
    """
    width = max(upper - lower, FINEST * abs(lower), 2.0**-1000)
    padded_lower, padded_upper = min(lower - width / 4.0, maximum), upper + width / 4.0
    min_unit = max(padded_upper - padded_lower, width) * (1.0 + 2.0**-40)
    halves = math.floor(abs(padded_lower) / min_unit + 0.5) - 0.5
    return abs(padded_lower) / halves if halves > 0.0 else 2.0 * max(abs(padded_lower), abs(padded_upper))


def stated_below(number: float, unit: float) -> float:
    """Return a number rounded down to an odd multiple of half a unit, then to a double.

    >>> stated_below(10.3, 1.0), stated_below(-10.3, 1.0)
    (9.5, -10.5)
    """
    return float_down((math.floor(Fraction(number) / Fraction(unit) + HALF) - HALF) * Fraction(unit))


def stated_above(number: float, unit: float) -> float:
    """Return a number rounded up likewise.

    >>> stated_above(10.3, 1.0), stated_above(-10.3, 1.0)
    (10.5, -9.5)
    """
    return -stated_below(-number, unit)
