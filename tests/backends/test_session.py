"""The warm session that decomposers use."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog

from privopt.backends import Outcome, get
from privopt.dsl import Index, IndexSet, Le, Model, exp, total
from privopt.dsl.form import StandardForm
from privopt.errors import ModelError


def random_form(rng: np.random.Generator, m: int = 4, n: int = 5, sense: str = "min") -> StandardForm:
    return StandardForm(
        c=rng.integers(-5, 6, n),
        c0=2.0,
        sense=sense,
        A=rng.integers(-3, 4, (m, n)),  # type: ignore[arg-type]
        row_lower=np.full(m, -np.inf),
        row_upper=rng.integers(0, 9, m),
        col_lower=np.zeros(n),
        col_upper=rng.integers(1, 6, n),
        integrality=np.zeros(n),
    )


def reference(c: np.ndarray, A: np.ndarray, b: np.ndarray, bounds: list[tuple[float, float]]) -> float | None:
    solution = linprog(c, A_ub=A, b_ub=b, bounds=bounds)
    return None if solution.status == 2 else float(solution.fun)


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.just("highs"), st.sampled_from(["min", "max"]))
def test_changed_session_equals_a_fresh_model(seed: int, solver: str, sense: str) -> None:
    rng = np.random.default_rng(seed)
    form, flip = random_form(rng, sense=sense), 1.0 if sense == "min" else -1.0
    session = get(solver).session(form)
    c, A, b = form.c.copy(), form.A.toarray(), form.row_upper.copy()
    bounds = list(zip(form.col_lower, form.col_upper, strict=True))
    for _ in range(4):
        step = rng.integers(6)
        if step == 0:
            c = rng.integers(-5, 6, len(c)).astype(float)
            session.change_costs(np.arange(len(c)), c)
        elif step == 1:
            b[1] = rng.integers(-2, 9)
            session.change_row_bounds([1], [-np.inf], [b[1]])
        elif step == 2:
            bounds[0] = (1.0, float(rng.integers(1, 5)))
            session.change_column_bounds([0], [1.0], [bounds[0][1]])
        elif step == 3:
            row = rng.integers(-2, 3, (1, len(c))).astype(float)
            session.add_rows(sparse.csr_matrix(row), -np.inf, 5.0)
            A, b = np.vstack([A, row]), np.append(b, 5.0)
        elif step == 4 and len(c) > 5:
            session.delete_columns([5])
            A, c, bounds = np.delete(A, 5, axis=1), np.delete(c, 5), [*bounds[:5], *bounds[6:]]
        else:
            column = rng.integers(-2, 3, (len(A), 1)).astype(float)
            session.add_columns([-1.0], 0.0, 3.0, sparse.csc_matrix(column))
            A, c, bounds = np.hstack([A, column]), np.append(c, -1.0), [*bounds, (0.0, 3.0)]
        result, expected = session.solve(), reference(flip * c, A, b, bounds)
        if expected is None:
            assert result.outcome is Outcome.INFEASIBLE
            check_farkas(result.ray, A, b, bounds)
        else:
            assert result.objective == pytest.approx(flip * expected + 2.0, abs=1e-7)
            assert result.reduced is not None
            assert np.allclose(c - A.T @ result.duals, result.reduced, atol=1e-7)


@settings(max_examples=3)
@given(st.integers(0, 2**32 - 1))
def test_backend_without_warm_starts_has_sessions(seed: int) -> None:
    test_changed_session_equals_a_fresh_model.hypothesis.inner_test(seed, "cbc", "min")


@pytest.mark.parametrize("sense", ["min", "max"])
def test_infeasible_models_have_rays_without_warm_starts(sense: str) -> None:
    form = StandardForm(
        c=[1], sense=sense, A=[[3]], row_lower=[-np.inf], row_upper=[-3], col_lower=[0], col_upper=[5], integrality=[0]
    )
    answer = get("cbc").session(form).solve()
    assert answer.outcome is Outcome.INFEASIBLE
    check_farkas(answer.ray, form.A.toarray(), form.row_upper, [(0.0, 5.0)])


def check_farkas(y: np.ndarray | None, A: np.ndarray, b: np.ndarray, bounds: list[tuple[float, float]]) -> None:
    """Check that y <= 0 on rows A x <= b proves infeasibility: max over the box of y A x stays below y b."""
    assert y is not None
    assert (y <= 1e-9).all()
    combined = A.T @ y
    best = sum(max(g * lo, g * hi) for g, (lo, hi) in zip(combined, bounds, strict=True))
    assert best < y @ b - 1e-9


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_crossed_sides_are_infeasible_without_a_ray(solver: str) -> None:
    form = StandardForm(c=[1], A=[[1]], row_lower=[2], row_upper=[1], col_lower=[0], col_upper=[9], integrality=[0])
    answer = get(solver).session(form).solve()
    assert (answer.outcome, answer.ray) == (Outcome.INFEASIBLE, None)


def test_session_reports_unbounded_model() -> None:
    form = StandardForm(
        c=[-1, -1],
        A=[[1, -1]],
        row_lower=[-1],
        row_upper=[1],
        col_lower=[0, 0],
        col_upper=[np.inf, np.inf],
        integrality=[0, 0],
    )
    result = get("highs").session(form).solve()
    assert result.outcome is Outcome.UNBOUNDED


def test_deletes_rows_and_starts_from_a_basis() -> None:
    rng = np.random.default_rng(1)
    form = random_form(rng, m=6, n=8, sense="max")
    session = get("highs").session(form)
    first = session.solve()
    basis = session.basis
    session.change_costs(np.arange(8), -form.c)
    session.solve()
    session.change_costs(np.arange(8), form.c)
    repeated = session.solve(basis=basis)
    assert repeated.objective == pytest.approx(first.objective)
    assert repeated.iterations == 0
    session.delete_rows([0, 3])
    kept_rows = np.delete(np.arange(6), [0, 3])
    expected = reference(
        -form.c,
        form.A.toarray()[kept_rows],
        form.row_upper[kept_rows],
        list(zip(form.col_lower, form.col_upper, strict=True)),
    )
    assert expected is not None
    assert session.solve().objective == pytest.approx(-expected + 2.0)


def privacy_form() -> StandardForm:
    m, X = Model("private"), IndexSet("X", ["a", "b", "c"])
    i, j = Index("i", X), Index("j", X)
    w, z = m.variable("w", upper=1), m.variable("z", X, upper=[1.0, 10.0, 100.0])
    log = m.param("log", [[0.0, 1.0, 2.0], [0.5, 0.0, 3.0], [0.25, 1.5, 0.0]])
    m.maximize(total(z[i], over=i) + w)
    m.require("sum", Le(w + z["a"], 1.5))
    m.require("near", Le(z[i], exp(log[j, i]) * z[j]), forall=(i, j), where=[("b", "a"), ("c", "a"), ("c", "b")])
    return m.compile()


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_privacy_rows_keep_their_exponents_when_others_are_deleted(solver: str) -> None:
    session = get(solver).session(privacy_form())
    assert session.solve().objective == pytest.approx(1.5 + np.e + np.e**2)
    session.delete_rows([0, 2])
    assert session.solve().objective == pytest.approx(1 + 1 + np.e + np.e**4)
    session.delete_columns([0])
    assert session.solve().objective == pytest.approx(1 + np.e + np.e**4)


def test_block_follows_deleted_rows_and_columns() -> None:
    block = privacy_form().family("near").keep_rows(np.array([1, 3]))
    assert [block.row_name(row) for row in range(len(block))] == ["near[i='b', j='a']", "near[i='c', j='b']"]
    assert block.log_ratio is not None
    assert (block.start, block.stop, block.log_ratio.tolist()) == (0, 2, [1.0, 3.0])
    moved = block.keep_columns(np.array([1, 2, 3]))
    assert moved.left is not None
    assert moved.right is not None
    assert (moved.left.tolist(), moved.right.tolist()) == ([1, 2], [0, 1])
    with pytest.raises(ModelError, match="privacy rows of near compare a column that is deleted"):
        block.keep_columns(np.array([0, 1, 2]))


def test_added_column_in_a_privacy_row_is_refused_not_lost() -> None:
    session = get("cbc").session(privacy_form())
    with pytest.raises(ModelError, match="privacy rows of near"):
        session.add_columns(0.0, 0.0, 1.0, sparse.csc_matrix([[0.0], [-1.0], [0.0], [0.0]]))
    session.add_columns(1.0, 0.0, 2.0, sparse.csc_matrix([[1.0], [0.0], [0.0], [0.0]]))
    assert session.solve().objective == pytest.approx(1.5 + np.e + np.e**2)


def test_time_limit_stops_a_session() -> None:
    rng = np.random.default_rng(2)
    n = 400
    form = StandardForm(
        c=-rng.random(n),
        A=rng.random((n, n)),
        row_lower=np.full(n, -np.inf),
        row_upper=np.ones(n),
        col_lower=np.zeros(n),
        col_upper=np.ones(n),
        integrality=np.zeros(n),
    )
    result = get("highs").session(form).solve(time_limit=1e-3)
    assert result.outcome in (Outcome.STOPPED, Outcome.FEASIBLE)
