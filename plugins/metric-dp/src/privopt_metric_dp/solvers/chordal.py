"""The matrix that couples the outputs, by its entries on the filled graph and their chordal completion.

The coupling ``T = sum_r H_r^-1`` is dense. Its entries on the pattern of the factors come from these at the price of
another factorisation (Takahashi, Fagan and Chen 1973). Let ``M`` be the positive definite matrix with these entries and
the greatest determinant. Its inverse has that pattern, for the pattern is chordal (Grone, Johnson, Sa and Wolkowicz
1984)::

    b_v = T[S, S]^-1 T[S, v],  w_v = (T_vv - T[v, S] b_v)^(-1/2),  row v of R = w_v (e_v - b_v),  M^-1 = R' R

where ``S`` are the entries of column ``v`` below the diagonal. Where all ``H_r`` are proportional ``M`` is ``T``. It
needs every ``H_r`` regular: records at distance 0 merged, and none without a pair.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from privopt.arrays import Floats, Indices
from privopt.execution.compiled import jit
from privopt.execution.limits import in_threads
from privopt_metric_dp.matrix.simd import load, spread, store, total
from privopt_metric_dp.solvers.elimination import Elimination
from privopt_metric_dp.solvers.row_kernels import Arrays

__all__ = ["add_entries", "complete"]

_compiled = jit(error_model="numpy")


@_compiled
def add_entries(pattern: Elimination, a: Arrays, g: int, diagonal: Floats, below: Floats) -> None:
    """Add the entries on the pattern of a batch's ``H^-1``, summed over its outputs, to ``T``'s.

    From the last column on, ``Z = H^-1``: ``Z[S, v] = -Z[S, S] L[S, v]``, ``Z_vv = 1 / D_v - L[S, v]' Z[S, v]``.

    Args:
        pattern: of the factors.
        a: the outputs, as `privopt_metric_dp.solvers.factor_kernels.factorise` left them.
        g: the batch.
        diagonal: ``(N,)``.
        below: ``(E,)``.
    """
    start, row, factor, inverse, mask = pattern.start, pattern.row, a.factor[g], a.inverse[g], a.mask[g]
    n = len(start) - 1
    own, other = np.empty(8 * n), np.empty(8 * len(row))
    where = np.full(n, -1, np.int32)
    zero, counted = spread(0.0), load(mask, 0)
    for v in range(n - 1, -1, -1):
        first, stop = start[v], start[v + 1]
        for e in range(first, stop):
            where[row[e]] = e
            store(other, e, zero)
        for e in range(first, stop):
            r = row[e]
            lower = load(factor, e)
            moved = load(other, e) - lower * load(own, r)
            for q in range(start[r], start[r + 1]):
                at = where[row[q]]
                if at >= first:
                    entry = load(other, q)
                    moved = moved - load(factor, at) * entry
                    store(other, at, load(other, at) - lower * entry)
            store(other, e, moved)
        value = load(inverse, v)
        for e in range(first, stop):
            where[row[e]] = -1
            entry = load(other, e)
            value = value - load(factor, e) * entry
            below[e] += total(entry * counted)
        store(own, v, value)
        diagonal[v] += total(value * counted)


@_compiled
def _rows(
    first: int, last: int, start: Indices, row: Indices, diagonal: Floats, below: Floats, pivots: Floats, other: Floats
) -> None:
    """Rows ``first`` to ``last`` of ``R``: its diagonal and the entries next to it."""
    where = np.full(len(start) - 1, -1, np.int32)
    for v in range(first, last):
        at, count = start[v], start[v + 1] - start[v]
        left = diagonal[v]
        if count:
            for x in range(count):
                where[row[at + x]] = x
            among = np.zeros((count, count))
            for x in range(count):
                r = row[at + x]
                among[x, x] = diagonal[r] * (1.0 + 1e-10)
                for q in range(start[r], start[r + 1]):
                    y = where[row[q]]
                    if y >= 0:
                        among[x, y] = among[y, x] = below[q]
            for x in range(count):
                where[row[at + x]] = -1
            there = below[at : at + count].copy()
            shares = np.linalg.solve(among, there)
            for x in range(count):
                left -= shares[x] * there[x]
                other[at + x] = -shares[x]
        weight = 1.0 / np.sqrt(max(left, 1e-12 * diagonal[v]))
        pivots[v] = weight
        for x in range(count):
            other[at + x] *= weight


@_compiled
def _apply(start: Indices, row: Indices, diagonal: Floats, other: Floats, right: Floats) -> Floats:
    """``R' R right``."""
    n = len(start) - 1
    out = np.zeros(n)
    for v in range(n):
        value = diagonal[v] * right[v]
        for e in range(start[v], start[v + 1]):
            value += other[e] * right[row[e]]
        out[v] += diagonal[v] * value
        for e in range(start[v], start[v + 1]):
            out[row[e]] += other[e] * value
    return out


def complete(pattern: Elimination, diagonal: Floats, below: Floats) -> Callable[[Floats], Floats]:
    """Return what solves ``M^-1 right``, ``(N,)``, for the completion ``M`` of entries on a pattern.

    Args:
        pattern: of the factors, in whose order right sides are.
        diagonal: ``(N,)``.
        below: ``(E,)`` entries of the pattern.

    Raises:
        numpy.linalg.LinAlgError: the numbers have left the range of doubles.
    """
    if not (np.isfinite(diagonal).all() and np.isfinite(below).all() and (diagonal > 0).all()):
        raise np.linalg.LinAlgError("the coupling has left the range of doubles")
    own, other = np.empty(len(diagonal)), np.empty(len(below))
    in_threads(
        lambda a, b: _rows(a, b, pattern.start, pattern.row, diagonal, below, own, other), len(diagonal), min_span=1_000
    )
    if not (np.isfinite(own).all() and np.isfinite(other).all()):
        raise np.linalg.LinAlgError("the coupling is singular")
    return lambda right: np.asarray(_apply(pattern.start, pattern.row, own, other, right))
