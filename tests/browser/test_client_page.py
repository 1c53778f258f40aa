"""The page of an export: offline from the file system, by keyboard, narrow, in the dark, and what it keeps."""

import re

import pytest
from helpers.browser_axe import faults
from helpers.client_exports import release_of

from privopt_clients.export import export


@pytest.fixture(scope="module")
def page_of(tmp_path_factory):
    """Export releases, each once; returns the page."""
    made = {}

    def of(name):
        if name not in made:
            folder = tmp_path_factory.mktemp("page")
            made[name] = export(release_of(name, folder), folder / "client").folder / "index.html"
        return made[name]

    return of


def opened(watched, path, scheme="light", width=360):
    seen = watched(scheme)
    page = seen.open(path)
    page.set_viewport_size({"width": width, "height": 800})
    page.locator("#place option").first.wait_for(state="attached")
    return seen


def reported(page):
    """Wait for a report; returns what an app would get. (The page's policy forbids what polls by eval.)"""
    page.locator("#report").filter(has_text=re.compile(r"^id ")).wait_for()
    return page.locator("#report").inner_text()


def given(page):
    """Press the button; returns what an app would get."""
    page.evaluate("document.getElementById('report').textContent = ''")
    page.get_by_role("button", name="Give one report").click()
    return reported(page)


@pytest.mark.parametrize("name", ["plane", "words", "streets anywhere", "predictive"])
def test_it_draws_offline_from_the_file_system(watched, page_of, name):
    seen = opened(watched, page_of(name))
    page = seen.page
    assert given(page).startswith("id ")
    assert "at most twice as likely" in page.locator("privopt-location p").first.inner_text()
    assert page.locator("#count").inner_text() == "1"
    if name != "words":
        page.fill("#first", "0.3" if name == "plane" else "41.9021")
        page.fill("#second", "0.2" if name == "plane" else "12.5031")
        assert given(page).startswith("id ")
        assert page.locator("#picture circle").count() >= 13
        page.fill("#first", "2000")
        page.get_by_role("button", name="Give one report").click()
        page.locator("#report").filter(has_text="the secret must be").wait_for()
    assert seen.complaints == []
    assert seen.outside == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_of_it_is_out_of_reach(watched, page_of, axe, scheme):
    """WCAG by axe-core, all of its rules, before and after a report."""
    page = opened(watched, page_of("streets anywhere"), scheme).page
    assert faults(page, axe, all_of_them=True) == []
    given(page)
    assert faults(page, axe, all_of_them=True) == []
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    small = """[...document.querySelectorAll('button, select, input')]
        .filter(e => e.offsetHeight && e.offsetHeight < 44).map(e => e.id || e.textContent)"""
    assert page.evaluate(small) == []


def test_the_keyboard_is_enough(watched, page_of):
    page = opened(watched, page_of("streets anywhere")).page
    reached = []
    for _ in range(8):
        page.keyboard.press("Tab")
        focused = "document.activeElement.id || document.activeElement.textContent.trim()"
        reached.append(page.evaluate(focused))
        outlined = (
            "const at = document.activeElement; getComputedStyle(at.shadowRoot?.activeElement ?? at).outlineStyle"
        )
        outline = page.evaluate(outlined)
        assert outline == "solid", reached
        if reached[-1] == "place":
            page.keyboard.press("ArrowDown")
        if reached[-1] == "Give one report":
            break
    assert reached == ["location", "keep", "place", "first", "second", "Give one report"]
    page.keyboard.press("Enter")
    reported(page)
    assert page.input_value("#place") == page.locator("#place option").nth(1).get_attribute("value")


@pytest.mark.parametrize("keep", ["time", "place"])
def test_a_kept_report_is_there_after_the_page_was_closed(watched, page_of, keep):
    """In IndexedDB, sealed: its key cannot be read out, and nothing of the place is in what is stored."""
    seen = opened(watched, page_of("plane"))
    page = seen.page
    page.select_option("#keep", keep)
    page.select_option("#place", "p3")
    first = given(page)
    for _ in range(5):
        assert given(page) == first
    page.reload()
    page.locator("#place option").first.wait_for(state="attached")
    page.select_option("#keep", keep)
    page.select_option("#place", "p3")
    assert given(page) == first
    stored = """async () => {
        const [{ name }] = await indexedDB.databases();
        const done = (asked) => new Promise((ended) => { asked.onsuccess = () => ended(asked.result); });
        const base = await done(indexedDB.open(name));
        const read = (part) => done(base.transaction("parts").objectStore("parts").get(part));
        const [key, state] = [await read("key"), await read("state")];
        const text = new TextDecoder("latin1").decode(state.data);
        return [key.extractable, text.includes("p3"), text.includes("report")]; }"""
    assert page.evaluate(stored) == [False, False, False]
    assert seen.complaints == []


def test_a_position_is_asked_for_by_the_element_alone(watched, page_of):
    page = opened(watched, page_of("streets anywhere")).page
    page.context.grant_permissions(["geolocation"])
    page.context.set_geolocation({"latitude": 41.9021, "longitude": 12.5031})
    page.get_by_role("button", name="Give an approximate location").click()
    reported(page)
    assert "41.9021" not in page.locator("body").inner_html()
    assert "41.9021" not in page.locator("privopt-location").evaluate("element => element.shadowRoot.innerHTML")
