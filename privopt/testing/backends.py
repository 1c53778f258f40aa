"""Checks of linear programming solvers on small random models.

A solver's answers are compared with SciPy's and with dual bounds. By weak duality, the multipliers at an optimum prove
its value, regardless of which solver found them. All checks have the same interface as those from plugins: they take
the name of a registered solver, an effort and a seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import partial
from typing import Final

import hypothesis
import numpy as np
from attrs import evolve
from hypothesis import strategies as st
from numpy.typing import NDArray

from privopt.backends import Outcome, Result, get
from privopt.dsl.duality import dual_bound
from privopt.dsl.form import StandardForm
from privopt.testing.changes import changes
from privopt.testing.checks.base import CheckFailedError
from privopt.testing.efforts import Effort
from privopt.testing.runner import CheckResult, run_examples

SOLVER_TOLERANCE: Final = 1e-6
"""The relative and absolute tolerance for a solver's rounding errors. All numbers in the models are small."""


Solve = Callable[[StandardForm], Result]
"""A function that solves a model with the solver under test."""


@st.composite
def programs(draw: st.DrawFn, integers: bool = False) -> StandardForm:
    """Draw a small feasible linear program with bounded variables and integer coefficients.

    The program is either a minimisation or a maximisation.

    Args:
        draw: Hypothesis's draw function.
        integers: Whether any columns may be required to be integer.
    """
    # At most four rows, of any kind, and at most four columns. Every coefficient may differ from 0.
    return draw_feasible_program(
        draw, np.ones((draw(st.integers(0, 4)), draw(st.integers(1, 4))), dtype=bool), "LGER", integers
    )


def draw_feasible_program(
    draw: st.DrawFn, may_be_nonzero: NDArray[np.bool_], kinds: str, integers: bool = False
) -> StandardForm:
    """Draw a program that is feasible by construction: an integer point within its bounds satisfies all rows.

    Args:
        draw: Hypothesis's draw function.
        may_be_nonzero: (rows, columns) Whether each coefficient may differ from 0.
        kinds: The permitted kinds of rows, as a string of letters: L (at most), G (at least), E (equation) and R
            (range).
        integers: Whether any columns may be required to be integer.
    """
    # The point is integer, so the program is feasible even if columns must be integer. The box contains the point and
    # makes the program bounded.
    m, n = may_be_nonzero.shape
    coefficients = st.integers(-4, 4)
    point = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), dtype=np.float64)
    A = np.zeros((m, n))
    A[may_be_nonzero] = draw(
        st.lists(coefficients, min_size=int(may_be_nonzero.sum()), max_size=int(may_be_nonzero.sum()))
    )
    lower, upper = np.full(m, -np.inf), np.full(m, np.inf)
    # A row's activity is its value at the point. Its bounds are 0 to 3 (the slack) away from that.
    for row, activity in enumerate((A @ point).tolist()):
        kind, slack = draw(st.sampled_from(kinds)), draw(st.integers(0, 3))
        upper[row] = {"L": activity + slack, "G": math.inf, "E": activity, "R": activity + slack}[kind]
        lower[row] = {"L": -math.inf, "G": activity - slack, "E": activity, "R": activity - slack}[kind]
    return StandardForm(
        c=np.array(draw(st.lists(coefficients, min_size=n, max_size=n)), dtype=np.float64),
        sense=draw(st.sampled_from(["min", "max"])),
        A=A,
        row_lower=lower,
        row_upper=upper,
        col_lower=np.zeros(n),
        col_upper=point + draw(st.integers(0, 2)),
        integrality=np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)) if integers else [False] * n),
    )


