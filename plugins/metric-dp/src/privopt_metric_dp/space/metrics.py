"""Distances between records, and from records to outputs.

The distance of a pair is always the same double, whatever the direction, block or machine it is computed in, and it is
never above the exact distance (`privopt.numbers.distances`). Certificates, pairs and tables therefore use the same
doubles, bit for bit. `privopt_metric_dp.space.road_metric` has the metric of shortest paths, and
`privopt_metric_dp.space.distance_table` that of a file.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from fractions import Fraction
from functools import cached_property, partial
from typing import cast
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from privopt.arrays import Bools, Floats, Ints, read_only, slices
from privopt.errors import Fault, InputError, UsageError
from privopt.execution.limits import in_threads
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
from privopt_metric_dp.space.places import Space, rests_of

__all__ = ["EuclideanMetric", "HaversineMetric", "Metric"]

_CHUNK = 1 << 14  # numbers that are computed at once, so that they stay in the processor's cache
_BLOCK = 1 << 21  # distances that are held at once while a table is processed in blocks
_TREE_WIDTH = 12  # in more dimensions a k-d tree visits nearly every point, and blocks are faster
_TABLES: WeakValueDictionary[bytes, Floats] = WeakValueDictionary()
"""Tables of distances to all outputs, shared as long as any metric over the same places holds them."""
MORE = 1.0 + 1e-9  # factor on the radius of tree searches, so that rounding misses no pair
KM_A_DEGREE = 111.2  # upper bound of km per degree of latitude, or of longitude on the equator: above pi R / 180


class Metric(ABC):
    """Distances between N records, and from records to K outputs.

    `between(i, j)` and `between(j, i)` return the same double, and every other method returns that double for the pair.
    It is at most the exact distance, so a guarantee at the double also holds at the exact distance. Distances need not
    satisfy the triangle inequality: those of a matrix may not.

    Attributes:
        size: N, the number of records.
        output_size: K, the number of outputs.
        own_outputs: Whether the outputs are the records themselves.
    """

    def __init__(self, size: int, output_size: int, own_outputs: bool) -> None:
        self.size = size
        self.output_size = output_size
        self.own_outputs = own_outputs

    @abstractmethod
    def between(self, i: npt.ArrayLike, j: npt.ArrayLike) -> Floats:
        """Return distances between records i and j (index arrays that broadcast), in the metric's unit."""

    @abstractmethod
    def to_outputs(self, i: npt.ArrayLike | None = None) -> Floats:
        """Return (B, K) distances from the records i (all by default) to every output."""

    def towards(self, rows: Ints) -> Metric:
        """Return the same metric with the records ``rows`` (K,) as outputs.

        Raises:
            UsageError: The outputs of this metric cannot be chosen.
        """
        raise UsageError(f"{type(self).__name__} takes no outputs that are chosen among its records")

    def upper_distances(self, distances: Floats) -> Floats:
        """Return upper bounds of the exact distances, given this metric's doubles. Lower bounds on losses need them."""
        return distances

    def surely_within(self, pairs: Ints, distances: Floats, limit: float) -> Bools:
        """Return (P,) whether each pair's exact distance, rounded down to a double, is proved to be within ``limit``.

        Some pairs whose ``distances`` are within the limit may fail, because these doubles may lie below the exact
        distances. Lower bounds use only rows of the pairs that pass.
        """
        return self.upper_distances(distances) < math.nextafter(limit, math.inf)

    def exactly(self, pairs: Ints) -> list[Ball]:
        """Enclose the exact, finite distances of pairs of records (P, 2); by default the doubles of :meth:`between`."""
        return [partial(ball_of, Fraction(x)) for x in self.between(pairs[:, 0], pairs[:, 1]).tolist()]

    @property
    def exactness(self) -> str:
        """Description of the distances that :meth:`exactly` encloses, for reports."""
        return "distances as their kind gives them, in doubles"

    def not_above(self, pairs: Ints, distances: Floats) -> Floats:
        """Return each distance (P,) that is proved to be at most the exact one; for the others, :meth:`between`."""
        safe_distances = np.minimum(distances, computed := self.between(pairs[:, 0], pairs[:, 1]))
        undecided = np.flatnonzero((distances > computed) & (distances <= self.upper_distances(computed)))
        for row, ball in zip(undecided.tolist(), self.exactly(pairs[undecided]), strict=True):
            if at_most(float(distances[row]), ball):
                safe_distances[row] = distances[row]
        return safe_distances

    def rows(self, i: npt.ArrayLike) -> Floats:
        """Return (B, N) distances from the records i to every record."""
        return self.between(np.asarray(i, dtype=np.int64)[:, None], np.arange(self.size)[None, :])

    def table(self) -> Floats:
        """Return (N, N) distances between all records; 8 N^2 bytes."""
        return self.rows(np.arange(self.size))

    def neighbours(self, within: float) -> tuple[Ints, Floats]:
        """Return pairs i < j with a distance of at most `within`, and those distances.

        Returns:
            (P, 2) in lexicographic order, and (P,) the doubles of `between`, which are compared with the limit. Memory
            grows with P and N, not with N^2.
        """
        pair_blocks, records = [], np.arange(self.size)
        for part in slices(self.size, self.size, _BLOCK):
            row, col = np.nonzero(self.rows(records[part]) <= within)
            upper = col > row + part.start
            pair_blocks.append(np.column_stack([row[upper] + part.start, col[upper]]))
        pairs = np.concatenate(pair_blocks).astype(np.int64)
        return pairs, self.between(pairs[:, 0], pairs[:, 1])

    def implying(self, within: float | None = None) -> tuple[Ints, Floats] | None:
        """Return a small set of pairs known to imply every pair (or all within a distance); None by default."""
        return None


