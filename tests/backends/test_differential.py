"""Random models on both solvers against SciPy, brute force and dynamic programming: status, objective, bound, duals."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from privopt.backends import Outcome, Result, get
from privopt.dsl import Ge, Index, IndexSet, Le, Model, total
from privopt.dsl.form import StandardForm, round_integer_bounds
from privopt.dsl.solution import solve_form
from privopt.errors import InfeasibleError, SolverError

BACKENDS = ("highs", "cbc")
SUITE_MODELS, SLOW_MODELS = 200, 2000


def random_model(seed: int) -> StandardForm:
    """Return a linear or integer program with all kinds of bounds and rows; some are infeasible or unbounded."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 7)), int(rng.integers(0, 6))
    kind = rng.choice(["linear", "integer", "mixed"], p=[0.4, 0.3, 0.3])
    integrality = {"linear": np.zeros(n), "integer": np.ones(n), "mixed": rng.integers(0, 2, n)}[kind]
    start = np.where(rng.random(n) < 0.6, rng.integers(-6, 7, n), np.round(rng.uniform(-6, 6, n), 2)).astype(float)
    width = np.where(rng.random(n) < 0.7, rng.integers(0, 8, n), np.round(rng.uniform(1, 8, n), 2)).astype(float)
    lower = np.where(rng.random(n) < 0.15, -np.inf, start)
    upper = np.where(rng.random(n) < 0.25, np.inf, start + width)
    matrix = rng.integers(-4, 5, (m, n)) * rng.choice([1.0, 0.37], (m, 1)) * (rng.random((m, n)) < 0.7)
    point = np.round(start + rng.random(n) * width)
    anchor = matrix @ point if rng.random() < 0.8 else rng.integers(-8, 9, m).astype(float)
    shape = rng.choice(4, m, p=[0.4, 0.35, 0.1, 0.15])
    slack = np.round(rng.random(m) * 4, 1)
    row_lower = np.where(shape == 0, -np.inf, np.where(shape == 2, anchor, anchor - slack))
    row_upper = np.where(shape == 1, np.inf, np.where(shape == 2, anchor, anchor + slack))
    return StandardForm(
        c=rng.integers(-4, 5, n) * rng.choice([1.0, 0.01, 1e4]),
        c0=float(rng.integers(-5, 6)),
        sense="min" if rng.random() < 0.5 else "max",
        A=matrix,
        row_lower=row_lower,
        row_upper=row_upper,
        col_lower=lower,
        col_upper=upper,
        integrality=integrality,
    )


def scipy_answer(form: StandardForm) -> tuple[Outcome, float | None]:
    """Return the status and the optimum by SciPy, whose solver is given bounds that are integers."""
    flip = 1.0 if form.sense == "min" else -1.0
    bounds = Bounds(*round_integer_bounds(form.col_lower, form.col_upper, form.integrality))
    if (bounds.lb > bounds.ub).any():
        return Outcome.INFEASIBLE, None
    rows = [LinearConstraint(form.A, form.row_lower, form.row_upper)] if form.shape[0] else []
    options: dict[str, Any] = {
        "constraints": rows,
        "bounds": bounds,
        "integrality": form.integrality,
        "options": {"mip_rel_gap": 0.0},
    }
    answer = milp(flip * form.c, **options)
    if answer.status == 0:
        return Outcome.OPTIMAL, float(flip * answer.fun) + form.c0
    is_feasible = milp(0.0 * form.c, **options).status == 0
    return (Outcome.UNBOUNDED if is_feasible else Outcome.INFEASIBLE), None


