"""Bounds on a linear program's optimum by weak duality, computed in double precision from arbitrary row multipliers.

For multipliers y with reduced costs ``r = c - A'y``, ``c x`` equals ``y (A x) + r x``. The smallest value of this sum
within the row and column bounds is therefore a lower bound on ``c x``.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from privopt.arrays import Floats, sum_products
from privopt.dsl.form import StandardForm


def weak_duality(
    form: StandardForm, cost: Floats, duals: Floats, lower: Floats, upper: Floats, *, slack: float = 0.0
) -> tuple[float, Floats]:
    """Compute a lower bound on a form's cost by weak duality, using the given row multipliers.

    The reduced costs ``cost - A'y`` of the multipliers y need not be 0. Each is multiplied by one of its column's
    bounds, and the products are added to the lower bound. Multipliers of the wrong sign are treated as 0.

    Args:
        form: The form. Only its rows are used, not its costs or column bounds.
        cost: (n,) The costs to minimise.
        duals: (m,) The multipliers of the rows, of any sign and size.
        lower, upper: (n,) The column bounds.
        slack: The tolerance for reduced costs that would be multiplied by an infinite bound. They are treated as 0 if
            none of them exceeds ``slack * max(1, s)`` in absolute value, where s is the sum of the absolute values of
            the terms of the reduced cost.

    Returns:
        The lower bound, which is -inf if the multipliers prove no bound, and the multipliers with those of the wrong
        sign set to 0.
    """
    y = _drop_wrong_signs(form, duals)
    active = np.flatnonzero(y)
    active_sides = np.where(y[active] > 0, form.row_lower[active], form.row_upper[active])
    reduced = cost - form.A.T @ y
    # If a reduced cost is positive, its product with the column is smallest at the column's lower bound, otherwise at
    # the upper one.
    column_bounds = np.where(reduced > 0, lower, upper)
    is_unbounded = ~np.isfinite(column_bounds) & (reduced != 0)
    if is_unbounded.any():
        # Rounding errors are proportional to the column's own terms. A large multiplier of a row in which the column
        # does not occur explains no reduced cost.
        magnitude = np.abs(cost[is_unbounded]) + abs(form.A[:, is_unbounded]).T @ np.abs(y)
        if (np.abs(reduced[is_unbounded]) > slack * np.maximum(1.0, magnitude)).any():
            return -np.inf, y
    is_bounded = (reduced != 0) & ~is_unbounded
    bound = sum_products(y[active], active_sides) + sum_products(reduced[is_bounded], column_bounds[is_bounded])
    return bound, y


def _drop_wrong_signs(form: StandardForm, duals: Floats) -> Floats:
    """Return a copy of a minimisation's row multipliers in which those of the wrong sign are set to 0.

    Both the given and the returned multipliers are arrays of shape (m,). A positive multiplier is valid only for a row
    with a lower bound, and a negative one only for a row with an upper bound.
    """
    is_wrong = ((duals > 0) & ~np.isfinite(form.row_lower)) | ((duals < 0) & ~np.isfinite(form.row_upper))
    return np.where(is_wrong, 0.0, duals)


def dual_bound(form: StandardForm, duals: Floats) -> float:
    """Return the bound on a form's optimum proved by the given row multipliers, or an infinite one if they prove none.

    It is a lower bound for a minimisation and an upper bound for a maximisation. If a column has no upper bound, one is
    derived, if possible, from a row with non-negative entries, such as "each record's probabilities sum to 1".

    Args:
        form: The form for which to compute the bound.
        duals: (m,) The multipliers of its rows, in its own sense.

    Raises:
        ModelError: The objective is quadratic.
    """
    form.check_linear("a bound by weak duality")
    # Maximising means minimising the negated costs, and the multipliers change their sign with the costs.
    flip = 1.0 if form.sense == "min" else -1.0
    lower_bound, _ = weak_duality(form, flip * form.c, flip * duals, *implied_bounds(form))
    return flip * lower_bound + form.c0


def proved_optimum_bound(form: StandardForm, duals: Floats, point: Floats, tolerance: float) -> float:
    """Return the bound on a linear program's optimum proved by a solver's multipliers, up to rounding errors.

    Unlike :func:`dual_bound`, this function allows columns without a bound to have small reduced costs, within rounding
    and the solver's tolerance. It assumes that such a column x satisfies ``abs(x) <= 10 * max(1, abs(v))``, where v is
    its value at the solver's point. The bound is weakened by the largest amount that these reduced costs can then
    contribute.

    Args:
        form: The linear program for which to compute the bound.
        duals: (m,) The multipliers of its rows, in its own sense.
        point: (n,) The solver's point.
        tolerance: The solver's tolerance for reduced costs, in units of the objective.

    Returns:
        The bound in the form's own sense, which is infinite if the multipliers prove none.

    Raises:
        ModelError: The objective is quadratic.
    """
    form.check_linear("a bound by weak duality")
    flip = 1.0 if form.sense == "min" else -1.0
    cost = flip * form.c
    lower, upper = implied_bounds(form)
    lower_bound, y = weak_duality(form, cost, flip * duals, lower, upper)
    if np.isfinite(lower_bound):
        return flip * lower_bound + form.c0
    reduced = cost - form.A.T @ y
    unbounded = np.flatnonzero(~np.isfinite(np.where(reduced > 0, lower, upper)) & (reduced != 0))
    # The rounding error of a reduced cost is proportional to the sum of its terms' absolute values.
    magnitude = np.abs(cost[unbounded]) + abs(form.A[:, unbounded]).T @ np.abs(y)
    # A larger reduced cost cannot be explained by rounding or by the solver's tolerance, so nothing is proved.
    if (np.abs(reduced[unbounded]) > 2 * tolerance + 1e-9 * magnitude).any():
        return -flip * np.inf  # No bound: -inf for a minimum, inf for a maximum.
    # Each such column is assumed to be at most ten times its value in the solver's point, or 10. The bound is lowered
    # by the most that the reduced costs can then contribute.
    reach = 10.0 * np.maximum(np.abs(point[unbounded]), 1.0)
    largest_error = sum_products(np.abs(reduced[unbounded]), reach)
    # If a missing column bound is set to 0, the column contributes nothing in weak_duality.
    lower, upper = lower.copy(), upper.copy()
    lower[unbounded] = np.where(np.isfinite(lower[unbounded]), lower[unbounded], 0.0)
    upper[unbounded] = np.where(np.isfinite(upper[unbounded]), upper[unbounded], 0.0)
    lower_bound, _ = weak_duality(form, cost, y, lower, upper)
    return flip * (lower_bound - largest_error) + form.c0


ULP: Final = 2.0**-52
"""The relative distance between neighbouring doubles near 1. A rounded operation is off by at most half of this
distance."""

MAX_LOG_RATIO: Final = 700.0
"""The largest exponent L of a privacy row ``z_i <= exp(L) z_j`` that the matrix can represent.

