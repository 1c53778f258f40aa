"""Generalised least squares over the region tree, which yields unbiased estimates and confidence intervals for counts.

The method was designed for the noisy measurement files of the 2020 census (Cumings-Menon et al., "Full-information
estimation for hierarchical data", 2024). A region's own value, the values of its descendants and the values in the rest
of the tree have independent errors. One pass up and one pass down combine them, weighted by inverse variance. The only
constraint is that children add up to their parent, so estimates are unbiased, and the variances and fourth cumulants of
their errors are exact. Intervals use quantiles of the difference of two gamma variates, chosen to match the kurtosis of
the error. For a single measurement, they are Laplace quantiles. If many measurements are pooled, they are nearly normal
quantiles.
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
"""The weight of each level, as one number for all values of a region or as an array with one weight per value."""


@frozen(kw_only=True)
class Noise:
    """The moments of the noise on one value.

    Attributes:
        variance: The variance, which is 0 for exact values and positive otherwise.
        fourth: The fourth cumulant, which is 3 variance^2 for Laplace noise and 0 for Gaussian noise.
    """

    variance: float | Floats
    fourth: float | Floats = 0.0


UNMEASURED: Final = Noise(variance=1e100)
"""The noise on values without information. Any other variance is negligible next to it, and sums remain finite."""


@frozen(kw_only=True, eq=False)
class Estimate:
    """Unbiased estimates of the values at one level, with the moments of their errors.

    Attributes:
        mean: (regions, values) The estimates.
        variance: The error variances, shaped like ``mean``, or (regions, 1) if they are the same within each region.
        fourth: The fourth cumulants of the errors, shaped like ``variance``.
        weighed: The inverse weight of each estimate. By default it is ``variance``, as in least squares.
    """

    mean: Floats
    variance: Floats
    fourth: Floats
    weighed: Floats = field(default=Factory(lambda self: self.variance, takes_self=True))

    def combine_with(self, other: Estimate) -> Estimate:
        """Return the weighted average of this estimate and an independent estimate of the same values.

        By default, the weights are inverse variances. An estimate with variance 0 is exact and gets all of the weight.
        """
        # If the weights are not 1 / variance, the fit is not optimal, but the variances of its errors are still exact.
        # The maximum avoids 0 / 0 for two exact values.
        own_share = other.weighed / np.maximum(self.weighed + other.weighed, 1e-300)
        other_share = 1.0 - own_share
        return Estimate(
            mean=own_share * self.mean + other_share * other.mean,
            variance=own_share**2 * self.variance + other_share**2 * other.variance,
            fourth=own_share**4 * self.fourth + other_share**4 * other.fourth,
            weighed=own_share * self.weighed,
        )

    def map_moments(self, change: Callable[[Floats], Floats]) -> Estimate:
        """Return a new estimate, obtained by applying a linear map, such as a sum over regions, to all four arrays."""
        return Estimate(
            mean=change(self.mean),
            variance=change(self.variance),
            fourth=change(self.fourth),
            weighed=change(self.weighed),
        )

    def sum_children(self, start: Ints, times: Floats | None = None) -> Estimate:
        """Return an estimate of the sum of each parent's children, whose errors must be independent.

        Args:
            start: The index of each parent's first child, followed by the total number of children.
            times: (children, 1) The number of identical siblings that each child represents, by default 1.
        """
        return self.map_moments(
            lambda moments: np.add.reduceat(moments if times is None else times * moments, start[:-1], axis=0)
        )


def _to_estimate(values: Ints | Floats, noise: Noise, weight: float | Floats | None = None) -> Estimate:
    """Convert noisy values to estimates whose errors have the moments of the noise.

    Args:
        values: (regions, values) The noisy values.
        noise: The noise on one value.
        weight: The weight of all values, or an array with one weight per value. If None, it is the inverse variance.
    """
    # All values of a region have the same moments, so the moments have the shape (regions, 1).
    column = np.ones((len(values), 1))
    return Estimate(
        mean=np.asarray(values, dtype=np.float64),
        variance=noise.variance * column,
        fourth=noise.fourth * column,
        # A weight of 0 leads to a very large number instead of infinity, so that sums remain finite.
        weighed=(noise.variance if weight is None else 1.0 / np.maximum(weight, 1e-100)) * column,
    )


def pool_upwards(tree: Tree, noisy: Sequence[Ints] | Sequence[Floats], noise: Sequence[Noise]) -> list[Estimate]:
    """Return estimates for each region that combine its own noisy values with those of its descendants.

    Args:
        tree: The region tree.
        noisy: For each level, a (regions, values) array with the noisy values.
        noise: For each level, the moments of the noise on one value.

    Returns:
        The estimates for each level, which are not yet consistent across the tree.
    """
    return _pool_levels(tree, [_to_estimate(*level) for level in zip([*noisy], noise, strict=True)])


def _pool_levels(
    tree: Tree,
    levels: Sequence[Estimate],
    is_isolated: Sequence[bool] | None = None,
    times: Sequence[Floats] | None = None,
) -> list[Estimate]:
    """Combine each region's estimate with the sum of its children's estimates, from the leaves up.

    Args:
        tree: The region tree.
        levels: The estimates for each level based on its own values.
        is_isolated: For each level, whether its estimates ignore the levels below it. By default, none do.
        times: For each level, a (regions, 1) array with the number of identical siblings that each region represents.
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
    """Estimate the values of each region from the noisy values of the whole tree, in one pass up and one pass down.

    Args:
        tree: The region tree.
        noisy: For each level, a (regions, values) array with the noisy values.
        noise: For each level, the moments of the noise on one value.
        root: (values,) The root's exact values, or None if they are not known.
        weights: The weight of each level in the objective, as a scalar or one per value. By default 1 / variance.
        down: Whether each level is fitted to the level above it, which remains unchanged (``top-down``).
        times: For each level, a (regions, 1) array with the number of identical siblings that each region represents.

    Returns:
        The estimates for each level, which are consistent across the tree.
    """
    given_weights = [None] * tree.depth if weights is None else weights
    # The list [*noisy] satisfies the type checker, which would otherwise distinguish the two types of sequences.
    own_estimates = [_to_estimate(*level) for level in zip([*noisy], noise, given_weights, strict=True)]
    # Top-down fits a measured level without the levels below it. An unmeasured level is estimated from these alone.
    is_isolated = [down and level is not UNMEASURED for level in noise]
    pooled = _pool_levels(tree, own_estimates, is_isolated, times)
    # `outer` is each region's estimate from all values except those of its descendants.
    estimates, outer = [pooled[0]], own_estimates[0]
    if root is not None:
        outer = _to_estimate(root[None, :], Noise(variance=0.0))
        estimates = [outer]
    for level, start in enumerate(tree.start):
        inner, parent = pooled[level + 1], tree.parents(level + 1)
        if is_isolated[level]:
            # Weights as for exact values keep the level above unchanged, whatever the values of its children.
            outer = evolve(estimates[-1], weighed=0.0 * estimates[-1].weighed)
        total = inner.sum_children(start, None if times is None else times[level + 1])
        # A child is its parent minus its siblings. `total` includes the child itself, so its mean is added again, and
        # its variance, which is independent of those of its siblings, is subtracted.
        outer_estimate = Estimate(
            mean=(outer.mean - total.mean)[parent] + inner.mean,
            variance=np.maximum((outer.variance + total.variance)[parent] - inner.variance, 0.0),
            fourth=np.maximum((outer.fourth + total.fourth)[parent] - inner.fourth, 0.0),
            weighed=np.maximum((outer.weighed + total.weighed)[parent] - inner.weighed, 0.0),
        )
        estimates.append(inner.combine_with(outer_estimate))
        # The next level's outer estimates combine its own values with everything outside its subtree.
        outer = own_estimates[level + 1].combine_with(outer_estimate)
    return estimates


