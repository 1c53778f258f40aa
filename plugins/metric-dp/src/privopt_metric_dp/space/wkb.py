"""Read points from GeoPandas frames and from well-known binary (WKB), the encoding used by GeoParquet."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import narwhals as nw
import numpy as np

from privopt.arrays import Floats
from privopt.declare.column_texts import TABLE
from privopt.declare.frames import type_name
from privopt.errors import Fault, InputError

if TYPE_CHECKING:
    from polars import Series
else:
    Series = Any

__all__ = ["check_degrees", "check_geojson_degrees", "geometries_of", "points_in", "points_of"]

_POINT: Final = np.dtype([("order", "u1"), ("type", "<u4"), ("x", "<f8"), ("y", "<f8")])
"""The binary layout of a little-endian point, the form used by nearly all programs."""

_DEGREES: Final = frozenset({"OGC:CRS84", "EPSG:4326"})
"""The names of the coordinate reference systems in which coordinates are longitudes and latitudes in degrees."""


def points_of(values: Series, file: str) -> tuple[Floats, Floats]:
    """Decode the points in a column of well-known binary geometries.

    Args:
        values: A column of B values, each either a geometry in well-known binary or null.
        file: The name of the file, for error messages.

    Returns:
        Two arrays. The first has shape (B, 2) and contains the points as (y, x), i.e. latitude before longitude. A
        missing or empty point is NaN. The second has shape (B,) and is 1.0 where a value is present but not a point,
        and 0.0 elsewhere.

    Raises:
        InputError: The column does not contain bytes.
    """
    values = values.to_physical()  # removes an extension type, which only labels the bytes as geometries
    import polars as pl

    if values.dtype != pl.Binary:
        actual = f"values of type {type_name(values.dtype)}"
        raise InputError([Fault(file, f"column {values.name}", actual, "points in well-known binary (WKB)")])
    points, wrong = np.full((len(values), 2), np.nan), np.zeros(len(values))
    # Values of the usual form, little-endian points, are decoded together with NumPy, and all others one by one.
    has_usual_size = values.bin.size().fill_null(0).to_numpy() == _POINT.itemsize
    parts = np.frombuffer(b"".join(values.filter(pl.Series(has_usual_size)).to_list()), dtype=_POINT)
    usual = (parts["order"] == 1) & (parts["type"] == 1)
    rows = np.flatnonzero(has_usual_size)[usual]
    points[rows, 0], points[rows, 1] = parts["y"][usual], parts["x"][usual]
    for row in np.setdiff1d(np.flatnonzero(values.is_not_null().to_numpy()), rows).tolist():
        point = _decode_point(values[row])
        if point is None:
            wrong[row] = 1.0
        else:
            points[row] = point
    return points, wrong


def _decode_point(raw: bytes) -> tuple[float, float] | None:
    """Decode a point in well-known binary, in either byte order.

    Heights, measures and reference systems are ignored.

    Returns:
        The point as (y, x), or None if the value is not a point.
    """
    # A point takes at least 21 bytes: 1 for the byte order, 4 for the type and 16 for two doubles.
    if len(raw) < 21 or raw[0] > 1:
        return None
    order = "<" if raw[0] else ">"
    (code,) = struct.unpack_from(f"{order}I", raw, 1)
    # EWKB sets a flag if the type is followed by a four-byte reference system. Points with heights or measures have a
    # type that is larger by 1000 to 3000 (ISO), or flags in the highest bits (EWKB).
    start = 9 if code & 0x20000000 else 5
    if (code & 0x0FFFFFFF) % 1000 != 1 or len(raw) < start + 16:
        return None
    x, y = struct.unpack_from(f"{order}2d", raw, start)
    return y, x


def points_in(column: nw.Series[Any]) -> tuple[Floats, Floats]:
    """Return the points in a column of an in-memory table.

    Args:
        column: Either a GeoSeries, which is converted to longitudes and latitudes, or a column of well-known binary
            geometries.

    Returns:
        Two arrays. The first has shape (B, 2) and contains the points as (y, x), i.e. latitude before longitude. A
        missing or empty point is NaN. The second has shape (B,) and is 1.0 where a value is present but not a point,
        and 0.0 elsewhere.

    Raises:
        InputError: The column contains neither geometries nor bytes, or it is a GeoSeries without a reference system.
    """
    native = column.to_native()
    if not hasattr(native, "geom_type"):
        import polars as pl

        values = native if isinstance(native, pl.Series) else pl.Series(column.name, column.to_list())
        return points_of(values, TABLE)
    if native.crs is None:
        expectation = "a reference system (set_crs(4326) where they are longitudes and latitudes)"
        raise InputError(
            [Fault(TABLE, f"column {column.name}", "points without a reference system (crs)", expectation)]
        )
    native = native.to_crs(4326)
    is_present = native.notna().to_numpy()
    is_point = (native.geom_type == "Point").to_numpy() & is_present & ~native.is_empty.to_numpy()
    points = np.full((len(native), 2), np.nan)
    points[is_point, 0], points[is_point, 1] = native[is_point].y.to_numpy(), native[is_point].x.to_numpy()
    # The factor 1.0 converts the booleans to doubles, which points_of() returns too.
    return points, (is_present & ~is_point & ~native.is_empty.to_numpy()) * 1.0


def geometries_of(geo: str | bytes | None) -> dict[str, tuple[str, ...]]:
    """Map each geometry column in GeoParquet metadata to the names of the columns that contain its bounding boxes.

    Args:
        geo: The metadata as JSON, or None if the file has none, in which case the result is empty.

    Raises:
        ValueError: The metadata does not conform to GeoParquet.
    """
    try:
        # The metadata come from other programs, so they may deviate from the format in any way.
        columns = {} if geo is None else json.loads(geo)["columns"]
        boxes_by_geometry = {}
        for name, column in columns.items():
            paths = column.get("covering", {}).get("bbox", {}).values()
            boxes_by_geometry[name] = tuple(sorted({path if isinstance(path, str) else str(path[0]) for path in paths}))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise ValueError('metadata "geo" that are not GeoParquet\'s') from None
    return boxes_by_geometry


def check_degrees(geo: str | bytes | None, column: str, file: str) -> None:
    """Check that a geometry column contains longitudes and latitudes, according to its GeoParquet metadata.

    A file without metadata is accepted.

    Args:
        geo: GeoParquet metadata as JSON, or None if the file has none.
        column: The name of the geometry column.
        file: The name of the file, for error messages.

    Raises:
        InputError: The metadata specifies a different reference system, or one that cannot be identified.
    """
    if geo is None:
        return
    try:
        system: Any = json.loads(geo)["columns"][column].get("crs", {})
    except (ValueError, KeyError, TypeError, AttributeError):
        system_name = "a system that the metadata do not name"
    except RecursionError:
        system_name = "a system whose metadata are nested too deeply"
    else:
        system_name = _name_system(system)
    if system_name not in _DEGREES:
        expectation = "EPSG:4326 or OGC:CRS84 (longitude and latitude)"
        raise InputError([Fault(file, f"column {column}", f"points in {system_name}", expectation)])


def check_geojson_degrees(document: Mapping[str, Any], file: str) -> None:
    """Check that the ``crs`` member of a GeoJSON object, if any, specifies longitudes and latitudes.

    Args:
        document: The GeoJSON object.
        file: The name of the file, for error messages.

    Raises:
        InputError: The member specifies a different reference system, or is malformed.
    """
    system = document.get("crs")
    if system is None:
        return
    name = system.get("properties", {}).get("name") if isinstance(system, Mapping) else None
    # Programs write the same system in different ways: as a URN with or without a version, or as a URL.
    code = str(name).upper().removeprefix("URN:OGC:DEF:CRS:").replace("::", ":")
    if code not in ("EPSG:4326", "OGC:CRS84", "OGC:1.3:CRS84", "CRS84", "HTTP://WWW.OPENGIS.NET/DEF/CRS/OGC/1.3/CRS84"):
        expectation = "EPSG:4326 or OGC:CRS84 (longitude and latitude), or no member crs"
        raise InputError([Fault(file, "crs", f"points in {name}" if name else "an unknown system", expectation)])


def _name_system(system: object) -> str:
    """Return the name of a coordinate reference system, such as "EPSG:4326", or a phrase such as "an unnamed system".

    Args:
        system: The ``crs`` member in GeoParquet metadata: a PROJJSON object, or an empty object if the file does not
            specify a system. Any other value is treated as an unknown system.
    """
    if not isinstance(system, Mapping):
        return "an unknown system"
    identifier = system.get("id", {})
    if isinstance(identifier, Mapping) and identifier:
        return f"{identifier.get('authority')}:{identifier.get('code')}"
    # GeoParquet specifies that a column without ``crs`` is in OGC:CRS84.
    return str(system.get("name", "an unnamed system")) if system else "OGC:CRS84"
