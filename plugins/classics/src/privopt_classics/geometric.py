"""The truncated geometric mechanism (Ghosh, Roughgarden and Sundararajan 2012, section 2).

Law: the report for a count i is min(max(i + Z, 0), n) with P(Z = z) = (1 - a) / (1 + a) a**|z| and a = exp(-epsilon).

Proof: for a fixed result i + z, |z| changes by at most 1 between the neighbouring counts i and i + 1. Hence a**|z|
changes by a factor of at most 1 / a = exp(epsilon). Clamping is post-processing.

For any prior and any symmetric monotone loss, no mechanism with the same epsilon has a smaller expected loss if users
remap reports optimally (the paper's main theorem).
"""

from __future__ import annotations

from math import exp, expm1, sinh

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.declare import key
from privopt.numbers.noise import discrete_laplace
from privopt_classics.counts import CountLaw, check_largest
from privopt_classics.law_mechanisms import CountMechanism
from privopt_classics.laws import Privacy


@frozen(kw_only=True)
class Count:
    """A problem whose secret is a count of people, which lies between 0 and a public number n."""

    largest: int = key(help="the largest possible count n, public", check=check_largest)
    privacy: Privacy = key(help="how much may leak")


@frozen(kw_only=True)
class GeometricLaw(CountLaw):
    """The distribution of a count plus two-sided geometric noise of rate epsilon, clamped to the range from 0 to n."""

    problem: Count

    def mass(self, distances: Ints) -> Floats:
        """Return P(noise = d) = (1 - a) / (1 + a) a**d for each distance d >= 0, where a = exp(-epsilon)."""
        ratio = exp(-self.parameter)
        # expm1() computes 1 - a without losing digits when epsilon is small.
        return np.asarray(-expm1(-self.parameter) / (1 + ratio) * ratio**distances, dtype=np.float64)

    def tail(self, distances: Ints) -> Floats:
        """Return P(noise >= d) = a**d / (1 + a) for each distance d >= 0, where a = exp(-epsilon)."""
        ratio = exp(-self.parameter)
        return np.asarray(ratio**distances / (1 + ratio), dtype=np.float64)

    def draw_noise(self, count: int) -> list[int]:
        """Draw ``count`` exact samples of two-sided geometric noise, also called discrete Laplace noise."""
        noise, _ = discrete_laplace(np.zeros(count, dtype=np.int64), self.parameter)
        return [int(value) for value in noise]

    def expected_loss(self) -> float:
        """Return 1 / sinh(epsilon), the expected absolute value of the noise before clamping."""
        return 1 / sinh(self.parameter)


class Geometric(CountMechanism[Count]):
    """A mechanism that adds two-sided geometric noise to a count of people and clamps the result to the valid range."""

    problem_class = Count
    release_class = GeometricLaw
    loss_unit = "people"
    kit = "privopt_classics.kit:COUNTS"
