"""Cities of up to 50,000 places with outputs chosen by their use: seconds, memory, loss, bound, checks.

Run as ``python tests/bench/bench_places.py [--only TEXT] [--checker] [--apply] [--write FILE]``. Streets of Rome
(``PRIVOPT_DATA``) are cut into pieces as equal as can be until there are so many places; a city of junctions is a grid
of 80 m with places moved, 12 % of its streets missing, these 1 to 1.15 times as long as the way by air. Seconds are
wall clock of whole commands, peak memory that of their largest process; one run each. ``--apply`` protects a million
positions by each release whose places have positions, and holds the reports of three places to their rows.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
from attrs import frozen
from bench_city import PRIVOPT, ROME, _problem, _table, helsinki, run_command
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import chisquare

Roads = list[tuple[int, int, float]]
Positions = NDArray[np.float64]

BLOCK = 0.08
"""Of the city of junctions, km."""
EARTH_KM = 6371.0088
KM_A_DEGREE = (111.2, 82.9)
"""Of latitude, and of longitude at 41.8 degrees north."""
POSITIONS, OF_EACH = 1_000_000, 100_000
"""Rows that are protected; of these so many are at each of three places, the others everywhere."""


def rome_roads() -> Roads:
    """Rome's published streets, in km."""
    links = [row for row in csv.DictReader((ROME / "roma_edges.csv").open()) if row["u"] != row["v"]]
    names = sorted({end for row in links for end in (row["u"], row["v"])}, key=int)
    number = {name: number_of_node for number_of_node, name in enumerate(names)}
    return [(number[row["u"]], number[row["v"]], float(row["length"]) / 1000) for row in links]


def rome_positions() -> Positions:
    """Latitude and longitude of these nodes; of the eight that the file of nodes lacks, about, by a street's bends."""
    at = {row["osmid"]: (float(row["y"]), float(row["x"])) for row in csv.DictReader((ROME / "nodes_rome.csv").open())}
    links = [row for row in csv.DictReader((ROME / "roma_edges.csv").open()) if row["u"] != row["v"]]
    for row in links:
        bends = re.findall(r"([\d.]+) ([\d.]+)", row["geometry"])
        for end, (lon, lat) in zip((row["u"], row["v"]), bends[:: max(1, len(bends) - 1)], strict=False):
            at.setdefault(end, (float(lat), float(lon)))
    return np.array([at[name] for name in sorted({end for row in links for end in (row["u"], row["v"])}, key=int)])


def cut(at: Positions, roads: Roads, places: int) -> tuple[Positions, Roads]:
    """Roads in pieces as long as lets there be so many places, and no more; new places lie on straight lines."""
    count, new_points = len(at), []
    lengths = np.array([km for _, _, km in roads])
    short, longer = 1e-6, float(lengths.max())
    for _ in range(60):
        middle = (short + longer) / 2
        too_many = count + (np.ceil(lengths / middle) - 1).sum() > places
        short, longer = (middle, longer) if too_many else (short, middle)
    pieces: Roads = []
    for a, b, km in roads:
        parts = math.ceil(km / longer)
        chain = [a, *range(count, count + parts - 1), b]
        count += parts - 1
        new_points += [at[a] + (at[b] - at[a]) * part / parts for part in range(1, parts)]
        pieces += [(u, v, km / parts) for u, v in pairwise(chain)]
    return np.concatenate([at, np.array(new_points).reshape(-1, 2)]), pieces


def junctions(places: int) -> tuple[Positions, Roads]:
    """Return a grid of junctions, its largest connected part, laid where Rome is."""
    size, chance = round(places**0.5), np.random.default_rng(0)
    x, y = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    points = (np.stack([x.ravel(), y.ravel()], axis=1) + chance.uniform(-0.3, 0.3, (size * size, 2))) * BLOCK
    node_numbers = np.arange(size * size).reshape(size, size)
    street_ends = np.concatenate(
        [
            np.stack([node_numbers[:-1].ravel(), node_numbers[1:].ravel()], axis=1),
            np.stack([node_numbers[:, :-1].ravel(), node_numbers[:, 1:].ravel()], axis=1),
        ]
    )
    street_ends = street_ends[chance.random(len(street_ends)) > 0.12]
    km = np.linalg.norm(points[street_ends[:, 0]] - points[street_ends[:, 1]], axis=1) * chance.uniform(
        1, 1.15, len(street_ends)
    )
    return _largest(points / KM_A_DEGREE + [41.8, 12.4], street_ends, km)


