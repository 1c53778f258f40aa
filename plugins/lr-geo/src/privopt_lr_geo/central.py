"""CLR-Geo from the users' side: what they upload, what they make of the answer, the best at hand where none comes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from privopt.errors import StoppedError
from privopt.execution.clock import check
from privopt.execution.limits import ending_at
from privopt.execution.memory import GB
from privopt.interfaces import Outcome, SolveContext
from privopt_lr_geo import server
from privopt_lr_geo.client import Client, free_entries
from privopt_lr_geo.estimate import Costs, costs_of
from privopt_lr_geo.loss import MeanOfUsers
from privopt_lr_geo.lr_sets import LRSet, lr_sets, surroundings
from privopt_lr_geo.measures import MOST_COMPARISONS, comparisons, proposition_bound
from privopt_lr_geo.messages import Answer, Terms
from privopt_lr_geo.problem import LRGeoInstance
from privopt_lr_geo.release import LRGeoRelease
from privopt_lr_geo.server import NotBegunError
from privopt_lr_geo.shared_mechanism import Search, SharedMechanism, rows_of_users
from privopt_lr_geo.user_randomness import Draw, kept_seed, new_seed
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.solvers.exponential import exponential

if TYPE_CHECKING:
    from privopt.execution import Executor
else:
    Executor = Any

__all__ = ["clients_of", "exponential_answers", "program_value", "solve_central"]

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


def clients_of(
    problem: LRGeoInstance, seed: int | None, costs: Costs | None = None, sets: Iterable[LRSet] | None = None
) -> list[Client]:
    """Return each user with its LR set, in the order of the records.

    Args:
        problem: what the users see.
        seed: of the order of rows and of circles; None draws one.
        costs: where they have costs from; left out: as the problem says.
        sets: the users' LR sets, where they are known.

    Raises:
        OutOfTime: the innermost scope of time ended.
    """
    data, options = problem.data, problem.declared.lr_geo
    costs, seed = costs or costs_of(problem), new_seed() if seed is None else seed
    clients = []
    for each in lr_sets(problem) if sets is None else sets:
        check()
        around, records = surroundings(problem, each), each.records
        drawn = Draw.from_seed(seed, each.user, records)
        clients.append(
            Client(
                around=around,
                distances=data.metric.between(records[:, None], records[None, :]),
                costs=data.prior[records, None] * costs.of(records, drawn.centre).upper,
                free=free_entries(options, around.reach, data.cost[records]),
                order=drawn.order,
            )
        )
    return clients


def exponential_answers(clients: Sequence[Client], epsilon: float) -> list[Answer] | None:
    """Return what each user can do by itself, in closed form: the exponential mechanism over its LR set.

    Its rows depend on records and outputs alone, so rows of the same place by different users are equal. None where
    some record reaches no output.
    """
    if not all(np.isfinite(client.around.reach.min(axis=1)).all() for client in clients):
        return None
    return [Answer(z=exponential(client.around.reach, epsilon)[client.order]) for client in clients]


def program_value(clients: Sequence[Client], answers: Sequence[Answer]) -> float:
    """Return CLR-Geo's objective of some matrices: the users' prior-weighted costs, summed over their LR sets."""
    return float(
        sum((client.costs[client.order] * answer.z).sum() for client, answer in zip(clients, answers, strict=True))
    )


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
    seed = context.seed
    if context.checkpoint is not None and context.method == "benders":
        seed = kept_seed(context.checkpoint, seed, resume=context.resume)
    try:
        _may_begin(problem, sets, context)
        with ending_at(context.deadline):
            clients = clients_of(problem, seed, costs := costs_of(problem, context.executor), sets)
        served = _program(problem, clients, costs, context)
        if not served.stopped:
            return served
    except StoppedError as error:
        late = error
    small = isinstance(late, NotBegunError) and not isinstance(late, _NoTimeError)
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


class _NoTimeError(NotBegunError):
    """It would take more time than there is."""


def _may_begin(problem: LRGeoInstance, sets: Sequence[LRSet], context: SolveContext) -> None:
    """Refuse a program that cannot end in time, or whose coefficients alone do not fit, before users state it.

    Raises:
        NotBegunError: it is refused.
    """
    places = sum(len(around.records) for around in sets)
    needed = COEFFICIENTS * places * len(problem.data.outputs)
    if not context.fits(needed):
        raise NotBegunError(f"needs {needed / GB:.2g} GB of {context.room / GB:.2g} left")
    if context.remaining is not None and places * A_PLACE > context.remaining:
        least, left = places * A_PLACE, context.remaining
        raise _NoTimeError(f"of {places:,} rows takes {least:.2g} s at the least, {left:.2g} s of the limit are left")


def _program(problem: LRGeoInstance, clients: Sequence[Client], costs: Costs, context: SolveContext) -> _Served:
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
        packages = [client.package() for client in clients]
    with context.timed("solve"):
        solved = server.solve(packages, terms, evolve(context, seed=None))
    return _Served(
        release=_accept(problem, clients, solved.answers, context),
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
    whole: SharedMechanism | None,
    context: SolveContext,
) -> _Served | None:
    """What users can do without an answer: their rows of one mechanism of all, else each its own exponential one."""
    data = problem.data
    if whole is not None:
        release = rows_of_users(problem, sets, whole.release)
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
            repaired = client.accept(answer, data.epsilon, executor=context.executor)
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
