"""Public bounds on numbers of groups: kept by every release, clashes named, the nearest totals by brute force."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import polars as pl
import pytest
from helpers.grids import by_pairs
from helpers.mended_sums import mend

from privopt.declare import load_problem
from privopt.errors import InfeasibleError, InputError
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt_hierarchical_dp.bounds import UNBOUNDED, Limits, nearest_within, read_limits
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.problem import HierarchyProblem
from privopt_hierarchical_dp.tree import Tree

TREE = Tree.from_paths([("all", f"r{k}") for k in range(10_000)])
KEEPING = [name for name in METHODS if METHODS[name].totals != "never"]
BOUNDS = "region,at_least,at_most\na,20,20\nb,,11\nall,41,43\n"


def _problem(folder, bounds=BOUNDS, *, relation="sizes", more="", rows=None):
    rows = rows or [
        f"all,{r},{s},{n}" for r, own in (("a", (12, 8)), ("b", (4, 6)), ("c", (9, 3))) for s, n in enumerate(own, 1)
    ]
    (folder / "counts.csv").write_text("\n".join(["level_1,level_2,size,groups", *rows]), "utf-8")
    (folder / "bounds.csv").write_text(bounds, "utf-8")
    path = folder / "problem.toml"
    path.write_text(
        '[hierarchy]\ncounts = "counts.csv"\nbounds = "bounds.csv"\nsizes = 2\n'
        f'[privacy]\nepsilon = 0.05\nrelation = "{relation}"\n{more}',
        "utf-8",
    )
    return path


@by_pairs("method, relation", KEEPING, ["sizes", "individuals", "groups"])
def test_every_release_keeps_the_bounds(tmp_path, method, relation):
    """The noise is far larger than the room that they leave."""
    out = tmp_path / "out"
    solve("hierarchical-dp", _problem(tmp_path, relation=relation), out, Options(method=method))
    assert verify(out).complaints == ()
    table = pl.read_csv(out / "release.csv").group_by("region").agg(pl.col("groups").sum())
    total = dict(table.iter_rows())
    if METHODS[method].valid:
        assert total["a"] + total["b"] + total["c"] == total["all"]
        assert total["a"] == 20
        assert 0 <= total["b"] <= 11
        assert 41 <= total["all"] <= 43
        assert total["all"] == 42 or relation != "sizes"


def test_the_nearest_children_by_brute_force():
    rng = np.random.default_rng(7)
    for _ in range(80):
        count = int(rng.integers(1, 4))
        tree = Tree.from_paths([("r", f"c{k}") for k in range(count)])
        least = rng.integers(0, 4, count)
        most = least + rng.integers(0, 5, count)
        near, root = rng.integers(-1, 9, count), np.array([rng.integers(0, 14)])
        ends = [np.array([side.sum()]) for side in (least, most)]
        limits = Limits(tree=tree, lower=[ends[0], least], upper=[ends[1], most])
        found = nearest_within([root, near], limits)
        assert found[0] == np.clip(root, *ends)
        allowed = product(*(range(a, b + 1) for a, b in zip(least, most, strict=True)))
        best = min(((np.array(x) - near) ** 2).sum() for x in allowed if sum(x) == found[0][0])
        assert ((found[1] - near) ** 2).sum() == best
        assert found[1].sum() == found[0][0]
        assert limits.find_violations(found) == []


@pytest.mark.parametrize("relation", ["individuals", "groups"])
def test_counts_that_break_the_bounds_are_told_apart_by_nothing(tmp_path, relation):
    """Inputs that are alike: 20 groups in a, as the bounds have it, and 19. The owner alone is told."""
    for groups in (12, 11):
        rows = [f"all,a,1,{groups}", "all,a,2,8", "all,b,1,10", "all,c,1,12"]
        out = tmp_path / str(groups)
        done = solve("hierarchical-dp", _problem(tmp_path, relation=relation, rows=rows), out, Options())
        assert verify(out).complaints == ()
        assert "whether or not the input is within" in done.result.guarantee.statement
        told = json.loads((out / "private/truth.json").read_text())
        assert told["regions_out_of_bounds"] == 12 - groups


def test_ten_thousand_regions_without_bounds(tmp_path):
    """2^13 times the most that a file may have is no 64-bit integer."""
    path = _problem(tmp_path, "region,at_least,at_most\nr1,,1\nall,9000,\n")
    limits = read_limits(load_problem(HierarchyProblem, path).hierarchy.bounds, TREE)
    assert (limits.lower[0].tolist(), limits.upper[0].tolist()) == ([9000], [UNBOUNDED])
    found = nearest_within([np.array([9000]), np.ones(10_000, np.int64)], limits)
    assert limits.find_violations(found) == []
    path = _problem(tmp_path, "region,at_least\n" + "".join(f"r{k},{UNBOUNDED - 1}\n" for k in range(9_000)))
    with pytest.raises(InfeasibleError, match=f"the regions in it at least {UNBOUNDED + 1} together"):
        read_limits(load_problem(HierarchyProblem, path).hierarchy.bounds, TREE)


@pytest.mark.parametrize("method", ["hierarchical-dp", "cumulative-relaxed"])
def test_a_release_out_of_bounds_is_found(tmp_path, method):
    out = tmp_path / "out"
    solve("hierarchical-dp", _problem(tmp_path), out, Options(method=method))
    lines = (out / "release.csv").read_text().splitlines()
    for place, line in enumerate(lines):
        region, parent, size, groups = line.split(",")
        by = {("a", "1"): 1, ("c", "1"): -1}.get((region, size), 0)
        lines[place] = line if not by else ",".join((region, parent, size, str(max(0, int(groups) + by))))
    (out / "release.csv").write_text("\n".join(lines) + "\n")
    mend(out)
    assert any(
        "region 'a' has 21 groups; hierarchy.bounds allows from 20 to 20" in line for line in verify(out).complaints
    )


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (
            "region,at_least,at_most\nall,,40\na,20,\nb,9,\nc,12,\n",
            "region 'all' has at least 0 and at most 40, the",
        ),
        ("region,at_least\nall,50\n", None),
        ("region,at_least,at_most\nall,50,\na,,20\nb,,15\nc,,14\n", "in it at least 0 and at most 49 together"),
    ],
)
def test_bounds_that_clash_are_named(tmp_path, bounds, words):
    wanted = InputError if words is None else InfeasibleError
    with pytest.raises(wanted) as raised:
        solve("hierarchical-dp", _problem(tmp_path, bounds), tmp_path / "out", Options())
    assert (words or "region 'all': expected from 50 to") in str(raised.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("bounds", "method", "words"),
    [
        (
            "region,at_least\nd,1\n",
            "hierarchical-dp",
            "row 2, column region: expected a region of the hierarchy, got 'd'",
        ),
        (
            "region,at_least\na,1\na,2\n",
            "hierarchical-dp",
            "row 3, column region: expected one row for each region, got 'a' again",
        ),
        (
            "region,at_least,at_most\na,5,4\n",
            "hierarchical-dp",
            "row 2, column at_most: expected at_least of that row or more",
        ),
        ("region,at_most\na,many\n", "hierarchical-dp", "row 2, column at_most"),
        ("region,sizes,at_most\na,1,4\n", "hierarchical-dp", "columns region, and at_least or at_most or both"),
        (BOUNDS, "hierarchical-relaxed", "does not use region totals"),
        ("region,size,at_most\na,1,4\n", "hierarchical-dp", "bounds on groups of all sizes together"),
    ],
)
def test_bounds_that_cannot_be_read_or_kept_are_refused(tmp_path, bounds, method, words):
    with pytest.raises(InputError) as raised:
        solve("hierarchical-dp", _problem(tmp_path, bounds), tmp_path / "out", Options(method=method))
    assert words in str(raised.value)


def _town(folder, relation, bounds, people=(("a", "x", 7), ("a", "y", 2), ("b", "x", 4))):
    """People of two quarters by one attribute, and bounds on how many there are."""
    rows = [f"all,{region},{value},{count}" for region, value, count in people]
    (folder / "people.csv").write_text("\n".join(["level_1,level_2,v,count", *rows]))
    (folder / "regions.csv").write_text("level_1,level_2\nall,a\nall,b\nall,c\n")
    (folder / "bounds.csv").write_text(bounds)
    path = folder / "problem.toml"
    path.write_text(
        '[hierarchy]\nregions = "regions.csv"\nrecords = "people.csv"\nbounds = "bounds.csv"\n'
        'attributes.v = ["x", "y"]\ntables.one.by = ["v"]\n'
        f'[privacy]\nepsilon = 0.05\nrelation = "{relation}"\n'
    )
    return path


@by_pairs("seed, relation", [1, 2], ["individuals", "moves"])
def test_tables_keep_bounds_on_numbers_of_individuals(tmp_path, relation, seed):
    """The noise is far larger than the room that they leave; counts that break those of a quarter are not refused."""
    path = _town(tmp_path, relation, "region,at_least,at_most\na,9,9\nb,,3\nall,11,13\n")
    out = tmp_path / "out"
    done = solve("hierarchical-tables", path, out, Options(seed=seed))
    assert verify(out).complaints == ()
    assert "Bounds on numbers of individuals are public" in done.result.guarantee.statement
    found = dict(pl.read_csv(out / "tables/one.csv").group_by("region").agg(pl.col("count").sum()).iter_rows())
    assert found["a"] == 9
    assert found["b"] <= 3
    assert found["a"] + found["b"] + found["c"] == found["all"]
    assert 11 <= found["all"] <= 13
    assert json.loads((out / "private/truth.json").read_text())["regions_out_of_bounds"] == 1
    table = out / "tables" / "one.csv"
    lines = table.read_text().splitlines()
    place = next(n for n, line in enumerate(lines) if line.startswith("a,"))
    *cells, count, low, high = lines[place].split(",")
    lines[place] = ",".join([*cells, str(int(count) + 1), low, str(max(int(high), int(count) + 1))])
    table.write_text("\n".join(lines) + "\n")
    mend(out)
    assert any("'a' has 10 individuals; hierarchy.bounds allows from 9 to 9" in line for line in verify(out).complaints)


@pytest.mark.parametrize(("relation", "bounds"), [("moves", "all,,12"), ("attributes", "b,5,")])
def test_exact_numbers_that_break_bounds_are_refused_with_all_that_are_alike(tmp_path, relation, bounds):
    path = _town(tmp_path, relation, f"region,at_least,at_most\n{bounds}\n")
    with pytest.raises(InputError, match=r"as hierarchy\.bounds has it"):
        solve("hierarchical-tables", path, tmp_path / "out", Options())
