"""Public bounds on regions' numbers of groups, or of individuals: no more households than dwellings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from attrs import field, frozen

from privopt.arrays import Ints, read_only
from privopt.declare import File
from privopt.declare.tables import Column, read_table, table_of
from privopt.errors import Fault, Faults, InfeasibleError, InputError
from privopt_hierarchical_dp.level_tables import region_faults
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
        least[level][place], most[level][place] = low, high
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


def _read_bounds(source: File, known: frozenset[str]) -> list[tuple[str, int, int]]:
    """Read ``region, at_least, at_most``; an empty cell bounds nothing.

    Raises:
        InputError: a column is missing, a region is none of those known or occurs twice, a number is none, or the
            least is above the most; no row at all.
    """
    header, blanks = table_of(source).columns, {"at_least": 0, "at_most": UNBOUNDED}
    if not {"region"} < set(header) <= {"region", *blanks}:
        wanted = "columns region, and at_least or at_most or both (bounds on groups of all sizes together)"
        raise InputError([Fault(source.name, "header", ", ".join(header), wanted)])
    columns = [Column(name="region", kind="id")]
    for name, blank in blanks.items():
        columns.append(Column(name=name, kind="count", least=0.0, most=UNBOUNDED, optional=True, blank=blank))
    table = read_table(source, columns)
    regions = table["region"].tolist()
    lows, highs = (table.get(name, np.full(len(regions), blank)).tolist() for name, blank in blanks.items())
    faults, found = region_faults(source.name, regions, known), list(zip(regions, lows, highs, strict=True))
    for row, (_, low, high) in enumerate(found, start=2):
        if low > high:
            faults.add(source.name, f"row {row}, column at_most", str(high), f"{low} or more, as at_least says")
    faults.check()
    return found


def _sums(side: Ints, start: Ints) -> Ints:
    """Return sums over each region's children, or just above `UNBOUNDED`; in doubles, as int64 ends below 2^63."""
    return np.minimum(np.add.reduceat(side.astype(np.float64), start[:-1], axis=0), UNBOUNDED + 1).astype(np.int64)


def _in_words(lower: int, upper: int) -> str:
    """Return both ends; `UNBOUNDED` or more is none."""
    return f"at least {lower}" + ("" if upper >= UNBOUNDED else f" and at most {upper}")


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


def _shifted(near: Ints, lower: Ints, upper: Ints, total: int) -> Ints:
    """Return integers (K,) within bounds that add up to a total, the nearest to those given."""
    low, high = int((lower - near).min()) - 1, int((upper - near).max()) + 1
    while high - low > 1:  # sums reach the total at high, not at low
        middle = (low + high) // 2
        reached = np.clip(near + middle, lower, upper).sum(dtype=np.float64)  # exact below 2^53: enough
        low, high = (low, middle) if reached >= total else (middle, high)
    found, less = np.clip(near + high, lower, upper), np.clip(near + low, lower, upper)
    over = found > less
    later = np.cumsum(over[::-1])[::-1]
    return np.asarray(found - (over & (later <= found.sum() - total)))
