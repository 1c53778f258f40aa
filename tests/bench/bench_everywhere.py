"""Guarantees at every point: loss, bound and time beside mechanisms over records and planar Laplace noise.

Run as ``python tests/bench/bench_everywhere.py [--only TEXT] [--write FILE]``; parts: ``streets`` (2,032 street nodes
of Rome, 3 per km; ``PRIVOPT_DATA``), ``plane`` (10 x 10 km, equilateral meshes), ``laplace`` (planar Laplace noise over
the same square), ``apply`` (100,000 positions), ``mixture`` (a million draws at a point inside a triangle). Solves are
whole commands, wall clock from their start. People stand anywhere in the region, equally; the loss is the distance to
the report.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from bench_city import PRIVOPT, ROME, _table, run_command
from scipy.stats import chisquare

SIDE = 10.0
"""Of the square, km."""


def solve_and_verify(folder: Path, mechanism: str, *options: str, verify: bool = True) -> dict[str, object]:
    """Solve the folder's problem, verify the release; what result.json says of it."""
    solve = [*PRIVOPT, "solve", mechanism, folder / "problem.toml", "--out", folder / "out", "--force", "--quiet"]
    code, seconds, peak, stdout = run_command([*solve, "--json", *options])
    if not stdout:
        return {"exit": code, "seconds": seconds, "gb": peak}
    result = json.loads(stdout)
    checked, took, _, _ = run_command([*PRIVOPT, "verify", folder / "out"]) if verify else (None, 0.0, 0.0, "")
    objective, certificate = result["objective"], result["certificate"]
    return {
        "exit": code, "seconds": seconds, "gb": peak, "loss": objective["value"], "bound": objective["lower_bound"],
        "gap": objective["gap"], "worst": certificate["worst"], "verify": checked, "took": took,
    }  # fmt: skip


def format_line(name: str, figures: dict[str, object]) -> str:
    """Return a line of the table."""
    if "loss" not in figures:
        return f"| {name} | {figures['exit']} | {figures['seconds']:.1f} | {figures['gb']:.2f} | - | - | - | - | - |"
    bound = "- | -" if figures["bound"] is None else f"{figures['bound']:.5f} | {figures['gap']:.2e}"
    verdict = f"{figures['verify']} in {figures['took']:.1f} s"
    cells = f"{figures['loss']:.5f} | {bound} | {figures['worst']:.6g} | {verdict}"
    return f"| {name} | {figures['exit']} | {figures['seconds']:.1f} | {figures['gb']:.2f} | {cells} |"


HEAD = "| problem | exit | seconds | GB | loss, km | bound | gap | worst | verify |"


def rome(folder: Path, epsilon: float, privacy_keys: str, *, placed: bool = False) -> None:
    """Write the streets; records are all nodes, or those whose position is known, with it."""
    links = [r for r in csv.DictReader((ROME / "roma_edges.csv").open()) if r["u"] != r["v"]]
    nodes = sorted({end for r in links for end in (r["u"], r["v"])}, key=int)
    at = {r["osmid"]: (r["y"], r["x"]) for r in csv.DictReader((ROME / "nodes_rome.csv").open())}
    if placed:
        _table(folder / "points.csv", "id,lat,lon", ([node, *at[node]] for node in nodes if node in at))
    else:
        _table(folder / "points.csv", "id", ([node] for node in nodes))
    _table(folder / "edges.csv", "from,to,km", ([r["u"], r["v"], float(r["length"]) / 1000] for r in links))
    text = '[records]\npoints = "points.csv"\n[distance]\nkind = "graph"\nedges = "edges.csv"\n'
    (folder / "problem.toml").write_text(
        f'{text}[privacy]\nepsilon = {epsilon}\n{privacy_keys}[utility]\nkind = "distance"\n'
    )


def square(folder: Path, side_km: float, epsilon: float, privacy_keys: str, utility: str = "") -> None:
    """Write a mesh over the square."""
    ring = [[0, 0], [SIDE, 0], [SIDE, SIDE], [0, SIDE], [0, 0]]
    (folder / "region.geojson").write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
    mesh = f'mesh = {{ region = "region.geojson", side_km = {side_km}, planar = true }}'
    text = f'[records]\n{mesh}\n[distance]\nkind = "euclidean"\n[privacy]\nepsilon = {epsilon}\n{privacy_keys}'
    (folder / "problem.toml").write_text(f'{text}[utility]\nkind = "distance"\n{utility}')


