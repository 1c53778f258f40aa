"""Column weights on a graph: rows that a client computes in integers from one weight per place.

Row i has weight ``X_k T[D_ik]`` for place k. D_ik is the length in steps of the shortest path from i to k in a graph
over the records. T falls by a constant factor at each step: ``T[n + 1] = ceil(T[n] q / 2^64)``. The sum S_i of row i is
not a power of two, so reports are drawn by rejection, with probability exactly ``w_ik / S_i``, where ``w_ik`` is the
weight ``X_k T[D_ik]``. So for i, j and all k

    w_ik S_j / (w_jk S_i) <= (2^64 / q)^D_ij  S_j / S_i,

because D_ik and D_jk differ by at most D_ij. Exact arithmetic certifies that the right side is at most
``exp(epsilon d_ij)`` for each pair that the release's certificate checks. X is chosen such that the sums are as equal
as the graph allows.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import ClassVar, Final

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.numbers.exp_log_bounds import exp_fixed

__all__ = ["Columns", "column_weights"]

STEPS: Final = 1 << 16
"""Largest length of a path, in steps. A client computes T up to the longest path when it opens an artefact."""
EPSILON_SLACK: Final = 1e-6
"""Share of epsilon that the first attempt reserves for rounding T and X. Later attempts reserve more."""
MAX_HALVINGS: Final = 6
"""Number of bisection steps towards a larger share of epsilon, after an attempt with half of epsilon."""
MISS_BITS: Final = 64
"""The entropy for a draw fails with probability at most 2^-MISS_BITS. If it fails, more entropy is drawn."""
MOST_TRIES: Final = 1_000
"""Largest number of blocks for a draw."""
FRACTION_BITS: Final = 256
"""Number of fractional bits in the powers and exponentials that are compared."""


@frozen(kw_only=True, eq=False)
class Columns:
    """A mechanism with column weights, and its graph.

    Attributes:
        kind: Code of the kind of mechanism in the artefact.
        edge_ends: (E, 2) Indices of the places at the two ends of each edge.
        steps: (E,) Lengths of the edges in steps.
        weights: (N,) The weights X_k of the places, as uint32.
        factor: The number q, at most 2^64 - 1. T falls by the factor q / 2^64 at each step.
        top: The first entry of the table, T[0].
        longest: Largest length of a shortest path, in steps.
        block: Bytes of entropy for one attempt at rejection sampling.
        tries: Number of blocks in the entropy for a draw, which is the number of attempts.
        sums: (N,) The sums S_i of the rows, as integers.
        step_counts: (N, N) The lengths D_ik, in steps, of the shortest paths between places.
    """

    kind: ClassVar[int] = 2

    edge_ends: Ints
    steps: Ints
    weights: NDArray[np.uint32]
    factor: int
    top: int
    longest: int
    block: int
    tries: int
    sums: tuple[int, ...]
    step_counts: Ints

    def to_bytes(self) -> bytes:
        """Return the bytes of the mechanism in the artefact, from which the client recomputes T and D."""
        head = struct.pack("<QQIBHI", self.factor, self.top, self.longest, self.block, self.tries, len(self.edge_ends))
        edges = np.concatenate([self.edge_ends[:, 0], self.edge_ends[:, 1], self.steps])
        return head + edges.astype("<u4").tobytes() + self.weights.astype("<u4").tobytes()

    def probabilities(self) -> Floats:
        """Return the probabilities of reports (N, N) as doubles, from which the loss is computed."""
        table = np.array(_falling_table(self.factor, self.top, self.longest), dtype=np.float64)
        probabilities: Floats = table[self.step_counts] * self.weights
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        return probabilities

    def holds(self, pairs: Ints, distances: Floats, epsilon: Fraction) -> bool:
        """Return whether the rows are certified to satisfy metric DP for each pair in both directions.

        The inequality is ``(2^64 / q)^D_ij S_j / S_i <= exp(epsilon d_ij)`` (see the module docstring). It does not
        depend on the output. The direction with the larger sum in the numerator implies the other direction.

        Args:
            pairs: (P, 2) Pairs of records.
            distances: (P,) The distances between the records in each pair.
            epsilon: The exact epsilon per unit of distance.
        """
        # Powers are rounded up and exponentials down, so that an inequality that passes holds exactly.
        ratio = Fraction(1 << 64, self.factor)
        max_powers = _powers_up(ratio, int(self.step_counts[tuple(pairs.T)].max(initial=0)))
        for (i, j), distance in zip(pairs.tolist(), distances.tolist(), strict=True):
            smaller_sum, greater_sum = sorted((self.sums[i], self.sums[j]))
            exponent = epsilon * Fraction(distance)
            # A lower bound on exp(epsilon d). For d = 0 it is exactly 1.
            bound = exp_fixed(exponent, FRACTION_BITS)[0] if exponent else 1 << FRACTION_BITS
            if greater_sum * max_powers[int(self.step_counts[i, j])] > smaller_sum * bound:
                return False
        return True


def column_weights(pairs: Ints, distances: Floats, count: int, epsilon: Fraction) -> Columns | None:
    """Find column weights that satisfy metric DP and fall with the distance nearly as fast as metric DP allows.

    Args:
        pairs: (P, 2) Pairs of records that imply all required pairs.
        distances: (P,) The distances between the records in each pair.
        count: The number of records, N.
        epsilon: The exact epsilon per unit of distance.

    Returns:
        The column weights; None if the pairs do not connect all records, or if no weights can be certified.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    if not len(pairs) or not (distances > 0).all():
        return None
    pairs, distances = _drop_repeated_pairs(pairs, distances)
    tails, heads = pairs.T
    graph = csr_array((distances, (tails, heads)), shape=(count, count))
    # No shortest path is longer than twice the greatest distance from record 0 (triangle inequality), so that none
    # takes more than STEPS steps of the length below.
    radius = float(dijkstra(graph, directed=False, indices=0).max())
    if not math.isfinite(radius):
        return None
    step = 2.0 * radius / STEPS
    # Steps are rounded down: fewer steps mean a smaller ratio between rows, so rounding increases the loss but never
    # epsilon.
    steps = np.floor(distances / step).astype(np.int64)
    # The ends of an edge with 0 steps would have equal rows, and the system of equations for the weights would be
    # singular.
    if not (steps > 0).all():
        return None
    step_graph = csr_array((steps.astype(np.float64), (tails, heads)), shape=(count, count))
    step_counts = np.rint(dijkstra(step_graph, directed=False)).astype(np.int64)

    def at_share(epsilon_share: float) -> Columns | None:
        """Return the weights that use a share of epsilon; None if these weights cannot be certified."""
        columns = _make_columns(float(epsilon) * step * epsilon_share, pairs, steps, step_counts)
        return columns if columns is not None and columns.holds(pairs, distances, epsilon) else None

    best = at_share(1.0 - EPSILON_SLACK)
    if best is not None:
        return best
    # Bisect for a larger share of epsilon whose weights can still be certified.
    lower, upper = 0.5 * (1.0 - EPSILON_SLACK), 1.0
    best = at_share(lower)
    for _ in range(MAX_HALVINGS):
        middle = (lower + upper) / 2
        columns = at_share(middle)
        if columns is None:
            upper = middle
        else:
            lower, best = middle, columns
    return best


