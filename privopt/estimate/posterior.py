"""The public channel of a release, and the probability of each record given one report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from privopt.arrays import Floats
from privopt.errors import UnknownNameError, UsageError
from privopt.estimate.shares import Estimate
from privopt.interfaces import Channel, NoisyCounts
from privopt.run.verify import Opened

Prior = Estimate | Mapping[str, float] | Sequence[float] | Floats | None
"""How likely each record is: an estimate, weights by id, (N,) weights; None for the problem's own, or uniform."""


def channel_of(opened: Opened) -> Channel | NoisyCounts:
    """Return the channel that a release makes public."""
    found: Channel | NoisyCounts | None = opened.mechanism.channel(opened.problem, opened.release)
    if found is None:
        name = opened.registered.spec.name
        raise UsageError(f"{opened.folder}: {name} has no channel to read reports by: its release is one result")
    return found


def prior_of(opened: Opened, given: Prior) -> Floats:
    """(N,) probabilities of the records."""
    channel = channel_of(opened)
    ids = list(channel.inputs)
    if given is None:
        own = channel.prior if isinstance(channel, Channel) else None
        weights = np.full(len(ids), 1.0) if own is None else own
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
    """(N,) probabilities of the true record, given one report.

    Raises:
        UnknownNameError: no output has that id.
        UsageError: no record of positive prior sends it, or the release publishes noisy counts.
    """
    channel = channel_of(opened)
    if not isinstance(channel, Channel):
        raise UsageError("a release of noisy counts says nothing of one person")
    weights, outputs = prior_of(opened, prior), list(channel.outputs)
    if report not in outputs:
        raise UnknownNameError("output", report, outputs)
    weights = weights * channel.probabilities[:, outputs.index(report)]
    total = float(weights.sum())
    if not total > 0:
        raise UsageError(f"report {report}: no record of positive prior sends it, so it says nothing")
    found: Floats = weights / total
    return found
