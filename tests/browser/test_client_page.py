"""The page of an export: offline from the file system, by keyboard, narrow, in the dark, and what it keeps."""

import re

import pytest
from helpers.browser_axe import faults
from helpers.client_exports import release_of

from privopt_clients.export import export


@pytest.fixture(scope="module")
def page_of(tmp_path_factory):
    """Export releases, each once; returns the page."""
    pages = {}

    def of(name):
        if name not in pages:
            folder = tmp_path_factory.mktemp("page")
            pages[name] = export(release_of(name, folder), folder / "client").folder / "index.html"
        return pages[name]

    return of


def open_page(watch_page, path, scheme="light", width=360):
    observer = watch_page(scheme)
    page = observer.open(path)
    page.set_viewport_size({"width": width, "height": 800})
    page.locator("#place option").first.wait_for(state="attached")
    return observer


def wait_for_report(page):
    """Wait for a report; returns what an app would get. (The page's policy forbids what polls by eval.)"""
    page.locator("#report").filter(has_text=re.compile(r"^id ")).wait_for()
    return page.locator("#report").inner_text()


def press_and_report(page):
    """Press the button; returns what an app would get."""
    page.evaluate("document.getElementById('report').textContent = ''")
    page.get_by_role("button", name="Give one report").click()
    return wait_for_report(page)


POSITIONS = {
    "plane": ("0.3", "0.2"),
    "streets anywhere": ("41.9021", "12.5031"),
    "predictive": ("41.8621", "12.4531"),
}


@pytest.mark.parametrize("name", ["plane", "words", "streets anywhere", "predictive"])
def test_page_draws_offline(watch_page, page_of, name):
    observer = open_page(watch_page, page_of(name))
    page = observer.page
    # Before the first report there is no picture, and no button for a position that the records do not have.
    assert not page.locator("#picture").is_visible()
    asks_browser = page.get_by_role("button", name="Give an approximate location")
    assert asks_browser.is_visible() == (name not in ("plane", "words"))
    assert page.locator("#left").inner_text() == "at most 30"
    assert press_and_report(page).startswith("id ")
    assert page.locator("#left").inner_text() == "29"
    assert "twice as likely" in page.locator("privopt-location p").first.inner_text()
    assert page.locator("#count").inner_text() == "1"
    if name != "words":
        page.fill("#first", POSITIONS[name][0])
        page.fill("#second", POSITIONS[name][1])
        assert press_and_report(page).startswith("id ")
        assert page.locator("#picture circle").count() >= 13
        page.fill("#first", "2000")
        page.get_by_role("button", name="Give one report").click()
        page.locator("#report").filter(has_text="the secret must be").wait_for()
        page.fill("#first", "40.7")
        page.fill("#second", "-74")
        page.get_by_role("button", name="Give one report").click()
        page.locator("#report").filter(has_text="This place is outside the map of this page. No report").wait_for()
    assert observer.complaints == []
    assert observer.outside == []


def test_page_begins_with_the_default_policy(watch_page, page_of):
    """As docs/reference/client.md says: by the clock, so that a second press gives the same report again."""
    page = open_page(watch_page, page_of("plane")).page
    assert page.input_value("#keep") == page.locator("privopt-location").get_attribute("keep") == "time"
    page.select_option("#place", "p3")
    first = press_and_report(page)
    assert {press_and_report(page) for _ in range(5)} == {first}
    assert page.locator("#count").inner_text() == "1"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_control_is_in_reach(watch_page, page_of, axe, scheme):
    """WCAG by axe-core, all of its rules, before and after a report."""
    page = open_page(watch_page, page_of("streets anywhere"), scheme).page
    assert faults(page, axe, all_of_them=True) == []
    press_and_report(page)
    assert faults(page, axe, all_of_them=True) == []
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    small_controls = """[...document.querySelectorAll('button, select, input')]
        .filter(e => e.offsetHeight && e.offsetHeight < 44).map(e => e.id || e.textContent)"""
    assert page.evaluate(small_controls) == []


def test_keyboard_suffices(watch_page, page_of):
    page = open_page(watch_page, page_of("streets anywhere")).page
    focused_ids = []
    for _ in range(8):
        page.keyboard.press("Tab")
        focused = "document.activeElement.id || document.activeElement.textContent.trim()"
        focused_ids.append(page.evaluate(focused))
        outlined = (
            "const at = document.activeElement; getComputedStyle(at.shadowRoot?.activeElement ?? at).outlineStyle"
        )
        outline = page.evaluate(outlined)
        assert outline == "solid", focused_ids
        if focused_ids[-1] == "place":
            page.keyboard.press("ArrowDown")
        if focused_ids[-1] == "Give one report":
            break
    assert focused_ids == ["location", "keep", "place", "first", "second", "Give one report"]
    page.keyboard.press("Enter")
    wait_for_report(page)
    assert page.input_value("#place") == page.locator("#place option").nth(1).get_attribute("value")


@pytest.mark.parametrize("policy", ["time", "place"])
def test_stored_report_survives_closing_the_page(watch_page, page_of, policy):
    """In IndexedDB, sealed: its key cannot be read out, and nothing of the place is in what is stored."""
    observer = open_page(watch_page, page_of("plane"))
    page = observer.page
    page.select_option("#keep", policy)
    page.select_option("#place", "p3")
    first = press_and_report(page)
    for _ in range(5):
        assert press_and_report(page) == first
    page.reload()
    page.locator("#place option").first.wait_for(state="attached")
    page.select_option("#keep", policy)
    page.select_option("#place", "p3")
    assert press_and_report(page) == first
    stored_query = """async () => {
        const [{ name }] = await indexedDB.databases();
        const done = (asked) => new Promise((ended) => { asked.onsuccess = () => ended(asked.result); });
        const base = await done(indexedDB.open(name));
        const read = (part) => done(base.transaction("parts").objectStore("parts").get(part));
        const [key, state] = [await read("key"), await read("state")];
        const text = new TextDecoder("latin1").decode(state.data);
        return [key.extractable, text.includes("p3"), text.includes("report")]; }"""
    assert page.evaluate(stored_query) == [False, False, False]
    assert observer.complaints == []


def test_only_the_element_asks_for_a_position(watch_page, page_of):
    page = open_page(watch_page, page_of("streets anywhere")).page
    page.context.grant_permissions(["geolocation"])
    page.context.set_geolocation({"latitude": 41.9021, "longitude": 12.5031})
    page.get_by_role("button", name="Give an approximate location").click()
    wait_for_report(page)
    assert "41.9021" not in page.locator("body").inner_html()
    assert "41.9021" not in page.locator("privopt-location").evaluate("element => element.shadowRoot.innerHTML")
