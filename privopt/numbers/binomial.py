"""Clopper-Pearson confidence bounds, and lower bounds on epsilon computed from samples.

The conformance kit uses these bounds to attack mechanisms. A mechanism is faulty if its samples prove that epsilon is
larger than claimed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.arrays import Floats, Ints
from privopt.errors import UsageError

__all__ = ["Event", "binomial_quantile", "clopper_pearson", "epsilon_lower"]


def epsilon_lower(draws_a: ArrayLike, draws_b: ArrayLike, confidence: float = 0.95, *, delta: float = 0.0) -> float:
    """Return a lower bound on a mechanism's privacy loss between two inputs, using only samples of its outputs.

    For each of the two directions, half of the draws are used to choose an event (a set of outputs) that is likely
    under one input but unlikely under the other. The event is either a half-line or the set of all observed values
    above some likelihood ratio. The other half of the draws is used to bound the event's probability with
    Clopper-Pearson bounds, from below under the first of these inputs and from above under the second. The error
    probability, 1 - ``confidence``, is divided among the four bounds (two for each direction), so the mechanism's
    privacy loss is at least the returned value with probability at least ``confidence``.

    Args:
        draws_a: (n,) outputs under one input, as integers or reals.
        draws_b: (m,) outputs under the other input.
        confidence: The probability, in (0, 1), with which the bound holds.
        delta: The delta of (epsilon, delta)-DP, which is subtracted from the lower bound on the event's probability.

    Returns:
        The bound, which is at least 0.

    Raises:
        UsageError: There are fewer than 4 draws for an input, or ``confidence`` is out of range.
    """
    a, b = np.asarray(draws_a).ravel(), np.asarray(draws_b).ravel()
    if min(a.size, b.size) < 4:
        raise UsageError(f"draws must be at least 4 of each input, got {a.size} and {b.size}")
    if not 0 < confidence < 1:
        raise UsageError(f"confidence must be a number between 0 and 1, got {confidence}")
    # Union bound over two directions with two Clopper-Pearson bounds each.
    alpha = (1.0 - confidence) / 4.0
    bound = 0.0
    for numerator_draws, denominator_draws in ((a, b), (b, a)):
        # Every second draw is used to choose the event and the others to test it, so that the choice cannot bias the
        # test.
        contains = _learn_event(numerator_draws[0::2], denominator_draws[0::2], alpha, delta)
        memberships = contains(numerator_draws[1::2]), contains(denominator_draws[1::2])
        hits, other_hits = (int(membership.sum()) for membership in memberships)
        # Both directions' bounds are valid, so the larger one is too.
        bound = max(
            bound, float(_log_ratio_bound(hits, memberships[0].size, other_hits, memberships[1].size, alpha, delta))
        )
    return bound


def _log_ratio_bound(hits: ArrayLike, n: int, other_hits: ArrayLike, m: int, alpha: float, delta: float) -> Floats:
    """Return lower bounds on log((p - delta) / q), where p and q are the unknown probabilities of two observed events.

    Args:
        hits: The number of draws, out of ``n``, in which the event with probability p occurred, or an array of such
            numbers.
        n: The number of draws for p.
        other_hits: The number of draws, out of ``m``, in which the event with probability q occurred, or an array of
            such numbers.
        m: The number of draws for q.
        alpha: The error probability of each of the two bounds, on p and on q.
        delta: The delta of (epsilon, delta)-DP.

    Returns:
        The bounds, with the same shape as the counts. A bound is minus infinity if p may be as small as ``delta``.
    """
    lower, upper = clopper_pearson(hits, n, alpha)[0], clopper_pearson(other_hits, m, alpha)[1]
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(lower - delta, 0.0)) - np.log(upper))


def clopper_pearson(hits: ArrayLike, draws: ArrayLike, error: float) -> tuple[Floats, Floats]:
    """Return lower and upper confidence bounds on an event's probability, given how often the event occurred.

    >>> low, high = clopper_pearson(0, 100, 0.05)
    >>> float(low), round(float(high), 4)
    (0.0, 0.0295)

    Args:
        hits: The number of times the event occurred, or an array of such numbers.
        draws: The number of draws.
        error: The error probability, in (0, 1), of each of the two bounds.

    Returns:
        The lower and upper bounds, with the shape to which ``hits`` and ``draws`` broadcast.

    Source: Clopper, Pearson, Biometrika 26, 1934.
    """
    from scipy.special import betaincinv

    k, n = np.asarray(hits, dtype=np.float64), np.asarray(draws, dtype=np.float64)
    # The beta quantile is undefined at 0 and n hits, where the bound is 0 or 1 anyway. The 0.5 only avoids invalid
    # calls.
    lower = np.where(k > 0, betaincinv(np.maximum(k, 0.5), n - k + 1, error), 0.0)
    upper = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 0.5), 1.0 - error), 1.0)
    return lower, upper


def binomial_quantile(probability: float, draws: int, chance: float) -> int:
    """Return the binomial quantile: the smallest k such that P(at most k hits) >= ``probability``.

    This gives the same result as ``scipy.stats.binom.ppf``, but importing ``scipy.stats`` takes longer than an entire
    check in the conformance kit.

    >>> binomial_quantile(0.5, 10, 0.5)
    5

    Args:
        probability: The cumulative probability that k must reach, in (0, 1).
        draws: The number of draws.
        chance: The probability of a hit in each draw.
    """
    from scipy.special import bdtr, bdtrik

    # The inverse is undefined if a hit is certain, and unreliable where the quantile is 0.
    if chance >= 1.0:
        return draws
    if chance <= 0.0 or bdtr(0, draws, chance) >= probability:
        return 0
    # The inverse interpolates between integers, and rounding errors may put it just above one.
    quantile = int(np.ceil(bdtrik(probability, draws, chance)))
    return quantile - 1 if quantile > 0 and bdtr(quantile - 1, draws, chance) >= probability else quantile


Event = Callable[[NDArray[np.generic]], NDArray[np.bool_]]
"""A function that takes an (n,) array of draws and returns a mask selecting the draws that belong to the event."""


def _learn_event(
    numerator_draws: NDArray[np.generic], denominator_draws: NDArray[np.generic], alpha: float, delta: float
) -> Event:
    """Choose the set of observed values, or the half-line, that is expected to give the largest lower bound on epsilon.

    Half of the draws are used to rank the values by their likelihood ratio, and the other half to decide how many of
    the ranked values to include.

    Args:
        numerator_draws: Outputs under the input for which the event should be likely.
        denominator_draws: Outputs under the other input.
        alpha: The error probability of each of the two bounds on the event's probabilities.
        delta: The delta of (epsilon, delta)-DP.
    """
    # If every value occurs only once, a ranking looks perfect on the draws that it was computed from. Other draws must
    # therefore be used to test it.
    values, inverse = np.unique(np.concatenate([numerator_draws, denominator_draws]), return_inverse=True)
    value_indices = inverse[: numerator_draws.size], inverse[numerator_draws.size :]
    ordering_counts = np.stack([np.bincount(indices[0::2], minlength=values.size) for indices in value_indices])
    test_counts = np.stack([np.bincount(indices[1::2], minlength=values.size) for indices in value_indices])
    sizes = test_counts.sum(axis=1)
    # Half an observation is added to each count, so that a value seen under only one input has a finite ratio.
    ratio = (ordering_counts[0] + 0.5) * sizes[1] / ((ordering_counts[1] + 0.5) * sizes[0])
    ascending = np.arange(values.size)
    best_score, event = -np.inf, _make_event("set", values, ascending[:0])
    for ordering, kind in (
        (np.argsort(-ratio, kind="stable"), "set"),
        (ascending, "below"),
        (ascending[::-1], "above"),
    ):
        # Entry k counts the draws that are among the first k + 1 values of the ordering.
        hits, other_hits = np.cumsum(test_counts[:, ordering], axis=1)
        scores = _log_ratio_bound(hits, int(sizes[0]), other_hits, int(sizes[1]), alpha, delta)
        if scores.max() > best_score:
            best_score, event = scores.max(), _make_event(kind, values, ordering[: int(scores.argmax()) + 1])
    return event


def _make_event(kind: str, values: NDArray[np.generic], value_indices: Ints) -> Event:
    """Return the function that decides which draws belong to an event.

    Args:
        kind: "set" for exactly the selected values, "below" for all numbers up to the largest of them, or "above" for
            all numbers from the smallest of them upwards.
        values: The observed values, sorted.
        value_indices: The indices of the selected values in ``values``.
    """
    event_values = values[np.sort(value_indices)]
    if kind == "below":
        return lambda draws: np.asarray(draws <= event_values[-1])
    if kind == "above":
        return lambda draws: np.asarray(draws >= event_values[0])
    return lambda draws: np.isin(draws, event_values)
