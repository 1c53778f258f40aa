"""Additive noise with exactly the distribution assumed by the guarantee.

* Discrete Laplace noise is drawn with the sampler of Canonne, Kamath and Steinke 2020 ("The Discrete Gaussian for
  Differential Privacy", Algorithms 1 and 2) and the operating system's entropy. The sampler uses only integers and
  rejection, never floating point.
* Laplace noise for doubles comes from the same sampler, on the multiples of 2**-1074, which include all doubles. The
  sum is then rounded once to a double, which is post-processing.
* Discrete Gaussian noise is drawn with Algorithm 3 of the same paper, which is just as exact.
* If a seed is given, for experiments, the same samplers use NumPy's PCG64 stream. These draws are not private, as
  stated in the record.

The discrete Laplace distribution with scale b, also called double geometric, has P(X = v) = (1 - a) / (1 + a) a**|v|
with a = exp(-1 / b). The discrete Gaussian distribution with variance parameter V has P(X = v) proportional to
exp(-v**2 / (2 V)).
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, Literal

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.errors import UsageError
from privopt.numbers.gaussian import draw_gaussian, variance_above
from privopt.numbers.laplace import LARGEST_TERM, draw_laplace, draw_wide_laplace
from privopt.numbers.sampling import Source, make_source

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
"""The name of a noise distribution."""


_DOUBLE_GRID: Final = 1 << 1074
"""The number of grid steps per unit. Every double is an integer multiple of one grid step."""
_LARGEST_COUNT = 1 << 62
"""The exclusive upper bound on the absolute values of counts, so that a count plus its noise fits in 64 bits."""
_LARGEST_SCALE = 1 << 55
"""The largest scale of discrete Laplace noise.

Noise of 2**62 or more could cause a 64-bit sum to overflow. Up to this scale, the probability of such noise is below
exp(-128)."""


_RATIONAL: Final = re.compile(r"[1-9][0-9]{0,999}(/[1-9][0-9]{0,999})?")
"""Matches an integer or a ratio of two integers, of up to 1,000 digits each."""
_MAX_SCALE: Final = 1 << 128
"""The exclusive upper bound on scales."""
_MIN_SCALE: Final = Fraction(1, 1 << 1000)
"""The smallest scale allowed. Down to this scale, the scale and its epsilon can also be represented as doubles."""


@frozen
class NoiseRecord:
    """A record of how noise was drawn and how much privacy budget it uses.

    Attributes:
        engine: "exact-integer", or "seeded" if the noise was drawn from a seed.
        distribution: "discrete-laplace", "laplace" or "discrete-gaussian".
        scale: The exact scale of the noise. For Gaussian noise, this is the variance parameter.
        draws: The number of noise values drawn.
    """

    engine: str
    distribution: Law
    scale: Fraction
    draws: int

    @property
    def spent(self) -> Fraction:
        """The exact privacy loss per unit of sensitivity, which is at most the requested budget.

        This is epsilon = 1 / scale. For Gaussian noise with variance parameter V, it is rho = 1 / (2 V) per unit of the
        squared L2 sensitivity.
        """
        return 1 / (2 * self.scale if self.distribution == "discrete-gaussian" else self.scale)

    @property
    def seeded(self) -> bool:
        """Whether the noise was drawn from a seed and is therefore not private."""
        return self.engine == "seeded"


def discrete_laplace(
    counts: NDArray[Any], scale_reciprocal: Fraction, *, seed: int | None = None
) -> tuple[Ints, NoiseRecord]:
    """Add independent discrete Laplace noise to integers.

    Args:
        counts: Integers of any shape, smaller than 2**62 in absolute value.
        scale_reciprocal: epsilon / sensitivity, exact and above 0.
        seed: The seed for the draws, for experiments only. If None, the operating system's entropy is used.

    Returns:
        The noisy integers, with the same shape as ``counts``, and the noise record.

    Raises:
        UsageError: The counts are not integers or are too large, the budget is not positive, or the noise scale exceeds
            2**55, in which case sums could overflow 64 bits.

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
    """Add independent discrete Gaussian noise to integers.

    Args:
        counts: Integers of any shape, smaller than 2**62 in absolute value.
        variance: sensitivity**2 / (2 rho) for the L2 sensitivity, exact, above 0 and at most 2**40. The variance is
            rounded up slightly (:func:`privopt.numbers.gaussian.variance_above`), and the record contains the rounded
            value.
        seed: The seed for the draws, for experiments only. If None, the operating system's entropy is used.

    Returns:
        The noisy integers, with the same shape as ``counts``, and the noise record.

    Raises:
        UsageError: The counts are not integers or are too large, or the variance is out of range.

    >>> noisy, record = discrete_gaussian(np.array([3, 5]), Fraction(100))
    >>> noisy.shape, record.spent <= Fraction(1, 200), record.seeded
    ((2,), True, False)
    """
    return _add_noise(_check_integers(counts), "discrete-gaussian", variance, seed)


