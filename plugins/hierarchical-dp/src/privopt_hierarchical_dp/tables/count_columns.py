"""Detect from a table's values whether it contains counts, and in which column.

A table of counts, or aggregated table, has one row per combination of region and attributes. In a table with one row
per individual, on the other hand, the rows are rarely all distinct, unless there are more combinations than rows. If
all rows remain distinct when a numeric column is removed, the column is not needed to identify them. It is then
probably the count, so its values are secret.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl
from attrs import frozen

from privopt.declare.frames import plain_texts
from privopt.declare.table_words import is_count_name, is_id_name
from privopt.errors import Fault, InputError
from privopt_hierarchical_dp.level_tables import LevelTable

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
"""The maximum number of rows to examine. If all rows of a table are distinct, so are its first `MAX_ROWS` rows."""

MAX_ATTRIBUTE_VALUES: Final = 50
"""The maximum number of distinct values in a column that may be an attribute."""

NO_NAME: Final = "(without a name)"
"""The text shown in messages in place of an empty column name."""

MAX_CHANCE: Final = 0.01
"""The probability below which the distinctness of the rows is evidence that they are not individuals."""

_NUMBER: Final = (
    r"^[\s(<>≤≥~=±]*[+-]?(\d{1,3}([,.'’\s\u{a0}\u{202f}\u{2009}]\d{3})+([.,]\d+)?|\d+([.,]\d*)?([eE][+-]?\d+)?|[.,]\d+)"
    r"[\s)%*]*[a-z]{0,2}\)?$"
)
"""A pattern for numbers as statistical offices write them, with thousands separators, comparison signs and flags."""

_FRACTION: Final = r"^\D*0?[.,]\d*[1-9]|[.,](\d{1,2}|\d{4,})\D*$"
"""A pattern for numbers with decimals, even if these are all zeros.

