"""Read a column's cells in one part of a table, and extract the numbers they contain."""

from __future__ import annotations

from typing import Any, Final, Self

import narwhals as nw
import numpy as np
import polars as pl
from attrs import evolve, frozen

from privopt.arrays import Bools, Ints
from privopt_tables.cell_numbers import CellNumbers, cell_texts, numbers_of_column, numbers_of_texts

__all__ = ["MAX_CELLS", "ColumnPart", "spread_rows"]

MAX_CELLS: Final = 30_000
"""Maximum number of cells to search for numbers in each column of a part of a table, not counting cells that consist of
a single number. The same limit applies to the number of rows whose numbers are compared with each form of the
secret."""


def spread_rows(count: int, limit: int) -> Ints:
    """Return the row indices 0 to ``count - 1``, or an evenly spaced selection of them if ``count`` exceeds ``limit``.

    Args:
        count: The number of rows.
        limit: The maximum number of indices to return. A selection of two or more indices includes the first and the
            last row.
    """
    return np.linspace(0, count - 1, limit).astype(np.int64) if count > limit else np.arange(count)


@frozen(eq=False)
class ColumnPart:
    """The cells of one column in one part of a table, together with the numbers found in them.

    B is the number of rows in the part, and C the number of rows whose cells were read.

    Attributes:
        rows: (C,) The indices of the rows whose cells were read, in ascending order.
        numbers: The numbers found in the cells. Their ``cells`` attribute contains each number's row index.
        is_filled: (B,) Whether each row has a non-empty cell. False for rows that were not read.
        column: The column that the cells come from.
        texts: (C,) The cells that were read, as strings, or None for a numeric column.
    """

    rows: Ints
    numbers: CellNumbers
    is_filled: Bools
    column: nw.Series[Any]
    texts: pl.Series | None

    @classmethod
    def of(cls, column: nw.Series[Any]) -> Self:
        """Read a column's cells and extract the numbers they contain.

        All numbers in a numeric column are used. In a column of strings, every cell that consists of a single number is
        used, along with an evenly spaced sample of the other cells. The cells of columns of lists or structs are
        sampled evenly.
        """
        # A column of numbers is not converted to text, and is read completely.
        if (numbers := numbers_of_column(column)) is not None:
            is_filled = ~column.is_null().to_numpy().astype(np.bool_)
            return cls(np.flatnonzero(is_filled), numbers, is_filled, column, None)
        is_flat = column.dtype in (nw.String, nw.Categorical, nw.Enum) or column.dtype.is_temporal()
        count = len(column)
        # Cells with structures or lists are converted one by one in Python, so only evenly spaced ones are read.
        rows = np.arange(count) if is_flat or count <= MAX_CELLS else spread_rows(count, MAX_CELLS)
        texts = cell_texts(column if len(rows) == count else column[rows.tolist()])
        is_filled = np.zeros(count, dtype=np.bool_)
        is_filled[rows] = (texts.str.strip_chars() != "").to_numpy()
        numbers = numbers_of_texts(texts, MAX_CELLS)
        if len(rows) < count:
            numbers = evolve(numbers, cells=rows[numbers.cells])
        return cls(rows, numbers, is_filled, column, texts)

    def texts_of(self, rows: Ints) -> pl.Series:
        """Return the cells of the given rows as strings. The rows must be among :attr:`rows`."""
        if self.texts is None:
            return cell_texts(self.column[rows.tolist()])
        return self.texts.gather(np.searchsorted(self.rows, rows))
