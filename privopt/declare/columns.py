"""Read and write a release's CSV tables, which have fixed columns in a fixed order."""

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
    """Write columns to a CSV table (UTF-8, line feeds) so that :func:`read_columns` recovers the exact numbers.

    Args:
        path: The path of the file to create.
        columns: The values of each column, keyed by name, as arrays or lists of equal length. They may be strings,
            whole numbers or doubles. None becomes an empty cell.
    """
    import polars as pl

    frame = pl.DataFrame([pl.Series(name, values) for name, values in columns.items()])
    frame.write_csv(path, quote_style="necessary", null_value="")


def read_columns(path: Path, columns: Sequence[Column]) -> DataFrame:
    """Read a CSV table written by :func:`write_columns`, and check all cells and the order of the columns.

    Args:
        path: The path of the table, which must be a regular file and not a link.
        columns: The declarations of the table's columns. Optional columns may be missing from the file.

    Returns:
        A frame with the columns that the file contains, in order, as strings, doubles or int64.

    Raises:
        InputError: The file is missing, or is not a table with these columns. The error gives the row and column of
            each of the first few faults.
    """
    import polars as pl

    try:
        contents = read_bytes(path, links=False)
    except Unreadable as error:
        expectation = f"a table {','.join(column.label for column in columns)}"
        raise InputError([Fault(str(path), "", error.actual, expectation)]) from None
    frame = table_of(File(name=str(path), path=path, kept=contents))
    # Any other column is an error, because a column that is never checked could contain anything.
    present = [column for column in columns if not column.optional or column.label in frame.columns]
    header = ",".join(column.label for column in present)
    if ",".join(frame.columns) != header:
        raise InputError([Fault(str(path), "header", ",".join(frame.columns), header)])
    faults = Faults()
    series = [check_column(str(path), frame[column.label], column, faults).alias(column.name) for column in present]
    faults.check()
    return pl.DataFrame(series)
