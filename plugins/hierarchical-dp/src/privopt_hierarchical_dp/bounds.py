"""Public bounds on regions' numbers of groups, or of individuals: no more households than dwellings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl
from attrs import field, frozen

from privopt.arrays import Ints, read_only
from privopt.declare import File
from privopt.errors import Fault, Faults, InfeasibleError, InputError
from privopt_hierarchical_dp.level_tables import LevelTable, Whole, of_table, region_faults, text, whole
from privopt_hierarchical_dp.tree import Tree

__all__ = ["UNBOUNDED", "Limits", "check_limits", "nearest_within", "read_limits"]

UNBOUNDED: Final = 1 << 50
"""More groups than a file of counts may have."""


def _levels(arrays: Iterable[Ints]) -> tuple[Ints, ...]:
    return tuple(read_only(np.array(array, dtype=np.int64)) for array in arrays)


@frozen(kw_only=True, eq=False)
class Limits:
    """Least and most numbers of every region: its own, and what those of its children add up to.

    Attributes:
        tree: the hierarchy.
        least: for each level (R_l,).
        most: likewise.
    """

    tree: Tree
    least: tuple[Ints, ...] = field(converter=_levels)
    most: tuple[Ints, ...] = field(converter=_levels)

    @property
    def root(self) -> tuple[int, int]:
        """Return least and most groups of the whole hierarchy."""
        return int(self.least[0][0]), int(self.most[0][0])

    def broken(self, totals: Sequence[Ints]) -> list[tuple[str, int, str]]:
        """Return region, number and bounds of numbers (R_l,) of the first levels that are out of bounds."""
        return [
            (f"region {names[place]!r}", int(own[place]), f"from {least[place]} to {most[place]}")
            for names, own, least, most in zip(self.tree.names, totals, self.least, self.most, strict=False)
            for place in np.flatnonzero((own < least) | (own > most)).tolist()
        ]


def read_limits(source: File | None, tree: Tree) -> Limits | None:
    """Return what ``hierarchy.bounds`` says, for a tree; None where a problem has none.

    Raises:
        InputError: a region that is none of the tree's or occurs twice, a number that is none.
        InfeasibleError: bounds of a region that clash with those of the regions in it.
    """
    if source is None:
        return None
    places = tree.places()
    least, most = ([np.full(width, value) for width in tree.widths] for value in (0, UNBOUNDED))
    for region, low, high in _read_bounds(source, frozenset(places)):
        level, place = places[region]
        least[level][place] = low or 0
        most[level][place] = UNBOUNDED if high is None else high
    for level, start in reversed(list(enumerate(tree.start))):
        inside, over = (_sums(side[level + 1], start) for side in (least, most))
        clashing = np.flatnonzero((least[level] > over) | (inside > most[level])).tolist()
        if clashing:
            at = clashing[0]
            has, below = _in_words(least[level][at], most[level][at]), _in_words(inside[at], over[at])
            region = tree.names[level][at]
            raise InfeasibleError(f"{source.name}: region {region!r} has {has}, the regions in it {below} together")
        least[level], most[level] = np.maximum(least[level], inside), np.minimum(most[level], over)
    return Limits(tree=tree, least=least, most=most)


@of_table
def _read_bounds(source: File, known: frozenset[str]) -> list[tuple[str, int | None, int | None]]:
    """Read ``region, at_least, at_most``; an empty cell bounds nothing.

    Raises:
        InputError: a column is missing, a region is none of those known or occurs twice, a number is none, or the
            least is above the most; no row at all.
    """
    name, table, sides = source.name, LevelTable.scan(source), ("at_least", "at_most")
    given = [column for column in sides if column in table.columns]
    if "region" not in table.columns or not given or set(table.columns) - {"region", *sides}:
        wanted = "columns region, and at_least or at_most or both: bounds on groups of all sizes together"
        raise InputError([Fault(name, "header", ", ".join(table.columns), wanted)])
    wanted = "a whole number of groups, 0 or more, or nothing"
    table.check(*(Whole(column=column, wanted=wanted, blank=True) for column in given), beside="region")
    none = pl.lit(None, pl.Int64)
    numbers = [(whole(table.frame, own) if own in given else none).alias(own) for own in sides]
    rows = table.collect(text("region"), *numbers)
    if not rows.height:
        raise InputError([Fault(name, "", "a header alone", "at least one row")])
    faults = region_faults(name, rows["region"], known)
    found = list(rows.iter_rows())
    for row, (_, low, high) in enumerate(found, start=2):
        if low is not None and high is not None and low > high:
            faults.add(name, f"row {row}, column at_most", str(high), f"at_least, {low}, or more")
    faults.check()
    return found


def _sums(side: Ints, start: Ints) -> Ints:
    """Return sums over each region's children, or just above `UNBOUNDED`; in doubles, as int64 ends below 2^63."""
    return np.minimum(np.add.reduceat(side.astype(np.float64), start[:-1], axis=0), UNBOUNDED + 1).astype(np.int64)


def _in_words(least: int, most: int) -> str:
    """Return both ends; `UNBOUNDED` or more is none."""
    return f"at least {least}" + ("" if most >= UNBOUNDED else f" and at most {most}")


def check_limits(limits: Limits, totals: Sequence[Ints], name: str, what: str) -> None:
    """Refuse numbers that contradict the bounds, if all neighbouring inputs have the same numbers.

    Otherwise a refusal would reveal an individual: the release is moved into the bounds whatever the counts are.

    Args:
        limits: the bounds.
        totals: for each level, from the root's, (R_l,) numbers.
        name: of the file that they are from.
        what: is numbered.

    Raises:
        InputError: with the first such regions.
    """
    if broken := limits.broken(totals):
        Faults(
            [Fault(name, at, f"{n} {what}", f"{want}, as hierarchy.bounds has it") for at, n, want in broken]
        ).check()


def nearest_within(totals: Sequence[Ints], limits: Limits) -> list[Ints]:
    """Find consistent totals within bounds, near consistent ones: from the root down, for each region's children.

    The root's total is moved into its bounds. Those of children are integers within their bounds that add up to the
    parent's, with the least sum of squared distances. One shift, cut off at the bounds, gives them all; what is left
    over goes to the first.

    Args:
        totals: for each level (R_l,) numbers of groups.
        limits: their bounds.
    """
    found = [np.clip(totals[0], limits.least[0], limits.most[0])]
    for level, start in enumerate(limits.tree.start, start=1):
        below, low, high = totals[level].copy(), limits.least[level], limits.most[level]
        right = np.add.reduceat(below, start[:-1]) == found[-1]
        right &= np.logical_and.reduceat((below >= low) & (below <= high), start[:-1])
        for place, (first, last) in enumerate(pairwise(start.tolist())):
            if not right[place]:
                own = slice(first, last)
                below[own] = _shifted(below[own], low[own], high[own], int(found[-1][place]))
        found.append(below)
    return found


def _shifted(near: Ints, least: Ints, most: Ints, total: int) -> Ints:
    """Return integers (K,) within bounds that add up to a total, the nearest to those given."""
    low, high = int((least - near).min()) - 1, int((most - near).max()) + 1
    while high - low > 1:  # sums reach the total at high, not at low
        middle = (low + high) // 2
        reached = np.clip(near + middle, least, most).sum(dtype=np.float64)  # exact below 2^53: enough
        low, high = (low, middle) if reached >= total else (middle, high)
    found, less = np.clip(near + high, least, most), np.clip(near + low, least, most)
    over = found > less
    later = np.cumsum(over[::-1])[::-1]
    return np.asarray(found - (over & (later <= found.sum() - total)))
