"""The least epsilon that a matrix satisfies, each row of doubles or weights divided by its exact sum.

Logarithms in doubles, with bounds on their errors, omit all but the pairs that may be the worst; those are
ratios of whole numbers, whose logarithms are balls, over distances that are balls too where no double is the distance.
Nothing is rounded before: an entry of 1e-300 counts.
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

__all__ = ["Apart", "Least", "exact_sums", "least_epsilon"]

NOTHING: Final = -4096.0
"""Stands for the logarithm of 0: farther from that of any double than they are from each other."""
INFINITE_LOG_RATIO: Final = 2048.0
"""A difference of logarithms beyond it has a 0 on one side."""
OFF: Final = 2.0**-48
"""Error of a difference of two logarithms, of the greatest of them: four last places each, and room."""
_BLOCK_COLUMNS: Final = 128
_MAX_EXACT_PAIRS: Final = 4096
"""Pairs evaluated exactly in search of the worst; of more, all equally bad, the bounds in doubles are taken."""


@frozen(kw_only=True)
class Apart:
    """Hold distances of pairs that are not doubles.

    Attributes:
        above: (P,) doubles that they do not exceed.
        balls: what encloses those of some rows, each at the precision of ``flint.ctx`` in force.
    """

    above: Floats
    balls: Callable[[Ints], list[Ball]]


@frozen(kw_only=True)
class Least:
    """What a matrix keeps.

    Attributes:
        epsilon: the least, rounded up; infinite where no epsilon will do, 0 where all required rows are equal.
        holds: whether it is at most the one asked for, decided exactly.
        pair: rows where it is reached, the likelier first; None where epsilon is 0.
        output: the column where.
    """

    epsilon: float
    holds: bool
    pair: tuple[int, int] | None = None
    output: int | None = None


def exact_sums(values: NDArray[Any]) -> list[Fraction]:
    """Return the sum of each row (N, K) of finite doubles or whole numbers, exactly."""
    if values.dtype.kind != "f":
        return [Fraction(sum(row.tolist())) for row in values]
    return [_sum_of(row) for row in values]


def _sum_of(row: Floats) -> Fraction:
    """Mantissas of 53 bits, summed as whole numbers exponent by exponent."""
    mantissas, powers = np.frexp(row[row != 0])
    whole = np.ldexp(mantissas, 53).astype(np.int64)
    total = Fraction(0)
    for power in np.unique(powers).tolist():
        part = sum(whole[powers == power].tolist())
        total += Fraction(part) * Fraction(2) ** (power - 53)
    return total


def least_epsilon(
    values: NDArray[Any],
    pairs: Ints,
    distances: Floats,
    epsilon: Fraction,
    *,
    exact: Apart | None = None,
    sums: list[Fraction] | None = None,
    progress: Callable[[str], object] | None = None,
) -> Least:
    """Return the least epsilon with ``z_ik <= exp(epsilon d_ij) z_jk``, both ways, for all pairs and columns k.

    Args:
        values: (N, K) doubles or unsigned integers, finite, at least 0; z is each row over its exact sum.
        pairs: (P, 2) required pairs, undirected.
        distances: (P,) each double the rational that it is; with ``exact``, rounded down from what that encloses.
        epsilon: exact, above 0: what it is compared with.
        exact: the distances themselves.
        sums: those of :func:`exact_sums`, where they are known.
        progress: called with what is being done, in words.
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
        return Least(epsilon=0.0, holds=True)
    report = progress or (lambda _: None)
    report(f"{len(pairs):,} pairs")
    apart, off = _differences(values, sums, pairs)
    far = np.flatnonzero(apart > INFINITE_LOG_RATIO)
    if far.size:
        return _at(values, sums, pairs[far[0]], math.inf, holds=False)
    zero = np.flatnonzero(distances == 0)
    unequal = [p for p in zero.tolist() if apart[p] > off or _ratio(values, sums, *pairs[p].tolist())[0] != 1]
    exact = exact or Apart(above=distances, balls=lambda rows: [partial(ball_of, Fraction(x)) for x in distances[rows]])
    close = np.array(unequal, dtype=np.int64)
    for p, ball in zip(unequal, exact.balls(close), strict=True):
        if sign_of(ball) != 1:
            return _at(values, sums, pairs[p], math.inf, holds=False)
    away = np.concatenate([np.flatnonzero(distances > 0), close])  # of 0, rounded down, and apart all the same
    if not away.size:
        return Least(epsilon=0.0, holds=True)
    few = Apart(above=exact.above[away], balls=lambda rows: exact.balls(away[rows]))
    return _worst(values, sums, pairs[away], distances[away], few, epsilon, apart[away], off, report)


