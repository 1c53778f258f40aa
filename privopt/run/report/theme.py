"""How figures look: one set of colours, known to matplotlib by number and to the page by name."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from privopt.errors import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["BAD", "GOOD", "INK", "LINE", "MANY", "MARK", "PALE", "SOFT", "WARM", "axes_of", "save", "svg", "themed"]

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
    "axes.prop_cycle": None,
    "figure.facecolor": "none",
    "font.size": 10,
    "grid.color": LINE,
    "legend.frameon": False,
    "legend.fontsize": "small",
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "svg.fonttype": "none",
    "text.parse_math": False,  # an id may hold a dollar sign
}


MANY: Final = 4_000
"""Marks beyond which a figure holds them as a picture: one by one they would fill the page's 6 MB."""


def themed(draw: Callable[P, T]) -> Callable[P, T]:
    """A function that draws a figure, in the report's colours whatever the caller's matplotlib is set to."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> T:
        import matplotlib as mpl
        from cycler import cycler

        rules = RULES | {"axes.prop_cycle": cycler(color=[MARK, BAD, GOOD, WARM, SOFT])}
        with mpl.rc_context(rules):
            return draw(*args, **kwargs)

    return drawn


def axes_of(width: float = 6.4, height: float = 4.4) -> tuple[Figure, Axes]:
    """A figure of so many inches, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def svg(figure: Figure, title: str) -> str:
    """A matplotlib figure as inline SVG that a screen reader can name and that follows the page's colours."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    stream = io.StringIO()
    _plain(figure)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}), _any_character():
        FigureCanvasSVG(figure).print_svg(stream, metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", _well_formed(text), flags=re.DOTALL)
    unique = re.sub(r"\W+", "-", title.lower())
    text = re.sub(r'(id="|url\(#|xlink:href="#)', lambda found: found.group(1) + unique + "-", text)
    text = re.sub(r"#[0-9a-f]{6}", lambda found: _named(found.group(0)), text)
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(title, quote=True)}"', 1)


def _plain(figure: Figure) -> None:
    """Numbers of logarithmic axes as text: matplotlib would write mathematics, which the rules above leave unread."""
    from matplotlib.ticker import FuncFormatter, LogFormatter, NullFormatter

    number = FuncFormatter(lambda value, _: f"{value:g}")
    for axes in figure.axes:
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            if isinstance(axis.get_major_formatter(), LogFormatter):
                axis.set_major_formatter(number)
                axis.set_minor_formatter(number if 0 < low < high <= 10 * low else NullFormatter())


def _named(colour: str) -> str:
    """Styles may name a variable of the page; outside one its number stands."""
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
        if path.suffix != ".svg":
            figure.savefig(path, facecolor="white", dpi=144)
            return
        stream = io.StringIO()
        figure.savefig(stream, format="svg", facecolor="white", metadata={"Date": None})
        path.write_text(_well_formed(stream.getvalue()), "utf-8")
