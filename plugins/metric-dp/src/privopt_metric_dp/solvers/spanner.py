"""Every pair of scattered points, by way of few pairs that nearly imply the rest.

Where every pair of records is required and hardly any lies on a straight way over others, the rows are the cost:
19,900 pairs of 200 points, 124,750 of 500. A spanner of stretch ``1 + s`` has for each pair at distance ``d`` a path
of at most ``(1 + s) d``. Its program is a relaxation: every bound on its optimum, and its multipliers with zeros for
the pairs left out, bound the loss of every mechanism that keeps all pairs. Its own answer keeps the other pairs up to
the stretch only; `privopt_metric_dp.matrix.repair.mend` makes a mechanism for all pairs of it. Both lose little: on 100
points of a square at epsilon times spacing .5 the gap between the two is .7, .25, .12 and .03 % at stretches of 1.1,
1.03, 1.01 and 1.003, with 13, 22, 34 and 47 % of the pairs. (Shortening all lengths by the stretch keeps all pairs too,
and costs 6 % at 1.1.)

Where there is a limit, spanners come from coarse to fine, those alone that are expected to end in what is left of the
time, at the pace of those before. 400 such points took 2, 5, 29 and 55 processor seconds at 1.3, 1.1, 1.03 and 1.01,
to gaps of 6.2, 1.8, .43 and .21 %; all their pairs take 2 to 4 a step.
"""

from __future__ import annotations

import math
import time
from typing import Final

import numpy as np
from attrs import define, evolve

from privopt.arrays import Bools
from privopt.errors import StoppedError
from privopt.execution.limits import allowed_threads, ending_at
from privopt.interfaces import Progress
from privopt_metric_dp.matrix.repair import mend
from privopt_metric_dp.proof.multipliers import Multipliers
from privopt_metric_dp.solvers.components import solve_by_component
from privopt_metric_dp.solvers.instance import Instance, Solution, one_output
from privopt_metric_dp.solvers.interior_point import (
    interior_point_bytes,
    interior_point_seconds,
    solve_interior_point,
)
from privopt_metric_dp.solvers.star import GRACE
from privopt_metric_dp.space.pairs import reduce_pairs

__all__ = ["solve_spanner", "spanner"]

COARSE: Final = (0.3, 0.1, 0.03, 0.01, 0.003)
"""Stretches above 1 of the spanners that come first where there is a limit."""
FINER: Final = 4.0
"""The next one takes about so many times as long."""
AHEAD: Final = 0.3
"""One is left out where the next is expected to take no more than this share of the time that is left."""
MENDED: Final = 3e-9
"""Processor seconds that it takes to mend a mechanism, for each row."""
SHARES: Final = (1.0, 0.25, 0.0)
"""Stretches above 1 that are tried, in multiples of the one that the gap asked for allows; at 0 all pairs."""
INNER: Final = 0.5
"""A program is solved to this share of the gap that its spanner is expected to come to."""
WORTH: Final = 0.6
"""A spanner with more than this share of the pairs is not worth its own program."""


def _allowed(gap: float) -> float:
    """The stretch above 1 that costs about half of a gap, as 200 and 300 scattered points have it at 1e-4 to 1e-2."""
    return 1.6 * math.pow(gap, 0.75)


def _expected(slack: float) -> float:
    """The gap that a stretch above 1 suits: the inverse of `_allowed`."""
    return math.pow(slack / 1.6, 4 / 3)


def spanner(instance: Instance, slack: float, *, deadline: float | None = None) -> tuple[Instance, Bools]:
    """The instance over the pairs of a spanner of stretch ``1 + slack``, and which pairs those are, ``(P,)``.

    Raises:
        StoppedError: the deadline (of `time.monotonic`) came first.
    """
    if not slack:
        return instance, np.ones(len(instance.pairs), dtype=np.bool_)
    with ending_at(deadline):
        kept = reduce_pairs(instance.pairs, instance.distances, slack=slack)
    return evolve(instance, pairs=instance.pairs[kept], distances=instance.distances[kept]), kept


@define
class _Clock:
    """What is expected to fit into the time that is left.

    Attributes:
        deadline: `time.monotonic` value; None for no limit.
        mending: seconds that it takes to mend, as far as is known.
        slower: times that programs took as long as expected.
    """

    deadline: float | None
    threads: int
    mending: float
    slower: float = 1.0

    @property
    def left(self) -> float:
        """Seconds for a program."""
        return np.inf if self.deadline is None else self.deadline - time.monotonic() - self.mending

    @property
    def until(self) -> float | None:
        """When a program must have ended."""
        return None if self.deadline is None else max(self.deadline - self.mending, time.monotonic() + self.left / 2)

    def needed(self, part: Instance, gap: float) -> float:
        """Seconds of a program."""
        return self.slower * interior_point_seconds(part, gap, threads=self.threads)


