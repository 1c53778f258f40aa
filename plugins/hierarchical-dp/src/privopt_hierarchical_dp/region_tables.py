"""Write and read published tables, which have one row per region and cell and are sorted by region name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import polars as pl
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Bools, Ints
from privopt.errors import Fault, InputError, reason_of
from privopt_hierarchical_dp.tree import Tree

__all__ = ["Cells", "Form", "Layout", "read_rows", "write_rows"]

ROWS_AT_ONCE: Final = 1_000_000
"""The approximate number of rows held in memory at once while writing a table."""

Cells: TypeAlias = Mapping[str, Sequence[str] | Sequence[int]]
"""The columns that identify the cells of a region, with one entry per cell."""


@frozen(kw_only=True, eq=False)
class Form:
    """The published form of one table: its files, columns and shapes.

    Attributes:
        name: The name of the table. Empty for hierarchical-dp, which has only one table.
        file: The file of counts, with one row per region and cell.
        count: The name of the column of counts.
        intervals: The file with the columns ``low`` and ``high``, which may be the file of counts.
        private: The file of true counts.
        cells: The columns that identify the cells of a region.
        shape: The shape of a region's counts, with one axis per attribute.
        margin: The indices of the table's attributes. Tables must agree on the attributes they share.
        measured: The shape of a region's noisy values. An entry of None allows any length.
    """

    name: str = ""
    file: str
    count: str
    intervals: str
    private: str
    cells: Cells
    shape: tuple[int, ...]
    margin: tuple[int, ...] = (0,)
    measured: tuple[int | None, ...]

    @property
    def title(self) -> str:
        """The name of the table or, if it has none, its count column and the columns that identify its cells."""
        return self.name or f"{self.count} by {', '.join(self.cells)}"

    @property
    def prefix(self) -> str:
        """The prefix for the names of the table's arrays in ``noisy.npz``."""
        return f"{self.name}." if self.name else ""

    def cell(self, number: int) -> str:
        """Return the text that identifies a cell in messages, such as ``, size 3``.

        It is appended to the region's name.
        """
        return "".join(f", {column} {values[number]}" for column, values in self.cells.items())

    def part(self, level: int) -> str:
        """Return the name of the table's measurement at a level. The root is at level 1."""
        return f"{self.name} on level {level}" if self.name else f"level {level}"


@frozen(kw_only=True, eq=False)
class Layout:
    """The files of a release, described by the published form of each table.

    Attributes:
        forms: The published form of each table.
        noun: The plural noun for what is counted.
    """

    forms: tuple[Form, ...]
    noun: str


def _make_series(name: str, values: NDArray[Any]) -> pl.Series:
    """Convert an array of numbers or strings to a column, with nulls in place of empty strings."""
    column = pl.Series(name, values.tolist() if values.dtype.kind == "U" else values)
    return column.replace("", None) if column.dtype == pl.String else column


