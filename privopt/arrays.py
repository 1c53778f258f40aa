"""Array type aliases for annotations, and small array helpers.

>>> half: Floats = np.array([0.5, 0.5])
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Figure
    from polars import DataFrame as DataFrame
    from polars import Expr as Expr
    from polars import Series as Series
    from scipy.sparse import csr_array as csr_array
else:  # libraries that are loaded late, where something is drawn or read
    Figure = DataFrame = Expr = Series = csr_array = Any

A = TypeVar("A", bound=NDArray[Any])

Floats: TypeAlias = NDArray[np.float64]
"""Doubles."""

Singles: TypeAlias = NDArray[np.float32]
"""Floats in single precision."""

Ints: TypeAlias = NDArray[np.int64]
"""Whole numbers of 64 bits: counts, and numbers of records."""

Indices: TypeAlias = NDArray[np.int32]
"""Whole numbers of 32 bits: positions in sparse matrices."""

Unsigned: TypeAlias = NDArray[np.uint64]
"""Whole numbers of 64 bits without a sign: the weights of a released matrix."""

Bools: TypeAlias = NDArray[np.bool_]
"""Yes or no for each entry."""


def read_only(array: A) -> A:
    """Return the array made read-only; a read-only copy where it is a view of an array that can still be written."""
    if array.flags.writeable:
        array = array if array.base is None else array.copy()
        array.setflags(write=False)
    return array


def doubles(values: ArrayLike) -> Floats:
    """Return a copy that no one can write to, rows first."""
    return read_only(np.array(values, dtype=np.float64, order="C"))


def truths(values: ArrayLike) -> Bools:
    """Return a copy of yes and no that no one can write to."""
    return read_only(np.array(values, dtype=np.bool_))


def no_doubles(numbers: NDArray[Any]) -> Bools:
    """Mark the whole numbers that no double equals, as some beyond 2^53; none of other types of numbers.

    >>> no_doubles(np.array([2**53, 2**53 + 1, 2**60])).tolist()
    [False, True, False]
    """
    found = np.zeros(numbers.shape, dtype=np.bool_)
    if numbers.dtype.kind in "iu" and (large := (numbers > 2**53) | (numbers < -(2**53))).any():
        found[large] = [int(float(number)) != number for number in numbers[large].tolist()]
    return found


def slices(rows: int, width: int, max_entries: int) -> Iterator[slice]:
    """Yield slices of ``rows``, in order, each of one row or of at most ``max_entries`` entries.

    >>> [(part.start, part.stop) for part in slices(5, 10, 25)]
    [(0, 2), (2, 4), (4, 5)]

    Args:
        rows: how many there are.
        width: entries of a row.
        max_entries: entries of a part.
    """
    step = max(1, max_entries // max(1, width))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))
