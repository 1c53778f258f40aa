"""The paper's experiments from one command: ``python plugins/hierarchical-dp/experiments --out results``.

Writes CSV files and pictures: Table 7 with Figs. 8 and 9 (errors, violations, runtime; census and
taxi), Fig. 7 (runtime over N), and the split of the budget over the levels. ``--quick`` does all of
it on data a thousandth as large. The noise comes from `privopt.noise` under seeds, so every figure
can be had again; nothing here is a private release.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, TimeoutError
from fractions import Fraction
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from hierarchical_dp_paper.generate import Census, census, taxi
from hierarchical_dp_paper.trials import PAPER_TABLE_7, Trial, run_methods
from privopt.errors import StoppedError
from privopt_hierarchical_dp.tree import Tree

__all__ = ["main"]

EPSILONS = (Fraction(1, 10), Fraction(1, 2), Fraction(1))
TABLE_METHODS = (
    "hierarchical-relaxed",
    "hierarchical-dp",
    "cumulative-relaxed",
    "cumulative-dp",
    "cumulative-chain-as-published",
    "top-down",
    "cumulative-chain",
    "cumulative-smoothed",
)
RUNTIME_METHODS = (
    "hierarchical",
    "cumulative",
    "tables-by-optimisation",
    "tables-by-merge",
    *TABLE_METHODS,
)
SPLITS = (
    (1, 1, 1),
    (2, 3, 5),
    (1, 2, 7),
    (1, 3, 6),
    (2, 2, 6),
    (3, 3, 4),
    (2, 4, 4),
    (1, 4, 5),
)
SPLIT_METHODS = ("cumulative-smoothed", "cumulative-chain", "cumulative-dp")


def _write(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(header)
        writer.writerows(rows)


def _summary(values: Sequence[float]) -> tuple[float, float]:
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return float(np.mean(values)), deviation


def table_7(
    name: str, data: Census, *, epsilons: Sequence[Fraction], methods: Sequence[str], runs: int, seed: int, out: Path
) -> list[dict[str, Any]]:
    """Errors by level, violations and runtime of each method: rows of the CSV.

    Every run is appended to ``runs_NAME.csv`` as it ends, and the table written anew after each, so
    that a stopped experiment leaves what it has.
    """
    levels = data.levels
    depth = data.tree.depth
    done: dict[tuple[Fraction, str], list[Trial]] = {(e, method): [] for e in epsilons for method in methods}
    rows: list[dict[str, Any]] = []
    with (out / f"runs_{name}.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        header = [
            "run",
            "epsilon",
            "method",
            *(f"level_{level + 1}" for level in range(depth)),
            "violations",
            "seconds",
        ]
        writer.writerow(header)
        for run in range(runs):
            for epsilon in epsilons:
                for trial in run_methods(methods, data, levels, epsilon, seed=seed + 1000 * run):
                    done[epsilon, trial.method].append(trial)
                    own = [run, float(epsilon), trial.method, *trial.errors, trial.broken, round(trial.seconds, 3)]
                    writer.writerow(own)
                stream.flush()
            rows = [_row(name, epsilon, method, depth, trials) for (epsilon, method), trials in done.items()]
            _write(out / f"table_7_{name}.csv", list(rows[0]), [list(row.values()) for row in rows])
    for row in rows:
        print(_line(row, depth), file=sys.stderr, flush=True)
    return rows


def _row(name: str, epsilon: Fraction, method: str, depth: int, trials: Sequence[Trial]) -> dict[str, Any]:
    row: dict[str, Any] = {"data": name, "epsilon": float(epsilon), "method": method, "runs": len(trials)}
    for level in range(depth):
        row[f"level_{level + 1}"], row[f"sd_{level + 1}"] = _summary([t.errors[level] for t in trials])
    row["violations"], row["violations_sd"] = _summary([t.broken for t in trials])
    row["seconds"], row["seconds_sd"] = _summary([t.seconds for t in trials])
    paper = PAPER_TABLE_7.get((name, float(epsilon), method))
    unit = 1e4 if name == "taxi" else 1e3
    for level in range(3):
        row[f"paper_{level + 1}"] = "" if paper is None else paper[level] * unit
    return row


def _line(row: dict[str, Any], depth: int) -> str:
    errors = "  ".join(
        f"{row[f'level_{level}'] / 1000:10.3f} +- {row[f'sd_{level}'] / 1000:7.3f}" for level in range(1, depth + 1)
    )
    return (
        f"{row['data']:7} {row['epsilon']:4} {row['method']:30} {errors}  "
        f"cv {row['violations']:9.1f}  {row['seconds']:7.2f} s"
    )


def splits(
    data: Census, *, epsilons: Sequence[Fraction], tried: Sequence[tuple[int, ...]], runs: int, seed: int, out: Path
) -> list[dict[str, Any]]:
    """Errors by level for each split of the budget and each cumulative method."""
    levels = data.levels
    rows: list[dict[str, Any]] = []
    for epsilon in epsilons:
        for split in tried:
            shares = [Fraction(part, sum(split)) for part in split]
            found: dict[str, list[tuple[int, ...]]] = {method: [] for method in SPLIT_METHODS}
            for run in range(runs):
                for trial in run_methods(SPLIT_METHODS, data, levels, epsilon, shares=shares, seed=seed + 1000 * run):
                    found[trial.method].append(trial.errors)
            for method, errors in found.items():
                row: dict[str, Any] = {"epsilon": float(epsilon), "split": ":".join(map(str, split)), "method": method}
                for level in range(3):
                    row[f"level_{level + 1}"], row[f"sd_{level + 1}"] = _summary([e[level] for e in errors])
                rows.append(row)
                shown = "  ".join(f"{row[f'level_{level}'] / 1000:9.3f}" for level in (1, 2, 3))
                print(f"{float(epsilon):4} {row['split']:6} {method:20} {shown}", file=sys.stderr, flush=True)
        _write(out / "splits.csv", list(rows[0]), [list(row.values()) for row in rows])
    return rows


# --- Fig. 7 ------------------------------------------------------------------------------------------


def _timed(method: str, sizes: int, seed: int, small: bool, limit: float) -> float:
    """Seconds that one method's post-processing takes on taxi data cut to N sizes."""
    from hierarchical_dp_paper.trials import task_of
    from privopt_hierarchical_dp import qip
    from privopt_hierarchical_dp.fitting import fit
    from privopt_hierarchical_dp.tables import merge_by_optimisation, paper_domain, table_merge, tree_tables

    data = _cut_taxi(sizes, seed, small)
    levels = data.levels
    named = {"hierarchical": "hierarchical-dp", "cumulative": "cumulative-dp"}.get(method, method)
    tables = method.startswith("tables")
    task = task_of("hierarchical-dp" if tables else named, data, levels, Fraction(1), shares=None, seed=seed)
    if not tables:  # compiled and loaded before the clock starts
        little = _cut_taxi(3, seed, small=True)
        run_methods([task.method], little, little.levels, Fraction(1), seed=seed)
        fit(task)
    begin = perf_counter()
    if tables:
        merge = merge_by_optimisation if method == "tables-by-optimisation" else table_merge
        scale = Fraction(2 * data.tree.depth)
        _tables_within(tree_tables, task, merge, lambda _level, value: paper_domain(value, scale))
    elif method in ("hierarchical", "cumulative"):
        start, _ = fit(task)
        cumulative = method == "cumulative"
        values = [np.cumsum(c, axis=1) for c in start.counts] if cumulative else start.counts
        try:
            found = qip.solve_exactly(
                task.tree, task.noisy, start=values, total=task.total, cumulative=cumulative, time_limit=limit
            )
        except StoppedError:
            return float("inf")
        if not found.proved:
            return float("inf")
    else:
        fit(task)
    return perf_counter() - begin


