"""Published tables with a row for each region and cell: writes them sorted by name, and reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import polars as pl
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Ints
from privopt.errors import Fault, InputError, reason_of
from privopt_hierarchical_dp.tree import Tree

__all__ = ["Cells", "Form", "Layout", "read_rows", "write_rows"]

ROWS_AT_ONCE: Final = 1_000_000
"""Approximate number of rows of a table in memory at a time while it is written."""

Cells: TypeAlias = Mapping[str, Sequence[str] | Sequence[int]]
"""Columns that identify the cells of a region, with one entry for each cell."""


@frozen(kw_only=True, eq=False)
class Form:
    """The published form of one table: its files, columns and shapes.

    Attributes:
        name: Name of the table. Empty if it is the only table.
        file: The file of counts, with a row for each region and cell.
        count: Name of the column of counts.
        intervals: The file with columns low and high, which may be the file of counts.
        private: The file of true counts.
        cells: Columns that identify the cells of a region.
        shape: Shape of a region's counts, with an axis for each attribute.
        margin: The numbers of the table's attributes. Tables must agree on the attributes that they share.
        measured: Shape of a region's noisy values. None stands for any length.
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
        """The name of the table, or if it has none, its column of counts and the columns of its cells."""
        return self.name or f"{self.count} by {', '.join(self.cells)}"

    @property
    def prefix(self) -> str:
        """The prefix of the names of the table's arrays."""
        return f"{self.name}." if self.name else ""

    def cell(self, number: int) -> str:
        """Return a text for a cell that is appended to the name of its region, such as ``, size 3``."""
        return "".join(f", {column} {values[number]}" for column, values in self.cells.items())

    def part(self, level: int) -> str:
        """Return the name of the table's measurement on a level, counted from 1."""
        return f"{self.name} on level {level}" if self.name else f"level {level}"


@frozen(kw_only=True, eq=False)
class Layout:
    """The files of a release.

    Attributes:
        forms: The published form of each table.
        noun: The plural noun for what is counted.
    """

    forms: tuple[Form, ...]
    noun: str


def _list_regions(tree: Tree) -> list[tuple[str, str, int, int]]:
    """Return every region once, sorted by name as in files.

    Returns:
        The name of each region, its parent's name (empty for the root), its level, and its position on the level.
    """
    regions = []
    for level, names in enumerate(tree.names):
        parent_names = tree.names[level - 1] if level else ()
        parents = [parent_names[parent] for parent in tree.parents(level).tolist()] if level else [""]
        is_first = tree.first_here(level).tolist()
        regions += [(names[r], parents[r], level, r) for r in range(len(names)) if is_first[r]]
    # By name; names are unique once repeated leaves are left out.
    return sorted(regions)


def _make_series(name: str, values: NDArray[Any]) -> pl.Series:
    """Return a column of numbers or of texts, in which empty texts become missing values."""
    column = pl.Series(name, values.tolist() if values.dtype.kind == "U" else values)
    return column.replace("", None) if column.dtype == pl.String else column


