"""Read CSV and Parquet files as polars frames, and write CSV. A file's format is detected from its first bytes."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

from privopt.arrays import DataFrame, Series
from privopt.declare.name_forms import normal_form
from privopt.declare.schema import File
from privopt.errors import Fault, InputError

if TYPE_CHECKING:
    from polars import DataType, LazyFrame
else:  # loaded only when a table is read
    DataType = LazyFrame = Any

PARQUET: Final = b"PAR1"
"""The first bytes of a Parquet file."""

MAX_NAME: Final = 100
"""The maximum length, in characters, of column names quoted in messages. A longer name may be data from a file without
a header."""

MAX_HEADER: Final = 1 << 20
"""The maximum number of bytes at the start of a file that are searched for the end of the header."""

NO_HEADER: Final = "a first row that looks like data, not like a header"
"""The text shown instead of column names in messages if the names may be secret data."""

MAX_DAYS: Final = 70_000_000
"""The maximum distance from 1970, in days (about 190,000 years), at which dates can be written."""
FAR_DATE: Final = "a date beyond all calendars"
"""The text shown instead of a date that polars cannot write."""

MAX_DECIMAL_DIGITS: Final = 38
"""The maximum number of digits in a polars decimal."""

MAX_SCANNED_TEXTS: Final = 256
"""The maximum number of strings to examine individually in Python."""
MAX_KEPT: Final = 1 << 16
"""The maximum size, in bytes, of a public CSV table whose parsed cells are cached. Solving, publishing and verifying a
problem read the same cells, and polars needs 1.3 ms for the 49 rows of the embedded city (2 cores, mean of 400)."""


_BINARY_FORMATS: Final = {
    b"\xff\xfe\x00\x00": "text in UTF-32",
    b"\x00\x00\xfe\xff": "text in UTF-32",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
    b"\x1f\x8b": "a file that gzip compressed",
    b"PK\x03\x04": "a ZIP archive, such as a spreadsheet's .xlsx or .ods",
    b"\xd0\xcf\x11\xe0": "a spreadsheet's .xls",
    b"BZh": "a file that bzip2 compressed",
    b"\xfd7zXZ": "a file that xz compressed",
    b"\x28\xb5\x2f\xfd": "a file that Zstandard compressed",
    b"SQLite format 3": "an SQLite database",
    b"%PDF": "a PDF file",
    PARQUET: "a Parquet file",
}
"""The first bytes of file formats that users mistake for text tables. The first match is used, so a longer prefix must
come before any shorter prefix that it begins with."""

_OTHER_TEXT: Final = re.compile(rb"\s*(\{\s*\"|\[\s*[\[{]|<[!?a-zA-Z])")
"""Matches the beginning of JSON, XML and HTML documents. No table header begins like this."""

_QUOTED: Final = re.compile(rb'"[^"]*"')
"""Matches a name in quotes."""

_DATA: Final = re.compile(r'\d[.,]\d{2}|\d{6}|^\s*[\[{<#]|"')
"""Matches patterns that are rare in column names but common in data: decimals, long numbers, brackets and quotes."""


def describe_binary_format(head: bytes) -> str | None:
    """Describe the format of a file that users may have mistaken for a text table, judging by its first bytes.

    The result is None if the first bytes are not those of a known binary format.

    >>> describe_binary_format(b"PK\x03\x04..."), describe_binary_format(b"id,lat,lon")
    ("a ZIP archive, such as a spreadsheet's .xlsx or .ods", None)
    """
    return next((name for mark, name in _BINARY_FORMATS.items() if head.startswith(mark)), None)


def find_header_fault(head: bytes, file: str) -> Fault | None:
    """Return a fault if the first line of a file cannot be the header of a CSV table, or None otherwise.

    The fault does not quote the line, because it may be a row of secrets.

    Args:
        head: The first bytes of the file, without a BOM, including the whole first line.
        file: The name of the file.
    """
    if _OTHER_TEXT.match(head):
        return Fault(file, "", "JSON, XML or HTML", "comma-separated values, or a file name that states the format")
    # A name in quotes may contain line ends. They are removed here, so that the line ends where the header does.
    line = _QUOTED.sub(lambda name: name[0].translate(None, b"\r\n"), head[:MAX_HEADER]).partition(b"\n")[0]
    if line[:4].lower() == b"sep=":
        return Fault(file, "row 1", "the separator that a spreadsheet notes", "the header: delete this line")
    if b"\r" in line.removesuffix(b"\r"):
        return Fault(file, "", "lines that end in \\r", "lines that end in \\n or \\r\\n")
    # In some countries, spreadsheets export fields separated by semicolons, and decimals with commas.
    for mark in (";", "\t", "|"):
        if mark.encode() in line and b"," not in line:
            expectation = "commas between fields, a point before decimals"
            return Fault(file, "header", f"{mark!r} between fields", expectation)
    return None


def type_name(dtype: object) -> str:
    """Return the name of a column's type, omitting fields and categories, which are part of the data."""
    return dtype.__name__ if isinstance(dtype, type) else type(dtype).__name__


