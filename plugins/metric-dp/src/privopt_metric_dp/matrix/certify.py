"""The certificate: every required inequality of a release, proved.

For integer weights w (rows summing to 2**63) and each required pair (i, j) at distance d, the claim is
``w_ik <= exp(eps d) w_jk`` and the reverse, for every output k. Doubles with all roundings on the safe side decide the
mass; what they cannot decide is decided by exact integers against ball arithmetic. exp of a rational other than 0 is
irrational, so that second stage always ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints, Unsigned
from privopt.errors import UsageError
from privopt.execution.limits import in_threads
from privopt.execution.memo import content_key, facts
from privopt.numbers.exp_log_bounds import exp_bounds, exp_fixed, float_up, log_bounds

__all__ = [
    "Failure",
    "Measurements",
    "certify",
    "certify_in_doubles",
    "check_pairs",
    "exact_ratio",
    "greatest_log_ratios",
    "greatest_ratios",
    "oriented",
    "wrong_rows",
]


#: Relative room for the roundings of a ratio in doubles: conversions, reciprocals, a product (5 x 2**-53 at most).
ROOM = 1.0 + 2.0**-50
#: Stands for weight 0 in the doubles: 0 against 0 gives 1, 0 against positive more than any exp that is compared.
ZERO = 2.0**-200
#: Ratios below which threads are not worth their start.
MIN_SHARED = 5_000_000
_BLOCK_COLUMNS = 128
#: Rows up to which a block of `_BLOCK_COLUMNS` columns stays in a processor's cache; with more, another order.
IN_CACHE = 2_000
#: Pairs times outputs up to which compiled code is not worth its loading.
MIN_COMPILED_RATIOS = 10_000
_MAX_SHOWN = 8
#: Pairs whose log ratio is evaluated exactly, in search of the worst.
_MAX_EXACT_PAIRS = 64


def _key(weights: Unsigned, pairs: Ints, distances: Floats, epsilon: Fraction) -> bytes:
    return content_key(f"certify {weights.shape} {len(pairs)} {epsilon}", weights, pairs, distances)


@frozen(kw_only=True)
class Failure:
    """One inequality that does not hold: weight (i, k) against weight (j, k)."""

    i: int
    j: int
    k: int


@frozen(kw_only=True)
class Measurements:
    """The measurements of a release.

    Attributes:
        holds: every row sums to 2**63 and every inequality was proved.
        worst: greatest log ratio / distance over all pairs and outputs, rounded up: by an ulp, or, if more than 64
            pairs are equally bad, by up to about 1e-15 / distance. It is infinite if 0 meets a positive weight or rows
            at distance 0 differ.
        allowed: epsilon as the nearest double.
        checked: pairs times outputs; each both ways.
        arithmetic: what the verdict rests on, in words.
        worst_pair: the pair of records where ``worst`` was found; None where nothing is required.
        failures: the first few inequalities that do not hold, in order of pairs.
        failed: how many pairs have one that does not hold.
        wrong_rows: the first few rows that do not sum to 2**63.
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


