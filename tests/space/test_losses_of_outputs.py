"""Distance loss and travel cost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.errors import InputError
from privopt_metric_dp.problem.travel_cost import normalised, travel_cost


def definition(a: np.ndarray, b: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.asarray((np.abs(a[:, None] - b[None]) * (weights / weights.sum())).sum(axis=2))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_travel_cost_is_its_definition(n: int, k: int, targets: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b, weights = rng.uniform(0, 9, (n, targets)), rng.uniform(0, 9, (k, targets)), rng.uniform(0.1, 2, targets)
    assert travel_cost(a, b, weights) == pytest.approx(definition(a, b, weights), rel=1e-12)
    own = travel_cost(a, None, weights)
    assert own == pytest.approx(definition(a, a, weights), rel=1e-12, abs=1e-14)
    assert (own == own.T).all()
    assert (np.diagonal(own) == 0).all()
    assert (travel_cost(a, a, weights) == own).all()


def test_many_targets_go_by_tiles() -> None:
    rng = np.random.default_rng(0)
    a, weights = rng.uniform(0, 9, (40, 1300)), rng.uniform(0, 1, 1300)
    np.testing.assert_allclose(
        travel_cost(a, a[::-1], weights), definition(a, a[::-1], weights), rtol=1e-12, atol=1e-12
    )


def test_targets_that_do_not_count_may_be_out_of_reach() -> None:
    a = np.array([[1.0, np.inf], [3.0, 2.0]])
    assert travel_cost(a, None, [2.0, 0.0])[0, 1] == 2.0
    with pytest.raises(InputError, match="record 0, target 1"):
        travel_cost(a, None, [2.0, 1.0])
    with pytest.raises(InputError, match="output 0, target 1"):
        travel_cost(a[1:], a[:1], [2.0, 1.0])


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [1.0, -1.0], [1.0, np.nan], [1.0, np.inf]])
def test_weights_that_are_none(weights: list[float]) -> None:
    with pytest.raises(InputError, match="targets"):
        normalised(weights)


def test_weights_however_large_or_small_add_up() -> None:
    assert normalised([1e308, 1e308, 1e308]).tolist() == pytest.approx([1 / 3] * 3)
    assert normalised([5e-324, 5e-324]).tolist() == [0.5, 0.5]


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(InputError, match="one column a target"):
        travel_cost(np.zeros((3, 2)), None, [1.0])
