"""Errors to expect: noise drawn again, and fitted again, for counts that might have been the true ones.

Nothing here sees a true count. Released counts are estimates, drawn together and away from zero, so they would do as
truth for no method. Counts are supposed instead whose root is fitted to all that was measured of it, whose regions are
as different from their parents as the noisy values show them to be, and whose leaves fall by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt_hierarchical_dp.bounds import limits_of
from privopt_hierarchical_dp.fitting import fit
from privopt_hierarchical_dp.half_prices import project_counts
from privopt_hierarchical_dp.isotonic import isotonic_integers
from privopt_hierarchical_dp.laws import budget_of, law_of
from privopt_hierarchical_dp.least_squares import pool_upwards
from privopt_hierarchical_dp.methods import METHODS, draw, level_budgets
from privopt_hierarchical_dp.nearest import moved_within
from privopt_hierarchical_dp.privacy import with_totals
from privopt_hierarchical_dp.problem import HierarchyProblem
from privopt_hierarchical_dp.relations import relation_of
from privopt_hierarchical_dp.release import HierarchyRelease
from privopt_hierarchical_dp.rounding import deal
from privopt_hierarchical_dp.smoothing import PRIOR_SQUARE, smooth_root
from privopt_hierarchical_dp.tasks import task_of
from privopt_hierarchical_dp.tilting import tilts
from privopt_hierarchical_dp.totals import rising
from privopt_hierarchical_dp.tree import Tree, add_up
from privopt_hierarchical_dp.zeros import within, zeros_of

__all__ = ["Expected", "errors_on", "expected_errors", "like_leaves"]

_RAKES: Final = 8
_MOST: Final = 0.95
_REACH: Final = 5.0
"""Standard deviations to either side within which counts are drawn."""
_POINTS: Final = 33
_STRONGEST: Final = 1e8
_NEVER: Final = 1e-12
_SURE: Final = 1e-6
"""Share of the most by which regions may differ that makes no odds."""
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
    limits = limits_of(problem, tree)
    errors, root = [], []
    for trial, known in enumerate(leaves, start=seed):
        levels = add_up(tree, known if zeros is None else within(zeros, known))
        tops = [level.sum(axis=1) for level in levels]
        exact = tops[: len(tops) if totals else int(relation.exact)]
        if limits is not None and limits.sizes is not None:
            levels = moved_within(tree, levels, limits, exact)
        most = settings.max_quantity
        noisy, _ = draw(
            method, levels, budgets, totals=totals, most=most, seed=trial, law=law, relation=relation, zeros=zeros
        )
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
    totals = _totals(release, method)
    seen_of = release.noisy if release.totals or METHODS[method].query == "counts" else rising(release.noisy, totals)
    noise = [release.law.moments(scale) for scale in release.scales]
    size = release.counts[0].shape[1]
    cumulative = METHODS[method].query == "cumulative"
    noisy = [level[:, : size - 1] for level in seen_of] if cumulative else seen_of
    counts = np.zeros((1, size), np.int64)
    for level, seen in enumerate(pool_upwards(tree, noisy, noise)):
        courses = seen.mean if cumulative else np.cumsum(seen.mean[:, :-1], axis=1)
        ends = np.zeros((len(courses), 1)), totals[level][:, None]
        known = _Level(
            courses=np.concatenate([ends[0], courses, ends[1]], axis=1),
            variance=seen.variance[:, 0],
            cumulative=cumulative,
        )
        if level:
            parent, steps = tree.parents(level), np.diff(known.courses, axis=1)
            tilt = tilts(_shares(counts), parent, steps, totals[level], known.variance, cumulative=cumulative)
            own = _split(tilt.shares(rng), tilt.shares(), totals[level], known, rng)
            counts = _raked(tree, level, counts, own, totals[level])
        else:
            counts = _root(release, seen_of, method, totals[0], rng)
    return counts


def _totals(release: HierarchyRelease, method: str) -> list[Ints]:
    """(R_l,) groups of each region: the public ones, those that cumulative counts end at, or those released.

    Where they are not public released ones are too high: rising counts end above what was measured.
    """
    size = release.counts[0].shape[1]
    if METHODS[method].query == "cumulative" and len(release.totals) == 1 and release.noisy[0].shape[1] == size:
        ends = [level[:, size - 1 :] for level in release.noisy]
        return [level[:, 0] for level in project_counts(release.tree, ends, total=int(release.totals[0][0]))]
    return add_up(release.tree, np.maximum(release.counts[-1], 0).sum(axis=1))


def _shares(counts: Ints) -> Floats:
    """(R, N) of each row; all alike where it is empty."""
    whole = counts.sum(axis=1, keepdims=True)
    return np.asarray(np.where(whole > 0, counts / np.maximum(whole, 1), 1.0 / counts.shape[1]))


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
    """What is known of one level: measured courses (R, N + 1) from 0 to the total, and the variance (R,) of one."""

    courses: Floats
    variance: Floats
    cumulative: bool

    def noise(self, low: int, middle: int, high: int, share: Floats) -> Floats:
        """(R,) variance of (1 - share) times the left part of a split less share times the right one."""
        last = self.courses.shape[1] - 1
        ends = (1.0, low > 0, high < last) if self.cumulative else (0.0, middle - low, high - middle)
        return np.asarray(self.variance * (ends[0] + (1.0 - share) ** 2 * ends[1] + share**2 * ends[2]))

    def left(self, reached: Ints, low: int, middle: int, high: int) -> tuple[Floats, Floats]:
        """(R,) the left part of a split as it was measured, and its variance; ``reached`` tells both of its ends."""
        if self.cumulative:
            return self.courses[:, middle] - reached[:, low], self.variance
        part = (middle - low) / (high - low)  # of the noise of both parts, whose sum is known
        whole = reached[:, high] - reached[:, low]
        left, right = self.courses[:, middle] - self.courses[:, low], self.courses[:, high] - self.courses[:, middle]
        return (1.0 - part) * left + part * (whole - right), self.variance * part * (high - middle)


def _split(shares: Floats, likely: Floats, totals: Ints, known: _Level, rng: np.random.Generator) -> Ints:
    """Counts (R, N) of regions with these totals, around shares supposed; ``likely`` are those fitted."""
    size = shares.shape[1]
    reached = np.zeros((len(totals), size + 1), np.int64)
    reached[:, size] = totals
    supposed, likely = (
        np.concatenate([np.zeros((len(level), 1)), np.cumsum(level, axis=1)], axis=1) for level in (shares, likely)
    )
    parts, usual_differ = [(0, size)], PRIOR_SQUARE
    while parts:
        splits = [(low, (low + high) // 2, high) for low, high in parts]
        found = [_excess(likely, reached, known, at) for at in splits]
        usual_differ, differ = _pooled(found, usual_differ)
        for (low, middle, high), own in zip(splits, differ, strict=True):
            groups = reached[:, high] - reached[:, low]
            seen, variance = known.left(reached, low, middle, high)
            share = _share(supposed, low, middle, high)
            reached[:, middle] = reached[:, low] + _drawn(share, groups, own, seen, variance, rng)
        parts = [(low, high) for a, b, c in splits for low, high in ((a, b), (b, c)) if high - low > 1]
    return np.diff(reached, axis=1)


def _share(courses: Floats, low: int, middle: int, high: int) -> Floats:
    """(R,) share of the sizes from low to high that lies below middle; by their number where there are none."""
    whole = courses[:, high] - courses[:, low]
    even = (middle - low) / (high - low)
    return np.where(whole > 0, (courses[:, middle] - courses[:, low]) / np.where(whole > 0, whole, 1.0), even)


def _excess(likely: Floats, reached: Ints, known: _Level, at: tuple[int, int, int]) -> tuple[float, float]:
    """How far regions' shares differ at a split, as a share of the most that there can be, and its standard error.

    The mean square of what the left part has beyond its share, less what chance and noise explain of it.
    """
    low, middle, high = at
    usual, groups = _share(likely, low, middle, high), (reached[:, high] - reached[:, low]).astype(np.float64)
    chance = usual * (1.0 - usual)
    left, right = (known.courses[:, b] - known.courses[:, a] for a, b in ((low, middle), (middle, high)))
    explained = groups * chance + known.noise(low, middle, high, usual)
    most = groups * (groups - 1.0) * chance
    weight = most / np.maximum(explained + PRIOR_SQUARE * most, 1e-30) ** 2
    information = float(np.sum(weight * most))
    if information <= 0.0:
        return 0.0, np.inf
    beyond = float(np.sum(weight * (((1.0 - usual) * left - usual * right) ** 2 - explained)))
    return beyond / information, float(np.sqrt(2.0 * np.sum((weight * explained) ** 2))) / information


def _pooled(found: Sequence[tuple[float, float]], usual: float) -> tuple[float, Floats]:
    """The mean of what splits of one depth show, and each of them drawn towards it as far as it is in doubt.

    Random effects (DerSimonian and Laird 1986); what the depth above showed counts as one more that is as doubtful as
    it is large.
    """
    values, errors = np.array([*found, (usual, usual)]).T
    squares = np.maximum(errors, _SURE) ** 2
    precise = 1.0 / squares
    mean = np.sum(precise * values) / np.sum(precise)
    beyond = np.sum(precise * (values - mean) ** 2) - (np.count_nonzero(precise) - 1)
    between = max(0.0, beyond / max(np.sum(precise) - np.sum(precise**2) / np.sum(precise), _NEVER))
    weight = 1.0 / (squares + between)
    mean = max(0.0, float(np.sum(weight * values) / np.sum(weight)))
    return max(mean, _SURE), np.clip(mean + between * weight * (values - mean), 0.0, _MOST)[:-1]


def _drawn(
    share: Floats, groups: Ints, differ: float, seen: Floats, variance: Floats, rng: np.random.Generator
) -> Ints:
    """(R,) groups in the left part: beta-binomial around the parent's share, given what was measured of them."""
    from scipy.special import gammaln

    left = np.where(share > 0.5, groups, 0)
    free = np.flatnonzero((groups > 0) & (share > _NEVER) & (share < 1.0 - _NEVER))
    share, whole, seen, variance = share[free], groups[free].astype(np.float64), seen[free], variance[free]
    mean, spread = share * whole, whole * share * (1.0 - share) * (1.0 + (whole - 1.0) * differ)
    trust = spread / (spread + variance)
    reach = _REACH * np.sqrt((1.0 - trust) * spread) + 1.0
    middle = np.clip(mean + trust * (seen - mean), 0.0, whole)
    low, high = np.maximum(np.floor(middle - reach), 0.0), np.minimum(np.ceil(middle + reach), whole)
    step = np.maximum(1.0, (high - low) / (_POINTS - 1))
    points = low[:, None] + step[:, None] * np.arange(_POINTS)
    inside = points <= high[:, None] + 1e-9
    points = np.minimum(points, high[:, None])
    strength = min(1.0 / max(differ, 1e-12) - 1.0, _STRONGEST)
    a, b = strength * share[:, None], strength * (1.0 - share[:, None])
    rest = whole[:, None] - points
    odds = gammaln(points + a) - gammaln(points + 1.0) + gammaln(rest + b) - gammaln(rest + 1.0)
    odds -= (points - seen[:, None]) ** 2 / (2.0 * variance[:, None])
    odds = np.where(inside, np.exp(odds - np.where(inside, odds, -np.inf).max(axis=1, keepdims=True)), 0.0)
    sums = np.cumsum(odds, axis=1)
    chosen = (sums < rng.random((len(free), 1)) * sums[:, -1:]).sum(axis=1)
    value = points[np.arange(len(free)), chosen]
    value += np.where(step > 1.0, step * (rng.random(len(free)) - 0.5), 0.0)
    left[free] = np.clip(np.floor(value + 0.5), 0, groups[free]).astype(np.int64)
    return left


