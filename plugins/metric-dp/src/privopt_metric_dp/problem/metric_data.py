"""The arrays of a metric problem, which mechanisms work on."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import Final

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints, read_only
from privopt.errors import Fault, InputError, RegistryError
from privopt_metric_dp.problem.kinds import PerKm, rounding
from privopt_metric_dp.region.region import Region
from privopt_metric_dp.space.metrics import Metric
from privopt_metric_dp.space.pairs import needed_pairs, required_pairs
from privopt_metric_dp.space.places import Space
from privopt_metric_dp.space.road_metric import RoadMetric

__all__ = ["MetricData"]

MAX_REDUCED_PAIRS: Final = 200_000
"""Largest number of required pairs that are searched for implied ones (2 s). Scattered points have hardly any."""


@frozen(kw_only=True, eq=False)
class MetricData:
    """Arrays of a metric problem. N records, K outputs, P required pairs.

    Attributes:
        records: the secrets.
        outputs: what may be released; the records themselves where the file has no [outputs].
        metric: distances that rows are held to; computed on request, never an N x N table by itself. Or a function that
            makes it, called once at the first request.
        epsilon: exact, per ``unit``.
        within: greatest distance of a required pair; None for every pair.
        unit: of distance.
        loss_unit: of the cost.
        prior: (N,) probabilities; for a region's vertices, that one is drawn for a person.
        cost: (N, K) loss of releasing output k for record i, in ``loss_unit``; of a region's vertex the mean over those
            for whom it is drawn. Or what computes it, called once where it is first asked for (it may raise an
            InputError then).
        file: name of the problem file, for faults.
        excess: how far a mean cost may lie above the one meant; made by a function of each record's costs.
        shortfall: how far each weighted cost may lie below the one meant; made likewise.
        crossed: whether distances from records to outputs are known (a matrix metric may lack them).
        remap: whether what is released is remapped to best guesses under the prior.
        ground: distances of [distance], where rows are held to others.
        region: what the guarantee speaks of where it holds between any two points; its vertices are the records then,
            those of the problem first.
        choose: how many of the records are to be outputs, where they are chosen by their use; ``outputs`` are then
            those that are, or all records before any are.
        over: gives the same problem with some records (K,), in order, for its outputs, where they are chosen.
        along_streets: whether losses are distances, and these path lengths along undirected streets.
        way: by which distance epsilon is, in words behind the unit.
        per_km: what a kilometre of loss costs in the reader's unit, where the problem says it.
        warnings: what in the files is likely not meant, a sentence each.
    """

    records: Space
    outputs: Space
    _metric: Metric | Callable[[], Metric]
    epsilon: Fraction
    within: float | None
    unit: str
    loss_unit: str
    prior: Floats
    _cost: Floats | Callable[[], Floats]
    file: str = "problem"
    _excess: Callable[[Floats], Floats] | None = None
    _shortfall: Callable[[Floats], Floats] | None = None
    crossed: bool = True
    remap: bool = False
    ground: Metric | None = None
    region: Region | None = None
    choose: int | None = None
    over: Callable[[Ints], MetricData] | None = None
    along_streets: bool = False
    way: str = ""
    per_km: PerKm | None = None
    warnings: tuple[str, ...] = ()

    @property
    def distance(self) -> Metric:
        """Distances of [distance], which losses and figures refer to."""
        return self.metric if self.ground is None else self.ground

    @cached_property
    def metric(self) -> Metric:
        """Distances that constrain the rows."""
        return self._metric if isinstance(self._metric, Metric) else self._metric()

    @cached_property
    def cost(self) -> Floats:
        """(N, K) loss of releasing output k for record i, in ``loss_unit``."""
        return read_only(self._cost() if callable(self._cost) else self._cost)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return len(self.records), len(self.outputs)

    @cached_property
    def weighted(self) -> Floats:
        """(N, K) p_i c_ik."""
        return read_only(self.prior[:, None] * self.cost)

    @cached_property
    def excess(self) -> Floats:
        """(N,) upper bound by how much a record's costs in ``weighted`` exceed the exact costs of the files."""
        return read_only(self.prior * (self._excess or rounding)(self.cost) * (1.0 + 2.0**-40))

    def shortfall(self) -> Floats:
        """Bound (N, K) or (N, 1) by how much ``weighted`` lies below the exact costs; computed on each call."""
        errors = rounding(self.cost)[:, None] if self._shortfall is None else self._shortfall(self.cost)
        short: Floats = self.prior[:, None] * errors
        short *= 1.0 + 2.0**-40
        return short

    def surely_required(self, pairs: Ints, distances: Floats) -> NDArray[np.bool_]:
        """Return (P,) whether each required pair is also required by its exact distance."""
        return self.metric.surely_within(pairs, distances, np.inf if self.within is None else self.within)

    @cached_property
    def required(self) -> tuple[Ints, Floats]:
        """Required pairs (P, 2), i < j in order, and their distances (P,). In a region, its edges are enough."""
        if self.region is not None:
            edges = self.region.edges
            return edges, read_only(self.metric.between(edges[:, 0], edges[:, 1]))
        pairs, distances = required_pairs(self.metric, self.within)
        _check_both_ways(self.metric, pairs, distances, self.records)
        return read_only(pairs), read_only(distances)

    @property
    def most_pairs(self) -> int:
        """Largest number of pairs held at once, known before any pair is computed if all are required."""
        if self.region is None and self.within is None:
            implying, count = self.metric.implying(), len(self.records)
            return count * (count - 1) // 2 if implying is None else len(implying[0])
        return len(self.pairs)

    @property
    def pairs(self) -> Ints:
        """(P, 2) required pairs, i < j, in order."""
        return self.required[0]

    @property
    def distances(self) -> Floats:
        """(P,) distances of the required pairs."""
        return self.required[1]

    def between(self, pairs: Ints) -> Floats:
        """Return (P,) distances of any pairs (P, 2) of records. Those of certified pairs are precomputed."""
        pairs_known, distances = self.standing
        is_known = pairs is pairs_known or np.array_equal(pairs, pairs_known)
        return distances if is_known else self.metric.between(pairs[:, 0], pairs[:, 1])

    def not_above(self, pairs: Ints, distances: Floats) -> Floats:
        """Return stated distances (P,) of pairs (P, 2); those above the exact distances are replaced."""
        doubtful = np.flatnonzero(distances > self.between(pairs))
        safe_distances = np.array(distances, dtype=np.float64)
        if doubtful.size:
            safe_distances[doubtful] = self.metric.not_above(pairs[doubtful], safe_distances[doubtful])
        return safe_distances

    @cached_property
    def needed(self) -> tuple[Ints, Floats]:
        """Required pairs (S, 2) that a model must contain, and their distances (S,). The others follow exactly (G1).

        Over roads with exact sums no other pair is computed, so the N^2 pairs of a city are never in memory.
        """
        pairs, distances = needed_pairs(self.metric, lambda: self.required, within=self.within)
        return read_only(pairs), read_only(distances)

    @cached_property
    def standing(self) -> tuple[Ints, Floats]:
        """Pairs (S, 2) that the certificate checks and that imply the others, and their distances (S,).

        These are all required pairs if there are many and no roads show which pairs imply the others: checking all is
        then faster than finding a subset.
        """
        has_implying_pairs = self.metric.implying(self.within) is not None
        return self.needed if has_implying_pairs or len(self.pairs) <= MAX_REDUCED_PAIRS else self.required

    def with_outputs(self, rows: Ints) -> MetricData:
        """Return the problem with the records ``rows`` (K,), in order, as outputs, at this epsilon."""
        assert self.over is not None  # the caller has checked that outputs are chosen
        return evolve(self.over(rows), epsilon=self.epsilon)

    @property
    def streets(self) -> tuple[list[tuple[int, int, Fraction]], int, Ints] | None:
        """Undirected streets with exact lengths, the number of nodes, and each record's node, if losses follow them.

        None if losses do not follow streets, or if the exact decimals are not known.
        """
        return self.metric.streets if self.along_streets and isinstance(self.metric, RoadMetric) else None

    @cached_property
    def to_outputs(self) -> Floats:
        """(N, K) distances from records to outputs.

        Raises:
            InputError: The metric is a matrix without ``distance.output_matrix``.
        """
        if not self.crossed:
            expectation = "the distances from records to outputs, which this mechanism needs"
            raise InputError([Fault(self.file, "distance.output_matrix", "nothing", expectation)])
        return self.metric.to_outputs()


def _check_both_ways(metric: Metric, pairs: Ints, distances: Floats, records: Space) -> None:
    """Check that a third party's metric returns real numbers, and the same distance in both directions."""
    if type(metric).between.__module__.startswith("privopt_metric_dp."):  # symmetric by construction
        return
    back = np.asarray(metric.between(pairs[:, 1], pairs[:, 0]))
    if back.dtype.kind not in "iuf" or distances.dtype.kind not in "iuf":
        raise RegistryError(f"{type(metric).__name__}.between() must return real numbers, got {back.dtype}")
    differing = np.flatnonzero(back != distances)
    if differing.size:
        i, j = (records.ids[index] for index in pairs[differing[0]].tolist())
        actual = f"{distances[differing[0]]} from record {i} to {j} and {back[differing[0]]} back"
        raise RegistryError(
            f"{type(metric).__name__}.between() must return one distance in both directions, got {actual}"
        )
