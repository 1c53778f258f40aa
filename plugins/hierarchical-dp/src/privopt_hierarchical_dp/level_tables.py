"""Tables of regions, ``level_1, ..., level_L`` and more: one reader for all of them.

CSV or Parquet, streamed by polars and never held as Python objects. A file is read in a few passes over its columns:
one for the hierarchy (its distinct paths) and for values that will not do, one for the numbers. Faults name file, row
and column; what is in a cell of individuals is not quoted.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Container, Iterable, Mapping
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

import polars as pl
from attrs import evolve, frozen

from privopt.declare import File
from privopt.declare.frames import repeated
from privopt.declare.tables import is_parquet, pointed, ragged, stripped, table_text
from privopt.errors import MOST_FAULTS, Fault, Faults, InputError
from privopt_hierarchical_dp.tree import Regions, Tree

__all__ = ["GROUPS_LIMIT", "LevelTable", "Whole", "of_table", "read_regions", "region_faults", "text", "whole"]

GROUPS_LIMIT: Final = 2**50
"""Fewer groups, or individuals, than this are in a file."""
_EXACT_DOUBLES: Final = 2.0**53
P = ParamSpec("P")
R = TypeVar("R")


class _UnreadableError(InputError):
    """Rows of a table that the engine cannot read; `of_table` says which."""


def of_table(read: Callable[Concatenate[File, P], R]) -> Callable[Concatenate[File, P], R]:
    """Make a reader of tables name the first row that cannot be read."""

    @wraps(read)
    def named(source: File, /, *args: P.args, **options: P.kwargs) -> R:
        try:
            return read(source, *args, **options)
        except _UnreadableError:
            if is_parquet(source):
                raise
            raise InputError([ragged(source)]) from None

    return named


def whole(frame: pl.LazyFrame, column: str) -> pl.Expr:
    """Return the column as integers, null where it is none; 3.0 is 3, as programs export it."""
    kind = frame.collect_schema()[column]
    value = pl.col(column)
    if kind == pl.String:
        text = value.str.strip_chars()
        return pl.coalesce(text.cast(pl.Int64, strict=False), _rounded(text.cast(pl.Float64, strict=False)))
    if kind.is_float():
        return _rounded(value)
    if kind.is_integer():
        return value.cast(pl.Int64, strict=False)
    return pl.lit(None, dtype=pl.Int64)


def _rounded(value: pl.Expr) -> pl.Expr:
    """Return the whole numbers among doubles as integers."""
    exact = value.is_finite() & (value == value.round()) & (value.abs() < _EXACT_DOUBLES)
    return pl.when(exact).then(value).cast(pl.Int64, strict=False)


def text(column: str) -> pl.Expr:
    """Return a column as text without spaces around it, empty where there is nothing."""
    return pl.col(column).cast(pl.String).str.strip_chars().fill_null("").alias(column)


@frozen(kw_only=True)
class Whole:
    """The requirement on a column of whole numbers.

    Attributes:
        column: its name.
        wanted: in words.
        least, most: both ends.
    """

    column: str
    wanted: str
    least: int = 0
    most: int = GROUPS_LIMIT - 1

    def bad(self, frame: pl.LazyFrame) -> pl.Expr:
        """Return which rows will not do."""
        number = whole(frame, self.column)
        return (number.is_null() | (number < self.least) | (number > self.most)).fill_null(value=True)


@frozen(kw_only=True, eq=False)
class LevelTable:
    """A table that is not read yet.

    Attributes:
        source: the file.
        frame: its columns, names without spaces around them.
        columns: their names.
        levels: those of its levels, in order.
    """

    source: File
    frame: pl.LazyFrame
    columns: tuple[str, ...]
    levels: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the file."""
        return self.source.name

    @classmethod
    def scan(cls, source: File) -> LevelTable:
        """Scan Parquet, or CSV whose cells are text.

        Raises:
            InputError: it is neither, or has a column twice.
        """
        parquet = is_parquet(source)
        contents = io.BytesIO(source.contents if parquet else table_text(source))
        try:
            frame = pl.scan_parquet(contents) if parquet else pl.scan_csv(contents, infer_schema=False)
            names = frame.collect_schema().names()
        except (pl.exceptions.PolarsError, OSError):  # whose words may quote a cell
            raise _UnreadableError([Fault(source.name, "", "a file that cannot be read", "CSV or Parquet")]) from None
        shown = stripped(names)
        if len(set(shown)) < len(shown) or repeated(source):
            raise InputError([Fault(source.name, "header", "a column twice", "each column once")])
        return cls(source=source, frame=frame.rename(dict(zip(names, shown, strict=True))), columns=tuple(shown))

    @classmethod
    def by_levels(cls, source: File, *values: str, optional: str = "") -> LevelTable:
        """Scan a table with a row for a leaf region, or for something in it.

        Args:
            source: the file.
            values: columns that it must have next to ``level_1, ..., level_L``.
            optional: a column that it may have, but not in other letters: each row would count as one.

        Raises:
            InputError: a column is missing.
        """
        table = cls.scan(source)
        count = max(1, sum(column.startswith("level_") for column in table.columns))
        levels = tuple(f"level_{level + 1}" for level in range(count))
        wanted = ", ".join(["columns level_1, ..., level_L", *values, *([f"{optional} (optional)"] * bool(optional))])
        missing = [column for column in (*levels, *values) if column not in table.columns]
        faults = [Fault(source.name, "header", f"no column {column!r}", wanted) for column in missing]
        if optional and optional not in table.columns:
            faults += [
                Fault(source.name, "header", f"a column {column!r}", f"{optional!r}, or a name that is not so alike")
                for column in table.columns
                if column.casefold() == optional
            ]
        Faults(faults).check()
        return evolve(table, levels=levels)

    def collect(self, *columns: pl.Expr | str, frame: pl.LazyFrame | None = None) -> pl.DataFrame:
        """Read columns.

        Raises:
            InputError: rows that cannot be read.
        """
        try:
            return (self.frame if frame is None else frame).select(*columns).collect(engine="streaming")
        except (pl.exceptions.PolarsError, OSError):
            raise _UnreadableError([Fault(self.name, "", "rows that cannot be read", "a table in UTF-8")]) from None

    def note(self, *columns: str) -> None:
        """Note what was read of a public file: ``solve`` publishes these columns and no others."""
        self.source.seen.columns.update(columns)

    def bad_cells(self, column: str, bad: pl.Expr, wanted: str) -> list[Fault]:
        """Return faults of the first rows that are ``bad``, with the region on the last level."""
        frame = self.frame.with_row_index("_row").filter(bad).head(MOST_FAULTS + 1)
        rows = self.collect("_row", text(column).alias("_found"), text(self.levels[-1]).alias("_region"), frame=frame)
        return [
            Fault(
                self.name,
                f"row {row + 2}, column {column}",
                (value or "nothing") + f" in {region!r}" * bool(region),
                wanted + pointed(value),
            )
            for row, value, region in rows.iter_rows()
        ]

    def paths(self, bad: Mapping[str, tuple[pl.Expr, str]], *, empty: bool = False) -> list[tuple[str, ...]]:
        """Return the distinct paths, sorted, in the pass that finds invalid cells.

        Args:
            bad: by column, which rows are invalid, and what must be there.
            empty: whether a table without rows will do.

        Raises:
            InputError: with such cells; no rows.
        """
        flags = [flag.alias(f"_{column}") for column, (flag, _) in bad.items()]
        frame = self.frame.select(*map(text, self.levels), *flags).group_by(self.levels)
        found = self.collect(pl.all(), frame=frame.agg(pl.col(f"_{column}").sum() for column in bad).sort(self.levels))
        if found.height == 0 and not empty:
            raise InputError([Fault(self.name, "", "a header alone", "at least one row")])
        wrong = [column for column in bad if int(found[f"_{column}"].sum())]
        Faults([f for column in wrong for f in self.bad_cells(column, *bad[column])]).check()
        return list(found.select(self.levels).iter_rows())

    def placed(
        self, bad: Mapping[str, tuple[pl.Expr, str]], listed: Regions | None, *, empty: bool = False
    ) -> tuple[Tree, pl.LazyFrame, list[str], list[Fault]]:
        """Return the hierarchy, a table from a leaf's columns to its place ``_leaf``, these columns, and faults.

        One column does, but where names repeat.

        Args:
            bad: as :meth:`paths` takes it.
            listed: the regions where they are public; None: those of the table.
            empty: whether a table without rows will do.

        Raises:
            InputError: cells that will not do, or regions that form no tree.
        """
        paths = self.paths(bad, empty=empty)
        regions = listed or Regions.of(paths, file=self.name)
        keys = [self.levels[-1]] if len({path[-1] for path in paths}) == len(paths) else list(self.levels)
        places = [regions.place(path) for path in paths]
        columns = {key: [path[self.levels.index(key)] for path in paths] for key in keys}
        schema = {**dict.fromkeys(keys, pl.String), "_leaf": pl.Int64}
        table = pl.DataFrame({**columns, "_leaf": places}, schema=schema).lazy()
        rows: list[int] = []
        if None in places:
            frame = self.frame.select(*map(text, keys)).with_row_index("_row").join(table, on=keys, how="left")
            frame = frame.filter(pl.col("_leaf").is_null()).sort("_row").head(MOST_FAULTS + 1)
            rows = self.collect("_row", frame=frame)["_row"].to_list()
        where, found, wanted = (
            "column level_1 to level_L",
            "a region that is not listed",
            "a leaf region of hierarchy.regions",
        )
        return regions.tree, table, keys, [Fault(self.name, f"row {row + 2}, {where}", found, wanted) for row in rows]


