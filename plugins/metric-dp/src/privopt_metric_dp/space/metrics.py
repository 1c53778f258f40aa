"""Distances between records, and from records to outputs.

A distance is one double, in whichever direction, block or machine it is computed, and never above the exact one
(`privopt.numbers.distances`): certificates, pairs and tables use the same doubles, bit for bit.
`privopt_metric_dp.space.roads` has the metric of shortest paths, `privopt_metric_dp.space.distance_table` that of a
file.
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

_CHUNK = 1 << 14  # numbers computed at once: they stay in the processor's cache
_BLOCK = 1 << 21  # distances held at once where a table is gone through by blocks
_TREE_WIDTH = 12  # in more dimensions trees visit nearly everything: go by blocks
_TABLES: WeakValueDictionary[bytes, Floats] = WeakValueDictionary()
"""Distances to all outputs while somebody holds them, for anyone who reads the same places again."""
MORE = 1.0 + 1e-9  # trees are asked for a little more than they are to find
KM_A_DEGREE = 111.2  # of latitude or, on the equator, of longitude: a little more than pi R / 180


class Metric(ABC):
    """Distances between N records, and from records to K outputs.

    `between(i, j)` and `between(j, i)` are the same double, and every other method returns that
    double for the pair. It is at most the exact distance: what is promised at it holds at that too.
    Distances need not obey the triangle inequality (a matrix may not).

    Attributes:
        size: N, the number of records.
        output_size: K, the number of outputs.
        own_outputs: whether the outputs are the records themselves.
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
        """Take the records (K,) for the outputs, of a metric whose outputs are the records.

        Raises:
            UsageError: a metric whose outputs cannot be chosen.
        """
        raise UsageError(f"{type(self).__name__} takes no outputs that are chosen among its records")

    def upper_distances(self, distances: Floats) -> Floats:
        """Return doubles that the exact distances do not exceed, from those that this metric gave: for lower bounds."""
        return distances

    def surely_within(self, pairs: Ints, distances: Floats, limit: float) -> Bools:
        """Mark (P,) pairs whose exact distances, rounded down to doubles, are proved to be at most ``limit``.

        They are fewer than the pairs whose ``distances``, which may be a little less, are within it. Lower bounds use
        only rows of these pairs.
        """
        return self.upper_distances(distances) < math.nextafter(limit, math.inf)

    def exactly(self, pairs: Ints) -> list[Ball]:
        """Enclose the exact distances, finite ones, of pairs of records (P, 2); here those of :meth:`between`."""
        return [partial(ball_of, Fraction(x)) for x in self.between(pairs[:, 0], pairs[:, 1]).tolist()]

    @property
    def exactness(self) -> str:
        """Say in words what :meth:`rational_of_ball` gives."""
        return "distances as their kind gives them, in doubles"

    def not_above(self, pairs: Ints, distances: Floats) -> Floats:
        """Take each given distance (P,) that is proved to be at most the exact one, or else that of :meth:`between`."""
        least = np.minimum(distances, known := self.between(pairs[:, 0], pairs[:, 1]))
        doubt = np.flatnonzero((distances > known) & (distances <= self.upper_distances(known)))
        for row, ball in zip(doubt.tolist(), self.exactly(pairs[doubt]), strict=True):
            if at_most(float(distances[row]), ball):
                least[row] = distances[row]
        return least

    def rows(self, i: npt.ArrayLike) -> Floats:
        """Return (B, N) distances from the records i to every record."""
        return self.between(np.asarray(i, dtype=np.int64)[:, None], np.arange(self.size)[None, :])

    def table(self) -> Floats:
        """Return (N, N) distances between all records; 8 N^2 bytes."""
        return self.rows(np.arange(self.size))

    def neighbours(self, within: float) -> tuple[Ints, Floats]:
        """Return pairs i < j with a distance of at most `within`, and those distances.

        Returns:
            (P, 2) in lexicographic order, and (P,) the doubles that `between` gives; `<=` is decided on
            them. Memory goes with P and N, not with N^2.
        """
        found, every = [], np.arange(self.size)
        for part in slices(self.size, self.size, _BLOCK):
            row, col = np.nonzero(self.rows(every[part]) <= within)
            upper = col > row + part.start
            found.append(np.column_stack([row[upper] + part.start, col[upper]]))
        pairs = np.concatenate(found).astype(np.int64)
        return pairs, self.between(pairs[:, 0], pairs[:, 1])

    def implying(self, within: float | None = None) -> tuple[Ints, Floats] | None:
        """Return few pairs that are known to imply every pair (or all within a distance), if the metric has such."""
        return None


