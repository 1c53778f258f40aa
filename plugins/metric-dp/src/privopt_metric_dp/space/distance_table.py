"""Distances from a table instead of a formula."""

from __future__ import annotations

from copy import copy

import numpy as np
import numpy.typing as npt

from privopt.arrays import Floats, Ints, no_doubles, read_only
from privopt.errors import Fault, Faults, InputError
from privopt_metric_dp.space.metrics import Metric
from privopt_metric_dp.space.places import MAX_COORDINATE

__all__ = ["MatrixMetric"]


class MatrixMetric(Metric):
    """Distances read from a table.

    Args:
        table: (N, N), non-negative, finite, symmetric (up to 1e-12 relative: the smaller of the two
            is taken, which errs to privacy), zero diagonal.
        output_table: (N, K) from records to outputs; default: the outputs are the records.
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
                faults += _entry_faults(to_outputs, output_source).listed
        if faults:
            raise InputError(faults)
        self._table = read_only(np.minimum(square, square.T))
        self._uneven = bool((square != square.T).any())
        self._to_outputs = self._table if to_outputs is None else read_only(to_outputs)
        super().__init__(len(self._table), int(self._to_outputs.shape[1]), to_outputs is None)

    def between(self, i: npt.ArrayLike, j: npt.ArrayLike) -> Floats:
        """Return distances between records i and j."""
        return self._table[np.asarray(i, dtype=np.int64), np.asarray(j, dtype=np.int64)]

    @property
    def exactness(self) -> str:
        """Say that they are the table's own numbers, of both directions the lesser."""
        return "exact distances: the numbers of the table"

    def upper_distances(self, distances: Floats) -> Floats:
        """Return doubles that the distances of the table, in either of its halves, do not exceed."""
        whole = np.where(distances < 2.0**53, distances, np.nextafter(distances, np.inf))  # they may be rounded
        return whole * (1.0 + 2e-12) if self._uneven else whole

    def to_outputs(self, i: npt.ArrayLike | None = None) -> Floats:
        """Return (B, K) distances from the records i to every output."""
        return self._to_outputs if i is None else self._to_outputs[np.asarray(i, dtype=np.int64)]

    def towards(self, rows: Ints) -> MatrixMetric:
        """See :meth:`Metric.towards`."""
        found = copy(self)
        found._to_outputs, found.output_size, found.own_outputs = read_only(self._table[:, rows]), len(rows), False
        return found

    def table(self) -> Floats:
        """Return (N, N) distances between all records."""
        return self._table


def _table_faults(table: Floats, source: str) -> list[Fault]:
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not table.size:
        return [Fault(source, "", f"an array of shape {table.shape}", "(N, N), N at least 1")]
    faults = _entry_faults(table, source)
    diagonal = np.flatnonzero(np.diagonal(table) != 0).tolist()
    faults.extend(
        (Fault(source, f"row {r}, column {r}", repr(float(table[r, r])), "0 on the diagonal") for r in diagonal),
        len(diagonal),
    )
    if faults.count:
        return faults.listed
    uneven = np.argwhere(np.triu(np.abs(table - table.T) > 1e-12 * np.maximum(table, table.T))).tolist()
    other = (
        Fault(
            source,
            f"row {r}, column {c}",
            repr(float(table[r, c])),
            f"{float(table[c, r])!r}, as in row {c}, column {r}",
        )
        for r, c in uneven
    )
    return Faults(other, len(uneven)).listed


def _entry_faults(table: Floats, source: str) -> Faults:
    bad = np.argwhere(~(np.isfinite(table) & (table >= 0) & (table <= MAX_COORDINATE))).tolist()
    wanted = "a finite number of at least 0"
    return Faults((Fault(source, f"row {r}, column {c}", repr(float(table[r, c])), wanted) for r, c in bad), len(bad))


def _numbers(values: npt.ArrayLike, source: str) -> Floats:
    array = np.asarray(values)
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise InputError([Fault(source, "", f"an array of {array.dtype}", "an array of numbers")])
    lost = np.argwhere(no_doubles(array)).tolist()
    wanted = "whole numbers up to 2^53, or doubles"
    Faults(Fault(source, f"entry {at}", str(array[tuple(at)]), wanted) for at in lost).check()
    return np.array(array, dtype=np.float64)
