"""Multipliers for a bound over reports anywhere on the streets (`privopt_metric_dp.proof.street_proof`).

This is the ordinary program over the ends of pieces of street, with two changed costs for a record inside a piece. At
one end the cost is less by the chord times a share theta, at the other by the chord times the rest. For every theta
from 0 to 1 multipliers of that program prove at most the streets' own bound by them, and the best theta as much. So
theta moves, from step to step, towards the end that the iterate's own row says is short.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Final

import numpy as np
from attrs import define, field

from privopt.arrays import Floats, Ints
from privopt.errors import SolverError
from privopt.execution.clock import limit
from privopt.interfaces import Progress
from privopt.numbers.graphs import components
from privopt.search.offers import Offers, evaluate
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.proof.multipliers import Multipliers
from privopt_metric_dp.proof.street_proof import inside_of
from privopt_metric_dp.solvers.components import MERGE_BELOW
from privopt_metric_dp.solvers.instance import Instance
from privopt_metric_dp.solvers.interior_point import InteriorPoint
from privopt_metric_dp.solvers.interior_point_state import State
from privopt_metric_dp.solvers.solver import Part
from privopt_metric_dp.space.street_pieces import Inside, crossings

__all__ = ["priced_records", "solve_street_bound"]

LONGEST: Final = (0.1, 0.25, 0.5)
"""Epsilon times the length of a piece of street from which on it is cut, the first of which not too many are priced: of
9 crossings and 45 places a bound can reach 99.6, 91.1 and 64.8 % of the optimum at .4, 1.2 and 2."""
DAMPING_EXPONENT: Final = 0.5
MIN_THETA: Final = 1e-3
"""Thetas stay so far from 0 and 1."""


@define(eq=False)
class _Shares:
    """The costs of records inside pieces at both ends, moved as theta is.

    Attributes:
        rows: (M,) records inside pieces.
        inside: where they lie.
        weighted: (N, J) costs, prior included.
        less: (M,) prior times chord.
        theta: (M,).
    """

    rows: Ints
    inside: Inside
    weighted: Floats
    less: Floats
    theta: Floats = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.theta = self.inside.rest[self.rows]

    def costs(self) -> tuple[Floats, Floats]:
        """(M,) at tails and at heads."""
        tail, head, tail_share, head_share = self._piece_ends()
        reductions = self.less * self.theta / tail_share, self.less * (1.0 - self.theta) / head_share
        return self.weighted[self.rows, tail] - reductions[0], self.weighted[self.rows, head] - reductions[1]

    def _piece_ends(self) -> tuple[Ints, Ints, Floats, Floats]:
        records = self.inside
        return records.tail[self.rows], records.head[self.rows], records.rest[self.rows], records.share[self.rows]

    def move(self, state: State) -> None:
        """Towards the end whose probability is short of its share."""
        tail, head, tail_share, head_share = self._piece_ends()
        ratio = (state.at(self.rows, tail) / tail_share) / (state.at(self.rows, head) / head_share)
        odds = self.theta / (1.0 - self.theta) * ratio**-DAMPING_EXPONENT
        self.theta = np.clip(odds / (1.0 + odds), MIN_THETA, 1.0 - MIN_THETA)
        for outputs, costs in zip((tail, head), self.costs(), strict=True):
            state.recost(self.rows, outputs, costs)


def priced_records(data: MetricData, max_records: int) -> Ints | None:
    """Return the records (J,), at most ``max_records``, that a bound over all streets prices; None: impossible."""
    if data.streets is None or data.over is None:
        return None
    for longest in LONGEST:
        priced = crossings(*data.streets, longest / float(data.epsilon))
        if len(priced) <= max_records:
            return priced
    return None


def solve_street_bound(
    data: MetricData,
    priced: Ints,
    *,
    gap: float,
    memory_limit: float = math.inf,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Multipliers | None:
    """Solve for multipliers, over priced records in place of outputs, of the pairs that models hold.

    Args:
        data: of a problem whose outputs are chosen among records on streets.
        priced: (J,) as `priced_records` found them.
        gap: relative gap to stop at.
        memory_limit: bytes of memory to take at most.
        seconds: after which the best so far are taken; None for no limit.
        progress: called with lower bound, loss, iteration and phase.

    Returns:
        None if records are at one place, streets do not join them all, or time or memory is too short.
    """
    assert data.over is not None  # as `priced_records` has it
    priced_data = data.with_outputs(priced)
    instance = Instance.of(priced_data)
    if (instance.lengths <= MERGE_BELOW).any() or components(instance.records, instance.pairs).any():
        return None
    part = Part(instance)
    if InteriorPoint().peak_bytes(part) > memory_limit:
        return None
    inner_records = inside_of(data, priced, priced_data.to_outputs)
    rows = np.flatnonzero(inner_records.tail >= 0)
    rows = rows[
        inner_records.tail[rows] != inner_records.head[rows]
    ]  # a round trip: both ends are one, whose cost bears no less
    shares = _Shares(rows, inner_records, priced_data.weighted, data.prior[rows] * inner_records.chord[rows])

    def report_progress(phase: str, iteration: int, lower: float | None, upper: float | None) -> None:
        if progress is not None:
            progress(f"bound over all streets, {phase}", iteration, lower, upper)

    offers: Offers[Floats, Multipliers] = Offers(gap, progress=report_progress)
    with limit(seconds), suppress(SolverError, np.linalg.LinAlgError):
        InteriorPoint(between=shares.move).solve(part, offers)
    return None if offers.best.proof is None else evaluate(offers.best.proof)
