"""Cumulative counts with strength borrowed from the parent region, level by level.

Model 2 does not use that regions resemble their parent. Let a child have G_c groups (public) in a parent whose counts
n_s are already released. Then G_c n_s / G_p groups of size s are to be expected, with variance mu_s + h_s^2 mu_s^2. The
first term is chance; the heterogeneity h_s follows from all regions of the level together, noise subtracted. Each
child's noisy cumulative counts are then observations of a random walk with those increments, and the best linear
estimate is a Kalman filter and its smoother along the sizes, O(N). ADMM makes the children of one parent add up to it
and keeps each non-decreasing; error diffusion makes integers of it.

First every region's noisy values are pooled with those of its descendants by inverse variance (the
upward pass of tree least squares, no constraint, so no bias). All of this is post-processing: it
reads noisy values, released counts and public totals alone.
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


PRIOR_SQUARE = 0.02  # h^2 where the data say nothing: counties differ by about 14 %
_MAX_SWEEPS = 40
_NEAR_SHARE = 0.1
_ROOT_SQUARE = 0.03


def heterogeneity(counts: Floats, noise: Floats, expected: Floats) -> Floats:
    """Estimate h_s^2: by how much children differ from what their parent's shares would give them.

    The mean square of (count - mu) less what noise and chance explain, divided by mu^2, weighted
    by information; half a standard error's worth of the prior keeps sizes with little data calm.

    Args:
        counts: (R, N) estimated counts.
        noise: (R, N) variances of their errors.
        expected: (R, N) mu.
    """
    explained = noise + expected
    weight = expected**2 / np.maximum(explained + PRIOR_SQUARE * expected**2, 1e-30) ** 2
    excess = np.sum(weight * ((counts - expected) ** 2 - explained), axis=0)
    information = np.sum(weight * expected**2, axis=0)
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
    """Kalman filter and Rauch-Tung-Striebel smoother of each row's cumulative counts.

    ``expected`` (K, S): mean of each increment; ``square`` (S,): h^2; ``observed``, ``variance``
    (K, S - 1): observations of the cumulative values; the last cumulative value is the total.
    """
    rows, size = expected.shape
    mean = np.empty(size)
    mass = np.empty(size)
    guess = np.empty(size)
    guess_mass = np.empty(size)
    for row in range(rows):
        m, p = 0.0, 0.0
        for s in range(size):
            mu = expected[row, s]
            m += mu
            p += mu + square[s] * mu * mu + 1e-9
            guess[s], guess_mass[s] = m, p
            if s < size - 1:
                gain = p / (p + variance[row, s])
                m += gain * (observed[row, s] - m)
                p *= 1.0 - gain
            else:
                m, p = totals[row], 0.0
            mean[s], mass[s] = m, p
        smoothed[row, size - 1] = totals[row]
        spread[row, size - 1] = 0.0
        for s in range(size - 2, -1, -1):
            gain = mass[s] / guess_mass[s + 1]
            smoothed[row, s] = mean[s] + gain * (smoothed[row, s + 1] - guess[s + 1])
            spread[row, s] = max(0.0, mass[s] + gain * gain * (spread[row, s + 1] - guess_mass[s + 1]))


def _smooth_family(observed: Floats, variance: Floats, counts: Ints, totals: Ints, square: Floats) -> Floats:
    """Smooth the cumulative courses (K, N) of one parent's children, so that they add up to its released ``counts``."""
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
    precision = np.add.reduceat(weight, bounds - bounds[0], axis=1)  # sizes between are empty: same value
    pooled = np.add.reduceat(weight * observed[:, observed_range], bounds - bounds[0], axis=1) / precision
    expected = tops[:, None] * (counts[support] / counts.sum())[None, :]
    target = np.cumsum(counts[support])[:-1].astype(np.float64)
    course = np.empty_like(expected)
    spread = np.empty_like(expected)
    h2 = np.ascontiguousarray(square[support])
    _smooth_rows(expected, h2, pooled, 1.0 / precision, tops, course, spread)
    loose = np.maximum(spread[:, :-1], 1e-6)
    correction_share = loose / loose.sum(axis=0)
    pull = 1.0 / loose
    smooth = np.ascontiguousarray(course[:, :-1])
    summed = smooth + correction_share * (target - smooth.sum(axis=0))
    rising = np.empty_like(smooth)
    equal_weights = np.ones(smooth.shape[1])
    isotonic_floats(summed.copy(), high=tops, weights=equal_weights, fitted=rising)
    dual_sum = np.zeros_like(smooth)
    dual_rise = np.zeros_like(smooth)
    # ADMM with two constraints: children add up to the parent (summed), and each is non-decreasing (rising).
    for _ in range(_MAX_SWEEPS):
        pulled = precision + 2.0 * pull
        point = (precision * pooled + pull * (summed - dual_sum + rising - dual_rise)) / pulled
        _smooth_rows(expected, h2, point, 1.0 / pulled, tops, course, spread)
        smooth = course[:, :-1]
        ahead = 1.5 * smooth
        relaxed_sum = ahead - 0.5 * summed + dual_sum
        relaxed_rise = ahead - 0.5 * rising + dual_rise
        summed = relaxed_sum + correction_share * (target - relaxed_sum.sum(axis=0))
        isotonic_floats(relaxed_rise, high=tops, weights=equal_weights, fitted=rising)
        dual_sum = relaxed_sum - summed
        dual_rise = relaxed_rise - rising
        if max(np.abs(smooth - summed).max(), np.abs(smooth - rising).max()) < 0.1 or not clock().left:
            break
    steps[:, support] = np.diff(np.concatenate([np.zeros((len(tops), 1)), summed, tops[:, None]], axis=1), axis=1)
    return np.cumsum(steps, axis=1)


