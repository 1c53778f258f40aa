"""Finite metric spaces for generated problems, with distances computed independently of privopt's own code."""

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
"""The indices of the two points connected by a road, and the road's length in km."""


@frozen(kw_only=True, eq=False)
class MetricSpace:
    """A finite metric space: a few points and the distances between them.

    Attributes:
        shape: The name of the shape, which is one of :data:`privopt_metric_dp.kit.strategies.SHAPES`.
        kind: The value of ``distance.kind`` in a problem file that uses these distances.
        distances: Array of shape (n_points, n_points) with the distances, which are infinite between points that are
            not connected by a path.
        coordinates: Each point's (x, y) in km or (lat, lon) in degrees. Empty if ``kind`` is "graph" or "matrix".
        edges: The roads between points as (from, to, km). Empty unless ``kind`` is "graph".
        cells: For a regular grid, the number of rows, the number of columns and the side length of a cell in km. None
            for other spaces.
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
        """The distinct positive, finite distances in ascending order."""
        return sorted({d for d in self.distances.ravel().tolist() if 0 < d < math.inf})


def grid(rows: int, cols: int, cell_km: float) -> MetricSpace:
    """Return a space whose points are the centres of a regular grid's cells in row-major order.

    Args:
        rows: The number of rows.
        cols: The number of columns.
        cell_km: The side length of a cell in km.

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
    """Compute the great-circle distance in km between two (lat, lon) pairs in degrees by the haversine formula."""
    # Only the standard library is used, so that the kit can find faults in privopt's own distances.
    (a, b), (c, d) = (tuple(map(math.radians, spot)) for spot in (start, end))
    h = math.sin((c - a) / 2) ** 2 + math.cos(a) * math.cos(c) * math.sin((d - b) / 2) ** 2
    return 2 * EARTH_RADIUS_KM * math.asin(math.sqrt(min(1.0, h)))


def from_points(spots: Sequence[tuple[float, float]], kind: Literal["euclidean", "haversine"]) -> MetricSpace:
    """Return a space of points in the plane or on the globe, with Euclidean or great-circle distances in km.

    Args:
        spots: The coordinates of each point, which are (x, y) in km for "euclidean" and (lat, lon) in degrees for
            "haversine".
        kind: The kind of distance.
    """
    measure = math.dist if kind == "euclidean" else _great_circle_km
    table = np.array([[measure(a, b) for b in spots] for a in spots])
    return MetricSpace(shape="points", kind=kind, distances=table, coordinates=tuple(spots))


def close_paths(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the shortest path lengths in a complete graph with the Floyd-Warshall algorithm.

    The result is the largest matrix that satisfies the triangle inequality and does not exceed ``table`` in any entry.

    Args:
        table: Symmetric array of shape (n_points, n_points) with edge lengths.

    Returns:
        Array of shape (n_points, n_points) with path lengths.
    """
    table = np.array(table, dtype=np.float64)
    for middle in range(len(table)):
        table = np.minimum(table, table[:, middle, None] + table[None, middle, :])
    return table


def from_edges(count: int, edges: Sequence[Edge], shape: str) -> MetricSpace:
    """Return a space whose distances are shortest path lengths along undirected roads between its points.

    Args:
        count: The number of points. A point without roads is infinitely far from all others.
        edges: The two points connected by each road, and its length in km. If several roads connect the same points,
            the shortest one is used.
        shape: The name of the space's shape.
    """
    table = np.full((count, count), math.inf)
    np.fill_diagonal(table, 0.0)
    for a, b, length in edges:
        table[a, b] = table[b, a] = min(table[a, b], length)
    return MetricSpace(shape=shape, kind="graph", distances=close_paths(table), edges=tuple(edges))
