"""Checks of solvers of linear programs: small models, by multipliers and by SciPy's optimum.

Each takes the name that a solver is registered under, an effort and a seed, like the checks that plugins bring.
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
"""Room for a solver's own tolerances, relative to the models' numbers, which are all small."""


Solve = Callable[[StandardForm], Result]
"""A solver under trial."""


@st.composite
def programs(draw: st.DrawFn, integers: bool = False) -> StandardForm:
    """Draw a small linear program over a box, of whole numbers, feasible and bounded: in either sense."""
    return around_a_point(
        draw, np.ones((draw(st.integers(0, 4)), draw(st.integers(1, 4))), dtype=bool), "LGER", integers
    )


def around_a_point(draw: st.DrawFn, held: NDArray[np.bool_], kinds: str, integers: bool = False) -> StandardForm:
    """Draw a program that is feasible by construction: the rows' sides are set around a whole point of its box.

    Args:
        draw: Hypothesis's own.
        held: (rows, columns) where a row may have a number other than 0.
        kinds: of rows: at most (L), at least (G), equations (E), ranges (R).
        integers: some of the columns are whole.
    """
    m, n = held.shape
    whole = st.integers(-4, 4)
    point = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), dtype=np.float64)
    A = np.zeros((m, n))
    A[held] = draw(st.lists(whole, min_size=int(held.sum()), max_size=int(held.sum())))
    lower, upper = np.full(m, -np.inf), np.full(m, np.inf)
    for row, at in enumerate((A @ point).tolist()):
        kind, slack = draw(st.sampled_from(kinds)), draw(st.integers(0, 3))
        upper[row] = {"L": at + slack, "G": math.inf, "E": at, "R": at + slack}[kind]
        lower[row] = {"L": -math.inf, "G": at - slack, "E": at, "R": at - slack}[kind]
    return StandardForm(
        c=np.array(draw(st.lists(whole, min_size=n, max_size=n)), dtype=np.float64),
        sense=draw(st.sampled_from(["min", "max"])),
        A=A,
        row_lower=lower,
        row_upper=upper,
        col_lower=np.zeros(n),
        col_upper=point + draw(st.integers(0, 2)),
        integrality=np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)) if integers else [False] * n),
    )


def hold_optimum(solve: Solve, form: StandardForm, tolerance: float = SOLVER_TOLERANCE) -> None:
    """Solve a model: the same answer again, nothing changed in the model, and no fault in the answer."""
    before = deepcopy(form)
    result, again = solve(form), solve(form)
    faults = list(_faults(form, result, tolerance))
    faults += [f"solve changed the form it was given: {line}" for line in changes(before, form, "form")]
    if not np.array_equal(np.asarray(result.x), np.asarray(again.x)):
        faults.append(f"the same model gave {result.x} and then {again.x}")
    if faults:
        _fail(faults[0], form)


def _faults(form: StandardForm, result: Result, tolerance: float) -> Iterator[str]:
    """Yield what is wrong with an answer to a model that is feasible and bounded."""
    x, optimum = result.x, _by_scipy(form)
    if result.outcome is not Outcome.OPTIMAL or x is None:
        yield f"a bounded, feasible model is called {result.outcome.value}; expected optimal"
        return
    low, high = np.append(form.row_lower, form.col_lower), np.append(form.row_upper, form.col_upper)
    found, value = np.append(form.A @ x, x), float(form.c @ x) + form.c0
    missed = np.maximum(low - found, found - high)
    if missed.max() > tolerance * (1 + abs(found).max()):
        yield f"row {int(missed.argmax())} (columns after the rows) is {found[missed.argmax()]:.9g}"
    if not np.array_equal(x[form.integrality > 0], np.round(x[form.integrality > 0])):
        yield f"integer columns came out as {x.tolist()}"
    near = partial(math.isclose, rel_tol=tolerance, abs_tol=tolerance)
    if result.objective is None or not near(result.objective, value):
        yield f"the objective is said to be {result.objective!r}; at its vector it is {value!r}"
    elif not near(value, optimum):
        yield f"the optimum is {optimum!r} by SciPy; the solver says {value!r}"
    over = 0.0 if result.bound is None else (result.bound - optimum) * (1 if form.sense == "min" else -1)
    if over > tolerance * (1 + abs(optimum)):
        yield f"the bound {result.bound!r} is on the wrong side of the optimum {optimum!r}"
    if result.duals is not None and not form.is_mip:
        proved, left = dual_bound(form, result.duals), form.c - form.A.T @ result.duals
        if not near(proved, optimum):
            yield f"its multipliers prove {proved!r}; the optimum is {optimum!r}"
        if result.reduced is not None and not np.allclose(left, result.reduced, rtol=tolerance, atol=tolerance):
            yield f"the reduced costs are {result.reduced.tolist()}; c - A'y gives {left.tolist()}"


def _by_scipy(form: StandardForm) -> float:
    from scipy.optimize import LinearConstraint, milp

    sign = 1.0 if form.sense == "min" else -1.0
    rows = [LinearConstraint(form.A, form.row_lower, form.row_upper)] if form.shape[0] else []
    box = (form.col_lower, form.col_upper)
    solved = milp(sign * form.c, integrality=form.integrality, bounds=box, constraints=rows)
    hypothesis.assume(solved.status == 0)
    return float(sign * solved.fun + form.c0)


def hold_infeasible(solve: Solve, form: StandardForm, columns: Sequence[int], more: int) -> None:
    """Solve a model with one row more, which asks for more of some columns than there can be."""
    row = np.zeros((1, form.shape[1]))
    row[0, list(columns)] = 1.0
    beyond = float(form.col_upper[list(columns)].sum()) + more
    sides = np.append(form.row_lower, beyond), np.append(form.row_upper, math.inf)
    clash = evolve(form, A=np.vstack([form.A.toarray(), row]), row_lower=sides[0], row_upper=sides[1])
    outcome = solve(clash).outcome
    if outcome is not Outcome.INFEASIBLE:
        _fail(f"a model without solution is called {outcome.value}", clash)


def _fail(what: str, form: StandardForm) -> None:
    shown = [f"{what}\nsmallest model found:\n{form.sense} {form.c.tolist()}"]
    shown += [
        f"{low:g} <= {row} <= {up:g}"
        for row, low, up in zip(form.A.toarray().tolist(), form.row_lower, form.row_upper, strict=True)
    ]
    shown.append(f"columns from {form.col_lower.tolist()} to {form.col_upper.tolist()}")
    shown.append(f"integer columns {np.flatnonzero(form.integrality).tolist()}")
    raise CheckFailedError("\n".join(shown), None)


def optimum(name: str, how: Effort, seed: int) -> CheckResult:
    """Hold a solver's answers to linear programs, and the multipliers that it declares, against SciPy's optimum."""
    return run_examples("optimum", lambda data: hold_optimum(_solver(name), data.draw(programs())), how, seed)


def integers(name: str, how: Effort, seed: int) -> CheckResult:
    """Hold a solver's answers where some columns are whole against SciPy's optimum."""
    if not get(name).capabilities.mip:
        return CheckResult(check="integers", version=1, status="skipped", reason="takes no integers")
    models = programs(integers=True)
    return run_examples("integers", lambda data: hold_optimum(_solver(name), data.draw(models)), how, seed)


def infeasible(name: str, how: Effort, seed: int) -> CheckResult:
    """Ask a solver for the solution of models that have none."""

    def example(data: st.DataObject) -> None:
        form = data.draw(programs())
        hold_infeasible(_solver(name), form, range(form.shape[1]), data.draw(st.integers(1, 3)))

    return run_examples("infeasible", example, how, seed)


def _solver(name: str) -> Solve:
    tried = get(name)

    def solve(form: StandardForm) -> Result:
        result = tried.solve(form)
        owed = tried.capabilities.duals and form.shape[0] and not form.is_mip
        if owed and result.x is not None and result.duals is None:
            _fail("it declares multipliers, and gives none for an LP solved to optimality", form)
        return result

    return solve
