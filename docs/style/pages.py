"""A hook of MkDocs: tables that scroll by keyboard, sessions in a shell, and code and pictures for both schemes."""

from __future__ import annotations

import posixpath
import re
import struct
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from pygments.styles import get_style_by_name
from pygments.token import STANDARD_TYPES

LIGHT, DARK = get_style_by_name("xcode"), get_style_by_name("github-dark")
"""Styles whose colours have a contrast of 4.5 to 1 on the grounds of ``site.css``; a browser test measures it."""

REPLACED = {
    "<table>": '<div class="table" tabindex="0" role="group" aria-label="Table"><table>',
    "</table>": "</table></div>",
    "<pre>": '<pre tabindex="0">',
}
"""What Markdown writes, and what is written in its place: what scrolls takes the keyboard."""

SCREENSHOT_SCALE = 1.5
"""Pixels of a screenshot for each pixel that it shows (tests/browser/screenshots.py)."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with its sessions marked as such: of these only the commands are code, what they print is not."""
    return re.sub(r"^( *```)bash$(?=\n *\$ )", r"\1console", markdown, flags=re.MULTILINE)


def on_page_content(html: str, page: Page, files: Files, **_: Any) -> str:
    """Return the text of a page with these marks, and with the dark form of each picture that has one."""
    for markdown_html, page_html in REPLACED.items():
        html = html.replace(markdown_html, page_html)

    def add_dark_form(tag: re.Match[str]) -> str:
        """Return the element of a picture, followed by that of its dark form; site.css shows one of them."""
        path = posixpath.join(posixpath.dirname(page.file.src_uri), tag[2])
        light, dark = (files.get_file_from_path(posixpath.normpath(f"{path}{end}.png")) for end in ("", "-dark"))
        if light is None or dark is None:
            return tag[0]
        # Bytes 16 to 24 of a PNG file are its width and height. Screenshots have more pixels than they show.
        width, height = (int(side / SCREENSHOT_SCALE) for side in struct.unpack(">II", light.content_bytes[16:24]))
        size = f'width="{width}" height="{height}"'
        return "".join(
            f'<img class="{scheme}" {size} loading="lazy"{tag[1]}src="{tag[2]}{end}.png"{tag[3]}>'
            for scheme, end in (("in-light", ""), ("in-dark", "-dark"))
        )

    return re.sub(r'<img([^>]*\s)src="([^":]+)\.png"([^>]*)>', add_dark_form, html)


def code_colours() -> str:
    """Return rules for the colours of code, light and dark in one."""
    rules = []
    for token, name in STANDARD_TYPES.items():
        light, dark = LIGHT.style_for_token(token), DARK.style_for_token(token)
        if name and (light["color"] or dark["color"]):
            colours = [f"#{style['color']}" if style["color"] else "inherit" for style in (light, dark)]
            weight = "font-weight: 700;" if light["bold"] else ""
            if "inherit" in colours:
                colours = [
                    "#1c2329" if colours[0] == "inherit" else colours[0],
                    "#e4e6e8" if colours[1] == "inherit" else colours[1],
                ]
            rules.append(f".codehilite .{name} {{ color: light-dark({', '.join(colours)}); {weight} }}")
    return "\n".join(rules) + "\n"


def on_post_build(config: MkDocsConfig) -> None:
    """Append the colours of code to the style sheet."""
    with (Path(config.site_dir) / "style" / "site.css").open("a", encoding="utf-8") as sheet:
        sheet.write(code_colours())
