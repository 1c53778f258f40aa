"""The report's map: enlarged, moved and searched by every means, and who could be mistaken for whom."""

import numpy as np
import pytest
from helpers.browser_axe import faults
from helpers.grids import first_alone
from helpers.mentions import assert_mentions

from privopt.run.verify import load_release

pytestmark = pytest.mark.xdist_group("reports")

WIDTHS = (360, 768, 1440)


def picture(page):
    return page.evaluate("document.getElementById('map').toDataURL()")


def middle(page):
    page.locator("#map").scroll_into_view_if_needed()
    box = page.locator("#map").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def pinch(page, fingers):
    """Put two fingers on the map and move them, as a screen reports it."""
    session = page.context.new_cdp_session(page)
    for kind, points in (("touchStart", fingers[0]), ("touchMove", fingers[1]), ("touchEnd", [])):
        session.send(
            "Input.dispatchTouchEvent",
            {"type": kind, "touchPoints": [{"x": x, "y": y, "id": n} for n, (x, y) in enumerate(points)]},
        )


# The words' map is drawn by the same code, but its middle has no word in it that could be seen to move.
@first_alone("name", ["optimal-lp", "lr-geo"])
def test_map_zooms_and_moves_by_every_input(name, report, watch_page):
    observer = watch_page()
    page = observer.open(report(name))
    full_picture = picture(page)

    def picture_changes(act):
        old_picture = picture(page)
        act()
        return picture(page) != old_picture

    def press_and_compare(key="Escape"):
        page.focus("#map")
        page.keyboard.press(key)
        return picture(page) == full_picture

    assert picture_changes(lambda: page.click("#nearer"))
    page.click("#farther")
    assert picture(page) == full_picture
    page.click("#nearer")
    page.click("#whole")
    assert picture(page) == full_picture
    page.focus("#map")
    for key in ("+", "+", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "-"):
        assert picture_changes(lambda key=key: page.keyboard.press(key)), key
    assert press_and_compare()
    assert not picture_changes(lambda: page.keyboard.press("ArrowLeft"))  # the whole map stays where it is
    x, y = middle(page)
    page.evaluate("document.activeElement.blur()")
    page.mouse.move(x, y)
    top = page.evaluate("scrollY")
    assert not picture_changes(lambda: page.mouse.wheel(0, -120))
    page.wait_for_function(f"scrollY !== {top}")  # the page scrolls past a map that nobody clicked
    x, y = middle(page)
    page.focus("#map")
    page.mouse.move(x, y)
    page.mouse.wheel(0, -400)
    page.wait_for_timeout(100)
    assert picture(page) != full_picture
    selected = page.input_value("#record")

    def drag():
        page.mouse.down()
        page.mouse.move(x + 60, y + 40, steps=4)
        page.mouse.up()

    assert picture_changes(drag)
    assert page.input_value("#record") == selected  # who drags chooses nothing
    assert press_and_compare()
    x, y = middle(page)
    assert picture_changes(lambda: pinch(page, ([(x - 20, y), (x + 20, y)], [(x - 90, y), (x + 90, y)])))
    assert press_and_compare()
    assert observer.complaints == []


@pytest.mark.parametrize("width", WIDTHS)
def test_finds_a_record_by_id_and_position(width, report, watch_page, axe):
    observer = watch_page("dark" if width == 768 else "light")
    observer.page.set_viewport_size({"width": width, "height": 800})
    page = observer.open(report("optimal-lp"))
    assert page.locator("#record option").count() == 56
    page.click("#nearer")
    page.click("#nearer")
    page.fill("#find", "r6c7")
    assert page.locator("#record option:checked").inner_text() == "r6c7 (41.8870° N, 12.4823° E)"
    assert_mentions(page.locator("#told strong").first.inner_text(), "r6c7", "41.8870° N", "12.4823° E")
    page.fill("#find", "12.4823")
    assert page.locator("#found").inner_text() == "7 of 56"
    assert page.locator("#record option").count() == 7
    page.fill("#find", "nobody")
    assert page.locator("#found").inner_text() == "0 of 56"
    assert page.locator("#record option:checked").inner_text().startswith("r6c7 ")
    page.fill("#find", "")
    assert page.locator("#record option").count() == 56
    page.fill("#find", "6-")
    page.click("#whole")
    box = page.locator("#map").bounding_box()
    page.locator("#map").click(position={"x": 0.05 * box["width"], "y": 0.95 * box["height"]})
    assert page.locator("#record option:checked").inner_text().startswith("r0c0 ")  # though the list held other rows
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.select_option("#layer", "mistaken")
    assert faults(page, axe, all_of_them=True) == []
    assert (observer.complaints, observer.outside) == ([], [])


def counts_of(page, row, factor):
    """Return how many others a record could be mistaken for: measured, and proved."""
    page.select_option("#record", str(row))
    page.select_option("#odds", str(factor))
    measured_text, proved_text = page.locator("#told div").nth(2).locator("li").all_inner_texts()
    assert measured_text.startswith("Measured on this release: ")
    assert proved_text.startswith("Proved")

    def number(text, prefix):
        return int(text.split(prefix)[1].split(" other")[0].split()[-1].replace(",", "")) if prefix in text else 0

    return number(measured_text, " cannot tell "), number(proved_text, "no report changes the odds between ")


@pytest.mark.parametrize("name", ["optimal-lp", "words"])
def test_confusable_counts_are_never_too_large(name, report, watch_page):
    """By the matrix itself: as many as are said are there, nearly all are said, and the proved ones are among them."""
    path = report(name)
    release_folder = load_release(path.parent)
    z, prior = release_folder.release.probabilities, release_folder.problem.data.prior
    logs = np.log(z[:, z.max(axis=0) > 0])  # what one record never releases none does
    page = watch_page().open(path)
    counts = []
    for row in (0, 9, 27):
        for factor in (2, 3, 5, 10, 20):
            is_confusable = prior[row] * z[row] <= factor * prior[:, None] * z
            true = int((np.where(is_confusable, z[row], 0.0).sum(axis=1) >= 0.95).sum()) - 1
            true_proved = int((np.abs(logs[row] - logs).max(axis=1) <= np.log(factor) + 1e-9).sum()) - 1
            measured_count, proved_count = counts_of(page, row, factor)
            assert true - 2 <= measured_count <= true, (row, factor)
            assert proved_count <= true_proved, (row, factor)
            counts.append((measured_count, proved_count))
    assert max(counts)[0] > 0
    assert max(proved_count for _, proved_count in counts) > 0


def test_layer_marks_the_counted_records(report, watch_page):
    page = watch_page().open(report("optimal-lp"))
    falls = picture(page)
    page.select_option("#layer", "mistaken")
    few_picture = picture(page)
    assert few_picture != falls
    assert "within 3 to 1" in page.locator("#legend").inner_text()
    page.select_option("#odds", "20")
    assert picture(page) != few_picture
    page.select_option("#layer", "falls")
    assert picture(page) == falls
