"""Structural zeros: sizes that no group can have, everywhere or in some regions: public, so not measured.

Only the possible sizes of a region are measured; the arrays of noisy values keep all entries. An entry without
measurement repeats the one that it must equal. A count is 0. There are as many groups of size s or less as of the last
possible size before, and of size s or more as of the next one; from the last possible size on, all of them.

Secret counts that have groups of such sizes all the same are measured like others, at the possible sizes. The numbers
measured are some of those measured without zeros, so one individual changes them by no more, and a refusal would reveal
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from attrs import field, frozen

from privopt.arrays import Bools, Ints
from privopt.declare import File
from privopt.errors import Fault, InputError
from privopt_hierarchical_dp.level_tables import LevelTable, Whole, of_table, region_faults, text, whole
from privopt_hierarchical_dp.methods import Order
from privopt_hierarchical_dp.tree import Tree

__all__ = ["Zeros", "outside", "read_zeros", "spread", "within"]

NOTHING: Final = -1
ALL: Final = -2


def _together(levels: Iterable[Bools]) -> tuple[Bools, ...]:
    return tuple(levels)


@frozen(kw_only=True, eq=False)
class Zeros:
    """Where no group can be.

    Attributes:
        levels: for each level (R_l, N), True where a region can have no group of a size.
    """

    levels: tuple[Bools, ...] = field(converter=_together)

    @property
    def everywhere(self) -> Bools:
        """(N,) sizes that no region can have."""
        return np.asarray(self.levels[0][0])

    @property
    def regional(self) -> bool:
        """Whether regions differ in their possible sizes."""
        return any(bool((level != self.everywhere).any()) for level in self.levels)

    def dropped(self) -> tuple[Ints, Zeros | None]:
        """Return the columns that some region can have, and the zeros left in these; None if none are left."""
        keep = np.flatnonzero(~self.everywhere)
        return keep, Zeros(levels=[level[:, keep] for level in self.levels]) if self.regional else None

    def sources(self, level: int, order: Order) -> Ints:
        """Return (R_l, W) for each entry the column whose measurement it has, or `NOTHING`, or `ALL` for the total."""
        possible = ~self.levels[level]
        column = np.where(possible, np.arange(possible.shape[1]), NOTHING)
        if order == "counts":
            return column
        if order == "more":
            far = np.where(possible, column, possible.shape[1])[:, ::-1]
            near = np.minimum.accumulate(far, axis=1)[:, ::-1]
            return np.where(near == possible.shape[1], NOTHING, near)
        before = np.maximum.accumulate(column, axis=1)
        if order == "less":
            return before
        last = column.max(axis=1, keepdims=True)
        return np.where(np.arange(possible.shape[1]) >= last, ALL, before)[:, :-1]

    def measured(self, level: int, order: Order) -> Bools:
        """Mark (R_l, W) entries that are measured."""
        found = self.sources(level, order)
        return np.asarray(found == np.arange(found.shape[1]))

    def filled(self, level: int, order: Order, values: Ints, totals: Ints) -> Ints:
        """Fill unmeasured entries with what they must be; only ``"inner"`` needs ``totals`` (R_l,)."""
        found = self.sources(level, order)
        if not found.size:
            return values
        taken = np.take_along_axis(values, np.maximum(found, 0), axis=1)
        return np.where(found == NOTHING, 0, np.where(found == ALL, totals[:, None], taken))


def outside(zeros: Zeros, leaves: Ints) -> int:
    """Return groups of impossible sizes in counts (R_L, N): for their owner alone."""
    return int(leaves[zeros.levels[-1]].sum())


def within(zeros: Zeros, leaves: Ints) -> Ints:
    """Return counts (R_L, N) whose groups of impossible sizes have the nearest possible one below, else above."""
    bad = zeros.levels[-1]
    if not (bad & (leaves > 0)).any():
        return leaves
    below, above = (zeros.sources(len(zeros.levels) - 1, order) for order in ("less", "more"))
    target = np.where(below >= 0, below, above)
    moved = np.zeros_like(leaves)
    rows = np.broadcast_to(np.arange(len(leaves))[:, None], leaves.shape)
    kept = target >= 0
    np.add.at(moved, (rows[kept], target[kept]), leaves[kept])
    return moved


def spread(counts: Sequence[Ints], keep: Ints, size: int) -> list[Ints]:
    """Return counts (R_l, len(keep)) as (R_l, size), 0 in the other columns."""
    found = [np.zeros((len(level), size), np.int64) for level in counts]
    for wide, level in zip(found, counts, strict=True):
        wide[:, keep] = level
    return found


def read_zeros(source: File | None, tree: Tree, *, first: int, last: int) -> Zeros | None:
    """Return what ``hierarchy.impossible`` says, for a tree; None where a problem has none.

    Raises:
        InputError: a region that is none of the tree's, a size that is none, or nothing that is possible.
    """
    if source is None:
        return None
    leaves = np.zeros((tree.widths[-1], last + 1 - first), dtype=bool)
    for low, high, size in _read_cells(source, tree, first=first, last=last):
        leaves[low:high, size] = True
    if leaves.all():
        raise InputError([Fault(source.name, "", "every size of every region", "one that a group can have")])
    levels = [leaves]
    for start in reversed(tree.start):
        levels.insert(0, np.logical_and.reduceat(levels[0], start[:-1], axis=0))
    return Zeros(levels=levels)


@of_table
def _read_cells(source: File, tree: Tree, *, first: int, last: int) -> list[tuple[int, int, int]]:
    """Read ``region, size``, or ``size`` alone: a region of any level represents its leaves, an empty one for all.

    Returns:
        For each row the leaf regions, from the first to before the second, and the column of the size.

    Raises:
        InputError: a column is missing, a region is none of the hierarchy, a size lies outside ``first`` to ``last``.
    """
    name, table = source.name, LevelTable.scan(source)
    if "size" not in table.columns:
        raise InputError([Fault(name, "header", "no column 'size'", "columns region, size; or size alone")])
    if "region" not in table.columns:
        table = table.with_nothing("region")
    table.note("region", "size")
    wanted = f"a whole number from {first} to {last}"
    table.check(Whole(column="size", wanted=wanted, least=first, most=last), beside="region")
    rows = table.collect(text("region"), whole(table.frame, "size") - first)
    places = {"": (0, 0)} | tree.places()
    region_faults(name, rows["region"], places, once=False).check()
    return [(*tree.leaf_range(*places[region]), column) for region, column in rows.iter_rows()]
