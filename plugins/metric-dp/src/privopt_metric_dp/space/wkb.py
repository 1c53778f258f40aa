"""Points in well-known binary, as GeoParquet holds them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from privopt.arrays import Floats
from privopt.errors import Fault, InputError

if TYPE_CHECKING:
    from polars import Series
else:
    Series = Any

__all__ = ["centres_of", "check_degrees", "geometries_of", "points_of"]

_POINT: Final = np.dtype([("order", "u1"), ("type", "<u4"), ("x", "<f8"), ("y", "<f8")])
"""A point, little-endian, as nearly every program writes it."""

_DEGREES: Final = frozenset({"OGC:CRS84", "EPSG:4326"})


def points_of(values: Series, file: str) -> tuple[Floats, Floats]:
    """Return the points of a column.

    Args:
        values: (B,) well-known binary, or null.
        file: that faults are reported against.

    Returns:
        (B, 2) y before x (latitude before longitude), NaN for a missing or empty point; and (B,) 1.0 where the value is
        something else.
    """
    values = values.to_physical()  # an extension type says what the bytes mean
    import polars as pl

    if values.dtype != pl.Binary:
        found = f"values of type {values.dtype}"
        raise InputError([Fault(file, f"column {values.name}", found, "points in well-known binary (WKB)")])
    flat, wrong = np.full((len(values), 2), np.nan), np.zeros(len(values))
    plain = values.bin.size().fill_null(0).to_numpy() == _POINT.itemsize
    parts = np.frombuffer(b"".join(values.filter(pl.Series(plain)).to_list()), dtype=_POINT)
    usual = (parts["order"] == 1) & (parts["type"] == 1)
    rows = np.flatnonzero(plain)[usual]
    flat[rows, 0], flat[rows, 1] = parts["y"][usual], parts["x"][usual]
    for row in np.setdiff1d(np.flatnonzero(values.is_not_null().to_numpy()), rows).tolist():
        point = _point(values[row])
        if point is None:
            wrong[row] = 1.0
        else:
            flat[row] = point
    return flat, wrong


def _point(raw: bytes) -> tuple[float, float] | None:
    """(y, x) of a point in any form: of either order, with heights or a reference system."""
    if len(raw) < 21 or raw[0] > 1:
        return None
    order = "<" if raw[0] else ">"
    (code,) = struct.unpack_from(f"{order}I", raw, 1)
    start = 9 if code & 0x20000000 else 5
    if (code & 0x0FFFFFFF) % 1000 != 1 or len(raw) < start + 16:
        return None
    x, y = struct.unpack_from(f"{order}2d", raw, start)
    return y, x


def centres_of(values: Series, file: str) -> Floats:
    """Return (N, 2) y before x: points, and of polygons the centroid of their largest part; NaN for anything else."""
    flat, wrong = points_of(values, file)
    binary = values.to_physical()
    for row in np.flatnonzero(wrong).tolist():
        flat[row] = max(_polygons(binary[row]), default=(0.0, np.nan, np.nan))[1:]
    return flat


def _polygons(raw: bytes) -> list[tuple[float, float, float]]:
    """(area, y, x) of each part of a polygon or several, outer rings alone; in the plane of the coordinates."""
    found: list[tuple[float, float, float]] = []
    at = 0

    def take(form: str) -> tuple[Any, ...]:
        nonlocal at
        values = struct.unpack_from(form, raw, at)
        at += struct.calcsize(form)
        return values

    def geometry() -> None:
        nonlocal at
        order = "<" if take("B")[0] else ">"
        (code,) = take(f"{order}I")
        if code & 0x20000000:
            at += 4
        kind, layout = code & 0x0FFFFFFF, 2 + bool(code & 0x80000000) + bool(code & 0x40000000)
        layout += {0: 0, 1: 1, 2: 1, 3: 2}.get(kind // 1000, 0)
        if kind % 1000 == 6:
            for _ in range(take(f"{order}I")[0]):
                geometry()
        elif kind % 1000 == 3:
            for ring in range(take(f"{order}I")[0]):
                count = take(f"{order}I")[0]
                corners = np.array(take(f"{order}{count * layout}d")).reshape(count, layout)[:, :2]
                if ring == 0 and count > 3:
                    found.append(_centroid(corners))

    try:
        geometry()
    except (struct.error, RecursionError, MemoryError, ValueError):  # cut short, nested without end, or counts that lie
        return []
    return found


def _centroid(corners: Floats) -> tuple[float, float, float]:
    """(area, y, x) of a ring whose last corner is its first."""
    first = corners[0]
    x, y = (corners - first).T
    twice = x[:-1] * y[1:] - x[1:] * y[:-1]
    area = float(twice.sum()) / 2.0
    if area == 0.0:
        middle = corners[:-1].mean(axis=0)
        return 0.0, float(middle[1]), float(middle[0])
    east, north = (float(((side[:-1] + side[1:]) * twice).sum()) / (6.0 * area) for side in (x, y))
    return abs(area), float(first[1]) + north, float(first[0]) + east


def geometries_of(geo: str | bytes | None) -> dict[str, tuple[str, ...]]:
    """Return the columns of geometries that GeoParquet's metadata name, and the columns with boxes around each of them.

    Args:
        geo: the metadata, or None where there are none.

    Raises:
        ValueError: what is none.
    """
    try:
        columns = {} if geo is None else json.loads(geo)["columns"]
        found = {}
        for name, column in columns.items():
            paths = column.get("covering", {}).get("bbox", {}).values()
            found[name] = tuple(sorted({path if isinstance(path, str) else str(path[0]) for path in paths}))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise ValueError("metadata geo that are not GeoParquet's") from None
    return found


def check_degrees(geo: str | bytes | None, column: str, file: str) -> None:
    """Refuse geometries in another reference system than longitude and latitude, where metadata name one.

    Args:
        geo: GeoParquet's metadata, or None where the file has none.
        column: of the geometries.
        file: that faults are reported against.
    """
    if geo is None:
        return
    try:
        system: Any = json.loads(geo)["columns"][column].get("crs", {})
    except (ValueError, KeyError, TypeError, AttributeError):
        named = "a system that its metadata do not say"
    except RecursionError:
        named = "a system in metadata nested too deep"
    else:
        named = _name(system)
    if named not in _DEGREES:
        wanted = "EPSG:4326 or OGC:CRS84 (longitude and latitude)"
        raise InputError([Fault(file, f"column {column}", f"points in {named}", wanted)])


def _name(system: object) -> str:
    if not isinstance(system, Mapping):
        return "an unknown system"
    known = system.get("id", {})
    if isinstance(known, Mapping) and known:
        return f"{known.get('authority')}:{known.get('code')}"
    return str(system.get("name", "an unnamed system")) if system else "OGC:CRS84"  # if omitted it means that