Because exp overflows above 709.8, the matrix contains the exponential of this value for all larger exponents, which is
a smaller factor than exp(L). ``FamilyBlock.log_ratio`` contains the original L."""


def rigorous_bound(form: StandardForm, duals: Floats) -> float:
    """Return a bound on a linear program's optimum that is valid despite all rounding errors.

    The multipliers may be any numbers. If they prove nothing, the bound is infinite.

    The result is the bound of :func:`dual_bound`, weakened by upper bounds on the rounding errors of all steps. Costs
    and the entries of privacy rows (doubles near ``exp(eps d)``) are assumed to differ from their true values by at
    most a few units in the last place. The bounds of rows and columns are assumed to be exact.

    Args:
        form: The linear program. The bound is also valid if some of its columns must be integers.
        duals: (m,) The multipliers of its rows, in its own sense.

    Raises:
        ModelError: The objective is quadratic.
    """
    form.check_linear("a rigorous bound")
    flip = 1.0 if form.sense == "min" else -1.0
    cost, y, matrix = flip * form.c, flip * duals, form.A.tocsr(copy=True)
    lower, upper = form.col_lower, implied_bounds(form)[1]
    # An upper bound that was derived from a row has been rounded.
    upper = np.where(upper < form.col_upper, np.nextafter(upper, np.inf), upper)
    # Each entry and cost may be off by a few units in its last place. The allowance of 8 is generous.
    entry_error = np.full(matrix.shape[0], 8 * ULP)
    is_usable = np.isfinite(y)
    for family in form.families:
        if family.log_ratio is not None:
            # The error of an exponent is some units in its last place, which exp multiplies by the exponent.
            entry_error[family.start : family.stop] += 4 * ULP * np.abs(np.minimum(family.log_ratio, MAX_LOG_RATIO))
            is_usable[family.start : family.stop] &= family.log_ratio <= MAX_LOG_RATIO
    row_of = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    is_usable[row_of[~np.isfinite(matrix.data)]] = False
    # Rows without usable multipliers do not contribute. Their entries are set to 0, so that inf times 0 does not become
    # NaN.
    matrix.data[~is_usable[row_of]] = 0.0
    y = _drop_wrong_signs(form, np.where(is_usable, y, 0.0))
    reduced = cost - matrix.T @ y
    # The error of a sum of k terms is at most k units in the last place of the sum of their absolute values. The terms
    # are a column's entries and its cost, and 7 more units allow for the error of the cost itself.
    terms = np.diff(matrix.tocsc().indptr) + 8
    sizes = np.abs(cost) + abs(matrix).T @ np.abs(y)
    error = terms * ULP * sizes + abs(matrix).T @ (entry_error * np.abs(y)) * (1 + terms * ULP)
    is_free_of_error = sizes == 0
    error = np.where(is_free_of_error, 0.0, error + np.finfo(float).tiny)
    # The product of a reduced cost and its column, each of which lies in an interval, is smallest at one of the
    # corners.
    products = [
        np.where((end == 0) | (bounds == 0), 0.0, end * np.where(end == 0, 1.0, bounds))
        for end in (reduced - error, reduced + error)
        for bounds in (lower, upper)
    ]
    smallest = np.minimum.reduce(products)
    active = np.flatnonzero(y)
    sides = np.where(y[active] > 0, form.row_lower[active], form.row_upper[active])
    parts = np.concatenate([smallest, y[active] * sides])
    if not np.isfinite(parts).all():
        return -flip * np.inf
    # fsum rounds only at its end. Each product was rounded once, and underflow loses less than tiny.
    slack = 2 * ULP * math.fsum(np.abs(parts).tolist()) + len(parts) * np.finfo(float).tiny
    lower_bound = math.fsum([*parts.tolist(), flip * form.c0, -slack - 2 * ULP * abs(form.c0)])
    return float(flip * np.nextafter(lower_bound, -np.inf))


def implied_bounds(form: StandardForm) -> tuple[Floats, Floats]:
    """Return the lower and upper column bounds, with missing upper bounds derived from rows.

    Both are arrays of shape (n,). If a row ``sum a x <= b`` has only non-negative coefficients a and non-negative
    columns x, each of its columns with ``a > 0`` satisfies ``x <= b / a``. An upper bound remains infinite if there is
    no such row. If any upper bound is missing, finite upper bounds may be lowered in the same way.
    """
    lower, upper = form.col_lower, form.col_upper.copy()
    matrix = form.A
    if not np.isinf(upper).any() or matrix.nnz == 0:
        return lower, upper
    row_of = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    # A row bounds each of its columns separately only if none of its terms can be negative.
    has_negative = np.zeros(matrix.shape[0], dtype=bool)
    has_negative[row_of[(matrix.data < 0) | (lower[matrix.indices] < 0)]] = True
    is_usable = ~has_negative[row_of] & np.isfinite(form.row_upper)[row_of] & (matrix.data > 0)
    # A tiny coefficient gives an infinite bound, which is no bound.
    with np.errstate(over="ignore"):
        np.minimum.at(upper, matrix.indices[is_usable], form.row_upper[row_of[is_usable]] / matrix.data[is_usable])
    return lower, upper
