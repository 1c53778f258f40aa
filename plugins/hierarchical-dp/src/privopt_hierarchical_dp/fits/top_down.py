"""The TopDown baseline (Abowd 2018), which fits and rounds the children of each region from the root down.

When a region's children are fitted, the region's own integer counts are already fixed. The children are fitted with the
nearest non-negative reals that add up to these counts, size by size. Rounding by largest remainders preserves these
sums.
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
    """Round rows of non-negative reals to integers with given row sums, by the method of largest remainders.

    Args:
        values: (rows, columns) The reals.
        totals: (rows,) The required sum of each row of integers, which must equal the sum of the reals up to rounding
            errors.

    Returns:
        An array of integers of the same shape as ``values``.
    """
    # With the tolerance of 1e-9, a value that is an integer up to rounding errors does not lose a whole unit.
    rounded = np.floor(values + 1e-9).astype(np.int64)
    deficits = totals - rounded.sum(axis=1)
    # The argsort of an argsort gives the rank of each remainder. The stable sort breaks ties in favour of the first
    # column.
    order = np.argsort(np.argsort(-(values - rounded), axis=1, kind="stable"), axis=1)
    rounded += order < deficits[:, None]
    return rounded


def top_down(tree: Tree, noisy: Sequence[Ints], *, total: int) -> list[Ints]:
    """Fit consistent non-negative integer counts to noisy counts, level by level from the root down.

    Args:
        tree: The region tree.
        noisy: For each level, a (regions, sizes) array with the noisy counts.
        total: The total number G of groups.

    Returns:
        For each level, a (regions, sizes) array with the counts.
    """
    # Fitting only the root is Model 1 on a tree with a single region.
    root_tree = tree.root_alone
    counts = [project_counts(root_tree, [noisy[0]], total=total)[0]]
    for level, start in enumerate(tree.start):
        children = np.zeros((tree.widths[level + 1], counts[0].shape[1]), np.int64)
        for region in range(tree.widths[level]):
            siblings = slice(int(start[region]), int(start[region + 1]))
            parent = counts[level][region]
            # Each row belongs to one size and has one entry per child. It must add up to the parent's count.
            targets = np.ascontiguousarray(noisy[level + 1][siblings].T, dtype=np.float64)
            fitted = simplex_rows(targets, parent.astype(np.float64))
            children[siblings] = _largest_remainders(fitted, parent).T
        counts.append(children)
    return counts
