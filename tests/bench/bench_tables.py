"""What protecting tables costs: ``apply`` over the Rome street nodes, ``curve`` over 30 epsilons.

Run as ``python tests/bench/bench_tables.py [--rows 100000 10000000]``: whole commands, wall clock from their start, and
peak memory. The nodes are those of the public street file that has their positions (``PRIVOPT_DATA``); without it a
grid of as many cells stands in. Trips start uniformly in the box of the nodes; 3 % of a last table are bad.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
from bench_city import PRIVOPT, ROME, run_command

NODES = 2032
BATCH = 1_000_000


def release(folder: Path) -> tuple[float, float, float, float]:
    """Return an exponential release over 2,032 places of Rome, certified; the box that they lie in."""
    if ROME.exists():
        nodes = pl.read_csv(ROME / "nodes_rome.csv", columns=["osmid", "y", "x"]).head(NODES)
        points = nodes.select(id=pl.col("osmid"), lat="y", lon="x")
    else:
        at = np.arange(NODES)
        points = pl.DataFrame({"id": at, "lat": 41.8 + at // 46 * 0.004, "lon": 12.4 + at % 46 * 0.005})
    points.write_csv(folder / "points.csv")
    (folder / "problem.toml").write_text(
        '[records]\npoints = "points.csv"\n[distance]\nkind = "haversine"\n[privacy]\nepsilon = 2.0\n'
        'neighbours_within = 1.0\n[utility]\nkind = "distance"\n'
    )
    solve = [*PRIVOPT, "solve", "exponential", folder / "problem.toml", "--out", folder / "out", "--quiet"]
    code, seconds, peak, _ = run_command(solve)
    print(f"exponential over {NODES} places: exit {code}, {seconds:.1f} s, {peak:.2f} GB", flush=True)
    lat, lon = points["lat"], points["lon"]
    return float(lat.min()), float(lat.max()), float(lon.min()), float(lon.max())  # type: ignore[arg-type]


def trips(file: Path, rows: int, box: tuple[float, float, float, float], bad_share: float) -> None:
    """Write a CSV of trips; a share of them has an impossible latitude."""
    rng = np.random.default_rng(0)
    with file.open("wb") as stream:
        for start in range(0, rows, BATCH):
            count = min(BATCH, rows - start)
            lat = rng.uniform(box[0], box[1], count)
            lat[rng.random(count) < bad_share] = 91.0
            columns = {"trip": np.arange(start, start + count), "lat": lat, "lon": rng.uniform(box[2], box[3], count)}
            pl.DataFrame(columns).write_csv(stream, include_header=start == 0, float_precision=6)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[100_000, 10_000_000])
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        box = release(folder)
        for count, bad_share in [*((count, 0.0) for count in rows), (min(1_000_000, max(rows)), 0.03)]:
            trips(folder / "trips.csv", count, box, bad_share)
            arguments = [
                "apply",
                folder / "out",
                folder / "trips.csv",
                "--lat",
                "lat",
                "--lon",
                "lon",
                "--json",
                "--force",
            ]
            code, seconds, peak, stdout = run_command([*PRIVOPT, *arguments, "--out", folder / "safe.parquet"])
            print(
                f"apply, {count:,} rows: exit {code}, {seconds:.1f} s, {peak:.2f} GB, {json.loads(stdout)}", flush=True
            )
        (folder / "grid.toml").write_text(
            "[records]\ngrid = { rows = 20, cols = 20, cell_km = 1.0 }\n[distance]\nkind = 'euclidean'\n"
            "[privacy]\nepsilon = 1.0\nneighbours_within = 1.5\n[utility]\nkind = 'distance'\n"
        )
        arguments = [
            "curve",
            folder / "grid.toml",
            "--mechanisms",
            "optimal-lp",
            "--epsilon",
            "0.5:5:30",
            "--gap",
            "1e-2",
        ]
        code, seconds, peak, _ = run_command([*PRIVOPT, *arguments, "--out", folder / "curve.csv", "--quiet"])
        table = pl.read_csv(folder / "curve.csv")
        falls = all(np.all(np.diff(table[name].to_numpy()) <= 0) for name in ("loss", "lower_bound"))
        is_bound_below = bool((table["lower_bound"] <= table["loss"]).all())
        print(
            f"curve, 400 cells, 30 epsilons: exit {code}, {seconds:.1f} s, {peak:.2f} GB, both fall: {falls}, ", end=""
        )
        print(f"bound never above: {is_bound_below}; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
