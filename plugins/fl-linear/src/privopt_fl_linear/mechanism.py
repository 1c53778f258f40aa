"""The FL-Linear mechanism: the locations' side, the server's side, and what each side may publish."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve

from privopt.declare import files_of
from privopt.errors import Fault, InfeasibleError, InputError, StoppedError, number_of
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
"""The number of fresh reports drawn by an audit for each of two counts, and the confidence level of its result.

The result is a lower bound on epsilon.
"""
DROPPED = (
    "; the noise that was drawn is discarded; another draw spends epsilon again, and failure_probability too: if "
    "noise is drawn until a plan fits, plans fail more often than that"
)
"""The text to append to the message of an error that occurs after noise has been drawn."""

BYTES_PER_LOCATION, BYTES_PER_DISTANCE = 2_000.0, 100.0
"""The peak memory, in bytes, per location and per entry of the distance matrix.

It includes the plan, its files and their proof, as measured with 1,500 locations (tests/run/test_memory.py).
"""


class FLLinear(Mechanism[FLInstance, FLRelease]):
    """Facility location with linear facility costs under local differential privacy.

    The methods ``reconnection`` and ``laplace`` compute a plan from noisy counts. The method ``optimal`` computes it
    from the true counts, without privacy.
    """

    problem_class = FLProblem
    release_class = FLRelease
    scope = COVERED
    kit = "privopt_fl_linear.kit:PROFILE"
    reporting = "privopt_fl_linear.report:FLReporting"

    def load(self, declared: FLProblem, file: str) -> FLInstance:
        """Read the locations named in a problem file, and return the complete problem."""
        data = read_locations(declared.locations, must_be_whole=declared.settings.noise == "discrete")
        return FLInstance(declared=declared, data=data, file=file)

    def privacy(self, problem: FLInstance, method: str) -> PrivacyConstraint[FLRelease]:
        """Return the privacy constraint of a method.

        For ``optimal``, it guarantees nothing. For all other methods, it is local DP, achieved by adding noise to each
        location's count.
        """
        if method == "optimal":
            return NoGuarantee(reason="capacities are sums of the true counts")
        server = problem.make_server(method)
        return LocalLaplace(
            epsilon=problem.declared.privacy.epsilon,
            locations=problem.data.site.size,
            noise=problem.noise,
            # If there is a prior's plan, its facilities were chosen before any count was seen, which verify cannot
            # check.
            opening=server.chooses_sites and server.has_prior,
        )

    def utility(self, problem: FLInstance, method: str) -> CostAtCounts:
        """Return the utility loss, which is the cost of the plan for the counts in the release."""
        return CostAtCounts(site=problem.data.site)

    def bytes_needed(self, problem: FLInstance, method: str) -> float:
        """Estimate the memory, in bytes, needed for the locations and, if there is one, the distance matrix.

        The memory for (facility, location) pairs is checked separately in `choose_facilities`.
        """
        size = problem.data.site.size
        entries = size**2 if isinstance(problem.data.site.metric, Matrix) else 0
        return BYTES_PER_LOCATION * size + BYTES_PER_DISTANCE * entries

    def check_problem(self, problem: FLInstance, method: str) -> None:
        """Check that the problem has the counts and the public mean count that the method needs.

        Raises:
            InputError: The counts or the mean count are missing.
        """
        points, data = problem.declared.locations.points.name, problem.data
        if method == "optimal":
            if data.clients is None:
                expectation = "a column clients (method optimal takes the true counts)"
                raise InputError([Fault(points, "header", "no such column", expectation)])
        elif data.clients is None and data.noisy is None:
            raise InputError([Fault(points, "header", "no such column", "a column clients or noisy_clients")])
        elif problem.declared.settings.sites == "prior" and not problem.make_server(method).has_prior:
            expectation = 'the publicly known mean count, for sites = "prior" (if there is none, omit sites)'
            raise InputError([Fault(problem.file, "fl-linear.mean_clients", "nothing", expectation)])

    def solve(self, problem: FLInstance, context: SolveContext) -> Outcome[FLRelease]:
        """Plan facilities and capacities from noisy counts.

        If the problem contains no noisy counts, noise is first added to the true counts. The method ``optimal`` uses
        the true counts instead. If noise was drawn before an error occurred, the error message warns that drawing it
        again spends epsilon again.

        Args:
            problem: The problem, with true or noisy counts.
            context: The method, the solver and its limits, the seed, and the progress callback.

        Raises:
            InfeasibleError: No plan respects the capacity bounds.
            StoppedError: No plan was found within the time limit.
        """
        data, uses_true_counts, record = problem.data, context.method == "optimal", None
        counts = data.clients if uses_true_counts else data.noisy
        if counts is None:
            context.report("noise")
            with context.time_phase("build"):
                epsilon = problem.declared.privacy.epsilon
                counts, record = noisy_counts(data.clients, epsilon, noise=problem.noise, seed=context.seed)
        # A description of how the noise was drawn, or None if no noise was drawn here.
        engine = None if record is None else record.engine
        server = problem.make_server(context.method)
        with context.time_phase("solve"):
            try:
                plan = (
                    _plan_openly(problem, server, context)
                    if uses_true_counts
                    else serve(server, counts, context, data.ids)
                )
            except (InfeasibleError, StoppedError) as error:
                error.args = (f"{error}{DROPPED if engine else ''}",)
                raise
        release = FLRelease(
            ids=data.ids,
            assignment=plan.assignment,
            capacities=plan.capacities,
            counts=counts,
            noise_engine=engine,
            plan=plan,
            scale=None if record is None else record.scale,
        )
        return Outcome(
            release=release,
            # The bound of a solved program is not published, because it depends on the secret true counts.
            lower_bound=_round_down(plan.costs(data.site, counts)["total"])
            if uses_true_counts and problem.is_nearest_best
            else None,
            solver={"name": "fl-linear", "version": None, "iterations": plan.recorded.get("nodes")},
            details={"noise_drawn_by": engine, **plan.recorded},
            stopped=plan.stopped,
            seeded=record is not None and record.seeded,
            truth=None if data.clients is None else _compare_truth(problem, plan, data.clients),
        )

    def public_files(self, problem: FLInstance, release: FLRelease) -> Mapping[str, bytes]:
        """Return the contents of the published problem's data files (locations and distances), keyed by file name.

        Rows are sorted by id, and true counts are replaced by noisy ones. If the release has no noisy counts, the files
        contain no counts at all.

        Args:
            problem: The problem, with its locations.
            release: The release, which provides the counts and shows whether noise was drawn for them.
        """
        # The release's counts are noisy if noise was drawn here, or if they are the noisy counts that the problem came
        # with. Otherwise they are the true counts, which must not be published.
        is_noisy = release.noise_engine is not None or release.counts is problem.data.noisy
        published = release.counts if is_noisy else None
        files = {problem.declared.locations.points.name: problem.data.to_csv(published)}
        table, metric = problem.declared.locations.matrix, problem.data.site.metric
        if table is not None and isinstance(metric, Matrix):
            buffer = io.BytesIO()
            np.save(buffer, metric.distances)
            files[table.name] = buffer.getvalue()
        return files

    def details(
        self, problem: FLInstance, release: FLRelease, method: str, recorded: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the details for result.json, such as the plan's size, cost and margins.

        They depend only on noisy counts and public data.

        Args:
            problem: The problem. When a release is verified, this is the published problem.
            release: The release.
            method: The method that was run.
            recorded: The result's ``details.told``, which records how the plan was chosen. This cannot be recovered
                from the release's files.

        Raises:
            InputError: The release was read from files, and its problem has no noisy counts.
        """
        if method == "optimal":
            return {"locations": problem.data.site.size, "facilities": len(release.assignment.opened)}
        plan = release.plan
        # A release that was read from its folder has no plan, so the plan is computed again.
        if plan is None:
            noisy = problem.data.noisy
            if noisy is None:
                file = problem.declared.locations.points.name
                raise InputError([Fault(file, "header", "no such column", "a column noisy_clients")])
            plan = plan_again(problem.make_server(method), noisy, recorded, problem.data.ids, release.assignment)
        return _describe_plan(problem, method, plan, release.counts)

    def verify(self, problem: FLInstance, release: FLRelease, result: Result) -> list[str]:
        """Check the published files, repeat the server's computation, and compare the resulting plan with the release.

        For the method ``optimal``, only properties that follow from public data are checked.

        Args:
            problem: The published problem.
            release: The release as read from its folder.
            result: The contents of result.json. The method determines what is compared.

        Returns:
            A list with a sentence about the first difference found. It is empty if there is none.
        """
        site, opened = problem.data.site, release.assignment.opened
        files = {file.name: file.contents for file in files_of(problem.declared)}
        for name, contents in self.public_files(problem, release).items():
            # A different row order or an additional column could carry a message about the counts.
            if files[name] != contents:
                return [f"problem/{name}: not as it is published: by id, with the public columns alone"]
        if not np.isin(opened, site.allowed_sites).all():
            return ["connections.csv: a facility at a location that is not a candidate"]
        limit = problem.declared.settings.most_facilities
        if limit is not None and len(opened) > limit:
            return [f"connections.csv: {number_of(len(opened), 'facility')}, most_facilities = {limit}"]
        # This is checked even for ``optimal``, because capacity bounds are public.
        if (release.capacities > site.capacity_bounds[opened]).any():
            return ["capacities.csv: a facility is larger than its capacity allows"]
        if result.method == "optimal":
            return _verify_openly(problem, release)
        if problem.data.noisy is None:
            return ["problem: no noisy_clients, so the server's side cannot be run again"]
        return _verify_plan(problem, release, result)

    def proved_bound(self, problem: FLInstance, release: FLRelease, result: Result, folder: Path) -> float | None:
        """Return a proved lower bound on the loss, or None if the published files do not prove one.

        A bound is proved only for the method ``optimal``, and only if the release serves every location from its
        cheapest facility and this is optimal for all possible counts. The bound is then the loss itself, rounded down.
        """
        is_optimal = result.method == "optimal" and problem.is_nearest_best
        return _round_down(result.objective.value) if is_optimal and not _verify_openly(problem, release) else None

    def audit(self, problem: FLInstance, release: FLRelease, result: Result) -> Mapping[str, Any]:
        """Return the claimed epsilon, the epsilon that an attacker can achieve, and the result of a statistical attack.

        An attacker can achieve the full epsilon, because neighbouring counts shift the noise by 1. The entry
        ``statistical`` contains a lower bound on epsilon, obtained by attacking fresh reports drawn for the counts 0
        and 1. It is None if the noise was not drawn by `solve`. For the method ``optimal``, no epsilon is claimed and
        the achieved one is infinite.

        Args:
            problem: The problem, with epsilon and the kind of noise.
            release: The release, with its counts.
            result: The contents of result.json, which record whether `solve` drew the noise.
        """
        if result.method == "optimal":
            return {"epsilon": {"claimed": None, "achieved": math.inf}}
        certificate = self.privacy(problem, result.method).measure(release)
        facts: dict[str, Any] = {
            "epsilon": {"claimed": float(problem.declared.privacy.epsilon), "achieved": certificate.worst},
            "statistical": None,
        }
        if result.details.told.get("noise_drawn_by") is not None:
            from privopt.numbers.binomial import epsilon_lower

            epsilon = problem.declared.privacy.epsilon
            # The attack compares how often values occur, so reports are rounded down to integers, which is
            # post-processing.
            reports_at_0, reports_at_1 = (
                np.floor(noisy_counts(np.full(AUDIT_DRAWS, b), epsilon, noise=problem.noise)[0]) for b in (0, 1)
            )
            lower = epsilon_lower(reports_at_0, reports_at_1, CONFIDENCE)
            facts["statistical"] = {"epsilon_lower": lower, "confidence": CONFIDENCE, "draws": AUDIT_DRAWS}
        return facts

    def warnings(self, problem: FLInstance, release: FLRelease, result: Result) -> Sequence[str]:
        """Return a warning if the facilities were chosen from noisy counts for lack of a public mean count.

        The warning says that stating a public mean might allow smaller margins. ``result`` provides the method and what
        `solve` recorded about the reports.
        """
        if result.method == "optimal" or problem.make_server(result.method).has_prior:
            return []
        # `told` holds what `solve` recorded when it chose the facilities from the reports.
        mean = (result.details.told.get("reports") or {}).get("mean_reported")
        estimate = f" ({mean:,.3g} a location by the reports)" if isinstance(mean, float) else ""
        return [
            "fl-linear.mean_clients is not stated, so the noisy counts alone chose the facilities, and their margins "
            f"hold for any choice{estimate}; if the mean was public before, state it: smaller margins may suffice"
        ]


