"""Metrics: distances between records, and from records to outputs.

The distance between two records is always the same double, in both directions, on every machine, and however the pairs
are divided into blocks. Certificates, pairs and tables therefore use identical doubles. A distance never exceeds the
exact one (see :mod:`privopt.numbers.distances`). The shortest-path metric is in
:mod:`privopt_metric_dp.space.road_metric`, and the distance-table metric in
:mod:`privopt_metric_dp.space.distance_table`.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from fractions import Fraction
from functools import cached_property, partial
from typing import Final, cast
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from privopt.arrays import Bools, Floats, Ints, read_only, slices
from privopt.errors import Fault, InputError, UsageError
from privopt.execution.resources import in_threads
from privopt.numbers.distances import (
    EARTH_RADIUS_KM,
    cosine_of_latitude,
    directions,
    distances_of_block,
    distances_of_pairs,
    great_circle,
    upper_distances,
)
from privopt.numbers.exp_log_bounds import Ball, ball_of
from privopt_metric_dp.space.exactly import at_most, between_bounds, great_circle_of, place_of, root_of
from privopt_metric_dp.space.places import Space, check_resolution, rests_of

__all__ = ["EuclideanMetric", "HaversineMetric", "Metric"]

MAX_SHORTENING: Final = 2.0**-33
"""The largest fraction by which a planar distance is shortened.

