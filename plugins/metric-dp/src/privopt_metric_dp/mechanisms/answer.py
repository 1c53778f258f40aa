"""Matrix: the answer of a method on its way to a release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from privopt.arrays import Floats, Ints
from privopt.errors import PrivoptError, StoppedError
from privopt.interfaces import SolveContext
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.mechanisms.fallback import UNWRITTEN, Reserve
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.proof import multipliers_of
from privopt_metric_dp.proof.multipliers import NO_PAIRS, Multipliers

if TYPE_CHECKING:
    from privopt.dsl import Solution
    from privopt_metric_dp.solvers import Solution as Structured
else:
    Solution = Structured = Any

__all__ = ["Matrix"]


@frozen(kw_only=True, eq=False)
class Matrix:
    """What :meth:`MetricMechanism.matrix` returns.

    Attributes:
        z: (N, K) near-feasible probabilities.
        multipliers: of privacy rows, from which a rigorous bound is computed; None for no bound.
        over: required pairs (S, 2) that the multipliers belong to, and their distances (S,); all where None.
        bound: about what they prove, as the solver has it; None where it does not say.
        solver, details, stopped: as in :class:`privopt.interfaces.Outcome`.
        reserve: a certified release that was at hand before; what is released is the better of it and ``z``.
        release: integers that are released as they are where they keep the notion; else ``z`` is repaired.
    """

    z: Floats
    multipliers: Multipliers | None = None
    over: tuple[Ints, Floats] | None = None
    bound: float | None = None
    solver: Mapping[str, Any] = field(factory=dict)
    details: Mapping[str, Any] = field(factory=dict)
    stopped: bool = False
    reserve: Reserve | None = None
    release: MatrixRelease | None = None

    @classmethod
    def of(
        cls,
        solution: Solution,
        data: MetricData,
        context: SolveContext,
        *,
        variable: str = "z",
        family: str = "geo-ind",
        details: Mapping[str, Any] | None = None,
    ) -> Matrix:
        """What a solved model says: its matrix, the multipliers for the bound, and how it was found.

        Args:
            solution: of a model to which :meth:`privopt_metric_dp.matrix.privacy.MetricDP.emit` added rows over
                ``data.needed``, both ways.
            data: the problem's.
            context: as it was solved.
            variable: name of the (N, K) variable.
            family: name of the privacy rows; without such a family there is no bound.
            details: further ones.
        """
        has_rows = any(block.name == family for block in solution.form.families)
        return cls(
            z=solution.value(variable),
            multipliers=multipliers_of(solution, data, family) if has_rows else None,
            over=data.needed,
            solver={"name": context.solver, "version": solution.solver, "iterations": solution.iterations},
            details={"rows": solution.form.shape[0], "columns": solution.form.shape[1], **(details or {})},
            stopped=solution.status != "optimal",
        )

    @classmethod
    def of_reserve(cls, reserve: Reserve, tried: str, error: PrivoptError) -> Matrix:
        """The reserve as the answer, where a method gave nothing.

        Args:
            reserve: made here, if it was not before.
            tried: what was, for ``solver.path``.
            error: what came of it; raised where there is no reserve.
        """
        reserve.make()
        if reserve.release is None:
            raise error
        data = reserve.data
        return cls(
            z=reserve.release.probabilities,
            multipliers=Multipliers.zero(0, len(data.outputs)) if reserve.bounded else None,
            over=NO_PAIRS,
            bound=float(data.weighted.min(axis=1).sum()),
            solver={"name": "exponential", "path": f"{tried.replace(UNWRITTEN, '')}, {reserve.path}"},
            stopped=isinstance(error, StoppedError),
            reserve=reserve,
            release=reserve.release,
        )

    @classmethod
    def found(
        cls, found: Structured, data: MetricData, *, name: str = "", details: Mapping[str, Any] | None = None
    ) -> Matrix:
        """What a structured solver says of :meth:`privopt_metric_dp.solvers.Instance.of` the data.

        Args:
            found: its answer.
            data: the problem's.
            name: of the solver; that of the answer's method where empty.
            details: in place of the solver's own.
        """
        from privopt.version import VERSION
        from privopt_metric_dp.solvers.instance import Instance, freer

        multipliers = found.multipliers
        if multipliers is not None:  # found at a smaller epsilon and at distances rounded down, evaluated without
            lengths, solved = data.needed[1], Instance.solved(data.epsilon)
            multipliers = freer(multipliers, float(data.epsilon) * data.metric.no_less(lengths) - solved * lengths)
        return cls(
            z=found.z,
            multipliers=multipliers,
            over=data.needed,
            bound=found.lower_bound,
            solver={
                "name": name or found.method,
                "version": VERSION,
                "iterations": found.iterations,
                **({} if name else {"path": found.details.get("path", found.method)}),
            },
            details={**({"solve": found.details} if details is None else details), "trajectory": found.trajectory},
            stopped=found.status == "stopped",
        )
