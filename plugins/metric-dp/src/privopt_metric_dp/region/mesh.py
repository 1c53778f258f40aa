"""Create triangulations: Delaunay triangles between points, grids of cells, lattices over polygons, and refinements.

Every mesh is conforming: any two triangles share a side, a corner or nothing. All given points remain vertices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import evolve

from privopt.arrays import Bools, Floats, Ints
from privopt.errors import Fault, Faults, InputError
from privopt_metric_dp.region.region import MM_PER_KM, Plane
from privopt_metric_dp.space.places import Space, check_places
from privopt_metric_dp.space.projection import Projection, degrees_in_units

__all__ = [
    "BETWEEN",
    "MOST_ACROSS",
    "MOST_VERTICES",
    "lattice",
    "plane_of",
    "refine_plane",
    "refined_places",
    "triangulate",
    "twice_areas",
]

BETWEEN = "~"
"""The separator in the ids of added vertices.

These ids have the form END~END~NUMBER, where the two ENDs are the ids of the ends of the street or side."""

MOST_VERTICES = 1_000_000
"""The maximum number of vertices in a region. It is limited because each vertex has a row in the release."""

MOST_ACROSS = 1_000
"""The largest extent of a region, and the largest side length of a triangle, in km."""

MOST_KM = 4_000_000.0
"""The largest absolute value of a coordinate, in km."""

_FLATTEST = np.cos(np.radians(150.0))
"""The cosine of the largest angle allowed in triangles at the boundary.

