"""A hook of MkDocs: search works in pages opened from a folder as well as from a server.

MkDocs' own search fetches its index in a worker; browsers refuse both to pages of a folder, and the search page hangs.
Here the index is a script, which pages of a folder may load, and the search runs in the page (offline.js).
"""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig

OWN, REPLACED = "search/offline.js", ("search/main.js", "search/worker.js")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Pages load our script in place of MkDocs' own."""
    config.extra_javascript = [OWN if str(path) == REPLACED[0] else path for path in config.extra_javascript]
    if OWN not in config.extra_javascript:
        raise ValueError(f"MkDocs' search no longer adds {REPLACED[0]}: {__file__} has to follow it")
    return config


def on_post_build(config: MkDocsConfig) -> None:
    """Turn the index into a script."""
    site = Path(config.site_dir)
    index = (site / "search" / "search_index.json").read_text("utf-8")
    (site / "search" / "search_index.js").write_text(f"var searchIndex = {index};\n", "utf-8")
    (site / "search" / "search_index.json").unlink()
    for name in REPLACED:
        (site / name).unlink()
