"""``privopt init``: from a table to a commented problem file that ``solve`` takes as it is.

What is recognised is said, line by line, in the file and by the command: nothing is guessed in silence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any, Final, get_args, get_type_hints

import attrs
import numpy as np
from attrs import evolve, frozen

from privopt.arrays import slices
from privopt.declare.frames import csv_bytes
from privopt.declare.schema import KEY, File, Key
from privopt.declare.toml import load_problem
from privopt.declare.toml_text import to_toml
from privopt.errors import Fault, InputError, UsageError
from privopt.files.new_folder import new_file
from privopt.files.targets import check_file
from privopt.registry import registry
from privopt_metric_dp.problem.data import MetricData, load
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_tables.studies.draft_columns import ColumnChoice, convert_table, recognised
from privopt_tables.studies.draft_grid import digits
from privopt_tables.studies.draft_text import problem_text, relative
from privopt_tables.studies.street_map import StreetMap

__all__ = ["Draft", "draft", "init", "init_from_map", "loaded", "own_tables"]

REACH_FACTOR: Final = 3.0
"""How many times the distance between neighbours somebody is hidden within, where nothing is asked for."""

MIN_EPSILON: Final = 1e-300
"""Of an epsilon that doubles can work with; the greatest is one over it."""

MAX_SEARCHED_RECORDS: Final = 2_000
"""Records whose nearest neighbour is looked for."""

ONE_WAY_LOSS: Final = "the loss is the error in travel along one-way streets, distances of privacy run both ways"
BOTH_WAYS_LOSS: Final = "distances run both ways; for travel along one-way streets as the loss, take --one-way"

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


def init(
    mechanism: str,
    points: Path,
    out: Path,
    *,
    roads: Path | None = None,
    within: float | None = None,
    factor: float = 4.0,
    force: bool = False,
    choice: ColumnChoice | None = None,
) -> Draft:
    """Write a problem file for a table of places, or of positions; see :func:`draft`.

    The places of a table in another layout (GeoJSON, GPX, ...) are written next to it, as NAME-points.csv.
    """
    check_file(out.absolute(), force=force)
    choice = choice or ColumnChoice()
    frame = convert_table(points, choice)
    folder = out.absolute().parent
    if frame is None:
        made = draft(mechanism, points, folder, roads=roads, within=within, factor=factor, choice=choice)
        with new_file(out, force=force) as path:
            path.write_text(made.text, "utf-8")
        return made
    target = out.absolute().with_name(f"{out.stem}-points.csv")
    choice = evolve(choice, point=None)
    with _naming_table(target.name, points.name), TemporaryDirectory() as temporary:
        table = Path(temporary) / target.name
        table.write_bytes(csv_bytes(frame))
        has_places = "points" in recognised(table, folder, ids_alone=roads is not None, choice=choice).records
        if has_places:
            check_file(target, force=force)
            with new_file(target, force=force) as path:
                copyfile(table, path)
            table = target
        try:
            made = draft(mechanism, table, folder, roads=roads, within=within, factor=factor, choice=choice)
        except BaseException:
            if has_places:
                target.unlink()
            raise
    with new_file(out, force=force) as path:
        path.write_text(made.text, "utf-8")
    if not has_places:
        return made
    written = f"the places of {points.name} are in {target.name}, which the problem file names"
    return evolve(made, notes=(written, *made.notes))


@contextmanager
def _naming_table(table: str, name: str) -> Iterator[None]:
    """Name the table that the user gave in faults of its converted form."""
    try:
        yield
    except InputError as error:
        raise InputError(
            [evolve(fault, file=name) if fault.file == table else fault for fault in error.faults]
        ) from None


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
        made = draft(
            mechanism, tables[0], beside, roads=tables[1], one_way=streets.one_way, within=within, factor=factor
        )
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
        f"direction: {ONE_WAY_LOSS if streets.one_way else BOTH_WAYS_LOSS}"
    )
    return evolve(made, notes=(*streets.notes, written, *made.notes))


def draft(
    mechanism: str,
    points: Path,
    folder: Path,
    *,
    roads: Path | None = None,
    one_way: bool = False,
    within: float | None = None,
    factor: float = 4.0,
    choice: ColumnChoice | None = None,
) -> Draft:
    """Return a problem file that was read as ``solve`` will read it.

    Args:
        mechanism: that it is for.
        points: CSV, Parquet or GeoParquet: a list of places, each with an id, or any table of positions, over which a
            grid is laid.
        folder: the folder that it will lie in.
        roads: CSV or Parquet with columns from, to, km, between the ids of ``points``.
        one_way: The loss is the error in travel along ``roads`` in their direction.
        within: km within which a person is to be hidden; three times the distance between neighbours by default.
        factor: by which one report may change the odds between two places so far apart.
        choice: columns of ``points`` that are named; others are recognised.

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
    found = recognised(points, folder, ids_alone=roads is not None, choice=choice)
    tables: dict[str, dict[str, object]] = {"records": found.records, "distance": {"kind": found.kind}}
    if roads is not None:
        tables["distance"] = {"kind": "graph", "edges": relative(roads, folder)}
        if "grid" in found.records:
            raise InputError(
                [Fault(points.name, "", "no column of ids", "a column of ids that names the nodes of --roads")]
            )
    utility: dict[str, object] = {"kind": "distance"}
    if roads is not None and one_way:
        utility = {"kind": "travel-cost", "edges": relative(roads, folder), "directed": True}
    tables |= {"privacy": {"epsilon": 1.0}, "utility": utility}
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
    warnings = [f"warning: {warning}" for warning in data.warnings]
    return Draft(
        text=problem_text(mechanism, points, tables, found.notes, meaning), notes=(*notes, *meaning, *warnings)
    )


def _expectations(mechanism: str, places: int) -> Iterator[str]:
    """Say what solving the draft assumes, and whether it will take long."""
    yield f"all {places:,} places count as equally likely: give a prior for your own"
    if mechanism == "optimal-lp" and places > QUICK_PLACES:
        yield f"the optimum over {places:,} places may take minutes: --gap 0.05 or --time-limit 60 gives a first look"


def loaded(cls: type[Any], tables: dict[str, dict[str, object]], folder: Path, table: str) -> MetricData:
    """Read the problem as ``solve`` will; faults of what was drafted are faults of the table that it comes from."""
    source = File(name=table, path=folder / "problem.toml", kept=to_toml(tables).encode())
    return load(load_problem(cls, source), table)


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
