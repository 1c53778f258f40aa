from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare

from privopt.errors import UsageError
from privopt.numbers import TOTAL, draw
from privopt.numbers.sampling import draw_each


def test_a_million_draws_pass_a_chi_square():
    rng = np.random.default_rng(2)
    share = rng.dirichlet(np.full(40, 0.5))
    weights = np.floor(share * TOTAL).astype(np.uint64)
    weights[0] += np.uint64(TOTAL - sum(weights.tolist()))
    counts = np.bincount(draw(weights, 1_000_000), minlength=40)
    expected = weights / TOTAL * 1_000_000
    common = expected >= 5
    observed = np.append(counts[common], counts[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    keep = wanted > 0
    # one run in 1e6 fails by chance
    assert chisquare(observed[keep], wanted[keep] * observed.sum() / wanted.sum()).pvalue > 1e-6


def test_every_integer_goes_where_the_cumulated_weights_say():
    weights = np.array([3, 0, 5, TOTAL - 8], dtype=np.uint64)
    for uniform, index in ((0, 0), (2, 0), (3, 2), (7, 2), (8, 3), (TOTAL - 1, 3)):
        for spare in (0, 1):
            source = (2 * uniform + spare).to_bytes(8, "little")
            assert draw(weights, 1, source=lambda size, source=source: source[:size]).tolist() == [index]


def test_more_than_a_chunk_and_none_at_all():
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
def test_refuses_what_is_no_row(row):
    with pytest.raises(UsageError):
        draw(row, 1)


def test_draws_of_many_rows_are_those_of_each_row_in_its_place():
    rng = np.random.default_rng(5)
    weights = np.zeros((3, 4), dtype=np.uint64)
    for row in range(3):
        share = np.floor(rng.dirichlet(np.ones(4)) * 2**40).astype(np.uint64) << np.uint64(23)
        share[0] += np.uint64(TOTAL - sum(share.tolist()))
        weights[row] = share
    weights[1] = [0, 0, 0, TOTAL]
    rows = rng.integers(0, 3, 3_000)
    drawn = draw_each(weights, rows)
    assert (drawn[rows == 1] == 3).all()
    for row in (0, 2):
        counts = np.bincount(drawn[rows == row], minlength=4)
        assert chisquare(counts, weights[row] / TOTAL * counts.sum()).pvalue > 1e-6


def test_no_rows_are_no_draws():
    assert draw_each(np.zeros((1, 1), dtype=np.uint64), np.zeros(0, dtype=np.int64)).tolist() == []
