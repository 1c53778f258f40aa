"""Metric DP for traces: a guarantee for a subject's whole sequence of reports, in which reports may be repeated."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from attrs import evolve, frozen

from privopt.declare.toml_text import exact_text
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
    """A release with a matrix for fresh reports and the parameters of the test for repeating reports.

    Attributes:
        prediction: The parameters of the test. Sampling uses exactly the values that were certified.
        terms: The epsilons of a segment (repeated reports and the fresh report that ends them), or None if the release
            was read without its problem.
        walks: The class of the sampler that draws reports along traces.
    """

    prediction: Prediction
    terms: Terms | None = None
    walks: ClassVar[type[Walker]] = Walker

    def write(self, folder: Path) -> None:
        """Write the matrix to mechanism.npz and the parameters of the test to prediction.npz."""
        super().write(folder)
        self.prediction.write(folder)

    @classmethod
    def read(cls, folder: Path, problem: MetricInstance[PredictiveProblem]) -> TraceRelease:
        """Read the release from mechanism.npz and prediction.npz.

        Args:
            folder: The release folder.
            problem: The loaded problem, which determines the epsilons.

        Raises:
            InputError: A file is missing or malformed.
        """
        fresh, prediction = MatrixRelease.load(folder / MATRIX), Prediction.read(folder)
        return cls.of(fresh, prediction=prediction, terms=problem.declared.terms(problem.data))

    @property
    def walker(self) -> Walker | None:
        """The sampler that draws reports along traces, or None if ``terms`` is None."""
        if self.terms is None:
            return None
        return self.walks(weights=self.weights, prediction=self.prediction, terms=self.terms)


@frozen(kw_only=True)
class TraceDP(MetricDP):
    """Metric DP for fresh reports and for whole traces, where the epsilons of a trace's segments add up.

    A segment is a sequence of repeated reports that ends with a fresh one. The proof of the guarantee is in
    docs/guide/repeated.md, "Prediction".

    Attributes:
        kind: The name of the notion.
        terms: The epsilons of a segment.
    """

    kind: ClassVar[str] = "trace-dp"

    terms: Terms

    @classmethod
    def over(cls, data: MetricData, terms: Terms) -> Self:
        """Create the notion for the record pairs covered by a problem's guarantee, including its wording.

        Args:
            data: The data of the problem.
            terms: The epsilons of a fresh report, a threshold, a test and a segment, the distance within which a report
                counts as good, and the total budget.
        """
        fresh = MetricDP.of(data)
        parts = {"threshold": terms.threshold, "test": terms.test, "segment": terms.segment}
        # These are texts of exact decimals or fractions because verify() compares them, and doubles would lose digits.
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
        """Declare no keys, because problem files never name this notion.

        Problem files name metric DP, and mechanisms for traces use this notion in its place.
        """

    @classmethod
    def promise(cls, result: Result) -> str:
        """Return sentences that explain the guarantee for one fresh report and state the epsilon of each later one."""
        segment = result.guarantee.extra["traces"]["segment"]
        later = f"This holds for a person's first report. Each later new report costs epsilon {segment}."
        return f"{super().promise(result)} {later}"

    @classmethod
    def limits(cls, result: Result) -> tuple[list[str], list[str]]:
        """Return sentences about what ``verify`` checks and what it does not.

        The sentences for metric DP come first. They are followed by sentences about the noise in tests, and about the
        number and times of reports, which are public.

        Returns:
            The sentences about what is checked, and the sentences about what is not.
        """
        checked, unchecked = super().limits(result)
        checked.append("The noise of every test against how much distances to every output can differ, in rationals.")
        checked.append("The distance that counts as good and the width of the noise, against the problem.")
        if AGAIN in unchecked:
            unchecked[unchecked.index(AGAIN)] = "Reports of a subject beyond those that one table was charged for."
        unchecked.append("How many reports a subject sends, and when: these are public.")
        return checked, unchecked

    def measure(self, release: MatrixRelease) -> Certificate:
        """Certify the matrix for fresh reports, and the noise in the tests for repeating reports, in exact arithmetic.

        The matrix is checked for all pairs of records covered by the guarantee. The noise is checked for these pairs
        and every output or, if the guarantee covers a region, by a single comparison.
        """
        fresh = super().measure(release)
        if not isinstance(release, TraceRelease) or self.data is None:
            return evolve(fresh, holds=False, failures=(*fresh.failures, f"{ARTEFACT}: no test to certify"))
        # The guarantee for a trace requires both parts, so a release without a test fails the certificate.
        failures = release.prediction.failures(self.data, self.terms)
        # A test compares the distance from the position to the last output with a threshold, and both contain noise.
        # For each output and each pair in `standing` (the pairs that the certificate checks), the noise must cover the
        # difference between the two distances in whole steps. In a region, the triangle inequality bounds this
        # difference by the distance between the two positions, so a single comparison of the noise rates is enough.
        tests = 1 if self.data.region is not None else len(self.data.standing[0]) * release.prediction.steps.shape[1]
        return evolve(
            fresh,
            holds=fresh.holds and not failures,
            checked=fresh.checked + 2 * tests,  # for the thresholds' noise and for the tests' noise
            failures=(*fresh.failures, *failures),
        )