def text_of(file: File) -> bytes:
    """Return the bytes of a text file without its byte order mark, after checking that they are valid UTF-8.

    Raises:
        InputError: The file has another format or encoding, a second byte order mark, or a zero byte.
    """
    raw = file.contents
    if (other_format := describe_binary_format(raw[:16])) is not None:
        raise InputError([Fault(file.name, "", other_format, "text in UTF-8")])
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    # Some readers remove a second mark, whereas others treat it as part of the first name.
    if raw.startswith(b"\xef\xbb\xbf"):
        raise InputError([Fault(file.name, "row 1", "a second byte order mark", "one byte order mark, or none")])
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        row = raw[: error.start].count(b"\n") + 1
        actual = "text in another encoding" if file.secret else f"byte 0x{raw[error.start]:02x}"
        raise InputError([Fault(file.name, f"row {row}", actual, "text in UTF-8")]) from None
    # Some readers stop at a zero byte.
    if b"\0" in raw:
        row = raw[: raw.index(b"\0")].count(b"\n") + 1
        raise InputError([Fault(file.name, f"row {row}", "a zero byte", "text")])
    return raw


def is_parquet(file: File) -> bool:
    """Return whether a table is a Parquet file, judging by its first bytes. Any other table is assumed to be CSV."""
    return file.contents.startswith(PARQUET)


def table_text(file: File) -> bytes:
    """Return a CSV file's text without its byte order mark or any blank rows at the end.

    The header and the end of the file are checked.

    Raises:
        InputError: The file is not UTF-8 text, is empty, ends with an empty line, or has no valid header.
    """
    raw = _without_blank_rows(text_of(file))
    body = raw.rstrip()
    if not body:
        raise InputError([Fault(file.name, "", "an empty file", "a header row and a row for each entry")])
    # The last row may end with a line feed, but a second one makes an empty line.
    if raw.count(b"\n", len(body)) > 1:
        row = body.count(b"\n") + 2
        raise InputError([Fault(file.name, f"row {row}", "an empty line", "a row, or the end of the file")])
    if (fault := find_header_fault(body, file.name)) is not None:
        raise InputError([fault])
    return raw


def _without_blank_rows(text: bytes) -> bytes:
    """Remove lines of separators and blanks from the end of CSV text. Spreadsheets write such lines below a table.

    The header is kept. A line without a separator is an empty line, not a row, and is left for the caller to handle.
    """
    end = len(text)
    while True:
        line_end = end - text.endswith(b"\n", 0, end)
        start = text.rfind(b"\n", 0, line_end) + 1
        line = text[start:line_end]
        if start == 0 or b"," not in line or line.strip(b", \t\r"):
            return text[:end]
        end = start


def table_of(file: File) -> DataFrame:
    """Read a whole table from a CSV or Parquet file.

    The cells of a CSV file are returned as strings, whereas the cells of a Parquet file keep their types. Column names
    and text cells are converted to :func:`normal_form`, and column names are stripped of surrounding blanks. Lines that
    consist of separators and blanks are dropped from the end of a CSV file.

    Raises:
        InputError: The file is not a table, or a row has more or fewer fields than the header.
    """
    import polars as pl

    is_ascii = False  # if True, all texts are already in normal form, so that no column need be examined
    if is_parquet(file):
        frame = read_parquet(file)
    else:
        try:
            text = table_text(file)
            is_ascii = text.isascii()
            # Secret cells are not cached, because they would stay in memory after their use. The clone keeps the
            # columns of the cached frame from being renamed.
            frame = _read_cells(text) if file.secret or len(text) > MAX_KEPT else _cached_cells(text).clone()
            # polars fills up a row that is too short with empty cells, so only rows with an empty last cell can be too
            # short.
            if frame.width > 1 and (frame[:, -1] == "").any() and (fault := _uneven_row(file)) is not None:
                raise InputError([fault])
        except pl.exceptions.PolarsError:
            raise InputError([find_ragged_row(file)]) from None
    frame.columns = strip_names(frame.columns)
    texts = [] if is_ascii else [name for name, kind in frame.schema.items() if kind == pl.String]
    return frame.with_columns(normalize_texts(frame[name]) for name in texts) if texts else frame


