"""Hypothesis strategies that draw small metric spaces, priors and costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from privopt_metric_dp.kit.spaces import MetricSpace, close_paths, from_edges, from_points, grid

__all__ = ["SHAPES", "costs", "metric_spaces", "priors"]

SHAPES = ("grid", "points", "path", "clique", "clusters", "general", "twins", "coincident", "islands", "globe")
"""The shapes of metric spaces, as described in :func:`metric_spaces`."""


# Strategies are cached by argument, because creating one takes longer than drawing from it.
@lru_cache
def sizes(maximum: int) -> st.SearchStrategy[int]:
    """Return a strategy for integers from 1 to ``maximum``.

    Examples shrink towards 2, because most faults appear only with at least two items.
    """
    # Hypothesis shrinks towards the first element. The special case 1 comes last.
    return st.sampled_from([n for n in (2, 3, *range(4, maximum + 1)) if n <= maximum] + [1])


@st.composite
def _draw_grid(draw: st.DrawFn, max_points: int) -> MetricSpace:
    """Draw a regular grid of at most ``max_points`` cells for :func:`metric_spaces`."""
    rows = draw(st.integers(1, max(1, math.isqrt(max_points))))
    cols = draw(sizes(max(1, max_points // rows)))
    return grid(rows, cols, draw(st.sampled_from([1.0, 0.5, 2.0])))


@st.composite
def _draw_points(draw: st.DrawFn, max_points: int, shape: str) -> MetricSpace:
    """Draw points of a 4 x 4 lattice in the plane or on the globe for :func:`metric_spaces`.

    Args:
        draw: The function supplied by Hypothesis to draw values.
        max_points: The maximum number of points. The shapes "twins" and "coincident" always have at least two.
        shape: "points", "twins", "coincident" or "globe".
    """
    count = draw(sizes(max_points))
    spots = draw(_lattice_spots(count))
    if shape in ("twins", "coincident"):
        # One more point is added, either a little to the east of one of these or at the same place.
        spots = spots[: max(1, max_points - 1)]
        shift = draw(st.sampled_from([1e-3, 1e-6, 1e-9])) if shape == "twins" else 0.0
        x, y = draw(st.sampled_from(spots))
        return from_points([*map(_to_doubles, spots), (x + shift, float(y))], "euclidean")
    if shape == "globe":
        # Latitudes and longitudes near Rome in steps of 1/64 degree, which are exact doubles.
        return from_points([(41.0 + x / 64, 12.0 + y / 64) for x, y in spots], "haversine")
    return from_points([*map(_to_doubles, spots)], "euclidean")


@lru_cache
def _lattice_spots(count: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Return a strategy that draws ``count`` distinct points of a 4 x 4 lattice."""
    lattice = st.tuples(st.integers(0, 3), st.integers(0, 3))
    return st.lists(lattice, min_size=count, max_size=count, unique=True)


def _to_doubles(spot: tuple[int, int]) -> tuple[float, float]:
    """Convert the coordinates of a lattice point to floats."""
    return float(spot[0]), float(spot[1])


@st.composite
def _draw_path(draw: st.DrawFn, max_points: int) -> MetricSpace:
    """Draw a chain of at most ``max_points`` points with roads of 1, 2 or 3 km for :func:`metric_spaces`."""
    roads = draw(sizes(max_points)) - 1  # one fewer than points
    lengths = draw(st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=roads, max_size=roads))
    edges = [(n, n + 1, length) for n, length in enumerate(lengths)]
    return from_edges(len(lengths) + 1, edges, "path")


@st.composite
def _draw_islands(draw: st.DrawFn, max_points: int) -> MetricSpace:
    """Draw two separate chains of points, both with roads of 1 km, for :func:`metric_spaces`."""
    first_size = draw(st.integers(1, max(1, max_points - 1)))
    second_size = draw(st.integers(1, max(1, max_points - first_size)))
    # A path over all points lacks the edge between the two chains.
    edges = [(n, n + 1, 1.0) for n in range(first_size + second_size - 1) if n != first_size - 1]
    return from_edges(first_size + second_size, edges, "islands")


