"""The tree of regions: levels of regions in which each region below the root has one parent.

Branches may end above the last level. The leaf of a short branch is repeated at every level below it, so that each
level covers the whole hierarchy. Names are polars columns and positions are NumPy arrays, because a country's ten
million blocks would require too many Python objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np
import polars as pl
from attrs import field, frozen
from numpy.typing import NDArray

from privopt.arrays import Bools, Ints, read_only
from privopt_hierarchical_dp.region_paths import as_frame, number_regions

__all__ = ["Regions", "Tree", "add_up", "past_sums", "sum_axes", "sum_squares"]


N = TypeVar("N", bound=np.number[Any])
"""The numeric type of an array."""
LARGEST_SUM: Final = 2.0**61
"""If absolute values add up to less than this, any sum of the values, or difference of two sums, fits in 64 bits."""


def _to_read_only(arrays: Sequence[Ints]) -> tuple[Ints, ...]:
    """Return read-only int64 copies of the arrays, so that the tree is immutable."""
    return tuple(read_only(np.array(array, dtype=np.int64)) for array in arrays)


@frozen(kw_only=True, eq=False)
class Tree:
    """A hierarchy of regions with L levels. The regions at each level cover the whole hierarchy.

    A leaf above level L is repeated at every level below, as its own only child. It is measured again at those levels,
    so that their budget shares are not wasted on this branch. Files list the leaf only once.

    If several regions share a name, each is identified by its path below the root, joined by ``/`` (``OR/Washington``).
    A path that starts with the root's own name also includes the root (``Luxembourg/Luxembourg``).

    The regions at a level are ordered by parent and then by name (Unicode code points). The tree therefore does not
    depend on the order of the rows in a file, which may be secret.

    >>> tree = Tree.from_paths([("US", "NY"), ("US", "GA")])
    >>> tree.depth, tree.names, tree.start[0].tolist()
    (2, (('US',), ('GA', 'NY')), [0, 2])
    >>> Tree.from_paths([("US", "NY", "Kings"), ("US", "Guam")]).names
    (('US',), ('Guam', 'NY'), ('Guam', 'Kings'))
    >>> Tree.from_paths([("US", "OR", "Washington"), ("US", "Washington", "King")]).names[2]
    ('OR/Washington', 'King')
    >>> Tree.from_paths([("L", "L", "L"), ("L", "M", "L")]).names
    (('L',), ('L/L', 'M'), ('L/L/L', 'M/L'))

    Attributes:
        columns: For each level, a string column with the names of its regions.
        start: For each level except the last, an array of shape (regions + 1,) with offsets. The children of region r
            are the regions start[r] to start[r + 1] - 1 at the next level.
        ranks: For each level, an array of shape (regions,) with the position of each region in a list of all regions
            sorted by name. A repeated leaf occurs only once in this list. In a :meth:`subtree`, ranks still refer to
            the list for the whole tree.
    """

    columns: tuple[pl.Series, ...]
    start: tuple[Ints, ...] = field(converter=_to_read_only)
    ranks: tuple[Ints, ...] = field(converter=_to_read_only)

    @cached_property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """The names of the regions at each level as Python strings, which may take too much memory for large trees."""
        return tuple(tuple(column.to_list()) for column in self.columns)

    @property
    def depth(self) -> int:
        """The number of levels."""
        return len(self.columns)

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of regions at each level, starting at the root."""
        return tuple(map(len, self.columns))

    @property
    def regions(self) -> int:
        """The total number of regions at all levels. A repeated leaf is counted once at each of its levels."""
        return sum(self.widths)

    def name_of(self, level: int, place: int) -> str:
        """Return the name of a region.

        Args:
            level: The index of the region's level (0 for the root).
            place: The position of the region within its level.
        """
        name: str = self.columns[level][place]
        return name

    def parents(self, level: int) -> Ints:
        """Return the position of each region's parent in the level above.

        Args:
            level: The index of the regions' level, which must be at least 1 because the root has no parent.
        """
        return np.repeat(np.arange(self.widths[level - 1]), np.diff(self.start[level - 1]))

    def first_here(self, level: int) -> Bools:
        """Return a mask of the regions at a level that do not repeat a leaf from the level above.

        Args:
            level: The index of the level (0 for the root).
        """
        if not level:
            return np.ones(1, dtype=bool)
        # A repeated leaf has the same rank as the leaf itself. All other regions have unique ranks.
        return np.asarray(self.ranks[level] != self.ranks[level - 1][self.parents(level)])

    def leaf_range(self, level: int, place: int) -> tuple[int, int]:
        """Return the position of the first leaf below a region, and one past the position of the last leaf.

        Args:
            level: The index of the region's level (0 for the root).
            place: The position of the region within its level.
        """
        begin, end = place, place + 1
        for start in self.start[level:]:
            begin, end = int(start[begin]), int(start[end])
        return begin, end

    def subtree(self, level: int, place: int) -> tuple[Tree, list[slice]]:
        """Return the subtree rooted at a region, and where its regions are located in this tree.

        Args:
            level: The index of the region's level (0 for the root).
            place: The position of the region within its level.

        Returns:
            The subtree and, for each of its levels, the slice that it occupies in the corresponding level of this tree.
        """
        begin, end = place, place + 1
        slices, starts = [slice(begin, end)], []
        for start in self.start[level:]:
            first_child = int(start[begin])
            starts.append(start[begin : end + 1] - first_child)
            begin, end = first_child, int(start[end])
            slices.append(slice(begin, end))
        columns = tuple(self.columns[level + step][part] for step, part in enumerate(slices))
        ranks = tuple(self.ranks[level + step][part] for step, part in enumerate(slices))
        return Tree(columns=columns, start=tuple(starts), ranks=ranks), slices

    @property
    def root_alone(self) -> Tree:
        """A tree that consists only of the root."""
        return Tree(columns=self.columns[:1], start=(), ranks=self.ranks[:1])

    def labels(self, level: int) -> list[str]:
        """Return unique names for the regions at a level, by appending the level to the names of repeated leaves.

        Args:
            level: The index of the level (0 for the root).
        """
        new = self.first_here(level).tolist()
        return [
            name if is_new else f"{name} (level {level + 1})"
            for name, is_new in zip(self.names[level], new, strict=True)
        ]

    @cached_property
    def listing(self) -> pl.DataFrame:
        """A table with one row per region, in the order used in files: by name (Unicode code points).

        The columns are ``region``; ``parent``, the parent's name, which is null for the root; and ``number``, the
        region's index when the levels are concatenated from the root down. A repeated leaf has one row, with the index
        of its first occurrence.
        """
        offsets = np.cumsum([0, *self.widths])
        numbers = np.concatenate(
            [offsets[level] + np.flatnonzero(self.first_here(level)) for level in range(self.depth)]
        )
        # The index of each region, sorted by name.
        order = np.empty(len(numbers), np.int64)
        order[np.concatenate(self.ranks)[numbers]] = numbers
        # The root has no parent. It is marked by -1 here, and by null in the table.
        parents = np.concatenate(
            [[-1], *(offsets[level - 1] + self.parents(level) for level in range(1, self.depth))]
        ).astype(np.int64)[order]
        names = pl.concat(self.columns)
        parent = names.gather(pl.Series(np.maximum(parents, 0)))
        return pl.DataFrame(
            {"region": names.gather(order), "parent": parent.zip_with(pl.Series(parents >= 0), _nulls(len(order)))}
            | {"number": order}
        )

    def find_regions(self, names: pl.Series) -> tuple[Ints, Ints]:
        """Find regions by name. A repeated leaf is found at the highest level at which it occurs.

        Args:
            names: The names to find.

        Returns:
            For each name, the index of the region's level and the region's position there. Both are -1 if the name is
            unknown.
        """
        listed = self.listing.select("region", "number")
        matches = pl.DataFrame({"region": names}).join(listed, on="region", how="left", maintain_order="left")
        numbers, offsets = matches["number"].fill_null(-1).to_numpy(), np.cumsum([0, *self.widths])
        levels = np.searchsorted(offsets, numbers, side="right") - 1
        return levels, np.where(numbers < 0, -1, numbers - offsets[levels])

    def by_name(self, level: int) -> Ints:
        """Return the positions of a level's regions sorted by name, which is their order in files.

        Args:
            level: The index of the level (0 for the root).
        """
        return np.argsort(self.ranks[level])

    @classmethod
    def from_paths(cls, paths: Sequence[tuple[str, ...]] | pl.DataFrame, *, file: str = "counts") -> Tree:
        """Build the tree whose leaves have the given paths.

        Args:
            paths: The names of the regions from the root to each leaf. Paths may be repeated, have different lengths,
                or end in empty names.
            file: The file from which the paths were read, for error messages.

        Raises:
            InputError: An empty name is followed by another name, a leaf has regions below it, there are two roots, or
                two regions would get the same name in files.
        """
        return Regions.of(paths, file=file).tree

    @classmethod
    def arrange(cls, levels: Sequence[tuple[pl.Series, Ints, Bools]]) -> tuple[Tree, list[Ints]]:
        """Build a tree from its regions, which are sorted at each level by parent and then by name.

        The order depends only on the set of regions, because the order of rows in a file may reveal secrets.

        Args:
            levels: For each level, three columns with one entry per region, in any order. They contain the region's
                name, which must be unique except for repeated leaves; the index of its parent among the given regions
                of the level above, which is ignored for the root; and whether the region repeats its parent, which is
                then a leaf.

        Returns:
            The tree, and for each level an array with the tree position of each given region.
        """
        new = [~is_repeated for _, _, is_repeated in levels]
        # Names are compared only here. The order within each level follows from these ranks.
        names = pl.concat([column.filter(is_new) for (column, _, _), is_new in zip(levels, new, strict=True)])
        ranks_of_new = np.empty(len(names), np.int64)
        ranks_of_new[names.arg_sort().to_numpy()] = np.arange(len(names))
        columns: list[pl.Series] = []
        starts: list[Ints] = []
        positions: list[Ints] = []
        ranks: list[Ints] = []
        used, given_ranks = 0, np.zeros(0, np.int64)
        for (column, parents, is_repeated), is_new in zip(levels, new, strict=True):
            # A repeated leaf has the same rank as on the level above.
            level_ranks = given_ranks[parents] if is_repeated.any() else np.empty(len(column), np.int64)
            count = int(is_new.sum())
            level_ranks[is_new] = ranks_of_new[used : used + count]
            used, given_ranks = used + count, level_ranks
            above = positions[-1][parents] if positions else np.zeros(len(column), np.int64)
            order = np.lexsort((level_ranks, above))
            position = np.empty(len(order), np.int64)
            position[order] = np.arange(len(order))
            if positions:
                starts.append(np.searchsorted(above[order], np.arange(len(positions[-1]) + 1)))
            columns.append(column.gather(order))
            positions.append(position)
            ranks.append(level_ranks[order])
        return cls(columns=tuple(columns), start=tuple(starts), ranks=tuple(ranks)), positions


