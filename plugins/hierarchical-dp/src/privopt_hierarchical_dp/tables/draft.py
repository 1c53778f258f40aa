"""``privopt init hierarchical-tables``: draft a commented problem file for a table of individuals or counts."""

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
from privopt.declare.table_words import find_total_names
from privopt.declare.tables import Column, table_of
from privopt.errors import Fault, Faults, InputError, UsageError, number_of
from privopt.files.new_folder import check_files, new_file
from privopt_hierarchical_dp.level_tables import GROUPS_LIMIT, LevelTable, match_columns
from privopt_hierarchical_dp.region_names import KEEP, find_total_regions, path_starts_with, warn_of_alike_regions
from privopt_hierarchical_dp.tables.arithmetic_totals import find_arithmetic_totals
from privopt_hierarchical_dp.tables.count_columns import (
    MAX_ATTRIBUTE_VALUES,
    NO_NAME,
    counts_rows,
    find_count_suspects,
    find_redundant_columns,
    refuse_unclear,
)
from privopt_hierarchical_dp.tables.problem import is_reserved
from privopt_hierarchical_dp.tables.read import COUNT
from privopt_hierarchical_dp.tree import Regions

__all__ = ["init"]

LEAST_IDENTIFIED: Final = 8
"""The minimum number of rows needed to judge a column by the number of its values that occur only once."""

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
    """The options of ``init`` that say what the table's columns and values mean.

    Attributes:
        count: The column that states how many individuals each row represents, or None if no option names one.
        persons: Whether every row is one individual.
        totals: For each column, the values that the user declares to be totals of other values.
        keeps_totals: Whether values with names that suggest totals, such as ``All``, are ordinary categories.
    """

    count: str | None = None
    persons: bool = False
    totals: Mapping[str, tuple[str, ...]] = field(factory=dict)
    keeps_totals: bool = False


