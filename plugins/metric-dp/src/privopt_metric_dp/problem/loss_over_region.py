"""The loss of a release for people anywhere in a region: C_ck = E[lambda_c(X) c(X, k)] (mathematics C6).

The position X is uniform over the region, and lambda_c(X) is the probability that vertex c is drawn there. The loss is
the sum of C_ck z_ck over vertices c and outputs k, which is linear in the rows, as with a prior over records. A prior
p_c at the vertices would not do: a segment with z = 1 - x and cost x would seem to cost nothing, but costs 1/6.

A loss that is a function of distances is measured at X. Any other loss is known at the vertices only, and taken to be
linear on each simplex.
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
from privopt_metric_dp.problem.kinds import DistanceKind, LossKind, Spaces
from privopt_metric_dp.region.region import MM_PER_KM, Plane, Region, Streets
from privopt_metric_dp.region.snap_to_region import far_shares
from privopt_metric_dp.space.metrics import Metric
from privopt_metric_dp.space.places import Space

__all__ = ["Spread", "expected_cost", "spread_evenly"]

MIN_PIECES: Final = 16
"""Smallest number of pieces of a street. Two points represent each piece."""

MIN_PLANE_POINTS: Final = 20_000
"""Smallest number of points that represent a plane: seven in each triangle, or in each of its equal parts."""

_BLOCK_POINTS: Final = 512  # points that are processed at once
_FAR = (6 + math.sqrt(15)) / 21, (155 + math.sqrt(15)) / 1200
_NEAR = (6 - math.sqrt(15)) / 21, (155 - math.sqrt(15)) / 1200


@frozen(kw_only=True, eq=False)
class Spread:
    """The positions of people, as points with weights (a quadrature rule).

    Attributes:
        corners: (Q, m) vertices of each point's simplex.
        shares: (Q, m) probability that each of these vertices is drawn.
        linear: (Q, m) barycentric coordinates of each point.
        mass: (Q,) probability of each point.
        streets: (Q,) the street of each point; empty on a plane.
        places: (Q, 2) coordinates of each point in the records' form, on a plane; empty on streets.
    """

    corners: Ints
    shares: Floats
    linear: Floats
    mass: Floats
    streets: Ints
    places: Floats

    def vertex_masses(self, size: int) -> Floats:
        """Return (N,) E[lambda_c(X)], the probability that each of N vertices is drawn."""
        masses = (self.mass[:, None] * self.shares).ravel()
        return np.bincount(self.corners.ravel(), masses, minlength=size).astype(np.float64)

    def sum_costs(self, size: int, cost: Callable[[slice], Floats]) -> Floats:
        """Return (N, K) C_ck.

        Args:
            size: The number of vertices N.
            cost: Returns the costs (B, K) at a slice of the points.
        """
        from scipy.sparse import csr_array

        total: Floats = np.zeros((size, 0))
        for start in range(0, len(self.mass), _BLOCK_POINTS):
            part = slice(start, start + _BLOCK_POINTS)
            costs, weights = cost(part), self.mass[part, None] * self.shares[part]
            total = total if start else np.zeros((size, costs.shape[1]))
            touched, positions = np.unique(self.corners[part], return_inverse=True)  # few of the vertices
            offsets = np.arange(len(weights) + 1) * weights.shape[1]
            gather = csr_array((weights.ravel(), positions.ravel(), offsets), shape=(len(weights), len(touched)))
            total[touched] += gather.T @ costs
        return total


def spread_evenly(region: Region, epsilon: Fraction, records: Space) -> Spread:
    """Spread people uniformly over the region: by area (of the earth, with a projection), or by length of street.

    Each street is in at least 16 pieces with two Gauss points each, exact for linear costs; a street along which the
    shortest path to an output changes direction adds an error of that piece. Each triangle, or even part of it, is in
    seven points, exact up to degree 5: mean distances over two triangles, to a corner or the middle, are off by less
    than 1e-7 of themselves (plugins/metric-dp/tests/region/test_loss.py).

    Args:
        region: the vertices' mesh.
        epsilon: per km, which shapes the shares on streets.
        records: the vertices, for the coordinates that they have.
    """
    if isinstance(region, Plane):
        return _spread_over_plane(region, geographic=records.kind == "geographic")
    assert isinstance(region, Streets)
    pieces = 2 * region.steps * max(1, -(-MIN_PIECES // (2 * region.steps))) if region.steps else MIN_PIECES
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
    """Return (S,) each length as a share of the sum; equal shares if all lengths are 0."""
    longest = float(lengths.max())
    scaled = lengths / longest if longest else np.ones(len(lengths))  # of doubles that have all their bits
    shares: Floats = scaled / scaled.sum()
    return shares


def _spread_over_plane(region: Plane, *, geographic: bool) -> Spread:
    corners = region.vertices[region.simplices].astype(np.float64) / MM_PER_KM
    u, v = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    area = (u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]) / 2
    seven = [(1 / 3, 1 / 3, 1 / 3)] + [
        tuple(np.roll([weight, weight, 1 - 2 * weight], turn)) for weight, _ in (_NEAR, _FAR) for turn in range(3)
    ]
    weights = np.array([9 / 40] + [_NEAR[1]] * 3 + [_FAR[1]] * 3)
    parts = np.eye(3)[None]
    while len(region.simplices) * len(parts) * 7 < MIN_PLANE_POINTS:
        a, b, c = parts[:, 0], parts[:, 1], parts[:, 2]
        d, e, f = (b + c) / 2, (a + c) / 2, (a + b) / 2
        parts = np.concatenate([np.stack(four, axis=1) for four in ((a, f, e), (f, b, d), (e, d, c), (d, e, f))])
    shares = np.einsum("qv,pvc->pqc", np.array(seven), parts).reshape(-1, 3)
    within = np.tile(weights / len(parts), len(parts))
    points = np.einsum("qv,svx->sqx", shares, corners).reshape(-1, 2)
    mass = np.outer(area, within).ravel()
    places = points
    if region.projection is not None:
        earth = region.projection.to_earth(points * MM_PER_KM)
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
    with np.errstate(over="ignore"):
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
    """Return (N, K) C_ck.

    Args:
        spread: The positions of people.
        region: The mesh of the vertices.
        utility: The loss.
        distance: The problem's distance, which can measure from any point of a plane.
        spaces: The vertices, the outputs, and the distances between them.
        costs: (N, K) the loss at the vertices.
    """
    outputs = spaces.records if spaces.own else spaces.outputs

    def cost_at(count: int, coordinates: Floats | None, ways: Floats | None) -> Floats:
        ids = [str(number) for number in range(count)]
        points = Space(ids=ids, coordinates=coordinates, kind="plain" if coordinates is None else spaces.records.kind)
        metric = distance.metric(points, outputs) if ways is None else _KnownDistances(ways)
        return utility.cost(Spaces(records=points, outputs=outputs, own=False, metric=metric, file=spaces.file))

    if not utility.of_distances:
        return spread.sum_costs(
            region.size, lambda part: np.einsum("bm,bmk->bk", spread.linear[part], costs[spread.corners[part]])
        )
    if isinstance(region, Plane):
        return spread.sum_costs(region.size, lambda part: cost_at(len(spread.mass[part]), spread.places[part], None))
    assert isinstance(region, Streets)
    ways, km = spaces.metric.to_outputs(), region.km

    def cost_along(part: slice) -> Floats:
        a, b = spread.corners[part].T
        legs = km[spread.streets[part], None] * spread.linear[part]
        return cost_at(len(a), None, np.minimum(ways[a] + legs[:, 1:], ways[b] + legs[:, :1]))

    return spread.sum_costs(region.size, cost_along)


class _KnownDistances(Metric):
    """Known distances from some points of streets to the outputs."""

    def __init__(self, ways: Floats) -> None:
        super().__init__(len(ways), ways.shape[1], False)
        self._ways = ways

    def between(self, i: npt.ArrayLike, j: npt.ArrayLike) -> Floats:
        """Raise NotImplementedError: losses of distances use the distances to outputs only."""
        raise NotImplementedError("distances between points of streets")

    def to_outputs(self, i: npt.ArrayLike | None = None) -> Floats:
        """(B, K) km along the streets."""
        return self._ways if i is None else self._ways[np.asarray(i, dtype=np.int64)]
