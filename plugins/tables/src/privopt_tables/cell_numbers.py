"""Convert the cells of a column to strings, and extract the numbers and angles in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import narwhals as nw
import numpy as np
import polars as pl
from attrs import frozen

from privopt.arrays import Bools, Floats, Ints
from privopt.declare.frames import normalize_texts, without_far_dates
from privopt_tables.position_codes import MAX_READINGS

__all__ = ["CellNumbers", "cell_texts", "flatten_cell", "numbers_of_column", "numbers_of_texts"]

MAX_CHARACTERS: Final = 20_000
"""The maximum number of characters to read from a cell."""

_SEPARATOR: Final = " ; "
"""The separator between the elements of a list or structure, which keeps numbers in adjacent elements apart."""
# Regular expressions for a plain number, a number with a decimal comma, the minutes or the seconds of an angle, both of
# them, and an angle in degrees, whose degrees are followed by a sign in the first pattern and by a space in the second.
_NUMBER: Final = r"[0-9]{1,40}(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,2})?"
_COMMA_NUMBER: Final = r"[0-9]{1,40},[0-9]+"
# Signs that separate groups of three digits, and the decimal points that occur with each.
_BLANKS: Final = " \u00a0\u2009\u202f"
_GROUPING: Final = ((",", "."), (".", ","), ("'’", ".,"), (_BLANKS, ".,"))
_MINUTES: Final = r"([0-9]{1,2}(?:[.,][0-9]+)?)"
_REST: Final = rf"\s*{_MINUTES}\s*(?:(?:['′’m:]|min|\s)\s*{_MINUTES}?)?"
_ANGLES: Final = (rf"([0-9]{{1,3}})\s*(?:[°ºd:]|deg){_REST}", rf"([0-9]{{1,3}})\s{_REST}")
# URL escapes of characters that occur next to numbers. They are decoded, or their digits would be read as part of a
# number.
_ESCAPES: Final = {"%2C": ",", "%2c": ",", "%20": " ", "%2E": ".", "%2e": ".", "%3B": ";", "%3b": ";", "%7C": "|"} | {
    "%7c": "|",
    "%2F": "/",
    "%2f": "/",
    "%3D": "=",
    "%3d": "=",
    "%28": "(",
    "%29": ")",
    "%5B": "[",
    "%5b": "[",
    "%5D": "]",
    "%5d": "]",
    "%C2%B0": "°",
    "%c2%b0": "°",
    "%27": "'",
    "%22": '"',
    "%3A": ":",
    "%3a": ":",
}
_MAX_DECIMALS: Final = 9
"""The maximum number of decimals assumed for a double. The search does not distinguish smaller errors."""


@frozen(eq=False)
class CellNumbers:
    """The absolute values of the numbers that occur in a set of cells.

    Attributes:
        values: (R,) The absolute values.
        errors: (R,) The place value of each number's last digit, such as 0.01 for 2.25.
        cells: (R,) The index of the cell in which each number occurs, in ascending order.
        ranks: (R,) The index of each number within its cell. It is -1 for an alternative reading, such as an angle, of
            digits that are also read as plain numbers.
        counts: (R,) For each number, the count of numbers of the same kind in its cell.
    """

    values: Floats
    errors: Floats
    cells: Ints
    ranks: Ints
    counts: Ints

    def take(self, indices: Ints) -> CellNumbers:
        """Return a new instance that contains only the numbers at the given indices."""
        return CellNumbers(
            self.values[indices], self.errors[indices], self.cells[indices], self.ranks[indices], self.counts[indices]
        )

    @classmethod
    def concatenate(cls, parts: Sequence[CellNumbers]) -> CellNumbers:
        """Combine several instances into one that is sorted by cell."""
        cells = np.concatenate([part.cells for part in parts])
        values, errors = (np.concatenate([getattr(part, name) for part in parts]) for name in ("values", "errors"))
        ranks, counts = (np.concatenate([getattr(part, name) for part in parts]) for name in ("ranks", "counts"))
        return cls(values, errors, cells, ranks, counts).take(np.argsort(cells, kind="stable"))


def flatten_cell(value: object) -> str:
    """Convert a cell to a string. Elements of lists and structures are joined, and bytes are written in hexadecimal."""
    if value is None:
        return ""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return _SEPARATOR.join(flatten_cell(part) for part in value.values())
    if isinstance(value, (list, tuple, np.ndarray)):
        return _SEPARATOR.join(flatten_cell(part) for part in list(value)[:MAX_READINGS])
    # The value is a polars series.
    if hasattr(value, "to_list"):
        return _SEPARATOR.join(flatten_cell(part) for part in value.to_list()[:MAX_READINGS])
    return str(value)


def cell_texts(column: nw.Series[Any]) -> pl.Series:
    """Convert a column's cells to strings of at most :data:`MAX_CHARACTERS` characters. Missing values become empty."""
    native = column.to_native()
    if not isinstance(native, pl.Series):
        # Columns from pandas or pyarrow are converted value by value.
        missing = column.is_null().to_list()
        values = zip(column.to_list(), missing, strict=True)
        texts = pl.Series(["" if is_missing else flatten_cell(value) for value, is_missing in values], dtype=pl.String)
    else:
        texts = _texts_of_series(native)
    texts = texts.fill_null("")
    # Bytes are faster to count than characters, and a text has at least as many of them.
    if (texts.str.len_bytes().max() or 0) > MAX_CHARACTERS:
        texts = texts.str.slice(0, MAX_CHARACTERS)
    return normalize_texts(texts)


