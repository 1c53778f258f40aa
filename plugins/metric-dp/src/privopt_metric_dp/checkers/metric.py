"""Distances between records, and from records to outputs, as the problem's files have them."""

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
"""Distances of all records from one of that number; None where there is no way."""

Factor = tuple[str, str, Fraction]
"""Two vertices of a region whose rows may differ by that factor, 1 + a."""

KEYS = {
    "euclidean": "kind",
    "haversine": "kind",
    "graph": "kind edges",
    "matrix": "kind matrix output_matrix",
}
"""Kinds of distance and the keys of their tables."""

TAKES = {"euclidean": ("planar", "vector"), "haversine": ("geographic",)}
"""Kinds of places that a kind of distance is between; the others take any."""

MAX_CACHED_ROWS = 4096
"""Rows of distances that are kept: each is asked for three times."""

ARCS = ONE >> 96
"""More than what is lost where an arc is computed."""


class Metric:
    """Distances d of a problem, each at most ``room`` less than the true one and never more.

    Attributes:
        records, outputs: the places.
        points: ids of the rows of a release: the records, and vertices that a region adds.
        own: distances of all rows from one.
        held: those that rows are held to: along a region's pieces if it has any, otherwise ``own``.
        ends: distances of all rows from an output.
        room: by how much a distance may be too short.
        roads: shortest path lengths, for distances along roads; None for others.
        streets: these roads.
        network: these roads, where rows are held to distances along them.
        unit: of a distance.
    """

    def __init__(self, problem: Problem, chosen_ids: list[str] | None = None) -> None:
        """Read ``[distance]``, ``[records]`` and ``[outputs]``.

        Args:
            problem: as it was published.
            chosen: ids of the outputs, if the problem has a number of its records chosen.

        Raises:
            RefusedError: a kind that is unknown here, or places that it is not between.
        """
        kind = problem.tables["distance"].get("kind")
        need(kind in KEYS, f"problem: distance.kind {kind!r}: unknown here", 2)
        table = problem.table("distance", KEYS[kind])
        self.records = Places(problem, "records")
        self.outputs = self.records
        if chosen_ids is not None:
            self.outputs = self.records.some(chosen_ids, problem.table("outputs", "choose")["choose"])
        elif "outputs" in problem.tables:
            self.outputs = Places(problem, "outputs")
        pair = self.records.kind, self.outputs.kind
        fits = kind not in TAKES or (pair[0] == pair[1] and pair[0] in TAKES[kind])
        need(fits, f"problem: {' and '.join(pair)} places beside distance.kind {kind!r}", 2)
        self.kind, self.points, self.room = kind, self.records.ids, 1
        self.roads: Lengths | None = None
        self.streets: list[Road] = []
        self.network: Network | None = None
        self._record_points: list[Any] = []
        bare = kind == "matrix" or self.records.kind == "vector"
        self.unit = "unit of distance" if bare else "km"
        if kind == "euclidean":
            self._measure_on_plane()
        elif kind == "haversine":
            self._measure_on_sphere()
        elif kind == "graph":
            self._measure_along(read_roads(problem, table["edges"]))
        else:
            self._read_matrices(problem, table, chosen_ids)
        self.held = self.own

    own: Distances
    ends: Distances

    def _measure_on_plane(self) -> None:
        """Root of the sum of squares, rounded down."""
        coordinates = [x for place in self.records.at + self.outputs.at for x in place]
        shared = math.lcm(10**6 << 64, *{x.denominator for x in coordinates})

        @lru_cache(MAX_CACHED_ROWS)
        def root(square: int) -> int:
            return math.isqrt((square << 2 * BITS) // shared**2)

        def ready(place: Sequence[Fraction]) -> tuple[int, ...]:
            return tuple(int(x * shared) for x in place)

        self._measure_pairs(ready, lambda a, b: root(_squared_distance(a, b)))

    def _measure_on_sphere(self) -> None:
        """2 R asin(chord / 2), the chord between unit vectors, less what is lost on the way."""

        def ready(place: Sequence[int]) -> tuple[int, ...]:
            latitude, longitude = place
            flat = cosine(latitude)
            x, y = (flat * cosine(longitude - turned) >> BITS for turned in (0, PI // 2))
            return x, y, cosine(latitude - PI // 2)

        def way(a: tuple[int, ...], b: tuple[int, ...]) -> int:
            if a == b:
                return 0
            return max(0, 2 * RADIUS_KM * arcsine_of_root(_squared_distance(a, b) >> BITS + 2) - ARCS)

        self.room = 2 * ARCS
        self._measure_pairs(ready, way)

    def _measure_pairs(self, ready: Callable[[Any], Any], way: Callable[[Any, Any], int]) -> None:
        """Distances between coordinates: made ready once, then pair by pair."""
        self.ready, self.way = ready, way
        self._record_points, self.there = ([ready(place) for place in p.at] for p in (self.records, self.outputs))

        @lru_cache(MAX_CACHED_ROWS)
        def row(place: Hashable) -> list[int]:
            return [way(place, b) for b in self._record_points]

        self.own = lambda i: row(self._record_points[i])
        self.ends = lambda k: row(self.there[k])

    def _measure_along(self, streets: list[Road]) -> None:
        """Measure shortest paths over roads that can all be used in both directions."""
        joined = {name for road in streets for name in road[:2]}
        isolated = [name for name in [*self.points, *self.outputs.ids] if name not in joined]
        need(not isolated, f"distance: no road begins or ends at {isolated[:1]}", 2)
        self.network = Network(streets)
        self.place = {name: i for i, name in enumerate(self.points)}
        self.streets, self.roads = streets, self.network.lengths

        @lru_cache(MAX_CACHED_ROWS)
        def row(name: str) -> list[int | None]:
            assert self.roads is not None
            return self.roads(name, self.points)

        self.own = lambda i: row(self.points[i])
        self.ends = lambda k: row(self.outputs.ids[k])

    def near(self, i: int, max_distance: int) -> dict[int, int]:
        """Return the rows within a distance of one, ``held``, and how far they are."""
        if self.network is None:
            return {j: d for j, d in enumerate(self.held(i)) if d is not None and d <= max_distance}
        lengths = self.network.near(self.points[i], max_distance)
        return {self.place[name]: d for name, d in lengths.items() if name in self.place}

    def first(self, i: int) -> dict[int, int] | None:
        """Return the first rows that roads from a row reach, and how far they are; or None.

        A shortest path between any two rows consists of such pieces, so these imply all other
        pairs.
        """
        if self.network is None:
            return None
        lengths = self.network.first(self.points[i], self.place)
        return {self.place[name]: d for name, d in lengths.items()}

    def _read_matrices(self, problem: Problem, table: dict[str, Any], chosen_ids: list[str] | None) -> None:
        """Stated distances; the lesser of both directions."""
        records, outputs = len(self.records.ids), len(self.outputs.ids)
        distance_rows = problem.array(table["matrix"], records, records).rows

        @lru_cache(MAX_CACHED_ROWS)
        def row_of(i: int) -> list[int]:
            pairs = zip((row[i] for row in distance_rows), distance_rows[i], strict=True)
            return [low(Fraction(min(forward, back))) for forward, back in pairs]

        self.own = self.ends = row_of
        if chosen_ids is not None:
            index_by_id = {name: i for i, name in enumerate(self.points)}
            self.ends = lambda k: row_of(index_by_id[chosen_ids[k]])
        elif "outputs" in problem.tables:
            name = table.get("output_matrix")
            across = [] if name is None else problem.array(name, records, outputs).rows
            self.ends = lambda k: [low(Fraction(row[k])) for row in across]

    def add_places(self, ids: list[str], positions: list[Any]) -> None:
        """Take rows of further vertices, by their ids with all others' and their coordinates."""
        self.points = ids
        self._record_points += [self.ready(position) for position in positions]

    def cut_roads(self, ids: list[str], roads: list[Road]) -> None:
        """Take rows of vertices that divide roads, by all ids and the roads between them."""
        self.points, self.roads, self.network = ids, ways(roads), None

    def hold_along(self, factors: list[Factor], epsilon: Fraction) -> None:
        """Hold rows to factors 1 + a along pieces: their ends as if ln(1 + a) / epsilon apart."""
        lengths = ways([(a, b, log_down(factor) / epsilon) for a, b, factor in factors])
        self.held, self.room = lambda i: lengths(self.points[i], self.points), 2 * ARCS


def _squared_distance(a: Sequence[int], b: Sequence[int]) -> int:
    return sum([(x - y) ** 2 for x, y in zip(a, b, strict=True)])
