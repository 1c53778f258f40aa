"""Find the matrix row for a table's value: a record by its id, or the nearest one to a position.

Where the release holds at every point, a position's row is drawn among those of the vertices around it
(:mod:`privopt_metric_dp.region.snap_to_region`). On the globe the tree holds points of the unit sphere, for chords are
ordered as great circles are: nothing is special at the poles or where longitude jumps.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any, Final

import narwhals as nw
import numpy as np
import polars as pl
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.declare.column_texts import texts_of
from privopt.errors import UsageError, number_of
from privopt.numbers.distances import EARTH_RADIUS_KM, directions, haversine
from privopt.numbers.sampling import RowStreams, Source
from privopt_metric_dp.region.region import MM_PER_KM
from privopt_metric_dp.region.snap_to_region import SimplexMixture, Snapper
from privopt_metric_dp.space.places import MAX_COORDINATE, Space
from privopt_tables.secret_columns import DECIMAL_COMMA, Secret, positions_of

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

__all__ = ["REASONS", "Snap", "Strays", "on_earth"]

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
"""Why a row has no report. No row of its own: its nearest record, or a vertex around it, has none in the release. A
budget, subjects and times come with a ledger (:mod:`privopt_tables.charge_rows`), the last two with text. A
row that has a report: -1."""

_UNKNOWN, _EMPTY, _IMPOSSIBLE, _FAR, _ALONE = range(5)
_COMMA: Final = len(REASONS) - 1


@define(kw_only=True)
class Strays:
    """Positions that are farther from every record than records are from one another: an owner's errors, likely.

    Attributes:
        reach: km between the corners of a box around all records, and at least 1: public, as the records are.
        seen: positions that were looked at.
        rows: those that are farther away.
        farthest: of them, km.
    """

    reach: float
    seen: int = 0
    rows: int = 0
    farthest: float = 0.0

    def see(self, away: Floats) -> None:
        """Count positions by how far they are from the nearest record, km."""
        self.seen += len(away)
        self.rows += int((away > self.reach).sum())
        self.farthest = max(self.farthest, float(away.max(initial=0.0)))

    @property
    def note(self) -> tuple[str, ...]:
        """What their owner should know, as a sentence; nothing where there are none."""
        if not self.rows:
            return ()
        most = "MOST OF THE TABLE IS OUTSIDE THE MAP: " if 2 * self.rows > self.seen else ""
        return (
            f"{most}{self.rows:,} of {number_of(self.seen, 'position')} more than {self.reach:.4g} km from every "
            f"record, farther than the records reach (the farthest {self.farthest:,.0f} km). Each was reported as what "
            "is nearest, which says nothing of where it is. Is this a release of another place, are columns swapped, "
            "or positions missing? (--max-snap KM leaves such rows without a report; only the table's owner sees this)",
        )


@frozen(kw_only=True, eq=False, slots=False)
class Snap:
    """Finds the record that each row of a table is about.

    Attributes:
        ids: (N,) of the rows of the release.
        places: all records with their coordinates, where they have any; some may have no row.
        region: where the release holds at every point: snaps positions to vertices, the places' own numbers.
        source: of the random bytes by which vertices are drawn.
        farthest: km beyond which a position has no record; None for any distance.
    """

    ids: NDArray[np.str_]
    places: Space | None
    region: Snapper | None = None
    source: Source = os.urandom
    farthest: float | None = field(default=None)

    def __attrs_post_init__(self) -> None:
        given: object = self.farthest
        number = math.nan if isinstance(given, bool) or not isinstance(given, Real) else float(given)
        if given is not None and not 0 < number < math.inf:
            raise UsageError(f"max-snap must be a finite number of km above 0, got {given}")

    def check(self, secret: Secret) -> None:
        """Refuse positions of a kind that the records do not have."""
        kinds = {"none" if self.places is None else self.places.kind}
        if self.region is not None:  # of whose nodes some may have no place, and planar ones lie on the earth
            kinds = (kinds & {"planar"}) | {"planar" if self.region.projection is None else "geographic"}
        if secret.kind == "id":
            if self.farthest is not None:
                raise UsageError(
                    "max-snap must be used with positions, got ids: an id means its record and nothing near it"
                )
        elif secret.kind not in kinds:
            kind = kinds.pop()
            has = {"geographic": "latitudes and longitudes", "planar": "x and y in km"}.get(kind, "no such coordinates")
            wanted = {"geographic": "lat and lon, or geometry", "planar": "x and y"}.get(kind, "id")
            given = "a position in degrees" if secret.kind == "geographic" else "a position in km"
            raise UsageError(f"columns of the secret must be {wanted}, got {given}: the records have {has}")

    def rows(
        self,
        frame: nw.DataFrame[Any],
        secret: Secret,
        *,
        fixed: bool = False,
        strays: Strays | None = None,
        streams: RowStreams | None = None,
    ) -> tuple[Ints, Ints]:
        """Return the record of each row of a table.

        Args:
            frame: the table.
            secret: its columns.
            fixed: nothing is drawn: where the release holds at every point, the vertex that a position is mostly a
                mixture of, the lowest in number of several; so each has a cell that never changes.
            strays: counts positions that get a record far away; None to count none.
            streams: of the random bytes by which vertices are drawn, one a row; None for the snap's own source.

        Returns:
            (B,) numbers of records, 0 where there is none; and (B,) why not, as a place in :data:`REASONS`, -1 where
            there is one.
        """
        if secret.kind == "id":
            row_of = {name: row for row, name in enumerate(self.ids.tolist())}
            texts = texts_of(frame[secret.columns[0]])
            # pandas writes whole numbers beside gaps as 132.0: the id 132, unless a record has that very id
            whole = texts.str.replace(r"^(-?\d+)\.0+$", "${1}")
            exact, rounded = (
                column.replace_strict(row_of, default=-1, return_dtype=pl.Int64).to_numpy() for column in (texts, whole)
            )
            found = np.where(exact < 0, rounded, exact)
            return np.maximum(found, 0), np.where(found < 0, _UNKNOWN, -1)
        positions, wrong = positions_of(frame, secret)
        reason = _impossible(positions, wrong, geographic=secret.kind == "geographic")
        good = np.flatnonzero(reason < 0)
        rows = np.zeros(len(positions), dtype=np.int64)
        if self.region is not None:
            source = self.source if streams is None else streams.of(good)
            rows[good], away = self._drawn(positions[good], secret, fixed=fixed, source=source)
        else:
            rows[good], away = self._nearest(positions[good])
        reason[good[rows[good] < 0]] = _ALONE
        if self.farthest is not None:
            reason[good[away > self.farthest]] = _FAR
        if strays is not None:
            strays.see(away[reason[good] < 0])
        return np.maximum(rows, 0), reason

    def snapped(self, frame: nw.DataFrame[Any], secret: Secret) -> SimplexMixture:
        """Return the mixtures of vertices for rows' positions, if the release holds at every point.

        Args:
            frame: rows that have a position.
            secret: its columns, which hold positions.
        """
        return self._around(secret).snap(positions_of(frame, secret)[0])

    def _around(self, secret: Secret) -> Snapper:
        assert self.region is not None  # the caller has looked
        return self.region if secret.kind == "geographic" else evolve(self.region, projection=None)

    def near(self, within: float, *, degrees: bool) -> Callable[[Floats, Ints], list[list[int]]]:
        """Return what finds cells whose centre is near a position: their kept report is given again (mathematics T3).

        Cells are fixed and public: each is all that one record, or one vertex, is nearest to. The circle is around the
        centre of a cell and never around a position that was reported, which three renewals at known places would find.

        Args:
            within: km.
            degrees: whether positions are latitudes and longitudes.

        Returns:
            Gives the numbers of the cells near each position (B, 2); none where a reason (B,) says why a row has none.

        Raises:
            UsageError: a distance of 0 or less, or one below half the diagonal of the cells: a cell would not reach its
                own corners.
        """
        from scipy.spatial import cKDTree

        given: object = within
        number = math.nan if isinstance(given, bool) or not isinstance(given, Real) else float(given)
        if not 0 < number < math.inf:
            raise UsageError(f"sticky-within must be a number of km above 0, got {given}")
        assert self.places is not None  # check() saw to it
        centres = on_earth(self.places) if degrees else self.places
        assert centres.coordinates is not None  # positions were asked for, so they lie somewhere
        numbers = self._row_of if self.region is None else np.arange(len(centres))
        placed = np.flatnonzero((numbers >= 0) & np.isfinite(centres.coordinates).all(axis=1))
        tree = cKDTree(_apart(centres.coordinates[placed], centres.kind))
        least = 0.0
        if len(placed) > 1:
            least = float(np.median(tree.query(tree.data, k=2)[0][:, 1])) / math.sqrt(2.0)
        if number < least * (1 - 1e-6):
            raise UsageError(
                f"sticky-within must be at least half a cell's diagonal, {math.ceil(least * 1000) / 1000:g} km for "
                f"squares as wide as records are apart, and the noise of positions, got {number:g}"
            )
        half = min(math.pi / 2, number / (2.0 * EARTH_RADIUS_KM))  # of the angle; points are apart by chords
        reach = 2.0 * EARTH_RADIUS_KM * math.sin(half) if centres.kind == "geographic" else number

        def near(positions: Floats, reason: Ints) -> list[list[int]]:
            found: list[list[int]] = [[] for _ in reason]
            good = np.flatnonzero(reason < 0)
            around = tree.query_ball_point(_apart(positions[good], centres.kind), reach) if good.size else []
            for row, cells in zip(good.tolist(), around, strict=True):
                found[row] = numbers[placed[sorted(cells)]].tolist()
            return found

        return near

    @property
    def reach(self) -> float:
        """Return km between the corners of a box around all records, and at least 1."""
        if self.places is None or self.places.coordinates is None:
            return math.inf
        points = _apart(self.places.coordinates, self.places.kind)
        points = points[np.isfinite(points).all(axis=1)]
        if not len(points):
            return math.inf
        across = float(np.linalg.norm(np.ptp(points, axis=0)))
        if self.places.kind == "geographic":  # a chord of the globe
            across = 2 * EARTH_RADIUS_KM * math.asin(min(1.0, across / (2 * EARTH_RADIUS_KM)))
        return max(1.0, across)

    @cached_property
    def _row_of(self) -> Ints:
        """(N,) the release's row of each place, -1 where it has none."""
        assert self.places is not None
        row = {name: number for number, name in enumerate(self.ids.tolist())}
        return np.array([row.get(name, -1) for name in self.places.ids], dtype=np.int64)

    @cached_property
    def _tree(self) -> cKDTree:
        from scipy.spatial import cKDTree

        assert self.places is not None  # check() saw to it
        assert self.places.coordinates is not None
        return cKDTree(_apart(self.places.coordinates, self.places.kind))

    def _drawn(self, positions: Floats, secret: Secret, *, fixed: bool, source: Source) -> tuple[Ints, Floats]:
        """Draw a row for each position among those of the vertices around it; -1 if one of them has none."""
        snapped = self._around(secret).snap(positions)
        alone = ((self._row_of[snapped.corners] < 0) & (snapped.shares > 0)).any(axis=1)  # not of what was drawn
        if fixed:
            most = snapped.shares == snapped.shares.max(axis=1)[:, None]
            rows = np.where(most, snapped.corners, len(self._row_of)).min(axis=1)
        else:
            rows = self._row_of[snapped.draw(source)]
        return np.where(alone, -1, rows), snapped.away

    def _nearest(self, positions: Floats) -> tuple[Ints, Floats]:
        """Return the row of the nearest record, -1 where it has none, and how far it is, km."""
        assert self.places is not None
        assert self.places.coordinates is not None  # check() saw to both
        nearest = self._tree.query(_apart(positions, self.places.kind))[1]
        there = self.places.coordinates[nearest]
        away = haversine(positions, there) if self.places.kind == "geographic" else np.hypot(*(positions - there).T)
        return self._row_of[nearest], away


