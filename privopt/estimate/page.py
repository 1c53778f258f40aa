"""An estimate as one offline page: maps of estimated and reported shares, and a table with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np

from privopt.arrays import Figure, Floats
from privopt.declare.notebook import format_digits
from privopt.errors import number_of
from privopt.estimate.shares import SMOOTH, Estimate
from privopt.interfaces import Channel
from privopt.interfaces.abilities import channel_of
from privopt.interfaces.reporting import Layer, Section
from privopt.numbers.distances import position_text
from privopt.report.charts import dot_size
from privopt.report.map_files import point_features
from privopt.report.page import figure_section, table_section
from privopt.report.templates import render
from privopt.report.theme import MARK, RIM, add_legend, axes_of, use_theme
from privopt.run.verify import OpenedFolder

MAX_DRAWN_INTERVALS: Final = 40
"""Largest number of intervals that are drawn: those of the greatest shares."""
MAX_TABLE_ROWS: Final = 10_000
"""Largest number of rows of the page's table; the others are in the CSV file only."""


@use_theme
def map_figure(estimate: Estimate, channel: Channel) -> Figure:
    """Draw two maps with a common colour scale: the shares of the raw reports, and the estimated true shares.

    Args:
        estimate: An estimate over all records, whose outputs are the records.
        channel: The channel, whose records have coordinates.
    """
    assert estimate.reported is not None
    # The scale ends at a quantile, so that a few large shares do not make all others look alike.
    max_share = float(max(np.quantile(estimate.reported, 0.995), np.quantile(estimate.shares, 0.995), 1e-12))
    shares = {"reported": estimate.reported, "estimated": estimate.shares}
    return _draw_maps(shares, channel, [max_share], "share", height=4.2)


@use_theme
def district_figure(shares: Mapping[str, Floats], channel: Channel) -> Figure:
    """Draw three maps with a colour scale each: the share of each record's district, and both ends of its interval.

    With a common scale, wide intervals would make all shares look alike.

    Args:
        shares: For each map, the figure (N,) of each record's district; NaN for a record without a district.
        channel: The channel, whose records have coordinates.
    """
    max_shares = [float(np.nanmax(values)) or 1.0 for values in shares.values()]
    return _draw_maps(shares, channel, max_shares, "share", height=3.6)


