"""The optimal mechanism as its linear program, said once in the modelling language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privopt.interfaces import SolveContext, UtilityLoss
from privopt.metric.mechanism import Matrix, multipliers_of
from privopt.metric.privacy import MatrixConstraint, both_ways

if TYPE_CHECKING:
    from privopt.dsl import Model
    from privopt.metric.data import MetricData
    from privopt.metric.matrix import MatrixRelease
    from privopt.metric.optimal.instance import Solution

__all__ = [
    "at_least_exponential",
    "multipliers_of",
    "optimal_model",
    "solve_full",
    "solve_structured",
]


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
    pairs = data.pairs[data.needed] if privacy.along_paths else data.pairs
    privacy.emit(m, z=z, i=i, j=j, k=k, d=d, pairs=both_ways(pairs))
    return m


def solve_full(
    data: MetricData, privacy: MatrixConstraint, utility: UtilityLoss[MatrixRelease], context: SolveContext
) -> Matrix:
    """The whole LP by CBC or HiGHS.

    Raises:
        StoppedError: the time limit came before anything feasible.
        SolverError: the solver died or lied.
    """
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
    from privopt.metric.optimal.auto import solve
    from privopt.metric.optimal.instance import Instance

    found = solve(
        Instance.of(data),
        method=context.method,
        gap=context.gap / 2,  # the other half is left to the repair and to the rigorous bound
        deadline=context.deadline,
        progress=context.report,
    )
    if found.status != "optimal":
        found = at_least_exponential(found, data)
    return Matrix.found(found, data)


def at_least_exponential(found: Solution, data: MetricData) -> Solution:
    """The same with the exponential mechanism's matrix, where that loses less; bound and multipliers stay."""
    from attrs import evolve

    from privopt.metric.baselines.exponential import exponential

    if not data.crossed:
        return found
    z = exponential(data.to_outputs, float(data.epsilon))
    loss = float((data.weighted * z).sum())
    if loss >= found.objective:
        return found
    path = ", ".join(part for part in (found.details.get("path", found.method), "exponential") if part)
    return evolve(found, z=z, objective=loss, method="exponential", details={**found.details, "path": path})
