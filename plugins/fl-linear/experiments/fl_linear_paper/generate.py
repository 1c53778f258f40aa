"""Generate the synthetic instances of section 7.1: Matern cluster and Poisson processes, clients and facility costs.

The radial coordinate is uniform on [0, delta_gen], as the paper states, so locations are denser near the centres.
Realisations without any location are drawn again and counted. At n = 1000 and gamma = 2 they are 0.5 % (no centre), and
at n = 100 they are 31 %.
"""

from __future__ import annotations

import math

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

__all__ = ["Instance", "matern", "poisson"]

Floats = NDArray[np.float64]
MEAN_CLIENTS, DEVIATION, MOST_CLIENTS = 2.5, 1.5, 8
"""Mean and standard deviation of the normal distribution of a location's clients, and their largest number."""


@frozen(eq=False)
class Instance:
    """One synthetic problem.

    Attributes:
        points: (n, 2) planar coordinates. The window is 1 + 2 delta_gen wide for Matern instances, and 1 for Poisson.
        cost: (n,) facility cost of each location, uniform on an interval.
        clients: (n,) int64, normal draws (mean 2.5, standard deviation 1.5) rounded and clipped to 0 .. 8.
        redrawn: Number of realisations that were discarded because they were empty.
    """

    points: Floats
    cost: Floats
    clients: NDArray[np.int64]
    redrawn: int


def _finish(points: Floats, costs: tuple[float, float], redrawn: int, rng: np.random.Generator) -> Instance:
    """Draw clients and facility costs for given points, and return the instance with read-only arrays.

    Args:
        points: (n, 2) coordinates of the locations.
        costs: Interval of the facility costs.
        redrawn: Number of empty realisations that were discarded.
        rng: Source of randomness.
    """
    n = len(points)
    clients = np.clip(np.rint(rng.normal(MEAN_CLIENTS, DEVIATION, n)), 0, MOST_CLIENTS).astype(np.int64)
    arrays = points, rng.uniform(*costs, n), clients
    for array in arrays:
        array.setflags(write=False)
    return Instance(*arrays, redrawn)


def matern(
    rng: np.random.Generator,
    *,
    n: int = 1000,
    gamma: float = 2.0,
    delta_gen: float = 0.2,
    costs: tuple[float, float] = (0.1, 0.3),
) -> Instance:
    """Draw a Matern cluster instance with n expected locations.

    Args:
        rng: Source of randomness. Instances are test data, so it need not be secret.
        n: Expected number of locations, above 1.
        gamma: Each cluster has gamma^2 ln(n)^2 expected locations.
        delta_gen: Radius of a cluster.
        costs: Interval of the facility costs.

    >>> import numpy as np
    >>> instance = matern(np.random.default_rng(1), n=200)
    >>> instance.points.shape[1], bool((instance.clients <= 8).all())
    (2, True)
    """
    # The expected number of locations of a cluster, so n / daughters is that of clusters.
    daughters = (gamma * math.log(n)) ** 2
    redrawn = 0
    while True:
        # Centres are in a unit square, moved so that all coordinates are at least 0.
        centres = rng.random((rng.poisson(n / daughters), 2)) + delta_gen
        points = np.repeat(centres, rng.poisson(daughters, len(centres)), axis=0)
        if len(points):
            break
        redrawn += 1
    radius = rng.uniform(0.0, delta_gen, len(points))
    angle = rng.uniform(0.0, 2.0 * math.pi, len(points))
    points = points + np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    return _finish(points, costs, redrawn, rng)


def poisson(rng: np.random.Generator, *, n: int = 1000, costs: tuple[float, float] = (0.1, 0.3)) -> Instance:
    """Draw an instance of a Poisson point process on the unit square, with n expected locations.

    Args:
        rng: Source of randomness.
        n: Expected number of locations.
        costs: Interval of the facility costs.
    """
    redrawn = 0
    while (count := int(rng.poisson(n))) == 0:
        redrawn += 1
    return _finish(rng.random((count, 2)), costs, redrawn, rng)
