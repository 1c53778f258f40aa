"""The compiled kernels of :mod:`privopt_fl_linear.opening`: a Lagrangian bound and its ascent, and interchange.

States of a facility: 0 free, 1 open, -1 closed. ``cost`` is (F, C), what it costs to serve a location from a facility.
"""

from __future__ import annotations

import numpy as np

from privopt.arrays import Bools, Floats, Ints
from privopt.execution.compiled import jit


@jit()
def reduced(cost: Floats, opening: Floats, state: Ints, price: Floats, rho: Floats) -> None:
    """rho_i = opening_i + sum over v of min(0, cost_iv - price_v), of each facility that is not closed."""
    for i in range(cost.shape[0]):
        if state[i] >= 0:
            total = 0.0
            for v in range(cost.shape[1]):
                total += min(0.0, cost[i, v] - price[v])
            rho[i] = opening[i] + total


@jit()
def chosen(state: Ints, rho: Floats, most: int, taken: Bools) -> float:
    """The facilities that the relaxation opens, and what they come to: the open ones, and free ones below 0.

    Of these at most so many that ``most`` are open in all, the least first.
    """
    total, room = 0.0, most
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
    cost: Floats, opening: Floats, state: Ints, most: int, price: Floats, target: float, rounds: int, scale: float
) -> tuple[float, Floats, Floats, Bools, float]:
    """Subgradient ascent on the prices of the locations, with Polyak's step towards ``target``.

    Returns the best bound (in doubles), its prices, how often each facility was opened in the
    second half of the rounds, the cheapest set that the relaxation opened, and what that set costs.
    """
    F, C = cost.shape
    rho, taken, served = np.zeros(F), np.zeros(F, np.bool_), np.zeros(C)
    best, best_price = -np.inf, price.copy()
    often = np.zeros(F)
    incumbent, value = np.zeros(F, np.bool_), np.inf
    stale = 0
    step = np.zeros(C)
    for turn in range(rounds):
        reduced(cost, opening, state, price, rho)
        bound = price.sum() + chosen(state, rho, most, taken)
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
            paid = priced(cost, opening, taken)
            if paid < value:
                value, incumbent[:] = paid, taken
        if best >= target or scale < 1e-4:
            break
        served[:] = 0.0
        for i in range(F):
            if taken[i]:
                for v in range(C):
                    if cost[i, v] < price[v]:
                        served[v] += 1.0
        norm = 0.0
        for v in range(C):
            step[v] = 0.7 * (1.0 - served[v]) + 0.3 * step[v]  # deflected: fewer zigzags
            norm += step[v] * step[v]
        if norm <= 1e-18:
            break
        length = scale * (target - bound) / norm
        for v in range(C):
            price[v] += length * step[v]
    return best, best_price, often, incumbent, value


@jit()
def priced(cost: Floats, opening: Floats, taken: Bools) -> float:
    """Opening the facilities taken and serving each location from its cheapest, in doubles."""
    total = 0.0
    least = np.full(cost.shape[1], np.inf)
    for i in range(cost.shape[0]):
        if taken[i]:
            total += opening[i]
            for v in range(cost.shape[1]):
                least[v] = min(least[v], cost[i, v])
    return total + float(least.sum())


@jit()
def interchange(cost: Floats, opening: Floats, taken: Bools, most: int) -> float:
    """Add, drop or swap one facility while that saves anything (Whitaker's bookkeeping: O(F C) a move).

    ``taken`` is changed.

    Returns what the set costs.
    """
    F, C = cost.shape
    value = priced(cost, opening, taken)
    nearest, first, second = np.zeros(C, np.int64), np.zeros(C), np.zeros(C)
    loss, extra = np.zeros(F), np.zeros(F)
    while True:
        first[:], second[:] = np.inf, np.inf
        for i in range(F):
            if taken[i]:
                for v in range(C):
                    if cost[i, v] < first[v]:
                        second[v], first[v], nearest[v] = first[v], cost[i, v], i
                    elif cost[i, v] < second[v]:
                        second[v] = cost[i, v]
        loss[:] = 0.0
        for v in range(C):
            loss[nearest[v]] += second[v] - first[v]
        count = 0
        for i in range(F):
            count += taken[i]
        gain, enter, leave = 1e-9 * abs(value), -1, -1
        if count > 1:
            for i in range(F):
                if taken[i] and opening[i] - loss[i] > gain:
                    gain, enter, leave = opening[i] - loss[i], -1, i
        for i in range(F):
            if taken[i]:
                continue
            extra[:] = loss
            saved = -opening[i]
            for v in range(C):
                if cost[i, v] < first[v]:
                    saved += first[v] - cost[i, v]
                    extra[nearest[v]] -= second[v] - first[v]
                elif cost[i, v] < second[v]:
                    extra[nearest[v]] -= second[v] - cost[i, v]
            if count < most and saved > gain:
                gain, enter, leave = saved, i, -1
            for j in range(F):
                if taken[j] and saved + opening[j] - extra[j] > gain:
                    gain, enter, leave = saved + opening[j] - extra[j], i, j
        if enter < 0 and leave < 0:
            return value
        if enter >= 0:
            taken[enter] = True
        if leave >= 0:
            taken[leave] = False
        value = priced(cost, opening, taken)
