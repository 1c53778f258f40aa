"""Notions for Gaussian noise: zero-concentrated DP, and (epsilon, delta)-DP proved through it."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar, Final, TypeVar

from privopt.interfaces.claims import AGAIN, Guarantee
from privopt.interfaces.notions import USELESS_FACTOR, BoundedOdds, factor
from privopt.interfaces.privacy import Shift
from privopt.interfaces.result import Result
from privopt.numbers.exp_log_bounds import float_up
from privopt.numbers.gaussian import delta_of, rho_of

R_contra = TypeVar("R_contra", contravariant=True)

STATED_DELTA: Final = 1e-6


class ZCDP(BoundedOdds[R_contra]):
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
        """Return rho of one call."""
        if shift.law == "gaussian":
            return shift.square / (2 * shift.scale)
        return (shift.change / shift.scale) ** 2 / 2

    @classmethod
    def allowed(cls, guarantee: Guarantee) -> Fraction | None:
        """Return rho."""
        return Fraction(guarantee.extra["rho_text"])

    @classmethod
    def curve(cls, guarantee: Guarantee) -> tuple[tuple[float, float], ...]:
        """Return epsilon for rho at three deltas, rounded up."""
        rho = cls.allowed(guarantee)
        assert rho is not None  # this kind states it
        points = [rho + Fraction(step * math.sqrt(rho)) for step in (0.25, 0.75, 1.5)]
        return tuple((float_up(epsilon), float_up(delta_of(rho, epsilon))) for epsilon in points)

    @classmethod
    def point(cls, guarantee: Guarantee) -> tuple[float, float]:
        """Return epsilon at a delta of one in a million (Bun and Steinke, Proposition 1.3), and that delta."""
        rho = cls.allowed(guarantee)
        assert rho is not None  # as above
        return float(rho) + 2 * math.sqrt(float(rho) * math.log(1 / STATED_DELTA)), STATED_DELTA

    @classmethod
    def bound(cls, guarantee: Guarantee) -> str:
        """Return a factor of odds, and a probability that comes on top."""
        epsilon, delta = cls.point(guarantee)
        rho = f"at rho = {guarantee.extra['rho_text']}, " if "rho_text" in guarantee.extra else ""
        return (
            f"{rho}whether or not {guarantee.scope or 'one individual'}, any set of results is at most "
            f"{factor(epsilon)} as likely in the one case as in the other, plus a probability of {delta:.3g}"
        )

    @classmethod
    def hidden(cls, guarantee: Guarantee) -> str:
        """Describe what stays hidden if the factor and the added probability are small: little shows."""
        epsilon, delta = cls.point(guarantee)
        if epsilon <= math.log(USELESS_FACTOR) and delta <= 1 / USELESS_FACTOR:
            return super().hidden(guarantee)
        return (
            "What one individual changes may show (who guesses between two cases, equally likely before, is right in "
            f"at most {math.ceil(1000 * cls.guess(guarantee)) / 10:g} % of cases)"
        )

    @classmethod
    def guess(cls, guarantee: Guarantee) -> float:
        """Bound how often a guess is right, by the divergence of order 1, at most rho (Bretagnolle and Huber 1979)."""
        rho = cls.allowed(guarantee)
        assert rho is not None  # as above
        return (1 + math.sqrt(-math.expm1(-float(rho)))) / 2

    @classmethod
    def limits(cls, result: Result) -> tuple[list[str], list[str]]:
        """Say that the variance is checked, and that no one can check that the noise was drawn."""
        checked = ["The noise's variance against the squares of what one individual can change, in rationals."]
        drawn = "That the noise was really drawn at that variance: one release cannot show it."
        return checked, [AGAIN.replace("epsilon", "the budget"), drawn]


class ApproxDP(ZCDP[R_contra]):
    """(epsilon, delta)-differential privacy between neighbouring inputs (Dwork et al., EUROCRYPT 2006).

    Kept by noise whose rho is proved to imply it (:func:`privopt.numbers.gaussian.delta_of`). A mechanism's own
    constraint puts ``delta`` and its exact text ``delta_text`` into its guarantee's ``extra``.
    """

    kind: ClassVar[str] = "approx-dp"

    @classmethod
    def allowed(cls, guarantee: Guarantee) -> Fraction | None:
        """Return the largest rho that is proved to imply it."""
        assert guarantee.epsilon is not None  # this kind states both
        return rho_of(guarantee.epsilon, Fraction(guarantee.extra["delta_text"]))

    @classmethod
    def curve(cls, guarantee: Guarantee) -> tuple[tuple[float, float], ...]:
        """Return epsilon and delta themselves."""
        assert guarantee.epsilon is not None  # as above
        return ((float_up(guarantee.epsilon), float_up(Fraction(guarantee.extra["delta_text"]))),)

    @classmethod
    def point(cls, guarantee: Guarantee) -> tuple[float, float]:
        """Return epsilon and delta themselves."""
        return cls.curve(guarantee)[0]

    @classmethod
    def guess(cls, guarantee: Guarantee) -> float:
        """Return the most often that a guess can be right, by epsilon and delta."""
        return super(ZCDP, cls).guess(guarantee)
