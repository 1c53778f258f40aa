"""Find the matrix row for each row of a table, from the id or position in that row.

An id selects the matrix row of the record with this id. A position selects the matrix row of the nearest record. If the
release's guarantee covers every point in a region, one of the vertices around the position is drawn at random instead,
and that vertex's matrix row is used (:mod:`privopt_metric_dp.region.snap_to_region`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import cached_property
from numbers import Real
from typing import Any, Final

import narwhals as nw
import numpy as np
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.declare.column_texts import number_ids, texts_of
from privopt.errors import UsageError, number_of
from privopt.numbers.distances import EARTH_RADIUS_KM
from privopt.numbers.sampling import RowStreams, Source
from privopt_metric_dp.region.region import MM_PER_KM
from privopt_metric_dp.region.snap_to_region import SimplexMixture, Snapper
from privopt_metric_dp.space.places import MAX_COORDINATE, Space
from privopt_tables.nearest_places import NearestPlaces, to_tree_points
from privopt_tables.secret_columns import DECIMAL_COMMA, Secret, positions_of

__all__ = ["MALFORMED", "REASONS", "Snap", "Strays", "to_degrees", "unusable_reasons"]

REASONS: Final = (
    "unknown id",
    "empty position",
    "impossible position",
    "too far",
    "no row of its own",
    "budget spent",
    "no subject",
    "no time",
    "no text",
    "no known word",
    "decimal comma in a position (a point is expected)",
)
"""The possible reasons why a row gets no report. Arrays of reasons contain indices into this tuple, or -1 for rows with
a report.

"No row of its own" means that the release has no matrix row for the nearest record, or for a vertex around the
position. The reasons about budgets, subjects and times occur only with a ledger (:mod:`.charge_rows`) or for traces
(:mod:`.trace_rows`). The reasons about text and words occur only for sentences."""

_UNKNOWN, _EMPTY, _IMPOSSIBLE, _TOO_FAR, _NO_ROW = range(5)
_COMMA: Final = len(REASONS) - 1

MALFORMED: Final = (_IMPOSSIBLE, _COMMA)
"""The reasons that point to an error in a cell. For each of these reasons, a warning names the first affected row."""


@define(kw_only=True)
class Strays:
    """A running count of stray positions, which are suspiciously far from every record.

    A position is stray if its distance from every record exceeds the diagonal of the records' bounding box. Such
    positions are probably errors. If the guarantee covers every point in a region, a position's distance from the
    region is used instead of its distance from the nearest record.

    Attributes:
        reach: The distance in km beyond which a position is stray. It is the diagonal of the records' bounding box, but
            at least 1 km. It depends only on the records, so it reveals nothing else.
        position_count: The number of positions counted so far.
        stray_count: The number of these positions that are farther than ``reach`` from every record.
        max_distance: The largest distance so far between a position and its nearest record, in km.
    """

    reach: float
    position_count: int = 0
    stray_count: int = 0
    max_distance: float = 0.0

    def count_positions(self, distances: Floats) -> None:
        """Add B positions to the counts.

        Args:
            distances: (B,) The distance of each position from its nearest record, or from the region, in km.
        """
        self.position_count += len(distances)
        self.stray_count += int((distances > self.reach).sum())
        self.max_distance = max(self.max_distance, float(distances.max(initial=0.0)))

    @property
    def notes(self) -> tuple[str, ...]:
        """A one-element tuple with a note for the table's owner, or an empty tuple if there are no stray positions."""
        if not self.stray_count:
            return ()
        is_majority = 2 * self.stray_count > self.position_count
        heading = "MOST OF THE TABLE IS OUTSIDE THE MAP: " if is_majority else ""
        positions = number_of(self.position_count, "position")
        return (
            f"{heading}{self.stray_count:,} of {positions} more than {self.reach:.4g} km from every record, farther "
            f"than the records reach (the farthest {self.max_distance:,.0f} km). Each was reported as the nearest "
            "record, which says nothing about where it is. Is this a release of another place, are columns swapped, "
            "or positions missing? (--max-snap KM leaves such rows without a report; only the table's owner sees "
            "this)",
        )


