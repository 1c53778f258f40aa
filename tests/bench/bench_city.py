"""Whole commands at the size of a city: wall clock, peak memory, loss, bound, gap; every folder verified.

Run as ``python tests/bench/bench_city.py [--only TEXT] [--write FILE]``. Maps come from the public data sets that
``PRIVOPT_DATA`` names (CONTRIBUTING.md); those that are not there are left out, with a line. A run is a process of its
own: seconds are those of the command from its start, peak memory that of its largest process. The median of three
runs, or a single one where it takes over 30 s.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from attrs import frozen

ROOT = Path(__file__).parents[2]
PLACE = os.environ.get("PRIVOPT_DATA")
DATA = Path(PLACE) if PLACE else ROOT.parent / "shared" / "data"
ROME = DATA / "lrgeo_rome"
PRIVOPT = (sys.executable, "-m", "privopt")


def _table(file: Path, head: str, rows: Iterable[Sequence[object]]) -> None:
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(head.split(","))
        writer.writerows(rows)


BY_DISTANCE = '[utility]\nkind = "distance"\n'


def _problem(folder: Path, records: str, distance: str, epsilon: float, other_tables: str = BY_DISTANCE) -> None:
    text = f"[records]\n{records}\n[distance]\n{distance}\n[privacy]\nepsilon = {epsilon!r}\n{other_tables}"
    (folder / "problem.toml").write_text(text)


def rome_cells(folder: Path, cells: int, epsilon: float) -> None:
    """First cells of the published 40 x 40 file, all pairs; loss: mean travel cost over the whole cell graph."""
    places = list(csv.DictReader((ROME / "reget_rome_cell_node40x40.csv").open()))
    links = [r for r in csv.DictReader((ROME / "reget_rome_cost_thrhold_2.csv").open()) if r["u_index"] != r["v_index"]]
    _table(folder / "all.csv", "id,weight", ([r["grid_index"], 1] for r in places))
    _table(folder / "points.csv", "id,lat,lon", ([r["grid_index"], r["y"], r["x"]] for r in places[:cells]))
    _table(folder / "edges.csv", "from,to,km", ([r["u_index"], r["v_index"], r["length"]] for r in links))
    utility = '[utility]\nkind = "travel-cost"\ntargets = "all.csv"\n'
    _problem(folder, 'points = "points.csv"', 'kind = "graph"\nedges = "edges.csv"', epsilon, utility)


def rome_streets(folder: Path, epsilon: float) -> None:
    """All nodes of the published street file (metres there, km here); loss: the street distance."""
    links = [r for r in csv.DictReader((ROME / "roma_edges.csv").open()) if r["u"] != r["v"]]
    nodes = sorted({end for r in links for end in (r["u"], r["v"])}, key=int)
    _table(folder / "points.csv", "id", ([node] for node in nodes))
    _table(folder / "edges.csv", "from,to,km", ([r["u"], r["v"], float(r["length"]) / 1000] for r in links))
    _problem(folder, 'points = "points.csv"', 'kind = "graph"\nedges = "edges.csv"', epsilon)


def helsinki(folder: Path, count: int, epsilon: float) -> None:
    """Write a connected part of Helsinki's highway nodes, shape points included, grown from the first node."""
    osm = [*PRIVOPT, "init", "optimal-lp", "--osm", str(DATA / "osm_small" / "Helsinki.osm.pbf"), "--walk", "--bends"]
    subprocess.run([*osm, "--out", str(folder / "all.toml")], check=True, stderr=subprocess.DEVNULL)
    links = [(r["from"], r["to"], r["km"]) for r in csv.DictReader((folder / "all-roads.csv").open())]
    neighbours: dict[str, list[str]] = {}
    for start, end, _ in links:
        neighbours.setdefault(start, []).append(end)
        neighbours.setdefault(end, []).append(start)
    points = {r["id"]: r for r in csv.DictReader((folder / "all-points.csv").open())}
    queue = [next(iter(points))]
    seen = dict.fromkeys(queue)
    for node in queue:
        for neighbour in neighbours.get(node, []):
            if len(seen) < count and neighbour not in seen:
                seen[neighbour] = None
                queue.append(neighbour)
    _table(folder / "points.csv", "id,lat,lon", ([i, points[i]["lat"], points[i]["lon"]] for i in seen))
    _table(folder / "edges.csv", "from,to,km", (link for link in links if link[0] in seen and link[1] in seen))
    _problem(folder, 'points = "points.csv"', 'kind = "graph"\nedges = "edges.csv"', epsilon)


