"""A maximum-likelihood attack on many reports from one place.

The attack runs on two or three kinds of reports. Fresh reports are drawn independently. Sticky reports repeat the first
report. If the release supports traces, there are also reports along traces, for which a random test decides whether to
repeat the previous report. Reports are simulated from public data with a fixed seed, so the results for a release are
always the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from attrs import frozen

from privopt.arrays import Bools, Floats, Ints
from privopt.numbers.distances import amount_text
from privopt.numbers.sampling import make_source
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.traces.draw_trace import Limit, State, Walker

__all__ = ["MAX_REPORTS", "ObservedReports", "describe_attack", "guess_records", "over_time"]

MAX_REPORTS: Final = 1000
"""The default maximum number of reports that the attacker uses from one place."""

ATTACKED_PLACES: Final = 2_000
"""The number of places to attack, drawn from the prior. With only 200, 95th percentiles were off by up to 10 %."""

ATTACKED_TRACES: Final = 500
"""The number of places to attack if the release supports traces, because each place then takes four times as long."""

MAX_SCORES: Final = 1 << 22
"""The maximum number of scores (distinct rows of counts times records) to hold in memory at once."""

NOISE_VALUES: Final = 24
"""The number of quadrature points used by the attacker to integrate over the noise in a threshold."""

_RANDOM_SEED: Final = 17
"""The seed of all simulations, which is fixed so that the results for a release are always the same."""
# Replaces the logarithm of 0 in sums of count times logarithm, because minus infinity times a count of 0 is NaN.
_IMPOSSIBLE: Final = -1e9


@frozen(kw_only=True, eq=False)
class ObservedReports:
    """The reports from M places at T times, as observed by an attacker.

    Attributes:
        outputs: Array of shape (M, T) with the index of each reported output, or -1 if there is no report.
        kept: Boolean array of shape (M, T) that is True for reports that repeat the previous one.
    """

    outputs: Ints
    kept: Bools


def simulate_reports(release: MatrixRelease, places: Ints, count: int, seed: int) -> dict[str, ObservedReports]:
    """Simulate reports of several kinds from the given places.

    Fresh reports are drawn independently, and sticky reports repeat the first one. If the release supports it, reports
    along a trace, which may repeat the previous report, are simulated as well.

    Args:
        release: The release from which reports are drawn.
        places: Array of shape (M,) with the index of the record at each place.
        count: The number of reports to simulate for each place.
        seed: The seed of the random number generator.

    Returns:
        The reports by kind: "fresh", "sticky" and, if supported, "predicted" (along a trace).
    """
    fresh = _simulate_fresh(release, places, count, seed)
    reports = {"fresh": fresh, "sticky": _repeat_first_report(fresh)}
    if release.walker is not None:
        reports["predicted"] = _simulate_predicted(release, places, count, seed)
    return reports


def _simulate_fresh(release: MatrixRelease, places: Ints, count: int, seed: int) -> ObservedReports:
    """Draw independent reports for each place.

    Args:
        release: The release from which reports are drawn.
        places: Array of shape (M,) with the index of the record at each place.
        count: The number of reports to draw for each place.
        seed: The seed of the random number generator.
    """
    # First, one report is drawn for every place, then a second one, and so on, so that the reports do not depend on how
    # many follow. The audit, the report page and the papers use different counts, but must agree on the results for
    # each count.
    outputs = release.sampler.draw_each(np.tile(places, count), source=make_source(seed)).reshape(count, -1).T
    return ObservedReports(outputs=outputs, kept=np.zeros(outputs.shape, dtype=np.bool_))


def _repeat_first_report(fresh: ObservedReports) -> ObservedReports:
    """Turn fresh reports into sticky ones by repeating each place's first report at all later times."""
    outputs = np.broadcast_to(fresh.outputs[:, :1], fresh.outputs.shape)
    is_repeated = np.broadcast_to(np.arange(outputs.shape[1]) > 0, outputs.shape)
    return ObservedReports(outputs=outputs, kept=is_repeated)


def _simulate_predicted(release: MatrixRelease, places: Ints, count: int, seed: int) -> ObservedReports:
    """Draw reports along traces, each of which stays at a single place.

    Args:
        release: The release from which reports are drawn, which must support traces.
        places: Array of shape (M,) with the index of the record at each place.
        count: The number of reports to draw for each place.
        seed: The seed of the random number generator.
    """
    walker = release.walker
    assert walker is not None  # checked by the caller
    # At least the default number of reports is simulated, so that the first reports do not depend on a smaller
    # ``count``.
    length = max(count, MAX_REPORTS)
    walks, subjects = np.repeat(places, length), np.repeat(np.arange(len(places)), length)
    trace = walker.walk(walks, subjects, State(), charge=Limit(walker.terms.total), source=make_source(seed))
    outputs, is_kept = trace.outputs.reshape(-1, length), trace.kept.reshape(-1, length)
    return ObservedReports(outputs=outputs[:, :count], kept=is_kept[:, :count])


