"""A solver that lies is not believed: what it calls optimal is proved, called feasible, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, milp

from privopt.backends import Outcome, get
from privopt.backends.base import Backend, Options, Raw, ScaledForm
from privopt.dsl.form import StandardForm
from privopt.errors import SolverError
from privopt.testing.backends import programs

Lie = Callable[[ScaledForm, Raw, np.random.Generator], Raw]


class Liar(Backend):
    """Answers what HiGHS answers, after a lie."""

    name = "liar"
    capabilities = get("highs").capabilities

    def __init__(self, lie: Lie, seed: int) -> None:
        self.lie, self.chance, self.attempts = lie, np.random.default_rng(seed), 1

    def version(self) -> str:
        return "1"

    def solve_scaled(self, conditioned: ScaledForm, options: Options, attempt: int) -> Raw:
        return self.lie(conditioned, get("highs").solve_scaled(conditioned, options, attempt), self.chance)


def of_vector(change: Callable[[ScaledForm, Any, np.random.Generator], Any]) -> Lie:
    """Return a lie about the vector alone."""
    return lambda form, raw, rng: raw if raw.x is None else evolve(raw, x=change(form, raw.x, rng))


def of_duals(change: Callable[[Any, np.random.Generator], Any]) -> Lie:
    """Return a lie about multipliers alone."""
    return lambda form, raw, rng: raw if raw.duals is None else evolve(raw, duals=change(raw.duals, rng))


def move_to_another_point(form: ScaledForm, x: Any, rng: np.random.Generator) -> Any:
    """Return a feasible point, mostly not the best one."""
    other = get("highs").solve(evolve(form.form, c=rng.normal(size=len(x)), sense="min"))
    return x if other.x is None else other.x


LIES: dict[str, Lie] = {
    "another point": of_vector(move_to_another_point),
    "beyond bounds": of_vector(lambda form, x, rng: x + 100.0),
    "one column off": of_vector(lambda form, x, rng: x + rng.permutation(np.eye(len(x)))[0]),
    "half of a whole": of_vector(lambda form, x, rng: x + 0.5),
    "no number": of_vector(lambda form, x, rng: x * np.nan),
    "no end": of_vector(lambda form, x, rng: x + np.inf),
    "too short": of_vector(lambda form, x, rng: x[:-1]),
    "no vector": lambda form, raw, rng: evolve(raw, x=None),
    "no multipliers": lambda form, raw, rng: evolve(raw, duals=None, reduced=None),
    "no multipliers of another point": lambda form, raw, rng: evolve(LIES["another point"](form, raw, rng), duals=None),
    "multipliers negated": of_duals(lambda y, rng: -y),
    "multipliers of nothing": of_duals(lambda y, rng: 0 * y),
    "multipliers too large": of_duals(lambda y, rng: 3 * y + 1),
    "multipliers by chance": of_duals(lambda y, rng: rng.normal(size=len(y))),
    "multipliers that are none": of_duals(lambda y, rng: y * np.nan),
    "multipliers of other rows": of_duals(lambda y, rng: np.append(y, 1.0)),
    "reduced costs by chance": lambda form, raw, rng: evolve(raw, reduced=rng.normal(size=len(form.c))),
    "no bound": lambda form, raw, rng: evolve(raw, bound=None),
    "bound above": lambda form, raw, rng: evolve(raw, bound=1e3),
    "bound below": lambda form, raw, rng: evolve(raw, bound=-1e3),
    "bound that is none": lambda form, raw, rng: evolve(raw, bound=np.nan),
    "stopped with a bound": lambda form, raw, rng: evolve(raw, outcome=Outcome.STOPPED, bound=-1e9),
    "infeasible": lambda form, raw, rng: Raw(outcome=Outcome.INFEASIBLE),
    "unbounded": lambda form, raw, rng: Raw(outcome=Outcome.UNBOUNDED),
}


def solve_by_scipy(form: StandardForm) -> float:
    """Return the optimum of a form that is feasible and bounded."""
    sign = 1.0 if form.sense == "min" else -1.0
    rows = [LinearConstraint(form.A.toarray(), form.row_lower, form.row_upper)] if form.shape[0] else []
    box = (form.col_lower, form.col_upper)
    options = {"mip_rel_gap": 0.0}
    solution = milp(sign * form.c, integrality=form.integrality, bounds=box, constraints=rows, options=options)
    assume(solution.status == 0)
    return float(sign * solution.fun + form.c0)


def check_answer_to_lie(lie: Lie, form: StandardForm, seed: int) -> None:
    optimum = solve_by_scipy(form)
    try:
        result = Liar(lie, seed).solve(form)
    except SolverError:
        return
    tolerance = 1e-5 * (1 + abs(optimum))
    flip = 1.0 if form.sense == "min" else -1.0
    assert result.outcome in (Outcome.OPTIMAL, Outcome.FEASIBLE, Outcome.STOPPED)
    assert result.bound is None or flip * (result.bound - optimum) <= tolerance
    if result.x is None:
        assert result.outcome is Outcome.STOPPED
        return
    activity = form.A @ result.x
    assert (activity >= form.row_lower - tolerance).all()
    assert (activity <= form.row_upper + tolerance).all()
    assert (result.x >= form.col_lower).all()
    assert (result.x <= form.col_upper).all()
    assert np.array_equal(result.x[form.integrality > 0], np.round(result.x[form.integrality > 0]))
    assert result.objective == pytest.approx(float(form.c @ result.x) + form.c0)
    if result.outcome is Outcome.OPTIMAL:
        assert abs(float(result.objective or 0.0) - optimum) <= tolerance
        assert result.bound is not None
    if result.duals is not None and result.reduced is not None:
        assert result.reduced == pytest.approx(form.c - form.A.T @ result.duals, abs=1e-6)


@pytest.mark.parametrize("name", LIES)
@settings(max_examples=10, deadline=None)
@given(form=programs(), seed=st.integers(0, 99))
def test_lie_about_a_linear_program_is_not_believed(name, form, seed):
    check_answer_to_lie(LIES[name], form, seed)


@pytest.mark.parametrize("name", LIES)
@settings(max_examples=10, deadline=None)
@given(form=programs(integers=True), seed=st.integers(0, 99))
def test_lie_about_an_integer_program_is_not_believed(name, form, seed):
    check_answer_to_lie(LIES[name], form, seed)


@pytest.mark.slow
@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("name", LIES)
@settings(max_examples=300, deadline=None)
@given(data=st.data(), seed=st.integers(0, 99))
def test_lies_about_many_programs_are_not_believed(name, integers, data, seed):
    check_answer_to_lie(LIES[name], data.draw(programs(integers=integers)), seed)


def cover(**changes: Any) -> StandardForm:
    """Return a linear program whose optimum is 1.5."""
    arrays: dict[str, Any] = {"c": [1, 1], "A": [[2, 2]], "row_lower": [3], "row_upper": [np.inf]}
    box = {"col_lower": [0, 0], "col_upper": [9, 9], "integrality": [0, 0]}
    return StandardForm(**(arrays | box | changes))


def test_optimum_without_multipliers_is_proved_by_another_solver():
    result = Liar(LIES["no multipliers"], 0).solve(cover())
    assert (result.outcome, result.objective, result.bound) == (Outcome.OPTIMAL, 1.5, pytest.approx(1.5))
    assert result.solver.startswith("liar")
    assert result.duals is None


def test_worse_point_without_multipliers_is_feasible():
    lie: Lie = lambda form, raw, rng: Raw(outcome=Outcome.OPTIMAL, x=np.array([3.0, 0.0]), bound=3.0)  # noqa: E731
    result = Liar(lie, 0).solve(cover())
    assert (result.outcome, result.objective, result.bound) == (Outcome.FEASIBLE, 3.0, pytest.approx(1.5))
    assert "gives no multipliers" in result.message


def test_program_without_rows_needs_no_multipliers():
    result = Liar(LIES["no multipliers"], 0).solve(cover(A=np.zeros((0, 2)), row_lower=[], row_upper=[]))
    assert (result.outcome, result.objective, result.bound) == (Outcome.OPTIMAL, 0.0, 0.0)
