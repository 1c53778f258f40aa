"""A model that is changed and solved again equals a model that is stated anew."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.backends import Basis, get
from privopt.backends._highs_calls import HighsBasis
from privopt.dsl import Eq, Ge, Index, IndexSet, Le, Model, exp, implies, solve_form, total
from privopt.errors import InfeasibleError, ModelError, UsageError

X, Q = IndexSet("X", ["a", "b", "c", "d"]), IndexSet("Q", 3)
i, j, q = Index("i", X), Index("j", X), Index("q", Q)
Numbers = dict[str, Any]


def random_numbers(rng: np.random.Generator) -> Numbers:
    return {
        "cost": rng.integers(1, 6, 4),
        "weight": rng.integers(0, 4, (3, 4)),
        "side": rng.integers(1, 7, 3),
        "scale": float(rng.integers(1, 4)),
        "upper": rng.integers(2, 7, 4),
        "epsilon": float(rng.integers(0, 3)),
        "has_ties": bool(rng.integers(2)),
        "has_switches": bool(rng.integers(2)),
        "is_maximised": bool(rng.integers(2)),
    }


def state_model(numbers: Numbers, *, integer: bool) -> Model:
    m = Model("changed")
    x = m.variable("x", X, upper=numbers["upper"], kind="integer" if integer else "continuous")
    h = m.variable("h", X, kind="binary" if integer else "continuous", upper=1)
    cost, weight = m.param("cost", numbers["cost"], X), m.param("weight", numbers["weight"])
    side, scale, epsilon = (m.param(name, numbers[name]) for name in ("side", "scale", "epsilon"))
    set_objective(m, numbers)
    m.require("cover", Ge(total(weight[q, i] * x[i], over=i), side[q]), forall=q)
    m.require("near", Le(x[i], exp(epsilon) * x[j] + 1), forall=(i, j))
    m.require("geo", Le(x[i], exp(epsilon) * x[j]), forall=(i, j), where=[("a", "b"), ("b", "c")])
    m.require("opened", Le(x[i], 9 * h[i]), forall=i)
    m.require("purse", Le(total(cost[i] * x[i], over=i), 12 * scale))
    if numbers["has_ties"]:
        add_ties(m)
    if numbers["has_switches"] and integer:
        m.require("switch", implies(h[i], x[i] >= scale), forall=i)
    return m


def variable(m: Model, name: str) -> Any:
    return next(v for v in m.variables if v.name == name)


def set_objective(m: Model, numbers: Numbers, *, replace: bool = False) -> None:
    x, h, cost, scale = variable(m, "x"), variable(m, "h"), m.params["cost"], m.params["scale"]
    goal = total(cost[i] * x[i] + scale * h[i], over=i) + scale
    (m.maximize if numbers["is_maximised"] else m.minimize)(goal, replace=replace)


def add_ties(m: Model) -> None:
    m.require("ties", Eq(variable(m, "x")["a"], variable(m, "x")["b"]))


def change_model(m: Model, before: Numbers, after: Numbers, *, integer: bool) -> dict[str, Any]:
    """Change a model in place, and return the parameters that are left for ``solve``."""
    for name in ("cost", "weight"):
        m.params[name].value = after[name]
    variable(m, "x").upper = after["upper"]
    if before["is_maximised"] != after["is_maximised"]:
        set_objective(m, after, replace=True)
    if before["has_ties"] and not after["has_ties"]:
        m.remove_family("ties")
    if after["has_ties"] and not before["has_ties"]:
        add_ties(m)
    if integer and before["has_switches"] != after["has_switches"]:
        if before["has_switches"]:
            m.remove_family("switch")
        else:
            m.require("switch", implies(variable(m, "h")[i], variable(m, "x")[i] >= m.params["scale"]), forall=i)
    return {name: after[name] for name in ("side", "scale", "epsilon")}


def optimum(solve: Callable[..., Any], backend: str, **options: Any) -> float | None:
    try:
        solution = solve(backend, gap=0.0, **options)
    except InfeasibleError:
        return None
    assert solution.status == "optimal"
    return float(solution.objective)


def check_changes(seed: int, backend: str, *, integer: bool, count: int) -> None:
    rng = np.random.default_rng(seed)
    numbers = random_numbers(rng)
    m = state_model(numbers, integer=integer)
    optimum(m.solve, backend)
    for _ in range(count):
        changed = random_numbers(rng)
        if rng.integers(2):  # often only numbers of the right sides change
            changed = numbers | {name: changed[name] for name in ("side", "epsilon")}
        params = change_model(m, numbers, changed, integer=integer)
        numbers = changed
        fresh = state_model(numbers, integer=integer)
        value = optimum(m.solve, backend, params=params)
        expected = optimum(fresh.solve, backend)
        assert value == (None if expected is None else pytest.approx(expected, rel=1e-6, abs=1e-6))
        form, fresh_form = m.compile(), fresh.compile()
        rows = [row for name in (b.name for b in fresh_form.families) for row in rows_of(form, name)]
        assert abs(form.A[rows] - fresh_form.A).max() == 0
        assert np.array_equal(form.row_upper[rows], fresh_form.row_upper)
        assert np.array_equal(form.row_lower[rows], fresh_form.row_lower)


def rows_of(form: Any, name: str) -> range:
    return range(form.family(name).start, form.family(name).stop)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_changed_linear_program_equals_a_fresh_one(seed: int) -> None:
    check_changes(seed, "highs", integer=False, count=4)


@settings(max_examples=5)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_changed_model_equals_a_fresh_one_with_cbc(seed: int, integer: bool) -> None:
    check_changes(seed, "cbc", integer=integer, count=2)


@settings(max_examples=4)
@given(st.integers(0, 2**32 - 1))
def test_changed_integer_program_equals_a_fresh_one(seed: int) -> None:
    check_changes(seed, "highs", integer=True, count=2)


def transport(size: int) -> tuple[Model, Any]:
    rng = np.random.default_rng(5)
    m = Model("transport")
    S, T = IndexSet("S", size), IndexSet("T", size)
    s, t = Index("s", S), Index("t", T)
    flow = m.variable("flow", S, T)
    cost, need = m.param("cost", rng.random((size, size))), m.param("need", rng.random(size) / 2)
    m.minimize(total(cost[s, t] * flow[s, t], over=(s, t)))
    m.require("supply", Le(total(flow[s, t], over=t), 1), forall=s)
    m.require("need met", Ge(total(flow[s, t], over=s), need[t]), forall=t)
    return m, need


def test_highs_goes_on_from_its_last_basis() -> None:
    m, need = transport(30)
    first = m.solve("highs")
    assert m.solve("highs").iterations == 0
    need.value = need.value * 1.01
    second = m.solve("highs")
    m.remove_family("supply")
    third = m.solve("highs")
    assert second.iterations < first.iterations / 2
    assert third.objective <= second.objective
    assert isinstance(first.basis, Basis)
    assert m.solve("cbc").basis is None


def test_unchanged_families_are_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from privopt.dsl import compile as compiler

    m, need = transport(4)
    m.compile()
    compiled: list[str] = []
    compile_family = compiler._compile_family

    def record_family(family: Any, *others: Any) -> Any:
        compiled.append(family.name)
        return compile_family(family, *others)

    monkeypatch.setattr(compiler, "_compile_family", record_family)
    monkeypatch.setattr(compiler.Coefficients, "get", lambda self, formula, where: self._functions[where][formula])
    m.compile()
    assert compiled == []
    need.value = need.value + 1
    assert m.compile().row_lower[4:].min() >= 1
    assert compiled == ["need met"]


def test_functions_of_replaced_families_do_not_pile_up() -> None:
    m = Model("replaced")
    x, h = m.variable("x", X, upper=9), m.variable("h", X, kind="binary")

    def count_functions(factor: int) -> int:
        m.minimize(total(factor * x[i] / 7, over=i), replace=True)
        for name in ("geo", "switch"):
            if factor > 1:
                m.remove_family(name)
        m.require("geo", Le(x[i], exp(factor / 8) * x[j]), forall=(i, j))
        m.require("switch", implies(h[i], Ge(x[i], factor / 8)), forall=i)
        m.compile()
        return sum(map(len, m._parts.coefficients._functions.values()))

    assert len({count_functions(factor) for factor in range(1, 5)}) == 1


def test_refused_variable_leaves_its_name_free() -> None:
    m = Model("notebook")
    with pytest.raises(ModelError, match="lower bound 2"):
        m.variable("x", lower=2, upper=1)
    with pytest.raises(ModelError, match="NaN"):
        m.param("p", [np.nan])
    assert m.variable("x", upper=1).start == 0
    assert m.param("p", [1.0]).value == 1.0


def test_function_is_called_again_each_time() -> None:
    factor = 1.0
    m = Model("functions")
    p = m.param("p", lambda positions: factor * (positions + 1), X)
    x = m.variable("x", X)
    m.minimize(total(x[i], over=i))
    m.require("low", Ge(x[i], p[i]), forall=i)
    assert m.solve("highs").objective == pytest.approx(10)
    factor = 2.0
    assert m.solve("highs").objective == pytest.approx(20)
    p.value = np.ones(4)
    assert m.solve("highs").objective == pytest.approx(4)


def test_bounds_of_binaries_stay_binary() -> None:
    m = Model("binary")
    h = m.variable("h", X, kind="binary")
    h.upper, h.lower = 7, None
    m.maximize(total(h[i], over=i))
    assert m.solve("highs").objective == 4
    h.upper = np.array([0, 0, 1, 1])
    assert m.solve("highs").objective == 2
    h.lower = 1
    with pytest.raises(ModelError, match=r"h: lower bound 1\.0 above upper 0\.0"):
        m.solve("highs")


def small_model() -> Model:
    m = Model("small")
    x = m.variable("x", X)
    m.param("p", np.ones(4), X)
    m.param("f", lambda positions: positions)
    m.minimize(total(x[i], over=i))
    m.require("rows", Ge(x[i], 1), forall=i)
    m.minimize(m.piecewise("bend", x["a"], [0, 1, 2], [0, 1, 4]), replace=True)
    return m


REFUSED: list[tuple[Callable[[Model], Any], str]] = [
    (lambda m: m.remove_family("rwos"), "'rwos'; there are rows"),
    (lambda m: m.remove_family("bend lines"), "define a piecewise term"),
    (lambda m: m.require("new", Ge(m.variables[0]["a"], 1), replace=True), "'new'; there are rows"),
    (lambda m: m.solve(params={"q": 1}), "no param is called 'q'; there are p, f"),
    (lambda m: m.solve(params={"p": np.ones(3)}), r"param p: .*\(4,\).*got \(3,\)"),
    (lambda m: setattr(m.params["p"], "value", np.full(4, np.nan)), r"p\['a'\] must be a number, got NaN"),
    (lambda m: setattr(m.params["f"], "value", np.ones(4)), "param f: .*function"),
    (lambda m: setattr(m.variables[0], "upper", np.ones(3)), r"x: upper must have shape \(4,\), got \(3,\)"),
    (lambda m: m.minimize(1), "set already; replace=True"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED, ids=[m[:20] for _, m in REFUSED])
def test_refuses_changes_that_cannot_be_meant(change: Callable[[Model], Any], message: str) -> None:
    m = small_model()
    with pytest.raises(ModelError, match=message):
        change(m)
    assert m.solve("highs").objective == pytest.approx(1)


def test_refused_values_change_no_parameter() -> None:
    m = small_model()
    with pytest.raises(ModelError, match="got NaN"):
        m.set_params({"f": lambda positions: positions + 1, "p": np.full(4, np.nan)})
    assert m.params["f"].revision == 0


@pytest.mark.parametrize("attribute", ["valu", "source", "lower"])
def test_attribute_that_does_not_exist_is_an_error(attribute: str) -> None:
    m = small_model()
    for target, name in ((m.params["p"], attribute), (m.variables[0], "uper"), (i, "sets"), (m, "objective")):
        with pytest.raises(AttributeError):
            setattr(target, name, 1.0)


def test_kind_of_a_variable_cannot_be_changed() -> None:
    x = small_model().variables[0]
    with pytest.raises(AttributeError):
        x.kind = "binary"  # type: ignore[misc]


def test_objective_can_be_removed() -> None:
    m = small_model()
    m.remove_objective()
    assert m.solve("highs").objective == 0.0


def test_refuses_a_basis_that_is_none() -> None:
    with pytest.raises(UsageError, match="basis must be"):
        get("highs").solve(small_model().compile(), basis=3)  # type: ignore[typeddict-item]


def test_basis_holds_the_loaded_model_for_one_solve_of_the_same_matrix() -> None:
    m = Model("again")
    X = IndexSet("X", 3)
    x = m.variable("x", X, upper=4)
    c, b = m.param("c", [1.0, 2.0, 3.0], X), m.param("b", 5.0)
    i = Index("i", X)
    m.minimize(total(c[i] * x[i], over=i))
    m.require("need", Ge(total(x[i], over=i), b))
    first = m.solve("highs")
    assert isinstance(first.basis, HighsBasis)
    copy = pickle.loads(pickle.dumps(first.basis))
    assert type(copy) is Basis
    assert (copy.columns.tolist(), copy.rows.tolist()) == (first.basis.columns.tolist(), first.basis.rows.tolist())
    # Costs, sides and bounds are changed in the loaded model, each alone and all together.
    for values, upper, expected in (
        ({"c": [3.0, 2.0, 1.0]}, 4, 1 * 4 + 2 * 1),
        ({"b": 9.0}, 4, 1 * 4 + 2 * 4 + 3 * 1),
        ({"c": [1.0, 1.0, 5.0], "b": 7.0}, 3, 3 + 3 + 5),
    ):
        x.upper = upper
        assert m.solve("highs", params=values).objective == pytest.approx(expected)
    # The first basis gave its model away; it still starts a solve of its own.
    assert solve_form(m.compile(), "highs", basis=first.basis).objective == pytest.approx(11)
    m.require("more", Ge(x[2], 2))
    assert m.solve("highs").objective == pytest.approx(3 + 2 + 10)
