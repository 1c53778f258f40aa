"""Places: ids with coordinates, the formulas for distances between them, and even grids.

The formulas use additions, multiplications, divisions and square roots alone (IEEE 754 rounds those
correctly), never a library's sine, whose last bit may depend on the processor and on where in an
array a number stands. So a distance is one double, in whichever block or machine it is computed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from attrs import field, frozen

from privopt.errors import Fault, InputError

__all__ = [
    "EARTH_RADIUS_KM",
    "LARGEST",
    "FloatArray",
    "IntArray",
    "Space",
    "cosine_of_latitude",
    "euclidean",
    "great_circle",
    "grid_points",
    "haversine",
    "limited",
    "read_only",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Kind = Literal["planar", "geographic", "vector", "plain"]

EARTH_RADIUS_KM = 6371.0
_RADIANS = math.pi / 180.0
LARGEST = 1e150  # squares of differences stay finite
_NAMED = 20  # faults of one kind that are named one by one

# (1 - cos x) / 2 = sum_k (-1)^(k+1) x^2k / (2 (2k)!), and asin(s) / s = sum_k c_k s^2k.
_HAVERSINE_TERMS = tuple((-1.0) ** (k + 1) / (2.0 * math.factorial(2 * k)) for k in range(1, 16))
_ARCSINE_TERMS = tuple(math.comb(2 * k, k) / (4.0**k * (2 * k + 1)) for k in range(13))


def _texts(values: Iterable[object]) -> tuple[str, ...]:
    return tuple(map(str, values))


def _coordinates(values: npt.ArrayLike | None) -> FloatArray | None:
    return None if values is None else read_only(np.array(values, dtype=np.float64))


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

    Raises:
        InputError: duplicate ids, a wrong shape, numbers that are not finite, latitudes beyond 90 or
            longitudes outside [-180, 360] degrees; all faults together.
    """

    ids: tuple[str, ...] = field(converter=_texts)
    coordinates: FloatArray | None = field(default=None, converter=_coordinates)
    kind: Kind = "plain"
    source: str = "records"

    def __attrs_post_init__(self) -> None:
        faults = list(self._id_faults())
        if self.coordinates is None:
            if self.kind != "plain":
                faults.append(Fault(self.source, "", "no coordinates", f"coordinates of kind {self.kind}"))
        else:
            faults += self._coordinate_faults(self.coordinates)
        if faults:
            raise InputError(faults)

    def __len__(self) -> int:
        return len(self.ids)

    def _id_faults(self) -> Iterator[Fault]:
        if not self.ids:
            yield Fault(self.source, "", "no records at all", "at least one")
        double = [name for name, times in Counter(self.ids).items() if times > 1]
        yield from limited(
            [Fault(self.source, f"id {name!r}", "the same id more than once", "distinct ids") for name in double]
        )

    def _coordinate_faults(self, points: FloatArray) -> list[Fault]:
        wanted = "(N, dim)" if self.kind == "vector" else "(N, 2)"
        wrong_width = points.ndim != 2 or points.shape[1] < 1 or (self.kind != "vector" and points.shape[1] != 2)
        if self.kind == "plain":
            return [Fault(self.source, "", "coordinates", "none, for ids alone")]
        if wrong_width or len(points) != len(self.ids):
            found = f"an array of shape {points.shape} for {len(self.ids)} ids"
            return [Fault(self.source, "", found, f"shape {wanted}, one row an id")]
        bad = ~np.isfinite(points) | (np.abs(points) > LARGEST)
        limit = f"finite numbers, at most {LARGEST:g}"
        if self.kind == "geographic":
            bad[:, 0] |= np.abs(points[:, 0]) > 90.0
            bad[:, 1] |= (points[:, 1] < -180.0) | (points[:, 1] > 360.0)
            limit = "a latitude in [-90, 90] and a longitude in [-180, 360] degrees"
        return limited(
            [
                Fault(self.source, f"id {self.ids[row]!r}", ", ".join(map(repr, points[row].tolist())), limit)
                for row in np.flatnonzero(bad.any(axis=1))
            ]
        )


