"""Base classes for mechanisms that publish one of several public choices, depending on their secret scores.

Report noisy max and permute-and-flip build on this module.
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
    """A problem file that lists public choices and names the file with their secret scores.

    One person can change each score by at most 1.
    """

    choices: tuple[str, ...] = key(help="the choices, public", check=check_names)
    scores: File = key(help="CSV: choice,score; whole numbers", secret=True)
    monotone: bool = key(False, help="whether one person moves all scores in the same direction, or not at all")
    privacy: Privacy = key(help="how much may leak")

    @property
    def rate(self) -> Fraction:
        """The rate parameter of the mechanism, per unit of score: epsilon for monotone scores, otherwise epsilon / 2.

        If scores are not monotone, one person may raise one score by 1 and lower another by 1, which changes their
        difference by 2.
        """
        return self.privacy.epsilon if self.monotone else self.privacy.epsilon / 2

    def read_scores(self) -> list[int]:
        """Read the scores from the score file, and return them in the order of ``choices``.

        Raises:
            InputError: The file is malformed, or does not contain each choice exactly once.
        """
        score_column = Column(name="score", whole=True, least=-_MAX_SCORE, most=_MAX_SCORE)
        table = read_table(self.scores, [Column(name="choice", kind="id"), score_column])
        scores_by_choice = dict(zip(table["choice"].tolist(), map(int, table["score"].tolist()), strict=True))
        if sorted(table["choice"].tolist()) != sorted(self.choices):
            raise InputError([Fault(self.scores.name, "column choice", "a different list", "each of the choices once")])
        # The order of the rows in the file is secret, so it must not affect the draw.
        return [scores_by_choice[choice] for choice in self.choices]


@frozen(kw_only=True)
class Winner(Release):
    """The published choice, together with the rate at which it was drawn.

    Attributes:
        choice: One of the public choices.
        rate: The mechanism's rate parameter, per unit of score. A larger rate favours high scores more strongly.
    """

    choice: str
    rate: Fraction

    def write(self, folder: Path) -> None:
        """Write the rate and the choice, which are both public, to the release folder."""
        (folder / _FILE).write_text(f"{self.rate}\n{self.choice}\n", "utf-8")

    @classmethod
    def read(cls, folder: Path, problem: Choices) -> Self:
        """Read the rate (first line) and the choice (second line) from the file in a release folder.

        Raises:
            InputError: The rate is not a positive rational number, or the choice is not among the problem's choices.
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
    """Pure DP for a choice drawn at a given rate: the actual epsilon is ``shift`` times the rate.

    The docstring of each mechanism's module contains the proof.

    Attributes:
        epsilon: The exact budget per person.
        shift: The largest change in the difference between two scores when one person's data changes. It is 1 for
            monotone scores, and 2 for all others.
    """

    epsilon: Fraction
    shift: int

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee stated for the release: pure DP per person."""
        words = "A person, who changes each score by at most 1, makes no choice more than exp(epsilon) times as likely."
        return Guarantee(kind=self.kind, epsilon=self.epsilon, unit="per person", scope="one person", statement=words)

    def measure(self, release: Winner) -> Certificate:
        """Certify in rational arithmetic that ``shift`` times the rate stated in the release is at most epsilon."""
        # The choice counts as one draw of noise with scale 1 / rate, added to a number that changes by at most `shift`.
        calls = [NoiseCall(scale=1 / release.rate, sensitivity=self.shift)]
        return certify_noise(self.guarantee, calls, rests_on="that the choice was drawn at that rate")


@frozen(kw_only=True)
class ChoiceCount(UtilityLoss[Winner]):
    """A placeholder loss: the number of published choices, which is always 1.

    The difference between the highest score and the score of the published choice would be more useful, but publishing
    it would reveal secret scores.
    """

    unit: str = "choices"

    def evaluate(self, release: Winner) -> float:
        """Return the number of published choices, 1."""
        return 1.0


class ChoiceMechanism(Mechanism[Choices, Winner]):
    """A mechanism that publishes one choice, drawn so that a choice with a higher score is more likely."""

    problem_class = Choices
    release_class = Winner

    @classmethod
    @abstractmethod
    def chances(cls, scores: Sequence[int], rate: Fraction) -> list[float]:
        """Return each choice's probability of being published. Tests compare draws with it."""

    @abstractmethod
    def choose(self, scores: Sequence[int], rate: Fraction, seed: int | None) -> tuple[int, Fraction]:
        """Draw a choice, and return its index and the rate at which it was drawn.

        Args:
            scores: The secret score of each choice.
            rate: The mechanism's rate parameter, per unit of score.
            seed: A seed for a reproducible draw, which is not private; None to use the operating system's entropy.
        """

    def privacy(self, problem: Choices, method: str) -> ChoiceNotion:
        """Return the constraint that the release must satisfy: pure DP with the problem's epsilon."""
        return ChoiceNotion(epsilon=problem.privacy.epsilon, shift=1 if problem.monotone else 2)

    def utility(self, problem: Choices, method: str) -> ChoiceCount:
        """Return the utility loss: the number of published choices, which is always 1."""
        return ChoiceCount()

    def solve(self, problem: Choices, context: SolveContext) -> Outcome[Winner]:
        """Read the secret scores, draw a choice, and return it with the rate at which it was drawn."""
        scores = problem.read_scores()
        index, rate = self.choose(scores, problem.rate, context.seed)
        # `truth` holds the scores, and how far the choice's score lies below the highest one. It is not published.
        return Outcome(
            release=Winner(choice=problem.choices[index], rate=rate),
            seeded=context.seed is not None,
            truth={"scores": scores, "missed": max(scores) - scores[index]},
        )
