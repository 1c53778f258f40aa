"""The nearest consistent numbers of groups within public bounds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from privopt.arrays import Ints
from privopt_hierarchical_dp.bounds import Limits

__all__ = ["nearest_within"]


def nearest_within(totals: Sequence[Ints], limits: Limits) -> list[Ints]:
    """Consistent totals within bounds, near consistent ones: from the root down, each region's children the nearest.

    The root's is moved into its bounds; those of children (integers within their bounds that add up to the parent's)
    have the least sum of squared distances, by one shift for all that is cut off at the bounds; what is left over goes
    to the first.

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
    """Integers (K,) within bounds that add up to a total, the nearest to those given."""
    low, high = int((least - near).min()) - 1, int((most - near).max()) + 1
    while high - low > 1:  # sums reach the total at high, not at low
        middle = (low + high) // 2
        reached = np.clip(near + middle, least, most).sum(dtype=np.float64)  # exact below 2^53: enough
        low, high = (low, middle) if reached >= total else (middle, high)
    found, less = np.clip(near + high, least, most), np.clip(near + low, least, most)
    over = found > less
    later = np.cumsum(over[::-1])[::-1]
    return np.asarray(found - (over & (later <= found.sum() - total)))
