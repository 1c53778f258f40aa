"""Distances between records, and from records to outputs.

A distance is one double, whichever way, in whichever block and on whichever machine it is computed, and
never above the exact one (`privopt.metric.space.formulas`): certificates, pairs and tables stand on the same
doubles, bit for bit. `privopt.metric.space.roads` has the metric of shortest paths.
"""

from __future__ import annotations

import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import cast

import numpy as np
import numpy.typing as npt

from privopt.arrays import Bools, Floats, Ints, read_only, rounded_down
from privopt.errors import Fault, InputError
from privopt.execution.limits import in_threads
from privopt.metric.space.formulas import (
    EARTH_RADIUS_KM,
    cosine_of_latitude,
    great_circle,
    no_less,
    root_of_squares,
    roots_of_square,
)
from privopt.metric.space.places import LARGEST, Space, limited

__all__ = ["EuclideanMetric", "HaversineMetric", "MatrixMetric", "Metric"]

_CHUNK = 1 << 14  # numbers computed at once: they stay in the processor's cache
_BLOCK = 1 << 21  # distances held at once where a table is gone through by blocks
_TREE_WIDTH = 12  # in more dimensions trees visit nearly everything: go by blocks
KM_A_DEGREE = 111.2  # of latitude or, on the equator, of longitude: a little more than pi R / 180
_NAMED = 20  # faults of one kind that are named one by one


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
        """Distances between records i and j (index arrays that broadcast), in the metric's unit."""

    @abstractmethod
    def to_outputs(self, i: npt.ArrayLike | None = None) -> Floats:
        """(B, K) distances from the records i (all where left out) to every output."""

    def no_less(self, distances: Floats) -> Floats:
        """Doubles that the exact distances do not exceed, from those that this metric gave: for lower bounds."""
        return distances

    def surely_within(self, pairs: Ints, distances: Floats, limit: float) -> Bools:
        """(P,) pairs whose exact distances, rounded down to doubles, are proved to be at most ``limit``.

        Fewer than those whose ``distances``, which may be a little less, are: rows of a lower bound stand on these.
        """
        return self.no_less(distances) < math.nextafter(limit, math.inf)

    def rows(self, i: npt.ArrayLike) -> Floats:
        """(B, N) distances from the records i to every record."""
        return self.between(np.asarray(i, dtype=np.int64)[:, None], np.arange(self.size)[None, :])

    def table(self) -> Floats:
        """(N, N) distances between all records; 8 N^2 bytes."""
        return self.rows(np.arange(self.size))

    def neighbours(self, within: float) -> tuple[Ints, Floats]:
        """Pairs i < j with a distance of at most `within`, and those distances.

        Returns:
            (P, 2) in lexicographic order, and (P,) the doubles that `between` gives; `<=` is decided on
            them. Memory goes with P and N, not with N^2.
        """
        found = []
        step = max(1, _BLOCK // self.size)
        for start in range(0, self.size, step):
            stop = min(start + step, self.size)
            row, col = np.nonzero(self.rows(np.arange(start, stop)) <= within)
            upper = col > row + start
            found.append(np.column_stack([row[upper] + start, col[upper]]))
        pairs = np.concatenate(found).astype(np.int64)
        return pairs, self.between(pairs[:, 0], pairs[:, 1])

    def implying(self, within: float | None = None) -> tuple[Ints, Floats] | None:
        """Few pairs that are known to imply every pair (or all within a distance), where the metric has such."""
        return None


class _PointMetric(Metric):
    """Distances from coordinates, computed where they are asked for."""

    _kinds: tuple[str, ...] = ()
    _name = ""

    def __init__(self, records: Space, outputs: Space | None = None) -> None:
        self.records = records
        self._whole: Callable[[], Floats | None] = lambda: None  # the table of all distances, while somebody holds it
        self.outputs = records if outputs is None else outputs
        far = self._far(self.records)
        self._off = (2.0 * far, far + self._far(self.outputs))  # between records, and from them to outputs
        super().__init__(len(self.records), len(self.outputs), outputs is None)
        wanted = " or ".join(self._kinds)
        faults = [
            Fault(space.source, "", f"{space.kind} places", f"{wanted} ones for {self._name} distance")
            for space in dict.fromkeys((self.records, self.outputs))
            if space.kind not in self._kinds
        ]
        if not faults and (self.records.kind, _width(self.records)) != (self.outputs.kind, _width(self.outputs)):
            found = f"{self.outputs.kind} outputs of {_width(self.outputs)} coordinates"
            wanted = f"{self.records.kind} ones of {_width(self.records)}, as the records"
            faults.append(Fault(self.outputs.source, "", found, wanted))
        if faults:
            raise InputError(faults)

    @property
    def points(self) -> Floats:
        """(N, dim) coordinates of the records."""
        return cast(Floats, self.records.coordinates)

    @abstractmethod
    def _measure(self, i: Ints, j: Ints, outputs: bool) -> Floats:
        """Distances from records i to records (or outputs) j, between their doubles, rounded down."""

    @staticmethod
    @abstractmethod
    def _far(space: Space) -> float:
        """How far at most, in the metric's unit, the places meant lie from their doubles."""

    def _down(self, distances: Floats, outputs: bool) -> Floats:
        """The same, never above the distances of the places meant, of which both may lie nearer."""
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
        table = self._whole() if self.own_outputs else None
        if self.own_outputs and rows.size >= max(_CHUNK, self.size * (self.size - 1) // 2):
            table = self.to_outputs()
        return self._chunked(rows, columns, False) if table is None else table[rows, columns]

    def to_outputs(self, i: npt.ArrayLike | None = None) -> Floats:
        """(B, K) distances from the records i to every output; all of them are read-only, one table for all who ask."""
        if i is not None:
            return self._chunked(
                np.asarray(i, dtype=np.int64)[:, None], np.arange(self.output_size), not self.own_outputs
            )
        table = self._whole()
        if table is None:
            table = read_only(self._square() if self.own_outputs else self.to_outputs(np.arange(self.size)))
            self._whole = weakref.ref(table)
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

    def _measure(self, i: Ints, j: Ints, outputs: bool) -> Floats:
        found = np.empty(i.shape)
        root_of_squares(self._points[0], self._points[1 if outputs else 0], i.ravel(), j.ravel(), found.reshape(-1))
        return found

    def _square(self) -> Floats:
        """(N, N) distances, each pair's computed once, by all threads."""
        points, table = self._points[0], np.empty((self.size, self.size))
        across = np.ascontiguousarray(points.T)
        in_threads(lambda a, b: roots_of_square(points, across, a, b, table), self.size)
        return self._down(table, False)

    def no_less(self, distances: Floats) -> Floats:
        """Doubles that the exact distances do not exceed."""
        return no_less(distances + 2.0 * max(self._off))

    def surely_within(self, pairs: Ints, distances: Floats, limit: float) -> Bools:
        """Near the limit in rationals: squares of differences of the coordinates."""
        sure = super().surely_within(pairs, distances, limit)
        near = np.flatnonzero(~sure & (distances <= limit))
        if not near.size or not limit > self._off[0]:
            return sure
        most = Fraction(math.nextafter(limit, math.inf)) - Fraction(self._off[0])
        i, j = pairs[near].T
        steps, group = np.unique(np.stack([self.points[i], self.points[j]], axis=1), axis=0, return_inverse=True)
        squares = [sum((Fraction(x) - Fraction(y)) ** 2 for x, y in zip(*ends, strict=True)) for ends in steps.tolist()]
        sure[near] = np.array([square < most**2 for square in squares], dtype=np.bool_)[group.reshape(-1)]
        return sure

    @staticmethod
    def _far(space: Space) -> float:
        return space.off * math.sqrt(max(1, _width(space))) * (1.0 + 2.0**-50)

    def _tree(self, within: float) -> tuple[Floats, float]:
        return self.points, _a_little_more(within + self._off[0])


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
            for points in (self.points, cast(Floats, self.outputs.coordinates))
        ]

    def _measure(self, i: Ints, j: Ints, outputs: bool) -> Floats:
        lat_a, lon_a, cos_a = self._parts[0]
        lat_b, lon_b, cos_b = self._parts[1 if outputs else 0]
        return great_circle(lat_a[i], lon_a[i], cos_a[i], lat_b[j], lon_b[j], cos_b[j])

    def no_less(self, distances: Floats) -> Floats:
        """Doubles that the exact distances do not exceed."""
        return no_less(distances + 2.0 * max(self._off), sphere=True)

    @staticmethod
    def _far(space: Space) -> float:
        return 2.0 * space.off * KM_A_DEGREE

    def _tree(self, within: float) -> tuple[Floats, float]:
        lat, lon = np.radians(self.points).T
        sphere = np.column_stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])
        chord = 2.0 * math.sin(min(within / (2.0 * EARTH_RADIUS_KM), math.pi / 2))
        return sphere, _a_little_more(chord) + 1e-14 + self._off[0] / EARTH_RADIUS_KM  # the points are rounded


