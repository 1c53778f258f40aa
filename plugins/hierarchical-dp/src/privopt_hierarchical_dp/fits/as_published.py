"""The mechanism M_c^ch as printed in section 9.2 of the paper, for comparison only: its privacy loss exceeds epsilon.

Its cumulative counts run over *all regions at a level* for size 1, then over all of them for size 2, and so on. A
person who joins a group of size s in region r moves this group to size s + 1. All entries from (s, r) up to the one
before (s + 1, r) then decrease by one. At a level l with |R_l| regions, this affects |R_l| entries, but the noise is
calibrated for a change in a single entry.

With L levels and a budget of eps, the privacy loss is therefore (eps / L) sum_l |R_l|. It is 1.5 eps in the paper's
running example (2 levels, 2 leaves), and 1066 eps for 52 states and 3144 counties. Post-processing cannot reduce it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from privopt.arrays import Ints
from privopt_hierarchical_dp.fits.isotonic import isotonic_means
from privopt_hierarchical_dp.tree import Tree

__all__ = ["chain_counts", "chain_query", "fit_chain", "post_order"]


def post_order(tree: Tree) -> tuple[Ints, Ints]:
    """Return the level of each region and its position within that level, listing children before their parent."""

    def visit_subtree(level: int, position: int) -> Iterator[tuple[int, int]]:
        """Yield the level and position of each region in a subtree, with children before their parent."""
        if level < tree.depth - 1:
            # The two offsets delimit the region's children.
            for child in range(*tree.start[level][position : position + 2].tolist()):
                yield from visit_subtree(level + 1, child)
        yield level, position

    levels, places = np.array(list(visit_subtree(0, 0))).T
    return levels, places


def chain_query(counts: Sequence[Ints]) -> list[Ints]:
    """Return the paper's chain of cumulative counts for each level.

    At each level, the chain accumulates the counts of all regions for the smallest size, then the counts of all regions
    for the next size, and so on.

    Args:
        counts: For each level, a (regions, sizes) array with the counts.

    Returns:
        For each level, a (regions, sizes) array with the cumulative counts.
    """
    return [
        # Transposed, because the chain runs over the regions first and then over the sizes.
        np.ascontiguousarray(np.cumsum(np.asarray(level).T.ravel()).reshape(level.shape[1], -1).T)
        for level in counts
    ]


def chain_counts(chain: Sequence[Ints]) -> list[Ints]:
    """Convert the chain of cumulative counts back to counts. This is the inverse of `chain_query`.

    Args:
        chain: For each level, a (regions, sizes) array with the cumulative counts.

    Returns:
        For each level, a (regions, sizes) array with the counts.
    """
    return [
        np.ascontiguousarray(np.diff(np.asarray(level).T.ravel(), prepend=0).reshape(level.shape[1], -1).T)
        for level in chain
    ]


def fit_chain(tree: Tree, noisy: Sequence[Ints], *, total: int) -> list[Ints]:
    """Solve Model 3 of the paper exactly, i.e. find the non-decreasing integers in [0, G] nearest to the noisy chain.

    The chain lists the regions in post-order for size 1, then for size 2, and so on. An element must equal the next one
    if the next one belongs to a region at a higher level (constraint C9 of the paper). Otherwise, it must not exceed
    the next one. Unlike C8 as printed, this also applies if the next region is at a deeper level.

    Args:
        tree: The region tree.
        noisy: For each level, a (regions, sizes) array with the values of `chain_query` plus noise.
        total: The total number G of groups.

    Returns:
        For each level, a (regions, sizes) array with the fitted cumulative counts. `chain_counts` converts them to
        counts.
    """
    levels, places = post_order(tree)
    # Elements that must be equal (constraint C9) are pooled into a single variable before the isotonic regression, with
    # their number as its weight. An element belongs to the pool of the previous one if that belongs to a child.
    is_joined = np.concatenate([[False], levels[:-1] > levels[1:]])
    # The index of the pool that each region's element belongs to, which is the same for every size.
    group = np.cumsum(~is_joined) - 1
    starts = np.flatnonzero(~is_joined)
    sizes = noisy[0].shape[1]
    sequence = np.empty((sizes, len(levels)), np.int64)
    for level, values in enumerate(noisy):
        columns = np.flatnonzero(levels == level)
        sequence[:, columns] = np.asarray(values)[places[columns]].T
    sums = np.add.reduceat(sequence, starts, axis=1).reshape(1, -1)
    mass = np.tile(np.bincount(group), sizes).astype(np.int64)
    fitted = np.full_like(sums, total)  # the last pool contains the root at size N, which constraint C7 fixes to G
    fitted[:, :-1] = isotonic_means(np.ascontiguousarray(sums[:, :-1]), mass[:-1], high=np.array([total]))
    spread = fitted.reshape(sizes, -1)[:, group]
    # Convert values from post-order to one array per level.
    result = []
    for level, width in enumerate(tree.widths):
        columns = np.flatnonzero(levels == level)
        values_of_level = np.empty((width, sizes), np.int64)
        values_of_level[places[columns]] = spread[:, columns].T
        result.append(values_of_level)
    return result
