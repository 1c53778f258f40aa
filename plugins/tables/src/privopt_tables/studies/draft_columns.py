"""What ``privopt init`` takes a table's columns for: ids, coordinates, people."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from attrs import field, frozen

from privopt.declare.frames import PARQUET, list_columns, table_of
from privopt.declare.schema import File
from privopt.errors import Fault, InputError, UsageError
from privopt_tables.column_names import like_places
from privopt_tables.foreign_tables import find_position_column, read_foreign_table, split_positions
from privopt_tables.studies.draft_grid import grid_over
from privopt_tables.studies.draft_text import relative

__all__ = ["ColumnChoice", "RecognisedTable", "convert_table", "recognised"]

LATITUDES: Final = (
    *("lat", "latitude", "start_lat", "start_latitude", "pickup_latitude", "pickup_lat", "stop_lat"),
    *("start station latitude", "decimallatitude", "intptlat", "gps_lat", "geo_lat", "latitude (deg)"),
)
LONGITUDES: Final = (
    *("lon", "lng", "long", "longitude", "start_lon", "start_lng", "start_longitude"),
    *("pickup_longitude", "pickup_lon", "pickup_lng", "stop_lon"),
    *("start station longitude", "decimallongitude", "intptlong", "gps_lon", "gps_lng", "geo_lon", "geo_lng"),
    "longitude (deg)",
)
PLANES: Final = (("x", "y"), ("x_km", "y_km"))

PEOPLE: Final = re.compile(
    r"(user|rider|ride|trip|person|customer|client|patient|driver|passenger|member|employee|visitor|subscriber|resident"
    r"|student|subject|device|imei|msisdn|ssn|uid|uuid|account|acct|household|tenant|owner|guest|login)"
    r"([ _-]?(id|uuid|guid|no|nr|num|number|name|key|hash|code))?",
    re.IGNORECASE,
)
"""Columns that tell people, trips or devices apart, and so no places."""

CONTACTS: Final = re.compile(
    r"((home|e|cell|mobile)[ _-]?)?(mail|phone|telephone|tel|mobile|address)([ _-]?(no|nr|num|number|hash|address))?",
    re.IGNORECASE,
)
"""Columns that people have, and shops too: whose they are a place's own id tells."""

OF_PLACES: Final = ("node", "node_id", "osmid", "geoid", "fips", "stop_id", "zone")
IDS: Final = ("id", *OF_PLACES, "code")
NAMES: Final = ("name", "county", "ctyname")

MAX_PLACES: Final = 5_000
"""Rows beyond which a table of latitudes and longitudes is taken for positions."""


@frozen(kw_only=True, eq=False)
class RecognisedTable:
    """What a table holds: the keys of [records], and what was taken for what."""

    records: dict[str, object]
    kind: str
    notes: list[str] = field(factory=list)


@frozen(kw_only=True)
class ColumnChoice:
    """Names of a table's columns, if its owner states them; ``point`` is one column of positions as text."""

    lat: str | None = None
    lon: str | None = None
    id: str | None = None
    point: str | None = None

    def check(self, names: Sequence[str], file: str) -> None:
        """Refuse names that the table does not have, and one coordinate without the other."""
        if (self.lat is None) != (self.lon is None):
            raise UsageError("--lat and --lon must be given together")
        if self.lat is not None and self.point is not None:
            raise UsageError("--geometry must be omitted with --lat and --lon: it names a column of both")
        wanted = f"one of {list_columns(names)}"
        faults = [
            Fault(file, f"column {name}", "no such column", wanted)
            for name in (self.lat, self.lon, self.id, self.point)
            if name is not None and name not in names
        ]
        if faults:
            raise InputError(faults)


def convert_table(points: Path, choice: ColumnChoice) -> pl.DataFrame | None:
    """Return a table in another layout as one with columns lat and lon; None for a table that is read as it is.

    Raises:
        InputError: The table cannot be read, or a cell of its column of positions states none.
    """
    foreign = read_foreign_table(points)
    frame = _frame(points)[0] if foreign is None else foreign
    choice.check(frame.columns, points.name)
    column = choice.point
    lower = {name.lower() for name in frame.columns}
    has_axes = bool(lower & {*LATITUDES}) and bool(lower & {*LONGITUDES})
    if column is None and choice.lat is None and not has_axes and not any(x in lower and y in lower for x, y in PLANES):
        column = find_position_column(frame)
    if column is None or frame[column].dtype != pl.String:
        return foreign
    return split_positions(frame, column, points.name)


