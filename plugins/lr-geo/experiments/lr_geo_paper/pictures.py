"""The experiments' pictures, from their CSV files."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

Rows = list[dict[str, str]]


def draw(folder: Path) -> list[Path]:
    """Every picture that there are rows for and that is older than they are; the files made.

    Rows that a limit ended early are left out: they tell of the limit.
    """
    from matplotlib.figure import Figure

    made = []
    for name, (source, paint) in PICTURES.items():
        path, target = folder / source, folder / f"{name}.png"
        if not path.is_file() or (target.is_file() and target.stat().st_mtime_ns >= path.stat().st_mtime_ns):
            continue
        with path.open(newline="", encoding="utf-8") as stream:
            rows = [row for row in csv.DictReader(stream) if row.get("limited") != "True"]
        if not rows:
            continue
        figure = Figure(figsize=(5.2, 3.4), layout="constrained")
        paint(figure.subplots(), rows)
        figure.savefig(target, dpi=110)
        made.append(target)
    return made


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _spread(axes: Axes, rows: Rows, x: str, y: str, label: str | None = None, per: str | None = None) -> None:
    """Mean and 1.96 standard deviations of y over draws, by x."""
    places = sorted({_number(row[x]) for row in rows})
    groups = [[row for row in rows if _number(row[x]) == place] for place in places]
    values = [[_number(row[y]) / (_number(row[per]) if per else 1.0) for row in group] for group in groups]
    known = [np.array([v for v in part if np.isfinite(v)]) for part in values]
    mean = [part.mean() if part.size else np.nan for part in known]
    sd = [1.96 * part.std(ddof=1) if part.size > 1 else 0.0 for part in known]
    axes.errorbar(places, mean, yerr=sd, marker="o", capsize=3, linewidth=1.2, markersize=4, label=label)


def _rounds(axes: Axes, rows: Rows) -> None:
    for name, label in (("upper", "best found"), ("lower", "proved")):
        axes.plot([_number(r["round"]) for r in rows], [_number(r[name]) for r in rows], label=label)
    axes.set(xlabel="round", ylabel="CLR-Geo, km a report")
    axes.legend()


def _plain(x: str, y: str, labels: tuple[str, str], **options: Any) -> Callable[[Axes, Rows], None]:
    def paint(axes: Axes, rows: Rows) -> None:
        _spread(axes, rows, x, y, **options)
        axes.set(xlabel=labels[0], ylabel=labels[1])
        axes.set_ylim(bottom=min(0.0, *axes.get_ylim()))

    return paint


def _bars(y: str, unit: str) -> Callable[[Axes, Rows], None]:
    def paint(axes: Axes, rows: Rows) -> None:
        for name in dict.fromkeys(row["method"] for row in rows):
            _spread(axes, [row for row in rows if row["method"] == name], "cells", y, label=name)
        axes.set(xlabel="K, cells", ylabel=unit, yscale="log")
        axes.legend(fontsize=6, ncols=2)

    return paint


def _errors(axes: Axes, rows: Rows) -> None:
    places = sorted({int(row["users"]) for row in rows})
    groups = [[_number(row["gv_error"]) for row in rows if int(row["users"]) == place] for place in places]
    axes.boxplot([[v for v in group if np.isfinite(v)] for group in groups], positions=places, widths=1.0)
    axes.set(xlabel="users", ylabel="greatest Geo-Ind error of a draw")


def _matched(axes: Axes, rows: Rows) -> None:
    x = [_number(row["side"]) for row in rows]
    for name, label in (("as_printed", "interval as printed"), ("true_interval", "interval of Equation (27)")):
        mean, sd = (np.array([_number(row[part]) for row in rows]) for part in (name, f"{name}_sd"))
        axes.errorbar(x, mean, yerr=1.96 * sd, marker="o", capsize=3, linewidth=1.2, markersize=4, label=label)
    axes.set(xlabel="cell of the table, km", ylabel="rows that match a coefficient", yscale="log")
    axes.legend()


def _exponents(axes: Axes, rows: Rows) -> None:
    for exponent in dict.fromkeys(row["exponent"] for row in rows):
        part = [row for row in rows if row["exponent"] == exponent]
        _spread(axes, part, "epsilon_asked", "cost", label=f"exponent {exponent}")
    axes.set(xlabel="epsilon, per km", ylabel="cost, km")
    axes.legend()


def _city(axes: Axes, rows: Rows) -> None:
    for name in dict.fromkeys(row["method"] for row in rows):
        part = [row for row in rows if row["method"] == name and row["epsilon_asked"] == rows[0]["epsilon_asked"]]
        _spread(axes, part, "cells", "cost", label=name)
    axes.set(xlabel="K, cells", ylabel=f"cost, km (epsilon {rows[0]['epsilon_asked']} per km)")
    axes.legend(fontsize=6, ncols=2)


PICTURES: dict[str, tuple[str, Callable[[Axes, Rows], None]]] = {
    "figure6": ("rounds.csv", _rounds),
    "table1": ("tables.csv", _bars("cpu", "processor seconds")),
    "table2": ("tables.csv", _bars("cost", "cost, km")),
    "figure9a": ("grids.csv", _plain("cells", "cpu", ("K, cells of an even grid", "processor seconds, 4 users"))),
    "figure9b": ("users.csv", _plain("users", "cpu", ("users", "processor seconds"))),
    "figure10a": ("gamma.csv", _plain("radius", "ratio", ("Gamma, km", "approximation ratio"))),
    "figure10b": ("side.csv", _plain("side", "ratio", ("cell of the table, km", "approximation ratio"))),
    "figure11": ("users.csv", _plain("users", "gv_ratio", ("users", "Geo-Ind violation ratio"))),
    "figure12": ("users.csv", _errors),
    "figure13": ("matched.csv", _matched),
    "range": ("range.csv", _plain("range", "cost", ("r_obf, km (epsilon 2 per km)", "cost, km"))),
    "exponents": ("exponents.csv", _exponents),
    "city": ("city.csv", _city),
}
