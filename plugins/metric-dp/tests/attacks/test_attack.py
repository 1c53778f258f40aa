from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from privopt.errors import UsageError
from privopt.numbers import draw_laplace
from privopt.numbers.binomial import clopper_pearson, epsilon_lower
from privopt.run.attack_channel import bayes_error, entropy_bits
from privopt_metric_dp.attacks.matrix_figures import (
    achieved_epsilon,
    count_violations,
    pair_blocks,
)


def exponential(records=7, epsilon=1.0, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.random((records, 2)) * 3
    distance = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
    z = np.exp(-epsilon * distance / 2)
    return z / z.sum(axis=1, keepdims=True), distance


def blocks(distance, block=5):
    return pair_blocks(len(distance), lambda i, j: distance[i, j], block=block)


@given(st.integers(1, 30), st.integers(1, 200))
def test_blocks_cover_every_pair_once(records, block):
    listed_pairs = [
        tuple(pair) for pairs, _ in pair_blocks(records, lambda i, j: j - i, block=block) for pair in pairs.tolist()
    ]
    assert listed_pairs == [(i, j) for i in range(records) for j in range(i + 1, records)]


def test_achieved_epsilon_matches_definition():
    z, distance = exponential()
    brute = max(
        abs(math.log(z[i, k] / z[j, k])) / distance[i, j]
        for i in range(7)
        for j in range(7)
        for k in range(7)
        if i != j
    )
    assert achieved_epsilon(z, blocks(distance)) == pytest.approx(brute, rel=1e-12)
    assert achieved_epsilon(z, blocks(distance, 10**6)) == pytest.approx(brute, rel=1e-12)
    zero = z.copy()
    zero[2, 3] = 0
    assert achieved_epsilon(zero, blocks(distance)) == math.inf
    zero[:, 3] = 0
    assert math.isfinite(achieved_epsilon(zero, blocks(distance)))
    zero_distance = distance.copy()
    zero_distance[0, 1] = zero_distance[1, 0] = 0
    assert achieved_epsilon(z, blocks(zero_distance)) == math.inf
    z[1] = z[0]
    assert math.isfinite(achieved_epsilon(z, blocks(zero_distance)))


def test_violations_match_definition():
    z, distance = exponential(epsilon=2.0)
    for epsilon in (0.2, 0.6, 3.0):
        excess = np.array(
            [
                z[i, k] - math.exp(epsilon * distance[i, j]) * z[j, k]
                for i in range(7)
                for j in range(7)
                for k in range(7)
                if i != j
            ]
        )
        violations = count_violations(z, blocks(distance), epsilon)
        assert violations.checked == excess.size
        assert violations.violated == (excess > 1e-15).sum()
        assert violations.ratio == pytest.approx((excess > 1e-15).mean())
        assert violations.error == pytest.approx(max(0.0, excess.max()), abs=1e-15)
    assert count_violations(z, [], 1.0).ratio == 0.0


def test_bayes_error_and_entropy_match_definition():
    z, _ = exponential()
    prior = np.arange(1.0, 8) / 28
    right = sum(max(prior[i] * z[i, k] for i in range(7)) for k in range(7))
    assert bayes_error(z, prior) == pytest.approx(1 - right)
    assert bayes_error(np.eye(4), np.full(4, 0.25)) == 0.0
    assert bayes_error(np.full((4, 2), 0.5), np.full(4, 0.25)) == pytest.approx(0.75)
    assert entropy_bits(np.eye(8), np.full(8, 1 / 8)) == pytest.approx(3.0)
    assert entropy_bits(np.array([[1.0, 0.0]]), np.ones(1)) == 0.0


def test_probability_bounds_are_clopper_pearson():
    for hits, n in ((0, 9), (3, 9), (9, 9), (700, 1000)):
        reference = binomtest(hits, n).proportion_ci(0.98, method="exact")
        assert clopper_pearson(hits, n, 0.01) == pytest.approx((reference.low, reference.high), abs=1e-12)


def randomised_response(rng, truth, truth_probability, count):
    """Answers out of 4: the truth with probability ``keep``, else one of the others."""
    other_answers = (truth + rng.integers(1, 4, size=count)) % 4
    return np.where(rng.random(count) < truth_probability, truth, other_answers)


@pytest.mark.parametrize("runs", [300, pytest.param(1000, marks=pytest.mark.slow)])
def test_correct_mechanism_passes_many_runs(runs):
    """At confidence 1 - 1e-8 a thousand runs expect 1e-5 failures."""
    rng = np.random.default_rng(12)
    epsilon = 1.0
    truth_probability = math.exp(epsilon) / (math.exp(epsilon) + 3)
    confidence = 1 - 1e-8
    for run in range(runs):
        if run % 2:
            a, b = (randomised_response(rng, t, truth_probability, 400) for t in (0, 1))
        else:
            source = rng.bytes
            a, b = (draw_laplace(400, Fraction(1), source=source) + shift for shift in (0, 1))
        assert epsilon_lower(a, b, confidence) <= epsilon


@pytest.mark.parametrize("confidence", [0.5, 0.9])
def test_bound_holds_at_its_confidence(confidence):
    rng = np.random.default_rng(3)
    miss_count = sum(
        epsilon_lower(randomised_response(rng, 0, 0.5, 300), randomised_response(rng, 1, 0.5, 300), confidence)
        > math.log(3)
        for _ in range(300)
    )
    assert miss_count <= 300 * (1 - confidence) + 4 * math.sqrt(300 * confidence * (1 - confidence))


def test_finds_wrong_constant():
    """Randomised response that claims ln 2 and spends ln 3 (keep 1/2 of 4 answers: ratio 3)."""
    rng = np.random.default_rng(1)
    a, b = (randomised_response(rng, t, 0.5, 20_000) for t in (0, 1))
    assert math.log(2) < epsilon_lower(a, b, 1 - 1e-8) <= math.log(3)


@pytest.mark.parametrize("reciprocal", [Fraction(1), Fraction(1, 4)])
def test_finds_half_the_noise(reciprocal):
    claimed_epsilon = float(reciprocal)
    source = np.random.default_rng(5).bytes
    count = 200_000
    a, b = (draw_laplace(count, 2 * reciprocal, source=source) + shift for shift in (0, 1))
    assert claimed_epsilon < epsilon_lower(a, b, 1 - 1e-8) <= 2 * claimed_epsilon
    a, b = (draw_laplace(count, reciprocal, source=source) + shift for shift in (0, 1))
    assert 0.5 * claimed_epsilon < epsilon_lower(a, b, 1 - 1e-8) <= claimed_epsilon


def test_real_draws_and_disjoint_draws():
    rng = np.random.default_rng(6)
    a, b = rng.laplace(size=20_000), rng.laplace(size=20_000) + 1.0
    assert 0.8 < epsilon_lower(a, b, 0.999) <= 1.0
    assert epsilon_lower(np.zeros(1000), np.ones(1000), 0.99) > 4
    assert epsilon_lower(np.zeros(1000), np.zeros(1000), 0.99) == 0.0
    assert epsilon_lower(np.arange(8), np.arange(8), 0.99) == 0.0


def test_refusals():
    with pytest.raises(UsageError):
        epsilon_lower([1, 2], [1, 2, 3, 4])
    with pytest.raises(UsageError):
        epsilon_lower(range(8), range(8), 1.0)
