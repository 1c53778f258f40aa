"""Reading regions and individuals: CSV or Parquet, checked against what is declared, never held as Python objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import field, frozen

from privopt.arrays import Bools, Ints
from privopt.declare import File, problem_html
from privopt.declare.frames import repeated
from privopt.declare.tables import pointed, table_of
from privopt.errors import Fault, InputError
from privopt_hierarchical_dp.bounds import Limits, limits_of
from privopt_hierarchical_dp.reading import MOST_FAULTS, whole
from privopt_hierarchical_dp.several.margins import Margin, summed
from privopt_hierarchical_dp.several.problem import TablesProblem
from privopt_hierarchical_dp.tree import Tree, named

if TYPE_CHECKING:
    import polars as pl

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
        tree: its regions.
        paths: each leaf's columns in the file of regions, and its place.
        zeros: for each table the cells that nobody can be in.
        limits: public bounds on regions' numbers of individuals, where there are any.
    """

    declared: TablesProblem
    tree: Tree
    paths: Mapping[tuple[str, ...], int] = field(repr=False)
    zeros: tuple[Bools, ...] = field(repr=False)
    limits: Limits | None = field(repr=False)

    def _repr_html_(self) -> str:
        return problem_html(self.declared, {"regions by level": self.tree.widths})

    @classmethod
    def of(cls, declared: TablesProblem, file: str) -> TablesRead:
        """Read the regions.

        Raises:
            InputError: names that do not fit together, regions that form no tree, shares that are not one a level, or
                more cells than can be held.
            InfeasibleError: bounds that clash.
        """
        declared.checked(file)
        tree, paths = _read_places(declared.hierarchy.regions)
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
        limits = limits_of(declared.hierarchy.bounds, tree)
        return cls(declared=declared, tree=tree, paths=paths, zeros=zeros, limits=limits)


@frozen(kw_only=True, eq=False)
class TablesInstance(TablesRead):
    """A problem and its individuals.

    Attributes:
        leaves: for each table (R_L, ...) true counts of the leaf regions, which are secret.
        unread: what the secret files hold that is not read, a line each, for their owner alone.
    """

    leaves: tuple[Ints, ...] = field(repr=False)
    unread: tuple[str, ...] = field(repr=False)


def _table(source: File, columns: Sequence[str], optional: str = "") -> tuple[pl.DataFrame, list[str]]:
    """Named columns as stripped text, empty where nothing is, and the names of the others, which are not looked at.

    Raises:
        InputError: a file that is no table, lacks a column, or has the optional one in other letters.
    """
    import polars as pl

    name, frame = source.name, table_of(source)
    found = {column.strip(): column for column in frame.columns}
    if len(found) < len(frame.columns) or repeated(source):
        raise InputError([Fault(name, "header", "a column twice", "each once")])
    wanted = ", ".join([*columns, *([f"{optional} (may be left out)"] if optional else [])])
    lacking = [Fault(name, "header", f"no column {column!r}", wanted) for column in columns if column not in found]
    if optional and optional not in found:  # each row would count as one
        lacking += [
            Fault(name, "header", f"a column {column!r}", f"{optional!r}, or a name that is not so alike")
            for column in found
            if column.casefold() == optional
        ]
    if lacking:
        raise InputError(lacking)
    if not frame.height and not source.secret:  # nobody at all is alike with one individual, and no refusal tells
        raise InputError([Fault(name, "", "a header alone", "at least one row")])
    taken = [*columns, *([optional] if optional in found else [])]
    source.seen.columns.update(taken)
    texts = [pl.col(found[own]).cast(pl.String).str.strip_chars().fill_null("").alias(own) for own in taken]
    return frame.select(texts), [column for column in found if column not in taken]


def _read_places(source: File) -> tuple[Tree, Mapping[tuple[str, ...], int]]:
    """The hierarchy of ``level_1, ..., level_L``, and each leaf's place by its columns.

    Raises:
        InputError: a column is missing, a leaf stands twice, or the regions form no tree.
    """
    header = table_of(source).columns
    depth = max(1, sum(column.strip().startswith("level_") for column in header))
    paths = list(_table(source, _levels(depth))[0].iter_rows())
    tree = Tree.from_paths(paths, file=source.name)
    if len(set(paths)) < len(paths):
        twice = next(path for number, path in enumerate(paths) if path in paths[:number])
        raise InputError([Fault(source.name, f"region {' / '.join(twice)}", "two rows", "one row a leaf region")])
    places = {name: place for place, name in enumerate(tree.names[-1])}
    return tree, {path: places[own[-1]] for path, own in zip(paths, named(paths), strict=True)}


def _levels(depth: int) -> list[str]:
    return [f"level_{level + 1}" for level in range(depth)]


def read_individuals(problem: TablesRead, file: str) -> TablesInstance:
    """True counts of every table in every leaf region, from records or from a file for each table.

    Raises:
        InputError: neither or both are given, a region or value that is not declared, a count that is none, or files
            of tables that disagree on what they share.
    """
    hierarchy = problem.declared.hierarchy
    without = [name for name, table in hierarchy.tables.items() if table.counts is None]
    wanted = "hierarchy.records, or counts in every table"
    if hierarchy.records is not None:
        if len(without) < len(hierarchy.tables):
            raise InputError([Fault(file, "hierarchy", "both records and counts", wanted)])
        every = tuple(range(len(hierarchy.attributes)))
        place, codes, count, unread = _codes(problem, hierarchy.records, every, counted=False)
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
        place, codes, count, unread = _codes(problem, table.counts, margin, counted=True)
        lines += unread
        leaves.append(_added(problem, margin, place, codes, count, table.counts.name))
    _agree(problem, leaves)
    return _filled(problem, leaves, lines)