@frozen(kw_only=True, eq=False, slots=False)
class Snap:
    """The rule that determines which record of a release is used for each row of a table.

    Attributes:
        ids: (N,) The ids of the records that have a matrix row in the release, in the order of the matrix rows.
        places: All records with their coordinates, including those without a matrix row. None if records have no
            coordinates.
        region: The object that replaces a position with one of the vertices of a region. None if the guarantee does not
            cover every point in a region, or if the secret is an id. The vertices are the entries of ``places``, in the
            same order.
        source: The source of random bytes for drawing vertices.
        max_distance: The maximum distance in km between a position and its nearest record or, if there is a region, the
            region. Positions that are farther away are rejected. If None, there is no limit.
    """

    ids: NDArray[np.str_]
    places: Space | None
    region: Snapper | None = None
    source: Source = os.urandom
    max_distance: float | None = field(default=None)

    def __attrs_post_init__(self) -> None:
        if self.max_distance is not None and not 0 < _to_number(self.max_distance) < math.inf:
            raise UsageError(f"max-snap must be a finite number of km above 0, got {self.max_distance}")

    def check(self, secret: Secret) -> None:
        """Check that the columns of the secret can be matched with the records.

        Ids can be matched with any records. Positions must be in degrees or on a plane, as required by the records or
        the region.

        Args:
            secret: The columns of the secret.

        Raises:
            UsageError: The secret and the records use different kinds of coordinates, or a maximum distance is set
                although the secret is an id.
        """
        kinds = {"none" if self.places is None else self.places.kind}
        if self.region is not None:
            # Positions in a region are in degrees if it has a projection, and otherwise in km. If the places are on a
            # plane, km are accepted too. Any other kind of places is ignored, because the nodes of a region may have no
            # coordinates.
            kinds = (kinds & {"planar"}) | {"planar" if self.region.projection is None else "geographic"}
        if secret.kind == "id":
            if self.max_distance is not None:
                raise UsageError(
                    "max-snap must be used with positions, got ids: an id means its record and nothing near it"
                )
        elif secret.kind not in kinds:
            kind = kinds.pop()
            has = {"geographic": "latitudes and longitudes", "planar": "x and y in km"}.get(kind, "no such coordinates")
            expectation = {"geographic": "lat and lon, or geometry", "planar": "x and y"}.get(kind, "id")
            actual = "a position in degrees" if secret.kind == "geographic" else "a position in km"
            raise UsageError(f"columns of the secret must be {expectation}, got {actual}: the records have {has}")

    def rows(
        self,
        frame: nw.DataFrame[Any],
        secret: Secret,
        *,
        fixed: bool = False,
        strays: Strays | None = None,
        streams: RowStreams | None = None,
    ) -> tuple[Ints, Ints]:
        """Find the record for each row of a table.

        Args:
            frame: B rows of the table.
            secret: The columns of the secret.
            fixed: Whether to choose records without randomness. In a region, this selects the vertex with the largest
                barycentric coordinate or, among several such vertices, the one with the lowest index. The positions
                assigned to each vertex then form a fixed cell.
            strays: The counts to update with the positions that get a record. If None, nothing is counted.
            streams: The random bytes for drawing vertices, with one stream per row. Defaults to :attr:`source`.

        Returns:
            Two arrays of shape (B,). The first contains the index of the matrix row for each row of the table. If
            ``fixed`` is set and there is a region, it contains the index of a vertex instead. The index has no meaning
            for a row without a record. The second array contains -1 for each row with a record. For other rows, it
            contains the reason why there is none, as an index into :data:`REASONS`.

        Raises:
            InputError: A column cannot be read as ids, numbers or geometries.
        """
        if secret.kind == "id":
            row_by_id = {name: row for row, name in enumerate(self.ids.tolist())}
            # An id that no record has gets -1.
            numbers = number_ids(texts_of(frame[secret.columns[0]]), row_by_id)
            return np.maximum(numbers, 0), np.where(numbers < 0, _UNKNOWN, -1)
        positions, fault = positions_of(frame, secret)
        reason = unusable_reasons(positions, fault, geographic=secret.kind == "geographic")
        usable_rows = np.flatnonzero(reason < 0)
        rows = np.zeros(len(positions), dtype=np.int64)
        if self.region is not None:
            source = self.source if streams is None else streams.of(usable_rows)
            rows[usable_rows], distances = self._draw_vertices(
                positions[usable_rows], secret, fixed=fixed, source=source
            )
        else:
            # If all positions are usable, none need to be selected, which would copy them.
            is_selected = len(usable_rows) < len(positions)
            rows[usable_rows], distances = self._find_nearest(positions[usable_rows] if is_selected else positions)
        # -1 marks a nearest record or a vertex that has no row in the release.
        reason[usable_rows[rows[usable_rows] < 0]] = _NO_ROW
        if self.max_distance is not None:
            reason[usable_rows[distances > self.max_distance]] = _TOO_FAR
        if strays is not None:
            strays.count_positions(distances[reason[usable_rows] < 0])
        return np.maximum(rows, 0), reason

    def snap_positions(self, frame: nw.DataFrame[Any], secret: Secret) -> SimplexMixture:
        """Express each row's position as a mixture of the vertices of the region around it.

        The attribute :attr:`region` must not be None.

        Args:
            frame: Rows that have a position.
            secret: The columns of the position.
        """
        return self._snapper_for(secret).snap(positions_of(frame, secret)[0])

    def _snapper_for(self, secret: Secret) -> Snapper:
        """Return the object that maps positions to the region's vertices.

        If positions are in km, the result is a copy without a projection.
        """
        assert self.region is not None  # callers have checked
        return self.region if secret.kind == "geographic" else evolve(self.region, projection=None)

    def make_neighbour_finder(self, radius_km: float, *, degrees: bool) -> Callable[[Floats, Ints], list[list[int]]]:
        """Return a function that finds the cells near each position.

        A report that was stored for one cell may be repeated at positions near that cell. Cells are fixed and public.
        The centre of a cell is a record or vertex, and the cell consists of the points that :meth:`rows` assigns to
        this centre if ``fixed`` is set. A cell is near a position if its centre is within the radius. Distances are
        never measured from positions that were reported earlier, because knowing three places at which a report was
        renewed would reveal where it was first drawn.

        Args:
            radius_km: The maximum distance in km between a position and the centre of a cell near it.
            degrees: Whether positions are latitudes and longitudes.

        Returns:
            A function that takes positions of shape (B, 2) and reasons of shape (B,), and returns a list of the indices
            of nearby cells for each position. The list is empty for a row whose reason is not -1, because such a row
            gets no report.

        Raises:
            UsageError: The radius is not a finite number above 0, or is less than half the diagonal of a typical cell.
                A typical cell is a square as wide as the median distance between a centre and the nearest other centre.
        """
        from scipy.spatial import cKDTree

        radius = _to_number(radius_km)
        if not 0 < radius < math.inf:
            raise UsageError(f"sticky-within must be a number of km above 0, got {radius_km}")
        assert self.places is not None  # check() rejects positions otherwise
        centres = to_degrees(self.places) if degrees else self.places
        assert centres.coordinates is not None  # check() rejects positions otherwise
        cell_numbers = self._release_rows if self.region is None else np.arange(len(centres))
        # Centres without a matrix row or without coordinates are left out.
        cells = np.flatnonzero((cell_numbers >= 0) & np.isfinite(centres.coordinates).all(axis=1))
        tree = cKDTree(to_tree_points(centres.coordinates[cells], centres.kind))
        min_radius = 0.0
        if len(cells) > 1:
            # The corners of a square cell are half a diagonal from its centre: the spacing divided by the square root
            # of 2. The spacing is the median distance between nearest centres (column 1, because column 0 is the centre
            # itself).
            spacing = float(np.median(tree.query(tree.data, k=2)[0][:, 1]))
            min_radius = spacing / math.sqrt(2.0)
        # The tolerance of 1e-6 allows for rounding. The message quotes the minimum radius rounded up to metres, so that
        # the quoted value is accepted.
        if radius < min_radius * (1 - 1e-6):
            raise UsageError(
                f"sticky-within must be at least half a cell's diagonal, {math.ceil(min_radius * 1000) / 1000:g} km "
                f"for squares as wide as records are apart, and the noise of positions, got {radius:g}"
            )
        # On the globe the tree measures chords, 2 R sin(angle / 2) for an arc of that angle. The arc is at most half a
        # great circle, so half its angle is at most pi / 2.
        half_angle = min(math.pi / 2, radius / (2.0 * EARTH_RADIUS_KM))
        tree_radius = 2.0 * EARTH_RADIUS_KM * math.sin(half_angle) if centres.kind == "geographic" else radius

        def find_neighbours(positions: Floats, reason: Ints) -> list[list[int]]:
            """Return, for each position, the indices of the cells near it, or an empty list if its reason is not -1."""
            neighbours: list[list[int]] = [[] for _ in reason]
            usable_rows = np.flatnonzero(reason < 0)
            points = to_tree_points(positions[usable_rows], centres.kind)
            indices_by_row = tree.query_ball_point(points, tree_radius) if usable_rows.size else []
            for row, indices in zip(usable_rows.tolist(), indices_by_row, strict=True):
                neighbours[row] = cell_numbers[cells[sorted(indices)]].tolist()
            return neighbours

        return find_neighbours

    @property
    def reach(self) -> float:
        """The diagonal of the records' bounding box in km, but at least 1. Infinite if no record has coordinates."""
        if self.places is None or self.places.coordinates is None:
            return math.inf
        points = to_tree_points(self.places.coordinates, self.places.kind)
        points = points[np.isfinite(points).all(axis=1)]
        if not len(points):
            return math.inf
        # The diagonal of the box around all points, in the tree's coordinates.
        diagonal = float(np.linalg.norm(np.ptp(points, axis=0)))
        if self.places.kind == "geographic":
            # The points lie in space, so the diagonal is a chord of the globe, and is converted to an arc. If it is
            # longer than the globe's diameter, it counts as half a great circle.
            diagonal = 2 * EARTH_RADIUS_KM * math.asin(min(1.0, diagonal / (2 * EARTH_RADIUS_KM)))
        return max(1.0, diagonal)

    @cached_property
    def _release_rows(self) -> Ints:
        """The index of each :attr:`places` entry's matrix row in the release, or -1 for an entry without one."""
        assert self.places is not None  # check() rejects positions otherwise
        row_by_id = {name: number for number, name in enumerate(self.ids.tolist())}
        return np.array([row_by_id.get(name, -1) for name in self.places.ids], dtype=np.int64)

    @cached_property
    def _nearest_places(self) -> NearestPlaces:
        """The places, prepared for finding the nearest one to a position."""
        assert self.places is not None  # check() rejects positions otherwise
        assert self.places.coordinates is not None
        return NearestPlaces(coordinates=self.places.coordinates, kind=self.places.kind)

    def _draw_vertices(self, positions: Floats, secret: Secret, *, fixed: bool, source: Source) -> tuple[Ints, Floats]:
        """Draw one of the region's vertices around each position, and return the matrix rows of the drawn vertices.

        Each vertex is drawn with a probability equal to its barycentric coordinate at the position.

        Args:
            positions: (B, 2) The positions, which must all be usable.
            secret: The columns of the position.
            fixed: Whether to select the vertex with the largest barycentric coordinate instead of drawing one.
            source: The source of random bytes.

        Returns:
            Two arrays of shape (B,). The first contains indices of matrix rows or, if ``fixed`` is set, of vertices. An
            entry is -1 if any vertex around the position has no matrix row. The second contains the distance of each
            position from the region in km.
        """
        mixtures = self._snapper_for(secret).snap(positions)
        # If any vertex around the position lacks a matrix row, there is no report, whichever vertex is drawn. Otherwise
        # a missing report would reveal something about the draw.
        has_gap = ((self._release_rows[mixtures.corners] < 0) & (mixtures.shares > 0)).any(axis=1)
        if fixed:
            # Corners with a smaller share are given an index above all vertices, so that the minimum ignores them.
            is_largest = mixtures.shares == mixtures.shares.max(axis=1)[:, None]
            rows = np.where(is_largest, mixtures.corners, len(self._release_rows)).min(axis=1)
        else:
            rows = self._release_rows[mixtures.draw(source)]
        return np.where(has_gap, -1, rows), mixtures.away

    def _find_nearest(self, positions: Floats) -> tuple[Ints, Floats]:
        """Find the record nearest to each of B positions.

        Args:
            positions: (B, 2) The positions.

        Returns:
            Two arrays of shape (B,). The first contains the index of the nearest record's matrix row, or -1 if that
            record has none. The second contains the distance to the nearest record in km.
        """
        assert self.places is not None  # check() rejects positions otherwise
        distances, nearest = self._nearest_places.query(positions)
        if self.places.kind == "geographic":
            # Chords are converted to arcs. They are accurate to about a micrometre, which is enough for comparisons.
            distances = 2.0 * EARTH_RADIUS_KM * np.arcsin(np.minimum(distances / (2.0 * EARTH_RADIUS_KM), 1.0))
        return self._release_rows[nearest], distances


