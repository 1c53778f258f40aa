"""Estimate the memory that a file will take from its size and first bytes, before the rest is read."""

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
    """Call ``need`` before anything large is loaded in this block.

    Args:
        need: called with bytes and with what takes them, in the plural; raises where they do not fit.
    """
    token = _NEED.set(need)
    try:
        yield
    finally:
        _NEED.reset(token)


def expect(needed: float, subject: str) -> None:
    """Announce ``needed`` bytes before they are allocated, if they are many. Does nothing outside :func:`loading`."""
    need = _NEED.get()
    if need is not None and needed >= MIN_CHECKED_BYTES:
        need(needed, subject)


def loading_bytes(stream: BufferedReader, size: int) -> float:
    """Estimate the bytes that reading a table, an array or a text takes; 0 if it cannot be read at all.

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
            # A truncated array is refused, so that its values need no memory.
            is_complete = values * bytes_each <= size
            return size + 8.0 * DOUBLES_PER_VALUE * values if is_complete else float(size)
        except ValueError:
            return float(size)
    if head.startswith(b"PAR1"):
        return size + BYTES_PER_PARQUET_CELL * _count_cells(stream)
    return BYTES_PER_CSV_BYTE * size if b"," in head.partition(b"\n")[0] else float(size)


def _count_cells(stream: BufferedReader) -> float:
    """Return rows times columns of a Parquet file, by its footer."""
    import polars as pl

    try:
        frame = pl.scan_parquet(stream)
        return float(frame.select(pl.len()).collect().item()) * len(frame.collect_schema())
    except (pl.exceptions.PolarsError, OSError):
        return 0.0
