"""Nights of trips, killed and run again, and a map of districts: docs/tutorials/every-night.md as one script.

``python docs/used-for/trips.py [--small] [--out FOLDER]``. Riders have a budget of 24 per km a month, of which a trip
takes 4. Ledger and tables name riders by keyed hashes. The first night is killed after some seconds, if it still runs,
and run again. Every row is then held to the budget of its rider and month, in rationals and without privopt. At the end
the office estimates where trips end, with intervals for smooth shares: of those trips that have a report, not of all.

The full size has the 2,024 largest connected street nodes of Rome (PRIVOPT_DATA) and 3 nights of 200,000 trips of
60,000 riders; the small one 64 cells and 2 nights of 300 trips of 60 riders.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
from job import data_path, main, privopt
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

Floats = NDArray[np.float64]

ZONE = ZoneInfo("Europe/Rome")
LIMIT, TRIP_COST = Fraction(24), Fraction(4)
HEADING = 'title = "Where trips begin and end"\npurpose = "A map of trips for the city\'s office of transport."\n'
SETTINGS = '[utility]\nkind = "distance"\n[privacy]\nepsilon = 2  # per km\n'


def write_grid(folder: Path) -> tuple[list[str], Floats]:
    """Write a problem of 8 x 8 cells of .5 km, and return the cells' ids and positions (N, 2) in km."""
    (folder / "city.toml").write_text(
        f"{HEADING}[records]\ngrid = {{ rows = 8, cols = 8, cell_km = 0.5 }}\n"
        f'[distance]\nkind = "euclidean"\n{SETTINGS}'
    )
    ids = [f"r{row}c{column}" for row in range(8) for column in range(8)]
    # Centres of cells: x by columns, y by rows.
    return ids, np.array([[0.5 * column, 0.5 * row] for row in range(8) for column in range(8)])


def write_streets(folder: Path) -> tuple[list[str], Floats]:
    """Write a problem of Rome's connected street nodes, and return their ids and positions (N, 2) in degrees."""
    lengths: dict[tuple[str, str], float] = {}
    positions: dict[str, tuple[float, float]] = {}
    with data_path("lrgeo_rome", "roma_edges.csv").open() as stream:
        for row in csv.DictReader(stream):
            points = row["geometry"].split("(")[1].rstrip(")").split(", ")
            for node, point in ((row["u"], points[0]), (row["v"], points[-1])):
                longitude, latitude = map(float, point.split())
                positions[node] = (latitude, longitude)
            lengths[row["u"], row["v"]] = float(row["length"]) / 1000
    nodes = sorted(positions)
    number_by_node = {node: number for number, node in enumerate(nodes)}
    starts, ends = (np.array([number_by_node[pair[end]] for pair in lengths]) for end in (0, 1))
    graph = csr_array((np.ones(len(starts)), (starts, ends)), shape=(len(nodes),) * 2)
    _, parts = connected_components(graph, directed=False)
    is_kept = parts == np.bincount(parts).argmax()
    kept = {node for node, in_largest in zip(nodes, is_kept, strict=True) if in_largest}
    ids = [node for node in nodes if node in kept]
    lines = [f"{node},{positions[node][0]},{positions[node][1]}" for node in ids]
    (folder / "nodes.csv").write_text("\n".join(["id,lat,lon", *lines]) + "\n")
    edges = [f"{start},{end},{km}" for (start, end), km in lengths.items() if start in kept and end in kept and km > 0]
    (folder / "streets.csv").write_text("\n".join(["from,to,km", *edges]) + "\n")
    (folder / "city.toml").write_text(
        f'{HEADING}[records]\npoints = "nodes.csv"\n[distance]\nkind = "graph"\nedges = "streets.csv"\n{SETTINGS}'
    )
    return ids, np.array([positions[node] for node in ids])


def write_night(path: Path, night: int, positions: Floats, trips: int, riders: int, names: tuple[str, str]) -> None:
    """Write a night of trips, most of which end near one of two places.

    Args:
        path: The file.
        night: Number of the night, from 29 October 2026 on. Night 2 extends into the next month.
        positions: (N, 2) positions where trips begin and end.
        trips: Number of trips.
        riders: Number of riders.
        names: Names of the two coordinates.
    """
    rng = np.random.default_rng(night)
    spread = np.abs(positions - positions.mean(axis=0)).max(axis=0)
    nearness = [
        np.exp(-0.5 * (((positions - positions[centre]) / spread / 0.3) ** 2).sum(axis=1)) for centre in (5, 40)
    ]
    weights = 0.3 / len(positions) + 0.35 * sum(part / part.sum() for part in nearness)
    starts, ends = rng.choice(len(positions), trips), rng.choice(len(positions), trips, p=weights / weights.sum())
    begun = datetime(2026, 10, 29, 18, tzinfo=UTC) + timedelta(days=night)
    header = ["rider", "at", *(f"{end}_{name}" for end in ("start", "end") for name in names)]
    with path.open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(header)
        for rider, minute, start, end in zip(
            rng.integers(0, riders, trips).tolist(), rng.integers(0, 600, trips).tolist(), starts, ends, strict=True
        ):
            at = (begun + timedelta(minutes=minute)).isoformat()
            table.writerow([f"r{rider}", at, *positions[start].tolist(), *positions[end].tolist()])


def kill_once(folder: Path, job: list[str], seconds: float) -> bool:
    """Start a command, kill it after some seconds if it still runs, and return whether it was killed."""
    command = [sys.executable, "-m", "privopt", *job]
    started = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        started.wait(seconds)
    except subprocess.TimeoutExpired:
        started.kill()
        started.wait()
        return True
    return False


