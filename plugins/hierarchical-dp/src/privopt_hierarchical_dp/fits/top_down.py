"""The level-by-level baseline (TopDown, Abowd 2018): fit two levels at a time, round, and go down.

The integer counts of each parent are given. The counts of its children are the nearest non-negative reals that add up
to the parent's, size by size. Rounding by largest remainders preserves these sums.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privopt.arrays import Ints
from privopt_hierarchical_dp.fits.half_prices import project_counts
from privopt_hierarchical_dp.fits.projection import simplex_rows
from privopt_hierarchical_dp.tree import Tree

__all__ = ["top_down"]


def _largest_remainders(values: NDArray[np.float64], totals: Ints) -> Ints:
    """Round rows of non-negative reals to integers with given row sums, by largest remainders.

    Args:
        values: (S, K) Reals.
        totals: (S,) The required sums of the integers, close to the sums of the reals.
    """
    # The margin of 1e-9 keeps a value that is whole up to rounding errors from being rounded to the integer below.
    rounded = np.floor(values + 1e-9).astype(np.int64)
    deficits = totals - rounded.sum(axis=1)
    # argsort of argsort is the rank of each remainder; the stable sort gives ties to the first child.
    order = np.argsort(np.argsort(-(values - rounded), axis=1, kind="stable"), axis=1)
    rounded += order < deficits[:, None]
    return rounded


def top_down(tree: Tree, noisy: Sequence[Ints], *, total: int) -> list[Ints]:
    """Return consistent non-negative integer counts, fitted level by level from the root.

    Args:
        tree: The hierarchy.
        noisy: The (R_l, N) noisy counts on each level.
        total: G, the number of all groups.

    Returns:
        The (R_l, N) counts on each level.
    """
    # The root by itself is Model 1 on a tree with one region.
    root_tree = tree.root_alone
    counts = [project_counts(root_tree, [noisy[0]], total=total)[0]]
    for level, start in enumerate(tree.start):
        children = np.zeros((tree.widths[level + 1], counts[0].shape[1]), np.int64)
        for region in range(tree.widths[level]):
            siblings = slice(int(start[region]), int(start[region + 1]))
            parent = counts[level][region]
            # One row for each size: its children are the entries, and the parent's count of that size is their sum.
            targets = np.ascontiguousarray(noisy[level + 1][siblings].T, dtype=np.float64)
            fitted = simplex_rows(targets, parent.astype(np.float64))
            children[siblings] = _largest_remainders(fitted, parent).T
        counts.append(children)
    return counts
