"""The report of several tables: all cells, intervals, figures, methods to copy; plain totals; no secret in it."""

from __future__ import annotations

import json
import re

import pytest
from helpers.command import run as privopt
from helpers.mentions import assert_mentions

RECORDS = "level_1,level_2,age,count\n" + "".join(
    f"Town,r{region},{age},{30 + 10 * region + 3 * number}\n"
    for region in range(3)
    for number, age in enumerate(("child", "adult", "old"))
)


def problem(folder, tables, *, attributes='[hierarchy.attributes]\nage = ["child", "adult", "old"]\n', budget=""):
    (folder / "records.csv").write_text(RECORDS)
    (folder / "regions.csv").write_text("level_1,level_2\nTown,r0\nTown,r1\nTown,r2\n")
    path = folder / "p.toml"
    path.write_text(
        f'[hierarchy]\nregions = "regions.csv"\nrecords = "records.csv"\n{budget}{attributes}{tables}'
        "[privacy]\nepsilon = 2.0\n"
    )
    return path


def test_report_has_every_cell_and_its_methods(tmp_path):
    tables = '[hierarchy.tables.age]\nby = ["age"]\n[hierarchy.tables.people]\nby = []\n'
    path = problem(tmp_path, tables, budget="budget = [0, 1]\n")
    completed = privopt("solve", "hierarchical-tables", path, "--out", tmp_path / "out", "--quiet")
    assert completed.exit_code == 0, completed.output
    completed = privopt("report", tmp_path / "out", "--figures", tmp_path / "drawn")
    assert completed.exit_code == 0, completed.output
    page = (tmp_path / "out" / "report.html").read_text()
    rows = re.findall(r"<td[^>]*>(Town|r\d)</td><td[^>]*>(child|adult|old)</td>", page)
    assert len(rows) == 4 * 3
    assert "Not measured, but" in page
    # Level 1 has no share, so its numbers are sums; noise of size 0 would say that they are exact.
    noise = re.findall(r"<td[^>]*>0</td><td[^>]*>0\u00a0%</td><td[^>]*>([^<]*)</td>", page)
    assert noise == ["none: a sum"] * 2
    assert "epsilon = 2" in page
    assert "joins or leaves" in page.replace("\n", " ")
    assert "noisy values" in page
    assert not re.search(r"<dt>(gap|proved bound)</dt>", page)
    assert {file.stem for file in (tmp_path / "drawn").iterdir()} >= {"tree", "table-age", "table-people"}


def test_plain_totals_need_no_attribute(tmp_path):
    path = problem(tmp_path, "[hierarchy.tables.people]\nby = []\n", attributes="")
    completed = privopt("solve", "hierarchical-tables", path, "--out", tmp_path / "out", "--quiet")
    assert completed.exit_code == 0, completed.output
    assert privopt("verify", tmp_path / "out").exit_code == 0
    assert (tmp_path / "out/tables/people.csv").read_text().splitlines()[0] == "region,parent,count,low,high"
    assert privopt("report", tmp_path / "out").exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "errors", ["{ age = { level_1 = 5, level_2 = 1 }, people = { level_1 = 1 } }", "{ age = { level_2 = 1 } }"]
)
def test_plan_weighs_tables_and_levels(tmp_path, errors):
    tables = '[hierarchy.tables.age]\nby = ["age"]\n[hierarchy.tables.people]\nby = []\n'
    path = problem(tmp_path, tables)
    path.write_text(path.read_text() + f"[plan]\nerrors = {errors}\n")
    completed = privopt("plan", "hierarchical-tables", path, "--json", "--quiet")
    plan = json.loads(completed.stdout)
    weights = [float(row) for row in plan["weights"]]
    (leaves,) = plan["baselines"]
    best, simple = (sum(w * e for w, e in zip(weights, row["by_part"], strict=True)) for row in (plan["best"], leaves))
    assert best <= 1.02 * simple
    text = privopt("plan", "hierarchical-tables", path).stdout.splitlines()
    assert max(map(len, text[1:6])) <= 100
    path.write_text(path.read_text() + "\n")
    wrong_text = path.read_text().replace("age = {", "ages = {")
    path.write_text(wrong_text)
    assert "plan.errors.ages: expected tables " in privopt("plan", "hierarchical-tables", path).output


