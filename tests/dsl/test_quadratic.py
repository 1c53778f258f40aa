"""Quadratic objectives equal what SciPy's general solvers and closed forms find, and non-convex ones are refused."""

from __future__ import annotations

from typing import Any

import highspy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from privopt.backends import get, read_mps
from privopt.dsl import Eq, Index, IndexSet, Le, Model, maximum, solve_form, total
from privopt.dsl.duality import dual_bound, rigorous_bound
from privopt.errors import InfeasibleError, ModelError, UnboundedError, UsageError

FEW = settings(max_examples=40)


def random_model(seed: int) -> tuple[Model, Any]:
    """Return a convex model (or a concave one that is maximised), and its numbers for SciPy: c, Q, A, b, sense."""
    rng = np.random.default_rng(seed)
    n, q = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    F, f, c, A = rng.normal(size=(q, n)), rng.normal(size=q), rng.normal(size=n), rng.normal(size=(2, n))
    w, b, sign = rng.random(q), rng.random(2) + 0.1, 1.0 if rng.integers(2) else -1.0
    m = Model("quadratic")
    N, Q = IndexSet("N", n), IndexSet("Q", q)
    i, r = Index("i", N), Index("r", Q)
    a, shift, weight, cost = m.param("a", F), m.param("f", f), m.param("w", w), m.param("c", c)
    x = m.variable("x", N, lower=-2, upper=2)
    inner = total(a[r, i] * x[i], over=i) - shift[r]
    objective = sign * total(weight[r] * inner**2 + x[0] ** 2 / 2, over=r) + total(cost[i] * x[i], over=i) + 3
    (m.minimize if sign > 0 else m.maximize)(objective)
    m.require("rows", A @ x <= b)

    def value(point: Any) -> float:
        return float(sign * (w @ (F @ point - f) ** 2 + q * point[0] ** 2 / 2) + c @ point + 3)

    answer = minimize(
        lambda point: sign * value(point),
        np.zeros(n),
        method="SLSQP",
        bounds=[(-2, 2)] * n,
        constraints=[{"type": "ineq", "fun": lambda point: b - A @ point, "jac": lambda point: -A}],
        options={"ftol": 1e-13, "maxiter": 500},
    )
    assert answer.success
    return m, sign * answer.fun


@FEW
@given(st.integers(0, 2**32 - 1))
def test_convex_objectives_agree_with_scipy(seed: int) -> None:
    model, expected = random_model(seed)
    solution = model.solve("highs")
    assert solution.status == "optimal"
    assert solution.objective == pytest.approx(expected, rel=1e-5, abs=1e-6)
    flip = 1.0 if model.sense == "min" else -1.0
    assert solution.bound is not None
    assert flip * solution.bound <= flip * solution.objective
    assert solution.gap is not None
    assert abs(solution.bound - solution.objective) <= 2e-6 * (1 + abs(solution.objective))
    # The multipliers are those of the tangent at the point.
    gradient = solution.form.c + solution.form.Q @ solution.x
    assert np.allclose(gradient - solution.form.A.T @ solution.duals, solution.reduced, atol=1e-9)


