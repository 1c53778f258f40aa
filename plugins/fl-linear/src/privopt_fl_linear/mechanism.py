"""FL-Linear as a mechanism: the location's side, the server's side, and what each may publish."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve

from privopt.declare import files_of
from privopt.errors import Fault, InfeasibleError, InputError, StoppedError
from privopt.interfaces import Mechanism, Outcome, PrivacyConstraint, Result, SolveContext
from privopt.interfaces.notions import NoGuarantee
from privopt_fl_linear.location import noisy_counts
from privopt_fl_linear.loss import CostAtCounts
from privopt_fl_linear.metric import Matrix
from privopt_fl_linear.plan import Plan, Server
from privopt_fl_linear.privacy import COVERED, LocalLaplace
from privopt_fl_linear.problem import FLInstance, FLProblem, read_locations
from privopt_fl_linear.release import FLRelease
from privopt_fl_linear.serve import NO_MARGIN, choose_facilities, plan_again, plan_at, serve
from privopt_fl_linear.site import Assignment, cost_parts, sum_counts

__all__ = ["FLLinear"]

AUDIT_DRAWS, CONFIDENCE = 50_000, 0.999
DROPPED = (
    "; the noise drawn is dropped, a second draw spends epsilon again, and failure_probability again: drawn until a "
    "plan fits, plans fail more often than that"
)

BYTES_PER_LOCATION, BYTES_PER_DISTANCE = 2_000.0, 100.0
"""With the plan, its files and their proof, of each location and of each entry of a matrix of distances; measured at
1,500 locations (tests/run/test_memory.py)."""


class FLLinear(Mechanism[FLInstance, FLRelease]):
    """Facility location with linear facility costs under local differential privacy."""

    problem_class = FLProblem
    release_class = FLRelease
    scope = COVERED
    kit = "privopt_fl_linear.kit:PROFILE"
    reporting = "privopt_fl_linear.report:FLReporting"

    def load(self, declared: FLProblem, file: str) -> FLInstance:
        """Read the locations of a problem."""
        data = read_locations(declared.locations, whole=declared.settings.noise == "discrete")
        return FLInstance(declared=declared, data=data, file=file)

    def privacy(self, problem: FLInstance, method: str) -> PrivacyConstraint[FLRelease]:
        """Return local DP by the noise of each location, or no guarantee."""
        if method == "optimal":
            return NoGuarantee(reason="capacities are sums of the true counts")
        server = problem.server(method)
        return LocalLaplace(
            epsilon=problem.declared.privacy.epsilon,
            locations=problem.data.site.size,
            noise=problem.noise,
            opening=server.chooses_sites and server.has_prior,
        )

    def utility(self, problem: FLInstance, method: str) -> CostAtCounts:
        """Return the cost at the noisy counts."""
        return CostAtCounts(site=problem.data.site)

    def bytes_needed(self, problem: FLInstance, method: str) -> float:
        """Estimate the bytes of the locations, and of a matrix; programs over pairs count their own."""
        size = problem.data.site.size
        entries = size**2 if isinstance(problem.data.site.metric, Matrix) else 0
        return BYTES_PER_LOCATION * size + BYTES_PER_DISTANCE * entries

    def check_problem(self, problem: FLInstance, method: str) -> None:
        """Refuse a method that lacks counts, or the mean count that the prior's facilities need.

        Raises:
            InputError: it does.
        """
        points, data = problem.declared.locations.points.name, problem.data
        if method == "optimal":
            if data.clients is None:
                wanted = "a column clients (method optimal takes the true counts)"
                raise InputError([Fault(points, "header", "no such column", wanted)])
        elif data.clients is None and data.noisy is None:
            raise InputError([Fault(points, "header", "no such column", "a column clients or noisy_clients")])
        elif problem.declared.settings.sites == "prior" and not problem.server(method).has_prior:
            wanted = 'the mean count that the public knows, for sites = "prior" (without one, leave sites out)'
            raise InputError([Fault(problem.file, "fl-linear.mean_clients", "nothing", wanted)])

    def solve(self, problem: FLInstance, context: SolveContext) -> Outcome[FLRelease]:
        """Run one of the three algorithms."""
        data, openly, record = problem.data, context.method == "optimal", None
        counts = data.clients if openly else data.noisy
        if counts is None:
            context.report("noise")
            with context.timed("build"):
                epsilon = problem.declared.privacy.epsilon
                counts, record = noisy_counts(data.clients, epsilon, noise=problem.noise, seed=context.seed)
        drawn = None if record is None else record.engine
        server = problem.server(context.method)
        with context.timed("solve"):
            try:
                plan = _plan_openly(problem, server, context) if openly else serve(server, counts, context, data.ids)
            except (InfeasibleError, StoppedError) as error:
                error.args = (f"{error}{DROPPED if drawn else ''}",)
                raise
        release = FLRelease(
            ids=data.ids,
            assignment=plan.assignment,
            capacities=plan.capacities,
            counts=counts,
            drawn=drawn,
            plan=plan,
            scale=None if record is None else record.scale,
        )
        return Outcome(
            release=release,
            # of a program there is no bound of the objective: the counts that it rests on are not a file
            lower_bound=_round_down(plan.costs(data.site, counts)["total"]) if openly and problem.nearest else None,
            solver={"name": "fl-linear", "version": None, "iterations": plan.recorded.get("nodes")},
            details={"noise_drawn_by": drawn, **plan.recorded},
            stopped=plan.stopped,
            seeded=record is not None and record.seeded,
            truth=None if data.clients is None else _compare_truth(problem, plan, data.clients),
        )

    def public_files(self, problem: FLInstance, release: FLRelease) -> Mapping[str, bytes]:
        """Return the locations, with what they sent in place of their clients, and the matrix: both by id."""
        noisy = release.drawn is not None or release.counts is problem.data.noisy  # else they are the true ones
        published = release.counts if noisy else None
        files = {problem.declared.locations.points.name: problem.data.csv(published)}
        table, metric = problem.declared.locations.matrix, problem.data.site.metric
        if table is not None and isinstance(metric, Matrix):
            out = io.BytesIO()
            np.save(out, metric.distances)
            files[table.name] = out.getvalue()
        return files

    def details(
        self, problem: FLInstance, release: FLRelease, method: str, recorded: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return functions of the noisy counts and of public data: the plan, its cost, and what is proved of it."""
        if method == "optimal":
            return {"locations": problem.data.site.size, "facilities": len(release.assignment.opened)}
        plan = release.plan
        if plan is None:
            noisy = problem.data.noisy
            if noisy is None:
                file = problem.declared.locations.points.name
                raise InputError([Fault(file, "header", "no such column", "a column noisy_clients")])
            plan = plan_again(problem.server(method), noisy, recorded, problem.data.ids, release.assignment)
        return _describe_plan(problem, method, plan, release.counts)

    def verify(self, problem: FLInstance, release: FLRelease, result: Result) -> list[str]:
        """Run the server's side again from the noisy counts and compare."""
        site, opened = problem.data.site, release.assignment.opened
        files = {file.name: file.contents for file in files_of(problem.declared)}
        for name, contents in self.public_files(problem, release).items():
            if files[name] != contents:
                return [f"problem/{name}: not as it is published: by id, with the public columns alone"]
        if not np.isin(opened, site.allowed).all():
            return ["connections.csv: a facility at a location that is not a candidate"]
        limit = problem.declared.settings.most_facilities
        if limit is not None and len(opened) > limit:
            return [f"connections.csv: {len(opened)} facilities, most_facilities = {limit}"]
        if (release.capacities > site.bound[opened]).any():
            return ["capacities.csv: a facility is larger than its capacity allows"]
        if result.method == "optimal":
            return _verify_openly(problem, release)
        if problem.data.noisy is None:
            return ["problem: no noisy_clients, so the server's side cannot be run again"]
        return _verify_plan(problem, release, result)

    def proved(self, problem: FLInstance, release: FLRelease, result: Result, folder: Path) -> float | None:
        """Return the value, where every location has its cheapest facility: whatever the counts, none costs less."""
        openly = result.method == "optimal" and problem.nearest
        return _round_down(result.objective.value) if openly and not _verify_openly(problem, release) else None

    def audit(self, problem: FLInstance, release: FLRelease, result: Result) -> Mapping[str, Any]:
        """Return what an attacker gets: epsilon and no less, for neighbouring counts shift the noise by one scale.

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
        """Warn of a mean count that is not stated."""
        if result.method == "optimal" or problem.server(result.method).has_prior:
            return []
        mean = (result.details.told.get("reports") or {}).get("mean_reported")
        estimate = f" ({mean:,.3g} a location by the reports)" if isinstance(mean, float) else ""
        return [
            "fl-linear.mean_clients is not stated, so the noisy counts alone chose the facilities, and their margins "
            f"hold for any choice{estimate}; where the public knew the mean before, state it: smaller margins may do"
        ]


def _verify_plan(problem: FLInstance, release: FLRelease, result: Result) -> list[str]:
    """Compare connections and capacities with those that the noisy counts and public data give."""
    server, stated, noisy = problem.server(result.method), result.details.facts, problem.data.noisy
    told, ids = result.details.told, problem.data.ids
    if stated.get("chosen_by_noise"):  # any assignment will do, its margins are looked at
        again = plan_again(server, noisy, {**told, "plans": {"chosen": "reports"}}, ids, release.assignment)
    else:
        delta, level = float(stated["delta"]), float(stated["failure_probability"]["level"])
        again = plan_at(server, noisy, told, ids, delta, level)
    if not np.array_equal(again.assignment.facility, release.assignment.facility):
        return ["connections.csv: not those that delta and the locations give"]
    if not np.allclose(again.capacities, release.capacities, rtol=1e-9, atol=1e-9):
        return ["capacities.csv: not noisy counts plus margins"]
    return []


def _verify_openly(problem: FLInstance, release: FLRelease) -> list[str]:
    """Compare connections, where they need no counts; capacities are not determined by what is public."""
    nearest = problem.data.site.connect().facility if problem.nearest else release.assignment.facility
    same = np.array_equal(nearest, release.assignment.facility)
    return [] if same else ["connections.csv: not the cheapest facility of each location"]


def _describe_plan(problem: FLInstance, method: str, plan: Plan, noisy: Any) -> dict[str, Any]:
    """Return what may be published: functions of the noisy counts and of public data."""
    site, settings, server = problem.data.site, problem.declared.settings, problem.server(method)
    details: dict[str, Any] = {
        "locations": site.size,
        "facilities": len(plan.assignment.opened),
        "capacities": {
            "total": math.fsum(plan.capacities),
            "least": plan.capacities.min(),
            "greatest": plan.capacities.max(),
        },
        "cost": plan.costs(site, noisy),
        "margin": {
            "kind": settings.margin,
            "noise": problem.noise,
            "total": math.fsum(plan.margins),
            "cost": math.fsum(plan.margins * site.cost[plan.assignment.opened]),
        },
        "failure_probability": {"promised": server.alpha, "level": plan.level},
        "delta": plan.delta,
    }
    if server.has_reports:
        details["chosen_by_noise"] = plan.any_set is not None
    if plan.any_set is not None:
        details["margin"] |= {"kind": "any set", "start": plan.any_set.start, "each": plan.any_set.slope}
    if problem.plain and plan.delta is not None:
        details["reconnection_per_client"] = 2.0 * plan.delta
    return details


def _compare_truth(problem: FLInstance, plan: Plan, clients: Any) -> dict[str, Any]:
    """Return what the owner may know: true cost, optimum, overflow."""
    site, ids, opened = problem.data.site, problem.data.ids, plan.assignment.opened
    counts, costs = sum_counts(plan.assignment, clients), plan.costs(site, clients)
    over = np.flatnonzero(counts > plan.capacities)
    truth: dict[str, Any] = {
        "clients": int(clients.sum()),
        "cost": costs,
        "overflow": [
            {"facility": str(ids[opened[s]]), "clients": counts[s], "capacity": plan.capacities[s]}
            for s in over.tolist()
        ],
    }
    if not problem.plain or plan.delta is None:
        return truth
    best = site.connect()
    optimum = truth["optimum"] = cost_parts(site, best, sum_counts(best, clients), clients)["total"]
    truth["normalised_cost"] = costs["total"] / optimum if optimum > 0 else math.inf
    return truth


def _round_down(value: float) -> float:
    """Return the cost of what is cheapest, less what sums of doubles can be off."""
    return value * (1.0 - 2.0**-48)


def _plan_openly(problem: FLInstance, server: Server, context: SolveContext) -> Plan:
    """Run Algorithm 1, or solve the program where opening is a choice or capacities are bounded."""
    data, site, recorded, stopped = problem.data, problem.data.site, {}, False
    if problem.nearest:
        assignment = site.connect()
    else:
        phase = "facilities by the true counts"
        found = choose_facilities(server, data.clients, NO_MARGIN, context, phase=phase)
        bounded, recorded = site.capacity is not None, {"lower_bound": found.bound, "nodes": found.nodes}
        assignment = Assignment.from_facilities(found.facility) if bounded else site.connect(found.opened)
        stopped = found.status != "optimal" and context.remaining == 0.0
    sizes = sum_counts(assignment, data.clients)
    none = np.zeros(len(sizes))
    plan = Plan(
        assignment=assignment, margins=none, capacities=sizes, level=0.0, delta=0.0, recorded=recorded, stopped=stopped
    )
    if "lower_bound" not in recorded:
        return plan
    # two orders of one sum: the bound of what was found may be a unit in the last place above its cost
    bound = min(recorded["lower_bound"], plan.costs(site, data.clients)["total"])
    return evolve(plan, recorded=recorded | {"lower_bound": bound})
