"""FL-Linear as a mechanism: the location's side, the server's side, and what each may publish."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from privopt.declare import files_of
from privopt.errors import Fault, InputError
from privopt.interfaces import Mechanism, Outcome, PrivacyConstraint, Result, SolveContext
from privopt.interfaces.notions import NoGuarantee
from privopt_fl_linear.algorithms import Assignment, connection_cost, optimal_assignment, reconnect, served
from privopt_fl_linear.location import noisy_counts
from privopt_fl_linear.loss import CostAtCounts
from privopt_fl_linear.milp import MOST_PAIRS, Location, solve_facility_location
from privopt_fl_linear.privacy import COVERED, LocalLaplace
from privopt_fl_linear.problem import FLInstance, FLProblem
from privopt_fl_linear.release import FLRelease
from privopt_fl_linear.server import Plan, Site, serve
from privopt_fl_linear.theory import assumption_5, bounds, values

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from privopt.run.report import Section
    from privopt.run.report.geo import Layer

__all__ = ["FLLinear"]

AUDIT_DRAWS, CONFIDENCE = 50_000, 0.999
RERUN = 100_000
"""Locations up to which ``verify`` also lets ``auto`` choose again."""


class FLLinear(Mechanism[FLInstance, FLRelease]):
    """Facility location with linear facility costs under local differential privacy."""

    problem_class = FLProblem
    release_class = FLRelease
    scope = COVERED
    kit = "privopt_fl_linear.kit:PROFILE"

    def load(self, declared: FLProblem, file: str) -> FLInstance:
        """The problem and its locations."""
        return FLInstance.of(declared)

    def privacy(self, problem: FLInstance, method: str) -> PrivacyConstraint[FLRelease]:
        """Local DP by the noise of each location, or nothing."""
        if method == "optimal":
            return NoGuarantee(reason="capacities are sums of the true counts")
        return LocalLaplace(
            epsilon=problem.declared.privacy.epsilon, locations=problem.data.site.size, noise=problem.noise
        )

    def utility(self, problem: FLInstance, method: str) -> CostAtCounts:
        """Capacity cost plus connection cost at the noisy counts."""
        return CostAtCounts(site=problem.data.site)

    def solve(self, problem: FLInstance, context: SolveContext) -> Outcome[FLRelease]:
        """Run one of the three algorithms."""
        if context.method == "optimal":
            return _solve_openly(problem, context)
        data = problem.data
        noisy, drawn, seeded = data.noisy, None, False
        if noisy is None:
            if data.clients is None:
                raise InputError([_no_counts(problem, "clients or noisy_clients")])
            with context.timed("build"):
                noisy, record = noisy_counts(
                    data.clients, problem.declared.privacy.epsilon, noise=problem.noise, seed=context.seed
                )
            drawn, seeded = record.engine, record.seeded
        with context.timed("solve"):
            plan, stopped, extra = _serve(problem, noisy, context)
        release = FLRelease(
            ids=data.ids, assignment=plan.assignment, capacities=plan.capacities, counts=noisy, drawn=drawn, plan=plan
        )
        truth = None if data.clients is None else _truth(problem, context.method, plan, data.clients)
        return Outcome(
            release=release,
            solver={"name": "fl-linear", "version": None, "iterations": None} | extra.pop("solver", {}),
            details={"noise_drawn_by": drawn} | extra,
            stopped=stopped,
            seeded=seeded,
            truth=truth,
        )

    def public_files(self, problem: FLInstance, release: FLRelease) -> Mapping[str, bytes]:
        """The locations, with what they sent in place of how many clients they have, and the matrix: both by id."""
        published = release.counts if release.drawn is not None or problem.data.noisy is not None else None
        files = {problem.declared.locations.points.name: problem.data.csv(published)}
        table, matrix = problem.declared.locations.matrix, problem.data.matrix()
        return files if table is None or matrix is None else {**files, table.name: matrix}

    def details(
        self, problem: FLInstance, release: FLRelease, method: str, told: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Functions of the noisy counts and of public data: the plan, what it costs, and what is known of it."""
        if method == "optimal":
            return {"locations": problem.data.site.size, "facilities": len(release.assignment.opened)}
        plan = release.plan or _plan_again(problem, method, told)
        return _details(problem, method, plan, release.counts)

    def verify(self, problem: FLInstance, release: FLRelease, result: Result) -> list[str]:
        """Run the server's side again from the noisy counts and compare."""
        method, details = result.method, result.details.facts
        noisy = problem.data.noisy
        files = {file.name: file.contents for file in files_of(problem.declared)}
        for name, contents in self.public_files(problem, release).items():
            if files[name] != contents:
                return [f"problem/{name}: not as it is published: by id, with the public columns alone"]
        if method == "optimal":
            return _verify_openly(problem, release)
        if noisy is None:
            return ["problem: no noisy_clients, so the server's side cannot be run again"]
        again = _plan_at(problem, method, float(details["delta"]), float(details["failure_probability"]["level"]))
        if not np.array_equal(again.assignment.facility, release.assignment.facility):
            return ["connections.csv: not those that delta and the locations give"]
        if not np.allclose(again.capacities, release.capacities, rtol=1e-9, atol=1e-9):
            return ["capacities.csv: not noisy counts plus margins"]
        return []

    def proved(self, problem: FLInstance, release: FLRelease, result: Result, folder: Path) -> float | None:
        """The value, where every location has its cheapest facility: whatever the counts, none costs less."""
        openly = result.method == "optimal" and problem.data.site.opening is None
        return _optimum(result.objective.value) if openly and not _verify_openly(problem, release) else None

    def audit(self, problem: FLInstance, release: FLRelease, result: Result) -> Mapping[str, Any]:
        """The noise leaks epsilon and no less: neighbouring counts shift the Laplace by one scale.

        ``statistical`` attacks fresh reports of this location side at counts 0 and 1; there is none where the noise was
        drawn elsewhere.
        """
        if result.method == "optimal":
            return {"epsilon": {"claimed": None, "achieved": math.inf}}
        certificate = self.privacy(problem, result.method).measure(release)
        found: dict[str, Any] = {
            "epsilon": {"claimed": float(problem.declared.privacy.epsilon), "achieved": certificate.worst},
            "statistical": None,
        }
        if result.details.told.get("noise_drawn_by") is not None:
            from privopt.metric.attack import epsilon_lower

            epsilon = problem.declared.privacy.epsilon
            none, one = (
                np.floor(noisy_counts(np.full(AUDIT_DRAWS, b), epsilon, noise=problem.noise)[0]) for b in (0, 1)
            )
            lower = epsilon_lower(none, one, CONFIDENCE)
            found["statistical"] = {"epsilon_lower": lower, "confidence": CONFIDENCE, "draws": AUDIT_DRAWS}
        return found

    def report(self, problem: FLInstance, release: FLRelease, result: Result) -> Sequence[Section]:
        """Map, capacities against demand, cost over delta."""
        from privopt_fl_linear.report import sections

        return sections(problem, release, result)

    def report_truth(self, problem: FLInstance, release: FLRelease, result: Result, private: Path) -> Sequence[Section]:
        """True clients against capacities, and true costs."""
        from privopt_fl_linear.report import truth_sections

        return truth_sections(problem, release, private)

    def figures(self, problem: FLInstance, release: FLRelease, result: Result) -> Mapping[str, Figure]:
        """Map, capacities, costs."""
        from privopt_fl_linear.report import figures

        return figures(problem, release, result)

    def geo(self, problem: FLInstance, release: FLRelease, result: Result) -> Layer | None:
        """Locations with what they reported, facilities with their capacity, and connections as lines."""
        from privopt_fl_linear.report import map_layer

        return map_layer(problem, release)


