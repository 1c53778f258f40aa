"""Tables of a release by columns: written in a fixed order, and read back with no other columns allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from privopt.arrays import DataFrame
from privopt.declare.frames import table_of
from privopt.declare.schema import File
from privopt.declare.tables import Column, check_column
from privopt.errors import Fault, Faults, InputError
from privopt.files.regular import Unreadable, read_bytes

__all__ = ["read_columns", "write_columns"]


def write_columns(path: Path, columns: Mapping[str, Any]) -> None:
    """Write a CSV table (UTF-8, LF) by columns, from which :func:`read_columns` recovers every bit.

    Args:
        path: of the new file.
        columns: (rows,) values by name: texts, whole numbers or doubles; None is an empty cell.
    """
    import polars as pl

    frame = pl.DataFrame([pl.Series(name, values) for name, values in columns.items()])
    frame.write_csv(path, quote_style="necessary", null_value="")


def read_columns(path: Path, columns: Sequence[Column]) -> DataFrame:
    """Read a table of :func:`write_columns`: exactly these columns in this order, each cell checked.

    Args:
        path: of the file: a regular one, no link.
        columns: that the table has; optional ones may be absent.

    Returns:
        The columns found, under their names: text, doubles or int64.

    Raises:
        InputError: the file is missing or no such table; the first faults are named by row and column.
    """
    import polars as pl

    try:
        contents = read_bytes(path, links=False)
    except Unreadable as error:
        expectation = f"a table {','.join(column.label for column in columns)}"
        raise InputError([Fault(str(path), "", error.found, expectation)]) from None
    frame = table_of(File(name=str(path), path=path, kept=contents))
    present = [column for column in columns if not column.optional or column.label in frame.columns]
    header = ",".join(column.label for column in present)
    if ",".join(frame.columns) != header:
        raise InputError([Fault(str(path), "header", ",".join(frame.columns), header)])
    faults = Faults()
    series = [check_column(str(path), frame[column.label], column, faults).alias(column.name) for column in present]
    faults.check()
    return pl.DataFrame(series)