def check_optimum(solve: Solve, form: StandardForm, tolerance: float = SOLVER_TOLERANCE) -> None:
    """Check that a solver solves a model correctly and reproducibly, and leaves the model unchanged.

    Args:
        solve: The solver under test.
        form: A feasible and bounded model.
        tolerance: The allowed error, relative to the numbers in the model.

    Raises:
        CheckFailedError: The solver fails any of these tests. The message shows the model.
    """
    original_form = deepcopy(form)
    result, second_result = solve(form), solve(form)
    faults = list(_find_faults(form, result, tolerance))
    faults += [f"solve changed the form it was given: {line}" for line in changes(original_form, form, "form")]
    # Runs with the same seed must give the same release, so a solver must not choose among optima at random.
    if not np.array_equal(np.asarray(result.x), np.asarray(second_result.x)):
        faults.append(f"the same model gave {result.x} and then {second_result.x}")
    if faults:
        _raise_failure(faults[0], form)


def _find_faults(form: StandardForm, result: Result, tolerance: float) -> Iterator[str]:
    """Yield a sentence for each error in a solver's result for a feasible and bounded model.

    Args:
        form: The model.
        result: The solver's result.
        tolerance: The allowed error, relative to the numbers in the model.
    """
    x, optimum = result.x, _solve_by_scipy(form)
    if result.outcome is not Outcome.OPTIMAL or x is None:
        yield f"a bounded, feasible model is called {result.outcome.value}; expected optimal"
        return
    # Bounds on columns are checked in the same way as bounds on rows, so append them.
    lower, upper = np.append(form.row_lower, form.col_lower), np.append(form.row_upper, form.col_upper)
    activities, value = np.append(form.A @ x, x), float(form.c @ x) + form.c0
    violations = np.maximum(lower - activities, activities - upper)
    if violations.max() > tolerance * (1 + abs(activities).max()):
        yield f"row {int(violations.argmax())} (columns after the rows) is {activities[violations.argmax()]:.9g}"
    if not np.array_equal(x[form.integrality > 0], np.round(x[form.integrality > 0])):
        yield f"integer columns came out as {x.tolist()}"
    is_close = partial(math.isclose, rel_tol=tolerance, abs_tol=tolerance)
    if result.objective is None or not is_close(result.objective, value):
        yield f"the objective is said to be {result.objective!r}; at its vector it is {value!r}"
    elif not is_close(value, optimum):
        yield f"the optimum is {optimum!r} by SciPy; the solver says {value!r}"
    # A bound can be weak, but must not lie beyond the optimum.
    excess = 0.0 if result.bound is None else (result.bound - optimum) * (1 if form.sense == "min" else -1)
    if excess > tolerance * (1 + abs(optimum)):
        yield f"the bound {result.bound!r} is on the wrong side of the optimum {optimum!r}"
    # Multipliers prove the optimum only for linear programs. With integer columns there may be a duality gap.
    if result.duals is not None and not form.is_mip:
        dual_value, reduced_costs = dual_bound(form, result.duals), form.c - form.A.T @ result.duals
        if not is_close(dual_value, optimum):
            yield f"its multipliers prove {dual_value!r}; the optimum is {optimum!r}"
        if result.reduced is not None and not np.allclose(
            reduced_costs, result.reduced, rtol=tolerance, atol=tolerance
        ):
            yield f"the reduced costs are {result.reduced.tolist()}; c - A'y gives {reduced_costs.tolist()}"


def _solve_by_scipy(form: StandardForm) -> float:
    """Return the optimal value of a feasible and bounded model, according to SciPy.

    If SciPy fails, Hypothesis discards the example.
    """
    from scipy.optimize import LinearConstraint, milp

    sign = 1.0 if form.sense == "min" else -1.0
    rows = LinearConstraint(form.A, form.row_lower, form.row_upper)
    box = (form.col_lower, form.col_upper)
    solution = milp(sign * form.c, integrality=form.integrality, bounds=box, constraints=rows)
    # SciPy's own failures say nothing about the solver under test.
    hypothesis.assume(solution.status == 0)
    return float(sign * solution.fun + form.c0)


