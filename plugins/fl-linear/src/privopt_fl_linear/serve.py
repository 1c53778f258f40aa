"""The server's side: compute connections and capacities from noisy counts and public data alone.

`serve` makes the plan. Apart from public data, its only input is the noisy counts that `location.noisy_counts` draws.
If the facilities are to be chosen, two plans may be made (:class:`~privopt_fl_linear.plan.Server`), and the one that
costs less at the noisy counts is published. This choice is post-processing. `plan_again` recomputes the plan from the
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
"""Margins of 0, for counts without noise and for facilities that are chosen before margins are added."""


def serve(server: Server, noisy: Counts, context: SolveContext, ids: NDArray[np.str_] | None = None) -> Plan:
    """Make the plans that the problem allows, and return the one that costs least at the noisy counts.

    The facilities of the prior's plan are chosen from public data, and those of the reports' plan from the noisy
    counts.

    Args:
        server: The server's public data and settings.
        noisy: (n,) The counts with independent Laplace(1/epsilon) noise. They may be negative.
        context: The solver, its gap and limits, and the receiver of progress reports.
        ids: (n,) The locations' ids, which identify open sites in the plan's record. By default the location indices.

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
        # The prior's plan is made without regard to capacity bounds, so it may violate them.
        if not (prior.capacities > server.site.capacity_bounds[prior.assignment.opened]).any():
            plans["prior"] = prior
            # Unless opening is a choice that the noisy counts may make, this plan is the only one.
            if not (server.chooses_sites and server.sites == "reports"):
                return evolve(prior, recorded=recorded, stopped=stopped)
    try:
        reports = _serve_reports(server, noisy, context, server.any_set(base))
        plans["reports"] = reports
        recorded, stopped = {**recorded, **reports.recorded}, stopped or reports.stopped
    except (InfeasibleError, StoppedError) as error:
        # If there is a prior's plan, it is used.
        if not plans:
            raise
        recorded["reports"] = {"status": str(error)}
        stopped = stopped or context.remaining == 0.0
    # Both costs are functions of the noisy counts and public data, so the choice is post-processing.
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

    Facilities that were chosen from public data are taken from the record. The record also states whether the choice of
    the radius (``auto``) was cut short. If the facilities were chosen from the noisy counts, the published assignment
    is used, because the margins hold for every assignment.

    Args:
        server: The server's public data and settings.
        noisy: (n,) The published noisy counts.
        recorded: ``details.told`` of the result, in which `solve` recorded how the plan was chosen.
        ids: (n,) The ids of the locations, ascending.
        published: The published assignment.

    Raises:
        InputError: The record does not describe a plan.
    """
    base = prior_base(server, SolveContext(method="verify"), recorded, ids)[0] if server.has_prior else None
    # True if the published plan is the one whose facilities were chosen from the noisy counts.
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

    The facilities of this plan were chosen from public data. Verification calls this function with the radius and level
    in result.json.

    Args:
        server: The server's public data and settings.
        noisy: (n,) The published noisy counts.
        recorded: ``details.told`` of the result, which contains the ids of the chosen facilities.
        ids: (n,) The ids of the locations, ascending.
        delta: The reconnection radius, in the metric's unit.
        level: Total failure probability of the margins.

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
    """Compute the assignment of the prior's plan, before reconnection, from public data only.

    If the facilities are to be chosen, the set that costs least at the public mean count is chosen.

    Args:
        server: The server's public data and settings.
        context: The solver, its gap and limits, and the receiver of progress reports.
        recorded: ``details.told`` of a result. If given, its sites are used instead of solving again.
        ids: (n,) The ids of the locations, ascending. Required with ``recorded``.

    Returns:
        The assignment, and the facility-location solution from which its facilities come. The solution is None if
        nothing was solved.

    Raises:
        InputError: The recorded sites are not locations of the problem.
    """
    if not server.chooses_sites:
        return server.site.connect(), None
    sites = None if recorded is None else (recorded.get("opening") or {}).get("sites", [])
    if sites is not None:
        assert ids is not None  # the record states sites by id
        # The record comes from result.json, which somebody may have changed, so each of its ids is checked. For an
        # unknown id, searchsorted returns the position of another one (or n), which the comparison below reveals.
        among = np.unique(np.searchsorted(ids, np.asarray(sites, dtype=ids.dtype)))
        if not len(among) or ids[np.minimum(among, len(ids) - 1)].tolist() != sorted(sites):
            where = "details.told.opening.sites"
            raise InputError([Fault("result.json", where, "other ids", "locations, each once")])
        return server.site.connect(among), None
    mean = np.full(server.site.size, server.mean_clients)
    # Capacity bounds are left to the reports' plan. This plan is dropped if it violates them.
    unbounded = evolve(server, site=evolve(server.site, capacity=None))
    opened = choose_facilities(unbounded, mean, NO_MARGIN, context, phase="facilities by the mean count")
    return server.site.connect(opened.opened), opened


def _serve_prior(server: Server, noisy: Counts, context: SolveContext, base: Assignment) -> Plan:
    """Make the prior's plan: reconnect a public assignment and add margins, ignoring capacity bounds.

    With ``delta = "auto"``, the radius of the grid that costs least at the public mean count is used. If the mean count
    is not known, a public rule maps the total of the noisy counts to a radius (`choose_policy`).

    Args:
        server: The server's public data and settings.
        noisy: (n,) The noisy counts.
        context: The time limit, and the receiver of progress reports.
        base: The public assignment before reconnection.
    """
    context.report("margins")
    level = server.prior_level
    if server.delta != "auto":
        return server.prior_plan(noisy, reconnect(server.site, base, server.delta), server.delta, level)
    context.report("reconnection radii")
    with limit(context.remaining) as scope:
        choices = list_radii(server.site, base, server.rule, level)
    # A verifier cannot check that the noise did not influence this timeout. So the margins are computed for a union
    # bound over all radii.
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
    """Make the reports' plan, in which the facilities are chosen from the noisy counts.

    Args:
        server: The server's public data and settings.
        noisy: (n,) The noisy counts.
        context: The solver, its gap and limits, and the receiver of progress reports.
        any_set: Margins that hold for every set of locations, and so for any choice.

    Raises:
        InfeasibleError, StoppedError: No plan respects the capacity bounds, or none was found within the time limit.
    """
    try:
        facilities = choose_facilities(server, noisy, any_set, context, phase="facilities by the reports")
    except (InfeasibleError, StoppedError) as error:
        # Without margins a plan may fit, so the message names them.
        error.args = (f"{error}, margins of {any_set.start:.6g} and {any_set.slope:.6g} a location included",)
        raise
    plan = server.reports_plan(noisy, Assignment.from_facilities(facilities.facility), any_set)
    stopped = facilities.status != "optimal" and context.remaining == 0.0
    reports = _summarize_facilities(facilities) | {"mean_reported": math.fsum(noisy) / server.rule.n}
    return evolve(plan, recorded={"reports": reports}, stopped=stopped)


def _summarize_facilities(facilities: Facilities) -> dict[str, Any]:
    """Return a solution's entries for result.json: its cost, bound and status, and the size of the search."""
    names = ("objective", "bound", "status", "nodes", "pairs")
    return {name: getattr(facilities, name) for name in names}


