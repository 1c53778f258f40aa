"""CLR-Geo from the users' side: what they upload, what they make of the answer, the best at hand where none comes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from privopt.errors import StoppedError
from privopt.execution.memory import GB
from privopt.interfaces import Outcome, SolveContext
from privopt_lr_geo import server
from privopt_lr_geo.alone import exponential_answers, program_value
from privopt_lr_geo.client import Client, indicator
from privopt_lr_geo.draws import draw, draw_or_resume
from privopt_lr_geo.estimate import Costs, Exchange
from privopt_lr_geo.local import LRSet, Ways, lr_set, surroundings
from privopt_lr_geo.loss import MeanOfUsers
from privopt_lr_geo.measures import MOST_COMPARISONS, comparisons, proposition_bound
from privopt_lr_geo.package import Answer, Package, Terms
from privopt_lr_geo.problem import LRGeoInstance
from privopt_lr_geo.release import LRGeoRelease
from privopt_lr_geo.server import NoRoomError, NotBegunError, NoTimeError
from privopt_lr_geo.together import Search, Together, taken
from privopt_metric_dp.matrix.release import MatrixRelease

if TYPE_CHECKING:
    from privopt.execution import Executor
else:
    Executor = Any

__all__ = ["clients_of", "costs_of", "solve_central"]

SLACK: Final = 1e-7
"""The program is solved at epsilon (1 - SLACK), so that the repair leaves entries tied across users as they are."""
COEFFICIENTS: Final = 64.0
"""Bytes of a row's entry before there is a program: distances, costs and forms with users and server."""
A_PLACE: Final = 0.004
"""Seconds that a row takes in the users' program, at the least (docs/benchmarks/lr-geo.md: .004 to .016)."""
CLOSING: Final = 1.5e-7
"""Seconds that an entry of all users' matrices takes to certify, write and read back."""
COMPARED: Final = 1.6e-8
"""Seconds that an inequality between rows of users takes, looked at before it is written and after."""


def costs_of(problem: LRGeoInstance, executor: Executor | None = None) -> Costs:
    """Where users have costs from: the cost reference table, or the problem itself."""
    cell_km = problem.declared.lr_geo.reference_cell_km
    return Costs(problem) if cell_km is None else Exchange(problem, cell_km, executor)


def lr_sets(problem: LRGeoInstance) -> list[LRSet]:
    """Each user's LR set, in the order of the records."""
    ways = Ways(problem.data)
    return [lr_set(problem, ways, user) for user in problem.users.tolist()]


def clients_of(
    problem: LRGeoInstance,
    seed: int | None,
    costs: Costs | None = None,
    context: SolveContext | None = None,
    sets: Iterable[LRSet] | None = None,
) -> list[Client]:
    """Each user with its LR set, in the order of the records.

    Args:
        problem: what the users see.
        seed: of the order of rows and of circles; None takes them from the operating system's entropy.
        costs: where they have costs from; left out: as the problem says.
        context: of a run that may be gone on with: what users draw is kept in its checkpoint, and taken from there.
        sets: the users' LR sets, where they are known.

    Raises:
        StoppedError: the context's limit came first.
    """
    data, options = problem.data, problem.declared.lr_geo
    costs = costs or costs_of(problem)
    found = list(lr_sets(problem) if sets is None else sets)
    users, members = [around.user for around in found], [around.records for around in found]
    if context is None or context.checkpoint is None or context.method != "benders":
        drawn = draw(users, members, seed)
    else:
        drawn = draw_or_resume(users, members, seed, context.checkpoint, resume=context.resume)
    clients = []
    for each, own in zip(found, drawn, strict=True):
        if context is not None:
            context.check()
        around, records = surroundings(problem, each), each.records
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


@frozen(kw_only=True, eq=False)
class _Served:
    """What users have in the end: a certified release, and value and bound of the program behind it."""

    release: LRGeoRelease
    value: float
    lower_bound: float | None = None
    solver: Mapping[str, Any] = field(factory=dict)
    details: Mapping[str, Any] = field(factory=dict)
    stopped: bool = True


def solve_central(problem: LRGeoInstance, context: SolveContext) -> Outcome[LRGeoRelease]:
    """Methods ``benders`` and ``full``: the users' program, or the best at hand where a limit comes first.

    Raises:
        StoppedError: nothing feasible in time, and users can do nothing alone.
    """
    data = problem.data
    with context.timed("build"):
        data.required  # noqa: B018  (loaded here, so that building is timed as such)
        sets = lr_sets(problem)
    if context.end is not None and context.deadline is not None:
        context.deadline = min(context.deadline, context.end - _closing(problem, sets))
    found = _best(problem, sets, context)
    details = {"lp": {"value": found.value, "lower_bound": found.lower_bound}, **found.details}
    return Outcome(release=found.release, solver=found.solver, details=details, stopped=found.stopped)


