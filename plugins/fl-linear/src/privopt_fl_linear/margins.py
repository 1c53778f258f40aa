"""Margins, which are added to noisy counts so that capacities suffice: the paper's margin and the exact one.

Facility v fails if the noise takes more than the margin away from its count. With failure probabilities beta_v, the
promise is that the sum of beta_v over all v is at most alpha.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt_fl_linear.quantiles import Noise, upper_quantiles

__all__ = ["AnySet", "Kind", "MarginRule", "paper_margin"]

Kind = Literal["exact", "paper"]
MAX_BEYOND = 2000
"""Slopes of a margin for any set are not tried if more locations than this are expected to exceed them."""


def paper_margin(sizes: Ints, locations: int, epsilon: float, alpha: float) -> Floats:
    """Return (2 / epsilon) sqrt(|L|) ln(2 n / alpha) (Algorithm 2).

    It rests on the moment generating function of Laplace(1/epsilon), which that of the discrete Laplace never exceeds
    ((cosh s - 1) / s^2 increases), so it holds for integer noise too.
    """
    return np.asarray(2.0 / epsilon * np.sqrt(sizes) * math.log(2.0 * locations / alpha), dtype=np.float64)


@lru_cache(maxsize=10_000)
def _excess_quantile(n: int, slope: float, level: float, epsilon: float, noise: Noise) -> float:
    """Return the least w with P(sum over n draws S_v of max(0, S_v - slope) > w) <= level, rounded up.

    It is an integer for discrete noise. The number of draws that exceed the slope is binomial. Laplace tails have no
    memory, so the excess is a sum of as many exponential (or geometric) draws. All terms are positive. 1e-6 of the
    level covers their rounding and the omitted terms.

    Raises:
        ArithmeticError: A probability is not a number.
    """
    from scipy.special import bdtrc, betaincc, gammaincc

    if noise == "discrete":  # the slope is whole: P(S > slope)
        pass_probability, unit = math.exp(-epsilon * (slope + 1.0)) / (1.0 + math.exp(-epsilon)), 1.0
    else:
        pass_probability, unit = 0.5 * math.exp(-epsilon * slope), 2.0**-10 / epsilon
    max_count = min(n, 8)
    while max_count < n and bdtrc(max_count, n, pass_probability) > 1e-7 * level:
        max_count = min(n, 2 * max_count)
    counts = np.arange(1.0, max_count + 1.0)
    count_probabilities = bdtrc(counts - 1.0, n, pass_probability)
    count_probabilities[:-1] -= count_probabilities[1:]
    count_probabilities = np.maximum(count_probabilities, 0.0)

    def tail_probability(w: float) -> float:
        if noise == "discrete":  # fewer than so many successes in w trials
            tail_given_count = np.where(
                counts > w, 1.0, betaincc(counts, np.maximum(w + 1.0 - counts, 1.0), -math.expm1(-epsilon))
            )
        else:
            tail_given_count = gammaincc(counts, epsilon * w)
        total = float(count_probabilities @ tail_given_count) + 1e-6 * level
        if math.isnan(total):
            raise ArithmeticError(f"no probability that {n} draws pass {slope:g} by more than {w:g} in all")
        return total

    lower, upper = -1, 0
    while tail_probability(upper * unit) > level:
        lower, upper = upper, 2 * upper + 1
    while upper - lower > 1:
        middle = (lower + upper) // 2
        lower, upper = (lower, middle) if tail_probability(middle * unit) <= level else (middle, upper)
    return upper * unit * (1.0 if noise == "discrete" else 1.0 + 1e-12)


@frozen(kw_only=True)
class MarginRule:
    """How margins are computed.

    >>> import numpy as np
    >>> rule = MarginRule(n=1000, epsilon=0.1, noise="continuous")
    >>> rule.margins(np.array([1, 10, 100, 1000]), 0.1).round(1).tolist()
    [85.2, 148.1, 330.0, 573.0]

    Attributes:
        n: Number of locations.
        epsilon: Privacy budget of one location's report.
        kind: ``"exact"`` or ``"paper"``.
        noise: ``"discrete"`` or ``"continuous"``.
    """

    n: int
    epsilon: float
    kind: Kind = "exact"
    noise: Noise = "discrete"

    def margins(self, sizes: Ints, alpha: float) -> Floats:
        """Return the margin of each facility, given |L_v|, for a total failure probability of alpha.

        Each facility has its share as in Theorem 3: beta_v = |L_v| alpha / n.
        """
        if self.kind == "paper":
            return paper_margin(sizes, self.n, self.epsilon, alpha)
        return upper_quantiles(sizes, sizes / self.n * alpha, self.epsilon, self.noise)

    def any_set(self, facilities: int, alpha: float) -> AnySet:
        """Return margins for all sets at once, with the slope that is cheapest for this number of facilities.

        Any slope gives valid margins. The number of facilities must be public, because the slope depends on it.
        """
        slopes = np.arange(0.0, math.log(self.n / alpha) + 1.0, 0.25) / self.epsilon
        slopes = slopes if self.noise == "continuous" else np.unique(np.ceil(slopes))
        is_rare = self.n * np.exp(-self.epsilon * slopes) <= MAX_BEYOND
        lines = [(_excess_quantile(self.n, slope, alpha, self.epsilon, self.noise), slope) for slope in slopes[is_rare]]
        start, slope = min(lines, key=lambda line: (facilities * line[0] + self.n * line[1], line[1]))
        return AnySet(start=start, slope=float(slope))


@frozen(kw_only=True)
class AnySet:
    """A margin that covers any set of locations, even one that depends on the noise.

    Let the noise take S_v from location v, and let W be the sum over all v of max(0, S_v - t). Then it takes at most
    t k + W from any k locations. With w the upper quantile of W, all sets of k locations lack at most w + t k at once.

    >>> line = MarginRule(n=1000, epsilon=0.1).any_set(100, 0.1)
    >>> line.start + 10 * line.slope  # 148 where the set was chosen before, 850 with a margin for each location
    547.0

    Attributes:
        start: w.
        slope: t, the margin of each location of the set.
    """

    start: float
    slope: float

    def margins(self, sizes: Ints) -> Floats:
        """Return margins of sets with ``sizes`` locations."""
        return np.asarray(self.start + self.slope * sizes, dtype=np.float64)