Three digits after a separator may be thousands, so they match only if nothing or 0 comes before the separator.
"""

_ZERO_FRACTION: Final = r"[1-9]\d*[.,]0+\D*$|^\D*0[.,]0+\D*$"
"""A pattern for integers written with zeros after the decimal point."""


@frozen(kw_only=True)
class CountSuspects:
    """Columns that may state how many individuals each row represents.

    Attributes:
        certain: The column that clearly contains the count, or None if there is no such column.
        columns: All columns that may contain counts, in the order of the table. Their values must not be published.
    """

    certain: str | None
    columns: tuple[str, ...]


@frozen(kw_only=True)
class _Columns:
    """The columns of a table as strings, classified by whether they contain numbers.

    Attributes:
        frame: The first `MAX_ROWS` rows of all columns, including the region columns, as stripped strings.
        levels: The names of the region columns.
        numbers: The names of the numeric columns.
        texts: The names of the remaining columns, except those that identify individuals.
    """

    frame: pl.DataFrame
    levels: tuple[str, ...]
    numbers: tuple[str, ...]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, table: LevelTable, names: Sequence[str]) -> _Columns:
        """Classify the columns of a table by whether they contain numbers.

        Args:
            table: The table to examine.
            names: The columns of the table, except the region columns.
        """
        head = table.frame.head(MAX_ROWS)
        # The columns are passed by name, because polars would rename a nameless series in a list. An index written by
        # pandas has no name.
        frame = pl.DataFrame(
            {name: plain_texts(head[name]).fill_null("").str.strip_chars() for name in (*table.levels, *names)}
        )
        numbers = [name for name in names if _holds_numbers(frame[name])]
        others = [name for name in names if name not in numbers and not _identifies_rows(frame[name])]
        return cls(frame=frame, levels=table.levels, numbers=tuple(numbers), texts=tuple(others))

    def is_constant(self, name: str) -> bool:
        """Return whether the table has several rows and a column has the same value in all of them."""
        return self.frame.height > 1 and int(self.frame[name].n_unique()) == 1

    def count_distinct(self, columns: Sequence[str]) -> int:
        """Return the number of distinct combinations of values in the given columns."""
        return int(self.frame.select(pl.struct(*columns).n_unique()).item())

    def are_distinct(self, columns: Sequence[str]) -> bool:
        """Return whether no two rows have the same values in all of the given columns."""
        return self.count_distinct(columns) == int(self.frame.height)

    def key_without(self, *names: str) -> tuple[str, ...]:
        """Return the columns that can distinguish rows, except the given ones and those that identify individuals.

        Numeric columns named like counts are omitted as well, because a count describes a row rather than identifying
        it, even if all counts are different.
        """
        numbers = [
            name
            for name in self.numbers
            if name not in names and not is_count_name(name) and not _identifies_rows(self.frame[name])
        ]
        return (*self.levels, *(name for name in self.texts if name not in names), *numbers)

    def is_code(self, name: str) -> bool:
        """Return whether a column's values are codes for the values of another column or for the regions.

        A column is a code if its values correspond one-to-one to the values of a non-numeric column or to the regions.
        A column in which every row has a different value does not count as a code, because it would match any other
        such column.
        """
        keys = [list(self.levels), *([column] for column in self.texts)]
        # The correspondence is one to one if there are as many pairs of values as values in either column.
        return any(
            self.count_distinct([*key, name])
            == self.count_distinct(key)
            == self.count_distinct([name])
            < self.frame.height
            for key in keys
        )

    def is_determined(self, name: str) -> bool:
        """Return whether a column's value in each row is determined by another column or by the region.

        Unlike in :meth:`is_code`, different values of the other column may determine the same value.
        """
        keys = [list(self.levels), *([column] for column in (*self.texts, *self.numbers) if column != name)]
        return any(self.count_distinct([*key, name]) == self.count_distinct(key) < self.frame.height for key in keys)

    def is_rival(self, name: str, count: str) -> bool:
        """Return whether the counts could be in the column ``name`` rather than in the column ``count``.

        This is the case if the numbers in ``name`` are all integers, ``name`` is not a code for another column or for
        the regions, and all rows are distinct even without the two columns.
        """
        return (
            _may_be_whole(self.frame[name])
            and not self.is_code(name)
            and self.are_distinct(self.key_without(name, count))
        )

    def chance_of_individuals(self, key: Sequence[str]) -> float:
        """Bound the probability of seeing rows as distinct as these if each row were an independent individual.

        The upper bound is computed for individuals that are uniformly distributed over the cells. It holds for any
        other distribution as well, because distinct rows are most likely under the uniform one.

        Args:
            key: The columns by which rows are compared. A cell is a combination of their values.
        """
        rows, distinct, cells = self.frame.height, self.count_distinct(key), self._count_cells(key)
        if distinct == rows and rows <= cells:
            # The birthday problem: the probability that no two rows are in the same cell, if all cells are equally
            # likely.
            return math.exp(float(np.log1p(-np.arange(rows) / cells).sum()))
        times = self.frame.group_by(*key).len()["len"]
        if times.min() == times.max():  # for example, each cell occurs twice in a table of counts that lacks a column
            # The multinomial probability that all cells occur equally often.
            log_chance = math.lgamma(rows + 1) - distinct * math.lgamma(int(times[0]) + 1) - rows * math.log(distinct)
            return math.exp(min(0.0, log_chance))
        # The expected number of non-empty cells, cells * (1 - (1 - 1 / cells)^rows), computed without cancellation.
        expected = -cells * math.expm1(rows * math.log1p(-1.0 / cells)) if cells > 1 else 1.0
        # McDiarmid's inequality: replacing one individual changes the number of non-empty cells by at most 1.
        return math.exp(-2.0 * max(0.0, distinct - expected) ** 2 / rows)

    def _count_cells(self, key: Sequence[str]) -> float:
        """Estimate the number of possible combinations of values in the columns of a key.

        The estimate is the product of the estimated numbers of values in the individual columns. The region columns are
        treated as a single column, and a column whose values are determined by an earlier one is omitted.
        """
        levels = [name for name in key if name in self.levels]
        cells, selected = self._count_values(levels), [levels]
        for name in key:
            # Skip region columns, which are already counted, and columns that an earlier column determines.
            if name in levels or any(
                self.count_distinct([*selection, name]) == self.count_distinct(selection) for selection in selected
            ):
                continue
            cells *= self._count_values([name])
            selected.append([name])
        return cells

    def _count_values(self, columns: Sequence[str]) -> float:
        """Estimate the number of distinct values in the population, including those that do not occur in the table.

        If most values occur only once, the population probably has many more. For example, ten people from ten
        different regions may come from a population with a thousand regions.

        Args:
            columns: The columns. If there is more than one, combinations of their values are counted.

        Source:
            A. Chao, Nonparametric Estimation of the Number of Classes in a Population, Scandinavian Journal of
            Statistics 11, 1984, in the bias-corrected form.
        """
        rows = self.frame.group_by(*columns).len()["len"]
        # The numbers of values that occur exactly once and exactly twice.
        single_count, pair_count = int((rows == 1).sum()), int((rows == 2).sum())
        return len(rows) + single_count * (single_count - 1) / (2 * (pair_count + 1))


def find_count_suspects(table: LevelTable, names: Sequence[str]) -> CountSuspects:
    """Find the columns that may state how many individuals each row represents, and whether one of them clearly does.

    A numeric column is a suspect if any of these conditions applies:

    1. All rows are distinct without it.
    2. Its name suggests a count.
    3. If each row were one individual, rows this distinct would have a probability below 1 %.

    A suspect is clearly the count if condition 1 and at least one of the others apply, and no other column could be the
    count. A column of integers may contain markers for suppressed or missing values and still be a suspect. A column
    that is constant or contains row numbers is a suspect only if its name suggests a count or there is no other
    suspect.

    Args:
        table: A table of individuals or of counts.
        names: The columns of the table, except the region columns.
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
        # Columns with many values are left out of the first key. If the whole key is distinct, it is tried as well.
        is_distinct, is_named = columns.are_distinct(key), is_count_name(name)
        chances = [
            columns.chance_of_individuals(candidate) for candidate in (attributes, *([key] if is_distinct else []))
        ]
        is_aggregated = min(chances) < MAX_CHANCE
        if not (is_distinct or is_named or is_aggregated):
            continue
        is_unlikely = columns.is_constant(name) or counts_rows(columns.frame[name])
        (unlikely if is_unlikely and not is_named else suspects).append(name)
        # A code duplicates its label. It neither distinguishes rows further nor counts individuals.
        is_count = _may_be_whole(columns.frame[name]) and (is_named or not (is_unlikely or columns.is_code(name)))
        if is_distinct and (is_named or is_aggregated) and is_count:
            clear.append(name)
    suspects = suspects or unlikely  # a year or a row number is a suspect only if no other is
    clear = [name for name in clear if name in suspects]
    named = [name for name in suspects if is_count_name(name)]
    # If regions and texts alone make rows distinct and there are several numeric columns, all of these may be counts.
    measures = [name for name in suspects if is_count_name(name) or not columns.is_code(name)]
    are_measures = columns.are_distinct((*columns.levels, *columns.texts)) and len(measures) > 1
    # A column with markers cannot be read as the count, but it can leave unclear which column the count is.
    is_certain = (
        len(clear) == 1 and named in ([], clear) and not are_measures and _holds_whole_numbers(columns.frame[clear[0]])
    )
    is_certain = is_certain and not any(columns.is_rival(name, clear[0]) for name in suspects if name != clear[0])
    return CountSuspects(certain=clear[0] if is_certain else None, columns=tuple(suspects))