def faults(form: StandardForm, result: Result, outcome: Outcome, optimum: float | None) -> list[str]:
    """Return what is wrong with a result."""
    if result.outcome is not outcome:
        return [f"{result.outcome} for {outcome}: {result.message}"]
    if optimum is None or result.x is None or result.objective is None:
        return []
    flip = 1.0 if form.sense == "min" else -1.0
    tolerance = 1e-6 * (1 + abs(optimum))
    activity = form.A @ result.x
    texts = []
    if abs(result.objective - optimum) > tolerance:
        texts.append(f"objective {result.objective}, optimum {optimum}")
    if abs(float(form.c @ result.x) + form.c0 - result.objective) > 1e-9 * (1 + abs(optimum)):
        texts.append("the objective is not that of the vector")
    if np.maximum(form.row_lower - activity, activity - form.row_upper).max(initial=0.0) > 1e-6:
        texts.append("a row is violated")
    if np.maximum(form.col_lower - result.x, result.x - form.col_upper).max(initial=0.0) > 1e-9:
        texts.append("a bound is violated")
    if (result.x[form.integrality == 1] % 1 != 0).any():
        texts.append("an integer column is fractional")
    if result.bound is None or abs(result.bound - result.objective) > tolerance:
        texts.append(f"bound {result.bound} of an optimum {optimum}")
    elif flip * (result.bound - optimum) > tolerance:
        texts.append(f"bound {result.bound} beyond {optimum}")
    if not form.is_mip:
        texts += dual_faults(form, result, optimum)
    return texts


def dual_faults(form: StandardForm, result: Result, optimum: float) -> list[str]:
    """Return what is wrong with multipliers: stationarity, signs, strong duality."""
    assert result.duals is not None
    assert result.reduced is not None
    flip = 1.0 if form.sense == "min" else -1.0
    scale = 1 + np.abs(form.c).max()
    texts = []
    if np.abs(form.c - form.A.T @ result.duals - result.reduced).max(initial=0.0) > 1e-6 * scale:
        texts.append("reduced costs are not c - A'y")
    value = 0.0
    for multipliers, lower, upper in (
        (flip * result.duals, form.row_lower, form.row_upper),
        (flip * result.reduced, form.col_lower, form.col_upper),
    ):
        nonzero_rows = np.flatnonzero(np.abs(multipliers) > 1e-7 * scale)
        binding_sides = np.where(multipliers[nonzero_rows] > 0, lower[nonzero_rows], upper[nonzero_rows])
        if not np.isfinite(binding_sides).all():
            texts.append("a multiplier has the wrong sign")
            return texts
        value += float(multipliers[nonzero_rows] @ binding_sides)
    if abs(flip * value + form.c0 - optimum) > 1e-5 * (scale + abs(optimum)):
        texts.append(f"multipliers prove {flip * value + form.c0}, optimum {optimum}")
    return texts


def check_seeds(seeds: range) -> None:
    """Solve the models of these seeds on both solvers."""
    disagreements = []
    for seed in seeds:
        form = random_model(seed)
        outcome, optimum = scipy_answer(form)
        for backend in BACKENDS:
            result = get(backend).solve(form, gap=0.0)
            disagreements += [(seed, backend, text) for text in faults(form, result, outcome, optimum)]
    assert disagreements == []


def test_random_models_agree_with_scipy() -> None:
    check_seeds(range(SUITE_MODELS))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_many_random_models_agree_with_scipy(part: int) -> None:
    count = SLOW_MODELS // 4
    check_seeds(range(SUITE_MODELS + part * count, SUITE_MODELS + (part + 1) * count))


def cheapest_cover(costs: np.ndarray, sizes: np.ndarray, required_size: int) -> float:
    """Return the least cost of items whose sizes reach ``need``, by dynamic programming."""
    best = np.full(required_size + 1, np.inf)
    best[0] = 0.0
    for cost, size in zip(costs.tolist(), sizes.tolist(), strict=True):
        for size_reached in range(required_size, -1, -1):
            total_size = min(required_size, size_reached + size)
            best[total_size] = min(best[total_size], best[size_reached] + cost)
    return float(best[required_size])


