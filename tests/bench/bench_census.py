"""Census tables beside two rivals at the same rho: ``bench_census.py [--small] [--runs 4] [--out FOLDER]``.

Persons of the 71 counties of four states (PRIVOPT_DATA, US Census Bureau 2019) by 19 ages and 2 sexes, one row each.
Their ages and sexes are invented: drawn from seeded shares that differ by county. The numbers of persons of the nation
and of the states are published exactly. The rest has zCDP with rho .1 if one person is replaced by another of the same
state, which changes two cells of a table by 1. Three ways publish the tables age_sex, age, sex and people:

- ``privopt solve hierarchical-tables``, with the split of the budget that ``plan`` finds, and with a third for each
  level and the same for each table;
- OpenDP's discrete Gaussian noise on the cells of counties alone: cut off at 0 and added up, exact numbers not used;
- a TopDown of our own with the same exact numbers and both splits: OpenDP's noise on each level and table, then from
  the nation down the non-negative least squares whose children add up to their parent, rounded before the next level.

Errors are sums of absolute errors over all cells of a table on a level. privopt's commands are processes of their own,
in processor seconds and peak memory by the kernel. Its noise and OpenDP's are not seeded: only the data are.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import frozen
from numpy.typing import NDArray
from scipy import sparse

ROOT: Final = Path(__file__).resolve().parents[2]
STATES: Final = ("Alaska", "Rhode Island", "Vermont", "Wyoming")
RHO: Final = 0.1
TABLES: Final = {"people": (), "age_sex": ("age", "sex"), "age": ("age",), "sex": ("sex",)}
REPORTED: Final = ("age_sex", "age", "people")
SPLIT_NAMES: Final = {"best": "shares of `plan`", "equal": "a third for each level"}
EXACT_LEVELS: Final = (1, 2)
"""The levels whose numbers of persons are exact, so that nobody measures the table ``people`` there."""
DISTANCE: Final = math.sqrt(2)  # of two neighbours' tables: two cells differ by 1

Figures = dict[tuple[str, int], float]
"""A figure of each table on each level."""
Shares = dict[tuple[str, int], Fraction]
"""The shares of rho of the tables on levels that are measured."""


@frozen
class Census:
    """The true counts of persons.

    Attributes:
        county_names: The counties, state by state.
        state_names: The state of each county.
        cells: (counties, ages, 2) The persons of each county by age and sex.
    """

    county_names: list[str]
    state_names: list[str]
    cells: NDArray[np.int64]

    @property
    def ages(self) -> list[str]:
        """The names of the ages."""
        return [f"a{number:02d}" for number in range(self.cells.shape[1])]

    @property
    def families(self) -> list[slice]:
        """The counties of each state."""
        starts = [n for n, name in enumerate(self.state_names) if n == 0 or name != self.state_names[n - 1]]
        return [slice(*ends) for ends in zip(starts, [*starts[1:], len(self.state_names)], strict=True)]

    def add_up(self, cells: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return the cells of the nation, the states and the counties from those of the counties."""
        states = np.stack([cells[family].sum(axis=0) for family in self.families])
        return [states.sum(axis=0, keepdims=True), states, cells]

    def region_names(self) -> list[list[str]]:
        """Return the names of the regions of each level, in the order of ``add_up``."""
        return [["Nation"], [self.state_names[family.start] for family in self.families], self.county_names]


@frozen
class Run:
    """What a command of privopt took and printed."""

    seconds: float
    mebibytes: float
    output: str


def read_counties() -> dict[tuple[str, str], int]:
    """Return the number of persons of each county of the four states, by state and county."""
    data = Path(os.environ.get("PRIVOPT_DATA") or ROOT.parent / "shared" / "data")
    with (data / "us_counties" / "co_est2019.csv").open() as stream:
        return {
            (row["STNAME"], f"{row['CTYNAME']} ({row['STNAME']})"): int(row["POPESTIMATE2019"])
            for row in csv.DictReader(stream)
            if row["SUMLEV"] == "50" and row["STNAME"] in STATES
        }


