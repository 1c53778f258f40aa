"""Meshes of equilateral triangles that cover the polygons in a GeoJSON object."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from privopt.checker.exact import need
from privopt_metric_dp.checkers.projection import Point

__all__ = ["Corners", "lattice", "polygons"]

Corners = tuple[int, int, int]
"""The vertex indices of a triangle's corners in counterclockwise order."""

Place = Sequence[float]
Ring = list[tuple[float, float]]


def polygons(shape: dict[str, Any]) -> Iterator[list[Ring]]:
    """Yield each polygon in a GeoJSON object as a list of rings, the outer ring first and then any holes.

    Nested objects are searched recursively. Points and lines are skipped. Positions are in GeoJSON's order, with the
    longitude or x first.
    """
    kind = str(shape["type"])
    within = {"FeatureCollection": "features", "GeometryCollection": "geometries"}.get(kind, "")
    for part in shape.get(within, []):
        yield from polygons(part)
    if kind == "Feature":
        yield from polygons(shape["geometry"])
    if kind in ("Polygon", "MultiPolygon"):
        several = shape["coordinates"] if kind == "MultiPolygon" else [shape["coordinates"]]
        for rings in several:
            yield [[(float(position[0]), float(position[1])) for position in ring] for ring in rings]


def lattice(polygons: list[list[Ring]], side_mm: float, max_triangles: int) -> tuple[list[Point], list[Corners]]:
    """Cover polygons with a mesh of equilateral triangles, each of which overlaps at least one polygon.

    The triangles belong to a regular lattice over the polygons' bounding box. A triangle overlaps a polygon if a
    boundary segment passes through its interior, or if its centre lies in the polygon.

    Args:
        polygons: The rings of each polygon, as positions in millimetres.
        side_mm: The side length of the triangles, in millimetres.
        max_triangles: The maximum number of triangles in a release. The lattice over the bounding box may have up to
            1,000 more rhombi (pairs of triangles) than this, but at most 10**7.

    Returns:
        The vertices of the mesh in integer millimetres, and the vertex indices of each triangle's corners.

    Raises:
        RefusedError: The lattice over the bounding box has too many triangles.
    """
    pieces = [piece for rings in polygons for ring in rings for piece in itertools.pairwise(ring)]
    xs, ys = ([points[axis] for piece in pieces for points in piece] for axis in (0, 1))
    # The height of an equilateral triangle. The lattice extends beyond the box by one side to the west and at least one
    # to the east, because every second row is shifted.
    height, west, south = side_mm * 0.75**0.5, min(xs) - side_mm, min(ys)
    cols = math.ceil((max(xs) - min(xs)) / side_mm + 3)
    rows = math.ceil((max(ys) - south) / height + 1)
    # Too large a lattice is rejected before it is computed, because a few numbers in a file can request any size.
    need(cols * rows <= min(10**7, max_triangles + 1000), "problem: mesh: too many triangles", 2)
    # Every second row of points is shifted by half a side, which makes the triangles equilateral.
    points = [(west + (c + r % 2 / 2) * side_mm, south + r * height) for r in range(rows + 1) for c in range(cols + 1)]
    triangles = _lattice_triangles(rows, cols)
    middles = [[sum(points[v][axis] for v in t) / 3 for axis in (0, 1)] for t in triangles]
    # As in `solve`, this is computed in doubles. The result must equal the stored mesh, so a difference is detected.
    selected = {n for n, middle in enumerate(middles) if _is_inside(middle, polygons)}
    for tail, head in pieces:
        for start, end in itertools.pairwise(_divide_segment(tail, head, side_mm)):
            # Each part of a boundary is no longer than a side, so it meets only triangles in the 4 x 4 rhombi around
            # it.
            first_row = math.floor((min(start[1], end[1]) - south) / height) - 1
            first_column = math.floor((min(start[0], end[0]) - west) / side_mm) - 1
            for r, c in itertools.product(range(first_row, first_row + 4), range(first_column, first_column + 4)):
                if 0 <= r < rows and 0 <= c < cols:
                    pair = (2 * (r * cols + c), 2 * (r * cols + c) + 1)
                    selected |= {n for n in pair if _do_meet([points[v] for v in triangles[n]], start, end)}
    # Renumber the vertices that are used, in the order of the lattice.
    used_vertices = sorted({v for n in selected for v in triangles[n]})
    new_number = {v: i for i, v in enumerate(used_vertices)}
    mesh = [(new_number[a], new_number[b], new_number[c]) for a, b, c in (triangles[n] for n in sorted(selected))]
    return [(round(points[v][0]), round(points[v][1])) for v in used_vertices], mesh


