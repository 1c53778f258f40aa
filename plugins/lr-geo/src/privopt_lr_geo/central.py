"""CLR-Geo from the users' side: their uploads, the certification of the server's answers, and fallback mechanisms.

CLR-Geo (Qiu et al., PoPETs 2025) is a single linear program for the matrices of all users, solved by a server. A user's
matrix has rows only for the user's LR (locally relevant) set, the records near the user.
"""

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
from privopt.execution.resources import GB
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
"""The share of epsilon that the program leaves unused, so that repairs need not change entries shared by users."""
COEFFICIENT_BYTES: Final = 64.0
"""The memory needed for the distances and costs in packages before the program is built, in bytes per matrix entry."""
SHARE_OF_TIME: Final = 0.15
"""The share of the remaining time to spend on a fallback (one matrix for all records) before the program is solved."""
LARGEST_MATRIX: Final = 4_000_000
"""The largest number of entries (records times outputs) for which an optimal fallback matrix is computed."""


def clients_of(
    problem: LRGeoInstance, seed: int | None, costs: TableCosts | None = None, sets: Iterable[LRSet] | None = None
) -> list[Client]:
    """Prepare the upload of every user, and return the users in the order of their records.

    Args:
        problem: The problem with its users.
        seed: The seed for the random order of each user's rows, and for the random centre of the circle that each user
            requests from the cost reference table. If None, a random seed is used.
        costs: The reference table from which users estimate their costs. By default, this is the problem's table, if it
            has one. Without a table, users know their costs exactly.
        sets: The users' LR sets, if they have already been computed.

    Raises:
        OutOfTime: The innermost time limit expired.
    """
    data, options = problem.data, problem.declared.lr_geo
    costs, seed = costs or costs_of(problem), new_seed() if seed is None else seed
    clients = []
    for around in lr_sets(problem) if sets is None else sets:
        check()
        records, reach = around.records, reach_of(data, around.records)
        order, centre = draw_order_and_centre(seed, around.user, records)
        known_costs = data.cost[records] if costs is None else costs.of(records, centre).upper
        # Rows are permuted before they leave the user. Columns keep the public order of the outputs, because all users
        # share a variable y for each output.
        package = Package(
            distances=data.metric.between(records[order, None], records[None, order]),
            reach=reach[order],
            costs=data.prior[records[order], None] * known_costs[order],
            free=reach[order] <= options.exponential_beyond,
        )
        clients.append(Client(around=around, order=order, package=package))
    return clients


def terms_of(problem: LRGeoInstance) -> Terms:
    """Return the public parameters that the server announces, with an epsilon slightly smaller than the promised one.

    The difference leaves room to repair the server's answers.
    """
    data, options = problem.data, problem.declared.lr_geo
    return Terms(
        epsilon=float(data.epsilon * (1 - Fraction(EPSILON_SLACK))),
        within=data.within,
        obfuscation_radius=options.obfuscation_radius,
        exponent=options.exponent,
    )


