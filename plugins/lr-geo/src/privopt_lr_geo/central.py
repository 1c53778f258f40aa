"""CLR-Geo from the users' side: uploads, the use of the answer, and the fallback if none comes."""

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
from privopt_lr_geo.user_randomness import drawn, new_seed, stored_seed
from privopt_metric_dp.matrix.repair import repair
from privopt_metric_dp.solvers.exponential import exponential

__all__ = ["CentralSearch", "clients_of", "terms_of"]

EPSILON_SLACK: Final = 1e-7
"""The program is solved at epsilon (1 - this), so that the repair leaves entries tied across users as they are."""
COEFFICIENT_BYTES: Final = 64.0
"""Bytes of a row's entry before there is a program: distances, costs and forms with users and server."""
SHARE_OF_TIME: Final = 0.15
"""Of the time that is left, what one mechanism of all records may take before the users' program begins."""
LARGEST_MATRIX: Final = 4_000_000
"""Records times outputs up to which one is looked for: beyond it, dense kernels take more than such a share."""


def clients_of(
    problem: LRGeoInstance, seed: int | None, costs: TableCosts | None = None, sets: Iterable[LRSet] | None = None
) -> list[Client]:
    """Return each user with its LR set, in the order of the records.

    Args:
        problem: what the users see.
        seed: of the order of rows and of circles; None draws one.
        costs: the table that they have costs from; default: as the problem says.
        sets: the users' LR sets, where they are known.

    Raises:
        OutOfTime: the innermost scope of time ended.
    """
    data, options = problem.data, problem.declared.lr_geo
    costs, seed = costs or costs_of(problem), new_seed() if seed is None else seed
    clients = []
    for around in lr_sets(problem) if sets is None else sets:
        check()
        records, reach = around.records, reach_of(data, around.records)
        order, centre = drawn(seed, around.user, records)
        known = data.cost[records] if costs is None else costs.of(records, centre).upper
        package = Package(
            distances=data.metric.between(records[order, None], records[None, order]),
            reach=reach[order],
            costs=data.prior[records[order], None] * known[order],
            free=reach[order] <= options.exponential_beyond,
        )
        clients.append(Client(around=around, order=order, package=package))
    return clients


def terms_of(problem: LRGeoInstance) -> Terms:
    """Return what the server announces; the program is a little stricter than the promise."""
    data, options = problem.data, problem.declared.lr_geo
    return Terms(
        epsilon=float(data.epsilon * (1 - Fraction(EPSILON_SLACK))),
        within=data.within,
        obfuscation_radius=options.obfuscation_radius,
        exponent=options.exponent,
    )


