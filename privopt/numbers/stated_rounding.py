"""Rounding to a published grid, so that programs with different rounding errors agree on the result.

A number is rounded to an odd multiple of half a unit. The publishing program knows an interval that contains the
number. It chooses the unit so that this interval, widened by a margin, lies between two neighbouring points of the
resulting grid, and publishes the unit with the number. A fixed grid would not work, because programs with different
rounding errors would round numbers near a grid point differently.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from privopt.numbers.exp_log_bounds import float_down

FINEST: Final = 2.0**-48
"""The smallest unit, as a fraction of the number."""
COARSEST: Final = 2.0**-30
"""The largest unit for a published loss: absolute if the loss is below 1, and otherwise relative to the loss."""
HALF: Final = Fraction(1, 2)


def choose_unit(lower: float, upper: float, maximum: float = math.inf) -> float:
    """Choose a unit for which :func:`stated_below` rounds all numbers in or near an interval to the same value.

    Args:
        lower, upper: The finite bounds of the interval.
        maximum: An upper limit on the numbers, such as 1 for probabilities. By default, there is no limit.
    """
    # Widen the interval by a quarter of its width on both sides, for programs with other rounding errors. The constant
    # 2^-1000 keeps the width above 0, and the factor 1 + 2^-40 covers the rounding errors of this function.
    width = max(upper - lower, FINEST * abs(lower), 2.0**-1000)
    padded_lower, padded_upper = min(lower - width / 4.0, maximum), upper + width / 4.0
    min_unit = max(padded_upper - padded_lower, width) * (1.0 + 2.0**-40)
    # Choose the unit so that the lower bound is itself an odd multiple of half a unit (``halves`` units). The unit is
    # at least as long as the interval, which therefore lies between two neighbouring odd multiples. An interval near 0
    # lies between half a unit below 0 and half a unit above 0.
    halves = math.floor(abs(padded_lower) / min_unit + 0.5) - 0.5
    return abs(padded_lower) / halves if halves > 0.0 else 2.0 * max(abs(padded_lower), abs(padded_upper))


def stated_below(number: float, unit: float) -> float:
    """Round a number down to an odd multiple of half a unit, and then down to a double.

    >>> stated_below(10.3, 1.0), stated_below(-10.3, 1.0)
    (9.5, -10.5)
    """
    return float_down((math.floor(Fraction(number) / Fraction(unit) + HALF) - HALF) * Fraction(unit))


def stated_above(number: float, unit: float) -> float:
    """Round a number up to an odd multiple of half a unit, and then up to a double.

    >>> stated_above(10.3, 1.0), stated_above(-10.3, 1.0)
    (10.5, -9.5)
    """
    return -stated_below(-number, unit)