def _drop_repeated_pairs(pairs: Ints, distances: Floats) -> tuple[Ints, Floats]:
    """Return pairs (P, 2) and distances (P,) with each pair only once, at its smallest distance.

    Repeated pairs must be removed, because a sparse matrix would add up their entries.
    """
    edge_ends = np.sort(pairs, axis=1)
    order = np.lexsort((distances, edge_ends[:, 1], edge_ends[:, 0]))
    edge_ends = edge_ends[order]
    is_first = np.concatenate([[True], (edge_ends[1:] != edge_ends[:-1]).any(axis=1)])
    return edge_ends[is_first], distances[order][is_first]


def _make_columns(rate: float, pairs: Ints, steps: Ints, step_counts: Ints) -> Columns | None:
    """Return column weights for a given rate, chosen so that the row sums are as equal as possible.

    Equal row sums matter for two reasons: the ratio of two row sums adds to the privacy loss, and a row with a small
    sum rejects many blocks. The caller must check the result for privacy.

    Args:
        rate: How much the logarithm of a weight falls with each step of distance.
        pairs: (E, 2) The edges of the graph.
        steps: (E,) Lengths of the edges in steps.
        step_counts: (N, N) The lengths, in steps, of the shortest paths between records.

    Returns:
        The column weights; None if q does not fit into 64 bits, if a row sums to 0 or to more than fits in a block, or
            if a draw would take too many attempts.
    """
    # The factor q is rounded up: a larger q means a smaller ratio 2^64 / q, which is in privacy's favour.
    factor = math.ceil(Fraction(math.exp(-rate)) * (1 << 64))
    if not 0 < factor < 1 << 64:
        return None
    count, longest = len(step_counts), int(step_counts.max())
    falling = np.exp(-rate * step_counts)  # (N, N) the table T at all D_ik, with T[0] = 1
    # Weights X with `falling` X = 1 make all sums equal. Negative ones are replaced by 0. If the matrix is singular or
    # nothing is left, all weights are equal.
    try:
        solved = np.linalg.solve(falling, np.ones(count))
    except np.linalg.LinAlgError:
        solved = np.ones(count)
    solved = np.maximum(solved, 0.0)
    if not np.isfinite(solved).all() or not solved.max() > 0:
        solved = np.ones(count)
    weights = np.rint(solved / solved.max() * (2.0**32 - 1)).astype(np.uint32)
    top = 1 << 63
    greatest = max(_row_sums(_falling_table(factor, top, longest), weights, step_counts))
    # T is scaled down so that the greatest sum nearly fills a whole number of bytes. Then few blocks are rejected.
    block = (greatest.bit_length() - 1) // 8
    # The new T[0] is 2^63 2^(8 block) / greatest, reduced by the factor 1 - 2^-20 because T is rounded up and must
    # still fit. The check below is exact.
    top = (top * (1 << 8 * block) * ((1 << 20) - 1)) // (greatest << 20)
    sums = _row_sums(_falling_table(factor, top, longest), weights, step_counts)
    if max(sums) > 1 << 8 * block or min(sums) == 0:
        return None
    # The probability that a block is rejected in the row with the smallest sum, where it is largest. `tries` is the
    # smallest number with missed^tries <= 2^-MISS_BITS. The bound 1e-9 avoids the logarithm of 0.
    missed = 1.0 - min(sums) / (1 << 8 * block)
    tries = max(1, math.ceil(-MISS_BITS * math.log(2) / math.log(max(missed, 1e-9))))
    if tries > MOST_TRIES:
        return None
    return Columns(
        edge_ends=pairs,
        steps=steps,
        weights=weights,
        factor=factor,
        top=top,
        longest=longest,
        block=block,
        tries=tries,
        sums=tuple(sums),
        step_counts=step_counts,
    )


