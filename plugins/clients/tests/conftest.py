"""Releases that clients are exported from: small, of each kind of places."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from privopt.run.options import Options
from privopt.run.solve import solve

HEAD = """
[privacy]
epsilon = {epsilon}
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


def street_grid(folder: Path, side: int) -> None:
    """Write points.csv and roads.csv of a town of side x side crossings, streets of some 100 to 200 m."""
    rng = np.random.default_rng(7)
    lines, roads = ["id,lat,lon"], ["from,to,km"]
    for r in range(side):
        for c in range(side):
            lines.append(f"{r}-{c},{41.9 + 0.0013 * r:.6f},{12.5 + 0.0017 * c:.6f}")
            for other in ((r + 1, c), (r, c + 1)):
                if max(other) < side:
                    roads.append(f"{r}-{c},{other[0]}-{other[1]},{0.1 + 0.1 * rng.random():.3f}")
    (folder / "points.csv").write_text("\n".join(lines) + "\n")
    (folder / "roads.csv").write_text("\n".join(roads) + "\n")


def released(folder: Path, mechanism: str, text: str, epsilon: float) -> Path:
    """Solve a problem in a folder; returns DIR."""
    (folder / "problem.toml").write_text(text + HEAD.format(epsilon=epsilon))
    solve(mechanism, folder / "problem.toml", folder / "out", Options())
    return folder / "out"


@pytest.fixture(scope="session")
def releases(tmp_path_factory) -> dict[str, Path]:
    """DIR of each small release, by name."""
    made = {}
    for name in ("earth", "plane", "streets", "words"):
        folder = tmp_path_factory.mktemp(name)
        if name == "earth":
            made[name] = released(folder, "optimal-lp", EARTH, 2.0)
        elif name == "plane":
            points = [f"p{i},{3 * np.sin(i):.4f},{-i / 7:.4f}" for i in range(12)]
            (folder / "points.csv").write_text("\n".join(["id,x,y", *points]) + "\n")
            made[name] = released(folder, "exponential", PLANE, 1.5)
        elif name == "streets":
            street_grid(folder, 5)
            made[name] = released(folder, "optimal-lp", STREETS, 15.0)
        else:
            vectors = np.random.default_rng(3).normal(size=(15, 4))
            np.save(folder / "words.npy", vectors)
            (folder / "words.txt").write_text("\n".join([*(f"word {i}" for i in range(14)), "ﬁn 🌍"]) + "\n", "utf-8")
            records = '[records]\nvectors = "words.npy"\nids = "words.txt"\n[distance]\nkind = "euclidean"\n'
            made[name] = released(folder, "exponential", records, 1.0)
    return made


@pytest.fixture(scope="session")
def exported(releases, tmp_path_factory) -> dict[str, Path]:
    """FOLDER of each export, by name."""
    from privopt_clients.export import export

    made = {}
    for name, folder in releases.items():
        made[name] = tmp_path_factory.mktemp("exported") / name
        export(folder, made[name])
    made["columns"] = tmp_path_factory.mktemp("exported") / "columns"
    export(releases["streets"], made["columns"], form="columns")
    return made


@pytest.fixture
def same_reports(tmp_path) -> Callable[[Path, int, Callable[[Path, int], str]], None]:
    """Return a check that a client in another language reports what the client in Python does."""
    from privopt_clients.client import open_artefact

    def check(folder: Path, count: int, hash_of: Callable[[Path, int], str]) -> None:
        """Compare the SHA-256 of ids reported from ``count`` strings of entropy, over all records in turn.

        ``hash_of`` is the other client's: it takes a file of entropy and the bytes of each string.
        """
        client = open_artefact((folder / "mechanism.bin").read_bytes())
        ids, size = client.ids, min(client.entropy, 28)  # of column weights two blocks, of which sometimes none counts
        entropy = random.Random(count).randbytes(size * count)
        reported = hashlib.sha256()
        for at in range(count):
            try:
                report = client.report_from(ids[at % len(ids)], entropy[at * size : (at + 1) * size])["id"]
            except ValueError:
                report = "no block counts"
            reported.update(f"{report}\n".encode())
        (tmp_path / "entropy.bin").write_bytes(entropy)
        assert hash_of(tmp_path / "entropy.bin", size) == reported.hexdigest()

    return check
