"""From noisy tables to whole numbers that agree: least squares over margins, then one margin after another.

What a step fits is the problem that one table with public numbers of its regions is: counts of the cells that have one
given value, whose sum is known in every region (:func:`.chain.fit_with_totals`). So all machinery of one table serves.
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
    """Return for each level (R_l, 1) whole numbers of individuals, estimated from all its tables."""
    return [np.rint(domain.margin(level, TOTAL)).astype(np.int64)[:, None] for level in effects_of(domain, noisy)]


def effects_of(domain: Domain, tables: Tables) -> list[Effects]:
    """Return for each level the effects that are pooled from its tables (R_l, ...)."""
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
    """Find non-negative whole numbers near the noisy ones that add up over regions and agree between tables.

    Args:
        tree: the regions.
        domain: the tables.
        noisy: for each table, for each level (R_l, ...) noisy values.
        levels: what each level weighs in least squares over the tree: in proportion to 1 / variance of its noise.
        totals: public numbers of individuals: for each level (R_l,), the root's alone, or none.
        law: of the noise.
        scales: of it, by level, for any one table: they weigh levels when numbers of individuals are estimated.
        gap: of each continuous projection, relative.
        limits: public bounds on numbers of individuals, which those that are estimated are moved into.
        progress: called with what each step fits, and its number.
    """
    effects = effects_of(domain, noisy)
    totals_by_level = list(totals)
    if len(totals_by_level) < tree.depth:
        root = int(totals_by_level[0][0]) if totals_by_level else None
        numbers = noisy_numbers(domain, noisy)
        totals_by_level = estimated_totals(
            tree, numbers, law=law, scales=scales, order="less", root=root, limits=limits
        )
    counts_by_margin: dict[Margin, list[Ints]] = {TOTAL: totals_by_level}
    for number, step in enumerate(domain.steps, start=1):
        progress(f"margin {number} of {len(domain.steps)}", number)
        margin_of_sums = next(margin for margin in counts_by_margin if set(step.given) <= set(margin))
        tops = [sum_axes(level, margin_of_sums, step.given) for level in counts_by_margin[margin_of_sums]]
        means = _fit_over_tree(tree, [domain.margin(level, step.margin) for level in effects], levels)
        counts_by_margin[step.margin] = _fit_step(tree, domain, step, means, tops, gap)
    margins_of_tables = [
        next(margin for margin in counts_by_margin if set(table) <= set(margin)) for table in domain.tables
    ]
    return [
        [sum_axes(level, source_margin, table) for level in counts_by_margin[source_margin]]
        for table, source_margin in zip(domain.tables, margins_of_tables, strict=True)
    ]


def _fit_over_tree(tree: Tree, means: Sequence[Floats], levels: Sequence[float]) -> list[Floats]:
    """Return least squares over the tree (R_l, cells), each level weighed, so that none pulls towards a worse one.

    What is cut off below zero is not weighed so (README, level weights): that comes after.
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
    """Return a margin (R_l, ...) of all levels whose sums are ``tops``: one fit a given cell."""
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
        attribute = [level[:, cell] for level in given_counts]
        if not attribute[0][0]:
            continue
        fitted = fit_with_totals(
            tree,
            [np.ascontiguousarray(level[:, cell]) for level in targets],
            totals=attribute,
            weights=[1.0] * tree.depth,
            cumulative=False,
            gap=gap,
        )
        for level, values in zip(fitted_levels, fitted.counts, strict=True):
            level[:, cell] = values
    split = tuple(domain.sizes[a] for a in step.margin if a not in step.given)
    return [np.moveaxis(level.reshape(len(level), *shape, *split), last, free) for level in fitted_levels]


def least_objective(tree: Tree, domain: Domain, levels: Sequence[float], differences: Tables) -> float:
    """Return the least weighted squared distance from all real tables that add up and agree, up to rounding of doubles.

    Least squares: in every region by effects, then over the tree, which the tables' weights do not change.

    Args:
        tree: the regions.
        domain: the tables.
        levels: weights of the levels.
        differences: noisy values, less any tables that add up and agree, so that doubles hold what is left.
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


def noise_of_margin(domain: Domain, margin: Margin, noise: Sequence[Noise]) -> Noise:
    """Return moments of the error of one pooled value of a margin; ``noise`` is that of each table's cells."""
    influence = domain.influence(margin)
    return Noise(
        variance=sum(
            cell_noise.variance * float(np.sum(part**2)) for cell_noise, part in zip(noise, influence, strict=True)
        ),
        fourth=sum(
            cell_noise.fourth * float(np.sum(part**4)) for cell_noise, part in zip(noise, influence, strict=True)
        ),
    )
