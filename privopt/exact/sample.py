"""Draws from integer weights, exactly: no floating point, no modulo, no generator but the operating system's."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from privopt.errors import UsageError

__all__ = ["Source", "draw"]

#: Gives that many random bytes; :func:`os.urandom` unless a test or ``--seed`` brings another.
Source = Callable[[int], bytes]

_TOTAL = 1 << 63
_CHUNK = 1 << 20


def draw(weights_row: NDArray[np.uint64], n: int = 1, *, source: Source | None = None) -> NDArray[np.int64]:
    """``n`` independent draws of an index k, each with probability exactly ``weights_row[k] / 2**63``.

    A uniform integer of 63 bits is looked up among the cumulated weights: index k answers to exactly w_k of the 2**63
    integers.

    Args:
        weights_row: (K,) uint64, summing to exactly 2**63.
        n: how many.
        source: random bytes; the operating system's where left out.

    Returns:
        (n,) indices. Cost: 8 bytes of entropy and a binary search each.

    Raises:
        UsageError: another type, shape or sum, or a negative n.

    >>> draw(np.array([0, 2**63], dtype=np.uint64), 3)
    array([1, 1, 1])
    """
    row = np.asarray(weights_row)
    if row.dtype != np.uint64 or row.ndim != 1:
        raise UsageError(f"a row of weights is {row.dtype} of shape {row.shape}; wanted uint64 of shape (K,)")
    total = sum(row.tolist())
    if total != _TOTAL:
        raise UsageError(f"a row of weights sums to {total}; wanted 2**63")
    if n < 0:
        raise UsageError(f"{n} draws; wanted at least 0")
    entropy = source or os.urandom
    cumulated = np.cumsum(row, dtype=np.uint64)
    drawn = np.empty(n, dtype=np.int64)
    for start in range(0, n, _CHUNK):
        count = min(_CHUNK, n - start)
        uniform = np.frombuffer(entropy(8 * count), dtype="<u8") >> np.uint64(1)
        drawn[start : start + count] = np.searchsorted(cumulated, uniform, side="right")
    return drawn
