"""Distances between records, and from records to outputs, computed from the files of a problem.

Distances are integers scaled by 2**256. ``low`` converts a rational to this scale and rounds it down, and ``ONE``
represents 1. ``need`` raises RefusedError with code 2 if a release cannot be checked, for example because a key in its
problem is unknown to this checker.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from privopt.checker.exact import (
    BITS,
    ONE,
    PI,
    RADIUS_KM,
    arcsine_of_root,
    cosine,
    log_down,
    low,
    need,
)
from privopt.checker.files import Problem
from privopt_metric_dp.checkers.places import Places
from privopt_metric_dp.checkers.roads import Lengths, Network, Road, read_roads, ways

__all__ = ["Factor", "Metric"]

Distances = Callable[[int], Sequence[Any]]
"""A function that takes the index of a place and returns its distance to every record, or None if there is no path."""

Factor = tuple[str, str, Fraction]
"""The ids of two adjacent vertices in a region, and the factor 1 + a by which weights in their rows may differ."""

KEYS = {
    "euclidean": "kind",
    "haversine": "kind",
    "graph": "kind edges",
    "matrix": "kind matrix output_matrix",
}
"""For each kind of distance, the keys that its ``[distance]`` table may contain."""

TAKES = {"euclidean": ("planar", "vector"), "haversine": ("geographic",)}
"""The kinds of places accepted by each kind of distance. Kinds of distance that are not listed accept any."""

MAX_CACHED_ROWS = 4096
"""The maximum number of rows of distances to keep in a cache, because each row is requested three times."""

ARCS = ONE >> 96
"""An upper bound on the error in the computed length of an arc, in units of 2**-256 km."""


class Metric:
    """The distances in a problem. Computed distances are never longer than true ones, and shorter by at most ``room``.

    Attributes:
        kind: The kind of distance, which is a key of :data:`KEYS`.
        records, outputs: The places between which distances are measured.
        points: The ids of the obfuscation matrix's rows: the records, and any vertices added by a region.
        place: The index of each row by its id. It is set only for distances along roads.
        ready: A function that converts the coordinates of a place to the form that ``way`` takes.
        way: A function that returns the distance between two places, given their coordinates in this form.
        there: The coordinates of the outputs in this form.
        own: A function that takes the index of a row and returns the distances from this row to all rows.
        held: A function like ``own``, but for the distances used in privacy constraints. In a region, these are
            measured along its edges.
        ends: A function that takes the index of an output and returns the distances from this output to all rows.
        room: The largest amount by which a distance can be too small, scaled by 2**256.
        roads: A function that returns shortest path lengths along the roads, or None for other kinds of distance.
        streets: The roads. Empty for other kinds of distance.
        network: The road network if privacy constraints use distances along it, or else None.
        unit: The unit of distance.
    """

    def __init__(self, problem: Problem, chosen_ids: list[str] | None = None) -> None:
        """Read ``[distance]``, ``[records]`` and ``[outputs]``.

        Args:
            problem: The published problem.
            chosen_ids: The ids of the outputs if they were chosen among the records, or else None.

        Raises:
            RefusedError: The kind of distance is unknown, or does not apply to the problem's kind of places.
        """
        kind = problem.tables["distance"].get("kind")
        need(kind in KEYS, f"problem: distance.kind {kind!r}: unknown here", 2)
        table = problem.table("distance", KEYS[kind])
        self.records = Places(problem, "records")
        self.outputs = self.records
        if chosen_ids is not None:
            self.outputs = self.records.select(chosen_ids, problem.table("outputs", "choose")["choose"])
        elif "outputs" in problem.tables:
            self.outputs = Places(problem, "outputs")
        pair = self.records.kind, self.outputs.kind
        fits = kind not in TAKES or (pair[0] == pair[1] and pair[0] in TAKES[kind])
        need(fits, f"problem: distance.kind {kind!r} does not take {' and '.join(pair)} places", 2)
        # Rounding down loses less than 2**-256. Some kinds of distance set a larger room.
        self.kind, self.points, self.room = kind, self.records.ids, 1
        self.roads: Lengths | None = None
        self.streets: list[Road] = []
        self.network: Network | None = None
        self._record_points: list[Any] = []
        # Tables and vectors do not name their unit.
        has_no_unit = kind == "matrix" or self.records.kind == "vector"
        self.unit = "unit of distance" if has_no_unit else self.records.unit
        # Only straight lines can have another unit. Great circles and roads are measured in km.
        need(
            kind == "euclidean" or self.records.unit == "km",
            f"problem: records.unit: must be omitted with distance.kind {kind!r}",
            2,
        )
        if kind == "euclidean":
            self._measure_on_plane()
        elif kind == "haversine":
            self._measure_on_sphere()
        elif kind == "graph":
            self._measure_along(read_roads(problem, table["edges"]))
        else:
            self._read_matrices(problem, table, chosen_ids)
        self.held = self.own  # a region replaces this by other lengths (`hold_along`)

    own: Distances
    ends: Distances

    def _measure_on_plane(self) -> None:
        """Measure distances between planar places or vectors along straight lines, rounded down."""
        # Over a common denominator, coordinates are integers, and isqrt rounds roots down exactly. The first argument
        # makes a region's millimetres exact, and the points that represent people exact to 2**-64 mm.
        coordinates = [x for place in self.records.at + self.outputs.at for x in place]
        shared = math.lcm(10**6 << 64, *{x.denominator for x in coordinates})

        @lru_cache(MAX_CACHED_ROWS)
        def root(square: int) -> int:
            """Convert a squared distance to a distance scaled by 2**256, rounded down.

            Args:
                square: The squared distance between coordinates in units of 1 / ``shared``.
            """
            return math.isqrt((square << 2 * BITS) // shared**2)

        def ready(place: Sequence[Fraction]) -> tuple[int, ...]:
            """Convert the coordinates of a place to integers in units of 1 / ``shared``."""
            return tuple(int(x * shared) for x in place)

        self._measure_pairs(ready, lambda a, b: root(_squared_distance(a, b)))

    def _measure_on_sphere(self) -> None:
        """Measure distances along great circles as 2 R asin(chord / 2).

        Here R is the radius of the earth, and ``chord`` is the straight-line distance between the two places on the
        unit sphere. The largest possible error of the series for the arcsine is subtracted, so that no computed
        distance is longer than the true one.
        """

        def ready(place: Sequence[int]) -> tuple[int, ...]:
            """Convert a latitude and longitude in radians to a unit vector. All values are scaled by 2**256.

            The sine of x is computed as cos(x - pi / 2).
            """
            latitude, longitude = place
            parallel_radius = cosine(latitude)
            x, y = (parallel_radius * cosine(longitude - turned) >> BITS for turned in (0, PI // 2))
            return x, y, cosine(latitude - PI // 2)

        def way(a: tuple[int, ...], b: tuple[int, ...]) -> int:
            """Return a lower bound on the great-circle distance between two unit vectors, in units of 2**-256 km."""
            if a == b:
                return 0
            # The shift by two extra bits divides the squared chord by 4, so that its root is half the chord.
            return max(0, 2 * RADIUS_KM * arcsine_of_root(_squared_distance(a, b) >> BITS + 2) - ARCS)

        # An arc may be wrong by ARCS in either direction, and ARCS is also subtracted from it.
        self.room = 2 * ARCS
        self._measure_pairs(ready, way)

    def _measure_pairs(self, ready: Callable[[Any], Any], way: Callable[[Any, Any], int]) -> None:
        """Set ``own`` and ``ends``, given a function that measures the distance between two places.

        The coordinates of each place are converted only once.

        Args:
            ready: A function that converts the coordinates of a place to the form that ``way`` takes.
            way: A function that takes two places in this form and returns their distance, scaled by 2**256.
        """
        self.ready, self.way = ready, way
        self._record_points, self.there = ([ready(place) for place in p.at] for p in (self.records, self.outputs))

        @lru_cache(MAX_CACHED_ROWS)
        def row(place: Hashable) -> list[int]:
            """Return the distances from a place with converted coordinates to all rows."""
            return [way(place, b) for b in self._record_points]

        self.own = lambda i: row(self._record_points[i])
        self.ends = lambda k: row(self.there[k])

    def _measure_along(self, streets: list[Road]) -> None:
        """Set up distances along two-way roads, measured as the lengths of shortest paths.

        Args:
            streets: The ids of each road's two ends, and its length in km.

        Raises:
            RefusedError: A record or output is not an end of any road.
        """
        joined = {name for road in streets for name in road[:2]}
        isolated = [name for name in [*self.points, *self.outputs.ids] if name not in joined]
        need(not isolated, f"distance: no road begins or ends at {isolated[:1]}", 2)
        self.network = Network(streets)
        self.place = {name: i for i, name in enumerate(self.points)}
        self.streets, self.roads = streets, self.network.lengths

        @lru_cache(MAX_CACHED_ROWS)
        def row(name: str) -> list[int | None]:
            """Return the length of the shortest path from each row to the node ``name``, or None if there is none."""
            assert self.roads is not None
            return self.roads(name, self.points)

        self.own = lambda i: row(self.points[i])
        self.ends = lambda k: row(self.outputs.ids[k])

    def rows_within(self, i: int, max_distance: int) -> dict[int, int]:
        """Return the distances from row i to all rows within ``max_distance``, as measured for privacy constraints.

        Args:
            i: The index of the row.
            max_distance: The maximum distance, scaled by 2**256.

        Returns:
            The distances by row index, scaled by 2**256.
        """
        if self.network is None:
            return {j: d for j, d in enumerate(self.held(i)) if d is not None and d <= max_distance}
        lengths = self.network.nodes_within(self.points[i], max_distance)
        return {self.place[name]: d for name, d in lengths.items() if name in self.place}

    def first(self, i: int) -> dict[int, int] | None:
        """Return the distances from row i to the rows that can be reached along roads without passing another row.

        Every shortest path between rows consists of such direct paths, so the privacy constraints on the ends of direct
        paths imply the constraints on all other pairs of rows.

        Returns:
            The distances by row index, scaled by 2**256, or None if distances are not measured along roads.
        """
        if self.network is None:
            return None
        lengths = self.network.first(self.points[i], self.place)
        return {self.place[name]: d for name, d in lengths.items()}

    def _read_matrices(self, problem: Problem, table: dict[str, Any], chosen_ids: list[str] | None) -> None:
        """Read distances from the problem's matrices. If the two entries for a pair differ, the smaller one is used.

        Args:
            problem: The published problem.
            table: The ``[distance]`` table, which names the files.
            chosen_ids: The ids of the outputs if they were chosen among the records, or else None.
        """
        records, outputs = len(self.records.ids), len(self.outputs.ids)
        distance_rows = problem.array(table["matrix"], records, records).rows

        @lru_cache(MAX_CACHED_ROWS)
        def row_of(i: int) -> list[int]:
            """Return the distance from record i to each record, which is the smaller of the pair's two entries."""
            pairs = zip((row[i] for row in distance_rows), distance_rows[i], strict=True)
            return [low(Fraction(min(forward, back))) for forward, back in pairs]

        # Unless there are other outputs, these are the records, and both functions return the same distances.
        self.own = self.ends = row_of
        if chosen_ids is not None:
            index_by_id = {name: i for i, name in enumerate(self.points)}
            self.ends = lambda k: row_of(index_by_id[chosen_ids[k]])
        elif "outputs" in problem.tables:
            # Without `output_matrix`, there are no distances to outputs, and losses come from a matrix of costs.
            name = table.get("output_matrix")
            across = [] if name is None else problem.array(name, records, outputs).rows
            self.ends = lambda k: [low(Fraction(row[k])) for row in across]

    def add_places(self, ids: list[str], positions: list[Any]) -> None:
        """Add rows for the vertices of a region.

        Args:
            ids: The ids of all rows, ending with the ids of the added vertices.
            positions: The coordinates of the added vertices.
        """
        self.points = ids
        self._record_points += [self.ready(position) for position in positions]

    def cut_roads(self, ids: list[str], roads: list[Road]) -> None:
        """Replace the roads with their pieces between the vertices of a region.

        From then on, losses are measured along the pieces, whereas privacy constraints use the lengths set by
        :meth:`hold_along`.

        Args:
            ids: The ids of all vertices, which become the rows.
            roads: The pieces, with their lengths in km.
        """
        self.points, self.roads, self.network = ids, ways(roads), None

    def hold_along(self, factors: list[Factor], epsilon: Fraction) -> None:
        """Measure distances in privacy constraints along the edges of a region.

        If weights may change by a factor of 1 + a along an edge, the edge gets the length ln(1 + a) / epsilon.

        Args:
            factors: For each piece of street or triangle side, the ids of its two ends and the factor 1 + a.
            epsilon: Epsilon per km.
        """
        lengths = ways([(a, b, log_down(factor) / epsilon) for a, b, factor in factors])
        # The room is far larger than the errors in the logarithms, which are below a relative 2e-110 plus 1e-119.
        self.held, self.room = lambda i: lengths(self.points[i], self.points), 2 * ARCS


def _squared_distance(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the squared Euclidean distance between two coordinate vectors."""
    return sum([(x - y) ** 2 for x, y in zip(a, b, strict=True)])
