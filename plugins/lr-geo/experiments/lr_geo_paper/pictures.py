"""Draw the pictures of LR-Geo's tables. Rows that a limit ended early are left out, because they show the limit."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from experiments.pictures import Painter, Rows, curve, curves, dress, numbers, panels
from experiments.tables import split

__all__ = ["PICTURES"]


def _single_panel() -> tuple[Any, Any]:
    """Return a figure with one panel, and its axes."""
    figure, axes = panels(width=5.2, height=3.4)
    return figure, axes[0, 0]


def _unlimited_rows(rows: Rows) -> Rows:
    """Return the rows of trials that no limit ended early."""
    return [row for row in rows if row["limited"] != "True"]


def _rounds(rows: Rows) -> Any:
    """Draw Figure 6: the upper and the lower bound by round."""
    figure, axes = _single_panel()
    for name, label in (("upper", "best found"), ("lower", "proved")):
        axes.plot(numbers(rows, "round"), numbers(rows, name), label=label)
    dress(axes, x="round", y="CLR-Geo, km a report")
    return figure


def _plain_picture(x: str, y: str, labels: tuple[str, str]) -> Painter:
    """Return a function that draws one curve of column ``y`` over column ``x``, with ``labels`` of both axes."""

    def paint(rows: Rows) -> Any:
        """Draw the curve from the rows of a table."""
        figure, axes = _single_panel()
        curve(axes, _unlimited_rows(rows), x, y)
        dress(axes, x=labels[0], y=labels[1])
        axes.set_ylim(bottom=min(0.0, *axes.get_ylim()))
        return figure

    return paint


def _picture_by_column(column: str, x: str, y: str, labels: tuple[str, str], **options: Any) -> Painter:
    """Return a function that draws a curve of ``y`` over ``x`` for each value of a column.

    Args:
        column: The column whose values get a curve each.
        x, y: Columns of the axes.
        labels: Labels of the axes.
        options: Further properties of the axes, for Matplotlib.
    """

    def paint(rows: Rows) -> Any:
        """Draw the curves from the rows of a table."""
        figure, axes = _single_panel()
        curves(axes, _unlimited_rows(rows), x, y, column)
        dress(axes, x=labels[0], y=labels[1], **options)
        return figure

    return paint


def _errors(rows: Rows) -> Any:
    """Draw Figure 12: box plots of the greatest Geo-Ind error of a draw, by the number of users."""
    figure, axes = _single_panel()
    groups = {
        int(users): numbers(user_rows, "gv_error") for users, user_rows in split(_unlimited_rows(rows), "users").items()
    }
    finite_values = [values[np.isfinite(values)] for values in groups.values()]
    axes.boxplot(finite_values, positions=list(groups), widths=1.0)
    dress(axes, x="users", y="greatest Geo-Ind error of a draw")
    return figure


def _matched_picture(rows: Rows) -> Any:
    """Draw Figure 13: matching rows by the cell size, with bars of 1.96 standard deviations (95 % if normal)."""
    figure, axes = _single_panel()
    for name, label in (("as_printed", "interval as printed"), ("true_interval", "interval of Equation (27)")):
        bars = 1.96 * numbers(rows, f"{name}_sd")
        axes.errorbar(numbers(rows, "side"), numbers(rows, name), yerr=bars, fmt="-o", capsize=2, label=label)
    dress(axes, x="cell of the table, km", y="rows that match a coefficient", yscale="log")
    return figure


def _city(rows: Rows) -> Any:
    """Draw the cost over the number of cells for each method, at the epsilon of the first row."""
    first = rows[0]["epsilon_asked"]
    figure, axes = _single_panel()
    curves(axes, [row for row in _unlimited_rows(rows) if row["epsilon_asked"] == first], "cells", "cost", "method")
    dress(axes, x="K, cells", y=f"cost, km (epsilon {first} per km)")
    return figure


PICTURES: Final[dict[str, tuple[str, Painter]]] = {
    "figure6": ("rounds", _rounds),
    "table1": ("tables", _picture_by_column("method", "cells", "cpu", ("K, cells", "processor seconds"), yscale="log")),
    "table2": ("tables", _picture_by_column("method", "cells", "cost", ("K, cells", "cost, km"), yscale="log")),
    "figure9a": ("grids", _plain_picture("cells", "cpu", ("K, cells of an even grid", "processor seconds, 4 users"))),
    "figure9b": ("users", _plain_picture("users", "cpu", ("users", "processor seconds"))),
    "figure10a": ("gamma", _plain_picture("radius", "ratio", ("Gamma, km", "approximation ratio"))),
    "figure10b": ("side", _plain_picture("side", "ratio", ("cell of the table, km", "approximation ratio"))),
    "figure11": ("users", _plain_picture("users", "gv_ratio", ("users", "Geo-Ind violation ratio"))),
    "figure12": ("users", _errors),
    "figure13": ("matched", _matched_picture),
    "range": ("range", _plain_picture("range", "cost", ("r_obf, km (epsilon 2 per km)", "cost, km"))),
    "exponents": (
        "exponents",
        _picture_by_column("exponent", "epsilon_asked", "cost", ("epsilon, per km", "cost, km")),
    ),
    "city": ("city", _city),
}
