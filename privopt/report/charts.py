"""Shared parts of figures that compare mechanisms: bars of a loss with its bound, the size of dots on a map."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privopt.arrays import Figure, Floats
from privopt.report.theme import BAD, INK, MARK, SOFT, axes_of, themed


@themed
def draw_losses(rows: Sequence[tuple[str, float]], unit: str, bound: float | None) -> Figure:
    """Draw losses of mechanisms as bars, this one's first, with the proved bound as a line."""
    figure, axes = axes_of(7.6, 0.9 + 0.42 * len(rows))
    names = [name for name, _ in rows]
    values = [value for _, value in rows]
    colours = [MARK] + [SOFT] * (len(rows) - 1)
    drawn = axes.barh(names, values, color=colours, height=0.62)
    axes.bar_label(drawn, labels=[f"{value:.4g}" for value in values], padding=4, color=INK)
    axes.invert_yaxis()
    axes.margins(x=0.14)
    axes.set_xlabel(unit)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    if bound is not None and np.isfinite(bound):
        axes.axvline(bound, color=BAD, linewidth=1.5, linestyle="--", label="proved bound")
        figure.legend(loc="outside upper right")
    return figure


def dot_size(places: Floats, width: float) -> float:
    """Return the area of a dot, in points squared, that fills a grid without overlap on axes ``width`` inches wide."""
    some = places[:: max(1, len(places) // 300)]
    away = np.linalg.norm(some[:, None] - places[None], axis=2)
    away[away == 0] = np.inf
    span = max(float(np.ptp(places, axis=0).max()), 1e-300)
    near = float(np.median(away.min(axis=1))) if len(places) > 1 else span
    return float(np.clip((0.85 * min(near, span) / span * width * 72) ** 2, 8, 420))
