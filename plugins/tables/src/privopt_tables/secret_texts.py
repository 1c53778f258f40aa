"""Find columns whose cells contain their own row's secret text (an id, a name or a sentence)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final, Self

import numpy as np
import polars as pl
from attrs import frozen

from privopt.arrays import Ints
from privopt.declare.name_forms import normal_form
from privopt_tables.column_cells import ColumnPart, spread_rows
from privopt_tables.position_evidence import MAX_MATCHES, Evidence, weigh_rows

__all__ = ["MAX_TEXT_ROWS", "RowTexts"]

MAX_TEXT_ROWS: Final = 10_000
"""Maximum number of rows whose ids, names and sentences are searched for, per part of a table."""

MAX_CONTROL_TEXTS: Final = 1_000
"""Maximum number of texts that are searched for in all cells to estimate how likely chance matches are. The most
frequent texts are used."""

TEXT_CAUTION: Final = 1.2
"""The factor applied, as a precaution, to the estimated probabilities of chance matches between texts."""


@frozen(eq=False)
class RowTexts:
    """The secret ids, names or sentences of T rows, for use in searching other columns.

    Attributes:
        rows: (T,) The indices of the rows.
        texts: The text of each of these rows, normalised and case-folded.
        counts: The number of rows with each text.
        common: The most frequent texts, used to estimate the probability of chance matches.
    """

    rows: Ints
    texts: list[str]
    counts: Counter[str]
    common: frozenset[str]

    @classmethod
    def of(cls, row_texts: Sequence[str | None], rows: Ints | None) -> Self:
        """Collect the texts of the rows, or of an evenly spaced sample if more than `MAX_TEXT_ROWS` rows have a text.

        Args:
            row_texts: The text of each row, or None for a row without one.
            rows: The index of each of these rows. If None, the rows are numbered from 0.
        """
        numbers = np.arange(len(row_texts)) if rows is None else rows
        # Each distinct text is normalised once.
        forms = {text: normal_form(text).strip().casefold() for text in {*row_texts} if text is not None}
        texts = ["" if text is None else forms[text] for text in row_texts]
        indices = np.array([index for index, text in enumerate(texts) if text], dtype=np.int64)
        indices = indices[spread_rows(len(indices), MAX_TEXT_ROWS)]
        selected = [texts[index] for index in indices]
        counts = Counter(selected)
        # The most frequent texts represent the texts in all rows.
        common = frozenset(text for text, _ in counts.most_common(MAX_CONTROL_TEXTS))
        return cls(numbers[indices], selected, counts, common)

    def search(self, column: ColumnPart, chance: float) -> Evidence | None:
        """Search a column for cells that contain their own row's text as a separate word.

        Args:
            column: The column to search.
            chance: A lower limit on the estimated probability of a chance match. A chance match means that a cell
                containing the text of some row contains the text of its own row by coincidence.

        Returns:
            The evidence that the column contains the texts, or None if no row has both a text and a non-empty cell.
        """
        indices = np.flatnonzero(column.is_filled[self.rows])
        if not len(indices):
            return None
        # A cell that contains no row's text cannot contain the secret, so it is not counted as a bet (see
        # :mod:`.position_evidence`).
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
        # Every step-th row is kept, so that about MAX_MATCHES matches remain. -(-a // b) is a / b rounded up.
        step = max(1, -(-int(is_match.sum()) // MAX_MATCHES))
        near_indices, cell_list, is_match = near_indices[::step], cell_list[::step], is_match[::step]
        row_counts: dict[str, float] = {}
        chances = np.ones(len(near_indices))
        other_count = max(1, len(self.texts) - 1)
        for row in np.flatnonzero(is_match):
            if (cell := cell_list[row]) not in row_counts:
                # The number of rows whose text the cell contains. A cell that contains the texts of many rows probably
                # matches by chance.
                row_counts[cell] = sum(
                    self.counts[text] for text in self.common if text in cell and _word_pattern(text).search(cell)
                )
            # The row itself is not counted.
            matching_count = row_counts[cell] - (self.texts[near_indices[row]] in self.common)
            chances[row] = min(1.0, TEXT_CAUTION * max(matching_count / other_count, chance))
        evidence = weigh_rows(np.ones(len(near_indices), dtype=np.bool_), is_match, chances, step)
        evidence.searched = float(len(indices))
        return evidence


def _word_pattern(text: str) -> re.Pattern[str]:
    """Return a regular expression that matches a text as a separate word, optionally followed by ``.0``."""
    return re.compile(rf"(?<![^\W_]){re.escape(text)}(?:\.0+)?(?![^\W_]|[.,]\d)")
