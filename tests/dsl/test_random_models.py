"""Random small models said in the language equal the same models written as matrices for scipy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from privopt.dsl import Eq, Ge, Index, IndexSet, Le, Model, between, exp, implies, total
from privopt.dsl.lowering import piecewise_lines
from privopt.errors import InfeasibleError, ModelError

QUICK = settings(max_examples=25)
BOTH = settings(max_examples=12)


def scipy_optimum(
    c: Any, rows: list[Any], lower: list[float], upper: list[float], bounds: tuple[Any, Any], integrality: Any
) -> float | None:
    solution = milp(
        c,
        constraints=LinearConstraint(np.array(rows), lower, upper),
        bounds=Bounds(*bounds),
        integrality=integrality,
        options={"mip_rel_gap": 0.0},
    )
    assert solution.status in (0, 2), solution.message
    return None if solution.status == 2 else float(solution.fun)


def solve(model: Model, backend: str) -> float | None:
    try:
        result = model.solve(backend, gap=0.0)
    except InfeasibleError:
        return None
    assert result.status == "optimal"
    return result.objective


def assert_same_value(a: float | None, b: float | None) -> None:
    assert (a is None) == (b is None), (a, b)
    if a is not None and b is not None:
        assert a == pytest.approx(b, rel=1e-6, abs=1e-6)


@QUICK
@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_linear_and_integer(seed: int, integer: bool, maximise: bool) -> None:
    rng = np.random.default_rng(seed)
    n, q = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    X, Q = IndexSet("X", n), IndexSet("Q", q)
    i, j, r = Index("i", X), Index("j", X), Index("r", Q)
    cost, a, b, sides = rng.integers(-4, 5, n), rng.integers(-3, 4, (q, n)), rng.random((n, n)), rng.integers(0, 9, q)
    pairs = np.argwhere(rng.random((n, n)) < 0.4)

    m = Model("random")
    x = m.variable("x", X, lower=-1, upper=6, kind="integer" if integer else "continuous")
    cc, aa, bb, ss = (m.param(s, v) for s, v in zip("cabs", (cost, a, b, sides), strict=True))
    goal = 3 + total((cc[i] - 1) * x[i] / 2 + 0.25, over=i)
    (m.maximize if maximise else m.minimize)(goal)
    m.require("knapsack", Le(total(aa[r, i] * x[i], over=i), ss[r] + total(bb[i, 0], over=i)), forall=r)
    m.require("pairs", Ge(x[i] - 2 * x[j] * bb[i, j], -ss[0] - 3), forall=(i, j), where=pairs)
    m.require(
        "tie",
        Eq(
            total(x[i], over=i) - x[0],
            total(x[i] + 0 * x[j], over=(i, j), where=((i, j), [(0, 0)]))
            - x[0]
            + total(x[i], over=i, where=np.arange(1, n)),
        ),
    )

    c = (cost - 1) / 2 * (-1 if maximise else 1)
    rows, lower, upper = list(a.astype(float)), [-np.inf] * q, list(sides + b[:, 0].sum())
    for u, v in pairs:
        row = np.zeros(n)
        row[u] += 1
        row[v] -= 2 * b[u, v]
        rows, lower, upper = [*rows, row], [*lower, -sides[0] - 3.0], [*upper, np.inf]
    best = scipy_optimum(c, rows, lower, upper, (np.full(n, -1), np.full(n, 6)), np.full(n, int(integer)))
    expected = None if best is None else 3 + 0.25 * n + (-best if maximise else best)
    assert_same_value(solve(m, "highs"), expected)


@QUICK
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_sums_inside_sums_over_the_same_index(seed: int, is_quadratic: bool) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    X = IndexSet("X", n)
    i, j = Index("i", X), Index("j", X)
    inner, outer = np.argwhere(rng.random((n, n)) < 0.5), np.flatnonzero(rng.random(n) < 0.7)
    m = Model("nested")
    x = m.variable("x", X, X)
    term = x[i, j] ** 2 if is_quadratic else x[i, j]
    row_sum = total(term, over=j, where=((i, j), inner)) if rng.integers(2) else total(term, over=(i, j), where=inner)
    has_i = row_sum.over == (j,)
    m.minimize(total(total(row_sum, over=i) if has_i else row_sum, over=i, where=outer))

    weights = np.zeros((n, n))
    for _ in outer:
        for a, b in inner:
            weights[a, b] += 1
    form = m.compile()
    diagonal = np.zeros(n * n) if form.Q is None else form.Q.diagonal()
    assert np.array_equal(diagonal / 2 if is_quadratic else form.c, weights.ravel())


def indicator_model(seed: int) -> tuple[Model, float | None]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 5))
    X = IndexSet("X", n)
    i, j = Index("i", X), Index("j", X)
    w, required, value = rng.integers(-3, 4, (n, n)), rng.integers(-2, 5, n), rng.integers(1, 6, n)
    opposite, equal = bool(rng.integers(2)), bool(rng.integers(2))

    m = Model("indicators")
    x = m.variable("x", X, upper=4, kind="integer" if rng.integers(2) else "continuous")
    h = m.variable("h", X, kind="binary")
    ww, nn, vv = m.param("w", w), m.param("n", required), m.param("v", value)
    switch = 1 - h[i] if opposite else h[i]
    left_side = total(ww[i, j] * x[j], over=j) + h[i]
    m.maximize(total(vv[i] * (1 - h[i] if opposite else h[i]) - x[i], over=i))
    m.require("on", implies(switch, Eq(left_side, nn[i]) if equal else left_side >= nn[i]), forall=i)

    # for scipy: one plain, very generous M
    constant = 100.0
    rows, lower, upper = [], [], []
    for a in range(n):
        row = np.zeros(2 * n)
        row[:n] = w[a]
        row[n + a] = 1.0
        for sign in (1, -1) if equal else (1,):
            signed_row = sign * row.copy()
            signed_row[n + a] += constant if opposite else -constant
            rows.append(signed_row)
            lower.append(sign * required[a] - (0.0 if opposite else constant))
            upper.append(np.inf)
    c = np.concatenate([np.ones(n), value if opposite else -value]).astype(float)
    integrality = np.concatenate([m.compile().integrality[:n], np.ones(n)])
    best = scipy_optimum(
        c, rows, lower, upper, (np.zeros(2 * n), np.concatenate([np.full(n, 4), np.ones(n)])), integrality
    )
    return m, None if best is None else -best + (value.sum() if opposite else 0)


@QUICK
@given(st.integers(0, 2**32 - 1))
def test_indicators(seed: int) -> None:
    model, expected = indicator_model(seed)
    assert_same_value(solve(model, "highs"), expected)


def piecewise_model(seed: int) -> tuple[Model, float | None]:
    rng = np.random.default_rng(seed)
    n, pieces = int(rng.integers(1, 4)), int(rng.integers(2, 5))
    X = IndexSet("X", n)
    i = Index("i", X)
    slopes = np.sort(rng.integers(-4, 5, (n, pieces + 1)).astype(float), axis=1)
    breakpoints = np.cumsum(rng.integers(1, 3, (n, pieces)), axis=1) - 2.0
    convex = bool(rng.integers(2))
    slopes = slopes if convex else -slopes
    start, required = rng.integers(-2, 3, n).astype(float), float(rng.integers(0, 4))

    m = Model("pieces")
    is_integer = bool(rng.integers(2))
    x = m.variable("x", X, lower=-5, upper=5, kind="integer" if is_integer else "continuous")
    heights = start[:, None] + np.concatenate(
        [np.zeros((n, 1)), np.cumsum(slopes[:, 1:-1] * np.diff(breakpoints, axis=1), axis=1)], axis=1
    )
    t = m.piecewise("t", x[i] + 0.5, breakpoints, heights, forall=i)
    slopes = np.concatenate([slopes[:, 1:2], slopes[:, 1:-1], slopes[:, -2:-1]], axis=1)
    (m.minimize if convex else m.maximize)(total(2 * t[i], over=i))
    m.require("sum", Ge(total(x[i], over=i), required))

    rows, lower, upper = [np.r_[np.ones(n), np.zeros(n)]], [required], [np.inf]
    sign = 1.0 if convex else -1.0
    for a in range(n):
        knots = np.r_[breakpoints[a, 0], breakpoints[a]]
        height = np.r_[heights[a, 0], heights[a]]
        for piece in range(pieces + 1):
            row = np.zeros(2 * n)
            row[n + a], row[a] = sign, -sign * slopes[a, piece]
            rows.append(row)
            lower.append(sign * (height[piece] + slopes[a, piece] * (0.5 - knots[piece])))
            upper.append(np.inf)
    bounds = (np.r_[np.full(n, -5), np.full(n, -np.inf)], np.r_[np.full(n, 5), np.full(n, np.inf)])
    best = scipy_optimum(
        np.r_[np.zeros(n), np.full(n, 2 * sign)],
        rows,
        lower,
        upper,
        bounds,
        np.r_[np.full(n, int(is_integer)), np.zeros(n)],
    )
    return m, None if best is None else sign * best


@QUICK
@given(st.integers(0, 2**32 - 1))
def test_piecewise_linear_terms(seed: int) -> None:
    model, expected = piecewise_model(seed)
    assert_same_value(solve(model, "highs"), expected)


@QUICK
@given(st.integers(0, 2**32 - 1))
def test_scale_of_values_changes_no_piece(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, pieces = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    slopes, breakpoints = np.sort(rng.integers(-4, 5, (n, pieces))), np.arange(pieces + 1.0)
    heights = np.concatenate([np.zeros((n, 1)), np.cumsum(slopes, axis=1)], axis=1)
    scale = 2.0 ** rng.integers(-60, 60, (n, 1))
    scaled_slopes, _, scaled_curvature = piecewise_lines("t", (n,), breakpoints, heights * scale)
    plain_slopes, _, curvature = piecewise_lines("t", (n,), breakpoints, heights)
    assert scaled_curvature == curvature
    assert np.array_equal(scaled_slopes, plain_slopes * scale)


@pytest.mark.parametrize("start", [0.0, 0.1, 1e6])
def test_rounding_bends_no_line(start: float) -> None:
    breakpoints = start + 0.1 * np.arange(9)
    for slope in (0.0, 0.3, -7.0):
        assert piecewise_lines("t", (), breakpoints, 0.7 + slope * breakpoints)[2] == "linear"


@BOTH
@given(st.integers(0, 2**32 - 1), st.sampled_from([indicator_model, piecewise_model]))
def test_cbc_agrees(seed: int, make: Any) -> None:
    model, expected = make(seed)
    assert_same_value(solve(model, "cbc"), expected)


def privacy_model(seed: int, eps: float) -> tuple[Model, float]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    points = rng.random((n, 2))
    D = np.linalg.norm(points[:, None] - points[None], axis=2)
    prior = rng.dirichlet(np.ones(n))
    X = IndexSet("X", [f"r{a}" for a in range(n)])
    i, j, k = (Index(s, X) for s in "ijk")
    m = Model("privacy")
    z = m.variable("z", X, X)
    d = m.param("d", lambda u, v: D[u, v])
    p = m.param("p", prior, X)
    m.minimize(total(p[i] * d[i, k] * z[i, k], over=(i, k)))
    m.require("mass", Eq(total(z[i, k], over=k), 1), forall=i)
    m.require("geo", Ge(exp(eps * d[i, j]) * z[j, k], z[i, k]), forall=(i, j, k), where=np.argwhere(D > 0))
    rows = []
    for a, b in np.argwhere(D > 0):
        for o in range(n):
            row = np.zeros((n, n))
            row[a, o], row[b, o] = 1, -np.exp(eps * D[a, b])
            rows.append(row.ravel())
    best = linprog(
        (prior[:, None] * D).ravel(),
        A_ub=np.array(rows),
        b_ub=np.zeros(len(rows)),
        A_eq=np.kron(np.eye(n), np.ones(n)),
        b_eq=np.ones(n),
    )
    return m, float(best.fun)


@QUICK
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 6))
def test_privacy_families(seed: int, eps: float) -> None:
    model, expected = privacy_model(seed, eps)
    assert model.compile().family("geo").kind == "privacy"
    result = model.solve("highs")
    assert result.objective == pytest.approx(expected, rel=1e-6, abs=1e-8)
    assert result.bound is not None
    assert result.bound <= result.objective


@BOTH
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 6))
def test_privacy_families_on_cbc(seed: int, eps: float) -> None:
    model, expected = privacy_model(seed, eps)
    assert model.solve("cbc").objective == pytest.approx(expected, rel=1e-6, abs=1e-8)


@QUICK
@given(st.integers(0, 2**32 - 1))
def test_ready_blocks_equal_written_families(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 4
    X = IndexSet("X", n)
    i = Index("i", X)
    matrix, sides = rng.integers(-3, 4, (3, n)), rng.integers(1, 9, 3)
    written, ready = Model("said"), Model("ready")
    Q = IndexSet("Q", 3)
    r = Index("r", Q)
    for m in (written, ready):
        x = m.variable("x", X, upper=5)
        m.variable("idle", X)
        y = m.variable("y")
        m.maximize(total(x[i], over=i) - y)
        if m is written:
            a, b = m.param("a", matrix), m.param("b", sides)
            m.require("rows", Le(total(a[r, i] * x[i], over=i) - y, b[r]), forall=r)
        else:
            block = np.c_[matrix, -np.ones(3)]
            m.add_block("rows", block, columns=[x, y], upper=sides)
    written_form, ready_form = written.compile(), ready.compile()
    assert np.array_equal(written_form.A.toarray(), ready_form.A.toarray())
    assert np.array_equal(written_form.row_upper, ready_form.row_upper)
    assert ready_form.row_name(1) == "rows[row=1]"
    assert_same_value(solve(written, "highs"), solve(ready, "highs"))


@pytest.mark.parametrize("epsilon", [0, 0.0, 1, 1.5, np.float64(2), 50.0, 800])
def test_exp_of_a_number_is_a_privacy_factor(epsilon: float) -> None:
    forms = []
    for is_param in (False, True):
        X = IndexSet("X", 3)
        i, j, k = (Index(name, X) for name in "ijk")
        m = Model("randomised response")
        z = m.variable("z", X, X)
        wrong = m.param("wrong", 1 - np.eye(3))
        factor = exp(m.param("e", epsilon)) if is_param else exp(epsilon)
        m.minimize(total(wrong[i, k] * z[i, k], over=(i, k)) / 3)
        m.require("mass", Eq(total(z[i, k], over=k), 1), forall=i)
        m.require("dp", Le(z[i, k], factor * z[j, k]), forall=(i, j, k))
        forms.append(m.compile())
        assert str(epsilon) in str(m) or is_param
        optimum = 2 / (2 + np.exp(min(float(epsilon), 700)))
        assert m.solve("highs").objective == pytest.approx(optimum, abs=1e-8)
    for form in forms:
        log_ratio = form.family("dp").log_ratio
        assert log_ratio is not None
        assert np.allclose(log_ratio, epsilon)
    assert abs(forms[0].A - forms[1].A).max() == 0


@BOTH
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_rows_with_two_sides_equal_two_rows(seed: int, is_switched: bool) -> None:
    rng = np.random.default_rng(seed)
    X, Q = IndexSet("X", 3), IndexSet("Q", 4)
    i, q = Index("i", X), Index("q", Q)
    weights, lower = rng.integers(-3, 4, (4, 3)), rng.integers(-5, 3, 4)
    optima = []
    for is_range in (True, False):
        m = Model("ranges")
        x, h = m.variable("x", X, lower=-2, upper=3), m.variable("h", Q, kind="binary")
        w, low = m.param("w", weights), m.param("low", lower)
        expression = total(w[q, i] * x[i], over=i) + 1
        m.minimize(total(x[i], over=i) - 2 * total(h[q], over=q))
        if is_range:
            row = between(low[q], expression, low[q] + 2)
            m.require("rows", implies(h[q], row) if is_switched else row, forall=q)
            form = m.compile()
            if not is_switched:
                assert np.allclose(form.row_upper - form.row_lower, 2)
                assert "low[q] <= " in str(m)
                assert r"\leq" in m.latex()
        else:
            for name, row in (("low rows", Ge(expression, low[q])), ("high rows", Le(expression, low[q] + 2))):
                m.require(name, implies(h[q], row) if is_switched else row, forall=q)
        optima.append(solve(m, "highs"))
    assert_same_value(*optima)


def test_refuses_ranges_that_no_number_fits() -> None:
    m = Model("ranges")
    x = m.variable("x")
    with pytest.raises(ModelError, match=r"sides of .* must have no variables"):
        m.require("r", between(x, x + 1, 2))
    with pytest.raises(ModelError, match="contains no variable"):
        m.require("r", between(0, 1, 2))
    m.require("r", between(2, x, 1))
    with pytest.raises(ModelError, match=r"r: its lower side is above its upper one by 1\.0"):
        m.compile()
