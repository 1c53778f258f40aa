"""CLR-Geo from the users' side: uploads, the certification of the answers, and the fallback if none comes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
from attrs import evolve

from privopt.arrays import Floats
from privopt.errors import InputError, SolverError, StoppedError
from privopt.execution.clock import OutOfTime, check, limit, within
from privopt.execution.memory import GB
from privopt.interfaces import Outcome, SolveContext
from privopt.search.incumbent import Incumbent
from privopt_lr_geo import server
from privopt_lr_geo.client import Client
from privopt_lr_geo.estimate import TableCosts, costs_of
from privopt_lr_geo.exact import search_seconds
from privopt_lr_geo.loss import MeanOfUsers
from privopt_lr_geo.lr_sets import LRSet, lr_sets, pairs_inside, reach_of
from privopt_lr_geo.measures import across_users
from privopt_lr_geo.messages import Answer, Package, Terms
from privopt_lr_geo.privacy import OwnMatrices
from privopt_lr_geo.problem import LRGeoInstance
from privopt_lr_geo.release import LRGeoRelease, MatricesOnDemand
from privopt_lr_geo.server import NotBegunError, ProgramSolution
from privopt_lr_geo.user_randomness import draw_order_and_centre, new_seed, stored_seed
from privopt_metric_dp.matrix.repair import repair
from privopt_metric_dp.solvers.exponential import exponential

__all__ = ["CentralSearch", "clients_of", "terms_of"]

EPSILON_SLACK: Final = 1e-7
"""The program is solved at epsilon (1 - this), so that the repair need not change entries tied across users."""
COEFFICIENT_BYTES: Final = 64.0
"""Memory for each entry of a row before the program: distances, costs and forms of users and server."""
SHARE_OF_TIME: Final = 0.15
"""Share of the remaining time for one mechanism of all records, before the users' program begins."""
LARGEST_MATRIX: Final = 4_000_000
"""Records times outputs up to which such a mechanism is computed. Larger dense kernels take more than that share."""


def clients_of(
    problem: LRGeoInstance, seed: int | None, costs: TableCosts | None = None, sets: Iterable[LRSet] | None = None
) -> list[Client]:
    """Return each user with its LR set, in the order of the records.

    Args:
        problem: The problem as the users see it.
        seed: Seed of the order of rows and of the circles. None draws one.
        costs: The table from which the users have costs. By default that of the problem.
        sets: The users' LR sets, if they are known.

    Raises:
        OutOfTime: The innermost scope of time ended.
    """
    data, options = problem.data, problem.declared.lr_geo
    costs, seed = costs or costs_of(problem), new_seed() if seed is None else seed
    clients = []
    for around in lr_sets(problem) if sets is None else sets:
        check()
        records, reach = around.records, reach_of(data, around.records)
        order, centre = draw_order_and_centre(seed, around.user, records)
        known_costs = data.cost[records] if costs is None else costs.of(records, centre).upper
        package = Package(
            distances=data.metric.between(records[order, None], records[None, order]),
            reach=reach[order],
            costs=data.prior[records[order], None] * known_costs[order],
            free=reach[order] <= options.exponential_beyond,
        )
        clients.append(Client(around=around, order=order, package=package))
    return clients


def terms_of(problem: LRGeoInstance) -> Terms:
    """Return what the server announces. Its epsilon is a little smaller than the promised one."""
    data, options = problem.data, problem.declared.lr_geo
    return Terms(
        epsilon=float(data.epsilon * (1 - Fraction(EPSILON_SLACK))),
        within=data.within,
        obfuscation_radius=options.obfuscation_radius,
        exponent=options.exponent,
    )


