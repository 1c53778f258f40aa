"""A metric defined by a distance table from a file."""

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
    """A metric whose distances are read from a table.

    Attributes:
        _table: Array of shape (N, N) with the distances between records. If the two entries for a pair differ in the
            file, both are set to the smaller one.
        _uneven: Whether the file contains a pair whose two entries differ.
        _to_outputs: Array of shape (N, K) with the distances from records to outputs. It is ``_table`` if the outputs
            are the records.
    """

    def __init__(
        self,
        table: npt.ArrayLike,
        output_table: npt.ArrayLike | None = None,
        *,
        source: str = "distance.matrix",
        output_source: str = "distance.output_matrix",
    ) -> None:
        """Check and store the tables. Errors in both tables are reported together.

        Args:
            table: Array of shape (N, N) with non-negative, finite numbers and a diagonal of zeros. It must be symmetric
                up to a relative difference of 1e-12. The smaller of a pair's two entries is used, which is safe for
                privacy.
            output_table: Array of shape (N, K) with the distances from records to outputs, or None if the outputs are
                the records.
            source, output_source: The names of the files, for error messages.

        Raises:
            InputError: A table violates these conditions. Entries are reported by row and column, counted from 0.
        """
        square = _read_numbers(table, source)
        faults = _table_faults(square, source)
        to_outputs = None if output_table is None else _read_numbers(output_table, output_source)
        if to_outputs is not None:
            if to_outputs.ndim != 2 or len(to_outputs) != len(square) or to_outputs.shape[1] < 1:
                expectation = f"({len(square)}, K), one row per record"
                faults.append(Fault(output_source, "", f"an array of shape {to_outputs.shape}", expectation))
            else:
                faults += _entry_faults(to_outputs, output_source).listed
        if faults:
            raise InputError(faults)
        # The distance of a pair is the smaller of its two entries, which gives the stricter constraint.
        self._table = read_only(np.minimum(square, square.T))
        self._uneven = bool((square != square.T).any())
        self._to_outputs = self._table if to_outputs is None else read_only(to_outputs)
        super().__init__(len(self._table), int(self._to_outputs.shape[1]), to_outputs is None)

    def between(self, i: npt.ArrayLike, j: npt.ArrayLike) -> Floats:
        """Return the distances between records ``i`` and ``j``, given as broadcastable arrays of record indices."""
        return self._table[np.asarray(i, dtype=np.int64), np.asarray(j, dtype=np.int64)]

    @property
    def exactness(self) -> str:
        """A phrase for reports that says what the exact distances are, namely the numbers in the table."""
        return "exact distances: the numbers of the table"

    def upper_distances(self, distances: Floats) -> Floats:
        """Return upper bounds on the file's distances in both directions, given the distances returned by this metric.

        The bounds are used for lower bounds on losses, which must be valid for every exact distance that a number in
        the file may represent.

        Args:
            distances: The distances returned by this metric, in an array of any shape.
        """
        # Integers beyond 2^53 may have been rounded down when they were written as doubles.
        rounded_distances = np.where(distances < 2.0**53, distances, np.nextafter(distances, np.inf))
        # A pair's two entries may differ by a relative 1e-12, and the smaller one is used. The factor 2e-12 leaves a
        # margin for rounding.
        return rounded_distances * (1.0 + 2e-12) if self._uneven else rounded_distances

    def to_outputs(self, i: npt.ArrayLike | None = None) -> Floats:
        """Return the distances from the given records to all outputs, as an array of shape (B, K).

        Args:
            i: The indices of the B records. By default, all records are included.
        """
        return self._to_outputs if i is None else self._to_outputs[np.asarray(i, dtype=np.int64)]

    def towards(self, rows: Ints) -> MatrixMetric:
        """Return this metric with the K records at the indices ``rows`` as outputs."""
        # The shallow copy shares the table of distances between records. Only the distances to outputs are replaced.
        metric = copy(self)
        metric._to_outputs, metric.output_size, metric.own_outputs = read_only(self._table[:, rows]), len(rows), False
        return metric

    def table(self) -> Floats:
        """Return the distances between all records, as an array of shape (N, N)."""
        return self._table


def _table_faults(table: Floats, source: str) -> list[Fault]:
    """Return the faults in a table of distances between records, or an empty list if the table is valid.

    Args:
        table: The numbers in the file, as an array of any shape. A valid table has shape (N, N).
        source: The name of the file, for the messages.
    """
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not table.size:
        return [Fault(source, "", f"an array of shape {table.shape}", "(N, N), N at least 1")]
    faults = _entry_faults(table, source)
    diagonal = np.flatnonzero(np.diagonal(table) != 0).tolist()
    faults.extend(
        (Fault(source, f"row {r}, column {r}", repr(float(table[r, r])), "0 on the diagonal") for r in diagonal),
        len(diagonal),
    )
    # Symmetry is checked only if all entries are valid, because an invalid entry would otherwise be reported twice.
    if faults.count:
        return faults.listed
    # Only the upper triangle is compared, so that each asymmetric pair is a single fault. The tolerance of 1e-12 allows
    # for programs that compute and round the distances in the two directions separately.
    uneven = np.argwhere(np.triu(np.abs(table - table.T) > 1e-12 * np.maximum(table, table.T))).tolist()
    asymmetry_faults = (
        Fault(
            source,
            f"row {r}, column {c}",
            repr(float(table[r, c])),
            f"{float(table[c, r])!r}, as in row {c}, column {r}",
        )
        for r, c in uneven
    )
    return Faults(asymmetry_faults, len(uneven)).listed


def _entry_faults(table: Floats, source: str) -> Faults:
    """Return a fault for each table entry that is negative, not finite or greater than ``MAX_COORDINATE``.

    Rows and columns are counted from 0, as in NumPy.
    """
    invalid_entries = np.argwhere(~(np.isfinite(table) & (table >= 0) & (table <= MAX_COORDINATE))).tolist()
    expectation = f"a number of at least 0 and at most {MAX_COORDINATE:g}"
    return Faults(
        (Fault(source, f"row {r}, column {c}", repr(float(table[r, c])), expectation) for r, c in invalid_entries),
        len(invalid_entries),
    )


def _read_numbers(values: npt.ArrayLike, source: str) -> Floats:
    """Convert an array read from a file to doubles, rejecting numbers that are not exactly representable.

    Args:
        values: Array of any shape, containing integers or floats of at most 64 bits.
        source: The name of the file, for error messages.

    Raises:
        InputError: The array does not contain numbers, its floats have more than 64 bits, or one of its integers is not
            representable as a double.
    """
    array = np.asarray(values)
    # Floats of more than 8 bytes are rejected because rounding them to doubles could increase a distance.
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise InputError([Fault(source, "", f"an array of {array.dtype}", "an array of numbers")])
    inexact_entries = np.argwhere(no_doubles(array)).tolist()
    expectation = "whole numbers up to 2^53, or doubles"
    Faults(Fault(source, f"entry {entry}", str(array[tuple(entry)]), expectation) for entry in inexact_entries).check()
    return np.array(array, dtype=np.float64)
