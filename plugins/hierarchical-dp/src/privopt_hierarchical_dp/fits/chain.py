"""Models 1 and 2 with known region totals: consistent integers close to noisy values, with a proved optimality gap.

Model 2 is the problem that the paper's chain mechanism is meant to solve. Here, the noisy values are separate
cumulative counts for each region. These have sensitivity 1, so their privacy loss is at most epsilon. The total of
every region must be given. For small inputs, the method ``cumulative`` with ``region_totals`` solves Model 2 with an
integer program.

docs/papers/hierarchical-dp.md explains under "Corrections, and what proves them" why the published chain does not
satisfy its epsilon.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privopt.arrays import Floats, Ints
from privopt_hierarchical_dp.fits.projection import project_jointly
from privopt_hierarchical_dp.fits.qip import Fit
from privopt_hierarchical_dp.fits.rounding import deal_down
from privopt_hierarchical_dp.tree import Tree, add_up

__all__ = ["fit_with_totals"]


def _round_root(continuous: Floats, total: int) -> Ints:
    """Round the root's cumulative counts to integers, and return their successive differences as counts.

    Args:
        continuous: (sizes,) The continuous cumulative counts.
        total: The exact total, which replaces the last cumulative count.

    Returns:
        A (sizes,) array of non-negative counts.
    """
    # Because of rounding errors, a cumulative count may be below the previous one, which the running maximum repairs.
    rounded = np.floor(np.clip(np.maximum.accumulate(continuous), 0, total) + 0.5).astype(np.int64)
    # The last cumulative count is the total, which is exact. All rounding errors are in the other counts.
    rounded[-1] = total
    return np.diff(rounded, prepend=0)


def fit_with_totals(
    tree: Tree,
    noisy: Sequence[Ints] | Sequence[Floats],
    *,
    totals: Sequence[Ints],
    weights: Sequence[float],
    cumulative: bool,
    gap: float = 1e-3,
) -> Fit:
    """Fit consistent integers to noisy values, given the totals of all regions.

    In Model 2, cumulative counts are non-decreasing in every region. In Model 1, counts are non-negative. Model 1 is a
    convex-cost flow from the sizes through the tree to the leaf regions, whose demands are their totals.

    Args:
        tree: The region tree.
        noisy: For each level, an array of noisy values. In Model 1 these are counts of shape (regions, sizes). In Model
            2 they are cumulative counts of shape (regions, sizes - 1), because the cumulative counts of the last size
            are the totals.
        totals: For each level, a (regions,) array with the exact totals.
        weights: The non-negative weight of each level. The largest should be about 1, because tolerances are absolute.
        cumulative: Whether to solve Model 2 rather than Model 1.
        gap: The relative optimality gap at which the continuous projection stops.

    Returns:
        The fit, with a (regions, sizes) array of counts for each level and a lower bound on the objective. The fit is
        only proved to be optimal in Model 2 with a single size, where the counts are the totals.
    """
    region_totals = [np.asarray(total, dtype=np.int64) for total in totals]
    size = noisy[0].shape[1]
    # Cumulative counts of a single size have no columns, because the counts are the totals.
    if size == 0:
        return Fit(
            counts=[total[:, None] for total in region_totals],
            lower_bound=0.0,
            iterations=0,
            solver="none",
            proved=True,
        )
    # The continuous solution provides the lower bound. Its cumulative counts are then rounded by error diffusion.
    rows = "monotone" if cumulative else "simplex"
    projection = project_jointly(tree, noisy, weights=weights, totals=region_totals, rows=rows, gap=gap)
    # In Model 2 there is no column for the last size, because its cumulative count is the total.
    if cumulative:
        cumulative_levels = add_up(
            tree, np.concatenate([projection.leaves, region_totals[-1][:, None].astype(np.float64)], axis=1)
        )
    else:
        cumulative_levels = [np.cumsum(level, axis=1) for level in add_up(tree, projection.leaves)]
    return Fit(
        counts=deal_down(
            tree, _round_root(cumulative_levels[0][0], int(region_totals[0][0])), cumulative_levels, region_totals
        ),
        lower_bound=projection.lower_bound,
        iterations=projection.iterations,
        solver="ADMM and error diffusion",
    )
