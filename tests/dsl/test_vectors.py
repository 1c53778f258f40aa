"""Arithmetic of whole variables with NumPy arrays gives the same rows as NumPy on the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from privopt.dsl import Eq, Ge, Index, IndexSet, Le, Model, between, implies, total
from privopt.errors import ModelError

FEW = settings(max_examples=40)


@FEW
@given(st.integers(0, 2**32 - 1))
def test_random_expressions_have_the_coefficients_of_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, q = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    m = Model("vectors")
    X, Q = IndexSet("X", [f"x{k}" for k in range(n)]), IndexSet("Q", q)
    x, w, s = m.variable("x", X), m.variable("w", Q, X), m.variable("s")
    c, d, A = rng.normal(size=n), rng.normal(size=(q, n)), rng.normal(size=(q, n))
    p, free = m.param("p", c, X), m.param("free", c)
    Aq = {0: A, 1: sparse.csr_matrix(A), 2: sparse.coo_array(A)}[int(rng.integers(3))]

    m.minimize((c * x).sum() + (d * w).sum() - x @ c + 2 * (p * x).sum())
    m.require("A", Aq @ (2 * x - c) <= A @ c)
    m.require("B", Ge(d * w / 2 + c, d - w))
    m.require("C", Eq(free * x + p, c - x))
    m.require("D", -w >= rng.normal() + s)
    form = m.compile()

    k, size = n * q, n + n * q + 1
    zero_x, zero_w = np.zeros((n, n)), np.zeros((k, n))
    assert np.allclose(form.c, np.r_[c - c + 2 * c, d.ravel(), 0])
    expected = np.block(
        [
            [2 * A, np.zeros((q, k + 1))],
            [zero_w, np.diag((d / 2 + 1).ravel()), np.zeros((k, 1))],
            [np.diag(c + 1) + zero_x, np.zeros((n, k + 1))],
            [zero_w, -np.eye(k), -np.ones((k, 1))],
        ]
    )
    assert expected.shape[1] == size
    assert np.allclose(form.A.toarray(), expected)
    assert np.allclose(form.row_upper[:q], 2 * A @ c)
    assert np.allclose(form.row_lower[q : q + k], (d - c).ravel())
    assert np.allclose(form.row_lower[q + k : q + k + n], 0)
    # Rows have the labels of the declared sets.
    assert form.family("C").sets == (X,)
    assert form.row_name(q + k) == "C[i='x0']"


def test_matrix_on_either_side_and_rows_over_a_declared_set() -> None:
    m, X, R = Model("sides"), IndexSet("X", 3), IndexSet("R", ["r", "s"])
    x, b = m.variable("x", X), m.param("b", [1.0, 2.0], R)
    A = np.arange(6.0).reshape(2, 3)
    m.require("left", A @ x >= b)
    m.require("right", x @ A.T >= b, where=["s"])
    form = m.compile()
    assert form.A.toarray().tolist() == [[0, 1, 2], [3, 4, 5], [3, 4, 5]]
    assert form.row_name(2) == "right[i='s']"
    assert form.row_lower.tolist() == [1, 2, 2]


def test_sparse_products_meet_one_another_and_variables() -> None:
    rng = np.random.default_rng(5)
    first, second = (np.round(rng.uniform(-3, 3, (2, 3)) * (rng.random((2, 3)) < 0.7), 1) for _ in range(2))
    m: Any = Model("sparse")
    x, y = m.variable("x", IndexSet("X", 3)), m.variable("y", IndexSet("Y", 2))
    m.require("ahead", sparse.csr_matrix(first) @ x <= y + 1)
    m.require("behind", y - sparse.csr_array(first) @ x >= np.ones(2))
    m.require("both", Eq(sparse.csr_matrix(first) @ x + 2 * (sparse.csr_matrix(second) @ x), y))
    form = m.compile()
    expected = [np.hstack([first, -np.eye(2)]), np.hstack([-first, np.eye(2)])]
    expected += [np.hstack([first + 2 * second, -np.eye(2)])]
    assert form.A.toarray() == pytest.approx(np.vstack(expected))
    assert [form.row_name(row) for row in (0, 5)] == ["ahead[i=0]", "both[i=1]"]


def test_squares_and_absolute_values_of_vectors() -> None:
    m, X = Model("nearest"), IndexSet("X", 3)
    x = m.variable("x", X, upper=4)
    target = np.array([1.0, -2.0, 7.0])
    m.minimize(((x - target) ** 2).sum())
    assert m.solve("highs").objective == pytest.approx(4 + 9, abs=1e-6)
    m.minimize(abs(x - target).sum(), replace=True)
    assert m.solve("cbc").objective == pytest.approx(2 + 3)


X, Y = IndexSet("X", ["a", "b", "c"]), IndexSet("Y", 2)
i = Index("i", X)
MISUSES: list[tuple[Any, str]] = [
    (lambda m, x, w, s: np.ones(4) * x, r"shape \(4,\) does not fit \(x\[i\] for i in X\) over X \(3\)"),
    (lambda m, x, w, s: np.ones((2, 3)) * x, r"shape \(2, 3\) does not fit"),
    (lambda m, x, w, s: w + np.ones(3), r"shape \(3,\) does not fit .* over X \(3\), Y \(2\)"),
    (lambda m, x, w, s: x + w, "run over different sets; write them with indices"),
    (lambda m, x, w, s: np.ones((2, 2)) @ x, r"must have shape \(\.\.\., 3\), got \(2, 2\)"),
    (lambda m, x, w, s: x @ np.ones((2, 2)), r"must have shape \(3, \.\.\.\), got \(2, 2\)"),
    (lambda m, x, w, s: np.ones((2, 3)) @ w, "@ takes an expression over one"),
    (lambda m, x, w, s: np.ones(3) * s, "s is a scalar, and is combined with an array"),
    (lambda m, x, w, s: s @ np.ones(3), "s is a scalar: @"),
    (lambda m, x, w, s: implies(m.variable("h", kind="binary"), 2 * x <= 1), "of whole variables"),
    (lambda m, x, w, s: x @ x, r"got x; write \(x \* y\)\.sum\(\)"),
    (lambda m, x, w, s: (2 * x) @ (x + 1), r"write \(x \* y\)\.sum\(\)"),
    (lambda m, x, w, s: x @ "a", "must be of numbers, got a str"),
    (lambda m, x, w, s: total(x[i], over=3), "over must be an index or several, got 3"),
    (lambda m, x, w, s: x[i] <= np.ones(3), r"x\[i\] is compared with an array"),
    (lambda m, x, w, s: x <= 2, r"x must be used with its indices"),
    (lambda m, x, w, s: m.require("f", Le(x, 2)), "x must be used with its 1 indices"),
    (lambda m, x, w, s: x * 2 < 1, "strict"),
    (lambda m, x, w, s: (2 * x) == 1, "write Eq"),
    (lambda m, x, w, s: x + "a", "is combined with a str"),
    (lambda m, x, w, s: x + {"a": 1.0}, "no number for the label 'b'"),
    (lambda m, x, w, s: sum(x), r"x\.sum\(\)"),
    (lambda m, x, w, s: list(2 * x), r"sum\(\)"),
    (lambda m, x, w, s: m.minimize(2 * x), r"its sum with \.sum\(\)"),
    (lambda m, x, w, s: m.require("f", between(0, 2 * x, 1)), "write it with indices"),
    (lambda m, x, w, s: m.require("f", 2 * x <= 1, forall=i), "has its own indices, got forall"),
    (lambda m, x, w, s: 0 <= x[i] <= 1, r"between\(0, x, 1\)"),
    (lambda m, x, w, s: 0 <= s <= 1, r"between\(0, x, 1\)"),
    (lambda m, x, w, s: max(x["a"], x["b"]), r"maximum\(x, y\)"),
    (lambda m, x, w, s: x[i] <= "a", "got 'a'"),
]


@pytest.mark.parametrize(("misuse", "message"), MISUSES)
def test_misuse_is_explained(misuse: Any, message: str) -> None:
    m: Any = Model("m")
    x, w, s = m.variable("x", X), m.variable("w", X, Y), m.variable("s")
    with pytest.raises(ModelError, match=message):
        misuse(m, x, w, s)
    assert (m.families, m.objective) == ((), None)


def test_labelled_data_beside_a_vector_is_matched_by_label() -> None:
    m = Model("labels")
    x = m.variable("x", X)
    m.minimize((x * {"c": 3.0, "a": 1.0, "b": 2.0}).sum())
    assert m.compile().c.tolist() == [1, 2, 3]


def test_vector_and_indexed_spelling_give_the_same_model() -> None:
    c, A, b = np.array([1.0, 2.0, 3.0]), np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]]), np.array([4.0, 5.0])
    forms = []
    for is_vector in (True, False):
        m = Model("two spellings")
        x = m.variable("x", X)
        if is_vector:
            m.minimize(c @ x)
            m.require("rows", A @ x >= b)
        else:
            j, r = Index("j", X), Index("r", Y)
            cost, a, least = m.param("c", c), m.param("a", A), m.param("b", b)
            m.minimize(total(cost[j] * x[j], over=j))
            m.require("rows", Ge(total(a[r, j] * x[j], over=j), least[r]), forall=r)
        forms.append(m.compile())
    assert np.array_equal(forms[0].c, forms[1].c)
    assert np.array_equal(forms[0].A.toarray(), forms[1].A.toarray())
    assert np.array_equal(forms[0].row_lower, forms[1].row_lower)


@pytest.mark.parametrize("name", ["axis 0", "axis 1", "axis of rotation"])
def test_sets_named_like_axes_keep_their_labels(name):
    m = Model("m")
    x, y = m.variable("x", IndexSet(name, ["a", "b"])), m.variable("y", IndexSet("B", ["b", "a"]))
    with pytest.raises(ModelError):
        x + y
    # An array without sets has no labels, so its entries go by place.
    m.minimize((np.array([1.0, 2.0]) * x).sum() + y.sum())
    assert m.compile().c.tolist() == [1.0, 2.0, 1.0, 1.0]