class CentralSearch:
    """A run of the ``benders`` or ``full`` method, with fallbacks in case the linear program takes too long to solve.

    Attributes:
        problem: The problem with its users.
        context: The method, optimality gap and limits of the run.
        sets: Each user's LR set, which consists of the records near the user. The user's matrix has one row for each of
            them.
        records: (U,) The indices of the records in at least one LR set, in ascending order.
        incumbent: The best certified mechanism so far. Candidates are offered to it, and it certifies them by calling
            :meth:`certify`.
        solved: The server's solution, or None if there is none yet or the server failed.
        stop_reason: The error with which the server failed, or None if it has not failed.
    """

    def __init__(self, problem: LRGeoInstance, context: SolveContext) -> None:
        """Compute the users' LR sets, the records within path distance Gamma of each user.

        Args:
            problem: The problem with its users.
            context: The method, optimality gap and limits of the run.
        """
        self.problem, self.context = problem, context
        with context.time_phase("build"), within(context.search_time):
            problem.data.required  # noqa: B018  (loaded here so that its time counts as building)
            self.sets = lr_sets(problem)
        # Records for which at least one user's matrix has a row.
        self.records = np.unique(np.concatenate([around.records for around in self.sets]))
        self.incumbent: Incumbent[Any, None, LRGeoRelease] = Incumbent(self, context.gap)
        self.solved: ProgramSolution | None = None
        self.stop_reason: StoppedError | None = None

    @cached_property
    def costs(self) -> TableCosts | None:
        """The cost reference table from which users estimate their costs, or None if they know the costs exactly."""
        return costs_of(self.problem)

    @cached_property
    def clients(self) -> list[Client]:
        """The users with their uploads, in the order of ``sets``.

        The program depends on the users' random draws, so a run that resumes from a checkpoint must reproduce them.
        """
        context, seed = self.context, self.context.seed
        if context.checkpoint is not None and context.method == "benders":
            seed = stored_seed(context.checkpoint, seed, resume=context.resume)
        return clients_of(self.problem, seed, self.costs, self.sets)

    # --- the search -----------------------------------------------------------------------------------

    def run(self) -> Outcome[LRGeoRelease]:
        """Solve the users' joint program, and return the server's solution once it is certified.

        If the server does not finish in time, the best certified mechanism is returned, which may be a fallback.

        Raises:
            StoppedError: No feasible solution was found in time, and the users cannot compute a mechanism by
                themselves.
        """
        context, incumbent = self.context, self.incumbent
        limited = context.remaining is not None
        # Under a time limit, a certified fallback is needed first. Certifying it also shows how long this takes, so
        # that search_seconds() can reserve enough time.
        if limited:
            self.offer_exponential()
            incumbent.certify()
        with limit(search_seconds(incumbent, context)) as soft:
            # The users' program may not be solved in time, so a small share of the time goes to a fallback that covers
            # all records.
            if limited:
                with soft.limit_to_share(SHARE_OF_TIME):
                    self.offer_optimal()
            try:
                self.solved = self.ask_server()
            except OutOfTime:
                raise  # leaves the scope whose time has expired, `soft` or one around it
            except StoppedError as stop:
                self.stop_reason = stop
            # Without a time limit, the error is either an interrupt, after which no other search may start, or
            # NotBegunError because the program is too large.
            if isinstance(self.stop_reason, NotBegunError) or (self.stop_reason is not None and limited):
                self.offer_optimal()
        # The caller asked for the solution of this program, so a complete solution is returned even if a fallback has
        # less loss.
        if self.solved is not None and not self.solved.stopped:
            certified = incumbent.run_step("certify", partial(self.certify, self.solved.answers))
            if certified is not None:
                return self.outcome(certified[1], self.solved)
        # A run whose program does not fit into memory counts as complete, unless the fallback ran out of time.
        return self.best(stopped=soft.left == 0.0 or not isinstance(self.stop_reason, NotBegunError))

    def ask_server(self) -> ProgramSolution:
        """Send the users' packages to the server, and return its solution of CLR-Geo, the joint program for all users.

        Raises:
            NotBegunError: The program or the packages do not fit in memory.
            StoppedError: No solution was found in time.
        """
        data, context = self.problem.data, self.context
        needed = COEFFICIENT_BYTES * sum(len(around.records) for around in self.sets) * len(data.outputs)
        if needed > context.free_memory:
            raise NotBegunError(f"needs {needed / GB:.2g} GB of {context.free_memory / GB:.2g} left")
        terms = terms_of(self.problem)
        with context.time_phase("build"):
            packages = [client.package for client in self.clients]
        with context.time_phase("solve"):
            # The server must not learn the seed, which determines the order of the users' rows and their circles.
            return server.solve(packages, terms, evolve(context, seed=None))

    def offer_exponential(self) -> None:
        """Offer the exponential mechanism to the incumbent, as a fallback that does not require the server.

        Its rows depend only on the public map, so users can compute them without uploading anything. Nothing is offered
        if any record has no output at a finite distance.
        """
        data = self.problem.data
        with suppress(InputError):
            z = exponential(reach_of(data, self.records), float(data.epsilon))
            self.incumbent.offer("exponential", candidate=z, value=self.evaluate_loss(z))

    def offer_optimal(self) -> None:
        """Compute a single optimal matrix for all records, and offer it to the incumbent.

        This is the matrix of the optimal-lp mechanism. Because this is only a fallback, a solver error or lack of
        memory is noted for the report rather than raised. Nothing is offered if the matrix would have more than
        ``LARGEST_MATRIX`` entries.

        Raises:
            OutOfTime: The time limit expired.
        """
        from privopt_metric_dp.solvers import Instance, solve

        data, context = self.problem.data, self.context
        # A larger program would not finish within its share of the time.
        if data.cost.size > LARGEST_MATRIX:
            return
        check()  # raises OutOfTime before any work if there is no time left
        try:
            with context.time_phase("solve"):
                solution = solve(
                    Instance.of(data), gap=context.gap, memory=context.free_memory, progress=context.report
                )
        except OutOfTime:
            raise  # ends the scope of the time limit
        except (SolverError, StoppedError, MemoryError) as error:
            self.incumbent.note(f"one mechanism of all ({error or 'out of memory'})")
            return
        # Users need only the rows of the records in their LR sets.
        z = solution.z[self.records]
        self.incumbent.offer(solution.method, candidate=z, value=self.evaluate_loss(z))

    def evaluate_loss(self, candidate: Sequence[Answer] | Floats) -> float:
        """Return the expected loss of the matrix row from which a user would draw a report, averaged over all users.

        Args:
            candidate: The server's answers, one per user, or a common (U, K) matrix with one row for each record in
                ``self.records``. The candidate need not be certified.
        """
        users = self.problem.users
        if isinstance(candidate, np.ndarray):
            # `self.records` is sorted, so a binary search finds each user's row.
            rows = candidate[np.searchsorted(self.records, users)]
        else:
            pairs = zip(self.clients, candidate, strict=True)
            # An answer's rows are in the random order of the user's upload.
            rows = np.concatenate([answer.z[client.order == client.around.user_row] for client, answer in pairs])
        return float(np.einsum("ik,ik->", rows, self.problem.data.cost[users])) / len(users)

    # --- certification by the users -------------------------------------------------------------------

    def certify(self, candidate: Sequence[Answer] | Floats) -> tuple[float, LRGeoRelease]:
        """Repair and certify a candidate, and return its loss and the resulting release.

        Under a time limit, this method also computes the measures that are needed at the end of a run, and discards the
        results. The incumbent measures how long the call takes, to know how much time to reserve for the end of the
        run.

        Args:
            candidate: The server's answers, one per user, or a common (U, K) matrix with one row for each record in
                ``self.records``.

        Returns:
            The mean loss of the rows from which users draw their reports, and the release.

        Raises:
            CertificationError: No repair satisfies the guarantee.
        """
        self.context.report("repair")
        data = self.problem.data
        release = (
            self.certify_common(candidate) if isinstance(candidate, np.ndarray) else self.certify_answers(candidate)
        )
        # Both measures are computed again at the end of the run. Here, only the time they take matters.
        if self.context.remaining is not None:
            radius = self.problem.declared.lr_geo.radius
            OwnMatrices.within_radius(data, radius).measure(release)
            across_users(data, release)
        return MeanOfUsers(cost=data.cost[self.problem.users]).evaluate(release), release

    def prove(self, proof: None, value: float) -> tuple[float, None]:
        """Return minus infinity and None, because no lower bound is proved for candidates.

        A bound on the objective of CLR-Geo does not bound the loss of the rows from which users draw their reports.
        """
        return -np.inf, None

    def certify_common(self, z: Floats) -> LRGeoRelease:
        """Certify a common matrix, and return a release in which each user's matrix consists of rows from it.

        Args:
            z: (U, K) The probability of each output for each record in ``self.records``. The rows must satisfy the
                privacy constraints up to rounding errors.

        Raises:
            CertificationError: No repair satisfies the guarantee.
        """
        data, records, users = self.problem.data, self.records, self.problem.users
        # `standing` contains the pairs that suffice to certify a matrix with rows for all records. For a part of the
        # records, all required pairs inside it are used.
        pairs, lengths = data.standing if len(records) == len(data.records) else pairs_inside(data, records)
        loss = data.weighted[records]
        with self.context.time_phase("repair"):
            weights = repair(z, pairs, lengths, data.epsilon, loss=loss, gap=self.context.gap).weights
        sets = {data.records.ids[around.user]: around for around in self.sets}
        matrices = MatricesOnDemand(data=data, records=records, weights=weights, sets=sets)
        return LRGeoRelease.of_users(self.problem, weights[np.searchsorted(records, users)], matrices)

    def certify_answers(self, answers: Sequence[Answer]) -> LRGeoRelease:
        """Have every user repair and certify the server's answer, and return the release.

        Args:
            answers: The server's answers, in the order of ``self.clients``.

        Raises:
            CertificationError: For at least one user's answer, no repair satisfies the guarantee.
        """
        data, matrices, rows = self.problem.data, {}, []
        for client, answer in zip(self.clients, answers, strict=True):
            around = client.around
            with self.context.time_phase("repair"):
                weights = client.accept(answer, data.epsilon).weights
            matrices[data.records.ids[around.user]] = around.matrix(weights, data)
            rows.append(weights[around.user_row])
        return LRGeoRelease.of_users(self.problem, np.array(rows), matrices)

    def best(self, *, stopped: bool) -> Outcome[LRGeoRelease]:
        """Return the certified mechanism with the smallest loss, whether it is the server's solution or a fallback.

        Args:
            stopped: Whether the run was ended early by a limit or an interrupt.

        Raises:
            StoppedError: No mechanism was certified.
        """
        incumbent, method = self.incumbent, self.context.method
        incumbent.note(f"{method} ({self.stop_reason})" if self.stop_reason is not None else method)
        if self.solved is not None:
            incumbent.offer(method, candidate=self.solved.answers, value=self.evaluate_loss(self.solved.answers))
        if incumbent.best_certified.release is None:
            self.offer_exponential()
        # Each call certifies the best offer that has not been tried yet, and the loop ends when none of the rest could
        # be better.
        while incumbent.certify():
            pass
        answer = incumbent.answer(stopped=stopped)
        # The server's solution is returned with its bound and the details of its method.
        if answer.origin == method and self.solved is not None:
            return self.outcome(answer.release, self.solved)
        matrices = zip(self.sets, (answer.release.matrices or {}).values(), strict=True)
        weighted = self.problem.data.weighted
        # The server's objective is evaluated at the fallback so that it can be compared with that of the users'
        # program.
        value = sum(float((weighted[around.records] * matrix.probabilities).sum()) for around, matrix in matrices)
        return Outcome(
            release=answer.release,
            solver={"name": answer.origin, "path": f"{answer.path}, {answer.origin}"},
            details={
                "lp": {"value": value, "lower_bound": None},
                "reason": str(self.stop_reason or "the limit was reached before the users' program was better"),
                **({} if self.solved is None else {"stopped_at": self.solved.value}),
            },
            stopped=stopped,
        )

    def outcome(self, release: LRGeoRelease, solved: ProgramSolution) -> Outcome[LRGeoRelease]:
        """Return the outcome of a run whose release is the server's solution.

        Args:
            release: The certified release.
            solved: The server's solution, with its objective and lower bound.
        """
        lp = {"value": solved.value, "lower_bound": solved.lower_bound}
        cost_details = {} if self.costs is None else self.costs.details()
        details = {"lp": lp, **cost_details, **solved.details}
        return Outcome(release=release, solver=solved.solver, details=details, stopped=solved.stopped)