class CentralSearch:
    """Methods ``benders`` and ``full``: the users' program, what there is next to it; users certify both."""

    def __init__(self, problem: LRGeoInstance, context: SolveContext) -> None:
        self.problem, self.context = problem, context
        with context.timed("build"), within(context.search_time):
            problem.data.required  # noqa: B018  (loaded here, so that building is timed as such)
            self.sets = lr_sets(problem)
        self.records = np.unique(np.concatenate([around.records for around in self.sets]))
        self.incumbent: Incumbent[Any, None, LRGeoRelease] = Incumbent(self, context.gap)
        self.solved: ProgramSolution | None = None
        self.late: StoppedError | None = None

    @cached_property
    def costs(self) -> TableCosts | None:
        """The table that users have costs from."""
        return costs_of(self.problem)

    @cached_property
    def clients(self) -> list[Client]:
        """The users; a run that goes on from a checkpoint has the same draws again."""
        context, seed = self.context, self.context.seed
        if context.checkpoint is not None and context.method == "benders":
            seed = stored_seed(context.checkpoint, seed, resume=context.resume)
        return clients_of(self.problem, seed, self.costs, self.sets)

    # --- the search -----------------------------------------------------------------------------------

    def run(self) -> Outcome[LRGeoRelease]:
        """Ask the server; where it does not end in time, take the best by the users' own loss.

        Raises:
            StoppedError: nothing feasible in time, and users can do nothing alone.
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
                self.solved = self.ask()
            except OutOfTime:
                raise
            except StoppedError as stop:
                self.late = stop
            if isinstance(self.late, NotBegunError) or (self.late is not None and limited):
                self.offer_optimal()
        if self.solved is not None and not self.solved.stopped:  # it is what was asked for, whatever else there is
            found = incumbent.run_step("certify", partial(self.certify, self.solved.answers))
            if found is not None:
                return self.outcome(found[1], self.solved)
        return self.best(stopped=soft.left == 0.0 or not isinstance(self.late, NotBegunError))

    def ask(self) -> ProgramSolution:
        """Have the server solve the users' program.

        Raises:
            NotBegunError: its coefficients alone do not fit into memory, or the program.
            StoppedError: nothing in time.
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
        """Offer what users can do by themselves, in closed form: the exponential mechanism.

        Its rows depend on records and outputs alone, so rows of the same place by different users are equal, and none
        uploads anything for it. Nothing is offered where some record reaches no output.
        """
        data = self.problem.data
        with suppress(InputError):
            z = exponential(reach_of(data, self.records), float(data.epsilon))
            self.incumbent.offer("exponential", candidate=z, value=self.promise(z))

    def offer_optimal(self) -> None:
        """Offer one mechanism of all records by optimal-lp's methods; what fails has offered nothing."""
        from privopt_metric_dp.solvers import Instance, solve

        data, context = self.problem.data, self.context
        if data.cost.size > LARGEST_MATRIX:
            return
        check()
        try:
            with context.timed("solve"):
                found = solve(Instance.of(data), gap=context.gap, memory=context.free_memory, progress=context.report)
        except OutOfTime:
            raise
        except (SolverError, StoppedError, MemoryError) as fault:
            self.incumbent.note(f"one mechanism of all ({fault or 'out of memory'})")
            return
        z = found.z[self.records]
        self.incumbent.offer(found.method, candidate=z, value=self.promise(z))

    def promise(self, candidate: Sequence[Answer] | Floats) -> float:
        """Return the loss of the users' own rows before they are certified."""
        users = self.problem.users
        if isinstance(candidate, np.ndarray):
            rows = candidate[np.searchsorted(self.records, users)]
        else:
            pairs = zip(self.clients, candidate, strict=True)
            rows = np.concatenate([answer.z[client.order == client.around.own] for client, answer in pairs])
        return float(np.einsum("ik,ik->", rows, self.problem.data.cost[users])) / len(users)

    # --- what users make of it ------------------------------------------------------------------------

    def certify(self, candidate: Sequence[Answer] | Floats) -> tuple[float, LRGeoRelease]:
        """Make a release of answers to the users, or of one matrix (U, K) of all their records.

        Raises:
            CertificationError: there is none.
        """
        self.context.report("repair")
        data = self.problem.data
        release = self.alike(candidate) if isinstance(candidate, np.ndarray) else self.accepted(candidate)
        # Under a limit this measures how long closing takes, so it includes what `solve` and `verify` do again.
        if self.context.remaining is not None:
            radius = self.problem.declared.lr_geo.radius
            OwnMatrices.within_radius(data, radius).measure(release)
            across_users(data, release)
        return MeanOfUsers(cost=data.cost[self.problem.users]).evaluate(release), release

    def prove(self, proof: None, value: float) -> tuple[float, None]:
        """Prove nothing: bounds of the users' program bound no loss of their own rows."""
        return -np.inf, None

    def alike(self, z: Floats) -> LRGeoRelease:
        """Repair and certify one matrix (U, K), and let each user take the rows of its LR set."""
        data, records, users = self.problem.data, self.records, self.problem.users
        pairs, lengths = data.standing if len(records) == len(data.records) else pairs_inside(data, records)
        loss = data.weighted[records]
        with self.context.timed("repair"):
            weights = repair(z, pairs, lengths, data.epsilon, loss=loss, gap=self.context.gap).weights
        sets = {data.records.ids[around.user]: around for around in self.sets}
        matrices = MatricesOnDemand(data=data, records=records, weights=weights, sets=sets)
        return LRGeoRelease.of_users(self.problem, weights[np.searchsorted(records, users)], matrices)

    def accepted(self, answers: Sequence[Answer]) -> LRGeoRelease:
        """Have each user repair and certify its matrix and take its row."""
        data, matrices, rows = self.problem.data, {}, []
        for client, answer in zip(self.clients, answers, strict=True):
            around = client.around
            with self.context.timed("repair"):
                weights = client.accept(answer, data.epsilon).weights
            matrices[data.records.ids[around.user]] = around.matrix(weights, data)
            rows.append(weights[around.own])
        return LRGeoRelease.of_users(self.problem, np.array(rows), matrices)

    def best(self, *, stopped: bool) -> Outcome[LRGeoRelease]:
        """Return the least loss among the server's point and what users can do without it.

        Raises:
            StoppedError: there is nothing.
        """
        incumbent, method = self.incumbent, self.context.method
        incumbent.note(f"{method} ({self.late})" if self.late is not None else method)
        if self.solved is not None:
            incumbent.offer(method, candidate=self.solved.answers, value=self.promise(self.solved.answers))
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
                "reason": str(self.late or "the limit came before the users' program was better"),
                **({} if self.solved is None else {"stopped_at": self.solved.value}),
            },
            stopped=stopped,
        )

    def outcome(self, release: LRGeoRelease, solved: ProgramSolution) -> Outcome[LRGeoRelease]:
        """Return the server's answer as the users certified it."""
        lp = {"value": solved.value, "lower_bound": solved.lower_bound}
        told = {} if self.costs is None else self.costs.details()
        details = {"lp": lp, **told, **solved.details}
        return Outcome(release=release, solver=solved.solver, details=details, stopped=solved.stopped)
