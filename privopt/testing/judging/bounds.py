"""Bounds that hold with a stated confidence: of probabilities and odds; and what they would see."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from privopt.arrays import Floats
from privopt.numbers.binomial import clopper_pearson

MIN_POWER: Final = 0.9
"""How often what is said to be seen is seen, at least."""
MAX_CLAIM_FACTOR: Final = 100.0
"""Factors of a claim beyond which nothing is said."""


def log_odds_lower(hits: npt.ArrayLike, against: npt.ArrayLike, draws: int, error: float, delta: float = 0.0) -> Floats:
    """Bound from below of log((P(E) - delta) / Q(E)); -inf where there is none.

    Args:
        hits: draws from P in E.
        against: draws from Q in E.
        draws: from each.
        error: probability with which it fails, at most.
        delta: of the claim.
    """
    low, _ = clopper_pearson(hits, draws, error / 2)
    _, high = clopper_pearson(against, draws, error / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(low > delta, np.log(np.maximum(low - delta, 0.0)) - np.log(high), -np.inf))


def seen_from(limit: float, likely: float, draws: int, error: float, delta: float = 0.0) -> float | None:
    """Return the least factor of a claim that n draws see at an event, nine times in ten; None if they see none.

    Args:
        limit: log odds that the claim allows, above 0.
        likely: probability of the event under the likelier input.
        draws: from each input.
        error: of the test.
        delta: of the claim.
    """
    from scipy.stats import binom

    if likely <= delta:
        return None
    missed = (1.0 - MIN_POWER) / 2
    hits = int(binom.ppf(missed, draws, likely))

    def seen(factor: float) -> bool:
        rare = (likely - delta) * math.exp(-factor * limit)
        against = int(binom.ppf(1.0 - missed, draws, rare))
        return bool(log_odds_lower(hits, against, draws, error, delta) > limit)

    return bisect(seen, 1.0, MAX_CLAIM_FACTOR) if seen(MAX_CLAIM_FACTOR) else None


def rarest_seen(draws: int, limit: float, error: float) -> float:
    """Return the least probability at which ``draws`` draws see an output that the other input never gives."""
    _, high = clopper_pearson(0, draws, error / 2)
    needed = min(1.0, float(high) * math.exp(limit))
    return bisect(lambda p: bool(clopper_pearson(math.floor(p * draws), draws, error / 2)[0] > needed), 0.0, 1.0)


def bisect(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the least number, up to 2**-50 of the range, from which on something holds, as it does at ``high``."""
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
