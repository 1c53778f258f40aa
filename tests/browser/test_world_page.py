"""The page with the world map: offline from the file system, by keyboard and by pointer, narrow, in the dark."""

import math
import re

import pytest
from helpers.browser_axe import faults

from privopt_clients.export import export_modules


@pytest.fixture(scope="module")
def world_page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world") / "client"
    export_modules(folder)
    return folder / "anywhere.html"


def open_page(watch_page, path, scheme="light", width=360):
    observer = watch_page(scheme)
    page = observer.open(path)
    page.set_viewport_size({"width": width, "height": 800})
    page.locator("privopt-location").get_by_text("Whatever else is known").wait_for()
    return observer


def give_report(page, lat=None, lon=None):
    """Press the button, with a position if one is given; returns latitude and longitude of the report."""
    if lat is not None:
        page.fill("#lat", lat)
        page.fill("#lon", lon)
    page.evaluate("document.getElementById('report').textContent = ''")
    page.get_by_role("button", name="Give one report").click()
    page.locator("#report").filter(has_text=re.compile("^id ")).wait_for()
    text = page.locator("#report").inner_text()
    return tuple(map(float, re.search(r"lat (\S+), lon (\S+)", text).groups()))


def kilometres(first, second):
    (a, b), (c, d) = (tuple(map(math.radians, place)) for place in (first, second))
    height = math.sin((a - c) / 2) ** 2 + math.cos(a) * math.cos(c) * math.sin((b - d) / 2) ** 2
    return 2 * 6371.0088 * math.asin(min(1.0, math.sqrt(height)))


def test_page_is_small(world_page):
    assert world_page.stat().st_size < 120_000


@pytest.mark.parametrize("place", [("40.7128", "-74.006"), ("-90", "0"), ("10", "179.999"), ("0", "190")])
def test_page_draws_offline_anywhere(watch_page, world_page, place):
    observer = open_page(watch_page, world_page)
    page = observer.page
    for number in range(1, 4):
        report = give_report(page, *place)
        assert kilometres(tuple(map(float, place)), report) < 40 / 1.4  # 40 means: less often than once in 1e15
        assert page.locator("#count").inner_text() == str(number)
    # The rings and the dots: a ring of the truth on both pictures, and two circles of shares.
    assert page.locator("#world-marks circle").count() == 4
    assert page.locator("#near-marks circle").count() == 6
    assert page.locator("#middle").inner_text().endswith("km off")
    inside = """[...document.querySelectorAll('#world-marks circle')].every(
        (mark) => Math.abs(mark.getAttribute('cx')) <= 720 && Math.abs(mark.getAttribute('cy')) <= 360)"""
    assert page.evaluate(inside)
    assert observer.complaints == []
    assert observer.outside == []


def test_circles_hold_half_and_most_of_the_reports(watch_page, world_page):
    """The circles are the law's: of 200 reports at 3,640 km about 100 and 190 are inside."""
    page = open_page(watch_page, world_page).page
    page.select_option("#epsilon", "0.0005/km")
    page.locator("privopt-location").get_by_text("exp(0.0005 d)").wait_for()
    radii = [float(x) for x in re.findall(r"([\d,]+) km", page.locator("#scale").inner_text().replace(",", ""))]
    distances = [kilometres((20.0, 30.0), give_report(page, "20", "30")) for _ in range(60)]
    # Six standard deviations of a share of 60 draws.
    for share, radius in zip((0.5, 0.95), radii, strict=True):
        within = sum(distance <= radius for distance in distances)
        assert abs(within - 60 * share) < 6 * math.sqrt(60 * share * (1 - share))


def test_press_on_the_map_takes_that_position(watch_page, world_page):
    page = open_page(watch_page, world_page, width=1000).page
    box = page.locator("#world").bounding_box()
    page.locator("#world").click(position={"x": box["width"] * 0.75, "y": box["height"] * 0.25})
    page.locator("#report").filter(has_text=re.compile("^id ")).wait_for()
    assert abs(float(page.input_value("#lat")) - 45) < 1
    assert abs(float(page.input_value("#lon")) - 90) < 1


def test_wrong_position_is_said(watch_page, world_page):
    page = open_page(watch_page, world_page).page
    page.fill("#lat", "91")
    page.get_by_role("button", name="Give one report").click()
    page.locator("#report").filter(has_text="must be a latitude").wait_for()
    assert page.locator("#count").inner_text() == "0"


def test_land_is_where_it_should_be(watch_page, world_page):
    """Some cities inland and some points of the oceans, in the outline's own units."""
    page = open_page(watch_page, world_page).page
    is_land = """(places) => { const path = document.querySelector('#world path.land');
        return places.map(([lat, lon]) => path.isPointInFill(new DOMPoint(4 * lon, -4 * lat))); }"""
    land = [(48.9, 2.3), (39.0, -98.0), (-23.7, 133.9), (55.7, 37.6), (-15.8, -47.9), (1.0, 25.0), (-80, 60)]
    sea = [(0, -30), (-30, 80), (30, -140), (-50, -100), (75, 0), (15, 65), (41, -60)]
    assert page.evaluate(is_land, [*land, *sea]) == [True] * len(land) + [False] * len(sea)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_control_is_in_reach(watch_page, world_page, axe, scheme):
    """WCAG by axe-core, all of its rules, before and after a report, on a phone's width."""
    page = open_page(watch_page, world_page, scheme).page
    assert faults(page, axe, all_of_them=True) == []
    give_report(page)
    assert faults(page, axe, all_of_them=True) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    small_controls = """[...document.querySelectorAll('button, select, input')]
        .filter(e => e.offsetHeight && e.offsetHeight < 44).map(e => e.id || e.textContent)"""
    assert page.evaluate(small_controls) == []


def test_keyboard_suffices(watch_page, world_page):
    page = open_page(watch_page, world_page).page
    focused = []
    for _ in range(5):
        page.keyboard.press("Tab")
        focused.append(page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
    assert focused[1:] == ["epsilon", "lat", "lon", "Give one report"]
    page.keyboard.press("Enter")
    page.locator("#report").filter(has_text=re.compile("^id ")).wait_for()


def test_own_position_stays_in_the_element(watch_page, world_page):
    page = open_page(watch_page, world_page).page
    page.context.grant_permissions(["geolocation"])
    page.context.set_geolocation({"latitude": 41.9021, "longitude": 12.5031})
    page.get_by_role("button", name="Give an approximate location").click()
    page.locator("#report").filter(has_text=re.compile("^id ")).wait_for()
    assert "41.9021" not in page.locator("body").inner_html()
    assert "41.9021" not in page.locator("privopt-location").evaluate("element => element.shadowRoot.innerHTML")