@frozen(kw_only=True, eq=False)
class NearestSums:
    """The projection onto consistent values, i.e. values that add up across the tree, by weighted least squares.

    The results equal the means of `least_squares`. Error moments are not computed, because joint projections call this
    hundreds of times. All arrays have shape (regions, 1) or (regions, values).

    Attributes:
        tree: The region tree.
        own_weights: For each level except the leaves, the weight of a region's own value when it is averaged with the
            sum of its children.
        child_shares: For each level except the root, each region's share of its parent's correction.
    """

    tree: Tree
    own_weights: tuple[Floats, ...]
    child_shares: tuple[Floats, ...]

    @classmethod
    def of(cls, tree: Tree, weights: Weights) -> NearestSums:
        """Return the projection with the given weights.

        Args:
            tree: The region tree.
            weights: The weight of each level, as a scalar or one per value. A level with weight 0 has no influence.
        """
        level_own_weights: list[Floats] = []
        level_child_shares: list[Floats] = []
        variance = np.ones((tree.widths[-1], 1)) / np.maximum(weights[-1], 1e-100)
        for start, weight in zip(reversed(tree.start), reversed(weights[:-1]), strict=True):
            total = np.add.reduceat(variance, start[:-1], axis=0)
            level_child_shares.insert(0, variance / np.maximum(np.repeat(total, np.diff(start), axis=0), 1e-300))
            # The weighted mean of the own value and the children's sum has the variance total / (1 + total * weight).
            precision = total * weight
            level_own_weights.insert(0, 1.0 - 1.0 / (1.0 + precision))
            variance = total / (1.0 + precision)
        return cls(tree=tree, own_weights=tuple(level_own_weights), child_shares=tuple(level_child_shares))

    def __call__(self, values: Sequence[Floats]) -> list[Floats]:
        """Return the consistent values nearest to ``values``, given as a (regions, values) array for each level."""
        # On the way up, each region becomes the weighted mean of its own value and the sum of its children.
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
    """Convert exact totals to error-free estimates of shape (regions, 1)."""
    # `combine_with` leaves estimates with variance 0 unchanged.
    return _to_estimate(totals[:, None], Noise(variance=0.0))


