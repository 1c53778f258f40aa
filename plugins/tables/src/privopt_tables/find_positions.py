"""Find the columns of a table whose values state the secret of the same row, in any of many forms.

A column is dropped on accumulated evidence, not for a single match. The statistical test is "testing by betting". A row
is a bet if its cell could state the row's secret, for example if a number is within half a degree of a coordinate. Let
c be the probability that such a cell states the secret by coincidence. This probability is estimated from the number's
digits, and from how often the cell states the secrets of other rows. If a share f of the stake is bet on each such row,
the stake is multiplied by 1 - f + f * (match / c), whose expectation in an unrelated column is at most 1. So by
Markov's inequality the product over rows exceeds :data:`MIN_EVIDENCE` with a probability of at most 1 / MIN_EVIDENCE.
The product runs over all parts of a table. Small bets find a secret that only a few rows state.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, Self
from urllib.parse import unquote

import narwhals as nw
import numpy as np
import polars as pl
from attrs import define, evolve, field, frozen

from privopt.arrays import Bools, Floats, Ints
from privopt.declare.name_forms import normal_form
from privopt_tables.cell_numbers import CellNumbers, cell_texts, numbers_of_column, numbers_of_texts
from privopt_tables.position_codes import MAX_READINGS, STRICT_CODES, Reading
from privopt_tables.position_forms import (
    GEOGRAPHIC_CODES,
    GEOGRAPHIC_FORMS,
    PLANAR_CODES,
    PLANAR_FORMS,
    NumberForm,
    normal_longitudes,
)

__all__ = [
    "MAX_TEXT_ROWS",
    "MIN_DROPPED_SHARE",
    "ColumnSearch",
    "PositionColumn",
    "RowSecrets",
    "find_position_columns",
    "spread_rows",
]

SAMPLE_ROWS: Final = 100
"""Number of rows of a part in which codes such as geohashes are searched, whatever their cells look like."""

MAX_CODE_ROWS: Final = 500
"""Number of further rows of a part in which codes are searched, among those whose cells look like codes."""

MAX_CELLS: Final = 30_000
"""Number of cells of a part, other than single numbers, in which numbers are searched; and of rows in each form."""

MAX_TEXT_ROWS: Final = 10_000
"""Number of rows of a part in which ids, names and sentences are searched."""

MAX_MATCHES: Final = 1_000
"""Number of matches of a part that are weighed. If there are more, bets are thinned to about so many matches."""

CONTROL_ROWS: Final = 5_000
"""Number of other rows of a part by whose secrets the chance of a match is estimated."""

NEIGHBOURS: Final = 10
"""Number of other rows' secrets, on each side of a number, from which their density is estimated."""

MIN_NEIGHBOURS: Final = 5
"""The least number of other rows' secrets from which a density is estimated."""

MIN_EVIDENCE: Final = 1e4
"""Odds against chance from which a column is considered to state the secret."""

MIN_DROPPED_SHARE: Final = 0.5
"""Share of rows that must state the secret before a column named like another position is dropped."""

MIN_PATTERN_SHARE: Final = 0.8
"""Share of cells, from which a column is dropped, that look like words of an address system or cells of a grid."""

BETS: Final = np.array([1e-6, 1e-5, 1e-4, 1e-3, 0.005, 0.02, 0.1, 0.3, 0.9])
"""The shares f of the stake that are bet on each row, one test for each; their mean is a test of all."""

MIN_ERROR: Final = 1e-5
"""Degrees by which a coordinate may always differ from the secret, because single precision is no finer."""

MAX_CONTROL_TEXTS: Final = 1_000
"""Number of the most frequent texts of other rows that are searched in cells which state their own row's text."""

MAX_ERROR: Final = 0.25
"""Maximum error, in degrees, of a number that states a coordinate."""

FINE_ERROR: Final = 0.005
"""Degrees up to which a number's error is small: two decimals."""

MIN_CHANCE: Final = 1e-9
"""The least chance of a match that is assumed, which bounds the evidence of one row."""

CAUTION: Final = 1.5
"""Factor by which chances are raised, because densities are estimated."""

