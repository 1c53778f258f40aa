"""Column weights on a graph: rows that a client computes by whole numbers, from one weight a place.

Row i has weight ``X_k T[D_ik]`` for place k, where D counts steps along the shortest path of a graph over the records,
and T falls by the same factor at each step: ``T[n + 1] = ceil(T[n] q / 2^64)``. Rows do not sum to a power of two: a
report is drawn by rejection, with probability ``w_ik / S_i`` exactly, S_i the sum of row i. So for i, j and all k

    w_ik S_j / (w_jk S_i) <= (2^64 / q)^D_ij  S_j / S_i,

for D_ik and D_jk differ by D_ij at most. That the right side is at most ``exp(epsilon d_ij)`` is certified for each
pair that the release's certificate checks, in exact arithmetic; X is chosen so that the sums are nearly equal, if the
graph allows it.
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
"""The greatest number of steps of a path: a client computes T up to it when it opens an artefact."""
EPSILON_SLACK: Final = 1e-6
"""Share of epsilon that is first reserved for the roundings of T and X; if it is not enough, more is reserved."""
MAX_HALVINGS: Final = 6
"""Number of bisection steps towards a greater share of epsilon, after half of it was tried."""
MISS_BITS: Final = 64
"""The entropy of one draw gives no report with probability at most 2^-MISS_BITS; then more entropy is drawn."""
MOST_TRIES: Final = 1_000
"""The greatest number of blocks of a draw."""
FRACTION_BITS: Final = 256
"""Number of bits after the point in the powers and exponentials that are compared."""


@frozen(kw_only=True, eq=False)
class Columns:
    """Column weights and the graph.

    Attributes:
        kind: The kind of mechanism in the artefact.
        edge_ends: (E, 2) The places that each edge joins.
        steps: (E,) The length of each edge.
        weights: (N,) uint32, X.
        factor: q, at most 2^64 - 1.
        top: T[0].
        longest: The number of steps of the longest shortest path.
        block: The number of bytes of one try.
        tries: The number of blocks of one draw.
        sums: (N,) S, whole numbers.
        step_counts: (N, N) D.
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
        """Return the artefact's part."""
        head = struct.pack("<QQIBHI", self.factor, self.top, self.longest, self.block, self.tries, len(self.edge_ends))
        edges = np.concatenate([self.edge_ends[:, 0], self.edge_ends[:, 1], self.steps])
        return head + edges.astype("<u4").tobytes() + self.weights.astype("<u4").tobytes()

    def probabilities(self) -> Floats:
        """Return the (N, N) probabilities of reports in doubles, for the loss."""
        table = np.array(_falling_table(self.factor, self.top, self.longest), dtype=np.float64)
        probabilities: Floats = table[self.step_counts] * self.weights
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        return probabilities

    def holds(self, pairs: Ints, distances: Floats, epsilon: Fraction) -> bool:
        """Check the certificate's inequality exactly for pairs (P, 2) of records at distances (P,), both ways."""
        # Powers are rounded up and exponentials down, so that an inequality that passes holds exactly.
        ratio = Fraction(1 << 64, self.factor)
        max_powers = _powers_up(ratio, int(self.step_counts[tuple(pairs.T)].max(initial=0)))
        for (i, j), distance in zip(pairs.tolist(), distances.tolist(), strict=True):
            smaller_sum, greater_sum = sorted((self.sums[i], self.sums[j]))
            exponent = epsilon * Fraction(distance)
            bound = exp_fixed(exponent, FRACTION_BITS)[0] if exponent else 1 << FRACTION_BITS
            if greater_sum * max_powers[int(self.step_counts[i, j])] > smaller_sum * bound:
                return False
        return True


