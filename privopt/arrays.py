"""Names of array types, which say in one word what annotations of arrays mean; arrays that nobody can write to.

>>> half: Floats = np.array([0.5, 0.5])
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bools", "Floats", "Indices", "Ints", "Singles", "Unsigned", "read_only", "rounded_down"]

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
    """The same array, never to be written again; a copy where it is a view of one that may be."""
    if array.flags.writeable:
        array = array if array.base is None else array.copy()
        array.setflags(write=False)
    return array


def rounded_down(numbers: NDArray[Any]) -> Floats:
    """Whole numbers, or doubles, as doubles that they are not below: beyond 2^53 not every whole number is one."""
    found = np.ascontiguousarray(numbers, dtype=np.float64)
    if numbers.dtype.kind in "iu" and (large := (numbers > 2**53) | (numbers < -(2**53))).any():
        found = np.array(found)
        above = [int(near) > int(number) for near, number in zip(found[large], numbers[large], strict=True)]
        found[large] = np.where(above, np.nextafter(found[large], -np.inf), found[large])
    return found
