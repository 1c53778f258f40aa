"""Privacy notions, a utility loss and base classes for mechanisms that publish a law.

A law is the probability distribution of reports for each secret (see :class:`privopt_classics.laws.ReportLaw`).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar, TypeVar

from attrs import frozen

from privopt.interfaces import (
    Certificate,
    Guarantee,
    Mechanism,
    Outcome,
    PrivacyConstraint,
    SolveContext,
    UtilityLoss,
)
from privopt.interfaces.notions import LocalDP, PureDP
from privopt.numbers.exp_log_bounds import float_up, log_bounds
from privopt_classics.exact import odds_below
from privopt_classics.laws import ReportLaw


def _certify(kind: str, is_allowed: bool, worst: float, epsilon: Fraction, arithmetic: str) -> Certificate:
    """Return a certificate that states whether a law satisfies the claimed epsilon.

    Args:
        kind: The kind of guarantee.
        is_allowed: Whether the law provably satisfies the claimed epsilon.
        worst: An upper bound on the law's actual epsilon. It is for information only and does not affect the verdict.
        epsilon: The claimed epsilon.
        arithmetic: A description of the arithmetic used to determine ``is_allowed``.
    """
    allowed = float(epsilon)
    return Certificate(
        holds=is_allowed,
        evidence="declared",
        kind=kind,
        worst=min(worst, allowed) if is_allowed else worst,  # rounding must not contradict the verdict
        allowed=allowed,
        checked=1,
        arithmetic=arithmetic,
        rests_on="that reports are drawn by the stated law",
    )


@frozen(kw_only=True)
class OddsBound(LocalDP[ReportLaw]):
    """Local DP for a law whose parameter r bounds the ratio between a report's probabilities under any two secrets.

    The docstring of each law's module contains the proof that r is such a bound.

    Attributes:
        epsilon: The claimed epsilon, as an exact number.
    """

    epsilon: Fraction

    @property
    def guarantee(self) -> Guarantee:
        """The claimed guarantee: local DP per person.

        Any report is at most exp(epsilon) times as likely under one secret as under any other.
        """
        words = "Whatever is reported is at most exp(epsilon) times as likely under one answer as under another."
        return Guarantee(kind=self.kind, epsilon=self.epsilon, unit="per person", scope="one answer", statement=words)

    def measure(self, release: ReportLaw) -> Certificate:
        """Check whether the law's parameter r satisfies 1 <= r <= exp(epsilon).

        For the upper bound, r is compared with a rational number that is known to be at most exp(epsilon) (see
        :func:`privopt_classics.exact.odds_below`).
        """
        odds = release.parameter
        # If r were below 1, the largest ratio of probabilities would be 1 / r, so the upper limit alone would prove
        # nothing.
        is_allowed = 1 <= odds <= odds_below(self.epsilon)
        _, worst = log_bounds(max(odds, 1 / odds), Fraction(1))
        words = "r <= exp(epsilon) by ball arithmetic; the law is rational in r"
        return _certify(self.kind, is_allowed, worst, self.epsilon, words)


@frozen(kw_only=True)
class RateBound(PureDP[ReportLaw]):
    """Pure DP for a law that adds noise to a number.

    The guarantee holds if the rate of the noise is at most epsilon.

    Attributes:
        epsilon: The claimed epsilon, as an exact number.
    """

    epsilon: Fraction

    @property
    def guarantee(self) -> Guarantee:
        """The claimed guarantee: pure DP per person."""
        words = "What one person can change makes no report more than exp(epsilon) times as likely."
        return Guarantee(kind=self.kind, epsilon=self.epsilon, unit="per person", scope="one person", statement=words)

    def measure(self, release: ReportLaw) -> Certificate:
        """Check in rational arithmetic whether the rate of the law's noise is at most epsilon."""
        rate = release.parameter
        return _certify(self.kind, rate <= self.epsilon, float_up(rate), self.epsilon, "rationals")


@frozen(kw_only=True)
class StatedLoss(UtilityLoss[ReportLaw]):
    """The expected loss of a law, which the law itself provides in closed form.

    Attributes:
        unit: The unit of the loss.
    """

    unit: str

    def evaluate(self, release: ReportLaw) -> float:
        """Return the law's expected loss."""
        return release.expected_loss()


P = TypeVar("P")


class _LawMechanism(Mechanism[P, ReportLaw]):
    """A mechanism that publishes a law, i.e. the distribution of reports for each secret.

    The mechanism itself reads no secret data.

    Attributes:
        release_class: The class of the law.
        loss_unit: The unit of the law's expected loss.
    """

    release_class: ClassVar[type[ReportLaw]]
    loss_unit: ClassVar[str]

    def utility(self, problem: P, method: str) -> StatedLoss:
        """Return the utility loss: the law's expected loss, measured in ``loss_unit``."""
        return StatedLoss(unit=self.loss_unit)

    def parameter(self, problem: Any) -> Fraction:
        """Return the law's parameter r, the largest ratio between a report's probabilities under any two secrets.

        It is a rational number that is very close to exp(epsilon) but does not exceed it.
        """
        return odds_below(problem.privacy.epsilon)

    def solve(self, problem: P, context: SolveContext) -> Outcome[ReportLaw]:
        """Return the law. It is known in closed form, so no search is needed."""
        return Outcome(release=self.release_class(problem=problem, parameter=self.parameter(problem)))


class LocalMechanism(_LawMechanism[P]):
    """A mechanism in the local model, where each person randomises their own report."""

    def privacy(self, problem: Any, method: str) -> PrivacyConstraint[ReportLaw]:
        """Return the privacy constraint on the law: local DP with the problem's epsilon."""
        return OddsBound(epsilon=problem.privacy.epsilon)


class CountMechanism(_LawMechanism[P]):
    """A mechanism in the central model, where the data curator adds noise to a number."""

    def privacy(self, problem: Any, method: str) -> PrivacyConstraint[ReportLaw]:
        """Return the privacy constraint on the law: pure DP with the problem's epsilon."""
        return RateBound(epsilon=problem.privacy.epsilon)

    def parameter(self, problem: Any) -> Fraction:
        """Return the law's parameter: the rate of the noise, which equals epsilon."""
        return Fraction(problem.privacy.epsilon)
