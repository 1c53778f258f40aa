"""Counts of counts made consistent by matching: methods of Kuo, Chiu, Kifer, Hay and Machanavajjhala, to compare with.

"Differentially Private Hierarchical Count-of-Counts Histograms", VLDB 2018, with public numbers of groups and their
method Hc on every level: each region's cumulative counts are made rising by itself. Then, from the root down, the
groups of a region are matched with those of its children in the order of their sizes, the smallest first, which moves
sizes least in all; where a run of equal sizes is only partly matched, children give in proportion. A matched group's
size is the average of its two estimates by inverse variance, and goes on to the next level; leaves round it, and are
added up.

A count of n groups is a difference of two noisy values of variance v, so each of its groups has the variance 2 v / n
(their section 5). Rising counts are those of least squares, as for the other methods here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt_hierarchical_dp.fits.isotonic import isotonic_integers
from privopt_hierarchical_dp.least_squares import Noise
from privopt_hierarchical_dp.tree import Tree, add_up

__all__ = ["match_counts", "match_down"]


@frozen(kw_only=True, eq=False)
class Groups:
    """One region's groups in runs, by size from the smallest: (J,) sizes, their variances, and how many groups."""

    sizes: Floats
    variances: Floats
    groups: Ints


def match_down(tree: Tree, noisy: Sequence[Ints], *, noise: Sequence[Noise], totals: Sequence[Ints]) -> list[Ints]:
    """Consistent non-negative integer counts (R_l, N) of every level, with exact region totals.

    Args:
        tree: the hierarchy.
        noisy: for each level (R_l, N - 1) noisy cumulative counts of sizes 1 to N - 1.
        noise: for each level that of its values.
        totals: for each level (R_l,) exact numbers of groups.
    """
    estimated_counts = [
        np.diff(np.concatenate([isotonic_integers(level, high=top), top[:, None]], axis=1), axis=1, prepend=0)
        for level, top in zip(noisy, totals, strict=True)
    ]
    return match_counts(tree, estimated_counts, [2.0 * float(law.variance) for law in noise])


def match_counts(tree: Tree, counts: Sequence[Ints], variances: Sequence[float]) -> list[Ints]:
    """Return counts (R_l, N) of regions that were estimated each by itself, made consistent.

    Args:
        tree: the hierarchy.
        counts: for each level (R_l, N) non-negative counts whose sums over sizes add up over the tree.
        variances: for each level that of a group's size where it alone has it; of n groups each has an n-th of it.
    """
    root, root_sizes = counts[0][0], np.flatnonzero(counts[0][0])
    parent_groups = [
        Groups(
            sizes=root_sizes.astype(np.float64) + 1.0,
            variances=variances[0] / root[root_sizes],
            groups=root[root_sizes],
        )
    ]
    for start, level_counts, variance in zip(tree.start, counts[1:], variances[1:], strict=True):
        families = zip(parent_groups, start[:-1].tolist(), start[1:].tolist(), strict=True)
        parent_groups = [
            child
            for parent, low, high in families
            for child in _match_children(parent, level_counts[low:high], variance)
        ]
    leaves = np.zeros_like(counts[-1])
    for row, region in zip(leaves, parent_groups, strict=True):
        np.add.at(row, np.floor(region.sizes + 0.5).astype(np.int64) - 1, region.groups)
    return add_up(tree, leaves)


def _match_children(parent: Groups, counts: Ints, variance: float) -> list[Groups]:
    """Return the groups of K children with counts (K, N), sizes averaged with those of the parent's that they match."""
    remaining_counts, pooled = counts.copy(), counts.sum(axis=0)
    dealt = np.zeros((len(parent.groups) + counts.shape[1], len(counts)), np.int64)
    places: list[tuple[int, int]] = []
    size = 0
    for run, groups in enumerate(parent.groups.tolist()):
        while groups:
            while not pooled[size]:
                size += 1
            matched_count = min(groups, int(pooled[size]))
            part = (
                remaining_counts[:, size].copy()
                if matched_count == pooled[size]
                else _proportional_parts(remaining_counts[:, size], matched_count)
            )
            remaining_counts[:, size] -= part
            pooled[size] -= matched_count
            groups -= matched_count
            dealt[len(places)] = part
            places.append((run, size))
    matched, sizes = np.array(places, np.int64).reshape(-1, 2).T
    children = []
    for child, child_counts in enumerate(counts):
        matched_groups = np.flatnonzero(dealt[:, child])
        of, size_numbers = matched[matched_groups], sizes[matched_groups]
        child_weight, parent_weight = child_counts[size_numbers] / variance, 1.0 / parent.variances[of]
        merged_sizes = (child_weight * (size_numbers + 1.0) + parent_weight * parent.sizes[of]) / (
            child_weight + parent_weight
        )
        order = np.argsort(merged_sizes, kind="stable")
        children.append(
            Groups(
                sizes=merged_sizes[order],
                variances=1.0 / (child_weight + parent_weight)[order],
                groups=dealt[matched_groups[order], child],
            )
        )
    return children


def _proportional_parts(stock: Ints, part_total: int) -> Ints:
    """(K,) parts of a stock that add up to ``taken``, in its proportion: largest remainders, in exact integers."""
    stock_total = int(stock.sum())
    product = stock.astype(object) * part_total
    part, remainders = (product // stock_total).astype(np.int64), (product % stock_total).astype(np.int64)
    part[np.argsort(-remainders, kind="stable")[: part_total - int(part.sum())]] += 1
    return part
