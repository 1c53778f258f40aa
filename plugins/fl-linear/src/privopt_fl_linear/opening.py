"""Uncapacitated facility location by branch and bound, with a proved bound on the optimal cost.

The objective is the cost of opening facilities plus the cost of serving each client from its cheapest open facility.
The number of open facilities may be limited. The constraint that each client is served exactly once is relaxed with a
Lagrange multiplier per client, called its price. The relaxation then decomposes into a sum over facilities. Its maximum
over the prices equals the bound of the strong linear programming relaxation and is approached by subgradient ascent.
Feasible sets are found by interchange, which improves the set of facilities opened by the relaxation. It adds, drops or
swaps one facility at a time.

The best set so far is called the incumbent. A facility is closed for good if its reduced cost rho exceeds the gap
between the incumbent and the bound, and opened for good if -rho exceeds this gap. Only the cheapest pairs of each
client are listed (`service_costs`), but they suffice to prove a bound over all pairs.

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
from privopt.errors import InfeasibleError, StoppedError, number_of
from privopt.execution.clock import check, limit
from privopt_fl_linear import subgradient
from privopt_fl_linear.service_costs import Costs, PairList, Pairs

__all__ = ["BYTES_PER_PAIR", "MAX_PAIRS", "Facilities", "min_pairs", "open_facilities", "proved_bound"]

MAX_PAIRS: Final = 100_000_000
"""The maximum number of listed (facility, client) pairs."""
BYTES_PER_PAIR: Final = 120.0
"""The peak memory per listed pair, in bytes, including the memory needed to sort the pairs."""
ALL_PAIRS: Final = 1_000_000
"""The maximum number of (facility, client) pairs for which all pairs are listed from the start.

If there are more, only each client's `FIRST_PAIRS` cheapest pairs are listed at first.
"""
FIRST_PAIRS: Final = 24
"""The initial number of listed pairs per client, unless all pairs are listed."""
ROOT_ROUNDS, NODE_ROUNDS, BATCH_ROUNDS = 1500, 150, 100
"""The maximum number of subgradient steps at the root, at any other node, and between two checks of the clock."""
PAIRS_PER_BATCH: Final = 200_000_000
"""The number of pairs to process between two checks of the clock."""
IMPROVED_WITHIN: Final = 0.01
"""The largest relative excess over the incumbent's cost at which a set opened by the relaxation is still improved.

Such a set is improved by interchange, which means adding, dropping or swapping one facility at a time.
"""
BINDING_SHARE: Final = 1.0 - 1e-9
"""The fraction of a client's lowest omitted cost at which its price starts to count as limited by omitted pairs."""

Report = Callable[[int, float, float], None]
"""A progress callback, called with the number of nodes bounded so far, the lower bound and the incumbent's cost."""


@frozen(kw_only=True, eq=False)
class Facilities:
    """A solution of a facility location problem, with a proved lower bound on the optimal cost.

    Attributes:
        facility: (C,) The index of the facility that serves each client. Without capacities, it is the cheapest open
            one, and ties go to the lowest index.
        opened: The indices of the open facilities in ascending order. Each of them serves at least one client.
        objective: The cost of opening the facilities and serving all clients.
        bound: The proved lower bound on the cost of any feasible solution.
        nodes: The number of nodes of the search tree for which a bound was computed.
        status: ``"optimal"`` if the requested gap was reached, otherwise ``"feasible"``.
        pairs: The number of (facility, client) pairs that were considered explicitly.
    """

    facility: Ints
    opened: Ints
    objective: float
    bound: float
    nodes: int
    status: str
    pairs: int = 0


def min_pairs(facilities: int, clients: int) -> int:
    """Return the number of (facility, client) pairs that the search initially considers explicitly.

    All pairs are considered if there are at most `ALL_PAIRS` of them. Otherwise, only each client's `FIRST_PAIRS`
    cheapest pairs are considered.
    """
    return facilities * clients if facilities * clients <= ALL_PAIRS else min(facilities, FIRST_PAIRS) * clients