def write_rows(path: Path, tree: Tree, cells: Cells, columns: Mapping[str, Sequence[NDArray[Any]]]) -> None:
    """Write a table with the columns ``region, parent``, the columns of cells, and columns of numbers or texts.

    Args:
        path: The file.
        tree: The regions.
        cells: The columns that identify the cells of a region.
        columns: The values (R_l, ...) of each column on each level, with the same number of cells for each region.
    """
    regions = _list_regions(tree)
    # The number of cells of a region; 1 if no column identifies any.
    count = len(next(iter(cells.values()), [0]))
    begins = np.cumsum([0, *tree.widths])
    # The row of each region in the levels that are put one below the other.
    order = np.array([begins[level] + index for _, _, level, index in regions])
    values = {
        name: np.concatenate([level.reshape(len(level), -1) for level in levels]) for name, levels in columns.items()
    }
    # Regions are written in blocks, because names repeat for each cell and would take much memory at once.
    step = max(1, ROWS_AT_ONCE // count)
    with path.open("wb") as stream:
        for begin in range(0, len(regions), step):
            block = regions[begin : begin + step]
            # Each region is repeated for each of its cells.
            rows = np.repeat(np.arange(len(block)), count)
            series = [
                pl.Series("region", [region for region, *_ in block], dtype=pl.String).gather(rows),
                pl.Series("parent", [parent or None for _, parent, *_ in block], dtype=pl.String).gather(rows),
                *(
                    pl.Series(name, list(column_values)).gather(np.tile(np.arange(count), len(block)))
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
    """Read a table that :func:`write_rows` wrote.

    Args:
        path: The file.
        cells: The columns that identify the cells of a region, in order.
        columns: The names of the columns of numbers.
        tree: The regions that the file must have. If None, its own regions are used.

    Returns:
        The regions, and the numbers (R_l, cells) of each column on each level.

    Raises:
        InputError: The file cannot be read, or its rows are not those that would be written.
    """
    count = len(next(iter(cells.values()), [0]))
    kinds = {name: pl.String if isinstance(cell_values[0], str) else pl.Int64 for name, cell_values in cells.items()}
    schema = {"region": pl.String, "parent": pl.String, **kinds, **dict.fromkeys(columns, pl.Int64)}
    expectation = f"columns {', '.join(schema)}"
    try:
        # glob=False: a path with * in it is not a pattern.
        table = pl.read_csv(path, schema_overrides=schema, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(
            [Fault(str(path), "", f"a table that cannot be read ({reason_of(error)})", expectation)]
        ) from None
    if table.columns != list(schema):
        raise InputError([Fault(str(path), "header", ",".join(table.columns), expectation)])
    height = table.height
    # Each region has one row for each cell.
    if height == 0 or height % count or any(table[name].null_count() for name in columns):
        raise InputError([Fault(str(path), "", f"{height} rows", f"{count} rows with numbers for each region")])
    regions = height // count
    first_rows = np.arange(0, height, count)
    is_as_written = all(
        # Each region's rows must repeat its name and parent. The root's parent is an empty cell, which reads as null,
        # and plain equality with null would be null.
        table[name].eq_missing(table[name].gather(np.repeat(first_rows, count))).all()
        for name in ("region", "parent")
    )
    for name, cell_values in cells.items():
        in_order = pl.Series(list(cell_values), dtype=kinds[name]).gather(np.tile(np.arange(count), regions))
        is_as_written = is_as_written and table[name].eq_missing(in_order).all()
    if not is_as_written:
        order_expectation = f"for each region in turn the cells by {', '.join(cells) or 'region'}, in their order"
        raise InputError([Fault(str(path), "", "other rows", order_expectation)])
    region, parent = (table[name].gather(first_rows).fill_null("").to_list() for name in ("region", "parent"))
    if tree is None:
        tree = _tree_of(region, parent, path)
    elif list(zip(region, parent, strict=True)) != [cell_values[:2] for cell_values in _list_regions(tree)]:
        raise InputError([Fault(str(path), "", "other rows", "the problem's regions, sorted by name")])
    row_by_region = {name: row for row, name in enumerate(region)}
    # A leaf that is repeated on several levels has one row, which each of them reads.
    rows = [[row_by_region[name] for name in level] for level in tree.names]
    numbers = [table[name].to_numpy().reshape(regions, count) for name in columns]
    return tree, [[np.ascontiguousarray(values[row]) for row in rows] for values in numbers]


def _tree_of(region: list[str], parent: list[str], path: Path) -> Tree:
    """Return the tree of the regions and parents in a published table.

    Args:
        region: The name of each region.
        parent: The name of each region's parent. Empty for the root.
        path: The file, for faults.

    Raises:
        InputError: A region occurs twice, parents form a cycle or have no rows, or there is more than one tree.
    """
    parent_by_region = dict(zip(region, parent, strict=True))
    if len(parent_by_region) != len(region):
        raise InputError([Fault(str(path), "region", "a region that occurs twice", "each region once")])
    # Regions that are the parent of another; the others are leaves.
    inner = set(parent)
    paths = []
    for leaf in (name for name in region if name not in inner):
        # From the leaf up to the root. A chain that is longer than the number of regions has a cycle.
        chain = [leaf]
        while parent_by_region.get(chain[-1]):
            chain.append(parent_by_region[chain[-1]])
            if len(chain) > len(region):
                raise InputError([Fault(str(path), "parent", f"a circle through {leaf!r}", "a tree")])
        paths.append(tuple(reversed(chain)))
    tree = Tree.from_paths(paths, file=str(path))
    # Parents that are named but have no rows are in the tree, too. Regions on a cycle that no leaf leads to are not.
    missing = [name for level in tree.names for name in level if name not in parent_by_region]
    if missing or len({name for level in tree.names for name in level}) != len(region):
        actual = f"parent {missing[0]!r} without rows" if missing else "regions outside the tree"
        raise InputError([Fault(str(path), "parent", actual, "a tree whose regions all have rows")])
    return tree
