"""Exact draws from rows of integer weights, using the operating system's entropy.

Draws from integer weights use neither floating point nor a modulo operation, so each output has exactly the certified
probability. :func:`choose`, which draws with rational probabilities, uses doubles only where they provably determine
the result.
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

#: A function that returns a given number of random bytes. It is :func:`os.urandom` except in tests and with ``--seed``.
Source = Callable[[int], bytes]

#: The sum of each row of weights.
TOTAL = 1 << 63

#: The largest absolute error of the cuts that are passed to :func:`choose` as doubles.
MAX_CUT_ERROR: Final = 2.0**-36
#: The number of draws processed at a time, to limit memory use.
_CHUNK = 1 << 20
#: The number of draws from different rows looked up at a time, so that their arrays stay in the processor's cache.
_SEARCH_BLOCK = 1 << 14
#: The number of leading bits that decide most draws if many are made from one row. The table of the 4,096 intervals
#: fits into the cache.
_LEADING_BITS = 12


@define
class RowStreams:
    """A separate stream of random bytes for each row, so that a row's draw does not depend on the other rows.

    When called as a :data:`Source`, it returns the first 8 bytes of each row's stream in turn.

    Attributes:
        read: ``read(row, start, count)`` returns ``count`` bytes of a row's stream, starting at position ``start``.
        rows: (B,) row indices, in the order of the draws.
        _next: The position in ``rows`` of the next row to read.
    """

    read: Callable[[int, int, int], bytes]
    rows: NDArray[np.int64]
    _next: int = 0

    def of(self, row_numbers: NDArray[np.int64]) -> RowStreams:
        """Return the streams of the rows at the given positions in ``rows``."""
        return RowStreams(self.read, self.rows[row_numbers])

    def __call__(self, count: int) -> bytes:
        """Return the first 8 bytes of each of the next ``count / 8`` rows."""
        stream_rows = self.rows[self._next : self._next + count // 8].tolist()
        self._next += len(stream_rows)
        return b"".join(self.read(row, 0, 8) for row in stream_rows)

    def beyond(self, row_number: int) -> Source:
        """Return a source that continues a row's stream after its first 8 bytes.

        Each call to the source continues where the previous one ended. ``row_number`` is the row's position in
        ``rows``.
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
        draws: The number of draws.
        source: The source of random bytes. The default is the operating system's entropy.

    Returns:
        (draws,) indices. Each one costs 8 bytes of entropy and a binary search.

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
    """A sampler for rows of integer weights.

    The running sums of a row are computed when the first draw is made from it. For each draw, a uniform 63-bit integer
    is looked up among these sums. The number of integers that map to an index equals the index's weight, so the draws
    are exact. The sampler can be used from several threads at once.

    Attributes:
        _weights: (N, K) integer weights.
        _sums: (N, K) running sums of each row. Undefined for rows that have not been drawn from.
        _is_summed: (N,) Whether each row's running sums have been computed.
    """

    def __init__(self, weights: NDArray[np.uint64]) -> None:
        """Create a sampler for uint64 weights of shape (N, K). Every row used for drawing must sum to 2**63."""
        self._weights = np.asarray(weights)
        if self._weights.dtype != np.uint64 or self._weights.ndim != 2:
            shape = self._weights.shape[1:]
            raise UsageError(
                f"a row of weights must be uint64 of shape (K,), got {self._weights.dtype} of shape {shape}"
            )
        # Not filled here, because the system allocates memory only for rows that are written, that is, for rows in use.
        self._sums = np.empty(self._weights.shape, dtype=np.uint64)
        self._is_summed = np.zeros(len(self._weights), dtype=np.bool_)

    def draw(self, row: int, draws: int, *, source: Source | None = None) -> NDArray[np.int64]:
        """Return ``draws`` independent indices drawn from a row, as an array of shape (draws,). See :func:`draw`."""
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
        """Draw one index for each entry of ``rows``.

        An index k is drawn for row i with probability exactly ``weights[i, k] / 2**63``.

        Args:
            rows: (B,) row indices from 0 to N - 1, in any order.
            source: The source of random bytes, which supplies 8 bytes for each entry, in order. The default is the
                operating system's entropy.

        Returns:
            (B,) output indices. Each one costs 8 bytes of entropy and a binary search.

        Raises:
            UsageError: A row does not sum to 2**63.

        >>> CumulatedRows(np.array([[0, 2**63], [2**63, 0]], dtype=np.uint64)).draw_each(np.array([1, 0, 1]))
        array([0, 1, 0])
        """
        # Row indices are multiplied to get positions among all weights, which might overflow a smaller type.
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
            rows: (B,) indices of the rows to be drawn from.

        Raises:
            UsageError: A row does not sum to 2**63.
        """
        missing_rows = np.unique(rows[~self._is_summed[rows]])
        step = max(1, _CHUNK // max(1, self._weights.shape[1]))
        for start in range(0, len(missing_rows), step):
            part = missing_rows[start : start + step]
            sums = np.cumsum(self._weights[part], axis=1, dtype=np.uint64)
            # A sum that overflows 64 bits is smaller than the previous one. Without overflow, the last sum is the
            # largest.
            is_valid = (sums.max(axis=1, initial=0) == np.uint64(TOTAL)) & (sums[:, 1:] >= sums[:, :-1]).all(axis=1)
            if not is_valid.all():
                faulty_row = self._weights[part[int((~is_valid).argmax())]]
                raise UsageError(f"a row of weights must sum to 2**63, got {sum(faulty_row.tolist())}")
            # The order matters: if another thread finds a row marked as summed, the sums must be there.
            self._sums[part] = sums
            self._is_summed[part] = True

    def _look_up(self, rows: NDArray[np.int64], integers: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return, for each row, the number of running sums that do not exceed the corresponding integer.

        All rows are searched at once, which is possible because a binary search takes the same number of steps for
        every row. Each step halves the range of possible indices. No search can run past the end of its row, because a
        row's last running sum, 2**63, is larger than any of the integers.

        Args:
            rows: (B,) row indices.
            integers: (B,) integers below 2**63, one for each row.
        """
        flat_sums, length = self._sums.ravel(), int(self._weights.shape[1])
        start = rows * length
        first: NDArray[np.int64] = start.copy()
        while length > 1:
            half = length // 2
            # If the lower half's last sum is at most the integer, the answer lies in the upper half.
            first += half * (flat_sums[first + (half - 1)] <= integers)
            length -= half
        first -= start
        return first


