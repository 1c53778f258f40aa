"""Errors of linear fits before anything is drawn: how far estimates of each level will be off, summed over regions.

A fit that makes a weighted sum of squares least is linear as long as nothing is cut off at 0. So variances and fourth
cumulants of its errors follow exactly from those of the noise, whichever weights it has.

Regions that have like regions below them have like errors, so that one of them is worked out for all: a nation of 3,000
counties in 50 states is a tree of about 50 states with one county each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt_hierarchical_dp.least_squares import UNMEASURED, Estimate, Noise, exactly, increments, mean_absolute
from privopt_hierarchical_dp.tree import Tree

__all__ = ["Shape", "errors_of_counts", "errors_of_cumulative", "leaves_alone", "shape_of"]

Moments: TypeAlias = tuple[Floats, Floats, Floats]
"""Of estimates (G,) of a level: variance that they are weighed by, their own variance, and fourth cumulant."""


@frozen(kw_only=True, eq=False)
class Shape:
    """Regions of a tree, those that are alike under one parent taken together.

    Attributes:
        parent: for each level but the first, for each group of regions the group above.
        times: likewise, how many regions each region above has in it.
        counts: for each level, how many regions of the tree a group represents.
    """

    parent: tuple[Ints, ...]
    times: tuple[Floats, ...]
    counts: tuple[Floats, ...]

    def sums(self, level: int, values: Floats) -> Floats:
        """Return sums (G,) over the regions below each region of ``level``, of values of the level below."""
        weights = self.times[level] * values
        found = np.bincount(self.parent[level], weights=weights, minlength=len(self.counts[level]))
        return np.asarray(found, dtype=np.float64)


def leaves_alone(noise: Noise, depth: int) -> list[Noise]:
    """Return for each level the noise of its values where the leaves' alone are measured."""
    return [UNMEASURED] * (depth - 1) + [noise]


@lru_cache(maxsize=8)
def shape_of(tree: Tree) -> Shape:
    """Return the shape of a tree."""
    kinds: list[list[Hashable]] = [["leaf"] * tree.widths[-1]]
    for start in reversed(tree.start):
        below = kinds[0]
        ends = zip(start[:-1].tolist(), start[1:].tolist(), strict=True)
        kinds.insert(0, [tuple(sorted(Counter(below[a:b]).items(), key=repr)) for a, b in ends])
    numbers = [{kind: number for number, kind in enumerate(dict.fromkeys(level))} for level in kinds]
    named = [[numbers[level][kind] for kind in own] for level, own in enumerate(kinds)]
    members, counts = [0], [np.ones(1)]  # of each group one region of the tree
    parents, times = [], []
    for level, start in enumerate(tree.start):
        above: list[int] = []
        number: list[int] = []
        first: list[int] = []
        for group, region in enumerate(members):
            low, high = int(start[region]), int(start[region + 1])
            found = Counter(named[level + 1][low:high])
            above += [group] * len(found)
            number += list(found.values())
            first += [named[level + 1].index(kind, low, high) for kind in found]
        parents.append(np.array(above))
        times.append(np.array(number, dtype=float))
        counts.append(counts[-1][parents[-1]] * times[-1])
        members = first
    return Shape(parent=tuple(parents), times=tuple(times), counts=tuple(counts))


def _mixed(a: Moments, b: Moments) -> Moments:
    own = b[0] / np.maximum(a[0] + b[0], 1e-300)
    rest = 1.0 - own
    return own * a[0], own**2 * a[1] + rest**2 * b[1], own**4 * a[2] + rest**4 * b[2]


