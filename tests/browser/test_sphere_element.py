"""The element of a page that has no artefact: an approximate position anywhere on Earth, drawn in the browser."""

from typing import Any

import pytest
from helpers.browser import open_browser

from privopt_clients.export import CLIENT

PAGE = """<!doctype html><html lang="en"><title>A page</title>
<script type="module" src="privopt-location.mjs"></script>
<privopt-location epsilon="{epsilon}" digits="3" keep="nothing"></privopt-location>
<script>
  addEventListener("report", (event) => {{ (window.reports ??= []).push(event.detail); }});
  addEventListener("refused", (event) => {{ window.refused = event.detail; }});
</script></html>"""


@pytest.fixture(scope="module")
def open_page():
    """Open a page with the element, served by the test; nothing else is reached."""
    with open_browser() as browser:

        def of(epsilon: str) -> Any:
            page = browser.new_page()

            def serve(route: Any) -> None:
                name = route.request.url.rsplit("/", 1)[1]
                if name:
                    route.fulfill(body=(CLIENT / name).read_bytes(), content_type="text/javascript")
                else:
                    route.fulfill(body=PAGE.format(epsilon=epsilon), content_type="text/html")

            page.route("**/*", serve)
            page.context.grant_permissions(["geolocation"])
            page.context.set_geolocation({"latitude": 40.7128, "longitude": -74.006})
            page.goto("https://page.example/")
            return page

        yield of


def test_element_reports_from_new_york(open_page):
    page = open_page("1.4/km")
    page.get_by_role("button", name="Give an approximate location").click()
    page.get_by_role("status").filter(has_text="A new report").wait_for()
    detail = page.evaluate("window.reports[0]")
    assert detail["report"]["id"] == f"{detail['report']['lat']:.3f},{detail['report']['lon']:.3f}"
    assert abs(detail["report"]["lat"] - 40.7128) < 0.3  # 30 km: 40 means
    assert "exp(1.4 d)" in detail["promise"]
    assert "40.7128" not in page.locator("privopt-location").evaluate("element => element.shadowRoot.innerHTML")


def test_wrong_epsilon_is_said(open_page):
    page = open_page("1.4")
    page.get_by_role("status").filter(has_text="epsilon must be a text").wait_for()
    assert page.get_by_role("button", name="Give an approximate location").is_disabled()
