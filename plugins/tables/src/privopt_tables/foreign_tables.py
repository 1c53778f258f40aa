"""Read tables from GeoJSON, GPX, Google Timeline and tab-separated files, and split columns of positions.

Each file becomes a table of string columns, like a table read from CSV. Cells may be secret, so no error message quotes
them.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import narwhals as nw
import polars as pl

from privopt.declare.column_texts import texts_of
from privopt.declare.frames import PARQUET, list_columns, strip_names, text_of
from privopt.declare.schema import File
from privopt.errors import Fault, InputError, number_of
from privopt_metric_dp.space.wkb import check_geojson_degrees
from privopt_tables.position_texts import read_position, read_positions

__all__ = ["FOREIGN_ENDINGS", "find_position_column", "read_foreign_table", "split_positions"]

FOREIGN_ENDINGS: Final = (".geojson", ".json", ".gpx", ".txt", ".tsv")
"""File name extensions of the formats read by this module."""

MIN_POSITION_SHARE: Final = Fraction(9, 10)
"""Minimum fraction of a column's cells that must be positions for ``init`` to treat it as a column of positions."""

_TIMELINE_COLUMNS: Final = ("kind", "time", "lat", "lon")
_TIMELINE_TIMES: Final = ("time", "timestamp", "startTime", "startTimestamp")
_TIMELINE_POSITIONS: Final = ("point", "latLng", "LatLng", "placeLocation", "start", "end")
"""The three constants above are the columns of the table made from a Google Timeline export, the keys for times, and
the keys for positions. Android and iOS exports store times and positions as text under these keys."""

_GPX_POINTS: Final = ("wpt", "rtept", "trkpt")


def read_foreign_table(path: Path) -> pl.DataFrame | None:
    """Read a GeoJSON, GPX, Google Timeline or tab-separated file as a table of strings.

    Args:
        path: The file. Its format is detected from its contents, regardless of the file name.

    Returns:
        The table, or None if the file is in any other format, such as CSV or Parquet.

    Raises:
        InputError: The file is in one of these formats but is invalid, or its coordinate reference system is not WGS
            84.
    """
    file = File.read(path, str(path), expectation="a table")
    if file.contents.startswith(PARQUET):
        return None
    # The first character determines the format, whatever the file's ending. A byte order mark is skipped.
    head = file.contents.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if head in (b"{", b"["):
        return _read_geojson(file, path.name)
    if head == b"<":
        return _read_gpx(file, path.name)
    header = io.BytesIO(file.contents).readline()
    # A header that contains a comma belongs to a CSV file, in which a tab may be part of a name.
    return _read_tab_separated(file, path.name) if b"\t" in header and b"," not in header else None


def _read_geojson(file: File, name: str) -> pl.DataFrame:
    """Read a GeoJSON FeatureCollection of points (RFC 7946) or a Google Timeline export.

    The properties of a feature become string columns, and its point becomes the columns ``lat`` and ``lon``.

    Args:
        file: The file to read.
        name: The file's name, used in error messages.

    Raises:
        InputError: The file is in neither format, or contains features that are not points.
    """
    expectation = "GeoJSON: a FeatureCollection of points in longitude and latitude; or an export of Google Timeline"
    try:
        document = json.loads(text_of(file))
        # A FeatureCollection may have properties that look like a timeline, so "features" takes precedence.
        if (visits := list(_iter_timeline(document))) and "features" not in document:
            return pl.DataFrame(visits, schema=dict.fromkeys(_TIMELINE_COLUMNS, pl.String))
        # The document's structure has not been checked. If it is not as expected, one of these lines raises an error.
        features = document["features"]
        check_geojson_degrees(document, name)
        rows = [_read_feature(feature) for feature in features]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise InputError([Fault(name, "", "JSON of another form", expectation)]) from None
    if not rows:
        raise InputError([Fault(name, "", "no features", expectation)])
    for number, row in enumerate(rows):
        if row is None:
            raise InputError([Fault(name, f"features[{number}]", "a geometry that is no point", expectation)])
    # Features may have different properties. The table has a column for each, in the order in which they first occur.
    columns = dict.fromkeys(column for row in rows if row is not None for column in row)
    return pl.DataFrame({column: [None if row is None else row.get(column) for row in rows] for column in columns})


