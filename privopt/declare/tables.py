"""Read the tables and arrays that a problem file names, with every fault named by row and column.

Rows are counted as an editor counts lines of a plain file: the header is row 1, in Parquet too.
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
    is_parquet,
    list_columns,
    plain_texts,
    repeated,
    strip_names,
    table_of,
    table_text,
    text_of,
)
from privopt.declare.name_forms import normal_form
from privopt.declare.schema import File, FileUse
from privopt.errors import Fault, Faults, InputError, conceal, number_of
from privopt.files.archive import parse_npy

__all__ = [
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
"""Added to what is expected where a comma stands there."""

_COMMA: Final = re.compile(r"[+-]?\d*,\d+")


def _to_tuple(values: Iterable[str | float]) -> tuple[str | float, ...]:
    return tuple(values)


@frozen(kw_only=True)
class Column:
    """A column that a table must or may have.

    Attributes:
        name: in the header.
        kind: ``"id"`` (text without spaces around it, not empty), ``"text"`` (unchanged, or empty), ``"number"``
            (finite double) or ``"count"`` (whole number, int64).
        optional: whether it may be missing from the header.
        least: smallest value allowed, for numbers.
        most: largest value allowed, for numbers.
        one_of: values allowed, where these can be listed: texts, or numbers.
        whole: whether numbers must be whole; they are int64 then, as of kind ``"count"``.
        unit: shown in faults.
        rests: whether ``NAME written``, the decimals as texts (rows,), and ``NAME rest`` are returned too: (rows,)
            the difference of each double from its decimal, nearly to the last bit (numbers only).
        label: its name in the header where that is another.
        blank: what an empty cell represents; None if it is a fault.
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
        """The expected content of a cell, in words."""
        if self.one_of:
            return f"one of {', '.join(map(str, self.one_of))}"
        if self.kind in ("id", "text"):
            return "an id" if self.kind == "id" else "text"
        number = ("a whole number" if self.whole else "a finite number") + (f" ({self.unit})" if self.unit else "")
        bounds = [f"at least {self.least:g}"] if self.least > -math.inf else []
        bounds += [f"at most {self.most:g}"] if self.most < math.inf else []
        return f"{number} of {' and '.join(bounds)}" if bounds else number


Table = dict[str, NDArray[Any]]
"""Columns by name: ``<U`` arrays of ids, float64 or int64 arrays of values."""


def read_table(
    file: File, columns: Sequence[Column], *, any_of: Sequence[Sequence[str]] = (), min_rows: int = 1
) -> Table:
    """Read a CSV file with a header (UTF-8, with or without BOM, LF or CRLF), or a Parquet file.

    Args:
        file: as the problem names it.
        columns: to read; others in the file are ignored, and ``solve`` publishes none of them.
        any_of: alternative sets of optional columns; exactly one set must be there in full
            (``[("lat", "lon"), ("x", "y")]``).
        min_rows: 0 if a header alone is a table too: a secret table without its last row is as private as with it.

    Returns:
        The columns found, by name, each of shape (rows,).

    Raises:
        InputError: with every fault found, up to twenty.
    """
    frame = table_of(file)
    header = frame.columns
    choice = {name for names in any_of for name in names}
    expected_labels = [c.label for c in columns if c.name not in choice]
    labels = {c.name: c.label for c in columns}
    expected_labels += [" or ".join(",".join(labels[name] for name in names) for names in any_of)] if any_of else []
    faults = [
        Fault(file.name, "header", "no column " + repr(c.label), f"columns {', '.join(expected_labels)}")
        for c in columns
        if not c.optional and c.label not in header
    ]
    repeated_labels = repeated(file)
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
            # Without a header the first row is taken for one, so that a secret file's is not quoted.
            header_text = f"columns {list_columns(header)}" if header else "no columns"
            actual = "other columns" if file.secret else header_text
            faults.append(Fault(file.name, "header", actual, f"columns {choices}, one of these alone"))
    if faults:
        raise InputError(faults)
    if frame.height < min_rows:
        raise InputError([Fault(file.name, "", "a header alone", "at least one row")])
    table: Table = {}
    cell_faults = Faults()
    for column in columns:
        if column.label in header:
            file.seen.columns.update([] if file.secret else [column.label])  # of what is published
            table[column.name] = _to_array(check_column(file.name, frame[column.label], column, cell_faults))
            if column.rests and not cell_faults.count:
                written = table[f"{column.name} written"] = _decimal_texts(frame[column.label])
                table[f"{column.name} rest"] = _decimal_rests(written, table[column.name])
    _check_faults(file, cell_faults)
    return table


def _check_faults(file: File, faults: Faults) -> None:
    """Raise the faults of a file, without values if it is secret."""
    (Faults(conceal(faults.listed), faults.count) if file.secret else faults).check()


def _to_array(series: Series) -> NDArray[Any]:
    """Convert a column to a NumPy array."""
    import polars as pl

    return np.asarray(series.to_numpy(), dtype=np.str_ if series.dtype == pl.String else None)


