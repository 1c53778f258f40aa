"""The equilateral triangles of a lattice that meet the polygons of a GeoJSON object."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from privopt.checker.exact import need
from privopt_metric_dp.checkers.projection import Point

__all__ = ["Corners", "lattice", "polygons"]

Corners = tuple[int, int, int]
"""Numbers of a triangle's corners, counterclockwise."""

Place = Sequence[float]
Ring = list[tuple[float, float]]


def polygons(shape: dict[str, Any]) -> Iterator[list[Ring]]:
    """Go through the polygons of a GeoJSON object, each its rings."""
    kind = str(shape["type"])
    within = {"FeatureCollection": "features", "GeometryCollection": "geometries"}.get(kind, "")
    for part in shape.get(within, []):
        yield from polygons(part)
    if kind == "Feature":
        yield from polygons(shape["geometry"])
    if kind in ("Polygon", "MultiPolygon"):
        several = shape["coordinates"] if kind == "MultiPolygon" else [shape["coordinates"]]
        for rings in several:
            yield [[(float(at[0]), float(at[1])) for at in ring] for ring in rings]


def lattice(polygons: list[list[Ring]], side: float, max_triangles: int) -> tuple[list[Point], list[Corners]]:
    """Return corners and triangles of the lattice whose inside polygons meet.

    A rim passes there, or its middle is in one.

    Args:
        polygons: their rings, in millimetres.
        side: of a triangle, millimetres.
        max_triangles: triangles beyond it and a thousand more are refused.

    Raises:
        RefusedError: more.
    """
    pieces = [piece for rings in polygons for ring in rings for piece in itertools.pairwise(ring)]
    xs, ys = ([at[axis] for piece in pieces for at in piece] for axis in (0, 1))
    height, west, south = side * 0.75**0.5, min(xs) - side, min(ys)
    cols = math.ceil((max(xs) - min(xs)) / side + 3)
    rows = math.ceil((max(ys) - south) / height + 1)
    need(cols * rows <= min(10**7, max_triangles + 1000), "problem: mesh: too many triangles", 2)
    at = [(west + (c + r % 2 / 2) * side, south + r * height) for r in range(rows + 1) for c in range(cols + 1)]
    triangles = _triangles(rows, cols)
    middles = [[sum(at[v][axis] for v in t) / 3 for axis in (0, 1)] for t in triangles]
    chosen = {n for n, middle in enumerate(middles) if _inside(middle, polygons)}
    for tail, head in pieces:
        for one, other in itertools.pairwise(_stops(tail, head, side)):
            first = math.floor((min(one[1], other[1]) - south) / height) - 1
            left = math.floor((min(one[0], other[0]) - west) / side) - 1
            for r, c in itertools.product(range(first, first + 4), range(left, left + 4)):
                if 0 <= r < rows and 0 <= c < cols:
                    near = (2 * (r * cols + c), 2 * (r * cols + c) + 1)
                    chosen |= {n for n in near if _meet([at[v] for v in triangles[n]], one, other)}
    used = sorted({v for n in chosen for v in triangles[n]})
    place = {v: i for i, v in enumerate(used)}
    mesh = [(place[a], place[b], place[c]) for a, b, c in (triangles[n] for n in sorted(chosen))]
    return [(round(at[v][0]), round(at[v][1])) for v in used], mesh


def _triangles(rows: int, cols: int) -> list[Corners]:
    """Two triangles of each rhombus; those of every second row lean the other way."""
    triangles: list[Corners] = []
    for r, c in itertools.product(range(rows), range(cols)):
        a = r * (cols + 1) + c
        b = a + cols + 1
        if r % 2:
            triangles += [(a, a + 1, b + 1), (a, b + 1, b)]
        else:
            triangles += [(a, a + 1, b), (a + 1, b + 1, b)]
    return triangles


def _stops(tail: Place, head: Place, side: float) -> list[list[float]]:
    """Points that divide a segment into parts no longer than a side."""
    parts = max(1, math.ceil(math.hypot(head[0] - tail[0], head[1] - tail[1]) / side))
    return [[x + (y - x) * (n / parts) for x, y in zip(tail, head, strict=True)] for n in range(parts + 1)]


def _inside(middle: list[float], polygons: list[list[Ring]]) -> bool:
    """Check whether a point is in one of the polygons: an odd number of sides lie to the west."""
    x, y = middle

    def is_west(a: Place, b: Place) -> bool:
        crosses = (a[1] <= y) != (b[1] <= y)
        return crosses and a[0] + (y - a[1]) * ((b[0] - a[0]) / (b[1] - a[1])) < x

    def sides(rings: list[Ring]) -> Iterator[tuple[Place, Place]]:
        return (piece for ring in rings for piece in itertools.pairwise(ring))

    return any(sum(is_west(*piece) for piece in sides(rings)) % 2 for rings in polygons)


def _meet(corners: list[Any], one: Place, other: Place) -> bool:
    """Check whether a segment passes through a triangle: no direction of their sides parts them."""
    sides = [
        (corners[0], corners[1]),
        (corners[1], corners[2]),
        (corners[2], corners[0]),
        (one, other),
    ]
    for a, b in sides:
        x, y = a[1] - b[1], b[0] - a[0]
        these = [x * at[0] + y * at[1] for at in corners]
        those = [x * at[0] + y * at[1] for at in (one, other)]
        if max(these) <= min(those) or max(those) <= min(these):
            return False
    return True