def _moments(
    shape: Shape,
    noise: Sequence[Noise],
    weights: Sequence[float] | None = None,
    *,
    down: bool = False,
    root_known: bool = False,
) -> list[Moments]:
    """Return the moments of estimates by level: :func:`.least_squares.least_squares` without values.

    Args:
        shape: the regions.
        noise: for each level that of its values.
        weights: of each level in the sum of squares that is made least; by default those of least squares.
        down: whether each level is fitted to the one above, which is not changed any more (``top-down``).
        root_known: whether the root's value is known.
    """
    taken = [level.variance for level in noise] if weights is None else [1.0 / max(own, 1e-100) for own in weights]
    own: list[Moments] = [
        (np.full(len(count), variance), np.full(len(count), level.variance), np.full(len(count), level.fourth))
        for count, level, variance in zip(shape.counts, noise, taken, strict=True)
    ]
    alone = [down and level is not UNMEASURED for level in noise]
    pooled = own[-1:]
    for level in reversed(range(len(own) - 1)):
        first, second, third = (shape.sums(level, value) for value in pooled[0])
        pooled.insert(0, own[level] if alone[level] else _mixed(own[level], (first, second, third)))
    found, aside = [pooled[0]], own[0]
    if root_known:
        nothing = np.zeros(1)
        found = [(nothing, nothing, nothing)]
        aside = found[0]
    for level, parent in enumerate(shape.parent):
        if alone[level]:
            aside = (np.zeros_like(aside[0]), *found[-1][1:])
        inner = pooled[level + 1]
        assumed, variance, fourth = (
            np.maximum((whole + shape.sums(level, part))[parent] - part, 0.0)
            for whole, part in zip(aside, inner, strict=True)
        )
        outside = assumed, variance, fourth
        found.append(_mixed(inner, outside))
        aside = _mixed(own[level + 1], outside)
    return found


def _estimate(moments: Moments, columns: int = 0) -> Estimate:
    _, variance, fourth = (own[:, None] for own in moments)
    return Estimate(mean=np.zeros((len(variance), columns)), variance=variance, fourth=fourth)


def errors_of_counts(
    shape: Shape,
    noise: Sequence[Noise],
    weights: Sequence[float] | None = None,
    *,
    part: float = 0.0,
    known: int = 0,
    down: bool = False,
) -> Floats:
    """Return mean absolute errors (L,) of one count of each region, by level summed over regions.

    Args:
        shape: the regions.
        noise: for each level that of its values.
        weights: of each level; by default those of least squares.
        part: of a count's variance, what its error has in common with all counts of the region: 1 / N of N counts.
        known: levels, from the root's, on which regions' sums are public, so that this part is taken off. Where there
            are none, the root's sum is that of least squares, whatever the weights are.
        down: whether each level is fitted to the one above.
    """
    whole = _moments(shape, noise, weights, down=down)
    left: list[Floats | float] = [float(not known)] * len(noise)  # of the common part's variance
    if 0 < known < len(noise):
        found = _moments(shape, noise, weights, down=down, root_known=True)
        left = [own[1] / np.maximum(before[1], 1e-300) for own, before in zip(found, whole, strict=True)]
    elif not known and (down or weights is not None):
        left[0] = _moments(shape, noise)[0][1] / np.maximum(whole[0][1], 1e-300)
    alone = (1.0 - part) ** 4 + (1.0 / part - 1.0) * part**4 if part else 1.0
    sums = []
    for count, own, common in zip(shape.counts, whole, left, strict=True):
        less = own[0], own[1] * (1.0 - part * (1.0 - common)), own[2] * (alone + (1.0 - alone) * common)
        # Counts are whole numbers: where noise is rarely there at all, a small part taken off all is rounded away.
        errors = np.minimum(mean_absolute(_estimate(own)), mean_absolute(_estimate(less)))
        sums.append(float(count @ errors[:, 0]))
    return np.array(sums)


def errors_of_cumulative(
    shape: Shape, noise: Sequence[Noise], size: int, weights: Sequence[float] | None = None, *, known: int
) -> Floats:
    """Return mean absolute errors (L,) of counts of ``size`` sizes that are differences of cumulative ones.

    Args:
        shape: the regions.
        noise: for each level that of its values.
        size: N.
        weights: of each level; by default those of least squares.
        known: levels, from the root's, on which regions' totals are public; without any they are those of least
            squares, whatever the weights are.
    """
    columns = min(size, 3)  # the first, one for all between, the last
    often = np.ones(columns)
    often[columns // 2] += size - columns
    totals = _moments(shape, noise, weights, root_known=True) if known else _moments(shape, noise)
    sums = []
    for level, (count, own) in enumerate(zip(shape.counts, _moments(shape, noise, weights), strict=True)):
        course, last = _estimate(own, columns - 1), exactly(np.zeros(len(count), np.int64))
        if level >= known:
            last = _estimate(totals[level], 1)
        sums.append(float(count @ (mean_absolute(increments(course, last)) @ often)))
    return np.array(sums)
