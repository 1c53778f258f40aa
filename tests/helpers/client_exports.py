"""Small releases of each kind of places, and what clients are exported from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np

from privopt.run.solve import solve
from privopt.run.task import Options

__all__ = ["EXPORTS", "RELEASES", "release_of", "street_grid"]

HEAD = """
[privacy]
epsilon = {epsilon}
{more}
[utility]
kind = "distance"
"""
EARTH = """
[records]
grid = { rows = 4, cols = 5, cell_km = 0.5, south_west = [41.86, 12.44] }
[distance]
kind = "haversine"
"""
PLANE = """
[records]
points = "points.csv"
[distance]
kind = "euclidean"
"""
STREETS = """
[records]
points = "points.csv"
[distance]
kind = "graph"
edges = "roads.csv"
"""
MESH = """
[records]
mesh = { region = "region.geojson", side_km = 0.5 }
[distance]
kind = "euclidean"
"""
WORDS = """
[records]
vectors = "words.npy"
ids = "words.txt"
[distance]
kind = "euclidean"
"""
ANYWHERE = "everywhere = true"
RELEASES: Final = {
    "earth": ("optimal-lp", EARTH, 2.0, ""),
    "plane": ("exponential", PLANE, 1.5, ""),
    "streets": ("optimal-lp", STREETS, 15.0, ""),
    "words": ("exponential", WORDS, 1.0, ""),
    "mesh": ("exponential", MESH, 2.0, "neighbours_within = 0.51"),
    "earth anywhere": ("exponential", EARTH, 2.0, ANYWHERE),
    "plane anywhere": ("exponential", PLANE, 0.75, ANYWHERE),
    "streets anywhere": ("optimal-lp", STREETS, 8.0, ANYWHERE),
    "mesh anywhere": ("exponential", MESH, 2.0, ANYWHERE),
    "predictive": ("predictive", EARTH, 2.0, ""),
}
"""Mechanism, records and distance, epsilon, and what else [privacy] says, by name."""
EXPORTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    **{name: (name, {}) for name in RELEASES},
    "columns": ("streets", {"form": "columns", "allow_larger_loss": True}),
    "mesh columns": ("mesh", {"form": "columns", "allow_larger_loss": True}),
    "word columns": ("words", {"form": "columns", "allow_larger_loss": True}),
    "few outputs": ("streets", {"form": "rows", "max_bytes": 8 * 25 * 6, "allow_larger_loss": True}),
}
"""Release and options, by name: streets, grid, plane, mesh and words, as rows, column weights and for any point, and
one with the numbers of a predictive policy.
"""


def release_of(name: str, folder: Path) -> Path:
    """Write a problem of :data:`RELEASES` into a folder and solve it; returns DIR."""
    mechanism, text, epsilon, extra_settings = RELEASES[name]
    _write_places(folder, text)
    (folder / "problem.toml").write_text(text + HEAD.format(epsilon=epsilon, more=extra_settings))
    return solve(mechanism, folder / "problem.toml", folder / "out", Options()).folder


def street_grid(folder: Path, size: int) -> None:
    """Write points.csv and roads.csv of a town of side x side crossings, streets of 150 to 250 m."""
    rng = np.random.default_rng(7)
    lines, roads = ["id,lat,lon"], ["from,to,km"]
    for r in range(size):
        for c in range(size):
            lines.append(f"r{r}c{c},{41.9 + 0.0013 * r:.6f},{12.5 + 0.0017 * c:.6f}")
            for neighbour in ((r + 1, c), (r, c + 1)):
                if max(neighbour) < size:
                    roads.append(f"r{r}c{c},r{neighbour[0]}c{neighbour[1]},{0.15 + 0.1 * rng.random():.3f}")
    (folder / "points.csv").write_text("\n".join(lines) + "\n")
    (folder / "roads.csv").write_text("\n".join(roads) + "\n")


def _write_places(folder: Path, text: str) -> None:
    """Write what a problem's records name."""
    if text == STREETS:
        street_grid(folder, 5)
    elif text == PLANE:
        points = [f"p{i},{3 * np.sin(i):.4f},{-i / 7:.4f}" for i in range(12)]
        (folder / "points.csv").write_text("\n".join(["id,x,y", *points]) + "\n")
    elif text == WORDS:
        np.save(folder / "words.npy", np.random.default_rng(3).normal(size=(15, 4)))
        (folder / "words.txt").write_text("\n".join([*(f"word {i}" for i in range(14)), "ﬁn 🌍"]) + "\n", "utf-8")
    elif text == MESH:
        ring = [[12.44, 41.86], [12.46, 41.86], [12.46, 41.88], [12.45, 41.87], [12.44, 41.88], [12.44, 41.86]]
        (folder / "region.geojson").write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
