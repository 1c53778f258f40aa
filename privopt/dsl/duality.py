"""Bounds by weak duality, in doubles, from any multipliers of a linear form's rows."""

from __future__ import annotations

import numpy as np

from privopt.arrays import Floats
from privopt.dsl.form import StandardForm


def weak_duality(
    form: StandardForm, cost: Floats, duals: Floats, lower: Floats, upper: Floats, *, slack: float = 0.0
) -> tuple[float, Floats]:
    """Return the lower bound that multipliers of a form's rows prove, columns between ``lower`` and ``upper``.

    The columns' bounds take up what the multipliers leave. Multipliers of the wrong sign count as 0.

    Args:
        form: whose rows count, and nothing else.
        cost: (n,) to be minimised.
        duals: (m,) any multipliers.
        lower, upper: (n,) bounds of the columns.
        slack: a reduced cost up to this (times the largest multiplier, where that is above 1) on a column without the
            bound that it calls for is the solver's rounding.

    Returns:
        The bound, -inf where there is none; and the multipliers without those of the wrong sign.
    """
    y = np.where((duals > 0) & ~np.isfinite(form.row_lower), 0.0, duals)
    y = np.where((y < 0) & ~np.isfinite(form.row_upper), 0.0, y)
    used = np.flatnonzero(y)
    side = np.where(y[used] > 0, form.row_lower[used], form.row_upper[used])
    reduced = cost - form.A.T @ y
    far = np.where(reduced > 0, lower, upper)
    lost = ~np.isfinite(far) & (reduced != 0)
    if lost.any() and (np.abs(reduced[lost]) > slack * max(1.0, float(np.abs(y).max(initial=0.0)))).any():
        return -np.inf, y
    live = (reduced != 0) & ~lost
    return float(y[used] @ side) + float(reduced[live] @ far[live]), y


def dual_bound(form: StandardForm, duals: Floats) -> float:
    """Bound on the objective from any multipliers, in its own sense; infinite where they bound nothing.

    Columns without a finite bound get one from rows of non-negative entries (as mass rows have) where there is such.
    """
    flip = 1.0 if form.sense == "min" else -1.0
    least, _ = weak_duality(form, flip * form.c, flip * duals, *implied_bounds(form))
    return flip * least + form.c0


def implied_bounds(form: StandardForm) -> tuple[Floats, Floats]:
    """Return the column bounds, with upper ones from rows ``sum a x <= b`` of non-negative entries and columns."""
    lower, upper = form.col_lower, form.col_upper.copy()
    matrix = form.A
    if not np.isinf(upper).any() or matrix.nnz == 0:
        return lower, upper
    row_of = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    bad = np.zeros(matrix.shape[0], dtype=bool)
    bad[row_of[(matrix.data < 0) | (lower[matrix.indices] < 0)]] = True
    good = ~bad[row_of] & np.isfinite(form.row_upper)[row_of] & (matrix.data > 0)
    with np.errstate(over="ignore"):
        np.minimum.at(upper, matrix.indices[good], form.row_upper[row_of[good]] / matrix.data[good])
    return lower, upper
