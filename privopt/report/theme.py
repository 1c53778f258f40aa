"""The style of figures, the colours of figures and pages, and the export of figures to inline SVG, .svg and .png.

Inline SVG refers to colours by the page's CSS variables (:data:`NAMES`), so the same figure works on both light and
dark pages. matplotlib is imported only when a figure is drawn, because it takes a long time to load.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import pairwise
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import numpy as np

from privopt.arrays import Figure, Floats
from privopt.errors import printable
from privopt.report.templates import Markup

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
else:
    Axes = Axis = Any

P = ParamSpec("P")
T = TypeVar("T")

# The colours of text, secondary text, lines, accents, good news, bad news, warnings and pale backgrounds.
INK: Final = "#1b1f24"
SOFT: Final = "#57606a"
LINE: Final = "#d0d7de"
MARK: Final = "#0b5cad"
GOOD: Final = "#1a6d32"
BAD: Final = "#b3261e"
WARM: Final = "#9a5b00"
PALE: Final = "#dbe7f3"

NAMES: Final = {INK: "ink", SOFT: "soft", LINE: "line", MARK: "mark", GOOD: "good", BAD: "bad", WARM: "warm"} | {
    PALE: "pale"
}
"""The names of the colours that differ between light and dark pages. report.css defines variables with these names."""

RULES: Final = {
    "text.color": INK,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": "medium",
    "axes.formatter.useoffset": False,  # coordinates must be readable from their labels alone
    "axes.prop_cycle": None,
    "figure.facecolor": "none",
    "font.size": 10,
    "grid.color": LINE,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "svg.fonttype": "none",  # text that can be searched and read aloud, and takes less space than outlines
    "text.parse_math": False,  # an id may contain a dollar sign
}
"""The matplotlib settings for all figures."""


RIM: Final[dict[str, Any]] = {"edgecolors": SOFT, "linewidths": 0.5}
"""The outline of dots whose colour shows a value.

Without an outline, some dots would be invisible on dark pages, and others on light ones.
"""

NARROW_WIDTH: Final = 3.5
"""The width of drawings for phones, in inches: 336 pixels, which fit on a 390-pixel page with a scroll bar."""

NARROW_LABEL: Final = 16
"""The maximum number of characters per line in the row names of a narrow drawing."""

POINTS_PER_CHARACTER: Final = 5.4
"""The average width of a character in a 10-point font, in points, used to estimate where labels must be broken."""

SERIES: Final = (MARK, "#c05600", INK, "#8a8f98")
"""The colours of successive lines in a figure. Even readers who cannot tell red from green can distinguish them."""

MOST_TICKS: Final = 8
"""The maximum number of intervals between the ticks of an axis."""
MIN_LABEL_GAP: Final = 0.25
"""The smallest gap between labels, relative to a label's width. Browsers may use a wider font than matplotlib."""

FLATTEST_MAP: Final = 0.2
"""The smallest ratio of a map's shorter side to its longer side."""

MAX_VECTOR_MARKS: Final = 1_000
"""The maximum number of marks stored in a figure as vectors rather than as a bitmap.

As vectors, maps of 2,032 places took up 1 MB of a 1.5 MB page.
"""


def use_theme(draw: Callable[P, T]) -> Callable[P, T]:
    """Decorate a drawing function so that it uses the report's style instead of matplotlib's current settings."""

    @wraps(draw)
    def draw_with_theme(*args: P.args, **kwargs: P.kwargs) -> T:
        # matplotlib takes long to load, so it is imported only here. The cycler supplies the colours of successive
        # lines.
        import matplotlib as mpl
        from cycler import cycler

        rules = RULES | {"axes.prop_cycle": cycler(color=SERIES)}
        with mpl.rc_context(rules):
            return draw(*args, **kwargs)

    return draw_with_theme


def axes_of(width: float = 6.4, height: float = 4.4) -> tuple[Figure, Axes]:
    """Create a figure of ``width`` by ``height`` inches with a single set of axes, and return both."""
    figure, (axes,) = panels_of(width, height, 1)
    return figure, axes


def panels_of(width: float, height: float, count: int, *, share_y: bool = False) -> tuple[Figure, Sequence[Axes]]:
    """Create a figure of ``width`` by ``height`` inches with ``count`` axes side by side, and return both.

    If ``share_y`` is True, all axes have the same vertical range.
    """
    from matplotlib.figure import Figure

    # pyplot is not used, because it would keep every figure in memory and might open a window.
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(1, count, squeeze=False, sharey=share_y)[0].tolist()


