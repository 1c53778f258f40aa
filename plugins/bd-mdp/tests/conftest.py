"""Instances on grids, and a way to solve them."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.data import data_path

from privopt.interfaces import SolveContext
from privopt_metric_dp.solvers.instance import Instance


def grid(rows: int, cols: int, epsilon: float, max_distance: float = 1.5, seed: int | None = None) -> Instance:
    """Return unit grid, pairs within a distance, uniform prior (or a random one), Euclidean cost."""
    places = np.array([(r, c) for r in range(rows) for c in range(cols)], dtype=float)
    distances = np.linalg.norm(places[:, None] - places[None], axis=2)
    i, j = np.nonzero(np.triu(distances <= max_distance, 1))
    n = len(places)
    prior = np.full(n, 1 / n) if seed is None else np.random.default_rng(seed).dirichlet(np.full(n, 2.0))
    return Instance(
        cost=prior[:, None] * distances,
        pairs=np.column_stack([i, j]),
        distances=distances[i, j],
        epsilon=epsilon,
        coordinates=places,
    )


@pytest.fixture(scope="session")
def make_grid():
    return grid


@pytest.fixture(scope="session")
def make_context():
    def context(**options) -> SolveContext:
        return SolveContext(**{"method": "benders", "solver": "highs", "gap": 1e-2, **options})

    return context


@pytest.fixture(scope="session")
def data():
    """Where public data sets are, or a skipped test."""
    return data_path
