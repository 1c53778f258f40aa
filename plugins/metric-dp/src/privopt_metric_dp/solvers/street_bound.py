"""Multipliers for a lower bound over reports anywhere on the streets (`privopt_metric_dp.proof.street_proof`).

They are computed from the ordinary LP whose outputs are the ends of street pieces, with two costs changed for each
record inside a piece. For linear interpolation at the record, the two ends of the piece have the weights w and 1 - w,
so the nearer end has the larger weight. The record's chord is the weighted mean of its costs at the two ends. The cost
at the first end is reduced by theta chord / w, and the cost at the second end by (1 - theta) chord / (1 - w).

The multipliers prove one bound for this LP and another over the streets. The bound over the streets is at least as
large for every theta from 0 to 1, and the two bounds are equal for the best theta. Between steps of the interior-point
method, theta is therefore moved towards the end whose probability is too small for its weight.
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
from privopt_metric_dp.proof.lagrangian_bound import Multipliers
from privopt_metric_dp.proof.street_proof import inside_of
from privopt_metric_dp.solvers.components import MERGE_BELOW
from privopt_metric_dp.solvers.instance import Instance
from privopt_metric_dp.solvers.interior_point import InteriorPoint
from privopt_metric_dp.solvers.interior_point_state import State
from privopt_metric_dp.solvers.solver import Part
from privopt_metric_dp.space.street_pieces import Inside, crossings

__all__ = ["priced_records", "solve_street_bound"]

LONGEST: Final = (0.1, 0.25, 0.5)
"""The values of epsilon times length above which a street piece is cut. They are tried in order until the number of
priced records (the outputs of the bound) is small enough. With 9 crossings and 45 places, a bound can reach 99.6, 91.1
and 64.8 % of the optimum at values of 0.4, 1.2 and 2."""
DAMPING_EXPONENT: Final = 0.5
"""The exponent that damps the change in theta's odds in each step."""
MIN_THETA: Final = 1e-3
"""The smallest allowed distance of theta from 0 and from 1. At 0 or 1, its odds would be 0 or infinite and could no
longer change."""


