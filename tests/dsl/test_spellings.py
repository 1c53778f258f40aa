"""What Python, NumPy and sympy would make of formulas is refused, and the error says what to write instead."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

import privopt.dsl as language
from privopt.dsl import Eq, Index, IndexSet, Model, maximum, minimum, total
from privopt.dsl.linear import as_expression
from privopt.errors import ModelError

X = IndexSet("X", ["a", "b", "c"])
i = Index("i", X)
M: Any = Model("spellings")
V, W = M.variable("V", X), M.variable("W", X)
x, y, h = M.variable("x"), M.variable("y"), M.variable("h", kind="binary")
p, s = M.param("p", [1.0, 2.0, 3.0], X), M.param("s", 2.0)
ONES = np.ones(3)
SCOPE = {name: getattr(language, name) for name in language.__all__} | globals()

CONDITIONS = [
    "0 <= x <= 1",
    "0 <= x + y <= 1",
    "0 <= V[i] <= 1",
    "0 <= 2 * V[i] + 1 <= 1",
    "1 >= x - s * y >= 0",
    "x <= y <= 2 * x",
    "x + y <= 1 <= 3",
    "0 <= V + W <= 1",
    "0 <= total(V[i], over=i) <= 1",
    "0 <= abs(x) <= 1",
    "0 <= maximum(x, y) <= 1",
    "0 <= s * total(p[i] * V[i], over=i) + x <= 1",
    "0 <= x**2 <= 1",
    "x + y <= 1 and x >= 0",
    "x <= 1 or y <= 1",
    "not x + y <= 1",
    "1 if x <= y else 2",
    "bool(Le(x, y))",
    "bool(Ge(x, 1))",
    "bool(Eq(x + y, 1))",
    "max(x, y)",
    "min(x + y, 1)",
    "max(V[i], 0)",
    "sorted([x + 1, y])",
    "(x <= 1) & (y <= 1)",
    "(x + y <= 1) | (y <= 1)",
    "~(x + y <= 1)",
]
"""Each asks for the truth of a relation."""
REFUSED = {
    **dict.fromkeys(CONDITIONS, r"between\(0, x, 1\) for .* one require for each .* implies\(h, .* maximum\(x, y\)"),
    **dict.fromkeys(["max(V, W)", "V < 1", "V + W > 1"], r"write <= or >=, and maximum\(x, y\)"),
    **dict.fromkeys(
        ["V % 2", "x % 2", "(x + y) % 2", "V[i] % 2", "5 % x", "divmod(x, 2)", "x // 2", "V // 2", "2 // x"],
        "state x == n[*]q [+] r by Eq",
    ),
    **dict.fromkeys(["np.sum(x)", "np.sum(V[i])", "np.sum(x + y)", "np.sum(V, axis=0)"], r"total\(..., over=...\)"),
    **dict.fromkeys(["np.max(V)", "np.maximum(x, y)", "np.fmax(x + y, 1)"], r"maximum\(...\) is the largest"),
    **dict.fromkeys(["np.dot(p, V)", "np.dot([1, 2, 3], V)", "np.inner(ONES, V)"], "c @ z is the product"),
    **dict.fromkeys(["np.exp(x)", "np.log(x + y)", "np.sqrt(V[i])"], "those of privopt.dsl take parameters"),
    "np.mean(V)": r"z.sum\(\) divided by",
    **dict.fromkeys(["V @ W", "V @ p", "p @ V"], r"write \(x \* y\).sum\(\)"),
    **dict.fromkeys(["x @ y", "(x + y) @ 2"], "@ multiplies a variable over one set by a matrix"),
    **dict.fromkeys(["sum(V)", "list(V + W)", "x in V", "dict(V)"], r"\.sum\(\) or total\(..., over=...\) is the sum"),
    **dict.fromkeys(["sum(V[i])", "sum(x + y)", "list(x)"], r"total\(..., over=...\) is the sum over an index"),
    "total({'a': x}, over=i)": "several expressions one by one",
    "maximum([x, y])": "several expressions one by one",
    **dict.fromkeys(["h & h", "h | x", "~h", "x ^ 2", "(x + y) << 1", "V[i] | 1"], r"write \*\* for a power, 1 - h"),
    **dict.fromkeys(
        ["float(x)", "int(x + y)", "round(V[i], 1)", "math.exp(x)", "math.floor(x)", "complex(V)", "math.fsum([x, y])"],
        "is no number before a solve",
    ),
    **dict.fromkeys(["x + 'a'", "None * x", "[1, 2] + x", "x - {}", "(x + y) / 'a'"], "arithmetic is with numbers"),
    **dict.fromkeys(["V + 'a'", "'5' * V", "V * ['1', '2', '3']"], "must meet numbers"),
    **dict.fromkeys(["x + ONES", "ONES * V[i]", "ONES * (x + y)", "V[i] - ONES"], "is a scalar, and meets an array"),
    **dict.fromkeys(["ONES <= x", "x + y >= ONES", "V[i] <= ONES"], r"meets an array; write the array with indices"),
    "1 if V + W else 2": "is no condition",
    "M.require('r', x == 1)": "Write it with Le, Ge or Eq",
    "M.require('r', x + y < 1)": "strict relations and != cannot be rows",
    **dict.fromkeys(
        [f"M.require('r', {curve} <= 1)" for curve in ("x**0.5", "sqrt(x)", "1 / x", "exp(x)", "2**x", "x**2")],
        r"is not linear in x; Model.piecewise states a curve by lines",
    ),
    **dict.fromkeys(
        ["M.require('r', x * y <= 1)", "M.require('r', V[i] * x <= 1, forall=i)", "M.require('r', x / y <= 1)"],
        "it multiplies variables .*; implies states a row that depends on a binary",
    ),
}


@pytest.mark.parametrize("spelling", REFUSED)
def test_refused_spelling_says_what_to_write(spelling: str) -> None:
    with pytest.raises(ModelError, match=REFUSED[spelling]) as caught:
        eval(spelling, SCOPE)
    assert "\n" not in str(caught.value)


WRONG_WAY: dict[str, tuple[Callable[[Any, Any, Any], Any], str]] = {
    "abs at least": (lambda m, a, b: m.require("r", abs(a) >= 1), "minimised or bounded from above.* write implies"),
    "abs maximised": (lambda m, a, b: m.maximize(abs(a - b)), "minimised or bounded from above.* write implies"),
    "abs in an equation": (lambda m, a, b: m.require("r", Eq(abs(a), 1)), "minimised or bounded from above"),
    "maximum at least": (lambda m, a, b: m.require("r", maximum(a, b) >= 1), "minimised or bounded from above"),
    "minimum at most": (lambda m, a, b: m.require("r", minimum(a, b) <= 1), "maximised or bounded from below"),
    "minus a maximum": (lambda m, a, b: m.minimize(-maximum(a, b)), "minimised or bounded from above"),
}


@pytest.mark.parametrize("use", WRONG_WAY)
def test_functions_in_the_wrong_direction_name_the_other_way(use: str) -> None:
    m: Any = Model("wrong way")
    a, b = m.variable("a", lower=-5, upper=5), m.variable("b", lower=-5, upper=5)
    state, words = WRONG_WAY[use]
    state(m, a, b)
    with pytest.raises(ModelError, match=words):
        m.compile()


def test_sums_over_labels_and_whole_variables_are_formulas() -> None:
    assert sum(V[label] for label in X) == V["a"] + V["b"] + V["c"]
    assert str(np.sum(V)) == str(V.sum()) == "sum(V[i] for i in X)"
    assert str(np.abs(x)) == str(abs(x)) == "Abs(x)"


LEAVES = st.sampled_from([x, y, V["a"], V[i], s, total(V[i], over=i), 2, -1.5, np.float64(3)])
OPERATORS = st.sampled_from([operator.add, operator.sub, operator.mul])
FORMULAS = st.recursive(LEAVES, lambda parts: st.builds(lambda f, a, b: f(a, b), OPERATORS, parts, parts), max_leaves=8)
MISUSES: list[Callable[[Any], Any]] = [
    lambda e: 0 <= e <= 1,
    lambda e: e >= 0 and e <= 1,
    lambda e: not e <= 1,
    lambda e: max(e, 0.5),
    lambda e: e % 2,
    lambda e: e // 2,
    lambda e: list(e),
    lambda e: float(e),
    lambda e: math.exp(e),
    lambda e: round(e, 2),
    lambda e: np.exp(e),
    lambda e: np.add(e, ONES),
    lambda e: e & 1,
    lambda e: e + "text",
    lambda e: e <= ONES,
]


@given(FORMULAS, st.sampled_from(MISUSES))
def test_every_formula_refuses_every_misuse(formula: Any, misuse: Callable[[Any], Any]) -> None:
    # What is left of a formula without variables and parameters is a number.
    if not getattr(formula, "free_symbols", None):
        return
    with pytest.raises(ModelError):
        misuse(formula)


@given(FORMULAS, FORMULAS)
def test_formulas_equal_those_of_sympy(a: Any, b: Any) -> None:
    # Python alone computes with numbers, to which sympy would give other types.
    if not (isinstance(a, sympy.Expr) or isinstance(b, sympy.Expr)):
        return
    assert as_expression(a + b) == sympy.Add(as_expression(a), as_expression(b))
    assert as_expression(a - b) == sympy.Add(as_expression(a), sympy.Mul(-1, as_expression(b)))
    assert as_expression(a * b) == sympy.Mul(as_expression(a), as_expression(b))
