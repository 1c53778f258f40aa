"""Expected errors of linear fits, before anything is drawn.

A fit that minimises a weighted sum of squares is linear as long as nothing is cut off at 0. So the variances and fourth
cumulants of its errors follow exactly from those of the noise, whatever its weights are. They are computed by
:func:`.least_squares` of values that are all 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import evolve

from privopt.arrays import Floats
from privopt_hierarchical_dp.least_squares import (
    UNMEASURED,
    Estimate,
    Noise,
    exactly,
    increments,
    least_squares,
    mean_absolute,
)
from privopt_hierarchical_dp.tree import Tree

__all__ = ["errors_of_counts", "errors_of_cumulative", "leaves_alone", "moments_of"]


def leaves_alone(noise: Noise, depth: int) -> list[Noise]:
    """Return for each level the noise of its values if only the leaves are measured."""
    return [UNMEASURED] * (depth - 1) + [noise]


def moments_of(
    tree: Tree,
    noise: Sequence[Noise],
    weights: Sequence[float] | None = None,
    *,
    columns: int = 0,
    down: bool = False,
    root_known: bool = False,
) -> list[Estimate]:
    """Return the moments of estimates (R_l, columns) by level; other arguments are those of `least_squares`."""
    values = [np.zeros((width, columns)) for width in tree.widths]
    return least_squares(tree, values, noise, root=values[0][0] if root_known else None, weights=weights, down=down)


def errors_of_counts(
    tree: Tree,
    noise: Sequence[Noise],
    weights: Sequence[float] | None = None,
    *,
    part: float = 0.0,
    known_levels: int = 0,
    down: bool = False,
) -> Floats:
    """Return the mean absolute errors (L,) of one count of each region, summed over the regions of each level.

    Args:
        tree: the regions.
        noise: for each level that of its values.
        weights: of each level; by default those of least squares.
        part: of a count's variance, what its error has in common with all counts of the region: 1 / N of N counts.
        known_levels: number of levels, from the root's, on which regions' sums are public, so that this part is taken
            off. If it is 0, the root's sum is that of least squares, whatever the weights are.
        down: whether each level is fitted to the one above.
    """
    moments = moments_of(tree, noise, weights, down=down)
    common_shares: list[Floats | float] = [float(not known_levels)] * len(noise)  # of the common part's variance
    if 0 < known_levels < len(noise):
        known_root_moments = moments_of(tree, noise, weights, down=down, root_known=True)
        common_shares = [
            estimate.variance / np.maximum(all_moments.variance, 1e-300)
            for estimate, all_moments in zip(known_root_moments, moments, strict=True)
        ]
    elif not known_levels and (down or weights is not None):
        common_shares[0] = moments_of(tree, noise)[0].variance / np.maximum(moments[0].variance, 1e-300)
    separate_share = (1.0 - part) ** 4 + (1.0 / part - 1.0) * part**4 if part else 1.0
    sums = []
    for estimate, common in zip(moments, common_shares, strict=True):
        variance = estimate.variance * (1.0 - part * (1.0 - common))
        reduced = evolve(
            estimate, variance=variance, fourth=estimate.fourth * (separate_share + (1.0 - separate_share) * common)
        )
        # Counts are whole numbers: where noise is rarely there at all, a small part taken off all is rounded away.
        sums.append(float(np.minimum(mean_absolute(estimate), mean_absolute(reduced)).sum()))
    return np.array(sums)


def errors_of_cumulative(
    tree: Tree, noise: Sequence[Noise], size: int, weights: Sequence[float] | None = None, *, known_levels: int
) -> Floats:
    """Return the mean absolute errors (L,) of counts of ``size`` sizes that are differences of cumulative counts.

    Args:
        tree: the regions.
        noise: for each level that of its values.
        size: N.
        weights: of each level; by default those of least squares.
        known_levels: levels, from the root's, on which regions' totals are public; without any they are those of least
            squares, whatever the weights are.
    """
    columns = min(size, 3)  # the first, one for all between, the last
    multiplicities = np.ones(columns)
    multiplicities[columns // 2] += size - columns
    courses = moments_of(tree, noise, weights, columns=columns - 1)
    totals = moments_of(tree, noise, weights if known_levels else None, columns=1, root_known=bool(known_levels))
    for level, width in enumerate(tree.widths[:known_levels]):
        totals[level] = exactly(np.zeros(width, np.int64))
    pairs = zip(courses, totals, strict=True)
    return np.array([float((mean_absolute(increments(course, last)) @ multiplicities).sum()) for course, last in pairs])
