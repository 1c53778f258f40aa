"""Exact draws from rows of integer weights, with the operating system's entropy.

Draws from weights involve no floating point and no modulo, so each output has exactly the probability that was
certified. :func:`choose`, which draws with rational probabilities, uses doubles only where they provably decide the
result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final

import numpy as np
from attrs import define
from numpy.typing import NDArray

from privopt.errors import UsageError

__all__ = [
    "MAX_CUT_ERROR",
    "TOTAL",
    "CumulatedRows",
    "RowStreams",
    "Source",
    "choose",
    "draw",
    "make_source",
]

#: A function that returns a given number of random bytes; :func:`os.urandom` except in tests and with ``--seed``.
Source = Callable[[int], bytes]

#: The sum of each row of weights.
TOTAL = 1 << 63

#: The largest error of the doubles that :func:`choose` gets as cuts, compared with the exact rationals.
MAX_CUT_ERROR: Final = 2.0**-36
#: Draws that are processed at a time, to limit the memory used.
_CHUNK = 1 << 20
#: Draws from different rows that are looked up at a time, so that their arrays stay in the processor's cache.
_SEARCH_BLOCK = 1 << 14
#: Bits by which most of many draws from one row are decided: 4,096 intervals, so that their table is in the cache.
_LEADING_BITS = 12


@define
class RowStreams:
    """A separate stream of random bytes for each row, so that a row's draw does not depend on other rows.

    When called as a :data:`Source`, it returns the first 8 bytes of each row in turn.

    Attributes:
        read: ``read(row, start, count)`` returns ``count`` bytes of a row's stream, from position ``start`` on.
        rows: (B,) row indices, in the order of the draws.
        _next: Position in ``rows`` of the row whose first 8 bytes are read next.
    """

    read: Callable[[int, int, int], bytes]
    rows: NDArray[np.int64]
    _next: int = 0

    def of(self, row_numbers: NDArray[np.int64]) -> RowStreams:
        """Return the streams for the rows at the given positions in ``rows``."""
        return RowStreams(self.read, self.rows[row_numbers])

    def __call__(self, count: int) -> bytes:
        """Return the first 8 bytes of each of the next ``count / 8`` rows."""
        stream_rows = self.rows[self._next : self._next + count // 8].tolist()
        self._next += len(stream_rows)
        return b"".join(self.read(row, 0, 8) for row in stream_rows)

    def beyond(self, row_number: int) -> Source:
        """Return a source for the bytes after the first 8 in a row's stream. Each call continues where the last ended.

        ``row_number`` is the row's position in ``rows``.
        """
        offset, stream_row = 8, int(self.rows[row_number])

        def source(count: int) -> bytes:
            """Return the next ``count`` bytes of the row's stream."""
            nonlocal offset
            offset += count
            return self.read(stream_row, offset - count, count)

        return source


def draw(weights_row: NDArray[np.uint64], draws: int = 1, *, source: Source | None = None) -> NDArray[np.int64]:
    """Draw ``draws`` independent indices k, each with probability exactly ``weights_row[k] / 2**63``.

    Args:
        weights_row: (K,) uint64, summing to exactly 2**63.
        draws: Number of draws.
        source: Source of random bytes; the operating system's entropy by default.

    Returns:
        (draws,) indices. Each costs 8 bytes of entropy and a binary search.

    Raises:
        UsageError: The weights have the wrong type, shape or sum, or ``draws`` is negative.

    >>> draw(np.array([0, 2**63], dtype=np.uint64), 3)
    array([1, 1, 1])
    """
    row = np.asarray(weights_row)
    if row.ndim != 1:
        raise UsageError(f"a row of weights must be uint64 of shape (K,), got {row.dtype} of shape {row.shape}")
    return CumulatedRows(row[None]).draw(0, draws, source=source)


