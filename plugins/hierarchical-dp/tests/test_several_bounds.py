"""Public bounds on single cells of several tables: kept by every release, by changes that are least in all."""

from __future__ import annotations

import json
import time
from itertools import product

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import LinearConstraint, milp

from privopt import backends
from privopt.command.cli import cli
from privopt.errors import InfeasibleError, StoppedError
from privopt.execution.limits import ending_at
from privopt.files.release_folder import sums_text
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt_hierarchical_dp.bounds import UNBOUNDED
from privopt_hierarchical_dp.nearest import least_moved
from privopt_hierarchical_dp.public_tables import Bound
from privopt_hierarchical_dp.several.bounds import CellBounds
from privopt_hierarchical_dp.several.margins import Domain
from privopt_hierarchical_dp.tree import Tree, add_up

SIZES = (2, 2, 2)
FAMILIES = [((),), ((), (0,), (0, 1)), ((0, 1), (1, 2)), ((0, 1), (1, 2), (0, 2)), ((0,), (1, 2))]
NAMES = {"a": ("a1", "a2"), "b": ("b1", "b2"), "c": ("c1", "c2")}
JOINT = list(product(*map(range, SIZES)))


def case_of(seed, tables, tree):
    """Bounds, most of which can be kept, impossible cells, and margins of some population."""
    rng = np.random.default_rng(seed)
    domain = Domain(sizes=SIZES, tables=tables, weights=(1.0,) * len(tables))
    zeros = [rng.random(domain.shape(table)) < (0.15 if table else 0.0) for table in tables]
    rows = []
    for table in tables:
        own = {}
        for _ in range(int(rng.integers(0, 4))):
            level = int(rng.integers(tree.depth))
            place, cell = int(rng.integers(tree.widths[level])), int(rng.integers(domain.cells(table)))
            low, span = int(rng.integers(0, 4)), int(rng.integers(0, 6))
            least, most = [(low, None), (None, low + span), (low, low + span)][int(rng.integers(3))]
            own[level, place, cell] = Bound(level, place, cell, least, most)
        rows.append(("bounds.csv", list(own.values())) if own else None)
    leaves = rng.integers(0, 5, size=(tree.widths[-1], *SIZES))
    joint = np.ones(SIZES, dtype=bool)
    for table, zero in zip(tables, zeros, strict=True):
        joint &= ~zero.reshape([SIZES[a] if a in table else 1 for a in range(3)])
    return domain, zeros, rows, leaves * joint, joint


def program(tree, domain, rows, joint, totals):
    """The same conditions over cells of all attributes of each leaf region, row by row, by other code."""
    conditions = []

    def within(level, place, table, at, low, high):
        first, last = tree.leaf_range(level, place)
        row = [
            first <= leaf < last and all(cell[a] == k for a, k in zip(table, at, strict=True))
            for leaf in range(tree.widths[-1])
            for cell in JOINT
        ]
        conditions.append((np.array(row, dtype=float), low, high))

    for table, own in zip(domain.tables, rows, strict=True):
        for bound in own[1] if own else ():
            at = np.unravel_index(bound.size, domain.shape(table)) if table else ()
            high = np.inf if bound.most is None else bound.most
            within(bound.level, bound.place, table, at, bound.least or 0, high)
    for level, numbers in enumerate(totals):
        for place, number in enumerate(numbers.tolist()):
            within(level, place, (), (), number, number)
    high = np.where(np.tile(joint.ravel(), tree.widths[-1]), 1e6, 0.0)
    return conditions, high


