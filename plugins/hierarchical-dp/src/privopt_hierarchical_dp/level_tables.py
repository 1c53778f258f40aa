"""Tables of regions, ``level_1, ..., level_L`` and more: one reader for all of them.

Columns stay in polars and are never held as Python objects. Faults name file, row and column; what is in a cell of
individuals is not quoted.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final

import polars as pl
from attrs import field, frozen

from privopt.declare import File
from privopt.declare.frames import repeated
from privopt.declare.tables import Column, check_column, table_of
from privopt.errors import Fault, Faults, InputError, conceal
from privopt_hierarchical_dp.tree import Regions

__all__ = ["GROUPS_LIMIT", "LevelTable", "match_columns", "read_regions", "region_faults"]

GROUPS_LIMIT: Final = 2**50
"""A file must have fewer groups or individuals than this, so that sums stay within 64 bits."""


@frozen(kw_only=True, eq=False)
class LevelTable:
    """A table with a row for a leaf region, or for something in it.

    Attributes:
        source: the file.
        frame: its columns, as they were read.
        levels: names of those of its levels, in order.
        quoted: whether faults quote cells.
        written: what the file calls the columns that were asked for, by name: the case of letters may differ.
    """

    source: File
    frame: pl.DataFrame
    levels: tuple[str, ...]
    quoted: bool = True
    written: Mapping[str, str] = field(factory=dict)

    @classmethod
    def read(cls, source: File, *values: str, optional: str = "", quoted: bool = True) -> LevelTable:
        """Read CSV or Parquet.

        Args:
            source: the file.
            values: columns that it must have next to ``level_1, ..., level_L``.
            optional: a column that it may have.
            quoted: whether faults quote cells.

        Raises:
            InputError: a table that cannot be read, a column that is missing or there twice.
        """
        frame = table_of(source)
        count = max(1, sum(column.casefold().startswith("level_") for column in frame.columns))
        levels = tuple(f"level_{level + 1}" for level in range(count))
        expectation = ", ".join(
            ["columns level_1, ..., level_L", *values, *([f"{optional} (optional)"] * bool(optional))]
        )
        expected = [*levels, *values, *([optional] if optional else [])]
        written, faults = match_columns(frame.columns, expected, source.name)
        frame = frame.rename({written[name]: name for name in written if written[name] != name})
        missing = [column for column in (*levels, *values) if column not in written]
        faults += [Fault(source.name, "header", f"no column {column!r}", expectation) for column in missing]
        if repeated(source):
            faults.append(Fault(source.name, "header", "a column twice", "each column once"))
        Faults(faults).check()
        return cls(source=source, frame=frame, levels=levels, quoted=quoted, written=written)

    def note(self, *columns: str) -> None:
        """Note which columns of a public file were read: ``solve`` publishes these and no others."""
        self.source.seen.columns.update(self.written.get(column, column) for column in columns)

    def read_columns(self, *columns: Column) -> list[pl.Series]:
        """Read columns of texts, without spaces around them, and of whole numbers.

        Raises:
            InputError: A fault for each invalid cell. Cells are not quoted unless the table allows it.
        """
        faults, checked_columns = Faults(), []
        for column in columns:
            cells = self.frame[column.name]
            cells = cells.str.strip_chars() if cells.dtype == pl.String else cells
            checked_columns.append(check_column(self.source.name, cells, column, faults))
        if self.source.secret or not self.quoted:
            faults = Faults(conceal(faults.listed), faults.count)
        faults.check()
        return checked_columns

    def paths(self) -> pl.DataFrame:
        """Return the path of each row: the names of its regions, level by level."""
        names = self.read_columns(*(Column(name=level, kind="text") for level in self.levels))
        return pl.DataFrame(dict(zip(self.levels, names, strict=True)))

    def place_rows(self, listed: Regions | None) -> tuple[Regions, pl.Series]:
        """Find the leaf region of each row.

        Args:
            listed: The public regions; the table may then be empty. If None, the regions are those of the table.

        Returns:
            The regions, and the position of each row's leaf region.

        Raises:
            InputError: The regions form no tree, a region is not listed, or there is no row.
        """
        paths = self.paths()
        if paths.is_empty() and listed is None:
            raise InputError([Fault(self.source.name, "", "a header alone", "at least one row")])
        # Rows of a region often follow one another: a search for each of 10,000,000 took 1.1 GB more than one a run.
        # A row starts a run if any level differs from the row before.
        is_run_start = reduce(or_, (names.ne_missing(names.shift()) for names in paths))
        has_runs = 2 * is_run_start.sum() < len(is_run_start)
        run_paths = paths.filter(is_run_start) if has_runs else paths
        unique_paths = run_paths.unique().sort(self.levels)
        regions = listed or Regions.of(list(unique_paths.iter_rows()), file=self.source.name)
        places = pl.Series("leaf", list(map(regions.find_leaf, unique_paths.iter_rows())), dtype=pl.Int64)
        of_runs = run_paths.join(unique_paths.with_columns(places), on=self.levels, how="left", maintain_order="left")[
            "leaf"
        ]
        leaf_indices = of_runs.gather(is_run_start.cum_sum() - 1) if has_runs else of_runs
        faults, rows = Faults(), leaf_indices.is_null().arg_true().to_list()
        where, expectation = "level_1 to level_L", "a leaf region of hierarchy.regions"
        faults.add_rows(self.source.name, where, rows, lambda row: "a region that is not listed", expectation)
        faults.check()
        return regions, leaf_indices


def match_columns(header: Sequence[str], names: Sequence[str], file: str) -> tuple[dict[str, str], list[Fault]]:
    """Match columns to a header without regard to case; return the header's names, and a fault for each double match.

    Args:
        header: The columns of a file.
        names: That are looked for; one that is missing has no entry.
        file: Its name, for faults.
    """
    columns_by_name: dict[str, list[str]] = {}
    for column in header:
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


def region_faults(
    name: str, regions: Iterable[str], known_regions: Container[str], *, is_secret: bool = False
) -> Faults:
    """Return a fault for each row whose region is unknown or repeated.

    Faults of a secret file quote known regions only, because another cell may stand in the place of a name.
    """
    faults, listed_regions = Faults(), set[str]()
    for row, region in enumerate(regions, start=2):
        if region not in known_regions:
            found = "another name" if is_secret else repr(region)
            faults.add(name, f"row {row}, column region", found, "a region of the hierarchy")
        elif region in listed_regions:
            faults.add(name, f"row {row}, column region", f"{region!r} again", "one row for each region")
        listed_regions.add(region)
    return faults


def read_regions(source: File, *, once: bool = False) -> Regions:
    """Read the hierarchy of the regions in ``level_1, ..., level_L``.

    Args:
        source: The table of regions.
        once: Whether a leaf region may have only one row.

    Raises:
        InputError: A column is missing, a region occurs twice though it must not, or the regions form no tree.
    """
    table = LevelTable.read(source)
    table.note(*table.levels)
    paths = table.paths()
    repeated_paths = paths.filter(paths.is_duplicated())
    if once and repeated_paths.height:
        where = f"region {' / '.join(filter(None, repeated_paths.row(0)))}"
        raise InputError([Fault(source.name, where, "two rows", "one row a leaf region")])
    return table.place_rows(None)[0]
