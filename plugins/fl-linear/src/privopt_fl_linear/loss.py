"""The loss of FL-Linear: the cost of capacity, connections and opened facilities, computed for the released counts."""

from __future__ import annotations

from attrs import frozen

from privopt.interfaces import UtilityLoss
from privopt_fl_linear.release import FLRelease
from privopt_fl_linear.site import Site, cost_parts

__all__ = ["CostAtCounts"]


@frozen(kw_only=True, eq=False)
class CostAtCounts(UtilityLoss[FLRelease]):
    """The total cost of a plan (capacity, connections and opened facilities), computed for the counts in its release.

    Attributes:
        site: The locations with their distances and costs, which are public.
        unit: The unit of the costs, which is also the unit of the loss.
    """

    site: Site
    unit: str = "cost"

    def evaluate(self, release: FLRelease) -> float | None:
        """Return the plan's total cost for the released counts, or None if the release contains no counts.

        A release of the method ``optimal`` that was read from files contains no counts.
        """
        if release.counts is None:
            return None
        return cost_parts(self.site, release.assignment, release.capacities, release.counts)["total"]
