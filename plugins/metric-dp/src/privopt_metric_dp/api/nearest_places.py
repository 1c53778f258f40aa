"""Answers about one report: the true place's probabilities, and what is near it.

All is Bayes: the truth is record i with probability proportional to p_i z_ik, given report k and a prior p.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats
from privopt.declare.problems_in_memory import frame_of
from privopt.errors import UsageError, check_number
from privopt.estimate.posterior import Prior, chances, channel_of
from privopt.numbers.distances import haversine
from privopt.run.verify import Opened
from privopt_metric_dp.problem.data import MetricData, MetricInstance
from privopt_metric_dp.problem.read_points import COORDINATES

__all__ = ["Nearest", "nearest", "nearest_of", "places_of", "radius", "radius_of"]

SLACK: Final = 1e-12


@frozen(kw_only=True)
class Nearest:
    """The answer to: which of these places is nearest?

    Attributes:
        places: ids, the likeliest to be nearest first.
        chances: of each, that it is the true nearest.
        probability: that the true nearest is among them.
    """

    places: tuple[str, ...]
    chances: tuple[float, ...]
    probability: float


def nearest_of(posterior: Floats, distances: Floats, ids: list[str], k: int) -> Nearest:
    """Return the k places likeliest to be the nearest one, with the probability that it is among them.

    Args:
        posterior: (N,) of the true record.
        distances: (N, M) from records to places; of several at the same distance the first is the nearest.
        ids: (M,) of the places.
        k: how many to answer with, from 1 to M.
    """
    if not isinstance(k, (int, np.integer)) or not 1 <= k <= len(ids):
        raise UsageError(f"k: found {k}, wanted a whole number from 1 to {len(ids)}, the places there are")
    chance = np.bincount(distances.argmin(axis=1), weights=posterior, minlength=len(ids))
    best = np.argsort(-chance, kind="stable")[:k]
    return Nearest(
        places=tuple(ids[at] for at in best.tolist()),
        chances=tuple(chance[best].tolist()),
        probability=min(1.0, float(chance[best].sum())),
    )


def radius_of(posterior: Floats, reach: Floats, confidence: float) -> float:
    """Return the least radius to ask for, so that what is wanted lies inside with the confidence.

    Args:
        posterior: (N,) of the true record.
        reach: (N,) how far around the report one must ask where that record is the truth: the distance from the report
            to the record, or to the record's nearest place.
        confidence: in (0, 1).
    """
    check_number("confidence", confidence, "a number between 0 and 1")
    if not 0 < confidence < 1:
        raise UsageError(f"confidence: found {confidence:g}, wanted a number between 0 and 1")
    order = np.argsort(reach, kind="stable")
    inside = np.cumsum(posterior[order])
    at = int(np.searchsorted(inside, confidence - SLACK))
    return float(reach[order[min(at, len(order) - 1)]])


def places_of(given: object, data: MetricData) -> tuple[list[str], Floats, Floats | None]:
    """Places that somebody asks for.

    Args:
        given: a sequence of ids of records; or a table with columns id and lat, lon (degrees) or x, y (km), as the
            records have them: then distances are as the crow flies.
        data: the problem's.

    Returns:
        Their ids, (N, M) distances from the records, and (K, M) from the outputs; None where outputs lie nowhere.
    """
    if isinstance(given, (list, tuple)) and all(isinstance(name, str) for name in given):
        known = {name: row for row, name in enumerate(data.records.ids)}
        unknown = next((name for name in given if name not in known), None)
        if unknown is not None or not given:
            raise UsageError(f"places: found {unknown!r}, wanted ids of records, one at least")
        _check_once(given)
        rows = np.array([known[name] for name in given])
        outputs = data.metric.to_outputs(rows).T if data.crossed else None
        return list(given), data.metric.rows(rows).T, outputs
    frame = frame_of(given, "places")
    places, kind = data.records.on_map, data.records.kind
    if places is None:
        raise UsageError("places: found a table, wanted ids of records: the records lie on no map")
    ends = COORDINATES[kind]
    missing = [name for name in ("id", *ends) if name not in frame.columns]
    if missing or not len(frame):
        raise UsageError(f"places: found columns {', '.join(frame.columns)}, wanted id, {', '.join(ends)}, and a row")
    try:
        points = np.array([frame[name].to_numpy() for name in ends], dtype=np.float64).T
    except (TypeError, ValueError):
        points = np.full((1, 2), np.nan)
    if not np.isfinite(points).all():
        raise UsageError("places: found coordinates that are no numbers, wanted finite ones")
    ids = [str(name) for name in frame["id"].to_list()]
    _check_once(ids)
    far = None if data.outputs.coordinates is None else _apart(data.outputs.coordinates, points, kind)
    return ids, _apart(places, points, kind), far


def _check_once(ids: Sequence[str]) -> None:
    twice = next((name for name, times in Counter(ids).items() if times > 1), None)
    if twice is not None:
        raise UsageError(f"places: found {twice!r} twice, wanted each once")


def _apart(one: Floats, other: Floats, kind: str) -> Floats:
    """(N, M) kilometres as the crow flies."""
    if kind == "geographic":
        made: Floats = haversine(one[:, None, :], other[None, :, :])
        return made
    return np.hypot(one[:, None, 0] - other[None, :, 0], one[:, None, 1] - other[None, :, 1])


def _data(opened: Opened) -> MetricData:
    if not isinstance(opened.problem, MetricInstance):
        raise UsageError("places: wanted a release over records with distances")
    data: MetricData = opened.problem.data
    if len(data.records) != len(channel_of(opened).inputs):
        raise UsageError("places: wanted a release with a row for every record")
    return data


def nearest(opened: Opened, report: str, places: object, k: int, prior: Prior) -> Nearest:
    """Return the k places likeliest to be nearest; see the release's own ``nearest``."""
    posterior = chances(opened, report, prior)
    ids, distances, _ = places_of(places, _data(opened))
    return nearest_of(posterior, distances, ids, k)


def radius(opened: Opened, report: str, places: object, confidence: float, prior: Prior) -> float:
    """How far around a report to ask; see the release's own ``radius``."""
    posterior = chances(opened, report, prior)
    data = _data(opened)
    at = list(data.outputs.ids).index(report)
    if places is None:
        return radius_of(posterior, data.to_outputs[:, at], confidence)
    _, distances, from_outputs = places_of(places, data)
    if from_outputs is None:
        raise UsageError("places: wanted outputs that lie somewhere, so that one can ask around a report")
    return radius_of(posterior, from_outputs[at][distances.argmin(axis=1)], confidence)
