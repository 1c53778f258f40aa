"""Reading tables: CSV or Parquet, streamed by polars, never held as Python objects; faults name file and row."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

import polars as pl

from privopt.declare import File
from privopt.declare.tables import is_parquet, pointed, ragged, stripped, table_text
from privopt.errors import Fault, InputError, reason_of

__all__ = [
    "GROUPS_LIMIT",
    "MOST_FAULTS",
    "as_text",
    "bad_rows",
    "collect",
    "levels_of",
    "limited",
    "read_back",
    "rows_named",
    "scan",
    "survey",
    "whole",
]

MOST_FAULTS: Final = 20
GROUPS_LIMIT: Final = 2**50
"""Fewer groups than this are in a file."""
_EXACT_DOUBLES: Final = 2.0**53
P = ParamSpec("P")
R = TypeVar("R")


class _UnreadableError(InputError):
    """Rows of a table that the engine cannot read; `rows_named` says which."""


def rows_named(read: Callable[Concatenate[File, P], R]) -> Callable[Concatenate[File, P], R]:
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


def scan(source: File) -> pl.LazyFrame:
    """A table, not read yet: Parquet, or CSV whose cells are text; names of columns without spaces around them.

    Raises:
        InputError: it is neither.
    """
    parquet = is_parquet(source)
    contents = io.BytesIO(source.contents if parquet else table_text(source))
    try:
        frame = pl.scan_parquet(contents) if parquet else pl.scan_csv(contents, infer_schema=False)
        names = frame.collect_schema().names()
    except (pl.exceptions.PolarsError, OSError):  # whose words may quote a cell
        raise _UnreadableError([Fault(source.name, "", "a file that cannot be read", "CSV or Parquet")]) from None
    return frame.rename(dict(zip(names, stripped(names), strict=True)))  # unless two would then be one


def read_back(path: Path, schema: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
    """A table as it was published, of these columns in this order.

    Raises:
        InputError: it cannot be read, or has others.
    """
    wanted = f"columns {', '.join(schema)}"
    try:
        found = pl.read_csv(path, schema_overrides=dict(schema), glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        found = f"a table that cannot be read ({reason_of(error)})"
        raise InputError([Fault(str(path), "", found, wanted)]) from None
    if found.columns != list(schema):
        raise InputError([Fault(str(path), "header", ",".join(found.columns), wanted)])
    return found


def collect(frame: pl.LazyFrame, name: str) -> pl.DataFrame:
    """Collect a lazy frame.

    Raises:
        InputError: rows that cannot be read.
    """
    try:
        return frame.collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError):
        raise _UnreadableError([Fault(name, "", "rows that cannot be read", "a table, UTF-8")]) from None


def levels_of(frame: pl.LazyFrame, name: str, values: Sequence[str]) -> list[str]:
    """The level columns of a table, in order.

    Raises:
        InputError: a level, or one of the columns ``values``, is missing.
    """
    found = frame.collect_schema().names()
    levels = [column for column in found if column.startswith("level_")]
    wanted = [f"level_{index + 1}" for index in range(max(1, len(levels)))]
    faults = [
        Fault(name, "header", f"no column {column!r}", f"columns level_1, ..., level_L, {', '.join(values)}")
        for column in (*wanted, *values)
        if column not in found
    ]
    if faults:
        raise InputError(faults)
    return wanted


def whole(frame: pl.LazyFrame, column: str) -> pl.Expr:
    """The column as integers, null where it is none; 3.0 is 3, as programs export it."""
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
    """Whole numbers among doubles, as integers."""
    exact = value.is_finite() & (value == value.round()) & (value.abs() < _EXACT_DOUBLES)
    return pl.when(exact).then(value).cast(pl.Int64, strict=False)


def as_text(levels: Sequence[str]) -> list[pl.Expr]:
    """Columns as text without spaces around it, empty where there is nothing."""
    return [pl.col(level).cast(pl.String).str.strip_chars().fill_null("").alias(level) for level in levels]


def bad_rows(
    frame: pl.LazyFrame, name: str, column: str, bad: pl.Expr, wanted: str, levels: Sequence[str]
) -> list[Fault]:
    """The first rows whose ``column`` will not do."""
    rows = collect(
        frame.with_row_index("_row").filter(bad).select("_row", pl.col(column).cast(pl.String), levels[-1]), name
    ).head(MOST_FAULTS)
    return [
        Fault(
            name,
            f"row {row + 2}, column {column}",
            (value or "nothing") + f" in {region!r}" * bool(region),
            wanted + pointed((value or "").strip()),
        )
        for row, value, region in rows.iter_rows()
    ]


def survey(
    frame: pl.LazyFrame, levels: Sequence[str], bad: Mapping[str, pl.Expr], name: str, *, empty: bool = False
) -> tuple[list[tuple[str, ...]], dict[str, int]]:
    """One pass: the distinct paths, sorted, and how many rows will not do.

    Raises:
        InputError: no rows, unless ``empty`` tables will do.
    """
    table = collect(
        frame.select(*as_text(levels), *(flag.alias(f"_{column}") for column, flag in bad.items()))
        .group_by(levels)
        .agg(pl.col(f"_{column}").sum() for column in bad)
        .sort(levels),
        name,
    )
    if table.height == 0 and not empty:
        raise InputError([Fault(name, "", "a header alone", "at least one row")])
    return list(table.select(levels).iter_rows()), {column: int(table[f"_{column}"].sum()) for column in bad}


def limited(faults: Sequence[Fault], name: str) -> None:
    """Raise the first faults, where there are any.

    Raises:
        InputError: there are.
    """
    if faults:
        shown = list(faults[:MOST_FAULTS])
        if len(faults) > MOST_FAULTS:
            shown.append(Fault(name, "", "more faults of these kinds", "none"))
        raise InputError(shown)