def _nulls(count: int) -> pl.Series:
    """Return a string column of ``count`` nulls."""
    return pl.Series([None], dtype=pl.String).new_from_index(0, count)


@frozen(kw_only=True, eq=False)
class Regions:
    """A region tree together with the paths from which it was built.

    Attributes:
        tree: The region tree.
        paths: The distinct paths from the root to the leaves, in the given order. Short paths end in empty names.
        leaves: Array of shape (paths,) with the position of each path's leaf among the leaves of the tree.
    """

    tree: Tree
    paths: pl.DataFrame
    leaves: Ints

    @classmethod
    def of(cls, paths: Sequence[tuple[str, ...]] | pl.DataFrame, *, file: str) -> Regions:
        """Build the region tree whose leaves have the given paths, and keep its distinct paths.

        Args:
            paths: The path from the root to each leaf, as a tuple of names or as a row of a table. Paths may be
                repeated.
            file: The file from which the paths were read, for error messages.

        Raises:
            InputError: The paths do not form a tree.
        """
        frame = as_frame(paths)
        if frame.width and frame.n_unique() < frame.height:
            frame = frame.unique(maintain_order=True)
        levels, leaf = number_regions(frame, file)
        tree, positions = Tree.arrange(levels)
        return cls(tree=tree, paths=frame, leaves=positions[-1][leaf])

    def find_leaves(self, paths: pl.DataFrame) -> pl.Series:
        """Return the position of each path's leaf among all leaves, or null if no leaf has the given path.

        Args:
            paths: A table with one path per row, starting at the root. It may have more or fewer levels than the
                hierarchy.
        """
        depth = max(paths.width, self.paths.width)
        # Missing levels get empty names, as in short branches.
        given_paths, listed_paths = (as_frame(frame, depth) for frame in (paths, self.paths))
        leaves = listed_paths.with_columns(leaf=pl.Series(self.leaves))
        return given_paths.join(leaves, on=given_paths.columns, how="left", maintain_order="left")["leaf"]


