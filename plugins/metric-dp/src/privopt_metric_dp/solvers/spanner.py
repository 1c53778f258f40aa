"""Solve problems that require all pairs through a spanner: a few pairs that nearly imply the others.

If every pair of records is required and few pairs are implied by others, most of the solving time is due to the number
of pairs: 200 points have 19,900 pairs, and 500 points have 124,750. A spanner of stretch ``1 + s`` is a subset of the
pairs that has a path of length at most ``(1 + s) d`` for each pair at distance ``d``. The program over these pairs is a
relaxation: it omits constraints. So its lower bounds, and its multipliers with zeros for the omitted pairs, are valid
for every mechanism that satisfies all pairs. Its solution satisfies the omitted pairs only up to the stretch, and
`privopt_metric_dp.matrix.repair.repair_in_doubles` turns it into a mechanism for all pairs.

The relaxation and the repair lose little. For 100 points in a square, at an epsilon times spacing of 0.5, the gap
between the bound and the loss after the repair is 0.7, 0.25, 0.12 and 0.03 % at stretches of 1.1, 1.03, 1.01 and 1.003.
These spanners have 13, 22, 34 and 47 % of the pairs. (Shortening all lengths by the stretch also satisfies all pairs,
but costs 6 % at a stretch of 1.1.)

Spanners are tried from coarse (a large stretch) to fine, so that there is a result early. For 400 such points,
stretches of 1.3, 1.1, 1.03 and 1.01 took 2, 5, 29 and 55 CPU seconds and reached gaps of 6.2, 1.8, 0.43 and 0.21 %,
while a single step with all pairs takes 2 to 4 seconds. Without a time limit, spanners that are not much coarser than
the one that suits the requested gap are skipped, since they would lengthen the run.
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
"""Stretches minus 1 of the spanners that come first, so that there is a result early."""
MIN_STRETCH_RATIO: Final = 20.0
"""Without a time limit, a coarse spanner only comes first if its stretch minus 1 exceeds that of the program that
follows by this factor. It then takes about a thirtieth of that program's time (see `TIME_FACTOR`)."""
TIME_FACTOR: Final = 4.0
"""Approximate factor by which the next finer spanner takes longer."""
SHARES: Final = (1.0, 0.25)
"""Stretches minus 1 that are tried after the coarse ones, in multiples of the one that suits the requested gap."""
INNER_GAP_SHARE: Final = 0.5
"""A program is solved to this share of the gap that its spanner is expected to reach."""
MAX_SPANNER_SHARE: Final = 0.6
"""A spanner with more than this share of the pairs is not worth its own program."""


def _stretch_of_gap(gap: float) -> float:
    """Return the stretch minus 1 that costs about half of a gap.

    The formula was fitted to measurements with 200 and 300 points and gaps from 1e-4 to 1e-2.
    """
    return 1.6 * math.pow(gap, 0.75)


def _gap_of_stretch(slack: float) -> float:
    """Return the gap that suits a stretch minus 1 (``slack``): the inverse of `_stretch_of_gap`."""
    return math.pow(slack / 1.6, 4 / 3)


def _list_stretches(gap: float, *, has_limit: bool) -> list[float]:
    """Return the stretches minus 1 of the spanners to solve, from coarse to fine.

    Args:
        gap: Requested relative gap.
        has_limit: Whether there is a time limit. Without one, coarse spanners are included only if they take little of
            the whole time.
    """
    # The stretch that suits the requested gap, and a finer one if that misses the gap.
    suitable = [slack for multiple in SHARES if (slack := multiple * _stretch_of_gap(gap)) < COARSE[0]]
    first_suitable = max(suitable, default=0.0)
    # For a stretch below the last of COARSE the program of all pairs follows, which takes about as long as that one.
    min_coarse = first_suitable if has_limit else MIN_STRETCH_RATIO * max(first_suitable, COARSE[-1])
    return [*(coarse for coarse in COARSE if coarse > min_coarse), *suitable]


