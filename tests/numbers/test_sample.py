from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from privopt.errors import UsageError
from privopt.numbers import TOTAL, draw
from privopt.numbers.sampling import CumulatedRows, make_source


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
        np.zeros(0, dtype=np.uint64),
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
    samples = CumulatedRows(weights).draw_each(rows)
    assert (samples[rows == 1] == 3).all()
    for row in (0, 2):
        counts = np.bincount(samples[rows == row], minlength=4)
        assert chisquare(counts, weights[row] / TOTAL * counts.sum()).pvalue > 1e-6


def test_no_rows_give_no_draws():
    assert CumulatedRows(np.zeros((1, 1), dtype=np.uint64)).draw_each(np.zeros(0, dtype=np.int64)).tolist() == []


def draw_by_definition(weights, rows, source):
    """Index k of a row has the integers from the sum of the weights before it up to, but without, its own sum."""
    integers = np.frombuffer(source(8 * len(rows)), dtype="<u8") >> np.uint64(1)
    indices = []
    for row, integer in zip(rows.tolist(), integers.tolist(), strict=True):
        total = 0
        for index, weight in enumerate(weights[row].tolist()):
            total += weight
            if integer < total:
                indices.append(index)
                break
    return indices


@given(
    records=st.integers(1, 6), outputs=st.integers(1, 40), seed=st.integers(0, 9999), skew=st.sampled_from([0.02, 1])
)
def test_kept_sums_draw_what_the_bytes_say(records, outputs, seed, skew):
    rng = np.random.default_rng(seed)
    weights = np.floor(rng.dirichlet(np.full(outputs, skew), size=records) * 2**52).astype(np.uint64) << np.uint64(11)
    for row in weights:
        largest = row.argmax()
        row[largest] = TOTAL - (sum(row.tolist()) - int(row[largest]))
    sampler, rows = CumulatedRows(weights), rng.integers(records, size=50)
    expected = draw_by_definition(weights, rows, make_source(seed))
    # the second time the sums are there
    for _ in range(2):
        assert sampler.draw_each(rows, source=make_source(seed)).tolist() == expected
    one_row = np.zeros(50, dtype=np.int64)
    expected = draw_by_definition(weights, one_row, make_source(seed))
    assert sampler.draw(0, 50, source=make_source(seed)).tolist() == expected
    assert draw(weights[0], 50, source=make_source(seed)).tolist() == expected


@given(outputs=st.integers(1, 300), seed=st.integers(0, 9999), skew=st.sampled_from([0.02, 1]))
def test_many_draws_of_a_row_are_looked_up_alike(outputs, seed, skew):
    weights = np.floor(np.random.default_rng(seed).dirichlet(np.full(outputs, skew)) * 2**52).astype(np.uint64)
    weights <<= np.uint64(11)
    weights[-1] += np.uint64(TOTAL - sum(weights.tolist()))
    words = np.frombuffer(make_source(seed)(8 * 20_000), dtype="<u8")
    expected = np.searchsorted(np.cumsum(weights, dtype=np.uint64), words >> np.uint64(1), side="right")
    assert (draw(weights, 20_000, source=make_source(seed)) == expected).all()


def test_more_than_a_block_of_rows():
    weights, rows = np.diag(np.full(7, TOTAL, dtype=np.uint64)), np.arange(40_000) % 7
    assert (CumulatedRows(weights).draw_each(rows) == rows).all()


@pytest.mark.parametrize("row", [[TOTAL - 1, 0, 0], [TOTAL, TOTAL, TOTAL], [2**64 - 1, TOTAL, 1]])
def test_refuses_a_faulty_row_among_others(row):
    sampler = CumulatedRows(np.array([[0, TOTAL, 0], row], dtype=np.uint64))
    assert sampler.draw_each(np.array([0, 0])).tolist() == [1, 1]
    with pytest.raises(UsageError, match=f"got {sum(row)}"):
        sampler.draw_each(np.array([0, 1]))
    with pytest.raises(UsageError):
        sampler.draw(1, 1)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.int32, np.uint64])
def test_numbers_of_any_integer_type_select_their_rows(kind):
    count = 100 if np.dtype(kind).itemsize == 1 else 300
    sampler = CumulatedRows(np.eye(count, dtype=np.uint64) * np.uint64(TOTAL))
    rows = np.arange(count)
    assert sampler.draw_each(rows.astype(kind)).tolist() == rows.tolist()
