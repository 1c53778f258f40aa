"""The offline page for an estimate, with maps of estimated and reported shares and a table of intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
from attrs import evolve

from privopt.arrays import Figure, Floats
from privopt.declare.notebook import format_digits, format_percent
from privopt.errors import number_of
from privopt.estimate.shares import NOISY_COUNTS, SMOOTH, Estimate
from privopt.estimate.written_digits import round_shares
from privopt.interfaces import Channel
from privopt.interfaces.abilities import channel_of
from privopt.interfaces.reporting import Layer, Section
from privopt.numbers.distances import position_text
from privopt.report.charts import draw_maps, orient_map, rows_of
from privopt.report.map_files import point_features
from privopt.report.page import figure_section, table_section
from privopt.report.templates import render
from privopt.report.theme import MARK, add_legend, use_theme
from privopt.run.verify import OpenedFolder

MAX_DRAWN_INTERVALS: Final = 40
"""The maximum number of intervals to draw. If there are more, only those for the largest shares are drawn."""
MAX_TABLE_ROWS: Final = 10_000
"""The maximum number of rows in the page's table. The CSV file has all rows."""
INTERVAL_LEAD: Final = "The largest first. Low and high are the ends of the interval of each share."
"""The text above the table of shares."""


def share_layer(estimate: Estimate, channel: Channel) -> Layer:
    """Return a map layer with a point for each record, showing the share and interval of that record or of its group.

    Args:
        estimate: The estimate, for records or groups.
        channel: The channel, whose records have coordinates.
    """
    assert channel.coordinates is not None  # callers have checked
    columns: dict[str, Any] = {}
    if estimate.group_of is not None:
        # A record without a group has the index -1, which selects the last name.
        names = [*estimate.ids, None]
        columns["group"] = [names[number] for number in estimate.group_of.tolist()]
    if estimate.assumption:
        columns["assumes"] = [SMOOTH] * len(channel.inputs)
    # Round before copying groups' values to records, so that the map shows the same values as the table.
    shares, low, high = round_shares(estimate.shares, estimate.low, estimate.high)
    rounded = evolve(estimate, shares=shares, low=low, high=high)
    columns |= {name: values.tolist() for name, values in _by_record(rounded).items()}
    kind: Literal["geographic", "planar"] = "geographic" if channel.geographic else "planar"
    features = point_features(channel.inputs, channel.coordinates, columns, geographic=channel.geographic)
    return Layer(kind=kind, features=features)


def _by_record(estimate: Estimate) -> dict[str, Floats]:
    """Return a dict of the arrays ``share``, ``low`` and ``high``, each of shape (N,), with one entry per record.

    If the estimate is for groups, each record gets its group's values, or NaN if it has no group.
    """
    values = {"share": estimate.shares, "low": estimate.low, "high": estimate.high}
    if estimate.group_of is None:
        return values
    # A record without a group has the index -1, which selects the NaN at the end.
    return {name: np.append(figures, np.nan)[estimate.group_of] for name, figures in values.items()}


@use_theme
def interval_figure(estimate: Estimate) -> Figure:
    """Draw the largest shares together with their intervals.

    If the estimate includes the shares among the raw reports (``estimate.reported``), these are also drawn.
    """
    largest = np.argsort(-estimate.shares, kind="stable")[:MAX_DRAWN_INTERVALS]
    names = [estimate.ids[g][:24] for g in largest.tolist()]
    figure, axes, positions = rows_of(names, "share (%)", width=7.2, row=0.18)
    low, high, shares = (100.0 * values[largest] for values in (estimate.low, estimate.high, estimate.shares))
    axes.hlines(positions, low, high, linewidth=2, color=MARK)
    axes.plot(shares, positions, "o", ms=5, label="estimated, with its interval")
    max_value = max(high.max(), shares.max())
    if estimate.reported is not None:
        reported = 100.0 * estimate.reported[largest]
        axes.plot(reported, positions, "x", ms=7, mew=2, label="noisy reports as they are")
        max_value = max(max_value, reported.max())
    # The axis starts near 0, because intervals of width 0 would not determine a scale.
    axes.set_xlim(-0.03 * max_value, 1.05 * max_value)
    add_legend(figure)
    return figure


def _describe_source(estimate: Estimate, *, per_subject: bool) -> str:
    """Return sentences about what was counted and which rows were omitted.

    Args:
        estimate: The estimate.
        per_subject: Whether only each subject's first report counts.
    """
    if estimate.method == NOISY_COUNTS:
        return f"Estimated from noisy counts of about {format_digits(float(estimate.n))} in all."
    source = f"Estimated from {number_of(estimate.n, 'report')}"
    source += ", one from each person." if per_subject else "; a person who sent several counts once for each."
    if estimate.skipped:
        verb = "is" if estimate.skipped == 1 else "are"
        source += (
            f" {number_of(estimate.skipped, 'row')} without a report {verb} left out, so the shares say nothing about "
            f"{'it' if estimate.skipped == 1 else 'them'}."
        )
    return source


def _describe_intervals(estimate: Estimate) -> str:
    """Return sentences about how often and under what conditions the intervals contain the true shares."""
    is_each = estimate.each_by_itself
    holds = "Each interval by itself contains the true share" if is_each else "All intervals together contain the truth"
    conditions = ["shares are smooth over the map"] if estimate.assumption else []
    conditions += [] if estimate.intervals == "finite-sample" else ["there are many reports"]
    condition = f", if {' and '.join(conditions)}" if conditions else ""
    # This was measured rather than proved (docs/benchmarks/city.md).
    few_reports = " With few reports they hold less often." if estimate.assumption else ""
    return f"{holds} with {100 * estimate.confidence:.4g}\u00a0% probability{condition}.{few_reports}"


