"""A bound that is proved in moments: prices, and for each output one record, which its own pairs pay.

At prices y output k is worth ``y_i - c_ik`` more to record i than it costs. For the record r to which it is worth most
the pairs of r alone pay: a neighbour j with costs to spare gives ``exp(-eps d) (c_jk - y_j)``, one that lacks something
takes ``exp(eps d) (y_j - c_jk)`` of what r then has left, the cheapest first. What no pair pays comes off the price.
That is a tree of one step for each output (:mod:`privopt_metric_dp.proof.tree_multipliers`), so prices and trees are
the proof. The prices are one share of every record's mean cost, the best of a few that are tried: no paths are searched
and no system is solved, and each share takes about 10 N K steps.

Where spacing is wide (epsilon times the distance of neighbours 2 and more) it comes within some percent of the
optimum; where it is narrow ways of several pairs matter, and it is a part of it.
"""

from __future__ import annotations

import math
import time
from typing import Any, Final

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Bools, Floats, Ints
from privopt.errors import StoppedError
from privopt.execution.limits import check_end, seconds_left
from privopt.numbers.graphs import neighbours
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.proof.lagrangian_bound import sum_down
from privopt_metric_dp.proof.tree_proof import Trees

__all__ = ["prove_nearby"]

FIRST: Final = 0.25
"""The share of mean costs that is tried first."""
FINEST: Final = 2.0**0.2
"""Factor between shares at which the search ends."""
FARTHEST: Final = 44.0
"""Log-ratios beyond this are those of no tree (:data:`privopt_metric_dp.proof.tree_multipliers.LARGEST`)."""
STATING: Final = 3.0
"""To state what trees prove takes so many times what listing neighbours took (2.1 and 2.3 at 2,500 vectors)."""
BESIDE_PAIR, BESIDE_ENTRY = 128.0, 48.0
"""Bytes that lists of neighbours take as they are sorted, and trees as they are evaluated."""


@frozen(kw_only=True, eq=False)
class _Lists:
    """Costs (N, K), and each record's pairs: where its list starts, the other ends, exp(-eps d)."""

    cost: Floats
    start: Ints
    other: Ints
    near: Floats

    @classmethod
    def of(cls, data: MetricData, cost: Floats) -> _Lists:
        lengths = float(data.epsilon) * data.distances
        known = data.surely_required(*data.required) & (lengths < FARTHEST)
        check_end()
        start, other, pair = neighbours(len(cost), data.pairs[known])
        check_end()
        return cls(cost=cost, start=start, other=other, near=np.exp(-lengths[known][pair]))

    def paid(self, k: int, y: Floats) -> tuple[Floats, int, Ints, Bools]:
        """Of output k: what each record lacks (at most 0), the record that is paid, its neighbours that give or take.

        The last are which of these take.
        """
        spare = self.cost[:, k] - y
        lacks, r = np.minimum(spare, 0.0), int(spare.argmin())
        rows = slice(self.start[r], self.start[r + 1])
        ends, near = self.other[rows], self.near[rows]
        theirs = spare[ends]
        left = spare[r] + np.maximum(theirs, 0.0) @ near
        taking = np.flatnonzero(theirs < 0.0)
        if left > 0.0 and taking.size:
            taking = taking[np.argsort(-near[taking])]
            wanted = np.cumsum(-theirs[taking] / near[taking])
            taking = taking[: int(np.searchsorted(wanted, left))]
            lacks[ends[taking]] = 0.0
            left -= wanted[taking.size - 1] if taking.size else 0.0
        else:
            taking = taking[:0]
        lacks[r] = min(left, 0.0)
        takes = np.zeros(len(ends), dtype=np.bool_)
        takes[taking] = True
        part = takes | (theirs > 0.0)
        return lacks, r, ends[part], takes[part]

    def bound(self, y: Floats) -> float:
        """What prices prove, but for rounding errors."""
        least = np.zeros(len(y))
        for k in range(self.cost.shape[1]):
            check_end()
            np.minimum(least, self.paid(k, y)[0], out=least)
        return float((y + least).sum())

    def trees(self, y: Floats) -> NDArray[np.unsignedinteger[Any]]:
        """(K, N) :attr:`privopt_metric_dp.proof.tree_multipliers.Forest.codes`."""
        n, outputs = self.cost.shape
        codes = np.zeros((outputs, n), dtype=np.uint16 if 2 * n <= 1 << 16 else np.uint32)
        for k in range(outputs):
            check_end()
            _, r, ends, takes = self.paid(k, y)
            codes[k, ends] = 2 * ((r - ends) % n) + takes
        return codes


def _best(lists: _Lists, until: float | None) -> tuple[float, Floats]:
    """The best bound of the shares that there is time for, one at least, and its prices."""
    low = lists.cost.min(axis=1)
    mean = lists.cost.mean(axis=1) - low
    tried: dict[float, float] = {}

    def at(share: float) -> float:
        if share not in tried:
            late = bool(tried) and until is not None and time.monotonic() >= until
            try:
                tried[share] = -math.inf if late else lists.bound(low + share * mean)
            except StoppedError:
                if not tried:
                    raise
                tried[share] = -math.inf
        return tried[share]

    best, factor = FIRST, 2.0
    while factor > FINEST:
        here = max((best, best / factor, best * factor), key=at)
        best, factor = here, (factor if here != best else math.sqrt(factor))
    return at(best), low + best * mean


def prove_nearby(
    data: MetricData, weighted: Floats, value: float, *, room: float, until: float | None = None
) -> tuple[Trees, float] | None:
    """The proof, and what is stated of it; None where it is no more than every record's cheapest output, or no room.

    Args:
        data: the problem's.
        weighted: (N, K) costs, prior included.
        value: the loss that is stated.
        room: bytes.
        until: `time.monotonic` value beyond which no further share is tried.

    Raises:
        StoppedError: the end of :func:`privopt.execution.limits.ending_at` has come, or would before it is stated.
    """
    if BESIDE_PAIR * len(data.pairs) + BESIDE_ENTRY * weighted.size > room:
        return None
    began = time.monotonic()
    lists, trivial = _Lists.of(data, weighted), sum_down(weighted.min(axis=1))
    listing = time.monotonic() - began
    bound, y = _best(lists, until)
    if not bound > trivial:
        return None
    left = seconds_left()
    if left is not None and left < STATING * listing:
        raise StoppedError("the time limit came before a bound was proved")
    proof, stated = Trees(prices=y, trees=lists.trees(y)).stating(data, weighted, value)
    return (proof, stated) if stated > trivial else None
