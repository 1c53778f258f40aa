"""Time the optimal-mechanism solvers against others, all in one run, and write docs/benchmarks.md.

Run as ``python tests/bench/bench_optimal.py [--quick] [--limit SECONDS] [--write FILE]``. Every solve has a process of
its own and may take so many processor seconds; what is timed and limited is the solve after a warm start of the process
(imports and, for ours, compiled code that is read from its cache). privopt's lines come first, then the others': a run
that is broken off leaves what there is. ``--only`` and ``--solvers`` measure a part, into another FILE. HiPO runs where
``highspy-extras`` of highspy's own version is installed.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np
from instances import Problem, grid, rome, scatter_points, streets
from rivals import SOLVERS, Answer

IPMS = ("Clarabel", "HiGHS IPX", "HiGHS HiPO", "HiGHS PDLP")
OTHERS = ("CBC dual", "HiGHS simplex", *IPMS, "scipy linprog", "libqif")
OWN = ("privopt auto", "privopt column-generation", "privopt interior-point")
SHORT = 10.0
"""Processor seconds beyond which one run has to do."""
QUICK: list[tuple[str, Callable[[], Problem | None], tuple[str, ...]]] = [
    ("49 cells, 8nb, e = .7", lambda: grid(7, "8nb", 0.7), OWN + OTHERS),
    ("100 cells, 8nb, e = .7", lambda: grid(10, "8nb", 0.7), OWN + OTHERS),
]
FULL = [
    *QUICK,
    ("100 cells, 8nb, e = .2", lambda: grid(10, "8nb", 0.2), OWN + OTHERS),
    ("100 cells, all pairs, e = .7", lambda: grid(10, "all", 0.7), (*OWN, *IPMS)),
    ("196 cells, 8nb, e = .7", lambda: grid(14, "8nb", 0.7), (*OWN, "Clarabel", "HiGHS IPX", "HiGHS HiPO")),
    ("196 cells, all pairs, e = .7", lambda: grid(14, "all", 0.7), OWN),
    ("400 cells, 8nb, e = .7", lambda: grid(20, "8nb", 0.7), OWN),
    ("400 cells, 8nb, e = .2", lambda: grid(20, "8nb", 0.2), ("privopt auto",)),
    ("900 cells, 8nb, e = .7", lambda: grid(30, "8nb", 0.7), OWN),
    ("1600 cells, 8nb, e = .7", lambda: grid(40, "8nb", 0.7), ("privopt auto",)),
    ("1600 cells, 8nb, e = 1.5", lambda: grid(40, "8nb", 1.5), ("privopt auto",)),
    ("1600 cells, 8nb, e = 5", lambda: grid(40, "8nb", 5.0), ("privopt auto",)),
    ("60 scattered points, all pairs, e = .5", lambda: scatter_points(60, 0.5), ("privopt auto", *OTHERS)),
    (
        "200 scattered points, all pairs, e = .5, to 1e-4",
        lambda: {**scatter_points(200, 0.5), "gap": 1e-4},
        ("privopt auto",),
    ),
    ("60 Rome cells, all pairs, 1 per km", lambda: rome(60, 1.0), ("privopt auto", *OTHERS)),
    ("400 Rome cells, 10 per km", lambda: rome(400, 10.0), ("privopt auto",)),
    ("400 Rome cells, 2 per km", lambda: rome(400, 2.0), ("privopt auto",)),
    ("400 Rome cells, 1 per km", lambda: rome(400, 1.0), ("privopt auto",)),
    (
        "500 Rome places, 60 outputs, 3 per km, to 1e-2",
        lambda: streets(500, 60, 3.0, 1e-2),
        ("privopt auto", "HiGHS simplex", *IPMS),
    ),
    (
        "2,032 Rome places, 120 outputs, 3 per km, to 1e-2",
        lambda: streets(2032, 120, 3.0, 1e-2),
        ("privopt auto", "HiGHS simplex", *IPMS),
    ),
    ("10,000 cells, 8nb, e = 2", lambda: grid(100, "8nb", 2.0), ("privopt auto",)),
]


def _private(problem: Problem, z: np.ndarray, repaired: bool) -> str:
    """Verdict of exact arithmetic on the answer: as it is, or (ours) after the repair that every release gets."""
    from privopt.numbers import TOTAL
    from privopt_metric_dp.matrix.certify import certify
    from privopt_metric_dp.matrix.repair import repair, round_to_weights

    epsilon = Fraction(problem["epsilon"])
    if repaired:
        done = repair(z, problem["pairs"], problem["distances"], epsilon, loss=problem["cost"])
        loss = float((problem["cost"] * done.weights).sum() / TOTAL)
        return f"yes, loss {loss:.9g}" if done.measured.holds else "no"
    z = np.maximum(z, 0)
    weights = round_to_weights(z)
    return "yes" if certify(weights, problem["pairs"], problem["distances"], epsilon).holds else "no"


def _work(name: str, problem: Problem, limit: float, queue: Any) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the limit ends a process by a signal that would leave one
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
    """One solve in its own process; one that waits for a processor for ever is killed."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_work, args=(name, problem, limit, queue))
    process.start()
    end = time.monotonic() + 20 * limit + 60
    answer: Answer | None = None
    while answer is None and time.monotonic() < end:
        try:
            answer = queue.get(timeout=1)
        except Empty:
            if not process.is_alive():
                late = process.exitcode == -signal.SIGXCPU
                answer = {"note": f"not within {limit:g} s" if late else f"process died ({process.exitcode})"}
    if process.is_alive():
        process.join(2)
        process.kill()
    process.join()
    return {"load": os.getloadavg()[0], **(answer or {"note": "no answer in time"})}


