"""An offline page about flows, with a heat map of the shares and tables of all flows with their intervals."""

from __future__ import annotations

from typing import Final

import numpy as np

from privopt.arrays import Figure
from privopt.declare.notebook import format_percent
from privopt.errors import number_of
from privopt.estimate.flows import Flows
from privopt.interfaces.reporting import Section
from privopt.report.page import figure_section, table_section
from privopt.report.templates import render
from privopt.report.theme import axes_of, use_theme
from privopt.run.verify import OpenedFolder

MAX_LABELLED_GROUPS: Final = 40
"""The maximum number of groups for which each row and column of the matrix gets a label."""


@use_theme
def matrix_figure(flows: Flows) -> Figure:
    """Draw a matrix with the percentage of all trips that go from each group (row) to each group (column).

    Args:
        flows: The flows.
    """
    count = len(flows.groups)
    # In inches: 2.2 for the labels and 0.3 for each group, up to the width of the page.
    side = min(7.2, 2.2 + 0.3 * count)
    figure, axes = axes_of(side + 1.0, side)
    image = axes.imshow(100 * flows.shares, cmap="viridis", vmin=0, aspect="equal")
    # The step is the number of groups per label, rounded up, so that there are at most MAX_LABELLED_GROUPS labels.
    positions = np.arange(0, count, max(1, -(-count // MAX_LABELLED_GROUPS)))
    labels = [flows.groups[position][:16] for position in positions.tolist()]
    axes.set_xticks(positions, labels, rotation=90, fontsize=8)
    axes.set_yticks(positions, labels, fontsize=8)
    axes.set_xlabel("to")
    axes.set_ylabel("from")
    figure.colorbar(image, ax=axes, label="trips (% of all)", shrink=0.8)
    return figure


def flow_page(flows: Flows, opened: OpenedFolder, reports: str) -> str:
    """Return a page about estimated flows, as a single HTML document without external resources.

    Args:
        flows: The flows.
        opened: The release that the reports were drawn from.
        reports: The name of the table of trips.
    """
    skipped = ""
    if flows.skipped:
        verb, pronoun = ("is", "it") if flows.skipped == 1 else ("are", "them")
        incomplete = number_of(flows.skipped, "row")
        skipped = f" {incomplete} without both {verb} left out, so the shares say nothing about {pronoun}."
    lead = (
        f"Estimated from {number_of(flows.n, 'trip')} with both reports.{skipped} "
        f"The intervals aim at containing all true shares at once in {100 * flows.confidence:.4g}\u00a0% of cases. "
        "That was measured for some kinds of trips, and is not proved (below)."
    )
    # The largest flows first.
    order = np.argsort(-flows.shares, axis=None, kind="stable").tolist()
    pairs = [divmod(number, len(flows.groups)) for number in order]
    rows = [
        (
            flows.groups[start],
            flows.groups[end],
            *(format_percent(values[start, end]) for values in (flows.shares, flows.low, flows.high)),
            round(flows.n * float(flows.shares[start, end])),
        )
        for start, end in pairs
    ]
    sums = [
        (name, format_percent(float(start)), format_percent(float(end)))
        for name, start, end in zip(flows.groups, flows.starts, flows.ends, strict=True)
    ]
    matrix_lead = (
        "Each row is a district where trips start, each column one where they end; the colour is the share of all "
        "trips. The table below has the same numbers with their intervals."
    )
    return render(
        "privopt.estimate/page.html",
        title=f"Where trips go: {reports}",
        intro="The share of trips from each district to each, estimated from noisy reports of both ends. Units: per "
        "cent of all trips, and numbers of trips.",
        lead=lead,
        mark=opened.result.mark,
        notes=(flows.pair_guarantee, *flows.notes),
        sections=[
            figure_section("Trips from district to district", matrix_figure(flows), matrix_lead),
            table_section("Flows", ("from", "to", "share", "low", "high", "trips"), rows),
            table_section("Starts and ends", ("district", "start here", "end here"), sums),
            Section(title="For experts", lead=f"Method: {flows.method}, gap {flows.gap:.2g} per trip."),
        ],
    )
