"""Flows as one offline page: the matrix of shares as a figure, and tables of all flows with their intervals."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from privopt.declare.notebook import format_digits
from privopt.errors import number_of
from privopt.estimate.flows import Flows
from privopt.report.page import document, drawing, table
from privopt.report.theme import axes_of, use_theme
from privopt.run.verify import OpenedFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:  # loaded late
    Figure = Any

MAX_LABELLED_GROUPS: Final = 40
"""Number of groups up to which every row and column of the matrix is labelled."""


@use_theme
def matrix_figure(flows: Flows) -> Figure:
    """Draw the shares of trips from each group (rows) to each group (columns), in per cent of all trips.

    Args:
        flows: The flows.
    """
    count = len(flows.groups)
    side = min(7.2, 2.2 + 0.3 * count)
    figure, axes = axes_of(side + 1.0, side)
    image = axes.imshow(100 * flows.shares, cmap="viridis", vmin=0, aspect="equal")
    positions = np.arange(0, count, max(1, -(-count // MAX_LABELLED_GROUPS)))
    labels = [flows.groups[position][:16] for position in positions.tolist()]
    axes.set_xticks(positions, labels, rotation=90, fontsize=8)
    axes.set_yticks(positions, labels, fontsize=8)
    axes.set_xlabel("to")
    axes.set_ylabel("from")
    figure.colorbar(image, ax=axes, label="trips (% of all)", shrink=0.8)
    return figure


def flow_page(flows: Flows, opened: OpenedFolder, reports: str) -> str:
    """Return the page of flows as one HTML document without external resources.

    Args:
        flows: The flows.
        opened: The release that the reports were drawn from.
        reports: Name of the table of trips.
    """
    title = f"Where trips go: {reports}"
    mark = f"<p>Warning: this release: {escape(opened.result.mark)}.</p>" if opened.result.mark else ""
    notes = "".join(f"<p>{escape(line)}.</p>" for line in (flows.pair_guarantee, *flows.notes))
    kind = "if trips are smooth over the map" if flows.assumption else "for many trips"
    lead = (
        f"{number_of(flows.n, 'trip')} with both reports ({number_of(flows.skipped, 'row')} without); {flows.method}, "
        f"gap {flows.gap:.2g} per trip; intervals at {flows.confidence:.4g}: all hold at once, {kind}."
    )
    # The largest flows first.
    order = np.argsort(-flows.shares, axis=None, kind="stable").tolist()
    pairs = [divmod(number, len(flows.groups)) for number in order]
    rows = [
        (
            flows.groups[start],
            flows.groups[end],
            *(_percent(values[start, end]) for values in (flows.shares, flows.low, flows.high)),
            round(flows.n * float(flows.shares[start, end])),
        )
        for start, end in pairs
    ]
    sums = [
        (name, _percent(float(start)), _percent(float(end)))
        for name, start, end in zip(flows.groups, flows.starts, flows.ends, strict=True)
    ]
    caption = (
        "Each row is a district where trips start, each column one where they end; the colour is the share of all "
        "trips. The table below has the same numbers with their intervals."
    )
    matrix_title = "Trips from district to district"
    return document(
        title,
        f"<header><h1>{escape(title)}</h1><p>The share of trips from each district to each, estimated from noisy "
        f"reports of both ends. Units: per cent of all trips, and numbers of trips.</p><p>{escape(lead)}</p>"
        f"{mark}{notes}</header><main>"
        f"<section><h2>{matrix_title}</h2>{drawing(matrix_title, matrix_figure(flows), caption)}</section>"
        f"<section><h2>Flows</h2>{table('Flows', ('from', 'to', 'share', 'low', 'high', 'trips'), rows)}</section>"
        f"<section><h2>Starts and ends</h2>"
        f"{table('Starts and ends', ('district', 'start here', 'end here'), sums)}</section></main>",
    )


def _percent(share: float) -> str:
    """Format a share as a percentage with three digits; positive shares below 0.001 % are shown as "under 0.001 %"."""
    return "under 0.001\u00a0%" if 0 < share < 1e-5 else f"{format_digits(100 * share)}\u00a0%"
