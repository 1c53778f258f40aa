from __future__ import annotations

import os
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from privopt.errors import CertificationError, SolverError, UsageError
from privopt.numbers import TOTAL
from privopt_metric_dp.matrix.certify import certify
from privopt_metric_dp.matrix.repair import repair

#: A nightly run sets PRIVOPT_EXAMPLES=10000.
EXAMPLES = int(os.environ.get("PRIVOPT_EXAMPLES", "60"))


@st.composite
def metrics(draw, records):
    """Distances on integer grids, and the required pairs: path, clique, radius (may be disconnected), clusters."""
    kind = draw(st.sampled_from(["plane", "path", "clusters", "near-duplicates", "equidistant"]))
    if kind == "equidistant":
        distance = 1.0 - np.eye(records)
    else:
        coordinate = st.integers(0, 5)
        points = np.array(
            [[draw(coordinate), 0 if kind == "path" else draw(coordinate)] for _ in range(records)], dtype=float
        )
        if kind == "clusters":
            points[::2] += 40.0
        if kind == "near-duplicates":
            points[1:] = points[:-1] + np.where(np.arange(records - 1) % 2, 1.0, 10.0 ** -draw(coordinate))[:, None]
        distance = np.abs(points[:, None] - points[None]).sum(axis=2)
    first, second = np.triu_indices(records, 1)
    if draw(st.booleans()):
        radius = draw(st.integers(0, 10))
        is_near = distance[first, second] <= radius
        first, second = first[is_near], second[is_near]
    return distance, np.stack([first, second], axis=1), distance[first, second]


@st.composite
def problems(draw, largest=4):
    """Return a metric scaled so that the largest eps d lies between 1e-3 and 60, a prior, and a cost."""
    records = draw(st.integers(1, largest))
    distance, pairs, lengths = draw(metrics(records))
    longest = draw(
        st.sampled_from([Fraction(1, 1000), Fraction(1, 10), Fraction(1), Fraction(5), Fraction(30), Fraction(60)])
    )
    epsilon = longest / Fraction(float(distance.max())) if distance.max() else longest
    epsilon = Fraction(epsilon).limit_denominator(10**9)
    prior = np.array([draw(st.integers(0, 5)) for _ in range(records)], dtype=float)
    assume(prior.sum() > 0)
    if draw(st.booleans()):
        cost = distance
    else:
        outputs = draw(st.integers(1, largest))
        cost = np.array([[draw(st.integers(0, 9)) for _ in range(outputs)] for _ in range(records)], dtype=float)
    return distance, pairs, lengths, epsilon, cost * (prior / prior.sum())[:, None], longest


@given(problems())
@settings(max_examples=EXAMPLES)
def test_optimal_input_stays_optimal(optimum, check, problem):
    distance, pairs, lengths, epsilon, loss, longest = problem
    best, z, _, _ = optimum(loss, pairs, lengths, epsilon)
    repair_result = repair(z, pairs, lengths, epsilon, loss=loss)
    assert all(sum(row) == TOTAL for row in repair_result.weights.tolist())
    assert certify(repair_result.weights, pairs, lengths, epsilon).holds
    assert check(repair_result.weights, pairs, lengths, epsilon)[0]
    repaired_loss = (
        sum(Fraction(float(c)) * int(w) for c, w in zip(loss.ravel(), repair_result.weights.ravel(), strict=True))
        / TOTAL
    )
    assert repaired_loss >= best * (1 - Fraction(1, 10**30))
    # 2**-63 is the grid: a dozen records and outputs can round away a few units each
    allowance = 1e-16 * loss.max() if longest <= 30 else 1e-12 * max(loss.max(), distance.max())
    assert repaired_loss <= best * (1 + Fraction(1, 10**5)) + Fraction(allowance)
    assert abs(repair_result.loss_after - float(repaired_loss)) <= 1e-12 * max(1.0, loss.max())


@given(problems(largest=6), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1e-9, 1e-6]))
@settings(max_examples=EXAMPLES)
def test_repairs_any_solver_answer(problem, seed, noise):
    distance, pairs, lengths, epsilon, loss, _ = problem
    rng = np.random.default_rng(seed)
    z = np.exp(-float(epsilon) * np.abs(rng.normal(size=loss.shape)) * (distance.max() or 1.0))
    z /= z.sum(axis=1, keepdims=True)
    z += noise * rng.normal(size=z.shape)
    z[rng.random(z.shape) < 0.3] = 0.0
    z[rng.random(z.shape) < 0.2] = -1e-9
    repair_result = repair(z, pairs, lengths, epsilon, loss=loss)
    assert repair_result.measured.holds
    assert repair_result.weights.dtype == np.uint64
    assert not repair_result.weights.flags.writeable
    assert all(sum(row) == TOTAL for row in repair_result.weights.tolist())
    assert certify(repair_result.weights, pairs, lengths, epsilon).holds


def grid(side_cells, spacing=1.0):
    points = np.array([(a, b) for a in range(side_cells) for b in range(side_cells)], dtype=float) * spacing
    distance = np.hypot(*(points[:, None] - points[None]).T)
    first, second = np.triu_indices(len(points), 1)
    return distance, np.stack([first, second], axis=1), distance[first, second]


