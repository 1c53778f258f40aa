"""The smallest epsilon for which a matrix satisfies metric DP, once each row is divided by its exact sum.

The search first bounds the log-ratios of all pairs in floating point, leaving only a few pairs that may determine
epsilon. The exact ratios of these pairs are then compared in ball arithmetic. A distance that cannot be represented
exactly as a double is given as a ball, that is, an interval that encloses it. Entries are never rounded, so even an
entry of 1e-300 counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any, Final

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.errors import UsageError
from privopt.execution.resources import in_threads
from privopt.numbers.exp_log_bounds import PRECISIONS, Ball, ball_of, float_up, rational_of_ball, sign_of
from privopt_metric_dp.matrix.certify import MIN_RATIOS_PER_THREAD, check_pairs

__all__ = ["ExactDistances", "LeastEpsilon", "exact_sums", "least_epsilon"]

LOG_OF_ZERO: Final = -4096.0
"""The number used in place of the logarithm of 0.

Its distance from the logarithm of any positive double exceeds the distance between any two such logarithms.
"""
INFINITE_LOG_RATIO: Final = 2048.0
"""The threshold above which a difference between two logarithms must involve :data:`LOG_OF_ZERO`."""
LOG_ERROR: Final = 2.0**-48
"""A bound on the error in the difference between two logarithms, relative to the larger of their absolute values.

It allows for an error of four units in the last place of each logarithm, plus a margin.
"""
_BLOCK_COLUMNS: Final = 128
"""The number of matrix columns processed at a time."""
_MAX_EXACT_PAIRS: Final = 4096
"""The maximum number of pairs to evaluate exactly in the search for the worst pair.

