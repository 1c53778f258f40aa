"""Small example problems of every mechanism: what the report's tests open and what docs/how-to/reports.md shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import frozen

__all__ = ["EXAMPLES", "SECRETIVE", "Example"]

TOWN = """
[records]
grid = {{ rows = {rows}, cols = {cols}, cell_km = 0.5, south_west = [41.86, 12.44] }}
[distance]
kind = "haversine"
[privacy]
epsilon = {epsilon}
neighbours_within = 0.75
[utility]
kind = "distance"
prior = "prior.csv"
"""

LOCAL = """
[lr-geo]
users = ["r1c1", "r3c5", "r5c2"]
radius = 1.6
obfuscation_radius = 1.6
exponential_beyond = 0.6
"""


@frozen(kw_only=True)
class Example:
    """A problem, and how it is solved.

    Attributes:
        mechanism, options: for :func:`privopt.run.solve.solve`.
        write: makes the problem in a folder; returns the problem file.
        secrets: texts that nothing outside ``private/`` may hold.
    """

    mechanism: str
    write: Callable[[Path], Path]
    options: dict[str, Any]
    secrets: tuple[str, ...] = ()


def _town(folder: Path, extra: str = "", rows: int = 7, cols: int = 8, epsilon: float = 2.0) -> Path:
    """Return a town whose people are mostly in two quarters."""
    folder.mkdir(parents=True, exist_ok=True)
    row, col = np.divmod(np.arange(rows * cols), cols)
    weights = (
        np.exp(-((row - 2) ** 2 + (col - 2) ** 2) / 3) + 0.7 * np.exp(-((row - 5) ** 2 + (col - 6) ** 2) / 2) + 0.03
    )
    lines = [f"r{r}c{c},{p!r}" for r, c, p in zip(row, col, (weights / weights.sum()).tolist(), strict=True)]
    (folder / "prior.csv").write_text("\n".join(["id,p", *lines]) + "\n")
    (folder / "problem.toml").write_text(TOWN.format(rows=rows, cols=cols, epsilon=epsilon) + extra)
    return folder / "problem.toml"


def _words(folder: Path) -> Path:
    """Vectors in three heaps: what a report draws by principal components."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(7)
    centres = rng.normal(0, 2, (3, 8))
    np.save(folder / "words.npy", np.concatenate([rng.normal(c, 0.6, (12, 8)) for c in centres]))
    names = [f"{heap}{number}" for heap in ("fruit", "tool", "river") for number in range(1, 13)]
    (folder / "words.txt").write_text("\n".join(names) + "\n")
    text = '[records]\nvectors = "words.npy"\nids = "words.txt"\n[distance]\nkind = "euclidean"\n'
    (folder / "problem.toml").write_text(text + '[privacy]\nepsilon = 2.0\n[utility]\nkind = "distance"\n')
    return folder / "problem.toml"


def _towns(
    folder: Path, min_clients: int = 20, max_clients: int = 150, epsilon: float = 0.1, extra_settings: str = ""
) -> Path:
    """Sixty locations in clusters, and how many clients each has."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(11)
    centres = rng.uniform(0, 10, (6, 2))
    places = np.round(centres[rng.integers(0, 6, 60)] + rng.normal(0, 0.7, (60, 2)), 3)
    cost = np.round(rng.uniform(0.5, 2.0, 60), 2)
    clients = rng.permutation(np.linspace(min_clients, max_clients, 60).astype(int))
    rows = [f"L{i:02d},{x},{y},{c},{n}" for i, ((x, y), c, n) in enumerate(zip(places, cost, clients, strict=True))]
    (folder / "locations.csv").write_text("\n".join(["id,x,y,facility_cost,clients", *rows]) + "\n")
    text = f'[locations]\npoints = "locations.csv"\n[privacy]\nepsilon = {epsilon}\n{extra_settings}'
    (folder / "problem.toml").write_text(text)
    return folder / "problem.toml"


HOUSEHOLDS: Final = (81233, 82411, 83597, 84761, 85933, 87119)
"""Households of two persons in the six counties."""


def _counties(folder: Path, epsilon: float = 0.002, times: int = 1) -> Path:
    """Households by size in six counties of two states, so many times."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = ["level_1,level_2,level_3,size,groups"]
    for number, county_groups in enumerate(HOUSEHOLDS):
        for size in range(1, 13):
            groups = county_groups if size == 2 else round(61007 * (0.5 + 0.2 * number) * 0.62 ** (size - 1)) + size
            rows.append(f"Land,State {number // 3 + 1},County {number + 1},{size},{times * groups}")
    (folder / "counts.csv").write_text("\n".join(rows) + "\n")
    text = f'[hierarchy]\ncounts = "counts.csv"\nsizes = 12\n[privacy]\nepsilon = {epsilon}\n'
    (folder / "problem.toml").write_text(text)
    return folder / "problem.toml"


def _album(folder: Path) -> Path:
    """Sixteen photos of one place, as a classifier of 40 places sees them."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(5)
    place_weights = np.exp(-np.abs(np.arange(40) - 17) / 2.0)
    scores = rng.normal(0, 1, (16, 40)) + rng.exponential(1.3, (16, 1)) * place_weights
    np.save(folder / "scores.npy", scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)))
    text = '[photos]\nscores = "scores.npy"\ntrue_location = 17\nkeep = [3]\n[privacy]\ntop_k = 5\n'
    (folder / "problem.toml").write_text(text)
    return folder / "problem.toml"


EXAMPLES: Final = {
    "optimal-lp": Example(mechanism="optimal-lp", write=_town, options={"solver": "highs"}),
    "words": Example(mechanism="exponential", write=_words, options={}),
    "bd-mdp": Example(
        mechanism="bd-mdp",
        write=lambda folder: _town(folder, "[bd-mdp]\nsubsets = 4\n", rows=5, cols=6, epsilon=1.5),
        options={"solver": "highs"},
    ),
    "lr-geo": Example(
        mechanism="lr-geo", write=lambda folder: _town(folder, LOCAL, epsilon=3.0), options={"solver": "highs"}
    ),
    "fl-linear": Example(mechanism="fl-linear", write=_towns, options={}),
    "hierarchical-dp": Example(mechanism="hierarchical-dp", write=_counties, options={}),
    "photo-censor": Example(mechanism="photo-censor", write=_album, options={}),
}
"""By name."""

MANY: Final = 100_003
CLIENTS: Final = (70121 * MANY, 70997 * MANY)

SECRETIVE: Final = {
    "fl-linear": Example(
        mechanism="fl-linear",
        write=lambda folder: _towns(folder, *CLIENTS, 1e-10, '[fl-linear]\ndelta = 0.3\nmargin = "paper"\n'),
        options={},
        secrets=tuple(str(n) for n in np.linspace(*CLIENTS, 60).astype(int)),
    ),
    "hierarchical-dp": Example(
        mechanism="hierarchical-dp",
        write=lambda folder: _counties(folder, 1e-10, MANY),
        options={},
        secrets=tuple(str(MANY * count) for count in HOUSEHOLDS),
    ),
}
"""The same with so little epsilon that a true count in print is no accident: the noise is as wide as the counts, and
of their 10 digits hashes, times and noisy counts in print hold one by chance less than once in 1e7 times."""