def _tables_within(solve: Any, task: Any, merge: Any, domain: Any) -> None:
    """The cost tables of every subtree, under the paper's domain rule; each size by itself.

    The last step, the choice among sizes, needs domains that reach G together; it is left out where
    the rule does not let them, as its cost is small beside the tables'.
    """
    for s in range(task.noisy[0].shape[1]):
        own = [level[:, s : s + 1] for level in task.noisy]
        try:
            solve(task.tree, own, total=max(0, int(own[0][0, 0])), domain=domain, merge=merge)
        except (ValueError, IndexError):
            continue


def _cut_taxi(sizes: int, seed: int, small: bool) -> Census:
    """Taxi data with the groups above N removed, as the paper does for its runtimes; ``small``: six zones."""
    if small:
        rows = [("city", f"borough {zone % 2}", f"zone {zone}") for zone in range(6)]
        rng = np.random.default_rng(seed)
        return Census(tree=Tree.from_paths(rows), leaves=rng.poisson(3.0, size=(6, sizes)).astype(np.int64))
    full = taxi(seed=seed)
    return Census(tree=full.tree, leaves=np.ascontiguousarray(full.leaves[:, :sizes]))


def figure_7(*, out: Path, sizes: Sequence[int], limit: float, seed: int, small: bool) -> list[dict[str, Any]]:
    """Runtime of every method over N, each in a process of its own that is ended at the time-out."""
    rows: list[dict[str, Any]] = []
    given_up: set[str] = set()
    for method in RUNTIME_METHODS:
        for size in sizes:
            seconds = float("inf")
            if method not in given_up:
                seconds = _within(limit, method, size, seed, small)
            if not np.isfinite(seconds):
                given_up.add(method)  # larger N takes longer still
            shown = seconds if np.isfinite(seconds) else f"over {limit:g}"
            rows.append({"method": method, "N": size, "seconds": shown})
            print(f"{method:30} N = {size:3}: {shown}", file=sys.stderr, flush=True)
        _write(out / "figure_7.csv", ["method", "N", "seconds"], [list(row.values()) for row in rows])
    return rows


