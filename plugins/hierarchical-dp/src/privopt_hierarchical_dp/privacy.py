"""What the methods promise, and the exact sum that it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from privopt.interfaces import Certificate, Guarantee, PrivacyConstraint
from privopt.interfaces.additive import certify_noise
from privopt.interfaces.notions import NoGuarantee
from privopt_hierarchical_dp.instance import Instance
from privopt_hierarchical_dp.release import HierarchyRelease

if TYPE_CHECKING:
    from privopt.execution import Executor
else:
    Executor = Any

__all__ = ["MeasuredNoise", "PublishedChain"]


@frozen(kw_only=True)
class MeasuredNoise(PrivacyConstraint[HierarchyRelease]):
    """Noise on every table and level, each for its share of the budget: pure DP where it is double geometric.

    Attributes:
        problem: what was asked.
        method: one that keeps its budget.
    """

    problem: Instance
    method: str

    @property
    def guarantee(self) -> Guarantee:
        """Return the notion asked for, under the neighbour relation that the statement spells out."""
        declared = self.problem.declared
        privacy, relation = declared.privacy, declared.relation
        return Guarantee(
            kind=privacy.kind,
            epsilon=privacy.epsilon,
            unit=relation.unit,
            scope=relation.scope,
            statement=declared.statement(self.method),
            extra={"relation": privacy.relation, **declared.claimed(self.method), **privacy.amounts},
        )

    def measure(self, release: HierarchyRelease, *, executor: Executor | None = None) -> Certificate:
        """Sum over levels and tables of what their noise spends, in rationals.

        The scales are those stated with the noisy values; that the noise was drawn at them cannot be read off one
        release. Each table must also keep to its own share of the budget on each level.
        """
        design = self.problem.design(self.method, release.tree)
        failures = design.shape_faults(release)
        if not design.hides:
            failures.append("no table has two cells, and exact numbers are all that it shows: nothing is hidden")
        calls, checked = [], 0
        for level in range(design.tree.depth):
            for table, (form, scales) in enumerate(zip(release.layout.forms, release.scales, strict=True)):
                if (scale := scales[level]) is None:
                    continue
                calls.append(design.law.call(scale, design.delta, design.budgets[table][level], form.part(level + 1)))
                where = design.where(table, level)
                checked += release.noisy[table][level].size if where is None else int(where.sum())
        return certify_noise(self.guarantee, calls, failures=failures, checked=checked)


@frozen(kw_only=True)
class PublishedChain(PrivacyConstraint[HierarchyRelease]):
    """The chain of section 9.2: no guarantee at its epsilon.

    Attributes:
        problem: what was asked.
    """

    problem: Instance

    @property
    def guarantee(self) -> Guarantee:
        """Return kind ``"none"``, with the reason."""
        return Guarantee(
            kind="none",
            statement=(
                "No privacy guarantee at the epsilon asked for: the published chain adds up counts over all regions "
                "of a level, so one individual changes |R_l| entries of level l where the noise is for one. The real "
                "loss is the sum over levels of the level's budget times its number of regions (details.real_epsilon)."
            ),
        )

    def measure(self, release: HierarchyRelease, *, executor: Executor | None = None) -> Certificate:
        """Claim nothing; the note says what one individual really costs."""
        real = self.problem.design("cumulative-chain-as-published", release.tree).real_loss(release)
        return evolve(NoGuarantee(reason="").measure(release), notes={"real_epsilon": float(real)})
