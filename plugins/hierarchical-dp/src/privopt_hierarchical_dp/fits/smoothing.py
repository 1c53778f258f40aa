"""Fit cumulative counts level by level, with the parent region's distribution as a prior (borrowing strength).

Model 2 (:mod:`.chain`) ignores that regions resemble their parent. Take a child with a public number G_c in a parent
whose counts n_s are already released. Its expected number of groups of size s is mu_s = G_c n_s / G_p, with variance
mu_s + h_s^2 mu_s^2. The first term is chance. The heterogeneity h_s is estimated from all regions of the level
together, after the noise is subtracted. Each child's noisy cumulative counts are then observations of a random walk
with these increments. The best linear estimate is a Kalman filter and its smoother along the sizes, in O(N). ADMM makes
the children of a parent add up to it and keeps each child non-decreasing. Error diffusion rounds the result to
integers.

First, every region's noisy values are pooled with those of its descendants by inverse variance. This is the upward pass
of tree least squares; it has no constraint, so no bias. All of this is post-processing: it reads only noisy values,
released counts and public totals.
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
"""The value of h^2 if the data carry no information. It is the square of about 14 %, by which counties differ."""
_MAX_SWEEPS = 40
"""The largest number of ADMM steps for the children of one parent."""
_NEAR_SHARE = 0.1
"""At the root, sizes that differ by at most this share are averaged."""
_ROOT_SQUARE = 0.03
"""The value of h^2 at the root, for differences from the averages over nearby sizes."""


def heterogeneity(counts: Floats, noise: Floats, expected: Floats) -> Floats:
    """Return estimates of h_s^2, the relative variance of children's counts around those their parent predicts.

    The estimate is the information-weighted mean of ((count - mu)^2 less the variances of noise and chance) / mu^2. The
    prior `PRIOR_SQUARE` has the weight of half a standard error, which keeps the estimates stable for sizes with little
    data.

    Args:
        counts: (R, N) Estimated counts.
        noise: (R, N) Variances of the errors of the counts.
        expected: (R, N) Expected counts mu.

    Returns:
        (N,) h^2, at least 0.
    """
    explained = noise + expected
    # Each region's estimate of h^2 is ((count - mu)^2 - explained) / mu^2. Its variance is mu^-4 times twice the square
    # of the count's variance. `weight` is the inverse of that variance divided by mu^2, up to a factor of 2.
    weight = expected**2 / np.maximum(explained + PRIOR_SQUARE * expected**2, 1e-30) ** 2
    excess = np.sum(weight * ((counts - expected) ** 2 - explained), axis=0)
    information = np.sum(weight * expected**2, axis=0)
    # Half a standard error of `excess`: even if h^2 were 0, noise and chance alone would move it by about twice this.
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
    """Run a Kalman filter and a Rauch-Tung-Striebel smoother along the cumulative counts of each row.

    Args:
        expected: (K, S) The filtered mu of each increment.
        square: (S,) h^2; an increment has the variance mu + h^2 mu^2.
        observed: (K, S - 1) The noisy cumulative values.
        variance: (K, S - 1) The variances of the observed values.
        totals: (K,) The last cumulative value, which is exact.
        smoothed: (K, S) Receives the estimates.
        spread: (K, S) Receives the variances of the estimates.
    """
    rows, size = expected.shape
    filtered = np.empty(size)
    filtered_variance = np.empty(size)
    predicted = np.empty(size)
    predicted_variance = np.empty(size)
    for row in range(rows):
        # The mean and variance of the cumulative count so far, given the observations so far.
        m, p = 0.0, 0.0
        for s in range(size):
            mu = expected[row, s]
            m += mu
            # The 1e-9 keeps gains defined for sizes that are expected to be empty.
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
        # Backwards: each estimate is corrected by what the later observations imply for the next one.
        for s in range(size - 2, -1, -1):
            gain = filtered_variance[s] / predicted_variance[s + 1]
            smoothed[row, s] = filtered[s] + gain * (smoothed[row, s + 1] - predicted[s + 1])
            # The difference can fall below 0 by rounding.
            spread[row, s] = max(
                0.0, filtered_variance[s] + gain * gain * (spread[row, s + 1] - predicted_variance[s + 1])
            )


def _smooth_family(observed: Floats, variance: Floats, counts: Ints, totals: Ints, square: Floats) -> Floats:
    """Smooth the cumulative counts of a parent's children so that they add up to its released counts.

    Args:
        observed: (K, N - 1) The children's noisy cumulative counts.
        variance: (K, N - 1) The variances of the cumulative counts.
        counts: (N,) The parent's released counts.
        totals: (K,) The children's exact totals.
        square: (N,) h^2, from :func:`heterogeneity`.

    Returns:
        (K, N) continuous cumulative counts.
    """
    # Sizes without groups in the parent have none in its children, so only the support is smoothed.
    support = np.flatnonzero(counts)
    tops = totals.astype(np.float64)
    steps = np.zeros((len(totals), len(counts)))
    if len(support) <= 1:
        steps[:, support] = tops[:, None]
        return np.cumsum(steps, axis=1)
    bounds = support[:-1]
    observed_range = slice(int(support[0]), int(support[-1]))
    weight = 1.0 / variance[:, observed_range]
    # Between two sizes of the support nothing is added, so these observations are of the same value and are pooled.
    precision = np.add.reduceat(weight, bounds - bounds[0], axis=1)
    pooled = np.add.reduceat(weight * observed[:, observed_range], bounds - bounds[0], axis=1) / precision
    expected = tops[:, None] * (counts[support] / counts.sum())[None, :]
    target = np.cumsum(counts[support])[:-1].astype(np.float64)
    continuous = np.empty_like(expected)
    spread = np.empty_like(expected)
    h2 = np.ascontiguousarray(square[support])
    _smooth_rows(expected, h2, pooled, 1.0 / precision, tops, continuous, spread)
    # The correction that makes children add up to their parent is divided in proportion to their variances.
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
    # ADMM with two constraints: children add up to the parent (summed), and each is non-decreasing (rising).
    for _ in range(_MAX_SWEEPS):
        # Each of the two constraint sets acts as one more observation of precision `pull`, so the quadratic step of
        # ADMM is the smoother once more.
        pulled = precision + 2.0 * pull
        point = (precision * pooled + pull * (summed - dual_sum + rising - dual_rise)) / pulled
        _smooth_rows(expected, h2, point, 1.0 / pulled, tops, continuous, spread)
        smooth = continuous[:, :-1]
        # Over-relaxation by 1.5, as is usual for ADMM.
        ahead = 1.5 * smooth
        relaxed_sum = ahead - 0.5 * summed + dual_sum
        relaxed_rise = ahead - 0.5 * rising + dual_rise
        summed = relaxed_sum + correction_share * (target - relaxed_sum.sum(axis=0))
        isotonic_floats(relaxed_rise, high=tops, weights=equal_weights, fitted=rising)
        dual_sum = relaxed_sum - summed
        dual_rise = relaxed_rise - rising
        # A tenth of a group is close enough: error diffusion rounds to whole groups next.
        if max(np.abs(smooth - summed).max(), np.abs(smooth - rising).max()) < 0.1 or not clock().left:
            break
    # The values that add up are used, though they may decrease a little: `deal` never lets a child's cumulative count
    # decrease.
    steps[:, support] = np.diff(np.concatenate([np.zeros((len(tops), 1)), summed, tops[:, None]], axis=1), axis=1)
    return np.cumsum(steps, axis=1)


def smooth_root(estimates: Floats, spreads: Floats, totals: Ints) -> Floats:
    """Estimate the root's cumulative counts, with nearby sizes as a prior, because the root has no parent.

    An isotonic fit puts the groups of a thin tail on a few sizes, with no groups between these sizes. Therefore its
    counts are averaged over sizes within a relative distance of `_NEAR_SHARE`; the averages are the means mu of the
    random walk. Sizes too small to have such neighbours are estimated from the observations alone.

    Args:
        estimates: (1, N - 1) Noisy cumulative counts.
        spreads: (1, N - 1) The variances of the estimates.
        totals: (1,) The exact total.

    Returns:
        (1, N) non-decreasing continuous cumulative counts.
    """
    rows, size = estimates.shape
    tops = totals.astype(np.float64)
    if not size:
        return tops[:, None]
    fit = np.empty((rows, size))
    isotonic_floats(np.ascontiguousarray(estimates), high=tops, weights=1.0 / spreads[0], fitted=fit)
    sums = np.concatenate([np.zeros((rows, 1)), fit, tops[:, None]], axis=1)
    size_index = np.arange(size + 1)
    # Index i is size i + 1, which is averaged with `reach` sizes on either side.
    reach = ((size_index + 1) * _NEAR_SHARE).astype(np.int64)
    begin, end = np.maximum(size_index - reach, 0), np.minimum(size_index + reach, size)
    # The mean count over sizes begin to end, from differences of cumulative counts.
    expected = (sums[:, end + 1] - sums[:, begin]) / (end - begin + 1)
    # Without neighbours the prior is so wide that the observations alone count.
    square = np.where(reach > 0, _ROOT_SQUARE, 1e6)
    continuous = np.empty((rows, size + 1))
    spread = np.empty_like(continuous)
    _smooth_rows(expected, square, np.ascontiguousarray(estimates), spreads, tops, continuous, spread)
    rising = np.empty_like(continuous)
    # The smoother does not ensure that counts are non-negative.
    isotonic_floats(continuous, high=tops, weights=np.ones(size + 1), fitted=rising)
    return rising


def smooth_down(
    tree: Tree,
    noisy: Sequence[Ints],
    *,
    noise: Sequence[Noise],
    totals: Sequence[Ints],
) -> list[Ints]:
    """Return consistent non-negative integer counts with exact totals, using each parent as its children's prior.

    Unlike Model 2 (:mod:`.chain`), which only fits the noisy values, this assumes that regions resemble their parent.

    Args:
        tree: The hierarchy.
        noisy: The (R_l, N - 1) noisy cumulative counts of sizes 1 to N - 1 on each level.
        noise: The noise on one value of each level.
        totals: The exact numbers of groups (R_l,) of each level.

    Returns:
        The (R_l, N) counts on each level.
    """
    pooled = pool_upwards(tree, noisy, noise)
    size = pooled[0].mean.shape[1]
    spreads = [np.repeat(level.variance, size, axis=1) for level in pooled]
    # The root has no parent to borrow from; each further level borrows from the integers released above it. The root's
    # cumulative counts do not decrease, and rounding them by floor(x + 0.5) keeps this, so no count is negative.
    root = np.floor(smooth_root(pooled[0].mean, spreads[0], totals[0]) + 0.5)
    counts: list[Ints] = [np.diff(root, axis=1, prepend=0.0).astype(np.int64)]
    for level, start in enumerate(tree.start):
        parent = tree.parents(level + 1)
        # A region without groups has only zero counts, so its shares are 0 whatever they are divided by.
        shares = counts[level] / np.maximum(1, totals[level])[:, None]
        expected = totals[level + 1][:, None] * shares[parent]
        estimated = increments(pooled[level + 1], exactly(totals[level + 1]))
        square = heterogeneity(estimated.mean, estimated.variance, expected)
        children = np.empty((tree.widths[level + 1], size + 1), np.int64)
        for region in range(tree.widths[level]):
            siblings = slice(int(start[region]), int(start[region + 1]))
            parent_counts, tops = counts[level][region], totals[level + 1][siblings]
            # An only child has the counts of its parent.
            if len(tops) == 1:
                children[siblings] = parent_counts
            else:
                continuous = _smooth_family(
                    pooled[level + 1].mean[siblings], spreads[level + 1][siblings], parent_counts, tops, square
                )
                children[siblings] = deal(continuous, parent_counts, tops)
        counts.append(children)
    return counts
