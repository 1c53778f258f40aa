"""The loss: the squared distance of a release from the noisy values to which it was fitted."""

from __future__ import annotations

from fractions import Fraction

from attrs import frozen

from privopt.interfaces import UtilityLoss
from privopt_hierarchical_dp.design import Design
from privopt_hierarchical_dp.release import HierarchyRelease
from privopt_hierarchical_dp.tree import sum_squares

__all__ = ["PostProcessing"]


@frozen(kw_only=True)
class PostProcessing(UtilityLoss[HierarchyRelease]):
    """The post-processing objective: the weighted squared distance of a release from its noisy values.

    The loss is the sum over tables and levels of w |x - noisy|^2 for the values that the method measured (counts,
    cumulative counts or the published chain). The largest weight is 1. The loss measures how far the fit moved the
    noisy values, not how far the release is from the true counts; ``private/truth.json`` states the latter.

    Attributes:
        design: The design of the method that minimises this objective.
        unit: Groups squared, or individuals squared.
    """

    design: Design
    unit: str = "groups squared"

    def evaluate(self, release: HierarchyRelease) -> float:
        """Return the loss as a double, rounded once."""
        return float(self.exactly(release))

    def exactly(self, release: HierarchyRelease) -> Fraction:
        """Return the loss as an exact rational."""
        # Weights are rationals and squares are integers, so the sum is exact.
        design, total = self.design, Fraction(0)
        for table, levels in enumerate(zip(design.compute_queries(release.counts), release.noisy, strict=True)):
            for level, (value, target) in enumerate(zip(*levels, strict=True)):
                total += design.weight(table, level) * sum_squares(value - target)
        return total
