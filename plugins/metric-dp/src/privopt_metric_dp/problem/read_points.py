"""Read points files in CSV, Parquet, GeoParquet or GeoJSON format."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Floats
from privopt.declare.frames import PARQUET, as_csv, csv_bytes, list_columns, read_parquet
from privopt.declare.schema import File, key
from privopt.declare.tables import Column, duplicate_faults, read_table
from privopt.errors import Fault, Faults, InputError, reason_of
from privopt_metric_dp.space.places import MAX_COORDINATE, Kind, Space
from privopt_metric_dp.space.wkb import check_degrees, check_geojson_degrees, points_of

if TYPE_CHECKING:
    import polars as pl

__all__ = ["COORDINATES", "Columns", "points_as_csv", "read_points"]

_GEOJSON: Final = (".geojson", ".json")
"""The file name extensions of GeoJSON files."""
BETWEEN: Final = "/"
"""The separator between the column values that make up an id."""

COORDINATES: Final[Mapping[Kind, tuple[str, str]]] = {
    "geographic": ("lat", "lon"),
    "planar": ("x", "y"),
}
"""The default names of the two coordinate columns for each kind of places."""


@frozen(kw_only=True)
class Columns:
    """The names of the columns in a points file. By default, most columns have the same names as these keys."""

    id: str | tuple[str, ...] = key("id", help='ids; several columns, joined by "/", if one is not unique')
    lat: str = key("lat", help="latitudes", unit="degrees")
    lon: str = key("lon", help="longitudes", unit="degrees")
    x: str = key("x", help="eastings", unit="km")
    y: str = key("y", help="northings", unit="km")
    name: str | None = key(
        None, help="what people call the places, shown with their ids in reports; published with the problem"
    )
    geometry: str | None = key(None, help="points of a GeoParquet file; in place of lat and lon")


def read_points(points: File, columns: Columns | None, *, ids_alone: bool) -> Space:
    """Read ids and coordinates from a points file.

    Args:
        points: The file. GeoJSON is recognised by the file name, and Parquet and CSV by the contents.
        columns: The names of the columns, or None for the defaults of :class:`Columns`.
        ids_alone: Whether a file without coordinates is accepted.

    Raises:
        InputError: The file contains errors, which are reported by row and column, or an id occurs twice.
    """
    columns = columns or Columns()
    ids = (columns.id,) if isinstance(columns.id, str) else columns.id
    # Files with geometries are first converted to CSV, so that a single reader checks all formats.
    if columns.geometry is not None or points.name.lower().endswith(_GEOJSON):
        points = evolve(points, kept=points_as_csv(points, columns) or points.contents)
    if columns.geometry is not None:
        columns = evolve(columns, lat=f"{columns.geometry} (latitude)", lon=f"{columns.geometry} (longitude)")
    specs = [Column(name=f"id {index}", kind="id", label=name) for index, name in enumerate(ids)]
    specs += [
        Column(name=name, optional=True, unit=unit, rests=True, label=getattr(columns, name), least=lower, most=upper)
        # The name, unit, smallest and largest value of each column. A file has either lat and lon, or x and y. With
        # ``rests``, the reader also returns the difference between each decimal and its double.
        for name, unit, lower, upper in (
            ("lat", "degrees", -90.0, 90.0),
            ("lon", "degrees", -180.0, 360.0),
            ("x", "km", -MAX_COORDINATE, MAX_COORDINATE),
            ("y", "km", -MAX_COORDINATE, MAX_COORDINATE),
        )
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
            # The largest difference between a decimal coordinate and its double.
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
    # The table has no coordinates, which `ids_alone` allows.
    return Space(ids=joined, kind="plain", source=points.name, names=place_names)


def points_as_csv(points: File, columns: Columns | None) -> bytes | None:
    """Convert a points file to CSV with the same points and columns, or return None if it is already CSV.

    Releases contain this CSV file, so that a verifier can read it without libraries for other formats. A geometry
    column NAME becomes two columns, ``NAME (latitude)`` and ``NAME (longitude)``.

    Args:
        points: A CSV, Parquet, GeoParquet or GeoJSON file.
        columns: The names of the columns, or None for the defaults of :class:`Columns`.
    """
    import polars as pl

    columns = columns or Columns()
    # The columns that contain ids and names.
    texts = (*((columns.id,) if isinstance(columns.id, str) else columns.id), *filter(None, [columns.name]))
    lat, lon = columns.lat, columns.lon
    if points.name.lower().endswith(_GEOJSON):
        frame, places = _read_geojson(points, texts)
    elif columns.geometry is None:
        return as_csv(points)
    # A file that was converted before already contains both columns of the geometry.
    elif points.name.lower().endswith(".csv") and f"{columns.geometry} (latitude)".encode() in points.contents:
        return None
    else:
        frame, places = _read_geoparquet(points, texts, columns.geometry)
    if columns.geometry is not None:
        lat, lon = f"{columns.geometry} (latitude)", f"{columns.geometry} (longitude)"
    # The coordinates of a missing point are NaN. They become empty cells, which the table reader reports by row.
    return csv_bytes(frame.with_columns(pl.Series(lat, places[:, 0]), pl.Series(lon, places[:, 1])).fill_nan(None))


def _read_geoparquet(points: File, texts: Sequence[str], geometry: str) -> tuple[pl.DataFrame, Floats]:
    """Read ids, names and points from a GeoParquet file.

    Args:
        points: The file.
        texts: The names of the columns that contain ids and names.
        geometry: The name of the column that contains points.

    Returns:
        A frame with the text columns, and an array of shape (N, 2) with latitudes and longitudes in degrees.

    Raises:
        InputError: The file is not GeoParquet in degrees, or contains geometries other than points. In the second case,
            the error lists the rows of the first :data:`privopt.errors.MOST_FAULTS` such geometries.
    """
    import polars as pl

    if not points.contents.startswith(PARQUET):
        raise InputError([Fault(points.name, f"column {geometry}", "a file that is not Parquet", "GeoParquet")])
    try:
        check_degrees(pl.read_parquet_metadata(io.BytesIO(points.contents)).get("geo"), geometry, points.name)
        frame = read_parquet(points, "GeoParquet")
    except pl.exceptions.PolarsError:
        raise InputError([Fault(points.name, "", "a file that is not Parquet", "GeoParquet")]) from None
    if geometry not in frame.columns:
        expectation = f"one of {list_columns(frame.columns)}"
        raise InputError([Fault(points.name, "header", f"no column {geometry!r}", expectation)])
    places, is_wrong = points_of(frame[geometry], points.name)
    expectation = "a point (of an area: its centroid, say)"
    rows = np.flatnonzero(is_wrong).tolist()
    Faults(
        # Rows are numbered as in a CSV file, where the first row after the header is row 2.
        Fault(points.name, f"row {row + 2}, column {geometry}", "another geometry", expectation)
        for row in rows
    ).check()
    return frame.select(name for name in texts if name in frame.columns), places


def _read_geojson(points: File, texts: Sequence[str]) -> tuple[pl.DataFrame, Floats]:
    """Read ids, names and points from a GeoJSON file.

    Args:
        points: The file, which must contain a FeatureCollection of points in degrees.
        texts: The names of the properties that contain ids and names. If a feature has no property "id", its ``id``
            member is used instead.

    Returns:
        A frame with one text column per property, and an array of shape (N, 2) with latitudes and longitudes in
        degrees. The coordinates of geometries other than points are NaN.

    Raises:
        InputError: The file is not a FeatureCollection of points in degrees.
    """
    import polars as pl

    expectation = "a FeatureCollection of points in longitude and latitude"
    try:
        collection = json.loads(points.contents)
    except (ValueError, RecursionError) as error:
        raise InputError([Fault(points.name, "", f"text that is not JSON ({reason_of(error)})", expectation)]) from None
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
        # A geometry that is not a point gets an empty position, which the table reader reports by row.
        places = [shape["coordinates"][:2] if shape.get("type") == "Point" else (None, None) for shape in shapes]
        positions = np.array(places, dtype=np.float64).reshape(-1, 2)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError([Fault(points.name, "", "JSON of another form", expectation)]) from None
    # GeoJSON puts the longitude first, so the columns are swapped.
    return pl.DataFrame(names, schema=dict.fromkeys(texts, pl.String)), positions[:, ::-1]
