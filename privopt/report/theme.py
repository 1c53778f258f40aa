"""Style of figures, and writing them: colours for matplotlib and the page, inline SVG, .svg and .png files."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from privopt.arrays import Figure
from privopt.errors import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
else:
    Axes = Axis = Any

P = ParamSpec("P")
T = TypeVar("T")

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
"""Colours that follow the page, light or dark: those of report.css by the same name."""

RULES: Final = {
    "text.color": INK,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": "medium",
    "axes.formatter.useoffset": False,  # a coordinate is to be read off its label
    "axes.prop_cycle": None,
    "figure.facecolor": "none",
    "font.size": 10,
    "grid.color": LINE,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "svg.fonttype": "none",
    "text.parse_math": False,  # an id may hold a dollar sign
}


RIM: Final[dict[str, Any]] = {"edgecolors": SOFT, "linewidths": 0.5}
"""Of dots whose colour is a value: without it the lowest vanish on a dark page, the highest on a light one."""

MIN_FIGURE_SCALE: Final = 0.83
"""Share of its size that a figure keeps on a narrow page, which scrolls it then: its text is 9 pixels high at least."""

MOST_TICKS: Final = 8
MIN_LABEL_GAP: Final = 0.25
"""Least distance of two labels, as a share of a label's width: a browser's letters may be wider than matplotlib's."""

MAX_VECTOR_MARKS: Final = 1_000
"""Marks beyond which a figure holds them as a picture: the maps of 2,032 places took 1 MB one by one, of 1.5."""


def themed(draw: Callable[P, T]) -> Callable[P, T]:
    """Return a function that draws a figure, in the report's colours whatever the caller's matplotlib is set to."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> T:
        import matplotlib as mpl
        from cycler import cycler

        rules = RULES | {"axes.prop_cycle": cycler(color=[MARK, BAD, GOOD, WARM, SOFT])}
        with mpl.rc_context(rules):
            return draw(*args, **kwargs)

    return drawn


def axes_of(width: float = 6.4, height: float = 4.4) -> tuple[Figure, Axes]:
    """Return a figure of ``width`` by ``height`` inches, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def whole(axis: Axis) -> None:
    """Put ticks at whole numbers alone, on an axis that counts."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=MOST_TICKS, integer=True))


def svg(figure: Figure, title: str) -> str:
    """Return a matplotlib figure as inline SVG that a screen reader can name and that follows the page's colours."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    stream = io.StringIO()
    _plain(figure)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}), _any_character():
        _thinned(figure)
        FigureCanvasSVG(figure).print_svg(stream, metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", _well_formed(text), flags=re.DOTALL)
    unique = re.sub(r"\W+", "-", title.lower())
    text = re.sub(r'(id="|url\(#|xlink:href="#)', lambda found: found.group(1) + unique + "-", text)
    text = re.sub(r"#[0-9a-f]{6}", lambda found: _named(found.group(0)), text)
    narrowest = f'style="min-width:{MIN_FIGURE_SCALE * 72 * figure.get_figwidth():.0f}pt"'
    return text.replace("<svg", f'<svg {narrowest} role="img" aria-label="{escape(title, quote=True)}"', 1)


def _plain(figure: Figure) -> None:
    """Numbers of logarithmic axes as text: matplotlib would write mathematics, which the rules above leave unread."""
    from matplotlib.ticker import FuncFormatter, LogFormatter, NullFormatter

    number = FuncFormatter(lambda value, _: f"{value:g}")
    for axes in figure.axes:
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            if isinstance(axis.get_major_formatter(), LogFormatter):
                axis.set_major_formatter(number)
                axis.set_minor_formatter(number if 0 < low < high <= 10 * low else NullFormatter())


def _thinned(figure: Figure) -> None:
    """Place the axes; take fewer ticks on horizontal axes whose labels overlap, turn them where two are too many."""
    from matplotlib.ticker import MaxNLocator

    _lay_out(figure)
    changed = False
    for axis in (axes.xaxis for axes in figure.axes if axes.axison):
        locator = axis.get_major_locator()
        if not isinstance(locator, MaxNLocator):
            continue
        for bins in range(MOST_TICKS, 1, -1):
            axis.get_majorticklabels()  # brings ticks and labels up to date
            low, high = sorted(axis.get_view_interval())
            shown = [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            ends = sorted((box.x0, box.x1) for box in (label.get_window_extent() for label in shown))
            if all(right + MIN_LABEL_GAP * (right - left) <= after for (left, right), (after, _) in pairwise(ends)):
                break
            locator.set_params(nbins=bins)
            changed = True
        else:
            axis.set_tick_params(rotation=90)
    if changed:
        _lay_out(figure)
    figure.set_layout_engine("none")  # the axes stay: placing them takes longer than drawing


def _lay_out(figure: Figure) -> None:
    """Place the axes so that nothing overlaps, without a drawing."""
    layout = figure.get_layout_engine()
    if layout is not None:
        layout.execute(figure)


def _named(colour: str) -> str:
    """Return the page's variable for a colour, with the colour as fallback where the page is not around."""
    return f"var(--{NAMES[colour]},{colour})" if colour in NAMES else colour


@contextmanager
def _any_character() -> Iterator[None]:
    """No warning of a character that matplotlib's own font lacks: browsers have others, and ids may hold anything."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def _well_formed(markup: str) -> str:
    """SVG in which control characters of ids are escaped: XML has no place for them."""
    return re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", lambda sign: printable(sign.group()), markup)


def save(figure: Figure, path: Path) -> None:
    """Write a figure to a file of its own, .svg or .png, on white."""
    _plain(figure)
    with _any_character():
        _thinned(figure)
        if path.suffix != ".svg":
            figure.savefig(path, facecolor="white", dpi=144)
            return
        stream = io.StringIO()
        figure.savefig(stream, format="svg", facecolor="white", metadata={"Date": None})
        path.write_text(_well_formed(stream.getvalue()), "utf-8")