def _lattice_triangles(rows: int, cols: int) -> list[Corners]:
    """Divide each rhombus of a lattice into two triangles. Rhombi in odd rows are mirrored.

    Args:
        rows, cols: The numbers of rows and columns of rhombi. Each row of lattice points has ``cols + 1`` points.

    Returns:
        The point indices of each triangle's corners in counterclockwise order. The triangles in row r and column c have
        the indices 2 (r cols + c) and 2 (r cols + c) + 1.
    """
    triangles: list[Corners] = []
    for r, c in itertools.product(range(rows), range(cols)):
        # The rhombus's lower left and upper left corners are a and b. Odd rows of points are shifted to the right.
        a = r * (cols + 1) + c
        b = a + cols + 1
        if r % 2:
            triangles += [(a, a + 1, b + 1), (a, b + 1, b)]
        else:
            triangles += [(a, a + 1, b), (a + 1, b + 1, b)]
    return triangles


def _divide_segment(tail: Place, head: Place, max_length: float) -> list[list[float]]:
    """Divide a segment into the smallest number of equal parts that are no longer than ``max_length``.

    Returns:
        The end points of the parts in order, from ``tail`` to ``head`` inclusive.
    """
    parts = max(1, math.ceil(math.hypot(head[0] - tail[0], head[1] - tail[1]) / max_length))
    return [[x + (y - x) * (n / parts) for x, y in zip(tail, head, strict=True)] for n in range(parts + 1)]


def _is_inside(middle: list[float], polygons: list[list[Ring]]) -> bool:
    """Return whether a point lies inside at least one polygon according to the even-odd rule.

    It lies inside a polygon if a ray due west from it crosses an odd number of the polygon's sides.

    Args:
        middle: The point (x, y).
        polygons: The rings of each polygon. Sides of holes count like sides of outer rings.
    """
    x, y = middle

    def is_west(a: Place, b: Place) -> bool:
        """Return whether the ray due west from the point crosses the side ab."""
        # The interval is half-open, so a corner at the point's height counts for only one of its two sides.
        crosses = (a[1] <= y) != (b[1] <= y)
        return crosses and a[0] + (y - a[1]) * ((b[0] - a[0]) / (b[1] - a[1])) < x

    def sides(rings: list[Ring]) -> Iterator[tuple[Place, Place]]:
        """Yield the sides of all rings of a polygon."""
        return (piece for ring in rings for piece in itertools.pairwise(ring))

    return any(sum(is_west(*piece) for piece in sides(rings)) % 2 for rings in polygons)


def _do_meet(corners: list[Any], start: Place, end: Place) -> bool:
    """Return whether a segment passes through the interior of a triangle, using the separating-axis test.

    Two convex shapes are disjoint if and only if an axis perpendicular to one of their sides separates them. A segment
    that only touches the triangle does not pass through its interior.

    Args:
        corners: The triangle's three corners (x, y).
        start, end: The ends (x, y) of the segment.
    """
    sides = [
        (corners[0], corners[1]),
        (corners[1], corners[2]),
        (corners[2], corners[0]),
        (start, end),
    ]
    for a, b in sides:
        # Both shapes are projected onto the side's normal (x, y).
        x, y = a[1] - b[1], b[0] - a[0]
        of_triangle = [x * point[0] + y * point[1] for point in corners]
        of_segment = [x * point[0] + y * point[1] for point in (start, end)]
        if max(of_triangle) <= min(of_segment) or max(of_segment) <= min(of_triangle):
            return False
    return True
