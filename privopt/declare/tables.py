"""Read the tables and arrays named in a problem file. Faults give the row and column.

Rows are numbered like lines in an editor: the header is row 1, even in a Parquet file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Context, Decimal
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
from attrs import Factory, evolve, field, frozen
from numpy.typing import NDArray

from privopt.arrays import Expr, Ints, Series, no_doubles, read_only
from privopt.declare.frames import (
    as_csv,
    csv_bytes,
    find_ragged_row,
    find_repeated_names,
    is_parquet,
    list_columns,
    plain_texts,
    strip_names,
    table_of,
    table_text,
    text_of,
    type_name,
)
from privopt.declare.name_forms import normal_form
from privopt.declare.schema import File, FileUse
from privopt.errors import Fault, Faults, InputError, conceal, number_of
from privopt.files.archive import parse_npy

__all__ = [
    "MAX_ROAD_KM",
    "POINT",
    "Column",
    "Table",
    "as_csv",
    "check_column",
    "check_ids",
    "csv_bytes",
    "duplicate_faults",
    "each_once",
    "find_ragged_row",
    "is_parquet",
    "plain_texts",
    "point_hint",
    "read_array",
    "read_lines",
    "read_table",
    "road_table",
    "strip_names",
    "table_of",
    "table_text",
]

POINT: Final = ", with a point before its decimals"
"""The phrase to append to a fault's expectation if a number was written with a decimal comma."""

_COMMA: Final = re.compile(r"[+-]?\d*,\d+")
"""Matches a number with a decimal comma."""


def _to_tuple(values: Iterable[str | float]) -> tuple[str | float, ...]:
    """Convert values to a tuple. Unlike ``tuple``, this function has type annotations for use as an attrs converter."""
    return tuple(values)


@frozen(kw_only=True)
class Column:
    """The declaration of a column that a table must or may have.

    Attributes:
        name: The name of the column in the result and, by default, in the header.
        kind: ``"id"`` (text, not empty, without surrounding spaces), ``"text"`` (unchanged, possibly empty),
            ``"number"`` (finite double) or ``"count"`` (whole number, int64).
        optional: Whether the column may be missing from the header.
        least: The smallest number allowed.
        most: The largest number allowed.
        one_of: The allowed strings or numbers, if only certain ones are allowed.
        whole: Whether numbers must be whole and are returned as int64. By default, this is the case for ``"count"``.
        unit: The unit to show in faults.
        rests: For numbers, whether to return two additional columns. ``NAME written`` contains the decimals as text,
            and ``NAME rest`` contains each decimal minus its nearest double, rounded to a double.
        label: The name in the header, if it differs from ``name``.
        blank: The value to use for an empty cell, or None if an empty cell is a fault.
    """

    name: str
    kind: Literal["id", "text", "number", "count"] = "number"
    optional: bool = False
    least: float = -math.inf
    most: float = math.inf
    one_of: tuple[str | float, ...] = field(default=(), converter=_to_tuple)
    whole: bool = field(default=Factory(lambda self: self.kind == "count", takes_self=True))
    unit: str = ""
    rests: bool = False
    label: str = field(default=Factory(lambda self: self.name, takes_self=True))
    blank: float | None = None

    @property
    def expectation(self) -> str:
        """A description of what a cell must contain."""
        if self.one_of:
            return f"one of {', '.join(map(str, self.one_of))}"
        if self.kind in ("id", "text"):
            return "an id" if self.kind == "id" else "text"
        number = ("a whole number" if self.whole else "a finite number") + (f" ({self.unit})" if self.unit else "")
        bounds = [f"at least {self.least:g}"] if self.least > -math.inf else []
        bounds += [f"at most {self.most:g}"] if self.most < math.inf else []
        return f"{number} of {' and '.join(bounds)}" if bounds else number


Table = dict[str, NDArray[Any]]
"""The columns of a table, keyed by name: ``<U`` arrays of ids or texts, and float64 or int64 arrays of numbers."""


def _describe_absence(file: File, label: str) -> str:
    """Say why a required column was not read: because it is missing, or because its type cannot be read.

    Args:
        file: The file that was read.
        label: The column's name in the header.
    """
    is_unreadable = label in file.seen.unreadable
    return f"column {label!r} of a type that cannot be read" if is_unreadable else f"no column {label!r}"