def to_degrees(space: Space) -> Space:
    """Convert places on a projected plane to latitudes and longitudes, and return other places unchanged."""
    if space.projection is None or space.coordinates is None:
        return space
    degrees = space.projection.to_earth(np.rint(space.coordinates * MM_PER_KM).astype(np.int64))
    return Space(ids=space.ids, coordinates=degrees, kind="geographic", source=space.source)


def _to_number(value: object) -> float:
    """Convert a number to a double, and any other value to NaN, which fails every comparison."""
    # bool is a subclass of int, but True is not a distance.
    return math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)


def unusable_reasons(positions: Floats, fault: Floats, *, geographic: bool) -> Ints:
    """Return the reason why each position is unusable, as an index into :data:`REASONS`, or -1 if it is usable.

    Args:
        positions: (B, 2) The positions, with NaN for empty cells.
        fault: (B,) :data:`DECIMAL_COMMA` if a cell contains a number with a decimal comma, 1.0 if a cell is neither
            empty nor a number, and 0 otherwise.
        geographic: Whether positions are in degrees.
    """
    reason = np.full(len(positions), -1, dtype=np.int64)
    if geographic:
        is_outside = (np.abs(positions[:, 0]) > 90.0) | (positions[:, 1] < -180.0) | (positions[:, 1] > 360.0)
    else:
        is_outside = np.maximum(np.abs(positions[:, 0]), np.abs(positions[:, 1])) > MAX_COORDINATE
    # Later reasons replace earlier ones. Text that is not a number is NaN too, so NaN means an empty cell only if the
    # cell has no fault.
    reason[(fault > 0) | is_outside] = _IMPOSSIBLE
    reason[fault == DECIMAL_COMMA] = _COMMA
    reason[(np.isnan(positions[:, 0]) | np.isnan(positions[:, 1])) & (fault == 0)] = _EMPTY
    return reason