def write_random(folder: Path, count: int) -> None:
    """Random points of a square of side 1 km, all pairs; epsilon times the root of area / count is .5."""
    points = np.random.default_rng(0).random((count, 2))
    _table(folder / "points.csv", "id,x,y", ((i, x, y) for i, (x, y) in enumerate(points.tolist())))
    _problem(folder, 'points = "points.csv"', 'kind = "euclidean"', 0.5 * count**0.5)


def paper_kind(folder: Path, kind: str, records: int, outputs: int, epsilon: float) -> None:
    """Write records of a kind of BD-mDP's paper, as its experiments draw them, and choose some of them as outputs."""
    sys.path += [str(ROOT / "plugins" / "bd-mdp" / "experiments"), str(ROOT / "tests")]
    from pydoc_data.topics import topics

    from bd_mdp_paper.kinds import Kinds

    (folder / "texts").mkdir(exist_ok=True)
    for number, topic in enumerate(topics.values()):  # Python's own manual: text that is everywhere
        (folder / "texts" / f"{number}.txt").write_text(topic)
    source = Kinds.found(DATA, texts=folder / "texts").make(kind, records)
    instance = source.instance(epsilon, outputs)
    np.save(folder / "d.npy", source.distances)
    np.save(folder / "c.npy", instance.cost * records)
    chosen = np.sort(np.random.default_rng([0, 1]).choice(records, outputs, replace=False))
    np.save(folder / "o.npy", np.ascontiguousarray(source.distances[:, chosen]))
    other_tables = f'neighbours_within = {source.within!r}\n[utility]\nkind = "matrix"\ncost = "c.npy"\n'
    matrix = 'kind = "matrix"\nmatrix = "d.npy"\noutput_matrix = "o.npy"'
    _problem(folder, f"count = {records}\n[outputs]\ncount = {outputs}", matrix, epsilon, other_tables)


def vectors(folder: Path, count: int, dimensions: int) -> None:
    """Gaussian vectors, epsilon such that the exponential mechanism answers neither itself nor at random."""
    points = np.random.default_rng(0).normal(size=(count, dimensions)) / dimensions**0.5
    np.save(folder / "words.npy", points)
    _problem(folder, 'vectors = "words.npy"', 'kind = "euclidean"', 10.0)


def grid(folder: Path, rows: int, columns: int) -> None:
    """Write a small grid."""
    _problem(folder, f"grid = {{ rows = {rows}, cols = {columns}, cell_km = 1.0 }}", 'kind = "euclidean"', 1.0)


@frozen
class Case:
    """A line of the table: a problem, the method, its options, and what was asked of it."""

    name: str
    make: Callable[[Path], None]
    mechanism: str
    options: tuple[str, ...]
    asked: str
    data: Path | None = None


def _rome(cells: int, epsilon: float, gap: str, target: str) -> Case:
    name = f"{cells} Rome cells, {epsilon:g} per km"
    return Case(name, lambda to: rome_cells(to, cells, epsilon), "optimal-lp", ("--gap", gap), target, ROME)


def _kind(kind: str, target: str) -> Case:
    need = DATA / "rome99" if kind == "road" else None
    name = f"bd-mdp {kind}, 1,000 x 100, 1 per unit"
    return Case(name, lambda to: paper_kind(to, kind, 1000, 100, 1.0), "bd-mdp", ("--gap", "1e-2"), target, need)


