"""The pages' search, header, colours and page of no address, from a folder and from a server's sub-path."""

import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


def test_search_works_from_a_folder(site, watch_page):
    observer = watch_page()
    page = observer.open(site / "tutorials" / "ten-minutes.html")
    page.fill("#search-query", "deletion_bud")  # a word that is not typed to its end
    page.wait_for_function("document.querySelector('#search-results').textContent.includes('deletion_budget')")
    page.press("#search-query", "Escape")
    assert not page.locator("#search-results").is_visible()
    page.fill("#search-query", "obfuscation")
    page.press("#search-query", "Enter")
    page.wait_for_url("**/search.html?q=obfuscation")
    page.wait_for_selector("#search-page-results article")
    page.locator("#search-page-results a").first.click()
    page.wait_for_load_state()
    assert "search.html" not in page.url
    assert observer.complaints == []
    assert observer.outside == []


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("install", "Install"),
        ("uninstall", "Install"),
        ("GDPR", "For data protection officers"),
        ("epsilon", "epsilon"),
    ],
)
def test_searches_find_their_page_first(site, watch_page, words, title):
    page = watch_page().open(site / "index.html")
    page.keyboard.press("/")
    page.keyboard.type(words)
    page.wait_for_selector("#search-results :is(article, p)")
    titles = page.locator("#search-results h3").all_inner_texts()
    assert title.lower() in (titles[0].lower() if titles else "")
    assert "adr/" not in "".join(page.locator("#search-results a").evaluate_all("links => links.map(a => a.href)"))


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 800)])
def test_search_stays_in_sight(site, watch_page, width, height):
    """The header stays while the page scrolls, on every kind of page."""
    for path in ("index.html", "tutorials/ten-minutes.html", "reference/python.html", "reliability.html"):
        page = watch_page().open(site / path)
        page.set_viewport_size({"width": width, "height": height})
        for position in ("0", "document.body.scrollHeight / 2", "document.body.scrollHeight"):
            page.evaluate(f"scrollTo(0, {position})")
            box = page.locator("#search-query").bounding_box()
            assert 0 <= box["y"] < 100, (path, position)
            assert box["width"] > 150, (path, position)


def test_search_ends_for_any_query(site, watch_page):
    observer = watch_page()
    page = observer.open(site / "search.html")
    for words in ("zyzzyva", "epsilon: +~*^", "<script>alert(1)</script>"):
        page.fill("#search-query", words)
        page.wait_for_selector("#search-page-results :is(article, p)")
        assert page.locator("#search-page-results").inner_text()
        assert observer.complaints == []


def test_button_changes_the_scheme_and_the_next_page_keeps_it(site, watch_page):
    page = watch_page().open(site / "index.html")
    page.emulate_media(color_scheme="light")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.click("#scheme")
    assert page.evaluate(background) != light
    assert page.inner_text("#scheme") == "Light"
    page.click("nav.tabs a >> nth=1")
    page.wait_for_load_state()
    assert page.evaluate(background) != light


class PagesBelowAFolder(SimpleHTTPRequestHandler):
    """Serves the pages at /a/b, and 404.html for all that is missing."""

    def do_GET(self):
        if not self.path.startswith("/a/b/"):
            self.send_error(404)
            return
        self.path = self.path.removeprefix("/a/b")
        if not self.send_missing_page():
            super().do_GET()

    def do_HEAD(self):
        if self.path.startswith("/a/b/"):
            self.path = self.path.removeprefix("/a/b")
            super().do_HEAD()
        else:
            self.send_error(404)

    def send_missing_page(self):
        if Path(self.translate_path(self.path)).exists():
            return False
        text = (Path(self.directory) / "404.html").read_bytes()
        self.send_response(404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        return True

    def log_message(self, *_):
        """Say nothing."""


@pytest.mark.parametrize("path", ["missing.html", "guide/deep/missing.html"])
def test_page_of_no_address_leads_home_from_a_sub_path(site, browser, path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(PagesBelowAFolder, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    page = browser.new_page()
    missing_files = []
    page.on(
        "response", lambda r: missing_files.append(r.url) if r.status == 404 and r.request.method == "GET" else None
    )
    try:
        address = f"http://127.0.0.1:{server.server_port}/a/b"
        page.goto(f"{address}/{path}")
        assert page.inner_text("h1") == "No such page"
        page.click("#home")
        page.wait_for_load_state()
        assert page.url == f"{address}/index.html"
        assert [url for url in missing_files if "favicon" not in url] == [f"{address}/{path}"]
    finally:
        page.close()
        server.shutdown()
        thread.join()
        server.server_close()
