"""The base class for laws that add integer noise to a number from 0 to n and clamp the result to this range.

The geometric and staircase mechanisms are built on it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt_classics.laws import ReportLaw

__all__ = ["CountLaw", "check_largest"]

FLOOR: Final = 1e-300
"""The smallest probability in a law's table. Smaller probabilities are raised to this value."""


def check_largest(value: int) -> str | None:
    """Return None if ``value`` is a valid upper limit n, and a description of the valid values otherwise."""
    return None if 1 <= value <= 100_000 else "a whole number from 1 to 100000"


@frozen(kw_only=True)
class CountLaw(ReportLaw):
    """The distribution of a number from 0 to n plus symmetric integer noise, clamped to this range.

    Clamping is post-processing, so it does not affect privacy.
    """

    @property
    def records(self) -> Sequence[str]:
        """The possible secrets: the numbers from 0 to n, as strings."""
        return tuple(map(str, range(self.problem.largest + 1)))

    def count_outputs(self) -> int:
        """Return the number of possible reports, n + 1."""
        return int(self.problem.largest) + 1

    def outputs(self) -> Sequence[str]:
        """Return the possible reports: the numbers from 0 to n, as strings."""
        return self.records

    @abstractmethod
    def mass(self, distances: Ints) -> Floats:
        """Return the probability P(noise = d) of each distance d >= 0, in an array shaped like ``distances``."""

    @abstractmethod
    def tail(self, distances: Ints) -> Floats:
        """Return the probability P(noise >= d) for each distance d >= 0, in an array shaped like ``distances``."""

    @abstractmethod
    def draw_noise(self, count: int) -> list[int]:
        """Draw ``count`` independent noise values with exactly the law's probabilities."""

    def probabilities(self) -> Floats:
        """Return an (n + 1, n + 1) array with the probability of each report (column) for each number (row).

        Noisy values below 0 are clamped to 0 and those above n to n, so the first and last columns contain tail
        probabilities of the noise.
        """
        numbers = np.arange(self.count_outputs())
        table = self.mass(np.abs(np.subtract.outer(numbers, numbers)))
        table[:, 0], table[:, -1] = self.tail(numbers), self.tail(numbers[::-1])
        # Without a floor, doubles would underflow to 0 near 1e-308 and make ratios infinite. Raising both probabilities
        # of a ratio to the same floor can only move the ratio towards 1.
        return np.maximum(table, FLOOR)

    def draw_reports(self, index: int, count: int) -> list[str]:
        """Draw ``count`` independent reports. Each is the number ``index`` plus noise, clamped to [0, n]."""
        return [str(min(max(index + noise, 0), self.problem.largest)) for noise in self.draw_noise(count)]
