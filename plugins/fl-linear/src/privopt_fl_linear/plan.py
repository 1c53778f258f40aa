"""Plans, which assign a facility to each location and set capacities that are likely to suffice.

Margins are added to noisy counts, so that the probability of a shortage is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from privopt.arrays import Floats
from privopt_fl_linear.margins import AnySet, MarginRule
from privopt_fl_linear.site import Assignment, Site, cost_parts, sum_counts

__all__ = ["Plan", "Server", "Sites", "add_margins"]

Sites = Literal["reports", "prior"]
Counts = NDArray[np.int64] | Floats
"""(n,) The number of clients at each location, as integers or, with continuous noise, as doubles."""


@frozen(kw_only=True, eq=False)
class Plan:
    """The connections and capacities that the server publishes, together with a record of how they were chosen.

    Attributes:
        assignment: The facility that serves each location.
        margins: (m,) The margin added to each facility's noisy count, in clients.
        capacities: (m,) The capacity of each facility in clients, which is max(0, noisy count + margin).
        level: The failure probability for which the margins were computed.
        delta: The reconnection radius, which is 0 without reconnection. None if the facilities were chosen from noisy
            counts.
        any_set: The margins that are valid for all sets of locations at once. None unless the facilities were chosen
            from noisy counts.
        recorded: A record of how the plan was chosen. The entries ``opening``, ``auto``, ``reports`` and ``plans`` are
            written to ``details.told`` of result.json.
        stopped: Whether a choice was cut short by a time or memory limit.
    """

    assignment: Assignment
    margins: Floats
    capacities: Floats
    level: float
    delta: float | None = None
    any_set: AnySet | None = None
    recorded: Mapping[str, Any] = field(factory=dict)
    stopped: bool = False

    def costs(self, site: Site, counts: Counts) -> dict[str, float]:
        """Return the components of the plan's cost at the given counts, together with their ``total``."""
        return cost_parts(site, self.assignment, self.capacities, counts)


def add_margins(counts: Floats, margins: Floats) -> Floats:
    """Return the capacities max(0, counts + margins), rounded so that none is below its exact value.

    A sum that was rounded down is replaced by the next larger double, so that rounding never reduces a margin. All
    arrays have shape (m,) and are in clients.
    """
    total = counts + margins
    # The sum minus the counts is less than the margin exactly if the sum was rounded down.
    rounded = (total - counts) < margins
    return np.asarray(np.maximum(0.0, np.where(rounded, np.nextafter(total, np.inf), total)), dtype=np.float64)


@frozen(kw_only=True, eq=False)
class Server:
    """The public data and settings from which the server makes plans.

    The only other input to a plan is the noisy counts.

    Two kinds of plan share the failure probability alpha. In the *prior's* plan, facilities are chosen from public
    data, and margins cover only the sets of locations that these facilities serve. In the *reports'* plan, facilities
    are chosen from the noisy counts. This choice depends on the same noise that the margins protect against, so the
    margins must be valid for every set of locations at once (:class:`AnySet`). If both plans are made, each is allotted
    alpha / 2. By the union bound, the margins of both plans suffice with probability at least 1 - alpha, so the choice
    between the two may depend on the noisy counts.

    Attributes:
        site: The locations.
        rule: The rule for computing margins.
        alpha: The promised failure probability. With probability at least 1 - alpha, every capacity covers the true
            counts.
        delta: The reconnection radius in the metric's unit (Algorithm 3, or Algorithm 2 if it is 0). If ``"auto"``, the
            cheapest radius of a public grid is used (see ``reconnection``).
        sites: The data from which facilities may be chosen, either the noisy counts (``"reports"``) or only public data
            (``"prior"``).
        mean_clients: The mean count if it is publicly known, otherwise None.
        max_facilities: The maximum number of open facilities, or None for no limit.
    """

    site: Site
    rule: MarginRule
    alpha: float
    delta: float | Literal["auto"] = "auto"
    sites: Sites = "reports"
    mean_clients: float | None = None
    max_facilities: int | None = None

    @property
    def chooses_sites(self) -> bool:
        """Whether the facilities to open have to be chosen.

        This is the case if opening them has a cost or if their number is limited.
        """
        return self.site.opening is not None or self.max_facilities is not None

    @property
    def has_prior(self) -> bool:
        """Whether a plan can be made from public data alone.

        This is possible if no facilities have to be chosen, or if the mean count is publicly known.
        """
        return not self.chooses_sites or self.mean_clients is not None

    @property
    def has_reports(self) -> bool:
        """Whether a plan may choose its facilities based on the noisy counts."""
        return self.site.capacity is not None or (self.chooses_sites and self.sites == "reports")

    @property
    def prior_level(self) -> float:
        """The share of alpha allotted to the prior's plan, whose facilities are chosen from public data.

        It is 0 if there is no such plan. Otherwise, it is alpha / 2 if there may also be a plan with facilities chosen
        from noisy counts, and alpha if not.
        """
        return 0.0 if not self.has_prior else self.alpha / 2.0 if self.has_reports else self.alpha

    @property
    def reports_level(self) -> float:
        """The share of alpha allotted to the reports' plan, whose facilities are chosen from noisy counts.

        It is the part of alpha that is not allotted to the other plan (`prior_level`).
        """
        return self.alpha - self.prior_level

    def prior_plan(self, noisy: Counts, assignment: Assignment, delta: float, level: float) -> Plan:
        """Return the plan for an assignment that was chosen independently of the noise.

        Margins only have to cover the sets of locations served by the facilities of this assignment.

        Args:
            noisy: (n,) The noisy counts.
            assignment: The facility that serves each location.
            delta: The reconnection radius that led to the assignment, which is recorded in the plan.
            level: The total failure probability of all margins.
        """
        # For sets that do not depend on the noise, a margin for each set on its own suffices (Theorem 3). If the radius
        # was chosen from the noisy total, the caller has reduced `level` to account for it.
        margins = self.rule.margins(assignment.sizes, level)
        sizes = add_margins(sum_counts(assignment, noisy), margins)
        return Plan(assignment=assignment, margins=margins, capacities=sizes, delta=delta, level=level)

    def any_set(self, prior: Assignment | None = None) -> AnySet:
        """Return margins that are valid for all sets of locations at once, computed from public data.

        Args:
            prior: A public assignment, by default the one made by Algorithm 1. The sum of the margins is minimised for
                the number of facilities that this assignment opens, capped at the maximum number of open facilities.
        """
        if prior is None:
            prior = self.site.connect()
        facilities = len(prior.opened)
        if self.chooses_sites and self.max_facilities is not None:
            facilities = min(facilities, self.max_facilities)
        return self.rule.any_set(facilities, self.reports_level)

    def reports_plan(self, noisy: Counts, assignment: Assignment, any_set: AnySet) -> Plan:
        """Return the plan for an assignment that was chosen from the (n,) noisy counts.

        The margins ``any_set`` are valid for every set of locations, and therefore for any assignment.
        """
        # The sets depend on the noise that the margins must cover, so margins for all sets at once are needed.
        margins = any_set.margins(assignment.sizes)
        sizes = add_margins(sum_counts(assignment, noisy), margins)
        level = self.reports_level
        return Plan(assignment=assignment, margins=margins, capacities=sizes, level=level, any_set=any_set)