def on_earth(space: Space) -> Space:
    """Return places of a projected plane in degrees, and others as they are."""
    if space.projection is None or space.coordinates is None:
        return space
    degrees = space.projection.to_earth(np.rint(space.coordinates * MM_PER_KM).astype(np.int64))
    return Space(ids=space.ids, coordinates=degrees, kind="geographic", source=space.source)


def _impossible(positions: Floats, wrong: Floats, *, geographic: bool) -> Ints:
    """(B,) why a position is none, as a place in :data:`REASONS`; -1 where it is one."""
    reason = np.full(len(positions), -1, dtype=np.int64)
    if geographic:
        outside = (np.abs(positions[:, 0]) > 90.0) | (positions[:, 1] < -180.0) | (positions[:, 1] > 360.0)
    else:
        outside = np.maximum(np.abs(positions[:, 0]), np.abs(positions[:, 1])) > MAX_COORDINATE
    reason[(wrong > 0) | outside] = _IMPOSSIBLE
    reason[wrong == DECIMAL_COMMA] = _COMMA
    reason[np.isnan(positions).any(axis=1) & (wrong == 0)] = _EMPTY
    return reason


def _apart(positions: Floats, kind: str) -> Floats:
    """Points whose straight distances are in the order of the places' own."""
    return EARTH_RADIUS_KM * directions(positions) if kind == "geographic" else positions
