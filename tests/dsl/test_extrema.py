"""Absolute values, maxima and minima equal what SciPy finds with the lines written out by hand."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from privopt.backends import read_mps
from privopt.dsl import Eq, Ge, Index, IndexSet, Le, Model, between, implies, maximum, minimum, solve_form, total
from privopt.errors import ModelError

FEW = settings(max_examples=30)


def fit_model(seed: int) -> tuple[Model, float]:
    """Return a model that fits numbers by the sum of absolute errors, and its optimum."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(2, 6)), int(rng.integers(1, 3))
    A, b = rng.integers(-4, 5, (n, k)), rng.integers(-9, 10, n)
    m = Model("fit")
    N, K = IndexSet("N", n), IndexSet("K", k)
    i, j = Index("i", N), Index("j", K)
    a, y, x = m.param("a", A), m.param("y", b), m.variable("x", K, lower=-5, upper=5)
    m.minimize(total(abs(total(a[i, j] * x[j], over=j) - y[i]), over=i) + 1)
    identity = np.eye(n)
    answer = linprog(
        np.r_[np.zeros(k), np.ones(n)],
        A_ub=np.block([[A, -identity], [-A, -identity]]),
        b_ub=np.r_[b, -b],
        bounds=[(-5, 5)] * k + [(None, None)] * n,
    )
    return m, float(answer.fun) + 1


@FEW
@given(st.integers(0, 2**32 - 1), st.sampled_from(["highs", "cbc"]))
def test_sums_of_absolute_values(seed: int, backend: str) -> None:
    model, expected = fit_model(seed)
    assert model.solve(backend).objective == pytest.approx(expected, abs=1e-6)


@FEW
@given(st.integers(0, 2**32 - 1), st.sampled_from(["highs", "cbc"]), st.booleans())
def test_extrema_over_points_of_a_grid(seed: int, backend: str, is_maximum: bool) -> None:
    rng = np.random.default_rng(seed)
    n, q = 2, int(rng.integers(1, 5))
    A, b, cap = rng.integers(-3, 4, (q, n)), rng.integers(-4, 5, q), rng.integers(0, 4)
    m = Model("minimax")
    N, Q = IndexSet("N", n), IndexSet("Q", q)
    i, r = Index("i", N), Index("r", Q)
    a, c, x = m.param("a", A), m.param("c", b), m.variable("x", N, lower=-2, upper=2, kind="integer")
    lines = total(a[r, i] * x[i], over=i) + c[r]
    outer = maximum(lines, over=r) if is_maximum else minimum(lines, over=r)
    # A bound on the nested extremum of two expressions, in the same direction.
    spread = maximum(x[0] - x[1], abs(x[0]), 1) if is_maximum else minimum(x[0] - x[1], -abs(x[0]), 1)
    if is_maximum:
        m.minimize(2 * outer)
        m.require("spread", Le(spread, int(cap)))
    else:
        m.maximize(2 * outer)
        m.require("spread", Ge(spread, -int(cap)))
    values = []
    for point in product(range(-2, 3), repeat=n):
        parts, difference = A @ point + b, point[0] - point[1]
        if is_maximum and max(difference, abs(point[0]), 1) <= cap:
            values.append(2 * parts.max())
        if not is_maximum and min(difference, -abs(point[0]), 1) >= -cap:
            values.append(2 * parts.min())
    if not values:
        return
    solution = m.solve(backend, gap=0.0)
    assert solution.objective == pytest.approx(min(values) if is_maximum else max(values), abs=1e-6)


