"""Distances in the plane, on the sphere, or given as a matrix.

Each answers the few questions that the algorithms ask: points through SciPy's KD-tree, a matrix from its rows. Nothing
here is secret.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from attrs import field, frozen

from privopt.arrays import Floats, Ints, doubles
from privopt.errors import Fault, InputError
from privopt.execution.limits import in_threads
from privopt.numbers.distances import EARTH_RADIUS_KM, directions

__all__ = ["Matrix", "Metric", "Plane", "Sphere"]

BLOCK_ENTRIES: Final = 4_000_000
FIRST_NEIGHBOURS: Final = 8
"""Facilities that are looked at for each location to begin with; twice as many for those that need more."""


class Metric(ABC):
    """A metric space over n locations, numbered from 0."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of locations."""

    @property
    @abstractmethod
    def extent(self) -> float:
        """Half the diameter, or a little more: within this radius of some middle lies everything."""

    @abstractmethod
    def balls(self, centres: Ints, radius: float) -> Ints:
        """Return for every location the centre within ``radius`` of it, -1 where there is none."""

    @abstractmethod
    def within(self, among: Ints, radius: float) -> Callable[[int], Ints]:
        """Return a function that gives of each location the places in ``among`` of those within a radius of it."""

    @abstractmethod
    def between(self, a: Ints, b: Ints) -> Floats:
        """Return the distances of the pairs (a[i], b[i])."""

    def independent(self, candidates: Ints, reach: float) -> Ints:
        """Take candidates in the order given, omitting each within ``reach`` of one taken before."""
        near, blocked, taken = self.within(candidates, reach), np.zeros(len(candidates), np.bool_), []
        for number, point in enumerate(candidates.tolist()):
            if not blocked[number]:
                taken.append(point)
                blocked[near(point)] = True
        return np.array(taken, dtype=np.int64)

    def cheapest(self, facilities: Ints, cost: Floats) -> Ints:
        """Return for every location the facility u with the least cost_u + d(u, v); ties go to the least.

        ``facilities`` are locations, ascending; ``cost`` is (n,), over all locations. Returns locations.
        """
        everyone = np.arange(self.size)
        return facilities[self.nearest(everyone, facilities, cost, np.ones(self.size), 1)[0][:, 0]]

    def nearest(self, places: Ints, facilities: Ints, cost: Floats, scale: Floats, count: int) -> tuple[Ints, Floats]:
        """Return for each of M places v the facilities u with the least scale_v cost_u + d(u, v), and these sums.

        O(M F), a block of places at a time. ``places`` and ``facilities`` are locations; ``cost`` is over all of them,
        ``scale`` (M,) over the places. Returns (M, count) positions in ``facilities`` and (M, count) sums, ascending;
        of equals the first.
        """
        which = np.empty((len(places), count), dtype=np.int64)
        value = np.empty((len(places), count))

        def fill(begin: int, end: int) -> None:
            step = max(1, BLOCK_ENTRIES // (4 * len(facilities)))
            for first in range(begin, end, step):
                last = min(first + step, end)
                ends = np.repeat(places[first:last], len(facilities)), np.tile(facilities, last - first)
                sums = self.between(*ends).reshape(last - first, -1)
                sums += scale[first:last, None] * cost[facilities]
                if count == 1:
                    few = np.argmin(sums, axis=1)[:, None]
                else:
                    few = np.sort(np.argpartition(sums, count - 1, axis=1)[:, :count], axis=1)
                sums = np.take_along_axis(sums, few, axis=1)
                order = np.argsort(sums, axis=1, kind="stable")
                which[first:last] = np.take_along_axis(few, order, axis=1)
                value[first:last] = np.take_along_axis(sums, order, axis=1)

        in_threads(fill, len(places))
        return which, value


@frozen(eq=False)
class _PointSet(Metric):
    """Plane and sphere: the same tree under two distances.

    ``boxed`` holds the coordinates that the tree is made of: x, y in the plane, the unit vector on the sphere.
    ``exact`` holds those that a pair's distance is computed from: x, y, or latitude, longitude in radians and the
    cosine of the latitude. So the tree may be searched a little too far and never changes an answer.
    """

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
        return EARTH_RADIUS_KM * math.asin(min(1.0, diagonal / 2.0))

    def _search(self, points: Ints) -> Any:
        """Return SciPy's tree of some locations."""
        from scipy.spatial import cKDTree

        return cKDTree(self._boxed[points])

    def _reach(self, radius: float) -> float:
        """Return a straight distance that covers every point within the radius."""
        straight = radius
        if self._sphere:
            straight = 2.0 * math.sin(min(math.pi / 2.0, radius / (2.0 * EARTH_RADIUS_KM)))
        return straight * (1.0 + 1e-9) + 1e-9 * self._sphere

    def cheapest(self, facilities: Ints, cost: Floats) -> Ints:
        """See `Metric.cheapest`; about O(n log n).

        In one dimension more, with facility u at cost_u above its place, u is sqrt(d(u, v)^2 + cost_u^2) away from v:
        at most d(u, v) + cost_u. So what is farther away than the best sum found costs more.
        """
        from scipy.spatial import cKDTree

        unit, least = EARTH_RADIUS_KM if self._sphere else 1.0, cost[facilities].min()
        raised = np.column_stack([unit * self._boxed[facilities], cost[facilities] - least])
        first = np.sort(np.unique(raised, axis=0, return_index=True)[1])  # of equals the first
        facilities, tree = facilities[first], cKDTree(raised[first])
        left, count, answer = np.arange(self.size), FIRST_NEIGHBOURS, np.empty(self.size, dtype=np.int64)
        while len(left):
            count, undecided = min(count, len(facilities)), []
            for part in np.array_split(left, -(-len(left) * count // BLOCK_ENTRIES)):
                level = np.column_stack([unit * self._boxed[part], np.zeros(len(part))])
                away, near = tree.query(level, k=np.arange(1, count + 1), workers=-1)
                found = facilities[near]
                sums = cost[found] + self.between(np.repeat(part, count), found.ravel()).reshape(found.shape)
                best = sums.min(axis=1)
                answer[part] = np.where(sums == best[:, None], found, self.size).min(axis=1)
                beyond = away[:, -1] * (1.0 - 1e-9) - 1e-9 * self._sphere
                undecided.append(part[(beyond <= best - least) & (count < len(facilities))])
            left, count = np.concatenate(undecided), 2 * count
        return answer

    def within(self, among: Ints, radius: float) -> Callable[[int], Ints]:
        """See `Metric.within`; each is a search of the tree."""
        tree, straight = self._search(among), self._reach(radius)

        def near(point: int) -> Ints:
            found = np.asarray(tree.query_ball_point(self._boxed[point], straight), dtype=np.int64)
            return found[self.between(np.full(len(found), point), among[found]) <= radius]

        return near

    def balls(self, centres: Ints, radius: float) -> Ints:
        """See `Metric.balls`: the nearest centre, of equally near ones any, for balls do not overlap."""
        straight = np.nextafter(self._reach(radius), np.inf)  # what is found is nearer than this
        found = self._search(centres).query(self._boxed, distance_upper_bound=straight)[1]
        near = np.flatnonzero(found < len(centres))
        near = near[self.between(near, centres[found[near]]) <= radius]
        owner = np.full(self.size, -1)
        owner[near] = centres[found[near]]
        return owner

    def between(self, a: Ints, b: Ints) -> Floats:
        """See `Metric.between`: Euclidean, or haversine in km."""
        one, other = self._exact[a].T, self._exact[b].T
        if not self._sphere:
            return np.asarray(np.sqrt((one[0] - other[0]) ** 2 + (one[1] - other[1]) ** 2))
        north, east = np.sin((one[0] - other[0]) / 2.0), np.sin((one[1] - other[1]) / 2.0)
        half = north * north + one[2] * other[2] * (east * east)
        return np.asarray(2.0 * EARTH_RADIUS_KM * np.arcsin(np.minimum(1.0, np.sqrt(half))))


@frozen(eq=False, init=False)
class Plane(_PointSet):
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
        self.__attrs_init__(points, points, False)


@frozen(eq=False, init=False)
class Sphere(_PointSet):
    """Haversine distance in km (R = 6371.0) between points given as degrees (latitude, longitude)."""

    def __init__(self, degrees: Any) -> None:
        degrees = doubles(degrees)
        ok = degrees.ndim == 2 and degrees.shape[1] == 2 and np.isfinite(degrees).all()
        if not ok or (np.abs(degrees[:, 0]) > 90.0).any():
            raise InputError([Fault("locations", "lat, lon", "other numbers", "degrees, latitudes within [-90, 90]")])
        lat, lon = np.radians(degrees).T
        exact = doubles(np.column_stack([lat, lon, np.cos(lat)]))
        self.__attrs_init__(doubles(directions(degrees)), exact, True)


@frozen(eq=False)
class Matrix(Metric):
    """A metric given as its (n, n) matrix: symmetric, zero diagonal, triangle inequality.

    The triangle inequality is checked on every triple up to 400 locations and on two million random ones beyond.

    >>> Matrix([[0.0, 2.0], [2.0, 0.0]]).size
    2
    """

    distances: Floats = field(converter=doubles)
    source: str = field(default="matrix", repr=False)

    def __attrs_post_init__(self) -> None:
        d = self.distances
        wanted = "a symmetric (n, n) matrix of finite distances with zero diagonal"
        if d.ndim != 2 or d.shape[0] != d.shape[1] or not np.isfinite(d).all() or (d < 0).any():
            raise InputError([Fault(self.source, "", f"shape {d.shape}", wanted)])
        scale = float(d.max(initial=0.0))
        if np.diagonal(d).any() or (np.abs(d - d.T) > 1e-12 * scale).any():
            raise InputError([Fault(self.source, "", "an unsymmetric matrix or a non-zero diagonal", wanted)])
        n = len(d)
        if n <= 400:
            excess = max((float((d - (d[:, [k]] + d[[k], :])).max()) for k in range(n)), default=0.0)
        else:
            a, b, c = np.random.default_rng(0).integers(0, n, (3, 2_000_000))
            excess = float((d[a, c] - (d[a, b] + d[b, c])).max())
        if excess > 1e-9 * scale:
            raise InputError([Fault(self.source, "", "a broken triangle inequality", "a metric")])

    @property
    def size(self) -> int:
        """Number of locations."""
        return len(self.distances)

    @property
    def extent(self) -> float:
        """Half the greatest distance."""
        return float(self.distances.max(initial=0.0)) / 2.0

    def within(self, among: Ints, radius: float) -> Callable[[int], Ints]:
        """See `Metric.within`."""
        return lambda point: np.flatnonzero(self.distances[point, among] <= radius)

    def balls(self, centres: Ints, radius: float) -> Ints:
        """See `Metric.balls`."""
        near = np.argmin(self.distances[centres], axis=0)
        return np.where(self.distances[centres[near], np.arange(self.size)] <= radius, centres[near], -1)

    def between(self, a: Ints, b: Ints) -> Floats:
        """See `Metric.between`."""
        picked: Floats = self.distances[a, b]
        return picked
