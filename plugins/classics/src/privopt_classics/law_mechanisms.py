"""Privacy notions, the utility loss and base classes for mechanisms that publish a law.

A law is the probability distribution of reports for each secret (:class:`privopt_classics.laws.ReportLaw`).
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
    """Return the certificate for a law.

    Args:
        kind: The kind of guarantee.
        is_allowed: Whether an exact comparison has shown that the law satisfies the claimed epsilon.
        worst: An upper bound on the law's actual epsilon, for information only; the verdict does not depend on it.
        epsilon: The claimed epsilon.
        arithmetic: A description of the arithmetic in which the comparison was made.
    """
    allowed = float(epsilon)
    return Certificate(
        holds=is_allowed,
        evidence="declared",
        kind=kind,
        worst=min(worst, allowed) if is_allowed else worst,  # rounding must not make the bound contradict the verdict
        allowed=allowed,
        checked=1,
        arithmetic=arithmetic,
        rests_on="that reports are drawn by the stated law",
    )


@frozen(kw_only=True)
class OddsBound(LocalDP[ReportLaw]):
    """Local DP for a law whose parameter r bounds the ratio of a report's probabilities under any two secrets.

    The docstring of each law's module proves this bound.

    Attributes:
        epsilon: The claimed epsilon, exact.
    """

    epsilon: Fraction

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee stated for the release: local DP per person.

        A report is at most exp(epsilon) times as likely under one secret as under any other.
        """
        words = "Whatever is reported is at most exp(epsilon) times as likely under one answer as under another."
        return Guarantee(kind=self.kind, epsilon=self.epsilon, unit="per person", scope="one answer", statement=words)

    def measure(self, release: ReportLaw) -> Certificate:
        """Certify that the law's parameter r satisfies 1 <= r <= exp(epsilon).

        r is compared with :func:`privopt_classics.exact.odds_below`, a rational proved to be at most exp(epsilon).
        """
        odds = release.parameter
        # With r below 1, the largest ratio of probabilities would be 1 / r, so such a law is refused.
        is_allowed = 1 <= odds <= odds_below(self.epsilon)
        _, worst = log_bounds(max(odds, 1 / odds), Fraction(1))
        words = "r <= exp(epsilon) by ball arithmetic; the law is rational in r"
        return _certify(self.kind, is_allowed, worst, self.epsilon, words)


@frozen(kw_only=True)
class RateBound(PureDP[ReportLaw]):
    """Pure DP for a law that adds noise to a number, with a noise rate of at most epsilon.

    Attributes:
        epsilon: The claimed epsilon, exact.
    """

    epsilon: Fraction

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee stated for the release: pure DP per person."""
        words = "What one person can change makes no report more than exp(epsilon) times as likely."
        return Guarantee(kind=self.kind, epsilon=self.epsilon, unit="per person", scope="one person", statement=words)

    def measure(self, release: ReportLaw) -> Certificate:
        """Certify in rational arithmetic that the law's noise rate is at most epsilon."""
        rate = release.parameter
        return _certify(self.kind, rate <= self.epsilon, float_up(rate), self.epsilon, "rationals")


@frozen(kw_only=True)
class StatedLoss(UtilityLoss[ReportLaw]):
    """The expected loss of a law, which the law computes in closed form.

    Attributes:
        unit: The unit of the loss.
    """

    unit: str

    def evaluate(self, release: ReportLaw) -> float:
        """Return the expected loss of the law."""
        return release.expected_loss()


P = TypeVar("P")


class _LawMechanism(Mechanism[P, ReportLaw]):
    """A mechanism that publishes a law of reports and reads no secret.

    Attributes:
        release_class: The class of the law.
        loss_unit: The unit of the law's expected loss.
    """

    release_class: ClassVar[type[ReportLaw]]
    loss_unit: ClassVar[str]

    def utility(self, problem: P, method: str) -> StatedLoss:
        """Return the utility loss: the law's expected loss, in the mechanism's unit."""
        return StatedLoss(unit=self.loss_unit)

    def parameter(self, problem: Any) -> Fraction:
        """Return the law's parameter: its largest ratio of probabilities, a rational just below exp(epsilon)."""
        return odds_below(problem.privacy.epsilon)

    def solve(self, problem: P, context: SolveContext) -> Outcome[ReportLaw]:
        """Return the law. The problem determines it in closed form, so no search is needed."""
        return Outcome(release=self.release_class(problem=problem, parameter=self.parameter(problem)))


class LocalMechanism(_LawMechanism[P]):
    """A mechanism in the local model, in which each person draws their own report."""

    def privacy(self, problem: Any, method: str) -> PrivacyConstraint[ReportLaw]:
        """Return the constraint that the law must satisfy: local DP with the problem's epsilon."""
        return OddsBound(epsilon=problem.privacy.epsilon)


class CountMechanism(_LawMechanism[P]):
    """A mechanism in the central model, in which the data curator adds noise to a number."""

    def privacy(self, problem: Any, method: str) -> PrivacyConstraint[ReportLaw]:
        """Return the constraint that the law must satisfy: pure DP with the problem's epsilon."""
        return RateBound(epsilon=problem.privacy.epsilon)

    def parameter(self, problem: Any) -> Fraction:
        """Return the law's parameter: the noise rate, which equals epsilon."""
        return Fraction(problem.privacy.epsilon)
