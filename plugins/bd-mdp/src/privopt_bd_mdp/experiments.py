"""The paper's experiments from one command: ``python -m privopt_bd_mdp.experiments --out FOLDER [--quick]``.

Tables 1 and 2 (sizes of blocks and of the master's components), and Tables 3 and 4 (seconds and rounds of Benders
alone from a cold start, from the star, and with Lagrangian steps, beside the simplex method), as CSV. A run that the
limit ended prints its gap.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt.decompose import boundary_of
from privopt.interfaces import SolveContext
from privopt.optimal.instance import Instance
from privopt_bd_mdp import data
from privopt_bd_mdp.model import PMO
from privopt_bd_mdp.partitioners import Records, partition
from privopt_bd_mdp.problem import PARTITIONS, Decomposition
from privopt_bd_mdp.solver import decompose

__all__ = ["instances", "main", "sizes", "times"]

STARTS = {
    "benders, cold": {"start": "cold", "lagrangian_steps": 0},
    "benders, star": {"start": "star", "lagrangian_steps": 0},
    "benders with lagrangian steps": {"start": "star"},
}


def instances(
    records: int, epsilon: float, road_file: Path | None, texts: Sequence[str]
) -> Iterator[tuple[str, Instance]]:
    """One instance of each kind of data that there is a source for."""
    rows = int(np.sqrt(records))
    while records % rows:
        rows -= 1
    yield "grid", data.grid(rows, records // rows, epsilon)
    if road_file is not None:
        yield "road", data.roads(road_file, records, epsilon)
    if texts:
        yield "text", data.words(data.train_vectors(texts, records, 300)[1], epsilon)
    yield "synthetic", data.gaussian(records, epsilon)


def sizes(kind: str, instance: Instance, subsets: int) -> Iterator[dict[str, Any]]:
    """Tables 1 and 2: internal records of each subset, components of the boundary records, both ends counted."""
    for name in PARTITIONS:
        records = Records(
            edges=instance.pairs, lengths=instance.distances, count=instance.records, coordinates=instance.coordinates
        )
        subset = partition(name, records, subsets)
        ends = boundary_of(subset, instance.pairs)
        internal = np.bincount(subset[~ends], minlength=int(subset.max()) + 1)
        among = instance.pairs[ends[instance.pairs].all(axis=1)]
        parts = _components(instance.records, among, ends)
        yield {
            "data": kind,
            "partition": name,
            "boundary": int(ends.sum()),
            "block_mean": float(internal.mean()),
            "block_max": int(internal.max()),
            "component_mean": float(parts.mean()) if parts.size else 0.0,
            "component_max": int(parts.max(initial=0)),
        }


def _components(records: int, pairs: NDArray[np.int64], chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    from privopt.problem.pairs import components

    return np.bincount(np.unique(components(records, pairs)[chosen], return_inverse=True)[1])


def times(kind: str, instance: Instance, subsets: int, limit: float) -> Iterator[dict[str, Any]]:
    """Tables 3 and 4: seconds, rounds and gap at 1 %, each under a limit; the simplex method beside them."""
    for name, options in STARTS.items():
        began = time.monotonic()
        context = SolveContext(method="benders", solver="highs", gap=1e-2, deadline=began + limit)
        wanted = Decomposition(partition="minimum-boundary", subsets=subsets, **options)  # type: ignore[arg-type]
        found = decompose(instance, wanted, context)
        seconds = time.monotonic() - began
        solution = found.solution
        yield {
            "data": kind,
            "method": name,
            "rounds": sum(part["rounds"] for part in found.parts),
            "lagrangian_steps": sum(part["lagrangian_steps"] for part in found.parts),
            "gap": solution.gap,
            "seconds": f"{seconds:.1f}" if solution.status == "optimal" else f"> {limit:g}",
        }
    began = time.monotonic()
    form = PMO.of(instance).form
    left = limit - (time.monotonic() - began)
    outcome = "stopped"
    if left > 0:
        from privopt.backends import get

        outcome = get("highs").solve(form, time_limit=left, method="simplex").outcome.value
    seconds = time.monotonic() - began
    yield {
        "data": kind,
        "method": "simplex (HiGHS)",
        "rounds": "",
        "lagrangian_steps": "",
        "gap": "",
        "seconds": f"{seconds:.1f}" if outcome == "optimal" else f"> {limit:g}",
    }


def _write(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the experiments and write their CSV files."""
    parser = argparse.ArgumentParser(prog="python -m privopt_bd_mdp.experiments", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bd-mdp-experiments"), help="folder for the CSV files")
    parser.add_argument("--records", type=int, default=500)
    parser.add_argument("--epsilon", type=float, default=10.0)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for each run")
    parser.add_argument("--roads", type=Path, help="rome99.gr or another road graph of the DIMACS Challenge")
    parser.add_argument("--texts", type=Path, help="folder of .txt files that word vectors are trained on")
    parser.add_argument("--quick", action="store_true", help="16 records, seconds")
    given = parser.parse_args(arguments)
    records, limit, subsets = (16, 10.0, 2) if given.quick else (given.records, given.limit, 25)
    texts = [file.read_text(encoding="utf-8") for file in sorted(given.texts.glob("*.txt"))] if given.texts else []
    table_1, table_3 = [], []
    for kind, instance in instances(records, given.epsilon, given.roads, texts):
        for row in sizes(kind, instance, subsets):
            table_1.append(row)
            print(row, flush=True)
        for row in times(kind, instance, 4 if not given.quick else 2, limit):
            table_3.append(row)
            print(row, flush=True)
    _write(given.out / "sizes.csv", table_1)
    _write(given.out / "times.csv", table_3)


if __name__ == "__main__":
    main()
