"""Find the columns of a table whose values state a row's own secret, in whatever form, from a sample of its rows.

A column is dropped on evidence, not on a single match. Let c be the chance that a cell states the position of its row
although it has nothing to do with it: at most how often it states positions of other rows, or what its digits allow.
For a bet of a part f on each row, the product over rows of 1 - f + f * (match / c) has expectation at most 1 then, so
it exceeds :data:`MIN_EVIDENCE` with a chance of at most 1 / MIN_EVIDENCE (Markov's inequality).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import narwhals as nw
import numpy as np
from attrs import frozen

from privopt.arrays import Bools, Floats, Ints
from privopt_tables.position_codes import CODE_READERS, MAX_READINGS, Reading, read_numbers, to_mercator, to_utm

__all__ = ["MIN_DROPPED_SHARE", "PositionColumn", "RowSecrets", "find_position_columns", "sample_numbers"]

SAMPLE_ROWS: Final = 100
"""Rows with a value that are examined for each column."""

MIN_EVIDENCE: Final = 1e4
"""Odds against chance from which a column is taken for one that states the secret."""

MIN_DROPPED_SHARE: Final = 0.5
"""Share of the sample's rows from which a column that is named like positions of its own is dropped."""

BETS: Final = (0.005, 0.02, 0.1, 0.3, 0.9)
MIN_ERROR: Final = 1e-5
"""Degrees by which a coordinate may differ from the secret's: single precision keeps no more."""

MAX_CHARACTERS: Final = 20_000
"""Characters of a cell that are read."""

_WORDS: Final = re.compile(r"/{0,3}[^\W\d_]{4,}\.[^\W\d_]{4,}\.[^\W\d_]{4,}")
_MGRS: Final = re.compile(r"(?<!\d)\d{1,2}\s?[C-X]\s?[A-Z]{2}\s?(?=(?:\d\d){2,5}(?!\d)|\d+\s\d)(\d+)\s?(\d*)", re.ASCII)
_H3: Final = re.compile(r"8[0-9a-f]{14}", re.IGNORECASE)


@frozen(kw_only=True)
class PositionColumn:
    """A column that states the secret.

    Attributes:
        name: of the column.
        form: how it states the secret, in words.
        rows: rows of the sample in which it does.
        sampled: rows of the sample.
    """

    name: str
    form: str
    rows: int
    sampled: int


@frozen(kw_only=True, eq=False)
class RowSecrets:
    """What must not occur in the other columns of some rows.

    Attributes:
        positions: (B, 2) latitudes and longitudes, or x and y in km; NaN if a row has none. None if no row has one.
        is_geographic: whether these are degrees.
        texts: ids, names or sentences of each row, None if it has none; one list for each kind of text.
        text_chance: the chance that a cell names a record that is not its row's.
    """

    positions: Floats | None
    is_geographic: bool
    texts: tuple[Sequence[str | None], ...] = ()
    text_chance: float = 0.5


def sample_numbers(is_filled: Bools) -> list[int]:
    """Return the numbers of at most :data:`SAMPLE_ROWS` of the marked rows, evenly spread."""
    rows = np.flatnonzero(is_filled)
    places = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), SAMPLE_ROWS)).astype(np.int64))
    return [int(row) for row in rows[places]]


def find_position_columns(
    frame: nw.DataFrame[Any], secrets: Sequence[RowSecrets], names: Sequence[str]
) -> Iterator[PositionColumn]:
    """Yield the columns that state a secret of their row.

    Args:
        frame: some rows of the table.
        secrets: of these rows, one for each position of a row.
        names: the columns to examine.
    """
    for name in names:
        column = frame[name]
        texts: list[str] | None = None
        for secret in secrets:
            has_secret = np.zeros(len(frame), dtype=np.bool_)
            if secret.positions is not None:
                has_secret |= np.isfinite(secret.positions).all(axis=1)
            for row_texts in secret.texts:
                has_secret |= np.array([text is not None for text in row_texts], dtype=np.bool_)
            rows = sample_numbers(has_secret & ~column.is_null().to_numpy().astype(np.bool_))
            if not rows:
                continue
            texts = [_flatten(value)[:MAX_CHARACTERS] for value in column[rows].to_list()]
            rows = [row for row, text in zip(rows, texts, strict=True) if text.strip()]
            texts = [text for text in texts if text.strip()]
            if rows and (match := _examine(texts, secret, rows)) is not None:
                form, count = match
                yield PositionColumn(name=name, form=form, rows=count, sampled=len(rows))
                break


