"""Local DP by a matrix: randomised response to a question, right and with one fault each; a hall of floors."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from attrs import field, frozen
from hypothesis import strategies as st

from faults.drawn import Budget
from faults.matrix import RightMatrix
from privopt.declare import at_least, key
from privopt.errors import Fault, InputError
from privopt.interfaces import Certificate, Guarantee, Mechanism, Outcome, Release, UtilityLoss
from privopt.interfaces.notions import LocalDP
from privopt.numbers import TOTAL
from privopt.numbers.sampling import draw
from privopt.testing import GeneratedProblem, Profile, to_toml
from privopt_metric_dp.kit import metric_profile
from privopt_metric_dp.matrix.certify import certify
from privopt_metric_dp.matrix.privacy import MetricDP
from privopt_metric_dp.problem.data import MetricData, MetricInstance
from privopt_metric_dp.space.distance_table import MatrixMetric
from privopt_metric_dp.space.places import Space


@frozen(kw_only=True)
class AnswerProblem:
    """A question with so many answers."""

    answers: int = key(help="how many answers there are", check=at_least(2))
    privacy: Budget = key(help="how much may leak")


@frozen(kw_only=True, eq=False)
class AnswerRelease(Release):
    """How likely each answer is reported, by the true one."""

    weights: Any = field(converter=lambda rows: np.array(rows, dtype=np.uint64))

    @property
    def records(self) -> list[str]:
        return [str(n) for n in range(len(self.weights))]

    outputs = records

    def write(self, folder: Path) -> None:
        (folder / "answers.json").write_text(json.dumps(self.weights.tolist()), "utf-8")

    @classmethod
    def read(cls, folder: Path, problem: Any) -> Release:
        try:
            return cls(weights=json.loads((folder / "answers.json").read_text("utf-8")))
        except (ValueError, OverflowError):
            raise InputError([Fault("answers.json", "", "no rows of weights", "rows of weights")]) from None

    def sample(self, input_id: str, count: int) -> list[str]:
        return [str(n) for n in draw(self.weights[int(input_id)], count).tolist()]


@frozen(kw_only=True)
class Response(LocalDP):
    """Every two answers alike, measured."""

    epsilon: Fraction

    @property
    def guarantee(self) -> Guarantee:
        words = "Whatever is reported is at most exp(epsilon) times as likely under one answer as under another."
        return Guarantee(kind="local-dp", epsilon=self.epsilon, unit="per answer", scope="one answer", statement=words)

    def measure(self, release: Any) -> Certificate:
        pairs = np.stack(np.triu_indices(len(release.weights), 1), axis=1)
        found = certify(release.weights, pairs, np.ones(len(pairs)), self.epsilon)
        return Certificate(
            holds=found.holds,
            evidence="proved",
            kind="local-dp",
            worst=found.worst,
            allowed=found.allowed,
            checked=found.checked,
            arithmetic=found.arithmetic,
        )


@frozen(kw_only=True)
class TrueAnswers(UtilityLoss):
    """Share of answers that are not the true one."""

    unit: str = "share"

    def evaluate(self, release: Any) -> float:
        return 1.0 - float(np.diag(release.weights).astype(float).mean()) / TOTAL


class RightAnswers(Mechanism):
    """Warner's randomised response for several answers."""

    problem_class = AnswerProblem
    release_class: Any = AnswerRelease
    kit = "faults.answers:ANSWERS"

    def privacy(self, problem: Any, method: str) -> Response:
        return Response(epsilon=problem.privacy.epsilon)

    def utility(self, problem: Any, method: str) -> UtilityLoss:
        return TrueAnswers()

    def rows(self, problem: Any, factor: float = 1.0) -> Any:
        count = problem.answers
        other = int(TOTAL / (math.exp(factor * float(problem.privacy.epsilon)) + count - 1) * (1 + 1e-12)) + 1
        rows = np.full((count, count), other, dtype=np.uint64)
        np.fill_diagonal(rows, TOTAL - (count - 1) * other)
        return rows

    def solve(self, problem: Any, context: Any) -> Outcome:
        return Outcome(release=self.release_class(weights=self.rows(problem)))

    def verify(self, problem: Any, release: Any, result: Any) -> list[str]:
        return [] if len(release.weights) == problem.answers else ["answers.json: other answers"]


def answer_problem(answers: int, epsilon: str) -> GeneratedProblem:
    return GeneratedProblem(toml=to_toml({"answers": answers, "privacy": {"epsilon": Decimal(epsilon)}}))


ANSWERS = Profile(
    problems=st.builds(answer_problem, st.integers(2, 5), st.sampled_from(["1.0", "0.5", "0.1", "2.0"])),
    stricter=lambda problem: problem.with_key("privacy.epsilon", Decimal(problem.get("privacy.epsilon")) / 2),
)

# --- data of its own ---------------------------------------------------------------------------------


@frozen(kw_only=True)
class FloorProblem:
    """A house with so many floors."""

    floors: int = key(help="how many floors there are", check=at_least(2))
    privacy: Budget = key(help="how much may leak")


class RightFloors(RightMatrix):
    """The optimal mechanism over floors, which are one apart, by data of its own."""

    problem_class = FloorProblem
    kit = "faults.answers:FLOORS"
    apart = 1.0

    def load(self, declared: Any, file: str) -> Any:
        count = declared.floors
        steps = np.abs(np.subtract.outer(np.arange(count), np.arange(count))).astype(float)
        floors = Space(ids=tuple(f"floor {n}" for n in range(count)), source="floors")
        data = MetricData(
            records=floors,
            outputs=floors,
            metric=MatrixMetric(self.apart * steps),
            epsilon=declared.privacy.epsilon,
            within=None,
            unit="floor",
            loss_unit="floors",
            prior=np.full(count, 1 / count),
            cost=steps,
        )
        return MetricInstance(declared=declared, data=data)

    def privacy(self, problem: Any, method: str) -> Any:
        return MetricDP.of(problem.data)


def floors_apart(problem: Any) -> Iterator[tuple[str, str, float]]:
    for one in range(problem.declared.floors):
        for two in range(one):
            yield f"floor {one}", f"floor {two}", float(one - two)


def floor_problem(floors: int, epsilon: str) -> GeneratedProblem:
    return GeneratedProblem(toml=to_toml({"floors": floors, "privacy": {"epsilon": Decimal(epsilon)}}))


FLOORS = metric_profile(
    problems=st.builds(floor_problem, st.integers(2, 4), st.sampled_from(["1.0", "0.5", "0.1"])),
    alike=floors_apart,
    variants={},
)