def greatest_ratios(weights: Floats | Unsigned, pairs: Ints) -> Floats:
    """Return (P,) the greatest ratio of each pair, either way, over all columns; too low by less than 2**-50 of it."""
    first, second = (np.ascontiguousarray(pairs[:, end]) for end in (0, 1))
    if first.size * weights.shape[1] <= MIN_COMPILED_RATIOS:
        values = np.where(weights == 0, ZERO, weights)
        ratios = values[first] * (1.0 / values)[second]
        found: Floats = np.maximum(np.maximum(ratios.max(axis=1), 1.0 / ratios.min(axis=1)), 1.0)
        return found
    from privopt_metric_dp.matrix.log_ratios import DOUBLE_LANES, raise_to_ratios

    greatest, order = np.ones(first.size), None
    if len(weights) > IN_CACHE and first.size > len(weights):  # four rows side by side meet each other row once
        order = np.argsort(first // 4 * len(weights) + second, kind="stable")  # merges the runs that they are
        first, second = first[order], second[order]
    for start in range(0, weights.shape[1], _BLOCK_COLUMNS):
        block = weights[:, start : start + _BLOCK_COLUMNS]
        values = np.ones((len(block), -(-block.shape[1] // DOUBLE_LANES) * DOUBLE_LANES))
        values[:, : block.shape[1]] = np.where(block == 0, ZERO, block)
        flat = (values.ravel(), (1.0 / values).ravel(), values.shape[1] // DOUBLE_LANES)

        def measure(start: int, stop: int, flat: tuple[Floats, Floats, int] = flat) -> None:
            raise_to_ratios(*flat, first[start:stop], second[start:stop], greatest[start:stop])

        in_threads(measure, first.size, min_span=MIN_SHARED // values.shape[1])
    if order is not None:
        greatest[order] = greatest.copy()
    return greatest


def greatest_log_ratios(rows: Floats | Unsigned, pairs: Ints) -> Floats:
    """Return (P,) the greatest |log z_ik / z_jk| over all columns, below the truth by less than 2**-50; for figures.

    It is infinite if 0 meets a positive number.

    Args:
        rows: (N, K) weights, or probabilities that are 0 or at least 2**-64.
        pairs: (P, 2).
    """
    ratios = greatest_ratios(rows, pairs)
    return np.where(ratios > 2.0**100, np.inf, np.log(ratios))


def check_pairs(pairs: Ints, distances: Floats, records: int) -> tuple[Ints, Floats]:
    """Return the pairs and distances as contiguous arrays, refused where they cannot be meant so.

    Raises:
        UsageError: wrong shapes, a record out of range, a pair of a record with itself, a distance that is negative
            or not finite.
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


def wrong_rows(weights: Unsigned) -> Ints:
    """Return the rows that do not sum to 2**63: halves of 32 bits, so that no sum can wrap."""

    def wrong(start: int, stop: int) -> Ints:
        high = (weights[start:stop] >> np.uint64(32)).sum(axis=1, dtype=np.uint64)
        low = (weights[start:stop] & np.uint64(0xFFFFFFFF)).sum(axis=1, dtype=np.uint64)
        carried = high + (low >> np.uint64(32))
        right = (carried == np.uint64(1 << 31)) & ((low & np.uint64(0xFFFFFFFF)) == 0)
        return start + np.flatnonzero(~right).astype(np.int64)

    return np.concatenate([np.zeros(0, dtype=np.int64), *in_threads(wrong, len(weights))])


def _at_most(left: int, right: int, exponent: Fraction) -> bool:
    """Decide exactly whether ``left <= exp(exponent) right``; the exponent is above 0."""
    if left <= right:
        return True
    if right == 0:
        return False
    if exponent > 45:
        return True  # left < 2**64 < exp(45) <= exp(exponent) right
    bits = 96
    while True:
        low, high = exp_fixed(exponent, bits)
        if left << bits <= low * right:
            return True
        if left << bits > high * right:
            return False
        bits *= 2


def _decide_pair(left: Unsigned, right: Unsigned, exponent: Fraction, lower: float) -> tuple[list[int], int]:
    """Columns of one pair that fail, and how many inequalities needed exact integers."""
    if exponent == 0:
        return np.flatnonzero(left != right).tolist(), left.size
    a, b = left.astype(np.float64), right.astype(np.float64)
    open_ = np.flatnonzero(np.maximum(a, b) * ROOM > np.minimum(a, b) * lower)
    failing = []
    for k in open_.tolist():
        small, large = sorted((int(left[k]), int(right[k])))
        if not _at_most(large, small, exponent):
            failing.append(k)
    return failing, len(open_)


def exact_ratio(left: Unsigned, right: Unsigned) -> Fraction:
    """Return the greatest ratio between two rows whose zeros are in the same columns, either way, exactly."""
    above, below = np.maximum(left, right), np.maximum(np.minimum(left, right), 1)
    near = above.astype(np.float64) / below.astype(np.float64)
    columns = np.flatnonzero(near * ROOM >= near.max()).tolist()
    return max((Fraction(int(above[k]), int(below[k])) for k in columns if above[k]), default=Fraction(1))


def _verified_worst(weights: Unsigned, pairs: Ints, distances: Floats, ratios: Floats) -> tuple[float, int]:
    """Return a double v with ratio <= exp(v d) proved for every pair, at or just above the greatest log ratio / d."""
    estimates = np.log(ratios)
    estimates += 2.0**-50  # at least log ROOM
    with np.errstate(over="ignore"):
        estimates /= distances
    top = np.arange(len(estimates))
    if len(estimates) > _MAX_EXACT_PAIRS:
        top = np.sort(np.argpartition(estimates, -_MAX_EXACT_PAIRS)[-_MAX_EXACT_PAIRS:])
    ratio_of = ((float(distances[p]), exact_ratio(*weights[pairs[p]])) for p in top.tolist())
    exact = [log_bounds(ratio, Fraction(distance))[1] for distance, ratio in ratio_of]
    at, value = int(top[int(np.argmax(exact))]), max(exact)
    # a quarter of a millionth below it no error of np.log matters; what lies closer is proved against exp
    near = np.flatnonzero(estimates >= value * (1.0 - 2.0**-22))
    near = near[~np.isin(near, top)]
    step = 2.0**-52
    while len(near) and math.isfinite(value):
        lower, _ = exp_bounds(distances[near], Fraction(value))
        if (ratios[near] * ROOM <= lower).all():
            break
        value, step = max(value, float(estimates[near].max())) * (1.0 + step), 2.0 * step
    return value, at


def certify(
    weights: Unsigned,
    pairs: Ints,
    distances: Floats,
    epsilon: Fraction,
) -> Measurements:
    """Prove or refute that integer weights are a mechanism of metric privacy over the required pairs.

    Args:
        weights: (N, K) uint64; probability = weight / 2**63.
        pairs: (P, 2) records, undirected.
        distances: (P,) each double the rational that it is.
        epsilon: exact, >= 0, in 1 / unit of distance.

    Returns:
        The verdict. Cost: 2 P K multiplications; exact integers only where a ratio lies within 2**-50 of its bound.

    Raises:
        UsageError: arguments that cannot be meant so.
    """
    weights = np.ascontiguousarray(weights)
    if weights.ndim != 2 or weights.dtype != np.uint64:
        raise UsageError(f"weights must be uint64 of shape (N, K), got {weights.dtype} of shape {weights.shape}")
    if epsilon < 0:
        raise UsageError(f"epsilon must be at least 0, got {epsilon}")
    pairs, distances = check_pairs(pairs, distances, len(weights))
    remembered = facts()
    key = b"" if remembered is None else _key(weights, pairs, distances, epsilon)
    if remembered is not None and key in remembered:
        known: Measurements = remembered[key]
        return known
    ratios = greatest_ratios(weights, pairs)
    measured = _judged(weights, pairs, distances, epsilon, ratios, exp_bounds(distances, epsilon))
    if remembered is not None:
        remembered[key] = measured
    return measured


def certify_in_doubles(weights: Unsigned, pairs: Ints, distances: Floats, epsilon: Fraction) -> Measurements | None:
    """Return :func:`certify`'s result, with its arguments, if doubles alone prove every inequality; else None.

    Rows at distance 0 are looked at exactly where doubles see no difference.
    """
    ratios = greatest_ratios(weights, pairs)
    bounds = exp_bounds(distances, epsilon)
    if not ((ratios * ROOM <= bounds[0]) | ((distances == 0) & (ratios == 1.0))).all():
        return None
    measured, remembered = _judged(weights, pairs, distances, epsilon, ratios, bounds), facts()
    if remembered is not None:
        remembered[_key(weights, pairs, distances, epsilon)] = measured
    return measured


def _judged(
    weights: Unsigned,
    pairs: Ints,
    distances: Floats,
    epsilon: Fraction,
    ratios: Floats,
    bounds: tuple[Floats, Floats],
) -> Measurements:
    """Return the verdict on pairs whose greatest ratios, and bounds of exp(epsilon d), are known in doubles."""
    wrong = wrong_rows(weights)
    lower, upper = bounds
    broken = ratios > upper * (ROOM * ROOM)
    failed = np.flatnonzero(broken).tolist()
    failures: list[Failure] = []
    exact = 0
    for p in np.flatnonzero(~broken & (~(ratios * ROOM <= lower) | (distances == 0))).tolist():
        exponent = epsilon * Fraction(float(distances[p]))
        columns, count = _decide_pair(weights[pairs[p, 0]], weights[pairs[p, 1]], exponent, float(lower[p]))
        exact += count
        if columns:
            failed.append(p)
    failed.sort()
    for p in failed[:_MAX_SHOWN]:
        i, j = pairs[p].tolist()
        columns, _ = _decide_pair(weights[i], weights[j], epsilon * Fraction(float(distances[p])), float(lower[p]))
        failures.extend(oriented(weights, i, j, k) for k in columns[: max(0, _MAX_SHOWN - len(failures))])
    worst, worst_pair = _worst(weights, ratios, pairs, distances, epsilon, failed)
    checked = len(pairs) * weights.shape[1]
    return Measurements(
        holds=not failed and not len(wrong),
        worst=worst,
        allowed=float(epsilon),
        checked=checked,
        arithmetic=(
            f"row sums by exact integers; {checked - min(exact, checked)} inequalities (each both ways) by "
            f"outward-rounded doubles, {exact} by exact integers against ball arithmetic"
        ),
        worst_pair=worst_pair,
        failures=tuple(failures),
        failed=len(failed),
        wrong_rows=tuple(wrong[:_MAX_SHOWN].tolist()),
    )


def oriented(weights: Unsigned, i: int, j: int, k: int) -> Failure:
    """Return the failing inequality with its greater side first."""
    return Failure(i=i, j=j, k=k) if weights[i, k] > weights[j, k] else Failure(i=j, j=i, k=k)


def _worst(
    weights: Unsigned, ratios: Floats, pairs: Ints, distances: Floats, epsilon: Fraction, failed: Sequence[int]
) -> tuple[float, tuple[int, int] | None]:
    """Return the greatest log ratio / distance, rounded up, and its pair."""
    if not len(pairs):
        return 0.0, None
    endless = [p for p in failed if distances[p] == 0 or ratios[p] > 2.0**100]
    if endless:
        return math.inf, (int(pairs[endless[0], 0]), int(pairs[endless[0], 1]))
    if not distances.any():
        return 0.0, (int(pairs[0, 0]), int(pairs[0, 1]))
    if not distances.all():
        apart = distances > 0
        pairs, distances, ratios = pairs[apart], distances[apart], ratios[apart]
    value, at = _verified_worst(weights, pairs, distances, ratios)
    if not failed:
        value = min(value, float_up(epsilon))  # proved above, pair by pair
    i, j = pairs[at].tolist()
    return value, (i, j)
