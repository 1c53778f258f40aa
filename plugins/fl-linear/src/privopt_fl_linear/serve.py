"""The server's side, which computes connections and capacities from noisy counts and public data alone.

`serve` makes the plan. Its only input besides public data is the noisy counts drawn by `location.noisy_counts`. If
facilities have to be chosen, up to two plans are made (:class:`~privopt_fl_linear.plan.Server`), and the one with the
lower cost at the noisy counts is published. This choice is post-processing. `plan_again` recomputes the plan from
published data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from privopt.errors import Fault, InfeasibleError, InputError, StoppedError
from privopt.execution.clock import limit
from privopt.interfaces import SolveContext
from privopt_fl_linear.capacity import assign_within_bounds
from privopt_fl_linear.margins import AnySet
from privopt_fl_linear.opening import BYTES_PER_PAIR, MAX_PAIRS, Facilities, min_pairs, open_facilities
from privopt_fl_linear.plan import Counts, Plan, Server
from privopt_fl_linear.reconnection import choose_at_mean, choose_policy, level_cut_short, list_radii, reconnect
from privopt_fl_linear.service_costs import SiteCosts
from privopt_fl_linear.site import Assignment

__all__ = ["choose_facilities", "plan_again", "plan_at", "serve"]

NO_MARGIN: Final = AnySet(start=0.0, slope=0.0)
"""Margins of 0, which are used for counts without noise and for facilities chosen before margins are added."""


def serve(server: Server, noisy: Counts, context: SolveContext, ids: NDArray[np.str_] | None = None) -> Plan:
    """Make the plans that the problem allows, and return the one with the lowest cost at the noisy counts.

    There are up to two: the prior's plan, in which facilities are chosen from public data, and the reports' plan, in
    which they are chosen from noisy counts.

    Args:
        server: The server's public data and settings.
        noisy: (n,) The counts with independent Laplace(1/epsilon) noise, which may be negative.
        context: The solver, its gap and limits, and the progress callback.
        ids: (n,) The locations' ids, which identify open sites in the plan's record. By default, location indices are
            used.

    Raises:
        InfeasibleError: No plan respects the capacity bounds.
        StoppedError: A limit was reached before the first plan was made.
    """
    ids = np.arange(server.site.size).astype(np.str_) if ids is None else ids
    base, stopped = None, False
    plans: dict[str, Plan] = {}
    recorded: dict[str, Any] = {}
    if server.has_prior:
        base, opened = prior_base(server, context)
        prior = _serve_prior(server, noisy, context, base)
        recorded, stopped = dict(prior.recorded), prior.stopped
        if opened is not None:
            site_facts = {"clients_assumed": server.mean_clients, "sites": ids[base.opened].tolist()}
            recorded["opening"] = site_facts | _summarize_facilities(opened)
            stopped = stopped or opened.status != "optimal"
        # The prior's plan ignores capacity bounds, so it may violate them.
        if not (prior.capacities > server.site.capacity_bounds[prior.assignment.opened]).any():
            plans["prior"] = prior
            # Unless the noisy counts may decide which facilities to open, no other plan is needed.
            if not (server.chooses_sites and server.sites == "reports"):
                return evolve(prior, recorded=recorded, stopped=stopped)
    try:
        reports = _serve_reports(server, noisy, context, server.any_set(base))
        plans["reports"] = reports
        recorded, stopped = {**recorded, **reports.recorded}, stopped or reports.stopped
    except (InfeasibleError, StoppedError) as error:
        # If there is a prior's plan, it is used instead.
        if not plans:
            raise
        recorded["reports"] = {"status": str(error)}
        stopped = stopped or context.remaining == 0.0
    # Both costs depend only on noisy counts and public data, so the choice is post-processing.
    costs = {name: plan.costs(server.site, noisy)["total"] for name, plan in plans.items()}
    name_of_best = min(costs, key=lambda name: costs[name])
    recorded["plans"] = {"chosen": name_of_best, "cost": costs}
    return evolve(plans[name_of_best], recorded=recorded, stopped=stopped)


def plan_again(
    server: Server,
    noisy: Counts,
    recorded: Mapping[str, Any],
    ids: NDArray[np.str_],
    published: Assignment,
) -> Plan:
    """Recompute the published plan from the published noisy counts.

    If the facilities were chosen from public data, they are taken from the record, which also says whether the choice
    of the radius (``auto``) was cut short. If they were chosen from noisy counts, the published assignment is used,
    because margins are then valid for every assignment.

    Args:
        server: The server's public data and settings.
        noisy: (n,) The published noisy counts.
        recorded: The result's ``details.told``, in which `solve` recorded how the plan was chosen.
        ids: (n,) The ids of the locations in ascending order.
        published: The published assignment.

    Raises:
        InputError: The record does not describe a plan.
    """
    base = prior_base(server, SolveContext(method="verify"), recorded, ids)[0] if server.has_prior else None
    # Whether the published plan is the one whose facilities were chosen from noisy counts.
    by_reports = server.has_reports and (recorded.get("plans") or {}).get("chosen") == "reports"
    if base is None or by_reports:
        return server.reports_plan(noisy, published, server.any_set(base))
    # If the time limit expired before all radii were tried, `_serve_prior` used radius 0.
    if server.delta == "auto" and (recorded.get("auto") or {}).get("radii_cut_short"):
        return server.prior_plan(noisy, base, 0.0, level_cut_short(server.prior_level))
    return _serve_prior(server, noisy, SolveContext(method="verify"), base)


def plan_at(
    server: Server, noisy: Counts, recorded: Mapping[str, Any], ids: NDArray[np.str_], delta: float, level: float
) -> Plan:
    """Return the prior's plan for a known radius and failure probability.

    The facilities of this plan were chosen from public data. During verification, the radius and the level come from
    result.json.

    Args:
        server: The server's public data and settings.
        noisy: (n,) The published noisy counts.
        recorded: The result's ``details.told``, which contains the ids of the chosen facilities.
        ids: (n,) The ids of the locations in ascending order.
        delta: The reconnection radius, in the metric's unit.
        level: The total failure probability of the margins.

    Raises:
        InputError: The recorded sites are not locations of the problem.
    """
    base = prior_base(server, SolveContext(method="verify"), recorded, ids)[0]
    return server.prior_plan(noisy, reconnect(server.site, base, delta), delta, level)


def prior_base(
    server: Server,
    context: SolveContext,
    recorded: Mapping[str, Any] | None = None,
    ids: NDArray[np.str_] | None = None,
) -> tuple[Assignment, Facilities | None]:
    """Compute the assignment of the prior's plan before reconnection, using only public data.

    If the facilities to open have to be chosen, the set with the lowest cost at the public mean count is used.

    Args:
        server: The server's public data and settings.
        context: The solver, its gap and limits, and the progress callback.
        recorded: The ``details.told`` of an earlier result that provides the sites, or None to solve for the sites.
        ids: (n,) The ids of the locations in ascending order, which are required if ``recorded`` is given.

    Returns:
        The assignment, and the solution of the facility location problem that determined its facilities. The solution
        is None if no such problem was solved.

    Raises:
        InputError: The recorded sites are not locations of the problem.
    """
    if not server.chooses_sites:
        return server.site.connect(), None
    sites = None if recorded is None else (recorded.get("opening") or {}).get("sites", [])
    if sites is not None:
        assert ids is not None  # the record identifies sites by id
        # The record comes from result.json, which could have been tampered with, so its ids are checked. For an unknown
        # id, searchsorted returns the position of another one (or n), which the comparison below reveals.
        among = np.unique(np.searchsorted(ids, np.asarray(sites, dtype=ids.dtype)))
        if not len(among) or ids[np.minimum(among, len(ids) - 1)].tolist() != sorted(sites):
            where = "details.told.opening.sites"
            raise InputError([Fault("result.json", where, "other ids", "locations, each once")])
        return server.site.connect(among), None
    mean = np.full(server.site.size, server.mean_clients)
    # Only the reports' plan takes capacity bounds into account. If this plan violates them, it is dropped.
    unbounded = evolve(server, site=evolve(server.site, capacity=None))
    opened = choose_facilities(unbounded, mean, NO_MARGIN, context, phase="facilities by the mean count")
    return server.site.connect(opened.opened), opened


def _serve_prior(server: Server, noisy: Counts, context: SolveContext, base: Assignment) -> Plan:
    """Make the prior's plan by reconnecting a public assignment and adding margins, ignoring capacity bounds.

    If ``delta`` is ``"auto"``, the grid radius with the lowest cost at the public mean count is used. If the mean count
    is not known, a public rule assigns a radius to the total of the noisy counts (`choose_policy`).

    Args:
        server: The server's public data and settings.
        noisy: (n,) The noisy counts.
        context: The time limit and the progress callback.
        base: The public assignment before reconnection.
    """
    context.report("margins")
    level = server.prior_level
    if server.delta != "auto":
        return server.prior_plan(noisy, reconnect(server.site, base, server.delta), server.delta, level)
    context.report("reconnection radii")
    with limit(context.remaining) as scope:
        choices = list_radii(server.site, base, server.rule, level)
    # A verifier cannot rule out that this timeout depended on the noise, so margins are computed with a union bound
    # over all radii.
    if scope.expired:
        plan = server.prior_plan(noisy, base, 0.0, level_cut_short(level))
        return evolve(plan, recorded={"auto": {"radii_cut_short": True}}, stopped=True)
    if server.mean_clients is not None:
        candidate = choose_at_mean(choices, server.mean_clients)
        return server.prior_plan(noisy, candidate.assignment, candidate.delta, level)
    policy = choose_policy(choices, server.rule, level)
    candidate = policy.choose_radius(math.fsum(noisy))
    auto = {
        "radii": [choice.delta for choice in policy.choices],
        "thresholds_mean_clients": (policy.thresholds / server.rule.n).tolist(),
        "failure_bound": policy.bound,
        "radii_cut_short": False,
        "delta": candidate.delta,
        "level": policy.level,
    }
    plan = server.prior_plan(noisy, candidate.assignment, candidate.delta, policy.level)
    return evolve(plan, recorded={"auto": auto})


def _serve_reports(server: Server, noisy: Counts, context: SolveContext, any_set: AnySet) -> Plan:
    """Make the reports' plan, in which the facilities are chosen based on the noisy counts.

    Args:
        server: The server's public data and settings.
        noisy: (n,) The noisy counts.
        context: The solver, its gap and limits, and the progress callback.
        any_set: The margins, which are valid for every set of locations and hence for any choice of facilities.

    Raises:
        InfeasibleError: No plan respects the capacity bounds.
        StoppedError: No plan was found within the time limit.
    """
    try:
        facilities = choose_facilities(server, noisy, any_set, context, phase="facilities by the reports")
    except (InfeasibleError, StoppedError) as error:
        # The message mentions the margins, because a plan might fit without them.
        error.args = (f"{error}, margins of {any_set.start:.6g} and {any_set.slope:.6g} a location included",)
        raise
    plan = server.reports_plan(noisy, Assignment.from_facilities(facilities.facility), any_set)
    stopped = facilities.status != "optimal" and context.remaining == 0.0
    reports = _summarize_facilities(facilities) | {"mean_reported": math.fsum(noisy) / server.rule.n}
    return evolve(plan, recorded={"reports": reports}, stopped=stopped)


def _summarize_facilities(facilities: Facilities) -> dict[str, Any]:
    """Return the entries of result.json for a solution: its cost, bound and status, and the size of the search."""
    names = ("objective", "bound", "status", "nodes", "pairs")
    return {name: getattr(facilities, name) for name in names}


def choose_facilities(
    server: Server, counts: Counts, any_set: AnySet, context: SolveContext, *, phase: str
) -> Facilities:
    """Choose which facilities to open, and which of them serves each location, for the given counts.

    The problem is uncapacitated facility location or, with capacity bounds, single-source capacitated facility
    location. The fixed cost of a facility is its opening cost plus the cost of capacity for ``any_set.start`` clients.
    A location takes up capacity for max(0, count + ``any_set.slope``) clients. If there are margins, the distance from
    a location to its facility is weighted by max(1, count), so that a location with a noisy count of 0 is not assigned
    to a distant facility.

    Args:
        server: The server's public data and settings.
        counts: (n,) The counts to plan for. They may be noisy, true, or all equal to the public mean.
        any_set: The margin of each facility, which is ``start`` clients plus ``slope`` clients per location. Both are 0
            if there are no margins.
        context: The solver, its gap and limits, and the progress callback.
        phase: The name of this step in progress reports.

    Returns:
        The solution, in which facilities are identified by location index.

    Raises:
        InputError: There are more (facility, location) pairs than the solver accepts.
        InfeasibleError: No plan respects the capacity bounds.
        StoppedError: No plan was found within the time and memory limits.
    """
    context.report(phase)
    site = server.site
    places, true_or_noisy = site.allowed_sites, np.asarray(counts, dtype=np.float64)
    clients = np.maximum(true_or_noisy + any_set.slope, 0.0)
    # The noise may lower a count to 0 or less although the location has clients. With margins, each location therefore
    # counts as at least one client.
    weight = np.maximum(true_or_noisy, 1.0 if any_set.start + any_set.slope > 0.0 else 0.0)
    # The cost of a pair is weight * (distance + scale * facility cost). The facility cost is thus paid for `clients`,
    # which is the capacity that the location takes up, rather than for `weight`.
    scale = np.divide(clients, weight, out=np.ones(site.size), where=weight > 0.0)
    costs = SiteCosts(site=site, among=places, weight=weight, scale=scale)
    opening = site.opening_cost[places] + site.cost[places] * any_set.start
    has_bounds = site.capacity is not None
    pairs = len(places) * site.size if has_bounds else min_pairs(len(places), site.size)
    size_text = f"{len(places):,} places for a facility and {site.size:,} locations ({pairs:,} pairs)"
    if pairs > MAX_PAIRS:
        expectation = f"at most {MAX_PAIRS:,} pairs, for which facilities to open is solved over them"
        raise InputError([Fault(site.source, "", size_text, expectation)])
    context.require_memory((64.0 if has_bounds else BYTES_PER_PAIR) * pairs, size_text)
    facilities = open_facilities(
        costs,
        opening,
        max_facilities=server.max_facilities,
        gap=max(context.gap, 1e-9),
        seconds=context.remaining,
        report=lambda nodes, lower, upper: context.report(phase, nodes, lower, upper),
        max_pairs=int(min(MAX_PAIRS, context.free_memory / BYTES_PER_PAIR)),
    )
    if has_bounds:
        # For real-valued counts, bounds are slightly reduced, because sums depend on the order of their terms through
        # rounding. Sums of integers are exact.
        slack = 1.0 - 1e-9 if server.rule.noise == "continuous" else 1.0
        capacity = (site.capacity_bounds[places] - any_set.start) * slack
        context.report(f"{phase}, within bounds", 0, facilities.bound)
        facilities = assign_within_bounds(costs, opening, clients, capacity, facilities, server.max_facilities, context)
    return evolve(facilities, facility=places[facilities.facility], opened=places[facilities.opened])
