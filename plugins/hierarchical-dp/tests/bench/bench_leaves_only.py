"""Errors beside the simplest way of all, level by level: ``bench_leaves_only.py default|plan [SEEDS] [DATA] [BUDGET]``.

The simplest way is the whole budget on the counts of the leaf regions, added up to the levels above, and nothing else
done; its errors are those of the discrete law. Others' are means over seeds of noise. ``default``: the default method
with its own split, by level: at most 1.02 is wanted. ``plan``: the split that ``plan`` proposes for the errors that
matter (10, 3 and 1 from the root down), in that sum; and the least forecast over a grid of twentieths over that of the
continuous search: at least 1 is wanted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import polars as pl

HERE: Final = Path(__file__).parents[2]
sys.path[:0] = [str(HERE / "experiments"), str(HERE / "tests" / "bench"), str(HERE.parents[1] / "tests")]

from bench_forecasts import errors  # noqa: E402 (it stands beside this file)
from helpers.data import data_path  # noqa: E402

from hierarchical_dp_paper.generate import census  # noqa: E402 (the experiments stand beside the tests)
from privopt.declare import File  # noqa: E402
from privopt.interfaces import SolveContext  # noqa: E402
from privopt_hierarchical_dp.design import Design  # noqa: E402
from privopt_hierarchical_dp.groups import read_counts  # noqa: E402
from privopt_hierarchical_dp.methods import METHODS  # noqa: E402
from privopt_hierarchical_dp.plan import forecast_errors, least_split, plan  # noqa: E402
from privopt_hierarchical_dp.problem import HierarchyProblem, HierarchyTable, PlanSettings, Privacy  # noqa: E402
from privopt_hierarchical_dp.release import Tables  # noqa: E402
from privopt_hierarchical_dp.sizes import SizesDesign  # noqa: E402
from privopt_hierarchical_dp.tables.design import TablesDesign  # noqa: E402
from privopt_hierarchical_dp.tables.problem import (  # noqa: E402
    CountTable,
    TablesHierarchy,
    TablesPlan,
    TablesPrivacy,
    TablesProblem,
)
from privopt_hierarchical_dp.tree import Tree, add_up  # noqa: E402

SIZES: Final = 60
MATTERS: Final = {"level_1": Fraction(10), "level_2": Fraction(3), "level_3": Fraction(1)}
BUDGETS: Final = {
    "default": (
        *({"epsilon": Fraction(epsilon_text)} for epsilon_text in ("1/10", "1", "10")),
        *({"kind": "zcdp", "rho": Fraction(epsilon_text)} for epsilon_text in ("1/200", "1/2", "50")),
    ),
    "plan": (
        *({"epsilon": Fraction(epsilon_text)} for epsilon_text in ("1/10", "1")),
        *({"kind": "zcdp", "rho": Fraction(epsilon_text)} for epsilon_text in ("1/200", "1/2")),
    ),
}


def _groups(name: str, folder: Path, budget_name: str) -> Iterator[tuple[Design, Tables]]:
    """Return groups by size: flights by route, or the synthetic census."""
    if name == "flights":
        flights = read_counts(File.read(HERE / "tests" / "data" / "flights.parquet"), SIZES)
        tree, leaves = flights.tree, flights.leaves
    else:
        people = census(sizes=SIZES, groups=3_000_000, individuals=None)
        tree, leaves = people.tree, people.leaves
    like = folder / "like.csv"
    paths = np.array(list(_paths(tree)))
    row, size = np.nonzero(np.ones_like(leaves))
    frame = {f"level_{level + 1}": paths[row, level] for level in range(tree.depth)}
    pl.DataFrame(frame | {"size": size + 1, "groups": leaves.ravel()}).write_csv(like)
    for privacy in BUDGETS[budget_name]:
        problem = HierarchyProblem(
            hierarchy=HierarchyTable(sizes=SIZES, like=File.read(like)),
            privacy=Privacy(**privacy),
            plan=PlanSettings(errors=MATTERS),
        )
        yield SizesDesign.of(problem, next(iter(METHODS)), tree), [add_up(tree, leaves)]


def _paths(tree: Tree) -> Iterator[tuple[str, ...]]:
    for leaf in range(tree.widths[-1]):
        region, path = leaf, [tree.names[-1][leaf]]
        for level in range(tree.depth - 1, 0, -1):
            region = int(tree.parents(level)[region])
            path.insert(0, tree.names[level - 1][region])
        yield tuple(path)


def _persons(folder: Path, budget_name: str) -> Iterator[tuple[Design, Tables]]:
    """Return persons of 3,142 real counties by age and by age and tenure, drawn at random."""
    rows = pl.read_csv(data_path("us_counties", "co_est2019.csv"), infer_schema_length=10_000)
    rows = rows.filter(pl.col("SUMLEV") == 50)
    path = folder / "regions.csv"
    levels = {
        "level_1": pl.lit("US"),
        "level_2": pl.col("STNAME"),
        "level_3": pl.col("STNAME") + "/" + pl.col("CTYNAME"),
    }
    rows = rows.with_columns(**levels)
    rows.select(*levels).write_csv(path)
    places = rows.select(*levels).rows()
    rng = np.random.default_rng(3)
    persons = [rng.multinomial(privacy, rng.dirichlet(np.ones(8))) for privacy in rows["POPESTIMATE2019"].to_list()]
    for privacy in BUDGETS[budget_name]:
        hierarchy = TablesHierarchy(
            regions=File.read(path),
            attributes={"age": tuple("abcd"), "tenure": tuple("or")},
            tables={"age": CountTable(by=("age",)), "age_tenure": CountTable(by=("age", "tenure"))},
        )
        asks = TablesPlan(errors={"age": MATTERS, "age_tenure": MATTERS})
        design = TablesDesign.of(
            TablesProblem(hierarchy=hierarchy, privacy=TablesPrivacy(**privacy), plan=asks), "p.toml"
        )
        leaves = np.zeros((len(persons), 4, 2), np.int64)
        leaves[[design.regions.leaves[row] for row in places]] = np.reshape(persons, (-1, 4, 2))
        yield design, [add_up(design.tree, leaves.sum(axis=2)), add_up(design.tree, leaves)]


def main(budget_name: str, seeds: int, only: str, budget: str) -> None:
    """Print a line for each data set and budget."""
    for name in ("flights", "census", "counties"):
        if only not in ("", name):
            continue
        with TemporaryDirectory() as name_of_folder:
            folder = Path(name_of_folder)
            for design, true in (
                _persons(folder, budget_name) if name == "counties" else _groups(name, folder, budget_name)
            ):
                privacy = design.problem.privacy
                if budget not in ("", f"{privacy.kind} {privacy.budget}"):
                    continue
                summary = (
                    _default(design, true, seeds) if budget_name == "default" else _compare_planned(design, true, seeds)
                )
                print(f"{name} {privacy.kind} {privacy.budget}: {summary}", flush=True)


def _default(design: Design, true: Tables, seeds: int) -> str:
    ratio = errors(design, true, seeds) / design.leaves_only()
    doubt = ratio.std(axis=0, ddof=1) / np.sqrt(seeds)
    return " ".join(f"{mean_ratio:.3f} ({d:.3f})" for mean_ratio, d in zip(ratio.mean(axis=0), doubt, strict=True))


def _compare_planned(design: Design, true: Tables, seeds: int) -> str:
    plan_found = plan(design.problem, "p.toml", SolveContext(method=design.method))
    weigh, depth, tables = np.array(plan_found.weights, dtype=float), design.tree.depth, len(design.layout.forms)
    shares = [plan_found.best[0][level * tables : (level + 1) * tables] for level in range(depth)]
    levels = tuple(sum(part, Fraction(0)) for part in shares)
    of_tables = tuple(sum(part, Fraction(0)) for part in zip(*shares, strict=True))
    best = design.with_split(levels, of_tables)
    ratio = errors(best, true, seeds) @ weigh / (design.leaves_only() @ weigh)
    smooth = least_split(design, plan_found.weights, share_below=1.0)
    parts = [(*part, 20 - sum(part)) for part in product(range(20), repeat=depth - 1) if sum(part) < 20]
    grid = (
        forecast_errors(design.with_split(tuple(Fraction(part, 20) for part in point), smooth[1])) for point in parts
    )
    min_error = min(float(part @ weigh) for part in grid) / float(forecast_errors(design.with_split(*smooth)) @ weigh)
    formatted = " ".join(f"{float(part):.3f}" for part in (*levels, *of_tables))
    doubt = ratio.std(ddof=1) / np.sqrt(seeds)
    return f"{ratio.mean():.3f} ({doubt:.3f}) of leaves only, grid / found {min_error:.4f}, split {formatted}"


if __name__ == "__main__":
    words = [*sys.argv[1:], *("default", "20", "", "")[len(sys.argv) - 1 :]]
    main(words[0], int(words[1]), words[2], words[3])
