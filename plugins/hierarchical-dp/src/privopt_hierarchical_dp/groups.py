"""The secret files of hierarchical-dp: counts of groups by size or unit records, and totals to check them."""

from __future__ import annotations

import numpy as np
import polars as pl
from attrs import frozen

from privopt.arrays import Ints
from privopt.declare import File
from privopt.declare.tables import Column, read_table
from privopt.errors import Fault, Faults, InputError, number_of
from privopt_hierarchical_dp.level_tables import GROUPS_LIMIT, LevelTable, region_faults
from privopt_hierarchical_dp.tree import Regions, Tree, add_up

__all__ = ["Groups", "check_totals", "read_counts", "read_units"]


@frozen(kw_only=True, eq=False)
class Groups:
    """The number of groups for each leaf region and size, read from a file of counts or units.

    Attributes:
        regions: The region tree, and the paths that identify its leaves in the file.
        leaves: (leaf regions, sizes) The number of groups of each size. Column 0 is the smallest size class (0 or 1),
            and the last column is "N or more".
        empty: The number of groups that were left out because their quantities add up to 0. It is 0 unless the file
            contains unit records and there is no size class 0.
    """

    regions: Regions
    leaves: Ints
    empty: int = 0

    @property
    def tree(self) -> Tree:
        """The region tree."""
        return self.regions.tree


def read_counts(source: File, sizes: int, *, first: int = 1, listed: Regions | None = None) -> Groups:
    """Read counts of groups, with one row per leaf region and size.

    The columns are ``level_1``, ..., ``level_L``, ``size`` and ``groups``. Region and size pairs without a row have
    count 0.

    Args:
        source: The file, in CSV or Parquet format.
        sizes: The largest size N.
        first: The smallest size, 0 or 1.
        listed: The regions of a public table, or None to take the regions from the file.

    Raises:
        InputError: A column is missing, a count is negative or fractional, a size is not between ``first`` and N, there
            are 2**50 groups or more, a region and size occur twice, the regions do not form a tree, or a region is not
            listed.
    """
    table = LevelTable.read(source, "size", "groups")
    size, groups = table.read_columns(
        Column(name="size", kind="count", least=first, most=sizes),
        Column(name="groups", kind="count", least=0, most=GROUPS_LIMIT - 1),
    )
    regions, leaf = table.place_rows(listed)
    # Summed in doubles, because 64-bit integers could overflow.
    if float(groups.cast(pl.Float64).sum()) >= GROUPS_LIMIT:
        raise InputError([Fault(source.name, "column groups", "more groups in all", "fewer than 2^50")])
    tree, classes, faults = regions.tree, sizes + 1 - first, Faults()
    cells = _cell_indices(leaf, size, classes, first)
    # Each cell must have a single row, because adding up repeated rows would hide a mistake in the file.
    rows = np.bincount(cells)
    for cell in np.flatnonzero(rows > 1).tolist():
        where = f"region {tree.name_of(-1, cell // classes)!r}, size {cell % classes + first}"
        faults.add(source.name, where, number_of(int(rows[cell]), "row"), "one row for each leaf region and size")
    faults.check()
    return Groups(regions=regions, leaves=_fill_counts(tree, cells, groups, classes))


def _cell_indices(leaf: pl.Series, size: pl.Series, classes: int, first: int) -> Ints:
    """Return the index of each row's cell in a flattened array of shape (leaf regions, sizes).

    Args:
        leaf: The index of each row's leaf region.
        size: The size in each row.
        classes: The number of size classes.
        first: The smallest size, which corresponds to column 0.
    """
    cells: Ints = leaf.to_numpy() * classes
    # Modified in place, because there can be many millions of rows.
    cells += size.to_numpy()
    cells -= first
    return cells


def _fill_counts(tree: Tree, cells: Ints, groups: pl.Series, classes: int) -> Ints:
    """Return the number of groups in each leaf region and size class. Cells that are not listed are 0.

    Args:
        tree: The region tree.
        cells: (rows,) The distinct cell indices from `_cell_indices`.
        groups: The number of groups in each of these cells.
        classes: The number of size classes.

    Returns:
        A (leaf regions, classes) array.
    """
    leaves = np.zeros(tree.widths[-1] * classes, np.int64)
    leaves[cells] = groups.to_numpy()
    return leaves.reshape(-1, classes)


