"""Time the optimal-mechanism solvers against others, all in one run, and write docs/benchmarks.md.

Run as ``python tests/bench/bench_optimal.py [--quick] [--limit SECONDS] [--write FILE]``. Every solve
has a process and a time limit of its own; what is timed is the solve after a warm start of the
process (imports and, for ours, compiled code that is read from its cache).
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
import re
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

Problem = dict[str, Any]
Answer = dict[str, Any]


def grid(side: int, pairs: str, epsilon: float) -> Problem:
    x, y = np.meshgrid(np.arange(side), np.arange(side), indexing="ij")
    points = np.stack([x.ravel(), y.ravel()], axis=1).astype(float)
    n = len(points)
    cost = np.empty((n, n))
    ends, lengths = [], []
    for i in range(n):
        distance = np.hypot(*(points - points[i]).T)
        cost[i] = distance / n
        j = np.flatnonzero(distance < (1.5 if pairs == "8nb" else np.inf))
        j = j[j > i]
        ends.append(np.stack([np.full(len(j), i), j], axis=1))
        lengths.append(distance[j])
    return {
        "cost": cost,
        "pairs": np.concatenate(ends),
        "distances": np.concatenate(lengths),
        "epsilon": epsilon,
        "coordinates": points,
    }


def rome(cells: int, epsilon: float) -> Problem | None:
    """First cells of the published 40 x 40 file: graph distances and mean travel cost over the whole cell graph."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    place = os.environ.get("PRIVOPT_DATA")
    folder = (Path(place) if place else Path(__file__).parents[3] / "shared" / "data") / "lrgeo_rome"
    if not folder.exists():
        return None
    with (folder / "reget_rome_cell_node40x40.csv").open() as file:
        rows = list(csv.DictReader(file))
    number = {row["grid_index"]: i for i, row in enumerate(rows)}
    edges: dict[tuple[int, int], float] = {}
    with (folder / "reget_rome_cost_thrhold_2.csv").open() as file:
        for row in csv.DictReader(file):
            u, v = number[row["u_index"]], number[row["v_index"]]
            if u != v:
                edges[u, v] = min(float(row["length"]), edges.get((u, v), np.inf))
    ends = np.array(list(edges))
    graph = csr_array((np.array(list(edges.values())), (ends[:, 0], ends[:, 1])), shape=(len(rows), len(rows)))
    far = dijkstra(graph, directed=False, indices=np.arange(cells))
    cost = np.stack([np.abs(row - far).mean(axis=1) for row in far]) / cells
    i, j = np.triu_indices(cells, 1)
    points = np.array([[float(r["x"]) * np.cos(np.radians(41.9)), float(r["y"])] for r in rows[:cells]])
    return {
        "cost": cost,
        "pairs": np.stack([i, j], axis=1),
        "distances": far[i, j],
        "epsilon": epsilon,
        "coordinates": points,
    }


def clock() -> tuple[float, float]:
    """Wall and processor seconds."""
    return time.perf_counter(), time.process_time()


def since(began: tuple[float, float]) -> tuple[float, float]:
    """Wall and processor seconds since then."""
    return time.perf_counter() - began[0], time.process_time() - began[1]


def ours(method: str) -> Callable[[Problem, float], Answer]:
    def run(problem: Problem, limit: float) -> Answer:
        from privopt.optimal import Instance, dual_bound, solve

        for warm in ("star", "column-generation", "interior-point"):  # compiled code is read from its cache
            solve(Instance(**grid(3, "8nb", 2.0)), method=warm)
        instance = Instance(**problem)
        gap = 1e-6 if len(instance.pairs) != 79800 else 5e-5
        began = clock()
        answer = solve(instance, method=method, gap=0.4 * gap, deadline=time.monotonic() + limit)
        seconds = since(began)
        bound = dual_bound(instance, answer.multipliers)[0] if instance.records <= 2000 else answer.lower_bound
        path = re.sub(r" \([^)]*\)", " fails", answer.details.get("path", answer.method))
        return {"z": answer.z, "loss": answer.objective, "bound": bound, "seconds": seconds, "note": path}

    return run


