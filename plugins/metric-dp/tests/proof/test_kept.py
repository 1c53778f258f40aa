"""Multipliers that are left out or rounded cost what they may, and what stays proves what it says."""

from __future__ import annotations

import zipfile
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.numbers.exp_log_bounds import exp_bounds
from privopt_metric_dp.proof.lagrangian_bound import SparseMultipliers
from privopt_metric_dp.proof.multipliers import Multipliers
from privopt_metric_dp.proof.proof_file import PROOF
from privopt_metric_dp.proof.row_proof import Rows


def instance(seed: int):
    rng = np.random.default_rng(seed)
    n, outputs = rng.integers(2, 8, size=2).tolist()
    pairs = np.column_stack(np.triu_indices(n, 1)).astype(np.int64)
    pairs = pairs[rng.random(len(pairs)) < 0.7]
    cost = rng.normal(size=(n, outputs))
    both = np.abs(rng.normal(size=(2, len(pairs), outputs))) * 10.0 ** rng.uniform(-9, 0, (2, len(pairs), outputs))
    both[rng.random(both.shape) < 0.2] = rng.choice([0.0, -1.0, np.nan, np.inf])
    return cost, pairs, rng.uniform(0, 3, len(pairs)), Fraction(int(rng.integers(1, 40)), 10), both


def exactly(cost, kept: SparseMultipliers) -> Fraction:
    total = Fraction(0)
    g = [[Fraction(float(c)) for c in row] for row in cost]
    for k in range(cost.shape[1]):
        for m in range(int(kept.starts[k]), int(kept.starts[k + 1])):
            i, j = kept.pairs[kept.rows[m]].tolist()
            f = Fraction(float(kept.values[m]))
            g[i][k] += f
            g[j][k] -= f * Fraction(float(kept.growth[kept.rows[m]]))
    for row in g:
        total += min(row)
    return total


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1e-9, 1e-6, 1e-3, 0.1]))
@settings(max_examples=120)
def test_what_is_kept_proves_what_is_said_and_loses_no_more_than_spare(seed, spare):
    cost, pairs, lengths, epsilon, both = instance(seed)
    growth = exp_bounds(lengths, epsilon)[1]
    multipliers = Multipliers.whole(both[0], both[1])
    whole = SparseMultipliers.of(multipliers, pairs, growth, cost.shape)
    least = SparseMultipliers.of(multipliers, pairs, growth, cost.shape, np.full(len(cost), spare / len(cost)))
    for kept in (whole, least, least.only(np.ones(len(least.rows), dtype=bool))):
        exact = exactly(cost, kept)
        assert Fraction(kept.bound(cost)) <= exact
        assert float(exact) - kept.bound(cost) <= 1e-12 * (1 + abs(float(exact)) + float(kept.values.sum()) * 1e4)
        assert (np.diff(kept.rows.astype(int)) > 0)[np.setdiff1d(np.arange(len(kept.rows) - 1), kept.starts - 1)].all()
    assert len(least.rows) <= len(whole.rows)
    assert exactly(cost, least) >= exactly(cost, whole) - Fraction(spare)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_one_of_two_opposite_rows_is_kept_and_proves_no_less_than_both(seed):
    cost, pairs, lengths, epsilon, both = instance(seed)
    growth = exp_bounds(lengths, epsilon)[1]
    kept = SparseMultipliers.of(Multipliers.whole(*both), pairs, growth, cost.shape)
    for k in range(cost.shape[1]):
        ends = np.sort(kept.pairs[kept.rows[kept.starts[k] : kept.starts[k + 1]]], axis=1)
        assert len(np.unique(ends, axis=0)) == len(ends)
    counted = np.where((both > 0) & np.isfinite(both), both, 0.0)
    value = np.concatenate(counted, axis=0)
    k, row = np.nonzero(value.T)
    every = SparseMultipliers(
        pairs=np.concatenate([pairs, pairs[:, ::-1]]),
        growth=np.concatenate([growth, growth]),
        starts=np.searchsorted(k, np.arange(cost.shape[1] + 1)),
        rows=row.astype(np.uint32),
        values=value.T[k, row],
    )
    assert float(exactly(cost, kept) - exactly(cost, every)) >= -1e-12 * (1 + float(value.sum()) * 1e4)


def test_outputs_whose_sums_are_no_doubles_are_left_out():
    pairs, growth = np.array([[0, 1]]), np.array([2.0])
    huge = np.array([[1e308, 1.0]])
    cost = np.array([[1.0, 2.0], [3.0, 1.0]])
    kept = SparseMultipliers.of(Multipliers.whole(huge, np.zeros((1, 2))), pairs, growth, cost.shape)
    assert kept.bound(cost) == -np.inf
    tame, bound = kept.tame(cost)
    assert tame.starts.tolist() == [0, 0, 1]
    assert bound == tame.bound(cost) > -np.inf


def test_more_multipliers_than_there_is_room_for_are_not_gathered():
    cost, pairs, lengths, epsilon, both = instance(3)
    growth = exp_bounds(lengths, epsilon)[1]

    def gathered(**most):
        return SparseMultipliers.of(Multipliers.whole(both[0], both[1]), pairs, growth, cost.shape, **most).rows

    many = len(gathered())
    assert len(gathered(max_multipliers=many)) == many
    with pytest.raises(MemoryError):
        gathered(max_multipliers=many - 1)


@pytest.mark.parametrize("equal", [True, False])
def test_values_are_deflated_where_the_file_does_not_unpack_to_many_times_its_size(tmp_path, equal):
    rng, pairs, outputs = np.random.default_rng(0), 500, 200
    shares = np.full(pairs * outputs, 0.5) if equal else rng.lognormal(size=pairs * outputs)
    kept = SparseMultipliers(
        pairs=np.column_stack([np.arange(pairs), np.arange(pairs) + 1]),
        growth=np.ones(pairs),
        starts=np.arange(0, pairs * outputs + 1, pairs),
        rows=np.tile(np.arange(pairs, dtype=np.uint32), outputs),
        values=shares,
    )
    proof = Rows.round_to_bound(kept, -1e9, np.zeros((pairs + 1, outputs)), 0.0)
    assert not (proof.values.view(np.uint32) & 127).any()
    assert np.allclose(proof.values, shares, rtol=2.0**-16, atol=0)
    proof.write(tmp_path)
    with zipfile.ZipFile(tmp_path / PROOF) as archive:
        values = archive.getinfo("values.npy")
        assert (values.compress_type == zipfile.ZIP_STORED) is equal
        assert equal or values.compress_size < 0.9 * values.file_size
        unpacked = sum(member.file_size for member in archive.infolist())
    assert unpacked <= 8 * (tmp_path / PROOF).stat().st_size
