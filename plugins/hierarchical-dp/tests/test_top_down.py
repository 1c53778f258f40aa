"""TopDown's controlled rounding: of all integers that add up, to one margin or to both, none is nearer."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt_hierarchical_dp.fits.rounding import nearest_table
from privopt_hierarchical_dp.fits.top_down import _largest_remainders, top_down
from privopt_hierarchical_dp.tree import Tree, add_up


@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_the_rounding_is_the_nearest_in_l1(seed, children):
    rng = np.random.default_rng(seed)
    total = int(rng.integers(0, 12))
    values = rng.dirichlet(np.ones(children)) * total
    found = _largest_remainders(values[None, :], np.array([total]))[0]
    low = np.floor(values + 1e-9).astype(int)
    rounded = [low + np.array(up) for up in itertools.product((0, 1), repeat=children)]
    best = min(np.abs(each - values).sum() for each in rounded if each.sum() == total)
    assert found.sum() == total
    assert np.abs(found - values).sum() <= best + 1e-9


def _tables(rows, columns):
    """All non-negative integer tables with these margins."""
    if len(rows) == 1:
        yield np.array([columns])
        return
    for first in itertools.product(*(range(most + 1) for most in columns)):
        if sum(first) == rows[0]:
            for rest in _tables(rows[1:], [most - one for most, one in zip(columns, first, strict=True)]):
                yield np.concatenate([[first], rest])


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_the_rounding_to_two_margins_is_the_nearest_of_all_tables(seed):
    rng = np.random.default_rng(seed)
    known = rng.multinomial(rng.integers(0, 7), np.full(6, 1 / 6)).reshape(2, 3)
    if rng.random() < 0.5:
        known = known.T
    values = np.maximum(0.0, known + rng.normal(0, 0.8, known.shape))  # whose margins are near those asked for
    rows, columns = known.sum(axis=1), known.sum(axis=0)
    found = nearest_table(values, columns, rows)
    assert found.min() >= 0
    np.testing.assert_array_equal(found.sum(axis=1), rows)
    np.testing.assert_array_equal(found.sum(axis=0), columns)
    least = min(np.abs(table - values).sum() for table in _tables(rows.tolist(), columns.tolist()))
    assert np.abs(found - values).sum() <= least + 1e-9


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_releases_are_valid_with_and_without_region_totals(seed, known):
    rng = np.random.default_rng(seed)
    tree = Tree.from_paths([("r", f"s{i}", f"c{i}{k}") for i in range(3) for k in range(int(rng.integers(1, 4)))])
    true = add_up(tree, rng.integers(0, 9, (tree.widths[-1], 4)))
    noisy = [level + np.rint(rng.laplace(0, 6, level.shape)).astype(int) for level in true]
    totals = [level.sum(axis=1) for level in true]
    counts = top_down(tree, noisy, total=int(totals[0][0]), totals=totals if known else None)
    for level, again, total in zip(counts, add_up(tree, counts[-1]), totals, strict=True):
        assert level.min() >= 0
        np.testing.assert_array_equal(level, again)
        if known:
            np.testing.assert_array_equal(level.sum(axis=1), total)
