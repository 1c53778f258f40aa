"""The certificate of additive noise: what its scales spend, in exact rationals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from attrs import frozen

from privopt.errors import UsageError

__all__ = ["MeasuredBudget", "certify_additive"]


@frozen(kw_only=True)
class MeasuredBudget:
    """The certificate of additive noise: what it spends, in exact rationals.

    Attributes:
        holds: ``spent <= allowed``.
        spent: sum of sensitivity / scale.
        allowed: epsilon.
        checked: number of noisy queries summed.
        arithmetic: what the verdict rests on, in words.
    """

    holds: bool
    spent: Fraction
    allowed: Fraction
    checked: int
    arithmetic: str


def certify_additive(parts: Sequence[tuple[Fraction | int, Fraction | float]], epsilon: Fraction) -> MeasuredBudget:
    """The certificate of additive Laplace or geometric noise: sum of sensitivity / scale, in exact rationals.

    Args:
        parts: (sensitivity, scale) of each query that one change of the input moves; a float scale is the rational
            that it is.
        epsilon: exact.

    Raises:
        UsageError: a negative sensitivity, a scale that is not positive and finite.

    >>> certify_additive([(2, Fraction(20)), (1, Fraction(30))], Fraction(1, 7)).spent
    Fraction(2, 15)
    """
    spent = Fraction(0)
    for sensitivity, scale in parts:
        if isinstance(scale, float) and not math.isfinite(scale):
            raise UsageError(f"a scale is {scale}; wanted a finite number above 0")
        if scale <= 0 or sensitivity < 0:
            raise UsageError(f"sensitivity {sensitivity} over scale {scale}: wanted at least 0 over more than 0")
        spent += Fraction(sensitivity) / Fraction(scale)
    return MeasuredBudget(
        holds=spent <= epsilon,
        spent=spent,
        allowed=epsilon,
        checked=len(parts),
        arithmetic="sum of sensitivity / scale in exact rationals",
    )