def add_up(tree: Tree, leaves: NDArray[N]) -> list[NDArray[N]]:
    """Sum the values of the leaves below each region, at every level from the root down.

    Args:
        tree: The region tree.
        leaves: Array of shape (leaf regions, ...) with the values of the leaves.

    Returns:
        For each level, an array of shape (regions, ...) with the sums. The last one is ``leaves`` itself.
    """
    levels = [leaves]
    for start in reversed(tree.start):
        levels.append(np.add.reduceat(levels[-1], start[:-1], axis=0))
    return levels[::-1]


def sum_axes(values: Ints, of: Sequence[int], onto: Sequence[int]) -> Ints:
    """Sum values over the axes of all attributes that are not in ``onto``.

    Args:
        values: Array of shape (regions, ...) with one axis per attribute after the first axis.
        of: The attribute of each of these axes.
        onto: The attributes to keep.
    """
    return np.asarray(values.sum(axis=tuple(1 + axis for axis, attribute in enumerate(of) if attribute not in onto)))


def sum_squares(values: Ints) -> int:
    """Return the exact sum of squares, which may exceed 64 bits."""
    # 64-bit integers are faster, but can be used only if the sum of squares cannot overflow.
    largest = int(np.abs(values).max(initial=0))
    if largest * largest * max(1, values.size) < 2**62:
        return int(np.sum(values * values))
    return sum(int(value) ** 2 for value in values.ravel())


def past_sums(values: Ints, *, rows: bool = False) -> bool:
    """Return whether sums of the values could overflow 64-bit integers.

    Args:
        values: Array of shape (rows, ...).
        rows: Whether each sum covers at most one row. By default, values in different rows are added up as well.
    """
    # Sums in doubles cannot overflow. LARGEST_SUM is a quarter of 2**63, which leaves a margin for rounding errors.
    sizes = np.abs(values.astype(np.float64)).reshape(len(values), -1).sum(axis=1)
    return bool((sizes.max(initial=0.0) if rows else sizes.sum()) >= LARGEST_SUM)
