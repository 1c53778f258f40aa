"""Write the results of ``privopt curve`` and ``privopt explore`` as an offline page with sliders, figures and tables.

The page's script, curve_page.js, responds to the sliders. It takes the results for the chosen epsilon from data
embedded in the page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import attrs

from privopt.arrays import Figure
from privopt.declare.schema import File
from privopt.declare.toml_text import exact_text
from privopt.files.new_folder import check_files, check_files_folder, check_parent, new_file
from privopt.registry import registry
from privopt.report.page import table
from privopt.report.templates import render
from privopt.report.theme import INK, make_narrow, save, svg
from privopt.run.task import Options, read_problem
from privopt_tables.studies.curve import Curves, draw_curves
from privopt_tables.studies.curve_file import PointsFile
from privopt_tables.studies.curve_pictures import draw_figures, draw_loss, format_latex, group_by_mechanism
from privopt_tables.studies.curve_points import OF_RELEASE, Point
from privopt_tables.studies.epsilon_range import parse_epsilons

__all__ = ["curve_page", "write_curves"]

SLIDER_STEPS: Final = 200
"""The number of steps in each slider that selects a real number."""

SLIDER_FACTORS: Final = (1.1, 20.0)
"""The smallest and largest values of the slider for factors. A report that changes odds by less than the smallest
factor reveals almost nothing. The largest factor can turn even odds into a probability of 95 %."""

SLIDERS: Final = {
    "radius": "Hide me within",
    "factor": "Odds may change at most by a factor of",
    "bear": "Largest average error",
}
"""The labels of the sliders that select real numbers, keyed by the sliders' ids in the page's script."""

EPSILONS_EXPLORED: Final = 9
"""The number of epsilons that ``explore`` solves by default. They range from a quarter of the problem's epsilon to four
times its value."""


def _range_around_problem(source: File, mechanisms: Sequence[str]) -> tuple[str, str, int]:
    """Return the default range of epsilons as the lowest value, the highest value and the number of values.

    Args:
        source: The problem file. Its epsilon is in the middle of the range.
        mechanisms: The names of the mechanisms. The first one reads the problem.
    """
    declared: Any = read_problem(registry().get(next(iter(mechanisms), "optimal-lp")).load(), source)
    problem_epsilon = getattr(getattr(declared, "privacy", None), "epsilon", None)
    if not isinstance(problem_epsilon, Fraction):
        # A mechanism without an epsilon has no curve, so the caller will raise an error. Until then, any range will do.
        problem_epsilon = Fraction(1)
    return exact_text(problem_epsilon / 4), exact_text(problem_epsilon * 4), EPSILONS_EXPLORED


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
    """Solve all points of the curves and write the results.

    Each point is written to the table as soon as it is found. All other files are written at the end.

    Args:
        problem: The problem file.
        mechanisms: The names of the mechanisms.
        epsilon: The range as LO:HI:N. If None, a range around the problem's epsilon is used.
        out: The CSV file for the table. An existing file is continued if it was started by the same command. If None,
            no table is written.
        report: The file for the HTML page used to choose epsilon. If None, no page is written.
        options: The options. Only gap, solver, jobs, progress and time_limit are used for solving. With ``force``,
            existing files are replaced.
        announce: A function to call with each note on a mechanism that cannot solve the problem.
        figures: The folder for the figures as SVG, PDF and PNG. If None, no figures are written.
        latex: The file for the LaTeX table. If None, no such table is written.

    Raises:
        UsageError: A file already exists, or the paths cannot be used together.
        PrivoptError: A mechanism is unknown, no mechanism can solve the problem, the range of epsilons is invalid, or
            no point was found in time.
    """
    if out is not None:
        check_parent(out, "--out")
    points_file = None if out is None else PointsFile(path=out, force=options.force)
    # A command that continues its own table may also replace the other files that it wrote.
    may_replace = options.force or (points_file is not None and points_file.is_begun)
    # ``explore`` names the page with --out, and ``curve`` with --report.
    page_option = "--out" if out is None else "--report"
    check_files({"--out": out, "--latex": latex, page_option: report}, force=may_replace, read=[problem])
    if figures is not None:
        check_files_folder(figures, "--figures")
    source = File.read(problem, expectation="a problem file in TOML")
    # Only None stands for the default range. An empty string is an error.
    epsilons = parse_epsilons(_range_around_problem(source, mechanisms) if epsilon is None else epsilon)
    curves = draw_curves(source, mechanisms, epsilons, options, announce, points_file)
    # The files get their final names when the block ends, after all of them have been written.
    with ExitStack() as stack:
        if figures is not None:
            for name, figure in draw_figures(curves.points, curves.unit, curves.distance_unit).items():
                for ending in (".svg", ".pdf", ".png"):
                    save(
                        figure,
                        stack.enter_context(new_file(figures / f"{name}{ending}", force=True, option="--figures")),
                    )
        if latex is not None:
            text = format_latex(curves.points, curves.unit, curves.distance_unit)
            stack.enter_context(new_file(latex, force=may_replace, option="--latex")).write_text(text, "utf-8")
        if report is not None:
            page = curve_page(curves, problem.name)
            stack.enter_context(new_file(report, force=may_replace, option=page_option)).write_text(page, "utf-8")
        if out is not None and points_file is not None:
            points_file.replace_old_file()
            curves.table().write_csv(stack.enter_context(new_file(out, force=True)))
    return curves


def curve_page(curves: Curves, problem: str) -> str:
    """Return a self-contained HTML page for choosing epsilon.

    Args:
        curves: The curves to show. All mechanisms must have points at the same epsilons, in ascending order.
        problem: The name of the problem file.
    """
    column_names = (
        *("mechanism", f"loss ({curves.unit})", f"proved bound ({curves.unit})", "gap", "Bayes error"),
        *(f"error, {part} ({curves.distance_unit})" for part in ("median", "95 %")),
        *("epsilon achieved", f"attacker's error ({curves.unit})", "status"),
    )
    point_groups = list(group_by_mechanism(curves.points).values())
    values = [float(point.epsilon) for point in point_groups[0]]
    # The page opens at the middle epsilon.
    start_index = (len(values) - 1) // 2
    figure = draw_loss(curves.points, curves.unit, curves.distance_unit)
    # The script finds this line by its id and moves it to the chosen epsilon.
    figure.axes[0].axvline(values[start_index], color=INK, linewidth=1, gid="here")
    # The page has a wide and a narrow drawing, in which epsilons have different horizontal positions. The narrow one is
    # made from the wide one.
    svgs, across = [], []
    for name in ("wide", "narrow"):
        drawn_figure = figure if name == "wide" else make_narrow(figure)
        svgs.append(svg(drawn_figure, "Loss over epsilon", name=name))
        across.append(_epsilon_positions(drawn_figure, values))
    noun, limits = curves.setting.noun, (f"Note: {line}" for line in curves.setting.limits)
    cells_by_point = [(point, _format_cells(point)) for point in curves.points]
    all_rows = [(cells[0], f"{float(point.epsilon):.4g}", *cells[1:]) for point, cells in cells_by_point]
    # The data for the page's script, which fills in the rest of the page when a slider is moved.
    content = {
        "epsilons": [f"{value:.4g}" for value in values],
        "values": values,
        # A list for each epsilon, with a row for each mechanism. Points with the same index have the same epsilon.
        "rows": [[_format_cells(points[index]) for points in point_groups] for index in range(len(values))],
        "best": [_lowest_loss_figures([points[index] for points in point_groups]) for index in range(len(values))],
        # The errors that an attacker makes without a report, for comparison.
        "before": [curves.setting.bayes_error, curves.setting.adversary_error],
        "columns": column_names,
        # The words for sentences on two records and their distance, and whether to show these sentences (see Setting).
        "noun": noun,
        "apart": curves.setting.apart,
        "odds": curves.setting.odds,
        "unit": curves.unit,
        "perKm": None if curves.per_km is None else attrs.asdict(curves.per_km),
        "distanceUnit": curves.distance_unit,
        "across": across,
        "factors": SLIDER_FACTORS,
        "steps": SLIDER_STEPS,
    }
    return render(
        "privopt_tables.studies/curve_page.html",
        title=f"Choose epsilon: {problem}",
        unit=curves.unit,
        distance_unit=curves.distance_unit,
        noun=noun,
        notes=[*limits, *curves.refused, *curves.notes],
        sliders=SLIDERS,
        steps=SLIDER_STEPS,
        last=len(values) - 1,
        start=start_index,
        drawings=svgs,
        columns=column_names,
        all_points=table("Every point", (column_names[0], "epsilon", *column_names[1:]), all_rows),
        content=content,
    )


def _epsilon_positions(figure: Figure, values: Sequence[float]) -> list[float]:
    """Return each epsilon's horizontal position in a drawn figure, in points (1/72 inch) from the left edge.

    The page's script uses these positions to move a line in the figure's SVG.
    """
    # The figure's size is in inches, and an inch is 72 points.
    pixels = figure.axes[0].transData.transform([(value, 1.0) for value in values])[:, 0]
    return [round(float(pixel), 2) for pixel in pixels / figure.bbox.width * 72 * figure.get_figwidth()]


def _lowest_loss_figures(points: Sequence[Point]) -> dict[str, object] | None:
    """Return the results of the mechanism with the lowest loss at one epsilon, in the form used by the page's script.

    Args:
        points: The points of all mechanisms at this epsilon.

    Returns:
        The results, keyed by the names that the script uses, or None if no release was found at this epsilon.
    """
    solved_points = [point for point in points if point.loss is not None]
    if not solved_points:
        return None
    best_point = min(solved_points, key=lambda point: point.loss or 0.0)
    return {
        "name": best_point.mechanism,
        "loss": best_point.loss,
        "bound": best_point.lower_bound,
        "wrong": best_point.bayes_error,
        "miss": best_point.adversary_error,
    }


def _format_cells(point: Point) -> Sequence[str]:
    """Return the cells of a point's row in the page's tables, excluding its epsilon."""
    figures = (point.loss, point.lower_bound, point.gap, *(getattr(point, name) for name in OF_RELEASE))
    texts = ["none" if value is None else f"{value:.4g}" for value in figures]
    return (point.mechanism, *texts, point.status)
