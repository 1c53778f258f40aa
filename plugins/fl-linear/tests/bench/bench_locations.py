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
    coordinates = {"x": rng.random(n), "y": rng.random(n)}
    cost_columns = {"facility_cost": rng.uniform(0.1, 0.3, n), "noisy_clients": rng.integers(-20, 30, n)}
    text = TOML.format(delta=f'"{delta}"' if delta == "auto" else delta)
    if opening is not None:
        cost_columns["opening_cost"] = np.full(n, opening)
        text += f"mean_clients = {float(cost_columns['noisy_clients'].mean())!r}\n"
    if candidates is not None:
        cost_columns["candidate"] = np.isin(np.arange(n), rng.choice(n, candidates, replace=False)).astype(np.int64)
    pl.DataFrame({"id": names, **coordinates, **cost_columns}).write_csv(folder / "locations.csv")
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
    arguments = parser.parse_args()
    previous_seconds = 0.0
    for n in arguments.sizes:
        with tempfile.TemporaryDirectory() as name:
            path = prepare(Path(name), n, arguments.delta, arguments.opening, arguments.candidates)
            command = [sys.executable, "-m", "privopt", "solve", "fl-linear", str(path), "--quiet", "--json"]
            command += ["--method", arguments.method, "--out", str(Path(name) / "out")]
            command += ["--time-limit", arguments.limit] if arguments.limit else []
            command += ["--gap", arguments.gap] if arguments.gap else []
            start = time.perf_counter()
            completed = subprocess.run(command, capture_output=True, text=True)
            if completed.returncode not in (0, 4):
                raise SystemExit(completed.stderr)
            seconds = time.perf_counter() - start
        result = json.loads(completed.stdout)
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        peak, cpu_seconds = usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime - previous_seconds
        previous_seconds += cpu_seconds
        facilities = result["details"]["facilities"]
        line = f"n = {n:>9,}  {seconds:6.1f} s  cpu {cpu_seconds:6.1f} s  peak {peak:7.0f} MiB  {facilities} facilities"
        opening = result["details"]["told"].get("opening", {})
        if opening:
            gap = 1.0 - opening["bound"] / opening["objective"]
            line += f", gap {gap:.2g}, {opening['nodes']} nodes, {opening['pairs']:,} pairs"
        print(line, result["time"], flush=True)


if __name__ == "__main__":
    main()
