"""The noise that each notion is kept by: how a budget becomes a scale, what it spends, and its moments.

Sensitivities are those of :mod:`.relations`. As no entry changes by more than 1, squares add up to what absolute values
do: one number Delta serves as the L1 sensitivity and as the square of the L2 sensitivity. A search over neighbours in
the tests comes to the same.

Budgets. Double geometric noise of scale b spends epsilon = Delta / b, discrete Gaussian noise of variance V spends
rho = Delta / (2 V); either adds up over the levels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from fractions import Fraction
from math import exp, expm1
from pathlib import Path
from typing import ClassVar, Final

import numpy as np

from privopt.arrays import Ints
from privopt.errors import Fault, InputError
from privopt.numbers import noise
from privopt.numbers.gaussian import LARGEST_VARIANCE, variance_above
from privopt.numbers.laplace import LARGEST_TERM
from privopt_hierarchical_dp.least_squares import Noise

__all__ = ["GAUSSIAN", "GEOMETRIC", "KINDS", "Law", "noise_of", "stated_scales"]


class Law(ABC):
    """A family of noise.

    Attributes:
        budget: what it spends, in words.
        sum: what each level adds to the budget spent, in words.
        word: what its scale is called.
        meaning: what that says of one draw.
        stated: the same for several, in files and results.
    """

    budget: ClassVar[str]
    sum: ClassVar[str]
    word: ClassVar[str]
    meaning: ClassVar[str]
    stated: ClassVar[str]

    @abstractmethod
    def scale(self, budget: Fraction, delta: int) -> Fraction:
        """The scale that is drawn at for a part of the budget; it spends at most that."""

    @abstractmethod
    def spent(self, scale: Fraction, delta: int) -> Fraction:
        """What noise of a scale spends, exactly."""

    @abstractmethod
    def moments(self, scale: Fraction) -> Noise:
        """Variance and fourth cumulant of one draw."""

    @abstractmethod
    def precision(self, scale: Fraction) -> Fraction:
        """What values of that noise weigh beside each other: about in proportion to 1 / variance, and rational."""

    @abstractmethod
    def wide(self, budget: Fraction, delta: int) -> Fraction:
        """The scale that a budget asks for, whether or not it can be drawn."""

    @abstractmethod
    def widest(self, most: int) -> int:
        """The largest scale whose draws spread no further than double geometric ones of scale ``most``."""

    @abstractmethod
    def draw(self, values: Ints, budget: Fraction, delta: int, *, seed: int | None) -> tuple[Ints, noise.NoiseRecord]:
        """Values with noise for a part of the budget."""

    def seedable(self, budget: Fraction, delta: int) -> bool:
        """Whether that noise can be drawn from a seed too, as trials do."""
        return True


class _Geometric(Law):
    budget: ClassVar[str] = "epsilon"
    sum: ClassVar[str] = "sensitivity / stated scale"
    word: ClassVar[str] = "scale"
    meaning: ClassVar[str] = (
        "Scale: the noise on one number is about as large as this, and e times less likely for each further scale."
    )
    stated: ClassVar[str] = "scales"

    def scale(self, budget: Fraction, delta: int) -> Fraction:
        return self.wide(budget, delta)

    def spent(self, scale: Fraction, delta: int) -> Fraction:
        return delta / scale

    def moments(self, scale: Fraction) -> Noise:
        return noise_of(scale)

    def precision(self, scale: Fraction) -> Fraction:
        return 1 / scale**2

    def wide(self, budget: Fraction, delta: int) -> Fraction:
        return delta / budget

    def widest(self, most: int) -> int:
        return most

    def draw(self, values: Ints, budget: Fraction, delta: int, *, seed: int | None) -> tuple[Ints, noise.NoiseRecord]:
        return noise.discrete_laplace(values, budget / delta, seed=seed)

    def seedable(self, budget: Fraction, delta: int) -> bool:
        return max((budget / delta).as_integer_ratio()) <= LARGEST_TERM


class _Gaussian(Law):
    budget: ClassVar[str] = "rho"
    sum: ClassVar[str] = "squared L2 sensitivity / (2 stated variance)"
    word: ClassVar[str] = "variance"
    meaning: ClassVar[str] = "Variance: the noise on one number is about as large as its square root."
    stated: ClassVar[str] = "variances"

    def scale(self, budget: Fraction, delta: int) -> Fraction:
        return variance_above(self.wide(budget, delta))

    def spent(self, scale: Fraction, delta: int) -> Fraction:
        return delta / (2 * scale)

    def moments(self, scale: Fraction) -> Noise:
        return Noise(variance=float(scale))

    def precision(self, scale: Fraction) -> Fraction:
        return 1 / scale

    def wide(self, budget: Fraction, delta: int) -> Fraction:
        return delta / (2 * budget)

    def widest(self, most: int) -> int:
        return min(most**2, LARGEST_VARIANCE)

    def draw(self, values: Ints, budget: Fraction, delta: int, *, seed: int | None) -> tuple[Ints, noise.NoiseRecord]:
        return noise.discrete_gaussian(values, self.wide(budget, delta), seed=seed)


GEOMETRIC: Final = _Geometric()
GAUSSIAN: Final = _Gaussian()
KINDS: Final[dict[str, tuple[Law, tuple[str, ...]]]] = {
    "pure-dp": (GEOMETRIC, ("epsilon",)),
    "zcdp": (GAUSSIAN, ("rho",)),
    "approx-dp": (GAUSSIAN, ("epsilon", "delta")),
}
"""Of each notion the noise that it is kept by, and the keys that say how much."""


def noise_of(scale: Fraction) -> Noise:
    """Moments of double geometric noise; variance at least 1e-9, so that it can be divided by."""
    x = float(min(1 / scale, Fraction(1000)))  # beyond, the variance is the least anyway
    variance = max(1e-9, 2.0 * exp(-x) / expm1(-x) ** 2)
    return Noise(variance=variance, fourth=3.0 * variance**2 + variance)


def stated_scales(path: Path, name: str, stated: object, count: int) -> tuple[Fraction, ...]:
    """Scales read back from an array of a file.

    Raises:
        InputError: they are not ``count`` texts that :func:`privopt.numbers.noise.stated_scale` takes.
    """
    texts = stated.tolist() if isinstance(stated, np.ndarray) and stated.ndim == 1 and stated.dtype.kind == "U" else []
    if len(texts) == count:
        with suppress(ValueError):
            return tuple(map(noise.stated_scale, texts))
    raise InputError([Fault(str(path), name, "other values", f"{count} rationals above 0 as text")])
