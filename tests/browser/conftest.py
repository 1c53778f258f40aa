"""Pages in a browser, where there is one, watched for what they complain of and ask for."""

from importlib.resources import files

import pytest
from helpers.browser import open_browser


@pytest.fixture(scope="module")
def browser():
    with open_browser() as running_browser:
        yield running_browser


class Watched:
    """A page, and all that it complained of or asked the network for."""

    def __init__(self, page):
        self.page = page
        self.complaints = []
        self.requests = []
        page.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, path):
        self.page.goto(path.as_uri())
        if self.page.locator("#map").count():
            self.page.wait_for_selector("#map[data-ready]", timeout=3_000_000)
        return self.page

    @property
    def outside(self):
        return [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))]


@pytest.fixture
def watch_page(browser):
    """Make a page in one of the colour schemes; the network is off."""
    contexts = []

    def make(scheme="light"):
        contexts.append(browser.new_context(color_scheme=scheme, offline=True, viewport={"width": 1000, "height": 800}))
        return Watched(contexts[-1].new_page())

    yield make
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def axe():
    """Return the script of axe-core, the accessibility engine."""
    package = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    return files(package).joinpath("axe.min.js").read_text("utf-8")
