"""Upper quantiles of a sum of k independent Laplace draws, continuous or discrete, rounded up.

``upper_quantile(k, beta, epsilon, noise)`` is a t with P(S > t) <= beta. The distribution is symmetric, so it bounds
what the noise takes away as well as what it adds. Discrete Laplace is P(X = x) proportional to exp(-epsilon |x|) on the
integers, and t is then an integer. One draw has a closed form. For more there is one evaluator of tails:

* S is compared with its copy wrapped around a circle of length N, N odd. By Chernoff P(S > N / 2) is at most a quarter
  of the error allowed. Wrapping only adds to the tail, which is then a Fourier sum over theta_j = 2 pi j / N.
* Chernoff's bound, min over s of [ln(1/beta) + k ln M(s)] / s, is valid at every s. It is used below
  `MIN_FOURIER_BETA`, where the rounding of that sum would show, and at once as the end that the search begins with.

The Fourier sums for discrete and for continuous noise, with the characteristic functions of one draw::

    1/2 - (t + 1/2)/N - (1/N) sum_j phi(theta_j)^k sin((t + 1/2) theta_j) / sin(theta_j / 2)
    phi(theta) = 1 / (1 + sin(theta/2)^2 / sinh(epsilon/2)^2)

    1/2 - t/N - sum_j phi(theta_j)^k sin(theta_j t) / (pi j)
    phi(theta) = 1 / (1 + (theta/epsilon)^2)
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final, Literal

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike

from privopt.arrays import Floats

__all__ = ["Noise", "chernoff_quantile", "tails", "upper_quantile", "upper_quantiles"]

Noise = Literal["discrete", "continuous"]
MIN_FOURIER_BETA: Final = 1e-9
FOURIER_ERROR, RELATIVE_ERROR = 1e-11, 1e-5
"""Errors of a tail that the search for a quantile allows for, absolute and as a share of beta. The weights of the sum
add up to less than the logarithm of their number, and phases are off by 1e-16 of a turn a term: below 1e-11 at 20,000
terms."""
MAX_SINES: Final = 1 << 16
"""Terms of Fourier sums that are computed at once: half a megabyte, which fits into a processor's cache."""
LARGE_EPSILON: Final = 100.0
"""Above it a discrete draw differs from 0 once in e**100. A smaller epsilon only widens the noise, so it is cut."""


def _log_mgf(discrete: bool, epsilon: float, s: float) -> float:
    """Return ln E exp(s X), 0 < s < epsilon."""
    ratio = math.sinh(s / 2.0) / math.sinh(epsilon / 2.0) if discrete else s / epsilon
    return -math.log1p(-ratio * ratio)


def _chernoff_bound(discrete: bool, epsilon: float, k: int, beta: float) -> float:
    """Return min over s of (ln(1/beta) + k ln M(s)) / s by golden section: each s gives a valid bound."""
    golden = 0.6180339887498949
    lower, upper = 0.0, epsilon
    log_beta = -math.log(beta)
    best = math.inf
    for _ in range(80):
        width = (upper - lower) * golden
        a, b = upper - width, lower + width
        at_a = (log_beta + k * _log_mgf(discrete, epsilon, a)) / a
        at_b = (log_beta + k * _log_mgf(discrete, epsilon, b)) / b if b < epsilon else math.inf
        best = min(best, at_a, at_b)
        if at_a < at_b:
            upper = b
        else:
            lower = a
    return best * (1.0 + 1e-12)


