"""Multipliers that are left out or rounded cost what they may, and what stays proves what it says."""

from __future__ import annotations

import zipfile
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.numbers.exp_log_bounds import exp_bounds
from privopt_metric_dp.proof.lagrangian_bound import Multipliers, SparseMultipliers
from privopt_metric_dp.proof.proof_file import PROOF
from privopt_metric_dp.proof.row_proof import Rows


def instance(seed: int):
    rng = np.random.default_rng(seed)
    n, outputs = rng.integers(2, 8, size=2).tolist()
    pairs = np.column_stack(np.triu_indices(n, 1)).astype(np.int64)
    pairs = pairs[rng.random(len(pairs)) < 0.7]
    cost = rng.normal(size=(n, outputs))
    multiplier_arrays = np.abs(rng.normal(size=(2, len(pairs), outputs))) * 10.0 ** rng.uniform(
        -9, 0, (2, len(pairs), outputs)
    )
    multiplier_arrays[rng.random(multiplier_arrays.shape) < 0.2] = rng.choice([0.0, -1.0, np.nan, np.inf])
    return cost, pairs, rng.uniform(0, 3, len(pairs)), Fraction(int(rng.integers(1, 40)), 10), multiplier_arrays


def exact_bound(cost, multipliers: SparseMultipliers) -> Fraction:
    total = Fraction(0)
    g = [[Fraction(float(c)) for c in row] for row in cost]
    for k in range(cost.shape[1]):
        for m in range(int(multipliers.starts[k]), int(multipliers.starts[k + 1])):
            i, j = multipliers.pairs[multipliers.rows[m]].tolist()
            f = Fraction(float(multipliers.values[m]))
            g[i][k] += f
            g[j][k] -= f * Fraction(float(multipliers.growth[multipliers.rows[m]]))
    for row in g:
        total += min(row)
    return total


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1e-9, 1e-6, 1e-3, 0.1]))
@settings(max_examples=120)
def test_sparse_multipliers_prove_their_bound(seed, spare):
    cost, pairs, lengths, epsilon, multiplier_arrays = instance(seed)
    growth = exp_bounds(lengths, epsilon)[1]
    multipliers = Multipliers.from_arrays(multiplier_arrays[0], multiplier_arrays[1])
    complete = SparseMultipliers.of(multipliers, pairs, growth, cost.shape)
    reduced = SparseMultipliers.of(multipliers, pairs, growth, cost.shape, np.full(len(cost), spare / len(cost)))
    for sparse in (complete, reduced, reduced.only(np.ones(len(reduced.rows), dtype=bool))):
        exact = exact_bound(cost, sparse)
        assert Fraction(sparse.bound(cost)) <= exact
        assert float(exact) - sparse.bound(cost) <= 1e-12 * (1 + abs(float(exact)) + float(sparse.values.sum()) * 1e4)
        assert (np.diff(sparse.rows.astype(int)) > 0)[
            np.setdiff1d(np.arange(len(sparse.rows) - 1), sparse.starts - 1)
        ].all()
    assert len(reduced.rows) <= len(complete.rows)
    assert exact_bound(cost, reduced) >= exact_bound(cost, complete) - Fraction(spare)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_keeps_one_of_two_opposite_rows(seed):
    cost, pairs, lengths, epsilon, multiplier_arrays = instance(seed)
    growth = exp_bounds(lengths, epsilon)[1]
    sparse = SparseMultipliers.of(Multipliers.from_arrays(*multiplier_arrays), pairs, growth, cost.shape)
    for k in range(cost.shape[1]):
        row_pairs = np.sort(sparse.pairs[sparse.rows[sparse.starts[k] : sparse.starts[k + 1]]], axis=1)
        assert len(np.unique(row_pairs, axis=0)) == len(row_pairs)
    positive_parts = np.where((multiplier_arrays > 0) & np.isfinite(multiplier_arrays), multiplier_arrays, 0.0)
    value = np.concatenate(positive_parts, axis=0)
    k, row = np.nonzero(value.T)
    all_rows = SparseMultipliers(
        pairs=np.concatenate([pairs, pairs[:, ::-1]]),
        growth=np.concatenate([growth, growth]),
        starts=np.searchsorted(k, np.arange(cost.shape[1] + 1)),
        rows=row.astype(np.uint32),
        values=value.T[k, row],
    )
    assert float(exact_bound(cost, sparse) - exact_bound(cost, all_rows)) >= -1e-12 * (1 + float(value.sum()) * 1e4)


def test_leaves_out_outputs_with_infinite_sums():
    pairs, growth = np.array([[0, 1]]), np.array([2.0])
    huge = np.array([[1e308, 1.0]])
    cost = np.array([[1.0, 2.0], [3.0, 1.0]])
    sparse = SparseMultipliers.of(Multipliers.from_arrays(huge, np.zeros((1, 2))), pairs, growth, cost.shape)
    assert sparse.bound(cost) == -np.inf
    tame, bound = sparse.tame(cost)
    assert tame.starts.tolist() == [0, 0, 1]
    assert bound == tame.bound(cost) > -np.inf


def test_limits_the_number_of_multipliers():
    cost, pairs, lengths, epsilon, multiplier_arrays = instance(3)
    growth = exp_bounds(lengths, epsilon)[1]

    def gather_rows(**limits):
        return SparseMultipliers.of(
            Multipliers.from_arrays(multiplier_arrays[0], multiplier_arrays[1]), pairs, growth, cost.shape, **limits
        ).rows

    all_count = len(gather_rows())
    assert len(gather_rows(max_multipliers=all_count)) == all_count
    with pytest.raises(MemoryError):
        gather_rows(max_multipliers=all_count - 1)


@pytest.mark.parametrize("equal", [True, False])
def test_values_are_compressed_moderately(tmp_path, equal):
    rng, pairs, outputs = np.random.default_rng(0), 500, 200
    shares = np.full(pairs * outputs, 0.5) if equal else rng.lognormal(size=pairs * outputs)
    sparse = SparseMultipliers(
        pairs=np.column_stack([np.arange(pairs), np.arange(pairs) + 1]),
        growth=np.ones(pairs),
        starts=np.arange(0, pairs * outputs + 1, pairs),
        rows=np.tile(np.arange(pairs, dtype=np.uint32), outputs),
        values=shares,
    )
    proof = Rows.round_to_bound(sparse, -1e9, np.zeros((pairs + 1, outputs)), 0.0)
    assert not (proof.values.view(np.uint32) & 127).any()
    assert np.allclose(proof.values, shares, rtol=2.0**-16, atol=0)
    proof.write(tmp_path)
    with zipfile.ZipFile(tmp_path / PROOF) as archive:
        values = archive.getinfo("values.npy")
        assert (values.compress_type == zipfile.ZIP_STORED) is equal
        assert equal or values.compress_size < 0.9 * values.file_size
        unpacked = sum(member.file_size for member in archive.infolist())
    assert unpacked <= 8 * (tmp_path / PROOF).stat().st_size
