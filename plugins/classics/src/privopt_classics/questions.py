"""The problem file for mechanisms that randomise the answer to a question, and the base class for their laws.

The possible answers are public. A law is the probability distribution of reports for each answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from attrs import frozen

from privopt.declare import key
from privopt_classics.laws import Privacy, ReportLaw, check_names

__all__ = ["AnswerLaw", "Question", "share_variance"]


@frozen(kw_only=True)
class Question:
    """A problem file for a single question with a fixed list of possible answers.

    The list of answers is public, but each person's own answer is secret.
    """

    answers: tuple[str, ...] = key(help="the answers, public", check=check_names)
    privacy: Privacy = key(help="how much may leak")


@frozen(kw_only=True)
class AnswerLaw(ReportLaw):
    """The distribution of reports for each possible answer to a question."""

    problem: Question

    @property
    def records(self) -> Sequence[str]:
        """The possible secrets: the answers to the question."""
        return self.problem.answers

    @property
    def size(self) -> int:
        """The number k of answers."""
        return len(self.problem.answers)


def share_variance(support: Fraction, background: Fraction) -> float:
    """Return the variance of the estimated share of a rare answer, multiplied by the number of reports.

    This is q (1 - q) / (p - q)**2 (Wang, Blocki, Li and Jha 2017, section 3, for an answer that nobody gives).

    Args:
        support: The probability p that a report supports the sender's true answer.
        background: The probability q that a report supports any particular answer other than the true one.
    """
    return float(background * (1 - background) / (support - background) ** 2)
