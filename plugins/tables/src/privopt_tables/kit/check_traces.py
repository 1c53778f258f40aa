"""Check that the charges for traces cover what the reports reveal, and that reports have the claimed distribution.

The kit computes the distribution from the numbers in the release, independently of the code under test
(:mod:`privopt_tables.kit.trace_law`). All positions in the checked traces are records. Problems with a region are
skipped, because their traces could go through any point in the region.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from random import Random
from typing import TYPE_CHECKING, Any, Final

import attrs
import hypothesis
import narwhals as nw
import numpy as np
import polars as pl
from attrs import frozen

from privopt.arrays import Floats
from privopt.declare.column_texts import KEPT
from privopt.testing.checks.base import Trial, check
from privopt.testing.checks.samples import is_plausible_count
from privopt.testing.problems import GeneratedProblem
from privopt_metric_dp.kit.spaces import close_paths
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.traces.draw_trace import Walker
from privopt_tables.kit.trace_law import MIN_PROBABILITY, Law, Reports, max_log_ratio
from privopt_tables.options import ApplyOptions
from privopt_tables.rows.by_position import PositionProtector
from privopt_tables.secret_columns import Secret

if TYPE_CHECKING:
    from privopt.testing.under_trial import Run
    from privopt_metric_dp.problem.data import MetricData

__all__ = ["draws_traces", "traces"]

TRACE_LENGTH: Final = 4
"""Number of rows in a trace. If this would lead to too many sequences of reports, traces have three rows instead."""

TRACE_DRAWS: Final = 20_000
"""Number of subjects for whom reports are drawn, all along the same trace."""
TRACE_PAIRS: Final = 8
"""Number of pairs of traces that are compared."""

MAX_SEQUENCES: Final = 600
"""Maximum number of report sequences for which probabilities are computed per trace."""

MIN_CHANCE: Final = 1e-8
"""The p-value below which a deviation is attributed to a fault rather than to chance."""

MIN_EXPECTED_DRAWS: Final = 50.0
"""Minimum expected number of draws for a sequence to form its own category in the chi-square test. For rarer sequences,
the chi-square distribution is a poor approximation."""

RELATIVE_TOLERANCE: Final = 1e-9
"""Relative tolerance for comparisons, to allow for rounding in double precision."""


@frozen(kw_only=True, eq=False)
class _TraceSetting:
    """A set of P places, and the distribution of reports along traces that visit them.

    Attributes:
        law: The probability distribution of reports along traces through these places.
        distances: (P, P) The distances between places, which are infinite for pairs without a guarantee.
        names: The places' names, used in messages.
        columns: The columns of a table with one row per place, keyed by name.
    """

    law: Law
    distances: Floats
    names: list[str]
    columns: Mapping[str, list[Any]]


def draws_traces(release: type[Any]) -> bool:
    """Return whether the releases of a class can draw reports along traces, that is, whether they have a ``walker``."""
    field_names = {attribute.name for attribute in attrs.fields(release)} if attrs.has(release) else set()
    return getattr(release, "walker", MatrixRelease.walker) is not MatrixRelease.walker or "walker" in field_names


@check("traces", version=3, of={"traces"}, share=0.3)
def traces(trial: Trial) -> None:
    """Check that charges cover what reports along traces reveal, and that reports have the claimed distribution."""
    problem = trial.problem()
    _check_release(trial, problem, trial.run(problem))


def _check_release(trial: Trial, problem: GeneratedProblem, run: Run) -> None:
    """Check the noise, the report probabilities and the draws of a release that reports traces.

    Args:
        trial: The current trial, used to report failures.
        problem: The generated problem that was solved.
        run: The run that solved the problem.
    """
    walker, data = getattr(run.release, "walker", None), run.problem.data
    if not isinstance(walker, Walker):
        trial.fail("the release has no walker, which draws the reports of traces", problem)
    output_count = walker.weights.shape[1]
    # The probability of every sequence of reports is computed, so the number of outputs limits the length of traces.
    # There are K (K + 1)^(n - 1) sequences of n reports over K outputs.
    length = next((n for n in (TRACE_LENGTH, 3) if output_count * (output_count + 1) ** (n - 1) <= MAX_SEQUENCES), 0)
    if not length:
        hypothesis.reject()
    if data.region is not None:
        trial.pass_over("its traces go through any point of a region, and records alone are tried")
    record_count, random = data.shape[0], trial.chance(problem)
    pair_distances = np.full((record_count, record_count), np.inf)
    # Distances are set for the pairs whose guarantee is required. For all other pairs, the guarantee follows from these
    # along shortest paths.
    i, j = data.pairs.T
    pair_distances[i, j] = pair_distances[j, i] = data.distances
    np.fill_diagonal(pair_distances, 0.0)
    names = list(data.records.ids)
    setting = _TraceSetting(
        law=Law.of(walker), distances=close_paths(pair_distances), names=names, columns={"id": names}
    )
    _compare_noise(trial, problem, walker, setting)
    _compare_traces(trial, problem, walker, setting, length, random)
    _compare_draws(trial, problem, run.release, data, setting, length, random)


def _compare_noise(trial: Trial, problem: GeneratedProblem, walker: Walker, setting: _TraceSetting) -> None:
    """Check the noise in the repetition tests, and the epsilon charged for each segment of a trace.

    A repetition test decides whether a row repeats the previous report or renews it with a fresh one. The tests are
    noisy, and the noise must be large enough to hide the distance between any two places. A segment consists of a
    report, the rows that repeat it, and the row that renews it. The charge for a segment must be at least the sum of
    the epsilon of a fresh report, the epsilon of the threshold and twice the epsilon of a test.

    Args:
        trial: The current trial, used to report failures.
        problem: The generated problem that was solved.
        walker: The part of the release that draws reports along traces.
        setting: The places that the traces visit.
    """
    terms, prediction, steps = walker.terms, walker.prediction, walker.prediction.steps
    noises = (("threshold", prediction.threshold, terms.threshold), ("test", prediction.test, terms.test))
    for first_place, distances in enumerate(setting.distances):
        # For each second place, the maximum over all outputs of the difference between the two places' distances to the
        # output.
        step_differences = np.abs(steps - steps[first_place]).max(axis=1, initial=0)
        for noise_name, rate, epsilon in noises:
            # Noise at a given rate per step hides a difference of d steps with a privacy loss of rate * d. This must be
            # at most epsilon * distance.
            excesses = float(rate) * step_differences - float(epsilon) * distances * (1.0 + RELATIVE_TOLERANCE)
            second_place = int(excesses.argmax())
            if excesses[second_place] > RELATIVE_TOLERANCE * float(rate):
                trial.fail(
                    f"prediction: {setting.names[first_place]} and {setting.names[second_place]}, "
                    f"{distances[second_place]:.9g} apart, differ by {step_differences[second_place]:,} steps to an "
                    f"output; the noise of the {noise_name} has rate {float(rate):.6g} a step, which tells "
                    f"{float(rate) * step_differences[second_place]:.6g}, above "
                    f"{float(epsilon) * distances[second_place]:.6g}",
                    problem,
                )
    epsilon = Fraction(trial.subject.epsilon(trial.subject.load(problem)))
    # The terms are only what the release claims, so a fresh report is assumed to cost at least the problem's epsilon.
    min_segment = max(terms.report, epsilon) + terms.threshold + 2 * terms.test
    if terms.segment < min_segment:
        trial.fail(
            f"a segment that ends in a fresh report costs {float(terms.segment):g}, expected {float(min_segment):g}: "
            f"the fresh report {float(epsilon):g}, the threshold {float(terms.threshold):g} and twice the test "
            f"{float(terms.test):g}",
            problem,
        )


def _compare_traces(
    trial: Trial, problem: GeneratedProblem, walker: Walker, setting: _TraceSetting, length: int, random: Random
) -> None:
    """Check that the charge for each sequence of reports covers what the sequence reveals about the trace.

    Traces are compared in pairs. For every sequence, the absolute log ratio of its probabilities along the two traces
    must not exceed the result of :func:`max_log_ratio`.

    Args:
        trial: The current trial, used to report failures.
        problem: The generated problem that was solved.
        walker: The part of the release that draws reports along traces.
        setting: The places that the traces visit.
        length: The number of rows in a trace.
        random: The random number generator used to choose the traces.
    """
    place_count = len(setting.names)
    for number in range(TRACE_PAIRS):
        first_trace = [random.randrange(place_count) for _ in range(length)]
        if number % 2:
            # Every second trace stays at one place, where the log ratios from all rows add up.
            first_trace = first_trace[:1] * length
        # In three of four cases, the second trace stays near the first one. In the fourth, it is random.
        second_trace = (
            [_neighbouring_place(place_number, place_count) for place_number in first_trace]
            if number % 4
            else [random.randrange(place_count) for _ in first_trace]
        )
        distances = setting.distances[first_trace, second_trace]
        # If there is no guarantee between the two traces' places in some row, their reports may differ by any amount.
        if not np.isfinite(distances).all():
            continue
        probabilities = setting.law.sequence_probabilities(first_trace)
        other_probabilities = setting.law.sequence_probabilities(second_trace)
        for reports in probabilities:
            log_ratio = _log_ratio(probabilities[reports], other_probabilities[reports])
            bound = float(max_log_ratio(walker.terms, reports, distances))
            if log_ratio > bound + RELATIVE_TOLERANCE * (1.0 + bound):
                trial.fail(
                    f"traces {_describe_trace(setting, first_trace)} and {_describe_trace(setting, second_trace)}: "
                    f"reports {reports} have log ratio {log_ratio:.9g}, above {bound:.9g}",
                    problem,
                )


def _neighbouring_place(place_number: int, count: int) -> int:
    """Return the index of the place paired with a given place, or the given index if the place has no partner.

    Places 2k and 2k + 1 form a pair.
    """
    return min(place_number ^ 1, count - 1)


def _describe_trace(setting: _TraceSetting, trace: list[int]) -> str:
    """Return the names of the places along a trace as a comma-separated list."""
    return ", ".join(setting.names[place_number] for place_number in trace)


def _log_ratio(first: float, second: float) -> float:
    """Return the absolute log ratio of two probabilities, or 0 if either is too small to be computed accurately."""
    return 0.0 if min(first, second) < MIN_PROBABILITY else abs(math.log(first / second))


def _compare_draws(
    trial: Trial,
    problem: GeneratedProblem,
    release: Any,
    data: MetricData,
    setting: _TraceSetting,
    length: int,
    random: Random,
) -> None:
    """Check that reports along a trace have the claimed distribution, and that subjects were charged enough for them.

    Args:
        trial: The current trial, used to report failures.
        problem: The generated problem that was solved.
        release: The release to draw reports from.
        data: The data of the problem that the release was made for.
        setting: The places that the trace visits.
        length: The number of rows in the trace.
        random: The random number generator used to choose the trace.
    """
    trace = [random.randrange(len(setting.names)) for _ in range(length)]
    # Half of the traces stay at one place, because a fault that reveals a little in each row becomes visible there.
    if trial.history.examples % 4 > 1:
        trace = trace[:1] * length
    counts, min_charges = _count_draws(release, data, setting, trace, random.getrandbits(60))
    terms = release.walker.terms
    segment_epsilon = terms.report + terms.threshold + 2 * terms.test
    for reports, cost in min_charges.items():
        # The first report is charged, and a segment for each later fresh report. If the last report is a repetition,
        # one more segment is charged, because a segment is charged in advance.
        min_charge = terms.report + segment_epsilon * (
            sum(not is_repeated for is_repeated, _ in reports) - 1 + reports[-1][0]
        )
        if cost < min_charge:
            trial.fail(
                f"trace {_describe_trace(setting, trace)}: reports {reports} were charged {cost}, "
                f"expected at least {min_charge}",
                problem,
            )
    probability = _tail_probability(counts, setting.law.sequence_probabilities(trace))
    if probability < MIN_CHANCE:
        trial.fail(
            f"trace {_describe_trace(setting, trace)}: {TRACE_DRAWS:,} draws of its reports are not of the law that "
            f"prediction and weights give (probability {probability:.2g}): "
            f"the most frequent were {counts.most_common(3)}",
            problem,
        )


def _count_draws(
    release: Any, data: MetricData, setting: _TraceSetting, trace: list[int], seed: int
) -> tuple[Counter[Reports], dict[Reports, Fraction]]:
    """Draw reports along the same trace for `TRACE_DRAWS` subjects, and count how often each sequence occurs.

    Args:
        release: The release to draw reports from.
        data: The data of the problem that the release was made for.
        setting: The places that the trace visits.
        trace: The indices of the places along the trace.
        seed: The seed of the draws.

    Returns:
        Two mappings keyed by sequence of reports. The first gives the number of times each sequence was drawn. The
        second gives the smallest amount charged to any subject for each sequence.
    """
    secret = Secret.of(**{name: name for name in setting.columns})
    protector = PositionProtector.of(release, data, secret, ApplyOptions(seed=seed, subject="who"))
    # The first rows of all subjects come first, then all second rows, and so on, so each subject's rows are in order.
    rows, subjects = np.repeat(trace, TRACE_DRAWS), np.tile(np.arange(TRACE_DRAWS), len(trace))
    table = pl.DataFrame(
        {"who": subjects, **{name: pl.Series(places).gather(rows) for name, places in setting.columns.items()}}
    )
    reported_frame = protector.protect(nw.from_native(table, eager_only=True))
    output_numbers = {name: number for number, name in enumerate(release.outputs.tolist())}
    outputs = np.array(
        [output_numbers[name] for name in reported_frame[protector.report_columns[0]].to_list()]
    ).reshape(len(trace), TRACE_DRAWS)
    is_repeated = reported_frame[KEPT].to_numpy().reshape(len(trace), TRACE_DRAWS)
    counts: Counter[Reports] = Counter()
    min_charges: dict[Reports, Fraction] = {}
    assert protector.tracer is not None  # the release draws traces
    # The amount charged to each subject in this table, counted in memory because a seeded run has no ledger.
    charges = [protector.tracer.limit.spent.get(str(subject), Fraction(0)) for subject in range(TRACE_DRAWS)]
    for subject, (marks, numbers) in enumerate(zip(is_repeated.T.tolist(), outputs.T.tolist(), strict=True)):
        reports = tuple(zip(marks, numbers, strict=True))
        counts[reports] += 1
        min_charges[reports] = min(min_charges.get(reports, charges[subject]), charges[subject])
    return counts, min_charges


def _tail_probability(observed: Counter[Reports], law: Mapping[Reports, float]) -> float:
    """Return the p-value of a chi-square test of the drawn sequences of reports against their claimed distribution.

    Rare sequences are pooled, because the chi-square approximation is poor for small expected counts.

    Args:
        observed: The number of times each sequence of reports was drawn.
        law: The probability of each sequence.
    """
    from scipy.stats import chisquare

    # A single draw of a sequence that the distribution rules out refutes the distribution.
    if any(reports not in law for reports in observed):
        return 0.0
    expected = np.array([law[reports] * TRACE_DRAWS for reports in law])
    counts = np.array([observed[reports] for reports in law], dtype=np.float64)
    is_frequent = expected >= MIN_EXPECTED_DRAWS
    rare_expectation = float(expected[~is_frequent].sum())
    # If the rare sequences are too rare for chi-square even together, their total count gets a binomial test.
    if rare_expectation < MIN_EXPECTED_DRAWS and not is_plausible_count(
        int(counts[~is_frequent].sum()), TRACE_DRAWS, rare_expectation / TRACE_DRAWS
    ):
        return 0.0
    observed_counts, expected_counts = counts[is_frequent], expected[is_frequent]
    # Otherwise the rare sequences form one category.
    if rare_expectation >= MIN_EXPECTED_DRAWS:
        observed_counts = np.append(observed_counts, counts[~is_frequent].sum())
        expected_counts = np.append(expected_counts, rare_expectation)
    if len(observed_counts) < 2:
        return 1.0
    # The test requires equal sums, which may differ if the rare sequences are left out. So expected counts are scaled.
    scaled_expectations = expected_counts * observed_counts.sum() / expected_counts.sum()
    return float(chisquare(observed_counts, scaled_expectations).pvalue)
