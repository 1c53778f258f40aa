"""docs/img/house.svg: the rooms of privopt and which imports which, drawn from the imports themselves.

``python tests/docs/draw_house.py`` draws it again; a test fails where an arrow is missing or stale.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import matplotlib as mpl
import networkx as nx
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from test_floors import MODULES, floor_of, imported  # noqa: E402

PICTURE = ROOT / "docs" / "img" / "house.svg"

ROWS = [
    [("command", "the command line"), ("testing", "the conformance kit")],
    [("tables", "protected tables")],
    [("metric", "metric DP: spaces, losses, notion, attacks, solvers, baselines")],
    [("run", "solve, verify, folder, result, audit, report"), ("noise", "additive noise")],
    [("decompose", "Benders"), ("interfaces", "what a plugin implements; notions")],
    [("exact", "weights, proofs, samples"), ("backends", "solvers, a module each"), ("dsl", "the modelling language")],
    [("execution", "where work runs"), ("declare", "keys, TOML, tables"), ("builtin", "what privopt registers")],
    [("errors", "exceptions"), ("specs", "what is registered, as data"), ("registry", "finds what is registered")],
]
"""Rooms from top to bottom, with what is in them; single helper files are left out."""

WIDTH, HEIGHT = 10.0, 9.4


def arrows() -> set[tuple[str, str]]:
    """(room, room it imports from), lazy imports included; without those that others imply."""
    rooms = {name for row in ROWS for name, _ in row}
    found = set()
    for path in MODULES:
        own = floor_of(path)
        for name, _ in imported(ast.parse(path.read_text("utf-8"))):
            other = name.split(".")[1] if name.startswith("privopt.") else own
            if {own, other} <= rooms and own != other:
                found.add((own, other))
    return set(nx.transitive_reduction(nx.DiGraph(found)).edges)


def drawn(picture: str) -> set[tuple[str, str]]:
    """The arrows that a picture has, by the names of its groups."""
    return {(one, two) for one, two in re.findall(r'id="arrow-(\w+)-(\w+)"', picture)}


def draw() -> Figure:
    """The picture."""
    figure = Figure(figsize=(WIDTH, HEIGHT))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(0, HEIGHT))
    axes.axis("off")
    places = {}
    step = HEIGHT / len(ROWS)
    for level, row in enumerate(ROWS):
        for column, (name, words) in enumerate(row):
            x, y = WIDTH * (column + 0.5) / len(row), HEIGHT - step * (level + 0.5)
            places[name] = (x, y)
            box = {"boxstyle": "round,pad=0.5", "facecolor": "#eef3f8", "edgecolor": "#35506b"}
            axes.text(x, y, f"{name}\n{words}", ha="center", va="center", fontsize=8.5, bbox=box, zorder=3)
    for one, two in sorted(arrows()):
        (x, y), (u, v) = places[one], places[two]
        arrow = FancyArrowPatch(
            (x, y),
            (u, v),
            arrowstyle="-|>",
            mutation_scale=9,
            shrinkA=18,
            shrinkB=30,
            color="#35506b",
            alpha=0.6,
            lw=0.9,
            connectionstyle="arc3,rad=0.25" if abs(y - v) < step / 2 else "arc3,rad=0.06",
            zorder=2,
        )
        arrow.set_gid(f"arrow-{one}-{two}")
        axes.add_patch(arrow)
    return figure


def main() -> None:
    """Draw it again."""
    with mpl.rc_context({"svg.hashsalt": "house", "svg.fonttype": "none"}):
        draw().savefig(PICTURE, facecolor="white", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
