"""Published tables with a row for each region and cell: written sorted by name, and read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import polars as pl
from attrs import frozen

from privopt.arrays import Ints
from privopt.errors import Fault, InputError, reason_of
from privopt_hierarchical_dp.tree import Tree

__all__ = ["Cells", "Form", "Layout", "read_rows", "write_rows"]

ROWS_AT_ONCE: Final = 1_000_000
"""Number of rows that are laid out in memory at a time when a table is written."""

Cells: TypeAlias = Mapping[str, Sequence[str] | Sequence[int]]
"""Columns that identify the cells of a region, with one entry for each cell."""


@frozen(kw_only=True, eq=False)
class Form:
    """How one table is published.

    Attributes:
        name: of the table; empty where there is one alone.
        file: its counts, a row for each region and cell.
        count: the name of their column.
        intervals: the file with columns low and high; may be the same.
        private: the file of true counts.
        cells: columns that identify the cells of a region.
        shape: of a region's counts, an axis for each attribute.
        margin: which attributes these are, by number: tables must agree on those that they share.
        measured: shape of a region's noisy values; None: any length.
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
        """The table's name; if it has none, its counts and the columns by which they are counted."""
        return self.name or f"{self.count} by {', '.join(self.cells)}"

    @property
    def prefix(self) -> str:
        """The prefix of the names of the table's arrays."""
        return f"{self.name}." if self.name else ""

    def cell(self, number: int) -> str:
        """Describe a cell in words, to follow its region."""
        return "".join(f", {column} {values[number]}" for column, values in self.cells.items())

    def part(self, level: int) -> str:
        """Return the name of the table's measurement on a level (from 1)."""
        return f"{self.name} on level {level}" if self.name else f"level {level}"


@frozen(kw_only=True, eq=False)
class Layout:
    """The files of a release.

    Attributes:
        forms: of its tables.
        noun: what is counted.
    """

    forms: tuple[Form, ...]
    noun: str


def _list_regions(tree: Tree) -> list[tuple[str, str, int, int]]:
    """List the name, parent, level and position of every region in the order of files, sorted by name."""
    regions = []
    for level, names in enumerate(tree.names):
        parent_names = tree.names[level - 1] if level else ()
        parents = [parent_names[parent] for parent in tree.parents(level).tolist()] if level else [""]
        is_first = tree.first_here(level).tolist()
        regions += [(names[r], parents[r], level, r) for r in range(len(names)) if is_first[r]]
    return sorted(regions)


def write_rows(path: Path, tree: Tree, cells: Cells, columns: Mapping[str, Sequence[Ints]]) -> None:
    """Write a table with columns ``region, parent``, those of the cells, and columns of numbers.

    Args:
        path: The file.
        tree: The regions.
        cells: The columns that identify the cells of a region.
        columns: For each column its numbers on each level (R_l, ...), with as many cells for each region.
    """
    regions = _list_regions(tree)
    count = len(next(iter(cells.values()), [0]))
    begins = np.cumsum([0, *tree.widths])
    order = np.array([begins[level] + index for _, _, level, index in regions])
    values = {
        name: np.concatenate([level.reshape(len(level), -1) for level in levels]) for name, levels in columns.items()
    }
    # Regions are written in blocks, because names repeat for each cell and would take much memory at once.
    step = max(1, ROWS_AT_ONCE // count)
    with path.open("wb") as stream:
        for begin in range(0, len(regions), step):
            block = regions[begin : begin + step]
            rows = np.repeat(np.arange(len(block)), count)
            series = [
                pl.Series("region", [region for region, *_ in block], dtype=pl.String).gather(rows),
                pl.Series("parent", [parent or None for _, parent, *_ in block], dtype=pl.String).gather(rows),
                *(
                    pl.Series(name, list(column_values)).gather(np.tile(np.arange(count), len(block)))
                    for name, column_values in cells.items()
                ),
                *(
                    pl.Series(name, column_values[order[begin : begin + step]].ravel())
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
        tree: The regions that the file must have; None to take those that it has.

    Returns:
        The regions, and for each column its numbers on each level (R_l, cells).

    Raises:
        InputError: The file cannot be read, or has other rows than would be written.
    """
    count = len(next(iter(cells.values()), [0]))
    kinds = {name: pl.String if isinstance(cell_values[0], str) else pl.Int64 for name, cell_values in cells.items()}
    schema = {"region": pl.String, "parent": pl.String, **kinds, **dict.fromkeys(columns, pl.Int64)}
    expectation = f"columns {', '.join(schema)}"
    try:
        table = pl.read_csv(path, schema_overrides=schema, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(
            [Fault(str(path), "", f"a table that cannot be read ({reason_of(error)})", expectation)]
        ) from None
    if table.columns != list(schema):
        raise InputError([Fault(str(path), "header", ",".join(table.columns), expectation)])
    height = table.height
    if height == 0 or height % count or any(table[name].null_count() for name in columns):
        raise InputError([Fault(str(path), "", f"{height} rows", f"{count} rows with numbers for each region")])
    regions = height // count
    first_rows = np.arange(0, height, count)
    is_as_written = all(
        table[name].eq_missing(table[name].gather(np.repeat(first_rows, count))).all() for name in ("region", "parent")
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
    rows = [[row_by_region[name] for name in level] for level in tree.names]
    numbers = [table[name].to_numpy().reshape(regions, count) for name in columns]
    return tree, [[np.ascontiguousarray(values[row]) for row in rows] for values in numbers]


def _tree_of(region: list[str], parent: list[str], path: Path) -> Tree:
    parent_by_region = dict(zip(region, parent, strict=True))
    if len(parent_by_region) != len(region):
        raise InputError([Fault(str(path), "region", "a region that occurs twice", "each region once")])
    inner = set(parent)
    paths = []
    for leaf in (name for name in region if name not in inner):
        chain = [leaf]  # from the leaf up to the root; longer than all regions means a cycle
        while parent_by_region.get(chain[-1]):
            chain.append(parent_by_region[chain[-1]])
            if len(chain) > len(region):
                raise InputError([Fault(str(path), "parent", f"a circle through {leaf!r}", "a tree")])
        paths.append(tuple(reversed(chain)))
    tree = Tree.from_paths(paths, file=str(path))
    missing = [name for level in tree.names for name in level if name not in parent_by_region]
    if missing or len({name for level in tree.names for name in level}) != len(region):
        actual = f"parent {missing[0]!r} without rows" if missing else "regions outside the tree"
        raise InputError([Fault(str(path), "parent", actual, "a tree whose regions all have rows")])
    return tree
