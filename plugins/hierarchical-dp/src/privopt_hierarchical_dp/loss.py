"""The loss: the distance from the noisy values to the released counts."""

from __future__ import annotations

from fractions import Fraction

from attrs import frozen

from privopt.interfaces import UtilityLoss
from privopt_hierarchical_dp.instance import PublishedHierarchy
from privopt_hierarchical_dp.measurements import measured
from privopt_hierarchical_dp.methods import order_of
from privopt_hierarchical_dp.release import HierarchyRelease
from privopt_hierarchical_dp.tree import squared

__all__ = ["PostProcessing"]


@frozen(kw_only=True)
class PostProcessing(UtilityLoss[HierarchyRelease]):
    """The post-processing objective: weighted squared distance of the release from the noisy values.

    sum over levels of w_l |x - noisy|^2, on what the method measured (counts, cumulative counts or
    the published chain); the largest weight is 1. It says how far the noise had to be bent, not how
    far the release is from the truth: that is in ``private/truth.json``.

    Attributes:
        problem: what was asked.
        method: whose objective.
    """

    problem: PublishedHierarchy
    method: str
    unit: str = "groups squared"

    def evaluate(self, release: HierarchyRelease) -> float:
        """Return the objective, exact up to one rounding."""
        return float(self.exactly(release))

    def exactly(self, release: HierarchyRelease) -> Fraction:
        """Return the objective as a rational."""
        design = self.problem.design(self.method, release.tree)
        weights = (Fraction(1),) * release.tree.depth if design.rule.query == "chain" else design.weights
        totals = release.noisy[0].shape[1] < release.counts[0].shape[1]
        values = measured(self.method, release.counts, totals=totals, relation=design.relation)
        order = order_of(self.method, totals=totals, relation=design.relation)
        total = Fraction(0)
        for level, (weight, value, target) in enumerate(zip(weights, values, release.noisy, strict=True)):
            off = value - target
            if design.zeros is not None:
                off = off[design.zeros.measured(level, order)]
            total += weight / max(weights) * squared(off)
        return total
