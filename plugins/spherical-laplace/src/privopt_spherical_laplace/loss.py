"""The utility loss: an upper bound on the expected distance between a position and its report.

For digits and grids, the position is uniform on the sphere, and the bound has a closed form (see :mod:`.law`). For
points, the position is one of the points, drawn from the prior. The distribution of noisy positions around a point is
divided into boxes of known probability, in polar coordinates. Each box lies in a disc, and only a few points can be
nearest to positions in this disc. The point among these that is farthest from the true point gives an upper bound on
the loss in the box.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Bools, Floats, Ints
from privopt.interfaces import UtilityLoss
from privopt_spherical_laplace.law import expected_distance, rounded_loss
from privopt_spherical_laplace.nearest import basis, distances_of_points, nearest_probabilities, unit_vectors
from privopt_spherical_laplace.problem import MAX_PRIOR_POINTS, SphereInstance
from privopt_spherical_laplace.release import SphereRelease
from privopt_spherical_laplace.sampler.exact import RADIUS_KM
from privopt_spherical_laplace.sampler.fast import propose_scaled_distance

__all__ = ["ExpectedDistance", "best_remap", "loss_over_points"]

_RINGS: Final = 64
"""The number of rings of equal probability into which the noise distribution is divided by distance."""
_TAIL_RINGS: Final = 34
"""The number of rings that replace the outermost ring, each half as probable as the one before."""
_BEARINGS: Final = 48
"""The number of boxes into which each ring is divided, by equal ranges of bearing."""
_SLACK: Final = 1e-9
"""An allowance for rounding errors, both in radians and relative to a loss. Actual errors are far smaller."""
_MIN_GAIN: Final = 1e-6
"""The minimum gain from remapping a point, as a fraction of its loss. Smaller gains may be integration errors."""


@frozen
class _Boxes:
    """A partition of the noise distribution around a position into boxes in polar coordinates.

    The same B boxes are used around every position.

    Attributes:
        angles: (B,) The distance between the position and each box's centre, in radians.
        bearings: (B,) The bearing of each box's centre, in radians.
        radii: (B,) The radius of a disc around each box's centre that contains the box, in radians.
        ends: (B,) The largest distance between the position and any point in each box, in radians.
        masses: (B,) The probability of each box, rounded up, so that the sum slightly exceeds 1.
    """

    angles: Floats
    bearings: Floats
    radii: Floats
    ends: Floats
    masses: Floats

    @classmethod
    def of(cls, epsilon: Fraction) -> _Boxes:
        """Divide the noise distribution into boxes for a given noise rate.

        The distribution is first divided by distance into rings of equal probability, with the outermost ring
        subdivided into increasingly improbable ones. Each ring is then divided into equal ranges of bearings.

        Args:
            epsilon: The rate of the noise, per km.
        """
        rate = float(epsilon * RADIUS_KM)
        quantiles = np.concatenate(
            [np.arange(1, _RINGS) / _RINGS, 1.0 - 1.0 / _RINGS * 0.5 ** np.arange(1, _TAIL_RINGS)]
        )
        borders = np.concatenate([[0.0], propose_scaled_distance(quantiles, rate) / rate, [math.pi]])
        # The masses are computed from the borders, because these are only approximate quantiles.
        survival = np.exp(-rate * borders) * (np.cos(borders) + rate * np.sin(borders))
        masses = np.maximum(survival[:-1] - survival[1:], 0.0)
        masses *= (1.0 + _SLACK) / masses.sum()  # they sum to slightly more than 1, so that the loss is an upper bound
        middles = (borders[:-1] + borders[1:]) / 2
        # A change in bearing moves a position at the angle t by at most sin(t) <= t times that change. Within a box,
        # the bearing differs from that of the centre by at most pi / _BEARINGS.
        across = np.minimum(np.where(middles < math.pi / 2, np.sin(middles), 1.0), middles) * math.pi / _BEARINGS
        bearings = (np.arange(_BEARINGS) + 0.5) * (2 * math.pi / _BEARINGS)
        rings = (middles, (borders[1:] - borders[:-1]) / 2 + across + _SLACK, borders[1:], masses / _BEARINGS)
        angles, radii, ends, parts = (np.repeat(column, _BEARINGS) for column in rings)
        return cls(angles, np.tile(bearings, len(middles)), radii, ends, parts)

    def centres(self, place: Floats) -> Floats:
        """Return the centres of the boxes around a position, as unit vectors of shape (B, 3).

        Args:
            place: (3,) The position as a unit vector.
        """
        east, north = basis(place)
        step = np.cos(self.bearings)[:, None] * north + np.sin(self.bearings)[:, None] * east
        return np.asarray(np.cos(self.angles)[:, None] * place + np.sin(self.angles)[:, None] * step)


def _chords(centres: Floats, points: Floats) -> Floats:
    """Return the straight-line distances between B unit vectors and N others, as an array of shape (B, N).

    Args:
        centres: (B, 3) The first vectors.
        points: (N, 3) The second vectors.
    """
    return np.asarray(np.sqrt(np.square(centres[:, None, :] - points[None, :, :]).sum(axis=2)))


def _prior(problem: SphereInstance, count: int) -> Floats:
    """Return the prior over the points, an array of shape (N,). It is uniform if the problem declares none."""
    return np.full(count, 1.0 / count) if problem.prior is None else problem.prior


def best_remap(problem: SphereInstance) -> tuple[Ints, Floats]:
    """Find the best point to report for each possible nearest point.

    The mechanism draws a position and determines the point nearest to it. Reporting a different point instead costs no
    privacy, because this only post-processes the nearest point. The probabilities are approximate. For a rigorous bound
    on the resulting loss, use :func:`loss_over_points`.

    Returns:
        An array of shape (N,) with the indices of the points to report, and an array of shape (N, N). Entry (i, k) of
        the second array is the probability that a position drawn around point i is nearest to point k.
    """
    points, probabilities = unit_vectors(problem), nearest_probabilities(problem)
    count = len(points)
    # Entry (k, j) is the probability that k is nearest, times the mean loss if j is reported in that case.
    losses = (_prior(problem, count)[:, None] * probabilities).T @ distances_of_points(points)
    unchanged_losses = np.diagonal(losses)
    best = losses.argmin(axis=1)
    gains = unchanged_losses - np.take_along_axis(losses, best[:, None], axis=1)[:, 0]
    return np.where(gains > _MIN_GAIN * unchanged_losses, best, np.arange(count)), probabilities


def loss_over_points(problem: SphereInstance, remap: Ints | None) -> float:
    """Return an upper bound, in km, on the expected distance between a point drawn from the prior and its report.

    Args:
        problem: The problem, whose outputs are N points.
        remap: (N,) The index of the point to report in place of each nearest point. None if points are not remapped.
    """
    points, boxes = unit_vectors(problem), _Boxes.of(problem.epsilon)
    count = len(points)
    distances = distances_of_points(points)
    reports = np.arange(count) if remap is None else remap
    # The largest distance, in km, between a point and the point that is reported in its place.
    shift = float(distances[np.arange(count), reports].max())
    # The nearest point is at most as far from the drawn position as the true point is. So it is at most twice as far
    # from the true point as the drawn position is. Remapping adds at most `shift`.
    caps = 2 * float(RADIUS_KM) * boxes.ends + shift
    weighted_losses = []
    for row, probability in enumerate(_prior(problem, count).tolist()):
        if probability == 0.0:
            continue
        chords = _chords(boxes.centres(points[row]), points)
        # Each chord changes by at most the radius within the disc. The factor is 2, because two chords are compared.
        is_candidate: Bools = chords <= (chords.min(axis=1) + 2 * boxes.radii + _SLACK)[:, None]
        farthest = np.where(is_candidate, distances[row, reports][None, :], 0.0).max(axis=1)
        weighted_losses.append(probability * math.fsum((boxes.masses * np.minimum(farthest, caps)).tolist()))
    return math.fsum(weighted_losses) * (1.0 + _SLACK)


@frozen(kw_only=True, eq=False)
class ExpectedDistance(UtilityLoss[SphereRelease]):
    """The utility loss: an upper bound on the expected great-circle distance between a position and its report.

    Attributes:
        problem: The problem. If reports are points, it contains the points and their prior.
        unit: The unit of the loss.
    """

    problem: SphereInstance
    unit: str = "km"

    def evaluate(self, release: SphereRelease) -> float:
        """Return the bound in km, computed from the release's parameters.

        If there are more than :data:`MAX_PRIOR_POINTS` points, the bound is twice the expected distance before
        rounding. This bound is valid because the nearest point is no farther from the drawn position than the true
        point is.
        """
        side = self.problem.side
        if side is not None:
            return rounded_loss(release.epsilon, side)
        assert self.problem.points is not None  # only points have no side
        if len(self.problem.points.ids) > MAX_PRIOR_POINTS:
            return 2 * expected_distance(release.epsilon)[1]
        return loss_over_points(self.problem, release.remap)
