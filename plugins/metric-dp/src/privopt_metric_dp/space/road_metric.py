"""Shortest-path distances over roads, as a metric between places."""

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
    """Shortest-path distance over undirected roads, in km; infinite where no road leads.

    Args:
        roads: undirected; nodes that are not records are used.
        records, outputs: their ids are nodes (their coordinates play no part); outputs default: the records.

    Raises:
        InputError: ids that no edge names, or one-way roads.
    """

    def __init__(self, roads: Roads, records: Space, outputs: Space | None = None) -> None:
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
        # a path has fewer edges than there are nodes, and each sum is off by 2^-53 of itself at most
        self._rounding = 0.0 if roads.exact else (len(roads) + 2.0) * 2.0**-53

    def between(self, i: npt.ArrayLike, j: npt.ArrayLike) -> Floats:
        """Return distances between records i and j: one search for each record that is the lower of some pair."""
        first, second = np.broadcast_arrays(np.asarray(i, dtype=np.int64), np.asarray(j, dtype=np.int64))
        lower, upper = np.minimum(first, second).ravel(), np.maximum(first, second).ravel()
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
        """Roads by the decimals meant, the number of nodes, and the node of each record; None without decimals."""
        streets = self.roads.streets
        return None if streets is None else (streets, len(self.roads), self._places)

    @property
    def joined(self) -> Ints:
        """(E, 2) records that a road joins; roads to other nodes are omitted."""
        record_of = np.full(len(self.roads), -1, dtype=np.int64)
        record_of[self._places] = np.arange(len(self._places))
        edge_records = record_of[self.roads.ends]
        return edge_records[(edge_records >= 0).all(axis=1)]

    def upper_distances(self, distances: Floats) -> Floats:
        """Return doubles that the lengths of paths over the roads as given do not exceed."""
        factor = self.roads.stretch * (1.0 + 4.0 * self._rounding)
        return distances if factor == 1.0 else distances * (factor * (1.0 + 2.0**-51))

    def exactly(self, pairs: Ints) -> list[Ball]:
        """Add up the decimals meant: one search for each record that comes first in a pair."""
        ways = self.roads.meant
        if ways is None:
            lower = self.between(pairs[:, 0], pairs[:, 1])
            return [
                between_bounds(*bounds)
                for bounds in zip(lower.tolist(), self.upper_distances(lower).tolist(), strict=True)
            ]
        lengths = ways.between(self._places[pairs].tolist())
        return [partial(ball_of, cast("Fraction", length)) for length in lengths]

    @property
    def exactness(self) -> str:
        """Say that they are sums along ways, where the decimals are known."""
        return "distances between two doubles" if self.roads.meant is None else "exact distances: sums of decimals"

    def surely_within(self, pairs: Ints, distances: Floats, limit: float) -> Bools:
        """Decide pairs near the limit in whole numbers, if roads have such."""
        is_within = super().surely_within(pairs, distances, limit)
        undecided = np.flatnonzero(~is_within)
        if undecided.size and self.roads.counted is not None:
            roads, unit = self.roads.counted
            max_units = math.ceil(Fraction(math.nextafter(limit, math.inf)) / unit * (1 - Fraction(1, 2**90))) - 1
            starts, group = np.unique(pairs[undecided, 0], return_inverse=True)
            for part, block in roads.lengths(
                self._places[starts], limit=float(max_units)
            ):  # nodes have the same numbers
                rows = np.flatnonzero((group >= part.start) & (group < part.stop))
                lengths = block[group[rows] - part.start, self._places[pairs[undecided[rows], 1]]]
                is_within[undecided[rows]] = lengths <= float(max_units)
        return is_within

    def _round_down(self, sums: Floats) -> Floats:
        """Return sums along paths, never above the exact ones."""
        return sums if self.roads.exact else sums * (1.0 - self._rounding)

    def rows(self, i: npt.ArrayLike) -> Floats:
        """Return (B, N) distances from the records i to every record."""
        records = np.asarray(i, dtype=np.int64)
        if not self.roads.exact:
            return super().rows(records)
        return self.roads.table(self._places[records], self._places)

    def to_outputs(self, i: npt.ArrayLike | None = None) -> Floats:
        """Return (B, K) distances from the records i to every output."""
        records = np.arange(self.size) if i is None else np.asarray(i, dtype=np.int64)
        return (
            self.rows(records)
            if self.own_outputs
            else self._round_down(self.roads.table(self._places[records], self._outputs))
        )

    def towards(self, rows: Ints) -> RoadMetric:
        """See :meth:`Metric.towards`."""
        metric = copy(self)
        metric._outputs, metric.output_size, metric.own_outputs = self._places[rows], len(rows), False
        return metric

    def neighbours(self, within: float) -> tuple[Ints, Floats]:
        """Return pairs i < j with a distance of at most `within`, by searches that stop there."""
        pairs, distances = [], []
        for part, block in self.roads.lengths(self._places, limit=within * (1.0 + 4.0 * self._rounding)):
            lengths = self._round_down(block[:, self._places])
            row, col = np.nonzero(lengths <= within)
            upper = col > row + part.start
            row, col = row[upper], col[upper]
            pairs.append(np.column_stack([row + part.start, col]))
            distances.append(lengths[row, col])
        return np.concatenate(pairs).astype(np.int64), np.concatenate(distances)

    def implying(self, within: float | None = None) -> tuple[Ints, Floats] | None:
        """Return pairs whose paths pass no third record: they imply all pairs, or all those within a distance.

        Exactly so where the roads are exact; None where they are not.
        """
        if not self.roads.exact:
            return None
        limit = math.inf if within is None else within
        if limit not in self._implying:
            self._implying[limit] = self.roads.between_records(self._places, limit)
        return self._implying[limit]
