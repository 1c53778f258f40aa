"""M_c^ch as section 9.2 prints it: kept for comparison, and not differentially private at its epsilon.

Its cumulative counts run over *all regions of a level* for size 1, then over all of them for size 2,
and so on. A person who joins a group of size s takes it out of size s and puts it into size s + 1:
every entry from (s, r) to (s + 1, r) - 1 falls by one, |R_l| entries of level l, while the noise is
for one. The loss is (eps / L) sum_l |R_l|. On the paper's running example (2 levels, 2 leaves) that
is 1.5 eps; with 52 states and 3144 counties it is 1066 eps. Post-processing does not save it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from privopt.arrays import Ints
from privopt_hierarchical_dp.fits.isotonic import isotonic_means
from privopt_hierarchical_dp.tree import Tree

__all__ = ["chain_counts", "chain_query", "fit_chain", "post_order"]


def post_order(tree: Tree) -> tuple[Ints, Ints]:
    """Return level and position of every region, children before their parent, in the tree's own order."""

    def visit_subtree(level: int, position: int) -> Iterator[tuple[int, int]]:
        if level < tree.depth - 1:
            for child in range(*tree.start[level][position : position + 2].tolist()):
                yield from visit_subtree(level + 1, child)
        yield level, position

    levels, places = np.array(list(visit_subtree(0, 0))).T
    return levels, places


def chain_query(counts: Sequence[Ints]) -> list[Ints]:
    """Return the published cumulative vectors for each level (R_l, N): sums over regions first, then over sizes."""
    return [
        np.ascontiguousarray(np.cumsum(np.asarray(level).T.ravel()).reshape(level.shape[1], -1).T) for level in counts
    ]


def chain_counts(chain: Sequence[Ints]) -> list[Ints]:
    """Return the counts of cumulative vectors: the inverse of `chain_query`."""
    return [
        np.ascontiguousarray(np.diff(np.asarray(level).T.ravel(), prepend=0).reshape(level.shape[1], -1).T)
        for level in chain
    ]


def fit_chain(tree: Tree, noisy: Sequence[Ints], *, total: int) -> list[Ints]:
    """Solve Model 3 with recurrence (8) exactly, by pooling: the nearest chain of integers from 0 to G.

    An element equals its successor if the next region is on a higher level (C9). Otherwise it must not exceed it, which
    includes the step down to a deeper level that (C8) omits as printed.

    Args:
        tree: The hierarchy.
        noisy: For each level (R_l, N) the noisy values of `chain_query`.
        total: G.

    Returns:
        For each level (R_l, N) fitted cumulative values; `chain_counts` makes counts of them.
    """
    levels, places = post_order(tree)
    is_joined = np.concatenate([[False], levels[:-1] > levels[1:]])  # equal to the one before
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
    result = []
    for level, width in enumerate(tree.widths):
        columns = np.flatnonzero(levels == level)
        values_of_level = np.empty((width, sizes), np.int64)
        values_of_level[places[columns]] = spread[:, columns].T
        result.append(values_of_level)
    return result
