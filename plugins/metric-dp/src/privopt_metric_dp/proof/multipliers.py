"""Multipliers of privacy rows as solvers return them, and the choice of those worth storing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from privopt.arrays import Bools, Floats, Ints
from privopt.errors import UsageError
from privopt.execution.clock import check
from privopt.execution.compiled import jit
from privopt.execution.limits import in_threads

__all__ = ["Block", "Few", "Multipliers", "Sieve"]

#: Columns k0 to k1 - 1: (k0, k1, forward (P, k1 - k0), backward (P, k1 - k0)).
Block = tuple[int, int, Floats, Floats]
#: Those of one output that are not 0: (k, pairs (M,), whether each is backward (M,), multipliers (M,)).
Few = tuple[int, Ints, Bools, Floats]

_BLOCK_COLUMNS = 128


@frozen(kw_only=True, eq=False)
class Multipliers:
    """One number for each row of privacy, whole or in blocks of outputs that need not be held at once.

    ``forward[p, k]`` belongs to ``z_ik <= exp(eps d) z_jk`` of the pair p = (i, j), ``backward[p, k]`` to the row with
    i and j exchanged. Negative ones and those that are not finite count as 0.

    Attributes:
        blocks: called without arguments, gives ``(k0, k1, forward, backward)`` with arrays of shape (P, k1 - k0),
            each output at most once; outputs that no block names have multipliers 0.
        few: the same output by output, those alone that are not 0, where most are: trees over many pairs.
        part: the same of some pairs alone, and which of all these are (M,), in order; those of the others are 0.
    """

    blocks: Callable[[], Iterator[Block]]
    few: Callable[[], Iterator[Few]] | None = None
    part: tuple[Multipliers, Ints] | None = None

    @classmethod
    def whole(cls, forward: Floats, backward: Floats, *, columns: int = _BLOCK_COLUMNS) -> Multipliers:
        """Make multipliers from two arrays of shape (P, K), in blocks of ``columns`` columns."""
        outputs = forward.shape[1]

        def blocks() -> Iterator[Block]:
            for start in range(0, outputs, columns):
                stop = min(start + columns, outputs)
                yield start, stop, forward[:, start:stop], backward[:, start:stop]

        return cls(blocks=blocks)

    @classmethod
    def sparse(cls, few: Callable[[], Iterator[Few]], pairs: int) -> Multipliers:
        """Make multipliers from those that are not 0: outputs in order, no row of an output twice."""

        def blocks() -> Iterator[Block]:
            step, known = max(1, min(_BLOCK_COLUMNS, 4_000_000 // max(1, pairs))), few()
            while batch := list(islice(known, step)):
                first, last = batch[0][0], batch[-1][0]
                both = np.zeros((2, pairs, last + 1 - first))
                for k, places, backward, values in batch:
                    both[backward.astype(np.int64), places, k - first] = values
                yield first, last + 1, both[0], both[1]

        return cls(blocks=blocks, few=few)

    @classmethod
    def zero(cls, pairs: int, outputs: int) -> Multipliers:
        """Make multipliers that are all 0: they prove every record's cheapest output."""

        rows, backward, values = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_), np.zeros(0)
        return cls.sparse(lambda: ((k, rows, backward, values) for k in range(outputs)), pairs)

    @classmethod
    def among(cls, multipliers: Multipliers, rows: Ints, pairs: int) -> Multipliers:
        """Make multipliers over all pairs from those of the pairs ``rows`` (in order); the others get 0."""
        if len(rows) == pairs:
            return multipliers
        if multipliers.part is not None:
            return cls.among(multipliers.part[0], rows[multipliers.part[1]], pairs)
        known = multipliers.few
        if known is not None:
            return evolve(
                cls.sparse(lambda: ((k, rows[p], back, f) for k, p, back, f in known()), pairs),
                part=(multipliers, rows),
            )

        def blocks() -> Iterator[Block]:
            for k0, k1, forward, backward in multipliers.blocks():
                check()
                both = np.zeros((2, pairs, k1 - k0))
                both[0, rows], both[1, rows] = forward, backward
                yield k0, k1, both[0], both[1]

        return cls(blocks=blocks, part=(multipliers, rows))

    def read(self, pairs: int, outputs: int) -> int:
        """Return how many numbers an evaluation reads, for P pairs and K outputs."""
        if self.few is not None:
            return 0
        return 2 * outputs * (pairs if self.part is None else len(self.part[1]))

    def arrays(self, pairs: int, outputs: int) -> tuple[Floats, Floats]:
        """Return both arrays at full size (P, K)."""
        forward, backward = np.zeros((pairs, outputs)), np.zeros((pairs, outputs))
        for k0, k1, f, b in self.blocks():
            forward[:, k0:k1], backward[:, k0:k1] = f, b
        return forward, backward


