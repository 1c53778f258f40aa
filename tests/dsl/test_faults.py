"""Errors name family, index and term."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from scipy import sparse

from privopt.dsl import Eq, Ge, Index, IndexSet, Le, Model, exp, implies, total
from privopt.errors import InfeasibleError, ModelError, UnboundedError, UsageError

X, Y = IndexSet("X", ["a", "b", "c"]), IndexSet("Y", 4)
i, j, k = Index("i", X), Index("j", X), Index("k", Y)


def fresh() -> tuple[Any, Any, Any]:
    m: Any = Model("m")
    return m, m.variable("z", X, Y, upper=1), m.variable("h", X, kind="binary")


def _p(m: Any) -> Any:
    return m.param("p", np.arange(3.0))


FAULTS: list[tuple[Callable[[Any, Any, Any], Any], str]] = [
    (lambda m, z, h: m.require("f", Le(z[i, k] * z[j, k], 1), forall=(i, j, k)), "family f: the term .* not linear"),
    (lambda m, z, h: m.require("f", Le(exp(z[i, k]), 1), forall=(i, k)), "family f: the term exp.* not linear in z"),
    (lambda m, z, h: m.require("f", Le(z[i, k] ** 2, 1), forall=(i, k)), r"term z\[i, k\]\*\*2 is not linear"),
    (lambda m, z, h: m.require("f", Le(1 / z[i, k], 1), forall=(i, k)), "not linear"),
    (lambda m, z, h: m.require("f", Le(z[i, k], 1), forall=i), r"family f: index k of the term z\[i, k\] is neither"),
    (lambda m, z, h: m.require("f", Le(h[i], 1), forall=(i, j)), "family f: index j is in forall but in no term"),
    (lambda m, z, h: m.require("f", Le(total(z[i, k], over=k), 1), forall=(i, k)), "index k is both in forall and"),
    (lambda m, z, h: m.require("f", z[i, k] < 1, forall=(i, k)), "strict"),
    (lambda m, z, h: m.require("f", True), "always True"),
    (lambda m, z, h: m.require("f", Le(1, 2)), "speaks of no variable"),
    (lambda m, z, h: m.require("f", Le(z, 2)), "z must be used with its 2 indices, got none"),
    (lambda m, z, h: z[k, i], r"index k runs over Y \(4\), but place 0 of z over X \(3\)"),
    (lambda m, z, h: z[i], r"z must have 2 indices \(X, Y\), got 1"),
    (lambda m, z, h: m.require("f", Le(h[i], "1"), forall=i), "got the text"),
    (lambda m, z, h: m.require("f", Le(h[i], np.ones(3)), forall=i), "arrays enter a formula as params"),
    (lambda m, z, h: m.require("f", Le(h[i] + h[j], 1), forall=(i, j), where=[("a", "q")]), "where, index j: .*'q'"),
    (
        lambda m, z, h: m.require("f", Le(h[i] + h[j], 1), forall=(i, j), where=np.array([[0, 3]])),
        "places must be 0 to 2, got 3",
    ),
    (
        lambda m, z, h: m.require("f", Le(h[i], 1), forall=i, where=[("a", "b")]),
        r"tuples of 1 entries for \(i\), got 2",
    ),
    (
        lambda m, z, h: m.require("f", Le(k * h[i], 1), forall=(i, k)) or m.compile(),
        "k in the coefficient k must be a p",
    ),
    (
        lambda m, z, h: m.require("f", Le(z[i, k + 1], 1), forall=(i, k)) or m.compile(),
        r"k \+ 1 must be a place from 0 to 3 of Y, got 4 at k = 3",
    ),
    (lambda m, z, h: m.require("f", Le(h[i] / _p(m)[i], 1), forall=i) or m.compile(), "family f: the coef.* inf at i"),
    (lambda m, z, h: m.param("q", np.array([1, np.nan, 2]), X), r"param q\['b'\] must be a number, got NaN"),
    (lambda m, z, h: m.param("q", np.ones(4), X), r"shape \(3,\) for \(X\), got \(4,\)"),
    (lambda m, z, h: m.variable("z"), "the name 'z' is taken"),
    (lambda m, z, h: m.variable("y", X, lower=2, upper=1), "lower bound 2.0 above upper 1.0"),
    (lambda m, z, h: m.variable("y", X, lower=np.ones(2)), "lower must have shape"),
    (lambda m, z, h: m.variable("y", X, kind="whole"), "binary, got 'whole'"),
    (lambda m, z, h: m.minimize(h[i]), "objective: index i of the term"),
    (lambda m, z, h: m.minimize(0) or m.minimize(1), "objective is set already"),
    (
        lambda m, z, h: m.require("f", implies(h[i], m.variable("w", X)[i] <= 3), forall=i) or m.compile(),
        r"f\[i='a'\]: no big-M: w\['a'\] has no upper bound",
    ),
    (lambda m, z, h: m.require("f", implies(z[i, 0], h[i] <= 0), forall=i) or m.compile(), "expected a binary"),
    (
        lambda m, z, h: m.require("g", Eq(z[i, 0], 2 * z[i, 1]), forall=i, privacy=True),
        "family g: a privacy row must be",
    ),
    (lambda m, z, h: m.piecewise("u", h[i], [0, 1, 2, 3], values=[0, 2, 1, 5], forall=i), "neither convex nor"),
    (lambda m, z, h: m.piecewise("t", h[i], [0, 0], values=[1, 2], forall=i), "must be finite and rise"),
    (
        lambda m, z, h: m.maximize(m.piecewise("t", h["a"], [-1, 0, 1], [1, 0, 1])) or m.compile(),
        "may only be minimised",
    ),
    (lambda m, z, h: m.add_block("b", sparse.eye(3), columns=z), r"shape \(3, 3\) for 12 columns"),
    (lambda m, z, h: m.add_block("b", sparse.eye(3) * np.inf, columns=h), "a coefficient is inf"),
    (lambda m, z, h: m.piecewise("t", h[i], [0], [1], forall=i), "two breakpoints or more, got one"),
    (lambda m, z, h: total(h[i], over=cast("Any", "i")), "over must be an index"),
    (lambda m, z, h: m.minimize(total(h[i], over=i) * total(h[j], over=j)), "multiplies variables"),
    (lambda m, z, h: m.require("f", Le(total(_p(m)[i], over=i) * h[i], 1), forall=i), "index i of a sum in"),
    (lambda m, z, h: IndexSet("Z", ["a", "b", "a"]), "got 'a' at places 0 and 2"),
]


@pytest.mark.parametrize(("make", "message"), FAULTS, ids=[m[:30] for _, m in FAULTS])
def test_faults_are_named(make: Callable[[Any, Any, Any], Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        make(*fresh())


def clashing() -> Model:
    m = Model("m")
    x = m.variable("x", X)
    m.minimize(total(x[i], over=i))
    m.require("low", Ge(total(x[i], over=i), 5))
    m.require("high", Le(x[i], 1), forall=i)
    m.require("idle", Le(x[i], 100), forall=i)
    return m


@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_an_infeasible_model_names_what_clashes(backend: str) -> None:
    with pytest.raises(InfeasibleError) as caught:
        clashing().solve(backend)
    text = str(caught.value)
    assert "low and high clash" in text
    assert "idle" not in text
    assert "high[i='a']" in text


@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_a_clash_of_integers_names_families(backend: str) -> None:
    m = Model("m")
    x = m.variable("x", kind="integer", upper=5)
    y = m.variable("y", kind="integer", upper=5)
    m.require("odd", Eq(2 * x + 4 * y, 7))
    m.require("idle", Le(x + y, 9))
    with pytest.raises(InfeasibleError, match="odd cannot hold"):
        m.solve(backend)


@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_an_unbounded_model_is_called_so(backend: str) -> None:
    m = Model("m")
    x = m.variable("x", X)
    m.maximize(total(x[i], over=i))
    m.require("tie", Le(x["a"] - x["b"], 1))
    m.require("cap", Le(x["c"], 1))
    with pytest.raises(UnboundedError, match="m is unbounded"):
        m.solve(backend)


@pytest.mark.parametrize("backend", ["highs", "cbc"])
@pytest.mark.parametrize("rows", [0, 1])
def test_an_unbounded_model_without_rows_is_called_so(backend: str, rows: int) -> None:
    m = Model("m")
    x = m.variable("x", X, lower=0)
    y = m.variable("y", lower=0, upper=3)
    m.maximize(x["b"] + y - x["a"])
    if rows:
        m.require("cap", Le(y, 1))
    with pytest.raises(UnboundedError, match="m is unbounded: the objective improves without end"):
        m.solve(backend)


def test_integer_models_have_no_duals() -> None:
    m = Model("m")
    x = m.variable("x", kind="integer", upper=3)
    m.maximize(x)
    m.require("r", Le(2 * x, 5))
    found = m.solve("highs")
    assert found.value("x") == 2.0
    with pytest.raises(UsageError, match="no duals"):
        found.dual("r")


def test_what_is_asked_for_by_a_wrong_name_or_label() -> None:
    m = clashing()
    form = m.compile()
    with pytest.raises(ModelError, match="no family is called 'hi'; there are low, high, idle"):
        form.family("hi")
    with pytest.raises(ModelError, match="index set X has no element 'q'"):
        form.family("high").rows(("q",))
    with pytest.raises(ModelError, match="no variable is called 'y'"):
        form.variable("y")


def test_numpy_numbers_enter_as_the_doubles_they_are() -> None:
    rng = np.random.default_rng(0)
    numbers = rng.random(20) * 10.0 ** rng.integers(-8, 9, 20)
    m = Model("m")
    x = m.variable("x", IndexSet("N", 20))
    m.minimize(sum(v * x[at] for at, v in enumerate(numbers)))
    assert np.array_equal(m.compile().c, numbers)


def test_labels_that_are_integers() -> None:
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
def test_booleans_are_neither_places_nor_labels_that_equal_them(labels: Any, yes: Any) -> None:
    m, N = Model("m"), IndexSet("N", labels)
    a, b = Index("a", N), Index("b", N)
    x = m.variable("x", N)
    for mask in ([yes, False], [(yes,), (False,)], np.array([yes, False]), (a, [yes, False])):
        with pytest.raises(ModelError, match=r"np\.argwhere\(mask\)"):
            m.require("rows", Le(x[a], 1), forall=a, where=mask)
        with pytest.raises(ModelError, match=r"np\.argwhere\(mask\)"):
            total(x[a], over=a, where=mask)
    with pytest.raises(
        ModelError, match=r"must be tuples, got a mask of booleans of shape \(2, 2\): np\.argwhere\(mask\)"
    ):
        m.require("rows", Le(x[a] + x[b], 1), forall=(a, b), where=np.array([[yes, False], [yes, yes]]))
    for ask in (lambda: x[yes], lambda: N.position(yes)):
        with pytest.raises(ModelError, match=r"index set N has no element (np\.)?True"):
            ask()
    assert yes not in N


def test_booleans_are_labels_where_they_are_elements() -> None:
    truths = IndexSet("truths", [True, False])
    assert [truths.position(label) for label in (True, np.False_)] == [0, 1]
    assert truths.positions([0, 1, True]).tolist() == [0, 1, 0]  # no label is an integer, so integers are places


def test_tuples_as_arrays_in_a_list_are_told() -> None:
    m = Model("m")
    X = IndexSet("X", ["a", "b"])
    i, j = Index("i", X), Index("j", X)
    z = m.variable("z", X)
    with pytest.raises(ModelError, match=r"where, index i: .* must be an element or its place, got the ndarray"):
        m.require("rows", Le(z[i], z[j]), forall=(i, j), where=[np.array([0, 1]), np.array([1, 0])])


def test_a_variable_of_another_model_is_refused() -> None:
    other, foreign, _ = fresh()
    made = 0
    for use in (
        lambda m, z, h: m.require("f", Le(z[i, k] + foreign[i, k], 1), forall=(i, k)),
        lambda m, z, h: m.require("f", implies(h[i], foreign[i, 0] <= 0), forall=i),
        lambda m, z, h: m.require("f", implies(other.variables[1][i], z[i, 0] <= 0), forall=i),
        lambda m, z, h: m.require("f", Le(total(foreign[i, k], over=k), 1), forall=i),
        lambda m, z, h: m.minimize(total(foreign[i, k], over=(i, k))),
        lambda m, z, h: m.piecewise("t", foreign[i, 0], [-1, 0, 1], [1, 0, 1], forall=i),
        lambda m, z, h: m.add_block("b", sparse.eye(12), columns=foreign),
        lambda m, z, h: m.add_block("b", sparse.eye(24), columns=[z, foreign]),
    ):
        m: Any = Model("own")
        with pytest.raises(ModelError, match=r"variable (z|h) must be one of model own, got one of model m"):
            use(m, m.variable("z", X, Y, upper=1), m.variable("h", X, kind="binary"))
        made += len(m.families)
    assert made == 0
    twin: Any = Model("m")
    with pytest.raises(ModelError, match="variable z must be one of model m, got one of another model called m"):
        twin.minimize(total(foreign[i, k], over=(i, k)))


def test_a_param_of_another_model_is_the_numbers_it_holds() -> None:
    other: Any = Model("other")
    p = other.param("p", np.array([1.0, 2.0, 3.0]))
    m, _, h = fresh()
    m.require("f", Le(p[i] * h[i], 4), forall=i)
    assert m.compile().A.data.tolist() == [1.0, 2.0, 3.0]


def _line_of_four(where: Any) -> Any:
    m: Any = Model("cancel")
    places = IndexSet("P", 4)
    a, b, c = (Index(name, places) for name in "abc")
    d = m.param("d", np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0))))
    z = m.variable("z", places, places)
    m.minimize(total(d[a, c] * z[a, c], over=(a, c)))
    m.require("mass", Eq(total(z[a, c], over=c), 1), forall=a)
    m.require("geo-ind", Le(z[a, c], exp(d[a, b]) * z[b, c]), forall=(a, b, c), where=where)
    m.require("tenths", Le(0.1 * z[a, 0] + 0.2 * z[a, 0] - 0.3 * z[b, 0], 1), forall=(a, b), where=where)
    return m


@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_terms_that_cancel_are_no_coefficients(backend: str) -> None:
    whole, apart = _line_of_four(None), _line_of_four(np.argwhere(~np.eye(4, dtype=bool)))
    form = whole.compile()
    assert (form.A.data != 0).all()
    assert (np.diff(form.A.indptr) == 0).sum() == 16 + 4  # rows of a = b say nothing
    found = whole.solve(backend)
    assert found.value("z").min() > 1e-4  # none is forced to 0
    assert found.objective == pytest.approx(apart.solve(backend).objective, rel=1e-7)


def test_a_row_that_cancels_to_a_sign_still_binds() -> None:
    m: Any = Model("falls")
    z = m.variable("z", X)
    m.maximize(total(z[i], over=i))
    m.require("cap", Le(z[i], 1), forall=i)
    m.require("falls", Le(z[i], exp(-1) * z[i]), forall=i, privacy=True)
    assert m.solve("highs").objective == pytest.approx(0.0, abs=1e-9)
