"""Several tables under one budget: problem files, releases, what verify finds."""

from __future__ import annotations

import json
import shutil
from itertools import product

import numpy as np
import polars as pl
import pytest
from helpers.command import run as privopt
from helpers.mended_sums import mend
from helpers.mentions import assert_mentions

from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify

PROBLEM = """[hierarchy]
regions = "regions.csv"
{source}
[hierarchy.attributes]
age = ["child", "adult", "old"]
tenure = ["owned", "rented"]
home = ["house", "flat"]
[hierarchy.tables.age]
by = ["age"]
{age}
[hierarchy.tables.age_tenure]
by = ["tenure", "age"]
share = 2
{age_tenure}
[hierarchy.tables.tenure_home]
by = ["tenure", "home"]
{tenure_home}
[hierarchy.tables.people]
by = []
{people}
[privacy]
{privacy}
"""
TABLES = {"age": ["age"], "age_tenure": ["age", "tenure"], "tenure_home": ["tenure", "home"], "people": []}
LEVELS = ["level_1", "level_2"]


@pytest.fixture
def town(tmp_path):
    rng = np.random.default_rng(5)
    cells = list(product(["a", "b", "c"], ["child", "adult", "old"], ["owned", "rented"], ["house", "flat"]))
    frame = pl.DataFrame([("Town", *cell, int(rng.integers(0, 90))) for cell in cells], orient="row",
                         schema=[*LEVELS, "age", "tenure", "home", "count"])  # fmt: skip
    frame.write_csv(tmp_path / "records.csv")
    frame.select(LEVELS).unique().write_csv(tmp_path / "regions.csv")
    for name, attributes in TABLES.items():
        frame.group_by(*LEVELS, *attributes).agg(pl.col("count").sum()).write_csv(tmp_path / f"{name}.csv")
    return tmp_path


def write(folder, *, source='records = "records.csv"', privacy="epsilon = 1.0", **counts):
    text = PROBLEM.format(source=source, privacy=privacy, **{name: counts.get(name, "") for name in TABLES})
    (folder / "problem.toml").write_text(text)
    return folder / "problem.toml"


def test_names_unread_columns_only_to_the_owner(town):
    path = town / "records.csv"
    rows = path.read_text()
    path.write_text(rows.replace(",count", ",Count", 1))
    completed = privopt("solve", "hierarchical-tables", write(town), "--out", town / "out")
    assert completed.exit_code == 2
    assert_mentions(completed.output, "records.csv: header", "'count'", "'Count'")
    path.write_text(rows.replace(",count", ",headcount", 1))  # no individuals differ as these 36 rows do
    completed = privopt("solve", "hierarchical-tables", write(town), "--out", town / "out")
    assert (completed.exit_code, "column headcount" in completed.output, "persons = true" in completed.output) == (
        2,
        True,
        True,
    )
    people = [row.rsplit(",", 1)[0] for row in rows.splitlines()[1:]] * 2
    path.write_text(
        "\n".join(["level_1,level_2,age,tenure,home,diary", *(f"{row},headcount" for row in people)]) + "\n"
    )
    completed = privopt("solve", "hierarchical-tables", write(town), "--out", town / "out")
    line = "records.csv: not read: diary; it has no column count, so each of its rows is one individual"
    assert f"warning: {line}" in completed.stderr
    shutil.rmtree(town / "out" / "private")
    assert not any(b"headcount" in file.read_bytes() for file in (town / "out").rglob("*") if file.is_file())
    assert privopt("report", town / "out").exit_code == 0
    assert "headcount" not in (town / "out" / "report.html").read_text()
    warnings = solve("hierarchical-tables", write(town), town / "two", Options()).warnings
    # The shares of this file waste a part of the budget, which is said too.
    assert [warning for warning in warnings if "wastes a part" not in warning] == [line]


def test_row_faults_are_named_without_values(town):
    path = town / "records.csv"
    rows = path.read_text().splitlines()
    rows[1:4] = ["Town,zulu,child,owned,house,1", "Town,a,,owned,house,1", 'Town,a,child,owned,house,"5,0"']
    path.write_text("\n".join(rows))
    completed = privopt("solve", "hierarchical-tables", write(town), "--out", town / "out")
    assert completed.exit_code == 2
    assert_mentions(completed.output, "row 3, column age", "child, adult, old", "got nothing")
    words = "expected a whole number (individuals), with a point before its decimals, got another value"
    assert f"row 4, column count: {words}" in completed.output
    assert "zulu" not in completed.output
    path.write_text("\n".join(rows[:2]))
    completed = privopt("solve", "hierarchical-tables", write(town), "--out", town / "out")
    assert completed.exit_code == 2
    assert_mentions(completed.output, "row 2, column level_1", "not listed")
    assert "zulu" not in completed.output