def count_wrong_rows(folder: Path, nights: int) -> tuple[int, int]:
    """Return the number of rows that are reported beyond the budget or not reported within it, and of reported rows."""
    spent: dict[tuple[str, int], Fraction] = defaultdict(Fraction)
    wrong_rows = reported_rows = 0
    for night in range(nights):
        # The safe table has hashes of riders, so their ids are those of the table of trips, in the same order.
        with (folder / f"safe-{night}.csv").open() as safe, (folder / f"trips-{night}.csv").open() as true:
            for report, trip in zip(csv.DictReader(safe), csv.DictReader(true), strict=True):
                assert report["at"] == trip["at"]
                assert report["rider"] != trip["rider"]
                account = trip["rider"], datetime.fromisoformat(trip["at"]).astimezone(ZONE).month
                is_covered = spent[account] + TRIP_COST <= LIMIT
                spent[account] += TRIP_COST * is_covered
                is_reported = bool(report["start_report"] and report["end_report"])
                wrong_rows += is_reported != is_covered
                reported_rows += is_reported
    return wrong_rows, reported_rows


def run_job(folder: Path, *, small: bool) -> dict[str, float]:
    """Do the job, and return its figures: wrong rows, reports, and errors and intervals of districts."""
    nights, trips, riders = (2, 300, 60) if small else (3, 200_000, 60_000)
    ids, positions = write_grid(folder) if small else write_streets(folder)
    names = ("x", "y") if small else ("lat", "lon")
    privopt(folder, "solve", "exponential", "city.toml", "--out", "city", "--quiet")
    privopt(folder, "verify", "city", "--quiet")
    privopt(folder, "budget", "riders.ledger", "--set", LIMIT, "--per", "month", "--zone", ZONE)
    ends = [f"{end}={end}_{names[0]},{end}_{names[1]}" for end in ("start", "end")]
    seconds = []
    for night in range(nights):
        write_night(folder / f"trips-{night}.csv", night, positions, trips, riders, names)
        job = ["apply", "city", f"trips-{night}.csv", "--position", ends[0], "--position", ends[1]]
        job += ["--ledger", "riders.ledger", "--subject", "rider", "--time", "at"]
        job += ["--hash-subjects", "riders.key", "--hash", "rider"]
        job += ["--batch", f"night-{night}", "--out", f"safe-{night}.csv", "--quiet"]
        if night == 0 and not kill_once(folder, job, 1.5 if small else 15.0):
            continue  # it had ended before, and a finished batch is not run again
        begun = time.perf_counter()
        privopt(folder, *job)
        seconds.append(time.perf_counter() - begun)
    wrong_rows, reported_rows = count_wrong_rows(folder, nights)
    held, width, error = estimate_ends(folder, nights, ids, positions, names)
    return {
        "wrong_rows": wrong_rows,
        "reported_rows": reported_rows,
        "slowest_night_s": max(seconds),
        "districts_held": held,
        "width": width,
        "error": error,
    }


def estimate_ends(
    folder: Path, nights: int, ids: list[str], positions: Floats, names: tuple[str, str]
) -> tuple[float, float, float]:
    """Estimate the shares of trips that end in each of 2 x 2 or 4 x 4 districts.

    Returns:
        The share of intervals that hold, their mean width, and the mean error.
    """
    side = 2 if len(ids) < 100 else 4
    columns = [np.searchsorted(np.quantile(values, np.arange(1, side) / side), values) for values in positions.T]
    districts = [f"d{first}{second}" for first, second in zip(*columns, strict=True)]
    lines = [f"{record},{district}" for record, district in zip(ids, districts, strict=True)]
    (folder / "districts.csv").write_text("\n".join(["id,group", *lines]) + "\n")
    district_by_position = dict(zip(map(tuple, positions.tolist()), districts, strict=True))
    # The truth is that of the trips with a report. Which trips have one is decided by the budget alone, so riders with
    # many trips are under-represented in it. Rows without a report stay in the table, so that the page counts them.
    counts: dict[str, int] = defaultdict(int)
    rows = []
    for night in range(nights):
        with (folder / f"safe-{night}.csv").open() as safe, (folder / f"trips-{night}.csv").open() as true:
            for report, trip in zip(csv.DictReader(safe), csv.DictReader(true), strict=True):
                rows.append(report["end_report"])
                if report["end_report"]:
                    counts[district_by_position[float(trip[f"end_{names[0]}"]), float(trip[f"end_{names[1]}"])]] += 1
    # A second column, because a line that is empty would be no row.
    lines = [f"{number},{report}" for number, report in enumerate(rows)]
    (folder / "ends.csv").write_text("\n".join(["trip,end_report", *lines]) + "\n")
    arguments = ["estimate", "city", "ends.csv", "--column", "end_report", "--by", "districts.csv"]
    privopt(folder, *arguments, "--intervals", "smooth", "--out", "shares.csv", "--report", "ends.html", "--quiet")
    with (folder / "shares.csv").open() as stream:
        estimated = {
            row["id"]: [float(row[name]) for name in ("share", "low", "high")] for row in csv.DictReader(stream)
        }
    truth = {district: counts[district] / sum(counts.values()) for district in estimated}
    figures = [
        (low <= truth[name] <= high, high - low, abs(share - truth[name]))
        for name, (share, low, high) in estimated.items()
    ]
    held, width, error = np.mean(figures, axis=0).tolist()
    return held, width, error


if __name__ == "__main__":
    main(__doc__, run_job)
