"""Is a table aggregated? Recognise the column that says how many individuals a row counts by its values.

An aggregated table has a row for each combination of region and attributes. Rows of individuals that all differ are
a rare chance, unless there are more combinations than rows. A column of numbers without which the rows differ all the
same is no attribute that tells them apart: it is what was counted, and its values are secret.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl
from attrs import frozen

from privopt.declare.frames import plain_texts
from privopt.errors import Fault, InputError
from privopt_hierarchical_dp.level_tables import LevelTable
from privopt_hierarchical_dp.tables.table_words import is_count_name

__all__ = [
    "CountSuspects",
    "counts_rows",
    "find_count_suspects",
    "find_redundant_columns",
    "find_undeclared_counts",
    "refuse_unclear",
]

MAX_ROWS: Final = 200_000
"""Rows that are looked at: those of an aggregated table differ in any part of it."""

MAX_ATTRIBUTE_VALUES: Final = 50
"""Values of a column that is taken for an attribute, at most."""

MAX_CHANCE: Final = 0.01
"""Chance, at most, that rows of individuals differ as much as those of a table that is taken for an aggregated one."""

_NUMBER: Final = (
    r"^[\s(<>≤≥~=±]*[+-]?(\d{1,3}([,.'’\s\u{a0}\u{202f}\u{2009}]\d{3})+([.,]\d+)?|\d+([.,]\d*)?([eE][+-]?\d+)?|[.,]\d+)"
    r"[\s)%*]*[a-z]{0,2}\)?$"
)
"""A number as statistical offices write it: with separators of thousands, limits and flags."""


@frozen(kw_only=True)
class CountSuspects:
    """Columns that may say how many individuals a row counts.

    Attributes:
        certain: The column that is taken for the count; None if there is none, or more than one could be it.
        columns: All columns whose values may be counts, in the table's order. Nothing publishes their values.
    """

    certain: str | None
    columns: tuple[str, ...]


@frozen(kw_only=True)
class _Columns:
    """The columns of a table by what they hold, as text.

    Attributes:
        frame: Names of regions and all other columns, the first rows.
        levels: Names of the columns of regions.
        numbers: Columns of numbers.
        texts: The other columns, but for those that differ in each row.
    """

    frame: pl.DataFrame
    levels: tuple[str, ...]
    numbers: tuple[str, ...]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, table: LevelTable, names: Sequence[str]) -> _Columns:
        """Sort columns of a table into numbers and others."""
        head = table.frame.head(MAX_ROWS)
        texts = [
            plain_texts(head[name]).fill_null("").str.strip_chars().alias(name) for name in (*table.levels, *names)
        ]
        frame = pl.DataFrame(texts)
        numbers = [name for name in names if _holds_numbers(frame[name])]
        others = [
            name
            for name in names
            if name not in numbers and (frame.height == 1 or frame[name].n_unique() < frame.height)
        ]
        return cls(frame=frame, levels=table.levels, numbers=tuple(numbers), texts=tuple(others))

    def is_constant(self, name: str) -> bool:
        """Return whether a column has one value in all of several rows."""
        return self.frame.height > 1 and int(self.frame[name].n_unique()) == 1

    def count_distinct(self, columns: Sequence[str]) -> int:
        """Return how many different rows the table has by some of its columns."""
        return int(self.frame.select(pl.struct(*columns).n_unique()).item())

    def are_distinct(self, columns: Sequence[str]) -> bool:
        """Return whether the rows differ by some of the columns."""
        return self.count_distinct(columns) == int(self.frame.height)

    def key_without(self, *names: str) -> tuple[str, ...]:
        """Return the columns that may tell rows apart, without some, and without numbers that differ in each row."""
        numbers = [
            name for name in self.numbers if name not in names and self.frame[name].n_unique() < self.frame.height
        ]
        return (*self.levels, *(name for name in self.texts if name not in names), *numbers)

    def is_determined(self, name: str) -> bool:
        """Return whether another column or the region alone determines a column, as a label does its code."""
        keys = [list(self.levels), *([column] for column in (*self.texts, *self.numbers) if column != name)]
        return any(self.count_distinct([*key, name]) == self.count_distinct(key) < self.frame.height for key in keys)

    def chance_of_individuals(self, key: Sequence[str]) -> float:
        """Bound the chance that so many rows of individuals, each drawn by itself, would be so different by a key.

        Individuals who are drawn evenly differ most often, so it holds for any distribution over the cells.
        """
        rows, distinct, cells = self.frame.height, self.count_distinct(key), self._count_cells(key)
        if distinct == rows and rows <= cells:
            return math.exp(float(np.log1p(-np.arange(rows) / cells).sum()))
        times = self.frame.group_by(*key).len()["len"]
        if times.min() == times.max():  # as in a table that lacks one of its columns: each cell occurs twice, say
            log_chance = math.lgamma(rows + 1) - distinct * math.lgamma(int(times[0]) + 1) - rows * math.log(distinct)
            return math.exp(min(0.0, log_chance))
        expected = -cells * math.expm1(rows * math.log1p(-1.0 / cells)) if cells > 1 else 1.0
        # McDiarmid: another individual changes the number of cells that are not empty by 1 at most.
        return math.exp(-2.0 * max(0.0, distinct - expected) ** 2 / rows)

    def _count_cells(self, key: Sequence[str]) -> float:
        """Estimate how many combinations a key could have; a column that another one determines adds none."""
        levels = [name for name in key if name in self.levels]
        cells, selected = self._count_values(levels), [levels]
        for name in key:
            if name in levels or any(
                self.count_distinct([*selection, name]) == self.count_distinct(selection) for selection in selected
            ):
                continue
            cells *= self._count_values([name])
            selected.append([name])
        return cells

    def _count_values(self, columns: Sequence[str]) -> float:
        """Estimate how many values columns have, those that no row shows too.

        If most values occur once, there are probably many more: ten persons of ten regions may be of a thousand.

        Source:
            A. Chao, Nonparametric Estimation of the Number of Classes in a Population, Scandinavian Journal of
            Statistics 11, 1984; in the form without bias.
        """
        rows = self.frame.group_by(*columns).len()["len"]
        single_count, pair_count = int((rows == 1).sum()), int((rows == 2).sum())
        return len(rows) + single_count * (single_count - 1) / (2 * (pair_count + 1))


def find_count_suspects(table: LevelTable, names: Sequence[str]) -> CountSuspects:
    """Find the columns that may say how many individuals a row counts, and the one that does if that is clear.

    A column of numbers may be a count if it is called like one, or if the rows differ without it. It is the count if
    both hold, or if individuals would differ so with a chance of less than 1 %; and if no other column could be it.

    Args:
        table: Any table of individuals or of counts.
        names: Its columns besides those of regions.
    """
    columns = _Columns.of(table, names)
    if not columns.frame.height:
        return CountSuspects(certain=None, columns=())
    suspects: list[str] = []
    unlikely: list[str] = []
    clear: list[str] = []
    for name in columns.numbers:
        key = columns.key_without(name)
        attributes = [
            key_name
            for key_name in key
            if key_name in columns.levels or columns.frame[key_name].n_unique() <= MAX_ATTRIBUTE_VALUES
        ]
        is_distinct, is_named = columns.are_distinct(key), is_count_name(name)
        chances = [
            columns.chance_of_individuals(key_name) for key_name in (attributes, *([key] if is_distinct else []))
        ]
        is_aggregated = min(chances) < MAX_CHANCE
        if not (is_distinct or is_named or is_aggregated):
            continue
        is_unlikely = columns.is_constant(name) or counts_rows(columns.frame[name])
        (unlikely if is_unlikely and not is_named else suspects).append(name)
        if is_distinct and (is_named or is_aggregated) and _holds_whole_numbers(columns.frame[name]):
            clear.append(name)
    suspects = suspects or unlikely  # a year, or a number of the row, unless nothing else could be a count
    clear = [name for name in clear if name in suspects]
    named = [name for name in suspects if is_count_name(name)]
    # Rows that differ without any of the numbers leave open which of several was counted: perhaps all of them were.
    are_measures = columns.are_distinct((*columns.levels, *columns.texts)) and len(suspects) > 1
    is_certain = len(clear) == 1 and named in ([], clear) and not are_measures
    return CountSuspects(certain=clear[0] if is_certain else None, columns=tuple(suspects))


def find_redundant_columns(table: LevelTable, names: Sequence[str], count: str) -> list[str]:
    """Find columns of numbers, beside the count, that do not tell the rows apart: they may be counts, too.

    Args:
        table: A table of counts.
        names: Its columns besides those of regions.
        count: The column that says how many individuals a row counts.
    """
    columns = _Columns.of(table, names)
    if not columns.frame.height:
        return []
    return [
        name
        for name in columns.numbers
        if name != count and (is_count_name(name) or columns.are_distinct(columns.key_without(name, count)))
    ]


def find_undeclared_counts(table: LevelTable, names: Sequence[str], count: str) -> tuple[str, ...]:
    """Find attributes of a table of counts whose values are counts, too, beyond what chance explains.

    Args:
        table: A table of counts.
        names: Its attributes.
        count: The column that says how many individuals a row counts.
    """
    columns = _Columns.of(table, [*names, count])
    return tuple(
        name
        for name in find_redundant_columns(table, [*names, count], count)
        if is_count_name(name)
        or (
            columns.chance_of_individuals(columns.key_without(name, count)) < MAX_CHANCE
            and not columns.is_determined(name)
        )
    )


def refuse_unclear(suspects: CountSuspects, source: str, cure: str) -> None:
    """Refuse a table of which it is not clear whether a row is one individual.

    Args:
        suspects: Its columns that may be counts.
        source: The table's name.
        cure: How its owner says what holds.

    Raises:
        InputError: A fault that names the columns, and no value.
    """
    named = " and ".join(f"column {name}" for name in suspects.columns)
    actual = f"{named}: numbers that may be how many individuals a row counts"
    raise InputError([Fault(source, "", actual, cure)])


def _holds_numbers(texts: pl.Series) -> bool:
    """Return whether a column holds numbers, besides a few marks of what is suppressed or missing."""
    values = texts.filter(texts != "").unique()
    if not len(values):
        return False
    is_number = values.str.normalize("NFKC").str.contains(_NUMBER)
    others = len(values) - int(is_number.sum())
    return (
        bool(is_number.any()) and (others <= 5 or 2 * others <= len(values)) and _is_mostly_numbers(values, is_number)
    )


def _is_mostly_numbers(values: pl.Series, is_number: pl.Series) -> bool:
    """Return whether what is no number is a mark, of few letters, and not the other half of an attribute's values."""
    marks = values.filter(~is_number)
    return not len(marks) or 2 * len(marks) <= len(values) or bool((marks.str.len_chars() <= 4).all())


def _holds_whole_numbers(texts: pl.Series) -> bool:
    """Return whether every cell is a whole number of at least 0."""
    numbers = texts.cast(pl.Float64, strict=False)
    return not numbers.null_count() and bool(((numbers >= 0) & (numbers == numbers.round())).all())


def counts_rows(texts: pl.Series) -> bool:
    """Return whether a column numbers the rows, as programs write an index."""
    numbers = texts.cast(pl.Int64, strict=False)
    return (
        len(texts) > 2 and not numbers.null_count() and numbers[0] in (0, 1) and bool((numbers.diff()[1:] == 1).all())
    )