def over_time(release: MatrixRelease, data: MetricData, *, max_reports: int = MAX_REPORTS) -> dict[str, Any] | None:
    """Compute quantiles of the attacker's errors for each kind of report, after increasing numbers of reports.

    Args:
        release: The release to attack.
        data: The data of the problem.
        max_reports: The maximum number of reports from one place. The attack is also run with each smaller power of
            ten.

    Returns:
        A mapping with the unit of distance, the number of places, the numbers of reports and, for each kind of report,
        the median and the 95th percentile of the errors at each number of reports. None if the release does not have
        exactly one row per record.
    """
    if len(release.records) != data.shape[0]:
        return None
    place_count = ATTACKED_PLACES if release.walker is None else ATTACKED_TRACES
    generator = np.random.default_rng([_RANDOM_SEED, 1])  # a stream that is independent of the one for reports
    places = generator.choice(data.shape[0], size=place_count, p=data.prior / data.prior.sum())
    # The powers of ten below the maximum, and the maximum itself.
    counts = sorted({10**power for power in range(10) if 10**power < max_reports} | {max_reports})
    logs = _log_probabilities(release)
    reports_by_kind = simulate_reports(release, places, max_reports, _RANDOM_SEED)
    guesses = [guess_records(logs, release.walker, reports, n) for reports in reports_by_kind.values() for n in counts]
    # All distances are measured at once, because each place by road takes a search over the whole map.
    errors = data.distance.between(np.tile(places, len(guesses)), np.concatenate(guesses))
    errors_by_kind = errors.reshape(len(reports_by_kind), len(counts), place_count)
    likelihood = {
        name: _summarize_errors(kind_errors) for name, kind_errors in zip(reports_by_kind, errors_by_kind, strict=True)
    }
    return {
        "unit": data.unit,
        "places": place_count,
        "reports": counts,
        "likelihood": likelihood,
    }


def _summarize_errors(errors: Iterable[Floats]) -> dict[str, list[float]]:
    """Return the median and the 95th percentile of the errors for each number of reports.

    Args:
        errors: For each number of reports, an array of shape (M,) with the distance from each place to the attacker's
            guess.
    """
    quantiles = [np.quantile(distances, [0.5, 0.95]).tolist() for distances in errors]
    return {"median": [median for median, _ in quantiles], "p95": [percentile for _, percentile in quantiles]}


def _log_probabilities(release: MatrixRelease) -> Floats:
    """Return the logarithms of a release's probabilities, with ``_IMPOSSIBLE`` in place of log 0."""
    z = release.probabilities
    return np.where(z > 0, np.log(np.where(z > 0, z, 1.0)), _IMPOSSIBLE)


