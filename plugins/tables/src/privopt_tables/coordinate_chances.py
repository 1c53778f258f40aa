"""Estimate how likely a number is to match a nearby coordinate by chance.

The estimates use the number's digits and the coordinates in other rows.
"""

from __future__ import annotations

from typing import Final, Self

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints

__all__ = ["MIN_ERROR", "ControlValues"]

NEIGHBOURS: Final = 10
"""Number of distinct coordinates used on each side of a number to estimate the density of coordinates."""

MIN_NEIGHBOURS: Final = 5
"""Minimum number of distinct coordinates needed to estimate a density."""

MIN_ERROR: Final = 1e-5
"""Maximum difference, in degrees or km, at which a number is always considered to match a coordinate. It is roughly the
precision of degrees stored as 32-bit floats."""

CAUTION: Final = 1.5
"""The safety factor applied to estimated probabilities of chance matches, because densities are only estimates."""


@frozen(eq=False)
class ControlValues:
    """A sample of a coordinate's values, used to estimate how likely a number is to match the coordinate by chance.

    Attributes:
        values: (K,) The values in ascending order.
        distinct: (U,) The distinct values among them, in ascending order.
    """

    values: Floats
    distinct: Floats

    @classmethod
    def of(cls, targets: Floats, width: float) -> Self:
        """Create an instance from the values of one coordinate.

        Args:
            targets: The values, one per row, in the units being searched for, such as degrees or metres.
            width: The number of these units in one degree or, for planar coordinates, in one km. Neighbouring values
                that differ by at most `MIN_ERROR` times this number count as equal.
        """
        values = np.sort(targets)
        is_new = np.diff(values, prepend=-np.inf) > MIN_ERROR * width
        return cls(values, values[is_new])

    def chances(self, values: Floats, errors: Floats, targets: Floats, width: float, *, single: bool) -> Floats:
        """Estimate, for each number in a cell, the probability that it matches the coordinate of its row by chance.

        A number matches a coordinate if they differ by at most the number's error. Three values are computed for each
        number: one from its digits, one from the fraction of other nearby rows whose coordinate matches it, and one
        from the density of distinct coordinates around it. The estimate is `CAUTION` times the largest of these.

        Args:
            values: (R,) The numbers, each within ``width / 2`` of its row's coordinate.
            errors: (R,) The maximum error of each number.
            targets: (R,) The coordinate of the row that contains each number.
            width: The number of units of ``values`` in one degree or, for planar coordinates, in one km.
            single: Whether this coordinate is compared on its own, without the other one. If so, other rows with the
                same coordinate can also count as chance matches, unless all rows share the same coordinate.

        Returns:
            (R,) The estimated probabilities, capped at 1.
        """
        window, margin = width / 2, MIN_ERROR * width
        # A number's own row is not counted. If both coordinates are compared, every row with an equal coordinate is
        # left out, because rows at the same place share both coordinates, and such a match would not be due to chance.
        own_counts = count_within(self.values, targets, np.full(len(targets), margin))
        # If all rows share one coordinate, they are not counted, because every number near it would seem to match by
        # chance.
        if single and len(self.distinct) > 1:
            own_counts = np.minimum(own_counts, 1)
        match_counts = np.maximum(count_within(self.values, values, errors) - own_counts, 0)
        near_counts = np.maximum(count_within(self.values, values, np.full(len(values), window)) - own_counts, 1)
        last = len(self.distinct) - 1
        # Indices of the distinct coordinates that come NEIGHBOURS places below and above each value. The coordinate at
        # the insertion index is the first one above the value.
        insertion_indices = np.searchsorted(self.distinct, values)
        low_indices, high_indices = (
            np.clip(insertion_indices - NEIGHBOURS, 0, last),
            np.clip(insertion_indices + NEIGHBOURS - 1, 0, last),
        )
        near_distinct_counts = np.maximum(count_within(self.distinct, values, np.full(len(values), window)) - 1, 0)
        neighbours = np.minimum(high_indices - low_indices, near_distinct_counts)
        span = np.maximum(self.distinct[high_indices], values) - np.minimum(self.distinct[low_indices], values)
        # If the neighbours are spread evenly over their span, a fraction 2 * errors / span of them matches. It is
        # multiplied by the neighbours' fraction of all distinct coordinates in the window.
        density = neighbours / np.maximum(near_distinct_counts, 1) * 2 * errors / np.maximum(span, 2 * errors)
        # A density estimated from too few neighbours is not reliable.
        density = np.where(neighbours >= MIN_NEIGHBOURS, density, 0.0)
        # Small numbers are more frequent than large ones with as many decimals, as if their logarithms were uniformly
        # distributed. So the window is at most as wide as the number itself.
        by_digits = errors / np.minimum(window, np.maximum(np.abs(values), errors))
        chances = np.maximum(by_digits, np.maximum(match_counts / near_counts, density))
        return np.asarray(np.minimum(1.0, CAUTION * chances))


def count_within(ordered: Floats, values: Floats, radii: Floats) -> Ints:
    """For each value, count the numbers in a sorted array that are within a given radius of the value.

    Args:
        ordered: The numbers, in ascending order.
        values: (R,) The values.
        radii: (R,) The radius around each value.

    Returns:
        (R,) The counts.
    """
    return np.asarray(np.searchsorted(ordered, values + radii, "right") - np.searchsorted(ordered, values - radii))
