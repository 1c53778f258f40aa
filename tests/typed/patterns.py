"""Patterns of docs/tutorials/write-a-plugin.md, with types. ``mypy --strict`` accepts them (test_typed.py)."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.declare import at_least, key, positive
from privopt.interfaces import SolveContext
from privopt.testing import GeneratedProblem, check_kind
from privopt_metric_dp.kit.problems import metric_profile
from privopt_metric_dp.matrix.privacy import MetricDP
from privopt_metric_dp.mechanisms.answer import Matrix
from privopt_metric_dp.mechanisms.base import MetricMechanism
from privopt_metric_dp.problem.data import MetricData, MetricInstance
from privopt_metric_dp.problem.declared import LossKind, MetricProblem, Spaces
from privopt_metric_dp.space.distance_table import MatrixMetric
from privopt_metric_dp.space.places import Space


@frozen(kw_only=True)
class StaircaseOptions:
    """The table [staircase]."""

    step: float = key(0.5, help="width of a step", unit="units of distance", check=positive)


@frozen(kw_only=True)
class StaircaseProblem(MetricProblem):
    """A metric problem and the width of a step."""

    options: StaircaseOptions = key(StaircaseOptions(), help="options of staircase", name="staircase")


class Staircase(MetricMechanism[StaircaseProblem]):
    """A subclass of the metric problem, with keys of its own."""

    problem_class = StaircaseProblem

    def matrix(self, problem: MetricInstance[StaircaseProblem], context: SolveContext) -> Matrix:
        """Read the keys from ``declared``."""
        step = problem.declared.options.step
        steps = np.ceil(problem.data.to_outputs / step) * step
        z = np.exp(-float(problem.data.epsilon) * steps / 2)
        return Matrix(z=z / z.sum(axis=1, keepdims=True), solver={"name": "closed form"})


@frozen(kw_only=True)
class Question:
    """A problem class that is no metric problem."""

    answers: int = key(help="how many answers there are", check=at_least(2))
    epsilon: Fraction = key(help="privacy budget", unit="per answer", check=positive)


class Answered(MetricMechanism[Question]):
    """A problem class of its own, whose data ``load`` makes."""

    problem_class = Question

    def load(self, problem: Question, file: str) -> MetricInstance[Question]:
        """Every two answers are at distance 1."""
        k = problem.answers
        answers = Space(ids=tuple(map(str, range(k))), source="answers")
        data = MetricData(
            records=answers,
            outputs=answers,
            metric=MatrixMetric(1.0 - np.eye(k)),
            epsilon=problem.epsilon,
            within=None,
            unit="answer",
            loss_unit="answers missed",
            prior=np.full(k, 1 / k),
            cost=1.0 - np.eye(k),
        )
        return MetricInstance(declared=problem, data=data)

    def privacy(self, problem: MetricInstance[Question], method: str) -> MetricDP:
        """Local DP of the answer."""
        words = "Whatever is sent is at most exp(epsilon) times as likely under one answer as under another."
        return MetricDP(epsilon=problem.declared.epsilon, unit="per answer", scope="all-pairs", statement=words)

    def matrix(self, problem: MetricInstance[Question], context: SolveContext) -> Matrix:
        """Warner's."""
        z = np.where(problem.data.cost == 0, np.exp(float(problem.data.epsilon)), 1.0)
        return Matrix(z=z / z.sum(axis=1, keepdims=True), solver={"name": "closed form"})


@frozen(kw_only=True)
class SquaredDistance(LossKind):
    """A loss of its own."""

    kind: ClassVar[str] = "squared-distance"

    def cost(self, spaces: Spaces) -> NDArray[np.float64]:
        """(N, K)."""
        return np.square(spaces.metric.to_outputs())

    def unit(self, distance: str) -> str:
        """For example km^2."""
        return f"{distance}^2"


PROBLEM = GeneratedProblem(toml="answers = 2\nepsilon = 1.0\n", files={"a.txt": b"a"}, secrets=[b"a"])
PROFILE = metric_profile(epsilon=lambda problem: problem.data.epsilon)
FOUND = [result.status for result in check_kind("loss", "squared-distance", how="dev")]