@frozen(eq=False)
class _WrappedTail:
    """The tail of S wrapped around a circle of length ``period``: 1/2 - t / period - a weighted sum of sines."""

    discrete: bool
    period: float
    weight: Floats

    @classmethod
    def of(cls, discrete: bool, epsilon: float, draws: int, error: float) -> _WrappedTail:
        """Choose period and weights so that the tail is within ``error`` (>= 1e-11) of the true one.

        The omitted terms add up to at most phi^draws ln(most / j) / 2 of the last one (discrete), or
        phi^draws / (2 draws pi) (continuous).
        """
        if discrete:
            epsilon = min(epsilon, 600.0)  # beyond, sinh leaves the doubles and so does every tail
        half = _chernoff_bound(discrete, epsilon, draws, error * 0.25)
        period = 2.0 * math.ceil(half) + 1.0 if discrete else 2.0 * half
        root = math.sqrt(math.expm1(-math.log(error * 0.01) / draws))  # phi^draws is that small where it is passed
        if discrete:
            sine = math.sinh(epsilon / 2.0) * root
            last = min(math.ceil(half), math.ceil(math.asin(min(sine, 1.0)) * period / math.pi))
        else:
            last = math.ceil(root * period * epsilon / (2.0 * math.pi))
        j = np.arange(1.0, last + 1.0)
        if discrete:
            sines = np.sin(math.pi * j / period)
            power = np.exp(-draws * np.log1p((sines / math.sinh(epsilon / 2.0)) ** 2))
            return cls(discrete, period, power / (period * sines))
        return cls(
            discrete, period, np.exp(-draws * np.log1p((2.0 * math.pi * j / (period * epsilon)) ** 2)) / (math.pi * j)
        )

    def tails(self, points: Floats) -> Floats:
        """Return (B,) P(S > point) for points of either sign."""
        t = np.floor(points) + 0.5 if self.discrete else points
        probabilities: Floats = np.where(t > 0, 0.0, 1.0)
        inside_circle = np.flatnonzero(np.abs(t) < self.period / 2.0)
        count = max(1, MAX_SINES // max(1, len(self.weight)))
        for start in range(0, len(inside_circle), count):
            block = inside_circle[start : start + count]
            fraction = t[block] / self.period
            turns = np.outer(fraction, np.arange(1.0, len(self.weight) + 1.0))
            probabilities[block] = 0.5 - fraction - np.sin(2.0 * math.pi * (turns - np.floor(turns))) @ self.weight
        return probabilities


def _search_quantile(discrete: bool, epsilon: float, k: int, beta: float, error: float) -> float:
    """Return the least t (an integer, or to a relative 1e-10) whose tail is at most beta - error, by bisection."""
    wrapped = _WrappedTail.of(discrete, epsilon, k, error)
    lower, upper = (-1.0 if discrete else 0.0), _chernoff_bound(discrete, epsilon, k, beta)
    upper = float(math.ceil(upper)) if discrete else upper
    while upper - lower > (1.0 if discrete else 1e-10 * upper):
        t = math.floor(0.5 * (lower + upper)) if discrete else 0.5 * (lower + upper)
        if wrapped.tails(np.array([t]))[0] <= beta - error:
            upper = t
        else:
            lower = t
    return upper


def tails(k: int, points: ArrayLike, epsilon: float, noise: Noise, error: float = 1e-9) -> Floats:
    """Return P(sum of k draws > t) for an array of t, each within ``error``. For k = 0 the sum is 0."""
    points = np.ascontiguousarray(points, dtype=np.float64)
    if k == 0:
        return (points < 0).astype(np.float64)
    if k == 1:  # in closed form: at tiny epsilon a Fourier sum would need millions of terms
        if noise == "continuous":
            small = 0.5 * np.exp(-epsilon * np.abs(points))
            return np.asarray(np.where(points >= 0, small, 1.0 - small))
        floors = np.floor(points)
        next_values = np.where(
            floors >= 0, floors + 1.0, -floors
        )  # P(X >= n) = exp(-epsilon n) / (1 + exp(-epsilon)), n >= 1
        small = np.exp(-epsilon * next_values) / (1.0 + np.exp(-epsilon))
        return np.asarray(np.where(floors >= 0, small, 1.0 - small))
    return _WrappedTail.of(noise == "discrete", epsilon, k, error).tails(points)


def _quantile_of_one(beta: float, epsilon: float, noise: Noise) -> float:
    """Return the quantile of one draw, rounded up.

    P(X > t) is exp(-epsilon (t + 1)) / (1 + exp(-epsilon)) for integer noise, exp(-epsilon t) / 2 for continuous noise.
    """
    if noise == "continuous":
        return math.nextafter(-math.log(2.0 * beta) / epsilon * (1.0 + 1e-12), math.inf)
    exact = (-math.log(beta) - math.log1p(math.exp(-epsilon))) / epsilon
    return float(max(0, math.ceil(exact * (1.0 + 1e-12)) - 1))


def chernoff_quantile(k: int, beta: float, epsilon: float, noise: Noise = "discrete") -> float:
    """Return Chernoff's upper bound on the quantile, an integer for discrete noise. It is fast for every k."""
    if noise == "discrete":
        epsilon = min(epsilon, LARGE_EPSILON)
    bound = _chernoff_bound(noise == "discrete", epsilon, k, beta)
    return float(max(0, math.ceil(bound) - 1)) if noise == "discrete" else float(bound)


@lru_cache(maxsize=500_000)
def upper_quantile(k: int, beta: float, epsilon: float, noise: Noise = "discrete") -> float:
    """Return the least t with P(sum of k Laplace(1/epsilon) draws > t) <= beta, rounded up.

    Below a ``beta`` of 1e-9 the bound is Chernoff's for two draws and more, 2 to 16 % above the least
    (``test_fl_margins.py``).

    Args:
        k: Number of draws, >= 1.
        beta: Probability in (0, 1). At 1/2 and above, t is 0.
        epsilon: Rate of one draw, > 0.
        noise: ``"discrete"`` (t is an integer) or ``"continuous"``.

    >>> upper_quantile(1, 1e-4, 0.1)
    85.0
    >>> round(upper_quantile(1, 1e-4, 0.1, "continuous"), 1)
    85.2
    """
    if beta >= 0.5:
        return 0.0
    if k == 1:
        return _quantile_of_one(beta, epsilon, noise)
    if beta < MIN_FOURIER_BETA:
        return chernoff_quantile(k, beta, epsilon, noise)
    discrete, error = noise == "discrete", max(FOURIER_ERROR, RELATIVE_ERROR * beta)
    quantile = _search_quantile(discrete, min(epsilon, LARGE_EPSILON) if discrete else epsilon, k, beta, error)
    return max(0.0, quantile) if discrete else math.nextafter(quantile * (1.0 + 1e-15), math.inf)


def upper_quantiles(sizes: ArrayLike, betas: ArrayLike, epsilon: float, noise: Noise = "discrete") -> Floats:
    """Return `upper_quantile` of each pair (size, beta). Equal pairs are computed once, by its cache."""
    pairs = zip(np.asarray(sizes).tolist(), np.asarray(betas, dtype=float).tolist(), strict=True)
    return np.array([upper_quantile(k, beta, epsilon, noise) for k, beta in pairs], dtype=np.float64)
