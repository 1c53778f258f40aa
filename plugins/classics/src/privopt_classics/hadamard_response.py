"""Hadamard response (Acharya, Sun and Zhang 2019, the scheme for all epsilon).

Law: the k answers are split into B blocks with up to b - 1 answers each. Given the true answer x, a report y has
probability P(y | x) = (r if y is in C_x else 1) / (s r + B b - s), where s = b / 2 and r <= exp(epsilon) is rational. A
report y = (block, column) is in C_x if its block contains x and H[1 + x mod (b - 1), column] = 1. H is Sylvester's
Hadamard matrix of order b, and b is the smallest power of two that is at least k / B + 1. Among the powers of two up to
min(r, 2 k), B is the one that gives the smallest variance. The paper uses the largest of these powers, which increases
the variance by at most a constant factor.

Proof: every row of H except row 0 contains b / 2 ones, so the denominator is the same for all x. All numerators are r
or 1, so no ratio of probabilities exceeds r.
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
from privopt_classics.questions import AnswerLaw, Question


def find_sign(index: int, report: int, order: int) -> int:
    """Return 1, -1 or 0, depending on how a report relates to the secret answer x.

    The sign is 1 if the report is in C_x, the set of reports that are most likely for x. It is -1 if the report is in
    the same block as x but not in C_x, and 0 if it is in a different block.

    Args:
        index: The index of the secret answer x.
        report: The index of the report, i.e. the index of its block times ``order`` plus its column within the block.
        order: The order b of the Hadamard matrix.
    """
    block, row = divmod(index, order - 1)
    report_block, column = divmod(report, order)
    if block != report_block:
        return 0
    # The entry is 1 if the binary forms of the row and column indices share an even number of one bits.
    return -1 if ((row + 1) & column).bit_count() % 2 else 1


def compute_order(size: int, blocks: int) -> int:
    """Return the order b of the Hadamard matrix, the smallest power of two with ``blocks * (b - 1) >= size``."""
    answers_per_block = -(-size // blocks)
    return 1 << answers_per_block.bit_length()


def compute_loss(size: int, blocks: int, odds: Fraction) -> Fraction:
    """Return the variance of the estimated share of a rare answer, multiplied by the number of reports.

    The variance depends on the senders' true answers, so it is averaged over all answers other than the rare one.

    The share is estimated by taking the sign of each report for the rare answer (see :func:`find_sign`) and multiplying
    the mean of these signs by Z / (s (r - 1)), where Z is the law's denominator and s is half the order of the Hadamard
    matrix. The mean square of a sign is the probability that the report lies in the rare answer's block. If the
    sender's answer is in the same block, this probability is s (r + 1) / Z. Otherwise it is 2 s / Z.

    Args:
        size: The number k of answers.
        blocks: The number B of blocks.
        odds: The largest ratio r between the probabilities of a report under two answers.
    """
    order = compute_order(size, blocks)
    likely = order // 2
    neighbours = min(order - 1, size) - 1  # the number of other answers in the rare answer's block
    # The mean squared sign is s / Z times the average of these weights over the other answers.
    weights = neighbours * (odds + 1) + (size - 1 - neighbours) * 2
    return weights / (size - 1) * (likely * (odds - 1) + blocks * order) / (likely * (odds - 1) ** 2)


@frozen(kw_only=True)
class HadamardLaw(AnswerLaw):
    """The distribution of reports in Hadamard response.

    A report is a column of one block's Hadamard matrix. Columns are numbered from 0, consecutively across all blocks.
    """

    @property
    def blocks(self) -> int:
        """The number B of blocks.

        Of the powers of two up to min(r, 2 k), it is the one that minimises the expected loss. Here k is the number of
        answers and r the law's parameter.
        """
        largest = int(min(self.parameter, Fraction(2 * self.size)))
        return min(
            (1 << power for power in range(largest.bit_length())),
            key=lambda blocks: compute_loss(self.size, blocks, self.parameter),
        )

    @property
    def order(self) -> int:
        """The order b of the Hadamard matrix used in every block."""
        return compute_order(self.size, self.blocks)

    @property
    def denominator(self) -> Fraction:
        """The common denominator of all probabilities, s r + B b - s.

        Here r is the law's parameter, B the number of blocks, b the order of the Hadamard matrix and s = b / 2.
        """
        return self.order // 2 * (self.parameter - 1) + self.count_outputs()

    def count_outputs(self) -> int:
        """Return the number of possible reports: the number of blocks times the order of the Hadamard matrix."""
        return self.blocks * self.order

    def outputs(self) -> Sequence[str]:
        """Return the possible reports: the column indices 0, ..., B b - 1, as strings."""
        return [str(column) for column in range(self.count_outputs())]

    def probabilities(self) -> Floats:
        """Return a (k, B b) array with the probability of each report (column) for each answer (row).

        The probability is r / Z if the report is in the answer's set C_x of likely reports, and 1 / Z otherwise, where
        r is the law's parameter and Z is :attr:`denominator`.
        """
        reports, order = range(self.count_outputs()), self.order
        is_likely = np.array(
            [[find_sign(index, report, order) > 0 for report in reports] for index in range(self.size)]
        )
        return np.where(is_likely, float(self.parameter / self.denominator), float(1 / self.denominator))

    def draw_reports(self, index: int, count: int) -> list[str]:
        """Draw ``count`` reports for the answer at ``index``.

        For each report, a random event first decides whether it is in the answer's set C_x of likely reports.
        Candidates are then drawn uniformly until one agrees with this decision. They are drawn from the answer's block
        if the report must be in C_x, and from all reports otherwise.
        """
        order, output_count = self.order, self.count_outputs()
        set_probability, block = order // 2 * self.parameter / self.denominator, index // (order - 1)
        reports = []
        for _ in range(count):
            is_in_set = draw_event(set_probability)
            while True:
                report = block * order + draw_below(order) if is_in_set else draw_below(output_count)
                if (find_sign(index, report, order) > 0) == is_in_set:
                    break
            reports.append(str(report))
        return reports

    def expected_loss(self) -> float:
        """Return the variance of the estimated share of a rare answer, multiplied by the number of reports."""
        return float(compute_loss(self.size, self.blocks, self.parameter))


class HadamardResponse(LocalMechanism[Question]):
    """A mechanism that reports the index of a Hadamard matrix column, using about log2 k bits for k answers."""

    problem_class = Question
    release_class = HadamardLaw
    loss_unit = "variance of a share, times reports"
    kit = "privopt_classics.kit:QUESTIONS"
