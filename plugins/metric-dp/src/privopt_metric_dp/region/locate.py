"""Find the simplex that contains a position, or the nearest point in the region, in exact arithmetic.

The simplices are indexed by a regular grid of cells. Coordinates and their products are 64-bit integers if every
triangle extends over less than 2^31 mm (2,147 km), and all sides and distances from sides are shorter than 2^30 mm.
Otherwise, they are Python integers. To find the side nearest to a position, candidates are selected by floating-point
distances. If rounding errors could change which candidate is nearest, their distances are compared as rationals.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from attrs import field, frozen

from privopt.arrays import Floats, Ints, read_only
from privopt.execution.compiled import jit

__all__ = ["FARTHEST", "Cells", "Sides", "Triangles"]

FARTHEST: Final = 1 << 50
"""The largest coordinate in millimetres. The difference between any two such coordinates is exact in doubles."""

_SMALL: Final = 1 << 31
"""The extent in millimetres below which all products of a triangle's coordinate differences fit in 64 bits.

For sides, the limit is half this extent."""
_NEAREST_SIDES: Final = 4  # largest number of listed candidates; if there are more, all sides are compared exactly


class Cells(NamedTuple):
    """A regular grid that indexes boxes (axis-aligned rectangles) by the cells that they intersect.

    The cell in column c and row r has the index c + r * shape[0].

    Attributes:
        origin: Array of shape (2,) with the lower left corner in mm.
        side: The side length of a cell in mm.
        shape: Array of shape (2,) with the number of columns (along x) and the number of rows (along y).
        start: Array of shape (cells + 1,) with offsets. The elements ``start[c]:start[c + 1]`` of ``items`` belong to
            cell c.
        items: The indices of the boxes that intersect each cell, cell by cell.
    """

    origin: Ints
    side: int
    shape: Ints
    start: Ints
    items: Ints

    @classmethod
    def of(cls, lower: Ints, upper: Ints) -> Cells:
        """Build a grid with about as many cells as boxes, or fewer if the boxes would intersect too many cells.

        Args:
            lower, upper: Arrays of shape (S, 2), where S >= 1, with the lower left and upper right corners of each box
                in mm.
        """
        origin = lower.min(axis=0)
        extent = (upper.max(axis=0) - origin + 1).astype(np.float64)
        # The side length is chosen so that there are about as many cells as boxes. It is at least 1 mm, and a row or a
        # column has at most about 4,096 cells.
        cell_mm = int(max(np.sqrt(extent.prod() / len(lower)), extent.max() / 4096, 1.0))
        # Cells are enlarged until a box intersects at most about 16 of them on average.
        while True:
            first_cell, last_cell = (lower - origin) // cell_mm, (upper - origin) // cell_mm
            columns, rows = (last_cell - first_cell + 1).T
            entries = int((columns * rows).sum())
            if entries <= 16 * len(lower) + 4096:
                break
            cell_mm *= 2
        # There is one entry for each box and each cell that it intersects. It consists of the box and the cell's index
        # among these cells.
        owner = np.repeat(np.arange(len(lower)), columns * rows)
        index = np.arange(entries) - np.repeat(np.cumsum(columns * rows) - columns * rows, columns * rows)
        shape = last_cell.max(axis=0) + 1
        cell = (
            first_cell[owner, 0] + index % columns[owner] + (first_cell[owner, 1] + index // columns[owner]) * shape[0]
        )
        start = np.searchsorted(np.sort(cell), np.arange(int(shape.prod()) + 1))
        return cls(origin=origin, side=cell_mm, shape=shape, start=start, items=owner[np.argsort(cell, kind="stable")])


def _bounding_boxes(corners: Ints) -> tuple[Ints, Ints]:
    """Return the lower left and upper right corners of the bounding boxes of polygons, as arrays of shape (S, 2).

    Args:
        corners: Array of shape (S, m, 2) with the corners of each polygon.
    """
    return corners.min(axis=1), corners.max(axis=1)


@frozen(kw_only=True, eq=False, slots=False)
class Triangles:
    """A set of triangles in which positions can be located.

    Attributes:
        vertices: Array of shape (N, 2) with the positions of the vertices in mm.
        simplices: Array of shape (S, 3) with the vertex indices of each triangle, counter-clockwise.
    """

    vertices: Ints
    simplices: Ints

    @cached_property
    def _cells(self) -> Cells:
        """The grid that indexes the bounding boxes of the triangles."""
        return Cells.of(*_bounding_boxes(self.vertices[self.simplices]))

    def locate(self, positions: Ints) -> tuple[Ints, Any]:
        """Find the first triangle that contains each position. A triangle includes its sides.

        Args:
            positions: Array of shape (B, 2) with x and y in mm.

        Returns:
            Two arrays. The first, of shape (B,), contains the index of each position's triangle, or -1 if no triangle
            contains the position. The second, of shape (B, 3), contains the barycentric coordinates times twice the
            area of the triangle, as 64-bit integers or, if these would overflow, as Python integers.
        """
        corners = self.vertices[self.simplices]
        lower, upper = _bounding_boxes(corners)
        triangles = np.full(len(positions), -1, dtype=np.int64)
        if bool(((upper - lower) < _SMALL).all()):
            shares = np.zeros((len(positions), 3), dtype=np.int64)
            _locate_triangles(positions, corners, *self._cells, triangles, shares)
            return triangles, shares
        # The products would not fit into 64 bits, so the same function runs uncompiled (py_func) on Python integers.
        large = np.zeros((len(positions), 3), dtype=object)
        _locate_triangles.py_func(positions.astype(object), corners.astype(object), *self._cells, triangles, large)
        return triangles, large

    @cached_property
    def rim(self) -> Ints:
        """Array of shape (E, 2) with the ends of the boundary sides, i.e. sides that belong to only one triangle."""
        sides = self.simplices[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2)
        _, first_row, count = np.unique(np.sort(sides, axis=1), axis=0, return_index=True, return_counts=True)
        return read_only(sides[np.sort(first_row[count == 1])])


@jit()
def _locate_triangles(
    positions: Any, corners: Any, origin: Any, cell_mm: int, shape: Any, start: Any, items: Any, hits: Any, shares: Any
) -> None:  # pragma: no cover - compiled, or on Python's integers
    """Find the triangle that contains each position, in exact integer arithmetic.

    A position is only tested against triangles whose bounding boxes contain it. Therefore, no product exceeds 2^62 if
    the triangles extend over less than 2^31 mm.

    Args:
        positions: Array of shape (B, 2) with x and y in mm.
        corners: Array of shape (S, 3, 2) with the corners of each triangle in mm, counter-clockwise.
        origin, cell_mm, shape, start, items: The grid for the bounding boxes of the triangles, as in :class:`Cells`.
        hits: Array of shape (B,) that receives the index of each position's triangle. Elements for positions outside
            all triangles are left unchanged.
        shares: Array of shape (B, 3) that receives the barycentric coordinates times twice the area of the triangle.
    """
    for p in range(len(positions)):
        x, y = positions[p, 0], positions[p, 1]
        column, row = (x - origin[0]) // cell_mm, (y - origin[1]) // cell_mm
        if column < 0 or row < 0 or column >= shape[0] or row >= shape[1]:
            continue
        cell = column + row * shape[0]
        for index in range(start[cell], start[cell + 1]):
            item = items[index]
            ax, ay = corners[item, 0, 0], corners[item, 0, 1]
            bx, by = corners[item, 1, 0], corners[item, 1, 1]
            cx, cy = corners[item, 2, 0], corners[item, 2, 1]
            if x < min(ax, bx, cx) or x > max(ax, bx, cx) or y < min(ay, by, cy) or y > max(ay, by, cy):
                continue
            # Each of u, v and w is twice the signed area of the triangle formed by the position and a side. They are
            # therefore proportional to the barycentric coordinates.
            u = (bx - x) * (cy - y) - (by - y) * (cx - x)
            v = (cx - x) * (ay - y) - (cy - y) * (ax - x)
            w = (ax - x) * (by - y) - (ay - y) * (bx - x)
            if u >= 0 and v >= 0 and w >= 0:
                hits[p] = item
                shares[p, 0], shares[p, 1], shares[p, 2] = u, v, w
                break


@frozen(kw_only=True, eq=False, slots=False)
class Sides:
    """A set of straight segments on which the point nearest to a position can be found.

    The segments are either streets or the sides that form a region's boundary.

    Attributes:
        tails, heads: Arrays of shape (E, 2) with the two ends of each side in mm. A side may have length 0.
    """

    tails: Ints = field()
    heads: Ints = field()

    @cached_property
    def _distinct_sides(self) -> Ints:
        """The indices of the distinct sides. Only the first of several sides with the same two ends is included."""
        endpoints = np.stack([self.tails, self.heads], axis=1).reshape(-1, 4)
        swapped = (self.tails > self.heads)[:, 0] | (self.tails[:, 0] == self.heads[:, 0]) & (
            self.tails[:, 1] > self.heads[:, 1]
        )
        # The smaller end of each side comes first, so that a side that occurs in both directions is counted only once.
        endpoints[swapped] = endpoints[swapped][:, [2, 3, 0, 1]]
        return np.sort(np.unique(endpoints, axis=0, return_index=True)[1])

    @cached_property
    def _cells(self) -> Cells:
        """The grid that indexes the bounding boxes of the distinct sides."""
        return Cells.of(*_bounding_boxes(np.stack([self.tails, self.heads], axis=1)[self._distinct_sides]))

    def nearest(self, positions: Ints) -> tuple[Ints, Any, Floats]:
        """Find the point on any of the sides that is nearest to each position.

        If several points are equally near, the one on the side with the lowest index is returned. The nearest point is
        given as a weighted mean of the tail and the head of its side.

        Args:
            positions: Array of shape (B, 2) with x and y in mm.

        Returns:
            Three arrays: the index of each position's side, of shape (B,); integer weights of the side's tail and head,
            of shape (B, 2); and the distance in mm as a double, of shape (B,).
        """
        count = len(positions)
        # The candidates for each position, whose distances are equal up to floating-point rounding, and their number.
        slots, many = np.full((count, _NEAREST_SIDES), -1, dtype=np.int64), np.zeros(count, dtype=np.int64)
        # Rounding errors depend on the largest extent of any side along x or y.
        reach = float(max(np.abs(self.heads - self.tails).max(), 1))
        # Candidates are indices into the distinct sides at first, and are then converted to indices into all sides.
        tails, heads = self.tails[self._distinct_sides], self.heads[self._distinct_sides]
        _find_nearest_sides(positions, tails, heads, *self._cells, reach, slots, many)
        slots = self._distinct_sides[slots]
        nearest_sides = slots[:, 0]
        for p in np.flatnonzero(many > 1).tolist():
            candidates = (
                self._distinct_sides.tolist() if many[p] > _NEAREST_SIDES else sorted(slots[p, : many[p]].tolist())
            )
            # Doubles cannot tell these candidates apart, and the choice must not depend on the machine.
            nearest_sides[p] = self._select_nearest(positions[p].tolist(), candidates)
        return self._divide_sides(positions, nearest_sides)

    def _select_nearest(self, position: list[int], sides: list[int]) -> int:
        """Return the index of the side nearest to a position by comparing exact distances.

        If several sides are equally near, the first of them is returned.

        Args:
            position: The position, as x and y in mm.
            sides: The indices of the candidates.
        """

        def squared_distance(number: int) -> Fraction:
            """Return the exact squared distance between a side and the position, in mm^2."""
            (x, y), (ax, ay), (bx, by) = position, self.tails[number].tolist(), self.heads[number].tolist()
            squared_length = (bx - ax) ** 2 + (by - ay) ** 2
            # The scalar product with the side's direction, clipped to the side, says how far along the side the nearest
            # point is.
            along = min(max((x - ax) * (bx - ax) + (y - ay) * (by - ay), 0), squared_length)
            share = Fraction(along, max(squared_length, 1))
            square: Fraction = (ax + share * (bx - ax) - x) ** 2 + (ay + share * (by - ay) - y) ** 2
            return square

        return min(sides, key=squared_distance)

    def _divide_sides(self, positions: Ints, numbers: Ints) -> tuple[Ints, Any, Floats]:
        """Find the point on a given side that is nearest to each position, and the distance to it.

        The nearest point is given as a weighted mean of the side's tail and head.

        Args:
            positions: Array of shape (B, 2) with x and y in mm.
            numbers: Array of shape (B,) with the index of the side for each position.

        Returns:
            Three arrays: ``numbers`` itself; integer weights of the side's tail and head, of shape (B, 2); and the
            distance in mm as a double, of shape (B,).
        """
        directions = self.heads[numbers] - self.tails[numbers]
        offsets = positions - self.tails[numbers]
        # The scalar products of longer vectors would not fit into 64 bits, so they are computed with Python integers.
        is_large = max(np.abs(directions).max(initial=0), np.abs(offsets).max(initial=0)) >= _SMALL // 2
        exact_directions, exact_offsets = (
            (directions.astype(object), offsets.astype(object)) if is_large else (directions, offsets)
        )
        # The nearest point divides the side in the same ratio as `along` divides the squared length.
        squared_length = (exact_directions * exact_directions).sum(axis=1)
        along = np.clip((exact_offsets * exact_directions).sum(axis=1), 0, squared_length)
        # If a side has length 0, its tail gets weight 1.
        squared_length = squared_length + (squared_length == 0)
        share = along.astype(np.float64) / squared_length.astype(np.float64)
        distances = np.hypot(*(offsets - share[:, None] * directions).T)
        return numbers, np.stack([squared_length - along, along], axis=1), distances


@jit()
def _project_to_side(tails: Any, heads: Any, item: int, x: int, y: int) -> Any:  # pragma: no cover - compiled
    """Return the distance in mm from a position to a side, and the relative position of the nearest point on the side.

    The relative position ranges from 0 at the tail to 1 at the head. Both values are doubles. Coordinates are
    subtracted exactly before they are converted to doubles.

    Args:
        tails, heads: Arrays of shape (E, 2) with the two ends of each side in mm.
        item: The index of the side.
        x, y: The position in mm.
    """
    ax, ay = float(tails[item, 0] - x), float(tails[item, 1] - y)
    wx, wy = float(heads[item, 0] - tails[item, 0]), float(heads[item, 1] - tails[item, 1])
    squared_length = wx * wx + wy * wy
    # (ax, ay) leads from the position to the tail, hence the minus sign.
    share = 0.0 if squared_length == 0.0 else min(max(-(ax * wx + ay * wy) / squared_length, 0.0), 1.0)
    return np.hypot(ax + share * wx, ay + share * wy), share


@jit()
def _find_nearest_sides(
    positions: Any,
    tails: Any,
    heads: Any,
    origin: Any,
    cell_mm: int,
    shape: Any,
    start: Any,
    items: Any,
    reach: float,
    slots: Any,
    many: Any,
) -> None:  # pragma: no cover - compiled
    """Find and count the sides that may be nearest to each position, given the rounding errors of distances.

    Several sides count as one if the nearest point is their common end. The search starts at the cell that contains the
    position, or at the nearest cell, and continues in rings until no cell farther away can contain a nearer side. The
    error of each distance is less than (distance + reach) 2^-46.

    Args:
        positions: Array of shape (B, 2) with x and y in mm.
        tails, heads: Arrays of shape (E, 2) with the two ends of each side in mm.
        origin, cell_mm, shape, start, items: The grid for the bounding boxes of the sides, as in :class:`Cells`.
        reach: The largest extent of a side along x or y, in mm.
        slots: Array of shape (B, m), initially -1, that receives the indices of the first m candidates for each
            position.
        many: Array of shape (B,) that receives the number of candidates for each position.
    """
    corner_x, corner_y = np.empty(slots.shape[1]), np.empty(slots.shape[1])
    for p in range(len(positions)):
        x, y = positions[p, 0], positions[p, 1]
        column = min(max((x - origin[0]) // cell_mm, 0), shape[0] - 1)
        row = min(max((y - origin[1]) // cell_mm, 0), shape[1] - 1)
        out_x = max(origin[0] - x, x - origin[0] - shape[0] * cell_mm, 0) * 1.0  # distance to the grid; 0 inside
        out_y = max(origin[1] - y, y - origin[1] - shape[1] * cell_mm, 0) * 1.0
        best, count = np.inf, 0
        for ring in range(max(shape[0], shape[1])):
            inward = max(ring - 1, 0) * cell_mm
            search_radius = best * (1.0 + 2.0**-40) + reach * 2.0**-40
            # All cells of this ring and beyond are at least this far away. The margin covers rounding.
            if search_radius < min(np.hypot(out_x + inward, out_y), np.hypot(out_x, out_y + inward)):
                break
            for r in range(max(row - ring, 0), min(row + ring, shape[1] - 1) + 1):
                # Only the outline of the ring is searched, because its inner cells belong to earlier rings.
                inner = r > row - ring and r < row + ring
                for c in range(max(column - ring, 0), min(column + ring, shape[0] - 1) + 1):
                    if inner and c > column - ring and c < column + ring:
                        continue
                    # The distance between cell and position along x and along y, which is 0 if the position's
                    # coordinate is within the cell's range.
                    across = max(origin[0] + c * cell_mm - x, x - origin[0] - (c + 1) * cell_mm, 0) * 1.0
                    along = max(origin[1] + r * cell_mm - y, y - origin[1] - (r + 1) * cell_mm, 0) * 1.0
                    if best * (1.0 + 2.0**-40) + reach * 2.0**-40 < np.hypot(across, along):
                        continue
                    for index in range(start[c + r * shape[0]], start[c + r * shape[0] + 1]):
                        item = items[index]
                        distance, share = _project_to_side(tails, heads, item, x, y)
                        # Doubles cannot tell distances apart that differ by less than this. A clearly nearer side
                        # replaces all candidates.
                        slack = (distance + reach) * 2.0**-44
                        if distance > best + slack:
                            continue
                        if distance < best - slack:
                            count = 0
                        best = min(best, distance)
                        # Sides that share an end have the same nearest point there. It is listed only once, for the
                        # side with the lowest index, so that no exact comparison is needed.
                        end_x, end_y = np.nan, np.nan
                        if share == 0.0:
                            end_x, end_y = float(tails[item, 0]), float(tails[item, 1])
                        elif share == 1.0:
                            end_x, end_y = float(heads[item, 0]), float(heads[item, 1])
                        is_listed = False
                        for s in range(min(count, slots.shape[1])):
                            if slots[p, s] == item or (corner_x[s] == end_x and corner_y[s] == end_y):
                                is_listed = True
                                slots[p, s] = min(slots[p, s], item)
                        if not is_listed:
                            if count < slots.shape[1]:
                                slots[p, count] = item
                                corner_x[count], corner_y[count] = end_x, end_y
                            count += 1
        many[p] = count