def find_redundant_columns(table: LevelTable, names: Sequence[str], count: str) -> list[str]:
    """Return the numeric columns, other than the count, that are not needed to distinguish rows.

    These columns may contain counts as well, so they must not be published as attributes. Columns named like counts are
    always included.

    Args:
        table: A table of counts.
        names: The columns of the table, except the region columns.
        count: The column that states how many individuals each row represents.
    """
    columns = _Columns.of(table, names)
    if not columns.frame.height:
        return []
    return [
        name
        for name in columns.numbers
        # Rows are distinct even without this column and the count, so it is not needed to distinguish them.
        if name != count and (is_count_name(name) or columns.are_distinct(columns.key_without(name, count)))
    ]


def find_undeclared_counts(table: LevelTable, names: Sequence[str], count: str) -> tuple[str, ...]:
    """Return the columns that were declared as attributes but probably contain counts.

    Args:
        table: A table of counts.
        names: The attributes of the table.
        count: The column that states how many individuals each row represents.
    """
    columns = _Columns.of(table, [*names, count])
    return tuple(
        name
        for name in find_redundant_columns(table, [*names, count], count)
        if is_count_name(name)
        or (
            # A column that another one determines is a code or a grouping, and no count.
            columns.chance_of_individuals(columns.key_without(name, count)) < MAX_CHANCE
            and not columns.is_determined(name)
        )
    )