def star(distance, epsilon):
    """Return the star mechanism: columns exp(-eps D) weighted so that rows sum to 1."""
    kernel = np.exp(-epsilon * distance)
    return kernel * np.linalg.solve(kernel, np.ones(len(kernel)))


@pytest.mark.parametrize("epsilon", ["0.7", "1.5", "5", "9"])
@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_price_on_a_grid_is_small(epsilon, noise):
    distance, pairs, lengths = grid(8)
    exact = np.maximum(star(distance, float(epsilon)), 0)
    rng = np.random.default_rng(0)
    loss = distance / len(distance)
    z = exact + noise * rng.normal(size=exact.shape) * (rng.random(exact.shape) < 0.1)
    repair_result = repair(z, pairs, lengths, Fraction(epsilon), loss=loss)
    assert repair_result.tau <= 1e-8
    reference = (loss * exact).sum()
    assert repair_result.loss_after <= reference * (1 + 1e-7) + 20 * noise * loss.sum() * 0.1


def test_components_are_independent():
    distance, pairs, lengths = grid(3)
    z = star(distance, 1.0)
    single_weights = repair(z, pairs, lengths, Fraction(1)).weights
    combined = np.zeros((19, 18))
    combined[:9, :9], combined[9:18, 9:] = z, z
    combined[18, 4] = 1.0  # nobody is required to look like it
    weights = repair(combined, np.concatenate([pairs, pairs + 9]), np.tile(lengths, 2), Fraction(1)).weights
    for part in (weights[:9, :9], weights[9:18, 9:]):
        np.testing.assert_allclose(part / TOTAL, single_weights / TOTAL, rtol=1e-7)
    assert weights[18, 4] == TOTAL
    assert (weights[:9, 9:] == 0).all()  # columns that nobody uses stay unused


def test_near_records_share_a_row():
    pairs = np.array([[0, 1], [0, 2], [1, 2]])
    lengths = np.array([1e-8, 1.0, 1.0])
    z = np.array([[0.6, 0.4], [0.5, 0.5], [0.3, 0.7]])
    repair_result = repair(z, pairs, lengths, Fraction(1))
    assert repair_result.merged == 1
    assert (repair_result.weights[0] == repair_result.weights[1]).all()
    count = 2000
    chain = np.stack([np.arange(count - 1), np.arange(1, count)], axis=1)
    steps = np.full(count - 1, 9e-7)
    shares = np.linspace(0.49, 0.51, count)
    repair_result = repair(np.stack([shares, 1 - shares], axis=1), chain, steps, Fraction(100))
    assert repair_result.merged == 0  # 9e-5 apart
    repair_result = repair(np.stack([shares, 1 - shares], axis=1), chain, steps, Fraction(1))
    assert repair_result.merged == 0
    assert repair_result.weights[0, 0] < repair_result.weights[-1, 0]


def test_distance_zero_merges_records():
    pairs = np.array([[0, 1], [1, 2], [0, 2]])
    lengths = np.array([0.0, 0.0, 3.0])
    repair_result = repair(np.eye(3), pairs, lengths, Fraction(2))
    assert repair_result.merged == 2
    assert (repair_result.weights == repair_result.weights[0]).all()


def test_distances_that_are_no_metric():
    pairs = np.array([[0, 1], [0, 2], [1, 2]])
    repair_result = repair(np.eye(3), pairs, np.array([1.0, 50.0, 1.0]), Fraction(1))
    assert repair_result.measured.holds


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (4, 3)])
def test_small_shapes_and_no_pairs(shape):
    no_pairs = np.empty((0, 2), dtype=np.int64)
    rng = np.random.default_rng(1)
    repair_result = repair(rng.random(shape), no_pairs, np.empty(0), Fraction(1))
    assert repair_result.measured.holds
    assert repair_result.measured.checked == 0
    if shape[1] == 1:
        assert (repair_result.weights == TOTAL).all()


def test_rows_without_mass():
    pairs, lengths = np.array([[0, 1]]), np.array([1.0])
    z = np.zeros((3, 2))
    z[0, 1] = 1.0
    repair_result = repair(z, pairs, lengths, Fraction(1))
    assert repair_result.measured.holds
    assert repair_result.weights[2].tolist() == [TOTAL // 2, TOTAL // 2]


def test_refusals():
    pairs, lengths = np.array([[0, 1]]), np.array([1.0])
    with pytest.raises(SolverError):
        repair(np.array([[np.nan, 1], [0, 1]]), pairs, lengths, Fraction(1))
    with pytest.raises(UsageError):
        repair(np.eye(2), pairs, lengths, Fraction(0))
    with pytest.raises(UsageError):
        repair(np.eye(2), pairs, lengths, Fraction(1), loss=np.eye(3))
    with pytest.raises(UsageError):
        repair(np.empty((0, 0)), np.empty((0, 2)), np.empty(0), Fraction(1))


def test_missing_certificate_is_an_error(monkeypatch):
    from privopt_metric_dp.matrix import repair as module

    original_certify, calls = module.certify, []

    def refuse(*arguments, **options):
        from attrs import evolve

        calls.append(1)
        return evolve(original_certify(*arguments, **options), holds=False)

    monkeypatch.setattr(module, "certify", refuse)
    with pytest.raises(CertificationError):
        repair(np.eye(2), np.array([[0, 1]]), np.array([1.0]), Fraction(1))
    assert len(calls) > 5  # every merging was tried, each at every tau
