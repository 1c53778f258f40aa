"""Additive noise with exactly the distribution that the guarantee assumes.

* up to 1e5 draws: OpenDP's Laplace measurement (vetted, free of floating-point artefacts); its privacy map is asked,
  and the scale it is given is rounded up until the map stays within the budget;
* above: an exact integer sampler (Canonne, Kamath, Steinke 2020, "The Discrete Gaussian for Differential Privacy",
  Algorithms 1 and 2) on the operating system's entropy: integers and rejection only, no floating point;
* discrete Gaussian noise, in any number: the same paper's Algorithm 3, as exact;
* with a seed, for experiments: the same samplers on NumPy's PCG64 stream; their draws are not private, and the record
  says so.

The discrete Laplace of scale b is P(X = v) = (1 - a) / (1 + a) a**|v| with a = exp(-1 / b): the double geometric. The
discrete Gaussian of variance parameter V has P(X = v) proportional to exp(-v**2 / (2 V)).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.errors import SolverError, UsageError
from privopt.numbers.gaussian import draw_gaussian, variance_above
from privopt.numbers.laplace import draw_laplace
from privopt.numbers.sampling import seeded

__all__ = [
    "Law",
    "NoiseRecord",
    "NoiseSource",
    "continuous_laplace",
    "discrete_gaussian",
    "discrete_laplace",
    "noise_from",
    "split_budget",
    "stated_scale",
]

Law = Literal["discrete-laplace", "laplace", "discrete-gaussian"]
"""A distribution of noise."""


#: Up to here OpenDP draws; it takes about 12 microseconds a draw, the bulk sampler under one.
OPENDP_DRAWS = 100_000
_LARGEST_COUNT = 1 << 62
_LARGEST_SCALE = 1 << 55
"""Up to this scale, noise of 2**62, which could overflow a 64-bit sum, has a probability below exp(-128)."""


_RATIONAL: Final = re.compile(r"[1-9][0-9]{0,999}(/[1-9][0-9]{0,999})?")
_MAX_SCALE: Final = 1 << 128
"""Scales must be below this."""
_MIN_SCALE: Final = Fraction(1, 1 << 1000)
"""From this scale on, the scale and its epsilon can also be represented as doubles."""


@frozen
class NoiseRecord:
    """A record of how noise was drawn, and of the privacy budget that it uses.

    Attributes:
        engine: "opendp", "exact-integer" (bulk) or "seeded".
        distribution: "discrete-laplace", "laplace" or "discrete-gaussian".
        scale: exact scale of the noise; for a Gaussian the variance parameter.
        map: OpenDP's privacy map at sensitivity 1, if OpenDP drew.
        draws: number of draws.
    """

    engine: str
    distribution: Law
    scale: Fraction
    map: float | None
    draws: int

    @property
    def spent(self) -> Fraction:
        """Exact privacy loss per unit of sensitivity; at most the budget that was asked for.

        It is epsilon = 1 / scale; for a Gaussian it is rho = 1 / (2 V) per unit of the squared L2 sensitivity.
        """
        return 1 / (2 * self.scale if self.distribution == "discrete-gaussian" else self.scale)

    @property
    def seeded(self) -> bool:
        """Whether the noise came from a seed; then it is not private."""
        return self.engine == "seeded"


def discrete_laplace(
    counts: NDArray[Any], scale_reciprocal: Fraction, *, seed: int | None = None
) -> tuple[Ints, NoiseRecord]:
    """Return integers plus independent discrete Laplace noise.

    Args:
        counts: integers of any shape, below 2**62 in size.
        scale_reciprocal: epsilon / sensitivity, exact, above 0.
        seed: for experiments only.

    Returns:
        Noisy integers of the same shape, and the record.

    Raises:
        UsageError: counts that are not integers, a budget that is not positive, noise of a scale above 2**55, which
            could overflow 64 bits, or numerators and denominators beyond 2**40 (see :func:`split_budget`).

    >>> noisy, record = discrete_laplace(np.array([3, 5]), Fraction(1, 30))
    >>> noisy.shape, record.spent <= Fraction(1, 30), record.seeded
    ((2,), True, False)
    """
    values = _check_integers(counts)
    _check_budget(scale_reciprocal)
    if scale_reciprocal * _LARGEST_SCALE < 1:
        given_epsilon = f"{Decimal(scale_reciprocal.numerator) / scale_reciprocal.denominator:.3g}"
        raise UsageError(
            f"epsilon per unit of sensitivity must be at least {1 / _LARGEST_SCALE:.3g}, whose noise is below 2**62, "
            f"got {given_epsilon}: wider noise could overflow 64-bit integers"
        )
    return _add_noise(values, "discrete-laplace", 1 / scale_reciprocal, seed)


def discrete_gaussian(counts: NDArray[Any], variance: Fraction, *, seed: int | None = None) -> tuple[Ints, NoiseRecord]:
    """Return integers plus independent discrete Gaussian noise.

    Args:
        counts: integers of any shape, below 2**62 in size.
        variance: sensitivity**2 / (2 rho), exact, above 0, at most 2**40; the sensitivity is in L2. It is rounded up a
            little (:func:`privopt.numbers.gaussian.variance_above`), as the record says.
        seed: for experiments only.

    Returns:
        Noisy integers of the same shape, and the record.

    Raises:
        UsageError: counts that are not integers, a variance out of range.

    >>> noisy, record = discrete_gaussian(np.array([3, 5]), Fraction(100))
    >>> noisy.shape, record.spent <= Fraction(1, 200), record.seeded
    ((2,), True, False)
    """
    return _add_noise(_check_integers(counts), "discrete-gaussian", variance, seed)


def continuous_laplace(
    values: NDArray[Any], scale_reciprocal: Fraction, *, seed: int | None = None
) -> tuple[Floats, NoiseRecord]:
    """Return real numbers plus independent Laplace noise, through OpenDP.

    OpenDP draws a discrete Laplace on a grid so fine that every double is on it, and rounds once: the rounding is
    post-processing. Under a seed the grid is 2**-40 of the scale.

    Args:
        values: finite doubles of any shape.
        scale_reciprocal: epsilon / sensitivity, exact, above 0.
        seed: for experiments only.

    Raises:
        UsageError: values that are not finite, a budget that is not positive.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise UsageError("values must be finite")
    _check_budget(scale_reciprocal)
    return _add_noise(numbers, "laplace", 1 / scale_reciprocal, seed)


