"""Positions of a region in whole millimetres, where reports of traces are tried: inside, on borders, outside.

What each is a mixture of and how far it is from the outputs is the kit's own reckoning: the code that snaps positions
and counts steps is not asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from random import Random
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt_metric_dp.kit.check_region import located, street_share
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.region.region import MM_PER_KM, Plane, Streets
from privopt_metric_dp.region.snap_to_region import read_positions

__all__ = ["Spots", "chains", "straight"]

STEPS_MM: Final = (1, 1_000, 50_000)
"""How far twins are drawn apart, mm."""

Mixture = tuple[int, tuple[Fraction, ...]]
"""A simplex, and shares of its corners."""

Measured = tuple[list[Mixture], Floats, Floats]
"""What points are mixtures of, (P, K) mm to outputs, and (P, P) mm between them."""

Place = tuple[Fraction, Fraction]
Along = tuple[int, Fraction]


@frozen(kw_only=True, eq=False)
class Spots:
    """Positions, each beside a twin that is very near.

    Attributes:
        read: (P, 2) as they are read, mm.
        given: (P, 2) as a table has them: x and y in km, or latitudes and longitudes in degrees.
        geographic: whether the latter.
        fresh: (P, K) probability of each output in a fresh report.
        steps: (P, K) whole millimetres to each output.
        apart: (P, P) km between them; infinite where nothing joins them.
    """

    read: Ints
    given: Floats
    geographic: bool
    fresh: Floats
    steps: Ints
    apart: Floats

    @classmethod
    def of(cls, data: MetricData, fresh: Floats, chance: Random) -> Spots | None:
        """Draw some; None where the kit cannot tell how far they are: no map, or ways round a corner.

        Args:
            data: of a problem whose guarantee holds at every point.
            fresh: (N, K) probabilities of outputs for each vertex.
            chance: what they are drawn by.
        """
        region = data.region
        if isinstance(region, Plane):
            ground: _OnPlane | _OnStreets | None = _OnPlane.of(region, data)
        else:
            ground = _OnStreets.of(region, data) if isinstance(region, Streets) else None
        if ground is None:
            return None
        projection = region.projection if isinstance(region, Plane) else None
        drawn = np.array(list(_drawn(ground.corners, ground.places, chance)), dtype=np.int64)
        given = drawn / MM_PER_KM if projection is None else projection.to_earth(drawn)
        read = read_positions(given, projection)
        mixed, far, apart = ground.measured([(x, y) for x, y in read.tolist()])
        assert region is not None
        rows = [
            sum(float(share) * fresh[corner] for share, corner in zip(shares, region.simplices[simplex], strict=True))
            for simplex, shares in mixed
        ]
        return cls(
            read=read,
            given=given,
            geographic=projection is not None,
            fresh=np.array(rows),
            steps=np.floor(far).astype(np.int64),
            apart=apart / MM_PER_KM,
        )


def _drawn(corners: Ints, places: Ints, chance: Random) -> Iterator[tuple[int, int]]:
    """The middle of a simplex, of one of its sides, a corner, far outside, and a twin beside each; one elsewhere."""
    simplex = chance.randrange(len(corners))
    ends = [places[corner].tolist() for corner in chance.sample(corners[simplex].tolist(), corners.shape[1])]
    (ax, ay), (bx, by) = ends[:2]
    middle = sum(x for x, _ in ends) // len(ends), sum(y for _, y in ends) // len(ends)
    low, high = places.min(axis=0), places.max(axis=0)
    beyond = int(2 * high[0] - low[0]) + MM_PER_KM, (middle[1] + ay) // 2
    elsewhere = places[corners[chance.randrange(len(corners))]].mean(axis=0)
    for x, y in (middle, ((ax + bx) // 2, (ay + by) // 2), (ax, ay), beyond):
        step = chance.choice(STEPS_MM)
        across = chance.choice(((bx - ax, by - ay), (ay - by, bx - ax), (by - ay, ax - bx), (ax - bx, ay - by)))
        long = math.hypot(*across) or 1.0
        yield x, y
        yield x + round(step * across[0] / long), y + round(step * across[1] / long)
    yield int(elsewhere[0]), int(elsewhere[1])


def straight(one: Floats, two: Floats) -> Floats:
    """(N, M) straight distances of (N, 2) and (M, 2) points."""
    return np.asarray(np.hypot(*(one[:, None] - two[None]).transpose(2, 0, 1)))


def chains(pairs: Ints, lengths: Floats, count: int) -> Floats:
    """(N, N) shortest sums of lengths along chains of pairs, infinite where there is none."""
    far = np.full((count, count), np.inf)
    for i, j in (pairs.T, pairs.T[::-1]):
        np.minimum.at(far, (i, j), lengths)
    np.fill_diagonal(far, 0.0)
    for between in range(count):
        far = np.minimum(far, far[:, between, None] + far[None, between])
    return far


# --- planes ----------------------------------------------------------------------------------------------


@frozen(kw_only=True, eq=False)
class _OnPlane:
    """Points are (x, y) in mm, rationals on the rim."""

    region: Plane
    outputs: Ints
    rim: list[tuple[int, int]]

    @classmethod
    def of(cls, region: Plane, data: MetricData) -> _OnPlane | None:
        from scipy.spatial import ConvexHull

        space = data.outputs
        if space.coordinates is None or not len(region.simplices):
            return None
        (ax, ay), (bx, by), (cx, cy) = region.vertices[region.simplices].astype(np.float64).transpose(1, 2, 0)
        area = float(((bx - ax) * (cy - ay) - (by - ay) * (cx - ax)).sum()) / 2
        if float(ConvexHull(region.vertices).volume) > area * (1 + 1e-9):
            return None  # ways inside are longer than straight ones
        outputs = read_positions(space.coordinates, region.projection if space.kind == "geographic" else None)
        sides = np.sort(region.simplices[:, [[0, 1], [1, 2], [0, 2]]].reshape(-1, 2), axis=1)
        edges, times = np.unique(sides, axis=0, return_counts=True)
        return cls(region=region, outputs=outputs, rim=[(int(a), int(b)) for a, b in edges[times == 1]])

    @property
    def corners(self) -> Ints:
        return self.region.simplices

    @property
    def places(self) -> Ints:
        return self.region.vertices

    def measured(self, read: list[tuple[int, int]]) -> Measured:
        points = [self._nearest(Fraction(x), Fraction(y)) for x, y in read]
        places = np.array(points, dtype=np.float64)
        mixed = [next(located(self.region, point)) for point in points]
        return mixed, straight(places, self.outputs.astype(np.float64)), straight(places, places)

    def _nearest(self, x: Fraction, y: Fraction) -> Place:
        if next(located(self.region, (x, y)), None) is not None:
            return x, y
        found = [_projected(x, y, self.places[[a, b]].tolist()) for a, b in self.rim]
        return min(found, key=lambda each: each[0])[2]


def _projected(x: Fraction, y: Fraction, ends: list[list[int]]) -> tuple[Fraction, Fraction, Place]:
    """Square of the distance to a segment, the part of the way along it where it is nearest, and that point."""
    (ax, ay), (bx, by) = ends
    long = (bx - ax) ** 2 + (by - ay) ** 2
    part = ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / long if long else Fraction(0)
    part = min(Fraction(1), max(Fraction(0), part))
    px, py = ax + part * (bx - ax), ay + part * (by - ay)
    return (x - px) ** 2 + (y - py) ** 2, part, (px, py)


# --- streets ---------------------------------------------------------------------------------------------


@frozen(kw_only=True, eq=False)
class _OnStreets:
    """Points are a street and the part of the way along it."""

    region: Streets
    epsilon: Fraction
    drawn: Ints
    places: Ints
    table: Floats
    outputs: Ints

    @classmethod
    def of(cls, region: Streets, data: MetricData) -> _OnStreets | None:
        if region.positions is None or region.geographic:
            return None
        known = np.asarray(np.isfinite(region.positions[region.simplices]).all(axis=(1, 2)))
        ids = list(data.records.ids)
        if not known.any() or any(name not in ids for name in data.outputs.ids):
            return None
        return cls(
            region=region,
            epsilon=Fraction(data.epsilon),
            drawn=np.flatnonzero(known),
            places=np.rint(np.nan_to_num(region.positions) * MM_PER_KM).astype(np.int64),
            table=chains(region.simplices, region.km, region.size) * MM_PER_KM,
            outputs=np.array([ids.index(name) for name in data.outputs.ids]),
        )

    @property
    def corners(self) -> Ints:
        return self.region.simplices[self.drawn]

    def measured(self, read: list[tuple[int, int]]) -> Measured:
        points = [self._nearest(Fraction(x), Fraction(y)) for x, y in read]
        ways = np.array([self._ways(self.table, *point) for point in points])
        to = self.table[:, self.outputs]
        to = np.where(np.isfinite(to), to, to[np.isfinite(to)].max(initial=0.0))  # what no way leads to is far off
        far = np.array([self._ways(to, *point) for point in points])
        between = [[self._between(row, one, two) for two in points] for row, one in zip(ways, points, strict=True)]
        return [self._mixed(*point) for point in points], far, np.array(between)

    def _nearest(self, x: Fraction, y: Fraction) -> Along:
        found = [_projected(x, y, self.places[pair].tolist()) for pair in self.corners]
        best = min(range(len(found)), key=lambda place: found[place][0])
        return int(self.drawn[best]), found[best][1]

    def _mixed(self, street: int, part: Fraction) -> Mixture:
        far = street_share(part, self.epsilon * Fraction(float(self.region.km[street])), self.region.steps)
        return street, (1 - far, far)

    def _ways(self, table: Floats, street: int, part: Fraction) -> Floats:
        """mm from a point to what a table has the ways to from each vertex."""
        long = float(self.region.km[street]) * MM_PER_KM
        ends = table[self.region.simplices[street]]
        return np.asarray(np.minimum(ends[0] + float(part) * long, ends[1] + float(1 - part) * long))

    def _between(self, ways: Floats, one: Along, two: Along) -> float:
        long = float(self.region.km[two[0]]) * MM_PER_KM
        round_ends = ways[self.region.simplices[two[0]]] + np.array([float(two[1]), float(1 - two[1])]) * long
        along = abs(float(one[1] - two[1])) * long if one[0] == two[0] else math.inf
        return float(min(*round_ends, along))
