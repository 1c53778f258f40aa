"""What a long open period of a ledger costs: nightly runs, and questions about one subject, at several sizes.

``python tests/bench/bench_rotation.py [--sizes 0 1000000 2000000] [--rows 20000] [--folder FOLDER]``. For each size, a
ledger of 60,000 subjects is filled to that number of charges, as by earlier nights of a month. Then a nightly run
charges a table (``apply`` in a process of its own), ``budget --subject`` asks about one subject, and a full ``budget``
check runs. At the end the largest ledger is rotated, and the question is asked again. Times are of whole commands, wall
clock and processor seconds, beside the load average: best of three, except for full checks and the rotation.

45 million entries a year are 3.75 million a month: with a rotation each month, no open period is longer.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from bench_city import PRIVOPT, processor_seconds

from privopt.interfaces.cost import Cost
from privopt.ledger.ledger import Ledger

SUBJECTS = 60_000
AT_ONCE = 100_000
UNIT = "per km as the crow flies"
COST = Cost(epsilon="2", unit=UNIT, notion="metric-dp", mechanism="ab" * 32, purpose="apply earlier.csv")
PROBLEM = """
[records]
grid = { rows = 10, cols = 10, cell_km = 0.5 }
[distance]
kind = "euclidean"
[privacy]
epsilon = 2.0
[utility]
kind = "distance"
"""


def run(arguments: Sequence[object]) -> tuple[float, float]:
    """Run a command, and return its wall clock and processor seconds."""
    begun, cpu_begun = time.perf_counter(), processor_seconds()
    subprocess.run([*PRIVOPT, *map(str, arguments)], check=True, capture_output=True)
    return time.perf_counter() - begun, processor_seconds() - cpu_begun


def print_row(size: int, what: str, seconds: tuple[float, float]) -> None:
    """Print a row of the table."""
    wall, cpu = seconds
    print(f"| {size:,} | {what} | {wall:.2f} | {cpu:.2f} | {os.getloadavg()[0]:.0f} |", flush=True)


def fill(path: Path, first: int, last: int) -> None:
    """Charge entries from number ``first`` to ``last`` to subjects in turn."""
    with Ledger(path) as ledger:
        if first == 0:
            ledger.set_limit(10**6)
        for start in range(first, last, AT_ONCE):
            numbers = range(start, min(last, start + AT_ONCE))
            ledger.charge_each([f"r{number % SUBJECTS}" for number in numbers], COST)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[0, 1_000_000, 2_000_000])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="where files are made; a temporary folder by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        (folder / "problem.toml").write_text(PROBLEM)
        run(["solve", "exponential", folder / "problem.toml", "--out", folder / "out", "--quiet"])
        rng = np.random.default_rng(1)
        riders = [f"r{number}" for number in rng.integers(0, SUBJECTS, arguments.rows).tolist()]
        cells = [f"r{row}c{column}" for row, column in rng.integers(0, 10, (arguments.rows, 2)).tolist()]
        pl.DataFrame({"rider": riders, "cell": cells}).write_csv(folder / "night.csv")
        ledger = folder / "ledger"
        night = ["apply", folder / "out", folder / "night.csv", "--out", folder / "safe.csv", "--id", "cell"]
        night += ["--ledger", ledger, "--subject", "rider", "--force", "--quiet"]
        question = ["budget", ledger, "--subject", "r7"]
        print("| entries before | what | wall, s | processor, s | load |\n| --- | --- | --- | --- | --- |")
        filled = 0
        for size in arguments.sizes:
            fill(ledger, filled, size)
            filled = size
            if size:
                print_row(size, "full check (budget)", run(["budget", ledger, "--json"]))
            nights = [run(night) for _ in range(4)]
            # The first run of all compiles, and the first after the filling checks what was filled.
            print_row(size, f"nightly run of {arguments.rows:,} reports", min(nights[1:]))
            print_row(size, "question about one subject", min(run(question) for _ in range(3)))
        print_row(size, "rotation", run(["budget", ledger, "--rotate"]))
        print_row(0, "question after the rotation", min(run(question) for _ in range(3)))


if __name__ == "__main__":
    main()
