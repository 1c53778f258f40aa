"""Policies: how far apart two answers are, in steps of which each costs epsilon."""

from abc import ABC, abstractmethod
from typing import ClassVar

from attrs import frozen

from privopt.declare import key
from privopt.errors import Fault, InputError


@frozen(kw_only=True)
class Policy(ABC):
    """The table ``[policy]`` of one kind; register another with a KindSpec of role ``"policy"``.

    Attributes:
        kind: its name in problem files.
    """

    kind: ClassVar[str]

    @classmethod
    def keys(cls):
        """Return the class of its table: itself."""
        return cls

    @abstractmethod
    def distances(self, answers, file):
        """Return the steps between every two answers.

        Args:
            answers: (n,) their names.
            file: name of the problem file, for faults.

        Returns:
            n rows of n whole numbers, 0 from an answer to itself, the same there and back, none more than the sum over
            a detour; None where nothing has to hide one from the other.

        Raises:
            InputError: the policy does not fit the answers.
        """


@frozen(kw_only=True)
class Steps(Policy):
    """Answers in their order, each a step from the next."""

    kind: ClassVar[str] = "steps"

    def distances(self, answers, file):
        """Return the difference of their places."""
        places = range(len(answers))
        return [[abs(i - k) for k in places] for i in places]


@frozen(kw_only=True)
class Blocks(Policy):
    """Answers of one block are a step apart; which block it is may be known."""

    kind: ClassVar[str] = "blocks"
    blocks: tuple[tuple[str, ...], ...] = key(help="lists of answers; each answer stands in one")

    def distances(self, answers, file):
        """Return 1 within a block, None between two."""
        policy_answers = [answer for block in self.blocks for answer in block]
        if sorted(policy_answers) != sorted(answers):
            raise InputError(
                [Fault(file, "policy.blocks", f"{len(policy_answers)} answers", "each of question.answers once")]
            )
        block_of = {answer: number for number, block in enumerate(self.blocks) for answer in block}
        return [
            [
                0 if row_answer == other_answer else 1 if block_of[row_answer] == block_of[other_answer] else None
                for other_answer in answers
            ]
            for row_answer in answers
        ]
