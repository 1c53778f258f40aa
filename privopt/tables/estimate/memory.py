"""Estimates and answers of a release in the hand: the same from tables in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl
from attrs import evolve

from privopt.arrays import Floats, Ints
from privopt.errors import UsageError
from privopt.interfaces import Channel, NoisyCounts, Progress
from privopt.metric.data import MetricData
from privopt.metric.problem import MetricInstance
from privopt.run.verify import Opened
from privopt.tables.estimate.answers import Nearest, nearest_of, places_of, posterior_of, radius_of
from privopt.tables.estimate.estimate import Asked, Estimate, estimate_of_counts
from privopt.tables.estimate.reports import count_all, groups_of
from privopt.tables.estimate.run import Batches, channel_of, estimate_batches
from privopt.tables.problems import frame_of, values_of

__all__ = ["Prior", "chances", "estimates", "nearest", "radius"]

Prior = Estimate | Mapping[str, float] | Sequence[float] | Floats | None
"""How likely each record is: an estimate, weights by id, (N,) weights; None for the problem's own, or uniform."""

REPORTS: Final = "reports"


def estimates(
    opened: Opened,
    reports: object,
    asked: Asked,
    *,
    column: str,
    subject: str | None = None,
    batch: str | None = None,
    by: Mapping[str, str] | None = None,
    also: Sequence[tuple[Opened, object]] = (),
    prior: Prior = None,
    progress: Progress | None = None,
) -> Batches:
    """Estimates by batch; see :meth:`privopt.tables.released.Released.estimate`.

    Raises:
        UsageError, InputError: what was given will not do.
    """
    channel = channel_of(opened)
    ids = list(channel.inputs)
    groups = None if by is None else _groups(by, ids)
    if prior is not None:
        asked = evolve(asked, prior=prior_of(opened, prior))
    if isinstance(channel, NoisyCounts):
        if also or batch or subject:
            raise UsageError("noisy counts: wanted one array of them, without also, batch or subject")
        counts = np.asarray(reports, dtype=np.float64)
        if counts.shape != (len(ids),) or not np.isfinite(counts).all():
            raise UsageError(f"{REPORTS}: wanted {len(ids)} finite numbers, one for each of {', '.join(ids[:3])}, ...")
        return Batches(estimates={"": estimate_of_counts(channel, counts, asked, groups=groups)})
    frames = [(channel, _frame(reports, column))]
    for other, given in also:
        another = channel_of(other)
        if not isinstance(another, Channel):
            raise UsageError("also: found a release that publishes noisy counts, wanted one that draws reports")
        frames.append((another, _frame(given, column)))
    tables = ((each, REPORTS, frame.columns, [frame]) for each, frame in frames)
    counted = count_all(tables, column=column, subject=subject, batch=batch)
    return estimate_batches(counted, opened, asked, groups, progress, subjects=subject is not None)


def _frame(reports: object, column: str) -> pl.DataFrame:
    reports = values_of(reports)
    if isinstance(reports, (list, tuple, np.ndarray)):
        reports = {column: np.asarray(reports, dtype=object).ravel().tolist()}
    return pl.DataFrame(frame_of(reports, REPORTS).to_polars())


def _groups(by: Mapping[str, str], ids: Sequence[str]) -> dict[str, Ints]:
    if not isinstance(by, Mapping):
        raise UsageError(f"by: found {type(by).__name__}, wanted a mapping from each record's id to its group")
    named = {str(name): group for name, group in by.items()}
    wrong = sorted(set(named) ^ set(ids))
    if wrong or not all(isinstance(group, str) for group in named.values()):
        shown = ", ".join(wrong[:3]) if wrong else next(repr(g) for g in named.values() if not isinstance(g, str))
        raise UsageError(
            f"by: see {shown}; wanted a group for each record by its id, and for no other: {{{ids[0]!r}: 'a', ...}}"
        )
    return groups_of({place: named[name] for place, name in enumerate(ids)})


def prior_of(opened: Opened, given: Prior) -> Floats:
    """(N,) probabilities of the records.

    Raises:
        UsageError: weights of other records, or that are none.
    """
    ids = list(channel_of(opened).inputs)
    if given is None:
        problem = opened.problem
        own = isinstance(problem, MetricInstance) and len(problem.data.prior) == len(ids)
        weights = problem.data.prior if own else np.full(len(ids), 1.0)
    elif isinstance(given, Estimate):
        given = dict(zip(given.ids, given.shares.tolist(), strict=True))
    if isinstance(given, Mapping):
        missing = [name for name in ids if name not in given]
        if missing or len(given) != len(ids):
            raise UsageError(f"prior: wanted a weight for each of the {len(ids)} records and for nothing else")
        given = [given[name] for name in ids]
    if given is not None:
        try:
            weights = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise UsageError(f"prior: wanted {len(ids)} numbers, found something else among them") from None
    if weights.shape != (len(ids),) or not (weights >= 0).all() or not 0 < weights.sum() < np.inf:
        raise UsageError(f"prior: wanted {len(ids)} weights of at least 0 with a finite sum above 0")
    made: Floats = weights / weights.sum()
    return made


def chances(opened: Opened, report: str, prior: Prior) -> Floats:
    """(N,) probabilities of the true record, given one report."""
    channel = channel_of(opened)
    if not isinstance(channel, Channel):
        raise UsageError("a release of noisy counts says nothing of one person")
    return posterior_of(channel, report, prior_of(opened, prior))


def _data(opened: Opened) -> MetricData:
    if not isinstance(opened.problem, MetricInstance):
        raise UsageError("places: wanted a release over records with distances")
    data: MetricData = opened.problem.data
    if len(data.records) != len(channel_of(opened).inputs):
        raise UsageError("places: wanted a release with a row for every record")
    return data


def nearest(opened: Opened, report: str, places: object, k: int, prior: Prior) -> Nearest:
    """The k places likeliest to be nearest; see :meth:`privopt.tables.released.Released.nearest`."""
    posterior = chances(opened, report, prior)
    ids, distances, _ = places_of(places, _data(opened))
    return nearest_of(posterior, distances, ids, k)


def radius(opened: Opened, report: str, places: object, confidence: float, prior: Prior) -> float:
    """How far around a report to ask; see :meth:`privopt.tables.released.Released.radius`.

    Raises:
        UsageError: outputs that lie nowhere.
    """
    posterior = chances(opened, report, prior)
    data = _data(opened)
    at = list(data.outputs.ids).index(report)
    if places is None:
        return radius_of(posterior, data.to_outputs[:, at], confidence)
    _, distances, from_outputs = places_of(places, data)
    if from_outputs is None:
        raise UsageError("places: wanted outputs that lie somewhere, so that one can ask around a report")
    return radius_of(posterior, from_outputs[at][distances.argmin(axis=1)], confidence)
