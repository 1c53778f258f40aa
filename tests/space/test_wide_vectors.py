"""Distances of vectors of many columns: plain sums with their error off."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.numbers.distances import euclidean, no_less, root_of_squares, roots_of_square


def square(points: np.ndarray) -> np.ndarray:
    table = np.empty((len(points), len(points)))
    roots_of_square(points, np.ascontiguousarray(points.T), np.zeros((points.shape[1], 0)), 0, len(points), table)
    return table


@pytest.mark.parametrize("dim", [15, 16, 17, 300, 1024, 1025])
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-160, 1e-70, 1.0, 1e6, 1e150]), st.sampled_from([0.0, 1e3]))
@settings(max_examples=5, deadline=None)
def test_no_distance_is_above_the_exact_one(dim, seed, scale, away):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(70, dim)) * scale + away * scale  # far from the origin digits cancel
    points[1] = points[0]
    points[2] = np.nextafter(points[0], np.inf)
    table = square(points)
    assert (table == table.T).all()
    assert (np.diag(table) == 0).all()
    assert table[0, 1] == 0
    i, j = rng.integers(70, size=(2, 5))
    one = np.empty(5)
    root_of_squares(points, points, np.zeros((0, dim)), np.zeros((0, dim)), i, j, one)
    assert (one == table[i, j]).all()
    assert (one == euclidean(points[i], points[j])).all()
    i, j = np.append(i, [0, 2]), np.append(j, [2, 3])
    above = no_less(table[i, j])
    for a, b, low, high in zip(i, j, table[i, j], above, strict=True):
        exact = sum((Fraction(x) - Fraction(y)) ** 2 for x, y in zip(points[a], points[b], strict=True))
        assert Fraction(float(low)) ** 2 <= exact <= Fraction(float(high)) ** 2


def test_orders_of_rows_and_blocks_change_nothing():
    points = np.random.default_rng(0).normal(size=(200, 50))
    turned = np.random.default_rng(1).permutation(200)
    assert (square(points)[np.ix_(turned, turned)] == square(points[turned])).all()