def _verify_plan(problem: FLInstance, release: FLRelease, result: Result) -> list[str]:
    """Compare a release's connections and capacities with those computed from noisy counts and public data.

    Args:
        problem: The published problem, with noisy counts.
        release: The release as read from its folder.
        result: The contents of result.json, which record how the plan was chosen.

    Returns:
        A list with a sentence about the first difference. It is empty if there is none.
    """
    server, facts, noisy = problem.make_server(result.method), result.details.facts, problem.data.noisy
    recorded, ids = result.details.told, problem.data.ids
    # Margins of a plan that was chosen from noisy counts are valid for every assignment. The published assignment is
    # therefore taken as given, which the entry `plans` makes `plan_again` do, and only the capacities are compared.
    if facts.get("chosen_by_noise"):
        plan = plan_again(server, noisy, {**recorded, "plans": {"chosen": "reports"}}, ids, release.assignment)
    else:
        delta, level = float(facts["delta"]), float(facts["failure_probability"]["level"])
        plan = plan_at(server, noisy, recorded, ids, delta, level)
    if not np.array_equal(plan.assignment.facility, release.assignment.facility):
        return ["connections.csv: not those that delta and the locations give"]
    if not np.allclose(plan.capacities, release.capacities, rtol=1e-9, atol=1e-9):
        return ["capacities.csv: not noisy counts plus margins"]
    return []