If there are more candidates, floating-point bounds are used for the rest.
"""


@frozen(kw_only=True)
class ExactDistances:
    """The exact distance between the two records of each pair, which may not be representable as a double.

    Attributes:
        above: (P,) Upper bounds on the distances of the P pairs, as doubles.
        balls: A function that takes an array of pair indices and returns a list with one function per pair. Each
            function in the list returns a ball that encloses the pair's distance, at the current precision of
            ``flint.ctx``.
    """

    above: Floats
    balls: Callable[[Ints], list[Ball]]


@frozen(kw_only=True)
class LeastEpsilon:
    """The smallest epsilon that a matrix satisfies, and the entries that determine it.

    Attributes:
        epsilon: The smallest epsilon, rounded up. It is infinite if no epsilon is large enough, and 0 if the two rows
            of every required pair are equal.
        holds: Whether the exact smallest epsilon is at most the target passed to :func:`least_epsilon`.
        pair: The indices of the two rows that require this epsilon. The row with the larger probability in column
            ``output`` comes first. None if epsilon is 0.
        output: The index of the column in which the ratio between these two rows is largest. None if epsilon is 0.
    """

    epsilon: float
    holds: bool
    pair: tuple[int, int] | None = None
    output: int | None = None


def exact_sums(values: NDArray[Any]) -> list[Fraction]:
    """Return the exact sum of each row of a matrix.

    Args:
        values: (N, K) Finite doubles or integers.
    """
    if values.dtype.kind != "f":
        return [Fraction(sum(row.tolist())) for row in values]
    return [_sum_exactly(row) for row in values]


def _sum_exactly(row: Floats) -> Fraction:
    """Return the exact sum of a one-dimensional array of finite doubles.

    The 53-bit mantissas of doubles with the same exponent are added up as integers.
    """
    mantissas, powers = np.frexp(row[row != 0])
    integers = np.ldexp(mantissas, 53).astype(np.int64)
    total = Fraction(0)
    for power in np.unique(powers).tolist():
        subtotal = sum(integers[powers == power].tolist())
        total += Fraction(subtotal) * Fraction(2) ** (power - 53)
    return total


def least_epsilon(
    values: NDArray[Any],
    pairs: Ints,
    distances: Floats,
    epsilon: Fraction,
    *,
    exact: ExactDistances | None = None,
    sums: list[Fraction] | None = None,
    progress: Callable[[str], object] | None = None,
) -> LeastEpsilon:
    """Return the smallest epsilon for which the normalised rows of a matrix satisfy metric DP.

    Let z be the matrix with each row divided by its exact sum. The condition is ``z_ik <= exp(epsilon d_ij) z_jk``, in
    both directions, for every required pair (i, j) and every column k.

    Args:
        values: (N, K) Finite, non-negative doubles or unsigned 64-bit integers.
        pairs: (P, 2) The row indices of each required pair, in either order.
        distances: (P,) The distance of each pair. The doubles are treated as exact, or as lower bounds if ``exact`` is
            given.
        epsilon: The exact target epsilon, above 0.
        exact: The exact distances. None if the doubles in ``distances`` are exact.
        sums: The N exact row sums from :func:`exact_sums`. By default, they are computed.
        progress: A function that is called with a description of each step before it starts.

    Returns:
        The smallest epsilon, rounded up; whether it is at most the target; and the rows and the column that determine
        it.

    Raises:
        UsageError: An argument has the wrong type or shape or is out of range, or a row sums to 0.
    """
    if values.ndim != 2 or values.dtype not in (np.float64, np.uint64):
        raise UsageError(
            f"values must be float64 or uint64 of shape (N, K), got {values.dtype} of shape {values.shape}"
        )
    pairs, distances = check_pairs(pairs, distances, len(values))
    sums = exact_sums(values) if sums is None else sums
    if not all(sums):
        raise UsageError(f"rows must have a sum above 0, got 0 in row {sums.index(Fraction(0))}")
    if not len(pairs):
        return LeastEpsilon(epsilon=0.0, holds=True)
    report = progress or (lambda _: None)
    report(f"{len(pairs):,} pairs")
    # The first pass computes the largest log-ratio of each pair in floating point, up to an error bound.
    log_differences, log_error = _max_differences(values, sums, pairs)
    zero_pairs = np.flatnonzero(log_differences > INFINITE_LOG_RATIO)
    # In these pairs, one row is 0 where the other one is positive, so no epsilon is large enough.
    if zero_pairs.size:
        return _result_for_pair(values, sums, pairs[zero_pairs[0]], math.inf, holds=False)
    zero_distance_pairs = np.flatnonzero(distances == 0)
    # The pairs whose rows differ although their distance is 0 as a double. The logarithms reveal most of them, and
    # exact ratios the others.
    unequal = [
        p
        for p in zero_distance_pairs.tolist()
        if log_differences[p] > log_error or _max_ratio(values, sums, *pairs[p].tolist())[0] != 1
    ]
    exact = exact or ExactDistances(
        above=distances, balls=lambda rows: [partial(ball_of, Fraction(x)) for x in distances[rows]]
    )
    unequal_rows = np.array(unequal, dtype=np.int64)
    for p, ball in zip(unequal, exact.balls(unequal_rows), strict=True):
        # If the exact distance is not proved to be above 0, different rows count as needing an infinite epsilon.
        if sign_of(ball) != 1:
            return _result_for_pair(values, sums, pairs[p], math.inf, holds=False)
    # The remaining pairs with different rows have a distance of 0 only because it was rounded down.
    positive_pairs = np.concatenate([np.flatnonzero(distances > 0), unequal_rows])
    if not positive_pairs.size:
        return LeastEpsilon(epsilon=0.0, holds=True)
    positive_distances = ExactDistances(
        above=exact.above[positive_pairs], balls=lambda rows: exact.balls(positive_pairs[rows])
    )
    return _find_worst(
        values,
        sums,
        pairs[positive_pairs],
        distances[positive_pairs],
        positive_distances,
        epsilon,
        log_differences[positive_pairs],
        log_error,
        report,
    )


def _max_differences(values: NDArray[Any], sums: list[Fraction], pairs: Ints) -> tuple[Floats, float]:
    """Compute the largest absolute difference between the log-probabilities of the two rows of each pair.

    Args:
        values: (N, K) The matrix entries.
        sums: The N exact row sums. Each row is divided by its sum.
        pairs: (P, 2) The row indices of each pair.

    Returns:
        An array of shape (P,) with the largest absolute difference over all columns for each pair, and a bound on the
        absolute error of these differences. A difference is above :data:`INFINITE_LOG_RATIO` if any column is 0 in
        exactly one of the two rows.
    """
    from privopt_metric_dp.matrix.log_ratios import DOUBLE_LANES, raise_to_differences

    left_rows, right_rows = (np.ascontiguousarray(pairs[:, end]) for end in (0, 1))
    # Subtracting the logarithm of a row's sum divides the row by it.
    shift = np.array(list(map(_log, sums)))[:, None]
    # The error bound is relative to `max_log`, which is at least 1 and at least the largest absolute logarithm.
    differences, max_log = np.zeros(len(pairs)), 1.0
    for start in range(0, values.shape[1], _BLOCK_COLUMNS):
        block = values[:, start : start + _BLOCK_COLUMNS].astype(np.float64)
        # Rows are padded with zeros to a multiple of the SIMD vector length. This adds differences of 0, which change
        # no maximum.
        logs = np.zeros((len(block), -(-block.shape[1] // DOUBLE_LANES) * DOUBLE_LANES))
        with np.errstate(divide="ignore"):
            block_logs = np.where(block > 0, np.log(block) - shift, LOG_OF_ZERO)
        logs[:, : block.shape[1]] = block_logs
        max_log = max(max_log, float(np.abs(block_logs[block > 0]).max(initial=0.0)), float(np.abs(shift).max()))
        flat = (logs.ravel(), logs.shape[1] // DOUBLE_LANES)

        def raise_block(start: int, stop: int, flat: tuple[Floats, int] = flat) -> None:
            """Update the maxima of pairs ``start`` to ``stop - 1`` with the current block of columns."""
            raise_to_differences(*flat, left_rows[start:stop], right_rows[start:stop], differences[start:stop])

        in_threads(raise_block, left_rows.size, min_span=MIN_RATIOS_PER_THREAD // logs.shape[1])
    return differences, LOG_ERROR * max_log


def _log(total: Fraction) -> float:
    """Return the natural logarithm of a positive rational, even if its numerator or denominator overflows a double."""
    power = total.numerator.bit_length() - total.denominator.bit_length()
    # The rational is first divided by a power of two, so that the quotient is between 1/2 and 2 and fits into a double.
    return math.log(total / Fraction(2) ** power) + power * math.log(2.0)


def _max_ratio(values: NDArray[Any], sums: list[Fraction], i: int, j: int) -> tuple[Fraction, int, bool]:
    """Return the exact value of the largest ratio between two normalised rows, over all columns and both directions.

    Args:
        values: (N, K) The matrix entries.
        sums: The N exact row sums.
        i, j: The indices of the two rows, which must be 0 in the same columns.

    Returns:
        The ratio, the index of the column in which it occurs, and whether row i has the larger probability there.
    """
    row_i, row_j = values[i].astype(np.float64), values[j].astype(np.float64)
    columns = np.flatnonzero(row_i > 0)
    logs = np.log(row_i[columns]) - np.log(row_j[columns])
    shift = sums[j] / sums[i]
    log_shift = _log(shift)
    sizes = np.abs(logs + log_shift)
    # The error in a difference of logarithms is below 1e-11, so the column with the largest ratio is among these.
    candidates = columns[sizes >= sizes.max() - 1e-11]
    # Integer products are compared instead of rationals, because reducing rationals to lowest terms takes longer.
    numerator, denominator, best_column, is_i_larger = 0, 1, -1, False
    for k, x, y in zip(
        candidates.tolist(), values[i, candidates].tolist(), values[j, candidates].tolist(), strict=True
    ):
        # The two entries are a / b and c / d, and z_ik / z_jk is their quotient times `shift`.
        (a, b), (c, d) = x.as_integer_ratio(), y.as_integer_ratio()
        product_i, product_j = a * d * shift.numerator, b * c * shift.denominator
        is_up = product_i >= product_j
        product_i, product_j = (product_i, product_j) if is_up else (product_j, product_i)
        if product_i * denominator > numerator * product_j:
            numerator, denominator, best_column, is_i_larger = product_i, product_j, k, is_up
    # Every row sums to more than 0, so at least one column has positive entries and `best_column` has been set.
    return Fraction(numerator, denominator), best_column, is_i_larger


def _result_for_pair(
    values: NDArray[Any], sums: list[Fraction], pair: Ints, epsilon: float, *, holds: bool
) -> LeastEpsilon:
    """Return the result for the worst pair of rows, with the column and direction in which the ratio is largest.

    Args:
        values: (N, K) The matrix entries.
        sums: The N exact row sums.
        pair: (2,) The indices of the two rows.
        epsilon: The smallest epsilon that the matrix satisfies, rounded up.
        holds: Whether the exact smallest epsilon is at most the target.
    """
    i, j = pair.tolist()
    # If only one of the two rows is 0 in a column, the ratio is infinite. If there are several such columns, the one
    # with the largest entry is reported.
    one_sided = np.flatnonzero((values[i] > 0) != (values[j] > 0))
    if one_sided.size:
        k = int(one_sided[np.argmax(np.maximum(values[i, one_sided], values[j, one_sided]))])
        is_i_larger = bool(values[i, k] > 0)
    else:
        _, k, is_i_larger = _max_ratio(values, sums, i, j)
    return LeastEpsilon(epsilon=epsilon, holds=holds, pair=(i, j) if is_i_larger else (j, i), output=k)


def _find_worst(
    values: NDArray[Any],
    sums: list[Fraction],
    pairs: Ints,
    distances: Floats,
    exact: ExactDistances,
    epsilon: Fraction,
    log_differences: Floats,
    error: float,
    report: Callable[[str], object],
) -> LeastEpsilon:
    """Find the pair with the largest log-ratio per unit of distance, and decide whether it exceeds the target epsilon.

    Args:
        values: (N, K) The matrix entries.
        sums: The N exact row sums.
        pairs: (P, 2) The row indices of each pair, with P >= 1. The two rows of a pair must be 0 in the same columns.
        distances: (P,) Lower bounds on the distances, as doubles. A bound is 0 only if a positive distance was rounded
            down to 0.
        exact: The exact distances, all above 0.
        epsilon: The exact target epsilon.
        log_differences: (P,) The largest log-ratio of each pair, in floating point.
        error: A bound on the absolute error of ``log_differences``.
        report: A function that is called with a description of each step before it starts.

    Returns:
        The largest log-ratio divided by distance, rounded up; whether it is at most the target; and the pair and the
        column that attain it. If the two rows of every pair are equal, epsilon is 0 and there is no pair.
    """
    with np.errstate(over="ignore", divide="ignore"):  # at a distance such as 1e-310, a rate may overflow
        upper_rates, lower_rates = (
            (log_differences + error) / distances * (1.0 + 2.0**-50),
            (log_differences - error) / exact.above * (1.0 - 2.0**-50),
        )
    # The worst pair's upper bound is at least the largest lower bound of all pairs, so it is among the candidates.
    candidates = np.flatnonzero(upper_rates >= lower_rates.max())
    # The largest upper bounds come first, because only the first `_MAX_EXACT_PAIRS` candidates are evaluated exactly.
    candidates = candidates[np.argsort(-upper_rates[candidates], kind="stable")]
    value, worst_row = 0.0, -1
    for p, ball in zip(candidates[:_MAX_EXACT_PAIRS].tolist(), exact.balls(candidates[:_MAX_EXACT_PAIRS]), strict=True):
        rate = _round_rate_up(_max_ratio(values, sums, *pairs[p].tolist())[0], ball)
        if rate > value:
            value, worst_row = rate, p
    if len(candidates) > _MAX_EXACT_PAIRS:
        # Of the candidates that were not evaluated, the first one has the largest upper bound.
        value = max(value, float(upper_rates[candidates[_MAX_EXACT_PAIRS]]))
    # If no rate is above 0, the two rows of every pair are equal.
    if worst_row < 0:
        return LeastEpsilon(epsilon=0.0, holds=True)
    epsilon_double = float(epsilon)
    undecided = np.flatnonzero(upper_rates >= epsilon_double * (1.0 - 2.0**-50))
    report(f"{len(undecided):,} pairs at the limit")
    holds = math.isfinite(value) and Fraction(value) <= epsilon
    if not holds:
        # The value is rounded up, so it may exceed epsilon although no pair does. Therefore each pair near epsilon is
        # decided on its own.
        holds = not (lower_rates[undecided] > epsilon_double * (1.0 + 2.0**-50)).any() and all(
            _satisfies_epsilon(_max_ratio(values, sums, *pairs[p].tolist())[0], epsilon, ball)
            for p, ball in zip(undecided.tolist(), exact.balls(undecided), strict=True)
        )
    # The returned value must agree with the decision, which is exact.
    value = min(value, float_up(epsilon)) if holds else max(value, math.nextafter(epsilon_double, math.inf))
    return _result_for_pair(values, sums, pairs[worst_row], value, holds=holds)


def _round_rate_up(ratio: Fraction, distance: Ball) -> float:
    """Return ln(ratio) / distance rounded up, or infinity if the distance cannot be proved to be positive.

    Args:
        ratio: The exact ratio of two probabilities, at least 1.
        distance: A function that returns a ball enclosing the exact distance, at the current precision.
    """
    if ratio == 1:
        return 0.0
    import flint

    # If the ratio is just above 1, its logarithm is tiny, and many leading bits cancel. The precision is raised by
    # their number.
    extra_bits = max(0, ratio.denominator.bit_length() - (ratio - 1).numerator.bit_length())
    # The precision is raised until more than 64 bits of the rate are certain.
    for bits in PRECISIONS:
        with flint.ctx.workprec(bits + extra_bits):
            rate = ball_of(ratio).log() / distance()
            if rate.is_finite() and rate.rel_accuracy_bits() > 64:
                break
    return float_up(rational_of_ball(rate.upper())) if rate.is_finite() else math.inf


def _satisfies_epsilon(ratio: Fraction, epsilon: Fraction, distance: Ball) -> bool:
    """Return whether ``ratio <= exp(epsilon d)`` can be proved.

    Args:
        ratio: The exact ratio of two probabilities.
        epsilon: The exact epsilon per unit of distance.
        distance: A function that returns a ball enclosing the exact distance d, at the current precision.
    """
    # The sign of epsilon d - ln(ratio) must be 1 or 0. It is None if no precision decides it, and then nothing is
    # proved.
    return ratio <= 1 or sign_of(lambda: ball_of(epsilon) * distance() - ball_of(ratio).log()) in (0, 1)
