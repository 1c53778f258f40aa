"""What the methods promise, and the exact sum that it rests on."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from privopt.declare.exact_text import exact_text
from privopt.interfaces import Certificate, Guarantee, PrivacyConstraint
from privopt.interfaces.notions import NoGuarantee
from privopt.numbers.exp_log_bounds import float_up
from privopt.numbers.gaussian import delta_of
from privopt_hierarchical_dp.design import publishes_totals
from privopt_hierarchical_dp.instance import PublishedHierarchy
from privopt_hierarchical_dp.methods import spent_on_a_neighbour
from privopt_hierarchical_dp.problem import Privacy
from privopt_hierarchical_dp.refusals import sizes_differ
from privopt_hierarchical_dp.relations import RELATIONS
from privopt_hierarchical_dp.release import HierarchyRelease

if TYPE_CHECKING:
    from privopt.execution import Executor
else:
    Executor = Any

__all__ = ["LevelNoise", "PublishedChain", "certified", "stated_budget"]


IMPOSSIBLE = (
    " Sizes that are declared impossible are public and not measured; groups that have them in the input all the same "
    "are promised no less, and nothing tells of them."
)
BOUNDS = {
    True: " Bounds on numbers of groups are public; inputs that contradict them are refused, with all that are alike.",
    False: " Bounds on numbers of groups are public; releases are moved into them, whether or not the input is within.",
}
"""What they say, by whether numbers of groups are the same in all inputs that are alike."""


@frozen(kw_only=True)
class LevelNoise(PrivacyConstraint[HierarchyRelease]):
    """Noise on every level, each for its share of the budget: pure DP where it is double geometric.

    Attributes:
        problem: what was asked.
        method: one of `METHODS` that keeps its budget.
    """

    problem: PublishedHierarchy
    method: str

    @property
    def guarantee(self) -> Guarantee:
        """The notion asked for, under the neighbour relation that the statement spells out."""
        declared = self.problem.declared
        privacy, relation, table = declared.privacy, declared.relation, declared.hierarchy
        totals = publishes_totals(declared, self.method)
        return Guarantee(
            kind=privacy.kind,
            epsilon=privacy.epsilon,
            unit=relation.unit,
            scope=RELATIONS[relation.name],
            statement=relation.statement(
                totals=totals,
                most=declared.settings.max_quantity,
                kind=privacy.kind,
                listed=table.regions is not None,
            )
            + IMPOSSIBLE * (table.impossible is not None)
            + BOUNDS[relation.exact] * (table.bounds is not None),
            extra={"relation": relation.name, "region_totals_exact": totals, **stated_budget(privacy)},
        )

    def measure(self, release: HierarchyRelease, *, executor: Executor | None = None) -> Certificate:
        """Sum over levels of what its noise spends, in rationals.

        The scales are those stated beside the noisy values; that the noise was drawn at them cannot be read off one
        release. Each level must also keep to its own share of the budget.
        """
        design = self.problem.design(self.method, release.tree)
        privacy, law, budget, zeros = design.problem.privacy, design.law, design.problem.privacy.budget, design.zeros
        losses = [law.spent(scale, design.delta) for scale in release.scales]
        spent = sum(losses, Fraction(0))
        failures = release.shape_faults(self.method, design.totals)
        if len(losses) != release.tree.depth:
            failures.append(f"{law.stated} of {len(losses)} levels are stated, there are {release.tree.depth}")
        failures += [
            f"level {level} spends {loss}, its share of {law.budget} is {share}"
            for level, (loss, share) in enumerate(zip(losses, design.budgets, strict=False), start=1)
            if loss > share
        ]
        if spent > budget:
            failures.append(f"the levels spend {spent}, {law.budget} is {budget}")
        if design.relation.exact and not sizes_differ(design.problem, zeros):
            failures.append("groups have one size alone, and their numbers are exact: nothing is hidden")
        notes: dict[str, Any] = {"sensitivity": design.delta, law.stated: [str(scale) for scale in release.scales]}
        return certified(
            privacy,
            spent,
            failures,
            checked=sum(
                level.size if zeros is None else int(zeros.measured(number, design.order).sum())
                for number, level in enumerate(release.noisy)
            ),
            arithmetic=f"exact rationals: sum over levels of {law.sum}",
            notes=notes,
        )


def certified(
    privacy: Privacy, spent: Fraction, failures: list[str], *, checked: int, arithmetic: str, notes: dict[str, Any]
) -> Certificate:
    """The certificate of noise that spends so much in all; what failed before stands in ``failures``."""
    law, worst, allowed = privacy.law, spent, privacy.budget
    if privacy.delta is not None and privacy.epsilon is not None and spent > 0:
        worst, allowed = delta_of(spent, privacy.epsilon), privacy.delta
        notes["rho"] = str(spent)
        arithmetic += "; the delta that this rho implies at epsilon, by ball arithmetic (Canonne et al. 2020)"
        if worst > allowed:
            failures.append(f"rho = {spent} implies a delta of {float_up(worst):.6g}, {privacy.delta} is claimed")
    return Certificate(
        holds=not failures,
        evidence="declared",
        kind=privacy.kind,
        worst=min(float_up(worst), float(allowed)) if worst <= allowed else float_up(worst),
        allowed=float(allowed),
        checked=checked,
        arithmetic=arithmetic,
        rests_on=f"that the noise was drawn, freshly and at those {law.stated}",
        notes=notes,
        failures=tuple(failures),
    )


def stated_budget(privacy: Privacy) -> dict[str, Any]:
    """What a guarantee says of rho and delta beside epsilon."""
    found: dict[str, Any] = {}
    for name, value in (("rho", privacy.rho), ("delta", privacy.delta)):
        if value is not None:
            found |= {name: float(value), f"{name}_text": exact_text(value)}
    return found


@frozen(kw_only=True)
class PublishedChain(PrivacyConstraint[HierarchyRelease]):
    """The chain of section 9.2: no guarantee at its epsilon.

    Attributes:
        problem: what was asked.
    """

    problem: PublishedHierarchy

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
        design = self.problem.design("cumulative-chain-as-published", release.tree)
        most = design.problem.settings.max_quantity
        real = spent_on_a_neighbour(design.method, release.tree, design.budgets, most)
        return evolve(NoGuarantee(reason="").measure(release), notes={"real_epsilon": float(real)})
