"""The drawings used in reports: labelled bars, maps that show places and values, and logarithmic axes.

Only this module and :mod:`privopt.report.theme` import matplotlib. Mechanisms draw their figures with the functions in
these two modules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from privopt.arrays import Figure, Floats, Ints
from privopt.declare.notebook import format_digits
from privopt.report.theme import (
    BAD,
    INK,
    MARK,
    MAX_VECTOR_MARKS,
    RIM,
    SOFT,
    add_legend,
    axes_of,
    panels_of,
    use_theme,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    Axes = Any

LONGEST_NAME: Final = 60
"""The maximum length of a name in a figure, in characters. Longer names would leave too little room for the rest."""
LABELLED_DECADES: Final = 3.0
"""The maximum number of decades on an axis that also has labels between the powers of ten."""


MAX_LABEL_DIGITS: Final = 6
"""The maximum number of digits in a bar's label. Numbers that differ only in later digits look the same to a reader."""


def short_name(name: str) -> str:
    """Shorten a name for a figure to at most :data:`LONGEST_NAME` characters. Tables show names in full.

    >>> short_name("north"), short_name("n" * 1000)[-5:], len(short_name("n" * 1000))
    ('north', 'nn...', 60)
    """
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..."


def rows_of(names: Sequence[str], label: str, *, width: float = 7.6, row: float = 0.3) -> tuple[Figure, Axes, Ints]:
    """Create a figure with one row per name, from top to bottom.

    Args:
        names: The rows' names.
        label: The label of the x axis, which gives the name and unit of the values.
        width: The figure's width in inches.
        row: The height of each row in inches.

    Returns:
        The figure, its axes, and the y positions of the rows.
    """
    # The x axis and its label take 1.1 inches.
    figure, axes = axes_of(width, 1.1 + row * len(names))
    positions = np.arange(len(names))
    axes.set_yticks(positions, [short_name(name) for name in names], fontsize=9)
    # Reverse the axis to put the first row on top, and leave about half a row of space at both ends.
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel(label)
    return figure, axes, positions


def set_up_map(
    axes: Axes,
    labels: tuple[str, str],
    lines: Sequence[Any] | Floats = (),
    *,
    latitude: float | None = None,
    margin: float = 0.08,
) -> None:
    """Turn axes into a map with equal scales in both directions, and draw lines, such as streets, in the background.

    Args:
        axes: The axes.
        labels: The names and units of the x and y axes, or empty strings if the axes have no meaning.
        lines: Streets or connections, each given by the positions of its two endpoints.
        latitude: The mean latitude in degrees if the positions are in degrees, or None if they are in units of length.
        margin: The space around the places, as a fraction of the map's size, so that dots at the edge are not cut off.
    """
    from matplotlib.collections import LineCollection

    if len(lines):
        collection = LineCollection(list(lines), colors=SOFT, linewidths=0.8, zorder=0)
        axes.add_collection(collection).set_rasterized(len(lines) > MAX_VECTOR_MARKS)
    # A degree of longitude is shorter than a degree of latitude by the factor cos(latitude), which is 0 at the poles.
    axes.set_aspect(1.0 if latitude is None else 1.0 / max(0.01, math.cos(math.radians(latitude))))
    axes.margins(margin)
    axes.set(xlabel=labels[0], ylabel=labels[1])
    if not labels[0]:
        axes.set_axis_off()


def orient_map(coordinates: Floats, unit: str = "") -> tuple[Floats, tuple[str, str], float | None]:
    """Return positions in the order used on maps, with x or longitude first, and labels for the map's axes.

    Args:
        coordinates: (N, 2) The positions, as (x, y) or, in degrees, as (latitude, longitude).
        unit: The unit of x and y, or an empty string for degrees.

    Returns:
        The (N, 2) positions, as (x, y) or (longitude, latitude); the labels of both axes; and the mean latitude in
        degrees, or None if the positions are in units of length.
    """
    if unit:
        return coordinates, (f"x ({unit})", f"y ({unit})"), None
    return coordinates[:, ::-1], ("longitude (degrees)", "latitude (degrees)"), float(coordinates[:, 0].mean())


