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

from privopt.run.options import Options
from privopt.run.solve import solve
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
    for name, by in TABLES.items():
        frame.group_by(*LEVELS, *by).agg(pl.col("count").sum()).write_csv(tmp_path / f"{name}.csv")
    return tmp_path


def write(folder, *, source='records = "records.csv"', privacy="epsilon = 1.0", **counts):
    text = PROBLEM.format(source=source, privacy=privacy, **{name: counts.get(name, "") for name in TABLES})
    (folder / "problem.toml").write_text(text)
    return folder / "problem.toml"


def test_columns_that_are_not_read_are_named_to_the_owner_alone(town):
    path = town / "records.csv"
    rows = path.read_text()
    path.write_text(rows.replace(",count", ",Count", 1))
    done = privopt("solve", "hierarchical-tables", write(town), "--out", town / "out")
    assert done.exit_code == 2
    assert "records.csv: header: expected 'count', or a name that is not so alike, got a column 'Count'" in done.output
    path.write_text(rows.replace(",count", ",headcount", 1))  # no individuals differ as these 36 rows do
    done = privopt("solve", "hierarchical-tables", write(town), "--out", town / "out")
    assert (done.exit_code, "column headcount" in done.output, "persons = true" in done.output) == (2, True, True)
    people = [row.rsplit(",", 1)[0] for row in rows.splitlines()[1:]] * 2
    path.write_text(
        "\n".join(["level_1,level_2,age,tenure,home,diary", *(f"{row},headcount" for row in people)]) + "\n"
    )
    done = privopt("solve", "hierarchical-tables", write(town), "--out", town / "out")
    line = "records.csv: not read: diary; it has no column count, so each of its rows is one individual"
    assert f"warning: {line}" in done.stderr
    shutil.rmtree(town / "out" / "private")
    assert not any(b"headcount" in file.read_bytes() for file in (town / "out").rglob("*") if file.is_file())
    assert privopt("report", town / "out").exit_code == 0
    assert "headcount" not in (town / "out" / "report.html").read_text()
    assert solve("hierarchical-tables", write(town), town / "two", Options()).warnings == (line,)


def test_what_is_wrong_in_a_row_is_said_and_not_quoted(town):
    path = town / "records.csv"
    rows = path.read_text().splitlines()
    rows[1:4] = ["Town,zulu,child,owned,house,1", "Town,a,,owned,house,1", 'Town,a,child,owned,house,"5,0"']
    path.write_text("\n".join(rows))
    done = privopt("solve", "hierarchical-tables", write(town), "--out", town / "out")
    assert done.exit_code == 2
    assert "row 3, column age: expected one of child, adult, old, got nothing" in done.output
    words = "expected a whole number (individuals), with a point before its decimals, got another value"
    assert f"row 4, column count: {words}" in done.output
    assert "zulu" not in done.output
    path.write_text("\n".join(rows[:2]))
    done = privopt("solve", "hierarchical-tables", write(town), "--out", town / "out")
    assert done.exit_code == 2
    assert (
        "row 2, column level_1 to level_L: expected a leaf region of hierarchy.regions, got a region that is not listed"
        in done.output
    )
    assert "zulu" not in done.output


def test_tables_agree_on_what_they_share_and_records_stay_secret(town):
    one = solve("hierarchical-tables", write(town), town / "one", Options(seed=1))
    frame = pl.read_csv(one.folder / "tables" / "age_tenure.csv")
    assert frame.columns == ["region", "parent", "age", "tenure", "count", "low", "high"]
    assert frame["age"].unique(maintain_order=True).to_list() == ["child", "adult", "old"]
    shared = frame.group_by("region", "age").agg(pl.col("count").sum()).sort("region", "age")
    alone = pl.read_csv(one.folder / "tables" / "age.csv").select("region", "age", "count").sort("region", "age")
    assert shared.equals(alone)
    assert (one.folder / "private" / "tables" / "age.csv").is_file()
    assert not any(path.name == "records.csv" for path in (one.folder / "problem").iterdir())
    again = solve("hierarchical-tables", write(town), town / "again", Options(seed=1)).folder
    for path in (one.folder / "tables").iterdir():
        assert (again / "tables" / path.name).read_bytes() == path.read_bytes()