class CentralSearch:
    """Methods ``benders`` and ``full``: the users' program, and other mechanisms in case it takes too long."""

    def __init__(self, problem: LRGeoInstance, context: SolveContext) -> None:
        self.problem, self.context = problem, context
        with context.timed("build"), within(context.search_time):
            problem.data.required  # noqa: B018  (loaded here, so that building is timed as such)
            self.sets = lr_sets(problem)
        self.records = np.unique(np.concatenate([around.records for around in self.sets]))
        self.incumbent: Incumbent[Any, None, LRGeoRelease] = Incumbent(self, context.gap)
        self.solved: ProgramSolution | None = None
        self.stop_reason: StoppedError | None = None

    @cached_property
    def costs(self) -> TableCosts | None:
        """The table from which users have costs. None if they know them exactly."""
        return costs_of(self.problem)

    @cached_property
    def clients(self) -> list[Client]:
        """The users. A run that resumes from a checkpoint repeats their draws, so that its program is the same."""
        context, seed = self.context, self.context.seed
        if context.checkpoint is not None and context.method == "benders":
            seed = stored_seed(context.checkpoint, seed, resume=context.resume)
        return clients_of(self.problem, seed, self.costs, self.sets)

    # --- the search -----------------------------------------------------------------------------------

    def run(self) -> Outcome[LRGeoRelease]:
        """Ask the server. If it does not end in time, take the mechanism with the least loss of the users' rows.

        Raises:
            StoppedError: Nothing feasible was found in time, and the users have no mechanism by themselves.
        """
        context, incumbent = self.context, self.incumbent
        limited = context.remaining is not None
        if limited:
            self.offer_exponential()
            incumbent.certify()
        with limit(search_seconds(incumbent, context)) as soft:
            if limited:
                with soft.share(SHARE_OF_TIME):
                    self.offer_optimal()
            try:
                self.solved = self.ask_server()
            except OutOfTime:
                raise
            except StoppedError as stop:
                self.stop_reason = stop
            if isinstance(self.stop_reason, NotBegunError) or (self.stop_reason is not None and limited):
                self.offer_optimal()
        # A program that was solved to its end is the requested method, so it wins over cheaper fallbacks.
        if self.solved is not None and not self.solved.stopped:
            certified = incumbent.run_step("certify", partial(self.certify, self.solved.answers))
            if certified is not None:
                return self.outcome(certified[1], self.solved)
        return self.best(stopped=soft.left == 0.0 or not isinstance(self.stop_reason, NotBegunError))

    def ask_server(self) -> ProgramSolution:
        """Let the server solve the users' program.

        Raises:
            NotBegunError: Its coefficients, or the program, do not fit into memory.
            StoppedError: No solution was found in time.
        """
        data, context = self.problem.data, self.context
        needed = COEFFICIENT_BYTES * sum(len(around.records) for around in self.sets) * len(data.outputs)
        if needed > context.free_memory:
            raise NotBegunError(f"needs {needed / GB:.2g} GB of {context.free_memory / GB:.2g} left")
        terms = terms_of(self.problem)
        with context.timed("build"):
            packages = [client.package for client in self.clients]
        with context.timed("solve"):
            return server.solve(packages, terms, evolve(context, seed=None))

    def offer_exponential(self) -> None:
        """Offer the exponential mechanism, which users can compute by themselves.

        Its rows depend on records and outputs only. So different users have equal rows for the same place, and nobody
        uploads anything. Nothing is offered if some record reaches no output.
        """
        data = self.problem.data
        with suppress(InputError):
            z = exponential(reach_of(data, self.records), float(data.epsilon))
            self.incumbent.offer("exponential", candidate=z, value=self.evaluate_loss(z))

    def offer_optimal(self) -> None:
        """Offer one mechanism of all records by the methods of optimal-lp. A failure is only noted."""
        from privopt_metric_dp.solvers import Instance, solve

        data, context = self.problem.data, self.context
        if data.cost.size > LARGEST_MATRIX:
            return
        check()
        try:
            with context.timed("solve"):
                solution = solve(
                    Instance.of(data), gap=context.gap, memory=context.free_memory, progress=context.report
                )
        except OutOfTime:
            raise
        except (SolverError, StoppedError, MemoryError) as error:
            self.incumbent.note(f"one mechanism of all ({error or 'out of memory'})")
            return
        z = solution.z[self.records]
        self.incumbent.offer(solution.method, candidate=z, value=self.evaluate_loss(z))

    def evaluate_loss(self, candidate: Sequence[Answer] | Floats) -> float:
        """Return the loss of the users' own rows before they are certified."""
        users = self.problem.users
        if isinstance(candidate, np.ndarray):
            rows = candidate[np.searchsorted(self.records, users)]
        else:
            pairs = zip(self.clients, candidate, strict=True)
            rows = np.concatenate([answer.z[client.order == client.around.user_row] for client, answer in pairs])
        return float(np.einsum("ik,ik->", rows, self.problem.data.cost[users])) / len(users)

    # --- certification by the users -------------------------------------------------------------------

    def certify(self, candidate: Sequence[Answer] | Floats) -> tuple[float, LRGeoRelease]:
        """Certify the answers to the users, or one matrix (U, K) of all their records.

        Raises:
            CertificationError: No repair keeps the promise.
        """
        self.context.report("repair")
        data = self.problem.data
        release = (
            self.certify_common(candidate) if isinstance(candidate, np.ndarray) else self.certify_answers(candidate)
        )
        # Under a limit this measures how long closing takes, so it includes what `solve` and `verify` do again.
        if self.context.remaining is not None:
            radius = self.problem.declared.lr_geo.radius
            OwnMatrices.within_radius(data, radius).measure(release)
            across_users(data, release)
        return MeanOfUsers(cost=data.cost[self.problem.users]).evaluate(release), release

    def prove(self, proof: None, value: float) -> tuple[float, None]:
        """Return no bound, because bounds of the users' program do not bound the loss of their own rows."""
        return -np.inf, None

    def certify_common(self, z: Floats) -> LRGeoRelease:
        """Repair and certify one matrix (U, K), and let each user take the rows of its LR set."""
        data, records, users = self.problem.data, self.records, self.problem.users
        pairs, lengths = data.standing if len(records) == len(data.records) else pairs_inside(data, records)
        loss = data.weighted[records]
        with self.context.timed("repair"):
            weights = repair(z, pairs, lengths, data.epsilon, loss=loss, gap=self.context.gap).weights
        sets = {data.records.ids[around.user]: around for around in self.sets}
        matrices = MatricesOnDemand(data=data, records=records, weights=weights, sets=sets)
        return LRGeoRelease.of_users(self.problem, weights[np.searchsorted(records, users)], matrices)

    def certify_answers(self, answers: Sequence[Answer]) -> LRGeoRelease:
        """Let each user repair and certify its matrix, and take its row from it."""
        data, matrices, rows = self.problem.data, {}, []
        for client, answer in zip(self.clients, answers, strict=True):
            around = client.around
            with self.context.timed("repair"):
                weights = client.accept(answer, data.epsilon).weights
            matrices[data.records.ids[around.user]] = around.matrix(weights, data)
            rows.append(weights[around.user_row])
        return LRGeoRelease.of_users(self.problem, np.array(rows), matrices)

    def best(self, *, stopped: bool) -> Outcome[LRGeoRelease]:
        """Return the mechanism of least loss among the server's solution and those of the users.

        Raises:
            StoppedError: There is none.
        """
        incumbent, method = self.incumbent, self.context.method
        incumbent.note(f"{method} ({self.stop_reason})" if self.stop_reason is not None else method)
        if self.solved is not None:
            incumbent.offer(method, candidate=self.solved.answers, value=self.evaluate_loss(self.solved.answers))
        if incumbent.best_certified.release is None:
            self.offer_exponential()
        while incumbent.certify():
            pass
        answer = incumbent.answer(stopped=stopped)
        if answer.origin == method and self.solved is not None:
            return self.outcome(answer.release, self.solved)
        matrices = zip(self.sets, (answer.release.matrices or {}).values(), strict=True)
        weighted = self.problem.data.weighted
        value = sum(float((weighted[around.records] * matrix.probabilities).sum()) for around, matrix in matrices)
        return Outcome(
            release=answer.release,
            solver={"name": answer.origin, "path": f"{answer.path}, {answer.origin}"},
            details={
                "lp": {"value": value, "lower_bound": None},
                "reason": str(self.stop_reason or "the limit came before the users' program was better"),
                **({} if self.solved is None else {"stopped_at": self.solved.value}),
            },
            stopped=stopped,
        )

    def outcome(self, release: LRGeoRelease, solved: ProgramSolution) -> Outcome[LRGeoRelease]:
        """Return the server's solution as the users certified it."""
        lp = {"value": solved.value, "lower_bound": solved.lower_bound}
        cost_details = {} if self.costs is None else self.costs.details()
        details = {"lp": lp, **cost_details, **solved.details}
        return Outcome(release=release, solver=solved.solver, details=details, stopped=solved.stopped)
