"""Recognise the columns of a table for ``privopt init``, such as ids, coordinates and columns that identify people.

For privacy, it matters whether the rows are public places or belong to people or trips. If they are places, the problem
file refers to the table, and ``solve`` publishes their positions. If they belong to people or have no place ids, the
problem file describes a grid instead.
"""

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
from privopt.declare.name_forms import check_distinct_columns
from privopt.declare.schema import File
from privopt.errors import Fault, InputError, UsageError
from privopt_tables.column_names import select_place_names
from privopt_tables.foreign_tables import find_position_column, read_foreign_table, split_positions
from privopt_tables.studies.draft_grid import describe_skipped_cells, lay_grid
from privopt_tables.studies.draft_text import relative_path

__all__ = ["ColumnChoice", "RecognisedTable", "convert_table", "recognize_table"]

# Lower-case names of columns that contain latitudes and longitudes, in descending order of likelihood.
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
"""Pairs of lower-case column names for planar coordinates in km."""

PEOPLE: Final = re.compile(
    r"(user|rider|ride|trip|person|customer|client|patient|driver|passenger|member|employee|visitor|subscriber|resident"
    r"|student|subject|device|imei|msisdn|ssn|uid|uuid|account|acct|household|tenant|owner|guest|login)"
    r"([ _-]?(id|uuid|guid|no|nr|num|number|name|key|hash|code))?",
    re.IGNORECASE,
)
"""A pattern for the names of columns that identify people, trips or devices. The rows of a table with such a column are
not places."""

CONTACTS: Final = re.compile(
    r"((home|e|cell|mobile)[ _-]?)?(mail|phone|telephone|tel|mobile|address)([ _-]?(no|nr|num|number|hash|address))?",
    re.IGNORECASE,
)
"""A pattern for the names of columns with contact details. Such columns identify people, unless the table has ids of
places such as shops."""

OF_PLACES: Final = ("node", "node_id", "osmid", "geoid", "fips", "stop_id", "zone")
"""Lower-case names of columns with ids that only places have."""
IDS: Final = ("id", *OF_PLACES, "code")
NAMES: Final = ("name", "county", "ctyname")
"""Lower-case names of columns with ids (IDS), and of columns with names that can be used as ids (NAMES). The most
likely come first."""

EARTH_CIRCUMFERENCE_KM: Final = 40_075

MAX_PLACES: Final = 5_000
"""Maximum number of rows for which a table of latitudes and longitudes is assumed to list places. The rows of a longer
table are assumed to be people's positions."""


@frozen(kw_only=True, eq=False)
class RecognisedTable:
    """The parts of a problem file that are derived from a table's recognised columns, with notes on them.

    Attributes:
        records: The keys and values of the TOML table ``[records]``.
        kind: The kind of distance, such as "haversine".
        notes: Notes on how each column was interpreted, which become comments in the problem file.
        owner_notes: Notes for the table's owner alone. They must not appear in the problem file, which is public.
    """

    records: dict[str, object]
    kind: str
    notes: list[str] = field(factory=list)
    owner_notes: list[str] = field(factory=list)


@frozen(kw_only=True)
class ColumnChoice:
    """The columns named by the table's owner in options. All other columns are recognised automatically.

    Attributes:
        lat, lon: The columns of latitudes and longitudes.
        id: The column of ids.
        point: The column of positions, either strings or geometries.
    """

    lat: str | None = None
    lon: str | None = None
    id: str | None = None
    point: str | None = None

    def check(self, names: Sequence[str], file: str) -> None:
        """Check that the named columns exist and are distinct, and that coordinates are named together.

        Args:
            names: The names of the table's columns.
            file: The table's name, used in error messages.

        Raises:
            UsageError: Only one of the two coordinates is named, a column of positions is named in addition to
                coordinates, or two options name the same column.
            InputError: A named column is missing from the table.
        """
        if (self.lat is None) != (self.lon is None):
            raise UsageError("--lat and --lon must be given together")
        if self.lat is not None and self.point is not None:
            raise UsageError("--geometry must be omitted with --lat and --lon: it names a column of both")
        check_distinct_columns({"--lat": self.lat, "--lon": self.lon, "--id": self.id, "--geometry": self.point})
        expectation = f"one of {list_columns(names)}"
        faults = [
            Fault(file, f"column {name}", "no such column", expectation)
            for name in (self.lat, self.lon, self.id, self.point)
            if name is not None and name not in names
        ]
        if faults:
            raise InputError(faults)


