"""The exponential mechanism's table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.errors import InputError
from privopt_metric_dp.solvers.exponential import exponential


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=2, max_size=8), st.floats(0.01, 100))
def test_rows_sum_to_one_and_keep_the_ratio(points: list[tuple[float, float]], epsilon: float) -> None:
    x = np.array(points)
    d = np.sqrt(((x[:, None] - x[None]) ** 2).sum(axis=2))
    z = exponential(d, epsilon)
    assert z.sum(axis=1) == pytest.approx(1)
    with np.errstate(divide="ignore"):
        logs = np.log(z)
    finite = np.isfinite(logs)[:, None] & np.isfinite(logs)[None] & (z > 1e-290)[:, None] & (z > 1e-290)[None]
    apart = np.where(finite, np.where(finite, logs[:, None], 0) - np.where(finite, logs[None], 0), 0)
    assert (apart <= epsilon * d[:, :, None] * (1 + 1e-9) + 1e-9).all()


def test_far_outputs_underflow_and_the_rest_stays_exact() -> None:
    z = exponential(np.array([[5000.0, 5001.0, 8000.0]]), 1.0)
    assert z[0, 2] == 0
    assert z[0, :2] == pytest.approx([1 / (1 + np.exp(-0.5)), 1 / (1 + np.exp(0.5))])


def test_outputs_out_of_reach_get_nothing() -> None:
    assert exponential(np.array([[0.0, np.inf]]), 1.0).tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize("table", [[[np.inf, np.inf]], [[np.nan, 1.0]], [[-1.0, 1.0]]])
def test_tables_that_are_no_distances(table: object) -> None:
    with pytest.raises(InputError, match="distance: row 0"):
        exponential(table, 1.0)  # type: ignore[arg-type]
