"""The mechanism M_c^ch as section 9.2 of the paper prints it, for comparison. It does not satisfy its epsilon.

Its cumulative counts run over *all regions of a level* for size 1, then over all of them for size 2, and so on. A
person who joins a group of size s moves this group to size s + 1. Every entry from (s, r) up to the one before (s + 1,
r) falls by one. These are |R_l| entries of level l, while the noise is scaled for one. The privacy loss is (eps / L)
sum_l |R_l|. On the paper's running example (2 levels, 2 leaves) it is 1.5 eps; with 52 states and 3144 counties it is
1066 eps. Post-processing cannot reduce it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from privopt.arrays import Ints
from privopt_hierarchical_dp.fits.isotonic import isotonic_means
from privopt_hierarchical_dp.tree import Tree

__all__ = ["chain_counts", "chain_query", "fit_chain", "post_order"]


def post_order(tree: Tree) -> tuple[Ints, Ints]:
    """Return the level and position of every region in post-order, which lists children before their parent."""

    def visit_subtree(level: int, position: int) -> Iterator[tuple[int, int]]:
        """Yield the level and position of each region of a subtree, children before their parent."""
        if level < tree.depth - 1:
            # The two offsets are the first child and the end of the children.
            for child in range(*tree.start[level][position : position + 2].tolist()):
                yield from visit_subtree(level + 1, child)
        yield level, position

    levels, places = np.array(list(visit_subtree(0, 0))).T
    return levels, places


def chain_query(counts: Sequence[Ints]) -> list[Ints]:
    """Return each level's cumulative vector as published: over all regions for size 1, then for size 2, and so on.

    Args:
        counts: The (R_l, N) counts on each level. The returned vectors have the same shape.
    """
    return [
        # Transposed, so that the vector runs over the regions first and then over the sizes.
        np.ascontiguousarray(np.cumsum(np.asarray(level).T.ravel()).reshape(level.shape[1], -1).T)
        for level in counts
    ]


def chain_counts(chain: Sequence[Ints]) -> list[Ints]:
    """Return the (R_l, N) counts of cumulative vectors. This is the inverse of `chain_query`."""
    return [
        np.ascontiguousarray(np.diff(np.asarray(level).T.ravel(), prepend=0).reshape(level.shape[1], -1).T)
        for level in chain
    ]


def fit_chain(tree: Tree, noisy: Sequence[Ints], *, total: int) -> list[Ints]:
    """Return the non-decreasing integers from 0 to G that are nearest to the noisy chain (Model 3), exactly.

    The chain lists the regions in post-order for size 1, then for size 2, and so on. An element equals its successor if
    the next region is on a higher level (C9). Otherwise it must not exceed its successor. This includes a step to a
    deeper level, which the printed (C8) omits. Equations (C7) to (C9) are those of the paper.

    Args:
        tree: The hierarchy.
        noisy: The (R_l, N) noisy values of `chain_query` on each level.
        total: G, the number of all groups.

    Returns:
        Fitted (R_l, N) cumulative values on each level. `chain_counts` converts them to counts.
    """
    levels, places = post_order(tree)
    # Elements that must be equal (C9) are pooled to one variable before the isotonic regression, with their number as
    # weight. An element is joined if it must be equal to the one before, which is that of a child.
    is_joined = np.concatenate([[False], levels[:-1] > levels[1:]])
    # The number of each element's pool, the same for every size.
    group = np.cumsum(~is_joined) - 1
    starts = np.flatnonzero(~is_joined)
    sizes = noisy[0].shape[1]
    sequence = np.empty((sizes, len(levels)), np.int64)
    for level, values in enumerate(noisy):
        columns = np.flatnonzero(levels == level)
        sequence[:, columns] = np.asarray(values)[places[columns]].T
    sums = np.add.reduceat(sequence, starts, axis=1).reshape(1, -1)
    mass = np.tile(np.bincount(group), sizes).astype(np.int64)
    fitted = np.full_like(sums, total)  # the last group is the root's at size N: (C7) fixes it
    fitted[:, :-1] = isotonic_means(np.ascontiguousarray(sums[:, :-1]), mass[:-1], high=np.array([total]))
    spread = fitted.reshape(sizes, -1)[:, group]
    # Back from post-order to one array for each level.
    result = []
    for level, width in enumerate(tree.widths):
        columns = np.flatnonzero(levels == level)
        values_of_level = np.empty((width, sizes), np.int64)
        values_of_level[places[columns]] = spread[:, columns].T
        result.append(values_of_level)
    return result
