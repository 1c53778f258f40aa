"""The architecture's example, word for word."""

from __future__ import annotations

import pickle

import networkx as nx
import numpy as np
import pytest
from helpers.whole_program import optimum
from scipy.spatial.distance import cdist

from privopt.backends import get
from privopt.backends.session import ColdSession
from privopt.dsl import Eq, Ge, Index, IndexSet, Le, Model, exp, implies, total
from privopt.errors import ModelError


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
def small_example() -> tuple[Model, np.ndarray]:
    points = np.random.default_rng(3).random((6, 2)) * 2
    D = cdist(points, points)
    return example([f"r{a}" for a in range(6)], D, 1.0), D


def test_example_matches_linprog_on_both_solvers(small_example: tuple[Model, np.ndarray]) -> None:
    model, D = small_example
    n = 6
    pairs = np.argwhere(np.triu(np.ones((n, n), dtype=bool), 1))
    optimal_cost = optimum(D / n, pairs, D[tuple(pairs.T)])
    for backend in ("highs", "cbc"):
        result = model.solve(backend)
        assert result.objective == pytest.approx(optimal_cost, rel=1e-8)
        assert result.status == "optimal"
        assert result.bound == pytest.approx(optimal_cost, rel=1e-8)
        assert result.value("z").shape == (n, n)
        assert result.value("z", ("r1", "r2")) == result.value("z")[1, 2]
        assert np.allclose(result.value("z").sum(axis=1), 1)


def test_duals_have_their_labels(small_example: tuple[Model, np.ndarray]) -> None:
    model, _ = small_example
    result = model.solve("highs")
    duals, form = result.dual("geo-ind"), result.form
    assert result.dual("geo-ind", ("r0", "r1", "r2")) == duals[form.family("geo-ind").rows(("r0", "r1", "r2"))[0]]
    assert (duals <= 1e-9).all()
    # strong duality and complementary slackness
    assert result.dual("mass").sum() == pytest.approx(result.objective, rel=1e-9)
    slack = form.row_upper[6:] - (form.A @ result.x)[6:]
    assert np.abs(duals * slack).max() < 1e-8
    assert np.allclose(form.c - form.A.T @ result.duals, result.reduced_cost("z").ravel(), atol=1e-8)


def test_compiled_form_is_arrays_and_pickles(small_example: tuple[Model, np.ndarray]) -> None:
    form = small_example[0].compile()
    copied = pickle.loads(pickle.dumps(form))
    assert (copied.A != form.A).nnz == 0
    assert copied.row_name(7) == form.row_name(7) == "geo-ind[i='r0', j='r1', k='r1']"
    assert form.column_name(7) == "z['r1', 'r1']"
    with pytest.raises(ValueError, match="read-only"):
        form.c[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        form.A.data[0] = 1


def test_privacy_rows_keep_their_exponents(small_example: tuple[Model, np.ndarray]) -> None:
    model, D = small_example
    block = model.compile().family("geo-ind")
    i, j, _ = block.positions
    assert block.kind == "privacy"
    assert block.log_ratio is not None
    assert block.left is not None
    assert block.right is not None
    assert np.array_equal(block.log_ratio, D[i, j])
    assert np.array_equal(block.left // 6, i)
    assert np.array_equal(block.right // 6, j)


def test_prints_like_the_formula(small_example: tuple[Model, np.ndarray]) -> None:
    model, _ = small_example
    assert str(model).splitlines() == [
        "optimal: minimize sum(p[i]*c[i, k]*z[i, k] for i in X, k in Y)",
        "  mass: sum(z[i, k] for k in Y) == 1  for i in X",
        "  geo-ind: z[i, k] <= exp(1.0*d[i, j])*z[j, k]  for (i, j) in 30 tuples, k in Y",
        "  z[X, Y] >= 0",
    ]


def test_a_sum_over_tuples_prints_how_many() -> None:
    X = IndexSet("X", ["a", "b"])
    i, j = Index("i", X), Index("j", X)
    z = Model("pairs").variable("z", X, X)
    summed = total(z[i, j], over=(i, j), where=[("a", "b"), ("b", "a")])
    assert str(summed) == "sum(z[i, j] for i in X, j in X; (i, j) in 2 tuples)"


def test_prints_indicators_and_pieces() -> None:
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
    assert "h[i] = 1 ->" in text
    assert "bend lines: bend[i] >= " in text
    assert "h[X] binary" in text
    assert m.solve("highs").objective == pytest.approx(m.solve("cbc").objective)


@pytest.mark.parametrize("seed", range(4))
def test_sessions_without_warm_starts_follow_deleted_rows_and_columns(seed: int) -> None:
    """Privacy rows are written anew from their exponents, which must stay those of the rows and columns left."""
    rng = np.random.default_rng(seed)
    points = rng.random((4, 2)) * 2
    form = example([f"r{a}" for a in range(4)], cdist(points, points), 1.0).compile()
    removed_rows = np.sort(rng.choice(np.arange(4, form.shape[0]), size=20, replace=False))
    cold, warm = ColdSession(get("cbc"), form), get("highs").session(form)
    for session in (cold, warm):
        session.delete_rows(removed_rows)
    assert cold.solve().objective == pytest.approx(warm.solve().objective, rel=1e-7)
    kept = np.delete(np.arange(form.shape[0]), removed_rows)
    assert [cold.form.row_name(row) for row in range(len(kept))] == [form.row_name(row) for row in kept.tolist()]
    # Without its privacy rows the last output can be deleted.
    with_last = np.flatnonzero(abs(cold.form.A[:, 3::4]).sum(axis=1) > 0)
    with pytest.raises(ModelError, match="geo-ind"):
        cold.delete_columns(np.array([3]))
    for session in (cold, warm):
        session.delete_rows(with_last[with_last >= 4])
        session.delete_columns(np.arange(3, 16, 4))
    assert cold.solve().objective == pytest.approx(warm.solve().objective, rel=1e-7)
