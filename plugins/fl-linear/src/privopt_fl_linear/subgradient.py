"""Compiled functions for facility location, which compute Lagrangian bounds and improve sets of facilities.

All functions work on F facilities, C clients, and a list of (facility, client) pairs with their costs, which are given
as these arrays:

* ``start`` (F + 1,), ``client`` (E,), ``cost`` (E,): the pairs of facility i are at indices ``start[i]`` to
  ``start[i + 1] - 1`` in ``client`` and ``cost``.
* ``omitted_cost`` (C,): a lower bound on the cost of each client's pairs that are not listed.
* ``fallback_cost`` (C,): the cost assumed for each client if none of its listed facilities is open.
* ``opening`` (F,): the cost of opening each facility.
* ``state`` (F,): 0 for a free facility, 1 for an open one, or -1 for a closed one.
* ``price`` (C,): the Lagrange multiplier of the constraint that the client is served by exactly one facility.

See :class:`privopt_fl_linear.service_costs.Pairs`.
"""

from __future__ import annotations

import numpy as np

from privopt.arrays import Bools, Floats, Ints
from privopt.execution.compiled import jit


@jit()
def compute_reduced_costs(
    start: Ints, client: Ints, cost: Floats, opening: Floats, state: Ints, price: Floats, rho: Floats
) -> None:
    """Compute the reduced cost of each facility that is not closed, i.e. the change in the Lagrangian if it is opened.

    The reduced cost is rho_i = opening_i + sum over clients v of min(0, cost_iv - price_v). It is written to the (F,)
    array ``rho``. Entries of closed facilities are left unchanged.

    Args:
        start, client, cost: The listed pairs, ordered by facility. The pairs of facility i are at indices ``start[i]``
            to ``start[i + 1] - 1`` in ``client`` (E,) and ``cost`` (E,).
        opening: (F,) The cost of opening each facility.
        state: (F,) The state of each facility, which is -1 if it is closed.
        price: (C,) The Lagrange multipliers of the clients.
        rho: (F,) The output array.
    """
    for i in range(len(start) - 1):
        if state[i] >= 0:
            total = 0.0
            for e in range(start[i], start[i + 1]):
                total += min(0.0, cost[e] - price[client[e]])
            rho[i] = opening[i] + total


@jit()
def select_facilities(state: Ints, rho: Floats, max_facilities: int, is_open: Bools) -> float:
    """Mark the facilities that are open in the Lagrangian relaxation, and return the sum of their reduced costs.

    The relaxation opens all facilities whose state is open. Then it opens free facilities with a negative reduced cost,
    in ascending order of that cost, until ``max_facilities`` are open. The returned sum plus the sum of the prices is
    the Lagrangian bound.

    Args:
        state: (F,) 0 for a free facility, 1 for an open one, or -1 for a closed one.
        rho: (F,) The reduced costs (see `compute_reduced_costs`).
        max_facilities: The maximum number of open facilities.
        is_open: (F,) The output array, which says whether the relaxation opens each facility.
    """
    total, remaining = 0.0, max_facilities
    for i in range(len(state)):
        is_open[i] = state[i] == 1
        if is_open[i]:
            total += rho[i]
            remaining -= 1
    candidates = np.flatnonzero((state == 0) & (rho < 0.0))
    # If the limit binds, opening the facilities with the smallest reduced costs minimises the relaxation.
    if len(candidates) > remaining:
        candidates = candidates[np.argsort(rho[candidates], kind="mergesort")[: max(remaining, 0)]]
    for position in range(len(candidates)):
        is_open[candidates[position]] = True
        total += rho[candidates[position]]
    return total


