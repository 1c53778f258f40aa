"""Pictures of LR-Geo's tables. Rows that a limit ended early are left out: they show the limit."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from experiments.pictures import Painter, Rows, curve, curves, dress, numbers, panels
from experiments.tables import split

__all__ = ["PICTURES"]


def _one() -> tuple[Any, Any]:
    figure, axes = panels(width=5.2, height=3.4)
    return figure, axes[0, 0]


def _whole(rows: Rows) -> Rows:
    return [row for row in rows if row["limited"] != "True"]


def _rounds(rows: Rows) -> Any:
    figure, axes = _one()
    for name, label in (("upper", "best found"), ("lower", "proved")):
        axes.plot(numbers(rows, "round"), numbers(rows, name), label=label)
    dress(axes, x="round", y="CLR-Geo, km a report")
    return figure


def _plain(x: str, y: str, labels: tuple[str, str]) -> Painter:
    def paint(rows: Rows) -> Any:
        figure, axes = _one()
        curve(axes, _whole(rows), x, y)
        dress(axes, x=labels[0], y=labels[1])
        axes.set_ylim(bottom=min(0.0, *axes.get_ylim()))
        return figure

    return paint


def _by(column: str, x: str, y: str, labels: tuple[str, str], **others: Any) -> Painter:
    def paint(rows: Rows) -> Any:
        figure, axes = _one()
        curves(axes, _whole(rows), x, y, column)
        dress(axes, x=labels[0], y=labels[1], **others)
        return figure

    return paint


def _errors(rows: Rows) -> Any:
    figure, axes = _one()
    groups = {int(users): numbers(own, "gv_error") for users, own in split(_whole(rows), "users").items()}
    shown = [values[np.isfinite(values)] for values in groups.values()]
    axes.boxplot(shown, positions=list(groups), widths=1.0)
    dress(axes, x="users", y="greatest Geo-Ind error of a draw")
    return figure


def _matched(rows: Rows) -> Any:
    figure, axes = _one()
    for name, label in (("as_printed", "interval as printed"), ("true_interval", "interval of Equation (27)")):
        bars = 1.96 * numbers(rows, f"{name}_sd")
        axes.errorbar(numbers(rows, "side"), numbers(rows, name), yerr=bars, fmt="-o", capsize=2, label=label)
    dress(axes, x="cell of the table, km", y="rows that match a coefficient", yscale="log")
    return figure


def _city(rows: Rows) -> Any:
    first = rows[0]["epsilon_asked"]
    figure, axes = _one()
    curves(axes, [row for row in _whole(rows) if row["epsilon_asked"] == first], "cells", "cost", "method")
    dress(axes, x="K, cells", y=f"cost, km (epsilon {first} per km)")
    return figure


PICTURES: Final[dict[str, tuple[str, Painter]]] = {
    "figure6": ("rounds", _rounds),
    "table1": ("tables", _by("method", "cells", "cpu", ("K, cells", "processor seconds"), yscale="log")),
    "table2": ("tables", _by("method", "cells", "cost", ("K, cells", "cost, km"), yscale="log")),
    "figure9a": ("grids", _plain("cells", "cpu", ("K, cells of an even grid", "processor seconds, 4 users"))),
    "figure9b": ("users", _plain("users", "cpu", ("users", "processor seconds"))),
    "figure10a": ("gamma", _plain("radius", "ratio", ("Gamma, km", "approximation ratio"))),
    "figure10b": ("side", _plain("side", "ratio", ("cell of the table, km", "approximation ratio"))),
    "figure11": ("users", _plain("users", "gv_ratio", ("users", "Geo-Ind violation ratio"))),
    "figure12": ("users", _errors),
    "figure13": ("matched", _matched),
    "range": ("range", _plain("range", "cost", ("r_obf, km (epsilon 2 per km)", "cost, km"))),
    "exponents": ("exponents", _by("exponent", "epsilon_asked", "cost", ("epsilon, per km", "cost, km"))),
    "city": ("city", _city),
}
