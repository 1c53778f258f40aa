"""Solve problems with all pairs required through a spanner: few pairs that nearly imply the others.

If every pair of records is required and hardly any is implied by others, the number of rows dominates the cost: 19,900
pairs of 200 points, 124,750 of 500. A spanner of stretch ``1 + s`` has a path of length at most ``(1 + s) d`` for each
pair at distance ``d``. Its program is a relaxation: bounds on its optimum, and its multipliers with zeros for the
omitted pairs, are valid for every mechanism that satisfies all pairs. Its own solution satisfies the omitted pairs only
up to the stretch; `privopt_metric_dp.matrix.repair.repair_in_doubles` turns it into a mechanism for all pairs. Both
lose little. On 100 points of a square at epsilon times spacing .5 the gap between the two is .7, .25, .12 and .03 % at
stretches of 1.1, 1.03, 1.01 and 1.003. The spanners have 13, 22, 34 and 47 % of the pairs. (Shortening all lengths by
the stretch keeps all pairs too, and costs 6 % at 1.1.)

Where there is a limit, spanners come from coarse to fine. 400 such points took 2, 5, 29 and 55 processor seconds at
1.3, 1.1, 1.03 and 1.01, to gaps of 6.2, 1.8, .43 and .21 %; all their pairs take 2 to 4 a step.
"""

from __future__ import annotations

import math
import time
from typing import Final

import numpy as np
from attrs import evolve

from privopt.arrays import Bools, Floats, Ints
from privopt.execution.clock import clock
from privopt.search.offers import evaluate
from privopt_metric_dp.matrix.repair import repair_in_doubles
from privopt_metric_dp.solvers.instance import Instance
from privopt_metric_dp.solvers.solver import Part, PartOffers, Solver
from privopt_metric_dp.space.pairs import reduce_pairs

__all__ = ["FewPairs", "make_spanner"]

COARSE: Final = (0.3, 0.1, 0.03, 0.01, 0.003)
"""Stretches above 1 of the spanners that come first where there is a limit."""
TIME_FACTOR: Final = 4.0
"""The next one takes about so many times as long."""
SHARES: Final = (1.0, 0.25)
"""Stretches above 1 that are tried, in multiples of the one that the gap asked for allows."""
INNER_GAP_SHARE: Final = 0.5
"""A program is solved to this share of the gap that its spanner is expected to come to."""
MAX_SPANNER_SHARE: Final = 0.6
"""A spanner with more than this share of the pairs is not worth its own program."""


def _stretch_of_gap(gap: float) -> float:
    """Return the stretch above 1 that costs about half of a gap, from 200 and 300 scattered points at 1e-4 to 1e-2."""
    return 1.6 * math.pow(gap, 0.75)


def _gap_of_stretch(slack: float) -> float:
    """Return the gap that a stretch above 1 suits: the inverse of `_allowed`."""
    return math.pow(slack / 1.6, 4 / 3)


def make_spanner(instance: Instance, slack: float) -> tuple[Instance, Bools]:
    """Return the instance over the pairs of a spanner of stretch ``1 + slack``, and which pairs those are, ``(P,)``.

    Raises:
        OutOfTime: the end came first.
    """
    is_kept = reduce_pairs(instance.pairs, instance.distances, slack=slack)
    return evolve(instance, pairs=instance.pairs[is_kept], distances=instance.distances[is_kept]), is_kept


class FewPairs:
    """Spanners of all pairs, finer until the gap is reached, each by another solver.

    Worth it where most pairs of records are required and few imply the others.
    """

    name = "spanner"

    def __init__(self, inner: Solver) -> None:
        self.inner = inner

    def peak_bytes(self, part: Part) -> float:
        """Return what its coarsest spanner is sure to take: about three pairs a record."""
        instance, pair_count = part.instance, 3 * part.instance.records
        small = evolve(instance, pairs=instance.pairs[:pair_count], distances=instance.distances[:pair_count])
        return self.inner.peak_bytes(Part(small)) if pair_count < len(instance.pairs) else self.inner.peak_bytes(part)

    def solve(self, part: Part, offers: PartOffers) -> None:
        """See :class:`privopt_metric_dp.solvers.solver.Solver`; what is missing in the end is left to all pairs."""
        instance = part.instance
        slacks = [slack for multiple in SHARES if (slack := multiple * _stretch_of_gap(offers.gap)) < COARSE[0]]
        if clock().left < math.inf:
            slacks = [*(coarse for coarse in COARSE if coarse > max(slacks, default=0.0)), *slacks]
        for slack in slacks:
            began = time.perf_counter()
            small, is_kept = make_spanner(instance, slack)
            if is_kept.mean() > MAX_SPANNER_SHARE:
                return
            self._solve_spanner(instance, Part(small), np.flatnonzero(is_kept), slack, offers)
            if offers.reached or TIME_FACTOR * (time.perf_counter() - began) > clock().left:
                return

    def _solve_spanner(self, instance: Instance, small: Part, rows: Ints, slack: float, offers: PartOffers) -> None:
        """Solve one spanner's program and offer its result over all pairs."""
        name = f"{self.name} {slack:.2g}"

        def repair_matrix(z: Floats) -> Floats:
            return repair_in_doubles(z, instance.cost, instance.pairs, instance.lengths)

        inner: PartOffers = offers.through(name, repair_matrix, lambda multipliers: multipliers.among(rows), firm=False)
        inner.gap = INNER_GAP_SHARE * max(offers.gap, _gap_of_stretch(slack))
        self.inner.solve(small, inner)
        offers.note("", spanner_pairs=len(rows), pairs=len(instance.pairs))
        if inner.best.candidate is not None:
            z = repair_matrix(evaluate(inner.best.candidate))
            offers.offer(name, candidate=z, value=instance.loss(z))