def _solve_connected(
    instance: Instance,
    gap: float,
    deadline: float | None,
    progress: Progress | None,
    threads: int | None,
    memory: float,
) -> Solution:
    """See `solve_spanner`."""
    best, began = one_output(instance, "spanner"), time.monotonic()
    clock = _Clock(deadline, threads or allowed_threads(), MENDED * 2.0 * len(instance.pairs) * instance.outputs)
    trajectory: list[tuple[float, float, float]] = []
    slacks = [share * _allowed(gap) for share in SHARES if share * _allowed(gap) < COARSE[0]]
    if deadline is not None:
        slacks = [*(coarse for coarse in COARSE if coarse > max(slacks)), *slacks]
    late = full = False
    for slack in slacks:
        if slack and full:
            continue
        try:
            part, kept = spanner(instance, slack, deadline=deadline)
        except StoppedError:
            late = True
            break
        full = full or bool(kept.mean() > WORTH)  # and so are finer ones
        if slack and full:
            continue
        if memory < np.inf and interior_point_bytes(part) > memory:
            break
        inner = INNER * max(gap, _expected(slack)) if slack else gap
        if deadline is not None and (trajectory or not slack):
            needed, left = clock.needed(part, inner), clock.left
            late = needed > left
            if late:
                break
            if slack and FINER * needed <= AHEAD * left:
                continue

        def tell(phase: str, iteration: int, lower: float | None, _upper: float | None, known: Solution = best) -> None:
            if progress is not None:
                proved = known.lower_bound if lower is None else max(lower, known.lower_bound)
                progress(f"spanner, {phase}", iteration, proved, known.objective)

        started = time.monotonic()
        found = solve_interior_point(part, gap=inner, deadline=clock.until, progress=tell, threads=threads)
        clock.slower *= max(0.25, (time.monotonic() - started) / clock.needed(part, inner))
        best = _better(instance, best, found, kept, clock)
        trajectory.append((time.monotonic() - began, best.lower_bound, best.objective))
        reached = instance.reached(best.objective, best.lower_bound, gap)
        late = found.status == "stopped" or clock.left <= 0.0
        if reached or late:
            return evolve(best, trajectory=tuple(trajectory), status="optimal" if reached else "stopped")
    return evolve(best, trajectory=tuple(trajectory), status="stopped" if late else "feasible")


def _better(instance: Instance, best: Solution, found: Solution, kept: Bools, clock: _Clock) -> Solution:
    """The best so far with a spanner's mechanism, mended, where it loses less, and its bound where it is higher."""
    details = {**found.details, "spanner_pairs": int(kept.sum()), "pairs": len(kept)}
    best = evolve(best, iterations=best.iterations + found.iterations, details=details)
    if found.multipliers is not None and found.lower_bound > best.lower_bound:
        multipliers = Multipliers.among(found.multipliers, np.flatnonzero(kept), len(kept))
        best = evolve(best, lower_bound=found.lower_bound, multipliers=multipliers)
    z, started = found.z, time.monotonic()
    if not kept.all():
        try:
            with ending_at(None if clock.deadline is None else max(clock.deadline, started) + GRACE):
                z = mend(found.z, instance.cost, instance.pairs, instance.lengths)
        except StoppedError:
            return best
        clock.mending = time.monotonic() - started
    loss = instance.loss(z)
    return evolve(best, z=z, objective=loss) if loss < best.objective else best


def solve_spanner(
    instance: Instance,
    *,
    gap: float = 1e-6,
    deadline: float | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
    memory: float = np.inf,
) -> Solution:
    """Solve over spanners of all pairs, finer until the gap is reached, by the interior point.

    Args:
        instance: the problem; worth it where most pairs of records are required and few imply the others.
        gap: relative gap to stop at.
        deadline: `time.monotonic` value at which the best mechanism so far is returned; where there is one, a coarse
            spanner comes first, so that something is known early, and none is begun that would not end in time.
        progress: called with lower bound, loss, iteration and phase.
        threads: workers of the interior point.
        memory: bytes; a spanner whose program would take more is not begun.
    """
    return solve_by_component(
        instance, lambda part: _solve_connected(part, gap, deadline, progress, threads, memory), gap, deadline=deadline
    )
