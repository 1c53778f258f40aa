"""Rows that users with weights of their own draw from: made beside the published ones, and held to them."""

from __future__ import annotations

import numpy as np
from attrs import evolve

from privopt.numbers.sampling import TOTAL
from privopt_lr_geo.private import own_row
from privopt_lr_geo.problem import LRGeoInstance
from privopt_lr_geo.release import LRGeoRelease
from privopt_metric_dp.matrix.release import MatrixRelease

__all__ = ["unlike_own", "with_own_rows"]


def with_own_rows(
    problem: LRGeoInstance, release: LRGeoRelease
) -> tuple[LRGeoRelease, dict[str, dict[str, float]] | None]:
    """A release with the rows that users with weights of their own draw from, and what these cost: both private."""
    band, costs = problem.band, problem.costs
    if band is None:
        return release, None
    rows, losses = release.weights.copy(), {}
    for row, user in enumerate(release.records.tolist()):
        if user in costs:
            given = release.weights[row]
            rows[row] = own_row(given, costs[user], band)
            kept, moved = (float(costs[user] @ w.astype(np.float64)) / TOTAL for w in (given, rows[row]))
            losses[user] = {"own_row": moved, "published_row": kept}
    own = MatrixRelease(
        weights=rows,
        records=release.records,
        outputs=release.outputs,
        pairs=release.pairs[:0],
        distances=release.distances[:0],
    )
    return evolve(release, own=own), losses


def unlike_own(problem: LRGeoInstance, release: LRGeoRelease) -> list[str]:
    """Rows of the users' own against the published ones; nothing to say where private/ is gone."""
    own, where = release.own, "private/mechanism.npz"
    if own is None:
        return []
    if problem.band is None:
        return [f"{where}: rows of the users' own, which the problem has no weights for"]
    if not (np.array_equal(own.records, release.records) and np.array_equal(own.outputs, release.outputs)):
        return [f"{where}: records and outputs are not those of mechanism.npz"]
    rows = zip(own.records.tolist(), own.weights, release.weights, strict=True)
    off = [user for user, row, reference in rows if not problem.band.holds(row, reference)]
    return [f"{where}: weights: row {user} lies beyond what the promise allows" for user in off[:5]]
