"""Subset selection (Ye and Barg 2018, section III).

Law: a report is a set S of w of the k answers. Given the true answer x, P(S | x) = (r if x in S else 1) / (r C(k - 1,
w - 1) + C(k - 1, w)), where C is the binomial coefficient and r <= exp(epsilon) is rational.

Proof: the denominator depends only on k, w and r, which are public. All numerators are r or 1, so the probabilities
of a report under two answers differ by a factor of at most r.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
from attrs import frozen

from privopt.arrays import Floats
from privopt.numbers.integer_draws import draw_below
from privopt_classics.exact import draw_event
from privopt_classics.law_mechanisms import LocalMechanism
from privopt_classics.questions import AnswerLaw, Question, share_variance


@frozen(kw_only=True)
class SubsetLaw(AnswerLaw):
    """The distribution of reports in subset selection.

    A report is a set of w answers, written with one bit per answer, such as ``0110``.
    """

    @property
    def subset_size(self) -> int:
        """The number w of answers in a report: k / (r + 1) rounded to the nearest integer, but at least 1.

        Here k is the number of answers and r the law's parameter.
        """
        return max(1, round(self.size / (self.parameter + 1)))

    @property
    def truth_probability(self) -> Fraction:
        """The probability w r / (w r + k - w) that a report of w of the k answers contains the true one.

        Here r is the law's parameter.
        """
        likely = self.subset_size * self.parameter
        return likely / (likely + self.size - self.subset_size)

    def count_outputs(self) -> int:
        """Return the number of possible reports: the number of ways to choose w of the k answers."""
        return comb(self.size, self.subset_size)

    def outputs(self) -> Sequence[str]:
        """Return all sets of w answers as bit strings, in lexicographic order of their members' indices."""
        return [self._format(members) for members in combinations(range(self.size), self.subset_size)]

    def _format(self, members: Sequence[int]) -> str:
        """Return the bit string of the set of answers at the indices ``members``."""
        return "".join("1" if position in members else "0" for position in range(self.size))

    def probabilities(self) -> Floats:
        """Return a (k, number of sets) array with the probability of each set (column) for each answer (row).

        All probabilities have the same denominator. The numerator is the law's parameter r if the set contains the
        answer, and 1 otherwise.
        """
        is_member = np.array([[bit == "1" for bit in report] for report in self.outputs()]).T
        k, w, r = self.size, self.subset_size, self.parameter
        denominator = r * comb(k - 1, w - 1) + comb(k - 1, w)
        return np.where(is_member, float(r / denominator), float(1 / denominator))

    def draw_reports(self, index: int, count: int) -> list[str]:
        """Draw ``count`` reports for the answer at ``index``.

        A random event first decides whether the reported set contains the true answer. Other answers are then drawn
        uniformly until the set is full.
        """
        truth_probability = self.truth_probability
        reports = []
        for _ in range(count):
            others = [position for position in range(self.size) if position != index]
            members = [index] if draw_event(truth_probability) else []
            while len(members) < self.subset_size:
                members.append(others.pop(draw_below(len(others))))
            reports.append(self._format(members))
        return reports

    def expected_loss(self) -> float:
        """Return the variance of the estimated share of a rare answer, multiplied by the number of reports."""
        truth, k, w = self.truth_probability, self.size, self.subset_size
        # On average, a set contains w - truth of the k - 1 other answers, which gives each of them this probability.
        return share_variance(truth, (w - truth) / (k - 1))


class SubsetSelection(LocalMechanism[Question]):
    """A mechanism that reports a random set of answers, which is more likely to contain the true one than any other."""

    problem_class = Question
    release_class = SubsetLaw
    loss_unit = "variance of a share, times reports"
    kit = "privopt_classics.kit:QUESTIONS"
