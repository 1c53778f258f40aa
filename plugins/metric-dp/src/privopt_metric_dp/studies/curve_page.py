"""``privopt curve``: the curves into a table, and into one offline page: picture, slider over epsilon, the table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privopt.declare.exact_text import epsilons_of
from privopt.declare.schema import File
from privopt.report.page import document, drawing, script_json, table
from privopt.report.theme import axes_of, themed
from privopt.run.options import Options
from privopt.run.publish import check_files, new_file
from privopt_metric_dp.studies.curve import Curves, Point, draw_curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any

__all__ = ["curve_page", "figure_of", "write_curves"]

DECADES: Final = 3.0
"""Beyond so many on an axis powers of ten alone are labelled."""

MARKERS: Final = "osD^vPX*"
"""Of lines of one colour: the next is taken as often as the colours have all been used."""

LABEL: Final = 48
"""Characters of a name in the picture at most."""

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
    tell: Callable[[str], object] | None = None,
) -> Curves:
    """Solve, and write what was found.

    Args:
        problem: the problem file.
        mechanisms: names.
        epsilon: LO:HI:N.
        out: the table, CSV.
        report: the page, or None.
        options: those that :func:`privopt_metric_dp.studies.curve.draw_curves` uses; ``force`` replaces files that are
            there.
        matrices: own mechanisms, as there.
        tell: called with each refusal, as there.

    Raises:
        UsageError: files that are there, or options that cannot be meant so.
        PrivoptError: as :func:`privopt_metric_dp.studies.curve.draw_curves`.
    """
    values = epsilons_of(epsilon)
    check_files({"--out": out, "--report": report}, force=options.force)
    source = File.read(problem, wanted="a problem file in TOML")
    found = draw_curves(source, mechanisms, values, options, matrices, tell)
    with ExitStack() as made:  # both are made before either gets its name
        if report is not None:
            made.enter_context(new_file(report, force=options.force)).write_text(
                curve_page(found, problem.name), "utf-8"
            )
        found.table().write_csv(made.enter_context(new_file(out, force=options.force)))
    return found


@themed
def figure_of(curves: Curves) -> Figure:
    """Loss (lines) and proved bound (dashes) over epsilon, both axes logarithmic."""
    from matplotlib import rcParams
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    figure, axes = axes_of(7.2, 4.6)
    colours = len(rcParams["axes.prop_cycle"])
    for number, (name, points) in enumerate(_by_mechanism(curves).items()):
        losses = [(float(point.epsilon), point.loss) for point in points if point.loss]
        bounds = [(float(point.epsilon), point.lower_bound) for point in points if point.lower_bound]
        if all(point.status == "refused" for point in points):
            continue
        (drawn,) = axes.plot(
            *_sides(losses), marker=MARKERS[number // colours % len(MARKERS)], ms=3, label=_short(name)
        )
        axes.plot(*_sides(bounds), linestyle="--", color=drawn.get_color(), linewidth=1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        decades = math.log10(high / low)
        labelled = (1, 2, 5) if 1 < decades <= DECADES else (1,) if decades > DECADES else range(1, 10)
        axis.set_major_locator(LogLocator(subs=labelled))
        # plain numbers: the theme reads no markup
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(f"epsilon (per {curves.distance_unit})")
    axes.set_ylabel(f"loss ({curves.unit}); dashed: proved bound")
    axes.grid(visible=True, which="both", linewidth=0.4)
    axes.legend()
    return figure


def _short(name: str) -> str:
    """A name with room in the picture: of a long path its end, which tells files apart."""
    return name if len(name) <= LABEL else f"...{name[3 - LABEL :]}"


def _sides(pairs: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [one for one, _ in pairs], [other for _, other in pairs]


def curve_page(curves: Curves, problem: str) -> str:
    """One HTML document, without anything from outside; ``problem`` is the problem file's name."""
    head = (
        *("mechanism", f"loss ({curves.unit})", "proved bound", "gap", "best guess wrong"),
        *(f"error, median ({curves.distance_unit})", "error, 95 %", "status"),
    )
    groups = _by_mechanism(curves)
    epsilons = [f"{float(point.epsilon):.6g}" for point in next(iter(groups.values()))]
    rows = [[_cells(points[place]) for points in groups.values()] for place in range(len(epsilons))]
    title = f"Loss over epsilon: {problem}"
    header = "".join(f"<th>{escape(name)}</th>" for name in head)
    notes = "".join(f"<p>{escape(line)}.</p>" for line in (*curves.refused, *curves.notes))
    last = len(epsilons) - 1
    every = [(name, f"{float(point.epsilon):.6g}", *rest) for point in curves.points for name, *rest in [_cells(point)]]
    return document(
        title,
        f"<header><h1>{escape(title)}</h1>"
        "<p>Every loss is that of a release that was certified; no release with the same promise loses less than the "
        f"proved bound.</p>{notes}</header><main>"
        f"<section>{drawing(title, figure_of(curves))}</section>"
        f'<section class="whole"><h2><label for="epsilon">At epsilon <span id="said"></span></label></h2>'
        f'<input type="range" id="epsilon" min="0" max="{last}" value="{last // 2}" style="width:100%">'
        '<div class="scroll" tabindex="0" role="region" aria-label="At one epsilon">'
        f'<table><thead><tr>{header}</tr></thead><tbody id="at"></tbody></table></div></section>'
        f"<section class=whole><h2>All</h2>{table('Every point', (head[0], 'epsilon', *head[1:]), every)}</section>"
        "</main>"
        f'<script type="application/json" id="points">{script_json({"epsilons": epsilons, "rows": rows})}</script>'
        f"<script>{SCRIPT}</script>",
    )


def _by_mechanism(curves: Curves) -> dict[str, list[Point]]:
    groups: dict[str, list[Point]] = {}
    for point in curves.points:
        groups.setdefault(point.mechanism, []).append(point)
    return groups


def _cells(point: Point) -> Sequence[str]:
    figures = (point.loss, point.lower_bound, point.gap, point.bayes_error, point.error_p50, point.error_p95)
    shown = ["none" if value is None else f"{value:.6g}" for value in figures]
    return (point.mechanism, *shown, point.status)
