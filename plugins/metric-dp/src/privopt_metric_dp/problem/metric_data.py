"""A metric problem's arrays, on which mechanisms work."""

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
from privopt_metric_dp.problem.declared import PerKm, rounding
from privopt_metric_dp.region.region import Region
from privopt_metric_dp.space.metrics import Metric
from privopt_metric_dp.space.pairs import needed_pairs, required_pairs
from privopt_metric_dp.space.places import Space
from privopt_metric_dp.space.road_metric import RoadMetric

__all__ = ["MetricData"]

MAX_REDUCED_PAIRS: Final = 200_000
"""The most required pairs among which implied ones are searched for. For this many, the search takes 2 s."""


@frozen(kw_only=True, eq=False)
class MetricData:
    """The arrays of a metric problem with N records, K outputs and P required pairs.

    Attributes:
        records: The places that are secret.
        outputs: The places that may be released; the records if the file has no [outputs].
        metric: The distances that constrain the rows. They are computed on request, without an N x N table. The
            constructor also accepts a function that returns the metric, which is called at the first request.
        epsilon: The exact epsilon, per ``unit``.
        within: The largest distance of a required pair; None if every pair is required.
        unit: The unit of distance.
        loss_unit: The unit of the cost.
        prior: (N,) the records' probabilities; in a region, the probabilities that the vertices are drawn.
        cost: (N, K) the loss from releasing output k for record i, in ``loss_unit``. For a vertex of a region, it is
            the mean over the positions for which the vertex is drawn. The constructor also accepts a function that
            returns the losses, which is called at the first request and may raise an InputError.
        file: The problem file's name, for error messages.
        excess: (N,) upper bounds on how much a record's costs, weighted by the prior, exceed the exact ones. The
            constructor takes a function that computes unweighted bounds from the costs.
        shortfall: A method that returns upper bounds on how much weighted costs are below the exact ones. The
            constructor takes a function that computes unweighted bounds from the costs.
        crossed: Whether distances from records to outputs are known (a matrix metric may lack them).
        remap: Whether each released output is replaced by the best guess under the prior.
        ground: The metric that [distance] declares if other distances constrain the rows, otherwise None.
        region: The region if the guarantee covers any two of its points, otherwise None. The records are then the
            region's vertices, beginning with the declared records.
        choose: The number of records to choose as outputs; None if outputs are not chosen. Before the choice,
            ``outputs`` contains all records.
        over: A function that returns the problem with the given records (K,) as outputs; None if outputs are not
            chosen.
        along_streets: Whether losses are path lengths along undirected streets.
        way: The phrase that messages put after the unit of distance, such as "by road".
        per_km: The cost of a kilometre of loss in the reader's unit, if the problem declares it.
        warnings: Sentences about probable mistakes in the files.
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
        """The metric that the [distance] table declares, to which losses and figures refer."""
        return self.metric if self.ground is None else self.ground

    @cached_property
    def metric(self) -> Metric:
        """The distances that constrain the rows."""
        return self._metric if isinstance(self._metric, Metric) else self._metric()

    @cached_property
    def cost(self) -> Floats:
        """(N, K) the loss from releasing output k for record i, in ``loss_unit``."""
        return read_only(self._cost() if callable(self._cost) else self._cost)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of records and the number of outputs, (N, K)."""
        return len(self.records), len(self.outputs)

    @cached_property
    def weighted(self) -> Floats:
        """(N, K) the costs weighted by the prior, p_i c_ik. The expected loss of a matrix z is sum_ik p_i c_ik z_ik."""
        return read_only(self.prior[:, None] * self.cost)

    @cached_property
    def excess(self) -> Floats:
        """(N,) upper bounds on how much a record's costs in ``weighted`` exceed the exact ones that the files imply."""
        # The factor 1 + 2^-40 covers the rounding of these products.
        return read_only(self.prior * (self._excess or rounding)(self.cost) * (1.0 + 2.0**-40))

    def shortfall(self) -> Floats:
        """Return upper bounds (N, K) or (N, 1) on how much ``weighted`` is below the exact costs, computed anew."""
        errors = rounding(self.cost)[:, None] if self._shortfall is None else self._shortfall(self.cost)
        short: Floats = self.prior[:, None] * errors
        short *= 1.0 + 2.0**-40
        return short

    def surely_required(self, pairs: Ints, distances: Floats) -> NDArray[np.bool_]:
        """Return, for each required pair, whether its exact distance is proved to require it too, as booleans (P,).

        Lower bounds use only the pairs for which this is proved, and so hold for every mechanism that satisfies the
        declared guarantee.

        Args:
            pairs: (P, 2) required pairs of records.
            distances: (P,) the pairs' distances as doubles.
        """
        return self.metric.surely_within(pairs, distances, np.inf if self.within is None else self.within)

    @cached_property
    def required(self) -> tuple[Ints, Floats]:
        """The required pairs i < j (P, 2) and their distances (P,). In a region, the mesh's edges are enough."""
        if self.region is not None:
            edges = self.region.edges
            return edges, read_only(self.metric.between(edges[:, 0], edges[:, 1]))
        pairs, distances = required_pairs(self.metric, self.within)
        _check_both_ways(self.metric, pairs, distances, self.records)
        return read_only(pairs), read_only(distances)

    @property
    def most_pairs(self) -> int:
        """The most pairs that are in memory at once, for estimates of the memory that a run takes.

        If all pairs are required, their number is known before any pair is computed.
        """
        if self.region is None and self.within is None:
            implying, count = self.metric.implying(), len(self.records)
            return count * (count - 1) // 2 if implying is None else len(implying[0])
        return len(self.pairs)

    @property
    def pairs(self) -> Ints:
        """(P, 2) the required pairs i < j, in lexicographic order."""
        return self.required[0]

    @property
    def distances(self) -> Floats:
        """(P,) the required pairs' distances."""
        return self.required[1]

    def between(self, pairs: Ints) -> Floats:
        """Return the distances (P,) between any pairs of records (P, 2). Those of certified pairs are precomputed."""
        pairs_known, distances = self.standing
        # Computing distances may require a search for shortest paths, so those of the certified pairs are reused.
        is_known = pairs is pairs_known or np.array_equal(pairs, pairs_known)
        return distances if is_known else self.metric.between(pairs[:, 0], pairs[:, 1])

    def not_above(self, pairs: Ints, distances: Floats) -> Floats:
        """Return the given distances (P,), with a smaller one in place of each that may exceed the exact distance.

        The smaller one is the problem's own double, which is rounded down.

        Args:
            pairs: (P, 2) pairs of records.
            distances: (P,) stated distances for the pairs, such as those that a release stores.
        """
        # The problem's doubles are rounded down, so a stated distance above the double may still be at most the exact
        # one. The metric decides whether it is.
        doubtful = np.flatnonzero(distances > self.between(pairs))
        safe_distances = np.array(distances, dtype=np.float64)
        if doubtful.size:
            safe_distances[doubtful] = self.metric.not_above(pairs[doubtful], safe_distances[doubtful])
        return safe_distances

    @cached_property
    def needed(self) -> tuple[Ints, Floats]:
        """The required pairs (S, 2) that a model must contain, and their distances (S,).

        These pairs imply the other required pairs exactly (:mod:`privopt_metric_dp.space.pairs`). Over roads with exact
        sums, no other pair is computed, so the N^2 pairs of a city are never in memory.
        """
        pairs, distances = needed_pairs(self.metric, lambda: self.required, within=self.within)
        return read_only(pairs), read_only(distances)

    @cached_property
    def standing(self) -> tuple[Ints, Floats]:
        """The pairs (S, 2) that the certificate checks, which imply the others, and their distances (S,).

        If there are many required pairs and the metric does not know which of them imply the others, the certificate
        checks all of them, because finding a subset would take longer.
        """
        has_implying_pairs = self.metric.implying(self.within) is not None
        return self.needed if has_implying_pairs or len(self.pairs) <= MAX_REDUCED_PAIRS else self.required

    def with_outputs(self, rows: Ints) -> MetricData:
        """Return the problem with the records ``rows`` (K,), in ascending order, as outputs, at this epsilon."""
        assert self.over is not None  # the caller has checked that outputs are chosen
        # `over` builds the data anew from the problem file, whose epsilon may differ from that of this data.
        return evolve(self.over(rows), epsilon=self.epsilon)

    @property
    def streets(self) -> tuple[list[tuple[int, int, Fraction]], int, Ints] | None:
        """Undirected streets with exact lengths, the number of nodes, and each record's node.

        None if losses are not path lengths along streets, or if the exact decimals are unknown.
        """
        return self.metric.streets if self.along_streets and isinstance(self.metric, RoadMetric) else None

    @cached_property
    def to_outputs(self) -> Floats:
        """(N, K) the distances from records to outputs.

        Raises:
            InputError: The distance is a table, and ``distance.output_matrix`` is missing.
        """
        if not self.crossed:
            expectation = "the distances from records to outputs, which this mechanism needs"
            raise InputError([Fault(self.file, "distance.output_matrix", "nothing", expectation)])
        return self.metric.to_outputs()


def _check_both_ways(metric: Metric, pairs: Ints, distances: Floats, records: Space) -> None:
    """Check that a plugin's metric returns real numbers, and equal distances in both directions.

    Args:
        metric: The metric.
        pairs: (P, 2) required pairs of records.
        distances: (P,) the distances that the metric returned, from a pair's first record to its second.
        records: The records, whose ids a message names.

    Raises:
        RegistryError: The metric returns values that are not real numbers, or distances that differ between the
            directions.
    """
    # The certificate checks each pair once for both directions, so it would be wrong for a metric with two different
    # distances.
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
            f"{type(metric).__name__}.between() must return the same distance in both directions, got {actual}"
        )
