"""Rules for every figure of every report: legends cover nothing, axes have units, colours stay apart for all eyes."""

import re
from fractions import Fraction
from html import unescape
from itertools import combinations

import numpy as np
import pytest
from helpers.examples import EXAMPLES
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from privopt.interfaces.reporting import open_reporting
from privopt.report.charts import draw_maps, rows_of
from privopt.report.theme import NARROW_WIDTH, SERIES, axes_of, make_narrow, svg, use_theme
from privopt.run.verify import load_release
from privopt_tables.studies.curve import Point
from privopt_tables.studies.curve_pictures import draw_figures

DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)
"""Linear RGB as deuteranopes see it: Machado, Oliveira and Fernandes (2009), severity 1."""

MIN_DIFFERENCE = 20.0
"""Least distance of two colours of one legend in CIE Lab: 2.3 is just noticeable side by side, thin lines need more."""

WITH_UNIT = re.compile(
    r"^(?:.*\((?:.*)\)|km (?:east|north) of .*|seconds|share of .*|clients"
    r"|groups|individuals|photos, .*|reports of .*|probability of .*|a place, .*|.* principal component)$",
    re.DOTALL,
)
"""Labels of axes: a unit in parentheses, or a noun that is counted, or a ratio."""


def simulate_deuteranopia(colour):
    """Return linear RGB (3,) as a deuteranope sees a colour."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return np.clip(DEUTERANOPIA @ linear, 0, 1)


def lab(linear):
    """Return CIE Lab (3,) of linear sRGB, white point D65."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(np.maximum(to_xyz @ linear / [0.9505, 1.0, 1.089], 1e-6))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def differences(colours):
    """Return the distance of each pair of colours as a deuteranope sees them."""
    seen = {colour: lab(simulate_deuteranopia(colour)) for colour in colours}
    return {(a, b): float(np.linalg.norm(seen[a] - seen[b])) for a, b in combinations(seen, 2)}


def curve_figures():
    points = [
        Point(mechanism=name, epsilon=Fraction(e), loss=(n + 1) / e, lower_bound=0.9 / e, adversary_error=(n + 2) / e)
        for n, name in enumerate(("optimal-lp", "exponential", "planar-laplace"))
        for e in (1, 2, 4)
    ]
    return draw_figures(points, "km", "km")


@pytest.fixture(scope="session")
def figures_of(example):
    """Figures by name, drawn anew at each call, because drawing for telephones changes them."""

    def of(name):
        if name == "curves":
            return curve_figures()
        opened = load_release(example(name))
        return dict(open_reporting(opened.mechanism).figures(opened.problem, opened.release, opened.result))

    return of


NAMES = [*EXAMPLES, "curves"]


@pytest.mark.parametrize("name", NAMES)
def test_legends_cover_no_axes_and_labels_have_units(name, figures_of):
    for title, figure in figures_of(name).items():
        for width in ("wide", "narrow"):
            svg(figure if width == "wide" else make_narrow(figure), title)
            assert figure.get_figwidth() == pytest.approx(NARROW_WIDTH) or width == "wide"
            renderer = figure._get_renderer()
            for axes in figure.axes:
                if axes.get_title():  # the page cuts what is beyond the figure
                    span = axes.title.get_window_extent(renderer)
                    assert span.x0 >= 0, (title, width)
                    assert span.x1 <= figure.bbox.width, (title, width)
                assert axes.get_legend() is None, title
                for legend in figure.legends:
                    covered = legend.get_window_extent(renderer).overlaps(axes.get_window_extent(renderer))
                    assert not covered, (title, width)
                labels = [axes.get_xlabel(), axes.get_ylabel()] if axes.axison else []
                ticks = (axes.get_xticklabels(), axes.get_yticklabels())
                for label, texts in zip(labels, ticks, strict=False):
                    has_numbers = any(re.fullmatch(r"[\d.,\u2212]+", text.get_text()) for text in texts)
                    # Axes beside or above one another share the label of one of them.
                    assert not has_numbers or not label or WITH_UNIT.match(" ".join(label.split())), (title, label)
            assert any(axes.get_xlabel() for axes in figure.axes if axes.axison) or not any(
                axes.axison for axes in figure.axes
            )


@use_theme
def test_title_beside_long_names_stays_inside_a_narrow_figure():
    figure, axes, rows = rows_of(["San Giovanni Val", "Arezzo (true)"], "belief (%)")
    axes.barh(rows, [1, 2])
    axes.set_title("All photos: the true place is guess 12")
    svg(make_narrow(figure), "guesses")
    span = axes.title.get_window_extent(figure._get_renderer())
    assert 0 <= span.x0 < span.x1 <= figure.bbox.width


def cut_dots(figure):
    """Return how many dots the edges of their axes cut off."""
    renderer, count = figure._get_renderer(), 0
    for axes in figure.axes:
        box = axes.get_window_extent(renderer)
        for dots in axes.collections:
            if not isinstance(dots, PathCollection) or not dots.get_clip_on() or not len(dots.get_offsets()):
                continue
            centres = dots.get_offset_transform().transform(np.ma.getdata(dots.get_offsets()))
            radii = np.sqrt(dots.get_sizes()) / 2 / 72 * figure.dpi
            inside = (centres - radii[:, None] >= box.min) & (centres + radii[:, None] <= box.max)
            count += int((~inside.all(axis=1)).sum())
    return count


