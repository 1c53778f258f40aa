"""Bounds by weak duality, in doubles, from any multipliers of a linear form's rows.

For multipliers y with reduced costs ``r = c - A'y``, the smallest value of ``y (A x) + r x`` over the rows' sides and
the columns' bounds is a lower bound on ``c x``.
"""

from __future__ import annotations

import numpy as np

from privopt.arrays import Floats
from privopt.dsl.form import StandardForm


def weak_duality(
    form: StandardForm, cost: Floats, duals: Floats, lower: Floats, upper: Floats, *, slack: float = 0.0
) -> tuple[float, Floats]:
    """Return the lower bound that multipliers of a form's rows prove, for columns between ``lower`` and ``upper``.

    The columns' bounds take up what the multipliers leave. Multipliers of the wrong sign count as 0.

    Args:
        form: whose rows count, and nothing else.
        cost: (n,) to be minimised.
        duals: (m,) any multipliers.
        lower, upper: (n,) bounds of the columns.
        slack: a reduced cost up to this (times the largest multiplier, if that is above 1) on a column without the
            bound that it calls for is the solver's rounding.

    Returns:
        The bound, -inf if there is none; and the multipliers without those of the wrong sign.
    """
    # A multiplier needs a side to multiply: a positive one a lower side, a negative one an upper side.
    y = np.where((duals > 0) & ~np.isfinite(form.row_lower), 0.0, duals)
    y = np.where((y < 0) & ~np.isfinite(form.row_upper), 0.0, y)
    active = np.flatnonzero(y)
    active_sides = np.where(y[active] > 0, form.row_lower[active], form.row_upper[active])
    reduced = cost - form.A.T @ y
    # Each reduced cost takes the bound of its column at which it is smallest.
    column_bounds = np.where(reduced > 0, lower, upper)
    is_unbounded = ~np.isfinite(column_bounds) & (reduced != 0)
    if (
        is_unbounded.any()
        and (np.abs(reduced[is_unbounded]) > slack * max(1.0, float(np.abs(y).max(initial=0.0)))).any()
    ):
        return -np.inf, y
    is_bounded = (reduced != 0) & ~is_unbounded
    return float(y[active] @ active_sides) + float(reduced[is_bounded] @ column_bounds[is_bounded]), y


def dual_bound(form: StandardForm, duals: Floats) -> float:
    """Return a bound on the objective from any multipliers, in the form's sense; infinite if they prove nothing.

    Columns without a finite bound get one from rows of non-negative entries (as mass rows have) where there is such.
    """
    flip = 1.0 if form.sense == "min" else -1.0
    lower_bound, _ = weak_duality(form, flip * form.c, flip * duals, *implied_bounds(form))
    return flip * lower_bound + form.c0


def proved_optimum_bound(form: StandardForm, duals: Floats, point: Floats, tolerance: float) -> float:
    """Return the bound on a linear program's optimum that a solver's multipliers prove, up to rounding.

    Unlike :func:`dual_bound`, it forgives a reduced cost of a free column that is as small as rounding and the solver's
    tolerance make it. The bound is lowered by what that reduced cost can be worth at ten times the point.

    Args:
        form: The linear program.
        duals: Multipliers of its rows, in its own sense, shape (m,).
        point: The solver's point, shape (n,).
        tolerance: The solver's tolerance on reduced costs, in units of the objective.

    Returns:
        The bound in the form's own sense; infinite if the multipliers prove nothing.
    """
    strict_bound = dual_bound(form, duals)
    if np.isfinite(strict_bound):
        return strict_bound
    flip = 1.0 if form.sense == "min" else -1.0
    cost, y = flip * form.c, flip * duals
    lower, upper = implied_bounds(form)
    y = np.where(((y > 0) & ~np.isfinite(form.row_lower)) | ((y < 0) & ~np.isfinite(form.row_upper)), 0.0, y)
    reduced = cost - form.A.T @ y
    unbounded = np.flatnonzero(~np.isfinite(np.where(reduced > 0, lower, upper)) & (reduced != 0))
    magnitude = np.abs(cost[unbounded]) + abs(form.A[:, unbounded]).T @ np.abs(y)
    if (np.abs(reduced[unbounded]) > 2 * tolerance + 1e-9 * magnitude).any():
        return -flip * np.inf
    reach = 10.0 * np.maximum(np.abs(point[unbounded]), 1.0)
    worth = float(np.abs(reduced[unbounded]) @ reach)
    # weak_duality counts a column at 0 if it is given 0 for the bound that the column lacks
    lower, upper = lower.copy(), upper.copy()
    lower[unbounded] = np.where(np.isfinite(lower[unbounded]), lower[unbounded], 0.0)
    upper[unbounded] = np.where(np.isfinite(upper[unbounded]), upper[unbounded], 0.0)
    lower_bound, _ = weak_duality(form, cost, y, lower, upper)
    return flip * (lower_bound - worth) + form.c0


def implied_bounds(form: StandardForm) -> tuple[Floats, Floats]:
    """Return the column bounds, with upper ones from rows ``sum a x <= b`` of non-negative entries and columns."""
    lower, upper = form.col_lower, form.col_upper.copy()
    matrix = form.A
    if not np.isinf(upper).any() or matrix.nnz == 0:
        return lower, upper
    row_of = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    # A row bounds each of its columns alone only if none of the others can be negative.
    has_negative = np.zeros(matrix.shape[0], dtype=bool)
    has_negative[row_of[(matrix.data < 0) | (lower[matrix.indices] < 0)]] = True
    is_usable = ~has_negative[row_of] & np.isfinite(form.row_upper)[row_of] & (matrix.data > 0)
    with np.errstate(over="ignore"):
        np.minimum.at(upper, matrix.indices[is_usable], form.row_upper[row_of[is_usable]] / matrix.data[is_usable])
    return lower, upper
