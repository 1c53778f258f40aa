"""What reports say, at the size of a city: ``estimate`` over 2,032 nodes of Rome's streets, and its coverage.

Run as ``python tests/bench/bench_estimate.py [--release DIR] [--reports 100000 1000000] [--width 0.3]``: whole
commands, wall clock from their start, peak memory. The truth is a mixture of five hot spots over the published street
file (``PRIVOPT_DATA``), bumps exp(-(d / width)^2 / 2) in street distance with random weights. DIR is a release over
those nodes; default: optimal-lp at 3 per km to a gap of 1e-2, solved first. Also planar Laplace over Rome's cells at
1 per km, as it is and remapped under such a truth.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
from bench_city import PRIVOPT, ROME, rome_streets, run_command

from privopt.arrays import Floats
from privopt.estimate.estimate_tables import channel_of
from privopt.estimate.shares import EstimateOptions, ReportCounts, estimate
from privopt.interfaces import Channel
from privopt.run.verify import load_release

SPOTS = 5


def crowd(distances: Floats, width: float, seed: int) -> Floats:
    """(N,) shares: five hot spots of one width."""
    rng = np.random.default_rng(seed)
    centres = rng.choice(len(distances), SPOTS, replace=False)
    spots = np.exp(-0.5 * (distances[centres] / width) ** 2)
    shares: Floats = rng.dirichlet(np.full(SPOTS, 3.0)) @ (spots / spots.sum(axis=1, keepdims=True))
    return shares


def streets(folder: Path, given_folder: Path | None, counts: list[int], width: float) -> None:
    """Shares of 2,032 nodes from so many reports: seconds, memory, how far off, beside the histogram of the reports."""
    release_folder = given_folder
    if release_folder is None:
        rome_streets(folder, 3.0)
        release_folder = folder / "out"
        solve = [
            *PRIVOPT,
            "solve",
            "optimal-lp",
            folder / "problem.toml",
            "--out",
            release_folder,
            "--gap",
            "1e-2",
            "--quiet",
        ]
        code, seconds, peak, _ = run_command(solve)
        print(f"optimal-lp: exit {code}, {seconds:.1f} s, {peak:.2f} GB", flush=True)
    opened = load_release(release_folder)
    z = channel_of(opened).probabilities
    truth = crowd(opened.problem.data.metric.table(), width, seed=0)
    rng = np.random.default_rng(1)
    for count in counts:
        people = rng.multinomial(count, truth)
        drawn_counts = sum(rng.multinomial(n, z[i] / z[i].sum()) for i, n in enumerate(people.tolist()) if n)
        reports = np.repeat(np.asarray(opened.release.outputs), drawn_counts)
        rng.shuffle(reports)
        pl.DataFrame({"report": reports}).write_csv(folder / "safe.csv")
        command = [
            *PRIVOPT,
            "estimate",
            release_folder,
            folder / "safe.csv",
            "--out",
            folder / "e.csv",
            "--force",
            "--json",
        ]
        code, seconds, peak, stdout = run_command([*command, "--quiet"])
        table = pl.read_csv(folder / "e.csv")
        error = np.abs(table["share"].to_numpy() - truth).sum() / 2
        histogram_error = np.abs(drawn_counts / count - truth).sum() / 2
        all_covered = bool(((table["low"].to_numpy() <= truth) & (truth <= table["high"].to_numpy())).all())
        method_figures = {name: json.loads(stdout)[name] for name in ("method", "gap", "resolution")}
        print(
            f"{count:,} reports: exit {code}, {seconds:.1f} s, {peak:.2f} GB, total variation {error:.4f}, histogram's "
            f"{histogram_error:.4f}, all intervals hold: {all_covered}, {method_figures}, "
            f"load {os.getloadavg()[0]:.1f}",
            flush=True,
        )


def remapping(folder: Path, cells: int) -> None:
    """Planar Laplace over Rome's cells under a truth of five hot spots: its loss, and remapped."""
    rows = list(csv.DictReader((ROME / "reget_rome_cell_node40x40.csv").open()))[:cells]
    table = {"id": [r["grid_index"] for r in rows], "lat": [r["y"] for r in rows], "lon": [r["x"] for r in rows]}
    pl.DataFrame(table).write_csv(folder / "cells.csv")
    at = np.array([[float(r["y"]) * 111.2, float(r["x"]) * 83.0] for r in rows])
    truth = crowd(np.linalg.norm(at[:, None] - at, axis=2), 0.4, seed=5)
    pl.DataFrame({"id": table["id"], "p": truth}).write_csv(folder / "truth.csv")
    for remap in ("false", "true"):
        (folder / "cells.toml").write_text(
            '[records]\npoints = "cells.csv"\n[distance]\nkind = "haversine"\n[privacy]\nepsilon = 1.0\n'
            f'[utility]\nkind = "distance"\nprior = "truth.csv"\nremap = {remap}\n'
        )
        solve = [*PRIVOPT, "solve", "planar-laplace", folder / "cells.toml", "--out", folder / "cells", "--force"]
        code, seconds, _, stdout = run_command([*solve, "--quiet", "--json"])
        result = json.loads(stdout)
        loss, worst = result["objective"]["value"], result["certificate"]["worst"]
        print(f"planar-laplace, {cells} cells, remap {remap}: exit {code}, {seconds:.1f} s, {loss:.4f} km, {worst:.6f}")


def coverage(repetitions: int) -> None:
    """How often intervals hold: 20 places of a ring at three epsilons, 2,000 and 20,000 reports."""
    rng = np.random.default_rng(0)
    d = np.abs(np.subtract.outer(np.arange(20), np.arange(20)))
    for epsilon in (0.3, 1.0, 2.0):
        z = np.exp(-epsilon * np.minimum(d, 20 - d))
        z /= z.sum(axis=1, keepdims=True)
        truth = rng.dirichlet(np.ones(20))
        names = [str(i) for i in range(20)]
        channel = Channel(inputs=names, outputs=names, probabilities=z)
        for n in (2_000, 20_000):
            held_count, single = 0, 0.0
            for _ in range(repetitions):
                observed = [ReportCounts(channel=channel, counts=rng.multinomial(n, truth @ z))]
                sure = estimate(observed, EstimateOptions())
                held_count += bool(((sure.low <= truth) & (truth <= sure.high)).all())
                asymptotic = estimate(observed, EstimateOptions(intervals="asymptotic"))
                single += float(((asymptotic.low <= truth) & (truth <= asymptotic.high)).mean())
            print(
                f"ring of 20, epsilon {epsilon:g}, {n:,} reports, {repetitions} repetitions: finite-sample all at once "
                f"{held_count / repetitions:.4f}, asymptotic one by one {single / repetitions:.4f}",
                flush=True,
            )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", type=Path)
    parser.add_argument("--reports", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--width", type=float, default=0.3)
    parser.add_argument("--cells", type=int, default=1331)
    parser.add_argument("--repetitions", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        if arguments.reports:
            streets(folder, arguments.release, arguments.reports, arguments.width)
        if arguments.cells:
            remapping(folder, arguments.cells)
    if arguments.repetitions:
        coverage(arguments.repetitions)


if __name__ == "__main__":
    main()
