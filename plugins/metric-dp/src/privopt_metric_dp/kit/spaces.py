"""Finite metric spaces that the kit draws, with distances from its own computation."""

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


@frozen(kw_only=True, eq=False)
class MetricSpace:
    """A few points and how far they are from one another.

    Attributes:
        shape: which of the strategy's shapes it is.
        kind: ``distance.kind`` of a problem file that says it.
        distances: (N, N), infinite where nothing joins two points.
        coordinates: (x, y) in km or (lat, lon) of each point, where the kind takes them.
        edges: roads (from, to, km) by point, for kind graph.
        cells: rows, columns and side in km, for an even grid.
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
        """The finite distances above 0 that occur, ascending."""
        return sorted({d for d in self.distances.ravel().tolist() if 0 < d < math.inf})


def grid(rows: int, cols: int, cell_km: float) -> MetricSpace:
    """Make a space of even cells, row-major.

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
    (a, b), (c, d) = (tuple(map(math.radians, spot)) for spot in (start, end))
    h = math.sin((c - a) / 2) ** 2 + math.cos(a) * math.cos(c) * math.sin((d - b) / 2) ** 2
    return 2 * EARTH_RADIUS_KM * math.asin(math.sqrt(min(1.0, h)))


def from_points(spots: Sequence[tuple[float, float]], kind: Literal["euclidean", "haversine"]) -> MetricSpace:
    """Make a space of points of the plane (x, y in km) or of the globe (lat, lon)."""
    measure = math.dist if kind == "euclidean" else _great_circle_km
    table = np.array([[measure(a, b) for b in spots] for a in spots])
    return MetricSpace(shape="points", kind=kind, distances=table, coordinates=tuple(spots))


def close_paths(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the shortest-path closure (Floyd and Warshall): the largest metric below a symmetric table."""
    table = np.array(table, dtype=np.float64)
    for middle in range(len(table)):
        table = np.minimum(table, table[:, middle, None] + table[None, middle, :])
    return table


def from_edges(count: int, edges: Sequence[Edge], shape: str) -> MetricSpace:
    """Make a space of shortest paths over undirected roads."""
    table = np.full((count, count), math.inf)
    np.fill_diagonal(table, 0.0)
    for a, b, length in edges:
        table[a, b] = table[b, a] = min(table[a, b], length)
    return MetricSpace(shape=shape, kind="graph", distances=close_paths(table), edges=tuple(edges))
