"""Policies: how far apart two answers are, in steps that each cost epsilon."""

from abc import ABC, abstractmethod
from typing import ClassVar

from attrs import frozen

from privopt.declare import key
from privopt.errors import Fault, InputError


@frozen(kw_only=True)
class Policy(ABC):
    """The table ``[policy]`` of one kind; register another with a KindSpec of role ``"policy"``.

    Attributes:
        kind: Its name in problem files.
    """

    kind: ClassVar[str]

    @classmethod
    def keys(cls):
        """Return the class whose fields are the keys of its table: the kind itself."""
        return cls

    @abstractmethod
    def distances(self, answers, file):
        """Return the steps between every two answers.

        Args:
            answers: The n answers.
            file: Name of the problem file, for faults.

        Returns:
            n rows of n whole numbers that are 0 from an answer to itself, symmetric, and satisfy the triangle
            inequality; None for two answers that need not be alike.

        Raises:
            InputError: The policy does not fit the answers.
        """


@frozen(kw_only=True)
class Steps(Policy):
    """Answers in their order, each one step from the next."""

    kind: ClassVar[str] = "steps"

    def distances(self, answers, file):
        """Return the differences of positions in the list."""
        places = range(len(answers))
        return [[abs(i - k) for k in places] for i in places]


@frozen(kw_only=True)
class Blocks(Policy):
    """Answers of one block are a step apart; the block may be revealed."""

    kind: ClassVar[str] = "blocks"
    blocks: tuple[tuple[str, ...], ...] = key(help="lists of answers; each answer stands in one")

    def distances(self, answers, file):
        """Return 1 for two answers of a block, and None for answers of two blocks."""
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