TEXT_CAUTION: Final = 1.2
"""Factor by which the chances of texts, which are counted, are raised."""

_THREE_WORDS: Final = r"^/{0,3}[^\W\d_]{4,}\.[^\W\d_]{4,}\.[^\W\d_]{4,}$"
_MARKED_WORDS: Final = r"(?:^|[^:/\w])///[^\W\d_]+\.[^\W\d_]+\.[^\W\d_]+"
_H3: Final = r"(?i)^8[0-9a-f]{14}$"
_WORDS_NAME: Final = "three words of an address system"


@frozen(kw_only=True)
class PositionColumn:
    """A column that was found to state the secret of its rows.

    Attributes:
        name: Name of the column.
        form: The form in which it states the secret, in words.
        rows: Number of searched rows that state the secret.
        sampled: Number of rows that were searched.
    """

    name: str
    form: str
    rows: int
    sampled: int


@frozen(kw_only=True, eq=False)
class RowSecrets:
    """The secrets of a set of rows, which must not occur in other columns of the same rows.

    Attributes:
        positions: (B, 2) latitudes and longitudes, or x and y in km; NaN if a row has none. None if no row has one.
        is_geographic: Whether the positions are in degrees.
        texts: Ids, names or sentences, one sequence for each kind of text. An entry is None for a row without such a
            text.
        text_rows: (T,) numbers of the rows to which ``texts`` belong; None if they belong to all rows.
        text_chance: The probability that a cell states its row's text by coincidence.
    """

    positions: Floats | None
    is_geographic: bool
    texts: tuple[Sequence[str | None], ...] = ()
    text_rows: Ints | None = None
    text_chance: float = 0.5


def spread_rows(count: int, limit: int) -> Ints:
    """Return all row numbers, or ``limit`` evenly spaced ones, including the first and the last, if there are more.

    Args:
        count: The number of rows.
        limit: Maximum number of rows to return.
    """
    return np.linspace(0, count - 1, limit).astype(np.int64) if count > limit else np.arange(count)


def find_position_columns(
    frame: nw.DataFrame[Any], secrets: Sequence[RowSecrets], names: Sequence[str]
) -> Iterator[PositionColumn]:
    """Yield the columns that state a secret of the same row.

    Args:
        frame: A table, or some rows of it.
        secrets: The secrets of these rows, one entry for each position of a row.
        names: Names of the columns to examine.
    """
    # One part: all rows are searched together.
    search = ColumnSearch(names)
    search.add_part(frame, secrets)
    yield from search.columns()


@define
class _Evidence:
    """The evidence that a column states the secret in a certain form.

    Attributes:
        logs: (bets,) logarithm of the stake for each of :data:`BETS`. A stake is a product over rows.
        matches: Number of rows that state the secret.
        searched: Number of rows that were searched.
    """

    logs: Floats = field(factory=lambda: np.zeros(len(BETS)))
    matches: float = 0.0
    searched: float = 0.0

    def add(self, other: _Evidence) -> None:
        """Add evidence from other rows for the same column and form. Stakes multiply, so their logarithms add up."""
        self.logs = self.logs + other.logs
        self.matches += other.matches
        self.searched += other.searched

    @property
    def is_enough(self) -> bool:
        """Whether chance cannot explain the evidence: the mean stake over all bets is at least `MIN_EVIDENCE`."""
        return bool(np.logaddexp.reduce(self.logs) - np.log(len(BETS)) >= np.log(MIN_EVIDENCE))


