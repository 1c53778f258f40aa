"""Draws from integer weights, exactly: no floating point, no modulo, no generator but the operating system's."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final

import numpy as np
from attrs import define
from numpy.typing import NDArray

from privopt.errors import UsageError

__all__ = ["NEAR_CUT", "TOTAL", "RowStreams", "Source", "choose", "draw", "draw_each", "seeded"]

#: Gives that many random bytes; :func:`os.urandom` unless a test or ``--seed`` brings another.
Source = Callable[[int], bytes]

#: What every row of weights sums to.
TOTAL = 1 << 63

#: How far a cut that is given to :func:`choose` as a double may be from the rational that it represents.
NEAR_CUT: Final = 2.0**-36
_CHUNK = 1 << 20


@define
class RowStreams:
    """A stream of random bytes for each row, in place of one for all.

    Called as a :data:`Source` it gives the first 8 bytes of each row in turn.

    Attributes:
        read: gives bytes ``start`` to ``start + count`` of the stream of a row, by its place in ``rows``.
        rows: (B,) places of the rows, in the order in which they are drawn for.
    """

    read: Callable[[int, int, int], bytes]
    rows: NDArray[np.int64]
    _next: int = 0

    def of(self, places: NDArray[np.int64]) -> RowStreams:
        """Return the streams of some of the rows."""
        return RowStreams(self.read, self.rows[places])

    def __call__(self, count: int) -> bytes:
        """Return the first 8 bytes of each of the next ``count / 8`` rows."""
        part = self.rows[self._next : self._next + count // 8].tolist()
        self._next += len(part)
        return b"".join(self.read(row, 0, 8) for row in part)

    def beyond(self, place: int) -> Source:
        """Return what comes after the first 8 bytes of a row's stream."""
        at, row = 8, int(self.rows[place])

        def source(count: int) -> bytes:
            nonlocal at
            at += count
            return self.read(row, at - count, count)

        return source


def draw(weights_row: NDArray[np.uint64], draws: int = 1, *, source: Source | None = None) -> NDArray[np.int64]:
    """Return ``draws`` independent draws of an index k, each with probability exactly ``weights_row[k] / 2**63``.

    A uniform integer of 63 bits is looked up among the cumulated weights: index k answers to exactly w_k of the 2**63
    integers.

    Args:
        weights_row: (K,) uint64, summing to exactly 2**63.
        draws: how many.
        source: random bytes; the operating system's by default.

    Returns:
        (n,) indices. Cost: 8 bytes of entropy and a binary search each.

    Raises:
        UsageError: another type, shape or sum, or a negative n.

    >>> draw(np.array([0, 2**63], dtype=np.uint64), 3)
    array([1, 1, 1])
    """
    cumulated = _cumulated(weights_row)
    if draws < 0:
        raise UsageError(f"the number of draws must be at least 0, got {draws}")
    entropy = source or os.urandom
    drawn = np.empty(draws, dtype=np.int64)
    for start in range(0, draws, _CHUNK):
        count = min(_CHUNK, draws - start)
        drawn[start : start + count] = _look_up(cumulated, _words(entropy, count))
    return drawn


def _cumulated(weights_row: NDArray[np.uint64]) -> NDArray[np.uint64]:
    row = np.asarray(weights_row)
    if row.dtype != np.uint64 or row.ndim != 1:
        raise UsageError(f"a row of weights must be uint64 of shape (K,), got {row.dtype} of shape {row.shape}")
    total = sum(row.tolist())
    if total != TOTAL:
        raise UsageError(f"a row of weights must sum to 2**63, got {total}")
    return np.cumsum(row, dtype=np.uint64)


def _words(entropy: Source, count: int) -> NDArray[np.uint64]:
    return np.frombuffer(entropy(8 * count), dtype="<u8")


def _look_up(cumulated: NDArray[np.uint64], words: NDArray[np.uint64]) -> NDArray[np.int64]:
    return np.searchsorted(cumulated, words >> np.uint64(1), side="right")


