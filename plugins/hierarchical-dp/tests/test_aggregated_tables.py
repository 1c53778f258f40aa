"""Tables of counts are not taken for tables of persons, totals are not counted again, regions alike are named."""

from __future__ import annotations

import csv
import random
import tomllib
from itertools import product

import numpy as np
import polars as pl
import pytest
from helpers.command import run
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.declare.schema import File
from privopt.declare.table_words import find_total_names, is_count_name, is_total_name
from privopt_hierarchical_dp.level_tables import LevelTable
from privopt_hierarchical_dp.region_names import find_total_regions, warn_of_alike_regions
from privopt_hierarchical_dp.region_paths import as_frame
from privopt_hierarchical_dp.tables.arithmetic_totals import find_arithmetic_totals
from privopt_hierarchical_dp.tables.count_columns import find_count_suspects
from privopt_hierarchical_dp.tree import Tree

NAMES = [
    *("Observation", "OBS_VALUE", "pop", "population", "n", "N", "value", "weight", "total", "persons", "Einwohner"),
    *("count_", "freq", "Count", "COUNT", "xyz"),
]
AGES = ["0-17", "18-64", "65+"]
TOTALS = ["TOTAL", "All ages", "Total, both sexes", "Yhteensä", "Összesen", "Skupaj", "Общо", "Ukupno"]


def write_table(path, header, rows):
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *rows])
    return path


def counts_of(seed, areas=20, largest=28, sexes=("F", "M")):
    draw = random.Random(seed)
    cells = product([f"E{area:04d}" for area in range(areas)], AGES, sexes)
    return [["E92", *cell, draw.randrange(3, largest)] for cell in cells]


def init(tmp_path, table, *options):
    return run("init", "hierarchical-tables", "--points", table, "--out", tmp_path / "p.toml", "--force", *options)


def people(folder):
    with (folder / "tables" / "people.csv").open() as stream:
        return {row["region"]: (int(row["low"]), int(row["high"])) for row in csv.DictReader(stream)}


@pytest.mark.parametrize("name", NAMES)
def test_recognises_counts_by_any_name(tmp_path, name):
    rows = counts_of(name)
    table = write_table(tmp_path / "t.csv", ["level_1", "level_2", "age", "sex", name], rows)
    completed = init(tmp_path, table)
    assert completed.exit_code == 0, completed.output
    text = (tmp_path / "p.toml").read_text()
    assert set(tomllib.loads(text)["hierarchy"]["attributes"]) == {"age", "sex"}
    assert run("solve", "hierarchical-tables", tmp_path / "p.toml", "--out", tmp_path / "o", "--quiet").exit_code == 0
    low, high = people(tmp_path / "o")["E92"]
    assert low - 60 <= sum(row[-1] for row in rows) <= high + 60
    assert name not in {row.split(",")[0] for row in (tmp_path / "o/tables/by_1.csv").read_text().splitlines()}


SHAPES = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10**6),
        "name": st.sampled_from([*NAMES, "Wert", "foo", "X.1", "antal"]),
        "areas": st.integers(4, 30),
        "largest": st.sampled_from([5, 9, 30, 4000]),
        "sexes": st.sampled_from([("F", "M"), ("1", "2"), ("f",)]),
        "zeros": st.sampled_from([0.0, 0.2, 0.5]),
        "round_to": st.sampled_from([1, 5]),
        "form": st.sampled_from(["{}", "{}.0", " {}", "{:,}"]),
        "mark": st.sampled_from(["", "-", "(X)", "S"]),
        "marked": st.sampled_from([0.0, 0.0, 0.1]),
        "extra": st.sampled_from([None, "year", "row", "code"]),
    }
)


def shaped_table(shape):
    """Return header and rows of an aggregated table as statistical offices publish them."""
    draw = random.Random(shape["seed"])
    rows = []
    for number, row in enumerate(counts_of(shape["seed"], shape["areas"], shape["largest"], shape["sexes"])):
        value = row[-1] // shape["round_to"] * shape["round_to"]
        cell = shape["mark"] if draw.random() < shape["marked"] else shape["form"].format(value)
        extra = {"year": ["2021"], "row": [number], "code": [AGES.index(row[2])], None: []}[shape["extra"]]
        if draw.random() >= shape["zeros"]:
            rows.append([*row[:-1], *extra, cell])
    return ["level_1", "level_2", "age", "sex", *filter(None, [shape["extra"]]), shape["name"]], rows


