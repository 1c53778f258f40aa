"""Tables in other layouts: GeoJSON, GPX, fields between tabs, and positions in one column of text.

All become a table with columns of text, as CSV has them. No message quotes what may be a secret.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import narwhals as nw
import polars as pl

from privopt.declare.column_texts import texts_of
from privopt.declare.frames import PARQUET, strip_names, text_of
from privopt.declare.schema import File
from privopt.errors import Fault, InputError
from privopt_metric_dp.space.wkb import check_geojson_degrees
from privopt_tables.position_texts import read_positions

__all__ = ["FOREIGN_ENDINGS", "find_position_column", "read_foreign_table", "split_positions"]

FOREIGN_ENDINGS: Final = (".geojson", ".json", ".gpx", ".txt", ".tsv")

MIN_POSITION_SHARE: Final = 0.9
"""Part of a column's cells that must state a position, so that ``init`` takes the column for positions."""

_GPX_POINTS: Final = ("wpt", "rtept", "trkpt")


def read_foreign_table(path: Path) -> pl.DataFrame | None:
    """Return a GeoJSON, GPX or tab-separated file as a table of text with columns lat and lon; None for other files.

    Raises:
        InputError: A file of these kinds that cannot be read, or in another reference system than WGS 84.
    """
    file = File.read(path, str(path), wanted="a table")
    if file.contents.startswith(PARQUET):
        return None
    head = file.contents.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if head in (b"{", b"["):
        return _read_geojson(file, path.name)
    if head == b"<":
        return _read_gpx(file, path.name)
    header = io.BytesIO(file.contents).readline()
    return _read_tabs(file, path.name) if b"\t" in header and b"," not in header else None


def _read_geojson(file: File, name: str) -> pl.DataFrame:
    """Return the properties of features as text, and their points."""
    wanted = "GeoJSON: a FeatureCollection of points in longitude and latitude"
    try:
        document = json.loads(text_of(file))
        features = document["features"]
        check_geojson_degrees(document, name)
        rows = [_feature_row(feature) for feature in features]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise InputError([Fault(name, "", "JSON of another form", wanted)]) from None
    if not rows:
        raise InputError([Fault(name, "", "no features", wanted)])
    for number, row in enumerate(rows):
        if row is None:
            raise InputError([Fault(name, f"features[{number}]", "a geometry that is no point", wanted)])
    columns = dict.fromkeys(column for row in rows if row is not None for column in row)
    return pl.DataFrame({column: [None if row is None else row.get(column) for row in rows] for column in columns})


def _feature_row(feature: Any) -> dict[str, str | None] | None:
    """Return the cells of a feature; None if its geometry is no point. A feature without a geometry has no position."""
    geometry = feature["geometry"]
    if geometry is not None and geometry["type"] != "Point":
        return None
    properties = feature["properties"] or {}
    cells = {"id": feature["id"]} if "id" in feature and "id" not in properties else {}
    cells |= {key: value for key, value in properties.items() if key not in ("lat", "lon")}
    texts = {str(key): _cell_text(value) for key, value in cells.items()}
    lon, lat = (None, None) if geometry is None else geometry["coordinates"][:2]
    return texts | {"lat": None if lat is None else repr(float(lat)), "lon": None if lon is None else repr(float(lon))}


def _cell_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    return json.dumps(value)


def _read_gpx(file: File, name: str) -> pl.DataFrame:
    """Return waypoints, route points and track points of a GPX file, with their names and times."""
    wanted = "GPX with waypoints or tracks"
    raw = text_of(file)
    if b"<!DOCTYPE" in raw or b"<!ENTITY" in raw:  # entities may grow without end, and GPX needs none
        raise InputError([Fault(name, "", "XML with declarations of its own", wanted)])
    try:
        root = ElementTree.fromstring(raw)
    except ElementTree.ParseError:
        raise InputError([Fault(name, "", "XML that cannot be read", wanted)]) from None
    rows = []
    for point in root.iter():
        if _local(point.tag) in _GPX_POINTS:
            cells = {_local(child.tag): (child.text or "").strip() or None for child in point if not len(child)}
            rows.append(cells | {"lat": point.get("lat"), "lon": point.get("lon")})
    if not rows:
        raise InputError([Fault(name, "", "XML without points", wanted)])
    columns = dict.fromkeys(column for row in rows for column in row)
    return pl.DataFrame({column: pl.Series([row.get(column) for row in rows], dtype=pl.String) for column in columns})


def _local(tag: object) -> str:
    return str(tag).rpartition("}")[2]


def _read_tabs(file: File, name: str) -> pl.DataFrame:
    """Return a table whose fields have tabs between them, without blanks around names and cells."""
    try:
        frame = pl.read_csv(text_of(file), separator="\t", infer_schema=False, quote_char=None)
    except pl.exceptions.PolarsError:
        raise InputError(
            [Fault(name, "", "rows of different lengths", "fields between tabs, as the header has")]
        ) from None
    frame.columns = list(strip_names(frame.columns))
    cell = pl.all().str.strip_chars()
    return frame.select(pl.when(cell != "").then(cell).name.keep())


def find_position_column(frame: pl.DataFrame) -> str | None:
    """Return the first column of text nearly all of whose cells state a position; None if there is no such column."""
    for name in frame.columns:
        if frame[name].dtype == pl.String:
            texts = texts_of(nw.from_native(frame[name].head(1_000), series_only=True))
            filled = texts.drop_nulls()
            if len(filled) and float(read_positions(filled)[1].mean()) <= 1.0 - MIN_POSITION_SHARE:
                return str(name)
    return None


def split_positions(frame: pl.DataFrame, column: str, file: str) -> pl.DataFrame:
    """Return a table with columns lat and lon in place of a column of positions.

    Raises:
        InputError: Cells that state no position, by row.
    """
    positions, wrong = read_positions(texts_of(nw.from_native(frame[column], series_only=True)))
    rows = [row for row, is_wrong in enumerate(wrong.tolist()) if is_wrong]
    if rows:
        wanted = '"lat, lon", geo:lat,lon, POINT (lon lat), or a list of [lon, lat]'
        raise InputError([Fault(file, f"row {row + 2:,}, column {column}", "no position", wanted) for row in rows[:5]])
    numbers = {name: pl.Series(name, positions[:, axis]).fill_nan(None) for axis, name in enumerate(("lat", "lon"))}
    rest = frame.drop(column, *(name for name in frame.columns if name in numbers))
    return rest.with_columns(*numbers.values())
