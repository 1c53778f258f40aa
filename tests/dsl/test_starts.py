"""A given point begins the search of an integer program, and is returned if the search finds none better in time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.backends import Outcome, get
from privopt.backends.base import Options
from privopt.backends.raw import Raw
from privopt.dsl import Ge, Index, IndexSet, Le, Model, maximum, minimum, total
from privopt.dsl.condition import ScaledForm
from privopt.errors import InfeasibleError, ModelError, UsageError


def knapsack(seed: int, n: int = 8) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    m: Any = Model("knapsack")
    x = m.variable("x", IndexSet("X", n), kind="binary")
    y = m.variable("y", upper=3)
    weights = rng.integers(5, 40, n).astype(float)
    m.maximize((rng.integers(5, 40, n) * x).sum() + y)
    m.require("weight", weights @ x + y <= weights.sum() / 2)
    return m, x


@settings(max_examples=12)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["highs", "cbc"]), st.booleans())
def test_optimum_does_not_depend_on_the_start(seed: int, backend: str, is_feasible: bool) -> None:
    m, _ = knapsack(seed)
    expected = m.solve(backend, gap=0.0).objective
    start = {"x": np.zeros(8) if is_feasible else np.ones(8)}
    assert m.solve(backend, gap=0.0, start=start).objective == pytest.approx(expected)
    complete = start | {"y": 0.0}
    assert m.solve(backend, gap=0.0, start=complete).objective == pytest.approx(expected)


class Recorder:
    """A backend whose own answer is replaced, and which notes the starts that reach its solver."""

    def __init__(self, name: str, raw: Raw) -> None:
        self.backend, self.raw = get(name), raw
        self.starts: list[Any] = []

    def solver(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        def solve_scaled(conditioned: ScaledForm, options: Options, attempt: int) -> Raw:
            self.starts.append(options.start)
            return self.raw

        monkeypatch.setattr(self.backend, "solve_scaled", solve_scaled)
        monkeypatch.setattr(self.backend, "substitute", None)
        return self.backend


@pytest.mark.parametrize("name", ["highs", "cbc"])
def test_start_is_the_answer_of_a_search_that_found_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    m, _ = knapsack(1)
    recorder = Recorder(name, Raw(outcome=Outcome.STOPPED, bound=None))
    start = {"x": [1.0, 0, 0, 0, 0, 0, 0, 0], "y": 1.5}
    solution = m.solve(recorder.solver(monkeypatch), start=start)
    assert solution.status == "feasible"
    assert solution.value("x").tolist() == start["x"]
    assert solution.objective == pytest.approx(m.compile().c[0] + 1.5)
    assert recorder.starts[0].tolist() == [*start["x"], 1.5]


def test_worse_point_than_the_start_is_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    m, _ = knapsack(2)
    best = m.solve("highs", gap=0.0)
    recorder = Recorder("highs", Raw(outcome=Outcome.FEASIBLE, x=np.zeros(9)))
    assert m.solve(recorder.solver(monkeypatch), start=best).objective == pytest.approx(best.objective)


def test_solver_that_calls_a_worse_point_optimal_or_nothing_feasible_is_contradicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    m, _ = knapsack(3)
    best = m.solve("highs", gap=0.0)
    lies = (Raw(outcome=Outcome.OPTIMAL, x=np.zeros(9), bound=0.0), Raw(outcome=Outcome.INFEASIBLE))
    for raw in lies:
        solution = m.solve(Recorder("highs", raw).solver(monkeypatch), start=best)
        assert (solution.status, solution.objective) == ("feasible", pytest.approx(best.objective))


@pytest.mark.parametrize("name", ["highs", "cbc"])
def test_start_outside_bounds_that_have_changed_is_no_error(name: str) -> None:
    m, x = knapsack(6)
    best = m.solve(name, gap=0.0)
    x.upper = 1 - best.value("x")
    changed = m.solve(name, gap=0.0, start=best)
    assert changed.status == "optimal"
    assert changed.objective == pytest.approx(m.solve(name, gap=0.0).objective)


def test_absolute_values_and_extrema_of_a_start_follow_from_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    X = IndexSet("X", 3)
    i = Index("i", X)
    m: Any = Model("functions")
    x = m.variable("x", X, lower=-5, upper=5, kind="integer")
    m.minimize(total(abs(x[i] - 1), over=i, where=[0, 1]) + maximum(abs(x[i]), 2 * x[i], over=i))
    m.require("least", Ge(minimum(x[i], over=i), -4))
    recorder = Recorder("highs", Raw(outcome=Outcome.STOPPED, bound=None))
    solution = m.solve(recorder.solver(monkeypatch), start={"x": [2, -3, 1]})
    assert (solution.status, solution.objective) == ("feasible", pytest.approx(1 + 4 + 4))
    m.solve("highs", start={"x": [np.nan, -3, 1]})


@pytest.mark.parametrize("name", ["highs", "cbc"])
def test_solvers_take_the_start(name: str) -> None:
    # The start is optimal, and the search is stopped at its first node or before: the answer is as good.
    m, _ = knapsack(4, n=40)
    best = m.solve(name, gap=0.0)
    again = m.solve(name, start=best, gap=1.0)
    assert again.objective >= best.objective - 1e-6
    partial = m.solve(name, start={"x": best.value("x")}, gap=1.0)
    assert partial.objective >= best.objective - 1e-6


@pytest.mark.parametrize(
    ("start", "error", "message"),
    [
        ({"z": [1.0]}, ModelError, "no variable is called 'z'"),
        ({"x": [1.0]}, ModelError, r"start of x: must have shape \(8,\), got \(1,\)"),
        ({"x": {0: 1.0}}, ModelError, "start of x: no number for the label 1"),
        ({"x": ["a"] * 8}, ModelError, "start of x: must be numbers"),
        ({"x": np.full(8, np.inf)}, UsageError, "finite numbers or NaN"),
        (np.zeros(9), ModelError, "an earlier solution, or values by the name of a variable, got a ndarray"),
    ],
)
def test_starts_that_do_not_fit(start: Any, error: type[Exception], message: str) -> None:
    m, _ = knapsack(5)
    with pytest.raises(error, match=message):
        m.solve("highs", start=start)


def test_linear_programs_take_no_start() -> None:
    m: Any = Model("linear")
    x = m.variable("x", IndexSet("X", 2), upper=1)
    i = Index("i", x.sets[0])
    m.maximize(total(x[i], over=i))
    with pytest.raises(UsageError, match="start is for models with integer variables"):
        m.solve("highs", start={"x": [1.0, 1.0]})
    form = knapsack(1)[0].compile()
    wrong_starts = (([1.0], "each of 9 columns, got 1"), ("a", "vector of numbers"), (np.zeros((3, 3)), "shape"))
    for start, message in wrong_starts:
        with pytest.raises(UsageError, match=message):
            get("highs").solve(form, start=start)  # type: ignore[arg-type]


def test_infeasible_model_with_a_start() -> None:
    m, x = knapsack(6)
    m.require("many", Le(9, x.sum()))
    with pytest.raises(InfeasibleError, match="many"):
        m.solve("cbc", start={"x": np.ones(8)})
