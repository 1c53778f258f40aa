"""Upper quantiles of a sum of k independent Laplace draws, continuous or discrete, rounded up.

``upper_quantile(k, beta, epsilon, noise)`` returns a t with P(S > t) <= beta for the sum S. The distribution of S is
symmetric, so t limits both what the noise adds to a count and what it subtracts. In the discrete Laplace distribution,
P(X = x) is proportional to exp(-epsilon |x|) for every integer x, and t is an integer. For a single draw, the quantile
has a closed form. For several draws, it is found in one of two ways:

* The distribution of S is wrapped around a circle of length N, which is odd for discrete noise. N is chosen by
  Chernoff's bound such that P(S > N / 2) is at most a quarter of the allowed error. Wrapping can only increase the
  tail, which is then a Fourier sum over the frequencies theta_j = 2 pi j / N.
* Chernoff's bound is the minimum over s of [ln(1/beta) + k ln M(s)] / s, where M is the moment generating function of
  one draw. The expression is a valid bound for every s. This method is used for beta below `MIN_FOURIER_BETA`, where
  the rounding errors of the Fourier sum would matter. It also provides the upper end of the interval in which quantiles
  are found by bisection.

Let phi be the characteristic function of one draw. The sums are over j = 1 to (N - 1) / 2 for discrete noise, and over
all j >= 1 for continuous noise. The tails for discrete noise (first) and continuous noise (second) are::

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
"""The smallest beta for which the tail of a sum of several draws is computed as a Fourier sum."""
FOURIER_ERROR, RELATIVE_ERROR = 1e-11, 1e-5
"""The absolute and relative errors that the search for a quantile allows for in a computed tail.

The error is max(FOURIER_ERROR, RELATIVE_ERROR * beta). Term j of the sum has a weight of at most 1 / (2 j), and its
phase is off by at most about j * 1e-16 turns, so 20,000 terms are off by less than 1e-11.
"""
MAX_SINES: Final = 1 << 16
"""The approximate number of sines computed at once in a Fourier sum.

They take up half a megabyte, which fits in a cache.
"""
LARGE_EPSILON: Final = 100.0
"""The largest epsilon used for sums of discrete draws. Larger values are reduced to it, which only widens the noise.

