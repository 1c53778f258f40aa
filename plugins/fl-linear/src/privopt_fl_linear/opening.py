"""Choose facilities to open: the uncapacitated facility location problem, solved with a proof.

Minimise the sum of opening costs of the facilities opened and of what serving each client from its cheapest one costs.
The number of open facilities may be limited. Branch and bound: the clients' rows are priced out (Lagrange), which
leaves a sum over facilities; its maximum over the prices is the bound of the strong linear program. Prices come from
subgradient ascent, sets from what the relaxation opens, improved by interchange. Facilities whose reduced cost exceeds
the gap are closed, those whose worth does are open for good. Of each client's pairs the cheapest are looked at
(`service_costs`), which proves a bound over all of them.

Sources: Erlenkotter 1978; Beasley 1993 (Lagrangean heuristics for location problems, EJOR 65); Whitaker 1983.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from itertools import count
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Bools, Floats, Ints
from privopt.errors import InfeasibleError, StoppedError
from privopt.execution.clock import check, limit
from privopt_fl_linear import subgradient
from privopt_fl_linear.service_costs import Costs, PairList, Pairs

__all__ = ["BYTES_PER_PAIR", "MAX_PAIRS", "Facilities", "min_pairs", "open_facilities", "proved_bound"]

MAX_PAIRS: Final = 100_000_000
"""Pairs of a facility and a client that are looked at, at most."""
BYTES_PER_PAIR: Final = 120.0
"""That a pair takes, with what sorting them takes."""
ALL_PAIRS: Final = 1_000_000
"""Pairs up to which all are listed at once; else each client's FIRST_PAIRS cheapest are."""
FIRST_PAIRS: Final = 24
ROOT_ROUNDS, NODE_ROUNDS, BATCH_ROUNDS = 1500, 150, 100
PAIRS_PER_BATCH: Final = 200_000_000
"""Pairs that are gone through between two looks at the clock."""
IMPROVED_WITHIN: Final = 0.01
"""Sets of the relaxation that are improved: those that cost at most this share more than the best."""
BINDING_SHARE: Final = 1.0 - 1e-9
"""A price at this share of what pairs omitted cost strives beyond it."""

Report = Callable[[int, float, float], None]
"""Called with nodes of the tree bounded, the lower bound and the cost of the best set."""


@frozen(kw_only=True, eq=False)
class Facilities:
    """Facilities opened, and what is proved of them.

    Attributes:
        facility: (C,) the facility of each client, the cheapest of those opened; ties go to the least.
        opened: facilities opened, ascending; each serves some client.
        objective: what they cost.
        bound: proved lower bound on what any set costs.
        nodes: of the tree that were bounded.
        status: ``"optimal"`` where the gap asked for is met, else ``"feasible"``.
        pairs: that were looked at.
    """

    facility: Ints
    opened: Ints
    objective: float
    bound: float
    nodes: int
    status: str
    pairs: int = 0


def min_pairs(facilities: int, clients: int) -> int:
    """Return the number of pairs that are looked at to begin with."""
    return facilities * clients if facilities * clients <= ALL_PAIRS else min(facilities, FIRST_PAIRS) * clients


def proved_bound(pairs: Pairs, opening: Floats, state: Ints, max_facilities: int, price: Floats) -> float:
    """Return the Lagrangian bound at these prices over all pairs, less all that its sums in doubles may be wrong by.

    Args:
        pairs: those that cost less than the prices may be.
        opening: (F,) >= 0.
        state: (F,) 0 free, 1 open, -1 closed.
        max_facilities: facilities that may be open.
        price: (C,) Lagrange multipliers of the clients; taken to be at most ``pairs.beyond``.
    """
    price = np.minimum(price, pairs.beyond)
    rho, taken = np.zeros(len(opening)), np.zeros(len(opening), np.bool_)
    subgradient.reduced(*pairs.arrays, opening, state, price, rho)
    value: float = float(price.sum()) + subgradient.chosen(state, rho, max_facilities, taken)
    above = np.maximum(price[pairs.client] - pairs.cost, 0.0)
    size = float(np.abs(price).sum() + opening.sum() + (above + 2.0 * (above > 0.0) * pairs.cost).sum())
    return float(value - 2.0 * (len(opening) + len(price) + 8) * float(np.finfo(np.float64).eps) * size)


