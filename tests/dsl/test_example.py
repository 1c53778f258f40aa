"""The architecture's example, word for word."""

from __future__ import annotations

import pickle

import networkx as nx
import numpy as np
import pytest
from helpers.whole_program import optimum
from scipy.spatial.distance import cdist

from privopt.dsl import Eq, Ge, Index, IndexSet, Le, Model, exp, implies, total


def example(records: list[str], D: np.ndarray, eps: float) -> Model:
    outputs = records
    prior = np.full(len(records), 1 / len(records))
    cost = D
    graph = nx.complete_graph(records).to_directed()
    edges = graph.edges

    m = Model("optimal")
    X, Y = IndexSet("X", records), IndexSet("Y", outputs)
    i, j, k = Index("i", X), Index("j", X), Index("k", Y)
    z = m.variable("z", X, Y, lower=0)
    d, p, c = m.param("d", D), m.param("p", prior), m.param("c", cost)
    m.minimize(total(p[i] * c[i, k] * z[i, k], over=(i, k)))
    m.require("mass", Eq(total(z[i, k], over=k), 1), forall=i)
    m.require("geo-ind", Le(z[i, k], exp(eps * d[i, j]) * z[j, k]), forall=(i, j, k), where=edges)
    return m


@pytest.fixture(scope="module")
def small() -> tuple[Model, np.ndarray]:
    points = np.random.default_rng(3).random((6, 2)) * 2
    D = cdist(points, points)
    return example([f"r{a}" for a in range(6)], D, 1.0), D


def test_the_example_equals_linprog_on_both_solvers(small: tuple[Model, np.ndarray]) -> None:
    model, D = small
    n = 6
    pairs = np.argwhere(np.triu(np.ones((n, n), dtype=bool), 1))
    least = optimum(D / n, pairs, D[tuple(pairs.T)])
    for backend in ("highs", "cbc"):
        found = model.solve(backend)
        assert found.objective == pytest.approx(least, rel=1e-8)
        assert found.status == "optimal"
        assert found.bound == pytest.approx(least, rel=1e-8)
        assert found.value("z").shape == (n, n)
        assert found.value("z", ("r1", "r2")) == found.value("z")[1, 2]
        assert np.allclose(found.value("z").sum(axis=1), 1)


def test_duals_stand_under_their_labels(small: tuple[Model, np.ndarray]) -> None:
    model, _ = small
    found = model.solve("highs")
    duals, form = found.dual("geo-ind"), found.form
    assert found.dual("geo-ind", ("r0", "r1", "r2")) == duals[form.family("geo-ind").rows(("r0", "r1", "r2"))[0]]
    assert (duals <= 1e-9).all()
    # strong duality and complementary slackness
    assert found.dual("mass").sum() == pytest.approx(found.objective, rel=1e-9)
    slack = form.row_upper[6:] - (form.A @ found.x)[6:]
    assert np.abs(duals * slack).max() < 1e-8
    assert np.allclose(form.c - form.A.T @ found.duals, found.reduced_cost("z").ravel(), atol=1e-8)


def test_the_compiled_form_is_arrays_and_travels(small: tuple[Model, np.ndarray]) -> None:
    form = small[0].compile()
    again = pickle.loads(pickle.dumps(form))
    assert (again.A != form.A).nnz == 0
    assert again.row_name(7) == form.row_name(7) == "geo-ind[i='r0', j='r1', k='r1']"
    assert form.column_name(7) == "z['r1', 'r1']"
    with pytest.raises(ValueError, match="read-only"):
        form.c[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        form.A.data[0] = 1


def test_privacy_rows_keep_their_exponents(small: tuple[Model, np.ndarray]) -> None:
    model, D = small
    block = model.compile().family("geo-ind")
    i, j, _ = block.positions
    assert block.kind == "privacy"
    assert block.log_ratio is not None
    assert block.left is not None
    assert block.right is not None
    assert np.array_equal(block.log_ratio, D[i, j])
    assert np.array_equal(block.left // 6, i)
    assert np.array_equal(block.right // 6, j)


def test_it_prints_as_the_formula(small: tuple[Model, np.ndarray]) -> None:
    model, _ = small
    assert str(model).splitlines() == [
        "optimal: minimize sum(p[i]*c[i, k]*z[i, k] for i in X, k in Y)",
        "  mass: sum(z[i, k] for k in Y) == 1  for i in X",
        "  geo-ind: z[i, k] <= exp(1.0*d[i, j])*z[j, k]  for (i, j) in 30 tuples, k in Y",
        "  z[X, Y] >= 0",
    ]


def test_indicators_and_pieces_print_too() -> None:
    m = Model("pick")
    X = IndexSet("X", ["a", "b"])
    i = Index("i", X)
    h = m.variable("h", X, kind="binary")
    x = m.variable("x", X, upper=5)
    t = m.piecewise("bend", x[i], [0.0, 1.0, 2.0, 3.0], [1.0, 0.0, 0.0, 1.0], forall=i)
    m.maximize(total(x[i] - t[i], over=i))
    m.require("on", implies(h[i], x[i] >= 3), forall=i)
    m.require("some", Ge(total(h[i], over=i), 1))
    text = str(m)
    assert "on: h[i] = 1 -> x[i] >= 3  for i in X" in text
    assert "bend lines: bend[i] >= " in text
    assert "h[X] binary" in text
    assert m.solve("highs").objective == pytest.approx(m.solve("cbc").objective)
