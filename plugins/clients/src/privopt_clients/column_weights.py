"""Column weights on a graph: a compact mechanism that stores one weight per place instead of full rows.

Clients compute the rows in integers. In row i, place k has weight ``w_ik = X_k T[D_ik]``, where D_ik is the length, in
steps, of the shortest path from i to k in a graph of the records. T decreases by a constant factor per step:
``T[n + 1] = ceil(T[n] q / 2^64)``. The sum S_i of row i is not a power of two, so reports are drawn by rejection
sampling, with the exact probabilities ``w_ik / S_i``. For any records i and j and any place k,

    w_ik S_j / (w_jk S_i) <= (2^64 / q)^D_ij  S_j / S_i,

because D_ik and D_jk differ by at most D_ij. Exact arithmetic certifies that the right-hand side is at most
``exp(epsilon d_ij)`` for each pair that the release's certificate checks. X is chosen to make the row sums as equal as
the graph allows.
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
"""The maximum path length, in steps.

When opening an artefact, clients compute T up to the length of the longest path.
"""
EPSILON_SLACK: Final = 1e-6
"""The share of epsilon reserved for rounding T and X in the first attempt. Later attempts reserve more."""
MAX_HALVINGS: Final = 6
"""The number of bisection steps in the search for the largest usable share of epsilon above one half."""
MISS_BITS: Final = 64
"""The negative binary logarithm of the maximum probability that a draw rejects all of its blocks.

Such a draw is repeated with new entropy.
"""
MOST_TRIES: Final = 1_000
"""The maximum number of blocks per draw."""
FRACTION_BITS: Final = 256
"""The number of fractional bits of the powers and exponentials compared during certification."""


@frozen(kw_only=True, eq=False)
class Columns:
    """A mechanism with column weights on a graph of N places, each of which is both a record and an output.

    In row i, place k has weight X_k T[D_ik]. Here X_k is a weight per place, D_ik is the length, in steps, of the
    shortest path from i to k, and T is a table that decreases by a constant factor per step.

    Attributes:
        kind: The code that identifies this kind of mechanism in the artefact.
        edge_ends: (E, 2) The indices of the places at the two ends of each edge.
        steps: (E,) The length of each edge, in steps.
        weights: (N,) The weight X_k of each place, as uint32.
        factor: The integer q, at most 2^64 - 1. T decreases by the factor q / 2^64 per step.
        top: The first entry T[0] of the table.
        longest: The greatest length of any shortest path, in steps.
        block: The number of bytes in a block of entropy. Each block is one attempt at rejection sampling.
        tries: The number of blocks (i.e. attempts) per draw.
        sums: (N,) The sum S_i of each row, as exact integers.
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
        """Serialise the graph and the weights, from which clients can recompute the table T and the distances D."""
        head = struct.pack("<QQIBHI", self.factor, self.top, self.longest, self.block, self.tries, len(self.edge_ends))
        edges = np.concatenate([self.edge_ends[:, 0], self.edge_ends[:, 1], self.steps])
        return head + edges.astype("<u4").tobytes() + self.weights.astype("<u4").tobytes()

    def probabilities(self) -> Floats:
        """Return an (N, N) array of doubles with the probability of each report (column) for each record (row)."""
        table = np.array(_falling_table(self.factor, self.top, self.longest), dtype=np.float64)
        probabilities: Floats = table[self.step_counts] * self.weights
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        return probabilities

    def holds(self, pairs: Ints, distances: Floats, epsilon: Fraction) -> bool:
        """Return whether exact arithmetic proves that the rows satisfy metric DP for all given pairs.

        The inequality to prove is ``(2^64 / q)^D_ij S_j / S_i <= exp(epsilon d_ij)`` (see the module docstring). It is
        the same for all outputs. For each pair, only the direction with the larger row sum in the numerator is checked,
        because it implies the other direction.

        Args:
            pairs: (P, 2) The pairs of records.
            distances: (P,) The distance between the records of each pair.
            epsilon: The exact epsilon per unit of distance.
        """
        # Powers are rounded up and exponentials down, so that every inequality that passes is true.
        ratio = Fraction(1 << 64, self.factor)
        max_powers = _powers_up(ratio, int(self.step_counts[tuple(pairs.T)].max(initial=0)))
        for (i, j), distance in zip(pairs.tolist(), distances.tolist(), strict=True):
            smaller_sum, greater_sum = sorted((self.sums[i], self.sums[j]))
            exponent = epsilon * Fraction(distance)
            # A lower bound on exp(epsilon d), which is exactly 1 for d = 0.
            bound = exp_fixed(exponent, FRACTION_BITS)[0] if exponent else 1 << FRACTION_BITS
            if greater_sum * max_powers[int(self.step_counts[i, j])] > smaller_sum * bound:
                return False
        return True


