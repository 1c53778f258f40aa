"""Round a number to a grid that is published with it, so that programs with different rounding errors agree.

The number is rounded to an odd multiple of half a unit. The publishing program has an interval that contains the
number. It chooses the unit such that this interval, widened by a margin, lies between two neighbouring multiples of the
unit, and publishes the unit too. A fixed grid would not work, because programs with different errors would round
numbers near a grid point differently.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from privopt.numbers.exp_log_bounds import float_down

FINEST: Final = 2.0**-48
"""The smallest unit, relative to the number."""
COARSEST: Final = 2.0**-30
"""The largest unit for a stated loss: relative to the loss, or absolute if the loss is below 1."""
HALF: Final = Fraction(1, 2)


def choose_unit(lower: float, upper: float, maximum: float = math.inf) -> float:
    """Return a unit for which all numbers in an interval, and those just outside it, round down to the same value.

    Args:
        lower, upper: Bounds of the interval, finite.
        maximum: Upper limit on the numbers, if one is known, such as 1 for a probability.
    """
    # The interval is widened by a quarter of its width on both sides, for programs with other rounding errors. The
    # constant 2^-1000 keeps the width above 0, and 1 + 2^-40 covers the rounding errors of this function.
    width = max(upper - lower, FINEST * abs(lower), 2.0**-1000)
    padded_lower, padded_upper = min(lower - width / 4.0, maximum), upper + width / 4.0
    min_unit = max(padded_upper - padded_lower, width) * (1.0 + 2.0**-40)
    # The unit makes the lower end itself an odd multiple of half a unit (``halves`` units), and is at least as long as
    # the interval, which therefore lies between two neighbouring multiples. If the interval is near 0, it lies between
    # half a unit below and above 0.
    halves = math.floor(abs(padded_lower) / min_unit + 0.5) - 0.5
    return abs(padded_lower) / halves if halves > 0.0 else 2.0 * max(abs(padded_lower), abs(padded_upper))


def stated_below(number: float, unit: float) -> float:
    """Return a number rounded down to an odd multiple of half a unit, then to a double.

    >>> stated_below(10.3, 1.0), stated_below(-10.3, 1.0)
    (9.5, -10.5)
    """
    return float_down((math.floor(Fraction(number) / Fraction(unit) + HALF) - HALF) * Fraction(unit))


def stated_above(number: float, unit: float) -> float:
    """Return a number rounded up to an odd multiple of half a unit, then to a double.

    >>> stated_above(10.3, 1.0), stated_above(-10.3, 1.0)
    (10.5, -9.5)
    """
    return -stated_below(-number, unit)
