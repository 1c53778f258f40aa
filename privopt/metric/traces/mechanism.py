"""Prediction as a mechanism: an optimal matrix for fresh reports, and a private test whether the last is still good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from attrs import evolve, frozen

from privopt.declare.schema import key, non_negative, positive
from privopt.errors import Fault, InputError
from privopt.interfaces import Outcome, Result, SolveContext
from privopt.metric.matrix import MatrixRelease
from privopt.metric.mechanism import Matrix, MetricMechanism
from privopt.metric.privacy import MatrixConstraint, MetricDP
from privopt.metric.problem import MetricInstance, MetricProblem
from privopt.metric.traces.notion import TraceDP, TraceRelease
from privopt.metric.traces.prediction import Prediction, Terms

if TYPE_CHECKING:
    from privopt.metric.data import MetricData

__all__ = ["Predictive", "PredictiveKeys", "PredictiveProblem"]

_PARTS = 8  # shares are few round numbers: no last bit of a distance shall decide


@frozen(kw_only=True)
class PredictiveKeys:
    """Options of predictive; every epsilon is per unit of distance, as ``privacy.epsilon``, that of a fresh report."""

    good_within: Fraction | None = key(
        None,
        help="distance up to which the last report is good; left out: 2 / epsilon + 3 / test_epsilon",
        unit="units of distance",
        check=non_negative,
    )
    threshold_epsilon: Fraction | None = key(
        None,
        help="of a segment's noisy threshold; left out: half of epsilon to all of it, by the map",
        unit="per unit",
        check=positive,
    )
    test_epsilon: Fraction | None = key(
        None,
        help="of the noise of each test; left out: half of epsilon to all of it, by the map",
        unit="per unit",
        check=positive,
    )
    total: Fraction | None = key(
        None,
        help="what a subject may spend in one table: no report comes after; left out: no limit",
        unit="per unit",
        check=positive,
    )


@frozen(kw_only=True)
class PredictiveProblem(MetricProblem):
    """A metric problem, and how traces are reported."""

    predictive: PredictiveKeys = key(factory=PredictiveKeys, help="options of predictive")

    def terms(self, data: MetricData) -> Terms:
        """The epsilons and the distance that the keys come to; data give what is left out (ADR 16)."""
        report, keys = Fraction(self.privacy.epsilon), self.predictive
        share = report * _share(report, data) if keys.test_epsilon is None or keys.threshold_epsilon is None else report
        test = keys.test_epsilon or share
        return Terms(
            report=report,
            threshold=keys.threshold_epsilon or share,
            test=test,
            good_within=2 / report + 3 / test if keys.good_within is None else keys.good_within,
            total=keys.total,
        )


def _share(report: Fraction, data: MetricData) -> Fraction:
    """Share of a report's epsilon that threshold and tests get: the least from 1/2 with good_within on the map's scale.

    That scale is how far one output for all is off, by the prior. A last report that is farther is worth nothing.
    """
    far = data.to_outputs if data.region is None else data.distance.to_outputs()
    known = np.isfinite(far)
    scale = float((data.prior @ np.where(known, far, far[known].max(initial=0.0))).min())
    scale *= 1.0 + 2.0**-30  # even numbers meet the limit exactly, on every machine
    eighths = (Fraction(n, _PARTS) for n in range(_PARTS // 2, _PARTS))
    return next((part for part in eighths if 2 + 3 / part <= report * Fraction(scale)), Fraction(1))


class Predictive(MetricMechanism[PredictiveProblem]):
    """Keep the last report while a private test says that it is good (PETS 2014, by the sparse vector technique)."""

    problem_class = PredictiveProblem
    release_class: ClassVar[type[TraceRelease]] = TraceRelease
    kit = "privopt.testing.baselines:PREDICTIVE"
    scope = (
        "epsilon-metric DP of each fresh report, between every two records at distance d. Of a subject's trace: for "
        "two traces of equal length the odds of all reports together change by at most exp of the sum, over segments, "
        "of (threshold_epsilon + 2 test_epsilon + epsilon) times the greatest distance between the two in that "
        "segment; with neighbours_within distances are those of chains of records, each so near the next, and with "
        "everywhere they are ways between positions, counted 2 mm longer. Holds against whoever sees all reports and "
        "which of them repeat the last, whatever else they know."
    )

    def load(self, declared: PredictiveProblem, file: str) -> MetricInstance[PredictiveProblem]:
        """The problem.

        Raises:
            InputError: every fault.
        """
        problem = super().load(declared, file)
        total, report = declared.predictive.total, Fraction(declared.privacy.epsilon)
        if total is not None and total < report:
            found, wanted = f"{float(total):g}", f"at least epsilon, {float(report):g}: one report"
            raise InputError([Fault(file, "predictive.total", found, wanted)])
        return problem

    def matrix(self, problem: MetricInstance[PredictiveProblem], context: SolveContext) -> Matrix:
        """The optimal matrix for fresh reports, by one of the structured solvers."""
        from privopt.metric.baselines.lp import solve_structured

        return solve_structured(problem.data, evolve(context, method="auto"))

    def solve(self, problem: MetricInstance[PredictiveProblem], context: SolveContext) -> Outcome[MatrixRelease]:
        """The matrix, and the test's numbers."""
        outcome = super().solve(problem, context)
        terms = problem.declared.terms(problem.data)
        with context.timed("build"):
            prediction = Prediction.of(problem.data, terms)
        return evolve(outcome, release=self.release_class.of(outcome.release, prediction=prediction, terms=terms))

    def privacy(self, problem: MetricInstance[PredictiveProblem], method: str) -> MatrixConstraint:
        """Metric DP of fresh reports and of traces."""
        asked, data = super().privacy(problem, method), problem.data
        return TraceDP.over(data, problem.declared.terms(data)) if isinstance(asked, MetricDP) else asked

    def meaning(
        self, problem: MetricInstance[PredictiveProblem], release: MatrixRelease, result: Result
    ) -> Sequence[str]:
        """Also: what a stay costs."""
        terms, unit = problem.declared.terms(problem.data), problem.data.unit
        afford = ""
        if terms.total is not None:
            moves = (terms.total - terms.report) // terms.segment
            afford = f"; a total of {float(terms.total):g} is enough for the first report and {moves:,} more"
        return [
            *super().meaning(problem, release, result),
            f"A stay costs {float(terms.segment):g} per {unit} however many reports it has, each fresh report alone "
            f"{float(terms.report):g}{afford}.",
        ]

    def details(
        self,
        problem: MetricInstance[PredictiveProblem],
        release: MatrixRelease,
        method: str,
        told: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        """The distance that counts as good, and the mean of the noise on either side of it."""
        terms = problem.declared.terms(problem.data)
        return {
            "prediction": {
                "good_within": float(terms.good_within),
                "threshold_noise": float(1 / terms.threshold),
                "test_noise": float(1 / terms.test),
                "unit": problem.data.unit,
            }
        }
