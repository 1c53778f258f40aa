"""Errors of several tables before epsilon is chosen, and the best split of their budget."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from attrs import evolve
from click.testing import CliRunner

from privopt.command.cli import cli
from privopt.declare import File
from privopt_hierarchical_dp.problem import Privacy
from privopt_hierarchical_dp.several.fit import fit_tables
from privopt_hierarchical_dp.several.planning import _asked, _cells, _expected, least_split
from privopt_hierarchical_dp.several.privacy import draw_tables
from privopt_hierarchical_dp.several.problem import CountTable, TablesHierarchy, TablesPrivacy, TablesProblem
from privopt_hierarchical_dp.several.read import TablesRead
from privopt_hierarchical_dp.several.release import true_tables

TABLES = {"age": ("age",), "age_tenure": ("age", "tenure"), "people": ()}
PROBLEM = """[hierarchy]
regions = "regions.csv"
records = "secret.csv"
[hierarchy.attributes]
age = ["child", "adult", "old"]
tenure = ["owned", "rented"]
[hierarchy.tables.people]
by = []
[hierarchy.tables.age]
by = ["age"]
[hierarchy.tables.age_tenure]
by = ["age", "tenure"]
impossible = "zeros.csv"
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
    return TablesRead.of(TablesProblem(hierarchy=hierarchy, privacy=privacy), "problem.toml")


def test_a_plan_needs_no_secret_and_tells_each_table_level_and_what_to_write(tmp_path):
    regions_of(tmp_path)
    (tmp_path / "zeros.csv").write_text("age,tenure\nchild,owned\n")
    path = tmp_path / "problem.toml"
    path.write_text(PROBLEM + "epsilon = 1.0\n")
    done = CliRunner().invoke(cli, ["plan", "hierarchical-tables", str(path), "--json"])
    told = json.loads(done.stdout)
    assert told["parts"][2:5] == ["age_tenure, level 1 (5)", "people, level 2 (3)", "age, level 2 (9)"]
    by = {row["epsilon"]: row["by_part"] for row in told["errors"]}
    assert list(by) == ["0.25", "0.5", "1", "2", "4"]
    assert all(a > b for a, b in zip(by["0.5"], by["1"], strict=True))
    for shares in (told["shares"], told["best"]["shares"]):
        assert sum(map(Fraction, shares)) == 1
    assert sum(told["best"]["by_part"]) < sum(by["1"])
    # what it says to write is what it has told
    line = told["notes"][-1].removeprefix("Least of the splits tried: ").replace("hierarchy.", "")
    budget, *shares = line.replace("], ", "]; ").replace(", share", "; share").split("; ")
    text = path.read_text().replace('regions = "regions.csv"', f'regions = "regions.csv"\n{budget}')
    for share in shares:
        number, name = share.split(" in ")
        text = text.replace(f"[hierarchy.tables.{name}]", f"[hierarchy.tables.{name}]\n{number}")
    path.write_text(text)
    again = json.loads(CliRunner().invoke(cli, ["plan", "hierarchical-tables", str(path), "--json"]).stdout)
    assert again["shares"] == told["best"]["shares"] == again["best"]["shares"]
    assert again["errors"][2]["by_part"] == pytest.approx(told["best"]["by_part"])


PRIVACIES = [
    TablesPrivacy(epsilon=Fraction(1)),
    TablesPrivacy(kind="zcdp", rho=Fraction(1, 10)),
]


@pytest.mark.parametrize("privacy", PRIVACIES, ids=["pure-dp", "zcdp"])
@pytest.mark.parametrize("names", [("age", "age_tenure"), ("people", "age_tenure")], ids="-".join)
def test_the_best_split_is_the_least_of_all_in_twentieths(tmp_path, privacy, names):
    problem = problem_of(tmp_path, privacy, names)
    cells = _cells(problem)
    halves = [(Fraction(k, 20), Fraction(20 - k, 20)) for k in range(1, 20)]
    every = {
        split: sum(_expected(problem, _asked(problem.declared, *split), cells)) for split in product(halves, halves)
    }
    found = sum(_expected(problem, _asked(problem.declared, *least_split(problem)), cells))
    assert found <= min(every.values()) * (1 + 1e-9)


def test_a_split_that_is_best_stays_and_noise_without_room_is_not_tried(tmp_path):
    problem = problem_of(tmp_path, PRIVACIES[0], ("age", "age_tenure"))
    best = least_split(problem)
    again = evolve(problem, declared=_asked(problem.declared, *best))
    assert least_split(again) == best
    thin = problem_of(tmp_path, TablesPrivacy(epsilon=Fraction(1, 1 << 36)), ("age", "age_tenure"))
    levels, tables = least_split(thin)
    assert _expected(thin, _asked(thin.declared, levels, tables), _cells(thin)) is not None


@pytest.mark.parametrize("privacy", PRIVACIES, ids=["pure-dp", "zcdp"])
def test_errors_told_are_those_of_releases_and_the_best_split_has_less(tmp_path, privacy):
    """20 seeded releases of 8 regions whose cells are far from empty."""
    names = ("people", "age", "age_tenure")
    problem = problem_of(tmp_path, privacy, names, leaves=8)
    leaves = np.random.default_rng(2).integers(800, 900, size=(8, 3, 2))
    own = [leaves.sum(axis=(1, 2)), leaves.sum(axis=2), leaves]
    truth, real = true_tables(problem.tree, own), []
    best = least_split(problem)
    for split in (([Fraction(1)] * 2, [Fraction(1)] * 3), best):
        declared = _asked(problem.declared, *map(tuple, split))
        law, errors = privacy.law, []
        for seed in range(20):
            noisy, records = draw_tables(declared, truth, seed=seed, zeros=problem.zeros)
            scales = [Fraction(level[0].scale) for level in records]
            counts = fit_tables(
                problem.tree,
                declared.domain,
                noisy,
                levels=declared.level_weights(2),
                totals=[],
                zeros=problem.zeros,
                law=law,
                scales=scales,
                gap=1e-4,
            )
            errors.append(
                [np.abs(a - b).sum() for x, y in zip(counts, truth, strict=True) for a, b in zip(x, y, strict=True)]
            )
        told = sum(_expected(problem, declared, _cells(problem)))
        real.append(np.sum(errors) / 20)
        assert real[-1] == pytest.approx(told, rel=0.08)
    assert real[1] < 0.95 * real[0]
