"""From the problem file to DIR and back, on the paper's running example and on bad input."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from helpers.mended_sums import mend
from helpers.mentions import assert_mentions

from privopt.declare import File
from privopt.errors import InputError, StoppedError, UsageError
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_hierarchical_dp.groups import read_counts, read_units
from privopt_hierarchical_dp.methods import METHODS, default_shares

COUNTS = """level_1,level_2,size,groups
US,NY,1,1
US,NY,2,1
US,NY,3,1
US,GA,1,2
US,GA,3,1
"""


def _problem(
    folder: Path, counts: str = COUNTS, extra_settings: str = "", hierarchy: str = "", epsilon: str = "0.1"
) -> Path:
    (folder / "counts.csv").write_text(counts)
    path = folder / "problem.toml"
    path.write_text(
        f'[hierarchy]\ncounts = "counts.csv"\nsizes = 5\n{hierarchy}[privacy]\nepsilon = {epsilon}\n'
        f"[hierarchical-dp]\n{extra_settings}"
    )
    return path


@pytest.mark.parametrize("method", METHODS)
def test_every_method_solves_and_verifies(tmp_path, method):
    release = solve("hierarchical-dp", _problem(tmp_path), tmp_path / "out", Options(method=method, allow_unsafe=True))
    assert verify(tmp_path / "out").complaints == ()
    table = pl.read_csv(tmp_path / "out" / "release.csv")
    assert table["region"].to_list() == ["GA"] * 5 + ["NY"] * 5 + ["US"] * 5
    assert table["parent"].fill_null("").to_list() == ["US"] * 10 + [""] * 5
    assert table["size"].to_list() == [1, 2, 3, 4, 5] * 3
    counts = table["groups"].to_numpy().reshape(3, 5)[::-1]
    if METHODS[method].valid:
        assert counts.min() >= 0
        assert counts[0].sum() == 6
        np.testing.assert_array_equal(counts[0], counts[1] + counts[2])
        assert release.result.guarantee.kind == "pure-dp"
        assert release.result.certificate.worst <= 0.1
    if method in ("hierarchical-dp", "hierarchical", "cumulative"):  # exact ones
        assert release.result.status == "optimal"
        assert release.result.objective.gap <= 1e-6
    if METHODS[method].totals == "always":
        assert counts[1:].sum(axis=1).tolist() == [3, 3]
    public = {p.relative_to(tmp_path / "out").parts[0] for p in (tmp_path / "out").rglob("*") if p.is_file()}
    bounds = {"intervals.csv"} if METHODS[method].query != "chain" else set()
    assert public == {"release.csv", "noisy.npz", "result.json", "SHA256SUMS", "problem", "private", *bounds}
    assert not (tmp_path / "out" / "problem" / "counts.csv").exists()
    truth = json.loads((tmp_path / "out" / "private" / "truth.json").read_text())
    assert truth["groups"] == 6
    assert len(truth["l1_error_by_level"]) == 2


def test_spends_stated_epsilon_exactly(tmp_path):
    release = solve(
        "hierarchical-dp", _problem(tmp_path, extra_settings="budget = [0.2, 0.8]\n"), tmp_path / "out", Options(seed=4)
    )
    assert release.result.details.facts["tables"]["groups by size"]["budgets"] == ["1/50", "2/25"]
    assert release.result.guarantee.seeded is True
    unseeded = solve("hierarchical-dp", tmp_path / "problem.toml", tmp_path / "again", Options(seed=4))
    assert (tmp_path / "out/release.csv").read_bytes() == (tmp_path / "again/release.csv").read_bytes()
    assert unseeded.result.details.told["noise"][0]["engine"] == "seeded"


def test_region_totals_option_and_guarantee(tmp_path):
    for method in ("cumulative-dp", "hierarchical-dp"):
        problem = _problem(tmp_path, extra_settings="region_totals = true\n")
        result = solve("hierarchical-dp", problem, tmp_path / method, Options(method=method)).result
        table = pl.read_csv(tmp_path / method / "release.csv").group_by("region", maintain_order=True)
        assert table.agg(pl.col("groups").sum())["groups"].to_list() == [3, 3, 6]
        assert "Every region's number" in result.guarantee.statement
        assert verify(tmp_path / method).complaints == ()
    with pytest.raises(InputError, match="publishes every region"):
        solve(
            "hierarchical-dp", _problem(tmp_path, extra_settings="region_totals = false\n"), tmp_path / "x", Options()
        )


def test_unit_records_match_the_running_example(tmp_path):
    rows = ["01,A,GA", "02,B,GA", "03,A,GA", "04,A,GA", "05,C,GA", "06,D,NY", "07,E,NY", "08,D,NY", "09,D,NY"]
    rows += ["10,F,NY", "11,F,NY"]
    text = "level_1,level_2,unit,quantity\n" + "".join(f"US,{r.split(',')[2]},{r.split(',')[1]},1\n" for r in rows)
    (tmp_path / "units.csv").write_text(text)
    groups = read_units(File.read(tmp_path / "units.csv"), 5)
    assert groups.tree.names[1] == ("GA", "NY")
    assert groups.leaves.tolist() == [[2, 0, 1, 0, 0], [1, 1, 1, 0, 0]]
    pl.read_csv(text.encode()).write_parquet(tmp_path / "units.parquet")
    np.testing.assert_array_equal(read_units(File.read(tmp_path / "units.parquet"), 5).leaves, groups.leaves)
    capped = read_units(File.read(tmp_path / "units.csv"), 2)
    assert capped.leaves.tolist() == [[2, 1], [1, 2]]
    problem = tmp_path / "units.toml"
    problem.write_text('[hierarchy]\nunits = "units.csv"\nsizes = 5\n[privacy]\nepsilon = 1\n')
    solve("hierarchical-dp", problem, tmp_path / "out", Options())
    assert verify(tmp_path / "out").complaints == ()


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (COUNTS.replace("GA,3,1", "GA,3,-1"), ("row 6, column groups", "at least 0", "another value")),
        (COUNTS.replace("GA,3,1", "GA,3,1.5"), ("row 6, column groups", "a whole number", "another value")),
        (COUNTS.replace("GA,3,1", 'GA,3,"5,0"'), ("row 6, column groups", "with a point before its decimals")),
        (COUNTS.replace("GA,3,1", "GA,9,1"), ("row 6, column size", "at least 1 and at most 5")),
        (COUNTS.replace("GA,3,1", "GA,1,1"), ("'GA', size 1", "2 rows")),
        (COUNTS + "UK,NY,4,1\n", ("the roots 'UK', 'US'",)),
        (COUNTS + "US,,4,1\n", ("a leaf 1 level deep that has regions below it",)),
        (COUNTS.replace("groups", "number"), ("no column 'groups'",)),
        (COUNTS.replace("level_1", "level_3"), ("no column 'level_1'",)),
        ("level_1,size,groups\n", ("a header alone",)),
        ("", ("counts.csv",)),
        (COUNTS + "US,GA,4,1,7\n", ("counts.csv",)),
    ],
)
def test_names_faults_of_the_counts(tmp_path, counts, words):
    with pytest.raises(InputError) as excinfo:
        solve("hierarchical-dp", _problem(tmp_path, counts), tmp_path / "out", Options())
    for word in words:
        assert word in str(excinfo.value)
    assert not (tmp_path / "out").exists()


def test_contradictory_totals_are_refused_without_figures(tmp_path):
    problem = _problem(tmp_path, hierarchy='totals = "totals.csv"\n')
    (tmp_path / "totals.csv").write_text("region,total\nUS,6\nGA,3\nNY,3\n")
    solve("hierarchical-dp", problem, tmp_path / "out", Options())
    (tmp_path / "totals.csv").write_text("region,total\nUS,6228\nGA,2\nKY,3\nGA,3\n")
    with pytest.raises(InputError) as excinfo:
        solve("hierarchical-dp", problem, tmp_path / "no", Options())
    lines = str(excinfo.value).splitlines()
    assert "row 4, column region" in lines[0]
    assert "KY" not in lines[0]
    assert "again" in lines[1]
    assert "a greater number" in lines[2]
    assert "a smaller number" in lines[3]
    assert "6228" not in str(excinfo.value)


def test_ambiguous_names_are_written_as_paths(tmp_path):
    rows = ["US,OR,Washington,1,70", "US,OR,Lane,2,30", "US,Washington,King,1,50", "US,WI,Washington,3,20"]
    rows += ["US,US,US,1,5"]  # as Luxembourg is a country, a district and a canton of it
    problem = _problem(tmp_path, "level_1,level_2,level_3,size,groups\n" + "\n".join(rows), epsilon="1000000")
    (tmp_path / "t.csv").write_text(
        "region,total\nOR/Washington,70\nWI/Washington,20\nWashington,50\nUS/US/US,5\nUS,175\n"
    )
    problem.write_text(problem.read_text().replace("[privacy]", 'totals = "t.csv"\n[privacy]'))
    solve("hierarchical-dp", problem, tmp_path / "out", Options())
    assert verify(tmp_path / "out").complaints == ()
    for name in ("release.csv", "intervals.csv", "private/counts.csv"):
        table = pl.read_csv(tmp_path / "out" / name)
        parents_by_region = dict(zip(table["region"], table["parent"].fill_null(""), strict=True))
        parents = {"Lane": "OR", "OR/Washington": "OR", "WI/Washington": "WI", "Washington": "US", "King": "Washington"}
        parents |= {"US": "", "US/US": "US", "US/US/US": "US/US"}
        assert parents.items() <= parents_by_region.items()
    nonzero_rows = pl.read_csv(tmp_path / "out" / "release.csv").filter(pl.col("groups") > 0)
    assert ("OR/Washington", "OR", 1, 70) in nonzero_rows.rows()
    assert ("WI/Washington", "WI", 3, 20) in nonzero_rows.rows()
    units = [f"US,{a},Washington,{u},1" for a, u in (("OR", "x"), ("WI", "x"), ("WI", "x"))]
    (tmp_path / "u.csv").write_text("level_1,level_2,level_3,unit,quantity\n" + "\n".join(units) + "\n")
    assert read_units(File.read(tmp_path / "u.csv"), 3).leaves.tolist() == [[1, 0, 0], [0, 1, 0]]


def test_refuses_quantities_above_the_maximum(tmp_path):
    (tmp_path / "u.csv").write_text("level_1,unit,quantity\nr,a,2\nr,b,0\n")
    with pytest.raises(InputError, match="row 2, column quantity"):
        read_units(File.read(tmp_path / "u.csv"), 5)
    assert read_units(File.read(tmp_path / "u.csv"), 5, max_quantity=2).empty == 1
    (tmp_path / "u.csv").write_text("level_1,unit,quantity\nr,,1\n")
    with pytest.raises(InputError, match="column unit"):
        read_units(File.read(tmp_path / "u.csv"), 5)


def test_refuses_wrong_list_lengths_and_two_inputs(tmp_path):
    with pytest.raises(InputError, match=r"hierarchical-dp.budget: expected 2.*3 numbers"):
        solve("hierarchical-dp", _problem(tmp_path, extra_settings="budget = [1, 1, 1]\n"), tmp_path / "out", Options())
    problem = _problem(tmp_path, hierarchy='units = "counts.csv"\n')
    with pytest.raises(InputError, match="both counts"):
        solve("hierarchical-dp", problem, tmp_path / "out", Options())


def test_integer_programs_refuse_large_inputs(tmp_path):
    rows = "".join(f"US,R{r},{s},1\n" for r in range(600) for s in (1, 2))
    problem = _problem(tmp_path, "level_1,level_2,size,groups\n" + rows)
    for method in ("hierarchical", "cumulative"):
        with pytest.raises(UsageError, match=r"601 regions x 5 sizes = 3,005"):
            solve("hierarchical-dp", problem, tmp_path / "out", Options(method=method))


def test_names_with_commas_and_quotes_round_trip(tmp_path):
    counts = 'level_1,level_2,size,groups\nUS,"Doña Ana, ""NM""",1,5\nUS,007,2,3\n'
    solve("hierarchical-dp", _problem(tmp_path, counts), tmp_path / "out", Options())
    assert verify(tmp_path / "out").complaints == ()
    names = pl.read_csv(tmp_path / "out" / "release.csv", schema_overrides={"region": pl.String})["region"].unique()
    assert set(names) == {"US", 'Doña Ana, "NM"', "007"}


