"""Building blocks of reports: the frame of the page, sections, figures."""

from privopt.interfaces.reporting import Section
from privopt.report.page import (
    drawing,
    figure_section,
    page,
    pair_section,
    shown,
    table,
    table_section,
)
from privopt.report.theme import svg, themed

__all__ = [
    "Section",
    "drawing",
    "figure_section",
    "page",
    "pair_section",
    "shown",
    "svg",
    "table",
    "table_section",
    "themed",
]