def increments(courses: Estimate, end: Estimate) -> Estimate:
    """Return estimates of counts as differences of cumulative counts.

    Args:
        courses: (regions, sizes - 1) Independent estimates of the cumulative counts of all sizes except the last.
        end: (regions, 1) Estimates of the last cumulative counts, which are the regions' totals.

    Returns:
        Estimates of shape (regions, sizes).
    """
    zeros, size = np.zeros((len(end.mean), 1)), courses.mean.shape[1]

    def both_ends(inner: Floats, last: Floats) -> Floats:
        """Return the variances or fourth cumulants of the errors in counts, given those for cumulative counts."""
        moments = np.concatenate([zeros, np.broadcast_to(inner, (len(zeros), size)), last], axis=1)
        return np.asarray(moments[:, 1:] + moments[:, :-1])

    # A count is the difference of two independent estimates, so variances and fourth cumulants add up. The cumulative
    # count before the first size is exactly 0.
    return Estimate(
        mean=np.diff(np.concatenate([courses.mean, end.mean], axis=1), axis=1, prepend=0.0),
        variance=both_ends(courses.variance, end.variance),
        fourth=both_ends(courses.fourth, end.fourth),
    )


@lru_cache(maxsize=8)
def _quantile_table(confidence: float) -> tuple[Floats, Floats]:
    """Return a table of two-sided quantiles of errors, in standard deviations, as a function of kurtosis.

    An error is modelled as normal with a gamma-distributed variance. If the gamma distribution has shape parameter k,
    the kurtosis is determined by 1 / k, which is 0 for a normal error and 1 for a Laplace error.

    Returns:
        The grid of values of 1 / k, and the quantile at each of them.
    """
    from scipy.optimize import brentq
    from scipy.special import gammainccinv, ndtr, ndtri

    # The gamma distribution of the variance is approximated by 4,000 points. Each represents the variances whose
    # probabilities of being exceeded lie between two numbers of a geometric sequence. Equally likely points would have
    # too short a tail for confidence levels near 1.
    exceedances = np.geomspace(1.0, 1e-20, 4001)
    masses = -np.diff(exceedances)
    middles = exceedances[1:] + masses / 2.0
    grid = np.linspace(0.0, 1.0, 41)
    quantiles = [float(-ndtri((1.0 - confidence) / 2.0))]
    for inverse_shape in grid[1:]:
        # The standard deviations of the normal distributions in the mixture, whose mean variance is 1.
        spread = np.sqrt(gammainccinv(1.0 / inverse_shape, middles) * inverse_shape)

        # The default argument binds this iteration's `spread`.
        def excess_probability(reach: float, spread: Floats = spread) -> float:
            """Return the probability that an error exceeds ``reach``, minus the allowed probability."""
            return float(2.0 * masses @ ndtr(-reach / spread) - (1.0 - confidence))

        quantiles.append(float(brentq(excess_probability, 0.0, 60.0)))
    return grid, np.array(quantiles)