def streets(folder: Path) -> Iterator[str]:
    """Yield the streets of Rome."""
    for mechanism, options in (("optimal-lp", ("--gap", "1e-2")), ("exponential", ())):
        for name, privacy_keys in (("everywhere", "everywhere = true\n"), ("all pairs of records", "")):
            rome(folder, 3.0, privacy_keys)
            yield format_line(f"Rome, 3 per km, {name}, {mechanism}", solve_and_verify(folder, mechanism, *options))


def plane(folder: Path, sides: tuple[float, ...], epsilons: tuple[float, ...]) -> Iterator[str]:
    """Meshes over the square."""
    for epsilon in epsilons:
        for side_km in sides:
            for mechanism, utility in (
                ("optimal-lp", ""),
                ("exponential", ""),
                ("planar-laplace", ""),
                ("planar-laplace", "remap = true\n"),
            ):
                square(folder, side_km, epsilon, "everywhere = true\n", utility)
                name = f"{epsilon:g} per km, side {side_km:g}, {mechanism}{', remapped' if utility else ''}"
                options = ("--gap", "1e-2") if mechanism == "optimal-lp" else ()
                yield format_line(name, solve_and_verify(folder, mechanism, *options))
        square(folder, max(sides), epsilon, "")
        name = f"{epsilon:g} per km, side {max(sides):g}, optimal-lp, all pairs of records"
        yield format_line(name, solve_and_verify(folder, "optimal-lp", "--gap", "1e-2"))


