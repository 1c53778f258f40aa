"""Check releases that protect every point of a region of triangles (docs/guide/everywhere.md).

The region lies in a plane or on the earth. Costs and barycentric coordinates are integers scaled by 2**256 (``ONE``
represents 1), and positions are in integer millimetres.
"""

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
"""The minimum number of quadrature points used to represent the people in a region."""

Person = tuple[int, tuple[int, ...], list[int], Any]
"""A quadrature point that represents people.

It consists of its weight, the vertex indices of its triangle's corners, its barycentric coordinates in the triangle,
and its coordinates as converted by ``Metric.ready``.
"""

Part = tuple[tuple[int, ...], ...]
"""The corners of a part of a triangle, in the barycentric coordinates of the whole triangle."""

MILLION = 10**6
"""The number of millimetres in a kilometre."""


class Plane:
    """A region that is divided into triangles. Each vertex of the triangles has a row in the obfuscation matrix.

    Attributes:
        arrays: The additional array that mechanism.npz contains for a region of triangles, in the format of
            :func:`privopt.checker.arrays.read_npz`.
        at: The positions of the vertices, in integer millimetres.
        triangles: The vertex indices of each triangle's corners.
        projection: The map projection for places on the earth, or None for places in a plane.
    """

    arrays = "vertices:i8:2"

    def __init__(self, metric: Metric, cols: int) -> None:
        """Store the metric and the number of columns in the grid, which is 0 if the places do not form a grid."""
        self.metric, self.cols = metric, cols
        self.at: list[Point] = []
        self.triangles: list[Corners] = []
        self.projection = metric.records.projection

    def build(self, epsilon: Fraction, split: float, stored: Sequence[Array]) -> list[Any]:
        """Refine the triangles, and return the arrays that mechanism.npz must contain.

        All triangles are repeatedly divided into quarters until no side is longer than ``split``. The arrays returned
        are the triangles, the number of snapping steps (always 0) and the vertices.

        Args:
            epsilon: Epsilon per km.
            split: The maximum length of a side in km, or 0 for no limit.
            stored: The arrays of simplices, snapping steps and vertices in mechanism.npz.

        Raises:
            RefusedError: Too few triangles are stored, two places coincide, or the stored triangles between places are
                not a Delaunay triangulation.
        """
        self.at, triangles = self._read_triangles(stored[0].rows)
        count, ids = len(self.at), list(self.metric.points)
        used_ids = set(ids)
        while True:
            # Sorting the sides gives new vertices the same indices as in `solve`.
            sides = sorted({_sort_ends(edge) for t in triangles for edge in itertools.combinations(t, 2)})
            # The squared length of the side from a to b is scalar(a, b, a).
            longest = max(scalar(self.at[a], self.at[b], self.at[a]) for a, b in sides)
            if not split or longest <= (split * MILLION) ** 2:
                break
            # Too fine a refinement is rejected before it is computed, because a small `split` can request any number of
            # triangles.
            are_enough = 4 * len(triangles) <= len(stored[0].rows)
            need(are_enough, "mechanism.npz: fewer triangles than the region has")
            middle = {edge: len(self.at) + n for n, edge in enumerate(sides)}
            for a, b in sides:
                (ax, ay), (bx, by) = self.at[a], self.at[b]
                # Midpoints are rounded down to integers, as in `solve`.
                self.at.append((ax + bx >> 1, ay + by >> 1))
                names = (f"{ids[a]}~{ids[b]}~{step}" for step in itertools.count(1))
                ids.append(next(name for name in names if name not in used_ids))
                used_ids.add(ids[-1])
            triangles = [quarter for t in triangles for quarter in quarters(t, _middle_numbers(t, middle))]
        self.triangles = triangles
        self.metric.add_places(ids, [self._to_place(Fraction(x), Fraction(y)) for x, y in self.at[count:]])
        self._hold_sides(ids, epsilon)
        # Only snapping along streets has steps.
        return [triangles, [0], self.at]

    def _hold_sides(self, ids: list[str], epsilon: Fraction) -> None:
        """Limit the ratio between the matrix rows at the two ends of each triangle side.

        A side shared by two triangles gets the smaller of their limits.

        Args:
            ids: The id of each vertex.
            epsilon: Epsilon per km.
        """
        allowed: dict[tuple[int, int], float] = {}
        for t in self.triangles:
            ratios = side_ratios([self.at[v] for v in t], float(epsilon / MILLION))
            for i, ratio in enumerate(ratios):
                # The side is the one opposite corner i.
                edge = _sort_ends((t[i - 1], t[i - 2]))
                # The smaller ratio suffices for both triangles.
                allowed[edge] = min(ratio, allowed.get(edge, ratio))
        factors = [(ids[a], ids[b], 1 + Fraction(ratio)) for (a, b), ratio in allowed.items()]
        self.metric.hold_along(factors, epsilon)

    def _read_triangles(self, stored: list[Any]) -> tuple[list[Point], list[Corners]]:
        """Return the records' positions in integer millimetres and the triangles between them, before any refinement.

        Args:
            stored: The corners of the triangles in mechanism.npz, which are used only if the records form neither a
                mesh nor a grid.

        Raises:
            RefusedError: Two places coincide, or the stored triangles are not a Delaunay triangulation.
        """
        places, cols = self.metric.records, self.cols
        if places.kind == "planar":
            points = [in_millimetres(*position) for position in places.doubles()]
        else:
            projection = self.projection = Projection(places.doubles())
            points = [projection.millimetres(*position) for position in places.doubles()]
        if places.mesh:
            return points, list(places.mesh)
        need(len({*points}) == len(points), "problem: two places coincide in whole millimetres", 2)
        if cols:
            # The cells with a neighbour to the right and another one above.
            lower = [a for a in range(len(points) - cols) if (a + 1) % cols]
            halves = (((a, a + 1, a + cols), (a + 1, a + cols + 1, a + cols)) for a in lower)
            return points, [t for pair in halves for t in pair]
        # Delaunay triangles are not computed but read from the file and checked. A refinement stores the quarters of
        # each triangle one after another, so it can be undone until all corners are declared points.
        while max(map(max, stored)) >= len(points):
            fours = zip(*[iter(stored)] * 4, strict=True)
            stored = [(p[0], q[1], r[2]) for p, q, r, _ in fours]
        # Triangles are stored in order, and each begins with its smallest corner.
        ordered = stored == sorted(stored) and all(min(t) == t[0] for t in stored)
        is_triangulation = ordered and triangulates(points, stored)
        need(is_triangulation, "mechanism.npz: simplices: not the Delaunay triangles of the places, in order")
        return points, stored

    def _to_place(self, x: Fraction, y: Fraction) -> tuple[Any, Any]:
        """Convert a position in millimetres to the coordinates used by the metric.

        In a plane, these are in km. On the earth, they are the latitude and longitude in radians, scaled by 2**256.
        """
        if self.metric.records.kind == "planar":
            return x / MILLION, y / MILLION
        assert self.projection is not None
        return self.projection.radians(x, y)

    def checked_pairs(self) -> list[tuple[int, int, float, int]]:
        """Return an empty list, because triangles are checked by :meth:`check_inside` instead of as pairs of rows."""
        return []

    def rate(self, excess: float) -> float:
        """Return ln(1 + ``excess``), the log ratio between weights that differ by a factor of 1 + ``excess``."""
        return math.log1p(excess)

    def check_inside(self, rows: Sequence[Sequence[int]], epsilon: Fraction) -> tuple[int, float]:
        """Check that |grad z| <= epsilon min z for every output on every triangle.

        Here z is the weight of the output, interpolated linearly between the triangle's corners. The check is exact,
        because it compares squares of integers.

        Args:
            rows: The weights at the vertices, indexed by vertex and then by output.
            epsilon: Epsilon per km.

        Returns:
            The number of triangles checked, and the largest |grad z| / min z per km.

        Raises:
            RefusedError: An output violates the inequality on a triangle.
        """
        worst = 0.0
        for corners in self.triangles:
            origin, *others = (self.at[v] for v in corners)
            (bx, by), (cx, cy) = ((x - origin[0], y - origin[1]) for x, y in others)
            numerator, denominator = 0, 1
            for weights in zip(*(rows[v] for v in corners), strict=True):
                p, q, min_weight = weights[1] - weights[0], weights[2] - weights[0], min(weights)
                # The gradient is (p AC' - q AB') / D, where D is twice the area (docs/guide/everywhere.md), so `slope`
                # is (D |grad z|)^2. Only the largest slope / min^2 has to be compared with epsilon, so it is kept as a
                # fraction. If the smallest weight is 0, any slope makes the denominator 0 and is rejected.
                slope = (p * cy - q * by) ** 2 + (q * bx - p * cx) ** 2
                if slope * denominator > min_weight * min_weight * numerator:
                    numerator, denominator = slope, min_weight * min_weight
            double_area = bx * cy - by * cx
            max_slope = epsilon * double_area / MILLION
            holds = double_area > 0 and numerator * max_slope.denominator**2 <= denominator * max_slope.numerator**2
            where = f"in triangle {[*corners]} a weight changes by more than epsilon times its smallest value there"
            need(holds, f"{where}, per km")
            # The factor 1e6 converts from millimetres to km.
            worst = max(worst, math.sqrt(Fraction(numerator, denominator)) * 1e6 / double_area)
        return len(self.triangles), worst

    def losses(self, losses: Losses, epsilon: Fraction) -> Losses:
        """Average the losses over people who are spread evenly over the region.

        To report, a person is snapped to a random corner of the triangle they are in, and that corner's row is used.

        Args:
            losses: The losses at the vertices.
            epsilon: Not used, unlike in :class:`privopt_metric_dp.checkers.streets.Streets`.
        """
        metric, vertices, count = self.metric, losses.column, len(self.metric.points)
        people = list(self._spread_people())
        total = sum(mass for mass, *_ in people)

        def column(k: int) -> list[int]:
            """Return the cost of output k at every vertex, scaled by 2**256.

            The cost at a vertex is the mean, over all people, of a person's cost times the probability that the person
            is snapped to the vertex.
            """
            costs = [0] * count
            # A loss that is a distance is measured from the person. Any other loss is interpolated between the corners.
            to = [] if losses.measured else vertices(k)
            for mass, corners, shares, position in people:
                if losses.measured:
                    person_cost = metric.way(metric.there[k], position)
                else:
                    person_cost = sum(to[v] * weight for v, weight in zip(corners, shares, strict=True)) >> BITS
                for v, weight in zip(corners, shares, strict=True):
                    costs[v] += person_cost * weight * mass
            return [cost // (total << BITS) for cost in costs]

        # Costs are already means over people, so every vertex gets the prior 1.
        return replace(losses, prior=[1] * count, whole=1, column=column)

    def _spread_people(self) -> Iterator[Person]:
        """Yield weighted quadrature points that represent people spread evenly over the region.

        Radon's seven-point rule, which is exact for polynomials of degree up to 5, is applied to each triangle or, if
        there are few triangles, to equal parts of each one. On the earth, weights are proportional to the projected
        area times the cosine of the latitude, which is the true area up to a factor.
        """
        parts: list[Part] = [((ONE, 0, 0), (0, ONE, 0), (0, 0, ONE))]
        # All triangles are divided alike, and further the fewer there are.
        while 7 * len(parts) * len(self.triangles) < MIN_POINTS:
            parts = [quarter for part in parts for quarter in _split_into_quarters(part)]
        points = [(weight, _mix_shares(part, seventh)) for part in parts for weight, seventh in _radon_points()]
        for t in self.triangles:
            corners = [self.at[v] for v in t]
            for weight, shares in points:
                axes = zip(*corners, strict=True)
                x, y = (Fraction(sum(map(mul, shares, axis)), ONE) for axis in axes)
                latitude_cosine = cosine(self.projection.radians(x, y)[0]) if self.projection else ONE
                mass = turn(*corners) * weight * latitude_cosine >> BITS
                yield mass, t, shares, self.metric.ready(self._to_place(x, y))


def _sort_ends(edge: tuple[int, int]) -> tuple[int, int]:
    """Return the edge's two vertex indices in ascending order."""
    return min(edge), max(edge)


def _middle_numbers(t: Corners, middle: dict[tuple[int, int], int]) -> Corners:
    """Return the vertex indices of the midpoints of the sides ab, ac and bc of a triangle.

    Args:
        t: The vertex indices of the corners a, b and c.
        middle: The vertex index of each side's midpoint by the side's ends in ascending order.
    """
    a, b, c = t
    return middle[_sort_ends((a, b))], middle[_sort_ends((a, c))], middle[_sort_ends((b, c))]


def _split_into_quarters(part: Part) -> list[Part]:
    """Divide a part of a triangle into four smaller parts by connecting the midpoints of its sides."""
    a, b, c = part
    ab, ac, bc = (tuple(x + y >> 1 for x, y in zip(p, q, strict=True)) for p, q in itertools.combinations(part, 2))
    return [(a, ab, ac), (ab, b, bc), (ac, bc, c), (bc, ac, ab)]


def _radon_points() -> list[tuple[int, list[int]]]:
    """Return the weight and the barycentric coordinates of each of Radon's seven quadrature points.

    All numbers are scaled by 2**256. The weights are in units of 1/1200 of the triangle's area, and sum to 1200.
    """
    root = math.isqrt(15 << 2 * BITS)
    seven = [(270 * ONE, [ONE // 3] * 3)]
    for sign in (-1, 1):
        # Two of the coordinates are (6 +- sqrt 15) / 21, and the weight is (155 +- sqrt 15) / 1200.
        equal, weight = (6 * ONE + sign * root) // 21, 155 * ONE + sign * root
        third = ONE - 2 * equal
        three = [[third, equal, equal], [equal, third, equal], [equal, equal, third]]
        seven += [(weight, shares) for shares in three]
    return seven


def _mix_shares(part: Part, seventh: list[int]) -> list[int]:
    """Convert a quadrature point's barycentric coordinates from a part of a triangle to the whole triangle.

    Args:
        part: The corners of the part, in the barycentric coordinates of the whole triangle.
        seventh: The point's barycentric coordinates in the part.
    """
    return [sum(map(mul, seventh, axis)) >> BITS for axis in zip(*part, strict=True)]
