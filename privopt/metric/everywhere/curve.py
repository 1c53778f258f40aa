"""S-shaped snapping on a street: how likely its far end is drawn, as a rational (mathematics C2).

A street of length l is cut into 2n equal pieces. With t = epsilon l / (2n) and a = 2 ((1 + t)^n - 1) the far end's
share at the j-th of the first n breakpoints is ((1 + t)^j - 1) / a, linear between; the other half mirrors the first.
A mixture of two end rows z_a, z_b with z_b <= (1 + a) z_a and back then changes by at most exp(epsilon d) over any d
km. n = 0 is linear snapping: the share is the part of the way gone, and a = epsilon l.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np

from privopt.arrays import Floats
from privopt.metric.everywhere.region import street_growth

__all__ = ["STEEPEST", "far_share", "far_shares"]

STEEPEST: Final = 2.0**56
"""Reaches above this have the same shares, to double precision."""


def far_share(part: Fraction, reach: Fraction, steps: int) -> Fraction:
    """The far end's share, exactly.

    Args:
        part: of the way to the far end, from 0 to 1.
        reach: epsilon times the street's length.
        steps: n.

    >>> far_share(Fraction(1, 4), Fraction(1, 2), 0), far_share(Fraction(3, 4), Fraction(8), 2)
    (Fraction(1, 4), Fraction(7, 8))
    """
    if 2 * part > 1:
        return 1 - far_share(1 - part, reach, steps)
    if not steps or not reach:
        return part
    piece = 2 * steps * part
    gone = piece.numerator // piece.denominator
    step = reach / (2 * steps)
    return ((1 + step) ** gone * (1 + (piece - gone) * step) - 1) / street_growth(reach, 1.0, steps)


def far_shares(part: Floats, reach: Floats, steps: int) -> Floats:
    """:func:`far_share` of many, in doubles: off by less than 2**-40 for up to 16 steps.

    Args:
        part: (B,) of the way to the far end.
        reach: (B,) epsilon times the streets' lengths; infinite ones are as good as large ones.
        steps: n.
    """
    if not steps:
        return part
    near = np.minimum(part, 1.0 - part)
    step = np.minimum(reach, STEEPEST) / (2 * steps)
    gone = np.minimum(np.floor(2 * steps * near), steps)
    risen = gone * np.log1p(step) + np.log1p((2 * steps * near - gone) * step)  # logarithms: powers may be no doubles
    whole = steps * np.log1p(step)
    least = -2.0 * np.expm1(-whole)
    share = np.divide(-np.expm1(-risen) * np.exp(risen - whole), least, out=near.copy(), where=reach > 1e-15)
    shares: Floats = np.where(part > 0.5, 1.0 - share, share)
    return shares
