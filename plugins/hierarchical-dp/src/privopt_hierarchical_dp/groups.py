"""The secret files of hierarchical-dp: counts of groups by size, or unit records, and totals to check them by."""

from __future__ import annotations

import numpy as np
import polars as pl
from attrs import frozen

from privopt.arrays import Ints
from privopt.declare import File
from privopt.declare.tables import Column, read_table
from privopt.errors import Fault, Faults, InputError
from privopt_hierarchical_dp.level_tables import GROUPS_LIMIT, LevelTable, region_faults
from privopt_hierarchical_dp.tree import Regions, Tree, add_up

__all__ = ["Groups", "check_totals", "read_counts", "read_units"]


@frozen(kw_only=True, eq=False)
class Groups:
    """What a file of counts or units holds.

    Attributes:
        tree: hierarchy of its regions.
        leaves: (R_L, N) groups of each size in each leaf region, from the least size that is a class (0 or 1); the
            last column is "N or more".
        empty: unit records only: groups whose quantities add up to 0 where they are not groups of any size.
    """

    tree: Tree
    leaves: Ints
    empty: int = 0


def read_counts(source: File, sizes: int, *, first: int = 1, listed: Regions | None = None) -> Groups:
    """Read ``level_1, ..., level_L, size, groups``: one row a leaf region and size, absent pairs are 0.

    Args:
        source: CSV or Parquet.
        sizes: N.
        first: the least size, 0 or 1.
        listed: the regions where a public table has them; default: those of the file.

    Raises:
        InputError: a column is missing, a count is negative or fractional, a size lies outside ``first`` to
            N, a pair occurs twice, the regions form no tree, or are not listed.
    """
    table = LevelTable.read(source, "size", "groups")
    size, groups = table.read_columns(
        Column(name="size", kind="count", least=first, most=sizes),
        Column(name="groups", kind="count", least=0, most=GROUPS_LIMIT - 1),
    )
    regions, leaf = table.place_rows(listed)
    if float(groups.cast(pl.Float64).sum()) >= GROUPS_LIMIT:
        raise InputError([Fault(source.name, "column groups", "more groups in all", "fewer than 2^50")])
    tree, classes, faults = regions.tree, sizes + 1 - first, Faults()
    cells = _cell_indices(leaf, size, classes, first)
    # A cell may have one row only: adding up repeated rows would hide a mistake in the file.
    rows = np.bincount(cells)
    for cell in np.flatnonzero(rows > 1).tolist():
        where = f"region {tree.names[-1][cell // classes]!r}, size {cell % classes + first}"
        faults.add(source.name, where, f"{rows[cell]} rows", "one row for each leaf region and size")
    faults.check()
    return Groups(tree=tree, leaves=_fill_counts(tree, cells, groups, classes))


def _cell_indices(leaf: pl.Series, size: pl.Series, classes: int, first: int) -> Ints:
    """Return (rows,) the index of each row's cell, with ``classes`` cells for each leaf region."""
    cells: Ints = leaf.to_numpy() * classes
    cells += size.to_numpy()
    cells -= first
    return cells


def _fill_counts(tree: Tree, cells: Ints, groups: pl.Series, classes: int) -> Ints:
    """Arrange the groups of distinct cells as (R_L, N) counts; absent cells are 0."""
    leaves = np.zeros(tree.widths[-1] * classes, np.int64)
    leaves[cells] = groups.to_numpy()
    return leaves.reshape(-1, classes)


def read_units(
    source: File, sizes: int, *, max_quantity: int = 1, first: int = 1, listed: Regions | None = None
) -> Groups:
    """Read ``level_1, ..., level_L, unit, quantity``: one row an individual; a group is a unit of a leaf region.

    Args:
        source: CSV or Parquet.
        sizes: N; larger groups count as N.
        max_quantity: Q, the largest quantity of one individual.
        first: the least size; 0 makes units whose quantities add up to 0 (vacant ones, a row of quantity 0) a class.
        listed: the regions where a public table has them; default: those of the file.

    Raises:
        InputError: a column is missing, a quantity is negative, fractional or above ``max_quantity``, a
            unit has no name, the regions form no tree, or are not listed.
    """
    table = LevelTable.read(source, "unit", "quantity")
    unit_label = f"max_quantity = {max_quantity}"
    unit, quantity = table.read_columns(
        Column(name="unit", kind="id"),
        Column(name="quantity", kind="count", least=0, most=max_quantity, unit=unit_label),
    )
    regions, leaf = table.place_rows(listed)
    records = pl.DataFrame({"leaf": leaf, "unit": unit, "quantity": quantity})
    groups = records.group_by("leaf", "unit").agg(pl.col("quantity").sum().clip(0, sizes).alias("size"))
    counted = groups.group_by("leaf", "size").agg(pl.len().cast(pl.Int64).alias("groups"))
    counted_groups, empty_groups = counted.filter(pl.col("size") >= first), counted.filter(pl.col("size") < first)
    classes = sizes + 1 - first
    leaves = _fill_counts(
        regions.tree,
        _cell_indices(counted_groups["leaf"], counted_groups["size"], classes, first),
        counted_groups["groups"],
        classes,
    )
    return Groups(tree=regions.tree, leaves=leaves, empty=int(empty_groups["groups"].sum()))


def check_totals(source: File, groups: Groups) -> None:
    """Check ``region, total`` (numbers of groups) against the sums of the leaves.

    Raises:
        InputError: a region that is unknown or occurs twice, a total that is not a whole number or not
            the sum of the leaves below it: the fault says in which direction, not by how much.
    """
    columns = [Column(name="region", kind="id"), Column(name="total", kind="count", least=0.0, unit="groups")]
    regions, totals = (column.tolist() for column in read_table(source, columns).values())
    sums = add_up(groups.tree, groups.leaves.sum(axis=1))
    sum_by_region = {
        region: int(value)
        for names, level in zip(groups.tree.names, sums, strict=True)
        for region, value in zip(names, level, strict=True)
    }
    faults = region_faults(source.name, regions, sum_by_region, is_secret=source.secret)
    for row, (region, value) in enumerate(zip(regions, totals, strict=True), start=2):
        if (short := value - sum_by_region.get(region, value)) != 0:
            difference = "a greater number" if short > 0 else "a smaller number"
            faults.add(source.name, f"row {row}, region {region!r}", difference, "the sum over its leaves")
    faults.check()
