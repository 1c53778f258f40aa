"""What Python, NumPy and sympy would make of formulas is refused, and the error says what to write instead."""

from __future__ import annotations

import copy
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

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
MASKED = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])
SCOPE = (
    {name: getattr(language, name) for name in language.__all__}
    | globals()
    | {"copy": copy, "pickle": pickle, "sparse": sparse}
)

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
        "is not a number before a solve",
    ),
    **dict.fromkeys(["x + 'a'", "None * x", "[1, 2] + x", "x - {}", "(x + y) / 'a'"], "arithmetic takes numbers"),
    **dict.fromkeys(["V + 'a'", "'5' * V", "V * ['1', '2', '3']"], "must be combined with numbers"),
    **dict.fromkeys(
        ["ONES * 1j @ V", "V @ np.array(['1', '2', '3'])", "sparse.csr_array([[1j, 2, 3]]) @ V"], "must be of numbers"
    ),
    **dict.fromkeys(
        [
            f"M.add_block('block', {matrix}, columns=V)"
            for matrix in ("[[1j, 2, 3]]", "sparse.csr_array([[1j, 2, 3]])", "MASKED[None]")
        ],
        "block block: its matrix must be of numbers",
    ),
    **dict.fromkeys(
        [f"M.add_block('block', [[1, 2, 3]], columns=V, upper={side})" for side in ("ONES[:1] * 1j", "'5'", "MASKED")],
        "block block: upper must be numbers",
    ),
    **dict.fromkeys(
        ["x + ONES", "ONES * V[i]", "ONES * (x + y)", "V[i] - ONES"], "is a scalar, and is combined with an array"
    ),
    **dict.fromkeys(
        ["ONES <= x", "x + y >= ONES", "V[i] <= ONES"], r"is compared with an array; write the array with indices"
    ),
    **dict.fromkeys(["ONES * (x + y)", "(x + y) - ONES"], r"as p\[i\] \* \(x \+ y\)"),
    **dict.fromkeys(["ONES == V", "V != ONES", "x == ONES", "V + 1 == ONES[0]"], r"write Eq\(left, right\)"),
    **dict.fromkeys(
        [
            "MASKED * V",
            "V * MASKED",
            "(MASKED * V).sum()",
            "MASKED * x",
            "x + MASKED",
            "MASKED <= V",
            "V >= MASKED",
            "MASKED @ V",
            "V @ MASKED",
            "M.param('masked', MASKED)",
            "M.variable('masked', X, upper=MASKED)",
        ],
        r"a masked array \(numpy.ma\) may lack numbers; .* a.filled\(0\)",
    ),
    "np.where(ONES > 0, V, W)": r"write mask \* a \+ \(1 - mask\) \* b",
    **dict.fromkeys(
        ["M.param('q', [[1, 2], [3]])", "M.param('q', x)", "M.param('q', V + 1)"],
        "param q: must be a number or an array of numbers",
    ),
    "M.require('r', ONES <= 2)": r"must be a relation, got an array of shape \(3,\)",
    **dict.fromkeys(
        [
            f"{function}({part})"
            for function in ("copy.copy", "copy.deepcopy", "pickle.dumps")
            for part in ("M", "x", "p", "x + y", "V + 1", "V[i]", "x <= 1", "total(V[i], over=i)", "exp(s)")
        ],
        r"cannot be copied or pickled, .* pickle the arrays of Model.compile\(\)",
    ),
    "1 if V + W else 2": "is not a condition",
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


