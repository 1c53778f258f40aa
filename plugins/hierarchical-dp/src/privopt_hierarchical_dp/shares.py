"""The search for the best shares of a budget: continuous, with shares of 0, from several starts.

Under zCDP the sum of errors is convex in the shares (precisions are linear in rho), so that any start leads to the
optimum, but where noise is narrower than 1 and whole numbers show. Under pure DP it is not once levels are combined: of
1 / sqrt(e1^2 + e2^2) the even split is the maximum, and the best is often a corner. So every support is tried, each
from several starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from typing import Final, TypeAlias

import numpy as np

from privopt.arrays import Floats

__all__ = ["Point", "Split", "as_split", "best_point", "normed"]

Point: TypeAlias = tuple[Floats, ...]
"""Shares of each block (levels; tables), each block's sum 1."""
Split: TypeAlias = tuple[Fraction, ...]

MOST_SUPPORTS: Final = 64
"""Supports that are tried; where there are more, those of one share less than all and the smallest."""
CORNER_SHARE: Final = 0.9
"""Share of the budget that a start at a corner gives to it."""
SHARE_PARTS: Final = 1000
"""Shares that are proposed are multiples of one of so many parts."""


def normed(shares: Sequence[Fraction]) -> Split:
    """Return shares whose sum is 1."""
    return tuple(share / sum(shares) for share in shares)


def best_point(cost: Callable[[Point], float], needed: Sequence[Sequence[bool]], current: Point) -> Point:
    """Return shares of least cost.

    Args:
        cost: of shares; infinite where they will not do.
        needed: for each block, for each of its shares, whether it may not be 0.
        current: shares to begin with, which stay where none are better.
    """
    best, least = current, cost(current)
    for support in _supports(needed):
        for start in _starts(support, current):
            if not np.isfinite(cost(start)):
                continue
            found, value = _descended(cost, support, start)
            if value < least:
                best, least = found, value
    return best


def _supports(needed: Sequence[Sequence[bool]]) -> Iterator[tuple[tuple[bool, ...], ...]]:
    blocks = [tuple(block) for block in needed]
    free = sum(not must for block in blocks for must in block)
    whole = tuple(tuple(True for _ in block) for block in blocks)
    if 2**free <= MOST_SUPPORTS:
        yield from product(*(product(*((True,) if must else (True, False) for must in block)) for block in blocks))
        return
    yield whole
    yield tuple(blocks)
    for number, block in enumerate(blocks):
        for at, must in enumerate(block):
            if not must:
                less = tuple(k != at for k in range(len(block)))
                yield (*whole[:number], less, *whole[number + 1 :])


def _starts(support: Sequence[Sequence[bool]], current: Point) -> Iterator[Point]:
    masks = [np.array(block, dtype=float) for block in support]
    even = tuple(mask / mask.sum() for mask in masks)
    yield even
    kept = [shares * mask for shares, mask in zip(current, masks, strict=True)]
    if all((block > 0).sum() == mask.sum() for block, mask in zip(kept, masks, strict=True)):
        yield tuple(block / block.sum() for block in kept)
    for number, mask in enumerate(masks):
        if mask.sum() > 1:
            for at in np.flatnonzero(mask):
                near = (1 - CORNER_SHARE) * even[number]
                near[at] += CORNER_SHARE
                yield (*even[:number], near, *even[number + 1 :])


def _descended(cost: Callable[[Point], float], support: Sequence[Sequence[bool]], start: Point) -> tuple[Point, float]:
    """Return the local minimum over shares of a support that a start leads to, by logarithms of the shares."""
    from scipy.optimize import minimize

    places = [np.flatnonzero(np.array(block)) for block in support]
    if all(len(at) == 1 for at in places):
        return start, cost(start)
    ends = np.cumsum([len(at) for at in places])[:-1]

    def point(logs: Floats) -> Point:
        found = []
        for at, own, block in zip(places, np.split(logs, ends), support, strict=True):
            shares = np.zeros(len(block))
            raised = np.exp(own - own.max())
            shares[at] = raised / raised.sum()
            found.append(shares)
        return tuple(found)

    first = np.concatenate([np.log(block[at]) for block, at in zip(start, places, strict=True)])
    solved = minimize(
        lambda logs: np.log(max(cost(point(logs)), 1e-300)),
        first,
        method="L-BFGS-B",
        bounds=[(-14.0, 4.0)] * len(first),
    )
    return point(solved.x), float(np.exp(solved.fun))


def as_split(shares: Floats) -> Split:
    """Return shares as multiples of one of `SHARE_PARTS` parts; what is above 0 stays above it."""
    parts = np.maximum(np.rint(shares * SHARE_PARTS), shares > 0).astype(int)
    parts[int(parts.argmax())] += SHARE_PARTS - int(parts.sum())
    return tuple(Fraction(int(part), SHARE_PARTS) for part in parts)