def choose_facilities(
    server: Server, counts: Counts, any_set: AnySet, context: SolveContext, *, phase: str
) -> Facilities:
    """Choose the facilities to open, and the facility that serves each location, for given counts.

    Without capacity bounds, this is uncapacitated facility location. With them, it is single-source capacitated
    facility location. The fixed cost of a facility is its opening cost plus the cost of capacity for ``start`` clients.
    A location takes up capacity for max(0, count + ``slope``) clients. If there are margins, the distance from a
    location to its facility is weighted by max(1, count), so that a location whose noisy count is 0 is not assigned to
    a distant facility.

    Args:
        server: The server's public data and settings.
        counts: (n,) The counts to plan for: noisy ones, true ones, or the public mean.
        any_set: The margins of a facility: ``start`` clients, plus ``slope`` clients for each of its locations. Both
            are 0 if there are no margins.
        context: The solver, its gap and limits, and the receiver of progress reports.
        phase: Name of this step in progress reports.

    Returns:
        The solution, in which facilities are identified by location index.

    Raises:
        InputError: There are more pairs than the solver accepts.
        InfeasibleError, StoppedError: No plan respects the capacity bounds, or none was found within the time and
            memory limits.
    """
    context.report(phase)
    site = server.site
    places, true_or_noisy = site.allowed_sites, np.asarray(counts, dtype=np.float64)
    clients = np.maximum(true_or_noisy + any_set.slope, 0.0)
    # The noise may lower a count to 0 or less although the location has clients, so with a margin each location counts
    # for at least one client.
    weight = np.maximum(true_or_noisy, 1.0 if any_set.start + any_set.slope > 0.0 else 0.0)
    # The cost of a pair is weight * (distance + scale * facility cost). So the facility cost is paid for `clients`, the
    # capacity that the location takes up, and not for `weight`.
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
        # Bounds are slightly reduced for real-valued counts, because the rounding of their sums depends on the order of
        # the terms. Sums of integers are exact.
        slack = 1.0 - 1e-9 if server.rule.noise == "continuous" else 1.0
        capacity = (site.capacity_bounds[places] - any_set.start) * slack
        context.report(f"{phase}, within bounds", 0, facilities.bound)
        facilities = assign_within_bounds(costs, opening, clients, capacity, facilities, server.max_facilities, context)
    return evolve(facilities, facility=places[facilities.facility], opened=places[facilities.opened])
