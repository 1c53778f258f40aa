"""A hook of MkDocs: what the theme leaves out for the keyboard and for screen readers.

Code and tables that scroll must take the keyboard, and all of a page must be in a landmark: the footer is one of the
page, the list of versions a region. The theme marks neither.
"""

from __future__ import annotations

from typing import Any, Final

REPLACED: Final = {
    "<span></span><code>": '<span></span><code tabindex="0">',
    "<table>": '<table tabindex="0">',
    "<footer>": '<footer role="contentinfo">',
    '<div role="contentinfo">': "<div>",
    'class="rst-versions" role="note"': 'class="rst-versions" role="region"',
}
"""What the theme writes, and what is written in its place."""


def on_post_page(output: str, **_: Any) -> str:
    """Return a page with these marks."""
    for old, new in REPLACED.items():
        output = output.replace(old, new)
    return output
