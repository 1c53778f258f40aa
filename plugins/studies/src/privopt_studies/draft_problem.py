"""``privopt init``: from a table to a commented problem file that ``solve`` takes as it is.

What is recognised is said, line by line, in the file and by the command: nothing is guessed in silence.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any, Final, get_args, get_type_hints

import attrs
import numpy as np
import polars as pl
from attrs import evolve, field, frozen

from privopt.arrays import slices
from privopt.declare.frames import PARQUET, table_of
from privopt.declare.schema import KEY, File, Key
from privopt.declare.toml import load_problem
from privopt.declare.toml_text import to_toml
from privopt.errors import Fault, InputError, UsageError
from privopt.registry import registry
from privopt.run.publish import check_file, new_file
from privopt_metric_dp.problem.data import MetricData, load
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_metric_dp.tables.column_names import (
    CONTACTS,
    LATITUDES,
    LONGITUDES,
    PEOPLE,
    PLANES,
    like_places,
)
from privopt_studies.draft_grid import digits, grid_over
from privopt_studies.draft_text import problem_text, relative
from privopt_studies.street_map import StreetMap

__all__ = ["Draft", "draft", "init", "init_from_map", "loaded", "own_tables"]

OF_PLACES: Final = ("node", "node_id", "osmid", "geoid", "fips", "stop_id", "zone")
IDS: Final = ("id", *OF_PLACES, "code")
NAMES: Final = ("name", "county", "ctyname")

MAX_PLACES: Final = 5_000
"""Rows beyond which a table of latitudes and longitudes is taken for positions."""

REACH_FACTOR: Final = 3.0
"""How many times the distance between neighbours somebody is hidden within, where nothing is asked for."""

MIN_EPSILON: Final = 1e-300
"""Of an epsilon that doubles can work with; the greatest is one over it."""

MAX_SEARCHED_RECORDS: Final = 2_000
"""Records whose nearest neighbour is looked for."""

QUICK_PLACES: Final = 200
"""Places beyond which the optimum may take minutes: 462 cells took over two, on two busy processors in 2026-11."""


@frozen(kw_only=True)
class Draft:
    """A problem file, and what was recognised on the way.

    Attributes:
        text: of the file.
        notes: what was taken for what, and what epsilon means, a sentence each.
    """

    text: str
    notes: tuple[str, ...]


@frozen(kw_only=True, eq=False)
class _RecognisedTable:
    """What a table holds: the keys of [records], and what was taken for what."""

    records: dict[str, object]
    kind: str
    notes: list[str] = field(factory=list)


def init(
    mechanism: str,
    points: Path,
    out: Path,
    *,
    roads: Path | None = None,
    within: float | None = None,
    factor: float = 4.0,
    force: bool = False,
) -> Draft:
    """Write a problem file for a table of places, or of positions; see :func:`draft`."""
    check_file(out.absolute(), force=force)
    made = draft(mechanism, points, out.absolute().parent, roads=roads, within=within, factor=factor)
    with new_file(out, force=force) as path:
        path.write_text(made.text, "utf-8")
    return made


def init_from_map(
    mechanism: str,
    streets: StreetMap,
    out: Path,
    *,
    within: float | None = None,
    factor: float = 4.0,
    force: bool = False,
) -> Draft:
    """Write a problem file for the places of a street map, and their tables NAME-points.csv and NAME-roads.csv."""
    points, roads = (out.with_name(f"{out.stem}-{table}.csv") for table in ("points", "roads"))
    for target in (out, points, roads):
        check_file(target.absolute(), force=force)
    with TemporaryDirectory() as folder:
        beside = Path(folder)
        tables = beside / points.name, beside / roads.name
        streets.write(*tables)
        made = draft(mechanism, tables[0], beside, roads=tables[1], within=within, factor=factor)
        with (
            new_file(out, force=force) as path,
            new_file(points, force=force) as own_points,
            new_file(roads, force=force) as own_roads,
        ):
            path.write_text(made.text, "utf-8")
            copyfile(tables[0], own_points)
            copyfile(tables[1], own_roads)
    written = (
        f"{points.name} has {len(streets.places):,} places, {roads.name} {len(streets.km):,} roads, a row for each "
        'direction: for one-way streets as travel cost, [utility] kind = "travel-cost", edges, directed = true'
    )
    return evolve(made, notes=(*streets.notes, written, *made.notes))


def draft(
    mechanism: str,
    points: Path,
    folder: Path,
    *,
    roads: Path | None = None,
    within: float | None = None,
    factor: float = 4.0,
) -> Draft:
    """Return a problem file that was read as ``solve`` will read it.

    Args:
        mechanism: that it is for.
        points: CSV, Parquet or GeoParquet: a list of places, each with an id, or any table of positions, over which a
            grid is laid.
        folder: the folder that it will lie in.
        roads: CSV or Parquet with columns from, to, km, between the ids of ``points``.
        within: km within which a person is to be hidden; three times the distance between neighbours by default.
        factor: by which one report may change the odds between two places so far apart.

    Raises:
        InputError: a table in which no places are recognised, or that ``solve`` would refuse.
        UsageError: a mechanism that is not over places, or amounts that cannot be meant so.
    """
    if not factor > 1.0 or not math.isfinite(factor):
        raise UsageError(f"--factor must be a number above 1, got {factor:g}")
    cls = registry().get(mechanism).load().problem_class
    if not issubclass(cls, MetricProblem):
        raise UsageError(
            f"{mechanism} is not over places; privopt describe {mechanism} shows what its problem file holds"
        )
    found = _recognised(points, folder, ids_alone=roads is not None)
    tables: dict[str, dict[str, object]] = {"records": found.records, "distance": {"kind": found.kind}}
    if roads is not None:
        tables["distance"] = {"kind": "graph", "edges": relative(roads, folder)}
        if "grid" in found.records:
            raise InputError(
                [Fault(points.name, "", "no column of ids", "a column of ids that names the nodes of --roads")]
            )
    tables |= {"privacy": {"epsilon": 1.0}, "utility": {"kind": "distance"}}
    data = loaded(MetricProblem, tables, folder, points.name)
    spacing = _spacing(data)
    reach = REACH_FACTOR * spacing if within is None else within
    asked = math.log(factor) / reach if reach else math.inf
    if not MIN_EPSILON <= asked <= 1 / MIN_EPSILON:
        given = f"--within {reach:g}" if within is not None else f"records {reach / REACH_FACTOR:g} {data.unit} apart"
        raise UsageError(
            f"{given}: epsilon must be {MIN_EPSILON:g} to {1 / MIN_EPSILON:g} per {data.unit}, got {asked:g}"
        )
    epsilon = digits(asked, up=False)
    tables["privacy"] = {"epsilon": epsilon}
    tables |= own_tables(cls, reach)
    loaded(cls, tables, folder, points.name)
    unit = data.unit
    meaning = [
        f"hides anyone within {reach:.4g} {unit}: one report changes the odds between two such places by a factor "
        f"of at most {_up(math.exp(epsilon * reach))}",
        f"between neighbours, {spacing:.4g} {unit} apart (median), by at most {_up_exp(epsilon * spacing)}",
    ]
    if reach < spacing:
        hint = f"--within {REACH_FACTOR * spacing:.2g} hides a person among several"
        meaning.append(f"most places have no neighbour within {reach:.4g} {unit}: {hint}")
    notes = [*found.notes, *_expectations(mechanism, len(data.records))]
    return Draft(text=problem_text(mechanism, points, tables, found.notes, meaning), notes=(*notes, *meaning))


def _expectations(mechanism: str, places: int) -> Iterator[str]:
    """Say what solving the draft assumes, and whether it will take long."""
    yield f"all {places:,} places count as equally likely: give a prior for your own"
    if mechanism == "optimal-lp" and places > QUICK_PLACES:
        yield f"the optimum over {places:,} places may take minutes: --gap 0.05 or --time-limit 60 gives a first look"


def loaded(cls: type[Any], tables: dict[str, dict[str, object]], folder: Path, table: str) -> MetricData:
    """Read the problem as ``solve`` will; faults of what was drafted are faults of the table that it comes from."""
    source = File(name=table, path=folder / "problem.toml", kept=to_toml(tables).encode())
    return load(load_problem(cls, source), table)


# --- what a table holds --------------------------------------------------------------------------------


def _recognised(points: Path, folder: Path, *, ids_alone: bool) -> _RecognisedTable:
    frame, geometry = _frame(points)
    lower = {name.lower(): name for name in reversed(frame.columns)}

    def first(names: Sequence[str]) -> str | None:
        return next((lower[name] for name in names if name in lower), None)

    lat, lon = first(LATITUDES), first(LONGITUDES)
    plane = next(((lower[x], lower[y]) for x, y in PLANES if x in lower and y in lower), None)
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
        raise InputError([Fault(points.name, "header", f"columns {', '.join(frame.columns)}", wanted)])
    used = {str(name) for name in columns.values()}
    ids, others = _ids(frame, lower, used)
    people = None if ids_alone else _people(frame.columns, ids)
    trips = (
        lat is not None and not ids_alone and (lat.lower().startswith(("start", "pickup")) or frame.height > MAX_PLACES)
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
        return _RecognisedTable(records=records | ({"columns": own} if own else {}), kind=kind, notes=notes)
    if "lat" not in columns:
        raise InputError([Fault(points.name, "header", "no column that is unique for each row", "ids of the places")])
    why = f"{frame.height:,} rows of column {lat}" if ids else _unnamed(frame, used)
    why = why if people is None else f"column {people} identifies people or trips"
    notes.append(f"{why}: positions and no list of places, so a grid is laid over them")
    grid, said = grid_over(frame, columns, points.name)
    return _RecognisedTable(records={"grid": grid}, kind=kind, notes=[*notes, said])


def _frame(points: Path) -> tuple[pl.DataFrame, str | None]:
    """Return the table, and its column of geometries where it is GeoParquet."""
    file = File.read(points, str(points), wanted="a table")
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


# --- what is suggested ---------------------------------------------------------------------------------


def _spacing(data: MetricData) -> float:
    """Distance to the nearest record elsewhere, median over (some) records."""
    count = len(data.records)
    nearest = []
    chosen = np.unique(np.linspace(0, count - 1, min(count, MAX_SEARCHED_RECORDS)).astype(np.int64))
    for part in slices(len(chosen), count, 2**22):
        rows = data.metric.rows(chosen[part])
        rows[rows <= 0] = np.inf
        nearest.append(rows.min(axis=1))
    known = np.concatenate(nearest)
    known = known[np.isfinite(known)]
    if not known.size:
        found = f"{count} records at one place, or out of reach of one another"
        raise InputError([Fault(data.records.source, "", found, "places apart from one another")])
    return float(np.median(known))


def own_tables(cls: type[MetricProblem], reach: float) -> dict[str, dict[str, object]]:
    """Return the tables that one mechanism needs besides: what has no default is a distance, or all records."""
    made: dict[str, dict[str, object]] = {}
    common = {attribute.name for attribute in attrs.fields(MetricProblem)}
    for attribute in attrs.fields(cls):
        declared: Key | None = attribute.metadata.get(KEY)
        if attribute.name in common or declared is None or attribute.default is not attrs.NOTHING:
            continue
        table = get_type_hints(cls)[attribute.name]
        made[declared.name or attribute.name] = dict(_required(table, reach))
    return made


def _required(table: type[Any], reach: float) -> Iterator[tuple[str, object]]:
    hints = get_type_hints(table)
    for attribute in attrs.fields(table):
        declared: Key | None = attribute.metadata.get(KEY)
        if declared is None or attribute.default is not attrs.NOTHING:
            continue
        name = declared.name or attribute.name
        if hints[attribute.name] is float and "distance" in declared.unit:
            yield name, float(f"{reach:.4g}")
        elif any("all" in get_args(member) for member in get_args(hints[attribute.name])):
            yield name, "all"
        else:
            raise UsageError(f"{name} has no default that could be suggested: {declared.help}")


def _up(value: float) -> str:
    """Return a factor in words, rounded up."""
    return f"{digits(value, up=True):g}"


def _up_exp(exponent: float) -> str:
    """Return exp of it in words, rounded up."""
    return _up(math.exp(exponent)) if exponent < 700 else f"e^{_up(exponent)}"
