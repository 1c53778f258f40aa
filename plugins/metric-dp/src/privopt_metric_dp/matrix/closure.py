"""Compiled kernels used by the repair to compute the max-times closure of a matrix under its privacy constraints.

The closure of a matrix z is the smallest matrix that is at least z in every entry and satisfies ``z_ik >= f_ij z_jk``
in both directions for each required pair (i, j). Here f_ij = exp(-eps' d_ij), where d_ij is the distance of the pair,
and eps' = (1 - tau) eps leaves a small slack tau for rounding errors. The closure always exists. Its entry (i, k) is
max_j exp(-eps' D_ij) z_jk, where D_ij is the length of a shortest path along pairs from i to j. The closure is computed
by sweeping over the pairs. Two or three sweeps suffice if the distances form a metric; sparse graphs need more.
"""

from __future__ import annotations

import numpy as np

from privopt.arrays import Floats, Ints
from privopt.errors import CertificationError
from privopt.execution.clock import check
from privopt.execution.compiled import jit
from privopt.execution.resources import in_threads
from privopt.numbers.graphs import components, neighbours

__all__ = ["Graph", "close_matrix", "lower_rows"]


#: Number of pairs times outputs below which starting a thread takes more time than it saves.
MIN_WORK_PER_THREAD = 10_000_000
_BLOCK_COLUMNS = 64


class Graph:
    """The graph of required pairs, stored as neighbour lists in CSR form.

    Attributes:
        first, second: Arrays of shape (P,) with the indices of the two records of each pair.
        exponents: Array of shape (P,) with epsilon times the distance of each pair, as positive doubles.
        indptr: Array of shape (N + 1,) with the offset in ``indices`` at which each record's neighbours begin.
        indices: Array of shape (2 P,) with the concatenated neighbour lists of all records.
        edges: Array of shape (2 P,) with the index of the pair for each entry of ``indices``.
        labels: Array of shape (N,) with the index of each record's connected component.
        components: The number of components.
    """

    def __init__(self, pairs: Ints, exponents: Floats, records: int) -> None:
        """Build the graph.

        Args:
            pairs: Array of shape (P, 2) with the record indices of distinct required pairs.
            exponents: Array of shape (P,) with epsilon times the distance of each pair.
            records: N, the number of records.
        """
        self.first, self.second = (np.ascontiguousarray(pairs[:, end]) for end in (0, 1))
        self.exponents = exponents
        self.indptr, self.indices, self.edges = neighbours(records, pairs)
        self.labels = components(records, pairs)
        self.components = int(self.labels.max(initial=-1)) + 1


@jit()
def _gather_maxima(maxima, z, rows, factors, count):  # type: ignore[no-untyped-def]
    """For each k, set maxima[k] to the maximum of 0 and the products factors[s] z[rows[s], k] over all s < ``count``.

    Args:
        maxima: Array of shape (K,) that receives the maxima.
        z: The matrix, as an array of shape (N, K).
        rows, factors: The indices of rows in ``z`` and the factor for each of these rows.
        count: The number of elements of ``rows`` and ``factors`` to use.
    """
    # Four rows are processed at a time, so that an entry of ``maxima`` is loaded and stored once per four products.
    maxima[:] = 0.0
    full = count - count % 4
    for s in range(0, full, 4):
        a, b, c, d = rows[s], rows[s + 1], rows[s + 2], rows[s + 3]
        fa, fb, fc, fd = factors[s], factors[s + 1], factors[s + 2], factors[s + 3]
        for k in range(maxima.size):
            u, v, w, x = fa * z[a, k], fb * z[b, k], fc * z[c, k], fd * z[d, k]
            u = u if u > v else v
            w = w if w > x else x
            u = u if u > w else w
            maxima[k] = u if u > maxima[k] else maxima[k]
    for s in range(full, count):
        a, fa = rows[s], factors[s]
        for k in range(maxima.size):
            u = fa * z[a, k]
            maxima[k] = u if u > maxima[k] else maxima[k]


@jit()
def _sweep_until_closed(block, indptr, indices, factors, is_integer, max_sweeps):  # type: ignore[no-untyped-def]
    """Raise the entries in a block of columns as far as the privacy constraints require, sweeping over all rows.

    A row is updated only from neighbouring rows that have risen since it was last visited.

    Args:
        block: Array of shape (N, B) with the entries, modified in place.
        indptr, indices: The neighbours of each record in CSR form, as in :class:`Graph`.
        factors: Array of shape (2 P,) with the factor ``exp(-eps' d)`` for each neighbour. A row must be at least this
            factor times the neighbour's row.
        is_integer: Whether to round raised entries up to integers.
        max_sweeps: The maximum number of sweeps.

    Returns:
        Whether the entries stopped rising, up to rounding errors, within ``max_sweeps`` sweeps.
    """
    # A relative rise below 2**-50 counts as a rounding error, which the slack tau covers, and is not passed on to
    # neighbours.
    n, width = block.shape
    maxima = np.empty(width)
    rows, scales = np.empty(n, dtype=np.int64), np.empty(n)
    rose_before = np.ones(n, dtype=np.bool_)
    for sweep in range(max_sweeps):
        rose_now = np.zeros(n, dtype=np.bool_)
        any_raised = False
        for step in range(n):
            # Sweeps alternate in direction, so that a rise can pass along a whole path of ascending or descending
            # record indices within two sweeps.
            j = step if sweep % 2 == 0 else n - 1 - step
            count = 0
            for e in range(indptr[j], indptr[j + 1]):
                if rose_before[indices[e]] or rose_now[indices[e]]:
                    rows[count], scales[count] = indices[e], factors[e]
                    count += 1
            if count == 0:
                continue
            _gather_maxima(maxima, block, rows, scales, count)
            raised = 0
            for k in range(width):
                value = np.ceil(maxima[k]) if is_integer else maxima[k]
                if value > block[j, k]:
                    # The factor is 1 + 4 x 2**-52. A smaller rise is stored but not passed on.
                    raised += value > block[j, k] * 1.0000000000000009
                    block[j, k] = value
            if raised > 0:
                rose_now[j] = True
                any_raised = True
        if not any_raised:
            return True
        rose_before = rose_now
    return False


