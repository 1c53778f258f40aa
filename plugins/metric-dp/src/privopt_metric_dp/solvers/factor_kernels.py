"""Compiled kernels that factor and solve the interior-point method's linear systems in batches of eight outputs.

The arrays are described in `privopt_metric_dp.solvers.row_kernels`. Their ``mask`` is 1 for real outputs and 0 for
unused lanes, which repeat the last output. A pattern (`privopt_metric_dp.solvers.elimination`) lists the entries of the
factor L below the diagonal by column: ``start`` is the first entry of each column, and ``row`` and ``column`` are the
row and the column of each entry. It also lists them by row: ``across`` is the start of each row in ``entry``. ``pair``
is the entry for each required pair.

A batch consists of eight outputs with interleaved values, so that entry ``e`` of the batch's output ``r`` is at
``8 e + r``. ``load``, ``store`` and ``spread`` (`privopt_metric_dp.matrix.simd`) read, write and fill such vectors of
eight numbers. ``lowest`` and ``total`` return the smallest lane and the sum of the lanes.
"""

from __future__ import annotations

import numpy as np

from privopt.arrays import Floats, Indices, Singles
from privopt.execution.compiled import jit
from privopt_metric_dp.matrix.simd import SINGLE_LANES, load, lowest, spread, store, total
from privopt_metric_dp.solvers.elimination import Elimination
from privopt_metric_dp.solvers.row_kernels import Arrays

__all__ = ["PANEL", "couple", "factorise", "solve"]

PANEL = SINGLE_LANES
"""The number of columns of the coupling matrix (the sum of the inverses over all outputs) computed at a time."""

_compiled = jit(error_model="numpy")  # a division by 0 gives infinity or NaN instead of an error


@_compiled
def factorise(pattern: Elimination, a: Arrays, g: int) -> bool:
    """Factor the matrices ``A' diag(f / s) A = L D L'`` for one batch of outputs, column by column.

    Here, the rows of ``A`` are the privacy constraints, ``f`` are their multipliers, and ``s`` are their slacks.

    Args:
        pattern: The sparsity pattern of the factors.
        a: The outputs' arrays. The kernel sets ``factor`` (L), ``inverse`` (1 / D) and ``unit``.
        g: The index of the batch.

    Returns:
        Whether all matrices are positive definite in floating point.
    """
    start, row, across, entry, column = pattern.start, pattern.row, pattern.across, pattern.entry, pattern.column
    pair_ends, root, pair, unit = a.ends, a.root, pattern.pair, a.unit[g]
    n = len(start) - 1
    # The diagonal is enlarged by a relative 1e-14, about 50 rounding errors, so that even a singular matrix has a
    # factor.
    zero, ridge = spread(0.0), spread(1.0 + 1e-14)
    diagonal = np.empty(n * 8)
    entry_of_row = np.zeros(n, np.int32)
    sg, fg, lower, inv = a.s[g], a.f[g], a.factor[g], a.inverse[g]
    for e in range(len(row)):
        store(lower, e, zero)
    for k in range(n):
        store(diagonal, k, zero)
    # Each pair has two rows, whose weights f / s are `forward` and `backward`. Each row adds to two diagonal entries
    # and to one entry below the diagonal. Since rows are scaled by exp(eps d / 2), the factors are `growth` and its
    # reciprocal.
    for p in range(len(pair_ends)):
        i, j = pair_ends[p, 0], pair_ends[p, 1]
        forward = load(fg, 2 * p) / load(sg, 2 * p)
        backward = load(fg, 2 * p + 1) / load(sg, 2 * p + 1)
        growth = root[p] ** 2
        growth_lanes, shrink_lanes = spread(growth), spread(1.0 / growth)
        store(lower, pair[p], zero - forward - backward)
        store(diagonal, j, load(diagonal, j) + growth_lanes * forward + shrink_lanes * backward)
        store(diagonal, i, load(diagonal, i) + shrink_lanes * forward + growth_lanes * backward)
    for k in range(n):
        pivot = load(diagonal, k) * ridge
        for lane in range(8):
            # `couple` uses this to scale the matrix to a unit diagonal.
            unit[8 * k + lane] = 1.0 / np.sqrt(diagonal[8 * k + lane])
        for e in range(start[k], start[k + 1]):
            entry_of_row[row[e]] = e
        # If an earlier column has an entry in row k, its rows below k are rows of column k too, because elimination
        # fills them in. Every element of `entry_of_row` that is read below was therefore set for this k, and none needs
        # to be cleared.
        for q in range(across[k], across[k + 1]):
            e = entry[q]
            j = column[e]
            value = load(lower, e)
            scaled = value * load(diagonal, j)
            pivot = pivot - scaled * value
            for b in range(e + 1, start[j + 1]):
                to = entry_of_row[row[b]]
                store(lower, to, load(lower, to) - scaled * load(lower, b))
        if not lowest(pivot) > 0.0:
            return False
        store(diagonal, k, pivot)
        reciprocal = spread(1.0) / pivot
        store(inv, k, reciprocal)
        # So far, the entries are those of L times the pivot.
        for e in range(start[k], start[k + 1]):
            store(lower, e, load(lower, e) * reciprocal)
    return True