Distances are shortened so that the constraints along a line imply the constraint for the ends of the line.
"""
_CHUNK = 1 << 14  # the number of distances computed at a time, so few that they stay in the processor's cache
_BLOCK = 1 << 21  # the maximum number of distances in memory while a table is processed in blocks
_TREE_WIDTH = 12  # in more dimensions, a k-d tree visits nearly every point, and blocks are faster
_TABLES: WeakValueDictionary[bytes, Floats] = WeakValueDictionary()
"""Tables of distances to all outputs, keyed by hash. Metrics over the same places share a table, which is kept as long
as any of these metrics uses it."""
MORE = 1.0 + 1e-9  # factor for the radius of tree searches, so that no pair is missed because of rounding
KM_A_DEGREE = 111.2  # upper bound on km per degree of latitude, or of longitude at the equator: above pi R / 180


class Metric(ABC):
    """Distances between N records, and from records to K outputs.

    ``between(i, j)`` and ``between(j, i)`` return the same double, and all other methods use this double too. It is at
    most the exact distance, so a guarantee stated for the double also holds for the exact distance. Distances from a
    table need not satisfy the triangle inequality.

    Attributes:
        size: The number N of records.
        output_size: The number K of outputs.
        own_outputs: Whether the outputs are the records themselves.
    """

    def __init__(self, size: int, output_size: int, own_outputs: bool) -> None:
        """Store the number of records, the number of outputs, and whether the outputs are the records themselves."""
        self.size = size
        self.output_size = output_size
        self.own_outputs = own_outputs

    @abstractmethod
    def between(self, i: npt.ArrayLike, j: npt.ArrayLike) -> Floats:
        """Return the distances between records ``i`` and ``j``, given as broadcastable arrays of record indices."""

    @abstractmethod
    def to_outputs(self, i: npt.ArrayLike | None = None) -> Floats:
        """Return the distances from B given records (by default, all) to all outputs, as an array of shape (B, K)."""

    def towards(self, rows: Ints) -> Metric:
        """Return a copy of this metric with the K records at the indices ``rows`` as outputs.

        Raises:
            UsageError: The metric does not support outputs that are chosen from its records.
        """
        raise UsageError(f"{type(self).__name__} takes no outputs that are chosen among its records")

    def upper_distances(self, distances: Floats) -> Floats:
        """Return upper bounds on the exact distances, given the rounded-down distances returned by this metric."""
        return distances

    def surely_within(self, pairs: Ints, distances: Floats, limit: float) -> Bools:
        """Return whether each pair's exact distance, rounded down to a double, is proved to be within a limit.

        The result may be False even if the double in ``distances`` is within the limit, because the exact distance may
        be larger. Lower bounds on losses use only the constraints of pairs for which the result is True.

        Args:
            pairs: (P, 2) The record indices of each pair.
            distances: (P,) The rounded-down distances returned by this metric.
            limit: The limit, in the metric's unit.
        """
        # Any number below the next double after the limit is rounded down to at most the limit.
        return self.upper_distances(distances) < math.nextafter(limit, math.inf)

    def exactly(self, pairs: Ints) -> list[Ball]:
        """Return balls that enclose the exact, finite distances of pairs, given as an array of shape (P, 2).

        A ball is a function that returns an interval (``flint.arb``). The default implementation treats the doubles as
        exact.
        """
        return [partial(ball_of, Fraction(x)) for x in self.between(pairs[:, 0], pairs[:, 1]).tolist()]

    @property
    def exactness(self) -> str:
        """A description of the distances enclosed by :meth:`exactly`, for use in reports."""
        return "distances as their kind gives them, in doubles"

    def not_above(self, pairs: Ints, distances: Floats) -> Floats:
        """Return the given distances, replacing any that may exceed the exact distance with this metric's own value.

        This is used for distances stored in a release. If any of them exceeded the exact distance, the guarantee would
        be too weak.

        Args:
            pairs: (P, 2) The record indices of each pair.
            distances: (P,) The distances to check, in the metric's unit.
        """
        safe_distances = np.minimum(distances, computed := self.between(pairs[:, 0], pairs[:, 1]))
        # Slow exact comparisons are only needed for values between the lower and the upper bound on the distance.
        undecided = np.flatnonzero((distances > computed) & (distances <= self.upper_distances(computed)))
        for row, ball in zip(undecided.tolist(), self.exactly(pairs[undecided]), strict=True):
            if at_most(float(distances[row]), ball):
                safe_distances[row] = distances[row]
        return safe_distances

    def rows(self, i: npt.ArrayLike) -> Floats:
        """Return the distances from B given records to all records, as an array of shape (B, N)."""
        return self.between(np.asarray(i, dtype=np.int64)[:, None], np.arange(self.size)[None, :])

    def table(self) -> Floats:
        """Return the distances between all records, as an array of shape (N, N) that takes 8 N^2 bytes."""
        return self.rows(np.arange(self.size))

    def neighbours(self, within: float) -> tuple[Ints, Floats]:
        """Return the pairs i < j at a distance of at most ``within``, compared as doubles.

        Returns:
            The pairs in lexicographic order, of shape (P, 2), and their distances, of shape (P,). Computing them takes
            memory proportional to P and N rather than to N^2.
        """
        pair_blocks, records = [], np.arange(self.size)
        for part in slices(self.size, self.size, _BLOCK):
            row, col = np.nonzero(self.rows(records[part]) <= within)
            # Each pair is listed once, with the smaller index first. `row` counts from the start of the block.
            upper = col > row + part.start
            pair_blocks.append(np.column_stack([row[upper] + part.start, col[upper]]))
        pairs = np.concatenate(pair_blocks).astype(np.int64)
        return pairs, self.between(pairs[:, 0], pairs[:, 1])

    def implying(self, within: float | None = None) -> tuple[Ints, Floats] | None:
        """Return a small set of pairs whose constraints imply those of all pairs, or of all pairs within a limit.

        A pair is implied if a path over pairs in the set is no longer than the pair's distance, because the constraints
        along the path then imply the pair's constraint. The base implementation returns None.

        Args:
            within: The largest distance at which pairs must be implied. By default, all pairs must be implied.

        Returns:
            The pairs i < j, of shape (S, 2), and their distances, of shape (S,), or None if no such set is known.
        """
        return None


class _PointMetric(Metric):
    """A metric whose distances are computed from coordinates on request.

    Attributes:
        records, outputs: The places of the records and of the outputs.
        _kinds, _name: The supported kinds of places, and the metric's name for error messages.
        _off: Two upper bounds, in the metric's unit, on the amount by which a computed distance may exceed the distance
            between the declared places. The first is for distances between records, and the second for distances from
            records to outputs.
    """

    _kinds: tuple[str, ...] = ()
    _name = ""

    def __init__(self, records: Space, outputs: Space | None = None) -> None:
        """Check that the places have coordinates of the right kind, and bound the errors in distances.

        Args:
            records: The N places.
            outputs: The K places that may be reported. By default, they are the records.

        Raises:
            InputError: The metric is not defined for this kind of places, or records and outputs differ in kind or
                dimension.
        """
        self.records = records
        self.outputs = records if outputs is None else outputs
        # `remaining_error` bounds how far the coordinates in use are from the declared ones.
        record_error = self._distance_error(self.records, self.records.remaining_error)
        output_error = self._distance_error(self.outputs, self.outputs.remaining_error)
        self._off = (2.0 * record_error, record_error + output_error)
        super().__init__(len(self.records), len(self.outputs), outputs is None)
        expectation = " or ".join(self._kinds)
        faults = [
            Fault(space.source, "", f"{space.kind} places", f"{expectation} places for {self._name} distance")
            # dict.fromkeys() removes the duplicate if the outputs are the records themselves.
            for space in dict.fromkeys((self.records, self.outputs))
            if space.kind not in self._kinds
        ]
        # Compiled code assumes that both arrays have the same number of columns.
        if not faults and (self.records.kind, _coordinate_count(self.records)) != (
            self.outputs.kind,
            _coordinate_count(self.outputs),
        ):
            actual = f"{self.outputs.kind} outputs of {_coordinate_count(self.outputs)} coordinates"
            expectation = f"{self.records.kind} outputs of {_coordinate_count(self.records)}, as the records"
            faults.append(Fault(self.outputs.source, "", actual, expectation))
        if faults:
            raise InputError(faults)

    def towards(self, rows: Ints) -> Metric:
        """Return a copy of this metric with the K records at the indices ``rows`` as outputs."""
        return type(self)(self.records, self.records.select(rows))

    @property
    def points(self) -> Floats:
        """The coordinates of the records, as an array of shape (N, dim)."""
        return cast("Floats", self.records.coordinates)

    @abstractmethod
    def _measure_pairs(self, i: Ints, j: Ints, outputs: bool) -> Floats:
        """Compute the distances from records i to records (or outputs) j from their coordinates, rounded down.

        Args:
            i, j: Index arrays of the same shape, with one or two axes.
            outputs: Whether j contains output indices rather than record indices.
        """

    @staticmethod
    @abstractmethod
    def _distance_error(space: Space, position_error: float) -> float:
        """Return a bound on how far a place moves if each of its coordinates changes by ``position_error``.

        The bound is in the metric's unit.
        """

    def _enclose_distance(self, i: int, j: int) -> Ball | None:
        """Return a ball that encloses the exact distance between records i and j, or None if it cannot be computed."""
        return None

    def exactly(self, pairs: Ints) -> list[Ball]:
        """Return balls that enclose the exact distances of pairs, given as an array of shape (P, 2).

        If the exact coordinates are not known, a ball extends from the lower to the upper bound on the distance.
        """
        lower = self.between(pairs[:, 0], pairs[:, 1])
        bounds = zip(pairs.tolist(), lower.tolist(), self.upper_distances(lower).tolist(), strict=True)
        return [self._enclose_distance(i, j) or between_bounds(a, b) for (i, j), a, b in bounds]

    def _round_down(self, distances: Floats, outputs: bool) -> Floats:
        """Round distances down, so that they are at most the distances between the declared places.

        The declared places may be closer to each other than the doubles that represent them.

        Args:
            distances: Distances computed from the doubles, in the metric's unit.
            outputs: Whether these are distances to outputs rather than to records.
        """
        error = self._off[outputs]
        # The factor 1 - 2^-52 covers the rounding of the subtraction.
        return distances if error == 0.0 else np.maximum((distances - error) * (1.0 - 2.0**-52), 0.0)

    def _measure_in_chunks(self, i: Ints, j: Ints, outputs: bool) -> Floats:
        """Return the rounded-down distances from records i to records (or outputs) j, computed in small chunks.

        Chunks of ``_CHUNK`` distances keep the temporary arrays in the processor's cache. Their size does not affect
        the result.

        Args:
            i: An array of record indices.
            j: An array of indices that broadcasts with i: output indices if ``outputs`` is True, and record indices
                otherwise.
            outputs: Whether these are distances to outputs rather than to records.
        """
        i, j = np.broadcast_arrays(i, j)
        if i.size <= _CHUNK:
            return self._round_down(self._measure_pairs(i, j, outputs), outputs)
        if i.ndim == 1:
            steps = range(0, i.size, _CHUNK)
            return np.concatenate(
                [self._measure_in_chunks(i[s : s + _CHUNK], j[s : s + _CHUNK], outputs) for s in steps]
            )
        result = np.empty(i.shape)
        step = max(1, _CHUNK // (i.size // len(i)))
        for s in range(0, len(i), step):
            # A single row is passed on as a one-dimensional array, so that it is split by the case above if it is long.
            part = slice(s, s + step) if step > 1 else s
            result[part] = self._measure_in_chunks(i[part], j[part], outputs)
        return result

    @abstractmethod
    def _search_tree(self, within: float) -> tuple[Floats, float]:
        """Return a Euclidean point for each record, and a search radius within which all pairs are found.

        Args:
            within: The largest distance of a pair, in the metric's unit.

        Returns:
            The points, of shape (N, dim), and the radius. The radius may be slightly too large, because the caller
            checks the distances of the pairs found against ``within``.
        """

    def neighbours(self, within: float) -> tuple[Ints, Floats]:
        """Return the same pairs and distances as :meth:`Metric.neighbours`, using a k-d tree to find them."""
        points, radius = self._search_tree(within)
        # In many dimensions, the tree would visit nearly every point, so it is faster to compute the table in blocks.
        if points.shape[1] > _TREE_WIDTH:
            return super().neighbours(within)
        from scipy.spatial import cKDTree

        pairs = cKDTree(points).query_pairs(radius, output_type="ndarray").astype(np.int64)
        pairs.sort(axis=1)
        distances = self.between(pairs[:, 0], pairs[:, 1])
        pairs, distances = pairs[distances <= within], distances[distances <= within]
        # The tree returns pairs in no particular order. The last key of lexsort is its primary one.
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))
        return pairs[order], distances[order]

    def between(self, i: npt.ArrayLike, j: npt.ArrayLike) -> Floats:
        """Return the distances between records ``i`` and ``j``, given as broadcastable arrays of record indices.

        If the outputs are the records, the distances are read from a shared table if it already exists or if nearly all
        distances are requested.
        """
        rows, columns = np.asarray(i, dtype=np.int64), np.asarray(j, dtype=np.int64)
        table = _TABLES.get(self._table_key) if self.own_outputs else None
        # If nearly all distances are requested, the whole table is computed once and shared.
        if self.own_outputs and rows.size >= max(_CHUNK, self.size * (self.size - 1) // 2):
            table = self.to_outputs()
        return self._measure_in_chunks(rows, columns, False) if table is None else table[rows, columns]

    @cached_property
    def _table_key(self) -> bytes:
        """A hash of all data that determines the table of distances to outputs.

        Metrics over the same places share one table, which is stored in ``_TABLES`` under this key.
        """
        digest = hashlib.sha256(f"{type(self).__name__} {self.own_outputs} {self._off}".encode())
        for space in (self.records, self.outputs):
            digest.update(f"{space.off}".encode())
            for array in (space.coordinates, space.rests):
                digest.update(b"none" if array is None else f"{array.shape}".encode() + np.asarray(array).tobytes())
        return digest.digest()

    def to_outputs(self, i: npt.ArrayLike | None = None) -> Floats:
        """Return the distances from B given records to all outputs, as an array of shape (B, K) in the metric's unit.

        If i is None, the result is the table of shape (N, K) for all records. It is read-only and shared with other
        metrics over the same places.
        """
        if i is not None:
            return self._measure_in_chunks(
                np.asarray(i, dtype=np.int64)[:, None], np.arange(self.output_size), not self.own_outputs
            )
        table = _TABLES.get(self._table_key)
        if table is None:
            table = read_only(self._square_table() if self.own_outputs else self.to_outputs(np.arange(self.size)))
            _TABLES[self._table_key] = table
        return table

    def _square_table(self) -> Floats:
        """Return the table of distances between records, of shape (N, N). Each distance is computed only once."""
        table = np.zeros((self.size, self.size))
        step = max(1, min(64, _BLOCK // self.size))
        for start in range(0, self.size, step):
            rows, columns = np.arange(start, min(start + step, self.size)), np.arange(start, self.size)
            # The columns from the diagonal on are computed. Their transpose fills the part below the diagonal.
            part = self._measure_in_chunks(rows[:, None], columns[None, :], False)
            table[rows[0] : rows[-1] + 1, start:] = part
            table[start:, rows[0] : rows[-1] + 1] = part.T
        return table


class EuclideanMetric(_PointMetric):
    """Euclidean distance between vectors, or between planar points in km or another declared unit.

    Attributes:
        _points: The coordinates of the records and of the outputs, as doubles.
        _rests: The declared decimal coordinates minus these doubles, or empty arrays if all differences are 0.
        _proved_errors: The bounds in ``_off`` before this class increases them. They cover only rounding errors.

    Raises:
        InputError: The records are geographic or plain, the outputs differ from them in kind or dimension, or the
            distance between two records is too small, relative to the map's extent, for doubles to resolve.
    """

    _kinds = ("planar", "vector")
    _name = "euclidean"

    def __init__(self, records: Space, outputs: Space | None = None) -> None:
        """Prepare arrays for the compiled functions, and compute the amounts to subtract from distances.

        Args:
            records: Planar places (km) or vectors.
            outputs: The places that may be reported. By default, they are the records.
        """
        super().__init__(records, outputs)
        self._points = [np.ascontiguousarray(x) for x in (self.points, self.outputs.coordinates)]
        self._rests, self._proved_errors = rests_of(self.records, self.outputs), self._off
        # The same small amount is subtracted from every distance, except between very close places (see `_round_down`).
        # Otherwise, rounding could make the distance between two places less than the sum of the distances along the
        # line between them, which would then not imply the pair. With the subtraction, the distance is reduced once,
        # and the sum at least twice. The amount is the distance error for a rounding error of half a unit in the last
        # place of the map's extent, unless the rounding errors of the coordinates (`off`) are smaller.
        all_points = np.concatenate(self._points)
        uniform_error = 2.0 * self._distance_error(self.records, 2.0**-53 * float(np.ptp(all_points, axis=0).max()))
        max_error = 2.0 * max(self._distance_error(space, space.off) for space in (self.records, self.outputs))
        self._off = (max(self._off[0], min(max_error, uniform_error)), max(self._off[1], min(max_error, uniform_error)))
        check_resolution(self.records, self._proved_errors[0])

    def _measure_pairs(self, i: Ints, j: Ints, outputs: bool) -> Floats:
        """Return the Euclidean distances from records i to records (or outputs) j, rounded down."""
        distances = np.empty(i.shape)
        points, targets = self._points[0], self._points[outputs]
        distances_of_pairs(
            points, targets, self._rests[0], self._rests[outputs], i.flatten(), j.flatten(), distances.reshape(-1)
        )
        return distances

    def _round_down(self, distances: Floats, outputs: bool) -> Floats:
        """Round distances down by a fixed amount, or by a small relative amount if the places are very close together.

        The fixed amount grows with the extent of the map. For places closer than a few millionths of that extent, it
        would exceed the relative difference of 1e-9 that ``verify`` and the stand-alone checker allow. Distances
        between such places are instead reduced by the proved error bound and by the fraction ``MAX_SHORTENING``.
        """
        shortened = (distances - self._proved_errors[outputs]) * (1.0 - MAX_SHORTENING)
        return np.maximum(super()._round_down(distances, outputs), shortened)

    def _enclose_distance(self, i: int, j: int) -> Ball | None:
        """Return a ball that encloses the exact distance between records i and j, or None if a decimal is too long."""
        a, b = place_of(self.records, i), place_of(self.records, j)
        return None if a is None or b is None else root_of(a, b)

    @property
    def exactness(self) -> str:
        """A phrase for reports that says what the exact distances are, namely square roots of rational numbers."""
        return "exact distances: square roots of rational numbers"

    def _square_table(self) -> Floats:
        """Return the table of distances between records, of shape (N, N), computed using several threads."""
        points, table = self._points[0], np.empty((self.size, self.size))
        # The compiled function reads one coordinate of many points at a time, so each coordinate must be contiguous.
        across, rests = np.ascontiguousarray(points.T), np.ascontiguousarray(self._rests[0].T)
        in_threads(lambda a, b: distances_of_block(points, across, rests, a, b, table), self.size)
        return self._round_down(table, False)

    def upper_distances(self, distances: Floats) -> Floats:
        """Return upper bounds on the exact distances, given the rounded-down distances returned by this metric."""
        # The error is added twice, because it was subtracted from the doubles, and the exact places may be farther
        # apart by the same amount.
        return upper_distances(distances + 2.0 * max(self._off))

    def surely_within(self, pairs: Ints, distances: Floats, limit: float) -> Bools:
        """Return whether each pair's exact distance is proved to be within the limit, as a boolean array of shape (P,).

        If the limit lies between the bounds on a pair's distance, the squared distance is compared in rational
        arithmetic.

        Args:
            pairs: (P, 2) The record indices of each pair.
            distances: (P,) The rounded-down distances returned by this metric.
            limit: The limit. A distance that equals the limit after rounding down is within it.
        """
        is_within = super().surely_within(pairs, distances, limit)
        undecided = np.flatnonzero(~is_within & (distances <= limit))
        # If the limit does not exceed the error, `strict_limit` might be negative, and its square would prove nothing.
        if not undecided.size or not limit > self._proved_errors[0]:
            return is_within
        # Even with their rests, the coordinates may differ from the declared ones, so that error is subtracted.
        strict_limit = Fraction(math.nextafter(limit, math.inf)) - Fraction(self._proved_errors[0])
        i, j = pairs[undecided].T
        rests = self._rests[0] if len(self._rests[0]) else np.zeros_like(self.points)
        # For each pair and axis, the four terms x_i, rest_i, -x_j and -rest_j, which are added as exact rationals.
        point_parts = np.stack([self.points[i], rests[i], -self.points[j], -rests[j]], axis=1).tolist()
        squares = [sum(sum(map(Fraction, axis)) ** 2 for axis in zip(*parts, strict=True)) for parts in point_parts]
        is_within[undecided] = [square < strict_limit**2 for square in squares]
        return is_within

    @staticmethod
    def _distance_error(space: Space, position_error: float) -> float:
        """Return a bound on how far a place moves if each of its coordinates changes by ``position_error``.

        If all coordinates change by x, the place moves by sqrt(dim) x, in the space's unit. The factor 1 + 2^-50 covers
        the rounding of this product.
        """
        return position_error * math.sqrt(max(1, _coordinate_count(space))) * (1.0 + 2.0**-50)

    def _search_tree(self, within: float) -> tuple[Floats, float]:
        """Return the records' coordinates, and the search radius for pairs at a distance of at most ``within``."""
        radius = within + self._off[0] + 2.0 * self._distance_error(self.records, self.records.off)
        # 1e-300 keeps the radius positive if the limit is 0, for places at the same position.
        return self.points, radius * MORE + 1e-300