def _whole_lp(problem: Problem) -> Any:
    import highspy
    from scipy.sparse import coo_array

    cost, pairs = problem["cost"], problem["pairs"]
    n, k, p = *cost.shape, len(pairs)
    i, j = pairs.T
    growth = np.repeat(np.exp(problem["epsilon"] * problem["distances"]), k)
    rows, columns, values = [], [], []
    for turn, (a, b) in enumerate(((i, j), (j, i))):
        number = ((turn * p + np.arange(p))[:, None] * k + np.arange(k)).ravel()
        rows += [number, number]
        columns += [(a[:, None] * k + np.arange(k)).ravel(), (b[:, None] * k + np.arange(k)).ravel()]
        values += [np.ones(p * k), -growth]
    rows.append(2 * p * k + np.repeat(np.arange(n), k))
    columns.append(np.arange(n * k))
    values.append(np.ones(n * k))
    matrix = coo_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=(2 * p * k + n, n * k)
    ).tocsr()
    model = highspy.HighsLp()
    model.num_row_, model.num_col_ = matrix.shape
    model.col_cost_ = cost.ravel()
    model.col_lower_, model.col_upper_ = np.zeros(n * k), np.full(n * k, np.inf)
    model.row_lower_ = np.r_[np.full(2 * p * k, -np.inf), np.ones(n)]
    model.row_upper_ = np.r_[np.zeros(2 * p * k), np.ones(n)]
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_ = matrix.indptr, matrix.indices
    model.a_matrix_.value_ = matrix.data
    return model, matrix


def highs(kind: str) -> Callable[[Problem, float], Answer]:
    def run(problem: Problem, limit: float) -> Answer:
        import highspy

        model, _ = _whole_lp(problem)
        solver = highspy.Highs()
        for option, value in (
            ("output_flag", False),
            ("solver", kind),
            ("run_crossover", "off"),
            ("time_limit", limit),
        ):
            solver.setOptionValue(option, value)
        began = clock()
        solver.passModel(model)
        solver.run()
        seconds = since(began)
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return {"note": solver.modelStatusToString(solver.getModelStatus()), "seconds": seconds}
        z = np.array(solver.getSolution().col_value).reshape(problem["cost"].shape)
        return {"z": z, "loss": float(np.vdot(problem["cost"], z)), "seconds": seconds}

    return run


def cbc(problem: Problem, limit: float) -> Answer:
    import tempfile

    import highspy
    import mip

    model, _ = _whole_lp(problem)
    with tempfile.TemporaryDirectory() as folder:
        writer = highspy.Highs()
        writer.setOptionValue("output_flag", False)
        writer.passModel(model)
        path = str(Path(folder) / "whole.mps")
        writer.writeModel(path)
        solver = mip.Model(solver_name=mip.CBC)
        solver.verbose = 0
        solver.read(path)
    solver.lp_method = mip.LP_Method.DUAL
    began = clock()
    status = solver.optimize(max_seconds=limit)
    seconds = since(began)
    if status != mip.OptimizationStatus.OPTIMAL:
        return {"note": status.name.lower(), "seconds": seconds}
    z = np.array([variable.x for variable in solver.vars]).reshape(problem["cost"].shape)
    return {"z": z, "loss": float(np.vdot(problem["cost"], z)), "seconds": seconds}


def clarabel(problem: Problem, limit: float) -> Answer:
    import clarabel as solver
    from scipy.sparse import csc_matrix, eye_array, vstack

    _, matrix = _whole_lp(problem)
    n, k = problem["cost"].shape
    rows = len(problem["pairs"]) * 2 * k
    stacked = csc_matrix(vstack([matrix[rows:], matrix[:rows], -eye_array(n * k)]))
    right = np.r_[np.ones(n), np.zeros(rows + n * k)]
    settings = solver.DefaultSettings()
    settings.verbose, settings.time_limit = False, limit
    cones = [solver.ZeroConeT(n), solver.NonnegativeConeT(rows + n * k)]
    began = clock()
    quadratic = csc_matrix((n * k, n * k))
    answer = solver.DefaultSolver(quadratic, problem["cost"].ravel(), stacked, right, cones, settings).solve()
    seconds = since(began)
    if str(answer.status) not in ("Solved", "AlmostSolved"):
        return {"note": str(answer.status), "seconds": seconds}
    z = np.array(answer.x).reshape(n, k)
    return {"z": z, "loss": float(np.vdot(problem["cost"], z)), "seconds": seconds, "bound": float(answer.obj_val_dual)}


