"""Whole commands of this checkout beside those of another one, in turns: processor seconds, memory, loss and gap.

Run as ``python tests/bench/bench_commands.py PYTHON [--only TEXT] [--times N] [--write FILE]`` with the interpreter of
the other checkout's environment. Every command is a process of its own. The kernel counts its processor seconds, those
of its children included, and the peak memory of the largest process. The median of N runs is shown with its range, and
the load of the machine beside it. Each checkout first runs one small problem, not shown, to compile what it has not
compiled yet.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import bench_leaves
import bench_places
import bench_report
import numpy as np
import polars as pl
from attrs import field, frozen
from bench_city import _problem, rome_cells, rome_streets, write_random

MEASURED: Final = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stderr=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, file=sys.stderr)
sys.exit(code)
"""
"""A small process that runs each command: the peak memory of a process is at least that of the one that starts it."""
LOCATIONS: Final = 512
"""Locations of the albums' scores."""


@frozen
class Run:
    """The resources and result of one command."""

    seconds: float
    megabytes: float
    result: str


@frozen
class Case:
    """A group of commands that are measured one after another.

    Attributes:
        name: Problem, as the table shows it.
        make: Function that writes the problem into a folder.
        mechanism: Mechanism that solves ``problem.toml``, or None for commands without a problem.
        options: Options of the solve.
        others: Commands after the solve; ``{out}`` stands for the release folder, ``{in}`` for the problem's folder.
    """

    name: str
    make: Callable[[Path], object] | None = None
    mechanism: str | None = None
    options: Sequence[str] = ()
    others: Sequence[Sequence[str]] = field(default=())


def run_command(command: Sequence[str]) -> Run:
    """Run a command and return its resources, and the loss and gap if it prints a result as JSON."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile("w+") as stdout:
        measured = [sys.executable, "-S", "-c", MEASURED, *command]
        completed = subprocess.run(measured, stdout=stdout, stderr=subprocess.PIPE, text=True, env=variables)
        stdout.seek(0)
        text = stdout.read()
    seconds, megabytes = map(float, completed.stderr.split()[-2:])
    result = f"exit {completed.returncode} " if completed.returncode else ""
    if '"objective"' in text:
        objective = json.loads(text)["objective"]
        gap = objective.get("gap")
        result += f"{objective['value']:.7g}" + ("" if gap is None else f", gap {gap:.1e}")
    return Run(seconds, megabytes, result.strip())


def _grid(side: int, reach: float | None, epsilon: float = 1.0) -> Callable[[Path], None]:
    """Return a writer of a square grid of cells of 1 km; pairs are those within ``reach`` km, or all."""
    pairs = "" if reach is None else f"neighbours_within = {reach}\n"

    def write(folder: Path) -> None:
        (folder / "problem.toml").write_text(
            f"[records]\ngrid = {{ rows = {side}, cols = {side}, cell_km = 1.0 }}\n[distance]\nkind = 'euclidean'\n"
            f"[privacy]\nepsilon = {epsilon}\n{pairs}[utility]\nkind = 'distance'\n"
        )

    return write


def _streets(places: int, epsilon: float, choose: int) -> Callable[[Path], None]:
    """Return a writer of Rome's streets, cut into so many places, with chosen outputs."""

    def write(folder: Path) -> None:
        network = bench_places.rome_positions(), bench_places.rome_roads()
        bench_places.write(folder, bench_places.cut(*network, places), epsilon, choose)

    return write


