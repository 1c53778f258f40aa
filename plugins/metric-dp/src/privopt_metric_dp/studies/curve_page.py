"""``privopt curve``: the curves into a table, and into one offline page: picture, slider over epsilon, the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from html import escape
from pathlib import Path
from typing import Final

from privopt.declare.exact_text import epsilons_of
from privopt.declare.schema import File
from privopt.report.page import document, drawing, script_json, table
from privopt.report.theme import save
from privopt.run.options import Options
from privopt.run.publish import new_file
from privopt.run.targets import check_files
from privopt_metric_dp.studies.curve import Curves, draw_curves
from privopt_metric_dp.studies.curve_file import PointsFile
from privopt_metric_dp.studies.curve_pictures import by_mechanism, figure_of, figures_of, latex_of
from privopt_metric_dp.studies.curve_points import OF_RELEASE, Point

__all__ = ["curve_page", "write_curves"]

SCRIPT: Final = """
const data = JSON.parse(document.getElementById("points").textContent);
const slider = document.getElementById("epsilon"), said = document.getElementById("said");
const body = document.getElementById("at");
function show() {
  const value = data.epsilons[slider.value];
  said.textContent = value;
  body.replaceChildren(...data.rows[slider.value].map(cells => {
    const row = document.createElement("tr");
    cells.forEach((cell, n) => {
      const made = document.createElement(n ? "td" : "th");
      made.textContent = cell;
      row.append(made);
    });
    return row;
  }));
}
slider.addEventListener("input", show);
show();
"""


def write_curves(
    problem: Path,
    mechanisms: list[str],
    epsilon: str,
    out: Path,
    report: Path | None,
    options: Options,
    matrices: Sequence[Path] = (),
    announce: Callable[[str], object] | None = None,
    *,
    figures: Path | None = None,
    latex: Path | None = None,
) -> Curves:
    """Solve, and write what was found: each point into the table as it comes, and what the table shows at the end.

    Args:
        problem: the problem file.
        mechanisms: names.
        epsilon: LO:HI:N.
        out: the table, CSV; one that the same command has begun is gone on with.
        report: the page, or None.
        options: those that :func:`privopt_metric_dp.studies.curve.draw_curves` uses; ``force`` replaces files that are
            there.
        matrices: own mechanisms, as there.
        announce: called with each refusal, as there.
        figures: folder for the pictures as SVG, PDF and PNG, or None.
        latex: the table for LaTeX, or None.

    Raises:
        UsageError: files that are there, or options that cannot be meant so.
        PrivoptError: as :func:`privopt_metric_dp.studies.curve.draw_curves`.
    """
    values = epsilons_of(epsilon)
    growing = PointsFile(path=out, force=options.force)
    replaced = options.force or growing.begun
    check_files({"--out": out, "--report": report, "--latex": latex}, force=replaced, read=[problem, *matrices])
    source = File.read(problem, wanted="a problem file in TOML")
    found = draw_curves(source, mechanisms, values, options, matrices, announce, growing)
    growing.start()
    with ExitStack() as made:  # all are made before the first gets its name
        if figures is not None:
            for name, figure in figures_of(found.points, found.unit, found.distance_unit).items():
                for ending in (".svg", ".pdf", ".png"):
                    save(figure, made.enter_context(new_file(figures / f"{name}{ending}", force=True)))
        if latex is not None:
            text = latex_of(found.points, found.unit, found.distance_unit)
            made.enter_context(new_file(latex, force=replaced, option="--latex")).write_text(text, "utf-8")
        if report is not None:
            page = curve_page(found, problem.name)
            made.enter_context(new_file(report, force=replaced, option="--report")).write_text(page, "utf-8")
        found.table().write_csv(made.enter_context(new_file(out, force=True)))
    return found


def curve_page(curves: Curves, problem: str) -> str:
    """Return one HTML document, without anything from outside; ``problem`` is the problem file's name."""
    head = (
        *("mechanism", f"loss ({curves.unit})", "proved bound", "gap", "best guess wrong"),
        *(f"error, median ({curves.distance_unit})", "error, 95 %", "epsilon achieved", "adversary's error", "status"),
    )
    groups = by_mechanism(curves.points)
    figure = figure_of(curves.points, curves.unit, curves.distance_unit)
    epsilons = [f"{float(point.epsilon):.6g}" for point in next(iter(groups.values()))]
    rows = [[_cells(points[place]) for points in groups.values()] for place in range(len(epsilons))]
    title = f"Loss over epsilon: {problem}"
    header = "".join(f"<th>{escape(name)}</th>" for name in head)
    notes = "".join(f"<p>{escape(line)}.</p>" for line in (*curves.refused, *curves.notes))
    last = len(epsilons) - 1
    every = [(name, f"{float(point.epsilon):.6g}", *rest) for point in curves.points for name, *rest in [_cells(point)]]
    return document(
        title,
        f"<header><h1>{escape(title)}</h1><p>What a release loses at each epsilon, to choose one. Units: "
        f"{escape(curves.unit)} (loss), {escape(curves.distance_unit)} (errors), per {escape(curves.distance_unit)} "
        "(epsilon).</p><p>Every loss is that of a release that was certified; no release with the same promise loses "
        f"less than the proved bound.</p>{notes}</header><main>"
        f"<section>{drawing(title, figure)}</section>"
        f'<section class="whole"><h2><label for="epsilon">At epsilon <span id="said"></span></label></h2>'
        f'<input type="range" id="epsilon" min="0" max="{last}" value="{last // 2}" style="width:100%">'
        '<div class="scroll" tabindex="0" role="region" aria-label="At one epsilon">'
        f'<table><thead><tr>{header}</tr></thead><tbody id="at"></tbody></table></div></section>'
        f"<section class=whole><h2>All</h2>{table('Every point', (head[0], 'epsilon', *head[1:]), every)}</section>"
        "</main>"
        f'<script type="application/json" id="points">{script_json({"epsilons": epsilons, "rows": rows})}</script>'
        f"<script>{SCRIPT}</script>",
    )


def _cells(point: Point) -> Sequence[str]:
    figures = (point.loss, point.lower_bound, point.gap, *(getattr(point, name) for name in OF_RELEASE))
    shown = ["none" if value is None else f"{value:.6g}" for value in figures]
    return (point.mechanism, *shown, point.status)
