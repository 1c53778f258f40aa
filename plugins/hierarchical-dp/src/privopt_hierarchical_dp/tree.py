"""The region hierarchy: levels of regions, each with one parent, all leaves at the same depth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from attrs import field, frozen

from privopt.arrays import Ints, read_only
from privopt.errors import Fault, InputError

__all__ = ["Tree", "add_up", "named"]


def _readonly(arrays: Sequence[Ints]) -> tuple[Ints, ...]:
    return tuple(read_only(np.array(array, dtype=np.int64)) for array in arrays)


@frozen(kw_only=True, eq=False)
class Tree:
    """A hierarchy of L levels whose leaves are all at level L.

    A name that several regions have is written as its path below the root, joined by ``/`` (``OR/Washington``).

    Inside a level, the children of one region stand next to each other, sorted by name (Unicode code
    points), in the order of their parents. So one hierarchy is one tree, whatever order its rows had:
    that order may hold the secret.

    >>> tree = Tree.from_paths([("US", "NY"), ("US", "GA")])
    >>> tree.depth, tree.names, tree.start[0].tolist()
    (2, (('US',), ('GA', 'NY')), [0, 2])

    Attributes:
        names: for each level the names of its regions.
        start: for each level but the last, (R_l + 1,) offsets: the children of region r are the
            regions start[r] to start[r + 1] of the next level.
    """

    names: tuple[tuple[str, ...], ...]
    start: tuple[Ints, ...] = field(converter=_readonly)

    @property
    def depth(self) -> int:
        """L, the number of levels."""
        return len(self.names)

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of regions on each level, the root's first."""
        return tuple(map(len, self.names))

    @property
    def regions(self) -> int:
        """Number of regions on all levels."""
        return sum(self.widths)

    def parents(self, level: int) -> Ints:
        """Position on ``level - 1`` of each region's parent on ``level`` (counted from 0)."""
        return np.repeat(np.arange(self.widths[level - 1]), np.diff(self.start[level - 1]))

    def by_name(self, level: int) -> Ints:
        """Positions of the regions of ``level``, sorted by name: the order in which files list them."""
        names = self.names[level]
        return np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)

    @classmethod
    def from_paths(cls, paths: Sequence[tuple[str, ...]], *, file: str = "counts") -> Tree:
        """Build the tree from each leaf's path, root first; paths may repeat.

        Raises:
            InputError: a path with an empty name or of another length (a ragged tree), two roots, a path that
                reads as another region's name.
        """
        faults = _ragged(paths, file)
        if not paths:
            faults.append(Fault(file=file, where="", found="no region", wanted="at least one leaf region"))
        if faults:
            raise InputError(faults)
        paths, depth = named(paths), len(paths[0])
        parent_of: list[dict[str, str]] = [{} for _ in range(depth)]
        for path in paths:
            for level, name in enumerate(path):
                above = path[level - 1] if level else ""
                known = parent_of[level].setdefault(name, above)
                if known != above:
                    faults.append(
                        Fault(
                            file=file,
                            where=f"level_{level + 1}",
                            found=f"region {name!r} under {known!r} and under {above!r}",
                            wanted="one parent for each region",
                        )
                    )
        faults += _clashes(parent_of, file)
        if faults:
            raise InputError(dict.fromkeys(faults))
        return cls._arranged(parent_of)

    @classmethod
    def _arranged(cls, parent_of: Sequence[dict[str, str]]) -> Tree:
        names: list[tuple[str, ...]] = []
        starts: list[Ints] = []
        for level, table in enumerate(parent_of):
            seen = sorted(table)
            if level == 0:
                names.append(tuple(seen))
                continue
            place = {name: index for index, name in enumerate(names[-1])}
            parents = np.array([place[table[name]] for name in seen], dtype=np.int64)
            grouped = np.argsort(parents, kind="stable")
            names.append(tuple(seen[index] for index in grouped))
            starts.append(np.searchsorted(parents[grouped], np.arange(len(place) + 1)))
        return cls(names=tuple(names), start=tuple(starts))


def named(paths: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Each leaf's path with the names that regions are written by.

    >>> named([("US", "OR", "Washington"), ("US", "Washington", "King")])
    [('US', 'OR', 'OR/Washington'), ('US', 'Washington', 'King')]
    """
    regions = {path[: level + 1] for path in paths for level in range(len(path))}
    often = Counter(region[-1] for region in regions)
    shown = {region: "/".join(region[1:] or region) if often[region[-1]] > 1 else region[-1] for region in regions}
    return [tuple(shown[path[: level + 1]] for level in range(len(path))) for path in paths]


def _ragged(paths: Sequence[tuple[str, ...]], file: str) -> list[Fault]:
    depth = len(paths[0]) if paths else 0
    return [
        Fault(
            file=file,
            where=f"region {' / '.join(map(str, path))}",
            found=f"a leaf {sum(map(bool, path))} levels deep",
            wanted=f"every leaf at level {depth} (pad a short branch by one child for each missing level)",
        )
        for path in dict.fromkeys(paths)
        if len(path) != depth or not all(path)
    ]


def _clashes(parent_of: Sequence[dict[str, str]], file: str) -> list[Fault]:
    faults = []
    if len(parent_of[0]) > 1:
        roots = ", ".join(map(repr, list(parent_of[0])[:3]))
        faults.append(Fault(file=file, where="level_1", found=f"the roots {roots}", wanted="one root"))
    home: dict[str, int] = {}
    for level, table in enumerate(parent_of):
        for name in table:
            other = home.setdefault(name, level)
            if other != level:
                faults.append(
                    Fault(
                        file=file,
                        where=f"level_{level + 1}",
                        found=f"region {name!r}, which is also on level {other + 1}",
                        wanted="names that are unique over the tree",
                    )
                )
    return faults


def add_up(tree: Tree, leaves: Ints) -> list[Ints]:
    """Values of every level from those of the leaves, the root's first.

    Args:
        tree: the hierarchy.
        leaves: (R_L, ...) values that add up over regions.
    """
    levels = [np.asarray(leaves, dtype=np.int64)]
    for start in reversed(tree.start):
        levels.append(np.add.reduceat(levels[-1], start[:-1], axis=0))
    return levels[::-1]