Even at this epsilon, a draw differs from 0 only with probability 2 e**-100.
"""


def _log_mgf(discrete: bool, epsilon: float, s: float) -> float:
    """Return ln E exp(s X) for 0 < s < epsilon, the logarithm of the moment generating function of one draw X.

    X is Laplace noise of rate ``epsilon``, which is discrete if ``discrete`` is True and continuous otherwise.
    """
    ratio = math.sinh(s / 2.0) / math.sinh(epsilon / 2.0) if discrete else s / epsilon
    return -math.log1p(-ratio * ratio)


def _chernoff_bound(discrete: bool, epsilon: float, k: int, beta: float) -> float:
    """Return Chernoff's bound on the sum S of k draws, a number t with P(S > t) <= beta.

    It is the minimum over s of (ln(1/beta) + k ln M(s)) / s, where M is the moment generating function of one draw.

    Args:
        discrete: Whether the noise is discrete rather than continuous Laplace noise.
        epsilon: The rate of one draw, which is the reciprocal of its scale.
        k: The number of draws.
        beta: The maximum probability, in (0, 1), that S exceeds the bound.
    """
    # Golden-section search for the best s in (0, epsilon). 80 steps reduce the interval by a factor of 1e-17.
    golden = 0.6180339887498949
    lower, upper = 0.0, epsilon
    log_beta = -math.log(beta)
    best = math.inf
    for _ in range(80):
        width = (upper - lower) * golden
        a, b = upper - width, lower + width
        # M(s) is infinite at s = epsilon, which b can reach because of rounding.
        at_a = (log_beta + k * _log_mgf(discrete, epsilon, a)) / a
        at_b = (log_beta + k * _log_mgf(discrete, epsilon, b)) / b if b < epsilon else math.inf
        best = min(best, at_a, at_b)
        if at_a < at_b:
            upper = b
        else:
            lower = a
    # Every s gives a valid bound, so the search need not converge. The factor covers rounding errors in the formula.
    return best * (1.0 + 1e-12)


@frozen(eq=False)
class _WrappedTail:
    """A Fourier sum for the tail of a sum S of noise draws, wrapped around a circle (see the module docstring).

    P(S > t) is approximately 1/2 - t / period - sum over j of weight_j sin(2 pi j t / period). For discrete noise, t is
    an integer plus 1/2.

    Attributes:
        discrete: Whether the noise is discrete rather than continuous Laplace noise.
        period: The length N of the circle.
        weight: (J,) The coefficients of the sines for j = 1 to J.
    """

    discrete: bool
    period: float
    weight: Floats

    @classmethod
    def of(cls, discrete: bool, epsilon: float, draws: int, error: float) -> _WrappedTail:
        """Return a Fourier sum that differs from the true tail by at most ``error``.

        Let j be the last term that is kept, and J the last term of the full sum. The omitted terms add up to at most
        phi(theta_j)^draws ln(J / j) / 2 for discrete noise, and phi(theta_j)^draws / (2 draws pi) for continuous noise,
        where phi and theta_j are defined in the module docstring.

        Args:
            discrete: Whether the noise is discrete rather than continuous Laplace noise.
            epsilon: The rate of one draw.
            draws: The number k of draws in the sum.
            error: The maximum absolute error of a tail probability, at least 1e-11.
        """
        if discrete:
            # math.sinh(epsilon / 2) overflows if epsilon is 1421 or more. At 600, a draw differs from 0 only with
            # probability 2 e**-600.
            epsilon = min(epsilon, 600.0)
        # The sum exceeds half the circle with a probability of at most a quarter of the error.
        half = _chernoff_bound(discrete, epsilon, draws, error * 0.25)
        period = 2.0 * math.ceil(half) + 1.0 if discrete else 2.0 * half
        # phi(theta)^draws has fallen to error / 100 where theta / epsilon (continuous noise) or sin(theta / 2) /
        # sinh(epsilon / 2) (discrete noise) equals `root`. Terms beyond this theta are omitted.
        root = math.sqrt(math.expm1(-math.log(error * 0.01) / draws))
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
        """Return P(S > t) for each t in the (B,) array ``points``, where t may be negative."""
        # For discrete noise, the tail is the same for all points in [n, n + 1), and the formula gives it at n + 1/2.
        t = np.floor(points) + 0.5 if self.discrete else points
        probabilities: Floats = np.where(t > 0, 0.0, 1.0)
        # Beyond half the circle, the wrapped tail is meaningless. The true tail is then within a quarter of the allowed
        # error of 0, or of 1 if the point is negative.
        inside_circle = np.flatnonzero(np.abs(t) < self.period / 2.0)
        count = max(1, MAX_SINES // max(1, len(self.weight)))
        for start in range(0, len(inside_circle), count):
            block = inside_circle[start : start + count]
            fraction = t[block] / self.period
            turns = np.outer(fraction, np.arange(1.0, len(self.weight) + 1.0))
            # Whole turns are subtracted first, because rounding 2 pi times a large number of turns would distort the
            # sine.
            probabilities[block] = 0.5 - fraction - np.sin(2.0 * math.pi * (turns - np.floor(turns))) @ self.weight
        return probabilities


def _search_quantile(discrete: bool, epsilon: float, k: int, beta: float, error: float) -> float:
    """Return the smallest t at which the computed tail of a sum of k draws is at most beta - error, by bisection.

    Computed tails have an absolute error of at most ``error``, so the true tail at t is at most beta. ``epsilon`` is
    the rate of one draw. For discrete noise, t is an integer. For continuous noise, t has a relative precision of
    1e-10.
    """
    wrapped = _WrappedTail.of(discrete, epsilon, k, error)
    lower, upper = (-1.0 if discrete else 0.0), _chernoff_bound(discrete, epsilon, k, beta)
    upper = float(math.ceil(upper)) if discrete else upper
    while upper - lower > (1.0 if discrete else 1e-10 * upper):
        t = math.floor(0.5 * (lower + upper)) if discrete else 0.5 * (lower + upper)
        # The computed tail may be off by `error`, so t is accepted only if the tail plus `error` is at most beta.
        if wrapped.tails(np.array([t]))[0] <= beta - error:
            upper = t
        else:
            lower = t
    return upper


def tails(k: int, points: ArrayLike, epsilon: float, noise: Noise, error: float = 1e-9) -> Floats:
    """Return P(sum of k draws > t) for each t in ``points``, as a (B,) array.

    Args:
        k: The number of draws of Laplace(1/epsilon) noise. The sum of 0 draws is 0.
        points: (B,) The values of t, in clients.
        epsilon: The rate of one draw.
        noise: The kind of Laplace noise, ``"discrete"`` or ``"continuous"``.
        error: The maximum absolute error of the probabilities, at least 1e-11.
    """
    points = np.ascontiguousarray(points, dtype=np.float64)
    if k == 0:
        return (points < 0).astype(np.float64)
    if k == 1:  # closed form, because a Fourier sum would need millions of terms for a tiny epsilon
        if noise == "continuous":
            small = 0.5 * np.exp(-epsilon * np.abs(points))
            return np.asarray(np.where(points >= 0, small, 1.0 - small))
        floors = np.floor(points)
        # P(X >= n) = exp(-epsilon n) / (1 + exp(-epsilon)) for n >= 1. For negative points, the symmetry of X is used.
        next_values = np.where(floors >= 0, floors + 1.0, -floors)
        small = np.exp(-epsilon * next_values) / (1.0 + np.exp(-epsilon))
        return np.asarray(np.where(floors >= 0, small, 1.0 - small))
    return _WrappedTail.of(noise == "discrete", epsilon, k, error).tails(points)


def _quantile_of_one(beta: float, epsilon: float, noise: Noise) -> float:
    """Return the smallest t with P(X > t) <= beta for a single draw X of rate ``epsilon``, rounded up.

    For t >= 0, P(X > t) is exp(-epsilon (t + 1)) / (1 + exp(-epsilon)) for discrete noise, and exp(-epsilon t) / 2 for
    continuous noise.
    """
    if noise == "continuous":
        return math.nextafter(-math.log(2.0 * beta) / epsilon * (1.0 + 1e-12), math.inf)
    # P(X > t) <= beta if t + 1 >= exact. With the factor 1 + 1e-12, rounding errors can only increase the result.
    exact = (-math.log(beta) - math.log1p(math.exp(-epsilon))) / epsilon
    return float(max(0, math.ceil(exact * (1.0 + 1e-12)) - 1))


def chernoff_quantile(k: int, beta: float, epsilon: float, noise: Noise = "discrete") -> float:
    """Return Chernoff's bound t, which satisfies P(sum of k draws > t) <= beta and is an integer for discrete noise.

    The bound is fast to compute for any k, but somewhat larger than the result of `upper_quantile`. ``epsilon`` is the
    rate of one draw, i.e. the reciprocal of its scale.
    """
    if noise == "discrete":
        epsilon = min(epsilon, LARGE_EPSILON)
    bound = _chernoff_bound(noise == "discrete", epsilon, k, beta)
    # Chernoff's bound is also valid for P(S >= bound), which for an integer S equals P(S > ceil(bound) - 1).
    return float(max(0, math.ceil(bound) - 1)) if noise == "discrete" else float(bound)


@lru_cache(maxsize=500_000)
def upper_quantile(k: int, beta: float, epsilon: float, noise: Noise = "discrete") -> float:
    """Return the smallest t with P(sum of k Laplace(1/epsilon) draws > t) <= beta, rounded up.

    For two or more draws and a ``beta`` below 1e-9, the result is Chernoff's bound, which is 2 to 16 % larger than the
    smallest t (``test_fl_margins.py``).

    Args:
        k: The number of draws, >= 1.
        beta: The maximum probability that the sum exceeds t, in (0, 1). If it is at least 1/2, t is 0.
        epsilon: The rate of one draw, > 0.
        noise: The kind of Laplace noise, ``"discrete"`` (so that t is an integer) or ``"continuous"``.

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
    # Taking the next larger double makes up for rounding errors in the last steps.
    return max(0.0, quantile) if discrete else math.nextafter(quantile * (1.0 + 1e-15), math.inf)


def upper_quantiles(sizes: ArrayLike, betas: ArrayLike, epsilon: float, noise: Noise = "discrete") -> Floats:
    """Return an (m,) array with the upper quantile of the noise, in clients, for each pair of a size and a beta.

    Equal pairs are computed only once, because `upper_quantile` caches its results.

    Args:
        sizes: (m,) The number of draws in each sum.
        betas: (m,) The maximum probability that each sum exceeds its quantile.
        epsilon: The rate of one draw.
        noise: The kind of Laplace noise, ``"discrete"`` or ``"continuous"``.
    """
    pairs = zip(np.asarray(sizes).tolist(), np.asarray(betas, dtype=float).tolist(), strict=True)
    return np.array([upper_quantile(k, beta, epsilon, noise) for k, beta in pairs], dtype=np.float64)
