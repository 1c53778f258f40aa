"""A plan: assignments and sizes of facilities, with the margins that its failure probability needs."""

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


@frozen(kw_only=True, eq=False)
class Plan:
    """What the server publishes, and what it rests on.

    Attributes:
        assignment: who is served by whom.
        margins: (m,) added to each facility's noisy count.
        capacities: (m,) max(0, noisy count + margin).
        level: failure probability that the margins are for.
        delta: the reconnection radius used; 0 for ``laplace``, None where the noisy counts chose the facilities.
        any_set: the margins of all sets at once, where the noisy counts chose who is served by whom.
        recorded: how it was found, for ``details.told``: ``opening``, ``auto``, ``reports``, ``plans``.
        stopped: whether a limit cut a choice short.
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
        """Return the parts of its cost at the counts given, and their ``total``."""
        return cost_parts(site, self.assignment, self.capacities, counts)


def add_margins(counts: Floats, margins: Floats) -> Floats:
    """Return max(0, counts + margins), rounded up where the sum is not a double."""
    total = counts + margins
    rounded = (total - counts) < margins
    return np.asarray(np.maximum(0.0, np.where(rounded, np.nextafter(total, np.inf), total)), dtype=np.float64)


@frozen(kw_only=True, eq=False)
class Server:
    """The server's public choices: all that it knows in addition to the noisy counts.

    Two kinds of plan share the failure probability alpha. The *prior's* plan has facilities that public data chose;
    its margins are for the sums of these sets alone. The *reports'* plan has facilities that the noisy counts chose;
    the noise that chose is the noise that may fail, so its margins hold for every set of locations at once
    (:class:`AnySet`). Where both are made each takes alpha / 2: the failure of whichever is published is within the
    union of two events, so the noise may choose between them.

    Attributes:
        site: the locations.
        rule: how margins are made.
        alpha: failure probability promised: with 1 - alpha every capacity covers the true counts.
        delta: reconnection radius (Algorithm 3; 0 is Algorithm 2); ``"auto"`` takes the cheapest of a public grid (see
            ``reconnection``).
        sites: which plans are made where facilities are a choice.
        mean_clients: the mean count, as the public knows it; None where it does not.
        max_facilities: that may be open; None for any number.
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
        """Whether which facilities are open is a choice of its own: opening costs something, or is limited."""
        return self.site.opening is not None or self.max_facilities is not None

    @property
    def has_prior(self) -> bool:
        """Whether public data determine a plan: facilities are not a choice, or the mean count is known."""
        return not self.chooses_sites or self.mean_clients is not None

    @property
    def has_reports(self) -> bool:
        """Whether the noisy counts may choose facilities."""
        return self.site.capacity is not None or (self.chooses_sites and self.sites == "reports")

    @property
    def prior_level(self) -> float:
        """The failure probability of the prior's plan."""
        return 0.0 if not self.has_prior else self.alpha / 2.0 if self.has_reports else self.alpha

    @property
    def reports_level(self) -> float:
        """The failure probability of the reports' plan."""
        return self.alpha - self.prior_level

    def prior_plan(self, noisy: Counts, assignment: Assignment, delta: float, level: float) -> Plan:
        """Return the plan of an assignment that was fixed before the noise was seen."""
        margins = self.rule.margins(assignment.sizes, level)
        sizes = add_margins(sum_counts(assignment, noisy), margins)
        return Plan(assignment=assignment, margins=margins, capacities=sizes, delta=delta, level=level)

    def any_set(self, prior: Assignment | None = None) -> AnySet:
        """Return the margins of all sets at once: public, for slope and start may not follow the noise.

        Args:
            prior: the public connection, for which they are made cheapest; default: as many facilities of one cost
                as may be opened, at most those of Algorithm 1.
        """
        if prior is None:
            prior = self.site.connect()
        facilities = len(prior.opened)
        if self.chooses_sites and self.max_facilities is not None:
            facilities = min(facilities, self.max_facilities)
        return self.rule.any_set(facilities, self.reports_level)

    def reports_plan(self, noisy: Counts, assignment: Assignment, any_set: AnySet) -> Plan:
        """Return the plan of an assignment that the noisy counts chose: its margins hold for every one at once."""
        margins = any_set.margins(assignment.sizes)
        sizes = add_margins(sum_counts(assignment, noisy), margins)
        level = self.reports_level
        return Plan(assignment=assignment, margins=margins, capacities=sizes, level=level, any_set=any_set)
