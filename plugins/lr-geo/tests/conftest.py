from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

HEADER = """
[records]
grid = {{ rows = {rows}, cols = {cols}, cell_km = {cell} }}
[distance]
kind = "euclidean"
[privacy]
epsilon = {epsilon}
{within}
[utility]
kind = "distance"
[lr-geo]
users = {users}
radius = {radius}
obfuscation_radius = {far}
exponential_beyond = {near}
exponent = {exponent}
"""


@pytest.fixture
def write(tmp_path):
    """Write a problem over an even grid; returns its path."""

    def write_problem(name: str = "problem", extra: str = "", **changes: Any) -> Path:
        keys: dict[str, Any] = {
            "rows": 5,
            "cols": 5,
            "cell": 0.5,
            "epsilon": "2.0",
            "within": "neighbours_within = 0.8",
            "users": '["r1c1", "r2c3"]',
            "radius": 1.2,
            "far": 1.6,
            "near": 0.6,
            "exponent": 1.0,
        }
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        path = folder / "problem.toml"
        path.write_text(HEADER.format(**(keys | changes)) + extra)
        return path

    return write_problem