@_compiled
def solve(pattern: Elimination, a: Arrays, prices: Floats, weight: float, right: Floats, result: Floats) -> Floats:
    """Compute ``result = H^-1 (prices + weight right)`` for all outputs in a group, by forward and back substitution.

    ``H = L D L'`` is the matrix of an output, which has already been factored.

    Args:
        pattern: The sparsity pattern of the factors.
        a: The outputs' arrays, after :func:`factorise`.
        prices: Array of shape (N,) with the prices, which are shared by all outputs.
        weight: The factor for ``right``.
        right: Array of shape (G, 8 N) with the right-hand sides for the G batches.
        result: Array of shape (G, 8 N) that receives the solutions.

    Returns:
        Array of shape (N,) with the sums of the solutions over the outputs.
    """
    start, row = pattern.start, pattern.row
    n = len(start) - 1
    sums = np.zeros(n)
    weights = spread(weight)
    for g in range(len(result)):
        x, lower, inv, counted = result[g], a.factor[g], a.inverse[g], load(a.mask[g], 0)
        for k in range(n):
            store(x, k, spread(prices[k]) + weights * load(right[g], k))
        # Forward substitution with L. The division by D is part of the next loop.
        for k in range(n):
            value = load(x, k)
            for e in range(start[k], start[k + 1]):
                store(x, row[e], load(x, row[e]) - load(lower, e) * value)
        # Back substitution with L': row k needs only the entries of x below it.
        for k in range(n - 1, -1, -1):
            # Two sums are used because each addition to a single sum would have to wait for the one before it.
            even_terms, odd_terms = load(x, k) * load(inv, k), spread(0.0)
            e, stop = start[k], start[k + 1]
            while e + 1 < stop:
                even_terms = even_terms - load(lower, e) * load(x, row[e])
                odd_terms = odd_terms + load(lower, e + 1) * load(x, row[e + 1])
                e += 2
            if e < stop:
                even_terms = even_terms - load(lower, e) * load(x, row[e])
            even_terms = even_terms - odd_terms
            store(x, k, even_terms)
            sums[k] += total(even_terms * counted)
    return sums


