"""A public table of regions: regions without rows are there with counts of 0, and nothing tells which those are."""

from __future__ import annotations

import json

import polars as pl
import pytest
from helpers.kits import BRIEF, thin_neighbours
from helpers.mended_sums import mend

from privopt.declare import File, load_problem
from privopt.errors import InputError
from privopt.interfaces import SolveContext
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt.testing import conformance
from privopt_hierarchical_dp.groups import read_counts, read_units
from privopt_hierarchical_dp.kit import make_profile
from privopt_hierarchical_dp.level_tables import read_regions
from privopt_hierarchical_dp.plan import plan
from privopt_hierarchical_dp.problem import HierarchyProblem

test_regions_that_the_input_does_not_list = conformance(
    "hierarchical-dp",
    profile=thin_neighbours(make_profile("groups", listed=True)),
    methods=["hierarchical-dp"],
    checks=["solves", "sensitivity", "non-interference", "round-trip"],
    how=BRIEF,
)
REGIONS = "level_1,level_2,level_3\nall,N,a\nall,N,b\nall,Guam,\nall,S,a\n"
ROWS = "level_1,level_2,level_3,size,groups\nall,N,a,1,40\nall,N,a,2,9\nall,S,a,1,30\n"
EMPTY = "all,N,b,1,0\nall,Guam,,2,0\n"


def _problem(folder, rows=ROWS, *, regions=REGIONS, extra_settings="", table=""):
    folder.mkdir(exist_ok=True)
    (folder / "counts.csv").write_text(rows, "utf-8")
    (folder / "regions.csv").write_text(regions, "utf-8")
    path = folder / "problem.toml"
    path.write_text(
        f'[hierarchy]\ncounts = "counts.csv"\nregions = "regions.csv"\nsizes = 3\n{table}'
        f'[privacy]\nepsilon = 0.5\nrelation = "individuals"\n{extra_settings}',
        "utf-8",
    )
    return path


def _public(folder):
    """Return what is published, except times and what names the folder."""
    result = json.loads((folder / "result.json").read_text())
    result.pop("time")
    files = {
        p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file() and "private" not in p.parts
    }
    return {str(p): b for p, b in files.items() if p.name not in ("result.json", "SHA256SUMS")} | {"result": result}


@pytest.mark.parametrize("method", ["cumulative-smoothed", "hierarchical-dp"])
def test_empty_regions_do_not_show(tmp_path, method):
    published = []
    for name, rows in (("listed", ROWS + EMPTY), ("left out", ROWS)):
        output_folder = tmp_path / name / "out"
        release = solve(
            "hierarchical-dp", _problem(tmp_path / name, rows), output_folder, Options(method=method, seed=3)
        )
        assert "whether or not" in release.result.guarantee.statement
        assert verify(output_folder).complaints == ()
        published.append(_public(output_folder))
    assert published[0] == published[1]
    assert set(pl.read_csv(output_folder / "release.csv")["region"]) == {"all", "N", "S", "Guam", "N/a", "b", "S/a"}


def test_input_may_have_no_group(tmp_path):
    output_folder = tmp_path / "out"
    solve("hierarchical-dp", _problem(tmp_path, ROWS.splitlines()[0] + "\n"), output_folder, Options())
    assert verify(output_folder).complaints == ()


def test_regions_and_units(tmp_path):
    listed_regions = read_regions(_file(tmp_path, "regions.csv", REGIONS))
    all_counts = read_counts(_file(tmp_path, "counts.csv", ROWS + EMPTY), 3)
    part = read_counts(_file(tmp_path, "counts.csv", ROWS), 3, listed=listed_regions)
    assert part.tree.names == all_counts.tree.names
    assert (part.leaves == all_counts.leaves).all()
    units = "level_1,level_2,level_3,unit,quantity\nall,S,a,u,1\nall,S,a,u,1\n"
    read_groups = read_units(_file(tmp_path, "units.csv", units), 3, listed=listed_regions)
    assert dict(zip(read_groups.tree.names[-1], read_groups.leaves.tolist(), strict=True))["S/a"] == [0, 1, 0]
    assert read_groups.leaves.sum() == 1


def _file(folder, name, text):
    (folder / name).write_text(text, "utf-8")
    return File.read(folder / name, name)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            "all,S,b,1,77\n",
            "counts.csv: row 5",
        ),
        (
            "all,S,,1,77\n",
            "row 5, column level_1",
        ),
    ],
)
def test_names_unlisted_region_without_its_count(tmp_path, row, words):
    with pytest.raises(InputError) as excinfo:
        solve("hierarchical-dp", _problem(tmp_path, ROWS + row), tmp_path / "out", Options())
    assert words in str(excinfo.value)
    assert "77" not in str(excinfo.value)
    assert not (tmp_path / "out").exists()


def test_finds_release_without_a_region(tmp_path):
    output_folder = tmp_path / "out"
    solve("hierarchical-dp", _problem(tmp_path), output_folder, Options(method="hierarchical-dp"))
    table = output_folder / "problem" / "regions.csv"
    table.write_text(table.read_text() + "all,S,c\n")
    mend(output_folder)
    with pytest.raises(InputError, match="the problem's regions"):
        verify(output_folder)


def test_plan_takes_listed_regions(tmp_path):
    def make_plan(**options):
        problem = load_problem(HierarchyProblem, _problem(tmp_path, "nonsense", **options))
        return plan(problem, "p.toml", SolveContext(method="hierarchical-dp"))

    forecast = make_plan()
    assert "noisy values alone" in forecast.basis
    assert forecast.parts == ("level 1 (1)", "level 2 (3)", "level 3 (4)")
    (tmp_path / "like.csv").write_text(ROWS)
    assert make_plan(table='like = "like.csv"\n').parts == forecast.parts
    (tmp_path / "like.csv").write_text(ROWS + "all,S,b,1,4\n")
    with pytest.raises(InputError, match=r"like\.csv: row 5, .*not listed"):
        make_plan(table='like = "like.csv"\n')


def test_public_tables_keep_only_used_columns(tmp_path):
    """True counts that stand beside the regions too."""
    wide_table = "level_1,level_2,phone,size,groups\nall,a,0176,1,3\nall,b,0176,2,4\n"
    (tmp_path / "regions.csv").write_text(wide_table)
    (tmp_path / "like.csv").write_text(wide_table)
    (tmp_path / "counts.csv").write_text("level_1,level_2,size,groups\nall,a,1,3\nall,b,2,4\n")
    keys = "".join(f'{key} = "{key}.csv"\n' for key in ("counts", "regions", "like"))
    (tmp_path / "p.toml").write_text(f"[hierarchy]\nsizes = 4\n{keys}[privacy]\nepsilon = 1\n")
    problem = solve("hierarchical-dp", tmp_path / "p.toml", tmp_path / "R").folder / "problem"
    assert (problem / "regions.csv").read_text() == "level_1,level_2\nall,a\nall,b\n"
    assert (problem / "like.csv").read_text().startswith("level_1,level_2,size,groups\n")
