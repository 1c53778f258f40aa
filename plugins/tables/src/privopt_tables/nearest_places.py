"""Find the place nearest to each of many positions.

Places are kept in a k-d tree. Latitudes and longitudes are stored in the tree as points on a sphere with the Earth's
radius. Chord lengths sort in the same order as great-circle distances, so the poles and the antimeridian are not
special cases.

For a table of a million rows, searching the tree for each position would take as long as everything else together. If
there are many more positions than places, the map is therefore divided into small cells, and the tree is searched once
for each cell, for the few places that may be nearest to a point of the cell. Each position is then compared only with
the places of its cell.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, Self

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.numbers.distances import EARTH_RADIUS_KM, directions

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

__all__ = ["NearestPlaces", "to_tree_points"]

MIN_POSITIONS_PER_PLACE: Final = 64
"""The number of positions per place from which dividing the map into cells takes less time than it saves."""
CELLS_PER_PLACE: Final = 32
MAX_CANDIDATES: Final = 6
"""The maximum number of places that are stored for a cell. Where more may be nearest, the tree is searched."""
_TIE_TOLERANCE: Final = 1e-13
"""The relative difference of squared distances up to which two places count as equally near. It covers the rounding of
the squares."""
_BLOCK: Final = 1 << 15
"""The number of positions that are compared at once, so that the arrays fit into the processor's cache."""


def to_tree_points(positions: Floats, kind: str) -> Floats:
    """Convert positions to points whose Euclidean distances sort in the same order as the positions' distances.

    Latitudes and longitudes become three-dimensional points on a sphere, in km. Planar positions are returned
    unchanged.
    """
    return EARTH_RADIUS_KM * directions(positions) if kind == "geographic" else positions


@frozen(kw_only=True, eq=False, slots=False)
class NearestPlaces:
    """Places among which the nearest one to a position can be found.

    Attributes:
        coordinates: (N, 2) The places, as latitudes and longitudes in degrees or as x and y in km.
        kind: ``"geographic"`` for degrees, and any other value for km.
    """

    coordinates: Floats
    kind: str

    @cached_property
    def _tree(self) -> cKDTree:
        """The k-d tree of all places."""
        from scipy.spatial import cKDTree

        return cKDTree(to_tree_points(self.coordinates, self.kind))

    @cached_property
    def _grid(self) -> _Grid:
        """The cells of the map, with the places that may be nearest to a point of each cell."""
        return _Grid.of(self.coordinates, self.kind, self._tree)

    def query(self, positions: Floats) -> tuple[Floats, Ints]:
        """Find the nearest place to each of B positions.

        Among equally near places, the same one is always chosen for the same position, whatever the other positions
        are. Otherwise a repeated task of a batch could draw a second report for a row.

        Args:
            positions: (B, 2) The positions, of the same kind as the places. Their coordinates must be finite.

        Returns:
            Two arrays of shape (B,). The first contains the distances in km between the positions and their nearest
            places. For latitudes and longitudes, it contains chord lengths. The second contains the places' indices.
        """
        # Once there are cells, later parts of a table use them, whatever their size.
        if len(positions) < MIN_POSITIONS_PER_PLACE * len(self.coordinates) and "_grid" not in self.__dict__:
            distances, nearest = self._tree.query(to_tree_points(positions, self.kind))
            return distances, nearest
        distances, nearest = np.empty(len(positions)), np.empty(len(positions), dtype=np.int64)
        for start in range(0, len(positions), _BLOCK):
            part = slice(start, start + _BLOCK)
            distances[part], nearest[part] = self._query_cells(positions[part])
        return distances, nearest

    def _query_cells(self, positions: Floats) -> tuple[Floats, Ints]:
        """Find the nearest places as in :meth:`query`, by comparing each position with the places of its cell."""
        axes = np.ascontiguousarray(to_tree_points(positions, self.kind).T)
        cells = self._grid.cells(positions)
        counts = self._grid.counts[cells]
        candidates = self._grid.candidates
        nearest = candidates[0][cells]
        squares = self._squared_distances(axes, nearest)
        second_squares = np.full(len(positions), np.inf)
        rows = np.flatnonzero(counts > 1)
        for rank in range(1, MAX_CANDIDATES):
            rows = rows[counts[rows] > rank]
            places = candidates[rank][cells[rows]]
            place_squares = self._squared_distances(axes[:, rows], places)
            second_squares[rows] = np.minimum(second_squares[rows], np.maximum(squares[rows], place_squares))
            is_nearer = place_squares < squares[rows]
            nearest[rows[is_nearer]], squares[rows[is_nearer]] = places[is_nearer], place_squares[is_nearer]
        distances = np.sqrt(squares)
        # Among equally near places, the tree chooses as well, so that the choice does not depend on whether cells are
        # used.
        rows = np.flatnonzero((counts == 0) | (second_squares <= squares * (1.0 + _TIE_TOLERANCE)))
        if len(rows):
            distances[rows], nearest[rows] = self._tree.query(axes[:, rows].T)
        return distances, nearest

    @cached_property
    def _axes(self) -> Floats:
        """(d, N) The places in the tree's coordinates, one row for each axis."""
        return np.ascontiguousarray(self._tree.data.T)

    def _squared_distances(self, axes: Floats, places: Ints) -> Floats:
        """Return the squared distance between each point, in the tree's coordinates, and the place with a given index.

        Args:
            axes: (d, B) The points, one row for each axis.
            places: (B,) The index of a place for each point.
        """
        squares = np.zeros(len(places))
        for points, place_axis in zip(axes, self._axes, strict=True):
            squares += np.square(points - place_axis[places])
        return squares


