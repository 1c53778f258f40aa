"""A hook of MkDocs: search works in pages opened from a folder as well as from a server.

MkDocs' own search fetches its index in a worker; browsers refuse both to pages of a folder. Here the index is a
script, which pages of a folder may load, and the search runs in the page (offline.js). Only pages of the navigation are
in the index: a reader who looks for "install" should not meet a decision record.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.nav import Navigation

OWN, REPLACED = "search/offline.js", ("search/main.js", "search/worker.js")
listed_urls: Final[set[str]] = set()


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Pages load our script in place of MkDocs' own."""
    config.extra_javascript = [OWN if str(path) == REPLACED[0] else path for path in config.extra_javascript]
    if OWN not in config.extra_javascript:
        raise ValueError(f"MkDocs' search no longer adds {REPLACED[0]}: {__file__} has to follow it")
    return config


def on_nav(nav: Navigation, **_: Any) -> Navigation:
    """Note which pages the navigation lists."""
    listed_urls.clear()
    listed_urls.update(page.url for page in nav.pages)
    return nav


def entries_to_search(entries: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the listed pages and their sections, without the first section, which repeats the start of its page."""
    kept_entries, is_after_page = [], False
    for entry in entries:
        url, _, anchor = entry["location"].partition("#")
        if url in listed_urls and not (anchor and is_after_page):
            kept_entries.append(entry | {"text": entry["text"].replace(" # ", " ")})
        is_after_page = not anchor
    return kept_entries


def on_post_build(config: MkDocsConfig) -> None:
    """Turn the index of the listed pages into a script."""
    site = Path(config.site_dir)
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    index["docs"] = entries_to_search(index["docs"])
    (site / "search" / "search_index.js").write_text(f"var searchIndex = {json.dumps(index)};\n", "utf-8")
    (site / "search" / "search_index.json").unlink()
    for name in REPLACED:
        (site / name).unlink()
