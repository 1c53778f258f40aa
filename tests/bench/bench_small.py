"""Small problems from start to finish: ``privopt solve optimal-lp`` beside cvxpy with Clarabel.

Run as ``python tests/bench/bench_small.py --peers PYTHON``, an interpreter that has cvxpy and clarabel. Processor
seconds and peak memory of whole processes, imports included, median of five, in turns. privopt also repairs, certifies,
proves, writes and reads back its release; cvxpy states the same linear program and solves it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MEASURED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=sys.stderr).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
sys.exit(code)
"""
PEER = """
import sys
import cvxpy as cp, numpy as np
side, reach = int(sys.argv[1]), float(sys.argv[2])
x, y = np.meshgrid(np.arange(side), np.arange(side))
points = np.stack([x.ravel(), y.ravel()], axis=1).astype(float)
table = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
i, j = np.nonzero((table > 0) & (table <= reach))
z = cp.Variable(table.shape)
rows = [z >= 0, cp.sum(z, axis=1) == 1, z[i] <= cp.multiply(np.exp(table[i, j])[:, None], z[j])]
problem = cp.Problem(cp.Minimize(cp.sum(cp.multiply(table / len(points), z))), rows)
print(problem.solve(solver="CLARABEL"))
"""
RUNS = 5


def write_problem(folder: Path, side: int, reach: float) -> Path:
    """Write a square grid of cells of 1 km at epsilon 1 per km, with all pairs or those within ``reach`` km."""
    limit_line = f"neighbours_within = {reach}\n" if reach < side else ""
    (folder / "problem.toml").write_text(
        f"[records]\ngrid = {{ rows = {side}, cols = {side}, cell_km = 1.0 }}\n[distance]\nkind = 'euclidean'\n"
        f"[privacy]\nepsilon = 1.0\n{limit_line}[utility]\nkind = 'distance'\n"
    )
    return folder / "problem.toml"


def run(*command: object) -> tuple[float, float]:
    """Run a command in a process of its own, and return its processor seconds and its peak memory in MiB."""
    measured = [sys.executable, "-c", MEASURED, *map(str, command)]
    text = subprocess.run(measured, capture_output=True, text=True, check=True).stdout
    seconds, memory = map(float, text.split()[-2:])
    return seconds, memory


def main() -> None:
    """Measure each size with both kinds of pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", required=True)
    peers = parser.parse_args().peers
    for side, reach in ((3, 1.5), (4, 1.5), (5, 1.5), (5, 99.0), (6, 1.5)):
        with tempfile.TemporaryDirectory() as folder_name:
            folder = Path(folder_name)
            problem = write_problem(folder, side, reach)
            own = [sys.executable, "-m", "privopt", "solve", "optimal-lp", problem, "--out", folder / "out", "--force"]
            commands = {"privopt": [*own, "--quiet"], "cvxpy": [peers, "-c", PEER, side, reach]}
            results: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
            run(*commands["privopt"])  # compiles for this machine, the first time
            for _ in range(RUNS):
                for name, command in commands.items():
                    results[name].append(run(*command))
        pairs = "all pairs" if reach > side else f"within {reach:g} km"
        figures = (
            f"{name} {statistics.median(s for s, _ in runs):.2f} s ({min(runs)[0]:.2f} to {max(runs)[0]:.2f}), "
            f"{statistics.median(m for _, m in runs):.0f} MiB"
            for name, runs in results.items()
        )
        print(f"{side * side} cells, {pairs}: {'; '.join(figures)}; load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
