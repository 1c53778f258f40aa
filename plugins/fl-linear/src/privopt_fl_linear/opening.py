"""Which facilities to open: the uncapacitated facility location problem, solved with a proof.

Minimise the sum of opening costs of the facilities opened and of what serving each location from its cheapest one
costs, with at most so many opened. Branch and bound: the locations' rows are priced out (Lagrange), which leaves a sum
over facilities; its maximum over the prices is the bound of the strong linear program. Prices come from subgradient
ascent, sets from what the relaxation opens, improved by interchange. Facilities whose reduced cost exceeds the gap are
closed, those whose worth does are open for good.

Sources: Erlenkotter 1978; Beasley 1993 (Lagrangean heuristics for location problems, EJOR 65); Whitaker 1983.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable
from itertools import count
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Bools, Floats, Ints

__all__ = ["MOST_ENTRIES", "Opened", "open_facilities", "proved_bound"]

MOST_ENTRIES: Final = 100_000_000
"""Pairs of a facility and a location that the table of costs may have: 800 MB."""
FIRST_ROUNDS, ROUNDS, BATCH = 1500, 150, 100
NEAR: Final = 0.01
"""Sets of the relaxation that are improved: those that cost at most so much more than the best."""


@frozen(kw_only=True, eq=False)
class Opened:
    """Facilities opened, and what is proved of them.

    Attributes:
        facility: (C,) the facility of each location, the cheapest of those opened; ties go to the least.
        opened: facilities opened, ascending; each serves some location.
        objective: what they cost.
        bound: proved lower bound on what any set costs.
        nodes: of the tree that were bounded.
        status: ``"optimal"`` where the gap asked for is met, else ``"feasible"``.
    """

    facility: Ints
    opened: Ints
    objective: float
    bound: float
    nodes: int
    status: str


def proved_bound(cost: Floats, opening: Floats, state: Ints, most: int, price: Floats) -> float:
    """The Lagrangian bound at these prices, less all that its sums in doubles may be wrong by.

    Args:
        cost: (F, C) of serving a location from a facility, >= 0.
        opening: (F,) >= 0.
        state: (F,) 0 free, 1 open, -1 closed.
        most: facilities that may be open.
        price: (C,) Lagrange multipliers of the locations.
    """
    from privopt_fl_linear import subgradient

    rho, taken = np.zeros(len(opening)), np.zeros(len(opening), np.bool_)
    subgradient.reduced(cost, opening, state, price, rho)
    value: float = float(price.sum()) + subgradient.chosen(state, rho, most, taken)
    size = float(np.abs(price).sum() + opening.sum() + np.maximum(price - cost.min(axis=0), 0.0).sum() * len(opening))
    return float(value - 2.0 * (cost.shape[0] + cost.shape[1] + 8) * float(np.finfo(np.float64).eps) * size)


def _priced(cost: Floats, opening: Floats, taken: Bools) -> tuple[float, Ints, Ints]:
    """What a set costs, correctly rounded, who serves whom, and the facilities in use."""
    among = np.flatnonzero(taken)
    facility = among[np.argmin(cost[among], axis=0)]
    used = np.unique(facility)
    return math.fsum([*opening[used].tolist(), *cost[facility, np.arange(cost.shape[1])].tolist()]), facility, used


class _Search:
    """The incumbent, and the work on one node."""

    def __init__(self, cost: Floats, opening: Floats, most: int, gap: float, out_of_time: Callable[[], bool]) -> None:
        self.cost, self.opening, self.most, self.gap, self.out_of_time = cost, opening, most, gap, out_of_time
        self.value, self.taken = math.inf, np.zeros(len(opening), dtype=np.bool_)

    @property
    def enough(self) -> float:
        """A bound from which on nothing better than the gap asked for can be found."""
        return self.value * (1.0 - self.gap) if math.isfinite(self.value) else math.inf

    def offer(self, taken: Bools) -> None:
        """Improve a set by interchange, and keep it where it is the best."""
        from privopt_fl_linear import subgradient

        taken = taken.copy()
        subgradient.interchange(self.cost, self.opening, taken, self.most)
        value, _, used = _priced(self.cost, self.opening, taken)
        if value < self.value:
            self.value, self.taken = value, np.isin(np.arange(len(taken)), used)

    def bound(self, state: Ints, price: Floats, rounds: int, scale: float) -> tuple[float, Floats, Floats]:
        """Ascend in a node: its proved bound, the prices that prove it, how often each facility was opened."""
        from privopt_fl_linear import subgradient

        best, often = -math.inf, np.zeros(len(state))
        for _ in range(max(1, rounds // BATCH)):
            _, better, often, taken, value = subgradient.ascend(
                self.cost, self.opening, state, self.most, price.copy(), self.enough * (1 + 1e-9), BATCH, scale
            )
            if value < self.value * (1.0 + NEAR) and taken.any():
                self.offer(taken)
            proved = proved_bound(self.cost, self.opening, state, self.most, better)
            gained = proved - best
            if gained > 0.0:
                best, price = proved, better
            if best >= self.enough or self.out_of_time() or gained <= 1e-5 * (self.enough - best):
                break
            scale = max(0.05, 0.75 * scale)
        return best, price, often

    def fixed(self, state: Ints, price: Floats) -> Ints:
        """A node's states with those facilities closed or opened for good whose other choice costs too much.

        Reduced costs stand alone where the limit on how many are open does not bind in the relaxation.
        """
        from privopt_fl_linear import subgradient

        rho, free = np.zeros(len(state)), state == 0
        subgradient.reduced(self.cost, self.opening, state, price, rho)
        if int((state == 1).sum() + (free & (rho < 0.0)).sum()) > self.most:
            return state
        room = self.enough - proved_bound(self.cost, self.opening, state, self.most, price)
        room += 1e-9 * abs(self.value)  # reduced costs are sums in doubles
        after = state.copy()
        after[free & (rho > room)] = -1
        after[free & (rho < -room)] = 1
        return after


def open_facilities(
    cost: Floats,
    opening: Floats,
    *,
    most: int | None = None,
    gap: float = 1e-6,
    deadline: float | None = None,
    report: Callable[[int, float, float], None] | None = None,
) -> Opened:
    """Choose the facilities to open.

    Args:
        cost: (F, C) of serving a location from a facility, finite and >= 0.
        opening: (F,) of opening a facility, >= 0; 0 for those that exist.
        most: facilities that may be open; left out: any number.
        gap: relative gap at which to stop.
        deadline: :func:`time.monotonic` value to stop at.
        report: told ``(nodes, lower, upper)``.
    """
    cost, opening = np.ascontiguousarray(cost, dtype=np.float64), np.ascontiguousarray(opening, dtype=np.float64)
    facilities = len(opening)
    most = facilities if most is None else min(most, facilities)
    search = _Search(cost, opening, most, gap, lambda: deadline is not None and time.monotonic() >= deadline)
    alone = np.zeros(facilities, dtype=np.bool_)
    alone[int(np.argmin(opening + cost.sum(axis=1)))] = True
    search.offer(alone)
    state = np.zeros(facilities, dtype=np.int64)
    bound, price, often = search.bound(state, cost.min(axis=0).copy(), FIRST_ROUNDS, 1.5)
    numbers, nodes = count(), 1
    heap = [(bound, next(numbers), state, price, often)]
    while heap and heap[0][0] < search.enough and not search.out_of_time():
        bound, _, state, price, often = heapq.heappop(heap)
        state = search.fixed(state, price)
        free = np.flatnonzero(state == 0)
        if len(free) == 0:
            search.offer(state == 1)  # the one set of this node
            continue
        share = often[free] / max(float(often.max()), 1.0)
        branch = free[int(np.lexsort((-opening[free], np.abs(share - 0.5)))[0])]
        for side in (1, -1):
            child = state.copy()
            child[branch] = side
            if (child == 1).sum() > most or not (child >= 0).any():
                continue
            low, prices, counted = search.bound(child, price, ROUNDS, 0.4)
            low, nodes = max(low, bound), nodes + 1
            if low < search.enough:
                heapq.heappush(heap, (low, next(numbers), child, prices, counted))
            if report is not None:
                report(nodes, min(bound, search.value), search.value)
    value, facility, used = _priced(cost, opening, search.taken)
    least = min([search.enough, *(entry[0] for entry in heap[:1])])
    done = not heap or heap[0][0] >= search.enough
    return Opened(
        facility=facility,
        opened=used,
        objective=value,
        bound=min(value, least),
        nodes=nodes,
        status="optimal" if done else "feasible",
    )