def quantile(variance: Floats, fourth: Floats, confidence: float) -> Floats:
    """Return the half-widths of two-sided intervals for errors with given variances and fourth cumulants.

    The half-widths are for intervals whose ends are rounded outwards to integers. The kurtosis of an error is capped at
    that of the Laplace distribution. A more peaked error is modelled as in :func:`mean_absolute`, as a multiple of a
    discrete variate, whose tail is longer than that of a Laplace error of the same variance.

    Args:
        variance: The variances.
        fourth: The fourth cumulants, shaped like ``variance``.
        confidence: The required probability that the absolute error is at most the half-width.
    """
    # 1 / shape of the gamma variance, which is the ratio of the fourth cumulant to that of a Laplace error.
    ratio = fourth / np.maximum(3.0 * variance**2, 1e-300)
    reach = np.asarray(np.interp(np.clip(ratio, 0.0, 1.0), *_quantile_table(confidence)) * np.sqrt(variance))
    # An error c X, where X is discrete with P(|X| >= m) = 2 q^m / (1 + q) and q = exp(-rate), is outside the rounded
    # interval only if c |X| is at least the half-width plus 1. This matters only for confidence levels near 1.
    excess = np.clip(ratio - 1.0, 1e-9, 1e12)
    rate = np.arccosh(1.0 + 3.0 * excess)
    tail = np.log(2.0 / ((1.0 - confidence) * (1.0 + np.exp(-rate)))) / rate
    discrete_reach = np.sqrt(3.0 * excess * variance) * tail - 1.0
    return np.where(ratio > 1.0 + 1e-9, np.maximum(reach, discrete_reach), reach)


def mean_absolute(error: Estimate) -> Floats:
    """Return the mean absolute errors of estimates, computed from their variances and fourth cumulants.

    An error is modelled as normal with a gamma-distributed variance of shape k. Its mean absolute value is its standard
    deviation times sqrt(2 / pi) Gamma(k + 1/2) / (Gamma(k) sqrt(k)), which is 0.707 for a Laplace error and 0.798 if
    many errors are pooled.

    An error that is more peaked than a Laplace error is modelled as a multiple of a discrete (double geometric) variate
    with variance v = 1 / (cosh(1 / scale) - 1). Let r be the fourth cumulant divided by 3 variance^2, which is 1 for a
    Laplace error and 1 + 1 / (3 v) for this variate. The mean absolute value of the variate, 1 / sinh(1 / scale), is
    then sqrt(v / (3 r - 1)).
    """
    from scipy.special import gammaln

    ratio = error.fourth / np.maximum(3.0 * error.variance**2, 1e-300)
    # The shape of the gamma distribution. If the ratio is close to 0, the error is nearly normal.
    shape = 1.0 / np.clip(ratio, 1e-6, 1.0)
    gamma_factor = np.sqrt(2.0 / np.pi) * np.exp(gammaln(shape + 0.5) - gammaln(shape)) / np.sqrt(shape)
    # A Laplace error has the ratio 1. Larger ratios, beyond rounding errors, are modelled as discrete.
    factor = np.where(ratio > 1.0 + 1e-9, 1.0 / np.sqrt(np.maximum(3.0 * ratio - 1.0, 1.0)), gamma_factor)
    return np.asarray(np.sqrt(error.variance) * factor)


