"""Clopper-Pearson bounds, and the epsilon that samples prove."""

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
    really loses what is returned, whatever it is. Numbers are taken as one line: the events are half-lines or sets of
    values seen.

    Args:
        draws_a: (n,) outputs under one input, integers or reals.
        draws_b: (m,) outputs under another.
        confidence: in (0, 1).
        delta: what (epsilon, delta)-DP allows in addition: it is taken off the probability bounded from below.

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
    for left, right in ((a, b), (b, a)):
        member = _learned_event(left[0::2], right[0::2], alpha, delta)
        sides = member(left[1::2]), member(right[1::2])
        hits, others = (int(side.sum()) for side in sides)
        bound = max(bound, float(_log_ratio_bound(hits, sides[0].size, others, sides[1].size, alpha, delta)))
    return bound


def _log_ratio_bound(hits: ArrayLike, n: int, others: ArrayLike, m: int, alpha: float, delta: float) -> Floats:
    """Return log((lower bounds of the first probabilities - delta) / upper bounds of the second), each at 1 - alpha."""
    low, high = clopper_pearson(hits, n, alpha)[0], clopper_pearson(others, m, alpha)[1]
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(low - delta, 0.0)) - np.log(high))


def clopper_pearson(hits: ArrayLike, draws: ArrayLike, error: float) -> tuple[Floats, Floats]:
    """Return lower and upper bounds of probabilities; each bound fails with probability at most ``error``.

    >>> low, high = clopper_pearson(0, 100, 0.05)
    >>> float(low), round(float(high), 4)
    (0.0, 0.0295)

    Source: Clopper, Pearson, Biometrika 26, 1934.
    """
    from scipy.special import betaincinv

    k, n = np.asarray(hits, dtype=np.float64), np.asarray(draws, dtype=np.float64)
    low = np.where(k > 0, betaincinv(np.maximum(k, 0.5), n - k + 1, error), 0.0)
    high = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 0.5), 1.0 - error), 1.0)
    return low, high


Event = Callable[[NDArray[np.generic]], NDArray[np.bool_]]


def _learned_event(left: NDArray[np.generic], right: NDArray[np.generic], alpha: float, delta: float) -> Event:
    """Return the event that promises the best bound on draws like these: a set of values seen, or a half-line.

    Half of the draws orders the values by likelihood ratio, the other half says how far down that order to go: where
    every value is seen once, an order judged by the draws that made it would look perfect.
    """
    values, inverse = np.unique(np.concatenate([left, right]), return_inverse=True)
    sides = inverse[: left.size], inverse[left.size :]
    seen = np.stack([np.bincount(side[0::2], minlength=values.size) for side in sides])
    judged = np.stack([np.bincount(side[1::2], minlength=values.size) for side in sides])
    sizes = judged.sum(axis=1)
    ratio = (seen[0] + 0.5) * sizes[1] / ((seen[1] + 0.5) * sizes[0])
    upwards = np.arange(values.size)
    best, event = -np.inf, _event("set", values, upwards[:0])
    for ordering, kind in ((np.argsort(-ratio, kind="stable"), "set"), (upwards, "below"), (upwards[::-1], "above")):
        hits, others = np.cumsum(judged[:, ordering], axis=1)
        scores = _log_ratio_bound(hits, int(sizes[0]), others, int(sizes[1]), alpha, delta)
        if scores.max() > best:
            best, event = scores.max(), _event(kind, values, ordering[: int(scores.argmax()) + 1])
    return event


def _event(kind: str, values: NDArray[np.generic], chosen: Ints) -> Event:
    picked = values[np.sort(chosen)]
    if kind == "below":
        return lambda draws: np.asarray(draws <= picked[-1])
    if kind == "above":
        return lambda draws: np.asarray(draws >= picked[0])
    return lambda draws: np.isin(draws, picked)