def scipy_linprog(problem: Problem, limit: float) -> Answer:
    from scipy.optimize import linprog

    _, matrix = _whole_lp(problem)
    rows = matrix.shape[0] - len(problem["cost"])
    began = clock()
    answer = linprog(
        problem["cost"].ravel(), A_ub=matrix[:rows], b_ub=np.zeros(rows), A_eq=matrix[rows:],
        b_eq=np.ones(len(problem["cost"])), method="highs-ds", options={"time_limit": limit},
    )  # fmt: skip
    seconds = since(began)
    if answer.status != 0:
        return {"note": answer.message.split(".")[0][:40], "seconds": seconds}
    return {"z": answer.x.reshape(problem["cost"].shape), "loss": float(answer.fun), "seconds": seconds}


def libqif(problem: Problem, limit: float) -> Answer:
    del limit
    import qif

    n = len(problem["cost"])
    far = np.full((n, n), np.inf)
    far[tuple(problem["pairs"].T)] = problem["epsilon"] * problem["distances"]
    far = np.minimum(far, far.T)
    np.fill_diagonal(far, 0)
    prior = np.full(n, 1 / n)
    began = clock()
    z = np.asarray(
        qif.mechanism.d_privacy.min_loss_given_d(
            prior, n, lambda i, j: float(far[i, j]), lambda i, k: float(problem["cost"][i, k] * n)
        )
    )
    seconds = since(began)
    return {"z": z, "loss": float(np.vdot(problem["cost"], z)), "seconds": seconds}


SOLVERS: dict[str, Callable[[Problem, float], Answer]] = {
    "privopt auto": ours("auto"),
    "privopt column-generation": ours("column-generation"),
    "privopt interior-point": ours("interior-point"),
    "CBC dual": cbc,
    "HiGHS simplex": highs("simplex"),
    "HiGHS ipm": highs("ipm"),
    "Clarabel": clarabel,
    "scipy linprog": scipy_linprog,
    "libqif": libqif,
}
OTHERS = tuple(name for name in SOLVERS if not name.startswith("privopt"))
OWN = ("privopt auto", "privopt column-generation", "privopt interior-point")
QUICK: list[tuple[str, Callable[[], Problem | None], tuple[str, ...]]] = [
    ("49 cells, 8nb, e = .7", lambda: grid(7, "8nb", 0.7), OWN + OTHERS),
    ("100 cells, 8nb, e = .7", lambda: grid(10, "8nb", 0.7), OWN + OTHERS),
]
FULL = [
    *QUICK,
    ("100 cells, 8nb, e = .2", lambda: grid(10, "8nb", 0.2), OWN + OTHERS),
    ("100 cells, all pairs, e = .7", lambda: grid(10, "all", 0.7), (*OWN, "Clarabel", "HiGHS ipm")),
    ("196 cells, 8nb, e = .7", lambda: grid(14, "8nb", 0.7), (*OWN, "Clarabel")),
    ("196 cells, all pairs, e = .7", lambda: grid(14, "all", 0.7), OWN),
    ("400 cells, 8nb, e = .7", lambda: grid(20, "8nb", 0.7), OWN),
    ("400 cells, 8nb, e = .2", lambda: grid(20, "8nb", 0.2), ("privopt auto",)),
    ("900 cells, 8nb, e = .7", lambda: grid(30, "8nb", 0.7), OWN),
    ("1600 cells, 8nb, e = .7", lambda: grid(40, "8nb", 0.7), ("privopt auto",)),
    ("1600 cells, 8nb, e = 1.5", lambda: grid(40, "8nb", 1.5), ("privopt auto",)),
    ("1600 cells, 8nb, e = 5", lambda: grid(40, "8nb", 5.0), ("privopt auto",)),
    ("400 Rome cells, 10 per km", lambda: rome(400, 10.0), ("privopt auto",)),
    ("400 Rome cells, 2 per km", lambda: rome(400, 2.0), ("privopt auto",)),
    ("400 Rome cells, 1 per km", lambda: rome(400, 1.0), ("privopt auto",)),
    ("10,000 cells, 8nb, e = 2", lambda: grid(100, "8nb", 2.0), ("privopt auto",)),
]


