"""The secret files of hierarchical-dp: counts of groups by size, or unit records, and totals to check them by."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Ints
from privopt.declare import File
from privopt.declare.tables import Column, read_table
from privopt.errors import Fault, Faults, InputError
from privopt_hierarchical_dp.level_tables import GROUPS_LIMIT, LevelTable, Whole, of_table, region_faults, text, whole
from privopt_hierarchical_dp.tree import Regions, Tree, add_up

__all__ = ["Groups", "check_totals", "read_counts", "read_units"]

UNITS_AT_ONCE: Final = 8_000_000


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


@of_table
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
    classes = sizes + 1 - first
    table = LevelTable.by_levels(source, "size", "groups")
    wanted = (
        Whole(column="size", wanted=f"a whole number from {first} to {sizes} (sizes)", least=first, most=sizes),
        Whole(column="groups", wanted="a whole number of groups, 0 or more, below 2^50"),
    )
    bad = {own.column: (own.bad(table.frame), own.wanted) for own in wanted}
    tree, place, keys, unlisted = table.placed(bad, listed, empty=listed is not None)
    Faults(unlisted).check()
    size, groups = whole(table.frame, "size") - first, whole(table.frame, "groups")
    frame = table.frame.select(*map(text, keys), size.alias("_size"), groups.alias("_groups"))
    cell = (pl.col("_leaf") * classes + pl.col("_size")).alias("_cell")
    cells = table.collect(cell, "_groups", frame=frame.join(place, on=keys, how="left"))
    at = cells["_cell"].to_numpy()
    leaves = np.zeros(tree.widths[-1] * classes, np.int64)
    leaves[at] = cells["_groups"].to_numpy()
    if (in_all := float(leaves.sum(dtype=np.float64))) >= GROUPS_LIMIT:
        raise InputError([Fault(source.name, "column groups", f"{in_all:.6g} groups in all", "fewer than 2^50")])
    if int(np.bincount(at).max(initial=0)) > 1:
        Faults(_twice(at, tree, classes, first, source.name)).check()
    return Groups(tree=tree, leaves=leaves.reshape(tree.widths[-1], classes))


def _twice(cells: NDArray[Any], tree: Tree, classes: int, first: int, name: str) -> list[Fault]:
    unique, counts = np.unique(cells, return_counts=True)
    return [
        Fault(
            name,
            f"region {tree.names[-1][cell // classes]!r}, size {cell % classes + first}",
            f"{count} rows",
            "one row for each leaf region and size",
        )
        for cell, count in zip(unique[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True)
    ]


@of_table
def read_units(
    source: File, sizes: int, *, max_quantity: int = 1, first: int = 1, listed: Regions | None = None
) -> Groups:
    """Read ``level_1, ..., level_L, unit, quantity``: one row an individual; a group is a unit of a leaf region.

    Units are added up by the engine in slices, so that no more than the file as it was read has to fit into memory.

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
    table = LevelTable.by_levels(source, "unit", "quantity")
    wanted = Whole(
        column="quantity", wanted=f"a whole number from 0 to {max_quantity} (max_quantity)", most=max_quantity
    )
    bad = {"quantity": (wanted.bad(table.frame), wanted.wanted), "unit": (text("unit") == "", "the unit's id")}
    tree, place, keys, unlisted = table.placed(bad, listed, empty=listed is not None)
    Faults(unlisted).check()
    slices = -(-int(table.collect(pl.len()).item()) // UNITS_AT_ONCE)
    records = table.frame.select(*map(text, keys), text("unit"), whole(table.frame, "quantity").alias("_quantity"))
    leaves = np.zeros((tree.widths[-1], sizes + 1 - first), np.int64)
    empty = 0
    for part in range(slices):
        own = records if slices == 1 else records.filter(pl.col("unit").hash() % slices == part)
        groups = own.group_by(*keys, "unit").agg(pl.col("_quantity").sum().clip(0, sizes).alias("_size"))
        counted = groups.group_by(*keys, "_size").agg(pl.len().cast(pl.Int64).alias("_groups"))
        found = table.collect("_leaf", "_size", "_groups", frame=counted.join(place, on=keys, how="left"))
        at, size, number = (found[column].to_numpy() for column in ("_leaf", "_size", "_groups"))
        some = size >= first
        empty += int(number[~some].sum())
        np.add.at(leaves, (at[some], size[some] - first), number[some])
    return Groups(tree=tree, leaves=leaves, empty=empty)


def check_totals(source: File, groups: Groups) -> None:
    """Check ``region, total`` (numbers of groups) against the sums of the leaves.

    Raises:
        InputError: a region that is unknown or occurs twice, a total that is not a whole number or not
            the sum of the leaves below it: the fault says by how much.
    """
    columns = [Column(name="region", kind="id"), Column(name="total", kind="count", least=0.0, unit="groups")]
    regions, totals = (own.tolist() for own in read_table(source, columns).values())
    sums = add_up(groups.tree, groups.leaves.sum(axis=1))
    known = {
        region: int(value)
        for names, level in zip(groups.tree.names, sums, strict=True)
        for region, value in zip(names, level, strict=True)
    }
    faults = region_faults(source.name, regions, known)
    for row, (region, value) in enumerate(zip(regions, totals, strict=True), start=2):
        if (short := value - known.get(region, value)) != 0:
            side = f"which fall {short} short of it" if short > 0 else f"{-short} more"
            wanted = f"{known[region]}, the sum over its leaves, {side}"
            faults.add(source.name, f"row {row}, region {region!r}", str(value), wanted)
    faults.check()
