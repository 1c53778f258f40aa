"""Reading regions and individuals: CSV or Parquet, checked against what is declared, never held as Python objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl
from attrs import field, frozen

from privopt.arrays import Bools, Ints
from privopt.declare import File
from privopt.declare.tables import pointed
from privopt.errors import MOST_FAULTS, Fault, Faults, InputError
from privopt_hierarchical_dp.bounds import Limits, read_limits
from privopt_hierarchical_dp.level_tables import LevelTable, of_table, read_regions, text, whole
from privopt_hierarchical_dp.tables.margins import Margin, summed
from privopt_hierarchical_dp.tables.problem import TablesProblem
from privopt_hierarchical_dp.tree import Regions, Tree

__all__ = ["TablesInstance", "TablesRead", "read_individuals"]

LARGEST: Final = 2**50
"""Individuals in all."""
COUNT: Final = "count"
MOST_CELLS: Final = 1 << 27
"""Cells of all tables and regions that are held at once: a gigabyte for each copy."""


@frozen(kw_only=True, eq=False)
class TablesRead:
    """What everybody may know of a problem.

    Attributes:
        declared: what the problem file says.
        file: its name, for faults.
        regions: the hierarchy, and each leaf's place.
        zeros: for each table the cells that no one can be in.
        limits: public bounds on regions' numbers of individuals, where there are any.
    """

    declared: TablesProblem
    file: str
    regions: Regions = field(repr=False)
    zeros: tuple[Bools, ...] = field(repr=False)
    limits: Limits | None = field(repr=False)

    @property
    def tree(self) -> Tree:
        """The regions."""
        return self.regions.tree

    @classmethod
    def of(cls, declared: TablesProblem, file: str) -> TablesRead:
        """Read the regions.

        Raises:
            InputError: names that do not fit together, regions that form no tree, shares that are not one a level, or
                more cells than can be held.
            InfeasibleError: bounds that clash.
        """
        declared.checked(file)
        regions, _ = read_regions(declared.hierarchy.regions, once=True)
        tree = regions.tree
        budget, domain = declared.hierarchy.budget, declared.domain
        faults = []
        if budget is not None and len(budget) != tree.depth:
            found = f"{len(budget)} numbers"
            faults.append(Fault(file, "hierarchy.budget", found, f"{tree.depth}, one for each level"))
        cells = tree.regions * sum(map(domain.cells, {*domain.tables, *(s.margin for s in domain.steps)}))
        if cells > MOST_CELLS:
            wanted = (
                f"at most {MOST_CELLS:,}: fewer values or regions, or no tables whose attributes form a ring "
                "(a with b, b with c, c with a), for they are fitted as one table by all of these"
            )
            faults.append(Fault(file, "hierarchy.tables", f"{cells:,} cells in all regions", wanted))
        if faults:
            raise InputError(faults)
        zeros = tuple(_impossible(declared, name) for name in declared.hierarchy.tables)
        if not all(own.any() for own in domain.allowed(zeros).values()):
            raise InputError([Fault(file, "hierarchy.tables", "impossible cells that leave none", "one for somebody")])
        limits = read_limits(declared.hierarchy.bounds, tree)
        return cls(declared=declared, file=file, regions=regions, zeros=zeros, limits=limits)


@frozen(kw_only=True, eq=False)
class TablesInstance(TablesRead):
    """A problem and its individuals.

    Attributes:
        leaves: for each table (R_L, ...) true counts of the leaf regions, which are secret.
        unread: what the secret files hold that is not read, a line each, for their owner alone.
    """

    leaves: tuple[Ints, ...] = field(repr=False)
    unread: tuple[str, ...] = field(repr=False)


def read_individuals(problem: TablesRead) -> TablesInstance:
    """Read true counts of every table in every leaf region, from records or from a file for each table.

    Raises:
        InputError: neither or both are given, a region or value that is not declared, a count that is none, or files
            of tables that disagree on what they share.
    """
    hierarchy, file = problem.declared.hierarchy, problem.file
    without = [name for name, table in hierarchy.tables.items() if table.counts is None]
    wanted = "hierarchy.records, or counts in every table"
    if hierarchy.records is not None:
        if len(without) < len(hierarchy.tables):
            raise InputError([Fault(file, "hierarchy", "both records and counts", wanted)])
        every = tuple(range(len(hierarchy.attributes)))
        place, codes, count, unread = _codes(hierarchy.records, problem, every, counted=False)
        found = [
            _added(problem, margin, place, [codes[own] for own in margin], count, hierarchy.records.name)
            for margin in problem.declared.domain.tables
        ]
        return _filled(problem, found, unread)
    if without:
        raise InputError([Fault(file, f"hierarchy.tables.{without[0]}", "no counts, and no records", wanted)])
    leaves: list[Ints] = []
    lines: list[str] = []
    for name, table in hierarchy.tables.items():
        assert table.counts is not None  # not without
        margin = problem.declared.margin(name)
        place, codes, count, unread = _codes(table.counts, problem, margin, counted=True)
        lines += unread
        leaves.append(_added(problem, margin, place, codes, count, table.counts.name))
    _agree(problem, leaves)
    return _filled(problem, leaves, lines)


def _filled(problem: TablesRead, leaves: Sequence[Ints], unread: Sequence[str]) -> TablesInstance:
    return TablesInstance(
        declared=problem.declared,
        file=problem.file,
        regions=problem.regions,
        zeros=problem.zeros,
        limits=problem.limits,
        leaves=tuple(leaves),
        unread=tuple(unread),
    )


def _impossible(declared: TablesProblem, name: str) -> Bools:
    """Return the cells of a table that no one can be in."""
    source = declared.hierarchy.tables[name].impossible
    if source is None:
        return np.zeros(declared.domain.shape(declared.margin(name)), dtype=bool)
    return _read_impossible(source, declared, declared.margin(name))


@of_table
def _read_impossible(source: File, declared: TablesProblem, margin: Margin) -> Bools:
    """Read the attributes of a table, a row for each cell that no one can be in; an empty value is any.

    Raises:
        InputError: a column is missing, or a value is not declared.
    """
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


def _added(problem: TablesRead, margin: Margin, place: Ints, codes: Sequence[Ints], count: Ints, name: str) -> Ints:
    """Return counts (R_L, ...) of rows that may speak of the same cell."""
    if float(count.sum(dtype=np.float64)) >= LARGEST:
        raise InputError([Fault(name, f"column {COUNT}", "too many individuals in all", "fewer than 2^50")])
    shape = (problem.tree.widths[-1], *problem.declared.domain.shape(margin))
    leaves = np.zeros(shape, np.int64)
    np.add.at(leaves, (place, *codes), count)
    return leaves


@of_table
def _codes(
    source: File, problem: TablesRead, margin: Margin, *, counted: bool
) -> tuple[Ints, list[Ints], Ints, list[str]]:
    """Read of each row its leaf region, its values by number, and how many individuals it speaks of; what is not read.

    Raises:
        InputError: a column is missing, a region, a value or a count that will not do: not quoted, for it is secret.
    """
    attributes = list(problem.declared.hierarchy.attributes.items())
    own = [attributes[number][0] for number in margin]
    table = LevelTable.by_levels(source, *own, *([COUNT] * counted), optional="" if counted else COUNT)
    _, place, keys, faults = table.placed({}, problem.regions, empty=True)
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


def _agree(problem: TablesRead, leaves: Sequence[Ints]) -> None:
    """Refuse tables that differ in what they share: they cannot be of one set of individuals."""
    names, tables = list(problem.declared.hierarchy.tables), problem.declared.domain.tables
    attributes = list(problem.declared.hierarchy.attributes)
    for a, margin in enumerate(tables):
        for b in range(a):
            shared = tuple(number for number in margin if number in tables[b])
            off = summed(leaves[a], margin, shared) != summed(leaves[b], tables[b], shared)
            if off.any():
                region = problem.tree.names[-1][int(np.argwhere(off)[0, 0])]
                by = " by " + " and ".join(attributes[number] for number in shared) if shared else " in all"
                found = f"other numbers{by} than in {names[b]!r}"
                wanted = "tables of one set of individuals, each in one cell of every table"
                raise InputError([Fault(f"table {names[a]!r}", f"region {region!r}", found, wanted)])
