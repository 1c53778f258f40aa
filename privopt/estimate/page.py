"""An estimate as one offline page: estimated and reported shares on a map, and the table with its intervals."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from privopt.arrays import Floats
from privopt.errors import number_of
from privopt.estimate.shares import Estimate
from privopt.interfaces import Channel
from privopt.interfaces.abilities import channel_of
from privopt.interfaces.reporting import Layer, position_text
from privopt.report.charts import dot_size
from privopt.report.map_files import point_features
from privopt.report.page import document, drawing, table
from privopt.report.theme import MARK, RIM, axes_of, themed
from privopt.run.verify import OpenedFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:  # loaded late
    Figure = Any

MAX_DRAWN_INTERVALS: Final = 40
"""Intervals that are drawn: those of the greatest shares."""
MAX_TABLE_ROWS: Final = 2_000
"""Rows of the table; the rest are in the CSV file."""


@themed
def map_figure(estimate: Estimate, channel: Channel) -> Figure:
    """Draw two maps in one scale of colours: what was reported, and the estimate of the truth.

    Args:
        estimate: an estimate over all records whose outputs are the records.
        channel: of records with coordinates.
    """
    assert estimate.reported is not None
    max_share = float(max(np.quantile(estimate.reported, 0.995), np.quantile(estimate.shares, 0.995), 1e-12))
    return _draw_maps(
        {"reported": estimate.reported, "estimated": estimate.shares}, channel, max_share, "share", height=4.2
    )


@themed
def district_figure(shares: Mapping[str, Floats], channel: Channel) -> Figure:
    """Draw three maps in one scale of colours: each record in its district's share, and in the ends of its interval.

    Args:
        shares: (N,) the figures of each record's district, by name; NaN of a record without one.
        channel: of records with coordinates.
    """
    max_share = max(float(np.nanmax(values)) for values in shares.values()) or 1.0
    return _draw_maps(shares, channel, max_share, "share of the district", height=3.4)


def _draw_maps(
    shares: Mapping[str, Floats], channel: Channel, max_share: float, label: str, *, height: float
) -> Figure:
    """Draw maps side by side, with the records as dots over the streets between them."""
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, height), layout="compressed")
    assert channel.coordinates is not None  # the caller looked
    places, degrees = channel.coordinates, channel.geographic
    points = places[:, ::-1] if degrees else places
    size = dot_size(places, 5.4 / len(shares))
    for number, (title, values) in enumerate(shares.items()):
        axes = figure.add_subplot(1, len(shares), number + 1)
        if channel.streets is not None:
            axes.add_collection(LineCollection(list(points[channel.streets]), colors="0.6", linewidths=0.5, zorder=0))
        order = np.argsort(values, kind="stable")
        x, y = points[order].T
        dots = axes.scatter(x, y, c=values[order], s=size, vmin=0, vmax=max_share, cmap="viridis", **RIM)
        axes.set_title(title)
        axes.set_aspect(1 / np.cos(np.radians(float(y.mean()))) if degrees else 1)
        axes.set_xlabel("longitude" if degrees else "x (km)")
        if not number:
            axes.set_ylabel("latitude" if degrees else "y (km)")
    extend = "max" if any(np.nanmax(values) > max_share for values in shares.values()) else "neither"
    figure.colorbar(dots, ax=figure.axes, label=label, shrink=0.8, extend=extend)
    return figure


def share_layer(estimate: Estimate, channel: Channel) -> Layer:
    """Return a map layer with a point for each record and its share and interval, or those of its group.

    Args:
        estimate: the estimate, over records or groups.
        channel: of records with coordinates.
    """
    assert channel.coordinates is not None  # the caller looked
    columns: dict[str, Any] = {}
    if estimate.group_of is not None:
        names = [*estimate.ids, None]  # the last, of number -1, for a record that is in none
        columns["group"] = [names[number] for number in estimate.group_of.tolist()]
    columns |= {name: values.tolist() for name, values in _by_record(estimate).items()}
    kind: Literal["geographic", "planar"] = "geographic" if channel.geographic else "planar"
    features = point_features(channel.inputs, channel.coordinates, columns, geographic=channel.geographic)
    return Layer(kind=kind, features=features)


def _by_record(estimate: Estimate) -> dict[str, Floats]:
    """Return share, low and high of each record or of its group; NaN for a record without a group."""
    values = {"share": estimate.shares, "low": estimate.low, "high": estimate.high}
    if estimate.group_of is None:
        return values
    return {name: np.append(figures, np.nan)[estimate.group_of] for name, figures in values.items()}


@themed
def interval_figure(estimate: Estimate) -> Figure:
    """Draw the largest shares, each with its interval and, if there is one, the share of raw reports."""
    largest = np.argsort(-estimate.shares, kind="stable")[:MAX_DRAWN_INTERVALS][::-1]
    figure, axes = axes_of(7.2, 1.3 + 0.18 * len(largest))
    positions = np.arange(len(largest))
    axes.hlines(positions, estimate.low[largest], estimate.high[largest], linewidth=2, color=MARK)
    axes.plot(estimate.shares[largest], positions, "o", ms=4, label="estimated, with its interval")
    max_value = max(estimate.high[largest].max(), estimate.shares[largest].max())
    if estimate.reported is not None:
        axes.plot(estimate.reported[largest], positions, "x", ms=4, label="reported")
        max_value = max(max_value, estimate.reported[largest].max())
    axes.set_yticks(positions, [estimate.ids[g][:24] for g in largest.tolist()], fontsize="small")
    axes.set_xlim(
        -0.03 * max_value, 1.05 * max_value
    )  # from nothing on: intervals of no width have no scale of their own
    axes.set_xlabel("share")
    figure.legend(loc="outside upper right", ncols=2)
    return figure


def estimate_page(estimate: Estimate, opened: OpenedFolder, reports: str) -> str:
    """Return the page as one HTML document without external resources.

    Args:
        estimate: What the page shows.
        opened: The release.
        reports: Name of the table of reports.
    """
    title = f"What the reports say: {reports}"
    mark = f"<p>Warning: this release: {escape(opened.result.mark)}.</p>" if opened.result.mark else ""
    notes = "".join(f"<p>{escape(line)}.</p>" for line in estimate.notes)
    kind = "each holds by itself" if estimate.each_by_itself else "all hold at once"
    kind += "" if estimate.intervals == "finite-sample" else ", for many reports"
    lead = (
        f"{number_of(estimate.n, 'report')} ({number_of(estimate.skipped, 'row')} without one); "
        f"{estimate.method}{estimate.gaps}; {estimate.intervals} intervals at {estimate.confidence:.4g}: {kind}."
    )
    channel = channel_of(opened.mechanism, opened.problem, opened.release)
    on_map = channel if isinstance(channel, Channel) and channel.coordinates is not None else None
    position_texts = [] if on_map is None or estimate.group_of is not None else _position_texts(on_map)
    names = (
        [f"{name} ({where})" for name, where in zip(estimate.ids, position_texts, strict=True)]
        if position_texts
        else estimate.ids
    )
    order = np.argsort(-estimate.shares, kind="stable")[:MAX_TABLE_ROWS].tolist()
    rows = [(names[g], *(f"{v[g]:.6g}" for v in (estimate.shares, estimate.low, estimate.high))) for g in order]
    return document(
        title,
        f"<header><h1>{escape(title)}</h1><p>The share of people at each record, estimated from noisy reports. "
        f"Units: parts of 1.</p><p>{escape(lead)}</p>"
        f"{mark}{notes}</header>"
        f"<main>{'' if on_map is None else _map_section(estimate, on_map)}"
        f"<section>{drawing('The greatest shares', interval_figure(estimate))}</section>"
        f"<section><h2>Shares</h2>{table('Shares', ('id', 'share', 'low', 'high'), rows)}</section></main>",
    )


def _position_texts(channel: Channel) -> list[str]:
    """Return each record's position as text."""
    assert channel.coordinates is not None  # the caller looked
    kind, places = (
        ("geographic", channel.coordinates[:, ::-1]) if channel.geographic else ("planar", channel.coordinates)
    )
    return [position_text(x, y, kind) for x, y in places.tolist()]


def _map_section(estimate: Estimate, channel: Channel) -> str:
    """Draw the map section, for groups or for all records."""
    if estimate.group_of is not None:
        figure = district_figure(_by_record(estimate), channel)
        title = "Districts: share, and the ends of its interval"
    elif estimate.reported is not None and list(channel.inputs) == list(estimate.ids):
        figure, title = map_figure(estimate, channel), "Estimated and reported"
    else:
        return ""
    return f"<section>{drawing(title, figure)}</section>"
