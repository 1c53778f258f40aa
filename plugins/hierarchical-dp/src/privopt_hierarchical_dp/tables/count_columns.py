"""Recognise an aggregated table, and the column that states how many individuals each row counts, from its values.

An aggregated table has a row for each combination of region and attributes. Rows of individuals are rarely all
different, unless there are more combinations than rows. If rows remain different without a column of numbers, this
column is not an attribute that tells the rows apart. It is probably what was counted, so its values are secret.
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
from privopt_hierarchical_dp.tables.table_words import is_count_name, is_id_name

__all__ = [
    "NO_NAME",
    "CountSuspects",
    "counts_rows",
    "find_count_suspects",
    "find_redundant_columns",
    "find_undeclared_counts",
    "refuse_unclear",
]

MAX_ROWS: Final = 200_000
"""The largest number of rows that are examined. If all rows of a table differ, so do these."""

MAX_ATTRIBUTE_VALUES: Final = 50
"""The largest number of values of a column that may be an attribute."""

NO_NAME: Final = "(without a name)"
"""The text for an empty column name in messages."""

MAX_CHANCE: Final = 0.01
"""A table is regarded as aggregated if rows of individuals would differ as much with at most this probability."""

_NUMBER: Final = (
    r"^[\s(<>≤≥~=±]*[+-]?(\d{1,3}([,.'’\s\u{a0}\u{202f}\u{2009}]\d{3})+([.,]\d+)?|\d+([.,]\d*)?([eE][+-]?\d+)?|[.,]\d+)"
    r"[\s)%*]*[a-z]{0,2}\)?$"
)
"""A number as statistical offices write numbers, with thousands separators, limits and flags."""

_FRACTION: Final = r"^\D*0?[.,]\d*[1-9]|[.,](\d{1,2}|\d{4,})\D*$"
"""A number that is not whole, unless all digits after the point are 0; three digits may be thousands."""

_ZERO_FRACTION: Final = r"[1-9]\d*[.,]0+\D*$|^\D*0[.,]0+\D*$"
"""A whole number written with zeros after the decimal point."""


@frozen(kw_only=True)
class CountSuspects:
    """Columns that may state how many individuals a row counts.

    Attributes:
        certain: The column that is taken as the count. None if no column, or more than one, could be the count.
        columns: All columns whose values may be counts, in the table's order. Nothing publishes their values.
    """

    certain: str | None
    columns: tuple[str, ...]


@frozen(kw_only=True)
class _Columns:
    """The columns of a table, as text, sorted into numbers and other texts.

    Attributes:
        frame: The first rows of all columns, including those of regions, as stripped text.
        levels: Names of the columns of regions.
        numbers: Columns of numbers.
        texts: The other columns, without those that identify individuals.
    """

    frame: pl.DataFrame
    levels: tuple[str, ...]
    numbers: tuple[str, ...]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, table: LevelTable, names: Sequence[str]) -> _Columns:
        """Return the columns of a table, sorted into numbers and texts.

        Args:
            table: The table.
            names: The columns of the table other than regions.
        """
        head = table.frame.head(MAX_ROWS)
        # By name: a list of series would give another name to a column without one, as pandas writes its index.
        frame = pl.DataFrame(
            {name: plain_texts(head[name]).fill_null("").str.strip_chars() for name in (*table.levels, *names)}
        )
        numbers = [name for name in names if _holds_numbers(frame[name])]
        others = [name for name in names if name not in numbers and not _identifies_rows(frame[name])]
        return cls(frame=frame, levels=table.levels, numbers=tuple(numbers), texts=tuple(others))

    def is_constant(self, name: str) -> bool:
        """Return whether a table of several rows has the same value in all rows of a column."""
        return self.frame.height > 1 and int(self.frame[name].n_unique()) == 1

    def count_distinct(self, columns: Sequence[str]) -> int:
        """Return the number of distinct combinations of values in the given columns."""
        return int(self.frame.select(pl.struct(*columns).n_unique()).item())

    def are_distinct(self, columns: Sequence[str]) -> bool:
        """Return whether no two rows have the same values in all of the given columns."""
        return self.count_distinct(columns) == int(self.frame.height)

    def key_without(self, *names: str) -> tuple[str, ...]:
        """Return the columns that may tell rows apart, except ``names`` and columns that identify individuals.

        Columns named like counts are omitted too. They do not define the rows, although counts may happen to differ.
        """
        numbers = [
            name
            for name in self.numbers
            if name not in names and not is_count_name(name) and not _identifies_rows(self.frame[name])
        ]
        return (*self.levels, *(name for name in self.texts if name not in names), *numbers)

    def is_code(self, name: str) -> bool:
        """Return whether the values of a column correspond one-to-one to those of a text column or to the regions.

        A column that differs in every row would match any other such column, so it does not count as a code.
        """
        keys = [list(self.levels), *([column] for column in self.texts)]
        # One-to-one: there are as many pairs of values as values of either column.
        return any(
            self.count_distinct([*key, name])
            == self.count_distinct(key)
            == self.count_distinct([name])
            < self.frame.height
            for key in keys
        )

    def is_determined(self, name: str) -> bool:
        """Return whether one other column or the region determines a column, as a label determines its code.

        Unlike in :meth:`is_code`, several labels may have the same value.
        """
        keys = [list(self.levels), *([column] for column in (*self.texts, *self.numbers) if column != name)]
        return any(self.count_distinct([*key, name]) == self.count_distinct(key) < self.frame.height for key in keys)

    def is_rival(self, name: str, count: str) -> bool:
        """Return whether the column ``name`` could be the count instead of ``count``.

        This is the case if its numbers are whole, it is not a code of a label or region, and rows are distinct without
        both columns.
        """
        return (
            _may_be_whole(self.frame[name])
            and not self.is_code(name)
            and self.are_distinct(self.key_without(name, count))
        )

    def chance_of_individuals(self, key: Sequence[str]) -> float:
        """Return a bound on the probability that rows of independent individuals differ as much as these rows.

        Rows of evenly distributed individuals differ most often, so the bound holds for any distribution over the
        cells.

        Args:
            key: The columns by which rows are compared. A cell is a combination of their values.
        """
        rows, distinct, cells = self.frame.height, self.count_distinct(key), self._count_cells(key)
        if distinct == rows and rows <= cells:
            # The birthday problem: the chance that no two rows fall into the same of `cells`
            # equally likely cells.
            return math.exp(float(np.log1p(-np.arange(rows) / cells).sum()))
        times = self.frame.group_by(*key).len()["len"]
        if times.min() == times.max():  # as in a table that lacks one of its columns: each cell occurs twice, say
            # The multinomial chance that each of the cells occurs equally often.
            log_chance = math.lgamma(rows + 1) - distinct * math.lgamma(int(times[0]) + 1) - rows * math.log(distinct)
            return math.exp(min(0.0, log_chance))
        # The expected number of cells that are not empty: cells * (1 - (1 - 1 / cells)^rows), without cancellation.
        expected = -cells * math.expm1(rows * math.log1p(-1.0 / cells)) if cells > 1 else 1.0
        # McDiarmid: another individual changes the number of cells that are not empty by 1 at most.
        return math.exp(-2.0 * max(0.0, distinct - expected) ** 2 / rows)

    def _count_cells(self, key: Sequence[str]) -> float:
        """Return an estimate of how many combinations of values the columns of a key could have.

        The estimate is the product over columns. A column that another one determines adds no combinations.
        """
        levels = [name for name in key if name in self.levels]
        cells, selected = self._count_values(levels), [levels]
        for name in key:
            # A level, or a column that a column before it determines.
            if name in levels or any(
                self.count_distinct([*selection, name]) == self.count_distinct(selection) for selection in selected
            ):
                continue
            cells *= self._count_values([name])
            selected.append([name])
        return cells

    def _count_values(self, columns: Sequence[str]) -> float:
        """Return an estimate of how many distinct values columns have in the population, including unseen values.

        If most values occur only once, there are probably many more values. For example, ten persons from ten different
        regions may come from a thousand regions.

        Source:
            A. Chao, Nonparametric Estimation of the Number of Classes in a Population, Scandinavian Journal of
            Statistics 11, 1984, in the bias-corrected form.
        """
        rows = self.frame.group_by(*columns).len()["len"]
        # Values that occur once, and twice.
        single_count, pair_count = int((rows == 1).sum()), int((rows == 2).sum())
        return len(rows) + single_count * (single_count - 1) / (2 * (pair_count + 1))


def find_count_suspects(table: LevelTable, names: Sequence[str]) -> CountSuspects:
    """Find the columns that may state how many individuals a row counts, and the count itself if it is clear.

    A column of numbers is a suspect if its name is that of a count, or if rows are distinct without it, or if rows of
    individuals would differ as much with a probability below 1 %. A suspect is taken as the count if rows are distinct
    without it, one of the other two conditions holds, and no other column may be the count as well. Columns of whole
    numbers with markers for suppressed or missing values may be the count, too.

    Args:
        table: Any table of individuals or of counts.
        names: The columns of the table other than regions.
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
        # A distinct key that includes columns of many values is evidence of its own, so both keys are tried.
        is_distinct, is_named = columns.are_distinct(key), is_count_name(name)
        chances = [
            columns.chance_of_individuals(candidate) for candidate in (attributes, *([key] if is_distinct else []))
        ]
        is_aggregated = min(chances) < MAX_CHANCE
        if not (is_distinct or is_named or is_aggregated):
            continue
        is_unlikely = columns.is_constant(name) or counts_rows(columns.frame[name])
        (unlikely if is_unlikely and not is_named else suspects).append(name)
        # A code does not distinguish rows with the same label, and counts nobody.
        is_count = _may_be_whole(columns.frame[name]) and (is_named or not (is_unlikely or columns.is_code(name)))
        if is_distinct and (is_named or is_aggregated) and is_count:
            clear.append(name)
    suspects = suspects or unlikely  # a year, or a number of the row, unless nothing else could be a count
    clear = [name for name in clear if name in suspects]
    named = [name for name in suspects if is_count_name(name)]
    # Rows that differ without any of the numbers leave open which of several was counted: perhaps all of them were.
    measures = [name for name in suspects if is_count_name(name) or not columns.is_code(name)]
    are_measures = columns.are_distinct((*columns.levels, *columns.texts)) and len(measures) > 1
    # A column with marks cannot be read as the count, but leaves open whether another one is it.
    is_certain = (
        len(clear) == 1 and named in ([], clear) and not are_measures and _holds_whole_numbers(columns.frame[clear[0]])
    )
    is_certain = is_certain and not any(columns.is_rival(name, clear[0]) for name in suspects if name != clear[0])
    return CountSuspects(certain=clear[0] if is_certain else None, columns=tuple(suspects))


