"""FL-Linear as a mechanism: the location's side, the server's side, and what each may publish."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from privopt.declare import files_of
from privopt.errors import InputError
from privopt.interfaces import Mechanism, Outcome, PrivacyConstraint, Result, SolveContext
from privopt.interfaces.notions import NoGuarantee
from privopt.interfaces.report_parts import Layer
from privopt.report import Section
from privopt_fl_linear.algorithms import Assignment, connection_cost, served
from privopt_fl_linear.location import noisy_counts
from privopt_fl_linear.loss import CostAtCounts
from privopt_fl_linear.margins import AnySet
from privopt_fl_linear.metric import Matrix
from privopt_fl_linear.plans import (
    alpha_of,
    assigned_at,
    chosen_by_noise,
    no_counts,
    opened_at,
    plan_again,
    plan_at,
    serve_problem,
)
from privopt_fl_linear.privacy import COVERED, LocalLaplace
from privopt_fl_linear.problem import FLInstance, FLProblem
from privopt_fl_linear.release import FLRelease
from privopt_fl_linear.server import Plan
from privopt_fl_linear.theory import assumption_5, bounds, values

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any

__all__ = ["FLLinear"]

A_LOCATION, A_DISTANCE = 2_000.0, 100.0
"""Bytes that a location takes, and a pair of them in a matrix, with the plan, its files and their proof."""
AUDIT_DRAWS, CONFIDENCE = 50_000, 0.999


class FLLinear(Mechanism[FLInstance, FLRelease]):
    """Facility location with linear facility costs under local differential privacy."""

    problem_class = FLProblem
    release_class = FLRelease
    scope = COVERED
    kit = "privopt_fl_linear.kit:PROFILE"
    expects = "privopt-fl-linear expect tells what it will cost over epsilon"

    def load(self, declared: FLProblem, file: str) -> FLInstance:
        """The problem and its locations."""
        return FLInstance.of(declared)

    def privacy(self, problem: FLInstance, method: str) -> PrivacyConstraint[FLRelease]:
        """Local DP by the noise of each location, or nothing."""
        if method == "optimal":
            return NoGuarantee(reason="capacities are sums of the true counts")
        return LocalLaplace(
            epsilon=problem.declared.privacy.epsilon,
            locations=len(problem.data.site.senders),
            noise=problem.noise,
            opening=problem.program,
        )

    def utility(self, problem: FLInstance, method: str) -> CostAtCounts:
        """Capacity cost plus connection cost at the noisy counts."""
        return CostAtCounts(site=problem.data.site)

    def bytes_needed(self, problem: FLInstance, method: str) -> float:
        """Bytes of the locations and their matrix (tests/test_memory.py, 1,500); integer programs ask for more."""
        size = problem.data.site.size
        return A_LOCATION * size + A_DISTANCE * size**2 * isinstance(problem.data.site.metric, Matrix)

    def solve(self, problem: FLInstance, context: SolveContext) -> Outcome[FLRelease]:
        """Run one of the three algorithms."""
        if context.method == "optimal":
            return _solve_openly(problem, context)
        data = problem.data
        noisy, drawn, scale, seeded = data.noisy, None, None, False
        if noisy is None:
            if data.clients is None:
                raise InputError([no_counts(problem, "clients or noisy_clients")])
            with context.timed("build"):
                there = data.site.senders
                sent, record = noisy_counts(
                    data.clients[there], problem.declared.privacy.epsilon, noise=problem.noise, seed=context.seed
                )
                noisy = np.zeros(data.site.size, dtype=sent.dtype)
                noisy[there] = sent
            drawn, scale, seeded = record.engine, record.scale, record.seeded
        with context.timed("solve"):
            plan, stopped, extra = serve_problem(problem, noisy, context)
        release = FLRelease(
            ids=data.ids,
            assignment=plan.assignment,
            capacities=plan.capacities,
            counts=noisy,
            drawn=drawn,
            plan=plan,
            scale=scale,
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
            return {"locations": len(problem.data.site.senders), "facilities": len(release.assignment.opened)}
        plan = release.plan or plan_again(problem, method, told, release.assignment)
        return _details(problem, method, plan, release.counts)

    def verify(self, problem: FLInstance, release: FLRelease, result: Result) -> list[str]:
        """Run the server's side again from the noisy counts and compare."""
        method, details = result.method, result.details.facts
        noisy = problem.data.noisy
        files = {file.name: file.contents for file in files_of(problem.declared)}
        for name, contents in self.public_files(problem, release).items():
            if files[name] != contents:
                return [f"problem/{name}: not as it is published: by id, with the public columns alone"]
        allowed, opened = problem.data.site.candidates, release.assignment.opened
        if allowed is not None and not np.isin(opened, allowed).all():
            return ["connections.csv: a facility at a location that is no candidate"]
        most = problem.declared.settings.most_facilities
        if most is not None and len(release.assignment.opened) > most:
            return [f"connections.csv: {len(release.assignment.opened)} facilities, most_facilities = {most}"]
        bound = problem.data.site.capacity
        if bound is not None and (release.capacities > bound[opened]).any():
            return ["capacities.csv: a facility is larger than its capacity allows"]
        if method == "optimal":
            return _verify_openly(problem, release)
        if noisy is None:
            return ["problem: no noisy_clients, so the server's side cannot be run again"]
        if details.get("chosen_by_noise"):  # any assignment will do, its margins are looked at
            again = chosen_by_noise(problem, release.assignment)
        else:
            delta, level = float(details["delta"]), float(details["failure_probability"]["level"])
            again = plan_at(problem, method, delta, level, result.details.told)
        if not np.array_equal(again.assignment.facility, release.assignment.facility):
            return ["connections.csv: not those that delta and the locations give"]
        if not np.allclose(again.capacities, release.capacities, rtol=1e-9, atol=1e-9):
            return ["capacities.csv: not noisy counts plus margins"]
        return []

    def proved(self, problem: FLInstance, release: FLRelease, result: Result, folder: Path) -> float | None:
        """The value, where every location has its cheapest facility: whatever the counts, none costs less."""
        openly = result.method == "optimal" and problem.nearest
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
            from privopt.numbers.binomial import epsilon_lower

            epsilon = problem.declared.privacy.epsilon
            none, one = (
                np.floor(noisy_counts(np.full(AUDIT_DRAWS, b), epsilon, noise=problem.noise)[0]) for b in (0, 1)
            )
            lower = epsilon_lower(none, one, CONFIDENCE)
            found["statistical"] = {"epsilon_lower": lower, "confidence": CONFIDENCE, "draws": AUDIT_DRAWS}
        return found

    def warnings(self, problem: FLInstance, release: FLRelease, result: Result) -> Sequence[str]:
        """Locations that send no count, which may have been a slip; facilities opened without a stated mean count."""
        lines = []
        silent = problem.data.site.size - len(problem.data.site.senders)
        if silent:
            lines.append(
                f"{silent} of {problem.data.site.size} locations have an empty count and send none, which is public; "
                "write 0 for one whose clients shall be hidden"
            )
        if problem.assumed and result.method != "optimal":
            lines.append(_assumed(result))
        return lines

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