def region_faults(name: str, regions: Iterable[str], known: Container[str]) -> Faults:
    """Return faults of regions, a row each, that are none of those known, or are repeated."""
    faults, seen = Faults(), set[str]()
    for row, region in enumerate(regions, start=2):
        if region not in known:
            faults.add(name, f"row {row}, column region", repr(region), "a region of the hierarchy")
        elif region in seen:
            faults.add(name, f"row {row}, column region", f"{region!r} again", "one row for each region")
        seen.add(region)
    return faults


@of_table
def read_regions(source: File, *, once: bool = False) -> tuple[Regions, bool]:
    """Read the hierarchy of the regions in ``level_1, ..., level_L``, and whether the table has size and groups too.

    Args:
        source: the file.
        once: whether a region may occur only once.

    Raises:
        InputError: a column is missing, a region occurs twice, or the regions form no tree.
    """
    table = LevelTable.by_levels(source)
    table.note(*table.levels)
    paths = table.paths({})
    if once:
        rows = table.collect(*map(text, table.levels))
        twice = rows.filter(rows.is_duplicated())
        if twice.height:
            where = f"region {' / '.join(filter(None, twice.row(0)))}"
            raise InputError([Fault(source.name, where, "two rows", "one row a leaf region")])
    return Regions.of(paths, file=source.name), {"size", "groups"} <= set(table.columns)