def _another_parent_in_the_last_row(frame):
    last = pl.int_range(pl.len()) == pl.len() - 1
    return frame.with_columns(parent=pl.when(last).then(pl.lit("forged")).otherwise("parent"))


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("tables/age.csv", lambda f: f.with_columns(count=pl.col("count") + 1), "not the sums of their children"),
        ("tables/tenure_home.csv", lambda f: f.with_columns(high=pl.col("high") - 1), "; the noisy values give "),
        ("tables/age.csv", lambda f: f.reverse(), "other rows"),
        ("tables/age.csv", _another_parent_in_the_last_row, "other rows"),
        ("tables/age.csv", lambda f: f.drop("low"), "region,parent,age,count,high"),
    ],
)
def test_verify_says_what_was_changed(town, name, change, words):
    folder = solve(
        "hierarchical-tables", write(town, privacy='rho = 0.5\nkind = "zcdp"'), town / "out", Options()
    ).folder
    assert verify(folder).holds
    change(pl.read_csv(folder / name)).write_csv(folder / name)
    mend(folder)
    done = privopt("verify", folder)
    assert done.exit_code in (1, 2)
    assert words in done.output


def test_nobody_is_a_table_too_and_the_owner_is_told_the_truth(town):
    """One individual and none are alike: no refusal may tell them apart."""
    pl.read_csv(town / "records.csv").clear().write_csv(town / "records.csv")
    assert verify(solve("hierarchical-tables", write(town), town / "out", Options()).folder).holds
    epsilon = json.loads(privopt("audit", town / "out", "--json").stdout)["epsilon"]
    assert 1.0 - 1e-12 <= epsilon["achieved"] <= epsilon["claimed"] == 1.0
    told = privopt("report", town / "out", "--truth")
    assert told.exit_code == 0, told.output
    page = (town / "out" / "private" / "report.html").read_text()
    assert "share of intervals that hold" in page
    assert "there are 0 in the input" in page
    (town / "regions.csv").write_text("level_1,level_2\n")
    done = privopt("solve", "hierarchical-tables", town / "problem.toml", "--out", town / "none")
    assert (done.exit_code, "a header alone" in done.output) == (2, True)


def test_a_release_is_charged_to_whom_its_owner_names(town):
    problem, ledger = write(town), town / "all.ledger"
    words = ("solve", "hierarchical-tables", problem, "--out", town / "out", "--ledger", ledger)
    assert privopt("budget", ledger, "--set", "3").exit_code == 0
    assert privopt(*words, "--subject", "census").exit_code == 0
    assert "census" in privopt("budget", ledger, "--json").stdout
    done = privopt(*words, "--force")  # records have one name, which a ledger takes that knows nobody else
    assert (done.exit_code, "--subject" in done.output) == (2, True)
    ledger.unlink()
    assert privopt(*words, "--force").exit_code == 0


@pytest.mark.parametrize("forged", [2**62, "1e30000000", "0", "1" + "0" * 400])
def test_sums_that_wrap_and_scales_without_end_are_refused(town, forged):
    """Four children of 2^62 each, one more by what the parent has: in 64 bits they add up, or so it seems."""
    (town / "regions.csv").write_text("level_1,level_2\n" + "".join(f"Town,{name}\n" for name in "abcd"))
    out = solve("hierarchical-tables", write(town), town / "out", Options()).folder
    if isinstance(forged, int):
        for path in sorted((out / "tables").iterdir()):
            frame = pl.read_csv(path)
            top, counts = frame.filter(pl.col("region") == "Town")["count"], frame["count"].to_numpy().copy()
            for name in "abcd":
                counts[frame["region"].to_numpy() == name] = forged
            counts[frame["region"].to_numpy() == "d"] += top.to_numpy()
            frame.with_columns(count=pl.Series(counts)).write_csv(path)
        words = "add up to 2^61 or more"
    else:
        with np.load(out / "noisy.npz") as archive:
            arrays = dict(archive)
        name = next(name for name in arrays if name.endswith(".scales"))
        arrays[name] = np.array([forged, *arrays[name][1:]])
        np.savez_compressed(out / "noisy.npz", **arrays)
        words = "rationals above 0"
    mend(out)
    done = privopt("verify", out)
    assert done.exit_code == (1 if isinstance(forged, int) else 2), done.output
    assert words in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"source": ""}, "hierarchy.records: expected the table of individuals, got nothing"),
        ({"age": 'counts = "age.csv"'}, "hierarchy.tables.age.counts"),
        ({"age": "share = -1"}, "hierarchy.tables.age.share"),
        ({"age": "shares = 1"}, "hierarchy.tables.age.shares"),
        ({"privacy": 'epsilon = 1.0\nrelation = "sizes"'}, "individuals, moves, attributes"),
        ({"privacy": "rho = 1.0"}, "privacy.rho"),
        ({"source": 'records = "records.csv"\nbudget = [1]'}, "2 numbers, one for each level"),
        ({"source": 'records = "records.csv"\nbudget = [1e-9, 1]'}, "hierarchy.budget, level 1"),
        ({"age": "share = 1e-160"}, "hierarchy.tables.age.share"),
    ],
)
def test_faults_name_the_key(town, changes, words):
    done = privopt("solve", "hierarchical-tables", write(town, **changes), "--out", town / "out")
    assert done.exit_code == 2
    assert words in done.output
    assert not (town / "out").exists()


