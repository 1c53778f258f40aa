"""Notions of privacy for Gaussian noise: zero-concentrated DP, and (epsilon, delta)-DP derived from it.

Gaussian noise has a finite rho but no finite epsilon, and rho adds up exactly across calls. Costs are therefore
measured in rho for both notions. For approximate DP, the total is converted to epsilon and delta
(:mod:`privopt.numbers.gaussian`).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar, Final, TypeVar

from privopt.interfaces.notions import CURATOR, BoundedOdds, describe_difference, factor, in_100
from privopt.interfaces.release import Shift
from privopt.interfaces.result import AGAIN, Guarantee, Result
from privopt.numbers.exp_log_bounds import float_up
from privopt.numbers.gaussian import delta_of, rho_of

R_contra = TypeVar("R_contra", contravariant=True)

STATED_DELTA: Final = 1e-6
"""The delta assumed when a guarantee in terms of rho is expressed in words."""


def one_in(probability: float) -> str:
    """Return a positive probability in the form "1 in N", with the probability rounded up.

    >>> one_in(1e-6), one_in(0.3), one_in(3e-20)
    ('1 in 1,000,000', '1 in 3', '1 in 10^19')
    """
    # The factor 1 + 1e-9 prevents a rounding error of the quotient from lowering the last digit.
    count = (1 + 1e-9) / probability
    return f"1 in {math.floor(count):,}" if count < 1e9 else f"1 in 10^{math.floor(math.log10(count))}"


class ZCDP(BoundedOdds[R_contra]):
    """rho-zero-concentrated differential privacy between neighbouring inputs (Bun and Steinke, TCC 2016).

    The notion requires the Renyi divergence of every order a > 1 to be at most rho * a. Discrete Gaussian noise of
    variance V on numbers that change by D in squared L2 norm costs D / (2 V) (Canonne, Kamath and Steinke 2020, Theorem
    4). Noise that is epsilon-DP costs epsilon^2 / 2 (Bun and Steinke, Proposition 1.4). The costs of successive
    additions of noise add up.

    Subclass this class to define a mechanism's constraint. The ``extra`` of its guarantee must contain ``rho`` and the
    exact text ``rho_text``. The guarantee's statement must say which inputs are neighbours.
    """

    kind: ClassVar[str] = "zcdp"
    tails: ClassVar[bool] = True

    @classmethod
    def cost_of_call(cls, shift: Shift) -> Fraction | None:
        """Return the cost in rho of adding Gaussian or Laplace noise once, as explained in the class docstring."""
        if shift.law == "gaussian":
            return shift.square / (2 * shift.scale)
        # Laplace noise is epsilon-DP with epsilon = change / scale.
        return (shift.change / shift.scale) ** 2 / 2

    @classmethod
    def budget_of(cls, guarantee: Guarantee) -> Fraction | None:
        """Return the rho of the guarantee."""
        return Fraction(guarantee.extra["rho_text"])

    @classmethod
    def curve(cls, guarantee: Guarantee) -> tuple[tuple[float, float], ...]:
        """Return three (epsilon, delta) pairs implied by rho, rounded up.

        The conformance kit searches for events that violate any of these pairs.
        """
        rho = cls.budget_of(guarantee)
        assert rho is not None  # a guarantee of this kind always has a rho
        # These epsilons are somewhat above rho. The privacy loss of Gaussian noise has mean rho and variance 2 rho.
        points = [rho + Fraction(step * math.sqrt(rho)) for step in (0.25, 0.75, 1.5)]
        return tuple((float_up(epsilon), float_up(delta_of(rho, epsilon))) for epsilon in points)

    @classmethod
    def point(cls, guarantee: Guarantee) -> tuple[float, float]:
        """Return (epsilon, 1e-6), with the epsilon implied by rho at this delta (Bun and Steinke, Proposition 1.3)."""
        rho = cls.budget_of(guarantee)
        assert rho is not None  # a guarantee of this kind always has a rho
        # This closed form, rho + 2 sqrt(rho log(1 / delta)), is larger than the epsilon that delta_of would give.
        return float(rho) + 2 * math.sqrt(float(rho) * math.log(1 / STATED_DELTA)), STATED_DELTA

    @classmethod
    def bound(cls, guarantee: Guarantee) -> str:
        """Return a clause bounding how often an attacker guesses right and how far the odds can change.

        The change in the odds is stated for the (epsilon, delta) pair from :meth:`point`.
        """
        # The guess comes first. The factor, which may only be exceeded with probability delta, is far larger than the
        # change in odds for most results.
        epsilon, delta = cls.point(guarantee)
        rho = f"at rho = {guarantee.extra['rho_text']}, " if "rho_text" in guarantee.extra else ""
        question = f"whether or not {describe_difference(guarantee)}"
        return (
            f"an attacker who must tell {question} is right at most {in_100(cls.guess(guarantee))}, by chance 50 "
            f"({rho}any set of results is at most {factor(epsilon)} as likely in the one case as in the other, plus a "
            f"probability of {one_in(delta)})"
        )

    @classmethod
    def guess(cls, guarantee: Guarantee) -> float:
        """Return an upper bound on the probability of a correct guess, derived from a KL divergence of at most rho.

        The guess is right with probability at most (1 + TV) / 2, where TV is the total variation distance. By Pinsker's
        inequality, TV is at most sqrt(KL / 2). By the Bretagnolle-Huber inequality (1979), it is also at most sqrt(1 -
        exp(-KL)), which is smaller if rho is above 1.6.
        """
        rho = cls.budget_of(guarantee)
        assert rho is not None  # a guarantee of this kind always has a rho
        # expm1 is accurate if rho is small.
        return (1 + math.sqrt(min(float(rho) / 2, -math.expm1(-float(rho))))) / 2

    @classmethod
    def trust(cls, result: Result) -> str:
        """Return a sentence naming the trusted party: the publisher, who holds the data and draws the noise."""
        return CURATOR

    @classmethod
    def limits(cls, result: Result) -> tuple[list[str], list[str]]:
        """Return two lists of lines: what was checked, and what a single release cannot show."""
        checked = ["The noise's variance against the squares of what one individual can change, in rationals."]
        unchecked_claim = "That the noise was really drawn at that variance: one release cannot show it."
        return checked, [AGAIN.replace("epsilon", "the budget"), unchecked_claim]


class ApproxDP(ZCDP[R_contra]):
    """(epsilon, delta)-differential privacy between neighbouring inputs (Dwork et al., EUROCRYPT 2006).

    Noise satisfies this notion if its rho provably implies the guarantee (:func:`privopt.numbers.gaussian.delta_of`).
    The guarantee's ``extra`` must contain ``delta`` and its exact text ``delta_text``.
    """

    kind: ClassVar[str] = "approx-dp"

    @classmethod
    def budget_of(cls, guarantee: Guarantee) -> Fraction | None:
        """Return the largest rho that provably implies the guarantee."""
        assert guarantee.epsilon is not None  # a guarantee of this kind always has epsilon and delta
        return rho_of(guarantee.epsilon, Fraction(guarantee.extra["delta_text"]))

    @classmethod
    def curve(cls, guarantee: Guarantee) -> tuple[tuple[float, float], ...]:
        """Return a tuple with just one pair: the guarantee's own (epsilon, delta), rounded up to doubles."""
        assert guarantee.epsilon is not None  # a guarantee of this kind always has epsilon and delta
        return ((float_up(guarantee.epsilon), float_up(Fraction(guarantee.extra["delta_text"]))),)

    @classmethod
    def point(cls, guarantee: Guarantee) -> tuple[float, float]:
        """Return the guarantee's epsilon and delta as doubles, rounded up."""
        return cls.curve(guarantee)[0]

    @classmethod
    def guess(cls, guarantee: Guarantee) -> float:
        """Return an upper bound on the probability of a correct guess, derived from epsilon and delta."""
        # Skip ZCDP.guess, because the guarantee has no rho, and its epsilon and delta give the bound directly.
        return super(ZCDP, cls).guess(guarantee)
