"""A problem's plan: which facilities are open, who is served by whom, and the same again from what was published."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from attrs import evolve

from privopt.arrays import Floats, Ints
from privopt.errors import Fault, InputError
from privopt.interfaces import SolveContext
from privopt_fl_linear.algorithms import Assignment, reconnect
from privopt_fl_linear.opening import MOST_ENTRIES, Opened, open_facilities
from privopt_fl_linear.problem import FLInstance
from privopt_fl_linear.server import Plan, serve

__all__ = ["alpha_of", "base_of", "mean_of", "no_counts", "opened_at", "plan_again", "plan_at", "serve_problem"]

RERUN: Final = 100_000
"""Locations up to which ``verify`` also lets ``auto`` choose again."""


def plan_at(problem: FLInstance, method: str, delta: float, level: float, told: Mapping[str, Any]) -> Plan:
    """The plan at a radius, a failure level and, where opening is a choice, open facilities that are known."""
    site, noisy = problem.data.site, problem.data.noisy
    base = base_of(problem, SolveContext(method=method), (told.get("opening") or {}).get("sites"))[0]
    assignment = base if method == "laplace" else reconnect(site.metric, site.cost, site.rank, base, delta)
    return Plan.at(site, noisy, problem.rule, assignment, delta=delta, level=level)


def plan_again(problem: FLInstance, method: str, told: Mapping[str, Any]) -> Plan:
    """The plan that the published noisy counts give; where choosing a radius takes too long, at the one stated.

    Raises:
        InputError: what is stated is no plan.
    """
    if problem.data.noisy is None:
        raise InputError([no_counts(problem, "noisy_clients")])
    chosen, asked = told.get("auto") or {}, problem.declared.settings.delta
    quick = problem.data.site.size <= RERUN and not chosen.get("radii_cut_short")
    if quick or asked != "auto" or method == "laplace":
        return serve_problem(problem, problem.data.noisy, SolveContext(method=method), told)[0]
    delta, level = (float(chosen[name]) for name in ("delta", "level"))
    if not (delta >= 0.0 and 0.0 < level <= alpha_of(problem)):
        wanted = "a radius of at least 0, a level above 0 and at most failure_probability"
        raise InputError([Fault("result.json", "details.told.auto", f"delta {delta!r}, level {level!r}", wanted)])
    return plan_at(problem, method, delta, level, told)


def alpha_of(problem: FLInstance) -> float:
    """The failure probability promised."""
    return problem.declared.privacy.failure_probability


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


def opened_at(counts: Ints | Floats, problem: FLInstance, context: SolveContext) -> Opened:
    """The facilities to open for counts that are known, with a proved bound."""
    site, n = problem.data.site, problem.data.site.size
    among = np.arange(n) if site.candidates is None else site.candidates
    pairs = len(among) * n
    if pairs > MOST_ENTRIES or not context.fits(3 * 8.0 * pairs):
        most = min(MOST_ENTRIES, int(context.room / 24.0)) if context.room < math.inf else MOST_ENTRIES
        asked = f"{len(among)} places for a facility, {n} locations: {pairs} pairs"
        wanted = f"at most {most} pairs, for which facilities to open is solved over all of them"
        raise InputError([Fault(problem.declared.locations.points.name, "", asked, wanted)])
    table = site.metric.between(np.repeat(among, n), np.tile(np.arange(n), len(among))).reshape(len(among), n)
    table += site.cost[among, None]
    table *= np.asarray(counts, dtype=np.float64)
    found = open_facilities(
        table,
        np.zeros(len(among)) if site.opening is None else site.opening[among],
        most=problem.declared.settings.most_facilities,
        gap=max(context.gap, 1e-9),
        deadline=context.deadline,
        report=lambda nodes, low, high: context.report("opening", nodes, low, high),
    )
    return evolve(found, facility=among[found.facility], opened=among[found.opened])


def serve_problem(
    problem: FLInstance, noisy: Ints | Floats, context: SolveContext, told: Mapping[str, Any] | None = None
) -> tuple[Plan, bool, dict[str, Any]]:
    """Run the server's side.

    Args:
        problem: the locations.
        noisy: (n,) what they sent.
        context: method, limits, progress.
        told: ``details.told`` of a release, whose open facilities are taken as they are.

    Returns:
        The plan, whether a limit cut its choices short, and what there is to tell of them.
    """
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
        alpha_of(problem),
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
            "sites": problem.data.ids[base.opened].tolist(),
        }
        stopped = stopped or opened.status != "optimal"
    if plan.policy is not None:
        extra["auto"] = {
            "radii": [c.delta for c in plan.policy.choices],
            "thresholds_mean_clients": (plan.policy.thresholds / problem.data.site.size).tolist(),
            "failure_bound": plan.policy.bound,
            "radii_cut_short": bool(cut),
            "delta": plan.delta,
            "level": plan.level,
        }
    return plan, stopped, extra
