"""The region hierarchy: levels of regions, in which each region has one parent.

Branches may end above the last level. Such a leaf is repeated on every level below it, so that each level covers the
whole hierarchy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from privopt.arrays import Bools, Ints, read_only
from privopt.errors import Fault, InputError, number_of

__all__ = ["Regions", "Tree", "add_up", "name_paths", "past_sums", "sum_axes", "sum_squares"]


N = TypeVar("N", bound=np.number[Any])
"""The number type of an array."""
LARGEST_SUM: Final = 2.0**61
"""If absolute values add up to less than this, all sums of values and differences of sums fit into 64 bits."""


def _to_read_only(arrays: Sequence[Ints]) -> tuple[Ints, ...]:
    """Return read-only int64 copies of the arrays, because a tree must not change."""
    return tuple(read_only(np.array(array, dtype=np.int64)) for array in arrays)


@frozen(kw_only=True, eq=False)
class Tree:
    """A hierarchy of L levels, each of which covers the whole hierarchy.

    A leaf above level L is its own only child on every level below. It is measured on these levels again, with their
    shares of the budget, which would otherwise not be used for this leaf. Files list the leaf once.

    A name shared by several regions is written as its path below the root, joined by ``/`` (``OR/Washington``). If this
    path begins with the root's own name, it includes the root (``Luxembourg/Luxembourg``).

    Within a level, the children of one region are adjacent and sorted by name (Unicode code points), in the order of
    their parents. So a hierarchy always yields the same tree, whatever the order of its rows, which may be secret.

    >>> tree = Tree.from_paths([("US", "NY"), ("US", "GA")])
    >>> tree.depth, tree.names, tree.start[0].tolist()
    (2, (('US',), ('GA', 'NY')), [0, 2])
    >>> Tree.from_paths([("US", "NY", "Kings"), ("US", "Guam")]).names
    (('US',), ('Guam', 'NY'), ('Guam', 'Kings'))

    Attributes:
        names: The names of the regions of each level.
        start: Offsets (R_l + 1,) for each level except the last. The children of region r are the regions start[r] to
            start[r + 1] - 1 of the next level.
    """

    names: tuple[tuple[str, ...], ...]
    start: tuple[Ints, ...] = field(converter=_to_read_only)

    @property
    def depth(self) -> int:
        """The number of levels, L."""
        return len(self.names)

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of regions on each level, starting with the root."""
        return tuple(map(len, self.names))

    @property
    def regions(self) -> int:
        """The number of regions on all levels together."""
        return sum(self.widths)

    def parents(self, level: int) -> Ints:
        """Return the position, on ``level - 1``, of the parent of each region on ``level`` (counted from 0)."""
        return np.repeat(np.arange(self.widths[level - 1]), np.diff(self.start[level - 1]))

    def first_here(self, level: int) -> Bools:
        """Return a mask of the regions of ``level`` that do not repeat a leaf of the level above."""
        if not level:
            return np.ones(1, dtype=bool)
        parent_names = self.names[level - 1]
        pairs = zip(self.names[level], self.parents(level).tolist(), strict=True)
        return np.array([name != parent_names[parent] for name, parent in pairs], dtype=bool)

    def leaf_range(self, level: int, place: int) -> tuple[int, int]:
        """Return the range of the leaf regions below a region, excluding the end.

        Args:
            level: The region's level, counted from 0.
            place: The region's position on this level.
        """
        begin, end = place, place + 1
        for start in self.start[level:]:
            begin, end = int(start[begin]), int(start[end])
        return begin, end

    def subtree(self, level: int, place: int) -> tuple[Tree, list[slice]]:
        """Return the tree below a region, and the regions of each of its levels as slices of this tree's levels.

        Args:
            level: The region's level, counted from 0.
            place: The region's position on this level.
        """
        begin, end = place, place + 1
        slices, starts = [slice(begin, end)], []
        for start in self.start[level:]:
            first_child = int(start[begin])
            starts.append(start[begin : end + 1] - first_child)
            begin, end = first_child, int(start[end])
            slices.append(slice(begin, end))
        names = tuple(self.names[level + step][part] for step, part in enumerate(slices))
        return Tree(names=names, start=tuple(starts)), slices

    def labels(self, level: int) -> list[str]:
        """Return the names of a level. Repeated leaves get their level added, to make names unique across levels."""
        new = self.first_here(level).tolist()
        return [
            name if is_new else f"{name} (level {level + 1})"
            for name, is_new in zip(self.names[level], new, strict=True)
        ]

    def places(self) -> dict[str, tuple[int, int]]:
        """Return the level and position of each region by name. If it is on several levels, the first one counts."""
        return {
            region: (level, index)
            # From the last level up, so that the entry of the first level overwrites those of repeated leaves.
            for level, names in reversed(list(enumerate(self.names)))
            for index, region in enumerate(names)
        }

    def by_name(self, level: int) -> Ints:
        """Return the positions of the regions of ``level`` in the order of their names, as in files."""
        names = self.names[level]
        return np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)

    @classmethod
    def from_paths(cls, paths: Sequence[tuple[str, ...]], *, file: str = "counts") -> Tree:
        """Return the tree with the given paths of leaves.

        Args:
            paths: The names of the regions from the root to a leaf. Paths may repeat, be shorter, or end in empty
                names.
            file: The file from which the paths were read, for faults.

        Raises:
            InputError: An empty name is followed by another name, a leaf has regions below it, there are two roots, or
                two regions would be written with the same name.
        """
        faults = _find_gaps(paths, file)
        if not paths:
            faults.append(Fault(file=file, where="", actual="no region", expectation="at least one leaf region"))
        if len(roots := sorted({path[0] for path in paths if path})) > 1 and not faults:
            actual = f"the roots {', '.join(map(repr, roots[:3]))}"
            faults.append(Fault(file=file, where="level_1", actual=actual, expectation="one root"))
        if faults:
            raise InputError(faults)
        written = name_paths(paths)
        faults = _find_equal_names(paths, written, file)
        if faults:
            raise InputError(faults)
        # One more level above the root, whose region has an empty name, gives every region a parent.
        levels = [("",) * len(written), *zip(*written, strict=True)]
        return cls._arrange_levels(
            # For each level the parent of each region.
            [dict(zip(level_names, parent_names, strict=True)) for parent_names, level_names in pairwise(levels)]
        )

    @classmethod
    def _arrange_levels(cls, parent_of: Sequence[dict[str, str]]) -> Tree:
        """Return the tree with the regions of each level ordered by parent and then by name.

        Args:
            parent_of: The parent's name of each region, for each level.
        """
        # Sorted by name and then, stably, by parent. The order depends on the set of regions alone, since the order of
        # the rows may reveal secrets.
        names: list[tuple[str, ...]] = []
        starts: list[Ints] = []
        for level, table in enumerate(parent_of):
            level_names = sorted(table)
            if level == 0:
                names.append(tuple(level_names))
                continue
            index_by_name = {name: index for index, name in enumerate(names[-1])}
            parents = np.array([index_by_name[table[name]] for name in level_names], dtype=np.int64)
            grouped = np.argsort(parents, kind="stable")
            names.append(tuple(level_names[index] for index in grouped))
            starts.append(np.searchsorted(parents[grouped], np.arange(len(index_by_name) + 1)))
        return cls(names=tuple(names), start=tuple(starts))