def continuous_laplace(
    values: NDArray[Any], scale_reciprocal: Fraction, *, seed: int | None = None
) -> tuple[Floats, NoiseRecord]:
    """Add independent Laplace noise to real numbers.

    Every double is a multiple of 2**-1074, so discrete Laplace noise on that grid has exactly the probability ratios
    required by the guarantee, whatever the values are. The sum is rounded once, to the nearest double, which is
    post-processing. (Noise drawn as a double would not be private: Mironov 2012, "On significance of the least
    significant bits for differential privacy".)

    Args:
        values: Finite doubles of any shape.
        scale_reciprocal: epsilon / sensitivity, exact and above 0.
        seed: The seed for the draws, for experiments only. If None, the operating system's entropy is used.

    Returns:
        The noisy doubles, with the same shape as ``values``, and the noise record.

    Raises:
        UsageError: A value is not finite, or the budget is not positive.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise UsageError("values must be finite")
    _check_budget(scale_reciprocal)
    return _add_noise(numbers, "laplace", 1 / scale_reciprocal, seed)


class NoiseSource:
    """The source of the noise added by this module. Tests of mechanisms can replace it using :func:`noise_from`."""

    def draw(
        self, values: NDArray[Any], law: Law, scale: Fraction, seed: int | None
    ) -> tuple[NDArray[Any], NoiseRecord]:
        """Add noise to validated values, and return the noisy values and the noise record.

        Args:
            values: Integers, or doubles for continuous noise, of any shape.
            law: The distribution of the noise.
            scale: The exact scale, above 0. For Gaussian noise, this is the variance.
            seed: The seed for the draws, for experiments only. If None, the operating system's entropy is used.
        """
        size, engine = values.size, "exact-integer" if seed is None else "seeded"
        source = make_source(seed)
        if law == "discrete-gaussian":
            noise = draw_gaussian(size, scale, source=source).reshape(values.shape)
            # The sampler rounds the variance up, and the record contains the rounded one.
            return values + noise, NoiseRecord(engine, law, variance_above(scale), size)
        if law == "laplace":
            noisy = _add_laplace_on_grid(values.ravel(), scale, source).reshape(values.shape)
        else:
            noisy = values + _draw_laplace_of_any_scale(size, 1 / scale, source).reshape(values.shape)
        return noisy, NoiseRecord(engine, law, scale, size)


# A stack of sources, the last of which is used. noise_from pushes another one for the duration of a block.
_SOURCES: Final = [NoiseSource()]


def _add_noise(values: NDArray[Any], law: Law, scale: Fraction, seed: int | None) -> tuple[NDArray[Any], NoiseRecord]:
    """Add noise from the current source to validated values of any shape, and return the result and its record."""
    return _SOURCES[-1].draw(values, law, scale, seed)


@contextmanager
def noise_from(source: Callable[[NoiseSource], NoiseSource]) -> Iterator[None]:
    """Replace the source of all noise within a ``with`` block, for tests of mechanisms only.

    The conformance kit uses this to record the values to which noise is added, or to draw the noise at a different
    scale. Releases created inside the block are not private.

    Args:
        source: A function that takes the current source and returns the source to use in its place. It is called once.
    """
    _SOURCES.append(source(_SOURCES[-1]))
    try:
        yield
    finally:
        _SOURCES.pop()


def stated_scale(text: str) -> Fraction:
    """Parse a scale, variance or rate from a release's file: an integer or a ratio of two integers.

    Exponents are rejected because the file may come from anyone: ``Fraction("1e30000000")`` takes a minute, and longer
    exponents take hours.

    Raises:
        ValueError: The string does not have this form, or the number is not in [2**-1000, 2**128).

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
    """Split a budget in proportion to the given shares, into rational numbers that sum to at most epsilon.

    A part remains exact if its denominator is small enough. Otherwise, it is rounded down to a fraction with a
    denominator of at most ``denominator``, so that the compiled 64-bit sampler can use it. A part below 1 / denominator
    is instead rounded down to 1 / q for some integer q.

    Args:
        epsilon: Exact and above 0.
        shares: Relative weights, non-negative and not all 0. They need not sum to 1. A float stands for the decimal
            number that Python displays for it.
        denominator: The largest denominator allowed.

    Raises:
        UsageError: There are no shares, a share is negative or not finite, all shares are 0, or the budget is not
            positive.

    >>> split_budget(Fraction(1, 10), [0.2, 0.3, 0.5])
    (Fraction(1, 50), Fraction(3, 100), Fraction(1, 20))
    """
    _check_budget(epsilon)
    if not shares or any(isinstance(s, float) and not math.isfinite(s) for s in shares):
        raise UsageError(f"shares must be finite numbers of at least 0, at least one above 0, got {list(shares)}")
    # Use a float's decimal text rather than its binary value, so that 0.1 means 1/10.
    exact = [Fraction(str(float(s))) if isinstance(s, float) else Fraction(s) for s in shares]
    if min(exact) < 0 or max(exact) == 0:
        raise UsageError(f"shares must be finite numbers of at least 0, at least one above 0, got {list(shares)}")
    total = sum(exact)
    parts = (epsilon * share / total for share in exact)
    return tuple(_floor_fraction(part, denominator) if part else part for part in parts)