def convert_table(points: Path, choice: ColumnChoice) -> pl.DataFrame | None:
    """Convert a table in a foreign format, or with a single position column, to a table with the columns lat and lon.

    The foreign formats are the formats read by :mod:`privopt_tables.foreign_tables`, such as GeoJSON and GPX.

    Args:
        points: The table's file.
        choice: The columns named by the table's owner.

    Returns:
        The converted table, or None if the table needs no conversion.

    Raises:
        InputError: The table cannot be read, a named column is missing, or a cell in the column of positions is not a
            position.
        UsageError: The named columns cannot be used together.
    """
    foreign = read_foreign_table(points)
    frame = _read_table(points)[0] if foreign is None else foreign
    choice.check(frame.columns, points.name)
    column = choice.point
    lower = {name.lower() for name in frame.columns}
    has_axes = bool(lower & {*LATITUDES}) and bool(lower & {*LONGITUDES})
    if column is None and choice.lat is None and not has_axes and not any(x in lower and y in lower for x, y in PLANES):
        # Neither the options nor the column names tell where the coordinates are, so look for a single column of
        # positions.
        column = find_position_column(frame)
    # Without such a column, a table in a foreign format already has the columns lat and lon, and any other table needs
    # no conversion.
    if column is None or frame[column].dtype != pl.String:
        return foreign
    return split_positions(frame, column, points.name)