def read_table(
    file: File, columns: Sequence[Column], *, any_of: Sequence[Sequence[str]] = (), min_rows: int = 1
) -> Table:
    """Read a CSV file with a header (UTF-8, with or without BOM, LF or CRLF), or a Parquet file.

    Args:
        file: The file, as named in the problem.
        columns: The columns to read. Other columns in the file are ignored and not published by ``solve``.
        any_of: Sets of optional columns, such as ``[("lat", "lon"), ("x", "y")]``. The table must contain all columns
            of exactly one set.
        min_rows: The minimum number of rows. Use 0 for secret tables, because an error about an empty table would
            reveal that nobody is in it.

    Returns:
        The columns by name, each as an array of shape (rows,).

    Raises:
        InputError: The file contains errors. The exception lists up to twenty of them.
    """
    frame = table_of(file)
    header = frame.columns
    # Messages list the sets of columns as alternatives: "lat,lon or x,y".
    choice = {name for names in any_of for name in names}
    expected_labels = [c.label for c in columns if c.name not in choice]
    labels = {c.name: c.label for c in columns}
    expected_labels += [" or ".join(",".join(labels[name] for name in names) for names in any_of)] if any_of else []
    faults = [
        Fault(file.name, "header", _describe_absence(file, c.label), f"columns {', '.join(expected_labels)}")
        for c in columns
        if not c.optional and c.label not in header
    ]
    repeated_labels = find_repeated_names(file)
    faults += [
        Fault(file.name, "header", f"column {c.label!r} twice", "one column of that name")
        for c in columns
        if c.label in repeated_labels
    ]
    if any_of:
        any_of = [[labels[name] for name in names] for names in any_of]
        complete_sets = [names for names in any_of if all(name in header for name in names)]
        if len(complete_sets) != 1:
            choices = " or ".join(",".join(names) for names in any_of)
            # If a file has no header, its first row of data is read as the header, so a secret file's header is not
            # quoted.
            header_text = f"columns {list_columns(header)}" if header else "no columns"
            actual = "other columns" if file.secret else header_text
            if unreadable := [name for names in any_of for name in names if name in file.seen.unreadable]:
                actual = f"{actual}, and {', '.join(unreadable)} of a type that cannot be read"
            faults.append(Fault(file.name, "header", actual, f"columns {choices}, one of these alone"))
    if faults:
        raise InputError(faults)
    if frame.height < min_rows:
        raise InputError([Fault(file.name, "", "a header alone", "at least one row")])
    table: Table = {}
    cell_faults = Faults()
    for column in columns:
        if column.label in header:
            # Columns that are read from public files are recorded, because only these are published.
            file.seen.columns.update([] if file.secret else [column.label])
            table[column.name] = _to_array(check_column(file.name, frame[column.label], column, cell_faults))
            # If there are invalid cells, their texts may not be decimals, so nothing is computed.
            if column.rests and not cell_faults.count:
                written = table[f"{column.name} written"] = _decimal_texts(frame[column.label])
                table[f"{column.name} rest"] = _decimal_rests(written, table[column.name])
    _check_faults(file, cell_faults)
    return table


def _check_faults(file: File, faults: Faults) -> None:
    """Raise the faults collected for a file, if any. Values from a secret file are not quoted."""
    (Faults(conceal(faults.listed), faults.count) if file.secret else faults).check()


def _to_array(series: Series) -> NDArray[Any]:
    """Convert a column to a NumPy array of strings (``<U``) or of the column's numeric type."""
    import polars as pl

    return np.asarray(series.to_numpy(), dtype=np.str_ if series.dtype == pl.String else None)


