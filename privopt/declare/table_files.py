"""Tables from any source. CSV and Parquet files are read in batches that fit in memory.

The cells of a CSV file are kept as text, so that the id 007 remains distinct from 7, and 1.10 from 1.1. An empty line
is not a row, but a line of commas is. Messages never quote cells, because cells may be secret.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, NoReturn, Self

import narwhals as nw
import polars as pl
from attrs import frozen

from privopt.declare.frames import describe_binary_format, find_header_fault, find_unreadable_columns, list_columns
from privopt.declare.name_forms import normal_form
from privopt.declare.tables import strip_names
from privopt.errors import Fault, InputError, UsageError
from privopt.files.regular import Unreadable, open_regular

ENDINGS: Final = (".csv", ".parquet")
"""The extensions of table files, in lower case."""

LARGEST: Final = 1 << 50
"""The maximum size of a table file, in bytes."""

BATCH_BYTES: Final = 64 * 2**20
"""The approximate size of a batch in memory, in bytes."""

BATCH_ROWS: Final = 500_000
"""The maximum number of rows in a batch."""

WHOLE: Final = 4 * 2**20
"""The maximum size, in bytes, of a CSV file that is read in one piece. Larger files are read in batches."""

HEADER: Final = 1 << 20
"""The maximum size of a header, in bytes."""

SAMPLE_ROWS: Final = 1_000
"""The number of rows used to estimate the size of a row."""


def ending_of(path: Path, option: str) -> str:
    """Return the extension of a table file in lower case: ``".csv"`` or ``".parquet"``.

    Args:
        path: The path of the file.
        option: The option or argument that names the file, used in the error message.

    Raises:
        UsageError: The file has a different extension.
    """
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise UsageError(f"{option} {path}: the ending must be {' or '.join(ENDINGS)}, got {path.suffix!r}")
    return ending


@frozen(kw_only=True, eq=False)
class TableSource:
    """A table from any source, with its column names and a way to read its rows in batches.

    Attributes:
        name: The table's name in faults: a file name, or a name for a table in memory.
        columns: The names of the columns, in order.
        batches: A function that returns an iterator over the rows in batches. Each call starts again at the first row.
        unreadable: The columns of a Parquet file whose types cannot be read. They are not in ``columns``.
    """

    name: str
    columns: tuple[str, ...]
    batches: Callable[[], Iterator[nw.DataFrame[Any]]]
    unreadable: tuple[str, ...] = ()

    @classmethod
    def of_frame(cls, frame: nw.DataFrame[Any], name: str) -> Self:
        """Create a source for a table in memory, which is read as a single batch.

        Column names are converted to normal form, unless this would make two of them equal.

        Args:
            frame: The table to read from.
            name: The name of the table in faults.
        """
        forms = {column: normal_form(column) for column in frame.columns}
        if len({*forms.values()}) == len(forms):
            frame = frame.rename({column: form for column, form in forms.items() if column != form})
        return cls(name=name, columns=tuple(frame.columns), batches=lambda: iter([frame]))

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """Create a source for a table in a file. Its rows are read only when they are needed.

        Raises:
            UsageError: The file's extension is neither ``.csv`` nor ``.parquet``.
            InputError: The file cannot be read, or is not a table. Invalid rows or bytes raise the same error later,
                during iteration.
        """
        ending = ending_of(path, "TABLE")
        try:
            with open_regular(path, largest=LARGEST) as (stream, size):
                if not size:
                    refuse_table(path, "an empty file", "a header and rows" if ending == ".csv" else "a Parquet file")
                head = stream.read(HEADER) if ending == ".csv" else b""
        except Unreadable as error:
            raise InputError([Fault(path.name, "", error.actual, "a table")]) from None
        # Column names come from the first bytes of a CSV file, or from the schema of a Parquet file.
        unreadable: tuple[str, ...] = ()
        if ending == ".csv":
            columns = _read_header(path, head)
        else:
            try:
                unreadable = find_unreadable_columns(_scan_parquet(path))
                columns = strip_names(_scan_parquet(path).drop(unreadable).collect_schema().names())
            except (pl.exceptions.PolarsError, OSError):
                refuse_table(path, "a file that is not Parquet", "a Parquet file")
        return cls(
            name=path.name,
            columns=columns,
            batches=lambda: _iter_batches(path, ending, columns, unreadable),
            unreadable=unreadable,
        )


def _iter_batches(
    path: Path, ending: str, columns: tuple[str, ...], unreadable: tuple[str, ...] = ()
) -> Iterator[nw.DataFrame[Any]]:
    """Yield the rows of a file in batches.

    Args:
        path: The path of the file.
        ending: ``".csv"`` or ``".parquet"``.
        columns: The names of the columns to read.
        unreadable: The columns to omit from a Parquet file, because their types cannot be read.

    Raises:
        InputError: A row is invalid. The fault gives the row's number.
    """
    try:
        lazy = _scan_file(path, ending, columns, unreadable)
        batches = iter([lazy.collect(engine="in-memory")]) if _is_small(path, ending) else _stream_batches(lazy)
        for batch in batches if ending == ".parquet" else _without_blank(path, batches):
            yield nw.from_native(batch, eager_only=True)
    except pl.exceptions.PolarsError:
        if ending == ".csv":
            raise InputError([_csv_fault(path)]) from None
        refuse_table(path, "a file that is not Parquet", "a Parquet file")


def _is_small(path: Path, ending: str) -> bool:
    """Return whether a table is small enough to be read in one piece.

    A Parquet file is never considered small, because a few bytes may represent a billion identical rows.
    """
    return ending == ".csv" and path.stat().st_size <= WHOLE


def _stream_batches(lazy: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Iterate over the rows of a large table in batches of about :data:`BATCH_BYTES` bytes."""
    # The first rows give an estimate of a row's size, which determines the number of rows in a batch.
    sample = lazy.head(SAMPLE_ROWS).collect(engine="in-memory")
    row_bytes = sample.estimated_size() / max(1, len(sample))
    rows = int(min(BATCH_ROWS, max(SAMPLE_ROWS, BATCH_BYTES / max(1.0, row_bytes))))
    return iter(lazy.collect_batches(chunk_size=rows, maintain_order=True))


