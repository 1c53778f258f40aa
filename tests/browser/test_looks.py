"""Every kind of report in a browser: nothing cut off, printed over or lost in the dark; axe finds no fault."""

from fractions import Fraction

import numpy as np
import pytest
from helpers.albums import write_album
from helpers.browser_axe import faults
from helpers.examples import EXAMPLES
from helpers.grids import often
from helpers.page_checks import clipped_elements, keyboard_faults
from markupsafe import Markup

import privopt as po
from privopt.report.page import table
from privopt.report.templates import render
from privopt.report.write_report import write_report
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt_tables.studies.curve import Curves, Point
from privopt_tables.studies.curve_page import curve_page

WIDTHS = (390, 768, 1280)
AXE = {(390, "light"), (768, "dark"), (1280, "light")}
"""Each width and each scheme once: axe takes longer than all else that a page is asked."""
LONG = [f"node-12345678901{n}" for n in range(8)]


@pytest.fixture(scope="session")
def looks(report, tmp_path_factory):
    """Pages by name: the examples' reports, and ones with long ids, degrees and an estimate."""
    pages = {}

    def of(name):
        if name in EXAMPLES:
            return report(name)
        if name not in pages:
            pages[name] = MAKERS[name](tmp_path_factory.mktemp("looks"))
        return pages[name]

    return of


def long_ids(folder):
    points = "".join(f"{name},{41.9 + 0.001 * n},{12.5 + 0.002 * (n % 3)}\n" for n, name in enumerate(LONG))
    (folder / "points.csv").write_text("id,lat,lon\n" + points)
    text = '[records]\npoints = "points.csv"\n[distance]\nkind = "haversine"\n[privacy]\nepsilon = 3\n'
    (folder / "p.toml").write_text(text + '[utility]\nkind = "distance"\n')
    return write_report(solve("exponential", folder / "p.toml", folder / "out").folder)


def degrees(folder):
    """Return a long narrow valley, whose longitudes differ in the third decimal."""
    rows = [f"v{n},{45 + 0.011 * (n % 8):.4f},{98.95 + 0.0005 * n:.4f},1.0,{300 + n}" for n in range(40)]
    (folder / "l.csv").write_text("\n".join(["id,lat,lon,facility_cost,clients", *rows]) + "\n")
    (folder / "p.toml").write_text('[locations]\npoints = "l.csv"\n[privacy]\nepsilon = 0.5\n')
    return write_report(solve("fl-linear", folder / "p.toml", folder / "out", Options(seed=1)).folder)


def write_estimate(folder):
    release = po.solve("exponential", po.metric_problem(po.grid(5, 6, 0.5), distance="euclidean", epsilon=2))
    ids = release.opened.release.outputs.tolist()
    sampled = np.random.default_rng(5).choice(len(ids), 600, p=np.arange(1, 31) / 465)
    release.save(folder / "out")
    (folder / "r.csv").write_text("report\n" + "".join(f"{ids[n]}\n" for n in sampled.tolist()))
    from helpers.command import run

    arguments = ["estimate", str(folder / "out"), str(folder / "r.csv"), "--out", str(folder / "e.csv"), "--quiet"]
    completed = run(*arguments, "--report", str(folder / "e.html"))
    assert completed.exit_code == 0, completed.output
    return folder / "e.html"


def album(folder):
    return write_report(solve("photo-censor", write_album(folder / "album"), folder / "out").folder)


def curves(folder):
    names, epsilons = ("optimal-lp", "exponential"), [Fraction(n, 2) for n in range(1, 7)]
    points = [
        Point(mechanism=name, epsilon=epsilon, loss=float((1 + number) / epsilon), lower_bound=float(1 / epsilon))
        for number, name in enumerate(names)
        for epsilon in epsilons
    ]
    page = curve_page(Curves(points=points, notes=("a note",), unit="km", distance_unit="km"), "city.toml")
    (folder / "c.html").write_text(page)
    return folder / "c.html"


