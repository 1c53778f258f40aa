"""Errors to expect: noise drawn again, and fitted again, for counts that might have been the true ones.

Nothing here sees a true count. Released counts are estimates, drawn together and away from zero, so they would do as
truth for no method. Counts are supposed instead whose root is fitted to all that was measured of it, whose regions are
as different from their parents as the noisy values show them to be, and whose leaves fall by chance.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt_hierarchical_dp.fitting import fit
from privopt_hierarchical_dp.half_prices import project_counts
from privopt_hierarchical_dp.isotonic import isotonic_integers
from privopt_hierarchical_dp.laws import budget_of, law_of
from privopt_hierarchical_dp.least_squares import pool_upwards
from privopt_hierarchical_dp.methods import METHODS, draw, level_budgets
from privopt_hierarchical_dp.privacy import with_totals
from privopt_hierarchical_dp.relations import relation_of
from privopt_hierarchical_dp.rounding import deal
from privopt_hierarchical_dp.smoothing import PRIOR_SQUARE
from privopt_hierarchical_dp.tasks import task_of
from privopt_hierarchical_dp.totals import rising
from privopt_hierarchical_dp.tree import Tree, add_up
from privopt_hierarchical_dp.zeros import within, zeros_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privopt_hierarchical_dp.problem import HierarchyProblem
    from privopt_hierarchical_dp.release import HierarchyRelease

__all__ = ["Expected", "errors_on", "expected_errors", "like_leaves"]

_RAKES: Final = 8
_MOST: Final = 0.95
_ROUGH: Final = 0.3
"""Share of the measured root beside the smoothed one: by trial on synthetic censuses and flights."""


@frozen(kw_only=True, eq=False)
class Expected:
    """Errors of a method where the truth is known: what it does to counts like those that were released.

    Attributes:
        errors: (trials, L) L1 distance of the fit from the counts it was given, by level.
        root: (trials, N) difference at the root, by size.
    """

    errors: Floats
    root: Floats


def errors_on(leaves: Sequence[Ints], tree: Tree, problem: HierarchyProblem, method: str, *, seed: int = 0) -> Expected:
    """Errors of a method on known counts (R_L, N), one trial each; what is drawn is for trials alone."""
    settings = problem.settings
    law = law_of(problem.privacy)
    budgets = level_budgets(budget_of(problem.privacy), method, tree.depth, settings.budget)
    totals, relation, zeros = with_totals(problem, method), relation_of(problem), zeros_of(problem, tree)
    errors, root = [], []
    for trial, known in enumerate(leaves, start=seed):
        levels = add_up(tree, known if zeros is None else within(zeros, known))
        tops = [level.sum(axis=1) for level in levels]
        most = settings.max_quantity
        noisy, _ = draw(
            method, levels, budgets, totals=totals, most=most, seed=trial, law=law, relation=relation, zeros=zeros
        )
        exact = tops[: len(tops) if totals else int(relation.exact)]
        task = task_of(problem, method, tree, noisy, exact, zeros=zeros)
        found, _ = fit(task)
        errors.append([float(np.abs(a - b).sum()) for a, b in zip(found.counts, levels, strict=True)])
        root.append((found.counts[0][0] - levels[0][0]).astype(np.float64))
    return Expected(errors=np.array(errors), root=np.array(root))


def expected_errors(
    release: HierarchyRelease, problem: HierarchyProblem, method: str, trials: int, *, seed: int = 0
) -> Expected:
    """Suppose counts, draw noise and fit again, so many times; all follows from the seed.

    Args:
        release: what was published.
        problem: what was asked.
        method: that made it.
        trials: how many.
        seed: the first trial's.
    """
    seeds = range(seed, seed + trials)
    supposed = [like_leaves(release, method, np.random.default_rng([trial, 1])) for trial in seeds]
    return errors_on(supposed, release.tree, problem, method, seed=seed)


def like_leaves(release: HierarchyRelease, method: str, rng: np.random.Generator) -> Ints:
    """Counts (R_L, N) of leaf regions that might have been true.

    A region's groups are split between small and large sizes, each part again, and so on down to single sizes: in the
    proportion of its parent's, more or less, as far as the noisy values show regions to differ there (a Polya tree).
    """
    tree = release.tree
    if METHODS[method].query == "chain":  # whose values say nothing of one region
        return np.maximum(release.counts[-1], 0)
    totals = add_up(tree, np.maximum(release.counts[-1], 0).sum(axis=1))
    seen_of = release.noisy if release.totals or METHODS[method].query == "counts" else rising(release.noisy, totals)
    counts = _root(release, seen_of, method, totals[0], rng)
    noise = [release.law.moments(scale) for scale in release.scales]
    size = release.counts[0].shape[1]
    cumulative = METHODS[method].query == "cumulative"
    noisy = [level[:, : size - 1] for level in seen_of] if cumulative else seen_of
    for level, seen in enumerate(pool_upwards(tree, noisy, noise)[1:], start=1):
        courses = seen.mean if cumulative else np.cumsum(seen.mean[:, :-1], axis=1)
        ends = np.zeros((len(courses), 1)), totals[level][:, None]
        known = _Level(
            courses=np.concatenate([ends[0], courses, ends[1]], axis=1),
            variance=seen.variance[:, 0],
            cumulative=cumulative,
            parent=tree.parents(level),
            above=np.maximum(release.counts[level - 1], 0),
        )
        counts = _raked(tree, level, counts, _split(counts, totals[level], known, rng), totals[level])
    return counts


def _raked(tree: Tree, level: int, above: Ints, counts: Ints, totals: Ints) -> Ints:
    """Counts (R, N) near those given with the same totals, that add up to those of the level above."""
    start, parent = tree.start[level - 1], tree.parents(level)
    fitted = counts.astype(np.float64)
    for _ in range(_RAKES):
        sums = np.add.reduceat(fitted, start[:-1], axis=0)
        bare = (sums == 0.0) & (above > 0)  # nobody has a size that there must be: by the totals
        fitted = np.where(bare[parent], totals[:, None] * 1e-9, fitted)
        sums = np.where(bare, np.add.reduceat(fitted, start[:-1], axis=0), sums)
        fitted *= (above / np.where(sums > 0.0, sums, 1.0))[parent]
        whole = fitted.sum(axis=1, keepdims=True)
        fitted *= totals[:, None] / np.where(whole > 0.0, whole, 1.0)
    courses = np.cumsum(fitted, axis=1)
    return np.concatenate(
        [
            deal(courses[low:high], above[region], totals[low:high])
            for region, (low, high) in enumerate(pairwise(start.tolist()))
        ]
    )


@frozen(kw_only=True, eq=False)
class _Level:
    """What is known of one level: measured courses (R, N + 1) from 0 to the total, and the released level above."""

    courses: Floats
    variance: Floats
    cumulative: bool
    parent: Ints
    above: Ints

    def noise(self, low: int, middle: int, high: int, share: Floats) -> Floats:
        """(R,) variance of (1 - share) times the left part of a split less share times the right one."""
        last = self.courses.shape[1] - 1
        ends = (1.0, low > 0, high < last) if self.cumulative else (0.0, middle - low, high - middle)
        return np.asarray(self.variance * (ends[0] + (1.0 - share) ** 2 * ends[1] + share**2 * ends[2]))


def _split(parents: Ints, totals: Ints, known: _Level, rng: np.random.Generator) -> Ints:
    """Counts (R, N) of regions with these totals whose parents have the supposed counts."""
    size = parents.shape[1]
    counts = np.zeros((len(totals), size), np.int64)
    supposed, released = (
        np.concatenate([np.zeros((len(level), 1)), np.cumsum(level, axis=1)], axis=1)
        for level in (parents, known.above)
    )
    parts = [(0, size, totals)]
    while parts:
        low, high, groups = parts.pop()
        if high - low == 1 or not groups.any():
            counts[:, low] += groups
            continue
        middle = (low + high) // 2
        own, usual = (_share(course, low, middle, high)[known.parent] for course in (supposed, released))
        course = groups * _drawn(own, usual, groups, known, (low, middle, high), rng)
        left = np.minimum(np.floor(course + rng.random(len(course))).astype(np.int64), groups)
        parts += [(low, middle, left), (middle, high, groups - left)]
    return counts


def _share(courses: Floats, low: int, middle: int, high: int) -> Floats:
    """(R,) share of the sizes from low to high that lies below middle; by their number where there are none."""
    whole = courses[:, high] - courses[:, low]
    even = (middle - low) / (high - low)
    return np.where(whole > 0, (courses[:, middle] - courses[:, low]) / np.where(whole > 0, whole, 1.0), even)


def _drawn(
    own: Floats, usual: Floats, groups: Ints, known: _Level, at: tuple[int, int, int], rng: np.random.Generator
) -> Floats:
    """(R,) probabilities of the left part: beta variates near the parent's share and what was measured."""
    low, middle, high = at
    courses, square = known.courses, groups.astype(np.float64) ** 2

    def beyond(share: Floats) -> tuple[Floats, Floats, Floats]:
        """Groups on the left above the share, what chance and noise explain of it, and the share's own variance."""
        left, right = courses[:, middle] - courses[:, low], courses[:, high] - courses[:, middle]
        chance = share * (1.0 - share)
        return (1.0 - share) * left - share * right, groups * chance + known.noise(*at, share), chance

    excess, explained, chance = beyond(usual)
    differ = min(_MOST, _heterogeneity(excess, explained, square * chance))
    excess, explained, chance = beyond(own)
    doubt = square * differ * chance + groups * chance
    trust = doubt / np.maximum(doubt + explained - groups * chance, 1e-30)
    mean = np.clip(own + trust * excess / np.maximum(groups, 1), 0.0, 1.0)
    spread = (1.0 - trust) * doubt / np.maximum(square, 1.0)
    free = (mean > 0.0) & (mean < 1.0) & (spread > 1e-12)
    strength = np.where(free, np.maximum(mean * (1.0 - mean) / np.where(free, spread, 1.0) - 1.0, 1e-3), 1.0)
    drawn = rng.beta(np.where(free, mean * strength, 1.0), np.where(free, (1.0 - mean) * strength, 1.0))
    return np.where(free, drawn, mean)


