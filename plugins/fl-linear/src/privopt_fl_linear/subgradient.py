"""Compiled functions for facility location: Lagrangian bound, subgradient ascent and interchange search.

All functions take F facilities, C clients, and a list of (facility, client) pairs with their costs, as these arrays:

* ``start`` (F + 1,), ``client`` (E,), ``cost`` (E,): the pairs of facility i are ``start[i]`` to ``start[i + 1] - 1``.
* ``omitted_cost`` (C,): a lower bound on the cost of the client's pairs that are not listed.
* ``fallback_cost`` (C,): the assumed cost of a client if no open facility is among its pairs.
* ``opening`` (F,): the cost of opening a facility.
* ``state`` (F,): 0 free, 1 open, -1 closed.
* ``price`` (C,): the Lagrange multiplier of "exactly one facility serves the client".

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
    """Compute the reduced cost of each facility that is not closed: what opening the facility adds to the Lagrangian.

    The reduced cost is rho_i = opening_i + sum over clients v of min(0, cost_iv - price_v), written to ``rho`` (F,).
    The pairs of facility i with clients are ``start[i]`` to ``start[i + 1] - 1`` in ``client`` and ``cost`` (E,).
    ``price`` (C,) are the clients' Lagrange multipliers, and ``state`` (F,) is -1 for a closed facility.
    """
    for i in range(len(start) - 1):
        if state[i] >= 0:
            total = 0.0
            for e in range(start[i], start[i + 1]):
                total += min(0.0, cost[e] - price[client[e]])
            rho[i] = opening[i] + total


@jit()
def select_facilities(state: Ints, rho: Floats, max_facilities: int, is_open: Bools) -> float:
    """Mark the facilities that the relaxation opens, and return the sum of their reduced costs.

    The relaxation opens the facilities whose state is open. It adds free ones with a negative reduced cost, in
    ascending order of that cost, until ``max_facilities`` are open. The sum of the prices plus the returned sum is the
    Lagrangian bound.

    Args:
        state: (F,) 0 free, 1 open, -1 closed.
        rho: (F,) reduced costs, see `compute_reduced_costs`.
        max_facilities: Maximum number of open facilities.
        is_open: (F,) output array: whether the relaxation opens the facility.
    """
    total, remaining = 0.0, max_facilities
    for i in range(len(state)):
        is_open[i] = state[i] == 1
        if is_open[i]:
            total += rho[i]
            remaining -= 1
    candidates = np.flatnonzero((state == 0) & (rho < 0.0))
    # With a limit the least reduced costs are taken, which gives the minimum of the relaxation.
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
    """Raise the Lagrangian bound by subgradient steps on the clients' prices, with Polyak's step towards ``target``.

    Args:
        start, client, cost: The listed pairs of a facility and a client: ``client`` (E,) and ``cost`` (E,) by facility.
            The pairs of facility i are ``start[i]`` to ``start[i + 1] - 1``.
        omitted_cost: (C,) a lower bound on the cost of a client's pairs that are not listed.
        fallback_cost: (C,) assumed cost of a client without an open facility among its pairs.
        opening: (F,) cost of opening a facility.
        state: (F,) 0 for a free facility, 1 for an open one, -1 for a closed one.
        max_facilities: Maximum number of open facilities.
        price: (C,) the initial prices, which are overwritten. No price is raised above ``omitted_cost``.
        target: The bound that the step length aims at, in the unit of the costs.
        rounds: Maximum number of steps.
        scale: Initial factor of Polyak's step length, about 0.05 to 2.

    Returns:
        The best bound (in doubles), its prices, how often each facility was opened in the second half of the rounds,
        the cheapest set that the relaxation opened, and the cost of that set.
    """
    F, C = len(start) - 1, len(price)
    rho, is_open, served = np.zeros(F), np.zeros(F, np.bool_), np.zeros(C)
    best, best_price = -np.inf, price.copy()
    open_counts = np.zeros(F)
    incumbent, value = np.zeros(F, np.bool_), np.inf
    stale = 0  # number of rounds since the bound last rose
    step = np.zeros(C)
    for turn in range(rounds):
        compute_reduced_costs(start, client, cost, opening, state, price, rho)
        bound = price.sum() + select_facilities(state, rho, max_facilities, is_open)
        if bound > best:
            # A tiny rise in the bound is kept, but does not count as progress.
            if bound > best + 1e-5 * abs(best):
                stale = 0
            best, best_price[:] = bound, price
        else:
            stale += 1
        # No better bound for a while: go back to the best prices, with shorter steps.
        if stale > 20:
            scale, stale = scale * 0.6, 0
            price = best_price.copy()
        # Early rounds say little about the optimum, so only those of the second half are counted.
        if 2 * turn >= rounds:
            for i in range(F):
                open_counts[i] += is_open[i]
        # Computing the cost of a set takes as long as a round, so only every eighth set is evaluated.
        if turn % 8 == 0 and is_open.any():
            paid = compute_cost(start, client, cost, fallback_cost, opening, is_open)
            if paid < value:
                value, incumbent[:] = paid, is_open
        if best >= target or scale < 1e-4:
            break
        # The subgradient of a client's price is 1 - served, where `served` counts the open facilities whose cost for
        # the client is below its price.
        served[:] = 0.0
        for i in range(F):
            if is_open[i]:
                for e in range(start[i], start[i + 1]):
                    if cost[e] < price[client[e]]:
                        served[client[e]] += 1.0
        norm = 0.0
        for v in range(C):
            # 0.3 of the previous direction is mixed in, so that the prices zigzag less.
            step[v] = 0.7 * (1.0 - served[v]) + 0.3 * step[v]
            # A price at its limit cannot rise, so its direction must not lengthen the step's norm.
            if step[v] > 0.0 and price[v] >= omitted_cost[v]:
                step[v] = 0.0
            norm += step[v] * step[v]
        if norm <= 1e-18:  # a zero subgradient: these prices are optimal
            break
        # Polyak's step: proportional to the distance of the bound from the target, over the squared norm.
        length = scale * (target - bound) / norm
        for v in range(C):
            price[v] = min(omitted_cost[v], price[v] + length * step[v])
    return best, best_price, open_counts, incumbent, value


@jit()
def compute_cost(
    start: Ints, client: Ints, cost: Floats, fallback_cost: Floats, opening: Floats, is_open: Bools
) -> float:
    """Return the cost of the open facilities and of serving each client from its cheapest one, in doubles.

    ``is_open`` (F,) is the set of facilities, ``opening`` (F,) the cost of opening each. The pairs of facility i with
    clients are ``start[i]`` to ``start[i + 1] - 1`` in ``client`` and ``cost`` (E,). A client without an open facility
    among its pairs costs ``fallback_cost`` (C,).
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
    """Find each client's cheapest open facility, its cost, and the cost of the second cheapest.

    The pairs of facility i with clients are ``start[i]`` to ``start[i + 1] - 1`` in ``client`` and ``cost`` (E,), and
    ``is_open`` (F,) is the set of facilities.

    The results are written to ``nearest`` (facility numbers), ``first`` and ``second`` (costs), all (C,). The caller
    fills ``nearest`` with -1 and both others with the clients' fallback costs; these values remain if no open facility
    is cheaper.
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
    """Improve a set of facilities by adding, dropping or swapping one facility at a time while this saves cost.

    Each round makes the move that saves the most. Whitaker's fast interchange evaluates all moves in O(E) for E listed
    pairs.

    Args:
        start, client, cost: The listed pairs of a facility and a client: ``client`` (E,) and ``cost`` (E,) by facility.
            The pairs of facility i are ``start[i]`` to ``start[i + 1] - 1``.
        fallback_cost: (C,) assumed cost of a client without an open facility among its pairs.
        opening: (F,) cost of opening a facility.
        is_open: (F,) the set to improve, which is changed.
        max_facilities: Maximum number of open facilities.
        moves: Maximum number of moves.

    Returns:
        The cost of the improved set, in doubles.
    """
    F, C = len(start) - 1, len(fallback_cost)
    value = compute_cost(start, client, cost, fallback_cost, opening, is_open)
    nearest, first, second = np.zeros(C, np.int64), np.zeros(C), np.zeros(C)
    # loss[j]: the extra cost of serving clients if open facility j is closed. spared[j]: the part of loss[j] that the
    # closed facility i under trial would save, because it serves some of these clients more cheaply than their second
    # cheapest facility.
    loss, spared = np.zeros(F), np.zeros(F)
    touched = np.empty(F, np.int64)  # the facilities j with spared[j] > 0, so that only these are reset
    for _ in range(moves):
        # For each client: its cheapest open facility (-1 for none), the cost there, and the cost at the second
        # cheapest.
        nearest[:], first[:], second[:] = -1, fallback_cost, fallback_cost
        _two_cheapest(start, client, cost, is_open, nearest, first, second)
        loss[:] = 0.0
        for v in range(C):
            if nearest[v] >= 0:
                # The extra cost if the client's facility were closed and the second cheapest served it.
                loss[nearest[v]] += second[v] - first[v]
        open_list = np.flatnonzero(is_open)
        # The list is in descending order of what closing each facility saves. The loop over `open_list` below relies on
        # this.
        open_list = open_list[np.argsort(loss[open_list] - opening[open_list], kind="mergesort")]
        # The best move so far: facility `enter` is opened and `leave` is closed, -1 for none, and it saves `gain`. A
        # move must save more than rounding errors, or moves could undo each other for ever.
        gain, enter, leave = 1e-9 * abs(value), -1, -1
        # Closing a facility, unless it is the last one.
        if len(open_list) > 1 and opening[open_list[0]] - loss[open_list[0]] > gain:
            gain, leave = opening[open_list[0]] - loss[open_list[0]], int(open_list[0])
        # Try each closed facility i. `saved` is what opening it alone saves, and `count` the length of `touched`.
        for i in range(F):
            if is_open[i]:
                continue
            count, saved = 0, -opening[i]
            for e in range(start[i], start[i + 1]):
                v = client[e]
                if cost[e] >= second[v]:  # the client would not use i, even if its own facility were closed
                    continue
                if cost[e] < first[v]:
                    saved += first[v] - cost[e]
                # If both i is opened and j is closed, the client pays `cost[e]` instead of `second`. What it saves when
                # i is opened alone is part of `saved` already, hence the maximum.
                j, spared_cost = nearest[v], second[v] - max(first[v], cost[e])
                if j >= 0 and spared_cost > 0.0:
                    if spared[j] == 0.0:
                        touched[count] = j
                        count += 1
                    spared[j] += spared_cost
            if len(open_list) < max_facilities and saved > gain:
                gain, enter, leave = saved, i, -1
            # Swaps that open i and close a facility j, for which i reduces the loss of closing j.
            for t in range(count):
                j = touched[t]
                if saved + opening[j] - loss[j] + spared[j] > gain:
                    gain, enter, leave = saved + opening[j] - loss[j] + spared[j], i, j
            # Swaps that open i and close any other facility h. The list is in order of savings, so the first h whose
            # loss i does not change is the best of them.
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
