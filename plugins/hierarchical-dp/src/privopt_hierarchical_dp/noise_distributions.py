"""The noise distribution of each privacy notion: its scale for a budget, the budget it spends, and its moments.

:mod:`.relations` defines the sensitivities. Except for tables under the relation ``replaced``, no value changes by more
than 1 between neighbouring inputs. The sum of squared changes then equals the sum of absolute changes, so one number
Delta is both the L1 sensitivity and the square of the L2 sensitivity. Tests confirm this by a search over neighbours.
For tables under ``replaced``, Delta is the L1 sensitivity for double geometric noise, and the squared L2 sensitivity
for Gaussian noise.

Double geometric noise with scale b spends epsilon = Delta / b. Discrete Gaussian noise with variance V spends rho =
Delta / (2 V). Both budgets add up across the levels. If a level's part of the budget is 0, the level is not measured.
Its scale is None, nothing is spent, and its values carry no information.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from math import exp, expm1, log
from pathlib import Path
from typing import Final, Literal, TypeAlias

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.errors import Fault, InputError
from privopt.numbers import noise
from privopt.numbers.gaussian import LARGEST_VARIANCE, variance_above
from privopt_hierarchical_dp.least_squares import UNMEASURED, Estimate, Noise, mean_absolute

__all__ = ["GAUSSIAN", "GEOMETRIC", "KINDS", "NoiseDistribution", "Scale", "noise_of", "read_scales", "scale_texts"]

WIDE_VARIANCE: Final = 4.0
"""The variance above which the moments of discrete and continuous Gaussian noise agree to within 1e-30."""
LEAST_LOG_RATIO: Final = log(1e-6)
"""The lower end of the search for log(fourth cumulant / (3 variance^2)). Smaller ratios have no effect."""
Scale: TypeAlias = Fraction | None
"""The scale of the noise at a level, or None if the level was not measured."""


@frozen(kw_only=True)
class NoiseDistribution:
    """A family of noise distributions, either double geometric (discrete Laplace) or discrete Gaussian.

    Attributes:
        law: The name of the family in certificates.
        name: The name of the family in the methods paragraph of a report.
        budget: The name of the budget that the noise spends, ``epsilon`` or ``rho``.
        word: The name of the scale parameter, ``scale`` or ``variance``.
        meaning: A sentence that explains the scale of a single draw.
        times: The factor t in scale = sensitivity / (t * budget), which is 2 for Gaussian noise and 1 otherwise.
    """

    law: Literal["laplace", "gaussian"]
    name: str
    budget: str
    word: str
    meaning: str
    times: int

    @property
    def sensitivity_name(self) -> str:
        """The name of the sensitivity to which the noise is calibrated, for the methods paragraph of a report."""
        return "L1 sensitivity" if self.law == "laplace" else "squared L2 sensitivity"

    @property
    def scales_name(self) -> str:
        """The plural of ``word``, which names arrays and keys of the result."""
        return f"{self.word}s"

    def ideal_scale(self, budget: Fraction, delta: int) -> Fraction:
        """Return the scale at which noise spends exactly the given part of the budget.

        The sampler may not support this scale.

        Args:
            budget: The part of the budget, which must be positive.
            delta: The sensitivity.
        """
        return delta / (self.times * budget)

    def max_drawable_scale(self, max_scale: int) -> int:
        """Return the largest scale at which this noise is spread no wider than geometric noise of scale ``max_scale``.

        For Gaussian noise, whose scale is a variance, the result is ``max_scale`` squared, capped at the largest
        variance that the sampler supports.
        """
        return max_scale if self.law == "laplace" else min(max_scale**2, LARGEST_VARIANCE)

    def scale(self, budget: Fraction, delta: int) -> Scale:
        """Return the scale at which to draw noise for a given part of the budget, or None if this part is 0.

        Noise of this scale spends at most the given part of the budget.

        Args:
            budget: The part of the budget, which must not be negative.
            delta: The sensitivity.
        """
        if not budget:
            return None
        # The sampler only supports some variances, so a variance is rounded up to one of them.
        ideal = self.ideal_scale(budget, delta)
        return ideal if self.law == "laplace" else variance_above(ideal)

    def spend_of(self, scale: Scale, delta: int) -> Fraction:
        """Return the exact budget spent by noise of a given scale at sensitivity ``delta``.

        If the scale is None, nothing was measured, and the result is 0.
        """
        return Fraction(0) if scale is None else delta / (self.times * scale)

    def moments(self, scale: Scale) -> Noise:
        """Return the variance and the fourth cumulant of one draw of noise of a given scale."""
        if scale is None:
            return UNMEASURED
        return noise_of(scale) if self.law == "laplace" else _gaussian_moments(float(scale))

    def moments_of_budgets(self, budgets: Floats, delta: int) -> tuple[Floats, Floats]:
        """Return the variance and the fourth cumulant of the noise for each of several parts of a budget.

        For a part of 0, nothing is measured, and the moments are those of ``UNMEASURED``.

        Args:
            budgets: The parts of the budget, as an array of any shape.
            delta: The sensitivity.

        Returns:
            Two arrays with the shape of ``budgets``.
        """
        is_measured = budgets > 0.0
        scales = delta / (self.times * np.where(is_measured, budgets, 1.0))
        if self.law == "laplace":
            # This is the formula in `noise_of`, element by element.
            x = np.minimum(1.0 / scales, 1000.0)
            variances = np.maximum(1e-9, 2.0 * np.exp(-x) / np.expm1(-x) ** 2)
            fourths = 3.0 * variances**2 + variances
        else:
            variances, fourths = scales.copy(), np.zeros_like(scales)
            for index in np.argwhere(scales <= WIDE_VARIANCE):
                moments = _gaussian_moments(float(scales[tuple(index)]))
                variances[tuple(index)], fourths[tuple(index)] = moments.variance, moments.fourth
        return np.where(is_measured, variances, UNMEASURED.variance), np.where(is_measured, fourths, 0.0)

    def precision(self, scale: Scale) -> Fraction:
        """Return a rational weight for values with noise of a given scale, roughly proportional to 1 / variance.

        Values that were not measured have weight 0. The variance of double geometric noise is about 2 scale^2, and the
        scale of Gaussian noise is its variance.
        """
        if scale is None:
            return Fraction(0)
        return 1 / scale**2 if self.law == "laplace" else 1 / scale

    def draw(self, values: Ints, budget: Fraction, delta: int, *, seed: int | None) -> tuple[Ints, noise.NoiseRecord]:
        """Add noise to an array of integers.

        Args:
            values: The true values.
            budget: The budget to spend, which must be positive.
            delta: The sensitivity.
            seed: A seed for experiments. If None, the noise is cryptographically secure.

        Returns:
            The noisy values, and a record of the draw.
        """
        if self.law == "laplace":
            return noise.discrete_laplace(values, budget / delta, seed=seed)
        return noise.discrete_gaussian(values, self.ideal_scale(budget, delta), seed=seed)

    def measure(
        self, values: Ints, budget: Fraction, delta: int, *, seed: Sequence[int] | None
    ) -> tuple[Ints, noise.NoiseRecord | None]:
        """Add noise to an array of integers, or return zeros if the budget is 0.

        Args:
            values: The true counts or sums of true counts, as an array of shape (regions, ...).
            budget: The budget to spend on this measurement.
            delta: The sensitivity.
            seed: The integers from which to derive the seed, for experiments. If None, the noise is cryptographically
                secure.

        Returns:
            The noisy values, and a record of the draw. The record is None if the budget is 0.
        """
        if not budget:
            return np.zeros_like(values), None
        # The integers are hashed into a seed of 63 bits, which fits into a signed 64-bit integer.
        seed_number = (
            None if seed is None else int(np.random.SeedSequence([*seed]).generate_state(1, np.uint64)[0] >> 1)
        )
        return self.draw(values, budget, delta, seed=seed_number)


GEOMETRIC: Final = NoiseDistribution(
    law="laplace",
    name="two-sided geometric (discrete Laplace) noise",
    budget="epsilon",
    word="scale",
    meaning="Noise scale: the usual size of the noise. Noise larger by one more scale is 2.7 times rarer.",
    times=1,
)
GAUSSIAN: Final = NoiseDistribution(
    law="gaussian",
    name="discrete Gaussian noise",
    budget="rho",
    word="variance",
    meaning="Variance: the noise on one number is about as large as its square root.",
    times=2,
)
KINDS: Final[dict[str, tuple[NoiseDistribution, tuple[str, ...]]]] = {
    "pure-dp": (GEOMETRIC, ("epsilon",)),
    "zcdp": (GAUSSIAN, ("rho",)),
    "approx-dp": (GAUSSIAN, ("epsilon", "delta")),
}
"""The noise distribution of each privacy notion, and the keys in ``[privacy]`` that give its budget."""


@lru_cache(maxsize=256)
def _gaussian_moments(parameter: float) -> Noise:
    """Return the moments of discrete Gaussian noise.

    If the variance is large, the moments of continuous Gaussian noise are used. If it is small, the fourth cumulant is
    chosen so that :func:`.least_squares.mean_absolute` returns the exact mean absolute value of one draw. This models
    the noise as more peaked than it is, so intervals do not become narrower.

    Args:
        parameter: The variance parameter of the noise.
    """
    from scipy.optimize import brentq

    if parameter > WIDE_VARIANCE:
        return Noise(variance=parameter)
    # 40 is at least 20 standard deviations here, so the probability beyond it is below the precision of doubles.
    values = np.arange(-40, 41)
    chances = np.exp(-(values**2) / (2.0 * parameter))
    chances /= chances.sum()
    variance = max(1e-9, float(chances @ values**2))
    mean_size = max(1e-9, float(chances @ np.abs(values)))
    # `ratio` is the ratio of the fourth cumulant to 3 variance^2 that gives the exact mean absolute value. This inverts
    # the formula that `mean_absolute` uses for ratios of 1 or more.
    ratio = (variance / mean_size**2 + 1.0) / 3.0
    # For ratios below 1, another formula applies, which has no closed-form inverse.
    if ratio < 1.0:
        variance_array = np.array([[variance]])

        # The mean absolute value decreases as the fourth cumulant increases, so the excess has one root.
        def excess_of(power: float) -> float:
            """Return the excess of the modelled mean absolute value over the exact one.

            The fourth cumulant is modelled as exp(power) times 3 variance^2.
            """
            error = Estimate(
                mean=0.0 * variance_array, variance=variance_array, fourth=3.0 * variance_array**2 * np.exp(power)
            )
            return float(mean_absolute(error)[0, 0]) - mean_size

        ratio = exp(brentq(excess_of, LEAST_LOG_RATIO, 0.0, xtol=1e-13)) if excess_of(LEAST_LOG_RATIO) > 0.0 else 0.0
    return Noise(variance=variance, fourth=3.0 * variance**2 * ratio)


def noise_of(scale: Fraction) -> Noise:
    """Return the variance and the fourth cumulant of double geometric noise of a given scale.

    The variance is raised to at least 1e-9, so that it is safe to divide by it.
    """
    # If 1 / scale exceeds 1000, the variance is 1e-9 anyway, and a larger exponent could overflow.
    x = float(min(1 / scale, Fraction(1000)))
    variance = max(1e-9, 2.0 * exp(-x) / expm1(-x) ** 2)
    # If the difference of two geometric variates has the variance v, its fourth cumulant is 3 v^2 + v.
    return Noise(variance=variance, fourth=3.0 * variance**2 + variance)


def scale_texts(scales: Sequence[Scale]) -> np.ndarray:
    """Return exact scales as an array of strings, with an empty string for each level that was not measured."""
    return np.array(["" if scale is None else str(scale) for scale in scales], dtype=np.str_)


def read_scales(path: Path, name: str, texts: np.ndarray) -> tuple[Scale, ...]:
    """Parse the scales written by :func:`scale_texts`.

    Args:
        path: The file that contains the array, for error messages.
        name: The name of the array.
        texts: Rationals as strings. An empty string stands for a level that was not measured.

    Raises:
        InputError: A string is neither empty nor a positive rational in the form written by :func:`scale_texts`.
    """
    with suppress(ValueError):
        return tuple(noise.stated_scale(text) if text else None for text in texts.tolist())
    raise InputError([Fault(str(path), name, "other values", "rationals above 0 as text, or nothing")])
