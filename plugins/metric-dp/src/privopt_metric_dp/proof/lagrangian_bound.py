"""A lower bound on the loss of every mechanism, computed from dual multipliers and safe against rounding errors.

The problem is to minimise the loss ``sum c_ik z_ik``, where the costs c include the prior, over matrices z >= 0 whose
rows sum to 1. For each required pair (i, j) at distance d, the matrices must satisfy ``z_ik <= exp(eps d) z_jk`` and
the reverse constraint ``z_jk <= exp(eps d) z_ik``. Let a >= 0 be multipliers for constraints of the first form and
b >= 0 multipliers for the reverse constraints. The Lagrangian then separates over records, with reduced costs g::

    g_ik = c_ik + sum over pairs (i, j) of (a_k - E b_k) + sum over pairs (h, i) of (b_k - E a_k),   E = exp(eps d)
    bound = sum_i min_k g_ik

By weak duality, this is a lower bound for all a and b. Each g_ik is replaced by a proved lower bound on it: E is
rounded up, and an error bound is subtracted from the floating-point sum. The final sum is rounded down. Poor
multipliers give a weak bound, but never a wrong one. Multipliers that hardly improve the bound can therefore be left
out (:class:`SparseMultipliers`), and the rest can be rounded.
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


#: The nonzero multipliers for one output: the output's index, the indices of their pairs, and the multipliers. The two
#: arrays have the same length.
Few = tuple[int, Ints, Floats]

_BLOCK_COLUMNS = 128
"""The number of outputs processed at a time when dense multipliers are converted."""


@frozen(kw_only=True, eq=False)
class Multipliers:
    """Dual multipliers for the privacy constraints, with one signed value per pair p = (i, j) and output k.

    A positive value is the multiplier for the constraint ``z_ik <= exp(eps d) z_jk``. The absolute value of a negative
    one is the multiplier for the constraint with i and j exchanged. One value per pair is enough, because only one of
    the two multipliers needs to be nonzero: subtracting ``t`` from both raises the reduced costs of i and j by
    ``(exp(eps d) - 1) t``, so the smaller of the two can be subtracted from both without weakening the bound.

    Attributes:
        rows: A function that returns an iterator over the nonzero multipliers, output by output. Outputs are in
            ascending order, each at most once, and each pair occurs at most once per output. Values that are not finite
            are treated as 0.
        many: The number of multipliers if a solver returned one for every constraint. A proof may then leave out small
            multipliers. The number is 0 if only a few multipliers are nonzero, as for trees.
    """

    rows: Callable[[], Iterator[Few]]
    many: int = 0

    @classmethod
    def from_arrays(cls, forward: Floats, backward: Floats) -> Multipliers:
        """Combine the multipliers for both constraints of each pair into one signed value per pair and output.

        Args:
            forward: Array of shape (P, K) with the multipliers for the constraints ``z_ik <= exp(eps d) z_jk``, where
                (i, j) is the pair.
            backward: Array of shape (P, K) with the multipliers for the reverse constraints. In both arrays, negative,
                infinite and NaN entries are treated as 0.

        Raises:
            UsageError: The two shapes differ, or the arrays are not two-dimensional.
        """
        if forward.ndim != 2 or forward.shape != backward.shape:
            raise UsageError(f"multipliers must have one shape (P, K), got {forward.shape} and {backward.shape}")

        def rows() -> Iterator[Few]:
            """Yield each output's index, the indices of its pairs with nonzero multipliers, and these multipliers."""
            for start in range(0, forward.shape[1], _BLOCK_COLUMNS):
                blocks = (part[:, start : start + _BLOCK_COLUMNS].T for part in (forward, backward))
                ahead, back = (np.where((part > 0.0) & (part < np.inf), part, 0.0) for part in blocks)
                # Only one of a pair's two constraints needs a multiplier (see the class docstring), so the difference
                # is enough.
                for k, net in enumerate(ahead - back, start=start):
                    pairs = np.flatnonzero(net)
                    yield k, pairs, net[pairs]

        return cls(rows=rows, many=2 * forward.size)

    @classmethod
    def zero(cls) -> Multipliers:
        """Return multipliers that are all 0.

        They prove the trivial bound, which is the loss if every record reports its cheapest output.
        """
        return cls(rows=lambda: iter(()))

    def map_rows(self, change: Callable[[Ints, Floats], tuple[Ints, Floats]]) -> Multipliers:
        """Apply a function to each output's pair indices and values, and return the resulting multipliers.

        The function is only called when the result is iterated over.

        Args:
            change: A function that takes the pair indices and the values for one output, and returns new ones.
        """
        return evolve(self, rows=lambda: ((k, *change(pairs, values)) for k, pairs, values in self.rows()))

    def among(self, rows: Ints) -> Multipliers:
        """Return the multipliers re-indexed for a larger set of pairs, so that index p becomes ``rows[p]``."""
        return self.map_rows(lambda pairs, values: (rows[pairs], values))

    def freer(self, gain: Floats) -> Multipliers:
        """Return the multipliers scaled by ``exp(-gain)``, for use with constraints that allow larger log ratios.

        A multiplier f enters the bound through the term ``exp(eps d) f``. Without scaling, this term would increase by
        about ``exp(eps d) gain f``, which could make the bound useless even for a gain of 1e-9 if ``eps d`` is 5 or
        more. With scaling, the term stays the same, and the bound decreases only by about ``gain f``.

        Args:
            gain: Array of shape (P,) with the amount by which the allowed log ratio of each pair has increased.
        """
        factors = np.exp(-gain)
        return self.map_rows(lambda pairs, values: (pairs, values * factors[pairs]))

    def arrays(self, pairs: int, outputs: int) -> tuple[Floats, Floats]:
        """Return the multipliers as two dense arrays of shape (P, K), one each for forward and backward constraints.

        Args:
            pairs, outputs: The numbers of pairs and outputs, P and K.
        """
        net = np.zeros((pairs, outputs))
        for k, places, values in self.rows():
            net[places, k] = values
        return np.maximum(net, 0.0), np.maximum(-net, 0.0)


