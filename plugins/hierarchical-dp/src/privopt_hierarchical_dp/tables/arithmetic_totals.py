"""Totals that their counts betray: a value whose count is, everywhere, the sum of those of its siblings.

This reads secret counts. Only ``init`` asks, to warn the owner on the screen before anything is published.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import polars as pl

__all__ = ["find_arithmetic_totals"]

MIN_EVIDENCE: Final = math.log(50.0)
"""Sum of log(1 + count) over what is compared, at least. A few small counts are sums of others by chance."""

MIN_SIBLINGS: Final = 3
"""Values of which one can be the sum of the others, at least: of two equal counts neither is a total."""


def find_arithmetic_totals(
    counts: pl.DataFrame, levels: Sequence[str], attributes: Sequence[str], count: str
) -> list[tuple[str, str]]:
    """Find the column and the value of totals in a table of counts.

    Args:
        counts: A row for each region and combination of attributes: texts, and whole numbers in ``count``.
        levels: Columns of regions, from the largest.
        attributes: Columns of attributes.
        count: The column of counts.
    """
    suspects = []
    for name in attributes:
        cells = [*levels, *(attribute for attribute in attributes if attribute != name)]
        suspects += [(name, value) for value in _find_sums(counts, name, scope=[], cells=cells, count=count)]
    for number, level in enumerate(levels):
        named, outer_levels = counts.filter(pl.col(level) != ""), levels[:number]
        suspects += [
            (level, value) for value in _find_sums(named, level, scope=outer_levels, cells=attributes, count=count)
        ]
    return suspects


def _find_sums(counts: pl.DataFrame, name: str, *, scope: Sequence[str], cells: Sequence[str], count: str) -> list[str]:
    """Return values of a column whose count is that of all their siblings together, in every cell of a scope.

    Args:
        counts: The counts.
        name: The column.
        scope: Columns within which values are siblings: the regions above.
        cells: Columns by which the counts of siblings are compared.
        count: The column of counts.
    """
    if counts.is_empty():
        return []
    value_sums = counts.group_by(*scope, *cells, name).agg(pl.col(count).sum().alias("own"))
    value_sums = value_sums.with_columns(
        pl.col("own").sum().over([*scope, *cells] or pl.lit(1)).alias("all"),
        pl.col(name).n_unique().over(list(scope) or pl.lit(1)).alias("siblings"),
    )
    in_use = value_sums.filter(pl.col("all") > 0)
    cells_of_scope = in_use.group_by(*scope, pl.lit(1).alias("one")).agg(
        pl.struct(*cells, pl.lit(1).alias("cell")).n_unique().alias("cells")
    )
    by_value = in_use.group_by(*scope, name, pl.lit(1).alias("one")).agg(
        (2 * pl.col("own") == pl.col("all")).all().alias("is_sum"),
        pl.len().alias("hits"),
        pl.col("own").log1p().sum().alias("evidence"),
        pl.col("siblings").first(),
    )
    joined = by_value.join(cells_of_scope, on=[*scope, "one"])
    totals = joined.filter(
        pl.col("is_sum")
        & (pl.col("hits") == pl.col("cells"))
        & (pl.col("siblings") >= MIN_SIBLINGS)
        & (pl.col("evidence") >= MIN_EVIDENCE)
    )
    return sorted(set(totals[name].to_list()))
