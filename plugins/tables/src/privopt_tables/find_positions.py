"""Find the columns of a table whose cells contain their row's secret in some form.

A form is a way to write a position, such as degrees, metres or a geohash. The table may be searched part by part. Each
part adds evidence for each column and form, and :mod:`.position_evidence` decides from the total whether a column
contains the secret. This module compares numbers with coordinates. :mod:`.coordinate_chances` estimates the probability
of chance matches, :mod:`.position_codes` reads codes such as geohashes, and :mod:`.secret_texts` searches for ids,
names and sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Self
from urllib.parse import unquote

import narwhals as nw
import numpy as np
from attrs import define, field, frozen

from privopt.arrays import Bools, Floats, Ints
from privopt_tables.cell_numbers import CellNumbers
from privopt_tables.column_cells import MAX_CELLS, ColumnPart, spread_rows
from privopt_tables.coordinate_chances import MIN_ERROR, ControlValues
from privopt_tables.position_codes import MAX_READINGS, STRICT_CODES, Reading
from privopt_tables.position_evidence import BETS, Evidence, conclusive_evidence, weigh_rows
from privopt_tables.position_forms import (
    GEOGRAPHIC_CODES,
    GEOGRAPHIC_FORMS,
    PLANAR_CODES,
    PLANAR_FORMS,
    NumberForm,
    normal_longitudes,
)
from privopt_tables.secret_texts import RowTexts

__all__ = ["MIN_DROPPED_SHARE", "ColumnSearch", "PositionColumn", "RowSecrets", "find_position_columns"]

SAMPLE_ROWS: Final = 100
"""Maximum number of rows per part that are searched for codes such as geohashes, regardless of what their cells look
like."""

MAX_CODE_ROWS: Final = 500
"""Maximum number of additional rows per part that are searched for codes because their cells look like codes."""

CONTROL_ROWS: Final = 5_000
"""Maximum number of rows per part whose positions are used to estimate the probability of a chance match."""

MIN_DROPPED_SHARE: Final = 0.5
"""Minimum fraction of rows in which a column must contain the secret to be dropped, if the column's name suggests a
position or a place."""

MIN_PATTERN_SHARE: Final = 0.8
"""Minimum fraction of a column's cells that must look like three-word addresses, or like cell ids of a hexagonal grid,
for the column to be dropped."""

MAX_ERROR: Final = 0.25
"""Maximum error of a number that is compared with a coordinate, in degrees or, for planar coordinates, in km."""

FINE_ERROR: Final = 0.005
"""Maximum error of a number that counts as fine, in degrees or, for planar coordinates, in km. A number's error is the
place value of its last digit, so a number in degrees is fine if it has three or more decimals."""

_THREE_WORDS: Final = r"^/{0,3}[^\W\d_]{4,}\.[^\W\d_]{4,}\.[^\W\d_]{4,}$"
_MARKED_WORDS: Final = r"(?:^|[^:/\w])///[^\W\d_]+\.[^\W\d_]+\.[^\W\d_]+"
_H3: Final = r"(?i)^8[0-9a-f]{14}$"
_WORDS_NAME: Final = "three words of an address system"


@frozen(kw_only=True)
class PositionColumn:
    """A column whose cells were found to contain the secrets of their own rows.

    Attributes:
        name: The name of the column.
        form: A description of the form of the secret in the cells, such as "a geohash".
        rows: The number of searched rows whose cell contains the secret.
        sampled: The number of rows that were searched.
    """

    name: str
    form: str
    rows: int
    sampled: int


@frozen(kw_only=True, eq=False)
class RowSecrets:
    """The secrets of B rows, which must not appear in any other column of these rows.

    Attributes:
        positions: (B, 2) Latitudes and longitudes, or x and y in km, with NaN for a row without a position. None if the
            secrets are not positions.
        is_geographic: Whether the positions are latitudes and longitudes.
        texts: The ids, names or sentences of the rows. There is one sequence per kind of text, with None where a row
            has no text of that kind.
        text_rows: (T,) The row index of each entry in a sequence of ``texts``. If None, each sequence has one entry per
            row.
        text_chance: A lower limit on the estimated probability of a chance match. A chance match means that a cell
            containing the text of some row contains the text of its own row by coincidence.
    """

    positions: Floats | None
    is_geographic: bool
    texts: tuple[Sequence[str | None], ...] = ()
    text_rows: Ints | None = None
    text_chance: float = 0.5


def find_position_columns(
    frame: nw.DataFrame[Any], secrets: Sequence[RowSecrets], names: Sequence[str]
) -> Iterator[PositionColumn]:
    """Yield the columns whose cells contain the secrets of their own rows.

    Args:
        frame: A table, or some of its rows.
        secrets: The secrets of these rows, with one entry for each position in a row.
        names: The names of the columns to examine.
    """
    # The whole table is a single part of the search.
    search = ColumnSearch(names)
    search.add_part(frame, secrets)
    yield from search.columns()


@define
class ColumnSearch:
    """A search for columns whose cells contain the secrets of their own rows.

    A table can be searched one part at a time.

    Attributes:
        names: The names of the columns to examine.
        _evidence: The accumulated evidence, keyed by column name and form key. A form is a way to write the secret,
            such as degrees or a geohash. Its key consists of the index of the secret within the row, a word that
            encodes the form's kind and index, and the form's name.
    """

    names: Sequence[str]
    _evidence: dict[tuple[str, str], Evidence] = field(factory=dict)

    def add_part(self, frame: nw.DataFrame[Any], secrets: Sequence[RowSecrets]) -> None:
        """Search one part of the table for the secrets of its rows, and add what is found to the evidence.

        Args:
            frame: The rows of this part.
            secrets: The secrets of these rows, with one entry for each position in a row.
        """
        if not len(frame):
            return
        parts = [_SecretPart.of(secret) for secret in secrets]
        for name in self.names:
            column = ColumnPart.of(frame[name])
            for number, part in enumerate(parts):
                for form, evidence in part.search(column):
                    # Evidence from all parts accumulates in the same entry.
                    self._evidence.setdefault((name, f"{number} {form}"), Evidence()).add(evidence)

    def columns(self) -> Iterator[PositionColumn]:
        """Yield the columns for which there is enough evidence, in the order of `names`."""
        for name in self.names:
            matches = [
                (key[1], candidate)
                for key, candidate in self._evidence.items()
                if key[0] == name and candidate.is_enough
            ]
            if matches:
                # Several forms may match the secret. The one with the most matching rows is named.
                form, evidence = max(matches, key=lambda match: match[1].matches)
                yield PositionColumn(
                    name=name,
                    # The key begins with the secret's index and a word for the kind, which users need not see.
                    form=form.split(" ", 2)[2],
                    rows=round(evidence.matches),
                    sampled=max(round(evidence.searched), round(evidence.matches)),
                )

    def to_json(self) -> list[list[Any]]:
        """Return the evidence so far as JSON data that :meth:`add_json` can add to another search of the table."""
        return [
            [*key, evidence.logs.tolist(), evidence.matches, evidence.searched]
            for key, evidence in self._evidence.items()
        ]

    def add_json(self, entries: Sequence[Sequence[Any]]) -> None:
        """Add evidence found by another search in other rows.

        Args:
            entries: The result of the other search's :meth:`to_json`. Entries for columns that are not in `names` are
                ignored, as are entries whose evidence does not match the length of :data:`BETS`.
        """
        for name, form, logs, matches, searched in entries:
            if name in self.names and len(logs) == len(BETS):
                entry_evidence = Evidence(np.array(logs, dtype=np.float64), float(matches), float(searched))
                self._evidence.setdefault((name, form), Evidence()).add(entry_evidence)


@frozen(eq=False)
class _Axis:
    """The result of comparing C cells with one coordinate of their rows' positions.

    Attributes:
        near: (C,) Whether the cell contains a number near the coordinate, within half a degree or, for planar
            coordinates, half a km.
        matched: (C,) Whether the cell contains a number that equals the coordinate to within the number's error.
        pair_chances: (C,) The probability of a chance match when both coordinates are compared.
        single_chances: (C,) The probability of a chance match when only this coordinate is compared.
    """

    near: Bools
    matched: Bools
    pair_chances: Floats
    single_chances: Floats


@frozen(eq=False)
class _SecretPart:
    """The secrets of B rows, prepared for searching.

    Attributes:
        secret: The secrets as passed to :meth:`of`.
        positions: (B, 2) The positions of the rows, with longitudes from -180 to 180. The shape is (0, 2) if the
            secrets are not positions.
        has_position: (B,) Whether each row has a position.
        corners: (2, 2) The smallest (first row) and largest (second row) absolute value of each coordinate.
        texts: The texts to search for, with one entry per kind of text.
        _controls: A cache of the coordinates in a sample of the rows, keyed by form and axis (see :meth:`_control`).
    """

    secret: RowSecrets
    positions: Floats
    has_position: Bools
    corners: Floats
    texts: tuple[RowTexts, ...]
    _controls: dict[tuple[NumberForm, int], ControlValues] = field(factory=dict)

    @classmethod
    def of(cls, secret: RowSecrets) -> Self:
        """Prepare the secrets of a set of rows for searching."""
        positions = np.empty((0, 2)) if secret.positions is None else np.asarray(secret.positions, dtype=np.float64)
        if secret.is_geographic and len(positions):
            positions = normal_longitudes(positions)
        # A row that lacks one of the two coordinates counts as a row without a position.
        has_position = np.isfinite(positions[:, 0]) & np.isfinite(positions[:, 1])
        corners = np.zeros((2, 2))
        if has_position.any():
            # One axis at a time is faster than all axes of a long array.
            for axis in (0, 1):
                sizes = np.abs(positions[has_position, axis])
                corners[:, axis] = sizes.min(), sizes.max()
        texts = tuple(RowTexts.of(row_texts, secret.text_rows) for row_texts in secret.texts)
        return cls(secret, positions, has_position, corners, texts)

    def search(self, column: ColumnPart) -> Iterator[tuple[str, Evidence]]:
        """Search a column for the secret, and yield a key and the evidence for each form in which it may appear.

        The key consists of a word that encodes the form's kind and index, followed by its name. The name alone would
        not be unique.
        """
        for kind, row_texts in enumerate(self.texts):
            if (evidence := row_texts.search(column, self.secret.text_chance)) is not None:
                yield f"text{kind} the row's record", evidence
        if self.secret.positions is None:
            return
        rows = np.flatnonzero(column.is_filled & self.has_position)
        if not len(rows):
            return
        # The number of searched rows is only reported. The searches for texts and codes set it themselves.
        for index, form in enumerate(GEOGRAPHIC_FORMS if self.secret.is_geographic else PLANAR_FORMS):
            for axes, evidence in self._search_numbers(column.numbers, form):
                evidence.searched = float(len(rows))
                yield f"{axes}{index} {form.name}", evidence
        yield from self._search_codes(column, rows)

    def _search_numbers(self, numbers: CellNumbers, form: NumberForm) -> Iterator[tuple[str, Evidence]]:
        """Yield the evidence that the numbers in a column represent one or both coordinates of the rows' positions.

        Each item pairs a label with the evidence. The label says which numbers were compared (all of them, or only the
        precise ones) and with which coordinates.

        Args:
            numbers: The numbers in the cells of a column.
            form: The form in which the numbers may represent a position, such as degrees or metres.
        """
        # Numbers outside the range that the rows' positions have in this form cannot match.
        lower, upper = form.bounds(self.corners)
        is_selected = (numbers.values >= lower) & (numbers.values <= upper)
        # The start or end of a path is searched for only in cells with four or more numbers, of which the first or last
        # two are taken. Two numbers alone are a position, not a path.
        if form.part != "all":
            is_selected &= numbers.counts >= 4
            if not is_selected.any():
                return
            ranks = numbers.ranks if form.part == "start" else numbers.counts - 1 - numbers.ranks
            is_selected &= (numbers.ranks >= 0) & (ranks < 2)
        selected = np.flatnonzero(is_selected)
        cells = numbers.cells[selected]
        if not self.has_position.all():
            is_usable = self.has_position[cells]
            selected, cells = selected[is_usable], cells[is_usable]
        if not len(selected):
            return
        # The rows of the numbers, each once. Numbers are sorted by cell, so a new row begins where the cell changes.
        is_first = np.append(True, cells[1:] != cells[:-1])
        rows = cells[is_first]
        # If only some rows are compared, each of them stands for ``scale`` rows in the number of matches. In the
        # evidence, it counts as one row.
        scale = max(1.0, len(rows) / MAX_CELLS)
        if scale > 1.0:
            rows = rows[spread_rows(len(rows), MAX_CELLS)]
            is_chosen = np.zeros(len(self.has_position), dtype=np.bool_)
            is_chosen[rows] = True
            selected = selected[is_chosen[cells]]
        numbers = numbers.take(selected)
        targets = form.transform(self.positions[rows])
        is_fine = numbers.errors <= FINE_ERROR * form.width
        grades = {"all": numbers}
        # Fine numbers are also searched by themselves, so that many rows with rounded numbers do not hide a few rows
        # with full precision.
        if is_fine.any() and not is_fine.all():
            grades["fine"] = numbers.take(np.flatnonzero(is_fine))
        for grade, graded in grades.items():
            cells = np.searchsorted(rows, graded.cells)
            # A single number that is near both coordinates, such as 0 in a plane, is not a position.
            has_two = np.bincount(cells, minlength=len(rows)) > 1
            axes = [self._compare(graded.values, graded.errors, cells, targets, form, axis) for axis in (0, 1)]
            yield (
                f"{grade}-both-",
                weigh_rows(
                    axes[0].near & axes[1].near & has_two,
                    axes[0].matched & axes[1].matched & has_two,
                    axes[0].pair_chances * axes[1].pair_chances,
                    scale,
                ),
            )
            for kind, axis in zip(("first", "second"), axes, strict=True):
                yield f"{grade}-{kind}-", weigh_rows(axis.near, axis.matched, axis.single_chances, scale)

    def _search_codes(self, column: ColumnPart, rows: Ints) -> Iterator[tuple[str, Evidence]]:
        """Yield the evidence that a column contains positions as codes, such as geohashes, or as three-word addresses.

        Each item pairs a form's key with the evidence for that form.

        Args:
            column: The column to search.
            rows: The indices of the rows that have both a non-empty cell and a position.
        """
        sample = rows[spread_rows(len(rows), SAMPLE_ROWS)]
        if column.texts is not None:
            candidates = rows[spread_rows(len(rows), MAX_CELLS)]
            texts = column.texts_of(candidates)
            # Cells that look like codes are searched as well, because an evenly spaced sample would rarely include them
            # if there are few.
            coded = candidates[texts.str.contains(STRICT_CODES).to_numpy()]
            if len(coded):
                sample = np.union1d(sample, coded[spread_rows(len(coded), MAX_CODE_ROWS)])
            marked_count = int(texts.str.contains(_MARKED_WORDS).sum())
            if self.secret.is_geographic and marked_count:
                yield f"words {_WORDS_NAME}", conclusive_evidence(marked_count, len(rows))
        texts = column.texts_of(sample).str.strip_chars()
        if self.secret.is_geographic:
            for form, pattern in ((_WORDS_NAME, _THREE_WORDS), ("a cell of a hexagonal grid", _H3)):
                count = int(texts.str.contains(pattern).sum())
                # A single H3 cell might be any hexadecimal number. So it must also end like coarse H3 cells, in which
                # the bits of unused digits are all ones.
                is_clear = pattern is _THREE_WORDS or len(texts) > 1 or texts[0].lower().endswith("ff")
                if count >= MIN_PATTERN_SHARE * len(texts) and is_clear:
                    yield f"pattern {form}", conclusive_evidence(count, len(texts))
        # URLs contain codes in escaped form.
        cells = [unquote(text) if "%" in text else text for text in texts.to_list()]
        for code in GEOGRAPHIC_CODES if self.secret.is_geographic else PLANAR_CODES:
            readings = [_limit_readings(list(code.reader(cell))) for cell in cells]
            counts = [len(cell_readings) for cell_readings in readings]
            if not any(counts):
                continue
            # Shape (readings, 4): the first coordinate, its error, the second coordinate, its error.
            numbers = np.array([reading for cell_readings in readings for reading in cell_readings], dtype=np.float64)
            cell_indices = np.repeat(np.arange(len(cells)), counts)
            # The numbers that a code for each row's own position would represent.
            targets = code.transform(self.positions[sample])
            first, second = (
                self._compare(numbers[:, 2 * axis], numbers[:, 2 * axis + 1], cell_indices, targets, code, axis)
                for axis in (0, 1)
            )
            evidence = weigh_rows(
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
        """Compare the numbers found in cells with one coordinate of their rows' positions.

        Args:
            values: (R,) The numbers.
            errors: (R,) The maximum error of each number.
            cells: (R,) The index in ``targets`` of the cell that contains each number.
            targets: (C, 2) The position of each cell's row, converted to the given form.
            form: The form in which the numbers may represent a position, such as degrees or a code.
            axis: The index of the coordinate, 0 or 1.
        """
        column = targets[:, axis]
        # The factor 1 + 1e-9 covers the rounding of the difference below.
        errors = np.maximum(errors, MIN_ERROR * form.width) * (1 + 1e-9)
        distances = np.abs(values - column[cells])
        # A number with a larger error is left out. It reveals little, and could hide a match of a finer number in the
        # same cell.
        is_fine = errors <= MAX_ERROR * form.width
        is_near, is_match = is_fine & (distances <= form.width / 2), is_fine & (distances <= errors)
        has_near_number, has_match = (np.zeros(len(column), dtype=np.bool_) for _ in range(2))
        has_near_number[cells[is_near]] = True
        has_match[cells[is_match]] = True
        is_weighed = is_near & has_match[cells]
        pair_chances = single_chances = np.ones(len(column))
        if is_weighed.any():
            # Each number in a cell may match by chance, so the probabilities are added.
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

    def _control(self, form: NumberForm, axis: int) -> ControlValues:
        """Return the values of one coordinate in a sample of the rows, converted to the given form.

        Results are cached.

        Args:
            form: The form to convert the coordinates to, such as degrees or metres.
            axis: The index of the coordinate, 0 or 1.
        """
        if (form, axis) not in self._controls:
            rows = np.flatnonzero(self.has_position)
            # Evenly spaced rows are enough to estimate the density of positions.
            sample = self.positions[rows[spread_rows(len(rows), CONTROL_ROWS)]]
            # The form transforms both coordinates together, so both results are stored.
            for number, targets in enumerate(form.transform(sample).T):
                self._controls[form, number] = ControlValues.of(targets, form.width)
        return self._controls[form, axis]


def _limit_readings(readings: list[Reading]) -> list[Reading]:
    """Limit a list to `MAX_READINGS` readings by dropping those in the middle if there are more."""
    half = MAX_READINGS // 2
    return readings if len(readings) <= MAX_READINGS else readings[:half] + readings[-half:]