class MatrixMetric(Metric):
    """Distances read from a table.

    Args:
        table: (N, N), non-negative, finite, symmetric (up to 1e-12 relative: the smaller of the two
            is taken, which errs to privacy), zero diagonal.
        output_table: (N, K) from records to outputs; left out: the outputs are the records.
        source, output_source: names of the files that faults are reported against.

    Raises:
        InputError: any of that does not hold; entries are named by row and column, from 0.
    """

    def __init__(
        self,
        table: npt.ArrayLike,
        output_table: npt.ArrayLike | None = None,
        *,
        source: str = "distance.matrix",
        output_source: str = "distance.output_matrix",
    ) -> None:
        square = _numbers(table, source)
        faults = _table_faults(square, source)
        to_outputs = None if output_table is None else _numbers(output_table, output_source)
        if to_outputs is not None:
            if to_outputs.ndim != 2 or len(to_outputs) != len(square) or to_outputs.shape[1] < 1:
                wanted = f"({len(square)}, K), one row a record"
                faults.append(Fault(output_source, "", f"an array of shape {to_outputs.shape}", wanted))
            else:
                faults += _entry_faults(to_outputs, output_source)
        if faults:
            raise InputError(faults)
        self._table = read_only(np.minimum(square, square.T))
        self._uneven = bool((square != square.T).any())
        self._to_outputs = self._table if to_outputs is None else read_only(to_outputs)
        super().__init__(len(self._table), int(self._to_outputs.shape[1]), to_outputs is None)

    def between(self, i: npt.ArrayLike, j: npt.ArrayLike) -> Floats:
        """Distances between records i and j."""
        return self._table[np.asarray(i, dtype=np.int64), np.asarray(j, dtype=np.int64)]

    def no_less(self, distances: Floats) -> Floats:
        """Doubles that the distances of the table, in either of its halves, do not exceed."""
        whole = np.where(distances < 2.0**53, distances, np.nextafter(distances, np.inf))  # they may be rounded
        return whole * (1.0 + 2e-12) if self._uneven else whole

    def to_outputs(self, i: npt.ArrayLike | None = None) -> Floats:
        """(B, K) distances from the records i to every output."""
        return self._to_outputs if i is None else self._to_outputs[np.asarray(i, dtype=np.int64)]

    def table(self) -> Floats:
        """(N, N) distances between all records."""
        return self._table


