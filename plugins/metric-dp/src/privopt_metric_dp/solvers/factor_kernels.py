"""The interior point's factors and solves, compiled: eight outputs side by side, one pattern of fill for all.

Arrays are those of `privopt_metric_dp.solvers.row_kernels`, patterns of `privopt_metric_dp.solvers.elimination`.
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
"""Columns of the coupling that are formed together."""

_compiled = jit(error_model="numpy")


@_compiled
def factorise(pattern: Elimination, a: Arrays, g: int) -> bool:
    """Factor ``L D L' = A' diag(f / s) A`` of the outputs of one batch.

    Sets entries of ``L``, ``1 / D``, and ``unit``. False where a matrix is not positive definite in floating point.
    """
    start, row, across, entry, column = pattern.start, pattern.row, pattern.across, pattern.entry, pattern.column
    pair_ends, root, pair, unit = a.ends, a.root, pattern.pair, a.unit[g]
    n = len(start) - 1
    zero, ridge = spread(0.0), spread(1.0 + 1e-14)
    diagonal = np.empty(n * 8)
    where = np.zeros(n, np.int32)
    sg, fg, lower, inv = a.s[g], a.f[g], a.factor[g], a.inverse[g]
    for e in range(len(row)):
        store(lower, e, zero)
    for k in range(n):
        store(diagonal, k, zero)
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
            unit[8 * k + lane] = 1.0 / np.sqrt(diagonal[8 * k + lane])
        for e in range(start[k], start[k + 1]):
            where[row[e]] = e
        for q in range(across[k], across[k + 1]):
            e = entry[q]
            j = column[e]
            value = load(lower, e)
            scaled = value * load(diagonal, j)
            pivot = pivot - scaled * value
            for b in range(e + 1, start[j + 1]):
                to = where[row[b]]
                store(lower, to, load(lower, to) - scaled * load(lower, b))
        if not lowest(pivot) > 0.0:
            return False
        store(diagonal, k, pivot)
        forward = spread(1.0) / pivot
        store(inv, k, forward)
        for e in range(start[k], start[k + 1]):
            store(lower, e, load(lower, e) * forward)
    return True


@_compiled
def solve(pattern: Elimination, a: Arrays, prices: Floats, weight: float, right: Floats, result: Floats) -> Floats:
    """Solve ``out = H^-1 (prices + weight right)`` for all outputs; return its sum over them, ``(N,)``."""
    start, row = pattern.start, pattern.row
    n = len(start) - 1
    sums = np.zeros(n)
    weights = spread(weight)
    for g in range(len(result)):
        x, lower, inv, counted = result[g], a.factor[g], a.inverse[g], load(a.mask[g], 0)
        for k in range(n):
            store(x, k, spread(prices[k]) + weights * load(right[g], k))
        for k in range(n):
            value = load(x, k)
            for e in range(start[k], start[k + 1]):
                store(x, row[e], load(x, row[e]) - load(lower, e) * value)
        for k in range(n - 1, -1, -1):
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
    """Add rows ``first`` and later of `PANEL` columns of ``sum U H^-1 U`` over a batch to ``t``.

    ``lower``, ``pivot`` and ``share`` have eight numbers an entry or record, one an output; ``z``, workspace, has
    eight vectors a record.
    """
    n = len(start) - 1
    end = min(n, begin + 16)
    reached = np.zeros(n, np.bool_)
    zero = spread(np.float32(0.0))
    for j in range(begin, end):
        reached[j] = True
    for j in range(begin, n):  # only ancestors of the columns are reached on the way up
        if reached[j]:
            if start[j + 1] > start[j]:
                reached[row[start[j]]] = True
            for lane in range(8):
                store(z, 8 * j + lane, zero)
    for j in range(begin, end):
        for lane in range(8):
            z[(8 * j + lane) * 16 + j - begin] = scales[8 * j + lane]
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
    """Add a batch's inverses, in single precision, to ``into``: ``sum_r H_r^-1 / (scale scale')``.

    ``into`` is ``(panels, N * PANEL)``; only what is at or below the diagonal means anything. Each matrix is
    scaled to a unit diagonal first, so that its factor and its inverse stay in the range of single precision.
    """
    start, row, column = pattern.start, pattern.row, pattern.column
    factor, inverse, unit, mask = a.factor[g], a.inverse[g], a.unit[g], a.mask[g]
    n = len(start) - 1
    lower = np.empty(8 * len(row), np.float32)
    pivot, scales = np.empty(8 * n, np.float32), np.empty(8 * n, np.float32)
    z = np.empty(8 * n * 16, np.float32)
    for e in range(len(row)):
        k, j = 8 * row[e], 8 * column[e]
        for lane in range(8):
            lower[8 * e + lane] = factor[8 * e + lane] * unit[k + lane] / unit[j + lane]
    for j in range(n):
        for lane in range(8):
            u = unit[8 * j + lane]
            pivot[8 * j + lane] = inverse[8 * j + lane] / (u * u)
            part = mask[lane] * u / scale[j]
            scales[8 * j + lane] = part if part > 1e-18 else 0.0  # squares would leave the range
    for q in range(len(into)):
        _add_panel(q * 16, start, row, lower, pivot, scales, z, into[q])