def check_column(name: str, series: Series, column: Column, faults: Faults) -> Series:
    """Read the cells of one column as texts, doubles or int64, and add invalid ones to ``faults``.

    Args:
        name: of the file, for faults.
        series: the cells as they were read.
        column: what they should be.
        faults: to be checked once all columns are read.
    """
    import polars as pl

    try:
        texts = plain_texts(series)
    except pl.exceptions.PolarsError:  # lists, or bytes
        type_text = f"values of type {series.dtype}"
        faults.extend([Fault(name, f"column {column.label}", type_text, "text or numbers", is_description=True)])
        return pl.zeros(len(series), eager=True)
    if column.kind == "text" and not column.one_of:  # any text will do
        return texts.fill_null("") if texts.null_count() else texts
    cell = pl.col("text").fill_null("").str.strip_chars()
    if column.kind in ("id", "text"):
        if series.dtype.is_float():
            cell = cell.replace("NaN", "")
        cells = texts.to_frame("text").select(pl.col("text").fill_null(""), stripped=cell)
        cell_texts = cells["stripped"]
        is_invalid = (cell_texts == "").to_numpy() & (column.kind == "id")
        values, is_out_of_bounds = (
            cells["stripped" if column.kind == "id" else "text"],
            np.zeros(len(series), dtype=np.bool_),
        )
    else:
        numbers = _to_integers(cell) if column.whole else cell.cast(pl.Float64, strict=False)
        cells = texts.to_frame("text").select(stripped=cell, value=numbers.fill_null(0), missing=numbers.is_null())
        cell_texts, values, missing = cells["stripped"], cells["value"], cells["missing"].to_numpy()
        is_blank = (cell_texts == "").to_numpy() & (column.blank is not None)
        array = values.to_numpy()
        is_out_of_bounds = ~missing & ((array < column.least) | (array > column.most))
        is_invalid = missing if column.whole else missing | ~np.isfinite(array)
        is_invalid, is_out_of_bounds = is_invalid & ~is_blank, is_out_of_bounds & ~is_invalid
        if is_blank.any():
            values = pl.Series(np.where(is_blank, np.asarray(column.blank, dtype=array.dtype), array))
    if column.one_of:
        is_out_of_bounds = is_out_of_bounds | (~values.is_in(list(column.one_of)).to_numpy() & ~is_invalid)
    plain_expectation = evolve(column, least=-math.inf, most=math.inf, one_of=()).expectation
    for rows, expectation in ((is_invalid, plain_expectation), (is_out_of_bounds, column.expectation)):
        positions = np.flatnonzero(rows).tolist()
        faults.extend(
            (_cell_fault(name, column, row, cell_texts[row], expectation) for row in positions), len(positions)
        )
    return values


def _cell_fault(name: str, column: Column, row: int, text: str, expectation: str) -> Fault:
    """Return the fault of one cell."""
    hint = point_hint(text) if column.kind in ("number", "count") else ""
    where = f"row {row + 2}, column {column.label}"
    return Fault(name, where, text or "nothing", expectation + hint, is_description=not text)


def _decimal_texts(series: Series) -> NDArray[np.str_]:
    """Return the texts of numbers as they are written (rows,), without surrounding blanks."""
    return np.asarray(plain_texts(series).str.strip_chars().to_list(), dtype=np.str_)


