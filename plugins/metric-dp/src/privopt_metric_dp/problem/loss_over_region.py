"""The expected loss of a release for people anywhere in a region (docs/guide/everywhere.md, "Whose loss").

A person's position X is uniform over the region. The mechanism snaps X to vertex c with probability lambda_c(X) and
then reports output k with probability z_ck. If c(X, k) is the cost of reporting k at X, the expected loss is the sum of
C_ck z_ck over all c and k, where C_ck = E[lambda_c(X) c(X, k)]. Like the expected loss under a prior over records, it
is linear in the matrix z.

A prior over the vertices would understate the loss. For example, suppose that people at position x on a segment from 0
to 1 report some output with probability 1 - x and at cost x. Its contribution to the loss, x (1 - x), is 0 at both
ends, but 1/6 on average over the segment.

If the loss is a function of distances, c(X, k) is computed at X. Any other loss is only known at the vertices and is
interpolated linearly on each simplex.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt_metric_dp.problem.declared import DistanceKind, LossKind, Spaces
from privopt_metric_dp.region.region import MM_PER_KM, Plane, Region, Streets
from privopt_metric_dp.region.snap_to_region import far_shares
from privopt_metric_dp.space.metrics import Metric
from privopt_metric_dp.space.places import Space

__all__ = ["Spread", "expected_cost", "spread_evenly"]

MIN_PIECES: Final = 16
"""The minimum number of pieces into which a street is divided. Each piece contains two quadrature points."""

MIN_PLANE_POINTS: Final = 20_000
"""The minimum number of quadrature points in a plane. Each triangle, or each of its equal parts, contains seven."""

_BLOCK_POINTS: Final = 512  # points that are processed at once
# The coordinate and the weight of each of the two rings in Radon's seven-point rule on a triangle, which is exact for
# polynomials of degree at most 5.
_FAR = (6 + math.sqrt(15)) / 21, (155 + math.sqrt(15)) / 1200
_NEAR = (6 - math.sqrt(15)) / 21, (155 - math.sqrt(15)) / 1200


@frozen(kw_only=True, eq=False)
class Spread:
    """The distribution of people over a region, represented by the Q weighted points of a quadrature rule.

    Each point lies in a simplex with m vertices: a piece of a street (m = 2) or a triangle (m = 3). The mechanism snaps
    a position to one of these vertices, and then draws an output from that vertex's row of the matrix.

    Attributes:
        corners: Array of shape (Q, m) with the vertex indices of each point's simplex.
        shares: Array of shape (Q, m) with the probabilities of snapping each point to these vertices.
        linear: Array of shape (Q, m) with the barycentric coordinates of each point.
        mass: Array of shape (Q,) with the probability of each point.
        streets: Array of shape (Q,) with the index of each point's street. It is empty in a plane.
        places: Array of shape (Q, 2) with the coordinates of each point, in the same units as the records' coordinates
            (km or degrees). It is empty on streets.
    """

    corners: Ints
    shares: Floats
    linear: Floats
    mass: Floats
    streets: Ints
    places: Floats

    def vertex_masses(self, size: int) -> Floats:
        """Return the probability that a random person is snapped to each vertex.

        Args:
            size: The number of vertices.
        """
        masses = (self.mass[:, None] * self.shares).ravel()
        return np.bincount(self.corners.ravel(), masses, minlength=size).astype(np.float64)

    def sum_costs(self, size: int, cost: Callable[[slice], Floats]) -> Floats:
        """Return the mean cost of each output for each vertex, weighted by the probability of snapping to the vertex.

        Entry (c, k) is the mean of lambda_c(X) c(X, k) over the position X of a random person. Here, lambda_c(X) is the
        probability that X is snapped to vertex c, and c(X, k) is the cost of reporting output k at X.

        Args:
            size: The number of vertices N.
            cost: A function that takes a slice of B points and returns an array of shape (B, K) with the cost of each
                output at these points.

        Returns:
            Array of shape (N, K).
        """
        from scipy.sparse import csr_array

        total: Floats = np.zeros((size, 0))
        for start in range(0, len(self.mass), _BLOCK_POINTS):
            part = slice(start, start + _BLOCK_POINTS)
            costs, weights = cost(part), self.mass[part, None] * self.shares[part]
            total = total if start else np.zeros((size, costs.shape[1]))
            # The points in a block lie in only a few simplices, so only the vertices of those are updated.
            vertices, positions = np.unique(self.corners[part], return_inverse=True)
            # A sparse matrix in CSR form with one row per point and one column per vertex. `offsets` says where the m
            # weights of each point begin.
            offsets = np.arange(len(weights) + 1) * weights.shape[1]
            point_weights = csr_array(
                (weights.ravel(), positions.ravel(), offsets), shape=(len(weights), len(vertices))
            )
            total[vertices] += point_weights.T @ costs
        return total


def spread_evenly(region: Region, epsilon: Fraction, records: Space) -> Spread:
    """Return the uniform distribution over a region, by street length or by area.

    If the plane is a map projection, areas are measured on the earth.

    Each street is divided into at least 16 pieces with two Gauss points each. This rule is exact for costs that are
    linear on each piece, so an error arises only in the piece where the shortest path to an output changes direction.
    Each triangle, or each part of a subdivided triangle, has the seven points of a rule that is exact for polynomials
    of degree at most 5. In a square divided into two triangles, the mean distance to a corner or to the centre has a
    relative error below 1e-7 (plugins/metric-dp/tests/region/test_loss.py).

    Args:
        region: The streets or the triangulated plane.
        epsilon: Epsilon per km, which determines the snapping probabilities on streets.
        records: The vertices of the region, with coordinates in km or degrees.
    """
    if isinstance(region, Plane):
        return _spread_over_plane(region, geographic=records.kind == "geographic")
    assert isinstance(region, Streets)
    # The snapping probability is an S-shaped function of the position on a street, linear on each of 2n equal parts.
    # With a multiple of 2n pieces, the slope does not change within a piece. Negating twice rounds the quotient up.
    pieces = 2 * region.steps * max(1, -(-MIN_PIECES // (2 * region.steps))) if region.steps else MIN_PIECES
    # The two Gauss points in the unit interval.
    gauss = 0.5 + np.array([-0.5, 0.5]) / math.sqrt(3)
    part = ((np.arange(pieces)[:, None] + gauss) / pieces).ravel()
    count = len(region.km)
    return _spread_on_streets(
        region,
        epsilon,
        streets=np.repeat(np.arange(count), len(part)),
        part=np.tile(part, count),
        mass=np.repeat(_length_shares(region.km) / len(part), len(part)),
    )


def _length_shares(lengths: Floats) -> Floats:
    """Divide lengths by their sum. If all lengths are 0, return equal shares."""
    longest = float(lengths.max())
    # Dividing by the longest length first prevents the sum and the shares from overflowing or underflowing.
    scaled = lengths / longest if longest else np.ones(len(lengths))
    shares: Floats = scaled / scaled.sum()
    return shares


def _spread_over_plane(region: Plane, *, geographic: bool) -> Spread:
    """Return the uniform distribution by area over a triangulated plane.

    If the plane is a map projection, areas are measured on the earth. Radon's seven-point rule is applied to each
    triangle or, if there are few triangles, to equal parts of each.

    Args:
        region: The triangulated plane, with vertices in millimetres.
        geographic: Whether to return coordinates in degrees rather than km.
    """
    corners = region.vertices[region.simplices].astype(np.float64) / MM_PER_KM
    # Two sides of each triangle, in km. Areas are positive because the corners are in counter-clockwise order.
    u, v = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    area = (u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]) / 2
    # The barycentric coordinates of Radon's points: the centre, then two rings of three points each, which are
    # rotations of one another.
    seven = [(1 / 3, 1 / 3, 1 / 3)] + [
        tuple(np.roll([side, side, 1 - 2 * side], turn)) for side, _ in (_NEAR, _FAR) for turn in range(3)
    ]
    weights = np.array([9 / 40] + [_NEAR[1]] * 3 + [_FAR[1]] * 3)
    # Triangles are divided into four at the midpoints of their sides until there are enough points. `parts`, of shape
    # (P, 3, 3), contains the barycentric coordinates of each part's corners.
    parts = np.eye(3)[None]
    while len(region.simplices) * len(parts) * 7 < MIN_PLANE_POINTS:
        a, b, c = parts[:, 0], parts[:, 1], parts[:, 2]
        d, e, f = (b + c) / 2, (a + c) / 2, (a + b) / 2
        quarters = ((a, f, e), (f, b, d), (e, d, c), (d, e, f))
        parts = np.concatenate([np.stack(quarter, axis=1) for quarter in quarters])
    # The barycentric coordinates of all points with respect to the whole triangle, which are the same for every
    # triangle.
    shares = np.einsum("qv,pvc->pqc", np.array(seven), parts).reshape(-1, 3)
    # The fraction of its triangle's area that each point represents.
    area_shares = np.tile(weights / len(parts), len(parts))
    points = np.einsum("qv,svx->sqx", shares, corners).reshape(-1, 2)
    mass = np.outer(area, area_shares).ravel()
    places = points
    if region.projection is not None:
        earth = region.projection.to_earth(points * MM_PER_KM)
        # People are spread evenly by area on the earth, which is proportional to the area on the plane times the cosine
        # of the latitude.
        mass, places = mass * np.cos(np.radians(earth[:, 0])), earth if geographic else points
    all_shares = np.tile(shares, (len(corners), 1))
    return Spread(
        corners=np.repeat(region.simplices, len(shares), axis=0),
        shares=all_shares,
        linear=all_shares,
        mass=mass / mass.sum(),
        streets=np.zeros(0, dtype=np.int64),
        places=places,
    )


def _spread_on_streets(region: Streets, epsilon: Fraction, *, streets: Ints, part: Floats, mass: Floats) -> Spread:
    """Return a distribution of people over given points on streets.

    Args:
        region: The streets.
        epsilon: Epsilon per km, which determines the snapping probabilities.
        streets: Array of shape (Q,) with the index of each point's street.
        part: Array of shape (Q,) with the position of each point along its street, from 0 at the first end to 1 at the
            second.
        mass: Array of shape (Q,) with the probability of each point.
    """
    with np.errstate(over="ignore"):  # far_shares() accepts a reach that overflows to infinity
        far_share = far_shares(part, float(epsilon) * region.km[streets], region.steps)
    return Spread(
        corners=region.simplices[streets],
        shares=np.stack([1.0 - far_share, far_share], axis=1),
        linear=np.stack([1.0 - part, part], axis=1),
        mass=mass,
        streets=streets,
        places=np.zeros((0, 2)),
    )


def expected_cost(
    spread: Spread, region: Region, utility: LossKind, distance: DistanceKind, spaces: Spaces, costs: Floats
) -> Floats:
    """Return the coefficients C_ck of the expected loss for people anywhere in a region.

    The expected loss of a matrix z is the sum of C_ck z_ck over all c and k. C_ck is the mean, over positions X, of the
    probability of snapping X to vertex c times the cost of reporting output k at X.

    Args:
        spread: The distribution of people over the region.
        region: The streets or the triangulated plane.
        utility: The kind of loss.
        distance: The problem's kind of distance, used to measure distances from points in a plane.
        spaces: The N vertices, the K outputs, and the distances between them.
        costs: Array of shape (N, K) with the loss at the vertices.

    Returns:
        Array of shape (N, K) with the coefficients.
    """
    outputs = spaces.records if spaces.own else spaces.outputs

    def cost_at(count: int, coordinates: Floats | None, ways: Floats | None) -> Floats:
        """Return an array of shape (B, K) with the cost of each output at B points in the region.

        Args:
            count: The number of points B.
            coordinates: Array of shape (B, 2) with the coordinates of points in a plane, or None on streets.
            ways: Array of shape (B, K) with path lengths from points on streets to outputs, or None in a plane.
        """
        ids = [str(number) for number in range(count)]
        points = Space(ids=ids, coordinates=coordinates, kind="plain" if coordinates is None else spaces.records.kind)
        metric = distance.metric(points, outputs) if ways is None else _KnownDistances(ways)
        return utility.cost(Spaces(records=points, outputs=outputs, own=False, metric=metric, file=spaces.file))

    # A loss that is not a function of distances is known only at the vertices, so it is interpolated linearly on each
    # simplex.
    if not utility.of_distances:
        return spread.sum_costs(
            region.size, lambda part: np.einsum("bm,bmk->bk", spread.linear[part], costs[spread.corners[part]])
        )
    if isinstance(region, Plane):
        return spread.sum_costs(region.size, lambda part: cost_at(len(spread.mass[part]), spread.places[part], None))
    assert isinstance(region, Streets)
    ways, km = spaces.metric.to_outputs(), region.km

    def cost_along(part: slice) -> Floats:
        """Return an array of shape (B, K) with the cost of each output at a slice of B points on streets."""
        a, b = spread.corners[part].T
        legs = km[spread.streets[part], None] * spread.linear[part]
        # A path from a point on a street leads over one of the street's ends a and b. Column 0 of `legs` is the length
        # to b, because column 0 of `linear` is 1 at a and 0 at b.
        return cost_at(len(a), None, np.minimum(ways[a] + legs[:, 1:], ways[b] + legs[:, :1]))

    return spread.sum_costs(region.size, cost_along)


class _KnownDistances(Metric):
    """A metric with precomputed distances from points on streets to outputs, for losses that depend on distances."""

    def __init__(self, ways: Floats) -> None:
        """Store an array of shape (B, K) with the distances from B points to K outputs."""
        super().__init__(len(ways), ways.shape[1], False)
        self._ways = ways

    def between(self, i: npt.ArrayLike, j: npt.ArrayLike) -> Floats:
        """Raise NotImplementedError, because losses only need distances to outputs."""
        raise NotImplementedError("distances between points of streets")

    def to_outputs(self, i: npt.ArrayLike | None = None) -> Floats:
        """Return path lengths in km to all outputs from the points at the indices ``i``, or from all points."""
        return self._ways if i is None else self._ways[np.asarray(i, dtype=np.int64)]
