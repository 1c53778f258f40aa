"""Notions that Gaussian noise keeps: zero-concentrated DP, and (epsilon, delta)-DP that is proved through it."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar, TypeVar

from privopt.exact.bounds import float_up
from privopt.exact.gaussian import delta_of, rho_of
from privopt.interfaces.claims import AGAIN, Guarantee
from privopt.interfaces.notions import factor
from privopt.interfaces.result import Result
from privopt.interfaces.seams import PrivacyConstraint, Shift

__all__ = ["ZCDP", "ApproxDP"]

R_contra = TypeVar("R_contra", contravariant=True)


class ZCDP(PrivacyConstraint[R_contra]):
    """rho-zero-concentrated differential privacy between neighbouring inputs (Bun and Steinke, TCC 2016).

    The Renyi divergence of order a is at most rho a for every a > 1. Discrete Gaussian noise of variance V on numbers
    whose squares change by D in all spends D / (2 V) (Canonne, Kamath and Steinke 2020, Theorem 4); noise that is
    epsilon-DP spends epsilon^2 / 2 (Bun and Steinke, Proposition 1.4). Calls add up.

    A mechanism's own constraint subclasses it, puts ``rho`` and its exact text ``rho_text`` into its guarantee's
    ``extra``, and says which inputs are neighbours in the statement.
    """

    kind: ClassVar[str] = "zcdp"
    tails: ClassVar[bool] = True

    @classmethod
    def spent(cls, shift: Shift) -> Fraction | None:
        """rho of one call."""
        if shift.law == "gaussian":
            return shift.square / (2 * shift.scale)
        return (shift.change / shift.scale) ** 2 / 2

    @classmethod
    def allowed(cls, guarantee: Guarantee) -> Fraction | None:
        """rho."""
        return Fraction(guarantee.extra["rho_text"])

    @classmethod
    def curve(cls, guarantee: Guarantee) -> tuple[tuple[float, float], ...]:
        """What follows from rho at three epsilons, each with its delta, rounded up."""
        rho = cls.allowed(guarantee)
        assert rho is not None  # this kind states it
        points = [rho + Fraction(step * math.sqrt(rho)) for step in (0.25, 0.75, 1.5)]
        return tuple((float_up(epsilon), float_up(delta_of(rho, epsilon))) for epsilon in points)

    @classmethod
    def promise(cls, result: Result) -> str:
        """How much one individual can change, at a delta of one in a million."""
        guarantee = result.guarantee
        rho = cls.allowed(guarantee)
        assert rho is not None  # as above
        epsilon = float(rho) + 2 * math.sqrt(float(rho) * math.log(1e6))  # Bun and Steinke, Proposition 1.3
        return (
            f"What one individual changes hardly shows (rho = {float(rho):g}): whether or not "
            f"{guarantee.scope or 'one individual'}, any set of results is at most {factor(epsilon)} as likely in the "
            "one case as in the other, plus one in a million."
        )

    @classmethod
    def limits(cls, result: Result) -> tuple[list[str], list[str]]:
        """The variance is checked; that the noise was drawn cannot be."""
        checked = ["The noise's variance against the squares of what one individual can change, in rationals."]
        drawn = "That the noise was really drawn at that variance: one release cannot show it."
        return checked, [AGAIN.replace("epsilon", "the budget"), drawn]


class ApproxDP(ZCDP[R_contra]):
    """(epsilon, delta)-differential privacy between neighbouring inputs (Dwork et al., EUROCRYPT 2006).

    Kept by noise whose rho is proved to imply it (:func:`privopt.exact.gaussian.delta_of`). A mechanism's own
    constraint puts ``delta`` and its exact text ``delta_text`` into its guarantee's ``extra``.
    """

    kind: ClassVar[str] = "approx-dp"

    @classmethod
    def allowed(cls, guarantee: Guarantee) -> Fraction | None:
        """The largest rho that is proved to imply it."""
        assert guarantee.epsilon is not None  # this kind states both
        return rho_of(guarantee.epsilon, Fraction(guarantee.extra["delta_text"]))

    @classmethod
    def curve(cls, guarantee: Guarantee) -> tuple[tuple[float, float], ...]:
        """epsilon and delta themselves."""
        assert guarantee.epsilon is not None  # as above
        return ((float_up(guarantee.epsilon), float_up(Fraction(guarantee.extra["delta_text"]))),)

    @classmethod
    def promise(cls, result: Result) -> str:
        """How much one individual can change."""
        guarantee = result.guarantee
        assert guarantee.epsilon is not None  # as above
        return (
            f"What one individual changes hardly shows: whether or not {guarantee.scope or 'one individual'}, any set "
            f"of results is at most {factor(float(guarantee.epsilon))} as likely in the one case as in the other, plus "
            f"{float_up(Fraction(guarantee.extra['delta_text'])):.3g}."
        )
