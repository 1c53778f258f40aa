"""Solve the connected components of a model separately until a row joins them.

Source: BD-mDP, Property 3.1: components share no privacy row, so that each is a problem of its own. In a master
cuts join the components of the records that they speak of.
"""

from __future__ import annotations

import time

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph, csr_array

from privopt.arrays import Floats, Ints
from privopt.backends import Answer, Basis, Outcome, get
from privopt.backends.session import ColdSession
from privopt.decompose.split import restrict
from privopt.dsl.form import StandardForm

LEAST = 2_000
"""Components of fewer columns are solved together, as many as make so many."""


def components(form: StandardForm, least: int = LEAST) -> list[tuple[Ints, Ints]]:
    """Rows and columns of each component, small ones gathered until they have ``least`` columns.

    Columns without a row and rows without a column count as components of their own.
    """
    m, n = form.shape
    entries = form.A.tocoo()
    joined = sparse.coo_matrix((np.ones(len(entries.row)), (entries.row, m + entries.col)), shape=(m + n, m + n))
    count, label = csgraph.connected_components(joined, directed=False)
    columns = np.bincount(label[m:], minlength=count)
    before = np.concatenate([[0], np.cumsum(columns)[:-1]])
    gathered = np.where(columns >= least, count + np.arange(count), before // least)[label]
    return [(np.flatnonzero(gathered[:m] == k), np.flatnonzero(gathered[m:] == k)) for k in np.unique(gathered)]


class Apart(ColdSession):
    """A model's components solved one after the other; a model of one component as it stands, warm where that goes.

    Which way depends on the rows there are, not on what was solved before, so that a run which goes on from a
    checkpoint does as the run that wrote it.

    Attributes:
        parts: components in the last solve.
    """

    def __init__(self, form: StandardForm, solver: str, least: int | None = None) -> None:
        self._backend = get(solver)
        super().__init__(self._backend, form)
        self._least = LEAST if least is None else least
        self._whole = self._backend.session(form)
        self._basis: Basis | None = None
        self.parts = 0

    def change_column_bounds(self, columns: Ints, lower: Floats, upper: Floats) -> None:
        """Change the bounds of columns."""
        super().change_column_bounds(columns, lower, upper)
        self._whole.change_column_bounds(columns, lower, upper)

    def change_row_bounds(self, rows: Ints, lower: Floats, upper: Floats) -> None:
        """Change the bounds of rows."""
        super().change_row_bounds(rows, lower, upper)
        self._whole.change_row_bounds(rows, lower, upper)

    def add_rows(self, matrix: csr_array, lower: Floats, upper: Floats) -> None:
        """Append rows."""
        super().add_rows(matrix, lower, upper)
        self._whole.add_rows(matrix, lower, upper)

    def delete_rows(self, rows: Ints) -> None:
        """Remove rows."""
        super().delete_rows(rows)
        self._whole.delete_rows(rows)

    @property
    def basis(self) -> Basis | None:
        """The basis of the last solve."""
        return self._basis

    def solve(self, *, time_limit: float | None = None, basis: Basis | None = None) -> Answer:
        """Solve from a basis, or from new; an infeasible answer of a model in components has no ray."""
        found = components(self.form, self._least)
        self.parts = len(found)
        if len(found) <= 1:
            answer = self._whole.solve(time_limit=time_limit, basis=basis)
            self._basis = self._whole.basis
        else:
            answer, self._basis = self._one_by_one(found, time_limit, basis)
        return answer

    def _one_by_one(
        self, found: list[tuple[Ints, Ints]], time_limit: float | None, basis: Basis | None
    ) -> tuple[Answer, Basis | None]:
        started = time.monotonic()
        form = self.form
        m, n = form.shape
        whole = None if basis is None else basis.resized(m)
        x, reduced, duals = np.zeros(n), np.zeros(n), np.zeros(m)
        ends = Basis(columns=np.zeros(n, dtype=np.int8), rows=np.ones(m, dtype=np.int8))
        kept, iterations, objective = True, 0, form.c0
        for rows, columns in found:
            part, order = restrict(form, rows, columns)
            left = None if time_limit is None else max(0.0, time_limit - (time.monotonic() - started))
            start = None if whole is None else Basis(columns=whole.columns[columns], rows=whole.rows[order])
            session = self._backend.session(part)
            answer, end = session.solve(time_limit=left, basis=start), session.basis
            iterations += answer.iterations
            if answer.outcome is not Outcome.OPTIMAL or answer.x is None or answer.duals is None:
                seconds = time.monotonic() - started
                return Answer(outcome=answer.outcome, iterations=iterations, seconds=seconds), None
            x[columns], duals[order] = answer.x, answer.duals
            if answer.reduced is not None:
                reduced[columns] = answer.reduced
            objective += answer.objective or 0.0
            kept = kept and end is not None
            if end is not None:
                ends.columns[columns], ends.rows[order] = end.columns, end.rows
        answer = Answer(
            outcome=Outcome.OPTIMAL,
            x=x,
            objective=objective,
            duals=duals,
            reduced=reduced,
            iterations=iterations,
            seconds=time.monotonic() - started,
        )
        return answer, ends if kept else None
