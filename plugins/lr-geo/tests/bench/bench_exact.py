"""Method exact at scale: ``python plugins/lr-geo/tests/bench/bench_exact.py [--side 100] [--users 1000]``.

A lattice of streets of uneven length, distances along them, every pair of records required and certified through the
streets, which imply all pairs exactly. Prints time by phase and the memory that the process took at most.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
from pathlib import Path

import numpy as np

from privopt.run.solve import solve
from privopt.run.task import Options


def lattice(folder: Path, side: int, users: int, epsilon: float) -> Path:
    """Return side x side crossings, half a km apart; streets up to 30 % longer than that; 200 targets."""
    chance = np.random.default_rng(0)
    names = [f"r{r}c{c}" for r in range(side) for c in range(side)]
    (folder / "points.csv").write_text(
        "id,x,y\n" + "".join(f"r{r}c{c},{c / 2},{r / 2}\n" for r in range(side) for c in range(side))
    )
    streets = [(i, i + 1) for i in range(side * side) if (i + 1) % side]
    streets += [(i, i + side) for i in range(side * (side - 1))]
    lengths = 0.5 * (1.0 + 0.3 * chance.random(len(streets)))
    lines = [f"{names[a]},{names[b]},{km!r}\n" for (a, b), km in zip(streets, lengths.tolist(), strict=True)]
    (folder / "roads.csv").write_text("from,to,km\n" + "".join(lines))
    targets = chance.choice(names, min(200, len(names)), replace=False)
    (folder / "targets.csv").write_text("id,weight\n" + "".join(f"{name},1\n" for name in targets))
    (folder / "problem.toml").write_text(
        '[records]\npoints = "points.csv"\n[distance]\nkind = "graph"\nedges = "roads.csv"\n'
        f"[privacy]\nepsilon = {epsilon}\n"
        '[utility]\nkind = "travel-cost"\ntargets = "targets.csv"\n'
        f"[lr-geo]\nusers = {{ random = {users} }}\nradius = 3.0\nobfuscation_radius = 2.0\nexponential_beyond = 1.0\n"
    )
    return folder / "problem.toml"


def main() -> None:
    """Solve one lattice and print what it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", type=int, default=100)
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--epsilon", type=float, default=4.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = lattice(Path(name), arguments.side, arguments.users, arguments.epsilon)
        result = solve("lr-geo", path, Path(name) / "out", Options(method="exact")).result
    result_json = result.to_json()
    summary = {
        "cells": arguments.side**2,
        "users": arguments.users,
        "time": result_json["time"],
        "processor_seconds": resource.getrusage(resource.RUSAGE_SELF).ru_utime,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "published": result.details.told["published"],
        "certificate": result_json["certificate"],
        "population": result.details.facts["population"],
        "scope": result.guarantee.scope,
    }
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
