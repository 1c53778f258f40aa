"""Tables from any source. CSV and Parquet files are read in batches that fit memory.

Cells of a CSV file are text and stay unchanged to the letter: the id 007 is not 7, and 1.10 is not 1.1. An empty line
is not a row, but a line of commas alone is. No message quotes a cell, because it may be the secret.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, NoReturn, Self

import narwhals as nw
import polars as pl
from attrs import frozen

from privopt.declare.name_forms import normal_form
from privopt.declare.tables import strip_names
from privopt.errors import Fault, InputError, UsageError
from privopt.files.regular import Unreadable, open_regular

ENDINGS: Final = (".csv", ".parquet")

LARGEST: Final = 1 << 50
"""Bytes of the largest table; it is never held whole."""

BATCH_BYTES: Final = 64 * 2**20
"""Size of a batch in memory, about."""

BATCH_ROWS: Final = 500_000
"""Rows of a batch, at most."""

WHOLE: Final = 4 * 2**20
"""Bytes of the largest CSV file that is read at once."""

HEADER: Final = 1 << 20
"""Bytes of the longest header."""

SAMPLE_ROWS: Final = 1_000
"""Rows from which the size of one is guessed."""


def ending_of(path: Path, option: str) -> str:
    """Return the ending of a table's file: ``".csv"`` or ``".parquet"``."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise UsageError(f"{option} {path}: the ending must be {' or '.join(ENDINGS)}, got {path.suffix!r}")
    return ending


@frozen(kw_only=True, eq=False)
class TableSource:
    """A table from any source: the names of its columns, and its rows in batches.

    Attributes:
        name: for faults: a file's, or what a table in memory is called.
        columns: their names, in order.
        batches: gives the rows in order, a batch at a time, from the first again each time it is called.
    """

    name: str
    columns: tuple[str, ...]
    batches: Callable[[], Iterator[nw.DataFrame[Any]]]

    @classmethod
    def of_frame(cls, frame: nw.DataFrame[Any], name: str) -> Self:
        """Create a source from a table in memory: one batch, names of columns in normal form."""
        forms = {name: normal_form(name) for name in frame.columns}
        if len({*forms.values()}) == len(forms):
            frame = frame.rename({name: form for name, form in forms.items() if name != form})
        return cls(name=name, columns=tuple(frame.columns), batches=lambda: iter([frame]))

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """Create a source from a table in a file. Only its header is read now.

        Raises:
            UsageError: its name ends otherwise.
            InputError: it cannot be read, or is not a table; so does a bad row, or bad bytes, as they are reached.
        """
        ending = ending_of(path, "TABLE")
        try:
            with open_regular(path, largest=LARGEST) as (stream, size):
                if not size:
                    refuse_table(path, "an empty file", "a header and rows" if ending == ".csv" else "a Parquet file")
                head = stream.read(HEADER) if ending == ".csv" else b""
        except Unreadable as error:
            raise InputError([Fault(path.name, "", error.found, "a table")]) from None
        if ending == ".csv":
            columns = _read_header(path, head)
        else:
            try:
                columns = strip_names(_scan_parquet(path).collect_schema().names())
            except (pl.exceptions.PolarsError, OSError):
                refuse_table(path, "a file that is not Parquet", "a Parquet file")
        return cls(name=path.name, columns=columns, batches=lambda: _iter_batches(path, ending, columns))


def _iter_batches(path: Path, ending: str, columns: tuple[str, ...]) -> Iterator[nw.DataFrame[Any]]:
    """Yield the rows of a file in batches; a bad row raises an error that names it."""
    try:
        lazy = _scan_file(path, ending, columns)
        batches = iter([lazy.collect(engine="in-memory")]) if _is_small(path, ending) else _stream_batches(lazy)
        for batch in batches if ending == ".parquet" else _without_blank(path, batches):
            yield nw.from_native(batch, eager_only=True)
    except pl.exceptions.PolarsError:
        if ending == ".csv":
            raise InputError([_csv_fault(path)]) from None
        refuse_table(path, "a file that is not Parquet", "a Parquet file")


def _is_small(path: Path, ending: str) -> bool:
    """Return whether a table is small enough to be read at once.

    A Parquet file is never small: a few bytes may represent a billion equal rows.
    """
    return ending == ".csv" and path.stat().st_size <= WHOLE


