"""Draw the figures of a curve, and format its LaTeX table.

The figures use the same theme as all reports (:mod:`privopt.report.theme`), which suits both the page and papers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from privopt.arrays import Figure
from privopt.report.charts import use_logarithmic_scales
from privopt.report.theme import SERIES, SOFT, add_legend, axes_of, use_theme
from privopt_tables.studies.curve_points import Point

__all__ = ["draw_figures", "draw_loss", "format_latex", "group_by_mechanism"]

MARKERS: Final = "oDs^vPX"
"""The markers of the lines, in order. They distinguish lines without relying on colour."""

LINE_STYLES: Final = ("-", ":", "-.")
"""The styles of the lines for losses. Each style is used with every colour before the next style is used. Dashes are
reserved for bounds."""

MAX_LABEL_CHARACTERS: Final = 48
"""Maximum number of characters in a mechanism's name in a figure. Longer names are shortened."""


LATEX_ESCAPES: Final = str.maketrans(
    {sign: f"\\{sign}" for sign in "#$%&_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)
"""A table for ``str.translate`` that escapes characters with a special meaning in LaTeX."""


def group_by_mechanism(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Group points by mechanism, in order of first occurrence."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(point.mechanism, []).append(point)
    return groups


def draw_loss(points: Sequence[Point], unit: str, distance_unit: str) -> Figure:
    """Plot the loss (lines with markers) and the proved bound (dashed lines) against epsilon on logarithmic axes.

    Args:
        points: The points, ordered by mechanism and then by epsilon.
        unit: The unit of losses.
        distance_unit: The unit of distance. Epsilon is given per this unit.
    """
    label = f"loss{_parenthesize(unit)}"
    return _draw_figure(points, distance_unit, "loss", label, "lower_bound")


def draw_figures(points: Sequence[Point], unit: str, distance_unit: str) -> dict[str, Figure]:
    """Draw the loss and the attacker's error as separate figures, and return the figures keyed by name.

    Args:
        points: The points, ordered by mechanism and then by epsilon.
        unit: The unit of losses and of the attacker's error.
        distance_unit: The unit of distance. Epsilon is given per this unit.
    """
    error = f"attacker's error{_parenthesize(unit)}"
    return {
        "loss": draw_loss(points, unit, distance_unit),
        "adversary_error": _draw_figure(points, distance_unit, "adversary_error", error),
    }


def _parenthesize(unit: str) -> str:
    """Return a unit in parentheses, preceded by a space, or an empty string if there is no unit."""
    return f" ({unit})" if unit else ""


@use_theme
def _draw_figure(
    points: Sequence[Point], distance_unit: str, solid: str, label: str, dashed: str | None = None
) -> Figure:
    """Plot one or two attributes of the points against epsilon, with one line per mechanism and attribute.

    Args:
        points: The points, ordered by mechanism and then by epsilon.
        distance_unit: The unit of distance. Epsilon is given per this unit.
        solid: The attribute of :class:`Point` to draw as lines with markers.
        label: The label of the vertical axis.
        dashed: The attribute to draw as dashed lines. If None, there are no dashed lines.
    """
    figure, axes = axes_of(7.2, 4.6)
    for number, (name, mechanism_points) in enumerate(group_by_mechanism(points).items()):
        if all(point.status == "refused" for point in mechanism_points):
            continue
        marker, style = MARKERS[number % len(MARKERS)], LINE_STYLES[number // len(SERIES) % len(LINE_STYLES)]
        (solid_line,) = axes.plot(
            *_positive_points(mechanism_points, solid), marker=marker, ms=4, linestyle=style, label=_shorten_name(name)
        )
        if dashed is not None:
            axes.plot(
                *_positive_points(mechanism_points, dashed), linestyle="--", color=solid_line.get_color(), linewidth=1
            )
    use_logarithmic_scales(axes)
    axes.set_xlabel(f"epsilon{_parenthesize(distance_unit and f'per {distance_unit}')}")
    axes.set_ylabel(label)
    axes.grid(visible=True, which="both", linewidth=0.4)
    if dashed is not None:
        axes.plot([], [], linestyle="--", color=SOFT, linewidth=1, label="proved bound")
    add_legend(figure)
    return figure


def _shorten_name(name: str) -> str:
    """Shorten a name to at most :data:`MAX_LABEL_CHARACTERS` characters by cutting off its beginning.

    A mechanism may be named by a path, and paths are easier to tell apart by their ends.
    """
    return name if len(name) <= MAX_LABEL_CHARACTERS else f"...{name[3 - MAX_LABEL_CHARACTERS :]}"


def _positive_points(points: Sequence[Point], name: str) -> tuple[list[float], list[float]]:
    """Return two lists with the epsilons and the values of all points that have a nonzero value.

    Points without a value, or with a value of 0, are left out, because the axes are logarithmic.

    Args:
        points: The points to select from.
        name: The attribute of :class:`Point` that holds the value.
    """
    pairs = [(float(point.epsilon), value) for point in points if (value := getattr(point, name))]
    return [epsilon for epsilon, _ in pairs], [figure for _, figure in pairs]


def format_latex(points: Sequence[Point], unit: str, distance_unit: str) -> str:
    """Format the points as a LaTeX table that needs no extra packages.

    Args:
        points: The points, ordered by mechanism and then by epsilon.
        unit: The unit of losses, bounds and the attacker's errors.
        distance_unit: The unit of distance. Epsilon is given per this unit.
    """
    heads = ("mechanism", r"$\varepsilon$", "loss", "bound", "gap", r"$\varepsilon$ achieved", "attacker", "status")
    lines = [
        f"% loss, proved bound and attacker's error{_parenthesize(unit)} over epsilon per {distance_unit}",
        r"\begin{tabular}{lrrrrrrl}",
        r"\hline",
        f"{' & '.join(heads)} \\\\",
    ]
    for name, group in group_by_mechanism(points).items():
        lines.append(r"\hline")
        for point in group:
            values = (point.loss, point.lower_bound, point.gap, point.epsilon_achieved, point.adversary_error)
            cells = [
                name.translate(LATEX_ESCAPES),
                _format_number(float(point.epsilon)),
                *map(_format_number, values),
                point.status,
            ]
            lines.append(f"{' & '.join(cells)} \\\\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}", ""])


def _format_number(value: float | None) -> str:
    """Format a number with four significant digits for LaTeX, or a missing number as a dash."""
    if value is None:
        return "--"
    # In LaTeX, an exponent is written as a power of ten.
    digits, _, exponent = f"{value:.4g}".partition("e")
    return rf"${digits} \cdot 10^{{{int(exponent)}}}$" if exponent else digits
