"""Table 7 with Figures 8 and 9, Figure 7, the split of the budget over the levels, and all methods at equal splits.

Errors, violations and runtime on a census and on taxi data in the shape of the paper's; --quick does all of it on data
a thousandth as large. The noise comes from privopt.numbers.noise under seeds, so every figure can be had again; nothing
here is a private release.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import frozen

from experiments import pictures as drawing
from experiments.command import Study, say
from experiments.tables import Row, Sheet, number, summary, write_rows
from hierarchical_dp_paper import equal_splits, runtimes
from hierarchical_dp_paper.generate import Census, census, taxi
from hierarchical_dp_paper.pictures import PICTURES
from hierarchical_dp_paper.published import TABLE_7
from hierarchical_dp_paper.trials import Trial, run_methods

__all__ = ["STUDY", "main"]

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


@frozen(kw_only=True)
class Plan:
    """How much is run.

    Attributes:
        out: folder of tables and pictures.
        quick: small data.
        runs: of each method.
        seed: of data when quick, and of noise.
        methods: rows of Table 7.
        limit: seconds of a method in Figure 7.
        counties, zones: files for the real spread over counties, and the real zones; None: made up.
    """

    out: Path
    quick: bool
    runs: int
    seed: int
    methods: Sequence[str]
    limit: float
    counties: Path | None
    zones: Path | None

    def data(self, name: str) -> Census:
        """Return the census, or the taxis' pick-ups."""
        return _data(name, self.seed if self.quick else None, self.counties if name == "census" else self.zones)


@cache
def _data(name: str, quick: int | None, shape: Path | None) -> Census:
    if quick is None:
        return census(counties=shape) if name == "census" else taxi(zones=shape)
    if name == "census":
        return census(sizes=30, groups=40_000, individuals=None, seed=quick, counties=shape)
    return taxi(sizes=40, pickups=30_000, taxis=40, seed=quick, zones=shape)


def _levels(depth: int) -> list[str]:
    return [f"level_{level + 1}" for level in range(depth)]


def _error_row(trial: Trial) -> Row:
    return {"method": trial.method, **dict(zip(_levels(len(trial.errors)), trial.errors, strict=True))}


def _table_7(plan: Plan, name: str) -> None:
    """Every run is in ``runs_NAME.csv`` as it ends, and the table is written anew after each."""
    data = plan.data(name)
    levels, columns = data.levels, _levels(data.tree.depth)
    sheet = Sheet(plan.out / f"runs_{name}.csv", ("run", "epsilon", "method"), (*columns, "violations", "seconds"))
    for run in range(plan.runs):
        for epsilon in EPSILONS:
            key = {"run": run, "epsilon": float(epsilon)}
            missing_methods = [method for method in plan.methods if not sheet.has(**key, method=method)]
            trials = run_methods(missing_methods, data, levels, epsilon, seed=plan.seed + 1000 * run)
            sheet.add(
                *({**key, **_error_row(t), "violations": t.broken, "seconds": round(t.seconds, 3)} for t in trials)
            )
        rows = [_row(name, float(e), method, columns, sheet) for e in EPSILONS for method in plan.methods]
        write_rows(plan.out / f"table_7_{name}.csv", list(rows[0]), rows)
        say(f"table 7, {name}: run {run + 1} of {plan.runs}")


def _row(name: str, epsilon: float, method: str, columns: Sequence[str], sheet: Sheet) -> dict[str, Any]:
    run_rows = sheet.where(epsilon=epsilon, method=method)
    row: dict[str, Any] = {"data": name, "epsilon": epsilon, "method": method, "runs": len(run_rows)}
    row |= _means(run_rows, columns)
    for column in ("violations", "seconds"):
        row[column], row[f"{column}_sd"] = summary(number(run[column]) for run in run_rows)
    paper = TABLE_7.get((name, epsilon, method))
    unit = 1e4 if name == "taxi" else 1e3
    return row | {f"paper_{level + 1}": None if paper is None else paper[level] * unit for level in range(3)}


