"""Reports in a browser: nothing asked for, nothing complained of, accessible, and alive."""

from fractions import Fraction

import pytest
from attrs import evolve
from helpers.browser_axe import faults
from helpers.grids import first_alone
from helpers.mentions import assert_mentions
from markupsafe import Markup

from privopt.report.page import table
from privopt.report.templates import render
from privopt_metric_dp.problem.declared import PerKm
from privopt_tables.studies.curve import Curves, Point
from privopt_tables.studies.curve_page import curve_page
from privopt_tables.studies.curve_points import Setting

EXPLORED = ("optimal-lp", "words", "bd-mdp", "lr-geo")
OWNED = ("fl-linear", "hierarchical-dp")


def picture(page):
    return page.evaluate("document.getElementById('map').toDataURL()")


@first_alone("name", EXPLORED)
def test_choosing_a_record_changes_the_picture(name, report, watch_page):
    observer = watch_page()
    page = observer.open(report(name))
    pictures, words = [picture(page)], [page.locator("#told").inner_text()]

    def look():
        pictures.append(picture(page))
        words.append(page.locator("#told").inner_text())

    page.select_option("#record", "0")
    look()
    page.focus("#record")
    page.keyboard.press("ArrowDown")
    look()
    page.focus("#before")
    page.keyboard.press("Enter")
    look()
    assert pictures[1] != pictures[2]
    assert words[1] != words[2]
    assert (pictures[3], words[3]) == (pictures[1], words[1])
    page.locator("#map").scroll_into_view_if_needed()
    box = page.locator("#map").bounding_box()
    page.mouse.click(box["x"] + 0.95 * box["width"], box["y"] + 0.05 * box["height"])
    look()
    assert pictures[4] != pictures[3]
    assert page.input_value("#record") != "0"
    assert observer.complaints == []


def test_map_states_the_release(report, watch_page):
    """The likeliest output and its probability, as the matrix has them."""
    from privopt.run.verify import load_release

    path = report("optimal-lp")
    release = load_release(path.parent).release
    page = watch_page().open(path)
    for row in (0, 20, len(release.records) - 1):
        page.select_option("#record", str(row))
        first = page.locator("#told li").first.inner_text()
        name, probability = first.split(": ")
        name = name.split(" (")[0]  # its position is beside it
        best = release.probabilities[row].max()
        assert release.probabilities[row, release.outputs.tolist().index(name)] == pytest.approx(best, rel=0.02)
        assert float(probability.split()[0]) / 100 == pytest.approx(best, rel=0.03)


@first_alone("name", OWNED)
def test_report_for_the_owner(name, report, watch_page, axe):
    observer = watch_page()
    page = observer.open(report(name, truth=True))
    assert page.get_by_text("keep it in private/").count() == 1
    assert observer.complaints == []
    assert observer.outside == []
    assert faults(page, axe) == []


@first_alone("name", ["hierarchical-dp", "optimal-lp"])
def test_dark_is_dark_and_light_is_light(name, report, watch_page):
    shades = {}
    for scheme in ("light", "dark"):
        page = watch_page(scheme).open(report(name))
        ground = "getComputedStyle(document.body).backgroundColor"
        ink = "[...document.querySelectorAll('figure svg text')].map(t => getComputedStyle(t).fill)"
        shades[scheme] = (page.evaluate(ground), set(page.evaluate(ink)))
    assert shades["light"][0] == "rgb(255, 255, 255)"
    assert shades["dark"][0] != shades["light"][0]
    assert shades["dark"][1].isdisjoint(shades["light"][1] | {"rgb(0, 0, 0)"})


def test_skip_link_and_controls_accept_the_keyboard(report, watch_page):
    page = watch_page().open(report("optimal-lp"))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    focused_ids = []
    for _ in range(11):
        page.keyboard.press("Tab")
        focused_ids.append(page.evaluate("document.activeElement.id"))
    controls = ["map", "find", "record", "before", "after", "layer", "odds", "nearer", "farther", "whole"]
    assert focused_ids[:10] == controls  # the picture is the first thing on the page


