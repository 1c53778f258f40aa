from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from hierarchical_dp_paper.tables import merge_by_optimisation, tree_tables
from privopt_hierarchical_dp.fits.half_prices import integer_weights, objective, project_counts, relax_counts
from privopt_hierarchical_dp.kit import least_objective
from privopt_hierarchical_dp.tree import Tree, add_up


def test_model_1_equals_the_cost_tables(random_tree):
    rng = np.random.default_rng(7)
    for case in range(150):
        tree = random_tree(rng, int(rng.integers(2, 6)))
        sizes = int(rng.integers(1, 4))
        true = add_up(tree, rng.integers(0, 3, size=(tree.widths[-1], sizes)))
        total = int(true[0].sum())
        noisy = [level + rng.integers(-5, 6, size=level.shape) for level in true]
        weights = rng.integers(0 if case % 3 == 0 else 1, 5, size=tree.depth)
        weights[-1] = max(1, weights[-1])
        counts = project_counts(tree, noisy, total=total, weights=weights)
        assert counts[-1].min(initial=0) >= 0
        assert counts[0].sum() == total
        for level, sums in zip(counts, add_up(tree, counts[-1]), strict=True):
            np.testing.assert_array_equal(level, sums)
        merge = {"merge": merge_by_optimisation} if case % 50 == 0 and tree.regions < 20 else {}
        reference = tree_tables(tree, noisy, total=total, weights=weights.tolist(), **merge)
        assert objective(counts, noisy, weights) == objective(reference, noisy, weights)
        if case % 10 == 0:
            table_counts = tree_tables(tree, noisy, total=total)
            assert least_objective(tree, noisy, total) == objective(table_counts, noisy)


def test_model_1_matches_brute_force(random_tree, compositions):
    rng = np.random.default_rng(3)
    for _ in range(60):
        tree = random_tree(rng, int(rng.integers(1, 4)), 2)
        leaves, sizes = tree.widths[-1], int(rng.integers(1, 3))
        total = int(rng.integers(0, 5))
        noisy = [rng.integers(-4, 6, size=(width, sizes)) for width in tree.widths]
        best = min(
            objective(add_up(tree, np.array(split).reshape(leaves, sizes)), noisy)
            for split in compositions(total, leaves * sizes)
        )
        assert objective(project_counts(tree, noisy, total=total), noisy) == best


def test_zero_weight_ignores_a_level():
    tree = Tree.from_paths([("r", "a"), ("r", "b")])
    noisy = [np.array([[10**7, -5]]), np.array([[3, 1], [4, 0]])]
    counts = project_counts(tree, noisy, total=8, weights=np.array([0, 1]))
    assert objective(counts, noisy, [0, 1]) == 0
    huge = [level * 10**6 for level in noisy]
    counts = project_counts(tree, huge, total=8 * 10**6, weights=np.array([1, 1]))
    assert counts[0].sum() == 8 * 10**6


def test_relaxed_search_is_a_lower_bound(random_tree):
    rng = np.random.default_rng(11)
    tree = random_tree(rng, 3)
    noisy = [rng.integers(-6, 9, size=(width, 4)) for width in tree.widths]
    grid, relaxed = relax_counts(tree, noisy, total=9, weights=[1, 1, 1])
    assert grid == 1024
    integer_counts = project_counts(tree, noisy, total=9)
    squares = sum(float(((x - y) ** 2).sum()) for x, y in zip(relaxed, noisy, strict=True))
    assert squares <= objective(integer_counts, noisy) + 1e-9
    for parent, start in enumerate(tree.start):
        np.testing.assert_allclose(np.add.reduceat(relaxed[parent + 1], start[:-1], axis=0), relaxed[parent])


def test_weights_become_proportional_integers():
    assert integer_weights([Fraction(1, 2), Fraction(1, 3)]).tolist() == [3, 2]
    assert integer_weights([4, 0, 2]).tolist() == [2, 0, 1]
    coarse = integer_weights([Fraction(1, 10**9), Fraction(10**9)])
    assert coarse[0] == 1
    assert coarse[1] <= 1 << 20
    with pytest.raises(ValueError, match="positive"):
        integer_weights([1, 0])


def test_refuses_values_beyond_64_bits():
    tree = Tree.from_paths([("r",)])
    with pytest.raises(ValueError, match="64 bits"):
        project_counts(tree, [np.array([[2**60]])], total=1)
