"""Kuo et al. 2018: groups matched by size move least, and what is merged is consistent."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hierarchical_dp_paper.matching import match_counts, match_down
from privopt_hierarchical_dp.least_squares import Noise
from privopt_hierarchical_dp.release import errors_of
from privopt_hierarchical_dp.tree import Tree, add_up


def _family(seed):
    """Return a parent with as many groups as its children have, and other sizes."""
    rng = np.random.default_rng(seed)
    child_counts = rng.integers(0, 4, (int(rng.integers(1, 5)), 5))
    parent = np.bincount(rng.integers(0, 5, child_counts.sum()), minlength=5)
    return Tree.from_paths([("r", f"c{k}") for k in range(len(child_counts))]), parent[None, :], child_counts


@given(st.integers(0, 2**32 - 1))
def test_sure_parent_is_met_with_minimal_moves(seed):
    tree, parent, child_counts = _family(seed)
    root, children = match_counts(tree, [parent, child_counts], [1e-9, 1.0])
    np.testing.assert_array_equal(root, parent)
    np.testing.assert_array_equal(children.sum(axis=1), child_counts.sum(axis=1))
    min_moves = errors_of(child_counts.sum(axis=0)[None, :], parent)["earth_movers"]
    # no matching moves less than the histograms differ
    assert errors_of(children, child_counts)["earth_movers"] == min_moves


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_sure_children_stay_unchanged(seed):
    tree, parent, child_counts = _family(seed)
    np.testing.assert_array_equal(match_counts(tree, [parent, child_counts], [1.0, 1e-9])[1], child_counts)


def test_sizes_are_averaged_by_inverse_variance():
    """Two groups of size 1 at the parent, of size 4 at the child: 1 with weight 2, 4 with weight 4 make 3."""
    tree = Tree.from_paths([("r", "a")])
    matched = match_counts(tree, [np.array([[2, 0, 0, 0]]), np.array([[0, 0, 0, 2]])], [1.0, 0.5])
    assert [level.tolist() for level in matched] == [[[0, 0, 2, 0]]] * 2


def test_partly_matched_runs_are_proportional():
    tree = Tree.from_paths([("r", "a"), ("r", "b")])
    parent, child_counts = np.array([[3, 6]]), np.array([[6, 0], [3, 0]])
    assert match_counts(tree, [parent, child_counts], [1e-9, 1.0])[1].tolist() == [[2, 4], [1, 2]]


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.booleans())
def test_releases_are_valid_for_any_group_number(seed, sizes, many):
    rng = np.random.default_rng(seed)
    tree = Tree.from_paths([("r", f"s{i}", f"c{i}{k}") for i in range(3) for k in range(int(rng.integers(1, 4)))])
    true = add_up(tree, rng.integers(0, 2**40 if many else 3, (tree.widths[-1], sizes)))
    noisy = [np.cumsum(n, axis=1)[:, :-1] + np.rint(rng.laplace(0, 6, (len(n), sizes - 1))).astype(int) for n in true]
    totals = [level.sum(axis=1) for level in true]
    counts = match_down(tree, noisy, noise=[Noise(variance=72.0)] * 3, totals=totals)
    for level, sums, total in zip(counts, add_up(tree, counts[-1]), totals, strict=True):
        assert level.min() >= 0
        np.testing.assert_array_equal(level, sums)
        np.testing.assert_array_equal(level.sum(axis=1), total)