class _Search:
    """The incumbent, the bound, the pairs that are looked at, and the work on one node."""

    def __init__(
        self, costs: Costs, opening: Floats, max_facilities: int, gap: float, listed: PairList, report: Report
    ) -> None:
        self.costs, self.opening, self.most, self.gap = costs, opening, max_facilities, gap
        self.listed, self.report = listed, report
        self.value, self.taken = math.inf, np.zeros(len(opening), dtype=np.bool_)
        self.lower, self.nodes, self.done = -math.inf, 0, False

    @property
    def pairs(self) -> Pairs:
        """Those listed now."""
        return self.listed.pairs

    @property
    def enough(self) -> float:
        """A bound from which on nothing better than the gap asked for can be found."""
        return self.value * (1.0 - self.gap) if math.isfinite(self.value) else math.inf

    def at_once(self, max_rounds: int) -> int:
        """Return rounds over all pairs between two looks at the clock, at most ``max_rounds``."""
        return int(min(max_rounds, max(5, PAIRS_PER_BATCH // max(1, len(self.pairs.cost)))))

    def priced(self, taken: Bools) -> tuple[float, Ints, Ints]:
        """Return the cost of a set, correctly rounded, who serves whom, and the facilities in use."""
        facility, cost = self.costs.cheapest(np.flatnonzero(taken))
        used = np.unique(facility)
        return math.fsum([*self.opening[used].tolist(), *cost.tolist()]), facility, used

    def offer(self, taken: Bools) -> None:
        """Improve a set by interchange, and keep it where it is the best."""
        better = taken.copy()
        pairs = self.pairs
        subgradient.interchange(*pairs.arrays, pairs.far, self.opening, better, self.most, self.at_once(1000))
        for each in (better, taken):  # clients beyond their pairs are guessed at: the set itself may be the better one
            if not each.any():
                continue
            value, _, used = self.priced(each)
            if value < self.value:
                self.value, self.taken = value, np.isin(np.arange(len(taken)), used)
            if math.isfinite(value) and np.isinf(pairs.beyond).all():
                return

    def target(self, low: float) -> float:
        """Return the value that an ascent steps towards: the best known, or about twice a bound far below it."""
        guess = 2.0 * max(low, 0.0) + float(self.opening.max())
        return min(self.enough * (1 + 1e-9), guess if guess > 0.0 else 1.0)

    def bound(self, state: Ints, price: Floats, rounds: int, scale: float) -> tuple[float, Floats, Floats]:
        """Ascend in a node: its proved bound, the prices that prove it, how often each facility was opened."""
        best, often, left = -math.inf, np.zeros(len(state)), rounds
        while left > 0:
            pairs, batch, target = self.pairs, self.at_once(BATCH_ROUNDS), self.target(max(best, float(price.sum())))
            left -= batch
            _, better, often, taken, value = subgradient.ascend(
                *pairs.arrays, pairs.beyond, pairs.far, self.opening, state, self.most, price.copy(), target, batch,
                scale,
            )  # fmt: skip
            if value < self.value * (1.0 + IMPROVED_WITHIN) and taken.any():
                self.offer(taken)
            proved = proved_bound(pairs, self.opening, state, self.most, better)
            gained = proved - best
            if gained > 0.0:
                best, price = proved, better
            self.lower = max(self.lower, best) if self.nodes == 0 else self.lower
            self.report(self.nodes, self.lower, self.value)
            if best >= self.enough:
                break
            check()
            if gained <= 1e-5 * (target - best):
                if not self.listed.extend(price >= BINDING_SHARE * pairs.beyond):
                    break
                left, scale = max(left, BATCH_ROUNDS), max(0.4, scale)  # prices that may rise again
            else:
                scale = max(0.05, 0.75 * scale)
        return best, price, often

    def fixed(self, state: Ints, price: Floats) -> Ints:
        """Return a node's states with those facilities closed or opened for good whose other choice costs too much.

        Reduced costs are used alone if the limit on open facilities does not bind in the relaxation.
        """
        rho, free = np.zeros(len(state)), state == 0
        subgradient.reduced(*self.pairs.arrays, self.opening, state, price, rho)
        if int((state == 1).sum() + (free & (rho < 0.0)).sum()) > self.most:
            return state
        room = self.enough - proved_bound(self.pairs, self.opening, state, self.most, price)
        room += 1e-9 * abs(self.value)  # reduced costs are sums in doubles
        after = state.copy()
        after[free & (rho > room)] = -1
        after[free & (rho < -room)] = 1
        return after


def open_facilities(
    costs: Costs,
    opening: Floats,
    *,
    max_facilities: int | None = None,
    gap: float = 1e-6,
    seconds: float | None = None,
    report: Report = lambda nodes, lower, upper: None,
    few: int | None = None,
    max_pairs: int = MAX_PAIRS,
) -> Facilities:
    """Choose the facilities to open.

    Args:
        costs: of serving C clients from F facilities, >= 0; infinite ones are pairs that may not be.
        opening: (F,) of opening a facility, >= 0; 0 for those that exist.
        max_facilities: that may be open; default: any number.
        gap: relative gap at which to stop.
        seconds: that the search may take once a first set was found.
        report: called with ``(nodes, lower, upper)``.
        few: cheapest pairs of each client that are looked at first; default: all of them up to `ALL_PAIRS` in all.
        max_pairs: that are ever looked at; fewer may leave a gap, never a bound that is not one.

    Raises:
        InfeasibleError: every set leaves a client whom none of its facilities may serve.
        StoppedError: none was found in time that serves all.
    """
    facilities, clients = costs.shape
    opening = np.ascontiguousarray(opening, dtype=np.float64)
    most = facilities if max_facilities is None else min(max_facilities, facilities)
    few = -(-min_pairs(facilities, clients) // clients) if few is None else few
    search = _Search(costs, opening, most, gap, PairList(costs, opening, few, max_pairs), report)
    search.offer(np.arange(facilities) == int(np.argmin(opening)))
    least = np.full(clients, np.inf)
    np.minimum.at(least, search.pairs.client, search.pairs.cost)
    if np.isinf(least).any():
        raise InfeasibleError(f"{int(np.isinf(least).sum())} of {clients} clients are served by no facility at all")
    search.lower = proved_bound(search.pairs, opening, np.zeros(facilities, dtype=np.int64), most, least)
    with limit(seconds):
        _branch(search, least)
    if not search.taken.any():
        if search.done:
            raise InfeasibleError(f"no {most} facilities may serve all {clients} clients")
        raise StoppedError("no facilities that may serve all clients were found in time; nothing written")
    value, facility, used = search.priced(search.taken)
    return Facilities(
        facility=facility,
        opened=used,
        objective=value,
        bound=min(value, search.lower),
        nodes=search.nodes,
        status="optimal" if search.done else "feasible",
        pairs=len(search.pairs.cost),
    )


def _branch(search: _Search, first_prices: Floats) -> None:
    """Branch and bound from the prices ``first_prices``, until the gap asked for is met or time is over."""
    state = np.zeros(len(search.opening), dtype=np.int64)
    bound, price, often = search.bound(state, first_prices, ROOT_ROUNDS, 1.5)
    numbers = count()
    heap = [(bound, next(numbers), state, price, often)]
    search.lower, search.nodes = bound, 1
    while heap and heap[0][0] < search.enough:
        check()
        bound, _, state, price, often = heapq.heappop(heap)
        state = search.fixed(state, price)
        free = np.flatnonzero(state == 0)
        if len(free) == 0:
            search.offer(state == 1)  # the one set of this node
        else:
            share = often[free] / max(float(often.max()), 1.0)
            branch = free[int(np.lexsort((-search.opening[free], np.abs(share - 0.5)))[0])]
            for side in (1, -1):
                child = state.copy()
                child[branch] = side
                if (child == 1).sum() > search.most or not (child >= 0).any():
                    continue
                low, prices, counted = search.bound(child, price, NODE_ROUNDS, 0.4)
                low, search.nodes = max(low, bound), search.nodes + 1
                if low < search.enough:
                    heapq.heappush(heap, (low, next(numbers), child, prices, counted))
        search.lower = min(search.enough, heap[0][0] if heap else math.inf)
    search.done = True
