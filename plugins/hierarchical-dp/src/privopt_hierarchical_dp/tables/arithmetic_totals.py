"""Find totals by arithmetic: values whose count always equals the sum of the counts of some or all siblings.

This module reads secret counts. Only ``init`` uses it, to warn the owner on the screen before anything is published.
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
"""The smallest sum of log(1 + count) over the compared cells. With a few small counts, sums agree by chance."""

MIN_SIBLINGS: Final = 3
"""The smallest number of siblings, including the total, among which one can be the sum of the others. With only two,
equal counts prove nothing.
"""


MAX_STEPS: Final = 5_000
"""The largest number of steps in the search for the parts of one subtotal."""


def find_arithmetic_totals(
    counts: pl.DataFrame, levels: Sequence[str], attributes: Sequence[str], count: str
) -> list[tuple[str, str]]:
    """Return the attribute values and regions whose counts suggest totals or subtotals of their siblings.

    Args:
        counts: A row for each region and combination of attributes, with texts, and whole numbers in ``count``.
        levels: Columns of regions, from the largest regions to the smallest.
        attributes: Columns of attributes.
        count: The column of counts.

    Returns:
        The column and value of each suspect.
    """
    suspects = []
    for name in attributes:
        cells = [*levels, *(attribute for attribute in attributes if attribute != name)]
        suspects += [(name, value) for value in _find_sums(counts, name, scope=[], cells=cells, count=count)]
        suspects += [(name, value) for value in _find_subtotals(counts, name, cells=cells, count=count)]
    for number, level in enumerate(levels):
        # Regions are siblings only within the same parent, so they are compared by parent. An empty name is a short
        # branch.
        named, outer_levels = counts.filter(pl.col(level) != ""), levels[:number]
        suspects += [
            (level, value) for value in _find_sums(named, level, scope=outer_levels, cells=attributes, count=count)
        ]
        for siblings in named.partition_by(*outer_levels, maintain_order=True) if outer_levels else [named]:
            suspects += [(level, value) for value in _find_subtotals(siblings, level, cells=attributes, count=count)]
    return list(dict.fromkeys(suspects))


def _find_sums(counts: pl.DataFrame, name: str, *, scope: Sequence[str], cells: Sequence[str], count: str) -> list[str]:
    """Return values of a column whose count equals that of all their siblings together in every cell of a scope.

    Args:
        counts: The counts.
        name: The column of the values.
        scope: Columns of the regions above. Values are siblings within the same combination of these.
        cells: Columns by which the counts of siblings are compared.
        count: The column of counts.
    """
    if counts.is_empty():
        return []
    value_sums = counts.group_by(*scope, *cells, name).agg(pl.col(count).sum().alias("own"))
    # polars refuses an empty list of keys; a constant makes the whole table one group.
    value_sums = value_sums.with_columns(
        pl.col("own").sum().over([*scope, *cells] or pl.lit(1)).alias("all"),
        pl.col(name).n_unique().over(list(scope) or pl.lit(1)).alias("siblings"),
    )
    # Cells without anybody would let every value be the sum of the others.
    in_use = value_sums.filter(pl.col("all") > 0)
    cells_of_scope = in_use.group_by(*scope, pl.lit(1).alias("one")).agg(
        pl.struct(*cells, pl.lit(1).alias("cell")).n_unique().alias("cells")
    )
    by_value = in_use.group_by(*scope, name, pl.lit(1).alias("one")).agg(
        # A value is the sum of its siblings if it is half of all together.
        (2 * pl.col("own") == pl.col("all")).all().alias("is_sum"),
        pl.len().alias("hits"),
        pl.col("own").log1p().sum().alias("evidence"),
        pl.col("siblings").first(),
    )
    joined = by_value.join(cells_of_scope, on=[*scope, "one"])
    # The sum must hold in every cell of the scope that has anybody: a value that does not occur in a cell is no total
    # there.
    totals = joined.filter(
        pl.col("is_sum")
        & (pl.col("hits") == pl.col("cells"))
        & (pl.col("siblings") >= MIN_SIBLINGS)
        & (pl.col("evidence") >= MIN_EVIDENCE)
    )
    return sorted(set(totals[name].to_list()))


def _find_subtotals(counts: pl.DataFrame, name: str, *, cells: Sequence[str], count: str) -> list[str]:
    """Return values whose count in every cell is the sum of the counts of the same two or more siblings.

    Args:
        counts: The counts of siblings, in the table's order.
        name: The column of the siblings.
        cells: Columns by which the counts of siblings are compared.
        count: The column of counts.
    """
    values = counts[name].unique(maintain_order=True).to_list()
    if len(values) <= MIN_SIBLINGS:
        return []
    sums = counts.group_by(*cells, name).agg(pl.col(count).sum())
    # Numbers the combinations of ``cells`` from 0. The constant "one" allows there to be no such column.
    sums = sums.with_columns(pl.struct(*cells, pl.lit(1).alias("one")).rank("dense").alias("cell") - 1)
    matrix = np.zeros((len(values), int(sums["cell"].n_unique())), np.int64)
    row_by_value = {value: row for row, value in enumerate(values)}
    rows = [row_by_value[value] for value in sums[name].to_list()]
    # (values, cells): a value that does not occur in a cell counts 0 there.
    matrix[rows, sums["cell"].to_numpy()] = sums[count].to_numpy()
    return [value for row, value in enumerate(values) if _is_sum_of_others(matrix, row)]


def _is_sum_of_others(matrix: Ints, row: int) -> bool:
    """Return whether a row of counts is the sum of two or more other rows, with more evidence than chance gives.

    Args:
        matrix: (values, cells) The counts.
        row: The index of the row.
    """
    total = matrix[row]
    # Only a row that nowhere exceeds the total, and is not zero, can be one of its parts.
    is_part = (matrix <= total).all(axis=1) & matrix.any(axis=1)
    is_part[row] = False
    parts = matrix[is_part]
    evidence = float(np.log1p(total).sum()) - MIN_EVIDENCE
    # The more sums are tried, the more of them agree by chance: all runs of neighbours, as of ages, then all subsets.
    # There are fewer than n^2 runs of n neighbours, so chance needs log(n^2) more evidence.
    if len(parts) < 2 or evidence < math.log(len(parts) ** 2):
        return False
    run_sums = np.concatenate([np.zeros((1, parts.shape[1]), np.int64), parts.cumsum(axis=0)])
    # A difference of two partial sums is the sum of a run; runs have two rows or more.
    for start in range(len(parts) - 1):
        if (run_sums[start + 2 :] - run_sums[start] == total).all(axis=1).any():
            return True
    # There are 2^n subsets of n parts.
    return evidence >= len(parts) * math.log(2.0) and _has_subset(parts, total)


def _has_subset(parts: Ints, total: Ints) -> bool:
    """Return whether two or more rows add up to a total, by depth-first search.

    Args:
        parts: (rows, cells) counts, each at most the total.
        total: (cells,) counts.

    Returns:
        True if such rows were found. False if not, or if :data:`MAX_STEPS` steps gave no answer.
    """
    # Large parts first, because they exclude most others.
    ordered = parts[np.argsort(-parts.sum(axis=1), kind="stable")]
    # Entry i is the sum of rows i and later, the most that can still be subtracted.
    remaining_sums = ordered[::-1].cumsum(axis=0)[::-1]
    # Each entry has the next row, what is left of the total, and the number of rows taken so far.
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
        # Even all remaining rows together would not reach the total.
        if number == len(ordered) or (remaining_sums[number] < rest).any():
            continue
        # Pushed first, so popped last: taking the row is tried before leaving it out.
        stack.append((number + 1, rest, size))
        if (ordered[number] <= rest).all():
            stack.append((number + 1, rest - ordered[number], size + 1))
    return False
