"""Pictures of the census's and the taxis' tables."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from experiments.pictures import COLOURS, MARKERS, Painter, Rows, curves, dress, numbers, panels
from experiments.tables import split

__all__ = ["PICTURES"]


def _errors(rows: Rows) -> Any:
    """L1 error over epsilon, one panel a level (Fig. 9)."""
    levels = [name for name in rows[0] if name.startswith("level_")]
    figure, axes = panels(len(levels), width=4.2, height=3.2)
    for axis, level in zip(axes[0], levels, strict=True):
        curves(axis, rows, "epsilon", level, "method")
        last = level == levels[-1]
        title = level.replace("_", " ")
        dress(axis, title, "epsilon", "L1 error (groups)", legend=last, xscale="log", yscale="log")
    return figure


def _seconds(rows: Rows) -> Any:
    """Seconds of post-processing over epsilon (Fig. 8)."""
    figure, axes = panels(width=4.2, height=3.6)
    curves(axes[0, 0], rows, "epsilon", "seconds", "method")
    dress(axes[0, 0], "post-processing", "epsilon", "seconds", xscale="log", yscale="log")
    return figure


def _sizes(rows: Rows) -> Any:
    """Seconds over N (Fig. 7); the legend says from which N on a method hit the time-out."""
    figure, axes = panels(width=8.0, height=3.8)
    for index, (method, method_rows) in enumerate(split(rows, "method").items()):
        turn, colour = divmod(index, len(COLOURS))
        stopped_row = next((row for row in method_rows if row["seconds"].startswith("over")), None)
        label = method if stopped_row is None else f"{method} ({stopped_row['seconds']} s from N = {stopped_row['N']})"
        seconds = numbers(method_rows, "seconds")
        has_ended = np.isfinite(seconds)
        style = MARKERS[turn % len(MARKERS)]
        axes[0, 0].plot(
            numbers(method_rows, "N")[has_ended], seconds[has_ended], style, color=COLOURS[colour], label=label
        )
    title = "post-processing, taxi-like data cut to N sizes"
    dress(axes[0, 0], title, "N (sizes)", "seconds", legend=False, yscale="log")
    figure.legend(loc="outside right center", fontsize=7)
    return figure


PICTURES: Final[dict[str, tuple[str, Painter]]] = {
    **{f"figure_8_{data}": (f"runs_{data}", _seconds) for data in ("census", "taxi")},
    **{f"figure_9_{data}": (f"runs_{data}", _errors) for data in ("census", "taxi")},
    "figure_7": ("figure_7", _sizes),
}
