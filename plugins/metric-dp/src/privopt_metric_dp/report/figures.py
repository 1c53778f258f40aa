"""Draw figures about a metric release with matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Figure, Floats, Ints
from privopt.numbers.distances import EARTH_RADIUS_KM
from privopt.report.charts import draw_maps
from privopt.report.theme import BAD, LINE, MARK, MAX_VECTOR_MARKS, SERIES, add_legend, axes_of, panels_of, use_theme
from privopt_metric_dp.attacks.meaning import noun_of
from privopt_metric_dp.matrix.certify import max_log_ratios
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.report.explorer import lines_between
from privopt_metric_dp.space.places import Space

__all__ = ["Layout", "convergence", "layout", "loss_map", "privacy_map", "spent_by_distance", "spread_from"]


PER_KIND: Final = [(SERIES[1], "D"), (SERIES[0], "o"), (SERIES[2], "s")]
"""The colours and markers for fresh reports, sticky reports (the first one repeated) and reports along a trace."""

MOST_RATIOS: Final = 3e8
"""The maximum number of probability ratios (pairs times outputs) computed for a figure."""


MOST_POINTS: Final = 2_000
"""The maximum number of pairs in the figure that plots log ratios against distances."""


@frozen(kw_only=True, eq=False)
class Layout:
    """The positions of N places in a drawing.

    Attributes:
        places: Array of shape (N, 2) with x and y.
        axes: The labels of the two axes. They are empty if the axes have no meaning.
        unit: The unit of length in the drawing. It is empty if lengths in it do not represent distances.
    """

    places: Floats
    axes: tuple[str, str]
    unit: str = ""


def layout(*spaces: Space) -> list[Layout]:
    """Return one layout for each of the given spaces, all in the same plane.

    Geographic places are drawn in km from their south-west corner, with longitudes scaled by the cosine of the mean
    latitude. Vectors are projected onto their first two principal components. If a space has no coordinates, the places
    of all spaces are arranged in a circle, in order.
    """
    coordinates = [space.coordinates for space in spaces]
    counts = [len(space) for space in spaces]
    arrays = [values for values in coordinates if values is not None]
    if len(arrays) < len(spaces):
        angle = 2 * np.pi * np.arange(sum(counts)) / sum(counts)
        placed, axes, unit = np.column_stack([np.sin(angle), np.cos(angle)]), ("", ""), ""
    else:
        # All spaces are projected together, so that records and outputs share their axes.
        placed, axes, unit = _project_to_plane(np.concatenate(arrays), spaces[0])
    offsets = np.cumsum(counts)[:-1]
    return [Layout(places=part, axes=axes, unit=unit) for part in np.split(placed, offsets)]


def _project_to_plane(values: Floats, space: Space) -> tuple[Floats, tuple[str, str], str]:
    """Return positions in the plane for places of the same kind.

    Args:
        values: Array of shape (N, dim) with the coordinates, which are latitudes and longitudes in degrees, x and y in
            the space's unit, or vectors.
        space: A space whose kind ("geographic", "planar" or "vector") and unit apply to all places.

    Returns:
        Three values: an array of shape (N, 2) with positions, the labels of the two axes, and the unit of length in the
        drawing, which is empty if there is none.
    """
    if space.kind == "geographic":
        south, west = values.min(axis=0)
        degree = np.radians(1.0) * EARTH_RADIUS_KM
        shrink = np.cos(np.radians(values[:, 0].mean()))
        placed = np.column_stack([(values[:, 1] - west) * degree * shrink, (values[:, 0] - south) * degree])
        return placed, (f"km east of {west:.5g}°", f"km north of {south:.5g}°"), "km"
    if values.shape[1] == 2:
        unit = space.unit if space.kind == "planar" else ""
        return np.asarray(values), (f"x ({unit})", f"y ({unit})") if unit else ("x", "y"), unit
    centred = values - values.mean(axis=0)
    # The rows of the last factor are the principal directions, beginning with the most important one.
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    places = centred @ axes[:2].T
    if places.shape[1] < 2:
        places = np.column_stack([places[:, 0], np.zeros(len(places))])
    return places, ("first principal component", "second principal component"), ""


def _draw_map(space: Space, values: Floats, label: str, upper: float | None, streets: Ints | None) -> Figure:
    """Draw a map of places, coloured by a value.

    Args:
        space: The N records or outputs.
        values: Array of shape (N,) with the value at each place.
        label: The label of the colour scale, which starts at 0.
        upper: The upper end of the colour scale, or None for the largest value.
        streets: Array of shape (E, 2) with pairs of places to connect by lines, or None for no lines.
    """
    space_layout = layout(space)[0]
    return draw_maps({"": values}, space_layout.places, space_layout.axes, label, upper=upper, streets=streets)


def loss_of_records(release: MatrixRelease, data: MetricData) -> Floats:
    """Return the expected loss of each record, as an array of shape (N,).

    The loss of record i is the sum of z_ik c_ik over all outputs k, where z_ik is the probability of the output and
    c_ik is its cost.
    """
    return np.asarray(np.einsum("ik,ik->i", release.probabilities, data.cost))


def nearest_pairs(release: MatrixRelease) -> NDArray[np.int64]:
    """Select the pairs of a release to show in a figure.

    If there are too many pairs, only the nearest pairs of each record are selected.

    Returns:
        The indices of the selected rows of ``release.pairs``, in ascending order. Pairs at distance 0 are left out.
    """
    positive_pairs = np.flatnonzero(release.distances > 0)
    max_pairs = max(len(release.records), int(MOST_RATIOS / max(1, len(release.outputs))))
    if positive_pairs.size <= max_pairs:
        return positive_pairs
    pairs_per_record = max(1, max_pairs // len(release.records))
    # Each pair is listed twice, once for each of its records, and the list is sorted by record and distance. A pair is
    # selected if it is among the nearest pairs of at least one of its records.
    endpoints = np.concatenate([release.pairs[positive_pairs, 0], release.pairs[positive_pairs, 1]])
    pair_rows = np.concatenate([positive_pairs, positive_pairs])
    order = np.lexsort([release.distances[pair_rows], endpoints])
    endpoints, pair_rows = endpoints[order], pair_rows[order]
    first_rows = np.searchsorted(endpoints, np.arange(len(release.records)))
    # The rank of each pair among its record's pairs, beginning with the nearest.
    rank = np.arange(len(endpoints)) - first_rows[endpoints]
    return np.unique(pair_rows[rank < pairs_per_record])


def spent_of_records(release: MatrixRelease, epsilon: float) -> Floats:
    """Return the fraction of the allowed epsilon used by each record, as an array of shape (N,).

    A pair at distance d uses the fraction (largest log ratio) / (epsilon d). The value for a record is the largest
    value among its pairs, or 0 if it has none. Only the pairs from :func:`nearest_pairs` are examined. If the release
    satisfies epsilon, all values are at most 1, up to rounding.
    """
    selected = nearest_pairs(release)
    spent = max_log_ratios(release.weights, release.pairs[selected]) / (epsilon * release.distances[selected])
    max_spent = np.zeros(len(release.records))
    for end in release.pairs[selected].T:
        np.maximum.at(max_spent, end, spent)
    return max_spent


def loss_map(release: MatrixRelease, data: MetricData) -> Figure:
    """Draw a map of the expected loss of each record."""
    values = loss_of_records(release, data)
    return _draw_map(data.records, values, f"average loss ({data.loss_unit})", None, lines_between(data))


def privacy_map(release: MatrixRelease, data: MetricData) -> Figure:
    """Draw a map of the fraction of the allowed epsilon used by each record, on a colour scale from 0 to 1."""
    spent = spent_of_records(release, float(data.epsilon))
    return _draw_map(data.records, spent, "share of the allowed epsilon", 1.0, lines_between(data))


def spread_from(release: MatrixRelease, data: MetricData, record: str) -> Figure:
    """Draw a map of the output probabilities of one record.

    Args:
        release: The release.
        data: The data of the problem.
        record: The id of the record.

    Raises:
        ValueError: No record has this id.
    """
    row = release.records.tolist().index(record)
    label = f"probability of a report from {record}"
    streets = lines_between(data) if data.outputs is data.records else None
    return _draw_map(data.outputs, release.probabilities[row], label, None, streets)


@use_theme
def spent_by_distance(release: MatrixRelease, data: MetricData) -> Figure:
    """Plot the largest log ratio of each certified pair against its distance d.

    A line shows the largest allowed log ratio, epsilon d. If there are too many pairs, only some of them are plotted.
    """
    figure, axes = axes_of(5.6, 4.3)
    # Every n-th pair is drawn, so that there are at most `MOST_POINTS`. Negating twice rounds n up.
    selected = np.arange(len(release.pairs))[:: max(1, -(-len(release.pairs) // MOST_POINTS))]
    worst, distance = max_log_ratios(release.weights, release.pairs[selected]), release.distances[selected]
    end = float(distance.max()) if len(distance) else 1.0
    axes.plot([0, end], [0, end * float(data.epsilon)], color=BAD, label=f"allowed: {float(data.epsilon):g} times d")
    label = f"a pair of {noun_of(data.records)}s"
    axes.scatter(distance, worst, s=14, alpha=0.7, color=MARK, edgecolors="none", label=label, zorder=3)
    # Many dots are drawn as an image, because each dot makes a vector file larger.
    axes.collections[-1].set_rasterized(len(selected) > MAX_VECTOR_MARKS)
    axes.set_xlabel(f"distance d ({data.unit})")
    axes.set_ylabel("change of odds (logarithm)")
    add_legend(figure)
    return figure


@use_theme
def convergence(trajectory: Sequence[Sequence[float | str | None]], unit: str) -> Figure:
    """Plot the lower bound and the loss of a search over time.

    Args:
        trajectory: Rows with the time in seconds, the lower bound and the loss. Values other than finite numbers are
            not drawn.
        unit: The label of the vertical axis.
    """
    figure, axes = axes_of(7.6, 3.4)
    values = np.array(
        [[float(value) if isinstance(value, (int, float)) else np.nan for value in row] for row in trajectory]
    )
    values[~np.isfinite(values)] = np.nan
    seconds, lower, upper = values.T
    is_known = np.isfinite(lower) & np.isfinite(upper)
    # Lines are drawn as steps because each bound and each loss remains the best one until the next.
    axes.fill_between(
        seconds[is_known], lower[is_known], upper[is_known], step="post", color=LINE, alpha=0.5, label="open"
    )
    axes.step(seconds, upper, where="post", label="best mechanism", color=MARK)
    axes.step(seconds, lower, where="post", label="proved bound", color=BAD)
    axes.set_xlabel("seconds")
    axes.set_ylabel(unit)
    add_legend(figure)
    return figure


@use_theme
def over_time(attacked: Mapping[str, Any], noun: str = "place") -> Figure:
    """Plot the median and the 95th percentile of an attacker's errors against the number of reports.

    Each statistic has its own panel, with one line per kind of report.

    Args:
        attacked: The result of :func:`privopt_metric_dp.attacks.many_reports.over_time`.
        noun: The word for a record.
    """
    figure, sides = panels_of(7.6, 4.0, 2, share_y=True)
    style: dict[str, Any] = {"ms": 4, "mfc": "none", "clip_on": False}  # an error of 0 lies on the axis
    for axes, part, title in zip(sides, ("median", "p95"), ("half", "95\u00a0%"), strict=True):
        for (kind, errors), (colour, marker) in zip(attacked["likelihood"].items(), PER_KIND, strict=False):
            axes.plot(attacked["reports"], errors[part], "-", color=colour, marker=marker, label=kind, **style)
        axes.set_xscale("log")
        axes.set_title(f"{title} of the {noun}s")
        axes.set_xlabel(f"reports of one {noun}")
    # Both panels share the axis. The lower limit is set last, so that the upper limit suits the data in both.
    sides[0].set_ylim(bottom=0.0)
    sides[0].set_ylabel(f"off by at most ({attacked['unit']})")
    add_legend(figure)
    return figure
