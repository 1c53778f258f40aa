"""All methods at the same split of the budget, region totals public: L1, earth mover's distance, implied individuals.

With them methods Hc and Hg of Kuo et al. 2018, which are here alone. Hg measures the size of every group, in order, so
it draws as many noisy values a level as there are groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from time import perf_counter
from typing import Final

import numpy as np

from experiments.command import say
from experiments.tables import Row, Sheet, number, write_rows
from hierarchical_dp_paper.generate import Census, census
from hierarchical_dp_paper.matching import match_counts, match_down
from hierarchical_dp_paper.trials import Trial, judge_counts, noisy_levels, run_methods
from privopt.declare import File
from privopt.numbers.noise import discrete_laplace, split_budget
from privopt_hierarchical_dp.fits.isotonic import isotonic_integers
from privopt_hierarchical_dp.groups import read_counts
from privopt_hierarchical_dp.noise_distributions import noise_of

__all__ = ["METHODS", "compare", "cumulative_sizes", "group_sizes"]

METHODS: Final = (
    "cumulative-smoothed",
    "cumulative-chain",
    "cumulative-dp",
    "hierarchical-dp",
    "top-down",
)
HC: Final = "Hc of Kuo et al."
HG: Final = "Hg of Kuo et al."
SPLITS: Final = ((1, 1, 1), (2, 3, 5))
FLIGHTS: Final = Path(__file__).parents[2] / "tests" / "data" / "flights.parquet"
MOST_GROUPS: Final = 100_000
"""Groups up to which Hg is run."""
MEASURES: Final = ("l1", "earth_movers", "individuals")


def compare(folder: Path, runs: int, seed: int, epsilons: Sequence[Fraction], *, quick: bool) -> None:
    """Means over runs in ``equal_splits.csv``, one row a data set, epsilon, split and method."""
    columns = [f"{measure}_{level}" for measure in MEASURES for level in (1, 2, 3)]
    sheet = Sheet(folder / "runs_equal_splits.csv", ("data", "epsilon", "split", "run", "method"), columns)
    for name, data in _data(quick).items():
        for epsilon in epsilons[:1] if quick else epsilons:
            for split in SPLITS[:1] if quick else SPLITS:
                shares = [Fraction(part, sum(split)) for part in split]
                for run in range(runs):
                    key = {"data": name, "epsilon": float(epsilon), "split": ":".join(map(str, split)), "run": run}

                    def make(
                        data: Census = data,
                        epsilon: Fraction = epsilon,
                        shares: Sequence[Fraction] = shares,
                        run_seed: int = seed + 1000 * run,
                    ) -> list[Row]:
                        trials = run_methods(
                            METHODS, data, data.levels, epsilon, shares=shares, seed=run_seed, known=True
                        )
                        trials.append(cumulative_sizes(data, epsilon, shares, seed=run_seed))
                        if data.groups <= MOST_GROUPS:
                            trials.append(group_sizes(data, epsilon, shares, seed=run_seed))
                        return [_row(trial) for trial in trials]

                    sheet.once(key, make)
                say(f"equal splits, {name}: epsilon {float(epsilon):g}, {split}")
    _write(folder, sheet, columns)


def _row(trial: Trial) -> Row:
    named_values = zip(MEASURES, (trial.errors, trial.moved, trial.individuals), strict=True)
    values = {
        f"{measure}_{level}": value
        for measure, values_found in named_values
        for level, value in enumerate(values_found, start=1)
    }
    return {"method": trial.method, **values}


def _write(folder: Path, sheet: Sheet, columns: Sequence[str]) -> None:
    rows: dict[tuple[str, ...], list[Row]] = {}
    for row in sheet.where():
        rows.setdefault(tuple(str(row[name]) for name in ("data", "epsilon", "split", "method")), []).append(row)
    means: list[Row] = [
        dict(zip(("data", "epsilon", "split", "method"), key, strict=True))
        | {"runs": len(column_rows)}
        | {column: float(np.mean([number(row[column]) for row in column_rows])) for column in columns}
        for key, column_rows in rows.items()
    ]
    write_rows(folder / "equal_splits.csv", list(means[0]), means)


def _data(quick: bool) -> dict[str, Census]:
    flights = read_counts(File.read(FLIGHTS), 60)
    return {
        "census": census(sizes=60, groups=40_000, individuals=None) if quick else census(sizes=60),
        "flights": Census(tree=flights.tree, leaves=flights.leaves),
    }


def cumulative_sizes(data: Census, epsilon: Fraction, shares: Sequence[Fraction], *, seed: int) -> Trial:
    """Run method Hc on every level: noise of ``cumulative-dp`` where totals are public, rising counts, then matched."""
    budgets = split_budget(epsilon, shares)
    noisy = noisy_levels("cumulative-dp", data.levels, budgets, totals=True, seed=seed)
    start = perf_counter()
    totals = [level.sum(axis=1) for level in data.levels]
    matched = match_down(data.tree, noisy, noise=[noise_of(1 / budget) for budget in budgets], totals=totals)
    return judge_counts(HC, data, data.levels, matched, perf_counter() - start)


def group_sizes(data: Census, epsilon: Fraction, shares: Sequence[Fraction], *, seed: int) -> Trial:
    """Run method Hg on every level: noise on the size of each group, sorted, isotonic; then matched as for Hc."""
    budgets = split_budget(epsilon, shares)
    max_size = data.leaves.shape[1]
    fitted = []
    start = perf_counter()
    for level, (counts, budget) in enumerate(zip(data.levels, budgets, strict=True)):
        sizes = [np.repeat(np.arange(1, max_size + 1), region) for region in counts]
        level_seed = int(np.random.SeedSequence([seed, level]).generate_state(1, np.uint64)[0] >> 1)
        noisy, _ = discrete_laplace(np.concatenate(sizes), budget, seed=level_seed)
        split_points = np.cumsum([len(region) for region in sizes])[:-1]
        fitted.append(np.array([_count_sizes(region, max_size) for region in np.split(noisy, split_points)]))
    variances = [float(noise_of(1 / budget).variance) for budget in budgets]
    matched = match_counts(data.tree, fitted, variances)
    return judge_counts(HG, data, data.levels, matched, perf_counter() - start)


def _count_sizes(noisy: np.ndarray, max_size: int) -> np.ndarray:
    sizes_from_0 = isotonic_integers(noisy[None, :] - 1, high=np.array([max_size - 1]))[0]  # sizes from 1 on
    return np.bincount(sizes_from_0, minlength=max_size)
