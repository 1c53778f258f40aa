"""Time the optimal-mechanism solvers against others, all in one run, and write docs/benchmarks.md.

Run as ``python tests/bench/bench_optimal.py [--quick] [--limit SECONDS] [--write FILE]``. Every solve
has a process and a time limit of its own; what is timed is the solve after a warm start of the
process (imports and, for ours, compiled code that is read from its cache).
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from instances import Problem, grid, rome, scattered
from rivals import SOLVERS, Answer

IPMS = ("Clarabel", "HiGHS IPX", "HiGHS HiPO", "HiGHS PDLP")
OTHERS = ("CBC dual", "HiGHS simplex", *IPMS, "scipy linprog", "libqif")
OWN = ("privopt auto", "privopt column-generation", "privopt interior-point")
QUICK: list[tuple[str, Callable[[], Problem | None], tuple[str, ...]]] = [
    ("49 cells, 8nb, e = .7", lambda: grid(7, "8nb", 0.7), OWN + OTHERS),
    ("100 cells, 8nb, e = .7", lambda: grid(10, "8nb", 0.7), OWN + OTHERS),
]
FULL = [
    *QUICK,
    ("100 cells, 8nb, e = .2", lambda: grid(10, "8nb", 0.2), OWN + OTHERS),
    ("100 cells, all pairs, e = .7", lambda: grid(10, "all", 0.7), (*OWN, *IPMS)),
    ("196 cells, 8nb, e = .7", lambda: grid(14, "8nb", 0.7), (*OWN, "Clarabel")),
    ("196 cells, all pairs, e = .7", lambda: grid(14, "all", 0.7), OWN),
    ("400 cells, 8nb, e = .7", lambda: grid(20, "8nb", 0.7), OWN),
    ("400 cells, 8nb, e = .2", lambda: grid(20, "8nb", 0.2), ("privopt auto",)),
    ("900 cells, 8nb, e = .7", lambda: grid(30, "8nb", 0.7), OWN),
    ("1600 cells, 8nb, e = .7", lambda: grid(40, "8nb", 0.7), ("privopt auto",)),
    ("1600 cells, 8nb, e = 1.5", lambda: grid(40, "8nb", 1.5), ("privopt auto",)),
    ("1600 cells, 8nb, e = 5", lambda: grid(40, "8nb", 5.0), ("privopt auto",)),
    ("60 scattered points, all pairs, e = .5", lambda: scattered(60, 0.5), ("privopt auto", *OTHERS)),
    ("200 scattered points, all pairs, e = .5", lambda: scattered(200, 0.5), ("privopt auto", *IPMS)),
    ("60 Rome cells, all pairs, 1 per km", lambda: rome(60, 1.0), ("privopt auto", *OTHERS)),
    ("400 Rome cells, 10 per km", lambda: rome(400, 10.0), ("privopt auto",)),
    ("400 Rome cells, 2 per km", lambda: rome(400, 2.0), ("privopt auto",)),
    ("400 Rome cells, 1 per km", lambda: rome(400, 1.0), ("privopt auto", "Clarabel", "HiGHS IPX", "HiGHS PDLP")),
    ("10,000 cells, 8nb, e = 2", lambda: grid(100, "8nb", 2.0), ("privopt auto",)),
]


def _private(problem: Problem, z: np.ndarray, repaired: bool) -> str:
    """Verdict of exact arithmetic on the answer: as it is, or (ours) after the repair that every release gets."""
    from privopt.exact import TOTAL, certify, lower_bound, repair, rounded

    del lower_bound
    epsilon = Fraction(problem["epsilon"])
    if repaired:
        done = repair(z, problem["pairs"], problem["distances"], epsilon, loss=problem["cost"])
        loss = float((problem["cost"] * done.weights).sum() / TOTAL)
        return f"yes, loss {loss:.9g}" if done.measured.holds else "no"
    z = np.maximum(z, 0)
    weights = rounded(z)
    return "yes" if certify(weights, problem["pairs"], problem["distances"], epsilon).holds else "no"


def _work(name: str, problem: Problem, limit: float, queue: Any) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # CBC prints even when told not to
    try:
        answer = SOLVERS[name](problem, limit)
        z = answer.pop("z", None)
        if z is not None and len(z) <= 2000:
            answer["private"] = _private(problem, z, name.startswith("privopt"))
        queue.put(answer)
    except Exception as fault:  # a broken rival is a line of the table, not the end of the run
        queue.put({"note": f"{type(fault).__name__}: {str(fault)[:50]}"})


def run_one(name: str, problem: Problem, limit: float) -> Answer:
    """One solve in its own process, killed some time after its limit."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_work, args=(name, problem, limit, queue))
    process.start()
    end = time.monotonic() + 1.5 * limit + 60
    answer: Answer | None = None
    while answer is None and time.monotonic() < end:
        try:
            answer = queue.get(timeout=1)
        except Exception:
            if not process.is_alive():
                answer = {"note": f"process died ({process.exitcode})"}
    if process.is_alive():
        process.join(2)
        process.kill()
    process.join()
    return answer or {"note": "no answer in time"}


