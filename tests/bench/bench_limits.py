"""What each method of optimal-lp comes to under a limit, `auto` beside those asked for by name.

Run as ``python tests/bench/bench_limits.py [--only TEXT] [--limits 5,10,20]``. Seconds are processor seconds of the
command and its workers, by the clock of ``plugins/metric-dp/tests/solvers/test_ladder.py``: what else the machine does
counts for nothing, two threads count for two. The limit ends the search; certifying and writing follow. Loss is a
share of the exponential mechanism's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path += [str(Path(__file__).resolve().parents[2] / part) for part in ("tests", "plugins/metric-dp/tests/solvers")]

from bench_city import PRIVOPT, _problem, write_random
from test_ladder import COMMAND

METHODS = ("auto", "interior-point", "column-generation", "full")


def cells(folder: Path, rows: int, columns: int, epsilon: float, within: float | None) -> None:
    """Write a grid of 1 km cells, all pairs or those within a number of km."""
    limit_line = "" if within is None else f"neighbours_within = {within!r}\n"
    other_tables = limit_line + '[utility]\nkind = "distance"\n'
    _problem(
        folder,
        f"grid = {{ rows = {rows}, cols = {columns}, cell_km = 1.0 }}",
        'kind = "euclidean"',
        epsilon,
        other_tables,
    )


MAPS: dict[str, Callable[[Path], None]] = {
    "400 cells, within 1.5 km, .4 per km": lambda to: cells(to, 20, 20, 0.4, 1.5),
    "400 cells, all pairs, .4 per km": lambda to: cells(to, 20, 20, 0.4, None),
    "400 cells, all pairs, 1 per km": lambda to: cells(to, 20, 20, 1.0, None),
    "1,000 cells, within 1.5 km, .4 per km": lambda to: cells(to, 25, 40, 0.4, 1.5),
    "400 scattered, all pairs": lambda to: write_random(to, 400),
}


def run(problem: Path, output_folder: Path, mechanism: str, method: str, *options: str) -> tuple[int, str]:
    """Exit code and standard output of a command by the clock of processor seconds."""
    command = [
        sys.executable,
        "-c",
        COMMAND,
        "solve",
        mechanism,
        str(problem),
        "--method",
        method,
        "--out",
        str(output_folder),
    ]
    completed = subprocess.run([*command, "--json", "--quiet", "--force", *options], capture_output=True, text=True)
    return completed.returncode, completed.stdout


def line(name: str, make: Callable[[Path], None], limits: list[str], methods: list[str]) -> None:
    """Loss and gap of each method at each limit."""
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        make(folder)
        completed = subprocess.run(
            [*PRIVOPT, "solve", "exponential", folder / "problem.toml", "--out", folder / "plain", "--json", "--quiet"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        exponential_loss = json.loads(completed.stdout)["objective"]["value"]
        for limit in limits:
            cells = []
            for method in methods:
                code, stdout = run(folder / "problem.toml", folder / "out", "optimal-lp", method, "--time-limit", limit)
                if not stdout:
                    cells.append(f"exit {code}")
                    continue
                result = json.loads(stdout)
                gap, path = result["objective"]["gap"], result["solver"].get("path", "")
                stated = "no bound" if gap is None else f"{gap:.2g}"
                cells.append(f"{result['objective']['value'] / exponential_loss:.4f}, {stated}")
                print(f"    {method} {limit} s: {path}", file=sys.stderr)
            print(f"| {name} | {limit} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print a line for each map and limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--limits", default="5,10,20")
    parser.add_argument("--methods", default=",".join(METHODS))
    options = parser.parse_args()
    methods = options.methods.split(",")
    print(f"| map | seconds | {' | '.join(methods)} |", flush=True)
    for name, make in MAPS.items():
        if options.only in name:
            line(name, make, options.limits.split(","), methods)


if __name__ == "__main__":
    main()
