"""Places: ids with coordinates, and even grids."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt
from attrs import evolve, field, frozen
from attrs.converters import optional
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints, doubles, no_doubles
from privopt.errors import DoesNotHoldError, Fault, Faults, InputError, UsageError
from privopt.interfaces.reporting import position_text
from privopt.numbers.distances import EARTH_RADIUS_KM
from privopt_metric_dp.space.projection import Projection

__all__ = ["MAX_COORDINATE", "Kind", "Space", "check_places", "grid_points", "places_at_most", "rests_of"]

Kind = Literal["planar", "geographic", "vector", "plain"]

_RADIANS = math.pi / 180.0
MAX_COORDINATE = 1e150  # squares of differences stay finite


_PLACE_LIMIT: ContextVar[int | None] = ContextVar("_PLACE_LIMIT", default=None)


@contextmanager
def places_at_most(count: int | None) -> Iterator[None]:
    """Limit a problem's places, in this block, to as many as the release has rows or columns.

    A few numbers of a problem file can ask for millions of places, which would be worked out before they are compared.
    """
    token = _PLACE_LIMIT.set(count)
    try:
        yield
    finally:
        _PLACE_LIMIT.reset(token)


def check_places(count: int, subject: str) -> None:
    """Check the number of places before places are made that no file lists.

    Args:
        count: how many, at least.
        what: they are, for the message.

    Raises:
        DoesNotHoldError: more than :func:`places_at_most` allows.
    """
    limit = _PLACE_LIMIT.get()
    if limit is not None and count > limit:
        raise DoesNotHoldError(
            f"{subject}: must have at most {limit:,} places, the release's rows or columns, got {count:,}"
        )


def _to_texts(values: Iterable[object]) -> tuple[str, ...]:
    return tuple(map(str, values))


def _to_coordinates(values: npt.ArrayLike) -> Floats:
    if no_doubles(np.asarray(values)).any():
        raise UsageError("coordinates must be doubles, or whole numbers up to 2^53, got whole numbers beyond")
    return doubles(values)


@frozen(kw_only=True, eq=False)
class Space:
    """Ids and, where there are any, coordinates.

    >>> Space(ids=("a", "b"), coordinates=[[0.0, 0.0], [3.0, 4.0]], kind="planar").coordinates.shape
    (2, 2)

    Attributes:
        ids: N distinct texts.
        coordinates: (N, 2) km (planar: x, y) or degrees (geographic: lat, lon), (N, dim) for vectors, None if plain.
        kind: planar, geographic, vector or plain.
        source: name of the file that faults are reported against.
        off: how far at most, along an axis and in its unit, the places meant lie from these doubles: the decimals that
            were written. Distances are those of the places meant, rounded down.
        rests: of the shape of the coordinates: what these omit, as doubles; None where that is not known.
        written: (N, dim) the coordinates meant, as texts of decimals or of fractions; None where they are not known
            (or are the doubles, where ``off`` is 0).
        corner: of a grid on the earth: latitude and longitude of its first place in degrees. ``written`` is the way
            north and east of it then, in km.
        triangles: (S, 3) of a mesh or a grid, counter-clockwise, whose corners the places are; None without any.
        projection: by which planar coordinates came from the earth; None where they did not.
        names: N texts, what people call the places; None where they have no names.

    Raises:
        InputError: duplicate ids, a wrong shape, numbers that are not finite, latitudes beyond 90 or
            longitudes outside [-180, 360] degrees; all faults together.
        UsageError: rests of another shape than the coordinates; whole numbers that are not doubles.
    """

    ids: tuple[str, ...] = field(converter=_to_texts)
    coordinates: Floats | None = field(default=None, converter=optional(_to_coordinates))
    kind: Kind = "plain"
    source: str = "records"
    off: float = 0.0
    rests: Floats | None = field(default=None, converter=optional(_to_coordinates))
    written: NDArray[np.str_] | None = None
    corner: tuple[Fraction, Fraction] | None = None
    triangles: Ints | None = None
    projection: Projection | None = None
    names: tuple[str, ...] | None = None

    def __attrs_post_init__(self) -> None:
        faults = list(self._id_faults())
        if self.coordinates is None:
            if self.kind != "plain":
                faults.append(Fault(self.source, "", "no coordinates", f"coordinates of kind {self.kind}"))
        else:
            faults += self._coordinate_faults(self.coordinates)
        if faults:
            raise InputError(faults)
        shape = None if self.coordinates is None else self.coordinates.shape
        if self.rests is not None and self.rests.shape != shape:  # compiled code reads both
            raise UsageError(f"rests have shape {self.rests.shape}, coordinates {shape}")

    def __len__(self) -> int:
        return len(self.ids)

    def some(self, rows: Ints) -> Space:
        """Return some of the places, by their numbers."""
        return evolve(
            self,
            ids=[self.ids[row] for row in rows.tolist()],
            coordinates=None if self.coordinates is None else self.coordinates[rows],
            rests=None if self.rests is None else self.rests[rows],
            written=None if self.written is None else self.written[rows],
            triangles=None,
            names=None if self.names is None else tuple(self.names[row] for row in rows.tolist()),
        )

    @property
    def on_map(self) -> Floats | None:
        """(N, 2) coordinates of places on the earth or on a plane; None of others."""
        return self.coordinates if self.kind in ("geographic", "planar") else None

    def description(self, index: int) -> str:
        """Describe a place to a reader: its name, or else its position; empty without both."""
        if self.names is not None and self.names[index]:
            return self.names[index]
        if self.on_map is None:
            return ""
        x, y = self.on_map[index].tolist()
        return position_text(*((y, x) if self.kind == "geographic" else (x, y)), self.kind)

    def label(self, index: int) -> str:
        """Return an id and its description in brackets."""
        description = self.description(index)
        return f"{self.ids[index]} ({description})" if description else self.ids[index]

    def numbers(self, ids: Iterable[str]) -> Ints:
        """Return (M,) the place in ``ids`` of each of some of them, in the order given.

        Raises:
            KeyError: a text that is none of them.
        """
        index_by_id = {name: index for index, name in enumerate(self.ids)}
        return np.array([index_by_id[name] for name in ids], dtype=np.int64)

    @property
    def left(self) -> float:
        """How far at most the places meant lie from the doubles and their rests together, differences included."""
        if self.rests is None or self.coordinates is None or self.off == 0.0:
            return self.off
        return 2.0**-50 * self.off + 2.0**-103 * float(np.abs(self.coordinates).max())

    def _id_faults(self) -> Iterator[Fault]:
        if not self.ids:
            yield Fault(self.source, "", "no records at all", "at least one")
        duplicates = [name for name, times in Counter(self.ids).items() if times > 1]
        faults = (
            Fault(self.source, f"id {name!r}", "the same id more than once", "distinct ids") for name in duplicates
        )
        yield from Faults(faults).listed

    def _coordinate_faults(self, points: Floats) -> list[Fault]:
        shape = "(N, dim)" if self.kind == "vector" else "(N, 2)"
        wrong_width = points.ndim != 2 or points.shape[1] < 1 or (self.kind != "vector" and points.shape[1] != 2)
        if self.kind == "plain":
            return [Fault(self.source, "", "coordinates", "no coordinates, for ids alone")]
        if wrong_width or len(points) != len(self.ids):
            actual = f"an array of shape {points.shape} for {len(self.ids)} ids"
            return [Fault(self.source, "", actual, f"shape {shape}, one row an id")]
        is_invalid = ~np.isfinite(points) | (np.abs(points) > MAX_COORDINATE)
        limit = f"finite numbers, at most {MAX_COORDINATE:g}"
        if self.kind == "geographic":
            is_invalid[:, 0] |= np.abs(points[:, 0]) > 90.0
            is_invalid[:, 1] |= (points[:, 1] < -180.0) | (points[:, 1] > 360.0)
            limit = "a latitude in [-90, 90] and a longitude in [-180, 360] degrees"
        return Faults(
            Fault(self.source, f"id {self.ids[row]!r}", ", ".join(map(repr, points[row].tolist())), limit)
            for row in np.flatnonzero(is_invalid.any(axis=1))
        ).listed


def grid_points(
    rows: int,
    cols: int,
    cell_km: float | Fraction,
    south_west: Sequence[float | Fraction] | None = None,
    *,
    source: str = "problem.toml",
    key: str = "records.grid",
) -> Space:
    """Return the centres of a grid's cells, row-major, row 0 in the south, with ids "r-c".

    >>> grid_points(2, 2, 0.5).coordinates.tolist()
    [[0.0, 0.0], [0.5, 0.0], [0.0, 0.5], [0.5, 0.5]]

    Args:
        rows, cols: numbers of cells, each at least 1.
        cell_km: side of a cell in km.
        south_west: (lat, lon) in degrees of the centre of "r0c0"; longitudes are stepped at its
            latitude, R = 6371.0 km. Default: planar km, "r0c0" at (0, 0).
        source, key: what faults are reported against.

    Raises:
        InputError: sizes that are not positive, or a grid that passes a pole or goes round the earth.
        DoesNotHoldError: as of :func:`check_places`.
    """
    if faults := list(_grid_faults(rows, cols, cell_km, south_west, source, key)):
        raise InputError(faults)
    check_places(rows * cols, f"{source}: {key}")
    ids = tuple(f"r{r}c{c}" for r in range(rows) for c in range(cols))
    steps = [Fraction(cell_km) * step for step in range(max(rows, cols))]
    offsets = np.array([float(step) for step in steps])
    north, east = offsets[:rows], offsets[:cols]
    triangles, texts = _split_squares(rows, cols), np.array([str(step) for step in steps])
    east_first = [np.tile(texts[:cols], rows), np.repeat(texts[:rows], cols)]
    if south_west is None:
        points = np.column_stack([np.tile(east, rows), np.repeat(north, cols)])
        residuals = np.array(
            [float(step - Fraction(double)) for step, double in zip(steps, offsets.tolist(), strict=True)]
        )
        rests = np.column_stack([np.tile(residuals[:cols], rows), np.repeat(residuals[:rows], cols)])
        position_error = float(np.abs(residuals).max())
        return Space(
            ids=ids,
            coordinates=points,
            kind="planar",
            source=source,
            triangles=triangles,
            off=position_error,
            rests=rests,
            written=np.column_stack(east_first),
        )
    lat, lon = float(south_west[0]), float(south_west[1])
    latitudes = lat + north / EARTH_RADIUS_KM / _RADIANS
    longitudes = lon + east / (EARTH_RADIUS_KM * math.cos(lat * _RADIANS)) / _RADIANS
    if latitudes[-1] > 90.0 or longitudes[-1] - lon >= 360.0:
        raise InputError([Fault(source, key, "a grid that passes a pole or goes round the earth", "a smaller grid")])
    # every operation is off by u of what it gives, the cosine by the tangent times what its angle is off by
    span = max(float(latitudes[-1]) - lat, float(longitudes[-1]) - lon)
    position_error = 2.0**-53 * (
        4.0 * (abs(lat) + abs(lon) + span) + (16.0 + 8.0 * math.tan(abs(lat) * _RADIANS)) * span
    )
    longitudes = np.where(longitudes > 180.0, longitudes - 360.0, longitudes)
    points = np.column_stack([np.repeat(latitudes, cols), np.tile(longitudes, rows)])
    return Space(
        ids=ids,
        coordinates=points,
        kind="geographic",
        source=source,
        triangles=triangles,
        off=position_error,
        written=np.column_stack(east_first[::-1]),
        corner=(Fraction(south_west[0]), Fraction(south_west[1])),
    )


def _grid_faults(
    rows: int,
    cols: int,
    cell_km: float | Fraction,
    south_west: Sequence[float | Fraction] | None,
    source: str,
    key: str,
) -> Iterator[Fault]:
    for name, value in (("rows", rows), ("cols", cols)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            yield Fault(source, f"{key}.{name}", repr(value), "a whole number of at least 1")
    if not (math.isfinite(cell_km) and cell_km > 0):
        yield Fault(source, f"{key}.cell_km", repr(float(cell_km)), "a number above 0")
    if south_west is not None and not (
        len(south_west) == 2 and abs(float(south_west[0])) < 90.0 and -180.0 <= south_west[1] <= 180.0
    ):
        expectation = "[lat, lon] in degrees, |lat| below 90, lon in [-180, 180]"
        yield Fault(source, f"{key}.south_west", repr(list(map(float, south_west))), expectation)


def _split_squares(rows: int, cols: int) -> Ints:
    """Two triangles for each square between four neighbouring centres, none on a grid of one row or column."""
    indices = np.arange(rows * cols, dtype=np.int64).reshape(rows, cols)
    a, b, c, d = (part.ravel() for part in (indices[:-1, :-1], indices[:-1, 1:], indices[1:, :-1], indices[1:, 1:]))
    return np.column_stack([a, b, c, b, d, c]).reshape(-1, 3)


def rests_of(records: Space, outputs: Space) -> list[Floats]:
    """Return the rounding errors of coordinates, of records and of outputs; both without rows if neither has any."""
    arrays = [np.array(np.zeros_like(s.coordinates) if s.rests is None else s.rests) for s in (records, outputs)]
    return arrays if any(rests.any() for rests in arrays) else [rests[:0].copy() for rests in arrays]
