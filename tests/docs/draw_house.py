"""docs/img/house.svg: core, metric DP and papers, their rooms and which imports which, drawn from the imports.

``python tests/docs/draw_house.py`` draws it again; a test fails where an arrow is missing or stale.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import matplotlib as mpl
import networkx as nx
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from helpers.rooms import FLOORS, METRIC, imports, room_of  # noqa: E402

PICTURE = ROOT / "docs" / "img" / "house.svg"
CORE = "privopt"
TITLES = {CORE: "privopt: the core", METRIC: "privopt-metric-dp"}
WORDS = {
    CORE: {
        "command": "the command line",
        "api": "a release in Python",
        "testing": "the conformance kit",
        "report": "pages and maps",
        "run": "solve, verify, folder, audit",
        "decompose": "Benders decomposition",
        "ledger": "what subjects have spent",
        "estimate": "what reports say of the truth",
        "interfaces": "what a plugin implements; notions",
        "backends": "solvers",
        "declare": "problem files, tables",
        "numbers": "exact bounds, noise",
        "dsl": "modelling language",
        "execution": "limits, processes",
        "files": "safe files",
        "registry": "what is installed",
        "builtin": "the core's own",
        "errors": "exceptions",
        "specs": "what plugins register",
    },
    METRIC: {
        "commands": "certify",
        "kit": "checks for metric mechanisms",
        "mechanisms": "what is registered; the base class",
        "api": "Python names",
        "report": "pages, figures, maps of matrices",
        "solvers": "the optimal LP; closed forms",
        "proof": "lower bounds",
        "attacks": "what an attacker gets",
        "matrix": "repaired, certified, released",
        "traces": "reports along a trace",
        "problem": "what a problem declares and holds",
        "region": "every point of a region",
        "space": "points and distances",
    },
}
"""Rooms with what is in them; helper files (version, __main__, plugin) and the checkers are omitted."""
SHARES = {
    "privopt.testing": 0.75,
    "privopt.report": 0.29,
    "privopt.run": 0.29,
    f"{METRIC}.kit": 0.73,
    f"{METRIC}.mechanisms": 0.22,
    f"{METRIC}.api": 0.84,
    f"{METRIC}.report": 0.4,
    f"{METRIC}.solvers": 0.2,
    f"{METRIC}.proof": 0.18,
    f"{METRIC}.attacks": 0.48,
    f"{METRIC}.matrix": 0.35,
    f"{METRIC}.traces": 0.35,
}
"""Rooms that stand elsewhere than in the middle of their share of the row, so that no arrow runs behind a room."""
WIDTH, HEIGHT, TOP, STEP, EDGE = 14.0, 11.6, 9.2, 0.7, 0.19
SPANS = {CORE: (0.2, 8.2), METRIC: (8.9, 13.8)}
"""Where the boxes of the two packages begin and end, from left to right."""


def rows(package: str) -> list[list[str]]:
    """Return the rooms of a package that are drawn, from top to bottom."""
    drawn_here = [
        [package_name for package_name in floor if package_name in WORDS[package]]
        for floor in reversed(FLOORS[package])
    ]
    return [row for row in drawn_here if row]


def arrows() -> set[tuple[str, str]]:
    """Return (room, room it imports from) inside a package, and (package, package); without those that others imply.

    Lazy imports and those for types are included, but for the core's one import of metric DP for types.
    """
    rooms = {f"{package}.{package_name}" for package, words in WORDS.items() for package_name in words}
    inside_arrows, between = set(), set()
    for name, imports_of_file in imports().items():
        for import_ in imports_of_file:
            pair = (room_of(name), room_of(import_.module))
            source_package, target_package = (package_name.split(".")[0] for package_name in pair)
            if source_package != target_package and source_package != CORE:
                between.add((source_package, target_package))
            elif source_package == target_package and pair[0] != pair[1] and rooms.issuperset(pair):
                inside_arrows.add(pair)
    return {edge for graph in (inside_arrows, between) for edge in nx.transitive_reduction(nx.DiGraph(graph)).edges}


def drawn_arrows(picture: str) -> set[tuple[str, str]]:
    """Return the arrows that a picture has, by the names of its groups."""
    return {(tail, head) for tail, head in re.findall(r'id="arrow-([\w.]+)-([\w.]+)"', picture)}


def draw() -> Figure:
    """Draw the picture: papers on top, the core at the left, metric DP at the right."""
    figure = Figure(figsize=(WIDTH, HEIGHT))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(0, HEIGHT))
    axes.axis("off")
    places: dict[str, tuple[float, float]] = {}
    box = {"boxstyle": "round,pad=0.35", "facecolor": "#eef3f8", "edgecolor": "#35506b"}

    def write(key: str, words: str, x: float, y: float) -> None:
        places[key] = (x, y)
        axes.text(x, y, words, ha="center", va="center", fontsize=8, bbox=box, zorder=3)

    for package, (left_x, right) in SPANS.items():
        levels = rows(package)
        low = TOP - STEP * len(levels) - 0.5
        axes.add_patch(
            FancyBboxPatch((left_x, low), right - left_x, TOP - low, boxstyle="round,pad=0.05", fc="none", ec="#9aa9b8")
        )
        axes.text(left_x + 0.1, TOP - 0.2, TITLES[package], fontsize=10, weight="bold", va="center")
        places[package] = (left_x, TOP)
        for level, row in enumerate(levels):
            for column, package_name in enumerate(row):
                key = f"{package}.{package_name}"
                x = left_x + (right - left_x) * SHARES.get(key, (column + 0.5) / len(row))
                write(key, f"{package_name}\n{WORDS[package][package_name]}", x, TOP - 0.75 - STEP * level)
    for (level, package), row in plugin_rows().items():
        left_x, right = SPANS[package]
        for column, name in enumerate(row):
            row_fraction = 0.5 if level or package == CORE else 0.33  # beside the arrows from the row above
            x = left_x + (right - left_x) * (column + row_fraction) / len(row)
            write(name, name.removeprefix("privopt_").replace("_", "-"), x, TOP + 0.6 + STEP * level)
    for tail, head in sorted(arrows()):
        (x, y), (u, v) = places[tail], places[head]
        arrow_ends = ((x, y - EDGE), (u, v + EDGE))
        if head in SPANS:
            arrow_ends = ((8.85, TOP - 0.4), (8.25, TOP - 0.4)) if tail in SPANS else ((x, y - EDGE), (x, TOP + 0.05))
        arrow = FancyArrowPatch(
            *arrow_ends,
            arrowstyle="-|>",
            mutation_scale=9,
            shrinkA=0,
            shrinkB=0,
            color="#35506b",
            alpha=0.6,
            lw=0.9,
            zorder=2,
        )
        arrow.set_gid(f"arrow-{tail}-{head}")
        axes.add_patch(arrow)
    return figure


def plugin_rows() -> dict[tuple[int, str], list[str]]:
    """Return the other plugins in rows, by how many of one another they stand on, over the core or over metric DP."""
    graph = nx.DiGraph(edge for edge in arrows() if not any("." in end for end in edge))
    graph.add_nodes_from(name.split(".")[0] for name in imports())
    rows: dict[tuple[int, str], list[str]] = {}
    for name in sorted(graph.nodes - SPANS.keys()):
        required_plugins = graph.subgraph(nx.descendants(graph, name) - SPANS.keys() | {name})
        package = METRIC if METRIC in nx.descendants(graph, name) else CORE
        rows.setdefault((nx.dag_longest_path_length(required_plugins), package), []).append(name)
    return rows


def main() -> None:
    """Draw it again."""
    with mpl.rc_context({"svg.hashsalt": "house", "svg.fonttype": "none"}):
        figure = draw()
        figure.savefig(PICTURE, facecolor="white", metadata={"Date": None, "Creator": None})
        if len(sys.argv) > 1:
            figure.savefig(sys.argv[1], facecolor="white", dpi=90)


if __name__ == "__main__":
    main()