def proved_bound(pairs: Pairs, opening: Floats, state: Ints, max_facilities: int, price: Floats) -> float:
    """Return the Lagrangian bound at the given prices, a proved lower bound on the cost of any set of facilities.

    The bound takes all pairs into account, not only the listed ones. The largest possible rounding error of its
    floating-point sums is subtracted.

    Args:
        pairs: The listed pairs.
        opening: (F,) The non-negative opening costs.
        state: (F,) 0 for a free facility, 1 for an open one, or -1 for a closed one. The bound is valid for all sets
            that agree with it.
        max_facilities: The maximum number of open facilities.
        price: (C,) The Lagrange multipliers of the clients, which are capped at ``pairs.omitted_cost``.
    """
    # A pair contributes only if its cost is below the client's price. Prices are capped at the lowest cost of an
    # omitted pair, so omitted pairs contribute nothing.
    price = np.minimum(price, pairs.omitted_cost)
    rho, is_open = np.zeros(len(opening)), np.zeros(len(opening), np.bool_)
    subgradient.compute_reduced_costs(*pairs.arrays, opening, state, price, rho)
    value: float = float(price.sum()) + subgradient.select_facilities(state, rho, max_facilities, is_open)
    excess = np.maximum(price[pairs.client] - pairs.cost, 0.0)
    # A sum of doubles is off by at most (number of terms) * eps * (sum of the absolute values of the terms). For a
    # pair, these add up to price + cost = excess + 2 cost.
    size = float(np.abs(price).sum() + opening.sum() + (excess + 2.0 * (excess > 0.0) * pairs.cost).sum())
    return float(value - 2.0 * (len(opening) + len(price) + 8) * float(np.finfo(np.float64).eps) * size)