def refuse_unclear(suspects: CountSuspects, source: str, cure: str) -> None:
    """Raise InputError because it is unclear whether each row of a table is one individual.

    Args:
        suspects: The columns that may contain counts.
        source: The file name of the table.
        cure: What the user can declare to resolve the ambiguity.

    Raises:
        InputError: Always. The message names the columns but contains none of their values.
    """
    named = " and ".join(f"column {name or NO_NAME}" for name in suspects.columns)
    actual = f"{named}: numbers that may be how many individuals a row counts"
    raise InputError([Fault(source, "", actual, cure)])


def _identifies_rows(texts: pl.Series) -> bool:
    """Return whether a column has distinct values and a name that is empty or suggests an id.

    Distinct values alone are not enough to identify rows. In a table of counts by age, for example, the ages are
    distinct and look like row numbers. A column without a name is assumed to be an id, because some programs write
    their row index this way.
    """
    is_unique = texts.n_unique() == len(texts) > 1
    return is_unique and (not texts.name or is_id_name(texts.name))


def _holds_numbers(texts: pl.Series) -> bool:
    """Return whether a column contains numbers, apart from markers for suppressed or missing values.

    Args:
        texts: The stripped cells of the column.
    """
    values = texts.filter(texts != "").unique()
    if not len(values):
        return False
    is_number = values.str.normalize("NFKC").str.contains(_NUMBER)
    # Up to five other values are allowed, or up to half of the values.
    others = len(values) - int(is_number.sum())
    return (
        bool(is_number.any()) and (others <= 5 or 2 * others <= len(values)) and _is_mostly_numbers(values, is_number)
    )


def _is_mostly_numbers(values: pl.Series, is_number: pl.Series) -> bool:
    """Return whether a column's values are numbers, apart from markers such as ``n/a``.

    Values that are not numbers are assumed to be markers if they make up at most half of all values, or if none of them
    is longer than four characters.

    Args:
        values: The distinct values of a column.
        is_number: A mask of the values that are numbers.
    """
    marks = values.filter(~is_number)
    return not len(marks) or 2 * len(marks) <= len(values) or bool((marks.str.len_chars() <= 4).all())


def _holds_whole_numbers(texts: pl.Series) -> bool:
    """Return whether every cell of a column is a non-negative integer."""
    numbers = texts.cast(pl.Float64, strict=False)
    return not numbers.null_count() and bool(((numbers >= 0) & (numbers == numbers.round())).all())


def _may_be_whole(texts: pl.Series) -> bool:
    """Return whether all numbers in a column are integers, ignoring markers for suppressed or missing values.

    Args:
        texts: The stripped cells of the column.
    """
    # Only distinct cells are parsed. NFKC turns characters such as full-width digits into plain ones.
    values = texts.unique().str.normalize("NFKC")
    numbers = values.filter(values.str.contains(_NUMBER))
    fractions = numbers.str.contains(_FRACTION) & ~numbers.str.contains(_ZERO_FRACTION)
    return not fractions.any()


def counts_rows(texts: pl.Series) -> bool:
    """Return whether a column contains row numbers 0, 1, 2, ... or 1, 2, 3, ..., like an index written by a program.

    At least three rows are required as evidence.
    """
    numbers = texts.cast(pl.Int64, strict=False)
    return (
        len(texts) > 2 and not numbers.null_count() and numbers[0] in (0, 1) and bool((numbers.diff()[1:] == 1).all())
    )
