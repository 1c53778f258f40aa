"""Which side of a region is nearest to a position, and which triangle contains it, in whole numbers.

A second program beside :mod:`privopt_metric_dp.region.locate`, without its cells and doubles.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

from privopt_metric_dp.checkers.lattice import Corners
from privopt_metric_dp.checkers.projection import Point
from privopt_metric_dp.checkers.triangles import scalar, turn

SQUARES = 64
"""Into so many squares a region is divided each way, in which triangles are looked up."""


def nearest(p: Point, sides: list[tuple[Point, Point]]) -> tuple[int, Fraction]:
    """Return the first of the nearest sides to a position, and the part of the way along it."""
    squares = [_square(p, *side_ends) for side_ends in sides]
    rounded = [top / bottom for top, bottom in squares]  # correctly: the least is among the least of these
    min_distance = min(rounded)
    candidates = (n for n, distance in enumerate(rounded) if distance == min_distance)
    n = min(candidates, key=lambda n: Fraction(*squares[n]))
    a, b = sides[n]
    length = scalar(b, a, b)
    return n, Fraction(min(max(scalar(p, a, b), 0), length), max(length, 1))


def _square(p: Point, a: Point, b: Point) -> tuple[int, int]:
    """Return the square of the way from a position to a side, as a fraction."""
    if scalar(p, a, b) <= 0 or scalar(p, b, a) <= 0:
        return min(scalar(p, a, p), scalar(p, b, p)), 1
    return turn(a, b, p) ** 2, scalar(b, a, b)


def triangle_finder(
    points: list[Point], triangles: list[Corners]
) -> Callable[[Point], tuple[Corners, list[int]] | None]:
    """Return what finds a triangle around a position, and its shares times twice the area.

    Borders belong to both sides, which mix the same corners there. Triangles are sorted into
    squares that they meet.
    """
    square_side = max(max(axis) - min(axis) for axis in zip(*points, strict=True)) // SQUARES + 1
    squares: dict[tuple[int, ...], list[Corners]] = {}
    for t in triangles:
        axes = zip(*(points[v] for v in t), strict=True)
        spans = [range(min(axis) // square_side, max(axis) // square_side + 1) for axis in axes]
        for square in itertools.product(*spans):
            squares.setdefault(square, []).append(t)

    def find(p: Point) -> tuple[Corners, list[int]] | None:
        for t in squares.get((p[0] // square_side, p[1] // square_side), []):
            a, b, c = (points[v] for v in t)
            shares = [turn(p, b, c), turn(p, c, a), turn(p, a, b)]
            if min(shares) >= 0:
                return t, shares
        return None

    return find


def rim_of(triangles: list[Corners]) -> list[tuple[int, int]]:
    """Return the sides of one triangle alone, in the order of triangles."""
    sides = [(t[i], t[(i + 1) % 3]) for t in triangles for i in range(3)]
    count = Counter(map(frozenset, sides))
    return [triangle_side for triangle_side in sides if count[frozenset(triangle_side)] == 1]
