"""Type aliases and small helpers for arrays.

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
else:  # these libraries are loaded only when something is drawn or read
    Figure = DataFrame = Expr = Series = csr_array = Any

__all__ = [
    "Bools",
    "DataFrame",
    "Expr",
    "Figure",
    "Floats",
    "Indices",
    "Ints",
    "Series",
    "Singles",
    "Unsigned",
    "csr_array",
    "doubles",
    "no_doubles",
    "read_only",
    "slices",
    "sum_products",
    "truths",
]

A = TypeVar("A", bound=NDArray[Any])
"""Any array type."""

Floats: TypeAlias = NDArray[np.float64]
"""Arrays of doubles."""

Singles: TypeAlias = NDArray[np.float32]
"""Arrays of single-precision floats."""

Ints: TypeAlias = NDArray[np.int64]
"""Arrays of 64-bit integers, such as counts and record indices."""

Indices: TypeAlias = NDArray[np.int32]
"""Arrays of 32-bit integers, such as positions in sparse matrices."""

Unsigned: TypeAlias = NDArray[np.uint64]
"""Arrays of unsigned 64-bit integers, such as the weights in a released matrix."""

Bools: TypeAlias = NDArray[np.bool_]
"""Arrays of booleans, such as masks."""


def read_only(array: A) -> A:
    """Make an array read-only and return it.

    If the array is a writable view, which could still be changed through its base array, a read-only copy is returned
    instead. An array that is already read-only is returned unchanged.
    """
    if array.flags.writeable:
        array = array if array.base is None else array.copy()
        array.setflags(write=False)
    return array


def doubles(values: ArrayLike) -> Floats:
    """Return a read-only copy of the values as an array of doubles in C order (row by row)."""
    return read_only(np.array(values, dtype=np.float64, order="C"))


def truths(values: ArrayLike) -> Bools:
    """Return a read-only copy of the values as an array of booleans."""
    return read_only(np.array(values, dtype=np.bool_))


def no_doubles(numbers: NDArray[Any]) -> Bools:
    """Return a mask of the integers that cannot be represented exactly as doubles, such as 2^53 + 1.

    Such integers would change silently if they were converted to doubles. Numbers of other types are never marked.

    >>> no_doubles(np.array([2**53, 2**53 + 1, 2**60])).tolist()
    [False, True, False]
    """
    is_inexact = np.zeros(numbers.shape, dtype=np.bool_)
    # All integers up to 2^53 in magnitude are exact doubles, so only larger ones are tested one by one.
    if numbers.dtype.kind in "iu" and (large := (numbers > 2**53) | (numbers < -(2**53))).any():
        is_inexact[large] = [int(float(number)) != number for number in numbers[large].tolist()]
    return is_inexact


def sum_products(left: Floats, right: Floats) -> float:
    """Return the inner product of two vectors, with a rounding error that grows only logarithmically with their length.

    For vectors with tens of thousands of entries, this is faster than ``left @ right``, because starting BLAS threads
    takes longer than the product itself.
    """
    return float((left * right).sum())


def slices(rows: int, width: int, max_entries: int) -> Iterator[slice]:
    """Yield consecutive slices of a table's rows, each with at most ``max_entries`` entries but at least one row.

    Processing a large table slice by slice limits memory use.

    >>> [(part.start, part.stop) for part in slices(5, 10, 25)]
    [(0, 2), (2, 4), (4, 5)]

    Args:
        rows: The number of rows.
        width: The number of entries in a row.
        max_entries: The largest number of entries in a slice that has more than one row.
    """
    step = max(1, max_entries // max(1, width))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))
