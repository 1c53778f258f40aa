from __future__ import annotations

import importlib
import math
import sys
from fractions import Fraction

import numpy as np
import pytest

from privopt.errors import UsageError
from privopt.execution import resources
from privopt.numbers import TOTAL
from privopt.run.measure import remembering
from privopt_metric_dp.matrix.certify import certify
from privopt_metric_dp.matrix.privacy import MetricDP
from privopt_metric_dp.matrix.repair import repair, round_to_weights


def all_pairs(distance):
    first, second = np.triu_indices(len(distance), 1)
    return np.stack([first, second], axis=1), distance[first, second]


def exponential_weights(rng, records, outputs, epsilon, scale):
    """Return a certified mechanism on random points of the plane, with its pairs."""
    points = rng.integers(0, 4, size=(records, 2)).astype(float) * scale
    distance = np.hypot(*(points[:, None] - points[None]).T)
    sites = rng.integers(0, 4, size=(outputs, 2)).astype(float) * scale
    z = np.exp(-float(epsilon) / 2 * np.hypot(*(points[:, None] - sites[None]).transpose(2, 0, 1)))
    pairs, lengths = all_pairs(distance)
    return repair(z / z.sum(axis=1, keepdims=True), pairs, lengths, epsilon).weights.copy(), pairs, lengths


FAULTS = ("none", "at-the-limit", "beyond-the-limit", "zero", "row-sum", "swapped", "epsilon", "half-column")


def plant(fault, weights, pairs, lengths, epsilon, exp60, rng):
    """Return a change that may or may not break the claim; the checks must agree on which."""
    p = int(rng.integers(len(pairs)))
    i, j = pairs[p].tolist()
    k, other_output = rng.permutation(weights.shape[1])[:2].tolist()
    if fault in ("at-the-limit", "beyond-the-limit"):
        limit = min(math.floor(exp60(epsilon * Fraction(float(lengths[p]))) * int(weights[j, k])), TOTAL)
        remaining = int(weights[i, k]) + int(weights[i, other_output]) - limit - (fault == "beyond-the-limit")
        if remaining >= 0:
            weights[i, k], weights[i, other_output] = limit + (fault == "beyond-the-limit"), remaining
    elif fault == "zero":
        weights[i, other_output] += weights[i, k]
        weights[i, k] = 0
    elif fault == "row-sum":
        weights[i, k] += np.uint64(1)
    elif fault == "swapped":
        weights[[i, j]] = weights[[j, i]]
    elif fault == "epsilon":
        return epsilon * Fraction(int(rng.integers(900, 1000)), 1000)
    elif fault == "half-column":
        transfer = weights[i, k] // np.uint64(2)
        weights[i, k] -= transfer
        weights[i, other_output] += transfer
    return epsilon


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("scale", [1e-3, 0.03, 1.0, 14.0])
def test_agrees_with_an_independent_check(check, exp60, fault, scale):
    """512 cases: 60-digit exponentials and Fractions against the certificate, planted faults included."""
    rng = np.random.default_rng(FAULTS.index(fault) * 10 + int(scale))
    refusal_count = 0
    for _ in range(16):
        epsilon = Fraction(int(rng.integers(5, 20)), 10)
        weights, pairs, lengths = exponential_weights(
            rng, int(rng.integers(2, 5)), int(rng.integers(2, 4)), epsilon, scale
        )
        epsilon = plant(fault, weights, pairs, lengths, epsilon, exp60, rng)
        measurement = certify(weights, pairs, lengths, epsilon)
        is_kept, worst = check(weights, pairs, lengths, epsilon)
        assert measurement.holds == is_kept
        assert measurement.worst >= worst * (1 - 1e-14)
        if math.isfinite(worst) and worst > 0:
            assert measurement.worst <= worst * (1 + 1e-14)
        assert measurement.checked == len(pairs) * weights.shape[1]
        assert bool(measurement.failures or measurement.wrong_rows) == (not is_kept)
        if measurement.holds:
            assert Fraction(measurement.worst) <= epsilon * (1 + Fraction(1, 2**52))
        refusal_count += not is_kept
    assert (refusal_count == 0) if fault == "none" else True
    assert (refusal_count == 16) if fault == "row-sum" else True


