"""Privacy guarantees of the methods, certified by summing exactly the budgets spent by their noise."""

from __future__ import annotations

from attrs import evolve, frozen

from privopt.interfaces import Certificate, Guarantee, PrivacyConstraint
from privopt.interfaces.additive import NoiseCall, certify_noise
from privopt.interfaces.notions import NoGuarantee
from privopt_hierarchical_dp.design import Design
from privopt_hierarchical_dp.release import HierarchyRelease

__all__ = ["MeasuredNoise", "PublishedChain"]


@frozen(kw_only=True)
class MeasuredNoise(PrivacyConstraint[HierarchyRelease]):
    """The constraint that the noise on each table at each level spends at most its share of the budget.

    It guarantees pure DP for double geometric noise, and zCDP or approximate DP for Gaussian noise.

    Attributes:
        design: The design of the method.
    """

    design: Design

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the problem's privacy notion, with a statement describing the neighbouring relation."""
        problem = self.design.problem
        privacy, relation = problem.privacy, problem.relation
        return Guarantee(
            kind=privacy.kind,
            epsilon=privacy.epsilon,
            unit=relation.unit,
            scope=relation.scope,
            statement=self.design.statement,
            extra={"relation": privacy.relation, **self.design.claimed, **privacy.amounts},
        )

    def measure(self, release: HierarchyRelease) -> Certificate:
        """Certify that the noise spends at most the total budget, and at most its share for each table and level.

        The amount spent is computed exactly from the noise scales stated with the noisy values. A single release cannot
        prove that the noise was drawn with these scales.

        Args:
            release: The release, with its noise scales.
        """
        design = self.design
        failures = design.shape_faults(release)
        if not design.hides:
            failures.append("no table has two cells, and exact numbers are all that it shows: nothing is hidden")
        calls, checked = [], 0
        for level in range(design.tree.depth):
            for table, (form, scales) in enumerate(zip(release.layout.forms, release.scales, strict=True)):
                # Values without noise are derived from others and spend nothing, which is checked by the mechanism's
                # `verify`.
                if (scale := scales[level]) is None:
                    continue
                budget_share, name = design.budgets[table][level], form.part(level + 1)
                sensitivity, law = design.delta, design.law.law
                calls.append(
                    NoiseCall(scale=scale, sensitivity=sensitivity, law=law, budget_share=budget_share, name=name)
                )
                checked += release.noisy[table][level].size
        return certify_noise(self.guarantee, calls, failures=failures, checked=checked)


@frozen(kw_only=True)
class PublishedChain(PrivacyConstraint[HierarchyRelease]):
    """A constraint without a guarantee, for the chain in section 9.2 of Fioretto et al. (2021).

    As printed in the paper, the chain does not satisfy its claimed epsilon.

    Attributes:
        design: The design of the method.
    """

    design: Design

    @property
    def guarantee(self) -> Guarantee:
        """A guarantee of kind ``"none"``, with a statement explaining why the chain exceeds its claimed epsilon."""
        return Guarantee(
            kind="none",
            statement=(
                "No privacy guarantee at the epsilon asked for: the published chain adds up counts over all regions "
                "of a level, so one individual changes |R_l| entries of level l where the noise is for one. The real "
                "loss is the sum over levels of the level's budget times its number of regions (details.real_epsilon)."
            ),
        )

    def measure(self, release: HierarchyRelease) -> Certificate:
        """Return a certificate that claims no guarantee but notes the actual privacy loss of one individual."""
        real = float(self.design.real_loss(release))
        return evolve(NoGuarantee(reason="").measure(release), notes={"real_epsilon": real})
