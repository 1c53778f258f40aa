"""Read CSV and Parquet files as polars frames, recognised by their first bytes, and write frames as CSV."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final

from privopt.arrays import DataFrame, Series
from privopt.declare.name_forms import normal_form
from privopt.declare.schema import File
from privopt.errors import Fault, InputError

PARQUET: Final = b"PAR1"
"""What a Parquet file begins with."""

MAX_KEPT: Final = 1 << 16
"""Public CSV tables of at most so many bytes are parsed once: solving, publishing and verifying a problem ask for the
same cells, and polars takes 1.3 ms for the 49 rows of the embedded city (2 cores, mean of 400)."""


def text_of(file: File) -> bytes:
    """Return the bytes of a text file in UTF-8, without a BOM."""
    raw = file.contents
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError([Fault(file.name, "", "text in UTF-16", "text in UTF-8")])
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    if raw.startswith(b"\xef\xbb\xbf"):  # of which readers differ in what they leave
        raise InputError([Fault(file.name, "row 1", "a second byte order mark", "one byte order mark, or none")])
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        row = raw[: error.start].count(b"\n") + 1
        actual = "text in another encoding" if file.secret else f"byte 0x{raw[error.start]:02x}"
        raise InputError([Fault(file.name, f"row {row}", actual, "text in UTF-8")]) from None
    if b"\0" in raw:
        row = raw[: raw.index(b"\0")].count(b"\n") + 1
        raise InputError([Fault(file.name, f"row {row}", "a zero byte", "text")])
    return raw


def is_parquet(file: File) -> bool:
    """Return whether a table is Parquet, by its first bytes; otherwise it is CSV."""
    return file.contents.startswith(PARQUET)


def table_text(file: File) -> bytes:
    """Return a CSV file's text without a BOM: UTF-8, with a header, without empty lines at its end."""
    raw = text_of(file)
    body = raw.rstrip()
    if not body:
        raise InputError([Fault(file.name, "", "an empty file", "a header row and a row for each entry")])
    if raw.count(b"\n", len(body)) > 1:
        row = body.count(b"\n") + 2
        raise InputError([Fault(file.name, f"row {row}", "an empty line", "a row, or the end of the file")])
    head = io.BytesIO(body).readline().decode()
    # Spreadsheets of some countries export semicolons, and decimals with commas.
    for mark in (";", "\t"):
        if mark in head and "," not in head:
            expectation = "commas between fields, a point before decimals"
            raise InputError([Fault(file.name, "header", f"{mark!r} between fields", expectation)])
    return raw


def table_of(file: File) -> DataFrame:
    """Return the whole table. Cells of CSV are text, those of Parquet have their own types.

    Names of columns have no blanks around them; they and all text are in :func:`normal_form`.
    """
    import polars as pl

    if is_parquet(file):
        frame = _read_parquet(file)
    else:
        try:
            text = table_text(file)
            frame = _read_cells(text) if file.secret or len(text) > MAX_KEPT else _cached_cells(text).clone()
            if frame.width > 1 and (frame[:, -1] == "").any() and (fault := _uneven_row(file)) is not None:
                raise InputError([fault])  # polars fills such a row with empty cells
        except pl.exceptions.PolarsError:
            raise InputError([find_ragged_row(file)]) from None
    frame.columns = strip_names(frame.columns)
    texts = [name for name, kind in frame.schema.items() if kind == pl.String]
    return frame.with_columns(normalize_texts(frame[name]) for name in texts) if texts else frame


def normalize_texts(texts: Series) -> Series:
    """Return a column of text in :func:`normal_form`. ASCII is in it already, which byte lengths show quickly."""
    if not texts.len() or texts.str.len_bytes().sum() == texts.str.len_chars().sum():
        return texts
    return texts.str.normalize("NFC")


def _read_cells(text: bytes) -> DataFrame:
    """Parse a CSV file to cells of text."""
    import polars as pl

    frame = pl.read_csv(text, infer_schema=False)
    return frame.select(pl.all().fill_null("")) if any(column.null_count() for column in frame) else frame


_cached_cells = lru_cache(maxsize=32)(_read_cells)


