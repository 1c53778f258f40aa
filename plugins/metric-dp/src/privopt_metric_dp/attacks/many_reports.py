"""What an attacker gets of many reports of one place: their mean, its bias taken off, the likeliest record (T5).

Attacks are run against fresh reports, against one that is repeated (sticky), and against reports along a trace where
the release draws these. They are simulated from public data alone with a fixed seed: the same release, the same
figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from attrs import frozen

from privopt.arrays import Bools, Floats, Ints
from privopt.numbers.distances import directions, haversine
from privopt_metric_dp.attacks.hidden_markov import Mobility, Seen, attack_traces, simulated
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.space.places import Space
from privopt_metric_dp.traces.draw_trace import Walker

__all__ = [
    "MOST_REPORTS",
    "AttackLine",
    "bars_of",
    "likeliest",
    "lines_of",
    "mean_guess",
    "over_time",
    "seen_of",
    "unbiased",
]

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
    """Distances by which attackers are off, in the unit of distance, by number of reports and by kind of report.

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
    found: dict[str, Any] = {"unit": data.unit, "places": PLACES, "reports": counts, "mean": None, "unbiased": None}
    if data.outputs.coordinates is not None and data.records.coordinates is not None:
        found["mean"] = {
            name: _spread(_mean_errors(data, places, each.outputs[:, :n]) for n in counts)
            for name, each in seen.items()
        }
        mean_of = release.probabilities @ _points(data.outputs)
        found["unbiased"] = {
            name: _spread(
                data.distance.between(places, unbiased(each.outputs[:, :n], data.outputs, mean_of)) for n in counts
            )
            for name, each in seen.items()
        }
    found["likelihood"] = {
        name: _spread(data.distance.between(places, likeliest(release, each, n)) for n in counts)
        for name, each in seen.items()
    }
    found["traces"] = attack_traces(release, data, Mobility.over(data.distance), _SEED) if traces else None
    return found


def _spread(errors: Iterable[Floats]) -> dict[str, list[float]]:
    """Median and 95th percentile of errors, one of each for every number of reports."""
    found = [np.quantile(each, [0.5, 0.95]).tolist() for each in errors]
    return {"median": [low for low, _ in found], "p95": [high for _, high in found]}


# --- attacks -------------------------------------------------------------------------------------------


def mean_guess(outputs: Ints, space: Space) -> Floats:
    """(P, axes) mean of the places of reports (P, n); on the globe that of directions.

    Args:
        outputs: numbers of outputs, -1 for none.
        space: of the outputs, with coordinates.
    """
    mean = _mean(outputs, _points(space))
    if space.kind != "geographic":
        return mean
    x, y, z = mean.T
    return np.asarray(np.degrees(np.column_stack([np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x)])))


def unbiased(outputs: Ints, space: Space, mean_of: Floats) -> Ints:
    """(P,) record whose mean report is nearest to the mean of reports (P, n): what the map's edge does is taken off.

    Args:
        outputs: numbers of outputs, -1 for none.
        space: of the outputs, with coordinates.
        mean_of: (N, axes) mean report of each record; on the globe of directions.
    """
    from scipy.spatial import KDTree

    return np.asarray(KDTree(mean_of).query(_mean(outputs, _points(space)))[1], dtype=np.int64)


def _points(space: Space) -> Floats:
    """(K, axes) coordinates in which means are taken: on the globe directions."""
    assert space.coordinates is not None  # whoever asks has looked
    return directions(space.coordinates) if space.kind == "geographic" else space.coordinates


def _mean(outputs: Ints, points: Floats) -> Floats:
    there = (outputs >= 0)[..., None]
    return np.asarray((points[np.maximum(outputs, 0)] * there).sum(axis=1) / there.sum(axis=1))


def _mean_errors(data: MetricData, places: Ints, outputs: Ints) -> Floats:
    assert data.records.coordinates is not None  # over_time has looked
    guess, true = mean_guess(outputs, data.outputs), data.records.coordinates[places]
    if data.records.kind == "geographic":
        return np.asarray(haversine(guess, true))
    return np.asarray(np.linalg.norm(guess - true, axis=1), dtype=np.float64)


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
        attack: in words.
        kind: of reports.
        median, p95: errors by number of reports.
    """

    attack: str
    kind: str
    median: Sequence[float]
    p95: Sequence[float]


def lines_of(found: Mapping[str, Any]) -> list[AttackLine]:
    """Return the lines of the figure, by attack and kind of report."""
    attacks = {"mean": "mean of reports", "unbiased": "mean, bias off", "likelihood": "likeliest record"}
    return [
        AttackLine(attack, kind, values["median"], values["p95"])
        for name, attack in attacks.items()
        for kind, values in (found[name] or {}).items()
    ]


def seen_of(found: Mapping[str, Any]) -> list[str]:
    """Say what fresh reports of one place tell: a sentence for each attack."""
    last, unit = f"{found['reports'][-1]:,}", found["unit"]
    said = []
    for line in (line for line in lines_of(found) if line.kind == "fresh"):
        (early, late), (wide, narrow) = ((errors[0], errors[-1]) for errors in (line.median, line.p95))
        nearer = "" if late < early else " It comes no nearer."
        half = f"off by at most {early:.3g} {unit} in half of the places after 1 report, {late:.3g} after {last}"
        said.append(f"{line.attack.capitalize()}: {half}; in 95 % of them {wide:.3g} and {narrow:.3g}.{nearer}")
    return said


def bars_of(traces: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """(reports, median, 95th percentile) of the attack on traces, of each bar of the figure."""
    return [(kind, each["median"], each["p95"]) for kind, each in traces.items() if isinstance(each, Mapping)]
