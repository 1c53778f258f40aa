"""Activities, slacks, multipliers and tables of a solution."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.dsl import Eq, Ge, Index, IndexSet, Le, Model, Solution, total
from privopt.errors import ModelError

X, Q = IndexSet("X", ["a", "b", "c", "d"]), IndexSet("Q", 3)
i, q = Index("i", X), Index("q", Q)


def random_model(seed: int) -> tuple[Model, bool]:
    rng = np.random.default_rng(seed)
    m = Model("random")
    x = m.variable("x", X, lower=rng.integers(-3, 1, 4), upper=rng.integers(1, 5, 4))
    free = m.variable("free", lower=None)
    cost, weight = m.param("cost", rng.integers(-5, 6, 4)), m.param("weight", rng.integers(-3, 4, (3, 4)))
    is_maximised = bool(rng.integers(2))
    goal = total(cost[i] * x[i], over=i) + (-2 if is_maximised else 2) * free
    (m.maximize if is_maximised else m.minimize)(goal)
    m.require("below", Le(total(weight[q, i] * x[i], over=i), 4), forall=q)
    m.require("above", Ge(total(weight[q, i] * x[i], over=i) + free, -1), forall=q)
    m.require("tie", Eq(x["a"] + free, 2 * x["b"] + 1))
    return m, is_maximised


def check_complementarity(solution: Solution, *, is_maximised: bool) -> None:
    """Check slacks, signs of multipliers, stationarity, and that only tight rows and bounds have a price."""
    form, sign = solution.form, -1 if is_maximised else 1
    tolerance = 1e-6
    prices = np.zeros(form.shape[0])
    for block in form.families:
        activity, slack, dual = (getattr(solution, f)(block.name) for f in ("activity", "slack", "dual"))
        rows = slice(block.start, block.stop)
        lower, upper = form.row_lower[rows], form.row_upper[rows]
        assert np.allclose(activity, form.A[rows] @ solution.x)
        assert (slack >= -tolerance).all()
        assert (np.abs(np.minimum(activity - lower, upper - activity) - slack) <= tolerance).all()
        assert (np.abs(dual * slack) <= tolerance).all()
        # One more unit of a lower side costs, and one of an upper side helps.
        assert (sign * dual[np.isinf(upper)] >= -tolerance).all()
        assert (sign * dual[np.isinf(lower)] <= tolerance).all()
        prices[rows] = dual
    reduced = np.concatenate([np.atleast_1d(solution.reduced_cost(v.name)).ravel() for v in form.variables])
    assert np.allclose(form.c - form.A.T @ prices, reduced, atol=tolerance)
    x = solution.x
    assert (sign * reduced[x > form.col_lower + tolerance] <= tolerance).all()
    assert (sign * reduced[x < form.col_upper - tolerance] >= -tolerance).all()


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_results_are_complementary(seed: int) -> None:
    m, is_maximised = random_model(seed)
    check_complementarity(m.solve("highs"), is_maximised=is_maximised)


@settings(max_examples=6)
@given(st.integers(0, 2**32 - 1))
def test_results_of_cbc_are_complementary(seed: int) -> None:
    m, is_maximised = random_model(seed)
    check_complementarity(m.solve("cbc"), is_maximised=is_maximised)


@pytest.fixture(scope="module")
def shipping() -> Solution:
    m = Model("shipping")
    D = IndexSet("days", [date(2024, 1, 1), date(2024, 1, 2)])
    d, e = Index("d", D), Index("e", D)
    sent = m.variable("sent", D, D, upper=5)
    m.variable("spare", upper=3)
    price = m.param("price", [1.0, 2.0])
    m.minimize(total(price[e] * sent[d, e], over=(d, e)))
    m.require("enough", Ge(total(sent[d, e], over=e), 7), forall=d)
    m.require("total", Le(total(sent[d, e], over=(d, e)), 20))
    m.require("some", Le(sent[d, e], 4), forall=(d, e), where=[(date(2024, 1, 1), date(2024, 1, 2))])
    m.add_block("ready", np.eye(2), columns=np.array([0, 1]), upper=9.0)
    return m.solve("highs")


def test_values_by_label(shipping: Solution) -> None:
    first, second = date(2024, 1, 1), date(2024, 1, 2)
    assert shipping.activity("enough", (first,)) == pytest.approx(7)
    assert shipping.slack("total") == pytest.approx([6])
    assert shipping.slack("some", (first, second)) == pytest.approx(2)
    assert shipping.slack("ready", (1,)) == pytest.approx(7)
    assert shipping.dual("enough", (second,)) == pytest.approx(2)
    with pytest.raises(ModelError, match="no row"):
        shipping.slack("some", (second, second))


def test_tables_have_labels(shipping: Solution) -> None:
    table = shipping.to_frame("sent")
    assert table.columns == ["days", "days_2", "value", "lower", "upper", "reduced_cost"]
    assert table.schema["days"] == pl.Date
    first_day = table.filter(pl.col("days") == date(2024, 1, 1))
    assert first_day["value"].to_list() == pytest.approx([5, 2])
    table = shipping.to_frame("enough")
    assert table.columns == ["d", "activity", "lower", "upper", "slack", "dual"]
    assert table["dual"].to_list() == pytest.approx([2, 2])
    assert shipping.to_frame("ready")["row"].to_list() == [0, 1]
    assert shipping.to_frame("spare").columns == ["value", "lower", "upper", "reduced_cost"]
    assert shipping.to_frame("total").rows()[0][0] == pytest.approx(14)
    with pytest.raises(ModelError, match="called 'sant'; there are sent, spare, enough, total, some, ready"):
        shipping.to_frame("sant")


@pytest.mark.parametrize(
    ("labels", "expected"), [([1, "b"], ["1", "b"]), ([(1, 2), (3, 4)], ["(1, 2)", "(3, 4)"]), ([], []), (2, [0, 1])]
)
def test_labels_of_any_type_are_shown(labels: Any, expected: list[Any]) -> None:
    m = Model("labels")
    value = IndexSet("value", labels)
    k = Index("k", value)
    h = m.variable("h", value, kind="binary")
    m.minimize(total(h[k], over=k))
    table = m.solve("highs").to_frame("h")
    assert table["value_2"].to_list() == expected
    assert table["reduced_cost"].null_count() == len(expected)
