"""Chart and CSV of the solvers' table: ``python tests/bench/draw_measured.py`` writes both again.

They are made from docs/benchmarks.md alone, so that table, chart and CSV agree; a test holds the CSV to the table.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, TABLE, PICTURE = (
    DOCS / "benchmarks.md",
    DOCS / "benchmarks" / "solvers.csv",
    DOCS / "img" / "measured-solvers.svg",
)
HEADER = ("instance", "solver", "processor seconds", "wall clock", "load", "loss", "lower bound", "gap", "private")
DRAWN = ("100 cells, 8nb, e = .7", "100 cells, 8nb, e = .2")
PEERS = (
    "privopt auto",
    "Clarabel",
    "HiGHS IPX",
    "HiGHS HiPO",
    "HiGHS PDLP",
    "HiGHS simplex",
    "scipy linprog",
    "CBC dual",
)
LIMIT = 60.0
"""Processor seconds at which a solve was ended."""


def solver_rows() -> list[list[str]]:
    """Return the cells of the table, without its notes."""
    lines = PAGE.read_text("utf-8").split("| instance | solver |")[1].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines[: lines.index("")]]
    return [row[: len(HEADER)] for row in rows]


def csv_text(rows: list[list[str]]) -> str:
    """Return the table as CSV; what was not measured is empty, and ``private`` is yes or no."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(HEADER)
    for row in rows:
        writer.writerow(
            ["" if cell == "-" else cell.partition(",")[0] if n == 8 else cell for n, cell in enumerate(row)]
        )
    return stream.getvalue()


def draw_solvers(rows: list[list[str]]) -> None:
    """Draw processor seconds of each solver on two maps of 100 cells, with the numbers."""
    mpl.rcParams.update({"svg.hashsalt": "measured", "font.size": 11})
    figure, panels = plt.subplots(2, 1, figsize=(5, 6.4), layout="constrained", sharex=True)
    for panel, instance in zip(panels, DRAWN, strict=True):
        seconds = {row[1]: row[2] for row in rows if row[0] == instance}
        drawn = [name for name in reversed(PEERS) if name in seconds]
        values = [LIMIT if seconds[name] == "-" else float(seconds[name]) for name in drawn]
        colours = ["#0b57a4" if name.startswith("privopt") else "#9aa3ad" for name in drawn]
        panel.barh(drawn, values, color=colours)
        for number, name in enumerate(drawn):
            label = f"not in {LIMIT:.0f} s" if seconds[name] == "-" else f"{values[number]:.3g} s"
            panel.annotate(label, (values[number], number), (4, 0), textcoords="offset points", va="center")
        panel.set_xlim(0, 90)
        panel.set_title(f"epsilon times cell size {instance.rpartition(' ')[2]}", fontsize=11)
        panel.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("processor seconds")
    figure.savefig(PICTURE, metadata={"Date": None})


def main() -> None:
    """Write CSV and chart."""
    rows = solver_rows()
    TABLE.write_text(csv_text(rows), "utf-8")
    draw_solvers(rows)


if __name__ == "__main__":
    main()
