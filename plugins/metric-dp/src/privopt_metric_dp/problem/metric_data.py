"""The arrays of a metric problem, as used by mechanisms."""

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
"""The largest number of required pairs for which the certificate looks for implied pairs.

At this size, the search takes 2 s."""


@frozen(kw_only=True, eq=False)
class MetricData:
    """The arrays of a metric problem with N records, K outputs and P required pairs.

    Required pairs are the pairs of records that the guarantee must cover.

    Attributes:
        records: The places to protect.
        outputs: The places that may be released. These are the records if the file has no [outputs] table.
        metric: The distances used in the privacy constraints. They are computed on request instead of being stored in
            an N x N table. The constructor also accepts a function that returns the metric and is called on first
            access.
        epsilon: The exact epsilon per ``unit``.
        within: The distance up to which a pair is required, or None if every pair is required.
        unit: The unit of distance.
        loss_unit: The unit of ``cost``.
        prior: Array of shape (N,) with the probability of each record or, in a region, the probability that a person is
            snapped to each vertex.
        cost: Array of shape (N, K) with the loss of releasing output k for record i, in ``loss_unit``. The loss at a
            vertex of a region is averaged over the positions snapped to it. The constructor also accepts a function
            that returns the array and is called on first access. That function may raise InputError.
        file: The name of the problem file, for error messages.
        excess: Array of shape (N,) with upper bounds on how far each record's entries of ``weighted`` exceed their
            exact values. The constructor takes a function that computes such bounds for ``cost``.
        shortfall: A method that returns upper bounds on how far the entries of ``weighted`` fall below their exact
            values. The constructor takes a function that computes such bounds for ``cost``.
        crossed: Whether the distances from records to outputs are known. They may be unknown if distances are read from
            a matrix.
        remap: Whether each output is replaced by the one with the least expected loss given the report and the prior.
        ground: The metric declared in [distance], or None if it is also used in the privacy constraints.
        region: The region if the guarantee covers every pair of points in it, and None otherwise. If there is a region,
            the records are its vertices, starting with the declared records.
        choose: The number of records to choose as outputs, or None if outputs are not chosen. Before the choice,
            ``outputs`` contains all records.
        over: A function that takes the indices of K records and returns the problem's data with these records as
            outputs. None if outputs are not chosen.
        along_streets: Whether losses are path lengths along undirected streets.
        way: The phrase that messages append to the unit of distance, such as "by road".
        per_km: The cost of a kilometre of loss in another unit, such as minutes, or None if the problem does not
            declare it.
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
        """The metric declared in the [distance] table, which is used for losses and in reports."""
        return self.metric if self.ground is None else self.ground

    @cached_property
    def metric(self) -> Metric:
        """The distances used in the privacy constraints."""
        return self._metric if isinstance(self._metric, Metric) else self._metric()

    @cached_property
    def cost(self) -> Floats:
        """The loss of releasing output k for record i, in ``loss_unit``, as an array of shape (N, K)."""
        return read_only(self._cost() if callable(self._cost) else self._cost)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of records and outputs, (N, K)."""
        return len(self.records), len(self.outputs)

    @cached_property
    def weighted(self) -> Floats:
        """The costs times the prior, p_i c_ik, as an array of shape (N, K).

        The expected loss of an obfuscation matrix z is the sum of p_i c_ik z_ik over all i and k.
        """
        return read_only(self.prior[:, None] * self.cost)

    @cached_property
    def excess(self) -> Floats:
        """Upper bounds on how far each record's entries of ``weighted`` exceed their exact values.

        The array has shape (N,).
        """
        # The factor 1 + 2^-40 covers the rounding of these products.
        return read_only(self.prior * (self._excess or rounding)(self.cost) * (1.0 + 2.0**-40))

    def shortfall(self) -> Floats:
        """Compute upper bounds on how far the entries of ``weighted`` fall below their exact values.

        Returns:
            Array of shape (N, K), or (N, 1) if each bound applies to all costs of a record.
        """
        errors = rounding(self.cost)[:, None] if self._shortfall is None else self._shortfall(self.cost)
        short: Floats = self.prior[:, None] * errors
        short *= 1.0 + 2.0**-40
        return short

    def surely_required(self, pairs: Ints, distances: Floats) -> NDArray[np.bool_]:
        """Return whether the guarantee certainly covers each pair at its exact distance.

        A pair may be treated as covered only because its distance was rounded. Lower bounds on the loss do not use such
        pairs, so the bounds are valid for every mechanism that satisfies the declared guarantee.

        Args:
            pairs: Array of shape (P, 2) with the record indices of pairs that are treated as covered.
            distances: Array of shape (P,) with the distance between the records of each pair, as doubles.

        Returns:
            Boolean array of shape (P,).
        """
        return self.metric.surely_within(pairs, distances, np.inf if self.within is None else self.within)

    @cached_property
    def required(self) -> tuple[Ints, Floats]:
        """The pairs of records covered by the guarantee and their distances, as arrays of shape (P, 2) and (P,).

        Each pair consists of two record indices i < j. If the guarantee covers a region, only the edges of the region
        are included, because their constraints imply the constraints for all other pairs.
        """
        if self.region is not None:
            edges = self.region.edges
            return edges, read_only(self.metric.between(edges[:, 0], edges[:, 1]))
        pairs, distances = required_pairs(self.metric, self.within)
        _check_both_ways(self.metric, pairs, distances, self.records)
        return read_only(pairs), read_only(distances)

    @property
    def most_pairs(self) -> int:
        """The largest number of pairs held in memory at once, for estimates of memory use.

        If the guarantee covers every pair, this is determined without computing the pairs.
        """
        if self.region is None and self.within is None:
            implying, count = self.metric.implying(), len(self.records)
            return count * (count - 1) // 2 if implying is None else len(implying[0])
        return len(self.pairs)

    @property
    def pairs(self) -> Ints:
        """Array of shape (P, 2) with the pairs i < j of records covered by the guarantee, in lexicographic order."""
        return self.required[0]

    @property
    def distances(self) -> Floats:
        """Array of shape (P,) with the distance between the records of each pair in :attr:`pairs`."""
        return self.required[1]

    def between(self, pairs: Ints) -> Floats:
        """Return the distances between pairs of records.

        If ``pairs`` equals the pairs in :attr:`standing`, their known distances are reused.

        Args:
            pairs: Array of shape (P, 2) with record indices. The pairs need not be required.

        Returns:
            Array of shape (P,) with distances.
        """
        pairs_known, distances = self.standing
        # Computing distances may require a search for shortest paths, so those of the certified pairs are reused.
        is_known = pairs is pairs_known or np.array_equal(pairs, pairs_known)
        return distances if is_known else self.metric.between(pairs[:, 0], pairs[:, 1])

    def not_above(self, pairs: Ints, distances: Floats) -> Floats:
        """Return the given distances, replacing any that may exceed the exact ones.

        The replacements are computed distances, which are rounded down and therefore never exceed the exact ones.

        Args:
            pairs: Array of shape (P, 2) with record indices.
            distances: Array of shape (P,) with a distance for each pair, e.g. from a release.

        Returns:
            Array of shape (P,) with distances that do not exceed the exact ones.
        """
        # The problem's doubles are rounded down, so a given distance that is larger may still be at most the exact one.
        # The metric decides whether it is.
        doubtful = np.flatnonzero(distances > self.between(pairs))
        safe_distances = np.array(distances, dtype=np.float64)
        if doubtful.size:
            safe_distances[doubtful] = self.metric.not_above(pairs[doubtful], safe_distances[doubtful])
        return safe_distances

    @cached_property
    def needed(self) -> tuple[Ints, Floats]:
        """A subset of :attr:`pairs` that implies the rest, with distances, as arrays of shape (S, 2) and (S,).

        Only these pairs need constraints in an optimisation model (see :mod:`privopt_metric_dp.space.pairs`). If road
        lengths are summed exactly, these pairs are computed directly, so that the N^2 pairs of a city are never held in
        memory.
        """
        pairs, distances = needed_pairs(self.metric, lambda: self.required, within=self.within)
        return read_only(pairs), read_only(distances)

    @cached_property
    def standing(self) -> tuple[Ints, Floats]:
        """The pairs checked by the certificate, with distances, as arrays of shape (S, 2) and (S,).

        These are usually the pairs in :attr:`needed`. However, if there are many required pairs and the metric does not
        determine which of them imply the rest, all required pairs are checked, because searching for a subset would
        take too long.
        """
        has_implying_pairs = self.metric.implying(self.within) is not None
        return self.needed if has_implying_pairs or len(self.pairs) <= MAX_REDUCED_PAIRS else self.required

    def with_outputs(self, rows: Ints) -> MetricData:
        """Return the data of the same problem, at the same epsilon, with the given records as outputs.

        Args:
            rows: The indices of these records, in ascending order.
        """
        assert self.over is not None  # the caller has checked that outputs are chosen
        # `over` rebuilds the data from the problem file, whose epsilon may differ from the epsilon of this data.
        return evolve(self.over(rows), epsilon=self.epsilon)

    @property
    def streets(self) -> tuple[list[tuple[int, int, Fraction]], int, Ints] | None:
        """The undirected streets with exact lengths, the number of nodes, and the node index of each record.

        None if losses are not path lengths along streets, or if exact decimal lengths are unknown.
        """
        return self.metric.streets if self.along_streets and isinstance(self.metric, RoadMetric) else None

    @cached_property
    def to_outputs(self) -> Floats:
        """The distances from records to outputs, as an array of shape (N, K).

        Raises:
            InputError: Distances are read from a matrix, and ``distance.output_matrix`` is missing.
        """
        if not self.crossed:
            expectation = "the distances from records to outputs, which this mechanism needs"
            raise InputError([Fault(self.file, "distance.output_matrix", "nothing", expectation)])
        return self.metric.to_outputs()


def _check_both_ways(metric: Metric, pairs: Ints, distances: Floats, records: Space) -> None:
    """Check that a plugin's metric returns real numbers and the same distance in both directions.

    Args:
        metric: The metric.
        pairs: Array of shape (P, 2) with the record indices of required pairs.
        distances: Array of shape (P,) with the distance returned by the metric from the first record of each pair to
            the second.
        records: The records, whose ids appear in error messages.

    Raises:
        RegistryError: The metric returns values that are not real numbers, or distances that differ between the two
            directions.
    """
    # The certificate checks each pair once for both directions, which would be wrong if the two distances differed.
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