def test_decides_at_the_last_unit(exp60):
    """Weights one unit on either side of exp(eps d): nothing between them, so only exact arithmetic can tell."""
    pairs, lengths = np.array([[0, 1]]), np.array([0.75])
    for epsilon in (Fraction("0.1"), Fraction(1), Fraction(7)):
        smaller = 2**55 + 12345
        limit = math.floor(exp60(epsilon * Fraction(3, 4)) * smaller)
        for excess, is_kept in ((0, True), (1, False)):
            large = limit + excess
            weights = np.array([[large, TOTAL - large], [smaller, TOTAL - smaller]], dtype=np.uint64)
            measurement = certify(weights, pairs, lengths, epsilon)
            assert measurement.holds is is_kept
            assert ", 0 by exact" not in measurement.arithmetic
            assert [(f.i, f.j, f.k) for f in measurement.failures] == ([] if is_kept else [(0, 1, 0)])


def test_zeros_and_distance_zero():
    half = TOTAL // 2
    weights = np.array([[half, half, 0], [half, half, 0], [half, 0, half]], dtype=np.uint64)
    epsilon = Fraction(1)
    assert certify(weights, np.array([[0, 1]]), np.array([0.0]), epsilon).holds
    assert certify(weights, np.array([[0, 1]]), np.array([1e-300]), epsilon).holds
    for pair in ([0, 2], [1, 2]):
        measurement = certify(weights, np.array([pair]), np.array([700.0]), epsilon)
        assert not measurement.holds
        assert measurement.worst == math.inf
        assert measurement.worst_pair == tuple(pair)
    unequal = np.array([[half + 1, half - 1], [half, half]], dtype=np.uint64)
    assert not certify(unequal, np.array([[0, 1]]), np.array([0.0]), epsilon).holds
    assert certify(unequal, np.array([[0, 1]]), np.array([1e-18]), epsilon).holds
    assert not certify(unequal, np.array([[0, 1]]), np.array([1e-19]), epsilon).holds


def test_finds_overflowing_row_sums():
    wrapped = np.array([[2**63, 2**63, 2**63]], dtype=np.uint64)  # 2**63 modulo 2**64
    no_pairs = np.empty((0, 2), dtype=np.int64)
    measurement = certify(wrapped, no_pairs, np.empty(0), Fraction(1))
    assert not measurement.holds
    assert measurement.wrong_rows == (0,)
    assert certify(np.array([[2**63]], dtype=np.uint64), no_pairs, np.empty(0), Fraction(1)).holds


def test_finds_wrong_epsilon_quickly():
    distance = np.abs(np.subtract.outer(np.arange(60.0), np.arange(60.0)))
    pairs, lengths = all_pairs(distance)
    z = np.exp(-distance)
    weights = repair(z / z.sum(axis=1, keepdims=True), pairs, lengths, Fraction(2)).weights
    measurement = certify(weights, pairs, lengths, Fraction(1, 10))
    assert not measurement.holds
    assert measurement.failed == len(pairs)
    assert 0 < len(measurement.failures) <= 8
    assert measurement.worst > 0.9


