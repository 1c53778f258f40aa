from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from helpers.whole_program import optimum

from privopt_metric_dp.solvers import Instance


def grid(cols: int, rows: int | None = None) -> np.ndarray:
    x, y = np.meshgrid(np.arange(cols), np.arange(rows or cols), indexing="ij")
    return np.stack([x.ravel(), y.ravel()], axis=1).astype(float)


def _instance(cols: int, pairs: str, epsilon: float, *, rows: int | None = None, located: bool = True) -> Instance:
    points = grid(cols, rows)
    distance = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
    reach = 1.5 if pairs == "8nb" else np.inf
    i, j = np.nonzero(np.triu(distance < reach, 1))
    return Instance(
        cost=distance / len(points),
        pairs=np.stack([i, j], axis=1),
        distances=distance[i, j],
        epsilon=epsilon,
        coordinates=points if located else None,
    )


@pytest.fixture(scope="session")
def grid_instance() -> Callable[..., Instance]:
    """Return the unit grid, uniform prior, Euclidean cost: 8 neighbours ("8nb") or every pair ("all")."""
    return _instance


def _excess(instance: Instance, z: np.ndarray) -> float:
    """Largest relative violation of the privacy rows and of the row sums."""
    worst = float(np.abs(z.sum(axis=1) - 1).max())
    i, j = instance.pairs.T
    for a, b in ((i, j), (j, i)):
        if len(a):
            worst = max(worst, float((z[a] - np.exp(instance.lengths)[:, None] * z[b]).max()))
    return max(worst, -float(z.min()))


@pytest.fixture(scope="session")
def excess() -> Callable[[Instance, np.ndarray], float]:
    return _excess


def _full_optimum(instance: Instance) -> float:
    """Return the whole LP, row by row, at tolerance 1e-9."""
    return optimum(instance.cost, instance.pairs, instance.lengths, even=True, tolerance=1e-9)


@pytest.fixture(scope="session")
def full_optimum() -> Callable[[Instance], float]:
    return _full_optimum
