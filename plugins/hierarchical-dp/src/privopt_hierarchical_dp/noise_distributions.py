"""The noise distribution of each notion: its scale for a budget, the budget that it spends, and its moments.

Sensitivities are those of :mod:`.relations`. As no entry changes by more than 1, squares add up to what absolute values
do: one number Delta serves as the L1 sensitivity and as the square of the L2 sensitivity. A search over neighbours in
the tests confirms it.

Budgets. Double geometric noise of scale b spends epsilon = Delta / b, discrete Gaussian noise of variance V spends
rho = Delta / (2 V); either adds up over the levels. A part of 0 measures nothing: it has no scale (None), spends
nothing, and says nothing.
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

from privopt.arrays import Ints
from privopt.errors import Fault, InputError
from privopt.numbers import noise
from privopt.numbers.gaussian import LARGEST_VARIANCE, variance_above
from privopt_hierarchical_dp.least_squares import UNMEASURED, Estimate, Noise, mean_absolute

__all__ = ["GAUSSIAN", "GEOMETRIC", "KINDS", "NoiseDistribution", "Scale", "noise_of", "read_scales", "scale_texts"]

WIDE_VARIANCE: Final = 4.0
"""Variance from which on discrete and continuous Gaussian noise have the same moments, to 1e-30."""
LEAST_LOG_RATIO: Final = log(1e-6)
"""Logarithm of the least fourth cumulant, over 3 variance^2, that is looked for: less makes no difference."""
Scale: TypeAlias = Fraction | None
"""The scale of noise; None if nothing was measured."""


@frozen(kw_only=True)
class NoiseDistribution:
    """A family of noise, double geometric or discrete Gaussian.

    Attributes:
        law: Its name in certificates.
        name: Its name in a report's paragraph of methods.
        budget: The name of the budget that it spends.
        word: The word for its scale.
        meaning: A sentence on the meaning of the scale for one draw.
        times: The scale times the budget, over the sensitivity, is 1 / ``times``.
    """

    law: Literal["laplace", "gaussian"]
    name: str
    budget: str
    word: str
    meaning: str
    times: int

    @property
    def scales_name(self) -> str:
        """The plural of the word for its scale, which names arrays and keys of results."""
        return f"{self.word}s"

    def ideal_scale(self, budget: Fraction, delta: int) -> Fraction:
        """Return the exact scale for a budget above 0, which may not be possible to draw from."""
        return delta / (self.times * budget)

    def max_drawable_scale(self, max_scale: int) -> int:
        """Return the largest scale whose draws spread no further than double geometric ones of scale ``max_scale``."""
        return max_scale if self.law == "laplace" else min(max_scale**2, LARGEST_VARIANCE)

    def scale(self, budget: Fraction, delta: int) -> Scale:
        """Return the scale of the noise that is drawn for a part of the budget; it spends at most that part."""
        if not budget:
            return None
        # A variance is rounded up to one that the sampler can draw from.
        ideal = self.ideal_scale(budget, delta)
        return ideal if self.law == "laplace" else variance_above(ideal)

    def spend_of(self, scale: Scale, delta: int) -> Fraction:
        """Return the exact budget that noise of a scale spends."""
        return Fraction(0) if scale is None else delta / (self.times * scale)

    def moments(self, scale: Scale) -> Noise:
        """Return the variance and the fourth cumulant of one draw."""
        if scale is None:
            return UNMEASURED
        return noise_of(scale) if self.law == "laplace" else _gaussian_moments(float(scale))

    def precision(self, scale: Scale) -> Fraction:
        """Return the weight of values with this noise: a rational, about in proportion to 1 / variance."""
        if scale is None:
            return Fraction(0)
        return 1 / scale**2 if self.law == "laplace" else 1 / scale

    def draw(self, values: Ints, budget: Fraction, delta: int, *, seed: int | None) -> tuple[Ints, noise.NoiseRecord]:
        """Add noise to values for a part of the budget above 0; return a record of the draw as well."""
        if self.law == "laplace":
            return noise.discrete_laplace(values, budget / delta, seed=seed)
        return noise.discrete_gaussian(values, self.ideal_scale(budget, delta), seed=seed)

    def measure(
        self, values: Ints, budget: Fraction, delta: int, *, seed: Sequence[int] | None
    ) -> tuple[Ints, noise.NoiseRecord | None]:
        """Add noise to values; return a record of the draw as well.

        Args:
            values: (R, ...) True counts, or sums of them.
            budget: The budget of this measurement. For 0 nothing is measured: the values are 0, and there is no record.
            delta: The sensitivity.
            seed: The words of the seed, for experiments only.
        """
        if not budget:
            return np.zeros_like(values), None
        seed_number = (
            None if seed is None else int(np.random.SeedSequence([*seed]).generate_state(1, np.uint64)[0] >> 1)
        )
        return self.draw(values, budget, delta, seed=seed_number)


GEOMETRIC: Final = NoiseDistribution(
    law="laplace",
    name="two-sided geometric (discrete Laplace) noise",
    budget="epsilon",
    word="scale",
    meaning="Scale: the noise on one number is about as large as this, and e times less likely for each further scale.",
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
"""For each notion its noise distribution, and the keys of its budget."""


@lru_cache(maxsize=256)
def _gaussian_moments(parameter: float) -> Noise:
    """Return moments of discrete Gaussian noise: those of the continuous one, unless it is narrow.

    For narrow noise the fourth cumulant is the one by which :func:`.least_squares.mean_absolute` gives the mean
    absolute value of one draw. The noise is more peaked then, so intervals do not get narrower.
    """
    from scipy.optimize import brentq

    if parameter > WIDE_VARIANCE:
        return Noise(variance=parameter)
    values = np.arange(-40, 41)
    chances = np.exp(-(values**2) / (2.0 * parameter))
    chances /= chances.sum()
    variance = max(1e-9, float(chances @ values**2))
    mean_size = max(1e-9, float(chances @ np.abs(values)))
    # Narrow noise: choose the fourth cumulant that gives the exact mean absolute value.
    ratio = (variance / mean_size**2 + 1.0) / 3.0  # of the fourth cumulant to 3 variance^2, where it is 1 or more
    if ratio < 1.0:
        variance_array = np.array([[variance]])

        def excess_of(power: float) -> float:  # falls as the fourth cumulant rises
            error = Estimate(
                mean=0.0 * variance_array, variance=variance_array, fourth=3.0 * variance_array**2 * np.exp(power)
            )
            return float(mean_absolute(error)[0, 0]) - mean_size

        ratio = exp(brentq(excess_of, LEAST_LOG_RATIO, 0.0, xtol=1e-13)) if excess_of(LEAST_LOG_RATIO) > 0.0 else 0.0
    return Noise(variance=variance, fourth=3.0 * variance**2 * ratio)


def noise_of(scale: Fraction) -> Noise:
    """Return the moments of double geometric noise; its variance is at least 1e-9, so that one can divide by it."""
    x = float(min(1 / scale, Fraction(1000)))  # beyond, the variance is the least anyway
    variance = max(1e-9, 2.0 * exp(-x) / expm1(-x) ** 2)
    return Noise(variance=variance, fourth=3.0 * variance**2 + variance)


def scale_texts(scales: Sequence[Scale]) -> np.ndarray:
    """Return exact scales as an array of texts; an empty text stands for an unmeasured level."""
    return np.array(["" if scale is None else str(scale) for scale in scales], dtype=np.str_)


def read_scales(path: Path, name: str, texts: np.ndarray) -> tuple[Scale, ...]:
    """Convert an array of texts to scales.

    Raises:
        InputError: The texts are not those that :func:`scale_texts` writes.
    """
    with suppress(ValueError):
        return tuple(noise.stated_scale(text) if text else None for text in texts.tolist())
    raise InputError([Fault(str(path), name, "other values", "rationals above 0 as text, or nothing")])