def read_units(
    source: File, sizes: int, *, max_quantity: int = 1, first: int = 1, listed: Regions | None = None
) -> Groups:
    """Read unit records, with one row per individual, and count the groups that they form.

    The columns are ``level_1``, ..., ``level_L``, ``unit`` and ``quantity``. A group consists of all individuals with
    the same unit and leaf region. Its size is the sum of their quantities.

    Args:
        source: The file, in CSV or Parquet format.
        sizes: The largest size N. Larger groups are counted as N.
        max_quantity: The largest quantity Q of an individual.
        first: The smallest size. If it is 0, units whose quantities add up to 0 are counted as groups of size 0. Such a
            unit may be vacant, with a single row of quantity 0.
        listed: The regions of a public table, or None to take the regions from the file.

    Raises:
        InputError: A column is missing, a quantity is negative, fractional or above ``max_quantity``, a unit has no
            name, the regions do not form a tree, or a region is not listed.
    """
    table = LevelTable.read(source, "unit", "quantity")
    unit_label = f"max_quantity = {max_quantity}"
    unit, quantity = table.read_columns(
        Column(name="unit", kind="id"),
        Column(name="quantity", kind="count", least=0, most=max_quantity, unit=unit_label),
    )
    regions, leaf = table.place_rows(listed)
    records = pl.DataFrame({"leaf": leaf, "unit": unit, "quantity": quantity})
    # A unit is identified by its name and region, so units of the same name in different regions are different.
    groups = records.group_by("leaf", "unit").agg(pl.col("quantity").sum().clip(0, sizes).alias("size"))
    # The number of groups of each size in each leaf region.
    counted = groups.group_by("leaf", "size").agg(pl.len().cast(pl.Int64).alias("groups"))
    # If size 0 is not a class, units whose quantities add up to 0 are counted only for the owner's information.
    counted_groups, empty_groups = counted.filter(pl.col("size") >= first), counted.filter(pl.col("size") < first)
    classes = sizes + 1 - first
    leaves = _fill_counts(
        regions.tree,
        _cell_indices(counted_groups["leaf"], counted_groups["size"], classes, first),
        counted_groups["groups"],
        classes,
    )
    return Groups(regions=regions, leaves=leaves, empty=int(empty_groups["groups"].sum()))


def check_totals(source: File, groups: Groups) -> None:
    """Check that each region's total in a file equals the number of groups in its leaf regions.

    Args:
        source: The file, with the columns ``region`` and ``total``.
        groups: The groups read from the counts or units.

    Raises:
        InputError: A region is unknown or listed twice, or a total is not an integer or differs from the sum. The
            message gives the sign of a difference but not its size.
    """
    columns = [Column(name="region", kind="id"), Column(name="total", kind="count", least=0.0, unit="groups")]
    regions, totals = read_table(source, columns).values()
    levels, places = groups.tree.find_regions(pl.Series(regions, dtype=pl.String))
    faults = region_faults(source.name, regions.tolist(), places >= 0, is_secret=source.secret)
    # Unknown regions have already been reported, so their totals are treated as correct.
    surplus = np.zeros(len(regions))
    for level, sums in enumerate(add_up(groups.tree, groups.leaves.sum(axis=1))):
        is_here = (levels == level) & (places >= 0)
        surplus[is_here] = totals[is_here] - sums[places[is_here]]
    for row in np.flatnonzero(surplus).tolist():
        # Only the sign is given, because the size of the difference would reveal a secret count.
        difference = "a greater number" if surplus[row] > 0 else "a smaller number"
        # Row 1 is the header, so the first row of data is row 2.
        where = f"row {row + 2}, region {str(regions[row])!r}"
        faults.add(source.name, where, difference, "the sum over its leaves")
    faults.check()
