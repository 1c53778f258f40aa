"""The HiGHS backend, which solves LPs and integer programs with highspy and supports sessions with warm starts."""

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
    LOG_FILE,
    QUADRATIC_ORDERS,
    ROW_TOLERANCE,
    check_status,
    create_solver,
    load_arrays,
    new_solver,
    outcome_of,
    problem_arrays,
    read_basis,
    run_solver,
    set_basis,
    settings_of,
    solve_arrays,
    solve_quadratic,
)
from privopt.backends.base import Backend, Capabilities, Options, Outcome, Raw, RejectedAnswerError, can_be_unbounded
from privopt.backends.session import Answer, Session, check_continuous
from privopt.dsl.condition import ScaledForm, condition
from privopt.dsl.form import StandardForm
from privopt.dsl.outcome import Basis, Ranging
from privopt.errors import SolverError
from privopt.execution.clock import cap_time_limit

__all__ = ["BEARING", "ROW_TOLERANCE", "Highs", "new_solver"]

LAST_TRY_TOLERANCE = 1e-7
"""The tolerance used in a session's final attempt. Bounds remain valid at this tolerance, because they are proved by
multipliers."""
SMALL_REGULARISATION = 1e-10
"""The number that HiGHS adds to the diagonal of a quadratic objective in the second attempt."""


class Highs(Backend):
    """The HiGHS backend.

    LPs are solved in this process, and integer programs in a worker process (:mod:`privopt.backends.workers`).
    """

    name = "highs"
    substitute = "cbc"
    capabilities = Capabilities(bearing=BEARING, warm_start=True, quadratic=True)
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
        """Return a session in this process, in which each solve starts from the result of the previous one.

        Args:
            form: The initial model, without integer columns.
            tolerance: The tolerance on scaled rows and reduced costs.
            options: Additional HiGHS options, keyed by name.
        """
        return HighsSession(form, tolerance=tolerance, options=options)

    def ranging(self, form: StandardForm, basis: Basis) -> Ranging:
        """Return the ranges of costs and row bounds within which a linear program's optimal basis remains optimal.

        Args:
            form: The linear program to analyse.
            basis: The optimal basis, from which HiGHS computes the ranges.
        """
        from privopt.backends.ranging import compute_ranging

        return compute_ranging(form, basis)

    def solve_scaled(self, conditioned: ScaledForm, options: Options, attempt: int) -> Raw:
        """Solve an LP in this process, or an integer program in a worker process that can be killed.

        Args:
            conditioned: The scaled form to solve.
            options: The options for the solve.
            attempt: The number of earlier attempts, from 0 to 2, which determines the settings.

        Raises:
            RejectedAnswerError: The first attempt reported an LP as infeasible. The next attempt has to confirm this.
        """
        started = time.monotonic()
        # Presolve reports some feasible models as infeasible and some wrong points as optimal, so the second attempt
        # runs without it. The third one has a looser tolerance.
        tolerance, presolve = ((ROW_TOLERANCE, "choose"), (ROW_TOLERANCE, "off"), (1e-7, "choose"))[attempt]
        if conditioned.form.is_mip and len(conditioned.wide_rows):
            # If x is binary, presolve treats 1e-9 x <= y as x = 0, and a wrong point is then reported as optimal.
            presolve = "off"
        settings = settings_of(
            tolerance=tolerance,
            threads=options.threads,
            seed=options.seed,
            # HiGHS has only one method for quadratic objectives.
            method="auto" if conditioned.form.Q is not None else options.method,
            gap=options.gap,
            presolve=presolve,
        )
        settings |= {"output_flag": True, LOG_FILE: options.log_file} if options.log_file else {}
        arrays = problem_arrays(conditioned) | {
            "mip_start": options.start if attempt == 0 and conditioned.form.is_mip else None
        }
        # A later attempt starts from scratch, because the basis may have misled the first one.
        is_linear_program = conditioned.form.Q is None and not conditioned.form.is_mip
        basis = options.basis if attempt == 0 and is_linear_program and options.method != "ipm" else None
        if basis is not None and basis.shape != conditioned.form.shape:
            basis = None  # it belongs to another form, such as the recession form of this one
        if basis is not None:
            # With 0, HiGHS uses the primal simplex method if the basis is feasible, as it is after a change of costs.
            settings["simplex_strategy"] = 0
        settings["time_limit"] = _highs_limit(options.time_limit, started)
        if conditioned.form.Q is None:
            raw = solve_arrays(arrays, settings, basis)
        else:
            if attempt == 1:
                # With the default, 1e-7, columns without bounds keep nonzero reduced costs, so that no optimum can be
                # proved.
                settings["qp_regularization_value"] = SMALL_REGULARISATION
            raw = solve_quadratic(arrays, settings, first_order=attempt * QUADRATIC_ORDERS)
        outcome = raw.outcome
        if attempt == 0 and outcome is Outcome.INFEASIBLE and not conditioned.form.is_mip:
            # Presolve reports a model as infeasible even if rows clash only because of rounding. The error leads to the
            # next attempt, which runs without presolve. Users see the message only if no later attempt gives an answer.
            raise RejectedAnswerError(
                "highs calls the model infeasible in presolve, and no further attempt gave an answer"
            )
        if raw.either or (outcome is Outcome.INFEASIBLE and presolve != "off" and can_be_unbounded(conditioned.form)):
            # Presolve reports some unbounded models as infeasible. Without costs, a model cannot be unbounded. If it
            # then has a feasible point, the model with its costs is unbounded.
            free_settings = settings_of(tolerance=ROW_TOLERANCE, threads=options.threads, seed=options.seed)
            free_settings["time_limit"] = _highs_limit(options.time_limit, started)
            outcome = solve_arrays({**arrays, "c": np.zeros_like(arrays["c"]), "Q": None}, free_settings).outcome
            outcome = Outcome.UNBOUNDED if outcome in (Outcome.OPTIMAL, Outcome.FEASIBLE) else outcome
        message = "" if outcome in (Outcome.OPTIMAL, Outcome.INFEASIBLE, Outcome.UNBOUNDED) else raw.message
        return evolve(raw, outcome=outcome, seconds=time.monotonic() - started, message=message)