@settings(max_examples=60)
@given(SHAPES)
def test_count_is_never_an_attribute(tmp_path_factory, shape):
    header, rows = shaped_table(shape)
    if not rows:
        return
    folder = tmp_path_factory.mktemp("t")
    completed = init(folder, write_table(folder / "t.csv", header, rows))
    assert completed.exit_code in (0, 2), completed.output
    if completed.exit_code:
        assert not (folder / "p.toml").exists()
        return
    hierarchy = tomllib.loads((folder / "p.toml").read_text())["hierarchy"]
    assert hierarchy["count"].casefold() == shape["name"].casefold()
    assert shape["name"] not in hierarchy["attributes"]


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(400, 900), st.booleans(), st.booleans())
def test_recognises_persons(tmp_path_factory, seed, number, has_id, has_children):
    rng = np.random.default_rng(seed)
    header = ["level_1", "level_2", "sex", "age", *(["children"] * has_children), *(["id"] * has_id)]
    rows = [
        ["L", f"R{rng.integers(4)}", "FM"[rng.integers(2)], rng.integers(0, 45)]
        + [rng.integers(0, 5)] * has_children
        + [10_000 + 7 * number] * has_id
        for number in range(number)
    ]
    folder = tmp_path_factory.mktemp("t")
    completed = init(folder, write_table(folder / "t.csv", header, rows))
    assert completed.exit_code == 0, completed.output
    hierarchy = tomllib.loads((folder / "p.toml").read_text())["hierarchy"]
    assert "count" not in hierarchy
    assert {"sex", "age"} <= set(hierarchy["attributes"])


def test_asks_if_a_table_is_ambiguous(tmp_path):
    rows = [["L", "A", "F", 3], ["L", "A", "M", 4], ["L", "B", "F", 5]]
    table = write_table(tmp_path / "t.csv", ["level_1", "level_2", "sex", "years"], rows)
    completed = init(tmp_path, table)
    assert (completed.exit_code, "--count" in completed.output, "--persons" in completed.output) == (2, True, True)
    assert not (tmp_path / "p.toml").exists()
    assert init(tmp_path, table, "--count", "YEARS").exit_code == 0
    assert tomllib.loads((tmp_path / "p.toml").read_text())["hierarchy"]["count"] == "years"
    assert run("solve", "hierarchical-tables", tmp_path / "p.toml", "--out", tmp_path / "o", "--quiet").exit_code == 0
    assert init(tmp_path, table, "--persons").exit_code == 0
    assert tomllib.loads((tmp_path / "p.toml").read_text())["hierarchy"]["attributes"]["years"] == ["3", "4", "5"]
    assert run("solve", "hierarchical-tables", tmp_path / "p.toml", "--out", tmp_path / "q", "--quiet").exit_code == 0
    contradictory = init(tmp_path, table, "--persons", "--count", "years")
    assert contradictory.exit_code == 2
    wide_rows = [["L", f"R{k}", 10 * k + 3, 7 * k + 5] for k in range(20)]
    completed = init(tmp_path, write_table(tmp_path / "w.csv", ["level_1", "level_2", "male", "female"], wide_rows))
    assert (completed.exit_code, "male" in completed.output, "female" in completed.output) == (2, True, True)


def test_asks_if_the_counts_have_marks(tmp_path):
    """Codes of sexes are whole numbers in each row; they once were taken for the counts, some of which were missing."""
    shape = {"seed": 0, "name": "xyz", "areas": 9, "largest": 4000, "sexes": ("1", "2")}
    header, rows = shaped_table(
        shape | {"zeros": 0.0, "round_to": 1, "form": "{}", "mark": "", "marked": 0.1, "extra": None}
    )
    completed = init(tmp_path, write_table(tmp_path / "t.csv", header, rows))
    assert (completed.exit_code, "column xyz" in completed.output) == (2, True)
    assert not (tmp_path / "p.toml").exists()