def guess_records(logs: Floats, walker: Walker | None, observed: ObservedReports, count: int) -> Ints:
    """Guess the record at each place by maximising the likelihood of its first ``count`` reports.

    Args:
        logs: Array of shape (N, K) with the logarithms of the output probabilities, which the attacker knows.
        walker: The sampler of reports along traces, or None if the release does not support traces.
        observed: The reports from M places.
        count: The number of reports that the attacker uses from each place.

    Returns:
        Array of shape (M,) with the index of the guessed record for each place. Ties go to the smallest index.
    """
    outputs, kept = observed.outputs[:, :count], observed.kept[:, :count]
    # A repeated report reveals no more than the original, but the times at which reports are repeated may (see below).
    is_fresh = ~kept & (outputs >= 0)
    # Encoding a place and an output as one number lets bincount count each place's reports by output.
    shape = len(outputs), logs.shape[1]
    cells = np.nonzero(is_fresh)[0] * shape[1] + outputs[is_fresh]
    counts = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)
    # Reports are independent, so a record's log-likelihood is the sum over outputs of count times log probability.
    # Along a trace, the place also influences whether a test accepts a report, so the pattern of repetitions is
    # evidence too. If no report is repeated, or every report after the first, the reports are taken as fresh or sticky,
    # which involve no tests.
    if walker is not None and kept.any() and (~kept[:, 1:]).any():
        tests = np.array([_log_probability_of_tests(walker, *row) for row in zip(outputs, kept, strict=True)])
        return np.asarray((counts @ logs.T + tests).argmax(axis=1))
    # Places with the same counts get the same guess, and there are often few distinct rows of counts: after one report,
    # at most as many as outputs. Rows are compared as bytes, which is faster than sorting them with np.unique.
    index_by_row: dict[bytes, int] = {}
    place_rows = [index_by_row.setdefault(row.tobytes(), len(index_by_row)) for row in counts]
    distinct_counts = np.frombuffer(b"".join(index_by_row), dtype=counts.dtype).reshape(-1, shape[1])
    step = max(1, MAX_SCORES // len(logs))
    blocks = (distinct_counts[start : start + step] for start in range(0, len(distinct_counts), step))
    guesses = np.concatenate([(block @ logs.T).argmax(axis=1) for block in blocks])
    return np.asarray(guesses[place_rows])


def _log_probability_of_tests(walker: Walker, outputs: Ints, kept_steps: Bools) -> Floats:
    """Return the log-likelihood of each record, given the outcomes of the tests along a trace that stays at one place.

    A test decides whether to repeat the previous report. A fresh report and its repetitions form a segment, in which
    all tests share a noisy threshold. Because the attacker does not know the noise, probabilities are averaged over it
    before the logarithm is taken.

    Args:
        walker: The sampler of reports along traces.
        outputs: Array of shape (T,) with the index of the reported output at each time, or -1 if there is no report.
        kept_steps: Boolean array of shape (T,) that is True for reports that repeat the previous one.

    Returns:
        Array of shape (N,) with the log-likelihoods.
    """
    # Quadrature points of the noise, and their weights.
    weights, noise = walker.nodes(NOISE_VALUES)
    total = np.zeros(len(walker.weights))
    starts = np.flatnonzero(~kept_steps & (outputs >= 0))
    segment_ends = np.append(starts[1:], len(outputs))
    for start, end in zip(starts.tolist(), segment_ends.tolist(), strict=True):
        # The number of tests that accepted the report in this segment, and whether a test ended the segment, as opposed
        # to the end of the data.
        kept_count, has_ended = int(kept_steps[start:end].sum()), end < len(outputs) and outputs[end] >= 0
        if kept_count or has_ended:
            # The probability that a test rejects the report, for each record and each value of the noise.
            renewal_rates = walker.renewals(int(outputs[start]), noise)
            with np.errstate(divide="ignore"):
                # Given the noise, the tests are independent. All of them accepted the report, except possibly the last
                # one.
                segment_probabilities = (
                    weights * (1.0 - renewal_rates) ** kept_count * (renewal_rates if has_ended else 1.0)
                ).sum(axis=1)
                total += np.maximum(np.log(segment_probabilities), _IMPOSSIBLE)
    return total


def _last_change(values: Sequence[float]) -> int:
    """Return the smallest index n such that all values from ``values[n]`` on are equal."""
    return next((n for n in range(len(values) - 1, 0, -1) if values[n - 1] != values[-1]), 0)


def describe_attack(attack: Mapping[str, Any], noun: str = "place") -> str:
    """Describe in one sentence the attacker's errors after one report and after many reports.

    The sentence also states the number of reports after which the errors stop changing.

    Args:
        attack: The result of :func:`over_time`.
        noun: The noun for a record, such as "place".
    """
    fresh, counts = attack["likelihood"]["fresh"], attack["reports"]
    (first_median, last_median), (first_p95, last_p95) = (
        (fresh[quantile][0], fresh[quantile][-1]) for quantile in ("median", "p95")
    )
    # The smallest number of reports after which guesses get no closer, as "after 1,000" would hide that 10 suffice.
    median_step, p95_step = (_last_change(fresh[quantile]) for quantile in ("median", "p95"))
    half, last = f"{counts[median_step]:,}", f"{counts[max(median_step, p95_step)]:,}"

    def describe_miss(error: float) -> str:
        """Return a phrase saying that a guess is at most ``error`` away from the true place."""
        if error == 0:
            return "exactly right"
        return f"at most {amount_text(f'{error:.3g}', attack['unit'])} off"

    shown = f"{noun}s and {describe_miss(first_p95)} for 95\u00a0% of them"
    first = f"{describe_miss(first_median)} for half of the {shown}"
    if (first_median, first_p95) == (last_median, last_p95):
        then = f"{counts[-1]:,} reports bring it no nearer"
    elif last_median == last_p95 and 0 < median_step < p95_step:
        then = f"after {half} reports it is {describe_miss(last_p95)} for half, after {last} for at least 95\u00a0%"
    elif last_median == last_p95:
        then = f"after {last} reports it is {describe_miss(last_p95)} for at least 95\u00a0%"
    else:
        then = f"after {last} reports it is {describe_miss(last_median)} and {describe_miss(last_p95)}"
    return f"After 1 report the attacker's guess is {first}; {then}."