def test_verify_finds_a_changed_count(tmp_path):
    solve("hierarchical-dp", _problem(tmp_path), tmp_path / "out", Options())
    path = tmp_path / "out" / "release.csv"
    lines = path.read_text().splitlines()
    lines[1] = lines[1].rsplit(",", 1)[0] + ",77"
    path.write_text("\n".join(lines) + "\n")
    mend(tmp_path / "out")
    complaints = verify(tmp_path / "out").complaints
    assert any("sums of their" in line for line in complaints)


def test_wide_parquet_counts_and_absent_pairs(tmp_path):
    frame = pl.DataFrame({"level_1": ["r", "r"], "level_2": ["b", "a"], "size": [2, 1], "groups": [4.0, 7.0]})
    frame.write_parquet(tmp_path / "c.parquet")
    groups = read_counts(File.read(tmp_path / "c.parquet"), 3)
    assert groups.tree.names[1] == ("a", "b")
    assert groups.leaves.tolist() == [[7, 0, 0], [0, 4, 0]]


def test_default_shares_are_exact():
    assert default_shares("cumulative-smoothed", 3) == (Fraction(2, 25), Fraction(3, 25), Fraction(4, 5))
    assert default_shares("cumulative-dp", 3) == (Fraction(1, 3),) * 3
    for depth in range(1, 8):
        assert sum(default_shares("cumulative-chain", depth)) == 1


