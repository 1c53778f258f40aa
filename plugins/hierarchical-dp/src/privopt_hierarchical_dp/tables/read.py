"""Reading individuals: CSV or Parquet, checked against what is declared, never held as Python objects."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from privopt.arrays import Bools, Ints
from privopt.declare import File
from privopt.declare.tables import Column, pointed, read_table
from privopt.errors import MOST_FAULTS, Fault, Faults, InputError
from privopt_hierarchical_dp.level_tables import LevelTable, of_table, text, whole
from privopt_hierarchical_dp.tables.problem import TablesProblem
from privopt_hierarchical_dp.tree import Regions

__all__ = ["COUNT", "read_impossible", "read_individuals"]

LARGEST: Final = 2**50
"""Individuals in all."""
COUNT: Final = "count"


def read_individuals(problem: TablesProblem, regions: Regions, file: str) -> tuple[tuple[Ints, ...], tuple[str, ...]]:
    """Read true counts (R_L, ...) of every table from the records; and what is not read.

    Raises:
        InputError: the records are missing, a region or value is not declared, a count will not do.
    """
    records, domain = problem.hierarchy.records, problem.domain
    if records is None:
        raise InputError([Fault(file, "hierarchy.records", "nothing", "the table of individuals")])
    place, codes, count, unread = _codes(records, problem, regions)
    if float(count.sum(dtype=np.float64)) >= LARGEST:
        raise InputError([Fault(records.name, f"column {COUNT}", "too many individuals in all", "fewer than 2^50")])
    found = []
    for margin in domain.tables:
        leaves = np.zeros((regions.tree.widths[-1], *domain.shape(margin)), np.int64)
        np.add.at(leaves, (place, *(codes[attribute] for attribute in margin)), count)
        found.append(leaves)
    return tuple(found), tuple(unread)


def read_impossible(declared: TablesProblem, name: str) -> Bools:
    """Return the impossible cells of a table: a row of its file for each, where an empty value is any.

    Raises:
        InputError: a column is missing, a value is not declared, or the table has no attributes.
    """
    source, margin = declared.hierarchy.tables[name].impossible, declared.margin(name)
    found = np.zeros(declared.domain.shape(margin), dtype=bool)
    if source is None:
        return found
    if not margin:
        raise InputError([Fault(source.name, "", f"cells of {name!r}", "no cells, for the table has no attributes")])
    attributes = [list(declared.hierarchy.attributes.items())[own] for own in margin]
    table = read_table(source, [Column(name=attribute, kind="text") for attribute, _ in attributes])
    for row, cells in enumerate(zip(*table.values(), strict=True), start=2):
        at: list[int | slice] = []
        for (attribute, values), cell in zip(attributes, cells, strict=True):
            value = str(cell).strip()
            if value and value not in values:
                known = f"a value of hierarchy.attributes.{attribute}, or nothing for all"
                raise InputError([Fault(source.name, f"row {row}, column {attribute}", repr(value), known)])
            at.append(values.index(value) if value else slice(None))
        found[tuple(at)] = True
    return found


@of_table
def _codes(source: File, problem: TablesProblem, regions: Regions) -> tuple[Ints, list[Ints], Ints, list[str]]:
    """Read of each row its leaf region, its values by number, and how many individuals it speaks of; what is not read.

    Raises:
        InputError: a column is missing, a region, a value or a count that will not do: not quoted, for it is secret.
    """
    attributes = problem.hierarchy.attributes
    table = LevelTable.by_levels(source, *attributes, optional=COUNT)
    _, place, keys, faults = table.placed({}, regions, empty=True)
    has_count = COUNT in table.columns
    count = whole(table.frame, COUNT) if has_count else pl.lit(1, dtype=pl.Int64)
    codes = [
        text(name).replace_strict(list(values), range(len(values)), default=None, return_dtype=pl.Int64).alias(name)
        for name, values in attributes.items()
    ]
    frame = table.frame.with_columns(
        *(text(key).alias(f"_{key}") for key in keys), *codes, pl.when(count >= 0).then(count).alias("_count")
    ).join(
        place.rename({key: f"_{key}" for key in keys}),
        on=[f"_{key}" for key in keys],
        how="left",
        maintain_order="left",
    )
    rows = table.collect("_leaf", *attributes, "_count", frame=frame)
    what = {name: ("a value that is not declared", f"a value of hierarchy.attributes.{name}") for name in attributes}
    what["_count"] = ("no whole number, or one below 0", "a whole number of individuals, 0 or more")
    faults += [
        _unread_cell(table, column.removeprefix("_"), row, *words)
        for column, words in what.items()
        for row in rows[column].is_null().arg_true().head(MOST_FAULTS).to_list()
    ]
    Faults(faults).check()
    table.note(*table.levels, *attributes, *([COUNT] * has_count))
    read = {*table.levels, *attributes, COUNT}
    unread = [column for column in table.columns if column not in read]
    lines = [f"{source.name}: not read: {', '.join(unread)}"] if unread else []
    if lines and not has_count:
        lines[0] += f"; it has no column {COUNT}, so each of its rows is one individual"
    return rows["_leaf"].to_numpy(), [rows[name].to_numpy() for name in attributes], rows["_count"].to_numpy(), lines


def _unread_cell(table: LevelTable, column: str, row: int, what: str, wanted: str) -> Fault:
    cell = str(table.collect(text(column), frame=table.frame.slice(row, 1)).item())
    return Fault(table.name, f"row {row + 2}, column {column}", what if cell else "nothing", wanted + pointed(cell))