STREETS = Case(
    "2,032 Rome street nodes, 3 per km", lambda to: rome_streets(to, 3.0), "optimal-lp", ("--gap", "1e-2"),
    "360 s, 8 GB", ROME,
)  # fmt: skip
HELSINKI = Case(
    "5,000 Helsinki highway nodes, 1 per km", lambda to: helsinki(to, 5000, 1.0), "optimal-lp",
    ("--gap", "5e-2", "--time-limit", "1200", "--memory", "12"), "1,200 s, 12 GB", DATA / "osm_small",
)  # fmt: skip
CASES = (
    Case("12 cells, 1 per km", lambda to: grid(to, 3, 4), "optimal-lp", (), "1.0 s"),
    _rome(400, 2.0, "1e-6", "12 s"),
    _rome(400, 1.0, "1e-6", "12 s"),
    _rome(900, 1.0, "1e-2", "25 s"),
    _rome(1331, 1.0, "1e-2", "60 s"),
    Case("200 scattered points, all pairs", lambda to: write_random(to, 200), "optimal-lp", ("--gap", "1e-4"), "15 s"),
    Case("500 scattered points, all pairs", lambda to: write_random(to, 500), "optimal-lp", ("--gap", "1e-3"), "300 s"),
    Case(
        STREETS.name + ", within 60 s", STREETS.make, "optimal-lp", ("--gap", "1e-2", "--time-limit", "60"),
        "60 s, below .8 of the exponential's loss", ROME,
    ),
    STREETS,
    Case(STREETS.name, STREETS.make, "exponential", (), "the yardstick", ROME),
    _kind("road", "30 s"),
    _kind("grid", "120 s"),
    _kind("synthetic", "120 s"),
    _kind("text", "120 s"),
    Case("5,000 vectors of 300", lambda to: vectors(to, 5000, 300), "exponential", (), "30 s"),
    Case("5,000 vectors of 300", lambda to: vectors(to, 5000, 300), "optimal-lp", ("--time-limit", "300"), "300 s"),
    HELSINKI,
)  # fmt: skip


def run_command(command: Sequence[str | Path]) -> tuple[int, float, float, str]:
    """Exit code, seconds, peak memory in GB of the largest process, standard output."""
    timer = shutil.which("time") or "/usr/bin/time"
    began = time.monotonic()
    if Path(timer).exists():
        completed = subprocess.run([timer, "-f", "%M", *command], capture_output=True, text=True)
        peak = float(completed.stderr.strip().rpartition("\n")[2] or "nan") / 1e6 * 1.024
    else:
        code = "import resource,subprocess,sys; r=subprocess.run(sys.argv[1:]).returncode; "
        code += "sys.stderr.write('\\n%d' % resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(r)"
        completed = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True)
        peak = float(completed.stderr.rpartition("\n")[2]) / 1e6 * 1.024
    return completed.returncode, time.monotonic() - began, peak, completed.stdout


def processor_seconds() -> float:
    """Of all commands that ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def line(case: Case) -> str:
    """Make the problem, solve it, verify what it wrote."""
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        case.make(folder)
        solve = [*PRIVOPT, "solve", case.mechanism, folder / "problem.toml", "--out", folder / "out", "--force"]
        runs = [run_command([*solve, "--json", "--quiet", *case.options])]
        while len(runs) < 3 and runs[0][1] < 30:
            runs.append(run_command([*solve, "--json", "--quiet", *case.options]))
        code, seconds, peak, stdout = sorted(runs, key=lambda run: run[1])[len(runs) // 2]
        name = f"| {case.name} | {case.mechanism} {' '.join(case.options)} | {case.asked}"
        if not stdout:
            return f"{name} | {seconds:.1f} | {peak:.2f} | - | - | - | exit {code} | - |"
        result = json.loads(stdout)
        objective = result["objective"]
        loss, bound, gap = objective["value"], objective["lower_bound"], objective["gap"]
        checked, took, _, _ = run_command([*PRIVOPT, "verify", folder / "out"])
        verdict = f"exit {checked} in {took:.1f} s" + (f", solve exit {code}" if code else "")
        way = result.get("solver", {}).get("path", "-")
        bound_cells = "- | -" if bound is None else f"{bound:.7g} | {gap:.2e}"
        return f"{name} | {seconds:.1f} | {peak:.2f} | {loss:.7g} | {bound_cells} | {way} | {verdict} |"


HEAD = "| problem | solve | asked | seconds | GB | loss | bound | gap | path | verify |"


def main() -> None:
    """Run, print and, asked to, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only problems whose name contains this")
    parser.add_argument("--write", type=Path, help="file for the table")
    options = parser.parse_args()
    lines = [HEAD, "| --- " * 10 + "|"]
    print("\n".join(lines), flush=True)
    for case in CASES:
        if options.only in case.name:
            if case.data is not None and not case.data.exists():
                print(f"left out: {case.name}, {case.data.name} is not there", flush=True)
                continue
            lines.append(line(case))
            print(lines[-1], flush=True)
    if options.write is not None:
        options.write.write_text("\n".join([f"Load {os.getloadavg()[0]:.1f} at the end.", "", *lines]) + "\n")


if __name__ == "__main__":
    main()