def _draw_maps(
    shares: Mapping[str, Floats], channel: Channel, max_shares: Sequence[float], label: str, *, height: float
) -> Figure:
    """Draw maps side by side, with the records as dots over the streets.

    Args:
        shares: For each map, by its title, the values (N,) that determine the records' colours; NaN for no colour.
        channel: The channel, whose records have coordinates.
        max_shares: The upper end of the colour scale: one for all maps, or one for each.
        label: Label of the colour bar; if each map has its own, the map's title takes its place.
        height: Height of the figure in inches.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(8.4, height), layout="compressed")
    has_own_scales = len(max_shares) > 1
    assert channel.coordinates is not None  # callers have checked
    coordinates, degrees = channel.coordinates, channel.geographic
    # Latitude and longitude become y and x.
    points = coordinates[:, ::-1] if degrees else coordinates
    size = dot_size(coordinates, 5.4 / len(shares))
    for number, (title, values) in enumerate(shares.items()):
        axes = figure.add_subplot(1, len(shares), number + 1)
        if channel.streets is not None:
            axes.add_collection(LineCollection(list(points[channel.streets]), colors="0.6", linewidths=0.5, zorder=0))
        order = np.argsort(values, kind="stable")
        max_share = max_shares[number if has_own_scales else 0]
        # The largest values are drawn last, so that no other dot covers them.
        x, y = points[order].T
        dots = axes.scatter(x, y, c=values[order], s=size, vmin=0, vmax=max_share, cmap="viridis", **RIM)
        axes.set_title(title)
        # Wide enough that dots at the edge are drawn whole.
        axes.margins(0.08)
        # A degree of longitude is shorter than one of latitude by the cosine of the latitude.
        axes.set_aspect(1 / np.cos(np.radians(float(y.mean()))) if degrees else 1)
        axes.set_xlabel("longitude (degrees)" if degrees else "x (km)")
        # Few labels, pruned at the ends, so that those of neighbouring maps do not touch.
        axes.xaxis.set_major_locator(MaxNLocator(9 // len(shares), prune="both" if has_own_scales else None))
        if not number:
            axes.set_ylabel("latitude (degrees)" if degrees else "y (km)")
        # Values beyond the scale have its last colour, which the arrow of the colour bar shows.
        extend = "max" if np.nanmax(values) > max_share else "neither"
        if has_own_scales:
            label_text, ticks = f"{title} (parts of 1)", MaxNLocator(3)
            figure.colorbar(dots, ax=axes, label=label_text, location="bottom", aspect=25, extend=extend, ticks=ticks)
    if not has_own_scales:
        extend = "max" if any(np.nanmax(values) > max_shares[0] for values in shares.values()) else "neither"
        label_text = f"{label} (parts of 1)"
        figure.colorbar(dots, ax=figure.axes, label=label_text, location="bottom", aspect=40, shrink=0.8, extend=extend)
    return figure


def share_layer(estimate: Estimate, channel: Channel) -> Layer:
    """Return a map layer with a point for each record, which has the share and interval of the record or of its group.

    Args:
        estimate: The estimate, over records or groups.
        channel: The channel, whose records have coordinates.
    """
    assert channel.coordinates is not None  # callers have checked
    columns: dict[str, Any] = {}
    if estimate.group_of is not None:
        # A record in no group has the number -1, which selects the last name.
        names = [*estimate.ids, None]
        columns["group"] = [names[number] for number in estimate.group_of.tolist()]
    if estimate.assumption:
        columns["assumes"] = [SMOOTH] * len(channel.inputs)
    columns |= {name: values.tolist() for name, values in _by_record(estimate).items()}
    kind: Literal["geographic", "planar"] = "geographic" if channel.geographic else "planar"
    features = point_features(channel.inputs, channel.coordinates, columns, geographic=channel.geographic)
    return Layer(kind=kind, features=features)


def _by_record(estimate: Estimate) -> dict[str, Floats]:
    """Return the share, low and high of each record or of its group, (N,) each; NaN for a record without a group."""
    values = {"share": estimate.shares, "low": estimate.low, "high": estimate.high}
    if estimate.group_of is None:
        return values
    # A record without a group has the number -1, which selects the NaN at the end.
    return {name: np.append(figures, np.nan)[estimate.group_of] for name, figures in values.items()}


@use_theme
def interval_figure(estimate: Estimate) -> Figure:
    """Draw the largest shares with their intervals and, if the outputs are records, the shares of raw reports."""
    # Reversed, because the axis grows upwards and the largest share belongs at the top.
    largest = np.argsort(-estimate.shares, kind="stable")[:MAX_DRAWN_INTERVALS][::-1]
    figure, axes = axes_of(7.2, 1.3 + 0.18 * len(largest))
    positions = np.arange(len(largest))
    axes.hlines(positions, estimate.low[largest], estimate.high[largest], linewidth=2, color=MARK)
    axes.plot(estimate.shares[largest], positions, "o", ms=4, label="estimated, with its interval")
    max_value = max(estimate.high[largest].max(), estimate.shares[largest].max())
    if estimate.reported is not None:
        axes.plot(estimate.reported[largest], positions, "x", ms=4, label="reported")
        max_value = max(max_value, estimate.reported[largest].max())
    axes.set_yticks(positions, [estimate.ids[g][:24] for g in largest.tolist()], fontsize=9)
    # The axis begins at 0, because intervals without width would have no scale.
    axes.set_xlim(-0.03 * max_value, 1.05 * max_value)
    axes.set_xlabel("share (parts of 1)")
    add_legend(figure)
    return figure


def estimate_page(estimate: Estimate, opened: OpenedFolder, reports: str) -> str:
    """Return the page of an estimate as one HTML document without external resources.

    Args:
        estimate: The estimate.
        opened: The release that the reports were drawn from.
        reports: Name of the table of reports.
    """
    kind = "each holds by itself" if estimate.each_by_itself else "all hold at once"
    kind += "" if estimate.intervals == "finite-sample" else ", for many reports"
    kind += ", if shares are smooth over the map" if estimate.assumption else ""
    lead = (
        f"{number_of(estimate.n, 'report')} ({number_of(estimate.skipped, 'row')} without one); "
        f"{estimate.method}{estimate.gaps}; {estimate.intervals} intervals at {estimate.confidence:.4g}: {kind}."
    )
    channel = channel_of(opened.mechanism, opened.problem, opened.release)
    on_map = channel if isinstance(channel, Channel) and channel.coordinates is not None else None
    # The table gives positions of single records only; a group has none.
    position_texts = [] if on_map is None or estimate.group_of is not None else _position_texts(on_map)
    names = (
        [f"{name} ({where})" for name, where in zip(estimate.ids, position_texts, strict=True)]
        if position_texts
        else estimate.ids
    )
    # The largest shares first.
    order = np.argsort(-estimate.shares, kind="stable")[:MAX_TABLE_ROWS].tolist()
    rows = [(names[g], *(_percent(v[g]) for v in (estimate.shares, estimate.low, estimate.high))) for g in order]
    drawn, count = min(MAX_DRAWN_INTERVALS, len(estimate.ids)), len(estimate.ids)
    shares_title = "The greatest shares" if drawn == count else f"The {drawn} greatest of {count:,} shares"
    sections = [
        *_map_sections(estimate, on_map),
        figure_section(shares_title, interval_figure(estimate)),
        table_section("Shares", ("id", "share", "low", "high"), rows, total=len(estimate.ids)),
    ]
    return render(
        "privopt.estimate/page.html",
        title=f"What the reports say: {reports}",
        lead=lead,
        mark=opened.result.mark,
        notes=estimate.notes,
        sections=sections,
    )


def _percent(share: float) -> str:
    """Format a share as a percentage with three digits; positive shares below 0.001 % are shown as "under 0.001 %"."""
    return "under 0.001\u00a0%" if 0 < share < 1e-5 else f"{format_digits(100 * share)}\u00a0%"


def _position_texts(channel: Channel) -> list[str]:
    """Return each record's position as text."""
    assert channel.coordinates is not None  # callers have checked
    kind, coordinates = (
        ("geographic", channel.coordinates[:, ::-1]) if channel.geographic else ("planar", channel.coordinates)
    )
    return [position_text(x, y, kind) for x, y in coordinates.tolist()]


def _map_sections(estimate: Estimate, channel: Channel | None) -> list[Section]:
    """Return a section with maps: of districts if there are groups, of all records if they are the outputs, or none."""
    if channel is None:
        return []
    if estimate.group_of is not None:
        figure = district_figure(_by_record(estimate), channel)
        return [figure_section("Districts: share, and the ends of its interval", figure)]
    if estimate.reported is not None and list(channel.inputs) == list(estimate.ids):
        return [figure_section("Estimated and reported", map_figure(estimate, channel))]
    return []
