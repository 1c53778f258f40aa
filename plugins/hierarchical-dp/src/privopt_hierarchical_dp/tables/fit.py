"""Fit consistent integers to noisy tables: least squares over all margins, then one margin after another.

Each step fits the counts of cells that share one given cell of a smaller margin, so their sum is known in every region.
This is the same problem as for one table with public numbers of its regions, so :func:`.chain.fit_with_totals` solves
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from privopt.arrays import Floats, Ints
from privopt_hierarchical_dp.bounds import Limits
from privopt_hierarchical_dp.fits.chain import fit_with_totals
from privopt_hierarchical_dp.least_squares import NearestSums, Noise
from privopt_hierarchical_dp.noise_distributions import NoiseDistribution, Scale
from privopt_hierarchical_dp.release import Tables
from privopt_hierarchical_dp.tables.margins import TOTAL, Domain, Effects, Margin, Step
from privopt_hierarchical_dp.totals import estimated_totals
from privopt_hierarchical_dp.tree import Tree, sum_axes

__all__ = ["effects_of", "fit_tables", "least_objective", "noise_of_margin", "noisy_numbers"]


def noisy_numbers(domain: Domain, noisy: Tables) -> list[Ints]:
    """Return estimates of the number of individuals in every region from all tables, rounded to integers.

    Args:
        domain: The attributes and tables.
        noisy: The (R_l, ...) noisy values by table and level.

    Returns:
        The (R_l, 1) numbers on each level, which are not consistent between levels.
    """
    return [np.rint(domain.margin(level, TOTAL)).astype(np.int64)[:, None] for level in effects_of(domain, noisy)]


def effects_of(domain: Domain, tables: Tables) -> list[Effects]:
    """Return the effects of each level, estimated from all of its tables. :mod:`.margins` explains effects.

    Args:
        domain: The attributes and tables.
        tables: The (R_l, ...) values by table and level.
    """
    return [domain.effects(level) for level in zip(*tables, strict=True)]


def fit_tables(
    tree: Tree,
    domain: Domain,
    noisy: Tables,
    *,
    levels: Sequence[float],
    totals: Sequence[Ints],
    law: NoiseDistribution,
    scales: Sequence[Scale],
    gap: float,
    limits: Limits | None = None,
    progress: Callable[[str, int], None] = lambda phase, number: None,
) -> Tables:
    """Fit non-negative integers that add up over regions and agree between tables.

    Args:
        tree: The regions.
        domain: The attributes and tables.
        noisy: The (R_l, ...) noisy values by table and level.
        levels: The weight of each level in least squares over the tree, proportional to 1 / variance of its noise.
        totals: Public numbers of individuals (R_l,) of the first levels. Empty if there are none.
        law: The distribution of the noise.
        scales: The scales of the noise of some table by level. They determine the weights of levels if numbers of
            individuals are estimated.
        gap: The relative gap of each continuous projection.
        limits: Public bounds on numbers of individuals, into which estimated numbers are moved.
        progress: Called with the name and number of each step.

    Returns:
        The (R_l, ...) counts by table and level.
    """
    effects = effects_of(domain, noisy)
    totals_by_level = list(totals)
    if len(totals_by_level) < tree.depth:
        # Only the numbers of the first levels are public, or none: the others are estimated.
        root = int(totals_by_level[0][0]) if totals_by_level else None
        numbers = noisy_numbers(domain, noisy)
        totals_by_level = estimated_totals(
            tree, numbers, law=law, scales=scales, order="less", root=root, limits=limits, known=totals_by_level
        )
    # Each step splits the whole numbers of a margin that was fitted before, so tables agree on shared attributes.
    counts_by_margin: dict[Margin, list[Ints]] = {TOTAL: totals_by_level}
    for number, step in enumerate(domain.steps, start=1):
        progress(f"margin {number} of {len(domain.steps)}", number)
        # Some margin that was fitted before includes the given one.
        margin_of_sums = next(margin for margin in counts_by_margin if set(step.given) <= set(margin))
        tops = [sum_axes(level, margin_of_sums, step.given) for level in counts_by_margin[margin_of_sums]]
        means = _fit_over_tree(tree, [domain.margin(level, step.margin) for level in effects], levels)
        counts_by_margin[step.margin] = _fit_step(tree, domain, step, means, tops, gap)
    # Every table is part of some fitted margin, from which it is summed.
    margins_of_tables = [
        next(margin for margin in counts_by_margin if set(table) <= set(margin)) for table in domain.tables
    ]
    return [
        [sum_axes(level, source_margin, table) for level in counts_by_margin[source_margin]]
        for table, source_margin in zip(domain.tables, margins_of_tables, strict=True)
    ]


def _fit_over_tree(tree: Tree, means: Sequence[Floats], levels: Sequence[float]) -> list[Floats]:
    """Return (R_l, cells) estimates that add up over the tree, by weighted least squares.

    Weights by precision are right here, because no value has yet been cut off at zero; see
    :func:`.sizes.objective_weights`.

    Args:
        tree: The regions.
        means: The (R_l, ...) estimates on each level before levels are combined.
        levels: The weight of each level, proportional to 1 / variance.
    """
    return NearestSums.of(tree, levels)([level.reshape(len(level), -1) for level in means])


def _fit_step(
    tree: Tree,
    domain: Domain,
    step: Step,
    means: Sequence[Floats],
    tops: Sequence[Ints],
    gap: float,
) -> list[Ints]:
    """Fit integers to the real estimates of one margin.

    Cells that share a cell of the given smaller margin are fitted together over the tree.

    Args:
        tree: The regions.
        domain: The attributes and tables.
        step: The margin to fit, and the given margin, whose counts are known.
        means: The (R_l, cells) real estimates of the margin on each level.
        tops: The (R_l, ...) counts of the given margin on each level, to which the fitted counts add up.
        gap: The relative gap of the continuous projection.

    Returns:
        The (R_l, ...) counts of the margin on each level.
    """
    # Axis 0 is the region. The free axes, of attributes that are not given, are moved to the end, so that the
    # cells of one fit are contiguous: targets are (R_l, given cells, free cells).
    free = [axis for axis, attribute in enumerate(step.margin, start=1) if attribute not in step.given]
    last = list(range(-len(free), 0))
    shape = domain.shape(step.given)
    cells = domain.cells(step.margin) // domain.cells(step.given)
    targets = [
        np.moveaxis(level.reshape(width, *domain.shape(step.margin)), free, last).reshape(width, -1, cells)
        for level, width in zip(means, tree.widths, strict=True)
    ]
    given_counts = [level.reshape(len(level), -1) for level in tops]
    fitted_levels = [np.zeros(level.shape, np.int64) for level in targets]
    for cell in range(given_counts[0].shape[1]):
        cell_totals = [level[:, cell] for level in given_counts]
        # The root has nobody in this cell, so no region has, and zeros are the fit.
        if not cell_totals[0][0]:
            continue
        fitted = fit_with_totals(
            tree,
            [np.ascontiguousarray(level[:, cell]) for level in targets],
            totals=cell_totals,
            # Equal weights, unlike in `_fit_over_tree`: here values are cut off at 0, which biases them upwards, and
            # weights by precision would carry this bias up the tree.
            weights=[1.0] * tree.depth,
            cumulative=False,
            gap=gap,
        )
        for level, values in zip(fitted_levels, fitted.counts, strict=True):
            level[:, cell] = values
    # Undo the move of the axes.
    free_shape = tuple(domain.sizes[a] for a in step.margin if a not in step.given)
    return [np.moveaxis(level.reshape(len(level), *shape, *free_shape), last, free) for level in fitted_levels]


def least_objective(tree: Tree, domain: Domain, levels: Sequence[float], differences: Tables) -> float:
    """Return the least weighted squared distance of noisy values from consistent real tables, in doubles.

    Consistent tables add up over regions and agree on shared attributes. Least squares are solved by effects in every
    region, and then over the tree.

    The result is a lower bound on the objective of non-negative integer tables, which are a subset.

    Args:
        tree: The regions.
        domain: The attributes and tables.
        levels: The weights of the levels.
        differences: The noisy values minus any consistent tables. This subtraction changes no distance and keeps the
            numbers small enough for doubles.
    """
    effects, total = effects_of(domain, differences), 0.0
    for number, (weight, table) in enumerate(zip(domain.weights, domain.tables, strict=True)):
        for level, mean in enumerate(
            _fit_over_tree(tree, [domain.margin(level_effects, table) for level_effects in effects], levels)
        ):
            total += (
                levels[level] * weight * float(np.sum((differences[number][level].reshape(mean.shape) - mean) ** 2))
            )
    return total


def noise_of_margin(domain: Domain, margin: Margin, noise: Sequence[Noise], *, contrasts_only: bool = False) -> Noise:
    """Return the variance and the fourth cumulant of the error in one estimated cell of a margin.

    The estimate is a weighted sum of independent noise. Variances add up with the squares of the weights, and fourth
    cumulants with their fourth powers.

    Args:
        domain: The attributes and tables.
        margin: The margin of the estimated cell.
        noise: The noise of one cell of each table.
        contrasts_only: Whether the cell's part of the number of all individuals is left out.
    """
    squares, fourths = domain.influence_powers(margin, contrasts_only=contrasts_only)
    return Noise(
        variance=float(squares @ [cell_noise.variance for cell_noise in noise]),
        fourth=float(fourths @ [cell_noise.fourth for cell_noise in noise]),
    )
