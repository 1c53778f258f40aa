"""The text of a drafted problem file: its tables, with what was recognised and what it means as comments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from privopt.declare.toml_text import to_toml

__all__ = ["problem_text", "relative"]


def relative(path: Path, folder: Path) -> str:
    """Return a path as the problem file names it from its folder."""
    return os.path.relpath(path.absolute(), folder)


def problem_text(
    mechanism: str, points: Path, tables: dict[str, dict[str, object]], notes: Sequence[str], meaning: Sequence[str]
) -> str:
    """Write the problem file, with what was recognised and what it means as comments."""
    said = {"records": notes, "privacy": [f"epsilon {line}" for line in meaning[:1]] + list(meaning[1:])}
    keys = {
        "distance": ["euclidean | haversine | graph | matrix: what epsilon is per"],
        "privacy": ["neighbours_within = ... promises less, to pairs so near alone, and solves faster"],
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
        lines += [f"# {' '.join(line.split())}" for line in (*said.get(name, ()), *keys.get(name, ()))]
        lines.append(to_toml({name: table}))
    return "\n".join(lines)
