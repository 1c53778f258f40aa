"""Conditioning: never looser, and what it costs is bounded."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.backends import get
from privopt.dsl import Eq, Index, IndexSet, Le, Model, exp, total
from privopt.dsl.condition import CoefficientRange, condition, dual_bound
from privopt.dsl.form import StandardForm
from privopt.errors import SolverError

BEARINGS = [CoefficientRange(log_cap=c) for c in (12.0, 34.0)]


def pairs_model(logs: np.ndarray) -> StandardForm:
    m = Model("pairs")
    X = IndexSet("X", len(logs))
    i = Index("i", X)
    a, b, e = m.variable("a", X, upper=1), m.variable("b", X), m.param("e", logs)
    m.require("geo", Le(a[i], exp(e[i]) * b[i]), forall=i)
    return m.compile()


@given(st.lists(st.floats(-900, 900), min_size=1, max_size=8), st.sampled_from(BEARINGS))
def test_privacy_rows_are_not_loosened_or_dropped(logs: list[float], bearing: CoefficientRange) -> None:
    form = pairs_model(np.array(logs))
    conditioned = condition(form, bearing)
    n = len(logs)
    mpmath.mp.dps = 60
    for row, log in enumerate(logs):
        entries = conditioned.A[[row]].toarray().ravel()
        left_weight, right = Fraction(entries[row]), -Fraction(entries[n + row])
        assert left_weight > 0
        # a <= (right / left) b with right / left <= exp(log), exactly
        assert (
            mpmath.mpf(right.numerator) / right.denominator
            <= mpmath.exp(log) * left_weight.numerator / left_weight.denominator
        )
        if abs(log) <= bearing.log_cap:
            assert float(right / left_weight) == pytest.approx(math.exp(log), rel=1e-11)
            assert bearing.smallest < entries[row] < bearing.largest
            assert bearing.smallest < -entries[n + row] < bearing.largest
    large_count = sum(abs(x) > bearing.log_cap for x in logs)
    assert (0 if conditioned.tightening is None else conditioned.tightening.rows) == large_count


def grid_model(eps: float) -> tuple[Model, float]:
    """Return a 3 x 3 grid, all pairs; its optimum in closed form (the star mechanism, optimal from eps = 1.5 on)."""
    points = np.array([(a, b) for a in range(3) for b in range(3)], dtype=float)
    D = np.linalg.norm(points[:, None] - points[None], axis=2)
    W = np.exp(-eps * D)
    star = W * np.linalg.solve(W, np.ones(9))
    X = IndexSet("X", 9)
    i, j, k = (Index(s, X) for s in "ijk")
    m = Model("grid")
    z, d = m.variable("z", X, X), m.param("d", D)
    m.minimize(total(d[i, k] * z[i, k] / 9, over=(i, k)))
    m.require("mass", Eq(total(z[i, k], over=k), 1), forall=i)
    m.require("geo", Le(z[i, k], exp(eps * d[i, j]) * z[j, k]), forall=(i, j, k), where=np.argwhere(D > 0))
    return m, float((star * D).sum() / 9)


@pytest.mark.parametrize(("backend", "eps"), [("highs", 2), ("highs", 7), ("highs", 12), ("cbc", 2), ("cbc", 7)])
def test_known_optima_at_large_exponents(backend: str, eps: float) -> None:
    model, optimum = grid_model(eps)
    result = model.solve(backend)
    assert result.tightening is None
    assert result.objective == pytest.approx(optimum, rel=1e-7)
    assert result.bound is not None
    assert result.bound == pytest.approx(optimum, rel=1e-6)
    assert result.bound <= optimum * (1 + 1e-9)


@pytest.mark.parametrize(("backend", "eps"), [("highs", 15), ("highs", 30), ("cbc", 10), ("cbc", 20)])
def test_cost_beyond_reach_is_bounded(backend: str, eps: float) -> None:
    model, optimum = grid_model(eps)
    result = model.solve(backend)
    report = result.tightening
    assert report is not None
    assert report.cost is not None
    assert report.largest_log == pytest.approx(eps * np.sqrt(8))
    assert optimum * (1 - 1e-6) - 1e-12 <= result.objective <= optimum + report.cost + 1e-12
    assert report.cost <= 1e-7
    assert result.bound is not None
    assert result.bound <= optimum


def wide_form(*entries: float, reach: float = np.inf, row_side: float = 1.0) -> StandardForm:
    n = len(entries)
    return StandardForm(
        c=np.ones(n),
        A=[entries],
        row_lower=[-np.inf],
        row_upper=[row_side],
        col_lower=np.zeros(n),
        col_upper=np.full(n, reach),
        integrality=np.zeros(n),
    )


def test_other_rows_are_scaled_or_refused() -> None:
    bearing = CoefficientRange()
    assert condition(wide_form(1, 1e6), bearing).row_scale[0] == 1
    conditioned = condition(wide_form(1e20, 3e20, row_side=2e20), bearing)
    assert np.abs(conditioned.A.data).max() < 2
    assert math.log2(conditioned.row_scale[0]).is_integer()
    assert conditioned.row_upper[0] == 2e20 * conditioned.row_scale[0]
    with pytest.raises(SolverError, match=r"row 0: coefficients 1e\+20.*column 1"):
        condition(wide_form(1, 1e20), bearing)
    with pytest.raises(SolverError):
        condition(wide_form(1, 1e20, reach=1), bearing)
    with pytest.raises(SolverError):
        condition(wide_form(1e-20, 1), bearing)
    # here the entry cannot move the row by more than rounding does
    assert condition(wide_form(1e-20, 1, reach=10), bearing).A.nnz == 1


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_any_multipliers_give_a_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n = 4, 5
    sense = "max" if rng.integers(2) else "min"
    A = rng.integers(-3, 4, (m, n))
    x0 = rng.integers(0, 3, n)
    form = StandardForm(
        c=rng.integers(-5, 6, n),
        c0=1.0,
        sense=sense,
        A=A,
        row_lower=A @ x0 - 2.0,  # type: ignore[arg-type]
        row_upper=A @ x0 + rng.integers(0, 3, m),
        col_lower=np.zeros(n),
        col_upper=np.full(n, 4.0),
        integrality=np.zeros(n),
    )
    best = get("highs").solve(form)
    assert best.objective is not None
    assert best.duals is not None
    flip = 1 if sense == "min" else -1
    assert flip * dual_bound(form, rng.normal(size=m)) <= flip * best.objective + 1e-9
    assert dual_bound(form, best.duals) == pytest.approx(best.objective, abs=1e-6)


def test_bound_takes_upper_bounds_from_mass_rows() -> None:
    model, optimum = grid_model(2)
    form = model.compile()
    assert np.isinf(form.col_upper).all()
    assert np.isfinite(dual_bound(form, np.random.default_rng(0).normal(size=form.shape[0])))
    assert dual_bound(form, np.zeros(form.shape[0])) <= optimum


def test_huge_exponents_are_cut_like_any() -> None:
    from privopt.backends.cbc import BEARING
    from privopt.dsl.condition import _privacy_coefficients

    a, b, _, cut = _privacy_coefficients(np.array([1.0, 1e9, 1e30, np.inf]), BEARING)
    assert np.isfinite(a).all()
    assert np.isfinite(b).all()
    assert cut.tolist() == [False, True, True, True]
    assert np.allclose(b[1:] / a[1:], np.exp(BEARING.log_cap), rtol=1e-9)
    assert (b[1:] / a[1:] < np.exp(BEARING.log_cap)).all()