def _root(release: HierarchyRelease, noisy: Sequence[Ints], method: str, total: Ints, rng: np.random.Generator) -> Ints:
    """(1, N) the root's groups by size, valid and near what was measured of it and its descendants.

    One that was smoothed along sizes is nearer than what was measured, but smoother than the truth. It is not rounded
    before chance is drawn: that would put a thin tail's groups on few sizes, where more of them are lost and found.
    """
    noise = [release.law.moments(scale) for scale in release.scales]
    seen = pool_upwards(release.tree, noisy, noise)[0]
    whole = np.rint(seen.mean).astype(np.int64)
    if METHODS[method].query != "cumulative":
        whole[whole < np.sqrt(seen.variance)] = 0  # else noise alone would make groups of every size
        return project_counts(Tree(names=(release.tree.names[0],), start=()), [whole], total=int(total[0]))[0]
    size = release.counts[0].shape[1]
    rising = isotonic_integers(whole[:, : size - 1], high=total)
    counts = np.diff(np.concatenate([rising, total[:, None]], axis=1), axis=1, prepend=0)
    if total[0]:
        course = smooth_root(seen.mean[:, : size - 1], np.repeat(seen.variance, size - 1, axis=1), total)
        smooth = np.maximum(np.diff(course, axis=1, prepend=0.0), 0.0)
        counts = rng.multinomial(total, _ROUGH * counts / total[0] + (1.0 - _ROUGH) * smooth / smooth.sum())
    return counts
