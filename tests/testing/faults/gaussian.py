"""Gaussian noise on counts of which one person changes one by up to 3: what is right, and what takes it too lightly."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from attrs import frozen

from faults.counts import RightCounts, count_problem, count_problems
from privopt.declare.toml_text import exact_text
from privopt.interfaces import Certificate, Guarantee, PrivacyConstraint
from privopt.numbers.gaussian import rho_of
from privopt.numbers.noise import discrete_gaussian
from privopt.testing import GeneratedProblem, Profile

MOST_CHANGED = 3
"""By how much one person may change a count: 3 in L1, 9 in the square of L2."""
DELTA = Fraction(1, 100)


def _square(budget: Fraction) -> Fraction:
    return MOST_CHANGED**2 / (2 * budget)


@frozen(kw_only=True)
class Squares(PrivacyConstraint):
    """What the variance spends, as ``square`` reckons."""

    epsilon: Fraction
    rho: Fraction
    kind: str = "zcdp"
    square: int = MOST_CHANGED**2
    meant: Fraction | None = None

    @property
    def guarantee(self) -> Guarantee:
        extra = {"rho": float(self.rho), "rho_text": exact_text(self.rho)}
        if self.kind == "approx-dp":
            extra = {"delta": float(DELTA), "delta_text": exact_text(DELTA)}
        return Guarantee(
            kind=self.kind,
            epsilon=self.epsilon,
            unit="per person",
            scope="one person",
            statement="One person's three visits.",
            extra={} if self.kind == "pure-dp" else extra,
        )

    def measure(self, release: Any) -> Certificate:
        spent = sum(Fraction(self.square) / (2 * (self.meant or scale)) for scale in release.scales)
        return Certificate(
            holds=spent <= self.rho,
            evidence="declared",
            kind=self.kind,
            worst=float(spent),
            allowed=float(self.rho),
            checked=1,
            arithmetic="squares over variances",
            rests_on="that the noise was drawn",
        )


class RightSquares(RightCounts):
    """zCDP: rho is epsilon^2 / 2 of the problem file."""

    kit = "faults.gaussian:SQUARES"
    notion_claimed = "zcdp"

    def budget(self, problem: Any) -> Fraction:
        return problem.declared.privacy.epsilon**2 / 2

    def privacy(self, problem: Any, method: str) -> PrivacyConstraint:
        epsilon = problem.declared.privacy.epsilon
        return Squares(epsilon=epsilon, rho=self.budget(problem), kind=self.notion_claimed)

    def variance(self, problem: Any) -> Fraction:
        return _square(self.budget(problem))

    def noisy(self, problem: Any, context: Any) -> tuple[Any, tuple[Fraction, ...]]:
        noisy, record = discrete_gaussian(problem.loaded, self.variance(problem), seed=context.seed)
        return noisy, (record.scale,)


class RightApprox(RightSquares):
    """(epsilon, 1/100)-DP."""

    notion_claimed = "approx-dp"

    def budget(self, problem: Any) -> Fraction:
        return rho_of(problem.declared.privacy.epsilon, DELTA)


class VarianceUnseen(RightSquares):
    """A certificate of the variance that was meant."""

    def privacy(self, problem: Any, method: str) -> PrivacyConstraint:
        epsilon, rho = problem.declared.privacy.epsilon, self.budget(problem)
        return Squares(epsilon=epsilon, rho=rho, meant=self.variance(problem))


def one_person_comes_or_goes(problem: GeneratedProblem) -> Iterator[GeneratedProblem]:
    counts, epsilon = problem.facts["counts"], problem.facts["epsilon"]
    for place, count in enumerate(counts):
        for step in (MOST_CHANGED, -MOST_CHANGED, 1):
            if count + step >= 0:
                changed = (*counts[:place], count + step, *counts[place + 1 :])
                yield count_problem(changed, epsilon, problem.facts["ids"])


SQUARES = Profile(
    problems=count_problems(),
    neighbours=one_person_comes_or_goes,
    observed=lambda release: release.noisy,
    skip={"verify-catches": "any numbers may be what noise made of the counts"},
)
