"""Shared parts of figures: bars that compare losses with a bound, and the size of dots on a map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from privopt.arrays import Figure, Floats
from privopt.declare.notebook import format_digits
from privopt.report.theme import BAD, INK, MARK, SOFT, add_legend, axes_of, use_theme


@use_theme
def draw_losses(rows: Sequence[tuple[str, float]], unit: str, bound: float | None) -> Figure:
    """Draw the losses of mechanisms as bars, the release's first, with the proved bound as a line."""
    figure, axes = axes_of(7.6, 0.9 + 0.56 * len(rows))
    values = [value for _, value in rows]
    positions = range(len(rows))
    # Only the first bar, the mechanism of the report, has the accent colour; the others are for comparison.
    colours = [MARK] + [SOFT] * (len(rows) - 1)
    bars = axes.barh(positions, values, color=colours, height=0.46)
    axes.bar_label(bars, labels=[format_digits(value) for value in values], padding=4, color=INK)
    # Names stand above the bars, which begin at the same place however long the names are.
    for position, (name, _) in zip(positions, rows, strict=True):
        axes.annotate(name, (0, position - 0.3), xytext=(2, 0), textcoords="offset points", va="bottom", color=INK)
    axes.set_ylim(len(rows) - 0.6, -0.9)  # matplotlib draws the first bar at the bottom
    axes.set_yticks([])
    axes.margins(x=0.18)
    axes.set_xlabel(unit)
    if bound is not None and np.isfinite(bound):
        # A piece across each bar, so that no line runs through the names between them.
        tops, ends = [row - 0.29 for row in positions], [row + 0.29 for row in positions]
        style: dict[str, Any] = {"color": BAD, "linewidth": 2, "linestyle": (0, (2, 1))}
        axes.vlines([bound] * len(rows), tops, ends, label="proved bound", **style)
        add_legend(figure)
    return figure


def dot_size(places: Floats, width: float) -> float:
    """Return the area of a dot, in square points, at which the dots of a map hardly overlap.

    Args:
        places: (N, 2) The positions of the dots, in any unit.
        width: The width of the axes in inches.
    """
    # Some 300 places suffice for a median, and the distance matrix stays small.
    sampled_places = places[:: max(1, len(places) // 300)]
    distances = np.linalg.norm(sampled_places[:, None] - places[None], axis=2)
    # Every sampled place is among the places; infinity keeps it, and duplicates, from being its own nearest one.
    distances[distances == 0] = np.inf
    span = max(float(np.ptp(places, axis=0).max()), 1e-300)
    typical_distance = float(np.median(distances.min(axis=1))) if len(places) > 1 else span
    # 72 points are an inch, and 0.85 leaves a gap between dots. Very dense and very sparse maps are bounded.
    return float(np.clip((0.85 * min(typical_distance, span) / span * width * 72) ** 2, 8, 420))
