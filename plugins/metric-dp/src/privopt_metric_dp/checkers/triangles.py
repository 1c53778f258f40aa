"""Check Delaunay triangulations, and compute the allowed ratios between matrix rows along the sides of triangles.

All comparisons are exact except in :func:`side_ratios`, which computes with doubles.
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
"""The number of bisection steps in :func:`side_ratios`, which must be the same as in ``solve``."""


def turn(a: Point, b: Point, c: Point) -> int:
    """Return twice the signed area of triangle abc, which is positive if its corners are in counterclockwise order."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def scalar(a: Point, b: Point, c: Point) -> int:
    """Return the dot product of the vectors from b to a and from b to c."""
    return (a[0] - b[0]) * (c[0] - b[0]) + (a[1] - b[1]) * (c[1] - b[1])


def is_flat(a: Point, b: Point, c: Point) -> bool:
    """Return whether the angle at b in triangle abc exceeds 150 degrees (its cosine is below -sqrt(3) / 2)."""
    cosine = scalar(a, b, c)
    return cosine < 0 and 4 * cosine**2 > 3 * scalar(a, b, a) * scalar(c, b, c)


def quarters(corners: Corners, middles: Corners) -> list[Corners]:
    """Divide triangle abc into four triangles by connecting the midpoints of ab, ac and bc.

    Args:
        corners: The vertex indices of a, b and c.
        middles: The vertex indices of the midpoints of ab, ac and bc.
    """
    (a, b, c), (ab, ac, bc) = corners, middles
    return [(a, ab, ac), (ab, b, bc), (ac, bc, c), (bc, ac, ab)]


def _violates_delaunay(p: Point, q: Point, a: Point, b: Point) -> bool:
    """Return whether triangles pqa and qpb, which share the side pq, violate the Delaunay condition.

    They violate it if the angles at a and b sum to more than 180 degrees, because each of a and b then lies in the
    circumcircle of the opposite triangle. In this case, the cotangents of the two angles have a negative sum. To avoid
    divisions, the sum is multiplied by both areas.
    """
    return scalar(p, a, q) * turn(q, p, b) + scalar(p, b, q) * turn(p, q, a) < 0


def triangulates(points: list[Point], triangles: list[Corners]) -> bool:
    """Return whether triangles form a Delaunay triangulation of the points' convex hull, apart from flat notches.

    Flat notches are parts of the hull that are missing from the triangulation but could be filled by nearly flat
    triangles. Once they are filled, the boundary must be a single ring that turns left everywhere and goes around once,
    which ensures that triangles do not overlap.

    Args:
        points: All vertices, in integer millimetres.
        triangles: The vertex indices of each triangle's corners.
    """
    if not triangles:
        return False
    # Each directed side belongs to one triangle, which lies to its left. If a side is repeated, `apex` has too few
    # entries, which is detected below.
    apex = {(t[i - 2], t[i - 1]): t[i] for t in triangles for i in range(3)}
    inner = {(a, b): c for (a, b), c in apex.items() if (b, a) in apex}
    rim = _trace_boundary(points, apex)
    has_rim = rim is not None and len(apex) == 3 * len(triangles)
    if rim is None or not has_rim or len(rim) != len(apex) - len(inner):
        return False
    # All triangles must be counterclockwise, and every point must be a corner of one.
    turns_left = all(turn(points[a], points[b], points[c]) > 0 for (a, b), c in apex.items())
    if not turns_left or {*apex.values()} != {*range(len(points))}:
        return False
    if any(_violates_delaunay(points[a], points[b], points[c], points[apex[b, a]]) for (a, b), c in inner.items()):
        return False
    # `solve` cuts off each triangle whose only side at the boundary is opposite a nearly flat corner, so none may
    # remain.
    for (a, b), c in apex.items():
        at_rim = (a, b) not in inner and {(b, c), (c, a)} <= inner.keys()
        if at_rim and is_flat(points[a], points[c], points[b]):
            return False
    return _fills_hull(points, rim, apex)


