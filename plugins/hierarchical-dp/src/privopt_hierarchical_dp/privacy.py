"""What the methods promise, and the exact sum that it rests on."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from attrs import frozen

from privopt.exact.bounds import float_up
from privopt.interfaces import Certificate, Guarantee, PrivacyConstraint
from privopt_hierarchical_dp.methods import METHODS, level_budgets, sensitivity, spent_on_a_neighbour
from privopt_hierarchical_dp.release import HierarchyRelease

if TYPE_CHECKING:
    from privopt.execution import Executor
    from privopt_hierarchical_dp.problem import HierarchyProblem

__all__ = ["LevelNoise", "PublishedChain", "statement"]

SCOPE = "one individual moves one existing group by one size"


def statement(*, totals: bool, most: int) -> str:
    """The neighbour relation in words."""
    step = "from size s to s + 1 or s - 1" if most == 1 else f"by up to {most} sizes (max_quantity = {most})"
    exact = "Every region's number of groups is" if totals else "The number of groups of the whole hierarchy is"
    return (
        f"Inputs are alike that differ in one individual who moves one existing group {step} (sizes of N or more are "
        "one class). A person who moves from one group to another costs 2 epsilon. Not covered: a group that appears "
        "or vanishes, which includes the step between one individual and none, since size 0 is no class here. "
        f"{exact} published exactly; regions' names are public."
    )


@frozen(kw_only=True)
class LevelNoise(PrivacyConstraint[HierarchyRelease]):
    """Pure differential privacy by double geometric noise on every level.

    Attributes:
        problem: what was asked.
        method: one of `METHODS` that keeps its epsilon.
    """

    problem: HierarchyProblem
    method: str

    @property
    def totals(self) -> bool:
        """Whether every region's total is published exactly."""
        return with_totals(self.problem, self.method)

    @property
    def guarantee(self) -> Guarantee:
        """Kind ``"pure-dp"`` under the neighbour relation that the statement spells out."""
        most = self.problem.settings.max_quantity
        return Guarantee(
            kind="pure-dp",
            epsilon=self.problem.privacy.epsilon,
            unit="per individual",
            scope=SCOPE,
            statement=statement(totals=self.totals, most=most),
            extra={"region_totals_exact": self.totals},
        )

    def measure(self, release: HierarchyRelease, *, executor: Executor | None = None) -> Certificate:
        """Sum over levels of sensitivity over scale, in rationals.

        The scales are those stated beside the noisy values; that the noise was drawn at them cannot be read off one
        release. Each level must also keep to its own share of epsilon.
        """
        epsilon, settings = self.problem.privacy.epsilon, self.problem.settings
        budgets = level_budgets(epsilon, self.method, release.tree.depth, settings.budget)
        delta = sensitivity(self.method, settings.max_quantity)
        allowed = float(epsilon)
        losses = [Fraction(delta) / scale for scale in release.scales]
        spent = sum(losses, Fraction(0))
        failures = release.shape_faults(self.method, self.totals)
        if len(losses) != release.tree.depth:
            failures.append(f"scales of {len(losses)} levels are stated, there are {release.tree.depth}")
        failures += [
            f"level {level} spends {loss}, its share of epsilon is {budget}"
            for level, (loss, budget) in enumerate(zip(losses, budgets, strict=False), start=1)
            if loss > budget
        ]
        if spent > epsilon:
            failures.append(f"the levels spend {spent}, epsilon is {epsilon}")
        return Certificate(
            holds=not failures,
            evidence="declared",
            kind="pure-dp",
            worst=min(float_up(spent), allowed) if spent <= epsilon else float_up(spent),
            allowed=allowed,
            checked=sum(level.size for level in release.noisy),
            arithmetic="exact rationals: sum over levels of sensitivity / stated scale",
            rests_on="that the noise was drawn, freshly and at those scales",
            notes={"sensitivity": delta, "scales": [str(scale) for scale in release.scales]},
            failures=tuple(failures),
        )


@frozen(kw_only=True)
class PublishedChain(PrivacyConstraint[HierarchyRelease]):
    """The chain of section 9.2: no guarantee at its epsilon.

    Attributes:
        problem: what was asked.
    """

    problem: HierarchyProblem

    @property
    def guarantee(self) -> Guarantee:
        """Kind ``"none"``, with the reason."""
        return Guarantee(
            kind="none",
            statement=(
                "No privacy guarantee at the epsilon asked for: the published chain adds up counts over all regions "
                "of a level, so one individual changes |R_l| entries of level l where the noise is for one. The real "
                "loss is the sum over levels of the level's budget times its number of regions (details.real_epsilon)."
            ),
        )

    def measure(self, release: HierarchyRelease, *, executor: Executor | None = None) -> Certificate:
        """Nothing is claimed; the note says what one individual really costs."""
        budgets = level_budgets(
            self.problem.privacy.epsilon,
            "cumulative-chain-as-published",
            release.tree.depth,
            self.problem.settings.budget,
        )
        most = self.problem.settings.max_quantity
        real = spent_on_a_neighbour("cumulative-chain-as-published", release.tree, budgets, most)
        return Certificate(
            holds=None,
            evidence="none",
            kind="none",
            worst=None,
            allowed=None,
            checked=0,
            arithmetic="nothing is claimed",
            notes={"real_epsilon": float(real)},
        )


def with_totals(problem: HierarchyProblem, method: str) -> bool:
    """Whether a method publishes every region's total for this problem."""
    rule = METHODS[method].totals
    return rule == "always" or (rule == "option" and bool(problem.settings.region_totals))