def find_redundant_columns(table: LevelTable, names: Sequence[str], count: str) -> list[str]:
    """Return columns of numbers, other than the count, that are not needed to tell rows apart.

    Such columns may be counts as well.

    Args:
        table: A table of counts.
        names: The columns of the table other than regions.
        count: The column that states how many individuals a row counts.
    """
    columns = _Columns.of(table, names)
    if not columns.frame.height:
        return []
    return [
        name
        for name in columns.numbers
        # The rows differ without both columns, so this one is not needed to tell them apart.
        if name != count and (is_count_name(name) or columns.are_distinct(columns.key_without(name, count)))
    ]


def find_undeclared_counts(table: LevelTable, names: Sequence[str], count: str) -> tuple[str, ...]:
    """Return attributes of a table of counts whose values are probably counts as well.

    Args:
        table: A table of counts.
        names: The attributes of the table.
        count: The column that states how many individuals a row counts.
    """
    columns = _Columns.of(table, [*names, count])
    return tuple(
        name
        for name in find_redundant_columns(table, [*names, count], count)
        if is_count_name(name)
        or (
            # A column that another one determines, such as a code, is no count.
            columns.chance_of_individuals(columns.key_without(name, count)) < MAX_CHANCE
            and not columns.is_determined(name)
        )
    )


