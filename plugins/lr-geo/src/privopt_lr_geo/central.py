"""CLR-Geo from the users' side: what they upload, what they make of the answer, the best at hand where none comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.errors import StoppedError
from privopt.interfaces import Outcome, SolveContext
from privopt.metric.matrix import MatrixRelease
from privopt_lr_geo.alone import exponential_spare, own_loss, population_spare, program_value
from privopt_lr_geo.client import Client, indicator
from privopt_lr_geo.draws import draw, draw_or_resume
from privopt_lr_geo.estimate import Costs, Exchange
from privopt_lr_geo.local import Ways, surroundings
from privopt_lr_geo.loss import MeanOfUsers
from privopt_lr_geo.measures import proposition_bound
from privopt_lr_geo.package import Answer, Package, Terms
from privopt_lr_geo.problem import LRGeoInstance
from privopt_lr_geo.release import LRGeoRelease

if TYPE_CHECKING:
    from privopt.execution import Executor

__all__ = ["clients_of", "costs_of", "solve_central"]

SLACK: Final = 1e-7
"""The program is solved at epsilon (1 - SLACK), so that the repair leaves entries tied across users as they are."""


def costs_of(problem: LRGeoInstance, executor: Executor | None = None) -> Costs:
    """Where users have costs from: the cost reference table, or the problem itself."""
    cell_km = problem.declared.lr_geo.reference_cell_km
    return Costs(problem) if cell_km is None else Exchange(problem, cell_km, executor)


def clients_of(
    problem: LRGeoInstance, seed: int | None, costs: Costs | None = None, context: SolveContext | None = None
) -> list[Client]:
    """Each user with its LR set, in the order of the records.

    Args:
        problem: what the users see.
        seed: of the order of rows and of circles; None takes them from the operating system's entropy.
        costs: where they have costs from; left out: as the problem says.
        context: of a run that may be gone on with: what users draw is kept in its checkpoint, and taken from there.
    """
    data, options = problem.data, problem.declared.lr_geo
    ways, users = Ways(data), problem.users.tolist()
    costs = costs or costs_of(problem)
    places = [surroundings(problem, ways, user) for user in users]
    sets = [around.records for around in places]
    if context is None or context.checkpoint is None:
        drawn = draw(users, sets, seed)
    else:
        drawn = draw_or_resume(users, sets, seed, context.checkpoint, resume=context.resume)
    clients = []
    for around, own in zip(places, drawn, strict=True):
        records = around.records
        clients.append(
            Client(
                around=around,
                distances=data.metric.between(records[:, None], records[None, :]),
                costs=data.prior[records, None] * costs.of(records, own.centre).upper,
                free=indicator(options, around.reach, data.cost[records]),
                order=own.order,
            )
        )
    return clients


def solve_central(problem: LRGeoInstance, context: SolveContext) -> Outcome[LRGeoRelease]:
    """Methods ``benders`` and ``full``: the users' program, or the best at hand where a limit comes first."""
    data, options = problem.data, problem.declared.lr_geo
    with context.timed("build"):
        data.required  # noqa: B018  (loaded here, so that building is timed as such)
        costs = costs_of(problem, context.executor)
        clients = clients_of(problem, context.seed, costs, context if context.method == "benders" else None)
        sent = [client.package().to_bytes() for client in clients]
    terms = Terms(
        epsilon=float(data.epsilon * (1 - Fraction(SLACK))),
        within=data.within,
        obfuscation_radius=options.obfuscation_radius,
        exponent=options.exponent,
    )
    found = _served(problem, clients, [Package.from_bytes(raw) for raw in sent], terms, context)
    details = {
        "lp": {"value": found.value, "lower_bound": found.lower_bound},
        "proposition_4_5": proposition_bound(
            [client.around for client in clients], [~client.free for client in clients]
        ),
        **costs.details(),
        **found.details,
    }
    return Outcome(release=found.release, solver=found.solver, details=details, stopped=found.stopped)


@frozen(kw_only=True, eq=False)
class _Served:
    """What users have in the end: a certified release, and value and bound of the program behind it."""

    release: LRGeoRelease
    value: float
    lower_bound: float | None
    solver: Mapping[str, Any]
    details: Mapping[str, Any]
    stopped: bool


def _served(
    problem: LRGeoInstance,
    clients: Sequence[Client],
    packages: Sequence[Package],
    terms: Terms,
    context: SolveContext,
) -> _Served:
    """The server's answer; where a limit stopped it above what users can do alone, that.

    Raises:
        StoppedError: nothing feasible in time, and users can do nothing alone.
    """
    from privopt_lr_geo import server

    spares = [population_spare(clients, problem.data, context)]
    served: _Served | None = None
    late: StoppedError | None = None
    try:
        with context.timed("solve"):
            solved = server.solve(packages, terms, context)
    except server.NoRoomError as error:
        late = error
        spares.append(population_spare(clients, problem.data, context, patient=True))
    except StoppedError as error:
        late = error
    else:
        answers = [Answer.from_bytes(answer.to_bytes()) for answer in solved.answers]
        served = _Served(
            release=_accept(problem, clients, answers, context),
            value=solved.value,
            lower_bound=solved.lower_bound,
            solver=solved.solver,
            details=solved.details,
            stopped=solved.stopped,
        )
        if not solved.stopped:
            return served
    spares.append(exponential_spare(clients, float(problem.data.epsilon)))
    cost = problem.data.cost[problem.users]
    best = min((one for one in spares if one), key=lambda one: own_loss(clients, one.answers, cost), default=None)
    if best is None:
        if served is None:
            raise late or StoppedError("stopped before anything feasible was found; nothing written")
        return served
    release = _accept(problem, clients, best.answers, context)
    loss = MeanOfUsers(cost=cost).evaluate
    if served is not None and loss(served.release) <= loss(release):
        return served
    small = isinstance(late, server.NoRoomError)
    reason = f"the users' program {late}" if small else "the limit came before the users' program was better"
    stopped_at = {} if served is None else {"stopped_at": served.value}
    return _Served(
        release=release,
        value=program_value(clients, best.answers),
        lower_bound=None,
        solver={"name": best.name, "path": f"{context.method}{f' ({late})' if small else ''}, {best.name}"},
        details={"reason": reason, **stopped_at},
        stopped=not small or context.remaining == 0.0,
    )


def _accept(
    problem: LRGeoInstance, clients: Sequence[Client], answers: Sequence[Answer], context: SolveContext
) -> LRGeoRelease:
    """Each user repairs and certifies its matrix and takes its row."""
    context.report("repair")
    data = problem.data
    ids, outputs = np.asarray(data.records.ids, dtype=np.str_), np.asarray(data.outputs.ids, dtype=np.str_)
    matrices: dict[str, MatrixRelease] = {}
    rows: list[NDArray[np.uint64]] = []
    for client, answer in zip(clients, answers, strict=True):
        around = client.around
        with context.timed("repair"):
            repaired = client.accept(answer, data.epsilon, gap=1e-6, executor=context.executor)
        matrices[str(ids[around.user])] = MatrixRelease(
            weights=repaired.weights,
            records=ids[around.records],
            outputs=outputs,
            pairs=around.pairs,
            distances=around.lengths,
        )
        rows.append(repaired.weights[around.own])
    return LRGeoRelease(
        weights=np.array(rows),
        records=ids[problem.users],
        outputs=outputs,
        pairs=np.zeros((0, 2), dtype=np.int64),
        distances=np.zeros(0),
        matrices=matrices,
    )