UNBOUNDED: Final = 1 << 62
"""The upper bound on counts if no total is known, chosen to fit in 64 bits."""
SLACK_GROUPS: Final = 1e-6
"""The largest difference, in groups, at which interval ends count as equal.

Such differences occur because machines round sums differently.
"""


@frozen(kw_only=True, eq=False)
class Ends:
    """Intervals for the true counts at one level, before their ends are rounded to integers.

    Attributes:
        mean: (regions, sizes) The estimates.
        reach: (regions, 1) or (regions, sizes) The half-widths for the required confidence level.
        max_counts: (regions, 1) Upper bounds on the counts. A region's bound is its total or, if that is unknown, the
            total of its nearest ancestor whose total is known. The shape is (1, 1) if only the root's total is known,
            or if no total is known (:data:`UNBOUNDED`).
        released: (regions, sizes) The released counts. Intervals are widened to contain them.
    """

    mean: Floats
    reach: Floats
    max_counts: Ints
    released: Ints

    def round_outwards(self, slack: float = 0.0) -> tuple[Ints, Ints]:
        """Return integer lower and upper ends, rounded outwards and widened to contain the released counts.

        All ends are between 0 and the total. Before rounding, they are moved outwards by ``slack`` (or inwards if it is
        negative). Above 1e7, where doubles are coarser, the slack increases in proportion to the value.
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
    """Return confidence intervals for all true counts at each level, computed from public values alone.

    Args:
        tree: The region tree.
        noisy: For each level, an array of noisy counts or cumulative counts with one row per region and one column per
            size. Cumulative counts have no column for the last size if all totals are known.
        counts: For each level, a (regions, sizes) array with the released counts. Every interval contains its count.
        totals: For each of the top levels, a (regions,) array with the exact totals. Empty if they are unknown.
        noise: For each level, the moments of the noise on one value.
        cumulative: Whether the noisy values are cumulative counts rather than counts.
        confidence: The confidence level of each individual interval, between 0 and 1.
        descending: Whether cumulative counts cover groups of size s or more, rather than of size s or less.

    Returns:
        The intervals for each level. Their ends have not been rounded to integers.
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
    """Return confidence intervals for the true counts at each level, based on estimates of these counts.

    Args:
        tree: The region tree.
        estimates: The estimated counts for each level.
        counts: For each level, a (regions, sizes) array with the released counts. Every interval contains its count.
        totals: For each of the top levels, a (regions,) array with the exact totals. Empty if they are unknown.
        confidence: The confidence level of each individual interval, between 0 and 1.
    """
    level_ends: list[Ends] = []
    max_counts = np.array([[UNBOUNDED]])
    for level, (released, estimate) in enumerate(zip(counts, estimates, strict=True)):
        if level < len(totals):
            max_counts = totals[level][:, None]
        elif len(max_counts) > 1:
            # Counts are bounded by the total of the nearest region above whose total is known.
            max_counts = max_counts[tree.parents(level)]
        mean, reach = estimate.mean, quantile(estimate.variance, estimate.fourth, confidence)
        is_repeated = ~tree.first_here(level)
        if is_repeated.any():
            # A repeated leaf is a single region, which files list once with the interval from its first level. Its
            # number may be exact there but not on the levels below.
            above = tree.parents(level)[is_repeated]
            mean, reach = mean.copy(), np.broadcast_to(reach, mean.shape).copy()
            mean[is_repeated] = level_ends[-1].mean[above]
            reach[is_repeated] = np.broadcast_to(level_ends[-1].reach, level_ends[-1].mean.shape)[above]
        level_ends.append(Ends(mean=mean, reach=reach, max_counts=max_counts, released=released))
    return level_ends


