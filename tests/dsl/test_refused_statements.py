"""A statement that is refused leaves the model as it was: its parts, its names and what it compiles to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privopt.dsl import Eq, Ge, Index, IndexSet, Le, Model, implies, maximum, total
from privopt.errors import ModelError, UsageError

X = IndexSet("X", ["a", "b", "c"])
i, j = Index("i", X), Index("j", X)
FOREIGN = Model("other").variable("foreign", X)


def stated_model() -> tuple[Any, Any]:
    m: Any = Model("stated")
    x = m.variable("x", X, upper=9)
    m.param("p", [1.0, 2.0, 3.0], X)
    m.param("s", 2.0)
    m.variable("h", X, kind="binary")
    m.minimize(total(x[i], over=i) + abs(x["a"] - 1))
    m.require("row", Ge(x[i], 1), forall=i)
    m.require("cap", Le(maximum(x[i], over=i), 7))
    m.piecewise("bend", x["b"], [0, 1, 2], [0, 1, 3])
    m.add_block("block", np.ones((1, 3)), columns=x, lower=2)
    return m, x


def describe_model(m: Any) -> tuple[Any, ...]:
    form = m.compile()
    arrays = (form.c, form.A.toarray(), form.row_lower, form.row_upper, form.col_lower, form.col_upper)
    return (
        str(m),
        m.variables,
        m.families,
        m.params,
        m.objective,
        m.sense,
        {name: (param.value if param.is_scalar else param.value.tolist()) for name, param in m.params.items()},
        sorted(m._names),
        [(b.name, b.start) for b in (*form.variables, *form.families)],
        [array.tolist() for array in arrays],
    )


REFUSED: list[Callable[[Any, Any], Any]] = [
    lambda m, x: m.variable("x"),
    lambda m, x: m.variable(""),
    lambda m, x: m.variable("new", X, lower=np.ones(2)),
    lambda m, x: m.variable("new", X, lower=2, upper=1),
    lambda m, x: m.variable("new", kind="whole"),
    lambda m, x: m.variable("new", kind="semicontinuous"),
    lambda m, x: m.variable("new", lower=np.nan),
    lambda m, x: m.variable("new", X, upper={"a": 1}),
    lambda m, x: m.param("x", 1.0),
    lambda m, x: m.param("new", np.ones(4), X),
    lambda m, x: m.param("new", {"a": 1, "b": 2, "q": 3}, X),
    lambda m, x: m.param("new", ["a"]),
    lambda m, x: m.set_params({"s": 3.0, "p": [1.0]}),
    lambda m, x: m.set_params({"s": 3.0, "q": 1.0}),
    lambda m, x: m.solve("highs", params={"s": 4.0, "p": np.nan}),
    lambda m, x: m.solve("highs", start={"x": [1.0]}),
    lambda m, x: m.solve("highs", gap=-1.0),
    lambda m, x: setattr(m.params["p"], "value", [1.0, 2.0]),
    lambda m, x: setattr(x, "upper", [1.0, 2.0]),
    lambda m, x: setattr(x, "lower", np.nan),
    lambda m, x: m.minimize(x["a"]),
    lambda m, x: m.minimize(x["a"] ** 3, replace=True),
    lambda m, x: m.maximize(x[i], replace=True),
    lambda m, x: m.maximize(abs(FOREIGN["a"]), replace=True),
    lambda m, x: m.minimize(FOREIGN["a"] ** 2 + x["a"], replace=True),
    lambda m, x: m.minimize(2 * x, replace=True),
    lambda m, x: m.require("row", Le(x[i], 1), forall=i),
    lambda m, x: m.require("x", Le(x[i], 1), forall=i),
    lambda m, x: m.require("new", Le(x[i], 1)),
    lambda m, x: m.require("new", Le(x[i] * x[j], 1), forall=(i, j)),
    lambda m, x: m.require("new", Le(FOREIGN[i], 1), forall=i),
    lambda m, x: m.require("new", Le(abs(FOREIGN[i]), x[i]), forall=i),
    lambda m, x: m.require("new", Le(maximum(x[i], over=j), 1), forall=i),
    lambda m, x: m.require("new", implies(x["a"], Le(abs(x["b"]), 1))),
    lambda m, x: m.require("new", Le(x[i], 1), forall=i, where=["q"]),
    lambda m, x: m.require("new", Eq(x[i], 2 * x[j]), forall=(i, j), privacy=True),
    lambda m, x: m.require("new", Le(x[i], 1), forall=i, replace=True),
    lambda m, x: m.require("bend lines", Le(x["a"], 1), replace=True),
    lambda m, x: m.require("row", Le(x[i], x[j]), forall=i, replace=True),
    lambda m, x: m.require("new", x <= np.ones(4)),
    lambda m, x: m.remove_family("new"),
    lambda m, x: m.remove_family("bend lines"),
    lambda m, x: m.piecewise("new", x[i], [0, 1, 2], [0, 2, 1], forall=j),
    lambda m, x: m.piecewise("new", FOREIGN["a"], [0, 1, 2], [0, 1, 3]),
    lambda m, x: m.piecewise("new", x["a"] * x["b"], [0, 1, 2], [0, 1, 3]),
    lambda m, x: m.piecewise("new", x[i], [0, 1, 2], [0, 1, 3]),
    lambda m, x: m.piecewise("new", x[i], [0, 1, 2], [0, 1, 3], forall=i, where=["q"]),
    lambda m, x: m.piecewise("new", x["a"], [0, 1, 2], [0, 1]),
    lambda m, x: m.piecewise("new", x["a"], ["a", "b"], [0, 1]),
    lambda m, x: m.piecewise("bend", x["a"], [0, 1, 2], [0, 1, 3]),
    lambda m, x: m.add_block("new", np.ones((1, 2)), columns=x),
    lambda m, x: m.add_block("new", np.ones((1, 3)), columns=FOREIGN),
    lambda m, x: m.add_block("new", np.ones((1, 3)), columns=x, lower=np.ones(2)),
    lambda m, x: m.add_block("new", np.ones((1, 3)), columns=x, lower=np.nan),
    lambda m, x: m.add_block("new", np.ones((1, 1)), columns=np.array([99])),
    lambda m, x: m.add_block("new", np.ones((1, 3)), columns=[]),
    lambda m, x: m.add_block("new", np.ones((1, 3)), columns=np.array([True, False, True])),
    lambda m, x: m.add_block("new", np.ones((1, 3)), columns=np.array([0.0, 1.0, 1.5])),
    lambda m, x: m.add_block("new", np.ones((1, 1)), columns=["a"]),
    lambda m, x: m.add_block("new", [["a", "b", "c"]], columns=x),
    lambda m, x: m.add_block("new", np.ones((1, 3)), columns=x, replace=True),
]


@pytest.mark.parametrize("statement", REFUSED)
def test_refused_statement_changes_nothing(statement: Callable[[Any, Any], Any]) -> None:
    m, x = stated_model()
    before = describe_model(m)
    with pytest.raises((ModelError, UsageError)):
        statement(m, x)
    assert describe_model(m) == before
    # The name is still free, and the columns of a later variable follow the others.
    later = m.variable("new", X)
    assert later.start == 3 + 3 + 1
    m.require("new lines", Le(later[i], x[i]), forall=i)
    assert m.solve("highs").status == "optimal"