# If there are few costs and multipliers (element 5 of the tuple is `rows`), the function is interpreted, because
# loading the compiled code would take longer.
@jit(
    few=lambda cost, max_cost, error, multipliers, *_: bool(
        cost.size <= MAX_INTERPRETED_COSTS and multipliers[5].size <= 10 * MAX_INTERPRETED_COSTS
    )
)
def _enclose_sums(  # type: ignore[no-untyped-def]
    cost, max_cost, relative_error, multipliers, endpoints, shares, lower, upper, chord_lower, chord_upper, wild
):
    """Compute bounds on each record's smallest reduced cost, min_k g_ik, and mark outputs whose sums overflow.

    Args:
        cost, max_cost: Arrays of shape (N, K) with lower and upper bounds on the exact costs (prior included), up to
            ``relative_error``.
        relative_error: The relative error of ``cost`` and ``max_cost``.
        multipliers: A tuple of seven arrays. The first two have shape (P,) and contain the records i and j of each
            constraint ``z_ik <= exp(eps d) z_jk``. The next two are ``growth``, an upper bound on each exp(eps d), and
            ``spread``, a bound on the difference between ``growth`` and exp(eps d). The last three are ``starts``,
            ``rows`` and ``values`` as in :class:`SparseMultipliers`.
        endpoints: Array of shape (E, N) with the outputs at the two ends of the street piece that contains each record.
            E is 2 for a bound over streets, and 0 otherwise.
        shares: Array of shape (E, N) with the weights of these ends, which sum to 1 for each record.
        lower, upper: Arrays of shape (N,) filled with infinity, which receive the bounds.
        chord_lower, chord_upper: Arrays of shape (N,) filled with zeros, which receive bounds on the amount that the
            multipliers add to a record's reduced cost if the record itself is the output. That amount is the mean of
            the amounts at the record's two ``endpoints``, weighted by ``shares``.
        wild: Boolean array of shape (K,), initially False. It is set to True for outputs whose sums overflow, which are
            excluded from the minima.

    Notes:
        The error bound is Higham, Accuracy and Stability, (4.4): |error| <= gamma_n sum |terms|. The bound allows for
        16 further roundings in the terms themselves, and is doubled to cover rounding in the sum of |terms|. Products
        that underflow lose less than 1e-300 in total.
    """
    tails, heads, growth, spread, starts, rows, values = multipliers
    n = cost.shape[0]
    value, size, terms, shortfall = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for k in range(cost.shape[1]):
        value[:], size[:], terms[:], shortfall[:] = 0.0, 0.0, 0.0, 0.0
        # For each record, these arrays contain the sum of the terms, the sum of their absolute values, the number of
        # terms, and the amount by which the sum may be too low because `growth` is too high.
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
            # The relative error of the sum. The factors 1 + 2**-30 below cover the rounding errors in the error terms.
            part = (2.0 * terms[i] + 16.0) * 2.0**-53 * 2.0
            for e in range(endpoints.shape[0]):
                # At this point, `value` is only the amount that the multipliers add to g_ik. The terms with 2**-49
                # cover the error of the shares, which are rounded to the nearest doubles.
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
            # From here on, `shortfall` is the upper bound on g_ik, and `value` the lower one.
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
    """Select the multipliers of one output that are worth storing, write them to arrays, and return their number.

    For each first record i, the smallest multipliers are left out as long as their sum is at most spare[i]. To avoid
    sorting, multipliers are classified by their binary exponents relative to spare[i].

    Args:
        candidates: Array of shape (C,) with the indices of the constraints that have a nonzero multiplier, sorted by
            first record.
        f: Array of shape (C,) with the multipliers for these constraints, which are positive.
        source: The first record of each constraint, by constraint index.
        spare: Array of shape (N,) with the largest sum of multipliers that may be left out for each first record.
        rows, values: Arrays of shape (C,) that receive the constraint indices and the multipliers.
    """
    count = start = 0
    shares = np.zeros(64)
    while start < candidates.size:
        i, end = source[candidates[start]], start
        while end < candidates.size and source[candidates[end]] == i:
            end += 1
        # shares[c] is the sum of the multipliers in class c, which are about 2^-c times `allowed`. Classes from `cut`
        # on are omitted.
        allowed, cut = spare[i], 64
        if allowed > 0.0:
            shares[:] = 0.0
            for m in range(start, end):
                if f[m] < allowed:
                    shares[min(63, -math.frexp(f[m] / allowed)[1])] += f[m]
            total = 0.0
            # Whole classes are left out, starting with the smallest multipliers, as long as their sum is small enough.
            # The margin covers the rounding of the sum.
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
    """Return the multipliers of one output that are worth storing.

    Args:
        candidates: Array of shape (C,) with the indices of the constraints that have a nonzero multiplier, sorted by
            first record.
        f: Array of shape (C,) with the multipliers for these constraints, which are positive.
        source: The first record of each constraint, by constraint index.
        spare: Array of shape (N,) with the largest sum of multipliers that may be left out for each first record.

    Returns:
        An array of constraint indices, and an array of the multipliers for these constraints.
    """
    rows, values = np.empty(len(candidates), dtype=np.uint32), np.empty(len(candidates))
    count = _select_rows(candidates, f, source, spare, rows, values)
    return rows[:count].copy(), values[:count].copy()


