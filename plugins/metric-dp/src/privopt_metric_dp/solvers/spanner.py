"""Solve problems with all pairs required, using a spanner (a few pairs whose constraints nearly imply the rest).

If every pair of records is required and few of the constraints are implied by others, the number of pairs dominates the
solving time: 200 points have 19,900 pairs, and 500 points have 124,750. A spanner of stretch ``1 + s`` is a subset of
the pairs that contains, for every pair at distance ``d``, a path of length at most ``(1 + s) d``. The LP over a spanner
is a relaxation, because it leaves out constraints. Its lower bounds are therefore valid for the full problem, and so
are its multipliers, with zeros for the other pairs. Its solution satisfies the constraints of the other pairs only up
to the stretch. `privopt_metric_dp.matrix.repair.repair_in_doubles` turns this solution into a mechanism for all pairs.

The relaxation and the repair lose little. For 100 points in a square, with epsilon times the spacing equal to 0.5, the
gap between the bound and the loss after the repair is 0.7, 0.25, 0.12 and 0.03 % at stretches of 1.1, 1.03, 1.01 and
1.003. These spanners have 13, 22, 34 and 47 % of the pairs. (Dividing all lengths by the stretch also satisfies the
constraints of all pairs, but raises the loss by 6 % at a stretch of 1.1.)

Spanners are tried from coarse (a large stretch) to fine, so that a result is available early. For 400 such points,
stretches of 1.3, 1.1, 1.03 and 1.01 took 2, 5, 29 and 55 CPU seconds and reached gaps of 6.2, 1.8, 0.43 and 0.21 %,
whereas a single step with all pairs takes 2 to 4 seconds. Without a time limit, coarse spanners usually just lengthen
the run, so each is skipped unless it is much coarser than the spanner that suits the requested gap.
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
"""The slacks (stretches minus 1) of the spanners tried first, so that a result is available early."""
MIN_STRETCH_RATIO: Final = 20.0
"""A coarse spanner is used without a time limit only if the ratio of its slack to the suitable slack (or to the last
slack in `COARSE`, if larger) exceeds this value. The LP over the spanner then takes at most about a thirtieth of the
time of the LP that follows (see `TIME_FACTOR`)."""
TIME_FACTOR: Final = 4.0
"""The approximate ratio of a spanner's solving time to the solving time of the previous, coarser spanner."""
SHARES: Final = (1.0, 0.25)
"""The slacks to try after the coarse ones, as multiples of the slack that suits the requested gap."""
INNER_GAP_SHARE: Final = 0.5
"""The gap to which the LP over a spanner is solved, as a fraction of the gap expected from the spanner."""
MAX_SPANNER_SHARE: Final = 0.6
"""The largest fraction of all pairs that a spanner may contain. Beyond it, solving an LP over the spanner is not
worthwhile."""


def _stretch_of_gap(gap: float) -> float:
    """Return the slack at which a spanner causes about half of the given relative gap.

    A spanner with slack s is a subset of the pairs that contains, for every pair at distance d, a path of length at
    most (1 + s) d. The formula was fitted to measurements with 200 and 300 points and gaps from 1e-4 to 1e-2.
    """
    return 1.6 * math.pow(gap, 0.75)


def _gap_of_stretch(slack: float) -> float:
    """Return the relative gap for which a slack (stretch minus 1) is suitable.

    This is the inverse of `_stretch_of_gap`.
    """
    return math.pow(slack / 1.6, 4 / 3)


def _list_stretches(gap: float, *, has_limit: bool) -> list[float]:
    """Return the slacks of the spanners to use, in descending order.

    A spanner with slack s is a subset of the pairs that contains, for every pair at distance d, a path of length at
    most (1 + s) d.

    Args:
        gap: The requested relative gap.
        has_limit: Whether there is a time limit. If not, coarse spanners are included only if they take a small
            fraction of the total time.
    """
    # The stretch that suits the requested gap, and a smaller one in case the first misses the gap.
    suitable = [slack for multiple in SHARES if (slack := multiple * _stretch_of_gap(gap)) < COARSE[0]]
    first_suitable = max(suitable, default=0.0)
    # If the suitable stretch is below the last one in COARSE, the LP that follows is the one over all pairs, which
    # takes about as long as the LP at that last stretch.
    min_coarse = first_suitable if has_limit else MIN_STRETCH_RATIO * max(first_suitable, COARSE[-1])
    return [*(coarse for coarse in COARSE if coarse > min_coarse), *suitable]