def recognised(points: Path, folder: Path, *, ids_alone: bool, choice: ColumnChoice | None = None) -> RecognisedTable:
    """Read a table, and say what its columns are taken for.

    Args:
        points: The table.
        folder: The folder of the problem file.
        ids_alone: Whether places may be known by their ids alone.
        choice: Columns that its owner names; those omitted are recognised by name.

    Raises:
        InputError: no places are recognised, or rows are of people and have no latitudes and longitudes.
    """
    frame, geometry = _frame(points)
    lower = {name.lower(): name for name in reversed(frame.columns)}

    def first(names: Sequence[str]) -> str | None:
        return next((lower[name] for name in names if name in lower), None)

    choice = choice or ColumnChoice()
    choice.check(frame.columns, points.name)
    lat, lon = choice.lat or first(LATITUDES), choice.lon or first(LONGITUDES)
    plane = next(((lower[x], lower[y]) for x, y in PLANES if x in lower and y in lower), None)
    if plane is not None and lat is None and "osmid" in lower:  # OSMnx has degrees in x and y
        (lon, lat), plane = plane, None
    if choice.point is not None:
        geometry = choice.point
    columns: dict[str, object] = {}
    kind = "haversine"
    if lat is not None and lon is not None:
        notes = [f"column {lat} is taken for latitudes, {lon} for longitudes, in degrees"]
        columns |= {"lat": lat, "lon": lon}
    elif geometry is not None:
        notes = [f"column {geometry} is taken for points in longitude and latitude"]
        columns["geometry"] = geometry
    elif plane is not None:
        notes = [f"columns {plane[0]} and {plane[1]} are taken for km on a plane (degrees: columns lat and lon)"]
        columns |= {"x": plane[0], "y": plane[1]}
        kind = "euclidean"
    elif ids_alone:
        notes = ["no coordinates are recognised: places are known by their roads alone"]
    else:
        wanted = f"columns such as {', '.join(LATITUDES[:3])} with {', '.join(LONGITUDES[:4])}; x and y; or GeoParquet"
        raise InputError([Fault(points.name, "header", f"columns {list_columns(frame.columns)}", wanted)])
    used = {str(name) for name in columns.values()}
    ids, others = _ids(frame, lower, used)
    if choice.id is not None:
        ids, others = (choice.id,), ()
        if rows := _repeated_rows(frame[choice.id])[:5]:
            raise InputError([_repeated_fault(points.name, choice.id, row) for row in rows])
    is_list = ids_alone or choice.id is not None
    people = None if is_list else _people(frame.columns, ids)
    trips = (
        lat is not None and not is_list and (lat.lower().startswith(("start", "pickup")) or frame.height > MAX_PLACES)
    )
    if people is not None and "lat" not in columns:
        wanted = "a table of public places, or columns lat and lon, over which a grid is laid"
        raise InputError([Fault(points.name, f"column {people}", "ids of people or trips, not of places", wanted)])
    if ids and not trips and people is None:
        told = f"ids are those of {'column' if len(ids) == 1 else 'columns'} {' / '.join(ids)}"
        notes.append(told + (f"; {' and '.join(others)} would do too" if others else ""))
        read = ", ".join([*ids, *(name for name in frame.columns if name in used)])
        taken = f"each row is taken for a public place: solve publishes columns {read} of this table"
        notes.append(f"{taken}; positions of people need a grid")
        columns["id"] = ids[0] if len(ids) == 1 else list(ids)
        own = {key: name for key, name in columns.items() if name != key or key == "geometry"}
        records: dict[str, object] = {"points": relative(points, folder)}
        return RecognisedTable(records=records | ({"columns": own} if own else {}), kind=kind, notes=notes)
    repeated = None if trips or people is not None else _repeated_ids(frame, lower, used)
    if repeated is not None:
        raise InputError([_repeated_fault(points.name, repeated, row) for row in _repeated_rows(frame[repeated])[:5]])
    if "lat" not in columns:
        raise InputError([Fault(points.name, "header", "no column that is unique for each row", "ids of the places")])
    why = f"{frame.height:,} rows of column {lat}" if ids else _unnamed(frame, used)
    why = why if people is None else f"column {people} identifies people or trips"
    notes.append(f"{why}: positions and no list of places, so a grid is laid over them")
    grid, said = grid_over(frame, columns, points.name)
    return RecognisedTable(records={"grid": grid}, kind=kind, notes=[*notes, said])


