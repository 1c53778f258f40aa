from __future__ import annotations

import os
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.errors import UsageError
from privopt_metric_dp.proof.lagrangian_bound import Multipliers, lower_bound

#: A nightly run sets PRIVOPT_EXAMPLES=10000.
EXAMPLES = int(os.environ.get("PRIVOPT_EXAMPLES", "60"))


def small_instance(seed, largest=4):
    rng = np.random.default_rng(seed)
    records, outputs = rng.integers(1, largest + 1, size=2).tolist()
    points = rng.integers(0, 4, size=(records, 2)).astype(float)
    distance = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
    first, second = np.triu_indices(records, 1)
    epsilon = Fraction(int(rng.choice([1, 10, 100, 1000, 8000])), 1000)
    cost = rng.random((records, outputs)) / records
    return cost, np.stack([first, second], axis=1), distance[first, second], epsilon, rng


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=EXAMPLES)
def test_exact_multipliers_give_the_optimum(optimum, seed):
    cost, pairs, lengths, epsilon, _ = small_instance(seed)
    best, _, forward, backward = optimum(cost, pairs, lengths, epsilon)
    bound = lower_bound(cost, pairs, lengths, epsilon, Multipliers.from_arrays(forward, backward))
    assert Fraction(bound) <= best
    assert bound >= float(best) * (1 - 1e-9) - 1e-12


@given(st.integers(0, 2**32 - 1), st.sampled_from(["noise", "random", "huge", "negative", "nan", "mixed"]))
@settings(max_examples=EXAMPLES)
def test_multipliers_never_exceed_the_optimum(optimum, seed, kind):
    cost, pairs, lengths, epsilon, rng = small_instance(seed)
    best, _, forward, backward = optimum(cost, pairs, lengths, epsilon)
    multiplier_arrays = np.stack([forward, backward])
    wild = rng.normal(size=multiplier_arrays.shape) * 10.0 ** rng.uniform(-12, 3, size=multiplier_arrays.shape)
    if kind == "noise":
        multiplier_arrays = multiplier_arrays * (
            1 + 1e-6 * rng.normal(size=multiplier_arrays.shape)
        ) + 1e-9 * rng.normal(size=multiplier_arrays.shape)
    elif kind == "random":
        multiplier_arrays = np.abs(wild)
    elif kind == "huge":
        multiplier_arrays = np.abs(wild) * 1e300
    elif kind == "negative":
        multiplier_arrays = -np.abs(wild)
    elif kind == "nan":
        multiplier_arrays[rng.random(multiplier_arrays.shape) < 0.5] = np.nan
    else:
        multiplier_arrays = np.where(
            rng.random(multiplier_arrays.shape) < 0.5,
            multiplier_arrays,
            rng.choice([np.inf, -np.inf, 1e308, -1e308, 0.0], multiplier_arrays.shape),
        )
    bound = lower_bound(
        cost, pairs, lengths, epsilon, Multipliers.from_arrays(multiplier_arrays[0], multiplier_arrays[1])
    )
    assert Fraction(bound) <= best
    assert np.isfinite(bound)


def test_no_pairs_and_omitted_columns():
    cost = np.array([[1.0, 2.0], [4.0, 3.0]])
    no_pairs = np.empty((0, 2), dtype=np.int64)
    bound = lower_bound(cost, no_pairs, np.empty(0), Fraction(1), Multipliers.zero())
    assert bound == 4  # sums that doubles hold are not lowered
    assert lower_bound(np.zeros((2, 2)), no_pairs, np.empty(0), Fraction(1), Multipliers.zero()) == 0.0
    tenths = lower_bound(np.full((10, 1), 0.1), no_pairs, np.empty(0), Fraction(1), Multipliers.zero())
    assert Fraction(tenths) <= 10 * Fraction(0.1)


def test_bound_is_for_the_stated_epsilon():
    """Multipliers of a tighter problem must not carry its higher optimum over."""
    cost = np.array([[0.0, 1.0], [1.0, 0.0]]) / 2
    pairs, lengths = np.array([[0, 1]]), np.array([1.0])
    tight = 1 / (1 + np.exp(0.5)) / 2
    multipliers = Multipliers.from_arrays(np.array([[tight, 0.0]]), np.array([[0.0, tight]]))
    assert lower_bound(cost, pairs, lengths, Fraction(1, 2), multipliers) > 0.377
    assert lower_bound(cost, pairs, lengths, Fraction(1), multipliers) <= 1 / (1 + np.e)


def test_ignores_rows_beyond_the_weights():
    cost = np.eye(2)
    multipliers = Multipliers.from_arrays(np.ones((1, 2)), np.ones((1, 2)))
    assert lower_bound(cost, np.array([[0, 1]]), np.array([800.0]), Fraction(1), multipliers) <= 0


def test_refusals():
    no_pairs = np.empty((0, 2), dtype=np.int64)
    with pytest.raises(UsageError):
        lower_bound(np.array([[np.nan]]), no_pairs, np.empty(0), Fraction(1), Multipliers.zero())
    with pytest.raises(UsageError):
        Multipliers.from_arrays(np.zeros((2, 2)), np.zeros((1, 2)))
    for shape in ((2, 2), (1, 3)):
        invalid_multipliers = Multipliers.from_arrays(np.ones(shape), np.zeros(shape))
        with pytest.raises(UsageError):
            lower_bound(np.eye(2), np.array([[0, 1]]), np.ones(1), Fraction(1), invalid_multipliers)
