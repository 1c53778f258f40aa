from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from privopt_hierarchical_dp.fits.smoothing import heterogeneity, smooth_down
from privopt_hierarchical_dp.least_squares import Noise
from privopt_hierarchical_dp.tree import Tree, add_up


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 6), st.sampled_from([0.3, 5.0, 400.0]))
def test_smoothed_counts_are_valid_for_any_noise(random_tree, seed, depth, sizes, scale):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, depth)
    true = add_up(tree, rng.integers(0, 9, size=(tree.widths[-1], sizes)) * rng.integers(0, 2, size=sizes))
    totals = [level.sum(axis=1) for level in true]
    noisy = [
        np.rint(np.cumsum(c, axis=1)[:, :-1] + rng.laplace(0, scale, (len(c), sizes - 1))).astype(int) for c in true
    ]
    counts = smooth_down(tree, noisy, noise=[Noise(variance=2 * scale**2)] * depth, totals=totals)
    for level, sums, total in zip(counts, add_up(tree, counts[-1]), totals, strict=True):
        assert level.min() >= 0
        np.testing.assert_array_equal(level, sums)
        np.testing.assert_array_equal(level.sum(axis=1), total)


def test_counts_return_without_noise():
    tree = Tree.from_paths([("r", "a"), ("r", "b"), ("r", "c")])
    true = add_up(tree, np.array([[50, 20, 0, 7], [9, 0, 3, 1], [100, 90, 80, 5]]))
    noisy = [np.cumsum(level, axis=1)[:, :-1] for level in true]
    tiny = [Noise(variance=1e-6)] * 2
    counts = smooth_down(tree, noisy, noise=tiny, totals=[level.sum(axis=1) for level in true])
    for smoothed, level in zip(counts, true, strict=True):
        np.testing.assert_array_equal(smoothed, level)


def test_heterogeneity_finds_what_was_planted():
    rng = np.random.default_rng(1)
    regions, totals = 4000, np.full(4000, 20_000)
    for spread in (0.0, 0.1, 0.4):
        shares = np.array([0.5, 0.3, 0.2])
        expected = totals[:, None] * shares
        # sizes drift apart by the planted share of their mean; the last takes up the rest
        drift = expected[:, :2] * spread * rng.normal(size=(regions, 2))
        counts = rng.poisson(np.maximum(expected[:, :2] + drift, 0.0))
        noisy = np.cumsum(counts, axis=1) + rng.laplace(0, 30, (regions, 2))
        noisy_counts = np.diff(np.concatenate([noisy, totals[:, None]], axis=1), axis=1, prepend=0)
        square = heterogeneity(noisy_counts, np.broadcast_to([1800.0, 3600.0, 1800.0], noisy_counts.shape), expected)
        assert abs(np.sqrt(square[0]) - spread) < 0.02


def test_beats_joint_projection_on_similar_regions():
    rng = np.random.default_rng(3)
    tree = Tree.from_paths([("r", f"c{i}") for i in range(60)])
    shares = np.array([0.4, 0.3, 0.15, 0.1, 0.04, 0.01])
    leaves = np.array([rng.multinomial(900, shares) for _ in range(60)])
    true = add_up(tree, leaves)
    totals = [level.sum(axis=1) for level in true]
    noisy = [np.rint(np.cumsum(c, axis=1)[:, :-1] + rng.laplace(0, 40, (len(c), 5))).astype(int) for c in true]
    from privopt_hierarchical_dp.fits.chain import fit_with_totals

    smoothed = smooth_down(tree, noisy, noise=[Noise(variance=3200.0)] * 2, totals=totals)
    chain = fit_with_totals(tree, noisy, totals=totals, weights=[1.0] * 2, cumulative=True).counts
    assert np.abs(smoothed[1] - leaves).sum() < 0.6 * np.abs(chain[1] - leaves).sum()
