"""Errors of several tables before epsilon is chosen, and the best split of their budget."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from helpers.command import run
from helpers.grids import by_pairs

from privopt.declare import File
from privopt_hierarchical_dp.design import FitOptions
from privopt_hierarchical_dp.plan import forecast_errors, least_split
from privopt_hierarchical_dp.problem import Privacy
from privopt_hierarchical_dp.tables.design import TablesDesign
from privopt_hierarchical_dp.tables.problem import CountTable, TablesHierarchy, TablesPrivacy, TablesProblem
from privopt_hierarchical_dp.tree import add_up

TABLES = {"age": ("age",), "age_tenure": ("age", "tenure"), "people": ()}
PROBLEM = """[hierarchy]
regions = "regions.csv"
records = "secret.csv"
[hierarchy.attributes]
age = ["child", "adult", "old"]
[hierarchy.tables.people]
by = []
[hierarchy.tables.age]
by = ["age"]
[privacy]
"""


def regions_of(tmp_path, leaves=3):
    path = tmp_path / "regions.csv"
    path.write_text("level_1,level_2\n" + "".join(f"Town,r{leaf}\n" for leaf in range(leaves)))
    return File.read(path)


def problem_of(tmp_path, privacy: Privacy, names, leaves=3):
    hierarchy = TablesHierarchy(
        regions=regions_of(tmp_path, leaves),
        attributes={"age": ("child", "adult", "old"), "tenure": ("owned", "rented")},
        tables={name: CountTable(by=TABLES[name]) for name in names},
    )
    return TablesDesign.of(TablesProblem(hierarchy=hierarchy, privacy=privacy), "problem.toml")


def test_a_plan_needs_no_secret_and_tells_each_table_level_and_what_to_write(tmp_path):
    regions_of(tmp_path)
    path = tmp_path / "problem.toml"
    path.write_text(PROBLEM + "epsilon = 1.0\n")
    done = run("plan", "hierarchical-tables", path, "--json")
    told = json.loads(done.stdout)
    assert told["parts"] == ["people, level 1 (1)", "age, level 1 (3)", "people, level 2 (3)", "age, level 2 (9)"]
    by = {row["epsilon"]: row["by_part"] for row in told["errors"]}
    assert list(by) == ["0.25", "0.5", "1", "2", "4"]
    assert all(a > b for a, b in zip(by["0.5"], by["1"], strict=True))
    for shares in (told["shares"], told["best"]["shares"]):
        assert sum(map(Fraction, shares)) == 1
    assert sum(told["best"]["by_part"]) < sum(by["1"])
    # what it says to write is what it has told
    _, budget, *shares = told["notes"]
    own = budget.removeprefix("best split, for the file: hierarchy.")
    text = path.read_text().replace('regions = "regions.csv"', f'regions = "regions.csv"\n{own}')
    for line in shares:
        head, share = line.strip().split("] ")
        text = text.replace(f"{head}]", f"{head}]\n{share}")
    path.write_text(text)
    again = json.loads(run("plan", "hierarchical-tables", path, "--json").stdout)
    assert again["shares"] == told["best"]["shares"]
    assert sum(again["best"]["by_part"]) == pytest.approx(sum(told["best"]["by_part"]), rel=0.01)
    assert again["errors"][2]["by_part"] == pytest.approx(told["best"]["by_part"])


PRIVACIES = [
    TablesPrivacy(epsilon=Fraction(1)),
    TablesPrivacy(kind="zcdp", rho=Fraction(1, 10)),
]


@by_pairs("privacy, names", PRIVACIES, [("age", "age_tenure"), ("people", "age_tenure")])
def test_the_best_split_is_that_of_a_fine_grid_and_beats_the_leaves_alone(tmp_path, privacy, names):
    problem = problem_of(tmp_path, privacy, names)
    weights = [Fraction(1), Fraction(2), Fraction(3), Fraction(1)]
    weigh = np.array(weights, dtype=float)
    halves = [(Fraction(k, 20), Fraction(20 - k, 20)) for k in range(20)]
    every = [forecast_errors(problem.with_split(*split)) @ weigh for split in product(halves, halves)]
    found = forecast_errors(problem.with_split(*least_split(problem, weights))) @ weigh
    assert found <= min(every) * (1 + 2e-3)
    assert found <= 1.02 * (problem.leaves_only() @ weigh)


@pytest.mark.slow
def test_a_split_that_is_best_stays_and_noise_without_room_is_not_tried(tmp_path):
    problem = problem_of(tmp_path, PRIVACIES[0], ("people", "age"))
    best = least_split(problem, [Fraction(1)] * 4)
    assert least_split(problem.with_split(*best), [Fraction(1)] * 4) == best
    thin = problem_of(tmp_path, TablesPrivacy(epsilon=Fraction(1, 1 << 36)), ("people", "age"))
    thin.with_split(*least_split(thin, [Fraction(1)] * 4)).check()


@pytest.mark.slow
@pytest.mark.parametrize("privacy", PRIVACIES)
def test_errors_told_are_those_of_releases_and_the_best_split_has_less(tmp_path, privacy):
    """20 seeded releases of 8 regions whose cells are far from empty."""
    names = ("people", "age", "age_tenure")
    problem = problem_of(tmp_path, privacy, names, leaves=8)
    leaves = np.random.default_rng(2).integers(800, 900, size=(8, 3, 2))
    own = [leaves.sum(axis=(1, 2)), leaves.sum(axis=2), leaves]
    truth, real = [add_up(problem.tree, table) for table in own], []
    best = least_split(problem, [Fraction(1)] * 6)
    for split in (([Fraction(1)] * 2, [Fraction(1)] * 3), best):
        design, errors = problem.with_split(*map(tuple, split)), []
        for seed in range(20):
            counts = design.fit(design.draw(truth, seed=seed)[0], [], FitOptions(gap=1e-4)).counts
            errors.append(
                [np.abs(a - b).sum() for x, y in zip(counts, truth, strict=True) for a, b in zip(x, y, strict=True)]
            )
        told = forecast_errors(design).sum()
        real.append(np.sum(errors) / 20)
        assert real[-1] == pytest.approx(told, rel=0.08)
    assert real[1] < 0.95 * real[0]


@pytest.mark.parametrize("leaves", [2, 40, 3_000])
@pytest.mark.parametrize("privacy", PRIVACIES, ids=["pure-dp", "zcdp"])
def test_the_default_split_loses_no_more_than_2_percent_to_the_leaves_alone(tmp_path, privacy, leaves):
    problem = problem_of(tmp_path, privacy, ("age",), leaves=leaves)
    assert (forecast_errors(problem) / problem.leaves_only()).max() < 1.02
