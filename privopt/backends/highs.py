"""The HiGHS backend through highspy: LPs, integer programs, and a session that re-solves a changed model warm."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from attrs import evolve
from scipy.sparse import csr_array

from privopt.arrays import Floats, Ints
from privopt.backends._highs_calls import (
    BEARING,
    ROW_TOLERANCE,
    check_status,
    create_solver,
    load_arrays,
    new_solver,
    outcome_of,
    problem_arrays,
    run_solver,
    settings_of,
    solve_arrays,
)
from privopt.backends.base import Backend, Capabilities, Options, Outcome, Raw, RejectedAnswerError, can_be_unbounded
from privopt.backends.session import Answer, Basis, Session
from privopt.dsl.condition import ScaledForm, condition
from privopt.dsl.form import StandardForm
from privopt.errors import SolverError
from privopt.execution.clock import granted

__all__ = ["BEARING", "ROW_TOLERANCE", "Highs", "new_solver"]

LAST_TRY_TOLERANCE = 1e-7
"""Tolerance of a session's last attempt; bounds are proved from multipliers, so that they stay true."""


class Highs(Backend):
    """The HiGHS backend. LPs run in this process, integer programs in a worker (:mod:`privopt.backends.workers`)."""

    name = "highs"
    substitute = "cbc"
    capabilities = Capabilities(bearing=BEARING)
    attempts = 3

    def version(self) -> str:
        """Return the version of HiGHS."""
        return str(create_solver().version())

    def session(
        self,
        form: StandardForm,
        *,
        tolerance: float = ROW_TOLERANCE,
        options: Mapping[str, Any] | None = None,
    ) -> Session:
        """Return a model in this process that starts warm from one solve to the next."""
        return HighsSession(form, tolerance=tolerance, options=options)

    def solve_scaled(self, conditioned: ScaledForm, options: Options, attempt: int) -> Raw:
        """Solve in this process, or in a worker process that can be killed if the model has integers."""
        started = time.monotonic()
        tolerance, presolve = ((ROW_TOLERANCE, "choose"), (ROW_TOLERANCE, "off"), (1e-7, "choose"))[attempt]
        if conditioned.form.is_mip and len(conditioned.wide_rows):
            # presolve takes 1e-9 x <= y for x = 0 where x is binary, and calls a wrong point optimal
            presolve = "off"
        settings = settings_of(
            tolerance=tolerance,
            threads=options.threads,
            seed=options.seed,
            method=options.method,
            gap=options.gap,
            presolve=presolve,
        )
        arrays = problem_arrays(conditioned)
        raw = solve_arrays(arrays, settings | {"time_limit": _highs_limit(options.time_limit, started)})
        outcome = raw.outcome
        if attempt == 0 and outcome is Outcome.INFEASIBLE and not conditioned.form.is_mip:
            # presolve takes rows that rounding alone makes clash for a proof: the simplex is asked too
            raise RejectedAnswerError("highs calls the model infeasible in presolve; no time was left for its simplex")
        if raw.either or (outcome is Outcome.INFEASIBLE and presolve != "off" and can_be_unbounded(conditioned.form)):
            # presolve calls some unbounded models infeasible: a solve without costs tells
            free_settings = settings_of(tolerance=ROW_TOLERANCE, threads=options.threads, seed=options.seed)
            free_settings["time_limit"] = _highs_limit(options.time_limit, started)
            outcome = solve_arrays({**arrays, "c": np.zeros_like(arrays["c"])}, free_settings).outcome
            outcome = Outcome.UNBOUNDED if outcome in (Outcome.OPTIMAL, Outcome.FEASIBLE) else outcome
        message = "" if outcome in (Outcome.OPTIMAL, Outcome.INFEASIBLE, Outcome.UNBOUNDED) else raw.message
        return evolve(raw, outcome=outcome, seconds=time.monotonic() - started, message=message)


def _highs_limit(seconds: float | None, started: float) -> float:
    """Return the time limit for HiGHS; for integer programs the parent process enforces the limit itself."""
    return np.inf if seconds is None else max(seconds - (time.monotonic() - started), 0.0)