def best_distance(tree, domain, rows, joint, totals, whole, cliques):
    """The least L1 distance of cliques' cells from those found, by SciPy's integer program; None if infeasible."""
    conditions, high = program(tree, domain, rows, joint, totals)
    cells, slack = len(high), sum(level.size for clique in cliques for level in whole[clique])
    left, lows, highs, number = [], [], [], 0
    for row, low, most in conditions:
        left.append(np.concatenate([row, np.zeros(2 * slack)]))
        lows.append(low)
        highs.append(most)
    for clique, level in product(cliques, range(tree.depth)):
        for place, at in product(range(tree.widths[level]), np.ndindex(domain.shape(clique))):
            first, last = tree.leaf_range(level, place)
            row = np.zeros(cells + 2 * slack)
            for leaf, (k, cell) in product(range(first, last), enumerate(JOINT)):
                row[leaf * len(JOINT) + k] = all(cell[a] == v for a, v in zip(clique, at, strict=True))
            row[cells + number], row[cells + slack + number] = -1.0, 1.0
            number += 1
            left.append(row)
            lows.append(whole[clique][level][(place, *at)])
            highs.append(lows[-1])
    found = milp(
        np.concatenate([np.zeros(cells), np.ones(2 * slack)]),
        constraints=LinearConstraint(np.array(left), lows, highs),
        bounds=(0, np.concatenate([high, np.full(2 * slack, np.inf)])),
        integrality=np.ones(cells + 2 * slack),
    )
    return None if found.status == 2 else round(found.fun)


@settings(max_examples=60, deadline=None)
@given(tables=st.sampled_from(FAMILIES), exact=st.sampled_from([0, 1, None]), seed=st.integers(0, 10**6))
def test_the_fewest_are_moved_and_all_conditions_hold(tables, exact, seed):
    tree = Tree.from_paths([("r", "a", "x"), ("r", "a", "y"), ("r", "b", "")])
    domain, zeros, rows, leaves, joint = case_of(seed, tables, tree)
    try:
        bounds = CellBounds.of(tree, domain, zeros, rows, NAMES)
    except InfeasibleError:
        bounds = None
        assert best_distance(tree, domain, rows, joint, [], {}, []) is None
    if bounds is None or not joint.any():
        return
    kept = add_up(tree, leaves.reshape(len(leaves), -1).sum(axis=1))
    whole = {
        clique: add_up(tree, leaves.sum(axis=tuple(1 + a for a in range(3) if a not in clique)))
        for clique in bounds.cliques
    }
    told = best_distance(tree, domain, rows, joint, kept[:exact] or kept[:1], whole, bounds.cliques)
    try:
        bounds.check_room(kept[:exact])
        found = bounds.moved(whole, kept[:exact])
    except InfeasibleError:
        assert told is None
        assert exact != 0 or best_distance(tree, domain, rows, joint, [], {}, []) is None
        return
    assert all((a == b).all() for own in found.values() for a, b in zip(own, add_up(tree, own[-1]), strict=True))
    for clique, own in found.items():
        assert min(level.min() for level in own) >= 0
        able = joint.any(axis=tuple(a for a in range(3) if a not in clique))
        assert not any(level[:, ~able].any() for level in own)
        for table, bounded in zip(tables, rows, strict=True):
            if bounded is None or not set(table) <= set(clique):
                continue
            away = tuple(1 + k for k, a in enumerate(clique) if a not in table)
            for bound in bounded[1]:
                cell = own[bound.level].sum(axis=away)[bound.place].ravel()[bound.size]
                assert (bound.least or 0) <= cell <= (UNBOUNDED if bound.most is None else bound.most)
        for level, numbers in enumerate(kept[:exact]):
            assert (own[level].reshape(len(numbers), -1).sum(axis=1) == numbers).all()
    total = {int(own[0].sum()) for own in found.values()}
    assert len(total) == 1
    if exact == 0:  # the nearest number that can be
        near = abs(total.pop() - int(kept[0][0]))
        for other in range(near):
            for sign in (-1, 1):
                totals = [kept[0] + sign * other]
                assert totals[0][0] < 0 or best_distance(tree, domain, rows, joint, totals, {}, []) is None
        return
    moved = sum(int(np.abs(a - b).sum()) for k, own in found.items() for a, b in zip(own, whole[k], strict=True))
    assert moved == told


# --- problem files -----------------------------------------------------------------------------------------