def _highs_limit(seconds: float | None, started: float) -> float:
    """Return the number of seconds left of a time limit that began at ``started``, or infinity if there is no limit."""
    return np.inf if seconds is None else max(seconds - (time.monotonic() - started), 0.0)


class HighsSession(Session):
    """A model that stays loaded in HiGHS. Each solve starts from the basis left by the previous one.

    The initial rows are scaled; rows added later are not.

    >>> import numpy as np
    >>> form = StandardForm(c=[1.0, 1.0], A=[[1, 2]], row_lower=[2], row_upper=[np.inf], col_lower=[0, 0],
    ...                     col_upper=[9, 9], integrality=[0, 0])
    >>> session = Highs().session(form)
    >>> session.solve().objective
    1.0
    >>> session.change_row_bounds([0], [4], [np.inf])
    >>> session.solve().objective
    2.0

    Attributes:
        _form: The initial model, which provides the sense and the constant of the objective.
        _tolerance: The tolerance on scaled rows and reduced costs.
        _is_stale: Whether the model must be passed to HiGHS again before the next solve (see :meth:`_reload_model`).
        _row_scale: The factor by which each row was multiplied. It is 1 for rows added later.
        _flip: 1 if the form minimises, -1 if it maximises.
        _solver: The HiGHS instance.
    """

    def __init__(
        self,
        form: StandardForm,
        *,
        tolerance: float = ROW_TOLERANCE,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Load a form into a HiGHS instance.

        Args:
            form: The initial model.
            tolerance: The tolerance on scaled rows and reduced costs.
            options: Additional HiGHS options, keyed by name.
        """
        check_continuous(form, "a session")
        form.check_linear("a session")
        conditioned = condition(form, BEARING)
        self._form, self._tolerance = form, tolerance
        self._is_stale = False
        self._row_scale = conditioned.row_scale
        self._flip = 1.0 if form.sense == "min" else -1.0
        self._solver = new_solver(tolerance=tolerance)
        for name, value in (options or {}).items():
            check_status(self._solver.setOptionValue(name, value), f"set {name}")
        load_arrays(self._solver, problem_arrays(conditioned))
        # Costs are not scaled, so that costs that are changed later are on the same scale.
        self.change_costs(np.arange(form.shape[1]), form.c)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and the number of columns."""
        return int(self._solver.getNumRow()), int(self._solver.getNumCol())

    def change_costs(self, columns: Ints, values: Floats) -> None:
        """Change the objective coefficients of some columns to ``values``.

        The values are in the form's sense: if the form maximises, they are coefficients to be maximised.
        """
        index = np.asarray(columns, dtype=np.int32)
        # HiGHS minimises, so the costs are negated if the form maximises.
        costs = np.broadcast_to(np.asarray(values, dtype=np.float64), index.shape) * self._flip
        if len(index):
            check_status(self._solver.changeColsCost(len(index), index, np.ascontiguousarray(costs)), "change costs")

    def change_column_bounds(self, columns: Ints, lower: Floats, upper: Floats) -> None:
        """Change the bounds of some columns to ``lower`` and ``upper``.

        Either bound can be an array with one number per column or a single number for all columns.
        """
        index, low, high = _bound_arrays(columns, lower, upper)
        if len(index):
            check_status(self._solver.changeColsBounds(len(index), index, low, high), "change column bounds")

    def change_row_bounds(self, rows: Ints, lower: Floats, upper: Floats) -> None:
        """Change the bounds of some rows to ``lower`` and ``upper``, in the units of the unscaled rows."""
        index, low, high = _bound_arrays(rows, lower, upper)
        if len(index):
            scale = self._row_scale[index]
            check_status(
                self._solver.changeRowsBounds(len(index), index, low * scale, high * scale), "change row bounds"
            )

    def add_rows(self, matrix: csr_array, lower: Floats, upper: Floats) -> None:
        """Append the rows ``lower <= matrix x <= upper``, where ``matrix`` has one column per column of the model."""
        rows = matrix.tocsr()
        # Rows that are added later are not scaled, so their factor is 1. The model becomes stale because HiGHS would
        # otherwise keep its internal scaling, which was computed from the first rows.
        count = rows.shape[0]
        if count:
            _, low, high = _bound_arrays(np.arange(count), lower, upper)
            check_status(self._solver.addRows(count, low, high, *_sparse_arrays(rows)), "add rows")
            self._row_scale = np.concatenate([self._row_scale, np.ones(count)])
            self._is_stale = True

    def add_columns(
        self, costs: Floats | float, lower: Floats | float, upper: Floats | float, matrix: csr_array
    ) -> None:
        """Append columns.

        Args:
            costs: The objective coefficients of the new columns in the form's sense, one for each column or one for
                all.
            lower, upper: The bounds of the new columns, one for each column or one for all.
            matrix: The entries of the new columns in the units of the unscaled rows, as a sparse matrix of shape (all
                rows, new columns).
        """
        columns = matrix.tocsc(copy=True)
        count = columns.shape[1]
        if count:
            # The new entries belong to existing rows, so they are multiplied by those rows' scales.
            columns.data = columns.data * self._row_scale[columns.indices]
            _, low, high = _bound_arrays(np.arange(count), lower, upper)
            cost = np.broadcast_to(np.asarray(costs, dtype=np.float64), (count,)) * self._flip
            status = self._solver.addCols(count, np.ascontiguousarray(cost), low, high, *_sparse_arrays(columns))
            check_status(status, "add columns")

    def delete_rows(self, rows: Ints) -> None:
        """Delete rows and renumber the remaining rows, keeping their order."""
        index = np.unique(np.asarray(rows, dtype=np.int32))
        if len(index):
            check_status(self._solver.deleteRows(len(index), index), "delete rows")
            self._row_scale = np.delete(self._row_scale, index)
            self._is_stale = True

    def delete_columns(self, columns: Ints) -> None:
        """Delete columns and renumber the remaining columns, keeping their order."""
        index = np.unique(np.asarray(columns, dtype=np.int32))
        if len(index):
            check_status(self._solver.deleteCols(len(index), index), "delete columns")

    @property
    def basis(self) -> Basis | None:
        """The basis after the most recent solve, or None if HiGHS has none."""
        return read_basis(self._solver)

    def _start_from(self, basis: Basis) -> None:
        """Load a basis and clear the rest of HiGHS's state, so that answers depend only on the basis."""
        check_status(self._solver.clearSolver(), "forget")
        set_basis(self._solver, basis)

    def _reload_model(self, tolerance: float) -> None:
        """Pass the model to HiGHS again with the given tolerance, so that HiGHS scales all of its rows again."""
        check_status(self._solver.passModel(self._solver.getLp()), "take the model again")
        for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            check_status(self._solver.setOptionValue(name, tolerance), f"set {name}")

    def solve(self, *, time_limit: float | None = None, basis: Basis | None = None) -> Answer:
        """Solve the model in its current state.

        If HiGHS gives up, the model is reloaded and solved again. As a last resort, the tolerance is loosened.

        Args:
            time_limit: The time limit in seconds for all attempts together. If None, only the enclosing limits apply.
            basis: The basis to start from, which replaces HiGHS's current state. If None, the solve continues from that
                state.

        Raises:
            SolverError: HiGHS gave up in every attempt.
        """
        time_limit, started = cap_time_limit(time_limit), time.monotonic()
        if self._is_stale:
            self._reload_model(self._tolerance)
            self._is_stale = False
        if basis is not None:
            self._start_from(basis.resized(self.shape[0]))
        try:
            return self._solve_once(time_limit, started)
        except SolverError:
            # The next solve reloads the model, so that it does not depend on this failure.
            self._is_stale = True
            self._reload_model(self._tolerance)
        try:
            return self._solve_once(time_limit, started)
        except SolverError:
            self._reload_model(max(LAST_TRY_TOLERANCE, self._tolerance))
            return self._solve_once(time_limit, started)

    def _solve_once(self, time_limit: float | None, started: float) -> Answer:
        """Run HiGHS, and repeat without presolve if it gives up or reports infeasibility without a Farkas ray.

        Args:
            time_limit: The time limit in seconds since ``started``, or None for no limit.
            started: The clock reading at the start of the whole solve.

        Raises:
            SolverError: HiGHS gave up.
        """
        # HiGHS's clock runs on over all solves of an instance.
        limit = np.inf if time_limit is None else self._solver.getRunTime() + _highs_limit(time_limit, started)
        check_status(self._solver.setOptionValue("time_limit", float(limit)), "set time_limit")
        run_solver(self._solver)
        outcome = outcome_of(self._solver)
        if outcome is None or (outcome is Outcome.INFEASIBLE and not self._solver.getDualRay()[1]):
            # With presolve, HiGHS cannot always tell infeasible from unbounded models, and returns no ray.
            self._solve_without_presolve()
            outcome = outcome_of(self._solver)
        if outcome is None:
            raise SolverError(f"highs gave up: {self._solver.modelStatusToString(self._solver.getModelStatus())}")
        return self._read_answer(outcome, time.monotonic() - started)

    def _read_answer(self, outcome: Outcome, seconds: float) -> Answer:
        """Read HiGHS's answer, and convert it to the form's rows, sense and units.

        Args:
            outcome: How the solve ended.
            seconds: The duration of the solve.
        """
        info = self._solver.getInfo()
        # HiGHS returns -1 for a count that does not apply.
        iterations = max(info.simplex_iteration_count, 0) + max(info.ipm_iteration_count, 0)
        if outcome is Outcome.INFEASIBLE:
            return Answer(outcome=outcome, ray=self._read_ray(), iterations=iterations, seconds=seconds)
        if outcome in (Outcome.UNBOUNDED, Outcome.STOPPED):
            return Answer(outcome=outcome, iterations=iterations, seconds=seconds)
        solution = self._solver.getSolution()
        # HiGHS minimises over scaled rows. If the form maximises, multipliers and reduced costs change their signs.
        # Each multiplier is also multiplied by the scale of its row.
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
        """Run HiGHS again from a cleared state and without presolve."""
        check_status(self._solver.setOptionValue("presolve", "off"), "set presolve")
        self._solver.clearSolver()
        run_solver(self._solver)
        check_status(self._solver.setOptionValue("presolve", "choose"), "set presolve")

    def _read_ray(self) -> Floats | None:
        """Return Farkas multipliers, which prove that the form is infeasible, or None if HiGHS does not provide any."""
        _, has_ray, ray = self._solver.getDualRay()
        return np.array(ray, dtype=np.float64) * self._row_scale if has_ray else None


def _sparse_arrays(matrix: Any) -> tuple[int, Any, Any, Floats]:
    """Return the arrays of a CSR or CSC matrix in the types that HiGHS expects.

    Returns:
        The number of entries, the offset of each row's first entry, the column of each entry, and the value of each
        entry. For a CSC matrix, the roles of rows and columns are swapped.
    """
    return (
        matrix.nnz,
        matrix.indptr[:-1].astype(np.int32),
        matrix.indices.astype(np.int32),
        matrix.data.astype(np.float64),
    )


def _bound_arrays(places: Any, lower: Floats | float, upper: Floats | float) -> tuple[Any, Floats, Floats]:
    """Return the indices and bounds of rows or columns in the types that HiGHS expects.

    Args:
        places: The indices of k rows or columns.
        lower, upper: The bounds of these rows or columns, one number for each or one for all.
    """
    index = np.asarray(places, dtype=np.int32)
    low, high = (
        np.ascontiguousarray(np.broadcast_to(np.asarray(v, dtype=np.float64), index.shape)) for v in (lower, upper)
    )
    return index, low, high
