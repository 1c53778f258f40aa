"""Clopper-Pearson confidence bounds, and lower bounds on epsilon from samples.

The kit's attacks use them: a mechanism whose samples prove a larger epsilon than it claims has a fault.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.arrays import Floats, Ints
from privopt.errors import UsageError

__all__ = ["Event", "clopper_pearson", "epsilon_lower"]


def epsilon_lower(draws_a: ArrayLike, draws_b: ArrayLike, confidence: float = 0.95, *, delta: float = 0.0) -> float:
    """Return a lower bound on the privacy loss between two inputs, from draws alone.

    One half of the draws picks events that distinguish the inputs: for each of the two directions, the set of outputs
    whose ratio is at least some threshold, at the threshold whose own bound is best. The other half tests it:
    Clopper-Pearson, the probability of the event bounded from below under one input and from above under the other. Two
    directions and two bounds each share 1 - confidence. So with probability at least ``confidence`` the mechanism
    has at least the privacy loss that is returned. Events are half-lines or sets of observed values.

    Args:
        draws_a: (n,) outputs under one input, integers or reals.
        draws_b: (m,) outputs under another.
        confidence: in (0, 1).
        delta: the delta of (epsilon, delta)-DP; it is subtracted from the probability that is bounded from below.

    Returns:
        The bound, at least 0.

    Raises:
        UsageError: fewer than 4 draws of either, or a confidence out of range.
    """
    a, b = np.asarray(draws_a).ravel(), np.asarray(draws_b).ravel()
    if min(a.size, b.size) < 4:
        raise UsageError(f"draws must be at least 4 of each input, got {a.size} and {b.size}")
    if not 0 < confidence < 1:
        raise UsageError(f"confidence must be a number between 0 and 1, got {confidence}")
    alpha = (1.0 - confidence) / 4.0
    bound = 0.0
    for numerator_draws, denominator_draws in ((a, b), (b, a)):
        contains = _learn_event(numerator_draws[0::2], denominator_draws[0::2], alpha, delta)
        memberships = contains(numerator_draws[1::2]), contains(denominator_draws[1::2])
        hits, other_hits = (int(membership.sum()) for membership in memberships)
        bound = max(
            bound, float(_log_ratio_bound(hits, memberships[0].size, other_hits, memberships[1].size, alpha, delta))
        )
    return bound


def _log_ratio_bound(hits: ArrayLike, n: int, other_hits: ArrayLike, m: int, alpha: float, delta: float) -> Floats:
    """Return log((lower bounds of the first probabilities - delta) / upper bounds of the second), each at 1 - alpha."""
    lower, upper = clopper_pearson(hits, n, alpha)[0], clopper_pearson(other_hits, m, alpha)[1]
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(lower - delta, 0.0)) - np.log(upper))


def clopper_pearson(hits: ArrayLike, draws: ArrayLike, error: float) -> tuple[Floats, Floats]:
    """Return lower and upper bounds of probabilities; each bound fails with probability at most ``error``.

    >>> low, high = clopper_pearson(0, 100, 0.05)
    >>> float(low), round(float(high), 4)
    (0.0, 0.0295)

    Source: Clopper, Pearson, Biometrika 26, 1934.
    """
    from scipy.special import betaincinv

    k, n = np.asarray(hits, dtype=np.float64), np.asarray(draws, dtype=np.float64)
    lower = np.where(k > 0, betaincinv(np.maximum(k, 0.5), n - k + 1, error), 0.0)
    upper = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 0.5), 1.0 - error), 1.0)
    return lower, upper


Event = Callable[[NDArray[np.generic]], NDArray[np.bool_]]


def _learn_event(
    numerator_draws: NDArray[np.generic], denominator_draws: NDArray[np.generic], alpha: float, delta: float
) -> Event:
    """Choose the event with the best expected bound: a set of observed values, or a half-line.

    Half of the draws orders the values by likelihood ratio. The other half decides how many of them to include.
    """
    # Two halves, because an order that is judged by the draws that produced it looks perfect if each value occurs once.
    values, inverse = np.unique(np.concatenate([numerator_draws, denominator_draws]), return_inverse=True)
    value_indices = inverse[: numerator_draws.size], inverse[numerator_draws.size :]
    ordering_counts = np.stack([np.bincount(indices[0::2], minlength=values.size) for indices in value_indices])
    test_counts = np.stack([np.bincount(indices[1::2], minlength=values.size) for indices in value_indices])
    sizes = test_counts.sum(axis=1)
    ratio = (ordering_counts[0] + 0.5) * sizes[1] / ((ordering_counts[1] + 0.5) * sizes[0])
    ascending = np.arange(values.size)
    best_score, event = -np.inf, _make_event("set", values, ascending[:0])
    for ordering, kind in (
        (np.argsort(-ratio, kind="stable"), "set"),
        (ascending, "below"),
        (ascending[::-1], "above"),
    ):
        hits, other_hits = np.cumsum(test_counts[:, ordering], axis=1)
        scores = _log_ratio_bound(hits, int(sizes[0]), other_hits, int(sizes[1]), alpha, delta)
        if scores.max() > best_score:
            best_score, event = scores.max(), _make_event(kind, values, ordering[: int(scores.argmax()) + 1])
    return event


def _make_event(kind: str, values: NDArray[np.generic], value_indices: Ints) -> Event:
    event_values = values[np.sort(value_indices)]
    if kind == "below":
        return lambda draws: np.asarray(draws <= event_values[-1])
    if kind == "above":
        return lambda draws: np.asarray(draws >= event_values[0])
    return lambda draws: np.isin(draws, event_values)
