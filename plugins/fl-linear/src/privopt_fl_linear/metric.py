"""Distances in the plane, on the sphere, or given as a matrix.

Each metric answers the few queries of the algorithms: for points by SciPy's KD-tree, for a matrix from its rows.
Locations and distances are public.
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
"""Facilities that the tree returns for each location at first. The number doubles for those that need more."""


class Metric(ABC):
    """A metric space over n locations, numbered from 0."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of locations."""

    @property
    @abstractmethod
    def extent(self) -> float:
        """Half the diameter, or a little more: a ball of this radius holds all locations."""

    @abstractmethod
    def assign_balls(self, centres: Ints, radius: float) -> Ints:
        """Return for every location the centre within ``radius`` of it, or -1 if there is none."""

    @abstractmethod
    def neighbours_within(self, among: Ints, radius: float) -> Callable[[int], Ints]:
        """Return a function that lists the positions in ``among`` of the points within a radius of a location."""

    @abstractmethod
    def distances_between(self, a: Ints, b: Ints) -> Floats:
        """Return the distances of the pairs (a[i], b[i])."""

    def select_independent(self, candidates: Ints, reach: float) -> Ints:
        """Select candidates greedily in their order, omitting each one within ``reach`` of a selected one."""
        find_neighbours, is_blocked, selected = (
            self.neighbours_within(candidates, reach),
            np.zeros(len(candidates), np.bool_),
            [],
        )
        for number, point in enumerate(candidates.tolist()):
            if not is_blocked[number]:
                selected.append(point)
                is_blocked[find_neighbours(point)] = True
        return np.array(selected, dtype=np.int64)

    def cheapest(self, facilities: Ints, cost: Floats) -> Ints:
        """Return for every location the facility u with the least cost_u + d(u, v). Ties go to the least number.

        ``facilities`` are locations, ascending; ``cost`` is (n,), over all locations. Returns locations.
        """
        everyone = np.arange(self.size)
        return facilities[self.nearest(everyone, facilities, cost, np.ones(self.size), 1)[0][:, 0]]

    def nearest(self, places: Ints, facilities: Ints, cost: Floats, scale: Floats, count: int) -> tuple[Ints, Floats]:
        """Return for each of M places v the facilities u with the least scale_v cost_u + d(u, v), and these sums.

        O(M F), one block of places at a time. ``places`` and ``facilities`` are locations; ``cost`` is over all
        locations, ``scale`` (M,) over the places.

        Returns:
            (M, count) positions in ``facilities``, and (M, count) sums, ascending. Ties go to the first.
        """
        which = np.empty((len(places), count), dtype=np.int64)
        value = np.empty((len(places), count))

        def fill_rows(first_row: int, end_row: int) -> None:
            step = max(1, BLOCK_ENTRIES // (4 * len(facilities)))
            for start in range(first_row, end_row, step):
                stop = min(start + step, end_row)
                endpoints = np.repeat(places[start:stop], len(facilities)), np.tile(facilities, stop - start)
                sums = self.distances_between(*endpoints).reshape(stop - start, -1)
                sums += scale[start:stop, None] * cost[facilities]
                if count == 1:
                    candidates = np.argmin(sums, axis=1)[:, None]
                else:
                    candidates = np.sort(np.argpartition(sums, count - 1, axis=1)[:, :count], axis=1)
                sums = np.take_along_axis(sums, candidates, axis=1)
                order = np.argsort(sums, axis=1, kind="stable")
                which[start:stop] = np.take_along_axis(candidates, order, axis=1)
                value[start:stop] = np.take_along_axis(sums, order, axis=1)

        in_threads(fill_rows, len(places))
        return which, value


@frozen(eq=False)
class _PointSet(Metric):
    """Plane and sphere: the same tree under two distances.

    ``boxed`` has the coordinates of the tree: x, y in the plane, the unit vector on the sphere. ``exact`` has those
    from which the distance of a pair is computed: x, y, or latitude, longitude in radians and the cosine of the
    latitude. The tree is searched a little too far, and exact distances decide, so its rounding changes no answer.
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

    def _make_tree(self, points: Ints) -> Any:
        """Build SciPy's tree of some locations."""
        from scipy.spatial import cKDTree

        return cKDTree(self._boxed[points])

    def _straight_radius(self, radius: float) -> float:
        """Return a straight distance that covers every point within the radius."""
        straight = radius
        if self._sphere:
            straight = 2.0 * math.sin(min(math.pi / 2.0, radius / (2.0 * EARTH_RADIUS_KM)))
        return straight * (1.0 + 1e-9) + 1e-9 * self._sphere

    def cheapest(self, facilities: Ints, cost: Floats) -> Ints:
        """See `Metric.cheapest`; about O(n log n).

        The tree has one more dimension, in which facility u is raised by cost_u. Then its distance from v is
        sqrt(d(u, v)^2 + cost_u^2), which is at most d(u, v) + cost_u. So every facility that is farther away than the
        best sum so far costs more than that.
        """
        from scipy.spatial import cKDTree

        unit, min_cost = EARTH_RADIUS_KM if self._sphere else 1.0, cost[facilities].min()
        raised = np.column_stack([unit * self._boxed[facilities], cost[facilities] - min_cost])
        unique_rows = np.sort(np.unique(raised, axis=0, return_index=True)[1])  # of equals the first
        facilities, tree = facilities[unique_rows], cKDTree(raised[unique_rows])
        remaining, count, answer = np.arange(self.size), FIRST_NEIGHBOURS, np.empty(self.size, dtype=np.int64)
        while len(remaining):
            count, undecided = min(count, len(facilities)), []
            for part in np.array_split(remaining, -(-len(remaining) * count // BLOCK_ENTRIES)):
                level = np.column_stack([unit * self._boxed[part], np.zeros(len(part))])
                distances, neighbours = tree.query(level, k=np.arange(1, count + 1), workers=-1)
                candidates = facilities[neighbours]
                sums = cost[candidates] + self.distances_between(np.repeat(part, count), candidates.ravel()).reshape(
                    candidates.shape
                )
                best = sums.min(axis=1)
                answer[part] = np.where(sums == best[:, None], candidates, self.size).min(axis=1)
                min_other_sums = distances[:, -1] * (1.0 - 1e-9) - 1e-9 * self._sphere
                undecided.append(part[(min_other_sums <= best - min_cost) & (count < len(facilities))])
            remaining, count = np.concatenate(undecided), 2 * count
        return answer

    def neighbours_within(self, among: Ints, radius: float) -> Callable[[int], Ints]:
        """See `Metric.neighbours_within`. Each call searches the tree."""
        tree, straight = self._make_tree(among), self._straight_radius(radius)

        def find_neighbours(point: int) -> Ints:
            candidates = np.asarray(tree.query_ball_point(self._boxed[point], straight), dtype=np.int64)
            return candidates[self.distances_between(np.full(len(candidates), point), among[candidates]) <= radius]

        return find_neighbours

    def assign_balls(self, centres: Ints, radius: float) -> Ints:
        """See `Metric.assign_balls`. The nearest centre is the only candidate, because balls do not overlap."""
        straight = np.nextafter(self._straight_radius(radius), np.inf)  # the tree's bound is exclusive
        nearest_centres = self._make_tree(centres).query(self._boxed, distance_upper_bound=straight)[1]
        inside = np.flatnonzero(nearest_centres < len(centres))
        inside = inside[self.distances_between(inside, centres[nearest_centres[inside]]) <= radius]
        owner = np.full(self.size, -1)
        owner[inside] = centres[nearest_centres[inside]]
        return owner

    def distances_between(self, a: Ints, b: Ints) -> Floats:
        """See `Metric.distances_between`: Euclidean, or haversine in km."""
        first, second = self._exact[a].T, self._exact[b].T
        if not self._sphere:
            return np.asarray(np.sqrt((first[0] - second[0]) ** 2 + (first[1] - second[1]) ** 2))
        north, east = np.sin((first[0] - second[0]) / 2.0), np.sin((first[1] - second[1]) / 2.0)
        half = north * north + first[2] * second[2] * (east * east)
        return np.asarray(2.0 * EARTH_RADIUS_KM * np.arcsin(np.minimum(1.0, np.sqrt(half))))


@frozen(eq=False, init=False)
class Plane(_PointSet):
    """Euclidean distance between planar points.

    >>> import numpy as np
    >>> plane = Plane(np.array([[0.0, 0.0], [3.0, 4.0]]))
    >>> plane.distances_between(np.array([0]), np.array([1]))
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
        is_valid = degrees.ndim == 2 and degrees.shape[1] == 2 and np.isfinite(degrees).all()
        if not is_valid or (np.abs(degrees[:, 0]) > 90.0).any():
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
        expectation = "a symmetric (n, n) matrix of finite distances with zero diagonal"
        if d.ndim != 2 or d.shape[0] != d.shape[1] or not np.isfinite(d).all() or (d < 0).any():
            raise InputError([Fault(self.source, "", f"shape {d.shape}", expectation)])
        scale = float(d.max(initial=0.0))
        if np.diagonal(d).any() or (np.abs(d - d.T) > 1e-12 * scale).any():
            raise InputError([Fault(self.source, "", "an unsymmetric matrix or a non-zero diagonal", expectation)])
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

    def neighbours_within(self, among: Ints, radius: float) -> Callable[[int], Ints]:
        """See `Metric.neighbours_within`."""
        return lambda point: np.flatnonzero(self.distances[point, among] <= radius)

    def assign_balls(self, centres: Ints, radius: float) -> Ints:
        """See `Metric.assign_balls`."""
        nearest_centres = np.argmin(self.distances[centres], axis=0)
        return np.where(
            self.distances[centres[nearest_centres], np.arange(self.size)] <= radius, centres[nearest_centres], -1
        )

    def distances_between(self, a: Ints, b: Ints) -> Floats:
        """See `Metric.distances_between`."""
        distances: Floats = self.distances[a, b]
        return distances