@_compiled
def _add_panel(
    begin: int, start: Indices, row: Indices, lower: Singles, pivot: Singles, scales: Singles, z: Singles, t: Singles
) -> None:
    """Add sixteen columns of the sum of ``U H^-1 U`` over a batch of outputs to ``t``, from row ``begin`` on.

    ``H`` is the matrix of an output, and ``U`` is a diagonal matrix of scales. For each output, ``H z = U e_j`` is
    solved for sixteen unit vectors ``e_j`` at once, one in each SIMD lane, and ``U z`` is added. The loop over the
    eight outputs is unrolled, so each of the variables ``a``, ``b``, ``c``, ``d``, ``p``, ``r``, ``s`` and ``u``
    belongs to one output.

    Args:
        begin: The first of the sixteen columns. There are fewer columns at the end of the matrix.
        start: Array of shape (N + 1,) with the first entry of each column of the factor ``L``.
        row: Array of shape (E,) with the row of each entry.
        lower: Array of shape (8 E,) with the entries of ``L`` in single precision, interleaved for the eight outputs.
        pivot: Array of shape (8 N,) with the entries of ``1 / D``.
        scales: Array of shape (8 N,) with the diagonal of ``U``, which is 0 in unused lanes.
        z: A workspace of shape (128 N,), with a vector of sixteen lanes for each record and output.
        t: Array of shape (16 N,) to which the products are added, with a vector of the sixteen columns for each row.
    """
    n = len(start) - 1
    end = min(n, begin + 16)
    reached = np.zeros(n, np.bool_)
    zero = spread(np.float32(0.0))
    for j in range(begin, end):
        reached[j] = True
    # A unit vector spreads only along the path to the root of the elimination tree. All other records stay at 0.
    for j in range(begin, n):
        if reached[j]:
            if start[j + 1] > start[j]:
                reached[row[start[j]]] = True
            for lane in range(8):
                store(z, 8 * j + lane, zero)
    for j in range(begin, end):
        for lane in range(8):
            z[(8 * j + lane) * 16 + j - begin] = scales[8 * j + lane]
    # Forward substitution with L.
    for j in range(begin, n):
        if reached[j]:
            q = 8 * j
            a, b, c, d = load(z, q), load(z, q + 1), load(z, q + 2), load(z, q + 3)
            p, r, s, u = load(z, q + 4), load(z, q + 5), load(z, q + 6), load(z, q + 7)
            for e in range(start[j], start[j + 1]):
                k, q = 8 * row[e], 8 * e
                store(z, k, load(z, k) - spread(lower[q]) * a)
                store(z, k + 1, load(z, k + 1) - spread(lower[q + 1]) * b)
                store(z, k + 2, load(z, k + 2) - spread(lower[q + 2]) * c)
                store(z, k + 3, load(z, k + 3) - spread(lower[q + 3]) * d)
                store(z, k + 4, load(z, k + 4) - spread(lower[q + 4]) * p)
                store(z, k + 5, load(z, k + 5) - spread(lower[q + 5]) * r)
                store(z, k + 6, load(z, k + 6) - spread(lower[q + 6]) * s)
                store(z, k + 7, load(z, k + 7) - spread(lower[q + 7]) * u)
    # Division by D and back substitution with L'. Rows before `begin` are not needed because the sum is symmetric.
    for j in range(n - 1, begin - 1, -1):
        a, b, c, d, p, r, s, u = zero, zero, zero, zero, zero, zero, zero, zero
        o = 8 * j
        if reached[j]:
            a, b = load(z, o) * spread(pivot[o]), load(z, o + 1) * spread(pivot[o + 1])
            c, d = load(z, o + 2) * spread(pivot[o + 2]), load(z, o + 3) * spread(pivot[o + 3])
            p, r = load(z, o + 4) * spread(pivot[o + 4]), load(z, o + 5) * spread(pivot[o + 5])
            s, u = load(z, o + 6) * spread(pivot[o + 6]), load(z, o + 7) * spread(pivot[o + 7])
        for e in range(start[j], start[j + 1]):
            k, q = 8 * row[e], 8 * e
            a = a - spread(lower[q]) * load(z, k)
            b = b - spread(lower[q + 1]) * load(z, k + 1)
            c = c - spread(lower[q + 2]) * load(z, k + 2)
            d = d - spread(lower[q + 3]) * load(z, k + 3)
            p = p - spread(lower[q + 4]) * load(z, k + 4)
            r = r - spread(lower[q + 5]) * load(z, k + 5)
            s = s - spread(lower[q + 6]) * load(z, k + 6)
            u = u - spread(lower[q + 7]) * load(z, k + 7)
        store(z, o, a)
        store(z, o + 1, b)
        store(z, o + 2, c)
        store(z, o + 3, d)
        store(z, o + 4, p)
        store(z, o + 5, r)
        store(z, o + 6, s)
        store(z, o + 7, u)
        a = a * spread(scales[o]) + b * spread(scales[o + 1])
        c = c * spread(scales[o + 2]) + d * spread(scales[o + 3])
        p = p * spread(scales[o + 4]) + r * spread(scales[o + 5])
        s = s * spread(scales[o + 6]) + u * spread(scales[o + 7])
        store(t, j, load(t, j) + ((a + c) + (p + s)))


@_compiled
def couple(pattern: Elimination, a: Arrays, g: int, scale: Floats, into: Singles) -> None:
    """Add the scaled sum of the inverses ``H^-1`` over a batch of outputs to ``into``, in single precision.

    The matrix ``H`` of each output is first scaled to a unit diagonal, so that its factor and its inverse stay within
    the range of single precision.

    Args:
        pattern: The sparsity pattern of the factors.
        a: The outputs' arrays, after :func:`factorise`.
        g: The index of the batch.
        scale: Array of shape (N,) with scales. Entry (i, j) is divided by ``scale_i scale_j``.
        into: Array of shape (panels, N * PANEL) to which the inverses are added. Each panel contains `PANEL` columns,
            stored row by row. Only entries on or below the diagonal are meaningful.
    """
    start, row, column = pattern.start, pattern.row, pattern.column
    factor, inverse, unit, mask = a.factor[g], a.inverse[g], a.unit[g], a.mask[g]
    n = len(start) - 1
    lower = np.empty(8 * len(row), np.float32)
    pivot, scales = np.empty(8 * n, np.float32), np.empty(8 * n, np.float32)
    z = np.empty(8 * n * 16, np.float32)
    # The factor of the matrix scaled by `unit`. Entries of L are multiplied by the row's scale and divided by the
    # column's, and 1 / D is divided by the square of the scale.
    for e in range(len(row)):
        k, j = 8 * row[e], 8 * column[e]
        for lane in range(8):
            lower[8 * e + lane] = factor[8 * e + lane] * unit[k + lane] / unit[j + lane]
    for j in range(n):
        for lane in range(8):
            u = unit[8 * j + lane]
            pivot[8 * j + lane] = inverse[8 * j + lane] / (u * u)
            part = mask[lane] * u / scale[j]
            scales[8 * j + lane] = part if part > 1e-18 else 0.0  # the squares of smaller scales would underflow
    for q in range(len(into)):
        _add_panel(q * 16, start, row, lower, pivot, scales, z, into[q])