@define
class ColumnSearch:
    """Searches a table's columns for the secrets of their rows, part by part, and decides from all parts together.

    Attributes:
        names: Names of the columns to examine.
    """

    names: Sequence[str]
    _evidence: dict[tuple[str, str], _Evidence] = field(factory=dict)
    """Evidence by column and form. A form is the number of the secret in the row, a word for its kind, and its name."""

    def add_part(self, frame: nw.DataFrame[Any], secrets: Sequence[RowSecrets]) -> None:
        """Search the columns of a part of the table for the secrets of its rows, and add the result to the evidence.

        Args:
            frame: Rows of the table.
            secrets: The secrets of these rows, one entry for each position of a row.
        """
        if not len(frame):
            return
        parts = [_SecretPart.of(secret) for secret in secrets]
        for name in self.names:
            column = _ColumnPart.of(frame[name])
            for number, part in enumerate(parts):
                for form, evidence in part.search(column):
                    # Evidence of all parts adds up in the same entry.
                    self._evidence.setdefault((name, f"{number} {form}"), _Evidence()).add(evidence)

    def columns(self) -> Iterator[PositionColumn]:
        """Yield the columns for which the evidence is sufficient, in the table's order."""
        for name in self.names:
            matches = [
                (key[1], candidate)
                for key, candidate in self._evidence.items()
                if key[0] == name and candidate.is_enough
            ]
            if matches:
                # Several forms may agree with the secret; the one that most rows have is named.
                form, evidence = max(matches, key=lambda match: match[1].matches)
                yield PositionColumn(
                    name=name,
                    # Only the name of the form is shown.
                    form=form.split(" ", 2)[2],
                    rows=round(evidence.matches),
                    sampled=max(round(evidence.searched), round(evidence.matches)),
                )

    def to_json(self) -> list[list[Any]]:
        """Return the evidence so far as JSON, for :meth:`add_json` of another search of the same table."""
        return [
            [*key, evidence.logs.tolist(), evidence.matches, evidence.searched]
            for key, evidence in self._evidence.items()
        ]

    def add_json(self, entries: Sequence[Sequence[Any]]) -> None:
        """Add the evidence that another search found in other rows.

        Args:
            entries: The result of :meth:`to_json`. Entries of other columns, or of another version, are ignored.
        """
        for name, form, logs, matches, searched in entries:
            if name in self.names and len(logs) == len(BETS):
                entry_evidence = _Evidence(np.array(logs, dtype=np.float64), float(matches), float(searched))
                self._evidence.setdefault((name, form), _Evidence()).add(entry_evidence)


@frozen(eq=False)
class _ColumnPart:
    """The cells of a column in a part of the table, with the numbers that occur in them.

    Attributes:
        rows: (C,) Numbers of the rows whose cells were read.
        numbers: The numbers in the cells. Their ``cells`` are row numbers.
        is_filled: (B,) Whether each row has a value; False for rows that were not read.
        column: The column.
        texts: (C,) The cells as text; None for a column of numbers.
    """

    rows: Ints
    numbers: CellNumbers
    is_filled: Bools
    column: nw.Series[Any]
    texts: pl.Series | None

    @classmethod
    def of(cls, column: nw.Series[Any]) -> Self:
        """Read the numbers in the cells of a column.

        In a column of text, all cells that are numbers are read, and an evenly spaced sample of the others.
        """
        # Columns of numbers need no texts, and are read whole.
        if (numbers := numbers_of_column(column)) is not None:
            is_filled = ~column.is_null().to_numpy().astype(np.bool_)
            return cls(np.flatnonzero(is_filled), numbers, is_filled, column, None)
        is_flat = column.dtype in (nw.String, nw.Categorical, nw.Enum) or column.dtype.is_temporal()
        count = len(column)
        # Cells with structures or lists are converted one by one in Python, so only a spread of them is read.
        rows = np.arange(count) if is_flat or count <= MAX_CELLS else spread_rows(count, MAX_CELLS)
        texts = cell_texts(column if len(rows) == count else column[rows.tolist()])
        is_filled = np.zeros(count, dtype=np.bool_)
        is_filled[rows] = (texts.str.strip_chars() != "").to_numpy()
        numbers, _ = numbers_of_texts(texts, MAX_CELLS)
        if len(rows) < count:
            numbers = evolve(numbers, cells=rows[numbers.cells])
        return cls(rows, numbers, is_filled, column, texts)

    def texts_of(self, rows: Ints) -> pl.Series:
        """Return the cells of the given rows as text. The rows must already have been read."""
        if self.texts is None:
            return cell_texts(self.column[rows.tolist()])
        return self.texts.gather(np.searchsorted(self.rows, rows))