def test_tables_agree_and_records_stay_secret(town):
    release = solve("hierarchical-tables", write(town), town / "one", Options(seed=1))
    frame = pl.read_csv(release.folder / "tables" / "age_tenure.csv")
    assert frame.columns == ["region", "parent", "age", "tenure", "count", "low", "high"]
    assert frame["age"].unique(maintain_order=True).to_list() == ["child", "adult", "old"]
    shared_counts = frame.group_by("region", "age").agg(pl.col("count").sum()).sort("region", "age")
    age_counts = (
        pl.read_csv(release.folder / "tables" / "age.csv").select("region", "age", "count").sort("region", "age")
    )
    assert shared_counts.equals(age_counts)
    assert (release.folder / "private" / "tables" / "age.csv").is_file()
    assert not any(path.name == "records.csv" for path in (release.folder / "problem").iterdir())
    second_folder = solve("hierarchical-tables", write(town), town / "again", Options(seed=1)).folder
    for path in (release.folder / "tables").iterdir():
        assert (second_folder / "tables" / path.name).read_bytes() == path.read_bytes()


def _another_parent_in_the_last_row(frame):
    last = pl.int_range(pl.len()) == pl.len() - 1
    return frame.with_columns(parent=pl.when(last).then(pl.lit("forged")).otherwise("parent"))


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("tables/age.csv", lambda f: f.with_columns(count=pl.col("count") + 1), "sums of their"),
        ("tables/tenure_home.csv", lambda f: f.with_columns(high=pl.col("high") - 1), "noisy values give"),
        ("tables/age.csv", lambda f: f.reverse(), "other rows"),
        ("tables/age.csv", _another_parent_in_the_last_row, "other rows"),
        ("tables/age.csv", lambda f: f.drop("low"), "region,parent,age,count,high"),
    ],
)
def test_verify_names_changes(town, name, change, words):
    folder = solve(
        "hierarchical-tables", write(town, privacy='rho = 0.5\nkind = "zcdp"'), town / "out", Options()
    ).folder
    assert verify(folder).holds
    change(pl.read_csv(folder / name)).write_csv(folder / name)
    mend(folder)
    completed = privopt("verify", folder)
    assert completed.exit_code in (1, 2)
    assert words in completed.output


def test_empty_table_publishes_and_tells_the_truth(town):
    """One individual and none are alike: no refusal may tell them apart."""
    pl.read_csv(town / "records.csv").clear().write_csv(town / "records.csv")
    assert verify(solve("hierarchical-tables", write(town), town / "out", Options()).folder).holds
    epsilon = json.loads(privopt("audit", town / "out", "--json").stdout)["epsilon"]
    assert 1.0 - 1e-12 <= epsilon["achieved"] <= epsilon["claimed"] == 1.0
    completed = privopt("report", town / "out", "--truth")
    assert completed.exit_code == 0, completed.output
    page = (town / "out" / "private" / "report.html").read_text()
    assert "intervals that hold" in page
    assert "0 in the" in page
    (town / "regions.csv").write_text("level_1,level_2\n")
    outcome = privopt("solve", "hierarchical-tables", town / "problem.toml", "--out", town / "none")
    assert (outcome.exit_code, "a header alone" in outcome.output) == (2, True)


def test_charges_the_named_subject(town):
    problem, ledger = write(town), town / "all.ledger"
    words = ("solve", "hierarchical-tables", problem, "--out", town / "out", "--ledger", ledger)
    assert privopt("budget", ledger, "--set", "3").exit_code == 0
    assert privopt(*words, "--subject", "census").exit_code == 0
    assert "census" in privopt("budget", ledger, "--json").stdout
    completed = privopt(*words, "--force")  # records have one name, which a ledger takes that knows nobody else
    assert (completed.exit_code, "--subject" in completed.output) == (2, True)
    ledger.unlink()
    assert privopt(*words, "--force").exit_code == 0