def _verify_openly(problem: FLInstance, release: FLRelease) -> list[str]:
    """Check the connections in a release of the ``optimal`` method, as far as public data allow.

    If it is optimal for all possible counts to connect every location to its cheapest facility, check that the release
    does exactly that. Otherwise, nothing is checked. Capacities are never checked, because they are sums of the true
    counts, which are not published.

    Returns:
        A list containing one sentence that describes the deviation, or an empty list if there is none.
    """
    nearest = problem.data.site.connect().facility if problem.is_nearest_best else release.assignment.facility
    is_equal = np.array_equal(nearest, release.assignment.facility)
    return [] if is_equal else ["connections.csv: not the cheapest facility of each location"]


def _describe_plan(problem: FLInstance, method: str, plan: Plan, noisy: Any) -> dict[str, Any]:
    """Return the entries of result.json that describe a plan's sizes, costs, margins and failure probability.

    All of them are functions of noisy counts and public data, so they may be published.

    Args:
        problem: The problem, with public data and settings.
        method: The method that was run.
        plan: The plan to describe.
        noisy: (n,) The noisy counts.
    """
    site, settings, server = problem.data.site, problem.declared.settings, problem.make_server(method)
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
    # If the facilities were chosen from noisy counts, the margins are valid for every set of locations (`AnySet`).
    if server.has_reports:
        details["chosen_by_noise"] = plan.any_set is not None
    if plan.any_set is not None:
        details["margin"] |= {"kind": "any set", "start": plan.any_set.start, "each": plan.any_set.slope}
    # For each client, a location pays at most 2 delta more than without reconnection. `reconnect` proves this for the
    # paper's problem.
    if problem.is_paper_problem:
        assert plan.delta is not None  # the paper's problem has no reports' plan
        details["reconnection_per_client"] = 2.0 * plan.delta
    return details


