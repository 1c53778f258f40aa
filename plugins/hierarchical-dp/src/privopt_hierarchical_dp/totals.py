"""Estimate the totals of regions (their numbers of groups) when these totals are not public.

Totals are estimated from the noisy values before the fit and passed to the method, so a release is still consistent and
non-negative. The total of the whole hierarchy is the unbiased least-squares estimate from all levels. By contrast, the
sum of counts that a fit has clipped at 0 is biased upwards, because every empty cell adds a little to it.

Cumulative methods also need the totals of the other regions. These are the integers that add up to the root's total and
are nearest to the noisy totals, with each level weighted by the precision of its noise. They are computed exactly
(:mod:`.half_prices`).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from privopt.arrays import Ints
from privopt.errors import number_of
from privopt_hierarchical_dp.bounds import Limits, nearest_within
from privopt_hierarchical_dp.fits.half_prices import integer_weights, largest_weight, project_counts
from privopt_hierarchical_dp.least_squares import SLACK_GROUPS, pool_upwards
from privopt_hierarchical_dp.methods import Order
from privopt_hierarchical_dp.noise_distributions import NoiseDistribution, Scale
from privopt_hierarchical_dp.tree import Tree

__all__ = [
    "added_by_estimates",
    "estimated_root",
    "estimated_totals",
    "noisy_totals",
    "to_cumulative",
    "total_complaint",
]


def noisy_totals(noisy: Sequence[Ints], order: Order) -> list[Ints]:
    """Return the noisy total of each region: the sum of its noisy counts, or its cumulative count over all sizes.

    Args:
        noisy: For each level, an array of shape (regions, sizes) with the noisy values.
        order: The meaning of the noisy values.

    Returns:
        For each level, an array of shape (regions, 1).
    """
    if order == "counts":
        return [level.sum(axis=1, keepdims=True) for level in noisy]
    # All groups have at least the smallest size, and at most the largest size.
    return [level[:, :1] if order == "more" else level[:, -1:] for level in noisy]


def estimated_root(
    tree: Tree, sums: Sequence[Ints], law: NoiseDistribution, scales: Sequence[Scale], limits: Limits | None = None
) -> float:
    """Return the least-squares estimate of the root's total from all levels, non-negative and within bounds.

    Args:
        tree: The region tree.
        sums: For each level, an array of shape (regions, 1) with the noisy totals.
        law: The noise distribution.
        scales: The noise scale at each level.
        limits: Public bounds, or None if there are none.
    """
    # A number of groups is non-negative, but the unbiased estimate of a small number can be negative.
    estimate = max(0.0, float(pool_upwards(tree, sums, list(map(law.moments, scales)))[0].mean[0, 0]))
    return estimate if limits is None else min(max(estimate, limits.root[0]), limits.root[1])


def estimated_totals(
    tree: Tree,
    noisy: Sequence[Ints],
    *,
    law: NoiseDistribution,
    scales: Sequence[Scale],
    order: Order,
    root: int | None = None,
    limits: Limits | None = None,
    known: Sequence[Ints] = (),
) -> list[Ints]:
    """Return consistent estimates of the totals of all regions, or of the root alone if that suffices.

    The root's total suffices if counts are measured and there are neither bounds nor exact totals of other regions.

    Args:
        tree: The region tree.
        noisy: For each level, an array of shape (regions, sizes) with noisy counts or noisy cumulative counts.
        law: The noise distribution.
        scales: The noise scale at each level.
        order: The meaning of the noisy values.
        root: The root's total, if it is known or already estimated. If None, it is estimated.
        limits: Public bounds that the estimates are made to satisfy, or None if there are none.
        known: For each of the top levels, an array of shape (regions,) with exact totals. The estimates at lower levels
            add up to these totals. Empty if no totals are known.

    Returns:
        For each level, an array of shape (regions,) with the totals. If the root's total suffices, the list contains
        only the array for the root.
    """
    sums = noisy_totals(noisy, order)
    total = round(estimated_root(tree, sums, law, scales)) if root is None else root
    if limits is not None:
        total = min(max(total, limits.root[0]), limits.root[1])
    # Model 1 for counts does not need the totals of regions.
    if order == "counts" and limits is None and len(known) < 2:
        return [np.array([total])]
    precisions = [law.precision(scale) for scale in scales]
    if len(known) < 2:
        totals = _project_totals(tree, sums, total, precisions)
        return totals if limits is None else nearest_within(totals, limits)
    totals = _project_below_known(tree, sums, known, precisions)
    return totals if limits is None else nearest_within(totals, limits.with_exact(known))


def _project_totals(tree: Tree, sums: Sequence[Ints], total: int, precisions: Sequence[Fraction]) -> list[Ints]:
    """Return the integers that add up to the total of the root and are nearest to the noisy totals.

    Args:
        tree: The region tree.
        sums: For each level, an array of shape (regions, 1) with the noisy totals.
        total: The total of the root.
        precisions: The weight of each level, which is 0 if the level is not measured.

    Returns:
        For each level, an array of shape (regions,) with the integers.
    """
    # If no level is measured, nothing distinguishes the regions, so equal weights are used.
    weights = integer_weights(
        list(precisions) if any(precisions) else [Fraction(1)] * tree.depth, limit=largest_weight(tree, sums, total)
    )
    return [level[:, 0] for level in project_counts(tree, sums, total=total, weights=weights)]


def _project_below_known(
    tree: Tree, sums: Sequence[Ints], known: Sequence[Ints], precisions: Sequence[Fraction]
) -> list[Ints]:
    """Return the integers that add up to the exact totals at the top levels and are nearest to the noisy totals.

    The regions below each region at the deepest level with exact totals form a separate problem.

    Args:
        tree: The region tree.
        sums: For each level, an array of shape (regions, 1) with the noisy totals.
        known: For each of the top levels, an array of shape (regions,) with the exact totals.
        precisions: The weight of each level, which is 0 if the level is not measured.

    Returns:
        For each level, an array of shape (regions,) with the exact totals where they are known and the
        integers elsewhere.
    """
    deepest = len(known) - 1
    if deepest + 1 >= tree.depth:
        return list(known)
    totals = [*known, *(np.zeros(width, np.int64) for width in tree.widths[deepest + 1 :])]
    for region in range(tree.widths[deepest]):
        subtree, slices = tree.subtree(deepest, region)
        values = [sums[deepest + step][part] for step, part in enumerate(slices)]
        # The exact total replaces the measured one, which may not exist.
        values[0] = known[deepest][region : region + 1, None]
        fitted = _project_totals(subtree, values, int(known[deepest][region]), precisions[deepest:])
        for step, part in enumerate(slices):
            totals[deepest + step][part] = fitted[step]
    return totals


def to_cumulative(noisy: Sequence[Ints], totals: Sequence[Ints]) -> list[Ints]:
    """Convert numbers of groups of size s or more into numbers of groups of size s or less, given the totals.

    Args:
        noisy: For each level, an array of shape (regions, sizes) with the numbers of groups of size s or more.
        totals: For each level, an array of shape (regions,) with the totals.

    Returns:
        For each level, an array of shape (regions, sizes - 1) with the cumulative counts of all sizes but the last.
    """
    return [np.ascontiguousarray(total[:, None] - level[:, 1:]) for level, total in zip(noisy, totals, strict=True)]


def added_by_estimates(
    totals: Sequence[Ints], noisy: Sequence[Ints], order: Order, weights: Sequence[Fraction]
) -> Fraction:
    """Return the part of the loss that is due to the estimated totals and therefore the same for every fit.

    Args:
        totals: For each level, an array of shape (regions,) with the estimated totals, which replace the measured ones.
        noisy: For each level, an array of shape (regions, sizes) with the noisy values, which include noisy totals.
        order: The meaning of the noisy values.
        weights: The weight of each level in the loss.
    """
    largest, added = max(weights), Fraction(0)
    for weight, total, noisy_total in zip(weights, totals, noisy_totals(noisy, order), strict=True):
        added += weight / largest * sum(int(value) ** 2 for value in total - noisy_total[:, 0])
    return added


def total_complaint(
    tree: Tree,
    noisy: Sequence[Ints],
    *,
    law: NoiseDistribution,
    scales: Sequence[Scale],
    order: Order,
    limits: Limits | None,
    released: int,
) -> list[str]:
    """Check that the released total of the root is the rounded estimate from the noisy values.

    Args:
        tree: The region tree.
        noisy: For each level, the noisy values, as in :func:`estimated_totals`.
        law: The noise distribution.
        scales: The noise scale at each level.
        order: The meaning of the noisy values.
        limits: Public bounds, or None if there are none.
        released: The released total of the root.

    Returns:
        A list with an error message, or an empty list if the total is right.
    """
    estimate = estimated_root(tree, noisy_totals(noisy, order), law, scales, limits)
    # A half may be rounded either way, because machines round sums of doubles differently. The tolerance increases with
    # the estimate.
    if abs(released - estimate) <= 0.5 + SLACK_GROUPS * max(1.0, estimate * 1e-7):
        return []
    return [f"the root has {number_of(released, 'group')}; the noisy values give {estimate:.6g}"]