@settings(max_examples=25)
@example(seed=0, exponent=5.0, unit=1.0, backend="cbc", sense="min")
@example(seed=0, exponent=8.0, unit=1.0, backend="highs", sense="max")
@given(
    seed=st.integers(0, 2**32 - 1),
    exponent=st.floats(2, 12),
    unit=st.sampled_from([1.0, 1e-3, 1e3]),
    backend=st.sampled_from(BACKENDS),
    sense=st.sampled_from(["min", "max"]),
)
def test_penalty_changes_no_integer_optimum(seed: int, exponent: float, unit: float, backend: str, sense: str) -> None:
    rng = np.random.default_rng(seed)
    n = 18
    costs, sizes = unit * rng.integers(10, 60, n) / 10, rng.integers(10, 60, n)
    required_size = int(sizes.sum() // 2)
    optimum = cheapest_cover(costs, sizes, required_size)
    items = IndexSet("items", n)
    i = Index("i", items)
    model = Model("cover")
    take, shortfall = model.variable("take", items, kind="binary"), model.variable("shortfall")
    cost, size = model.param("cost", costs), model.param("size", sizes.astype(float))
    loss = total(cost[i] * take[i], over=i) + unit * 10.0**exponent * shortfall
    model.require("need", Ge(total(size[i] * take[i], over=i) + shortfall, required_size))
    (model.minimize if sense == "min" else model.maximize)(loss if sense == "min" else -loss)
    solution = model.solve(backend, gap=0.0)
    flip = 1.0 if sense == "min" else -1.0
    assert solution.status == "optimal"
    assert flip * solution.objective == pytest.approx(optimum, rel=1e-7)
    assert solution.bound is not None
    assert flip * solution.bound <= optimum * (1 + 1e-7)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), exponent=st.floats(2, 12), backend=st.sampled_from(BACKENDS))
def test_penalty_changes_no_linear_optimum(seed: int, exponent: float, backend: str) -> None:
    rng = np.random.default_rng(seed)
    n = 10
    costs, matrix = rng.uniform(1, 6, n), rng.uniform(1, 6, (3, n))
    requirements = matrix.sum(axis=1) * 0.4
    optimum = linprog(costs, A_ub=-matrix, b_ub=-requirements, bounds=(0, 1)).fun
    form = StandardForm(
        c=np.r_[costs, np.full(3, 10.0**exponent)],
        A=np.c_[matrix, np.eye(3)],
        row_lower=requirements,
        row_upper=np.full(3, np.inf),
        col_lower=np.zeros(n + 3),
        col_upper=np.r_[np.ones(n), np.full(3, np.inf)],
        integrality=np.zeros(n + 3),
    )
    solution = solve_form(form, backend)
    assert solution.status == "optimal"
    assert solution.objective == pytest.approx(optimum, rel=1e-6)
    assert solution.bound is not None
    assert solution.bound <= optimum * (1 + 1e-6)
    assert solution.duals is not None


