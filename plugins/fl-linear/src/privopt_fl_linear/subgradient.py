"""Compiled kernels of facility location: Lagrangian bound, subgradient ascent and interchange search.

States of a facility: 0 free, 1 open, -1 closed. ``start`` (F + 1,), ``client`` and ``cost`` are the pairs that are
looked at, by facility; see :class:`privopt_fl_linear.service_costs.Pairs` for ``beyond`` and ``far``, both (C,).
"""

from __future__ import annotations

import numpy as np

from privopt.arrays import Bools, Floats, Ints
from privopt.execution.compiled import jit


@jit()
def reduced(start: Ints, client: Ints, cost: Floats, opening: Floats, state: Ints, price: Floats, rho: Floats) -> None:
    """Set rho_i = opening_i + sum over v of min(0, cost_iv - price_v), for each facility that is not closed."""
    for i in range(len(start) - 1):
        if state[i] >= 0:
            total = 0.0
            for e in range(start[i], start[i + 1]):
                total += min(0.0, cost[e] - price[client[e]])
            rho[i] = opening[i] + total


@jit()
def chosen(state: Ints, rho: Floats, max_facilities: int, taken: Bools) -> float:
    """Mark the facilities that the relaxation opens, and return their cost: the open ones, and free ones below 0.

    Free facilities are taken in ascending order, until ``max_facilities`` are open in all.
    """
    total, room = 0.0, max_facilities
    for i in range(len(state)):
        taken[i] = state[i] == 1
        if taken[i]:
            total += rho[i]
            room -= 1
    below = np.flatnonzero((state == 0) & (rho < 0.0))
    if len(below) > room:
        below = below[np.argsort(rho[below], kind="mergesort")[: max(room, 0)]]
    for place in range(len(below)):
        taken[below[place]] = True
        total += rho[below[place]]
    return total


@jit()
def ascend(
    start: Ints, client: Ints, cost: Floats, beyond: Floats, far: Floats, opening: Floats, state: Ints,
    max_facilities: int, price: Floats, target: float, rounds: int, scale: float,
) -> tuple[float, Floats, Floats, Bools, float]:  # fmt: skip
    """Ascend by subgradients on the prices of clients, none above ``beyond``, with Polyak's step towards ``target``.

    Returns the best bound (in doubles), its prices, how often each facility was opened in the
    second half of the rounds, the cheapest set that the relaxation opened, and what that set costs.
    """
    F, C = len(start) - 1, len(price)
    rho, taken, served = np.zeros(F), np.zeros(F, np.bool_), np.zeros(C)
    best, best_price = -np.inf, price.copy()
    often = np.zeros(F)
    incumbent, value = np.zeros(F, np.bool_), np.inf
    stale = 0
    step = np.zeros(C)
    for turn in range(rounds):
        reduced(start, client, cost, opening, state, price, rho)
        bound = price.sum() + chosen(state, rho, max_facilities, taken)
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
                often[i] += taken[i]
        if turn % 8 == 0 and taken.any():
            paid = priced(start, client, cost, far, opening, taken)
            if paid < value:
                value, incumbent[:] = paid, taken
        if best >= target or scale < 1e-4:
            break
        served[:] = 0.0
        for i in range(F):
            if taken[i]:
                for e in range(start[i], start[i + 1]):
                    if cost[e] < price[client[e]]:
                        served[client[e]] += 1.0
        norm = 0.0
        for v in range(C):
            step[v] = 0.7 * (1.0 - served[v]) + 0.3 * step[v]  # deflected: fewer zigzags
            if step[v] > 0.0 and price[v] >= beyond[v]:
                step[v] = 0.0
            norm += step[v] * step[v]
        if norm <= 1e-18:
            break
        length = scale * (target - bound) / norm
        for v in range(C):
            price[v] = min(beyond[v], price[v] + length * step[v])
    return best, best_price, often, incumbent, value


@jit()
def priced(start: Ints, client: Ints, cost: Floats, far: Floats, opening: Floats, taken: Bools) -> float:
    """Return the cost of the facilities taken and of serving each client from its cheapest, in doubles."""
    total = 0.0
    least = far.copy()
    for i in range(len(start) - 1):
        if taken[i]:
            total += opening[i]
            for e in range(start[i], start[i + 1]):
                least[client[e]] = min(least[client[e]], cost[e])
    return total + float(least.sum())


@jit()
def _two_cheapest(
    start: Ints, client: Ints, cost: Floats, taken: Bools, nearest: Ints, first: Floats, second: Floats
) -> None:
    """Find each client's cheapest facility of those taken, its cost, and that of the next one."""
    for i in range(len(start) - 1):
        if taken[i]:
            for e in range(start[i], start[i + 1]):
                v = client[e]
                if cost[e] < first[v]:
                    second[v], first[v], nearest[v] = first[v], cost[e], i
                elif cost[e] < second[v]:
                    second[v] = cost[e]


@jit()
def interchange(
    start: Ints, client: Ints, cost: Floats, far: Floats, opening: Floats, taken: Bools, max_facilities: int, moves: int
) -> float:
    """Add, drop or swap one facility while it saves cost, up to ``moves`` times (by Whitaker, O(E) a move).

    ``taken`` is changed.

    Returns what the set costs.
    """
    F, C = len(start) - 1, len(far)
    value = priced(start, client, cost, far, opening, taken)
    nearest, first, second = np.zeros(C, np.int64), np.zeros(C), np.zeros(C)
    loss, spared = np.zeros(F), np.zeros(F)  # of clients where a facility leaves; what one that enters spares of it
    touched = np.empty(F, np.int64)
    for _ in range(moves):
        nearest[:], first[:], second[:] = -1, far, far
        _two_cheapest(start, client, cost, taken, nearest, first, second)
        loss[:] = 0.0
        for v in range(C):
            if nearest[v] >= 0:
                loss[nearest[v]] += second[v] - first[v]
        here = np.flatnonzero(taken)
        here = here[np.argsort(loss[here] - opening[here], kind="mergesort")]  # whose leaving saves most, first
        gain, enter, leave = 1e-9 * abs(value), -1, -1
        if len(here) > 1 and opening[here[0]] - loss[here[0]] > gain:
            gain, leave = opening[here[0]] - loss[here[0]], int(here[0])
        for i in range(F):
            if taken[i]:
                continue
            count, saved = 0, -opening[i]
            for e in range(start[i], start[i + 1]):
                v = client[e]
                if cost[e] >= second[v]:
                    continue
                if cost[e] < first[v]:
                    saved += first[v] - cost[e]
                j, kept = nearest[v], second[v] - max(first[v], cost[e])
                if j >= 0 and kept > 0.0:
                    if spared[j] == 0.0:
                        touched[count] = j
                        count += 1
                    spared[j] += kept
            if len(here) < max_facilities and saved > gain:
                gain, enter, leave = saved, i, -1
            for t in range(count):
                j = touched[t]
                if saved + opening[j] - loss[j] + spared[j] > gain:
                    gain, enter, leave = saved + opening[j] - loss[j] + spared[j], i, j
            for h in here:
                if spared[h] == 0.0:
                    if saved + opening[h] - loss[h] > gain:
                        gain, enter, leave = saved + opening[h] - loss[h], i, int(h)
                    break
            for t in range(count):
                spared[touched[t]] = 0.0
        if enter < 0 and leave < 0:
            return value
        if enter >= 0:
            taken[enter] = True
        if leave >= 0:
            taken[leave] = False
        value = priced(start, client, cost, far, opening, taken)
    return value
