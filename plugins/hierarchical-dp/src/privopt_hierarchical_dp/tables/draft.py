"""``privopt init hierarchical-tables``: a commented problem file from a table of individuals, or of counts."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import polars as pl
from attrs import field, frozen

from privopt.declare import File
from privopt.declare.frames import plain_texts
from privopt.declare.name_forms import normal_form, warn_of_look_alikes
from privopt.declare.tables import Column, table_of
from privopt.errors import Fault, Faults, InputError, UsageError, number_of
from privopt.files.new_folder import new_file
from privopt.files.targets import check_file
from privopt_hierarchical_dp.level_tables import GROUPS_LIMIT, LevelTable, match_columns
from privopt_hierarchical_dp.region_names import KEEP, find_total_regions, path_starts_with, warn_of_alike_regions
from privopt_hierarchical_dp.tables.arithmetic_totals import find_arithmetic_totals
from privopt_hierarchical_dp.tables.count_columns import (
    MAX_ATTRIBUTE_VALUES,
    counts_rows,
    find_count_suspects,
    find_redundant_columns,
    refuse_unclear,
)
from privopt_hierarchical_dp.tables.problem import is_reserved
from privopt_hierarchical_dp.tables.read import COUNT
from privopt_hierarchical_dp.tables.table_words import find_total_names
from privopt_hierarchical_dp.tree import Regions

__all__ = ["init"]

PROBLEM: Final = """# Tables of individuals for every region, from {table}.
[hierarchy]
regions = {regions}       # public: read off the table; add regions that have nobody
records = {table}         # secret: {rows}
{settings}# budget = [1, 1]         # shares by level, the root's first; privopt plan hierarchical-tables shows the best

{totals}[hierarchy.attributes]    # public: read off the table, which told which values occur; add those that could
{attributes}
{tables}
[privacy]
epsilon = 1.0             # of one individual, over all tables and levels: whether or not one is in the file,
                          # every result is at most exp(1.0) = 2.72 times as likely
# kind = "zcdp"           # with rho = ... instead of epsilon
# relation = "individuals"  # one joins or leaves; "moves", "attributes": describe hierarchical-tables

# [plan]                  # what matters, for privopt plan
# errors = {{ people = {{ level_1 = 1 }} }}
"""


@frozen(kw_only=True)
class _Choices:
    """What the owner said of a table.

    Attributes:
        count: The column that says how many individuals a row counts.
        persons: Whether every row is one individual.
        totals: Values that are totals, by column.
        keeps_totals: Whether values that are called like totals are categories.
    """

    count: str | None = None
    persons: bool = False
    totals: Mapping[str, tuple[str, ...]] = field(factory=dict)
    keeps_totals: bool = False


@frozen(kw_only=True, eq=False)
class _Recognised:
    """What a table holds.

    Attributes:
        levels: Its columns of regions.
        paths: Its leaf regions.
        attributes: Values by attribute, those that are no totals.
        totals: Values that are totals, by column.
        count: The column that says how many individuals a row counts; None if each row is one.
        notes: What was guessed, a sentence each.
    """

    levels: tuple[str, ...]
    paths: list[tuple[str, ...]]
    attributes: Mapping[str, list[str]]
    totals: Mapping[str, list[str]]
    count: str | None
    notes: list[str]


def init(
    table: Path,
    problem_path: Path,
    *,
    force: bool,
    count: str | None = None,
    persons: bool = False,
    totals: Sequence[str] = (),
    keep_totals: bool = False,
) -> list[str]:
    """Write a problem file for a table of individuals, and the regions that it has next to it.

    Args:
        table: ``level_1, ..., level_L``, columns of attributes, and a column of counts if a row is of several alike.
        problem_path: The problem file.
        force: Whether existing files are replaced.
        count: The column that says how many individuals a row counts. By default it is recognised.
        persons: Whether every row is one individual, although a column looks like counts.
        totals: Values that are totals, each as ``COLUMN=VALUE``: their rows are not read.
        keep_totals: Whether values that look like totals are categories like others.

    Returns:
        What was guessed, a sentence each.

    Raises:
        InputError: The table has no levels, or cannot be read; it may be a table of counts, but it is not clear of
            which; a value is a total by its counts.
        UsageError: A file is there already, or options contradict one another.
    """
    regions = problem_path.with_name(f"{problem_path.stem}-regions.csv")
    for target in (problem_path, regions):
        check_file(target.absolute(), force=force)
    if count is not None and persons:
        raise UsageError("init takes --count or --persons, not both: rows are counts or individuals")
    choices = _Choices(
        count=None if count is None else normal_form(count),
        persons=persons,
        totals=_parse_totals(totals),
        keeps_totals=keep_totals,
    )
    recognised = _recognise(File.read(table, wanted="a table of individuals"), choices)
    named = Path(os.path.relpath(table.resolve(), problem_path.resolve().parent)).as_posix()
    text = _problem_text(recognised, choices, named, regions.name)
    with new_file(problem_path, force=force) as path, new_file(regions, force=force) as regions_path:
        path.write_text(text, "utf-8")
        pl.DataFrame(recognised.paths, schema=list(recognised.levels), orient="row").write_csv(
            regions_path, quote_style="necessary"
        )
    number = number_of(len(recognised.paths), "smallest region")
    return [
        f"{regions.name} has the {number} of {table.name}, values of attributes are "
        "those that occur there: both will be public, so add what could be and is not",
        *recognised.notes,
    ]


def _parse_totals(totals: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return values by column of options ``COLUMN=VALUE``."""
    values: dict[str, tuple[str, ...]] = {}
    for option in totals:
        column, is_given, value = map(str.strip, normal_form(option).partition("="))
        if not (column and is_given and value):
            raise UsageError(f"--total takes COLUMN=VALUE, got {option!r}")
        values[column] = (*values.get(column, ()), value)
    return values