@FEW
@given(st.integers(0, 2**32 - 1))
def test_files_keep_the_objective(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    model, expected = random_model(seed)
    form, folder = model.compile(), tmp_path_factory.mktemp("files")
    model.write(folder / "model.mps")
    model.write(folder / "model.lp")
    read = read_mps(folder / "model.mps")
    assert read.Q is not None
    assert form.Q is not None
    assert abs(read.Q - form.Q).max() == 0
    assert solve_form(read, "highs").objective == pytest.approx(expected, rel=1e-5, abs=1e-6)
    for name in ("model.mps", "model.lp"):
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.readModel(str(folder / name))
        solver.run()
        assert solver.getInfo().objective_function_value == pytest.approx(expected, rel=1e-5, abs=1e-6)


def projection_model() -> tuple[Any, Any]:
    """Return a model that projects a point onto the probability simplex, and its variable."""
    m: Any = Model("projection")
    X = IndexSet("X", 4)
    i = Index("i", X)
    x, p = m.variable("x", X), m.param("p", [0.9, 0.5, -0.2, 0.1], X)
    m.minimize(total((x[i] - p[i]) ** 2, over=i))
    m.require("mass", Eq(total(x[i], over=i), 1))
    return m, x


def test_projection_onto_the_simplex_has_its_closed_form() -> None:
    m, _ = projection_model()
    # Subtract the threshold at which the positive parts sum to 1: (0.9 + 0.5 - 1) / 2.
    assert m.solve("highs").value("x") == pytest.approx([0.7, 0.3, 0.0, 0.0], abs=1e-6)
    m.params["p"].value = [0.25, 0.25, 0.25, 5.0]
    assert m.solve("highs").value("x") == pytest.approx([0.0, 0.0, 0.0, 1.0], abs=1e-6)


def test_square_of_a_sum_is_not_the_sum_of_squares() -> None:
    m: Any = Model("sum")
    X = IndexSet("X", 3)
    i = Index("i", X)
    x = m.variable("x", X, lower=1)
    m.minimize(total(x[i], over=i) ** 2 + total(x[i], over=i) * total(2 * x[i], over=i))
    assert m.solve("highs").objective == pytest.approx(27)
    assert "(sum(x[i] for i in X))**2" in str(m)


def test_no_linear_bound_is_claimed() -> None:
    m, _ = projection_model()
    solution = m.solve("highs")
    assert solution.rigorous_bound is None
    for bound in (dual_bound, rigorous_bound):
        with pytest.raises(ModelError, match="no quadratic objective"):
            bound(solution.form, np.zeros(1))
    for call in (get("highs").session, get("cbc").session):
        with pytest.raises(ModelError, match="a session takes no quadratic objective"):
            call(solution.form)
    with pytest.raises(UsageError, match="no ranging"):
        solution.ranging("x")


def test_solvers_that_take_none_refuse_it_by_name() -> None:
    m, _ = projection_model()
    with pytest.raises(UsageError, match=r'cbc takes no quadratic objective; "highs" does'):
        m.solve("cbc")
    m.variable("n", kind="integer", upper=3)
    with pytest.raises(UsageError, match="highs takes quadratic objectives of continuous variables only, and n is not"):
        m.solve("highs")


def test_unbounded_and_infeasible_quadratic_models() -> None:
    m: Any = Model("ray")
    x, y = m.variable("x", lower=None), m.variable("y", lower=None)
    m.minimize((x - y) ** 2 - x)
    with pytest.raises(UnboundedError, match="ray is unbounded"):
        m.solve("highs")
    m.require("cap", Le(x, 2))
    assert m.solve("highs").objective == pytest.approx(-2, abs=1e-6)
    m.require("low", Le(3, x))
    with pytest.raises(InfeasibleError, match="cap and low clash"):
        m.solve("highs")


@pytest.mark.parametrize("size", [2, 20, 200])
@pytest.mark.parametrize("sense", ["min", "max"])
def test_squares_beside_absolute_values_are_proved_optimal(size: int, sense: str) -> None:
    m: Any = Model("mixed")
    X = IndexSet("X", 3)
    i = Index("i", X)
    x = m.variable("x", X, lower=-5, upper=5)
    cost = (x[0] - 1) ** 2 + maximum(size - x[i], over=i) + total(abs(x[i] - 4), over=i)
    if sense == "min":
        m.minimize(cost)
    else:
        m.maximize(-cost)
    solution = m.solve("highs")
    # (t - 1)**2 + size - t + 4 - t at t = 2, with the other two at 4
    assert solution.status == "optimal"
    assert abs(solution.objective) == pytest.approx(size + 1, abs=1e-5)
    assert abs(solution.bound) == pytest.approx(size + 1, abs=1e-3)


@pytest.mark.parametrize(
    "objective",
    [
        lambda x: x[0] ** 2 + x[1],
        lambda x: (x[0] + x[1]) ** 2 + x[1],
        lambda x: x[0] ** 2 + 1e-9 * x[1],
        lambda x: (x[0] - 1) ** 2 + x[1] - 2 * x[2],
    ],
)
def test_models_that_the_solver_ends_at_a_far_point_are_unbounded(objective: Any) -> None:
    m: Any = Model("ray")
    x = m.variable("x", IndexSet("X", 3), lower=None)
    m.minimize(objective(x))
    m.require("equal", Eq(x[1], x[2]))
    with pytest.raises(UnboundedError, match="ray is unbounded"):
        m.solve("highs")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (lambda m, x: m.maximize(x[0] ** 2, replace=True), r"maximised must be concave.*x\[0\]"),
        (lambda m, x: m.minimize(-(x[0] ** 2), replace=True), "minimised must be convex"),
        (lambda m, x: m.minimize(x[0] * x[1], replace=True), r"x\[0\], x\[1\]"),
        (lambda m, x: m.minimize((x[0] + 2 * x[1]) * (x[0] + x[1]), replace=True), "must be convex"),
        (lambda m, x: m.minimize(x[0] ** 2 + x[1] ** 2 - 2.01 * x[0] * x[1], replace=True), "must be convex"),
    ],
)
def test_wrong_curvature_is_refused(state: Any, message: str) -> None:
    m, x = projection_model()
    state(m, x)
    with pytest.raises(ModelError, match=message):
        m.solve("highs")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (lambda m, x: m.minimize(x[0] ** 3, replace=True), "neither linear nor quadratic"),
        (lambda m, x: m.minimize(x[0] * x[1] * x[2], replace=True), "neither linear nor quadratic"),
        (lambda m, x: m.minimize(1 / x[0], replace=True), "neither linear nor quadratic"),
        (lambda m, x: m.minimize(Model("other").variable("y") ** 2, replace=True), "must be one of model projection"),
        (lambda m, x: m.require("row", Le(x[0] ** 2, 1)), "not linear"),
    ],
)
def test_other_powers_are_refused(state: Any, message: str) -> None:
    m, x = projection_model()
    with pytest.raises(ModelError, match=message):
        state(m, x)


def test_infinite_coefficient_is_refused_by_name() -> None:
    m, X = Model("infinite"), IndexSet("X", ["a", "b"])
    i = Index("i", X)
    x, p = m.variable("x", X), m.param("p", np.array([1.0, np.inf]), X)
    m.minimize(total(p[i] * x[i] ** 2, over=i))
    with pytest.raises(ModelError, match=r"coefficient p\[i\] must be finite, got inf at i = 'b'"):
        m.compile()


def test_boundary_of_convexity_is_accepted() -> None:
    m, x = projection_model()
    m.minimize(x[0] ** 2 + x[1] ** 2 - 2 * x[0] * x[1] + x[2], replace=True)
    assert m.solve("highs").objective == pytest.approx(0, abs=1e-6)
