"""The server's side: from noisy counts and public data alone to connections and capacities.

Between `location.noisy_counts` and `serve` pass the noisy counts and nothing else. Two plans are made where facilities
are a choice (:class:`~privopt_fl_linear.plan.Server`), and the one that costs less at the noisy counts is published:
choosing it is post-processing. `plan_again` gives the same plan from what was published.
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


def serve(server: Server, noisy: Counts, context: SolveContext, ids: NDArray[np.str_] | None = None) -> Plan:
    """Make the plans that there are, and take the one that costs less at the noisy counts.

    Args:
        server: the public choices.
        noisy: (n,) counts with Laplace(1/epsilon) noise, independent by location; may be negative.
        context: limits, solver, progress.
        ids: (n,) of the locations, for the record of the sites opened; default: their numbers.

    Raises:
        InfeasibleError: no plan keeps the capacity bounds.
        StoppedError: a limit came before there was any.
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
            told = {"clients_assumed": server.mean_clients, "sites": ids[base.opened].tolist()}
            recorded["opening"] = told | _summary(opened)
            stopped = stopped or opened.status != "optimal"
        if not (prior.capacities > server.site.bound[prior.assignment.opened]).any():
            plans["prior"] = prior
            if not (server.chooses_sites and server.sites == "reports"):
                return evolve(prior, recorded=recorded, stopped=stopped)
    try:
        reports = _serve_reports(server, noisy, context, server.any_set(base))
        plans["reports"] = reports
        recorded, stopped = {**recorded, **reports.recorded}, stopped or reports.stopped
    except (InfeasibleError, StoppedError) as error:
        if not plans:
            raise
        recorded["reports"] = {"status": str(error)}
        stopped = stopped or context.remaining == 0.0
    costs = {name: plan.costs(server.site, noisy)["total"] for name, plan in plans.items()}
    chosen = min(costs, key=lambda name: costs[name])
    recorded["plans"] = {"chosen": chosen, "cost": costs}
    return evolve(plans[chosen], recorded=recorded, stopped=stopped)


def plan_again(
    server: Server,
    noisy: Counts,
    recorded: Mapping[str, Any],
    ids: NDArray[np.str_],
    published: Assignment,
) -> Plan:
    """Return the plan that the published noisy counts give, of the kind that was published.

    The facilities that public data chose are taken as they are recorded, and so is whether ``auto`` was cut short. A
    plan that the noisy counts chose is the published assignment's: its margins hold for every assignment.

    Raises:
        InputError: what is recorded is not a plan.
    """
    base = prior_base(server, SolveContext(method="verify"), recorded, ids)[0] if server.has_prior else None
    by_reports = server.has_reports and (recorded.get("plans") or {}).get("chosen") == "reports"
    if base is None or by_reports:
        return server.reports_plan(noisy, published, server.any_set(base))
    if server.delta == "auto" and (recorded.get("auto") or {}).get("radii_cut_short"):
        return server.prior_plan(noisy, base, 0.0, level_cut_short(server.prior_level))
    return _serve_prior(server, noisy, SolveContext(method="verify"), base)


def plan_at(
    server: Server, noisy: Counts, recorded: Mapping[str, Any], ids: NDArray[np.str_], delta: float, level: float
) -> Plan:
    """Return the prior's plan at a radius and a failure probability that are known."""
    base = prior_base(server, SolveContext(method="verify"), recorded, ids)[0]
    return server.prior_plan(noisy, reconnect(server.site, base, delta), delta, level)


def prior_base(
    server: Server,
    context: SolveContext,
    recorded: Mapping[str, Any] | None = None,
    ids: NDArray[np.str_] | None = None,
) -> tuple[Assignment, Facilities | None]:
    """Return the connection that the prior's plan starts from: public, so that it cannot break the promise.

    Where opening is a choice, its facilities are those that are cheapest at the public mean count.

    Args:
        server: the public choices.
        context: limits, solver, progress.
        recorded: ``details.told``, whose sites are taken instead of solving again.
        ids: (n,) of the locations.

    Raises:
        InputError: the sites recorded are not locations.
    """
    if not server.chooses_sites:
        return server.site.connect(), None
    sites = None if recorded is None else (recorded.get("opening") or {}).get("sites", [])
    if sites is not None:
        assert ids is not None  # what is recorded names them
        among = np.unique(np.searchsorted(ids, np.asarray(sites, dtype=ids.dtype)))
        if not len(among) or ids[np.minimum(among, len(ids) - 1)].tolist() != sorted(sites):
            where = "details.told.opening.sites"
            raise InputError([Fault("result.json", where, "other ids", "locations, each once")])
        return server.site.connect(among), None
    mean = np.full(server.site.size, server.mean_clients)
    unbounded = evolve(server, site=evolve(server.site, capacity=None))
    opened = choose_facilities(unbounded, mean, NO_MARGIN, context, phase="facilities by the mean count")
    return server.site.connect(opened.opened), opened