def column_weights(pairs: Ints, distances: Floats, count: int, epsilon: Fraction) -> Columns | None:
    """Find column weights that satisfy the certificate, with a rate as great as possible.

    Args:
        pairs: (P, 2) Pairs of records that imply all required ones.
        distances: (P,) Their distances.
        count: N.
        epsilon: The exact epsilon.

    Returns:
        The column weights; None if the pairs do not connect all records, or if no rate satisfies the certificate.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    if not len(pairs) or not (distances > 0).all():
        return None
    pairs, distances = _drop_repeated_pairs(pairs, distances)
    tails, heads = pairs.T
    graph = csr_array((distances, (tails, heads)), shape=(count, count))
    reach = float(dijkstra(graph, directed=False, indices=0).max())
    if not math.isfinite(reach):
        return None
    step = 2.0 * reach / STEPS
    steps = np.floor(distances / step).astype(np.int64)
    if not (steps > 0).all():
        return None
    step_graph = csr_array((steps.astype(np.float64), (tails, heads)), shape=(count, count))
    step_counts = np.rint(dijkstra(step_graph, directed=False)).astype(np.int64)

    def at_share(epsilon_share: float) -> Columns | None:
        columns = _at_rate(float(epsilon) * step * epsilon_share, pairs, steps, step_counts)
        return columns if columns is not None and columns.holds(pairs, distances, epsilon) else None

    best = at_share(1.0 - EPSILON_SLACK)
    if best is not None:
        return best
    # Bisect for a greater share of epsilon that still satisfies the certificate.
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
    """Keep each pair once, with the least of its distances; a sparse matrix would add up repeated pairs."""
    edge_ends = np.sort(pairs, axis=1)
    order = np.lexsort((distances, edge_ends[:, 1], edge_ends[:, 0]))
    edge_ends = edge_ends[order]
    is_first = np.concatenate([[True], (edge_ends[1:] != edge_ends[:-1]).any(axis=1)])
    return edge_ends[is_first], distances[order][is_first]


def _at_rate(rate: float, pairs: Ints, steps: Ints, step_counts: Ints) -> Columns | None:
    """Return column weights for a rate per step; X is chosen so that the sums of rows are as equal as possible."""
    factor = math.ceil(Fraction(math.exp(-rate)) * (1 << 64))
    if not 0 < factor < 1 << 64:
        return None
    count, longest = len(step_counts), int(step_counts.max())
    kernel = np.exp(-rate * step_counts)
    # Solving K X = 1 makes all sums equal. Negative weights are cut off, and equal weights are the fallback.
    try:
        solved = np.linalg.solve(kernel, np.ones(count))
    except np.linalg.LinAlgError:
        solved = np.ones(count)
    solved = np.maximum(solved, 0.0)
    if not np.isfinite(solved).all() or not solved.max() > 0:
        solved = np.ones(count)
    weights = np.rint(solved / solved.max() * (2.0**32 - 1)).astype(np.uint32)
    top = 1 << 63
    greatest = max(_row_sums(_falling_table(factor, top, longest), weights, step_counts))
    # T is scaled so that the greatest sum just fits into whole bytes: fewer blocks are rejected.
    block = (greatest.bit_length() - 1) // 8
    top = (top * (1 << 8 * block) * ((1 << 20) - 1)) // (greatest << 20)
    sums = _row_sums(_falling_table(factor, top, longest), weights, step_counts)
    if max(sums) > 1 << 8 * block or min(sums) == 0:
        return None
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
    """Return T[0], ..., T[longest]."""
    table = [top]
    for _ in range(longest):
        table.append(-(-table[-1] * factor >> 64))
    return table


def _row_sums(table: list[int], weights: NDArray[np.uint32], step_counts: Ints) -> list[int]:
    """Return the exact sums of all rows, computed from 16-bit limbs of T, so that no partial sum overflows 64 bits."""
    sums = [0] * len(step_counts)
    wide_weights = weights.astype(np.uint64)
    for limb in range(4):
        part = np.array([entry >> 16 * limb & 0xFFFF for entry in table], dtype=np.uint64)
        for row, line in enumerate(step_counts):
            sums[row] += int((part[line] * wide_weights).sum()) << 16 * limb
    return sums


def _powers_up(ratio: Fraction, max_power: int) -> list[int]:
    """Return upper bounds of ratio^n times 2^FRACTION_BITS, for n up to ``max_power``."""
    powers = [1 << FRACTION_BITS]
    for _ in range(max_power):
        powers.append(-(-powers[-1] * ratio.numerator // ratio.denominator))
    return powers