def _texts_of_series(column: pl.Series) -> pl.Series:
    """Convert a polars column of any type to a column of strings."""
    if column.dtype == pl.String:
        return column
    if column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object, pl.Duration):
        return pl.Series([flatten_cell(value) for value in column.to_list()], dtype=pl.String)
    return without_far_dates(column).cast(pl.String)


def numbers_of_column(column: nw.Series[Any]) -> CellNumbers | None:
    """Return the numbers in a column of integers or floats, or None if the column has any other type."""
    if not column.dtype.is_numeric() or isinstance(column.dtype, nw.Decimal):
        return None
    doubles = column.cast(nw.Float64).to_numpy().astype(np.float64)
    is_number = np.isfinite(doubles) & ~column.is_null().to_numpy().astype(np.bool_)
    values = np.abs(doubles[is_number])
    # A double does not tell how many decimals were written, so the smallest number that gives the same double is
    # assumed.
    errors = np.ones(len(values)) if column.dtype.is_integer() else _last_digits(values)
    return _single_numbers(values, errors, np.flatnonzero(is_number))


def _last_digits(values: Floats) -> Floats:
    """Return the place value of each double's last decimal digit, such as 1 for a whole number or 0.01 for 2.25."""
    errors = np.full(len(values), 10.0**-_MAX_DECIMALS)
    remaining = np.arange(len(values))
    for decimals in range(_MAX_DECIMALS):
        scaled = values[remaining] * 10.0**decimals
        # A number with at most this many decimals becomes a whole number when scaled, up to rounding errors.
        is_exact = np.abs(scaled - np.rint(scaled)) <= 1e-12 * np.maximum(1.0, scaled)
        errors[remaining[is_exact]] = 10.0**-decimals
        remaining = remaining[~is_exact]
    return errors


def _single_numbers(values: Floats, errors: Floats, cells: Ints) -> CellNumbers:
    """Return the :class:`CellNumbers` of cells that contain one number each."""
    return CellNumbers(values, errors, cells, np.zeros(len(cells), np.int64), np.ones(len(cells), np.int64))


