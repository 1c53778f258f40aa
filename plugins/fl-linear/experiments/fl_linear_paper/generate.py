"""The synthetic instances of section 7.1: Matern cluster and Poisson point processes, clients, facility costs.

The radial coordinate is uniform on [0, delta_gen], as the paper prints it (so locations crowd towards the centres).
Realisations without a single location are drawn again, and counted: at n = 1000, gamma = 2 they are 0.5 % (no
centre), at n = 100 they are 31 %.
"""

from __future__ import annotations

import math

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

__all__ = ["Instance", "matern", "poisson"]

Floats = NDArray[np.float64]
MEAN_CLIENTS, DEVIATION, MOST_CLIENTS = 2.5, 1.5, 8


@frozen(eq=False)
class Instance:
    """One synthetic problem.

    Attributes:
        points: (n, 2) planar coordinates; the Matern window is (1 + 2 delta_gen) wide, the Poisson window 1.
        cost: (n,) facility cost of each location, uniform on the interval asked for.
        clients: (n,) int64, a normal (2.5, 1.5) rounded and cut to 0 .. 8.
        redrawn: realisations thrown away because they were empty.
    """

    points: Floats
    cost: Floats
    clients: NDArray[np.int64]
    redrawn: int


def _finish(points: Floats, costs: tuple[float, float], redrawn: int, rng: np.random.Generator) -> Instance:
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
    """Draw a Matern cluster instance with n locations expected.

    Parameters
    ----------
    rng
        Source of randomness (not a privacy matter: instances are test data).
    n
        Expected number of locations, above 1.
    gamma
        Each cluster has gamma^2 ln(n)^2 locations expected.
    delta_gen
        Radius of a cluster.
    costs
        Interval of the facility costs.

    >>> import numpy as np
    >>> instance = matern(np.random.default_rng(1), n=200)
    >>> instance.points.shape[1], bool((instance.clients <= 8).all())
    (2, True)
    """
    daughters = (gamma * math.log(n)) ** 2
    redrawn = 0
    while True:
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
    """Draw a Poisson point process with n locations expected on the unit square."""
    redrawn = 0
    while (count := int(rng.poisson(n))) == 0:
        redrawn += 1
    return _finish(rng.random((count, 2)), costs, redrawn, rng)