def _iter_timeline(part: Any, kind: str = "", time: str | None = None) -> Iterator[dict[str, str | None]]:
    """Yield one row for each position in a Google Timeline export of any version.

    Each row is a dict from column names to cells.

    Args:
        part: A part of the JSON document.
        kind: The key under which the part is stored.
        time: The time given in an enclosing part, or None if there is none.
    """
    if isinstance(part, list):
        for element in part:
            yield from _iter_timeline(element, kind, time)
    elif isinstance(part, Mapping):
        time = next((str(part[key]) for key in _TIMELINE_TIMES if isinstance(part.get(key), str)), time)
        # Older exports write degrees times 1e7 as whole numbers. Newer exports write positions as text.
        if isinstance(part.get("latitudeE7"), int) and isinstance(part.get("longitudeE7"), int):
            lat, lon = (repr(part[key] / 1e7) for key in ("latitudeE7", "longitudeE7"))
            yield dict(zip(_TIMELINE_COLUMNS, (kind, time, lat, lon), strict=True))
        for key, value in part.items():
            yield from _iter_timeline(value, str(key), time)
    elif isinstance(part, str) and kind in _TIMELINE_POSITIONS and (position := read_position(part)) is not None:
        yield dict(zip(_TIMELINE_COLUMNS, (kind, time, *map(repr, position)), strict=True))


def _read_feature(feature: Any) -> dict[str, str | None] | None:
    """Return a GeoJSON feature's cells, keyed by column, or None if its geometry is not a point.

    The ``lat`` and ``lon`` cells of a feature without a geometry are None.
    """
    geometry = feature["geometry"]
    if geometry is not None and geometry["type"] != "Point":
        return None
    properties = feature["properties"] or {}
    # In RFC 7946 the id is not one of the properties. A property with this name takes precedence.
    cells = {"id": feature["id"]} if "id" in feature and "id" not in properties else {}
    # Properties with these names would clash with the columns of the point.
    cells |= {key: value for key, value in properties.items() if key not in ("lat", "lon")}
    texts = {str(key): _to_cell(value) for key, value in cells.items()}
    # GeoJSON puts longitude before latitude, and possibly an altitude after them.
    lon, lat = (None, None) if geometry is None else geometry["coordinates"][:2]
    return texts | {"lat": None if lat is None else repr(float(lat)), "lon": None if lon is None else repr(float(lon))}


def _to_cell(value: Any) -> str | None:
    """Convert a JSON value to a cell.

    Null and the empty string become None, other strings are kept as they are, and all other values are serialised as
    JSON.
    """
    if value is None or isinstance(value, str):
        return value or None
    return json.dumps(value)


def _read_gpx(file: File, name: str) -> pl.DataFrame:
    """Read the waypoints, route points and track points of a GPX file, along with details such as names and times.

    Args:
        file: The file to read.
        name: The file's name, used in error messages.

    Raises:
        InputError: The file is not valid GPX, or contains no points.
    """
    expectation = "GPX with waypoints or tracks"
    raw = text_of(file)
    # Entities are rejected, because they can expand to enormous texts ("billion laughs") and GPX does not need them.
    if b"<!DOCTYPE" in raw or b"<!ENTITY" in raw:
        raise InputError([Fault(name, "", "XML with declarations of its own", expectation)])
    try:
        root = ElementTree.fromstring(raw)
    except ElementTree.ParseError:
        raise InputError([Fault(name, "", "XML that cannot be read", expectation)]) from None
    rows = []
    for point in root.iter():
        if _local_name(point.tag) in _GPX_POINTS:
            # Elements with children, such as extensions, are left out, because they have no text that could be a cell.
            cells = {_local_name(child.tag): (child.text or "").strip() or None for child in point if not len(child)}
            rows.append(cells | {"lat": point.get("lat"), "lon": point.get("lon")})
    if not rows:
        raise InputError([Fault(name, "", "XML without points", expectation)])
    # Points may have different elements. The table has a column for each element that occurs.
    columns = dict.fromkeys(column for row in rows for column in row)
    return pl.DataFrame({column: pl.Series([row.get(column) for row in rows], dtype=pl.String) for column in columns})


def _local_name(tag: object) -> str:
    """Return the name of an XML element without its namespace."""
    return str(tag).rpartition("}")[2]


