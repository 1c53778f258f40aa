"""Plans: the facility of each location, and capacities with margins that bound the probability of a shortage."""

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
"""(n,) The number of clients at each location: integers, or doubles with continuous noise."""


@frozen(kw_only=True, eq=False)
class Plan:
    """The connections and capacities that the server publishes, and how they were chosen.

    Attributes:
        assignment: The facility that serves each location.
        margins: (m,) The margin that is added to the noisy count of each facility, in clients.
        capacities: (m,) The capacity of each facility, max(0, noisy count + margin), in clients.
        level: The failure probability for which the margins were computed.
        delta: The reconnection radius, 0 for ``laplace``. None if the facilities were chosen from the noisy counts.
        any_set: Margins that hold for all sets of locations at once. None unless the facilities were chosen from the
            noisy counts.
        recorded: How the plan was chosen. The entries ``opening``, ``auto``, ``reports`` and ``plans`` are written to
            ``details.told`` of result.json.
        stopped: Whether a time or memory limit cut a choice short.
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
        """Return the parts of the plan's cost at the given counts, and their ``total``."""
        return cost_parts(site, self.assignment, self.capacities, counts)


def add_margins(counts: Floats, margins: Floats) -> Floats:
    """Return the capacities max(0, counts + margins). All arrays have shape (m,) and are in clients.

    If a sum was rounded down, the next larger double is taken, so that rounding never reduces a margin.
    """
    total = counts + margins
    # The sum minus the counts is below the margin if and only if the sum was rounded down.
    rounded = (total - counts) < margins
    return np.asarray(np.maximum(0.0, np.where(rounded, np.nextafter(total, np.inf), total)), dtype=np.float64)


@frozen(kw_only=True, eq=False)
class Server:
    """The public data and settings from which the server makes plans. Its only other input is the noisy counts.

    Two kinds of plan share the failure probability alpha. In the *prior's* plan, the facilities are chosen from public
    data, and the margins cover only the sets of locations that these facilities serve. In the *reports'* plan, the
    facilities are chosen from the noisy counts. This choice depends on the noise against which the margins protect, so
    the margins hold for every set of locations at once (:class:`AnySet`). If both plans are made, each gets alpha / 2.
    By the union bound, the margins of both plans suffice with probability 1 - alpha, so the choice between the plans
    may depend on the noisy counts.

    Attributes:
        site: The locations.
        rule: How margins are computed.
        alpha: The promised failure probability: with probability 1 - alpha, every capacity covers the true counts.
        delta: Reconnection radius (Algorithm 3; 0 gives Algorithm 2), in the metric's unit. With ``"auto"``, the
            cheapest radius of a public grid is used (see ``reconnection``).
        sites: What the facilities may be chosen from: the noisy counts (``"reports"``), or only public data
            (``"prior"``).
        mean_clients: The publicly known mean count. None if it is not known.
        max_facilities: Maximum number of open facilities. None means any number.
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
        """Whether the open facilities must be chosen, because opening costs something or is limited."""
        return self.site.opening is not None or self.max_facilities is not None

    @property
    def has_prior(self) -> bool:
        """Whether a plan can be made from public data: no facilities have to be chosen, or the mean count is known."""
        return not self.chooses_sites or self.mean_clients is not None

    @property
    def has_reports(self) -> bool:
        """Whether there may be a plan whose facilities are chosen from the noisy counts."""
        return self.site.capacity is not None or (self.chooses_sites and self.sites == "reports")

    @property
    def prior_level(self) -> float:
        """The share of alpha that is allotted to the prior's plan.

        It is 0 if there is no prior's plan, half of alpha if there is also a reports' plan, and alpha if there is only
        the prior's plan.
        """
        return 0.0 if not self.has_prior else self.alpha / 2.0 if self.has_reports else self.alpha

    @property
    def reports_level(self) -> float:
        """The share of alpha that is allotted to the reports' plan: alpha minus `prior_level`."""
        return self.alpha - self.prior_level

    def prior_plan(self, noisy: Counts, assignment: Assignment, delta: float, level: float) -> Plan:
        """Return the plan for an assignment that was chosen independently of the noise.

        Margins are computed only for the sets of locations that the facilities of this assignment serve.

        Args:
            noisy: (n,) The noisy counts.
            assignment: The facility that serves each location.
            delta: The reconnection radius that led to the assignment. It is recorded in the plan.
            level: Total failure probability of all margins.
        """
        # Sets that were chosen independently of the noise each need a margin for themselves alone (Theorem 3). If the
        # radius was chosen from the noisy total, the caller has lowered `level` for that.
        margins = self.rule.margins(assignment.sizes, level)
        sizes = add_margins(sum_counts(assignment, noisy), margins)
        return Plan(assignment=assignment, margins=margins, capacities=sizes, delta=delta, level=level)

    def any_set(self, prior: Assignment | None = None) -> AnySet:
        """Return margins that hold for all sets of locations at once, computed from public data.

        Args:
            prior: A public assignment. The sum of the margins is minimised for its number of facilities, or for the
                maximum number of open facilities if that is smaller. By default the assignment of Algorithm 1.
        """
        if prior is None:
            prior = self.site.connect()
        facilities = len(prior.opened)
        if self.chooses_sites and self.max_facilities is not None:
            facilities = min(facilities, self.max_facilities)
        return self.rule.any_set(facilities, self.reports_level)

    def reports_plan(self, noisy: Counts, assignment: Assignment, any_set: AnySet) -> Plan:
        """Return the plan for an assignment chosen from noisy counts (n,), with margins that hold for any choice."""
        # The sets depend on the same noise that may exceed the margins, so the margins hold for all sets at once.
        margins = any_set.margins(assignment.sizes)
        sizes = add_margins(sum_counts(assignment, noisy), margins)
        level = self.reports_level
        return Plan(assignment=assignment, margins=margins, capacities=sizes, level=level, any_set=any_set)