def write_rows(path: Path, tree: Tree, cells: Cells, columns: Mapping[str, Sequence[NDArray[Any]]]) -> None:
    """Write a CSV file with columns ``region`` and ``parent``, followed by those of ``cells`` and then of ``columns``.

    Args:
        path: The path to write to.
        tree: The region tree.
        cells: The columns that identify the cells of a region.
        columns: The remaining columns. Each has one array per level, of shape (regions, ...), with one number or string
            per cell.
    """
    # The number of cells per region, which is 1 if `cells` is empty.
    count = len(next(iter(cells.values()), [0]))
    # The listing has one row per region, with the region's index in the concatenated levels.
    listing, order = tree.listing, tree.listing["number"].to_numpy()
    values = {
        name: np.concatenate([level.reshape(len(level), -1) for level in levels]) for name, levels in columns.items()
    }
    # As names are repeated for each cell, regions are written in blocks to save memory.
    step = max(1, ROWS_AT_ONCE // count)
    with path.open("wb") as stream:
        for begin in range(0, len(order), step):
            block = listing[begin : begin + step]
            # Each region has one row per cell.
            rows = np.repeat(np.arange(block.height), count)
            series = [
                block["region"].gather(rows),
                block["parent"].gather(rows),
                *(
                    pl.Series(name, list(column_values)).gather(np.tile(np.arange(count), block.height))
                    for name, column_values in cells.items()
                ),
                *(
                    _make_series(name, column_values[order[begin : begin + step]].ravel())
                    for name, column_values in values.items()
                ),
            ]
            pl.DataFrame(series).write_csv(stream, include_header=begin == 0, quote_style="necessary", null_value="")


def read_rows(
    path: Path, cells: Cells, columns: Sequence[str], tree: Tree | None = None
) -> tuple[Tree, list[list[Ints]]]:
    """Read a table written by :func:`write_rows`.

    Args:
        path: The path of the file.
        cells: The columns that identify the cells of a region, in order.
        columns: The names of the numeric columns.
        tree: The region tree to which the file's rows must belong. If None, the tree is built from the file.

    Returns:
        The region tree and, for each column and level, an array of shape (regions, cells).

    Raises:
        InputError: The file cannot be read, or does not have the rows and columns that :func:`write_rows` would write.
    """
    count = len(next(iter(cells.values()), [0]))
    kinds = {name: pl.String if isinstance(cell_values[0], str) else pl.Int64 for name, cell_values in cells.items()}
    schema = {"region": pl.String, "parent": pl.String, **kinds, **dict.fromkeys(columns, pl.Int64)}
    expectation = f"columns {', '.join(schema)}"
    try:
        # glob=False makes sure that a path that contains * is not treated as a pattern.
        table = pl.read_csv(path, schema_overrides=schema, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(
            [Fault(str(path), "", f"a table that cannot be read ({reason_of(error)})", expectation)]
        ) from None
    if table.columns != list(schema):
        raise InputError([Fault(str(path), "header", ",".join(table.columns), expectation)])
    height = table.height
    # Each region has one row per cell.
    if height == 0 or height % count or any(table[name].null_count() for name in columns):
        raise InputError([Fault(str(path), "", f"{height} rows", f"{count} rows with numbers for each region")])
    regions = height // count
    first_rows = np.arange(0, height, count)
    is_as_written = all(
        # Each region's rows must repeat its name and parent. The root's parent is an empty cell, which is read as null,
        # and comparing with null by == would yield null.
        table[name].eq_missing(table[name].gather(np.repeat(first_rows, count))).all()
        for name in ("region", "parent")
    )
    for name, cell_values in cells.items():
        in_order = pl.Series(list(cell_values), dtype=kinds[name]).gather(np.tile(np.arange(count), regions))
        is_as_written = is_as_written and table[name].eq_missing(in_order).all()
    if not is_as_written:
        order_expectation = f"for each region in turn the cells by {', '.join(cells) or 'region'}, in their order"
        raise InputError([Fault(str(path), "", "other rows", order_expectation)])
    region, parent = (table[name].gather(first_rows) for name in ("region", "parent"))
    if tree is None:
        tree, rows = _tree_of(region.fill_null(""), parent.fill_null(""), path)
    else:
        listing = tree.listing
        if not (region.equals(listing["region"]) and parent.equals(listing["parent"], null_equal=True)):
            raise InputError([Fault(str(path), "", "other rows", "the problem's regions, sorted by name")])
        # `ranks` has each region's position in the list of all regions by name, which is the order of the file.
        rows = list(tree.ranks)
    # A leaf that is repeated on several levels occurs once in the file, and is used on each of them.
    numbers = [table[name].to_numpy().reshape(regions, count) for name in columns]
    return tree, [[np.ascontiguousarray(values[row]) for row in rows] for values in numbers]


def _tree_of(region: pl.Series, parent: pl.Series, path: Path) -> tuple[Tree, list[Ints]]:
    """Return the tree formed by the regions and parents in a published table.

    Args:
        region: The name of each region.
        parent: The name of each region's parent. Empty for the root.
        path: The path of the file, for error messages.

    Returns:
        The tree and, for each level, an array with the index of each region in ``region``.

    Raises:
        InputError: A region has no name or occurs twice, a parent has no rows, parents form a cycle, or there is more
            than one root.
    """
    file = str(path)
    if region.n_unique() < len(region):
        raise InputError([Fault(file, "region", "a region that occurs twice", "each region once")])
    if (region == "").any():
        raise InputError([Fault(file, "region", "an empty name", "the name of each region")])
    rows = pl.DataFrame({"name": region}).with_row_index("row")
    is_root = (parent == "").to_numpy()
    parent_rows = pl.DataFrame({"name": parent}).join(rows, on="name", how="left", maintain_order="left")["row"]
    missing = parent.filter(parent_rows.is_null() & ~pl.Series(is_root))
    if len(missing):
        actual = f"parent {missing[0]!r} without rows"
        raise InputError([Fault(file, "parent", actual, "a tree whose regions all have rows")])
    if is_root.sum() > 1:
        actual = f"the roots {', '.join(map(repr, region.filter(is_root).sort().head(3).to_list()))}"
        raise InputError([Fault(file, "parent", actual, "one root")])
    levels = _follow_children(parent_rows.fill_null(0).to_numpy().astype(np.int64), is_root)
    is_reached = np.zeros(len(region), np.bool_)
    for numbers, _, _ in levels:
        is_reached[numbers] = True
    if not is_reached.all():
        # If a region cannot be reached from the root, its ancestors form a cycle.
        actual = f"a cycle through {region[int(np.argmin(is_reached))]!r}"
        raise InputError([Fault(file, "parent", actual, "a tree")])
    tree, positions = Tree.arrange([(region.gather(numbers), above, repeats) for numbers, above, repeats in levels])
    ordered_rows = []
    for (numbers, _, _), position in zip(levels, positions, strict=True):
        ordered = np.empty_like(numbers)
        ordered[position] = numbers
        ordered_rows.append(ordered)
    return tree, ordered_rows


def _follow_children(parents: Ints, is_root: Bools) -> list[tuple[Ints, Ints, Bools]]:
    """List the regions level by level from the root down, until all regions at a level are leaves.

    A leaf above the last level is repeated at every level below it.

    Args:
        parents: (regions,) The index of each region's parent. The root's entry is ignored.
        is_root: (regions,) Whether each region is the root. There is at most one root.

    Returns:
        For each level, the indices of its regions, the index of each region's parent in the level above, and whether
        the region is a leaf that is repeated from the level above.
    """
    # The children of region r are children[starts[r] : starts[r + 1]].
    children = np.flatnonzero(~is_root)
    children = children[np.argsort(parents[children], kind="stable")]
    counts = np.bincount(parents[children], minlength=len(parents))
    starts = np.concatenate([[0], np.cumsum(counts)])
    numbers = np.flatnonzero(is_root)
    levels = [(numbers, np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.bool_))]
    while counts[numbers].any():
        # A leaf above the last level gets itself as its only child.
        repetitions = np.maximum(counts[numbers], 1)
        above = np.repeat(np.arange(len(numbers)), repetitions)
        is_repeated = counts[numbers][above] == 0
        # The position of each child among its siblings.
        offsets = np.arange(len(above)) - np.repeat(np.cumsum(repetitions) - repetitions, repetitions)
        following = numbers[above]
        is_new = ~is_repeated
        following[is_new] = children[starts[following[is_new]] + offsets[is_new]]
        numbers = following
        levels.append((numbers, above, is_repeated))
    return levels