def _private(problem: Problem, z: np.ndarray, repaired: bool) -> str:
    """Verdict of exact arithmetic on the answer: as it is, or (ours) after the repair that every release gets."""
    from privopt.exact import TOTAL, certify, lower_bound, repair

    del lower_bound
    epsilon = Fraction(problem["epsilon"])
    if repaired:
        done = repair(z, problem["pairs"], problem["distances"], epsilon, loss=problem["cost"])
        loss = float((problem["cost"] * done.weights).sum() / TOTAL)
        return f"yes, loss {loss:.9g}" if done.measured.holds else "no"
    z = np.maximum(z, 0)
    weights = np.minimum(np.rint(z / z.sum(axis=1, keepdims=True) * 2.0**63), 2.0**63 - 1024).astype(np.uint64)
    for row in weights:
        at = int(row.argmax())
        row[at] = TOTAL - (sum(map(int, row)) - int(row[at]))
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
    lines = ["| method | pairs, e | sizes | cpu seconds | slope |", "| --- | --- | --- | --- | --- |"]
    cases = [
        ("star", "8nb", 2.0, (20, 30, 40)),
        ("column-generation", "8nb", 0.7, (14, 20, 30)),
        ("column-generation", "all", 0.7, (8, 10, 14)),
        ("interior-point", "8nb", 0.2, (10, 14, 20)),
        ("interior-point", "all", 0.7, (8, 10, 14)),
    ]
    for method, pairs, epsilon, sides in cases:
        SOLVERS[method] = ours(method)
        times = [run_one(method, grid(side, pairs, epsilon), limit).get("seconds", (0, np.nan))[1] for side in sides]
        slope = np.log(times[-1] / times[-2]) / np.log((sides[-1] / sides[-2]) ** 2)
        shown = ", ".join(f"{t:.2f}" for t in times)
        sizes = ", ".join(str(side**2) for side in sides)
        lines.append(f"| {method} | {pairs}, {epsilon:g} | {sizes} | {shown} | {slope:.1f} |")
        print(lines[-1], flush=True)
    return lines


for _method in ("star", "column-generation", "interior-point"):  # so that spawned processes know them too
    SOLVERS[_method] = ours(_method)


def write(path: Path, limit: float, table: list[str], growth: list[str]) -> None:
    """Write what there is so far: a run that is broken off leaves its lines."""
    text = [
        "# Benchmarks of the optimal-mechanism solvers",
        "",
        f"Written by `python tests/bench/bench_optimal.py` on {os.cpu_count()} processors "
        f"(load {os.getloadavg()[0]:.1f} at the end, limit {limit:g} s a solve). "
        "Seconds are of the solve alone, after imports: wall clock, and of all processors together. "
        "Privacy is checked in exact integers: privopt's answers after the repair that every release gets, "
        "the others as they came, rounded to 63 bits. Unit grids, uniform prior, cost the Euclidean distance; "
        "8nb: edges to the 8 neighbours; e: epsilon times cell size.",
        "",
        *table,
    ]
    if growth:
        text += ["", "## How time grows with the records", "", *growth]
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
            table.append(line(instance, name, run_one(name, problem, options.limit)))
            print(table[-1], flush=True)
            write(options.write, options.limit, table, [])
    growth = [] if options.quick or options.only else slopes(options.limit)
    write(options.write, options.limit, table, growth)


if __name__ == "__main__":
    main()
