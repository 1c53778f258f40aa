"""A problem's plan: which facilities are open, who is served by whom, and the same again from what was published."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve

from privopt.arrays import Floats, Ints
from privopt.errors import Fault, InfeasibleError, InputError, StoppedError
from privopt.interfaces import SolveContext
from privopt_fl_linear.algorithms import Assignment, reconnect
from privopt_fl_linear.capacitated import assign
from privopt_fl_linear.delta import grid, level_cut_short
from privopt_fl_linear.margins import AnySet
from privopt_fl_linear.opening import BYTES_A_PAIR, MOST_PAIRS, Opened, least_pairs, open_facilities
from privopt_fl_linear.problem import FLInstance
from privopt_fl_linear.reach import OverSite
from privopt_fl_linear.server import Plan, serve

__all__ = [
    "alpha_of",
    "assigned_at",
    "base_of",
    "beyond_bounds",
    "chosen_by_noise",
    "level_of",
    "mean_of",
    "no_counts",
    "opened_at",
    "plan_again",
    "plan_at",
    "serve_problem",
]


def plan_at(problem: FLInstance, method: str, delta: float, level: float, told: Mapping[str, Any]) -> Plan:
    """The plan at a radius, a failure level and, where opening is a choice, open facilities that are known."""
    site, noisy = problem.data.site, problem.data.noisy
    base = base_of(problem, SolveContext(method=method), (told.get("opening") or {}).get("sites"))[0]
    assignment = base if method == "laplace" else reconnect(site.metric, site.cost, site.rank, base, delta)
    return Plan.at(site, noisy, problem.rule, assignment, delta=delta, level=level)


def plan_again(problem: FLInstance, method: str, told: Mapping[str, Any], published: Assignment) -> Plan:
    """The plan that the published noisy counts give; where ``auto`` was cut short, at the radius of the grid stated.

    That one's margins are for a level that holds whichever radius is taken. Open facilities are taken as they are
    stated. Where the plan breaks a capacity bound it is the published assignment's: its margins hold for every one.

    Raises:
        InputError: what is stated is no plan.
    """
    if problem.data.noisy is None:
        raise InputError([no_counts(problem, "noisy_clients")])
    chosen, asked = told.get("auto") or {}, problem.declared.settings.delta
    if not chosen.get("radii_cut_short") or asked != "auto" or method == "laplace":
        plan = _serve(problem, problem.data.noisy, SolveContext(method=method), told)[0]
    else:
        stated = float(chosen["delta"])
        delta = min(grid(problem.data.site.metric.extent), key=lambda radius: abs(radius - stated))
        if not math.isclose(delta, stated, rel_tol=1e-12):
            raise InputError([Fault("result.json", "details.told.auto.delta", repr(stated), "a radius of the grid")])
        plan = plan_at(problem, method, delta, level_cut_short(level_of(problem)), told)
    return chosen_by_noise(problem, published) if len(beyond_bounds(problem, plan)) else plan


def alpha_of(problem: FLInstance) -> float:
    """The failure probability promised."""
    return problem.declared.privacy.failure_probability


def level_of(problem: FLInstance) -> float:
    """The failure probability of the public plan: half of it where bounds may lead to one that the noise chooses.

    Either plan's failure is within the union of both events, whatever leads to it.
    """
    return alpha_of(problem) / 2.0 if problem.bounded else alpha_of(problem)


def beyond_bounds(problem: FLInstance, plan: Plan) -> Ints:
    """Facilities (places in the plan) that would have to be built beyond their bound."""
    bound = problem.data.site.capacity
    return np.flatnonzero(plan.capacities > (math.inf if bound is None else bound[plan.assignment.opened]))


def any_set(problem: FLInstance) -> AnySet:
    """The margins under which the noisy counts may choose: public."""
    site = problem.data.site
    return problem.rule.any_set(site.connected(), site.cost, alpha_of(problem) - level_of(problem))


def chosen_by_noise(problem: FLInstance, assignment: Assignment) -> Plan:
    """The plan of an assignment that the noisy counts chose."""
    level = alpha_of(problem) - level_of(problem)
    return Plan.chosen_by_noise(problem.data.noisy, assignment, level=level, line=any_set(problem))


def mean_of(problem: FLInstance) -> float:
    """Clients at a location, as the public knows it; 1 where it does not."""
    mean = problem.declared.settings.mean_clients
    return 1.0 if mean is None else mean


def no_counts(problem: FLInstance, wanted: str) -> Fault:
    """The fault of a locations file without a column."""
    return Fault(problem.declared.locations.points.name, "header", "no such column", f"a column {wanted}")


def base_of(
    problem: FLInstance, context: SolveContext, sites: Sequence[str] | None = None
) -> tuple[Assignment, Opened | None]:
    """The connection that private methods start from: public, so that it cannot break the promise.

    Where opening is a choice, the facilities that are cheapest at the public mean count (one client where that is not
    given); ``sites``: ids of those that were found to be, so that nothing is solved again.

    Raises:
        InputError: the sites are not locations.
    """
    site, opened, among = problem.data.site, None, None
    if problem.program:
        if sites is None:
            opened = opened_at(np.full(site.size, mean_of(problem)), problem, context)
            among = opened.opened
        else:
            among = np.unique(np.searchsorted(problem.data.ids, np.asarray(sites, dtype=problem.data.ids.dtype)))
            if not len(among) or problem.data.ids[np.minimum(among, site.size - 1)].tolist() != sorted(sites):
                where = "details.told.opening.sites"
                raise InputError([Fault("result.json", where, "other ids", "locations, each once")])
    return site.connected(among), opened


def _places(problem: FLInstance) -> tuple[Ints, Ints]:
    """Places for a facility, and locations with clients."""
    site = problem.data.site
    return np.arange(site.size) if site.candidates is None else site.candidates, site.senders


def _check_room(problem: FLInstance, context: SolveContext, pairs: int, bytes_a_pair: float, wanted: str) -> None:
    """Refuse what does not fit.

    Raises:
        InputError: more pairs than are ever solved over.
        StoppedError: more than fit into memory.
    """
    among, there = _places(problem)
    asked = f"{len(among):,} places for a facility and {len(there):,} locations ({pairs:,} pairs)"
    if pairs > MOST_PAIRS:
        most = f"at most {MOST_PAIRS:,} pairs, {wanted}"
        raise InputError([Fault(problem.declared.locations.points.name, "", asked, most)])
    context.need(bytes_a_pair * pairs, asked)


def _table(problem: FLInstance, context: SolveContext) -> tuple[Ints, Floats]:
    """Places for a facility, and (places, locations with clients) distances, where eight such tables fit.

    Raises:
        InputError: more pairs than are ever solved over.
        StoppedError: more than fit into memory.
    """
    among, there = _places(problem)
    _check_room(problem, context, len(among) * len(there), 64.0, "for plans within bounds are over all of them")
    ends = np.repeat(among, len(there)), np.tile(there, len(among))
    return among, problem.data.site.metric.between(*ends).reshape(len(among), len(there))


def _over_all(problem: FLInstance, found: Opened, among: Ints) -> Opened:
    """The same with facilities as locations, for all locations: -1 at those that send nothing."""
    facility = np.full(problem.data.site.size, -1)
    facility[problem.data.site.senders] = among[found.facility]
    return evolve(found, facility=facility, opened=among[found.opened])


def opened_at(counts: Ints | Floats, problem: FLInstance, context: SolveContext) -> Opened:
    """The facilities to open for counts that are known, with a proved bound; capacity bounds are not looked at.

    Raises:
        InputError: even the cheapest few facilities of each location are too many.
        StoppedError: they do not fit into memory.
    """
    site = problem.data.site
    among, there = _places(problem)
    least = least_pairs(len(among), len(there))
    _check_room(problem, context, least, BYTES_A_PAIR, "for which facilities to open is solved over them")
    found = open_facilities(
        OverSite(site=site, among=among, there=there, weight=np.asarray(counts, dtype=np.float64)[there]),
        np.zeros(len(among)) if site.opening is None else site.opening[among],
        most=problem.declared.settings.most_facilities,
        gap=max(context.gap, 1e-9),
        deadline=context.deadline,
        report=lambda nodes, low, high: context.report("opening", nodes, low, high),
        most_pairs=int(min(MOST_PAIRS, context.room / BYTES_A_PAIR)),
    )
    return _over_all(problem, found, among)


def assigned_at(counts: Ints | Floats, problem: FLInstance, context: SolveContext, line: AnySet) -> Opened:
    """Who is served by whom within the capacity bounds, for counts that are known, with a proved bound.

    A location takes the room of its count and its part of the margin, at least none; its way is weighed by one client
    at least where there is a margin, so that nobody is sent far whose count the noise took away.

    Raises:
        InfeasibleError, StoppedError: nothing fits, or nothing was found in time.
    """
    site = problem.data.site
    among, table = _table(problem, context)
    here = np.asarray(counts, dtype=np.float64)[site.senders]
    weight = np.maximum(here + line.slope, 0.0)
    table *= np.maximum(here, 1.0 if line.slope > 0.0 else 0.0)
    table += np.multiply.outer(site.cost[among], weight)
    bound = np.full(len(among), math.inf) if site.capacity is None else site.capacity[among]
    room = bound - line.start
    if problem.noise == "continuous":  # sums of doubles, in whatever order
        room = room * (1.0 - 1e-9)
    found = assign(
        table,
        site.cost[among] * line.start + (0.0 if site.opening is None else site.opening[among]),
        weight,
        room,
        most=problem.declared.settings.most_facilities,
        gap=max(context.gap, 1e-9),
        deadline=context.deadline,
        solver=context.solver,
        report=lambda low, high: context.report("within bounds", 0, low, high),
    )
    return _over_all(problem, found, among)


def serve_problem(
    problem: FLInstance, noisy: Ints | Floats, context: SolveContext
) -> tuple[Plan, bool, dict[str, Any]]:
    """Run the server's side.

    Where the method's own plan would build a facility beyond its bound, the noisy counts choose who is served by whom,
    with margins that hold for every choice.

    Args:
        problem: the locations.
        noisy: (n,) what they sent.
        context: method, limits, progress.

    Returns:
        The plan, whether a limit cut its choices short, and what there is to tell of them.

    Raises:
        InfeasibleError: no plan keeps the capacity bounds.
    """
    plan, stopped, extra = _serve(problem, noisy, context)
    if not len(beyond_bounds(problem, plan)):
        if problem.assumed and not stopped:
            extra["opening"] |= _priced(problem, noisy, context)
        return plan, stopped, extra
    line = any_set(problem)
    try:
        found = assigned_at(noisy, problem, context, line)
    except (InfeasibleError, StoppedError) as error:
        drawn = (
            ""
            if problem.data.noisy is not None
            else "; the noise drawn is dropped, a second draw spends epsilon again, and failure_probability again: "
            "drawn until a plan fits, plans fail more often than that"
        )
        raise type(error)(
            f"{error}, margins of {line.start:.6g} and {line.slope:.6g} a location included{drawn}"
        ) from None
    level = alpha_of(problem) - level_of(problem)
    told = {"objective": found.objective, "bound": found.bound, "status": found.status}
    late = context.remaining is not None and context.remaining <= 0.0
    plan = Plan.chosen_by_noise(noisy, Assignment.of(found.facility), level=level, line=line)
    return plan, stopped or (late and found.status != "optimal"), extra | {"within_bounds": told}


def _priced(problem: FLInstance, noisy: Ints | Floats, context: SolveContext) -> dict[str, float]:
    """Return the mean of the reports, and the cost of the plan that knows it, for a warning: within a gap of 1 %."""
    mean = max(0.0, math.fsum(noisy) / len(problem.data.site.senders))
    settings = evolve(problem.declared.settings, mean_clients=mean)
    informed = evolve(problem, declared=evolve(problem.declared, settings=settings))
    try:
        plan = _serve(informed, noisy, evolve(context, gap=max(context.gap, 1e-2)))[0]
    except StoppedError:
        return {"mean_reported": mean}
    if len(beyond_bounds(problem, plan)):
        return {"mean_reported": mean}
    return {"mean_reported": mean, "cost_at_it": plan.cost(problem.data.site, noisy)["total"]}


def _serve(
    problem: FLInstance, noisy: Ints | Floats, context: SolveContext, told: Mapping[str, Any] | None = None
) -> tuple[Plan, bool, dict[str, Any]]:
    """The method's own plan, capacity bounds not looked at; ``told`` of a release gives its open facilities."""
    base, opened = base_of(problem, context, ((told or {}).get("opening") or {}).get("sites"))
    cut: list[str] = []

    def go_on(phase: str, round_: int) -> bool:
        context.report(phase, round_)
        if context.remaining is not None and context.remaining <= 0.0:
            cut.append(phase)
        return not cut

    plan = serve(
        problem.data.site,
        noisy,
        problem.rule,
        level_of(problem),
        method="laplace" if context.method == "laplace" else "reconnection",
        delta=problem.declared.settings.delta,
        mean_clients=problem.declared.settings.mean_clients,
        base=base,
        go_on=go_on,
    )
    extra: dict[str, Any] = {}
    stopped = bool(cut)
    if opened is not None:
        extra["opening"] = {
            "clients_assumed": mean_of(problem),
            "objective": opened.objective,
            "bound": opened.bound,
            "nodes": opened.nodes,
            "pairs": opened.pairs,
            "sites": problem.data.ids[base.opened].tolist(),
        }
        stopped = stopped or opened.status != "optimal"
    if plan.policy is not None:
        extra["auto"] = {
            "radii": [c.delta for c in plan.policy.choices],
            "thresholds_mean_clients": (plan.policy.thresholds / len(problem.data.site.senders)).tolist(),
            "failure_bound": plan.policy.bound,
        }
    if plan.policy is not None or cut:
        chosen = {"radii_cut_short": bool(cut), "delta": plan.delta, "level": plan.level}
        extra["auto"] = extra.get("auto", {}) | chosen
    return plan, stopped, extra
