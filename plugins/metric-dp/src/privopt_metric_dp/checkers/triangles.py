"""Triangles between points: Delaunay's condition, and how much rows may differ along their sides.

All comparisons but those of :func:`side_ratios` are of whole numbers.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

from privopt_metric_dp.checkers.lattice import Corners
from privopt_metric_dp.checkers.projection import Point

__all__ = ["is_flat", "quarters", "scalar", "side_ratios", "triangulates", "turn"]

Side = tuple[int, int]

RATIO_HALVINGS = 50
"""Of the range in which the least ratio is looked for, as ``solve`` looks for it."""


def turn(a: Point, b: Point, c: Point) -> int:
    """Return twice the area of a triangle, positive where it is counterclockwise."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def scalar(a: Point, b: Point, c: Point) -> int:
    """Return the scalar product of the two sides of a triangle that meet at b."""
    return (a[0] - b[0]) * (c[0] - b[0]) + (a[1] - b[1]) * (c[1] - b[1])


def is_flat(a: Point, b: Point, c: Point) -> bool:
    """Check whether the angle at b is above 150 degrees: its cosine is below -sqrt(3) / 2."""
    cosine = scalar(a, b, c)
    return cosine < 0 and 4 * cosine**2 > 3 * scalar(a, b, a) * scalar(c, b, c)


def quarters(corners: Corners, middles: Corners) -> list[Corners]:
    """Return the four triangles between corners a, b, c and the middles of ab, ac, bc."""
    (a, b, c), (ab, ac, bc) = corners, middles
    return [(a, ab, ac), (ab, b, bc), (ac, bc, c), (bc, ac, ab)]


def _bends_in(p: Point, q: Point, a: Point, b: Point) -> bool:
    """Check whether the angles beyond a side p q, at either side, are above 180 degrees together.

    cot(one) + cot(other) < 0, times both areas; then each corner lies in the circle of the other
    triangle.
    """
    return scalar(p, a, q) * turn(q, p, b) + scalar(p, b, q) * turn(p, q, a) < 0


def triangulates(points: list[Point], triangles: list[Corners]) -> bool:
    """Check whether triangles are Delaunay's, and fill the hull of all points except flat notches.

    With these filled, the one rim turns left all the way, once around: so no point lies in two
    triangles.
    """
    if not triangles:
        return False
    apex = {(t[i - 2], t[i - 1]): t[i] for t in triangles for i in range(3)}
    inner = {(a, b): c for (a, b), c in apex.items() if (b, a) in apex}
    rim = _rim_of(points, apex)
    has_rim = rim is not None and len(apex) == 3 * len(triangles)
    if rim is None or not has_rim or len(rim) != len(apex) - len(inner):
        return False
    turns_left = all(turn(points[a], points[b], points[c]) > 0 for (a, b), c in apex.items())
    if not turns_left or {*apex.values()} != {*range(len(points))}:
        return False
    if any(_bends_in(points[a], points[b], points[c], points[apex[b, a]]) for (a, b), c in inner.items()):
        return False
    for (a, b), c in apex.items():  # none with one side at the rim is flat there
        at_rim = (a, b) not in inner and {(b, c), (c, a)} <= inner.keys()
        if at_rim and is_flat(points[a], points[c], points[b]):
            return False
    return _fills_hull(points, rim, apex)


def _rim_of(points: list[Point], apex: dict[Side, int]) -> list[int] | None:
    """Corners along the one rim of triangles; None where it does not come back to where it began.

    It may pass a corner where two triangles touch twice, and goes on there by the next side to the
    left.
    """
    next_corners: dict[int, list[int]] = {a: [] for a, b in apex if (b, a) not in apex}
    for a, b in apex.keys() - {(b, a) for a, b in apex}:
        next_corners[a].append(b)
    start = min(next_corners)
    rim = [start, next_corners[start].pop()]
    while ways := next_corners.get(rim[-1]):
        u, v, w, x = (points[i] for i in (*rim[-2:], ways[0], ways[-1]))
        turns = turn(v, u, w), turn(v, w, x), turn(v, x, u)  # around v: u, w, x, or u, x, w
        rim.append(ways.pop(0 if sum(turned > 0 for turned in turns) > 1 else -1))
    return rim if rim.pop() == start else None


