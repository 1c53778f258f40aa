"""The probability of each reported point given each true point, computed by integration along rays.

A position is drawn around the true point, and the point nearest to this position is reported. A ray is a great-circle
arc from the true point in one direction. The distance along a ray has the distribution function G of the noise (see
:mod:`.sampler.exact`). The nearest point changes where two points are equally far from a position on the ray. These
positions are computed in closed form, so only the integral over the bearing is numerical. It uses the midpoint
rule, whose error is proportional to the square of the step. This is accurate enough for remapping and estimates. No
guarantee depends on it.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from scipy.spatial import cKDTree

from privopt.arrays import Floats
from privopt.interfaces import Channel
from privopt.numbers.distances import directions
from privopt_spherical_laplace.problem import MAX_PRIOR_POINTS, SphereInstance
from privopt_spherical_laplace.release import SphereRelease
from privopt_spherical_laplace.sampler.exact import RADIUS_KM
from privopt_spherical_laplace.sampler.fast import propose_scaled_distance

__all__ = ["channel_of_points", "distances_of_points", "nearest_probabilities", "unit_vectors"]

_STEPS: Final = 256
"""The number of equally probable intervals along a ray. The nearest point is looked up at the midpoint of each
interval."""
_TAIL_STEPS: Final = 29
"""The number of additional distances in the tail. The probability of exceeding a distance halves from one distance to
the next."""
_BEARINGS: Final = 360
"""The number of rays from each point."""


def unit_vectors(problem: SphereInstance) -> Floats:
    """Return the N points of a problem as unit vectors, of shape (N, 3). The problem's outputs must be points."""
    assert problem.points is not None  # callers check that outputs are points
    assert problem.points.coordinates is not None
    return directions(problem.points.coordinates)


def distances_of_points(points: Floats) -> Floats:
    """Return the great-circle distances between N points, in km, as an array of shape (N, N).

    Args:
        points: (N, 3) The points as unit vectors.
    """
    chords = np.sqrt(np.square(points[:, None, :] - points[None, :, :]).sum(axis=2))
    return np.asarray(2 * float(RADIUS_KM) * np.arcsin(np.minimum(chords / 2, 1.0)))


def basis(place: Floats) -> tuple[Floats, Floats]:
    """Return unit vectors that point east and north at a place on the sphere.

    At a pole, they are two arbitrary perpendicular tangent vectors.

    Args:
        place: (3,) The place as a unit vector.
    """
    east = np.cross([0.0, 0.0, 1.0], place)
    length = float(np.sqrt(east @ east))
    east = np.array([1.0, 0.0, 0.0]) if length < 1e-12 else east / length
    return east, np.cross(place, east)


def nearest_probabilities(problem: SphereInstance) -> Floats:
    """Return the probability that point k is the nearest to a position drawn around point i, for all i and k.

    Args:
        problem: A problem whose outputs are N points.

    Returns:
        An array of shape (N, N). Its entry (i, k) is the probability that a position drawn around point i is nearest to
        point k.
    """
    points, rate = unit_vectors(problem), float(problem.epsilon * RADIUS_KM)
    count, tree = len(points), cKDTree(points)
    # Distances along a ray, as angles in radians: the medians of equally probable intervals, and those in the tail.
    middles = (np.arange(_STEPS) + 0.5) / _STEPS
    quantiles = np.concatenate([middles, 1.0 - 0.5 / _STEPS * 0.5 ** np.arange(1, _TAIL_STEPS + 1)])
    angles = propose_scaled_distance(quantiles, rate) / rate
    bearings = (np.arange(_BEARINGS) + 0.5) * (2 * math.pi / _BEARINGS)
    total = 1.0 + math.exp(-math.pi * rate)  # the denominator of G
    probabilities = np.zeros((count, count))
    for row, place in enumerate(points):
        east, north = basis(place)
        # The directions of the R rays at the place, of shape (R, 3), and D positions along each, of shape (R, D, 3).
        rays = np.cos(bearings)[:, None] * north + np.sin(bearings)[:, None] * east
        positions = np.cos(angles)[:, None] * place + np.sin(angles)[:, None] * rays[:, None, :]
        nearest = tree.query(positions.reshape(-1, 3))[1].reshape(len(rays), len(angles))
        first, second = nearest[:, :-1], nearest[:, 1:]
        # If the nearest point changes from a to b between two distances, the border is the angle t at which the ray is
        # equally far from both: cos(t) x.a + sin(t) e.a = cos(t) x.b + sin(t) e.b, for the place x and the ray's
        # direction e. If the nearest point stays the same, any border will do.
        along_place, along_ray = points @ place, rays @ points.T
        ray_numbers = np.arange(len(rays))[:, None]
        change = np.arctan2(
            along_place[first] - along_place[second], along_ray[ray_numbers, second] - along_ray[ray_numbers, first]
        )
        borders = np.clip(change, angles[:-1], angles[1:])
        # G at the borders. The point nearest at an angle gets the probability between the borders on its two sides.
        below = (1.0 - np.exp(-rate * borders) * (np.cos(borders) + rate * np.sin(borders))) / total
        masses = np.diff(below, axis=1, prepend=0.0, append=1.0)
        probabilities[row] = np.bincount(nearest.ravel(), weights=masses.ravel(), minlength=count)
    return np.asarray(probabilities / probabilities.sum(axis=1, keepdims=True))


def channel_of_points(problem: SphereInstance, release: SphereRelease) -> Channel | None:
    """Return the probability of each report given each point, as a channel for attacks and estimates.

    Returns None if the outputs are not points, or if there are more than :data:`MAX_PRIOR_POINTS` points.
    """
    if problem.points is None or len(problem.points.ids) > MAX_PRIOR_POINTS:
        return None
    probabilities = nearest_probabilities(problem)
    if release.remap is not None:
        # Each nearest point's column is added to the column of the point that is reported in its place.
        reported = np.zeros_like(probabilities)
        np.add.at(reported.T, release.remap, probabilities.T)
        probabilities = reported
    distances = distances_of_points(unit_vectors(problem))
    return Channel(
        inputs=list(problem.points.ids),
        outputs=list(problem.points.ids),
        probabilities=probabilities,
        prior=problem.prior,
        distances=lambda rows: distances[rows],
        unit="km",
        coordinates=problem.points.coordinates,
        geographic=True,
    )