def _assumed(result: Result) -> str:
    """Return the warning that facilities were opened for one client a location, with what that costs."""
    told, value = result.details.told.get("opening") or {}, result.objective.value
    mean, other = told.get("mean_reported"), told.get("cost_at_it")
    price = ""
    if isinstance(mean, float) and isinstance(other, float) and value is not None and other < value:
        price = f": the cost is {value:,.6g}, and at the mean of the reports, {mean:,.3g}, it would be {other:,.6g}"
    return (
        "facilities were opened as if each location had 1 client, as fl-linear.mean_clients is not stated"
        f"{price}; state the mean that the public knew before the reports: with one taken from them "
        "capacities fail more often than failure_probability"
    )


def _verify_openly(problem: FLInstance, release: FLRelease) -> list[str]:
    """Connections need no counts unless opening is a choice; capacities are not determined by what is public."""
    if not problem.nearest:
        return []
    site = problem.data.site
    again = site.connected()
    same = np.array_equal(again.facility, release.assignment.facility)
    return [] if same else ["connections.csv: not the cheapest facility of each location"]


def _details(problem: FLInstance, method: str, plan: Plan, noisy: Any) -> dict[str, Any]:
    """What may be published: functions of the noisy counts and of public data."""
    site = problem.data.site
    details: dict[str, Any] = {
        "locations": len(site.senders),
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
        "failure_probability": {"promised": alpha_of(problem), "level": plan.level},
        "delta": plan.delta,
    }
    if problem.bounded:
        details["chosen_by_noise"] = plan.line is not None
    if plan.line is not None:
        details["margin"] |= {"kind": "any set", "start": plan.line.start, "each": plan.line.slope}
    if problem.plain and plan.delta is not None:
        details["bounds"] = _bounds(problem, method, plan, plan.delta)
        details["reconnection_per_client"] = 2.0 * plan.delta
    if method == "reconnection" and plan.delta is not None:
        details["assumption_5"] = assumption_5(site.metric, plan.delta)
    return details


def _bounds(problem: FLInstance, method: str, plan: Plan, delta: float) -> dict[str, Any]:
    epsilon = problem.rule.epsilon
    n = problem.data.site.size
    return bounds(method=method, n=n, epsilon=epsilon, alpha=plan.level, delta=delta, assignment=plan.assignment)


def _truth(problem: FLInstance, method: str, plan: Plan, clients: Any) -> dict[str, Any]:
    """What the owner may know: true cost, optimum, overflow, the bounds' values."""
    site = problem.data.site
    counts = served(plan.assignment, clients)
    over = np.flatnonzero(counts > plan.capacities)
    best = site.connected()
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
    if not problem.plain or plan.delta is None:
        return truth
    found = _bounds(problem, method, plan, plan.delta)
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
    """Algorithm 1, or branch and bound where opening is a choice or capacities are bounded."""
    data = problem.data
    if data.clients is None:
        raise InputError([no_counts(problem, "clients (method optimal takes the true counts)")])
    site, opened = data.site, None
    with context.timed("solve"):
        if problem.bounded:
            opened = assigned_at(data.clients, problem, context, AnySet(start=0.0, slope=0.0))
        elif problem.program:
            opened = opened_at(data.clients, problem, context)
        if opened is None or not problem.bounded:
            assignment = site.connected(None if opened is None else opened.opened)
        else:
            assignment = Assignment.of(opened.facility)
    plan = Plan(
        assignment=assignment,
        margins=np.zeros(len(assignment.opened)),
        capacities=served(assignment, data.clients),
        delta=0.0,
        level=0.0,
    )
    cost = plan.cost(site, data.clients)
    details = {} if opened is None else {"lower_bound": min(opened.bound, cost["total"]), "nodes": opened.nodes}
    return Outcome(
        release=FLRelease(ids=data.ids, assignment=assignment, capacities=plan.capacities, counts=data.clients),
        lower_bound=None if opened else _optimum(cost["total"]),
        details=details,  # no bound of the objective: the counts that it rests on are no file
        solver={"name": "fl-linear", "version": None, "iterations": None if opened is None else opened.nodes},
        stopped=opened is not None and opened.status != "optimal" and context.remaining == 0.0,
        truth={"clients": int(data.clients.sum()), "cost": cost, "optimum": cost["total"], "overflow": []},
    )