@frozen(kw_only=True, eq=False)
class SparseMultipliers:
    """Nonzero multipliers for directed privacy constraints, stored output by output.

    Attributes:
        pairs: Array of shape (P, 2) with the records (i, j) of each constraint ``z_ik <= growth z_jk``.
        growth: Array of shape (P,) with finite factors, each at least exp(eps d) for its pair.
        starts: Array of shape (K + 1,) with offsets. The elements ``starts[k]:starts[k + 1]`` of ``rows`` and
            ``values`` belong to output k.
        rows: Array of shape (M,) and type uint32 with indices into ``pairs``, in ascending order within each output.
        values: Array of shape (M,) with finite, positive multipliers.
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
        """Convert multipliers for pairs to multipliers for directed constraints, leaving out those not worth storing.

        For each output and each first record i, the smallest multipliers are left out as long as their sum is at most
        ``spare[i]``. Leaving out a multiplier lowers the bound by at most its value, because the multiplier only raises
        the reduced cost of record i. In total, the bound drops by at most the sum of ``spare``.

        Args:
            multipliers: The multipliers for ``pairs``.
            pairs: Array of shape (P, 2) with distinct pairs of records.
            growth: Array of shape (P,) with factors, each at least exp(eps d). Constraints with an infinite factor are
                left out, and the bound remains valid.
            shape: The numbers of records and outputs, (N, K).
            spare: Array of shape (N,) with the largest amount by which the bound may drop for each record. All amounts
                must be at least 0, and are 0 by default.
            max_multipliers: The maximum number of multipliers to store.

        Raises:
            MemoryError: More than ``max_multipliers`` multipliers would have to be stored.
            OutOfTime: The time limit expired.
            UsageError: A multiplier belongs to a pair or an output that does not exist.
        """
        records, outputs = shape
        # Directed constraints are sorted by first record, then by second. Those with first record i have the indices
        # group[i] to group[i + 1] - 1.
        group, target, entry = neighbours(records, pairs)
        source = np.repeat(np.arange(records), np.diff(group))
        # Each pair p has two directed constraints. Element 2 p is the position of the constraint whose first record is
        # the pair's first record, and element 2 p + 1 is the position of the reverse constraint.
        row_position = np.empty(len(entry), dtype=np.int64)
        row_position[2 * entry + (source == pairs[entry, 1])] = np.arange(len(entry))
        has_finite_growth, allowed = np.isfinite(growth[entry]), np.zeros(records) if spare is None else spare
        parts_by_output: dict[int, tuple[NDArray[np.uint32], Floats]] = {}
        # `sizes` is reused for all outputs. Only entries that were set for the current output are read.
        sizes, many = np.zeros(len(entry)), 0
        for k, pair_numbers, signed in multipliers.rows():
            check()
            if k >= outputs or pair_numbers.max(initial=-1) >= len(pairs):
                raise UsageError(f"multipliers must be of {outputs} outputs and {len(pairs)} pairs, got more")
            row = row_position[2 * pair_numbers + (signed < 0.0)]
            sizes[row] = np.abs(signed)
            # `_select_rows` requires constraints with the same first record to be adjacent.
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
        """Return the multipliers selected by a boolean mask of shape (M,), keeping only the pairs that they use."""
        # The new index of a pair is the number of remaining pairs before it, and the new offsets count selected
        # multipliers.
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
        """Return proved lower bounds on each record's smallest reduced cost, min_k g_ik.

        Args:
            cost: Array of shape (N, K) with the finite costs times the prior.

        Returns:
            Array of shape (N,) with the lower bounds, and a boolean array of shape (K,) that is True for each output
            with a sum that overflows. These outputs are excluded from the minima.
        """
        lower, _, wild = self._enclose_minima(cost, cost, 0.0, np.zeros(len(self.growth)), None)
        return lower, wild

    def _enclose_minima(
        self, cost: Floats, max_cost: Floats, error: float, spread: Floats, interior: Inside | None
    ) -> tuple[Floats, Floats, Bools]:
        """Return proved lower and upper bounds on each record's smallest reduced cost, min_k g_ik.

        Args:
            cost, max_cost: Arrays of shape (N, K) with lower and upper bounds on the exact costs (prior included), up
                to ``error``.
            error: The relative error of ``cost`` and ``max_cost``.
            spread: Array of shape (P,) with the amount by which ``growth`` may exceed exp(eps d).
            interior: The positions of the records inside street pieces, for a bound over all streets, or None.

        Returns:
            Two arrays of shape (N,) with the lower and the upper bounds, and a boolean array of shape (K,) that is True
            for each output with a sum that overflows. These outputs are excluded from the minima.
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
            # For a record inside a street piece, the minimum includes one more term (u*_i in `street_proof`).
            lower[is_interior], upper[is_interior] = (
                np.minimum(lower, chord_lower)[is_interior],
                np.minimum(upper, chord_upper)[is_interior],
            )
        return lower, upper, wild

    def enclose_bound(
        self, cost: Floats, max_cost: Floats, error: float, lower: Floats, interior: Inside | None = None
    ) -> tuple[float, float]:
        """Return two doubles that enclose the exact bound proved by the multipliers.

        Args:
            cost, max_cost: Arrays of shape (N, K) with finite lower and upper bounds on the exact costs (prior
                included), up to ``error``.
            error: The relative error of ``cost`` and ``max_cost``.
            lower: Array of shape (P,) with factors, each at most exp(eps d) for its pair.
            interior: The positions of the records inside street pieces, for a bound over all streets
                (:mod:`privopt_metric_dp.proof.street_proof`), or None.

        Returns:
            The lower and upper ends of the enclosure. They are minus and plus infinity if a sum overflows.
        """
        # The exact factor lies between `lower` and `growth`. The sums below use `growth`, which gives the lower end,
        # and add the difference to get the upper end.
        spread = np.where(lower < self.growth, self.growth - lower, 0.0)
        min_values, max_values, wild = self._enclose_minima(cost, max_cost, error, spread, interior)
        return (-math.inf, math.inf) if wild.any() else (sum_down(min_values), -sum_down(-max_values))

    def tame(self, cost: Floats) -> tuple[Self, float]:
        """Drop the multipliers of outputs whose sums overflow, and return the rest with the bound they prove.

        Args:
            cost: Array of shape (N, K) with the finite costs times the prior.

        Returns:
            The remaining multipliers, and their bound, rounded down.
        """
        lower, wild = self.min_bounds(cost)
        if not wild.any():
            return self, sum_down(lower)
        # Multipliers of 0 are valid for every output, so the remaining multipliers still prove a bound.
        tame = self.only(~np.repeat(wild, np.diff(self.starts)))
        return tame, tame.bound(cost)

    def bound(self, cost: Floats) -> float:
        """Return the lower bound that the multipliers prove on every mechanism's loss, rounded down.

        If a sum overflows, the bound is minus infinity.

        Args:
            cost: Array of shape (N, K) with the finite costs times the prior.
        """
        lower, wild = self.min_bounds(cost)
        return -math.inf if wild.any() else sum_down(lower)