@pytest.mark.parametrize("name", ['ho\\"me', "ho\\nme"])
def test_names_that_cannot_head_a_column_are_refused(town, name):
    problem = write(town)
    problem.write_text(problem.read_text().replace("home = [", f'"{name}" = ['))
    done = privopt("solve", "hierarchical-tables", problem, "--out", town / "out")
    assert (done.exit_code, "names without quotes" in done.output) == (2, True)


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("records.csv", lambda f: f.with_columns(age=pl.lit("ancient")), "one of child, adult, old"),
        ("records.csv", lambda f: f.with_columns(level_2=pl.lit("nowhere")), "a leaf region of hierarchy.regions"),
        ("records.csv", lambda f: f.with_columns(count=pl.lit("-1")), "a whole number (individuals)"),
        ("records.csv", lambda f: f.drop("age"), "no column 'age'"),
        ("regions.csv", lambda f: pl.concat([f, f]), "one row a leaf region"),
    ],
)  # fmt: skip
def test_faults_name_file_and_row_and_no_secret(town, file, change, words):
    change(pl.read_csv(town / file)).write_csv(town / file)
    done = privopt("solve", "hierarchical-tables", write(town), "--out", town / "out")
    assert done.exit_code == 2
    assert words in done.output
    assert "ancient" not in done.output


def test_a_relation_that_hides_nothing_is_refused_and_exact_numbers_are_warned_of(town):
    """Regions' numbers are exact, and tables of one cell have nothing else to show."""
    text = write(town, privacy='epsilon = 1.0\nrelation = "attributes"').read_text()
    one = text[: text.index("[hierarchy.tables.age]")] + text[text.index("[hierarchy.tables.people]") :]
    (town / "problem.toml").write_text(one)
    for command in (["solve", "--out", town / "out"], ["plan"]):
        done = privopt(command[0], "hierarchical-tables", town / "problem.toml", *command[1:])
        assert done.exit_code == 2
        assert (
            'privacy.relation: expected "individuals", which hides numbers of individuals, or a table of two cells'
            in done.stderr
        )
    (town / "problem.toml").write_text(one.replace('"attributes"', '"moves"'))
    assert not solve("hierarchical-tables", town / "problem.toml", town / "moves", Options()).warnings
    (town / "problem.toml").write_text(text)
    done = solve("hierarchical-tables", town / "problem.toml", town / "out", Options())
    assert "published exactly" in done.warnings[0]


@pytest.mark.slow
@pytest.mark.parametrize("promise", [("attributes", "zcdp", "rho = 0.05"), ("individuals", "pure-dp", "epsilon = 0.5")])
def test_intervals_hold_as_often_as_they_say(town, promise):
    """20 seeded releases of 4 regions and 13 cells; by chance the share lies within .03 of what is expected."""
    relation, kind, budget = promise
    problem = write(town, privacy=f'kind = "{kind}"\n{budget}\nrelation = "{relation}"')
    shares = []
    for seed in range(20):
        done = solve("hierarchical-tables", problem, town / "out", Options(seed=seed, force=True))
        told = json.loads((done.folder / "private" / "truth.json").read_text())
        own = told["share_of_intervals_that_hold_by_table_and_level"]
        shares.append(np.mean([np.mean(own[name]) for name in TABLES]))
    assert 0.92 <= np.mean(shares) <= 0.99
