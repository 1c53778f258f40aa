"""Draw the pictures of FL-Linear's tables."""

from __future__ import annotations

from typing import Any, Final

from experiments.pictures import COLOURS, Painter, Rows, curve, dress, numbers, panels
from experiments.tables import number, split

__all__ = ["PICTURES"]

SIDE_BY_SIDE: Final = ("fig1", "fig2", "fig3a")
"""Figures with a panel for each series."""
AXES: Final = {
    "fig1": ("", ""),
    "fig2": ("delta", "normalised cost"),
    "fig3a": ("delta", "normalised cost"),
    "fig3b": ("epsilon", "normalised cost"),
    "fig4": ("locations expected", "cost"),
    "fig5": ("clients a location", "normalised cost"),
    "fig6": ("", ""),
    "fig7": ("delta", "normalised cost"),
}
"""Labels of the horizontal and the vertical axis, by figure."""


def _painter(name: str) -> Painter:
    """Return the function that draws a figure, given by its name, from the rows of its table."""

    def paint(rows: Rows) -> Any:
        """Draw the points of a map, or curves, in a panel for each series."""
        series = split(rows, "series") if name in SIDE_BY_SIDE else {"": rows}
        figure, axes = panels(len(series), width=5.2, height=4.2)
        for axis, (title, series_rows) in zip(axes[0], series.items(), strict=True):
            if name in ("fig1", "fig6"):
                axis.scatter(numbers(series_rows, "x"), numbers(series_rows, "mean"), s=4)
                axis.set_aspect("equal")
            else:
                _lines(axis, series_rows)
            quick = "(quick)" if series_rows[0]["quick"] == "True" else ""
            dress(axis, " ".join(filter(None, (name, title, quick))), *AXES[name])
        return figure

    return paint


def _lines(axis: Any, rows: Rows) -> None:
    """Draw a curve for each method and margin, or a horizontal line for a method without an x.

    The vertical axis is logarithmic if the largest mean is more than 8 times the smallest.
    """
    turn = 0
    for method, method_rows in split(rows, "method").items():
        for margin, margin_rows in split(method_rows, "margin").items():
            label, colour = f"{method}, {margin} margin" if margin else method, COLOURS[turn % len(COLOURS)]
            turn += 1
            if margin_rows[0]["x"] == "":  # the same at every x
                axis.axhline(number(margin_rows[0]["mean"]), linestyle="--", linewidth=1, color=colour, label=label)
            else:
                curve(axis, margin_rows, "x", "mean", style="-", color=colour, label=label)
    means = numbers(rows, "mean")
    if means.max() > 8 * means.min():
        axis.set_yscale("log")


PICTURES: Final[dict[str, tuple[str, Painter]]] = {name: (name, _painter(name)) for name in AXES}