def lower_bound(cost: Floats, pairs: Ints, distances: Floats, epsilon: Fraction, multipliers: Multipliers) -> float:
    """Return a proved lower bound on the loss of every mechanism, rounded down.

    Args:
        cost: Array of shape (N, K) with the finite costs times the prior.
        pairs: Array of shape (P, 2) with the record indices of each pair covered by the guarantee.
        distances: Array of shape (P,) with the distance of each pair. The doubles are taken to be exact.
        epsilon: The exact epsilon of the guarantee, even if the linear program was solved for a smaller epsilon.
        multipliers: Any multipliers. Those for outputs whose sums overflow are treated as 0.

    Returns:
        The bound proved by the multipliers, or the trivial bound if it is larger. The trivial bound is the loss if
        every record reports its cheapest output. If there are no pairs, the trivial bound is the optimum.

    Raises:
        OutOfTime: The time limit expired.
        UsageError: An argument has the wrong shape or is out of range, or a multiplier belongs to a pair or an output
            that does not exist.
    """
    cost = np.ascontiguousarray(cost, dtype=np.float64)
    if cost.ndim != 2 or not cost.size or not np.isfinite(cost).all():
        raise UsageError(f"cost must be finite and of shape (N, K); it has shape {cost.shape}")
    pairs, distances = check_pairs(pairs, distances, len(cost))
    sparse = SparseMultipliers.of(multipliers, pairs, exp_bounds(distances, epsilon)[1], cost.shape)
    return max(sparse.tame(cost)[1], sum_down(cost.min(axis=1)))


def sum_down(values: Floats) -> float:
    """Return the sum of an array of doubles, rounded down, or minus infinity if it overflows.

    ``math.fsum`` is correctly rounded, so a second call can reveal whether the first result was rounded up.
    """
    try:
        total = math.fsum(values.tolist())
        if total == -math.inf:  # subtracting an error bound can yield minus infinity
            return total
        return total if math.fsum([*values.tolist(), -total]) >= 0 else math.nextafter(total, -math.inf)
    except OverflowError:
        return -math.inf
