"""Processor seconds and memory of ``privopt report`` for more and more places.

Run as ``python tests/bench/bench_report.py [--places 2000,5000,20000,50000]``: whole commands, one after the other. The
releases are exponential over scattered places, 24 to a square kilometre, and 120 outputs. Time should grow as the
places do.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

OUTPUTS = 120
MEASURED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
sys.exit(code)
"""
"""A process of its own for each command, because resources are counted for all ended children together."""


def write_problem(folder: Path, places: int) -> Path:
    """Write a problem of scattered places in a square around 41.9 degrees north."""
    rng = np.random.default_rng(places)
    half_side = 0.0013 * math.sqrt(places / 2)  # degrees of latitude
    columns = {
        "id": [f"p{row}" for row in range(places)],
        "lat": 41.9 + rng.uniform(-half_side, half_side, places),
        "lon": 12.5 + 1.35 * rng.uniform(-half_side, half_side, places),
    }
    points = pl.DataFrame(columns)
    points.write_csv(folder / "points.csv")
    points.gather_every(places // OUTPUTS).head(OUTPUTS).write_csv(folder / "outputs.csv")
    (folder / "problem.toml").write_text(
        '[records]\npoints = "points.csv"\n[outputs]\npoints = "outputs.csv"\n[distance]\nkind = "haversine"\n'
        '[privacy]\nepsilon = 4.0\nneighbours_within = 0.4\n[utility]\nkind = "distance"\n'
    )
    return folder / "problem.toml"


def run(*command: object) -> tuple[float, float]:
    """Run a command of privopt, and return its processor seconds and its peak memory in MiB."""
    full_command = [sys.executable, "-c", MEASURED, sys.executable, "-m", "privopt", *map(str, command), "--quiet"]
    seconds, memory = subprocess.run(full_command, capture_output=True, text=True, check=True).stdout.split()[-2:]
    return float(seconds), float(memory)


def main() -> None:
    """Measure the report of each size, and the exponent of its growth since the size before."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--places", default="2000,5000,20000,50000")
    previous = None
    for places in map(int, parser.parse_args().places.split(",")):
        with tempfile.TemporaryDirectory() as folder_name:
            folder = Path(folder_name)
            run("solve", "exponential", write_problem(folder, places), "--out", folder / "out")
            seconds, memory = run("report", folder / "out")
        growth = (
            "" if previous is None else f", N^{math.log(seconds / previous[1]) / math.log(places / previous[0]):.2f}"
        )
        load = os.getloadavg()[0]
        print(f"{places:,} places: {seconds:.1f} s, {memory:.0f} MiB{growth} (load {load:.1f})", flush=True)
        previous = places, seconds


if __name__ == "__main__":
    main()
