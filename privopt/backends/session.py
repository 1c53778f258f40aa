"""An LP that is changed and solved again, as decomposition and column generation do."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray
from scipy.sparse import csr_array

from privopt.arrays import Floats, Ints
from privopt.dsl.form import StandardForm
from privopt.dsl.outcome import Outcome
from privopt.dsl.solution import Solver
from privopt.errors import SolverError

MISS_TOLERANCE = 1e-7
"""Infeasibility below this is the solver's tolerance."""


@frozen(eq=False, kw_only=True)
class Basis:
    """A basis as arrays that can be sent: each column and row is 0 lower, 1 basic, 2 upper or 3 free at 0."""

    columns: NDArray[np.int8]
    rows: NDArray[np.int8]

    def resized(self, rows: int) -> Basis:
        """Return the basis with appended rows, which are basic."""
        extra_count = rows - len(self.rows)
        return (
            evolve(self, rows=np.concatenate([self.rows, np.ones(extra_count, dtype=np.int8)]))
            if extra_count > 0
            else self
        )


@frozen(eq=False, kw_only=True)
class Answer:
    """The answer of one solve of a session, in the rows, units and sense of the form.

    Attributes:
        outcome: as of ``Result``.
        x, objective: if optimal or feasible.
        duals, reduced: if optimal.
        ray: if infeasible, Farkas multipliers y of the rows: for no x within its bounds does
            ``min over rows of y A x`` reach ``y b`` (signs as of duals of a minimum).
        iterations, seconds: of this solve.
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
    """A model inside a solver, created by :meth:`privopt.backends.Backend.session`.

    Answers are not checked against the rows: a user of a session proves its own bounds. Rows that are added later are
    taken as they are, while the first rows may be scaled.
    """

    @abstractmethod
    def change_costs(self, columns: Ints, values: Floats) -> None:
        """Change the objective's coefficients, in the form's sense."""

    @abstractmethod
    def change_column_bounds(self, columns: Ints, lower: Floats, upper: Floats) -> None:
        """Change the bounds of columns."""

    @abstractmethod
    def change_row_bounds(self, rows: Ints, lower: Floats, upper: Floats) -> None:
        """Change the bounds of rows."""

    @abstractmethod
    def add_rows(self, matrix: csr_array, lower: Floats, upper: Floats) -> None:
        """Append rows ``lower <= matrix x <= upper`` (sparse, over all columns)."""

    @abstractmethod
    def add_columns(
        self, costs: Floats | float, lower: Floats | float, upper: Floats | float, matrix: csr_array
    ) -> None:
        """Append columns; ``matrix`` (sparse, all rows by new columns) holds their entries."""

    @abstractmethod
    def delete_rows(self, rows: Ints) -> None:
        """Remove rows; those behind them move up."""

    @abstractmethod
    def delete_columns(self, columns: Ints) -> None:
        """Remove columns; those behind them move up."""

    @property
    @abstractmethod
    def basis(self) -> Basis | None:
        """The basis of the last solve, or None if the solver does not give one."""

    @abstractmethod
    def solve(self, *, time_limit: float | None = None, basis: Basis | None = None) -> Answer:
        """Solve the model as it is now.

        Args:
            time_limit: seconds of wall time; what the scopes of time around leave, if that is less.
            basis: to start from, and from nothing else, so that the answer does not depend on what was solved before.
                None: from the last basis if there is one for the model as it is, else from new.
        """


class ColdSession(Session):
    """A session of a backend without warm starts: every solve starts from scratch.

    Rays come from the elastic form, which pays for every missed row.

    Attributes:
        form: the model as it is now.
    """

    def __init__(self, solver: Solver, form: StandardForm) -> None:
        self._solver, self.form = solver, form

    def change_costs(self, columns: Ints, values: Floats) -> None:
        """See :class:`Session`."""
        costs = self.form.c.copy()
        costs[columns] = values
        self.form = evolve(self.form, c=costs)

    def change_column_bounds(self, columns: Ints, lower: Floats, upper: Floats) -> None:
        """See :class:`Session`."""
        low, high = self.form.col_lower.copy(), self.form.col_upper.copy()
        low[columns], high[columns] = lower, upper
        self.form = evolve(self.form, col_lower=low, col_upper=high)

    def change_row_bounds(self, rows: Ints, lower: Floats, upper: Floats) -> None:
        """See :class:`Session`."""
        low, high = self.form.row_lower.copy(), self.form.row_upper.copy()
        low[rows], high[rows] = lower, upper
        self.form = evolve(self.form, row_lower=low, row_upper=high)

    def add_rows(self, matrix: csr_array, lower: Floats, upper: Floats) -> None:
        """See :class:`Session`."""
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
        """See :class:`Session`."""
        from scipy import sparse

        form, count = self.form, matrix.shape[1]
        self.form = evolve(
            form,
            c=np.concatenate([form.c, np.broadcast_to(costs, count)]),
            A=sparse.hstack([form.A, matrix], format="csr"),
            col_lower=np.concatenate([form.col_lower, np.broadcast_to(lower, count)]),
            col_upper=np.concatenate([form.col_upper, np.broadcast_to(upper, count)]),
            integrality=np.concatenate([form.integrality, np.zeros(count, dtype=np.uint8)]),
        )

    def delete_rows(self, rows: Ints) -> None:
        """See :class:`Session`."""
        form, remaining = self.form, np.setdiff1d(np.arange(self.form.shape[0]), rows)
        self.form = evolve(
            form, A=form.A[remaining], row_lower=form.row_lower[remaining], row_upper=form.row_upper[remaining]
        )

    def delete_columns(self, columns: Ints) -> None:
        """See :class:`Session`."""
        form, remaining = self.form, np.setdiff1d(np.arange(self.form.shape[1]), columns)
        self.form = evolve(
            form,
            c=form.c[remaining],
            A=form.A[:, remaining],
            col_lower=form.col_lower[remaining],
            col_upper=form.col_upper[remaining],
            integrality=form.integrality[remaining],
            variables=(),
        )

    @property
    def basis(self) -> Basis | None:
        """None, because the backend has no warm starts."""
        return None

    def solve(self, *, time_limit: float | None = None, basis: Basis | None = None) -> Answer:
        """See :class:`Session`."""
        result = self._solver.solve(self.form, time_limit=_positive_limit(time_limit))
        ray = None
        if result.outcome is Outcome.INFEASIBLE:
            ray = elastic_ray(self.form, self._solver, time_limit)
            if ray is None:
                raise SolverError(f"{result.solver} calls a model infeasible that misses no row by {MISS_TOLERANCE}")
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


def elastic_ray(form: StandardForm, solver: Solver, time_limit: float | None = None) -> Floats | None:
    """Return multipliers of the elastic form, which minimises the total violation of rows; None if that is 0."""
    from scipy import sparse

    # Every row may be missed upwards or downwards at a cost of 1: the optimum's multipliers are a Farkas ray.
    m, n = form.shape
    eye = sparse.identity(m, format="csr")
    elastic = evolve(
        form,
        c=np.concatenate([np.zeros(n), np.ones(2 * m)]),
        c0=0.0,
        A=sparse.hstack([form.A, eye, -eye], format="csr"),
        col_lower=np.concatenate([form.col_lower, np.zeros(2 * m)]),
        col_upper=np.concatenate([form.col_upper, np.full(2 * m, np.inf)]),
        integrality=np.zeros(n + 2 * m, dtype=np.uint8),
        families=(),
        variables=(),
    )
    result = solver.solve(elastic, time_limit=_positive_limit(time_limit))
    if result.outcome is not Outcome.OPTIMAL or result.objective is None or result.objective <= MISS_TOLERANCE:
        return None
    return result.duals


def _positive_limit(seconds: float | None) -> float | None:
    return None if seconds is None else max(seconds, 0.01)
