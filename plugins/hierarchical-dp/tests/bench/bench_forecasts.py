"""Errors that ``plan`` forecasts beside those of releases: ``python bench_forecasts.py [TRIALS] [MECHANISM]``.

Every method, notion and relation that has a forecast, on counts so large that nothing is cut off at 0: what ``plan``
tells of regions alone is about those. A line each: forecast over the mean real error, by level (of several tables: by
table within a level), with standard errors, at the method's own split and at an uneven one. ``*`` marks ratios outside
.93 to 1.08 by more than two standard errors; the number of these is the exit code.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from privopt.declare import File
from privopt_hierarchical_dp.design import Design, FitOptions
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.plan import forecast_errors
from privopt_hierarchical_dp.problem import HierarchyProblem, HierarchyTable, Privacy
from privopt_hierarchical_dp.relations import RELATIONS, TABLE_RELATIONS
from privopt_hierarchical_dp.sizes import SizesDesign
from privopt_hierarchical_dp.tables.design import TablesDesign
from privopt_hierarchical_dp.tables.problem import CountTable, TablesHierarchy, TablesPrivacy, TablesProblem
from privopt_hierarchical_dp.tree import Tree, add_up

LOW, HIGH = 0.93, 1.08
PATHS: Final = [("all", f"s{state}", f"s{state}c{county}") for state in range(4) for county in range(6)]
SIZES, AGES, TENURES = 6, 4, 2
BUDGETS: Final = (
    {"epsilon": Fraction(1, 2)},
    {"kind": "zcdp", "rho": Fraction(1, 20)},
    {"kind": "approx-dp", "epsilon": Fraction(1), "delta": Fraction(1, 10**6)},
)
UNEVEN: Final = (Fraction(1, 10), Fraction(3, 10), Fraction(6, 10))
TABLES: Final = {"age": ("age",), "age_tenure": ("age", "tenure"), "people": ()}


def make_size_designs() -> Iterator[tuple[str, Design, list[np.ndarray]]]:
    """Designs of hierarchical-dp with their true counts by level."""
    tree, rng = Tree.from_paths(PATHS), np.random.default_rng(1)
    leaves = rng.integers(4_000, 40_000, (len(PATHS), SIZES))
    for method, budget, relation in product(METHODS, BUDGETS, RELATIONS):
        if METHODS[method].query == "chain":
            continue
        privacy = Privacy(**budget, relation=relation, max_household=3 if relation == "replaced" else None)
        problem = HierarchyProblem(hierarchy=HierarchyTable(sizes=SIZES), privacy=privacy)
        yield f"{method} {privacy.kind} {relation}", SizesDesign.of(problem, method, tree), add_up(tree, leaves)


def make_table_designs() -> Iterator[tuple[str, Design, list[list[np.ndarray]]]]:
    """Designs of hierarchical-tables, of one table and of three."""
    rng = np.random.default_rng(1)
    leaves = rng.integers(4_000, 40_000, (len(PATHS), AGES, TENURES))
    true = {"age": leaves.sum(axis=2), "age_tenure": leaves, "people": leaves.sum(axis=(1, 2))}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "regions.csv"
        path.write_text("level_1,level_2,level_3\n" + "".join(",".join(budget) + "\n" for budget in PATHS))
        for names, budget, relation in product((("age",), tuple(TABLES)), BUDGETS, TABLE_RELATIONS):
            privacy = TablesPrivacy(**budget, relation=relation, max_household=3 if relation == "replaced" else None)
            hierarchy = TablesHierarchy(
                regions=File.read(path),
                attributes={"age": tuple("abcd"), "tenure": tuple("or")},
                tables={name: CountTable(by=TABLES[name]) for name in names},
            )
            design = TablesDesign.of(TablesProblem(hierarchy=hierarchy, privacy=privacy), "problem.toml")
            counts = [add_up(design.tree, true[name]) for name in names]
            yield f"{len(names)} table(s) {privacy.kind} {relation}", design, counts


def errors(design: Design, true: list[list[np.ndarray]], trials: int) -> np.ndarray:
    """Return (trials, parts) sums of absolute errors, level by level each table's."""
    error_sums = []
    for seed in range(trials):
        noisy, _ = design.draw(true, seed=seed)
        totals = [level.reshape(len(level), -1).sum(axis=1) for level in true[0][: design.exact]]
        counts = design.fit(noisy, totals, FitOptions(gap=1e-4)).counts
        by_table = [
            [np.abs(a - b).sum() for a, b in zip(*level_pair, strict=True)]
            for level_pair in zip(counts, true, strict=True)
        ]
        error_sums.append(np.ravel(by_table, order="F"))
    return np.array(error_sums, dtype=float)


def main(trials: int, mechanism: str) -> int:
    """Print a line for each design and split; return how many ratios are outside."""
    outside_count = 0
    for name, design, true in make_table_designs() if mechanism == "hierarchical-tables" else make_size_designs():
        if mechanism not in (design.method, "hierarchical-tables"):
            continue
        for split in dict.fromkeys((design.split[0], UNEVEN)):
            split_design, start = design.with_split(split, design.split[1]), time.process_time()
            measured_errors = errors(split_design, [true] if isinstance(design, SizesDesign) else true, trials)
            # what is public is forecast to have no error
            mean = np.where(measured_errors.any(axis=0), measured_errors.mean(axis=0), 1e-9)
            ratio = (
                np.where(
                    measured_errors.any(axis=0), forecast_errors(split_design), forecast_errors(split_design) + 1e-9
                )
                / mean
            )
            doubt = ratio * measured_errors.std(axis=0, ddof=1) / np.sqrt(trials) / mean
            is_outside = (ratio + 2 * doubt < LOW) | (ratio - 2 * doubt > HIGH)
            outside_count += int(is_outside.sum())
            ratios = " ".join(
                f"{r:.3f}{'*' if b else ''} ({d:.3f})" for r, d, b in zip(ratio, doubt, is_outside, strict=True)
            )
            shares = " ".join(f"{float(fraction):.2f}" for fraction in split)
            print(f"{name} [{shares}]: {ratios}  {time.process_time() - start:.1f} s", flush=True)
    return outside_count


if __name__ == "__main__":
    sys.exit(
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 200, sys.argv[2] if len(sys.argv) > 2 else "hierarchical-dp")
    )
