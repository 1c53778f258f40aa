"""A maximum-likelihood attack on many reports of one place.

It attacks fresh reports (each drawn anew), a single report that is repeated (sticky), and, if the release draws them,
reports along a trace, where a random test decides whether the last report is repeated. The reports are simulated from
public data with a fixed seed, so a release always gets the same figures.
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
"""Default number of reports of one place."""

ATTACKED_PLACES: Final = 2_000
"""Number of places that are attacked, drawn from the prior. With 200, 95th percentiles were wrong by up to a tenth."""

ATTACKED_TRACES: Final = 500
"""Number of places for a release that draws reports along traces, for which the attack takes four times as long."""

MAX_SCORES: Final = 1 << 22
"""Number of scores (rows of counts times records) that are in memory at a time."""

NOISE_VALUES: Final = 24
"""Number of quadrature points with which the attacker integrates over the noise of a threshold."""

_RANDOM_SEED: Final = 17
"""Seed of all simulations, so that a release always gets the same figures."""
# The logarithm of 0 in sums of count times logarithm. Minus infinity times a count of 0 would be NaN.
_IMPOSSIBLE: Final = -1e9


@frozen(kw_only=True, eq=False)
class ObservedReports:
    """Reports of several places (M) at several times (T), as the attacker sees them.

    Attributes:
        outputs: (M, T) numbers of outputs, -1 for none.
        kept: (M, T) whether an earlier report was sent again.
    """

    outputs: Ints
    kept: Bools


def simulate_reports(release: MatrixRelease, places: Ints, count: int, seed: int) -> dict[str, ObservedReports]:
    """Simulate reports of places by kind: fresh, sticky (the first report repeated), and along traces.

    Args:
        release: The release to draw from.
        places: (M,) records, one for each place.
        count: Number of reports of each place.
        seed: Seed of the draws.

    Returns:
        Reports (M, count) by "fresh", "sticky" and, if the release draws traces, "predicted".
    """
    fresh = _simulate_fresh(release, places, count, seed)
    reports = {"fresh": fresh, "sticky": _repeat_first_report(fresh)}
    if release.walker is not None:
        reports["predicted"] = _simulate_predicted(release, places, count, seed)
    return reports


def _simulate_fresh(release: MatrixRelease, places: Ints, count: int, seed: int) -> ObservedReports:
    """Draw ``count`` independent reports of each place."""
    # The first report of every place is drawn first, then every second report, and so on. So a larger number of reports
    # leaves the earlier ones as they are: audit, the report page and the papers ask for different numbers, and must get
    # the same figures for the same number.
    outputs = release.sampler.draw_each(np.tile(places, count), source=make_source(seed)).reshape(count, -1).T
    return ObservedReports(outputs=outputs, kept=np.zeros(outputs.shape, dtype=np.bool_))


def _repeat_first_report(fresh: ObservedReports) -> ObservedReports:
    """Return sticky reports: the first fresh report of each place, repeated at all later times."""
    outputs = np.broadcast_to(fresh.outputs[:, :1], fresh.outputs.shape)
    is_repeated = np.broadcast_to(np.arange(outputs.shape[1]) > 0, outputs.shape)
    return ObservedReports(outputs=outputs, kept=is_repeated)


def _simulate_predicted(release: MatrixRelease, places: Ints, count: int, seed: int) -> ObservedReports:
    """Draw ``count`` reports of each place (M,) along a trace that stays there, as the release draws them."""
    walker = release.walker
    assert walker is not None  # checked by the caller
    # At least the default number is simulated, so that smaller numbers get the same first reports.
    length = max(count, MAX_REPORTS)
    walks, subjects = np.repeat(places, length), np.repeat(np.arange(len(places)), length)
    trace = walker.walk(walks, subjects, State(), charge=Limit(walker.terms.total), source=make_source(seed))
    outputs, is_kept = trace.outputs.reshape(-1, length), trace.kept.reshape(-1, length)
    return ObservedReports(outputs=outputs[:, :count], kept=is_kept[:, :count])


def over_time(release: MatrixRelease, data: MetricData, *, max_reports: int = MAX_REPORTS) -> dict[str, Any] | None:
    """Return the attacker's errors in the unit of distance, by kind and number of reports.

    Args:
        release: A release with a row for every record.
        data: The problem's data.
        max_reports: Largest number of reports of one place; powers of ten below it are tried as well.

    Returns:
        The figures, or None if the release has no row for some record.
    """
    if len(release.records) != data.shape[0]:
        return None
    place_count = ATTACKED_PLACES if release.walker is None else ATTACKED_TRACES
    generator = np.random.default_rng([_RANDOM_SEED, 1])  # another stream than that of reports
    places = generator.choice(data.shape[0], size=place_count, p=data.prior / data.prior.sum())
    # Powers of ten below the largest number, and that number.
    counts = sorted({10**power for power in range(10) if 10**power < max_reports} | {max_reports})
    logs = _log_probabilities(release)
    reports_by_kind = simulate_reports(release, places, max_reports, _RANDOM_SEED)
    likelihood = {
        name: _summarize_errors(
            data.distance.between(places, guess_records(logs, release.walker, reports, n)) for n in counts
        )
        for name, reports in reports_by_kind.items()
    }
    return {
        "unit": data.unit,
        "places": place_count,
        "reports": counts,
        "likelihood": likelihood,
    }


def _summarize_errors(errors: Iterable[Floats]) -> dict[str, list[float]]:
    """Return the median and the 95th percentile of the errors, (M,) distances for each number of reports."""
    quantiles = [np.quantile(distances, [0.5, 0.95]).tolist() for distances in errors]
    return {"median": [median for median, _ in quantiles], "p95": [percentile for _, percentile in quantiles]}


def _log_probabilities(release: MatrixRelease) -> Floats:
    """Return the logarithms (N, K) of the probabilities of a release, with `_IMPOSSIBLE` as that of 0."""
    z = release.probabilities
    return np.where(z > 0, np.log(np.where(z > 0, z, 1.0)), _IMPOSSIBLE)


def guess_records(logs: Floats, walker: Walker | None, observed: ObservedReports, count: int) -> Ints:
    """Return the records (M,) under which the first reports of each place are most likely; the first record on a tie.

    Args:
        logs: (N, K) logarithms of the release's probabilities, since the attacker knows its matrix.
        walker: Draws the release's reports along traces; None if the release draws no traces.
        observed: The reports of M places.
        count: Number of reports that the attacker uses.
    """
    outputs, kept = observed.outputs[:, :count], observed.kept[:, :count]
    # A repeated report reveals no more than its first copy did, but the times of repetitions may reveal something
    # (below).
    is_fresh = ~kept & (outputs >= 0)
    # A place and an output as one number, so that bincount counts the reports of each place by output.
    shape = len(outputs), logs.shape[1]
    cells = np.nonzero(is_fresh)[0] * shape[1] + outputs[is_fresh]
    counts = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)
    # Independent reports: the log-likelihood of a record is the sum over outputs of count times log probability.
    # Whether a test accepted a report depends on the place, so the pattern of repetitions is evidence too. No test was
    # made if no report, or every report after the first, is repeated: such reports are fresh or sticky.
    if walker is not None and kept.any() and (~kept[:, 1:]).any():
        tests = np.array([_log_probability_of_tests(walker, *row) for row in zip(outputs, kept, strict=True)])
        return np.asarray((counts @ logs.T + tests).argmax(axis=1))
    # Places with the same counts get the same guess. After one report there are only as many as outputs.
    distinct_counts, place_rows = np.unique(counts, axis=0, return_inverse=True)
    step = max(1, MAX_SCORES // len(logs))
    blocks = (distinct_counts[start : start + step] for start in range(0, len(distinct_counts), step))
    guesses = np.concatenate([(block @ logs.T).argmax(axis=1) for block in blocks])
    return guesses[place_rows.ravel()]


def _log_probability_of_tests(walker: Walker, outputs: Ints, kept_steps: Bools) -> Floats:
    """Return for each record the log probability (N,) of the outcomes of all tests at one place.

    A test decides whether the last report is repeated. A segment is a fresh report with its repetitions, whose tests
    share the noise of one threshold. The attacker does not know this noise, so probabilities are averaged over it
    before the logarithm is taken.

    Args:
        walker: The parameters with which the release draws traces.
        outputs: (T,) reports of the place, -1 for none.
        kept_steps: (T,) whether a report repeats the last one.
    """
    # Values of the noise and their quadrature weights.
    weights, noise = walker.nodes(NOISE_VALUES)
    total = np.zeros(len(walker.weights))
    starts = np.flatnonzero(~kept_steps & (outputs >= 0))
    segment_ends = np.append(starts[1:], len(outputs))
    for start, end in zip(starts.tolist(), segment_ends.tolist(), strict=True):
        # The number of tests that accepted the report in this segment, and whether a test ended the segment instead of
        # the end of the data.
        kept_count, has_ended = int(kept_steps[start:end].sum()), end < len(outputs) and outputs[end] >= 0
        if kept_count or has_ended:
            # The probability that a test refuses the report, by record and value of the noise.
            renewal_rates = walker.renewals(int(outputs[start]), noise)
            with np.errstate(divide="ignore"):
                # Given the noise, the tests are independent: all accepted the report, and then one may have refused it.
                segment_probabilities = (
                    weights * (1.0 - renewal_rates) ** kept_count * (renewal_rates if has_ended else 1.0)
                ).sum(axis=1)
                total += np.maximum(np.log(segment_probabilities), _IMPOSSIBLE)
    return total


def _last_change(values: Sequence[float]) -> int:
    """Return the index from which on all values are equal to the last one."""
    return next((n for n in range(len(values) - 1, 0, -1) if values[n - 1] != values[-1]), 0)


def describe_attack(attack: Mapping[str, Any], noun: str = "place") -> str:
    """Return a sentence on how close the attacker's guess comes after one report, and after how many it is closest.

    Args:
        attack: The figures of `over_time`.
        noun: What readers call a record.
    """
    fresh, counts = attack["likelihood"]["fresh"], attack["reports"]
    (first_median, last_median), (first_p95, last_p95) = (
        (fresh[quantile][0], fresh[quantile][-1]) for quantile in ("median", "p95")
    )
    # The fewest reports after which guesses get no closer: "after 1,000" would hide that 10 suffice.
    median_step, p95_step = (_last_change(fresh[quantile]) for quantile in ("median", "p95"))
    half, last = f"{counts[median_step]:,}", f"{counts[max(median_step, p95_step)]:,}"

    def describe_miss(error: float) -> str:
        """Return a phrase for a guess that is wrong by at most ``error``, in the unit of distance."""
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
