"""Subset selection (Ye and Barg 2018): a set of w of k answers, which has the true one more often than by chance."""

from fractions import Fraction
from itertools import combinations

import numpy as np
from attrs import frozen
from hypothesis import strategies as st

from privopt.declare import at_least, key, positive
from privopt.specs import MechanismSpec, MethodSpec, hookimpl
from privopt.testing import GeneratedProblem
from privopt_metric_dp.kit import metric_profile
from privopt_metric_dp.matrix.privacy import MetricDP
from privopt_metric_dp.mechanisms.answer import Matrix
from privopt_metric_dp.mechanisms.base import MetricMechanism
from privopt_metric_dp.problem.data import MetricData, MetricInstance
from privopt_metric_dp.space.distance_table import MatrixMetric
from privopt_metric_dp.space.places import Space


@hookimpl
def privopt_mechanisms():
    ways, target = [MethodSpec(name="closed-form", summary="the paper's")], "subset_selection:Subsets"
    summary = "sets of answers"
    return [MechanismSpec(name="answer-subsets", target=target, guarantee="metric-dp", summary=summary, methods=ways)]


@frozen(kw_only=True)
class Question:
    answers: int = key(help="how many answers there are", check=at_least(2))
    epsilon: Fraction = key(help="privacy budget", unit="per answer", check=positive)


class Subsets(MetricMechanism):
    problem_class, kit = Question, "subset_selection:PROFILE"

    def load(self, declared, file):
        k = declared.answers
        w = max(1, round(k / (1 + np.exp(float(declared.epsilon)))))
        sets = list(combinations(range(k), w))
        hold = np.array([[x in chosen for chosen in sets] for x in range(k)])
        data = MetricData(
            records=Space(ids=tuple(map(str, range(k))), source="answers"),
            outputs=Space(ids=tuple(" ".join(map(str, chosen)) for chosen in sets), source="answers"),
            metric=MatrixMetric(1.0 - np.eye(k), 1.0 - hold),
            epsilon=declared.epsilon,
            within=None,
            unit="answer",
            loss_unit="answers missed",
            prior=np.full(k, 1 / k),
            cost=1.0 - hold,
        )
        return MetricInstance(declared=declared, data=data)

    def privacy(self, problem, method):
        words = "Whatever set is sent is at most exp(epsilon) times as likely under one answer as under another."
        return MetricDP(epsilon=problem.data.epsilon, unit="per answer", scope="all-pairs", statement=words)

    def matrix(self, problem, context):
        z = np.where(problem.data.cost == 0, np.exp(float(problem.data.epsilon)), 1.0)
        return Matrix(z=z / z.sum(axis=1, keepdims=True), solver={"name": "closed form"})


def alike(problem):
    return ((str(first), str(second), 1.0) for first, second in combinations(range(problem.declared.answers), 2))


PROFILE = metric_profile(
    problems=st.builds(
        lambda k, epsilon: GeneratedProblem(toml=f"answers = {k}\nepsilon = {epsilon}\n"),
        st.integers(2, 5),
        st.sampled_from(["1.0", "0.5"]),
    ),
    alike=alike,
    epsilon=lambda problem: problem.data.epsilon,
    variants={},
    monotone="never",
)