def _heterogeneity(excess: Floats, explained: Floats, scale: Floats) -> float:
    """By how much of ``scale`` the squares of the excess pass what is explained; as in `smoothing.heterogeneity`."""
    weight = scale / np.maximum(explained + PRIOR_SQUARE * scale, 1e-30) ** 2
    beyond, information = np.sum(weight * (excess**2 - explained)), np.sum(weight * scale)
    doubt = 0.5 * np.sqrt(np.sum(2.0 * (weight * explained) ** 2))
    return max(0.0, float((beyond + PRIOR_SQUARE * doubt) / max(information + doubt, 1e-30)))


def _root(release: HierarchyRelease, noisy: Sequence[Ints], method: str, total: Ints, rng: np.random.Generator) -> Ints:
    """(1, N) the root's groups by size, valid and near what was measured of it and its descendants.

    One that was smoothed along sizes is nearer than what was measured, but smoother than the truth.
    """
    noise = [release.law.moments(scale) for scale in release.scales]
    seen = pool_upwards(release.tree, noisy, noise)[0]
    whole = np.rint(seen.mean).astype(np.int64)
    if METHODS[method].query != "cumulative":
        whole[whole < np.sqrt(seen.variance)] = 0  # else noise alone would make groups of every size
        return project_counts(Tree(names=(release.tree.names[0],), start=()), [whole], total=int(total[0]))[0]
    rising = isotonic_integers(whole[:, : release.counts[0].shape[1] - 1], high=total)
    counts = np.diff(np.concatenate([rising, total[:, None]], axis=1), axis=1, prepend=0)
    if METHODS[method].borrows and total[0]:
        counts = rng.multinomial(total, (_ROUGH * counts + (1.0 - _ROUGH) * release.counts[0]) / total[0])
    return counts
