"""Households and persons under one budget: sensitivities by brute force, one account, what larger households cost."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from helpers.command import run
from helpers.kits import BRIEF, thinned

from privopt.errors import InputError
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt.testing import conformance
from privopt_hierarchical_dp.kit import make_profile
from privopt_hierarchical_dp.methods import sensitivity
from privopt_hierarchical_dp.relations import TABLE_RELATIONS, Relation
from privopt_hierarchical_dp.sizes import compute_query

test_households_that_are_replaced = conformance(
    "hierarchical-dp",
    profile=thinned(make_profile("replaced")),
    methods=["cumulative-smoothed"],
    checks=["solves", "certificate-holds", "sensitivity", "round-trip"],
    how=BRIEF,
)


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_a_replaced_household_changes_what_is_said_and_no_more(most):
    """All pairs of households of at most so many persons, of two kinds."""
    kinds = [own for size in range(1, most + 1) for own in combinations_with_replacement("ab", size)]
    absolute = squares = 0
    for before, after in product(kinds, repeat=2):
        change = np.array([after.count(kind) - before.count(kind) for kind in "ab"])
        absolute, squares = max(absolute, int(abs(change).sum())), max(squares, int((change**2).sum()))
    relation = TABLE_RELATIONS["replaced"]
    assert absolute == relation.of_households(most, "pure-dp").sensitivity == 2 * most
    assert squares == relation.of_households(most, "zcdp").sensitivity == 2 * most**2


def _changes(first, last, largest, method):
    """Return greatest sums of absolute changes and of squares, over all pairs of sizes up to the largest."""
    own = Relation(name="replaced", classes=last + 1 - first, vacant=first == 0, household=largest)
    one = np.eye(own.classes, dtype=np.int64)  # a household of each class
    changed = [
        compute_query(method, [one[[min(b, last) - first]] - one[[min(a, last) - first]]], totals=totals, relation=own)
        for a, b in product(range(first, largest + 1), repeat=2)
        for totals in ((False, True) if method == "cumulative-dp" else (False,))
    ]
    return own, max(int(abs(d[0]).sum()) for d in changed), max(int((d[0] ** 2).sum()) for d in changed)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("last", [2, 3, 6])
def test_households_by_size_change_as_much_as_noise_is_scaled_for(first, last):
    """One of i persons and one of j differ in |i - j| cumulative counts: with sizes from 1 on never in m of them."""
    for most in range(1, 9):
        for method in ("hierarchical-dp", "cumulative-dp"):
            own, absolute, squares = _changes(first, last, most, method)
            assert max(1, absolute) == max(1, squares) or method == "hierarchical-dp"
            wanted = sensitivity(method, 1, own)
            assert wanted == (2 if method == "hierarchical-dp" else max(1, absolute))
            assert squares <= wanted


@pytest.mark.parametrize("first", [0, 1])
def test_larger_households_cost_what_is_said(first):
    """Of k persons, with noise for m: numbers that change, over those that were allowed for."""
    for most, many in product(range(1, 6), range(1, 12)):
        if many > most:
            changed = _changes(first, 30, many, "cumulative-dp")[1]
            own = Relation(name="replaced", classes=31 - first, vacant=first == 0, household=most)
            ratio = Fraction(changed, sensitivity("cumulative-dp", 1, own))
            said = Fraction(many, most) if first == 0 or most == 1 else Fraction(many - 1, most - 1)
            assert ratio <= said
            assert ratio <= Fraction(many, most) ** 2
            words = f"up to k / {most} epsilon" if first == 0 or most == 1 else f"up to (k - 1) / ({most} - 1) epsilon"
            assert words in own.statement(totals=False, max_quantity=1, kind="pure-dp")


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


def test_persons_and_households_have_one_account_under_one_relation(town):
    for mechanism, name in (("hierarchical-tables", "people"), ("hierarchical-dp", "houses")):
        words = ["solve", mechanism, str(town / f"{name}.toml"), "--out", str(town / name), "--quiet"]
        done = run(*words, "--ledger", str(town / "l"), "--subject", "residents")
        assert done.exit_code == 0, done.output
        assert verify(town / name).complaints == ()
    found = json.loads(run("budget", str(town / "l"), "--json").stdout)
    assert found["relation"] == "per household of at most 6 persons that is replaced"
    assert found["subjects"] == [{"subject": "residents", "spent": "0.2", "left": None, "reports": 2}]
    (town / "people.toml").write_text(PEOPLE.format(most=5))
    words = ["solve", "hierarchical-tables", str(town / "people.toml"), "--out", str(town / "five"), "--quiet"]
    done = run(*words, "--ledger", str(town / "l"), "--subject", "residents")
    assert done.exit_code == 2
    assert "what another relation bounds is for another file" in done.output


def test_what_is_promised_of_larger_households_is_said_and_nothing_is_refused(town):
    done = solve("hierarchical-tables", town / "people.toml", town / "out", Options())
    statement = done.result.guarantee.statement
    assert "Nothing is refused or cut off where a household has more than 6 persons" in statement
    assert "one of k persons costs up to (k / 6)^2 rho" in statement
    assert done.result.details.facts["sensitivity"] == 72


@pytest.mark.parametrize(("name", "mechanism"), [("people", "hierarchical-tables"), ("houses", "hierarchical-dp")])
def test_without_a_public_size_it_is_refused(town, name, mechanism):
    path = town / f"{name}.toml"
    path.write_text(path.read_text().replace("max_household = 6\n", ""))
    done = run("solve", mechanism, str(path), "--out", str(town / "out"))
    assert done.exit_code == 2
    assert "privacy.max_household: expected a public number of persons with relation = " in done.output
    path.write_text(path.read_text().replace('relation = "replaced"', 'relation = "individuals"\nmax_household = 3'))
    done = run("solve", mechanism, str(path), "--out", str(town / "out"))
    assert done.exit_code == 2
    assert "no such key with others" in done.output


def test_a_household_of_larger_quantities_is_refused(tmp_path):
    """Its sizes go up to quantity times persons, and the noise was for persons: 3.5 epsilon where 1 was certified."""
    (tmp_path / "c.csv").write_text("level_1,size,groups\nall,1,2\n")
    problem = tmp_path / "p.toml"
    problem.write_text(
        '[hierarchy]\ncounts = "c.csv"\nsizes = 9\n[privacy]\nepsilon = 1\nrelation = "replaced"\nmax_household = 2\n'
        "[hierarchical-dp]\nmax_quantity = 4\n"
    )
    with pytest.raises(InputError, match="max_quantity"):
        solve("hierarchical-dp", problem, tmp_path / "out")