@jit(few=lambda forward, *_: bool(forward.size <= 200))
def _gather(forward, backward, entry, turned, reached, chosen, f):  # type: ignore[no-untyped-def]
    """Rows of one output with a multiplier that counts, and how many they are.

    Of a pair's two rows the larger one keeps the difference: ``a`` of (i, j) and ``b`` of (j, i) less ``t`` each change
    g_ik and g_jk by ``(E - 1) t``, upwards.
    """
    found = 0
    for m in range(entry.size):
        ahead, back = forward[entry[m]], backward[entry[m]]
        ahead = ahead if 0.0 < ahead < np.inf else 0.0
        back = back if 0.0 < back < np.inf else 0.0
        value = back - ahead if turned[m] else ahead - back
        if reached[m] and value > 0.0:
            chosen[found] = m
            f[found] = value
            found += 1
    return found


@jit(few=lambda given, *_: bool(given.size <= 200))
def _sift(chosen, f, source, spare, rows, values):  # type: ignore[no-untyped-def]
    """Write down the rows of one output that count, and how many: see :class:`Sieve`."""
    found = first = 0
    shares = np.zeros(64)
    while first < chosen.size:
        i, end = source[chosen[first]], first
        while end < chosen.size and source[chosen[end]] == i:
            end += 1
        allowed, cut = spare[i], 64
        if allowed > 0.0:
            shares[:] = 0.0
            for m in range(first, end):
                if f[m] < allowed:
                    shares[min(63, -math.frexp(f[m] / allowed)[1])] += f[m]
            total = 0.0
            while cut > 0 and total + shares[cut - 1] <= allowed * (1.0 - 1e-9):
                cut -= 1
                total += shares[cut]
        for m in range(first, end):
            if f[m] >= allowed or min(63, -math.frexp(f[m] / allowed)[1]) < cut:
                rows[found] = chosen[m]
                values[found] = f[m]
                found += 1
        first = end
    return found


@frozen(kw_only=True, eq=False)
class Sieve:
    """Directed rows of pairs, and how small their multipliers must be to be omitted.

    Of the rows (i, .) of one output those with the least multipliers go while they add up to ``allowed[i]`` at most.

    Attributes:
        source: (R,) record i of each row (i, j), rising.
        entry: (R,) the pair of each.
        turned: (R,) whether it is that pair's backward row.
        reached: (R,) whether weights reach as far; other rows are omitted.
        allowed: (N,) at least 0.
    """

    source: Ints
    entry: Ints
    turned: Bools
    reached: Bools
    allowed: Floats

    def sifted(self, multipliers: Multipliers, outputs: int) -> Iterator[tuple[int, NDArray[np.uint32], Floats]]:
        """Yield each output, the places of its rows that are kept, in ascending order, and their multipliers.

        Raises:
            OutOfTime: the end has come.
            UsageError: blocks that do not fit.
        """
        if multipliers.few is not None:
            place = np.empty(len(self.entry), dtype=np.int64)
            place[2 * self.entry + self.turned] = np.arange(len(self.entry))
            for k, pairs, backward, f in multipliers.few():
                check()
                given = place[2 * pairs + backward]
                order = np.argsort(given)
                given, f = given[order], f[order]
                there = self.reached[given] & (f > 0.0) & (f < np.inf)
                yield k, *self._some(given[there], f[there])
            return
        for start, stop, forward, back in multipliers.blocks():
            wanted = (len(self.entry) // 2, stop - start)
            if not (0 <= start < stop <= outputs) or forward.shape != wanted or back.shape != wanted:
                raise UsageError(f"multipliers for columns {start} to {stop} have shapes {forward.shape}, {back.shape}")

            def sift(
                start: int, stop: int, forward: Floats = forward, back: Floats = back
            ) -> list[tuple[NDArray[np.uint32], Floats]]:
                given, f = np.empty(len(self.entry), dtype=np.int64), np.empty(len(self.entry))
                kept = []
                for k in range(start, stop):
                    columns = np.ascontiguousarray(forward[:, k]), np.ascontiguousarray(back[:, k])
                    count = _gather(*columns, self.entry, self.turned, self.reached, given, f)
                    kept.append(self._some(given[:count], f[:count]))
                return kept

            parts = in_threads(sift, stop - start, min_span=2)
            for k, part in enumerate((one for span in parts for one in span), start=start):
                yield k, *part

    def _some(self, chosen: Ints, f: Floats) -> tuple[NDArray[np.uint32], Floats]:
        rows, values = np.empty(len(chosen), dtype=np.uint32), np.empty(len(chosen))
        count = _sift(chosen, f, self.source, self.allowed, rows, values)
        return rows[:count].copy(), values[:count].copy()
