"""What FL-Linear promises, and what its releases are judged by."""

from __future__ import annotations

from fractions import Fraction

from attrs import frozen

from privopt.execution import Executor
from privopt.interfaces import Certificate, Guarantee, PrivacyConstraint, UtilityLoss
from privopt_fl_linear.location import spent
from privopt_fl_linear.quantiles import Noise
from privopt_fl_linear.release import FLRelease
from privopt_fl_linear.server import Plan, Site

__all__ = ["COVERED", "CostAtCounts", "LocalLaplace"]

COVERED = (
    "Local differential privacy: whoever sees everything published, the server included, cannot tell b clients at one "
    "location from b + 1 better than epsilon allows. g clients at a location: g epsilon. A client who moves: epsilon "
    "at each of two locations. Locations, distances and costs are public."
)


_DRAWN = "that the noise was drawn, freshly and at that scale"
_DECLARED = "that the locations drew noise at all, and at the epsilon stated"


@frozen(kw_only=True)
class LocalLaplace(PrivacyConstraint):
    """Each location's count with Laplace noise of scale 1 / epsilon: Theorems 1 and 5.

    Attributes:
        epsilon: budget, exact.
        locations: reports that are measured.
        noise: ``"discrete"`` or ``"continuous"``.
    """

    epsilon: Fraction
    locations: int
    noise: Noise

    @property
    def guarantee(self) -> Guarantee:
        """Kind ``local-dp``; one client at one location."""
        return Guarantee(
            kind="local-dp",
            epsilon=self.epsilon,
            unit="per client",
            scope="one client at one location",
            statement=COVERED,
        )

    def measure(self, release: FLRelease, *, executor: Executor | None = None) -> Certificate:
        """Compare sensitivity / scale with epsilon, in rationals, for each location's report.

        The reports are the only way from the counts to the release; where they were drawn elsewhere the scale is what
        the problem declares.
        """
        loss = spent(self.epsilon)  # sensitivity 1 over scale 1 / spent
        drawn = release.drawn
        return Certificate(
            holds=loss <= self.epsilon,
            evidence="declared",
            kind="local-dp",
            worst=float(loss),
            allowed=float(self.epsilon),
            checked=self.locations,
            arithmetic="declared" if drawn is None else f"rational: sensitivity over scale, drawn by {drawn}",
            rests_on=_DECLARED if drawn is None else _DRAWN,
            notes={"scale": str(1 / loss), "sensitivity": 1, "distribution": f"{self.noise} Laplace"},
        )


@frozen(kw_only=True, eq=False)
class CostAtCounts(UtilityLoss):
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
