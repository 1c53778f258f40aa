"""One-sided DP, which protects sensitive answers against the others, not the reverse: right, and with one fault each.

Doudalis, Kotsogiannis, Haney, Machanavajjhala and Mehrotra (2020). ``NOTION`` must be registered for a trial.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen
from hypothesis import strategies as st

from faults.drawn import Budget
from privopt.declare import at_least, key
from privopt.errors import Fault, InputError
from privopt.interfaces import Certificate, Channel, Guarantee, Mechanism, Outcome, Release, UtilityLoss
from privopt.interfaces.notions import BoundedOdds
from privopt.numbers import TOTAL, exp_fixed
from privopt.numbers.sampling import draw, make_source
from privopt.registry import Kind
from privopt.specs import KindSpec
from privopt.testing import GeneratedProblem, Profile, to_toml

NOTION = Kind(
    spec=KindSpec(role="notion", name="one-sided", target="faults.one_sided:OneSided", summary="one-sided DP"),
    plugin="faults",
    version="0",
)

BITS = 128
"""Binary digits behind the point to which exp(epsilon) is enclosed."""

SUPPRESSED = "suppressed"
"""What is reported in place of a sensitive answer."""


@frozen(kw_only=True)
class SensitiveProblem:
    """A question, whose first answers are sensitive."""

    answers: int = key(help="how many answers there are", check=at_least(2))
    sensitive: int = key(help="how many of them are sensitive, the first ones", check=at_least(1))
    privacy: Budget = key(help="how much may leak")


@frozen(kw_only=True)
class OneSided(BoundedOdds[Any]):
    """No report is more than exp(epsilon) times as likely for a sensitive answer as for any other answer."""

    kind: ClassVar[str] = "one-sided"
    odds: ClassVar[bool] = True
    symmetric: ClassVar[bool] = False
    epsilon: Fraction
    sensitive: int

    @property
    def guarantee(self) -> Guarantee:
        words = "No report is more than exp(epsilon) times as likely for a sensitive answer as for another."
        return Guarantee(kind=self.kind, epsilon=self.epsilon, unit="per answer", scope="sensitive", statement=words)

    def pairs(self, count: int) -> Iterator[tuple[int, int]]:
        return ((i, j) for i in range(self.sensitive) for j in range(count) if i != j)

    def measure(self, release: Any) -> Certificate:
        rows = [[int(weight) for weight in row] for row in release.weights]
        max_ratio = exp_fixed(min(self.epsilon, Fraction(45)), BITS)[0]
        pairs = list(self.pairs(len(rows)))
        holds = all(sum(row) == TOTAL for row in rows) and all(
            first << BITS <= max_ratio * second
            for i, j in pairs
            for first, second in zip(rows[i], rows[j], strict=True)
        )
        return Certificate(
            holds=holds,
            evidence="proved",
            kind=self.kind,
            worst=float(self.epsilon) if holds else math.inf,
            allowed=float(self.epsilon),
            checked=len(pairs) * len(rows[0]),
            arithmetic="whole numbers, exp enclosed to 128 binary digits",
        )


@frozen(kw_only=True, eq=False)
class SensitiveRelease(Release):
    """How likely each report is, by the true answer."""

    weights: Any = field(converter=lambda rows: np.array(rows, dtype=np.uint64))

    @property
    def records(self) -> list[str]:
        return [str(n) for n in range(len(self.weights))]

    @property
    def outputs(self) -> list[str]:
        return [*self.records, SUPPRESSED]

    def write(self, folder: Path) -> None:
        (folder / "answers.json").write_text(json.dumps(self.weights.tolist()), "utf-8")

    @classmethod
    def read(cls, folder: Path, problem: Any) -> Release:
        try:
            return cls(weights=json.loads((folder / "answers.json").read_text("utf-8")))
        except (ValueError, OverflowError):
            raise InputError([Fault("answers.json", "", "no rows of weights", "rows of weights")]) from None

    def sample(self, input_id: str, count: int) -> list[str]:
        return [self.outputs[n] for n in draw(self.weights[int(input_id)], count).tolist()]

    def channel(self) -> Channel:
        return Channel(inputs=self.records, outputs=self.outputs, probabilities=self.weights / float(TOTAL))


@frozen(kw_only=True)
class AnswersSuppressed(UtilityLoss[Any]):
    """Share of answers that are not reported."""

    unit: str = "share"

    def evaluate(self, release: Any) -> float:
        return 1.0 - float(np.diag(release.weights).astype(float).mean()) / TOTAL


class RightSuppression(Mechanism[Any, Any]):
    """Suppresses every sensitive answer, and any other with probability exp(-epsilon)."""

    problem_class = SensitiveProblem
    release_class: Any = SensitiveRelease
    kit = "faults.one_sided:SENSITIVE"
    factor = 1.0

    def check_problem(self, problem: Any, method: str) -> None:
        if problem.sensitive > problem.answers:
            raise InputError([Fault("problem.toml", "sensitive", str(problem.sensitive), "at most all answers")])

    def privacy(self, problem: Any, method: str) -> OneSided:
        return OneSided(epsilon=problem.privacy.epsilon, sensitive=problem.sensitive)

    def utility(self, problem: Any, method: str) -> UtilityLoss[Any]:
        return AnswersSuppressed()

    def is_hidden(self, problem: Any, answer: int) -> bool:
        return bool(answer < problem.sensitive)

    def rows(self, problem: Any) -> Any:
        # Rounded up, because the suppressed share of the other answers must not be too small.
        share = math.exp(-self.factor * float(problem.privacy.epsilon)) * (1 + 1e-12)
        suppressed = min(TOTAL, int(share * TOTAL) + 1)
        rows = np.zeros((problem.answers, problem.answers + 1), dtype=np.uint64)
        for answer in range(problem.answers):
            rows[answer, -1] = TOTAL if self.is_hidden(problem, answer) else suppressed
            rows[answer, answer] += np.uint64(TOTAL) - rows[answer, -1]
        return rows

    def solve(self, problem: Any, context: Any) -> Outcome[Any]:
        return Outcome(release=self.release_class(weights=self.rows(problem)))

    def verify(self, problem: Any, release: Any, result: Any) -> list[str]:
        return [] if len(release.weights) == problem.answers else ["answers.json: other answers"]


@frozen(kw_only=True)
class _Believes(OneSided):
    def measure(self, release: Any) -> Certificate:
        return evolve(super().measure(release), holds=True, worst=float(self.epsilon))


class _Unmeasured(RightSuppression):
    """Believes that its rows are right."""

    def privacy(self, problem: Any, method: str) -> OneSided:
        return _Believes(epsilon=problem.privacy.epsilon, sensitive=problem.sensitive)


class HidesTheOthers(_Unmeasured):
    """Rows and certificate the wrong way round: a report that is no suppression tells that the answer is sensitive."""

    def is_hidden(self, problem: Any, answer: int) -> bool:
        return not super().is_hidden(problem, answer)


class SuppressesTooSeldom(_Unmeasured):
    """Suppresses other answers with probability exp(-2 epsilon)."""

    factor = 2.0


class HonestTwice(RightSuppression):
    """The same fault, measured honestly."""

    factor = 2.0


@frozen(kw_only=True, eq=False)
class _SeededSensitive(SensitiveRelease):
    def sample(self, input_id: str, count: int) -> list[str]:
        return [self.outputs[n] for n in draw(self.weights[int(input_id)], count, source=make_source(3)).tolist()]


class SeedBehindAPointMass(RightSuppression):
    """Draws from a fixed seed, which sensitive answers do not show: they are suppressed with certainty."""

    release_class = _SeededSensitive


@frozen(kw_only=True, eq=False)
class _TaggedSensitive(SensitiveRelease):
    def sample(self, input_id: str, count: int) -> list[str]:
        return [report + " " * (int(input_id) % 2) for report in super().sample(input_id, count)]


class BlankTells(RightSuppression):
    """A trailing blank tells whether the answer's number is odd."""

    release_class = _TaggedSensitive


def sensitive_problem(answers: int, sensitive: int, epsilon: str) -> GeneratedProblem:
    tables = {"answers": answers, "sensitive": min(sensitive, answers), "privacy": {"epsilon": Decimal(epsilon)}}
    return GeneratedProblem(toml=to_toml(tables))


def protected_pairs(problem: Any) -> Iterator[tuple[str, str, float]]:
    """Yield each sensitive answer with every other answer, of which it must not be distinguishable."""
    for first in range(problem.sensitive):
        yield from ((str(first), str(second), 1.0) for second in range(problem.answers) if first != second)


SENSITIVE = Profile(
    problems=st.builds(
        sensitive_problem, st.integers(2, 4), st.integers(1, 2), st.sampled_from(["1.0", "0.5", "3.0", "40.0"])
    ),
    alike=protected_pairs,
    stricter=lambda problem: problem.with_key("privacy.epsilon", Decimal(problem.get("privacy.epsilon")) / 2),
)
