"""A maximum-likelihood attack on many reports of one place.

It attacks fresh reports, a report that is repeated (sticky), and, if the release draws them, reports along a trace. The
reports are simulated from public data with a fixed seed, so a release always gets the same figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
from attrs import frozen

from privopt.arrays import Bools, Floats, Ints
from privopt.numbers.sampling import draw_each, seeded
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.traces.draw_trace import Limit, State, Walker

__all__ = ["MAX_REPORTS", "ObservedReports", "describe_attack", "guess_records", "over_time"]

MAX_REPORTS: Final = 1000
"""Default number of reports of one place."""

ATTACKED_PLACES: Final = 200
"""Number of places that are attacked, drawn from the prior."""

NOISE_VALUES: Final = 24
"""Number of quadrature points with which the attacker integrates over the noise of a threshold."""

_RANDOM_SEED: Final = 17
_IMPOSSIBLE: Final = -1e9


@frozen(kw_only=True, eq=False)
class ObservedReports:
    """Reports of places (M) at several times (T), as the attacker sees them.

    Attributes:
        outputs: (M, T) numbers of outputs, -1 for none.
        kept: (M, T) whether an earlier one was sent again.
    """

    outputs: Ints
    kept: Bools


def simulate_reports(release: MatrixRelease, places: Ints, count: int, seed: int) -> dict[str, ObservedReports]:
    """Simulate reports of each place (M,), by kind: fresh, repeated, and the release's own along traces."""
    kinds: dict[str, Callable[..., ObservedReports]] = {"fresh": _simulate_fresh, "sticky": _simulate_sticky}
    if release.walker is not None:
        kinds["predicted"] = _simulate_predicted
    return {name: draw(release, places, count, seed) for name, draw in kinds.items()}


def _simulate_fresh(release: MatrixRelease, places: Ints, count: int, seed: int) -> ObservedReports:
    outputs = draw_each(release.weights, np.repeat(places, count), source=seeded(seed)).reshape(-1, count)
    return ObservedReports(outputs=outputs, kept=np.zeros(outputs.shape, dtype=np.bool_))


def _simulate_sticky(release: MatrixRelease, places: Ints, count: int, seed: int) -> ObservedReports:
    """Return the first report again and again."""
    outputs = np.repeat(draw_each(release.weights, places, source=seeded(seed))[:, None], count, axis=1)
    return ObservedReports(outputs=outputs, kept=np.broadcast_to(np.arange(count) > 0, outputs.shape))


def _simulate_predicted(release: MatrixRelease, places: Ints, count: int, seed: int) -> ObservedReports:
    walker = release.walker
    assert walker is not None  # asked before
    walks, subjects = np.repeat(places, count), np.repeat(np.arange(len(places)), count)
    trace = walker.walk(walks, subjects, State(), charge=Limit(walker.terms.total), source=seeded(seed))
    return ObservedReports(outputs=trace.outputs.reshape(-1, count), kept=trace.kept.reshape(-1, count))


def over_time(release: MatrixRelease, data: MetricData, *, max_reports: int = MAX_REPORTS) -> dict[str, Any] | None:
    """Return the attacker's errors in the unit of distance, by kind and number of reports.

    Args:
        release: a release with a row for every record.
        data: the problem's data.
        max_reports: largest number of reports of one place; powers of ten below it are tried as well.

    Returns:
        The figures, or None if the release has no row for some record.
    """
    if len(release.records) != data.shape[0]:
        return None
    generator = np.random.default_rng([_RANDOM_SEED, 1])  # another stream than that of reports
    places = generator.choice(data.shape[0], size=ATTACKED_PLACES, p=data.prior / data.prior.sum())
    counts = sorted({10**power for power in range(10) if 10**power < max_reports} | {max_reports})
    reports_by_kind = simulate_reports(release, places, max_reports, _RANDOM_SEED)
    likelihood = {
        name: _summarize_errors(data.distance.between(places, guess_records(release, reports, n)) for n in counts)
        for name, reports in reports_by_kind.items()
    }
    return {
        "unit": data.unit,
        "places": ATTACKED_PLACES,
        "reports": counts,
        "likelihood": likelihood,
    }


def _summarize_errors(errors: Iterable[Floats]) -> dict[str, list[float]]:
    """Return the median and the 95th percentile of the errors for each number of reports."""
    quantiles = [np.quantile(distances, [0.5, 0.95]).tolist() for distances in errors]
    return {"median": [median for median, _ in quantiles], "p95": [percentile for _, percentile in quantiles]}


def guess_records(release: MatrixRelease, observed: ObservedReports, count: int) -> Ints:
    """Return the records (P,) under which the first ``count`` reports are most likely; the first one on a tie."""
    z = release.probabilities
    logs = np.where(z > 0, np.log(np.where(z > 0, z, 1.0)), _IMPOSSIBLE)
    outputs, kept = observed.outputs[:, :count], observed.kept[:, :count]
    is_fresh = ~kept & (outputs >= 0)
    counts = np.zeros((len(outputs), z.shape[1]))
    np.add.at(counts, (np.nonzero(is_fresh)[0], outputs[is_fresh]), 1.0)
    scores = counts @ logs.T
    if release.walker is not None and kept.any() and (~kept[:, 1:]).any():
        scores += np.array([_log_probability_of_tests(release.walker, *row) for row in zip(outputs, kept, strict=True)])
    return np.asarray(scores.argmax(axis=1))


def _log_probability_of_tests(walker: Walker, outputs: Ints, kept_steps: Bools) -> Floats:
    """(N,) log probability of what was kept and what was not at one place, by record; the threshold's noise summed."""
    weights, noise = walker.nodes(NOISE_VALUES)
    total = np.zeros(len(walker.weights))
    starts = np.flatnonzero(~kept_steps & (outputs >= 0))
    segment_ends = np.append(starts[1:], len(outputs))
    for start, end in zip(starts.tolist(), segment_ends.tolist(), strict=True):
        kept_count, has_ended = int(kept_steps[start:end].sum()), end < len(outputs) and outputs[end] >= 0
        if kept_count or has_ended:
            renewal_rates = walker.renewals(int(outputs[start]), noise)
            with np.errstate(divide="ignore"):
                segment_law = (
                    weights * (1.0 - renewal_rates) ** kept_count * (renewal_rates if has_ended else 1.0)
                ).sum(axis=1)
                total += np.maximum(np.log(segment_law), _IMPOSSIBLE)
    return total


def describe_attack(attack: Mapping[str, Any]) -> str:
    """Describe what fresh reports of one place reveal."""
    fresh, unit, last = attack["likelihood"]["fresh"], attack["unit"], f"{attack['reports'][-1]:,}"
    (first_median, last_median), (first_p95, last_p95) = (
        (fresh[quantile][0], fresh[quantile][-1]) for quantile in ("median", "p95")
    )
    nearer = "" if last_median < first_median or last_p95 < first_p95 else " It comes no nearer."
    medians = (
        f"off by at most {first_median:.3g} {unit} in half of the places after 1 report, {last_median:.3g} after {last}"
    )
    return f"Likeliest record: {medians}; in 95 % of them {first_p95:.3g} and {last_p95:.3g}.{nearer}"
