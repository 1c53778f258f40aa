"""Confidence bounds on log odds, and the power of tests that use these bounds.

Each bound combines two Clopper-Pearson intervals (:mod:`privopt.numbers.binomial`), so it is valid for any number of
draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from privopt.arrays import Floats
from privopt.numbers.binomial import binomial_quantile, clopper_pearson

MIN_POWER: Final = 0.9
"""The power for which a test's detectable factor is computed: the probability of detecting a violation that large."""
MAX_CLAIM_FACTOR: Final = 100.0
"""The largest multiple of the claimed epsilon to consider when computing a test's power."""


def log_odds_lower(hits: npt.ArrayLike, against: npt.ArrayLike, draws: int, error: float, delta: float = 0.0) -> Floats:
    """Return a lower confidence bound on log((P(E) - delta) / Q(E)), or -inf if P(E) may be as small as ``delta``.

    P and Q are the output distributions for two inputs, and E is an event. A claim (epsilon, delta) is refuted if the
    bound is above epsilon. The counts can be arrays with an entry for each event. The result then has the same shape.

    Args:
        hits: The number of draws from P that are in the event E.
        against: The number of draws from Q that are in E.
        draws: The number of draws from each distribution.
        error: The largest allowed probability that the bound is wrong.
        delta: The claimed delta.
    """
    # Each of the two bounds, from below on P(E) and from above on Q(E), gets half of the error (union bound).
    hit_lower, _ = clopper_pearson(hits, draws, error / 2)
    _, against_upper = clopper_pearson(against, draws, error / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(
            np.where(hit_lower > delta, np.log(np.maximum(hit_lower - delta, 0.0)) - np.log(against_upper), -np.inf)
        )


def visible_factor(limit: float, likely: float, draws: int, error: float, delta: float = 0.0) -> float | None:
    """Return the smallest true epsilon that a test would probably detect, as a multiple of the claimed epsilon.

    Args:
        limit: The log odds allowed by the claim, above 0.
        likely: The tested event's probability under the input that makes it more likely.
        draws: The number of draws for each input.
        error: The test's error probability.
        delta: The claimed delta.

    Returns:
        The smallest multiple, at least 1, that the test would detect with probability :data:`MIN_POWER`, or None if the
        test would not detect even a multiple of :data:`MAX_CLAIM_FACTOR`.
    """
    if likely <= delta:
        return None
    # Take both counts at unlucky quantiles, each with half of the probability with which the test may miss the breach.
    tail = (1.0 - MIN_POWER) / 2
    hits = binomial_quantile(tail, draws, likely)

    def is_visible(factor: float) -> bool:
        """Return whether the test would refute the claim if the true log odds were ``factor`` times the limit."""
        # The event's probability under the other input follows from the true log odds.
        unlikely = (likely - delta) * math.exp(-factor * limit)
        against = binomial_quantile(1.0 - tail, draws, unlikely)
        return bool(log_odds_lower(hits, against, draws, error, delta) > limit)

    return find_threshold(is_visible, 1.0, MAX_CLAIM_FACTOR) if is_visible(MAX_CLAIM_FACTOR) else None


def rarest_visible(draws: int, limit: float, error: float) -> float:
    """Return how likely an output must be for a test to detect that only one of two inputs can produce it.

    Args:
        draws: The number of draws for each input.
        limit: The log odds allowed by the claim.
        error: The test's error probability.
    """
    # The upper confidence bound on the output's probability under the other input, if it never occurs there.
    _, never_upper = clopper_pearson(0, draws, error / 2)
    needed = min(1.0, float(never_upper) * math.exp(limit))
    return find_threshold(
        lambda p: bool(clopper_pearson(math.floor(p * draws), draws, error / 2)[0] > needed), 0.0, 1.0
    )


def find_threshold(holds: Callable[[float], bool], lower: float, upper: float) -> float:
    """Find the smallest number between ``lower`` and ``upper`` for which a condition holds, by bisection.

    The condition must be monotone: if it holds for a number, it holds for all larger ones. It must hold for ``upper``.
    The result exceeds the true threshold by at most 2**-50 times the length of the interval.
    """
    for _ in range(50):
        middle = 0.5 * (lower + upper)
        lower, upper = (lower, middle) if holds(middle) else (middle, upper)
    return upper