MAKERS = {"long ids": long_ids, "degrees": degrees, "estimate": write_estimate, "album": album, "curves": curves}
PAGES = [*EXAMPLES, *MAKERS]
OFTEN = ("optimal-lp", "hierarchical-dp", "curves")
"""Matrices, counts and curves: the suite's; the others are in make slow."""

CUT = """[...document.querySelectorAll('.scroll, figure, pre, table')].filter(e => e.offsetParent &&
    (e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1) && e.clientWidth)
    .map(e => `${e.className || e.tagName}: ${e.innerText.slice(0, 60)}`)"""
OUTSIDE = """[...document.querySelectorAll('figure svg')].filter(e => e.getBoundingClientRect().width).flatMap(e => {
    const box = e.closest('figure').getBoundingClientRect();
    return [...e.querySelectorAll('text')].filter(t => {
        const own = t.getBoundingClientRect();
        return own.left < box.left - 1 || own.right > box.right + 1 ||
            own.top < box.top - 1 || own.bottom > box.bottom + 1;
    }).map(t => t.textContent) })"""
SILENT = """[...document.querySelectorAll('table')].filter(t => !t.closest('.long') &&
    [...t.rows].some(r => getComputedStyle(r).display === 'none')).map(t => t.innerText.slice(0, 60))"""
TEXT = """[...document.querySelectorAll('figure svg text')].filter(t => t.getBoundingClientRect().width)
    .map(t => parseFloat(getComputedStyle(t).fontSize) * Math.hypot(t.getScreenCTM().a, t.getScreenCTM().b))"""
OVERPRINTED = """[...document.querySelectorAll('figure svg [id*="matplotlib.axis_"]')].flatMap(axis => {
    const texts = [...axis.querySelectorAll('[id*="tick_"] text')];
    const boxes = texts.map(t => t.getBoundingClientRect());
    return texts.filter((t, n) => boxes.some((b, m) => m > n && b.left < boxes[n].right && boxes[n].left < b.right
        && b.top < boxes[n].bottom - 2 && boxes[n].top < b.bottom - 2)).map(t => t.textContent) })"""
DOTS = """[...document.querySelectorAll('figure svg [id*="PathCollection"] use')].map(u => {
    const s = getComputedStyle(u);
    const rim = parseFloat(s.strokeWidth) > 0 ? s.strokeOpacity * s.opacity : 0;
    return [s.fill, s.fillOpacity * s.opacity, s.stroke, rim] })
"""


def test_legend_of_an_estimate_hides_no_interval(looks, watch_page):
    page = watch_page().open(looks("estimate"))
    legend, intervals = (
        page.locator(f'svg[aria-label="The greatest shares"] [id*="{part}"]').first.bounding_box()
        for part in ("-legend_1", "-LineCollection_1")
    )
    assert legend["y"] + legend["height"] <= intervals["y"]


def colour(css):
    return [float(part) for part in css[css.index("(") + 1 : -1].split(",")[:3]]


def luminance(rgb):
    parts = [c / 255 for c in rgb]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(css, alpha, ground):
    if css == "none" or not alpha:
        return 1.0
    blended = [alpha * c + (1 - alpha) * g for c, g in zip(colour(css), ground, strict=True)]
    low, high = sorted([luminance(blended), luminance(ground)])
    return (high + 0.05) / (low + 0.05)


