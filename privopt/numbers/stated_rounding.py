"""Round a number to half a unit, the unit chosen and stated, so that programs with other errors get the same double.

It is the number rounded to an odd multiple of half a unit. Anyone who states it chooses the unit, from what it knows of
the number, so that both ends and a little more lie between the same two multiples; the unit is stated too. A grid fixed
for all would not do: some numbers lie on an edge of it, and programs with errors of their own could not agree on them.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from privopt.numbers.exp_log_bounds import float_down

FINEST: Final = 2.0**-48
"""Share of a number that its unit is at least."""
COARSEST: Final = 2.0**-30
"""What the unit of a loss is at most: such a share of it, or so much where the loss is less than 1."""
HALF: Final = Fraction(1, 2)


def unit_for(low: float, high: float, maximum: float = math.inf) -> float:
    """Return a unit at which a number between two ends, and what is a little below or above, is rounded down alike.

    Args:
        low, high: the ends, finite.
        maximum: what the number rounded down may not be above.
    """
    doubt = max(high - low, FINEST * abs(low), 2.0**-1000)
    bottom, top = min(low - doubt / 4.0, maximum), high + doubt / 4.0
    wide = max(top - bottom, doubt) * (1.0 + 2.0**-40)
    halves = math.floor(abs(bottom) / wide + 0.5) - 0.5
    return abs(bottom) / halves if halves > 0.0 else 2.0 * max(abs(bottom), abs(top))


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
