"""The result of a method before repair: a nearly private matrix with multipliers and solver details."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from privopt import dsl
from privopt.arrays import Floats, Ints
from privopt.interfaces import SolveContext
from privopt_metric_dp.matrix.privacy import PRIVACY_ROWS
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.proof import multipliers_of
from privopt_metric_dp.proof.lagrangian_bound import Multipliers

__all__ = ["Matrix"]


@frozen(kw_only=True, eq=False)
class Matrix:
    """A candidate matrix with dual multipliers that prove a bound, as returned by :meth:`MetricMechanism.matrix`.

    Attributes:
        z: Array of shape (N, K) with probabilities that satisfy the guarantee up to the solver's tolerance.
        multipliers: The dual multipliers of the privacy constraints, from which a rigorous bound is computed. None if
            there is no bound.
        over: An array of shape (S, 2) with the pairs that have multipliers, and an array of shape (S,) with their
            distances. None means all required pairs.
        bound: An estimate of the lower bound proved by the multipliers, or None if it is unknown.
        solver: The solver's name, version and number of iterations, for result.json.
        details: Additional values for result.json.
        stopped: Whether the solver was stopped by a limit before it finished.
        release: Integer weights that are released unchanged if they satisfy the privacy notion. If they do not, or if
            this is None, ``z`` is repaired and released.
    """

    z: Floats
    multipliers: Multipliers | None = None
    over: tuple[Ints, Floats] | None = None
    bound: float | None = None
    solver: Mapping[str, Any] = field(factory=dict)
    details: Mapping[str, Any] = field(factory=dict)
    stopped: bool = False
    release: MatrixRelease | None = None

    @property
    def name(self) -> str:
        """The name of the solver, or "matrix" if the method does not name one."""
        return str(self.solver.get("name", "matrix"))

    @classmethod
    def of(cls, solution: dsl.Solution, data: MetricData, context: SolveContext) -> Matrix:
        """Create a candidate from a solved model.

        Args:
            solution: The solution of the model. Its multipliers are included if
                :meth:`privopt_metric_dp.matrix.privacy.MetricDP.emit` added the model's privacy constraints, for the
                pairs ``data.needed`` in both directions.
            data: The data of the problem.
            context: The context in which the model was solved.
        """
        has_rows = any(block.name == PRIVACY_ROWS for block in solution.form.families)
        return cls(
            z=solution.value("z"),
            multipliers=multipliers_of(solution, data) if has_rows else None,
            # These are the pairs for which `optimal_model` adds privacy constraints, in this order. The multipliers are
            # the constraints' duals.
            over=data.needed,
            # The modelling language computes this bound from the duals. Here it is only an estimate, because the
            # release states the bound that follows from its own proof, which is evaluated exactly.
            bound=solution.rigorous_bound if has_rows else None,
            solver={"name": context.solver, "version": solution.solver, "iterations": solution.iterations},
            details={"rows": solution.form.shape[0], "columns": solution.form.shape[1]},
            stopped=solution.status != "optimal",
        )
