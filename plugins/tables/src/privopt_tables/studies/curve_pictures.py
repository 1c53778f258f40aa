"""The pictures of a curve, and its table for LaTeX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from privopt.report.theme import axes_of, themed
from privopt_tables.studies.curve_points import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any

__all__ = ["by_mechanism", "figure_of", "figures_of", "latex_of"]

LABELLED_DECADES: Final = 3.0
"""Beyond so many on an axis powers of ten alone are labelled."""

MARKERS: Final = "osD^vPX*"
"""Of lines of one colour: the next is taken as often as the colours have all been used."""

MAX_LABEL_CHARACTERS: Final = 48
"""Characters of a name in the picture at most."""


SIGNS: Final = str.maketrans(
    {sign: f"\\{sign}" for sign in "#$%&_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)
"""Signs of names that LaTeX would read as its own."""


def by_mechanism(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Return the points of each mechanism."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(point.mechanism, []).append(point)
    return groups


def figure_of(points: Sequence[Point], unit: str, distance_unit: str) -> Figure:
    """Draw loss (lines) and proved bound (dashes) over epsilon, both axes logarithmic."""
    label = f"loss{_of(unit)}; dashed: proved bound"
    return _drawn(points, distance_unit, "loss", label, "lower_bound")


def figures_of(points: Sequence[Point], unit: str, distance_unit: str) -> dict[str, Figure]:
    """Draw all figures of a curve, by name: the loss, and the attacker's error."""
    error = f"attacker's error{_of(unit)}"
    return {
        "loss": figure_of(points, unit, distance_unit),
        "adversary_error": _drawn(points, distance_unit, "adversary_error", error),
    }


def _of(unit: str) -> str:
    return f" ({unit})" if unit else ""


@themed
def _drawn(points: Sequence[Point], distance_unit: str, solid: str, label: str, dashed: str | None = None) -> Figure:
    from matplotlib import rcParams
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    figure, axes = axes_of(7.2, 4.6)
    colours = len(rcParams["axes.prop_cycle"])
    for number, (name, of_name) in enumerate(by_mechanism(points).items()):
        if all(point.status == "refused" for point in of_name):
            continue
        marker = MARKERS[number // colours % len(MARKERS)]
        (drawn,) = axes.plot(*_sides(of_name, solid), marker=marker, ms=3, label=_short(name))
        if dashed is not None:
            axes.plot(*_sides(of_name, dashed), linestyle="--", color=drawn.get_color(), linewidth=1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        if not 0 < low < high:  # nothing above 0 is drawn
            continue
        decades = math.log10(high / low)
        labelled = (
            (1, 2, 5) if 1 < decades <= LABELLED_DECADES else (1,) if decades > LABELLED_DECADES else range(1, 10)
        )
        axis.set_major_locator(LogLocator(subs=labelled))
        # plain numbers: the theme reads no markup
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(f"epsilon{_of(distance_unit and f'per {distance_unit}')}")
    axes.set_ylabel(label)
    axes.grid(visible=True, which="both", linewidth=0.4)
    axes.legend()
    return figure


def _short(name: str) -> str:
    """Shorten a name to the picture's width: of a long path its end, which distinguishes files."""
    return name if len(name) <= MAX_LABEL_CHARACTERS else f"...{name[3 - MAX_LABEL_CHARACTERS :]}"


def _sides(points: Sequence[Point], name: str) -> tuple[list[float], list[float]]:
    """Return the epsilons and figures of the points that have a figure above 0, which a logarithmic axis can show."""
    pairs = [(float(point.epsilon), value) for point in points if (value := getattr(point, name))]
    return [one for one, _ in pairs], [other for _, other in pairs]


def latex_of(points: Sequence[Point], unit: str, distance_unit: str) -> str:
    """Write the points as a table for LaTeX that needs no package.

    Args:
        points: by mechanism, then epsilon.
        unit: of losses, bounds and the attacker's errors.
        distance_unit: that epsilon is per.
    """
    heads = ("mechanism", r"$\varepsilon$", "loss", "bound", "gap", r"$\varepsilon$ achieved", "attacker", "status")
    lines = [
        f"% loss, proved bound and attacker's error{_of(unit)} over epsilon per {distance_unit}",
        r"\begin{tabular}{lrrrrrrl}",
        r"\hline",
        f"{' & '.join(heads)} \\\\",
    ]
    for name, group in by_mechanism(points).items():
        lines.append(r"\hline")
        for point in group:
            values = (point.loss, point.lower_bound, point.gap, point.epsilon_achieved, point.adversary_error)
            cells = [name.translate(SIGNS), _number(float(point.epsilon)), *map(_number, values), point.status]
            lines.append(f"{' & '.join(cells)} \\\\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}", ""])


def _number(value: float | None) -> str:
    """Write a number of four digits, or a dash for none."""
    if value is None:
        return "--"
    digits, _, exponent = f"{value:.4g}".partition("e")
    return rf"${digits} \cdot 10^{{{int(exponent)}}}$" if exponent else digits