class CumulatedRows:
    """Rows of integer weights and their running sums. A row's sums are computed when it is first drawn from.

    A uniform 63-bit integer is looked up among the running sums of a row. The number of integers, out of 2**63, that
    lead to an index is exactly the weight of the index. Several threads may draw at once.

    Attributes:
        _weights: (N, K) integer weights.
        _sums: (N, K) running sums of each row; undefined for rows from which nothing has been drawn.
        _is_summed: (N,) whether a row's running sums are computed.
    """

    def __init__(self, weights: NDArray[np.uint64]) -> None:
        """Create the sampler for uint64 weights of shape (N, K). Each row that is drawn from must sum to 2**63."""
        self._weights = np.asarray(weights)
        if self._weights.dtype != np.uint64 or self._weights.ndim != 2:
            shape = self._weights.shape[1:]
            raise UsageError(
                f"a row of weights must be uint64 of shape (K,), got {self._weights.dtype} of shape {shape}"
            )
        # Not filled here: the system gives memory only to rows that are written, and so only to rows that are used.
        self._sums = np.empty(self._weights.shape, dtype=np.uint64)
        self._is_summed = np.zeros(len(self._weights), dtype=np.bool_)

    def draw(self, row: int, draws: int, *, source: Source | None = None) -> NDArray[np.int64]:
        """Draw ``draws`` independent indices, shape (draws,), from one row; see :func:`draw`."""
        if draws < 0:
            raise UsageError(f"the number of draws must be at least 0, got {draws}")
        self._sum_rows(np.array([row]))
        entropy, sums = source or os.urandom, self._sums[row]
        samples = np.empty(draws, dtype=np.int64)
        for start in range(0, draws, _CHUNK):
            count = min(_CHUNK, draws - start)
            samples[start : start + count] = _look_up_in_row(sums, _read_integers(entropy, count))
        return samples

    def draw_each(self, rows: NDArray[np.int64], *, source: Source | None = None) -> NDArray[np.int64]:
        """Draw one index for each entry of ``rows``: index k of row i with probability exactly weights[i, k] / 2**63.

        Args:
            rows: (B,) row indices from 0 to N - 1, in any order.
            source: Source of random bytes, 8 for each entry in order; the operating system's entropy by default.

        Returns:
            (B,) output indices. Each costs 8 bytes of entropy and a binary search.

        Raises:
            UsageError: A row does not sum to 2**63.

        >>> CumulatedRows(np.array([[0, 2**63], [2**63, 0]], dtype=np.uint64)).draw_each(np.array([1, 0, 1]))
        array([0, 1, 0])
        """
        # Positions among all weights are products of these numbers, which a smaller type could not hold.
        rows = np.asarray(rows, dtype=np.int64)
        self._sum_rows(rows)
        entropy = source or os.urandom
        samples = np.empty(len(rows), dtype=np.int64)
        for start in range(0, len(rows), _SEARCH_BLOCK):
            block_rows = rows[start : start + _SEARCH_BLOCK]
            samples[start : start + len(block_rows)] = self._look_up(
                block_rows, _read_integers(entropy, len(block_rows))
            )
        return samples

    def _sum_rows(self, rows: NDArray[np.int64]) -> None:
        """Compute the running sums of the given rows, except those whose sums are already known.

        Args:
            rows: (B,) indices of the rows that are about to be drawn from.

        Raises:
            UsageError: The sum of a row is not 2**63.
        """
        missing_rows = np.unique(rows[~self._is_summed[rows]])
        step = max(1, _CHUNK // max(1, self._weights.shape[1]))
        for start in range(0, len(missing_rows), step):
            part = missing_rows[start : start + step]
            sums = np.cumsum(self._weights[part], axis=1, dtype=np.uint64)
            # A sum that overflows 64 bits is smaller than the one before it. Without overflow the last is the largest.
            is_valid = (sums.max(axis=1, initial=0) == np.uint64(TOTAL)) & (sums[:, 1:] >= sums[:, :-1]).all(axis=1)
            if not is_valid.all():
                faulty_row = self._weights[part[int((~is_valid).argmax())]]
                raise UsageError(f"a row of weights must sum to 2**63, got {sum(faulty_row.tolist())}")
            # In this order: another thread that finds a row marked must find its sums too.
            self._sums[part] = sums
            self._is_summed[part] = True

    def _look_up(self, rows: NDArray[np.int64], integers: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Count, for each row, the running sums that are at most the given integer, by binary search.

        All rows are searched at once, because every search takes the same number of steps. Each step halves the range
        of possible indices. No search can leave its row, because the row's last sum, 2**63, is larger than any of the
        integers.

        Args:
            rows: (B,) row indices.
            integers: (B,) the integer, below 2**63, to look up in each of these rows.
        """
        flat_sums, length = self._sums.ravel(), int(self._weights.shape[1])
        start = rows * length
        first: NDArray[np.int64] = start.copy()
        while length > 1:
            half = length // 2
            # If the last sum of the lower half is at most the integer, the answer lies in the upper half.
            first += half * (flat_sums[first + (half - 1)] <= integers)
            length -= half
        first -= start
        return first


def _look_up_in_row(sums: NDArray[np.uint64], integers: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Count, for each integer, how many of a row's running sums are at most that integer.

    Integers with the same leading bits form an interval. No search is needed for an interval that belongs to
    a single index.

    Args:
        sums: (K,) running sums of the row.
        integers: (n,) integers below 2**63.
    """
    # Below four integers for each interval on average, the table of intervals costs more than it saves.
    if len(integers) < 4 << _LEADING_BITS:
        return np.searchsorted(sums, integers, side="right")
    shift = np.uint64(63 - _LEADING_BITS)
    starts = np.arange(1 << _LEADING_BITS, dtype=np.uint64) << shift
    first_indices = np.searchsorted(sums, starts, side="right")
    last_indices = np.searchsorted(sums, starts + np.uint64((1 << int(shift)) - 1), side="right")
    intervals = integers >> shift
    indices = first_indices.take(intervals)
    undecided = np.flatnonzero((first_indices != last_indices).take(intervals))
    indices[undecided] = np.searchsorted(sums, integers[undecided], side="right")
    return indices


def _read_integers(entropy: Source, count: int) -> NDArray[np.uint64]:
    """Return ``count`` uniform integers below 2**63 from a source: the upper 63 bits of its 64-bit words."""
    # Index k has the integers from the running sum of k - 1 up to, but not including, that of k: exactly w_k of them.
    return np.frombuffer(entropy(8 * count), dtype="<u8") >> np.uint64(1)


def choose(
    cuts: NDArray[np.float64], exact: Callable[[int], Sequence[Fraction]], *, source: Source | None = None
) -> NDArray[np.int64]:
    """Draw one of m + 1 alternatives for each row, with exact rational probabilities.

    A uniform number with infinitely many bits is compared with the cumulative probabilities (cuts). The first 64 bits
    are nearly always sufficient. If they lie close to a cut, as many further bits as needed are compared with exact
    rationals.

    Args:
        cuts: (B, m) cumulative probabilities of the first 1, ..., m alternatives, each with an error below
            :data:`MAX_CUT_ERROR`.
        exact: A function that takes a row index and returns the row's m cuts as rationals.
        source: Source of random bytes, 8 for each row in order; the operating system's entropy by default. With
            :class:`RowStreams`, further bytes come from the row's stream.

    Returns:
        (B,) indices of alternatives, from 0 to m. Each costs 8 bytes of entropy.

    >>> choose(np.array([[0.0, 1.0], [1.0, 1.0]]), lambda row: [Fraction(row), Fraction(1)])
    array([1, 0])
    """
    entropy = source or os.urandom
    alternatives = np.empty(len(cuts), dtype=np.int64)
    for start in range(0, len(cuts), _CHUNK):
        chunk_cuts = cuts[start : start + _CHUNK]
        bits = np.frombuffer(entropy(8 * len(chunk_cuts)), dtype="<u8")
        # A uniform number of [0, 1), rounded to a double; the cuts that it reaches give the alternative.
        uniform = (bits * 2.0**-64)[:, None]
        alternatives[start : start + len(chunk_cuts)] = (uniform >= chunk_cuts).sum(axis=1)
        # Twice the error of a cut: it covers the rounding of the 64 bits to a double as well.
        is_close = (np.abs(uniform - chunk_cuts) <= 2.0 * MAX_CUT_ERROR).any(axis=1)
        for row in np.flatnonzero(is_close).tolist():
            extra_source = entropy.beyond(start + row) if isinstance(entropy, RowStreams) else entropy
            alternatives[start + row] = _decide_exactly(int(bits[row]), exact(start + row), extra_source)
    return alternatives


def _decide_exactly(bits: int, cuts: Sequence[Fraction], entropy: Source) -> int:
    """Return how many cuts are at most the uniform number whose first 64 bits are ``bits``.

    Args:
        bits: The first 64 bits after the binary point, as an integer.
        cuts: A row's cumulative probabilities, as rationals.
        entropy: Source of further bits, which are read until the comparison is decided.
    """
    length = 64
    while True:
        scaled = [cut * (1 << length) for cut in cuts]
        # The number lies in [bits, bits + 1) / 2**length. Cuts inside that interval are not decided yet.
        min_count, max_count = (sum(cut <= bits for cut in scaled), sum(cut < bits + 1 for cut in scaled))
        if min_count == max_count:
            return min_count
        bits, length = bits << 64 | int.from_bytes(entropy(8), "little"), length + 64


def make_source(seed: int | None) -> Source:
    """Return the operating system's entropy, or, if a seed is given, NumPy's PCG64 stream, which is not private."""
    return os.urandom if seed is None else np.random.Generator(np.random.PCG64(seed)).bytes
