"""Pairs that others imply: sums of lengths that miss a distance by last bits."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import shortest_path

from privopt.metric.optimal import Instance, dual_bound
from privopt.metric.optimal.interior_point import solve_interior_point
from privopt.metric.optimal.reduce import drop_implied_pairs


def street(length: int, seed: int, epsilon: float = 1.0) -> Instance:
    """Every pair of a street with random gaps between its nodes, at its path distance in doubles."""
    rng = np.random.default_rng(seed)
    steps = np.full((length, length), np.inf)
    steps[np.arange(length - 1), np.arange(1, length)] = rng.random(length - 1) + 0.1
    table = shortest_path(steps, directed=False)
    table *= 1 + rng.uniform(-4, 0, table.shape) * 2.0**-53
    table = np.minimum(table, table.T)
    i, j = np.triu_indices(length, 1)
    return Instance(cost=table / length, pairs=np.stack([i, j], axis=1), distances=table[i, j], epsilon=epsilon)


def test_path_sums_that_miss_by_last_bits_leave_the_road_alone():
    instance = street(60, 0)
    few, rows = drop_implied_pairs(instance)
    assert len(rows) == 59
    assert few.epsilon < instance.epsilon


@settings(max_examples=15, deadline=None)
@given(length=st.integers(3, 9), seed=st.integers(0, 999), epsilon=st.sampled_from([0.1, 1.0, 6.0]))
def test_what_is_left_keeps_every_pair_and_its_bound_is_of_the_whole(full_optimum, length, seed, epsilon):
    instance = street(length, seed, epsilon)
    answer = solve_interior_point(instance, gap=1e-7)
    i, j = instance.pairs.T
    for a, b in ((i, j), (j, i)):
        assert (answer.z[a] <= np.exp(instance.lengths)[:, None] * answer.z[b] * (1 + 1e-13)).all()
    optimum = full_optimum(instance)
    assert answer.lower_bound <= dual_bound(instance, answer.multipliers)[0] <= optimum * (1 + 1e-8)
    assert answer.objective >= optimum * (1 - 1e-8)