def draw_each(
    weights: NDArray[np.uint64], rows: NDArray[np.int64], *, source: Source | None = None
) -> NDArray[np.int64]:
    """Return one draw for each entry of ``rows``, from the row of weights that it names; see :func:`draw`.

    Args:
        weights: (N, K) uint64, every row that is named summing to exactly 2**63.
        rows: (B,) numbers from 0 to N - 1, in any order.
        source: random bytes, 8 for each entry in its turn; the operating system's by default.

    Returns:
        (B,) indices of outputs. Cost: 8 bytes of entropy and a binary search each.

    Raises:
        UsageError: a row of another sum.

    >>> draw_each(np.array([[0, 2**63], [2**63, 0]], dtype=np.uint64), np.array([1, 0, 1]))
    array([0, 1, 0])
    """
    entropy = source or os.urandom
    starts = range(0, len(rows), _CHUNK)
    words = np.concatenate(
        [np.empty(0, dtype="<u8"), *(_words(entropy, min(_CHUNK, len(rows) - start)) for start in starts)]
    )
    order = np.argsort(rows, kind="stable")
    names, firsts = np.unique(rows[order], return_index=True)
    drawn = np.empty(len(rows), dtype=np.int64)
    for name, places in zip(names.tolist(), np.split(order, firsts[1:]), strict=False):
        drawn[places] = _look_up(_cumulated(weights[name]), words[places])
    return drawn


def choose(
    cuts: NDArray[np.float64], exact: Callable[[int], Sequence[Fraction]], *, source: Source | None = None
) -> NDArray[np.int64]:
    """Return one draw for each row among m + 1 alternatives with rational probabilities, exactly.

    A uniform number of endlessly many bits is compared with the cumulated probabilities. Its first 64 bits decide
    almost always; where they lie close to a cut, the rationals do, with as many further bits as it takes.

    Args:
        cuts: (B, m) probabilities of the first 1, ..., m alternatives together, each off by less than
            :data:`NEAR_CUT`.
        exact: gives a row's cuts as rationals.
        source: random bytes, 8 for each row in its turn; the operating system's by default. Further ones are a
            row's own where it is :class:`RowStreams`.

    Returns:
        (B,) numbers from 0 to m. Cost: 8 bytes of entropy each.

    >>> choose(np.array([[0.0, 1.0], [1.0, 1.0]]), lambda row: [Fraction(row), Fraction(1)])
    array([1, 0])
    """
    entropy = source or os.urandom
    drawn = np.empty(len(cuts), dtype=np.int64)
    for start in range(0, len(cuts), _CHUNK):
        part = cuts[start : start + _CHUNK]
        bits = np.frombuffer(entropy(8 * len(part)), dtype="<u8")
        uniform = (bits * 2.0**-64)[:, None]
        drawn[start : start + len(part)] = (uniform >= part).sum(axis=1)
        close = (np.abs(uniform - part) <= 2.0 * NEAR_CUT).any(axis=1)
        for row in np.flatnonzero(close).tolist():
            more = entropy.beyond(start + row) if isinstance(entropy, RowStreams) else entropy
            drawn[start + row] = _settle(int(bits[row]), exact(start + row), more)
    return drawn


def _settle(number: int, cuts: Sequence[Fraction], entropy: Source) -> int:
    """Count the cuts that are at most the uniform number; ``number`` is its first 64 bits."""
    length = 64
    while True:
        scaled = [cut * (1 << length) for cut in cuts]
        least, most = (sum(cut <= number for cut in scaled), sum(cut < number + 1 for cut in scaled))
        if least == most:
            return least
        number, length = number << 64 | int.from_bytes(entropy(8), "little"), length + 64


def seeded(seed: int | None) -> Source:
    """Return the system's entropy, or for experiments NumPy's PCG64 stream, whose draws are not private."""
    return os.urandom if seed is None else np.random.Generator(np.random.PCG64(seed)).bytes
