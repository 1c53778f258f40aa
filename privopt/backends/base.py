"""The base class of solvers: a ``StandardForm`` in, a checked ``Result`` out."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np
from attrs import evolve, field, frozen

from privopt.arrays import Floats
from privopt.backends.raw import Raw, RejectedAnswerError
from privopt.backends.session import ColdSession, Session
from privopt.dsl.condition import CoefficientRange, ScaledForm, condition, tightening_cost
from privopt.dsl.duality import dual_bound
from privopt.dsl.form import StandardForm
from privopt.dsl.outcome import Outcome, Result
from privopt.dsl.solution import SolveInterrupt, SolveOptions
from privopt.errors import SolverError, UsageError
from privopt.execution.clock import granted

__all__ = [
    "Backend",
    "Capabilities",
    "Options",
    "Outcome",
    "Raw",
    "RejectedAnswerError",
    "ScaledForm",
    "check_vector",
    "may_run_off",
]

ROW_TOLERANCE = 1e-6
INTEGER_TOLERANCE = 1e-5


@frozen(kw_only=True)
class Options:
    """Options of one solve, as :meth:`Backend.solve` takes them.

    Attributes:
        time_limit: seconds of wall time; what the scopes of time around leave, where that is less.
        gap: relative gap at which a search over integers may stop.
        method: "auto", "simplex" or "ipm" for LPs.
        threads: for the solver.
        seed: of the solver's own tie breaking.
    """

    time_limit: float | None = None
    gap: float = 1e-6
    method: str = "auto"
    threads: int = 1
    seed: int = 0


@frozen(kw_only=True)
class Capabilities:
    """What a backend can do, known before it is loaded.

    Attributes:
        mip: integer columns.
        duals: multipliers and reduced costs of LPs.
        bearing: coefficients that it can work with.
    """

    mip: bool = True
    duals: bool = True
    bearing: CoefficientRange = field(factory=CoefficientRange)


class Backend(ABC):
    """A solver.

    >>> import numpy as np
    >>> from privopt.backends import get
    >>> from privopt.dsl.form import StandardForm
    >>> form = StandardForm(c=[1, 1], A=[[1, 2]], row_lower=[2], row_upper=[np.inf], col_lower=[0, 0],
    ...                     col_upper=[9, 9], integrality=[0, 0])
    >>> get("highs").solve(form).objective
    1.0
    """

    name: str
    capabilities: Capabilities
    attempts: int = 1

    def solve(self, form: StandardForm, **options: Unpack[SolveOptions]) -> Result:
        """Solve a form.

        A vector that fails its check is not returned: where integers had to be rounded the rest is solved again
        around them, then other settings of the solver are tried, within the same time limit.

        Args:
            form: the model.
            options: those of :class:`Options`.

        Raises:
            SolverError: the solver died, refused the form, or its vector misses rows, bounds or integers.
            SolveInterrupt: an interrupt came, and a feasible point is known.
            UsageError: an option that cannot be meant so.
        """
        asked = Options(**options)
        if asked.time_limit is not None and not asked.time_limit > 0:
            raise UsageError(f"time limit must be seconds above 0, got {asked.time_limit}")
        time_limit = granted(asked.time_limit)
        if asked.method not in ("auto", "simplex", "ipm"):
            raise UsageError(f"method must be auto, simplex or ipm, got {asked.method!r}")
        asked = evolve(asked, time_limit=time_limit)
        conditioned = condition(form, self.capabilities.bearing)
        solver, started = f"{self.name} {self.version()}", time.monotonic()
        for attempt in range(self.attempts):
            if time_limit is not None and attempt:  # the first is made, however late a busy machine comes to it
                left = time_limit - (time.monotonic() - started)
                if left <= 0:
                    break
                asked = evolve(asked, time_limit=left)
            raw = None
            try:
                raw = self.solve_scaled(conditioned, asked, attempt)
                result = self._finish(conditioned, raw, asked, solver)
            except RejectedAnswerError as error:
                if raw is not None and raw.interrupted:
                    raise KeyboardInterrupt from error
                failure = error
                continue
            if raw.interrupted:
                raise SolveInterrupt(result)
            return result
        raise failure

    def session(
        self,
        form: StandardForm,
        *,
        tolerance: float = 1e-9,
        options: Mapping[str, Any] | None = None,
    ) -> Session:
        """Return an LP that is changed and solved again; here each time from new, which all backends can.

        Args:
            form: the model as it is at first.
            tolerance: by which rows and reduced costs may be missed, where the solver takes such a setting.
            options: settings of the solver by its own names, where it keeps sessions of its own.
        """
        return ColdSession(self, form)

    def explain(self, form: StandardForm, time_limit: float = 20.0) -> str:
        """Explain why a form has no solution: the families, or rows, that clash.

        Raises:
            SolverError: the form has a solution after all.
        """
        from privopt.backends.diagnose import clash

        found = clash(form, time_limit=time_limit)
        if found.contradicted:
            raise SolverError("one solver calls the model infeasible, but highs finds a point that satisfies every row")
        return str(found)

    def _finish(self, conditioned: ScaledForm, raw: Raw, options: Options, solver: str) -> Result:
        """Check an answer; with integers, once more around the rounded ones where rounding broke a row."""
        try:
            return finish(conditioned, raw, solver)
        except RejectedAnswerError:
            form = conditioned.form
            if raw.x is None or not form.is_mip or not np.isfinite(raw.x).all():
                raise
            whole = form.integrality == 1
            fixed = np.clip(np.round(raw.x), form.col_lower, form.col_upper)
            around = evolve(
                form,
                col_lower=np.where(whole, fixed, form.col_lower),
                col_upper=np.where(whole, fixed, form.col_upper),
                integrality=np.zeros(len(whole), dtype=np.uint8),
            )
            limit = options.time_limit
            rest = None if limit is None else max(limit - raw.seconds, 0.1)
            again = self.solve_scaled(evolve(conditioned, form=around), evolve(options, time_limit=rest), 0)
            if again.x is None or again.outcome is not Outcome.OPTIMAL:
                raise
            return finish(conditioned, evolve(raw, x=again.x, seconds=raw.seconds + again.seconds), solver)

    @abstractmethod
    def version(self) -> str:
        """Return the version of the solver."""

    @abstractmethod
    def solve_scaled(self, conditioned: ScaledForm, options: Options, attempt: int) -> Raw:
        """Solve the scaled form with the settings of an attempt (from 0); RejectedAnswerError if it gave up."""


def may_run_off(conditioned: ScaledForm) -> bool:
    """Return whether some column without a bound on one side costs less that way: else no model is unbounded."""
    form, c = conditioned.form, conditioned.c
    return bool(((c < 0) & np.isposinf(form.col_upper) | (c > 0) & np.isneginf(form.col_lower)).any())


def finish(conditioned: ScaledForm, raw: Raw, solver: str) -> Result:
    """Check what a solver said, and bring it back to the form's rows, units and sense."""
    if raw.outcome is None:
        raise RejectedAnswerError(f"{solver} gave up: {raw.message}")
    made = Result(
        outcome=raw.outcome,
        solver=solver,
        seconds=raw.seconds,
        iterations=raw.iterations,
        message=raw.message,
        tightening=conditioned.tightening,
    )
    form = conditioned.form
    if raw.outcome is Outcome.UNBOUNDED and not may_run_off(conditioned):
        raise RejectedAnswerError(f"{solver} calls the model unbounded, whose columns bound it")
    bound = None if raw.bound is None or not np.isfinite(raw.bound) else float(conditioned.bound(raw.bound))
    if raw.x is None or raw.outcome not in (Outcome.OPTIMAL, Outcome.FEASIBLE):
        if raw.outcome in (Outcome.OPTIMAL, Outcome.FEASIBLE):
            raise RejectedAnswerError(f"{solver} calls the model {raw.outcome.value} and gives no vector")
        return evolve(made, bound=bound if raw.outcome is Outcome.STOPPED and conditioned.tightening is None else None)
    try:
        x, violation = check_vector(conditioned, raw.x)
    except SolverError as error:
        if raw.outcome is Outcome.FEASIBLE and not form.is_mip:
            return evolve(made, outcome=Outcome.STOPPED, message=f"its vector is not feasible: {error}")
        raise RejectedAnswerError(f"{solver}: {error}") from None
    objective = conditioned.objective(x)
    duals = None if raw.duals is None else conditioned.duals(raw.duals)
    tightening = conditioned.tightening
    if tightening is not None:
        cost = None if duals is None else tightening_cost(conditioned, duals, objective)
        tightening = evolve(tightening, cost=cost)
        bound = None if cost is None else objective - cost * (1 if form.sense == "min" else -1)
    elif duals is not None:
        bound = _safe_bound(form, duals, bound, objective)
    return evolve(
        made,
        x=x,
        objective=objective,
        bound=bound,
        duals=duals,
        violation=violation,
        tightening=tightening,
        reduced=None if raw.reduced is None else conditioned.reduced_costs(raw.reduced),
    )