def test_leaves_out_second_count_column(tmp_path):
    rows = [[*row, k % 4] for k, row in enumerate(counts_of(3))]
    table = write_table(tmp_path / "t.csv", ["level_1", "level_2", "age", "sex", "count", "deaths"], rows)
    completed = init(tmp_path, table)
    assert (completed.exit_code, "deaths" in completed.output) == (0, True)
    assert "deaths" not in (tmp_path / "p.toml").read_text()
    text = (tmp_path / "p.toml").read_text().replace('count = "count"', "# ")
    text = text.replace("[hierarchy.attributes]", '[hierarchy.attributes]\ndeaths = ["0", "1", "2", "3"]\n#', 1)
    (tmp_path / "q.toml").write_text(text)
    completed = run("solve", "hierarchical-tables", tmp_path / "q.toml", "--out", tmp_path / "o")
    assert (completed.exit_code, "column deaths" in completed.output) == (2, True)


@pytest.mark.parametrize("name", ["Observation", "xyz", "n"])
def test_solve_refuses_counts_as_an_attribute(tmp_path, name):
    rows = counts_of(name, largest=9)
    write_table(tmp_path / "t.csv", ["level_1", "level_2", "age", "sex", name], rows)
    write_table(tmp_path / "r.csv", ["level_1", "level_2"], sorted({(row[0], row[1]) for row in rows}))
    values = ", ".join(f'"{value}"' for value in range(9))
    head = '[hierarchy]\nregions = "r.csv"\nrecords = "t.csv"\n{}[hierarchy.attributes]\n'
    tail = "[hierarchy.tables.a]\nby = []\n[privacy]\nepsilon = 1.0\n"
    attribute = f'"{name}" = [{values}]\n'
    for declaration in (attribute, 'sex = ["F", "M"]\n'):
        (tmp_path / "p.toml").write_text(head.format("") + declaration + tail)
        completed = run("solve", "hierarchical-tables", tmp_path / "p.toml", "--out", tmp_path / "o")
        assert (completed.exit_code, f"column {name}" in completed.output) == (2, True)
        assert not (tmp_path / "o").exists()
    (tmp_path / "p.toml").write_text(head.format("persons = true\n") + attribute + tail)
    assert run("solve", "hierarchical-tables", tmp_path / "p.toml", "--out", tmp_path / "o", "--quiet").exit_code == 0


@pytest.mark.parametrize(
    "total", ["Total", "T", "_T", "Both sexes", "Insgesamt", "Ensemble", "Ogółem", "Σύνολο", "I ALT"]
)
def test_totals_are_not_counted_again(tmp_path, total):
    rows = [["L", r, s, n] for r, s, n in [("N", "F", 310), ("N", "M", 452), ("S", "F", 618), ("S", "M", 565)]]
    rows += [["L", "N", total, 762], ["L", "S", total, 1183]]
    table = write_table(tmp_path / "t.csv", ["level_1", "level_2", "sex", "count"], rows)
    completed = init(tmp_path, table)
    assert (completed.exit_code, f"sex = {total}" in completed.output) == (0, True)
    assert run("solve", "hierarchical-tables", tmp_path / "p.toml", "--out", tmp_path / "o", "--quiet").exit_code == 0
    low, high = people(tmp_path / "o")["L"]
    assert low - 60 < 1945 < high + 60
    problem_text = (tmp_path / "p.toml").read_text().replace('["F", "M"]', f'["F", "M", "{total}"]')
    problem_text = problem_text.replace(f'"sex" = ["{total}"]\n', "")
    (tmp_path / "q.toml").write_text(problem_text)
    completed = run("solve", "hierarchical-tables", tmp_path / "q.toml", "--out", tmp_path / "q")
    assert (completed.exit_code, total in completed.output, 'totals = "keep"' in completed.output) == (2, True, True)
    assert init(tmp_path, table, "--keep-totals").exit_code == 0
    assert run("solve", "hierarchical-tables", tmp_path / "p.toml", "--out", tmp_path / "k", "--quiet").exit_code == 0
    assert people(tmp_path / "k")["L"][0] > 3000


