"""Check a solver's answer in the units of the model: vector, rows, objective, bound and status."""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import evolve

from privopt.arrays import Floats
from privopt.backends.raw import FailedCheckError, Raw, RejectedAnswerError
from privopt.dsl.condition import WIDE_ROW_ADVICE, ScaledForm, tightening_cost
from privopt.dsl.duality import proved_optimum_bound
from privopt.dsl.form import StandardForm
from privopt.dsl.outcome import Outcome, Result
from privopt.errors import SolverError

ROW_TOLERANCE = 1e-6
ROUNDING = 1e-11
"""Rounding of a row, relative to the sizes of its terms and of its side."""
INTEGER_TOLERANCE = 1e-5
LP_GAP = 1e-6
"""Relative gap between the objective of a linear program and the bound that its multipliers prove."""
COLUMN_TOLERANCE = 1e-9
"""A solver's tolerance on rows and columns."""
COST_TOLERANCE = 1e-7
"""The loosest tolerance on scaled reduced costs that a backend solves with."""
MIP_RESOLUTION = 1e-5
"""A search over integers may miss an improvement of the scaled costs up to this, whatever gap is asked."""
WIDE_SPAN = 1e7
"""A row whose coefficients differ by more than this factor may be why a vector misses it."""


def check_answer(conditioned: ScaledForm, raw: Raw, solver: str, gap: float = 1e-6) -> Result:
    """Check what a solver returned, and express it in the form's rows, units and sense.

    Args:
        conditioned: The model that the solver was given.
        raw: The solver's answer.
        solver: Name and version, for messages.
        gap: The relative gap that was asked of a search over integers.

    Raises:
        FailedCheckError: The answer contradicts itself or the model. It has the vector, if that is feasible.
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
        raise FailedCheckError(f"{solver} calls the model unbounded, whose columns bound it")
    bound = None if raw.bound is None or not np.isfinite(raw.bound) else float(conditioned.bound(raw.bound))
    if raw.outcome not in (Outcome.OPTIMAL, Outcome.FEASIBLE):
        has_bound = raw.outcome is Outcome.STOPPED and conditioned.tightening is None
        return evolve(result, bound=bound if has_bound else None)
    if raw.x is None:
        raise FailedCheckError(f"{solver} calls the model {raw.outcome.value} and gives no vector")
    try:
        x, violation = check_vector(conditioned, raw.x)
    except SolverError as error:
        if raw.outcome is Outcome.FEASIBLE and not conditioned.form.is_mip:
            return evolve(result, outcome=Outcome.STOPPED, message=f"its vector is not feasible: {error}")
        raise FailedCheckError(f"{solver}: {error}") from None
    result = evolve(result, x=x, violation=violation, objective=conditioned.objective(x))
    if conditioned.form.is_mip:
        return _check_integer_bound(conditioned, result, bound, gap)
    return _check_multipliers(conditioned, result, raw, bound)


def _check_integer_bound(conditioned: ScaledForm, result: Result, bound: float | None, gap: float) -> Result:
    """Check that the bound of a search over integers lies on its side of the objective, as near as was asked."""
    form, objective, tightening = conditioned.form, float(result.objective or 0.0), result.tightening
    if tightening is not None:
        return evolve(result, bound=None)  # the bound is on the tightened model alone
    if bound is None:
        return result
    flip = 1.0 if form.sense == "min" else -1.0
    rounding = 1e-9 * cost_magnitude(form, result.x) + MIP_RESOLUTION / abs(conditioned.cost_scale)
    # Positive if the bound contradicts the point, negative by as much as the point may miss the optimum.
    excess = flip * (bound - objective)
    if excess > 1e-7 * abs(objective) + rounding:
        text = f"{result.solver} gives the bound {bound:.9g} for a point of objective {objective:.9g}"
        raise FailedCheckError(text, evolve(result, outcome=Outcome.FEASIBLE, bound=None))
    if excess > 0.0:
        bound = objective
    is_too_far = -excess > max(gap, 1e-7) * max(abs(objective), abs(bound)) + rounding
    if result.outcome is Outcome.OPTIMAL and is_too_far:
        text = f"{result.solver} calls a point of objective {objective:.9g} optimal, with the bound {bound:.9g}"
        raise FailedCheckError(text, evolve(result, outcome=Outcome.FEASIBLE, bound=None))
    return evolve(result, bound=bound)


def _check_multipliers(conditioned: ScaledForm, result: Result, raw: Raw, bound: float | None) -> Result:
    """Check that the multipliers of a linear program prove its optimum."""
    form, objective = conditioned.form, float(result.objective or 0.0)
    if raw.duals is None:
        return evolve(result, bound=bound if conditioned.tightening is None else None)
    flip = 1.0 if form.sense == "min" else -1.0
    duals = conditioned.duals(raw.duals)
    reduced = None if raw.reduced is None else conditioned.reduced_costs(raw.reduced)
    result = evolve(result, duals=duals, reduced=reduced)
    if conditioned.tightening is not None:
        cost = tightening_cost(conditioned, duals, objective)
        bound = None if cost is None else objective - flip * cost
        return evolve(result, bound=bound, tightening=evolve(conditioned.tightening, cost=cost))
    assert result.x is not None
    proved = proved_optimum_bound(form, duals, result.x, COST_TOLERANCE / abs(conditioned.cost_scale))
    difference = abs(objective - proved)
    rounding = 1e-9 * cost_magnitude(form, result.x) + 1e-9 * min(1.0, float(np.abs(form.c).max(initial=0.0)))
    if result.outcome is Outcome.OPTIMAL and not difference <= LP_GAP * abs(objective) + rounding:
        text = f"{result.solver} calls a point of objective {objective:.9g} optimal, "
        text += f"and its multipliers prove {f'{proved:.9g}' if np.isfinite(proved) else 'no bound'}"
        weaker = min(proved, objective) if form.sense == "min" else max(proved, objective)
        bound = weaker if np.isfinite(proved) else None
        point = evolve(result, outcome=Outcome.FEASIBLE, bound=bound, duals=None, reduced=None)
        raise FailedCheckError(text, point)
    # A point that misses rows by the solver's tolerance can lie beyond the bound.
    return evolve(result, bound=min(proved, objective) if form.sense == "min" else max(proved, objective))


def cost_magnitude(form: StandardForm, x: Floats | None) -> float:
    """Return the sum of the sizes of the terms of the objective, of which its rounding error is a part."""
    return 0.0 if x is None else float(np.abs(form.c) @ np.abs(x)) + abs(form.c0)


def fix_dear_columns(conditioned: ScaledForm, objective: float) -> StandardForm:
    """Fix the columns that cost more than a known objective wherever they are not at their cheapest bound.

    A penalty of 1e11 beside costs of 1e-3 leaves no digit for them in a solver's multipliers. A point of objective 0.05
    shows that what is penalised is 0 in every better point, to a solver's tolerance on columns.

    Args:
        conditioned: The model.
        objective: Of a feasible point, in the form's units.

    Returns:
        The form with these columns fixed at no cost; the form itself if there are none.
    """
    form = conditioned.form
    flip = 1.0 if form.sense == "min" else -1.0
    cost = flip * form.c
    cheapest = np.where(cost > 0, form.col_lower, np.where(cost < 0, form.col_upper, 0.0))
    if not np.isfinite(cheapest).all():
        return form
    excess = flip * (objective - form.c0) - float(cost @ cheapest)
    # Within this step a continuous column moves no row by more than a solver's tolerance.
    entries = np.zeros(form.shape[1])
    np.maximum.at(entries, conditioned.A.indices, np.abs(conditioned.A.data))
    smallest_step = np.where(
        form.integrality == 1, 1.0 - INTEGER_TOLERANCE, COLUMN_TOLERANCE / np.maximum(entries, 1.0)
    )
    is_dear = np.abs(cost) * smallest_step > excess * (1.0 + 1e-6)
    if not is_dear.any() or excess < 0.0:
        return form
    return evolve(
        form,
        c=np.where(is_dear, 0.0, form.c),
        c0=form.c0 + float(form.c[is_dear] @ cheapest[is_dear]),
        col_lower=np.where(is_dear, cheapest, form.col_lower),
        col_upper=np.where(is_dear, cheapest, form.col_upper),
    )


def can_be_unbounded(form: StandardForm) -> bool:
    """Return whether the objective improves towards a side on which some column has no bound."""
    c = form.c if form.sense == "min" else -form.c
    return bool(((c < 0) & np.isposinf(form.col_upper) | (c > 0) & np.isneginf(form.col_lower)).any())


def recession_form(form: StandardForm) -> StandardForm:
    """Return the linear program over the directions in which a feasible point can go without end.

    Its optimum is 0 unless the linear relaxation improves along one of them: then the form is unbounded or infeasible.
    """

    def replace_finite(sides: Floats, without: float) -> Floats:
        """Replace finite sides by 0, and missing ones by ``without``."""
        return np.where(np.isfinite(sides), 0.0, without)

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
    """Check a solver's vector against bounds, integers and rows.

    Returns:
        The vector, put exactly inside its bounds and onto its integers, and the largest violation of a scaled row.

    Raises:
        SolverError: It misses one of them by more than rounding. The message names the worst row or column.
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
    if len(rows):  # the solver's tolerance on a scaled row can be much in the row's own units
        _check_rows(form, form.A[rows], form.row_lower[rows], form.row_upper[rows], x, rows)
    return x, violation


