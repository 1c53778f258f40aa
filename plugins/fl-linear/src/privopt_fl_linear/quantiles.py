"""Upper quantiles of a sum of k independent Laplace draws, continuous or discrete: never below the true ones.

``upper_quantile(k, beta, epsilon, noise)`` is a t with P(S > t) <= beta. The distribution is symmetric, so it bounds
what the noise takes away as well as what it adds. Discrete Laplace is P(X = x) proportional to exp(-epsilon |x|) on the
integers, and t is then an integer. How P(S > t) is evaluated:

* discrete, usual case: S is compared with its copy wrapped around a circle of N = 2H + 1 integers, P(S > H) <= 1e-6
  beta by Chernoff. The wrapped tail is the finite Fourier sum
  1/2 - (t + 1/2)/N - (1/N) sum_j phi(theta_j)^k sin((t + 1/2) theta_j) / sin(theta_j / 2), theta_j = 2 pi j / N,
  phi(theta) = 1 / (1 + sin(theta/2)^2 / sinh(epsilon/2)^2); wrapping only adds to it, 1e-12 covers its rounding
  (phases are reduced in integers; the terms add up to less than log N), and few of its terms matter when k is large.
* discrete, beta below 1e-9, where an absolute 1e-12 would show: S = A - B with negative binomials, a sum of positive
  terms, relatively accurate.
* continuous: P(S > t/epsilon) = sum_{m < k} Poisson(m; t) P(Binomial(2k - 1 - m, 1/2) >= k): m of the k arrivals of one
  unit Poisson process fall before t, and the rest lose the race against the k arrivals of another. Positive terms.
  For more than 200 draws the same Fourier sum on a circle of reals: 1/2 - t/N - sum_j phi(theta_j)^k sin(theta_j t) /
  (pi j), phi(theta) = 1 / (1 + (theta/epsilon)^2).
* beyond the ranges where these are cheap: Chernoff, min over s of [ln(1/beta) + k ln M(s)] / s, valid at every s.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from privopt.arrays import Floats
from privopt.execution.compiled import jit

__all__ = ["Noise", "chernoff_quantile", "tails", "upper_quantile", "upper_quantiles"]

Noise = Literal["discrete", "continuous"]
FOURIER_TERMS = 50_000
SUM_TERMS = 200_000
RACE_LIMIT = 200
CONTINUOUS_LIMIT = 100_000_000
SMALL_BETA = 1e-9
LARGE_EPSILON = 100.0
_cache: dict[tuple[str, float, int, float], float] = {}
CACHE_LIMIT = 500_000


@jit()
def _log_mgf(discrete: bool, epsilon: float, s: float) -> float:
    """ln E exp(s X), 0 < s < epsilon."""
    if discrete:
        ratio = math.sinh(s / 2.0) / math.sinh(epsilon / 2.0)
        return -math.log1p(-ratio * ratio)
    return -math.log1p(-(s / epsilon) * (s / epsilon))


@jit()
def _chernoff(discrete: bool, epsilon: float, k: int, beta: float) -> float:
    """min over s of (ln(1/beta) + k ln M(s)) / s by golden section: each s gives a valid bound."""
    golden = 0.6180339887498949
    low, high = 0.0, epsilon
    log_beta = -math.log(beta)
    best = math.inf
    for _ in range(80):
        width = (high - low) * golden
        a, b = high - width, low + width
        at_a = (log_beta + k * _log_mgf(discrete, epsilon, a)) / a
        at_b = (log_beta + k * _log_mgf(discrete, epsilon, b)) / b if b < epsilon else math.inf
        best = min(best, at_a, at_b)
        if at_a < at_b:
            high = b
        else:
            low = a
    return best * (1.0 + 1e-12)


@jit()
def _fourier_quantile(epsilon: float, k: int, beta: float, most_terms: int) -> float:
    """The least integer whose wrapped tail is at most beta less the allowances; -1 if too many terms."""
    half = math.ceil(_chernoff(True, epsilon, k, beta * 1e-6))
    period = 2 * half + 1
    c = 1.0 / math.sinh(epsilon / 2.0) ** 2
    # phi^k < e^-46 where k ln(1 + c sin^2) > 46
    limit = math.sqrt(math.expm1(46.0 / k) / c) if k > 1 else 1.0
    terms = half if limit >= 1.0 else min(half, int(math.asin(limit) / math.pi * period) + 1)
    if terms > most_terms:
        return -1.0
    weight = np.empty(terms)
    for j in range(terms):
        sine = math.sin(math.pi * (j + 1) / period)
        weight[j] = math.exp(-k * math.log1p(c * sine * sine)) / sine
    allowed = beta * (1.0 - 1e-6) - 1e-12
    low, high = -1, math.ceil(_chernoff(True, epsilon, k, beta))
    while high - low > 1:
        t = (low + high) // 2
        total = 0.0
        for j in range(terms):
            phase = ((j + 1) * (2 * t + 1)) % (2 * period)
            total += weight[j] * math.sin(math.pi * phase / period)
        if 0.5 - (t + 0.5) / period - total / period <= allowed:
            high = t
        else:
            low = t
    return float(max(high, 0))


@jit()
def _sine_sum(weight: Any, terms: int, turn: float) -> float:
    """sum_j weight[j - 1] sin(2 pi j turn), j = 1 .. terms.

    Clenshaw's recurrence for few terms: its error grows with their square, to 1e-10 at most at 500.
    """
    if terms <= 500:
        angle = 2.0 * math.pi * turn
        double = 2.0 * math.cos(angle)
        last, before = 0.0, 0.0
        for j in range(terms - 1, -1, -1):
            last, before = weight[j] + double * last - before, last
        return last * math.sin(angle)
    total = 0.0
    for j in range(terms):
        turns = (j + 1) * turn
        total += weight[j] * math.sin(2.0 * math.pi * (turns - math.floor(turns)))
    return total


@jit()
def _wrapped_tails(discrete: bool, epsilon: float, k: int, points: Any, slack: float) -> Any:
    """P(S > t) at many t of either sign, each within ``slack`` (>= 1e-11) of the truth."""
    if discrete:
        epsilon = min(epsilon, 600.0)  # beyond, sinh leaves the doubles and so does every tail
    half = _chernoff(discrete, epsilon, k, slack * 0.25)
    period = 2.0 * math.ceil(half) + 1.0 if discrete else 2.0 * half
    most = math.ceil(half) if discrete else 10_000_000
    weight = np.empty(1024)
    terms = 0
    sinh = math.sinh(epsilon / 2.0)
    for j in range(1, most + 1):
        if discrete:
            sine = math.sin(math.pi * j / period)
            power = math.exp(-k * math.log1p((sine / sinh) ** 2))
            scale = period * sine
        else:
            power = math.exp(-k * math.log1p((2.0 * math.pi * j / (period * epsilon)) ** 2))
            scale = math.pi * j
        # what is left adds up to at most power ln(most / j) / 2 (discrete), power / (2 k pi) (continuous)
        if power < slack * 0.01:
            break
        if terms == len(weight):
            weight = np.append(weight, np.empty(terms))
        weight[terms] = power / scale
        terms += 1
    out = np.empty(len(points))
    for i in range(len(points)):
        t = math.floor(points[i]) + 0.5 if discrete else points[i]
        if abs(t) >= period / 2.0:
            out[i] = 0.0 if t > 0 else 1.0
            continue
        out[i] = 0.5 - t / period - _sine_sum(weight, terms, t / period)
    return out


@jit()
def _continuous_fourier(k: int, beta: float) -> float:
    """The quantile of k unit Laplace draws from the wrapped tail, for k large enough that few terms matter."""
    period = 2.0 * _chernoff(False, 1.0, k, beta * 1e-6)
    terms = int(math.sqrt(math.expm1(46.0 / k)) * period / (2.0 * math.pi)) + 1
    weight = np.empty(terms)
    for j in range(terms):
        power = math.exp(-k * math.log1p((2.0 * math.pi * (j + 1) / period) ** 2))
        weight[j] = power / (math.pi * (j + 1))
    allowed = beta * (1.0 - 1e-6) - 1e-12
    low, high = 0.0, _chernoff(False, 1.0, k, beta)
    while high - low > 1e-10 * high:
        t = 0.5 * (low + high)
        total = 0.0
        for j in range(terms):
            turns = (j + 1) * (t / period)
            total += weight[j] * math.sin(2.0 * math.pi * (turns - math.floor(turns)))
        if 0.5 - t / period - total <= allowed:
            high = t
        else:
            low = t
    return high


def tails(k: int, points: ArrayLike, epsilon: float, noise: Noise, slack: float = 1e-9) -> Floats:
    """P(sum of k draws > t) for an array of t, each within ``slack`` of the truth; k = 0 is a sum of 0."""
    points = np.ascontiguousarray(points, dtype=np.float64)
    if k == 0:
        return (points < 0).astype(np.float64)
    if k == 1:  # in closed form: at tiny epsilon a Fourier sum would need millions of terms
        if noise == "continuous":
            small = 0.5 * np.exp(-epsilon * np.abs(points))
            return np.asarray(np.where(points >= 0, small, 1.0 - small))
        whole = np.floor(points)
        beyond = np.where(whole >= 0, whole + 1.0, -whole)  # P(X >= n) = exp(-epsilon n) / (1 + exp(-epsilon)), n >= 1
        small = np.exp(-epsilon * beyond) / (1.0 + np.exp(-epsilon))
        return np.asarray(np.where(whole >= 0, small, 1.0 - small))
    return np.asarray(_wrapped_tails(noise == "discrete", epsilon, k, points, slack))


def _binomial_sum_tail(epsilon: float, k: int, t: int) -> float:
    """P(A - B > t), A and B negative binomial; inflated by its relative error."""
    from scipy import special

    p, q = math.exp(-epsilon), -math.expm1(-epsilon)
    last = _binomial_sum_terms(epsilon, k)
    b = np.arange(last + 1.0)
    log_pmf = special.gammaln(b + k) - special.gammaln(b + 1.0) - special.gammaln(k) + k * math.log(q) - b * epsilon
    total = math.fsum(np.exp(log_pmf) * special.betainc(t + b + 1.0, float(k), p))
    rest = special.betainc(last + 1.0, float(k), p) * special.betainc(t + last + 2.0, float(k), p)
    return float((total + rest) * (1.0 + 1e-8))


def _binomial_sum_terms(epsilon: float, k: int) -> int:
    p, q = math.exp(-epsilon), -math.expm1(-epsilon)
    return int(k * p / q + 12.0 * math.sqrt(k * p) / q + 60.0 / epsilon) + 1


def _race_tail(k: int, t: float, m: Any, lost: Any) -> float:
    """P(S > t) for unit scale; ``lost[m]`` = P(Binomial(2k - 1 - m, 1/2) >= k). Inflated by its error."""
    from scipy import special

    if t <= 0.0:
        return 0.5
    log_pmf = m * math.log(t) - t - special.gammaln(m + 1.0)
    total = math.fsum(np.exp(log_pmf) * lost)
    if len(m) < k:  # arrivals beyond the window: the race is then at most even
        total += 0.5 * float(special.gammainc(float(len(m)), t))
    return float(total * (1.0 + 1e-9))


def _continuous_quantile(k: int, beta: float) -> float:
    """The quantile at unit scale, by bisection to 1e-10 relative; the upper end is returned."""
    if k > RACE_LIMIT and beta >= SMALL_BETA:
        return float(_continuous_fourier(k, beta))
    from scipy import special

    high = _chernoff(False, 1.0, k, beta)
    m = np.arange(float(min(k, int(high + 12.0 * math.sqrt(high)) + 60)))
    lost = special.betainc(float(k), k - m, 0.5)
    low = 0.0
    while high - low > 1e-10 * high:
        t = 0.5 * (low + high)
        if _race_tail(k, t, m, lost) <= beta:
            high = t
        else:
            low = t
    return float(high)


def _discrete_sum_quantile(epsilon: float, k: int, beta: float) -> float:
    """The least integer whose tail holds, searched outwards from the continuous quantile."""

    def holds(t: int) -> bool:
        return t >= 0 and _binomial_sum_tail(epsilon, k, t) <= beta

    high = max(0, round(_continuous_quantile(k, beta) / epsilon))
    step = 1
    while not holds(high):
        high += step
        step *= 2
    low, step = high - 1, 1
    while holds(low):
        high, low = low, low - step
        step *= 2
    while high - low > 1:
        t = (low + high) // 2
        if holds(t):
            high = t
        else:
            low = t
    return float(high)


def _discrete_quantile(epsilon: float, k: int, beta: float) -> float:
    if k == 1:  # P(X > t) = exp(-epsilon (t + 1)) / (1 + exp(-epsilon))
        exact = (-math.log(beta) - math.log1p(math.exp(-epsilon))) / epsilon
        return float(max(0, math.ceil(exact * (1.0 + 1e-12)) - 1))
    epsilon = min(epsilon, LARGE_EPSILON)  # less of it only widens the noise
    if beta >= SMALL_BETA:
        found = _fourier_quantile(epsilon, k, beta, FOURIER_TERMS)
        if found >= 0.0:
            return float(found)
    elif _binomial_sum_terms(epsilon, k) <= SUM_TERMS:
        return _discrete_sum_quantile(epsilon, k, beta)
    if k <= CONTINUOUS_LIMIT and k < 1.0 / epsilon:
        # a geometric draw is an exponential one cut to an integer, so S exceeds its continuous twin by less than k
        return float(math.ceil(_continuous_quantile(k, beta) / epsilon * (1.0 + 1e-12)) + k - 1)
    return chernoff_quantile(k, beta, epsilon, "discrete")


def chernoff_quantile(k: int, beta: float, epsilon: float, noise: Noise = "discrete") -> float:
    """A rigorous upper bound on the quantile, an integer for discrete noise; cheap at every size."""
    if noise == "discrete":
        epsilon = min(epsilon, LARGE_EPSILON)
    bound = _chernoff(noise == "discrete", epsilon, k, beta)
    return float(max(0, math.ceil(bound) - 1)) if noise == "discrete" else float(bound)


def upper_quantile(k: int, beta: float, epsilon: float, noise: Noise = "discrete") -> float:
    """t with P(sum of k Laplace(1/epsilon) draws > t) <= beta, the least one up to rounding upwards.

    Args:
        k: number of draws, >= 1.
        beta: probability, in (0, 1); at 1/2 and above t is 0.
        epsilon: rate of one draw, > 0.
        noise: ``"discrete"`` (t is an integer) or ``"continuous"``.

    >>> upper_quantile(1, 1e-4, 0.1)
    85.0
    >>> round(upper_quantile(1, 1e-4, 0.1, "continuous"), 1)
    85.2
    """
    if beta >= 0.5:
        return 0.0
    key = (noise, epsilon, k, beta)
    found = _cache.get(key)
    if found is None:
        if noise == "discrete":
            found = _discrete_quantile(epsilon, k, beta)
        elif k <= CONTINUOUS_LIMIT:
            found = math.nextafter(_continuous_quantile(k, beta) / epsilon * (1.0 + 1e-15), math.inf)
        else:
            found = chernoff_quantile(k, beta, epsilon, noise)
        if len(_cache) >= CACHE_LIMIT:
            _cache.clear()
        _cache[key] = found
    return found


def upper_quantiles(sizes: ArrayLike, betas: ArrayLike, epsilon: float, noise: Noise = "discrete") -> Floats:
    """`upper_quantile` of each pair (size, beta); equal pairs are computed once and kept."""
    pairs = zip(np.asarray(sizes).tolist(), np.asarray(betas, dtype=float).tolist(), strict=True)
    return np.array([upper_quantile(k, beta, epsilon, noise) for k, beta in pairs], dtype=np.float64)
