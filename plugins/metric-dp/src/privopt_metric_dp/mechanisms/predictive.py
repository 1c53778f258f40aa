"""The ``predictive`` mechanism for traces: an optimal matrix combined with a private test for repeating reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar

from privopt.errors import Fault, InputError, number_of
from privopt.interfaces import Result, SolveContext
from privopt_metric_dp.matrix.privacy import MatrixConstraint, MetricDP
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.mechanisms.base import MetricMechanism
from privopt_metric_dp.mechanisms.certifier import MatrixOffers
from privopt_metric_dp.mechanisms.predictive_problem import PredictiveProblem
from privopt_metric_dp.mechanisms.trace_dp import TraceDP, TraceRelease
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.traces.prediction import Prediction

__all__ = ["Predictive"]


class Predictive(MetricMechanism[PredictiveProblem]):
    """A mechanism that repeats its last report until a private test finds it too far away, and then draws a new one.

    The mechanism follows Chatzikokolakis et al. (PETS 2014), but tests reports with the sparse vector technique. The
    epsilon of a fresh report therefore does not depend on how many tests precede it.
    """

    problem_class = PredictiveProblem
    falls_back = True
    release_class: ClassVar[type[TraceRelease]] = TraceRelease
    kit = "privopt_metric_dp.kit.profiles:PREDICTIVE"
    scope = (
        "epsilon-metric DP of each fresh report, between every two records at distance d. Of a subject's trace: for "
        "two traces of equal length the odds of all reports together change by at most exp of the sum, over segments, "
        "of (threshold_epsilon + 2 test_epsilon + epsilon) times the greatest distance between the two in that "
        "segment; with neighbours_within distances are those of chains of records, each so near the next, and with "
        "everywhere they are ways between positions, counted 2 mm longer. Holds against whoever sees all reports and "
        "which of them repeat the last, whatever else they know."
    )

    def load(self, declared: PredictiveProblem, file: str) -> MetricInstance[PredictiveProblem]:
        """Load the problem, and check that the total budget covers at least one report.

        Raises:
            InputError: The files contain errors, or the total budget is smaller than epsilon.
        """
        problem = super().load(declared, file)
        total, report = declared.predictive.total, Fraction(declared.privacy.epsilon)
        if total is not None and total < report:
            actual, expectation = f"{float(total):g}", f"at least epsilon, {float(report):g} (one report)"
            raise InputError([Fault(file, "predictive.total", actual, expectation)])
        return problem

    def search(
        self, problem: MetricInstance[PredictiveProblem], incumbent: MatrixOffers, context: SolveContext
    ) -> None:
        """Run the structured solvers, which offer matrices for fresh reports as well as lower bounds."""
        from privopt_metric_dp.mechanisms.optimal_lp import search_structured

        search_structured(problem.data, incumbent, context)

    def release_of(self, release: MatrixRelease, problem: MetricInstance[PredictiveProblem]) -> MatrixRelease:
        """Return the certified matrix for fresh reports, with the parameters of the test for repeating reports."""
        terms = problem.declared.terms(problem.data)
        prediction = Prediction.of(problem.data, terms)
        return self.release_class.of(release, prediction=prediction, terms=terms)

    def privacy(self, problem: MetricInstance[PredictiveProblem], method: str) -> MatrixConstraint:
        """Return the privacy notion of the problem, extended to whole traces if it is metric DP."""
        constraint, data = super().privacy(problem, method), problem.data
        return TraceDP.over(data, problem.declared.terms(data)) if isinstance(constraint, MetricDP) else constraint

    def meaning(
        self, problem: MetricInstance[PredictiveProblem], release: MatrixRelease, result: Result
    ) -> Sequence[str]:
        """Return the base class's sentences, followed by one that states the epsilon of each fresh report.

        The epsilon of the first report differs from the epsilon of later reports. If there is a total budget, another
        sentence states how many reports it covers.
        """
        terms, unit = problem.declared.terms(problem.data), problem.data.unit
        afford = ""
        if terms.total is not None:
            # The first report is not preceded by a test, so it costs only its own epsilon. Every later fresh report
            # ends a segment of repeated reports, and the whole segment is charged for.
            moves = (terms.total - terms.report) // terms.segment
            afford = f" A budget of {float(terms.total):g} covers the first report and {number_of(moves, 'move')}."
        return [
            *super().meaning(problem, release, result),
            f"The first report costs {float(terms.report):g} per {unit}, each move {float(terms.segment):g}.{afford}",
        ]

    def details(
        self,
        problem: MetricInstance[PredictiveProblem],
        release: MatrixRelease,
        method: str,
        recorded: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        """Return the parameters of the test that decides whether to repeat the previous report, for result.json.

        These are the largest distance at which the previous report counts as good, and the approximate mean absolute
        noise added to the threshold and in each test. Each mean is 1 divided by the respective epsilon. All three
        values are in the same unit as distances and depend only on the problem.
        """
        terms = problem.declared.terms(problem.data)
        return {
            "prediction": {
                "good_within": float(terms.good_within),
                "threshold_noise": float(1 / terms.threshold),
                "test_noise": float(1 / terms.test),
                "unit": problem.data.unit,
            }
        }
