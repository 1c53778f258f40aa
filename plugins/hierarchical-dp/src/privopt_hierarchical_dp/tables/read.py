"""Read individuals from CSV or Parquet files, and check them against the problem file's declarations.

Columns stay in polars, so that no Python object is created per individual.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl
from attrs import evolve

from privopt.arrays import Bools, Ints
from privopt.declare import File
from privopt.declare.frames import plain_texts
from privopt.declare.table_words import is_count_name
from privopt.declare.tables import Column
from privopt.errors import Fault, InputError, number_of
from privopt_hierarchical_dp.level_tables import GROUPS_LIMIT, LevelTable
from privopt_hierarchical_dp.tables.count_columns import (
    NO_NAME,
    CountSuspects,
    find_count_suspects,
    find_undeclared_counts,
    refuse_unclear,
)
from privopt_hierarchical_dp.tables.problem import TablesProblem
from privopt_hierarchical_dp.tree import Regions

__all__ = ["COUNT", "read_individuals"]

MOST: Final = GROUPS_LIMIT - 1
"""The largest count allowed in a row."""
COUNT: Final = "count"
"""The default name of the column with the number of individuals represented by each row."""


def read_individuals(problem: TablesProblem, regions: Regions, file: str) -> tuple[tuple[Ints, ...], tuple[str, ...]]:
    """Read the records, and count the individuals in every cell of every table for each leaf region.

    Args:
        problem: The problem, which declares the attributes, the tables and the file of records.
        regions: The region tree, and the paths that identify its leaves in the records.
        file: The name of the problem file, for error messages.

    Returns:
        The true counts of each table, as an array of shape (leaf regions, ...) with one axis per attribute, and
        messages that tell the owner which columns and rows were not read.

    Raises:
        InputError: The problem does not name a file of records; a column, region, value or count is invalid; or a
            column may contain counts although the problem file does not say so. The message quotes no cells, because
            they are secret.
    """
    source, attributes, domain = problem.hierarchy.records, problem.hierarchy.attributes, problem.domain
    if source is None:
        raise InputError([Fault(file, "hierarchy.records", "nothing", "the table of individuals")])
    table, count = _read_table(problem, source)
    _check_counts_are_named(problem, table, count)
    skipped = _mark_total_rows(table, problem.skipped_totals)
    if skipped.any():
        if skipped.all():
            expectation = "rows that are no total of any column: the others are not read"
            raise InputError([Fault(source.name, "", "totals in every row", expectation)])
        # Rows of totals stay in the table so that row numbers in error messages are right, but they count nobody.
        table = _blank_rows(table, skipped, regions.paths.row(0), attributes, count)
    columns = [Column(name=name, kind="text", one_of=values) for name, values in attributes.items()]
    counted = [] if count is None else [Column(name=count, kind="count", least=0, most=MOST, unit="individuals")]
    cells = table.read_columns(*columns, *counted)
    _, leaf = table.place_rows(regions)
    number = np.where(skipped, 0, 1) if count is None else cells.pop().to_numpy()
    # The sum is computed in doubles, because it could overflow in int64.
    if float(number.sum(dtype=np.float64)) >= GROUPS_LIMIT:
        raise InputError([Fault(source.name, f"column {count}", "too many individuals in all", "fewer than 2^50")])
    # The index of each row's value, for every attribute.
    codes = [
        column_cells.replace_strict(list(values), range(len(values)), return_dtype=pl.Int64).to_numpy()
        for column_cells, values in zip(cells, attributes.values(), strict=True)
    ]
    counts = []
    for margin in domain.tables:
        leaves = np.zeros((regions.tree.widths[-1], *domain.shape(margin)), np.int64)
        # Indexed addition would count only one of several rows in the same cell, but `add.at` counts them all.
        np.add.at(leaves, (leaf.to_numpy(), *(codes[attribute] for attribute in margin)), number)
        counts.append(leaves)
    # Tell the owner which columns are not read, in case one of them was meant to be the count.
    read = {*table.levels, *attributes, *(() if count is None else (count,))}
    table.note(*read)
    unread = [column for column in table.frame.columns if column not in read]
    lines = [f"{source.name}: not read: {', '.join(name or NO_NAME for name in unread)}"] if unread else []
    if lines and count is None:
        lines[0] += f"; it has no column {COUNT}, so each of its rows is one individual"
    if skipped.any():
        rows = number_of(int(skipped.sum()), "row")
        lines.append(f"{source.name}: {rows} of totals not read: {', '.join(problem.skipped_totals)}")
    return tuple(counts), tuple(lines)


def _read_table(problem: TablesProblem, source: File) -> tuple[LevelTable, str | None]:
    """Read the file of records, and determine its column of counts, which is either declared or named ``count``.

    Args:
        problem: The problem whose records are read.
        source: The file of records.

    Returns:
        The table; and the column that states how many individuals each row represents, or None if each row is one
        individual.

    Raises:
        InputError: The table cannot be read, a column is missing, or the name of a column differs from ``count`` only
            in case.
    """
    attributes, named = problem.hierarchy.attributes, problem.hierarchy.count
    if named is not None:
        # Cells describe individuals, so error messages must not show them.
        return LevelTable.read(source, *attributes, named, shows_cells=False), named
    if problem.hierarchy.persons:
        return LevelTable.read(source, *attributes, shows_cells=False), None
    table = LevelTable.read(source, *attributes, optional=COUNT, shows_cells=False)
    # It is unclear whether a column "Count" or "COUNT" is meant to be the count, so it is rejected.
    if (written := table.written.get(COUNT, COUNT)) != COUNT:
        actual = f"""a column {written!r}; if it is the count, say count = "{written}" in [hierarchy]"""
        raise InputError([Fault(source.name, "header", actual, f"{COUNT!r}, or a name that is not so alike")])
    return table, COUNT if COUNT in table.written else None


def _check_counts_are_named(problem: TablesProblem, table: LevelTable, count: str | None) -> None:
    """Check that no column of the records is likely to contain counts not declared in the problem file.

    The values of attributes are public, so mistaking a column of counts for an attribute would publish secret counts.
    Nothing is checked if the problem file names the column of counts or says that each row is one individual.

    Args:
        problem: The problem, which may declare the column of counts.
        table: The records to check.
        count: The column that was recognised as the count by its name, or None if each row is assumed to be one
            individual.

    Raises:
        InputError: A column may contain counts, and the problem file does not say whether it does.
    """
    hierarchy = problem.hierarchy
    if hierarchy.persons or hierarchy.count is not None:
        return
    names = [name for name in table.frame.columns if name not in table.levels]
    if count is not None:
        # The count is known by its name, but an attribute may contain counts as well.
        suspects = find_undeclared_counts(table, list(hierarchy.attributes), count)
        if suspects:
            cure = f'attributes without it, or count = "{count}" in [hierarchy] if it is an attribute all the same'
            refuse_unclear(CountSuspects(certain=None, columns=suspects), table.source.name, cure)
        return
    suspects_of_all = find_count_suspects(table, names)
    declared = [name for name in suspects_of_all.columns if name in hierarchy.attributes]
    # A column that is not read is not published, so it matters only if it is probably the count.
    unread = [name for name in suspects_of_all.columns if name == suspects_of_all.certain or is_count_name(name)]
    if columns := tuple(dict.fromkeys([*declared, *unread])):
        cure = 'count = "COLUMN" in [hierarchy], or persons = true if every row is one individual'
        refuse_unclear(CountSuspects(certain=None, columns=columns), table.source.name, cure)


def _mark_total_rows(table: LevelTable, totals: Mapping[str, Sequence[str]]) -> Bools:
    """Find the rows that contain totals, which must not be counted.

    Args:
        table: The records to search.
        totals: For each column, the values that are totals.

    Returns:
        Array of shape (rows,) that is true for the rows with a total in at least one column.

    Raises:
        InputError: A column of ``totals`` is missing from the table.
    """
    missing = [name for name in totals if name not in table.frame.columns]
    if missing:
        expectation = "the columns of hierarchy.totals"
        raise InputError([Fault(table.source.name, "header", f"no column {name!r}", expectation) for name in missing])
    is_total = np.zeros(table.frame.height, np.bool_)
    for name, values in totals.items():
        texts = plain_texts(table.frame[name]).fill_null("").str.strip_chars()
        # A row is omitted if any of its columns contains a total.
        is_total |= texts.is_in(list(values)).to_numpy()
    return is_total


def _blank_rows(
    table: LevelTable,
    rows: Bools,
    leaf: tuple[str, ...],
    attributes: Mapping[str, Sequence[str]],
    count: str | None,
) -> LevelTable:
    """Replace some rows of a table with valid rows that represent no individuals.

    The rows are not removed, because that would change the row numbers in error messages.

    Args:
        table: The table that contains the rows.
        rows: Array of shape (rows,) that is true for the rows to replace.
        leaf: The path of an arbitrary leaf region, to which the rows are assigned.
        attributes: The values of each attribute. The rows get the first value.
        count: The column of counts, which is set to 0. If None, the caller must count these rows as 0.
    """
    # A short branch has empty names on the last levels.
    path = (*leaf, *("",) * (len(table.levels) - len(leaf)))
    blank = dict(zip(table.levels, path, strict=True)) | {name: values[0] for name, values in attributes.items()}
    blank |= {} if count is None else {count: "0"}
    # Only the columns that are read are replaced.
    mask = pl.Series(rows)
    columns = [
        plain_texts(table.frame[name]).fill_null("").zip_with(~mask, pl.Series([text]).new_from_index(0, len(rows)))
        for name, text in blank.items()
    ]
    return evolve(table, frame=table.frame.with_columns(columns))