def test_adds_up_tables_without_a_share(tmp_path):
    tables = '[hierarchy.tables.age]\nby = ["age"]\n[hierarchy.tables.people]\nby = []\nshare = 0\n'
    completed = privopt("solve", "hierarchical-tables", problem(tmp_path, tables), "--out", tmp_path / "out", "--quiet")
    assert completed.exit_code == 0, completed.output
    assert privopt("verify", tmp_path / "out").exit_code == 0
    tables_text = '[hierarchy.tables.age]\nby = ["age"]\nshare = 0\n[hierarchy.tables.people]\nby = []\n'
    completed = privopt("solve", "hierarchical-tables", problem(tmp_path, tables_text), "--out", tmp_path / "two")
    assert completed.exit_code == 2
    assert_mentions(completed.output, "hierarchy.tables.age.share", "above 0")


def test_init_writes_a_solvable_problem(tmp_path):
    rows = ["level_1,level_2,age,diary,count", "Town,r0,child,a,4", "Town,r1,old,b,7"]
    rows += [f"Town,r2,adult,{number},1" for number in range(60)]
    (tmp_path / "people.csv").write_text("\n".join(rows) + "\n")
    output_folder = tmp_path / "p.toml"
    completed = privopt("init", "hierarchical-tables", "--points", tmp_path / "people.csv", "--out", output_folder)
    assert completed.exit_code == 0, completed.output
    assert "3 smallest regions" in completed.stderr
    assert "taken: diary" in completed.stderr
    assert '"age" = ["adult", "child",' in output_folder.read_text()
    assert privopt("plan", "hierarchical-tables", output_folder, "--quiet").exit_code == 0
    completed = privopt("solve", "hierarchical-tables", output_folder, "--out", tmp_path / "out", "--quiet")
    assert completed.exit_code == 0, completed.output
    assert privopt("verify", tmp_path / "out").exit_code == 0
    second_init = privopt("init", "hierarchical-tables", "--points", tmp_path / "people.csv", "--out", output_folder)
    assert second_init.exit_code == 2
    people = ("--points", tmp_path / "people.csv")
    roads = privopt("init", "hierarchical-tables", *people, "--roads", output_folder, "--out", tmp_path / "q.toml")
    assert (roads.exit_code, "no positions, roads" in roads.output) == (2, True)
    (tmp_path / "none.csv").write_text("age,count\nold,1\n")
    wrong_init = privopt("init", "hierarchical-tables", "--points", tmp_path / "none.csv", "--out", tmp_path / "q.toml")
    assert (wrong_init.exit_code, "columns level_1, ..., level_L" in wrong_init.output) == (2, True)


def test_person_counts_are_not_published_as_values(tmp_path):
    """A column of counts by another name than count was an attribute, whose values stand in the public problem file."""
    rows = "".join(
        f"Land,R{k},{age},{150 + 7 * k + len(age)}\n" for k in range(4) for age in ("young", "old", "middle")
    )
    (tmp_path / "counts.csv").write_text("level_1,level_2,age,people\n" + rows)
    completed = privopt(
        "init", "hierarchical-tables", "--points", tmp_path / "counts.csv", "--out", tmp_path / "p.toml"
    )
    assert completed.exit_code == 0
    assert_mentions(completed.output, "column people", "number of individuals")
    text = (tmp_path / "p.toml").read_text()
    assert "people" not in text.split("[hierarchy.attributes]")[1].split("[hierarchy.tables")[0]
    assert not any(str(150 + 7 * k + length) in text for k in range(4) for length in (3, 5, 6))


def test_page_of_gaussian_noise_and_exact_numbers_is_a_methodologists(tmp_path):
    """The sensitivity is that of squares, so that it and the variance give the budget of each part."""
    path = problem(tmp_path, '[hierarchy.tables.age]\nby = ["age"]\n', budget='exact = ["level_1"]\n')
    path.write_text(path.read_text().replace("epsilon = 2.0", 'kind = "zcdp"\nrho = 0.1'))
    completed = privopt("solve", "hierarchical-tables", path, "--out", tmp_path / "out", "--quiet")
    assert completed.exit_code == 0, completed.output
    assert privopt("report", tmp_path / "out").exit_code == 0
    page = " ".join((tmp_path / "out" / "report.html").read_text().split())
    assert "discrete Gaussian noise, of squared L2 sensitivity 2 for each table on each level" in page
    parts = re.findall(r"age on level \d ([\d.]+) \(variance ([\d.]+)\)", page)
    assert len(parts) == 2
    for rho, variance in parts:
        assert float(rho) == pytest.approx(2 / (2 * float(variance)), rel=1e-3)
    assert "The number of individuals in the whole is exact." in page
    assert "whether or not the values of one individual, its region among them, are replaced by others" in page
    assert "A person who is counted k times, such as once for each trip, costs k^2 rho." in page