def _stream_batches(lazy: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Yield batches of a table that is too large to be read at once."""
    row = lazy.head(SAMPLE_ROWS).collect(engine="in-memory")
    # A sample estimates the width of a row, from which the rows of a batch follow.
    size = row.estimated_size() / max(1, len(row))
    rows = int(min(BATCH_ROWS, max(SAMPLE_ROWS, BATCH_BYTES / max(1.0, size))))
    return iter(lazy.collect_batches(chunk_size=rows, maintain_order=True))


def _scan_file(path: Path, ending: str, columns: tuple[str, ...]) -> pl.LazyFrame:
    """Scan a file lazily, under the given names of columns."""
    if ending == ".parquet":
        lazy = _scan_parquet(path)
    else:
        lazy = pl.scan_csv(path.absolute(), infer_schema=False, glob=False)
    names = lazy.collect_schema().names()
    if len(names) != len(columns):
        refuse_table(path, "a header that cannot be read", "names of columns, and lines that end in \\n or \\r\\n")
    return lazy.rename(dict(zip(names, columns, strict=True)))  # polars leaves doubled quotes as they are


def _scan_parquet(path: Path) -> pl.LazyFrame:
    """Scan exactly the file of this name: polars would expand ``*``, ``[`` and ``~``."""
    return pl.scan_parquet(path.absolute(), glob=False, hive_partitioning=False)


def _without_blank(path: Path, batches: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Remove blank lines, which polars reads as rows whose cells are all empty (``,,``).

    To tell them apart, the file is read again in step with the batches, as long as there are rows whose last cell is
    empty. A doubtful line stays a row.

    Raises:
        InputError: A row has fewer fields than the header. Polars would fill it with empty cells.
    """
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as text:
        lines: Iterator[list[str]] = islice(csv.reader(text), 1, None)
        skipped_rows, row = 0, 2
        for batch in batches:
            first_row, row = row, row + len(batch)
            empty = batch.select(pl.all_horizontal(pl.all().is_null())).to_series()
            if not batch[:, -1].has_nulls():
                skipped_rows += len(batch)
                yield batch
                continue
            counts: list[int] = []
            with suppress(csv.Error):  # a cell longer than it takes
                counts = [len(cells) for cells in islice(lines, skipped_rows, skipped_rows + len(batch))]
            skipped_rows, blank = 0, pl.Series([not count for count in counts], dtype=pl.Boolean)
            short = next((index for index, count in enumerate(counts) if 0 < count < batch.width), None)
            if short is not None and len(counts) == len(batch):
                actual, expectation = f"{counts[short]} fields", f"{batch.width} fields, as the header has"
                raise InputError([Fault(path.name, f"row {first_row + short:,}", actual, expectation)])
            if len(counts) == len(batch) and not (blank & ~empty).any():
                batch = batch.filter(~blank)
            else:
                lines = iter(())
            yield batch


def refuse_table(path: Path, got: str, expectation: str) -> NoReturn:
    """Raise a fault of the whole table."""
    raise InputError([Fault(path.name, "", got, expectation)])


def _read_header(path: Path, head: bytes) -> tuple[str, ...]:
    """Read the names of columns from the first bytes of a file."""
    text = head.decode("utf-8-sig", "surrogateescape")  # rows that are not text have faults of their own
    try:
        names = next(csv.reader(io.StringIO(text, newline="")), [])
    except csv.Error:
        refuse_table(path, "a header that cannot be read", "names of columns in UTF-8, of less than 1 MiB")
    if not names:
        refuse_table(path, "an empty header", "names of columns")
    for mark in (";", "\t"):
        if len(names) == 1 and mark in names[0]:
            refuse_table(path, f"{mark!r} between fields", "commas between fields, a point before decimals")
    invalid_letter = next((letter for name in names for letter in name if "\udc80" <= letter <= "\udcff"), None)
    if invalid_letter is not None:
        refuse_table(path, f"byte 0x{ord(invalid_letter) - 0xDC00:02x} in the header", "text in UTF-8")
    if b"\r" in head and b"\n" not in head:
        refuse_table(path, "lines that end in \\r", "lines that end in \\n or \\r\\n")
    return strip_names(names)


def _csv_fault(path: Path) -> Fault:
    """Return the fault of the first invalid row, by reading the file again, slowly."""
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return Fault(path.name, f"row {number}", f"byte 0x{line[error.start]:02x}", "text in UTF-8")
    number = 1
    with path.open(encoding="utf-8-sig", newline="") as text, suppress(csv.Error):
        rows = csv.reader(text, strict=True)
        width = len(next(rows))
        for number, row in enumerate(rows, start=2):
            if len(row) > width:
                return Fault(path.name, f"row {number}", f"{len(row)} fields", f"{width} fields, as the header has")
        return Fault(path.name, "", "text that is not a table", "comma-separated values")
    return Fault(path.name, f"row {number + 1}", "text that is not a row", "fields whose quotes are closed")