class _PointMetric(Metric):
    """Distances that are computed from coordinates on request."""

    _kinds: tuple[str, ...] = ()
    _name = ""

    def __init__(self, records: Space, outputs: Space | None = None) -> None:
        self.records = records
        self.outputs = records if outputs is None else outputs
        record_error = self._distance_error(self.records, self.records.left)
        # The rounding error of distances between records, and of distances from records to outputs.
        self._off = (2.0 * record_error, record_error + self._distance_error(self.outputs, self.outputs.left))
        super().__init__(len(self.records), len(self.outputs), outputs is None)
        expectation = " or ".join(self._kinds)
        faults = [
            Fault(space.source, "", f"{space.kind} places", f"{expectation} places for {self._name} distance")
            for space in dict.fromkeys((self.records, self.outputs))
            if space.kind not in self._kinds
        ]
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
        """See :meth:`Metric.towards`."""
        return type(self)(self.records, self.records.some(rows))

    @property
    def points(self) -> Floats:
        """(N, dim) coordinates of the records."""
        return cast("Floats", self.records.coordinates)

    @abstractmethod
    def _measure_pairs(self, i: Ints, j: Ints, outputs: bool) -> Floats:
        """Return distances from records i to records (or outputs) j, computed from the doubles and rounded down."""

    @staticmethod
    @abstractmethod
    def _distance_error(space: Space, position_error: float) -> float:
        """Bound, in the metric's unit, how far a place moves if each coordinate changes by ``position_error``."""

    def _enclose_distance(self, i: int, j: int) -> Ball | None:
        """Enclose the exact distance of two records; None if their coordinates are not known exactly."""
        return None

    def exactly(self, pairs: Ints) -> list[Ball]:
        """Enclose the distances of the exact coordinates; if these are unknown, the interval between two doubles."""
        lower = self.between(pairs[:, 0], pairs[:, 1])
        bounds = zip(pairs.tolist(), lower.tolist(), self.upper_distances(lower).tolist(), strict=True)
        return [self._enclose_distance(i, j) or between_bounds(a, b) for (i, j), a, b in bounds]

    def _round_down(self, distances: Floats, outputs: bool) -> Floats:
        """Round distances down to at most those of the exact places, which may be nearer than the doubles are."""
        error = self._off[outputs]
        return distances if error == 0.0 else np.maximum((distances - error) * (1.0 - 2.0**-52), 0.0)

    def _measure_in_chunks(self, i: Ints, j: Ints, outputs: bool) -> Floats:
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
            part = slice(s, s + step) if step > 1 else s
            result[part] = self._measure_in_chunks(i[part], j[part], outputs)
        return result

    @abstractmethod
    def _search_tree(self, within: float) -> tuple[Floats, float]:
        """Return points in a Euclidean space, and a search radius that misses no pair."""

    def neighbours(self, within: float) -> tuple[Ints, Floats]:
        """Return pairs i < j with a distance of at most `within` by a k-d tree, and their distances."""
        points, radius = self._search_tree(within)
        if points.shape[1] > _TREE_WIDTH:
            return super().neighbours(within)
        from scipy.spatial import cKDTree

        pairs = cKDTree(points).query_pairs(radius, output_type="ndarray").astype(np.int64)
        pairs.sort(axis=1)
        distances = self.between(pairs[:, 0], pairs[:, 1])
        pairs, distances = pairs[distances <= within], distances[distances <= within]
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))
        return pairs[order], distances[order]

    def between(self, i: npt.ArrayLike, j: npt.ArrayLike) -> Floats:
        """Return distances between records i and j, from the table if it exists or if nearly all are requested."""
        rows, columns = np.asarray(i, dtype=np.int64), np.asarray(j, dtype=np.int64)
        table = _TABLES.get(self._table_key) if self.own_outputs else None
        if self.own_outputs and rows.size >= max(_CHUNK, self.size * (self.size - 1) // 2):
            table = self.to_outputs()
        return self._measure_in_chunks(rows, columns, False) if table is None else table[rows, columns]

    @cached_property
    def _table_key(self) -> bytes:
        """Hash of everything that determines the table of distances to outputs."""
        digest = hashlib.sha256(f"{type(self).__name__} {self.own_outputs} {self._off}".encode())
        for space in (self.records, self.outputs):
            digest.update(f"{space.off}".encode())
            for array in (space.coordinates, space.rests):
                digest.update(b"none" if array is None else f"{array.shape}".encode() + np.asarray(array).tobytes())
        return digest.digest()

    def to_outputs(self, i: npt.ArrayLike | None = None) -> Floats:
        """Return (B, K) distances from the records i to every output; for all records, a shared read-only table."""
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
        """Return (N, N) distances; each pair is computed once."""
        table = np.zeros((self.size, self.size))
        step = max(1, min(64, _BLOCK // self.size))
        for start in range(0, self.size, step):
            rows, columns = np.arange(start, min(start + step, self.size)), np.arange(start, self.size)
            part = self._measure_in_chunks(rows[:, None], columns[None, :], False)
            table[rows[0] : rows[-1] + 1, start:] = part
            table[start:, rows[0] : rows[-1] + 1] = part.T
        return table


class EuclideanMetric(_PointMetric):
    """Euclidean distance between planar points (km) or vectors (their own unit).

    Raises:
        InputError: The records are geographic or plain, or the outputs have another kind or dimension.
    """

    _kinds = ("planar", "vector")
    _name = "euclidean"

    def __init__(self, records: Space, outputs: Space | None = None) -> None:
        super().__init__(records, outputs)
        self._points = [np.ascontiguousarray(x) for x in (self.points, self.outputs.coordinates)]
        self._rests, self._pair_error = rests_of(self.records, self.outputs), self._off[0]
        # Subtracting the same small amount from every distance keeps a collinear distance at most the sum of its parts.
        all_points = np.concatenate(self._points)
        uniform_error = 2.0 * self._distance_error(self.records, 2.0**-53 * float(np.ptp(all_points, axis=0).max()))
        max_error = 2.0 * max(self._distance_error(space, space.off) for space in (self.records, self.outputs))
        self._off = (max(self._off[0], min(max_error, uniform_error)), max(self._off[1], min(max_error, uniform_error)))

    def _measure_pairs(self, i: Ints, j: Ints, outputs: bool) -> Floats:
        distances = np.empty(i.shape)
        points, targets = self._points[0], self._points[outputs]
        distances_of_pairs(
            points, targets, self._rests[0], self._rests[outputs], i.flatten(), j.flatten(), distances.reshape(-1)
        )
        return distances

    def _enclose_distance(self, i: int, j: int) -> Ball | None:
        a, b = place_of(self.records, i), place_of(self.records, j)
        return None if a is None or b is None else root_of(a, b)

    @property
    def exactness(self) -> str:
        """The exact distances are square roots of rational numbers."""
        return "exact distances: square roots of rational numbers"

    def _square_table(self) -> Floats:
        """Return (N, N) distances; each pair is computed once, in parallel."""
        points, table = self._points[0], np.empty((self.size, self.size))
        across, rests = np.ascontiguousarray(points.T), np.ascontiguousarray(self._rests[0].T)
        in_threads(lambda a, b: distances_of_block(points, across, rests, a, b, table), self.size)
        return self._round_down(table, False)

    def upper_distances(self, distances: Floats) -> Floats:
        """Return doubles that the exact distances do not exceed."""
        return upper_distances(distances + 2.0 * max(self._off))

    def surely_within(self, pairs: Ints, distances: Floats, limit: float) -> Bools:
        """Decide pairs near the limit by squared distances in rational arithmetic."""
        is_within = super().surely_within(pairs, distances, limit)
        undecided = np.flatnonzero(~is_within & (distances <= limit))
        if not undecided.size or not limit > self._pair_error:
            return is_within
        strict_limit = Fraction(math.nextafter(limit, math.inf)) - Fraction(self._pair_error)
        i, j = pairs[undecided].T
        rests = self._rests[0] if len(self._rests[0]) else np.zeros_like(self.points)
        point_parts = np.stack([self.points[i], rests[i], -self.points[j], -rests[j]], axis=1).tolist()
        squares = [sum(sum(map(Fraction, axis)) ** 2 for axis in zip(*parts, strict=True)) for parts in point_parts]
        is_within[undecided] = [square < strict_limit**2 for square in squares]
        return is_within

    @staticmethod
    def _distance_error(space: Space, position_error: float) -> float:
        return position_error * math.sqrt(max(1, _coordinate_count(space))) * (1.0 + 2.0**-50)

    def _search_tree(self, within: float) -> tuple[Floats, float]:
        radius = within + self._off[0] + 2.0 * self._distance_error(self.records, self.records.off)
        return self.points, radius * MORE + 1e-300


class HaversineMetric(_PointMetric):
    """Great-circle distance in km between geographic points, R = 6371.0 km.

    Raises:
        InputError: The records or outputs are not geographic.
    """

    _kinds = ("geographic",)
    _name = "haversine"

    def __init__(self, records: Space, outputs: Space | None = None) -> None:
        super().__init__(records, outputs)
        self._parts = [
            (points[:, 0].copy(), points[:, 1].copy(), cosine_of_latitude(points[:, 0]))
            for points in (self.points, cast("Floats", self.outputs.coordinates))
        ]
        max_latitude = max(float(np.abs(part[0]).max()) for part in self._parts)
        position_error = max(self.records.off, self.outputs.off)
        self._rests, self._relative_error = rests_of(self.records, self.outputs), 0.0
        if max_latitude > 80.0:  # cosines of latitudes feel what is omitted there: it is taken off
            self._rests = [rests[:0] for rests in self._rests]
            self._off = (
                2.0 * self._distance_error(self.records, position_error),
                2.0 * self._distance_error(self.records, position_error),
            )
        elif len(self._rests[0]):
            self._relative_error = 2.1 * math.tan(math.radians(max_latitude)) * math.radians(position_error)

    def _measure_pairs(self, i: Ints, j: Ints, outputs: bool) -> Floats:
        lat_a, lon_a, cos_a = self._parts[0]
        lat_b, lon_b, cos_b = self._parts[1 if outputs else 0]
        places = lat_a[i], lon_a[i], cos_a[i], lat_b[j], lon_b[j], cos_b[j]
        if not len(self._rests[0]):
            return great_circle(*places)
        lat, lon = np.moveaxis(self._rests[0][i] - self._rests[outputs][j], -1, 0)
        return great_circle(*places, lat_rest=lat, lon_rest=lon, error=self._relative_error)

    def _enclose_distance(self, i: int, j: int) -> Ball | None:
        return great_circle_of(self.records, i, j, EARTH_RADIUS_KM)

    @property
    def exactness(self) -> str:
        """Great-circle distances are enclosed, because they are not algebraic numbers."""
        return "distances enclosed as closely as it takes: great circles"

    def upper_distances(self, distances: Floats) -> Floats:
        """Return doubles that the exact distances do not exceed."""
        return upper_distances(distances * (1.0 + 2.0 * self._relative_error) + 2.0 * max(self._off))

    @staticmethod
    def _distance_error(space: Space, position_error: float) -> float:
        return 2.0 * position_error * KM_A_DEGREE

    def _search_tree(self, within: float) -> tuple[Floats, float]:
        chord = 2.0 * math.sin(min(within / (2.0 * EARTH_RADIUS_KM), math.pi / 2))
        error = (self._off[0] + 2.0 * self._distance_error(self.records, self.records.off)) / EARTH_RADIUS_KM
        return directions(self.points), chord * MORE + 1e-14 + error  # the points are rounded


def _coordinate_count(space: Space) -> int:
    return 0 if space.coordinates is None else space.coordinates.shape[1]
