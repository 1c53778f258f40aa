"""Pricing proves what it says, however early it is stopped."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt_metric_dp.solvers import dual_bound
from privopt_metric_dp.solvers.solver import make_graph
from privopt_metric_dp.solvers.star import anchored_bound, proof, star_trees
from privopt_metric_dp.solvers.symmetry import Symmetry
from privopt_metric_dp.solvers.tree_pricing import price_all


@settings(max_examples=60)
@given(
    size=st.tuples(st.integers(2, 6), st.integers(2, 6)),
    pairs=st.sampled_from(["8nb", "all"]),
    epsilon=st.sampled_from([0.1, 0.7, 1.5, 4.0]),
    outputs=st.integers(1, 6),
    max_pivots=st.sampled_from([0, 1, 2, 5, 20, 1_000_000]),
    stretch=st.sampled_from([0.0, 0.5, 1.0, 1.3]),
    seed=st.integers(0, 2**16),
)
def test_bound_holds_after_any_number_of_pivots(
    grid_instance, full_optimum, size, pairs, epsilon, outputs, max_pivots, stretch, seed
):
    rng = np.random.default_rng(seed)
    full_grid = grid_instance(size[0], pairs, epsilon, rows=size[1])
    output_numbers = rng.permutation(full_grid.outputs)[:outputs]
    prior = rng.dirichlet(np.ones(full_grid.records))
    instance = evolve(full_grid, cost=prior[:, None] * full_grid.cost[:, output_numbers])
    optimum, min_costs = full_optimum(instance), instance.cost.min(axis=1)
    y = min_costs + stretch * (instance.cost.mean(axis=1) - min_costs) * rng.random(full_grid.records) * 2
    graph, symmetry = make_graph(instance), Symmetry.trivial(instance)
    trees = star_trees(graph, rng.integers(0, full_grid.records, instance.outputs))
    priced = price_all(graph, instance, y, trees, max_pivots=max_pivots)
    bound = anchored_bound(symmetry, y, priced)
    assert bound <= optimum + 1e-9
    assert dual_bound(instance, proof(instance, symmetry, y, trees))[0] <= optimum + 1e-9
    if max_pivots > 1_000:
        assert (priced.deficit > 0).any() == (priced.value.min() < -1e-12 * np.abs(y).max())


@pytest.mark.parametrize("seed", [0, 6])
def test_lowered_prices_price_nothing_out(grid_instance, seed):
    """Found by BD-mDP on 6 x 8 cells: trees left after few pivots proved more than the optimum."""
    from scipy.optimize import linprog

    rng = np.random.default_rng(seed)
    full_grid = grid_instance(6, "8nb", 1.5, rows=8)
    instance = evolve(
        full_grid, cost=rng.dirichlet(np.full(48, 2.0))[:, None] * 48 * full_grid.cost[:, rng.permutation(48)[:2]]
    )
    graph = make_graph(instance)
    y = instance.cost.min(axis=1) + rng.random(48) * np.ptp(instance.cost, axis=1)
    priced = price_all(graph, instance, y, star_trees(graph, np.array([0, 47])), max_pivots=5)
    i, j = instance.pairs.T
    rows = np.zeros((2 * len(i), 48))
    row_numbers = np.arange(len(i))
    rows[row_numbers, i], rows[row_numbers, j] = 1.0, -np.exp(instance.lengths)
    rows[row_numbers + len(i), j], rows[row_numbers + len(i), i] = 1.0, -np.exp(instance.lengths)
    for k in range(2):
        reduced = instance.cost[:, k] - (y - priced.deficit)
        solution = linprog(
            reduced, A_ub=rows, b_ub=np.zeros(len(rows)), A_eq=np.ones((1, 48)), b_eq=[1], bounds=(0, None)
        )
        assert solution.fun >= -1e-9
