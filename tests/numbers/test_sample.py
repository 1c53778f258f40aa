from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare

from privopt.errors import UsageError
from privopt.numbers import TOTAL, draw
from privopt.numbers.sampling import draw_each


def test_million_draws_pass_a_chi_square():
    rng = np.random.default_rng(2)
    probabilities = rng.dirichlet(np.full(40, 0.5))
    weights = np.floor(probabilities * TOTAL).astype(np.uint64)
    weights[0] += np.uint64(TOTAL - sum(weights.tolist()))
    counts = np.bincount(draw(weights, 1_000_000), minlength=40)
    expected = weights / TOTAL * 1_000_000
    common = expected >= 5
    observed = np.append(counts[common], counts[~common].sum())
    expected_counts = np.append(expected[common], expected[~common].sum())
    is_possible = expected_counts > 0
    # one run in 1e6 fails by chance
    assert (
        chisquare(observed[is_possible], expected_counts[is_possible] * observed.sum() / expected_counts.sum()).pvalue
        > 1e-6
    )


def test_integers_follow_the_cumulated_weights():
    weights = np.array([3, 0, 5, TOTAL - 8], dtype=np.uint64)
    for uniform, index in ((0, 0), (2, 0), (3, 2), (7, 2), (8, 3), (TOTAL - 1, 3)):
        for spare in (0, 1):
            source = (2 * uniform + spare).to_bytes(8, "little")
            assert draw(weights, 1, source=lambda size, source=source: source[:size]).tolist() == [index]


def test_more_than_a_chunk_and_none():
    certain = np.array([0, TOTAL, 0], dtype=np.uint64)
    assert (draw(certain, (1 << 20) + 3) == 1).all()
    assert draw(certain, 0).shape == (0,)


@pytest.mark.parametrize(
    "row",
    [
        np.array([TOTAL - 1], dtype=np.uint64),
        np.array([TOTAL, TOTAL, TOTAL], dtype=np.uint64),  # 2**63 modulo 2**64
        np.array([1.0]),
        np.array([[TOTAL]], dtype=np.uint64),
    ],
)
def test_refuses_invalid_rows(row):
    with pytest.raises(UsageError):
        draw(row, 1)


def test_draws_of_many_rows_match_single_rows():
    rng = np.random.default_rng(5)
    weights = np.zeros((3, 4), dtype=np.uint64)
    for row in range(3):
        row_weights = np.floor(rng.dirichlet(np.ones(4)) * 2**40).astype(np.uint64) << np.uint64(23)
        row_weights[0] += np.uint64(TOTAL - sum(row_weights.tolist()))
        weights[row] = row_weights
    weights[1] = [0, 0, 0, TOTAL]
    rows = rng.integers(0, 3, 3_000)
    samples = draw_each(weights, rows)
    assert (samples[rows == 1] == 3).all()
    for row in (0, 2):
        counts = np.bincount(samples[rows == row], minlength=4)
        assert chisquare(counts, weights[row] / TOTAL * counts.sum()).pvalue > 1e-6


def test_no_rows_give_no_draws():
    assert draw_each(np.zeros((1, 1), dtype=np.uint64), np.zeros(0, dtype=np.int64)).tolist() == []
