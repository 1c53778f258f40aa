"""Who is served by whom where facilities have bounds: single-source capacitated facility location, with a proof.

Minimise the sum of opening costs and of what serving each location costs, each location by one facility, none beyond
its room. Pricing the locations' rows out leaves a knapsack for each facility, whose locations may be cut: the prices'
maximum is the bound of the strong linear program. Facilities that the relaxation opens are filled and improved by
moves and swaps; what no better answer can use is left out by reduced costs, and a mixed-integer program over what is
left closes the gap.

Sources: Holmberg, Rönnqvist, Yuan 1999 (EJOR 113); Beasley 1993 (EJOR 65) for capacities that may be split.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from privopt.arrays import Bools, Floats, Ints
from privopt.errors import InfeasibleError, StoppedError
from privopt_fl_linear.opening import Opened

__all__ = ["assign"]

ROUNDS, BATCH, WORK = 600, 40, 300_000_000
MOVES: Final = 100_000
SHAKES: Final = 300
MOST_PAIRS: Final = 60_000
"""Pairs up to which the integer program is taken on."""
PATIENCE: Final = 30.0
"""Seconds that it may take where there is no deadline."""


class _Search:
    """The incumbent, the bound, and the work on them."""

    def __init__(self, cost: Floats, opening: Floats, weight: Floats, room: Floats, most: int, gap: float) -> None:
        self.cost, self.opening, self.weight, self.room, self.most, self.gap = cost, opening, weight, room, most, gap
        self.value, self.bound = math.inf, -math.inf
        self.facility = np.full(len(weight), -1)
        self.price = np.asarray(np.min(cost, axis=0), dtype=np.float64)

    @property
    def closed(self) -> bool:
        """Whether the gap asked for is met."""
        return self.bound >= self.value - self.gap * abs(self.value)

    def at_once(self, rounds: int) -> int:
        """Rounds, of so many, that take about a second: the clock is looked at between."""
        F, C = self.cost.shape
        return max(1, min(rounds, int(WORK / (C * (F + C)))))

    def offer(self, facility: Ints) -> None:
        """Keep an assignment where it fits and is the best."""
        load = [math.fsum(self.weight[facility == i]) for i in np.unique(facility).tolist()]
        opened = np.unique(facility)
        if len(opened) > self.most or (np.array(load) > self.room[opened]).any():
            return
        value = math.fsum([*self.opening[opened], *self.cost[facility, np.arange(len(facility))]])
        if value < self.value:
            self.value, self.facility = value, facility.copy()

    def fill(self, taken: Bools) -> None:
        """Fill the facilities that the relaxation opens, and as many more as are needed, and improve that."""
        from privopt_fl_linear import knapsacks

        taken, facility = taken.copy(), np.zeros(len(self.weight), dtype=np.int64)
        need = float(self.weight.sum())
        worth = (self.opening + 1e-12) / np.minimum(self.room, need + 1.0).clip(1e-300)
        for more in [-1, *np.argsort(worth, kind="stable").tolist()]:
            if more >= 0:
                if taken[more] or taken.sum() >= self.most:
                    continue
                taken[more] = True
            if self.room[taken].sum() < need:
                continue
            if knapsacks.placed(self.cost, self.weight, self.room, taken, self.price, facility):
                knapsacks.improve(self.cost, self.opening, self.weight, self.room, self.most, facility, MOVES)
                self.offer(facility)
                return

    def relax(self, price: Floats) -> tuple[float, Floats, Floats, Bools]:
        """The proved bound at these prices, reduced costs of facilities, worth of their room, and who is open."""
        from privopt_fl_linear import knapsacks

        F, C = self.cost.shape
        rho, worth, taken, served = np.zeros(F), np.zeros(F), np.zeros(F, np.bool_), np.zeros(C)
        value = knapsacks.relaxed(
            self.cost, self.opening, self.weight, self.room, self.most, price, rho, worth, taken, served
        )
        above = np.maximum(price - self.cost.min(axis=0), 0.0).sum() * F
        size = float(np.abs(price).sum() + self.opening.sum() + above)
        return value - 2.0 * (F + C + 8) * float(np.finfo(np.float64).eps) * size, rho, worth, taken

    def ascend(self, late: Callable[[], bool], report: Callable[[float, float], None]) -> None:
        """Raise the bound and fill what the relaxation opens on the way."""
        from privopt_fl_linear import knapsacks

        scale, price = 1.5, self.price.copy()
        batch = self.at_once(BATCH)
        for _ in range(ROUNDS // batch):
            guess = self.value if math.isfinite(self.value) else 1.5 * max(self.bound, float(self.price.sum())) + 1.0
            _, price, taken, scale = knapsacks.ascend(
                self.cost, self.opening, self.weight, self.room, self.most, price, guess, batch, scale
            )
            bound = self.relax(price)[0]
            if bound > self.bound:
                self.bound, self.price = bound, price.copy()
            self.fill(taken)
            report(self.bound, self.value)
            if self.closed or late() or scale < 1e-3:
                return

    def shake(self, late: Callable[[], bool], report: Callable[[float, float], None]) -> None:
        """Search on from the incumbent, until three batches found nothing; seeded, so that runs repeat."""
        from privopt_fl_linear import knapsacks

        facility, stale, rng = self.facility.copy(), 0, np.random.default_rng(1)
        while stale < 3 and not (self.closed or late()):
            before = self.value
            luck = rng.random((self.at_once(SHAKES), len(self.weight) + 2))
            knapsacks.shaken(self.cost, self.opening, self.weight, self.room, self.most, facility, luck)
            self.offer(facility)
            stale = 0 if self.value < before - 1e-7 * abs(before) else stale + 1
            report(self.bound, self.value)

    def left(self) -> Bools:
        """(F, C) the pairs that an answer no dearer than the incumbent may use.

        Serving v from i opens i and, its room priced, costs at least what the pair's reduced cost is above 0.
        """
        fits = np.isfinite(self.cost)
        if not math.isfinite(self.value):
            return fits
        bound, rho, worth, _ = self.relax(self.price)
        binding = int((rho < 0.0).sum()) > self.most
        pair = np.maximum(self.cost - self.price + worth[:, None] * self.weight, 0.0)
        total = pair if binding else pair + np.maximum(rho, 0.0)[:, None]
        kept: Bools = fits & (bound + total <= self.value + 1e-9 * abs(self.value))
        kept[self.facility, np.arange(len(self.facility))] = True
        return kept

    def finish(self, solver: str, seconds: float) -> bool:
        """The integer program over the pairs left; whether it was small enough to be taken on.

        Raises:
            InfeasibleError: there is no assignment.
        """
        pairs = self.left()
        whole = int(pairs.sum()) <= MOST_PAIRS
        if not whole:
            reduced = np.where(pairs, self.cost - self.price, np.inf)
            pairs = reduced <= np.partition(reduced.ravel(), MOST_PAIRS - 1)[MOST_PAIRS - 1]
        known = self.value
        try:
            facility, bound = _program(self, pairs, solver, seconds)
        except InfeasibleError:
            if whole:
                raise
            return False
        except StoppedError:
            return whole
        if facility is not None:
            self.offer(facility)
        if whole and bound is not None:  # what was left out cannot beat the incumbent
            self.bound = max(self.bound, min(bound, known))
        return whole


def _program(search: _Search, pairs: Bools, solver: str, seconds: float) -> tuple[Ints | None, float | None]:
    """The mixed-integer program over some pairs: who serves whom, and its bound."""
    from scipy.sparse import coo_array, csr_matrix

    from privopt.dsl import Index, IndexSet, Model, total

    (i, v), (F, C) = np.nonzero(pairs), search.cost.shape
    column, ones = np.arange(len(i)), np.ones(len(i))
    P, sites = IndexSet("P", len(i)), IndexSet("F", F)
    p, u = Index("p", P), Index("u", sites)
    m = Model("capacitated-location")
    x, y = m.variable("x", P, kind="binary"), m.variable("y", sites, kind="binary")
    cost, opening = m.param("c", search.cost[i, v], P), m.param("o", search.opening, sites)
    m.minimize(total(cost[p] * x[p], over=p) + total(opening[u] * y[u], over=u))

    def rows(row: Ints, values: Floats, count: int, own: Floats | None, at: Ints) -> csr_matrix:
        left = coo_array((values, (row, column)), shape=(count, len(i))).tocsr()
        if own is None:
            return csr_matrix(left)
        right = coo_array((own, (np.arange(count), at)), shape=(count, F))
        from scipy.sparse import hstack

        return csr_matrix(hstack([left, right]))

    m.add_block("served", rows(v, ones, C, None, v), columns=x, lower=1.0, upper=1.0)
    m.add_block("linked", rows(column, ones, len(i), -ones, i), columns=[x, y], upper=0.0)
    need = float(search.weight.sum())
    room = np.minimum(search.room, need)
    m.add_block("room", rows(i, search.weight[v], F, -room, np.arange(F)), columns=[x, y], upper=0.0)
    if search.most < F:
        m.add_block("most", np.ones((1, F)), columns=y, upper=float(search.most))
    found = m.solve(solver, time_limit=seconds, gap=search.gap)
    share = np.zeros((F, C))
    share[i, v] = found.value("x")
    return np.asarray(np.argmax(share, axis=0), dtype=np.int64), found.bound


def _clash(weight: Floats, room: Floats, most: int) -> str | None:
    """Why nothing can fit, where sums tell."""
    need, have = math.fsum(weight), math.fsum(np.sort(room)[::-1][:most])
    if need > have:
        kept = f"the {most} largest" if most < len(room) else "all"
        return f"room for {need:.10g} is needed, {kept} bounds hold {have:.10g}: {need - have:.10g} are missing"
    if weight.max() > room.max():
        return f"one location needs room for {weight.max():.10g}, and no facility has more than {room.max():.10g}"
    return None


def assign(
    cost: Floats,
    opening: Floats,
    weight: Floats,
    room: Floats,
    *,
    most: int | None = None,
    gap: float = 1e-6,
    deadline: float | None = None,
    solver: str = "cbc",
    report: Callable[[float, float], None] | None = None,
) -> Opened:
    """Choose the facilities to open and who is served by which, each location by one.

    Args:
        cost: (F, C) of serving a location from a facility, finite and >= 0.
        opening: (F,) of opening a facility, >= 0.
        weight: (C,) room that a location takes, >= 0.
        room: (F,) that a facility has; below 0: it cannot be opened, infinite: no bound.
        most: facilities that may be open; left out: any number.
        gap: relative gap at which to stop.
        deadline: :func:`time.monotonic` value to stop at.
        solver: backend of the integer program that is left at the end.
        report: called with ``(lower, upper)``.

    Raises:
        InfeasibleError: there is no such assignment; says what is missing where sums tell.
        StoppedError: none was found in time, or at all where the program is too large to tell.
    """
    most = len(opening) if most is None else min(most, len(opening))
    clash = _clash(weight, room, most)
    if clash is not None:
        raise InfeasibleError(f"capacity bounds: {clash}")
    cost = np.where(weight[None, :] <= room[:, None], cost, np.inf)
    search = _Search(np.ascontiguousarray(cost), opening, weight, np.maximum(room, 0.0), most, gap)
    late, tell = lambda: deadline is not None and time.monotonic() >= deadline, report or (lambda lower, upper: None)
    search.ascend(late, tell)
    if math.isfinite(search.value):
        search.shake(late, tell)
    seconds = PATIENCE if deadline is None else deadline - time.monotonic()
    tried = True
    if not search.closed and seconds > 0.0:
        try:
            tried = search.finish(solver, seconds)
        except InfeasibleError:
            text = "each location's clients go to one facility, and no such plan keeps all bounds"
            raise InfeasibleError(f"capacity bounds: {text}") from None
    if not math.isfinite(search.value):
        why = "in time" if tried else f"and over {MOST_PAIRS} pairs none is proved not to be"
        raise StoppedError(f"capacity bounds: no plan that keeps them was found {why}; nothing written")
    value = search.value
    return Opened(
        facility=search.facility,
        opened=np.unique(search.facility),
        objective=value,
        bound=min(value, search.bound),
        nodes=1,
        status="optimal" if search.closed else "feasible",
    )