def draw_census(*, small: bool) -> Census:
    """Draw the ages and sexes of all persons from seeded shares that differ by county."""
    rng = np.random.default_rng(2019)
    sizes = {(f"S{n // 3}", f"C{n}"): 3_000 + 500 * n for n in range(6)} if small else read_counties()
    age_count = 4 if small else 19
    # Ages get rarer to the end, so that small counties have cells of a few persons.
    shares = rng.dirichlet(np.repeat(np.linspace(12, 1, age_count), 2))
    cells = [rng.multinomial(persons, rng.dirichlet(400 * shares)) for persons in sizes.values()]
    return Census(
        [county for _, county in sizes],
        [state for state, _ in sizes],
        np.array(cells, dtype=np.int64).reshape(len(sizes), age_count, 2),
    )


def write_persons(path: Path, census: Census) -> None:
    """Write a row for each person, county by county, to keep this process smaller than those that it measures."""
    with path.open("w") as stream:
        stream.write("level_1,level_2,level_3,age,sex\n")
        for state, county, cells in zip(census.state_names, census.county_names, census.cells, strict=True):
            for (age, sex), count in np.ndenumerate(cells):
                stream.write(f"Nation,{state},{county},{census.ages[age]},{'fm'[sex]}\n" * count)


def write_problem(path: Path, census: Census, *, equal_split: bool) -> None:
    """Write the problem file; without a split of its own, ``solve`` takes that of ``plan``."""
    names = ", ".join(f'"{age}"' for age in census.ages)
    path.write_text(
        '[hierarchy]\nregions = "draft-regions.csv"\nrecords = "persons.csv"\nexact = ["level_2"]\n'
        + ("budget = [1, 1, 1]\n" if equal_split else "")
        + f'[hierarchy.attributes]\nage = [{names}]\nsex = ["f", "m"]\n'
        + "".join(f"[hierarchy.tables.{table}]\nby = {json.dumps(columns)}\n" for table, columns in TABLES.items())
        + f'[privacy]\nkind = "zcdp"\nrho = {RHO}\n'
    )


def run_privopt(folder: Path, *arguments: str) -> Run:
    """Run a command of privopt in a folder.

    Raises:
        RuntimeError: The command failed; its standard error is printed.
    """
    with tempfile.TemporaryFile("w+") as output:
        command = [sys.executable, "-m", "privopt", *arguments]
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        messages = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{' '.join(command[2:])} ended with {process.returncode}\n{messages}")
        output.seek(0)
        return Run(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output.read())


def make_margin(cells: NDArray[np.int64], table: str) -> NDArray[np.int64]:
    """Return the counts of a table from cells by age and sex, shape (regions, cells of the table)."""
    kept = TABLES[table]
    axes = tuple(axis for axis, name in ((1, "age"), (2, "sex")) if name not in kept)
    return cells.sum(axis=axes).reshape(len(cells), -1)


def sum_errors(levels: list[NDArray[np.int64]], truth: list[NDArray[np.int64]]) -> Figures:
    """Return the sum of absolute errors of each table on each level."""
    return {
        (table, level): float(np.abs(make_margin(cells, table) - make_margin(true_cells, table)).sum())
        for level, (cells, true_cells) in enumerate(zip(levels, truth, strict=True), 1)
        for table in TABLES
    }


def read_release(folder: Path, census: Census) -> tuple[Figures, Figures]:
    """Return the errors of a release's counts, and the share of true counts that lie in their intervals."""
    errors, coverages = {}, {}
    truth = census.add_up(census.cells)
    for table, columns in TABLES.items():
        with (folder / "tables" / f"{table}.csv").open() as stream:
            rows = {(row["region"], *(row[name] for name in columns)): row for row in csv.DictReader(stream)}
        values = {"age": census.ages, "sex": ["f", "m"]}
        cells: list[tuple[str, ...]] = [()]
        for name in columns:
            cells = [(*cell, value) for cell in cells for value in values[name]]
        for level, (names, true_cells) in enumerate(zip(census.region_names(), truth, strict=True), 1):
            published = [[rows[name, *cell] for cell in cells] for name in names]
            counts, low, high = (
                np.array([[int(row[key]) for row in line] for line in published]) for key in ("count", "low", "high")
            )
            true_counts = make_margin(true_cells, table)
            errors[table, level] = float(np.abs(counts - true_counts).sum())
            coverages[table, level] = float(((low <= true_counts) & (true_counts <= high)).mean())
    return errors, coverages


