"""Errors name family, index and term."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import sympy
from helpers.mentions import assert_mentions
from scipy import sparse

from privopt.dsl import Eq, Ge, Index, IndexSet, Le, Model, exp, implies, log, sqrt, total
from privopt.errors import InfeasibleError, ModelError, UnboundedError, UsageError

X, Y = IndexSet("X", ["a", "b", "c"]), IndexSet("Y", 4)
i, j, k = Index("i", X), Index("j", X), Index("k", Y)


def fresh_model() -> tuple[Any, Any, Any]:
    m: Any = Model("m")
    return m, m.variable("z", X, Y, upper=1), m.variable("h", X, kind="binary")


def _p(m: Any) -> Any:
    return m.param("p", np.arange(3.0))


FAULTS: list[tuple[Callable[[Any, Any, Any], Any], str]] = [
    (lambda m, z, h: m.require("f", Le(z[i, k] * z[j, k], 1), forall=(i, j, k)), "family f: .*not linear"),
    (lambda m, z, h: m.require("f", Le(exp(z[i, k]), 1), forall=(i, k)), "family f: .*exp.*not linear"),
    (lambda m, z, h: m.require("f", Le(z[i, k] ** 2, 1), forall=(i, k)), "term z\\[i, k\\]\\*\\*2"),
    (lambda m, z, h: m.require("f", Le(1 / z[i, k], 1), forall=(i, k)), "not linear"),
    (lambda m, z, h: m.require("f", Le(z[i, k], 1), forall=i), "family f: index k"),
    (lambda m, z, h: m.require("f", Le(h[i], 1), forall=(i, j)), "family f: index j"),
    (lambda m, z, h: m.require("f", Le(total(z[i, k], over=k), 1), forall=(i, k)), "both in forall"),
    (lambda m, z, h: m.require("f", z[i, k] < 1, forall=(i, k)), "strict"),
    (lambda m, z, h: m.require("f", True), "always True"),
    (lambda m, z, h: m.require("f", Le(1, 2)), "no variable"),
    (lambda m, z, h: m.require("f", Le(z, 2)), "z must .*2 indices"),
    (lambda m, z, h: z[k, i], "index k .*Y \\(4\\).*X \\(3\\)"),
    (lambda m, z, h: z[i], "z must .*\\(X, Y\\), got 1"),
    (lambda m, z, h: m.require("f", Le(h[i], "1"), forall=i), "got the text"),
    (
        lambda m, z, h: m.require("f", Le(h[i], np.ones(3)), forall=i),
        "is compared with an array; write the array with indices",
    ),
    (lambda m, z, h: m.require("f", Le(h[i] + h[j], 1), forall=(i, j), where=[("a", "q")]), "where, index j: .*'q'"),
    (
        lambda m, z, h: m.require("f", Le(h[i] + h[j], 1), forall=(i, j), where=np.array([[0, 3]])),
        "0 to 2, got 3",
    ),
    (
        lambda m, z, h: m.require("f", Le(h[i], 1), forall=i, where=[("a", "b")]),
        "\\(i\\), got 2",
    ),
    (
        lambda m, z, h: m.require("f", Le(k * h[i], 1), forall=(i, k)) or m.compile(),
        "k in the .*k must",
    ),
    (
        lambda m, z, h: m.require("f", Le(z[i, k + 1], 1), forall=(i, k)) or m.compile(),
        "k \\+ 1 .*got 4 at",
    ),
    (lambda m, z, h: m.require("f", Le(h[i] / _p(m)[i], 1), forall=i) or m.compile(), "family f: .*inf at"),
    (lambda m, z, h: m.param("q", np.array([1, np.nan, 2]), X), "q\\['b'\\] .*got NaN"),
    (lambda m, z, h: m.param("q", np.ones(4), X), "\\(3,\\) .*got \\(4,\\)"),
    (lambda m, z, h: m.param("q", [10**400]), "q: must be an array of numbers"),
    (lambda m, z, h: m.param("q", np.array(["2026-01-01"], dtype="datetime64[D]")), "q: must be an array of numbers"),
    (lambda m, z, h: m.minimize(10**400 * m.param("q", 2.0) * h["a"]) or m.compile(), "must be finite, got inf"),
    (lambda m, z, h: m.variable("z"), "'z' is taken"),
    (lambda m, z, h: m.variable("y", X, lower=2, upper=1), "2.0 above .*1.0"),
    (lambda m, z, h: m.variable("y", X, lower=np.ones(2)), "lower .*shape"),
    (lambda m, z, h: m.variable("y", X, kind="whole"), "binary, got 'whole'"),
    (lambda m, z, h: m.minimize(h[i]), "objective: index i"),
    (lambda m, z, h: m.minimize(total(h[j] ** 2, over=j, where=((i, j), [("a", "b")]))), "objective: index i .*summed"),
    (
        lambda m, z, h: m.minimize(total(total(z[i, k], over=i), over=k, where=((i, k), [("a", 2)]))),
        "objective: index i .*summed",
    ),
    (lambda m, z, h: m.minimize(h[sympy.Rational(1, 2)]) or m.compile(), "index 1/2 .*0 to 2 of X, got 0.5$"),
    (lambda m, z, h: m.minimize(0) or m.minimize(1), "objective .*already"),
    (
        lambda m, z, h: m.require("f", implies(h[i], m.variable("w", X)[i] <= 3), forall=i) or m.compile(),
        "f\\[i='a'\\]: .*w\\['a'\\]",
    ),
    (lambda m, z, h: m.require("f", implies(z[i, 0], h[i] <= 0), forall=i) or m.compile(), "expected a binary"),
    (
        lambda m, z, h: m.require("g", Eq(z[i, 0], 2 * z[i, 1]), forall=i, privacy=True),
        "family g: .*privacy row",
    ),
    (lambda m, z, h: m.piecewise("u", h[i], [0, 1, 2, 3], values=[0, 2, 1, 5], forall=i), "neither convex nor"),
    (lambda m, z, h: m.piecewise("t", h[i], [0, 0], values=[1, 2], forall=i), "finite and rise"),
    (
        lambda m, z, h: m.maximize(m.piecewise("t", h["a"], [-1, 0, 1], [1, 0, 1])) or m.compile(),
        "only .*minimised",
    ),
    (lambda m, z, h: m.add_block("b", sparse.eye(3), columns=z), r"shape \(3, 3\) for 12 columns"),
    (lambda m, z, h: m.add_block("b", sparse.eye(3) * np.inf, columns=h), "coefficient is inf"),
    (lambda m, z, h: m.add_block("b", [[1.0, 1.0]], columns=np.array([-1, 0])), "0 to 14, got -1"),
    (lambda m, z, h: m.piecewise("t", h[i], [0], [1], forall=i), "two breakpoints .*got one"),
    (lambda m, z, h: total(h[i], over=cast("Any", "i")), "over .*index"),
    (lambda m, z, h: m.require("f", Le(total(h[i], over=i) * total(h[j], over=j), 1)), "multiplies variables"),
    (lambda m, z, h: m.require("f", Le(total(_p(m)[i], over=i) * h[i], 1), forall=i), "index i .*sum"),
    (lambda m, z, h: exp(np.inf), "exp\\(inf\\): the exponent must be finite"),
    (lambda m, z, h: IndexSet("Z", ["a", "b", "a"]), "'a' .*0 and 2"),
]


@pytest.mark.parametrize(("make", "message"), FAULTS, ids=[m[:30] for _, m in FAULTS])
def test_names_faults(make: Callable[[Any, Any, Any], Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        make(*fresh_model())


def clashing() -> Model:
    m = Model("m")
    x = m.variable("x", X)
    m.minimize(total(x[i], over=i))
    m.require("low", Ge(total(x[i], over=i), 5))
    m.require("high", Le(x[i], 1), forall=i)
    m.require("idle", Le(x[i], 100), forall=i)
    return m


@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_infeasible_model_names_what_clashes(backend: str) -> None:
    with pytest.raises(InfeasibleError) as excinfo:
        clashing().solve(backend)
    text = str(excinfo.value)
    assert_mentions(text, "low", "high", "clash")
    assert "idle" not in text
    assert "high[i='a']" in text


@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_integer_clash_names_families(backend: str) -> None:
    m = Model("m")
    x = m.variable("x", kind="integer", upper=5)
    y = m.variable("y", kind="integer", upper=5)
    m.require("odd", Eq(2 * x + 4 * y, 7))
    m.require("idle", Le(x + y, 9))
    with pytest.raises(InfeasibleError, match="odd cannot be satisfied"):
        m.solve(backend)


@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_reports_unbounded_model(backend: str) -> None:
    m = Model("m")
    x = m.variable("x", X)
    m.maximize(total(x[i], over=i))
    m.require("tie", Le(x["a"] - x["b"], 1))
    m.require("cap", Le(x["c"], 1))
    with pytest.raises(UnboundedError, match="m is unbounded"):
        m.solve(backend)


@pytest.mark.parametrize("backend", ["highs", "cbc"])
@pytest.mark.parametrize("kind", ["continuous", "integer"])
@pytest.mark.parametrize(("cost", "constant"), [(1.0, 1e9), (1e-9, -1.0)])
def test_large_constant_hides_no_unbounded_model(backend: str, kind: Any, cost: float, constant: float) -> None:
    m = Model("m")
    x, y = m.variable("x", kind=kind), m.variable("y", kind=kind, upper=3)
    m.maximize(cost * (x + y) + constant)
    m.require("tie", Le(y - x, 2))
    with pytest.raises(UnboundedError, match="m is unbounded"):
        m.solve(backend)


@pytest.mark.parametrize("backend", ["highs", "cbc"])
@pytest.mark.parametrize("rows", [0, 1])
def test_reports_unbounded_model_without_rows(backend: str, rows: int) -> None:
    m = Model("m")
    x = m.variable("x", X, lower=0)
    y = m.variable("y", lower=0, upper=3)
    m.maximize(x["b"] + y - x["a"])
    if rows:
        m.require("cap", Le(y, 1))
    with pytest.raises(UnboundedError, match="m is unbounded"):
        m.solve(backend)


def test_integer_models_have_no_duals() -> None:
    m = Model("m")
    x = m.variable("x", kind="integer", upper=3)
    m.maximize(x)
    m.require("r", Le(2 * x, 5))
    result = m.solve("highs")
    assert result.value("x") == 2.0
    with pytest.raises(UsageError, match="no duals"):
        result.dual("r")


def test_names_unknown_families_and_labels() -> None:
    m = clashing()
    form = m.compile()
    with pytest.raises(ModelError, match=r"'hi'.*low, high, idle"):
        form.family("hi")
    with pytest.raises(ModelError, match=r"X .*'q'"):
        form.family("high").rows(("q",))
    with pytest.raises(ModelError, match=r"variable .*'y'"):
        form.variable("y")


def test_numpy_numbers_enter_as_their_doubles() -> None:
    rng = np.random.default_rng(0)
    numbers = rng.random(20) * 10.0 ** rng.integers(-8, 9, 20)
    m = Model("m")
    x = m.variable("x", IndexSet("N", 20))
    m.minimize(sum(v * x[index] for index, v in enumerate(numbers)))
    assert np.array_equal(m.compile().c, numbers)


def test_labels_may_be_integers() -> None:
    N = IndexSet("N", [10, 20, 30])
    a, b = Index("a", N), Index("b", N)
    for pairs in ([(10, 30)], np.array([[0, 2]]), ((a, b), [(10, 30)]), ((b, a), [(30, 10)])):
        m = Model("m")
        x = m.variable("x", N)
        m.require("f", Le(x[a] - x[b], 0), forall=(a, b), where=pairs)
        assert m.compile().A.toarray().tolist() == [[1, 0, -1]]
    with pytest.raises(ModelError, match="has no element 1"):
        m.require("g", Le(x[a] - x[b], 0), forall=(a, b), where=[(1, 2)])


@pytest.mark.parametrize("labels", [["a", "b"], 2, [0, 1], [np.int64(1), np.int64(2)]])
@pytest.mark.parametrize("yes", [True, np.True_])
def test_booleans_are_no_places_or_labels(labels: Any, yes: Any) -> None:
    m, N = Model("m"), IndexSet("N", labels)
    a, b = Index("a", N), Index("b", N)
    x = m.variable("x", N)
    for mask in ([yes, False], [(yes,), (False,)], np.array([yes, False]), (a, [yes, False])):
        with pytest.raises(ModelError, match=r"np\.argwhere\(mask\)"):
            m.require("rows", Le(x[a], 1), forall=a, where=mask)
        with pytest.raises(ModelError, match=r"np\.argwhere\(mask\)"):
            total(x[a], over=a, where=mask)
    with pytest.raises(ModelError, match=r"\(2, 2\): np\.argwhere\(mask\)"):
        m.require("rows", Le(x[a] + x[b], 1), forall=(a, b), where=np.array([[yes, False], [yes, yes]]))
    for call in (lambda: x[yes], lambda: N.position(yes)):
        with pytest.raises(ModelError, match=r"N has .*True"):
            call()
    assert yes not in N


def test_booleans_are_labels_if_elements() -> None:
    truths = IndexSet("truths", [True, False])
    assert [truths.position(label) for label in (True, np.False_)] == [0, 1]
    assert truths.positions([0, 1, True]).tolist() == [0, 1, 0]  # no label is an integer, so integers are places


def test_explains_arrays_in_a_list_of_tuples() -> None:
    m = Model("m")
    X = IndexSet("X", ["a", "b"])
    i, j = Index("i", X), Index("j", X)
    z = m.variable("z", X)
    with pytest.raises(ModelError, match=r"where, index i: .*ndarray"):
        m.require("rows", Le(z[i], z[j]), forall=(i, j), where=[np.array([0, 1]), np.array([1, 0])])


def test_refuses_variable_of_another_model() -> None:
    other_model, foreign, _ = fresh_model()
    family_count = 0
    for use in (
        lambda m, z, h: m.require("f", Le(z[i, k] + foreign[i, k], 1), forall=(i, k)),
        lambda m, z, h: m.require("f", implies(h[i], foreign[i, 0] <= 0), forall=i),
        lambda m, z, h: m.require("f", implies(other_model.variables[1][i], z[i, 0] <= 0), forall=i),
        lambda m, z, h: m.require("f", Le(total(foreign[i, k], over=k), 1), forall=i),
        lambda m, z, h: m.minimize(total(foreign[i, k], over=(i, k))),
        lambda m, z, h: m.piecewise("t", foreign[i, 0], [-1, 0, 1], [1, 0, 1], forall=i),
        lambda m, z, h: m.add_block("b", sparse.eye(12), columns=foreign),
        lambda m, z, h: m.add_block("b", sparse.eye(24), columns=[z, foreign]),
    ):
        m: Any = Model("own")
        with pytest.raises(ModelError, match=r"variable (z|h) .*own.*of model m"):
            use(m, m.variable("z", X, Y, upper=1), m.variable("h", X, kind="binary"))
        family_count += len(m.families)
    assert family_count == 0
    twin: Any = Model("m")
    with pytest.raises(ModelError, match=r"variable z .*another model"):
        twin.minimize(total(foreign[i, k], over=(i, k)))


def test_param_of_another_model_is_its_numbers() -> None:
    other_model: Any = Model("other")
    p = other_model.param("p", np.array([1.0, 2.0, 3.0]))
    m, _, h = fresh_model()
    m.require("f", Le(p[i] * h[i], 4), forall=i)
    assert m.compile().A.data.tolist() == [1.0, 2.0, 3.0]


def _line_of_four(pairs: Any) -> Any:
    m: Any = Model("cancel")
    places = IndexSet("P", 4)
    a, b, c = (Index(name, places) for name in "abc")
    d = m.param("d", np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0))))
    z = m.variable("z", places, places)
    m.minimize(total(d[a, c] * z[a, c], over=(a, c)))
    m.require("mass", Eq(total(z[a, c], over=c), 1), forall=a)
    m.require("geo-ind", Le(z[a, c], exp(d[a, b]) * z[b, c]), forall=(a, b, c), where=pairs)
    m.require("tenths", Le(0.1 * z[a, 0] + 0.2 * z[a, 0] - 0.3 * z[b, 0], 1), forall=(a, b), where=pairs)
    return m


@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_terms_that_cancel_are_no_coefficients(backend: str) -> None:
    with_diagonal, without_diagonal = _line_of_four(None), _line_of_four(np.argwhere(~np.eye(4, dtype=bool)))
    form = with_diagonal.compile()
    assert (form.A.data != 0).all()
    assert (np.diff(form.A.indptr) == 0).sum() == 16 + 4  # rows of a = b say nothing
    result = with_diagonal.solve(backend)
    assert result.value("z").min() > 1e-4  # none is forced to 0
    assert result.objective == pytest.approx(without_diagonal.solve(backend).objective, rel=1e-7)


def test_row_that_cancels_to_a_sign_still_binds() -> None:
    m: Any = Model("falls")
    z = m.variable("z", X)
    m.maximize(total(z[i], over=i))
    m.require("cap", Le(z[i], 1), forall=i)
    m.require("falls", Le(z[i], exp(-1) * z[i]), forall=i, privacy=True)
    assert m.solve("highs").objective == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("years", [range(2020, 2023), range(0, 6, 2), range(2, -1, -1)])
def test_labels_of_any_range_have_their_own_positions(years: range) -> None:
    N = IndexSet("N", years)
    assert [N.position(year) for year in years] == [0, 1, 2]
    assert N.positions(list(years)).tolist() == [0, 1, 2]
    m, t = Model("m"), Index("t", N)
    x = m.variable("x", N)
    m.minimize(total(x[t], over=t))
    m.require("last", Ge(x[years[2]], 1))
    assert m.solve("highs").value("x").tolist() == [0, 0, 1]


@pytest.mark.parametrize("factor", [log(0), sqrt(-1), log(-2)])
def test_coefficient_that_is_not_real_is_refused_by_name(factor: Any) -> None:
    m = Model("m")
    x = m.variable("x", upper=1)
    m.require("rows", Le(factor * x, 1))
    with pytest.raises(ModelError, match=r"family rows: the coefficient .* must be a real number"):
        m.compile()


@pytest.mark.parametrize("not_a_set", [3, "X", ["a", "b"]])
def test_refuses_what_is_no_set(not_a_set: Any) -> None:
    model = Model("m")
    with pytest.raises(ModelError, match=r"variable z: its sets must be IndexSets, such as IndexSet\('X', 3\), got"):
        model.variable("z", not_a_set)
    assert model.variables == ()
