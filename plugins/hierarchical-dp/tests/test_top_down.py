"""TopDown's controlled rounding: of all integers that add up none is nearer."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt_hierarchical_dp.fits.top_down import _largest_remainders, top_down
from privopt_hierarchical_dp.tree import Tree, add_up


@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_rounding_is_the_nearest_in_l1(seed, children):
    rng = np.random.default_rng(seed)
    total = int(rng.integers(0, 12))
    values = rng.dirichlet(np.ones(children)) * total
    rounded_values = _largest_remainders(values[None, :], np.array([total]))[0]
    low = np.floor(values + 1e-9).astype(int)
    rounded = [low + np.array(increments) for increments in itertools.product((0, 1), repeat=children)]
    best = min(np.abs(candidate - values).sum() for candidate in rounded if candidate.sum() == total)
    assert rounded_values.sum() == total
    assert np.abs(rounded_values - values).sum() <= best + 1e-9


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_releases_are_valid(seed):
    rng = np.random.default_rng(seed)
    tree = Tree.from_paths([("r", f"s{i}", f"c{i}{k}") for i in range(3) for k in range(int(rng.integers(1, 4)))])
    true = add_up(tree, rng.integers(0, 9, (tree.widths[-1], 4)))
    noisy = [level + np.rint(rng.laplace(0, 6, level.shape)).astype(int) for level in true]
    totals = [level.sum(axis=1) for level in true]
    counts = top_down(tree, noisy, total=int(totals[0][0]))
    for level, sums in zip(counts, add_up(tree, counts[-1]), strict=True):
        assert level.min() >= 0
        np.testing.assert_array_equal(level, sums)