def check_column(name: str, series: Series, column: Column, faults: Faults) -> Series:
    """Convert the cells of a column to strings, doubles or int64, and add a fault for each invalid cell.

    Args:
        name: The name of the file, used in faults.
        series: The cells as they were read.
        column: The declaration of the column.
        faults: The collection to which faults are added. The caller checks it after all columns have been read.

    Returns:
        The values, one per row. The values for invalid cells are meaningless.
    """
    import polars as pl

    try:
        texts = plain_texts(series)
    except pl.exceptions.PolarsError:  # the column contains lists or bytes
        type_text = f"values of type {type_name(series.dtype)}"
        faults.extend([Fault(name, f"column {column.label}", type_text, "text or numbers", is_description=True)])
        return pl.zeros(len(series), eager=True)
    if column.kind == "text" and not column.one_of:  # any text will do
        return texts.fill_null("") if texts.null_count() else texts
    cell = pl.col("text").fill_null("").str.strip_chars()
    if column.kind in ("id", "text"):
        # A missing id in a column of doubles is NaN, which is not an id.
        if series.dtype.is_float():
            cell = cell.replace("NaN", "")
        cells = texts.to_frame("text").select(pl.col("text").fill_null(""), stripped=cell)
        cell_texts = cells["stripped"]
        is_invalid = (cell_texts == "").to_numpy() & (column.kind == "id")
        values = cells["stripped" if column.kind == "id" else "text"]
        is_out_of_bounds = np.zeros(len(series), dtype=np.bool_)
    else:
        # With strict=False, text that is not a number becomes null, and thus "missing".
        numbers = _to_integers(cell) if column.whole else cell.cast(pl.Float64, strict=False)
        cells = texts.to_frame("text").select(stripped=cell, value=numbers.fill_null(0), missing=numbers.is_null())
        cell_texts, values, missing = cells["stripped"], cells["value"], cells["missing"].to_numpy()
        is_blank = (cell_texts == "").to_numpy() & (column.blank is not None)
        array = values.to_numpy()
        is_out_of_bounds = ~missing & ((array < column.least) | (array > column.most))
        is_invalid = missing if column.whole else missing | ~np.isfinite(array)
        # Each cell gets only one fault, so cells that are not numbers are not also reported as out of bounds.
        is_invalid, is_out_of_bounds = is_invalid & ~is_blank, is_out_of_bounds & ~is_invalid
        if is_blank.any():
            values = pl.Series(np.where(is_blank, np.asarray(column.blank, dtype=array.dtype), array))
    if column.one_of:
        is_out_of_bounds = is_out_of_bounds | (~values.is_in(list(column.one_of)).to_numpy() & ~is_invalid)
    # If a cell has the wrong type, its fault mentions only the expected type. If it is out of bounds, the fault also
    # mentions the bounds.
    plain_expectation = evolve(column, least=-math.inf, most=math.inf, one_of=()).expectation
    for rows, expectation in ((is_invalid, plain_expectation), (is_out_of_bounds, column.expectation)):
        positions = np.flatnonzero(rows).tolist()
        faults.extend(
            (_cell_fault(name, column, row, cell_texts[row], expectation) for row in positions), len(positions)
        )
    return values


def _cell_fault(name: str, column: Column, row: int, text: str, expectation: str) -> Fault:
    """Return a fault that states where a cell is, what it contains and what was expected.

    Args:
        name: The name of the file.
        column: The declaration of the cell's column.
        row: The index of the row, starting at 0 and not counting the header. In the fault, the header counts as row 1.
        text: The contents of the cell.
        expectation: A description of what the cell should contain.
    """
    hint = point_hint(text) if column.kind in ("number", "count") else ""
    where = f"row {row + 2}, column {column.label}"
    return Fault(name, where, text or "nothing", expectation + hint, is_description=not text)


def _decimal_texts(series: Series) -> NDArray[np.str_]:
    """Return the cells of a column as they were written, as an array of strings without surrounding blanks."""
    return np.asarray(plain_texts(series).str.strip_chars().to_list(), dtype=np.str_)


