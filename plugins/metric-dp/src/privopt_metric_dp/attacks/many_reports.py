"""An attack on many reports of one place: the record that is likeliest under the release's probabilities (T5).

The attack is run against fresh reports, against one that is repeated (sticky), and against reports along a trace where
the release draws these, simulated from public data alone with a fixed seed: the same release, the same figures.
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

__all__ = ["MOST_REPORTS", "ObservedReports", "likeliest", "over_time", "seen_of"]

MOST_REPORTS: Final = 1000
"""Reports of one place, where nothing else is asked for."""

ATTACKED_PLACES: Final = 200
"""Places that are attacked, drawn by the prior."""

NOISE_VALUES: Final = 24
"""Values of a threshold's noise that its distribution is taken together in, by the attacker."""

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


def simulated(release: MatrixRelease, places: Ints, count: int, seed: int) -> dict[str, ObservedReports]:
    """Simulate reports of each place (M,), by kind: fresh, repeated, and the release's own along traces."""
    kinds: dict[str, Callable[..., ObservedReports]] = {"fresh": _fresh, "sticky": _sticky}
    if release.walker is not None:
        kinds["predicted"] = _predicted
    return {name: draw(release, places, count, seed) for name, draw in kinds.items()}


def _fresh(release: MatrixRelease, places: Ints, count: int, seed: int) -> ObservedReports:
    outputs = draw_each(release.weights, np.repeat(places, count), source=seeded(seed)).reshape(-1, count)
    return ObservedReports(outputs=outputs, kept=np.zeros(outputs.shape, dtype=np.bool_))


def _sticky(release: MatrixRelease, places: Ints, count: int, seed: int) -> ObservedReports:
    """Return the first report again and again."""
    outputs = np.repeat(draw_each(release.weights, places, source=seeded(seed))[:, None], count, axis=1)
    return ObservedReports(outputs=outputs, kept=np.broadcast_to(np.arange(count) > 0, outputs.shape))


def _predicted(release: MatrixRelease, places: Ints, count: int, seed: int) -> ObservedReports:
    walker = release.walker
    assert walker is not None  # asked before
    walks, subjects = np.repeat(places, count), np.repeat(np.arange(len(places)), count)
    drawn = walker.walk(walks, subjects, State(), charge=Limit(walker.terms.total), source=seeded(seed))
    return ObservedReports(outputs=drawn.outputs.reshape(-1, count), kept=drawn.kept.reshape(-1, count))


def over_time(release: MatrixRelease, data: MetricData, *, max_reports: int = MOST_REPORTS) -> dict[str, Any] | None:
    """Return distances by which the attacker is off, in the unit of distance, by number and kind of reports.

    Args:
        release: with a row for every record.
        data: the problem's.
        max_reports: reports of one place, at most; powers of ten below it are tried too.

    Returns:
        None where the release has not a row for every record.
    """
    if len(release.records) != data.shape[0]:
        return None
    chance = np.random.default_rng([_RANDOM_SEED, 1])  # another stream than that of reports
    places = chance.choice(data.shape[0], size=ATTACKED_PLACES, p=data.prior / data.prior.sum())
    counts = sorted({10**power for power in range(10) if 10**power < max_reports} | {max_reports})
    seen = simulated(release, places, max_reports, _RANDOM_SEED)
    likelihood = {
        name: _spread(data.distance.between(places, likeliest(release, each, n)) for n in counts)
        for name, each in seen.items()
    }
    return {
        "unit": data.unit,
        "places": ATTACKED_PLACES,
        "reports": counts,
        "likelihood": likelihood,
    }


def _spread(errors: Iterable[Floats]) -> dict[str, list[float]]:
    """Median and 95th percentile of errors, one of each for every number of reports."""
    found = [np.quantile(each, [0.5, 0.95]).tolist() for each in errors]
    return {"median": [low for low, _ in found], "p95": [high for _, high in found]}


def likeliest(release: MatrixRelease, seen: ObservedReports, count: int) -> Ints:
    """Return the record (P,) whose law gives the first reports the greatest probability; the first among equals."""
    z = release.probabilities
    logs = np.where(z > 0, np.log(np.where(z > 0, z, 1.0)), _IMPOSSIBLE)
    outputs, kept = seen.outputs[:, :count], seen.kept[:, :count]
    fresh = ~kept & (outputs >= 0)
    counts = np.zeros((len(outputs), z.shape[1]))
    np.add.at(counts, (np.nonzero(fresh)[0], outputs[fresh]), 1.0)
    scores = counts @ logs.T
    if release.walker is not None and kept.any() and (~kept[:, 1:]).any():
        scores += np.array([_tests(release.walker, *each) for each in zip(outputs, kept, strict=True)])
    return np.asarray(scores.argmax(axis=1))


def _tests(walker: Walker, outputs: Ints, kept_steps: Bools) -> Floats:
    """(N,) log probability of what was kept and what was not at one place, by record; the threshold's noise summed."""
    weights, noise = walker.nodes(NOISE_VALUES)
    total = np.zeros(len(walker.weights))
    starts = np.flatnonzero(~kept_steps & (outputs >= 0))
    ends = np.append(starts[1:], len(outputs))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        keeps, ended = int(kept_steps[start:end].sum()), end < len(outputs) and outputs[end] >= 0
        if keeps or ended:
            renew = walker.renewals(int(outputs[start]), noise)
            with np.errstate(divide="ignore"):
                law = (weights * (1.0 - renew) ** keeps * (renew if ended else 1.0)).sum(axis=1)
                total += np.maximum(np.log(law), _IMPOSSIBLE)
    return total


def seen_of(attack: Mapping[str, Any]) -> str:
    """Describe what fresh reports of one place reveal."""
    fresh, unit, last = attack["likelihood"]["fresh"], attack["unit"], f"{attack['reports'][-1]:,}"
    (early, late), (wide, narrow) = ((fresh[part][0], fresh[part][-1]) for part in ("median", "p95"))
    nearer = "" if late < early or narrow < wide else " It comes no nearer."
    half = f"off by at most {early:.3g} {unit} in half of the places after 1 report, {late:.3g} after {last}"
    return f"Likeliest record: {half}; in 95 % of them {wide:.3g} and {narrow:.3g}.{nearer}"