def _problem_text(recognised: _Recognised, choices: _Choices, table: str, regions: str) -> str:
    """Write the problem file."""
    attributes = recognised.attributes
    tables = ["[hierarchy.tables.people]\nby = []                   # numbers of individuals"]
    tables += [f"[hierarchy.tables.by_{number}]\nby = [{_text(name)}]" for number, name in enumerate(attributes, 1)]
    settings = ""
    if recognised.count is not None:
        settings += f"count = {_text(recognised.count)}           # how many individuals a row counts\n"
    elif choices.persons:
        settings += "persons = true            # every row is one individual, whatever its columns look like\n"
    if choices.keeps_totals:
        settings += f'totals = "{KEEP}"           # values that are called like totals are categories\n'
    totals = "".join(f"{_text(name)} = {_list(values)}\n" for name, values in recognised.totals.items())
    return PROBLEM.format(
        table=_text(table),
        regions=_text(regions),
        rows="one row an individual" if recognised.count is None else "one row a region and combination of attributes",
        settings=settings,
        totals=f"[hierarchy.totals]        # rows of these values are not read: they are sums of others\n{totals}\n"
        if totals
        else "",
        attributes="".join(f"{_text(name)} = {_list(values)}\n" for name, values in attributes.items()),
        tables="\n".join(tables) + "\n",
    )


def _recognise(source: File, choices: _Choices) -> _Recognised:
    """Say what the columns of a table are."""
    header = table_of(source).columns
    if not match_columns(header, ["level_1"], source.name)[0]:
        expectation = (
            "columns level_1, ..., level_L, the regions from the whole (the same name in every row) to the smallest: "
            f"rename yours, or add one. Others are attributes, and {COUNT} is how many individuals a row counts"
        )
        raise InputError([Fault(source.name, "header", number_of(len(header), "other column"), expectation)])
    named_columns = [] if choices.count is None else [choices.count]
    table = LevelTable.read(
        source, *named_columns, optional="" if named_columns or choices.persons else COUNT, quoted=False
    )
    names = [name for name in table.frame.columns if name not in table.levels]
    count, notes = _recognise_count(table, names, choices)
    texts = {name: plain_texts(table.frame[name]).fill_null("").str.strip_chars() for name in names if name != count}
    redundant = find_redundant_columns(table, names, count) if count is not None else []
    if redundant:
        notes.append(
            f"not taken for attributes, whose values are published: {', '.join(redundant)}. They tell no rows apart, "
            f"so they may be numbers that were counted, as {count} is"
        )
    attributes, unfit, numbering = _read_attributes(
        {name: column_values for name, column_values in texts.items() if name not in redundant}
    )
    if unfit:
        reason = f"having more than {MAX_ATTRIBUTE_VALUES} values, empty ones, or a name that is taken"
        notes.append(f"not taken for attributes, {reason}: {', '.join(unfit)}")
    if numbering:
        notes.append(f"not taken for attributes, because they number the rows: {', '.join(numbering)}")
    totals, paths = _find_totals(table, attributes, choices)
    if totals:
        named = "; ".join(f"{name} = {', '.join(values)}" for name, values in totals.items())
        notes.append(
            f"taken for totals, whose rows are not read: {named}. If one is a category or a region like the others, "
            "use --keep-totals"
        )
    attributes = {
        name: [column_values for column_values in values if column_values not in totals.get(name, ())]
        for name, values in attributes.items()
    }
    tree = Regions.of(paths, file=source.name).tree
    if count is not None and not choices.keeps_totals:
        _check_arithmetic(table, texts, attributes, totals, count)
    notes += warn_of_alike_regions(tree)
    for name, values in attributes.items():
        notes += warn_of_look_alikes(values, f"values of {name}")
    return _Recognised(
        levels=table.levels,
        paths=paths,
        attributes=attributes,
        totals=totals,
        count=None if count is None else table.written.get(count, count),
        notes=notes,
    )


