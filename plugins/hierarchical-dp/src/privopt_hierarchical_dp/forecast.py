"""Errors of least squares before anything is drawn: how far estimates of each level will be off, summed over regions.

Regions that have like regions below them have like errors, so that one of them is worked out for all: a nation of 3,000
counties in 50 states is a tree of about 50 states with one county each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import lru_cache

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Floats, Ints
from privopt_hierarchical_dp.least_squares import Estimate, Noise, exactly, increments, mean_absolute
from privopt_hierarchical_dp.tree import Tree

__all__ = ["Shape", "errors_of_counts", "errors_of_cumulative", "errors_of_leaves", "shape_of"]


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


def _mixed(a: tuple[Floats, Floats], b: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    own = b[0] / np.maximum(a[0] + b[0], 1e-300)
    return own * a[0], own**4 * a[1] + (1.0 - own) ** 4 * b[1]


def _moments(shape: Shape, noise: Sequence[Noise]) -> list[tuple[Floats, Floats]]:
    """Return variances and fourth cumulants (G,) by level: :func:`.least_squares.least_squares` without values."""
    own = [
        (np.full(len(count), level.variance), np.full(len(count), level.fourth))
        for count, level in zip(shape.counts, noise, strict=True)
    ]
    pooled = own[-1:]
    for level in reversed(range(len(own) - 1)):
        below = pooled[0]
        pooled.insert(0, _mixed(own[level], (shape.sums(level, below[0]), shape.sums(level, below[1]))))
    found, aside = [pooled[0]], own[0]
    for level, parent in enumerate(shape.parent):
        inner = pooled[level + 1]
        variance, fourth = (
            np.maximum((aside[k] + shape.sums(level, inner[k]))[parent] - inner[k], 0.0) for k in (0, 1)
        )
        found.append(_mixed(inner, (variance, fourth)))
        aside = _mixed(own[level + 1], (variance, fourth))
    return found


def _estimate(moments: tuple[Floats, Floats], columns: int = 0) -> Estimate:
    variance, fourth = (own[:, None] for own in moments)
    return Estimate(mean=np.zeros((len(variance), columns)), variance=variance, fourth=fourth)


def errors_of_counts(shape: Shape, noise: Sequence[Noise]) -> Floats:
    """Return mean absolute errors (L,) of one count of each region, by level summed over regions.

    Args:
        shape: the regions.
        noise: for each level that of its values.
    """
    errors = (mean_absolute(_estimate(own))[:, 0] for own in _moments(shape, noise))
    return np.array([float(count @ own) for count, own in zip(shape.counts, errors, strict=True)])


def errors_of_cumulative(shape: Shape, noise: Sequence[Noise], size: int, *, totals: bool) -> Floats:
    """Return mean absolute errors (L,) of counts of ``size`` sizes that are differences of cumulative ones.

    Args:
        shape: the regions.
        noise: for each level that of its values.
        size: N.
        totals: whether regions' totals are known.
    """
    columns = min(size, 3)  # the first, one for all between, the last
    often = np.ones(columns)
    often[columns // 2] += size - columns
    sums = []
    for count, own in zip(shape.counts, _moments(shape, noise), strict=True):
        course = _estimate(own, columns - 1)
        known = exactly(np.zeros(len(count), np.int64))
        last = known if totals else evolve(known, variance=course.variance, fourth=course.fourth)
        sums.append(float(count @ (mean_absolute(increments(course, last)) @ often)))
    return np.array(sums)


def errors_of_leaves(shape: Shape, noise: Noise) -> Floats:
    """Return mean absolute errors (L,) of sums of the leaves' own values, by level summed over regions."""
    own = [(np.full(len(shape.counts[-1]), noise.variance), np.full(len(shape.counts[-1]), noise.fourth))]
    for level in reversed(range(len(shape.parent))):
        own.insert(0, (shape.sums(level, own[0][0]), shape.sums(level, own[0][1])))
    errors = (mean_absolute(_estimate(moments))[:, 0] for moments in own)
    return np.array([float(count @ error) for count, error in zip(shape.counts, errors, strict=True)])
