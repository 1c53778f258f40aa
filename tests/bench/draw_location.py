"""Pictures of the experiment of bench_location.py: ``python tests/bench/draw_location.py`` draws both again.

The first is of the table in docs/benchmarks/location.md, so that table and picture agree; the second of one person's
first two weeks, with the parameters of that table.
"""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
from attrs import frozen
from bench_location import (
    DAYS,
    LINE,
    SIDE,
    Way,
    follow_persons,
    guessed_home,
    laplace,
    report_by_fudger,
    report_by_policy,
    report_on_a_grid,
    report_predictively,
    year,
)
from matplotlib import pyplot as plt

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, PICTURES = DOCS / "benchmarks/location.md", DOCS / "img"
ATTACKS = (
    ("home", "homes found\nwithin 1.5 km, %"),
    ("crossing", "crossings seen\nwithin the hour, %"),
    ("walk", "mean error of a walk\nthat is followed, km"),
)
PERSONS = 30
"""Of the year; the one who lives nearest to the middle of the town is drawn."""
NUMBER = re.compile(r"\d*\.\d+|\d+")


@frozen(kw_only=True)
class Row:
    """A row of the table: a way with its parameter, and what attackers found, % and km."""

    way: str
    parameter: float
    home: float
    crossing: float
    walk: float


def table() -> list[Row]:
    """Read the page's table."""
    lines = PAGE.read_text("utf-8").split("| way | mean error, km |")[1].splitlines()[2:]
    rows = []
    for line in lines[: lines.index("")]:
        way, _, home, _, crossing, walk, _ = (cell.strip().replace("`", "") for cell in line.strip("|").split("|"))
        numbers = [float(NUMBER.findall(cell)[-1]) for cell in (way, home, crossing, walk)]
        rows.append(Row(**dict(zip(("parameter", "home", "crossing", "walk"), numbers, strict=True)), way=way))
    return rows


def bars(rows: list[Row]) -> None:
    """Draw what each attack finds, a bar for each way; ours are darker."""
    figure, panels = plt.subplots(1, 3, figsize=(9.0, 2.8), sharey=True, layout="constrained")
    names = [row.way for row in rows]
    colours = ["#0b57a4" if name.startswith("ours") else "#b0b6bf" for name in names]
    for panel, (attack, title) in zip(panels, ATTACKS, strict=True):
        bars_drawn = panel.barh(names, [getattr(row, attack) for row in rows], color=colours)
        panel.bar_label(bars_drawn, padding=2)
        panel.margins(x=0.15)
        panel.set_title(title, fontsize=9)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].invert_yaxis()
    figure.savefig(PICTURES / "location-attacks.svg", metadata={"Date": None})


def ways(rows: list[Row], at: np.ndarray) -> list[Way]:
    """Return the grid, the fudger, planar Laplace, and ours by three policies, with the parameters of the table."""
    by_name = {row.way.split(",")[0 if not row.way.startswith("ours") else 1].strip(): row.parameter for row in rows}
    return [
        report_on_a_grid(at),
        report_by_fudger(by_name["Android's fudger"], at),
        laplace(by_name["planar Laplace"], at),
        report_by_policy("fresh", by_name["fresh"], at),
        report_by_policy("places", by_name["kept places"], at),
        report_predictively(by_name["predictive"], at),
    ]


def example(rows: list[Row]) -> None:
    """Draw one person's two weeks: the truth, the reports, the guessed home, and the trace that is followed."""
    homes, everybody = year(PERSONS, np.random.default_rng(1))
    person = int(np.hypot(*(homes - SIDE / 2).T).argmin())
    at = everybody[person : person + 1]
    figure, panels = plt.subplots(2, 3, figsize=(9.0, 6.2), sharex=True, sharey=True, layout="constrained")
    for panel, way in zip(panels.flat, ways(rows, at), strict=True):
        reported = way.reported[0, : 24 * DAYS]
        places, counts = np.unique(reported.round(3), axis=0, return_counts=True)
        panel.scatter(*places.T, s=4 + 4 * np.sqrt(counts), c="#b0b6bf", label="reports of two weeks")
        panel.plot(*at[0, : 24 * DAYS].T, c="#1b1b1f", lw=0.9, label="where the person was")
        panel.plot(*follow_persons(way)[:, 0].T, c="#c2410c", lw=0.9, label="as it is followed")
        panel.plot(*homes[person], "^", c="#1b1b1f", ms=8, label="home")
        panel.plot(*guessed_home(way, 0), "x", c="#c2410c", ms=9, mew=2, label="home, guessed from a year's nights")
        panel.axvline(LINE, c="#1b1b1f", lw=0.8, ls="--", label="the line")
        panel.set_title(f"{way.name}, {way.parameter}", fontsize=9)
        panel.set(xlim=(0, SIDE), ylim=(0, SIDE), aspect="equal", xticks=[0, 10, 20], yticks=[0, 10, 20])
    figure.legend(*panels.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(PICTURES / "location-example.png", dpi=90, metadata={"Software": None})


def main() -> None:
    """Draw both."""
    mpl.rcParams.update({"svg.hashsalt": "location", "svg.fonttype": "none", "font.size": 9})
    rows = table()
    bars(rows)
    example(rows)


if __name__ == "__main__":
    main()
