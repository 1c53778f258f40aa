"""Fit consistent integers to noisy tables by least squares over all margins, and then round one margin at a time.

Each step fits the cells that lie in the same cell of a smaller margin. The smaller margin is already fitted, so the sum
of these cells is known in every region. This is the problem of fitting a single table with public region totals, which
:func:`.chain.fit_with_totals` solves.
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
    """Estimate the number of individuals in every region from all tables, rounded to integers.

    Args:
        domain: The attributes and tables.
        noisy: For each table and level, an array of shape (regions, ...) with the noisy values.

    Returns:
        For each level, an array of shape (regions, 1) with the estimates. Children need not add up to their parent.
    """
    return [np.rint(domain.margin(level, TOTAL)).astype(np.int64)[:, None] for level in effects_of(domain, noisy)]


def effects_of(domain: Domain, tables: Tables) -> list[Effects]:
    """Estimate the effects at each level from all tables (see :mod:`.margins` for the definition of an effect).

    Args:
        domain: The attributes and tables.
        tables: For each table and level, an array of shape (regions, ...) with the values.
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
    """Fit non-negative integers that add up over regions and agree on the attributes shared by tables.

    Args:
        tree: The region tree.
        domain: The attributes and tables.
        noisy: For each table and level, an array of shape (regions, ...) with the noisy values.
        levels: The weight of each level in the least-squares fit over the tree, inversely proportional to the variance
            of the level's noise.
        totals: The public totals, as one array of shape (regions,) for each level that has them, from the root down.
            Empty if there are none.
        law: The noise distribution.
        scales: The noise scale at each level, taken from one of the tables. The scales determine the weights of the
            levels when totals are estimated.
        gap: The relative optimality gap at which each continuous projection stops.
        limits: Public bounds that the estimated totals must satisfy, or None if there are no bounds.
        progress: A function that is called with the name and the number of each step.

    Returns:
        For each table and level, an array of shape (regions, ...) with the counts.
    """
    effects = effects_of(domain, noisy)
    totals_by_level = list(totals)
    if len(totals_by_level) < tree.depth:
        # Estimate the totals that are not public.
        root = int(totals_by_level[0][0]) if totals_by_level else None
        numbers = noisy_numbers(domain, noisy)
        totals_by_level = estimated_totals(
            tree, numbers, law=law, scales=scales, order="less", root=root, limits=limits, known=totals_by_level
        )
    # Each step divides the integers of a margin that is already fitted, so tables agree on shared attributes.
    counts_by_margin: dict[Margin, list[Ints]] = {TOTAL: totals_by_level}
    for number, step in enumerate(domain.steps, start=1):
        progress(f"margin {number} of {len(domain.steps)}", number)
        # Some margin that is already fitted contains the given one.
        margin_of_sums = next(margin for margin in counts_by_margin if set(step.given) <= set(margin))
        tops = [sum_axes(level, margin_of_sums, step.given) for level in counts_by_margin[margin_of_sums]]
        means = _fit_over_tree(tree, [domain.margin(level, step.margin) for level in effects], levels)
        counts_by_margin[step.margin] = _fit_step(tree, domain, step, means, tops, gap)
    # Sum every table from a fitted margin that contains it.
    margins_of_tables = [
        next(margin for margin in counts_by_margin if set(table) <= set(margin)) for table in domain.tables
    ]
    return [
        [sum_axes(level, source_margin, table) for level in counts_by_margin[source_margin]]
        for table, source_margin in zip(domain.tables, margins_of_tables, strict=True)
    ]


def _fit_over_tree(tree: Tree, means: Sequence[Floats], levels: Sequence[float]) -> list[Floats]:
    """Adjust estimates by weighted least squares so that they add up over the tree.

    Weighting by precision introduces no bias here, because no value has been clipped at 0 yet (see
    :func:`.sizes.objective_weights`).

    Args:
        tree: The region tree.
        means: For each level, an array of shape (regions, ...) with the estimates before levels are combined.
        levels: The weight of each level, inversely proportional to the variance of its estimates.

    Returns:
        For each level, an array of shape (regions, cells) with the adjusted estimates.
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
    """Fit integers to the real-valued estimates of one margin.

    Cells of the margin that add up to the same cell of the given smaller margin are fitted together over the tree.

    Args:
        tree: The region tree.
        domain: The attributes and tables.
        step: The margin to fit, and the smaller margin whose counts are already known.
        means: For each level, an array of shape (regions, cells) with the estimates of the margin.
        tops: For each level, an array of shape (regions, ...) with the counts of the given margin, to which the fitted
            counts must add up.
        gap: The relative optimality gap at which the continuous projection stops.

    Returns:
        For each level, an array of shape (regions, ...) with the counts of the margin.
    """
    # Axis 0 contains the regions. The axes of the attributes that are not given are moved to the end, so that the cells
    # of one fit are contiguous. The targets have the shape (regions, given cells, cells per given cell).
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
        # A cell that is empty at the root is empty in all regions, so its fitted counts remain 0.
        if not cell_totals[0][0]:
            continue
        fitted = fit_with_totals(
            tree,
            [np.ascontiguousarray(level[:, cell]) for level in targets],
            totals=cell_totals,
            # The weights are equal, unlike in `_fit_over_tree`, because cutting values off at 0 biases them upwards,
            # and weights by precision would propagate this bias up the tree.
            weights=[1.0] * tree.depth,
            cumulative=False,
            gap=gap,
        )
        for level, values in zip(fitted_levels, fitted.counts, strict=True):
            level[:, cell] = values
    # Restore the order of the axes.
    free_shape = tuple(domain.sizes[a] for a in step.margin if a not in step.given)
    return [np.moveaxis(level.reshape(len(level), *shape, *free_shape), last, free) for level in fitted_levels]


def least_objective(tree: Tree, domain: Domain, levels: Sequence[float], differences: Tables) -> float:
    """Return the smallest weighted squared distance between noisy values and consistent real-valued tables.

    Consistent tables add up over regions and agree on shared attributes. The least-squares problem is solved in double
    precision, effect by effect in every region and then over the tree. The result is also a lower bound for tables of
    non-negative integers.

    Args:
        tree: The region tree.
        domain: The attributes and tables.
        levels: The weight of each level.
        differences: The noisy values minus the values of any consistent tables. Subtracting such tables does not change
            the distance, but keeps the numbers small enough for double precision.
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
    """Return the variance and the fourth cumulant of the error of an estimated cell of a margin.

    The estimate is a weighted sum of independent noise. Its variance is the sum of the variances times the squared
    weights, and its fourth cumulant is the sum of the fourth cumulants times the fourth powers of the weights.

    Args:
        domain: The attributes and tables.
        margin: The margin of the estimated cell.
        noise: The noise on a single cell of each table.
        contrasts_only: Whether to omit the error that the cell inherits from the estimate of the region's total.
    """
    squares, fourths = domain.influence_powers(margin, contrasts_only=contrasts_only)
    return Noise(
        variance=float(squares @ [cell_noise.variance for cell_noise in noise]),
        fourth=float(fourths @ [cell_noise.fourth for cell_noise in noise]),
    )