def _filled(problem: TablesRead, leaves: Sequence[Ints], unread: Sequence[str]) -> TablesInstance:
    return TablesInstance(
        declared=problem.declared,
        tree=problem.tree,
        paths=problem.paths,
        zeros=problem.zeros,
        limits=problem.limits,
        leaves=tuple(leaves),
        unread=tuple(unread),
    )


def _impossible(declared: TablesProblem, name: str) -> Bools:
    """The cells of a table that nobody can be in.

    Raises:
        InputError: a column is missing, or a value is not declared.
    """
    margin, source = declared.margin(name), declared.hierarchy.tables[name].impossible
    found = np.zeros(declared.domain.shape(margin), dtype=bool)
    if source is None:
        return found
    attributes = [list(declared.hierarchy.attributes.items())[own] for own in margin]
    frame, _ = _table(source, [attribute for attribute, _ in attributes])
    for row, cells in enumerate(frame.iter_rows(), start=2):
        at: list[int | slice] = []
        for (attribute, values), value in zip(attributes, cells, strict=True):
            if value and value not in values:
                wanted = f"a value of hierarchy.attributes.{attribute}, or nothing for all"
                raise InputError([Fault(source.name, f"row {row}, column {attribute}", repr(value), wanted)])
            at.append(values.index(value) if value else slice(None))
        found[tuple(at)] = True
    return found


def _added(problem: TablesRead, margin: Margin, place: Ints, codes: Sequence[Ints], count: Ints, name: str) -> Ints:
    """Counts (R_L, ...) of rows that may speak of the same cell."""
    if float(count.sum(dtype=np.float64)) >= LARGEST:
        raise InputError([Fault(name, f"column {COUNT}", "too many individuals in all", "fewer than 2^50")])
    shape = (problem.tree.widths[-1], *problem.declared.domain.shape(margin))
    leaves = np.zeros(shape, np.int64)
    np.add.at(leaves, (place, *codes), count)
    return leaves


def _codes(
    problem: TablesRead, source: File, margin: Margin, *, counted: bool
) -> tuple[Ints, list[Ints], Ints, list[str]]:
    """Of each row its leaf region, its values by number, and how many individuals it speaks of; what is not read."""
    import polars as pl

    attributes = list(problem.declared.hierarchy.attributes.items())
    levels, own = _levels(len(next(iter(problem.paths)))), [attributes[number][0] for number in margin]
    columns = [*levels, *own, *([COUNT] if counted else [])]
    frame, others = _table(source, columns, optional="" if counted else COUNT)
    leaves = pl.DataFrame(
        {**dict(zip(levels, zip(*problem.paths, strict=True), strict=True)), "_leaf": list(problem.paths.values())},
        schema={**dict.fromkeys(levels, pl.String), "_leaf": pl.Int64},
    )
    places = frame.select(levels).join(leaves, on=levels, how="left", maintain_order="left")["_leaf"]
    path = pl.concat_str(levels, separator=" / ")
    leaf = ("level_1 to level_L", "a region that is not listed")
    faults = _unknown(source.name, places, frame.select(path), leaf, "a leaf region of hierarchy.regions")
    codes = []
    for number, name in zip(margin, own, strict=True):
        values = attributes[number][1]
        found = frame[name].replace_strict(list(values), range(len(values)), default=None, return_dtype=pl.Int64)
        what = (name, "a value that is not declared")
        faults += _unknown(source.name, found, frame.select(name), what, f"a value of hierarchy.attributes.{name}")
        codes.append(found)
    count = pl.Series(np.ones(frame.height, np.int64))
    if COUNT in frame.columns:
        count = frame.select(whole(frame.lazy(), COUNT)).to_series()
        bad = count.set((count < 0).fill_null(value=True), None)
        what = (COUNT, "no whole number, or one below 0")
        faults += _unknown(source.name, bad, frame.select(COUNT), what, "a whole number of individuals, 0 or more")
    if faults:
        raise InputError(faults[:MOST_FAULTS])
    unread = [f"{source.name}: not read: {', '.join(others)}"] if others else []
    if unread and COUNT not in frame.columns:
        unread[0] += f"; it has no column {COUNT}, so each of its rows is one individual"
    return places.to_numpy(), [found.to_numpy() for found in codes], count.to_numpy(), unread


def _unknown(name: str, found: pl.Series, texts: pl.DataFrame, what: tuple[str, str], wanted: str) -> list[Fault]:
    """Rows of which nothing is found; ``what`` stands there is the secret's and not quoted."""
    rows: list[int] = found.is_null().arg_true().head(MOST_FAULTS).to_list()
    column, other = what
    return [
        Fault(name, f"row {row + 2}, column {column}", other if text else "nothing", wanted + pointed(text))
        for row, text in ((row, texts.item(row, 0)) for row in rows)
    ]


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
