"""What reports are made of: the frame of the page, sections, and the body of metric mechanisms."""

from privopt.report.page import Section, figure_section, page, shown, svg, table_section

__all__ = ["Section", "figure_section", "page", "shown", "svg", "table_section"]
