"""Optimised unary encoding (OUE; Wang, Blocki, Li and Jha 2017, section 4.3).

Law: a report has one bit per answer. Given the true answer x, bit j is 1 with probability 1 / 2 if j = x and 1 / (r +
1) otherwise, independently of the other bits, where r <= exp(epsilon) is rational.

Proof: only the bits x and x' have different distributions under the answers x and x'. The ratio of their joint
probabilities is largest if bit x is 1 and bit x' is 0: (1 / 2) (r / (r + 1)) / ((1 / (r + 1)) (1 / 2)) = r.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np
from attrs import frozen

from privopt.arrays import Floats
from privopt.numbers.integer_draws import draw_below
from privopt_classics.exact import draw_event
from privopt_classics.law_mechanisms import LocalMechanism
from privopt_classics.questions import AnswerLaw, Question, share_variance


@frozen(kw_only=True)
class UnaryLaw(AnswerLaw):
    """The distribution of reports in unary encoding. A report has one bit for each answer, such as ``0110``."""

    @property
    def background(self) -> Fraction:
        """The probability q that the bit of any answer other than the true one is 1."""
        return 1 / (self.parameter + 1)

    def count_outputs(self) -> int:
        """Return the number of possible reports: 2**k for k answers."""
        return 1 << self.size

    def outputs(self) -> Sequence[str]:
        """Return the possible reports: all strings of k bits, in lexicographic order."""
        return ["".join(bits) for bits in product("01", repeat=self.size)]

    def probabilities(self) -> Floats:
        """Return a (k, 2**k) array with the probability of each bit string (column) for each answer (row).

        The probability is a product with one factor per bit. The true answer's bit contributes 1 / 2. Any other bit
        contributes q (:attr:`background`) if it is 1, and 1 - q if it is 0.
        """
        bits = np.array(list(product((0, 1), repeat=self.size)))
        one_counts = bits.sum(axis=1)[None, :]
        bits_by_answer = bits.T  # (k, 2**k): the bit of each answer
        q = float(self.background)
        other_ones = one_counts - bits_by_answer
        table: Floats = 0.5 * q**other_ones * (1 - q) ** (self.size - 1 - other_ones)
        return table

    def draw_reports(self, index: int, count: int) -> list[str]:
        """Draw ``count`` reports for the answer at ``index``, drawing each bit of a report independently."""
        q = self.background
        return [
            "".join(str(draw_below(2) if position == index else int(draw_event(q))) for position in range(self.size))
            for _ in range(count)
        ]

    def expected_loss(self) -> float:
        """Return the variance of the estimated share of a rare answer, multiplied by the number of reports.

        This equals 4 r / (r - 1)**2, where r is the law's parameter.
        """
        return share_variance(Fraction(1, 2), self.background)


class UnaryEncoding(LocalMechanism[Question]):
    """A mechanism that reports one noisy bit for each answer."""

    problem_class = Question
    release_class = UnaryLaw
    loss_unit = "variance of a share, times reports"
    kit = "privopt_classics.kit:QUESTIONS"
