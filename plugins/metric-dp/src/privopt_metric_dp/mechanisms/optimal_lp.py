"""The optimal mechanism as its linear program, said once in the modelling language."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve

from privopt.errors import SolverDiedError, SolverError, StoppedError
from privopt.execution.limits import ending_at
from privopt.execution.memory import GB
from privopt.interfaces import SolveContext, UtilityLoss
from privopt_metric_dp.matrix.privacy import MatrixConstraint, MetricDP, both_ways
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.mechanisms.answer import Matrix
from privopt_metric_dp.mechanisms.fallback import Reserve
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.proof import multipliers_of

if TYPE_CHECKING:
    from privopt.dsl import Model
else:
    Model = Any

__all__ = [
    "by_any_solver",
    "full_bytes",
    "multipliers_of",
    "optimal_model",
    "solve_full",
    "solve_structured",
]


BYTES_A_NUMBER: Final = 180.0
"""Of a coefficient of the whole LP, here and in its solver's process together (tests/test_memory.py)."""


def optimal_model(data: MetricData, privacy: MatrixConstraint, utility: UtilityLoss[MatrixRelease]) -> Model:
    """Minimise the expected loss over the matrices that keep the required pairs (Bordenabe et al. 2014).

    Where the notion is kept along paths, pairs that others imply exactly are left out of the model (the shortest
    paths over the others are no longer); the release is certified over all of them.
    """
    from privopt.dsl import Eq, Index, IndexSet, Model, total

    m = Model("optimal")
    X, Y = IndexSet("X", data.records.ids), IndexSet("Y", data.outputs.ids)
    i, j, k = Index("i", X), Index("j", X), Index("k", Y)
    z = m.variable("z", X, Y, lower=0)
    d = m.param("d", data.metric.between)
    c = m.param("c", data.weighted)
    utility.emit(m, z=z, i=i, k=k, c=c)
    m.require("mass", Eq(total(z[i, k], over=k), 1), forall=i)
    pairs = data.needed[0] if privacy.along_paths else data.pairs
    privacy.emit(m, z=z, i=i, j=j, k=k, d=d, pairs=both_ways(pairs))
    return m


def full_bytes(data: MetricData) -> float:
    """About how many bytes the whole LP takes, its solver's copy in another process included."""
    pairs, (records, outputs) = len(data.standing[0]), data.shape
    return BYTES_A_NUMBER * outputs * (4.0 * pairs + 3.0 * records)


def solve_full(
    data: MetricData, privacy: MatrixConstraint, utility: UtilityLoss[MatrixRelease], context: SolveContext
) -> Matrix:
    """The whole LP by CBC or HiGHS; a structured method where it does not fit into memory.

    Raises:
        StoppedError: the time limit came before anything feasible.
        SolverError: the solver died or lied.
    """

    def solve(how: SolveContext) -> Matrix:
        return _solve_model(data, privacy, utility, how)

    if not isinstance(privacy, MetricDP):  # the reserve and the structured methods keep metric DP alone
        return by_any_solver(solve, context)
    if not context.fits(full_bytes(data)):
        found = solve_structured(data, evolve(context, method="auto"))
        left_out = f"full ({full_bytes(data) / GB:.2g} GB, too much)"
        return evolve(found, solver={**found.solver, "path": f"{left_out}, {found.solver.get('path', '')}"})
    reserve = Reserve(data, context)
    reserve.make()
    try:
        found = by_any_solver(solve, context)
    except StoppedError as error:
        return Matrix.of_reserve(reserve, f"full ({error})", error)
    except KeyboardInterrupt:
        return Matrix.of_reserve(reserve, "full (interrupted)", StoppedError("interrupted before anything was found"))
    except SolverError as error:
        raise SolverError(f"{error}; --method auto solves the same problem without a solver's help") from error
    return evolve(found, reserve=reserve)


def by_any_solver(solve: Callable[[SolveContext], Matrix], context: SolveContext) -> Matrix:
    """What the solver asked for gives; where its answer misses rows, what the next registered one does.

    Raises:
        SolverDiedError: it was killed, so that whoever did would have to kill the next one too.
        SolverError: the next one failed too, or there is none.
    """
    from privopt.backends.choose import names

    try:
        return solve(context)
    except SolverDiedError:
        raise
    except SolverError as error:
        other = next((name for name in names() if name != context.solver), None)
        if other is None:
            raise
        try:
            found = solve(evolve(context, solver=other))
        except SolverError as again:
            raise SolverError(f"{error}; {again}") from error
        return evolve(found, solver={**found.solver, "path": f"{context.method} ({error}), {other}"})


def _solve_model(
    data: MetricData, privacy: MatrixConstraint, utility: UtilityLoss[MatrixRelease], context: SolveContext
) -> Matrix:
    context.check()
    with ending_at(context.deadline):
        model = optimal_model(data, privacy, utility)
    context.check()
    context.report(f"model of {len(data.records):,} x {len(data.outputs):,}, {context.solver}")
    solution = model.solve(context.solver, time_limit=context.remaining, gap=context.gap)
    return Matrix.of(solution, data, context)


def solve_structured(data: MetricData, context: SolveContext) -> Matrix:
    """One of the structured solvers, or the fastest for the problem at hand (``auto``).

    Raises:
        SolverError: the method asked for does not apply, or failed.
    """
    from privopt_metric_dp.solvers.auto import solve
    from privopt_metric_dp.solvers.instance import Instance

    reserve = Reserve(data, context)
    try:
        if context.deadline is not None:
            reserve.keep()
            context.check()  # no time but to write what is at hand
        context.report("star")
        found = solve(
            Instance.of(data, deadline=context.deadline),
            method=context.method,
            gap=0.95 * context.gap,  # the rest is left to the repair and to the rigorous bound
            deadline=context.deadline,
            memory=context.room,
            before=reserve.make,
            progress=context.report,
        )
    except (StoppedError, SolverError) as error:
        if context.method == "star" and isinstance(error, SolverError):
            raise  # asked for by name, and it is none here: the message says what to take instead
        return Matrix.of_reserve(reserve, f"{context.method} ({error})", error)
    except KeyboardInterrupt:
        nothing = StoppedError("interrupted before anything was found")
        return Matrix.of_reserve(reserve, f"{context.method} (interrupted)", nothing)
    if found.status != "optimal" and not (reserve.release is not None and found.objective < reserve.loss):
        reserve.make()  # a better one than is at hand matters only where what was found is no better than that
    return evolve(Matrix.found(found, data), reserve=reserve)