def _frame(points: Path) -> tuple[pl.DataFrame, str | None]:
    """Return the table, and its column of geometries where it is GeoParquet."""
    file = File.read(points, str(points), wanted="a table")
    if file.contents.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[", b"<"):  # no message quotes what may be secret
        raise InputError([Fault(points.name, "", "JSON or XML", "a table: CSV, Parquet or GeoParquet")])
    frame = table_of(file)
    if not file.contents.startswith(PARQUET):
        return frame, None
    try:
        geo = pl.read_parquet_metadata(io.BytesIO(file.contents)).get("geo")
        return frame, None if geo is None else str(json.loads(geo)["primary_column"])
    except (pl.exceptions.PolarsError, ValueError, KeyError, TypeError, RecursionError):
        raise InputError([Fault(points.name, "", "metadata that cannot be read", "Parquet or GeoParquet")]) from None


def _ids(frame: pl.DataFrame, lower: dict[str, str], used: set[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return columns that are unique for each row, and others that are: one, or one under a parent column."""
    plain = [name for name in frame.columns if name not in used and _names(frame[name])]
    likely: list[str] = []
    for known, ending in ((IDS, "id"), (NAMES, "name")):
        likely += [lower[name] for name in known if lower.get(name) in plain]
        likely += [name for name in plain if name not in likely and name.lower().endswith(ending)]
    apart = tuple(name for name in likely if frame[name].n_unique() == frame.height)
    if apart:
        return apart[:1], apart[1:]
    for name in likely:
        for parent in plain:
            few = frame[parent].n_unique() < frame[name].n_unique()
            if few and frame.select(pl.struct(parent, name).n_unique()).item() == frame.height:
                return (parent, name), ()
    return (), ()


def _repeated_ids(frame: pl.DataFrame, lower: dict[str, str], used: set[str]) -> str | None:
    """Return a column that is named as ids of places are and is unique for most rows, not for all."""
    for name in dict.fromkeys(lower[known] for known in IDS if known in lower and lower[known] not in used):
        if _names(frame[name]) and frame.height / 2 < frame[name].n_unique() < frame.height:
            return name
    return None


def _repeated_rows(ids: pl.Series) -> list[int]:
    """Return the numbers of rows whose id occurred before."""
    return np.flatnonzero(~ids.is_first_distinct().to_numpy()).tolist()


def _repeated_fault(file: str, column: str, row: int) -> Fault:
    wanted = "ids that differ (in a table of visits, call the column person_id: a grid is laid then)"
    return Fault(file, f"row {row + 2:,}, column {column}", "the id of an earlier row", wanted)


def _unnamed(frame: pl.DataFrame, used: set[str]) -> str:
    """Say why no column is taken for ids of places, and which one could be."""
    for name in frame.columns:
        if name not in used and _names(frame[name]) and frame[name].n_unique() == frame.height:
            return f"column {name} has no name of ids: rename it to id if its rows are public places"
    return "no column is unique for each row"


def _people(names: Sequence[str], ids: Sequence[str]) -> str | None:
    """Return the column by which rows belong to people or trips; None if rows may be public places."""
    of_places = any(name.lower() in OF_PLACES or like_places([name]) for name in ids if not CONTACTS.fullmatch(name))
    kinds = (PEOPLE,) if of_places else (PEOPLE, CONTACTS)
    return next((name for kind in kinds for name in names if kind.fullmatch(name.strip())), None)


def _names(column: pl.Series) -> bool:
    """Check whether a column may be ids: text or whole numbers, none missing."""
    text = column.dtype in (pl.String, pl.Categorical, pl.Enum)
    whole = column.dtype.is_integer() and not column.has_nulls()
    return whole or (text and not column.has_nulls() and not (column.cast(pl.String).str.strip_chars() == "").any())