def median(name: str, problem: Problem, limit: float, runs: int = 3) -> Answer:
    """The run of median wall clock; one run is enough where it takes over half a minute."""
    found = [run_one(name, problem, limit)]
    while len(found) < runs and found[0].get("seconds", (np.inf,))[0] < 30:
        found.append(run_one(name, problem, limit))
    timed = sorted((one for one in found if "seconds" in one), key=lambda one: one["seconds"][0])
    return timed[len(timed) // 2] if timed else found[0]


def line(instance: str, name: str, answer: Answer) -> str:
    """One row of the table."""
    loss, bound = answer.get("loss"), answer.get("bound")
    gap = f"{max(0.0, (loss - bound) / loss):.1e}" if loss and bound is not None else "-"
    seconds = "{:.2f} | {:.2f}".format(*answer["seconds"]) if "seconds" in answer else "- | -"
    return (
        f"| {instance} | {name} | {seconds} | {f'{loss:.10g}' if loss is not None else '-'} | "
        f"{f'{bound:.10g}' if bound is not None else '-'} | {gap} | {answer.get('private', '-')} | "
        f"{answer.get('note', '')} |"
    )


def slopes(limit: float) -> list[str]:
    """Exponent of the time against the number of records, from the last two sizes of each method."""
    lines = ["| method | instances, e | sizes | cpu seconds | slope |", "| --- | --- | --- | --- | --- |"]
    cases: list[tuple[str, str, Callable[[int], Problem | None], tuple[int, ...]]] = [
        ("star", "grids, 8nb, 2", lambda n: grid(math.isqrt(n), "8nb", 2.0), (400, 900, 1600)),
        ("column-generation", "grids, 8nb, .7", lambda n: grid(math.isqrt(n), "8nb", 0.7), (196, 400, 900)),
        ("column-generation", "grids, all pairs, .7", lambda n: grid(math.isqrt(n), "all", 0.7), (64, 100, 196)),
        ("interior-point", "grids, 8nb, .2", lambda n: grid(math.isqrt(n), "8nb", 0.2), (196, 400, 900)),
        ("interior-point", "grids, all pairs, .7", lambda n: grid(math.isqrt(n), "all", 0.7), (64, 100, 196)),
        ("auto", "scattered points, all pairs, .5", lambda n: scattered(n, 0.5), (50, 100, 200)),
        ("auto", "Rome cells, 1 per km", lambda n: rome(n, 1.0), (100, 200, 400)),
    ]
    for method, told, make, sizes in cases:
        problems = [make(size) for size in sizes]
        if any(problem is None for problem in problems):
            continue
        times = [median(method, problem, limit).get("seconds", (0, np.nan))[1] for problem in problems if problem]
        slope = np.log(times[-1] / times[-2]) / np.log(sizes[-1] / sizes[-2])
        shown = ", ".join(f"{t:.2f}" for t in times)
        lines.append(f"| {method} | {told} | {', '.join(map(str, sizes))} | {shown} | {slope:.1f} |")
        print(lines[-1], flush=True)
    return lines


NOTES = """
Grids have 8 symmetries, and all methods use them. The 900-cell optimum is 2.406798511 by two independent methods, each
with a proof.

## What `auto` does with it

The star first: where its weights are not negative, pricing proves its gap. Then column generation where the star is a
mechanism, the interior point where it is not: column generation from an infeasible star has prices that swing (400
cells, e = .2: no useful bound after a minute; 400 Rome cells, 1 and 2 per km: the same), while the interior point is
slower wherever the star is a mechanism (the table has both).
Over all pairs of scattered points spanners come first; what is larger than memory is solved with few outputs and by
parts ([figures](benchmarks/city.md)).
"""


def write(path: Path, limit: float, table: list[str], growth: list[str]) -> None:
    """Write what there is so far: a run that is broken off leaves its lines."""
    text = [
        "# Benchmarks of the optimal-mechanism solvers",
        "",
        f"Written by `python tests/bench/bench_optimal.py` on {os.cpu_count()} processors "
        f"(load {os.getloadavg()[0]:.1f} at the end, limit {limit:g} s a solve). "
        "Seconds are of the solve alone, after imports, wall clock and of all processors together: the run of "
        "median wall clock of three, or a single run where it took over 30 s. "
        "Privacy is checked in exact integers: privopt's answers after the repair that every release gets, "
        "the others as they came, rounded to 63 bits. Unit grids, uniform prior, cost the Euclidean distance; "
        "8nb: edges to the 8 neighbours; e: epsilon times cell size.",
        "",
        *table,
    ]
    if growth:
        text += ["", "## How time grows with the records", "", *growth, NOTES.rstrip()]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(text) + "\n")


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only the two smallest instances")
    parser.add_argument("--own", action="store_true", help="only privopt's own methods")
    parser.add_argument("--only", default="", help="only instances whose name contains this")
    parser.add_argument("--limit", type=float, default=100.0, help="seconds a solve")
    parser.add_argument("--write", type=Path, default=Path("docs/benchmarks.md"))
    options = parser.parse_args()
    head = "| instance | solver | seconds | cpu seconds | loss | lower bound | gap | private (exact) | note |"
    table = [head, "| --- " * 9 + "|"]
    print("\n".join(table))
    for instance, make, names in QUICK if options.quick else FULL:
        problem = make() if options.only in instance else None
        for name in names if problem is not None else ():
            if options.own and not name.startswith("privopt"):
                continue
            assert problem is not None
            table.append(line(instance, name, median(name, problem, options.limit)))
            print(table[-1], flush=True)
            write(options.write, options.limit, table, [])
    growth = [] if options.quick or options.only else slopes(options.limit)
    write(options.write, options.limit, table, growth)


if __name__ == "__main__":
    main()
