"""Generalised least squares over the tree: unbiased estimates from noisy values alone, and intervals for counts.

The method is that of the noisy measurement files of the 2020 census (Cumings-Menon et al., "Full-information estimation
for hierarchical data", 2024). A region's own value, the values of its descendants and those of the rest of the tree are
independent, so one pass up and one pass down weight them by inverse variance. The only constraint is that values add
up, so estimates are unbiased, and the variance and fourth cumulant of their errors are known exactly. Intervals use the
quantile of a difference of two gamma variates with the same kurtosis. This is the Laplace quantile for a single
measurement, and the normal quantile where many are pooled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
from attrs import Factory, evolve, field, frozen

from privopt.arrays import Floats, Ints
from privopt_hierarchical_dp.tree import Tree

__all__ = [
    "SLACK_GROUPS",
    "UNMEASURED",
    "Ends",
    "Estimate",
    "NearestSums",
    "Noise",
    "Weights",
    "ends_of",
    "exactly",
    "increments",
    "intervals",
    "least_squares",
    "least_squares_below",
    "mean_absolute",
    "pool_upwards",
    "quantile",
]


Weights: TypeAlias = Sequence[float] | Sequence[Floats]
"""The weight of each level, one number for all values or (S,) weights."""


@frozen(kw_only=True)
class Noise:
    """The moments of the noise on one value.

    Attributes:
        variance: The variance, above 0.
        fourth: The fourth cumulant (3 variance^2 for Laplace noise, 0 for Gaussian noise).
    """

    variance: float | Floats
    fourth: float | Floats = 0.0


UNMEASURED: Final = Noise(variance=1e100)
"""The noise of values that carry no information. Any other variance is negligible next to it, and sums stay finite."""


@frozen(kw_only=True, eq=False)
class Estimate:
    """Unbiased estimates for one level: R regions with S values each.

    Attributes:
        mean: (R, S) The estimates.
        variance: (R, S) The variances of the errors, or (R, 1) if they are equal for all S values.
        fourth: The fourth cumulants of the errors, with the shape of ``variance``.
        weighed: The variances whose inverses weight the estimates, with the shape of ``variance``. In least squares
            these are the variances of the errors.
    """

    mean: Floats
    variance: Floats
    fourth: Floats
    weighed: Floats = field(default=Factory(lambda self: self.variance, takes_self=True))

    def combine_with(self, other: Estimate) -> Estimate:
        """Return the average with an independent estimate of the same values, weighted by inverse variance.

        An estimate of variance 0 is exact, so it gets all of the weight.
        """
        # Shares follow `weighed`, errors follow the true variances: with other weights than 1 / variance the fit is not
        # the best one, but its errors are still exact. The floor avoids 0 / 0 for two exact values.
        own_share = other.weighed / np.maximum(self.weighed + other.weighed, 1e-300)
        other_share = 1.0 - own_share
        return Estimate(
            mean=own_share * self.mean + other_share * other.mean,
            variance=own_share**2 * self.variance + other_share**2 * other.variance,
            fourth=own_share**4 * self.fourth + other_share**4 * other.fourth,
            weighed=own_share * self.weighed,
        )

    def map_moments(self, change: Callable[[Floats], Floats]) -> Estimate:
        """Return the estimate with a function, such as a sum over regions, applied to each of its four arrays."""
        return Estimate(
            mean=change(self.mean),
            variance=change(self.variance),
            fourth=change(self.fourth),
            weighed=change(self.weighed),
        )

    def sum_children(self, start: Ints, times: Floats | None = None) -> Estimate:
        """Return the sums over the children of each region. Errors of different children are independent.

        Args:
            start: The index of each parent's first child, and finally the number of all children.
            times: (R, 1) The number of identical siblings that each region represents, itself included. None if each
                region represents itself alone.
        """
        return self.map_moments(
            lambda moments: np.add.reduceat(moments if times is None else times * moments, start[:-1], axis=0)
        )


def _to_estimate(values: Ints | Floats, noise: Noise, weight: float | Floats | None = None) -> Estimate:
    """Return estimates from noisy values.

    Args:
        values: (R, S) noisy values.
        noise: The noise on one value.
        weight: The weight of a value, or (S,) weights. None means inverse variance.
    """
    # All values of a region have the same moments, so these have the shape (R, 1).
    column = np.ones((len(values), 1))
    return Estimate(
        mean=np.asarray(values, dtype=np.float64),
        variance=noise.variance * column,
        fourth=noise.fourth * column,
        # Very large instead of infinite for a weight of 0, so that sums stay finite.
        weighed=(noise.variance if weight is None else 1.0 / np.maximum(weight, 1e-100)) * column,
    )


def pool_upwards(tree: Tree, noisy: Sequence[Ints] | Sequence[Floats], noise: Sequence[Noise]) -> list[Estimate]:
    """Return an estimate for each region from its own noisy values and those of its descendants.

    Args:
        tree: The hierarchy.
        noisy: The (R_l, S) noisy values on each level.
        noise: The noise on one value of each level.

    Returns:
        The estimates of each level, which do not yet add up over the tree.
    """
    return _pool_levels(tree, [_to_estimate(*level) for level in zip([*noisy], noise, strict=True)])


def _pool_levels(
    tree: Tree,
    levels: Sequence[Estimate],
    is_isolated: Sequence[bool] | None = None,
    times: Sequence[Floats] | None = None,
) -> list[Estimate]:
    """Combine the estimate of each region with the sum of its children's estimates, from the leaves up.

    Args:
        tree: The hierarchy.
        levels: The estimates of each level from its own values.
        is_isolated: Whether each level ignores the levels below it. None if no level does.
        times: For each level, (R_l, 1) the number of identical siblings that each region represents, itself included.
            None if each region represents itself alone.
    """
    # A region's own value and the sum of its children's estimates have independent errors.
    pooled = [levels[-1]]
    for level, start in reversed(list(enumerate(tree.start))):
        parent_level = levels[level]
        pooled.insert(
            0,
            parent_level
            if is_isolated and is_isolated[level]
            else parent_level.combine_with(pooled[0].sum_children(start, None if times is None else times[level + 1])),
        )
    return pooled


def least_squares(
    tree: Tree,
    noisy: Sequence[Ints] | Sequence[Floats],
    noise: Sequence[Noise],
    *,
    root: Ints | Floats | None = None,
    weights: Weights | None = None,
    down: bool = False,
    times: Sequence[Floats] | None = None,
) -> list[Estimate]:
    """Return an estimate for each region from the noisy values of the whole tree, by one pass up and one down.

    Args:
        tree: The hierarchy.
        noisy: The (R_l, S) noisy values on each level.
        noise: The noise on one value of each level.
        root: (S,) The root's values, if they are known exactly.
        weights: The weight of each level in the minimised sum of squares, a number or (S,). By default 1 / variance.
        down: Whether each level is fitted to the level above it, which remains unchanged (``top-down``).
        times: For each level, (R_l, 1) the number of identical siblings that each region represents, itself included.
            None if each region represents itself alone.

    Returns:
        The (R_l, S) estimates on each level, which add up over the tree.
    """
    given_weights = [None] * tree.depth if weights is None else weights
    # [*noisy] is for the type checker, which would keep the two types of sequences apart.
    own_estimates = [_to_estimate(*level) for level in zip([*noisy], noise, given_weights, strict=True)]
    # Top-down fits a measured level without those below it. An unmeasured level has nothing but the sum of those.
    is_isolated = [down and level is not UNMEASURED for level in noise]
    pooled = _pool_levels(tree, own_estimates, is_isolated, times)
    # `outer` contains a level's estimates from everything but the descendants of each region.
    estimates, outer = [pooled[0]], own_estimates[0]
    if root is not None:
        outer = _to_estimate(root[None, :], Noise(variance=0.0))
        estimates = [outer]
    for level, start in enumerate(tree.start):
        inner, parent = pooled[level + 1], tree.parents(level + 1)
        if is_isolated[level]:
            # Weighed as exact, the level above stays as it is, whatever the children say.
            outer = evolve(estimates[-1], weighed=0.0 * estimates[-1].weighed)
        total = inner.sum_children(start, None if times is None else times[level + 1])
        # A child is its parent less its siblings. `total` includes the child itself, so the child's own mean is added
        # again, and its variance, which is independent of its siblings', is subtracted.
        outer_estimate = Estimate(
            mean=(outer.mean - total.mean)[parent] + inner.mean,
            variance=np.maximum((outer.variance + total.variance)[parent] - inner.variance, 0.0),
            fourth=np.maximum((outer.fourth + total.fourth)[parent] - inner.fourth, 0.0),
            weighed=np.maximum((outer.weighed + total.weighed)[parent] - inner.weighed, 0.0),
        )
        estimates.append(inner.combine_with(outer_estimate))
        # The next level's outer estimates: its own values and everything outside its subtree.
        outer = own_estimates[level + 1].combine_with(outer_estimate)
    return estimates


@frozen(kw_only=True, eq=False)
class NearestSums:
    """The projection of values onto consistent values, which add up over the tree, by weighted least squares.

    The result is that of `least_squares`, but no errors are computed, because a joint projection calls this hundreds of
    times.

    Attributes:
        tree: The hierarchy.
        own_weights: The weight of each region's value relative to the sum of its children, (R_l, 1) or (R_l, S), for
            each level except the leaves.
        child_shares: The share of its parent's correction that each region receives, (R_l, 1) or (R_l, S), for each
            level except the root.
    """

    tree: Tree
    own_weights: tuple[Floats, ...]
    child_shares: tuple[Floats, ...]

    @classmethod
    def of(cls, tree: Tree, weights: Weights) -> NearestSums:
        """Return the projection with the given weights.

        Args:
            tree: The hierarchy.
            weights: The weight of each level, a number or (S,). A level of weight 0 has no influence.
        """
        level_own_weights: list[Floats] = []
        level_child_shares: list[Floats] = []
        variance = np.ones((tree.widths[-1], 1)) / np.maximum(weights[-1], 1e-100)
        for start, weight in zip(reversed(tree.start), reversed(weights[:-1]), strict=True):
            total = np.add.reduceat(variance, start[:-1], axis=0)
            level_child_shares.insert(0, variance / np.maximum(np.repeat(total, np.diff(start), axis=0), 1e-300))
            # Own value (1 / weight) and children's sum (`total`) have a mean of variance total / (1 + total * weight).
            precision = total * weight
            level_own_weights.insert(0, 1.0 - 1.0 / (1.0 + precision))
            variance = total / (1.0 + precision)
        return cls(tree=tree, own_weights=tuple(level_own_weights), child_shares=tuple(level_child_shares))

    def __call__(self, values: Sequence[Floats]) -> list[Floats]:
        """Return the consistent values nearest to the (R_l, S) given values on each level."""
        # Upwards, a region is the weighted mean of its own value and its children's sum. Corrections then go down.
        sums: list[Floats] = []
        fitted = [values[-1]]
        for start, own_weight, noisy in zip(
            reversed(self.tree.start), reversed(self.own_weights), values[-2::-1], strict=True
        ):
            sums.insert(0, np.add.reduceat(fitted[0], start[:-1], axis=0))
            fitted.insert(0, sums[0] + own_weight * (noisy - sums[0]))
        for level, (start, child_share) in enumerate(zip(self.tree.start, self.child_shares, strict=True)):
            corrections = np.repeat(fitted[level] - sums[level], np.diff(start), axis=0)
            fitted[level + 1] = fitted[level + 1] + child_share * corrections
        return fitted


def exactly(totals: Ints) -> Estimate:
    """Return (R, 1) estimates without error from exact (R,) totals."""
    # Variance 0: `combine_with` then lets no other estimate move it.
    return _to_estimate(totals[:, None], Noise(variance=0.0))


def increments(courses: Estimate, end: Estimate) -> Estimate:
    """Return (R, N) counts as differences of cumulative counts.

    Args:
        courses: (R, N - 1) Independent estimates of the cumulative counts of all sizes but the last.
        end: (R, 1) The last cumulative count, which is the region's total.
    """
    zeros, size = np.zeros((len(end.mean), 1)), courses.mean.shape[1]

    def both_ends(inner: Floats, last: Floats) -> Floats:
        """Return the (R, N) sum of a moment over the two cumulative counts whose difference is each count."""
        moments = np.concatenate([zeros, np.broadcast_to(inner, (len(zeros), size)), last], axis=1)
        return np.asarray(moments[:, 1:] + moments[:, :-1])

    # A count is the difference of two independent estimates, so variances and fourth cumulants add up. Below the first
    # size there is nothing, with variance 0.
    return Estimate(
        mean=np.diff(np.concatenate([courses.mean, end.mean], axis=1), axis=1, prepend=0.0),
        variance=both_ends(courses.variance, end.variance),
        fourth=both_ends(courses.fourth, end.fourth),
    )


@lru_cache(maxsize=8)
def _quantile_table(confidence: float) -> tuple[Floats, Floats]:
    """Return a table of two-sided quantiles of errors, in standard deviations, by kurtosis.

    An error is modelled as normal with a gamma-distributed variance, whose kurtosis follows from the inverse of the
    gamma distribution's shape: 0 is a normal error, and 1 a Laplace error.

    Returns:
        The grid of 1 / shape, and the quantiles.
    """
    from scipy.optimize import brentq
    from scipy.special import gammaincinv, ndtr, ndtri

    # The gamma distribution of the variance is approximated by 4,000 points of equal probability.
    points = (np.arange(4000) + 0.5) / 4000
    grid = np.linspace(0.0, 1.0, 41)
    quantiles = [float(-ndtri((1.0 - confidence) / 2.0))]
    for inverse_shape in grid[1:]:
        # The standard deviations of the mixed normal errors. Their mean variance is 1.
        spread = np.sqrt(gammaincinv(1.0 / inverse_shape, points) * inverse_shape)

        # The default argument binds this iteration's `spread`.
        def excess_probability(reach: float, spread: Floats = spread) -> float:
            """Return the probability that an error exceeds ``reach``, less the probability that is allowed."""
            return float(2.0 * ndtr(-reach / spread).mean() - (1.0 - confidence))

        quantiles.append(float(brentq(excess_probability, 0.0, 60.0)))
    return grid, np.array(quantiles)


def quantile(variance: Floats, fourth: Floats, confidence: float) -> Floats:
    """Return the half-widths of two-sided intervals for errors with given variances and fourth cumulants.

    Kurtosis above that of a Laplace variate is reduced to it.

    Args:
        variance: The variances.
        fourth: The fourth cumulants, with the shape of ``variance``.
        confidence: The probability that an error lies within the half-width.
    """
    # 1 / shape of the gamma variance: the ratio of the fourth cumulant to that of a Laplace error.
    inverse_shape = np.clip(fourth / np.maximum(3.0 * variance**2, 1e-300), 0.0, 1.0)
    return np.asarray(np.interp(inverse_shape, *_quantile_table(confidence)) * np.sqrt(variance))


def mean_absolute(error: Estimate) -> Floats:
    """Return the mean absolute errors of estimates, computed from their variances and fourth cumulants.

    Let a normal error have a variance that is gamma-distributed with shape k. Its mean absolute value is sqrt(2 / pi)
    Gamma(k + 1 / 2) / (Gamma(k) sqrt(k)) times its standard deviation: 0.707 for a Laplace error, and 0.798 if many
    errors are pooled. An error more peaked than a Laplace error is discrete, and is modelled as a multiple of a double
    geometric variate with variance v = 1 / (cosh(1 / scale) - 1). Let r be the fourth cumulant divided by 3 variance^2,
    which is 1 for Laplace and 1 + 1 / (3 v) here. The mean absolute value 1 / sinh(1 / scale) is then sqrt(v / (3 r -
    1)).
    """
    from scipy.special import gammaln

    ratio = error.fourth / np.maximum(3.0 * error.variance**2, 1e-300)
    # The shape of the gamma-distributed variance. If the ratio is near 0, the error is nearly normal.
    shape = 1.0 / np.clip(ratio, 1e-6, 1.0)
    gamma_factor = np.sqrt(2.0 / np.pi) * np.exp(gammaln(shape + 0.5) - gammaln(shape)) / np.sqrt(shape)
    # Above Laplace's ratio of 1 the error is treated as discrete. The tolerance keeps Laplace errors out of this
    # branch.
    factor = np.where(ratio > 1.0 + 1e-9, 1.0 / np.sqrt(np.maximum(3.0 * ratio - 1.0, 1.0)), gamma_factor)
    return np.asarray(np.sqrt(error.variance) * factor)


UNBOUNDED: Final = 1 << 62
"""The upper bound on counts if no total is known. It fits into 64 bits."""
SLACK_GROUPS: Final = 1e-6
"""The difference, in groups, up to which two interval ends count as equal, as machines round sums differently."""


@frozen(kw_only=True, eq=False)
class Ends:
    """The intervals of the true counts of one level, before their ends are rounded to whole numbers.

    Attributes:
        mean: (R, N) The estimates.
        reach: (R, 1) or (R, N) The half-widths for the required confidence.
        max_counts: (R, 1) Upper bounds on the counts: the region's total or, if it is not known, that of the nearest
            region above it. (1, 1) for the root's total, or for :data:`UNBOUNDED` if no total is known.
        released: (R, N) The released counts. Intervals are widened to contain them.
    """

    mean: Floats
    reach: Floats
    max_counts: Ints
    released: Ints

    def round_outwards(self, slack: float = 0.0) -> tuple[Ints, Ints]:
        """Return the lower and upper ends (R, N) as integers from 0 to the total, widened to contain released counts.

        Before rounding, ends are moved outwards by ``slack`` (inwards if it is negative). Above 1e7, where doubles are
        coarser, the slack grows in proportion to the value.
        """
        reach = self.reach + slack * np.maximum(1.0, (np.abs(self.mean) + self.reach) * 1e-7)
        lower = np.clip(np.floor(self.mean - reach).astype(np.int64), 0, self.max_counts)
        upper = np.clip(np.ceil(self.mean + reach).astype(np.int64), 0, self.max_counts)
        return np.minimum(lower, self.released), np.maximum(upper, self.released)


def intervals(
    tree: Tree,
    noisy: Sequence[Ints],
    counts: Sequence[Ints],
    totals: Sequence[Ints],
    *,
    noise: Sequence[Noise],
    cumulative: bool,
    confidence: float,
    descending: bool = False,
) -> list[Ends]:
    """Return the intervals for all true counts by level, computed from public values alone.

    Args:
        tree: The hierarchy.
        noisy: The (R_l, N) noisy counts on each level, or the noisy cumulative counts: (R_l, N - 1) if totals are
            known, else (R_l, N).
        counts: The (R_l, N) released counts on each level. Intervals are widened to contain them.
        totals: Exact numbers of groups: (R_l,) for each level, or the root's alone. Empty if none is known.
        noise: The noise on one value of each level.
        cumulative: Whether the noisy values are cumulative counts, of groups of size s or less.
        confidence: The confidence of each single interval, between 0 and 1.
        descending: Whether the cumulative counts are of groups of size s or more instead.

    Returns:
        The intervals of each level, with ends that are not yet rounded to integers.
    """
    size = counts[0].shape[1]
    steps = (
        _estimate_increments(tree, noisy, totals, noise, size, descending=descending)
        if cumulative
        else _estimate_counts(tree, noisy, totals, noise)
    )
    return ends_of(tree, steps, counts, totals, confidence)


def ends_of(
    tree: Tree, estimates: Sequence[Estimate], counts: Sequence[Ints], totals: Sequence[Ints], confidence: float
) -> list[Ends]:
    """Return the intervals of estimated counts by level.

    Args:
        tree: The hierarchy.
        estimates: The estimated counts of each level.
        counts: The (R_l, N) released counts on each level. Intervals are widened to contain them.
        totals: Exact (R_l,) totals on the first levels. Empty if none is known.
        confidence: The confidence of each single interval, between 0 and 1.
    """
    level_ends: list[Ends] = []
    max_counts = np.array([[UNBOUNDED]])
    for level, (released, estimate) in enumerate(zip(counts, estimates, strict=True)):
        if level < len(totals):
            max_counts = totals[level][:, None]
        elif len(max_counts) > 1:
            # The nearest region above that has a known total bounds the counts inside it.
            max_counts = max_counts[tree.parents(level)]
        mean, reach = estimate.mean, quantile(estimate.variance, estimate.fourth, confidence)
        is_repeated = ~tree.first_here(level)
        if is_repeated.any():
            # A repeated leaf is one region, which files list once: its interval is that of the first level, where its
            # number may be exact although those of the levels below are not.
            above = tree.parents(level)[is_repeated]
            mean, reach = mean.copy(), np.broadcast_to(reach, mean.shape).copy()
            mean[is_repeated] = level_ends[-1].mean[above]
            reach[is_repeated] = np.broadcast_to(level_ends[-1].reach, level_ends[-1].mean.shape)[above]
        level_ends.append(Ends(mean=mean, reach=reach, max_counts=max_counts, released=released))
    return level_ends


def _estimate_counts(
    tree: Tree, noisy: Sequence[Ints], totals: Sequence[Ints], noise: Sequence[Noise]
) -> list[Estimate]:
    """Return counts estimated from noisy counts by least squares.

    If a region's total is known, the difference from this total is spread evenly over the sizes.

    Args:
        tree: The hierarchy.
        noisy: The (R_l, N) noisy counts on each level.
        totals: Exact numbers of groups: (R_l,) for each level, or the root's alone. Empty if none is known.
        noise: The noise on one value of each level.
    """
    estimates = least_squares(tree, noisy, noise)
    size = noisy[0].shape[1]
    part = 1.0 / size
    # Subtracting the mean of N independent errors takes 1 / N off each variance. The fourth cumulants follow from the
    # coefficients 1 - 1 / N of a count's own error and 1 / N of the N - 1 others.
    for level, total in enumerate(totals):
        mean, variance, fourth = estimates[level].mean, estimates[level].variance, estimates[level].fourth
        estimates[level] = Estimate(
            mean=mean + part * (total[:, None] - mean.sum(axis=1, keepdims=True)),
            variance=(1.0 - part) * variance,
            fourth=((1.0 - part) ** 4 + (size - 1) * part**4) * fourth,
        )
    return estimates


def _estimate_increments(
    tree: Tree,
    noisy: Sequence[Ints],
    totals: Sequence[Ints],
    noise: Sequence[Noise],
    size: int,
    *,
    descending: bool,
) -> list[Estimate]:
    """Return counts estimated as differences of cumulative counts, whose errors are independent between sizes.

    Args:
        tree: The hierarchy.
        noisy: The cumulative counts of each level: (R_l, N - 1) if the totals of all regions are known, else (R_l, N).
        totals: Exact numbers of groups (R_l,) of the first levels. Empty if none is known.
        noise: The noise on one value of each level.
        size: The number N of sizes.
        descending: Whether groups of size s or more are counted, instead of size s or less.
    """
    if descending:
        # The first column is the number of all groups, the others count groups of size 2 or more, 3 or more, and so on.
        numbers = least_squares_below(tree, [level[:, :1] for level in noisy], noise, totals)
        cumulative_levels = least_squares(tree, [level[:, 1:] for level in noisy], noise)
        # Read backwards, these are numbers of groups of the largest sizes, and the number of all at the end.
        ascending = [
            increments(level.map_moments(_reverse_columns), end)
            for level, end in zip(cumulative_levels, numbers, strict=True)
        ]
        return [level.map_moments(_reverse_columns) for level in ascending]
    inner = least_squares(tree, [level[:, : size - 1] for level in noisy], noise)
    # The last cumulative count is measured, unless the totals of all regions are known.
    if noisy[0].shape[1] == size:
        last = least_squares_below(tree, [level[:, size - 1 :] for level in noisy], noise, totals)
    else:
        last = [exactly(total) for total in totals]
    return [increments(cumulative_counts, end) for cumulative_counts, end in zip(inner, last, strict=True)]


def _reverse_columns(values: Floats) -> Floats:
    """Return values with their columns in the opposite order."""
    return values[:, ::-1]


def least_squares_below(
    tree: Tree,
    noisy: Sequence[Ints] | Sequence[Floats],
    noise: Sequence[Noise],
    totals: Sequence[Ints],
    times: Sequence[Floats] | None = None,
) -> list[Estimate]:
    """Return least-squares estimates of one value of each region, given its exact values on the first levels.

    Args:
        tree: The hierarchy.
        noisy: The (R_l, 1) noisy values on each level.
        noise: The noise on one value of each level.
        totals: The (R_l,) exact values on the first levels.
        times: For each level, (R_l, 1) the number of identical siblings that each region represents, itself included.
            None if each region represents itself alone.
    """
    known_count = len(totals)
    values = [*(total[:, None] for total in totals), *noisy[known_count:]]
    levels = [*[Noise(variance=0.0)] * known_count, *noise[known_count:]]
    estimates = least_squares(tree, values, levels, root=totals[0] if totals else None, times=times)
    if not totals:
        return estimates
    # Undo the rounding of sums of doubles: on the known levels, and where an only child repeats its parent's number.
    estimates[:known_count] = map(exactly, totals)
    is_exact = np.ones(len(totals[-1]), dtype=bool)
    for level in range(known_count, tree.depth):
        parents = tree.parents(level)
        repeats = np.ones(tree.widths[level]) if times is None else times[level][:, 0]
        is_only_child = (np.add.reduceat(repeats, tree.start[level - 1][:-1]) == 1)[parents]
        is_exact = is_exact[parents] & is_only_child
        parent_level, mask = estimates[level - 1], is_exact[:, None]
        estimates[level] = evolve(
            estimates[level],
            mean=np.where(mask, parent_level.mean[parents], estimates[level].mean),
            variance=np.where(mask, 0.0, estimates[level].variance),
            fourth=np.where(mask, 0.0, estimates[level].fourth),
        )
    return estimates