def repeated(file: File) -> frozenset[str]:
    """Return the names that a CSV header has more than once, in normal form; polars would rename the second.

    Args:
        file: that :func:`table_of` has read.
    """
    if is_parquet(file):
        return frozenset()
    try:
        names = next(csv.reader(io.TextIOWrapper(io.BytesIO(file.contents), "utf-8-sig", newline="")), [])
    except csv.Error:  # a name longer than it takes
        raise InputError([Fault(file.name, "header", "a name without end", "names of columns")]) from None
    counts = Counter(normal_form(name.strip()) for name in names)
    return frozenset(name for name, count in counts.items() if count > 1)


def _read_parquet(file: File) -> DataFrame:
    """Read a Parquet file."""
    import polars as pl

    try:
        return pl.read_parquet(file.contents)
    except pl.exceptions.PolarsError:
        raise InputError([Fault(file.name, "", "a file that is not Parquet", "a table")]) from None


def as_csv(file: File) -> bytes | None:
    """Return a Parquet file as CSV text, to be read like a CSV file; None if the file is not Parquet.

    Columns that no text can hold (lists, bytes) are omitted.
    """
    return csv_bytes(_read_parquet(file)) if is_parquet(file) else None


def csv_bytes(frame: DataFrame) -> bytes:
    """Write a table as CSV in the one form that all readers read alike, and that is stable under reading.

    Text is in normal form; each number has the fewest digits that give its double back (:func:`plain_texts`).
    Columns that no text can hold are omitted.
    """
    import polars as pl

    flat = [name for name, kind in frame.schema.items() if not (kind.is_nested() or kind in (pl.Binary, pl.Object))]
    columns = [plain_texts(frame[name]).alias(name) for name in flat]
    columns = [column.fill_null("") if column.null_count() else column for column in columns]
    text: str = pl.DataFrame(columns).write_csv()
    return text.encode()


def plain_texts(series: Series) -> Series:
    """Return a column as text in :func:`normal_form`, whole numbers without a decimal point.

    Doubles that are whole have none either, because pandas stores a column of whole numbers with blanks as doubles.

    >>> import polars as pl
    >>> plain_texts(pl.Series([7.0, None, 3.5, 1e17, float("nan")])).to_list()
    ['7', None, '3.5', '100000000000000000', 'NaN']

    Raises:
        PolarsError: a column of lists, structures or bytes.
    """
    import polars as pl

    texts = series.cast(pl.String)
    if not series.dtype.is_float():
        return normalize_texts(texts)
    number, text = pl.col("number"), pl.col("text")
    is_whole = number.is_finite() & (number == number.round()) & (number.abs() < 2.0**63) & (text != "-0.0")
    plain_text = pl.when(is_whole).then(number.cast(pl.Int64, strict=False).cast(pl.String)).otherwise(text)
    return pl.DataFrame({"number": series, "text": texts}).select(plain_text).to_series().alias(series.name)


def _uneven_row(file: File) -> Fault | None:
    """Return the first row of a CSV file with fewer or more fields than the header; None if there is no such row."""
    # Rows end with a line feed alone, as polars reads them: a carriage return inside a name is part of the name.
    rows = csv.reader(io.StringIO(table_text(file).decode("utf-8"), newline="\n"))
    with suppress(csv.Error):  # a cell that is too long, or a carriage return outside quotes
        width = len(next(rows))
        for number, row in enumerate(rows, start=2):
            if row and len(row) != width:
                return Fault(file.name, f"row {number}", f"{len(row)} fields", f"{width} fields, as the header has")
    return None


def find_ragged_row(file: File) -> Fault:
    """Return the fault of the first row with another number of fields. No cell is quoted, as it may be a secret."""
    return _uneven_row(file) or Fault(file.name, "", "text that is not a table", "comma-separated values")


def list_columns(names: Sequence[str]) -> str:
    """Return the first names of a header for a message; none of them if one is a number, as rows of data have.

    >>> list_columns(["id", "lat"]), list_columns(["ann", "45.01"])
    ('id, lat', 'a first row with numbers, which is no header')
    """
    for name in names:
        with suppress(ValueError):
            float(name.replace(",", "."))
            return "a first row with numbers, which is no header"
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")


def strip_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return column names in normal form, without surrounding blanks, unless two names would become equal."""
    bare = tuple(normal_form(name.strip()) for name in names)
    return bare if len(set(bare)) == len(set(names)) else tuple(names)