PROBLEM = """[hierarchy]
regions = "regions.csv"
records = "secret.csv"
[hierarchy.attributes]
age = ["child", "adult", "old"]
tenure = ["owned", "rented"]
[hierarchy.tables.people]
by = []
{people}
[hierarchy.tables.age]
by = ["age"]
{age}
[hierarchy.tables.both]
by = ["tenure", "age"]
{both}
[privacy]
epsilon = 2.0
relation = "{relation}"
"""


def town_of(folder, relation="individuals", **bounds):
    (folder / "regions.csv").write_text("level_1,level_2\nTown,Town\nTown,b\nTown,c\n")
    rng = np.random.default_rng(4)
    cells = product(["Town", "b", "c"], ["child", "adult", "old"], ["owned", "rented"])
    rows = [f"Town,{','.join(cell)},{rng.integers(20, 60)}" for cell in cells]
    (folder / "secret.csv").write_text("level_1,level_2,age,tenure,count\n" + "\n".join(rows) + "\n")
    keys = dict.fromkeys(("people", "age", "both"), "")
    for name, text in bounds.items():
        (folder / f"{name}.csv").write_text(text)
        keys[name] = f'bounds = "{name}.csv"'
    (folder / "problem.toml").write_text(PROBLEM.format(relation=relation, **keys))
    return folder / "problem.toml"


BOTH = "region,age,tenure,at_least,at_most\nTown/Town,child,owned,,10\nTown,old,rented,150,\nb,adult,rented,7,7.0\n"
AGES = "region,age,at_most\nc,old,5\n"
PEOPLE = "region,at_least,at_most\nTown,100,300\n"


@pytest.mark.parametrize("relation", ["individuals", "moves", "attributes"])
def test_every_release_keeps_bounds_that_its_input_breaks(tmp_path, relation):
    """Nobody is refused: of single cells a refusal would tell of somebody. A region's name is its path."""
    bounds = {"both": BOTH, "age": AGES} | ({"people": PEOPLE} if relation == "individuals" else {})
    done = solve("hierarchical-tables", town_of(tmp_path, relation, **bounds), tmp_path / "out", Options())
    assert verify(done.folder).complaints == ()
    both, age = (pl.read_csv(done.folder / "tables" / f"{name}.csv") for name in ("both", "age"))

    def cell(region, *values):
        return next(row[-3] for row in (*both.rows(), *age.rows()) if (row[0], *row[2:-3]) == (region, *values))

    assert cell("Town/Town", "child", "owned") <= 10
    assert cell("Town", "old", "rented") >= 150
    assert cell("b", "adult", "rented") == 7
    assert cell("c", "old") <= 5
    result = json.loads((done.folder / "result.json").read_text())
    assert "Bounds on cells are public" in result["guarantee"]["statement"]
    truth = json.loads((done.folder / "private" / "truth.json").read_text())
    assert truth["cells_out_of_bounds"] >= 4
    # adults turn children again, and both levels agree
    here = (pl.col("tenure") == "owned") & pl.col("region").is_in(["Town/Town", "Town"])
    turned = pl.col("age").replace_strict({"child": 60, "adult": -60}, default=0)
    frame = both.with_columns(count=pl.col("count") + pl.when(here).then(turned).otherwise(0))
    frame.write_csv(done.folder / "tables" / "both.csv")
    (done.folder / "SHA256SUMS").write_text(sums_text(done.folder))
    assert any(
        "both.csv: region 'Town/Town' has a cell outside of its bounds" in one for one in verify(done.folder).complaints
    )


