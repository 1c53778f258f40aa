"""Whole commands of this checkout beside those of another one, in turns: seconds, memory, loss, bound.

Run as ``python tests/bench/bench_before.py PYTHON [--only TEXT] [--times N] [--write FILE]`` with the interpreter of
the other checkout's environment. Problems are those of ``bench_city.py`` and a grid. A first solve, which is not shown,
compiles what a checkout has not compiled yet; then each checkout solves so many times, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from attrs import frozen
from bench_city import _problem, rome_cells, rome_streets, run_command, write_random


def _grid(folder: Path) -> None:
    """Write 400 cells of 1 km whose eight neighbours are pairs."""
    other_tables = 'neighbours_within = 1.5\n[utility]\nkind = "distance"\n'
    _problem(folder, "grid = { rows = 20, cols = 20, cell_km = 1.0 }", 'kind = "euclidean"', 0.7, other_tables)


@frozen
class Case:
    """A problem, and the gap to which it is solved."""

    name: str
    make: Callable[[Path], None]
    gap: str


CASES = (
    Case("grid of 400 cells, 8 neighbours, .7 per km", _grid, "1e-6"),
    Case("400 Rome cells, 2 per km", lambda to: rome_cells(to, 400, 2.0), "1e-6"),
    Case("400 Rome cells, 1 per km", lambda to: rome_cells(to, 400, 1.0), "1e-6"),
    Case("900 Rome cells, 1 per km", lambda to: rome_cells(to, 900, 1.0), "1e-2"),
    Case("1,331 Rome cells, 1 per km", lambda to: rome_cells(to, 1331, 1.0), "1e-2"),
    Case("200 scattered points, all pairs", lambda to: write_random(to, 200), "1e-4"),
    Case("500 scattered points, all pairs", lambda to: write_random(to, 500), "1e-3"),
    Case("2,032 Rome street nodes, 3 per km, all outputs", lambda to: rome_streets(to, 3.0), "1e-2"),
)


def cell(python: str, folder: Path, gap: str) -> tuple[float, str]:
    """Seconds of one solve, and what it came to."""
    command = [python, "-P", "-m", "privopt", "solve", "optimal-lp", folder / "problem.toml", "--out", folder / "out"]
    code, seconds, peak, stdout = run_command([*command, "--gap", gap, "--force", "--json", "--quiet"])
    if not stdout:
        return seconds, f"exit {code} after {seconds:.1f} s"
    objective = json.loads(stdout)["objective"]
    return seconds, f"{seconds:.1f} | {peak:.2f} | {objective['value']:.7g} | {objective['gap']:.1e}"


def main() -> None:
    """Run, print and, asked to, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", help="interpreter of the other checkout's environment")
    parser.add_argument("--only", default="", help="only problems whose name contains this")
    parser.add_argument("--times", type=int, default=1, help="runs of each; the median is shown")
    parser.add_argument("--write", type=Path, help="file for the table")
    options = parser.parse_args()
    lines = [
        "| problem | gap asked | before: seconds | GB | loss | gap | now: seconds | GB | loss | gap | load |",
        "| --- " * 11 + "|",
    ]
    print("\n".join(lines), flush=True)
    sides = (options.before, sys.executable)
    with tempfile.TemporaryDirectory() as folder_name:
        rome_cells(Path(folder_name), 400, 2.0)
        for python in sides:
            cell(python, Path(folder_name), "1e-1")
    for case in CASES:
        if options.only not in case.name:
            continue
        with tempfile.TemporaryDirectory() as folder_name:
            folder = Path(folder_name)
            case.make(folder)
            runs = [[cell(python, folder, case.gap) for python in sides] for _ in range(options.times)]
        cells = [sorted(version_runs)[len(version_runs) // 2][1] for version_runs in zip(*runs, strict=True)]
        lines.append(f"| {case.name} | {case.gap} | {' | '.join(cells)} | {os.getloadavg()[0]:.0f} |")
        print(lines[-1], flush=True)
    if options.write is not None:
        options.write.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
