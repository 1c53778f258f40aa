"""BD-mDP as a mechanism: method benders, those of optimal-lp, and every registered decomposer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from attrs import evolve

from privopt.errors import SolverError, StoppedError
from privopt.interfaces import Result, SolveContext
from privopt.report import Section
from privopt_bd_mdp.problem import BDmDPProblem
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.mechanisms.answer import Matrix
from privopt_metric_dp.mechanisms.base import MetricMechanism
from privopt_metric_dp.mechanisms.fallback import Reserve
from privopt_metric_dp.mechanisms.optimal_lp import solve_full, solve_structured
from privopt_metric_dp.problem.data import MetricInstance

__all__ = ["BDmDP"]

RESERVE: Final = 0.06
"""Share of the time left that is kept for repair and certificate."""


class BDmDP(MetricMechanism[BDmDPProblem]):
    """The optimal mechanism by partition and decomposition (Qiu, IJCAI 2024)."""

    problem_class = BDmDPProblem
    kit = "privopt_bd_mdp.kit:PROFILE"

    def matrix(self, problem: MetricInstance[BDmDPProblem], context: SolveContext) -> Matrix:
        """The matrix by decomposition, or by a method of optimal-lp."""
        from privopt_metric_dp.solvers.auto import METHODS

        if context.method == "full":
            return solve_full(problem.data, self.privacy(problem, "full"), self.utility(problem, "full"), context)
        if context.method in METHODS:
            return solve_structured(problem.data, context)
        return _by_decomposition(problem, context)

    def report(
        self, problem: MetricInstance[BDmDPProblem], release: MatrixRelease, result: Result
    ) -> Sequence[Section]:
        """The report of metric mechanisms, and a section on the decomposition."""
        from privopt_bd_mdp.report import sections

        return [*super().report(problem, release, result), *sections(result)]


def _by_decomposition(problem: MetricInstance[BDmDPProblem], context: SolveContext) -> Matrix:
    from privopt_bd_mdp.room import NoRoomError
    from privopt_bd_mdp.solver import decompose
    from privopt_metric_dp.solvers.instance import Instance

    data = problem.data
    reserve = Reserve(data, context)
    reserve.make()
    left = context.remaining
    within = evolve(
        context,
        gap=0.95 * context.gap,  # the rest is left to the repair and to the rigorous bound
        deadline=None if left is None else time.monotonic() + (1.0 - RESERVE) * left,
    )
    try:
        found = decompose(Instance.of(data, deadline=within.deadline), problem.declared.bd_mdp, within)
    except NoRoomError as error:
        return evolve(Matrix.of_reserve(reserve, str(error), error), stopped=False)
    except StoppedError as error:
        return Matrix.of_reserve(reserve, f"{context.method} ({error})", error)
    except SolverError as error:
        raise SolverError(f"{error}; --method auto solves the same problem whole") from error
    details = {"partition": problem.declared.bd_mdp.partition, "parts": found.details["parts"]}
    matrix = Matrix.found(found, data, name=f"{context.method}, {context.solver}", details=details)
    left_out = [
        each for part in found.details["parts"] for each in (*part.get("left_out", ()), part.get("ended")) if each
    ]
    if left_out:
        matrix = evolve(matrix, solver={**matrix.solver, "path": ", ".join([context.method, *left_out])})
    return evolve(matrix, reserve=reserve)
