"""The staircase mechanism (Geng, Kairouz, Oh and Viswanath 2015), for integers (Geng and Viswanath 2016).

Law: the report for a sum i is min(max(i + Z, 0), n). P(Z = z) = c b**floor(|z| / D), times b if |z| mod D >= s, where b
is exp(-epsilon) and D the sensitivity. Each step of the staircase therefore covers D values of |z|. The first s of them
form the upper part of the step and are more likely than the others. The probabilities sum to 1 if c = (1 - b) / (2 s +
2 b (D - s) - (1 - b)).

Proof: P does not increase with |z|, and P(|z| + D) = b P(|z|). Neighbouring sums differ by at most D, so |z| grows by
at most D, and P decreases to no less than b times its value. The width s is chosen to minimise the expected |Z|; the
minimiser is near D / (1 + exp(epsilon / 2)).
"""

from __future__ import annotations

from math import exp, expm1

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.declare import key
from privopt.numbers.integer_draws import draw_below
from privopt.numbers.noise import discrete_laplace
from privopt_classics.counts import CountLaw, check_largest
from privopt_classics.exact import draw_exp_event
from privopt_classics.law_mechanisms import CountMechanism
from privopt_classics.laws import Privacy


@frozen(kw_only=True)
class BoundedSum:
    """A problem with a secret sum that one person can change by at most a publicly known amount."""

    largest: int = key(help="the largest possible sum n, public", check=check_largest)
    sensitivity: int = key(help="the most by which one person changes the sum", check=check_largest)
    privacy: Privacy = key(help="how much may leak")


@frozen(kw_only=True)
class StaircaseLaw(CountLaw):
    """The distribution of a sum plus staircase noise, clamped to the range from 0 to n.

    The probability of a noise value is a step function of its absolute value. Each step covers D values, where D is the
    sensitivity. The first s values of a step form its upper part and are more likely than the others.
    """

    problem: BoundedSum

    def absolute_noise(self, step_width: Ints) -> Floats:
        """Return the expected absolute value of the noise before clamping, for each width s of a step's upper part.

        Args:
            step_width: The widths s to evaluate, as an array of integers between 1 and the sensitivity.
        """
        b, fall = exp(-self.parameter), -expm1(-self.parameter)
        period, s = self.problem.sensitivity, step_width
        # Let |z| = k D + position on step k. The terms k D and the positions are summed separately over all steps k.
        upper_sum, all_sum = s * (s - 1) / 2, period * (period - 1) / 2
        whole_periods = period * b / fall**2 * (s + b * (period - s))
        within_period = (upper_sum + b * (all_sum - upper_sum)) / fall
        noise: Floats = 2 * self._height(s) * (whole_periods + within_period)
        return noise

    @property
    def step_width(self) -> int:
        """The width s of each step's upper part, chosen to minimise the expected absolute noise."""
        return int(self.absolute_noise(np.arange(1, self.problem.sensitivity + 1)).argmin()) + 1

    def _height(self, s: Ints | int) -> Floats:
        """Return c, the probability that the noise is 0, for each width s of a step's upper part."""
        b, fall = exp(-self.parameter), -expm1(-self.parameter)
        return np.asarray(fall / (2 * s + 2 * b * (self.problem.sensitivity - s) - fall), dtype=np.float64)

    def mass(self, distances: Ints) -> Floats:
        """Return P(noise = d) for each distance d >= 0.

        The probability is c b**k for the first s values of step k, and c b**(k + 1) for the step's other values, where
        c is the probability of 0 and b is exp(-epsilon).
        """
        step, within = np.divmod(distances, self.problem.sensitivity)
        masses: Floats = self._height(self.step_width) * exp(-self.parameter) ** (step + (within >= self.step_width))
        return masses

    def tail(self, distances: Ints) -> Floats:
        """Return P(noise >= d) for each distance d >= 0.

        The result is the total probability of d, the larger values on the same step and all later steps. Step k has
        probability c b**k (s + b (D - s)), so the later steps form a geometric series. Here c is the probability of 0,
        b is exp(-epsilon), D is the sensitivity and s is the width of each step's upper part.
        """
        b, fall = exp(-self.parameter), -expm1(-self.parameter)
        period, s = self.problem.sensitivity, self.step_width
        step, within = np.divmod(distances, period)
        rest = np.maximum(s - within, 0) + b * (period - np.maximum(within, s))
        tails: Floats = self._height(s) * b**step * (rest + b * (s + b * (period - s)) / fall)
        return tails

    def draw_noise(self, count: int) -> list[int]:
        """Draw ``count`` noise values by rejection sampling.

        Each value is determined by a random step, a random position on this step and a random sign. Positions on the
        lower part of a step are accepted with probability b = exp(-epsilon). Negative zero is rejected, because 0 would
        otherwise be drawn twice as often as it should be.
        """
        period, s = self.problem.sensitivity, self.step_width
        noise: list[int] = []
        while len(noise) < count:
            # The non-negative values of discrete Laplace noise have a geometric distribution, in which P(k) is
            # proportional to b**k.
            steps, _ = discrete_laplace(np.zeros(count, dtype=np.int64), self.parameter)
            for step in steps[steps >= 0].tolist():
                within = draw_below(period)
                magnitude, is_negative = step * period + within, draw_below(2) == 1
                is_accepted = within < s or draw_exp_event(self.parameter)
                if is_accepted and not (is_negative and magnitude == 0):
                    noise.append(-magnitude if is_negative else magnitude)
        return noise[:count]

    def expected_loss(self) -> float:
        """Return the expected absolute value of the noise before clamping."""
        return float(self.absolute_noise(np.array([self.step_width]))[0])


class Staircase(CountMechanism[BoundedSum]):
    """A mechanism that adds staircase noise to a sum and clamps the result to the sum's range."""

    problem_class = BoundedSum
    release_class = StaircaseLaw
    loss_unit = "units of the sum"
    kit = "privopt_classics.kit:SUMS"
