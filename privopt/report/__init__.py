"""Building blocks of reports: the frame of the page, sections and figures."""

from privopt.interfaces.reporting import Section
from privopt.report.page import (
    drawing,
    figure_section,
    format_value,
    page,
    pair_section,
    table,
    table_section,
)
from privopt.report.theme import svg, use_theme

__all__ = [
    "Section",
    "drawing",
    "figure_section",
    "format_value",
    "page",
    "pair_section",
    "svg",
    "table",
    "table_section",
    "use_theme",
]
