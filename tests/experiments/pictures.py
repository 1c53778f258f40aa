"""Pictures of tables, all of one look."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from experiments.tables import number, read_rows, split, summary

__all__ = ["COLOURS", "MARKERS", "Painter", "Rows", "curve", "curves", "draw", "dress", "numbers", "panels", "save"]

COLOURS: Final = ("#1b6ca8", "#c8553d", "#2a9d55", "#b8860b", "#6a4c93", "#4a4a4a")
MARKERS: Final = ("-o", "--s", ":^")
"""The colours go round with each of them."""

Rows = Sequence[Mapping[str, str]]
Painter = Callable[[Rows], Any]


def panels(columns: int = 1, rows: int = 1, width: float = 3.2, height: float = 2.8) -> tuple[Any, Any]:
    """Return a figure and its (rows, columns) axes; width and height in inches, of each."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def save(figure: Any, file: Path) -> None:
    """Write a PNG file, the same bytes for the same picture."""
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110, metadata={"Software": None})


def numbers(rows: Rows, column: str) -> Any:
    """Return a column as an array; not a number where a cell holds none."""
    return np.array([number(row[column]) for row in rows], dtype=np.float64)


def dress(axes: Any, title: str = "", x: str = "", y: str = "", *, legend: bool = True, **options: Any) -> None:
    """Name what is shown, with a legend of what has labels."""
    axes.set_title(title, fontsize=8)
    axes.set_xlabel(x, fontsize=7)
    axes.set_ylabel(y, fontsize=7)
    axes.tick_params(which="both", labelsize=6)
    axes.set(**options)
    if legend and axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=6)


def curve(
    axes: Any,
    rows: Rows,
    x: str,
    y: str,
    *,
    per: str | None = None,
    bars: bool = True,
    style: str = "-o",
    **options: Any,
) -> None:
    """Mean of y, or of y by another column, at each x.

    Args:
        axes: to draw in.
        rows: of a table.
        x, y: columns.
        per: column that y is divided by.
        bars: show 1.96 standard deviations where an x has several rows.
        style: as Matplotlib writes it.
        others: for Matplotlib.
    """
    x_values, values = numbers(rows, x), numbers(rows, y) / (numbers(rows, per) if per else 1.0)
    places = np.unique(x_values[np.isfinite(x_values)])
    summaries = np.array([summary(values[x_values == x_value]) for x_value in places]).reshape(-1, 2)
    reach = 1.96 * summaries[:, 1] if bars and summaries[:, 1].any() else None
    axes.errorbar(places, summaries[:, 0], yerr=reach, fmt=style, capsize=2, linewidth=1, markersize=3, **options)


def curves(axes: Any, rows: Rows, x: str, y: str, column: str, **options: Any) -> None:
    """Draw a curve for each value of a column."""
    for index, (name, group_rows) in enumerate(split(rows, column).items()):
        turn, colour = divmod(index, len(COLOURS))
        style = MARKERS[turn % len(MARKERS)]
        curve(axes, group_rows, x, y, label=name, color=COLOURS[colour], style=style, **options)


def draw(folder: Path, pictures: Mapping[str, tuple[str, Painter]]) -> None:
    """Every picture whose table is there and newer than the picture.

    Args:
        folder: of tables and pictures.
        pictures: name of a picture -> name of its table, and what makes a figure of the rows.
    """
    for name, (source, paint) in pictures.items():
        table, file = folder / f"{source}.csv", folder / f"{name}.png"
        if not table.is_file() or (file.is_file() and file.stat().st_mtime_ns >= table.stat().st_mtime_ns):
            continue
        rows = read_rows(table)
        if rows:
            save(paint(rows), file)
