"""Rounding of a continuous table to integers with given margins, by error diffusion from size to size.

A parent's integer counts n_1, n_2, ... are distributed to its children size by size. Before size s, child c has
received C_c units in total. Up to and including size s, it should receive x_c units, which is its continuous cumulative
count. The n_s units go to the children that are furthest behind, those with the smallest C_c - x_c.

How many units each child receives is determined by an integer threshold, which is found by bisection. In this way,
every child stays within about one unit of its continuous cumulative counts, never has a negative count, never exceeds
its total, and reaches its total at the last size.
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
    """Distribute a parent's counts among its children so that their cumulative counts stay close to ``course``.

    Args:
        course: (children, sizes) The children's continuous cumulative counts.
        counts: (sizes,) The parent's counts.
        totals: (children,) The children's totals.
        dealt: (children, sizes) The output array for the children's integer cumulative counts.
    """
    children, size = course.shape
    # The number of units that each child has received so far.
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
        # At the price `lower`, no child receives a unit. At `upper`, every child reaches its total.
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
                # The lower limit keeps cumulative counts non-decreasing. The upper limit is the child's total.
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
            # `lead` is how far a child is ahead of its course. If the higher price does not raise a child, it is at a
            # limit and cannot take a spare unit.
            lead[c] = base - course[c, s] if full > base else np.inf
            received[c] = base
            spare -= base
        # The lower price distributes too few units. The spare ones go to the children that are furthest behind their
        # course.
        if spare > 0:
            order = np.argsort(lead)
            for rank in range(spare):
                received[order[rank]] += 1
        for c in range(children):
            dealt[c, s] = received[c]


def deal(course: NDArray[np.float64], counts: Ints, totals: Ints) -> Ints:
    """Return integer counts with given row and column sums, whose cumulative counts are close to ``course``.

    Args:
        course: (children, sizes) The children's continuous cumulative counts, which must be finite.
        counts: (sizes,) The parent's counts, which are the column sums. They must be non-negative.
        totals: (children,) The children's totals, which are the row sums. They must be non-negative and have the same
            sum as ``counts``.

    Returns:
        A (children, sizes) array of non-negative counts.

    Raises:
        ValueError: A row or column sum is negative, the row sums and the column sums have different totals, or
            ``course`` is not finite or has absolute values of 2**53 or more.
    """
    course = np.ascontiguousarray(course, dtype=np.float64)
    counts, totals = (np.ascontiguousarray(margin, dtype=np.int64) for margin in (counts, totals))
    if counts.sum() != totals.sum() or min(counts.min(), totals.min()) < 0:
        raise ValueError(f"margins must be non-negative and agree: {counts.sum()} by sizes, {totals.sum()} by regions")
    # Written as a negation so that NaN is rejected as well.
    if not np.abs(course).max() < 2.0**53:
        raise ValueError("cumulative counts must be finite and below 2**53")
    dealt = np.empty(course.shape, np.int64)
    _deal(course, counts, totals, dealt)
    return np.diff(dealt, axis=1, prepend=0)


def deal_down(tree: Tree, root: Ints, courses: Sequence[NDArray[np.float64]], totals: Sequence[Ints]) -> list[Ints]:
    """Distribute the root's counts down the tree so that cumulative counts stay close to ``courses``.

    Args:
        tree: The region tree.
        root: (sizes,) The root's integer counts, which add up to its total.
        courses: For each level, a (regions, sizes) array with continuous cumulative counts.
        totals: For each level, a (regions,) array with integer totals that are consistent over the tree.

    Returns:
        For each level, a (regions, sizes) array of non-negative integer counts, which add up across the tree and have
        row sums ``totals``.
    """
    # Proceed from the root down, because each level divides the integers of the level above it.
    counts = [np.asarray(root, dtype=np.int64)[None, :]]
    for level, start in enumerate(tree.start):
        children = np.empty((tree.widths[level + 1], counts[0].shape[1]), np.int64)
        for region in range(tree.widths[level]):
            siblings = slice(int(start[region]), int(start[region + 1]))
            children[siblings] = deal(courses[level + 1][siblings], counts[level][region], totals[level + 1][siblings])
        counts.append(children)
    return counts
