"""Count the words that a reader of the pages meets: ``python tests/docs/count_words.py [--pages]``.

Only pages of the navigation count, by the kind under which ``mkdocs.yml`` lists them. Words are those of the rendered
text, code and tables included, as a browser shows it.
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import markdown
import yaml

ROOT = Path(__file__).resolve().parents[2]


def navigation_pages(entries: list[Any], kind: str = "") -> Iterator[tuple[str, Path]]:
    """Yield (kind, file) of each page of the navigation; the kind is the title of its outermost section."""
    for entry in entries:
        ((title, target),) = entry.items()
        if isinstance(target, list):
            yield from navigation_pages(target, kind or title)
        else:
            yield kind or title, ROOT / "docs" / target


def count_words(text: str) -> int:
    """Return the number of words that a browser shows of a Markdown text."""
    page = markdown.markdown(text, extensions=["tables", "fenced_code"])
    page = re.sub(r"(?s)<!--.*?-->", " ", page)
    return len(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def words_by_page() -> list[tuple[str, Path, int]]:
    """Return kind, file and number of words of each page of the navigation, in its order."""
    configuration = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    pages = navigation_pages(configuration["nav"])
    return [(kind, path, count_words(path.read_text("utf-8"))) for kind, path in pages]


def main() -> None:
    """Print the words and pages of each kind; with ``--pages`` those of each page too."""
    rows = words_by_page()
    for kind in dict.fromkeys(row[0] for row in rows):
        words = [row[2] for row in rows if row[0] == kind]
        print(f"{sum(words):7,d} words  {len(words):3d} pages  {kind}")
        if "--pages" in sys.argv:
            for _, path, number in (row for row in rows if row[0] == kind):
                print(f"        {number:7,d}  {path.relative_to(ROOT / 'docs')}")
    print(f"{sum(row[2] for row in rows):7,d} words  {len(rows):3d} pages  in all")


if __name__ == "__main__":
    main()
