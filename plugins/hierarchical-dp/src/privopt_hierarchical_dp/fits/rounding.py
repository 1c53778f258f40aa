"""Round a continuous table to integers with the same margins, by error diffusion from size to size.

A parent's integer counts n_1, n_2, ... are dealt to its children size by size. Before size s, each child has received
C_c units in total; with size s, it should reach x_c, its continuous cumulative value. The n_s units go to the children
that lag furthest behind, those with the smallest C_c - x_c. One integer threshold, found by bisection, decides how many
each child receives. So every child stays within about one unit of its continuous values, never decreases, never exceeds
its total, and reaches it exactly at the end.
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
    """Deal a parent's counts to its children, whose cumulative counts should stay close to ``course``.

    Args:
        course: (K, S) The continuous cumulative counts that the children should follow.
        counts: (S,) The parent's count of each size.
        totals: (K,) The children's totals.
        dealt: (K, S) Receives the cumulative integers.
    """
    children, size = course.shape
    # The cumulative integers of the children so far.
    received = np.zeros(children, np.int64)
    goals = np.empty(children, np.int64)
    after = 0
    for s in range(size):
        after += counts[s]
    for s in range(size):
        units = counts[s]
        # Find the smallest integer price p with sum clip(floor(x + 1/2) + p, received, total) >= received + units.
        target = 0
        for c in range(children):
            target += received[c]
        target += units
        # At `lower` every child stays at what it has received, at `upper` every child is at its total.
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
                # Clipped below, so that no cumulative count falls, and above, so that no child exceeds its total.
                reached += min(max(goals[c] + price, received[c]), totals[c])
            if reached >= target:
                upper = price
            else:
                lower = price
        spare = target
        lead = np.empty(children, np.float64)
        for c in range(children):
            base = min(max(goals[c] + lower, received[c]), totals[c])
            full = min(max(goals[c] + upper, received[c]), totals[c])
            # `lead` is how far each child is ahead of its course. A child that the next price would not raise is at a
            # limit and cannot take a spare unit.
            lead[c] = base - course[c, s] if full > base else np.inf
            received[c] = base
            spare -= base
        # The lower price gives too few units. The spare ones go to the children that are farthest behind their course.
        if spare > 0:
            order = np.argsort(lead)
            for rank in range(spare):
                received[order[rank]] += 1
        for c in range(children):
            dealt[c, s] = received[c]


def deal(course: NDArray[np.float64], counts: Ints, totals: Ints) -> Ints:
    """Return (K, N) integers near continuous cumulative counts, with given row and column sums.

    Args:
        course: (K, N) The continuous cumulative counts of the children, which must be finite.
        counts: (N,) The parent's counts, which are the column sums. They must be non-negative.
        totals: (K,) The children's totals, which are the row sums. They must be non-negative and have the same sum as
            ``counts``.

    Returns:
        (K, N) counts.

    Raises:
        ValueError: The margins disagree or are negative, or ``course`` is not finite.
    """
    course = np.ascontiguousarray(course, dtype=np.float64)
    counts, totals = (np.ascontiguousarray(margin, dtype=np.int64) for margin in (counts, totals))
    if counts.sum() != totals.sum() or min(counts.min(), totals.min()) < 0:
        raise ValueError(f"margins must be non-negative and agree: {counts.sum()} by sizes, {totals.sum()} by regions")
    # Written with `not`, so that a course with NaN is refused as well.
    if not np.abs(course).max() < 2.0**53:
        raise ValueError("cumulative counts must be finite and below 2**53")
    dealt = np.empty(course.shape, np.int64)
    _deal(course, counts, totals, dealt)
    return np.diff(dealt, axis=1, prepend=0)


def deal_down(tree: Tree, root: Ints, courses: Sequence[NDArray[np.float64]], totals: Sequence[Ints]) -> list[Ints]:
    """Deal the root's counts down the tree, close to continuous cumulative counts.

    Args:
        tree: The hierarchy.
        root: (N,) The integer counts of the root, which add up to its total.
        courses: The (R_l, N) continuous cumulative counts on each level.
        totals: The (R_l,) integer totals on each level, consistent over the tree.

    Returns:
        Non-negative integer counts (R_l, N) of each level, consistent and with the row sums ``totals``.
    """
    # From the root down, since each level divides the integers of the one above.
    counts = [np.asarray(root, dtype=np.int64)[None, :]]
    for level, start in enumerate(tree.start):
        children = np.empty((tree.widths[level + 1], counts[0].shape[1]), np.int64)
        for region in range(tree.widths[level]):
            siblings = slice(int(start[region]), int(start[region + 1]))
            children[siblings] = deal(courses[level + 1][siblings], counts[level][region], totals[level + 1][siblings])
        counts.append(children)
    return counts