def best_by_enumeration(form: StandardForm, reach: int) -> float | None:
    """Return the optimum over the integers at most ``reach`` from 0, or None if no point is feasible."""
    flip = 1.0 if form.sense == "min" else -1.0
    low = np.maximum(np.ceil(form.col_lower), -reach).astype(int)
    high = np.minimum(np.floor(form.col_upper), reach).astype(int)
    points = np.array(
        list(itertools.product(*(range(a, b + 1) for a, b in zip(low.tolist(), high.tolist(), strict=True)))),
        dtype=float,
    ).reshape(-1, form.shape[1])
    activity = points @ form.A.toarray().T
    is_feasible = ((activity >= form.row_lower - 1e-9) & (activity <= form.row_upper + 1e-9)).all(axis=1)
    if not is_feasible.any():
        return None
    return float(flip * (flip * (points[is_feasible] @ form.c)).min()) + form.c0


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), backend=st.sampled_from(BACKENDS))
def test_one_sided_integers(seed: int, backend: str) -> None:
    """CBC calls vectors optimal that do not have the objective that it gives."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(2, 4)), int(rng.integers(1, 3))
    lower = rng.integers(-5, 1, n).astype(float)
    upper = lower + rng.integers(1, 6, n)
    cost = rng.integers(-3, 4, n).astype(float)
    column = int(rng.integers(n))
    cost[column] = 0.0
    (lower if rng.random() < 0.5 else upper)[column] = np.nan
    lower, upper = np.where(np.isnan(lower), -np.inf, lower), np.where(np.isnan(upper), np.inf, upper)
    form = StandardForm(
        c=cost,
        A=rng.integers(-4, 5, (m, n)),
        row_lower=np.full(m, -np.inf),
        row_upper=np.round(rng.uniform(-25, 15, m), 1),
        col_lower=lower,
        col_upper=upper,
        integrality=np.ones(n),
    )
    optimum = best_by_enumeration(form, 60)
    result = get(backend).solve(form, gap=0.0)
    assert faults(form, result, Outcome.INFEASIBLE if optimum is None else Outcome.OPTIMAL, optimum) == []


@settings(max_examples=40)
@given(
    lower=st.lists(st.floats(-4, 4), min_size=2, max_size=2),
    width=st.lists(st.floats(0, 4), min_size=2, max_size=2),
    seed=st.integers(0, 2**32 - 1),
    backend=st.sampled_from(BACKENDS),
)
def test_integers_with_fractional_bounds(lower: list[float], width: list[float], seed: int, backend: str) -> None:
    """HiGHS calls such models infeasible, or misses their optimum."""
    rng = np.random.default_rng(seed)
    low, high = round_integer_bounds(np.array(lower), np.add(lower, width), np.ones(2))
    form = StandardForm(
        c=rng.integers(-4, 5, 2),
        c0=1.0,
        sense="max" if seed % 2 else "min",
        A=rng.integers(-4, 5, (2, 2)),
        row_lower=np.full(2, -np.inf),
        row_upper=np.round(rng.uniform(-6, 12, 2), 1),
        col_lower=lower,
        col_upper=np.add(lower, width),
        integrality=np.ones(2),
    )
    rounded = StandardForm(
        c=form.c,
        c0=1.0,
        sense=form.sense,
        A=form.A,
        row_lower=form.row_lower,
        row_upper=form.row_upper,
        col_lower=low,
        col_upper=high,
        integrality=form.integrality,
    )
    optimum = None if (low > high).any() else best_by_enumeration(rounded, 10)
    result = get(backend).solve(form, gap=0.0)
    assert faults(rounded, result, Outcome.INFEASIBLE if optimum is None else Outcome.OPTIMAL, optimum) == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_names_missing_integer_between_bounds(backend: str) -> None:
    model = Model("gap")
    x = model.variable("x", lower=0.2, upper=0.8, kind="integer")
    model.minimize(x)
    with pytest.raises(InfeasibleError, match="bounds of x"):
        model.solve(backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_unbounded_program_is_not_called_optimal(backend: str) -> None:
    form = StandardForm(
        c=[0, 3, 0],
        sense="max",
        A=[[1, -1, -1], [0, 0, 1], [0, -1, 1]],
        row_lower=[-np.inf, 3, -np.inf],
        row_upper=[-6, np.inf, 0],
        col_lower=[-np.inf, -np.inf, 0],
        col_upper=[-2, np.inf, 5],
        integrality=np.zeros(3),
    )
    assert get(backend).solve(form).outcome is Outcome.UNBOUNDED


@settings(max_examples=20)
@example(exponent=-10.0, price=6.0, backend="highs", has_gain=True)
@given(exponent=st.floats(-12, -3), price=st.floats(0, 6), backend=st.sampled_from(BACKENDS), has_gain=st.booleans())
def test_tiny_coefficient_counts(exponent: float, price: float, backend: str, has_gain: bool) -> None:
    tiny, cost = 10.0**exponent, 10.0**price
    gain = 1.0 if has_gain else 0.25
    model = Model("tiny")
    b, p = model.variable("b", kind="binary"), model.variable("p", upper=1)
    model.maximize(gain * b - cost * p)
    model.require("paid", Le(tiny * b, p))
    solution = model.solve(backend)
    assert solution.status == "optimal"
    assert solution.objective == pytest.approx(max(0.0, gain - cost * tiny), abs=2e-6)


@settings(max_examples=20)
@given(exponent=st.floats(1, 14), backend=st.sampled_from(BACKENDS), is_reversed=st.booleans())
def test_big_m_is_right_or_refused_with_advice(exponent: float, backend: str, is_reversed: bool) -> None:
    constant = 10.0**exponent
    model = Model("switch")
    x, y = model.variable("x", kind="binary"), model.variable("y")
    model.minimize(x)
    model.require("least", Ge(y, 1))
    if is_reversed:
        model.require("link", Ge(constant * (x - 1), y - constant))
    else:
        model.require("link", Le(y, constant * x))
    try:
        solution = model.solve(backend)
    except SolverError as error:
        refusal = str(error)
    else:
        refusal = ""
        assert solution.objective == 1.0
        assert solution.bound is None or solution.bound <= 1.0
    assert not refusal or (exponent > 8 and "implies" in refusal)