def _look_up_in_row(sums: NDArray[np.uint64], integers: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return, for each integer, the number of a row's running sums that do not exceed it.

    Integers with the same leading bits form an interval. If all integers in an interval map to the same index, no
    search is needed for them.

    Args:
        sums: (K,) running sums of the row.
        integers: (n,) integers below 2**63.
    """
    # With fewer than four integers per interval on average, building the table of intervals takes longer than it saves.
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
    """Return ``count`` uniform integers below 2**63 from a source, each from the upper 63 bits of a 64-bit word."""
    # Index k will be drawn for the integers from the running sum of k - 1 (included) to that of k (excluded), which are
    # exactly w_k integers.
    return np.frombuffer(entropy(8 * count), dtype="<u8") >> np.uint64(1)


def choose(
    cuts: NDArray[np.float64], exact: Callable[[int], Sequence[Fraction]], *, source: Source | None = None
) -> NDArray[np.int64]:
    """Draw one of m + 1 alternatives for each row, with exact rational probabilities.

    A uniform number with infinitely many bits is compared with the cumulative probabilities (cuts). Its first 64 bits
    are nearly always enough. If they lie too close to a cut, further bits are drawn as needed and the comparison is
    made with exact rationals.

    Args:
        cuts: (B, m) cumulative probabilities of the first 1, ..., m alternatives, each with an error below
            :data:`MAX_CUT_ERROR`.
        exact: A function that takes a row index and returns the row's m cuts as rationals.
        source: The source of random bytes, which supplies 8 bytes for each row, in order. The default is the operating
            system's entropy. With :class:`RowStreams`, any further bytes come from the row's stream.

    Returns:
        (B,) indices of alternatives, from 0 to m. Each one costs 8 bytes of entropy.

    >>> choose(np.array([[0.0, 1.0], [1.0, 1.0]]), lambda row: [Fraction(row), Fraction(1)])
    array([1, 0])
    """
    entropy = source or os.urandom
    alternatives = np.empty(len(cuts), dtype=np.int64)
    for start in range(0, len(cuts), _CHUNK):
        chunk_cuts = cuts[start : start + _CHUNK]
        bits = np.frombuffer(entropy(8 * len(chunk_cuts)), dtype="<u8")
        # A uniform number from [0, 1), rounded to a double. The number of cuts that it reaches is the alternative's
        # index.
        uniform = (bits * 2.0**-64)[:, None]
        alternatives[start : start + len(chunk_cuts)] = (uniform >= chunk_cuts).sum(axis=1)
        # Twice the error of a cut, to cover the rounding of the 64 bits to a double as well.
        is_close = (np.abs(uniform - chunk_cuts) <= 2.0 * MAX_CUT_ERROR).any(axis=1)
        for row in np.flatnonzero(is_close).tolist():
            extra_source = entropy.beyond(start + row) if isinstance(entropy, RowStreams) else entropy
            alternatives[start + row] = _decide_exactly(int(bits[row]), exact(start + row), extra_source)
    return alternatives


def _decide_exactly(bits: int, cuts: Sequence[Fraction], entropy: Source) -> int:
    """Return the number of cuts that do not exceed the uniform number whose first 64 bits are ``bits``.

    Args:
        bits: The first 64 bits after the binary point, as an integer.
        cuts: A row's cumulative probabilities, as rationals.
        entropy: The source of further bits, which are read until all comparisons are decided.
    """
    length = 64
    while True:
        scaled = [cut * (1 << length) for cut in cuts]
        # The number lies in [bits, bits + 1) / 2**length. Comparisons with cuts inside that interval are still
        # undecided.
        min_count, max_count = (sum(cut <= bits for cut in scaled), sum(cut < bits + 1 for cut in scaled))
        if min_count == max_count:
            return min_count
        bits, length = bits << 64 | int.from_bytes(entropy(8), "little"), length + 64


def make_source(seed: int | None) -> Source:
    """Return a source of random bytes: the operating system's entropy or, if a seed is given, a NumPy PCG64 stream.

    Draws from the PCG64 stream are not private.
    """
    return os.urandom if seed is None else np.random.Generator(np.random.PCG64(seed)).bytes
