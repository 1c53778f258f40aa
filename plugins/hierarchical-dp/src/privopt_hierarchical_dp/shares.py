"""Search for the best budget shares by continuous optimisation from several starting points. Shares may be 0.

Under zCDP, precisions are linear in rho, so the sum of errors is convex in the shares unless the noise is narrower than
1. If the sum is convex, every starting point leads to the optimum. Under pure DP, the sum is not convex if several
levels are combined. For example, the error from two levels with budgets e1 and e2 is proportional to
1 / sqrt(e1^2 + e2^2), which is largest at the even split. The best split is often a corner, where one share of each
block is 1. The search therefore also starts near each corner. After each descent, small shares are set to 0 if this
does not increase the cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from typing import Final, TypeAlias

import numpy as np

from privopt.arrays import Floats

__all__ = ["Point", "Split", "as_split", "best_point", "normalize_shares"]

Point: TypeAlias = tuple[Floats, ...]
"""The shares in each block (the levels, and the tables), as one array per block. They sum to 1 within each block."""
Split: TypeAlias = tuple[Fraction, ...]
"""The shares of one block as exact fractions."""

START_SHARE: Final = 0.9
"""The weight of a corner, or of the current shares, when it is averaged with the even split to start a descent."""
DIFFERENCE: Final = 1e-8
"""The step size, in the logarithm of a share, for approximating a gradient by finite differences."""
SHARE_PARTS: Final = 1000
"""The number of parts into which the budget is divided: proposed shares are multiples of 1 / `SHARE_PARTS`."""


def normalize_shares(shares: Sequence[Fraction]) -> Split:
    """Return the shares scaled so that they sum to 1."""
    return tuple(part / sum(shares) for part in shares)


def best_point(
    cost: Callable[[Sequence[Point]], Floats],
    current: Point,
    progress: Callable[[int, int], None] = lambda done, count: None,
) -> Point:
    """Search for the budget shares with the lowest cost, and return the best ones found.

    Args:
        cost: A function that returns the costs of several points at once. The cost of an infeasible point is infinite.
        current: The current shares, which are returned if no better ones are found.
        progress: A function that is called before each descent with the number of descents completed and the total
            number of descents.
    """
    even = tuple(np.full(len(block), 1.0 / len(block)) for block in current)
    corners = list(product(*(np.eye(len(block)) for block in current)))
    best = _least(cost, [current, *corners])
    # The cost may have several local minima, often at corners, so there is a descent from near each corner.
    starts = (even, current, *corners)
    for number, start in enumerate(starts):
        progress(number, len(starts))
        # The start is not the corner itself, because `_descend` keeps shares of 0 unchanged.
        inner_start = tuple(START_SHARE * a + (1 - START_SHARE) * b for a, b in zip(start, even, strict=True))
        descended = _descend(cost, inner_start)
        thinned = _drop_shares(cost, descended)
        # If no share was dropped, a second descent would start where the first one ended.
        again = [] if thinned is descended else [_descend(cost, thinned)]
        best = _least(cost, [best, thinned, *again])
    return best


def _least(cost: Callable[[Sequence[Point]], Floats], points: Sequence[Point]) -> Point:
    """Return the point with the lowest cost. Ties go to the first point."""
    return points[int(np.argmin(cost(points)))]


def _drop_shares(cost: Callable[[Sequence[Point]], Floats], point: Point) -> Point:
    """Replace shares by 0 where this does not increase the cost, and return the new shares.

    Within each block, the shares are tried in ascending order, and the remaining ones are scaled up so that they still
    sum to 1.

    Args:
        cost: A function that returns the costs of several points at once.
        point: The shares of each block, which sum to 1 within the block.
    """
    for number, block in enumerate(point):
        # The largest share is kept, because the block must add up to 1.
        for index in np.argsort(block).tolist()[:-1]:
            if not point[number][index]:
                continue
            reduced = np.where(np.arange(len(block)) == index, 0.0, point[number])
            changed = (*point[:number], reduced / reduced.sum(), *point[number + 1 :])
            point = _least(cost, [changed, point])
    return point


def _descend(cost: Callable[[Sequence[Point]], Floats], start: Point) -> Point:
    """Find a local minimum of the cost with L-BFGS-B, optimising the logarithms of the positive shares.

    Args:
        cost: A function that returns the costs of several points at once.
        start: The initial shares of each block. Shares of 0 remain 0.
    """
    from scipy.optimize import minimize

    places = [np.flatnonzero(block) for block in start]
    split_points = np.cumsum([len(positions) for positions in places])[:-1]
    # If each block has a single positive share, there is nothing to optimise.
    if all(len(positions) == 1 for positions in places) or not np.isfinite(cost([start])[0]):
        return start

    def to_point(logs: Floats) -> Point:
        """Return the shares with the given logarithms, normalised within each block."""
        blocks = []
        for positions, block_logs, block in zip(places, np.split(logs, split_points), start, strict=True):
            shares = np.zeros(len(block))
            # Subtracting the maximum prevents overflow in the exponential.
            raised = np.exp(block_logs - block_logs.max())
            shares[positions] = raised / raised.sum()
            blocks.append(shares)
        return tuple(blocks)

    def value_and_gradient(logs: Floats) -> tuple[float, Floats]:
        """Return the logarithm of the cost and its finite-difference gradient, using a single call to ``cost``."""
        points = [to_point(logs), *(to_point(logs + step) for step in DIFFERENCE * np.eye(len(logs)))]
        # The logarithm makes the tolerances of the descent relative.
        values = np.log(np.maximum(cost(points), 1e-300))
        return float(values[0]), (values[1:] - values[0]) / DIFFERENCE

    # The bounds keep the smallest share from underflowing to 0.
    solved = minimize(
        value_and_gradient,
        np.concatenate([np.log(block[positions]) for block, positions in zip(start, places, strict=True)]),
        method="L-BFGS-B",
        jac=True,
        bounds=[(-14.0, 4.0)] * sum(map(len, places)),
    )
    return to_point(solved.x)


def as_split(shares: Floats) -> Split:
    """Round shares to multiples of 1 / `SHARE_PARTS` that sum to 1, keeping positive shares positive.

    If more than a tenth of `SHARE_PARTS` shares are positive, the parts are smaller: there are ten for each share.

    Args:
        shares: (n,) The shares, which sum to 1.
    """
    part_count = max(SHARE_PARTS, 10 * int(np.count_nonzero(shares > 0)))
    exact_parts = shares * part_count
    parts = np.maximum(np.floor(exact_parts), shares > 0).astype(int)
    missing = part_count - int(parts.sum())
    # Largest remainders: the parts that were rounded down most get what is missing.
    parts[np.argsort(parts - exact_parts, kind="stable")[: max(0, missing)]] += 1
    # Small shares that were raised to one part may leave too many, which are taken from the largest.
    for _ in range(-missing):
        parts[int(parts.argmax())] -= 1
    return tuple(Fraction(int(part), part_count) for part in parts)