def _decimal_rests(written: NDArray[np.str_], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the difference between each decimal as written and the double it was read as.

    The differences are computed with 60 digits and rounded to doubles.
    """
    digits = Context(prec=60)
    pairs = zip(written.tolist(), values.tolist(), strict=True)
    return np.array([float(digits.subtract(Decimal(text), Decimal(value))) for text, value in pairs])


def _to_integers(text: Expr) -> Expr:
    """Return an expression that parses strings as whole numbers and turns all other strings into null.

    Strings such as 3.0 are accepted as 3, because programs export whole numbers in this form.
    """
    import polars as pl

    # Texts such as 3.0 or 3e2 are read as doubles, which can represent all whole numbers below 2**53 exactly.
    number = text.cast(pl.Float64, strict=False)
    exact = number.is_finite() & (number == number.round()) & (number.abs() < 2.0**53)
    rounded = pl.when(exact).then(number).cast(pl.Int64, strict=False)
    return pl.coalesce(text.cast(pl.Int64, strict=False), rounded)


def point_hint(text: str) -> str:
    """Return a hint to use a decimal point if ``text`` is a number with a decimal comma, and "" otherwise."""
    return POINT if _COMMA.fullmatch(text) else ""


def duplicate_faults(file: str, ids: NDArray[Any], column: str = "id", *, is_secret: bool = False) -> list[Fault]:
    """Return a fault for each id that also occurs in an earlier row. Ids from secret files are not quoted.

    If there are many such rows, only the first few faults are returned.

    Args:
        file: The file name to show in the faults.
        ids: The ids, one per row.
        column: The name of the id column to show in the faults.
        is_secret: Whether the file is secret.
    """
    # A row repeats an id if it is not the first row with this id.
    _, first_rows, inverse = np.unique(ids, return_index=True, return_inverse=True)
    repeats = np.flatnonzero(first_rows[inverse] != np.arange(len(ids)))
    faults = Faults()
    faults.add_rows(
        file, column, repeats.tolist(), lambda row: f"{'an id' if is_secret else ids[row]} again", "ids that differ"
    )
    return faults.listed


def check_ids(
    file: File, ids: NDArray[Any], known_ids: NDArray[Any], column: str, expectation: str
) -> NDArray[np.int64]:
    """Return the index of each id among the known ids, as an array with one entry per row.

    Args:
        file: The file that contains the ids, used in faults.
        ids: The ids to look up, one per row.
        known_ids: The known ids, without repetitions.
        column: The name of the id column, used in faults.
        expectation: A description of the expected kind of id, used in faults.

    Raises:
        InputError: Some ids are unknown. Each row with an unknown id is reported as a fault.
    """
    # Ids are found by binary search, because tables can have millions of rows.
    order = np.argsort(known_ids, kind="stable")
    insertion = np.searchsorted(known_ids[order], ids)
    # An id that is greater than all known ones is compared with the first one below, and found to differ.
    insertion[insertion == len(known_ids)] = 0
    position = order[insertion]
    faults = Faults()
    faults.add_rows(
        file.name, column, np.flatnonzero(known_ids[position] != ids).tolist(), ids.__getitem__, expectation
    )
    _check_faults(file, faults)
    return position.astype(np.int64)


def read_lines(file: File, *, min_rows: int = 1) -> NDArray[Any]:
    """Read ids from a text file with one id per line. No line may be empty.

    Args:
        file: The text file to read.
        min_rows: The minimum number of ids. Use 0 for a secret file, which may be empty.

    Returns:
        The ids, as an array of strings.

    Raises:
        InputError: A line is empty, an id occurs twice, or there are too few ids.
    """
    text = text_of(file).decode("utf-8")
    if not file.secret and normal_form(text) != text:  # solve publishes ids in the form in which they are compared
        file.seen.instead = normal_form(text).encode()
    lines = [normal_form(line.strip()) for line in text.splitlines()]
    faults = [Fault(file.name, f"row {n}", "an empty line", "an id") for n, line in enumerate(lines, 1) if not line]
    if len(lines) < min_rows:
        faults.append(
            Fault(file.name, "", number_of(len(lines), "line") if lines else "an empty file", "ids, one a line")
        )
    ids = np.asarray(lines, dtype=np.str_)
    row_by_line: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if line and line in row_by_line:
            faults.append(
                Fault(file.name, f"row {number}", f"{'an id' if file.secret else line} again", "ids that differ")
            )
        row_by_line[line] = number
    Faults(faults).check()
    return ids


def read_array(
    file: File,
    shape: tuple[int | None, int | None],
    *,
    what: str,
    minimum: float = -math.inf,
    maximum: float = math.inf,
    infinite: Callable[[NDArray[np.float64]], NDArray[np.bool_]] | None = None,
) -> NDArray[np.float64]:
    """Read a matrix of numbers from an ``.npy`` file as doubles.

    Integers that cannot be represented exactly as doubles are reported as faults.

    Args:
        file: The file, as named in the problem.
        shape: The required shape, with None for an axis of any length.
        what: The name of the array for error messages, such as ``"distances (km)"``.
        minimum: The smallest value allowed.
        maximum: The largest absolute value allowed for a finite entry.
        infinite: A function that returns a mask of the infinite entries that are allowed. By default, no infinite entry
            is allowed. NaN is never allowed.

    Raises:
        InputError: The file is not an array of the required shape, or values are invalid. Faults give the row and
            column, counted from 0.
    """
    sides = " x ".join("any" if length is None else str(length) for length in shape)
    expectation = f"{what} as an array of numbers, {sides}"
    try:
        array = parse_npy(file.contents)
    except ValueError as error:
        raise InputError([Fault(file.name, "", f"no .npy array ({error})", expectation)]) from None
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:  # longer floats differ between platforms
        raise InputError([Fault(file.name, "", f"values of type {array.dtype}", expectation)])
    if array.ndim != 2 or any(s is not None and s != n for s, n in zip(shape, array.shape, strict=True)):
        actual = " x ".join(map(str, array.shape))
        raise InputError([Fault(file.name, "", f"an array of shape {actual or 'nothing'}", expectation)])
    # Integers that are not exact as doubles would be rounded, and the published matrix would differ from the file.
    values, is_inexact = np.ascontiguousarray(array, dtype=np.float64), no_doubles(array)
    is_invalid = is_inexact | ~np.isfinite(values) | (values < minimum) | (np.abs(values) > maximum)
    if infinite is not None:
        is_invalid &= ~infinite(values)
    if is_invalid.any():
        bound = f" of at least {minimum:g}" if minimum > -math.inf else ""
        bound += f" of at most {maximum:g} in size" if maximum < math.inf else ""
        positions = np.argwhere(is_invalid).tolist()
        value_expectation = f"{what} as finite numbers{bound}"
        if is_inexact.any():
            value_expectation += ", whole ones up to 2^53, or doubles"
        faults = (
            Fault(file.name, f"row {r}, column {c} (from 0)", str(array[r, c]), value_expectation) for r, c in positions
        )
        _check_faults(file, Faults(faults, len(positions)))
    return read_only(values)


def each_once(file: File, table_ids: NDArray[Any], ids: Sequence[str]) -> Ints:
    """Return the position in ``ids`` of each id in a table, as an array with one entry per row.

    The table must contain each of ``ids`` exactly once.

    Args:
        file: The file, used in faults.
        table_ids: The ids in the table, one per row.
        ids: The ids of all records.

    Raises:
        InputError: Some ids are unknown, missing or repeated.
    """
    if faults := duplicate_faults(file.name, table_ids, is_secret=file.secret):
        raise InputError(faults)
    positions = check_ids(file, table_ids, np.asarray(ids, dtype=np.str_), "id", "the id of a record")
    missing = np.setdiff1d(np.arange(len(ids)), positions)
    if missing.size:
        example = ids[int(missing[0])] + (", ..." if missing.size > 1 else "")
        nothing = f"no row for {number_of(missing.size, 'record')} ({example})"
        raise InputError([Fault(file.name, "", nothing, "one row for each record")])
    return positions


def _osmnx_roads(edges: File) -> File:
    """Return a table of roads with the columns ``from``, ``to`` and ``km``, converting tables written by OSMnx.

    A table written by OSMnx has the columns ``u``, ``v`` and ``length`` (in metres), and each of its rows represents
    one direction of a street. Any other table is returned unchanged.
    """
    from polars import Series as PolarsSeries

    frame = table_of(edges)
    if {"from", "to", "km"} & set(frame.columns) or not {"u", "v", "length"} <= set(frame.columns):
        return edges
    number = Column(name="length", least=0.0, unit="metres")
    cell_faults = Faults()
    check_column(edges.name, frame["length"], number, cell_faults)
    _check_faults(edges, cell_faults)
    metres = plain_texts(frame["length"]).str.strip_chars().to_list()
    # Metres are divided by 1,000 as decimals, so that numbers are rounded only once, when they are read.
    km = [format(Decimal(text).scaleb(-3, Context(prec=60)), "f") for text in metres]
    text = csv_bytes(frame.select("u", "v").rename({"u": "from", "v": "to"}).with_columns(PolarsSeries("km", km)))
    if not edges.secret:
        edges.seen.instead = text
    return evolve(edges, kept=text, seen=FileUse())


MAX_ROAD_KM: Final = 1e150
"""The largest accepted length of a road, in km. Sums and squares of lengths up to this limit are finite."""


def road_table(edges: File) -> dict[str, npt.NDArray[Any]]:
    """Return the columns ``from``, ``to`` and ``km`` of a table of roads, with lengths rounded down to doubles.

    Tables written by OSMnx (with columns ``u``, ``v`` and ``length`` in metres) are also accepted. Three additional
    columns describe the lengths: ``km nearest`` contains the nearest doubles, ``km written`` the decimals as text, and
    ``km rest`` each decimal minus its nearest double.

    Args:
        edges: The file of roads.

    Raises:
        InputError: Some cells are invalid. The faults give their rows and columns.
    """
    columns = [Column(name="from", kind="id"), Column(name="to", kind="id")]
    edges = _osmnx_roads(edges)
    table = read_table(edges, [*columns, Column(name="km", least=0.0, most=MAX_ROAD_KM, unit="km", rests=True)])
    table["km nearest"] = table["km"]
    # A distance that is rounded up would promise less privacy, so a double above its decimal is replaced by the next
    # smaller double.
    table["km"] = np.where(table["km rest"] < 0.0, np.nextafter(table["km"], 0.0), table["km"])
    return table
