"""Margins, which are added to noisy counts so that capacities suffice: the paper's margin and the exact one.

Failure at facility v is the event that the noise takes more than the margin away. With failure probability beta_v at
facility v the promise is sum over v of beta_v <= alpha.
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
"""Expected locations beyond the slope of a margin for any set: more are not tried."""


def paper_margin(sizes: Ints, locations: int, epsilon: float, alpha: float) -> Floats:
    """Return (2 / epsilon) sqrt(|L|) ln(2 n / alpha) (Algorithm 2).

    It rests on the moment generating function of Laplace(1/epsilon), which that of the discrete Laplace never exceeds
    ((cosh s - 1) / s^2 increases), so it holds for integer noise too.
    """
    return np.asarray(2.0 / epsilon * np.sqrt(sizes) * math.log(2.0 * locations / alpha), dtype=np.float64)


@lru_cache(maxsize=10_000)
def _excess_quantile(n: int, slope: float, level: float, epsilon: float, noise: Noise) -> float:
    """Least w with P(sum over n draws S_v of max(0, S_v - slope) > w) <= level, rounded up; whole for discrete noise.

    By how many draws pass the slope, a binomial; what they pass it by is, without memory, a sum of exponential (of
    geometric) draws. Terms are positive; 1e-6 of the level covers their rounding and the part beyond the last.

    Raises:
        ArithmeticError: a probability is not a number.
    """
    from scipy.special import bdtrc, betaincc, gammaincc

    if noise == "discrete":  # the slope is whole: P(S > slope)
        chance, unit = math.exp(-epsilon * (slope + 1.0)) / (1.0 + math.exp(-epsilon)), 1.0
    else:
        chance, unit = 0.5 * math.exp(-epsilon * slope), 2.0**-10 / epsilon
    most = min(n, 8)
    while most < n and bdtrc(most, n, chance) > 1e-7 * level:
        most = min(n, 2 * most)
    number = np.arange(1.0, most + 1.0)
    share = bdtrc(number - 1.0, n, chance)
    share[:-1] -= share[1:]
    share = np.maximum(share, 0.0)

    def tail(w: float) -> float:
        if noise == "discrete":  # fewer than so many successes in w trials
            beyond = np.where(
                number > w, 1.0, betaincc(number, np.maximum(w + 1.0 - number, 1.0), -math.expm1(-epsilon))
            )
        else:
            beyond = gammaincc(number, epsilon * w)
        total = float(share @ beyond) + 1e-6 * level
        if math.isnan(total):
            raise ArithmeticError(f"no probability that {n} draws pass {slope:g} by more than {w:g} in all")
        return total

    low, high = -1, 0
    while tail(high * unit) > level:
        low, high = high, 2 * high + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if tail(middle * unit) <= level else (middle, high)
    return high * unit * (1.0 if noise == "discrete" else 1.0 + 1e-12)


@frozen(kw_only=True)
class MarginRule:
    """How margins are made.

    >>> import numpy as np
    >>> rule = MarginRule(n=1000, epsilon=0.1, noise="continuous")
    >>> rule.margins(np.array([1, 10, 100, 1000]), 0.1).round(1).tolist()
    [85.2, 148.1, 330.0, 573.0]

    Attributes:
        n: number of locations.
        epsilon: privacy budget of one location's report.
        kind: ``"exact"`` or ``"paper"``.
        noise: ``"discrete"`` or ``"continuous"``.
    """

    n: int
    epsilon: float
    kind: Kind = "exact"
    noise: Noise = "discrete"

    def margins(self, sizes: Ints, alpha: float) -> Floats:
        """Return the margin of each facility, given |L_v|, for failure probability alpha in all.

        It is shared out as by Theorem 3: beta_v = |L_v| alpha / n.
        """
        if self.kind == "paper":
            return paper_margin(sizes, self.n, self.epsilon, alpha)
        return upper_quantiles(sizes, sizes / self.n * alpha, self.epsilon, self.noise)

    def any_set(self, facilities: int, alpha: float) -> AnySet:
        """Return the margins of all sets at once, cheapest if all locations share ``facilities`` ones of one cost.

        Any slope gives valid margins; the number of facilities, and so the slope, must be public.
        """
        slopes = np.arange(0.0, math.log(self.n / alpha) + 1.0, 0.25) / self.epsilon
        slopes = slopes if self.noise == "continuous" else np.unique(np.ceil(slopes))
        rare = self.n * np.exp(-self.epsilon * slopes) <= MAX_BEYOND
        lines = [(_excess_quantile(self.n, slope, alpha, self.epsilon, self.noise), slope) for slope in slopes[rare]]
        start, slope = min(lines, key=lambda line: (facilities * line[0] + self.n * line[1], line[1]))
        return AnySet(start=start, slope=float(slope))


@frozen(kw_only=True)
class AnySet:
    """A margin that covers any set of locations chosen after the noise was seen.

    Let the noise take S_v from location v, and W = sum over all v of max(0, S_v - t). It takes at most t k + W from any
    k locations: the sum of the k greatest S_v is the least of these over t. So with w the upper quantile of W alone,
    all sets lack at most w + t k at once.

    >>> line = MarginRule(n=1000, epsilon=0.1).any_set(100, 0.1)
    >>> line.start + 10 * line.slope  # 148 where the set was chosen before, 850 with a margin for each location
    547.0

    Attributes:
        start: w.
        slope: t, for each location served.
    """

    start: float
    slope: float

    def margins(self, sizes: Ints) -> Floats:
        """Return margins of sets with ``sizes`` locations."""
        return np.asarray(self.start + self.slope * sizes, dtype=np.float64)