@jit()
def ascend(
    start: Ints, client: Ints, cost: Floats, omitted_cost: Floats, fallback_cost: Floats, opening: Floats, state: Ints,
    max_facilities: int, price: Floats, target: float, rounds: int, scale: float,
) -> tuple[float, Floats, Floats, Bools, float]:  # fmt: skip
    """Raise the Lagrangian bound by subgradient steps on the clients' prices, using Polyak's step length.

    Every eighth set of facilities that the relaxation opens is evaluated as a candidate solution.

    Args:
        start, client, cost: The listed pairs, ordered by facility. The pairs of facility i are at indices ``start[i]``
            to ``start[i + 1] - 1`` in ``client`` (E,) and ``cost`` (E,).
        omitted_cost: (C,) A lower bound on the cost of each client's pairs that are not listed.
        fallback_cost: (C,) The cost assumed for each client if none of its listed facilities is open.
        opening: (F,) The cost of opening each facility.
        state: (F,) 0 for a free facility, 1 for an open one, or -1 for a closed one.
        max_facilities: The maximum number of open facilities.
        price: (C,) The initial prices. The array is overwritten. No price is raised above ``omitted_cost``.
        target: The bound at which the ascent ends, in the same units as the costs. It also determines Polyak's step
            length.
        rounds: The maximum number of steps.
        scale: The initial factor of Polyak's step length, usually from 0.05 to 2.

    Returns:
        A tuple of five values. The first two are the best bound, computed in double precision without an allowance for
        rounding errors, and the (C,) prices that yield it. The third is an (F,) array that counts how often each
        facility was opened in the second half of the rounds. The last two are the (F,) mask and the cost of the
        cheapest set that was evaluated.
    """
    F, C = len(start) - 1, len(price)
    rho, is_open, served = np.zeros(F), np.zeros(F, np.bool_), np.zeros(C)
    best, best_price = -np.inf, price.copy()
    open_counts = np.zeros(F)
    incumbent, value = np.zeros(F, np.bool_), np.inf
    stale = 0  # number of rounds without any rise of the bound since it last rose noticeably
    step = np.zeros(C)
    for turn in range(rounds):
        compute_reduced_costs(start, client, cost, opening, state, price, rho)
        bound = price.sum() + select_facilities(state, rho, max_facilities, is_open)
        if bound > best:
            # A tiny rise in the bound is kept but does not count as progress.
            if bound > best + 1e-5 * abs(best):
                stale = 0
            best, best_price[:] = bound, price
        else:
            stale += 1
        # If the bound has not risen for a while, return to the best prices and take shorter steps.
        if stale > 20:
            scale, stale = scale * 0.6, 0
            price = best_price.copy()
        # Early rounds say little about the optimum, so only the second half is counted.
        if 2 * turn >= rounds:
            for i in range(F):
                open_counts[i] += is_open[i]
        # Computing the cost of a set takes as long as a whole round, so only every eighth set is evaluated.
        if turn % 8 == 0 and is_open.any():
            paid = compute_cost(start, client, cost, fallback_cost, opening, is_open)
            if paid < value:
                value, incumbent[:] = paid, is_open
        if best >= target or scale < 1e-4:
            break
        # The subgradient for a client's price is 1 - served, where `served` is the number of open facilities that cost
        # the client less than its price.
        served[:] = 0.0
        for i in range(F):
            if is_open[i]:
                for e in range(start[i], start[i + 1]):
                    if cost[e] < price[client[e]]:
                        served[client[e]] += 1.0
        norm = 0.0
        for v in range(C):
            # Mixing in the previous direction with weight 0.3 reduces zigzagging.
            step[v] = 0.7 * (1.0 - served[v]) + 0.3 * step[v]
            # A price at its limit cannot rise, so it must not contribute to the norm.
            if step[v] > 0.0 and price[v] >= omitted_cost[v]:
                step[v] = 0.0
            norm += step[v] * step[v]
        if norm <= 1e-18:  # a zero subgradient: these prices are optimal
            break
        # Polyak's step length is proportional to the distance between the bound and the target, divided by the squared
        # norm.
        length = scale * (target - bound) / norm
        for v in range(C):
            price[v] = min(omitted_cost[v], price[v] + length * step[v])
    return best, best_price, open_counts, incumbent, value


@jit()
def compute_cost(
    start: Ints, client: Ints, cost: Floats, fallback_cost: Floats, opening: Floats, is_open: Bools
) -> float:
    """Compute the cost of opening a set of facilities and serving each client from the cheapest of them.

    The cost is computed in double precision.

    Args:
        start, client, cost: The listed pairs, ordered by facility. The pairs of facility i are at indices ``start[i]``
            to ``start[i + 1] - 1`` in ``client`` (E,) and ``cost`` (E,).
        fallback_cost: (C,) The cost assumed for each client if none of its listed facilities is open.
        opening: (F,) The cost of opening each facility.
        is_open: (F,) The mask of the set.
    """
    total = 0.0
    client_costs = fallback_cost.copy()
    for i in range(len(start) - 1):
        if is_open[i]:
            total += opening[i]
            for e in range(start[i], start[i + 1]):
                client_costs[client[e]] = min(client_costs[client[e]], cost[e])
    return total + float(client_costs.sum())


@jit()
def _two_cheapest(
    start: Ints, client: Ints, cost: Floats, is_open: Bools, nearest: Ints, first: Floats, second: Floats
) -> None:
    """Find each client's cheapest open facility, and the costs of being served by it and by the second-cheapest one.

    Args:
        start, client, cost: The listed pairs, ordered by facility. The pairs of facility i are at indices ``start[i]``
            to ``start[i + 1] - 1`` in ``client`` (E,) and ``cost`` (E,).
        is_open: (F,) The mask of the open facilities.
        nearest: (C,) The output array of facility indices, which the caller fills with -1.
        first, second: (C,) The output arrays of costs, which the caller fills with the clients' fallback costs. They
            are only changed for clients with a cheaper open facility.
    """
    for i in range(len(start) - 1):
        if is_open[i]:
            for e in range(start[i], start[i + 1]):
                v = client[e]
                if cost[e] < first[v]:
                    second[v], first[v], nearest[v] = first[v], cost[e], i
                elif cost[e] < second[v]:
                    second[v] = cost[e]