@often("name", PAGES, OFTEN)
def test_report_is_silent_complete_and_clear(name, looks, watch_page, axe):
    observer = watch_page()
    page = observer.open(looks(name))
    header = page.locator("header")
    title = header.locator("h1").inner_text()
    assert len(title.split()) >= 2
    # A mark such as "seeded, not private" stands alone.
    lines = header.locator("p:not(.bad):not(:has(.badge.bad))").all_inner_texts()
    assert all(line.endswith(".") for line in lines)
    if name in EXAMPLES:
        assert title.startswith(EXAMPLES[name].mechanism)
        assert page.locator("section").count() >= 5
        assert page.locator("figure svg, figure canvas, .album li").count() >= 2
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        assert page.evaluate(CUT) == [], width
        assert page.evaluate(OUTSIDE) == [], width
        assert page.evaluate(SILENT) == [], width
        # 11 pixels on a telephone, which is held near; on a screen, drawings side by side are a little smaller.
        assert min(page.evaluate(TEXT), default=11) >= (11 if width == 390 else 10), width
        assert page.evaluate(OVERPRINTED) == [], width
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        ground = colour(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        dots = page.evaluate(DOTS)
        # 3 to 1, as WCAG 2.2 (1.4.11) asks of graphics, by their filling or their rim
        assert [d for d in dots if max(contrast(*d[:2], ground), contrast(*d[2:], ground)) < 3] == [], scheme
        assert dots or name in ("hierarchical-dp", "photo-censor", "album", "curves")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert clipped_elements(page) == [], f"{width} pixels, {scheme}"
            assert (width, scheme) not in AXE or faults(page, axe, all_of_them=True) == [], f"{width} pixels, {scheme}"
    assert keyboard_faults(page) == []
    assert (observer.complaints, observer.outside) == ([], [])


PLANTED = {
    "cut table": (
        '<div class="scroll" style="overflow:hidden;width:80px"><table><tr><td>wideword1234567890</table></div>',
        CUT,
    ),
    "table of a fixed height": (
        f'<div class="scroll" style="overflow-y:auto;max-height:9rem"><table>{"<tr><td>row" * 40}</table></div>',
        CUT,
    ),
    "cut figure": ('<figure style="overflow:hidden"><svg style="min-width:200vw;max-width:none"></svg></figure>', CUT),
    "name outside its figure": (
        '<figure><svg width="100" height="40"><text x="-400" y="20">a long name</text></svg></figure>',
        OUTSIDE,
    ),
    "hidden rows": ('<table><tr><td>1<tr style="display:none"><td>2<tr style="display:none"><td>3</table>', SILENT),
    "small text": (
        '<figure><svg width="100" viewBox="0 0 400 40"><text y="20" font-size="12">x</text></svg></figure>',
        None,
    ),
}
"""Markup with a fault, and the question that must find it; None: the size of the smallest text."""


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_fault_is_found(fault, watch_page, tmp_path):
    """The questions that every report is asked can be answered with yes."""
    markup, question = PLANTED[fault]
    answers = {}
    for name, part in (("sound", ""), ("faulty", markup)):
        sound = table("Places", ("place", "people"), [("a", 1), ("b", 2)])
        body = Markup("<main><h1>Two words</h1>{}{}</main>").format(sound, Markup(part))
        (tmp_path / f"{name}.html").write_text(
            render("privopt.report/document.html", title="Two words", body=body), "utf-8"
        )
        page = watch_page().open(tmp_path / f"{name}.html")
        page.set_viewport_size({"width": 390, "height": 900})
        small = [size for size in page.evaluate(TEXT) if size < 11]
        answers[name] = page.evaluate(question) if question else small
    assert answers["sound"] == []
    assert answers["faulty"]


def test_colours_that_are_too_near_are_found(watch_page, axe, tmp_path):
    """By axe in a text, and by the contrast of dots in a figure."""
    dot = '<g id="PathCollection_1"><use style="fill:{};fill-opacity:1;stroke:none" /></g>'
    body = Markup("<main><h1>Two words</h1><p style='color:#ccc'>faint</p><figure><svg>{}{}</svg></figure></main>")
    drawn = body.format(Markup(dot.format("#f0f0f0")), Markup(dot.format("#0b5cad")))
    (tmp_path / "faint.html").write_text(render("privopt.report/document.html", title="Two words", body=drawn), "utf-8")
    page = watch_page().open(tmp_path / "faint.html")
    assert "color-contrast" in str(faults(page, axe, all_of_them=True))
    ground = colour(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    faint, clear = (max(contrast(*dot[:2], ground), contrast(*dot[2:], ground)) for dot in page.evaluate(DOTS))
    assert faint < 3 < clear