def _differences(values: NDArray[Any], sums: list[Fraction], pairs: Ints) -> tuple[Floats, float]:
    """(P,) the greatest difference of logarithms of each pair over all columns, and its error at most."""
    from privopt_metric_dp.matrix.log_ratios import DOUBLE_LANES, raise_to_differences

    first, second = (np.ascontiguousarray(pairs[:, end]) for end in (0, 1))
    shift = np.array(list(map(_log, sums)))[:, None]
    found, largest = np.zeros(len(pairs)), 1.0
    for start in range(0, values.shape[1], _BLOCK_COLUMNS):
        block = values[:, start : start + _BLOCK_COLUMNS].astype(np.float64)
        logs = np.zeros((len(block), -(-block.shape[1] // DOUBLE_LANES) * DOUBLE_LANES))
        with np.errstate(divide="ignore"):
            here = np.where(block > 0, np.log(block) - shift, NOTHING)
        logs[:, : block.shape[1]] = here
        largest = max(largest, float(np.abs(here[block > 0]).max(initial=0.0)), float(np.abs(shift).max()))
        flat = (logs.ravel(), logs.shape[1] // DOUBLE_LANES)

        def measure(start: int, stop: int, flat: tuple[Floats, int] = flat) -> None:
            raise_to_differences(*flat, first[start:stop], second[start:stop], found[start:stop])

        in_threads(measure, first.size, min_span=MIN_RATIOS_PER_THREAD // logs.shape[1])
    return found, OFF * largest


def _log(total: Fraction) -> float:
    """Its logarithm, off by last places of itself: those of numerator and denominator may be far greater."""
    power = total.numerator.bit_length() - total.denominator.bit_length()
    return math.log(total / Fraction(2) ** power) + power * math.log(2.0)


def _ratio(values: NDArray[Any], sums: list[Fraction], i: int, j: int) -> tuple[Fraction, int, bool]:
    """Return the greatest ratio of two rows with zeros in the same columns, its column, and whether row i is above."""
    one, other = values[i].astype(np.float64), values[j].astype(np.float64)
    there = np.flatnonzero(one > 0)
    logs = np.log(one[there]) - np.log(other[there])
    shift = sums[j] / sums[i]
    by = _log(shift)
    sizes = np.abs(logs + by)
    near = there[sizes >= sizes.max() - 1e-11]
    top, bottom, best, greater = 0, 1, -1, False  # of a product of whole numbers: rationals in lowest terms take longer
    for k, x, y in zip(near.tolist(), values[i, near].tolist(), values[j, near].tolist(), strict=True):
        (a, b), (c, d) = x.as_integer_ratio(), y.as_integer_ratio()
        over, under = a * d * shift.numerator, b * c * shift.denominator
        up = over >= under
        over, under = (over, under) if up else (under, over)
        if over * bottom > top * under:
            top, bottom, best, greater = over, under, k, up
    return Fraction(top, bottom), best, greater  # a row sums to more than 0: there is a column


def _at(values: NDArray[Any], sums: list[Fraction], pair: Ints, epsilon: float, *, holds: bool) -> Least:
    """Return the verdict with the place of a pair's worst ratio; a 0 against a positive entry is the worst of all."""
    i, j = pair.tolist()
    odd = np.flatnonzero((values[i] > 0) != (values[j] > 0))
    if odd.size:
        k = int(odd[np.argmax(np.maximum(values[i, odd], values[j, odd]))])
        up = bool(values[i, k] > 0)
    else:
        _, k, up = _ratio(values, sums, i, j)
    return Least(epsilon=epsilon, holds=holds, pair=(i, j) if up else (j, i), output=k)


def _worst(
    values: NDArray[Any],
    sums: list[Fraction],
    pairs: Ints,
    distances: Floats,
    exact: Apart,
    epsilon: Fraction,
    apart: Floats,
    error: float,
    report: Callable[[str], object],
) -> Least:
    """Return the greatest log ratio / distance over pairs that are apart and have their zeros in the same columns."""
    with np.errstate(over="ignore", divide="ignore"):  # distances of 1e-310 and the like: infinite, as the answer is
        over, under = (
            (apart + error) / distances * (1.0 + 2.0**-50),
            (apart - error) / exact.above * (1.0 - 2.0**-50),
        )
    near = np.flatnonzero(over >= under.max())
    near = near[np.argsort(-over[near], kind="stable")]
    value, at = 0.0, -1
    for p, ball in zip(near[:_MAX_EXACT_PAIRS].tolist(), exact.balls(near[:_MAX_EXACT_PAIRS]), strict=True):
        rate = _rate_up(_ratio(values, sums, *pairs[p].tolist())[0], ball)
        if rate > value:
            value, at = rate, p
    if len(near) > _MAX_EXACT_PAIRS:
        value = max(value, float(over[near[_MAX_EXACT_PAIRS]]))
    if at < 0:
        return Least(epsilon=0.0, holds=True)
    asked = float(epsilon)
    doubt = np.flatnonzero(over >= asked * (1.0 - 2.0**-50))
    report(f"{len(doubt):,} pairs at the limit")
    holds = math.isfinite(value) and Fraction(value) <= epsilon
    if not holds:
        holds = not (under[doubt] > asked * (1.0 + 2.0**-50)).any() and all(
            _keeps(_ratio(values, sums, *pairs[p].tolist())[0], epsilon, ball)
            for p, ball in zip(doubt.tolist(), exact.balls(doubt), strict=True)
        )
    value = min(value, float_up(epsilon)) if holds else max(value, math.nextafter(asked, math.inf))
    return _at(values, sums, pairs[at], value, holds=holds)


def _rate_up(ratio: Fraction, distance: Ball) -> float:
    """Round ln(ratio) / distance up; ratio at least 1, infinite where the distance is not proved to be above 0."""
    if ratio == 1:
        return 0.0
    import flint

    more = max(0, ratio.denominator.bit_length() - (ratio - 1).numerator.bit_length())
    for bits in PRECISIONS:
        with flint.ctx.workprec(bits + more):
            rate = ball_of(ratio).log() / distance()
            if rate.is_finite() and rate.rel_accuracy_bits() > 64:
                break
    return float_up(rational_of_ball(rate.upper())) if rate.is_finite() else math.inf


def _keeps(ratio: Fraction, epsilon: Fraction, distance: Ball) -> bool:
    """Prove ratio <= exp(epsilon distance), epsilon > 0; False where it is not so, or no proof is found."""
    return ratio <= 1 or sign_of(lambda: ball_of(epsilon) * distance() - ball_of(ratio).log()) in (0, 1)