@frozen(eq=False)
class _Control:
    """The values of one coordinate in many rows, from which the probability of a chance match is estimated.

    Attributes:
        values: (K,) Sorted coordinates.
        distinct: (U,) The distinct values among them, sorted.
    """

    values: Floats
    distinct: Floats

    @classmethod
    def of(cls, targets: Floats, width: float) -> Self:
        """Sort the coordinates of a set of rows, and find the distinct ones.

        Args:
            targets: The coordinates, in the unit of the form that is searched for.
            width: The change of the numbers over one degree, or one km. Coordinates that differ by at most `MIN_ERROR`
                times this change count as equal.
        """
        values = np.sort(targets)
        is_new = np.diff(values, prepend=-np.inf) > MIN_ERROR * width
        return cls(values, values[is_new])

    def chances(self, values: Floats, errors: Floats, targets: Floats, width: float, *, single: bool) -> Floats:
        """Estimate the probability that numbers near their row's coordinate match it by chance, within their errors.

        The result is the largest of three estimates: from the digits of the number, from the share of other rows'
        coordinates that match the number, and from the density of distinct coordinates around it. It is multiplied by
        `CAUTION`.

        Args:
            values: (R,) The numbers, which are within half the width of their row's coordinate.
            errors: (R,) The errors of the numbers.
            targets: (R,) The coordinates of the numbers' own rows.
            width: The change of the numbers over one degree, or over one km in the plane.
            single: Whether this coordinate is compared alone. Then other rows with an equal coordinate count as
                matches.
        """
        window, margin = width / 2, MIN_ERROR * width
        # The own row, and all rows with an equal coordinate, are left out if both coordinates are compared: rows at the
        # same place share them, which is no sign of chance.
        own_counts = _count(self.values, targets, np.full(len(targets), margin))
        if single and len(self.distinct) > 1:
            own_counts = np.minimum(own_counts, 1)
        match_counts = np.maximum(_count(self.values, values, errors) - own_counts, 0)
        near_counts = np.maximum(_count(self.values, values, np.full(len(values), window)) - own_counts, 1)
        last = len(self.distinct) - 1
        # The distinct coordinates NEIGHBOURS places below and above each value; the one at the insertion index is the
        # first above.
        insertion_indices = np.searchsorted(self.distinct, values)
        low_indices, high_indices = (
            np.clip(insertion_indices - NEIGHBOURS, 0, last),
            np.clip(insertion_indices + NEIGHBOURS - 1, 0, last),
        )
        near_distinct_counts = np.maximum(_count(self.distinct, values, np.full(len(values), window)) - 1, 0)
        neighbours = np.minimum(high_indices - low_indices, near_distinct_counts)
        span = np.maximum(self.distinct[high_indices], values) - np.minimum(self.distinct[low_indices], values)
        # If the neighbours are uniform over their span, a share 2 errors / span of them matches. The density divides
        # their number by that of all distinct coordinates in the window.
        density = neighbours / np.maximum(near_distinct_counts, 1) * 2 * errors / np.maximum(span, 2 * errors)
        # A few other rows say too little of how densely coordinates lie.
        density = np.where(neighbours >= MIN_NEIGHBOURS, density, 0.0)
        # Small numbers are more frequent than others of as many decimals: as if their logarithms were uniform.
        by_digits = errors / np.minimum(window, np.maximum(np.abs(values), errors))
        chances = np.maximum(by_digits, np.maximum(match_counts / near_counts, density))
        return np.asarray(np.minimum(1.0, CAUTION * chances))


def _count(ordered: Floats, values: Floats, radii: Floats) -> Ints:
    """Return how many of the sorted numbers are within a radius of each value.

    Args:
        ordered: Numbers in ascending order.
        values: (R,) The values.
        radii: (R,) The radius of each.
    """
    return np.asarray(np.searchsorted(ordered, values + radii, "right") - np.searchsorted(ordered, values - radii))


