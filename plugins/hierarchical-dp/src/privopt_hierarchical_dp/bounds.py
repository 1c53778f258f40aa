"""Public bounds on regions' numbers of groups, of all sizes together and of each: no more households than dwellings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import field, frozen

from privopt.arrays import Ints, read_only
from privopt.errors import Fault, InfeasibleError, InputError
from privopt_hierarchical_dp.tree import Tree, add_up
from privopt_hierarchical_dp.zeros import zeros_of

if TYPE_CHECKING:
    from privopt_hierarchical_dp.counts import Groups
    from privopt_hierarchical_dp.problem import HierarchyProblem
    from privopt_hierarchical_dp.public_tables import Bound
else:
    Groups = HierarchyProblem = Bound = Any

__all__ = [
    "UNBOUNDED",
    "Limits",
    "Range",
    "Source",
    "bounds_of_rows",
    "capped",
    "check_limits",
    "in_words",
    "limits_of",
]

UNBOUNDED: Final = 1 << 50
"""More groups than a file of counts may have."""


def _levels(arrays: Iterable[Ints]) -> tuple[Ints, ...]:
    return tuple(read_only(np.array(array, dtype=np.int64)) for array in arrays)


@frozen(kw_only=True, eq=False)
class Range:
    """Least and most of numbers of every region: its own, and what those of its children add up to.

    Attributes:
        least: for each level (R_l,) numbers of groups, or (R_l, N) of each size.
        most: likewise.
    """

    least: tuple[Ints, ...] = field(converter=_levels)
    most: tuple[Ints, ...] = field(converter=_levels)

    @classmethod
    def over(cls, tree: Tree, least: list[Ints], most: list[Ints], source: Source) -> Range:
        """From each region's own, drawn together over the tree.

        Raises:
            InfeasibleError: those of a region clash with those of the regions in it.
        """
        for level, start in reversed(list(enumerate(tree.start))):
            below = [_sums(side[level + 1], start) for side in (least, most)]
            clashing = np.argwhere((least[level] > below[1]) | (below[0] > most[level]))
            if len(clashing):
                at = tuple(clashing[0].tolist())
                source.clash(level, at, (least[level][at], most[level][at]), (below[0][at], below[1][at]))
            least[level], most[level] = np.maximum(least[level], below[0]), np.minimum(most[level], below[1])
        return cls(least=least, most=most)

    def outside(self, values: Sequence[Ints]) -> list[tuple[int, tuple[int, ...]]]:
        """Level and place of each number that is not within."""
        return [
            (level, tuple(at))
            for level, (own, least, most) in enumerate(zip(values, self.least, self.most, strict=True))
            for at in np.argwhere((own < least) | (own > most)).tolist()
        ]


@frozen(kw_only=True)
class Source:
    """How clashes are told.

    Attributes:
        file: the table of bounds.
        tree: whose regions have names.
        cell: words for a column.
    """

    file: str
    tree: Tree
    cell: Callable[[int], str]

    def clash(self, level: int, at: tuple[int, ...], own: Sequence[int], inner: Sequence[int]) -> None:
        """Tell of a region's bounds, least and most, and of what those of the regions in it add up to.

        Raises:
            InfeasibleError: always.
        """
        of = "".join(f" {self.cell(column)}" for column in at[1:])
        region = self.tree.names[level][at[0]]
        has, inside = in_words(*own), in_words(*inner)
        raise InfeasibleError(f"{self.file}: region {region!r} has {has}{of}, the regions in it {inside} together")

    def check_possible(self, least: Sequence[Ints], most: Sequence[Ints], ruling: str) -> None:
        """Tell of the first cell that has to be more than it can be.

        Raises:
            InfeasibleError: there is one, which what is ``ruling`` rules out.
        """
        for names, low, high in zip(self.tree.names, least, most, strict=True):
            for region, column in np.argwhere(low > high)[:1].tolist():
                found = f"at least {low[region, column]} {self.cell(column)}"
                raise InfeasibleError(
                    f"{self.file}: region {names[region]!r} has {found}, which {ruling} rules out there"
                )


@frozen(kw_only=True, eq=False)
class Limits:
    """What a table of bounds comes to.

    Attributes:
        tree: the hierarchy.
        totals: of all sizes together, within what those of each size add up to.
        on_totals: whether rows bound all sizes together.
        sizes: of each size; None where no row bounds one.
        first: the least size.
    """

    tree: Tree
    totals: Range
    on_totals: bool
    sizes: Range | None = None
    first: int = 1

    @property
    def root(self) -> tuple[int, int]:
        """Least and most groups of the whole hierarchy."""
        return int(self.totals.least[0][0]), int(self.totals.most[0][0])

    def broken(self, counts: Sequence[Ints]) -> list[tuple[str, int, str]]:
        """What is out of bounds, of counts (R_l, N): where, how many groups, what is wanted."""
        own = [] if self.sizes is None else self._told(self.sizes, counts)
        return [*self.broken_totals([level.sum(axis=1) for level in counts]), *own]

    def broken_totals(self, totals: Sequence[Ints]) -> list[tuple[str, int, str]]:
        """What is out of bounds among numbers of groups (R_l,) of all sizes together."""
        return self._told(self.totals, totals)

    def _told(self, ends: Range, values: Sequence[Ints]) -> list[tuple[str, int, str]]:
        return [
            (
                f"region {self.tree.names[level][at[0]]!r}" + "".join(f", size {s + self.first}" for s in at[1:]),
                int(values[level][at]),
                f"from {ends.least[level][at]} to {ends.most[level][at]}",
            )
            for level, at in ends.outside(values)
        ]


def limits_of(problem: HierarchyProblem, tree: Tree) -> Limits | None:
    """What ``hierarchy.bounds`` says, for a tree; None where a problem has none.

    Raises:
        InputError: a region that is none of the tree's or stands twice, a number that is none.
        InfeasibleError: bounds that clash: of a region, with those of its sizes or of the regions in it.
    """
    from privopt_hierarchical_dp.public_tables import read_bounds

    table = problem.hierarchy
    if table.bounds is None:
        return None
    rows = read_bounds(table.bounds, tree, first=table.first_size, last=table.sizes)
    source = Source(file=table.bounds.name, tree=tree, cell=lambda column: f"of size {column + table.first_size}")
    least, most = bounds_of_rows(tree.widths, [row for row in rows if row.size is None])
    sizes = None
    if any(row.size is not None for row in rows):
        sizes = _by_size(problem, tree, rows, source)
        for level, names in enumerate(tree.names):
            low, high = sizes.least[level].sum(axis=1), capped(sizes.most[level], axis=1)
            clashing = np.flatnonzero((low > most[level]) | (high < least[level])).tolist()
            if clashing:
                at = clashing[0]
                own, inner = in_words(least[level][at], most[level][at]), in_words(low[at], high[at])
                raise InfeasibleError(f"{source.file}: region {names[at]!r} has {own}, its sizes {inner} together")
            least[level], most[level] = np.maximum(least[level], low), np.minimum(most[level], high)
    return Limits(
        tree=tree,
        totals=Range.over(tree, least, most, source),
        on_totals=any(row.size is None for row in rows),
        sizes=sizes,
        first=table.first_size,
    )


def _by_size(problem: HierarchyProblem, tree: Tree, rows: Sequence[Bound], source: Source) -> Range:
    """Bounds on each size, those that cannot be among them."""
    shapes = [(width, problem.hierarchy.classes) for width in tree.widths]
    least, most = bounds_of_rows(shapes, [row for row in rows if row.size is not None])
    zeros = zeros_of(problem, tree)
    if zeros is not None:
        most = [np.where(zero, 0, level) for zero, level in zip(zeros.levels, most, strict=True)]
        source.check_possible(least, most, "hierarchy.impossible")
    return Range.over(tree, least, most, source)


def bounds_of_rows(shapes: Sequence[int | tuple[int, int]], rows: Sequence[Bound]) -> tuple[list[Ints], list[Ints]]:
    """For each level the least and most that rows give."""
    least, most = ([np.full(shape, value) for shape in shapes] for value in (0, UNBOUNDED))
    for row in rows:
        at = (row.place,) if row.size is None else (row.place, row.size)
        least[row.level][at], most[row.level][at] = row.least or 0, UNBOUNDED if row.most is None else row.most
    return least, most


def capped(side: Ints, *, axis: int) -> Ints:
    """Sums, or just above `UNBOUNDED`; in doubles, for 2^13 times 2^50 is no int64."""
    return np.asarray(np.minimum(side.astype(np.float64).sum(axis=axis), UNBOUNDED + 1), dtype=np.int64)


def _sums(side: Ints, start: Ints) -> Ints:
    """Sums over each region's children, or just above `UNBOUNDED`."""
    return np.minimum(np.add.reduceat(side.astype(np.float64), start[:-1], axis=0), UNBOUNDED + 1).astype(np.int64)


def in_words(least: int, most: int) -> str:
    """Both ends; `UNBOUNDED` or more is none."""
    return f"at least {least}" + ("" if most >= UNBOUNDED else f" and at most {most}")


def check_limits(limits: Limits, groups: Groups, name: str) -> None:
    """Refuse counts that contradict the bounds, where all that are alike have the same numbers of groups.

    Elsewhere, and of single sizes, a refusal would tell of an individual: the release is moved into the bounds whatever
    the counts are.

    Raises:
        InputError: with the first such regions.
    """
    broken = limits.broken_totals(add_up(groups.tree, groups.leaves.sum(axis=1)))
    if broken:
        faults = [Fault(name, at, f"{own} groups", f"{want}, as hierarchy.bounds has it") for at, own, want in broken]
        raise InputError(faults[:20])
