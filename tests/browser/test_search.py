"""The documentation's search, in pages opened from a folder."""


def test_search_works_from_a_folder(site, watch_page):
    observer = watch_page()
    page = observer.open(site / "guide" / "tutorial.html")
    page.fill("#rtd-search-form input[name=q]", "obfuscation")
    page.press("#rtd-search-form input[name=q]", "Enter")
    page.wait_for_url("**/search.html?q=obfuscation")
    page.wait_for_selector("#mkdocs-search-results article")
    page.fill("#mkdocs-search-query", "deletion_bud")  # a word that is not typed to its end
    page.wait_for_function("document.querySelector('#mkdocs-search-results').textContent.includes('deletion_budget')")
    page.locator("#mkdocs-search-results a").first.click()
    page.wait_for_load_state()
    assert "search.html" not in page.url
    assert observer.complaints == []
    assert observer.outside == []


def test_search_box_stays_in_sight(site, watch_page):
    """The menu scrolls to the current page; the box above it must not leave the screen with it."""
    for path in ("index.html", "guide/tutorial.html", "reference/python.html", "reliability.html"):
        page = watch_page().open(site / path)
        box = page.locator("input[name=q]").bounding_box()
        assert 0 <= box["y"] < 300, path


def test_search_ends_for_any_query(site, watch_page):
    observer = watch_page()
    page = observer.open(site / "search.html")
    for words in ("zyzzyva", "epsilon: +~*^", "<script>alert(1)</script>"):
        page.wait_for_selector("#mkdocs-search-results > p")
        page.fill("#mkdocs-search-query", words)
        page.wait_for_timeout(200)
        text = page.locator("#mkdocs-search-results").inner_text()
        assert text
        assert "Searching" not in text
        assert observer.complaints == []