def _flatten(value: object) -> str:
    """Return a cell as text: what lists and structures hold, side by side; bytes as hexadecimal digits."""
    if value is None:
        return ""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return " ; ".join(_flatten(part) for part in value.values())
    if isinstance(value, (list, tuple, np.ndarray)):
        return " ; ".join(_flatten(part) for part in list(value)[:MAX_READINGS])
    if hasattr(value, "to_list"):
        return " ; ".join(_flatten(part) for part in value.to_list()[:MAX_READINGS])
    return str(value)


def _examine(texts: Sequence[str], secret: RowSecrets, rows: Sequence[int]) -> tuple[str, int] | None:
    """Return the form in which cells state the secret, and how many do; None if they do not."""
    for row_texts in secret.texts:
        if (count := _match_texts(texts, [row_texts[row] for row in rows], secret.text_chance)) is not None:
            return "the row's record", count
    if secret.positions is None:
        return None
    positions = secret.positions[rows]
    has_position: Bools = np.asarray(np.isfinite(positions).all(axis=1))
    cells = [
        unquote(text) if "%" in text else text for text, is_known in zip(texts, has_position, strict=True) if is_known
    ]
    positions = positions[has_position]
    if not len(positions):
        return None
    for form, readings, targets, width in _forms(cells, positions, secret.is_geographic):
        for count in _match_positions(readings, targets, width, form in CODE_READERS):
            return form, count
    if secret.is_geographic:
        for form, pattern in (("three words of an address system", _WORDS), ("a cell of a hexagonal grid", _H3)):
            count = sum(pattern.fullmatch(cell.strip()) is not None for cell in cells)
            if count >= 0.8 * len(cells) and (pattern is _WORDS or len(cells) > 1 or cells[0].strip().endswith("ff")):
                return form, count
    return None


def _forms(
    cells: Sequence[str], positions: Floats, is_geographic: bool
) -> Iterator[tuple[str, _Readings, Floats, float]]:
    """Yield each form of a position: its name, what cells read in it, (N, 2) targets, and the width of a degree."""
    numbers_by_cell = [_thin(list(read_numbers(cell))) for cell in cells]
    numbers = _Readings.of(numbers_by_cell)
    size = np.abs(positions)
    if not is_geographic:
        yield "coordinates", numbers, size, 1.0
        yield "coordinates in metres", numbers, size * 1e3, 1e3
        binary = CODE_READERS["binary coordinates"]
        yield "binary coordinates", _Readings.of([_thin(list(binary(cell))) for cell in cells]), size, 1.0
        return
    yield "coordinates", numbers, size, 1.0
    turned = np.column_stack([size[:, 0], positions[:, 1] % 360.0])
    yield "coordinates", numbers, turned, 1.0
    for form, part in (("the start of a path", slice(2)), ("the end of a path", slice(-2, None))):
        yield form, _Readings.of([cell[part] if len(cell) >= 4 else [] for cell in numbers_by_cell]), size, 1.0
    for power in range(3, 8):
        yield "coordinates as whole numbers", numbers, size * 10.0**power, 10.0**power
    yield "coordinates in metres", numbers, np.abs(to_mercator(positions)), 1.1e5
    for shift in (0, -1, 1):
        utm = to_utm(positions, shift)
        yield "UTM coordinates", numbers, utm, 1.1e5
        if shift == 0:
            yield "an MGRS reference", _Readings.of([list(_read_mgrs(cell)) for cell in cells]), utm % 1e5, 1e5
    whole = np.floor(size)
    yield "degrees and minutes", numbers, whole * 100.0 + (size - whole) * 60.0, 100.0
    yield "radians", numbers, np.radians(size), math.radians(1.0)
    for form, reader in CODE_READERS.items():
        targets = positions % 1.0 if form == "a short plus code" else positions
        targets = size if form == "binary coordinates" else targets
        yield form, _Readings.of([_thin(list(reader(cell))) for cell in cells]), targets, 1.0


def _read_mgrs(text: str) -> Iterator[Reading]:
    """Yield northings and eastings in their square of 100 km."""
    for east, north in _MGRS.findall(text.upper()):
        digits = east + north
        half = len(digits) // 2
        if 2 <= half <= 5 and len(digits) % 2 == 0:
            unit = 10.0 ** (5 - half)
            up, across = (int(part) * unit + unit / 2 for part in (digits[half:], digits[:half]))
            yield Reading(up, unit, across, unit)


