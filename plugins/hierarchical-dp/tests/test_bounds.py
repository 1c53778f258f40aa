"""Public bounds on numbers of groups: kept by every release, clashes named, the nearest totals by brute force."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import polars as pl
import pytest

from privopt.declare import load_problem
from privopt.errors import InfeasibleError, InputError
from privopt.files.release_folder import sums_text
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt_hierarchical_dp.bounds import UNBOUNDED, Limits, Range, limits_of
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.nearest import check_room, moved_within, nearest_within
from privopt_hierarchical_dp.problem import HierarchyProblem
from privopt_hierarchical_dp.tree import Tree, add_up

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


@pytest.mark.parametrize("relation", ["sizes", "individuals", "groups"])
@pytest.mark.parametrize("method", KEEPING)
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
        limits = Range(least=[ends[0], least], most=[ends[1], most])
        found = nearest_within(tree, [root, near], limits)
        assert found[0] == np.clip(root, *ends)
        allowed = product(*(range(a, b + 1) for a, b in zip(least, most, strict=True)))
        best = min(((np.array(x) - near) ** 2).sum() for x in allowed if sum(x) == found[0][0])
        assert ((found[1] - near) ** 2).sum() == best
        assert found[1].sum() == found[0][0]
        assert limits.outside(found) == []


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
    limits = limits_of(load_problem(HierarchyProblem, path), TREE).totals
    assert (limits.least[0].tolist(), limits.most[0].tolist()) == ([9000], [UNBOUNDED])
    found = nearest_within(TREE, [np.array([9000]), np.ones(10_000, np.int64)], limits)
    assert limits.outside(found) == []
    path = _problem(tmp_path, "region,at_least\n" + "".join(f"r{k},{UNBOUNDED - 1}\n" for k in range(9_000)))
    with pytest.raises(InfeasibleError, match=f"the regions in it at least {UNBOUNDED + 1} together"):
        limits_of(load_problem(HierarchyProblem, path), TREE)


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
    (out / "SHA256SUMS").write_text(sums_text(out))
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
    assert (words or "region 'all': found 42 groups, wanted from 50 to") in str(raised.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("bounds", "method", "words"),
    [
        ("region,at_least\nd,1\n", "top-down", "row 2, column region: found 'd'"),
        ("region,at_least\na,1\na,2\n", "top-down", "row 3, column region: found 'a' again"),
        ("region,at_least,at_most\na,5,4\n", "top-down", "row 2, column at_most: found 4, wanted at_least, 5"),
        ("region,at_most\na,many\n", "top-down", "row 2, column at_most"),
        ("region,sizes,at_most\na,1,4\n", "top-down", "columns region, and at_least or at_most or both; size too"),
        (BOUNDS, "hierarchical-relaxed", "does not use region totals"),
        ("region,size,at_most\na,1,4\n", "cumulative-relaxed", "its children need not add up"),
    ],
)
def test_bounds_that_cannot_be_read_or_kept_are_refused(tmp_path, bounds, method, words):
    with pytest.raises(InputError) as raised:
        solve("hierarchical-dp", _problem(tmp_path, bounds), tmp_path / "out", Options(method=method))
    assert words in str(raised.value)


SIZED = "region,size,at_least,at_most\nall,1,,15\na,1,10,12\nb,2,8,\nc,2,,0\n"


def _sized(out):
    table = pl.read_csv(out / "release.csv")
    return {(r, s): g for r, s, g in table.select("region", "size", "groups").iter_rows()}


def _keeps(found):
    ends = {("all", 1): (0, 15), ("a", 1): (10, 12), ("b", 2): (8, 10**6), ("c", 2): (0, 0)}
    return all(low <= found[cell] <= high for cell, (low, high) in ends.items()) and all(
        found["a", s] + found["b", s] + found["c", s] == found["all", s] for s in (1, 2)
    )


@pytest.mark.parametrize("relation", ["sizes", "individuals"])
@pytest.mark.parametrize("method", [name for name in METHODS if METHODS[name].valid])
def test_every_release_keeps_bounds_on_sizes(tmp_path, method, relation):
    """The noise is far larger than the room that they leave."""
    rows = ["all,a,1,12", "all,a,2,18", "all,b,1,1", "all,b,2,9", "all,c,1,2", "all,c,2,0"]
    text = SIZED if relation == "sizes" else SIZED + "c,,,20\n"
    out = tmp_path / "out"
    done = solve("hierarchical-dp", _problem(tmp_path, text, relation=relation, rows=rows), out, Options(method=method))
    found = _sized(out)
    assert verify(out).complaints == ()
    assert _keeps(found), found
    assert "moved into" in done.result.guarantee.statement
    if relation == "sizes":
        assert sum(groups for (region, _), groups in found.items() if region == "all") == 42
    if METHODS[method].totals == "always" and relation == "sizes":
        assert found["c", 1] == 2
    lines = (out / "release.csv").read_text().replace(f"c,all,2,{found['c', 2]}", "c,all,2,1")
    (out / "release.csv").write_text(lines)
    (out / "SHA256SUMS").write_text(sums_text(out))
    assert any("'c', size 2 has 1 groups; hierarchy.bounds allows from 0 to 0" in c for c in verify(out).complaints)


def test_the_nearest_within_bounds_on_sizes_by_brute_force():
    """With numbers of groups kept: no other leaves within bounds are nearer in L1."""
    rng, tried = np.random.default_rng(3), 0
    for _ in range(60):
        tree = Tree.from_paths([("r", "a", "a1"), ("r", "a", "a2"), ("r", "b", "b1")])
        leaves = rng.integers(0, 3, (3, 2))
        levels = add_up(tree, leaves)
        least = [rng.integers(0, 2, level.shape) * (rng.random(level.shape) < 0.2) for level in levels]
        most = [np.where(rng.random(level.shape) < 0.5, rng.integers(1, 3, level.shape), UNBOUNDED) for level in levels]
        loose = Range(least=[np.zeros(w) for w in tree.widths], most=[np.full(w, UNBOUNDED) for w in tree.widths])
        limits = Limits(tree=tree, totals=loose, on_totals=False, sizes=Range(least=least, most=most))
        totals = [level.sum(axis=1) for level in levels]
        near = []
        for values in product(range(5), repeat=3):
            other = np.array([[v, t - v] for v, t in zip(values, totals[-1], strict=True)])
            if other.min() >= 0 and not limits.broken(add_up(tree, other)):
                near.append(int(np.abs(other - leaves).sum()))
        if not near:
            with pytest.raises(InfeasibleError, match="no counts keep"):
                check_room(tree, limits, totals)
            continue
        check_room(tree, limits, totals)
        found = moved_within(tree, levels, limits, totals)
        assert not limits.broken(found)
        assert np.abs(found[-1] - leaves).sum() == min(near)
        assert (found[-1].sum(axis=1) == totals[-1]).all()
        tried += 1
    assert tried > 10


@pytest.mark.parametrize(
    ("bounds", "error", "words"),
    [
        (SIZED + "a,1,1,2\n", InputError, "row 6, column region: found 'a', size 1, again"),
        (SIZED + "a,3,1,2\n", InputError, "row 6, column size: found 3 in 'a', wanted a whole number from 1 to 2"),
        (SIZED + "a,2,5,4\n", InputError, "row 6, column at_most: found 4, wanted at_least, 5, or more"),
        (
            SIZED + "b,1,9,\n",
            InfeasibleError,
            "'all' has at least 0 and at most 15 of size 1, the regions in it at least 19",
        ),
        (SIZED + "b,,,7\n", InfeasibleError, "'b' has at least 0 and at most 7, its sizes at least 8 together"),
        ("region,size,at_most\nall,1,20\nall,2,20\n", InputError, "region 'all': found 42 groups, wanted from 0 to 40"),
        ("region,size,at_most\na,1,12\nall,2,2\n", InfeasibleError, "no counts keep its bounds on sizes"),
    ],
)
def test_bounds_on_sizes_that_cannot_be_are_named(tmp_path, bounds, error, words):
    with pytest.raises(error) as raised:
        solve("hierarchical-dp", _problem(tmp_path, bounds), tmp_path / "out", Options())
    assert words in str(raised.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("groups", [12, 13])
def test_counts_out_of_bounds_on_sizes_are_told_to_their_owner_alone(tmp_path, groups):
    """Inputs that are alike under "sizes": one more of 12 groups in a is alone."""
    rows = [f"all,a,1,{groups}", f"all,a,2,{21 - groups}", "all,b,2,12", "all,c,1,1"]
    out = tmp_path / "out"
    solve("hierarchical-dp", _problem(tmp_path, SIZED, rows=rows), out, Options())
    assert json.loads((out / "private/truth.json").read_text())["counts_out_of_bounds"] == groups - 12


def test_impossible_sizes_beside_bounds(tmp_path):
    path = _problem(tmp_path, SIZED)
    (tmp_path / "zeros.csv").write_text("region,size\nc,2\nb,1\n")
    path.write_text(path.read_text().replace("sizes = 2", 'sizes = 2\nimpossible = "zeros.csv"'))
    out = tmp_path / "out"
    solve("hierarchical-dp", path, out, Options(method="hierarchical-dp"))
    assert verify(out).complaints == ()
    assert _keeps(_sized(out))
    assert _sized(out)["b", 1] == 0
    (tmp_path / "zeros.csv").write_text("region,size\na,1\n")
    with pytest.raises(InfeasibleError, match="'a' has at least 10 of size 1, which hierarchy"):
        solve("hierarchical-dp", path, tmp_path / "again", Options(method="hierarchical-dp"))