@jit()
def interchange(
    start: Ints,
    client: Ints,
    cost: Floats,
    fallback_cost: Floats,
    opening: Floats,
    is_open: Bools,
    max_facilities: int,
    moves: int,
) -> float:
    """Improve a set of facilities by adding, dropping or swapping one at a time for as long as this lowers the cost.

    Each round makes the move that saves the most. Whitaker's fast interchange evaluates all moves of a round in O(E)
    for E listed pairs.

    Args:
        start, client, cost: The listed pairs, ordered by facility. The pairs of facility i are at indices ``start[i]``
            to ``start[i + 1] - 1`` in ``client`` (E,) and ``cost`` (E,).
        fallback_cost: (C,) The cost assumed for each client if none of its listed facilities is open.
        opening: (F,) The cost of opening each facility.
        is_open: (F,) The mask of the set to improve, which is modified in place.
        max_facilities: The maximum number of open facilities.
        moves: The maximum number of moves.

    Returns:
        The cost of the improved set, computed in double precision.
    """
    F, C = len(start) - 1, len(fallback_cost)
    value = compute_cost(start, client, cost, fallback_cost, opening, is_open)
    nearest, first, second = np.zeros(C, np.int64), np.zeros(C), np.zeros(C)
    # loss[j] is the extra cost of serving clients if the open facility j is closed. spared[j] is the part of loss[j]
    # that would be avoided by opening the closed facility i under consideration, because i serves some of these clients
    # more cheaply than their second cheapest facility.
    loss, spared = np.zeros(F), np.zeros(F)
    touched = np.empty(F, np.int64)  # the facilities j with spared[j] > 0, which must be reset later
    for _ in range(moves):
        # For each client, its cheapest open facility (-1 if there is none), the cost there, and the cost at the second
        # cheapest.
        nearest[:], first[:], second[:] = -1, fallback_cost, fallback_cost
        _two_cheapest(start, client, cost, is_open, nearest, first, second)
        loss[:] = 0.0
        for v in range(C):
            if nearest[v] >= 0:
                # The extra cost if the client's facility is closed and the second cheapest one serves it.
                loss[nearest[v]] += second[v] - first[v]
        open_list = np.flatnonzero(is_open)
        # Sorted so that the facility whose closure saves most comes first, which the loop over `open_list` below relies
        # on.
        open_list = open_list[np.argsort(loss[open_list] - opening[open_list], kind="mergesort")]
        # The best move so far opens `enter`, closes `leave` (each -1 for none) and saves `gain`. A move must save more
        # than rounding errors, because otherwise moves could undo each other for ever.
        gain, enter, leave = 1e-9 * abs(value), -1, -1
        # Consider closing a facility, unless only one is open.
        if len(open_list) > 1 and opening[open_list[0]] - loss[open_list[0]] > gain:
            gain, leave = opening[open_list[0]] - loss[open_list[0]], int(open_list[0])
        # Consider each closed facility i. `saved` is what opening it alone saves, and `count` the used length of
        # `touched`.
        for i in range(F):
            if is_open[i]:
                continue
            count, saved = 0, -opening[i]
            for e in range(start[i], start[i + 1]):
                v = client[e]
                if cost[e] >= second[v]:  # the client would not use i even if its own facility were closed
                    continue
                if cost[e] < first[v]:
                    saved += first[v] - cost[e]
                # If i is opened and j is closed, the client pays `cost[e]` instead of `second`. What it saves by
                # opening i alone is already part of `saved`, hence the maximum.
                j, spared_cost = nearest[v], second[v] - max(first[v], cost[e])
                if j >= 0 and spared_cost > 0.0:
                    if spared[j] == 0.0:
                        touched[count] = j
                        count += 1
                    spared[j] += spared_cost
            if len(open_list) < max_facilities and saved > gain:
                gain, enter, leave = saved, i, -1
            # Swaps that open i and close a facility j whose loss i reduces.
            for t in range(count):
                j = touched[t]
                if saved + opening[j] - loss[j] + spared[j] > gain:
                    gain, enter, leave = saved + opening[j] - loss[j] + spared[j], i, j
            # Swaps that open i and close any other facility h. As the list is sorted by savings, the first h whose loss
            # i does not change is the best of them.
            for h in open_list:
                if spared[h] == 0.0:
                    if saved + opening[h] - loss[h] > gain:
                        gain, enter, leave = saved + opening[h] - loss[h], i, int(h)
                    break
            for t in range(count):
                spared[touched[t]] = 0.0
        if enter < 0 and leave < 0:
            return value
        if enter >= 0:
            is_open[enter] = True
        if leave >= 0:
            is_open[leave] = False
        value = compute_cost(start, client, cost, fallback_cost, opening, is_open)
    return value