def _plan_at(problem: FLInstance, method: str, delta: float, level: float) -> Plan:
    """The plan at a radius and a failure level that are known."""
    site, noisy = problem.data.site, problem.data.noisy
    base = _base(problem, None)[0]
    assignment = base if method == "laplace" else reconnect(site.metric, site.cost, site.rank, base, delta)
    return Plan.at(site, noisy, problem.rule, assignment, delta=delta, level=level)


def _plan_again(problem: FLInstance, method: str, told: Mapping[str, Any]) -> Plan:
    """The plan that the published noisy counts give; where choosing a radius takes too long, at the one stated.

    Raises:
        InputError: what is stated is no plan.
    """
    if problem.data.noisy is None:
        raise InputError([_no_counts(problem, "noisy_clients")])
    chosen, asked = told.get("auto") or {}, problem.declared.settings.delta
    quick = problem.data.site.size <= RERUN and not chosen.get("radii_cut_short")
    if quick or asked != "auto" or method == "laplace":
        return _serve(problem, problem.data.noisy, SolveContext(method=method))[0]
    delta, level = (float(chosen[name]) for name in ("delta", "level"))
    if not (delta >= 0.0 and 0.0 < level <= _alpha(problem)):
        wanted = "a radius of at least 0, a level above 0 and at most failure_probability"
        raise InputError([Fault("result.json", "details.told.auto", f"delta {delta!r}, level {level!r}", wanted)])
    return _plan_at(problem, method, delta, level)


