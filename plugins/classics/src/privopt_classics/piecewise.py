"""The piecewise mechanism for numbers in [-1, 1] (Wang et al. 2019, section III-B, algorithm 2), on a grid.

Law: the secret is t = -1 + 2 i / n with i in 0, ..., n. P(j | i) = (r if i <= j < i + w else 1) / (r w + n) for j in 0,
..., n + w - 1, where r <= exp(epsilon) is rational and w is the integer nearest to n / sqrt(r), but at least 1. A draw
j is reported as the number 2 (j - (n + w - 1) / 2) / (A n), where A = (r - 1) w / (r w + n).

Proof: for every i, w numerators are r and n numerators are 1, so no ratio of probabilities exceeds r. E(j | i) = A i +
B for a constant B, because the mean of the w likely values j is i + (w - 1) / 2. By symmetry, the reported number has
mean t. The paper's mechanism is the limit for large n.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import sqrt

import numpy as np
from attrs import frozen

from privopt.arrays import Floats
from privopt.declare import key
from privopt.numbers.integer_draws import draw_below
from privopt_classics.counts import check_largest
from privopt_classics.exact import draw_event
from privopt_classics.law_mechanisms import LocalMechanism
from privopt_classics.laws import Privacy, ReportLaw


@frozen(kw_only=True)
class BoundedNumber:
    """A problem whose secret is a number on a public grid, which divides the range from -1 to 1 into n steps."""

    steps: int = key(help="steps n of the grid of numbers from -1 to 1", check=check_largest)
    privacy: Privacy = key(help="how much may leak")


@frozen(kw_only=True)
class PiecewiseLaw(ReportLaw):
    """The distribution of reports in the piecewise mechanism.

    Each report is an unbiased estimate of the secret number.
    """

    problem: BoundedNumber

    @property
    def window(self) -> int:
        """The number w of likely reports per secret, i.e. those with the higher of the two possible probabilities."""
        return max(1, round(self.problem.steps / sqrt(self.parameter)))

    @property
    def slope(self) -> Fraction:
        """The slope A of the mean report index E(j | i) as a linear function of the secret's index i."""
        r, w = self.parameter, self.window
        return (r - 1) * w / (r * w + self.problem.steps)

    @property
    def records(self) -> Sequence[str]:
        """The possible secrets: the numbers on the grid, as strings."""
        n = self.problem.steps
        return tuple(f"{(2 * i - n) / n:g}" for i in range(n + 1))

    def count_outputs(self) -> int:
        """Return the number n + w of possible reports, for n grid steps and w likely reports per secret."""
        return self.problem.steps + self.window

    def values(self) -> Floats:
        """Return an (n + w,) array with the number reported for each report index j."""
        j = np.arange(self.count_outputs())
        centred: Floats = j.astype(np.float64) - (self.count_outputs() - 1) / 2
        return 2 * centred / float(self.slope * self.problem.steps)

    def outputs(self) -> Sequence[str]:
        """Return the numbers that can be reported, formatted with up to 12 significant digits."""
        return [f"{value:.12g}" for value in self.values()]

    def probabilities(self) -> Floats:
        """Return an (n + 1, n + w) array with the probability of each report j (column) for each secret i (row).

        All probabilities have the same denominator. The numerator is the law's parameter r if j is one of the w likely
        reports i, ..., i + w - 1, and 1 otherwise.
        """
        n, w, r = self.problem.steps, self.window, self.parameter
        offsets = np.subtract.outer(np.arange(n + w), np.arange(n + 1)).T
        is_likely = (offsets >= 0) & (offsets < w)
        return np.where(is_likely, float(r / (r * w + n)), float(1 / (r * w + n)))

    def draw_reports(self, index: int, count: int) -> list[str]:
        """Draw ``count`` reports for the secret at ``index``.

        A random event first decides whether the report's index j is one of the w likely values i, ..., i + w - 1, where
        i is ``index``. Then j is drawn uniformly from either these values or the n others.
        """
        n, w = self.problem.steps, self.window
        window_probability, outputs = self.parameter * w / (self.parameter * w + n), self.outputs()
        reports = []
        for _ in range(count):
            if draw_event(window_probability):
                reports.append(outputs[index + draw_below(w)])
            else:
                other = draw_below(n)  # the position of j among the other values
                reports.append(outputs[other + w if other >= index else other])
        return reports

    def variance(self, index: int) -> float:
        """Return the variance of the reported number for the secret at ``index``.

        The variance is computed in rational arithmetic, because for a large epsilon the final subtraction would lose
        all digits in floating point. The formula relies on the fact that the squared distances of m consecutive
        integers from their mean add up to m (m**2 - 1) / 12.
        """
        n, w, r, count = self.problem.steps, self.window, self.parameter, self.count_outputs()
        distance = Fraction(2 * index - n, 2)  # distance from the midpoint of all j to that of the likely ones
        likely_squares = w * distance**2 + Fraction(w * (w**2 - 1), 12)
        squares = Fraction(count * (count**2 - 1), 12) + (r - 1) * likely_squares
        mean_square = squares / (r * w + n) * (2 / (self.slope * n)) ** 2
        return float(mean_square - Fraction(2 * index - n, n) ** 2)

    def expected_loss(self) -> float:
        """Return the largest variance of the reported number over all secrets. It is attained at -1 and 1."""
        return self.variance(0)


class Piecewise(LocalMechanism[BoundedNumber]):
    """A mechanism that reports an unbiased estimate of a number in [-1, 1]."""

    problem_class = BoundedNumber
    release_class = PiecewiseLaw
    loss_unit = "variance"
    kit = "privopt_classics.kit:NUMBERS"
