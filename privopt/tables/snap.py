"""From what a table says to the record that it means: by its id, or the nearest by a tree of all records.

On the globe the tree holds points of the unit sphere, for chords are ordered as great circles are: nothing is special
at the poles or where longitude jumps.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import narwhals as nw
import numpy as np
import polars as pl
from attrs import field, frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.errors import UsageError
from privopt.metric.space.formulas import EARTH_RADIUS_KM, haversine
from privopt.metric.space.places import LARGEST, Space
from privopt.tables.secret import Secret, positions_of, texts_of

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

__all__ = ["REASONS", "Snap"]

REASONS: Final = ("unknown id", "empty position", "impossible position", "too far", "no row of its own")
"""Why a row has no report; the last: its nearest record has no row in the release. A row that has one: -1."""

_UNKNOWN, _EMPTY, _IMPOSSIBLE, _FAR, _ALONE = range(5)


@frozen(kw_only=True, eq=False, slots=False)
class Snap:
    """Finds the record of each row.

    Attributes:
        ids: (N,) of the rows of the release.
        places: coordinates of all records, where they have any; some may have no row.
        farthest: km beyond which a position has no record; None for any distance.

    Raises:
        UsageError: ``farthest`` is no positive number.
    """

    ids: NDArray[np.str_]
    places: Space | None
    farthest: float | None = field(default=None)

    def __attrs_post_init__(self) -> None:
        if self.farthest is not None and not 0 < self.farthest < math.inf:
            raise UsageError(f"max-snap: found {self.farthest:g}, wanted a finite number of km above 0")

    def check(self, secret: Secret) -> None:
        """Refuse positions of a kind that the records do not have.

        Raises:
            UsageError: they do not.
        """
        kind = "none" if self.places is None else self.places.kind
        if secret.kind == "id":
            if self.farthest is not None:
                raise UsageError("max-snap: found ids, wanted positions: an id means its record and nothing near it")
        elif kind != secret.kind:
            has = {"geographic": "latitudes and longitudes", "planar": "x and y in km"}.get(kind, "no such coordinates")
            wanted = {"geographic": "lat and lon, or geometry", "planar": "x and y"}.get(kind, "id")
            given = "a position in degrees" if secret.kind == "geographic" else "a position in km"
            raise UsageError(f"columns of the secret: found {given}, wanted {wanted}: the records have {has}")

    def rows(self, frame: nw.DataFrame[Any], secret: Secret) -> tuple[Ints, Ints]:
        """The record of each row of a table.

        Returns:
            (B,) numbers of records, 0 where there is none; and (B,) why not, as a place in :data:`REASONS`, -1 where
            there is one.
        """
        if secret.kind == "id":
            known = pl.DataFrame({"id": self.ids.tolist(), "row": np.arange(len(self.ids))})
            asked = pl.DataFrame({"id": texts_of(frame[secret.columns[0]])})
            found = asked.join(known, on="id", how="left", maintain_order="left")["row"]
            return found.fill_null(0).to_numpy(), np.where(found.is_null().to_numpy(), _UNKNOWN, -1)
        positions, wrong = positions_of(frame, secret)
        return self._nearest(positions, wrong > 0)

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

    def _nearest(self, positions: Floats, wrong: NDArray[np.bool_]) -> tuple[Ints, Ints]:
        assert self.places is not None
        assert self.places.coordinates is not None
        reason = np.full(len(positions), -1, dtype=np.int64)
        geographic = self.places.kind == "geographic"
        if geographic:
            outside = (np.abs(positions[:, 0]) > 90.0) | (positions[:, 1] < -180.0) | (positions[:, 1] > 360.0)
        else:
            outside = np.maximum(np.abs(positions[:, 0]), np.abs(positions[:, 1])) > LARGEST
        reason[wrong | outside] = _IMPOSSIBLE
        reason[np.isnan(positions).any(axis=1) & ~wrong] = _EMPTY
        good = np.flatnonzero(reason < 0)
        rows = np.zeros(len(positions), dtype=np.int64)
        nearest = self._tree.query(_apart(positions[good], self.places.kind))[1]
        rows[good] = self._row_of[nearest]
        reason[good[rows[good] < 0]] = _ALONE
        if self.farthest is not None:
            there = self.places.coordinates[nearest]
            away = haversine(positions[good], there) if geographic else np.hypot(*(positions[good] - there).T)
            reason[good[away > self.farthest]] = _FAR
        return np.maximum(rows, 0), reason


def _apart(positions: Floats, kind: str) -> Floats:
    """Points whose straight distances are in the order of the places' own."""
    if kind != "geographic":
        return positions
    lat, lon = np.radians(positions).T
    return EARTH_RADIUS_KM * np.column_stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])