@pytest.mark.parametrize("total", ["Total", "Gesamt", "All areas"])
def test_refuses_region_of_all_in_both_mechanisms(tmp_path, total):
    write_table(tmp_path / "r.csv", ["level_1", "level_2"], [["L", "N"], ["L", "S"], ["L", total]])
    write_table(tmp_path / "u.csv", ["level_1", "level_2", "size", "groups"], [["L", "N", 1, 4], ["L", total, 1, 4]])
    write_table(tmp_path / "t.csv", ["level_1", "level_2", "count"], [["L", "N", 4], ["L", total, 4]])
    privacy = "[privacy]\nepsilon = 1.0\n"
    tables = '[hierarchy]\nregions = "r.csv"\nrecords = "t.csv"\n{}[hierarchy.tables.a]\nby = []\n' + privacy
    sizes = '[hierarchy]\ncounts = "u.csv"\nsizes = 2\n{}' + privacy
    for mechanism, text in (("hierarchical-tables", tables), ("hierarchical-dp", sizes)):
        (tmp_path / "p.toml").write_text(text.format(""))
        completed = run("solve", mechanism, tmp_path / "p.toml", "--out", tmp_path / mechanism)
        assert (completed.exit_code, total in completed.output) == (2, True)
        (tmp_path / "p.toml").write_text(text.format('totals = "keep"\n'))
        completed = run("solve", mechanism, tmp_path / "p.toml", "--out", tmp_path / mechanism, "--quiet")
        assert completed.exit_code == 0, completed.output
        assert run("verify", tmp_path / mechanism).exit_code == 0
    completed = init(tmp_path, tmp_path / "t.csv")
    assert completed.exit_code == 0
    assert total not in (tmp_path / "p-regions.csv").read_text()


def test_asks_about_totals_found_by_counts(tmp_path):
    rows = [
        ["L", r, s, n] for r, s, n in [("N", "a", 31), ("N", "b", 45), ("N", "z", 76), ("S", "a", 6), ("S", "z", 6)]
    ]
    table = write_table(tmp_path / "t.csv", ["level_1", "level_2", "kind", "count"], rows)
    completed = init(tmp_path, table)
    assert (completed.exit_code, "'z'" in completed.output, "--total" in completed.output) == (2, True, True)
    assert not (tmp_path / "p.toml").exists()
    assert "76" not in completed.output
    assert init(tmp_path, table, "--total", "kind=z").exit_code == 0
    assert tomllib.loads((tmp_path / "p.toml").read_text())["hierarchy"]["totals"] == {"kind": ["z"]}
    assert init(tmp_path, table, "--keep-totals").exit_code == 0
    assert init(tmp_path, table, "--total", "kind=y").exit_code == 2


@settings(max_examples=60)
@given(st.data())
def test_finds_sums_of_siblings_only(data):
    draw = random.Random(data.draw(st.integers(0, 10**9)))
    regions = [("L", f"r{k}") for k in range(data.draw(st.integers(2, 5)))]
    rows = [(*region, value, draw.randrange(5, 300)) for region in regions for value in "abc"]
    frame = pl.DataFrame(rows, schema=["level_1", "level_2", "kind", "n"], orient="row")
    totals = find_arithmetic_totals(frame, ["level_1", "level_2"], ["kind"], "n")
    sums = frame.group_by("level_1", "level_2").agg(pl.lit("z").alias("kind"), pl.col("n").sum())
    table = pl.concat([frame, sums.select(frame.columns)])
    assert ("kind", "z") in find_arithmetic_totals(table, ["level_1", "level_2"], ["kind"], "n")
    total_rows = frame.group_by("level_1", "kind").agg(pl.lit("all of it").alias("level_2"), pl.col("n").sum())
    table = pl.concat([frame, total_rows.select(frame.columns)])
    assert ("level_2", "all of it") in find_arithmetic_totals(table, ["level_1", "level_2"], ["kind"], "n")
    by_region = [{row[2]: row[3] for row in rows if row[:2] == region} for region in regions]
    by_hand = {
        value for value in "abc" if all(2 * value_sums[value] == sum(value_sums.values()) for value_sums in by_region)
    }
    assert {value for name, value in totals if name == "kind"} <= by_hand


