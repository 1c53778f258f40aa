"""Find totals by arithmetic: values whose count always equals the sum of the counts of some or all siblings.

This module reads secret counts. It is used only by ``init``, to warn the owner on screen before anything is published.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from privopt.arrays import Ints

__all__ = ["find_arithmetic_totals"]

MIN_EVIDENCE: Final = math.log(50.0)
"""The minimum sum of log(1 + count) over a value's cells for the value to be suspected of being a total.

If there are only a few small counts, sums can agree by chance.
"""

MIN_SIBLINGS: Final = 3
"""The minimum number of siblings, including the total, needed to search for totals.

With only two siblings, equal counts prove nothing.
"""


MAX_STEPS: Final = 5_000
"""The maximum number of steps in the search for the parts of one subtotal."""


def find_arithmetic_totals(
    counts: pl.DataFrame, levels: Sequence[str], attributes: Sequence[str], count: str
) -> list[tuple[str, str]]:
    """Return the attribute values and regions whose counts suggest that they are totals or subtotals of their siblings.

    Args:
        counts: A table with one row per region and combination of attributes. The column of counts contains
            integers, and all other columns contain strings.
        levels: The columns of regions, from the largest regions to the smallest.
        attributes: The columns of attributes.
        count: The column of counts.

    Returns:
        The column and the value of each suspected total.
    """
    suspects = []
    for name in attributes:
        cells = [*levels, *(attribute for attribute in attributes if attribute != name)]
        suspects += [(name, value) for value in _find_sums(counts, name, scope=[], cells=cells, count=count)]
        suspects += [(name, value) for value in _find_subtotals(counts, name, cells=cells, count=count)]
    for number, level in enumerate(levels):
        # Only regions with the same parent are siblings, so regions are compared by parent. An empty name marks a short
        # branch.
        named, outer_levels = counts.filter(pl.col(level) != ""), levels[:number]
        suspects += [
            (level, value) for value in _find_sums(named, level, scope=outer_levels, cells=attributes, count=count)
        ]
        for siblings in named.partition_by(*outer_levels, maintain_order=True) if outer_levels else [named]:
            suspects += [(level, value) for value in _find_subtotals(siblings, level, cells=attributes, count=count)]
    return list(dict.fromkeys(suspects))


def _find_sums(counts: pl.DataFrame, name: str, *, scope: Sequence[str], cells: Sequence[str], count: str) -> list[str]:
    """Return the values whose count equals the sum of the counts of all their siblings, in every cell.

    Args:
        counts: The table of counts.
        name: The column of the values to examine.
        scope: The columns of the enclosing regions. Values are siblings if they occur in the same enclosing regions.
        cells: The columns whose combinations of values define the cells.
        count: The column of counts.
    """
    if counts.is_empty():
        return []
    value_sums = counts.group_by(*scope, *cells, name).agg(pl.col(count).sum().alias("own"))
    # polars refuses an empty list of keys. A constant key makes the whole table one group.
    value_sums = value_sums.with_columns(
        pl.col("own").sum().over([*scope, *cells] or pl.lit(1)).alias("all"),
        pl.col(name).n_unique().over(list(scope) or pl.lit(1)).alias("siblings"),
    )
    # In an empty cell, every value would be the sum of the others.
    in_use = value_sums.filter(pl.col("all") > 0)
    cells_of_scope = in_use.group_by(*scope, pl.lit(1).alias("one")).agg(
        pl.struct(*cells, pl.lit(1).alias("cell")).n_unique().alias("cells")
    )
    by_value = in_use.group_by(*scope, name, pl.lit(1).alias("one")).agg(
        # A value equals the sum of its siblings if it is half of the sum over all values.
        (2 * pl.col("own") == pl.col("all")).all().alias("is_sum"),
        pl.len().alias("hits"),
        pl.col("own").log1p().sum().alias("evidence"),
        pl.col("siblings").first(),
    )
    joined = by_value.join(cells_of_scope, on=[*scope, "one"])
    # The sum must hold in every non-empty cell of the scope. A value that does not occur in a cell is not a total
    # there.
    totals = joined.filter(
        pl.col("is_sum")
        & (pl.col("hits") == pl.col("cells"))
        & (pl.col("siblings") >= MIN_SIBLINGS)
        & (pl.col("evidence") >= MIN_EVIDENCE)
    )
    return sorted(set(totals[name].to_list()))


def _find_subtotals(counts: pl.DataFrame, name: str, *, cells: Sequence[str], count: str) -> list[str]:
    """Return the values that are subtotals of two or more siblings.

    In every cell, the count of a subtotal equals the sum of the counts of the same siblings.

    Args:
        counts: The table of counts of the siblings, in their original order.
        name: The column of the siblings.
        cells: The columns whose combinations of values define the cells.
        count: The column of counts.
    """
    values = counts[name].unique(maintain_order=True).to_list()
    if len(values) <= MIN_SIBLINGS:
        return []
    sums = counts.group_by(*cells, name).agg(pl.col(count).sum())
    # Number the combinations of ``cells`` from 0. The constant "one" handles the case that there is no such column.
    sums = sums.with_columns(pl.struct(*cells, pl.lit(1).alias("one")).rank("dense").alias("cell") - 1)
    matrix = np.zeros((len(values), int(sums["cell"].n_unique())), np.int64)
    row_by_value = {value: row for row, value in enumerate(values)}
    rows = [row_by_value[value] for value in sums[name].to_list()]
    # The matrix has shape (values, cells). A value that does not occur in a cell has the count 0 there.
    matrix[rows, sums["cell"].to_numpy()] = sums[count].to_numpy()
    return [value for row, value in enumerate(values) if _is_sum_of_others(matrix, row)]


def _is_sum_of_others(matrix: Ints, row: int) -> bool:
    """Return whether a row of counts is the sum of two or more other rows and this is unlikely to be a coincidence.

    Args:
        matrix: Array of shape (values, cells) with the counts.
        row: The index of the row.
    """
    total = matrix[row]
    # Only a non-zero row that nowhere exceeds the total can be one of its parts.
    is_part = (matrix <= total).all(axis=1) & matrix.any(axis=1)
    is_part[row] = False
    parts = matrix[is_part]
    evidence = float(np.log1p(total).sum()) - MIN_EVIDENCE
    # The more sums are tried, the more of them agree by chance. First all runs of neighbouring rows are tried, for
    # example of ages, and then all subsets. There are fewer than n^2 runs among n rows, so log(n^2) more evidence is
    # required.
    if len(parts) < 2 or evidence < math.log(len(parts) ** 2):
        return False
    run_sums = np.concatenate([np.zeros((1, parts.shape[1]), np.int64), parts.cumsum(axis=0)])
    # The difference of two prefix sums is the sum of a run, which must have at least two rows.
    for start in range(len(parts) - 1):
        if (run_sums[start + 2 :] - run_sums[start] == total).all(axis=1).any():
            return True
    # There are 2^n subsets of n parts, so n log(2) more evidence is required.
    return evidence >= len(parts) * math.log(2.0) and _has_subset(parts, total)


def _has_subset(parts: Ints, total: Ints) -> bool:
    """Search depth-first for two or more rows that add up to a total, and return whether any were found.

    Args:
        parts: Array of shape (rows, cells) with counts, each of which is at most the total.
        total: Array of shape (cells,) with the total.

    Returns:
        True if such rows were found. False if there are none, or if none were found within :data:`MAX_STEPS` steps.
    """
    # Try large parts first, because they exclude most others.
    ordered = parts[np.argsort(-parts.sum(axis=1), kind="stable")]
    # Entry i is the sum of all rows from row i on, which is the most that can still be subtracted.
    remaining_sums = ordered[::-1].cumsum(axis=0)[::-1]
    # Each entry contains the index of the next row, the remaining total, and the number of rows taken so far.
    stack = [(0, total, 0)]
    for _ in range(MAX_STEPS):
        if not stack:
            return False
        number, rest, size = stack.pop()
        if not rest.any():
            # A single row that equals the total proves nothing.
            if size > 1:
                return True
            continue
        # Prune the branch if even all remaining rows together would not reach the remaining total.
        if number == len(ordered) or (remaining_sums[number] < rest).any():
            continue
        # This branch is pushed first and popped last, so taking the row is tried before omitting it.
        stack.append((number + 1, rest, size))
        if (ordered[number] <= rest).all():
            stack.append((number + 1, rest - ordered[number], size + 1))
    return False
