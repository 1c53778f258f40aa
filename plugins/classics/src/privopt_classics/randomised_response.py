"""k-ary randomised response (Kairouz, Oh and Viswanath 2014, "randomized response mechanism"; Warner 1965 for k = 2).

Law: the report y is one of k possible answers. Given the true answer x, its probability is P(y | x) = (r if y = x else
1) / (r + k - 1), where r <= exp(epsilon) is rational.

Proof: the denominator is the same for all x, and all numerators are r or 1, so no ratio of probabilities exceeds r.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from attrs import frozen

from privopt.arrays import Floats
from privopt.numbers.integer_draws import draw_below
from privopt_classics.exact import draw_event
from privopt_classics.law_mechanisms import LocalMechanism
from privopt_classics.questions import AnswerLaw, Question, share_variance


@frozen(kw_only=True)
class ResponseLaw(AnswerLaw):
    """The distribution of reports in randomised response. A report is one of the k answers."""

    @property
    def truth_probability(self) -> Fraction:
        """The probability that the true answer is reported, r / (r + k - 1) for k answers and the law's parameter r."""
        return self.parameter / (self.parameter + self.size - 1)

    def count_outputs(self) -> int:
        """Return the number of possible reports, one for each of the k answers."""
        return self.size

    def outputs(self) -> Sequence[str]:
        """Return the possible reports: the answers themselves."""
        return self.records

    def probabilities(self) -> Floats:
        """Return a (k, k) array with the probability of each report (column) for each true answer (row)."""
        truth = self.truth_probability
        matrix = np.full((self.size, self.size), float((1 - truth) / (self.size - 1)))
        np.fill_diagonal(matrix, float(truth))
        return matrix

    def draw_reports(self, index: int, count: int) -> list[str]:
        """Draw ``count`` reports for the answer at ``index``.

        Each report is the true answer with probability ``truth_probability``, and otherwise an answer drawn uniformly
        from the others.
        """
        truth_probability, others = self.truth_probability, [*self.records[:index], *self.records[index + 1 :]]
        return [
            self.records[index] if draw_event(truth_probability) else others[draw_below(len(others))]
            for _ in range(count)
        ]

    def expected_loss(self) -> float:
        """Return the variance of the estimated share of a rare answer, multiplied by the number of reports."""
        truth = self.truth_probability
        return share_variance(truth, (1 - truth) / (self.size - 1))


class RandomisedResponse(LocalMechanism[Question]):
    """A mechanism that reports the true answer with higher probability than any other answer."""

    problem_class = Question
    release_class = ResponseLaw
    loss_unit = "variance of a share, times reports"
    kit = "privopt_classics.kit:QUESTIONS"