@FEW
@given(st.integers(0, 2**32 - 1))
def test_files_state_them_by_their_lines(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    model, expected = fit_model(seed)
    path = tmp_path_factory.mktemp("files") / "model.mps"
    model.write(path)
    assert solve_form(read_mps(path), "highs").objective == pytest.approx(expected, abs=1e-6)


X = IndexSet("X", ["a", "b", "c"])
i, j = Index("i", X), Index("j", X)


def edge_model() -> tuple[Any, Any]:
    m: Any = Model("edges")
    return m, m.variable("x", X, lower=0, upper=9)


def test_restricted_sums_have_rows_for_their_tuples_only() -> None:
    m, x = edge_model()
    m.minimize(total(abs(x[i] - x[j] - 1), over=(i, j), where=[("a", "b"), ("b", "c")]) + x["c"])
    form = m.compile()
    assert len(form.family("objective abs 1 line 1")) == 2
    assert m.solve("highs").objective == pytest.approx(0.0, abs=1e-9)
    assert "sum(Abs(" in str(m)
    assert r"\left|" in m.latex()


def test_restricted_families_and_equal_functions_share_one_variable() -> None:
    m, x = edge_model()
    m.maximize(total(x[i], over=i))
    m.require("near", Le(abs(x[i] - x[j]) + abs(x[i] - x[j]), 2), forall=(i, j), where=[("a", "b")])
    m.require("first", Le(x["a"], 1))
    assert m.solve("highs").objective == pytest.approx(1 + 2 + 9)
    assert [v.name for v in m.compile().variables] == ["x", "near abs 1"]


def test_maximum_over_restricted_tuples() -> None:
    m, x = edge_model()
    m.minimize(
        total(maximum(x[i] - x[j], over=j, where=((i, j), [("a", "b"), ("a", "c"), ("b", "a"), ("c", "a")])), over=i)
    )
    m.require("first", Eq(x["a"], 5))
    m.require("second", Eq(x["b"], 3))
    m.require("third", Le(maximum(x["c"], 1), 4))
    # a: max(5 - 3, 5 - c); b: 3 - 5; c: c - 5, with c in [0, 4]: at c = 0, 5 - 2 - 5; at c = 3, 2 - 2 - 2
    assert m.solve("highs").objective == pytest.approx(-2)


@pytest.mark.parametrize("swaps", [False, True])
@pytest.mark.parametrize(("restricted_weight", "weight"), [(10, 1), (1, 1), (2, 3)])
def test_equal_functions_in_sums_over_other_tuples_have_their_own_lines(
    restricted_weight: int, weight: int, swaps: bool
) -> None:
    m, x = edge_model()
    parts = [
        restricted_weight * total(abs(x[i]), over=i, where=["a", "b"]),
        weight * total(abs(x[i]), over=i),
        total(x[i], over=i, where=["a"]) + total(3 * abs(x[i]), over=i, where=["c"]),
        maximum(abs(x[i]), over=i, where=["a", "c"]),
    ]
    m.minimize(sum(parts[::-1] if swaps else parts))
    for label, least in (("a", 1), ("b", 2), ("c", 4)):
        m.require(f"least {label}", Ge(x[label], least))
    assert m.solve("highs").objective == pytest.approx(3 * restricted_weight + 7 * weight + 1 + 12 + 4)


def test_inner_sums_hide_the_tuples_of_the_same_index_outside() -> None:
    m, x = edge_model()
    m.minimize(total(total(abs(x[i]), over=i), over=i, where=["a"]))
    m.require("least", Ge(x[i], 2), forall=i)
    assert m.solve("highs").objective == pytest.approx(6)


def test_restriction_may_name_an_index_of_the_row_that_the_expression_lacks() -> None:
    m, x = edge_model()
    peak = m.variable("peak", X)
    m.require(
        "above", Ge(peak[i], maximum(x[j], over=j, where=((i, j), [("a", "b"), ("a", "c"), ("b", "a")]))), forall=i
    )
    m.minimize(total(peak[i], over=i))
    for label, least in (("a", 1), ("b", 2), ("c", 4)):
        m.require(f"least {label}", Ge(x[label], least))
    # c has no tuples, so that nothing lies below its peak but 0.
    assert m.solve("highs").value("peak").tolist() == pytest.approx([4, 1, 0])


@pytest.mark.parametrize("replaces", [True, False])
def test_replaced_and_removed_functions_leave_nothing(replaces: bool) -> None:
    m, x = edge_model()
    m.minimize(abs(x["a"] - 2) + x["b"])
    m.require("cap", Le(maximum(x[i], over=i), 7))
    size = m.compile().shape
    m.minimize(abs(x["a"] - 3) + x["b"], replace=True)
    assert m.compile().shape == size
    assert m.solve("highs").value("x", "a") == pytest.approx(3)
    if replaces:
        m.require("cap", Le(x[i], 2), forall=i, replace=True)
        assert m.solve("highs").objective == pytest.approx(1)
    else:
        m.remove_family("cap")
    m.remove_objective()
    assert m.compile().shape[1] == 3


def test_changed_parameters_move_the_lines() -> None:
    m, x = edge_model()
    p = m.param("p", [1.0, 2.0, 3.0], X)
    m.minimize(total(abs(x[i] - p[i]), over=i))
    assert m.solve("highs").value("x").tolist() == [1, 2, 3]
    p.value = [4.0, 5.0, 6.0]
    m.variable("later", X)  # takes columns of numbers that the functions had
    assert m.solve("highs").value("x").tolist() == [4, 5, 6]


WRONG_DIRECTIONS = [
    (lambda m, x: m.maximize(abs(x["a"])), r"Abs\(x\[a\]\) may only be minimised .*implies\(h, x\[a\] >= b\)"),
    (
        lambda m, x: m.require("far", Ge(abs(x[i] - x[j]), 1), forall=(i, j)),
        "minimised or bounded from above.*family far",
    ),
    (lambda m, x: m.require("far", Eq(maximum(x[i], over=i), 1)), "an implies.*family far"),
    (lambda m, x: m.minimize(minimum(x["a"], x["b"])), "maximised or bounded from below"),
    (lambda m, x: m.minimize(maximum(x["a"], -abs(x["b"]))), r"Abs\(x\[b\]\) may only"),
    (lambda m, x: m.minimize(maximum(x["a"], 1) ** 2), "in a quadratic term"),
]


@pytest.mark.parametrize(("state", "message"), WRONG_DIRECTIONS)
def test_other_direction_is_refused_with_what_to_write(state: Any, message: str) -> None:
    m, x = edge_model()
    state(m, x)
    with pytest.raises(ModelError, match=message):
        m.compile()


def test_what_the_message_advises_bounds_an_absolute_value_from_below() -> None:
    m, x = edge_model()
    h = m.variable("h", kind="binary")
    m.minimize(total(x[i], over=i))
    e = x["a"] - 4
    m.require("right", implies(h, Ge(e, 3)))
    m.require("left", implies(1 - h, Le(e, -3)))
    m.require("least", Ge(x["a"], 2))
    assert m.solve("highs").objective == pytest.approx(7)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (lambda m, x: m.require("f", implies(m.variable("h"), Le(abs(x["a"]), 1))), "implication for each"),
        (lambda m, x: m.require("f", between(0, x["a"], abs(x["b"]))), "sides of .* no variables"),
        (lambda m, x: m.minimize(maximum()), "must have an expression"),
        (lambda m, x: m.minimize(maximum(3, over=i)), "give 3 as a param"),
        (lambda m, x: m.minimize(maximum(x["a"], over=i)), "index i is in forall but in no term"),
        (lambda m, x: m.minimize(maximum(x["a"], where=["a"])), "where needs the indices"),
        (lambda m, x: m.minimize(abs(x[i])), "index i .*not summed over"),
        (lambda m, x: m.minimize(abs(x["a"] * x["b"])), "not linear"),
    ],
)  # fmt: skip
def test_refuses_impossible_functions(state: Any, message: str) -> None:
    m, x = edge_model()
    with pytest.raises(ModelError, match=message):
        state(m, x)


def test_name_of_a_function_is_no_name_of_a_variable() -> None:
    m, x = edge_model()
    m.minimize(abs(x["a"]))
    m.variable("objective abs 1")
    with pytest.raises(ModelError, match=r"'objective abs 1' is that of Abs\(x\[a\]\)"):
        m.compile()


def test_functions_of_a_family_called_objective_do_not_share_names_with_the_objective() -> None:
    m, x = edge_model()
    m.minimize(abs(x["a"] - 2) + x["b"])
    m.require("objective", Le(abs(x["a"] - 5), 1))
    with pytest.raises(ModelError, match="the name 'objective abs 1'"):
        m.compile()
    m.remove_family("objective")
    m.require("near", Le(abs(x["a"] - 5), 1))
    assert m.solve("highs").objective == pytest.approx(2)


def test_extrema_of_numbers_are_coefficients() -> None:
    m, x = edge_model()
    p = m.param("p", [-1.0, 2.0, 3.0], X)
    m.minimize(total(maximum(p[i], 0.5) * x[i] + abs(p[i]) * x[i], over=i))
    assert m.compile().c.tolist() == [1.5, 4.0, 6.0]