@settings(max_examples=60)
@given(st.data())
def test_subtotals_are_found_and_parts_are_not(data):
    """Totals of parts, and of subtotals, among attributes and regions, in any order of the rows."""
    draw = random.Random(data.draw(st.integers(0, 10**9)))
    ages = [f"{5 * k}-{5 * k + 4}" for k in range(data.draw(st.integers(3, 8)))]
    cut = data.draw(st.integers(2, len(ages) - 1))
    regions = [f"r{k}" for k in range(data.draw(st.integers(4, 7)))]
    own = {(region, age): draw.randrange(20, 900) for region in regions for age in ages}
    sums = {"young": ages[:cut], "z": ages}
    rows = [("L", region, age, number) for (region, age), number in own.items()]
    rows += [("L", r, name, sum(own[r, age] for age in parts)) for name, parts in sums.items() for r in regions]
    draw.shuffle(rows)
    frame = pl.DataFrame(rows, schema=["level_1", "level_2", "age", "n"], orient="row")
    found = find_arithmetic_totals(frame, ["level_1", "level_2"], ["age"], "n")
    assert {("age", "young"), ("age", "z")} == {*found}
    part = [("L", "west", age, sum(own[r, age] for r in regions[:2])) for age in ages]
    rows = [("L", r, age, number) for (r, age), number in own.items()] + part
    frame = pl.DataFrame(rows, schema=["level_1", "level_2", "age", "n"], orient="row")
    assert find_arithmetic_totals(frame, ["level_1", "level_2"], ["age"], "n") == [("level_2", "west")]


def test_a_subtotal_is_asked_about_and_left_out(tmp_path):
    rows = []
    for region in ("N", "S", "W"):
        ages = {age: 17 * len(rows) + 31 + 7 * k * k for k, age in enumerate(("0-4", "5-9", "10-14", "15-64"))}
        ages |= {"0-14": sum(ages[age] for age in ("0-4", "5-9", "10-14")), "Total": sum(ages.values())}
        rows += [["L", region, age, number] for age, number in ages.items()]
    table = write_table(tmp_path / "t.csv", ["level_1", "level_2", "age", "count"], rows)
    done = init(tmp_path, table)
    assert (done.exit_code, "value '0-14'" in done.output, "--total" in done.output) == (2, True, True), done.output
    assert not (tmp_path / "p.toml").exists()
    assert init(tmp_path, table, "--total", "age=0-14").exit_code == 0
    hierarchy = tomllib.loads((tmp_path / "p.toml").read_text())["hierarchy"]
    assert hierarchy["totals"] == {"age": ["Total", "0-14"]}
    assert hierarchy["attributes"]["age"] == ["0-4", "10-14", "15-64", "5-9"]


def test_names_of_totals_and_counts():
    assert all(
        map(
            is_total_name,
            ["TOTAL", "All ages", "Total, both sexes", "Yhteensä", "Összesen", "Skupaj", "Общо", "Ukupno"],
        )
    )
    assert not any(map(is_total_name, ["North", "Alle Wege", "male", "0-17", "Totnes", "", "12", "Sumatra"]))
    assert find_total_names(["A", "S", "T", "U"]) == []
    assert find_total_names(["F", "M", "T"]) == ["T"]
    assert find_total_names(["Total"]) == []
    assert all(map(is_count_name, NAMES[:-1]))
    assert not any(map(is_count_name, ["age", "sex", "id", "year", "rooms", "2021", ""]))
    assert find_total_regions(as_frame([("Total", "N"), ("Total", "S")])) == []


def test_names_codes_with_leading_zeros(tmp_path):
    tree = Tree.from_paths([("US", "01", "01001"), ("US", "1", "1001.0"), ("US", "2", "3")])
    lines = warn_of_alike_regions(tree)
    assert ("'01' and '1'" in lines[0], "'01001' and '1001.0'" in lines[1], len(lines)) == (True, True, 2)
    write_table(tmp_path / "u.csv", ["level_1", "level_2", "size", "groups"], [["L", "01", 1, 4], ["L", "1", 1, 4]])
    (tmp_path / "p.toml").write_text('[hierarchy]\ncounts = "u.csv"\nsizes = 2\n[privacy]\nepsilon = 1.0\n')
    completed = run("solve", "hierarchical-dp", tmp_path / "p.toml", "--out", tmp_path / "o")
    assert (completed.exit_code, "'01' and '1'" in completed.stderr) == (0, True)
    write_table(tmp_path / "t.csv", ["level_1", "level_2", "count"], [["L", "01", 4], ["L", "1", 4]])
    assert "'01' and '1'" in init(tmp_path, tmp_path / "t.csv").stderr