def _largest(at: Positions, street_ends: NDArray[np.int64], km: NDArray[np.float64]) -> tuple[Positions, Roads]:
    count = len(at)
    graph = coo_array((np.ones(len(street_ends)), (street_ends[:, 0], street_ends[:, 1])), shape=(count, count))
    label = connected_components(graph, directed=False)[1]
    is_largest = label == np.bincount(label).argmax()
    number = np.cumsum(is_largest) - 1
    is_kept_street = is_largest[street_ends[:, 0]]
    return at[is_largest], [
        (a, b, length)
        for (a, b), length in zip(
            number[street_ends[is_kept_street]].tolist(), km[is_kept_street].tolist(), strict=True
        )
    ]


def straight_km(at: Positions, roads: Roads) -> list[float]:
    """Return the great-circle distance between the ends of each road in km, rounded up to the millimetre."""
    ends = np.radians(at[np.array([road[:2] for road in roads])])
    lat, lon = ends[..., 0], ends[..., 1]
    half = (
        np.sin(np.diff(lat, axis=1) / 2) ** 2
        + np.cos(lat).prod(axis=1, keepdims=True) * np.sin(np.diff(lon, axis=1) / 2) ** 2
    )
    return list((np.ceil(2 * EARTH_KM * np.arcsin(np.sqrt(half)) * 1e6) / 1e6).ravel().tolist())


def write(folder: Path, network: tuple[Positions, Roads], epsilon: float, choose: int | None) -> None:
    """Write the problem over such roads, all of whose nodes are records."""
    at, roads = network
    _table(folder / "points.csv", "id,lat,lon", ([name, *map(repr, row)] for name, row in enumerate(at.tolist())))
    # Some published roads are a little shorter than the straight line between their ends, which privopt refuses.
    straight = straight_km(at, roads)
    kept = ([a, b, f"{max(km, least):.9f}"] for (a, b, km), least in zip(roads, straight, strict=True))
    _table(folder / "edges.csv", "from,to,km", kept)
    _problem(folder, 'points = "points.csv"', 'kind = "graph"\nedges = "edges.csv"', epsilon)
    _choose(folder, choose)


def _choose(folder: Path, choose: int | None) -> None:
    file = folder / "problem.toml"
    text = file.read_text()
    file.write_text(text if choose is None else text.replace("[distance]", f"[outputs]\nchoose = {choose}\n[distance]"))


@frozen
class Case:
    """A line of the table."""

    name: str
    make: Callable[[Path], None]
    gap: str
    asked: str
    options: tuple[str, ...] = ()


def _rome(places: int, epsilon: float, choose: int | None, gap: str, target: str) -> Case:
    def make(folder: Path) -> None:
        at, roads = rome_positions(), rome_roads()
        write(folder, cut(at, roads, places) if places > len(at) else (at, roads), epsilon, choose)

    outputs = "all outputs" if choose is None else f"{choose} outputs"
    return Case(f"Rome's streets, {places:,} places, {outputs}, {epsilon:g} per km", make, gap, target)


def _city(places: int, gap: str, target: str) -> Case:
    name = f"{places:,} junctions, 120 outputs, 1 per km"
    return Case(name, lambda folder: write(folder, junctions(places), 1.0, 120), gap, target)


def _helsinki(folder: Path) -> None:
    helsinki(folder, 5000, 1.0)
    _choose(folder, 960)


CASES = (
    _rome(2032, 3.0, 120, "1e-2", "20 s, .5 GB"),
    _rome(5000, 4.0, 120, "5e-2", "-"),
    _rome(20000, 4.0, 120, "5e-2", "-"),
    _rome(50000, 4.0, 120, "5e-2", "300 s, 4 GB"),
    _rome(50000, 2.0, 120, "5e-2", "300 s, 4 GB"),
    _rome(50000, 1.0, 120, "5e-2", "300 s, 4 GB"),
    _city(20000, "5e-2", "300 s"),
    Case(
        "Helsinki, 5,000 nodes, 960 outputs, 1 per km, --memory 2", _helsinki, "2e-2", "200 s, 2 GB", ("--memory", "2")
    ),
    Case("Helsinki, 5,000 nodes, 960 outputs, 1 per km, all", _helsinki, "2e-2", "20 min for all outputs"),
    _city(50000, "5e-2", "1,200 s, 6 GB"),
    _rome(2032, 3.0, None, "1e-2", "no slower than 67.6 s"),
)


