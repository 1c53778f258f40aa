"""The loss: capacity, connection and opening costs at the counts released."""

from __future__ import annotations

from attrs import frozen

from privopt.interfaces import UtilityLoss
from privopt_fl_linear.release import FLRelease
from privopt_fl_linear.server import Plan, Site

__all__ = ["CostAtCounts"]


@frozen(kw_only=True, eq=False)
class CostAtCounts(UtilityLoss[FLRelease]):
    """Capacity cost plus connection cost at the counts that the release carries (plus opening costs).

    Attributes:
        site: what is public.
    """

    site: Site
    unit: str = "cost"

    def evaluate(self, release: FLRelease) -> float | None:
        """Cost of the release; None where its counts are not published (method ``optimal``)."""
        if release.counts is None:
            return None
        plan = Plan(
            assignment=release.assignment,
            margins=release.capacities,
            capacities=release.capacities,
            delta=0.0,
            level=0.0,
        )
        return plan.cost(self.site, release.counts)["total"]
