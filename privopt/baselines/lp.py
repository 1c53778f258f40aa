"""The optimal mechanism as its linear program, said once in the modelling language."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privopt.dsl import Eq, Index, IndexSet, Model, total
from privopt.exact.bound import Multipliers
from privopt.interfaces import PrivacyConstraint, SolveContext, UtilityLoss
from privopt.mechanisms import Matrix
from privopt.privacy.metric_dp import both_ways

if TYPE_CHECKING:
    from privopt.dsl import Solution
    from privopt.problem.data import MetricData

__all__ = ["multipliers_of", "optimal_model", "solve_full"]


def optimal_model(data: MetricData, privacy: PrivacyConstraint, utility: UtilityLoss) -> Model:
    """Minimise the expected loss over the matrices that keep the required pairs (Bordenabe et al. 2014).

    Pairs that others imply exactly are left out of the model (mathematics: the shortest paths over the
    others are no longer); the release is certified over all of them.
    """
    m = Model("optimal")
    X, Y = IndexSet("X", data.records.ids), IndexSet("Y", data.outputs.ids)
    i, j, k = Index("i", X), Index("j", X), Index("k", Y)
    z = m.variable("z", X, Y, lower=0)
    d = m.param("d", data.metric.between)
    c = m.param("c", data.weighted)
    utility.emit(m, z=z, i=i, k=k, c=c)
    m.require("mass", Eq(total(z[i, k], over=k), 1), forall=i)
    privacy.emit(m, z=z, i=i, j=j, k=k, d=d, pairs=both_ways(data.pairs[data.needed]))
    return m


def multipliers_of(solution: Solution, data: MetricData, family: str = "geo-ind") -> Multipliers | None:
    """The duals of a solved model's privacy rows, as the exact bound takes them."""
    if solution.duals is None:
        return None
    forward = np.zeros((len(data.pairs), len(data.outputs)))
    backward = np.zeros_like(forward)
    needed = np.flatnonzero(data.needed)
    if needed.size:
        duals: NDArray[np.float64] = -np.asarray(solution.dual(family)).reshape(2, needed.size, len(data.outputs))
        forward[needed], backward[needed] = duals[0], duals[1]
    return Multipliers(forward=forward, backward=backward)


def solve_full(problem: Any, privacy: PrivacyConstraint, utility: UtilityLoss, context: SolveContext) -> Matrix:
    """The whole LP by CBC or HiGHS.

    Raises:
        StoppedError: the time limit came before anything feasible.
        SolverError: the solver died or lied.
    """
    data = problem.data
    model = optimal_model(data, privacy, utility)
    context.check()
    context.report(f"model of {len(data.records):,} x {len(data.outputs):,}, {context.solver}")
    solution = model.solve(context.solver, time_limit=context.remaining, gap=context.gap)
    return Matrix(
        z=solution.value("z"),
        multipliers=multipliers_of(solution, data),
        solver={"name": context.solver, "version": solution.solver, "iterations": solution.iterations},
        details={"rows": solution.form.shape[0], "columns": solution.form.shape[1]},
        stopped=solution.status != "optimal",
    )