def _check_rows(form: StandardForm, matrix: Any, lower: Floats, upper: Floats, x: Floats, numbers: Any = None) -> float:
    """Return the largest violation of a row; SolverError if one is more than rounding."""
    activity = matrix @ x
    violations = np.maximum(np.maximum(lower - activity, activity - upper), 0.0)
    magnitude = np.asarray(abs(matrix) @ np.abs(x))
    side_sizes = np.where(np.isfinite(lower), np.abs(lower), 0.0) + np.where(np.isfinite(upper), np.abs(upper), 0.0)
    # A tolerance relative to the side would hide a violated row of a big-M, which has it on both sides.
    allowed = ROW_TOLERANCE + ROUNDING * (side_sizes + magnitude)
    if (violations > allowed).any():
        position = int(np.argmax(violations / allowed))
        row = position if numbers is None else int(numbers[position])
        text = f"its vector misses {form.row_name(row)} by {violations[position]:.3g} (allowed {allowed[position]:.3g})"
        entries = np.abs(form.A.data[form.A.indptr[row] : form.A.indptr[row + 1]])
        if len(entries) and entries.max() > WIDE_SPAN * entries.min():
            text += f"; its coefficients, {entries.min():.3g} to {entries.max():.3g}, span more than solvers hold: "
            text += WIDE_ROW_ADVICE
        raise SolverError(text)
    return float(violations.max(initial=0.0))
