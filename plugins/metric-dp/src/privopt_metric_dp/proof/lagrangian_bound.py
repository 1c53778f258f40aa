"""A lower bound on the loss of every mechanism, from any dual vector; rounding can never make it too high.

The problem is to minimise ``sum c_ik z_ik`` over rows that sum to 1, z >= 0, with ``z_ik <= exp(eps d) z_jk`` and the
reverse for each required pair. For multipliers a, b >= 0 of the two kinds of rows the Lagrangian separates over
records::

    g_ik = c_ik + sum over pairs (i, j) of (a_k - E b_k) + sum over pairs (h, i) of (b_k - E a_k),   E = exp(eps d)
    bound = sum_i min_k g_ik

for all a and b (weak duality). Each g_ik is replaced by a proved lower bound of it (E is rounded up, and the error of
the sum in doubles is subtracted), and the last sum is rounded down. Poor multipliers give a poor bound, but never a
wrong one. Multipliers that prove next to nothing are therefore omitted (:class:`SparseMultipliers`), and the others may
be rounded.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Self

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from privopt.arrays import Bools, Floats, Ints, Singles
from privopt.errors import UsageError
from privopt.execution.clock import check
from privopt.execution.compiled import jit
from privopt.numbers.exp_log_bounds import exp_bounds
from privopt.numbers.graphs import neighbours
from privopt_metric_dp.matrix.certify import check_pairs
from privopt_metric_dp.proof.multipliers import Multipliers
from privopt_metric_dp.space.street_pieces import Inside

__all__ = ["SparseMultipliers", "lower_bound", "sum_down"]


@jit(few=lambda cost, top, error, multipliers, *_: bool(cost.size <= 200 and multipliers[5].size <= 2_000))
def _enclose_sums(  # type: ignore[no-untyped-def]
    cost, max_cost, relative_error, multipliers, endpoints, shares, lower, upper, chord_lower, chord_upper, wild
):
    """Lower lower[i] and upper[i] to min_k of lower and upper bounds of g_ik; mark outputs whose sums overflow as wild.

    If endpoints[e, i] is k, bounds of the multipliers' part of g_ik are added to chord_lower[i] and chord_upper[i] with
    the weight shares[e, i].

    The error bound is Higham, Accuracy and Stability, (4.4): |error| <= gamma_n sum |terms|, with 16 more roundings for
    the terms themselves, doubled for the rounding of that sum. Products that underflow lose less than 1e-300 in all.
    """
    tails, heads, growth, spread, starts, rows, values = multipliers
    n = cost.shape[0]
    value, size, terms, loose = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for k in range(cost.shape[1]):
        value[:], size[:], terms[:], loose[:] = 0.0, 0.0, 0.0, 0.0
        for m in range(starts[k], starts[k + 1]):
            p = rows[m]
            f = float(values[m])
            i, j = tails[p], heads[p]
            grown = growth[p] * f
            value[i] += f
            size[i] += f
            terms[i] += 1.0
            value[j] -= grown
            size[j] += grown
            terms[j] += 1.0
            loose[j] += spread[p] * f
        for i in range(n):
            part = (2.0 * terms[i] + 16.0) * 2.0**-53 * 2.0
            for e in range(endpoints.shape[0]):
                if endpoints[e, i] == k:  # shares are nearest doubles
                    error = size[i] * part + 1e-300
                    min_value, max_value = value[i] - error, value[i] + (error + loose[i] * (1.0 + 2.0**-30))
                    chord_lower[i] += shares[e, i] * min_value - (abs(shares[e, i] * min_value) * 2.0**-49 + 1e-300)
                    chord_upper[i] += shares[e, i] * max_value + (abs(shares[e, i] * max_value) * 2.0**-49 + 1e-300)
            error = relative_error * max(abs(cost[i, k]), abs(max_cost[i, k]))
            value[i] += cost[i, k]
            loose[i] += max_cost[i, k] - cost[i, k]
            if terms[i] > 0.0:
                error += (size[i] + abs(cost[i, k])) * part + 1e-300
                if not np.isfinite(value[i]):
                    wild[k] = True
            loose[i] = value[i] + (error + loose[i] * (1.0 + 2.0**-30))
            if error > 0.0:
                value[i] = np.nextafter(value[i] - error, -np.inf)
            if loose[i] > value[i]:
                loose[i] = np.nextafter(loose[i], np.inf)
        if not wild[k]:
            for i in range(n):
                lower[i] = min(lower[i], value[i])
                upper[i] = min(upper[i], loose[i])


@jit(few=lambda candidates, *_: bool(candidates.size <= 200))
def _select_rows(candidates, f, source, spare, rows, values):  # type: ignore[no-untyped-def]
    """Copy the rows of one output that are kept, and return their number.

    Of the rows (i, .), the smallest multipliers are omitted, up to a sum of spare[i]. They are found by their binary
    exponents relative to spare[i], without sorting.
    """
    count = start = 0
    shares = np.zeros(64)
    while start < candidates.size:
        i, end = source[candidates[start]], start
        while end < candidates.size and source[candidates[end]] == i:
            end += 1
        allowed, cut = spare[i], 64
        if allowed > 0.0:
            shares[:] = 0.0
            for m in range(start, end):
                if f[m] < allowed:
                    shares[min(63, -math.frexp(f[m] / allowed)[1])] += f[m]
            total = 0.0
            while cut > 0 and total + shares[cut - 1] <= allowed * (1.0 - 1e-9):
                cut -= 1
                total += shares[cut]
        for m in range(start, end):
            if f[m] >= allowed or min(63, -math.frexp(f[m] / allowed)[1]) < cut:
                rows[count] = candidates[m]
                values[count] = f[m]
                count += 1
        start = end
    return count


def _select_multipliers(candidates: Ints, f: Floats, source: Ints, spare: Floats) -> tuple[NDArray[np.uint32], Floats]:
    rows, values = np.empty(len(candidates), dtype=np.uint32), np.empty(len(candidates))
    count = _select_rows(candidates, f, source, spare, rows, values)
    return rows[:count].copy(), values[:count].copy()


@frozen(kw_only=True, eq=False)
class SparseMultipliers:
    """Nonzero multipliers of directed rows, stored output by output, and the bounds that they prove.

    Attributes:
        pairs: (P, 2) rows (i, j): ``z_ik <= growth z_jk``.
        growth: (P,) finite numbers of at least exp(eps d) of the pair.
        starts: (K + 1,) output k owns ``starts[k]:starts[k + 1]`` of the following arrays.
        rows: (M,) uint32 indices into ``pairs``, rising within an output.
        values: (M,) finite multipliers above 0.
    """

    pairs: Ints
    growth: Floats
    starts: Ints
    rows: NDArray[np.uint32]
    values: Floats | Singles

    @classmethod
    def of(
        cls,
        multipliers: Multipliers,
        pairs: Ints,
        growth: Floats,
        shape: tuple[int, int],
        spare: Floats | None = None,
        *,
        max_multipliers: float = math.inf,
    ) -> Self:
        """Return the multipliers that are worth storing, as directed rows.

        Of the rows (i, .) of one output, those with the smallest multipliers are omitted, up to a sum of ``spare[i]``.
        A multiplier of (i, j) is added to g_ik and subtracted from g_jk, so the bound loses at most the sum of
        ``spare``.

        Args:
            multipliers: Multipliers of ``pairs``.
            pairs: (P, 2) distinct pairs.
            growth: (P,) numbers of at least exp(eps d). Rows with an infinite one, which no weights reach, are omitted.
            shape: The numbers of records and outputs (N, K).
            spare: (N,) numbers of at least 0; zeros by default.
            max_multipliers: Number of multipliers that fit into memory.

        Raises:
            MemoryError: More multipliers would be stored.
            OutOfTime: The time limit has come.
            UsageError: A multiplier belongs to a pair or output that does not exist.
        """
        records, outputs = shape
        group, target, entry = neighbours(records, pairs)
        source = np.repeat(np.arange(records), np.diff(group))
        row_position = np.empty(len(entry), dtype=np.int64)
        row_position[2 * entry + (source == pairs[entry, 1])] = np.arange(len(entry))
        reached, allowed = np.isfinite(growth[entry]), np.zeros(records) if spare is None else spare
        parts_by_output: dict[int, tuple[NDArray[np.uint32], Floats]] = {}
        sizes, many = np.zeros(len(entry)), 0
        for k, pair_numbers, signed in multipliers.rows():
            check()
            if k >= outputs or pair_numbers.max(initial=-1) >= len(pairs):
                raise UsageError(f"multipliers must be of {outputs} outputs and {len(pairs)} pairs, got more")
            row = row_position[2 * pair_numbers + (signed < 0.0)]
            sizes[row] = np.abs(signed)
            row = np.sort(row[reached[row] & np.isfinite(signed) & (signed != 0.0)])
            parts_by_output[k] = _select_multipliers(row, sizes[row], source, allowed)
            many += len(parts_by_output[k][0])
            if many > max_multipliers:
                raise MemoryError(f"more than {max_multipliers:,.0f} multipliers")
        none = np.zeros(0, dtype=np.uint32), np.zeros(0)
        parts = [parts_by_output.get(k, none) for k in range(outputs)]
        return cls(
            pairs=np.column_stack([source, target]),
            growth=growth[entry],
            starts=np.concatenate([[0], np.cumsum([len(part[0]) for part in parts], dtype=np.int64)]),
            rows=np.concatenate([part[0] for part in parts]),
            values=np.concatenate([part[1] for part in parts]),
        )

    def only(self, is_selected: Bools) -> Self:
        """Return the selected multipliers over the pairs that they need, given (M,) booleans."""
        rows, is_needed = self.rows[is_selected], np.zeros(len(self.pairs), dtype=np.bool_)
        is_needed[rows] = True
        return evolve(
            self,
            pairs=self.pairs[is_needed],
            growth=self.growth[is_needed],
            starts=np.concatenate([[0], np.cumsum(is_selected)])[self.starts],
            rows=(np.cumsum(is_needed, dtype=np.uint32) - np.uint32(1))[rows],
            values=self.values[is_selected],
        )

    def min_bounds(self, cost: Floats) -> tuple[Floats, Bools]:
        """Return (N,) min_k of proved lower bounds of g_ik, and (K,) outputs omitted because a sum is not a double.

        Args:
            cost: (N, K) finite, prior included.
        """
        lower, _, wild = self._enclose_minima(cost, cost, 0.0, np.zeros(len(self.growth)), None)
        return lower, wild

    def _enclose_minima(
        self, cost: Floats, max_cost: Floats, error: float, spread: Floats, interior: Inside | None
    ) -> tuple[Floats, Floats, Bools]:
        """Return (N,) proved lower and upper bounds of min_k g_ik, and (K,) omitted outputs as in :meth:`min_bounds`.

        Args:
            cost, max_cost, error, interior: As in :meth:`enclose_bound`.
            spread: (P,) by how much ``growth`` may exceed exp(eps d).
        """
        lower, upper, wild = np.full(len(cost), np.inf), np.full(len(cost), np.inf), np.zeros(cost.shape[1], np.bool_)
        tails, heads = (np.ascontiguousarray(self.pairs[:, end]) for end in (0, 1))
        rows = tails, heads, self.growth, spread, self.starts, self.rows, self.values
        endpoints, shares = np.zeros((0, len(cost)), dtype=np.int64), np.zeros((0, len(cost)))
        if interior is not None:
            endpoints, shares = np.stack([interior.tail, interior.head]), np.stack([interior.rest, interior.share])
        chord_lower, chord_upper = np.zeros(len(cost)), np.zeros(len(cost))
        _enclose_sums(cost, max_cost, error, rows, endpoints, shares, lower, upper, chord_lower, chord_upper, wild)
        if interior is not None:
            is_interior = interior.tail >= 0
            lower[is_interior], upper[is_interior] = (
                np.minimum(lower, chord_lower)[is_interior],
                np.minimum(upper, chord_upper)[is_interior],
            )
        return lower, upper, wild

    def enclose_bound(
        self, cost: Floats, max_cost: Floats, error: float, lower: Floats, interior: Inside | None = None
    ) -> tuple[float, float]:
        """Return two numbers that enclose the bound with exact costs and exponentials.

        Args:
            cost, max_cost: (N, K) finite numbers, prior included. Exact costs lie between them, up to ``error``.
            error: Relative error of ``cost`` and ``max_cost``.
            lower: (P,) numbers of at most exp(eps d) of the pair.
            interior: Positions of records between outputs at the ends of streets, for a bound over all streets
                (:mod:`privopt_metric_dp.proof.street_proof`).

        Returns:
            The two numbers; both are infinite if a sum is not a double.
        """
        spread = np.where(lower < self.growth, self.growth - lower, 0.0)
        min_values, max_values, wild = self._enclose_minima(cost, max_cost, error, spread, interior)
        return (-math.inf, math.inf) if wild.any() else (sum_down(min_values), -sum_down(-max_values))

    def tame(self, cost: Floats) -> tuple[Self, float]:
        """Omit the multipliers of outputs whose sum exceeds doubles; return the rest and its bound, rounded down."""
        lower, wild = self.min_bounds(cost)
        if not wild.any():
            return self, sum_down(lower)
        tame = self.only(~np.repeat(wild, np.diff(self.starts)))
        return tame, tame.bound(cost)

    def bound(self, cost: Floats) -> float:
        """Return the proved bound on every mechanism's loss, rounded down; minus infinity if a sum exceeds doubles."""
        lower, wild = self.min_bounds(cost)
        return -math.inf if wild.any() else sum_down(lower)


