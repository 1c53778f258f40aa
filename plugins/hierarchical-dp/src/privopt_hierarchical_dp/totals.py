"""Estimated numbers of groups, for problems in which these numbers are not public.

The numbers are estimated from the noisy values and then passed to every method, so a release is still consistent and
non-negative. The total of the whole hierarchy is the unbiased least-squares estimate from all levels. A method that
cuts off counts below zero would instead raise it a little in every empty cell. The totals of the regions, which
cumulative methods need, are the nearest integers that add up to this total, with each level weighted by the precision
of its noise. The method of half-prices computes them exactly.
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
    """Return noisy numbers of groups (R_l, 1): sums of noisy counts, or the cumulative count over all sizes.

    Args:
        noisy: The (R_l, N) noisy values on each level.
        order: The meaning of the noisy values.
    """
    if order == "counts":
        return [level.sum(axis=1, keepdims=True) for level in noisy]
    # All groups have the least size or more, and the largest size or less.
    return [level[:, :1] if order == "more" else level[:, -1:] for level in noisy]


def estimated_root(
    tree: Tree, sums: Sequence[Ints], law: NoiseDistribution, scales: Sequence[Scale], limits: Limits | None = None
) -> float:
    """Return the least-squares estimate of the root's number from all levels, at least 0 and within bounds.

    Args:
        tree: The hierarchy.
        sums: The (R_l, 1) noisy numbers on each level.
        law: The distribution of the noise.
        scales: The scale of the noise of each level.
        limits: Public bounds. None if there are none.
    """
    # A number of groups is not negative; the unbiased estimate of a small one can be.
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
    """Return consistent estimates of the number of groups in every region, or in the root if it is enough.

    The root is enough for counts without bounds and without exact numbers of other regions.

    Args:
        tree: The hierarchy.
        noisy: Noisy (R_l, N) counts on each level, or noisy numbers of groups of size s or more, or of size s or less.
        law: The distribution of the noise.
        scales: The scales of the noise, by level.
        order: The meaning of the noisy values.
        root: The root's number, if it is known or has been estimated already.
        limits: Public bounds, into which the estimates are moved.
        known: The (R_l,) exact numbers on the first levels, which the estimates of the other levels add up to.

    Returns:
        The (R_l,) numbers on each level, or a list with only the root's number (1,).
    """
    sums = noisy_totals(noisy, order)
    total = round(estimated_root(tree, sums, law, scales)) if root is None else root
    if limits is not None:
        total = min(max(total, limits.root[0]), limits.root[1])
    # Model 1 on counts needs no totals of regions.
    if order == "counts" and limits is None and len(known) < 2:
        return [np.array([total])]
    precisions = [law.precision(scale) for scale in scales]
    if len(known) < 2:
        totals = _project_totals(tree, sums, total, precisions)
        return totals if limits is None else nearest_within(totals, limits)
    totals = _project_below_known(tree, sums, known, precisions)
    return totals if limits is None else nearest_within(totals, limits.with_exact(known))


def _project_totals(tree: Tree, sums: Sequence[Ints], total: int, precisions: Sequence[Fraction]) -> list[Ints]:
    """Return the (R_l,) integers on each level, nearest to noisy numbers, that add up to the number of the root.

    Args:
        tree: The hierarchy.
        sums: The (R_l, 1) noisy numbers on each level.
        total: The number of the root.
        precisions: The weight of each level; 0 if it is not measured.
    """
    # If no level is measured, nothing distinguishes the regions, and equal weights spread the total.
    weights = integer_weights(
        list(precisions) if any(precisions) else [Fraction(1)] * tree.depth, limit=largest_weight(tree, sums, total)
    )
    return [level[:, 0] for level in project_counts(tree, sums, total=total, weights=weights)]


def _project_below_known(
    tree: Tree, sums: Sequence[Ints], known: Sequence[Ints], precisions: Sequence[Fraction]
) -> list[Ints]:
    """Return the integers nearest to noisy numbers that add up to the exact numbers of the first levels.

    Given the number of a region, its subtree is a problem of its own.

    Args:
        tree: The hierarchy.
        sums: The (R_l, 1) noisy numbers on each level.
        known: The (R_l,) exact numbers on the first levels.
        precisions: The weight of each level.
    """
    deepest = len(known) - 1
    if deepest + 1 >= tree.depth:
        return list(known)
    totals = [*known, *(np.zeros(width, np.int64) for width in tree.widths[deepest + 1 :])]
    for region in range(tree.widths[deepest]):
        subtree, slices = tree.subtree(deepest, region)
        values = [sums[deepest + step][part] for step, part in enumerate(slices)]
        # The exact number takes the place of the measured one, which may not exist.
        values[0] = known[deepest][region : region + 1, None]
        fitted = _project_totals(subtree, values, int(known[deepest][region]), precisions[deepest:])
        for step, part in enumerate(slices):
            totals[deepest + step][part] = fitted[step]
    return totals


def to_cumulative(noisy: Sequence[Ints], totals: Sequence[Ints]) -> list[Ints]:
    """Return cumulative counts computed from numbers of groups of size s or more and the totals.

    Args:
        noisy: The numbers of groups of size s or more, (R_l, N) on each level.
        totals: The (R_l,) totals on each level.

    Returns:
        The (R_l, N - 1) cumulative counts on each level, which are the total less the groups of size s + 1 or more.
    """
    return [np.ascontiguousarray(total[:, None] - level[:, 1:]) for level, total in zip(noisy, totals, strict=True)]


def added_by_estimates(
    totals: Sequence[Ints], noisy: Sequence[Ints], order: Order, weights: Sequence[Fraction]
) -> Fraction:
    """Return the part of the loss that is due to the estimated totals alone, whatever the fit.

    Args:
        totals: The (R_l,) estimated totals on each level, which replace the measured totals.
        noisy: The (R_l, N) noisy values on each level, which include noisy totals.
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
    """Return a line if the released total is not the rounded estimate from the noisy values.

    Args:
        tree, noisy, law, scales, order, limits: The input of the estimate, as in :func:`estimated_totals`.
        released: The released total of the root.
    """
    estimate = estimated_root(tree, noisy_totals(noisy, order), law, scales, limits)
    # A half may be rounded either way, since machines round sums of doubles differently; the tolerance grows with the
    # size.
    if abs(released - estimate) <= 0.5 + SLACK_GROUPS * max(1.0, estimate * 1e-7):
        return []
    return [f"the root has {number_of(released, 'group')}; the noisy values give {estimate:.6g}"]
