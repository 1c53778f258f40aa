"""The compiled kernels of :mod:`privopt_fl_linear.capacitated`: a Lagrangian bound over knapsacks, and local search.

``cost`` is (F, C), what it costs to serve a location from a facility, infinite where it does not fit; ``weight``
(C,) is the room that a location takes, ``room`` (F,) what a facility has, infinite without a bound.
"""

from __future__ import annotations

import numpy as np

from privopt.arrays import Bools, Floats, Ints
from privopt.execution.compiled import jit


@jit()
def filled(
    cost: Floats, weight: Floats, room: Floats, price: Floats, i: int, part: Floats, ratio: Floats, places: Ints
) -> tuple[float, float]:
    """What facility i gains at these prices where locations may be cut, and what more room is worth to it.

    ``part`` (C,) becomes the share of each location; ``ratio`` and ``places`` (C,) are room to work in.
    """
    part[:] = 0.0
    gain, load, count = 0.0, 0.0, 0
    for v in range(len(weight)):
        more = price[v] - cost[i, v]
        if more > 0.0:
            part[v] = 1.0
            gain += more
            load += weight[v]
            places[count] = v
            count += 1
    if load <= room[i]:
        return gain, 0.0
    for c in range(count):
        v = places[c]
        ratio[c] = -(price[v] - cost[i, v]) / weight[v] if weight[v] > 0.0 else -np.inf
    gain, left, worth = 0.0, room[i], 0.0
    for c in np.argsort(ratio[:count]):
        v = places[c]
        part[v] = 1.0 if weight[v] <= left else left / weight[v]
        gain += part[v] * (price[v] - cost[i, v])
        if part[v] < 1.0 and worth == 0.0:
            worth = -ratio[c]
        left = max(0.0, left - weight[v])
    return gain, worth


@jit()
def relaxed(
    cost: Floats, opening: Floats, weight: Floats, room: Floats, most: int, price: Floats,
    rho: Floats, worth: Floats, taken: Bools, served: Floats,
) -> float:  # fmt: skip
    """The bound at these prices (in doubles): a sum over facilities, of which those below 0 are taken.

    ``rho``, ``worth`` (F,) become what opening each comes to and what its room is worth, ``taken`` (F,) who is open,
    ``served`` (C,) how often each location is.
    """
    F, C = cost.shape
    part, ratio, places = np.zeros(C), np.zeros(C), np.zeros(C, np.int64)
    for i in range(F):
        gain, worth[i] = filled(cost, weight, room, price, i, part, ratio, places)
        rho[i] = opening[i] - gain
    taken[:] = False
    served[:] = 0.0
    total = price.sum()
    for i in np.argsort(rho)[:most]:
        if rho[i] < 0.0:
            taken[i] = True
            total += rho[i]
            filled(cost, weight, room, price, i, part, ratio, places)
            served += part
    return float(total)


@jit()
def ascend(
    cost: Floats, opening: Floats, weight: Floats, room: Floats, most: int, price: Floats, target: float, rounds: int,
    scale: float,
) -> tuple[float, Floats, Bools, float]:  # fmt: skip
    """Subgradient ascent with Polyak's step: the best bound (in doubles), its prices and facilities, the scale left."""
    F, C = cost.shape
    rho, worth, taken, served = np.zeros(F), np.zeros(F), np.zeros(F, np.bool_), np.zeros(C)
    best, best_price, best_taken = -np.inf, price.copy(), taken.copy()
    step, stale = np.zeros(C), 0
    for _ in range(rounds):
        bound = relaxed(cost, opening, weight, room, most, price, rho, worth, taken, served)
        stale += 1
        if bound > best:
            if bound > best + 1e-5 * abs(best):
                stale = 0
            best, best_price[:], best_taken[:] = bound, price, taken
        if stale > 15:
            scale, stale = 0.6 * scale, 0
            price = best_price.copy()
        step = 0.7 * (1.0 - served) + 0.3 * step
        norm = float((step * step).sum())
        if best >= target or scale < 1e-3 or norm <= 1e-18:
            break
        price = price + scale * (target - bound) / norm * step
    return best, best_price, best_taken, scale