def _means(rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> dict[str, float]:
    """Mean and standard deviation of the errors by level."""
    means: dict[str, float] = {}
    for column in columns:
        means[column], means[column.replace("level", "sd")] = summary(number(run[column]) for run in rows)
    return means


def census_table(plan: Plan) -> None:
    """Errors by level, violations and runtime of each method on the census."""
    _table_7(plan, "census")


def taxi_table(plan: Plan) -> None:
    """Write the same table for the taxis' pick-ups."""
    _table_7(plan, "taxi")


def splits(plan: Plan) -> None:
    """Errors by level for each split of the budget and each cumulative method, on the census."""
    data = plan.data("census")
    levels, columns = data.levels, _levels(data.tree.depth)
    sheet = Sheet(plan.out / "runs_splits.csv", ("run", "epsilon", "split", "method"), columns)
    rows: list[Row] = []
    for epsilon in EPSILONS[:1] if plan.quick else EPSILONS:
        for split in SPLITS[:3] if plan.quick else SPLITS:
            shares = [Fraction(part, sum(split)) for part in split]
            key = {"epsilon": float(epsilon), "split": ":".join(map(str, split))}
            for run in range(max(1, plan.runs // 10)):
                seed = plan.seed + 1000 * run

                def make(epsilon: Any = epsilon, shares: Any = shares, seed: int = seed) -> list[Row]:
                    trials = run_methods(SPLIT_METHODS, data, levels, epsilon, shares=shares, seed=seed)
                    return [_error_row(trial) for trial in trials]

                sheet.once({**key, "run": run}, make)
            rows += [{**key, "method": m, **_means(sheet.where(**key, method=m), columns)} for m in SPLIT_METHODS]
        write_rows(plan.out / "splits.csv", list(rows[0]), rows)


def figure_7(plan: Plan) -> None:
    """Runtime of every method over N, each in a process of its own that is ended at the time-out."""
    sheet = Sheet(plan.out / "figure_7.csv", ("method", "N"), ("seconds",))
    for method in (*runtimes.METHODS, *TABLE_METHODS):
        for sizes in (4,) if plan.quick else range(5, 51, 5):

            def make(method: str = method, sizes: int = sizes) -> list[Row]:
                seconds = float("inf")
                if not any(row["seconds"].startswith("over") for row in sheet.where(method=method)):
                    seconds = runtimes.seconds_within(plan.limit, method, sizes, plan.seed, plan.quick)
                # larger N takes longer still
                seconds_text = seconds if np.isfinite(seconds) else f"over {plan.limit:g}"
                say(f"{method}, N = {sizes}: {seconds_text}")
                return [{"seconds": seconds_text}]

            sheet.once({"method": method, "N": sizes}, make)


def compare_methods(plan: Plan) -> None:
    """Every method at the same split, region totals public, by three measures, on the census and on flights."""
    equal_splits.compare(plan.out, max(1, plan.runs // 3), plan.seed, EPSILONS, quick=plan.quick)


PARTS: Final[dict[str, Callable[[Plan], None]]] = {
    "census": census_table,
    "splits": splits,
    "equal-splits": compare_methods,
    "taxi": taxi_table,
    "figure-7": figure_7,
}


def _plan(arguments: Namespace) -> Plan:
    quick = arguments.size == "quick"
    return Plan(
        out=arguments.out,
        quick=quick,
        runs=arguments.runs or (2 if quick else 30),
        seed=arguments.seed,
        methods=arguments.methods,
        limit={"quick": 10.0, "usual": 60.0, "full": 1800.0}[arguments.size],
        counties=arguments.counties,
        zones=arguments.zones,
    )


def _options(parser: ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, help="runs of each method (30; --quick: 2)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--methods", nargs="+", choices=TABLE_METHODS, default=TABLE_METHODS, help="rows of Table 7")
    parser.add_argument("--counties", type=Path, help="co_est2019.csv, for the real spread over counties")
    parser.add_argument("--zones", type=Path, help="taxi_zone_lookup.csv, for the real zones")


STUDY: Final = Study(
    plugin="hierarchical-dp",
    about=__doc__ or "",
    parts=PARTS,
    plan=_plan,
    draw=lambda plan: drawing.draw(plan.out, PICTURES),
    options=_options,
    fixed=("size", "seed", "counties", "zones"),
)
main: Final = STUDY.run
