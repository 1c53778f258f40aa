"""Building blocks for reports: the page's frame, sections and figures."""

from privopt.interfaces.reporting import Section
from privopt.report.page import drawing, figure_section, page, pair_section, table, table_section
from privopt.report.templates import render
from privopt.report.theme import svg, use_theme

__all__ = [
    "Section",
    "drawing",
    "figure_section",
    "page",
    "pair_section",
    "render",
    "svg",
    "table",
    "table_section",
    "use_theme",
]
