"""Format a drafted problem file, with comments on the recognised columns and on the meaning of epsilon.

The TOML tables are formatted one by one, because each may be preceded by comments.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from privopt.declare.toml_text import to_toml

__all__ = ["format_problem", "relative_path"]


def relative_path(path: Path, folder: Path) -> str:
    """Return a path relative to a folder, as it is written in a problem file in that folder."""
    return os.path.relpath(path.absolute(), folder)


def format_problem(
    mechanism: str, points: Path, tables: dict[str, dict[str, object]], notes: Sequence[str], meaning: Sequence[str]
) -> str:
    """Return the text of a problem file, with comments before each table.

    Args:
        mechanism: The name of the mechanism that the problem was drafted for.
        points: The table from which the problem was drafted.
        tables: The TOML tables of the problem, keyed by name.
        notes: Notes on the recognised columns, which become comments on ``[records]``.
        meaning: Notes on the meaning of epsilon, which become comments on ``[privacy]``. The first one is preceded by
            the word "epsilon".
    """
    comments_by_table = {"records": notes, "privacy": [f"epsilon {line}" for line in meaning[:1]] + list(meaning[1:])}
    hints_by_table = {
        "distance": ["euclidean | haversine | graph | matrix: what epsilon is per"],
        "privacy": ["neighbours_within = ... promises less, only for pairs that close, and solves faster"],
        "utility": [
            "distance | travel-cost | matrix: what an error costs; prior = a table id,p of probabilities, public too",
            'per_km = { cost = 0.8, unit = "minutes" } states a loss in km in the unit of its readers too',
        ],
    }
    lines = [
        f"# A problem for privopt solve {mechanism}, drafted from {points.name}.",
        '# title = "..."    # the heading of the report, public as the whole file is',
        '# purpose = "..."  # what the release is for: the line under it',
        "",
    ]
    for name, table in tables.items():
        lines += [
            # Line breaks are removed, because any text after one would not be part of the comment.
            f"# {' '.join(line.split())}"
            for line in (*comments_by_table.get(name, ()), *hints_by_table.get(name, ()))
        ]
        # Each table is converted separately, so that its comments stand directly above it.
        lines.append(to_toml({name: table}))
    return "\n".join(lines)
