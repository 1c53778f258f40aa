"""Draft a commented problem file from a table (``privopt init``). The command ``solve`` accepts the file unchanged.

Comments in the file and notes on the terminal show how each column was interpreted, so that the user can notice wrong
guesses. :mod:`.draft_columns` recognises the columns, and :mod:`.draft_text` formats the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any, Final, get_args, get_type_hints

import attrs
import numpy as np
from attrs import evolve, frozen

from privopt.arrays import slices
from privopt.declare.frames import csv_bytes
from privopt.declare.name_forms import warn_of_look_alikes
from privopt.declare.schema import KEY, File, Key
from privopt.declare.toml import load_problem
from privopt.declare.toml_text import to_toml
from privopt.errors import Fault, InputError, UsageError, conceal
from privopt.files.new_folder import check_files, make_parents, new_file
from privopt.files.regular import flush
from privopt.registry import registry
from privopt_metric_dp.problem.data import MetricData, load
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_tables.studies.draft_columns import ColumnChoice, convert_table, recognize_table
from privopt_tables.studies.draft_grid import round_to_digits
from privopt_tables.studies.draft_text import format_problem, relative_path
from privopt_tables.studies.street_map import Addresses, StreetMap

__all__ = [
    "Draft",
    "Roads",
    "draft",
    "init",
    "init_from_map",
    "load_drafted_problem",
    "suggest_tables",
    "write_together",
]

REACH_FACTOR: Final = 3.0
"""The default radius within which a person is hidden, as a multiple of the median distance between neighbouring
places."""

HIDING_ADDRESSES: Final = 500
"""The number of addresses that must lie within the default radius for a street map. About a thousand people live at
this many addresses."""

HIDDEN_SHARE: Final = 0.9
"""The fraction of places that must have `HIDING_ADDRESSES` addresses within the default radius for a street map."""

MAX_RADIUS_RECORDS: Final = 500
"""Maximum number of places used to compute the default radius for a street map. If there are more, evenly spaced places
are used."""

MIN_EPSILON: Final = 1e-300
"""The smallest epsilon that a draft can have, given the range of doubles. The largest one is its reciprocal."""

MAX_SEARCHED_RECORDS: Final = 2_000
"""Maximum number of records whose nearest neighbours are searched for. If there are more, evenly spaced records are
used."""

ONE_WAY_LOSS: Final = "the loss is the error in travel along one-way streets, distances of privacy run both ways"
BOTH_WAYS_LOSS: Final = "distances run both ways; for travel along one-way streets as the loss, take --one-way"

QUICK_PLACES: Final = 200
"""The number of places above which a note warns that computing the optimum may take minutes. For 462 places, this took
over two minutes on two busy CPU cores."""


@frozen(kw_only=True)
class Draft:
    """A drafted problem file, with notes for its author.

    Attributes:
        text: The text of the file.
        notes: Notes on how the columns were interpreted, and on the meaning of epsilon.
    """

    text: str
    notes: tuple[str, ...]


@frozen(kw_only=True)
class Roads:
    """The roads between the places of a drafted problem.

    Attributes:
        table: A CSV or Parquet table with the columns from, to and km.
        one_way: Whether the loss is the error in travel distance along the directed roads. The distances used for
            privacy always treat roads as two-way.
    """

    table: Path
    one_way: bool = False


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
    """Write a problem file for the places in a table, or for a grid if the table contains people's positions.

    A table in a foreign format, such as GeoJSON or GPX, is converted. If its rows are public places, the converted
    table is written next to the problem file as NAME-points.csv.

    Args:
        mechanism: The name of the mechanism to draft a problem for.
        points: The table's file.
        out: The problem file to write.
        roads: A table of roads between the ids in ``points``, with the columns from, to and km. None if there are no
            roads.
        within: The radius in km within which a person is hidden. If None, it is three times the median distance between
            neighbours.
        factor: The maximum factor by which one report may change the odds between two places within this radius.
        choice: The columns of ``points`` that the user named. All other columns are recognised by name.
        force: Whether to replace existing files.

    Raises:
        InputError: No places are recognised in the table, or ``solve`` would reject the problem.
        UsageError: The mechanism does not protect places, the radius or the factor is out of range, the named columns
            cannot be used together, a file already exists, or a file to write is one of the tables.
    """
    # Check this first, so that no work is wasted.
    read = [points, roads]
    check_files({"--out": out}, force=force, read=read)
    choice = choice or ColumnChoice()
    frame = convert_table(points, choice)
    folder = out.absolute().parent
    graph = None if roads is None else Roads(table=roads)
    # The draft contains the tables' paths relative to this folder, so the folder must exist.
    with make_parents(out.absolute()):
        if frame is None:
            drafted = draft(mechanism, points, folder, roads=graph, within=within, factor=factor, choice=choice)
            write_together({out: drafted.text.encode()}, force=force)
            return drafted
        target = out.absolute().with_name(f"{out.stem}-points.csv")
        # The converted table has the columns lat and lon instead of the column of positions.
        choice = evolve(choice, point=None)
        contents = csv_bytes(frame)
        # The converted table is written only if its places are public. Positions of people stay in a temporary folder.
        with _rename_faults(target.name, points.name), TemporaryDirectory() as temporary:
            table = Path(temporary) / target.name
            table.write_bytes(contents)
            has_places = "points" in recognize_table(table, folder, ids_alone=roads is not None, choice=choice).records
            if has_places:
                check_files({"--out": target}, force=force, read=read)
            # The problem is drafted from the temporary table, so that no older table is replaced if the problem is
            # rejected.
            drafted = draft(
                mechanism,
                table,
                folder,
                roads=graph,
                within=within,
                factor=factor,
                choice=choice,
                stored_points=target if has_places else None,
            )
        if not has_places:
            write_together({out: drafted.text.encode()}, force=force)
            return drafted
        write_together({out: drafted.text.encode(), target: contents}, force=force)
    note = f"the places of {points.name} are in {target.name}, which the problem file names"
    return evolve(drafted, notes=(note, *drafted.notes))


def write_together(contents_by_target: Mapping[Path, bytes | Path], *, force: bool) -> None:
    """Write several files together, giving them their final names only after all of them are complete on disk.

    Args:
        contents_by_target: The contents of each file to write, or a file to copy them from.
        force: Whether to replace existing files.

    Raises:
        UsageError: A file already exists, or its path cannot be used.
        StoppedError: Writing failed, and no file was replaced.
    """
    with ExitStack() as stack:
        for target, contents in contents_by_target.items():
            path = stack.enter_context(new_file(target, force=force))
            if isinstance(contents, Path):
                copyfile(contents, path)
            else:
                path.write_bytes(contents)
            # The first file gets its name before the others are flushed, so each is flushed here too.
            flush(path)


@contextmanager
def _rename_faults(table: str, name: str) -> Iterator[None]:
    """Make faults raised in the ``with`` block name the user's table instead of the converted one.

    Args:
        table: The name of the converted table.
        name: The name of the user's table.
    """
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
    source: Path | None = None,
    within: float | None = None,
    factor: float = 4.0,
    force: bool = False,
) -> Draft:
    """Write a problem file for the places on a street map, along with NAME-points.csv and NAME-roads.csv.

    Args:
        mechanism: The name of the mechanism to draft a problem for.
        streets: The street map.
        out: The problem file to write.
        source: The map's file, which must not be overwritten. None if the map was not read from a file.
        within: The radius in km within which a person is hidden. If None, it is chosen so that it contains enough
            addresses.
        factor: The maximum factor by which one report may change the odds between two places within this radius.
        force: Whether to replace existing files.

    Raises:
        InputError: ``solve`` would reject the problem.
        UsageError: The mechanism does not protect places, the radius or the factor is out of range, a file already
            exists, or a file to write is the map.
    """
    # The tables are named after the problem file, so its path must be that of a file.
    check_files({"--out": out}, force=force, read=[source])
    points, roads = (out.with_name(f"{out.stem}-{table}.csv") for table in ("points", "roads"))
    check_files({"--out": [out, points, roads]}, force=force, read=[source])
    with TemporaryDirectory() as folder:
        # The problem is first drafted in a temporary folder, so that a problem that is rejected leaves no tables
        # behind.
        temporary_folder = Path(folder)
        tables = temporary_folder / points.name, temporary_folder / roads.name
        streets.write(*tables)
        drafted = draft(
            mechanism,
            tables[0],
            temporary_folder,
            roads=Roads(table=tables[1], one_way=streets.one_way),
            within=streets.count_addresses() if within is None else within,
            factor=factor,
        )
        write_together({out: drafted.text.encode(), points: tables[0], roads: tables[1]}, force=force)
    note = (
        f"{points.name} has {len(streets.places):,} places, {roads.name} {len(streets.km):,} roads, a row for each "
        f"direction: {ONE_WAY_LOSS if streets.one_way else BOTH_WAYS_LOSS}"
    )
    return evolve(drafted, notes=(*streets.notes, note, *drafted.notes))


def draft(
    mechanism: str,
    points: Path,
    folder: Path,
    *,
    roads: Roads | None = None,
    within: float | Addresses | None = None,
    factor: float = 4.0,
    choice: ColumnChoice | None = None,
    stored_points: Path | None = None,
) -> Draft:
    """Draft a problem file, and check that ``solve`` accepts it.

    Args:
        mechanism: The name of the mechanism to draft a problem for.
        points: A CSV, Parquet or GeoParquet file that contains either places with ids, or positions to cover with a
            grid.
        folder: The folder in which the problem file will be stored.
        roads: The roads between the ids in ``points``. None if there are no roads.
        within: The radius in km within which a person is hidden. If the addresses at the places are given instead, the
            radius is chosen so that it contains enough of them. If None, it is three times the median distance between
            neighbours.
        factor: The maximum factor by which one report may change the odds between two places within this radius.
        choice: The columns of ``points`` that the user named. All other columns are recognised by name.
        stored_points: The file to which ``points`` will be moved. The problem file must refer to this file. None if
            ``points`` stays where it is.

    Raises:
        InputError: No places are recognised in the table, or ``solve`` would reject the problem.
        UsageError: The mechanism does not protect places, the radius or the factor is out of range, or the named
            columns cannot be used together.
    """
    if not factor > 1.0 or not math.isfinite(factor):
        raise UsageError(f"--factor must be a number above 1, got {factor:g}")
    problem_class = registry().get(mechanism).load().problem_class
    if not issubclass(problem_class, MetricProblem):
        raise UsageError(
            f"{mechanism} is not over places; privopt describe {mechanism} shows what its problem file holds"
        )
    recognised = recognize_table(points, folder, ids_alone=roads is not None, choice=choice)
    tables: dict[str, dict[str, object]] = {"records": recognised.records, "distance": {"kind": recognised.kind}}
    if roads is not None:
        tables["distance"] = {"kind": "graph", "edges": relative_path(roads.table, folder)}
        # Roads refer to places by their ids, which the cells of a grid do not have.
        if "grid" in recognised.records:
            raise InputError(
                [Fault(points.name, "", "no column of ids", "a column of ids that names the nodes of --roads")]
            )
    utility: dict[str, object] = {"kind": "distance"}
    if roads is not None and roads.one_way:
        utility = {"kind": "travel-cost", "edges": relative_path(roads.table, folder), "directed": True}
    tables |= {"privacy": {"epsilon": 1.0}, "utility": utility}
    # Epsilon depends on the distances, so the problem is first read with a provisional epsilon of 1.
    data = load_drafted_problem(MetricProblem, tables, folder, points.name)
    spacing = _median_spacing(data)
    # One report changes the odds between two places within the radius by a factor of at most exp(epsilon * radius).
    # Epsilon is chosen so that this is `factor`.
    reason = ""
    if isinstance(within, Addresses):
        radius, reason = _radius_among_addresses(data, within)
    else:
        radius = REACH_FACTOR * spacing if within is None else within
    target_epsilon = math.log(factor) / radius if radius else math.inf
    if not MIN_EPSILON <= target_epsilon <= 1 / MIN_EPSILON:
        if isinstance(within, Addresses):
            source = f"the distance of {radius:g} {data.unit} that hides people among addresses"
        else:
            source = f"records {spacing:g} {data.unit} apart" if within is None else f"--within {radius:g}"
        raise UsageError(
            f"{source}: epsilon must be {MIN_EPSILON:g} to {1 / MIN_EPSILON:g} per {data.unit}, got {target_epsilon:g}"
        )
    # Epsilon is rounded down, so that the factor is at most the requested one.
    epsilon = round_to_digits(target_epsilon, up=False)
    tables["privacy"] = {"epsilon": epsilon}
    tables |= suggest_tables(problem_class, radius)
    # The finished problem is read once more, just as the mechanism will read it, so that any errors appear now.
    load_drafted_problem(problem_class, tables, folder, points.name)
    if stored_points is not None:
        tables["records"] = {**recognised.records, "points": relative_path(stored_points, folder)}
    unit = data.unit
    meaning = [
        f"hides anyone within {radius:.4g} {unit}: one report changes the odds between two such places by a factor "
        f"of at most {_format_up(math.exp(epsilon * radius))}",
        *([reason] if reason else []),
        f"between neighbouring places ({spacing:.4g} {unit} apart at the median) by at most "
        f"{_format_exp_up(epsilon * spacing)}",
    ]
    # With such a small radius, most places have no other place among which a person could be hidden.
    if radius < spacing:
        hint = f"--within {REACH_FACTOR * spacing:.2g} hides a person among several"
        meaning.append(f"most places have no neighbour within {radius:.4g} {unit}: {hint}")
    notes = [*recognised.notes, *recognised.owner_notes, *_describe_assumptions(mechanism, len(data.records))]
    look_alikes = warn_of_look_alikes(data.records.ids, "ids")
    warnings = [f"warning: {warning}" for warning in (*data.warnings, *look_alikes)]
    return Draft(
        text=format_problem(mechanism, points, tables, recognised.notes, meaning), notes=(*notes, *meaning, *warnings)
    )


def _describe_assumptions(mechanism: str, place_count: int) -> Iterator[str]:
    """Yield notes on the assumptions of a drafted problem, and a warning if solving it may take a long time."""
    yield f"all {place_count:,} places are assumed to be equally likely: give a prior if they are not"
    if mechanism == "optimal-lp" and place_count > QUICK_PLACES:
        cure = "--gap 0.05 or --time-limit 60 gives a first look"
        yield f"the optimum over {place_count:,} places may take minutes: {cure}"


def load_drafted_problem(cls: type[Any], tables: dict[str, dict[str, object]], folder: Path, table: str) -> MetricData:
    """Read a drafted problem exactly as ``solve`` will read it.

    Args:
        cls: The mechanism's problem class.
        tables: The TOML tables of the problem file, keyed by name.
        folder: The folder of the problem file.
        table: The name of the table from which the problem was drafted, used in error messages.

    Raises:
        InputError: ``solve`` would reject the problem.
    """
    source = File(name=table, path=folder / "problem.toml", kept=to_toml(tables).encode())
    try:
        return load(load_problem(cls, source), table)
    except InputError as error:
        raise InputError(
            # A fault in a cell must not quote the cell, because the table may contain people's positions.
            conceal([fault])[0] if fault.where.startswith("row ") and ", column " in fault.where else fault
            for fault in error.faults
        ) from None


# --- suggestions ---------------------------------------------------------------------------------------


def _median_spacing(data: MetricData) -> float:
    """Return the median distance from a record to the nearest record at another place.

    The median is taken over at most `MAX_SEARCHED_RECORDS` records, but the nearest record is searched for among all
    records.

    Raises:
        InputError: No two records are separated by a finite distance above 0.
    """
    count = len(data.records)
    min_distances = []
    record_numbers = np.unique(np.linspace(0, count - 1, min(count, MAX_SEARCHED_RECORDS)).astype(np.int64))
    # Blocks of about four million distances (2**22) limit the memory that is used.
    for part in slices(len(record_numbers), count, 2**22):
        rows = data.metric.rows(record_numbers[part])
        # Records at the same place, and the record itself, do not count as neighbours.
        rows[rows <= 0] = np.inf
        min_distances.append(rows.min(axis=1))
    distances = np.concatenate(min_distances)
    distances = distances[np.isfinite(distances)]
    if not distances.size:
        actual = f"{count} records at one place, or unreachable from one another"
        raise InputError([Fault(data.records.source, "", actual, "places apart from one another")])
    return float(np.median(distances))


def _radius_among_addresses(data: MetricData, addresses: Addresses) -> tuple[float, str]:
    """Return a radius that contains enough addresses around nearly every place, and a sentence that explains it.

    A person is hidden among the people who live nearby, not among the places. The number of these people is
    approximated by the number of addresses.

    Args:
        data: The problem's data, with the places and their distances.
        addresses: The number of addresses at each place.
    """
    count, counts = len(data.records), addresses.counts
    # On a map with few addresses, a quarter of all its addresses must suffice.
    address_count = min(HIDING_ADDRESSES, counts.sum() / 4)
    radii = []
    record_numbers = np.unique(np.linspace(0, count - 1, min(count, MAX_RADIUS_RECORDS)).astype(np.int64))
    for part in slices(len(record_numbers), count, 2**22):
        rows = data.metric.rows(record_numbers[part])
        # For each place, all places are sorted by distance, and their addresses are added up in this order. The radius
        # is the distance at which there are enough.
        order = np.argsort(rows, axis=1)
        reached = np.cumsum(counts[order], axis=1) >= address_count
        radii.append(np.take_along_axis(rows, np.take_along_axis(order, reached.argmax(axis=1)[:, None], 1), 1)[:, 0])
    distances = np.concatenate(radii)
    radius = float(np.quantile(distances[np.isfinite(distances)], HIDDEN_SHARE, method="higher"))
    # A place may have enough addresses by itself, but a radius of 0 would not hide which place is meant.
    radius = round_to_digits(max(radius, _median_spacing(data)), up=True)
    source = (
        "as the map has them" if addresses.is_counted else "estimated from the length of streets, for the map has few"
    )
    return radius, (
        f"within that distance {100 * HIDDEN_SHARE:.0f} % of the places have {address_count:,.0f} addresses or more "
        f"({source}); --within sets another distance"
    )


def suggest_tables(cls: type[MetricProblem], radius: float) -> dict[str, dict[str, object]]:
    """Suggest the TOML tables that a mechanism's problem file needs in addition to those common to all problems.

    Only required keys are included.

    Args:
        cls: The mechanism's problem class.
        radius: The radius within which a person is hidden, in the same unit as the distances.
    """
    tables: dict[str, dict[str, object]] = {}
    common_names = {attribute.name for attribute in attrs.fields(MetricProblem)}
    for attribute in attrs.fields(cls):
        declared: Key | None = attribute.metadata.get(KEY)
        # Only tables without a default are needed. The caller writes the tables that all problems have.
        if attribute.name in common_names or declared is None or attribute.default is not attrs.NOTHING:
            continue
        table = get_type_hints(cls)[attribute.name]
        tables[declared.name or attribute.name] = dict(_suggest_keys(table, radius))
    return tables


def _suggest_keys(table: type[Any], radius: float) -> Iterator[tuple[str, object]]:
    """Yield each required key of a TOML table together with a suggested value.

    For a distance, the suggested value is the radius. For a selection of records, it is "all".

    Args:
        table: The class that represents the table.
        radius: The radius within which a person is hidden, in the same unit as the distances.

    Raises:
        UsageError: The table requires a key for which no value can be suggested.
    """
    hints = get_type_hints(table)
    for attribute in attrs.fields(table):
        declared: Key | None = attribute.metadata.get(KEY)
        if declared is None or attribute.default is not attrs.NOTHING:
            continue
        name = declared.name or attribute.name
        # A number is a distance if the unit that its key declares says so.
        if hints[attribute.name] is float and "distance" in declared.unit:
            yield name, float(f"{radius:.4g}")
        # The type is a union with the literal "all".
        elif any("all" in get_args(member) for member in get_args(hints[attribute.name])):
            yield name, "all"
        else:
            raise UsageError(f"{name} has no default that could be suggested: {declared.help}")


def _format_up(value: float) -> str:
    """Format a factor to three significant digits, rounding up so that it is never understated."""
    return f"{round_to_digits(value, up=True):g}"


def _format_exp_up(exponent: float) -> str:
    """Format exp(exponent) to three significant digits, rounding up. If it could overflow, write it as a power of e."""
    # exp overflows above 709.
    return _format_up(math.exp(exponent)) if exponent < 700 else f"e^{_format_up(exponent)}"
