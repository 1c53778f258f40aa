"""Figures of a metric release, each a function that takes a release and returns a matplotlib figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats
from privopt.numbers.distances import EARTH_RADIUS_KM
from privopt.report.charts import dot_size
from privopt.report.theme import BAD, INK, LINE, MARK, MAX_VECTOR_MARKS, RIM, axes_of, themed
from privopt_metric_dp.matrix.certify import max_log_ratios
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.space.places import Space

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any

__all__ = ["Layout", "convergence", "layout", "loss_map", "privacy_map", "spent_by_distance", "spread_from"]


PER_KIND: Final = [BAD, MARK, INK]
"""Colours of kinds of reports: fresh, sticky, predicted."""

MOST_RATIOS: Final = 3e8
"""Ratios of probabilities that a figure may compute: pairs times outputs."""


MOST_POINTS: Final = 2_000
"""Pairs that are drawn over their distances, about."""


@frozen(kw_only=True, eq=False)
class Layout:
    """Where things are drawn.

    Attributes:
        places: (N, 2) positions.
        axes: what the two axes are; empty where they mean nothing.
        unit: ``"km"`` where lengths on the drawing are lengths on the ground.
    """

    places: Floats
    axes: tuple[str, str]
    unit: str = ""


def layout(*spaces: Space) -> list[Layout]:
    """Return positions in one plane for each space.

    Geographic places are drawn in km from their south-west corner, longitudes shrunk by the cosine of the mean
    latitude; vectors by their first two principal components; records without coordinates in a circle, in their order.
    """
    coordinates = [space.coordinates for space in spaces]
    counts = [len(space) for space in spaces]
    arrays = [values for values in coordinates if values is not None]
    if len(arrays) < len(spaces):
        angle = 2 * np.pi * np.arange(sum(counts)) / sum(counts)
        placed, axes, unit = np.column_stack([np.sin(angle), np.cos(angle)]), ("", ""), ""
    else:
        placed, axes, unit = _project_to_plane(np.concatenate(arrays), spaces[0].kind)
    offsets = np.cumsum(counts)[:-1]
    return [Layout(places=part, axes=axes, unit=unit) for part in np.split(placed, offsets)]


def _project_to_plane(values: Floats, kind: str) -> tuple[Floats, tuple[str, str], str]:
    if kind == "geographic":
        south, west = values.min(axis=0)
        degree = np.radians(1.0) * EARTH_RADIUS_KM
        shrink = np.cos(np.radians(values[:, 0].mean()))
        placed = np.column_stack([(values[:, 1] - west) * degree * shrink, (values[:, 0] - south) * degree])
        return placed, (f"km east of {west:.5g}°", f"km north of {south:.5g}°"), "km"
    if values.shape[1] == 2:
        unit = "km" if kind == "planar" else ""
        return np.asarray(values), ("x (km)", "y (km)") if unit else ("x", "y"), unit
    centred = values - values.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    places = centred @ axes[:2].T
    if places.shape[1] < 2:
        places = np.column_stack([places[:, 0], np.zeros(len(places))])
    return places, ("first principal component", "second principal component"), ""


def _draw_map(
    where: Layout, values: Floats, label: str, *, lower: float | None = None, upper: float | None = None
) -> Figure:
    figure, axes = axes_of(5.6, 4.3)
    size = dot_size(where.places, 3.4)
    x, y = where.places.T
    many = len(x) > MAX_VECTOR_MARKS  # smoothed edges took three times the bytes
    points = axes.scatter(x, y, c=values, s=size, cmap="viridis", vmin=lower, vmax=upper, antialiased=not many, **RIM)
    points.set_rasterized(many)
    figure.colorbar(points, ax=axes, label=label)
    axes.set_xlabel(where.axes[0])
    axes.set_ylabel(where.axes[1])
    axes.set_aspect("equal")
    if not where.axes[0]:
        axes.set_axis_off()
    return figure


def loss_of_records(release: MatrixRelease, data: MetricData) -> Floats:
    """Return (N,) the expected loss of each record."""
    return np.asarray(np.einsum("ik,ik->i", release.probabilities, data.cost))


def nearest_pairs(release: MatrixRelease) -> NDArray[np.int64]:
    """Return numbers of the required pairs in a figure: all, or as many of each record's nearest as time allows."""
    positive_pairs = np.flatnonzero(release.distances > 0)
    max_pairs = max(len(release.records), int(MOST_RATIOS / max(1, len(release.outputs))))
    if positive_pairs.size <= max_pairs:
        return positive_pairs
    pairs_per_record = max(1, max_pairs // len(release.records))
    endpoints = np.concatenate([release.pairs[positive_pairs, 0], release.pairs[positive_pairs, 1]])
    pair_rows = np.concatenate([positive_pairs, positive_pairs])
    order = np.lexsort([release.distances[pair_rows], endpoints])
    endpoints, pair_rows = endpoints[order], pair_rows[order]
    first_rows = np.searchsorted(endpoints, np.arange(len(release.records)))
    rank = np.arange(len(endpoints)) - first_rows[endpoints]
    return np.unique(pair_rows[rank < pairs_per_record])


def spent_of_records(release: MatrixRelease, epsilon: float) -> Floats:
    """Return (N,) the share of epsilon that each record uses: its worst log ratio / (epsilon d) to nearest records."""
    selected = nearest_pairs(release)
    spent = max_log_ratios(release.weights, release.pairs[selected]) / (epsilon * release.distances[selected])
    max_spent = np.zeros(len(release.records))
    for end in release.pairs[selected].T:
        np.maximum.at(max_spent, end, spent)
    return max_spent


@themed
def loss_map(release: MatrixRelease, data: MetricData) -> Figure:
    """Draw the expected loss of each record, over the map."""
    return _draw_map(
        layout(data.records)[0], loss_of_records(release, data), f"expected loss ({data.loss_unit})", lower=0.0
    )


@themed
def privacy_map(release: MatrixRelease, data: MetricData) -> Figure:
    """Draw the share of epsilon that each record uses against its neighbours, over the map; 1 is the most allowed."""
    spent = spent_of_records(release, float(data.epsilon))
    return _draw_map(layout(data.records)[0], spent, "achieved epsilon / epsilon", lower=0.0, upper=1.0)


@themed
def spread_from(release: MatrixRelease, data: MetricData, record: str) -> Figure:
    """Draw where the release of one record falls: probability of each output, over the map.

    Raises:
        ValueError: no record has that id.
    """
    row = release.records.tolist().index(record)
    return _draw_map(layout(data.outputs)[0], release.probabilities[row], f"probability of release from {record}")


@themed
def spent_by_distance(release: MatrixRelease, data: MetricData) -> Figure:
    """Draw the greatest log ratio of required pairs against their distance, under the line that epsilon allows."""
    figure, axes = axes_of(5.6, 4.3)
    selected = np.arange(len(release.pairs))[:: max(1, -(-len(release.pairs) // MOST_POINTS))]
    worst, distance = max_log_ratios(release.weights, release.pairs[selected]), release.distances[selected]
    end = float(distance.max()) if len(distance) else 1.0
    axes.plot([0, end], [0, end * float(data.epsilon)], color=BAD, label=f"allowed: {float(data.epsilon):g} d")
    axes.scatter(distance, worst, s=14, alpha=0.7, color=MARK, edgecolors="none", label="a required pair", zorder=3)
    axes.collections[-1].set_rasterized(len(selected) > MAX_VECTOR_MARKS)
    axes.set_xlabel(f"distance d ({data.unit})")
    axes.set_ylabel("greatest log ratio")
    axes.legend(loc="upper left")
    return figure


@themed
def convergence(trajectory: Sequence[Sequence[float | str | None]], unit: str) -> Figure:
    """Draw bound and loss over time; ``trajectory`` holds (seconds, lower, upper), unknown ones are omitted."""
    figure, axes = axes_of(7.6, 3.4)
    values = np.array(
        [[float(value) if isinstance(value, (int, float)) else np.nan for value in row] for row in trajectory]
    )
    values[~np.isfinite(values)] = np.nan
    seconds, lower, upper = values.T
    is_known = np.isfinite(lower) & np.isfinite(upper)
    axes.fill_between(
        seconds[is_known], lower[is_known], upper[is_known], step="post", color=LINE, alpha=0.5, label="open"
    )
    axes.step(seconds, upper, where="post", label="best mechanism", color=MARK)
    axes.step(seconds, lower, where="post", label="proved bound", color=BAD)
    axes.set_xlabel("seconds")
    axes.set_ylabel(unit)
    axes.legend()
    return figure


@themed
def over_time(attacked: Mapping[str, Any]) -> Figure:
    """Draw an attacker's error, in half and in 95 % of the places, by number of reports of one place and their kind.

    Args:
        attacked: as :func:`privopt_metric_dp.attacks.many_reports.over_time` returns it.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 4.0), layout="constrained")
    sides = figure.subplots(1, 2, sharey=True)
    style: dict[str, Any] = {"marker": "D", "ms": 3, "mfc": "none", "clip_on": False}  # an error of 0 lies on the axis
    for axes, part, title in zip(sides, ("median", "p95"), ("half of the places", "95 % of the places"), strict=True):
        for (kind, errors), colour in zip(attacked["likelihood"].items(), PER_KIND, strict=False):
            axes.plot(attacked["reports"], errors[part], "-", color=colour, label=kind, **style)
        axes.set_xscale("log")
        axes.set_title(title)
        axes.set_xlabel("reports of one place")
    sides[0].set_ylim(bottom=0.0)  # of both, once all is drawn
    sides[0].set_ylabel(f"off by at most ({attacked['unit']})")
    handles, names = sides[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names))
    return figure
