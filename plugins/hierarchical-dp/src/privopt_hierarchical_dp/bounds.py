"""Public bounds on regions' numbers of groups, or of individuals: no more households than dwellings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import field, frozen

from privopt.arrays import Ints, read_only
from privopt.errors import Fault, InfeasibleError, InputError
from privopt_hierarchical_dp.tree import Tree

if TYPE_CHECKING:
    from privopt.declare import File
else:
    File = Any

__all__ = ["UNBOUNDED", "Limits", "check_limits", "limits_of"]

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
        """Least and most groups of the whole hierarchy."""
        return int(self.least[0][0]), int(self.most[0][0])

    def broken(self, totals: Sequence[Ints]) -> list[tuple[str, int, str]]:
        """What is out of bounds among numbers (R_l,) of the first levels: the region, its number, what is wanted."""
        return [
            (f"region {names[place]!r}", int(own[place]), f"from {least[place]} to {most[place]}")
            for names, own, least, most in zip(self.tree.names, totals, self.least, self.most, strict=False)
            for place in np.flatnonzero((own < least) | (own > most)).tolist()
        ]


def limits_of(source: File | None, tree: Tree) -> Limits | None:
    """What ``hierarchy.bounds`` says, for a tree; None where a problem has none.

    Raises:
        InputError: a region that is none of the tree's or stands twice, a number that is none.
        InfeasibleError: bounds of a region that clash with those of the regions in it.
    """
    from privopt_hierarchical_dp.public_tables import read_bounds

    if source is None:
        return None
    least, most = ([np.full(width, value) for width in tree.widths] for value in (0, UNBOUNDED))
    for row in read_bounds(source, tree):
        least[row.level][row.place] = row.least or 0
        most[row.level][row.place] = UNBOUNDED if row.most is None else row.most
    for level, start in reversed(list(enumerate(tree.start))):
        low, high = (_sums(side[level + 1], start) for side in (least, most))
        clashing = np.flatnonzero((least[level] > high) | (low > most[level])).tolist()
        if clashing:
            at = clashing[0]
            has, inside = _in_words(least[level][at], most[level][at]), _in_words(low[at], high[at])
            region = tree.names[level][at]
            raise InfeasibleError(f"{source.name}: region {region!r} has {has}, the regions in it {inside} together")
        least[level], most[level] = np.maximum(least[level], low), np.minimum(most[level], high)
    return Limits(tree=tree, least=least, most=most)


def _sums(side: Ints, start: Ints) -> Ints:
    """Sums over each region's children, or just above `UNBOUNDED`; in doubles, for 2^13 times 2^50 is no int64."""
    return np.minimum(np.add.reduceat(side.astype(np.float64), start[:-1], axis=0), UNBOUNDED + 1).astype(np.int64)


def _in_words(least: int, most: int) -> str:
    """Both ends; `UNBOUNDED` or more is none."""
    return f"at least {least}" + ("" if most >= UNBOUNDED else f" and at most {most}")


def check_limits(limits: Limits, totals: Sequence[Ints], name: str, what: str) -> None:
    """Refuse numbers that contradict the bounds, where all inputs that are alike have the same.

    Elsewhere a refusal would tell of an individual: the release is moved into the bounds whatever the counts are.

    Args:
        limits: the bounds.
        totals: for each level, from the root's, (R_l,) numbers.
        name: of the file that they are from.
        what: is numbered.

    Raises:
        InputError: with the first such regions.
    """
    broken = limits.broken(totals)
    if broken:
        faults = [Fault(name, at, f"{own} {what}", f"{want}, as hierarchy.bounds has it") for at, own, want in broken]
        raise InputError(faults[:20])
