"""What a map shows of a metric problem: cells, lines, and how many other records the promise hides each among."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from privopt.arrays import Floats, Ints, slices
from privopt.interfaces import Result
from privopt.numbers.graphs import edge_matrix
from privopt_metric_dp.matrix.privacy import MetricDP
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.space.road_metric import RoadMetric

__all__ = ["cell_around", "hidden_among", "lines_between"]

BLOCK = 1 << 22
"""Path lengths that are held at once."""

LENGTH_MARGIN = 1e-9
"""By which path lengths and epsilon are taken larger: more than sums of doubles can be off by."""


def cell_around(places: Floats) -> tuple[float, float] | None:
    """Return width and height of the cells whose centres the places are; None where the places form no even grid.

    Args:
        places: (N, 2), where they are drawn.
    """
    sides = [np.unique(axis) for axis in places.round(6).T]
    if min(map(len, sides)) < 2 or len(np.unique(places.round(6), axis=0)) != len(places):
        return None
    steps = [np.diff(side) for side in sides]
    even = all(np.allclose(step, step[0], rtol=1e-3) for step in steps)
    whole = len(sides[0]) * len(sides[1]) == len(places)
    return (float(steps[0][0]), float(steps[1][0])) if even and whole else None


def lines_between(data: MetricData) -> Ints | None:
    """Return (E, 2) numbers of records that a street or a side of a triangle joins; None without streets or mesh."""
    if data.region is not None:
        return data.region.edges
    return data.metric.joined if isinstance(data.metric, RoadMetric) else None


def hidden_among(release: MatrixRelease, result: Result, odds: Sequence[int]) -> Ints | None:
    """Count (N, len(odds)) other records between which and each one no report changes the odds by more than a factor.

    The odds of two records change by at most exp(epsilon d) along each pair that the certificate checks, hence by
    exp(epsilon L) along a path of length L.

    Args:
        release: its pairs at their distances, a region's edges among them.
        result: what it claims.
        odds: the factors, in order.

    Returns:
        None without a promise of metric DP.
    """
    guarantee = result.guarantee
    if guarantee.kind != MetricDP.kind or guarantee.epsilon is None or result.mark:
        return None
    from scipy.sparse.csgraph import dijkstra

    unit = float(guarantee.epsilon) * (1.0 + LENGTH_MARGIN)
    limits = [math.log(factor) / unit for factor in odds]
    near = release.distances <= limits[-1]
    count = len(release.records)
    graph = edge_matrix(count, release.pairs[near], release.distances[near], both=True)
    found = np.zeros((count, len(limits)), dtype=np.int64)
    for rows in slices(count, count, BLOCK):
        lengths = dijkstra(graph, indices=np.arange(count)[rows], limit=limits[-1]) * (1.0 + LENGTH_MARGIN)
        found[rows] = np.stack([(lengths <= limit).sum(axis=1) for limit in limits], axis=1) - 1
    return found