def smooth_root(estimates: Floats, spreads: Floats, totals: Ints) -> Floats:
    """Estimate cumulative counts (1, N) of a region without a parent to borrow from: it borrows from near sizes.

    An isotonic fit puts a thin tail's groups on few sizes, with nothing between. Its counts averaged
    over sizes within ``_NEAR_SHARE`` (relative) give the means mu of the random walk; sizes too small to
    have neighbours are left to the observations alone.
    """
    rows, size = estimates.shape
    tops = totals.astype(np.float64)
    if not size:
        return tops[:, None]
    fit = np.empty((rows, size))
    isotonic_floats(np.ascontiguousarray(estimates), high=tops, weights=1.0 / spreads[0], fitted=fit)
    sums = np.concatenate([np.zeros((rows, 1)), fit, tops[:, None]], axis=1)
    size_index = np.arange(size + 1)
    reach = ((size_index + 1) * _NEAR_SHARE).astype(np.int64)
    begin, end = np.maximum(size_index - reach, 0), np.minimum(size_index + reach, size)
    expected = (sums[:, end + 1] - sums[:, begin]) / (end - begin + 1)
    square = np.where(reach > 0, _ROOT_SQUARE, 1e6)
    course = np.empty((rows, size + 1))
    spread = np.empty_like(course)
    _smooth_rows(expected, square, np.ascontiguousarray(estimates), spreads, tops, course, spread)
    rising = np.empty_like(course)
    isotonic_floats(course, high=tops, weights=np.ones(size + 1), fitted=rising)
    return rising


def smooth_down(
    tree: Tree,
    noisy: Sequence[Ints],
    *,
    noise: Sequence[Noise],
    totals: Sequence[Ints],
) -> list[Ints]:
    """Find consistent non-negative integer counts with exact region totals; each level borrows strength from above.

    Args:
        tree: the hierarchy.
        noisy: for each level (R_l, N - 1) noisy cumulative counts of sizes 1 to N - 1.
        noise: for each level that of its values.
        totals: for each level (R_l,) exact numbers of groups.

    Returns:
        Counts for each level (R_l, N).
    """
    pooled = pool_upwards(tree, noisy, noise)
    size = pooled[0].mean.shape[1]
    spreads = [np.repeat(level.variance, size, axis=1) for level in pooled]
    # The root has no parent to borrow from; each further level borrows from the integers released above it.
    root = np.floor(smooth_root(pooled[0].mean, spreads[0], totals[0]) + 0.5)
    counts: list[Ints] = [np.diff(root, axis=1, prepend=0.0).astype(np.int64)]
    for level, start in enumerate(tree.start):
        parent = tree.parents(level + 1)
        shares = counts[level] / np.maximum(1, totals[level])[:, None]
        expected = totals[level + 1][:, None] * shares[parent]
        estimated = increments(pooled[level + 1], exactly(totals[level + 1]))
        square = heterogeneity(estimated.mean, estimated.variance, expected)
        children = np.empty((tree.widths[level + 1], size + 1), np.int64)
        for region in range(tree.widths[level]):
            siblings = slice(int(start[region]), int(start[region + 1]))
            parent_counts, tops = counts[level][region], totals[level + 1][siblings]
            if len(tops) == 1:
                children[siblings] = parent_counts
            else:
                course = _smooth_family(
                    pooled[level + 1].mean[siblings], spreads[level + 1][siblings], parent_counts, tops, square
                )
                children[siblings] = deal(course, parent_counts, tops)
        counts.append(children)
    return counts
