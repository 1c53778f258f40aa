"""Attacks on many reports of one place: their mean, with and without bias, and the likeliest record (T5).

The attack is run against fresh reports, against one that is repeated (sticky), and against reports along a trace where
the release draws these, simulated from public data alone with a fixed seed: the same release, the same figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from attrs import frozen

from privopt.arrays import Bools, Floats, Ints
from privopt_metric_dp.attacks.hidden_markov import Mobility, Seen, attack_traces, simulated
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.traces.draw_trace import Walker

__all__ = ["MOST_REPORTS", "AttackLine", "bars_of", "likeliest", "lines_of", "over_time", "seen_of"]

MOST_REPORTS: Final = 1000
"""Reports of one place, where nothing else is asked for."""

PLACES: Final = 200
"""Places that are attacked, drawn by the prior."""

NODES: Final = 24
"""Values of a threshold's noise that its distribution is taken together in, by the attacker."""

_SEED: Final = 17
_IMPOSSIBLE: Final = -1e9


def over_time(
    release: MatrixRelease, data: MetricData, *, most: int = MOST_REPORTS, traces: bool = True
) -> dict[str, Any] | None:
    """Distances by which the attacker is off, in the unit of distance, by number of reports and by kind of report.

    Args:
        release: with a row for every record.
        data: the problem's.
        most: reports of one place, at most; powers of ten below it are tried too.
        traces: whether traces are attacked too, by a hidden Markov model.

    Returns:
        None where the release has not a row for every record.
    """
    if len(release.records) != data.shape[0]:
        return None
    chance = np.random.default_rng([_SEED, 1])  # another stream than that of reports
    places = chance.choice(data.shape[0], size=PLACES, p=data.prior / data.prior.sum())
    counts = sorted({10**power for power in range(10) if 10**power < most} | {most})
    seen = simulated(release, np.repeat(places[:, None], most, axis=1), _SEED)
    likelihood = {
        name: _spread(data.distance.between(places, likeliest(release, each, n)) for n in counts)
        for name, each in seen.items()
    }
    return {
        "unit": data.unit,
        "places": PLACES,
        "reports": counts,
        "likelihood": likelihood,
        "traces": attack_traces(release, data, Mobility.over(data.distance), _SEED) if traces else None,
    }


def _spread(errors: Iterable[Floats]) -> dict[str, list[float]]:
    """Median and 95th percentile of errors, one of each for every number of reports."""
    found = [np.quantile(each, [0.5, 0.95]).tolist() for each in errors]
    return {"median": [low for low, _ in found], "p95": [high for _, high in found]}


def likeliest(release: MatrixRelease, seen: Seen, count: int) -> Ints:
    """(P,) record whose law gives the first reports the greatest probability; the first among equals."""
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


def _tests(walker: Walker, outputs: Ints, kept: Bools) -> Floats:
    """(N,) log probability of what was kept and what was not at one place, by record; the threshold's noise summed."""
    weights, noise = walker.nodes(NODES)
    total = np.zeros(len(walker.weights))
    starts = np.flatnonzero(~kept & (outputs >= 0))
    ends = np.append(starts[1:], len(outputs))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        keeps, ended = int(kept[start:end].sum()), end < len(outputs) and outputs[end] >= 0
        if keeps or ended:
            renew = walker.renewals(int(outputs[start]), noise)
            with np.errstate(divide="ignore"):
                law = (weights * (1.0 - renew) ** keeps * (renew if ended else 1.0)).sum(axis=1)
                total += np.maximum(np.log(law), _IMPOSSIBLE)
    return total


@frozen
class AttackLine:
    """A line of the figure.

    Attributes:
        kind: of reports.
        median, p95: errors by number of reports.
    """

    kind: str
    median: Sequence[float]
    p95: Sequence[float]


def lines_of(found: Mapping[str, Any]) -> list[AttackLine]:
    """Return the lines of the figure, by kind of report."""
    return [AttackLine(kind, values["median"], values["p95"]) for kind, values in found["likelihood"].items()]


def seen_of(found: Mapping[str, Any]) -> str:
    """Say what fresh reports of one place tell."""
    fresh, unit, last = found["likelihood"]["fresh"], found["unit"], f"{found['reports'][-1]:,}"
    (early, late), (wide, narrow) = ((fresh[part][0], fresh[part][-1]) for part in ("median", "p95"))
    nearer = "" if late < early else " It comes no nearer."
    half = f"off by at most {early:.3g} {unit} in half of the places after 1 report, {late:.3g} after {last}"
    return f"Likeliest record: {half}; in 95 % of them {wide:.3g} and {narrow:.3g}.{nearer}"


def bars_of(traces: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """Return (reports, median, 95th percentile) of the attack on traces, of each bar of the figure."""
    return [(kind, each["median"], each["p95"]) for kind, each in traces.items() if isinstance(each, Mapping)]
