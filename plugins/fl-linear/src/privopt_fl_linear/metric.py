"""Where locations lie: the plane, the sphere, or a metric given as a matrix; along streets: `streets`.

Each answers the few questions that the algorithms ask (cheapest facility, greedy independent set, balls, distances),
the first two through the KD-tree of `kernels`, a matrix from its rows. Nothing here is secret.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints, doubles
from privopt.errors import Fault, InputError
from privopt.execution.limits import in_threads

__all__ = ["Matrix", "Metric", "Plane", "Sphere"]

BLOCK_ENTRIES = 4_000_000


class Metric(Protocol):
    """What the algorithms ask of a metric space over n locations, numbered from 0."""

    @property
    def size(self) -> int:
        """Number of locations."""
        ...

    @property
    def extent(self) -> float:
        """Half the diameter, or a little more: within this radius of some middle lies everything."""
        ...

    def cheapest(self, facilities: Ints, cost: Floats, rank: Ints) -> Ints:
        """For every location the facility u with the least cost_u + d(u, v); ties go to the least rank.

        ``facilities`` are locations; ``cost`` and ``rank`` are (n,), over all locations. Returns locations.
        """
        ...

    def independent(self, candidates: Ints, reach: float) -> Ints:
        """Take candidates in the order given, leaving out each within ``reach`` of one taken before."""
        ...

    def balls(self, centres: Ints, rank: Ints, radius: float) -> Ints:
        """For every location the centre within ``radius`` of it, -1 where there is none."""
        ...

    def crowded(self, radius: float, wanted: float) -> NDArray[np.bool_]:
        """For every location, whether its ball holds at least ``wanted`` locations, itself included."""
        ...

    def between(self, a: Ints, b: Ints) -> Floats:
        """Distances of the pairs (a[i], b[i])."""
        ...

    def nearest(self, places: Ints, facilities: Ints, cost: Floats, scale: Floats, count: int) -> tuple[Ints, Floats]:
        """Return for each of M places v the facilities u with the least scale_v cost_u + d(u, v), and these sums.

        ``places`` and ``facilities`` are locations; ``cost`` is over all of them, ``scale`` (M,) over the places.
        Returns (M, count) positions in ``facilities`` and (M, count) sums, ascending; of equals the first.
        """
        ...


def _nearest(
    metric: Metric, places: Ints, facilities: Ints, cost: Floats, scale: Floats, count: int
) -> tuple[Ints, Floats]:
    """See `Metric.nearest`; O(M F), a block of places at a time."""
    which = np.empty((len(places), count), dtype=np.int64)
    value = np.empty((len(places), count))

    def fill(a: int, b: int) -> None:
        step = max(1, BLOCK_ENTRIES // (4 * len(facilities)))
        for first in range(a, b, step):
            last = min(first + step, b)
            ends = np.repeat(places[first:last], len(facilities)), np.tile(facilities, last - first)
            sums = metric.between(*ends).reshape(last - first, -1)
            sums += scale[first:last, None] * cost[facilities]
            if count == 1:
                few = np.argmin(sums, axis=1)[:, None]
                sums = np.take_along_axis(sums, few, axis=1)
            elif count < len(facilities):
                few = np.sort(np.argpartition(sums, count - 1, axis=1)[:, :count], axis=1)
                sums = np.take_along_axis(sums, few, axis=1)
            else:
                few = np.broadcast_to(np.arange(count), sums.shape)
            order = np.argsort(sums, axis=1, kind="stable")
            which[first:last] = np.take_along_axis(few, order, axis=1)
            value[first:last] = np.take_along_axis(sums, order, axis=1)

    in_threads(fill, len(places))
    return which, value


@frozen(eq=False)
class _Treed:
    """Plane and sphere: the same tree under two distances."""

    _boxed: Floats
    _exact: Floats
    _sphere: bool
    _trees: dict[str, Any] = field(factory=dict, repr=False)

    @property
    def size(self) -> int:
        """Number of locations."""
        return len(self._exact)

    @property
    def extent(self) -> float:
        """Half the diagonal of the bounding box (on the sphere half the great circle over its chord)."""
        diagonal = float(np.sqrt(np.sum(np.ptp(self._boxed, axis=0) ** 2)))
        if not self._sphere:
            return diagonal / 2.0
        from privopt.numbers.distances import EARTH_RADIUS_KM

        return EARTH_RADIUS_KM * math.asin(min(1.0, diagonal / 2.0))

    def _tree(self, chosen: Ints, cost: Floats, rank: Ints) -> Any:
        from privopt_fl_linear import kernels

        boxed, exact = np.ascontiguousarray(self._boxed[chosen]), np.ascontiguousarray(self._exact[chosen])
        return kernels.build(boxed, exact, np.ascontiguousarray(cost[chosen]), np.ascontiguousarray(rank[chosen]))

    def _all(self) -> Any:
        """The tree over all locations, without costs: kept, for balls and neighbours are asked for often."""
        if "all" not in self._trees:
            n = self.size
            self._trees["all"] = self._tree(np.arange(n), np.zeros(n), np.arange(n))
        return self._trees["all"]

    def cheapest(self, facilities: Ints, cost: Floats, rank: Ints) -> Ints:
        """See `Metric.cheapest`; about O(n log n)."""
        from privopt_fl_linear import kernels

        tree = self._tree(facilities, cost, rank)
        order = tree[4] if len(facilities) == self.size else self._all()[4]
        if len(facilities) == self.size:
            order = facilities[order]
        found: Ints = facilities[kernels.cheapest(self._sphere, tree, self._boxed, self._exact, order)]
        return found

    def independent(self, candidates: Ints, reach: float) -> Ints:
        """See `Metric.independent`."""
        from privopt_fl_linear import kernels

        if len(candidates) == 0:
            return candidates
        boxed, exact = self._boxed[candidates], self._exact[candidates]
        order = np.arange(len(candidates))
        tree = kernels.build(boxed, exact, np.zeros(len(candidates)), order)
        taken: Ints = candidates[kernels.independent(self._sphere, tree, boxed, exact, order, reach)]
        return taken

    def balls(self, centres: Ints, rank: Ints, radius: float) -> Ints:
        """See `Metric.balls`; an overlap by rounding goes to the nearer centre."""
        from privopt_fl_linear import kernels

        owner: Ints = kernels.balls(self._sphere, self._all(), self._boxed, self._exact, centres, rank, radius)
        return owner

    def crowded(self, radius: float, wanted: float) -> NDArray[np.bool_]:
        """See `Metric.crowded`; the count stops at ``wanted``."""
        from privopt_fl_linear import kernels

        answer: NDArray[np.bool_] = kernels.crowded(
            self._sphere, self._all(), self._boxed, self._exact, radius, float(wanted)
        )
        return answer

    def between(self, a: Ints, b: Ints) -> Floats:
        """See `Metric.between`."""
        from privopt_fl_linear import kernels

        distances: Floats = kernels.pair_distances(self._sphere, self._exact[a], self._exact[b])
        return distances

    def nearest(self, places: Ints, facilities: Ints, cost: Floats, scale: Floats, count: int) -> tuple[Ints, Floats]:
        """See `Metric.nearest`."""
        return _nearest(self, places, facilities, cost, scale, count)


@frozen(eq=False, init=False)
class Plane(_Treed):
    """Euclidean distance between planar points.

    >>> import numpy as np
    >>> plane = Plane(np.array([[0.0, 0.0], [3.0, 4.0]]))
    >>> plane.between(np.array([0]), np.array([1]))
    array([5.])
    """

    def __init__(self, points: Any) -> None:
        points = doubles(points)
        if points.ndim != 2 or points.shape[1] != 2 or not np.isfinite(points).all():
            raise InputError([Fault("locations", "x, y", f"shape {points.shape}", "(n, 2) finite numbers")])
        exact = doubles(np.column_stack([points, np.zeros(len(points))]))
        self.__attrs_init__(points, exact, False)


@frozen(eq=False, init=False)
class Sphere(_Treed):
    """Haversine distance in km (R = 6371.0) between points given as degrees (latitude, longitude)."""

    def __init__(self, degrees: Any) -> None:
        degrees = doubles(degrees)
        ok = degrees.ndim == 2 and degrees.shape[1] == 2 and np.isfinite(degrees).all()
        if not ok or (np.abs(degrees[:, 0]) > 90.0).any():
            raise InputError([Fault("locations", "lat, lon", "other numbers", "degrees, latitudes within [-90, 90]")])
        from privopt.numbers.distances import directions

        lat, lon = np.radians(degrees).T
        exact = doubles(np.column_stack([lat, lon, np.cos(lat)]))
        self.__attrs_init__(doubles(directions(degrees)), exact, True)


@frozen(eq=False)
class Matrix:
    """A metric given as its (n, n) matrix: symmetric, zero diagonal, triangle inequality.

    The triangle inequality is checked on every triple up to 400 locations and on two million random ones beyond.

    >>> Matrix([[0.0, 2.0], [2.0, 0.0]]).size
    2
    """

    distances: Floats = field(converter=doubles)

    @distances.validator
    def _is_metric(self, attribute: Any, d: Floats) -> None:
        wanted = "a symmetric (n, n) matrix of finite distances with zero diagonal"
        if d.ndim != 2 or d.shape[0] != d.shape[1] or not np.isfinite(d).all() or (d < 0).any():
            raise InputError([Fault("matrix", "", f"shape {d.shape}", wanted)])
        scale = float(d.max(initial=0.0))
        if np.diagonal(d).any() or (np.abs(d - d.T) > 1e-12 * scale).any():
            raise InputError([Fault("matrix", "", "an unsymmetric matrix or a non-zero diagonal", wanted)])
        n = len(d)
        if n <= 400:
            excess = max((float((d - (d[:, [k]] + d[[k], :])).max()) for k in range(n)), default=0.0)
        else:
            from privopt_fl_linear import kernels

            triples = np.random.default_rng(0).integers(0, n, (3, 2_000_000))
            excess = kernels.triangle_excess(d, triples[0], triples[1], triples[2])
        if excess > 1e-9 * scale:
            raise InputError([Fault("matrix", "", f"a triangle inequality broken by {excess:.6g}", "a metric")])

    @property
    def size(self) -> int:
        """Number of locations."""
        return len(self.distances)

    @property
    def extent(self) -> float:
        """Half the greatest distance."""
        return float(self.distances.max(initial=0.0)) / 2.0

    def cheapest(self, facilities: Ints, cost: Floats, rank: Ints) -> Ints:
        """See `Metric.cheapest`; O(n |facilities|)."""
        by_rank = facilities[np.argsort(rank[facilities], kind="stable")]
        answer = np.empty(self.size, np.int64)
        step = max(1, BLOCK_ENTRIES // max(1, len(by_rank)))
        for start in range(0, self.size, step):
            block = self.distances[start : start + step][:, by_rank] + cost[by_rank]
            answer[start : start + step] = by_rank[np.argmin(block, axis=1)]
        return answer

    def independent(self, candidates: Ints, reach: float) -> Ints:
        """See `Metric.independent`."""
        blocked = np.zeros(len(candidates), np.bool_)
        taken = []
        for place, point in enumerate(candidates):
            if not blocked[place]:
                taken.append(point)
                blocked |= self.distances[point, candidates] <= reach
        return np.array(taken, dtype=np.int64)

    def balls(self, centres: Ints, rank: Ints, radius: float) -> Ints:
        """See `Metric.balls`."""
        owner = np.full(self.size, -1)
        nearest = np.full(self.size, np.inf)
        for centre in centres[np.argsort(rank[centres], kind="stable")]:
            row = self.distances[centre]
            inside = (row <= radius) & (row < nearest)
            owner[inside], nearest[inside] = centre, row[inside]
        return owner

    def crowded(self, radius: float, wanted: float) -> NDArray[np.bool_]:
        """See `Metric.crowded`."""
        answer: NDArray[np.bool_] = np.count_nonzero(self.distances <= radius, axis=1) >= wanted
        return answer

    def between(self, a: Ints, b: Ints) -> Floats:
        """See `Metric.between`."""
        picked: Floats = self.distances[a, b]
        return picked

    def nearest(self, places: Ints, facilities: Ints, cost: Floats, scale: Floats, count: int) -> tuple[Ints, Floats]:
        """See `Metric.nearest`."""
        return _nearest(self, places, facilities, cost, scale, count)
