"""The certificate of metric DP, which proves all required inequalities for a release.

Let w be integer weights whose rows sum to 2**63. For each required pair (i, j) at distance d and every output k, the
claim is ``w_ik <= exp(eps d) w_jk``, and the same with i and j exchanged. Most inequalities are decided by
floating-point arithmetic that is rounded to the safe side. A second stage decides the rest by comparing exact integers
with balls (intervals that enclose the exact value). It always terminates, because exp of a rational other than 0 is
irrational.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints, Unsigned
from privopt.errors import UsageError
from privopt.execution.resources import in_threads
from privopt.numbers.exp_log_bounds import exp_bounds, exp_fixed, float_up, log_bounds
from privopt.run.measure import content_key, facts

__all__ = [
    "Failure",
    "Measurements",
    "certify",
    "certify_in_doubles",
    "check_pairs",
    "exact_ratio",
    "make_failure",
    "max_log_ratios",
    "max_ratios",
    "rows_with_wrong_sum",
]


#: Factor that covers the rounding errors of a ratio in doubles (conversions, reciprocal, product), at most 5 x 2**-53.
RATIO_MARGIN = 1.0 + 2.0**-50
#: Replacement for a weight of 0 in doubles. Two zeros then have ratio 1, and a positive weight and 0 one above 2**100.
ZERO = 2.0**-200
#: Number of ratios below which starting a thread takes more time than it saves.
MIN_RATIOS_PER_THREAD = 5_000_000
#: Number of matrix columns that are processed at a time.
_BLOCK_COLUMNS = 128
#: With up to this many rows, a block of `_BLOCK_COLUMNS` columns stays in the processor's cache. With more rows, pairs
#: are sorted so that they reuse cached rows.
IN_CACHE = 2_000
#: Number of ratios up to which loading compiled code takes more time than it saves.
MIN_COMPILED_RATIOS = 10_000
#: Largest number of violated inequalities, and of rows with a wrong sum, to list.
_MAX_SHOWN = 8
#: Number of pairs, those with the largest estimates, whose log-ratio is evaluated exactly.
_MAX_EXACT_PAIRS = 64


def _content_key(weights: Unsigned, pairs: Ints, distances: Floats, epsilon: Fraction) -> bytes:
    """Return a cache key for the measurements: a digest of all arguments that determine them."""
    return content_key(f"certify {weights.shape} {len(pairs)} {epsilon}", weights, pairs, distances)


@frozen(kw_only=True)
class Failure:
    """A violated inequality: weight (i, k) exceeds exp(epsilon d) times weight (j, k), where d is the pair's distance.

    Attributes:
        i, j: The indices of the two records.
        k: The index of the output.
    """

    i: int
    j: int
    k: int


@frozen(kw_only=True)
class Measurements:
    """The result of checking a release's inequalities and row sums.

    Attributes:
        holds: Whether every row sums to 2**63 and every inequality was proved.
        worst: The largest log-ratio per unit of distance over all pairs and outputs, rounded up. The rounding adds at
            most an ulp or, if more than 64 pairs are equally bad, up to about 1e-15 / distance. The value is infinite
            if two rows at distance 0 differ, or if a column is 0 in exactly one row of a pair.
        allowed: The double nearest to epsilon.
        checked: The number of pairs times the number of outputs. Each inequality is checked in both directions.
        arithmetic: A phrase that describes the arithmetic used.
        worst_pair: The indices of the two records that attain ``worst``, or None if no pair is required.
        failures: The first few violated inequalities, in the order of the pairs.
        failed: The number of pairs with a violated inequality.
        wrong_rows: The indices of the first few rows that do not sum to 2**63.
    """

    holds: bool
    worst: float
    allowed: float
    checked: int
    arithmetic: str
    worst_pair: tuple[int, int] | None = None
    failures: tuple[Failure, ...] = ()
    failed: int = 0
    wrong_rows: tuple[int, ...] = ()


def max_ratios(weights: Floats | Unsigned, pairs: Ints) -> Floats:
    """Return, for each pair of rows, the largest ratio between two entries in the same column.

    The larger entry is divided by the smaller one, so ratios are at least 1.

    Args:
        weights: Array of shape (N, K) with the weights or probabilities. Zeros are replaced by a tiny number (`ZERO`).
        pairs: Array of shape (P, 2) with the row indices of each pair.

    Returns:
        Array of shape (P,) with the ratios, each with a relative error below 2**-50 in either direction.
    """
    left_rows, right_rows = (np.ascontiguousarray(pairs[:, end]) for end in (0, 1))
    if left_rows.size * weights.shape[1] <= MIN_COMPILED_RATIOS:
        values = np.where(weights == 0, ZERO, weights)
        ratios = values[left_rows] * (1.0 / values)[right_rows]
        # The largest ratio in the other direction is the reciprocal of the smallest one.
        ratios_small: Floats = np.maximum(np.maximum(ratios.max(axis=1), 1.0 / ratios.min(axis=1)), 1.0)
        return ratios_small
    from privopt_metric_dp.matrix.log_ratios import DOUBLE_LANES, raise_to_ratios

    greatest, order = np.ones(left_rows.size), None
    # Pairs are sorted by groups of four left rows and then by the right row, so that each right row is loaded only once
    # for four left rows. Pairs that are already in order consist of ascending runs, which a stable sort only has to
    # merge.
    if len(weights) > IN_CACHE and left_rows.size > len(weights):
        order = np.argsort(left_rows // 4 * len(weights) + right_rows, kind="stable")
        left_rows, right_rows = left_rows[order], right_rows[order]
    for start in range(0, weights.shape[1], _BLOCK_COLUMNS):
        block = weights[:, start : start + _BLOCK_COLUMNS]
        # Rows are padded with ones to a multiple of the vector's lanes. This adds ratios of 1, which change no maximum.
        values = np.ones((len(block), -(-block.shape[1] // DOUBLE_LANES) * DOUBLE_LANES))
        values[:, : block.shape[1]] = np.where(block == 0, ZERO, block)
        flat = (values.ravel(), (1.0 / values).ravel(), values.shape[1] // DOUBLE_LANES)

        def raise_block(start: int, stop: int, flat: tuple[Floats, Floats, int] = flat) -> None:
            """Update the maxima of pairs ``start`` to ``stop - 1`` for the current block of columns."""
            raise_to_ratios(*flat, left_rows[start:stop], right_rows[start:stop], greatest[start:stop])

        in_threads(raise_block, left_rows.size, min_span=MIN_RATIOS_PER_THREAD // values.shape[1])
    if order is not None:
        # Restore the order of the pairs.
        greatest[order] = greatest.copy()
    return greatest


def max_log_ratios(rows: Floats | Unsigned, pairs: Ints) -> Floats:
    """Return, for each pair of rows, the largest absolute log-ratio in any column, for plots and statistics.

    Args:
        rows: Array of shape (N, K) with weights, or with probabilities that are 0 or at least 2**-64.
        pairs: Array of shape (P, 2) with the row indices of each pair.

    Returns:
        Array of shape (P,) with the log-ratios, whose errors are below about 2**-50. A log-ratio is infinite if a
        column is 0 in exactly one of the two rows.
    """
    ratios = max_ratios(rows, pairs)
    # Weights are below 2**64, so a ratio above 2**100 means that one weight is 0 (replaced by `ZERO`).
    return np.where(ratios > 2.0**100, np.inf, np.log(ratios))


def check_pairs(pairs: Ints, distances: Floats, records: int) -> tuple[Ints, Floats]:
    """Validate pairs and distances, and convert them to contiguous arrays of type int64 and float64.

    Args:
        pairs: Array of shape (P, 2) with the record indices of each pair. An empty array may have any shape.
        distances: Array of shape (P,) with the distance between the two records of each pair.
        records: The number of records.

    Raises:
        UsageError: A shape is wrong, an index is out of range, a pair consists of a record and itself, or a distance is
            negative or not finite.
    """
    pairs = np.ascontiguousarray(pairs, dtype=np.int64).reshape(-1, 2)
    distances = np.ascontiguousarray(distances, dtype=np.float64)
    if distances.shape != (len(pairs),):
        raise UsageError(f"distances must be one for each of {len(pairs)} pairs, got shape {distances.shape}")
    if len(pairs):
        if pairs.min() < 0 or pairs.max() >= records or (pairs[:, 0] == pairs[:, 1]).any():
            raise UsageError(f"pairs must name two different records of 0 to {records - 1}")
        if not (np.isfinite(distances).all() and (distances >= 0).all()):
            raise UsageError("distances must be finite and at least 0")
    return pairs, distances


def rows_with_wrong_sum(weights: Unsigned) -> Ints:
    """Return the indices of the rows of weights that do not sum to exactly 2**63.

    Args:
        weights: Array of shape (N, K) and type uint64.
    """
    # The upper and lower 32 bits are summed separately, because a sum of 64-bit weights could overflow.

    def check_rows(start: int, stop: int) -> Ints:
        """Return the indices of the rows with a wrong sum among rows ``start`` to ``stop - 1``."""
        high_sums = (weights[start:stop] >> np.uint64(32)).sum(axis=1, dtype=np.uint64)
        low_sums = (weights[start:stop] & np.uint64(0xFFFFFFFF)).sum(axis=1, dtype=np.uint64)
        carried_high = high_sums + (low_sums >> np.uint64(32))
        # The upper half of 2**63 is 2**31, and its lower half is 0.
        is_right = (carried_high == np.uint64(1 << 31)) & ((low_sums & np.uint64(0xFFFFFFFF)) == 0)
        return start + np.flatnonzero(~is_right).astype(np.int64)

    return np.concatenate([np.zeros(0, dtype=np.int64), *in_threads(check_rows, len(weights))])


def _is_at_most(large: int, small: int, exponent: Fraction) -> bool:
    """Decide exactly whether ``large <= exp(exponent) * small``.

    Args:
        large, small: The two weights, which must be non-negative and below 2**64.
        exponent: The product of epsilon and the distance, which must be positive.
    """
    if large <= small:
        return True
    if small == 0:
        return False
    if exponent > 45:
        return True  # large < 2**64 < exp(45) < exp(exponent) small
    # Some precision always decides, because equality is impossible: exp of a rational other than 0 is irrational.
    bits = 96
    while True:
        lower, upper = exp_fixed(exponent, bits)
        if large << bits <= lower * small:
            return True
        if large << bits > upper * small:
            return False
        bits *= 2


def _decide_pair(row_a: Unsigned, row_b: Unsigned, exponent: Fraction, lower: float) -> tuple[list[int], int]:
    """Decide whether the privacy inequalities between two rows of weights are satisfied in every column.

    Args:
        row_a, row_b: Arrays of shape (K,) with the weights in the two rows.
        exponent: The exact product of epsilon and the distance, which must not be negative.
        lower: A double that is at most exp(exponent).

    Returns:
        The indices of the columns with a violated inequality, and the number of inequalities that had to be decided in
        exact integer arithmetic.
    """
    if exponent == 0:
        # At distance 0, the two rows must be equal.
        return np.flatnonzero(row_a != row_b).tolist(), row_a.size
    a, b = row_a.astype(np.float64), row_b.astype(np.float64)
    # A column that passes in doubles also passes exactly, because `lower` is rounded down and the margin covers errors.
    undecided = np.flatnonzero(np.maximum(a, b) * RATIO_MARGIN > np.minimum(a, b) * lower)
    failing = []
    for k in undecided.tolist():
        small, large = sorted((int(row_a[k]), int(row_b[k])))
        if not _is_at_most(large, small, exponent):
            failing.append(k)
    return failing, len(undecided)


def exact_ratio(row_a: Unsigned, row_b: Unsigned) -> Fraction:
    """Return the largest ratio between two rows of weights in any column and either direction, as an exact fraction.

    Args:
        row_a, row_b: Arrays of shape (K,), which must be 0 in the same columns.
    """
    # If both weights are 0, a denominator of 1 makes the ratio 0, which is never the largest.
    larger, smaller = np.maximum(row_a, row_b), np.maximum(np.minimum(row_a, row_b), 1)
    approximate = larger.astype(np.float64) / smaller.astype(np.float64)
    # Ratios in doubles have errors below the margin, so the largest exact ratio is in one of these columns.
    columns = np.flatnonzero(approximate * RATIO_MARGIN >= approximate.max()).tolist()
    return max((Fraction(int(larger[k]), int(smaller[k])) for k in columns if larger[k]), default=Fraction(1))


def _max_verified_ratio(weights: Unsigned, pairs: Ints, distances: Floats, ratios: Floats) -> tuple[float, int]:
    """Compute an upper bound v on the smallest epsilon satisfied by the weights, and find the worst pair.

    The bound is rigorous: ratio <= exp(v d) for all pairs. It is too large by at most a few ulps, or slightly more if
    many pairs are nearly as bad as the worst one.

    Args:
        weights: Array of shape (N, K) with the weights.
        pairs: Array of shape (P, 2), where P >= 1, with the record indices of each pair.
        distances: Array of shape (P,) with the distance d between the two records of each pair, which must be positive.
        ratios: Array of shape (P,) with the largest ratio of each pair as computed by `max_ratios`.

    Returns:
        v, and the index in ``pairs`` of the pair with the largest log-ratio per unit of distance.
    """
    estimates = np.log(ratios)
    estimates += 2.0**-50  # at least log RATIO_MARGIN, so that estimates are too high rather than too low
    with np.errstate(over="ignore"):
        estimates /= distances
    top_pairs = np.arange(len(estimates))
    if len(estimates) > _MAX_EXACT_PAIRS:
        top_pairs = np.sort(np.argpartition(estimates, -_MAX_EXACT_PAIRS)[-_MAX_EXACT_PAIRS:])
    ratio_of = ((float(distances[p]), exact_ratio(*weights[pairs[p]])) for p in top_pairs.tolist())
    exact = [log_bounds(ratio, Fraction(distance))[1] for distance, ratio in ratio_of]
    worst_row, value = int(top_pairs[int(np.argmax(exact))]), max(exact)
    # The relative error of an estimate is far below 2**-22, so a pair whose estimate is further below the value cannot
    # exceed it. For the other pairs, the inequality with exp is checked.
    near_pairs = np.flatnonzero(estimates >= value * (1.0 - 2.0**-22))
    near_pairs = near_pairs[~np.isin(near_pairs, top_pairs)]
    step = 2.0**-52
    while len(near_pairs) and math.isfinite(value):
        lower, _ = exp_bounds(distances[near_pairs], Fraction(value))
        if (ratios[near_pairs] * RATIO_MARGIN <= lower).all():
            break
        # If doubles do not prove the value for all pairs, it is raised in growing steps until they do.
        value, step = max(value, float(estimates[near_pairs].max())) * (1.0 + step), 2.0 * step
    return value, worst_row


def certify(
    weights: Unsigned,
    pairs: Ints,
    distances: Floats,
    epsilon: Fraction,
) -> Measurements:
    """Prove or refute that integer weights satisfy metric DP for the required pairs.

    Args:
        weights: Array of shape (N, K) and type uint64. The probability is weight / 2**63.
        pairs: Array of shape (P, 2) with the record indices of each required pair, in either order.
        distances: Array of shape (P,) with the distance of each pair. The doubles are treated as exact.
        epsilon: The exact epsilon per unit of distance, which must not be negative.

    Returns:
        The measurements. Computing them takes 2 P K multiplications. Exact integer arithmetic is needed only for the
        worst pairs, for pairs at distance 0, and for ratios within about a relative 2**-50 of their bound.

    Raises:
        UsageError: An argument has the wrong type or shape, or is out of range.
    """
    weights = np.ascontiguousarray(weights)
    if weights.ndim != 2 or weights.dtype != np.uint64:
        raise UsageError(f"weights must be uint64 of shape (N, K), got {weights.dtype} of shape {weights.shape}")
    if epsilon < 0:
        raise UsageError(f"epsilon must be at least 0, got {epsilon}")
    pairs, distances = check_pairs(pairs, distances, len(weights))
    # Measurements are cached, because a run may certify the same arrays several times. `facts` returns None if there is
    # no cache.
    memo = facts()
    key = b"" if memo is None else _content_key(weights, pairs, distances, epsilon)
    if memo is not None and key in memo:
        stored: Measurements = memo[key]
        return stored
    ratios = max_ratios(weights, pairs)
    measurements = _judge(weights, pairs, distances, epsilon, ratios, exp_bounds(distances, epsilon))
    if memo is not None:
        memo[key] = measurements
    return measurements


def certify_in_doubles(weights: Unsigned, pairs: Ints, distances: Floats, epsilon: Fraction) -> Measurements | None:
    """Return the result of :func:`certify`, or None if floating-point arithmetic cannot prove every inequality.

    Rows at distance 0 that are equal in floating point are still compared exactly. Arguments are not validated.

    Args:
        weights: Array of shape (N, K) and type uint64. The probability is weight / 2**63.
        pairs: Array of shape (P, 2) with the record indices of each required pair.
        distances: Array of shape (P,) with the distance of each pair.
        epsilon: The exact epsilon per unit of distance.
    """
    ratios = max_ratios(weights, pairs)
    bounds = exp_bounds(distances, epsilon)
    if not ((ratios * RATIO_MARGIN <= bounds[0]) | ((distances == 0) & (ratios == 1.0))).all():
        return None
    # The run will certify the same arrays again, so the measurements are cached.
    measurements, memo = _judge(weights, pairs, distances, epsilon, ratios, bounds), facts()
    if memo is not None:
        memo[_content_key(weights, pairs, distances, epsilon)] = measurements
    return measurements


def _judge(
    weights: Unsigned,
    pairs: Ints,
    distances: Floats,
    epsilon: Fraction,
    ratios: Floats,
    bounds: tuple[Floats, Floats],
) -> Measurements:
    """Decide the inequalities of all pairs, given their largest ratios and floating-point bounds on exp(epsilon d).

    Row sums are checked as well.

    Args:
        weights: Array of shape (N, K) and type uint64 with the weights.
        pairs: Array of shape (P, 2) with the record indices of each required pair.
        distances: Array of shape (P,) with the distance d of each pair.
        epsilon: The exact epsilon per unit of distance.
        ratios: Array of shape (P,) with the largest ratio of each pair, with a relative error below 2**-50.
        bounds: Two arrays of shape (P,) with lower and upper bounds on exp(epsilon d) as doubles.
    """
    wrong_row_numbers = rows_with_wrong_sum(weights)
    lower, upper = bounds
    # These pairs fail for certain, because `upper` is rounded up and the margins cover the errors of the ratios. Pairs
    # that neither fail nor pass for certain are decided exactly.
    is_broken = ratios > upper * (RATIO_MARGIN * RATIO_MARGIN)
    failed = np.flatnonzero(is_broken).tolist()
    failures: list[Failure] = []
    exact_count = 0
    # The comparison is negated so that NaN counts as undecided. At distance 0, rows must be equal, which ratios in
    # doubles cannot prove.
    for p in np.flatnonzero(~is_broken & (~(ratios * RATIO_MARGIN <= lower) | (distances == 0))).tolist():
        exponent = epsilon * Fraction(float(distances[p]))
        columns, count = _decide_pair(weights[pairs[p, 0]], weights[pairs[p, 1]], exponent, float(lower[p]))
        exact_count += count
        if columns:
            failed.append(p)
    failed.sort()
    for p in failed[:_MAX_SHOWN]:
        i, j = pairs[p].tolist()
        # The columns of pairs that fail for certain are not known yet.
        columns, _ = _decide_pair(weights[i], weights[j], epsilon * Fraction(float(distances[p])), float(lower[p]))
        failures.extend(make_failure(weights, i, j, k) for k in columns[: max(0, _MAX_SHOWN - len(failures))])
    worst, worst_pair = _worst_pair(weights, ratios, pairs, distances, epsilon, failed)
    checked = len(pairs) * weights.shape[1]
    return Measurements(
        holds=not failed and not len(wrong_row_numbers),
        worst=worst,
        allowed=float(epsilon),
        checked=checked,
        arithmetic=(
            f"row sums by exact integers; {checked - min(exact_count, checked)} inequalities (each both ways) by "
            f"outward-rounded doubles, {exact_count} by exact integers against ball arithmetic"
        ),
        worst_pair=worst_pair,
        failures=tuple(failures),
        failed=len(failed),
        wrong_rows=tuple(wrong_row_numbers[:_MAX_SHOWN].tolist()),
    )


def make_failure(weights: Unsigned, i: int, j: int, k: int) -> Failure:
    """Return the failure of a pair of records at output k, with the record that has the larger weight first."""
    return Failure(i=i, j=j, k=k) if weights[i, k] > weights[j, k] else Failure(i=j, j=i, k=k)


def _worst_pair(
    weights: Unsigned, ratios: Floats, pairs: Ints, distances: Floats, epsilon: Fraction, failed: Sequence[int]
) -> tuple[float, tuple[int, int] | None]:
    """Find the largest log-ratio per unit of distance, and the pair that attains it.

    Args:
        weights: Array of shape (N, K) and type uint64 with the weights.
        ratios: Array of shape (P,) with the largest ratio of each pair.
        pairs: Array of shape (P, 2) with the record indices of each required pair.
        distances: Array of shape (P,) with the distance of each pair.
        epsilon: The exact epsilon per unit of distance.
        failed: The indices into ``pairs`` of the pairs that failed.

    Returns:
        The value, rounded up, and the indices of the pair's two records, or 0 and None if no pair is required.
    """
    if not len(pairs):
        return 0.0, None
    # No epsilon is large enough if rows at distance 0 differ or if exactly one of two weights is 0. The latter means a
    # ratio above 2**100, because weights are below 2**64 and zeros are replaced by `ZERO`.
    unbounded_pairs = [p for p in failed if distances[p] == 0 or ratios[p] > 2.0**100]
    if unbounded_pairs:
        return math.inf, (int(pairs[unbounded_pairs[0], 0]), int(pairs[unbounded_pairs[0], 1]))
    if not distances.any():
        # All pairs are at distance 0 and have equal rows, so every pair attains the maximum of 0.
        return 0.0, (int(pairs[0, 0]), int(pairs[0, 1]))
    if not distances.all():
        separate_pairs = distances > 0
        pairs, distances, ratios = pairs[separate_pairs], distances[separate_pairs], ratios[separate_pairs]
    value, row = _max_verified_ratio(weights, pairs, distances, ratios)
    if not failed:
        # Every pair was proved to satisfy epsilon, so the value can exceed it only by rounding and is capped.
        value = min(value, float_up(epsilon))
    i, j = pairs[row].tolist()
    return value, (i, j)
