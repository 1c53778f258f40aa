"""The loss from a release for people anywhere in a region: C_ck = E[lambda_c(X) c(X, k)].

Here c(X, k) is the cost of reporting output k at X. The position X is uniform over the region, and lambda_c(X) is the
probability that the mechanism draws vertex c for X. The loss is the sum of C_ck z_ck over vertices c and outputs k. It
is linear in the rows z_c, as with a prior over records. A prior over the vertices would understate it. For example,
take a segment on which an output's probability falls from 1 to 0 as z = 1 - x while its cost grows as x: the product is
0 at both ends, but its mean is 1/6. See docs/guide/everywhere.md, "Whose loss".

A loss that is a function of distances is measured at X. Other losses are known only at the vertices, and are assumed to
be linear on each simplex.
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
"""The fewest pieces into which a street is divided. Two points represent each piece."""

MIN_PLANE_POINTS: Final = 20_000
"""The fewest points that represent a plane. There are seven in each triangle, or in each of its equal parts."""

_BLOCK_POINTS: Final = 512  # points that are processed at once
# The coordinate and the weight for each of the two rings in Radon's seven-point rule on a triangle, which is exact up
# to degree 5.
_FAR = (6 + math.sqrt(15)) / 21, (155 + math.sqrt(15)) / 1200
_NEAR = (6 - math.sqrt(15)) / 21, (155 - math.sqrt(15)) / 1200


@frozen(kw_only=True, eq=False)
class Spread:
    """The distribution of people over a region, as weighted points (a quadrature rule).

    For a position, the mechanism draws one of the m vertices of its simplex (a piece of street or a triangle), and then
    an output from that vertex's row.

    Attributes:
        corners: (Q, m) the vertices of each point's simplex.
        shares: (Q, m) the probability that each of these vertices is drawn.
        linear: (Q, m) each point's barycentric coordinates.
        mass: (Q,) each point's probability.
        streets: (Q,) the index of each point's street; empty on a plane.
        places: (Q, 2) each point's coordinates in the records' unit (km or degrees); empty on streets.
    """

    corners: Ints
    shares: Floats
    linear: Floats
    mass: Floats
    streets: Ints
    places: Floats

    def vertex_masses(self, size: int) -> Floats:
        """Return E[lambda_c(X)], the probability (N,) that each of N vertices is drawn."""
        masses = (self.mass[:, None] * self.shares).ravel()
        return np.bincount(self.corners.ravel(), masses, minlength=size).astype(np.float64)

    def sum_costs(self, size: int, cost: Callable[[slice], Floats]) -> Floats:
        """Return C (N, K): the mean over the points of each vertex's probability times each output's cost.

        Args:
            size: N, the number of vertices.
            cost: A function that returns the costs (B, K) at a slice of the points.
        """
        from scipy.sparse import csr_array

        total: Floats = np.zeros((size, 0))
        for start in range(0, len(self.mass), _BLOCK_POINTS):
            part = slice(start, start + _BLOCK_POINTS)
            costs, weights = cost(part), self.mass[part, None] * self.shares[part]
            total = total if start else np.zeros((size, costs.shape[1]))
            # The points in a block lie in only a few simplices, so only the vertices of these are updated.
            vertices, positions = np.unique(self.corners[part], return_inverse=True)
            # A sparse matrix with a row for each point and a column for each of these vertices, in CSR form: `offsets`
            # says where the m weights of each point begin.
            offsets = np.arange(len(weights) + 1) * weights.shape[1]
            point_weights = csr_array(
                (weights.ravel(), positions.ravel(), offsets), shape=(len(weights), len(vertices))
            )
            total[vertices] += point_weights.T @ costs
        return total


def spread_evenly(region: Region, epsilon: Fraction, records: Space) -> Spread:
    """Return a uniform distribution over the region: by area (on the earth, if projected), or by length of street.

    Each street is divided into at least 16 pieces with two Gauss points each, which is exact for linear costs. There is
    an error only in the piece in which the shortest path to an output changes direction. Each triangle, or each of its
    equal parts, has seven points, which is exact up to degree 5. For mean distances over two triangles to a corner or
    the centre, the relative error is below 1e-7 (plugins/metric-dp/tests/region/test_loss.py).

    Args:
        region: The mesh between the vertices.
        epsilon: Epsilon per km, which determines the probabilities of a street's two ends.
        records: The vertices, with coordinates in km or degrees.
    """
    if isinstance(region, Plane):
        return _spread_over_plane(region, geographic=records.kind == "geographic")
    assert isinstance(region, Streets)
    # The probabilities of a street's ends are S-shaped: linear on each of 2n equal parts of the street. With a multiple
    # of 2n pieces, the slope does not change inside a piece. Negating twice rounds the quotient up.
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
    """Return each length as a share of the sum, (S,); equal shares if all lengths are 0."""
    longest = float(lengths.max())
    # Lengths are first divided by the longest, so that neither their sum nor the shares overflow or underflow.
    scaled = lengths / longest if longest else np.ones(len(lengths))
    shares: Floats = scaled / scaled.sum()
    return shares


def _spread_over_plane(region: Plane, *, geographic: bool) -> Spread:
    """Return a uniform distribution over a triangulated plane, with seven points in each triangle or part of one.

    Args:
        region: The plane, with vertices in mm.
        geographic: Whether to state the points' coordinates in degrees rather than planar km.
    """
    corners = region.vertices[region.simplices].astype(np.float64) / MM_PER_KM
    # Two sides of each triangle, in km. Areas are positive, because the corners are in counter-clockwise order.
    u, v = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    area = (u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]) / 2
    # The barycentric coordinates of Radon's points: the centre, then two rings of three rotations each.
    seven = [(1 / 3, 1 / 3, 1 / 3)] + [
        tuple(np.roll([side, side, 1 - 2 * side], turn)) for side, _ in (_NEAR, _FAR) for turn in range(3)
    ]
    weights = np.array([9 / 40] + [_NEAR[1]] * 3 + [_FAR[1]] * 3)
    # Triangles are divided into four by the midpoints of their sides until there are enough points. `parts` (P, 3, 3)
    # are the barycentric coordinates of the corners of each part.
    parts = np.eye(3)[None]
    while len(region.simplices) * len(parts) * 7 < MIN_PLANE_POINTS:
        a, b, c = parts[:, 0], parts[:, 1], parts[:, 2]
        d, e, f = (b + c) / 2, (a + c) / 2, (a + b) / 2
        quarters = ((a, f, e), (f, b, d), (e, d, c), (d, e, f))
        parts = np.concatenate([np.stack(quarter, axis=1) for quarter in quarters])
    # The barycentric coordinates of all points with respect to the whole triangle, which are the same for every
    # triangle.
    shares = np.einsum("qv,pvc->pqc", np.array(seven), parts).reshape(-1, 3)
    # The share of its triangle's area that each point represents.
    area_shares = np.tile(weights / len(parts), len(parts))
    points = np.einsum("qv,svx->sqx", shares, corners).reshape(-1, 2)
    mass = np.outer(area, area_shares).ravel()
    places = points
    if region.projection is not None:
        earth = region.projection.to_earth(points * MM_PER_KM)
        # People are spread evenly by area on the earth. Up to a constant, this is the area on the plane times the
        # cosine of the latitude.
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
        epsilon: Epsilon per km, which determines the probabilities of a street's two ends.
        streets: (Q,) the index of each point's street.
        part: (Q,) each point's position along the street, from 0 at the first end to 1 at the second.
        mass: (Q,) each point's probability.
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
    """Return C (N, K), the loss for output k weighted by the probability of vertex c, as the module defines it.

    Args:
        spread: The distribution of people.
        region: The mesh between the vertices.
        utility: The loss.
        distance: The problem's kind of distance, which measures distances from points on a plane.
        spaces: The vertices, the outputs, and the distances between them.
        costs: (N, K) the loss at the vertices.
    """
    outputs = spaces.records if spaces.own else spaces.outputs

    def cost_at(count: int, coordinates: Floats | None, ways: Floats | None) -> Floats:
        """Return the costs (B, K) at points in the region, which the kind of loss computes.

        Args:
            count: B, the number of points.
            coordinates: (B, 2) the coordinates of points on a plane; None on streets.
            ways: (B, K) the path lengths from points on streets to the outputs; None on a plane.
        """
        ids = [str(number) for number in range(count)]
        points = Space(ids=ids, coordinates=coordinates, kind="plain" if coordinates is None else spaces.records.kind)
        metric = distance.metric(points, outputs) if ways is None else _KnownDistances(ways)
        return utility.cost(Spaces(records=points, outputs=outputs, own=False, metric=metric, file=spaces.file))

    # A loss that is not a function of distances is known only at the vertices, so it is interpolated linearly in each
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
        """Return the costs (B, K) at a slice of the points on streets."""
        a, b = spread.corners[part].T
        legs = km[spread.streets[part], None] * spread.linear[part]
        # From a point on a street, a path leads over one of the street's ends a and b. Column 0 of `legs` is the length
        # to b, because column 0 of `linear` is 1 at a and 0 at b.
        return cost_at(len(a), None, np.minimum(ways[a] + legs[:, 1:], ways[b] + legs[:, :1]))

    return spread.sum_costs(region.size, cost_along)


class _KnownDistances(Metric):
    """A metric of precomputed distances (B, K) from points on streets to outputs, for losses that use distances."""

    def __init__(self, ways: Floats) -> None:
        """Store the distances (B, K) from B points to K outputs."""
        super().__init__(len(ways), ways.shape[1], False)
        self._ways = ways

    def between(self, i: npt.ArrayLike, j: npt.ArrayLike) -> Floats:
        """Raise NotImplementedError, because losses use only distances to outputs."""
        raise NotImplementedError("distances between points of streets")

    def to_outputs(self, i: npt.ArrayLike | None = None) -> Floats:
        """Return the distances (B, K) in km along the streets, from all points or from those with the indices i."""
        return self._ways if i is None else self._ways[np.asarray(i, dtype=np.int64)]
