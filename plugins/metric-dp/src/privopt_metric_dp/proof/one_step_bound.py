"""A quick dual lower bound: a price per record and, per output, multipliers on the pairs of one record.

At prices y output k is worth ``y_i - c_ik`` more to record i than it costs. For the record r to which it is worth most
the pairs of r alone pay: a neighbour j with costs to spare gives ``exp(-eps d) (c_jk - y_j)``, one that lacks something
takes ``exp(eps d) (y_j - c_jk)`` of what r then has left, the cheapest first. What no pair pays comes off the price.
That is a tree of one step for each output (:mod:`privopt_metric_dp.proof.tree_proof`), so prices and trees are
the proof. The prices are one share of every record's mean cost, the best of a few that are tried: no paths are searched
and no system is solved, and each share takes about 10 N K steps.

Where spacing is wide (epsilon times the distance of neighbours 2 and more) it comes within some percent of the
optimum; where it is narrow ways of several pairs matter, and it is a part of it.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from attrs import frozen

from privopt.arrays import Bools, Floats, Ints
from privopt.execution.clock import check
from privopt.interfaces.offers import Later, Offers
from privopt.numbers.graphs import neighbours
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.proof.tree_proof import Trees

__all__ = ["bound_nearby"]

NAME: Final = "nearby records"
"""Origin of its offers."""
FIRST_SHARE: Final = 0.25
"""The share of mean costs that is tried first."""
FINEST: Final = 2.0**0.2
"""Factor between shares at which the search ends."""
MAX_LOG_RATIO: Final = 44.0
"""Log-ratios beyond this are those of no tree (:data:`privopt_metric_dp.proof.tree_proof.MAX_FACTOR`)."""
MAX_RECORDS: Final = 3_000
"""Records of roads beyond which not all pairs are made."""
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
        known = data.surely_required(*data.required) & (lengths < MAX_LOG_RATIO)
        check()
        start, other, pair = neighbours(len(cost), data.pairs[known])
        check()
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
        """Return the bound that prices prove, up to rounding errors."""
        least = np.zeros(len(y))
        for k in range(self.cost.shape[1]):
            check()
            np.minimum(least, self.paid(k, y)[0], out=least)
        return float((y + least).sum())

    def proof(self, y: Floats) -> Trees:
        """Make the trees that prove a bound at prices."""
        n, outputs = self.cost.shape
        codes = np.zeros((outputs, n), dtype=np.uint16 if 2 * n <= 1 << 16 else np.uint32)
        for k in range(outputs):
            check()
            _, r, ends, takes = self.paid(k, y)
            codes[k, ends] = 2 * ((r - ends) % n) + takes
        return Trees(prices=y, trees=codes)


def bound_nearby(data: MetricData, weighted: Floats, offers: Offers[Any, Any], *, memory_limit: float) -> None:
    """Offer the bounds of a few shares of mean costs, each with its proof; none if memory is short.

    Args:
        data: the problem's.
        weighted: (N, K) costs, prior included.
        offers: to offer bounds and :class:`Trees` to.
        memory_limit: bytes.

    Raises:
        OutOfTime: the end came first; earlier offers are kept.
    """
    records = len(weighted)
    every = records * (records - 1) // 2 if data.within is None else len(data.pairs)
    roads = data.metric.implying(data.within) is not None  # which make no others of all pairs, so nor does this of many
    if BESIDE_PAIR * every + BESIDE_ENTRY * weighted.size > memory_limit or (roads and records > MAX_RECORDS):
        return
    lists = _Lists.of(data, weighted)
    low = lists.cost.min(axis=1)
    mean = lists.cost.mean(axis=1) - low
    tried: dict[float, float] = {}

    def at(share: float) -> float:
        if share not in tried:
            y = low + share * mean
            tried[share] = lists.bound(y)
            if tried[share] == max(tried.values()):
                offers.offer(NAME, bound=tried[share], proof=Later(lists.proof, y))
        return tried[share]

    best, factor = FIRST_SHARE, 2.0
    while factor > FINEST:
        here = max((best, best / factor, best * factor), key=at)
        best, factor = here, (factor if here != best else math.sqrt(factor))
