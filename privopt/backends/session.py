"""Sessions, in which an LP is loaded once and then repeatedly changed and solved.

Decomposition and column generation solve LPs in this way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from attrs import evolve, frozen
from scipy.sparse import csr_array

from privopt.arrays import Floats, Ints
from privopt.dsl.form import StandardForm, has_crossed_bounds
from privopt.dsl.outcome import Basis, Outcome
from privopt.dsl.solution import Solver
from privopt.errors import ModelError, SolverError

MISS_TOLERANCE = 1e-7
"""The largest total row violation at which a model counts as feasible."""


@frozen(eq=False, kw_only=True)
class Answer:
    """The answer from one solve in a session, in the rows, units and sense of the form.

    Attributes:
        outcome: How the solve ended, such as optimal or infeasible.
        x: The point, as an array of shape (n,), if the outcome is optimal or feasible.
        objective: The form's objective at x.
        duals: The multipliers of the rows, as an array of shape (m,), if the outcome is optimal.
        reduced: The reduced costs, as an array of shape (n,), if the outcome is optimal.
        ray: Farkas multipliers y of the rows ``A x``, as an array of shape (m,), if the model is infeasible and the
            solver provides them. They prove infeasibility as follows. Let b contain the lower bounds of rows with
            positive multipliers and the upper bounds of rows with negative ones. Then ``y A x >= y b`` holds at every
            feasible point, but ``y A x < y b`` for every x within the column bounds.
        iterations: The number of simplex and interior-point iterations in this solve.
        seconds: The duration of this solve in seconds.
    """

    outcome: Outcome
    x: Floats | None = None
    objective: float | None = None
    duals: Floats | None = None
    reduced: Floats | None = None
    ray: Floats | None = None
    iterations: int = 0
    seconds: float = 0.0


class Session(ABC):
    """A model that stays loaded in a solver, to be changed and solved repeatedly.

    Sessions are created by :meth:`privopt.backends.Backend.session`. Answers are not checked against the rows, so code
    that uses a session must prove any bounds it relies on. The initial rows may be scaled, but rows added later are
    not.
    """

    @abstractmethod
    def change_costs(self, columns: Ints, values: Floats) -> None:
        """Change the objective coefficients of some columns to ``values``.

        The values are in the form's sense: if the form maximises, they are coefficients to be maximised.
        """

    @abstractmethod
    def change_column_bounds(self, columns: Ints, lower: Floats, upper: Floats) -> None:
        """Change the bounds of some columns to ``lower`` and ``upper``."""

    @abstractmethod
    def change_row_bounds(self, rows: Ints, lower: Floats, upper: Floats) -> None:
        """Change the bounds of some rows to ``lower`` and ``upper``, in the units of the unscaled rows."""

    @abstractmethod
    def add_rows(self, matrix: csr_array, lower: Floats, upper: Floats) -> None:
        """Append the rows ``lower <= matrix x <= upper``, where ``matrix`` has one column per column of the model."""

    @abstractmethod
    def add_columns(
        self, costs: Floats | float, lower: Floats | float, upper: Floats | float, matrix: csr_array
    ) -> None:
        """Append continuous columns.

        Args:
            costs: The objective coefficients of the new columns in the form's sense, one for each column or one for
                all.
            lower, upper: The bounds of the new columns, one for each column or one for all.
            matrix: The entries of the new columns, as a sparse matrix of shape (all rows, new columns).
        """

    @abstractmethod
    def delete_rows(self, rows: Ints) -> None:
        """Delete rows and renumber the remaining rows, keeping their order."""

    @abstractmethod
    def delete_columns(self, columns: Ints) -> None:
        """Delete columns and renumber the remaining columns, keeping their order."""

    @property
    @abstractmethod
    def basis(self) -> Basis | None:
        """The basis after the most recent solve, or None if the solver does not provide one."""

    @abstractmethod
    def solve(self, *, time_limit: float | None = None, basis: Basis | None = None) -> Answer:
        """Solve the model in its current state.

        Args:
            time_limit: The time limit in seconds of wall time. An enclosing time limit may shorten it.
            basis: The basis to start from, so that the answer does not depend on earlier solves. If None, the solve
                starts from the basis of the previous solve or, if that basis does not fit the changed model, from
                scratch.
        """


class ColdSession(Session):
    """A session for backends without warm starts, in which every solve starts from scratch.

    If the model is infeasible, a Farkas ray is computed from its elastic form, in which rows may be violated at a cost.

    Attributes:
        form: The model in its current state.
        _solver: The backend used to solve the model.
    """

    def __init__(self, solver: Solver, form: StandardForm) -> None:
        """Create a session in which ``solver`` solves ``form`` and any changed versions of it."""
        self._solver, self.form = solver, form

    def change_costs(self, columns: Ints, values: Floats) -> None:
        """Change the objective coefficients of some columns to ``values``.

        The values are in the form's sense: if the form maximises, they are coefficients to be maximised.
        """
        costs = self.form.c.copy()
        costs[columns] = values
        self.form = evolve(self.form, c=costs)

    def change_column_bounds(self, columns: Ints, lower: Floats, upper: Floats) -> None:
        """Change the bounds of some columns to ``lower`` and ``upper``."""
        low, high = self.form.col_lower.copy(), self.form.col_upper.copy()
        low[columns], high[columns] = lower, upper
        self.form = evolve(self.form, col_lower=low, col_upper=high)

    def change_row_bounds(self, rows: Ints, lower: Floats, upper: Floats) -> None:
        """Change the bounds of some rows to ``lower`` and ``upper``."""
        low, high = self.form.row_lower.copy(), self.form.row_upper.copy()
        low[rows], high[rows] = lower, upper
        self.form = evolve(self.form, row_lower=low, row_upper=high)

    def add_rows(self, matrix: csr_array, lower: Floats, upper: Floats) -> None:
        """Append the rows ``lower <= matrix x <= upper``, where ``matrix`` has one column per column of the model.

        Either bound can be an array with one number per row or a single number for all rows.
        """
        from scipy import sparse

        form, count = self.form, matrix.shape[0]
        self.form = evolve(
            form,
            A=sparse.vstack([form.A, matrix], format="csr"),
            row_lower=np.concatenate([form.row_lower, np.broadcast_to(lower, count)]),
            row_upper=np.concatenate([form.row_upper, np.broadcast_to(upper, count)]),
        )

    def add_columns(
        self, costs: Floats | float, lower: Floats | float, upper: Floats | float, matrix: csr_array
    ) -> None:
        """Append continuous columns.

        Args:
            costs: The objective coefficients of the new columns in the form's sense, one for each column or one for
                all.
            lower, upper: The bounds of the new columns, one for each column or one for all.
            matrix: The entries of the new columns, as a sparse matrix of shape (all rows, new columns).

        Raises:
            ModelError: A column has an entry in a privacy row ``z_i <= exp(L) z_j``.
        """
        from scipy import sparse

        form, count = self.form, matrix.shape[1]
        has_entry = np.asarray(abs(matrix).sum(axis=1)).ravel() > 0
        for block in form.families:
            # The coefficients of privacy rows are recomputed from their exponents, so other entries would be lost.
            if block.log_ratio is not None and has_entry[block.start : block.stop].any():
                raise ModelError(
                    f"privacy rows of {block.name} have two columns each: an added column must not have entries in them"
                )
        self.form = evolve(
            form,
            c=np.concatenate([form.c, np.broadcast_to(costs, count)]),
            A=sparse.hstack([form.A, matrix], format="csr"),
            col_lower=np.concatenate([form.col_lower, np.broadcast_to(lower, count)]),
            col_upper=np.concatenate([form.col_upper, np.broadcast_to(upper, count)]),
            integrality=np.concatenate([form.integrality, np.zeros(count, dtype=np.uint8)]),
        )

    def delete_rows(self, rows: Ints) -> None:
        """Delete rows and renumber the remaining rows, keeping their order."""
        form, remaining = self.form, np.setdiff1d(np.arange(self.form.shape[0]), rows)
        self.form = evolve(
            form,
            A=form.A[remaining],
            row_lower=form.row_lower[remaining],
            row_upper=form.row_upper[remaining],
            families=tuple(block.keep_rows(remaining) for block in form.families),
        )

    def delete_columns(self, columns: Ints) -> None:
        """Delete columns and renumber the remaining columns, keeping their order."""
        form, remaining = self.form, np.setdiff1d(np.arange(self.form.shape[1]), columns)
        self.form = evolve(
            form,
            c=form.c[remaining],
            A=form.A[:, remaining],
            col_lower=form.col_lower[remaining],
            col_upper=form.col_upper[remaining],
            integrality=form.integrality[remaining],
            # Blocks of variables would now name the wrong columns.
            variables=(),
            families=tuple(block.keep_columns(remaining) for block in form.families),
        )

    @property
    def basis(self) -> Basis | None:
        """The basis after the most recent solve. Always None, because the backend does not support warm starts."""
        return None

    def solve(self, *, time_limit: float | None = None, basis: Basis | None = None) -> Answer:
        """Solve the model in its current state from scratch, ignoring ``basis``.

        Raises:
            SolverError: The solver reports the model as infeasible, but no multipliers prove it.
        """
        result = self._solver.solve(self.form, time_limit=_positive_limit(time_limit))
        ray = None
        # Backends return no ray, so it comes from a second solve. If a lower bound exceeds an upper bound, no ray is
        # needed to prove infeasibility.
        if result.outcome is Outcome.INFEASIBLE and not has_crossed_bounds(self.form):
            ray = elastic_ray(self.form, self._solver, time_limit)
            if ray is None:
                raise SolverError(f"{result.solver} calls a model infeasible, and no multipliers prove it")
        return Answer(
            outcome=result.outcome,
            x=result.x,
            objective=result.objective,
            duals=result.duals,
            reduced=result.reduced,
            ray=ray,
            iterations=result.iterations,
            seconds=result.seconds,
        )


def check_continuous(form: StandardForm, subject: str) -> None:
    """Raise a ModelError if a form has semicontinuous columns.

    Args:
        form: The form to check.
        subject: The feature that does not accept semicontinuous columns, such as "a session". The error message begins
            with it.
    """
    columns = form.semicontinuous_columns
    if len(columns):
        raise ModelError(f"{subject} takes no semicontinuous columns, got {form.column_name(int(columns[0]))}")


def elastic_ray(form: StandardForm, solver: Solver, time_limit: float | None = None) -> Floats | None:
    """Return Farkas multipliers for the rows of an infeasible model, as an array of shape (m,).

    The multipliers come from the elastic form, which minimises the sum of all row violations. Returns None if all rows
    can be satisfied, or if the elastic form is not solved to optimality.

    Args:
        form: The model, whose costs are ignored.
        solver: The solver for the elastic form.
        time_limit: The time limit in seconds, or None for no limit.
    """
    from scipy import sparse

    # Each row may be violated in either direction at a cost of 1 per unit. The multipliers at the optimum are a Farkas
    # ray.
    m, n = form.shape
    eye = sparse.identity(m, format="csr")
    elastic = evolve(
        form,
        c=np.concatenate([np.zeros(n), np.ones(2 * m)]),
        c0=0.0,
        sense="min",
        A=sparse.hstack([form.A, eye, -eye], format="csr"),
        col_lower=np.concatenate([form.col_lower, np.zeros(2 * m)]),
        col_upper=np.concatenate([form.col_upper, np.full(2 * m, np.inf)]),
        integrality=np.zeros(n + 2 * m, dtype=np.uint8),
        # With columns for their violations, rows are no longer privacy rows.
        families=(),
        variables=(),
    )
    result = solver.solve(elastic, time_limit=_positive_limit(time_limit))
    if result.outcome is not Outcome.OPTIMAL or result.objective is None or result.objective <= MISS_TOLERANCE:
        return None
    return result.duals


def _positive_limit(seconds: float | None) -> float | None:
    """Raise a time limit to at least 0.01 s, because backends do not accept 0. None stays unchanged."""
    return None if seconds is None else max(seconds, 0.01)
