"""Compiled kernels of facility location: Lagrangian bound, subgradient ascent and interchange search.

States of a facility: 0 free, 1 open, -1 closed. ``start`` (F + 1,), ``client`` and ``cost`` are the listed pairs by
facility, see :class:`privopt_fl_linear.service_costs.Pairs`. So are ``omitted_cost`` and ``fallback_cost``, both (C,).
"""

from __future__ import annotations

import numpy as np

from privopt.arrays import Bools, Floats, Ints
from privopt.execution.compiled import jit


@jit()
def compute_reduced_costs(
    start: Ints, client: Ints, cost: Floats, opening: Floats, state: Ints, price: Floats, rho: Floats
) -> None:
    """Set rho_i = opening_i + sum over v of min(0, cost_iv - price_v), for each facility that is not closed."""
    for i in range(len(start) - 1):
        if state[i] >= 0:
            total = 0.0
            for e in range(start[i], start[i + 1]):
                total += min(0.0, cost[e] - price[client[e]])
            rho[i] = opening[i] + total


@jit()
def select_facilities(state: Ints, rho: Floats, max_facilities: int, is_open: Bools) -> float:
    """Mark the facilities that the relaxation opens, and return the sum of their reduced costs.

    These are the open ones, and the free ones with a negative reduced cost in ascending order of it, until
    ``max_facilities`` are open.
    """
    total, remaining = 0.0, max_facilities
    for i in range(len(state)):
        is_open[i] = state[i] == 1
        if is_open[i]:
            total += rho[i]
            remaining -= 1
    candidates = np.flatnonzero((state == 0) & (rho < 0.0))
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
    """Ascend by subgradients on the clients' prices, at most ``omitted_cost``, with Polyak's step towards ``target``.

    Returns:
        The best bound (in doubles), its prices, how often each facility was opened in the second half of the rounds,
        the cheapest set that the relaxation opened, and the cost of that set.
    """
    F, C = len(start) - 1, len(price)
    rho, is_open, served = np.zeros(F), np.zeros(F, np.bool_), np.zeros(C)
    best, best_price = -np.inf, price.copy()
    open_counts = np.zeros(F)
    incumbent, value = np.zeros(F, np.bool_), np.inf
    stale = 0
    step = np.zeros(C)
    for turn in range(rounds):
        compute_reduced_costs(start, client, cost, opening, state, price, rho)
        bound = price.sum() + select_facilities(state, rho, max_facilities, is_open)
        if bound > best:
            if bound > best + 1e-5 * abs(best):
                stale = 0
            best, best_price[:] = bound, price
        else:
            stale += 1
        if stale > 20:
            scale, stale = scale * 0.6, 0
            price = best_price.copy()
        if 2 * turn >= rounds:
            for i in range(F):
                open_counts[i] += is_open[i]
        if turn % 8 == 0 and is_open.any():
            paid = compute_cost(start, client, cost, fallback_cost, opening, is_open)
            if paid < value:
                value, incumbent[:] = paid, is_open
        if best >= target or scale < 1e-4:
            break
        served[:] = 0.0
        for i in range(F):
            if is_open[i]:
                for e in range(start[i], start[i + 1]):
                    if cost[e] < price[client[e]]:
                        served[client[e]] += 1.0
        norm = 0.0
        for v in range(C):
            step[v] = 0.7 * (1.0 - served[v]) + 0.3 * step[v]  # deflected: fewer zigzags
            if step[v] > 0.0 and price[v] >= omitted_cost[v]:
                step[v] = 0.0
            norm += step[v] * step[v]
        if norm <= 1e-18:
            break
        length = scale * (target - bound) / norm
        for v in range(C):
            price[v] = min(omitted_cost[v], price[v] + length * step[v])
    return best, best_price, open_counts, incumbent, value


@jit()
def compute_cost(
    start: Ints, client: Ints, cost: Floats, fallback_cost: Floats, opening: Floats, is_open: Bools
) -> float:
    """Return the cost of the open facilities and of serving each client from its cheapest one, in doubles."""
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
    """Find each client's cheapest open facility, its cost, and the cost of the second cheapest."""
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
    """Add, drop or swap one facility as long as that saves cost, up to ``moves`` times (Whitaker, O(E) for a move).

    ``is_open`` is changed.

    Returns:
        The cost of the set.
    """
    F, C = len(start) - 1, len(fallback_cost)
    value = compute_cost(start, client, cost, fallback_cost, opening, is_open)
    nearest, first, second = np.zeros(C, np.int64), np.zeros(C), np.zeros(C)
    loss, spared = np.zeros(F), np.zeros(F)  # of clients where a facility leaves; what one that enters spares of it
    touched = np.empty(F, np.int64)
    for _ in range(moves):
        nearest[:], first[:], second[:] = -1, fallback_cost, fallback_cost
        _two_cheapest(start, client, cost, is_open, nearest, first, second)
        loss[:] = 0.0
        for v in range(C):
            if nearest[v] >= 0:
                loss[nearest[v]] += second[v] - first[v]
        open_list = np.flatnonzero(is_open)
        open_list = open_list[
            np.argsort(loss[open_list] - opening[open_list], kind="mergesort")
        ]  # whose leaving saves most, first
        gain, enter, leave = 1e-9 * abs(value), -1, -1
        if len(open_list) > 1 and opening[open_list[0]] - loss[open_list[0]] > gain:
            gain, leave = opening[open_list[0]] - loss[open_list[0]], int(open_list[0])
        for i in range(F):
            if is_open[i]:
                continue
            count, saved = 0, -opening[i]
            for e in range(start[i], start[i + 1]):
                v = client[e]
                if cost[e] >= second[v]:
                    continue
                if cost[e] < first[v]:
                    saved += first[v] - cost[e]
                j, spared_cost = nearest[v], second[v] - max(first[v], cost[e])
                if j >= 0 and spared_cost > 0.0:
                    if spared[j] == 0.0:
                        touched[count] = j
                        count += 1
                    spared[j] += spared_cost
            if len(open_list) < max_facilities and saved > gain:
                gain, enter, leave = saved, i, -1
            for t in range(count):
                j = touched[t]
                if saved + opening[j] - loss[j] + spared[j] > gain:
                    gain, enter, leave = saved + opening[j] - loss[j] + spared[j], i, j
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