@define(eq=False)
class _Shares:
    """The costs of reporting the ends of street pieces, for the records inside these pieces.

    The two ends of a piece are called the tail and the head. The cost of a report varies along the piece and is 0 at
    the record itself. The chord is the value obtained at the record by interpolating the cost linearly between the two
    ends. The costs at the ends are reduced in proportion to the chord, and the parameter theta divides the reduction
    between the ends.

    Attributes:
        rows: Array of shape (M,) with the indices of the records inside pieces.
        inside: The positions of all records: the tail and the head of each record's piece, and the record's distance
            from the tail as a fraction of the piece's length.
        weighted: Array of shape (N, J) with the costs of reporting the priced records, times the prior.
        reduction: Array of shape (M,) with the prior times the chord, in the same units as the costs.
        theta: Array of shape (M,) with the fraction of the chord that is used to reduce the cost at the tail.
    """

    rows: Ints
    inside: Inside
    weighted: Floats
    reduction: Floats
    theta: Floats = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Set theta to the weight of the tail, so that the cost at each end is reduced by the whole chord."""
        self.theta = self.inside.rest[self.rows]

    def costs(self) -> tuple[Floats, Floats]:
        """Return the reduced costs at the tails and at the heads, as two arrays of shape (M,)."""
        tail, head, tail_share, head_share = self._piece_ends()
        reductions = self.reduction * self.theta / tail_share, self.reduction * (1.0 - self.theta) / head_share
        return self.weighted[self.rows, tail] - reductions[0], self.weighted[self.rows, head] - reductions[1]

    def _piece_ends(self) -> tuple[Ints, Ints, Floats, Floats]:
        """Return the ends of the pieces that contain the records, and the weights of these ends.

        The end closer to the record has the larger weight.

        Returns:
            Four arrays of shape (M,): the tails, the heads, the weights of the tails and the weights of the heads.
        """
        records = self.inside
        return records.tail[self.rows], records.head[self.rows], records.rest[self.rows], records.share[self.rows]

    def move(self, state: State) -> None:
        """Move theta towards the end whose probability is too small for its weight, and update the costs.

        Args:
            state: The interior-point method's iterate. Its probabilities are read, and its costs are modified.
        """
        tail, head, tail_share, head_share = self._piece_ends()
        # The ratio is 1 if the probabilities at the two ends are in proportion to their weights, and below 1 if the
        # tail's probability is too small.
        ratio = (state.at(self.rows, tail) / tail_share) / (state.at(self.rows, head) / head_share)
        odds = self.theta / (1.0 - self.theta) * ratio**-DAMPING_EXPONENT
        self.theta = np.clip(odds / (1.0 + odds), MIN_THETA, 1.0 - MIN_THETA)
        for outputs, costs in zip((tail, head), self.costs(), strict=True):
            state.recost(self.rows, outputs, costs)


def priced_records(data: MetricData, max_records: int) -> Ints | None:
    """Select the records that serve as outputs in a bound over all streets.

    Args:
        data: The problem's data.
        max_records: The maximum number of records to select.

    Returns:
        Array of shape (J,) with the indices of the records in ascending order, or None if the problem's outputs are not
        chosen from the records on streets, or if more than ``max_records`` records would be needed.
    """
    if data.streets is None or data.over is None:
        return None
    for longest in LONGEST:
        # The records at the crossings of the network, and records that cut pieces that are too long.
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
    """Compute multipliers that prove a lower bound for reports anywhere on the streets.

    Args:
        data: The data of a problem whose outputs are chosen from the records on streets.
        priced: Array of shape (J,) with the indices of the records that serve as outputs, from `priced_records`.
        gap: The relative gap at which to stop.
        memory_limit: The maximum number of bytes to allocate.
        seconds: The time limit in seconds, or None for no limit. When it expires, the best multipliers so far are used.
        progress: A function that is called with the phase, the iteration, the lower bound and the loss.

    Returns:
        The multipliers for the pairs in ``data.needed``. The result is None if two records are at distance 0, if not
        all records are connected by streets, or if there is not enough time or memory.

    Raises:
        CertificationError: A record is neither priced nor inside a street piece between two priced records.
    """
    assert data.over is not None  # checked by `priced_records`
    priced_data = data.with_outputs(priced)
    instance = Instance.of(priced_data)
    # The interior-point method needs an instance that is connected (all records are in component 0) and has no two
    # records at distance 0.
    if (instance.lengths <= MERGE_BELOW).any() or components(instance.records, instance.pairs).any():
        return None
    part = Part(instance)
    if InteriorPoint().peak_bytes(part) > memory_limit:
        return None
    # The tail of priced records, which are ends of pieces, is -1.
    positions = inside_of(data, priced, priced_data.to_outputs)
    rows = np.flatnonzero(positions.tail >= 0)
    # If a piece is a loop, its two ends are the same record, and the cost there must not be reduced.
    rows = rows[positions.tail[rows] != positions.head[rows]]
    shares = _Shares(rows, positions, priced_data.weighted, data.prior[rows] * positions.chord[rows])

    def report_progress(phase: str, iteration: int, lower: float | None, upper: float | None) -> None:
        """Report the solver's progress, with the phase prefixed by "bound over all streets"."""
        if progress is not None:
            progress(f"bound over all streets, {phase}", iteration, lower, upper)

    offers: Offers[Floats, Multipliers] = Offers(gap, progress=report_progress)
    # A numerical breakdown only ends the search early, because multipliers that were offered earlier still prove a
    # bound.
    with limit(seconds), suppress(SolverError, np.linalg.LinAlgError):
        InteriorPoint(between=shares.move).solve(part, offers)
    return None if offers.best.proof is None else evaluate(offers.best.proof)