def _fills_hull(points: list[Point], rim: list[int], apex: dict[Side, int]) -> bool:
    """Check whether triangles with this rim fill the hull except pockets of nearly flat triangles.

    A side of a pocket, from its outside in, has the corner beyond it whose circle holds no other:
    so the order is one.
    """
    hull = _find_hull([points[v] for v in rim])
    places, rim = [points[v] for v in rim] * 2, rim * 2
    count = len(places) // 2
    waiting: list[tuple[int, int, Point | None]] = [
        (a, b if a < b else b + count, None) for a, b in zip(hull, [*hull[1:], hull[0]], strict=True)
    ]
    while waiting:
        a, b, outer = waiting.pop()
        p, q = places[a], places[b]
        if b == a + 1:
            corner = points[apex[rim[a], rim[b]]]
        else:
            pocket = [(n, c) for n, c in enumerate(places[a:b], a) if turn(p, c, q) < 0]
            cotangents = [(Fraction(scalar(p, c, q), -turn(p, c, q)), n) for n, c in pocket]
            if not cotangents or not is_flat(p, places[min(cotangents)[1]], q):
                return False
            c = min(cotangents)[1]
            corner = places[c]
            waiting += [(a, c, q), (c, b, p)]
        if outer is not None and _bends_in(p, q, corner, outer):
            return False
    edge = [places[i] for i in hull]
    lowest = [edge[i - 2] > edge[i - 1] < edge[i] for i in range(len(edge))]
    return lowest.count(True) == 1


def _find_hull(places: list[Point]) -> list[int]:
    """Corners of a rim that are left when those where it turns right are cut off one by one."""
    hull = list(range(len(places)))

    def turns_right(i: int) -> bool:
        a, b, c = (places[hull[j]] for j in (i - 2, i - 1, i))
        return turn(a, b, c) < 0

    while (right := next(filter(turns_right, range(len(hull))), None)) is not None:
        del hull[right - 1]
    return hull


def side_ratios(corners: list[Point], rate: float) -> list[float]:
    """Return s epsilon l, what rows may differ by along sides, opposite each corner, s greatest.

    docs/guide/everywhere.md has the polygon at whose corners the gradient of z is greatest. In
    doubles, as ``solve``
    does it: what is stored is compared with this, and rows are held to it by whole numbers.

    Args:
        corners: of the triangle, millimetres.
        rate: epsilon per millimetre.
    """
    sides = [_from_to(corners[i - 2], corners[i - 1]) for i in range(3)]
    lengths = [math.sqrt(x * x + y * y) for x, y in sides]
    lower, upper = 0.0, 1.0
    for _ in range(RATIO_HALVINGS):
        s = (lower + upper) / 2
        along = [s * rate * length for length in lengths]
        steepest = max(_squared_gradients(sides, lengths, along))
        if math.sqrt(steepest) <= rate * turn(*corners):
            lower = s
        else:
            upper = s
    return [lower * (1.0 - 1e-11) * rate * length for length in lengths]


def _from_to(a: Point, b: Point) -> tuple[float, float]:
    return float(b[0] - a[0]), float(b[1] - a[1])


def _squared_gradients(sides: list[tuple[float, float]], lengths: list[float], along: list[float]) -> list[float]:
    """Squares of twice the area times |grad z| at the corners of the polygon, 0 among them.

    z is least at corner i, (1 + p) z at j and (1 + q) z at k, and rows differ by ``along`` each
    side at most.
    """
    squares = [0.0]
    for i, j, k in itertools.permutations(range(3)):
        max_p, across = min(along[k], along[j] + along[i] * (1 + along[j])), along[i]
        min_q = max(0.0, (max_p - across) / (1 + across))
        max_q = min(along[j], max_p + across * (1 + max_p))
        for p, q in ((max_p, min_q), (max_p, max_q), (min(along[k], across), 0.0)):
            bend = 2 * p * q * (sides[j][0] * sides[k][0] + sides[j][1] * sides[k][1])
            squares.append((p * lengths[j]) ** 2 + (q * lengths[k]) ** 2 + bend)
    return squares
