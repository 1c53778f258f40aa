"""What a ledger costs: 10^6 charges of 10^4 subjects, questions about one, a check of all, kills, whole tables.

Run as ``python tests/bench/bench_ledger.py [--charges 1000000] [--subjects 10000] [--kills 200] [--rows N]``. Each
figure is of one run, wall clock and processor seconds of this process, beside the load average. What is killed has
processes of its own, whose processor seconds are not counted.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from privopt.interfaces.cost import Cost
from privopt.ledger.ledger import Ledger

KILLING = Path(__file__).parent.parent / "ledger" / "killing.py"
COST = Cost(epsilon="0.1", unit="per km", notion="metric-dp", mechanism="ab" * 32, purpose="apply trips.csv")
AT_ONCE = 100_000


def print_row(what: str, wall: float, cpu: float, remark: str = "") -> None:
    print(f"| {what} | {wall:.2f} s | {cpu:.2f} s | {remark} |", flush=True)


def charges(folder: Path, count: int, subjects: int) -> None:
    """Charge at once and one by one, ask, check."""
    with Ledger(folder / "l") as ledger:
        ledger.set_limit(2 * count)
        clock, cpu = time.perf_counter(), time.process_time()
        max_bytes = 0
        for start in range(0, count, AT_ONCE):
            ledger.charge_each([f"subject-{n % subjects}" for n in range(start, min(count, start + AT_ONCE))], COST)
            max_bytes = max(max_bytes, sum(path.stat().st_size for path in folder.iterdir()))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        size = f"{max_bytes / 1e6:.0f} MB on disk at most, {peak:.0f} MB in memory"
        print_row(
            f"{count:,} charges of {subjects:,} subjects", time.perf_counter() - clock, time.process_time() - cpu, size
        )
        clock, cpu = time.perf_counter(), time.process_time()
        for number in range(1000):
            ledger.account(f"subject-{number * 7 % subjects}")
        print_row("1,000 questions about one subject", time.perf_counter() - clock, time.process_time() - cpu)
        clock, cpu = time.perf_counter(), time.process_time()
        for number in range(200):
            ledger.charge(f"subject-{number}", COST)
        print_row("200 charges, each durable", time.perf_counter() - clock, time.process_time() - cpu)
        clock, cpu = time.perf_counter(), time.process_time()
        ledger.check()
        print_row(
            "every hash and total, and the database's check", time.perf_counter() - clock, time.process_time() - cpu
        )


def kills(folder: Path, times: int) -> None:
    clock = time.perf_counter()
    command = [sys.executable, KILLING, "kill", folder / "k", folder / "reports", str(times)]
    completed = subprocess.run(command, capture_output=True, text=True, check=True)
    reports, charged = completed.stdout.split()
    remark = f"{reports} transactions reported, {charged} charges, each report charged, every chain whole"
    print_row(f"{times} kills at random moments", time.perf_counter() - clock, 0.0, remark)


def tables(folder: Path, rows: int, subjects: int) -> None:
    """``apply`` without a ledger, with one, and with reports that are kept."""
    from privopt.ledger.charge import Charge
    from privopt.run.solve import solve
    from privopt_tables.apply import apply
    from privopt_tables.options import ApplyOptions
    from privopt_tables.secret_columns import Secret

    (folder / "p.toml").write_text(
        "[records]\ngrid = { rows = 20, cols = 25, cell_km = 0.5 }\n[distance]\nkind = 'euclidean'\n"
        "[privacy]\nepsilon = 2.0\nneighbours_within = 1.0\n[utility]\nkind = 'distance'\n"
    )
    release_folder = solve("exponential", folder / "p.toml", folder / "out").folder
    rng = np.random.default_rng(1)
    whose, at = rng.integers(0, subjects, rows), rng.integers(0, 4, rows)
    place_numbers = (whose * 7 + at * 131) % 500
    ids = np.array([f"r{n // 25}c{n % 25}" for n in range(500)])
    pl.DataFrame({"who": whose, "place": ids[place_numbers]}).write_csv(folder / "t.csv")
    for name, charge in (
        ("no ledger", None),
        ("a ledger", Charge(ledger=folder / "a", subject="who")),
        ("kept reports", Charge(ledger=folder / "b", subject="who", sticky=True)),
        ("kept reports, again", Charge(ledger=folder / "b", subject="who", sticky=True)),
    ):
        clock, cpu = time.perf_counter(), time.process_time()
        apply(
            release_folder,
            folder / "t.csv",
            folder / "o.csv",
            Secret.of(id="place"),
            ApplyOptions(charge=charge),
            force=True,
        )
        print_row(f"apply, {rows:,} rows, {name}", time.perf_counter() - clock, time.process_time() - cpu)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default_count in (("charges", 1_000_000), ("subjects", 10_000), ("kills", 200), ("rows", 1_000_000)):
        parser.add_argument(f"--{name}", type=int, default=default_count)
    arguments = parser.parse_args()
    print(f"load average at the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    print("| what | wall clock | processor | |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        for part in ("charges", "kills", "tables"):
            (Path(name) / part).mkdir()
        charges(Path(name) / "charges", arguments.charges, arguments.subjects)
        kills(Path(name) / "kills", arguments.kills)
        tables(Path(name) / "tables", arguments.rows, arguments.subjects)
    print(f"load average at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