def laplace(epsilons: tuple[float, ...]) -> Iterator[str]:
    """Planar Laplace noise at the position itself: as it is, cut to the square, remapped to the posterior's median."""
    yield "| epsilon, per km | continuous | cut to the square | remapped |"
    yield "| --- | --- | --- | --- |"
    for epsilon in epsilons:
        step = min(0.2, 0.5 / epsilon)
        at = (np.arange(round(SIDE / step)) + 0.5) * step
        grid_count = at.size + 2 * int(np.ceil(9 / epsilon / step))
        axis_values = (
            np.arange(grid_count // 2) - (grid_count - at.size) / 2 + 0.25
        ) * step  # a quarter of the plane, off people's places
        people = np.stack(np.meshgrid(at, at), axis=-1).reshape(-1, 2)
        seen = np.stack(np.meshgrid(axis_values, axis_values), axis=-1).reshape(-1, 2)
        cut = remapped = mass = 0.0
        for part in np.array_split(seen, max(1, len(seen) * len(people) // 4_000_000)):
            distances = np.hypot(*(part[:, None] - people[None]).transpose(2, 0, 1))
            density = np.exp(-epsilon * distances)
            best = part.clip(0, SIDE)
            cut += (density * np.hypot(*(best[:, None] - people[None]).transpose(2, 0, 1))).sum()
            for _ in range(25):  # Weiszfeld's steps to the median of the posterior
                pull = density / np.maximum(np.hypot(*(best[:, None] - people[None]).transpose(2, 0, 1)), 1e-9)
                best = (pull @ people) / pull.sum(axis=1, keepdims=True)
            remapped += (density * np.hypot(*(best[:, None] - people[None]).transpose(2, 0, 1))).sum()
            mass += density.sum()
        yield f"| {epsilon:g} | {2 / epsilon:.4f} | {cut / mass:.4f} | {remapped / mass:.4f} |"


def tables(folder: Path) -> Iterator[str]:
    """``apply`` to 100,000 positions, over records and at every point, of one mesh and of the streets."""
    import polars as pl

    rng = np.random.default_rng(0)
    makers = {"plane, side .25": (partial(square, folder, 0.25, 2.0), "x", "y")}
    if ROME.exists():
        makers["Rome's streets"] = (partial(rome, folder, 3.0, placed=True), "lat", "lon")
    for name, (make, first, second) in makers.items():
        at = rng.uniform(0, SIDE, (100_000, 2)) if first == "x" else beside_streets(rng, 100_000)
        positions = {first: at[:, 0], second: at[:, 1]}
        pl.DataFrame(positions).write_csv(folder / "trips.csv", float_precision=6)
        for scope, privacy_keys in (("records", ""), ("every point", "everywhere = true\n")):
            make(privacy_keys=privacy_keys)
            solve_and_verify(folder, "exponential", verify=False)
            arguments = ["apply", folder / "out", folder / "trips.csv", f"--{first}", first, f"--{second}", second]
            runs = [run_command([*PRIVOPT, *arguments, "--out", folder / "safe.parquet", "--force"]) for _ in range(3)]
            codes, seconds = {run[0] for run in runs}, sorted(run[1] for run in runs)[1]
            rate = in_memory(folder, positions)
            figures = f"exit {max(codes)} | {seconds:.2f} s | {rate:,.0f} rows a processor second"
            yield f"| apply, {name}, {scope} | {figures} |"


def beside_streets(rng: np.random.Generator, count: int) -> np.ndarray:
    """Positions along Rome's streets, 15 m beside them (normal), as phones see them."""
    nodes = {r["osmid"]: (float(r["y"]), float(r["x"])) for r in csv.DictReader((ROME / "nodes_rome.csv").open())}
    links = [(r["u"], r["v"]) for r in csv.DictReader((ROME / "roma_edges.csv").open()) if r["u"] != r["v"]]
    street_ends = np.array([(nodes[u], nodes[v]) for u, v in links if u in nodes and v in nodes])
    street, part = rng.integers(len(street_ends), size=count), rng.random((count, 1))
    at = street_ends[street, 0] * (1 - part) + street_ends[street, 1] * part
    return at + rng.normal(0, 0.015 / 111.2, (count, 2)) / [1.0, np.cos(np.radians(41.9))]


def in_memory(folder: Path, positions: dict[str, np.ndarray]) -> float:
    """Rows a processor second of the Python API, the median of three, all that is loaded once loaded."""
    import time
    import warnings

    import polars as pl

    import privopt as po

    release = po.open(folder / "out")
    frame = pl.DataFrame(positions)
    names = {name: name for name in positions}
    times = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(4):
            began = time.process_time()
            release.apply(frame, **names)
            times.append(time.process_time() - began)
    return frame.height / float(sorted(times[1:])[1])


def mixture(folder: Path) -> Iterator[str]:
    """Yield a million draws at a point inside a triangle, against the exact mixture of its corners' rows."""
    import privopt as po
    from privopt_metric_dp.region.snap_to_region import Snapper

    square(folder, 1.0, 1.0, "everywhere = true\n")
    solve_and_verify(folder, "optimal-lp", "--gap", "1e-2", verify=False)
    release = po.open(folder / "out")
    at = (4.321, 5.678)
    snapped = Snapper.of(release.opened.problem.data.region, release.opened.problem.data.epsilon).snap(np.array([at]))
    matrix = release.opened.release
    rows = [[int(weight) for weight in matrix.weights[corner]] for corner in snapped.corners[0]]
    exact = [
        float(sum(s * w for s, w in zip(snapped.exact(0), ws, strict=True)) / 2**63) for ws in zip(*rows, strict=True)
    ]
    samples = release.sample(xy=at, count=1_000_000)
    number_by_name = {name: number for number, name in enumerate(matrix.outputs.tolist())}
    counts = np.bincount([number_by_name[name] for name in samples], minlength=len(number_by_name))
    expected_counts = np.array(exact) * 1_000_000
    many = expected_counts >= 5
    merged_counts = [
        np.append(values[many], max(values[~many].sum(), 1e-9)) for values in (counts.astype(float), expected_counts)
    ]
    test_result = chisquare(merged_counts[0], merged_counts[1] * merged_counts[0].sum() / merged_counts[1].sum())
    name = f"a million draws at {at}, {int(many.sum())} outputs"
    yield f"| {name} | chi-square {test_result.statistic:.1f} | p = {test_result.pvalue:.3f} |"


def main() -> None:
    """Run, print and, asked to, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only parts whose name contains this")
    parser.add_argument("--epsilons", type=float, nargs="*", default=[1.0, 2.0, 4.0])
    parser.add_argument("--sides", type=float, nargs="*", default=[1.0, 0.5, 0.25])
    parser.add_argument("--write", type=Path, help="file for the lines")
    options = parser.parse_args()
    epsilons, sides = tuple(options.epsilons), tuple(options.sides)
    lines = []
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        parts = {
            "mixture": lambda: mixture(folder),
            "laplace": lambda: laplace(epsilons),
            "apply": lambda: tables(folder),
            "plane": lambda: plane(folder, sides, epsilons),
            "streets": lambda: streets(folder) if ROME.exists() else iter(["left out: Rome's streets are not there"]),
        }
        for name, run in parts.items():
            if options.only in name:
                heads = [HEAD, "| --- " * 9 + "|"] if name in ("plane", "streets") else []
                for line in heads:
                    print(line, flush=True)
                for line in run():
                    lines.append(line)
                    print(line, flush=True)
    lines.append(f"Load {os.getloadavg()[0]:.1f} at the end.")
    print(lines[-1])
    if options.write is not None:
        options.write.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