def apply_to_table(folder: Path) -> str:
    """Protect positions by the release; rows a second, and p values of three places' reports against their rows."""
    rng = np.random.default_rng(0)
    points = pl.read_csv(folder / "points.csv", schema_overrides={"id": pl.String})
    at = points.select("lat", "lon").to_numpy()
    three = np.unique(at, axis=0, return_index=True)[1][:: len(at) // 3][:3]
    names = rng.permutation(np.append(np.repeat(three, OF_EACH), rng.integers(len(at), size=POSITIONS - 3 * OF_EACH)))
    table = pl.DataFrame({"place": points["id"].gather(names), "lat": at[names, 0], "lon": at[names, 1]})
    table.select(row=pl.int_range(POSITIONS), lat="lat", lon="lon").write_csv(folder / "table.csv")
    arguments = ["apply", folder / "out", folder / "table.csv", "--lat", "lat", "--lon", "lon", "--json"]
    code, seconds, peak, _ = run_command([*PRIVOPT, *arguments, "--out", folder / "safe.parquet"])
    reports = pl.read_parquet(folder / "safe.parquet").with_columns(place=table["place"])
    with np.load(folder / "out" / "mechanism.npz") as stored:
        outputs, number = stored["outputs"].tolist(), {name: row for row, name in enumerate(stored["records"].tolist())}
        weights = stored["weights"].astype(np.float64)
    p_values = []
    for name in points["id"].gather(three):
        count = Counter(reports.filter(pl.col("place") == name)["report"].to_list())
        odds = weights[number[name]] / weights[number[name]].sum()
        seen = np.array([count[output] for output in outputs])
        expected = odds * seen.sum()
        rare = expected < 5
        seen, expected = (np.append(counts[~rare], counts[rare].sum()) for counts in (seen, expected))
        is_expected = expected > 0
        p_values.append(f"{chisquare(seen[is_expected], expected[is_expected]).pvalue:.2f}")
    return f"apply exit {code}, {POSITIONS / seconds:,.0f} rows a second, {peak:.2f} GB, p {' '.join(p_values)}"


def line(case: Case, *, checker: bool, apply: bool) -> str:
    """Solve, verify and, asked to, check by the stand-alone checker and protect a table."""
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        case.make(folder)
        solve = [*PRIVOPT, "solve", "optimal-lp", folder / "problem.toml", "--out", folder / "out", "--gap", case.gap]
        start_usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        code, seconds, peak, stdout = run_command([*solve, *case.options, "--json", "--quiet"])
        end_usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = end_usage.ru_utime + end_usage.ru_stime - start_usage.ru_utime - start_usage.ru_stime
        if not stdout:
            return f"| {case.name} | {case.asked} | {seconds:.0f} | {used:.0f} | {peak:.2f} | exit {code} | | | | | | |"
        objective = json.loads(stdout)["objective"]
        over = objective.get("bound_over", "all")
        checked, took, verify_peak, _ = run_command([*PRIVOPT, "verify", folder / "out"])
        checker_cells = ""
        if checker:
            subprocess.run([*PRIVOPT, "checker", "--out", folder / "checker.pyz"], check=True, capture_output=True)
            checker_code, own_seconds, checker_peak, _ = run_command(
                [sys.executable, "-I", folder / "checker.pyz", folder / "out"]
            )
            checker_cells = f"exit {checker_code}, {own_seconds:.0f} s, {checker_peak:.2f} GB"
        sizes = "/".join(
            f"{(folder / 'out' / name).stat().st_size / 1e6:.0f}" for name in ("mechanism.npz", "proof.npz")
        )
        objective_cells = (
            f"{objective['value']:.5f} | {objective['lower_bound']:.5f} ({over}) | {100 * objective['gap']:.2f} %"
        )
        first = f"| {case.name} | {case.asked} | {seconds:.0f} | {used:.0f} | {peak:.2f} | {objective_cells}"
        of_rows = apply_to_table(folder) if apply else ""
        return f"{first} | exit {checked}, {took:.0f} s, {verify_peak:.2f} GB | {checker_cells} | {sizes} | {of_rows} |"


HEAD = "| problem | asked | seconds | processor s | GB | loss | bound (over) | gap | verify | checker | MB | apply |"


def main() -> None:
    """Run, print and, asked to, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only problems whose name contains this")
    parser.add_argument("--checker", action="store_true", help="the stand-alone checker too")
    parser.add_argument("--apply", action="store_true", help="protect a million positions too")
    parser.add_argument("--write", type=Path, help="file for the table")
    options = parser.parse_args()
    lines = [HEAD, "| --- " * 12 + "|"]
    print("\n".join(lines), flush=True)
    for case in CASES:
        if options.only in case.name:
            lines.append(f"{line(case, checker=options.checker, apply=options.apply)} load {os.getloadavg()[0]:.1f}")
            print(lines[-1], flush=True)
    if options.write is not None:
        options.write.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
