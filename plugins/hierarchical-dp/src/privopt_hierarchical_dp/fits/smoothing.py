"""A level-by-level fit of cumulative counts that uses the parent's distribution as a prior for each region.

Unlike Model 2 (:mod:`.chain`), this fit relies on regions being similar to their parent (borrowing strength). Let a
child have the public total G_c, and its parent the total G_p and the already released counts n_s. The child's expected
number of groups of size s is mu_s = G_c n_s / G_p, with variance mu_s + h_s^2 mu_s^2. The first term is sampling
variation. The heterogeneity h_s is estimated jointly from all regions at the level, after subtracting the noise
variance.

Each child's noisy cumulative counts are then observations of a random walk with these increments. A Kalman filter with
a smoother along the sizes computes the best linear estimate in O(N) for N sizes. ADMM makes the children of each parent
add up to the parent and keeps each child's cumulative counts non-decreasing. Finally, error diffusion rounds the result
to integers.

Before these steps, the noisy values of every region are pooled with those of its descendants, weighted by inverse
variance. This is the upward pass of least squares over the tree. It imposes no constraint, so it adds no bias. All
steps are post-processing: they read only noisy values, released counts and public totals.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privopt.arrays import Floats, Ints
from privopt.execution.clock import clock
from privopt.execution.compiled import jit
from privopt_hierarchical_dp.fits.isotonic import isotonic_floats
from privopt_hierarchical_dp.fits.rounding import deal
from privopt_hierarchical_dp.least_squares import Noise, exactly, increments, pool_upwards
from privopt_hierarchical_dp.tree import Tree

__all__ = ["PRIOR_SQUARE", "heterogeneity", "smooth_down"]


PRIOR_SQUARE = 0.02
"""The value of h^2 used in the absence of information.

It corresponds to a standard deviation of about 14 %, as between counties.
"""
_MAX_SWEEPS = 40
"""The maximum number of ADMM steps for the children of one parent."""
_NEAR_SHARE = 0.1
"""The maximum relative distance between sizes over which the root's counts are averaged."""
_ROOT_SQUARE = 0.03
"""The value of h^2 at the root, which describes deviations from averages over nearby sizes."""


def heterogeneity(counts: Floats, noise: Floats, expected: Floats) -> Floats:
    """Estimate h_s^2, the relative variance of children's counts around the counts predicted from their parent.

    The estimate for each size s is an average of ((count - mu)^2 - noise variance - mu) / mu^2 over the regions,
    weighted by inverse variance. To stabilise the estimates for sizes with little data, `PRIOR_SQUARE` is included in
    the average as a prior. The weight of this prior is half the standard error of the sum over the regions, computed as
    if h_s were 0.

    Args:
        counts: (regions, sizes) The estimated counts.
        noise: (regions, sizes) The variances of the errors in ``counts``.
        expected: (regions, sizes) The expected counts mu, which are also their sampling variances.

    Returns:
        A (sizes,) array with the non-negative estimates of h^2.
    """
    explained = noise + expected
    # A single region's estimate is ((count - mu)^2 - explained) / mu^2. Its variance is mu^-4 times twice the squared
    # variance of the count. Up to a factor of 2, `weight` is the inverse of this variance, divided by mu^2.
    weight = expected**2 / np.maximum(explained + PRIOR_SQUARE * expected**2, 1e-30) ** 2
    excess = np.sum(weight * ((counts - expected) ** 2 - explained), axis=0)
    information = np.sum(weight * expected**2, axis=0)
    # Half the standard error that `excess` would have from noise and sampling variation alone, i.e. if h^2 were 0.
    doubt = 0.5 * np.sqrt(np.sum(2.0 * (weight * explained) ** 2, axis=0))
    square = (excess + PRIOR_SQUARE * doubt) / np.maximum(information + doubt, 1e-30)
    return np.asarray(np.maximum(square, 0.0))