def _regions(regions: int) -> Callable[[Path], None]:
    """Return a writer of counts by 10 household sizes, with ten regions a county."""

    def write(folder: Path) -> None:
        row = np.arange(regions * 10)
        table = pl.DataFrame({"region": row // 10, "size": row % 10 + 1}).select(
            level_1=pl.lit("nation"),
            level_2=pl.format("county {}", pl.col("region") // 10),
            level_3=pl.format("block {}", pl.col("region")),
            size="size",
            groups=pl.Series(np.random.default_rng(1).poisson(20, len(row))),
        )
        table.write_csv(folder / "counts.csv")
        (folder / "problem.toml").write_text(
            '[hierarchy]\ncounts = "counts.csv"\nsizes = 10\n[privacy]\nepsilon = 1\nrelation = "groups"\n'
        )

    return write


def _facilities(locations: int, clients: int) -> Callable[[Path], None]:
    """Return a writer of facility locations in a square of 100 km, with so many clients in all."""

    def write(folder: Path) -> None:
        rng = np.random.default_rng(locations)
        counts = rng.multinomial(clients, np.full(locations, 1 / locations))
        columns = {
            "id": [f"p{row}" for row in range(locations)],
            "x": rng.uniform(0, 100, locations),
            "y": rng.uniform(0, 100, locations),
            "facility_cost": rng.uniform(100, 1000, locations),
            "clients": counts,
        }
        pl.DataFrame(columns).write_csv(folder / "locations.csv")
        (folder / "problem.toml").write_text(
            '[locations]\npoints = "locations.csv"\n[privacy]\nepsilon = 0.1\nfailure_probability = 0.1\n'
            '[fl-linear]\ndelta = "auto"\n'
        )

    return write


def _album(photos: int, top_k: int) -> Callable[[Path], None]:
    """Return a writer of an album: log-probabilities of photos that often show their location."""

    def write(folder: Path) -> None:
        rng = np.random.default_rng(photos)
        places = rng.normal(size=(LOCATIONS, 32))
        shown = places[17] + 1.6 * rng.normal(size=(photos, 32))
        logits = shown @ places.T / 2.0
        logits -= logits.max(axis=1, keepdims=True)
        np.save(folder / "scores.npy", logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
        (folder / "problem.toml").write_text(
            f'[photos]\nscores = "scores.npy"\ntrue_location = 17\n[privacy]\ntop_k = {top_k}\n'
        )

    return write


def _trips(folder: Path) -> None:
    """Write 2,032 scattered places, 120 outputs and a million trips that start near the places."""
    rng = np.random.default_rng(0)
    at = np.array([41.9, 12.5]) + rng.normal(0.0, [0.03, 0.04], (2_032, 2))
    points = pl.DataFrame({"id": [f"p{row}" for row in range(2_032)], "lat": at[:, 0], "lon": at[:, 1]})
    points.write_csv(folder / "points.csv")
    points.gather_every(16).head(120).write_csv(folder / "outputs.csv")
    (folder / "problem.toml").write_text(
        '[records]\npoints = "points.csv"\n[outputs]\npoints = "outputs.csv"\n[distance]\nkind = "haversine"\n'
        '[privacy]\nepsilon = 3.0\nneighbours_within = 1.0\n[utility]\nkind = "distance"\n'
    )
    rows = rng.integers(2_032, size=1_000_000)
    trips = {
        "trip": np.arange(len(rows)),
        "place": points["id"].gather(rows),
        "lat": at[rows, 0] + rng.normal(0.0, 0.001, len(rows)),
        "lon": at[rows, 1] + rng.normal(0.0, 0.001, len(rows)),
    }
    table = pl.DataFrame(trips)
    table.drop("lat", "lon").write_csv(folder / "by_id.csv")
    table.drop("place").write_csv(folder / "by_position.csv")


VERIFY = ("verify", "{out}")
REPORT = ("report", "{out}")
APPLY = ("apply", "{out}")
TO = ("--out", "{in}/safe.csv", "--force")
EXACT = ("--gap", "1e-6")
ONE_PERCENT = ("--gap", "1e-2")
FIVE_PERCENT = ("--gap", "5e-2")
CASES: Final = (
    Case("start", others=(("--version",), ("list",), ("describe", "optimal-lp"))),
    Case("9 cells, pairs within 1.5 km", _grid(3, 1.5), "optimal-lp"),
    Case("25 cells, pairs within 1.5 km", _grid(5, 1.5), "optimal-lp"),
    Case("25 cells, all pairs", _grid(5, None), "optimal-lp"),
    Case("100 cells, pairs within 1.5 km, .7 per km", _grid(10, 1.5, 0.7), "optimal-lp", EXACT),
    Case("400 cells, pairs within 1.5 km, .7 per km", _grid(20, 1.5, 0.7), "optimal-lp", EXACT, (VERIFY, REPORT)),
    Case("1,024 cells, pairs within 1.5 km, .7 per km", _grid(32, 1.5, 0.7), "optimal-lp", EXACT),
    Case("400 Rome cells, 2 per km", lambda to: rome_cells(to, 400, 2.0), "optimal-lp", EXACT),
    Case("400 Rome cells, 1 per km", lambda to: rome_cells(to, 400, 1.0), "optimal-lp", EXACT),
    Case("900 Rome cells, 1 per km", lambda to: rome_cells(to, 900, 1.0), "optimal-lp", ONE_PERCENT),
    Case("200 scattered points, all pairs", lambda to: write_random(to, 200), "optimal-lp", ("--gap", "1e-4")),
    Case("500 scattered points, all pairs", lambda to: write_random(to, 500), "optimal-lp", ("--gap", "1e-3")),
    Case("2,032 streets, 120 chosen, 3 per km", _streets(2_032, 3, 120), "optimal-lp", ONE_PERCENT, (VERIFY, REPORT)),
    Case("5,000 streets, 120 chosen, 4 per km", _streets(5_000, 4, 120), "optimal-lp", FIVE_PERCENT),
    Case("20,000 streets, 120 chosen, 4 per km", _streets(20_000, 4, 120), "optimal-lp", FIVE_PERCENT, (VERIFY,)),
    Case("100 cells, bd-mdp, .7 per km", _grid(10, 1.5, 0.7), "bd-mdp", ONE_PERCENT),
    Case("400 cells, bd-mdp, .7 per km", _grid(20, 1.5, 0.7), "bd-mdp", ONE_PERCENT),
    Case("report of 2,000 places", lambda to: bench_report.write_problem(to, 2_000), "exponential", (), (REPORT,)),
    Case("report of 20,000 places", lambda to: bench_report.write_problem(to, 20_000), "exponential", (), (REPORT,)),
    Case(
        "a million trips, 2,032 places",
        _trips,
        "exponential",
        (),
        (
            (*APPLY, "{in}/by_id.csv", "--id", "place", *TO),
            (*APPLY, "{in}/by_position.csv", "--lat", "lat", "--lon", "lon", *TO),
        ),
    ),
    Case("10,000 regions of 10 sizes", _regions(10_000), "hierarchical-dp"),
    Case("100,000 regions of 10 sizes", _regions(100_000), "hierarchical-dp"),
    Case("100,000 leaves", lambda to: bench_leaves.write_problem(to, 100_000), "hierarchical-dp"),
    Case("1,000,000 leaves", lambda to: bench_leaves.write_problem(to, 1_000_000), "hierarchical-dp"),
    Case("1,000 facilities, 100,000 clients", _facilities(1_000, 100_000), "fl-linear"),
    Case("10,000 facilities, 1,000,000 clients", _facilities(10_000, 1_000_000), "fl-linear"),
    Case("album of 128 photos, top-10", _album(128, 10), "photo-censor", ("--time-limit", "60")),
    Case("album of 1,000 photos, top-5", _album(1_000, 5), "photo-censor", ("--time-limit", "60")),
    Case("kit of optimal-lp", others=(("check", "optimal-lp", "--json"),)),
    Case("2,032 Rome street nodes, all outputs, 3 per km", lambda to: rome_streets(to, 3.0), "optimal-lp", ONE_PERCENT),
)


def commands(case: Case, folder: Path, out: Path) -> list[tuple[str, list[str]]]:
    """Return the arguments of a case's commands with the names under which the table shows them."""
    arguments = []
    if case.mechanism is not None:
        solve = ["solve", case.mechanism, str(folder / "problem.toml"), "--out", str(out), "--force", "--json"]
        arguments.append(("solve", [*solve, "--quiet", *case.options]))
    for other in case.others:
        filled = [part.replace("{out}", str(out)).replace("{in}", str(folder)) for part in other]
        arguments.append((" ".join(part for part in other if "{" not in part), filled))
    return arguments


def measure(case: Case, sides: Sequence[str], times: int) -> list[str]:
    """Run a case's commands on both sides in turns, and return the rows of the table."""
    rows = []
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        if case.make is not None:
            case.make(folder)
        per_side = [commands(case, folder, folder / f"out-{number}") for number in range(len(sides))]
        for step, (name, _) in enumerate(per_side[0]):
            runs: list[list[Run]] = [[] for _ in sides]
            for _ in range(times):
                for number, python in enumerate(sides):
                    runs[number].append(run_command([python, "-P", "-m", "privopt", *per_side[number][step][1]]))
            rows.append(f"| {case.name} | {name} | {' | '.join(map(cells, runs))} | {os.getloadavg()[0]:.1f} |")
            print(rows[-1], flush=True)
    return rows


def cells(runs: Sequence[Run]) -> str:
    """Return the table's cells for the runs of one command: seconds, their range, memory and result."""
    seconds = [run.seconds for run in runs]
    middle = sorted(runs, key=lambda run: run.seconds)[len(runs) // 2]
    memory = statistics.median(run.megabytes for run in runs)
    return f"{middle.seconds:.2f} ({min(seconds):.2f} to {max(seconds):.2f}) | {memory:.0f} | {middle.result}"


def main() -> None:
    """Measure the chosen cases, print the table and, if asked to, write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", help="interpreter of the other checkout's environment")
    parser.add_argument("--only", default="", help="only problems whose name contains this")
    parser.add_argument("--times", type=int, default=3, help="runs of each command; the median is shown")
    parser.add_argument("--write", type=Path, help="file for the table")
    options = parser.parse_args()
    columns = ["seconds (range)", "MiB", "loss, gap"]
    head = ["problem", "command", *(f"{side}: {column}" for side in ("before", "now") for column in columns), "load"]
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    print("\n".join(lines), flush=True)
    sides = (options.before, sys.executable)
    with tempfile.TemporaryDirectory() as folder_name:
        warm_up = Path(folder_name)
        _problem(warm_up, "grid = { rows = 6, cols = 6, cell_km = 1.0 }", 'kind = "euclidean"', 0.7)
        for python in sides:
            arguments = ["solve", "optimal-lp", str(warm_up / "problem.toml"), "--out", str(warm_up / "out"), "--force"]
            run_command([python, "-P", "-m", "privopt", *arguments])
    for case in CASES:
        if options.only in case.name:
            lines += measure(case, sides, options.times)
    if options.write is not None:
        options.write.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
