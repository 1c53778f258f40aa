"""Margins to add to noisy counts so that capacities suffice, either by the paper's formula or from exact quantiles.

A facility v fails if the noise lowers its count by more than the margin, which happens with probability at most beta_v.
The guarantee is that the beta_v of all facilities add up to at most alpha.
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
"""The largest value of n exp(-epsilon slope) for which a slope, the margin per location in `AnySet`, is tried.

This value is about twice the expected number of locations whose noise exceeds the slope.
"""


def paper_margin(sizes: Ints, locations: int, epsilon: float, alpha: float) -> Floats:
    """Return the paper's margin for each facility, (2 / epsilon) sqrt(|L|) ln(2 n / alpha) clients (Algorithm 2).

    The paper's proof uses the moment generating function of Laplace(1/epsilon). The moment generating function of the
    discrete Laplace distribution is never larger, because (cosh s - 1) / s^2 increases with s > 0. The margin is
    therefore valid for integer noise as well.

    Args:
        sizes: (m,) The number |L| of locations that each facility serves.
        locations: The total number n of locations.
        epsilon: The rate of the noise in each count, which is the reciprocal of its scale.
        alpha: The maximum probability that the margin of at least one facility is too small.
    """
    return np.asarray(2.0 / epsilon * np.sqrt(sizes) * math.log(2.0 * locations / alpha), dtype=np.float64)


@lru_cache(maxsize=10_000)
def _excess_quantile(n: int, slope: float, level: float, epsilon: float, noise: Noise) -> float:
    """Return the smallest w for which the total excess exceeds w with probability at most ``level``.

    The total excess is the sum of max(0, S_v - slope) over n independent noise draws S_v. The result is rounded up, and
    for discrete noise it is an integer.

    The number of draws that exceed the slope is binomial. Laplace tails are memoryless, so given this number, the total
    excess is a sum of that many exponential (or geometric) draws. All terms of the series for the tail are positive. A
    fraction of 1e-6 of the level covers their rounding errors and the omitted terms.

    Args:
        n: The number of draws of Laplace(1/epsilon) noise, one per location.
        slope: The margin per location, in clients.
        level: The maximum probability that the total excess exceeds w.
        epsilon, noise: The rate (the reciprocal of the scale) and the kind of the noise.

    Raises:
        ArithmeticError: A probability came out as NaN.
    """
    from scipy.special import bdtrc, betaincc, gammaincc

    # The probability that one draw exceeds the slope, and the resolution with which w is searched.
    if noise == "discrete":  # the slope is an integer, so P(S > slope) = P(S >= slope + 1)
        pass_probability, unit = math.exp(-epsilon * (slope + 1.0)) / (1.0 + math.exp(-epsilon)), 1.0
    else:
        pass_probability, unit = 0.5 * math.exp(-epsilon * slope), 2.0**-10 / epsilon
    max_count = min(n, 8)
    # More than max_count draws exceed the slope with a probability of at most 1e-7 of the level, which the 1e-6 below
    # covers.
    while max_count < n and bdtrc(max_count, n, pass_probability) > 1e-7 * level:
        max_count = min(n, 2 * max_count)
    # Let N be the number of draws that exceed the slope. Then bdtrc(c - 1, n, p) = P(N >= c).
    counts = np.arange(1.0, max_count + 1.0)
    count_probabilities = bdtrc(counts - 1.0, n, pass_probability)
    # Differences turn P(N >= c) into P(N = c), except that the last entry covers all larger numbers as well.
    count_probabilities[:-1] -= count_probabilities[1:]
    count_probabilities = np.maximum(count_probabilities, 0.0)

    def tail_probability(w: float) -> float:
        """Return an upper bound on the probability that the total excess exceeds w."""
        # The sum of c geometric draws exceeds w if w trials have fewer than c successes (a binomial probability). The
        # sum of c exponential draws has a gamma distribution.
        if noise == "discrete":
            tail_given_count = np.where(
                counts > w, 1.0, betaincc(counts, np.maximum(w + 1.0 - counts, 1.0), -math.expm1(-epsilon))
            )
        else:
            tail_given_count = gammaincc(counts, epsilon * w)
        total = float(count_probabilities @ tail_given_count) + 1e-6 * level
        if math.isnan(total):
            raise ArithmeticError(f"no probability that {n} draws pass {slope:g} by more than {w:g} in all")
        return total

    # To find the smallest multiple of the unit, double `upper` until its tail is small enough, then bisect, keeping the
    # tail at `upper` at most the level.
    lower, upper = -1, 0
    while tail_probability(upper * unit) > level:
        lower, upper = upper, 2 * upper + 1
    while upper - lower > 1:
        middle = (lower + upper) // 2
        lower, upper = (lower, middle) if tail_probability(middle * unit) <= level else (middle, upper)
    # The factor makes up for the rounding of epsilon * w, so that the result is never too small.
    return upper * unit * (1.0 if noise == "discrete" else 1.0 + 1e-12)


@frozen(kw_only=True)
class MarginRule:
    """A rule for computing the margins that are added to noisy counts.

    >>> import numpy as np
    >>> rule = MarginRule(n=1000, epsilon=0.1, noise="continuous")
    >>> rule.margins(np.array([1, 10, 100, 1000]), 0.1).round(1).tolist()
    [85.2, 148.1, 330.0, 573.0]

    Attributes:
        n: The number of locations.
        epsilon: The privacy budget for one location's report. The noise in the report has scale 1 / epsilon.
        kind: ``"exact"`` to use quantiles of the noise, or ``"paper"`` to use the paper's formula (`paper_margin`).
        noise: The kind of Laplace noise, ``"discrete"`` or ``"continuous"``.
    """

    n: int
    epsilon: float
    kind: Kind = "exact"
    noise: Noise = "discrete"

    def margins(self, sizes: Ints, alpha: float) -> Floats:
        """Return an (m,) array with each facility's margin, in clients, for a total failure probability of alpha.

        With exact quantiles, facility v may fail with probability beta_v = |L_v| alpha / n, as in Theorem 3.

        Args:
            sizes: (m,) The number |L_v| of locations that each facility v serves.
            alpha: The maximum probability that the margin of at least one facility is too small.
        """
        if self.kind == "paper":
            return paper_margin(sizes, self.n, self.epsilon, alpha)
        return upper_quantiles(sizes, sizes / self.n * alpha, self.epsilon, self.noise)

    def any_set(self, facilities: int, alpha: float) -> AnySet:
        """Return margins that are valid for all sets of locations at once.

        The margin of a set is a constant plus a slope times the number of its locations. The slope is chosen to
        minimise the sum of the facilities' margins. Any other slope would give valid margins too, provided that it is
        computed from public data alone.

        Args:
            facilities: The number of facilities for which the sum of the margins is minimised. It must be public,
                because the slope depends on it.
            alpha: The maximum probability that the margin of at least one set is too small.
        """
        # Beyond ln(n / alpha) / epsilon hardly any location exceeds the slope, so larger slopes only cost more. Below
        # it, the candidates are a quarter of the noise's scale apart. For integer noise they are rounded up to
        # integers.
        slopes = np.arange(0.0, math.log(self.n / alpha) + 1.0, 0.25) / self.epsilon
        slopes = slopes if self.noise == "continuous" else np.unique(np.ceil(slopes))
        # Slopes that many locations would exceed are left out, because their quantile takes long to compute.
        is_rare = self.n * np.exp(-self.epsilon * slopes) <= MAX_BEYOND
        lines = [(_excess_quantile(self.n, slope, alpha, self.epsilon, self.noise), slope) for slope in slopes[is_rare]]
        # The best pair of start and slope has the smallest sum of margins over `facilities` sets that together contain
        # all n locations. Ties go to the smaller slope.
        start, slope = min(lines, key=lambda line: (facilities * line[0] + self.n * line[1], line[1]))
        return AnySet(start=start, slope=float(slope))


@frozen(kw_only=True)
class AnySet:
    """A margin that is valid for any set of locations, even one that depends on the noise.

    Let S_v be the amount by which the noise lowers the count of location v, and W the sum over all v of max(0, S_v -
    t). Then the noise lowers the count of any k locations by at most t k + W. If w is the upper quantile of W, the
    margin w + t k suffices for all sets of k locations at once.

    >>> line = MarginRule(n=1000, epsilon=0.1).any_set(100, 0.1)
    >>> line.start + 10 * line.slope  # 148 if the set did not depend on the noise, 850 with a margin for each location
    547.0

    Attributes:
        start: The part w of the margin that does not depend on the size of the set.
        slope: The margin t per location in the set.
    """

    start: float
    slope: float

    def margins(self, sizes: Ints) -> Floats:
        """Return the margin, in clients, of a set of locations for each of the given set sizes.

        Args:
            sizes: (m,) The number of locations in each set.

        Returns:
            An (m,) array of margins.
        """
        return np.asarray(self.start + self.slope * sizes, dtype=np.float64)
