"""A lower bound on the loss of every mechanism, from any dual vector, that no rounding can make too high.

The problem: minimise ``sum c_ik z_ik`` over rows that sum to 1, z >= 0, ``z_ik <= exp(eps d) z_jk`` and the reverse for
each required pair. For multipliers a, b >= 0 of the two kinds of rows the Lagrangian separates over records::

    g_ik = c_ik + sum over pairs (i, j) of (a_k - E b_k) + sum over pairs (h, i) of (b_k - E a_k),   E = exp(eps d)
    bound = sum_i min_k g_ik

whatever a and b are. Here each g_ik is replaced by something proved to be no greater (E rounded up, and the error of
the whole sum in doubles subtracted), and the last sum is rounded down. Poor multipliers give a poor bound, never a
wrong one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from fractions import Fraction

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.errors import UsageError
from privopt.exact.bounds import exp_bounds
from privopt.exact.certify import check_pairs
from privopt.execution import Executor, serial
from privopt.execution.compiled import jit

__all__ = ["Block", "Multipliers", "lower_bound"]

#: Columns k0 to k1 - 1: (k0, k1, forward (P, k1 - k0), backward (P, k1 - k0)).
Block = tuple[int, int, Floats, Floats]

_COLUMNS = 128


@frozen(kw_only=True, eq=False)
class Multipliers:
    """One number for each row of privacy, whole or in blocks of outputs that need not be held at once.

    ``forward[p, k]`` belongs to ``z_ik <= exp(eps d) z_jk`` of the pair p = (i, j), ``backward[p, k]`` to the row with
    i and j exchanged. Negative ones and those that are not finite count as 0.

    Attributes:
        blocks: called without arguments, gives ``(k0, k1, forward, backward)`` with arrays of shape (P, k1 - k0),
            each output at most once; outputs that no block names have multipliers 0.
    """

    blocks: Callable[[], Iterator[Block]]

    @classmethod
    def whole(cls, forward: Floats, backward: Floats, *, columns: int = _COLUMNS) -> Multipliers:
        """Of two arrays of shape (P, K), in blocks of so many columns."""
        outputs = forward.shape[1]

        def blocks() -> Iterator[Block]:
            for start in range(0, outputs, columns):
                stop = min(start + columns, outputs)
                yield start, stop, forward[:, start:stop], backward[:, start:stop]

        return cls(blocks=blocks)

    @classmethod
    def zero(cls, pairs: int, outputs: int) -> Multipliers:
        """All 0: they prove every record's cheapest output."""

        def blocks() -> Iterator[Block]:
            for start in range(0, outputs, _COLUMNS):
                none = np.zeros((pairs, min(_COLUMNS, outputs - start)))
                yield start, start + none.shape[1], none, none

        return cls(blocks=blocks)

    def arrays(self, pairs: int, outputs: int) -> tuple[Floats, Floats]:
        """Both arrays at full size (P, K)."""
        forward, backward = np.zeros((pairs, outputs)), np.zeros((pairs, outputs))
        for k0, k1, f, b in self.blocks():
            forward[:, k0:k1], backward[:, k0:k1] = f, b
        return forward, backward


@jit()
def _accumulate(first, second, growth, forward, backward, value, size, terms):  # type: ignore[no-untyped-def]
    """Add the multipliers' terms to value, their magnitudes to size, and count them a row."""
    for p in range(first.size):
        i, j, e = first[p], second[p], growth[p]
        if not np.isfinite(e):
            continue  # a row that no weights reach: its multipliers count as 0
        terms[i] += 2
        terms[j] += 2
        for k in range(value.shape[1]):
            a, b = forward[p, k], backward[p, k]
            a = a if 0.0 < a < np.inf else 0.0
            b = b if 0.0 < b < np.inf else 0.0
            ea, eb = e * a, e * b
            value[i, k] += a - eb
            value[j, k] += b - ea
            size[i, k] += a + eb
            size[j, k] += b + ea


