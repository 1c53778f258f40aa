"""The level-by-level baseline (TopDown, Abowd 2018): fit two levels at a time, round, go down.

Each parent's integer counts are given; its children's are the nearest non-negative reals that add
up to them, size by size, then rounded so that they still do (largest remainders).
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
    """Round (S, K) rows of non-negative reals to integers with the row sums ``totals``."""
    # The margin keeps a value that is whole up to rounding of doubles from being cut to the integer below.
    rounded = np.floor(values + 1e-9).astype(np.int64)
    deficits = totals - rounded.sum(axis=1)
    order = np.argsort(np.argsort(-(values - rounded), axis=1, kind="stable"), axis=1)
    rounded += order < deficits[:, None]
    return rounded


def top_down(tree: Tree, noisy: Sequence[Ints], *, total: int) -> list[Ints]:
    """Find consistent non-negative integer counts, level by level from the root.

    Args:
        tree: The hierarchy.
        noisy: For each level (R_l, N) the noisy counts.
        total: G.
    """
    # The root by itself is Model 1 on a tree of one region.
    root_tree = Tree(names=(tree.names[0],), start=())
    counts = [project_counts(root_tree, [noisy[0]], total=total)[0]]
    for level, start in enumerate(tree.start):
        children = np.zeros((tree.widths[level + 1], counts[0].shape[1]), np.int64)
        for region in range(tree.widths[level]):
            siblings = slice(int(start[region]), int(start[region + 1]))
            parent = counts[level][region]
            targets = np.ascontiguousarray(noisy[level + 1][siblings].T, dtype=np.float64)
            fitted = simplex_rows(targets, parent.astype(np.float64))
            children[siblings] = _largest_remainders(fitted, parent).T
        counts.append(children)
    return counts
