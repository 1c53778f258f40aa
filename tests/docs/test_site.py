"""The documentation builds without a warning, and its pages load nothing from outside."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path


class Links(HTMLParser):
    """Ids, and what is linked and loaded."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loaded = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids.update(attributes[name] for name in ("id", "name") if attributes.get(name))
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        elif tag in ("script", "img", "iframe") and attributes.get("src"):
            self.loaded.append(attributes["src"])
        elif tag == "link" and attributes.get("href"):
            self.loaded.append(attributes["href"])


def test_every_link_inside_leads_somewhere(site):
    pages = {path: Links(path.read_text("utf-8")) for path in site.rglob("*.html")}
    assert len(pages) > 20
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link) or path.name == "404.html":
                continue
            target, _, anchor = link.partition("#")
            target_path = (path.parent / target).resolve() if target else path
            target_path = target_path / "index.html" if target_path.is_dir() else target_path
            assert target_path.is_file(), f"{path.name}: {link}"
            if anchor and target_path in pages:
                assert anchor in pages[target_path].ids, f"{path.name}: {link}"


def test_pictures_are_made_and_shown():
    """A script names each, or its group; those of a page of docs are of files that the page's own commands write."""
    docs, tests = Path(__file__).parents[2] / "docs", Path(__file__).parents[1]
    script = "".join(
        path.read_text("utf-8") for folder_name in ("browser", "bench") for path in (tests / folder_name).glob("*.py")
    )
    page_texts = "".join(path.read_text("utf-8") for path in docs.rglob("*.md"))
    for picture in (docs / "img").glob("*.png"):
        name = picture.stem.removesuffix("-dark")
        group = name.rpartition("-")[0] or name
        assert f"img/{name}.png)" in page_texts, name
        assert re.search(f'"{name}(.png)?"|"{group}"|f"{group}-', script), name
    for page, file in re.findall(r'"([\w/-]+\.md) ([\w./-]+)"', script):
        assert Path(file).parts[0] in (docs / page).read_text("utf-8"), file


def test_nothing_is_loaded_from_outside(site):
    for path in site.rglob("*.html"):
        loaded_urls = Links(path.read_text("utf-8")).loaded
        assert loaded_urls or path.name == "404.html"
        assert not [name for name in loaded_urls if re.match(r"(https?:)?//", name)], path
    for path in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", path.read_text("utf-8", errors="replace")), path
    for path in site.rglob("*.js"):
        assert not re.search(r"(src|href)\s*=\s*['\"]https?://", path.read_text("utf-8", errors="replace")), path


def test_picture_has_a_dark_form_of_its_size(site):
    docs, page = Path(__file__).parents[2] / "docs", (site / "how-to" / "reports.html").read_text("utf-8")
    names = {path.stem for path in (docs / "img").glob("*.png")}
    light_names = {name for name in names if not name.endswith("-dark")}
    shown = {name for name in light_names if name.startswith(("report-", "gallery-"))}
    assert {f"{name}-dark" for name in shown} <= names <= light_names | {f"{name}-dark" for name in light_names}
    size = r' width="390" height="\d+" loading="lazy" alt="[^"]+" src="\.\./img/report-metric'
    assert re.search(f'<img class="in-light"{size}.png"', page)
    assert re.search(f'<img class="in-dark"{size}-dark.png"', page)


def test_what_commands_print_is_not_coloured_as_code(site):
    page = (site / "tutorials" / "ten-minutes.html").read_text("utf-8")
    assert '<span class="gp">$ </span>privopt' in page
    assert re.search(r'<span class="go">time +\.\.\.</span>', page)


def test_search_page_needs_no_server(site):
    """Browsers refuse fetching and workers to pages of a folder; scripts they load."""
    assert "../search/offline.js" in Links((site / "tutorials" / "ten-minutes.html").read_text("utf-8")).loaded
    script = (site / "search" / "offline.js").read_text("utf-8")
    assert not re.search(r"Worker\(|XMLHttpRequest|fetch\(|\$\(", script)
    assert sorted(path.name for path in (site / "search").iterdir()) == ["lunr.js", "offline.js", "search_index.js"]
    index = (site / "search" / "search_index.js").read_text("utf-8")
    documents = json.loads(index.removeprefix("var searchIndex = ").rstrip(";\n"))["docs"]
    assert {doc["location"].partition("#")[0] for doc in documents} >= {"index.html", "explanation/guarantees.html"}


def test_pages_outside_the_menu_say_for_whom_they_are(site):
    outside, inside = (
        (site / name).read_text("utf-8") for name in ("guide/repeated.html", "tutorials/ten-minutes.html")
    )
    assert 'class="where"><a href="../developers.html"' in outside
    assert 'class="where"' not in inside
