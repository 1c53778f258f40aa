"""Reading individuals: CSV or Parquet, checked against what is declared, never held as Python objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from privopt.arrays import Bools, Ints
from privopt.declare import File
from privopt.declare.tables import pointed
from privopt.errors import MOST_FAULTS, Fault, Faults, InputError
from privopt_hierarchical_dp.level_tables import LevelTable, of_table, text, whole
from privopt_hierarchical_dp.tables.margins import Margin
from privopt_hierarchical_dp.tables.problem import TablesProblem
from privopt_hierarchical_dp.tree import Regions, summed

__all__ = ["COUNT", "read_impossible", "read_individuals"]

LARGEST: Final = 2**50
"""Individuals in all."""
COUNT: Final = "count"


def read_individuals(problem: TablesProblem, regions: Regions, file: str) -> tuple[tuple[Ints, ...], tuple[str, ...]]:
    """Read true counts (R_L, ...) of every table, from records or from a file for each table; and what is not read.

    Raises:
        InputError: neither or both are given, a region or value that is not declared, a count that is none, or files
            of tables that disagree on what they share.
    """
    hierarchy, domain = problem.hierarchy, problem.domain
    without = [name for name, table in hierarchy.tables.items() if table.counts is None]
    wanted = "hierarchy.records, or counts in every table"
    if hierarchy.records is not None:
        if len(without) < len(hierarchy.tables):
            raise InputError([Fault(file, "hierarchy", "both records and counts", wanted)])
        every = tuple(range(len(hierarchy.attributes)))
        place, codes, count, unread = _codes(hierarchy.records, problem, regions, every, counted=False)
        name = hierarchy.records.name
        found = [
            _added(regions, domain.shape(margin), place, [codes[own] for own in margin], count, name)
            for margin in domain.tables
        ]
        return tuple(found), tuple(unread)
    if without:
        raise InputError([Fault(file, f"hierarchy.tables.{without[0]}", "no counts, and no records", wanted)])
    leaves: list[Ints] = []
    lines: list[str] = []
    for name, table in hierarchy.tables.items():
        assert table.counts is not None  # not without
        margin = problem.margin(name)
        place, codes, count, unread = _codes(table.counts, problem, regions, margin, counted=True)
        lines += unread
        leaves.append(_added(regions, domain.shape(margin), place, codes, count, table.counts.name))
    _agree(problem, regions, leaves)
    return tuple(leaves), tuple(lines)


def read_impossible(declared: TablesProblem, name: str) -> Bools:
    """Return the impossible cells of a table: a row of its file for each, where an empty value is any.

    Raises:
        InputError: a column is missing, or a value is not declared.
    """
    source, margin = declared.hierarchy.tables[name].impossible, declared.margin(name)
    if source is None:
        return np.zeros(declared.domain.shape(margin), dtype=bool)
    return _read_impossible(source, declared, margin)


@of_table
def _read_impossible(source: File, declared: TablesProblem, margin: Margin) -> Bools:
    attributes = [list(declared.hierarchy.attributes.items())[own] for own in margin]
    table, names = LevelTable.scan(source), [attribute for attribute, _ in attributes]
    wanted = ", ".join(names)
    Faults([Fault(source.name, "header", f"no column {n!r}", wanted) for n in names if n not in table.columns]).check()
    table.note(*names)
    found = np.zeros(declared.domain.shape(margin), dtype=bool)
    rows = table.collect(*map(text, names))
    if not rows.height:
        raise InputError([Fault(source.name, "", "a header alone", "at least one row")])
    for row, cells in enumerate(rows.iter_rows(), start=2):
        at: list[int | slice] = []
        for (attribute, values), value in zip(attributes, cells, strict=True):
            if value and value not in values:
                known = f"a value of hierarchy.attributes.{attribute}, or nothing for all"
                raise InputError([Fault(source.name, f"row {row}, column {attribute}", repr(value), known)])
            at.append(values.index(value) if value else slice(None))
        found[tuple(at)] = True
    return found


def _added(
    regions: Regions, shape: tuple[int, ...], place: Ints, codes: Sequence[Ints], count: Ints, name: str
) -> Ints:
    """Return counts (R_L, ...) of rows that may speak of the same cell."""
    if float(count.sum(dtype=np.float64)) >= LARGEST:
        raise InputError([Fault(name, f"column {COUNT}", "too many individuals in all", "fewer than 2^50")])
    leaves = np.zeros((regions.tree.widths[-1], *shape), np.int64)
    np.add.at(leaves, (place, *codes), count)
    return leaves


@of_table
def _codes(
    source: File, problem: TablesProblem, regions: Regions, margin: Margin, *, counted: bool
) -> tuple[Ints, list[Ints], Ints, list[str]]:
    """Read of each row its leaf region, its values by number, and how many individuals it speaks of; what is not read.

    Raises:
        InputError: a column is missing, a region, a value or a count that will not do: not quoted, for it is secret.
    """
    attributes = list(problem.hierarchy.attributes.items())
    own = [attributes[number][0] for number in margin]
    table = LevelTable.by_levels(source, *own, *([COUNT] * counted), optional="" if counted else COUNT)
    _, place, keys, faults = table.placed({}, regions, empty=True)
    has_count = COUNT in table.columns
    count = whole(table.frame, COUNT) if has_count else pl.lit(1, dtype=pl.Int64)
    codes = [
        text(name).replace_strict(list(values), range(len(values)), default=None, return_dtype=pl.Int64).alias(name)
        for name, values in (attributes[number] for number in margin)
    ]
    frame = table.frame.with_columns(
        *(text(key).alias(f"_{key}") for key in keys), *codes, pl.when(count >= 0).then(count).alias("_count")
    ).join(
        place.rename({key: f"_{key}" for key in keys}),
        on=[f"_{key}" for key in keys],
        how="left",
        maintain_order="left",
    )
    rows = table.collect("_leaf", *own, "_count", frame=frame)
    what = {name: ("a value that is not declared", f"a value of hierarchy.attributes.{name}") for name in own}
    what["_count"] = ("no whole number, or one below 0", "a whole number of individuals, 0 or more")
    faults += [
        _unread_cell(table, column.removeprefix("_"), row, *words)
        for column, words in what.items()
        for row in rows[column].is_null().arg_true().head(MOST_FAULTS).to_list()
    ]
    Faults(faults).check()
    table.note(*table.levels, *own, *([COUNT] * has_count))
    read = {*table.levels, *own, COUNT}
    unread = [column for column in table.columns if column not in read]
    lines = [f"{source.name}: not read: {', '.join(unread)}"] if unread else []
    if lines and not has_count:
        lines[0] += f"; it has no column {COUNT}, so each of its rows is one individual"
    return rows["_leaf"].to_numpy(), [rows[name].to_numpy() for name in own], rows["_count"].to_numpy(), lines


def _unread_cell(table: LevelTable, column: str, row: int, found: str, wanted: str) -> Fault:
    cell = str(table.collect(text(column), frame=table.frame.slice(row, 1)).item())
    return Fault(table.name, f"row {row + 2}, column {column}", found if cell else "nothing", wanted + pointed(cell))


def _agree(problem: TablesProblem, regions: Regions, leaves: Sequence[Ints]) -> None:
    """Refuse tables that differ in what they share: they cannot be of one set of individuals."""
    names, tables = list(problem.hierarchy.tables), problem.domain.tables
    attributes = list(problem.hierarchy.attributes)
    for a, margin in enumerate(tables):
        for b in range(a):
            shared = tuple(number for number in margin if number in tables[b])
            off = summed(leaves[a], margin, shared) != summed(leaves[b], tables[b], shared)
            if off.any():
                region = regions.tree.names[-1][int(np.argwhere(off)[0, 0])]
                by = " by " + " and ".join(attributes[number] for number in shared) if shared else " in all"
                found = f"other numbers{by} than in {names[b]!r}"
                wanted = "tables of one set of individuals, each in one cell of every table"
                raise InputError([Fault(f"table {names[a]!r}", f"region {region!r}", found, wanted)])
