"""Base classes for mechanisms that publish one of several public choices, based on secret scores.

They are used by report noisy max and permute-and-flip.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final, Self

from attrs import frozen

from privopt.declare import File, key
from privopt.declare.tables import Column, read_table
from privopt.errors import Fault, InputError
from privopt.interfaces import Certificate, Guarantee, Mechanism, Outcome, Release, SolveContext, UtilityLoss
from privopt.interfaces.additive import NoiseCall, certify_noise
from privopt.interfaces.notions import PureDP
from privopt.numbers.noise import stated_scale
from privopt_classics.laws import Privacy, check_names

__all__ = ["ChoiceMechanism", "ChoiceNotion", "Choices", "Winner"]

_FILE: Final = "choice.txt"
_MAX_SCORE: Final = 1 << 40
"""The largest absolute value of a score."""


@frozen(kw_only=True)
class Choices:
    """A problem file that lists public choices and names a file with their secret scores.

    One person can change each score by at most 1.
    """

    choices: tuple[str, ...] = key(help="the choices, public", check=check_names)
    scores: File = key(help="CSV: choice,score; whole numbers", secret=True)
    monotone: bool = key(False, help="whether one person moves all scores in the same direction, or not at all")
    privacy: Privacy = key(help="how much may leak")

    @property
    def rate(self) -> Fraction:
        """The largest rate allowed for drawing a choice, per unit of score.

        A higher rate favours high scores more strongly. If scores are monotone, i.e. no person can raise one score and
        lower another, the rate is epsilon. Otherwise it is epsilon / 2, because one person may raise one score by 1 and
        lower another by 1, which changes their difference by 2.
        """
        return self.privacy.epsilon if self.monotone else self.privacy.epsilon / 2

    def read_scores(self) -> list[int]:
        """Read the score file and return the scores in the order of ``choices``.

        Raises:
            InputError: The file is malformed, or does not list each choice exactly once.
        """
        score_column = Column(name="score", whole=True, least=-_MAX_SCORE, most=_MAX_SCORE)
        table = read_table(self.scores, [Column(name="choice", kind="id"), score_column])
        scores_by_choice = dict(zip(table["choice"].tolist(), map(int, table["score"].tolist()), strict=True))
        if sorted(table["choice"].tolist()) != sorted(self.choices):
            raise InputError([Fault(self.scores.name, "column choice", "a different list", "each of the choices once")])
        # The order of the file's rows is secret as well, so it must not affect the draw.
        return [scores_by_choice[choice] for choice in self.choices]


@frozen(kw_only=True)
class Winner(Release):
    """The published choice, with the rate at which it was drawn.

    Attributes:
        choice: One of the public choices.
        rate: The mechanism's rate per unit of score. The larger it is, the more strongly high scores are favoured.
    """

    choice: str
    rate: Fraction

    def write(self, folder: Path) -> None:
        """Write the rate and the choice to the release folder. Both are public."""
        (folder / _FILE).write_text(f"{self.rate}\n{self.choice}\n", "utf-8")

    @classmethod
    def read(cls, folder: Path, problem: Choices) -> Self:
        """Read the rate and the choice from the first two lines of the file in a release folder.

        Raises:
            InputError: The rate is not a positive rational number, or the choice is not one of the problem's choices.
        """
        rate, _, choice = (folder / _FILE).read_text("utf-8").removesuffix("\n").partition("\n")
        if choice not in problem.choices:
            raise InputError([Fault(_FILE, "", repr(choice[:20]), "one of the choices")])
        try:
            return cls(choice=choice, rate=stated_scale(rate))
        except ValueError:
            raise InputError([Fault(_FILE, "", repr(rate[:20]), "a positive rational number")]) from None


@frozen(kw_only=True)
class ChoiceNotion(PureDP[Winner]):
    """The requirement that publishing a choice satisfies pure DP with a given epsilon.

    A choice drawn at a given rate per unit of score satisfies pure DP with an epsilon of ``shift`` times the rate. The
    proof is in the docstring of each mechanism's module.

    Attributes:
        epsilon: The exact budget per person.
        shift: The largest amount by which one person can change the difference between two scores. It is 1 if scores
            are monotone, and 2 otherwise.
    """

    epsilon: Fraction
    shift: int

    @property
    def guarantee(self) -> Guarantee:
        """The claimed guarantee: pure DP per person."""
        words = "A person, who changes each score by at most 1, makes no choice more than exp(epsilon) times as likely."
        return Guarantee(kind=self.kind, epsilon=self.epsilon, unit="per person", scope="one person", statement=words)

    def measure(self, release: Winner) -> Certificate:
        """Check in rational arithmetic whether ``shift`` times the rate stated in the release is at most epsilon."""
        # A choice drawn at some rate has the same epsilon as noise of scale 1 / rate on a number with sensitivity
        # `shift`.
        calls = [NoiseCall(scale=1 / release.rate, sensitivity=self.shift)]
        return certify_noise(self.guarantee, calls, rests_on="that the choice was drawn at that rate")


@frozen(kw_only=True)
class ChoiceCount(UtilityLoss[Winner]):
    """A placeholder utility loss that counts the published choices and is therefore always 1.

    The gap between the highest score and the published choice's score would be more informative, but publishing it
    would reveal information about the secret scores.
    """

    unit: str = "choices"

    def evaluate(self, release: Winner) -> float:
        """Return 1, the number of published choices."""
        return 1.0


class ChoiceMechanism(Mechanism[Choices, Winner]):
    """A mechanism that publishes one choice, drawn at random with a preference for high scores."""

    problem_class = Choices
    release_class = Winner

    @classmethod
    @abstractmethod
    def chances(cls, scores: Sequence[int], rate: Fraction) -> list[float]:
        """Return each choice's probability of being published.

        Tests compare actual draws with these probabilities.
        """

    @abstractmethod
    def choose(self, scores: Sequence[int], rate: Fraction, seed: int | None) -> tuple[int, Fraction]:
        """Draw a choice, and return its index and the rate at which it was drawn.

        Args:
            scores: The secret score of each choice.
            rate: The mechanism's rate per unit of score.
            seed: A seed that makes the draw reproducible but not private, or None to use the operating system's
                entropy.
        """

    def privacy(self, problem: Choices, method: str) -> ChoiceNotion:
        """Return the privacy constraint on the release: pure DP with the problem's epsilon."""
        return ChoiceNotion(epsilon=problem.privacy.epsilon, shift=1 if problem.monotone else 2)

    def utility(self, problem: Choices, method: str) -> ChoiceCount:
        """Return the placeholder loss, the number of published choices."""
        return ChoiceCount()

    def solve(self, problem: Choices, context: SolveContext) -> Outcome[Winner]:
        """Draw a choice based on the secret scores, and return it with the rate at which it was drawn."""
        scores = problem.read_scores()
        index, rate = self.choose(scores, problem.rate, context.seed)
        # `truth` is kept for evaluation and never published. "missed" is how far the choice's score falls short of the
        # highest.
        return Outcome(
            release=Winner(choice=problem.choices[index], rate=rate),
            seeded=context.seed is not None,
            truth={"scores": scores, "missed": max(scores) - scores[index]},
        )