def recognize_table(
    points: Path, folder: Path, *, ids_alone: bool, choice: ColumnChoice | None = None
) -> RecognisedTable:
    """Read a table and recognise its columns.

    Args:
        points: The table's file.
        folder: The folder of the problem file.
        ids_alone: Whether places may have ids without coordinates.
        choice: The columns named by the table's owner. All other columns are recognised by name.

    Returns:
        The parts of the problem file that describe the table. They either refer to the table as a list of public
        places, or describe a grid over people's positions.

    Raises:
        InputError: The table cannot be read, no coordinates or ids are recognised, an id occurs twice, a named column
            is missing, the rows belong to people but have no latitudes and longitudes, or coordinates are not valid
            degrees or km.
        UsageError: The named columns cannot be used together.
    """
    frame, geometry, unreadable = _read_table(points)
    # If several columns have the same lower-case name, the first one counts, because the order is reversed.
    names_by_lower_case = {name.lower(): name for name in reversed(frame.columns)}

    def find_column(names: Sequence[str]) -> str | None:
        """Return the table's column whose lower-case name occurs first in ``names``, or None if there is none."""
        return next((names_by_lower_case[name] for name in names if name in names_by_lower_case), None)

    choice = choice or ColumnChoice()
    choice.check(frame.columns, points.name)
    lat, lon = choice.lat or find_column(LATITUDES), choice.lon or find_column(LONGITUDES)
    plane_columns = next(
        (
            (names_by_lower_case[x], names_by_lower_case[y])
            for x, y in PLANES
            if x in names_by_lower_case and y in names_by_lower_case
        ),
        None,
    )
    # OSMnx writes longitudes to a column x and latitudes to a column y, both in degrees.
    if plane_columns is not None and lat is None and "osmid" in names_by_lower_case:
        (lon, lat), plane_columns = plane_columns, None
    if choice.point is not None:
        geometry = choice.point
    columns: dict[str, object] = {}
    kind = "haversine"
    if lat is not None and lon is not None:
        notes = [f"column {lat} is read as latitudes and {lon} as longitudes, in degrees"]
        columns |= {"lat": lat, "lon": lon}
    elif geometry is not None:
        notes = [f"column {geometry} is read as points in longitude and latitude"]
        columns["geometry"] = geometry
    elif plane_columns is not None:
        x, y = plane_columns
        _check_kilometres(frame, plane_columns, points.name)
        notes = [f"columns {x} and {y} are read as km on a plane (for degrees, name them lat and lon)"]
        # The values do not show whether they are in degrees or km, so the note says how to name columns in degrees.
        columns |= {"x": x, "y": y}
        kind = "euclidean"
    elif ids_alone:
        notes = ["no coordinates are recognised: places are known by their roads alone"]
    else:
        expectation = (
            f"columns such as {', '.join(LATITUDES[:3])} with {', '.join(LONGITUDES[:4])}; x and y; or GeoParquet"
        )
        raise InputError([Fault(points.name, "header", f"columns {list_columns(frame.columns)}", expectation)])
    if unreadable:
        notes.append(f"columns of a type that cannot be read are left out: {', '.join(unreadable)}")
    used_columns = {str(name) for name in columns.values()}
    ids, alternatives = _find_id_columns(frame, names_by_lower_case, used_columns)
    if choice.id is not None:
        ids, alternatives = (choice.id,), ()
        if rows := _repeated_row_numbers(frame[choice.id])[:5]:
            raise InputError([_repeated_fault(points.name, choice.id, row) for row in rows])
    # The rows are places if roads connect them, or if the owner named the column of their ids.
    is_list_of_places = ids_alone or choice.id is not None
    people_column = None if is_list_of_places else _find_people_column(frame.columns, ids)
    # Columns for a start or a pickup indicate trips, and a table with very many positions is rarely a list of places.
    is_trips = (
        lat is not None
        and not is_list_of_places
        and (lat.lower().startswith(("start", "pickup")) or frame.height > MAX_PLACES)
    )
    if people_column is not None and "lat" not in columns:
        expectation = "a table of public places, or columns lat and lon, over which a grid is laid"
        raise InputError(
            [Fault(points.name, f"column {people_column}", "ids of people or trips, not of places", expectation)]
        )
    if ids and not is_trips and people_column is None:
        note = f"ids come from {'column' if len(ids) == 1 else 'columns'} {' / '.join(ids)}"
        notes.append(note + (f"; {' and '.join(alternatives)} would work too" if alternatives else ""))
        published_columns = ", ".join([*ids, *(name for name in frame.columns if name in used_columns)])
        publication_note = (
            f"each row is read as a public place, so solve publishes columns {published_columns} of this table"
        )
        notes.append(f"{publication_note}; people's positions need a grid instead")
        columns["id"] = ids[0] if len(ids) == 1 else list(ids)
        # Columns with the standard names can be left out of the problem file. A geometry column has no standard name.
        stated_columns = {key: name for key, name in columns.items() if name != key or key == "geometry"}
        records: dict[str, object] = {"points": relative_path(points, folder)}
        return RecognisedTable(
            records=records | ({"columns": stated_columns} if stated_columns else {}), kind=kind, notes=notes
        )
    # If nearly all ids in a column are distinct, the table is probably a list of places that contains an error, not a
    # table of people.
    repeated_column = (
        None if is_trips or people_column is not None else _find_repeated_ids(frame, names_by_lower_case, used_columns)
    )
    if repeated_column is not None:
        raise InputError(
            [
                _repeated_fault(points.name, repeated_column, row)
                for row in _repeated_row_numbers(frame[repeated_column])[:5]
            ]
        )
    if "lat" not in columns:
        raise InputError([Fault(points.name, "header", "no column that is unique for each row", "ids of the places")])
    reason = f"{frame.height:,} rows of column {lat}" if ids else _explain_missing_ids(frame, used_columns)
    reason = reason if people_column is None else f"column {people_column} identifies people or trips"
    notes.append(f"{reason}: positions and no list of places, so a grid is laid over them")
    grid, grid_note = lay_grid(frame, columns, points.name)
    skipped = describe_skipped_cells(frame, [str(columns[name]) for name in ("lat", "lon")], points.name)
    return RecognisedTable(records={"grid": grid}, kind=kind, notes=[*notes, grid_note], owner_notes=skipped)


