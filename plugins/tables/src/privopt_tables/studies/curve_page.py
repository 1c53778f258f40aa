"""``privopt explore`` and ``privopt curve``: the curves into one offline page of sliders, and into a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from fractions import Fraction
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from privopt.declare.exact_text import exact_text
from privopt.declare.schema import File
from privopt.files.new_folder import new_file
from privopt.files.targets import check_files
from privopt.registry import registry
from privopt.report.page import document, drawing, script_json, table
from privopt.report.theme import INK, save
from privopt.run.options import Options
from privopt.run.task import read_problem
from privopt_tables.studies.curve import Curves, draw_curves
from privopt_tables.studies.curve_file import PointsFile
from privopt_tables.studies.curve_pictures import by_mechanism, figure_of, figures_of, latex_of
from privopt_tables.studies.curve_points import OF_RELEASE, Point
from privopt_tables.studies.epsilon_range import epsilons_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any

__all__ = ["curve_page", "write_curves"]

SLIDER_STEPS: Final = 200
"""Positions of a slider over numbers."""

SLIDER_FACTORS: Final = (1.1, 20.0)
"""Ends of the slider of factors: below the first next to nothing is learnt, above the last a guess is 95 % sure."""

EPSILONS_EXPLORED: Final = 9
"""Epsilons that ``explore`` solves where none are given: from a fourth of the problem's own to four times it."""


def _around(source: File, mechanisms: Sequence[str]) -> tuple[str, str, int]:
    """Return the ends of the epsilons around a problem's own, and how many."""
    declared: Any = read_problem(registry().get(next(iter(mechanisms), "optimal-lp")).load(), source)
    own = getattr(getattr(declared, "privacy", None), "epsilon", None)
    if not isinstance(own, Fraction):
        own = Fraction(1)  # of a mechanism without a curve, which is refused next
    return exact_text(own / 4), exact_text(own * 4), EPSILONS_EXPLORED


def write_curves(
    problem: Path,
    mechanisms: Sequence[str],
    epsilon: str | None,
    out: Path | None,
    report: Path | None,
    options: Options,
    announce: Callable[[str], object] | None = None,
    *,
    figures: Path | None = None,
    latex: Path | None = None,
) -> Curves:
    """Solve, and write what was found: each point into the table as it comes, and what the table shows at the end.

    Args:
        problem: the problem file.
        mechanisms: names.
        epsilon: LO:HI:N; None for values around the problem's own.
        out: the table, CSV; one that the same command has begun is gone on with. None for the page alone.
        report: the page, on which epsilon is chosen, or None.
        options: those that :func:`privopt_tables.studies.curve.draw_curves` uses; ``force`` replaces files that are
            there.
        announce: called with each refusal, as there.
        figures: folder for the pictures as SVG, PDF and PNG, or None.
        latex: the table for LaTeX, or None.

    Raises:
        UsageError: files that are there, or options that cannot be meant so.
        PrivoptError: as :func:`privopt_tables.studies.curve.draw_curves`.
    """
    growing = None if out is None else PointsFile(path=out, force=options.force)
    replaced = options.force or (growing is not None and growing.begun)
    of_page = "--out" if out is None else "--report"
    check_files({"--out": out, "--latex": latex, of_page: report}, force=replaced, read=[problem])
    source = File.read(problem, wanted="a problem file in TOML")
    epsilons = epsilons_of(epsilon or _around(source, mechanisms))
    found = draw_curves(source, mechanisms, epsilons, options, announce, growing)
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
            made.enter_context(new_file(report, force=replaced, option=of_page)).write_text(page, "utf-8")
        if out is not None and growing is not None:
            growing.start()
            found.table().write_csv(made.enter_context(new_file(out, force=True)))
    return found


