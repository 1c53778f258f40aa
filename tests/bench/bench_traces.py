"""Reports along traces: prediction beside independent reports at the same total, and attacks on many reports.

Run as ``python tests/bench/bench_traces.py [--only TEXT]``; parts: ``stays`` (walks with stays over Rome's streets,
reported at 200 of their 2,032 nodes; ``PRIVOPT_DATA``), ``averaging`` (planar Laplace at 2 per km over cells of 100 m:
what 1,000 reports of one place tell), ``speed`` (a million rows of traces). Draws come from fixed seeds.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from bench_city import ROME, _table
from scipy.sparse import csr_array

import privopt
from privopt.numbers.distances import haversine
from privopt.numbers.sampling import make_source
from privopt_metric_dp.attacks.many_reports import over_time
from privopt_metric_dp.traces.draw_trace import Limit, State

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers.kept_reports import compare_losses, walks

RECORDS = 200
SUBJECTS, STAYS, REPORTS, APART_KM = 100, 6, 60, 0.3


def _spread(points: np.ndarray, count: int) -> np.ndarray:
    """Numbers of points, each the farthest from those before."""
    chosen = [0]
    min_distances = haversine(points, points[0])
    while len(chosen) < count:
        chosen.append(int(min_distances.argmax()))
        min_distances = np.minimum(min_distances, haversine(points, points[chosen[-1]]))
    return np.array(chosen)


def stays(folder: Path) -> Iterator[str]:
    """Rome."""
    links = [r for r in csv.DictReader((ROME / "roma_edges.csv").open()) if r["u"] != r["v"]]
    names = sorted({end for r in links for end in (r["u"], r["v"])}, key=int)
    number_by_name = {name: number for number, name in enumerate(names)}
    at = {r["osmid"]: (float(r["y"]), float(r["x"])) for r in csv.DictReader((ROME / "nodes_rome.csv").open())}
    placed_nodes = np.array([number_by_name[name] for name in names if name in at])
    points = np.array([at[name] for name in names if name in at])
    street_ends = np.array([(number_by_name[r["u"]], number_by_name[r["v"]]) for r in links])
    lengths = np.array([float(r["length"]) / 1000 for r in links])
    order = np.argsort(-lengths, kind="stable")  # of parallel streets the shortest comes last
    streets = csr_array((lengths[order], tuple(street_ends[order].T)), shape=(len(names),) * 2)
    record_nodes = placed_nodes[_spread(points, RECORDS)]
    _table(folder / "points.csv", "id", ([names[n]] for n in record_nodes.tolist()))
    _table(folder / "roads.csv", "from,to,km", ((r["u"], r["v"], float(r["length"]) / 1000) for r in links))
    from scipy.sparse.csgraph import dijkstra

    nearest = dijkstra(streets, directed=False, indices=record_nodes).argmin(axis=0)
    walk = walks(streets, SUBJECTS, STAYS, REPORTS, APART_KM, np.random.default_rng(5))
    yield f"{len(walk.nodes):,} reports of {SUBJECTS} subjects, {walk.staying.mean():.0%} of them in stays"
    yield "| fresh report | total a subject | fresh | predicted | independent, all | best | k | held | k | all rows |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for epsilon in (2, 4, 8):
        text = (
            '[records]\npoints = "points.csv"\n[distance]\nkind = "graph"\nedges = "roads.csv"\n'
            f'[utility]\nkind = "distance"\n[privacy]\nepsilon = {epsilon}\n[predictive]\n'
        )
        comparison = compare_losses(folder, text, nearest, walk, gap=1e-2)
        stay, rows = zip(comparison.predicted, comparison.even, comparison.independent, comparison.held, strict=True)
        cells = [f"{comparison.total:.1f}", f"{comparison.fresh:.1%}", f"{stay[0]:.3f}", f"{stay[1]:.3f}"]
        for loss, k in zip(stay[2:], comparison.best, strict=True):
            cells += [f"{loss:.3f} ({stay[0] / loss:.2f})", f"{k}"]
        cells.append(" ".join(f"{loss:.3f}" for loss in rows))
        yield f"| {epsilon} | {' | '.join(cells)} |"
        yield f"(one output for all: {comparison.constant:.3f} km)"


def averaging(folder: Path) -> Iterator[str]:
    """Yield a square town."""
    text = (
        "[records]\ngrid = { rows = 41, cols = 41, cell_km = 0.1 }\n[distance]\nkind = 'euclidean'\n"
        "[utility]\nkind = 'distance'\n[privacy]\nepsilon = 2\n"
    )
    for mechanism, own_table in (("planar-laplace", ""), ("predictive", "[predictive]\n")):
        rows = text if mechanism == "planar-laplace" else text.replace("41", "15").replace("0.1", "0.25")
        (folder / "problem.toml").write_text(rows + own_table)
        opened = privopt.solve(mechanism, folder / "problem.toml", gap=1e-2).opened
        began = time.process_time()
        findings = over_time(opened.release, opened.problem.data)
        assert findings is not None
        seconds = time.process_time() - began
        yield f"{mechanism}: {len(opened.release.records):,} records, {seconds:.1f} processor seconds"
        for kind, errors in findings["likelihood"].items():
            for name, values in errors.items():
                cells = " | ".join(f"{1000 * value:.0f}" for value in values)
                yield f"| {kind} | {name} | {cells} |"


def speed(folder: Path) -> Iterator[str]:
    """Yield a million rows, of a thousand subjects and of one."""
    text = (
        "[records]\ngrid = { rows = 15, cols = 15, cell_km = 0.5 }\n[distance]\nkind = 'euclidean'\n"
        "[utility]\nkind = 'distance'\n[privacy]\nepsilon = 2\n[predictive]\n"
    )
    (folder / "problem.toml").write_text(text)
    walker = privopt.solve("predictive", folder / "problem.toml", gap=1e-2).opened.release.walker
    for subjects in (1000, 1):
        rows = np.random.default_rng(0).integers(225, size=20_000).repeat(50)
        who = np.arange(len(rows)) * subjects // len(rows)
        began = time.process_time()
        walker.walk(rows, who, State(), charge=Limit(None), source=make_source(1))
        yield f"{len(rows):,} rows of {subjects:,} subjects: {time.process_time() - began:.2f} processor seconds"


PARTS = {"stays": stays, "averaging": averaging, "speed": speed}


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", metavar="TEXT", help="parts whose name has it")
    arguments = parser.parse_args()
    for name, part in PARTS.items():
        if arguments.only in name:
            with tempfile.TemporaryDirectory() as folder:
                for line in part(Path(folder)):
                    print(line, flush=True)


if __name__ == "__main__":
    main()