class NoiseSource:
    """Draws the noise of this module; the kit replaces it during a trial (:func:`noise_from`)."""

    def draw(
        self, values: NDArray[Any], law: Law, scale: Fraction, seed: int | None
    ) -> tuple[NDArray[Any], NoiseRecord]:
        """Add noise to values that have been validated.

        Args:
            values: integers, or doubles for continuous noise, of any shape.
            law: distribution of the noise.
            scale: exact, above 0; for a Gaussian the variance.
            seed: for experiments only.
        """
        size, engine = values.size, "exact-integer" if seed is None else "seeded"
        if law == "discrete-gaussian":
            noise = draw_gaussian(size, scale, source=seeded(seed)).reshape(values.shape)
            return values + noise, NoiseRecord(engine, law, variance_above(scale), None, size)
        if seed is None and (law == "laplace" or size <= OPENDP_DRAWS):
            measurement, used_scale, mapped_epsilon = _make_opendp_measurement(
                1 / scale, "f64" if law == "laplace" else "i64"
            )
            noisy_list = measurement(values.ravel().tolist()) if size else []
            noisy = np.array(noisy_list, dtype=values.dtype).reshape(values.shape)
            return noisy, NoiseRecord("opendp", law, used_scale, mapped_epsilon, size)
        if law == "laplace":
            steps = draw_laplace(size, Fraction(1, 1 << 40), source=seeded(seed)).reshape(values.shape)
            return values + steps * (2.0**-40 * float(scale)), NoiseRecord(engine, law, scale, None, size)
        noise = draw_laplace(size, 1 / scale, source=seeded(seed)).reshape(values.shape)
        return values + noise, NoiseRecord(engine, law, scale, None, size)


_SOURCES: Final = [NoiseSource()]


def _add_noise(values: NDArray[Any], law: Law, scale: Fraction, seed: int | None) -> tuple[NDArray[Any], NoiseRecord]:
    return _SOURCES[-1].draw(values, law, scale, seed)


@contextmanager
def noise_from(source: Callable[[NoiseSource], NoiseSource]) -> Iterator[None]:
    """Replace the source of all noise inside this block by one that wraps the current source. Only for trials.

    The kit uses it to record the values that noise is added to, or to draw at another scale. Releases made inside the
    block are not private.
    """
    _SOURCES.append(source(_SOURCES[-1]))
    try:
        yield
    finally:
        _SOURCES.pop()


