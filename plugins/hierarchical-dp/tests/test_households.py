"""Households and persons under one budget: sensitivities by brute force, one account, what larger households cost."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from helpers.command import run
from helpers.kits import BRIEF, thin_neighbours
from helpers.mentions import assert_mentions

from privopt.errors import InputError
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt.testing import conformance
from privopt_hierarchical_dp.kit import make_profile
from privopt_hierarchical_dp.methods import sensitivity
from privopt_hierarchical_dp.relations import TABLE_RELATIONS, Relation
from privopt_hierarchical_dp.sizes import compute_query

test_households_that_are_replaced = conformance(
    "hierarchical-dp",
    profile=thin_neighbours(make_profile("replaced")),
    methods=["cumulative-smoothed"],
    checks=["solves", "certificate-holds", "sensitivity", "round-trip"],
    how=BRIEF,
)


@pytest.mark.parametrize("max_persons", [1, 2, 3, 5])
def test_household_sensitivity_is_exact(max_persons):
    """All pairs of households of at most so many persons, of two kinds."""
    kinds = [household for size in range(1, max_persons + 1) for household in combinations_with_replacement("ab", size)]
    absolute = squares = 0
    for old_household, new_household in product(kinds, repeat=2):
        change = np.array([new_household.count(kind) - old_household.count(kind) for kind in "ab"])
        absolute, squares = max(absolute, int(abs(change).sum())), max(squares, int((change**2).sum()))
    relation = TABLE_RELATIONS["replaced"]
    assert absolute == relation.of_households(max_persons, "pure-dp").sensitivity == 2 * max_persons
    assert squares == relation.of_households(max_persons, "zcdp").sensitivity == 2 * max_persons**2


def _changes(first, last, largest, method):
    """Return greatest sums of absolute changes and of squares, over all pairs of sizes up to the largest."""
    relation = Relation(name="replaced", classes=last + 1 - first, vacant=first == 0, household=largest)
    identity = np.eye(relation.classes, dtype=np.int64)  # a household of each class
    changes = [
        compute_query(
            method,
            [identity[[min(b, last) - first]] - identity[[min(a, last) - first]]],
            totals=totals,
            relation=relation,
        )
        for a, b in product(range(first, largest + 1), repeat=2)
        for totals in ((False, True) if method == "cumulative-dp" else (False,))
    ]
    return relation, max(int(abs(d[0]).sum()) for d in changes), max(int((d[0] ** 2).sum()) for d in changes)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("last", [2, 3, 6])
def test_noise_covers_households_by_size(first, last):
    """One of i persons and one of j differ in |i - j| cumulative counts: with sizes from 1 on never in m of them."""
    for max_persons in range(1, 9):
        for method in ("hierarchical-dp", "cumulative-dp"):
            relation, absolute, squares = _changes(first, last, max_persons, method)
            assert max(1, absolute) == max(1, squares) or method == "hierarchical-dp"
            expected = sensitivity(method, 1, relation)
            assert expected == (2 if method == "hierarchical-dp" else max(1, absolute))
            assert squares <= expected


@pytest.mark.parametrize("first", [0, 1])
def test_larger_households_cost_as_stated(first):
    """Of k persons, with noise for m: numbers that change, over those that were allowed for."""
    for max_persons, persons in product(range(1, 6), range(1, 12)):
        if persons > max_persons:
            max_changes = _changes(first, 30, persons, "cumulative-dp")[1]
            relation = Relation(name="replaced", classes=31 - first, vacant=first == 0, household=max_persons)
            ratio = Fraction(max_changes, sensitivity("cumulative-dp", 1, relation))
            stated_factor = (
                Fraction(persons, max_persons)
                if first == 0 or max_persons == 1
                else Fraction(persons - 1, max_persons - 1)
            )
            assert ratio <= stated_factor
            assert ratio <= Fraction(persons, max_persons) ** 2
            words = (
                f"up to k / {max_persons} epsilon"
                if first == 0 or max_persons == 1
                else f"up to (k - 1) / ({max_persons} - 1) epsilon"
            )
            assert words in relation.statement(totals=False, max_quantity=1, kind="pure-dp")


PEOPLE = """[hierarchy]
regions = "regions.csv"
records = "people.csv"
[hierarchy.attributes]
age = ["child", "adult"]
[hierarchy.tables.age]
by = ["age"]
[privacy]
kind = "zcdp"
rho = 0.1
relation = "replaced"
max_household = {most}
"""
HOUSES = """[hierarchy]
regions = "regions.csv"
counts = "houses.csv"
sizes = 4
[privacy]
kind = "zcdp"
rho = 0.1
relation = "replaced"
max_household = {most}
"""


@pytest.fixture
def town(tmp_path):
    (tmp_path / "regions.csv").write_text("level_1,level_2\nTown,a\nTown,b\n")
    (tmp_path / "people.csv").write_text(
        "level_1,level_2,age,count\nTown,a,child,40\nTown,a,adult,90\nTown,b,adult,70\n"
    )
    (tmp_path / "houses.csv").write_text("level_1,level_2,size,groups\nTown,a,1,30\nTown,a,4,25\nTown,b,2,35\n")
    for name, text in (("people", PEOPLE), ("houses", HOUSES)):
        (tmp_path / f"{name}.toml").write_text(text.format(most=6))
    return tmp_path


def test_persons_and_households_share_an_account(town):
    for mechanism, name in (("hierarchical-tables", "people"), ("hierarchical-dp", "houses")):
        words = ["solve", mechanism, str(town / f"{name}.toml"), "--out", str(town / name), "--quiet"]
        completed = run(*words, "--ledger", str(town / "l"), "--subject", "residents")
        assert completed.exit_code == 0, completed.output
        assert verify(town / name).complaints == ()
    budget = json.loads(run("budget", str(town / "l"), "--json").stdout)
    assert_mentions(budget["relation"], "household", "6 persons", "replaced")
    assert budget["subjects"] == [{"subject": "residents", "spent": "0.2", "left": None, "reports": 2}]
    (town / "people.toml").write_text(PEOPLE.format(most=5))
    words = ["solve", "hierarchical-tables", str(town / "people.toml"), "--out", str(town / "five"), "--quiet"]
    completed = run(*words, "--ledger", str(town / "l"), "--subject", "residents")
    assert completed.exit_code == 2
    assert "another relation bounds" in completed.output


def test_states_the_cost_of_larger_households(town):
    release = solve("hierarchical-tables", town / "people.toml", town / "out", Options())
    statement = release.result.guarantee.statement
    assert "more than 6" in statement
    assert "(k / 6)^2 rho" in statement
    assert release.result.details.facts["sensitivity"] == 72


@pytest.mark.parametrize(("name", "mechanism"), [("people", "hierarchical-tables"), ("houses", "hierarchical-dp")])
def test_needs_public_household_size(town, name, mechanism):
    path = town / f"{name}.toml"
    path.write_text(path.read_text().replace("max_household = 6\n", ""))
    completed = run("solve", mechanism, str(path), "--out", str(town / "out"))
    assert completed.exit_code == 2
    assert "privacy.max_household: expected" in completed.output
    path.write_text(path.read_text().replace('relation = "replaced"', 'relation = "individuals"\nmax_household = 3'))
    completed = run("solve", mechanism, str(path), "--out", str(town / "out"))
    assert completed.exit_code == 2
    assert "no such key" in completed.output


def test_refuses_households_of_larger_quantities(tmp_path):
    """Its sizes go up to quantity times persons, and the noise was for persons: 3.5 epsilon where 1 was certified."""
    (tmp_path / "c.csv").write_text("level_1,size,groups\nall,1,2\n")
    problem = tmp_path / "p.toml"
    problem.write_text(
        '[hierarchy]\ncounts = "c.csv"\nsizes = 9\n[privacy]\nepsilon = 1\nrelation = "replaced"\nmax_household = 2\n'
        "[hierarchical-dp]\nmax_quantity = 4\n"
    )
    with pytest.raises(InputError, match="max_quantity"):
        solve("hierarchical-dp", problem, tmp_path / "out")