def _trace_boundary(points: list[Point], apex: dict[Side, int]) -> list[int] | None:
    """Return the vertices along the boundary of a triangulation, or None if it is not a single closed ring.

    The boundary passes a vertex twice if two parts of the triangulation touch only there.

    Args:
        points: All vertices, in integer millimetres.
        apex: The third corner of the triangle to the left of each directed side, keyed by the side's two ends.

    Returns:
        The vertex indices in order along the boundary. The first one is not repeated at the end.
    """
    next_corners: dict[int, list[int]] = {a: [] for a, b in apex if (b, a) not in apex}
    # A side is on the boundary if it has no triangle on the other side.
    for a, b in apex.keys() - {(b, a) for a, b in apex}:
        next_corners[a].append(b)
    start = min(next_corners)
    rim = [start, next_corners[start].pop()]
    while ways := next_corners.get(rim[-1]):
        u, v, w, x = (points[i] for i in (*rim[-2:], ways[0], ways[-1]))
        # If corner v is passed twice, two sides lead on from it, to w and to x. The boundary follows the one that comes
        # first counterclockwise from the direction back to u. That is w if at least two of the three turns around v are
        # counterclockwise.
        turns = turn(v, u, w), turn(v, w, x), turn(v, x, u)
        rim.append(ways.pop(0 if sum(turned > 0 for turned in turns) > 1 else -1))
    return rim if rim.pop() == start else None


def _fills_hull(points: list[Point], rim: list[int], apex: dict[Side, int]) -> bool:
    """Return whether triangles fill the convex hull of their vertices, apart from flat notches.

    Flat notches (pockets) are missing parts of the hull that could be filled by nearly flat triangles. To check a
    notch, the function fills it with triangles from the hull inwards. The third corner of the triangle added at a side
    is chosen so that the circumcircle contains no other corner.

    Args:
        points: All vertices, in integer millimetres.
        rim: The vertex indices along the boundary of the triangles, in order.
        apex: The third corner of the triangle to the left of each directed side, keyed by the side's two ends.
    """
    hull = _find_hull([points[v] for v in rim])
    # The ring is repeated so that a pocket across its start is also a slice.
    places, rim = [points[v] for v in rim] * 2, rim * 2
    count = len(places) // 2
    # The sides that remain to be treated, each as the positions of its two ends in the ring and the third corner of the
    # filling triangle on its outer side, which is None for the sides of the hull.
    waiting: list[tuple[int, int, Point | None]] = [
        (a, b if a < b else b + count, None) for a, b in zip(hull, [*hull[1:], hull[0]], strict=True)
    ]
    while waiting:
        a, b, outer = waiting.pop()
        p, q = places[a], places[b]
        if b == a + 1:
            # The side is on the boundary, so the third corner is that of the triangle inside.
            corner = points[apex[rim[a], rim[b]]]
        else:
            pocket = [(n, c) for n, c in enumerate(places[a:b], a) if turn(p, c, q) < 0]
            # The corner with the smallest cotangent sees the side under the largest angle, so the circumcircle contains
            # no other corner.
            cotangents = [(Fraction(scalar(p, c, q), -turn(p, c, q)), n) for n, c in pocket]
            if not cotangents or not is_flat(p, places[min(cotangents)[1]], q):
                return False
            c = min(cotangents)[1]
            corner = places[c]
            waiting += [(a, c, q), (c, b, p)]
        if outer is not None and _violates_delaunay(p, q, corner, outer):
            return False
    edge = [places[i] for i in hull]
    # A convex ring goes around once if it has a single lowest corner in some direction.
    lowest = [edge[i - 2] > edge[i - 1] < edge[i] for i in range(len(edge))]
    return lowest.count(True) == 1