def estimate_page(estimate: Estimate, opened: OpenedFolder, reports: str, *, per_subject: bool = False) -> str:
    """Return a page about an estimate, as a single HTML document without external resources.

    Args:
        estimate: The estimate.
        opened: The release that the reports were drawn from.
        reports: The name of the table of reports.
        per_subject: Whether only each subject's first report counts. If so, the shares are shares of people.
    """
    lead = f"{_describe_source(estimate, per_subject=per_subject)} {_describe_intervals(estimate)}"
    # There may be two gaps, relative to two different maxima. This is explained in the section for experts.
    method = f"Method: {estimate.method}{estimate.gaps}; {estimate.intervals} intervals."
    if estimate.resolution:
        method += (
            " The gap is the distance of the log-likelihood from its maximum among shares as smooth as these; "
            "gap_to_all that from its maximum over all shares."
        )
    channel = channel_of(opened.mechanism, opened.problem, opened.release)
    on_map = channel if isinstance(channel, Channel) and channel.coordinates is not None else None
    names: Sequence[str] = estimate.ids
    name = "id" if estimate.group_of is None else "group"
    # The table gives positions only for single records, because groups have none.
    if on_map is not None and estimate.group_of is None:
        names = [f"{name} ({where})" for name, where in zip(names, _position_texts(on_map), strict=True)]
    # The largest shares first.
    order = np.argsort(-estimate.shares, kind="stable")[:MAX_TABLE_ROWS].tolist()
    rows = [(names[g], *(format_percent(v[g]) for v in (estimate.shares, estimate.low, estimate.high))) for g in order]
    drawn, count = min(MAX_DRAWN_INTERVALS, len(estimate.ids)), len(estimate.ids)
    shares_title = "The greatest shares" if drawn == count else f"The {drawn} greatest of {count:,} shares"
    sections = [
        *_map_sections(estimate, on_map),
        figure_section(shares_title, interval_figure(estimate)),
        table_section("Shares", (name, "share", "low", "high"), rows, INTERVAL_LEAD, total=len(estimate.ids)),
        Section(title="For experts", lead=method),
    ]
    # The shares are shares of people only if each person counts once. Otherwise, all reports of a person count.
    counted = "people" if per_subject or estimate.method == NOISY_COUNTS else "reports"
    where = (
        f"For each record, the share of {counted} whose true value it is"
        if estimate.group_of is None
        else f"For each group of records, the share of {counted} whose true value is in it"
    )
    return render(
        "privopt.estimate/page.html",
        title=f"What the reports say: {reports}",
        intro=f"{where}, estimated from noisy values, in per cent.",
        lead=lead,
        mark=opened.result.mark,
        notes=estimate.notes,
        sections=sections,
    )


def _position_texts(channel: Channel) -> list[str]:
    """Return the position of each record as a string."""
    assert channel.coordinates is not None  # callers have checked
    kind, coordinates = (
        ("geographic", channel.coordinates[:, ::-1]) if channel.geographic else ("planar", channel.coordinates)
    )
    return [position_text(x, y, kind, channel.coordinate_unit) for x, y in coordinates.tolist()]


def _map_sections(estimate: Estimate, channel: Channel | None) -> list[Section]:
    """Return a list with one section of maps, or an empty list if there is nothing to map.

    Groups are mapped if there are any. Otherwise, all records are mapped, but only if the estimate includes the shares
    among the raw reports.

    Args:
        estimate: The estimate.
        channel: The channel, or None if its records have no coordinates.
    """
    if channel is None:
        return []
    if estimate.group_of is not None:
        lead = "Every point has the colour of its whole district, so do not add points up. Each map has its own scale."
        return [figure_section("Districts: share, and the ends of its interval", map_figure(estimate, channel), lead)]
    if estimate.reported is not None and list(channel.inputs) == list(estimate.ids):
        return [figure_section("Estimated and reported", map_figure(estimate, channel))]
    return []


def map_figure(estimate: Estimate, channel: Channel) -> Figure:
    """Draw maps of an estimate's shares.

    For groups, three maps show each group's share and the two ends of its interval. Each map has its own colour scale,
    because wide intervals would make all shares look alike on a common scale. For records, two maps show the reported
    and the estimated shares.

    Args:
        estimate: An estimate for groups, or for all records if these are also the outputs.
        channel: The channel, whose records have coordinates.
    """
    upper: float | Literal["each"] = "each"
    if estimate.group_of is not None:
        shares, label, height = _by_record(estimate), "%", 3.6
    else:
        assert estimate.reported is not None
        shares = {"reported": estimate.reported, "estimated": estimate.shares}
        label, height = "share (%)", 4.2
        # The scale ends at a quantile, so that a few large shares do not make all others look alike.
        upper = 100.0 * max(*(float(np.quantile(values, 0.995)) for values in shares.values()), 1e-12)
    assert channel.coordinates is not None  # callers have checked
    places, labels, latitude = orient_map(channel.coordinates, "" if channel.geographic else channel.coordinate_unit)
    values_by_title = {title: 100.0 * values for title, values in shares.items()}
    frame: dict[str, Any] = {"streets": channel.streets, "latitude": latitude, "size": (8.4, height)}
    return draw_maps(values_by_title, places, labels, label, upper=upper, **frame)