class HaversineMetric(_PointMetric):
    """Great-circle distance in km between geographic points, on a sphere with radius 6371.0 km.

    Attributes:
        _parts: The latitudes and longitudes of the records and outputs in degrees, and the cosines of the latitudes.
        _rests: The declared decimal coordinates minus their doubles, or empty arrays if all differences are 0.
        _relative_error: A bound on the relative error of the product of two cosines.

    Raises:
        InputError: The records or outputs are not geographic.
    """

    _kinds = ("geographic",)
    _name = "haversine"

    def __init__(self, records: Space, outputs: Space | None = None) -> None:
        """Prepare latitudes, longitudes and cosines for the compiled function, and bound the errors in distances.

        Args:
            records: Geographic places.
            outputs: The places that may be reported. By default, they are the records.
        """
        super().__init__(records, outputs)
        self._rests, self._relative_error = rests_of(self.records, self.outputs), 0.0
        spaces = [cast("Floats", space.coordinates) for space in (self.records, self.outputs)]
        has_rests = len(self._rests[0]) > 0
        self._parts = [
            (
                points[:, 0].copy(),
                points[:, 1].copy(),
                cosine_of_latitude(points[:, 0], rests[:, 0] if has_rests else 0.0),
            )
            for points, rests in zip(spaces, self._rests, strict=True)
        ]
        if has_rests:
            # The additional error of each cosine is u (2^-53) above 45 degrees, where the rest is part of the angle to
            # the pole. Up to 45 degrees, where the rest is neglected, it is the rest's size in radians. The error of
            # the product of two cosines is twice that. 2.1 and 2^-51 leave a margin.
            self._relative_error = 2.1 * math.radians(max(self.records.off, self.outputs.off)) + 2.0**-51

    def _measure_pairs(self, i: Ints, j: Ints, outputs: bool) -> Floats:
        """Return the great-circle distances in km from records i to records (or outputs) j, rounded down."""
        lat_a, lon_a, cos_a = self._parts[0]
        lat_b, lon_b, cos_b = self._parts[1 if outputs else 0]
        places = lat_a[i], lon_a[i], cos_a[i], lat_b[j], lon_b[j], cos_b[j]
        if not len(self._rests[0]):
            return great_circle(*places)
        lat, lon = np.moveaxis(self._rests[0][i] - self._rests[outputs][j], -1, 0)
        return great_circle(*places, lat_rest=lat, lon_rest=lon, error=self._relative_error)

    def _enclose_distance(self, i: int, j: int) -> Ball | None:
        """Return a ball around the exact distance in km between records i and j, or None if it cannot be computed."""
        return great_circle_of(self.records, i, j, EARTH_RADIUS_KM)

    @property
    def exactness(self) -> str:
        """A phrase for reports about exact distances, which are great-circle distances enclosed in intervals."""
        return "distances enclosed as closely as it takes: great circles"

    def upper_distances(self, distances: Floats) -> Floats:
        """Return upper bounds on the exact distances, given the rounded-down distances returned by this metric.

        The bounds cover the relative error of the cosines. Position errors are added twice, because they have
        already been subtracted from the distances.
        """
        return upper_distances(distances * (1.0 + 2.0 * self._relative_error) + 2.0 * max(self._off))

    @staticmethod
    def _distance_error(space: Space, position_error: float) -> float:
        """Return a bound, in km, on how far a place moves if each coordinate changes by ``position_error`` degrees.

        A degree of latitude or longitude is at most ``KM_A_DEGREE`` km, and the bound is the sum for the two
        coordinates.
        """
        return 2.0 * position_error * KM_A_DEGREE

    def _search_tree(self, within: float) -> tuple[Floats, float]:
        """Return the records as unit vectors, and the length of the chord that spans an arc of ``within`` km.

        A chord is the straight line between the ends of an arc. Longer arcs have longer chords, so two records are at
        most ``within`` km apart along the surface if and only if their straight-line distance is at most the length of
        this chord.
        """
        # The chord of an angle a on the unit sphere is 2 sin(a / 2). For more than half a turn, the diameter is used.
        chord = 2.0 * math.sin(min(within / (2.0 * EARTH_RADIUS_KM), math.pi / 2))
        error = (self._off[0] + 2.0 * self._distance_error(self.records, self.records.off)) / EARTH_RADIUS_KM
        return directions(self.points), chord * MORE + 1e-14 + error  # 1e-14 covers the directions' rounding


def _coordinate_count(space: Space) -> int:
    """Return the number of coordinates per place, or 0 if the places have none."""
    return 0 if space.coordinates is None else space.coordinates.shape[1]