@jit()
def _smooth_rows(
    expected: Floats,
    square: Floats,
    observed: Floats,
    variance: Floats,
    totals: Floats,
    smoothed: Floats,
    spread: Floats,
) -> None:
    """Run a Kalman filter and a Rauch-Tung-Striebel smoother along the cumulative counts in each row.

    Args:
        expected: (rows, sizes) The expected increments mu.
        square: (sizes,) The values of h^2. An increment has variance mu + h^2 mu^2.
        observed: (rows, sizes - 1) The noisy cumulative counts.
        variance: (rows, sizes - 1) The variances of the noise.
        totals: (rows,) The last cumulative counts, which are exact.
        smoothed: (rows, sizes) The output array for the estimates.
        spread: (rows, sizes) The output array for the variances of the estimates.
    """
    rows, size = expected.shape
    filtered = np.empty(size)
    filtered_variance = np.empty(size)
    predicted = np.empty(size)
    predicted_variance = np.empty(size)
    for row in range(rows):
        # The mean and variance of the current cumulative count, given the observations so far.
        m, p = 0.0, 0.0
        for s in range(size):
            mu = expected[row, s]
            m += mu
            # Adding 1e-9 avoids a division by zero for sizes that are expected to be empty.
            p += mu + square[s] * mu * mu + 1e-9
            predicted[s], predicted_variance[s] = m, p
            if s < size - 1:
                gain = p / (p + variance[row, s])
                m += gain * (observed[row, s] - m)
                p *= 1.0 - gain
            else:
                # The last cumulative count is the region's total, which is exact.
                m, p = totals[row], 0.0
            filtered[s], filtered_variance[s] = m, p
        smoothed[row, size - 1] = totals[row]
        spread[row, size - 1] = 0.0
        # Backward pass: correct each estimate by means of the next one's smoothed estimate.
        for s in range(size - 2, -1, -1):
            gain = filtered_variance[s] / predicted_variance[s + 1]
            smoothed[row, s] = filtered[s] + gain * (smoothed[row, s + 1] - predicted[s + 1])
            # Rounding errors could make the variance negative.
            spread[row, s] = max(
                0.0, filtered_variance[s] + gain * gain * (spread[row, s + 1] - predicted_variance[s + 1])
            )


def _smooth_family(observed: Floats, variance: Floats, counts: Ints, totals: Ints, square: Floats) -> Floats:
    """Smooth the cumulative counts of a parent's children, and make them add up to the parent's released counts.

    Args:
        observed: (children, sizes - 1) The children's noisy cumulative counts.
        variance: (children, sizes - 1) The variances of the noise.
        counts: (sizes,) The parent's released counts.
        totals: (children,) The children's exact totals.
        square: (sizes,) The values of h^2 from :func:`heterogeneity`.

    Returns:
        A (children, sizes) array with continuous cumulative counts.
    """
    # If the parent has no groups of a size, neither have its children, so only the sizes in the parent's support are
    # smoothed.
    support = np.flatnonzero(counts)
    tops = totals.astype(np.float64)
    steps = np.zeros((len(totals), len(counts)))
    if len(support) <= 1:
        steps[:, support] = tops[:, None]
        return np.cumsum(steps, axis=1)
    bounds = support[:-1]
    observed_range = slice(int(support[0]), int(support[-1]))
    weight = 1.0 / variance[:, observed_range]
    # Between two sizes of the support, cumulative counts are constant, so the observations there are pooled.
    precision = np.add.reduceat(weight, bounds - bounds[0], axis=1)
    pooled = np.add.reduceat(weight * observed[:, observed_range], bounds - bounds[0], axis=1) / precision
    expected = tops[:, None] * (counts[support] / counts.sum())[None, :]
    target = np.cumsum(counts[support])[:-1].astype(np.float64)
    continuous = np.empty_like(expected)
    spread = np.empty_like(expected)
    h2 = np.ascontiguousarray(square[support])
    _smooth_rows(expected, h2, pooled, 1.0 / precision, tops, continuous, spread)
    # The correction by which children add up to their parent is divided in proportion to their variances.
    loose = np.maximum(spread[:, :-1], 1e-6)
    correction_share = loose / loose.sum(axis=0)
    pull = 1.0 / loose
    smooth = np.ascontiguousarray(continuous[:, :-1])
    summed = smooth + correction_share * (target - smooth.sum(axis=0))
    rising = np.empty_like(smooth)
    equal_weights = np.ones(smooth.shape[1])
    isotonic_floats(summed.copy(), high=tops, weights=equal_weights, fitted=rising)
    dual_sum = np.zeros_like(smooth)
    dual_rise = np.zeros_like(smooth)
    # ADMM with two constraints: the children add up to their parent (summed), and each child is non-decreasing
    # (rising).
    for _ in range(_MAX_SWEEPS):
        # Each constraint acts like another observation with precision `pull`, so the quadratic step of ADMM is another
        # run of the smoother.
        pulled = precision + 2.0 * pull
        point = (precision * pooled + pull * (summed - dual_sum + rising - dual_rise)) / pulled
        _smooth_rows(expected, h2, point, 1.0 / pulled, tops, continuous, spread)
        smooth = continuous[:, :-1]
        # Over-relaxation by a factor of 1.5, as is usual for ADMM.
        ahead = 1.5 * smooth
        relaxed_sum = ahead - 0.5 * summed + dual_sum
        relaxed_rise = ahead - 0.5 * rising + dual_rise
        summed = relaxed_sum + correction_share * (target - relaxed_sum.sum(axis=0))
        isotonic_floats(relaxed_rise, high=tops, weights=equal_weights, fitted=rising)
        dual_sum = relaxed_sum - summed
        dual_rise = relaxed_rise - rising
        # A tenth of a group is accurate enough, because error diffusion rounds to whole groups afterwards.
        if max(np.abs(smooth - summed).max(), np.abs(smooth - rising).max()) < 0.1 or not clock().left:
            break
    # The values that add up are returned, although they may decrease slightly. `deal` repairs this, because it never
    # lets a child's cumulative count decrease.
    steps[:, support] = np.diff(np.concatenate([np.zeros((len(tops), 1)), summed, tops[:, None]], axis=1), axis=1)
    return np.cumsum(steps, axis=1)