def _compare_truth(problem: FLInstance, plan: Plan, clients: Any) -> dict[str, Any]:
    """Return a plan's cost at the true counts, the facilities that overflow, and the optimal cost without privacy.

    The optimum is included only for the paper's problem (`FLInstance.is_paper_problem`).

    Args:
        problem: The problem, with the locations and their costs.
        plan: The plan, with a capacity for each facility.
        clients: (n,) The true counts of clients. They are secret, so only the owner may see the result.

    Returns:
        The entries of truth.json. ``clients`` is the total number of clients, ``cost`` contains the components of the
        plan's cost, and ``overflow`` describes the facilities whose capacity is too small. If the optimum is included,
        ``optimum`` is its cost and ``normalised_cost`` the plan's cost divided by it.
    """
    site, ids, opened = problem.data.site, problem.data.ids, plan.assignment.opened
    counts, costs = sum_counts(plan.assignment, clients), plan.costs(site, clients)
    # A facility overflows if it serves more true clients than its capacity. The probability that this happens anywhere
    # is at most alpha (privacy.failure_probability).
    overflowing = np.flatnonzero(counts > plan.capacities)
    truth: dict[str, Any] = {
        "clients": int(clients.sum()),
        "cost": costs,
        "overflow": [
            {"facility": str(ids[opened[s]]), "clients": counts[s], "capacity": plan.capacities[s]}
            for s in overflowing.tolist()
        ],
    }
    # Algorithm 1 finds the optimum only if facilities can be opened anywhere, without a fixed cost or a capacity bound.
    if not problem.is_paper_problem:
        return truth
    best = site.connect()
    optimum = truth["optimum"] = cost_parts(site, best, sum_counts(best, clients), clients)["total"]
    truth["normalised_cost"] = costs["total"] / optimum if optimum > 0 else math.inf
    return truth