def stated_scale(text: str) -> Fraction:
    """Parse a scale, variance or rate from a release's file: a whole number or a ratio of two.

    Exponents are refused: the file may come from anyone, and ``Fraction("1e30000000")`` would take hours.

    Raises:
        ValueError: The text has another form, or the number is not in [2**-1000, 2**128).

    >>> stated_scale("10/3")
    Fraction(10, 3)
    >>> stated_scale("1e30000000")
    Traceback (most recent call last):
    ValueError: a budget must be a whole number or a ratio, 2**-1000 to 2**128, got '1e30000000'
    """
    scale = Fraction(text) if _RATIONAL.fullmatch(text) else Fraction(0)
    if _MIN_SCALE <= scale < _MAX_SCALE:
        return scale
    raise ValueError(f"a budget must be a whole number or a ratio, 2**-1000 to 2**128, got {text[:40]!r}")


def split_budget(
    epsilon: Fraction, shares: Sequence[Fraction | float | int], *, denominator: int = 1 << 20
) -> tuple[Fraction, ...]:
    """Split a budget by shares into rationals that sum to at most epsilon.

    A part stays exact if its denominator is small. Otherwise it is rounded down to a fraction with at most the given
    denominator (to 1 / q if it is below 1 / denominator), so that the bulk sampler stays within 64 bits.

    Args:
        epsilon: exact, above 0.
        shares: relative weights, at least 0, not all 0; their sum need not be 1. A float stands for its decimal text.
        denominator: the largest denominator allowed.

    Raises:
        UsageError: There are no shares, one is negative or not finite, all are 0, or the budget is not positive.

    >>> split_budget(Fraction(1, 10), [0.2, 0.3, 0.5])
    (Fraction(1, 50), Fraction(3, 100), Fraction(1, 20))
    """
    _check_budget(epsilon)
    if not shares or any(isinstance(s, float) and not math.isfinite(s) for s in shares):
        raise UsageError(f"shares must be finite numbers of at least 0, one above, got {list(shares)}")
    exact = [Fraction(str(float(s))) if isinstance(s, float) else Fraction(s) for s in shares]
    if min(exact) < 0 or max(exact) == 0:
        raise UsageError(f"shares must be finite numbers of at least 0, one above, got {list(shares)}")
    total = sum(exact)
    parts = (epsilon * share / total for share in exact)
    return tuple(_floor_fraction(part, denominator) if part else part for part in parts)


def _floor_fraction(value: Fraction, denominator: int) -> Fraction:
    """Return the greatest fraction <= value with a denominator up to ``denominator``, or 1 / q if that would be 0."""
    if value.denominator <= denominator:
        return value
    if value * denominator < 1:
        return Fraction(1, math.ceil(1 / value))
    closest = value.limit_denominator(denominator)
    if closest <= value:
        return closest
    # the neighbour below ``near`` in the Farey sequence of that order: p q' - p' q = 1 with the largest q' allowed
    p, q = closest.numerator, closest.denominator
    lower_denominator = pow(p, -1, q) if q > 1 else 1
    lower_denominator += (denominator - lower_denominator) // q * q
    return Fraction((p * lower_denominator - 1) // q, lower_denominator)


def _check_integers(counts: NDArray[Any]) -> Ints:
    """Return counts as 64-bit integers."""
    values = np.asarray(counts)
    if not np.issubdtype(values.dtype, np.integer):
        raise UsageError(f"counts must be integers, got {values.dtype}")
    if values.size and max(abs(int(values.min())), abs(int(values.max()))) >= _LARGEST_COUNT:
        raise UsageError("counts must be below 2**62 in size")
    return values.astype(np.int64)


def _check_budget(budget: Fraction) -> None:
    if budget <= 0:
        raise UsageError(f"a privacy budget must be above 0, got {budget}")


@lru_cache(maxsize=64)  # a third of the time where noise is drawn again and again at one scale
def _make_opendp_measurement(scale_reciprocal: Fraction, kind: str) -> tuple[Any, Fraction, float]:
    """Return OpenDP's measurement with a privacy map within the budget, its exact scale, and the map at 1."""
    # not opendp.prelude: it imports scikit-learn where that is installed, a second or more
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_laplace
    from opendp.metrics import l1_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    domain = atom_domain(T="i64") if kind == "i64" else atom_domain(T="f64", nan=False)
    space = vector_domain(domain), l1_distance(T=kind)
    scale = float(1 / scale_reciprocal)
    for _ in range(64):
        if Fraction(scale) * scale_reciprocal >= 1:
            measurement = make_laplace(*space, scale=scale)
            mapped_epsilon = float(measurement.map(1 if kind == "i64" else 1.0))
            if Fraction(mapped_epsilon) <= scale_reciprocal:
                return measurement, Fraction(scale), mapped_epsilon
        scale = math.nextafter(scale, math.inf)
    raise SolverError(f"OpenDP's privacy map exceeds the budget {scale_reciprocal} at every scale tried")
