"""Randomised response over ranked answers: any two answers differ by a factor of at most exp(epsilon)."""

from fractions import Fraction
from typing import Literal

import numpy as np
from attrs import define

from privopt.declare import key, non_negative, positive
from privopt.dsl import Eq, Index, IndexSet, Model, total
from privopt_metric_dp.matrix.privacy import MetricDP, add_reversed_pairs
from privopt_metric_dp.mechanisms.answer import Matrix
from privopt_metric_dp.mechanisms.base import MetricMechanism
from privopt_metric_dp.problem.data import MetricData, MetricInstance
from privopt_metric_dp.space.distance_table import MatrixMetric
from privopt_metric_dp.space.places import Space


def _enough(ranks):
    """Return None for two or more different answers, and otherwise the text of what is expected."""
    return None if len(set(ranks)) == len(ranks) >= 2 else "two or more different answers, the lowest first"


@define(kw_only=True)
class Attribute:
    """The table [attribute]."""

    ranks: tuple[str, ...] = key(help="the answers, the lowest first", check=_enough)
    loss: Literal["steps", "squared"] = key("steps", help="of an error of s ranks: s, or s squared")
    tilt: float = key(0.0, help="answers are likely as exp(-tilt * rank); public", check=non_negative)


@define(kw_only=True)
class Privacy:
    """The table [privacy]."""

    epsilon: Fraction = key(help="privacy budget", unit="per answer", check=positive)


@define(kw_only=True)
class RankedProblem:
    """A question with ranked answers."""

    attribute: Attribute = key(help="what is asked")
    privacy: Privacy = key(help="how much an answer may tell")


def data_of(problem):
    """Return a question as a metric problem, in which any two answers are at distance 1."""
    attribute = problem.attribute
    n = len(attribute.ranks)
    steps = np.abs(np.subtract.outer(np.arange(n), np.arange(n))).astype(float)
    likely = np.exp(-attribute.tilt * np.arange(n))
    answers = Space(ids=attribute.ranks, source="attribute.ranks")
    return MetricData(
        records=answers,
        outputs=answers,
        metric=MatrixMetric(1.0 - np.eye(n)),
        epsilon=problem.privacy.epsilon,
        within=None,
        unit="answer",
        loss_unit="ranks",
        prior=likely / likely.sum(),
        cost=steps if attribute.loss == "steps" else steps**2,
    )


class RankedResponse(MetricMechanism):
    """Least expected error in ranks under local differential privacy."""

    problem_class = RankedProblem
    kit = "ranked_response.kit:PROFILE"
    scope = (
        "For every two answers, whatever is sent is at most exp(epsilon) times as likely under one as under the other."
    )

    def load(self, declared, file):
        """Return the question, and its answers as a metric problem."""
        return MetricInstance(declared=declared, data=data_of(declared))

    def privacy(self, problem, method):
        """Return metric DP between any two answers, which are at distance 1."""
        return MetricDP(epsilon=problem.data.epsilon, unit="per answer", scope="all-pairs", statement=self.scope)

    def matrix(self, problem, context):
        """Return the optimum of the linear program, or Warner's closed form."""
        data = problem.data
        if context.method == "warner":
            z = np.where(np.eye(len(data.records)), np.exp(float(data.epsilon)), 1.0)
            return Matrix(z=z / z.sum(axis=1, keepdims=True), solver={"name": "closed form"})
        m = Model("ranked response")
        X = IndexSet("X", data.records.ids)
        i, j, k = Index("i", X), Index("j", X), Index("k", X)
        z, c, d = m.variable("z", X, X, lower=0), m.param("c", data.weighted), m.param("d", data.metric.between)
        m.minimize(total(c[i, k] * z[i, k], over=(i, k)))
        m.require("mass", Eq(total(z[i, k], over=k), 1), forall=i)
        pairs = add_reversed_pairs(data.needed[0])
        self.privacy(problem, context.method).emit(m, z=z, i=i, j=j, k=k, d=d, pairs=pairs)
        return Matrix.of(m.solve(context.solver, time_limit=context.remaining), data, context)
