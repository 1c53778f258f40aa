"""The server's side: from noisy counts and public data alone to connections and capacities.

Between `location.noisy_counts` and `serve` pass the noisy counts and nothing else.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Bools, Floats, Ints
from privopt_fl_linear.algorithms import Assignment, connection_cost, optimal_assignment, reconnect, served
from privopt_fl_linear.delta import GoOn, Policy, candidates, cheapest_at, grid, level_cut_short, policy
from privopt_fl_linear.margins import AnySet, MarginRule
from privopt_fl_linear.metric import Metric

__all__ = ["Plan", "Site", "capacities", "costs", "serve"]

Method = Literal["reconnection", "laplace"]


@frozen(kw_only=True, eq=False)
class Site:
    """What is public: where locations are and what a client's place costs there.

    Attributes:
        metric: the n locations.
        cost: (n,) facility cost of one client, >= 0.
        rank: (n,) order of the ids; ties go to the least.
        opening: (n,) cost of opening at all, or None.
        candidates: locations that may hold a facility, ascending; None for all.
        capacity: (n,) most clients that a facility may serve, infinite where there is no bound; None for none at all.
        sends: (n,) whether there are clients, whose count is sent; None for everywhere. Others are sites alone.
    """

    metric: Metric
    cost: Floats
    rank: Ints
    opening: Floats | None = None
    candidates: Ints | None = None
    capacity: Floats | None = None
    sends: Bools | None = None

    def connected(self, among: Ints | None = None) -> Assignment:
        """Algorithm 1: each location's cheapest facility, of the candidates or of some of them."""
        among = self.candidates if among is None else among
        return optimal_assignment(self.metric, self.cost, self.rank, among, self.sends)

    @property
    def senders(self) -> Ints:
        """The locations with clients, ascending."""
        return np.arange(self.size) if self.sends is None else np.flatnonzero(self.sends)

    @property
    def size(self) -> int:
        """Number of locations."""
        return self.metric.size


@frozen(kw_only=True, eq=False)
class Plan:
    """What the server publishes, and what it rests on.

    Attributes:
        assignment: who is served by whom.
        margins: (m,) added to each facility's noisy count.
        capacities: (m,) max(0, noisy count + margin).
        delta: the reconnection radius used; 0 for ``laplace``, None where the noisy counts chose.
        level: failure probability that the margins are for.
        policy: how ``auto`` chose, where it chose by the noisy counts.
        line: the margins of any sets at once, where the noisy counts chose who is served by whom.
    """

    assignment: Assignment
    margins: Floats
    capacities: Floats
    delta: float | None
    level: float
    policy: Policy | None = None
    line: AnySet | None = None

    @classmethod
    def at(
        cls,
        site: Site,
        noisy: NDArray[Any],
        rule: MarginRule,
        assignment: Assignment,
        *,
        delta: float,
        level: float,
        policy: Policy | None = None,
    ) -> Plan:
        """The plan of an assignment, with margins for failure probability ``level`` on top of the noisy counts."""
        added = rule.of(assignment, site.cost, level)
        sizes = capacities(served(assignment, noisy), added)
        return cls(assignment=assignment, margins=added, capacities=sizes, delta=delta, level=level, policy=policy)

    @classmethod
    def chosen_by_noise(cls, noisy: NDArray[Any], assignment: Assignment, *, level: float, line: AnySet) -> Plan:
        """The plan of an assignment that the noisy counts chose: its margins hold for every one at once."""
        added = line.margins(assignment.sizes)
        sizes = capacities(served(assignment, noisy), added)
        return cls(assignment=assignment, margins=added, capacities=sizes, delta=None, level=level, line=line)

    def cost(self, site: Site, counts: NDArray[Any]) -> dict[str, float]:
        """See :func:`costs`."""
        return costs(site, self.assignment, self.capacities, counts)


def costs(site: Site, assignment: Assignment, capacity: Floats, counts: NDArray[Any]) -> dict[str, float]:
    """The capacity cost, the connection cost at the counts given, opening costs and their sum."""
    parts = {
        "capacity": math.fsum(capacity * site.cost[assignment.opened]),
        "connection": connection_cost(site.metric, assignment, counts),
    }
    if site.opening is not None:
        parts["opening"] = math.fsum(site.opening[assignment.opened])
    return parts | {"total": math.fsum(parts.values())}


def capacities(counts: Floats, added: Floats) -> Floats:
    """max(0, counts + margins), rounded up where the sum is no double."""
    total = counts + added
    rounded = (total - counts) < added
    return np.asarray(np.maximum(0.0, np.where(rounded, np.nextafter(total, np.inf), total)), dtype=np.float64)


def serve(
    site: Site,
    noisy: NDArray[Any],
    rule: MarginRule,
    alpha: float,
    *,
    method: Method = "reconnection",
    delta: float | Literal["auto"] = "auto",
    mean_clients: float | None = None,
    base: Assignment | None = None,
    go_on: GoOn | None = None,
) -> Plan:
    """Run Algorithm 2 (``laplace``) or 3 (``reconnection``) from the noisy counts on.

    Args:
        noisy: (n,) counts with Laplace(1/epsilon) noise, independent by location; may be negative.
        rule: how margins are made.
        alpha: failure probability promised: with 1 - alpha every capacity covers the true counts.
        delta: reconnection radius; ``"auto"`` takes the cheapest of a public grid, by ``mean_clients`` where it is
            public knowledge, else by the total of the noisy counts (see `delta`).
        base: the connection to start from; by default Algorithm 1's. It must be public.
        go_on: asked before each radius of the grid; where it says no, ``auto`` chooses among those so far. How many
            those are nobody can check, so the margins are then for alpha / (radii of the grid): any choice keeps alpha.
    """
    base = base or site.connected()
    chosen, radius, level, rules = base, 0.0, alpha, None
    if method == "reconnection" and delta != "auto":
        radius = float(delta)
        chosen = reconnect(site.metric, site.cost, site.rank, base, radius)
    elif method == "reconnection":
        radii, whole = grid(site.metric.extent), True

        def more(phase: str, turn: int) -> bool:
            nonlocal whole
            whole = go_on is None or go_on(phase, turn)
            return whole

        choices = candidates(site.metric, site.cost, site.rank, base, radii, rule, alpha, more)
        if not whole:
            level = level_cut_short(alpha)
        if mean_clients is not None:
            found = cheapest_at(choices, mean_clients)
        else:
            rules = policy(choices, site.cost, rule, alpha, level=None if whole else level)
            found, level = rules.choose(math.fsum(noisy)), rules.level
        chosen, radius = found.assignment, found.delta
    return Plan.at(site, noisy, rule, chosen, delta=radius, level=level, policy=rules)