@pytest.mark.parametrize("name", NAMES)
def test_dots_are_drawn_whole(name, figures_of):
    for title, figure in figures_of(name).items():
        svg(figure, title)
        assert cut_dots(figure) == 0, title
        svg(make_narrow(figure), title)
        assert cut_dots(figure) == 0, (title, "narrow")


def test_cut_dots_are_found():
    figure, axes = axes_of(3, 3)
    axes.scatter([0, 1], [0, 1], s=4_000)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    svg(figure, "corners")
    assert cut_dots(figure) == 2


def test_dots_of_a_narrow_map_are_drawn_whole():
    places = np.array([[0.002 * (n % 3), 0.01 * n] for n in range(8)])
    figure = draw_maps({"": np.arange(8.0)}, places, ("x (km)", "y (km)"), "loss (km)")
    svg(figure, "valley")
    assert cut_dots(figure) == 0


@pytest.mark.parametrize("count", [1, 3])
def test_narrow_map_fills_the_width(count):
    places = np.indices((8, 8)).reshape(2, -1).T / 2
    values_by_title = {title: np.arange(64.0) for title in ("share", "low", "high")[:count]}
    figure = draw_maps(values_by_title, places, ("x (km)", "y (km)"), "%", upper="each", size=(8.4, 10.8 / count))
    svg(figure, "districts")
    svg(make_narrow(figure), "districts")
    maps = figure.axes[:count]
    assert min(axes.bbox.width for axes in maps) > 0.7 * figure.bbox.width
    # Dots hardly overlap: the diameter of one is less than the distance to the next.
    diameter = np.sqrt(maps[0].collections[0].get_sizes()[0]) / 72 * figure.dpi
    assert diameter < maps[0].bbox.width / 8


def test_thousands_are_separated_on_axes():
    figure, axes = axes_of()
    axes.barh([0, 1], [0.00002, 3_000_000])
    axes.set_ylim(-0.0002, 0.0002)
    svg(figure, "bars")
    assert "2,000,000" in [text.get_text() for text in axes.get_xticklabels()]
    assert "0.00010" in [text.get_text() for text in axes.get_yticklabels()]


@pytest.mark.parametrize("name", NAMES)
def test_colour_bars_have_numbers(name, figures_of):
    for title, figure in figures_of(name).items():
        svg(figure, title)
        bars = [axes for axes in figure.axes if getattr(axes, "_colorbar", None) is not None]
        assert all(sum(bool(t.get_text()) for t in axes.get_xticklabels()) >= 2 for axes in bars), title


@pytest.mark.parametrize("name", NAMES)
def test_colours_of_a_legend_stay_apart_without_red_and_green(name, figures_of):
    for title, figure in figures_of(name).items():
        signs = {}
        for legend in figure.legends:
            for handle in legend.legend_handles:
                if isinstance(handle, Rectangle):
                    signs[to_hex(handle.get_facecolor())] = "bar"
                elif hasattr(handle, "get_linestyle") and hasattr(handle, "get_marker"):
                    signs[to_hex(handle.get_color())] = (handle.get_linestyle(), handle.get_marker())
        near = {pair: d for pair, d in differences(signs).items() if d < MIN_DIFFERENCE}
        # Lines that differ in marker or dashes may be near in colour; bars may not.
        assert not [pair for pair in near if signs[pair[0]] == signs[pair[1]]], (title, near)


def test_first_colours_of_series_stay_apart():
    assert min(differences(SERIES[:3]).values()) > 30
    assert min(differences(SERIES).values()) > MIN_DIFFERENCE


def test_simulation_confuses_red_with_green_and_not_blue_with_orange():
    assert differences(["#c03020", "#6a7a10"])["#c03020", "#6a7a10"] < MIN_DIFFERENCE
    assert differences(["#0b5cad", "#c05600"])["#0b5cad", "#c05600"] > 60


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("count", [1, 2, 3, 12])
@pytest.mark.parametrize("slope", [0.0, 1e-17, 1e-9, 1e-3, 0.05, 20.0, 1e9])
@pytest.mark.parametrize("latitude", [None, 60.0])
def test_map_of_places_on_one_line_can_be_drawn(count, slope, latitude):
    steps = np.arange(count, dtype=float)
    places = np.column_stack([steps, slope * steps]) / max(1.0, slope)
    figure = draw_maps({"a": steps}, places, ("x (km)", "y (km)"), "loss (km)", latitude=latitude)
    for drawn in (svg(figure, "wide"), svg(make_narrow(figure), "narrow")):
        assert "nan," not in drawn
        assert ",nan" not in drawn
    for axes in figure.axes:
        assert min(axes.bbox.width, axes.bbox.height) > 0


def test_colours_and_ids_in_labels_stay_as_written():
    figure = Figure(figsize=(4, 3))
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="#0b5cad")
    axes.set_title('#0b5cad id="a" url(#b) & <c>')
    drawn = str(svg(figure, "0b5cad of the map"))
    assert unescape(re.sub(r"<!--.*?-->|<[^<>]+>", " ", drawn)).count('#0b5cad id="a" url(#b) & <c>') == 1
    ids = set(re.findall(r'<[^<>]*\bid="([^"]*)"', drawn))
    assert all(name.startswith("0b5cad-of-the-map-wide-") for name in ids)
    tags = " ".join(re.findall(r"<[^<>]+>", drawn))
    references = {a or b for a, b in re.findall(r"url\(#([^)]*)\)|xlink:href=\"#([^\"]*)\"", tags)}
    assert references
    assert references <= ids