def fit_height(figure: Figure, axes: Axes) -> None:
    """Set the height of a figure with a single map so that the map fills the figure's width.

    The map's own height is kept between 1/3 and 0.8 of the figure's width.
    """
    aspect, (width, height) = axes.get_aspect(), axes.dataLim.size
    assert not isinstance(aspect, str)  # a map's aspect is a number
    # The labels and the legend take one inch.
    proportion = min(0.8, max(1 / 3, aspect * height / max(width, 1e-300)))
    figure.set_figheight(1.0 + proportion * figure.get_figwidth())


@use_theme
def draw_maps(
    values_by_title: Mapping[str, Floats],
    places: Floats,
    labels: tuple[str, str],
    label: str,
    *,
    upper: float | Literal["each"] | None = None,
    streets: Ints | None = None,
    latitude: float | None = None,
    size: tuple[float, float] = (5.6, 4.9),
) -> Figure:
    """Draw maps side by side, with each place shown as a dot coloured by its value.

    Args:
        values_by_title: The values of each map at the places, as an array of shape (N,), keyed by the map's title.
            Places with a value of NaN are left uncoloured.
        places: (N, 2) The positions, as (x, y) or (longitude, latitude).
        labels: The names and units of the two axes, or empty strings if the axes have no meaning.
        label: The name and unit of the values, shown below the colour bar.
        upper: The upper end of the shared colour scale, which starts at 0. It defaults to the largest value. Use "each"
            to give every map its own scale, for example if the maps show different quantities.
        streets: (E, 2) The indices of the two places joined by each street, or None if there are no streets.
        latitude: The mean latitude in degrees if the positions are in degrees, or None if they are in units of length.
        size: The width and height of the figure in inches.
    """
    from matplotlib.ticker import MaxNLocator

    figure, panels = panels_of(*size, len(values_by_title))
    if len(panels) > 1:
        figure.set_layout_engine("compressed")  # keeps the maps close to one another
    highest = float(np.nanmax(list(values_by_title.values())))
    # The upper end of the shared scale, or None if each map has its own.
    common_end = None if upper == "each" else highest if upper is None else upper
    is_bitmap = len(places) > MAX_VECTOR_MARKS  # without antialiasing a bitmap takes a third of the bytes
    style: dict[str, Any] = {"cmap": "viridis", "vmin": 0.0, "antialiased": not is_bitmap, **RIM}
    # The axes take about 0.61 of a panel's width, and the labels take the rest.
    area = dot_size(places, 0.61 * size[0] / len(panels))
    for axes, (title, values) in zip(panels, values_by_title.items(), strict=True):
        set_up_map(axes, labels, () if streets is None else places[streets], latitude=latitude)
        # Draw the largest values last, so that no other dots cover them.
        order = np.argsort(values, kind="stable")
        end = common_end or float(np.nanmax(values)) or 1.0
        x, y = places[order].T
        dots = axes.scatter(x, y, c=values[order], s=area, vmax=end, rasterized=is_bitmap, clip_on=False, **style)
        axes.set_title(title)
        if common_end is None:
            # Use few labels, and none at the ends, so that the labels of neighbouring maps do not touch.
            axes.xaxis.set_major_locator(MaxNLocator(9 // len(panels), prune="both"))
            own_label = f"{title} ({label})"
            figure.colorbar(dots, ax=axes, label=own_label, location="bottom", aspect=25, ticks=MaxNLocator(3))
        if axes is not panels[0]:
            axes.set_ylabel("")
    if common_end is not None:
        # Values beyond the scale have its last colour. An arrow at the end of the colour bar indicates this.
        extend = "max" if highest > common_end else "neither"
        figure.colorbar(dots, ax=figure.axes, label=label, location="bottom", aspect=40, extend=extend)
    # If all places lie in a row, their second coordinates differ by rounding errors only, so that axis means nothing.
    width, height = np.ptp(places, axis=0).tolist()
    if height <= 1e-9 * width:
        figure.set_figheight(2.2)
        for axes in panels:
            axes.set(aspect="auto", yticks=[], ylabel="")
    return figure


def use_logarithmic_scales(axes: Axes) -> None:
    """Make both axes logarithmic, and label as many ticks as there is room for, using plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis, (lower, upper) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        # The limits are not positive if no point is drawn.
        if not 0 < lower < upper:
            continue
        decades = math.log10(upper / lower)
        # The more decades there are, the fewer labels fit in each. Each pair contains a number of decades, up to which
        # the given multiples of powers of ten are labelled.
        ranges = ((0.5, range(1, 10)), (1, (1, 2, 3, 5, 7)), (LABELLED_DECADES, (1, 2, 5)), (math.inf, (1,)))
        axis.set_major_locator(LogLocator(subs=next(digits for most, digits in ranges if decades <= most)))
        # matplotlib's own formatter writes math markup, which this theme does not render.
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        # Labels at minor ticks would overlap.
        axis.set_minor_formatter(NullFormatter())


@use_theme
def draw_losses(rows: Sequence[tuple[str, float]], unit: str, bound: float | None) -> Figure:
    """Draw the losses of mechanisms as bars, and the proved bound as a line.

    Args:
        rows: Each mechanism's name and loss, starting with the release's mechanism.
        unit: The unit of the losses.
        bound: The proved lower bound on the loss, or None if no bound was proved.
    """
    # The axis and the legend take 0.9 inches, and each bar with its name takes 0.56.
    figure, axes = axes_of(7.6, 0.9 + 0.56 * len(rows))
    values = [value for _, value in rows]
    positions = range(len(rows))
    # Only the first bar, for the release's mechanism, has the accent colour. The others are for comparison.
    colours = [MARK] + [SOFT] * (len(rows) - 1)
    bars = axes.barh(positions, values, color=colours, height=0.46)
    axes.bar_label(bars, labels=_distinct_texts(values), padding=4, color=INK)
    # Names are placed above the bars, so that long names do not take width away from the bars.
    for position, (name, _) in zip(positions, rows, strict=True):
        axes.annotate(
            short_name(name), (0, position - 0.3), xytext=(2, 0), textcoords="offset points", va="bottom", color=INK
        )
    axes.set_ylim(len(rows) - 0.6, -0.9)  # matplotlib draws the first bar at the bottom
    axes.set_yticks([])
    axes.margins(x=0.18)
    axes.set_xlabel(unit)
    if bound is not None and np.isfinite(bound):
        # Draw the bound only across the bars, so that the line does not run through the names between them.
        tops, ends = [row - 0.29 for row in positions], [row + 0.29 for row in positions]
        style: dict[str, Any] = {"color": BAD, "linewidth": 2, "linestyle": (0, (2, 1))}
        axes.vlines([bound] * len(rows), tops, ends, label="proved bound", **style)
        add_legend(figure)
    return figure


def _distinct_texts(values: Sequence[float]) -> list[str]:
    """Format numbers with three significant digits, or more if needed to tell them apart.

    If :data:`MAX_LABEL_DIGITS` digits are still not enough, three digits are used.

    >>> _distinct_texts([3604.4, 3612.1, 3598.1]), _distinct_texts([1.0543, 1.17]), _distinct_texts([2.0, 2.0000001])
    (['3,604', '3,612', '3,598'], ['1.05', '1.17'], ['2', '2'])
    """
    largest = max(map(abs, values), default=0.0)
    steps = np.diff(np.unique(np.asarray(values, dtype=np.float64)))
    if largest > 0 and math.isfinite(largest) and steps.size:
        for digits in range(3, MAX_LABEL_DIGITS + 1):
            # These digits suffice if one unit in the last digit is at most half of the smallest difference.
            if steps.min() >= 2 * 10.0 ** (math.floor(math.log10(largest)) + 1 - digits):
                return [format_digits(value, digits) for value in values]
    return [format_digits(value) for value in values]


def dot_size(places: Floats, width: float) -> float:
    """Return the area of the dots on a map, in square points, chosen so that the dots rarely overlap.

    Args:
        places: (N, 2) The positions of the dots, in any unit.
        width: The width of the axes in inches.
    """
    from scipy.spatial import cKDTree

    span = typical_distance = max(float(np.ptp(places, axis=0).max()), 1e-300)
    distinct_places = np.unique(places, axis=0)
    if len(distinct_places) > 1:
        # Some 300 places are enough for a median. The nearest place to each place is itself, so take the second
        # nearest.
        sampled_places = places[:: max(1, len(places) // 300)]
        typical_distance = float(np.median(cKDTree(distinct_places).query(sampled_places, k=2)[0][:, 1]))
    # An inch has 72 points, and the factor 0.85 leaves gaps between the dots. The area is limited to between 8 and 420
    # square points, for very dense and very sparse maps.
    return float(np.clip((0.85 * min(typical_distance, span) / span * width * 72) ** 2, 8, 420))
