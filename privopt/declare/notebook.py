"""Small HTML tables for display in notebooks, using the notebook's light or dark colours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from html import escape
from typing import Any, Final

CELL: Final = "text-align:left;padding:.15em .9em .15em 0;vertical-align:top"
"""The CSS of a table cell."""
CAPTION: Final = "text-align:left;caption-side:top;color:inherit;white-space:nowrap"
"""The CSS of a table's title."""


def format_text(value: object, digits: int = 9) -> str:
    """Format a value as plain text for readers.

    Args:
        value: Any value. None becomes "none", booleans become "yes" or "no", and the items of a list are separated by
            commas.
        digits: The number of significant digits of a double. Thousands are separated by commas.
    """
    if value is None:
        return "none"
    # This test comes before that for int, because bool is a subclass of int.
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Fraction):
        return str(value) if value.denominator < 1000 else f"{float(value):.9g}"
    if isinstance(value, float):
        # Large doubles get separated thousands and at most two decimals. From 1e15 on, decimals would not be exact.
        decimals = max(0, min(2, digits - 6))
        return f"{value:,.{decimals}f}" if 10.0 ** min(5, digits) <= abs(value) < 1e15 else f"{value:.{digits}g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(format_text(inner, digits) for inner in value)
    return str(value)


def format_digits(value: float, digits: int = 3) -> str:
    """Format a number with ``digits`` significant digits and commas between thousands.

    Exponent notation is used only if the magnitude of the number is below one millionth or at least 10^15.

    >>> format_digits(68282.4), format_digits(0.274893), format_digits(3.0), format_digits(0.00002)
    ('68,300', '0.275', '3', '0.00002')
    >>> format_digits(1.5e-140)
    '1.5e-140'
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    rounded = Decimal(f"{value:.{digits - 1}e}")
    # Outside these limits, a number without an exponent would have too many zeros to be readable.
    has_few_zeros = Decimal("1e-6") <= abs(rounded) < 10**15
    return f"{rounded.normalize():,f}" if has_few_zeros else f"{value:.{digits}g}"


def format_percent(share: float) -> str:
    """Format a share as a percentage with three significant digits. A tiny positive share becomes "under 0.001 %".

    >>> format_percent(0.98654), format_percent(0.0), format_percent(1e-9)
    ('98.7\\xa0%', '0\\xa0%', 'under 0.001\\xa0%')
    """
    # No-break spaces keep a number and its per cent sign on one line.
    return "under 0.001\u00a0%" if 0 < share < 1e-5 else f"{format_digits(100 * share)}\u00a0%"


def card(title: str, facts: Mapping[str, Any]) -> str:
    """Return an HTML table with a title and one row per fact.

    >>> card("Release", {"records": 1200, "unit": "<km>"}).count("1,200"), "&lt;km&gt;" in card("R", {"u": "<km>"})
    (1, True)
    """
    cells = [(escape(name), escape(format_text(value))) for name, value in facts.items()]
    rows = "".join(
        f'<tr><th scope="row" style="{CELL}">{name}</th><td style="{CELL}">{text}</td></tr>' for name, text in cells
    )
    head = f'<caption style="{CAPTION}"><b>{escape(title)}</b></caption>'
    return f"<div><table>{head}<tbody>{rows}</tbody></table></div>"