def refuse_unclear(suspects: CountSuspects, source: str, cure: str) -> None:
    """Raise InputError because it is unclear whether a row of a table is one individual.

    Args:
        suspects: The columns that may be counts.
        source: The name of the table.
        cure: How the owner can declare what the rows are.

    Raises:
        InputError: Always. The fault names the columns but quotes no value.
    """
    named = " and ".join(f"column {name or NO_NAME}" for name in suspects.columns)
    actual = f"{named}: numbers that may be how many individuals a row counts"
    raise InputError([Fault(source, "", actual, cure)])


def _identifies_rows(texts: pl.Series) -> bool:
    """Return whether a column identifies rows: its values are distinct, and its name is that of an id.

    The values alone are not enough. In a table of counts by one attribute, the values of the attribute differ in each
    row, and ages from 0 look like row numbers. A column without a name counts as an id, because programs write an index
    this way.
    """
    is_unique = texts.n_unique() == len(texts) > 1
    return is_unique and (not texts.name or is_id_name(texts.name))


def _holds_numbers(texts: pl.Series) -> bool:
    """Return whether a column consists of numbers, apart from a few markers for suppressed or missing values.

    Args:
        texts: The stripped cells of the column.
    """
    values = texts.filter(texts != "").unique()
    if not len(values):
        return False
    is_number = values.str.normalize("NFKC").str.contains(_NUMBER)
    # Up to five marks, or at most half of the values.
    others = len(values) - int(is_number.sum())
    return (
        bool(is_number.any()) and (others <= 5 or 2 * others <= len(values)) and _is_mostly_numbers(values, is_number)
    )


