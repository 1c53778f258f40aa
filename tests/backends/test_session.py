"""The warm session that decomposers use."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog

from privopt.backends import Outcome, get
from privopt.dsl.form import StandardForm


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
    found = linprog(c, A_ub=A, b_ub=b, bounds=bounds)
    return None if found.status == 2 else float(found.fun)


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.just("highs"))
def test_changes_and_additions_equal_a_fresh_model(seed: int, solver: str) -> None:
    rng = np.random.default_rng(seed)
    form = random_form(rng)
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
        found, wanted = session.solve(), reference(c, A, b, bounds)
        if wanted is None:
            assert found.outcome is Outcome.INFEASIBLE
            check_farkas(found.ray, A, b, bounds)
        else:
            assert found.objective == pytest.approx(wanted + 2.0, abs=1e-7)
            assert found.reduced is not None
            assert np.allclose(c - A.T @ found.duals, found.reduced, atol=1e-7)


@settings(max_examples=3)
@given(st.integers(0, 2**32 - 1))
def test_a_backend_without_warm_starts_gives_sessions_too(seed: int) -> None:
    test_changes_and_additions_equal_a_fresh_model.hypothesis.inner_test(seed, "cbc")


def check_farkas(y: np.ndarray | None, A: np.ndarray, b: np.ndarray, bounds: list[tuple[float, float]]) -> None:
    """Check that y <= 0 on rows A x <= b proves infeasibility: max over the box of y A x stays below y b."""
    assert y is not None
    assert (y <= 1e-9).all()
    combined = A.T @ y
    best = sum(max(g * lo, g * hi) for g, (lo, hi) in zip(combined, bounds, strict=True))
    assert best < y @ b - 1e-9


def test_an_unbounded_model_is_called_so() -> None:
    form = StandardForm(
        c=[-1, -1],
        A=[[1, -1]],
        row_lower=[-1],
        row_upper=[1],
        col_lower=[0, 0],
        col_upper=[np.inf, np.inf],
        integrality=[0, 0],
    )
    found = get("highs").session(form).solve()
    assert found.outcome is Outcome.UNBOUNDED


def test_deleting_rows_and_starting_from_a_basis() -> None:
    rng = np.random.default_rng(1)
    form = random_form(rng, m=6, n=8, sense="max")
    session = get("highs").session(form)
    first = session.solve()
    basis = session.basis
    session.change_costs(np.arange(8), -form.c)
    session.solve()
    session.change_costs(np.arange(8), form.c)
    again = session.solve(basis=basis)
    assert again.objective == pytest.approx(first.objective)
    assert again.iterations == 0
    session.delete_rows([0, 3])
    kept = np.delete(np.arange(6), [0, 3])
    wanted = reference(
        -form.c, form.A.toarray()[kept], form.row_upper[kept], list(zip(form.col_lower, form.col_upper, strict=True))
    )
    assert wanted is not None
    assert session.solve().objective == pytest.approx(-wanted + 2.0)


def test_a_time_limit_stops_a_session() -> None:
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
    found = get("highs").session(form).solve(time_limit=1e-3)
    assert found.outcome in (Outcome.STOPPED, Outcome.FEASIBLE)
