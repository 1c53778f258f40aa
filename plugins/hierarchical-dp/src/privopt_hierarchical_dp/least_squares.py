"""Generalised least squares over the tree: unbiased estimates from the noisy values alone, and intervals for counts.

As for the noisy measurement files of the 2020 census (Cumings-Menon et al., "Full-information estimation for
hierarchical data", 2024). Each region's own value, the values of its descendants and those of the rest of the tree are
independent, so one pass up and one down weigh them by inverse variance. Only the constraint that values add up is used,
so nothing is biased, and the error's variance and fourth cumulant are known exactly. Intervals take the quantile of a
difference of two gamma variates with that kurtosis: Laplace's own for one measurement, the normal one where many are
pooled.
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
    "mean_absolute",
    "pool_upwards",
    "quantile",
]


Weights: TypeAlias = Sequence[float] | Sequence[Floats]
"""For each level one weight for all values, or (S,) weights."""


@frozen(kw_only=True)
class Noise:
    """The moments of the noise on one value.

    Attributes:
        variance: Its variance, above 0.
        fourth: Its fourth cumulant (3 variance^2 for Laplace noise, 0 for Gaussian noise).
    """

    variance: float
    fourth: float = 0.0


UNMEASURED: Final = Noise(variance=1e100)
"""The noise of values that carry no information. Any other variance is negligible next to it, and sums stay finite."""


@frozen(kw_only=True, eq=False)
class Estimate:
    """Unbiased estimates of one level.

    Attributes:
        mean: (R, S).
        variance: (R, 1) of their errors, the same for each of the S values, or (R, S).
        fourth: fourth cumulants of the errors, likewise.
        weighed: the variance that they are weighed by, likewise: their own in least squares.
    """

    mean: Floats
    variance: Floats
    fourth: Floats
    weighed: Floats = field(default=Factory(lambda self: self.variance, takes_self=True))

    def combine_with(self, other: Estimate) -> Estimate:
        """Combine with an independent estimate by inverse variance; one of variance 0 counts alone."""
        own_share = other.weighed / np.maximum(self.weighed + other.weighed, 1e-300)
        other_share = 1.0 - own_share
        return Estimate(
            mean=own_share * self.mean + other_share * other.mean,
            variance=own_share**2 * self.variance + other_share**2 * other.variance,
            fourth=own_share**4 * self.fourth + other_share**4 * other.fourth,
            weighed=own_share * self.weighed,
        )

    def map_moments(self, change: Callable[[Floats], Floats]) -> Estimate:
        """Apply one function to the mean and to all moments."""
        return Estimate(
            mean=change(self.mean),
            variance=change(self.variance),
            fourth=change(self.fourth),
            weighed=change(self.weighed),
        )

    def sum_children(self, start: Ints) -> Estimate:
        """Add up the children of each region of the level above; errors of different children are independent."""
        return self.map_moments(lambda moments: np.add.reduceat(moments, start[:-1], axis=0))


def _to_estimate(values: Ints | Floats, noise: Noise, weight: float | Floats | None = None) -> Estimate:
    """Make estimates from noisy values, weighed by their inverse variance unless a weight is given."""
    column = np.ones((len(values), 1))
    return Estimate(
        mean=np.asarray(values, dtype=np.float64),
        variance=noise.variance * column,
        fourth=noise.fourth * column,
        weighed=(noise.variance if weight is None else 1.0 / np.maximum(weight, 1e-100)) * column,
    )


def pool_upwards(tree: Tree, noisy: Sequence[Ints] | Sequence[Floats], noise: Sequence[Noise]) -> list[Estimate]:
    """Estimate each region from its own noisy values and those of its descendants.

    Args:
        tree: The hierarchy.
        noisy: For each level (R_l, S) the noisy values.
        noise: For each level the noise on one value.
    """
    return _pool_levels(tree, [_to_estimate(*level) for level in zip([*noisy], noise, strict=True)])


def _pool_levels(tree: Tree, levels: Sequence[Estimate], is_isolated: Sequence[bool] | None = None) -> list[Estimate]:
    # A region's own value and the sum of its children's estimates have independent errors.
    pooled = [levels[-1]]
    for level, start in reversed(list(enumerate(tree.start))):
        parent_level = levels[level]
        pooled.insert(
            0,
            parent_level
            if is_isolated and is_isolated[level]
            else parent_level.combine_with(pooled[0].sum_children(start)),
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
) -> list[Estimate]:
    """Estimate each region from the noisy values of the whole tree, by one pass up and one down.

    Args:
        tree: The hierarchy.
        noisy: For each level (R_l, S) the noisy values.
        noise: For each level the noise on one value.
        root: (S,) The root's values, if they are known exactly.
        weights: For each level its weight, or (S,) weights, in the minimised sum of squares; 1 / variance by default.
        down: Whether each level is fitted to the level above, which stays as it is (``top-down``).
    """
    given_weights = [None] * tree.depth if weights is None else weights
    own_estimates = [_to_estimate(*level) for level in zip([*noisy], noise, given_weights, strict=True)]
    is_isolated = [down and level is not UNMEASURED for level in noise]
    pooled = _pool_levels(tree, own_estimates, is_isolated)
    # outer: the estimates of a level that use everything but its descendants
    estimates, outer = [pooled[0]], own_estimates[0]
    if root is not None:
        outer = _to_estimate(root[None, :], Noise(variance=0.0))
        estimates = [outer]
    for level, start in enumerate(tree.start):
        inner, parent = pooled[level + 1], tree.parents(level + 1)
        if is_isolated[level]:
            outer = evolve(estimates[-1], weighed=0.0 * estimates[-1].weighed)
        total = inner.sum_children(start)
        # A child is its parent less its siblings. Their errors are independent of the child's own, so variances add up;
        # the child's share of the siblings' total is taken out again.
        outer_estimate = Estimate(
            mean=(outer.mean - total.mean)[parent] + inner.mean,
            variance=np.maximum((outer.variance + total.variance)[parent] - inner.variance, 0.0),
            fourth=np.maximum((outer.fourth + total.fourth)[parent] - inner.fourth, 0.0),
            weighed=np.maximum((outer.weighed + total.weighed)[parent] - inner.weighed, 0.0),
        )
        estimates.append(inner.combine_with(outer_estimate))
        outer = own_estimates[level + 1].combine_with(outer_estimate)
    return estimates


@frozen(kw_only=True, eq=False)
class NearestSums:
    """The projection on values that add up over the tree, by weighted least squares.

    It does the same as `least_squares` without computing errors; a joint projection calls it hundreds of times.

    Attributes:
        tree: the hierarchy.
        own_weights: for each level but the leaves' (R_l, 1) or (R_l, S) the weight of its values against the
            sum of its children.
        child_shares: for each level but the root's (R_l, 1) or (R_l, S) a child's part of its parent's correction.
    """

    tree: Tree
    own_weights: tuple[Floats, ...]
    child_shares: tuple[Floats, ...]

    @classmethod
    def of(cls, tree: Tree, weights: Weights) -> NearestSums:
        """Prepare the projection for one weight for each level; a level of weight 0 has no influence."""
        level_own_weights: list[Floats] = []
        level_child_shares: list[Floats] = []
        variance = np.ones((tree.widths[-1], 1)) / np.maximum(weights[-1], 1e-100)
        for start, weight in zip(reversed(tree.start), reversed(weights[:-1]), strict=True):
            total = np.add.reduceat(variance, start[:-1], axis=0)
            level_child_shares.insert(0, variance / np.maximum(np.repeat(total, np.diff(start), axis=0), 1e-300))
            precision = total * weight
            level_own_weights.insert(0, 1.0 - 1.0 / (1.0 + precision))
            variance = total / (1.0 + precision)
        return cls(tree=tree, own_weights=tuple(level_own_weights), child_shares=tuple(level_child_shares))

    def __call__(self, values: Sequence[Floats]) -> list[Floats]:
        """Return the consistent values (R_l, S) nearest to given values of each level (R_l, S)."""
        # Upwards: each region is the weighted mean of its own value and its children's sum. Downwards: each region's
        # correction is dealt to its children.
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
    """Make (R, 1) estimates without error from exact totals."""
    return _to_estimate(totals[:, None], Noise(variance=0.0))


def increments(courses: Estimate, end: Estimate) -> Estimate:
    """Return counts (R, N) as differences of independent cumulative counts (R, N - 1) and their last value (R, 1)."""
    edge, size = np.zeros((len(end.mean), 1)), courses.mean.shape[1]

    def both_ends(inner: Floats, last: Floats) -> Floats:
        edges = np.concatenate([edge, np.broadcast_to(inner, (len(edge), size)), last], axis=1)
        return np.asarray(edges[:, 1:] + edges[:, :-1])

    return Estimate(
        mean=np.diff(np.concatenate([courses.mean, end.mean], axis=1), axis=1, prepend=0.0),
        variance=both_ends(courses.variance, end.variance),
        fourth=both_ends(courses.fourth, end.fourth),
    )


def _difference_upwards(courses: Estimate) -> Estimate:
    """Return counts (R, N) as differences of the numbers (R, N) of groups of their size or more."""
    factors = np.repeat([[2.0, 1.0]], [courses.mean.shape[1] - 1, 1], axis=1)
    return Estimate(
        mean=-np.diff(courses.mean, axis=1, append=0.0),
        variance=factors * courses.variance,
        fourth=factors * courses.fourth,
    )


@lru_cache(maxsize=8)
def _quantile_table(confidence: float) -> tuple[Floats, Floats]:
    """Tabulate two-sided quantiles, in standard deviations, over 1 / shape from 0 (normal) to 1 (Laplace)."""
    from scipy.optimize import brentq
    from scipy.special import gammaincinv, ndtr, ndtri

    points = (np.arange(4000) + 0.5) / 4000
    grid = np.linspace(0.0, 1.0, 41)
    quantiles = [float(-ndtri((1.0 - confidence) / 2.0))]
    for thin in grid[1:]:
        spread = np.sqrt(gammaincinv(1.0 / thin, points) * thin)  # normal with a gamma variance

        def excess_probability(reach: float, spread: Floats = spread) -> float:
            return float(2.0 * ndtr(-reach / spread).mean() - (1.0 - confidence))

        quantiles.append(float(brentq(excess_probability, 0.0, 60.0)))
    return grid, np.array(quantiles)


def quantile(variance: Floats, fourth: Floats, confidence: float) -> Floats:
    """Return the two-sided quantile of errors with given variances and fourth cumulants.

    The error of one Laplace value has the greatest kurtosis that is taken into account; greater ones are cut to it.
    """
    thin = np.clip(fourth / np.maximum(3.0 * variance**2, 1e-300), 0.0, 1.0)
    return np.asarray(np.interp(thin, *_quantile_table(confidence)) * np.sqrt(variance))


def mean_absolute(error: Estimate) -> Floats:
    """Return the mean absolute errors of estimates, from their variances and fourth cumulants.

    A normal error whose variance is gamma of shape k has sqrt(2 / pi) Gamma(k + 1 / 2) / (Gamma(k) sqrt(k)) of its
    standard deviation: .707 for Laplace's, .798 if many are pooled. An error that is more peaked than Laplace's is
    discrete: a multiple of a double geometric value, whose variance v is 1 / (cosh(1 / scale) - 1). Its ratio r is
    1 + 1 / (3 v) where Laplace's is 1. Its mean absolute value, 1 / sinh(1 / scale), is then sqrt(v / (3 r - 1)).
    """
    from scipy.special import gammaln

    ratio = error.fourth / np.maximum(3.0 * error.variance**2, 1e-300)
    shape = 1.0 / np.clip(ratio, 1e-6, 1.0)
    part = np.sqrt(2.0 / np.pi) * np.exp(gammaln(shape + 0.5) - gammaln(shape)) / np.sqrt(shape)
    discrete = np.where(ratio > 1.0 + 1e-9, 1.0 / np.sqrt(np.maximum(3.0 * ratio - 1.0, 1.0)), part)
    return np.asarray(np.sqrt(error.variance) * discrete)


UNBOUNDED: Final = 1 << 62
SLACK_GROUPS: Final = 1e-6
"""Difference, in groups, up to which two machines may compute the same end: they round its sums differently."""


@frozen(kw_only=True, eq=False)
class Ends:
    """The intervals of the true counts of one level, before their ends are rounded to whole numbers.

    Attributes:
        mean: (R, N) The estimates.
        reach: (R, 1) or (R, N) The half-widths, for the required confidence.
        max_counts: Upper bounds on the counts: the region's total or the root's, if one is known.
        released: (R, N) The released counts, which the intervals are widened to contain.
    """

    mean: Floats
    reach: Floats
    max_counts: Ints
    released: Ints

    def round_outwards(self, slack: float = 0.0) -> tuple[Ints, Ints]:
        """Return the lower and upper ends (R, N): integers from 0 to the total, moved outwards by ``slack``.

        The slack grows in proportion above 1e7, where doubles are coarser.
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
) -> list[Ends]:
    """Compute the intervals of all true counts by level, from public values alone.

    Args:
        tree: The hierarchy.
        noisy: For each level noisy counts (R_l, N), or cumulative counts: (R_l, N - 1) if totals are known, else
            (R_l, N).
        counts: For each level (R_l, N) the released counts, which the intervals are widened to contain.
        totals: Exact numbers of groups: for each level (R_l,), or the root's alone; empty if none is known.
        noise: For each level the noise on one value.
        cumulative: Whether the noisy values are cumulative counts: of size s or less, or, if no total is known, of size
            s or more.
        confidence: The confidence of each interval by itself, between 0 and 1.
    """
    size = counts[0].shape[1]
    steps = (
        _estimate_increments(tree, noisy, totals, noise, size)
        if cumulative
        else _estimate_counts(tree, noisy, totals, noise)
    )
    return ends_of(steps, counts, totals, confidence)