def _recognise_count(table: LevelTable, names: Sequence[str], choices: _Choices) -> tuple[str | None, list[str]]:
    """Return the column of counts, None if each row is an individual, and what is said of it.

    Raises:
        InputError: A cell of the column of counts is none. It is not clear whether a row is one individual.
    """
    rows = f"each of the {table.frame.height:,} rows is taken for one individual"
    notes = []
    if choices.persons:
        return None, [rows]
    if choices.count is not None:
        count = choices.count
    elif COUNT in table.written:
        count = COUNT
    else:
        suspects = find_count_suspects(table, names)
        if suspects.columns and suspects.certain is None:
            cure = (
                "--count COLUMN if a row counts several individuals (and one column of counts: a row for each "
                "combination), or --persons if every row is one individual"
            )
            refuse_unclear(suspects, table.source.name, cure)
        if suspects.certain is None:
            return None, [rows]
        count = suspects.certain
        notes.append(
            f"column {count} is taken for how many individuals a row counts: rows differ without it. If every row is "
            "one individual, use --persons"
        )
    table.read_columns(Column(name=count, kind="count", least=0, most=GROUPS_LIMIT - 1, unit="individuals"))
    return count, notes


def _read_attributes(texts: Mapping[str, pl.Series]) -> tuple[dict[str, list[str]], list[str], list[str]]:
    """Return the values of attributes, the columns that cannot be any, and those that number the rows."""
    attributes: dict[str, list[str]] = {}
    unfit, numbering = [], []
    for name, column_values in texts.items():
        values = column_values.unique().sort().to_list()
        is_fit_name = not is_reserved(name) and name.isprintable() and '"' not in name
        if counts_rows(column_values):
            numbering.append(name)
        elif not is_fit_name or len(values) > MAX_ATTRIBUTE_VALUES or not all(values):
            unfit.append(name)
        else:
            attributes[name] = values
    return attributes, unfit, numbering


def _find_totals(
    table: LevelTable, attributes: Mapping[str, list[str]], choices: _Choices
) -> tuple[dict[str, list[str]], list[tuple[str, ...]]]:
    """Return the totals of a table by column, and the paths of the regions that are none.

    Raises:
        InputError: A total that the owner named does not occur, or nothing remains beside totals.
    """
    totals = {} if choices.keeps_totals else {name: find_total_names(values) for name, values in attributes.items()}
    paths: list[tuple[str, ...]] = list(table.paths().unique().sort(table.levels).iter_rows())
    total_regions = [] if choices.keeps_totals else find_total_regions(paths)
    for region in total_regions:
        totals.setdefault(table.levels[len(region) - 1], []).append(region[-1])
    written, faults = match_columns([*table.levels, *attributes], list(choices.totals), table.source.name)
    for name, values in choices.totals.items():
        column = written.get(name)
        level = table.levels.index(column) if column in table.levels else None
        known_values = {path[level] for path in paths} if level is not None else set(attributes.get(column or "", ()))
        faults += [
            Fault(table.source.name, f"--total {name}={value}", "no such value", "a value of an attribute or region")
            for value in values
            if value not in known_values
        ]
        if column is not None:
            totals[column] = list(dict.fromkeys([*totals.get(column, ()), *values]))
    Faults(faults).check()
    totals = {name: values for name, values in totals.items() if values}
    by_level = [(number, totals[level]) for number, level in enumerate(table.levels) if level in totals]
    parts = [
        path
        for path in paths
        if not path_starts_with(path, total_regions) and not any(path[number] in values for number, values in by_level)
    ]
    if not parts or any(set(values) <= set(totals.get(name, ())) for name, values in attributes.items()):
        raise InputError([Fault(table.source.name, "", "totals alone", "rows of what they are totals of")])
    return totals, parts


def _check_arithmetic(
    table: LevelTable,
    texts: Mapping[str, pl.Series],
    attributes: Mapping[str, list[str]],
    totals: Mapping[str, list[str]],
    count: str,
) -> None:
    """Refuse a value whose count is the sum of its siblings' everywhere, until its owner says what it is.

    The counts are secret, so what they tell is for the owner's screen alone, and nothing is written here.

    Raises:
        InputError: A fault for each such value.
    """
    (number,) = table.read_columns(Column(name=count, kind="count", least=0))
    columns = dict(zip(table.levels, table.paths(), strict=True)) | {name: texts[name] for name in attributes}
    frame = pl.DataFrame([column_values.alias(name) for name, column_values in columns.items()]).with_columns(
        number.alias("counted")
    )
    for name, values in totals.items():
        frame = frame.filter(~pl.col(name).is_in(values))
    found = find_arithmetic_totals(frame, list(table.levels), list(attributes), "counted")
    Faults(
        Fault(
            table.source.name,
            f"column {name}, value {value!r}",
            "a value whose count is the sum of the others' everywhere",
            f'--total "{name}={value}" if it is their total, or --keep-totals if no value is a total',
        )
        for name, value in found
    ).check()


def _list(values: Sequence[str]) -> str:
    """Return a list of TOML."""
    return f"[{', '.join(map(_text, values))}]"


def _text(value: str) -> str:
    """Return a basic string of TOML."""
    return json.dumps(value, ensure_ascii=False)