def make_spanner(instance: Instance, slack: float) -> tuple[Instance, Bools]:
    """Return the instance over a spanner (pairs whose constraints nearly imply the rest), and a mask of these pairs.

    Args:
        instance: The problem, with P pairs.
        slack: The stretch minus 1. For each dropped pair at distance d, the kept pairs contain a path of length at most
            ``(1 + slack) d``.

    Returns:
        The instance over the kept pairs, and a boolean array of shape (P,) that is True for the kept pairs.

    Raises:
        OutOfTime: The time limit expired.
    """
    is_kept = reduce_pairs(instance.pairs, instance.distances, slack=slack)
    return evolve(instance, pairs=instance.pairs[is_kept], distances=instance.distances[is_kept]), is_kept


class FewPairs:
    """A solver that uses increasingly fine spanners of the required pairs until the gap is reached.

    A spanner is a subset of the pairs whose constraints nearly imply the others. Another solver solves the LP
    restricted to each spanner. Spanners save time if most pairs of records are required and a few of their constraints
    nearly imply the others.

    Attributes:
        inner: The solver for the restricted LPs.
    """

    name = "spanner"

    def __init__(self, inner: Solver) -> None:
        """Create the solver.

        Args:
            inner: The solver for the LP over each spanner.
        """
        self.inner = inner

    def peak_bytes(self, part: Part) -> float:
        """Estimate the peak memory in bytes for the coarsest spanner, which has about three pairs per record."""
        instance, pair_count = part.instance, 3 * part.instance.records
        # The estimate depends only on the number of pairs, so any pairs will do.
        small = evolve(instance, pairs=instance.pairs[:pair_count], distances=instance.distances[:pair_count])
        return self.inner.peak_bytes(Part(small)) if pair_count < len(instance.pairs) else self.inner.peak_bytes(part)

    def solve(self, part: Part, offers: PartOffers) -> None:
        """Solve the LP for spanners, from coarse to fine, until the gap is reached or too little time is left.

        If the gap is not reached, the method returns without an error, and the next solver solves the LP over all
        pairs.

        Args:
            part: A connected instance with all pairs.
            offers: The search that receives mechanisms of shape (N, K), bounds and multipliers. It determines the gap
                at which to stop.

        Raises:
            SolverError: The inner solver failed.
            OutOfTime: The time limit expired.
        """
        instance = part.instance
        for slack in _list_stretches(offers.gap, has_limit=clock().left < math.inf):
            began = time.perf_counter()
            small, is_kept = make_spanner(instance, slack)
            # Finer spanners would keep even more pairs.
            if is_kept.mean() > MAX_SPANNER_SHARE:
                return
            self._solve_spanner(instance, Part(small), np.flatnonzero(is_kept), slack, offers)
            if offers.has_reached_gap or TIME_FACTOR * (time.perf_counter() - began) > clock().left:
                return

    def _solve_spanner(self, instance: Instance, small: Part, rows: Ints, slack: float, offers: PartOffers) -> None:
        """Solve the LP for the pairs of one spanner, and offer a result for all pairs.

        Args:
            instance: The problem over all pairs.
            small: The same problem over the spanner's pairs.
            rows: The indices of the spanner's pairs in ``instance``.
            slack: The spanner's stretch minus 1.
            offers: The search that receives the results for all pairs: repaired mechanisms, and bounds with their
                multipliers.
        """
        name = f"{self.name} {slack:.2g}"

        def repair_matrix(z: Floats) -> Floats:
            """Turn a mechanism that is private for the spanner's pairs into one that is private for all pairs."""
            return repair_in_doubles(z, instance.cost, instance.pairs, instance.lengths)

        # This view turns offers for the relaxation into offers for all pairs. They are not firm, that is, a mechanism's
        # loss may be larger than it was offered with, because the repair raises it.
        inner: PartOffers = offers.through(
            name, candidate=repair_matrix, proof=lambda multipliers: multipliers.among(rows), firm=False
        )
        inner.gap = INNER_GAP_SHARE * max(offers.gap, _gap_of_stretch(slack))
        self.inner.solve(small, inner)
        offers.note("", spanner_pairs=len(rows), pairs=len(instance.pairs))
        if inner.best.candidate is not None:
            # Unlike the view's offers, this one is firm, because its value is the loss of the repaired matrix itself.
            z = repair_matrix(evaluate(inner.best.candidate))
            offers.offer(name, candidate=z, value=instance.loss(z))
