"""Check a solver's answer (point, row values, objective, bound and status) in the units of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import evolve
from scipy import sparse

from privopt.arrays import Floats, sum_products
from privopt.backends.raw import FailedCheckError, Raw, RejectedAnswerError
from privopt.dsl.condition import WIDE_ROW_ADVICE, ScaledForm, tightening_cost
from privopt.dsl.duality import proved_optimum_bound
from privopt.dsl.form import StandardForm
from privopt.dsl.outcome import Outcome, Result
from privopt.errors import SolverError

ROW_TOLERANCE = 1e-6
"""The largest accepted violation of a scaled row, or of a column bound (relative to 1 plus the bound's magnitude)."""
ROUNDING = 1e-11
"""The allowance for rounding errors in a row, relative to the absolute values of its terms and bounds."""
INTEGER_TOLERANCE = 1e-5
"""The largest accepted distance between an integer column's value and the integer that it is then rounded to."""
LP_GAP = 1e-6
"""The largest accepted relative gap between a linear program's optimum and the bound proved by its multipliers."""
COLUMN_TOLERANCE = 1e-9
"""A solver's tolerance on rows and columns."""
COST_TOLERANCE = 1e-7
"""The loosest tolerance on scaled reduced costs used by any backend."""
MIP_RESOLUTION = 1e-5
"""The largest improvement in scaled costs that a search over integers can miss, however small the gap is."""
WIDE_SPAN = 1e7
"""The ratio of a violated row's largest to smallest coefficient above which the message mentions this spread as a
likely cause."""


def check_answer(conditioned: ScaledForm, raw: Raw, solver: str, gap: float = 1e-6) -> Result:
    """Check a solver's answer, and convert it to the form's rows, units and sense.

    Args:
        conditioned: The scaled model that was passed to the solver.
        raw: The solver's answer.
        solver: The name and version of the solver, for messages.
        gap: The relative gap that was requested for a search over integers.

    Raises:
        FailedCheckError: The answer contradicts itself or the model. The error contains the point if it is feasible.
        RejectedAnswerError: The solver gave up.
    """
    if raw.outcome is None:
        raise RejectedAnswerError(f"{solver} gave up: {raw.message}")
    result = Result(
        outcome=raw.outcome,
        solver=solver,
        seconds=raw.seconds,
        iterations=raw.iterations,
        message=raw.message,
        tightening=conditioned.tightening,
    )
    if raw.outcome is Outcome.UNBOUNDED and not can_be_unbounded(conditioned.form):
        raise FailedCheckError(
            f"{solver} calls the model unbounded, although the bounds of its columns bound the objective"
        )
    bound = None if raw.bound is None or not np.isfinite(raw.bound) else float(conditioned.bound(raw.bound))
    if raw.outcome not in (Outcome.OPTIMAL, Outcome.FEASIBLE):
        # A bound for tightened rows does not bound the original model. For a linear program, bounds are accepted only
        # if multipliers prove them.
        has_bound = raw.outcome is Outcome.STOPPED and conditioned.tightening is None and conditioned.form.is_mip
        return evolve(result, bound=bound if has_bound else None)
    if raw.x is None:
        raise FailedCheckError(f"{solver} calls the model {raw.outcome.value} and gives no vector")
    try:
        x, violation = check_vector(conditioned, raw.x)
    except SolverError as error:
        # If the solve of a linear program was cut short, it may not have reached a feasible vector yet.
        if raw.outcome is Outcome.FEASIBLE and not conditioned.form.is_mip:
            return evolve(result, outcome=Outcome.STOPPED, message=f"its vector is not feasible: {error}")
        raise FailedCheckError(f"{solver}: {error}") from None
    result = evolve(result, x=x, violation=violation, objective=conditioned.objective(x))
    if conditioned.form.is_mip:
        return _check_integer_bound(conditioned, result, bound, gap)
    return _check_multipliers(conditioned, result, raw)


def _check_integer_bound(conditioned: ScaledForm, result: Result, bound: float | None, gap: float) -> Result:
    """Check that the bound of an integer program does not contradict the objective of the point.

    If the solver reports the point as optimal, the bound must also be within the requested gap of the objective.

    Args:
        conditioned: The scaled model that was solved.
        result: The answer with its checked point.
        bound: The bound reported by the solver, in the form's sense and units, or None if there is none.
        gap: The requested relative gap.

    Returns:
        The result with the bound, or without a bound if privacy rows ``z_i <= exp(L) z_j`` were tightened.

    Raises:
        FailedCheckError: The bound contradicts the point, or the point is reported as optimal although there is no
            bound within the gap.
    """
    form, objective, tightening = conditioned.form, float(result.objective or 0.0), result.tightening
    if bound is None:
        if result.outcome is Outcome.OPTIMAL:
            text = f"{result.solver} calls a point of objective {objective:.9g} optimal, and gives no bound"
            raise FailedCheckError(text, evolve(result, outcome=Outcome.FEASIBLE))
        return result
    flip = 1.0 if form.sense == "min" else -1.0
    rounding = 1e-9 * cost_magnitude(form, result.x) + MIP_RESOLUTION / abs(conditioned.cost_scale)
    # If positive, the bound contradicts the point. If negative, its size is the most by which the point may miss the
    # optimum.
    excess = flip * (bound - objective)
    if excess > 1e-7 * abs(objective) + rounding:
        text = f"{result.solver} gives the bound {bound:.9g} for a point of objective {objective:.9g}"
        raise FailedCheckError(text, evolve(result, outcome=Outcome.FEASIBLE, bound=None))
    # If the bound lies beyond the point only because of rounding, it is moved to the point.
    if excess > 0.0:
        bound = objective
    is_too_far = -excess > max(gap, 1e-7) * max(abs(objective), abs(bound)) + rounding
    if result.outcome is Outcome.OPTIMAL and is_too_far:
        text = f"{result.solver} calls a point of objective {objective:.9g} optimal, with the bound {bound:.9g}"
        raise FailedCheckError(text, evolve(result, outcome=Outcome.FEASIBLE, bound=None))
    # A bound on a model with tightened rows says nothing about the original model.
    return evolve(result, bound=None if tightening is not None else bound)


def _check_multipliers(conditioned: ScaledForm, result: Result, raw: Raw) -> Result:
    """Add the multipliers of a continuous program to the result.

    If the solver reports the point as optimal, also check that the multipliers prove this.

    Args:
        conditioned: The scaled model that was solved.
        result: The answer with its checked point.
        raw: The solver's answer, which contains the multipliers.

    Returns:
        The result with its multipliers and the bound proved by them, or the result unchanged if there are no
        multipliers.

    Raises:
        FailedCheckError: The multipliers are not finite, or they do not prove that a point reported as optimal is
            optimal.
    """
    is_quadratic = conditioned.form.Q is not None
    if is_quadratic and result.x is not None:
        # A convex objective is bounded below by its tangent at the point, where the two share their value and
        # multipliers.
        tangent = conditioned.form.linearised_at(result.x)
        conditioned = evolve(conditioned, form=tangent, c=tangent.c * conditioned.cost_scale)
    form, objective = conditioned.form, float(result.objective or 0.0)
    scaled_duals = np.zeros(0) if raw.duals is None and form.shape[0] == 0 else raw.duals
    if scaled_duals is None:
        return result
    if np.shape(scaled_duals) != (form.shape[0],) or not np.isfinite(scaled_duals).all():
        text = f"{result.solver} gives multipliers that are not {form.shape[0]} finite numbers"
        raise FailedCheckError(text, evolve(result, outcome=Outcome.FEASIBLE))
    flip = 1.0 if form.sense == "min" else -1.0
    duals = conditioned.duals(scaled_duals)
    # Reduced costs are computed from the multipliers, because those that the solver returns may contradict them.
    scaled_reduced = None if raw.reduced is None else conditioned.c - conditioned.A.T @ scaled_duals
    reduced = None if scaled_reduced is None else conditioned.reduced_costs(scaled_reduced)
    result = evolve(result, duals=duals, reduced=reduced, basis=raw.basis)
    if conditioned.tightening is not None:
        # The bound must hold for the rows before they were tightened.
        cost = tightening_cost(conditioned, duals, objective)
        bound = None if cost is None else objective - flip * cost
        return evolve(result, bound=bound, tightening=evolve(conditioned.tightening, cost=cost))
    assert result.x is not None
    proved = proved_optimum_bound(form, duals, result.x, COST_TOLERANCE / abs(conditioned.cost_scale))
    difference = abs(objective - proved)
    # HiGHS adds 1e-7 to the diagonal of a quadratic objective, which shifts its optimum.
    precision = 1e-6 if is_quadratic else 1e-9
    rounding = precision * cost_magnitude(form, result.x) + 1e-9 * min(1.0, float(np.abs(form.c).max(initial=0.0)))
    # The comparison is negated so that a difference of NaN also fails.
    if result.outcome is Outcome.OPTIMAL and not difference <= LP_GAP * abs(objective) + rounding:
        text = f"{result.solver} calls a point of objective {objective:.9g} optimal, "
        text += f"and its multipliers prove {f'{proved:.9g}' if np.isfinite(proved) else 'no bound'}"
        weaker = min(proved, objective) if form.sense == "min" else max(proved, objective)
        bound = weaker if np.isfinite(proved) else None
        point = evolve(result, outcome=Outcome.FEASIBLE, bound=bound, duals=None, reduced=None, basis=None)
        raise FailedCheckError(text, point)
    # A point that violates rows within the solver's tolerance can lie beyond the bound.
    return evolve(result, bound=min(proved, objective) if form.sense == "min" else max(proved, objective))


def cost_magnitude(form: StandardForm, x: Floats | None) -> float:
    """Return the sum of the absolute values of the objective's terms at ``x``, or 0 if ``x`` is None.

    Rounding errors in the objective are proportional to this sum.
    """
    return 0.0 if x is None else sum_products(np.abs(form.c), np.abs(x)) + abs(form.c0)


def fix_expensive_columns(conditioned: ScaledForm, objective: float) -> StandardForm:
    """Fix very expensive columns at their cheapest bounds.

    A column is fixed if moving it off its cheapest bound would make the objective worse than at a known feasible point.
    This improves precision: in the presence of a penalty of 1e11, a solver's multipliers are too coarse to resolve
    costs of 1e-3. For example, if a point with an objective of 0.05 is known, the penalised columns are 0 in every
    better point, up to the solver's tolerance.

    Args:
        conditioned: The scaled model whose form is to be changed.
        objective: The objective value at a feasible point, in the form's units.

    Returns:
        The form with these columns fixed and their costs moved to the objective's constant, or the form unchanged if
        there are no such columns.
    """
    form = conditioned.form
    flip = 1.0 if form.sense == "min" else -1.0
    cost = flip * form.c
    cheapest = np.where(cost > 0, form.col_lower, np.where(cost < 0, form.col_upper, 0.0))
    if not np.isfinite(cheapest).all():
        return form
    # In a better point, every column costs at least as much as at its cheapest value, so no column can exceed that cost
    # by more than this excess.
    excess = flip * (objective - form.c0) - sum_products(cost, cheapest)
    # The smallest step that matters. A smaller step of a continuous column changes no row by more than a solver's
    # tolerance, and an integer column cannot make a smaller step at all.
    entries = np.zeros(form.shape[1])
    np.maximum.at(entries, conditioned.A.indices, np.abs(conditioned.A.data))
    smallest_step = np.where(
        form.integrality == 1, 1.0 - INTEGER_TOLERANCE, COLUMN_TOLERANCE / np.maximum(entries, 1.0)
    )
    # The margin of 1e-6 covers the rounding of the excess.
    is_expensive = np.abs(cost) * smallest_step > excess * (1.0 + 1e-6)
    if not is_expensive.any() or excess < 0.0:
        return form
    return evolve(
        form,
        c=np.where(is_expensive, 0.0, form.c),
        c0=form.c0 + float(form.c[is_expensive] @ cheapest[is_expensive]),
        col_lower=np.where(is_expensive, cheapest, form.col_lower),
        col_upper=np.where(is_expensive, cheapest, form.col_upper),
    )


def can_be_unbounded(form: StandardForm) -> bool:
    """Return whether the column bounds alone allow the objective to improve without limit.

    This is the case if any column is unbounded in the direction that improves the objective.
    """
    c = form.c if form.sense == "min" else -form.c
    return bool(((c < 0) & np.isposinf(form.col_upper) | (c > 0) & np.isneginf(form.col_lower)).any())


def recession_form(form: StandardForm) -> StandardForm:
    """Return a linear program for finding a direction in which a form's objective improves without limit.

    Its feasible points are the directions in which a feasible point of the form can move without limit, restricted to a
    box. If the objective improves along one of them, the optimum of the program is not 0, and the form is unbounded or
    infeasible. Otherwise, the optimum is 0.
    """

    def replace_finite(sides: Floats, missing_side: float) -> Floats:
        """Replace finite entries of ``sides`` by 0 and infinite ones by ``missing_side``."""
        return np.where(np.isfinite(sides), 0.0, missing_side)

    if form.Q is not None:
        # A convex quadratic objective can decrease without limit only along a direction in which it has no curvature.
        zeros = np.zeros(form.shape[1])
        form = evolve(
            form,
            A=sparse.vstack([form.A, form.Q], format="csr"),
            row_lower=np.concatenate([form.row_lower, zeros]),
            row_upper=np.concatenate([form.row_upper, zeros]),
            Q=None,
        )
    # Only the direction matters, not the length, so a box of size 1 is enough.
    return evolve(
        form,
        c0=0.0,
        row_lower=replace_finite(form.row_lower, -np.inf),
        row_upper=replace_finite(form.row_upper, np.inf),
        col_lower=replace_finite(form.col_lower, -1.0),
        col_upper=replace_finite(form.col_upper, 1.0),
        integrality=np.zeros(form.shape[1], dtype=np.uint8),
    )


def check_vector(conditioned: ScaledForm, vector: Floats) -> tuple[Floats, float]:
    """Check a solver's vector against a model's bounds, integrality constraints and rows.

    Args:
        conditioned: The scaled model that the vector must satisfy.
        vector: The point, as an array of shape (n,).

    Returns:
        The vector and the largest violation of a scaled row. Values of the vector that miss a bound or an integer by
        less than the tolerance are moved onto it.

    Raises:
        SolverError: The vector violates a bound, a column's integrality or a row by more than the tolerance. The
            message names the worst row or column.
    """
    form = conditioned.form
    vector = np.array(vector, dtype=np.float64)
    if vector.shape != (form.shape[1],) or not np.isfinite(vector).all():
        raise SolverError(f"its vector of shape {vector.shape} is not {form.shape[1]} finite numbers")
    clipped = np.clip(vector, form.col_lower, form.col_upper)
    distances = np.abs(vector - clipped) / (1.0 + np.abs(clipped))
    if distances.max(initial=0.0) > ROW_TOLERANCE:
        column = int(np.argmax(distances))
        raise SolverError(
            f"its vector has {form.column_name(column)} = {vector[column]:.9g}, outside "
            f"[{form.col_lower[column]:g}, {form.col_upper[column]:g}]"
        )
    is_integer = form.integrality == 1
    rounded = np.round(clipped)
    fractions = np.where(is_integer, np.abs(clipped - rounded), 0.0)
    if fractions.max(initial=0.0) > INTEGER_TOLERANCE:
        column = int(np.argmax(fractions))
        raise SolverError(f"in its vector {form.column_name(column)} must be an integer, got {vector[column]:.9g}")
    x = np.where(is_integer, rounded, clipped)
    violation = _check_rows(form, conditioned.A, conditioned.row_lower, conditioned.row_upper, x)
    rows = conditioned.wide_rows[conditioned.row_scale[conditioned.wide_rows] != 1.0]
    # For a wide row, a violation that is tolerable after scaling can be large in the row's own units, so wide rows are
    # also checked in these.
    if len(rows):
        _check_rows(form, form.A[rows], form.row_lower[rows], form.row_upper[rows], x, rows)
    return x, violation


def _check_rows(form: StandardForm, matrix: Any, lower: Floats, upper: Floats, x: Floats, numbers: Any = None) -> float:
    """Return the largest violation of a row, or raise a SolverError if a row is violated by more than its tolerance.

    Args:
        form: The form, which provides names and coefficients for the error message.
        matrix: The rows to check, scaled or in their own units, as a CSR matrix of shape (rows, n).
        lower, upper: The bounds of these rows, as arrays of shape (rows,).
        x: The point, as an array of shape (n,).
        numbers: The index of each of these rows in the form. If None, all rows of the form are checked in order.
    """
    activity = matrix @ x
    violations = np.maximum(np.maximum(lower - activity, activity - upper), 0.0)
    magnitude = np.asarray(abs(matrix) @ np.abs(x))
    side_sizes = np.where(np.isfinite(lower), np.abs(lower), 0.0) + np.where(np.isfinite(upper), np.abs(upper), 0.0)
    # The tolerance is not relative to the bounds, because that would hide violations of big-M rows, whose bounds are
    # large.
    allowed = ROW_TOLERANCE + ROUNDING * (side_sizes + magnitude)
    if (violations > allowed).any():
        position = int(np.argmax(violations / allowed))
        row = position if numbers is None else int(numbers[position])
        text = f"its vector misses {form.row_name(row)} by {violations[position]:.3g} (allowed {allowed[position]:.3g})"
        entries = np.abs(form.A.data[form.A.indptr[row] : form.A.indptr[row + 1]])
        if len(entries) and entries.max() > WIDE_SPAN * entries.min():
            text += (
                f"; its coefficients, {entries.min():.3g} to {entries.max():.3g}, span more than solvers can "
                "represent: "
            )
            text += WIDE_ROW_ADVICE
        raise SolverError(text)
    return float(violations.max(initial=0.0))