def close_matrix(z: Floats, graph: Graph, shrink: float, *, is_integer: bool) -> None:
    """Replace a matrix by its closure under the privacy constraints at epsilon (1 - shrink).

    The closure is the smallest matrix that is at least z in every entry and satisfies the constraints
    ``z_ik >= exp(-(1 - shrink) eps d) z_jk`` in both directions for each required pair.

    Args:
        z: Array of shape (N, K) with finite, non-negative entries, modified in place.
        graph: The required pairs.
        shrink: The slack tau as a fraction of epsilon, with 0 <= tau < 1.
        is_integer: Whether to round every raised entry up to an integer, so that an integer matrix remains one.

    Raises:
        CertificationError: The sweeps did not converge, which cannot happen with finite input.
        OutOfTime: The time limit has expired.
    """
    if not len(graph.first):
        return
    # Factors are rounded up by more than the error of exp, because the closure may be too high but never too low.
    factors = np.minimum(np.exp(-(1.0 - shrink) * graph.exponents) * (1.0 + 2.0**-51), 1.0)[graph.edges]

    def fill(first_block: int, end_block: int) -> None:
        """Close the column blocks ``first_block`` to ``end_block - 1``. Blocks are independent of each other."""
        for block_number in range(first_block, end_block):
            check()
            columns = slice(block_number * _BLOCK_COLUMNS, (block_number + 1) * _BLOCK_COLUMNS)
            block = np.array(z[:, columns], order="C")
            # A simple path has fewer edges than there are records, so this limit exceeds the number of sweeps that a
            # rise needs to pass along any path.
            if not _sweep_until_closed(block, graph.indptr, graph.indices, factors, is_integer, 2 * len(block) + 64):
                raise CertificationError("the closure under the privacy rows did not settle; weights are not finite")
            z[:, columns] = block

    # If there is little work, the minimum span exceeds the number of blocks, so that no thread is started.
    blocks = -(-z.shape[1] // _BLOCK_COLUMNS)
    in_threads(fill, blocks, min_span=2 if len(graph.first) * z.shape[1] > MIN_WORK_PER_THREAD else blocks + 1)


@jit()
def _lower_rows(z, excess, cost, indptr, indices, factors):  # type: ignore[no-untyped-def]
    """Subtract each row's excess from its entries without violating the bounds imposed by neighbouring rows.

    The most expensive entries of a row are lowered first, each as far as its bound allows, until the excess is used up.

    Args:
        z: Array of shape (N, K) with the closed matrix, modified in place.
        excess: Array of shape (N,) with the amount to subtract from each row. Rows without a positive excess do not
            change.
        cost: Array of shape (N, K) with the cost of each entry, which determines the order within a row.
        indptr, indices: The neighbours of each record in CSR form, as in :class:`Graph`.
        factors: Array of shape (2 P,) with the factor ``exp(-eps' d)`` for each neighbour. A row must be at least this
            factor times the neighbour's row.
    """
    n, width = z.shape
    lower_bounds = np.empty(width)
    for j in range(n):
        remaining_excess = excess[j]
        if remaining_excess <= 0.0:
            continue
        span = slice(indptr[j], indptr[j + 1])
        _gather_maxima(lower_bounds, z, indices[span], factors[span], indptr[j + 1] - indptr[j])
        # Negating the costs puts the most expensive entries first.
        for k in np.argsort(-cost[j]):
            slack = z[j, k] - lower_bounds[k]
            if slack >= remaining_excess:
                z[j, k] = max(lower_bounds[k], z[j, k] - remaining_excess)
                break
            if slack > 0.0:
                z[j, k] = lower_bounds[k]
                remaining_excess -= slack


def lower_rows(z: Floats, excess: Floats, cost: Floats, graph: Graph, shrink: float) -> None:
    """Lower row sums as far as the privacy constraints at epsilon (1 - shrink) allow.

    The most expensive entries of a row are lowered first.

    The matrix remains closed: no entry falls below the bounds imposed by neighbouring rows, and lowering an entry only
    relaxes the bounds on those rows.

    Args:
        z: Array of shape (N, K) with the closed matrix, modified in place.
        excess: Array of shape (N,) with the amount by which each row's sum should fall. Rows without a positive excess
            do not change.
        cost: Array of shape (N, K) with the cost of each entry.
        graph: The required pairs.
        shrink: The slack tau as a fraction of epsilon, with 0 <= tau < 1.
    """
    # As in `close_matrix`, factors are rounded up, so that no entry is lowered too far.
    factors = np.minimum(np.exp(-(1.0 - shrink) * graph.exponents) * (1.0 + 2.0**-51), 1.0)[graph.edges]
    _lower_rows(z, excess, cost, graph.indptr, graph.indices, factors)
