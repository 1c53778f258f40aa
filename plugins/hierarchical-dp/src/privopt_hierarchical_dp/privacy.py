"""The guarantees of the methods, and the exact sum on which they rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from privopt.declare.exact_text import exact_text
from privopt.interfaces import Certificate, Guarantee, PrivacyConstraint
from privopt.interfaces.additive import certify_noise
from privopt.interfaces.notions import NoGuarantee
from privopt_hierarchical_dp.instance import PublishedHierarchy
from privopt_hierarchical_dp.methods import spent_on_a_neighbour
from privopt_hierarchical_dp.problem import Privacy
from privopt_hierarchical_dp.relations import RELATIONS
from privopt_hierarchical_dp.release import HierarchyRelease

if TYPE_CHECKING:
    from privopt.execution import Executor
else:
    Executor = Any

__all__ = ["LevelNoise", "PublishedChain", "stated_budget"]


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
        totals = declared.publishes_totals(self.method)
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

        The scales are those stated next to the noisy values; that the noise was drawn at them cannot be read off one
        release. Each level must also keep to its own share of the budget.
        """
        design, tree = self.problem.design(self.method, release.tree), release.tree
        zeros = design.zeros
        failures = release.shape_faults(self.method, design.totals)
        if len(release.scales) != tree.depth:
            failures.append(f"{design.law.stated} of {len(release.scales)} levels are stated, there are {tree.depth}")
        if not design.hides:
            failures.append("groups have one size alone, and their numbers are exact: nothing is hidden")
        calls = [
            design.law.call(scale, design.delta, share, f"level {level}")
            for level, (scale, share) in enumerate(zip(release.scales, design.budgets, strict=False), start=1)
            if scale is not None
        ]
        checked = sum(
            own.size if zeros is None else int(zeros.measured(level, design.order).sum())
            for level, (own, scale) in enumerate(zip(release.noisy, release.scales, strict=False))
            if scale is not None
        )
        return certify_noise(self.guarantee, calls, failures=failures, checked=checked)


def stated_budget(privacy: Privacy) -> dict[str, Any]:
    """Return rho and delta as a guarantee states them next to epsilon."""
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
        real = spent_on_a_neighbour(design.method, release.tree.widths, design.budgets, most)
        return evolve(NoGuarantee(reason="").measure(release), notes={"real_epsilon": float(real)})
