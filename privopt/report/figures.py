"""Figures of a metric release, each a function that takes a release and returns a matplotlib figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from privopt.matrix import MatrixRelease
    from privopt.problem.data import MetricData

__all__ = ["convergence", "loss_map", "spent_by_distance", "spread_from"]

Floats = NDArray[np.float64]


def _figure(width: float = 6.4, height: float = 4.6) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def plane(coordinates: Floats | None, kind: str, count: int) -> tuple[Floats, str, str]:
    """Positions in a plane to draw at, (N, 2), and what the axes are.

    Geographic places are drawn with longitudes shrunk by the cosine of their mean latitude; vectors by their
    first two principal components; records without coordinates in a circle, in their order.
    """
    if coordinates is None:
        angle = 2 * np.pi * np.arange(count) / count
        return np.column_stack([np.sin(angle), np.cos(angle)]), "", ""
    if kind == "geographic":
        scale = np.cos(np.radians(coordinates[:, 0].mean()))
        return (
            np.column_stack([coordinates[:, 1] * scale, coordinates[:, 0]]),
            "longitude (scaled)",
            "latitude (degrees)",
        )
    if coordinates.shape[1] == 2:
        return np.asarray(coordinates), "x (km)" if kind == "planar" else "x", "y (km)" if kind == "planar" else "y"
    centred = coordinates - coordinates.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    places = centred @ axes[:2].T
    if places.shape[1] < 2:
        places = np.column_stack([places[:, 0], np.zeros(len(places))])
    return places, "first principal component", "second principal component"


def _map(places: Floats, names: tuple[str, str], values: Floats, label: str) -> Figure:
    figure = _figure()
    axes = figure.add_subplot()
    size = float(np.clip(12_000 / max(1, len(places)), 6, 120))
    drawn = axes.scatter(places[:, 0], places[:, 1], c=values, s=size, cmap="viridis", edgecolors="none")
    figure.colorbar(drawn, ax=axes, label=label)
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])
    axes.set_aspect("equal", adjustable="datalim")
    return figure


def _positions(data: MetricData) -> tuple[Floats, str, str]:
    return plane(data.records.coordinates, data.records.kind, len(data.records))


def loss_map(release: MatrixRelease, data: MetricData) -> Figure:
    """Expected loss of each record, over the map."""
    places, x, y = _positions(data)
    values = np.einsum("ik,ik->i", release.probabilities, data.cost)
    return _map(places, (x, y), values, f"expected loss ({data.loss_unit})")


def spread_from(release: MatrixRelease, data: MetricData, record: str) -> Figure:
    """Where the release of one record falls: probability of each output, over the map.

    Raises:
        ValueError: no record has that id.
    """
    row = release.records.tolist().index(record)
    space = data.outputs
    places, x, y = plane(space.coordinates, space.kind, len(space))
    return _map(places, (x, y), release.probabilities[row], f"probability of release from {record}")


def spent_by_distance(release: MatrixRelease, data: MetricData, *, most: int = 4_000) -> Figure:
    """Greatest log ratio of required pairs against their distance, under the line that epsilon allows."""
    figure = _figure()
    axes = figure.add_subplot()
    chosen = np.arange(len(release.pairs))[:: max(1, len(release.pairs) // most)]
    i, j = release.pairs[chosen].T
    z = release.probabilities
    worst = np.zeros(len(chosen))
    for start in range(0, len(chosen), 256):
        part = slice(start, start + 256)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.abs(np.log(z[i[part]]) - np.log(z[j[part]]))
        worst[part] = np.nan_to_num(ratio, nan=0.0, posinf=np.inf).max(axis=1)
    distance = release.distances[chosen]
    axes.scatter(distance, worst, s=8, alpha=0.5, edgecolors="none", label="a required pair")
    end = float(distance.max()) if len(distance) else 1.0
    axes.plot([0, end], [0, end * float(data.epsilon)], color="#b3261e", label=f"allowed: {float(data.epsilon):g} d")
    axes.set_xlabel(f"distance d ({data.unit})")
    axes.set_ylabel("greatest log ratio over the outputs")
    axes.legend(loc="upper left")
    return figure


def convergence(trajectory: Sequence[Sequence[float | str]], unit: str) -> Figure:
    """Bound and loss over time; ``trajectory`` holds (seconds, lower, upper)."""
    figure = _figure(6.4, 3.6)
    axes = figure.add_subplot()
    values = np.array([[float(value) for value in row] for row in trajectory])
    values[~np.isfinite(values)] = np.nan
    axes.step(values[:, 0], values[:, 2], where="post", label="best mechanism")
    axes.step(values[:, 0], values[:, 1], where="post", label="proved bound", color="#b3261e")
    axes.set_xlabel("seconds")
    axes.set_ylabel(f"loss ({unit})")
    axes.legend()
    return figure