class Curator:
    """Draws OpenDP's discrete Gaussian noise, and refuses to spend more than rho."""

    def __init__(self) -> None:
        """Start with nothing spent."""
        self.spent = 0.0

    def measure(self, counts: NDArray[np.int64], share: Fraction) -> NDArray[np.int64]:
        """Return noisy counts of one table, whose noise costs a share of rho.

        Raises:
            RuntimeError: All that was measured costs more than rho.
        """
        import opendp.prelude as dp

        dp.enable_features("contrib")
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
        # A little wider than needed, because OpenDP rounds the cost up.
        scale = DISTANCE / math.sqrt(2 * float(share) * RHO) * (1 + 1e-9)
        measurement = dp.m.make_gaussian(*space, scale=scale)
        self.spent += measurement.map(DISTANCE)
        if self.spent > RHO:
            raise RuntimeError(f"expected a cost of at most {RHO}, got {self.spent}")
        return np.array(measurement(counts.ravel().tolist()), dtype=np.int64).reshape(counts.shape)


def add_up_leaves(census: Census) -> list[NDArray[np.int64]]:
    """Measure the cells of counties alone, cut them off at 0, and add them up."""
    noisy = Curator().measure(census.cells.reshape(len(census.cells), -1), Fraction(1))
    return census.add_up(np.maximum(noisy, 0).reshape(census.cells.shape))


def margin_matrix(table: str, age_count: int) -> sparse.csr_array:
    """Return the 0-1 matrix that adds up the cells of a region, by age and sex, to those of a table."""
    by_age = np.eye(age_count) if "age" in TABLES[table] else np.ones((1, age_count))
    by_sex = np.eye(2) if "sex" in TABLES[table] else np.ones((1, 2))
    return sparse.csr_array(np.kron(by_age, by_sex))