class _PointMetric(Metric):
    """Distances from coordinates, computed where they are asked for."""

    _kinds: tuple[str, ...] = ()
    _name = ""

    def __init__(self, records: Space, outputs: Space | None = None) -> None:
        self.records = records
        self.outputs = records if outputs is None else outputs
        far = self._far(self.records, self.records.left)
        # between records, and from them to outputs
        self._off = (2.0 * far, far + self._far(self.outputs, self.outputs.left))
        super().__init__(len(self.records), len(self.outputs), outputs is None)
        wanted = " or ".join(self._kinds)
        faults = [
            Fault(space.source, "", f"{space.kind} places", f"{wanted} places for {self._name} distance")
            for space in dict.fromkeys((self.records, self.outputs))
            if space.kind not in self._kinds
        ]
        if not faults and (self.records.kind, _width(self.records)) != (self.outputs.kind, _width(self.outputs)):
            found = f"{self.outputs.kind} outputs of {_width(self.outputs)} coordinates"
            wanted = f"{self.records.kind} outputs of {_width(self.records)}, as the records"
            faults.append(Fault(self.outputs.source, "", found, wanted))
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
    def _measure(self, i: Ints, j: Ints, outputs: bool) -> Floats:
        """Distances from records i to records (or outputs) j, between their doubles, rounded down."""

    @staticmethod
    @abstractmethod
    def _far(space: Space, position_error: float) -> float:
        """Bound, in the metric's unit, how far places off by ``position_error`` on each axis are from the true ones."""

    def _exactly(self, i: int, j: int) -> Ball | None:
        """Enclose the exact distance of two records; None where their places are known to some digits alone."""
        return None

    def exactly(self, pairs: Ints) -> list[Ball]:
        """Enclose those of the places meant; between two doubles where these are known to some digits alone."""
        low = self.between(pairs[:, 0], pairs[:, 1])
        bounds = zip(pairs.tolist(), low.tolist(), self.upper_distances(low).tolist(), strict=True)
        return [self._exactly(i, j) or between_bounds(below, above) for (i, j), below, above in bounds]

    def _down(self, distances: Floats, outputs: bool) -> Floats:
        """Return distances rounded down, never above those of the places meant: both places may lie nearer."""
        off = self._off[outputs]
        return distances if off == 0.0 else np.maximum((distances - off) * (1.0 - 2.0**-52), 0.0)

    def _chunked(self, i: Ints, j: Ints, outputs: bool) -> Floats:
        i, j = np.broadcast_arrays(i, j)
        if i.size <= _CHUNK:
            return self._down(self._measure(i, j, outputs), outputs)
        if i.ndim == 1:
            steps = range(0, i.size, _CHUNK)
            return np.concatenate([self._chunked(i[s : s + _CHUNK], j[s : s + _CHUNK], outputs) for s in steps])
        result = np.empty(i.shape)
        step = max(1, _CHUNK // (i.size // len(i)))
        for s in range(0, len(i), step):
            part = slice(s, s + step) if step > 1 else s
            result[part] = self._chunked(i[part], j[part], outputs)
        return result

    @abstractmethod
    def _tree(self, within: float) -> tuple[Floats, float]:
        """Points in a Euclidean space, and a radius that misses no pair."""

    def neighbours(self, within: float) -> tuple[Ints, Floats]:
        """Pairs i < j with a distance of at most `within`, found by a k-d tree, and those distances."""
        points, radius = self._tree(within)
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
        """Distances between records i and j; looked up in a table that is in use, or where all are asked for."""
        rows, columns = np.asarray(i, dtype=np.int64), np.asarray(j, dtype=np.int64)
        table = _TABLES.get(self._name_of_table) if self.own_outputs else None
        if self.own_outputs and rows.size >= max(_CHUNK, self.size * (self.size - 1) // 2):
            table = self.to_outputs()
        return self._chunked(rows, columns, False) if table is None else table[rows, columns]

    @cached_property
    def _name_of_table(self) -> bytes:
        """Of all that the table of distances to outputs follows from."""
        digest = hashlib.sha256(f"{type(self).__name__} {self.own_outputs} {self._off}".encode())
        for space in (self.records, self.outputs):
            digest.update(f"{space.off}".encode())
            for array in (space.coordinates, space.rests):
                digest.update(b"none" if array is None else f"{array.shape}".encode() + np.asarray(array).tobytes())
        return digest.digest()

    def to_outputs(self, i: npt.ArrayLike | None = None) -> Floats:
        """(B, K) distances from the records i to every output; all of them are read-only, one table for all who ask."""
        if i is not None:
            return self._chunked(
                np.asarray(i, dtype=np.int64)[:, None], np.arange(self.output_size), not self.own_outputs
            )
        table = _TABLES.get(self._name_of_table)
        if table is None:
            table = read_only(self._square() if self.own_outputs else self.to_outputs(np.arange(self.size)))
            _TABLES[self._name_of_table] = table
        return table

    def _square(self) -> Floats:
        """(N, N) distances, each pair's computed once."""
        table = np.zeros((self.size, self.size))
        step = max(1, min(64, _BLOCK // self.size))
        for start in range(0, self.size, step):
            rows, columns = np.arange(start, min(start + step, self.size)), np.arange(start, self.size)
            part = self._chunked(rows[:, None], columns[None, :], False)
            table[rows[0] : rows[-1] + 1, start:] = part
            table[start:, rows[0] : rows[-1] + 1] = part.T
        return table


class EuclideanMetric(_PointMetric):
    """Euclidean distance between planar points (km) or vectors (their own unit).

    Raises:
        InputError: geographic or plain records, or outputs of another kind or width.
    """

    _kinds = ("planar", "vector")
    _name = "euclidean"

    def __init__(self, records: Space, outputs: Space | None = None) -> None:
        super().__init__(records, outputs)
        self._points = [np.ascontiguousarray(x) for x in (self.points, self.outputs.coordinates)]
        self._rests, self._sure = rests_of(self.records, self.outputs), self._off[0]
        # the same little off each, as far as doubles go: then collinear steps are no longer than the way over them
        ends = np.concatenate(self._points)
        even = 2.0 * self._far(self.records, 2.0**-53 * float(np.ptp(ends, axis=0).max()))
        most = 2.0 * max(self._far(space, space.off) for space in (self.records, self.outputs))
        self._off = (max(self._off[0], min(most, even)), max(self._off[1], min(most, even)))

    def _measure(self, i: Ints, j: Ints, outputs: bool) -> Floats:
        found = np.empty(i.shape)
        one, other = self._points[0], self._points[outputs]
        distances_of_pairs(
            one, other, self._rests[0], self._rests[outputs], i.flatten(), j.flatten(), found.reshape(-1)
        )
        return found

    def _exactly(self, i: int, j: int) -> Ball | None:
        one, other = place_of(self.records, i), place_of(self.records, j)
        return None if one is None or other is None else root_of(one, other)

    @property
    def exactness(self) -> str:
        """Say that they are roots of sums of squares."""
        return "exact distances: square roots of rational numbers"

    def _square(self) -> Floats:
        """(N, N) distances, each pair's computed once, by all threads."""
        points, table = self._points[0], np.empty((self.size, self.size))
        across, rests = np.ascontiguousarray(points.T), np.ascontiguousarray(self._rests[0].T)
        in_threads(lambda a, b: distances_of_block(points, across, rests, a, b, table), self.size)
        return self._down(table, False)

    def upper_distances(self, distances: Floats) -> Floats:
        """Return doubles that the exact distances do not exceed."""
        return upper_distances(distances + 2.0 * max(self._off))

    def surely_within(self, pairs: Ints, distances: Floats, limit: float) -> Bools:
        """Decide pairs near the limit in rationals: squares of differences of the coordinates."""
        sure = super().surely_within(pairs, distances, limit)
        near = np.flatnonzero(~sure & (distances <= limit))
        if not near.size or not limit > self._sure:
            return sure
        most = Fraction(math.nextafter(limit, math.inf)) - Fraction(self._sure)
        i, j = pairs[near].T
        rests = self._rests[0] if len(self._rests[0]) else np.zeros_like(self.points)
        ends = np.stack([self.points[i], rests[i], -self.points[j], -rests[j]], axis=1).tolist()
        squares = [sum(sum(map(Fraction, axis)) ** 2 for axis in zip(*parts, strict=True)) for parts in ends]
        sure[near] = [square < most**2 for square in squares]
        return sure

    @staticmethod
    def _far(space: Space, position_error: float) -> float:
        return position_error * math.sqrt(max(1, _width(space))) * (1.0 + 2.0**-50)

    def _tree(self, within: float) -> tuple[Floats, float]:
        more = within + self._off[0] + 2.0 * self._far(self.records, self.records.off)
        return self.points, more * MORE + 1e-300


class HaversineMetric(_PointMetric):
    """Great-circle distance in km between geographic points, R = 6371.0 km.

    Raises:
        InputError: records or outputs that are not geographic.
    """

    _kinds = ("geographic",)
    _name = "haversine"

    def __init__(self, records: Space, outputs: Space | None = None) -> None:
        super().__init__(records, outputs)
        self._parts = [
            (points[:, 0].copy(), points[:, 1].copy(), cosine_of_latitude(points[:, 0]))
            for points in (self.points, cast("Floats", self.outputs.coordinates))
        ]
        steep = max(float(np.abs(part[0]).max()) for part in self._parts)
        off = max(self.records.off, self.outputs.off)
        self._rests, self._room = rests_of(self.records, self.outputs), 0.0
        if steep > 80.0:  # cosines of latitudes feel what is omitted there: it is taken off
            self._rests = [rests[:0] for rests in self._rests]
            self._off = (2.0 * self._far(self.records, off), 2.0 * self._far(self.records, off))
        elif len(self._rests[0]):
            self._room = 2.1 * math.tan(math.radians(steep)) * math.radians(off)

    def _measure(self, i: Ints, j: Ints, outputs: bool) -> Floats:
        lat_a, lon_a, cos_a = self._parts[0]
        lat_b, lon_b, cos_b = self._parts[1 if outputs else 0]
        places = lat_a[i], lon_a[i], cos_a[i], lat_b[j], lon_b[j], cos_b[j]
        if not len(self._rests[0]):
            return great_circle(*places)
        lat, lon = np.moveaxis(self._rests[0][i] - self._rests[outputs][j], -1, 0)
        return great_circle(*places, lat_rest=lat, lon_rest=lon, error=self._room)

    def _exactly(self, i: int, j: int) -> Ball | None:
        return great_circle_of(self.records, i, j, EARTH_RADIUS_KM)

    @property
    def exactness(self) -> str:
        """Say that they are enclosed: great circles are not algebraic numbers."""
        return "distances enclosed as closely as it takes: great circles"

    def upper_distances(self, distances: Floats) -> Floats:
        """Return doubles that the exact distances do not exceed."""
        return upper_distances(distances * (1.0 + 2.0 * self._room) + 2.0 * max(self._off))

    @staticmethod
    def _far(space: Space, position_error: float) -> float:
        return 2.0 * position_error * KM_A_DEGREE

    def _tree(self, within: float) -> tuple[Floats, float]:
        chord = 2.0 * math.sin(min(within / (2.0 * EARTH_RADIUS_KM), math.pi / 2))
        off = (self._off[0] + 2.0 * self._far(self.records, self.records.off)) / EARTH_RADIUS_KM
        return directions(self.points), chord * MORE + 1e-14 + off  # the points are rounded


def _width(space: Space) -> int:
    return 0 if space.coordinates is None else space.coordinates.shape[1]
