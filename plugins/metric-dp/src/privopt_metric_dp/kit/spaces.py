"""Finite metric spaces for generated problems, with distances that the kit computes itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from privopt.arrays import doubles
from privopt.numbers.distances import EARTH_RADIUS_KM

__all__ = ["MetricSpace", "close_paths", "from_edges", "from_points", "grid"]

Edge = tuple[int, int, float]
"""A road: the indices of the two points that it joins, and its length in km."""


@frozen(kw_only=True, eq=False)
class MetricSpace:
    """A finite metric space: a few points and the distances between them.

    Attributes:
        shape: The name of the shape (:data:`privopt_metric_dp.kit.strategies.SHAPES`).
        kind: The ``distance.kind`` in a problem file with these distances.
        distances: (N, N) the distances, which are infinite if no path joins two points.
        coordinates: Each point's (x, y) in km or (lat, lon) in degrees; empty if the kind has no coordinates.
        edges: Roads (from, to, km) between points if the kind is "graph"; otherwise empty.
        cells: For a regular grid, its rows, its columns and the side of a cell in km; otherwise None.
    """

    shape: str
    kind: Literal["euclidean", "haversine", "graph", "matrix"]
    distances: NDArray[np.float64] = field(converter=doubles)
    coordinates: tuple[tuple[float, float], ...] = ()
    edges: tuple[Edge, ...] = ()
    cells: tuple[int, int, float] | None = None

    def __len__(self) -> int:
        return len(self.distances)

    def __repr__(self) -> str:
        return f"MetricSpace({self.shape}, {self.distances.tolist()})"

    @property
    def lengths(self) -> list[float]:
        """The distinct finite distances above 0, in ascending order."""
        return sorted({d for d in self.distances.ravel().tolist() if 0 < d < math.inf})


def grid(rows: int, cols: int, cell_km: float) -> MetricSpace:
    """Return the space that consists of a regular grid's cells, row by row; ``cell_km`` is the side of a cell in km.

    >>> grid(1, 2, 0.5).distances.tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    """
    spots = [(col * cell_km, row * cell_km) for row in range(rows) for col in range(cols)]
    space = from_points(spots, "euclidean")
    return MetricSpace(
        shape="grid",
        kind="euclidean",
        distances=space.distances,
        coordinates=space.coordinates,
        cells=(rows, cols, cell_km),
    )


def _great_circle_km(start: tuple[float, float], end: tuple[float, float]) -> float:
    """Return the great-circle distance in km between two places (lat, lon) in degrees, with the haversine formula."""
    # This uses only the standard library, so that the kit can find faults in privopt's own distances.
    (a, b), (c, d) = (tuple(map(math.radians, spot)) for spot in (start, end))
    h = math.sin((c - a) / 2) ** 2 + math.cos(a) * math.cos(c) * math.sin((d - b) / 2) ** 2
    return 2 * EARTH_RADIUS_KM * math.asin(math.sqrt(min(1.0, h)))


def from_points(spots: Sequence[tuple[float, float]], kind: Literal["euclidean", "haversine"]) -> MetricSpace:
    """Return the space that consists of points in the plane (x, y in km) or on the globe (lat, lon in degrees).

    Distances are the lengths of straight lines or great circles, in km.
    """
    measure = math.dist if kind == "euclidean" else _great_circle_km
    table = np.array([[measure(a, b) for b in spots] for a in spots])
    return MetricSpace(shape="points", kind=kind, distances=table, coordinates=tuple(spots))


def close_paths(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the lengths (N, N) of shortest paths over a symmetric table's entries, with the Floyd-Warshall algorithm.

    This is the largest table, nowhere above the given one, that satisfies the triangle inequality.
    """
    table = np.array(table, dtype=np.float64)
    for middle in range(len(table)):
        table = np.minimum(table, table[:, middle, None] + table[None, middle, :])
    return table


def from_edges(count: int, edges: Sequence[Edge], shape: str) -> MetricSpace:
    """Return the space whose distances are shortest paths over undirected roads between ``count`` points.

    Args:
        count: The number of points. A point without roads is infinitely far from the others.
        edges: Two points and a length in km for each road. Of several roads between two points, the shortest counts.
        shape: The name of the space's shape.
    """
    table = np.full((count, count), math.inf)
    np.fill_diagonal(table, 0.0)
    for a, b, length in edges:
        table[a, b] = table[b, a] = min(table[a, b], length)
    return MetricSpace(shape=shape, kind="graph", distances=close_paths(table), edges=tuple(edges))
