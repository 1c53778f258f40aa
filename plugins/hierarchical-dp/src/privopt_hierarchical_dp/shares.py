"""The search for the best shares of a budget: continuous, with shares of 0, from several starts.

Under zCDP the sum of errors is convex in the shares (precisions are linear in rho), so that any start leads to the
optimum, but where noise is narrower than 1 and whole numbers show. Under pure DP it is not once levels are combined: of
1 / sqrt(e1^2 + e2^2) the even split is the maximum, and the best is often a corner. So one start is near each corner,
and what a descent leaves of a share is taken away where that costs nothing.
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
"""The shares of each block (levels; tables); each block adds up to 1."""
Split: TypeAlias = tuple[Fraction, ...]

START_SHARE: Final = 0.9
"""A descent starts at this part of a corner or of the current shares; the rest is the even split."""
SHARE_PARTS: Final = 1000
"""Proposed shares are multiples of 1 / SHARE_PARTS."""


def normalize_shares(shares: Sequence[Fraction]) -> Split:
    """Scale shares so that they add up to 1."""
    return tuple(part / sum(shares) for part in shares)


def best_point(cost: Callable[[Point], float], current: Point) -> Point:
    """Search the shares of least cost.

    Args:
        cost: The cost of shares; infinite if they are not possible.
        current: The current shares, which are returned if no others are better.
    """
    even = tuple(np.full(len(block), 1.0 / len(block)) for block in current)
    corners = list(product(*(np.eye(len(block)) for block in current)))
    best = min((current, *corners), key=cost)
    # The cost may have several local minima, often at corners: descend from near each of them.
    for start in (even, current, *corners):
        inner_start = tuple(START_SHARE * a + (1 - START_SHARE) * b for a, b in zip(start, even, strict=True))
        thinned = _drop_shares(cost, _descend(cost, inner_start))
        best = min(best, thinned, _descend(cost, thinned), key=cost)
    return best


def _drop_shares(cost: Callable[[Point], float], point: Point) -> Point:
    """Set shares to 0, the smallest first, wherever that does not raise the cost."""
    for number, block in enumerate(point):
        for index in np.argsort(block).tolist()[:-1]:
            reduced = np.where(np.arange(len(block)) == index, 0.0, point[number])
            changed = (*point[:number], reduced / reduced.sum(), *point[number + 1 :])
            point = min(point, changed, key=cost)
    return point


def _descend(cost: Callable[[Point], float], start: Point) -> Point:
    """Descend to a local minimum from a start, over the logarithms of its shares above 0."""
    from scipy.optimize import minimize

    places = [np.flatnonzero(block) for block in start]
    split_points = np.cumsum([len(positions) for positions in places])[:-1]
    if all(len(positions) == 1 for positions in places) or not np.isfinite(cost(start)):
        return start

    def to_point(logs: Floats) -> Point:
        blocks = []
        for positions, block_logs, block in zip(places, np.split(logs, split_points), start, strict=True):
            shares = np.zeros(len(block))
            raised = np.exp(block_logs - block_logs.max())
            shares[positions] = raised / raised.sum()
            blocks.append(shares)
        return tuple(blocks)

    # Logarithms keep shares positive; bounds keep the smallest share from vanishing in doubles.
    solved = minimize(
        lambda logs: np.log(max(cost(to_point(logs)), 1e-300)),
        np.concatenate([np.log(block[positions]) for block, positions in zip(start, places, strict=True)]),
        method="L-BFGS-B",
        bounds=[(-14.0, 4.0)] * sum(map(len, places)),
    )
    return to_point(solved.x)


def as_split(shares: Floats) -> Split:
    """Round shares to multiples of 1 / `SHARE_PARTS`; shares above 0 stay above 0."""
    # The largest share takes the rounding difference, so that the parts add up.
    parts = np.maximum(np.rint(shares * SHARE_PARTS), shares > 0).astype(int)
    parts[int(parts.argmax())] += SHARE_PARTS - int(parts.sum())
    return tuple(Fraction(int(part), SHARE_PARTS) for part in parts)