class _Search:
    """The state of a branch-and-bound search, including the incumbent, the lower bound and the listed pairs.

    The incumbent is the best set of facilities found so far. A node of the search tree is an (F,) array ``state`` with
    0 for a free facility, 1 for an open one, or -1 for a closed one.

    Attributes:
        costs: The costs of serving C clients from F facilities.
        opening: (F,) The cost of opening each facility.
        gap: The relative gap between incumbent and bound at which the search stops.
        report: The progress callback (`Report`).
        facility_limit: The maximum number of open facilities.
        pair_list: The listed (facility, client) pairs. More are added if the bound needs them.
        value: The cost of the incumbent, which is infinite before the first set is found.
        is_open: (F,) Whether each facility is open in the incumbent.
        lower: The proved lower bound on the cost of any set.
        nodes: The number of nodes for which a bound was computed.
        is_done: Whether the search ended because the gap was reached or no nodes remained.
    """

    def __init__(
        self, costs: Costs, opening: Floats, max_facilities: int, gap: float, pair_list: PairList, report: Report
    ) -> None:
        """Start a search without an incumbent. The parameters are documented as attributes of the class."""
        self.costs, self.opening, self.facility_limit, self.gap = costs, opening, max_facilities, gap
        self.pair_list, self.report = pair_list, report
        self.value, self.is_open = math.inf, np.zeros(len(opening), dtype=np.bool_)
        self.lower, self.nodes, self.is_done = -math.inf, 0, False

    @property
    def pairs(self) -> Pairs:
        """The currently listed pairs."""
        return self.pair_list.pairs

    @property
    def bound_goal(self) -> float:
        """The smallest lower bound at which the incumbent meets the requested gap. Infinite without an incumbent."""
        return self.value * (1.0 - self.gap) if math.isfinite(self.value) else math.inf

    def rounds_at_once(self, max_rounds: int) -> int:
        """Return the number of rounds to run between two checks of the clock, at most ``max_rounds``.

        A round processes every listed pair, so the more pairs there are, the fewer rounds are run. The result is at
        least 5 unless ``max_rounds`` is smaller.
        """
        return int(min(max_rounds, max(5, PAIRS_PER_BATCH // max(1, len(self.pairs.cost)))))

    def evaluate_set(self, is_open: Bools) -> tuple[float, Ints, Ints]:
        """Return a set's correctly rounded cost, the facility that serves each client, and the facilities in use.

        ``is_open`` is the (F,) mask of the set. All pairs are considered, not only the listed ones. Facilities that
        serve no client are not in use, and the cost of opening them is not included.
        """
        facility, cost = self.costs.cheapest(np.flatnonzero(is_open))
        used_facilities = np.unique(facility)
        return math.fsum([*self.opening[used_facilities].tolist(), *cost.tolist()]), facility, used_facilities

    def offer_set(self, is_open: Bools) -> None:
        """Improve a set of facilities by interchange, and keep it if it is cheaper than the incumbent.

        Interchange adds, drops or swaps one facility at a time. The original set is kept if it turns out to be cheaper
        than the improved one. ``is_open`` is the (F,) mask of the set.
        """
        improved = is_open.copy()  # interchange() makes at most about 1000 moves in place
        pairs = self.pairs
        subgradient.interchange(
            *pairs.arrays, pairs.fallback_cost, self.opening, improved, self.facility_limit, self.rounds_at_once(1000)
        )
        # Interchange only estimates the costs of omitted pairs, so the original set may turn out to be better.
        for candidate in (improved, is_open):
            if not candidate.any():
                continue
            value, _, used_facilities = self.evaluate_set(candidate)
            if value < self.value:
                self.value, self.is_open = value, np.isin(np.arange(len(is_open)), used_facilities)
            # If all pairs are listed, interchange worked with true costs, so the original set cannot be better.
            if math.isfinite(value) and np.isinf(pairs.omitted_cost).all():
                return

    def choose_target(self, lower: float) -> float:
        """Return the target value for Polyak's step length.

        The target is slightly above the bound that would end the search, but is capped at about twice ``lower``, the
        best bound so far. The cap prevents overly long steps while the incumbent is still far from optimal.
        """
        # Adding the largest opening cost keeps the target above 0 even if the bound is 0. The factor 1 + 1e-9 lets the
        # ascent pass the goal in spite of rounding errors.
        guess = 2.0 * max(lower, 0.0) + float(self.opening.max())
        return min(self.bound_goal * (1 + 1e-9), guess if guess > 0.0 else 1.0)

    def bound_node(self, state: Ints, price: Floats, rounds: int, scale: float) -> tuple[float, Floats, Floats]:
        """Compute a lower bound for a node by subgradient ascent.

        During the ascent, the relaxation opens sets of facilities. Promising ones are passed to :meth:`offer_set`.

        Args:
            state: (F,) The node.
            price: (C,) The initial prices, such as those of the parent node.
            rounds: The maximum number of subgradient steps. Whenever pairs are added, at least one more batch of steps
                follows.
            scale: The initial factor of Polyak's step length, which is reduced after each batch as long as the bound
                rises.

        Returns:
            The proved bound, the (C,) prices that prove it, and an (F,) array that counts how often the relaxation
            opened each facility in the last batch of steps.

        Raises:
            OutOfTime: The enclosing time limit expired.
        """
        best_bound, open_counts, remaining_rounds = -math.inf, np.zeros(len(state)), rounds
        while remaining_rounds > 0:
            pairs, batch, target = (
                self.pairs,
                self.rounds_at_once(BATCH_ROUNDS),
                self.choose_target(max(best_bound, float(price.sum()))),
            )
            remaining_rounds -= batch
            _, new_price, open_counts, is_open, value = subgradient.ascend(
                *pairs.arrays, pairs.omitted_cost, pairs.fallback_cost, self.opening, state, self.facility_limit,
                price.copy(), target, batch, scale,
            )  # fmt: skip
            if value < self.value * (1.0 + IMPROVED_WITHIN) and is_open.any():
                self.offer_set(is_open)
            # The bound computed by the ascent has rounding errors, whereas this one is safe.
            new_bound = proved_bound(pairs, self.opening, state, self.facility_limit, new_price)
            gain = new_bound - best_bound
            if gain > 0.0:
                best_bound, price = new_bound, new_price
            # Before any node is counted, this is the root, whose bound is valid for the whole problem.
            self.lower = max(self.lower, best_bound) if self.nodes == 0 else self.lower
            self.report(self.nodes, self.lower, self.value)
            if best_bound >= self.bound_goal:
                break
            check()
            # A batch that closes less than 1e-5 of the distance to the target has stalled. If omitted pairs limit some
            # prices, more pairs are listed for these clients. Otherwise the ascent is finished.
            if gain <= 1e-5 * (target - best_bound):
                if not self.pair_list.extend_pairs(price >= BINDING_SHARE * pairs.omitted_cost):
                    break
                # With more pairs, prices may rise again, so another batch is run with longer steps.
                remaining_rounds, scale = max(remaining_rounds, BATCH_ROUNDS), max(0.4, scale)
            else:
                scale = max(0.05, 0.75 * scale)
        return best_bound, price, open_counts

    def fix_facilities(self, state: Ints, price: Floats) -> Ints:
        """Use reduced costs to fix free facilities of a node as open or closed, and return the new node.

        Opening a free facility with reduced cost rho > 0 raises the node's bound by rho, and closing one with rho < 0
        raises it by -rho. If the raised bound exceeds the goal, the facility is fixed in the opposite state. This is
        only valid if the limit on open facilities does not bind in the relaxation, so if it binds, ``state`` is
        returned unchanged.

        Args:
            state: (F,) The node: 0 for a free facility, 1 for an open one, or -1 for a closed one.
            price: (C,) The prices that prove the node's bound.
        """
        rho, is_free = np.zeros(len(state)), state == 0
        subgradient.compute_reduced_costs(*self.pairs.arrays, self.opening, state, price, rho)
        if int((state == 1).sum() + (is_free & (rho < 0.0)).sum()) > self.facility_limit:
            return state
        slack = self.bound_goal - proved_bound(self.pairs, self.opening, state, self.facility_limit, price)
        slack += 1e-9 * abs(self.value)  # covers rounding errors in reduced costs, which are sums of doubles
        new_state = state.copy()
        new_state[is_free & (rho > slack)] = -1
        new_state[is_free & (rho < -slack)] = 1
        return new_state


def open_facilities(
    costs: Costs,
    opening: Floats,
    *,
    max_facilities: int | None = None,
    gap: float = 1e-6,
    seconds: float | None = None,
    report: Report = lambda nodes, lower, upper: None,
    pairs_per_client: int | None = None,
    max_pairs: int = MAX_PAIRS,
) -> Facilities:
    """Choose the facilities that minimise the cost of opening them and serving all clients, by branch and bound.

    Args:
        costs: The non-negative costs of serving C clients from F facilities, infinite for pairs that are not allowed.
        opening: (F,) The non-negative cost of opening each facility, which is 0 for existing facilities.
        max_facilities: The maximum number of open facilities, or None for no limit.
        gap: The relative gap at which the search stops.
        seconds: The time limit for the search in seconds, or None for no limit. The clock starts once the first set of
            facilities has been evaluated.
        report: The progress callback (`Report`).
        pairs_per_client: The initial number of listed pairs per client. By default, all pairs are listed if there are
            at most `ALL_PAIRS`, and otherwise `FIRST_PAIRS` per client.
        max_pairs: The maximum number of listed pairs. If it is small, the gap may not close, but the bound remains
            valid.

    Returns:
        The best set found. Facilities and clients are identified by their indices in ``costs``.

    Raises:
        InfeasibleError: Every set of facilities leaves at least one client unserved.
        StoppedError: No set that serves all clients was found within the time limit.
    """
    facilities, clients = costs.shape
    opening = np.ascontiguousarray(opening, dtype=np.float64)
    facility_limit = facilities if max_facilities is None else min(max_facilities, facilities)
    # -(-a // b) is a / b rounded up.
    pairs_per_client = -(-min_pairs(facilities, clients) // clients) if pairs_per_client is None else pairs_per_client
    search = _Search(costs, opening, facility_limit, gap, PairList(costs, opening, pairs_per_client, max_pairs), report)
    # The first set is grown from the facility with the lowest opening cost. In this way there usually is an incumbent
    # before the time limit starts to run.
    search.offer_set(np.arange(facilities) == int(np.argmin(opening)))
    # If each client's price is its lowest cost, no pair has a cost below the price. This yields a first bound without
    # any ascent.
    min_costs = np.full(clients, np.inf)
    np.minimum.at(min_costs, search.pairs.client, search.pairs.cost)
    if np.isinf(min_costs).any():
        raise InfeasibleError(
            f"no facility at all serves {int(np.isinf(min_costs).sum())} of {number_of(clients, 'client')}"
        )
    search.lower = proved_bound(search.pairs, opening, np.zeros(facilities, dtype=np.int64), facility_limit, min_costs)
    with limit(seconds):
        _search_tree(search, min_costs)
    if not search.is_open.any():
        if search.is_done:
            raise InfeasibleError(
                f"{number_of(clients, 'client')} cannot be served by {number_of(facility_limit, 'facility')}"
            )
        raise StoppedError("no facilities that can serve all clients were found in time; nothing written")
    # The set is evaluated again over all pairs, because the search may have estimated some costs.
    value, facility, used_facilities = search.evaluate_set(search.is_open)
    return Facilities(
        facility=facility,
        opened=used_facilities,
        objective=value,
        bound=min(value, search.lower),
        nodes=search.nodes,
        status="optimal" if search.is_done else "feasible",
        pairs=len(search.pairs.cost),
    )


def _search_tree(search: _Search, first_prices: Floats) -> None:
    """Run branch and bound, always exploring the node with the lowest bound, and store the results in ``search``.

    The search ends when the gap is reached or no nodes remain. ``search.is_done`` is then set to True, but remains
    False if the time limit expires first. The subgradient ascent at the root starts from the (C,) client prices
    ``first_prices``.
    """
    state = np.zeros(len(search.opening), dtype=np.int64)
    bound, price, open_counts = search.bound_node(state, first_prices, rounds=ROOT_ROUNDS, scale=1.5)
    # Consecutive numbers break ties between equal bounds, because the arrays of two nodes cannot be compared.
    numbers = count()
    heap = [(bound, next(numbers), state, price, open_counts)]
    search.lower, search.nodes = bound, 1
    while heap and heap[0][0] < search.bound_goal:
        check()
        bound, _, state, price, open_counts = heapq.heappop(heap)
        state = search.fix_facilities(state, price)
        free = np.flatnonzero(state == 0)
        if len(free) == 0:
            search.offer_set(state == 1)  # the only set at this node
        else:
            open_shares = open_counts[free] / max(float(open_counts.max()), 1.0)
            # Branch on the facility that the relaxation opened about half as often as the most frequent one. Ties go to
            # the facility that costs most to open.
            facility = free[int(np.lexsort((-search.opening[free], np.abs(open_shares - 0.5)))[0])]
            for choice in (1, -1):
                child = state.copy()
                child[facility] = choice
                # A child with too many open facilities, or with all facilities closed, has no solution.
                if (child == 1).sum() > search.facility_limit or not (child >= 0).any():
                    continue
                child_bound, child_price, child_counts = search.bound_node(child, price, rounds=NODE_ROUNDS, scale=0.4)
                # The parent's bound is valid for the child as well, and may be better if the child's ascent ended
                # early.
                child_bound, search.nodes = max(child_bound, bound), search.nodes + 1
                if child_bound < search.bound_goal:
                    heapq.heappush(heap, (child_bound, next(numbers), child, child_price, child_counts))
        # The smallest bound of the remaining nodes is a lower bound, because every node that was dropped has a bound of
        # at least the goal.
        search.lower = min(search.bound_goal, heap[0][0] if heap else math.inf)
    search.is_done = True