def _block_minimum(
    cost: Floats, first: Ints, second: Ints, growth: Floats, forward: Floats, backward: Floats
) -> Floats:
    """Over some columns: min_k of a proved lower bound of g_ik, one a record.

    Columns are free to take their multipliers or none: those where a row comes out as no number take none.
    """
    value, size = cost.copy(), np.abs(cost)
    terms = np.zeros(len(cost), dtype=np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        _accumulate(
            first, second, growth, np.ascontiguousarray(forward), np.ascontiguousarray(backward), value, size, terms
        )
        # Higham, Accuracy and Stability, (4.4): |error| <= gamma_n sum |terms|; 4 more roundings for the terms
        # themselves, doubled for the rounding of size; products that underflow lose less than 1e-300 in all
        error = size * ((2.0 * terms + 16.0) * 2.0**-53)[:, None] * 2.0 + 1e-300
        low = np.nextafter(value - error, -np.inf)
    bad = ~np.isfinite(low).all(axis=0)
    low[:, bad] = cost[:, bad]
    least: Floats = low.min(axis=1)
    return least


def lower_bound(
    cost: Floats,
    pairs: Ints,
    distances: Floats,
    epsilon: Fraction,
    multipliers: Multipliers,
    *,
    executor: Executor | None = None,
) -> float:
    """A number that no mechanism's loss is below, rounded down.

    Args:
        cost: (N, K) finite, prior included.
        pairs: (P, 2) required pairs.
        distances: (P,) each double the rational that it is.
        epsilon: exact: the epsilon that is promised, not the tighter one that was solved with.
        multipliers: any.
        executor: where blocks are evaluated.

    Returns:
        The better of the bound from the multipliers and the trivial one (each record its cheapest output). Where P is
        0 the trivial one is the optimum. Cost: about 10 P K operations.

    Raises:
        UsageError: shapes that do not fit, a cost that is not finite.
    """
    cost = np.ascontiguousarray(cost, dtype=np.float64)
    if cost.ndim != 2 or not cost.size or not np.isfinite(cost).all():
        raise UsageError(f"cost must be finite and of shape (N, K); it has shape {cost.shape}")
    pairs, distances = check_pairs(pairs, distances, len(cost))
    _, growth = exp_bounds(distances, epsilon)
    first, second = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
    least = np.full(len(cost), np.inf)
    seen = np.zeros(cost.shape[1], dtype=bool)
    pending: deque[Future[Floats]] = deque()
    where = executor or serial()
    graph = [where.hold(a) for a in (first, second, growth)]
    for number, (start, stop, forward, backward) in enumerate(multipliers.blocks()):
        shape = (len(pairs), stop - start)
        if not (0 <= start < stop <= cost.shape[1]) or forward.shape != shape or backward.shape != shape:
            raise UsageError(f"multipliers for columns {start} to {stop} have shapes {forward.shape}, {backward.shape}")
        seen[start:stop] = True
        key = ("bound", number % where.jobs)
        pending.append(where.submit(key, _block_minimum, cost[:, start:stop], *graph, forward, backward))
        if len(pending) > where.jobs:  # no more blocks in memory than there are workers, and one to come
            np.minimum(least, pending.popleft().result(), out=least)
    for future in pending:
        np.minimum(least, future.result(), out=least)
    if not seen.all():
        np.minimum(least, cost[:, ~seen].min(axis=1), out=least)
    trivial = cost.min(axis=1)
    return max(_sum_down(least), _sum_down(trivial))


def _sum_down(values: Floats) -> float:
    """The sum, rounded down: fsum is correctly rounded, and so tells the sign of what it left."""
    try:
        total = math.fsum(values.tolist())
        return total if math.fsum([*values.tolist(), -total]) >= 0 else math.nextafter(total, -math.inf)
    except OverflowError:
        return -math.inf