def _table_faults(table: Floats, source: str) -> list[Fault]:
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not table.size:
        return [Fault(source, "", f"an array of shape {table.shape}", "(N, N), N at least 1")]
    faults = _entry_faults(table, source)
    for r in np.flatnonzero(np.diagonal(table) != 0)[:_NAMED].tolist():
        faults.append(Fault(source, f"row {r}, column {r}", repr(float(table[r, r])), "0 on the diagonal"))
    uneven = np.abs(table - table.T) > 1e-12 * np.maximum(table, table.T) if not faults else np.zeros((1, 1), bool)
    for r, c in np.argwhere(np.triu(uneven))[:_NAMED].tolist():
        wanted = f"{float(table[c, r])!r}, as in row {c}, column {r}"
        faults.append(Fault(source, f"row {r}, column {c}", repr(float(table[r, c])), wanted))
    return limited(faults)


def _entry_faults(table: Floats, source: str) -> list[Fault]:
    bad = ~(np.isfinite(table) & (table >= 0) & (table <= LARGEST))
    return [
        Fault(source, f"row {r}, column {c}", repr(float(table[r, c])), "a finite number of at least 0")
        for r, c in np.argwhere(bad)[:_NAMED].tolist()
    ]


def _numbers(values: npt.ArrayLike, source: str) -> Floats:
    array = np.asarray(values)
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise InputError([Fault(source, "", f"an array of {array.dtype}", "an array of numbers")])
    return np.array(rounded_down(array))


def _a_little_more(radius: float) -> float:
    return radius * (1.0 + 1e-9) + 1e-300


def _width(space: Space) -> int:
    return 0 if space.coordinates is None else space.coordinates.shape[1]