def _verify_openly(problem: FLInstance, release: FLRelease) -> list[str]:
    """Connections need no counts unless opening costs something; capacities are not determined by what is public."""
    if problem.data.site.opening is not None:
        return []
    again = _base(problem, None)[0]
    same = np.array_equal(again.facility, release.assignment.facility)
    return [] if same else ["connections.csv: not the cheapest facility of each location"]


def _alpha(problem: FLInstance) -> float:
    return problem.declared.privacy.failure_probability


def _mean(problem: FLInstance) -> float:
    """Clients at a location, as the public knows it; 1 where it does not."""
    mean = problem.declared.settings.mean_clients
    return 1.0 if mean is None else mean


def _no_counts(problem: FLInstance, wanted: str) -> Fault:
    return Fault(problem.declared.locations.points.name, "header", "no such column", f"a column {wanted}")


def _base(problem: FLInstance, context: SolveContext | None) -> tuple[Assignment, Location | None]:
    """The connection that private methods start from: public, so that it cannot break the promise.

    With opening costs it is the integer program's at the public mean count (one client where that is not given).
    """
    site = problem.data.site
    if site.opening is None:
        return optimal_assignment(site.metric, site.cost, site.rank), None
    found = _program(site, np.full(site.size, _mean(problem)), problem, context)
    return Assignment.of(found.facility), found


def _program(site: Site, counts: Any, problem: FLInstance, context: SolveContext | None) -> Location:
    n = site.size
    if n * n > MOST_PAIRS:
        wanted = f"at most {math.isqrt(MOST_PAIRS)} locations, for opening costs need an integer program"
        raise InputError(
            [Fault(problem.declared.locations.points.name, "column opening_cost", f"{n} locations", wanted)]
        )
    u, v = (index.ravel() for index in np.indices((n, n)))
    distances = site.metric.between(u, v).reshape(n, n)
    options: dict[str, Any] = {}
    if context is not None:
        options = {"backend": context.solver, "gap": min(context.gap, 1e-9)}
        if context.remaining is not None:
            options["time_limit"] = context.remaining
    return solve_facility_location(site.cost, counts, distances, site.opening, **options)


def _serve(problem: FLInstance, noisy: Any, context: SolveContext) -> tuple[Plan, bool, dict[str, Any]]:
    base, program = _base(problem, context)
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
        _alpha(problem),
        method="laplace" if context.method == "laplace" else "reconnection",
        delta=problem.declared.settings.delta,
        mean_clients=problem.declared.settings.mean_clients,
        base=base,
        go_on=go_on,
    )
    extra: dict[str, Any] = {}
    stopped = bool(cut)
    if program is not None:
        extra["opening"] = {
            "clients_assumed": _mean(problem),
            "objective": program.objective,
            "bound": program.bound,
        }
        extra["solver"] = {"name": program.solver}
        stopped = stopped or program.status != "optimal"
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