def _decimal_rests(written: NDArray[np.str_], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the written decimals less the doubles that were read (rows,), to 60 digits, as doubles."""
    digits = Context(prec=60)
    pairs = zip(written.tolist(), values.tolist(), strict=True)
    return np.array([float(digits.subtract(Decimal(text), Decimal(value))) for text, value in pairs])


def _to_integers(text: Expr) -> Expr:
    """Parse whole numbers; null if the text is not one. 3.0 is 3, because programs export it so."""
    import polars as pl

    number = text.cast(pl.Float64, strict=False)
    exact = number.is_finite() & (number == number.round()) & (number.abs() < 2.0**53)
    rounded = pl.when(exact).then(number).cast(pl.Int64, strict=False)
    return pl.coalesce(text.cast(pl.Int64, strict=False), rounded)


def point_hint(text: str) -> str:
    """Return a hint that a number needs a point instead of a comma; empty if it has none."""
    return POINT if _COMMA.fullmatch(text) else ""


def duplicate_faults(file: str, ids: NDArray[Any], column: str = "id", *, is_secret: bool = False) -> list[Fault]:
    """Return a fault for each id that occurs again. An id of a secret file is not quoted."""
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
    """Return the positions of ``ids`` among the known ids.

    Raises:
        InputError: one fault for each id that is not known.
    """
    # A binary search in the sorted ids: the tables can have millions of rows.
    order = np.argsort(known_ids, kind="stable")
    insertion = np.searchsorted(known_ids[order], ids)
    insertion[insertion == len(known_ids)] = 0
    position = order[insertion]
    faults = Faults()
    faults.add_rows(
        file.name, column, np.flatnonzero(known_ids[position] != ids).tolist(), ids.__getitem__, expectation
    )
    _check_faults(file, faults)
    return position.astype(np.int64)


def read_lines(file: File, *, min_rows: int = 1) -> NDArray[Any]:
    """Read ids, one for each line, none of them empty. ``min_rows`` is 0 for a secret file, which may be empty.

    Raises:
        InputError: a line is empty, an id occurs twice, or there are too few.
    """
    text = text_of(file).decode("utf-8")
    if not file.secret and normal_form(text) != text:  # solve publishes the form in which ids are compared
        file.seen.instead = normal_form(text).encode()
    lines = [normal_form(line.strip()) for line in text.splitlines()]
    faults = [Fault(file.name, f"row {n}", "an empty line", "an id") for n, line in enumerate(lines, 1) if not line]
    if len(lines) < min_rows:
        faults.append(Fault(file.name, "", f"{len(lines)} lines" if lines else "an empty file", "ids, one a line"))
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
    """Read an ``.npy`` matrix of numbers. Whole numbers must be doubles too, which all are up to 2^53.

    Args:
        file: as the problem names it.
        shape: that the array must have; None for a side of any length.
        what: the array in the field's words, for faults (``"distances (km)"``).
        minimum: smallest value allowed.
        maximum: largest size of a finite value allowed.
        infinite: says which infinities are allowed; none by default. NaN never is.

    Raises:
        InputError: not an array of that shape, or values that will not do, by row and column from 0.
    """
    sides = " x ".join("any" if length is None else str(length) for length in shape)
    expectation = f"{what} as an array of numbers, {sides}"
    try:
        array = parse_npy(file.contents)
    except ValueError as error:
        raise InputError([Fault(file.name, "", f"no .npy array ({error})", expectation)]) from None
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:  # longer floats are not the same everywhere
        raise InputError([Fault(file.name, "", f"values of type {array.dtype}", expectation)])
    if array.ndim != 2 or any(s is not None and s != n for s, n in zip(shape, array.shape, strict=True)):
        actual = " x ".join(map(str, array.shape))
        raise InputError([Fault(file.name, "", f"an array of shape {actual or 'nothing'}", expectation)])
    values, is_inexact = np.ascontiguousarray(array, dtype=np.float64), no_doubles(array)
    is_invalid = is_inexact | ~np.isfinite(values) | (values < minimum) | (np.abs(values) > maximum)
    if infinite is not None:
        is_invalid &= ~infinite(values)
    if is_invalid.any():
        bound = f" of at least {minimum:g}" if minimum > -math.inf else ""
        bound += f" of at most {maximum:g} in size" if maximum < math.inf else ""
        places = np.argwhere(is_invalid).tolist()
        value_expectation = f"{what} as finite numbers{bound}"
        if is_inexact.any():
            value_expectation += ", whole ones up to 2^53, or doubles"
        faults = (
            Fault(file.name, f"row {r}, column {c} (from 0)", str(array[r, c]), value_expectation) for r, c in places
        )
        _check_faults(file, Faults(faults, len(places)))
    return read_only(values)


def each_once(file: File, table_ids: NDArray[Any], ids: Sequence[str]) -> Ints:
    """Return the position in ``ids`` of each id of a table that has one row for each record.

    Raises:
        InputError: ids that are unknown, missing or there twice.
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
    """Return a table of roads with columns from, to, km in place of OSMnx's u, v, length (metres); others as they are.

    A row of OSMnx is a street in one direction; a street that runs both ways has two rows.
    """
    from polars import Series as PolarsSeries

    frame = table_of(edges)
    if {"from", "to", "km"} & set(frame.columns) or not {"u", "v", "length"} <= set(frame.columns):
        return edges
    number = Column(name="length", least=0.0, unit="metres")
    cell_faults = Faults()
    check_column(edges.name, frame["length"], number, cell_faults)
    cell_faults.check()
    metres = plain_texts(frame["length"]).str.strip_chars().to_list()
    km = [format(Decimal(text).scaleb(-3, Context(prec=60)), "f") for text in metres]
    text = csv_bytes(frame.select("u", "v").rename({"u": "from", "v": "to"}).with_columns(PolarsSeries("km", km)))
    if not edges.secret:
        edges.seen.instead = text
    return evolve(edges, kept=text, seen=FileUse())


def road_table(edges: File) -> dict[str, npt.NDArray[Any]]:
    """Read the columns from, to and km of a CSV file of roads. Lengths are rounded down to doubles.

    Edges as OSMnx writes them (u, v, length in metres) are read too.

    Raises:
        InputError: a file that will not do, by row and column.
    """
    columns = [Column(name="from", kind="id"), Column(name="to", kind="id")]
    edges = _osmnx_roads(edges)
    table = read_table(edges, [*columns, Column(name="km", least=0.0, unit="km", rests=True)])
    table["km nearest"] = table["km"]
    table["km"] = np.where(table["km rest"] < 0.0, np.nextafter(table["km"], 0.0), table["km"])
    return table