@frozen(kw_only=True, eq=False)
class _Grid:
    """A division of the smallest box around the places into cells of equal width and height.

    Attributes:
        corner: (2,) The smallest coordinates of the box.
        cell_size: (2,) The height and width of a cell, in the unit of the coordinates.
        shape: (2,) The numbers of cells along each axis.
        counts: (C + 1,) The number of places that may be nearest to a point of each of the C cells, or 0 if there are
            more than `MAX_CANDIDATES`. The last entry, for positions outside the box, is 0 too.
        candidates: (`MAX_CANDIDATES`, C + 1) The indices of these places. Entries beyond a cell's count have no
            meaning.
    """

    corner: Floats
    cell_size: Floats
    shape: Ints
    counts: Ints
    candidates: Ints

    @classmethod
    def of(cls, coordinates: Floats, kind: str, tree: cKDTree) -> Self:
        """Divide the box around the places into about `CELLS_PER_PLACE` cells for each place.

        Args:
            coordinates: (N, 2) The places, as in :class:`NearestPlaces`.
            kind: The kind of the places.
            tree: The k-d tree of the places.
        """
        corner, opposite = coordinates.min(axis=0), coordinates.max(axis=0)
        scale = np.ones(2)
        if kind == "geographic":
            # The greatest length in km of a degree along each axis. Degrees of longitude are longest at the box's
            # latitude nearest to the equator.
            latitude = np.radians(np.clip(0.0, corner[0], opposite[0]))
            scale = np.radians(1.0) * EARTH_RADIUS_KM * np.array([1.0, np.cos(latitude)])
        lengths = (opposite - corner) * scale
        cell_count = CELLS_PER_PLACE * len(coordinates)
        # Cells are about square, but there are at most `cell_count` along each axis if the box is narrow or empty.
        side = max(np.sqrt(lengths.prod() / cell_count), lengths.max() / cell_count, 1e-9)
        shape = np.maximum(1, np.ceil(lengths / side)).astype(np.int64)
        cell_size = np.maximum(opposite - corner, 1e-9) / shape
        centres = np.stack(
            np.meshgrid(
                *(low + size * (np.arange(n) + 0.5) for low, size, n in zip(corner, cell_size, shape, strict=True))
            ),
            axis=-1,
        ).transpose(1, 0, 2)
        points = to_tree_points(centres.reshape(-1, 2), kind)
        count = min(MAX_CANDIDATES + 1, len(coordinates))
        distances, places = (array.reshape(len(points), count) for array in tree.query(points, k=count))
        # No point of a cell is farther than `radius` from the cell's centre. Let d be the distance between the centre
        # and the place nearest to it. Every point of the cell is then at most d + radius from that place, and so from
        # the place nearest to the point. The latter is at most d + 2 radius from the centre. The slack covers rounding.
        radius = float(np.hypot(*(cell_size * scale / 2.0)))
        slack = 1e-6 + 1e-12 * float(np.abs(tree.data).max())
        counts = (distances <= distances[:, :1] + 2.0 * radius + slack).sum(axis=1)
        candidates = np.zeros((MAX_CANDIDATES, len(points) + 1), dtype=np.int64)
        candidates[: min(count, MAX_CANDIDATES), :-1] = places.T[:MAX_CANDIDATES]
        return cls(
            corner=corner,
            cell_size=cell_size,
            shape=shape,
            counts=np.append(np.where(counts > MAX_CANDIDATES, 0, counts), 0).astype(np.int8),
            candidates=candidates,
        )

    def cells(self, positions: Floats) -> Ints:
        """Return the index of the cell that contains each of B positions, or the last index if it is outside the box.

        Args:
            positions: (B, 2) The positions.
        """
        rows, columns = ((positions[:, axis] - self.corner[axis]) / self.cell_size[axis] for axis in (0, 1))
        is_inside = (rows >= 0.0) & (rows < self.shape[0]) & (columns >= 0.0) & (columns < self.shape[1])
        # Positions outside get the last index.
        cells = np.full(len(positions), len(self.counts) - 1, dtype=np.int64)
        cells[is_inside] = rows[is_inside].astype(np.int64) * self.shape[1] + columns[is_inside].astype(np.int64)
        return cells