def _serve_prior(server: Server, noisy: Counts, context: SolveContext, base: Assignment) -> Plan:
    """Make the method's own plan from a public connection; capacity bounds are not looked at."""
    context.report("margins")
    level = server.prior_level
    if server.delta != "auto":
        return server.prior_plan(noisy, reconnect(server.site, base, server.delta), server.delta, level)
    context.report("reconnection radii")
    with limit(context.remaining) as scope:
        choices = list_radii(server.site, base, server.rule, level)
    if scope.expired:  # without reconnection then; no one can check that the noise had no part in it
        plan = server.prior_plan(noisy, base, 0.0, level_cut_short(level))
        return evolve(plan, recorded={"auto": {"radii_cut_short": True}}, stopped=True)
    if server.mean_clients is not None:
        chosen = choose_at_mean(choices, server.mean_clients)
        return server.prior_plan(noisy, chosen.assignment, chosen.delta, level)
    policy = choose_policy(choices, server.rule, level)
    chosen = policy.choose(math.fsum(noisy))
    auto = {
        "radii": [choice.delta for choice in policy.choices],
        "thresholds_mean_clients": (policy.thresholds / server.rule.n).tolist(),
        "failure_bound": policy.bound,
        "radii_cut_short": False,
        "delta": chosen.delta,
        "level": policy.level,
    }
    plan = server.prior_plan(noisy, chosen.assignment, chosen.delta, policy.level)
    return evolve(plan, recorded={"auto": auto})


def _serve_reports(server: Server, noisy: Counts, context: SolveContext, any_set: AnySet) -> Plan:
    """Make the plan whose facilities the noisy counts choose.

    Raises:
        InfeasibleError, StoppedError: nothing keeps the bounds, or nothing was found in time.
    """
    try:
        found = choose_facilities(server, noisy, any_set, context, phase="facilities by the reports")
    except (InfeasibleError, StoppedError) as error:
        error.args = (f"{error}, margins of {any_set.start:.6g} and {any_set.slope:.6g} a location included",)
        raise
    plan = server.reports_plan(noisy, Assignment.from_facilities(found.facility), any_set)
    stopped = found.status != "optimal" and context.remaining == 0.0
    reports = _summary(found) | {"mean_reported": math.fsum(noisy) / server.rule.n}
    return evolve(plan, recorded={"reports": reports}, stopped=stopped)


def _summary(facilities: Facilities) -> dict[str, Any]:
    names = ("objective", "bound", "status", "nodes", "pairs")
    return {name: getattr(facilities, name) for name in names}


def choose_facilities(
    server: Server, counts: Counts, any_set: AnySet, context: SolveContext, *, phase: str
) -> Facilities:
    """Choose the facilities to open, and who is served by whom, for counts that are taken as they are.

    A facility costs its opening and the start of its margin. A location takes the capacity of its count and of its part
    of the margin, at least none. Its way is weighed by one client at least where there is a margin, so that a location
    whose count the noise took away is not sent far. Without bounds this is the uncapacitated problem, with bounds the
    single-source capacitated one.

    Returns:
        The answer, its facilities as locations.

    Raises:
        InputError: more pairs than are ever solved over.
        InfeasibleError, StoppedError: nothing keeps the bounds; nothing was found in time, or fits into memory.
    """
    context.report(phase)
    site = server.site
    among, here = site.allowed, np.asarray(counts, dtype=np.float64)
    clients = np.maximum(here + any_set.slope, 0.0)
    weight = np.maximum(here, 1.0 if any_set.start + any_set.slope > 0.0 else 0.0)
    scale = np.divide(clients, weight, out=np.ones(site.size), where=weight > 0.0)
    costs = SiteCosts(site=site, among=among, weight=weight, scale=scale)
    opening = site.opening_cost[among] + site.cost[among] * any_set.start
    bounded = site.capacity is not None
    pairs = len(among) * site.size if bounded else min_pairs(len(among), site.size)
    asked = f"{len(among):,} places for a facility and {site.size:,} locations ({pairs:,} pairs)"
    if pairs > MAX_PAIRS:
        wanted = f"at most {MAX_PAIRS:,} pairs, for which facilities to open is solved over them"
        raise InputError([Fault(site.source, "", asked, wanted)])
    context.need((64.0 if bounded else BYTES_PER_PAIR) * pairs, asked)
    found = open_facilities(
        costs,
        opening,
        max_facilities=server.max_facilities,
        gap=max(context.gap, 1e-9),
        seconds=context.remaining,
        report=lambda nodes, lower, upper: context.report(phase, nodes, lower, upper),
        max_pairs=int(min(MAX_PAIRS, context.free_memory / BYTES_PER_PAIR)),
    )
    if bounded:
        slack = 1.0 - 1e-9 if server.rule.noise == "continuous" else 1.0  # sums of doubles, in whatever order
        capacity = (site.bound[among] - any_set.start) * slack
        context.report(f"{phase}, within bounds", 0, found.bound)
        found = assign_within_bounds(costs, opening, clients, capacity, found, server.max_facilities, context)
    return evolve(found, facility=among[found.facility], opened=among[found.opened])
