"""An LP that is changed and solved again: warm inside HiGHS, or from new by any backend (CBC).

Every solve starts from a basis that is handed in, so that an answer depends on the model and on that basis, not on
which worker solved what before: runs are the same wherever they ran, and from a checkpoint on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray
from scipy import sparse

from privopt.backends import Outcome, get
from privopt.backends.highs import Answer, Session
from privopt.dsl.form import FloatArray, StandardForm
from privopt.errors import SolverError

__all__ = ["Basis", "Cold", "Engine", "Warm", "elastic_ray", "engine"]

LOOSE = 1e-7
"""Tolerance of the last attempt; bounds are proved from multipliers, so that it costs no honesty."""

ELASTIC = 1e-7
"""Infeasibility below this is the solver's tolerance."""


@frozen(eq=False, kw_only=True)
class Basis:
    """Where each column and row of a basis stands (HiGHS's numbers), as arrays that travel."""

    columns: NDArray[np.int8]
    rows: NDArray[np.int8]

    def resized(self, rows: int) -> Basis:
        """The same with rows appended, basic as new ones are."""
        more = rows - len(self.rows)
        return evolve(self, rows=np.concatenate([self.rows, np.ones(more, dtype=np.int8)])) if more > 0 else self


class Engine:
    """What a decomposer asks of a solver."""

    def row_bounds(self, rows: Any, lower: FloatArray, upper: FloatArray) -> None:
        """New sides of rows."""
        raise NotImplementedError

    def column_bounds(self, columns: Any, lower: FloatArray, upper: FloatArray) -> None:
        """New bounds of columns."""
        raise NotImplementedError

    def add_rows(self, matrix: Any, lower: FloatArray, upper: FloatArray) -> None:
        """Append rows."""
        raise NotImplementedError

    def delete_rows(self, rows: Any) -> None:
        """Remove rows; those behind move up."""
        raise NotImplementedError

    def solve(self, time_limit: float | None, basis: Basis | None) -> tuple[Answer, Basis | None]:
        """Solve from a basis (from new where None); an infeasible answer has its ray.

        Raises:
            SolverError: the solver failed.
        """
        raise NotImplementedError


class Warm(Engine):
    """Inside HiGHS."""

    def __init__(self, form: StandardForm) -> None:
        self._session = Session(form)
        self._changed = False

    def row_bounds(self, rows: Any, lower: FloatArray, upper: FloatArray) -> None:
        """New sides of rows."""
        self._session.change_row_bounds(rows, lower, upper)

    def column_bounds(self, columns: Any, lower: FloatArray, upper: FloatArray) -> None:
        """New bounds of columns."""
        self._session.change_column_bounds(columns, lower, upper)

    def add_rows(self, matrix: Any, lower: FloatArray, upper: FloatArray) -> None:
        """Append rows."""
        self._session.add_rows(matrix, lower, upper)
        self._changed = True

    def delete_rows(self, rows: Any) -> None:
        """Remove rows."""
        self._session.delete_rows(rows)
        self._changed = True

    def solve(self, time_limit: float | None, basis: Basis | None) -> tuple[Answer, Basis | None]:
        """Solve from a basis, or from new; where HiGHS gives up, once more from new, then with a looser tolerance."""
        if self._changed:
            self._session.renew()
            self._changed = False
        if basis is not None:
            self._session.start_from(_to_highs(basis.resized(self._session.shape[0])))
        try:
            answer = self._session.solve(time_limit=time_limit)
        except SolverError:
            answer = self._again(time_limit)
        return answer, _from_highs(self._session.basis)

    def _again(self, time_limit: float | None) -> Answer:
        self._changed = True  # the next solve begins as if this had not been
        self._session.renew()
        try:
            return self._session.solve(time_limit=time_limit)
        except SolverError:
            self._session.renew(LOOSE)
            return self._session.solve(time_limit=time_limit)


class Cold(Engine):
    """By a backend without warm starts: rays come from the elastic form, which pays for every missed row."""

    def __init__(self, form: StandardForm, solver: str) -> None:
        self._form = form
        self._solver = get(solver)

    @property
    def form(self) -> StandardForm:
        """The model as it is now."""
        return self._form

    def row_bounds(self, rows: Any, lower: FloatArray, upper: FloatArray) -> None:
        """New sides of rows."""
        low, high = self._form.row_lower.copy(), self._form.row_upper.copy()
        low[rows], high[rows] = lower, upper
        self._form = evolve(self._form, row_lower=low, row_upper=high)

    def column_bounds(self, columns: Any, lower: FloatArray, upper: FloatArray) -> None:
        """New bounds of columns."""
        low, high = self._form.col_lower.copy(), self._form.col_upper.copy()
        low[columns], high[columns] = lower, upper
        self._form = evolve(self._form, col_lower=low, col_upper=high)

    def add_rows(self, matrix: Any, lower: FloatArray, upper: FloatArray) -> None:
        """Append rows."""
        form = self._form
        self._form = evolve(
            form,
            A=sparse.vstack([form.A, matrix], format="csr"),
            row_lower=np.concatenate([form.row_lower, lower]),
            row_upper=np.concatenate([form.row_upper, upper]),
        )

    def delete_rows(self, rows: Any) -> None:
        """Remove rows."""
        form = self._form
        kept = np.setdiff1d(np.arange(form.shape[0]), rows)
        self._form = evolve(form, A=form.A[kept], row_lower=form.row_lower[kept], row_upper=form.row_upper[kept])

    def solve(self, time_limit: float | None, basis: Basis | None) -> tuple[Answer, Basis | None]:
        """Solve from a basis, or from new."""
        result = self._solver.solve(self._form, time_limit=_positive(time_limit))
        ray = None
        if result.outcome is Outcome.INFEASIBLE:
            ray = elastic_ray(self._form, self._solver.name, time_limit)
            if ray is None:
                raise SolverError(f"{result.solver} calls a block infeasible that misses no row by more than {ELASTIC}")
        answer = Answer(
            outcome=result.outcome,
            x=result.x,
            objective=result.objective,
            duals=result.duals,
            reduced=result.reduced,
            ray=ray,
            iterations=result.iterations,
            seconds=result.seconds,
        )
        return answer, None


def elastic_ray(form: StandardForm, solver: str, time_limit: float | None) -> FloatArray | None:
    """Multipliers of the elastic form, whose objective is the least total by which rows are missed; None where 0."""
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
    result = get(solver).solve(elastic, time_limit=_positive(time_limit))
    if result.outcome is not Outcome.OPTIMAL or result.objective is None or result.objective <= ELASTIC:
        return None
    return result.duals


def engine(form: StandardForm, solver: str) -> Engine:
    """The engine for a solver: warm where it can be."""
    return Warm(form) if solver == "highs" else Cold(form, solver)


def _positive(seconds: float | None) -> float | None:
    return None if seconds is None else max(seconds, 0.01)


def _from_highs(basis: Any) -> Basis:
    return Basis(
        columns=np.array([int(s) for s in basis.col_status], dtype=np.int8),
        rows=np.array([int(s) for s in basis.row_status], dtype=np.int8),
    )


def _to_highs(basis: Basis) -> Any:
    import highspy

    kinds = [highspy.HighsBasisStatus(number) for number in range(5)]
    made = highspy.HighsBasis()
    made.col_status = [kinds[s] for s in basis.columns.tolist()]
    made.row_status = [kinds[s] for s in basis.rows.tolist()]
    made.valid = True
    return made