def numbers_of_texts(texts: pl.Series, max_cells: int) -> CellNumbers:
    """Extract the numbers in a column of strings.

    All cells that consist of a single number are read. Among the other cells that contain digits, at most ``max_cells``
    are read, evenly spaced over the column.

    Args:
        texts: The cells.
        max_cells: The maximum number of cells to read that contain digits but do not consist of a single number.
    """
    # Polars also reads words such as inf and nan as numbers. isfinite excludes them.
    values = texts.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
    is_single_number = np.isfinite(values)
    parts, single_rows = [], np.flatnonzero(is_single_number)
    if len(single_rows):
        errors = _last_decimals(texts.filter(pl.Series(is_single_number)))
        parts.append(_single_numbers(np.abs(values[is_single_number]), errors, single_rows))
    other_cells = np.flatnonzero(~is_single_number & texts.str.contains("[0-9]").to_numpy())
    # Matching patterns is slow, so only some of the texts in a large table are searched.
    if len(other_cells) > max_cells:
        other_cells = other_cells[np.linspace(0, len(other_cells) - 1, max_cells).astype(np.int64)]
    if len(other_cells):
        cells = texts.gather(other_cells)
        # The cells may be URLs, in which characters next to numbers are escaped.
        if cells.str.contains("%[0-9a-fA-F]{2}").any():
            cells = cells.str.replace_many(list(_ESCAPES), list(_ESCAPES.values()))
        parts += _extract(cells, other_cells)
    if not parts:
        empty = np.empty(0)
        return _single_numbers(empty, empty, empty.astype(np.int64))
    return CellNumbers.concatenate(parts)


def _extract(cells: pl.Series, rows: Ints) -> list[CellNumbers]:
    """Extract numbers from cells: plain, with decimal commas, in groups of digits, or as angles of up to three parts.

    Args:
        cells: The cells as strings.
        rows: The row index of each cell in the column.

    Returns:
        The plain numbers, followed by the numbers found for each additional pattern that may occur in the cells. All
        but the plain numbers have the rank -1, because their digits are also read as plain numbers.
    """
    tokens, places, ranks, counts = _tokens(cells, _NUMBER)
    parts = [CellNumbers(*_parse(tokens), rows[places], ranks, counts)]
    chosen = np.flatnonzero(cells.str.contains("[0-9],[0-9]").to_numpy())
    if len(chosen):
        tokens, places, _, counts = _tokens(cells.gather(chosen), _COMMA_NUMBER)
        values, errors = _parse(tokens.str.replace(",", ".", literal=True))
        parts.append(CellNumbers(values, errors, rows[chosen[places]], np.full(len(values), -1), counts))
    for separators, points in _GROUPING:
        chosen = np.flatnonzero(cells.str.contains(f"[0-9][{separators}][0-9]{{3}}").to_numpy())
        if len(chosen):
            pattern = f"[0-9]{{1,3}}(?:[{separators}][0-9]{{3}})+(?:[{points}][0-9]+)?"
            tokens, places, _, counts = _tokens(cells.gather(chosen), pattern)
            # A sign that separates groups is removed first, because it may be the decimal point of other numbers.
            tokens = tokens.str.replace_all(f"[{separators}]", "").str.replace(",", ".", literal=True)
            values, errors = _parse(tokens)
            parts.append(CellNumbers(values, errors, rows[chosen[places]], np.full(len(values), -1), counts))
    # Few columns contain angles, so a quick pattern is tried before each slow one.
    for prefilter, pattern in zip(("[0-9]\\s*[°ºd:]", "[0-9]\\s+[0-9]"), _ANGLES, strict=True):
        chosen = np.flatnonzero(cells.str.contains(prefilter).to_numpy())
        if len(chosen):
            tokens, places, _, counts = _tokens(cells.gather(chosen), pattern)
            values, errors, is_angle = _parse_angles(tokens, pattern)
            angles = CellNumbers(values, errors, rows[chosen[places]], np.full(len(values), -1), counts)
            parts.append(angles.take(np.flatnonzero(is_angle)))
    return parts