def ends_of(
    estimates: Sequence[Estimate], counts: Sequence[Ints], totals: Sequence[Ints], confidence: float
) -> list[Ends]:
    """Return the intervals of estimated counts by level; the other arguments are those of `intervals`."""
    root_total = totals[0][:1, None] if totals else np.array([[UNBOUNDED]])
    return [
        Ends(
            mean=estimate.mean,
            reach=quantile(estimate.variance, estimate.fourth, confidence),
            max_counts=totals[level][:, None] if level < len(totals) else root_total,
            released=released,
        )
        for level, (released, estimate) in enumerate(zip(counts, estimates, strict=True))
    ]


def _estimate_counts(
    tree: Tree, noisy: Sequence[Ints], totals: Sequence[Ints], noise: Sequence[Noise]
) -> list[Estimate]:
    """Estimate counts from noisy counts; the difference to a known total is spread evenly over the sizes."""
    estimates = least_squares(tree, noisy, noise)
    size = noisy[0].shape[1]
    part = 1.0 / size
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
) -> list[Estimate]:
    """Estimate counts as differences of cumulative counts, whose errors are independent from size to size."""
    if not totals:
        return [_difference_upwards(level) for level in least_squares(tree, noisy, noise)]
    inner = least_squares(tree, [level[:, : size - 1] for level in noisy], noise)
    if noisy[0].shape[1] == size:
        last = least_squares(tree, [level[:, size - 1 :] for level in noisy], noise, root=totals[0])
    else:
        last = [exactly(total) for total in totals]
    return [increments(courses, end) for courses, end in zip(inner, last, strict=True)]