def curve_page(curves: Curves, problem: str) -> str:
    """Return one HTML document, without anything from outside; ``problem`` is the problem file's name."""
    head = (
        *("mechanism", f"loss ({curves.unit})", f"proved bound ({curves.unit})", "gap", "Bayes error"),
        *(f"error, {part} ({curves.distance_unit})" for part in ("median", "95 %")),
        *("epsilon achieved", f"attacker's error ({curves.unit})", "status"),
    )
    groups = list(by_mechanism(curves.points).values())
    values = [float(point.epsilon) for point in groups[0]]
    start = (len(values) - 1) // 2
    figure = figure_of(curves.points, curves.unit, curves.distance_unit)
    figure.axes[0].axvline(values[start], color=INK, linewidth=1, gid="here")
    title = f"Choose epsilon: {problem}"
    shown = drawing("Loss over epsilon", figure)
    noun, limits = curves.setting.noun, (f"Note: {line}" for line in curves.setting.limits)
    notes = "".join(f"<p>{escape(line)}.</p>" for line in (*limits, *curves.refused, *curves.notes))
    every = [(name, f"{float(point.epsilon):.4g}", *rest) for point in curves.points for name, *rest in [_cells(point)]]
    content = {
        "epsilons": [f"{value:.4g}" for value in values],
        "values": values,
        "rows": [[_cells(points[place]) for points in groups] for place in range(len(values))],
        "best": [_best([points[place] for points in groups]) for place in range(len(values))],
        "before": [curves.setting.bayes_error, curves.setting.adversary_error],
        "noun": noun,
        "apart": curves.setting.apart,
        "odds": curves.setting.odds,
        "unit": curves.unit,
        "perKm": None if curves.per_km is None else attrs.asdict(curves.per_km),
        "distanceUnit": curves.distance_unit,
        "across": _across(figure, values),
        "factors": SLIDER_FACTORS,
        "steps": SLIDER_STEPS,
    }
    script = files("privopt_tables.studies").joinpath("curve_page.js").read_text("utf-8")
    header = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    sliders = (
        _slider("epsilon", "Epsilon", len(values) - 1, start)
        + _slider("radius", "Hide me within", SLIDER_STEPS, SLIDER_STEPS // 2)
        + _slider("factor", "up to a factor of", SLIDER_STEPS, SLIDER_STEPS // 2)
        + _slider("bear", "I can bear", SLIDER_STEPS, SLIDER_STEPS // 2)
    )
    return document(
        title,
        f"<header><h1>{escape(title)}</h1><p>What a release loses at each epsilon, to choose one. Units: "
        f"{escape(curves.unit)} (loss, attacker's error), {escape(curves.distance_unit)} (other errors), per "
        f"{escape(curves.distance_unit)} (epsilon).</p><p>Every loss is that of a release that was certified; no "
        "release with the same promise loses less than the proved bound. Bayes error: how often an attacker who sees "
        f"one report guesses the wrong {noun}. Attacker's error: how far off that guess is on average.</p>{notes}"
        "</header><main>"
        f'<section><h2>Choose</h2><p>Move one; the others follow.</p><div class="noprint">{sliders}</div>'
        f'<div id="told" class="told" aria-live="polite"></div>{shown}</section>'
        '<section class="whole"><h2>At this epsilon</h2>'
        '<div class="scroll" tabindex="0" role="region" aria-label="Table: at this epsilon">'
        f'<table><thead><tr>{header}</tr></thead><tbody id="at"></tbody></table></div></section>'
        f"<section class=whole><h2>All</h2>{table('Every point', (head[0], 'epsilon', *head[1:]), every)}</section>"
        "<noscript><p>The sliders need scripts; the picture and the last table do not.</p></noscript></main>"
        f'<script type="application/json" id="points">{script_json(content)}</script><script>{script}</script>',
    )


def _slider(name: str, label: str, last: int, value: int) -> str:
    return (
        f'<p><label for="{name}">{label}</label> <output id="{name}-is" for="{name}"></output>'
        f'<input type="range" id="{name}" min="0" max="{last}" value="{value}" autocomplete="off"></p>'
    )


def _across(figure: Figure, values: Sequence[float]) -> list[float]:
    """Return where epsilons stand in a figure that was drawn, from its left in points, as its SVG counts."""
    places = figure.axes[0].transData.transform([(value, 1.0) for value in values])[:, 0]
    return [round(float(place), 2) for place in places / figure.bbox.width * 72 * figure.get_figwidth()]


def _best(points: Sequence[Point]) -> dict[str, object] | None:
    """Return the figures of the mechanism that loses least at one epsilon."""
    known = [point for point in points if point.loss is not None]
    if not known:
        return None
    best = min(known, key=lambda point: point.loss or 0.0)
    return {
        "name": best.mechanism,
        "loss": best.loss,
        "bound": best.lower_bound,
        "wrong": best.bayes_error,
        "miss": best.adversary_error,
    }


def _cells(point: Point) -> Sequence[str]:
    figures = (point.loss, point.lower_bound, point.gap, *(getattr(point, name) for name in OF_RELEASE))
    shown = ["none" if value is None else f"{value:.4g}" for value in figures]
    return (point.mechanism, *shown, point.status)
