"""The utility loss, which is the squared distance between a release and the noisy values to which it was fitted."""

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
    """The post-processing objective, which is the weighted squared distance between a release and its noisy values.

    The loss is the sum of w |x - noisy|^2 over tables and levels, where x are the measured values (counts, cumulative
    counts or the published chain) computed from the released counts, and w is the weight of the table at the level. The
    largest weight is 1. The loss measures how far the fit moved the noisy values. It is not the error relative to the
    true counts, which is in ``private/truth.json``.

    Attributes:
        design: The design of the method that minimises this objective.
        unit: The unit of the loss, which is groups squared or individuals squared.
    """

    design: Design
    unit: str = "groups squared"

    def evaluate(self, release: HierarchyRelease) -> float:
        """Return the loss, rounded to the nearest double."""
        return float(self.exactly(release))

    def exactly(self, release: HierarchyRelease) -> Fraction:
        """Return the exact loss as a rational number."""
        # Weights are rationals and squares are integers, so the sum is exact.
        design, total = self.design, Fraction(0)
        for table, levels in enumerate(zip(design.compute_queries(release.counts), release.noisy, strict=True)):
            for level, (value, target) in enumerate(zip(*levels, strict=True)):
                total += design.weight(table, level) * sum_squares(value - target)
        return total
