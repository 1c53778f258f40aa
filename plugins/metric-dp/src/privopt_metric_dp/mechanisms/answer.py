"""A method's answer before repair: a matrix that is private up to rounding, multipliers and solver details."""

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
    """The result of :meth:`MetricMechanism.matrix`.

    Attributes:
        z: (N, K) probabilities that satisfy the guarantee up to the solver's tolerance.
        multipliers: The privacy rows' multipliers, from which a rigorous bound is computed; None for no bound.
        over: The pairs (S, 2) to which the multipliers belong, and their distances (S,); None for all required pairs.
        bound: A bound that the multipliers prove, or an estimate of it; None if unknown.
        solver: The solver's name, version and iterations, for result.json.
        details: Further figures for result.json.
        stopped: Whether a limit ended the solver before it ran to completion.
        release: Integer weights that are released unchanged if they satisfy the notion. Otherwise ``z`` is repaired.
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
        """The solver's name."""
        return str(self.solver.get("name", "matrix"))

    @classmethod
    def of(cls, solution: dsl.Solution, data: MetricData, context: SolveContext) -> Matrix:
        """Build an answer from a solved model: the matrix z, the multipliers for the bound, and solver details.

        Args:
            solution: The solution of a model. The answer contains multipliers if the model's privacy rows come from
                :meth:`privopt_metric_dp.matrix.privacy.MetricDP.emit`, over ``data.needed`` in both directions.
            data: The problem's data.
            context: The context in which the model was solved.
        """
        has_rows = any(block.name == PRIVACY_ROWS for block in solution.form.families)
        return cls(
            z=solution.value("z"),
            multipliers=multipliers_of(solution, data) if has_rows else None,
            # `optimal_model` adds privacy rows only for these pairs, in this order, and multipliers are the rows'
            # duals.
            over=data.needed,
            # The modelling language computes this bound from the duals. It is only an estimate here: the release states
            # the bound that the proof in its folder gives, which is evaluated exactly.
            bound=solution.rigorous_bound if has_rows else None,
            solver={"name": context.solver, "version": solution.solver, "iterations": solution.iterations},
            details={"rows": solution.form.shape[0], "columns": solution.form.shape[1]},
            stopped=solution.status != "optimal",
        )
