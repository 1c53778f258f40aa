"""Tables whose columns ``level_1``, ..., ``level_L`` name the leaf region of each row.

Columns stay in polars and never become Python objects. Error messages name the file, row and column, but do not quote
cells from tables of individuals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final

import polars as pl
from attrs import field, frozen

from privopt.arrays import Bools
from privopt.declare import File
from privopt.declare.frames import find_repeated_names
from privopt.declare.tables import Column, check_column, table_of
from privopt.errors import Fault, Faults, InputError, conceal
from privopt_hierarchical_dp.tree import Regions

__all__ = ["GROUPS_LIMIT", "LevelTable", "match_columns", "read_regions", "region_faults"]

_OUTER_BLANK: Final = r"^\s|\s$"
"""A regular expression for leading or trailing whitespace, i.e. what :meth:`polars.Expr.str.strip_chars` removes."""
GROUPS_LIMIT: Final = 2**50
"""The exclusive upper limit on the number of groups or individuals in a file, chosen so that sums fit in 64 bits."""


@frozen(kw_only=True, eq=False)
class LevelTable:
    """A table in which each row belongs to a leaf region.

    Attributes:
        source: The file.
        frame: The columns of the table. Requested columns are matched case-insensitively and renamed to the requested
            names.
        levels: The names of the region columns, in order.
        shows_cells: Whether error messages may quote cells.
        written: The name that each matched column has in the file, which may differ from the requested name in case.
    """

    source: File
    frame: pl.DataFrame
    levels: tuple[str, ...]
    shows_cells: bool = True
    written: Mapping[str, str] = field(factory=dict)

    @classmethod
    def read(cls, source: File, *values: str, optional: str = "", shows_cells: bool = True) -> LevelTable:
        """Read a table from a CSV or Parquet file, and check that it has the required columns.

        Args:
            source: The file.
            values: The columns that the table must have in addition to ``level_1``, ..., ``level_L``.
            optional: A column that the table may have, or an empty string if there is none.
            shows_cells: Whether error messages may quote cells.

        Raises:
            InputError: The table cannot be read, a required column is missing, or a column occurs twice.
        """
        frame = table_of(source)
        # A table without any levels lacks level_1, which is reported below.
        count = max(1, sum(column.casefold().startswith("level_") for column in frame.columns))
        levels = tuple(f"level_{level + 1}" for level in range(count))
        expectation = ", ".join(
            ["columns level_1, ..., level_L", *values, *([f"{optional} (optional)"] * bool(optional))]
        )
        expected = [*levels, *values, *([optional] if optional else [])]
        written, faults = match_columns(frame.columns, expected, source.name)
        # From here on, columns have the requested names.
        frame = frame.rename({written[name]: name for name in written if written[name] != name})
        missing = [column for column in (*levels, *values) if column not in written]
        faults += [Fault(source.name, "header", f"no column {column!r}", expectation) for column in missing]
        if find_repeated_names(source):
            faults.append(Fault(source.name, "header", "a column twice", "each column once"))
        Faults(faults).check()
        return cls(source=source, frame=frame, levels=levels, shows_cells=shows_cells, written=written)

    def note(self, *columns: str) -> None:
        """Mark columns of a public file as read. ``solve`` publishes only columns that are marked in this way."""
        self.source.seen.columns.update(self.written.get(column, column) for column in columns)

    def read_columns(self, *columns: Column) -> list[pl.Series]:
        """Check the cells of the given columns, and return each column as stripped strings or as integers.

        Raises:
            InputError: Some cells are invalid. The error lists one fault per invalid cell. A fault quotes the cell only
                if ``shows_cells`` is set and the file is not secret.
        """
        faults, checked_columns = Faults(), []
        for column in columns:
            cells = self.frame[column.name]
            # Cells are stripped only if necessary, because a copy of ten million strings takes 160 MB.
            if cells.dtype == pl.String and cells.str.contains(_OUTER_BLANK).any():
                cells = cells.str.strip_chars()
            checked_columns.append(check_column(self.source.name, cells, column, faults))
        # Cells of a secret file must not appear in an error message, which may be logged.
        if self.source.secret or not self.shows_cells:
            faults = Faults(conceal(faults.listed), faults.count)
        faults.check()
        return checked_columns

    def paths(self) -> pl.DataFrame:
        """Return the path of each row, i.e. the names of its regions from the root to the leaf."""
        names = self.read_columns(*(Column(name=level, kind="text") for level in self.levels))
        return pl.DataFrame(dict(zip(self.levels, names, strict=True)))

    def place_rows(self, listed: Regions | None) -> tuple[Regions, pl.Series]:
        """Find the leaf region of each row.

        Args:
            listed: The public regions, or None to use the regions in the table itself, which must then not be empty.

        Returns:
            The regions, and for each row, the position of its leaf region among all leaves.

        Raises:
            InputError: The regions do not form a tree, a region is not listed, or ``listed`` is None and the table is
                empty.
        """
        paths = self.paths()
        if paths.is_empty() and listed is None:
            raise InputError([Fault(self.source.name, "", "a header alone", "at least one row")])
        # Rows of the same region are often adjacent, so only one row of each run of equal rows is looked up. Looking up
        # each of 10,000,000 rows took 1.1 GB more memory. A run starts where the path differs from that of the previous
        # row.
        is_run_start = reduce(or_, (names.ne_missing(names.shift()) for names in paths))
        has_runs = 2 * is_run_start.sum() < len(is_run_start)
        run_paths = paths.filter(is_run_start) if has_runs else paths
        regions = listed or Regions.of(run_paths, file=self.source.name)
        if listed is None and regions.paths.height == run_paths.height:
            # Every run has a different leaf, so the regions are in the same order as the runs.
            of_runs = pl.Series("leaf", regions.leaves)
        else:
            of_runs = regions.find_leaves(run_paths)
        leaf_indices = of_runs.gather(is_run_start.cum_sum() - 1) if has_runs else of_runs
        faults, rows = Faults(), leaf_indices.is_null().arg_true().to_list()
        where, expectation = "level_1 to level_L", "a leaf region of hierarchy.regions"
        faults.add_rows(self.source.name, where, rows, lambda row: "a region that is not listed", expectation)
        faults.check()
        return regions, leaf_indices


def match_columns(header: Sequence[str], names: Sequence[str], file: str) -> tuple[dict[str, str], list[Fault]]:
    """Match column names to a header, ignoring case.

    Args:
        header: The columns of a file.
        names: The columns to find.
        file: The name of the file, used in error messages.

    Returns:
        A dict that maps each name with exactly one matching column to that column, and a list with a fault for each
        name that matches several columns.
    """
    columns_by_name: dict[str, list[str]] = {}
    for column in header:
        # Columns that differ only in case have the same key.
        columns_by_name.setdefault(column.casefold(), []).append(column)
    written, faults = {}, []
    for name in names:
        columns = columns_by_name.get(name.casefold(), [])
        if len(columns) > 1:
            actual = " and ".join(f"column {column!r}" for column in columns)
            faults.append(Fault(file, "header", actual, "one of them: names that differ in case alone are one"))
        elif columns:
            written[name] = columns[0]
    return written, faults


def region_faults(name: str, regions: Sequence[str], is_known: Bools, *, is_secret: bool = False) -> Faults:
    """Return a fault for each row whose region is unknown or already listed.

    For a secret file, messages quote only known regions, because any other cell in the column may be a secret.

    Args:
        name: The name of the file, used in error messages.
        regions: The region of each row.
        is_known: (rows,) Whether the region of each row is in the hierarchy.
        is_secret: Whether the file is secret.
    """
    faults, listed_regions = Faults(), set[str]()
    # Row 1 is the header.
    for row, (region, is_listed) in enumerate(zip(regions, is_known.tolist(), strict=True), start=2):
        if not is_listed:
            actual = "another name" if is_secret else repr(region)
            faults.add(name, f"row {row}, column region", actual, "a region of the hierarchy")
        elif region in listed_regions:
            faults.add(name, f"row {row}, column region", f"{region!r} again", "one row for each region")
        listed_regions.add(region)
    return faults


def read_regions(source: File, *, once: bool = False) -> Regions:
    """Read the hierarchy of regions from the columns ``level_1``, ..., ``level_L``.

    Args:
        source: The table of regions.
        once: Whether each leaf region may have only one row.

    Raises:
        InputError: A column is missing, ``once`` is set and a leaf region occurs twice, or the regions do not form a
            tree.
    """
    table = LevelTable.read(source)
    # Mark the columns as read, so that `solve` publishes them.
    table.note(*table.levels)
    paths = table.paths()
    repeated_paths = paths.filter(paths.is_duplicated())
    if once and repeated_paths.height:
        where = f"region {' / '.join(filter(None, repeated_paths.row(0)))}"
        raise InputError([Fault(source.name, where, "two rows", "one row a leaf region")])
    # Placing the rows also builds the tree of their regions.
    return table.place_rows(None)[0]