def grid_points(
    rows: int,
    cols: int,
    cell_km: float,
    south_west: Sequence[float] | None = None,
    *,
    source: str = "problem.toml",
    key: str = "records.grid",
) -> Space:
    """Centres of a grid's cells, row-major, row 0 in the south, with ids "r-c".

    >>> grid_points(2, 2, 0.5).coordinates.tolist()
    [[0.0, 0.0], [0.5, 0.0], [0.0, 0.5], [0.5, 0.5]]

    Args:
        rows, cols: numbers of cells, each at least 1.
        cell_km: side of a cell in km.
        south_west: (lat, lon) in degrees of the centre of "0-0"; longitudes are stepped at its
            latitude, R = 6371.0 km. Left out: planar km, "0-0" at (0, 0).
        source, key: what faults are reported against.

    Raises:
        InputError: sizes that are not positive, or a grid that passes a pole or goes round the earth.
    """
    faults = [
        Fault(source, f"{key}.{name}", repr(value), "a whole number of at least 1")
        for name, value in (("rows", rows), ("cols", cols))
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1
    ]
    if not (math.isfinite(cell_km) and cell_km > 0):
        faults.append(Fault(source, f"{key}.cell_km", repr(cell_km), "a number above 0"))
    if south_west is not None and not (
        len(south_west) == 2 and abs(south_west[0]) < 90.0 and -180.0 <= south_west[1] <= 180.0
    ):
        wanted = "[lat, lon] in degrees, |lat| below 90, lon in [-180, 180]"
        faults.append(Fault(source, f"{key}.south_west", repr(list(south_west)), wanted))
    if faults:
        raise InputError(faults)
    ids = tuple(f"{r}-{c}" for r in range(rows) for c in range(cols))
    north = np.arange(rows, dtype=np.float64) * cell_km
    east = np.arange(cols, dtype=np.float64) * cell_km
    if south_west is None:
        points = np.column_stack([np.tile(east, rows), np.repeat(north, cols)])
        return Space(ids=ids, coordinates=points, kind="planar", source=source)
    lat, lon = float(south_west[0]), float(south_west[1])
    latitudes = lat + north / EARTH_RADIUS_KM / _RADIANS
    longitudes = lon + east / (EARTH_RADIUS_KM * math.cos(lat * _RADIANS)) / _RADIANS
    if latitudes[-1] > 90.0 or longitudes[-1] - lon >= 360.0:
        raise InputError([Fault(source, key, "a grid that passes a pole or goes round the earth", "a smaller one")])
    longitudes = np.where(longitudes > 180.0, longitudes - 360.0, longitudes)
    points = np.column_stack([np.repeat(latitudes, cols), np.tile(longitudes, rows)])
    return Space(ids=ids, coordinates=points, kind="geographic", source=source)


def euclidean(a: npt.ArrayLike, b: npt.ArrayLike) -> FloatArray:
    """Euclidean distance over the last axis; the other axes broadcast.

    >>> float(euclidean([0.0, 0.0], [3.0, 4.0]))
    5.0

    Args:
        a, b: (..., dim), in one unit; the result, of shape (...), has the same.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    total = np.zeros(np.broadcast_shapes(a.shape[:-1], b.shape[:-1]))
    for axis in range(a.shape[-1]):  # one order of summation, whatever the layout
        step = a[..., axis] - b[..., axis]
        total += step * step
    return np.sqrt(total)


def haversine(a: npt.ArrayLike, b: npt.ArrayLike) -> FloatArray:
    """Great-circle distance in km over the last axis (lat, lon in degrees), R = 6371.0 km.

    >>> round(float(haversine([0.0, 0.0], [0.0, 180.0])), 6)  # half the equator
    20015.086796

    Args:
        a, b: (..., 2); the other axes broadcast. Relative error a few 1e-16 (near antipodes 1e-8).
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    return great_circle(
        a[..., 0], a[..., 1], cosine_of_latitude(a[..., 0]), b[..., 0], b[..., 1], cosine_of_latitude(b[..., 0])
    )


def limited(faults: list[Fault]) -> list[Fault]:
    """The first faults, and a count of the others of their kind."""
    if len(faults) <= _NAMED:
        return faults
    rest = Fault(faults[0].file, "", f"{len(faults) - _NAMED} more faults of this kind", faults[-1].wanted)
    return [*faults[:_NAMED], rest]


def read_only(array: FloatArray) -> FloatArray:
    """The same array, which nobody can write to any more."""
    array.setflags(write=False)
    return array


def _series(terms: tuple[float, ...], t: FloatArray) -> FloatArray:
    """sum_k terms[k] t^k by Horner's rule."""
    total = np.full(t.shape, terms[-1])
    for term in terms[-2::-1]:
        total *= t
        total += term
    return total


def _half_versine(degrees: FloatArray) -> FloatArray:
    """(1 - cos x) / 2 for x in [0, 180] degrees."""
    t = np.square(degrees * _RADIANS)
    return _series(_HAVERSINE_TERMS, t) * t


def cosine_of_latitude(latitude: FloatArray) -> FloatArray:
    """Cosine of latitudes in degrees, exactly 0 at the poles."""
    latitude = np.abs(latitude)
    return np.where(latitude == 90.0, 0.0, np.maximum(1.0 - 2.0 * _half_versine(latitude), 0.0))


def great_circle(
    lat_a: FloatArray, lon_a: FloatArray, cos_a: FloatArray, lat_b: FloatArray, lon_b: FloatArray, cos_b: FloatArray
) -> FloatArray:
    """Haversine formula; symmetric bit for bit, since every step treats a and b alike."""
    turn = np.abs(lon_a - lon_b)
    turn = np.where(turn > 360.0, turn - 360.0, turn)
    turn = np.minimum(turn, np.abs(360.0 - turn))
    h = _half_versine(np.abs(lat_a - lat_b)) + (cos_a * cos_b) * _half_versine(turn)
    h = np.minimum(h, 1.0)
    for _ in range(3):  # halve the angle until the series of the arcsine converges fast
        h = h / (2.0 * (1.0 + np.sqrt(1.0 - h)))
    return (16.0 * EARTH_RADIUS_KM) * (np.sqrt(h) * _series(_ARCSINE_TERMS, h))