def _details(problem: FLInstance, method: str, plan: Plan, noisy: Any) -> dict[str, Any]:
    """What may be published: functions of the noisy counts and of public data."""
    site, n = problem.data.site, problem.data.site.size
    details: dict[str, Any] = {
        "locations": n,
        "facilities": len(plan.assignment.opened),
        "capacities": {
            "total": math.fsum(plan.capacities),
            "least": plan.capacities.min(),
            "greatest": plan.capacities.max(),
        },
        "cost": plan.cost(site, noisy),
        "margin": {
            "kind": problem.declared.settings.margin,
            "noise": problem.noise,
            "split": problem.declared.settings.split,
            "total": math.fsum(plan.margins),
            "cost": math.fsum(plan.margins * site.cost[plan.assignment.opened]),
        },
        "failure_probability": {"promised": _alpha(problem), "level": plan.level},
        "delta": plan.delta,
    }
    if site.opening is None:
        details["bounds"] = _bounds(problem, method, plan)
        details["reconnection_per_client"] = 2.0 * plan.delta
    if method == "reconnection":
        details["assumption_5"] = assumption_5(site.metric, plan.delta)
    return details


def _bounds(problem: FLInstance, method: str, plan: Plan) -> dict[str, Any]:
    epsilon, delta = problem.rule.epsilon, plan.delta
    n = problem.data.site.size
    return bounds(method=method, n=n, epsilon=epsilon, alpha=plan.level, delta=delta, assignment=plan.assignment)


def _truth(problem: FLInstance, method: str, plan: Plan, clients: Any) -> dict[str, Any]:
    """What the owner may know: true cost, optimum, overflow, the bounds' values."""
    site = problem.data.site
    counts = served(plan.assignment, clients)
    over = np.flatnonzero(counts > plan.capacities)
    best = optimal_assignment(site.metric, site.cost, site.rank)
    optimum = math.fsum(served(best, clients) * site.cost[best.opened]) + connection_cost(site.metric, best, clients)
    cost = plan.cost(site, clients)
    ids = problem.data.ids
    truth: dict[str, Any] = {
        "clients": int(clients.sum()),
        "cost": cost,
        "overflow": [
            {"facility": str(ids[plan.assignment.opened[s]]), "clients": counts[s], "capacity": plan.capacities[s]}
            for s in over.tolist()
        ],
    }
    if site.opening is not None:
        return truth
    found = _bounds(problem, method, plan)
    truth["optimum"] = optimum
    truth["normalised_cost"] = cost["total"] / optimum if optimum > 0 else math.inf
    truth["bounds"] = values(
        found, counts=clients, cost=site.cost, optimum=optimum, assignment=plan.assignment, served=counts
    )
    return truth


def _optimum(value: float) -> float:
    """The cost of what is cheapest, less what sums of doubles can be off."""
    return value * (1.0 - 2.0**-48)


def _solve_openly(problem: FLInstance, context: SolveContext) -> Outcome[FLRelease]:
    """Algorithm 1, or the integer program where opening costs something."""
    data = problem.data
    if data.clients is None:
        raise InputError([_no_counts(problem, "clients (method optimal takes the true counts)")])
    site, program = data.site, None
    with context.timed("solve"):
        if site.opening is None:
            assignment = optimal_assignment(site.metric, site.cost, site.rank)
        else:
            program = _program(site, data.clients, problem, context)
            assignment = Assignment.of(program.facility)
    plan = Plan(
        assignment=assignment,
        margins=np.zeros(len(assignment.opened)),
        capacities=served(assignment, data.clients),
        delta=0.0,
        level=0.0,
    )
    cost = plan.cost(site, data.clients)
    return Outcome(
        release=FLRelease(ids=data.ids, assignment=assignment, capacities=plan.capacities, counts=data.clients),
        lower_bound=None if program else _optimum(cost["total"]),
        details={} if program is None else {"lower_bound": program.bound},  # the counts that it rests on are no file
        solver={"name": "fl-linear" if program is None else program.solver, "version": None, "iterations": None},
        stopped=program is not None and program.status != "optimal",
        truth={"clients": int(data.clients.sum()), "cost": cost, "optimum": cost["total"], "overflow": []},
    )