class HighsSession(Session):
    """A model inside HiGHS. Rows are scaled as in every backend (``condition``).

    >>> import numpy as np
    >>> form = StandardForm(c=[1.0, 1.0], A=[[1, 2]], row_lower=[2], row_upper=[np.inf], col_lower=[0, 0],
    ...                     col_upper=[9, 9], integrality=[0, 0])
    >>> session = Highs().session(form)
    >>> session.solve().objective
    1.0
    >>> session.change_row_bounds([0], [4], [np.inf])
    >>> session.solve().objective
    2.0
    """

    def __init__(
        self,
        form: StandardForm,
        *,
        tolerance: float = ROW_TOLERANCE,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        conditioned = condition(form, BEARING)
        self._form, self._tolerance = form, tolerance
        self._is_stale = False
        self._row_scale = conditioned.row_scale
        self._flip = 1.0 if form.sense == "min" else -1.0
        self._solver = new_solver(tolerance=tolerance)
        for name, value in (options or {}).items():
            check_status(self._solver.setOptionValue(name, value), f"set {name}")
        load_arrays(self._solver, problem_arrays(conditioned))
        self.change_costs(np.arange(form.shape[1]), form.c)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return int(self._solver.getNumRow()), int(self._solver.getNumCol())

    def change_costs(self, columns: Ints, values: Floats) -> None:
        """See :class:`Session`."""
        index = np.asarray(columns, dtype=np.int32)
        costs = np.broadcast_to(np.asarray(values, dtype=np.float64), index.shape) * self._flip
        if len(index):
            check_status(self._solver.changeColsCost(len(index), index, np.ascontiguousarray(costs)), "change costs")

    def change_column_bounds(self, columns: Ints, lower: Floats, upper: Floats) -> None:
        """See :class:`Session`."""
        index, low, high = _bound_arrays(columns, lower, upper)
        if len(index):
            check_status(self._solver.changeColsBounds(len(index), index, low, high), "change column bounds")

    def change_row_bounds(self, rows: Ints, lower: Floats, upper: Floats) -> None:
        """See :class:`Session`."""
        index, low, high = _bound_arrays(rows, lower, upper)
        if len(index):
            scale = self._row_scale[index]
            check_status(
                self._solver.changeRowsBounds(len(index), index, low * scale, high * scale), "change row bounds"
            )

    def add_rows(self, matrix: csr_array, lower: Floats, upper: Floats) -> None:
        """See :class:`Session`."""
        rows = matrix.tocsr()
        # Rows that are added later are not scaled.
        count = rows.shape[0]
        if count:
            _, low, high = _bound_arrays(np.arange(count), lower, upper)
            check_status(self._solver.addRows(count, low, high, *_sparse_arrays(rows)), "add rows")
            self._row_scale = np.concatenate([self._row_scale, np.ones(count)])
            self._is_stale = True

    def add_columns(
        self, costs: Floats | float, lower: Floats | float, upper: Floats | float, matrix: csr_array
    ) -> None:
        """See :class:`Session`."""
        columns = matrix.tocsc(copy=True)
        count = columns.shape[1]
        if count:
            # New entries belong to rows that the solver has scaled.
            columns.data = columns.data * self._row_scale[columns.indices]
            _, low, high = _bound_arrays(np.arange(count), lower, upper)
            cost = np.broadcast_to(np.asarray(costs, dtype=np.float64), (count,)) * self._flip
            added = self._solver.addCols(count, np.ascontiguousarray(cost), low, high, *_sparse_arrays(columns))
            check_status(added, "add columns")

    def delete_rows(self, rows: Ints) -> None:
        """See :class:`Session`."""
        index = np.unique(np.asarray(rows, dtype=np.int32))
        if len(index):
            check_status(self._solver.deleteRows(len(index), index), "delete rows")
            self._row_scale = np.delete(self._row_scale, index)
            self._is_stale = True

    def delete_columns(self, columns: Ints) -> None:
        """See :class:`Session`."""
        index = np.unique(np.asarray(columns, dtype=np.int32))
        if len(index):
            check_status(self._solver.deleteCols(len(index), index), "delete columns")

    @property
    def basis(self) -> Basis:
        """The basis after the last solve."""
        solver_basis = self._solver.getBasis()
        columns, rows = (
            np.array([int(s) for s in part], dtype=np.int8)
            for part in (solver_basis.col_status, solver_basis.row_status)
        )
        return Basis(columns=columns, rows=rows)

    def _start_from(self, basis: Basis) -> None:
        """Load a basis. The solver's own state is cleared, so that the answer depends on the basis alone."""
        import highspy

        kinds = [highspy.HighsBasisStatus(number) for number in range(5)]
        solver_basis = highspy.HighsBasis()
        solver_basis.col_status = [kinds[s] for s in basis.columns.tolist()]
        solver_basis.row_status = [kinds[s] for s in basis.rows.tolist()]
        solver_basis.valid = True
        check_status(self._solver.clearSolver(), "forget")
        check_status(self._solver.setBasis(solver_basis), "take the basis")

    def _reload_model(self, tolerance: float) -> None:
        """Pass the model to HiGHS again, because HiGHS keeps the scaling of the rows that it saw first."""
        check_status(self._solver.passModel(self._solver.getLp()), "take the model again")
        for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            check_status(self._solver.setOptionValue(name, tolerance), f"set {name}")

    def solve(self, *, time_limit: float | None = None, basis: Basis | None = None) -> Answer:
        """See :class:`Session`. If HiGHS gives up, the model is reloaded, then solved with a looser tolerance."""
        time_limit, started = granted(time_limit), time.monotonic()
        if self._is_stale:
            self._reload_model(self._tolerance)
            self._is_stale = False
        if basis is not None:
            self._start_from(basis.resized(self.shape[0]))
        try:
            return self._solve_once(time_limit, started)
        except SolverError:
            self._is_stale = True  # the next solve begins as if this had not been
            self._reload_model(self._tolerance)
        try:
            return self._solve_once(time_limit, started)
        except SolverError:
            self._reload_model(max(LAST_TRY_TOLERANCE, self._tolerance))
            return self._solve_once(time_limit, started)

    def _solve_once(self, time_limit: float | None, started: float) -> Answer:
        # HiGHS's clock runs on over all solves of an instance.
        """Run HiGHS once, and once more without presolve if it cannot tell the outcome or has no ray."""
        limit = np.inf if time_limit is None else self._solver.getRunTime() + _highs_limit(time_limit, started)
        check_status(self._solver.setOptionValue("time_limit", float(limit)), "set time_limit")
        run_solver(self._solver)
        outcome = outcome_of(self._solver)
        if outcome is None or (outcome is Outcome.INFEASIBLE and not self._solver.getDualRay()[1]):
            # presolve cannot always tell infeasible from unbounded, and drops the ray
            self._solve_without_presolve()
            outcome = outcome_of(self._solver)
        if outcome is None:
            raise SolverError(f"highs gave up: {self._solver.modelStatusToString(self._solver.getModelStatus())}")
        return self._read_answer(outcome, time.monotonic() - started)

    def _read_answer(self, outcome: Outcome, seconds: float) -> Answer:
        """Read the answer in the form's sense and units."""
        info = self._solver.getInfo()
        iterations = max(info.simplex_iteration_count, 0) + max(info.ipm_iteration_count, 0)
        if outcome is Outcome.INFEASIBLE:
            return Answer(outcome=outcome, ray=self._read_ray(), iterations=iterations, seconds=seconds)
        if outcome in (Outcome.UNBOUNDED, Outcome.STOPPED):
            return Answer(outcome=outcome, iterations=iterations, seconds=seconds)
        solution = self._solver.getSolution()
        has_duals = outcome is Outcome.OPTIMAL and bool(solution.dual_valid)
        return Answer(
            outcome=outcome,
            x=np.array(solution.col_value),
            iterations=iterations,
            seconds=seconds,
            objective=self._flip * float(info.objective_function_value) + self._form.c0,
            duals=self._flip * np.array(solution.row_dual) * self._row_scale if has_duals else None,
            reduced=self._flip * np.array(solution.col_dual) if has_duals else None,
        )

    def _solve_without_presolve(self) -> None:
        """Solve again from a cleared state, without presolve."""
        check_status(self._solver.setOptionValue("presolve", "off"), "set presolve")
        self._solver.clearSolver()
        run_solver(self._solver)
        check_status(self._solver.setOptionValue("presolve", "choose"), "set presolve")

    def _read_ray(self) -> Floats | None:
        """Return the Farkas multipliers of the form's rows, or None if HiGHS has none."""
        _, has_ray, ray = self._solver.getDualRay()
        return np.array(ray, dtype=np.float64) * self._row_scale if has_ray else None


def _sparse_arrays(matrix: Any) -> tuple[int, Any, Any, Floats]:
    """Return how many entries a sparse matrix has, where each row (or column) begins, their places, and themselves."""
    return (
        matrix.nnz,
        matrix.indptr[:-1].astype(np.int32),
        matrix.indices.astype(np.int32),
        matrix.data.astype(np.float64),
    )


def _bound_arrays(places: Any, lower: Floats | float, upper: Floats | float) -> tuple[Any, Floats, Floats]:
    """Broadcast bounds to HiGHS's arrays for the given rows or columns."""
    index = np.asarray(places, dtype=np.int32)
    low, high = (
        np.ascontiguousarray(np.broadcast_to(np.asarray(v, dtype=np.float64), index.shape)) for v in (lower, upper)
    )
    return index, low, high