Flatter triangles are removed, because they cover hardly any area but force the rows of their corners to be almost
equal."""


def plane_of(records: Space) -> Plane:
    """Triangulate the given places, and return the resulting region of the plane.

    The places of a mesh or a grid keep their triangles. For all other places, a Delaunay triangulation is computed.
    Vertices are integers in millimetres, so areas and orientations are exact. The limit on the region's extent keeps
    the products of two coordinate differences below 2^63.

    Args:
        records: Planar places in km, or geographic places, which are projected (:class:`Projection`).

    Raises:
        InputError: Some places coincide, all places lie on one line, or they are too far apart.
    """
    assert records.coordinates is not None  # kinds of distance with a plane require coordinates
    projection = records.projection
    if records.kind == "geographic":
        # The projection is chosen for the bounding box of these places. Planar records that were projected from degrees
        # already have one.
        projection = Projection.of(records.coordinates, records.source)
        vertices = projection.to_plane(degrees_in_units(records.coordinates))
    else:
        distant = np.flatnonzero((np.abs(records.coordinates) > MOST_KM).any(axis=1))
        if distant.size:
            actual = f"{records.coordinates[distant[0]].tolist()} km"
            expectation = f"coordinates of at most {MOST_KM:,.0f} km"
            raise InputError([Fault(records.source, f"id {records.ids[distant[0]]!r}", actual, expectation)])
        vertices = np.rint(records.coordinates * MM_PER_KM).astype(np.int64)
    # Two vertices at the same place would span triangles with area 0.
    _check_distinct(vertices, records)
    if np.ptp(vertices, axis=0).max() > MOST_ACROSS * MM_PER_KM:
        actual = f"places over {np.ptp(vertices, axis=0).max() / MM_PER_KM:,.0f} km"
        raise InputError([Fault(records.source, "", actual, f"a region of at most {MOST_ACROSS:,} km across")])
    # Outside its box, a projection may stretch distances, and then the guarantee would not apply per km on the earth.
    if projection is not None and not projection.covers(vertices):
        actual = f"places that the projection stretches, beyond {projection.parallel:.6g} degrees"
        raise InputError([Fault(records.source, "", actual, "places inside the box that it was made for")])
    simplices = triangulate(vertices, records) if records.triangles is None else _check_triangles(vertices, records)
    return Plane(size=len(vertices), simplices=simplices, vertices=vertices, projection=projection)


def _check_distinct(vertices: Ints, records: Space) -> None:
    """Check that no two vertices are at the same place.

    Args:
        vertices: Array of shape (N, 2) with the positions in integer millimetres.
        records: The places, for error messages.

    Raises:
        InputError: Some vertices coincide. The error lists the first :data:`privopt.errors.MOST_FAULTS` such vertices.
    """
    _, first_row, group = np.unique(vertices, axis=0, return_index=True, return_inverse=True)
    # Indices of the vertices that are not the first at their place.
    repeated = np.flatnonzero(first_row[group.reshape(-1)] != np.arange(len(vertices)))
    expectation = "places at least a millimetre (geographic: 1e-7 degrees) apart, as corners of triangles"
    faults = Faults()
    for row in repeated.tolist():
        first_id = records.ids[first_row[group.reshape(-1)[row]]]
        faults.add(records.source, f"id {records.ids[row]!r}", f"the place of {first_id!r}", expectation)
    faults.check()


def _check_triangles(vertices: Ints, records: Space) -> Ints:
    """Check the triangles of a mesh or a grid, and return them as an array of shape (S, 3).

    Args:
        vertices: Array of shape (N, 2) with the positions of the places in integer millimetres.
        records: The places, with their triangles.

    Raises:
        InputError: There are no triangles, or the area of some triangle is not positive.
    """
    triangles = records.triangles
    assert triangles is not None  # checked by the caller
    if not len(triangles):
        actual = f"{len(records)} places on one line"
        raise InputError([Fault(records.source, "", actual, "at least 2 rows and 2 columns, which span triangles")])
    if (twice_areas(vertices[triangles]) <= 0).any():
        raise InputError([Fault(records.source, "", "triangles of a few millimetres", "larger triangles")])
    return triangles


def twice_areas(corners: Ints) -> Ints:
    """Return twice the signed areas of triangles, which are positive if the corners are in counter-clockwise order.

    Args:
        corners: Integer array of shape (S, 3, 2) with the corners of each triangle.

    Returns:
        Integer array of shape (S,).
    """
    u, v = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    # The cross product of two sides is twice the signed area.
    areas: Ints = u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]
    return areas


def triangulate(vertices: Ints, records: Space) -> Ints:
    """Return a Delaunay triangulation of points, without the nearly flat triangles at its boundary.

    Args:
        vertices: Array of shape (N, 2) with distinct points in millimetres.
        records: The places, for error messages.

    Returns:
        Array of shape (S, 3) with the corners of the triangles, counter-clockwise, in a fixed order.

    Raises:
        InputError: All points lie on one line, or some point is not a corner of any triangle.
    """
    from scipy.spatial import Delaunay, QhullError

    expectation = "at least three points that do not lie on one line"
    if len(vertices) < 3:
        raise InputError([Fault(records.source, "", f"{len(vertices)} places", expectation)])
    try:
        simplices = Delaunay((vertices - vertices[0]).astype(np.float64)).simplices.astype(np.int64)
    except QhullError:
        raise InputError([Fault(records.source, "", f"{len(vertices)} places on one line", expectation)]) from None
    areas = twice_areas(vertices[simplices])
    # The orientation is corrected by the exact areas, because Qhull determines it in floating point.
    simplices[areas < 0] = simplices[areas < 0][:, [0, 2, 1]]
    # Triangles whose exact area is 0 occur only at the boundary, so removing them leaves no hole.
    simplices = _without_flat_rim(vertices, simplices[areas != 0])
    unused = np.setdiff1d(np.arange(len(vertices)), simplices)
    faults = Faults()
    expectation = "places that are not within millimetres of the line between others"
    for row in unused.tolist():
        faults.add(records.source, f"id {records.ids[row]!r}", "a place that is a corner of no triangle", expectation)
    faults.check()
    # Each triangle begins with its smallest corner index and the triangles are sorted, so that the result does not
    # depend on how the triangulation was computed.
    start = np.argmin(simplices, axis=1)
    simplices = np.take_along_axis(simplices, (start[:, None] + np.arange(3)) % 3, axis=1)
    ordered: Ints = simplices[np.lexsort(simplices.T[::-1])]
    return ordered


def _without_flat_rim(vertices: Ints, triangles: Ints) -> Ints:
    """Remove nearly flat triangles whose longest side is their only side on the boundary.

    Every point remains a corner of some triangle.

    Args:
        vertices: Array of shape (N, 2) with the points in millimetres.
        triangles: Array of shape (S, 3) with the corners of the triangles.

    Returns:
        The remaining triangles.
    """
    while True:
        # Side c of a triangle is opposite its corner c. A side that belongs to only one triangle is at the boundary
        # (the rim).
        sides = np.sort(triangles[:, [[1, 2], [2, 0], [0, 1]]], axis=2)
        _, which, times = np.unique(sides.reshape(-1, 2), axis=0, return_inverse=True, return_counts=True)
        at_rim = times[which.reshape(-1)].reshape(-1, 3) == 1
        corners = vertices[triangles].astype(np.float64)
        ahead, back = np.roll(corners, -1, axis=1) - corners, np.roll(corners, 1, axis=1) - corners
        lengths = np.hypot(ahead[..., 0], ahead[..., 1]) * np.hypot(back[..., 0], back[..., 1])
        # The corners at which the angle is above 150 degrees.
        flat = (ahead * back).sum(axis=2) < _FLATTEST * lengths
        # The side opposite the nearly flat corner is at the boundary, and the other two are inside.
        cut = (flat & at_rim).any(axis=1) & (at_rim.sum(axis=1) == 1)
        if not cut.any() or len(triangles) == 1:
            return triangles
        touched: set[int] = set()
        # Of several triangles that share a corner, only one is removed in each round, because the others may then have
        # two sides at the boundary.
        for row in np.flatnonzero(cut).tolist():
            corners_of = set(triangles[row].tolist())
            cut[row] = not touched & corners_of
            touched |= corners_of
        triangles = triangles[~cut]


def refine_plane(plane: Plane, most_mm: float, file: str = "problem.toml") -> tuple[Plane, list[tuple[int, int]]]:
    """Divide every triangle into four at the midpoints of its sides until no side is longer than a limit.

    Args:
        plane: The plane with the coarser triangles.
        most_mm: The largest allowed side length, in millimetres.
        file: The name of the problem file, for error messages.

    Returns:
        The finer plane, and the two ends of the side divided by each added vertex. The first vertices of the finer
        plane are the original ones.

    Raises:
        InputError: There would be too many vertices, or triangles only a few millimetres wide.
    """
    added: list[tuple[int, int]] = []
    while True:
        endpoints = plane.vertices[plane.edges]
        offsets = endpoints[:, 0] - endpoints[:, 1]
        longest = float((offsets.astype(np.float64) ** 2).sum(axis=1).max())
        if longest <= most_mm**2:
            return plane, added
        # A limit that would lead to too many vertices is rejected before any of them is computed.
        if _refined_size(plane, longest**0.5 / most_mm) > MOST_VERTICES:
            actual = f"{most_mm / MM_PER_KM:g} km, which makes more than {MOST_VERTICES:,} vertices"
            raise InputError([Fault(file, "privacy.split_km", actual, "a greater length")])
        check_places(plane.size + len(plane.edges), f"{file}: privacy.split_km")
        added += [(i, j) for i, j in plane.edges.tolist()]
        plane = _halve_sides(plane, file)


def _refined_size(plane: Plane, ratio: float) -> int:
    """Return a lower bound on the number of vertices after repeatedly halving all sides until none is too long.

    Args:
        plane: The plane before its sides are halved.
        ratio: The length of the longest side divided by the largest allowed length.

    Returns:
        The lower bound. Counting stops once it exceeds `MOST_VERTICES`.
    """
    size, sides, triangles = plane.size, len(plane.edges), len(plane.simplices)
    while ratio > 1 and size <= MOST_VERTICES:
        # A new vertex divides each side into two. Three new inner sides divide each triangle into four.
        size, sides, triangles, ratio = size + sides, 2 * sides + 3 * triangles, 4 * triangles, ratio / 2
    return size


def refined_places(records: Space, split_km: float | None, file: str = "problem.toml") -> tuple[Space, Plane]:
    """Triangulate the plane between given places, and refine the triangles.

    Args:
        records: The given places.
        split_km: The largest allowed side length in km, or None for no refinement.
        file: The name of the problem file, for error messages.

    Returns:
        The vertices as places, starting with the given places, and the refined plane.
    """
    plane = plane_of(records)
    if split_km is None:
        return records, plane
    plane, added = refine_plane(plane, split_km * MM_PER_KM, file)
    # The ids of declared places may contain the separator, so each new id is checked for uniqueness.
    ids = list(records.ids)
    used_ids = set(ids)
    for i, j in added:
        step = 1
        while (name := f"{ids[i]}{BETWEEN}{ids[j]}{BETWEEN}{step}") in used_ids:
            step += 1
        used_ids.add(name)
        ids.append(name)
    added_vertices = plane.vertices[len(records) :]
    geographic = records.kind == "geographic" and plane.projection is not None
    places = (
        plane.projection.to_earth(added_vertices)
        if geographic and plane.projection is not None
        else added_vertices / MM_PER_KM
    )
    assert records.coordinates is not None  # the plane was made from them
    coordinates = np.concatenate([records.coordinates, places])
    # These attributes apply only to declared places, because added vertices have no declared decimals.
    base = evolve(records, rests=None, written=None, corner=None)
    return evolve(base, ids=ids, coordinates=coordinates, triangles=plane.simplices), plane


def _halve_sides(plane: Plane, file: str) -> Plane:
    """Return the plane with a new vertex at the midpoint of each side and each triangle divided into four.

    Args:
        plane: The plane.
        file: The name of the problem file, for error messages.

    Raises:
        InputError: A triangle would have no area because its sides are only a few millimetres long.
    """
    # The midpoint of each side is rounded to whole millimetres only once, so that both triangles at the side get the
    # same vertex and the mesh stays conforming.
    middles = (plane.vertices[plane.edges].sum(axis=1)) >> 1
    m = plane.opposite + plane.size  # array of shape (S, 3), the midpoint of the side opposite each corner
    a, b, c = plane.simplices.T
    # Three triangles at the corners and one in the middle, all counter-clockwise.
    parts = [(a, m[:, 2], m[:, 1]), (m[:, 2], b, m[:, 0]), (m[:, 1], m[:, 0], c), (m[:, 0], m[:, 1], m[:, 2])]
    simplices = np.stack([np.column_stack(part) for part in parts], axis=1).reshape(-1, 3)
    vertices = np.concatenate([plane.vertices, middles])
    if (twice_areas(vertices[simplices]) <= 0).any():
        raise InputError([Fault(file, "privacy.split_km", "triangles of a few millimetres", "a greater length")])
    return evolve(plane, size=len(vertices), simplices=simplices, vertices=vertices)


def lattice(rings: Sequence[Sequence[Floats]], side: float) -> tuple[Ints, Ints]:
    """Return the triangles of an equilateral lattice that intersect the given polygons and together cover them.

    Args:
        rings: The outer ring and the holes of each polygon, as closed arrays of shape (M, 2) in millimetres.
        side: The side length of a triangle in millimetres.

    Returns:
        Array of shape (N, 2) with the vertices in integer millimetres, row by row from the south-west, and an array of
        shape (S, 3) with the triangles.
    """
    lower = np.min([ring.min(axis=0) for polygon in rings for ring in polygon], axis=0)
    upper = np.max([ring.max(axis=0) for polygon in rings for ring in polygon], axis=0)
    height = side * 0.75**0.5
    # The lattice begins one side length to the left, and has enough columns on the right for rows that are shifted by
    # half a side.
    cols, rows = np.ceil((upper - lower) / [side, height] + np.array([3.0, 1.0])).astype(np.int64).tolist()
    start = lower - [side, 0.0]
    r, c = np.divmod(np.arange((rows + 1) * (cols + 1), dtype=np.int64), cols + 1)
    exact = np.column_stack([start[0] + (c + (r % 2) / 2) * side, start[1] + r * height])
    triangles = _lattice_triangles(rows, cols)
    # If no boundary crosses the interior of a triangle, the triangle is inside or outside the region, as its centre is.
    # The other triangles are selected below. The centres are rearranged into rows with the same y: each row of the
    # lattice contains two such rows, one for each kind of triangle.
    centres = exact[triangles].mean(axis=1).reshape(rows, cols, 2, 2).transpose(0, 2, 1, 3).reshape(2 * rows, cols, 2)
    is_inside = np.zeros((2 * rows, cols), dtype=np.bool_)
    for polygon in rings:
        is_inside |= _is_inside(centres, polygon)
    is_selected = is_inside.reshape(rows, 2, cols).transpose(0, 2, 1).reshape(-1)
    points = np.rint(exact).astype(np.int64)
    # The triangles that a boundary crosses are added.
    for polygon in rings:
        for ring in polygon:
            _select_touched(is_selected, exact, triangles, _cut_ring(ring, side), (start, side, height, cols))
    selection = triangles[is_selected]
    vertex_numbers, positions = np.unique(selection, return_inverse=True)
    return points[vertex_numbers], positions.reshape(-1, 3).astype(np.int64)


def _lattice_triangles(rows: int, cols: int) -> Ints:
    """Return the triangles between the points of a lattice, two per rhombus.

    Args:
        rows, cols: The numbers of rows and columns of rhombi. The lattice has rows + 1 rows and cols + 1 columns of
            points. Odd rows are shifted by half a side.

    Returns:
        Array of shape (2 rows cols, 3) with the indices of each triangle's corners.
    """
    r, c = np.divmod(np.arange(rows * cols, dtype=np.int64), cols)
    # The lower left and the upper left point of each rhombus.
    a, b = r * (cols + 1) + c, (r + 1) * (cols + 1) + c
    even_rows, odd_rows = ((a, a + 1, b), (a + 1, b + 1, b)), ((a, a + 1, b + 1), (a, b + 1, b))
    shifted = (r % 2 == 1)[:, None]
    halves = [
        np.where(shifted, np.column_stack(odd), np.column_stack(even))
        for even, odd in zip(even_rows, odd_rows, strict=True)
    ]
    return np.stack(halves, axis=1).reshape(-1, 3)


def _is_inside(points: Floats, polygon: Sequence[Floats]) -> Bools:
    """Return which points lie inside a polygon according to the even-odd rule.

    Args:
        points: Array of shape (rows, columns, 2) with the points. The points of each row have the same y and increasing
            x.
        polygon: The rings of the polygon, as closed arrays of shape (M, 2).

    Returns:
        Boolean array of shape (rows, columns) that is True for each point inside.
    """
    is_inside = np.zeros(points.shape[:2], dtype=np.bool_)
    tails = np.concatenate([ring[:-1] for ring in polygon])
    heads = np.concatenate([ring[1:] for ring in polygon])
    for row in range(len(points)):
        y = float(points[row, 0, 1])
        # The sides that cross the horizontal line through the row. An end on the line counts as below it, so that a
        # corner on the line is counted once.
        crossing = (tails[:, 1] <= y) != (heads[:, 1] <= y)
        t, h = tails[crossing], heads[crossing]
        crossings = np.sort(t[:, 0] + (y - t[:, 1]) * ((h[:, 0] - t[:, 0]) / (h[:, 1] - t[:, 1])))
        is_inside[row] = np.searchsorted(crossings, points[row, :, 0]) % 2 == 1
    return is_inside


def _cut_ring(ring: Floats, side: float) -> Floats:
    """Divide the sides of a ring into pieces no longer than a triangle's side.

    Args:
        ring: Closed array of shape (M, 2) with the corners in millimetres.
        side: The side length of a triangle in millimetres.

    Returns:
        Array of shape (P, 2, 2) with the two ends of each piece.
    """
    step = np.diff(ring, axis=0)
    parts = np.maximum(1, np.ceil(np.hypot(step[:, 0], step[:, 1]) / side)).astype(np.int64)
    row = np.repeat(np.arange(len(step)), parts)
    # The index of each piece within its side.
    number = np.arange(len(row)) - np.repeat(np.cumsum(parts) - parts, parts)
    endpoints = [ring[row] + step[row] * ((number + offset) / parts[row])[:, None] for offset in (0, 1)]
    return np.stack(endpoints, axis=1)


def _select_touched(
    is_selected: Bools, points: Floats, triangles: Ints, pieces: Floats, grid: tuple[Floats, float, float, int]
) -> None:
    """Select the triangles whose interior is crossed by a piece of a boundary.

    Args:
        is_selected: Boolean array of shape (2 rows cols,), modified in place. It is set to True for the triangles that
            are crossed.
        points: Array of shape (V, 2) with the points of the lattice in millimetres, not rounded.
        triangles: Array of shape (2 rows cols, 3) with the triangles in the order of `_lattice_triangles`.
        pieces: Array of shape (M, 2, 2) with the two ends of each piece. No piece is longer than a triangle's side.
        grid: The lattice's south-west corner, side length and row height, all in millimetres, and its number of
            columns.
    """
    start, side, height, cols = grid
    # A piece is no longer than a side and odd rows are shifted, so it intersects at most four rows and four columns.
    corner_cell = np.floor((pieces.min(axis=1) - start) / [side, height]).astype(np.int64) - 1
    for row_step in range(4):
        for column_step in range(4):
            r, c = corner_cell[:, 1] + row_step, corner_cell[:, 0] + column_step
            is_in_grid = (r >= 0) & (c >= 0) & (c < cols) & (r < len(triangles) // (2 * cols))
            for half in range(2):
                # There are two triangles per row and column.
                number = 2 * (r[is_in_grid] * cols + c[is_in_grid]) + half
                corners = points[triangles[number]]
                is_selected[number[_do_meet(corners, pieces[is_in_grid])]] = True


def _do_meet(corners: Floats, pieces: Floats) -> Bools:
    """Return whether each segment passes through the interior of its triangle.

    The separating-axis test is used: two convex shapes are disjoint if their projections onto the normal of some side
    are disjoint.

    Args:
        corners: Array of shape (M, 3, 2) with the corners of each segment's triangle.
        pieces: Array of shape (M, 2, 2) with the two ends of each segment.

    Returns:
        Boolean array of shape (M,) that is True for each segment that passes through its triangle's interior.
    """
    directions = np.concatenate([np.roll(corners, -1, axis=1) - corners, pieces[:, 1:] - pieces[:, :1]], axis=1)
    normals = np.stack([-directions[..., 1], directions[..., 0]], axis=2)
    # Both shapes are projected onto each normal. Shapes that only touch count as disjoint.
    triangle_range, piece_range = (np.einsum("mad,mpd->map", normals, shape) for shape in (corners, pieces))
    is_separated = (triangle_range.max(axis=2) <= piece_range.min(axis=2)) | (
        piece_range.max(axis=2) <= triangle_range.min(axis=2)
    )
    meeting: Bools = ~is_separated.any(axis=1)
    return meeting
