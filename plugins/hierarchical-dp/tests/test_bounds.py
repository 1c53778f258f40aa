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
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_hierarchical_dp.bounds import UNBOUNDED, Limits, nearest_within, read_limits
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.problem import HierarchyProblem
from privopt_hierarchical_dp.tree import Tree

TREE = Tree.from_paths([("all", f"r{k}") for k in range(10_000)])
KEEPING = [name for name in METHODS if METHODS[name].totals != "never"]
BOUNDS = "region,at_least,at_most\na,20,20\nb,,11\nall,41,43\n"


def _problem(folder, bounds=BOUNDS, *, relation="sizes", extra_settings="", rows=None):
    rows = rows or [
        f"all,{r},{s},{n}"
        for r, numbers in (("a", (12, 8)), ("b", (4, 6)), ("c", (9, 3)))
        for s, n in enumerate(numbers, 1)
    ]
    (folder / "counts.csv").write_text("\n".join(["level_1,level_2,size,groups", *rows]), "utf-8")
    (folder / "bounds.csv").write_text(bounds, "utf-8")
    path = folder / "problem.toml"
    path.write_text(
        '[hierarchy]\ncounts = "counts.csv"\nbounds = "bounds.csv"\nsizes = 2\n'
        f'[privacy]\nepsilon = 0.05\nrelation = "{relation}"\n{extra_settings}',
        "utf-8",
    )
    return path


@by_pairs("method, relation", KEEPING, ["sizes", "individuals", "groups"])
def test_every_release_keeps_the_bounds(tmp_path, method, relation):
    """The noise is far larger than the room that they leave."""
    output_folder = tmp_path / "out"
    solve("hierarchical-dp", _problem(tmp_path, relation=relation), output_folder, Options(method=method))
    assert verify(output_folder).complaints == ()
    table = pl.read_csv(output_folder / "release.csv").group_by("region").agg(pl.col("groups").sum())
    total = dict(table.iter_rows())
    if METHODS[method].valid:
        assert total["a"] + total["b"] + total["c"] == total["all"]
        assert total["a"] == 20
        assert 0 <= total["b"] <= 11
        assert 41 <= total["all"] <= 43
        assert total["all"] == 42 or relation != "sizes"


def test_nearest_children_match_brute_force():
    rng = np.random.default_rng(7)
    for _ in range(80):
        count = int(rng.integers(1, 4))
        tree = Tree.from_paths([("r", f"c{k}") for k in range(count)])
        lower = rng.integers(0, 4, count)
        upper = lower + rng.integers(0, 5, count)
        noisy, root = rng.integers(-1, 9, count), np.array([rng.integers(0, 14)])
        root_bounds = [np.array([bound.sum()]) for bound in (lower, upper)]
        limits = Limits(tree=tree, lower=[root_bounds[0], lower], upper=[root_bounds[1], upper])
        nearest_counts = nearest_within([root, noisy], limits)
        assert nearest_counts[0] == np.clip(root, *root_bounds)
        candidates = product(*(range(a, b + 1) for a, b in zip(lower, upper, strict=True)))
        best = min(((np.array(x) - noisy) ** 2).sum() for x in candidates if sum(x) == nearest_counts[0][0])
        assert ((nearest_counts[1] - noisy) ** 2).sum() == best
        assert nearest_counts[1].sum() == nearest_counts[0][0]
        assert limits.find_violations(nearest_counts) == []


@pytest.mark.parametrize("relation", ["individuals", "groups"])
def test_violated_bounds_look_like_any_input(tmp_path, relation):
    """Inputs that are alike: 20 groups in a, as the bounds have it, and 19. The owner alone is told."""
    for groups in (12, 11):
        rows = [f"all,a,1,{groups}", "all,a,2,8", "all,b,1,10", "all,c,1,12"]
        output_folder = tmp_path / str(groups)
        release = solve("hierarchical-dp", _problem(tmp_path, relation=relation, rows=rows), output_folder, Options())
        assert verify(output_folder).complaints == ()
        assert "input is within" in release.result.guarantee.statement
        truth = json.loads((output_folder / "private/truth.json").read_text())
        assert truth["regions_out_of_bounds"] == 12 - groups


def test_ten_thousand_unbounded_regions(tmp_path):
    """2^13 times the most that a file may have is no 64-bit integer."""
    path = _problem(tmp_path, "region,at_least,at_most\nr1,,1\nall,9000,\n")
    limits = read_limits(load_problem(HierarchyProblem, path).hierarchy.bounds, TREE)
    assert (limits.lower[0].tolist(), limits.upper[0].tolist()) == ([9000], [UNBOUNDED])
    nearest_counts = nearest_within([np.array([9000]), np.ones(10_000, np.int64)], limits)
    assert limits.find_violations(nearest_counts) == []
    path = _problem(tmp_path, "region,at_least\n" + "".join(f"r{k},{UNBOUNDED - 1}\n" for k in range(9_000)))
    with pytest.raises(InfeasibleError, match=f"at least {UNBOUNDED + 1}"):
        read_limits(load_problem(HierarchyProblem, path).hierarchy.bounds, TREE)