def normalize_texts(texts: Series) -> Series:
    """Return a column of strings in :func:`normal_form`.

    A column of ASCII text is already in normal form and is returned unchanged. ASCII text is quick to recognise,
    because it has equal numbers of bytes and characters.
    """
    # Looking at a few texts is faster than calling polars.
    if texts.len() <= MAX_SCANNED_TEXTS and all(text is None or text.isascii() for text in texts.to_list()):
        return texts
    if texts.str.len_bytes().sum() == texts.str.len_chars().sum():
        return texts
    return texts.str.normalize("NFC")


def _read_cells(text: bytes) -> DataFrame:
    """Parse a CSV file's text into a frame of text columns, in which empty cells are empty strings."""
    import polars as pl

    frame = pl.read_csv(text, infer_schema=False)
    return frame.select(pl.all().fill_null("")) if any(column.null_count() for column in frame) else frame


_cached_cells = lru_cache(maxsize=32)(_read_cells)


def find_repeated_names(file: File) -> frozenset[str]:
    """Return the names that occur more than once in the header of a CSV file, in normal form.

    For a Parquet file, the result is empty. The header is parsed from the file's bytes, because polars renames
    duplicates.

    Args:
        file: A file that :func:`table_of` has read.

    Raises:
        InputError: The header cannot be read.
    """
    if is_parquet(file):
        return frozenset()
    try:
        names = next(csv.reader(io.TextIOWrapper(io.BytesIO(file.contents), "utf-8-sig", newline="")), [])
    except csv.Error:  # a name that is longer than the csv module permits
        raise InputError([Fault(file.name, "header", "a name without end", "names of columns")]) from None
    counts = Counter(normal_form(name.strip()) for name in names)
    return frozenset(name for name, count in counts.items() if count > 1)


def read_parquet(file: File, expectation: str = "a table") -> DataFrame:
    """Read a Parquet file, skipping columns whose types cannot be read.

    The names of the skipped columns are recorded in ``file.seen``.

    Args:
        file: The Parquet file to read.
        expectation: A description of the expected kind of file, used in the fault.

    Raises:
        InputError: The file is not Parquet, or none of its columns can be read.
    """
    import polars as pl

    lazy = pl.scan_parquet(io.BytesIO(file.contents))
    try:
        unreadable = find_unreadable_columns(lazy)
        file.seen.unreadable.update(strip_names(unreadable))
        return lazy.drop(unreadable).collect(engine="in-memory")
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise InputError([Fault(file.name, "", "a file that is not Parquet", expectation)]) from None


def find_unreadable_columns(lazy: LazyFrame) -> tuple[str, ...]:
    """Return the columns of a Parquet file whose types polars cannot read, such as decimals with 76 digits.

    Raises:
        pl.exceptions.PolarsError: No column can be read, so the file itself is invalid.
    """
    import polars as pl

    schema = lazy.collect_schema()
    # Decimals with too many digits are recognised by their type. If there are none and a whole row can be read, all
    # columns can be read.
    wide_columns = {name for name, dtype in schema.items() if _has_wide_decimal(dtype)}
    other_columns = [name for name in schema if name not in wide_columns]
    if not wide_columns and (not other_columns or _is_readable(lazy)):
        return ()
    unreadable = tuple(name for name in schema if name in wide_columns or not _is_readable(lazy.select(name)))
    if len(unreadable) == len(schema):
        raise pl.exceptions.ComputeError("no column can be read")
    return unreadable


def _has_wide_decimal(dtype: DataType) -> bool:
    """Return whether a type is or contains a decimal with more digits than polars supports.

    Reading a row is not enough to detect a list of such decimals, because polars panics only when the values are used.
    """
    import polars as pl

    if isinstance(dtype, pl.Decimal):
        return bool(dtype.precision > MAX_DECIMAL_DIGITS)
    if isinstance(dtype, pl.Struct):
        return any(_has_wide_decimal(cast("DataType", part.dtype)) for part in dtype.fields)
    inner = getattr(dtype, "inner", None)
    return isinstance(inner, pl.DataType) and _has_wide_decimal(inner)


def _is_readable(lazy: LazyFrame) -> bool:
    """Return whether the first row of a lazy frame can be read.

    Looking at the schema is not enough, because it may contain types that polars cannot read.
    """
    import polars as pl

    try:
        lazy.head(1).collect(engine="in-memory")
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return False
    return True


def as_csv(file: File) -> bytes | None:
    """Return the contents of a Parquet file as CSV text, or None if the file is not Parquet.

    Columns that cannot be written as text (lists, bytes) are omitted.
    """
    return csv_bytes(read_parquet(file)) if is_parquet(file) else None