def lower_bound(cost: Floats, pairs: Ints, distances: Floats, epsilon: Fraction, multipliers: Multipliers) -> float:
    """Return a proved lower bound on the loss of every mechanism, rounded down.

    Args:
        cost: (N, K) finite costs, prior included.
        pairs: (P, 2) required pairs.
        distances: (P,) doubles, each taken as the rational that it is.
        epsilon: The exact epsilon that is promised, not the tighter one that was solved with.
        multipliers: Any multipliers. Those of outputs whose sums overflow count as 0.

    Returns:
        The better of the bound from the multipliers and the trivial one (each record at its cheapest output). If there
        are no pairs, the trivial one is the optimum. The cost is about 10 P K operations.
    """
    cost = np.ascontiguousarray(cost, dtype=np.float64)
    if cost.ndim != 2 or not cost.size or not np.isfinite(cost).all():
        raise UsageError(f"cost must be finite and of shape (N, K); it has shape {cost.shape}")
    pairs, distances = check_pairs(pairs, distances, len(cost))
    sparse = SparseMultipliers.of(multipliers, pairs, exp_bounds(distances, epsilon)[1], cost.shape)
    return max(sparse.tame(cost)[1], sum_down(cost.min(axis=1)))


def sum_down(values: Floats) -> float:
    """Return the sum, rounded down. fsum is correctly rounded, so a second fsum shows the sign of its error."""
    try:
        total = math.fsum(values.tolist())
        if total == -math.inf:  # the error of a sum can lower a bound to minus infinity
            return total
        return total if math.fsum([*values.tolist(), -total]) >= 0 else math.nextafter(total, -math.inf)
    except OverflowError:
        return -math.inf
