"""A region of a plane, or of the earth, with every point covered (docs/guide/everywhere.md)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from operator import mul
from typing import Any

from privopt.checker.arrays import Array
from privopt.checker.exact import BITS, ONE, cosine, need
from privopt_metric_dp.checkers.lattice import Corners
from privopt_metric_dp.checkers.losses import Losses
from privopt_metric_dp.checkers.metric import Metric
from privopt_metric_dp.checkers.projection import Point, Projection, in_millimetres
from privopt_metric_dp.checkers.triangles import (
    quarters,
    scalar,
    side_ratios,
    triangulates,
    turn,
)

__all__ = ["Plane"]

MIN_POINTS = 20_000
"""That represent a region, at least."""

Person = tuple[int, tuple[int, ...], list[int], Any]
"""Mass, corners that somebody is drawn as and their shares, and where they stand."""

Part = tuple[tuple[int, ...], ...]
"""The corners of a part of a triangle, each as shares of the triangle's own."""

MILLION = 10**6
"""Millimetres of a km."""


class Plane:
    """Triangles between places.

    Attributes:
        arrays: what mechanism.npz has next to the weights.
        at: vertices in whole millimetres.
        triangles: between them.
        projection: of places on the earth how they were made flat.
    """

    arrays = "vertices:i8:2"

    def __init__(self, metric: Metric, cols: int) -> None:
        """Take the places of a metric, rows of ``cols`` of a grid."""
        self.metric, self.cols = metric, cols
        self.at: list[Point] = []
        self.triangles: list[Corners] = []
        self.projection = metric.records.projection

    def build(self, epsilon: Fraction, split: float, stored: Sequence[Array]) -> list[Any]:
        """Cut triangles into quarters until sides are short; returns what must be stored of them.

        Args:
            epsilon: per km.
            split: km of a side, at most; 0: no limit.
            stored: simplices, steps and vertices of mechanism.npz.

        Raises:
            RefusedError: fewer triangles are stored; triangles of points that are none of
                Delaunay's.
        """
        self.at, triangles = self._read_triangles(stored[0].rows)
        count, ids = len(self.at), list(self.metric.points)
        used_ids = set(ids)
        while True:
            sides = sorted({_sort_ends(edge) for t in triangles for edge in itertools.combinations(t, 2)})
            longest = max(scalar(self.at[a], self.at[b], self.at[a]) for a, b in sides)
            if not split or longest <= (split * MILLION) ** 2:
                break
            are_enough = 4 * len(triangles) <= len(stored[0].rows)
            need(are_enough, "mechanism.npz: fewer triangles than the region has")
            middle = {edge: len(self.at) + n for n, edge in enumerate(sides)}
            for a, b in sides:
                (ax, ay), (bx, by) = self.at[a], self.at[b]
                self.at.append((ax + bx >> 1, ay + by >> 1))
                names = (f"{ids[a]}~{ids[b]}~{step}" for step in itertools.count(1))
                ids.append(next(name for name in names if name not in used_ids))
                used_ids.add(ids[-1])
            triangles = [quarter for t in triangles for quarter in quarters(t, _middle_numbers(t, middle))]
        self.triangles = triangles
        self.metric.add_places(ids, [self._to_place(Fraction(x), Fraction(y)) for x, y in self.at[count:]])
        self._hold_sides(ids, epsilon)
        return [triangles, [0], self.at]

    def _hold_sides(self, ids: list[str], epsilon: Fraction) -> None:
        """Rows differ along a side by the lesser factor of its triangles."""
        allowed: dict[tuple[int, int], float] = {}
        for t in self.triangles:
            ratios = side_ratios([self.at[v] for v in t], float(epsilon / MILLION))
            for i, ratio in enumerate(ratios):
                edge = _sort_ends((t[i - 1], t[i - 2]))
                allowed[edge] = min(ratio, allowed.get(edge, ratio))
        factors = [(ids[a], ids[b], 1 + Fraction(ratio)) for (a, b), ratio in allowed.items()]
        self.metric.hold_along(factors, epsilon)

    def _read_triangles(self, stored: list[Any]) -> tuple[list[Point], list[Corners]]:
        """Return records in whole millimetres, and the triangles between them before refinement."""
        places, cols = self.metric.records, self.cols
        if places.kind == "planar":
            points = [in_millimetres(*position) for position in places.doubles()]
        else:
            projection = self.projection = Projection(places.doubles())
            points = [projection.millimetres(*position) for position in places.doubles()]
        if places.mesh:
            return points, list(places.mesh)
        need(len({*points}) == len(points), "problem: places that are one in whole millimetres", 2)
        if cols:
            lower = [a for a in range(len(points) - cols) if (a + 1) % cols]  # with cells to the right and above
            halves = (((a, a + 1, a + cols), (a + 1, a + cols + 1, a + cols)) for a in lower)
            return points, [t for pair in halves for t in pair]
        while max(map(max, stored)) >= len(points):  # what was cut into quarters is put together again
            fours = zip(*[iter(stored)] * 4, strict=True)
            stored = [(p[0], q[1], r[2]) for p, q, r, _ in fours]
        ordered = stored == sorted(stored) and all(min(t) == t[0] for t in stored)
        is_triangulation = ordered and triangulates(points, stored)
        need(is_triangulation, "mechanism.npz: simplices: not the triangles of all points")
        return points, stored

    def _to_place(self, x: Fraction, y: Fraction) -> tuple[Any, Any]:
        """Coordinates of a point in millimetres, as places have them."""
        if self.metric.records.kind == "planar":
            return x / MILLION, y / MILLION
        assert self.projection is not None
        return self.projection.radians(x, y)

    def held(self) -> list[tuple[int, int, float, int]]:
        """Return no pair: triangles are held as wholes."""
        return []

    def rate(self, excess: float) -> float:
        """Return the log-ratio of rows that differ by 1 + ``more``."""
        return math.log1p(excess)

    def check_inside(self, rows: Sequence[Sequence[int]], epsilon: Fraction) -> tuple[int, float]:
        """Prove |grad z| <= epsilon min z on each triangle and output, by squares of whole numbers.

        Returns:
            How many triangles there are, and the greatest |grad z| / min z, per km.

        Raises:
            RefusedError: a weight changes by more.
        """
        worst = 0.0
        for corners in self.triangles:
            origin, *others = (self.at[v] for v in corners)
            (bx, by), (cx, cy) = ((x - origin[0], y - origin[1]) for x, y in others)
            numerator, denominator = 0, 1
            for weights in zip(*(rows[v] for v in corners), strict=True):
                p, q, min_weight = weights[1] - weights[0], weights[2] - weights[0], min(weights)
                slope = (p * cy - q * by) ** 2 + (q * bx - p * cx) ** 2
                if slope * denominator > min_weight * min_weight * numerator:
                    numerator, denominator = slope, min_weight * min_weight
            double_area = bx * cy - by * cx
            max_slope = epsilon * double_area / MILLION
            holds = double_area > 0 and numerator * max_slope.denominator**2 <= denominator * max_slope.numerator**2
            where = f"in triangle {[*corners]} a weight changes by more than epsilon times the least"
            need(holds, f"{where}, per km")
            worst = max(worst, math.sqrt(Fraction(numerator, denominator)) * 1e6 / double_area)
        return len(self.triangles), worst

    def losses(self, losses: Losses, epsilon: Fraction) -> Losses:
        """Return losses of people in the region, each drawn as the corners of their triangle."""
        metric, vertices, count = self.metric, losses.column, len(self.metric.points)
        people = list(self._spread_people())
        total = sum(mass for mass, *_ in people)

        def column(k: int) -> list[int]:
            costs = [0] * count
            to = [] if losses.measured else vertices(k)
            for mass, corners, shares, position in people:
                if losses.measured:
                    person_cost = metric.way(metric.there[k], position)
                else:
                    person_cost = sum(to[v] * weight for v, weight in zip(corners, shares, strict=True)) >> BITS
                for v, weight in zip(corners, shares, strict=True):
                    costs[v] += person_cost * weight * mass
            return [cost // (total << BITS) for cost in costs]

        return replace(losses, prior=[1] * count, whole=1, column=column)

    def _spread_people(self) -> Iterator[Person]:
        """People all over: Radon's seven points of each triangle or part, exact to degree 5.

        On the earth masses go by its area, which is the plane's times the cosine of latitude there.
        """
        parts: list[Part] = [((ONE, 0, 0), (0, ONE, 0), (0, 0, ONE))]
        while 7 * len(parts) * len(self.triangles) < MIN_POINTS:
            parts = [quarter for part in parts for quarter in _split_into_quarters(part)]
        points = [(weight, _mix_shares(part, seventh)) for part in parts for weight, seventh in _radon_points()]
        for t in self.triangles:
            corners = [self.at[v] for v in t]
            for weight, shares in points:
                axes = zip(*corners, strict=True)
                x, y = (Fraction(sum(map(mul, shares, axis)), ONE) for axis in axes)
                thin = cosine(self.projection.radians(x, y)[0]) if self.projection else ONE
                mass = turn(*corners) * weight * thin >> BITS
                yield mass, t, shares, self.metric.ready(self._to_place(x, y))


def _sort_ends(edge: tuple[int, int]) -> tuple[int, int]:
    return min(edge), max(edge)


def _middle_numbers(t: Corners, middle: dict[tuple[int, int], int]) -> Corners:
    a, b, c = t
    return middle[_sort_ends((a, b))], middle[_sort_ends((a, c))], middle[_sort_ends((b, c))]


def _split_into_quarters(part: Part) -> list[Part]:
    """Return the four parts of a part of a triangle, whose corners are shares of the triangle's."""
    a, b, c = part
    ab, ac, bc = (tuple(x + y >> 1 for x, y in zip(p, q, strict=True)) for p, q in itertools.combinations(part, 2))
    return [(a, ab, ac), (ab, b, bc), (ac, bc, c), (bc, ac, ab)]


def _radon_points() -> list[tuple[int, list[int]]]:
    """Weights, of 1,200, and barycentric coordinates of Radon's seven points."""
    root = math.isqrt(15 << 2 * BITS)
    seven = [(270 * ONE, [ONE // 3] * 3)]
    for sign in (-1, 1):
        coordinate, weight = (6 * ONE + sign * root) // 21, 155 * ONE + sign * root
        middle, small = ONE - 2 * coordinate, coordinate
        three = [[middle, small, small], [small, middle, small], [small, small, middle]]
        seven += [(weight, shares) for shares in three]
    return seven


def _mix_shares(part: Part, seventh: list[int]) -> list[int]:
    """Shares of the triangle's corners at a point of a part of it."""
    return [sum(map(mul, seventh, axis)) >> BITS for axis in zip(*part, strict=True)]