@frozen(kw_only=True, eq=False)
class Regions:
    """A hierarchy, and the position of the leaf for each path in a table.

    Attributes:
        tree: The hierarchy.
        leaves: The position of each leaf region by path, root first, without empty names at the end.
    """

    tree: Tree
    leaves: Mapping[tuple[str, ...], int]

    @classmethod
    def of(cls, paths: Sequence[tuple[str, ...]], *, file: str) -> Regions:
        """Return the regions that a table lists.

        Args:
            paths: The path of each leaf, root first.
            file: The file from which the paths were read, for faults.

        Raises:
            InputError: The paths do not form a tree.
        """
        tree = Tree.from_paths(paths, file=file)
        places = {name: index for index, name in enumerate(tree.names[-1])}
        return cls(
            tree=tree,
            leaves={
                _trim_path(path): places[region_names[-1]]
                for path, region_names in zip(paths, name_paths(paths), strict=True)
            },
        )

    def find_leaf(self, path: tuple[str, ...]) -> int | None:
        """Return the position of the leaf with this path, or None if there is none."""
        return self.leaves.get(_trim_path(path))


def name_paths(paths: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the paths of all leaves with the written names of regions, padded to the longest path.

    A name shared by several regions becomes a path below the root, joined by ``/``.

    >>> name_paths([("US", "OR", "Washington"), ("US", "Washington", "King"), ("US", "Guam", "")])
    [('US', 'OR', 'OR/Washington'), ('US', 'Washington', 'King'), ('US', 'Guam', 'Guam')]
    >>> name_paths([("L", "L", "L"), ("L", "M", "L")])
    [('L', 'L/L', 'L/L/L'), ('L', 'M', 'M/L')]
    """
    trimmed_paths = [_trim_path(path) for path in paths]
    regions = {path[: level + 1] for path in trimmed_paths for level in range(len(path))}
    name_counts = Counter(region[-1] for region in regions)
    # A path keeps the root if its second name is the root's own: without it, root and child would be written alike.
    short_paths = {region: region if region[1:2] in ((), region[:1]) else region[1:] for region in regions}
    written_names = {
        region: "/".join(short_paths[region]) if name_counts[region[-1]] > 1 else region[-1] for region in regions
    }
    depth = max(map(len, trimmed_paths), default=0)
    named_paths = [tuple(written_names[path[: level + 1]] for level in range(len(path))) for path in trimmed_paths]
    # A leaf of a short branch is repeated on the levels below.
    return [path + path[-1:] * (depth - len(path)) for path in named_paths]


def _trim_path(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return a path without empty names at the end."""
    while path and not path[-1]:
        path = path[:-1]
    return path


def _find_gaps(paths: Sequence[tuple[str, ...]], file: str) -> list[Fault]:
    """Return a fault for each path with an empty name before another name, and each leaf with regions below it.

    Args:
        paths: The paths of the leaves.
        file: The file, for faults.
    """
    # A table of counts repeats each path for every size; each is checked once.
    trimmed_by_path = {path: _trim_path(path) for path in dict.fromkeys(paths)}
    # The paths of all regions that are not leaves.
    inner = {path[:level] for path in trimmed_by_path.values() for level in range(1, len(path))}
    faults = []
    for path, cut in trimmed_by_path.items():
        where = f"region {' / '.join(map(str, path))}"
        if not all(cut) or not cut:
            actual = f"a leaf {number_of(sum(map(bool, path)), 'level')} deep with an empty name above it"
            faults.append(Fault(file, where, actual, "empty names after a leaf's alone, where its branch is short"))
        elif cut in inner:
            actual = f"a leaf {number_of(len(cut), 'level')} deep that has regions below it"
            faults.append(Fault(file, where, actual, "groups in leaf regions alone, whose sums the others are"))
    return faults


def _find_equal_names(paths: Sequence[tuple[str, ...]], written: Sequence[tuple[str, ...]], file: str) -> list[Fault]:
    """Return a fault for each region that would be written with the same name as another region.

    Args:
        paths: The paths of the leaves.
        written: The same paths with the written names, from :func:`name_paths`.
        file: The file, for faults.
    """
    first_region_by_name: dict[str, tuple[str, ...]] = {}
    fault_by_region: dict[tuple[str, ...], Fault] = {}
    for path, region_names in zip(map(_trim_path, paths), written, strict=True):
        for level in range(len(path)):
            region, name = path[: level + 1], region_names[level]
            # The first region that has this name.
            first_region = first_region_by_name.setdefault(name, region)
            if first_region != region:
                description = f"regions {' / '.join(first_region)} and {' / '.join(region)}, both written {name!r}"
                fault_by_region[region] = Fault(
                    file, f"level_{level + 1}", description, "names that are unique over the tree"
                )
    return list(fault_by_region.values())


def add_up(tree: Tree, leaves: NDArray[N]) -> list[NDArray[N]]:
    """Return the values of every level, root first, as sums over the leaves.

    Args:
        tree: The hierarchy.
        leaves: (R_L, ...) The values of the leaves.

    Returns:
        The values (R_l, ...) of each level.
    """
    levels = [leaves]
    for start in reversed(tree.start):
        levels.append(np.add.reduceat(levels[-1], start[:-1], axis=0))
    return levels[::-1]


def sum_axes(values: Ints, of: Sequence[int], onto: Sequence[int]) -> Ints:
    """Return values summed over all attributes except those in ``onto``.

    Args:
        values: (R, ...) A row for each region, and an axis for each attribute.
        of: The attributes of the axes of ``values``.
        onto: The attributes to keep.
    """
    return np.asarray(values.sum(axis=tuple(1 + axis for axis, attribute in enumerate(of) if attribute not in onto)))


def sum_squares(values: Ints) -> int:
    """Return the exact sum of squares, however large the values are."""
    # 64-bit integers are faster, and exact if no sum of squares can overflow them.
    largest = int(np.abs(values).max(initial=0))
    if largest * largest * max(1, values.size) < 2**62:
        return int(np.sum(values * values))
    return sum(int(value) ** 2 for value in values.ravel())


def past_sums(values: Ints, *, rows: bool = False) -> bool:
    """Return whether sums of values could overflow 64 bits.

    Args:
        values: (R, ...) The values.
        rows: Whether only values of the same row are added up.
    """
    # In doubles, because these sums cannot overflow; 2**61 is a quarter of what int64 holds, which covers their
    # rounding.
    sizes = np.abs(values.astype(np.float64)).reshape(len(values), -1).sum(axis=1)
    return bool((sizes.max(initial=0.0) if rows else sizes.sum()) >= LARGEST_SUM)
