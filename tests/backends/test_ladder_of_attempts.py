"""Answers that contradict themselves are solved again, put to the substitute, or returned as feasible."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from helpers.solver_forms import tiny

from privopt.backends import Outcome, get
from privopt.backends.base import Backend, Options, Raw, ScaledForm
from privopt.dsl.form import StandardForm
from privopt.errors import SolverError


class Scripted(Backend):
    """Answers integer programs, or all, as it is told; the rest by HiGHS."""

    name = "scripted"
    capabilities = get("highs").capabilities
    attempts = 2

    def __init__(self, *answers: Raw, substitute: str | None = None, answers_linear: bool = False) -> None:
        self.answers, self.substitute, self.answers_linear = list(answers), substitute, answers_linear
        self.scales: list[float] = []

    def version(self) -> str:
        return "1"

    def solve_scaled(self, conditioned: ScaledForm, options: Options, attempt: int) -> Raw:
        if not (conditioned.form.is_mip or self.answers_linear):
            return get("highs").solve_scaled(conditioned, options, attempt)
        self.scales.append(abs(conditioned.cost_scale))
        return self.answers[min(len(self.scales), len(self.answers)) - 1]


def cover(**changes: Any) -> StandardForm:
    """Return a program over integers whose optimum is 2; without integers it is 1.5."""
    return tiny(**({"c": [1, 1], "A": [[2, 2]], "row_lower": [3], "integrality": [1, 1]} | changes))


def scaled_bound(value: float) -> float:
    """Return a bound as the solver states it, whose costs of 1 are scaled to 2**13."""
    return value * 2.0**13


@pytest.mark.parametrize("bound", [0.0, 1.9, 4.0])
def test_contradicted_optimum_becomes_feasible(bound: float) -> None:
    raw = Raw(outcome=Outcome.OPTIMAL, x=np.array([1.0, 1.0]), bound=scaled_bound(bound))
    result = Scripted(raw).solve(cover())
    assert result.outcome is Outcome.FEASIBLE
    assert result.objective == 2.0
    assert result.bound == pytest.approx(1.5)
    assert "bound" in result.message


def test_second_attempt_that_passes_is_the_answer() -> None:
    first = Raw(outcome=Outcome.OPTIMAL, x=np.array([3.0, 0.0]), bound=scaled_bound(2))
    second = Raw(outcome=Outcome.OPTIMAL, x=np.array([1.0, 1.0]), bound=scaled_bound(2))
    result = Scripted(first, second).solve(cover())
    assert (result.outcome, result.objective, result.bound) == (Outcome.OPTIMAL, 2.0, 2.0)


def test_substitute_answers_and_is_named() -> None:
    raw = Raw(outcome=Outcome.OPTIMAL, x=np.array([3.0, 0.0]), bound=scaled_bound(2))
    result = Scripted(raw, substitute="highs").solve(cover())
    assert (result.outcome, result.objective) == (Outcome.OPTIMAL, 2.0)
    assert result.solver.startswith("highs")


def test_solver_that_gives_up_is_not_replaced() -> None:
    with pytest.raises(SolverError, match="gave up"):
        Scripted(Raw(outcome=None, message="no idea"), substitute="highs").solve(cover())


def test_substitute_confirms_infeasibility() -> None:
    raw = Raw(outcome=Outcome.INFEASIBLE)
    assert Scripted(raw, substitute="highs").solve(cover()).objective == 2.0
    impossible = cover(row_lower=[99])
    assert Scripted(raw, substitute="highs").solve(impossible).outcome is Outcome.INFEASIBLE


def test_unbounded_needs_a_ray_and_a_feasible_point() -> None:
    raw = Raw(outcome=Outcome.UNBOUNDED)
    form = cover(c=[-1, 1], col_upper=[np.inf, 9], row_upper=[7], A=[[2, 0]])
    with pytest.raises(SolverError, match="along no direction"):
        Scripted(raw).solve(form)
    assert get("highs").solve(form).objective == -3.0
    free = evolve(form, row_upper=[np.inf])
    for backend in ("highs", "cbc"):
        assert get(backend).solve(free).outcome is Outcome.UNBOUNDED
        # 2 a + 2 b = 3 has no integers, and b improves without end
        odd_sum = tiny(c=[0, -1], A=[[2, 0]], row_lower=[3], row_upper=[3], integrality=[1, 1], col_upper=[9, np.inf])
        assert get(backend).solve(odd_sum).outcome is Outcome.INFEASIBLE


def test_unproved_linear_optimum_is_feasible() -> None:
    raw = Raw(outcome=Outcome.OPTIMAL, x=np.array([3.0, 0.0]), bound=3.0, duals=np.array([0.25]))
    form = cover(integrality=[0, 0])
    result = Scripted(raw, answers_linear=True).solve(form)
    assert (result.outcome, result.objective, result.bound) == (Outcome.FEASIBLE, 3.0, pytest.approx(0.75))
    assert result.duals is None
    right = Scripted(raw, answers_linear=True, substitute="highs").solve(form)
    assert (right.outcome, right.objective) == (Outcome.OPTIMAL, pytest.approx(1.5))


def test_scales_costs_up_for_a_small_objective() -> None:
    """Beside a penalty of 1e6, a resolution of 1e-5 would be one percent of an objective of 1e-3."""
    form = cover(c=[1e-3, 1e-3], A=[[2, 2]], col_upper=[9, 9])
    form = evolve(form, c=[1e-3, 1e6], A=[[2, 2]], row_lower=[2])
    backend = Scripted(Raw(outcome=Outcome.OPTIMAL, x=np.array([1.0, 0.0]), bound=1e-3))
    backend.solve(form)
    assert backend.scales[0] == 1.0
    assert backend.scales[1] >= 1e4
    for name in ("highs", "cbc"):
        result = get(name).solve(form)
        assert (result.outcome, result.objective) == (Outcome.OPTIMAL, pytest.approx(1e-3))


@pytest.mark.parametrize("name", ["highs", "cbc"])
def test_small_costs_keep_their_digits(name: str) -> None:
    costs, sizes = np.array([0.003231, 0.001345, 0.002154, 0.001085]), np.array([4.9, 3.69, 2.44, 8.5])
    form = StandardForm(
        c=np.r_[costs, 0.02291377, 1.66e11],
        A=np.r_[sizes, 1.0, -1.0][None, :],
        row_lower=[10.87],
        row_upper=[10.87],
        col_lower=np.zeros(6),
        col_upper=[1, 1, 1, 1, np.inf, np.inf],
        integrality=[1, 1, 1, 1, 0, 0],
    )
    points = np.array(list(itertools.product((0.0, 1.0), repeat=4)))
    shortfalls = 10.87 - points @ sizes
    values = points @ costs + 0.02291377 * np.maximum(shortfalls, 0.0)
    optimum = values[shortfalls >= 0.0].min()
    result = get(name).solve(form, gap=0.0)
    assert result.outcome is Outcome.OPTIMAL
    assert result.objective == pytest.approx(optimum, rel=1e-6)
    assert result.bound == pytest.approx(optimum, rel=1e-6)


def test_expired_program_keeps_its_point() -> None:
    raw = Raw(outcome=Outcome.FEASIBLE, x=np.array([3.0, 0.0]), bound=scaled_bound(1.5))
    result = Scripted(raw).solve(cover(), time_limit=10.0)
    assert (result.outcome, result.objective, result.bound) == (Outcome.FEASIBLE, 3.0, 1.5)


@pytest.mark.parametrize("name", ["highs", "cbc"])
def test_solves_columns_around_rounded_integers(name: str) -> None:
    """A coefficient of 1e6 turns an integer missed by 1e-9 into a row missed by 1e-3."""
    form = StandardForm(
        c=[0.0, 1.0, 7.0],
        A=[[1e6, 1.0, 0.0], [1.0, 0.0, 1.0]],
        row_lower=[2.5e6, 2.0],
        row_upper=[2.5e6, np.inf],
        col_lower=[0, 0, 0],
        col_upper=[5, np.inf, 1],
        integrality=[1, 0, 1],
    )
    result = get(name).solve(form)
    assert result.x == pytest.approx([2.0, 5e5, 0.0])
    assert np.abs(form.A @ np.asarray(result.x) - 2.5e6)[0] < 1e-6