def _is_mostly_numbers(values: pl.Series, is_number: pl.Series) -> bool:
    """Return whether the values that are not numbers are markers rather than categories.

    They are markers if they are at most half of the values, or if each has at most four letters.

    Args:
        values: The distinct values of a column.
        is_number: Which of the values are numbers.
    """
    marks = values.filter(~is_number)
    return not len(marks) or 2 * len(marks) <= len(values) or bool((marks.str.len_chars() <= 4).all())


def _holds_whole_numbers(texts: pl.Series) -> bool:
    """Return whether every cell is a whole number of at least 0."""
    numbers = texts.cast(pl.Float64, strict=False)
    return not numbers.null_count() and bool(((numbers >= 0) & (numbers == numbers.round())).all())


def _may_be_whole(texts: pl.Series) -> bool:
    """Return whether all numbers in a column are whole, ignoring markers for suppressed or missing values.

    Args:
        texts: The stripped cells of the column.
    """
    # Each different cell is read once; NFKC turns signs such as full-width digits into plain ones.
    values = texts.unique().str.normalize("NFKC")
    numbers = values.filter(values.str.contains(_NUMBER))
    fractions = numbers.str.contains(_FRACTION) & ~numbers.str.contains(_ZERO_FRACTION)
    return not fractions.any()


def counts_rows(texts: pl.Series) -> bool:
    """Return whether a column numbers the rows 0, 1, 2, ... or 1, 2, 3, ..., as programs write an index.

    A column of two rows or fewer is not enough evidence.
    """
    numbers = texts.cast(pl.Int64, strict=False)
    return (
        len(texts) > 2 and not numbers.null_count() and numbers[0] in (0, 1) and bool((numbers.diff()[1:] == 1).all())
    )
