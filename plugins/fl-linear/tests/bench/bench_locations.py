"""Time and peak memory of the server's side at 1e5 and 1e6 locations, file to folder.

Run: ``python plugins/fl-linear/tests/bench/bench_locations.py [n ...] [--delta 0.01|auto] [--method reconnection]
[--opening COST [--candidates N] [--limit SECONDS] [--gap G]]``. With --opening each facility costs so much to open, at
the mean of the counts sent, and N random locations may hold one (all, left out).
Each size runs in a process of its own, as ``privopt solve`` would: noisy counts in (so no noise is drawn), DIR out,
imports and compilation from the cache included. Limits: 3 s at 1e5, 40 s at 1e6.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

TOML = """[locations]
points = "locations.csv"
[privacy]
epsilon = 0.1
failure_probability = 0.1
[fl-linear]
delta = {delta}
"""


def prepare(folder: Path, n: int, delta: str, opening: float | None, candidates: int | None) -> Path:
    rng = np.random.default_rng(7)
    names = [f"v{i}" for i in range(n)]
    place = {"x": rng.random(n), "y": rng.random(n)}
    more = {"facility_cost": rng.uniform(0.1, 0.3, n), "noisy_clients": rng.integers(-20, 30, n)}
    text = TOML.format(delta=f'"{delta}"' if delta == "auto" else delta)
    if opening is not None:
        more["opening_cost"] = np.full(n, opening)
        text += f"mean_clients = {float(more['noisy_clients'].mean())!r}\n"
    if candidates is not None:
        more["candidate"] = np.isin(np.arange(n), rng.choice(n, candidates, replace=False)).astype(np.int64)
    pl.DataFrame({"id": names, **place, **more}).write_csv(folder / "locations.csv")
    (folder / "problem.toml").write_text(text)
    return folder / "problem.toml"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=[100_000, 1_000_000])
    parser.add_argument("--delta", default="0.01")
    parser.add_argument("--method", default="reconnection")
    parser.add_argument("--opening", type=float)
    parser.add_argument("--candidates", type=int)
    parser.add_argument("--limit")
    parser.add_argument("--gap")
    given = parser.parse_args()
    before = 0.0
    for n in given.sizes:
        with tempfile.TemporaryDirectory() as name:
            path = prepare(Path(name), n, given.delta, given.opening, given.candidates)
            command = [sys.executable, "-m", "privopt", "solve", "fl-linear", str(path), "--quiet", "--json"]
            command += ["--method", given.method, "--out", str(Path(name) / "out")]
            command += ["--time-limit", given.limit] if given.limit else []
            command += ["--gap", given.gap] if given.gap else []
            start = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode not in (0, 4):
                raise SystemExit(done.stderr)
            seconds = time.perf_counter() - start
        result = json.loads(done.stdout)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        peak, spent = used.ru_maxrss / 1024, used.ru_utime + used.ru_stime - before
        before += spent
        facilities = result["details"]["facilities"]
        line = f"n = {n:>9,}  {seconds:6.1f} s  cpu {spent:6.1f} s  peak {peak:7.0f} MiB  {facilities} facilities"
        told = result["details"]["told"].get("opening", {})
        if told:
            gap = 1.0 - told["bound"] / told["objective"]
            line += f", gap {gap:.2g}, {told['nodes']} nodes, {told['pairs']:,} pairs"
        print(line, result["time"], flush=True)


if __name__ == "__main__":
    main()