def _scan_file(path: Path, ending: str, columns: tuple[str, ...], unreadable: tuple[str, ...]) -> pl.LazyFrame:
    """Create a lazy frame for a file with the given column names, without reading any rows.

    Args:
        path: The path of the file.
        ending: ``".csv"`` or ``".parquet"``.
        columns: The names to give to the columns.
        unreadable: The columns to omit from a Parquet file, because their types cannot be read.
    """
    if ending == ".parquet":
        lazy = _scan_parquet(path).drop(unreadable)
    else:
        lazy = pl.scan_csv(path.absolute(), infer_schema=False, glob=False)
    names = lazy.collect_schema().names()
    if len(names) != len(columns):
        refuse_table(path, "a header that cannot be read", "names of columns, and lines that end in \\n or \\r\\n")
    # The given names were read by the csv module, because polars does not resolve doubled quotes in a header.
    return lazy.rename(dict(zip(names, columns, strict=True)))


def _scan_parquet(path: Path) -> pl.LazyFrame:
    """Create a lazy frame for a Parquet file, treating ``*``, ``[`` and ``~`` in its path literally."""
    return pl.scan_parquet(path.absolute(), glob=False, hive_partitioning=False)


def _without_blank(path: Path, batches: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Remove from the batches of a CSV file all rows that are blank lines in the file.

    polars reads a blank line as a row of empty cells, just like the line ``,,``. To tell the two apart, a second reader
    parses the file alongside the batches. It skips a batch if no row in it ends with an empty cell. Lines that cannot
    be classified are kept as rows.

    Raises:
        InputError: A row has fewer fields than the header. (polars would pad the row with empty cells.)
    """
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as text:
        lines: Iterator[list[str]] = islice(csv.reader(text), 1, None)
        # ``skipped_rows`` is the number of rows in earlier batches that the second reader still has to skip. ``row`` is
        # the number of the next batch's first row in the file, where the header is row 1.
        skipped_rows, row = 0, 2
        for batch in batches:
            first_row, row = row, row + len(batch)
            is_empty = batch.select(pl.all_horizontal(pl.all().is_null())).to_series()
            # Blank lines and rows that are too short have an empty last cell, so if there is no such cell, there are
            # none of these.
            if not batch[:, -1].has_nulls():
                skipped_rows += len(batch)
                yield batch
                continue
            counts: list[int] = []
            # A cell may be too long for the csv module. In this case, `counts` is shorter than the batch.
            with suppress(csv.Error):
                counts = [len(cells) for cells in islice(lines, skipped_rows, skipped_rows + len(batch))]
            skipped_rows, is_blank = 0, pl.Series([not count for count in counts], dtype=pl.Boolean)
            short_index = next((index for index, count in enumerate(counts) if 0 < count < batch.width), None)
            if short_index is not None and len(counts) == len(batch):
                actual, expectation = f"{counts[short_index]} fields", f"{batch.width} fields, as the header has"
                raise InputError([Fault(path.name, f"row {first_row + short_index:,}", actual, expectation)])
            if len(counts) == len(batch) and not (is_blank & ~is_empty).any():
                batch = batch.filter(~is_blank)
            else:
                # The two readers disagree about the rows, so later lines cannot be classified either.
                lines = iter(())
            yield batch


def refuse_table(path: Path, got: str, expectation: str) -> NoReturn:
    """Raise an InputError for a file that contains ``got`` instead of ``expectation``."""
    raise InputError([Fault(path.name, "", got, expectation)])


def _read_header(path: Path, head: bytes) -> tuple[str, ...]:
    """Return the column names of a CSV file, given its first bytes.

    Raises:
        InputError: The bytes are not the header of a table in UTF-8.
    """
    if (other_format := describe_binary_format(head[:16])) is not None:
        refuse_table(path, other_format, "text in UTF-8, or Parquet in a file whose name ends in .parquet")
    bare = head.removeprefix(b"\xef\xbb\xbf")
    # Some readers remove a second mark, whereas others treat it as part of the first name.
    if bare.startswith(b"\xef\xbb\xbf"):
        refuse_table(path, "a second byte order mark", "one byte order mark, or none")
    if (fault := find_header_fault(bare, path.name)) is not None:
        raise InputError([fault])
    # ``head`` may also contain rows, but only the header is checked here. surrogateescape turns a byte that is not
    # UTF-8 into a character from U+DC80 on, which is detected below.
    text = bare.decode("utf-8", "surrogateescape")
    try:
        names = next(csv.reader(io.StringIO(text, newline="")), [])
    except csv.Error:
        refuse_table(path, "a header that cannot be read", "names of columns in UTF-8, of less than 1 MiB")
    if not names:
        refuse_table(path, "an empty header", "names of columns")
    if any("\0" in name for name in names):
        refuse_table(path, "a zero byte in the header", "text in UTF-8")
    invalid_letter = next((letter for name in names for letter in name if "\udc80" <= letter <= "\udcff"), None)
    if invalid_letter is not None:
        refuse_table(path, f"byte 0x{ord(invalid_letter) - 0xDC00:02x} in the header", "text in UTF-8")
    return strip_names(names)


def _csv_fault(path: Path) -> Fault:
    """Return a fault for the first invalid row of a CSV file, after reading the file again with a slower parser.

    The function first looks for bytes that are not UTF-8, then for a column name that occurs twice, and finally for the
    first row that has too many fields or unclosed quotes.
    """
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return Fault(path.name, f"row {number}", f"byte 0x{line[error.start]:02x}", "text in UTF-8")
    number = 1
    with path.open(encoding="utf-8-sig", newline="") as text, suppress(csv.Error):
        rows = csv.reader(text, strict=True)
        names = next(rows)
        # The error may come from renaming columns in polars, which does not accept the same name twice.
        counts = Counter(strip_names(names))
        if (repeated_name := next((name for name in counts if counts[name] > 1), None)) is not None:
            actual = f"twice {list_columns([repeated_name])}"
            return Fault(path.name, "header", actual, "columns that differ in name")
        width = len(names)
        for number, row in enumerate(rows, start=2):
            if len(row) > width:
                return Fault(path.name, f"row {number}", f"{len(row)} fields", f"{width} fields, as the header has")
        return Fault(path.name, "", "text that is not a table", "comma-separated values")
    return Fault(path.name, f"row {number + 1}", "text that is not a row", "fields whose quotes are closed")