def _round_down(value: float) -> float:
    """Return a lower bound on an exact cost, given its value computed in double precision.

    The value is multiplied by 1 - 2**-48, which reduces it by at least 16 units in the last place. Each product and
    each correctly rounded sum is off by at most half a unit.
    """
    return value * (1.0 - 2.0**-48)


def _plan_openly(problem: FLInstance, server: Server, context: SolveContext) -> Plan:
    """Compute the plan for the method ``optimal`` from the true counts, without noise or margins.

    Algorithm 1 is used unless the facilities to open have to be chosen or capacities are bounded. In these cases, a
    facility location problem is solved, and the plan's ``recorded`` contains the proved ``lower_bound`` and the number
    of ``nodes``.

    Args:
        problem: The problem, with the true counts.
        server: The server's public settings, such as the maximum number of open facilities.
        context: The solver, its gap and limits, and the progress callback.
    """
    data, site, recorded, stopped = problem.data, problem.data.site, {}, False
    if problem.is_nearest_best:
        assignment = site.connect()
    else:
        phase = "facilities by the true counts"
        facilities = choose_facilities(server, data.clients, NO_MARGIN, context, phase=phase)
        # With capacity bounds, a location's facility need not be its cheapest open one, so the solution is used as it
        # is.
        bounded, recorded = site.capacity is not None, {"lower_bound": facilities.bound, "nodes": facilities.nodes}
        assignment = Assignment.from_facilities(facilities.facility) if bounded else site.connect(facilities.opened)
        stopped = facilities.status != "optimal" and context.remaining == 0.0
    sizes = sum_counts(assignment, data.clients)
    no_margins = np.zeros(len(sizes))
    plan = Plan(
        assignment=assignment,
        margins=no_margins,
        capacities=sizes,
        level=0.0,
        delta=0.0,
        recorded=recorded,
        stopped=stopped,
    )
    if "lower_bound" not in recorded:
        return plan
    # The solver and costs() add up in different orders, so a tight bound may exceed the cost by a rounding error.
    bound = min(recorded["lower_bound"], plan.costs(site, data.clients)["total"])
    return evolve(plan, recorded=recorded | {"lower_bound": bound})