def _thin(readings: list[Reading]) -> list[Reading]:
    half = MAX_READINGS // 2
    return readings if len(readings) <= MAX_READINGS else readings[:half] + readings[-half:]


@frozen(eq=False)
class _Readings:
    """What cells state: (R, 4) values and errors of both coordinates, and (R,) numbers of cells, ascending."""

    values: Floats
    cells: Ints

    @classmethod
    def of(cls, found: Sequence[Sequence[Reading]]) -> _Readings:
        """Gather what was read of each cell."""
        values = np.array([reading for cell in found for reading in cell], dtype=np.float64).reshape(-1, 4)
        return cls(values, np.repeat(np.arange(len(found)), [len(cell) for cell in found]))


@frozen(eq=False)
class _Axis:
    """Which cells state which rows' coordinate, and the chance of that by their digits alone."""

    matches: Bools
    chances: Floats


def _axis(readings: _Readings, targets: Floats, axis: int, width: float) -> _Axis:
    values, cells = readings.values[:, 2 * axis], readings.cells
    errors = np.maximum(readings.values[:, 2 * axis + 1], MIN_ERROR * width)
    is_match = np.abs(values[:, None] - targets[None, :]) <= errors[:, None] * (1 + 1e-9)
    starts = np.flatnonzero(np.diff(cells, prepend=-1))
    matches = np.zeros((len(targets), len(targets)), dtype=np.bool_)
    matches[cells[starts]] = np.logical_or.reduceat(is_match, starts, axis=0)
    is_near = np.abs(values - targets[cells]) <= np.maximum(width / 2, errors)
    by_digits = np.minimum(1.0, 2.0 * errors / width) * is_near
    return _Axis(matches, np.minimum(1.0, np.bincount(cells, by_digits, minlength=len(targets))))


def _match_positions(readings: _Readings, targets: Floats, width: float, is_code: bool) -> Iterator[int]:
    """Yield how many cells state their row's position, or one of its coordinates, if that is no chance."""
    if not len(readings.cells):
        return
    first, second = (_axis(readings, targets[:, axis], axis, width) for axis in (0, 1))
    # One number near both coordinates, such as 0 in a plane, is no position.
    has_two = is_code | (np.bincount(readings.cells, minlength=len(targets)) > 1)
    pairs = [(first.matches & second.matches & has_two[:, None], first.chances * second.chances)]
    if not is_code:
        pairs += [(first.matches, first.chances), (second.matches, second.chances)]
    for axes, (matches, chances) in zip(((0, 1), (0,), (1,)), pairs, strict=False):
        if not matches.diagonal().any():
            continue
        columns = targets[:, list(axes)]
        is_other = np.asarray((np.abs(columns[:, None, :] - columns[None, :, :]) > MIN_ERROR * width).any(axis=2))
        if (count := _weigh(matches, chances, is_other)) is not None:
            yield count


def _match_texts(texts: Sequence[str], row_texts: Sequence[str | None], chance: float) -> int | None:
    """Return how many cells contain their row's text as a word of its own, if that is no chance."""
    wanted = [None if text is None or not text.strip() else text.strip().casefold() for text in row_texts]
    patterns = {
        text: re.compile(rf"(?<![^\W_]){re.escape(text)}(?:\.0+)?(?![^\W_]|[.,]\d)")
        for text in set(wanted)
        if text is not None
    }
    cells = [text.casefold() for text in texts]
    matches = np.array(
        [
            [text is not None and text in cell and patterns[text].search(cell) is not None for text in wanted]
            for cell in cells
        ]
    )
    is_other = np.array([[text is not None and text != own for text in wanted] for own in wanted])
    return _weigh(matches, np.full(len(cells), chance), is_other)


def _weigh(matches: Bools, chances: Floats, is_other: Bools) -> int | None:
    """Return how many cells state their own row's secret, None if other rows' cells do so as often or chance does."""
    own = matches.diagonal()
    if not own.any():
        return None
    others = is_other.sum(axis=1)
    control = (matches & is_other).sum(axis=1) / np.maximum(others, 1)
    chance = np.clip(np.maximum(chances, control), 1e-9, 1.0)
    evidence = 0.0
    for bet in BETS:
        logs = np.log1p(bet * (own / chance - 1.0))
        evidence += math.exp(min(float(logs.sum()), 500.0)) / len(BETS)
    return int(own.sum()) if evidence >= MIN_EVIDENCE else None
