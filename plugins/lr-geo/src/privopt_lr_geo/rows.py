"""A row of the exact method from public numbers, the same integers on every machine.

Row i is proportional to x_s exp(-min(rate D_is, cap)) over the columns s; each serves one output. With ``rate`` a
little below epsilon, |D_is - D_js| <= d_ij and rows that sum to nearly one before they are brought to 2**63, two rows
differ by less than exp(epsilon d_ij); the certificate proves it of the integers.

Additions, products and divisions of doubles alone (IEEE 754 rounds those correctly) and :func:`math.fsum`: never a
library's exp, whose last bit may depend on the processor.
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
"""Entries that are worked on at once."""

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
    """What the server publishes in the exact method: one number a column.

    Attributes:
        weights: (N,) x, at least 0.
        serves: (N,) output that each column serves.
        outputs: K.
        rate: epsilon (1 - tau) as a double, per unit of distance.
        cap: log-ratios go no further than this.
    """

    weights: Floats
    serves: Ints
    outputs: int
    rate: float
    cap: float

    def rows(self, distances: Floats) -> Unsigned:
        """Return (B, K) integer rows, each of sum 2**63, from (B, N) path distances; infinite ones count as the cap."""
        columns = steady_exp(-np.minimum(distances * self.rate, self.cap)) * self.weights
        z = np.zeros((len(columns), self.outputs))
        if len(np.unique(self.serves)) == len(self.serves):
            z[:, self.serves] = columns
        else:
            for s, k in enumerate(self.serves.tolist()):
                z[:, k] += columns[:, s]
        rows = np.empty(z.shape, dtype=np.uint64)
        for place, row in enumerate(z):
            rows[place] = _whole(row)
        return rows


def _whole(row: Floats) -> Unsigned:
    """Return a row of doubles as integers that sum to 2**63; what rounding leaves goes to the greatest."""
    whole = np.floor(row * (float(TOTAL) / math.fsum(row.tolist()))).astype(np.uint64)
    missing = (TOTAL - int(whole.sum(dtype=np.uint64))) % (1 << 64)
    greatest = int(whole.argmax())
    whole[greatest] = np.uint64((int(whole[greatest]) + missing) % (1 << 64))
    return whole


def whole_matrix(public: ColumnWeights, distances: Callable[[Ints], Floats]) -> Unsigned:
    """Compute every record's row (N, K) as its user would. Memory: 8 N K bytes.

    Args:
        public: what the server publishes.
        distances: gives (B, N) path distances from some records.
    """
    count = len(public.weights)
    whole, every = np.empty((count, public.outputs), dtype=np.uint64), np.arange(count)
    for part in slices(count, max(count, public.outputs), BLOCK):
        whole[part] = public.rows(distances(every[part]))
    return whole