def _check_kilometres(frame: pl.DataFrame, columns: tuple[str, str], file: str) -> None:
    """Check that planar coordinates are small enough to be in kilometres on Earth.

    Coordinates in metres, such as UTM coordinates, are usually too large.

    Args:
        frame: The table, whose cells may be strings or numbers.
        columns: The names of the x and y columns.
        file: The name of the table, used in the error message. The message does not quote any coordinate.

    Raises:
        InputError: A coordinate is larger than the circumference of the Earth.
    """
    faults = []
    for column in columns:
        # Other types of Parquet columns, such as lists, are no numbers. They are refused when the places are read.
        if not (frame[column].dtype.is_numeric() or frame[column].dtype == pl.String):
            continue
        largest = frame[column].cast(pl.Float64, strict=False).abs().max()
        if isinstance(largest, float) and largest > EARTH_CIRCUMFERENCE_KM:
            expectation = f"km, which are at most {EARTH_CIRCUMFERENCE_KM:,} on Earth: divide metres by 1,000"
            faults.append(Fault(file, f"column {column}", "larger numbers", expectation))
    if faults:
        raise InputError(faults)


def _read_table(points: Path) -> tuple[pl.DataFrame, str | None, list[str]]:
    """Read a table from CSV, Parquet or GeoParquet.

    Returns:
        The table, the name of its geometry column, and the names of the columns that cannot be read. The name of the
        geometry column is None unless the file is GeoParquet.

    Raises:
        InputError: The file is not a table, or its metadata cannot be read.
    """
    file = File.read(points, str(points), expectation="a table")
    # JSON and XML are rejected here, because an error message from the CSV reader could quote a secret.
    if file.contents.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[", b"<"):
        raise InputError([Fault(points.name, "", "JSON or XML", "a table: CSV, Parquet or GeoParquet")])
    frame = table_of(file)
    if not file.contents.startswith(PARQUET):
        return frame, None, []
    unreadable = sorted(file.seen.unreadable)
    try:
        geo = pl.read_parquet_metadata(io.BytesIO(file.contents)).get("geo")
        # GeoParquet names its geometry column in the metadata under "geo".
        return frame, None if geo is None else str(json.loads(geo)["primary_column"]), unreadable
    except (pl.exceptions.PolarsError, ValueError, KeyError, TypeError, RecursionError):
        raise InputError([Fault(points.name, "", "metadata that cannot be read", "Parquet or GeoParquet")]) from None


def _find_id_columns(
    frame: pl.DataFrame, names_by_lower_case: dict[str, str], used_columns: set[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Find a column whose ids identify each row or, failing that, a pair of columns that together identify each row.

    Such a pair consists of a parent's id and an id within that parent.

    Args:
        frame: The table to search.
        names_by_lower_case: The names of the table's columns, keyed by their lower-case forms.
        used_columns: The columns that already have another use.

    Returns:
        Two tuples. The first contains the columns of ids, and is empty if there are none. The second contains other
        single columns that could be used as ids.
    """
    candidates = [name for name in frame.columns if name not in used_columns and _may_be_ids(frame[name])]
    likely_columns: list[str] = []
    for known_names, ending in ((IDS, "id"), (NAMES, "name")):
        likely_columns += [
            names_by_lower_case[name] for name in known_names if names_by_lower_case.get(name) in candidates
        ]
        likely_columns += [name for name in candidates if name not in likely_columns and name.lower().endswith(ending)]
    unique_columns = tuple(name for name in likely_columns if frame[name].n_unique() == frame.height)
    # A single column is preferred, because it makes a simpler id than a pair.
    if unique_columns:
        return unique_columns[:1], unique_columns[1:]
    for name in likely_columns:
        # Ids may be unique only within a parent. For example, county codes may be unique only within a state.
        for parent in candidates:
            is_coarser = frame[parent].n_unique() < frame[name].n_unique()
            if is_coarser and frame.select(pl.struct(parent, name).n_unique()).item() == frame.height:
                return (parent, name), ()
    return (), ()


def _find_repeated_ids(frame: pl.DataFrame, names_by_lower_case: dict[str, str], used_columns: set[str]) -> str | None:
    """Return the first column that contains repeated ids although its name suggests that it contains place ids.

    A column is considered only if the number of its distinct values is more than half the number of rows. Returns None
    if there is no such column.

    Args:
        frame: The table to search.
        names_by_lower_case: The names of the table's columns, keyed by their lower-case forms.
        used_columns: The columns that already have another use.
    """
    for name in dict.fromkeys(
        names_by_lower_case[name_of_ids]
        for name_of_ids in IDS
        if name_of_ids in names_by_lower_case and names_by_lower_case[name_of_ids] not in used_columns
    ):
        # If more than half of the ids are distinct, the repeated ones are probably errors.
        if _may_be_ids(frame[name]) and frame.height / 2 < frame[name].n_unique() < frame.height:
            return name
    return None


def _repeated_row_numbers(ids: pl.Series) -> list[int]:
    """Return the indices of the rows whose id occurs in an earlier row."""
    return np.flatnonzero(~ids.is_first_distinct().to_numpy()).tolist()


def _repeated_fault(file: str, column: str, row: int) -> Fault:
    """Return the fault for a row whose id occurs in an earlier row.

    Args:
        file: The table's name.
        column: The column of ids.
        row: The row's index.
    """
    expectation = "ids that differ (in a table of visits, call the column person_id: a grid is laid then)"
    # Faults count rows from 1, and row 1 is the header.
    return Fault(file, f"row {row + 2:,}, column {column}", "the id of an earlier row", expectation)


def _explain_missing_ids(frame: pl.DataFrame, used_columns: set[str]) -> str:
    """Return a clause that explains why no column can be used as place ids, and suggests a column to rename, if any."""
    for name in frame.columns:
        if name not in used_columns and _may_be_ids(frame[name]) and frame[name].n_unique() == frame.height:
            return f"column {name} has no name of ids: rename it to id if its rows are public places"
    return "no column is unique for each row"


def _find_people_column(names: Sequence[str], ids: Sequence[str]) -> str | None:
    """Return the name of a column that shows that rows belong to people or trips, or None if there is no such column.

    Columns of contact details count only if there are no place ids, because shops have telephones too.

    Args:
        names: The names of the table's columns.
        ids: The columns that were found to contain ids.
    """
    has_place_ids = any(
        name.lower() in OF_PLACES or select_place_names([name]) for name in ids if not CONTACTS.fullmatch(name)
    )
    # Shops have telephones too, so contact details do not indicate people if there are ids of places.
    patterns = (PEOPLE,) if has_place_ids else (PEOPLE, CONTACTS)
    return next((name for pattern in patterns for name in names if pattern.fullmatch(name.strip())), None)


def _may_be_ids(column: pl.Series) -> bool:
    """Return whether a column may contain ids, that is, strings or whole numbers without missing or blank cells."""
    is_text = column.dtype in (pl.String, pl.Categorical, pl.Enum)
    is_complete_integers = column.dtype.is_integer() and not column.has_nulls()
    return is_complete_integers or (
        is_text and not column.has_nulls() and not (column.cast(pl.String).str.strip_chars() == "").any()
    )
