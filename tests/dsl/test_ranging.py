"""Ranges of costs and sides against solving again within, at and beyond their ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.dsl import IndexSet, Model
from privopt.errors import InfeasibleError, ModelError, UsageError


def random_model(seed: int, scale: float) -> tuple[Any, Any, Any]:
    """Return a bounded model with continuous random numbers, whose optimum is not degenerate."""
    rng = np.random.default_rng(seed)
    n, q = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    X, R = IndexSet("X", [f"x{k}" for k in range(n)]), IndexSet("R", q)
    m: Any = Model("ranging")
    x = m.variable("x", X, upper=rng.random(n) * 4 + 1)
    c, b = m.param("c", rng.normal(size=n) * scale, X), m.param("b", rng.random(q) * 4 + 0.5, R)
    A, is_minimum = rng.random((q, n)), bool(rng.integers(2))
    (m.minimize if is_minimum else m.maximize)((c * x).sum() + 1)
    m.require("rows", A @ x <= b)
    return m, c, b


def solve_changed(m: Any, param: Any, position: int, value: float) -> float | None:
    old = param.value
    changed = old.copy()
    changed[position] = value
    param.value = changed
    try:
        return float(m.solve("highs").objective)
    except InfeasibleError:
        return None
    finally:
        param.value = old


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 1e-3, 1e5]))
def test_ends_are_where_the_answer_changes(seed: int, scale: float) -> None:
    m, c, b = random_model(seed, scale)
    solution = m.solve("highs")
    costs, sides = solution.ranging("x"), solution.ranging("rows")
    assert costs.columns == ["X", "cost", "lower", "upper", "lower_objective", "upper_objective"]
    assert costs["cost"].to_list() == pytest.approx(c.value.tolist())
    x, duals, objective = solution.value("x"), solution.dual("rows"), solution.objective
    flip = 1 if m.sense == "min" else -1
    for param, table, rates, size in ((c, costs, x, scale), (b, sides, duals, 1.0)):
        for position, row in enumerate(table.to_dicts()):
            is_row = param is b
            if is_row and row["side"] is None:
                assert rates[position] == pytest.approx(0, abs=1e-9 * scale)
                continue
            current = row["side"] if is_row else row["cost"]
            assert row["lower"] <= current + 1e-9 * size
            assert row["upper"] >= current - 1e-9 * size
            for end, direction in (("lower", -1), ("upper", 1)):
                if not np.isfinite(row[end]):
                    continue
                predicted = objective + rates[position] * (row[end] - current)
                assert row[f"{end}_objective"] == pytest.approx(predicted, abs=1e-6 * scale)
                assert solve_changed(m, param, position, row[end]) == pytest.approx(predicted, abs=1e-6 * scale)
                # Beyond the end another basis is optimal, so that the prediction fails by the rate of the new one.
                beyond = row[end] + direction * size
                later = solve_changed(m, param, position, beyond)
                if later is not None:
                    missed = flip * (later - objective - rates[position] * (beyond - current))
                    assert (missed > 1e-7 * scale) if is_row else (missed < -1e-7 * scale)


def test_ranging_is_refused_by_name_elsewhere() -> None:
    m, _, _ = random_model(1, 1.0)
    with pytest.raises(UsageError, match=r"no ranging: cbc .* gives none here; highs gives it"):
        m.solve("cbc").ranging("x")
    with pytest.raises(ModelError, match="no family is called 'y'"):
        m.solve("highs").ranging("y")
    m.variable("n", kind="integer")
    with pytest.raises(UsageError, match=r"highs .*optimal linear programs"):
        m.solve("highs").ranging("x")
