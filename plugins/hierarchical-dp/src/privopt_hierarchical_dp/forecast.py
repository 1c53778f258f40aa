"""Expected errors of linear fits, which can be computed before any noise is drawn.

A fit that minimises a weighted sum of squares is linear as long as no value is clipped at 0. The variances and fourth
cumulants of its errors then follow exactly from those of the noise, for any weights. They are obtained by applying
:func:`.least_squares` to values that are all 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from attrs import evolve

from privopt.arrays import Floats
from privopt_hierarchical_dp.alike import AlikeRegions
from privopt_hierarchical_dp.least_squares import (
    UNMEASURED,
    Estimate,
    Noise,
    exactly,
    increments,
    least_squares,
    mean_absolute,
)

__all__ = ["errors_of_counts", "errors_of_cumulative", "leaves_alone", "moments_of"]

EXACT: Final = Noise(variance=0.0)
"""The noise on values that are known exactly."""
EXACT_WEIGHT: Final = 1e100
"""The weight of a level whose values are known exactly. All other weights are negligible in comparison."""
WIDE_PART: Final = 0.8
"""The standard deviation of a number T at or above which X - T is computed as if the integer X were continuous.

Let s be the standard deviation of T. Subtracting T adds P(X = 0) E|T| = 0.8 s P(X = 0) to the mean absolute value of an
integer X. For a continuous X with the same density at 0, it adds about s^2 P(X = 0). Both are equal at s = 0.8.
"""


def leaves_alone(noise: Noise, depth: int) -> list[Noise]:
    """Return the noise at each level if only the leaves are measured, with the given noise."""
    return [UNMEASURED] * (depth - 1) + [noise]


def moments_of(
    regions: AlikeRegions,
    noise: Sequence[Noise],
    weights: Sequence[float] | None = None,
    *,
    columns: int = 0,
    down: bool = False,
    known_levels: int = 0,
) -> list[Estimate]:
    """Return the moments of the errors of least-squares estimates at each level.

    The moments do not depend on the values, so all values are assumed to be 0.

    Args:
        regions: The reduced tree from :func:`.find_alike_regions`.
        noise: The noise on one value, for each level.
        weights: The weight of each level, by default 1 / variance.
        columns: The number of values per region.
        down: Whether each level is fitted to the level above it, which remains unchanged.
        known_levels: The number of levels, counted from the root, at which values are known exactly.

    Returns:
        For each level, an estimate of shape (regions, columns) with means of 0.
    """
    tree = regions.tree
    values = [np.zeros((width, columns)) for width in tree.widths]
    root = values[0][0] if known_levels else None
    if known_levels > 1:
        # Known levels get the weight of exact values, whatever the weights of the other levels.
        noise = [EXACT] * known_levels + list(noise[known_levels:])
        if weights is not None:
            weights = [EXACT_WEIGHT] * known_levels + list(weights[known_levels:])
    return least_squares(tree, values, noise, root=root, weights=weights, down=down, times=regions.times)


def errors_of_counts(
    regions: AlikeRegions,
    noise: Sequence[Noise],
    weights: Sequence[float] | None = None,
    *,
    part: float = 0.0,
    known_levels: int = 0,
    down: bool = False,
) -> Floats:
    """Return the mean absolute errors of one count per region, summed over the regions at each level.

    Args:
        regions: The reduced tree from :func:`.find_alike_regions`.
        noise: The noise on one value, for each level.
        weights: The weight of each level, by default 1 / variance.
        part: The share of a count's error variance that is common to all counts in the region. It is 1 / N for N
            counts, or 0 to ignore totals.
        known_levels: The number of levels, counted from the root, with public totals. The common part is subtracted at
            these levels. If there are none, the root's total is estimated by least squares, whatever the weights.
        down: Whether each level is fitted to the level above it, which remains unchanged.

    Returns:
        A (levels,) array with the sums.
    """
    moments = moments_of(regions, noise, weights, down=down)
    # The share of the common part's variance that remains on each level. It is 0 if all totals are known, and 1 if none
    # is.
    common_shares: list[Floats | float] = [float(not known_levels)] * len(noise)
    if 0 < known_levels < len(noise):
        known_root_moments = moments_of(regions, noise, weights, down=down, known_levels=known_levels)
        common_shares = [
            estimate.variance / np.maximum(all_moments.variance, 1e-300)
            for estimate, all_moments in zip(known_root_moments, moments, strict=True)
        ]
    elif not known_levels and (down or weights is not None):
        # The root's total has the variance of least squares rather than that of the given weights.
        common_shares[0] = moments_of(regions, noise)[0].variance / np.maximum(moments[0].variance, 1e-300)
    # In a count minus the mean of N counts, its own error has weight 1 - 1/N and the N - 1 other errors have weight
    # 1/N. Fourth cumulants are added up with the fourth powers of the weights.
    separate_share = (1.0 - part) ** 4 + (1.0 / part - 1.0) * part**4 if part else 1.0
    sums = []
    for estimate, common, counts in zip(moments, common_shares, regions.counts, strict=True):
        taken_off = part * (1.0 - common)
        reduced = evolve(
            estimate,
            variance=estimate.variance * (1.0 - taken_off),
            fourth=estimate.fourth * (separate_share + (1.0 - separate_share) * common),
        )
        sums.append(float(counts @ _mean_absolute_of_whole(estimate, reduced, taken_off).sum(axis=1)))
    return np.array(sums)


def _mean_absolute_of_whole(estimate: Estimate, reduced: Estimate, taken_off: Floats | float) -> Floats:
    """Return the mean absolute errors of a region's counts after their common part has been subtracted.

    Let X be the error of a count, and v its variance. A share q of v comes from the part of the error that is common to
    all counts in the region. The remaining error is (1 - q) X - T, where T is independent of X and nearly normal, with
    variance q (1 - q) v.

    If X is an integer that is usually 0 and T is far below 1, the mean absolute value is (1 - q) E|X| + P(X = 0) E|T|.
    The second term comes from counts with X = 0, whose remaining error is T alone. Normal and Laplace errors are never
    exactly 0, so they need no such term.

    Args:
        estimate: The moments of the errors X.
        reduced: The moments of the remaining errors.
        taken_off: The share q of each count's variance.
    """
    ratio = estimate.fourth / np.maximum(3.0 * estimate.variance**2, 1e-300)
    # Because of rounding errors, the share may be slightly outside the range from 0 to 1.
    taken_off = np.clip(taken_off, 0.0, 1.0)
    part_deviation = np.sqrt(taken_off * (1.0 - taken_off) * estimate.variance)
    # As in `mean_absolute`, an error with a ratio above 1 is a multiple of a double geometric variate. Its variance is
    # 1 / (3 ratio - 3), and it is 0 with probability 1 / sqrt(1 + 2 variance).
    excess = np.maximum(3.0 * ratio - 3.0, 1e-9)
    chance_of_none = np.sqrt(excess / (excess + 2.0))
    error = mean_absolute(estimate)
    # T is a mean of the errors of all counts, so E|T| is at most E|X|, even if non-zero noise is rare.
    part_error = np.minimum(np.sqrt(2.0 / np.pi) * part_deviation, error)
    stepped = (1.0 - taken_off) * error + chance_of_none * part_error
    is_whole = (ratio > 1.0 + 1e-9) & (part_deviation < WIDE_PART)
    return np.where(is_whole, stepped, mean_absolute(reduced))


def errors_of_cumulative(
    regions: AlikeRegions,
    noise: Sequence[Noise],
    size: int,
    weights: Sequence[float] | None = None,
    *,
    known_levels: int,
) -> Floats:
    """Return the mean absolute errors of counts computed as differences of cumulative counts, summed over each level.

    Args:
        regions: The reduced tree from :func:`.find_alike_regions`.
        noise: The noise on one value, for each level.
        size: The number of sizes.
        weights: The weight of each level, by default 1 / variance.
        known_levels: The number of levels, counted from the root, with public totals. If there are none, totals are
            estimated by least squares, whatever the weights.

    Returns:
        A (levels,) array with the sums over all regions and sizes.
    """
    # Three columns represent all sizes: the first, the last, and one for all others, which have equal errors.
    columns = min(size, 3)
    multiplicities = np.ones(columns)
    multiplicities[columns // 2] += size - columns
    cumulative_moments = moments_of(regions, noise, weights, columns=columns - 1)
    totals = moments_of(regions, noise, weights if known_levels else None, columns=1, known_levels=known_levels)
    for level, width in enumerate(regions.tree.widths[:known_levels]):
        totals[level] = exactly(np.zeros(width, np.int64))
    return np.array(
        [
            float(counts @ (mean_absolute(increments(course, last)) @ multiplicities))
            for course, last, counts in zip(cumulative_moments, totals, regions.counts, strict=True)
        ]
    )
