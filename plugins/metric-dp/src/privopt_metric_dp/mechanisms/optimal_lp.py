"""The optimal mechanism as its linear program, in the modelling language."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import evolve

from privopt import dsl
from privopt.errors import SolverDiedError, SolverError
from privopt.execution.clock import check
from privopt.interfaces import SolveContext, UtilityLoss
from privopt_metric_dp.matrix.privacy import MatrixConstraint, MetricDP, add_reversed_pairs
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.mechanisms.answer import Matrix
from privopt_metric_dp.mechanisms.certifier import MatrixOffers, instance_view
from privopt_metric_dp.problem.data import MetricData

__all__ = ["by_any_solver", "full_bytes", "optimal_model", "search_structured", "whole_program"]

BYTES_A_NUMBER: Final = 180.0
"""Of a coefficient of the whole LP, here and in its solver's process together (tests/run/test_memory.py)."""


def optimal_model(data: MetricData, privacy: MatrixConstraint, utility: UtilityLoss[MatrixRelease]) -> dsl.Model:
    """Minimise the expected loss over the matrices that keep the required pairs (Bordenabe et al. 2014).

    If the notion is kept along paths, the model omits pairs that others imply exactly: the shortest paths over the
    others are at most as long. The release is certified over all pairs.
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
    privacy.emit(m, z=z, i=i, j=j, k=k, d=d, pairs=add_reversed_pairs(pairs))
    return m


def full_bytes(data: MetricData) -> float:
    """Estimate the bytes that the whole LP takes, its solver's copy in another process included."""
    pairs, (records, outputs) = len(data.standing[0]), data.shape
    return BYTES_A_NUMBER * outputs * (4.0 * pairs + 3.0 * records)


def whole_program(
    data: MetricData, privacy: MatrixConstraint, utility: UtilityLoss[MatrixRelease], context: SolveContext
) -> Matrix:
    """Return the whole LP by CBC or HiGHS.

    Raises:
        OutOfTime: the time was over before anything feasible.
        SolverError: the solver died or lied.
    """

    def solve(how: SolveContext) -> Matrix:
        model = optimal_model(data, privacy, utility)
        check("the model was made")
        how.report(f"model of {len(data.records):,} x {len(data.outputs):,}, {how.solver}")
        return Matrix.of(model.solve(how.solver, gap=how.gap), data, how)

    try:
        return by_any_solver(solve, context)
    except SolverError as error:
        if not isinstance(privacy, MetricDP):  # the structured methods keep metric DP alone
            raise
        raise SolverError(f"{error}; --method auto solves the same problem without a solver's help") from error


def by_any_solver(solve: Callable[[SolveContext], Matrix], context: SolveContext) -> Matrix:
    """Return the requested solver's answer; if that violates rows, the next registered one's.

    Raises:
        SolverDiedError: it was killed from outside; the next one would only have to be killed too.
        SolverError: the next one failed too, or no other is registered.
    """
    from privopt.backends.choose import names

    try:
        return solve(context)
    except SolverDiedError:
        raise
    except SolverError as error:
        next_solver = next((name for name in names() if name != context.solver), None)
        if next_solver is None:
            raise
        try:
            answer = solve(evolve(context, solver=next_solver))
        except SolverError as second_error:
            raise SolverError(f"{error}; {second_error}") from error
        return evolve(answer, solver={**answer.solver, "path": f"{context.method} ({error}), {next_solver}"})


def search_structured(data: MetricData, offers: MatrixOffers, context: SolveContext, *, method: str = "auto") -> None:
    """Offer what one of the structured solvers finds, or the ladder of those that fit the problem (``auto``).

    Raises:
        OutOfTime: the time was over.
        SolverError: the method asked for does not apply; what to try instead is named.
    """
    from privopt_metric_dp.solvers.auto import search
    from privopt_metric_dp.solvers.instance import Instance

    search(Instance.of(data), instance_view(data, offers), lambda: context.free_memory, method)