def csv_bytes(frame: DataFrame) -> bytes:
    """Convert a table to CSV text that all readers interpret in the same way and that survives a round trip unchanged.

    Text is in normal form, and each number is written with the fewest digits from which its double can be recovered
    (:func:`plain_texts`). Columns that cannot be written as text are omitted.
    """
    import polars as pl

    # There is no text form for lists, structures and bytes that all readers interpret alike.
    flat = [name for name, kind in frame.schema.items() if not (kind.is_nested() or kind in (pl.Binary, pl.Object))]
    columns = [plain_texts(frame[name]).alias(name) for name in flat]
    columns = [column.fill_null("") if column.null_count() else column for column in columns]
    text: str = pl.DataFrame(columns).write_csv()
    return text.encode()


def plain_texts(series: Series) -> Series:
    """Convert a column to strings in :func:`normal_form`, with whole numbers written without a decimal point.

    This includes whole doubles, because pandas stores whole numbers as doubles in a column with missing cells.

    >>> import polars as pl
    >>> plain_texts(pl.Series([7.0, None, 3.5, 1e17, float("nan")])).to_list()
    ['7', None, '3.5', '100000000000000000', 'NaN']

    Dates that are too far in the past or future to be written become :data:`FAR_DATE`.

    Raises:
        PolarsError: The column contains lists, structures, bytes or durations.
    """
    import polars as pl

    if series.dtype in (pl.Date, pl.Datetime):
        texts = _date_texts(series)
    else:
        texts = series if series.dtype == pl.String else series.cast(pl.String)
    if not series.dtype.is_float():
        return normalize_texts(texts)
    number, text = pl.col("number"), pl.col("text")
    # -0.0 is not treated as a whole number, because it would lose its sign.
    is_whole = number.is_finite() & (number == number.round()) & (number.abs() < 2.0**63) & (text != "-0.0")
    plain_text = pl.when(is_whole).then(number.cast(pl.Int64, strict=False).cast(pl.String)).otherwise(text)
    return pl.DataFrame({"number": series, "text": texts}).select(plain_text).to_series().alias(series.name)


def without_far_dates(series: Series) -> Series:
    """Replace with null any dates that are too far in the past or future for polars to write."""
    import polars as pl

    if series.dtype not in (pl.Date, pl.Datetime):
        return series
    # The number of units in a second, by polars' name for the unit. A Date is a number of days since 1970, and a
    # Datetime a number of units.
    units_by_name = {"ms": 10**3, "us": 10**6, "ns": 10**9}
    day = 86_400 * units_by_name[series.dtype.time_unit] if isinstance(series.dtype, pl.Datetime) else 1
    limit = min(MAX_DAYS * day, 2**63 - 1)
    is_near = series.to_physical().is_between(-limit, limit).fill_null(value=True)
    return series if is_near.all() else series.zip_with(is_near, pl.Series([None], dtype=series.dtype))


def _date_texts(series: Series) -> Series:
    """Convert a column of dates or times to strings, with :data:`FAR_DATE` for values that polars cannot write."""
    import polars as pl

    near_dates = without_far_dates(series)
    texts = near_dates.cast(pl.String)
    is_far = near_dates.is_null() & series.is_not_null()
    return texts.zip_with(~is_far, pl.Series([FAR_DATE])).alias(series.name) if is_far.any() else texts


def _uneven_row(file: File) -> Fault | None:
    """Return a fault for the first row in a CSV file that has too few or too many fields, or None if no row does."""
    # As in polars, only a line feed ends a row. A carriage return inside a name is part of the name.
    rows = csv.reader(io.StringIO(table_text(file).decode("utf-8"), newline="\n"))
    with suppress(csv.Error):  # a cell that is too long, or a carriage return outside quotes
        width = len(next(rows))
        for number, row in enumerate(rows, start=2):
            if row and len(row) != width:  # an empty line gives an empty row
                return Fault(file.name, f"row {number}", f"{len(row)} fields", f"{width} fields, as the header has")
    return None


def find_ragged_row(file: File) -> Fault:
    """Return a fault for the first row with too few or too many fields, or for the whole file if there is no such row.

    The fault does not quote cells, because they may be secret.
    """
    return _uneven_row(file) or Fault(file.name, "", "text that is not a table", "comma-separated values")


def list_columns(names: Sequence[str]) -> str:
    """List the first few column names of a header for error messages, unless one of the names looks like data.

    A file without a header begins with a row of data, which may be secret. In that case, :data:`NO_HEADER` is returned
    instead.

    >>> list_columns(["id", "lat"]), list_columns(["ann", "45.01"])
    ('id, lat', 'a first row that looks like data, not like a header')
    """
    for name in names:
        if _DATA.search(name) or len(name) > MAX_NAME:
            return NO_HEADER
        with suppress(ValueError):
            float(name.replace(",", "."))
            return NO_HEADER
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")


def strip_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return column names in normal form and without surrounding blanks.

    If this would make two names equal, all names are returned unchanged.
    """
    bare = tuple(normal_form(name.strip()) for name in names)
    return bare if len(set(bare)) == len(set(names)) else tuple(names)
