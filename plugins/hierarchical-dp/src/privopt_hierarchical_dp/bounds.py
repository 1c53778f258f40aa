"""Public bounds on regions' numbers of groups (never more households than dwellings), and the nearest totals within."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import field, frozen

from privopt.arrays import Ints, read_only
from privopt.errors import Fault, InfeasibleError, InputError
from privopt_hierarchical_dp.tree import Tree, add_up

if TYPE_CHECKING:
    from collections.abc import Iterable

    from privopt_hierarchical_dp.counts import Groups
    from privopt_hierarchical_dp.problem import HierarchyProblem

__all__ = ["Limits", "check_limits", "limits_of", "nearest_within"]

UNBOUNDED: Final = 1 << 50
"""More groups than a file of counts may have."""


def _levels(arrays: Iterable[Ints]) -> tuple[Ints, ...]:
    return tuple(read_only(np.array(array, dtype=np.int64)) for array in arrays)


@frozen(kw_only=True, eq=False)
class Limits:
    """Least and most numbers of groups of every region: its own, and what those of its children add up to.

    Attributes:
        least: for each level (R_l,).
        most: likewise.
    """

    least: tuple[Ints, ...] = field(converter=_levels)
    most: tuple[Ints, ...] = field(converter=_levels)

    def broken(self, tree: Tree, totals: Sequence[Ints]) -> list[tuple[str, int, str]]:
        """Regions outside their bounds: name, number of groups, what is wanted."""
        return [
            (tree.names[level][place], int(own[place]), f"from {least[place]} to {most[place]}")
            for level, (own, least, most) in enumerate(zip(totals, self.least, self.most, strict=True))
            for place in np.flatnonzero((own < least) | (own > most)).tolist()
        ]


def limits_of(problem: HierarchyProblem, tree: Tree) -> Limits | None:
    """What ``hierarchy.bounds`` says, for a tree; None where a problem has none.

    Raises:
        InputError: a region that is none of the tree's or stands twice, a number that is none.
        InfeasibleError: bounds that clash: of a region, or with those of the regions in it.
    """
    from privopt_hierarchical_dp.counts import read_bounds

    file = problem.hierarchy.bounds
    if file is None:
        return None
    least, most = ([np.full(width, value) for width in tree.widths] for value in (0, UNBOUNDED))
    for level, place, low, high in read_bounds(file, tree):
        least[level][place], most[level][place] = low or 0, UNBOUNDED if high is None else high
    for level, start in reversed(list(enumerate(tree.start))):
        below = [_sums(side[level + 1], start) for side in (least, most)]
        clashing = np.flatnonzero((least[level] > below[1]) | (below[0] > most[level])).tolist()
        if clashing:
            place = clashing[0]
            own, inner = _words(least[level][place], most[level][place]), _words(below[0][place], below[1][place])
            region = tree.names[level][place]
            raise InfeasibleError(f"{file.name}: region {region!r} has {own}, the regions in it {inner} together")
        least[level], most[level] = np.maximum(least[level], below[0]), np.minimum(most[level], below[1])
    return Limits(least=least, most=most)


def _sums(side: Ints, start: Ints) -> Ints:
    """Sums over each region's children, or just above `UNBOUNDED`; in doubles, for 2^13 times 2^50 is no int64."""
    return np.minimum(np.add.reduceat(side.astype(np.float64), start[:-1]), UNBOUNDED + 1).astype(np.int64)


def _words(least: int, most: int) -> str:
    return f"at least {least}" + ("" if most >= UNBOUNDED else f" and at most {most}")


def check_limits(limits: Limits, groups: Groups, name: str) -> None:
    """Refuse counts that contradict the bounds, where all that are alike have the same numbers of groups.

    Elsewhere a refusal would tell of an individual: the release is moved into the bounds whatever the counts are.

    Raises:
        InputError: with the first such regions.
    """
    broken = limits.broken(groups.tree, add_up(groups.tree, groups.leaves.sum(axis=1)))
    if broken:
        wanted = "{}, as hierarchy.bounds has it"
        raise InputError(
            [
                Fault(name, f"region {region!r}", f"{own} groups", wanted.format(want))
                for region, own, want in broken[:20]
            ]
        )


def nearest_within(tree: Tree, totals: Sequence[Ints], limits: Limits) -> list[Ints]:
    """Consistent totals within bounds, near consistent ones: from the root down, each region's children the nearest.

    The root's is moved into its bounds; those of children (integers within their bounds that add up to the parent's)
    have the least sum of squared distances, by one shift for all that is cut off at the bounds; what is left over goes
    to the first.
    """
    found = [np.clip(totals[0], limits.least[0], limits.most[0])]
    for level, start in enumerate(tree.start):
        below = np.empty(tree.widths[level + 1], np.int64)
        for place, (low, high) in enumerate(pairwise(start.tolist())):
            own = slice(low, high)
            sides = limits.least[level + 1][own], limits.most[level + 1][own]
            below[own] = _shifted(totals[level + 1][own], *sides, int(found[level][place]))
        found.append(below)
    return found


def _shifted(near: Ints, least: Ints, most: Ints, total: int) -> Ints:
    """Integers (K,) within bounds with a sum, the nearest to those given."""
    low, high = int((least - near).min()) - 1, int((most - near).max()) + 1
    while high - low > 1:  # the sum reaches the total at high, not at low
        middle = (low + high) // 2
        reached = float(np.clip(near + middle, least, most).sum(dtype=np.float64))  # exact below 2^53, which is enough
        low, high = (low, middle) if reached >= total else (middle, high)
    found, less = np.clip(near + high, least, most), np.clip(near + low, least, most)
    over = np.flatnonzero(found > less)[::-1][: int(found.sum()) - total]
    found[over] -= 1
    return np.asarray(found)