@frozen(eq=False)
class _Axis:
    """The result of comparing cells with one coordinate of their rows.

    Attributes:
        near: (C,) Whether the cell contains a number near the coordinate.
        matched: (C,) Whether the cell contains a number that equals the coordinate within its error.
        pair_chances: (C,) The probability of a chance match if the other coordinate is compared too.
        single_chances: (C,) The probability of a chance match if this coordinate is compared alone.
    """

    near: Bools
    matched: Bools
    pair_chances: Floats
    single_chances: Floats


@frozen(eq=False)
class _RowTexts:
    """Ids, names or sentences of a set of rows, for which other columns are searched.

    Attributes:
        rows: (T,) Numbers of the rows.
        texts: (T,) The texts of these rows, with case folded.
        counts: Number of rows that have each text.
        common: The most frequent texts.
    """

    rows: Ints
    texts: list[str]
    counts: Counter[str]
    common: frozenset[str]

    @classmethod
    def of(cls, row_texts: Sequence[str | None], rows: Ints | None) -> Self:
        """Collect the texts of the rows that have one, or of an evenly spaced sample of many rows.

        Args:
            row_texts: The text of each row, or None.
            rows: The numbers of these rows. None means 0, 1, ...
        """
        numbers = np.arange(len(row_texts)) if rows is None else rows
        # Each different text is normalised once.
        forms = {text: normal_form(text).strip().casefold() for text in {*row_texts} if text is not None}
        texts = ["" if text is None else forms[text] for text in row_texts]
        indices = np.array([index for index, text in enumerate(texts) if text], dtype=np.int64)
        indices = indices[spread_rows(len(indices), MAX_TEXT_ROWS)]
        selected = [texts[index] for index in indices]
        counts = Counter(selected)
        # The most frequent texts stand for all other rows' texts.
        common = frozenset(text for text, _ in counts.most_common(MAX_CONTROL_TEXTS))
        return cls(numbers[indices], selected, counts, common)

    def search(self, column: _ColumnPart, chance: float) -> _Evidence | None:
        """Return the evidence from the cells that contain their row's text as a separate word.

        Args:
            column: The column.
            chance: Lower limit of the estimated probability that a cell states its row's text by chance.

        Returns:
            The evidence; None if no row has both a text and a cell.
        """
        indices = np.flatnonzero(column.is_filled[self.rows])
        if not len(indices):
            return None
        # A cell that names no record at all is no bet.
        cells = column.texts_of(self.rows[indices]).str.to_lowercase()
        names_record = cells.str.contains_any(list(self.common))
        if len(self.common) < len(self.counts):
            names_record |= cells.str.contains(pl.Series(self.texts).gather(indices), literal=True)
        is_near = names_record.to_numpy()
        near_indices, cell_list = indices[is_near], [cell.casefold() for cell in cells.filter(names_record).to_list()]
        is_match = np.array(
            [
                (text := self.texts[index]) in cell and _word_pattern(text).search(cell)
                for index, cell in zip(near_indices, cell_list, strict=True)
            ],
            dtype=np.bool_,
        )
        # Rounded up, so that at most MAX_MATCHES matches remain.
        step = max(1, -(-int(is_match.sum()) // MAX_MATCHES))
        near_indices, cell_list, is_match = near_indices[::step], cell_list[::step], is_match[::step]
        row_counts: dict[str, float] = {}
        chances = np.ones(len(near_indices))
        other_count = max(1, len(self.texts) - 1)
        for row in np.flatnonzero(is_match):
            if (cell := cell_list[row]) not in row_counts:
                # How many rows have a text that the cell contains: a cell that names many records matches by chance.
                row_counts[cell] = sum(
                    self.counts[text] for text in self.common if text in cell and _word_pattern(text).search(cell)
                )
            # The row itself is no control.
            matching_count = row_counts[cell] - (self.texts[near_indices[row]] in self.common)
            chances[row] = min(1.0, TEXT_CAUTION * max(matching_count / other_count, chance))
        evidence = _weigh(np.ones(len(near_indices), dtype=np.bool_), is_match, chances, step)
        evidence.searched = float(len(indices))
        return evidence


def _word_pattern(text: str) -> re.Pattern[str]:
    """Return a pattern that matches a text as a separate word, allowing ``.0`` after a number."""
    return re.compile(rf"(?<![^\W_]){re.escape(text)}(?:\.0+)?(?![^\W_]|[.,]\d)")


@frozen(eq=False)
class _SecretPart:
    """The secrets of a set of rows, prepared for searching.

    Attributes:
        secret: The secrets.
        positions: (B, 2) The positions of the rows, with longitudes from -180 to 180. Shape (0, 2) if no row has a
            position.
        has_position: (B,) Whether each row has a position.
        corners: (2, 2) The smallest and largest absolute values of both coordinates.
        texts: The texts of the rows, one entry for each kind.
    """

    secret: RowSecrets
    positions: Floats
    has_position: Bools
    corners: Floats
    texts: tuple[_RowTexts, ...]
    _controls: dict[tuple[NumberForm, int], _Control] = field(factory=dict)

    @classmethod
    def of(cls, secret: RowSecrets) -> Self:
        """Prepare the secrets of a set of rows for searching."""
        positions = np.empty((0, 2)) if secret.positions is None else np.asarray(secret.positions, dtype=np.float64)
        if secret.is_geographic and len(positions):
            positions = normal_longitudes(positions)
        # A position with one missing coordinate is none.
        has_position = np.asarray(np.isfinite(positions).all(axis=1))
        sizes = np.abs(positions[has_position]) if has_position.any() else np.zeros((1, 2))
        corners = np.array([sizes.min(axis=0), sizes.max(axis=0)])
        texts = tuple(_RowTexts.of(row_texts, secret.text_rows) for row_texts in secret.texts)
        return cls(secret, positions, has_position, corners, texts)

    def search(self, column: _ColumnPart) -> Iterator[tuple[str, _Evidence]]:
        """Yield the name of each form of the secret, with the evidence that a column states the secret in that form.

        The name begins with a word for the kind of form and a number, which distinguish forms that have the same name.
        """
        for kind, row_texts in enumerate(self.texts):
            if (evidence := row_texts.search(column, self.secret.text_chance)) is not None:
                yield f"text{kind} the row's record", evidence
        if self.secret.positions is None:
            return
        rows = np.flatnonzero(column.is_filled & self.has_position)
        if not len(rows):
            return
        # The number of rows is only reported; the searches of texts and codes set it themselves.
        for index, form in enumerate(GEOGRAPHIC_FORMS if self.secret.is_geographic else PLANAR_FORMS):
            for axes, evidence in self._search_numbers(column.numbers, form):
                evidence.searched = float(len(rows))
                yield f"{axes}{index} {form.name}", evidence
        yield from self._search_codes(column, rows)

    def _search_numbers(self, numbers: CellNumbers, form: NumberForm) -> Iterator[tuple[str, _Evidence]]:
        """Yield the evidence that numbers in cells state both coordinates in a form, or either coordinate alone.

        Args:
            numbers: The numbers in the cells of a column.
            form: The form in which the numbers may state a position, such as degrees, another unit or swapped axes.
        """
        # Numbers out of the range that the rows' positions have in this form cannot match.
        lower, upper = form.bounds(self.corners)
        is_selected = (numbers.values >= lower) & (numbers.values <= upper)
        # Two numbers are a position; a path has four or more, and states its start or end.
        if form.part != "all":
            ranks = numbers.ranks if form.part == "start" else numbers.counts - 1 - numbers.ranks
            is_selected &= (numbers.counts >= 4) & (numbers.ranks >= 0) & (ranks < 2)
        selected = np.flatnonzero(is_selected)
        numbers = numbers.take(selected[self.has_position[numbers.cells[selected]]])
        if not len(numbers.cells):
            return
        # Numbers are sorted by cell, so this keeps each row once.
        rows = numbers.cells[np.flatnonzero(np.diff(numbers.cells, prepend=-1))]
        # Each row that is read stands for ``scale`` rows in the counts, but not in the evidence.
        scale = max(1.0, len(rows) / MAX_CELLS)
        if scale > 1.0:
            rows = rows[spread_rows(len(rows), MAX_CELLS)]
            is_chosen = np.zeros(len(self.has_position), dtype=np.bool_)
            is_chosen[rows] = True
            numbers = numbers.take(np.flatnonzero(is_chosen[numbers.cells]))
        targets = form.transform(self.positions[rows])
        is_fine = numbers.errors <= FINE_ERROR * form.width
        grades = {"all": numbers}
        # Rows with rounded numbers must not hide a few that state all digits.
        if is_fine.any() and not is_fine.all():
            grades["fine"] = numbers.take(np.flatnonzero(is_fine))
        for grade, graded in grades.items():
            cells = np.searchsorted(rows, graded.cells)
            # One number near both coordinates, such as 0 in a plane, is no position.
            has_two = np.bincount(cells, minlength=len(rows)) > 1
            axes = [self._compare(graded.values, graded.errors, cells, targets, form, axis) for axis in (0, 1)]
            yield (
                f"{grade}-both-",
                _weigh(
                    axes[0].near & axes[1].near & has_two,
                    axes[0].matched & axes[1].matched & has_two,
                    axes[0].pair_chances * axes[1].pair_chances,
                    scale,
                ),
            )
            for kind, axis in zip(("first", "second"), axes, strict=True):
                yield f"{grade}-{kind}-", _weigh(axis.near, axis.matched, axis.single_chances, scale)

    def _search_codes(self, column: _ColumnPart, rows: Ints) -> Iterator[tuple[str, _Evidence]]:
        """Yield the evidence that cells state positions as codes such as geohashes, or as words of an address system.

        Args:
            column: The column.
            rows: Numbers of the rows that have both a cell and a position.
        """
        sample = rows[spread_rows(len(rows), SAMPLE_ROWS)]
        if column.texts is not None:
            candidates = rows[spread_rows(len(rows), MAX_CELLS)]
            texts = column.texts_of(candidates)
            # Cells that look like codes are few, and would rarely be in an even sample.
            coded = candidates[texts.str.contains(STRICT_CODES).to_numpy()]
            if len(coded):
                sample = np.union1d(sample, coded[spread_rows(len(coded), MAX_CODE_ROWS)])
            marked_count = int(texts.str.contains(_MARKED_WORDS).sum())
            if self.secret.is_geographic and marked_count:
                yield f"words {_WORDS_NAME}", _certain(marked_count, len(rows))
        texts = column.texts_of(sample).str.strip_chars()
        if self.secret.is_geographic:
            for form, pattern in ((_WORDS_NAME, _THREE_WORDS), ("a cell of a hexagonal grid", _H3)):
                count = int(texts.str.contains(pattern).sum())
                # A single cell might be any hexadecimal number, so it must also end as coarse H3 cells do, whose unused
                # digits are all ones.
                is_clear = pattern is _THREE_WORDS or len(texts) > 1 or texts[0].lower().endswith("ff")
                if count >= MIN_PATTERN_SHARE * len(texts) and is_clear:
                    yield f"pattern {form}", _certain(count, len(texts))
        # Codes in addresses of the web are escaped.
        cells = [unquote(text) if "%" in text else text for text in texts.to_list()]
        for code in GEOGRAPHIC_CODES if self.secret.is_geographic else PLANAR_CODES:
            readings = [_limit_readings(list(code.reader(cell))) for cell in cells]
            counts = [len(cell_readings) for cell_readings in readings]
            if not any(counts):
                continue
            # (readings, 4): first coordinate, its error, second coordinate, its error.
            numbers = np.array([reading for cell_readings in readings for reading in cell_readings], dtype=np.float64)
            cell_indices = np.repeat(np.arange(len(cells)), counts)
            # What the code of each row's position would state.
            targets = code.transform(self.positions[sample])
            first, second = (
                self._compare(numbers[:, 2 * axis], numbers[:, 2 * axis + 1], cell_indices, targets, code, axis)
                for axis in (0, 1)
            )
            evidence = _weigh(
                first.near & second.near,
                first.matched & second.matched,
                first.pair_chances * second.pair_chances,
                len(rows) / len(sample),
            )
            evidence.searched = float(len(rows))
            yield f"code {code.name}", evidence

    def _compare(
        self, values: Floats, errors: Floats, cells: Ints, targets: Floats, form: NumberForm, axis: int
    ) -> _Axis:
        """Compare the numbers in cells with one coordinate of their rows.

        Args:
            values: (R,) The numbers.
            errors: (R,) The maximum errors of the numbers.
            cells: (R,) The index of each number's cell, into ``targets``.
            targets: (C, 2) The position of each cell's row, in the given form.
            form: The form in which the numbers may state a position, such as degrees or a code.
            axis: Index of the coordinate, 0 or 1.
        """
        column = targets[:, axis]
        # The factor covers the rounding of the difference below.
        errors = np.maximum(errors, MIN_ERROR * form.width) * (1 + 1e-9)
        distances = np.abs(values - column[cells])
        # A number of fewer digits states too little, and would hide what a finer one beside it states.
        is_fine = errors <= MAX_ERROR * form.width
        is_near, is_match = is_fine & (distances <= form.width / 2), is_fine & (distances <= errors)
        has_near_number, has_match = (np.zeros(len(column), dtype=np.bool_) for _ in range(2))
        has_near_number[cells[is_near]] = True
        has_match[cells[is_match]] = True
        is_weighed = is_near & has_match[cells]
        pair_chances = single_chances = np.ones(len(column))
        if is_weighed.any():
            # A cell with several numbers has several chances to match, which are added up.
            weighed_cells = cells[is_weighed]
            control = self._control(form, axis)
            pair_chances, single_chances = (
                np.bincount(
                    weighed_cells,
                    control.chances(
                        values[is_weighed], errors[is_weighed], column[weighed_cells], form.width, single=single
                    ),
                    minlength=len(column),
                ).astype(np.float64)
                for single in (False, True)
            )
        return _Axis(has_near_number, has_match, pair_chances, single_chances)

    def _control(self, form: NumberForm, axis: int) -> _Control:
        """Return the values of one coordinate in all rows, in the given form. The result is cached."""
        if (form, axis) not in self._controls:
            rows = np.flatnonzero(self.has_position)
            # A spread of rows is enough to estimate how densely positions lie.
            sample = self.positions[rows[spread_rows(len(rows), CONTROL_ROWS)]]
            # Both coordinates are transformed together, so that both are stored.
            for number, targets in enumerate(form.transform(sample).T):
                self._controls[form, number] = _Control.of(targets, form.width)
        return self._controls[form, axis]


def _weigh(near: Bools, matched: Bools, chances: Floats, scale: float) -> _Evidence:
    """Return the evidence that a set of rows contributes.

    Args:
        near: (C,) Whether the row is a bet.
        matched: (C,) Whether the row states the secret.
        chances: (C,) The probability that such a row of an unrelated column states the secret.
        scale: The number of rows that each of these rows represents in the counts.
    """
    count = int(matched.sum())
    rows = np.flatnonzero(near)
    if count > MAX_MATCHES:
        # So many matches are conclusive anyway, and the next sum has an entry for each. Matches and misses are thinned
        # alike: the evidence becomes weaker, but is not biased.
        rows = rows[:: -(-count // MAX_MATCHES)]
    is_match = matched[rows]
    # A bet f multiplies the stake by 1 - f without a match, and by 1 + f (1 / c - 1) with one.
    odds = 1.0 / np.clip(chances[rows[is_match]], MIN_CHANCE, 1.0) - 1.0
    logs = (len(rows) - len(odds)) * np.log1p(-BETS) + np.log1p(BETS * odds[:, None]).sum(axis=0)
    return _Evidence(logs, count * scale)


def _certain(matches: int, searched: int) -> _Evidence:
    """Return conclusive evidence, for cells whose pattern alone shows that they state a place."""
    return _Evidence(np.full(len(BETS), 2 * np.log(MIN_EVIDENCE)), float(matches), float(searched))


def _limit_readings(readings: list[Reading]) -> list[Reading]:
    """Return at most `MAX_READINGS` readings of a cell: the first and the last ones, which are the ends of a path."""
    half = MAX_READINGS // 2
    return readings if len(readings) <= MAX_READINGS else readings[:half] + readings[-half:]
