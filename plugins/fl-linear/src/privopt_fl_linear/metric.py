"""Metrics between locations given by points in the plane, points on the sphere, or a matrix of distances.

Each metric answers the few queries that the algorithms need. For points, neighbours and cheapest facilities are found
with SciPy's KD-tree. For a matrix, the rows are scanned. Locations and distances are public.
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
from privopt.execution.resources import in_threads
from privopt.numbers.distances import EARTH_RADIUS_KM, directions

__all__ = ["Matrix", "Metric", "Plane", "Sphere"]

BLOCK_ENTRIES: Final = 4_000_000
"""The maximum number of distances to compute at once, which limits memory use."""
FIRST_NEIGHBOURS: Final = 8
"""The initial number of facilities that the tree returns per location. It is doubled for locations that need more."""


class Metric(ABC):
    """A metric space of n locations, which are identified by their indices."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of locations."""

    @property
    @abstractmethod
    def extent(self) -> float:
        """Half the largest distance between any two locations, or an upper bound on it."""

    @abstractmethod
    def assign_balls(self, centres: Ints, radius: float) -> Ints:
        """Return the centre within ``radius`` of each of the n locations, or -1 where there is none.

        ``centres`` and the result are location indices. The centres must be more than twice the radius apart, so that
        no location is within the radius of two of them. The radius is in the metric's unit.
        """

    @abstractmethod
    def neighbours_within(self, among: Ints, radius: float) -> Callable[[int], Ints]:
        """Return a function that finds which locations in ``among`` lie within ``radius`` of a given location.

        The function takes a location index and returns positions in the array ``among``, not location indices.
        """

    @abstractmethod
    def distances_between(self, a: Ints, b: Ints) -> Floats:
        """Return the distance between the locations ``a[i]`` and ``b[i]`` for each i, in the metric's unit."""

    def select_independent(self, candidates: Ints, reach: float) -> Ints:
        """Return a maximal subset of the candidates in which any two are more than ``reach`` apart.

        The subset is built greedily: each candidate is selected in turn, unless a candidate within ``reach`` of it has
        already been selected. The result is therefore a maximal independent set in the graph that joins candidates
        within ``reach`` of each other. ``candidates`` and the result are location indices, and ``reach`` is in the
        metric's unit.
        """
        find_neighbours, is_blocked, selected = (
            self.neighbours_within(candidates, reach),
            np.zeros(len(candidates), np.bool_),
            [],
        )
        for number, point in enumerate(candidates.tolist()):
            if not is_blocked[number]:
                selected.append(point)
                # The candidate is its own neighbour, so it is blocked as well.
                is_blocked[find_neighbours(point)] = True
        return np.array(selected, dtype=np.int64)

    def cheapest(self, facilities: Ints, cost: Floats) -> Ints:
        """Return the facility u that minimises cost_u + d(u, v) for each location v, where d is the distance.

        ``facilities`` contains location indices in ascending order, and ``cost`` is an (n,) array with an entry for
        every location. Ties go to the lowest index. The result is an (n,) array of location indices.
        """
        everyone = np.arange(self.size)
        return facilities[self.nearest(everyone, facilities, cost, np.ones(self.size), 1)[0][:, 0]]

    def nearest(self, places: Ints, facilities: Ints, cost: Floats, scale: Floats, count: int) -> tuple[Ints, Floats]:
        """Return the ``count`` facilities u with the smallest sums scale_v cost_u + d(u, v) for each place v.

        Here d is the distance. The search takes O(M F) time for M places and F facilities.

        Args:
            places: (M,) The location indices of the places v.
            facilities: (F,) The location indices of the facilities.
            cost: (n,) The facility cost at each location.
            scale: (M,) The factor by which facility costs are multiplied for each place.
            count: The number of facilities per place, at most F.

        Returns:
            An (M, count) array of positions in ``facilities`` and an (M, count) array of sums, which are ascending for
            each place. Equal sums are in the order of ``facilities``, and of facilities that are tied for the last
            column, the first ones are chosen.
        """
        which = np.empty((len(places), count), dtype=np.int64)
        value = np.empty((len(places), count))

        def fill_rows(first_row: int, end_row: int) -> None:
            """Compute the rows ``first_row`` to ``end_row - 1`` of ``which`` and ``value``."""
            # Blocks are limited to a quarter of BLOCK_ENTRIES, because threads and temporary arrays multiply the memory
            # needed.
            step = max(1, BLOCK_ENTRIES // (4 * len(facilities)))
            for start in range(first_row, end_row, step):
                stop = min(start + step, end_row)
                endpoints = np.repeat(places[start:stop], len(facilities)), np.tile(facilities, stop - start)
                sums = self.distances_between(*endpoints).reshape(stop - start, -1)
                sums += scale[start:stop, None] * cost[facilities]
                if count == 1:
                    candidates = np.argmin(sums, axis=1)[:, None]
                else:
                    # argpartition would choose among facilities that are tied for the last column in a way that
                    # depends on the processor, and so would the plan.
                    largest = np.partition(sums, count - 1, axis=1)[:, count - 1, None]
                    is_below, is_tied = sums < largest, sums == largest
                    tied_count = count - is_below.sum(axis=1, keepdims=True)
                    is_chosen = is_below | (is_tied & (is_tied.cumsum(axis=1) <= tied_count))
                    # Candidates are in the order of their indices before the stable sort by sum, so that equal sums
                    # are too.
                    candidates = np.nonzero(is_chosen)[1].reshape(-1, count)
                sums = np.take_along_axis(sums, candidates, axis=1)
                order = np.argsort(sums, axis=1, kind="stable")
                which[start:stop] = np.take_along_axis(candidates, order, axis=1)
                value[start:stop] = np.take_along_axis(sums, order, axis=1)

        # Each thread gets some of the rows and computes them in blocks.
        in_threads(fill_rows, len(places))
        return which, value


@frozen(eq=False)
class _PointSet(Metric):
    """The metric between points in the plane or on the sphere, with a KD-tree to find neighbours.

    The tree is searched slightly beyond the radius, and exact distances decide which points are within it. Rounding
    errors in the tree therefore do not affect results.

    Attributes:
        _tree_points: The coordinates of the points in the tree: an (n, 2) array of x and y in the plane, or an (n, 3)
            array of unit vectors on the sphere.
        _exact_points: The coordinates used to compute distances. In the plane, they are an (n, 2) array of x and y. On
            the sphere, they are an (n, 3) array of latitude and longitude in radians and the cosine of the latitude.
        _sphere: Whether the points are on the sphere, with distances in km, rather than in the plane.
    """

    _tree_points: Floats
    _exact_points: Floats
    _sphere: bool

    @property
    def size(self) -> int:
        """The number of locations."""
        return len(self._exact_points)

    @property
    def extent(self) -> float:
        """Half the diagonal of the bounding box.

        On the sphere, the box encloses the points' unit vectors, and the diagonal is converted from a chord to an arc
        in km.
        """
        diagonal = float(np.sqrt(np.sum(np.ptp(self._tree_points, axis=0) ** 2)))
        if not self._sphere:
            return diagonal / 2.0
        return EARTH_RADIUS_KM * math.asin(min(1.0, diagonal / 2.0))

    def _make_tree(self, points: Ints) -> Any:
        """Build a SciPy KD-tree of the locations at the indices ``points``."""
        from scipy.spatial import cKDTree

        return cKDTree(self._tree_points[points])

    def _straight_radius(self, radius: float) -> float:
        """Convert a radius from the metric's unit to a straight-line distance in the tree's coordinates, rounded up."""
        straight = radius
        if self._sphere:
            # The length of the chord that belongs to the arc.
            straight = 2.0 * math.sin(min(math.pi / 2.0, radius / (2.0 * EARTH_RADIUS_KM)))
        # The radius is slightly enlarged so that rounding loses no point. Exact distances decide later.
        return straight * (1.0 + 1e-9) + 1e-9 * self._sphere

    def cheapest(self, facilities: Ints, cost: Floats) -> Ints:
        """Return the facility u that minimises cost_u + d(u, v) for each location v, where d is the distance.

        ``facilities`` contains location indices in ascending order, and ``cost`` is an (n,) array with an entry for
        every location. Ties go to the lowest index. The result is an (n,) array of location indices.

        This takes about O(n log n) time. The tree has an additional coordinate, which is cost_u for facility u and 0
        for location v. The distance between u and v in the tree is therefore sqrt(d(u, v)^2 + cost_u^2), which is at
        most d(u, v) + cost_u. Hence a facility whose distance in the tree exceeds the best sum so far cannot be better.
        """
        from scipy.spatial import cKDTree

        # On the sphere, the tree's points are unit vectors times the Earth's radius, so that its distances are chords
        # in km, which are at most the true distances. Subtracting the lowest cost from all costs changes no comparison
        # but tightens the bound below.
        unit, min_cost = EARTH_RADIUS_KM if self._sphere else 1.0, cost[facilities].min()
        raised = np.column_stack([unit * self._tree_points[facilities], cost[facilities] - min_cost])
        # Of several facilities with the same position and cost, only the first is kept.
        unique_rows = np.sort(np.unique(raised, axis=0, return_index=True)[1])
        facilities, tree = facilities[unique_rows], cKDTree(raised[unique_rows])
        remaining, count, answer = np.arange(self.size), FIRST_NEIGHBOURS, np.empty(self.size, dtype=np.int64)
        # The tree is asked for the `count` nearest facilities of each undecided location, and `count` is doubled in
        # each pass. Locations are split into parts of at most about BLOCK_ENTRIES distances. -(-a // b) is a / b
        # rounded up.
        while len(remaining):
            count, undecided = min(count, len(facilities)), []
            for part in np.array_split(remaining, -(-len(remaining) * count // BLOCK_ENTRIES)):
                level = np.column_stack([unit * self._tree_points[part], np.zeros(len(part))])
                distances, neighbours = tree.query(level, k=np.arange(1, count + 1), workers=-1)
                candidates = facilities[neighbours]
                sums = cost[candidates] + self.distances_between(np.repeat(part, count), candidates.ravel()).reshape(
                    candidates.shape
                )
                best = sums.min(axis=1)
                # Ties go to the lowest index. self.size exceeds every index.
                answer[part] = np.where(sums == best[:, None], candidates, self.size).min(axis=1)
                # A facility that the tree did not return is at least as far away as the last one returned, and its sum
                # minus the lowest cost is at least that distance. A location is decided if this exceeds its best sum.
                # The factor 1 - 1e-9, and 1e-9 km on the sphere, cover rounding errors in the tree's distances.
                min_other_sums = distances[:, -1] * (1.0 - 1e-9) - 1e-9 * self._sphere
                undecided.append(part[(min_other_sums <= best - min_cost) & (count < len(facilities))])
            remaining, count = np.concatenate(undecided), 2 * count
        return answer

    def neighbours_within(self, among: Ints, radius: float) -> Callable[[int], Ints]:
        """Return a function that finds which locations in ``among`` lie within ``radius`` of a given location.

        The function takes a location index and returns positions in the array ``among``. Each call searches a tree that
        contains the locations in ``among``.
        """
        tree, straight = self._make_tree(among), self._straight_radius(radius)

        def find_neighbours(point: int) -> Ints:
            """Return the positions in ``among`` of the locations within ``radius`` of ``point``."""
            candidates = np.asarray(tree.query_ball_point(self._tree_points[point], straight), dtype=np.int64)
            return candidates[self.distances_between(np.full(len(candidates), point), among[candidates]) <= radius]

        return find_neighbours

    def assign_balls(self, centres: Ints, radius: float) -> Ints:
        """Return the centre within ``radius`` of each of the n locations, or -1 where there is none.

        ``centres`` and the result are location indices. The centres must be more than twice the radius apart, so that
        only the nearest one to each location needs to be checked.
        """
        straight = np.nextafter(self._straight_radius(radius), np.inf)  # the tree's bound is exclusive
        nearest_centres = self._make_tree(centres).query(self._tree_points, distance_upper_bound=straight)[1]
        # The tree returns len(centres) for locations without a centre within the bound.
        inside = np.flatnonzero(nearest_centres < len(centres))
        inside = inside[self.distances_between(inside, centres[nearest_centres[inside]]) <= radius]
        owner = np.full(self.size, -1)
        owner[inside] = centres[nearest_centres[inside]]
        return owner

    def distances_between(self, a: Ints, b: Ints) -> Floats:
        """Return the distance between ``a[i]`` and ``b[i]`` for each i: Euclidean, or haversine in km on the sphere."""
        first, second = self._exact_points[a].T, self._exact_points[b].T
        if not self._sphere:
            return np.asarray(np.sqrt((first[0] - second[0]) ** 2 + (first[1] - second[1]) ** 2))
        # The haversine formula, where `half` is the squared sine of half the angle between the points. The coordinates
        # are the latitude, the longitude and the cosine of the latitude.
        north, east = np.sin((first[0] - second[0]) / 2.0), np.sin((first[1] - second[1]) / 2.0)
        half = north * north + first[2] * second[2] * (east * east)
        return np.asarray(2.0 * EARTH_RADIUS_KM * np.arcsin(np.minimum(1.0, np.sqrt(half))))


@frozen(eq=False, init=False)
class Plane(_PointSet):
    """The Euclidean distance between points in the plane.

    >>> import numpy as np
    >>> plane = Plane(np.array([[0.0, 0.0], [3.0, 4.0]]))
    >>> plane.distances_between(np.array([0]), np.array([1]))
    array([5.])
    """

    def __init__(self, points: Any) -> None:
        """Construct the metric from an (n, 2) array of coordinates x and y.

        Raises:
            InputError: ``points`` does not have this shape, or has non-finite entries.
        """
        points = doubles(points)
        if points.ndim != 2 or points.shape[1] != 2 or not np.isfinite(points).all():
            raise InputError([Fault("locations", "x, y", f"shape {points.shape}", "(n, 2) finite numbers")])
        self.__attrs_init__(points, points, False)


@frozen(eq=False, init=False)
class Sphere(_PointSet):
    """The haversine distance in km (R = 6371.0) between points given by latitude and longitude in degrees."""

    def __init__(self, degrees: Any) -> None:
        """Construct the metric from an (n, 2) array of latitudes and longitudes in degrees.

        Raises:
            InputError: ``degrees`` does not have this shape, or has non-finite entries or latitudes outside [-90, 90].
        """
        degrees = doubles(degrees)
        is_valid = degrees.ndim == 2 and degrees.shape[1] == 2 and np.isfinite(degrees).all()
        if not is_valid or (np.abs(degrees[:, 0]) > 90.0).any():
            raise InputError([Fault("locations", "lat, lon", "other numbers", "degrees, latitudes within [-90, 90]")])
        lat, lon = np.radians(degrees).T
        exact = doubles(np.column_stack([lat, lon, np.cos(lat)]))
        self.__attrs_init__(doubles(directions(degrees)), exact, True)


@frozen(eq=False)
class Matrix(Metric):
    """A metric given by an (n, n) matrix that is symmetric, has a zero diagonal and satisfies the triangle inequality.

    The triangle inequality is checked for all triples if there are at most 400 locations, and for two million random
    triples otherwise.

    >>> Matrix([[0.0, 2.0], [2.0, 0.0]]).size
    2

    Attributes:
        distances: (n, n) The distances, in any unit.
        source: The name of the matrix's file, used in error messages.
        file_rows: (n,) The row of each location in the file, used in error messages. None if the locations are in the
            file's order.
    """

    distances: Floats = field(converter=doubles)
    source: str = field(default="matrix", repr=False)
    file_rows: Ints | None = field(default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        """Check that the matrix is a metric.

        Raises:
            InputError: The matrix is not square, has negative or non-finite entries or a non-zero diagonal, is not
                symmetric, or violates the triangle inequality.
        """
        d = self.distances
        expectation = "a symmetric (n, n) matrix of finite distances with zero diagonal"
        if d.ndim != 2 or d.shape[0] != d.shape[1] or not np.isfinite(d).all() or (d < 0).any():
            raise InputError([Fault(self.source, "", f"shape {d.shape}", expectation, is_description=True)])
        scale = float(d.max(initial=0.0))
        # The two halves of the matrix may differ by rounding errors, but not by more.
        uneven = np.argwhere((np.abs(d - d.T) > 1e-12 * scale) | np.diag(np.diagonal(d) != 0.0))
        if len(uneven):
            i, j = uneven[0].tolist()
            row, column = self._row_in_file(i), self._row_in_file(j)
            actual = repr(float(d[i, j]))
            if i != j:
                actual += f" beside {float(d[j, i])!r} in row {column}, column {row}"
            raise InputError([Fault(self.source, f"row {row}, column {column} (from 0)", actual, expectation)])
        if not len(d):
            return
        i, k, j = self._shortest_detour()
        if d[i, j] - (d[i, k] + d[k, j]) > 1e-9 * scale:
            row, via, column = map(self._row_in_file, (i, k, j))
            actual = f"{float(d[i, j])!r} beside {float(d[i, k])!r} + {float(d[k, j])!r} through location {via}"
            expectation = "at most the way through any other location (the triangle inequality)"
            raise InputError([Fault(self.source, f"row {row}, column {column} (from 0)", actual, expectation)])

    def _row_in_file(self, location: int) -> int:
        """Return the row of the file that holds a location's distances."""
        return location if self.file_rows is None else int(self.file_rows[location])

    def _shortest_detour(self) -> tuple[int, int, int]:
        """Return the locations i, k, j that maximise d(i, j) - d(i, k) - d(k, j).

        If the triangle inequality is violated, this maximum is its largest violation. With more than 400 locations,
        only two million random triples are compared.
        """
        d, n = self.distances, len(self.distances)
        if n > 400:
            # The seed is fixed so that it does not depend on chance whether a file is accepted.
            a, b, c = np.random.default_rng(0).integers(0, n, (3, 2_000_000))
            worst = int((d[a, c] - (d[a, b] + d[b, c])).argmax())
            return int(a[worst]), int(b[worst]), int(c[worst])
        excesses = [float((d - (d[:, [k]] + d[[k], :])).max()) for k in range(n)]
        k = int(np.argmax(excesses))
        i, j = divmod(int((d - (d[:, [k]] + d[[k], :])).argmax()), n)
        return i, k, j

    @property
    def size(self) -> int:
        """The number of locations."""
        return len(self.distances)

    @property
    def extent(self) -> float:
        """Half the largest distance between any two locations."""
        return float(self.distances.max(initial=0.0)) / 2.0

    def neighbours_within(self, among: Ints, radius: float) -> Callable[[int], Ints]:
        """Return a function that finds which locations in ``among`` lie within ``radius`` of a given location.

        The function takes a location index and returns positions in the array ``among``.
        """
        return lambda point: np.flatnonzero(self.distances[point, among] <= radius)

    def assign_balls(self, centres: Ints, radius: float) -> Ints:
        """Return the centre within ``radius`` of each of the n locations, or -1 where there is none.

        ``centres`` and the result are location indices. The centres must be more than twice the radius apart.
        """
        nearest_centres = np.argmin(self.distances[centres], axis=0)
        return np.where(
            self.distances[centres[nearest_centres], np.arange(self.size)] <= radius, centres[nearest_centres], -1
        )

    def distances_between(self, a: Ints, b: Ints) -> Floats:
        """Return the distance between the locations ``a[i]`` and ``b[i]`` for each i, in the matrix's unit."""
        distances: Floats = self.distances[a, b]
        return distances
