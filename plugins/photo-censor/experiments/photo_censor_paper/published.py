"""The values in the paper's tables."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["PAPER", "published_row"]

PAPER: Final[dict[str, dict[str, tuple[float | None, ...]]]] = {
    "table1": {
        "single": (0.20, 0.38, 59.58),
        "R-16": (0.97, 1.00, 0.06),
        "R-32": (0.99, 1.00, 0.01),
        "R-64": (1.00, 1.00, 0.00),
        "R-128": (1.00, 1.00, 0.00),
        "Albums": (0.20, 0.39, 53.51),
    },
    "table2": {
        "R-16": (0.32, 0.37, 0.45, 0.53),
        "R-32": (0.31, 0.43, 0.47, 0.59),
        "R-64": (0.31, 0.49, 0.48, 0.64),
        "R-128": (0.31, 0.53, 0.49, 0.68),
        "Albums": (0.21, 0.33, 0.31, 0.39),
    },
    "table3": {
        "R-16 optimal": (0.67, 3.00, 10.20, 29.12),
        "R-16 greedy": (0.46, 1.88, 6.22, 17.67),
        "R-32 optimal": (0.17, 1.14, 4.84, 17.49),
        "R-32 greedy": (0.07, 0.42, 1.90, 7.15),
        "R-64 optimal": (0.05, 0.57, 2.87, 10.20),
        "R-64 greedy": (0.02, 0.09, 0.57, 2.80),
        "R-128 optimal": (0.03, 0.38, 2.06, 8.07),
        "R-128 greedy": (0.01, 0.03, 0.21, 1.29),
        "Albums optimal": (77.09, 103.18, None, None),
        "Albums greedy": (70.78, 86.31, None, None),
    },
    "table4": {"R-16": (0.27, 0.10), "R-32": (0.32, 0.15), "R-64": (0.34, 0.19), "R-128": (0.33, 0.22)},
}
"""The values by table and row, in the order of the columns. None if the paper has no value."""


def published_row(table: str, row: str, columns: list[str]) -> dict[str, Any]:
    """Return a row of a table of the paper, with ``paper_`` before the names of the columns.

    Args:
        table: Name of the table, such as ``table1``.
        row: Name of the row.
        columns: Names of the columns, in the order of the paper's.
    """
    return {f"paper_{name}": value for name, value in zip(columns, PAPER[table][row], strict=False)}