@jit()
def placed(cost: Floats, weight: Floats, room: Floats, taken: Bools, price: Floats, facility: Ints) -> bool:
    """Give each location a facility of those taken, the heaviest first, each the cheapest that has room.

    ``facility`` (C,) is written; False where some location finds no room. Locations that lose most are moved up first
    where that fails: those whose second choice is dear at these prices.
    """
    F = cost.shape[0]
    for turn in range(2):
        order = np.argsort(-weight) if turn == 0 else np.argsort(-price)
        left = room.copy()
        done = True
        for v in order:
            best = -1
            for i in range(F):
                if taken[i] and weight[v] <= left[i] and (best < 0 or cost[i, v] < cost[best, v]):
                    best = i
            if best < 0 or not np.isfinite(cost[best, v]):
                done = False
                break
            facility[v] = best
            left[best] -= weight[v]
        if done:
            return True
    return False


@jit()
def improve(cost: Floats, opening: Floats, weight: Floats, room: Floats, most: int, facility: Ints, moves: int) -> int:
    """Move a location, swap two, or empty a facility while that saves anything; ``facility`` is changed.

    Returns the moves made, at most so many.
    """
    F, C = cost.shape
    load, count = np.zeros(F), np.zeros(F, np.int64)
    for v in range(C):
        load[facility[v]] += weight[v]
        count[facility[v]] += 1
    opened = int((count > 0).sum())
    made, changed = 0, True
    while changed and made < moves:
        changed = False
        for v in range(C):
            old = facility[v]
            saved, to = 0.0, -1
            leaves = opening[old] if count[old] == 1 else 0.0
            for i in range(F):
                fresh = count[i] == 0
                if i == old or load[i] + weight[v] > room[i] or (fresh and count[old] > 1 and opened >= most):
                    continue
                gain = cost[old, v] + leaves - cost[i, v] - (opening[i] if fresh else 0.0)
                if gain > saved + 1e-9 * abs(cost[old, v]):
                    saved, to = gain, i
            if to >= 0:
                opened += int(count[to] == 0) - int(count[old] == 1)
                load[old], count[old] = load[old] - weight[v], count[old] - 1
                load[to], count[to] = load[to] + weight[v], count[to] + 1
                facility[v], changed, made = to, True, made + 1
        for v in range(C):
            for u in range(v):
                i, j = facility[v], facility[u]
                if i == j or cost[i, v] + cost[j, u] - cost[j, v] - cost[i, u] <= 1e-9 * (cost[i, v] + cost[j, u]):
                    continue
                shift = weight[u] - weight[v]
                if load[i] + shift <= room[i] and load[j] - shift <= room[j]:
                    load[i], load[j] = load[i] + shift, load[j] - shift
                    facility[v], facility[u], changed, made = j, i, True, made + 1
    return made


@jit()
def shaken(
    cost: Floats, opening: Floats, weight: Floats, room: Floats, most: int, facility: Ints, luck: Floats
) -> float:
    """Empty a facility and one beside it, put their locations back in some order, improve that, keep what is no dearer.

    ``facility`` is changed; ``luck`` (rounds, C + 2) is within 0 and 1. Returns what it costs.
    """
    F, C = cost.shape
    value = total(cost, opening, facility)
    for turn in range(len(luck)):
        trial = facility.copy()
        load, count = np.zeros(F), np.zeros(F, np.int64)
        v, part, order = int(luck[turn, C] * C), luck[turn, C + 1], np.argsort(luck[turn, :C])
        first = trial[v]
        second, nearest = first, np.inf
        for u in range(C):
            i = trial[u]
            if i != first and cost[i, v] < nearest:
                second, nearest = i, cost[i, v]
        for u in order:
            if trial[u] != first and trial[u] != second:
                load[trial[u]] += weight[u]
                count[trial[u]] += 1
        opened, fits = int((count > 0).sum()), True
        for u in order:
            if trial[u] != first and trial[u] != second:
                continue
            best, least = -1, np.inf
            for i in range(F):
                if load[i] + weight[u] <= room[i] and (count[i] > 0 or opened < most):
                    dear = cost[i, u] + (part * opening[i] if count[i] == 0 else 0.0)
                    if dear < least:
                        best, least = i, dear
            if best < 0:
                fits = False
                break
            opened += int(count[best] == 0)
            trial[u], load[best], count[best] = best, load[best] + weight[u], count[best] + 1
        if fits:
            improve(cost, opening, weight, room, most, trial, 100_000)
            found = total(cost, opening, trial)
            if found <= value:
                value, facility[:] = found, trial
    return value


@jit()
def total(cost: Floats, opening: Floats, facility: Ints) -> float:
    """What an assignment costs, in doubles."""
    used, value = np.zeros(len(opening), np.bool_), 0.0
    for v in range(len(facility)):
        value += cost[facility[v], v]
        if not used[facility[v]]:
            used[facility[v]] = True
            value += opening[facility[v]]
    return value