@st.composite
def _draw_table(draw: st.DrawFn, max_points: int, shape: str) -> MetricSpace:
    """Draw a matrix of distances between at most ``max_points`` points for :func:`metric_spaces`.

    Args:
        draw: The function supplied by Hypothesis to draw values.
        max_points: The maximum number of points.
        shape: "clique", "clusters" or "general".
    """
    count = draw(sizes(max_points))
    if shape == "clique":
        table = np.full((count, count), float(draw(st.integers(1, 3))))
    elif shape == "clusters":
        cluster = np.array(draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)))
        table = np.where(cluster[:, None] == cluster[None, :], 1.0, 8.0)
    else:
        lengths = draw(st.lists(st.integers(1, 6), min_size=count * count, max_size=count * count))
        table = np.array(lengths, dtype=np.float64).reshape(count, count)
        # This makes the matrix symmetric. close_paths() below enforces the triangle inequality.
        table = np.minimum(table, table.T)
    np.fill_diagonal(table, 0.0)
    return MetricSpace(shape=shape, kind="matrix", distances=close_paths(table))


def metric_spaces(max_points: int = 5, shapes: Sequence[str] = SHAPES) -> st.SearchStrategy[MetricSpace]:
    """Return a strategy that draws finite metric spaces of various shapes.

    - "grid": the cells of a regular grid.
    - "points": points of a lattice in the plane.
    - "twins": points in the plane, two of which are only 1e-3 to 1e-9 km apart.
    - "coincident": points in the plane, two of which are at the same place.
    - "globe": points on the globe.
    - "path": a chain of points joined by roads.
    - "islands": two separate chains of points.
    - "clique": a matrix in which all distances between different points are equal.
    - "clusters": a matrix with short distances within clusters, and long ones between them.
    - "general": a matrix of small integers that satisfy the triangle inequality.

    Args:
        max_points: The maximum number of points.
        shapes: The shapes to draw, which must be in :data:`SHAPES`. Failing examples shrink towards the first one.
    """
    return _metric_spaces(max_points, tuple(shapes))


@lru_cache
def _metric_spaces(max_points: int, shapes: tuple[str, ...]) -> st.SearchStrategy[MetricSpace]:
    """Return the strategy of :func:`metric_spaces`, which is cached for each combination of arguments."""
    strategies: dict[str, st.SearchStrategy[MetricSpace]] = {
        "grid": _draw_grid(max_points),
        "path": _draw_path(max_points),
    }
    strategies |= {shape: _draw_points(max_points, shape) for shape in ("points", "twins", "coincident", "globe")}
    strategies |= {shape: _draw_table(max_points, shape) for shape in ("clique", "clusters", "general")}
    strategies["islands"] = _draw_islands(max_points)
    return st.one_of([strategies[shape] for shape in shapes])


@lru_cache
def priors(count: int) -> st.SearchStrategy[tuple[float, ...]]:
    """Return a strategy that draws the prior probabilities of ``count`` records.

    Probabilities are proportional to small integers. Examples shrink towards a uniform prior.
    """
    shares = st.lists(st.sampled_from([1, 2, 4, 0]), min_size=count, max_size=count).filter(any)
    return shares.map(lambda parts: tuple(part / sum(parts) for part in parts))


def costs(records: int, outputs: int) -> st.SearchStrategy[NDArray[np.float64]]:
    """Return a strategy that draws arrays of shape (records, outputs) with non-negative integer losses.

    Examples shrink towards losses equal to the absolute difference between the record's and the output's index.
    """
    size = records * outputs
    differences = np.abs(np.arange(records)[:, None] - np.arange(outputs)[None, :]).astype(np.float64)
    values = st.lists(st.sampled_from([0.0, 1.0, 2.0, 5.0]), min_size=size, max_size=size)
    return values.map(lambda parts: differences + np.array(parts).reshape(records, outputs))