SCALAR_TYPES = [np.float16, np.float32, np.float64, np.longdouble]
SCALAR_TYPES += [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
STATEMENTS: dict[str, Callable[[Any, Any], None]] = {
    "sum on the right": lambda m, n: m.require("r", m.x + n + 1000001 >= 0),
    "sum on the left": lambda m, n: m.require("r", n + (m.x + 1000001) >= 0),
    "difference": lambda m, n: m.require("r", (n - m.x) / 3 + 1000001 >= 0),
    "product on the right": lambda m, n: m.minimize(m.x * n * 1000001),
    "product on the left": lambda m, n: m.minimize(n * m.x / 3),
    "quotient": lambda m, n: m.minimize(m.x / n + m.p / n),
    "quotient of a param": lambda m, n: m.minimize(n / m.p * m.x / 3),
    "power": lambda m, n: m.minimize(m.p**n * m.x),
    "base": lambda m, n: m.minimize(n**m.p * m.x),
    "at most": lambda m, n: m.require("r", m.x <= n),
    "at least": lambda m, n: m.require("r", m.x >= n),
    "on the left of at most": lambda m, n: m.require("r", n <= m.x + m.p / 3),
    "on the left of at least": lambda m, n: m.require("r", n >= m.z[i], forall=i),
    "Le": lambda m, n: m.require("r", language.Le(n, m.x / 3)),
    "Ge": lambda m, n: m.require("r", language.Ge(m.x / 3, n)),
    "Eq": lambda m, n: m.require("r", Eq(m.x, n)),
    "between": lambda m, n: m.require("r", language.between(n, m.x / 3, 1000)),
    "implies": lambda m, n: m.require("r", language.implies(m.h, n * m.x >= n)),
    "total": lambda m, n: m.minimize(total(n * m.z[i] / 3, over=i)),
    "total of a number": lambda m, n: m.require("r", total(n, over=i) / 3 >= m.x),
    "maximum": lambda m, n: m.minimize(maximum(m.x, n)),
    "minimum": lambda m, n: m.maximize(minimum(n, m.x / 3)),
    "absolute value": lambda m, n: m.minimize(abs(m.x - n)),
    "exp": lambda m, n: m.minimize(language.exp(n) * m.x + language.exp(n * m.p / 3) * m.x),
    "exp of a param": lambda m, n: m.minimize(n * language.exp(m.p) * m.x / 3),
    "log": lambda m, n: m.minimize(language.log(n) * m.x + language.log(m.p) * n / 3),
    "sqrt": lambda m, n: m.minimize(language.sqrt(n) * m.x + n * language.sqrt(m.p) / 3),
    "piecewise": lambda m, n: m.minimize(m.piecewise("t", n * m.x / 3, [0, n], [0, 1])),
    "whole variable": lambda m, n: m.minimize((n * m.z / 3 + n).sum()),
    "relation of vectors": lambda m, n: m.require("r", n <= m.z + m.x),
    "bound": lambda m, n: setattr(m.x, "upper", n),
    "param": lambda m, n: m.minimize(m.param_of(n) * m.x / 3),
}


class Parts:
    """A small model with its parts as attributes."""

    def __init__(self) -> None:
        self.model: Any = Model("scalars")
        self.x, self.z = self.model.variable("x", upper=100), self.model.variable("z", X, upper=100)
        self.h, self.p = self.model.variable("h", kind="binary"), self.model.param("p", 2.0)

    def param_of(self, number: Any) -> Any:
        return self.model.param("n", number)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


def stated_form(statement: str, number: Any) -> Any:
    parts = Parts()
    STATEMENTS[statement](parts, number)
    form = parts.compile()
    arrays = (form.c, form.A.toarray(), form.row_lower, form.row_upper, form.col_lower, form.col_upper)
    return form.c0, *(array.tolist() for array in arrays)


@given(
    st.sampled_from(sorted(STATEMENTS)), st.sampled_from(SCALAR_TYPES), st.integers(1, 100), st.sampled_from([1, 3, 7])
)
def test_numpy_scalars_state_the_model_of_the_python_number(
    statement: str, scalar_type: Any, numerator: int, denominator: int
) -> None:
    number = scalar_type(numerator) if issubclass(scalar_type, np.integer) else scalar_type(numerator) / denominator
    plain = int(number) if issubclass(scalar_type, np.integer) else float(number)
    assert stated_form(statement, scalar_type(number)) == stated_form(statement, plain)


def test_wide_complex_scalars_are_those_of_python() -> None:
    assert str(x + np.clongdouble(2 + 1j)) == str(x + (2 + 1j))


@pytest.mark.parametrize("statement", ["x + {}", "{} * x", "x <= {}", "{} <= x", "V + {}", "{} * V", "x / {}", "x**{}"])
def test_numpy_booleans_are_those_of_python(statement: str) -> None:
    outcomes = []
    for value in ("True", "np.True_"):
        try:
            outcomes.append(str(eval(statement.format(value), SCOPE)))
        except (ModelError, TypeError) as error:
            outcomes.append(type(error).__name__)
    assert outcomes[0] == outcomes[1]


def test_numbers_of_low_precision_that_reach_sympy_are_refused() -> None:
    m: Any = Model("low precision")
    z = m.variable("z", X)
    m.minimize(total(i * np.float32(0.1) * z[i], over=i))
    with pytest.raises(ModelError, match=r"number of 24 bits, .* write float\(...\) around it"):
        m.compile()


def test_comparing_with_a_numpy_scalar_is_comparing_with_a_number() -> None:
    for number in (1, np.float64(1), np.float32(1), np.int64(1)):
        assert (operator.eq(x, number), operator.eq(number, x)) == (False, False)
        assert (operator.ne(x, number), operator.ne(number, x)) == (True, True)


def test_scalars_and_vectors_combine_in_either_order() -> None:
    assert str(x - V) == "(x - V[i] for i in X)"
    assert str(s / (V + 1)) == "(s/(V[i] + 1) for i in X)"
    m: Any = Model("orders")
    a, z, c = m.variable("a"), m.variable("z", X), m.param("c", 2.0)
    m.require("left", c * z + 1 >= a - z)
    m.require("right", z * c + 1 >= -1 * (z - a))
    form = m.compile()
    assert (
        form.A.toarray()[:3].tolist()
        == form.A.toarray()[3:].tolist()
        == [
            [-1, 3, 0, 0],
            [-1, 0, 3, 0],
            [-1, 0, 0, 3],
        ]
    )


def test_arrays_of_expressions_are_combined_entry_by_entry() -> None:
    pair = np.array([x, y])
    assert list(pair + (x + y)) == [x + x + y, y + x + y]
    assert list((x + y) - pair) == [y + 0, x + 0]
    assert list(s * pair) == [s * x, s * y]
    assert list(np.where([True, False, True], x + y, 0)) == [x + y, 0, x + y]
    assert list(np.where([True, False], x, pair)) == [x, y]


def test_form_of_a_model_can_be_pickled() -> None:
    form = pickle.loads(pickle.dumps(Parts().compile()))
    assert form.shape == (0, 5)


def test_long_sums_are_those_of_sympy() -> None:
    m: Any = Model("long")
    many = m.variable("many", IndexSet("N", 30))
    whole = sum(2 * many[k] for k in range(30))
    assert as_expression(whole) == sympy.Add(*(2 * as_expression(many[k]) for k in range(30)))
    assert whole.is_commutative
    assert hash(as_expression(whole)) == hash(sympy.Add(*(2 * as_expression(many[k]) for k in range(30))))
