"""Models 1 and 2 with known region totals: nearest integers with a proved optimality gap.

Model 2 is what the paper's chain mechanism is meant to solve, on noisy values that are really private: the cumulative
counts of each region by itself (sensitivity 1), with every region's total known. Method ``cumulative`` with
``region_totals`` solves small inputs to optimality, as an integer program. docs/papers/hierarchical-dp.md describes the
published chain under "Corrections, and what proves them", and explains why it is not private.
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
    """Round the root's cumulative counts to integers, and return their differences, the counts (N,).

    Args:
        continuous: (N,) Continuous cumulative counts.
        total: The exact total, which replaces the last cumulative count.
    """
    # In doubles a cumulative count may fall by a rounding error; the running maximum repairs that.
    rounded = np.floor(np.clip(np.maximum.accumulate(continuous), 0, total) + 0.5).astype(np.int64)
    # The last cumulative count is the total, which is exact: the other counts absorb the rounding.
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
    """Fit integers that add up over the tree to noisy values, if the totals of all regions are known.

    In Model 2, cumulative counts are non-decreasing in every region. In Model 1, counts are non-negative; this model is
    a convex-cost flow from sizes through the tree to leaf regions with known demand.

    Args:
        tree: The hierarchy.
        noisy: The (R_l, N) noisy counts on each level, or the (R_l, N - 1) cumulative counts without those of size N,
            which are the totals.
        totals: The (R_l,) exact totals on each level.
        weights: The weight of each level, at least 0. The largest weight should be about 1, because tolerances are
            absolute.
        cumulative: Whether to solve Model 2 instead of Model 1.
        gap: The relative gap at which the continuous projection stops.

    Returns:
        The (R_l, N) counts on each level, with a lower bound on the objective. They are proved to be optimal only if
        there is a single size.
    """
    region_totals = [np.asarray(total, dtype=np.int64) for total in totals]
    size = noisy[0].shape[1]
    # The number of columns is 0 for cumulative counts of a single size, whose counts are the totals.
    if size == 0:
        return Fit(
            counts=[total[:, None] for total in region_totals],
            lower_bound=0.0,
            iterations=0,
            solver="none",
            proved=True,
        )
    # The continuous solution gives the lower bound. Error diffusion then rounds its cumulative counts.
    rows = "monotone" if cumulative else "simplex"
    projection = project_jointly(tree, noisy, weights=weights, totals=region_totals, rows=rows, gap=gap)
    # Model 2 has no column for size N, whose cumulative count is the total.
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