@pytest.mark.parametrize("forged_value", [2**62, "1e30000000", "0", "1" + "0" * 400])
def test_refuses_overflowing_sums_and_endless_scales(town, forged_value):
    """Four children of 2^62 each, one more by what the parent has: in 64 bits they add up, or so it seems."""
    (town / "regions.csv").write_text("level_1,level_2\n" + "".join(f"Town,{name}\n" for name in "abcd"))
    folder = solve("hierarchical-tables", write(town), town / "out", Options()).folder
    if isinstance(forged_value, int):
        for path in sorted((folder / "tables").iterdir()):
            frame = pl.read_csv(path)
            top, counts = frame.filter(pl.col("region") == "Town")["count"], frame["count"].to_numpy().copy()
            for name in "abcd":
                counts[frame["region"].to_numpy() == name] = forged_value
            counts[frame["region"].to_numpy() == "d"] += top.to_numpy()
            frame.with_columns(count=pl.Series(counts)).write_csv(path)
        words = "add up to 2^61 or more"
    else:
        with np.load(folder / "noisy.npz") as archive:
            arrays = dict(archive)
        name = next(name for name in arrays if name.endswith(".scales"))
        arrays[name] = np.array([forged_value, *arrays[name][1:]])
        np.savez_compressed(folder / "noisy.npz", **arrays)
        words = "rationals above 0"
    mend(folder)
    completed = privopt("verify", folder)
    assert completed.exit_code == (1 if isinstance(forged_value, int) else 2), completed.output
    assert words in " ".join(completed.output.split())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"source": ""}, "hierarchy.records: expected"),
        ({"age": 'counts = "age.csv"'}, "hierarchy.tables.age.counts"),
        ({"age": "share = -1"}, "hierarchy.tables.age.share"),
        ({"age": "shares = 1"}, "hierarchy.tables.age.shares"),
        ({"privacy": 'epsilon = 1.0\nrelation = "sizes"'}, "individuals, moves, attributes"),
        ({"privacy": "rho = 1.0"}, "privacy.rho"),
        ({"source": 'records = "records.csv"\nbudget = [1]'}, "2 numbers"),
        ({"source": 'records = "records.csv"\nbudget = [1e-9, 1]'}, "hierarchy.budget, level 1"),
        ({"age": "share = 1e-160"}, "hierarchy.tables.age.share"),
    ],
)
def test_faults_name_the_key(town, changes, words):
    completed = privopt("solve", "hierarchical-tables", write(town, **changes), "--out", town / "out")
    assert completed.exit_code == 2
    assert words in completed.output
    assert not (town / "out").exists()


@pytest.mark.parametrize("name", ['ho\\"me', "ho\\nme"])
def test_refuses_names_that_head_no_column(town, name):
    problem = write(town)
    problem.write_text(problem.read_text().replace("home = [", f'"{name}" = ['))
    completed = privopt("solve", "hierarchical-tables", problem, "--out", town / "out")
    assert (completed.exit_code, "names without quotes" in completed.output) == (2, True)


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("records.csv", lambda f: f.with_columns(age=pl.lit("ancient")), "child, adult, old"),
        ("records.csv", lambda f: f.with_columns(level_2=pl.lit("nowhere")), "a leaf region"),
        ("records.csv", lambda f: f.with_columns(count=pl.lit("-1")), "whole number (individuals)"),
        ("records.csv", lambda f: f.drop("age"), "no column 'age'"),
        ("regions.csv", lambda f: pl.concat([f, f]), "one row"),
    ],
)  # fmt: skip
def test_faults_name_file_and_row_without_secrets(town, file, change, words):
    change(pl.read_csv(town / file)).write_csv(town / file)
    completed = privopt("solve", "hierarchical-tables", write(town), "--out", town / "out")
    assert completed.exit_code == 2
    assert words in completed.output
    assert "ancient" not in completed.output


def test_refuses_relation_that_hides_nothing(town):
    """Regions' numbers are exact, and tables of one cell have nothing else to show."""
    text = write(town, privacy='epsilon = 1.0\nrelation = "attributes"').read_text()
    single_table_text = text[: text.index("[hierarchy.tables.age]")] + text[text.index("[hierarchy.tables.people]") :]
    (town / "problem.toml").write_text(single_table_text)
    for command in (["solve", "--out", town / "out"], ["plan"]):
        outcome = privopt(command[0], "hierarchical-tables", town / "problem.toml", *command[1:])
        assert outcome.exit_code == 2
        assert_mentions(outcome.stderr, "privacy.relation", '"individuals"', "two cells")
    (town / "problem.toml").write_text(single_table_text.replace('"attributes"', '"moves"'))
    assert not solve("hierarchical-tables", town / "problem.toml", town / "moves", Options()).warnings
    (town / "problem.toml").write_text(text)
    outcome = solve("hierarchical-tables", town / "problem.toml", town / "out", Options())
    assert "published exactly" in outcome.warnings[0]


@pytest.mark.slow
@pytest.mark.parametrize("promise", [("attributes", "zcdp", "rho = 0.05"), ("individuals", "pure-dp", "epsilon = 0.5")])
def test_intervals_cover_at_the_stated_rate(town, promise):
    """20 seeded releases of 4 regions and 13 cells; by chance the share lies within .03 of what is expected."""
    relation, kind, budget = promise
    problem = write(town, privacy=f'kind = "{kind}"\n{budget}\nrelation = "{relation}"')
    shares = []
    for seed in range(20):
        release = solve("hierarchical-tables", problem, town / "out", Options(seed=seed, force=True))
        truth = json.loads((release.folder / "private" / "truth.json").read_text())
        coverage = truth["share_of_intervals_that_hold_by_table_and_level"]
        shares.append(np.mean([np.mean(coverage[name]) for name in TABLES]))
    assert 0.92 <= np.mean(shares) <= 0.99