@pytest.mark.parametrize("method", ["hierarchical-dp", "cumulative-relaxed"])
def test_finds_release_out_of_bounds(tmp_path, method):
    output_folder = tmp_path / "out"
    solve("hierarchical-dp", _problem(tmp_path), output_folder, Options(method=method))
    lines = (output_folder / "release.csv").read_text().splitlines()
    for index, line in enumerate(lines):
        region, parent, size, groups = line.split(",")
        change = {("a", "1"): 1, ("c", "1"): -1}.get((region, size), 0)
        lines[index] = line if not change else ",".join((region, parent, size, str(max(0, int(groups) + change))))
    (output_folder / "release.csv").write_text("\n".join(lines) + "\n")
    mend(output_folder)
    assert any("'a' has 21 groups" in line and "from 20 to 20" in line for line in verify(output_folder).complaints)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (
            "region,at_least,at_most\nall,,40\na,20,\nb,9,\nc,12,\n",
            "region 'all' has at least 0 and at most 40, the",
        ),
        ("region,at_least\nall,50\n", "region 'all': expected at least 50, as hierarchy.bounds has it, got exactly 42"),
        ("region,at_least,at_most\nall,50,\na,,20\nb,,15\nc,,14\n", "in it at least 0 and at most 49 together"),
    ],
)
def test_names_clashing_bounds(tmp_path, bounds, words):
    with pytest.raises(InfeasibleError) as excinfo:
        solve("hierarchical-dp", _problem(tmp_path, bounds), tmp_path / "out", Options())
    assert words in str(excinfo.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("bounds", "method", "words"),
    [
        (
            "region,at_least\nd,1\n",
            "hierarchical-dp",
            "row 2, column region",
        ),
        (
            "region,at_least\na,1\na,2\n",
            "hierarchical-dp",
            "row 3, column region",
        ),
        (
            "region,at_least,at_most\na,5,4\n",
            "hierarchical-dp",
            "row 2, column at_most",
        ),
        ("region,at_most\na,many\n", "hierarchical-dp", "row 2, column at_most"),
        ("region,sizes,at_most\na,1,4\n", "hierarchical-dp", "at_least or at_most"),
        (BOUNDS, "hierarchical-relaxed", "region totals"),
        ("region,size,at_most\na,1,4\n", "hierarchical-dp", "all sizes together"),
    ],
)
def test_refuses_unreadable_or_unusable_bounds(tmp_path, bounds, method, words):
    with pytest.raises(InputError) as excinfo:
        solve("hierarchical-dp", _problem(tmp_path, bounds), tmp_path / "out", Options(method=method))
    assert words in str(excinfo.value)


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
def test_tables_keep_bounds_on_individuals(tmp_path, relation, seed):
    """The noise is far larger than the room that they leave; counts that break those of a quarter are not refused."""
    path = _town(tmp_path, relation, "region,at_least,at_most\na,9,9\nb,,3\nall,11,13\n")
    output_folder = tmp_path / "out"
    release = solve("hierarchical-tables", path, output_folder, Options(seed=seed))
    assert verify(output_folder).complaints == ()
    assert "numbers of individuals" in release.result.guarantee.statement
    counts_by_region = dict(
        pl.read_csv(output_folder / "tables/one.csv").group_by("region").agg(pl.col("count").sum()).iter_rows()
    )
    assert counts_by_region["a"] == 9
    assert counts_by_region["b"] <= 3
    assert counts_by_region["a"] + counts_by_region["b"] + counts_by_region["c"] == counts_by_region["all"]
    assert 11 <= counts_by_region["all"] <= 13
    assert json.loads((output_folder / "private/truth.json").read_text())["regions_out_of_bounds"] == 1
    table = output_folder / "tables" / "one.csv"
    lines = table.read_text().splitlines()
    line_number = next(n for n, line in enumerate(lines) if line.startswith("a,"))
    *cells, count, low, high = lines[line_number].split(",")
    lines[line_number] = ",".join([*cells, str(int(count) + 1), low, str(max(int(high), int(count) + 1))])
    table.write_text("\n".join(lines) + "\n")
    mend(output_folder)
    assert any("'a' has 10 individuals" in line and "from 9 to 9" in line for line in verify(output_folder).complaints)


@pytest.mark.parametrize(("relation", "bounds"), [("moves", "all,,12"), ("attributes", "b,5,")])
def test_refuses_exact_numbers_that_break_bounds(tmp_path, relation, bounds):
    path = _town(tmp_path, relation, f"region,at_least,at_most\n{bounds}\n")
    with pytest.raises(InfeasibleError, match=r"hierarchy\.bounds has it, got exactly (13|4) individuals") as excinfo:
        solve("hierarchical-tables", path, tmp_path / "out", Options())
    assert "which is off by 1" in str(excinfo.value)
    assert excinfo.value.exit_code == 3