def column_weights(pairs: Ints, distances: Floats, count: int, epsilon: Fraction) -> Columns | None:
    """Return certified column weights that decrease with distance almost as fast as metric DP allows.

    Args:
        pairs: (P, 2) Pairs of records whose constraints imply those of all required pairs.
        distances: (P,) The distance between the records of each pair.
        count: The number N of records.
        epsilon: The exact epsilon per unit of distance.

    Returns:
        The column weights. None if there are no pairs, the pairs do not connect all records, a distance is 0 or shorter
        than one step, or no weights can be certified.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    if not len(pairs) or not (distances > 0).all():
        return None
    pairs, distances = _drop_repeated_pairs(pairs, distances)
    tails, heads = pairs.T
    graph = csr_array((distances, (tails, heads)), shape=(count, count))
    # By the triangle inequality, no shortest path is longer than twice the largest distance from record 0. With steps
    # of the length below, none therefore takes more than STEPS steps.
    radius = float(dijkstra(graph, directed=False, indices=0).max())
    if not math.isfinite(radius):
        return None
    step = 2.0 * radius / STEPS
    # Steps are rounded down. Fewer steps mean a smaller ratio between rows, so rounding can increase the loss but not
    # epsilon.
    steps = np.floor(distances / step).astype(np.int64)
    # With 0 steps, the two ends of an edge would have equal rows, and the linear system for the weights would be
    # singular.
    if not (steps > 0).all():
        return None
    step_graph = csr_array((steps.astype(np.float64), (tails, heads)), shape=(count, count))
    step_counts = np.rint(dijkstra(step_graph, directed=False)).astype(np.int64)

    def at_share(epsilon_share: float) -> Columns | None:
        """Return column weights that use the given share of epsilon, or None if they cannot be certified."""
        columns = _make_columns(float(epsilon) * step * epsilon_share, pairs, steps, step_counts)
        return columns if columns is not None and columns.holds(pairs, distances, epsilon) else None

    best = at_share(1.0 - EPSILON_SLACK)
    if best is not None:
        return best
    # Find a large share of epsilon whose weights can be certified, by bisection.
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
    """Return the pairs and their distances, listing each unordered pair only once with its smallest distance.

    Repeated pairs must be dropped because a sparse matrix would add up their entries.

    Args:
        pairs: (P, 2) The pairs of records.
        distances: (P,) The distance between the records of each pair.
    """
    edge_ends = np.sort(pairs, axis=1)
    order = np.lexsort((distances, edge_ends[:, 1], edge_ends[:, 0]))
    edge_ends = edge_ends[order]
    is_first = np.concatenate([[True], (edge_ends[1:] != edge_ends[:-1]).any(axis=1)])
    return edge_ends[is_first], distances[order][is_first]


def _make_columns(rate: float, pairs: Ints, steps: Ints, step_counts: Ints) -> Columns | None:
    """Return column weights for a given rate, with row sums that are as equal as possible.

    Equal row sums matter for two reasons: the ratio of two row sums adds to the privacy loss, and draws from a row with
    a small sum are often rejected. The result is not yet certified, so the caller must check it with
    :meth:`Columns.holds`.

    Args:
        rate: The amount by which the logarithm of a weight decreases per step.
        pairs: (E, 2) The edges of the graph.
        steps: (E,) The length of each edge, in steps.
        step_counts: (N, N) The lengths, in steps, of the shortest paths between records.

    Returns:
        The column weights. None if q does not fit in 64 bits, a row's sum is 0 or exceeds the range of a block, or a
        draw would need too many attempts.
    """
    # q is rounded up, because a larger q makes the ratio 2^64 / q smaller, which favours privacy.
    factor = math.ceil(Fraction(math.exp(-rate)) * (1 << 64))
    if not 0 < factor < 1 << 64:
        return None
    count, longest = len(step_counts), int(step_counts.max())
    falling = np.exp(-rate * step_counts)  # (N, N) the values T[D_ik] relative to T[0]
    # Solving `falling` X = 1 makes all sums equal. Negative weights are replaced by 0. If the matrix is singular or no
    # positive weight is left, all weights are set to 1.
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
    # T is scaled so that the largest sum almost fills a whole number of bytes, and few blocks are rejected.
    block = (greatest.bit_length() - 1) // 8
    # The new T[0] is 2^63 2^(8 block) / greatest. It is reduced by the factor 1 - 2^-20 to leave room for rounding up
    # T. Whether the sums fit is then checked exactly.
    top = (top * (1 << 8 * block) * ((1 << 20) - 1)) // (greatest << 20)
    sums = _row_sums(_falling_table(factor, top, longest), weights, step_counts)
    if max(sums) > 1 << 8 * block or min(sums) == 0:
        return None
    # The probability that a block is rejected in the row with the smallest sum, where it is largest. `tries` is the
    # smallest number with missed^tries <= 2^-MISS_BITS. The lower limit 1e-9 avoids taking the logarithm of 0.
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
    """Return the table T, computed with the same exact integer arithmetic that clients use.

    Args:
        factor: The integer q in the recurrence T[n + 1] = ceil(T[n] q / 2^64).
        top: The first entry T[0].
        longest: The index of the last entry.
    """
    table = [top]
    for _ in range(longest):
        # Negating twice rounds up, because >> rounds down.
        table.append(-(-table[-1] * factor >> 64))
    return table


def _row_sums(table: list[int], weights: NDArray[np.uint32], step_counts: Ints) -> list[int]:
    """Return the exact sum S_i of each row, i.e. the sum of X_k T[D_ik] over all places k.

    The entries of T are split into limbs of 16 bits, so that no partial sum overflows 64 bits.

    Args:
        table: The table T, whose entries are integers below 2^64.
        weights: (N,) The weights X.
        step_counts: (N, N) The lengths D of the shortest paths, in steps.
    """
    sums = [0] * len(step_counts)
    # The product of a 16-bit and a 32-bit number leaves 16 of 64 bits free, enough for sums over 65,536 places.
    wide_weights = weights.astype(np.uint64)
    for limb in range(4):
        part = np.array([entry >> 16 * limb & 0xFFFF for entry in table], dtype=np.uint64)
        for row, line in enumerate(step_counts):
            sums[row] += int((part[line] * wide_weights).sum()) << 16 * limb
    return sums


def _powers_up(ratio: Fraction, max_power: int) -> list[int]:
    """Return upper bounds on ``ratio**n`` for n from 0 to ``max_power``, as integers in units of 2^-FRACTION_BITS."""
    powers = [1 << FRACTION_BITS]
    for _ in range(max_power):
        # Negating twice rounds up, because // rounds down.
        powers.append(-(-powers[-1] * ratio.numerator // ratio.denominator))
    return powers
