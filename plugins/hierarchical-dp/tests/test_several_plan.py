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


def test_search_for_a_split_says_how_much_is_done(tmp_path):
    design = problem_of(tmp_path, TablesPrivacy(epsilon=Fraction(1)), ["age", "people"])
    states = []
    least_split(design, [Fraction(1)] * 4, states.append)
    # Two starts, and one for each pair of a level and a table.
    numbers = [int(state.split()[1]) for state in states if state.startswith("search ")]
    assert numbers == sorted(numbers)
    assert {*numbers} == set(range(1, 7))
    assert all(state == "search 1 of 6" or " of 6, about " in state for state in states if state.startswith("search "))


def test_plan_needs_no_secret_and_names_each_table(tmp_path):
    regions_of(tmp_path)
    path = tmp_path / "problem.toml"
    regions = 'regions = "regions.csv"\n'
    problem = PROBLEM + "epsilon = 1.0\n"
    # A split of the file's own: without one, that of the plan is the default.
    path.write_text(problem.replace(regions, f"{regions}budget = [1, 127]\n"))
    completed = run("plan", "hierarchical-tables", path, "--json")
    plan = json.loads(completed.stdout)
    assert plan["parts"] == ["people, level 1 (1)", "age, level 1 (3)", "people, level 2 (3)", "age, level 2 (9)"]
    parts_by_epsilon = {row["epsilon"]: row["by_part"] for row in plan["errors"]}
    assert list(parts_by_epsilon) == ["0.25", "0.5", "1", "2", "4"]
    assert all(a > b for a, b in zip(parts_by_epsilon["0.5"], parts_by_epsilon["1"], strict=True))
    for shares in (plan["shares"], plan["best"]["shares"]):
        assert sum(map(Fraction, shares)) == 1
    assert sum(plan["best"]["by_part"]) < sum(parts_by_epsilon["1"])
    # what it says to write is what it has told
    _, budget, *shares = plan["notes"]
    split_text = budget.removeprefix("best split, for the file: hierarchy.")
    text = problem.replace(regions, f"{regions}{split_text}\n")
    for line in shares:
        head, share_line = line.strip().split("] ")
        text = text.replace(f"{head}]", f"{head}]\n{share_line}")
    path.write_text(text)
    second_plan = json.loads(run("plan", "hierarchical-tables", path, "--json").stdout)
    assert second_plan["shares"] == plan["best"]["shares"]
    assert sum(second_plan["best"]["by_part"]) == pytest.approx(sum(plan["best"]["by_part"]), rel=0.01)
    assert second_plan["errors"][2]["by_part"] == pytest.approx(plan["best"]["by_part"])


PRIVACIES = [
    TablesPrivacy(epsilon=Fraction(1)),
    TablesPrivacy(kind="zcdp", rho=Fraction(1, 10)),
]


@by_pairs("privacy, names", PRIVACIES, [("age", "age_tenure"), ("people", "age_tenure")])
def test_best_split_matches_a_fine_grid(tmp_path, privacy, names):
    problem = problem_of(tmp_path, privacy, names)
    weights = [Fraction(1), Fraction(2), Fraction(3), Fraction(1)]
    weigh = np.array(weights, dtype=float)
    halves = [(Fraction(k, 20), Fraction(20 - k, 20)) for k in range(20)]
    grid_errors = [forecast_errors(problem.with_split(*split)) @ weigh for split in product(halves, halves)]
    best_error = forecast_errors(problem.with_split(*least_split(problem, weights))) @ weigh
    assert best_error <= min(grid_errors) * (1 + 2e-3)
    assert best_error <= 1.02 * (problem.leaves_only() @ weigh)


@pytest.mark.slow
def test_keeps_best_split_and_skips_endless_noise(tmp_path):
    problem = problem_of(tmp_path, PRIVACIES[0], ("people", "age"))
    best = least_split(problem, [Fraction(1)] * 4)
    assert least_split(problem.with_split(*best), [Fraction(1)] * 4) == best
    thin = problem_of(tmp_path, TablesPrivacy(epsilon=Fraction(1, 1 << 36)), ("people", "age"))
    thin.with_split(*least_split(thin, [Fraction(1)] * 4)).check()


@pytest.mark.slow
@pytest.mark.parametrize("privacy", PRIVACIES)
def test_forecast_matches_releases(tmp_path, privacy):
    """20 seeded releases of 8 regions whose cells are far from empty."""
    names = ("people", "age", "age_tenure")
    problem = problem_of(tmp_path, privacy, names, leaves=8)
    leaves = np.random.default_rng(2).integers(800, 900, size=(8, 3, 2))
    tables = [leaves.sum(axis=(1, 2)), leaves.sum(axis=2), leaves]
    truth, measured = [add_up(problem.tree, table) for table in tables], []
    best = least_split(problem, [Fraction(1)] * 6)
    for split in (([Fraction(1)] * 2, [Fraction(1)] * 3), best):
        design, errors = problem.with_split(*map(tuple, split)), []
        for seed in range(20):
            counts = design.fit(design.draw(truth, seed=seed)[0], [], FitOptions(gap=1e-4)).counts
            errors.append(
                [np.abs(a - b).sum() for x, y in zip(counts, truth, strict=True) for a, b in zip(x, y, strict=True)]
            )
        forecast = forecast_errors(design).sum()
        measured.append(np.sum(errors) / 20)
        assert measured[-1] == pytest.approx(forecast, rel=0.08)
    assert measured[1] < 0.95 * measured[0]


@pytest.mark.parametrize("leaves", [2, 40, 3_000])
@pytest.mark.parametrize("privacy", PRIVACIES, ids=["pure-dp", "zcdp"])
def test_default_split_is_as_good_as_leaves_only(tmp_path, privacy, leaves):
    problem = problem_of(tmp_path, privacy, ("age",), leaves=leaves)
    assert (forecast_errors(problem) / problem.leaves_only()).max() < 1.02


@pytest.mark.parametrize("exact", [["level_1"], ["level_1", "level_2"]])
def test_plan_gives_exact_numbers_no_share(tmp_path, exact):
    regions_of(tmp_path)
    path = tmp_path / "problem.toml"
    path.write_text(
        PROBLEM.replace("[hierarchy]\n", f"[hierarchy]\nexact = {json.dumps(exact)}\n", 1) + "epsilon = 1.0\n"
    )
    plan = json.loads(run("plan", "hierarchical-tables", path, "--json").stdout)
    for shares in (plan["shares"], plan["best"]["shares"]):
        shares_by_part = dict(zip(plan["parts"], map(Fraction, shares), strict=True))
        exact_parts = [part for part in plan["parts"] for name in exact if part.startswith("people, level " + name[-1])]
        assert len(exact_parts) == len(exact)
        assert all(shares_by_part[part] == 0 for part in exact_parts)
        assert sum(shares_by_part.values()) == 1