def _estimate_counts(
    tree: Tree, noisy: Sequence[Ints], totals: Sequence[Ints], noise: Sequence[Noise]
) -> list[Estimate]:
    """Estimate counts from noisy counts by least squares.

    If a region's total is known, all of its estimates are shifted by the same amount, so that they add up to it.

    Args:
        tree: The region tree.
        noisy: For each level, a (regions, sizes) array with the noisy counts.
        totals: For each of the top levels, a (regions,) array with the exact totals. Empty if they are unknown.
        noise: For each level, the moments of the noise on one value.
    """
    estimates = least_squares(tree, noisy, noise)
    size = noisy[0].shape[1]
    part = 1.0 / size
    # Subtracting the mean of N independent errors multiplies each variance by 1 - 1 / N. The fourth cumulants follow
    # from the coefficients, which are 1 - 1 / N for a count's own error and 1 / N for the N - 1 others.
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
    """Estimate counts as differences of cumulative counts, whose errors are independent for different sizes.

    Args:
        tree: The region tree.
        noisy: For each level, an array of noisy cumulative counts with one row per region and one column per size.
            There is no column for the last size if all totals are known.
        totals: For each of the top levels, a (regions,) array with the exact totals. Empty if they are unknown.
        noise: For each level, the moments of the noise on one value.
        size: The number of sizes.
        descending: Whether groups of size s or more are counted rather than groups of size s or less.
    """
    if descending:
        # The first column is the number of all groups. The others count groups of size 2 or more, 3 or more, and so on.
        numbers = least_squares_below(tree, [level[:, :1] for level in noisy], noise, totals)
        cumulative_levels = least_squares(tree, [level[:, 1:] for level in noisy], noise)
        # In reverse order, these are cumulative counts from the largest size down, which end with the total.
        ascending = [
            increments(level.map_moments(_reverse_columns), end)
            for level, end in zip(cumulative_levels, numbers, strict=True)
        ]
        return [level.map_moments(_reverse_columns) for level in ascending]
    inner = least_squares(tree, [level[:, : size - 1] for level in noisy], noise)
    # The last cumulative count is measured unless the totals of all regions are known.
    if noisy[0].shape[1] == size:
        last = least_squares_below(tree, [level[:, size - 1 :] for level in noisy], noise, totals)
    else:
        last = [exactly(total) for total in totals]
    return [increments(cumulative_counts, end) for cumulative_counts, end in zip(inner, last, strict=True)]


def _reverse_columns(values: Floats) -> Floats:
    """Return values with their columns in reverse order."""
    return values[:, ::-1]


def least_squares_below(
    tree: Tree,
    noisy: Sequence[Ints] | Sequence[Floats],
    noise: Sequence[Noise],
    totals: Sequence[Ints],
    times: Sequence[Floats] | None = None,
) -> list[Estimate]:
    """Return least-squares estimates of one value per region, given the exact values at the top levels.

    Args:
        tree: The region tree.
        noisy: For each level, a (regions, 1) array with the noisy values.
        noise: For each level, the moments of the noise on one value.
        totals: For each of the top levels, a (regions,) array with the exact values. Empty if they are unknown.
        times: For each level, a (regions, 1) array with the number of identical siblings that each region represents.
    """
    known_count = len(totals)
    values = [*(total[:, None] for total in totals), *noisy[known_count:]]
    levels = [*[Noise(variance=0.0)] * known_count, *noise[known_count:]]
    estimates = least_squares(tree, values, levels, root=totals[0] if totals else None, times=times)
    if not totals:
        return estimates
    # Remove rounding errors on levels with exact values, and for only children, whose values equal their parent's.
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