def _falling_table(factor: int, top: int, longest: int) -> list[int]:
    """Return the table T, as every client computes it.

    Args:
        factor: The factor q in T[n + 1] = ceil(T[n] q / 2^64).
        top: The first entry T[0].
        longest: Index of the last entry.
    """
    table = [top]
    for _ in range(longest):
        # Negating twice rounds up, because >> rounds down.
        table.append(-(-table[-1] * factor >> 64))
    return table


def _row_sums(table: list[int], weights: NDArray[np.uint32], step_counts: Ints) -> list[int]:
    """Return the exact sum S_i of each row, whose weights are X_k T[D_ik].

    The entries of T are split into parts of 16 bits (limbs), so that no partial sum overflows 64 bits.

    Args:
        table: The table T, integers below 2^64.
        weights: (N,) the weights X.
        step_counts: (N, N) the lengths D of shortest paths, in steps.
    """
    sums = [0] * len(step_counts)
    # A product of 16 and 32 bits leaves 16 of the 64 bits free, so that sums over up to 65,536 places fit.
    wide_weights = weights.astype(np.uint64)
    for limb in range(4):
        part = np.array([entry >> 16 * limb & 0xFFFF for entry in table], dtype=np.uint64)
        for row, line in enumerate(step_counts):
            sums[row] += int((part[line] * wide_weights).sum()) << 16 * limb
    return sums


def _powers_up(ratio: Fraction, max_power: int) -> list[int]:
    """Return upper bounds on ratio^n times 2^FRACTION_BITS, for n from 0 to ``max_power``."""
    powers = [1 << FRACTION_BITS]
    for _ in range(max_power):
        # Negating twice rounds up, because // rounds down.
        powers.append(-(-powers[-1] * ratio.numerator // ratio.denominator))
    return powers