def _read_tab_separated(file: File, name: str) -> pl.DataFrame:
    """Read a table of tab-separated fields, stripping whitespace around column names and cells.

    As in CSV files, empty lines are not rows, nor are lines of tabs and blanks at the end of the file.

    Args:
        file: The file to read.
        name: The file's name, used in error messages.

    Raises:
        InputError: A row has more or fewer fields than the header, two columns have the same name, or lines end in a
            carriage return alone.
    """
    lines = text_of(file).split(b"\n")
    if b"\r" in lines[0].removesuffix(b"\r"):
        raise InputError([Fault(name, "", "lines that end in \\r", "lines that end in \\n or \\r\\n")])
    names = strip_names(lines[0].decode("utf-8").split("\t"))
    # polars renames columns of the same name. One of them might be a second position, and it is not known which one is
    # meant.
    repeated_name = next((column for column, count in Counter(names).items() if count > 1), None)
    if repeated_name is not None:
        actual = f"twice {list_columns([repeated_name])}"
        raise InputError([Fault(name, "header", actual, "columns that differ in name")])
    rows = [(number, line) for number, line in enumerate(lines, start=1) if line.strip(b"\r")]
    # Spreadsheets write lines of separators below a table.
    while len(rows) > 1 and not rows[-1][1].strip():
        rows.pop()
    for number, line in rows:
        # polars fills up short rows with empty cells. Where a field is missing in the middle, later fields would be
        # read as those of other columns.
        if (count := line.count(b"\t") + 1) != len(names):
            expectation = f"{len(names)} fields between tabs, as the header has"
            raise InputError([Fault(name, f"row {number:,}", number_of(count, "field"), expectation)])
    # All columns stay text, and quotes are ordinary characters.
    text = b"\n".join(line for _, line in rows)
    frame = pl.read_csv(text, separator="\t", infer_schema=False, quote_char=None)
    frame.columns = list(names)
    cell = pl.all().str.strip_chars()
    # Empty cells become null.
    return frame.select(pl.when(cell != "").then(cell).name.keep())


def find_position_column(frame: pl.DataFrame) -> str | None:
    """Return the name of the first string column that contains positions, or None if there is none.

    At least 90 % of a column's non-empty cells must be positions. Only the first 1,000 rows are considered.
    """
    for name in frame.columns:
        if frame[name].dtype == pl.String and _may_be_positions(frame[name].head(1_000)):
            texts = texts_of(nw.from_native(frame[name].head(1_000), series_only=True))
            filled_cells = texts.drop_nulls()
            # The second result of read_positions is 1 for a cell that is not a position.
            position_count = len(filled_cells) - int(read_positions(filled_cells)[1].sum())
            if len(filled_cells) and position_count >= MIN_POSITION_SHARE * len(filled_cells):
                return str(name)
    return None


def _may_be_positions(cells: pl.Series) -> bool:
    """Return whether any of about ten evenly spaced non-empty cells is a position.

    This is a quick pre-check, because reading all cells of many columns would take too long.
    """
    filled = [cell for cell in cells.to_list() if cell and cell.strip()]
    return any(read_position(cell) is not None for cell in filled[:: max(1, len(filled) // 10)])


def split_positions(frame: pl.DataFrame, column: str, file: str) -> pl.DataFrame:
    """Replace a column of positions with the columns ``lat`` and ``lon``.

    Existing columns with these names are dropped.

    Args:
        frame: The table that contains the column.
        column: The name of the column that contains positions as strings.
        file: The table's name, used in error messages.

    Raises:
        InputError: A non-empty cell is not a position. The error lists the rows of at most five such cells.
    """
    positions, fault = read_positions(texts_of(nw.from_native(frame[column], series_only=True)))
    rows = [row for row, has_fault in enumerate(fault.tolist()) if has_fault]
    if rows:
        expectation = '"lat, lon", geo:lat,lon, POINT (lon lat), or a list of [lon, lat]'
        # Indices count from 0. In messages the header is row 1, so the first row of data is row 2.
        raise InputError(
            [Fault(file, f"row {row + 2:,}, column {column}", "no position", expectation) for row in rows[:5]]
        )
    numbers = {name: pl.Series(name, positions[:, axis]).fill_nan(None) for axis, name in enumerate(("lat", "lon"))}
    # Existing columns named lat or lon would clash with the new ones, so they are dropped.
    other_columns = frame.drop(column, *(name for name in frame.columns if name in numbers))
    return other_columns.with_columns(*numbers.values())