def fit_children(
    noisy: Mapping[str, NDArray[np.int64]],
    weights: Mapping[str, float],
    parent: NDArray[np.int64] | None,
    totals: NDArray[np.int64] | None,
) -> NDArray[np.float64]:
    """Return the cells of at least 0 of the children of a region that are nearest to their noisy tables.

    Args:
        noisy: The noisy counts of each measured table, shape (children, cells of the table).
        weights: The weight of each table's squared residuals: the inverse of the variance of its noise.
        parent: (cells,) What the children's cells add up to; None for the root.
        totals: (children,) The exact number of persons of each child, if it is known.

    Raises:
        RuntimeError: The solver did not find the optimum.
    """
    import clarabel

    children = len(next(iter(noisy.values())))
    # The parent, or the table by age and sex, says how many cells there are.
    cell_count = len(parent) if parent is not None else noisy["age_sex"].shape[1]
    largest = max(weights.values())
    gram = sparse.csc_array((cell_count, cell_count))
    gradient = np.zeros((children, cell_count))
    for table, counts in noisy.items():
        matrix = margin_matrix(table, cell_count // 2)
        gram = gram + weights[table] / largest * (matrix.T @ matrix)
        gradient -= weights[table] / largest * (counts @ matrix)
    variable_count = children * cell_count
    equalities, sums = [], []
    if parent is not None:
        equalities.append(sparse.kron(np.ones((1, children)), sparse.eye_array(cell_count)))
        sums.append(parent)
    if totals is not None:
        # The last total follows if the parent's cells are given.
        stated = children if parent is None else children - 1
        rows = sparse.kron(sparse.eye_array(children), np.ones((1, cell_count))).tocsr()
        equalities.append(rows[:stated])
        sums.append(totals[:stated])
    equality_count = sum(map(len, sums))
    constraints = sparse.vstack([*equalities, -sparse.eye_array(variable_count)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix(sparse.triu(sparse.kron(sparse.eye_array(children), gram))),
        gradient.ravel(),
        sparse.csc_matrix(constraints),
        np.concatenate([*sums, np.zeros(variable_count)]).astype(float),
        [clarabel.ZeroConeT(equality_count), clarabel.NonnegativeConeT(variable_count)],
        settings,
    )
    solution = solver.solve()
    if str(solution.status) != "Solved":
        raise RuntimeError(f"expected an optimum, got {solution.status}")
    return np.maximum(np.array(solution.x).reshape(children, cell_count), 0)


def round_to_sums(values: NDArray[np.float64], sums: NDArray[np.int64]) -> NDArray[np.int64]:
    """Round by largest remainders, so that each column adds up to its given sum."""
    rounded = np.floor(values).astype(np.int64)
    missing = sums - rounded.sum(axis=0)
    rank = np.argsort(np.argsort(rounded - values, axis=0, kind="stable"), axis=0)
    rounded += rank < missing
    if (rounded.sum(axis=0) != sums).any():
        raise RuntimeError("expected values that add up to the given sums")
    return rounded


def round_to_both_sums(
    values: NDArray[np.float64], column_sums: NDArray[np.int64], row_sums: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Round up the cells with the largest remainders in all with which rows and columns have given sums."""
    from scipy.optimize import linprog

    rounded = np.floor(values).astype(np.int64)
    rows, columns = values.shape
    adders = [
        sparse.kron(np.ones((1, rows)), sparse.eye_array(columns)),
        sparse.kron(sparse.eye_array(rows), np.ones((1, columns))),
    ]
    missing = np.concatenate([column_sums - rounded.sum(axis=0), row_sums - rounded.sum(axis=1)])
    # A transportation problem: the simplex method ends in a vertex, whose values are whole numbers.
    answer = linprog(
        (rounded - values).ravel(), A_eq=sparse.vstack(adders), b_eq=missing, bounds=(0, 1), method="highs-ds"
    )
    if answer.status:
        raise RuntimeError(f"expected a rounding, got: {answer.message}")
    rounded += np.rint(answer.x).astype(np.int64).reshape(values.shape)
    if (rounded.sum(axis=0) != column_sums).any() or (rounded.sum(axis=1) != row_sums).any():
        raise RuntimeError("expected a rounding with both sums")
    return rounded


def fit_top_down(census: Census, shares: Shares) -> list[NDArray[np.int64]]:
    """Measure each table on each level, and fit the levels from the nation down."""
    curator = Curator()
    truth = census.add_up(census.cells)
    noisy: dict[int, dict[str, NDArray[np.int64]]] = {1: {}, 2: {}, 3: {}}
    for (table, level), share in shares.items():
        noisy[level][table] = curator.measure(make_margin(truth[level - 1], table), share)
    weights = {level: {table: float(shares[table, level]) for table in noisy[level]} for level in noisy}
    total, state_totals = make_margin(truth[0], "people")[0], make_margin(truth[1], "people")[:, 0]
    root = round_to_sums(fit_children(noisy[1], weights[1], None, total).T, total).ravel()
    states = round_to_both_sums(fit_children(noisy[2], weights[2], root, state_totals), root, state_totals)
    counties = [
        round_to_sums(
            fit_children({table: counts[family] for table, counts in noisy[3].items()}, weights[3], state, None), state
        )
        for family, state in zip(census.families, states, strict=True)
    ]
    shape = (-1, *census.cells.shape[1:])
    return [root.reshape(shape), states.reshape(shape), np.concatenate(counties).reshape(shape)]


def read_plan(plan: dict[str, Any]) -> tuple[Shares, Figures]:
    """Return the shares that ``plan`` proposes, and the errors that it expects of them."""
    shares: Shares = {}
    errors: Figures = {}
    for part, share, error in zip(plan["parts"], plan["best"]["shares"], plan["best"]["by_part"], strict=True):
        match = re.fullmatch(r"(\w+), level (\d) \(\d+\)", part)
        if match is None:
            raise RuntimeError(f"expected a table and a level, got {part}")
        key = match[1], int(match[2])
        errors[key] = error
        shares[key] = Fraction(share)
    # As in privopt, the part of a table that is exact on a level goes to the others there.
    for level in EXACT_LEVELS:
        exact_share = shares.pop(("people", level))
        rest = sum(shares[table, level] for table in TABLES if table != "people")
        for table in TABLES:
            if table != "people":
                shares[table, level] *= 1 + exact_share / rest
    return {key: share for key, share in shares.items() if share}, errors


def split_equally() -> Shares:
    """Return a third of rho for each level, in equal parts for the tables that are measured there."""
    shares: Shares = {}
    for level in (1, 2, 3):
        measured = [table for table in TABLES if table != "people" or level not in EXACT_LEVELS]
        shares |= {(table, level): Fraction(1, 3 * len(measured)) for table in measured}
    return shares


def format_row(name: str, runs: list[Figures], form: str, *, with_spread: bool = False) -> str:
    """Return a line of a Markdown table: figures at levels 1 / 2 / 3, means over runs, and standard deviations."""
    cells = []
    for table in REPORTED:
        figures = [[run[table, level] for run in runs] for level in (1, 2, 3)]
        cell = " / ".join(f"{np.mean(values):{form}}" for values in figures)
        if with_spread and len(runs) > 1:
            cell += f" ({' / '.join(f'{np.std(values, ddof=1):{form}}' for values in figures)})"
        cells.append(cell)
    return f"| {name} | {' | '.join(cells)} |"


def iter_lines(folder: Path, *, small: bool, runs: int) -> Iterator[str]:
    """Run everything, and yield the lines of the tables."""
    census = draw_census(small=small)
    write_persons(folder / "persons.csv", census)
    persons, few = int(census.cells.sum()), int((census.cells < 5).sum())
    yield f"{persons:,} persons, {len(census.cells)} counties, {census.cells.size:,} cells, {few} of them below 5"
    yield f"{runs} runs, load {os.getloadavg()[0]:.0f}\n"
    commands: dict[str, list[Run]] = {"init": [], "plan": [], "solve": [], "verify": []}
    commands["init"].append(
        run_privopt(folder, "init", "hierarchical-tables", "--points", "persons.csv", "--out", "draft.toml")
    )
    write_problem(folder / "best.toml", census, equal_split=False)
    write_problem(folder / "equal.toml", census, equal_split=True)
    commands["plan"].append(run_privopt(folder, "plan", "hierarchical-tables", "best.toml", "--json"))
    best_shares, forecast = read_plan(json.loads(commands["plan"][0].output))
    yield "shares of `plan`: " + ", ".join(
        f"{table} {level}: {float(s):.3g}" for (table, level), s in best_shares.items()
    )
    errors: dict[str, list[Figures]] = {}
    coverages: dict[str, list[Figures]] = {"best": [], "equal": []}
    for run in range(runs):
        for split in ("best", "equal"):
            out = f"{split}-{run}"
            commands["solve"].append(
                run_privopt(folder, "solve", "hierarchical-tables", f"{split}.toml", "--out", out, "--quiet")
            )
            commands["verify"].append(run_privopt(folder, "verify", out, "--quiet"))
            run_errors, run_coverages = read_release(folder / out, census)
            errors.setdefault(f"privopt, {SPLIT_NAMES[split]}", []).append(run_errors)
            coverages[split].append(run_coverages)
    truth = census.add_up(census.cells)
    for _ in range(runs):
        errors.setdefault("OpenDP, cells of counties alone", []).append(sum_errors(add_up_leaves(census), truth))
        for split, shares in (("best", best_shares), ("equal", split_equally())):
            levels = fit_top_down(census, shares)
            errors.setdefault(f"TopDown, {SPLIT_NAMES[split]}", []).append(sum_errors(levels, truth))
    head = " | ".join(REPORTED)
    yield f"\n| errors at levels 1 / 2 / 3 (standard deviation) | {head} |\n| --- | --- | --- | --- |"
    yield format_row("expected by `plan`", [forecast], ",.0f")
    for name, figures in errors.items():
        yield format_row(name, figures, ",.0f", with_spread=True)
    yield f"\n| share of true counts in 95 % intervals | {head} |\n| --- | --- | --- | --- |"
    for split, figures in coverages.items():
        yield format_row(f"privopt, {SPLIT_NAMES[split]}", figures, ".3f")
    yield "\n| privopt | processor seconds | MiB |\n| --- | --- | --- |"
    for command, measured in commands.items():
        seconds, mebibytes = np.mean([run.seconds for run in measured]), max(run.mebibytes for run in measured)
        yield f"| {command} | {seconds:.1f} | {mebibytes:,.0f} |"
    yield f"\nload {os.getloadavg()[0]:.0f}"


def main() -> None:
    """Print the tables of one comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="six counties and four ages, in a minute")
    parser.add_argument("--runs", type=int, default=4, help="releases of each way")
    parser.add_argument("--out", type=Path, help="a new folder for all files; a temporary one by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.out or Path(temporary)
        if arguments.out:
            folder.mkdir()
        for line in iter_lines(folder, small=arguments.small, runs=arguments.runs):
            print(line, flush=True)


if __name__ == "__main__":
    main()
