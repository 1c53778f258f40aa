"""The report's map: enlarged, moved and searched by every means, and who could be mistaken for whom."""

import numpy as np
import pytest
from helpers.browser_axe import faults
from helpers.grids import first_alone

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
    asked = page.context.new_cdp_session(page)
    for kind, points in (("touchStart", fingers[0]), ("touchMove", fingers[1]), ("touchEnd", [])):
        asked.send(
            "Input.dispatchTouchEvent",
            {"type": kind, "touchPoints": [{"x": x, "y": y, "id": n} for n, (x, y) in enumerate(points)]},
        )


# The words' map is drawn by the same code, but its middle has no word in it that could be seen to move.
@first_alone("name", ["optimal-lp", "lr-geo"])
def test_the_map_is_enlarged_and_moved_by_buttons_keys_wheel_and_fingers(name, report, watched):
    seen = watched()
    page = seen.open(report(name))
    whole = picture(page)

    def changed(act):
        before = picture(page)
        act()
        return picture(page) != before

    def back(key="Escape"):
        page.focus("#map")
        page.keyboard.press(key)
        return picture(page) == whole

    assert changed(lambda: page.click("#nearer"))
    page.click("#farther")
    assert picture(page) == whole
    page.click("#nearer")
    page.click("#whole")
    assert picture(page) == whole
    page.focus("#map")
    for key in ("+", "+", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "-"):
        assert changed(lambda key=key: page.keyboard.press(key)), key
    assert back()
    assert not changed(lambda: page.keyboard.press("ArrowLeft"))  # the whole map stays where it is
    x, y = middle(page)
    page.evaluate("document.activeElement.blur()")
    page.mouse.move(x, y)
    top = page.evaluate("scrollY")
    assert not changed(lambda: page.mouse.wheel(0, -120))
    page.wait_for_function(f"scrollY !== {top}")  # the page scrolls past a map that nobody clicked
    x, y = middle(page)
    page.focus("#map")
    page.mouse.move(x, y)
    page.mouse.wheel(0, -400)
    page.wait_for_timeout(100)
    assert picture(page) != whole
    chosen = page.input_value("#record")

    def drag():
        page.mouse.down()
        page.mouse.move(x + 60, y + 40, steps=4)
        page.mouse.up()

    assert changed(drag)
    assert page.input_value("#record") == chosen  # who drags chooses nothing
    assert back()
    x, y = middle(page)
    assert changed(lambda: pinch(page, ([(x - 20, y), (x + 20, y)], [(x - 90, y), (x + 90, y)])))
    assert back()
    assert seen.complaints == []


@pytest.mark.parametrize("width", WIDTHS)
def test_a_record_is_found_by_its_id_and_its_position(width, report, watched, axe):
    seen = watched("dark" if width == 768 else "light")
    seen.page.set_viewport_size({"width": width, "height": 800})
    page = seen.open(report("optimal-lp"))
    assert page.locator("#record option").count() == 56
    page.click("#nearer")
    page.click("#nearer")
    page.fill("#find", "r6c7")
    assert page.locator("#record option:checked").inner_text() == "r6c7 (41.8870° N, 12.4823° E)"
    assert page.locator("#told strong").first.inner_text().startswith("From r6c7 (41.8870° N, 12.4823° E)")
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
    assert (seen.complaints, seen.outside) == ([], [])


def told_of(page, row, factor):
    """Return how many others a record could be mistaken for: measured, and proved."""
    page.select_option("#record", str(row))
    page.select_option("#odds", str(factor))
    measured, proved = page.locator("#told div").nth(2).locator("li").all_inner_texts()
    assert measured.startswith("Measured on this release: ")
    assert proved.startswith("Proved")

    def number(text, before):
        return int(text.split(before)[1].split(" other")[0].split()[-1].replace(",", "")) if before in text else 0

    return number(measured, " cannot tell "), number(proved, "none changes the odds between ")


@pytest.mark.parametrize("name", ["optimal-lp", "words"])
def test_who_could_be_mistaken_for_whom_is_never_said_of_too_many(name, report, watched):
    """By the matrix itself: as many as are said are there, nearly all are said, and the proved ones are among them."""
    path = report(name)
    opened = load_release(path.parent)
    z, prior = opened.release.probabilities, opened.problem.data.prior
    logs = np.log(z[:, z.max(axis=0) > 0])  # what one record never releases none does
    page = watched().open(path)
    shown = []
    for row in (0, 9, 27):
        for factor in (2, 3, 5, 10, 20):
            alike = prior[row] * z[row] <= factor * prior[:, None] * z
            true = int((np.where(alike, z[row], 0.0).sum(axis=1) >= 0.95).sum()) - 1
            within = int((np.abs(logs[row] - logs).max(axis=1) <= np.log(factor) + 1e-9).sum()) - 1
            measured, proved = told_of(page, row, factor)
            assert true - 2 <= measured <= true, (row, factor)
            assert proved <= within, (row, factor)
            shown.append((measured, proved))
    assert max(shown)[0] > 0
    assert max(proved for _, proved in shown) > 0


def test_the_layer_marks_those_that_the_sentence_counts(report, watched):
    page = watched().open(report("optimal-lp"))
    falls = picture(page)
    page.select_option("#layer", "mistaken")
    few = picture(page)
    assert few != falls
    assert "within 3 to 1" in page.locator("#legend").inner_text()
    page.select_option("#odds", "20")
    assert picture(page) != few
    page.select_option("#layer", "falls")
    assert picture(page) == falls
