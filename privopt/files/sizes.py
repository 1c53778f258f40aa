"""Estimate the memory of a file from its size and its first bytes, before the rest is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BufferedReader
from typing import Final

from privopt.files.archive import npy_shape

HEAD: Final = 1 << 16
MIN_CHECKED_BYTES: Final = 16e6
"""Bytes below which nothing is asked for: the mechanism asks for all together once it knows its problem."""
BYTES_PER_CSV_BYTE: Final = 14.0
"""Bytes for each of a CSV file: its text, its cells as text and as numbers (11 to 15 were measured)."""
BYTES_PER_PARQUET_CELL: Final = 150.0
"""Bytes for each cell of a Parquet file, which is read by way of its CSV."""
DOUBLES_PER_VALUE: Final = 5.0
"""Doubles for each value of an array, checked and copied (4.1 to 5.1 were measured)."""

_NEED: ContextVar[Callable[[float, str], None] | None] = ContextVar("_NEED", default=None)


@contextmanager
def loading(need: Callable[[float, str], None]) -> Iterator[None]:
    """Check ``need`` before anything is loaded in this block that may be large.

    Args:
        need: called with bytes and with what takes them, in the plural; raises where they do not fit.
    """
    token = _NEED.set(need)
    try:
        yield
    finally:
        _NEED.reset(token)


def expect(needed: float, what: str) -> None:
    """Ask for ``needed`` bytes before they are taken, if they are many; does nothing outside :func:`loading`."""
    need = _NEED.get()
    if need is not None and needed >= MIN_CHECKED_BYTES:
        need(needed, what)


def loading_bytes(stream: BufferedReader, size: int) -> float:
    """Estimate the bytes that it takes to read a table, an array or a text; 0 for what cannot be read at all.

    Args:
        stream: a file that a problem names, at its beginning, where it is left: .npy, .csv, .parquet or another.
        size: its bytes.
    """
    try:
        head = stream.read(HEAD)
        stream.seek(0)
    except OSError:  # the reader says why not
        return 0.0
    if head.startswith(b"\x93NUMPY"):
        try:
            shape, bytes_each = npy_shape(head)
            values = math.prod(shape)
            whole = values * bytes_each <= size  # one that is cut short is not read
            return size + 8.0 * DOUBLES_PER_VALUE * values if whole else float(size)
        except ValueError:
            return float(size)
    if head.startswith(b"PAR1"):
        return size + BYTES_PER_PARQUET_CELL * _cells(stream)
    return BYTES_PER_CSV_BYTE * size if b"," in head.partition(b"\n")[0] else float(size)


def _cells(stream: BufferedReader) -> float:
    """Rows times columns, by its footer."""
    import polars as pl

    try:
        frame = pl.scan_parquet(stream)
        return float(frame.select(pl.len()).collect().item()) * len(frame.collect_schema())
    except (pl.exceptions.PolarsError, OSError):
        return 0.0
