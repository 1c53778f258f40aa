"""Semicontinuous variables against HiGHS's own, against all choices of zeros, and in files."""

from __future__ import annotations

from itertools import product
from typing import Any

import highspy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from privopt.backends import get, read_mps
from privopt.decompose.split import split_form
from privopt.dsl import Eq, Ge, IndexSet, Le, Model, StandardForm, implies, solve_form
from privopt.dsl.form import SEMICONTINUOUS
from privopt.errors import InfeasibleError, ModelError


def random_model(seed: int) -> tuple[Model, dict[str, Any]]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    c, A = rng.integers(-4, 5, n).astype(float), rng.integers(-3, 4, (2, n)).astype(float)
    lower = rng.integers(0, 4, n) / 2
    upper = lower + rng.integers(0, 6, n) / 2
    b = rng.integers(-4, 8, 2).astype(float)
    m = Model("batches")
    x = m.variable("x", IndexSet("X", n), lower=lower, upper=upper, kind="semicontinuous")
    y = m.variable("y", upper=2)
    m.maximize((c * x).sum() - y)
    m.require("rows", A @ x - y <= b)
    return m, {"c": c, "A": A, "b": b, "lower": lower, "upper": upper}


def optimum_of_choices(data: dict[str, Any]) -> float | None:
    """Return the best objective over all choices of columns that are 0."""
    n, best = len(data["c"]), None
    for used in product([0.0, 1.0], repeat=n):
        bounds = [(u * low, u * high) for u, low, high in zip(used, data["lower"], data["upper"], strict=True)]
        answer = linprog(
            np.r_[-data["c"], 1], A_ub=np.c_[data["A"], -np.ones(2)], b_ub=data["b"], bounds=[*bounds, (0, 2)]
        )
        if answer.status == 0 and (best is None or -answer.fun > best):
            best = -answer.fun
    return best


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["highs", "cbc"]))
def test_optima_of_all_choices(seed: int, backend: str) -> None:
    model, data = random_model(seed)
    expected = optimum_of_choices(data)
    if expected is None:
        with pytest.raises(InfeasibleError):
            model.solve(backend)
        return
    solution = model.solve(backend, gap=0.0)
    assert solution.objective == pytest.approx(expected, abs=1e-6)
    x = solution.value("x")
    is_within = (x >= data["lower"]) & (x <= data["upper"])
    assert ((x == 0) | is_within).all()
    assert solution.x.shape == (len(x) + 1,)
    assert model.solve(backend, gap=0.0, start=solution).objective == pytest.approx(expected, abs=1e-6)


def native_optimum(form: StandardForm) -> float | None:
    """Return the optimum that HiGHS finds with semicontinuous columns of its own."""
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("mip_rel_gap", 0.0)
    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = form.shape
    lp.sense_ = highspy.ObjSense.kMaximize if form.sense == "max" else highspy.ObjSense.kMinimize
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = form.c, form.col_lower, form.col_upper
    lp.row_lower_, lp.row_upper_, lp.offset_ = form.row_lower, form.row_upper, form.c0
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = form.A.indptr, form.A.indices, form.A.data
    lp.integrality_ = [highspy.HighsVarType(int(code)) for code in form.integrality]
    solver.passModel(lp)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return float(solver.getInfo().objective_function_value)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_native_columns_and_files_agree(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    model, data = random_model(seed)
    expected, form = optimum_of_choices(data), model.compile()
    assert (native_optimum(form) is None) == (expected is None)
    if expected is None:
        return
    assert native_optimum(form) == pytest.approx(expected, abs=1e-5)
    path = tmp_path_factory.mktemp("files") / "model.mps"
    model.write(path)
    assert solve_form(read_mps(path), "cbc", gap=0.0).objective == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("suffix", [".mps", ".lp"])
def test_file_has_quadratic_objective_and_semicontinuous_columns(tmp_path: Any, suffix: str) -> None:
    m: Any = Model("portfolio")
    x = m.variable("x", IndexSet("X", 2), lower=1, upper=4, kind="semicontinuous")
    m.minimize((x[0] - 2) ** 2 + x[1])
    m.write(tmp_path / f"model{suffix}")
    form = read_mps(tmp_path / f"model{suffix}")
    # 2 at x[0] = x[1] = 1 with both binaries 1.
    assert form.objective_at(np.ones(form.shape[1])) == pytest.approx(2.0)


def test_file_with_semicontinuous_columns_is_read(tmp_path: Any) -> None:
    path = tmp_path / "model.mps"
    path.write_text(
        "NAME m\nROWS\n N cost\n G need\nCOLUMNS\n x cost 2.0\n x need 1.0\n y cost 3.0\n y need 1.0\n"
        "RHS\n RHS need 1.0\n"
        "BOUNDS\n LO B x 2.0\n SC B x 5.0\n UP B y 4.0\nENDATA\n"
    )
    form = read_mps(path)
    assert form.integrality.tolist() == [SEMICONTINUOUS, 0]
    assert solve_form(form, "highs").objective == pytest.approx(3.0)


def test_bounds_must_be_finite_and_not_negative() -> None:
    m: Any = Model("bounds")
    for lower, upper in ((0, np.inf), (-1, 2), (None, 3)):
        with pytest.raises(ModelError, match="finite and at least 0"):
            m.variable("x", lower=lower, upper=upper, kind="semicontinuous")
    x = m.variable("x", lower=2, upper=3, kind="semicontinuous")
    m.maximize(-x)
    assert m.solve("highs").objective == 0
    x.upper = np.inf
    with pytest.raises(ModelError, match="finite and at least 0"):
        m.compile()


def test_what_takes_no_semicontinuous_columns_says_so() -> None:
    model, _ = random_model(1)
    form = model.compile()
    for backend in ("highs", "cbc"):
        with pytest.raises(ModelError, match=r"a session takes no semicontinuous columns, got x\[0\]"):
            get(backend).session(form)
    with pytest.raises(ModelError, match="integer"):
        split_form(form, [])


@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_clash_of_a_gap_names_the_column(backend: str) -> None:
    m = Model("gap")
    x = m.variable("x", lower=4, upper=6, kind="semicontinuous")
    m.require("some", Ge(x, 1))
    m.require("few", Le(x, 3))
    with pytest.raises(InfeasibleError, match="0 or within bounds"):
        m.solve(backend)


def test_implications_know_that_the_variable_may_be_0() -> None:
    m: Any = Model("switch")
    x = m.variable("x", lower=2, upper=6, kind="semicontinuous")
    h = m.variable("h", kind="binary")
    m.require("on", implies(h, Ge(x, 5)))
    m.require("is off", Eq(x, 0))
    m.maximize(h + x)
    assert m.solve("highs").objective == pytest.approx(0)
    assert "x = 0 or >= 2, <= 6" in str(m)
    assert r"x = 0 \lor 2 \leq x \leq 6" in m.latex()