def make_spanner(instance: Instance, slack: float) -> tuple[Instance, Bools]:
    """Return the instance over a few pairs that imply all others up to a stretch, and a mask (P,) of these pairs.

    Args:
        instance: The problem, with P pairs.
        slack: Stretch minus 1: each dropped pair at distance d has a path of at most ``(1 + slack) d`` over the others.

    Raises:
        OutOfTime: The time limit expired.
    """
    is_kept = reduce_pairs(instance.pairs, instance.distances, slack=slack)
    return evolve(instance, pairs=instance.pairs[is_kept], distances=instance.distances[is_kept]), is_kept


class FewPairs:
    """Solves the program over finer and finer spanners of the required pairs, until the gap is reached.

    Another solver solves the program of each spanner. Spanners pay if most pairs of records are required and a few of
    them nearly imply the others.
    """

    name = "spanner"

    def __init__(self, inner: Solver) -> None:
        """Create the solver.

        Args:
            inner: Solver of each spanner's program.
        """
        self.inner = inner

    def peak_bytes(self, part: Part) -> float:
        """Estimate the peak memory in bytes of the coarsest spanner, which has about three pairs per record."""
        instance, pair_count = part.instance, 3 * part.instance.records
        # Which pairs are taken does not matter for the estimate, only their number.
        small = evolve(instance, pairs=instance.pairs[:pair_count], distances=instance.distances[:pair_count])
        return self.inner.peak_bytes(Part(small)) if pair_count < len(instance.pairs) else self.inner.peak_bytes(part)

    def solve(self, part: Part, offers: PartOffers) -> None:
        """Solve spanners from coarse to fine until the gap is reached, or until a finer one would not finish in time.

        If the gap is missed, the method returns without an error, and the next solver takes the program of all pairs.

        Args:
            part: A connected instance with all pairs.
            offers: Receives mechanisms (N, K) and bounds, and has the gap at which to stop.
        """
        instance = part.instance
        for slack in _list_stretches(offers.gap, has_limit=clock().left < math.inf):
            began = time.perf_counter()
            # The program over the spanner, and which of the pairs it keeps.
            small, is_kept = make_spanner(instance, slack)
            # Finer spanners keep even more pairs.
            if is_kept.mean() > MAX_SPANNER_SHARE:
                return
            self._solve_spanner(instance, Part(small), np.flatnonzero(is_kept), slack, offers)
            if offers.has_reached_gap or TIME_FACTOR * (time.perf_counter() - began) > clock().left:
                return

    def _solve_spanner(self, instance: Instance, small: Part, rows: Ints, slack: float, offers: PartOffers) -> None:
        """Solve one spanner's program and offer its result over all pairs.

        Args:
            instance: The problem over all pairs.
            small: The same problem over the pairs of the spanner.
            rows: Numbers of the spanner's pairs in ``instance``.
            slack: Stretch minus 1 of the spanner.
            offers: Receives repaired mechanisms and bounds over all pairs.
        """
        name = f"{self.name} {slack:.2g}"

        def repair_matrix(z: Floats) -> Floats:
            """Return a mechanism for all pairs, repaired from one that satisfies only the spanner's pairs."""
            return repair_in_doubles(z, instance.cost, instance.pairs, instance.lengths)

        # A view that turns offers of the relaxation into offers over all pairs. They are not firm, because the repair
        # raises the loss.
        inner: PartOffers = offers.through(
            name, candidate=repair_matrix, proof=lambda multipliers: multipliers.among(rows), firm=False
        )
        inner.gap = INNER_GAP_SHARE * max(offers.gap, _gap_of_stretch(slack))
        self.inner.solve(small, inner)
        offers.note("", spanner_pairs=len(rows), pairs=len(instance.pairs))
        if inner.best.candidate is not None:
            # Unlike the offers of the view, this one is firm: the repaired matrix at its own loss.
            z = repair_matrix(evaluate(inner.best.candidate))
            offers.offer(name, candidate=z, value=instance.loss(z))