def smooth_root(estimates: Floats, spreads: Floats, totals: Ints) -> Floats:
    """Estimate the root's cumulative counts, using averages over nearby sizes as the prior.

    The root has no parent that could serve as its prior, so its own isotonic fit is used instead. Where groups are
    rare, this fit concentrates them in a few sizes, so its counts are averaged over sizes within a relative distance of
    `_NEAR_SHARE`. These averages are the expected increments mu of the random walk. Small sizes have no neighbours
    within this distance and are estimated from the observations alone.

    Args:
        estimates: (1, sizes - 1) The noisy cumulative counts.
        spreads: (1, sizes - 1) The variances of ``estimates``.
        totals: (1,) The exact total.

    Returns:
        A (1, sizes) array with non-decreasing continuous cumulative counts.
    """
    rows, size = estimates.shape
    tops = totals.astype(np.float64)
    if not size:
        return tops[:, None]
    fit = np.empty((rows, size))
    isotonic_floats(np.ascontiguousarray(estimates), high=tops, weights=1.0 / spreads[0], fitted=fit)
    sums = np.concatenate([np.zeros((rows, 1)), fit, tops[:, None]], axis=1)
    size_index = np.arange(size + 1)
    # Index i belongs to size i + 1, which is averaged with `reach` sizes on either side.
    reach = ((size_index + 1) * _NEAR_SHARE).astype(np.int64)
    begin, end = np.maximum(size_index - reach, 0), np.minimum(size_index + reach, size)
    # The mean count over the indices from begin to end, computed from differences of cumulative counts.
    expected = (sums[:, end + 1] - sums[:, begin]) / (end - begin + 1)
    # Without neighbours, the prior is so wide that it has practically no influence.
    square = np.where(reach > 0, _ROOT_SQUARE, 1e6)
    continuous = np.empty((rows, size + 1))
    spread = np.empty_like(continuous)
    _smooth_rows(expected, square, np.ascontiguousarray(estimates), spreads, tops, continuous, spread)
    rising = np.empty_like(continuous)
    # The smoother does not keep counts non-negative.
    isotonic_floats(continuous, high=tops, weights=np.ones(size + 1), fitted=rising)
    return rising


def smooth_down(
    tree: Tree,
    noisy: Sequence[Ints],
    *,
    noise: Sequence[Noise],
    totals: Sequence[Ints],
) -> list[Ints]:
    """Fit consistent non-negative integer counts with given totals, using each region as the prior for its children.

    Unlike Model 2 (:mod:`.chain`), which uses only the noisy values, this assumes that regions are similar to their
    parent.

    Args:
        tree: The region tree.
        noisy: For each level, a (regions, sizes - 1) array with the noisy cumulative counts of all sizes except the
            last.
        noise: The moments of the noise on one value, for each level.
        totals: For each level, a (regions,) array with the exact numbers of groups.

    Returns:
        For each level, a (regions, sizes) array with the counts.
    """
    pooled = pool_upwards(tree, noisy, noise)
    size = pooled[0].mean.shape[1]
    spreads = [np.repeat(level.variance, size, axis=1) for level in pooled]
    # The root has no parent. All further levels use the integers released on the level above. The root's cumulative
    # counts are non-decreasing, which rounding by floor(x + 0.5) preserves, so that no count is negative.
    root = np.floor(smooth_root(pooled[0].mean, spreads[0], totals[0]) + 0.5)
    counts: list[Ints] = [np.diff(root, axis=1, prepend=0.0).astype(np.int64)]
    for level, start in enumerate(tree.start):
        parent = tree.parents(level + 1)
        # The maximum avoids a division by zero for regions without groups, whose shares are 0.
        shares = counts[level] / np.maximum(1, totals[level])[:, None]
        expected = totals[level + 1][:, None] * shares[parent]
        estimated = increments(pooled[level + 1], exactly(totals[level + 1]))
        square = heterogeneity(estimated.mean, estimated.variance, expected)
        children = np.empty((tree.widths[level + 1], size + 1), np.int64)
        for region in range(tree.widths[level]):
            siblings = slice(int(start[region]), int(start[region + 1]))
            parent_counts, tops = counts[level][region], totals[level + 1][siblings]
            # An only child has its parent's counts.
            if len(tops) == 1:
                children[siblings] = parent_counts
            else:
                continuous = _smooth_family(
                    pooled[level + 1].mean[siblings], spreads[level + 1][siblings], parent_counts, tops, square
                )
                children[siblings] = deal(continuous, parent_counts, tops)
        counts.append(children)
    return counts
