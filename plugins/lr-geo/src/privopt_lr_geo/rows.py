"""The rows of the exact method, computed from published numbers with the same integer results on every machine.

There is one column s for each record, with a weight x_s. Before columns are merged, entry s of row i is proportional to
x_s exp(-min(rate D_is, cap)), where D_is is the path distance between records i and s. Each column is then assigned to
an output, which receives the column's probability. The column is said to serve this output.

The guarantee follows from three properties. The ``rate`` is slightly below epsilon, |D_is - D_js| is at most the
distance d_ij between records i and j, and rows sum to nearly one before they are scaled to 2**63. Corresponding entries
of rows i and j therefore differ by a factor below exp(epsilon d_ij). The certificate proves this for the integers.

The code uses only :func:`math.fsum` and additions, products and divisions of doubles, which IEEE 754 rounds correctly.
It avoids library functions for exp, whose last bit may depend on the processor.
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
"""The number of matrix entries processed per batch."""

_LN2_HEAD: Final = 6.93147180369123816490e-01
"""The leading 32 bits of ln 2, whose product with an integer below 2**20 is exact."""
_LN2_TAIL: Final = 1.90821492927058770002e-10
"""ln 2 minus `_LN2_HEAD`."""
_TERMS: Final = tuple(1.0 / math.factorial(n) for n in range(14, -1, -1))
"""The coefficients of the degree-14 Taylor polynomial of exp, from the highest power down."""


MAX_EXPONENT: Final = 700.0
"""The largest absolute value of an argument for which :func:`steady_exp` is accurate."""


def capped_products(distances: Floats, rate: float, cap: float) -> Floats:
    """Return ``min(distances * rate, cap)`` element-wise. A product that overflows counts as infinite."""
    with np.errstate(over="ignore"):
        return np.minimum(distances * rate, cap)


def steady_exp(x: Floats) -> Floats:
    """Return exp(x) for -700 <= x <= 0 with a relative error of at most 1e-15, identically on every machine.

    Only correctly rounded operations are used, so the result does not depend on the processor or on a library.
    """
    # Cody-Waite argument reduction: x = n ln 2 + r, with |r| at most about ln 2 / 2. The product with the head of ln 2
    # is exact. The constant is 1 / ln 2.
    n = np.rint(x * 1.4426950408889634)
    r = (x - n * _LN2_HEAD) - n * _LN2_TAIL
    # The Taylor polynomial is evaluated by Horner's rule. Its truncation error is below 1e-18 for such r.
    total = np.full_like(r, _TERMS[0])
    for term in _TERMS[1:]:
        total *= r
        total += term
    return np.asarray(np.ldexp(total, n.astype(np.int32)))


@frozen(kw_only=True, eq=False)
class ColumnWeights:
    """The column weights published by the exact method, from which users compute their rows.

    Attributes:
        weights: (N,) The non-negative weight x of each column.
        serves: (N,) The index of the output that receives each column's probability.
        outputs: The number of outputs, K.
        rate: The rate per unit of distance at which probabilities decrease. It is slightly below epsilon for the star
            mechanism, and may be smaller for other weights.
        cap: The value at which the product of rate and distance is capped.
    """

    weights: Floats
    serves: Ints
    outputs: int
    rate: float
    cap: float

    def rows(self, distances: Floats) -> Unsigned:
        """Compute the integer weights of the rows of B records. Each row sums to 2**63.

        Args:
            distances: (B, N) The path distances from the B records to all records, which may be infinite.

        Returns:
            An array of shape (B, K).
        """
        columns = steady_exp(-capped_products(distances, self.rate, self.cap)) * self.weights
        z = np.zeros((len(columns), self.outputs))
        # Columns that serve the same output are added in a fixed order. A sum of doubles depends on the order, and
        # every machine must get the same sum.
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
    """Scale a row of doubles to integers that sum to 2**63.

    Entries are rounded down, and the largest entry absorbs the remainder.

    Args:
        row: (K,) The row to scale.
    """
    rounded = np.floor(row * (float(TOTAL) / math.fsum(row.tolist()))).astype(np.uint64)
    # The products may have been rounded up, so the sum can exceed 2**63. In this case, arithmetic modulo 2**64
    # subtracts the excess from the largest entry.
    missing = (TOTAL - int(rounded.sum(dtype=np.uint64))) % (1 << 64)
    greatest = int(rounded.argmax())
    rounded[greatest] = np.uint64((int(rounded[greatest]) + missing) % (1 << 64))
    return rounded


def whole_matrix(public: ColumnWeights, distances: Callable[[Ints], Floats]) -> Unsigned:
    """Compute the rows for all records, exactly as users do from the published weights.

    Args:
        public: The published column weights.
        distances: A function that takes B record indices and returns their (B, N) path distances to all records.

    Returns:
        An array of shape (N, K).
    """
    count = len(public.weights)
    rows, records = np.empty((count, public.outputs), dtype=np.uint64), np.arange(count)
    for part in slices(count, max(count, public.outputs), BLOCK):
        rows[part] = public.rows(distances(records[part]))
    return rows
