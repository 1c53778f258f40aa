"""A preconditioner for the matrix that couples the outputs, obtained by chordal completion of some of its entries.

The coupling matrix ``T = sum_r H_r^-1``, where ``H_r = L_r D_r L_r'`` is the sparse matrix for output r, is dense. Its
entries on the sparsity pattern of the factors can be computed from the factors, at the cost of another factorisation
(Takahashi, Fagan and Chen 1973). Let ``M`` be the positive definite matrix that has these entries and the largest
determinant. Since the pattern is chordal, the inverse of M has the same pattern (Grone, Johnson, Sa and Wolkowicz
1984)::

    b_v = T[S, S]^-1 T[S, v],  w_v = (T_vv - T[v, S] b_v)^(-1/2),  row v of R = w_v (e_v - b_v),  M^-1 = R' R

Here, ``e_v`` is the v-th unit vector, and ``S`` is the set of rows in which column ``v`` has entries below the
diagonal. A pattern lists the entries by column: ``start`` is the first entry of each column, and ``row`` is the row of
each entry. If all ``H_r`` are proportional, ``M`` equals ``T``. Every ``H_r`` must be nonsingular. This is the case
because records at distance 0 are merged and every record has a pair.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from privopt.arrays import Floats, Indices
from privopt.execution.compiled import jit
from privopt.execution.resources import in_threads
from privopt_metric_dp.matrix.simd import load, spread, store, total
from privopt_metric_dp.solvers.elimination import Elimination
from privopt_metric_dp.solvers.row_kernels import Arrays

__all__ = ["add_entries", "complete"]

_compiled = jit(error_model="numpy")  # a division by 0 gives infinity or NaN instead of an error


@_compiled
def add_entries(pattern: Elimination, a: Arrays, g: int, diagonal: Floats, off_diagonal: Floats) -> None:
    """Add ``H^-1``, summed over a batch of outputs, to the entries of ``T`` on the sparsity pattern of the factors.

    Here, ``H = L D L'`` is the matrix of an output, and ``T`` is the sum of ``H^-1`` over all outputs. The columns of
    ``Z = H^-1`` are computed from last to first. Column v has the entries ``Z[S, v] = -Z[S, S] L[S, v]`` and
    ``Z_vv = 1 / D_v - L[S, v]' Z[S, v]``, where ``S`` is the set of rows in which column v of ``L`` has entries below
    the diagonal.

    Args:
        pattern: The sparsity pattern of the factors.
        a: The outputs' arrays, after :func:`privopt_metric_dp.solvers.factor_kernels.factorise`.
        g: The index of the batch.
        diagonal: Array of shape (N,) with the diagonal entries of ``T``. The diagonal entries of ``H^-1`` are added to
            it.
        off_diagonal: Array of shape (E,) with the entries of ``T`` below the diagonal. The corresponding entries of
            ``H^-1`` are added to it.
    """
    start, row, factor, inverse, mask = pattern.start, pattern.row, a.factor[g], a.inverse[g], a.mask[g]
    n = len(start) - 1
    inverse_diagonal, inverse_entries = np.empty(8 * n), np.empty(8 * len(row))
    # The entry that column v has in each row, or -1 if it has none.
    where = np.full(n, -1, np.int32)
    zero, counted = spread(0.0), load(mask, 0)
    # Column v needs only the entries of Z between its own rows S. These are in later columns, which are done, and every
    # pair of rows in S is in the pattern, because eliminating v has filled it in.
    for v in range(n - 1, -1, -1):
        begin, stop = start[v], start[v + 1]
        for e in range(begin, stop):
            where[row[e]] = e
            store(inverse_entries, e, zero)
        # Entry e collects row r of -Z[S, S] L[S, v]. Z is symmetric, so each stored entry adds to two rows.
        for e in range(begin, stop):
            r = row[e]
            lower = load(factor, e)
            moved = load(inverse_entries, e) - lower * load(inverse_diagonal, r)
            for q in range(start[r], start[r + 1]):
                target = where[row[q]]
                if target >= begin:
                    entry = load(inverse_entries, q)
                    moved = moved - load(factor, target) * entry
                    store(inverse_entries, target, load(inverse_entries, target) - lower * entry)
            store(inverse_entries, e, moved)
        value = load(inverse, v)
        for e in range(begin, stop):
            where[row[e]] = -1
            entry = load(inverse_entries, e)
            value = value - load(factor, e) * entry
            off_diagonal[e] += total(entry * counted)
        store(inverse_diagonal, v, value)
        diagonal[v] += total(value * counted)


@_compiled
def _factor_rows(
    begin: int,
    end: int,
    start: Indices,
    row: Indices,
    diagonal: Floats,
    off_diagonal: Floats,
    pivots: Floats,
    entries: Floats,
) -> None:
    """Compute rows ``begin`` to ``end - 1`` of ``R``, where ``M^-1 = R' R`` is the inverse of the completion ``M``.

    Row v is ``w_v (e_v - b_v)``, with ``b_v = T[S, S]^-1 T[S, v]`` and ``w_v = (T_vv - T[v, S] b_v)^(-1/2)``. Here,
    ``e_v`` is the v-th unit vector, and ``S`` is the set of rows in which column v has entries below the diagonal.

    Args:
        begin, end: The range of the rows. Rows do not depend on each other, so threads can compute different ranges.
        start: Array of shape (N + 1,) with the first entry of each column in the factors' pattern.
        row: Array of shape (E,) with the row of each entry.
        diagonal: Array of shape (N,) with the diagonal entries of ``T``.
        off_diagonal: Array of shape (E,) with the entries of ``T`` below the diagonal, on the pattern.
        pivots: Array of shape (N,) that receives the diagonal entries ``w_v`` of ``R``.
        entries: Array of shape (E,) that receives the other entries ``-w_v b_v``.
    """
    # The position of each row in S, or -1 if it is not in S.
    where = np.full(len(start) - 1, -1, np.int32)
    for v in range(begin, end):
        offset, count = start[v], start[v + 1] - start[v]
        remainder = diagonal[v]
        if count:
            for x in range(count):
                where[row[offset + x]] = x
            # T[S, S] as a dense matrix. Every pair of rows in S is in the pattern, because the pattern is chordal.
            among = np.zeros((count, count))
            for x in range(count):
                r = row[offset + x]
                # A slightly larger diagonal keeps the system regular even if two rows are nearly equal.
                among[x, x] = diagonal[r] * (1.0 + 1e-10)
                for q in range(start[r], start[r + 1]):
                    y = where[row[q]]
                    if y >= 0:
                        among[x, y] = among[y, x] = off_diagonal[q]
            for x in range(count):
                where[row[offset + x]] = -1
            column = off_diagonal[offset : offset + count].copy()
            shares = np.linalg.solve(among, column)
            for x in range(count):
                remainder -= shares[x] * column[x]
                entries[offset + x] = -shares[x]
        # In exact arithmetic, the remainder is positive. If rounding makes it negative, any positive number can replace
        # it in a preconditioner: conjugate gradients take more steps, but converge to the same solution.
        weight = 1.0 / np.sqrt(max(remainder, 1e-12 * diagonal[v]))
        pivots[v] = weight
        for x in range(count):
            entries[offset + x] *= weight


@_compiled
def _apply_inverse(start: Indices, row: Indices, diagonal: Floats, entries: Floats, right: Floats) -> Floats:
    """Multiply a vector by the inverse of the chordal completion ``M``.

    Args:
        start: Array of shape (N + 1,) with the first entry of each row in the pattern of ``R``, where ``M^-1 = R' R``.
        row: Array of shape (E,) with the column of each entry.
        diagonal: Array of shape (N,) with the diagonal entries of ``R``.
        entries: Array of shape (E,) with the other entries of ``R``.
        right: Array of shape (N,) with the vector.

    Returns:
        Array of shape (N,) with the product ``R' R right``.
    """
    n = len(start) - 1
    result = np.zeros(n)
    for v in range(n):
        value = diagonal[v] * right[v]
        for e in range(start[v], start[v + 1]):
            value += entries[e] * right[row[e]]
        result[v] += diagonal[v] * value
        for e in range(start[v], start[v + 1]):
            result[row[e]] += entries[e] * value
    return result


def complete(pattern: Elimination, diagonal: Floats, off_diagonal: Floats) -> Callable[[Floats], Floats]:
    """Return a function that multiplies a vector by ``M^-1``, where ``M`` is the chordal completion of given entries.

    Args:
        pattern: The pattern of the factors. Vectors must be in its elimination order.
        diagonal: Array of shape (N,) with the diagonal entries.
        off_diagonal: Array of shape (E,) with the entries on the pattern below the diagonal.

    Raises:
        numpy.linalg.LinAlgError: A value overflowed or is not finite.
    """
    if not (np.isfinite(diagonal).all() and np.isfinite(off_diagonal).all() and (diagonal > 0).all()):
        raise np.linalg.LinAlgError("the Schur complement is out of the range of doubles")
    pivots, entries = np.empty(len(diagonal)), np.empty(len(off_diagonal))
    in_threads(
        lambda a, b: _factor_rows(a, b, pattern.start, pattern.row, diagonal, off_diagonal, pivots, entries),
        len(diagonal),
        min_span=1_000,
    )
    if not (np.isfinite(pivots).all() and np.isfinite(entries).all()):
        raise np.linalg.LinAlgError("the Schur complement is singular")
    return lambda right: np.asarray(_apply_inverse(pattern.start, pattern.row, pivots, entries, right))
