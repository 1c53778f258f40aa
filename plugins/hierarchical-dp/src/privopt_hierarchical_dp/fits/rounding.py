"""Integers near a continuous table that keep every margin: error diffusion along sizes.

Error diffusion. A parent's integer counts n_1, n_2, ... are dealt to its children size by size. Before size s each
child has received C_c so far and should be at x_c (its continuous cumulative value). The n_s units go where C_c - x_c
is least, decided by one price. So every child stays within about one unit of its continuous course, never decreases,
never passes its total, and ends at it exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privopt.arrays import Ints
from privopt.execution.compiled import jit
from privopt_hierarchical_dp.tree import Tree

__all__ = ["deal", "deal_down"]


@jit()
def _deal(course: NDArray[np.float64], counts: Ints, totals: Ints, dealt: Ints) -> None:
    """Deal ``counts`` (S,) over children along their courses (K, S); writes cumulative integers (K, S) to ``dealt``."""
    children, size = course.shape
    received = np.zeros(children, np.int64)
    goals = np.empty(children, np.int64)
    after = 0
    for s in range(size):
        after += counts[s]
    for s in range(size):
        units = counts[s]
        # price: smallest integer p with sum clip(floor(x + 1/2) + p, have, total) >= have + units
        target = 0
        for c in range(children):
            target += received[c]
        target += units
        lower, upper = -1, 1
        for c in range(children):
            goal = np.int64(np.floor(course[c, s] + 0.5))
            goals[c] = goal
            lower = min(lower, received[c] - goal - 1)
            upper = max(upper, totals[c] - goal + 1)
        while upper - lower > 1:
            price = (lower + upper) // 2
            reached = 0
            for c in range(children):
                reached += min(max(goals[c] + price, received[c]), totals[c])
            if reached >= target:
                upper = price
            else:
                lower = price
        spare = target
        edge = np.empty(children, np.float64)
        for c in range(children):
            base = min(max(goals[c] + lower, received[c]), totals[c])
            full = min(max(goals[c] + upper, received[c]), totals[c])
            edge[c] = base - course[c, s] if full > base else np.inf
            received[c] = base
            spare -= base
        # The lower price gives too few units. The spare ones go to the children that are farthest behind their course.
        if spare > 0:
            order = np.argsort(edge)
            for rank in range(spare):
                received[order[rank]] += 1
        for c in range(children):
            dealt[c, s] = received[c]


def deal(course: NDArray[np.float64], counts: Ints, totals: Ints) -> Ints:
    """Deal a parent's counts over its children: integers (K, N) near their courses with given row and column sums.

    Args:
        course: (K, N) The continuous cumulative counts of the children, finite.
        counts: (N,) The parent's counts, non-negative: the column sums.
        totals: (K,) The children's totals, non-negative with the same sum: the row sums.
    """
    course = np.ascontiguousarray(course, dtype=np.float64)
    counts, totals = (np.ascontiguousarray(margin, dtype=np.int64) for margin in (counts, totals))
    if counts.sum() != totals.sum() or min(counts.min(), totals.min()) < 0:
        raise ValueError(f"margins must be non-negative and agree: {counts.sum()} by sizes, {totals.sum()} by regions")
    if not np.abs(course).max() < 2.0**53:
        raise ValueError("a course must be a finite number of groups")
    dealt = np.empty(course.shape, np.int64)
    _deal(course, counts, totals, dealt)
    return np.diff(dealt, axis=1, prepend=0)


def deal_down(tree: Tree, root: Ints, courses: Sequence[NDArray[np.float64]], totals: Sequence[Ints]) -> list[Ints]:
    """Deal the root's counts down the tree, along continuous cumulative courses.

    Args:
        tree: The hierarchy.
        root: (N,) The integer counts of the root, which add up to its total.
        courses: For each level (R_l, N) the continuous cumulative counts.
        totals: For each level (R_l,) the integer totals, consistent over the tree.

    Returns:
        For each level (R_l, N) non-negative integer counts: consistent, with the row sums ``totals``.
    """
    counts = [np.asarray(root, dtype=np.int64)[None, :]]
    for level, start in enumerate(tree.start):
        children = np.empty((tree.widths[level + 1], counts[0].shape[1]), np.int64)
        for region in range(tree.widths[level]):
            siblings = slice(int(start[region]), int(start[region + 1]))
            children[siblings] = deal(courses[level + 1][siblings], counts[level][region], totals[level + 1][siblings])
        counts.append(children)
    return counts
