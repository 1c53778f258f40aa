"""Thirty nights of trips in one run: ``apply`` with both ends, days of a zone and a batch, and a sum of its own.

Run as ``python tests/bench/bench_nights.py [--nights 30] [--trips 6700]``: wall clock and peak memory of the whole
command. Then every row is held to the budget of its driver and day, in rationals and without privopt: none may be
refused that the budget covers, none reported that it does not. The nights hold the 29th of March, of 23 hours in Rome.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import tempfile
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
from bench_city import PRIVOPT, processor_seconds, run_command

ZONE = ZoneInfo("Europe/Rome")
EPSILON, LIMIT = Fraction("2.77"), Fraction("16.62")
PROBLEM = f"""
[records]
grid = {{ rows = 20, cols = 20, cell_km = 0.5 }}
[distance]
kind = "euclidean"
[privacy]
epsilon = {float(EPSILON)}
[utility]
kind = "distance"
"""


def trips(nights: int, trip_count: int) -> pl.DataFrame:
    """Random trips of 2,500 drivers; a hundredth of the ends is missing."""
    rng = np.random.default_rng(27)
    count = nights * trip_count
    start = datetime(2026, 3, 15, tzinfo=UTC)
    minutes = np.repeat(np.arange(nights), trip_count) * 1440 + rng.integers(0, 1440, count)
    positions = rng.uniform(0.0, 9.5, (count, 4)).round(4)
    positions[rng.random(count) < 0.01, 2] = np.nan
    at = [(start + timedelta(minutes=minute)).isoformat() for minute in minutes.tolist()]
    table = {"driver": [f"d{n}" for n in rng.integers(0, 2_500, count).tolist()], "at": at}
    for column, name in enumerate(("start_x", "start_y", "end_x", "end_y")):
        table[name] = positions[:, column]
    return pl.DataFrame(table).with_columns(pl.col("end_x").fill_nan(None))


def wrong_rows(trips_file: Path, safe_file: Path) -> int:
    """Count rows that are reported though nothing covers them, or refused though something does."""
    spent: dict[tuple[str, object], Fraction] = defaultdict(Fraction)
    wrong = 0
    with trips_file.open() as rows, safe_file.open() as reports:
        for row, report in zip(csv.DictReader(rows), csv.DictReader(reports), strict=True):
            account = row["driver"], datetime.fromisoformat(row["at"]).astimezone(ZONE).date()
            covered = spent[account] + 2 * EPSILON <= LIMIT
            spent[account] += 2 * EPSILON * covered
            usable = all(row[name] for name in ("start_x", "start_y", "end_x", "end_y"))
            wrong += bool(report["start_report"]) != bool(report["end_report"])
            wrong += bool(report["start_report"]) != (covered and usable)
    return wrong


def main() -> None:
    """Write the trips, run the job, and check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--trips", type=int, default=6_700)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        (folder / "problem.toml").write_text(PROBLEM)
        trips(arguments.nights, arguments.trips).write_csv(folder / "trips.csv")
        book, safe = folder / "book", folder / "safe.csv"
        solve = [*PRIVOPT, "solve", "exponential", folder / "problem.toml", "--out", folder / "out", "--quiet"]
        limit = [*PRIVOPT, "budget", book, "--set", str(float(LIMIT)), "--per", "day", "--zone", str(ZONE)]
        for command in (solve, limit):
            subprocess.run([str(part) for part in command], check=True, capture_output=True)
        job = [*PRIVOPT, "apply", folder / "out", folder / "trips.csv", "--out", safe, "--json", "--quiet"]
        job += ["--position", "start=start_x,start_y", "--position", "end=end_x,end_y", "--time", "at"]
        job += ["--ledger", book, "--subject", "driver", "--batch", "nights"]
        start_cpu_seconds = processor_seconds()
        code, seconds, peak, stdout = run_command(job)
        used = (
            f"{processor_seconds() - start_cpu_seconds:.1f} processor s, {peak:.2f} GB, load {os.getloadavg()[0]:.0f}"
        )
        print(f"apply: exit {code}, {seconds:.1f} s, {used}, {json.loads(stdout)}", flush=True)
        print(f"{wrong_rows(folder / 'trips.csv', safe)} wrong rows of {arguments.nights * arguments.trips:,}")


if __name__ == "__main__":
    main()
