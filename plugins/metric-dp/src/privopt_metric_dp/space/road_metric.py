"""Shortest-path distances over roads, as a metric between places.

Distances are sums of road lengths. If these sums are not exact (see :class:`privopt_metric_dp.space.roads.Roads`), a
bound on the rounding error is subtracted from each, so that a distance never exceeds the exact one.
"""

from __future__ import annotations

import math
from copy import copy
from fractions import Fraction
from functools import cached_property, partial
from typing import cast

import numpy as np
import numpy.typing as npt

from privopt.arrays import Bools, Floats, Ints
from privopt.errors import Fault, InputError
from privopt.numbers.exp_log_bounds import Ball, ball_of
from privopt_metric_dp.space.exactly import between_bounds
from privopt_metric_dp.space.metrics import Metric
from privopt_metric_dp.space.places import Space
from privopt_metric_dp.space.roads import Roads

__all__ = ["RoadMetric"]


class RoadMetric(Metric):
    """Shortest-path distances over undirected roads, in km.

    A distance is infinite if no path connects the two places.

    Attributes:
        roads: The roads. Paths may pass through nodes that are not records.
        _places, _outputs: The node indices of the records and of the outputs.
        _implying: The cached results of :meth:`implying`, keyed by the argument ``within``.
        _rounding: A bound on the relative error of a sum along a path, or 0 if sums are exact.
    """

    def __init__(self, roads: Roads, records: Space, outputs: Space | None = None) -> None:
        """Look up the nodes of the records and outputs.

        Args:
            roads: Undirected roads.
            records, outputs: Places whose ids are nodes of the roads. Their coordinates are ignored. By default, the
                outputs are the records.

        Raises:
            InputError: The roads are directed, or some ids are not nodes. All of these ids are reported in a single
                error.
        """
        if roads.directed:
            raise InputError([Fault(roads.source, "", "one-way roads", "undirected roads for a distance")])
        faults: list[Fault] = []
        places = []
        for space in (records,) if outputs is None else (records, outputs):
            try:
                places.append(roads.positions(space.ids, source=space.source))
            except InputError as error:
                faults.extend(error.faults)
        if faults:
            raise InputError(faults)
        self.roads = roads
        self._places = places[0]
        self._outputs = places[-1]
        self._implying: dict[float, tuple[Ints, Floats]] = {}
        super().__init__(len(places[0]), len(places[-1]), outputs is None)
        # A shortest path has fewer edges than there are nodes, and each addition has a relative error of at most 2^-53.
        self._rounding = 0.0 if roads.exact else (len(roads) + 2.0) * 2.0**-53

    def between(self, i: npt.ArrayLike, j: npt.ArrayLike) -> Floats:
        """Return the distances in km between records ``i`` and ``j``, given as broadcastable arrays of record indices.

        One search is run for each record that has the smaller index in at least one pair.
        """
        first, second = np.broadcast_arrays(np.asarray(i, dtype=np.int64), np.asarray(j, dtype=np.int64))
        # Rounded sums may depend on the direction. So every search starts at the record with the smaller index, and a
        # pair's double is the same in both directions.
        lower, upper = np.minimum(first, second).ravel(), np.maximum(first, second).ravel()
        # The pairs are grouped by their smaller record index. Those for start g are `order[bounds[g] : bounds[g + 1]]`.
        starts, group = np.unique(lower, return_inverse=True)
        order = np.argsort(group, kind="stable")
        bounds = np.searchsorted(group[order], np.arange(len(starts) + 1))
        result = np.empty(len(lower))
        for part, block in self.roads.lengths(self._places[starts]):
            rows = order[bounds[part.start] : bounds[part.stop]]
            result[rows] = block[group[rows] - part.start, self._places[upper[rows]]]
        return self._round_down(result).reshape(first.shape)

    @cached_property
    def streets(self) -> tuple[list[tuple[int, int, Fraction]], int, Ints] | None:
        """The roads with their exact declared lengths, the number of nodes, and the node of each record.

        None if the exact lengths are not known.
        """
        streets = self.roads.streets
        return None if streets is None else (streets, len(self.roads), self._places)

    @property
    def road_pairs(self) -> Ints:
        """The pairs of records that are joined directly by a road, as an array of shape (E, 2).

        Roads to nodes that are not records are omitted.
        """
        record_of = np.full(len(self.roads), -1, dtype=np.int64)
        record_of[self._places] = np.arange(len(self._places))
        edge_records = record_of[self.roads.edge_nodes]
        return edge_records[(edge_records >= 0).all(axis=1)]

    def upper_distances(self, distances: Floats) -> Floats:
        """Return upper bounds on the exact shortest-path lengths, given the distances returned by this metric."""
        # The metric's doubles are rounded sums minus an error bound, so the exact sums may be larger by twice that
        # bound. The factor 4 leaves a margin, and 2^-51 covers the rounding of the products below.
        factor = self.roads.stretch * (1.0 + 4.0 * self._rounding)
        return distances if factor == 1.0 else distances * (factor * (1.0 + 2.0**-51))

    def exactly(self, pairs: Ints) -> list[Ball]:
        """Return balls that enclose the exact distances of pairs of records.

        The exact distances are sums of the declared decimals. If these are not known, a ball extends from the lower to
        the upper bound on the distance. One search is run for each record that comes first in at least one pair.

        Args:
            pairs: (P, 2) The record indices of each pair.
        """
        ways = self.roads.meant  # shortest paths over the declared decimals
        if ways is None:
            lower = self.between(pairs[:, 0], pairs[:, 1])
            return [
                between_bounds(*bounds)
                for bounds in zip(lower.tolist(), self.upper_distances(lower).tolist(), strict=True)
            ]
        lengths = ways.shortest_lengths(self._places[pairs].tolist())
        return [partial(ball_of, cast("Fraction", length)) for length in lengths]

    @property
    def exactness(self) -> str:
        """A phrase for reports about exact distances: sums of decimals, or intervals if the decimals are unknown."""
        return "distances between two doubles" if self.roads.meant is None else "exact distances: sums of decimals"

    def surely_within(self, pairs: Ints, distances: Floats, limit: float) -> Bools:
        """Return whether each pair's exact distance, rounded down to a double, is proved to be within a limit.

        If all road lengths are multiples of a common unit, pairs near the limit are decided by comparing integer path
        lengths.

        Args:
            pairs: (P, 2) The record indices of each pair.
            distances: (P,) The distances in km returned by this metric.
            limit: The limit in km.
        """
        is_within = super().surely_within(pairs, distances, limit)
        undecided = np.flatnonzero(~is_within)
        if undecided.size and self.roads.integer_roads is not None:
            roads, unit = self.roads.integer_roads
            # The largest integer length below the next double after the limit, which is therefore rounded down to at
            # most the limit. The factor 1 - 2^-90 allows for a relative difference of at most 2^-100 between the
            # declared lengths and the integers.
            max_units = math.ceil(Fraction(math.nextafter(limit, math.inf)) / unit * (1 - Fraction(1, 2**90))) - 1
            starts, group = np.unique(pairs[undecided, 0], return_inverse=True)
            # Nodes have the same indices in both networks, because both list the edges in the same order.
            for part, block in roads.lengths(self._places[starts], limit=float(max_units)):
                rows = np.flatnonzero((group >= part.start) & (group < part.stop))
                lengths = block[group[rows] - part.start, self._places[pairs[undecided[rows], 1]]]
                is_within[undecided[rows]] = lengths <= float(max_units)
        return is_within

    def _round_down(self, sums: Floats) -> Floats:
        """Reduce sums along paths by a bound on their rounding error, so that they never exceed the exact sums."""
        return sums if self.roads.exact else sums * (1.0 - self._rounding)

    def rows(self, i: npt.ArrayLike) -> Floats:
        """Return the distances in km from B given records to all records, as an array of shape (B, N)."""
        records = np.asarray(i, dtype=np.int64)
        if not self.roads.exact:
            return super().rows(records)  # it uses between(), which returns the same double in both directions
        return self.roads.table(self._places[records], self._places)

    def to_outputs(self, i: npt.ArrayLike | None = None) -> Floats:
        """Return the distances in km from B given records to all K outputs, as an array of shape (B, K).

        By default, distances from all records are returned.
        """
        records = np.arange(self.size) if i is None else np.asarray(i, dtype=np.int64)
        return (
            self.rows(records)
            if self.own_outputs
            else self._round_down(self.roads.table(self._places[records], self._outputs))
        )

    def towards(self, rows: Ints) -> RoadMetric:
        """Return a copy of this metric with the K records at the indices ``rows`` as outputs."""
        # The copy is shallow, so both metrics share the roads and the cached pairs.
        metric = copy(self)
        metric._outputs, metric.output_size, metric.own_outputs = self._places[rows], len(rows), False
        return metric

    def neighbours(self, within: float) -> tuple[Ints, Floats]:
        """Return the pairs i < j with a distance of at most ``within`` km, and their distances.

        One search, limited to that distance, is run for each record. :meth:`Metric.neighbours` describes the shapes and
        the order of the results.
        """
        pairs, distances = [], []
        # The search goes slightly beyond the limit, because error bounds are subtracted from the sums afterwards.
        for part, block in self.roads.lengths(self._places, limit=within * (1.0 + 4.0 * self._rounding)):
            lengths = self._round_down(block[:, self._places])
            row, col = np.nonzero(lengths <= within)
            upper = col > row + part.start  # lists each pair once; `row` counts from the start of the block
            row, col = row[upper], col[upper]
            pairs.append(np.column_stack([row + part.start, col]))
            distances.append(lengths[row, col])
        return np.concatenate(pairs).astype(np.int64), np.concatenate(distances)

    def implying(self, within: float | None = None) -> tuple[Ints, Floats] | None:
        """Return the pairs that are joined by a path through no third record. Their constraints imply all others.

        The shortest path between the records of any other pair consists of such paths, so the constraints of these
        pairs imply the other pair's constraint (Theorem 3.1 of Qiu, IJCAI 2024). If sums along paths are not exact, the
        result is None, because a rounded distance may then be less than the sum of the distances along the path.

        Args:
            within: The largest distance in km at which pairs must be implied. By default, all pairs must be implied.
        """
        if not self.roads.exact:
            return None
        limit = math.inf if within is None else within
        if limit not in self._implying:
            self._implying[limit] = self.roads.between_records(self._places, limit)
        return self._implying[limit]