def _closing(problem: LRGeoInstance, sets: Sequence[LRSet]) -> float:
    """Seconds that all takes that comes after the users' matrices are there."""
    rows = np.concatenate([around.records for around in sets])
    compared = comparisons(problem.data, rows)
    if compared > MOST_COMPARISONS:
        compared = comparisons(problem.data, problem.users)
    return CLOSING * len(rows) * len(problem.data.outputs) + COMPARED * compared


def _best(problem: LRGeoInstance, sets: Sequence[LRSet], context: SolveContext) -> _Served:
    """The server's answer; where it was stopped above what users can do alone, or not begun, that."""
    search = Search(problem=problem, context=context)
    with context.timed("solve"):
        search.look()
    served: _Served | None = None
    late: StoppedError | None = None
    clients: list[Client] = []
    try:
        _may_begin(problem, sets, context)
        clients = clients_of(problem, context.seed, costs := costs_of(problem, context.executor), context, sets)
        served = _program(problem, clients, costs, context, warm_only=search.best is not None)
        if not served.stopped:
            return served
    except StoppedError as error:
        late = error
    small = isinstance(late, NoRoomError)
    if small or (search.best is not None and context.remaining):
        with context.timed("solve"):
            search.look(patient=True)
    spare = _spare(problem, sets, clients, search.best, context)
    if spare is None:
        if served is None:
            raise late or StoppedError("stopped before anything feasible was found; nothing written")
        return served
    loss = MeanOfUsers(cost=problem.data.cost[problem.users]).evaluate
    if served is not None and loss(served.release) <= loss(spare.release):
        return served
    told = f" ({late})" if isinstance(late, NotBegunError) else ""
    reason = f"the users' program {late}" if told else "the limit came before the users' program was better"
    name = spare.solver["name"]
    return evolve(
        spare,
        solver={"name": name, "path": f"{context.method}{told}, {name}"},
        details={"reason": reason, **({} if served is None else {"stopped_at": served.value})},
        stopped=not small or context.remaining == 0.0,
    )


def _may_begin(problem: LRGeoInstance, sets: Sequence[LRSet], context: SolveContext) -> None:
    """Refuse a program that cannot end in time, or whose coefficients alone do not fit, before users state it.

    Raises:
        NoRoomError, NoTimeError: it is refused.
    """
    places = sum(len(around.records) for around in sets)
    needed = COEFFICIENTS * places * len(problem.data.outputs)
    if not context.fits(needed):
        raise NoRoomError(f"needs {needed / GB:.2g} GB of {context.room / GB:.2g} left")
    if context.remaining is not None and places * A_PLACE > context.remaining:
        least, left = places * A_PLACE, context.remaining
        raise NoTimeError(f"of {places:,} rows takes {least:.2g} s at the least, {left:.2g} s of the limit are left")


def _program(
    problem: LRGeoInstance, clients: Sequence[Client], costs: Costs, context: SolveContext, *, warm_only: bool
) -> _Served:
    """What the server answers, as users certify it.

    Raises:
        StoppedError: nothing in time, or no room for it.
    """
    data, options = problem.data, problem.declared.lr_geo
    terms = Terms(
        epsilon=float(data.epsilon * (1 - Fraction(SLACK))),
        within=data.within,
        obfuscation_radius=options.obfuscation_radius,
        exponent=options.exponent,
    )
    with context.timed("build"):
        sent = []
        for client in clients:
            context.check()
            sent.append(client.package().to_bytes())
    with context.timed("solve"):
        solved = server.solve([Package.from_bytes(raw) for raw in sent], terms, context, warm_only=warm_only)
    return _Served(
        release=_accept(problem, clients, [Answer.from_bytes(answer.to_bytes()) for answer in solved.answers], context),
        value=solved.value,
        lower_bound=solved.lower_bound,
        solver=solved.solver,
        details={
            "proposition_4_5": proposition_bound(
                [client.around for client in clients], [~client.free for client in clients]
            ),
            **costs.details(),
            **solved.details,
        },
        stopped=solved.stopped,
    )


def _spare(
    problem: LRGeoInstance,
    sets: Sequence[LRSet],
    clients: Sequence[Client],
    whole: Together | None,
    context: SolveContext,
) -> _Served | None:
    """What users can do without an answer: their rows of one mechanism of all, else each its own exponential one."""
    data = problem.data
    if whole is not None:
        release = taken(problem, sets, whole.release)
        value = sum(
            float((data.weighted[around.records] * matrix.probabilities).sum())
            for around, matrix in zip(sets, (release.matrices or {}).values(), strict=True)
        )
        return _Served(release=release, value=value, solver={"name": whole.name})
    clients = clients or clients_of(problem, context.seed, sets=sets)
    answers = exponential_answers(clients, float(data.epsilon))
    if answers is None:
        return None
    release = _accept(problem, clients, answers, context)
    return _Served(release=release, value=program_value(clients, answers), solver={"name": "exponential"})


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