def test_result_is_independent_of_threads(monkeypatch):
    distance = np.abs(np.subtract.outer(np.arange(90.0), np.arange(90.0)))
    pairs, lengths = all_pairs(distance)
    z = np.exp(-distance)
    z /= z.sum(axis=1, keepdims=True)
    serial = repair(z, pairs, lengths, Fraction(2))
    assert not certify(serial.weights, pairs, lengths, Fraction(6, 5)).holds
    for module, name in (("certify", "MIN_RATIOS_PER_THREAD"), ("closure", "MIN_WORK_PER_THREAD")):
        monkeypatch.setattr(sys.modules[f"privopt_metric_dp.matrix.{module}"], name, 0)
    monkeypatch.setattr(resources, "allowed_threads", lambda: 2)
    threaded = repair(z, pairs, lengths, Fraction(2))
    assert (threaded.weights == serial.weights).all()
    assert threaded.measured == serial.measured
    assert certify(serial.weights, pairs, lengths, Fraction(6, 5)) == certify(
        threaded.weights, pairs, lengths, Fraction(6, 5)
    )


@pytest.mark.parametrize(
    ("pairs", "distances"),
    [([[0, 0]], [1.0]), ([[0, 2]], [1.0]), ([[0, 1]], [-1.0]), ([[0, 1]], [math.nan]), ([[0, 1]], [1.0, 2.0])],
)
def test_refuses_invalid_arguments(pairs, distances):
    weights = np.full((2, 2), TOTAL // 2, dtype=np.uint64)
    with pytest.raises(UsageError):
        certify(weights, np.array(pairs), np.array(distances), Fraction(1))
    with pytest.raises(UsageError):
        certify(weights.astype(float), np.array([[0, 1]]), np.array([1.0]), Fraction(1))


@pytest.mark.parametrize("columns", [1, 7, 8, 130])
def test_order_of_pairs_does_not_matter(columns, monkeypatch):
    module = importlib.import_module("privopt_metric_dp.matrix.certify")
    rng = np.random.default_rng(columns)
    weights = round_to_weights(rng.random((30, columns)) ** 8)
    pairs = np.argwhere(np.triu(np.ones((30, 30)), 1))
    pairs = pairs[rng.random(len(pairs)) < 0.7]
    distances = rng.random(len(pairs)) * 9
    reference = certify(weights, pairs, distances, Fraction(3))
    monkeypatch.setattr(module, "IN_CACHE", 4)
    assert certify(weights, pairs, distances, Fraction(3)) == reference


def test_only_identical_arrays_are_cached(monkeypatch):
    module = importlib.import_module("privopt_metric_dp.matrix.certify")
    weights, pairs, lengths = exponential_weights(np.random.default_rng(0), 9, 5, Fraction(1), 1.0)
    calls = []
    measure = module.max_ratios
    monkeypatch.setattr(module, "max_ratios", lambda *a: calls.append(1) or measure(*a))
    with remembering():
        first = certify(weights, pairs, lengths, Fraction(1))
        assert certify(weights.copy(), pairs.copy(), lengths.copy(), Fraction(1)) == first
        assert len(calls) == 1
        changed_weights = weights.copy()
        changed_weights[0, 0] += np.uint64(1)
        assert not certify(changed_weights, pairs, lengths, Fraction(1)).holds
        assert len(calls) == 2
        shorter = lengths * (1 - 2.0**-52)
        certify(weights, pairs, shorter, Fraction(1))
        assert not certify(weights, pairs, lengths, Fraction(1, 10)).holds
        assert len(calls) == 4
    certify(weights, pairs, lengths, Fraction(1))
    certify(weights, pairs, lengths, Fraction(1))
    assert len(calls) == 6  # outside everything is measured


def test_row_with_wrong_sum_is_named():
    """The worst ratio may be allowed, so it would not say what is wrong."""
    weights = np.full((2, 2), TOTAL // 2, dtype=np.uint64)
    weights[1, 0] += np.uint64(1)
    measured = certify(weights, np.array([[0, 1]]), np.array([1.0]), Fraction(1))
    notion = MetricDP(epsilon=Fraction(1), unit="per km", scope="all-pairs")
    certificate = notion.make_certificate(measured, weights, ["a", "b"], ["a", "b"])
    assert not certificate.holds
    assert certificate.worst < certificate.allowed
    assert certificate.failures == ("record b: the weights of its row do not sum to 2^63",)
