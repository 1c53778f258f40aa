"""A lower bound on the loss of every mechanism, from any dual multipliers. Rounding can never make it too high.

The problem is to minimise the loss ``sum c_ik z_ik``, with costs c that include the prior, over matrices z >= 0 whose
rows sum to 1, with ``z_ik <= exp(eps d) z_jk`` and the reverse for each required pair. For multipliers a, b >= 0 of the
inequalities and of their reverses, the Lagrangian separates over records, with the reduced costs g::

    g_ik = c_ik + sum over pairs (i, j) of (a_k - E b_k) + sum over pairs (h, i) of (b_k - E a_k),   E = exp(eps d)
    bound = sum_i min_k g_ik

for all a and b (weak duality). Each g_ik is replaced by a proved lower bound of g_ik: E is rounded up, and the error of
the floating-point sum is subtracted. The last sum is rounded down. Poor multipliers give a poor bound, but never a
wrong one. Multipliers that hardly improve the bound are therefore omitted (:class:`SparseMultipliers`), and the others
may be rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Self

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from privopt.arrays import Bools, Floats, Ints, Singles
from privopt.errors import UsageError
from privopt.execution.clock import check
from privopt.execution.compiled import MAX_INTERPRETED_COSTS, jit
from privopt.numbers.exp_log_bounds import exp_bounds
from privopt.numbers.graphs import neighbours
from privopt_metric_dp.matrix.certify import check_pairs
from privopt_metric_dp.space.street_pieces import Inside

__all__ = ["Few", "Multipliers", "SparseMultipliers", "lower_bound", "sum_down"]


#: The nonzero multipliers of one output: (k, pairs (M,), multipliers (M,)).
Few = tuple[int, Ints, Floats]

_BLOCK_COLUMNS = 128
"""Number of outputs whose multipliers are converted together."""


@frozen(kw_only=True, eq=False)
class Multipliers:
    """Dual multipliers of the privacy rows: one number for each pair p = (i, j) and output k.

    A positive number is the multiplier of the row ``z_ik <= exp(eps d) z_jk``; the absolute value of a negative one is
    the multiplier of the row with i and j exchanged. One number is enough for the two rows of a pair: reducing both
    multipliers by ``t`` raises the reduced costs of i and j by ``(exp(eps d) - 1) t``. So their difference, given to
    the row with the larger multiplier, proves no less.

    Attributes:
        rows: Returns an iterator over the nonzero multipliers, in rising order of outputs, each output at most once,
            and each pair of an output at most once. Numbers that are not finite count as 0.
        many: Number of multipliers if a solver gives one for each output and each of the two rows of a pair. A file may
            omit the small ones. 0 if only few multipliers are nonzero, as for those of trees.
    """

    rows: Callable[[], Iterator[Few]]
    many: int = 0

    @classmethod
    def from_arrays(cls, forward: Floats, backward: Floats) -> Multipliers:
        """Combine the multipliers of both rows of each pair into one number for each pair and output.

        Args:
            forward: (P, K) multipliers of the rows ``z_ik <= exp(eps d) z_jk`` of pairs (i, j).
            backward: (P, K) multipliers of the reverse rows. In both arrays, negative and infinite numbers count as 0.

        Raises:
            UsageError: The shapes differ.
        """
        if forward.ndim != 2 or forward.shape != backward.shape:
            raise UsageError(f"multipliers must have one shape (P, K), got {forward.shape} and {backward.shape}")

        def rows() -> Iterator[Few]:
            """Yield the number, the pairs and the net multipliers of each output."""
            for start in range(0, forward.shape[1], _BLOCK_COLUMNS):
                blocks = (part[:, start : start + _BLOCK_COLUMNS].T for part in (forward, backward))
                ahead, back = (np.where((part > 0.0) & (part < np.inf), part, 0.0) for part in blocks)
                # Only one of a pair's two rows needs a multiplier (see the class), so the net one is enough.
                for k, net in enumerate(ahead - back, start=start):
                    pairs = np.flatnonzero(net)
                    yield k, pairs, net[pairs]

        return cls(rows=rows, many=2 * forward.size)

    @classmethod
    def zero(cls) -> Multipliers:
        """Return multipliers that are all 0. The bound that they prove assigns every record to its cheapest output."""
        return cls(rows=lambda: iter(()))

    def map_rows(self, change: Callable[[Ints, Floats], tuple[Ints, Floats]]) -> Multipliers:
        """Return multipliers with the pairs and values of each output replaced by ``change(pairs, values)``."""
        return evolve(self, rows=lambda: ((k, *change(pairs, values)) for k, pairs, values in self.rows()))

    def among(self, rows: Ints) -> Multipliers:
        """Return the multipliers renumbered for a larger set of pairs, in which pair p has the number ``rows[p]``."""
        return self.map_rows(lambda pairs, values: (rows[pairs], values))

    def freer(self, gain: Floats) -> Multipliers:
        """Return the multipliers times ``exp(-gain)``, for rows whose allowed log-ratios are larger by ``gain`` (P,).

        Any multipliers prove a bound. But unchanged ones would raise a row's ``exp(eps d) f`` by ``exp(eps d) gain f``,
        which ruins the bound if ``eps d`` is 5 or more, even at a gain of 1e-9. Scaled multipliers leave that product
        unchanged, and the bound loses only ``gain f``.
        """
        factors = np.exp(-gain)
        return self.map_rows(lambda pairs, values: (pairs, values * factors[pairs]))

    def arrays(self, pairs: int, outputs: int) -> tuple[Floats, Floats]:
        """Return the multipliers of both rows of each pair as two dense arrays (P, K), forward and backward.

        Args:
            pairs, outputs: P and K, the numbers of pairs and outputs.
        """
        net = np.zeros((pairs, outputs))
        for k, places, values in self.rows():
            net[places, k] = values
        return np.maximum(net, 0.0), np.maximum(-net, 0.0)


# With few costs and multipliers (`rows` is the sixth array), the function is interpreted: loading compiled code would
# take longer.
@jit(
    few=lambda cost, max_cost, error, multipliers, *_: bool(
        cost.size <= MAX_INTERPRETED_COSTS and multipliers[5].size <= 10 * MAX_INTERPRETED_COSTS
    )
)
def _enclose_sums(  # type: ignore[no-untyped-def]
    cost, max_cost, relative_error, multipliers, endpoints, shares, lower, upper, chord_lower, chord_upper, wild
):
    """Reduce lower[i] and upper[i] to min_k of bounds on g_ik, and mark outputs whose sums overflow as wild.

    Args:
        cost, max_cost, relative_error: (N, K) costs, prior included. The exact costs lie between the two arrays, up to
            this relative error.
        multipliers: Tails and heads (P,) of the rows; ``growth`` (P,) of at least exp(eps d); ``spread`` (P,) by which
            ``growth`` may exceed exp(eps d); and ``starts``, ``rows``, ``values`` as in :class:`SparseMultipliers`.
        endpoints, shares: (E, N) outputs at the ends of record i's street piece, and their weights, which sum to 1. E
            is 2 with streets and 0 without.
        lower, upper: (N,) results, infinite before.
        chord_lower, chord_upper: (N,) results, 0 before: bounds on what the multipliers add to the reduced cost of a
            record that is reported as itself, interpolated between its two ``endpoints`` with their ``shares``.
        wild: (K,) result, False before.

    Notes:
        The error bound is Higham, Accuracy and Stability, (4.4): |error| <= gamma_n sum |terms|, with 16 more roundings
        for the terms themselves, doubled for the rounding of that sum. Products that underflow lose less than 1e-300 in
        total.
    """
    tails, heads, growth, spread, starts, rows, values = multipliers
    n = cost.shape[0]
    value, size, terms, shortfall = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for k in range(cost.shape[1]):
        value[:], size[:], terms[:], shortfall[:] = 0.0, 0.0, 0.0, 0.0
        # Per record: the sum of the terms, the sum of their absolute values, their number, and by how much the sum may
        # be too low because `growth` is too high.
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
            shortfall[j] += spread[p] * f
        for i in range(n):
            # Relative error of the sum. The powers of 2 added to 1 below cover the rounding of the error terms.
            part = (2.0 * terms[i] + 16.0) * 2.0**-53 * 2.0
            for e in range(endpoints.shape[0]):
                # Here `value` is the multipliers' part of g_ik alone. Shares are rounded to the nearest doubles, which
                # the terms with 2**-49 cover.
                if endpoints[e, i] == k:
                    error = size[i] * part + 1e-300
                    min_value, max_value = value[i] - error, value[i] + (error + shortfall[i] * (1.0 + 2.0**-30))
                    chord_lower[i] += shares[e, i] * min_value - (abs(shares[e, i] * min_value) * 2.0**-49 + 1e-300)
                    chord_upper[i] += shares[e, i] * max_value + (abs(shares[e, i] * max_value) * 2.0**-49 + 1e-300)
            error = relative_error * max(abs(cost[i, k]), abs(max_cost[i, k]))
            value[i] += cost[i, k]
            shortfall[i] += max_cost[i, k] - cost[i, k]
            if terms[i] > 0.0:
                error += (size[i] + abs(cost[i, k])) * part + 1e-300
                if not np.isfinite(value[i]):
                    wild[k] = True
            # From here on `shortfall` is the upper bound of g_ik, and `value` the lower one.
            shortfall[i] = value[i] + (error + shortfall[i] * (1.0 + 2.0**-30))
            if error > 0.0:
                value[i] = np.nextafter(value[i] - error, -np.inf)
            if shortfall[i] > value[i]:
                shortfall[i] = np.nextafter(shortfall[i], np.inf)
        if not wild[k]:
            for i in range(n):
                lower[i] = min(lower[i], value[i])
                upper[i] = min(upper[i], shortfall[i])


@jit(few=lambda candidates, *_: bool(candidates.size <= MAX_INTERPRETED_COSTS))
def _select_rows(candidates, f, source, spare, rows, values):  # type: ignore[no-untyped-def]
    """Copy those multipliers of one output that are kept into the results, and return their number.

    Of the rows (i, .), the smallest multipliers are omitted, up to a sum of spare[i]. To avoid sorting, multipliers are
    classified by their binary exponents relative to spare[i].

    Args:
        candidates: (C,) numbers of the output's rows, sorted by their first record.
        f: Multiplier of each row, above 0.
        source: First record of each row.
        spare: (N,) sums that may be omitted.
        rows, values: (C,) results.
    """
    count = start = 0
    shares = np.zeros(64)
    while start < candidates.size:
        i, end = source[candidates[start]], start
        while end < candidates.size and source[candidates[end]] == i:
            end += 1
        # Class c of `shares` has multipliers of about 2^-c times `allowed`; those of class `cut` and beyond are
        # omitted.
        allowed, cut = spare[i], 64
        if allowed > 0.0:
            shares[:] = 0.0
            for m in range(start, end):
                if f[m] < allowed:
                    shares[min(63, -math.frexp(f[m] / allowed)[1])] += f[m]
            total = 0.0
            # Whole classes of equal exponents are omitted, from the smallest on, as long as their sum fits. The margin
            # covers the rounding of the sum.
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
    """Return those rows and multipliers of one output that are worth storing, in new arrays.

    Args:
        candidates: (C,) numbers of the output's rows, sorted by their first record.
        f: (C,) multiplier of each row, above 0.
        source: First record of each row.
        spare: (N,) for each first record, the sum of its smallest multipliers that may be omitted.
    """
    rows, values = np.empty(len(candidates), dtype=np.uint32), np.empty(len(candidates))
    count = _select_rows(candidates, f, source, spare, rows, values)
    return rows[:count].copy(), values[:count].copy()


@frozen(kw_only=True, eq=False)
class SparseMultipliers:
    """Nonzero multipliers of directed rows, stored output by output, and the bounds that they prove.

    Attributes:
        pairs: (P, 2) rows (i, j): ``z_ik <= growth z_jk``.
        growth: (P,) finite numbers, at least exp(eps d) of the pair.
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
            growth: (P,) numbers, at least exp(eps d). Rows with infinite growth are omitted, as any rows may be.
            shape: The numbers of records and outputs (N, K).
            spare: (N,) amount of at least 0 that the bound may lose at each record; zeros by default.
            max_multipliers: Number of multipliers that fit into memory.

        Raises:
            MemoryError: More multipliers would be stored.
            OutOfTime: The time limit has expired.
            UsageError: A multiplier belongs to a pair or output that does not exist.
        """
        records, outputs = shape
        # Directed rows are sorted by first record, then by second: those of record i are group[i] to group[i + 1].
        group, target, entry = neighbours(records, pairs)
        source = np.repeat(np.arange(records), np.diff(group))
        # Each pair has two directed rows. Number 2 p is the one from its first record, 2 p + 1 that from its second.
        row_position = np.empty(len(entry), dtype=np.int64)
        row_position[2 * entry + (source == pairs[entry, 1])] = np.arange(len(entry))
        has_finite_growth, allowed = np.isfinite(growth[entry]), np.zeros(records) if spare is None else spare
        parts_by_output: dict[int, tuple[NDArray[np.uint32], Floats]] = {}
        # `sizes` is reused for every output: only entries that were set for the present output are read.
        sizes, many = np.zeros(len(entry)), 0
        for k, pair_numbers, signed in multipliers.rows():
            check()
            if k >= outputs or pair_numbers.max(initial=-1) >= len(pairs):
                raise UsageError(f"multipliers must be of {outputs} outputs and {len(pairs)} pairs, got more")
            row = row_position[2 * pair_numbers + (signed < 0.0)]
            sizes[row] = np.abs(signed)
            # Rows are sorted by their first record, which `_select_rows` relies on to treat the rows of a record
            # together.
            row = np.sort(row[has_finite_growth[row] & np.isfinite(signed) & (signed != 0.0)])
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
        """Return the multipliers that a mask (M,) selects, without the pairs that are no longer used."""
        # Pairs are renumbered by the count of needed ones up to each, and starts by the count of selected multipliers.
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
        """Return proved lower bounds (N,) of min_k g_ik, and a mask (K,) of outputs omitted because a sum overflows.

        Args:
            cost: (N, K) finite costs, prior included.
        """
        lower, _, wild = self._enclose_minima(cost, cost, 0.0, np.zeros(len(self.growth)), None)
        return lower, wild

    def _enclose_minima(
        self, cost: Floats, max_cost: Floats, error: float, spread: Floats, interior: Inside | None
    ) -> tuple[Floats, Floats, Bools]:
        """Return proved lower and upper bounds (N,) of min_k g_ik, and omitted outputs (K,) as in :meth:`min_bounds`.

        Args:
            cost, max_cost: (N, K) numbers, prior included, between which the exact costs lie, up to ``error``.
            error: Relative error of ``cost`` and ``max_cost``.
            interior: Positions of records between outputs at the ends of streets, or None without streets.
            spread: (P,) amount by which ``growth`` may exceed exp(eps d).
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
            # A record inside a piece of street has one more term in its minimum (`street_proof`, u*_i).
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
            lower: (P,) numbers, at most exp(eps d) of the pair.
            interior: Positions of records between outputs at the ends of streets, for a bound over all streets
                (:mod:`privopt_metric_dp.proof.street_proof`).

        Returns:
            The two numbers; both are infinite if a sum overflows.
        """
        # The exact factor lies between `lower` and `growth`: the sums below use the larger, for the lower bound, and
        # add the difference for the upper one.
        spread = np.where(lower < self.growth, self.growth - lower, 0.0)
        min_values, max_values, wild = self._enclose_minima(cost, max_cost, error, spread, interior)
        return (-math.inf, math.inf) if wild.any() else (sum_down(min_values), -sum_down(-max_values))

    def tame(self, cost: Floats) -> tuple[Self, float]:
        """Return the multipliers without those of outputs whose sums overflow, and their bound, rounded down."""
        lower, wild = self.min_bounds(cost)
        if not wild.any():
            return self, sum_down(lower)
        # Multipliers of 0 are valid for these outputs, so the bound of the others still holds.
        tame = self.only(~np.repeat(wild, np.diff(self.starts)))
        return tame, tame.bound(cost)

    def bound(self, cost: Floats) -> float:
        """Return the proved bound on every mechanism's loss, rounded down, or minus infinity if a sum overflows."""
        lower, wild = self.min_bounds(cost)
        return -math.inf if wild.any() else sum_down(lower)


