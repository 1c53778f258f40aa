"""Draws from integer weights, exactly: no floating point, no modulo, no generator but the operating system's."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from privopt.errors import UsageError

__all__ = ["TOTAL", "Source", "draw", "draw_each", "seeded"]

#: Gives that many random bytes; :func:`os.urandom` unless a test or ``--seed`` brings another.
Source = Callable[[int], bytes]

#: What every row of weights sums to.
TOTAL = 1 << 63
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
    if total != TOTAL:
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


def draw_each(
    weights: NDArray[np.uint64], rows: NDArray[np.int64], *, source: Source | None = None
) -> NDArray[np.int64]:
    """One draw for each entry of ``rows``, from the row of weights that it names; see :func:`draw`.

    Args:
        weights: (N, K) uint64, every row that is named summing to exactly 2**63.
        rows: (B,) numbers from 0 to N - 1, in any order.
        source: random bytes; the operating system's where left out.

    Returns:
        (B,) indices of outputs. Cost: :func:`draw` once for each different row.

    Raises:
        UsageError: a row of another sum.

    >>> draw_each(np.array([[0, 2**63], [2**63, 0]], dtype=np.uint64), np.array([1, 0, 1]))
    array([0, 1, 0])
    """
    order = np.argsort(rows, kind="stable")
    names, starts = np.unique(rows[order], return_index=True)
    drawn = np.empty(len(rows), dtype=np.int64)
    for name, places in zip(names.tolist(), np.split(order, starts[1:]), strict=False):
        drawn[places] = draw(weights[name], len(places), source=source)
    return drawn


def seeded(seed: int | None) -> Source:
    """The operating system's entropy, or for experiments NumPy's PCG64 stream: what that draws is not private."""
    return os.urandom if seed is None else np.random.Generator(np.random.PCG64(seed)).bytes