@pytest.mark.parametrize("method", ["cumulative-chain", "cumulative-dp", "hierarchical", "top-down"])
def test_interrupt_leaves_a_valid_release(tmp_path, monkeypatch, method):
    import privopt_hierarchical_dp.sizes as sizes

    def raise_interrupt(task):
        raise KeyboardInterrupt

    monkeypatch.setattr(sizes, "fit", raise_interrupt)
    release = solve("hierarchical-dp", _problem(tmp_path), tmp_path / "out", Options(method=method))
    assert release.stopped
    assert release.result.status == "feasible"
    assert verify(tmp_path / "out").complaints == ()


def test_interrupt_during_import_is_no_plugin_fault(tmp_path, monkeypatch):
    import privopt_hierarchical_dp.sizes as sizes

    def raise_interrupt(task):
        raise KeyboardInterrupt

    def raise_import_fault(task):
        raise AttributeError("partially initialized module 'numba' has no attribute 'njit'")

    monkeypatch.setattr(sizes, "fit", raise_interrupt)
    monkeypatch.setattr(sizes, "fit_at_once", raise_import_fault)
    with pytest.raises(StoppedError, match="stopped before anything"):
        solve("hierarchical-dp", _problem(tmp_path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_time_limit_leaves_a_valid_release(tmp_path, random_tree):
    from privopt.execution.clock import limit
    from privopt_hierarchical_dp.fits.chain import fit_with_totals
    from privopt_hierarchical_dp.tree import add_up

    rng = np.random.default_rng(6)
    tree = random_tree(rng, 3, 5)
    leaves = rng.integers(0, 30, size=tree.widths[-1])
    totals = add_up(tree, leaves)
    noisy = [rng.integers(-9, 40, size=(width, 9)) for width in tree.widths]
    with limit(0.0):
        fitted = fit_with_totals(tree, noisy, totals=totals, weights=[1.0] * 3, cumulative=True, gap=0.0)
    assert fitted.iterations == 10
    for level, total, sums in zip(fitted.counts, totals, add_up(tree, fitted.counts[-1]), strict=True):
        assert level.min() >= 0
        np.testing.assert_array_equal(level, sums)
        np.testing.assert_array_equal(level.sum(axis=1), total)


RAGGED = "level_1,level_2,level_3,size,groups\nUS,NY,Kings,1,40\nUS,NY,Bronx,2,30\nUS,Guam,,1,9\nUS,Guam,,3,5\n"


@pytest.mark.parametrize("method", METHODS)
def test_short_branch_gets_the_whole_budget(tmp_path, method):
    output_folder = tmp_path / "out"
    problem = _problem(tmp_path, RAGGED, epsilon="1000", extra_settings="budget = [1, 1, 2]\n")
    release = solve("hierarchical-dp", problem, output_folder, Options(method=method, allow_unsafe=True))
    assert verify(output_folder).complaints == ()
    table = pl.read_csv(output_folder / "release.csv")
    assert table["region"].unique(maintain_order=True).to_list() == ["Bronx", "Guam", "Kings", "NY", "US"]
    assert table.height == 5 * 5
    parents = dict(zip(table["region"], table["parent"].fill_null(""), strict=True))
    assert (parents["Guam"], parents["Bronx"], parents["US"]) == ("US", "NY", "")
    if METHODS[method].valid:  # next to no noise
        groups = {(r, s): g for r, _, s, g in table.iter_rows()}
        assert [groups["Guam", s] for s in (1, 2, 3)] == [9, 0, 5]
        assert [groups["US", s] for s in (1, 2, 3)] == [49, 30, 5]
    with np.load(output_folder / "noisy.npz") as archive:  # each level's vector covers the whole hierarchy
        assert [len(archive[f"level_{level}"]) for level in (1, 2, 3)] == [1, 2, 3]
    if METHODS[method].query != "chain":
        assert sum(map(Fraction, release.result.details.facts["tables"]["groups by size"]["budgets"])) <= 1000


def test_units_and_totals_of_short_branches(tmp_path):
    (tmp_path / "u.csv").write_text("level_1,level_2,level_3,unit,quantity\nr,a,b,x,1\nr,a,b,x,1\nr,c,,y,1\n")
    (tmp_path / "t.csv").write_text("region,total\nr,2\nc,1\n")
    (tmp_path / "p.toml").write_text(
        '[hierarchy]\nunits = "u.csv"\ntotals = "t.csv"\nsizes = 3\n[privacy]\nepsilon = 1000\n'
    )
    solve("hierarchical-dp", tmp_path / "p.toml", tmp_path / "out", Options())
    nonzero_rows = pl.read_csv(tmp_path / "out" / "release.csv").filter(pl.col("groups") > 0)
    assert nonzero_rows.select("region", "size", "groups").rows() == [
        ("a", 2, 1),
        ("b", 2, 1),
        ("c", 1, 1),
        ("r", 1, 1),
        ("r", 2, 1),
    ]


@pytest.mark.parametrize("method", ["hierarchical-dp", "top-down"])
def test_overflowing_sums_do_not_verify(tmp_path, method):
    """Four children of 2^62 each, one more by what the parent has: 64 bits would have them add up."""
    counts = "level_1,level_2,size,groups\n" + "".join(f"US,{name},1,3\n" for name in "abcd")
    solve("hierarchical-dp", _problem(tmp_path, counts), tmp_path / "out", Options(method=method))
    frame = pl.read_csv(tmp_path / "out" / "release.csv")
    is_size_1 = pl.col("size") == 1
    top = frame.filter(is_size_1 & (pl.col("region") == "US"))["groups"][0]
    forged_groups = pl.when(pl.col("region") == "d").then(2**62 + top).otherwise(2**62)
    changed_groups = pl.when(is_size_1 & (pl.col("region") != "US")).then(forged_groups).otherwise(pl.col("groups"))
    frame.with_columns(groups=changed_groups).write_csv(tmp_path / "out" / "release.csv")
    mend(tmp_path / "out")
    assert_mentions(" ".join(verify(tmp_path / "out").complaints), "release.csv: level 2", "2^61")