def median(name: str, problem: Problem, limit: float, runs: int = 3) -> Answer:
    """Return the run of median processor seconds; one run is enough where it takes over `SHORT`."""
    runs_made = [run_one(name, problem, limit)]
    while len(runs_made) < runs and runs_made[0].get("seconds", (0, np.inf))[1] < SHORT:
        runs_made.append(run_one(name, problem, limit))
    timed = sorted((run for run in runs_made if "seconds" in run), key=lambda run: run["seconds"][1])
    return timed[len(timed) // 2] if timed else runs_made[0]


def line(instance: str, name: str, answer: Answer) -> str:
    """One row of the table."""
    loss, bound = answer.get("loss"), answer.get("bound")
    gap = f"{max(0.0, (loss - bound) / loss):.1e}" if loss and bound is not None else "-"
    wall, processor = answer.get("seconds", (None, None))
    seconds = "- | -" if wall is None else f"{processor:.2f} | {wall:.2f}"
    return (
        f"| {instance} | {name} | {seconds} | {answer['load']:.0f} | {f'{loss:.10g}' if loss is not None else '-'} | "
        f"{f'{bound:.10g}' if bound is not None else '-'} | {gap} | {answer.get('private', '-')} | "
        f"{answer.get('note', '')} |"
    )


def slopes(limit: float) -> list[str]:
    """Exponent of the time against the number of records, from the last two sizes of each method."""
    lines = ["| method | instances, e | sizes | processor seconds | slope |", "| --- | --- | --- | --- | --- |"]
    cases: list[tuple[str, str, Callable[[int], Problem | None], tuple[int, ...]]] = [
        ("star", "grids, 8nb, 2", lambda n: grid(math.isqrt(n), "8nb", 2.0), (400, 900, 1600)),
        ("column-generation", "grids, 8nb, .7", lambda n: grid(math.isqrt(n), "8nb", 0.7), (196, 400, 900)),
        ("column-generation", "grids, all pairs, .7", lambda n: grid(math.isqrt(n), "all", 0.7), (64, 100, 196)),
        ("interior-point", "grids, 8nb, .2", lambda n: grid(math.isqrt(n), "8nb", 0.2), (196, 400, 900)),
        ("interior-point", "grids, all pairs, .7", lambda n: grid(math.isqrt(n), "all", 0.7), (64, 100, 196)),
        (
            "auto",
            "scattered points, all pairs, .5, to 1e-4",
            lambda n: {**scatter_points(n, 0.5), "gap": 1e-4},
            (50, 100, 200),
        ),
        ("auto", "Rome cells, 1 per km", lambda n: rome(n, 1.0), (100, 200, 400)),
    ]
    for method, label, make, sizes in cases:
        problems = [make(size) for size in sizes]
        if any(problem is None for problem in problems):
            continue
        times = [median(method, problem, limit).get("seconds", (0, np.nan))[1] for problem in problems if problem]
        slope = np.log(times[-1] / times[-2]) / np.log(sizes[-1] / sizes[-2]) if times[-1] < limit else np.nan
        times_text = ", ".join(f"{t:.2f}" for t in times)
        lines.append(f"| {method} | {label} | {', '.join(map(str, sizes))} | {times_text} | {slope:.1f} |")
        print(lines[-1], flush=True)
    return lines


NOTES = """
Grids have 8 symmetries, which all methods use. Two independent methods give 2.406798511 as the optimum for 900 cells,
each with a proof.

## What `auto` does with it

`auto` tries the star first. If its weights are not negative, pricing proves its gap. If the star is a mechanism,
column generation follows, otherwise the interior point. From an infeasible star, the prices of column generation
oscillate: at 400 cells, e = .2, and at 400 Rome cells, 1 and 2 per km, it had no useful bound after a minute. Where
the star is a mechanism, the interior point is slower (see the table). Many records under a limit start with few
outputs ([figures](benchmarks/city.md)).
"""


HEAD = "| instance | solver | processor seconds | wall clock | load | loss | lower bound | gap | private | note |"


def write(path: Path, limit: float, table: list[str], growth: list[str]) -> None:
    """Write what there is so far: a run that is broken off leaves its lines."""
    text = [
        "# Benchmarks of the optimal-mechanism solvers",
        "",
        f"Measured with `python tests/bench/bench_optimal.py --limit {limit:g}` on {os.cpu_count()} processors that "
        "also did other work. Load is the average over the minute before a solve ended. Seconds are for the solve "
        "alone, without imports, summed over all processors. They are medians of three runs, or single runs over "
        f"{SHORT:g} s. Each solve may use {limit:g} processor seconds. Others then end; privopt is interrupted and "
        "returns what it has. Solvers that did not finish smaller instances are not tried on larger ones of that kind. "
        "Privacy is checked in exact integers: privopt's answers after the repair that every release gets, the others' "
        "as returned, rounded to 63 bits. Grids have unit cells, a uniform prior and Euclidean distance as cost. "
        '"8nb" means edges to the 8 neighbours, and "e" is epsilon times cell size. privopt is asked for a gap of '
        "1e-6. HiGHS's HiPO comes from `highspy-extras`, which privopt does not install.",
        "",
        HEAD,
        "| --- " * 10 + "|",
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
    parser.add_argument("--solvers", default=",".join(SOLVERS), help="only these, with commas between")
    parser.add_argument("--limit", type=float, default=60.0, help="processor seconds a solve")
    parser.add_argument("--write", type=Path, default=Path("docs/benchmarks.md"))
    options = parser.parse_args()
    chosen = [case for case in (QUICK if options.quick else FULL) if options.only in case[0]]
    solver_names = options.solvers.split(",")
    rows: dict[tuple[int, int], str] = {}
    growth: list[str] = []
    print(HEAD)
    for is_own in (True,) if options.own else (True, False):
        for index, (instance, make, names) in enumerate(chosen):
            solver_columns = [
                (column, name)
                for column, name in enumerate(names)
                if name.startswith("privopt") == is_own and name in solver_names
            ]
            problem = make() if solver_columns else None
            for column, name in solver_columns if problem is not None else ():
                assert problem is not None
                rows[index, column] = line(instance, name, median(name, problem, options.limit))
                print(rows[index, column], flush=True)
                write(options.write, options.limit, [rows[key] for key in sorted(rows)], growth)
        if is_own and chosen == FULL and len(solver_names) == len(SOLVERS):
            growth = slopes(options.limit)
    write(options.write, options.limit, [rows[key] for key in sorted(rows)], growth)


if __name__ == "__main__":
    main()
