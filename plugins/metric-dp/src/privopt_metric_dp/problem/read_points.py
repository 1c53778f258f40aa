"""Read points files: CSV, Parquet, GeoParquet and GeoJSON, with column names that the problem may choose."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Floats
from privopt.declare.frames import PARQUET, as_csv, csv_bytes, list_columns
from privopt.declare.schema import File, key
from privopt.declare.tables import Column, duplicate_faults, read_table
from privopt.errors import Fault, Faults, InputError, reason_of
from privopt_metric_dp.space.places import Kind, Space
from privopt_metric_dp.space.wkb import check_degrees, check_geojson_degrees, points_of

if TYPE_CHECKING:
    import polars as pl

__all__ = ["COORDINATES", "Columns", "points_as_csv", "read_points"]

_GEOJSON: Final = (".geojson", ".json")
BETWEEN: Final = "/"
"""Separator between the columns of an id that consists of several."""

COORDINATES: Final[Mapping[Kind, tuple[str, str]]] = {
    "geographic": ("lat", "lon"),
    "planar": ("x", "y"),
}
"""Names of the two coordinates of places on a map."""


@frozen(kw_only=True)
class Columns:
    """Names of the columns of a points file. An omitted column has the name of its key."""

    id: str | tuple[str, ...] = key("id", help='ids; several columns, joined by "/", where one does not tell apart')
    lat: str = key("lat", help="latitudes", unit="degrees")
    lon: str = key("lon", help="longitudes", unit="degrees")
    x: str = key("x", help="eastings", unit="km")
    y: str = key("y", help="northings", unit="km")
    name: str | None = key(
        None, help="what people call the places, shown with their ids in reports; published with the problem"
    )
    geometry: str | None = key(None, help="points of a GeoParquet file; in place of lat and lon")


def read_points(points: File, columns: Columns | None, *, ids_alone: bool) -> Space:
    """Return the ids and coordinates of a points file.

    Args:
        points: CSV, Parquet or, by its ending, GeoJSON.
        columns: Names of the columns; by default those of :class:`Columns`.
        ids_alone: Whether a table without coordinates is accepted.
    """
    columns = columns or Columns()
    ids = (columns.id,) if isinstance(columns.id, str) else columns.id
    if columns.geometry is not None or points.name.lower().endswith(_GEOJSON):
        points = evolve(points, kept=points_as_csv(points, columns) or points.contents)
    if columns.geometry is not None:
        columns = evolve(columns, lat=f"{columns.geometry} (latitude)", lon=f"{columns.geometry} (longitude)")
    specs = [Column(name=f"id {index}", kind="id", label=name) for index, name in enumerate(ids)]
    specs += [
        Column(name=name, optional=True, unit=unit, rests=True, label=getattr(columns, name))
        for name, unit in (("lat", "degrees"), ("lon", "degrees"), ("x", "km"), ("y", "km"))
    ]
    if columns.name is not None:
        specs.append(Column(name="name", kind="text", label=columns.name))
    table = read_table(points, specs, any_of=[] if ids_alone else [("lat", "lon"), ("x", "y")])
    parts = [table[f"id {index}"].tolist() for index in range(len(ids))]
    joined = [BETWEEN.join(names) for names in zip(*parts, strict=True)]
    place_names = tuple(table["name"].tolist()) if "name" in table else None
    duplicates = duplicate_faults(points.name, np.asarray(joined, dtype=np.str_), " and ".join(ids))
    if duplicates:
        raise InputError(duplicates)
    for kind, names in COORDINATES.items():
        if all(name in table for name in names):
            coordinates = np.column_stack([table[name] for name in names])
            rests = np.column_stack([table[f"{name} rest"] for name in names])
            position_error = float(np.abs(rests).max())
            written = np.column_stack([table[f"{name} written"] for name in names])
            return Space(
                ids=joined,
                coordinates=coordinates,
                kind=kind,
                source=points.name,
                off=position_error,
                rests=rests,
                written=written,
                names=place_names,
            )
    return Space(ids=joined, kind="plain", source=points.name, names=place_names)


def points_as_csv(points: File, columns: Columns | None) -> bytes | None:
    """Convert a points file to a CSV file that reads to the same points by the same columns; None for a CSV file.

    A column ``geometry`` NAME becomes two, ``NAME (latitude)`` and ``NAME (longitude)``.
    """
    import polars as pl

    columns = columns or Columns()
    texts = (*((columns.id,) if isinstance(columns.id, str) else columns.id), *filter(None, [columns.name]))
    lat, lon = columns.lat, columns.lon
    if points.name.lower().endswith(_GEOJSON):
        frame, places = _read_geojson(points, texts)
    elif columns.geometry is None:
        return as_csv(points)
    elif points.name.lower().endswith(".csv") and f"{columns.geometry} (latitude)".encode() in points.contents:
        return None
    else:
        frame, places = _read_geoparquet(points, texts, columns.geometry)
    if columns.geometry is not None:
        lat, lon = f"{columns.geometry} (latitude)", f"{columns.geometry} (longitude)"
    return csv_bytes(frame.with_columns(pl.Series(lat, places[:, 0]), pl.Series(lon, places[:, 1])).fill_nan(None))


def _read_geoparquet(points: File, texts: Sequence[str], geometry: str) -> tuple[pl.DataFrame, Floats]:
    """Return the columns of ids and names of a GeoParquet file, and (N, 2) latitudes and longitudes."""
    import polars as pl

    if not points.contents.startswith(PARQUET):
        raise InputError([Fault(points.name, f"column {geometry}", "a file that is not Parquet", "GeoParquet")])
    try:
        check_degrees(pl.read_parquet_metadata(io.BytesIO(points.contents)).get("geo"), geometry, points.name)
        frame = pl.read_parquet(points.contents)
    except pl.exceptions.PolarsError:
        raise InputError([Fault(points.name, "", "a file that is not Parquet", "GeoParquet")]) from None
    if geometry not in frame.columns:
        expectation = f"one of {list_columns(frame.columns)}"
        raise InputError([Fault(points.name, "header", f"no column {geometry!r}", expectation)])
    places, wrong = points_of(frame[geometry], points.name)
    expectation = "a point (of an area: its centroid, say)"
    rows = np.flatnonzero(wrong).tolist()
    Faults(
        Fault(points.name, f"row {row + 2}, column {geometry}", "another geometry", expectation) for row in rows
    ).check()
    return frame.select(name for name in texts if name in frame.columns), places


def _read_geojson(points: File, texts: Sequence[str]) -> tuple[pl.DataFrame, Floats]:
    """Return the properties of ids and names of a GeoJSON file (by default the features' ids), and their points."""
    import polars as pl

    expectation = "a FeatureCollection of points in longitude and latitude"
    try:
        collection = json.loads(points.contents)
    except (ValueError, RecursionError) as error:
        raise InputError([Fault(points.name, "", f"no JSON ({reason_of(error)})", expectation)]) from None
    try:
        features = collection["features"]
        check_geojson_degrees(collection, points.name)
        values = {
            name: [
                feature["properties"].get(name, feature.get("id", "") if name == "id" else "") for feature in features
            ]
            for name in texts
        }
        names = {name: ["" if value is None else str(value) for value in column] for name, column in values.items()}
        shapes = [feature["geometry"] or {} for feature in features]
        places = [shape["coordinates"][:2] if shape.get("type") == "Point" else (None, None) for shape in shapes]
        flat = np.array(places, dtype=np.float64).reshape(-1, 2)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError([Fault(points.name, "", "JSON of another form", expectation)]) from None
    return pl.DataFrame(names, schema=dict.fromkeys(texts, pl.String)), flat[:, ::-1]