def _within(limit: float, method: str, size: int, seed: int, small: bool) -> float:
    pool = ProcessPoolExecutor(max_workers=1)
    try:
        return pool.submit(_timed, method, size, seed, small, limit).result(timeout=limit + 30)
    except TimeoutError:
        for process in list(pool._processes.values()):
            process.kill()
        return float("inf")
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


# --- the command -------------------------------------------------------------------------------------


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python plugins/hierarchical-dp/experiments", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("hierarchical-dp-results"), help="folder for CSV and pictures")
    parser.add_argument("--quick", action="store_true", help="small data and few runs: minutes, not hours")
    parser.add_argument("--full", action="store_true", help="Fig. 7 with the paper's time-out of 30 minutes")
    parser.add_argument("--runs", type=int, help="runs of each method (30; --quick: 2)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=("census", "taxi", "figure-7", "splits"), help="parts to do")
    parser.add_argument("--methods", nargs="+", choices=TABLE_METHODS, default=TABLE_METHODS, help="rows of Table 7")
    parser.add_argument("--counties", type=Path, help="co_est2019.csv, for the real spread over counties")
    parser.add_argument("--zones", type=Path, help="taxi_zone_lookup.csv, for the real zones")
    return parser.parse_args(argv)


def _data(given: argparse.Namespace) -> Iterator[tuple[str, Census]]:
    if given.quick:
        yield "census", census(sizes=30, groups=40_000, individuals=None, seed=given.seed, counties=given.counties)
        yield "taxi", taxi(sizes=40, pickups=30_000, taxis=40, seed=given.seed, zones=given.zones)
    else:
        yield "census", census(counties=given.counties)
        yield "taxi", taxi(zones=given.zones)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiments; returns the exit code."""
    given = _arguments(argv)
    parts = set(given.only or ("census", "taxi", "figure-7", "splits"))
    runs = given.runs or (2 if given.quick else 30)
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    from hierarchical_dp_paper.pictures import draw_errors, draw_runtimes, draw_sizes

    for name, data in _data(given):
        if name in parts:
            rows = table_7(name, data, epsilons=EPSILONS, methods=given.methods, runs=runs, seed=given.seed, out=out)
            draw_errors(rows, out / f"figure_9_{name}.png")
            draw_runtimes(rows, out / f"figure_8_{name}.png")
        if name == "census" and "splits" in parts:
            chosen = EPSILONS[:1] if given.quick else EPSILONS
            tried = SPLITS[:3] if given.quick else SPLITS
            splits(data, epsilons=chosen, tried=tried, runs=max(1, runs // 10), seed=given.seed, out=out)
    if "figure-7" in parts:
        sizes = (4,) if given.quick else tuple(range(5, 51, 5))
        limit = 10.0 if given.quick else 1800.0 if given.full else 60.0
        draw_sizes(
            figure_7(out=out, sizes=sizes, limit=limit, seed=given.seed, small=given.quick), out / "figure_7.png"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