def _floor_fraction(value: Fraction, denominator: int) -> Fraction:
    """Return the greatest fraction <= value with a denominator of at most ``denominator``.

    A positive value below 1 / ``denominator`` would become 0. In this case, the greatest 1 / q <= value with an integer
    q is returned instead.
    """
    if value.denominator <= denominator:
        return value
    if value * denominator < 1:
        return Fraction(1, math.ceil(1 / value))
    closest = value.limit_denominator(denominator)
    if closest <= value:
        return closest
    # Return the neighbour p' / q' below ``closest`` = p / q in the Farey sequence of order ``denominator``. It
    # satisfies p q' - p' q = 1 with the largest q' allowed, so q' is the inverse of p modulo q, plus as many times q as
    # fit.
    p, q = closest.numerator, closest.denominator
    lower_denominator = pow(p, -1, q) if q > 1 else 1
    lower_denominator += (denominator - lower_denominator) // q * q
    return Fraction((p * lower_denominator - 1) // q, lower_denominator)


def _check_integers(counts: NDArray[Any]) -> Ints:
    """Return counts as 64-bit integers.

    Raises:
        UsageError: The counts are not integers, or any of them is 2**62 or more in absolute value.
    """
    values = np.asarray(counts)
    if not np.issubdtype(values.dtype, np.integer):
        raise UsageError(f"counts must be integers, got {values.dtype}")
    if values.size and max(abs(int(values.min())), abs(int(values.max()))) >= _LARGEST_COUNT:
        raise UsageError("counts must be below 2**62 in size")
    return values.astype(np.int64)


def _check_budget(budget: Fraction) -> None:
    """Raise UsageError if a budget is not above 0."""
    if budget <= 0:
        raise UsageError(f"a privacy budget must be above 0, got {budget}")


def _draw_laplace_of_any_scale(count: int, scale_reciprocal: Fraction, source: Source) -> Ints:
    """Return ``count`` independent draws of discrete Laplace noise: P(v) is proportional to exp(-|v| scale_reciprocal).

    The compiled sampler is used if the numerator and denominator of ``scale_reciprocal`` are small enough.

    Args:
        count: The number of draws.
        scale_reciprocal: Exact and above 0.
        source: The source of random bytes.
    """
    if max(scale_reciprocal.numerator, scale_reciprocal.denominator) <= LARGEST_TERM:
        return draw_laplace(count, scale_reciprocal, source=source)
    draws = draw_wide_laplace(count, scale_reciprocal, source=source)
    # Callers limit the scale to _LARGEST_SCALE, so the probability of a draw that does not fit into 64 bits is
    # negligible.
    return np.array(draws, dtype=np.int64)


def _add_laplace_on_grid(values: Floats, scale: Fraction, source: Source) -> Floats:
    """Add Laplace noise to doubles: discrete noise on the multiples of 2**-1074, followed by a single rounding.

    Args:
        values: (n,) Finite doubles.
        scale: The exact scale of the noise, in the same units as the values.
        source: The source of random bytes.
    """
    noise_steps = draw_wide_laplace(values.size, 1 / (scale * _DOUBLE_GRID), source=source)
    sums = (_grid_steps(value) + steps for value, steps in zip(values.tolist(), noise_steps, strict=True))
    return np.array([_double_of_steps(total) for total in sums], dtype=np.float64)


def _grid_steps(value: float) -> int:
    """Convert a finite double to a whole number of steps of 2**-1074."""
    numerator, denominator = value.as_integer_ratio()
    return numerator * (_DOUBLE_GRID // denominator)


def _double_of_steps(steps: int) -> float:
    """Convert a number of steps of 2**-1074 to the nearest double, or to the largest of the same sign on overflow."""
    try:
        return steps / _DOUBLE_GRID  # Python rounds the quotient of two integers correctly
    except OverflowError:
        return sys.float_info.max if steps > 0 else -sys.float_info.max
