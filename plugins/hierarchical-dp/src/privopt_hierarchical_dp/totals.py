"""Estimated numbers of groups, for problems in which they are not public.

They are estimated from the noisy values and then given to every method, so a release is still consistent and
non-negative. The total of the whole hierarchy is the unbiased least squares estimate from all levels: a method that
cuts off counts below zero would raise it a little in every empty cell. The totals of the regions, which cumulative
methods need, are the nearest integers that add up to it, with each level weighed by the precision of its noise;
half-prices compute them exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from privopt.arrays import Ints
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
    """Return noisy numbers of groups (R_l, 1): sums of counts, or the last of the cumulative counts."""
    if order == "counts":
        return [level.sum(axis=1, keepdims=True) for level in noisy]
    return [level[:, :1] if order == "more" else level[:, -1:] for level in noisy]


def estimated_root(
    tree: Tree, sums: Sequence[Ints], law: NoiseDistribution, scales: Sequence[Scale], limits: Limits | None = None
) -> float:
    """Estimate the root's number by least squares from noisy numbers (R_l, 1), at least 0 and within bounds."""
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
) -> list[Ints]:
    """Estimate consistent numbers of groups of every region; of the root alone for counts without bounds.

    Args:
        tree: The hierarchy.
        noisy: For each level (R_l, N) noisy counts, or numbers of groups of size s or more, or less.
        law: The distribution of the noise.
        scales: The scales of the noise, by level.
        order: The meaning of the noisy values.
        root: The root's number, if it is known or was estimated before.
        limits: Public bounds, into which the estimates are moved.
    """
    sums = noisy_totals(noisy, order)
    total = round(estimated_root(tree, sums, law, scales)) if root is None else root
    if limits is not None:
        total = min(max(total, limits.root[0]), limits.root[1])
    if order == "counts" and limits is None:
        return [np.array([total])]
    limit = largest_weight(tree, sums, total)
    weights = integer_weights([law.precision(scale) for scale in scales], limit=limit)
    totals = [level[:, 0] for level in project_counts(tree, sums, total=total, weights=weights)]
    return totals if limits is None else nearest_within(totals, limits)


def to_cumulative(noisy: Sequence[Ints], totals: Sequence[Ints]) -> list[Ints]:
    """Convert numbers of groups of size s or more, (R_l, N), to cumulative counts (R_l, N - 1) under known totals."""
    return [np.ascontiguousarray(total[:, None] - level[:, 1:]) for level, total in zip(noisy, totals, strict=True)]


def added_by_estimates(
    totals: Sequence[Ints], noisy: Sequence[Ints], order: Order, weights: Sequence[Fraction]
) -> Fraction:
    """Return the part of the loss that the estimated totals cause by themselves, whatever is fitted."""
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
    """Return a line if the released total is not the estimate from the noisy values; halves may go both ways."""
    estimate = estimated_root(tree, noisy_totals(noisy, order), law, scales, limits)
    if abs(released - estimate) <= 0.5 + SLACK_GROUPS * max(1.0, estimate * 1e-7):
        return []
    return [f"the root has {released} groups; the noisy values give {estimate:.6g}"]