def lower_bound(cost: Floats, pairs: Ints, distances: Floats, epsilon: Fraction, multipliers: Multipliers) -> float:
    """Return a proved lower bound on the loss of every mechanism, rounded down.

    Args:
        cost: (N, K) finite costs, prior included.
        pairs: (P, 2) required pairs.
        distances: (P,) distances; the doubles are taken as exact.
        epsilon: The exact epsilon of the guarantee, not the smaller one with which the program was solved.
        multipliers: Any multipliers. Those of outputs whose sums overflow count as 0.

    Returns:
        The better of the bound from the multipliers and the trivial bound (each record at its cheapest output). If
        there are no pairs, the trivial bound is the optimum. The evaluation takes about 10 P K operations.

    Raises:
        UsageError: An argument has a wrong shape or range, or a multiplier belongs to no pair or output.
    """
    cost = np.ascontiguousarray(cost, dtype=np.float64)
    if cost.ndim != 2 or not cost.size or not np.isfinite(cost).all():
        raise UsageError(f"cost must be finite and of shape (N, K); it has shape {cost.shape}")
    pairs, distances = check_pairs(pairs, distances, len(cost))
    sparse = SparseMultipliers.of(multipliers, pairs, exp_bounds(distances, epsilon)[1], cost.shape)
    return max(sparse.tame(cost)[1], sum_down(cost.min(axis=1)))


def sum_down(values: Floats) -> float:
    """Return the sum of doubles (M,), rounded down, or minus infinity if it overflows.

    fsum is correctly rounded, so a second fsum shows the sign of its error.
    """
    try:
        total = math.fsum(values.tolist())
        if total == -math.inf:  # the error of a sum can lower a bound to minus infinity
            return total
        return total if math.fsum([*values.tolist(), -total]) >= 0 else math.nextafter(total, -math.inf)
    except OverflowError:
        return -math.inf
