"""Reformulate semicontinuous columns with binary columns, so that solvers only need to support integer columns.

HiGHS supports semicontinuous columns and reformulates them in the same way. Here, they are reformulated before the
model reaches a solver. All solvers therefore receive the same model, and their answers can be checked in the same way
as for any other integer program.
"""

from __future__ import annotations

import numpy as np
from attrs import evolve
from scipy import sparse

from privopt.arrays import Floats
from privopt.dsl.form import FamilyBlock, StandardForm, VariableBlock
from privopt.dsl.outcome import Result
from privopt.dsl.sets import IndexSet

ROWS_NAME = "0 or within bounds"
"""The name of the family of rows that link semicontinuous columns to their binaries."""


def expand_semicontinuous(form: StandardForm) -> StandardForm:
    """Return a form in which each semicontinuous column is replaced by a continuous column and a binary.

    A column x with bounds l and u is linked to its binary h by ``l h <= x <= u h``, so x is 0 if h is 0. The new
    binaries come after the form's columns, and the new rows come after the form's rows. A form without semicontinuous
    columns is returned unchanged.
    """
    columns = form.semicontinuous_columns
    if not len(columns):
        return form
    (m, n), count = form.shape, len(columns)
    # The new rows are x - l h >= 0 and x - u h <= 0, where x are the selected columns and h their binaries.
    identity = sparse.identity(count, format="csr")
    selection = sparse.csr_matrix((np.ones(count), (np.arange(count), columns)), shape=(count, n))
    lower, upper = form.col_lower[columns], form.col_upper[columns]
    at_least = sparse.hstack([selection, -identity.multiply(lower[:, None])])
    at_most = sparse.hstack([selection, -identity.multiply(upper[:, None])])
    infinite = np.full(count, np.inf)
    names = IndexSet("columns", [form.column_name(int(column)) for column in columns])
    rows = FamilyBlock(
        name=ROWS_NAME,
        start=m,
        stop=m + 2 * count,
        indices=("column",),
        sets=(names,),
        positions=(np.tile(np.arange(count), 2),),
    )
    return evolve(
        form,
        c=np.concatenate([form.c, np.zeros(count)]),
        A=sparse.vstack([sparse.hstack([form.A, sparse.csr_matrix((m, count))]), at_least, at_most], format="csr"),
        row_lower=np.concatenate([form.row_lower, np.zeros(count), -infinite]),
        row_upper=np.concatenate([form.row_upper, infinite, np.zeros(count)]),
        # In integrality, 1 marks integer columns and 2 semicontinuous ones.
        col_lower=np.concatenate([np.where(form.integrality == 2, 0.0, form.col_lower), np.zeros(count)]),
        col_upper=np.concatenate([form.col_upper, np.ones(count)]),
        integrality=np.concatenate([np.where(form.integrality == 2, 0, form.integrality), np.ones(count)]),
        Q=None if form.Q is None else sparse.block_diag([form.Q, sparse.csr_matrix((count, count))], format="csr"),
        families=(*form.families, rows),
        variables=(*form.variables, VariableBlock(name="nonzero", start=n, sets=(names,))),
    )


def expand_start(form: StandardForm, start: Floats) -> Floats:
    """Extend a starting point to a form expanded by :func:`expand_semicontinuous`.

    Each added binary is set to 1 if its semicontinuous column is nonzero in the starting point, to 0 if the column is
    zero, and to NaN if the column's value is missing.

    Args:
        form: The form before the expansion.
        start: (n,) The value of each of the form's columns, or NaN if it is missing.
    """
    values = start[form.semicontinuous_columns]
    return np.concatenate([start, np.where(np.isnan(values), np.nan, values != 0)])


def drop_binaries(form: StandardForm, result: Result) -> Result:
    """Convert a result for a form expanded by :func:`expand_semicontinuous` to a result for the original form.

    Semicontinuous columns may be off by the solver's tolerance, so they are set to exactly 0 or clipped to their
    bounds.

    Args:
        form: The form before the expansion.
        result: The result for the expanded form. It is returned unchanged if it contains no point.
    """
    if result.x is None:
        return result
    columns, n = form.semicontinuous_columns, form.shape[1]
    x, is_used = result.x[:n].copy(), result.x[n:] > 0.5
    x[columns] = np.where(is_used, np.clip(x[columns], form.col_lower[columns], form.col_upper[columns]), 0.0)
    return evolve(result, x=x, objective=form.objective_at(x))
