"""The smallest epsilon that a matrix satisfies, with each row divided by its exact sum.

Logarithms in doubles, with error bounds, select the pairs that may be the worst. For these, ratios of integers are
compared by ball arithmetic, over distances that are balls if no double equals them. Entries are never rounded: an entry
of 1e-300 counts.
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
from privopt.execution.limits import in_threads
from privopt.numbers.exp_log_bounds import PRECISIONS, Ball, ball_of, float_up, rational_of_ball, sign_of
from privopt_metric_dp.matrix.certify import MIN_RATIOS_PER_THREAD, check_pairs

__all__ = ["ExactDistances", "LeastEpsilon", "exact_sums", "least_epsilon"]

LOG_OF_ZERO: Final = -4096.0
"""Replaces the logarithm of 0. It is farther from the logarithm of any double than two of these from each other."""
INFINITE_LOG_RATIO: Final = 2048.0
"""A difference of logarithms above this has a 0 on one side."""
LOG_ERROR: Final = 2.0**-48
"""Relative error of a difference of two logarithms: four units in the last place of each, and a margin."""
_BLOCK_COLUMNS: Final = 128
_MAX_EXACT_PAIRS: Final = 4096
"""At most this many pairs are evaluated exactly to find the worst one; beyond, bounds in doubles are used."""


@frozen(kw_only=True)
class ExactDistances:
    """Distances of pairs that are not exactly representable as doubles.

    Attributes:
        above: (P,) upper bounds in doubles.
        balls: returns, for some rows, functions that enclose their distances at the current precision of ``flint.ctx``.
    """

    above: Floats
    balls: Callable[[Ints], list[Ball]]


@frozen(kw_only=True)
class LeastEpsilon:
    """The smallest epsilon of a matrix.

    Attributes:
        epsilon: rounded up; infinite if no epsilon is enough, 0 if all required rows are equal.
        holds: whether it is at most the target epsilon, decided exactly.
        pair: the rows that attain it, the larger probability first; None if epsilon is 0.
        output: the column that attains it.
    """

    epsilon: float
    holds: bool
    pair: tuple[int, int] | None = None
    output: int | None = None


def exact_sums(values: NDArray[Any]) -> list[Fraction]:
    """Return the exact sum of each row of a matrix (N, K) of finite doubles or integers."""
    if values.dtype.kind != "f":
        return [Fraction(sum(row.tolist())) for row in values]
    return [_sum_exactly(row) for row in values]


def _sum_exactly(row: Floats) -> Fraction:
    """Sum doubles exactly: their 53-bit mantissas are added as integers, one exponent at a time."""
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
    """Return the smallest epsilon with ``z_ik <= exp(epsilon d_ij) z_jk``, both ways, for all pairs and columns k.

    Args:
        values: (N, K) doubles or unsigned integers, finite, at least 0; z is each row over its exact sum.
        pairs: (P, 2) required pairs, undirected.
        distances: (P,) distances; each double stands for its exact value, or with ``exact`` for its lower bound.
        epsilon: target epsilon, exact, above 0.
        exact: the exact distances, if they are no doubles.
        sums: the result of :func:`exact_sums`, if it has been computed.
        progress: called with a description of the current work.

    Raises:
        UsageError: An argument has a wrong type or shape, or a row sums to 0.
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
    log_differences, log_error = _max_differences(values, sums, pairs)
    zero_pairs = np.flatnonzero(log_differences > INFINITE_LOG_RATIO)
    if zero_pairs.size:
        return _at(values, sums, pairs[zero_pairs[0]], math.inf, holds=False)
    zero_distance_pairs = np.flatnonzero(distances == 0)
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
        if sign_of(ball) != 1:
            return _at(values, sums, pairs[p], math.inf, holds=False)
    positive_pairs = np.concatenate(
        [np.flatnonzero(distances > 0), unequal_rows]
    )  # of 0, rounded down, and apart all the same
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
    """Return the largest difference of logarithms (P,) of each pair over all columns, and a bound of its error."""
    from privopt_metric_dp.matrix.log_ratios import DOUBLE_LANES, raise_to_differences

    left_rows, right_rows = (np.ascontiguousarray(pairs[:, end]) for end in (0, 1))
    shift = np.array(list(map(_log, sums)))[:, None]
    differences, max_log = np.zeros(len(pairs)), 1.0
    for start in range(0, values.shape[1], _BLOCK_COLUMNS):
        block = values[:, start : start + _BLOCK_COLUMNS].astype(np.float64)
        logs = np.zeros((len(block), -(-block.shape[1] // DOUBLE_LANES) * DOUBLE_LANES))
        with np.errstate(divide="ignore"):
            block_logs = np.where(block > 0, np.log(block) - shift, LOG_OF_ZERO)
        logs[:, : block.shape[1]] = block_logs
        max_log = max(max_log, float(np.abs(block_logs[block > 0]).max(initial=0.0)), float(np.abs(shift).max()))
        flat = (logs.ravel(), logs.shape[1] // DOUBLE_LANES)

        def raise_block(start: int, stop: int, flat: tuple[Floats, int] = flat) -> None:
            raise_to_differences(*flat, left_rows[start:stop], right_rows[start:stop], differences[start:stop])

        in_threads(raise_block, left_rows.size, min_span=MIN_RATIOS_PER_THREAD // logs.shape[1])
    return differences, LOG_ERROR * max_log


def _log(total: Fraction) -> float:
    """Return the logarithm of a rational with a small relative error, also if its terms overflow a double."""
    power = total.numerator.bit_length() - total.denominator.bit_length()
    return math.log(total / Fraction(2) ** power) + power * math.log(2.0)


def _max_ratio(values: NDArray[Any], sums: list[Fraction], i: int, j: int) -> tuple[Fraction, int, bool]:
    """Return the greatest ratio of two rows with zeros in the same columns, its column, and whether row i is above."""
    row_i, row_j = values[i].astype(np.float64), values[j].astype(np.float64)
    columns = np.flatnonzero(row_i > 0)
    logs = np.log(row_i[columns]) - np.log(row_j[columns])
    shift = sums[j] / sums[i]
    log_shift = _log(shift)
    sizes = np.abs(logs + log_shift)
    candidates = columns[sizes >= sizes.max() - 1e-11]
    numerator, denominator, best_column, is_i_larger = (
        0,
        1,
        -1,
        False,
    )  # of a product of whole numbers: rationals in lowest terms take longer
    for k, x, y in zip(
        candidates.tolist(), values[i, candidates].tolist(), values[j, candidates].tolist(), strict=True
    ):
        (a, b), (c, d) = x.as_integer_ratio(), y.as_integer_ratio()
        product_i, product_j = a * d * shift.numerator, b * c * shift.denominator
        is_up = product_i >= product_j
        product_i, product_j = (product_i, product_j) if is_up else (product_j, product_i)
        if product_i * denominator > numerator * product_j:
            numerator, denominator, best_column, is_i_larger = product_i, product_j, k, is_up
    return Fraction(numerator, denominator), best_column, is_i_larger  # a row sums to more than 0: there is a column


def _at(values: NDArray[Any], sums: list[Fraction], pair: Ints, epsilon: float, *, holds: bool) -> LeastEpsilon:
    """Return the verdict with the place of a pair's worst ratio; a 0 against a positive entry is the worst of all."""
    i, j = pair.tolist()
    odd = np.flatnonzero((values[i] > 0) != (values[j] > 0))
    if odd.size:
        k = int(odd[np.argmax(np.maximum(values[i, odd], values[j, odd]))])
        up = bool(values[i, k] > 0)
    else:
        _, k, up = _max_ratio(values, sums, i, j)
    return LeastEpsilon(epsilon=epsilon, holds=holds, pair=(i, j) if up else (j, i), output=k)


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
    """Return the largest log ratio / distance over pairs at positive distances with zeros in the same columns."""
    with np.errstate(over="ignore", divide="ignore"):  # distances of 1e-310 and the like: infinite, as the answer is
        upper_rates, lower_rates = (
            (log_differences + error) / distances * (1.0 + 2.0**-50),
            (log_differences - error) / exact.above * (1.0 - 2.0**-50),
        )
    candidates = np.flatnonzero(upper_rates >= lower_rates.max())
    candidates = candidates[np.argsort(-upper_rates[candidates], kind="stable")]
    value, worst_row = 0.0, -1
    for p, ball in zip(candidates[:_MAX_EXACT_PAIRS].tolist(), exact.balls(candidates[:_MAX_EXACT_PAIRS]), strict=True):
        rate = _round_rate_up(_max_ratio(values, sums, *pairs[p].tolist())[0], ball)
        if rate > value:
            value, worst_row = rate, p
    if len(candidates) > _MAX_EXACT_PAIRS:
        value = max(value, float(upper_rates[candidates[_MAX_EXACT_PAIRS]]))
    if worst_row < 0:
        return LeastEpsilon(epsilon=0.0, holds=True)
    epsilon_double = float(epsilon)
    undecided = np.flatnonzero(upper_rates >= epsilon_double * (1.0 - 2.0**-50))
    report(f"{len(undecided):,} pairs at the limit")
    holds = math.isfinite(value) and Fraction(value) <= epsilon
    if not holds:
        holds = not (lower_rates[undecided] > epsilon_double * (1.0 + 2.0**-50)).any() and all(
            _satisfies_epsilon(_max_ratio(values, sums, *pairs[p].tolist())[0], epsilon, ball)
            for p, ball in zip(undecided.tolist(), exact.balls(undecided), strict=True)
        )
    value = min(value, float_up(epsilon)) if holds else max(value, math.nextafter(epsilon_double, math.inf))
    return _at(values, sums, pairs[worst_row], value, holds=holds)


def _round_rate_up(ratio: Fraction, distance: Ball) -> float:
    """Return ln(ratio) / distance rounded up, for a ratio of at least 1; infinite if the distance may be 0."""
    if ratio == 1:
        return 0.0
    import flint

    extra_bits = max(0, ratio.denominator.bit_length() - (ratio - 1).numerator.bit_length())
    for bits in PRECISIONS:
        with flint.ctx.workprec(bits + extra_bits):
            rate = ball_of(ratio).log() / distance()
            if rate.is_finite() and rate.rel_accuracy_bits() > 64:
                break
    return float_up(rational_of_ball(rate.upper())) if rate.is_finite() else math.inf


def _satisfies_epsilon(ratio: Fraction, epsilon: Fraction, distance: Ball) -> bool:
    """Tell whether ratio <= exp(epsilon distance) is proved, for epsilon > 0."""
    return ratio <= 1 or sign_of(lambda: ball_of(epsilon) * distance() - ball_of(ratio).log()) in (0, 1)
