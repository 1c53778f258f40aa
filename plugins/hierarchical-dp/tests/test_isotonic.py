from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hierarchical_dp_paper.tables import chain_tables
from privopt_hierarchical_dp.fits.as_published import chain_counts, chain_query, fit_chain, post_order
from privopt_hierarchical_dp.fits.isotonic import isotonic_integers, isotonic_means
from privopt_hierarchical_dp.tree import add_up


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(-4, 8), st.integers(1, 4)), min_size=1, max_size=4),
    st.integers(0, 5),
)
def test_pooling_is_the_integer_optimum(pairs, high):
    values = np.array([[value for value, _ in pairs]])
    weights = np.array([weight for _, weight in pairs])
    fitted = isotonic_means(values * weights, weights, high=np.array([high]))[0]
    assert (np.diff(fitted) >= 0).all()
    cost = int((weights * (fitted - values[0]) ** 2).sum())
    best = min(
        int((weights * (np.array(chain) - values[0]) ** 2).sum())
        for chain in itertools.combinations_with_replacement(range(high + 1), len(pairs))
    )
    assert cost == best


def test_means_are_compared_without_doubles():
    # block means differ by 1e-18 relative: doubles would call them equal and round them apart
    values = np.array([[10**9, 10**9 - 1, 10**9, 10**9 - 1]])
    fitted = isotonic_integers(values, high=np.array([2 * 10**9]))
    assert fitted.tolist() == [[10**9] * 4]
    with pytest.raises(ValueError, match="64 bits"):
        isotonic_integers(np.array([[2**61]]), high=np.array([1]))
    with pytest.raises(ValueError, match="positive"):
        isotonic_means(np.array([[1]]), np.array([0]), high=np.array([1]))


def test_published_chain_equals_recurrence_8(random_tree):
    rng = np.random.default_rng(5)
    for _ in range(150):
        tree = random_tree(rng, int(rng.integers(2, 6)), 2)
        sizes = int(rng.integers(1, 4))
        true = add_up(tree, rng.integers(0, 3, size=(tree.widths[-1], sizes)))
        total = int(true[0].sum())
        noisy = [level + rng.integers(-4, 5, size=level.shape) for level in chain_query(true)]
        fitted = fit_chain(tree, noisy, total=total)
        levels, places = post_order(tree)
        nodes = [(level, region, s) for s in range(sizes) for level, region in zip(levels, places, strict=True)]
        equal = [node[0] > next_node[0] for node, next_node in itertools.pairwise(nodes)] + [False]
        _, values = chain_tables([int(noisy[a][b, s]) for a, b, s in nodes], equal, total=total)
        cost = sum(int(fitted[a][b, s] - noisy[a][b, s]) ** 2 for a, b, s in nodes)
        assert cost == sum((v - int(noisy[a][b, s])) ** 2 for v, (a, b, s) in zip(values, nodes, strict=True))
        counts = chain_counts(fitted)
        assert counts[-1].min() >= 0
        assert counts[0].sum() == total
        for level, sums in zip(counts, add_up(tree, counts[-1]), strict=True):
            np.testing.assert_array_equal(level, sums)


def test_chain_query_and_its_inverse(paper):
    tree, counts = paper
    query = chain_query(counts)
    assert query[1].T.ravel().tolist() == [2, 3, 3, 4, 5, 6, 6, 6, 6, 6]  # GA, NY for size 1, then for size 2, ...
    for level, restored in zip(counts, chain_counts(query), strict=True):
        np.testing.assert_array_equal(level, restored)
    assert tree.depth == 2
