"""Rows of method exact from public numbers, with the same integers on every machine.

Row i is proportional to x_s exp(-min(rate D_is, cap)) over the columns s, each of which serves one output. ``rate`` is
a little below epsilon, |D_is - D_js| <= d_ij, and rows sum to nearly one before they are scaled to 2**63. So two rows
differ by less than exp(epsilon d_ij). The certificate proves that for the integers.

The code uses only additions, products and divisions of doubles, which IEEE 754 rounds correctly, and :func:`math.fsum`.
It never uses a library's exp, whose last bit may depend on the processor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints, Unsigned, slices
from privopt.numbers.sampling import TOTAL

__all__ = ["BLOCK", "ColumnWeights", "steady_exp", "whole_matrix"]

BLOCK: Final = 1 << 22
"""Entries that are processed at once."""

_LN2_HEAD: Final = 6.93147180369123816490e-01
"""ln 2 to 32 bits, so that its product with a whole number below 2**20 is exact."""
_LN2_TAIL: Final = 1.90821492927058770002e-10
_TERMS: Final = tuple(1.0 / math.factorial(n) for n in range(14, -1, -1))


def steady_exp(x: Floats) -> Floats:
    """Return exp(x) for -700 <= x <= 0, to a relative 1e-15, by correctly rounded operations only."""
    n = np.rint(x * 1.4426950408889634)
    r = (x - n * _LN2_HEAD) - n * _LN2_TAIL
    total = np.full_like(r, _TERMS[0])
    for term in _TERMS[1:]:
        total *= r
        total += term
    return np.asarray(np.ldexp(total, n.astype(np.int32)))


@frozen(kw_only=True, eq=False)
class ColumnWeights:
    """One number for each column, which the server publishes in method exact.

    Attributes:
        weights: (N,) x, at least 0.
        serves: (N,) the output that each column serves.
        outputs: K.
        rate: epsilon (1 - tau) as a double, per unit of distance.
        cap: Largest log-ratio.
    """

    weights: Floats
    serves: Ints
    outputs: int
    rate: float
    cap: float

    def rows(self, distances: Floats) -> Unsigned:
        """Return (B, K) integer rows, each with sum 2**63, from (B, N) path distances, which may be infinite."""
        columns = steady_exp(-np.minimum(distances * self.rate, self.cap)) * self.weights
        z = np.zeros((len(columns), self.outputs))
        if len(np.unique(self.serves)) == len(self.serves):
            z[:, self.serves] = columns
        else:
            for s, k in enumerate(self.serves.tolist()):
                z[:, k] += columns[:, s]
        rows = np.empty(z.shape, dtype=np.uint64)
        for number, row in enumerate(z):
            rows[number] = _round_row(row)
        return rows


def _round_row(row: Floats) -> Unsigned:
    """Round a row of doubles down to integers, and give the rest of 2**63 to the largest one."""
    rounded = np.floor(row * (float(TOTAL) / math.fsum(row.tolist()))).astype(np.uint64)
    missing = (TOTAL - int(rounded.sum(dtype=np.uint64))) % (1 << 64)
    greatest = int(rounded.argmax())
    rounded[greatest] = np.uint64((int(rounded[greatest]) + missing) % (1 << 64))
    return rounded


def whole_matrix(public: ColumnWeights, distances: Callable[[Ints], Floats]) -> Unsigned:
    """Compute every record's row (N, K) as its user would. The result takes 8 N K bytes.

    Args:
        public: The published numbers.
        distances: Function that returns (B, N) path distances from some records.
    """
    count = len(public.weights)
    rows, records = np.empty((count, public.outputs), dtype=np.uint64), np.arange(count)
    for part in slices(count, max(count, public.outputs), BLOCK):
        rows[part] = public.rows(distances(records[part]))
    return rows