def _find_hull(places: list[Point]) -> list[int]:
    """Return the corners of the convex hull of a closed ring, as indices in ``places``.

    Corners at which the ring turns right are removed one by one until it turns left everywhere.
    """
    hull = list(range(len(places)))

    def turns_right(i: int) -> bool:
        """Return whether the ring turns right at ``hull[i - 1]``."""
        a, b, c = (places[hull[j]] for j in (i - 2, i - 1, i))
        return turn(a, b, c) < 0

    while (right := next(filter(turns_right, range(len(hull))), None)) is not None:
        del hull[right - 1]
    return hull


def side_ratios(corners: list[Point], rate: float) -> list[float]:
    """Return the relative change in weights that is allowed along each side of a triangle.

    Along a side of length l, weights z may differ by a factor of 1 + a with a = s epsilon l, where s is the same for
    all three sides. Bisection finds the largest s for which all such weights satisfy |grad z| <= epsilon min(z) in the
    triangle (docs/guide/everywhere.md, "Triangles").

    The floating-point operations are the same as in ``solve``, so that both obtain the same numbers. Privacy does not
    depend on the result, because gradients are checked in integers.

    Args:
        corners: The triangle's corners in integer millimetres.
        rate: Epsilon per millimetre.

    Returns:
        The allowed change a for the side opposite each corner.
    """
    sides = [_from_to(corners[i - 2], corners[i - 1]) for i in range(3)]
    lengths = [math.sqrt(x * x + y * y) for x, y in sides]
    lower, upper = 0.0, 1.0
    for _ in range(RATIO_HALVINGS):
        s = (lower + upper) / 2
        along = [s * rate * length for length in lengths]
        steepest = max(_squared_gradients(sides, lengths, along))
        # This tests |grad z| <= epsilon min z, with both sides multiplied by twice the area.
        if math.sqrt(steepest) <= rate * turn(*corners):
            lower = s
        else:
            upper = s
    # The result is reduced a little so that rounding errors cannot make it too large.
    return [lower * (1.0 - 1e-11) * rate * length for length in lengths]


def _from_to(a: Point, b: Point) -> tuple[float, float]:
    """Return the vector from a to b as doubles."""
    return float(b[0] - a[0]), float(b[1] - a[1])


def _squared_gradients(sides: list[tuple[float, float]], lengths: list[float], along: list[float]) -> list[float]:
    """Return numbers whose maximum is the largest possible (2 area |grad z| / min(z))^2 for weights z in a triangle.

    Let m be the smallest weight, at corner i, and let (1 + p) m and (1 + q) m be the weights at corners j and k.
    Weights differ by at most a factor of 1 + ``along`` along each side, so the allowed points (p, q) form a polygon.
    The expression is a convex function of (p, q) and is therefore largest at a corner of the polygon
    (docs/guide/everywhere.md, "Triangles"). The list contains 0 and the values at the polygon's corners for every
    choice of i.

    Args:
        sides: The vector along the side opposite each corner.
        lengths: The length of the side opposite each corner.
        along: The allowed relative change along the side opposite each corner.
    """
    squares = [0.0]
    for i, j, k in itertools.permutations(range(3)):
        # The side between i and j is opposite k, so p <= along[k], and likewise q <= along[j]. Along the side between j
        # and k, 1 + p and 1 + q differ by at most the factor 1 + across. The polygon's corners with the largest q are
        # covered when j and k are exchanged.
        max_p, across = min(along[k], along[j] + along[i] * (1 + along[j])), along[i]
        min_q = max(0.0, (max_p - across) / (1 + across))
        max_q = min(along[j], max_p + across * (1 + max_p))
        for p, q in ((max_p, min_q), (max_p, max_q), (min(along[k], across), 0.0)):
            # Up to a quarter turn and the sign, twice the area times the gradient is p side j + q side k.
            mixed_term = 2 * p * q * (sides[j][0] * sides[k][0] + sides[j][1] * sides[k][1])
            squares.append((p * lengths[j]) ** 2 + (q * lengths[k]) ** 2 + mixed_term)
    return squares
