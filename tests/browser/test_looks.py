"""Every kind of report in a browser: nothing cut off, printed over or lost in the dark; axe finds no fault."""

from fractions import Fraction

import numpy as np
import pytest
from helpers.albums import write_album
from helpers.browser_axe import faults
from helpers.examples import EXAMPLES
from helpers.grids import often
from helpers.page_checks import clipped, keyboard_faults

import privopt as po
from privopt.report.write_report import write_report
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt_tables.studies.curve import Curves, Point
from privopt_tables.studies.curve_page import curve_page

WIDTHS = (360, 768, 1440)
AXE = {(360, "light"), (768, "dark"), (1440, "light")}
"""Each width and each scheme once: axe takes longer than all else that a page is asked."""
LONG = [f"node-12345678901{n}" for n in range(8)]


@pytest.fixture(scope="session")
def looks(report, tmp_path_factory):
    """Pages by name: the examples' reports, and ones with long ids, degrees and an estimate."""
    made = {}

    def of(name):
        if name in EXAMPLES:
            return report(name)
        if name not in made:
            made[name] = MAKERS[name](tmp_path_factory.mktemp("looks"))
        return made[name]

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


def estimated(folder):
    release = po.solve("exponential", po.metric_problem(po.grid(5, 6, 0.5), distance="euclidean", epsilon=2))
    ids = release.opened.release.outputs.tolist()
    chosen = np.random.default_rng(5).choice(len(ids), 600, p=np.arange(1, 31) / 465)
    release.save(folder / "out")
    (folder / "r.csv").write_text("report\n" + "".join(f"{ids[n]}\n" for n in chosen.tolist()))
    from helpers.command import run

    given = ["estimate", str(folder / "out"), str(folder / "r.csv"), "--out", str(folder / "e.csv"), "--quiet"]
    done = run(*given, "--report", str(folder / "e.html"))
    assert done.exit_code == 0, done.output
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


MAKERS = {"long ids": long_ids, "degrees": degrees, "estimate": estimated, "album": album, "curves": curves}
PAGES = [*EXAMPLES, *MAKERS]
OFTEN = ("optimal-lp", "hierarchical-dp", "curves")
"""Matrices, counts and curves: the suite's; the others are in make slow."""

WIDE = """[...document.querySelectorAll('.scroll, figure, pre')].filter(e => e.scrollWidth > e.clientWidth + 1)
    .map(e => [e.className || e.tagName, e.offsetHeight - e.clientHeight - 2 * e.clientTop])"""
TEXT = """[...document.querySelectorAll('figure svg text')]
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


def test_the_legend_of_an_estimate_hides_no_interval(looks, watched):
    page = watched().open(looks("estimate"))
    legend, drawn = (
        page.locator(f'svg[aria-label="The greatest shares"] [id*="{part}"]').first.bounding_box()
        for part in ("-legend_1", "-LineCollection_1")
    )
    assert legend["y"] + legend["height"] <= drawn["y"]


def colour(css):
    return [float(part) for part in css[css.index("(") + 1 : -1].split(",")[:3]]


def luminance(rgb):
    parts = [c / 255 for c in rgb]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(css, alpha, ground):
    if css == "none" or not alpha:
        return 1.0
    shown = [alpha * c + (1 - alpha) * g for c, g in zip(colour(css), ground, strict=True)]
    low, high = sorted([luminance(shown), luminance(ground)])
    return (high + 0.05) / (low + 0.05)


@often("name", PAGES, OFTEN)
def test_a_report_is_silent_whole_and_clear(name, looks, watched, axe):
    seen = watched()
    page = seen.open(looks(name))
    header = page.locator("header")
    title, purpose = header.locator("h1").inner_text(), header.locator("p").first.inner_text()
    assert len(title.split()) >= 2
    assert [part.endswith(".") for part in purpose.split(" Units: ")] == [True, True]
    if name in EXAMPLES:
        assert title.startswith(EXAMPLES[name].mechanism)
        assert page.locator("section").count() >= 5
        assert page.locator("figure svg, figure canvas, .album li").count() >= 2
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        wide = page.evaluate(WIDE)
        assert all(bar >= 6 for _, bar in wide), wide  # a bar to scroll by, in pixels
        fits = 1440 if name == "curves" else 768  # a curve's table has ten columns
        assert width < fits or not [what for what, _ in wide if what == "scroll"]
        assert width < 1440 or not [what for what, _ in wide if what == "FIGURE"]
        assert min(page.evaluate(TEXT), default=9) >= 9, width
    assert page.evaluate(OVERPRINTED) == []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        ground = colour(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        dots = page.evaluate(DOTS)
        # 3 to 1, as WCAG 2.2 (1.4.11) asks of graphics, by their filling or their rim
        assert [d for d in dots if max(contrast(*d[:2], ground), contrast(*d[2:], ground)) < 3] == [], scheme
        assert dots or name in ("hierarchical-dp", "photo-censor", "album", "curves")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert clipped(page) == [], f"{width} pixels, {scheme}"
            assert (width, scheme) not in AXE or faults(page, axe, all_of_them=True) == [], f"{width} pixels, {scheme}"
    assert keyboard_faults(page) == []
    assert (seen.complaints, seen.outside) == ([], [])
