"""Values in notebooks: small tables, escaped, in the notebook's own colours, light or dark."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from html import escape
from typing import Any, Final

CELL: Final = "text-align:left;padding:.15em .9em .15em 0;vertical-align:top"
CAPTION: Final = "text-align:left;caption-side:top;color:inherit;white-space:nowrap"


def shown(value: object, digits: int = 9) -> str:
    """Format a value for people, escaped: ``digits`` significant digits, thousands separated, "none" for None."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Fraction):
        return str(value) if value.denominator < 1000 else f"{float(value):.9g}"
    if isinstance(value, float):
        places = max(0, min(2, digits - 6))
        return f"{value:,.{places}f}" if 10.0 ** min(5, digits) <= abs(value) < 1e15 else f"{value:.{digits}g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(shown(inner, digits) for inner in value)
    return escape(str(value))


def card(title: str, facts: Mapping[str, Any]) -> str:
    """Return a table of facts under a title, as HTML.

    >>> card("Release", {"records": 1200, "unit": "<km>"}).count("1,200"), "&lt;km&gt;" in card("R", {"u": "<km>"})
    (1, True)
    """
    rows = "".join(
        f'<tr><th scope="row" style="{CELL}">{escape(name)}</th><td style="{CELL}">{shown(value)}</td></tr>'
        for name, value in facts.items()
    )
    head = f'<caption style="{CAPTION}"><b>{escape(title)}</b></caption>'
    return f"<div><table>{head}<tbody>{rows}</tbody></table></div>"