def test_a_number_of_individuals_that_bounds_move_is_the_nearest_or_does_not_verify(tmp_path):
    done = solve("hierarchical-tables", town_of(tmp_path, people=PEOPLE), tmp_path / "out", Options())
    path = done.folder / "tables" / "people.csv"
    frame = pl.read_csv(path)
    assert frame.filter(pl.col("region") == "Town")["count"].to_list() == [300]
    assert verify(done.folder).complaints == ()
    for name in ("people", "age", "both"):  # a dozen fewer, everywhere alike
        path = done.folder / "tables" / f"{name}.csv"
        frame = pl.read_csv(path)
        values = frame.filter(pl.col("region") == "b")
        at = int(values["count"].arg_max())
        keys = values.row(at)[2:-3]
        if name == "age":
            age = keys[0]
        chosen = pl.col("region").is_in(["Town", "b"])
        if name == "both":
            own = values.filter(pl.col("age") == age)
            tenure = own.row(int(own["count"].arg_max()))[3]
            chosen &= (pl.col("age") == age) & (pl.col("tenure") == tenure)
        elif name == "age":
            chosen &= pl.col("age") == age
        frame.with_columns(count=pl.col("count") - 12 * chosen).write_csv(path)
    (done.folder / "SHA256SUMS").write_text(sums_text(done.folder))
    assert any("the noisy values give" in line for line in verify(done.folder).complaints)


@pytest.mark.parametrize(
    ("bounds", "code", "words"),
    [
        ({"age": "region,age\nb,old\n"}, 2, "columns region, age, and at_least or at_most or both"),
        ({"age": "region,age,at_mots\nb,old,1\n"}, 2, "header: found region, age, at_mots"),
        ({"age": "region,age,at_most\nx,old,1\n"}, 2, "row 2, column region: found 'x', wanted a region"),
        ({"age": "region,age,at_most\nb,,1\n"}, 2, "row 2, column age: found '', wanted a value of"),
        ({"age": "region,age,at_most\nb,old,-1\n"}, 2, "row 2, column at_most: found '-1', wanted a whole number"),
        ({"age": "region,age,at_most\nb,old,1\nb,old,2\n"}, 2, "row 3, column region: found 'b', wanted one row"),
        ({"age": "region,age,at_least,at_most\nb,old,3,2\n"}, 2, "at_least, 3, or more"),
        ({"age": "region,age,at_least,at_most\nTown,old,,9\nb,old,10,\n"}, 3, "at most 9 of (old), the regions"),
        ({"age": "region,age,at_most\nb,old,1\n", "both": BOTH + "b,old,owned,5,\n"}, 3, "and both.csv: region 'b'"),
        (
            {"age": "region,age,at_most\nc,old,3\nc,adult,3\nc,child,3\n", "people": "region,at_least\nTown,1\nc,10\n"},
            3,
            "people.csv and age.csv: region 'c'",
        ),
        ({"relation": "moves", "people": "region,at_most\nTown,100\n"}, 3, "with the public numbers of individuals"),
    ],
)  # fmt: skip
def test_bounds_that_cannot_be_kept_are_refused_before_any_noise(tmp_path, bounds, code, words):
    problem = town_of(tmp_path, **bounds)
    done = CliRunner().invoke(cli, ["solve", "hierarchical-tables", str(problem), "--out", str(tmp_path / "out")])
    assert (done.exit_code, words in " ".join(done.output.split())) == (code, True), done.output
    assert not (tmp_path / "out").exists()


def test_the_program_for_bounds_ends_with_the_time_limit(monkeypatch):
    """It gets what is left, and what it did not end is no fault but a limit."""
    limits, whole = [], np.zeros(2, np.int64)

    class Slow:
        def solve(self, form, *, gap, time_limit):
            limits.append(time_limit)
            return backends.Result(outcome=backends.Outcome.STOPPED, solver="slow", seconds=0.0)

    def move():
        return least_moved(whole, sparse.csr_array(np.eye(2)), whole + 1, whole + 2, whole, whole + 9)

    assert move().tolist() == [1, 1]
    monkeypatch.setattr(backends, "get", lambda name: Slow())
    with ending_at(time.monotonic() + 60), pytest.raises(StoppedError, match="nearest numbers within bounds"):
        move()
    assert 0 < limits[0] <= 60
    with ending_at(time.monotonic()), pytest.raises(StoppedError, match="nearest numbers within bounds"):
        move()
    assert len(limits) == 1
