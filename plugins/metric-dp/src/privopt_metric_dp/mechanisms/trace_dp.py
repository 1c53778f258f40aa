"""Metric DP over traces: the guarantee of a sequence of kept and renewed reports."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from attrs import evolve, frozen

from privopt.declare.exact_text import exact_text
from privopt.interfaces import AGAIN, Certificate, Result
from privopt_metric_dp.matrix.privacy import MetricDP
from privopt_metric_dp.matrix.release import ARTEFACT as MATRIX
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.mechanisms.predictive_problem import PredictiveProblem
from privopt_metric_dp.problem.data import MetricData, MetricInstance
from privopt_metric_dp.traces.draw_trace import Walker
from privopt_metric_dp.traces.interpolate import SLACK_STEPS, STEP_MM
from privopt_metric_dp.traces.prediction import ARTEFACT, Prediction, Terms

__all__ = ["TraceDP", "TraceRelease"]

_STATEMENT = (
    "Of one fresh report: {one} Of a subject's trace: for two traces of equal length, x_t and x'_t, whose rows are at "
    "the same times, the odds of all its reports together change by at most exp({first:g} d(x_1, x'_1)) for the first "
    "report, times exp({segment:g} max_t d(x_t, x'_t)) over each segment that ends in a fresh report, times "
    "exp({threshold:g} max_t d(x_t, x'_t)) over one that has not ended."
)
_CHAINS = (
    " Distances are those of chains of records, each within {within:g} of the next: of two that are as near their own; "
    "between records that no such chain joins nothing is promised."
)
_READ = (
    " The distance between two positions that differ counts {more:g} mm more than it is, for tests go by whole "
    "millimetres."
)


@frozen(kw_only=True, eq=False)
class TraceRelease(MatrixRelease):
    """An obfuscation matrix for fresh reports, and the numbers of the test whether the last one is still good.

    Attributes:
        prediction: those numbers, which tests are drawn from as they are certified.
        terms: what it costs; None where the problem was not read.
    """

    prediction: Prediction
    terms: Terms | None = None
    walks: ClassVar[type[Walker]] = Walker

    def write(self, folder: Path) -> None:
        """Write mechanism.npz and prediction.npz."""
        super().write(folder)
        self.prediction.write(folder)

    @classmethod
    def read(cls, folder: Path, problem: MetricInstance[PredictiveProblem]) -> TraceRelease:
        """Read both.

        Raises:
            InputError: one is missing or not of its form.
        """
        fresh, prediction = MatrixRelease.load(folder / MATRIX), Prediction.read(folder)
        return cls.of(fresh, prediction=prediction, terms=problem.declared.terms(problem.data))

    @property
    def walker(self) -> Walker | None:
        """Draws reports of traces."""
        if self.terms is None:
            return None
        return self.walks(weights=self.weights, prediction=self.prediction, terms=self.terms)


@frozen(kw_only=True)
class TraceDP(MetricDP):
    """epsilon-metric DP of fresh reports, and of whole traces in proportion to what their segments cost.

    Proof: docs, Several reports, Prediction.

    Attributes:
        terms: epsilons of the parts.
    """

    kind: ClassVar[str] = "trace-dp"

    terms: Terms

    @classmethod
    def over(cls, data: MetricData, terms: Terms) -> Self:
        """Return the notion over a problem's required pairs."""
        fresh = MetricDP.of(data)
        parts = {"threshold": terms.threshold, "test": terms.test, "segment": terms.segment}
        texts = {name: exact_text(epsilon) for name, epsilon in parts.items()}
        texts["good_within"] = exact_text(terms.good_within)
        if terms.total is not None:
            texts["total"] = exact_text(terms.total)
        return cls(
            epsilon=fresh.epsilon,
            unit=fresh.unit,
            scope=fresh.scope,
            within=fresh.within,
            way=fresh.way,
            data=data,
            terms=terms,
            statement=_STATEMENT.format(
                one=fresh.guarantee.statement,
                first=float(terms.report),
                segment=float(terms.segment),
                threshold=float(terms.threshold),
            )
            + ("" if fresh.within is None else _CHAINS.format(within=fresh.within))
            + ("" if data.region is None else _READ.format(more=SLACK_STEPS * STEP_MM)),
            extra={"traces": texts},
        )

    @classmethod
    def keys(cls) -> None:
        """Leave keys to metric DP, which the problem file names: mechanisms over traces claim this notion."""

    @classmethod
    def promise(cls, result: Result) -> str:
        """State what one fresh report promises, and what each later one of a subject costs."""
        segment = result.guarantee.extra["traces"]["segment"]
        later = f"That is of one fresh report; each later one of a subject costs epsilon {segment}."
        return f"{super().promise(result)} {later}"

    @classmethod
    def limits(cls, result: Result) -> tuple[list[str], list[str]]:
        """Add the noise of tests, and that the time order of a table's rows is its owner's responsibility."""
        checked, unchecked = super().limits(result)
        checked.append("The noise of every test against how much distances to every output can differ, in rationals.")
        checked.append("The distance that counts as good and the width of the noise, against the problem.")
        if AGAIN in unchecked:
            unchecked[unchecked.index(AGAIN)] = "Reports of a subject beyond those that one table was charged for."
        unchecked.append("How many reports a subject sends, and when: these are public.")
        return checked, unchecked

    def measure(self, release: MatrixRelease) -> Certificate:
        """Certify fresh reports over the release's pairs, and the test's noise over all outputs; exact."""
        fresh = super().measure(release)
        if not isinstance(release, TraceRelease) or self.data is None:
            return evolve(fresh, holds=False, failures=(*fresh.failures, f"{ARTEFACT}: no test to certify"))
        failures = release.prediction.failures(self.data, self.terms)
        tests = 1 if self.data.region is not None else len(self.data.standing[0]) * release.prediction.steps.shape[1]
        return evolve(
            fresh,
            holds=fresh.holds and not failures,
            checked=fresh.checked + 2 * tests,
            failures=(*fresh.failures, *failures),
        )
