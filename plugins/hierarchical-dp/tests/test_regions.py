"""A public table of regions: regions without rows are there with counts of 0, and nothing tells which those are."""

from __future__ import annotations

import json

import polars as pl
import pytest
from helpers.kits import BRIEF, thinned
from helpers.mended_sums import mend

from privopt.declare import File, load_problem
from privopt.errors import InputError
from privopt.interfaces import SolveContext
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt.testing import conformance
from privopt_hierarchical_dp.groups import read_counts, read_units
from privopt_hierarchical_dp.kit import make_profile
from privopt_hierarchical_dp.level_tables import read_regions
from privopt_hierarchical_dp.plan import plan
from privopt_hierarchical_dp.problem import HierarchyProblem

test_regions_that_the_input_does_not_list = conformance(
    "hierarchical-dp",
    profile=thinned(make_profile("groups", listed=True)),
    methods=["hierarchical-dp"],
    checks=["solves", "sensitivity", "non-interference", "round-trip"],
    how=BRIEF,
)
REGIONS = "level_1,level_2,level_3\nall,N,a\nall,N,b\nall,Guam,\nall,S,a\n"
ROWS = "level_1,level_2,level_3,size,groups\nall,N,a,1,40\nall,N,a,2,9\nall,S,a,1,30\n"
EMPTY = "all,N,b,1,0\nall,Guam,,2,0\n"


def _problem(folder, rows=ROWS, *, regions=REGIONS, more="", table=""):
    folder.mkdir(exist_ok=True)
    (folder / "counts.csv").write_text(rows, "utf-8")
    (folder / "regions.csv").write_text(regions, "utf-8")
    path = folder / "problem.toml"
    path.write_text(
        f'[hierarchy]\ncounts = "counts.csv"\nregions = "regions.csv"\nsizes = 3\n{table}'
        f'[privacy]\nepsilon = 0.5\nrelation = "individuals"\n{more}',
        "utf-8",
    )
    return path


def _public(out):
    """Return what is published, except times and what names the folder."""
    told = json.loads((out / "result.json").read_text())
    told.pop("time")
    files = {p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file() and "private" not in p.parts}
    return {str(p): b for p, b in files.items() if p.name not in ("result.json", "SHA256SUMS")} | {"result": told}


@pytest.mark.parametrize("method", ["cumulative-smoothed", "hierarchical-dp"])
def test_files_that_differ_by_an_empty_region_publish_the_same(tmp_path, method):
    found = []
    for name, rows in (("listed", ROWS + EMPTY), ("left out", ROWS)):
        out = tmp_path / name / "out"
        done = solve("hierarchical-dp", _problem(tmp_path / name, rows), out, Options(method=method, seed=3))
        assert "whether or not the input lists them" in done.result.guarantee.statement
        assert verify(out).complaints == ()
        found.append(_public(out))
    assert found[0] == found[1]
    assert set(pl.read_csv(out / "release.csv")["region"]) == {"all", "N", "S", "Guam", "N/a", "b", "S/a"}


def test_no_group_at_all_is_an_input_too(tmp_path):
    out = tmp_path / "out"
    solve("hierarchical-dp", _problem(tmp_path, ROWS.splitlines()[0] + "\n"), out, Options())
    assert verify(out).complaints == ()


def test_regions_and_units(tmp_path):
    listed = read_regions(_file(tmp_path, "regions.csv", REGIONS))
    whole = read_counts(_file(tmp_path, "counts.csv", ROWS + EMPTY), 3)
    part = read_counts(_file(tmp_path, "counts.csv", ROWS), 3, listed=listed)
    assert part.tree.names == whole.tree.names
    assert (part.leaves == whole.leaves).all()
    units = "level_1,level_2,level_3,unit,quantity\nall,S,a,u,1\nall,S,a,u,1\n"
    found = read_units(_file(tmp_path, "units.csv", units), 3, listed=listed)
    assert dict(zip(found.tree.names[-1], found.leaves.tolist(), strict=True))["S/a"] == [0, 1, 0]
    assert found.leaves.sum() == 1


def _file(folder, name, text):
    (folder / name).write_text(text, "utf-8")
    return File.read(folder / name, name)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            "all,S,b,1,77\n",
            "counts.csv: row 5, column level_1 to level_L: expected a leaf region of hierarchy.regions, "
            "got a region that is not listed",
        ),
        (
            "all,S,,1,77\n",
            "row 5, column level_1 to level_L: expected a leaf region of hierarchy.regions, "
            "got a region that is not listed",
        ),
    ],
)
def test_a_region_that_is_not_listed_is_named_without_its_count(tmp_path, row, words):
    with pytest.raises(InputError) as raised:
        solve("hierarchical-dp", _problem(tmp_path, ROWS + row), tmp_path / "out", Options())
    assert words in str(raised.value)
    assert "77" not in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_a_release_without_one_of_the_regions_is_found(tmp_path):
    out = tmp_path / "out"
    solve("hierarchical-dp", _problem(tmp_path), out, Options(method="hierarchical-dp"))
    table = out / "problem" / "regions.csv"
    table.write_text(table.read_text() + "all,S,c\n")
    mend(out)
    with pytest.raises(InputError, match="expected the problem's regions, sorted by name, got other rows"):
        verify(out)


def test_plan_takes_them(tmp_path):
    def planned(**more):
        declared = load_problem(HierarchyProblem, _problem(tmp_path, "nonsense", **more))
        return plan(declared, "p.toml", SolveContext(method="hierarchical-dp"))

    told = planned()
    assert told.basis == "the fit of the noisy values alone"
    assert told.parts == ("level 1 (1)", "level 2 (3)", "level 3 (4)")
    (tmp_path / "like.csv").write_text(ROWS)
    assert planned(table='like = "like.csv"\n').parts == told.parts
    (tmp_path / "like.csv").write_text(ROWS + "all,S,b,1,4\n")
    with pytest.raises(
        InputError, match=r"like\.csv: row 5, column level_1 to level_L: expected .*, got a region that is not listed"
    ):
        planned(table='like = "like.csv"\n')


def test_public_tables_keep_the_columns_that_are_read(tmp_path):
    """True counts that stand beside the regions too."""
    wide = "level_1,level_2,phone,size,groups\nall,a,0176,1,3\nall,b,0176,2,4\n"
    (tmp_path / "regions.csv").write_text(wide)
    (tmp_path / "like.csv").write_text(wide)
    (tmp_path / "counts.csv").write_text("level_1,level_2,size,groups\nall,a,1,3\nall,b,2,4\n")
    keys = "".join(f'{key} = "{key}.csv"\n' for key in ("counts", "regions", "like"))
    (tmp_path / "p.toml").write_text(f"[hierarchy]\nsizes = 4\n{keys}[privacy]\nepsilon = 1\n")
    problem = solve("hierarchical-dp", tmp_path / "p.toml", tmp_path / "R").folder / "problem"
    assert (problem / "regions.csv").read_text() == "level_1,level_2\nall,a\nall,b\n"
    assert (problem / "like.csv").read_text().startswith("level_1,level_2,size,groups\n")