def test_unicode_forms_of_a_region_are_one(tmp_path):
    rows = [["T", "Z\u00fcrich", "h1", 1], ["T", "Zu\u0308rich", "h1", 1], ["T", "Bern", "h2", 1]]
    write_table(tmp_path / "u.csv", ["level_1", "level_2", "unit", "quantity"], rows)
    (tmp_path / "u.toml").write_text(
        '[hierarchy]\nunits = "u.csv"\nsizes = 3\n[privacy]\nepsilon = 40.0\nrelation = "individuals"\n'
    )
    completed = run("solve", "hierarchical-dp", tmp_path / "u.toml", "--out", tmp_path / "o", "--quiet")
    assert completed.exit_code == 0
    assert "Z\u00fcrich,T,2,1" in (tmp_path / "o/release.csv").read_text("utf-8").splitlines()


def test_headers_match_in_any_case(tmp_path):
    write_table(
        tmp_path / "t.csv", ["LEVEL_1", "Level_2", "AGE", "Count"], [["L", "N", "old", 4], ["L", "S", "young", 5]]
    )
    completed = init(tmp_path, tmp_path / "t.csv")
    assert completed.exit_code == 0, completed.output
    assert run("solve", "hierarchical-tables", tmp_path / "p.toml", "--out", tmp_path / "o", "--quiet").exit_code == 0
    assert run("verify", tmp_path / "o").exit_code == 0
    write_table(tmp_path / "t.csv", ["level_1", "level_2", "count", "COUNT"], [["L", "N", 4, 5], ["L", "S", 5, 5]])
    assert init(tmp_path, tmp_path / "t.csv").exit_code == 2


@given(st.lists(st.integers(1, 9), min_size=12, max_size=40))
def test_suspects_are_independent_of_row_order(values):
    rows = [f"L,R{number // 2},{'FM'[number % 2]},{value}" for number, value in enumerate(values)]
    suspects = set()
    for order in (rows, rows[::-1]):
        text = "\n".join(["level_1,level_2,sex,xyz", *order]) + "\n"
        table = LevelTable.read(File(name="t.csv", path=None, kept=text.encode()))
        suspects.add(find_count_suspects(table, ["sex", "xyz"]))
    assert len(suspects) == 1
    assert suspects.pop().columns == ("xyz",)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([5, 10, 30, 80, 200]), st.sampled_from([1, 2, 5, 20, 100]), st.booleans())
def test_few_persons_are_never_counts(seed, number, regions, has_rooms):
    """If the rows of a few persons happen to differ, it is not clear what they are, and init asks."""
    draw = random.Random(seed)
    rows = [
        [f"R{draw.randrange(regions)}", draw.choice("FM"), draw.randrange(100), *[draw.randrange(6)] * has_rooms]
        for _ in range(number)
    ]
    names = ["sex", "age", *["rooms"] * has_rooms]
    text = "\n".join([",".join(["level_1,level_2", *names]), *("L," + ",".join(map(str, row)) for row in rows)])
    table = LevelTable.read(File(name="t.csv", path=None, kept=text.encode()))
    assert find_count_suspects(table, names).certain is None


def test_suspects_counts_despite_missing_columns(tmp_path):
    rows = [[region, county, age, count] for region, county, age, _, count in counts_of(4)]  # each cell twice: by sex
    doubled = [row[:3] + row[4:] for row in counts_of(4, sexes=("F",))]
    for number, table_rows in enumerate((rows, [*doubled, doubled[0]])):
        table = write_table(tmp_path / f"{number}.csv", ["level_1", "level_2", "age", "xyz"], table_rows)
        completed = init(tmp_path, table)
        assert (completed.exit_code, "column xyz" in completed.output) == (2, True)