def test_cells_of_curves_break_nowhere(watch_page, tmp_path):
    names = ("optimal-lp", "planar-laplace", "folder/" * 30 + "mechanism.npz")
    gap = {"loss": 0.0840153, "lower_bound": 0.0594068, "gap": 1.18149e-09, "bayes_error": 0.784847}
    far_values = {"error_p50": 0.707107, "error_p95": 1.41421, "status": "infeasible"}
    points = [Point(mechanism=name, epsilon=Fraction("1.73205"), **gap, **far_values) for name in names]
    (tmp_path / "c.html").write_text(curve_page(Curves(points=points, notes=(), unit="km", distance_unit="km"), "p"))
    page = watch_page().open(tmp_path / "c.html")
    lines = """[...document.querySelectorAll('tbody tr')].map(row => [...row.cells].slice(1).map(cell => {
        const held = document.createRange(); held.selectNodeContents(cell); return held.getClientRects().length }))"""
    assert {cell for row in page.evaluate(lines) for cell in row} == {1}
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_report_prints(report, watch_page):
    page = watch_page("dark").open(report("optimal-lp"))
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('.pick')).display") == "none"
    assert page.pdf().startswith(b"%PDF")


def move_slider(page, name, key, times=1):
    """Press a key on a slider; return what the page says then."""
    page.focus(f"#{name}")
    for _ in range(times):
        page.keyboard.press(key)
    return page.locator("#told").inner_text()


def test_sliders_choose_solved_points(watch_page, tmp_path):
    losses = {1: (2.0, 1.9), 2: (1.0, 0.9), 4: (0.5, 0.4)}
    points = [
        Point(
            mechanism="m",
            epsilon=Fraction(e),
            loss=x,
            lower_bound=b,
            bayes_error=0.5,
            adversary_error=x,
            status="optimal",
        )
        for e, (x, b) in losses.items()
    ]
    setting = Setting(noun="place", bayes_error=0.9, adversary_error=3.0)
    curves = Curves(points=points, notes=(), unit="km", distance_unit="km", setting=setting)
    (tmp_path / "c.html").write_text(curve_page(curves, "p.toml"))
    observer = watch_page()
    page = observer.open(tmp_path / "c.html")

    def place():
        return page.input_value("#epsilon")

    assert_mentions(page.locator("#told").inner_text(), "50 of 100 cases", "10 of 100")
    assert_mentions(move_slider(page, "epsilon", "End"), "loses 0.5 km", "less than 0.4")
    marker = page.locator('figure svg.wide [id$="-here"]')
    right = marker.bounding_box()["x"]
    assert "loses 2 km" in move_slider(page, "bear", "End")
    assert (place(), marker.bounding_box()["x"] < right) == ("0", True)
    assert move_slider(page, "bear", "Home").count("loses 0.5 km") == 1
    message = move_slider(page, "factor", "Home")  # next to nothing may be learnt, within less than half a kilometre
    assert ("least one solved" in message, place()) == (True, "0")
    message = move_slider(page, "radius", "Home")
    slider_texts = page.locator("#factor-is").inner_text(), page.locator("#radius-is").inner_text()
    assert slider_texts[0] == "1.1"
    assert place() == "2"  # ln 1.1 within the least distance is the largest epsilon
    move_slider(page, "radius", "ArrowRight", 10)
    assert place() == "1"
    assert_mentions(page.locator("#told").inner_text(), "next one below", "2, which")
    assert observer.complaints == []
    (tmp_path / "told.html").write_text(curve_page(evolve(curves, per_km=PerKm(cost=0.8, unit="<b>min")), "p.toml"))
    page = observer.open(tmp_path / "told.html")
    assert "2 km (1.6 <b>min)" in move_slider(page, "bear", "End")
    assert page.locator("#bear-is").inner_text() == "2 km (1.6 <b>min)"


def test_search_of_a_long_table_finds_rows_that_are_not_shown(watch_page, tmp_path):
    rows = [(f'place "{n}", <b>', n, n / 7) for n in range(540)]
    main = Markup("<main><h1>Page</h1>{}</main>").format(table("Places", ("place", "people", "share"), rows))
    (tmp_path / "t.html").write_text(render("privopt.report/document.html", title="Page", body=main))
    observer = watch_page()
    page = observer.open(tmp_path / "t.html")
    assert page.locator("[role=status]").inner_text() == "50 of 540 rows"
    page.get_by_label("Search").fill('"477"')
    assert page.locator("tbody tr").all_inner_texts() == ['place "477", <b>\t477\t68.1']
    assert page.locator("[role=status]").inner_text() == "1 of 1 row with these words"
    page.get_by_label("Search").fill("place")
    assert page.locator("[role=status]").inner_text() == "50 of 540 rows with these words"
    page.get_by_label("Search").fill("")
    assert (page.locator("tbody tr").count(), page.locator("[role=status]").inner_text()) == (50, "50 of 540 rows")
    with page.expect_download() as download:
        page.get_by_text("Download the rows as CSV").click()
    assert download.value.path().read_text().count("\n") == 541
    assert (observer.complaints, observer.outside) == ([], [])