def _tokens(cells: pl.Series, pattern: str) -> tuple[pl.Series, Ints, Ints, Ints]:
    """Find all matches of a pattern in cells.

    If a cell has more than ``MAX_READINGS`` matches, only the first and the last ``MAX_READINGS // 2`` of them are
    returned.

    Args:
        cells: The cells as strings.
        pattern: A regular expression.

    Returns:
        The matches and, for each match, the index of its cell, its index within the cell, and the number of matches in
        the cell.
    """
    lists = cells.str.extract_all(pattern)
    counts = lists.list.len().to_numpy().astype(np.int64)
    places = np.repeat(np.arange(len(cells)), counts)
    # A cell's matches are adjacent, so a match's rank is its index minus that of the cell's first match.
    ranks = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
    of_cell = np.repeat(counts, counts)
    tokens = lists.explode().drop_nulls()
    half = MAX_READINGS // 2
    if counts.max(initial=0) > MAX_READINGS:
        is_read = (ranks < half) | (ranks >= of_cell - half)
        tokens = tokens.filter(pl.Series(is_read))
        places, ranks, of_cell = places[is_read], ranks[is_read], of_cell[is_read]
    return tokens, places, ranks, of_cell


def _parse(tokens: pl.Series) -> tuple[Floats, Floats]:
    """Parse numbers, and return their values and the place values of their last digits."""
    return tokens.cast(pl.Float64, strict=False).fill_null(0.0).to_numpy(), _last_decimals(tokens)


def _last_decimals(tokens: pl.Series) -> Floats:
    """Return the place value of each number's last digit, such as 0.01 for 2.25 or 100 for 1.5e3."""
    # The number of characters after the decimal point, or 0 if there is none.
    decimals = (tokens.str.len_bytes().cast(pl.Int64) - tokens.str.find(".", literal=True) - 1).fill_null(0)
    powers = -decimals.to_numpy().astype(np.float64)
    has_exponent = tokens.str.contains_any(["e", "E"])
    if has_exponent.any():
        marked = tokens.filter(has_exponent)
        exponents = marked.str.extract(r"[eE]([-+]?[0-9]+)", 1).cast(pl.Float64).fill_null(0.0).to_numpy()
        mantissas = marked.str.extract(r"\.([0-9]+)", 1).str.len_bytes().fill_null(0).to_numpy().astype(np.float64)
        # For example, 1.5e3 is accurate to hundreds: its exponent 3 minus one decimal gives the power 2.
        powers[has_exponent.to_numpy()] = exponents - mantissas
    # The powers are clipped, so that a long sequence of digits cannot make the place value 0 or infinite.
    return np.asarray(10.0 ** np.clip(powers, -60.0, 60.0))


def _parse_angles(tokens: pl.Series, pattern: str) -> tuple[Floats, Floats, Bools]:
    """Convert angles in degrees, minutes and seconds to degrees.

    Args:
        tokens: The angles as strings.
        pattern: A regular expression with a group for each of the three parts.

    Returns:
        The angles in degrees, the place values of their last digits in degrees, and whether each angle is valid, i.e.
        whether its minutes and seconds are below 60.
    """
    groups = tokens.str.extract_groups(pattern).struct.unnest()
    degrees, minutes, seconds = (
        groups.to_series(index).str.replace(",", ".", literal=True).fill_null("") for index in range(3)
    )
    # Missing parts count as 0.
    numbers = [_parse(part.replace("", "0"))[0] for part in (degrees, minutes, seconds)]
    units = [_parse(part.replace("", "0"))[1] for part in (minutes, seconds)]
    has_seconds = (seconds != "").to_numpy()
    # The last part that is present determines the precision of the angle.
    errors = np.where(has_seconds, units[1] / 3600.0, units[0] / 60.0)
    values = numbers[0] + numbers[1] / 60.0 + numbers[2] / 3600.0
    return values, errors, np.asarray((numbers[1] < 60.0) & (numbers[2] < 60.0))