def add_legend(figure: Figure, handles: Sequence[Any] = (), labels: Sequence[str] = ()) -> int:
    """Put a legend above all axes of a figure, where it covers no data, with as many columns as fit.

    Args:
        figure: The figure.
        handles: The drawn objects to list. The default is all labelled objects in the axes, with each label listed
            once.
        labels: The text for each handle.

    Returns:
        The number of lines in the legend.
    """
    if not handles:
        entries: dict[str, Any] = {}
        for axes in figure.axes:
            # matplotlib returns (handles, labels), which are reversed to make the labels the keys.
            entries |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        labels, handles = list(entries), list(entries.values())
    # An inch has 72 points. The symbol before a label and the gap after it take as much room as 8 characters.
    characters = int(figure.get_figwidth() * 72 / POINTS_PER_CHARACTER)
    broken_labels = [fill(label, characters - 8) for label in labels]
    widest = 8 + max((len(line) for label in broken_labels for line in label.split("\n")), default=0)
    columns = max(1, min(len(labels), characters // widest))
    figure.legend(handles, broken_labels, loc="outside upper left", ncols=columns, borderaxespad=0.2)
    return math.ceil(sum(label.count("\n") + 1 for label in broken_labels) / columns)


@use_theme
def make_narrow(figure: Figure) -> Figure:
    """Adapt a figure for phones: make it narrow, stack its axes and wrap long labels.

    The figure is modified in place, because figures with functions as formatters cannot be copied.
    """
    from matplotlib.collections import PathCollection
    from matplotlib.gridspec import GridSpec
    from matplotlib.ticker import FixedLocator

    height = figure.get_figheight()
    charts = [axes for axes in figure.axes if axes.get_subplotspec() is not None]
    _widen_flat_maps(figure)
    _lay_out(figure)
    # The width and height that each chart has in the wide drawing, in inches.
    sizes = [(axes.bbox.width / figure.dpi, axes.bbox.height / figure.dpi) for axes in charts]
    if len(charts) > 1:
        rows, x_label, y_label = GridSpec(len(charts), 1, figure=figure), charts[0].get_xlabel(), charts[0].get_ylabel()
        for row, axes in enumerate(charts):
            axes.set_subplotspec(rows[row])
            axes.tick_params(labelleft=True)
            axes.set_ylabel(y_label)
            axes.set_xlabel(x_label if row == len(charts) - 1 else "")
    is_map = any(axes.get_aspect() != "auto" for axes in charts)
    if is_map:
        # A map keeps its proportions and fills the width. Labels take 0.8 inches beside and below it, a colour bar
        # takes 0.7 inches, and a legend 0.3. Maps that are much taller than wide are narrower than the page.
        map_width = NARROW_WIDTH - 0.8
        height = 0.8 * len(charts) + 0.7 * (len(figure.axes) - len(charts)) + 0.3 * len(figure.legends)
        for axes, (width, map_height) in zip(charts, sizes, strict=True):
            # Maps with adjustable limits get a fixed height, as a fraction of their width.
            height += map_width * (0.8 if axes.get_adjustable() == "datalim" else min(1.4, map_height / width))
            for dots in axes.collections:
                if isinstance(dots, PathCollection):
                    # Let the dots cover the same fraction of the map as in the wide drawing, but keep small ones
                    # visible, and do not let thick rims fill them.
                    drawn_sizes = dots.get_sizes()
                    dots.set_linewidth(np.minimum(dots.get_linewidth(), 1.2).tolist())
                    dots.set_sizes(np.maximum(drawn_sizes * (map_width / width) ** 2, np.minimum(drawn_sizes, 16.0)))
    elif len(charts) > 1:
        height *= 0.8 * len(charts)
    line_count = 1
    for axes in figure.axes:
        # A narrow drawing has room for about 38 characters in a title, 36 in a horizontal label, and 8 per inch in a
        # vertical one.
        title_width = 38
        axes.set_xlabel(fill(axes.get_xlabel(), 36))
        axes.set_ylabel(fill(axes.get_ylabel(), max(16, int(8 * height / max(1, len(charts))))))
        # Wrap the names beside rows. Only the locator shows that the labels are names, because matplotlib uses the same
        # formatter class for fixed labels and for functions.
        if isinstance(axes.yaxis.get_major_locator(), FixedLocator):
            names = [fill(label.get_text(), NARROW_LABEL) for label in axes.get_yticklabels()]
            axes.set_yticks(axes.get_yticks(), names)
            line_count = max([line_count, *(1 + name.count("\n") for name in names)])
            # Titles are centred over the axes, which are narrower if there are names beside them.
            title_width -= max((len(line) for name in names for line in name.split("\n")), default=0)
        axes.set_title(fill(axes.get_title(), title_width))
    # Make rows taller if their names have several lines. The axis and the legend take one inch.
    figure.set_size_inches(NARROW_WIDTH, height if line_count == 1 else 1 + (height - 1) * (1 + 0.6 * (line_count - 1)))
    for legend in list(figure.legends):
        handles, labels = legend.legend_handles, [" ".join(text.get_text().split()) for text in legend.get_texts()]
        legend.remove()
        # Each line of the legend takes a fifth of an inch. The figure's height already includes one line.
        figure.set_figheight(figure.get_figheight() + 0.2 * (add_legend(figure, handles, labels) - 1))
    figure.set_layout_engine("compressed" if is_map else "constrained")
    return figure


def use_whole_ticks(axis: Axis) -> None:
    """Restrict an axis's ticks to integers, for example for an axis of counts."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=MOST_TICKS, integer=True))


def svg(figure: Figure, title: str, *, name: str = "wide") -> Markup:
    """Return a figure as inline SVG in the page's colours, labelled for screen readers.

    Args:
        figure: The figure.
        title: The figure's name for screen readers.
        name: The element's CSS class. report.css uses it to choose between several drawings of the same figure.
    """
    import matplotlib as mpl
    from markupsafe import Markup, escape
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    stream = io.StringIO()
    _widen_flat_maps(figure)
    _use_plain_numbers(figure)
    # A fixed salt for ids and no date make equal figures byte-identical.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": f"{title} {name}"}), _any_character():
        _thin_ticks(figure)
        FigureCanvasSVG(figure).print_svg(stream, metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", _well_formed(text), flags=re.DOTALL)
    # All figures share a page, but matplotlib assigns the same ids in every figure, so prefix them with the figure's
    # name.
    unique = re.sub(r"\W+", "-", f"{title} {name}".lower())

    def rewrite_tag(match: re.Match[str]) -> str:
        """Replace the colours in a tag, and then prefix the ids, because a prefix could look like a colour."""
        tag = re.sub(r"#[0-9a-f]{6}", lambda colour: _colour_variable(colour.group(0)), match.group(0))
        return re.sub(r'(id="|url\(#|xlink:href="#)', lambda reference: reference.group(1) + unique + "-", tag)

    # Labels, which stand between the tags, may contain the same characters.
    text = re.sub(r"<[^<>]+>", rewrite_tag, text)
    # matplotlib has already escaped all other text in the markup.
    return Markup(text.replace("<svg", f'<svg class="{name}" role="img" aria-label="{escape(title)}"', 1))


def _use_plain_numbers(figure: Figure) -> None:
    """Set the axes' formatters so that numbers are plain text such as 0.1 or 20,000.

    On logarithmic axes, matplotlib would write numbers as math markup. Because :data:`RULES` disables math rendering,
    dollar signs would appear.
    """
    from matplotlib.ticker import FuncFormatter, LogFormatter, NullFormatter, ScalarFormatter

    class ThousandsFormatter(ScalarFormatter):
        """matplotlib's formatter for linear axes, with thousands separators instead of exponents."""

        def __init__(self) -> None:
            super().__init__(useOffset=False)
            self.set_powerlimits((-5, 12))

        def __call__(self, x: float, pos: int | None = None) -> str:
            return re.sub(r"(?<![.\d])\d{4,}", lambda digits: f"{int(digits.group()):,}", super().__call__(x, pos))

    number = FuncFormatter(lambda value, _: f"{value:g}")
    for axes in figure.axes:
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            if type(axis.get_major_formatter()) is ScalarFormatter:
                axis.set_major_formatter(ThousandsFormatter())
            elif isinstance(axis.get_major_formatter(), LogFormatter):
                axis.set_major_formatter(number)
                # An axis within a single decade may have no major ticks at all, so its minor ticks need labels.
                axis.set_minor_formatter(number if 0 < low < high <= 10 * low else NullFormatter())


def _thin_ticks(figure: Figure) -> None:
    """Lay out a figure's axes, and thin out the ticks of horizontal axes whose labels overlap.

    If labels overlap even with three intervals between ticks, only two intervals are kept and the labels are rotated.
    """
    from matplotlib.ticker import MaxNLocator

    _lay_out(figure)
    changed = False
    for axis in (axes.xaxis for axes in figure.axes if axes.axison):
        locator = axis.get_major_locator()
        if not isinstance(locator, MaxNLocator):
            continue
        # Lower the number of intervals between ticks until there is a gap after each label.
        for bins in range(MOST_TICKS, 1, -1):
            axis.get_majorticklabels()  # updates ticks and labels, which are computed lazily
            lower, upper = sorted(axis.get_view_interval())
            labels = [tick.label1 for tick in axis.get_major_ticks() if lower <= tick.get_loc() <= upper]
            label_spans = sorted((box.x0, box.x1) for box in (label.get_window_extent() for label in labels))
            if all(
                label_end + MIN_LABEL_GAP * (label_end - label_start) <= next_start
                for (label_start, label_end), (next_start, _) in pairwise(label_spans)
            ):
                break
            locator.set_params(nbins=bins)
            changed = True
        else:
            axis.set_tick_params(rotation=90)
    if changed:
        _lay_out(figure)
    figure.set_layout_engine("none")  # repeating the layout would take longer than drawing


def _widen_flat_maps(figure: Figure) -> None:
    """Widen the limits of maps whose places lie nearly on a horizontal or vertical line.

    Otherwise, a map with equal scales would be too flat or too narrow to be drawn.
    """
    for axes in figure.axes:
        scale = axes.get_aspect()
        if isinstance(scale, str) or axes.get_adjustable() != "box":
            continue
        # A unit of y is drawn ``scale`` times as long as a unit of x.
        x_limits, y_limits = np.array(axes.get_xlim()), np.array(axes.get_ylim())
        width, height = abs(float(np.ptp(x_limits))), abs(float(np.ptp(y_limits))) * scale
        if height < FLATTEST_MAP * width:
            axes.set_ylim(*_stretch(y_limits, FLATTEST_MAP * width / scale))
        elif width < FLATTEST_MAP * height:
            axes.set_xlim(*_stretch(x_limits, FLATTEST_MAP * height))


def _stretch(limits: Floats, extent: float) -> tuple[float, float]:
    """Return axis limits with the same centre and direction as ``limits``, but with the given extent.

    Args:
        limits: (2,) The axis limits.
        extent: The distance between the new limits.
    """
    start, end = limits.tolist()
    half, centre = extent / 2, start + (end - start) / 2
    return (centre - half, centre + half) if start <= end else (centre + half, centre - half)


def _lay_out(figure: Figure) -> None:
    """Lay out a figure's axes so that nothing overlaps, without drawing the figure, which would take much longer."""
    layout = figure.get_layout_engine()
    if layout is not None:
        layout.execute(figure)
    for axes in figure.axes:
        axes.apply_aspect()  # a map with equal scales may be narrower than its cell, with room for fewer labels


def _colour_variable(colour: str) -> str:
    """Return a colour's CSS variable, with the colour as a fallback, or just the colour if it has no variable.

    The fallback is used if the SVG is shown outside a page.
    """
    return f"var(--{NAMES[colour]},{colour})" if colour in NAMES else colour


@contextmanager
def _any_character() -> Iterator[None]:
    """Suppress warnings about characters missing from matplotlib's font, because browsers have other fonts."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def _well_formed(markup: str) -> str:
    """Escape the control characters in SVG markup. They can come from ids, but XML does not permit them."""
    return re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", lambda sign: printable(sign.group()), markup)


def save(figure: Figure, path: Path) -> None:
    """Write a figure with a white background to a file, in the format given by the extension (.svg or .png)."""
    _use_plain_numbers(figure)
    with _any_character():
        _thin_ticks(figure)
        # The background is white, because an image file has no page whose colours it could adopt.
        if path.suffix != ".svg":
            figure.savefig(path, facecolor="white", dpi=144)
            return
        stream = io.StringIO()
        figure.savefig(stream, format="svg", facecolor="white", metadata={"Date": None})
        path.write_text(_well_formed(stream.getvalue()), "utf-8")
