"""A hook of MkDocs: tables that scroll by keyboard, sessions in a shell, and colours of code for both schemes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
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


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with its sessions marked as such: of these only the commands are code, what they print is not."""
    return re.sub(r"^( *```)bash$(?=\n *\$ )", r"\1console", markdown, flags=re.MULTILINE)


def on_page_content(html: str, **_: Any) -> str:
    """Return the text of a page with these marks."""
    for markdown_html, page_html in REPLACED.items():
        html = html.replace(markdown_html, page_html)
    return html


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