def check_infeasible(solve: Solve, form: StandardForm, columns: Sequence[int], excess: int) -> None:
    """Add an unsatisfiable row to a model, and check that the solver reports the model as infeasible.

    Args:
        solve: The solver under test.
        form: A feasible model.
        columns: The indices of the columns whose sum is bounded from below by the added row.
        excess: The positive amount by which that bound exceeds the sum of these columns' upper bounds.

    Raises:
        CheckFailedError: The solver reports another outcome.
    """
    row = np.zeros((1, form.shape[1]))
    row[0, list(columns)] = 1.0
    unreachable_sum = float(form.col_upper[list(columns)].sum()) + excess
    sides = np.append(form.row_lower, unreachable_sum), np.append(form.row_upper, math.inf)
    infeasible_form = evolve(form, A=np.vstack([form.A.toarray(), row]), row_lower=sides[0], row_upper=sides[1])
    outcome = solve(infeasible_form).outcome
    if outcome is not Outcome.INFEASIBLE:
        _raise_failure(f"a model without solution is called {outcome.value}", infeasible_form)


def _raise_failure(message: str, form: StandardForm) -> None:
    """Raise a CheckFailedError whose message contains a finding and the model that shows it.

    The message calls the model the smallest one found, because Hypothesis reports the smallest failing example.

    Args:
        message: The finding.
        form: The model.
    """
    lines = [f"{message}\nsmallest model found:\n{form.sense} {form.c.tolist()}"]
    lines += [
        f"{lower:g} <= {row} <= {upper:g}"
        for row, lower, upper in zip(form.A.toarray().tolist(), form.row_lower, form.row_upper, strict=True)
    ]
    lines.append(f"columns from {form.col_lower.tolist()} to {form.col_upper.tolist()}")
    lines.append(f"integer columns {np.flatnonzero(form.integrality).tolist()}")
    raise CheckFailedError("\n".join(lines), None)


def optimum(name: str, how: Effort, seed: int) -> CheckResult:
    """Check a solver's solutions and dual multipliers for linear programs against SciPy's optimum.

    Args:
        name: The solver's registered name.
        how: The effort, which limits the number of examples.
        seed: The seed for drawing models.
    """
    return run_examples("optimum", lambda data: check_optimum(_make_solve(name), data.draw(programs())), how, seed)


def integers(name: str, how: Effort, seed: int) -> CheckResult:
    """Check a solver's solutions to programs with integer columns against SciPy's optimum.

    The check is not applicable if the solver does not support integer columns.

    Args:
        name: The solver's registered name.
        how: The effort, which limits the number of examples.
        seed: The seed for drawing models.
    """
    if not get(name).capabilities.mip:
        return CheckResult(check="integers", version=1, status="not applicable", reason="takes no integers")
    models = programs(integers=True)
    return run_examples("integers", lambda data: check_optimum(_make_solve(name), data.draw(models)), how, seed)


def infeasible(name: str, how: Effort, seed: int) -> CheckResult:
    """Check that a solver reports infeasible models as infeasible.

    Args:
        name: The solver's registered name.
        how: The effort, which limits the number of examples.
        seed: The seed for drawing models.
    """

    def example(data: st.DataObject) -> None:
        """Draw a feasible model, add a row that makes it infeasible, and check the outcome."""
        form = data.draw(programs())
        check_infeasible(_make_solve(name), form, range(form.shape[1]), data.draw(st.integers(1, 3)))

    return run_examples("infeasible", example, how, seed)


def _make_solve(name: str) -> Solve:
    """Return a function that solves a model with a registered solver.

    The function raises a CheckFailedError if the solver claims to return dual multipliers but does not.
    """
    backend = get(name)

    def solve(form: StandardForm) -> Result:
        """Solve a model, and fail if the solver claims to return dual multipliers but the result has none."""
        result = backend.solve(form)
        # Without rows there are no multipliers, and with integer columns they do not prove an optimum.
        must_give_duals = backend.capabilities.duals and form.shape[0] and not form.is_mip
        if must_give_duals and result.x is not None and result.duals is None:
            _raise_failure("it declares multipliers, and gives none for an LP solved to optimality", form)
        return result

    return solve