@frozen(kw_only=True, eq=False)
class _Recognised:
    """What ``init`` detects in a table and uses to write the problem file.

    Attributes:
        levels: The names of the region columns in the table, from the largest to the smallest regions.
        paths: The path of each leaf region, which consists of the names of all regions from the root down to the leaf.
        attributes: The values of each attribute, without totals.
        totals: The values that are totals of other values, by column.
        count: The column that states how many individuals each row represents, or None if each row is one individual.
        notes: Sentences that tell the user what was guessed.
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
    """Write a problem file for a table of individuals, and a file of the table's regions next to it.

    Args:
        table: The path of the table. It has columns ``level_1``, ..., ``level_L``, attribute columns and, if a row
            represents several individuals with the same values, a column of counts.
        problem_path: The path of the problem file to write. If it is ``NAME.toml``, the regions are written to
            ``NAME-regions.csv`` in the same folder.
        force: Whether to replace existing files.
        count: The column that states how many individuals each row represents. By default, it is detected.
        persons: Whether every row is one individual, even if a column looks like counts.
        totals: The values that are totals, each as ``COLUMN=VALUE``. Rows with these values are not read.
        keep_totals: Whether values with names that suggest totals are ordinary categories.

    Returns:
        Sentences that tell the user what becomes public and what was guessed.

    Raises:
        InputError: The table cannot be read or has no region columns; its regions do not form a tree; the table may
            contain counts, but it is unclear in which column; a total in ``totals`` does not occur in the table; or the
            counts suggest that a value is a total.
        UsageError: A file to write already exists or is the table itself, or options contradict one another.
    """
    # The output files are checked before the table is read, which may take long. The path of the regions is derived
    # from the problem's path, so that is checked first.
    check_files({"--out": problem_path}, force=force, read=[table])
    regions = problem_path.with_name(f"{problem_path.stem}-regions.csv")
    check_files({"--out": [problem_path, regions]}, force=force, read=[table])
    if count is not None and persons:
        raise UsageError("init takes --count or --persons, not both: rows are counts or individuals")
    choices = _Choices(
        count=None if count is None else normal_form(count),
        persons=persons,
        totals=_parse_totals(totals),
        keeps_totals=keep_totals,
    )
    recognised = _recognise_columns(File.read(table, expectation="a table of individuals"), choices)
    # Paths in a problem file are relative to its folder.
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
    """Parse the ``COLUMN=VALUE`` arguments of ``--total``, and group the values by column.

    Raises:
        UsageError: An argument does not have this form.
    """
    values: dict[str, tuple[str, ...]] = {}
    for option in totals:
        column, is_given, value = map(str.strip, normal_form(option).partition("="))
        if not (column and is_given and value):
            raise UsageError(f"--total takes COLUMN=VALUE, got {option!r}")
        values[column] = (*values.get(column, ()), value)
    return values


def _problem_text(recognised: _Recognised, choices: _Choices, table: str, regions: str) -> str:
    """Return the contents of the problem file, filling in the placeholders of :data:`PROBLEM`.

    Args:
        recognised: What was detected in the table.
        choices: The options. Those about individuals and totals, if used, are written to the file as settings.
        table: The path of the table, relative to the problem file.
        regions: The name of the file of regions.
    """
    attributes = recognised.attributes
    # One table of totals, and one table for each attribute. The owner can add combinations of attributes.
    tables = ["[hierarchy.tables.people]\nby = []                   # numbers of individuals"]
    tables += [
        f"[hierarchy.tables.by_{number}]\nby = [{_to_toml_string(name)}]" for number, name in enumerate(attributes, 1)
    ]
    settings = ""
    if recognised.count is not None:
        settings += f"count = {_to_toml_string(recognised.count)}           # how many individuals a row counts\n"
    elif choices.persons:
        settings += "persons = true            # every row is one individual, whatever its columns look like\n"
    if choices.keeps_totals:
        settings += f'totals = "{KEEP}"           # values that are called like totals are categories\n'
    totals = "".join(
        f"{_to_toml_string(name)} = {_to_toml_array(values)}\n" for name, values in recognised.totals.items()
    )
    return PROBLEM.format(
        table=_to_toml_string(table),
        regions=_to_toml_string(regions),
        rows="one row an individual" if recognised.count is None else "one row a region and combination of attributes",
        settings=settings,
        totals=f"[hierarchy.totals]        # rows of these values are not read: they are sums of others\n{totals}\n"
        if totals
        else "",
        attributes="".join(
            f"{_to_toml_string(name)} = {_to_toml_array(values)}\n" for name, values in attributes.items()
        ),
        tables="\n".join(tables) + "\n",
    )


def _recognise_columns(source: File, choices: _Choices) -> _Recognised:
    """Detect which columns of a table are regions, attributes or counts, and which values are totals.

    Args:
        source: The table, as a CSV or Parquet file.
        choices: The options, which take precedence over guesses.

    Raises:
        InputError: The table has no column ``level_1`` or no rows, its regions do not form a tree, it is unclear
            whether each row is one individual, a total named by the user does not occur in the table, or a value may be
            a total.
    """
    header = table_of(source).columns
    if not match_columns(header, ["level_1"], source.name)[0]:
        expectation = (
            "columns level_1, ..., level_L, the regions from the whole (the same name in every row) to the smallest: "
            f"rename yours, or add one. Others are attributes, and {COUNT} is how many individuals a row counts"
        )
        raise InputError([Fault(source.name, "header", number_of(len(header), "other column"), expectation)])
    # A column named by an option must exist. Without this option, a column "count" is read if there is one, unless
    # every row is declared to be a person.
    named_columns = [] if choices.count is None else [choices.count]
    table = LevelTable.read(
        source, *named_columns, optional="" if named_columns or choices.persons else COUNT, shows_cells=False
    )
    if table.frame.is_empty():
        raise InputError([Fault(source.name, "", "a header alone", "at least one row")])
    names = [name for name in table.frame.columns if name not in table.levels]
    count, notes = _recognise_count(table, names, choices)
    texts = {name: plain_texts(table.frame[name]).fill_null("").str.strip_chars() for name in names if name != count}
    # Another column of counts must not become an attribute, because attribute values are published.
    redundant = find_redundant_columns(table, names, count) if count is not None else []
    if redundant:
        listed = ", ".join(name or NO_NAME for name in redundant)
        notes.append(
            f"not used as attributes, whose values are published: {listed}. They distinguish no rows, so they may "
            f"be counts, as {count} is"
        )
    candidates = {name: column_values for name, column_values in texts.items() if name not in redundant}
    # A row of counts is a combination of values. Values that occur once show that a column identifies people only if
    # each row is an individual.
    identifying = [name for name in candidates if count is None and _identifies_rows(candidates[name])]
    # Tell the owner which columns cannot be attributes, in case they were meant to be.
    attributes, unfit, numbering = _read_attributes(
        {name: column_values for name, column_values in candidates.items() if name not in identifying}
    )
    if identifying:
        notes.append(
            f"not used as attributes, because most rows have a value of their own there, as with names or dates of "
            f"birth: {', '.join(name or NO_NAME for name in identifying)}. Values of attributes are published"
        )
    if unfit:
        reason = f"having more than {MAX_ATTRIBUTE_VALUES} values, empty ones, or a name that is taken"
        notes.append(f"not used as attributes, {reason}: {', '.join(unfit)}")
    if numbering:
        notes.append(f"not used as attributes, because they number the rows: {', '.join(numbering)}")
    totals, paths = _find_totals(table, attributes, choices)
    if totals:
        named = "; ".join(f"{name} = {', '.join(values)}" for name, values in totals.items())
        notes.append(
            f"read as totals, so their rows are skipped: {named}. If one is a category or a region like the others, "
            "use --keep-totals"
        )
    attributes = {
        name: [column_values for column_values in values if column_values not in totals.get(name, ())]
        for name, values in attributes.items()
    }
    # This also checks that the regions form a tree.
    tree = Regions.of(paths, file=source.name).tree
    # Totals that are not named like totals may show in the counts. The check is skipped if the owner says that there
    # are none.
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
    """Find the column that states how many individuals each row represents.

    Options take precedence over a column named ``count``, which takes precedence over guesses from the columns' values.

    Args:
        table: The table to examine.
        names: The columns of the table, except the region columns.
        choices: The options given by the user.

    Returns:
        The column, or None if each row is one individual; and notes that tell the user what was assumed.

    Raises:
        InputError: A cell in the column is not a count, or it is unclear whether each row is one individual.
    """
    rows = f"each of the {table.frame.height:,} rows is read as one individual"
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
            f"column {count} is read as the number of individuals that a row counts: rows differ without it. If every "
            "row is one individual, use --persons"
        )
    # The values are not needed here. They are read only to reject cells that are not counts.
    table.read_columns(Column(name=count, kind="count", least=0, most=GROUPS_LIMIT - 1, unit="individuals"))
    return count, notes


def _identifies_rows(column_values: pl.Series) -> bool:
    """Return whether most rows have a unique value, as is common with names or dates of birth.

    The result is False for columns with fewer than `LEAST_IDENTIFIED` rows, because a few individuals often have
    different values of any attribute, and for columns that merely number the rows (see :func:`.counts_rows`).
    """
    if column_values.len() < LEAST_IDENTIFIED or counts_rows(column_values):
        return False
    return bool(2 * column_values.is_unique().sum() > column_values.len())


def _read_attributes(texts: Mapping[str, pl.Series]) -> tuple[dict[str, list[str]], list[str], list[str]]:
    """Sort candidate columns into attributes and columns that cannot be attributes.

    Args:
        texts: The cells of each candidate column, as stripped strings. Empty cells are empty strings.

    Returns:
        The sorted values of each attribute; the columns that are unsuitable because they have an invalid name, too many
        values or empty cells; and the columns that merely number the rows (1, 2, 3, ...).
    """
    attributes: dict[str, list[str]] = {}
    unfit, numbering = [], []
    for name, column_values in texts.items():
        # Values are sorted so that the problem file does not reveal the order of the rows.
        values = column_values.unique().sort().to_list()
        # Names become headers of CSV files without quotes.
        is_fit_name = bool(name) and not is_reserved(name) and name.isprintable() and '"' not in name
        if counts_rows(column_values):
            numbering.append(name or NO_NAME)
        elif not is_fit_name or len(values) > MAX_ATTRIBUTE_VALUES or not all(values):
            unfit.append(name or NO_NAME)
        else:
            attributes[name] = values
    return attributes, unfit, numbering


def _find_totals(
    table: LevelTable, attributes: Mapping[str, list[str]], choices: _Choices
) -> tuple[dict[str, list[str]], list[tuple[str, ...]]]:
    """Find the values that are totals of other values, and the leaf regions that are not totals.

    Args:
        table: The table to examine.
        attributes: The values of each attribute.
        choices: The options given by the user.

    Returns:
        The totals by column, including region columns, and the paths of the leaf regions that are not totals.

    Raises:
        InputError: A total named by the user does not occur in the table, or nothing remains once totals are omitted.
    """
    # `--keep-totals` turns off recognition by name. `--total` adds totals that are not named like totals.
    totals = {} if choices.keeps_totals else {name: find_total_names(values) for name, values in attributes.items()}
    listed = table.paths().unique().sort(table.levels)
    paths: list[tuple[str, ...]] = list(listed.iter_rows())
    # Each total region is a path that ends with the total's name. All paths that start with it are omitted below.
    total_regions = [] if choices.keeps_totals else find_total_regions(listed)
    for region in total_regions:
        totals.setdefault(table.levels[len(region) - 1], []).append(region[-1])
    written, faults = match_columns([*table.levels, *attributes], list(choices.totals), table.source.name)
    for name, values in choices.totals.items():
        column = written.get(name)
        level = table.levels.index(column) if column in table.levels else None
        # A total may be a region or a value of an attribute.
        all_values = {path[level] for path in paths} if level is not None else set(attributes.get(column or "", ()))
        faults += [
            Fault(table.source.name, f"--total {name}={value}", "no such value", "a value of an attribute or region")
            for value in values
            if value not in all_values
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
    # Every attribute must have a value that is not a total, and at least one region must remain.
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
    """Check that the counts do not reveal any totals of other values, apart from those already known.

    If the count of a value always equals the sum of the counts of certain other values, the value is probably a total
    or subtotal, and individuals would be counted twice. The counts are secret, so the result is shown only on the
    owner's screen, and no file is written.

    Args:
        table: The table to check.
        texts: The cells of each column, except the region columns and the column of counts.
        attributes: The values of each attribute. Only the names of the attributes are used.
        totals: The known totals by column. Rows with these values are omitted.
        count: The column of counts.

    Raises:
        InputError: A value is probably a total. There is one fault for each such value.
    """
    # The column of counts, with one entry per row.
    (number,) = table.read_columns(Column(name=count, kind="count", least=0))
    columns = dict(zip(table.levels, table.paths(), strict=True)) | {name: texts[name] for name in attributes}
    frame = pl.DataFrame([column_values.alias(name) for name, column_values in columns.items()]).with_columns(
        number.alias("counted")
    )
    for name, values in totals.items():
        frame = frame.filter(~pl.col(name).is_in(values))
    suspects = find_arithmetic_totals(frame, list(table.levels), list(attributes), "counted")
    Faults(
        Fault(
            table.source.name,
            f"column {name}, value {value!r}",
            "a value whose count is the sum of other values' everywhere",
            f'--total "{name}={value}" if it is a total or subtotal, or --keep-totals if no value is a total',
        )
        for name, value in suspects
    ).check()


def _to_toml_array(values: Sequence[str]) -> str:
    """Format strings as a TOML array."""
    return f"[{', '.join(map(_to_toml_string, values))}]"


def _to_toml_string(value: str) -> str:
    """Format a string as a TOML basic string, which has the same quotes and escapes as a JSON string."""
    return json.dumps(value, ensure_ascii=False)
