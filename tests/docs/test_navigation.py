"""The menu is for readers: four kinds of pages, short enough to be read; pages for developers are linked once."""

import re

from count_words import ROOT, count_words, words_by_page

DOCS = ROOT / "docs"
KINDS = ["Start", "Tutorials", "How-to", "Reference", "Explanation"]
MOST_WORDS = 60_000
SHORT_PAGES = {"explanation/data-protection-officers.md": 1200}
"""Pages with a limit of their own, in words."""


def links_of(page):
    """Return the pages of docs that a page links to."""
    targets = re.findall(r"\]\(([^)#]+\.md)(?:#[^)]*)?\)", page.read_text("utf-8"))
    return {(page.parent / target).resolve() for target in targets if "://" not in target}


def test_menu_has_four_kinds_and_few_words():
    rows = words_by_page()
    assert list(dict.fromkeys(row[0] for row in rows)) == KINDS
    assert sum(row[2] for row in rows) <= MOST_WORDS
    assert len({row[1] for row in rows}) == len(rows)


def test_pages_of_papers_and_for_officers_are_short():
    words = {path.relative_to(DOCS).as_posix(): number for _, path, number in words_by_page()}
    papers = [name for name in words if name.startswith("explanation/paper-")]
    assert len(papers) == 5
    assert {name: words[name] for name in papers if words[name] > 900} == {}
    assert {name: words[name] for name, most in SHORT_PAGES.items() if words[name] > most} == {}


def test_pages_outside_the_menu_are_linked_from_the_page_for_developers():
    listed_pages = {path for _, path, _ in words_by_page()}
    outside = {path for path in DOCS.rglob("*.md") if path not in listed_pages and ".venv" not in path.parts}
    examples = {path for path in outside if DOCS / "examples" in path.parents}
    assert len(outside) > 40
    assert outside - examples - links_of(DOCS / "developers.md") == set()


def test_pages_of_the_menu_do_not_speak_to_developers():
    for _, path, _ in words_by_page():
        text = " ".join(path.read_text("utf-8").split())
        assert "every block runs" not in text, path
        assert "block runs in the tests" not in text, path


def test_words_are_those_that_a_browser_shows():
    assert count_words("# One two\n\n<!-- no -->\n\n| a | b |\n| --- | --- |\n| `c d` | [e](f.md) |\n") == 7