def _safe_bound(form: StandardForm, duals: Floats, claimed: float | None, objective: float) -> float | None:
    """Return the weaker of the Lagrangian bound (where finite) and the objective; else the solver's claim."""
    found = dual_bound(form, duals)
    if not np.isfinite(found):
        return claimed
    return min(found, objective) if form.sense == "min" else max(found, objective)


def check_vector(conditioned: ScaledForm, vector: Floats) -> tuple[Floats, float]:
    """Check a solver's vector against bounds, integers and rows.

    Returns:
        The vector, put exactly inside its bounds and onto its integers, and the largest violation of a scaled row.

    Raises:
        SolverError: it misses one of them by more than rounding; the worst row or column is named.
    """
    form = conditioned.form
    vector = np.array(vector, dtype=np.float64)
    if vector.shape != (form.shape[1],) or not np.isfinite(vector).all():
        raise SolverError(f"its vector of shape {vector.shape} is not {form.shape[1]} finite numbers")
    inside = np.clip(vector, form.col_lower, form.col_upper)
    miss = np.abs(vector - inside) / (1.0 + np.abs(inside))
    if miss.max(initial=0.0) > ROW_TOLERANCE:
        at = int(np.argmax(miss))
        raise SolverError(
            f"its vector has {form.column_name(at)} = {vector[at]:.9g}, outside "
            f"[{form.col_lower[at]:g}, {form.col_upper[at]:g}]"
        )
    whole = form.integrality == 1
    nearest = np.round(inside)
    off = np.where(whole, np.abs(inside - nearest), 0.0)
    if off.max(initial=0.0) > INTEGER_TOLERANCE:
        at = int(np.argmax(off))
        raise SolverError(f"in its vector {form.column_name(at)} must be an integer, got {vector[at]:.9g}")
    done = np.where(whole, nearest, inside)
    return done, _row_violation(conditioned, done)


def _row_violation(conditioned: ScaledForm, vector: Floats) -> float:
    activity = conditioned.A @ vector
    lower, upper = conditioned.row_lower, conditioned.row_upper
    miss = np.maximum(np.maximum(lower - activity, activity - upper), 0.0)
    magnitude = np.asarray(abs(conditioned.A) @ np.abs(vector))
    side = np.where(np.isfinite(lower), np.abs(lower), 0.0) + np.where(np.isfinite(upper), np.abs(upper), 0.0)
    allowed = ROW_TOLERANCE * (1.0 + side) + 1e-9 * magnitude
    if (miss > allowed).any():
        at = int(np.argmax(miss / allowed))
        raise SolverError(
            f"its vector misses {conditioned.form.row_name(at)} by {miss[at]:.3g} (allowed {allowed[at]:.3g})"
        )
    return float(miss.max(initial=0.0))
