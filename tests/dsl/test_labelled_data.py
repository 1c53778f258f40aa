"""Numbers with labels are matched by label, whatever their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from privopt.dsl import IndexSet, Model
from privopt.errors import ModelError

X, Q = IndexSet("X", ["a", "b", "c"]), IndexSet("Q", 2)
PAIRS = {("c", 0): 5, ("a", 1): 2, ("a", 0): 1, ("b", 0): 3, ("b", 1): 4, ("c", 1): 6}

ONE_SET: list[Any] = [
    {"c": 3, "a": 1, "b": 2},
    pd.Series([3, 1, 2], index=["c", "a", "b"]),
    pl.DataFrame({"x": ["b", "c", "a"], "value": [2, 3, 1]}),
    pd.Series([1, 2, 3]),
    pl.Series([1, 2, 3]),
]
TWO_SETS: list[Any] = [
    PAIRS,
    pd.Series(list(PAIRS.values()), index=pd.MultiIndex.from_tuples(list(PAIRS))),
    pd.DataFrame([[4, 3], [6, 5], [2, 1]], index=["b", "c", "a"], columns=[1, 0]),
    pl.DataFrame([(*key, value) for key, value in PAIRS.items()], orient="row", schema=["x", "q", "value"]),
    pd.DataFrame([[1, 2], [3, 4], [5, 6]]),
]


@pytest.mark.parametrize("source", ONE_SET, ids=lambda x: type(x).__module__ + type(x).__name__)
def test_one_set(source: Any) -> None:
    m = Model("m")
    p, x = m.param("p", np.zeros(3), X), m.variable("x", X, lower=source)
    p.value = source
    assert p.value.tolist() == m.param("q", source, X).value.tolist() == x.lower.tolist() == [1, 2, 3]
    assert p.revision == 1


@pytest.mark.parametrize("source", TWO_SETS, ids=lambda x: type(x).__module__ + type(x).__name__)
def test_two_sets(source: Any) -> None:
    m = Model("m")
    x = m.variable("x", X, Q)
    x.upper = source
    assert m.param("p", source, X, Q).value.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert x.upper.tolist() == [1, 2, 3, 4, 5, 6]


def test_labels_that_are_tuples() -> None:
    T = IndexSet("T", [(0, 1), (1, 0)])
    assert Model("m").param("p", {(1, 0): 2, (0, 1): 1}, T).value.tolist() == [1, 2]


REFUSED: list[tuple[Callable[[Model], Any], str]] = [
    (lambda m: m.param("p", ONE_SET[0]), "param p: numbers with labels need the sets"),
    (lambda m: m.param("p", ONE_SET[1]), "need the sets"),
    (lambda m: m.param("p", {"a": 1, "b": 2}, X), "param p: no number for the label 'c'"),
    (lambda m: m.param("p", {("a", 0): 1}, X, Q), r"no number for the label \('a', 1\)"),
    (lambda m: m.param("p", {"a": 1, "d": 2}, X), "param p: index set X has no element 'd'"),
    (lambda m: m.param("p", {0: 1, 1: 2, 2: 3}, X), "X has no element 0"),
    (lambda m: m.param("p", pd.Series([1, 2, 3], index=["a", "a", "b"]), X), "the label 'a' occurs twice"),
    (lambda m: m.param("p", {"a": 1}, X, Q), "a label must have 2 entries, got 'a'"),
    (lambda m: m.param("p", pl.DataFrame({"a": [1], "b": [2], "c": [3]}), X), "1 column of labels and one of numbers"),
    (lambda m: m.variable("x", X, upper={"a": 1}), "variable x: upper: no number for the label 'b'"),
    (lambda m: m.variable("x", upper={"a": 1}), "need the sets"),
    (lambda m: m.param("p", {"a": 1, "b": "two", "c": 3}, X), "param p: the label 'b' must have a number, got a str"),
    (lambda m: m.param("p", ["one", "two", "three"], X), "param p: must be an array of numbers"),
    (lambda m: m.variable("x", X, lower=["one", "two", "three"]), "variable x: lower must be numbers or None"),
]


@pytest.mark.parametrize(("state", "message"), REFUSED, ids=[m[:25] for _, m in REFUSED])
def test_refuses_labels_that_do_not_fit(state: Callable[[Model], Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        state(Model("m"))
